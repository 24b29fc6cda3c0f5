/* conf_print: records -> YAML that loads back; table -> help. See conf_impl.h. */
#include "base/conf_impl.h"
#include "base/num.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEP = 2 }; /* columns of indentation per level */

struct printer {
    struct cp_str *out;
    bool comments;
    bool help; /* of the top table only: a list would repeat it per item */
    int indent;
    bool dash; /* the next line is the first of a list item */
};

static void print_scope(struct printer *p, struct cp_conf_scope s, const char *prefix);

static void start_line(struct printer *p)
{
    int blanks = p->dash ? p->indent - STEP : p->indent;
    cp_str_printf(p->out, "%*s%s", blanks, "", p->dash ? "- " : "");
    p->dash = false;
}

/* Words that need no quotes and cannot be taken for a number, a truth value or null. */
static bool is_plain(const char *s)
{
    static const char *const SPECIAL[] = {"null", "true", "false"};
    if (!isalpha((unsigned char)s[0]) && s[0] != '/') {
        return false;
    }
    for (const char *p = s; *p; p++) {
        if (!isalnum((unsigned char)*p) && !strchr("_-./", *p)) {
            return false;
        }
    }
    for (size_t i = 0; i < sizeof SPECIAL / sizeof *SPECIAL; i++) {
        if (strcmp(s, SPECIAL[i]) == 0) {
            return false;
        }
    }
    return true;
}

static void print_string(struct cp_str *out, const char *s)
{
    if (!s) {
        cp_str_puts(out, "null");
        return;
    }
    if (is_plain(s)) {
        cp_str_puts(out, s);
        return;
    }
    cp_str_puts(out, "\"");
    for (const char *p = s; *p; p++) {
        if (*p == '"' || *p == '\\') {
            cp_str_add(out, "\\", 1);
        }
        if (*p == '\t') {
            cp_str_puts(out, "\\t");
        } else {
            cp_str_add(out, p, 1);
        }
    }
    cp_str_puts(out, "\"");
}

static void print_cuts(struct cp_str *out, const struct cp_conf_cuts *cuts)
{
    cp_str_puts(out, "[");
    for (size_t i = 0; i < cuts->n; i++) {
        cp_str_puts(out, i ? ", [" : "[");
        for (size_t k = 0; k < cuts->row[i].n; k++) {
            cp_str_printf(out, "%s%d", k ? ", " : "", cuts->row[i].v[k]);
        }
        cp_str_puts(out, "]");
    }
    cp_str_puts(out, "]");
}

static void print_real(struct cp_str *out, double x)
{
    char text[CP_NUM_TEXT];
    cp_num_text(x, text);
    cp_str_puts(out, isnan(x) ? "null" : text);
}

/* The short form if the list has one now, else NULL. */
static const char *short_text(const struct cp_opt *o, const char *base)
{
    return o->short_form ? *(const char *const *)(const void *)(base + o->short_offset) : NULL;
}

/* The value on the line of its key; false if items have to follow. */
static bool print_value(struct cp_str *out, const struct cp_opt *o, const char *base)
{
    const void *field = base + o->offset;
    switch (o->type) {
    case CP_OPT_BOOL:
        cp_str_puts(out, *(const bool *)field ? "true" : "false");
        break;
    case CP_OPT_INT:
        if (*(const int64_t *)field == CP_CONF_INT_UNSET) {
            cp_str_puts(out, "null");
        } else {
            cp_str_printf(out, "%lld", (long long)*(const int64_t *)field);
        }
        break;
    case CP_OPT_REAL:
        print_real(out, *(const double *)field);
        break;
    case CP_OPT_STRING:
        print_string(out, *(const char *const *)field);
        break;
    case CP_OPT_CHOICE:
        print_string(out, *(const int *)field < 0 ? NULL : o->choices[*(const int *)field]);
        break;
    case CP_OPT_CUTS:
        print_cuts(out, field);
        break;
    case CP_OPT_LIST:
        if (short_text(o, base)) {
            print_string(out, short_text(o, base));
        } else if (((const struct cp_conf_list *)field)->n == 0) {
            cp_str_puts(out, "[]");
        } else {
            return false;
        }
        break;
    }
    return true;
}

static void print_comment(struct printer *p, const struct cp_opt *o, const char *origin)
{
    if (!p->comments) {
        return;
    }
    cp_str_printf(p->out, "  # %s", origin);
    if (p->help && o->help) {
        cp_str_printf(p->out, " | %s", o->help);
    }
    if (p->help && o->unit) {
        cp_str_printf(p->out, " [%s]", o->unit);
    }
}

