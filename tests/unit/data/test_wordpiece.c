/*
 * The encoder against stored results, and against a slow reference written here: whole-text steps
 * (clean, space out ideographs, NFD by utf8proc, drop Mn, lower-case, split), then greedy matching
 * that tries every length in a plain list of tokens.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/utf8.h"
#include "data/wordpiece.h"
#include "unit/data/help.h"

#include <stdlib.h>
#include <utf8proc.h>

static const char VOCAB[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
    "a\nb\nok\ndone\nhello\nmilosevic\nabc\nthis\nis\ntest\nun\nsep\nmask\n"
    "pad\ncls\ni\n##a\n##aa\n##aaaa\n##b\n##ab\n##able\n##aff\n##ed\n##e\n"
    "[\n]\n,\n.\n!\n#\n-\n\xE4\xB8\xAD\n\xE6\x96\x87\n\xE3\x80\x82\n"
    "\xC3\xA9\n##\xC3\xA9\nMilo\n\xC5\xA1\n##\xC5\xA1\n##evi\xC4\x87\n"
    "\xCF\x83\n##\xCF\x83\n\xE1\x84\x80\n##\xE1\x85\xA1\n##\xCC\x81\n"
    "##\xE3\x80\xAE\n##\xE3\x80\xAF\n##\xE1\xAD\x84\n##\xF0\x9D\x85\xA5\n##f\xE3\x80\xAE\n";

struct fixture {
    struct cp_vocab *vocab;
    struct cp_tokenizer lower, cased;
};

static struct fixture fix;

static int set_up(void **state)
{
    (void)state;
    fix.vocab = make_vocab(VOCAB);
    fix.lower = (struct cp_tokenizer){.vocab = fix.vocab, .lower = true, .max_word = 100};
    fix.cased = (struct cp_tokenizer){.vocab = fix.vocab, .lower = false, .max_word = 100};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cp_vocab_free(fix.vocab);
    return 0;
}

/* The pieces of text, [CLS] and [SEP] included, with single blanks between. */
static const char *pieces(const struct cp_tokenizer *tok, const char *text, size_t len)
{
    enum { MAX_LEN = 600 };
    static char out[MAX_LEN * 16];
    int32_t ids[MAX_LEN];
    int n = 0;
    bool cut = true;
    char *copy = malloc(len ? len : 1); /* of exact size: reading past the end is seen */
    assert_non_null(copy);
    memcpy(copy, text, len);
    cp_tokenize(tok, copy, len, MAX_LEN, ids, &n, &cut);
    free(copy);
    assert_false(cut);
    out[0] = 0;
    for (int i = 0; i < n; i++) {
        strcat(out, i ? " " : "");
        strcat(out, cp_vocab_token(tok->vocab, ids[i]));
    }
    return out;
}

#define assert_lower(text, want)                                                                   \
    assert_string_equal(pieces(&fix.lower, text, sizeof(text) - 1), "[CLS] " want "[SEP]")
#define assert_cased(text, want)                                                                   \
    assert_string_equal(pieces(&fix.cased, text, sizeof(text) - 1), "[CLS] " want "[SEP]")

static void test_plain(void **state)
{
    (void)state;
    assert_lower("This is a test.", "this is a test . ");
    assert_lower("unaffable", "un ##aff ##able ");
    assert_lower("unaffablex", "[UNK] "); /* no match in the middle: the whole word is unknown */
    assert_lower("hello,hello-a", "hello , hello - a ");
    assert_lower("aab##ab", "a ##ab # # a ##b "); /* '#' is punctuation, "##" is not forged */
    assert_lower("a\tb\r\nok\xC2\xA0is\xE3\x80\x80\x61", "a b ok is a "); /* tab, NBSP, U+3000 */
    assert_lower("a\xE2\x80\xA8\x62\xE2\x80\xA9ok", "a b ok ");           /* U+2028, U+2029 */
    assert_cased("This is", "[UNK] is "); /* no lower-casing: "This" is not in the list */
}

