/* conf_value: one text -> one field. See conf_impl.h. */
#include "base/conf_impl.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

enum { SHOWN = 40 }; /* characters of a wrong value that a message repeats */

void cp_conf_range_text(const struct cp_opt *o, struct cp_str *out)
{
    char lo[CP_NUM_TEXT], hi[CP_NUM_TEXT];
    if (o->type == CP_OPT_CHOICE) {
        cp_str_puts(out, "one of ");
        for (int i = 0; o->choices[i]; i++) {
            cp_str_printf(out, "%s%s", i ? ", " : "", o->choices[i]);
        }
        return;
    }
    if (o->type == CP_OPT_BOOL) {
        cp_str_puts(out, "true or false");
        return;
    }
    if (o->min == 0 && o->max == 0) {
        return;
    }
    cp_num_text(o->min, lo);
    cp_num_text(o->max, hi);
    if (isinf(o->max)) {
        cp_str_printf(out, "%s %s", o->above_min ? "above" : "at least", lo);
    } else if (isinf(o->min)) {
        cp_str_printf(out, "%s %s", o->below_max ? "below" : "at most", hi);
    } else {
        cp_str_printf(out, "in %c%s, %s%c", o->above_min ? '(' : '[', lo, hi,
                      o->below_max ? ')' : ']');
    }
}

static bool in_range(const struct cp_opt *o, double x)
{
    return (o->min == 0 && o->max == 0) ||
           ((o->above_min ? x > o->min : x >= o->min) && (o->below_max ? x < o->max : x <= o->max));
}

/* "'TEXT' is WHAT; allowed: RANGE". */
static cp_err refuse(const struct cp_conf_source *src, const struct cp_opt *o, const char *path,
                     struct cp_conf_piece text, const char *what)
{
    struct cp_str range = {0};
    cp_conf_range_text(o, &range);
    int n = text.n > SHOWN ? SHOWN : (int)text.n;
    cp_err err =
        cp_conf_fail(src, path, "'%.*s%s' is %s%s%s", n, text.p, text.n > SHOWN ? "..." : "", what,
                     range.len ? "; allowed: " : "", cp_str_text(&range));
    cp_str_fini(&range);
    return err;
}

size_t cp_conf_character(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    static const uint32_t LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0x80) {
        return (p[0] >= 0x20 && p[0] != 0x7f) || p[0] == '\t';
    }
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc0 || p[0] > 0xf4 || n > left) {
        return 0;
    }
    uint32_t c = p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
        c = c << 6 | (p[i] & 0x3f);
    }
    bool surrogate = c >= 0xd800 && c <= 0xdfff;
    bool control =
        (c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff || (c & 0xfffe) == 0xfffe;
    return c < LEAST[n] || c > 0x10ffff || surrogate || control ? 0 : n;
}