static void print_items(struct printer *p, const struct cp_opt *o, const char *base)
{
    const struct cp_conf_list *list = (const void *)(base + o->offset);
    struct printer inner = *p;
    inner.help = false;
    inner.indent += 2 * STEP;
    for (size_t i = 0; i < list->n; i++) {
        inner.dash = true;
        struct cp_conf_scope s = {o->item, (char *)list->items + i * o->item_size,
                                  list->origin + i * cp_conf_count(o->item)};
        print_scope(&inner, s, "");
    }
}

static void print_option(struct printer *p, struct cp_conf_scope s, int i, const char *name)
{
    const struct cp_opt *o = &s.table[i];
    start_line(p);
    cp_str_printf(p->out, "%s:", name);
    size_t mark = p->out->len;
    cp_str_puts(p->out, " ");
    bool done = print_value(p->out, o, s.base);
    if (!done && !p->out->failed) {
        p->out->len = mark; /* no blank at the end of the line */
    }
    print_comment(p, o, s.origin[i]);
    cp_str_puts(p->out, "\n");
    if (!done) {
        print_items(p, o, s.base);
    }
}

/* True for the first option of a group below prefix: the group is printed there as a whole. */
static bool opens_group(const struct cp_opt *table, int i, size_t group_len)
{
    for (int k = 0; k < i; k++) {
        if (strncmp(table[k].key, table[i].key, group_len + 1) == 0) {
            return false;
        }
    }
    return true;
}

static void print_scope(struct printer *p, struct cp_conf_scope s, const char *prefix)
{
    size_t n = strlen(prefix);
    for (int i = 0; s.table[i].key; i++) {
        const char *key = s.table[i].key;
        if (strncmp(key, prefix, n) != 0) {
            continue;
        }
        const char *dot = strchr(key + n, '.');
        if (!dot) {
            print_option(p, s, i, key + n);
        } else if (opens_group(s.table, i, (size_t)(dot - key))) {
            char group[CP_CONF_KEY_MAX + 2];
            snprintf(group, sizeof group, "%.*s.", (int)(dot - key), key);
            start_line(p);
            cp_str_printf(p->out, "%.*s:\n", (int)(dot - key - (ptrdiff_t)n), key + n);
            p->indent += STEP;
            print_scope(p, s, group);
            p->indent -= STEP;
        }
    }
}

cp_err cp_conf_print_scope(struct cp_conf_scope s, bool comments, struct cp_str *out)
{
    struct printer p = {.out = out, .comments = comments, .help = comments};
    print_scope(&p, s, "");
    return cp_str_check(out);
}

static void help_table(const struct cp_opt *table, const char *prefix, struct cp_str *out)
{
    static const char *const TYPES[] = {[CP_OPT_BOOL] = "true|false",
                                        [CP_OPT_INT] = "integer",
                                        [CP_OPT_REAL] = "number",
                                        [CP_OPT_STRING] = "text",
                                        [CP_OPT_CHOICE] = "word",
                                        [CP_OPT_LIST] = "list",
                                        [CP_OPT_CUTS] = "[[integer, ...], ...]"};
    for (int i = 0; table[i].key; i++) {
        const struct cp_opt *o = &table[i];
        cp_str_printf(out, "  %s%s  %s%s", prefix, o->key, TYPES[o->type],
                      o->short_form ? " or text" : "");
        if (o->unit) {
            cp_str_printf(out, " [%s]", o->unit);
        }
        if (o->type != CP_OPT_BOOL) {
            cp_str_puts(out, o->type == CP_OPT_CHOICE || o->min != 0 || o->max != 0 ? ", " : "");
            cp_conf_range_text(o, out);
        }
        cp_str_puts(out, o->required ? ", required" : o->def ? ", default " : ", no default");
        if (o->def && !o->required) {
            cp_str_puts(out, o->def[0] ? o->def : "\"\"");
        }
        cp_str_puts(out, "\n");
        if (o->help || o->symbol) {
            cp_str_printf(out, "      %s%s%s%s\n", o->help ? o->help : "", o->symbol ? " (" : "",
                          o->symbol ? o->symbol : "", o->symbol ? ")" : "");
        }
        if (o->type == CP_OPT_LIST) {
            char inner[CP_CONF_PATH];
            if (snprintf(inner, sizeof inner, "%s%s[].", prefix, o->key) > 0) {
                help_table(o->item, inner, out);
            }
        }
    }
}

cp_err cp_conf_help(const struct cp_opt *table, struct cp_str *out)
{
    help_table(table, "", out);
    return cp_str_check(out);
}