/* B01: accents, emoji, ideographs. */
static void test_accents_and_emoji(void **state)
{
    (void)state;
    assert_lower("ok \xF0\x9F\xA5\xB1 done", "ok [UNK] done ");
    assert_lower("ok \xF0\x9F\xBF\xBF done", "ok [UNK] done "); /* U+1FFFF: never assigned */
    assert_lower("ok \xCD\xB8 done", "ok [UNK] done ");         /* U+0378: not assigned */
    assert_lower("hello\xF0\x9F\xA5\xB1", "[UNK] ");
    assert_lower("\xC3\xA1", "a ");
    assert_lower("a\xCC\x81", "a ");
    assert_lower("\xC3\x81", "a ");
    assert_lower("Milo\xC5\xA1"
                 "evi\xC4\x87",
                 "milosevic ");
    assert_lower("milosevic", "milosevic ");
    assert_lower("\xC4\xB0", "i ");                           /* U+0130, dotted capital I */
    assert_lower("\xCE\xA3\xCE\xA3", "\xCF\x83 ##\xCF\x83 "); /* sigma, code point by code point */
    assert_lower("\xEA\xB0\x80",
                 "\xE1\x84\x80 ##\xE1\x85\xA1 "); /* Hangul falls into its letters */
    /* Spacing marks in canonical order: U+302E, U+302F (both class 224) stay, U+1B44 (9) goes first
     */
    assert_lower("a\xE3\x80\xAE\xE3\x80\xAF\xE1\xAD\x84",
                 "a ##\xE1\xAD\x84 ##\xE3\x80\xAE ##\xE3\x80\xAF ");
    assert_lower("a\xE3\x80\xAF\xE3\x80\xAE", "a ##\xE3\x80\xAF ##\xE3\x80\xAE ");
    assert_cased("a\xCC\x81", "a ##\xCC\x81 ");
    assert_cased("\xC3\xA9\xC3\xA9", "\xC3\xA9 ##\xC3\xA9 ");
    assert_cased("Milo\xC5\xA1"
                 "evi\xC4\x87",
                 "Milo ##\xC5\xA1 ##evi\xC4\x87 ");
    assert_lower("\xE4\xB8\xAD\xE6\x96\x87"
                 "abc",
                 "\xE4\xB8\xAD \xE6\x96\x87 abc ");
    assert_lower("abc\xE4\xB8\xAD"
                 "abc\xE3\x80\x82",
                 "abc \xE4\xB8\xAD abc \xE3\x80\x82 ");
    /* family: man, joiner, woman, joiner, girl: joiners go, one unknown word stays */
    assert_lower("\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
                 "[UNK] ");
    assert_lower("a\xE2\x80\x8D\x62\xC2\xAD\xEF\xBB\xBF\xEE\x80\x80", "a ##b "); /* Cf, Co */
}

/* B02: nothing to read is [CLS] [SEP]. */
static void test_nothing(void **state)
{
    (void)state;
    assert_lower("", "");
    assert_lower(" ", "");
    assert_lower("\t\r\n", "");
    assert_lower("\xE2\x80\x8B", ""); /* U+200B */
    assert_lower("\x01\x02", "");
    assert_lower("\0", "");
    assert_lower("\xCC\x81", ""); /* an accent without a letter */
    int32_t ids[2];
    int n;
    bool cut = true;
    cp_tokenize(&fix.lower, NULL, 0, 2, ids, &n, &cut);
    assert_int_equal(n, 2);
    assert_false(cut);
}

/* B05: long words; the limit counts code points. */
static void test_long_words(void **state)
{
    (void)state;
    enum { MB = 1 << 20, ROOM = 600 };
    char *text = malloc(MB);
    int32_t ids[ROOM];
    int n;
    bool cut;
    assert_non_null(text);
    memset(text, 'a', MB);
    static const struct {
        size_t len;
        int max_word, want; /* ids: [CLS], a, ##aaaa as often as fits, ##aa, ##a, [SEP] */
    } CASES[] = {{100, 100, 29}, {101, 100, 3},  {101, 200, 28}, {10000, 100, 3}, {10000, 200, 3},
                 {MB, 100, 3},   {200, 200, 54}, {201, 200, 3},  {512, 512, 132}, {513, 512, 3}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct cp_tokenizer tok = fix.lower;
        tok.max_word = CASES[i].max_word;
        cp_tokenize(&tok, text, CASES[i].len, ROOM, ids, &n, &cut);
        assert_int_equal(n, CASES[i].want);
        assert_false(cut);
        assert_int_equal(ids[1] == cp_vocab_special(fix.vocab, CP_UNK), CASES[i].want == 3);
    }
    for (int i = 0; i < 404; i += 2) { /* two-byte letters */
        memcpy(text + i, "\xC3\xA9", 2);
    }
    cp_tokenize(&fix.cased, text, 200, ROOM, ids, &n, &cut);
    assert_int_equal(n, 102);
    cp_tokenize(&fix.cased, text, 202, ROOM, ids, &n, &cut);
    assert_int_equal(n, 3);
    struct cp_tokenizer wide = fix.cased;
    wide.max_word = 200;
    cp_tokenize(&wide, text, 400, ROOM, ids, &n, &cut);
    assert_int_equal(n, 202);
    for (int i = 0; i + 3 <= MB; i += 3) { /* 349,525 marks that wait for a starter */
        memcpy(text + i, "\xE3\x80\xAE", 3);
    }
    cp_tokenize(&fix.lower, text, MB / 3 * 3, ROOM, ids, &n, &cut);
    assert_int_equal(n, 3);
    free(text);
}