static bool is_line_of_text(struct cp_conf_piece t)
{
    for (size_t i = 0; i < t.n;) {
        size_t n = cp_conf_character(t.p + i, t.n - i);
        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

/* A number never needs more; longer texts are cut, and then are no numbers. */
enum { NUMBER_SIZE = 400 };

static bool number_text(struct cp_conf_piece t, char buf[NUMBER_SIZE])
{
    if (t.n >= NUMBER_SIZE || memchr(t.p, 0, t.n)) {
        return false;
    }
    memcpy(buf, t.p, t.n);
    buf[t.n] = 0;
    return true;
}

cp_err cp_conf_read_int(struct cp_conf_source *src, const struct cp_opt *o, const char *path,
                        struct cp_conf_piece text, int64_t *out)
{
    char buf[NUMBER_SIZE];
    int64_t x;
    if (!number_text(text, buf) || !cp_num_int(buf, &x) || x == CP_CONF_INT_UNSET) {
        return refuse(src, o, path, text, "not an integer of 64 bits");
    }
    if (!in_range(o, (double)x)) {
        return refuse(src, o, path, text, "out of range");
    }
    *out = x;
    return CP_OK;
}

static cp_err read_real(const struct cp_conf_source *src, const struct cp_opt *o, const char *path,
                        struct cp_conf_piece text, double *out)
{
    char buf[NUMBER_SIZE];
    double x;
    if (!number_text(text, buf) || !cp_num_real(buf, &x)) {
        return refuse(src, o, path, text, "not a finite decimal number (2.5, 2e-5)");
    }
    if (!in_range(o, x)) {
        return refuse(src, o, path, text, "out of range");
    }
    *out = x;
    return CP_OK;
}

static bool equals(struct cp_conf_piece t, const char *word)
{
    return t.n == strlen(word) && memcmp(t.p, word, t.n) == 0;
}

static cp_err read_choice(const struct cp_conf_source *src, const struct cp_opt *o,
                          const char *path, struct cp_conf_piece text, int *out)
{
    for (int i = 0; o->choices[i]; i++) {
        if (equals(text, o->choices[i])) {
            *out = i;
            return CP_OK;
        }
    }
    return refuse(src, o, path, text, "not a choice");
}

void cp_conf_unset(const struct cp_opt *o, char *base)
{
    void *field = base + o->offset;
    switch (o->type) {
    case CP_OPT_BOOL:
        *(bool *)field = false;
        break;
    case CP_OPT_INT:
        *(int64_t *)field = CP_CONF_INT_UNSET;
        break;
    case CP_OPT_REAL:
        *(double *)field = NAN;
        break;
    case CP_OPT_STRING:
        *(const char **)field = NULL;
        break;
    case CP_OPT_CHOICE:
        *(int *)field = -1;
        break;
    case CP_OPT_LIST:
        *(struct cp_conf_list *)field = (struct cp_conf_list){0};
        if (o->short_form) {
            *(const char **)(void *)(base + o->short_offset) = NULL;
        }
        break;
    case CP_OPT_CUTS:
        *(struct cp_conf_cuts *)field = (struct cp_conf_cuts){0};
        break;
    }
}

static cp_err read_string(const struct cp_conf_source *src, const char *path,
                          struct cp_conf_piece text, const char **out)
{
    if (!is_line_of_text(text)) {
        return cp_conf_fail(src, path, "must be UTF-8 text without control characters");
    }
    return cp_conf_strdup(src->conf, text.p, text.n, out);
}

cp_err cp_conf_read_scalar(struct cp_conf_source *src, const struct cp_opt *o, char *base,
                           const char *path, struct cp_conf_piece text)
{
    void *field = base + o->offset;
    if (text.null && (o->type != CP_OPT_STRING || !o->def)) {
        if (o->def || o->required) {
            return cp_conf_fail(src, path, "needs a value");
        }
        cp_conf_unset(o, base);
        return CP_OK;
    }
    switch (o->type) {
    case CP_OPT_BOOL:
        if (!equals(text, "true") && !equals(text, "false")) {
            return refuse(src, o, path, text, "not a truth value");
        }
        *(bool *)field = text.p[0] == 't';
        return CP_OK;
    case CP_OPT_INT:
        return cp_conf_read_int(src, o, path, text, field);
    case CP_OPT_REAL:
        return read_real(src, o, path, text, field);
    case CP_OPT_STRING:
        if (text.null && text.n > 0) {
            return cp_conf_fail(src, path, "needs a value; write \"\" for an empty text");
        }
        return read_string(src, path, text, field);
    case CP_OPT_CHOICE:
        return read_choice(src, o, path, text, field);
    case CP_OPT_LIST:
        if (o->short_form) {
            const char *kept;
            CP_TRY(read_string(src, path, text, &kept));
            cp_conf_unset(o, base);
            *(const char **)(void *)(base + o->short_offset) = kept;
            return CP_OK;
        }
        break;
    case CP_OPT_CUTS:
        break;
    }
    return cp_conf_fail(src, path, "must be a list in brackets");
}

cp_err cp_conf_read_text(struct cp_conf_source *src, const struct cp_opt *o, char *base,
                         const char *path, struct cp_conf_piece text)
{
    bool list = o->type == CP_OPT_LIST || o->type == CP_OPT_CUTS;
    if (list && text.n > 0 && text.p[0] == '[') {
        return cp_conf_read_list_text(src, o, base, path, text);
    }
    return cp_conf_read_scalar(src, o, base, path, text);
}
