/* The trainer against a slow reference that counts all pairs anew before every merge. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/utf8.h"
#include "data/wordpiece.h"
#include "data/wptrain.h"
#include "unit/data/help.h"

#include <stdlib.h>

static struct cp_vocab *train(const char *const *text, int64_t n, int32_t size)
{
    struct cp_vocab *v = NULL;
    size_t len[64];
    for (int64_t i = 0; i < n; i++) {
        len[i] = strlen(text[i]);
    }
    assert_ok(cp_wordpiece_train(text, len, n, true, size, &v));
    return v;
}

static void assert_tokens(const struct cp_vocab *v, const char *want)
{
    struct cp_str got = {0};
    for (int32_t i = 0; i < cp_vocab_size(v); i++) {
        cp_str_printf(&got, "%s%s", i ? " " : "", cp_vocab_token(v, i));
    }
    assert_string_equal(got.p, want);
    cp_str_fini(&got);
}

#define HEAD "[PAD] [UNK] [CLS] [SEP] [MASK] "

static void test_by_hand(void **state)
{
    (void)state;
    /* ab x3, abc x2, b: pairs a+##b 5, then ab+##c 2. */
    static const char *const TEXT[] = {"ab ab AB", "abc abc b"};
    struct cp_vocab *v = train(TEXT, 2, 100);
    assert_tokens(v, HEAD "a ##a b ##b c ##c ab abc");
    cp_vocab_free(v);
    v = train(TEXT, 2, 12); /* room for one merge */
    assert_tokens(v, HEAD "a ##a b ##b c ##c ab");
    cp_vocab_free(v);
    v = train(TEXT, 2, 9); /* room for two of the three characters: c is the rarest */
    assert_tokens(v, HEAD "a ##a b ##b");
    cp_vocab_free(v);
}

static void test_ties_go_in_byte_order(void **state)
{
    (void)state;
    static const char *const TEXT[] = {"xy xy cd cd ca ca", "ba ba"};
    struct cp_vocab *v = train(TEXT, 2, 100);
    assert_tokens(v, HEAD "a ##a b ##b c ##c d ##d x ##x y ##y ba ca cd xy");
    cp_vocab_free(v);
}

static void test_runs_of_one_letter(void **state)
{
    (void)state;
    static const char *const TEXT[] = {"aaaaa aaaaa"};
    struct cp_vocab *v = train(TEXT, 1, 100);
    /* ##a+##a counts 3 per word, a+##a 1: a ##aa ##aa, then ##aa+##aa, then the whole word */
    assert_tokens(v, HEAD "a ##a ##aa ##aaaa aaaaa");
    cp_vocab_free(v);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const NOTHING[] = {"", " \t\x01"};
    static const char *const WORD[] = {"aa"};
    size_t len[] = {0, 3}, two = 2;
    struct cp_vocab *v = NULL;
    assert_fails(cp_wordpiece_train(NOTHING, len, 2, true, 100, &v), CP_E_DATA, "hold no word");
    assert_fails(cp_wordpiece_train(NULL, NULL, 0, true, 100, &v), CP_E_DATA, "the 0 texts");
    assert_fails(cp_wordpiece_train(WORD, &two, 1, true, 6, &v), CP_E_CONFIG, "6 pieces");
    assert_fails(cp_wordpiece_train(WORD, &two, 1, true, -1, &v), CP_E_CONFIG, "-1 pieces");
    assert_null(v);
    v = train(WORD, 1, 7);
    assert_tokens(v, HEAD "a ##a");
    cp_vocab_free(v);
}

static void test_long_words_are_left_out(void **state)
{
    (void)state;
    char text[304];
    memset(text, 'q', sizeof text);
    text[101] = ' ';
    text[203] = 0; /* 101 letters, twice */
    const char *list[] = {text, "ab ab"};
    struct cp_vocab *v = train(list, 2, 100);
    assert_tokens(v, HEAD "a ##a b ##b ab");
    cp_vocab_free(v);
    text[100] = ' '; /* 100 letters: learned */
    list[0] = text;
    v = train(list, 2, 1000);
    assert_true(cp_vocab_find(v, "##qq", 4) >= 0);
    cp_vocab_free(v);
}

/* ---- the reference ---- */

enum { WORDS = 60, LETTERS = 12, PIECES = 200 };

struct ref {
    int n_words, n_pieces;
    int count[WORDS], len[WORDS];
    int symbol[WORDS][LETTERS]; /* index into piece */
    char piece[PIECES][32];
};

static int ref_piece(struct ref *m, const char *text)
{
    for (int i = 0; i < m->n_pieces; i++) {
        if (strcmp(m->piece[i], text) == 0) {
            return i;
        }
    }
    strcpy(m->piece[m->n_pieces], text);
    return m->n_pieces++;
}

/* Does the pair (a, b) come before (c, d) among equal counts? */
static bool ref_before(const struct ref *m, int a, int b, int c, int d)
{
    int order = strcmp(m->piece[a], m->piece[c]);
    return (order ? order : strcmp(m->piece[b], m->piece[d])) < 0;
}

static int ref_count(const struct ref *m, int a, int b)
{
    int sum = 0;
    for (int w = 0; w < m->n_words; w++) {
        for (int i = 0; i + 1 < m->len[w]; i++) {
            sum += m->symbol[w][i] == a && m->symbol[w][i + 1] == b ? m->count[w] : 0;
        }
    }
    return sum;
}