/* B06: malformed UTF-8 vanishes like U+FFFD, and takes nothing with it. */
static void test_malformed(void **state)
{
    (void)state;
    assert_lower("hello \xE2\x80", "hello ");
    assert_lower("hello \xF0\x9F", "hello ");
    assert_lower("a\xC0\xAF\x62", "a ##b ");
    assert_lower("a\xED\xA0\x80\x62", "a ##b ");
    assert_lower("\x80"
                 "a",
                 "a ");
    assert_lower("\xFF\xFE"
                 "a",
                 "a ");
    assert_lower("\xE2\x80"
                 "ab",
                 "a ##b ");
    assert_lower("a\xEF\xBF\xBD\x62", "a ##b ");
}

/* B07: text cannot make special ids; truncation keeps [CLS] and [SEP]. */
static void test_special_tokens_in_text(void **state)
{
    (void)state;
    assert_lower("This is[SEP]a test", "this is [ sep ] a test ");
    assert_lower("[MASK] [PAD] [CLS]", "[ mask ] [ pad ] [ cls ] ");
    assert_cased("[SEP][UNK]", "[ [UNK] ] [ [UNK] ] ");
}

static void test_truncation(void **state)
{
    (void)state;
    char text[1201];
    int32_t full[604], ids[604];
    int n, n_full;
    bool cut;
    for (int i = 0; i < 600; i++) {
        memcpy(text + 2 * i, i % 3 ? "a " : "b ", 2);
    }
    cp_tokenize(&fix.lower, text, 1200, 602, full, &n_full, &cut);
    assert_int_equal(n_full, 602);
    assert_false(cut); /* it just fits */
    static const int MAX_LEN[] = {601, 512, 4, 3, 2};
    for (size_t i = 0; i < sizeof MAX_LEN / sizeof *MAX_LEN; i++) {
        int max_len = MAX_LEN[i];
        memset(ids, 0x55, sizeof ids);
        cp_tokenize(&fix.lower, text, 1200, max_len, ids, &n, &cut);
        assert_true(cut);
        assert_int_equal(n, max_len);
        assert_int_equal(ids[n - 1], cp_vocab_special(fix.vocab, CP_SEP));
        assert_memory_equal(ids, full, (size_t)(n - 1) * sizeof *ids);
        assert_int_equal(ids[n], 0x55555555); /* nothing behind the end is written */
    }
    /* Only blanks behind the border: nothing was cut. */
    cp_tokenize(&fix.lower, "a b   \x01", 7, 4, ids, &n, &cut);
    assert_int_equal(n, 4);
    assert_false(cut);
    /* A word is cut inside, an unknown one needs one place only. */
    cp_tokenize(&fix.lower, "a unaffable", 11, 5, ids, &n, &cut);
    assert_true(cut);
    assert_int_equal(n, 5);
    cp_tokenize(&fix.lower, "a unaffablex", 12, 4, ids, &n, &cut);
    assert_false(cut);
    assert_int_equal(n, 4);
}

static void test_check(void **state)
{
    (void)state;
    struct cp_tokenizer tok = fix.lower;
    assert_ok(cp_tokenizer_check(&tok, 2));
    assert_fails(cp_tokenizer_check(&tok, 1), CP_E_CONFIG, "[CLS] and [SEP] alone need 2");
    assert_fails(cp_tokenizer_check(&tok, 0), CP_E_CONFIG, "0 tokens");
    assert_fails(cp_tokenizer_check(&tok, -7), CP_E_CONFIG, "-7");
    tok.max_word = 0;
    assert_fails(cp_tokenizer_check(&tok, 8), CP_E_CONFIG, "longest word");
    tok.max_word = 513;
    assert_fails(cp_tokenizer_check(&tok, 8), CP_E_CONFIG, "513");
    tok.max_word = 512;
    assert_ok(cp_tokenizer_check(&tok, 8));
}

