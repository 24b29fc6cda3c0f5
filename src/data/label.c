/*
 * A wrong label must stop a run before its first step, and none may be taken for something it is
 * not: whatever looks like a number has to be a plain integer in range, and only what does not look
 * like one can be a word. "nan" and its kind are what other tools write for "missing"; they are
 * never learned as a class, but may be one if the user names it.
 */
#include "data/label.h"

#include "data/grow.h"
#include "data/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char IGNORE[] = "-100"; /* CP_LABEL_IGNORE as it is written in files */

cp_err cp_fail_at(const struct cp_place *at, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return cp_fail(CP_E_DATA, "%s: row %lld (line %lld): %s", at->file, (long long)at->row,
                   (long long)at->line, text);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool looks_like_number(const char *p, size_t len)
{
    static const char *const MISSING[] = {"nan", "inf", "infinity", "null"};
    for (size_t i = 0; i < sizeof MISSING / sizeof *MISSING; i++) {
        if (strlen(MISSING[i]) == len && strncasecmp(p, MISSING[i], len) == 0) {
            return true;
        }
    }
    if (len == 0 || !memchr("0123456789+-.,", p[0], 14)) {
        return false;
    }
    for (size_t i = 1; i < len; i++) {
        if (!memchr("0123456789+-.,eExX", p[i], 18)) {
            return false;
        }
    }
    return true;
}

/* A plain integer that fits: "0", or digits without a leading 0. -1 otherwise. */
static int32_t parse_index(const char *p, size_t len)
{
    int64_t value = 0;
    if (len == 0 || len > 10 || (p[0] == '0' && len > 1)) {
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return -1;
        }
        value = value * 10 + (p[i] - '0');
    }
    return value <= INT32_MAX ? (int32_t)value : -1;
}

cp_err cp_labels_init(struct cp_labels *l, const struct cp_dataset_options *opt)
{
    memset(l, 0, sizeof *l);
    l->opt = opt;
    if (opt->n_classes < (opt->class_names ? 1 : 0) || opt->n_classes > CP_MAX_CLASSES) {
        return cp_fail(CP_E_CONFIG, "%d classes were given; there must be 1 to %d", opt->n_classes,
                       CP_MAX_CLASSES);
    }
    for (int32_t i = 0; opt->class_names && i < opt->n_classes; i++) {
        const char *name = opt->class_names[i];
        size_t len = strlen(name);
        if (len == 0 || is_blank(name[0]) || is_blank(name[len - 1]) || strcmp(name, IGNORE) == 0) {
            return cp_fail(CP_E_CONFIG,
                           "the name of class %d is '%s'; it must not be empty, begin or end with "
                           "a blank, or be %s",
                           i, name, IGNORE);
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(opt->class_names[k], name) == 0) {
                return cp_fail(CP_E_CONFIG, "classes %d and %d have the same name '%s'", k, i,
                               name);
            }
        }
        l->numeric_names = l->numeric_names || looks_like_number(name, len);
    }
    return CP_OK;
}

void cp_labels_fini(struct cp_labels *l)
{
    for (int32_t i = 0; l->word && i < l->n; i++) {
        cp_mem_free(l->word[i].word);
    }
    cp_mem_free(l->word);
    l->word = NULL;
}

static cp_err fail_label(const struct cp_place *at, const char *text, size_t len, const char *why)
{
    char shown[CP_SHOWN_SIZE];
    return cp_fail_at(at, "the label '%s' %s", cp_utf8_show(text, len, shown), why);
}

/* Why a text that looks like a number is no label. */
static const char NOT_A_CLASS[] =
    "is not a class: a label is a plain integer from 0, a word, or -100 for none";

static cp_err map_given(const struct cp_labels *l, const struct cp_place *at, const char *text,
                        size_t len, int32_t *out)
{
    const struct cp_dataset_options *opt = l->opt;
    char why[160];
    for (int32_t i = 0; opt->class_names && i < opt->n_classes; i++) {
        if (strlen(opt->class_names[i]) == len && memcmp(opt->class_names[i], text, len) == 0) {
            *out = i;
            return CP_OK;
        }
    }
    int32_t index = l->numeric_names ? -1 : parse_index(text, len);
    if (index >= 0 && index < opt->n_classes) {
        *out = index;
        return CP_OK;
    }
    snprintf(why, sizeof why, "is none of the %d classes (0 to %d%s)", opt->n_classes,
             opt->n_classes - 1, opt->class_names ? ", or a class name" : "");
    if (l->numeric_names) {
        snprintf(why, sizeof why, "is none of the %d class names", opt->n_classes);
    }
    return fail_label(at, text, len, why);
}

static cp_err learn_integer(struct cp_labels *l, const struct cp_place *at, const char *text,
                            size_t len, int32_t *out)
{
    int32_t index = parse_index(text, len);
    char why[160];
    if (index < 0) {
        return fail_label(at, text, len, NOT_A_CLASS);
    }
    if (index >= CP_MAX_LEARNED_CLASSES) {
        snprintf(why, sizeof why,
                 "is too large to learn the classes from the file (at most %d); give their number",
                 CP_MAX_LEARNED_CLASSES);
        return fail_label(at, text, len, why);
    }
    l->seen[index] = true;
    l->n = index >= l->n ? index + 1 : l->n;
    *out = index;
    return CP_OK;
}

