/*
 * A pipe of four steps, one code point at a time: clean -> decompose -> order -> build. Nothing but
 * the current word is kept, so text may be of any length. Canonical order matters only for the few
 * spacing marks (Mc) with a combining class, since Mn marks are dropped; they wait in `mark` until
 * the next starter. A word too long is counted, not kept.
 */
#include "data/words.h"

#include "data/utf8.h"

#include <assert.h>
#include <stdint.h>
#include <utf8proc.h>

struct words {
    bool stopped;
    int max_word;
    cp_word_fn *fn;
    void *arg;
    size_t len, points; /* of the current word; points counts also what no longer fits */
    size_t marks;
    int32_t mark[CP_WORD_LIMIT]; /* sorted by combining class, ties in order of arrival */
    char word[CP_WORD_LIMIT * CP_UTF8_MAX];
};

static bool is_cjk(int32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B820 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

enum kind { PLAIN, SPACE, IDEOGRAPH, DROPPED };

static enum kind kind_of(int32_t c)
{
    if (c < 0x80) {
        bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        return space ? SPACE : c < 0x20 || c == 0x7F ? DROPPED : PLAIN;
    }
    if (is_cjk(c)) {
        return IDEOGRAPH;
    }
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return SPACE;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return DROPPED;
    default: /* the unassigned (Cn) too: what is control must be known to be control */
        return c == 0xFFFD ? DROPPED : PLAIN;
    }
}

static bool is_punctuation(int32_t c)
{
    if (c < 0x80) {
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
               (c >= 123 && c <= 126);
    }
    utf8proc_category_t g = utf8proc_category(c);
    return g >= UTF8PROC_CATEGORY_PC && g <= UTF8PROC_CATEGORY_PO;
}
_Static_assert(UTF8PROC_CATEGORY_PO - UTF8PROC_CATEGORY_PC == 6, "Pc Pd Ps Pe Pi Pf Po");

static void append(struct words *w, int32_t c)
{
    if (w->points < (size_t)w->max_word) {
        w->len += cp_utf8_put(c, w->word + w->len);
    }
    w->points++;
}

static void flush_marks(struct words *w)
{
    for (size_t i = 0; i < w->marks; i++) {
        append(w, w->mark[i]);
    }
    w->marks = 0;
}

static void end_word(struct words *w)
{
    flush_marks(w);
    if (w->points > 0 && !w->stopped) {
        w->stopped = !w->fn(w->arg, w->word, w->len, w->points > (size_t)w->max_word);
    }
    w->len = 0;
    w->points = 0;
}

static void build(struct words *w, int32_t c)
{
    if (is_punctuation(c)) {
        end_word(w);
        append(w, c);
        end_word(w);
    } else {
        append(w, c);
    }
}

/* One code point of the decomposed text, in lower-case mode. */
static void order(struct words *w, int32_t c)
{
    const utf8proc_property_t *p = utf8proc_get_property(c);
    if (p->combining_class == 0) {
        flush_marks(w);
    }
    if (p->category == UTF8PROC_CATEGORY_MN) {
        return;
    }
    if (p->combining_class == 0) {
        build(w, utf8proc_tolower(c));
        return;
    }
    if (w->marks == CP_WORD_LIMIT) {
        flush_marks(w); /* the word is too long already: its order no longer matters */
    }
    size_t i = w->marks++;
    while (i > 0 && utf8proc_get_property(w->mark[i - 1])->combining_class > p->combining_class) {
        w->mark[i] = w->mark[i - 1];
        i--;
    }
    w->mark[i] = c;
}

static void decompose(struct words *w, int32_t c)
{
    if (c < 0x80) {
        if (w->marks) {
            flush_marks(w);
        }
        build(w, c >= 'A' && c <= 'Z' ? c + 32 : c);
        return;
    }
    enum { LONGEST = 8 }; /* canonical decompositions have at most 4 code points */
    int32_t part[LONGEST];
    int unused = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, part, LONGEST, UTF8PROC_DECOMPOSE, &unused);
    assert(n >= 1 && n <= LONGEST);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        order(w, part[i]);
    }
}

void cp_words_each(const char *text, size_t len, bool lower, int max_word, cp_word_fn *fn,
                   void *arg)
{
    assert(max_word >= 1 && max_word <= CP_WORD_LIMIT);
    struct words w;
    w.stopped = false;
    w.max_word = max_word;
    w.fn = fn;
    w.arg = arg;
    w.len = w.points = w.marks = 0; /* the two buffers need no zeroes */
    for (const char *p = text, *end = text + len; p < end && !w.stopped;) {
        int32_t c = cp_utf8_next(&p, end);
        enum kind kind = c == CP_UTF8_BAD ? DROPPED : kind_of(c);
        if (kind == DROPPED) {
            continue;
        }
        if (kind != PLAIN) {
            end_word(&w);
        }
        if (kind != SPACE && lower) {
            decompose(&w, c);
        } else if (kind != SPACE) {
            build(&w, c);
        }
        if (kind == IDEOGRAPH) {
            end_word(&w);
        }
    }
    end_word(&w);
}