/* ---- the reference ---- */

enum { MAX_POINTS = 4096 };

static bool ref_space(int32_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || utf8proc_category_string(c)[0] == 'Z';
}

static bool ref_dropped(int32_t c)
{
    const char *g = utf8proc_category_string(c);
    return !ref_space(c) &&
           (c == 0 || c == 0xFFFD || (g[0] == 'C' && (g[1] == 'c' || g[1] == 'f' || g[1] == 'o')));
}

static bool ref_cjk(int32_t c)
{
    static const int32_t RANGE[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                       {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF},
                                       {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof RANGE / sizeof *RANGE; i++) {
        if (c >= RANGE[i][0] && c <= RANGE[i][1]) {
            return true;
        }
    }
    return false;
}

static bool ref_punctuation(int32_t c)
{
    return c < 0x80 ? c && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c)
                    : utf8proc_category_string(c)[0] == 'P';
}

/* NFD without Mn, lower-cased, in place; returns the new number of code points. */
static size_t ref_normalise(int32_t *point, size_t n)
{
    static char utf8[MAX_POINTS * 4];
    size_t bytes = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += cp_utf8_put(point[i], utf8 + bytes);
    }
    utf8proc_ssize_t m = utf8proc_decompose((utf8proc_uint8_t *)utf8, (utf8proc_ssize_t)bytes,
                                            point, MAX_POINTS, UTF8PROC_DECOMPOSE);
    assert_true(m >= 0 && m <= MAX_POINTS);
    for (utf8proc_ssize_t i = 0; i < m; i++) {
        if (strcmp(utf8proc_category_string(point[i]), "Mn") != 0) {
            point[kept++] = utf8proc_tolower(point[i]);
        }
    }
    return kept;
}

/* Is bytes the token id? */
static int32_t ref_find(const char *token)
{
    for (int32_t i = 0; i < cp_vocab_size(fix.vocab); i++) {
        if (strcmp(cp_vocab_token(fix.vocab, i), token) == 0) {
            return i;
        }
    }
    return -1;
}

static size_t ref_word(const int32_t *word, size_t n, int max_word, int32_t *ids)
{
    size_t n_ids = 0, at = 0;
    while (at < n && n <= (size_t)max_word) {
        int32_t id = -1;
        size_t end = n + 1;
        while (id < 0 && --end > at) {
            char token[1024] = "##";
            size_t bytes = at ? 2 : 0;
            for (size_t i = at; i < end; i++) {
                bytes += cp_utf8_put(word[i], token + bytes);
            }
            token[bytes] = 0;
            id = ref_find(token);
        }
        if (id < 0) {
            break;
        }
        ids[n_ids++] = id;
        at = end;
    }
    if (at < n) {
        ids[0] = 1;
        n_ids = 1;
    }
    return n_ids;
}

/* All ids between [CLS] and [SEP]. */
static size_t ref_encode(const struct cp_tokenizer *tok, const int32_t *text, size_t n,
                         int32_t *ids)
{
    static int32_t point[MAX_POINTS];
    size_t m = 0, n_ids = 0, from = 0;
    for (size_t i = 0; i < n; i++) {
        if (ref_cjk(text[i])) {
            point[m++] = ' ';
            point[m++] = text[i];
            point[m++] = ' ';
        } else if (!ref_dropped(text[i])) {
            point[m++] = ref_space(text[i]) ? ' ' : text[i];
        }
    }
    m = tok->lower ? ref_normalise(point, m) : m;
    for (size_t i = 0; i <= m; i++) {
        bool space = i == m || point[i] == ' ', punctuation = !space && ref_punctuation(point[i]);
        if (space || punctuation) {
            n_ids += i > from ? ref_word(point + from, i - from, tok->max_word, ids + n_ids) : 0;
            n_ids += punctuation ? ref_word(point + i, 1, tok->max_word, ids + n_ids) : 0;
            from = i + 1;
        }
    }
    return n_ids;
}