/* Byte order, a beginning first. */
static int compare_words(const struct cp_learned *a, const char *text, size_t len)
{
    int c = memcmp(a->word, text, a->len < len ? a->len : len);
    return c ? c : (a->len > len) - (a->len < len);
}

static cp_err learn_word(struct cp_labels *l, const struct cp_place *at, const char *text,
                         size_t len, int32_t *out)
{
    int32_t lo = 0, hi = l->n;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        int c = compare_words(&l->word[mid], text, len);
        if (c == 0) {
            *out = l->word[mid].first;
            return CP_OK;
        }
        lo = c < 0 ? mid + 1 : lo;
        hi = c < 0 ? hi : mid;
    }
    if (l->n == CP_MAX_LEARNED_CLASSES || memchr(text, 0, len)) {
        return fail_label(at, text, len,
                          "cannot be learned as a class: too many different labels, or a zero "
                          "byte; is this the label column?");
    }
    size_t n = (size_t)l->n;
    CP_TRY(cp_grow(&l->word, &l->cap_word, n, n + 1, sizeof *l->word));
    struct cp_learned fresh = {.len = len, .first = l->n};
    CP_TRY(cp_mem_new(NULL, len + 1, &fresh.word));
    memcpy(fresh.word, text, len);
    memmove(l->word + lo + 1, l->word + lo, (size_t)(l->n - lo) * sizeof *l->word);
    l->word[lo] = fresh;
    *out = l->n++;
    return CP_OK;
}

cp_err cp_labels_map(struct cp_labels *l, const struct cp_place *at, const char *text, size_t len,
                     int32_t *out)
{
    while (len > 0 && is_blank(text[0])) {
        text++;
        len--;
    }
    while (len > 0 && is_blank(text[len - 1])) {
        len--;
    }
    if (len == 0 && l->opt->labels_required) {
        return cp_fail_at(at, "the label '' is missing");
    }
    if (len == 0 || (len == sizeof IGNORE - 1 && memcmp(text, IGNORE, len) == 0)) {
        *out = CP_LABEL_IGNORE;
        return CP_OK;
    }
    if (l->opt->n_classes > 0) {
        return map_given(l, at, text, len, out);
    }
    bool number = looks_like_number(text, len);
    if (number && parse_index(text, len) < 0) {
        return fail_label(at, text, len, NOT_A_CLASS);
    }
    if (l->kind == CP_LEARN_OPEN) {
        l->kind = number ? CP_LEARN_INTEGERS : CP_LEARN_WORDS;
        l->kind_row = at->row;
    }
    if (number != (l->kind == CP_LEARN_INTEGERS)) {
        char why[160];
        snprintf(why, sizeof why, "is a %s, but row %lld has a %s; use one kind in a file",
                 number ? "number" : "word", (long long)l->kind_row, number ? "word" : "number");
        return fail_label(at, text, len, why);
    }
    return number ? learn_integer(l, at, text, len, out) : learn_word(l, at, text, len, out);
}

/* "0", "1", ... kept in l as words, so that they are freed with it. */
static cp_err name_integers(struct cp_labels *l, int32_t n)
{
    CP_TRY(cp_grow(&l->word, &l->cap_word, 0, (size_t)n, sizeof *l->word));
    l->n = 0;
    for (int32_t i = 0; i < n; i++, l->n++) {
        struct cp_learned name = {.first = i};
        CP_TRY(cp_mem_new(NULL, 12, &name.word));
        snprintf(name.word, 12, "%d", i);
        l->word[i] = name;
    }
    return CP_OK;
}

cp_err cp_labels_finish(struct cp_labels *l, const char *file, int32_t *label, int64_t n,
                        const char ***names, int32_t *n_classes)
{
    bool given = l->opt->n_classes > 0;
    int32_t classes = given ? l->opt->n_classes : l->n;
    if (!given && l->kind == CP_LEARN_INTEGERS) {
        for (int32_t i = 0; i < classes; i++) {
            if (!l->seen[i]) {
                return cp_fail(
                    CP_E_DATA,
                    "%s: the labels go up to %d, but no sample has class %d; labels "
                    "start at 0. If that is right, give the number of classes (data.classes)",
                    file, classes - 1, i);
            }
        }
    }
    if (!l->opt->class_names && l->kind != CP_LEARN_WORDS) {
        CP_TRY(name_integers(l, classes));
    }
    const char **list = NULL;
    CP_TRY(cp_mem_array(NULL, (size_t)classes, sizeof *list, &list));
    int32_t *final = NULL; /* [classes] class of a number by first appearance */
    cp_err err = cp_mem_array(NULL, (size_t)classes, sizeof *final, &final);
    if (err) {
        cp_mem_free(list);
        return err;
    }
    for (int32_t i = 0; i < classes; i++) {
        list[i] = l->opt->class_names ? l->opt->class_names[i] : l->word[i].word;
        final[l->opt->class_names ? i : l->word[i].first] = i;
    }
    for (int64_t i = 0; i < n; i++) {
        label[i] = label[i] == CP_LABEL_IGNORE ? CP_LABEL_IGNORE : final[label[i]];
    }
    cp_mem_free(final);
    *names = list;
    *n_classes = classes;
    return CP_OK;
}