/* The most frequent pair, its count as result; 0 if there is none. */
static int ref_best(const struct ref *m, int *a, int *b)
{
    int best = 0;
    for (int w = 0; w < m->n_words; w++) {
        for (int i = 0; i + 1 < m->len[w]; i++) {
            int x = m->symbol[w][i], y = m->symbol[w][i + 1], n = ref_count(m, x, y);
            if (n > best || (n == best && ref_before(m, x, y, *a, *b))) {
                best = n;
                *a = x;
                *b = y;
            }
        }
    }
    return best;
}

static void ref_merge(struct ref *m, int a, int b)
{
    char joined[64];
    snprintf(joined, sizeof joined, "%s%s", m->piece[a], m->piece[b] + 2);
    int made = ref_piece(m, joined);
    for (int w = 0; w < m->n_words; w++) {
        int n = 0;
        for (int i = 0; i < m->len[w]; n++) {
            bool hit = i + 1 < m->len[w] && m->symbol[w][i] == a && m->symbol[w][i + 1] == b;
            m->symbol[w][n] = hit ? made : m->symbol[w][i];
            i += hit ? 2 : 1;
        }
        m->len[w] = n;
    }
}

static void ref_train(struct ref *m, char words[][LETTERS + 1], const int *count, int n, int size)
{
    static const char *const SPECIAL[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    memset(m, 0, sizeof *m);
    for (int i = 0; i < 5; i++) {
        ref_piece(m, SPECIAL[i]);
    }
    for (char c = 'a'; c <= 'z'; c++) {
        char first[4] = {c}, inside[4] = {'#', '#', c};
        bool used = false;
        for (int w = 0; w < n; w++) {
            used = used || strchr(words[w], c);
        }
        if (used) {
            ref_piece(m, first);
            ref_piece(m, inside);
        }
    }
    m->n_words = n;
    for (int w = 0; w < n; w++) {
        m->count[w] = count[w];
        for (; words[w][m->len[w]]; m->len[w]++) {
            char token[4] = {'#', '#', words[w][m->len[w]]};
            m->symbol[w][m->len[w]] = ref_piece(m, m->len[w] ? token : token + 2);
        }
    }
    for (int a = 0, b = 0; m->n_pieces < size && ref_best(m, &a, &b) >= 2;) {
        ref_merge(m, a, b);
    }
}

static void test_equals_reference(void **state)
{
    (void)state;
    static struct ref m;
    struct cp_rng r;
    cp_rng_init(&r, 3, CP_RNG_TEST, 0, 0);
    for (int round = 0; round < 200; round++) {
        char words[WORDS][LETTERS + 1];
        int count[WORDS], n = 1 + (int)cp_rng_below(&r, WORDS),
                          letters = 1 + (int)cp_rng_below(&r, 4);
        struct cp_str text = {0};
        for (int w = 0; w < n; w++) {
            int len = 1 + (int)cp_rng_below(&r, LETTERS);
            for (int i = 0; i < len; i++) {
                words[w][i] = (char)('a' + cp_rng_below(&r, (uint32_t)letters));
            }
            words[w][len] = 0;
            count[w] = 1 + (int)cp_rng_below(&r, 4);
            for (int i = 0; i < count[w]; i++) {
                cp_str_printf(&text, "%s ", words[w]);
            }
        }
        int size = 5 + 2 * letters + (int)cp_rng_below(&r, 120);
        ref_train(&m, words, count, n, size);
        const char *list[] = {text.p};
        struct cp_vocab *v = train(list, 1, size);
        assert_int_equal(cp_vocab_size(v), m.n_pieces);
        for (int i = 0; i < m.n_pieces; i++) {
            assert_string_equal(cp_vocab_token(v, i), m.piece[i]);
        }
        cp_vocab_free(v);
        cp_str_fini(&text);
    }
}

/* Text in any order gives the same vocabulary, and known words encode without [UNK]. */
static void test_order_of_texts(void **state)
{
    (void)state;
    static const char *const ONE[] = {"the cat sat", "on the mat", "Caf\xC3\xA9 the cat"};
    static const char *const TWO[] = {"cafe the cat", "the cat sat", "on the mat"};
    struct cp_vocab *v = train(ONE, 3, 60), *w = train(TWO, 3, 60);
    assert_int_equal(cp_vocab_size(v), cp_vocab_size(w));
    for (int32_t i = 0; i < cp_vocab_size(v); i++) {
        assert_string_equal(cp_vocab_token(v, i), cp_vocab_token(w, i));
    }
    struct cp_tokenizer tok = {.vocab = v, .lower = true, .max_word = 100};
    int32_t ids[32];
    int n;
    bool cut;
    cp_tokenize(&tok, "metacafe sat", 12, 32, ids, &n, &cut);
    for (int i = 0; i < n; i++) {
        assert_int_not_equal(ids[i], cp_vocab_special(v, CP_UNK));
    }
    cp_vocab_free(v);
    cp_vocab_free(w);
}

static void test_failing_memory(void **state)
{
    (void)state;
    static const char *const TEXT[] = {"the cat sat on the mat the cat the mat"};
    size_t len = strlen(TEXT[0]);
    struct cp_vocab *v = NULL;
    cp_err err;
    for_each_failing_allocation(err)
    {
        err = cp_wordpiece_train(TEXT, &len, 1, true, 60, &v);
    }
    assert_non_null(v);
    cp_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_ties_go_in_byte_order),
        cmocka_unit_test(test_runs_of_one_letter),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_words_are_left_out),
        cmocka_unit_test(test_equals_reference),
        cmocka_unit_test(test_order_of_texts),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