static const int32_t INTERESTING[] = {
    'a',     'b',    'A',    'B',    'e',     'f',     'h',     'i',      'o',     'k',
    ' ',     ' ',    ' ',    '\t',   '\n',    '\r',    '.',     ',',      '[',     ']',
    '#',     '-',    '`',    0,      1,       0x7F,    0x85,    0xA0,     0xAD,    0xC1,
    0xE1,    0xE9,   0xDF,   0x130,  0x161,   0x160,   0x107,   0x1C4,    0x301,   0x323,
    0x345,   0x37E,  0x378,  0x3A3,  0x3C2,   0x1FEF,  0x1E9E,  0x1E69,   0x1100,  0x1161,
    0xAC00,  0xAC01, 0x94D,  0x93E,  0x1B44,  0x302E,  0x302F,  0x1D165,  0x1D16D, 0x1D15E,
    0x16FF0, 0x200B, 0x200D, 0x2000, 0x2028,  0x2029,  0x202F,  0x2126,   0x212A,  0x3000,
    0x3002,  0x4E2D, 0x6587, 0x9FFF, 0xA000,  0x3400,  0xF900,  0x2F800,  0x2F9D4, 0x2B920,
    0xE000,  0xFEFF, 0xFFFD, 0xFFFE, 0x1F971, 0x1FAE9, 0x1FFFF, 0x10FFFF, 0x10400, 0x1E900,
    0x2047,  0xAB,   0x2014, 0x20DD};

static void compare_with_reference(struct cp_rng *r)
{
    static int32_t want[MAX_POINTS], got[MAX_POINTS];
    static char utf8[MAX_POINTS];
    int32_t point[400];
    size_t n = cp_rng_below(r, cp_rng_below(r, 4) ? 40 : 400), bytes = 0;
    uint32_t pool = 1 + cp_rng_below(r, sizeof INTERESTING / sizeof *INTERESTING);
    uint32_t base = cp_rng_below(r, sizeof INTERESTING / sizeof *INTERESTING);
    for (size_t i = 0; i < n; i++) {
        uint32_t k = (base + cp_rng_below(r, pool)) % (sizeof INTERESTING / sizeof *INTERESTING);
        point[i] = INTERESTING[k];
        bytes += cp_utf8_put(point[i], utf8 + bytes);
    }
    struct cp_tokenizer tok = cp_rng_below(r, 3) ? fix.lower : fix.cased;
    tok.max_word = 1 + (int)cp_rng_below(r, cp_rng_below(r, 2) ? 10 : 100);
    int max_len = 2 + (int)cp_rng_below(r, cp_rng_below(r, 2) ? 30 : 1500), n_got;
    size_t n_want = ref_encode(&tok, point, n, want + 1), fit = n_want;
    bool cut;
    fit = fit < (size_t)max_len - 2 ? fit : (size_t)max_len - 2;
    want[0] = 2;
    want[fit + 1] = 3;
    cp_tokenize(&tok, utf8, bytes, max_len, got, &n_got, &cut);
    assert_int_equal(n_got, fit + 2);
    assert_memory_equal(got, want, (fit + 2) * sizeof *got);
    assert_int_equal(cut, fit < n_want);
}

static void test_equals_reference(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 7, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 4000; i++) {
        compare_with_reference(&r);
    }
}

/* Every code point of the first two planes, and some of the rest, between two letters. */
static void test_every_code_point(void **state)
{
    (void)state;
    for (int32_t c = 1; c <= 0x10FFFF; c += c < 0x20000 ? 1 : 61) {
        for (int lower = 0; lower < 2; lower++) {
            const struct cp_tokenizer *tok = lower ? &fix.lower : &fix.cased;
            int32_t text[3] = {'a', c, 'b'}, want[16], got[16];
            char utf8[8] = "a";
            size_t bytes = 1 + cp_utf8_put(c, utf8 + 1);
            int n;
            bool cut;
            if (c >= 0xD800 && c <= 0xDFFF) {
                continue;
            }
            utf8[bytes++] = 'b';
            size_t n_want = ref_encode(tok, text, 3, want);
            cp_tokenize(tok, utf8, bytes, 16, got, &n, &cut);
            assert_int_equal(n, n_want + 2);
            assert_memory_equal(got + 1, want, n_want * sizeof *want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_accents_and_emoji),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_special_tokens_in_text),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_equals_reference),
        cmocka_unit_test(test_every_code_point),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
