/*
 * One grammar for .csv and .tsv. A field that begins with a quote ends at the next single quote,
 * and only a delimiter or a line end may follow; a quote elsewhere is an ordinary character. Fields
 * are unquoted in place, so a file is held once and a row costs no memory.
 */
#include "data/grow.h"
#include "data/readers.h"
#include "data/utf8.h"

#include "base/str.h"

#include <string.h>

struct field {
    char *p;
    size_t len;
    bool quoted;
};

struct table {
    struct cp_place at; /* row and line where the current row begins */
    int64_t line;       /* where p stands */
    char *p, *end;
    char delim;
    bool raw_quotes;
    struct field *field; /* of the current row */
    size_t n_fields, cap_fields;
};

/* Is p at a line end (or the end)? Then *after is where the next line begins. */
static bool at_line_end(const struct table *t, char *p, char **after)
{
    if (p < t->end && *p == '\r' && (p + 1 == t->end || p[1] == '\n')) {
        p++;
    }
    if (p == t->end || *p == '\n') {
        *after = p == t->end ? p : p + 1;
        return true;
    }
    return false;
}

static cp_err read_quoted(struct table *t, struct field *f)
{
    char *out = ++t->p;
    *f = (struct field){.p = out, .quoted = true};
    for (;; t->p++) {
        if (t->p == t->end) {
            return cp_fail_at(&t->at, "a quoted field has no closing quote before the end of the "
                                      "file; if quotes are ordinary characters here, double "
                                      "them, or convert the file");
        }
        if (*t->p == '"') {
            if (t->p + 1 == t->end || t->p[1] != '"') {
                break;
            }
            t->p++;
        }
        t->line += *t->p == '\n';
        *out++ = *t->p;
    }
    t->p++;
    f->len = (size_t)(out - f->p);
    char *after;
    if (!at_line_end(t, t->p, &after) && *t->p != t->delim) {
        return cp_fail_at(&t->at,
                          "text follows the closing quote of column %zu; write a quote "
                          "inside a field twice, or convert the file",
                          t->n_fields + 1);
    }
    return CP_OK;
}

static void read_plain(struct table *t, struct field *f)
{
    char *after;
    *f = (struct field){.p = t->p};
    while (*t->p != t->delim && !at_line_end(t, t->p, &after)) {
        t->p++;
        if (t->p == t->end) {
            break;
        }
    }
    f->len = (size_t)(t->p - f->p);
}

/* Reads the fields of one row; t->p < t->end. */
static cp_err read_row(struct table *t)
{
    t->n_fields = 0;
    t->at.line = t->line;
    for (;;) {
        struct field f = {.p = t->p};
        if (t->p < t->end && *t->p == '"' && !t->raw_quotes) {
            CP_TRY(read_quoted(t, &f));
        } else if (t->p < t->end) {
            read_plain(t, &f);
        }
        CP_TRY(cp_grow(&t->field, &t->cap_fields, t->n_fields, t->n_fields + 1, sizeof f));
        t->field[t->n_fields++] = f;
        char *after;
        if (at_line_end(t, t->p, &after)) {
            t->p = after;
            t->line++;
            return CP_OK;
        }
        t->p++; /* the delimiter */
    }
}

/* Comma or semicolon: whichever the header has more of, outside quotes. */
static char guess_delim(const char *p, const char *end)
{
    size_t commas = 0, semicolons = 0;
    bool inside = false;
    for (; p < end && (inside || *p != '\n'); p++) {
        inside = inside != (*p == '"');
        commas += !inside && *p == ',';
        semicolons += !inside && *p == ';';
    }
    return semicolons > commas ? ';' : ',';
}

/* Index of a column by its name (blanks around a name do not count); -1: none, -2: several. */
static int64_t find_column(const struct table *t, const char *name)
{
    int64_t found = -1;
    for (size_t i = 0; i < t->n_fields; i++) {
        const char *p = t->field[i].p;
        size_t len = t->field[i].len;
        for (; len > 0 && *p == ' '; p++) {
            len--;
        }
        for (; len > 0 && p[len - 1] == ' '; len--) {
        }
        if (len == strlen(name) && memcmp(p, name, len) == 0) {
            found = found == -1 ? (int64_t)i : -2;
        }
    }
    return found;
}

static cp_err fail_column(const struct table *t, const char *name, int64_t found)
{
    enum { SHOWN = 20 };
    struct cp_str list = {0};
    for (size_t i = 0; i < t->n_fields && i < SHOWN; i++) {
        char shown[CP_SHOWN_SIZE];
        cp_str_printf(&list, "%s'%s'", i ? ", " : "",
                      cp_utf8_show(t->field[i].p, t->field[i].len, shown));
    }
    cp_err err = cp_fail(CP_E_DATA, "%s: %s column '%s' in the header; the columns are %s%s",
                         t->at.file, found == -1 ? "no" : "more than one", name, cp_str_text(&list),
                         t->n_fields > SHOWN ? ", ..." : "");
    cp_str_fini(&list);
    return err;
}

static cp_err read_rows(struct table *t, const struct cp_dataset_options *opt,
                        struct cp_labels *labels, struct cp_build *out)
{
    CP_TRY(read_row(t));
    size_t columns = t->n_fields;
    int64_t text = find_column(t, cp_text_column(opt));
    int64_t label = find_column(t, cp_label_column(opt));
    if (text < 0) {
        return fail_column(t, cp_text_column(opt), text);
    }
    if (label == -2 || (label == -1 && opt->labels_required)) {
        return fail_column(t, cp_label_column(opt), label);
    }
    while (t->p < t->end) {
        t->at.row++;
        CP_TRY(read_row(t));
        bool blank = t->n_fields == 1 && t->field[0].len == 0 && !t->field[0].quoted;
        if (blank && columns > 1) {
            t->at.row--;
            continue;
        }
        if (t->n_fields != columns) {
            return cp_fail_at(&t->at, "the row has %zu columns, the header has %zu", t->n_fields,
                              columns);
        }
        int32_t class = CP_LABEL_IGNORE;
        if (label >= 0) {
            CP_TRY(cp_labels_map(labels, &t->at, t->field[label].p, t->field[label].len, &class));
        }
        CP_TRY(cp_build_add(out, t->field[text].p, t->field[text].len, class));
    }
    return CP_OK;
}

cp_err cp_table_read(const char *name, char *bytes, size_t n, char delim,
                     const struct cp_dataset_options *opt, struct cp_labels *labels,
                     struct cp_build *out)
{
    struct table t = {
        .at = {.file = name},
        .line = 1,
        .p = bytes,
        .end = bytes + n,
        .delim = delim ? delim : guess_delim(bytes, bytes + n),
        .raw_quotes = opt->raw_quotes,
    };
    cp_err err = n > 0 ? read_rows(&t, opt, labels, out) : CP_OK;
    cp_mem_free(t.field);
    return err;
}
