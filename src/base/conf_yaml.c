/*
 * conf_yaml: YAML nodes -> records. See conf_impl.h.
 *
 * libfyaml parses; aliases are followed one by one instead of letting it expand the document, so
 * that nine lists of nine aliases each cost nothing: only what the table asks for is visited. Merge
 * keys ("<<: *base") fill in what the mapping itself does not say; their number is limited, because
 * a mapping may merge itself.
 */
#include "base/conf_impl.h"

#include <libfyaml.h>
#include <stdio.h>
#include <string.h>

enum { MERGES_MAX = 1000 };

/* A record while a mapping is read into it. */
struct filling {
    struct cp_conf_source *src;
    struct cp_conf_scope scope;
    const char *path;                 /* of the record: "" or "clusters[1]." */
    int seen_at[CP_CONF_OPTIONS_MAX]; /* line in which an option was given; 0: not yet */
    const char *origin; /* the last made, and its line: options on one line share it */
    int origin_line;
};

static cp_err read_mapping(struct filling *f, struct fy_node *node, const char *prefix, bool weak);
static cp_err read_value(struct cp_conf_source *src, const struct cp_opt *o, char *base,
                         const char *path, struct fy_node *node);

static void go_to(struct cp_conf_source *src, struct fy_node *node)
{
    struct fy_token *token =
        node && fy_node_is_scalar(node) ? fy_node_get_scalar_token(node) : NULL;
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    if (mark) { /* else: the last place that is known, the key */
        src->line = mark->line + 1;
        src->column = mark->column + 1;
    }
}

static struct cp_conf_piece scalar_text(struct fy_node *node)
{
    struct cp_conf_piece t = {.p = ""};
    size_t n = 0;
    const char *p = fy_node_get_scalar(node, &n);
    if (p) {
        t = (struct cp_conf_piece){.p = p, .n = n};
    }
    struct fy_token *token = fy_node_get_scalar_token(node);
    bool plain = !token || fy_token_scalar_style(token) == FYSS_PLAIN;
    t.null = plain &&
             (t.n == 0 || (t.n == 1 && t.p[0] == '~') || (t.n == 4 && memcmp(t.p, "null", 4) == 0));
    return t;
}

static cp_err follow_alias(struct cp_conf_source *src, const char *path, struct fy_node **node)
{
    if (*node && fy_node_is_alias(*node)) {
        *node = fy_node_resolve_alias(*node);
        if (!*node) {
            return cp_conf_fail(src, path, "this alias has no anchor");
        }
    }
    return CP_OK;
}

static cp_err check_length(const struct cp_conf_source *src, const struct cp_opt *o,
                           const char *path, size_t n)
{
    size_t most = cp_conf_items_max(o);
    if (n < o->item_min || n > most) {
        return cp_conf_fail(src, path, "has %zu items; allowed: %zu to %zu", n, o->item_min, most);
    }
    return CP_OK;
}

static cp_err read_row(struct cp_conf_source *src, const struct cp_opt *o, const char *path,
                       struct fy_node *node, struct cp_conf_row *out)
{
    CP_TRY(follow_alias(src, path, &node));
    if (!node || !fy_node_is_sequence(node)) {
        go_to(src, node);
        return cp_conf_fail(src, path, "must be a list of lists of integers, as [[2, 1], [3]]");
    }
    size_t n = (size_t)fy_node_sequence_item_count(node);
    CP_TRY(check_length(src, o, path, n));
    struct cp_conf_row row = {.n = n};
    CP_TRY(cp_conf_alloc(src->conf, n, sizeof *row.v, &row.v));
    void *pos = NULL;
    for (size_t i = 0; i < n; i++) {
        struct fy_node *item = fy_node_sequence_iterate(node, &pos);
        CP_TRY(follow_alias(src, path, &item));
        go_to(src, item);
        if (!item || !fy_node_is_scalar(item)) {
            return cp_conf_fail(src, path, "must be a list of lists of integers");
        }
        int64_t x;
        CP_TRY(cp_conf_read_int(src, o, path, scalar_text(item), &x));
        if (x < INT32_MIN || x > INT32_MAX) {
            return cp_conf_fail(src, path, "%lld is too large", (long long)x);
        }
        row.v[i] = (int32_t)x;
    }
    *out = row;
    return CP_OK;
}

static cp_err read_cuts(struct cp_conf_source *src, const struct cp_opt *o, char *base,
                        const char *path, struct fy_node *node)
{
    struct cp_conf_cuts cuts = {.n = (size_t)fy_node_sequence_item_count(node)};
    CP_TRY(check_length(src, o, path, cuts.n));
    CP_TRY(cp_conf_alloc(src->conf, cuts.n, sizeof *cuts.row, &cuts.row));
    void *pos = NULL;
    for (size_t i = 0; i < cuts.n; i++) {
        CP_TRY(read_row(src, o, path, fy_node_sequence_iterate(node, &pos), &cuts.row[i]));
    }
    *(struct cp_conf_cuts *)(void *)(base + o->offset) = cuts;
    return CP_OK;
}

static cp_err read_record(struct cp_conf_source *src, const struct cp_opt *o, const char *path,
                          struct fy_node *node, struct cp_conf_scope scope)
{
    char inner[CP_CONF_PATH + 1];
    CP_TRY(cp_conf_defaults(src->conf, scope));
    CP_TRY(follow_alias(src, path, &node));
    if (!node || !fy_node_is_mapping(node)) {
        go_to(src, node);
        return cp_conf_fail(src, path, "must be a mapping (%s: ...)", o->item[0].key);
    }
    snprintf(inner, sizeof inner, "%s.", path);
    struct filling f = {.src = src, .scope = scope, .path = inner};
    CP_TRY(read_mapping(&f, node, "", false));
    for (int i = 0; scope.table[i].key; i++) {
        if (scope.table[i].required && !f.seen_at[i]) {
            return cp_conf_fail(src, path, "the option '%s' is missing here", scope.table[i].key);
        }
    }
    return CP_OK;
}

static cp_err read_list(struct cp_conf_source *src, const struct cp_opt *o, char *base,
                        const char *path, struct fy_node *node)
{
    struct cp_conf_list list = {.n = (size_t)fy_node_sequence_item_count(node)};
    size_t n_options = cp_conf_count(o->item);
    CP_TRY(check_length(src, o, path, list.n));
    CP_TRY(cp_conf_alloc(src->conf, list.n, o->item_size, &list.items));
    CP_TRY(cp_conf_alloc(src->conf, list.n, n_options * sizeof *list.origin, &list.origin));
    void *pos = NULL;
    for (size_t i = 0; i < list.n; i++) {
        char inner[CP_CONF_PATH];
        if (snprintf(inner, sizeof inner, "%s[%zu]", path, i) < 0) {
            inner[0] = 0;
        }
        struct cp_conf_scope scope = {o->item, (char *)list.items + i * o->item_size,
                                      list.origin + i * n_options};
        CP_TRY(read_record(src, o, inner, fy_node_sequence_iterate(node, &pos), scope));
    }
    cp_conf_unset(o, base);
    *(struct cp_conf_list *)(void *)(base + o->offset) = list;
    return CP_OK;
}

static cp_err read_value(struct cp_conf_source *src, const struct cp_opt *o, char *base,
                         const char *path, struct fy_node *node)
{
    CP_TRY(follow_alias(src, path, &node));
    go_to(src, node);
    if (node && fy_node_is_mapping(node)) {
        return cp_conf_fail(src, path, "takes a value, not a mapping");
    }
    if (!node || fy_node_is_scalar(node)) {
        struct cp_conf_piece nothing = {.p = "", .null = true};
        struct cp_conf_piece text = node ? scalar_text(node) : nothing;
        if (text.null && o->type == CP_OPT_STRING && o->def) {
            return cp_conf_fail(src, path, "needs a value; write \"\" for an empty text");
        }
        return cp_conf_read_scalar(src, o, base, path, text);
    }
    if (o->type == CP_OPT_LIST) {
        return read_list(src, o, base, path, node);
    }
    if (o->type == CP_OPT_CUTS) {
        return read_cuts(src, o, base, path, node);
    }
    return cp_conf_fail(src, path, "takes one value, not a list");
}

static cp_err read_option(struct filling *f, int i, const char *path, struct fy_node *value,
                          bool weak)
{
    struct cp_conf_source *src = f->src;
    int line = src->line;
    if (f->seen_at[i] && weak) {
        return CP_OK;
    }
    if (f->seen_at[i]) {
        return cp_conf_fail(src, path, "is given twice; the first is in line %d", f->seen_at[i]);
    }
    if (!f->origin || f->origin_line != line) {
        CP_TRY(cp_conf_origin_text(src, &f->origin));
        f->origin_line = line;
    }
    const char *origin = f->origin;
    CP_TRY(read_value(src, &f->scope.table[i], f->scope.base, path, value));
    f->seen_at[i] = line;
    f->scope.origin[i] = origin;
    return CP_OK;
}

static cp_err read_group(struct filling *f, const char *key, const char *path,
                         struct fy_node *value, bool weak)
{
    CP_TRY(follow_alias(f->src, path, &value));
    if (value && fy_node_is_mapping(value)) {
        char prefix[CP_CONF_KEY_MAX + 2];
        snprintf(prefix, sizeof prefix, "%s.", key);
        return read_mapping(f, value, prefix, weak);
    }
    if (!value || (fy_node_is_scalar(value) && scalar_text(value).null)) {
        return CP_OK; /* "train:" with nothing below */
    }
    int i = cp_conf_find_group_value(f->scope.table, key);
    if (i >= 0) {
        return read_option(f, i, path, value, weak);
    }
    go_to(f->src, value);
    return cp_conf_fail(f->src, path, "is a group of options, not a value");
}

static cp_err read_pair(struct filling *f, struct fy_node *key_node, struct fy_node *value,
                        const char *prefix, bool weak)
{
    char key[CP_CONF_KEY_MAX + 1], path[CP_CONF_PATH];
    struct cp_conf_source *src = f->src;
    go_to(src, key_node);
    if (!key_node || !fy_node_is_scalar(key_node) || fy_node_is_alias(key_node)) {
        return cp_conf_fail(src, f->path, "the key of an option must be a plain word");
    }
    struct cp_conf_piece word = scalar_text(key_node);
    for (size_t i = 0; i < word.n; i++) {
        if (word.p[i] < 0x21 || word.p[i] > 0x7e) {
            return cp_conf_fail(src, f->path, "the key of an option must be a plain word");
        }
    }
    int n = snprintf(key, sizeof key, "%s%.*s", prefix,
                     word.n > CP_CONF_KEY_MAX ? CP_CONF_KEY_MAX : (int)word.n, word.p);
    if (snprintf(path, sizeof path, "%s%s", f->path, key) < 0) {
        path[0] = 0;
    }
    if (n < 0 || n > CP_CONF_KEY_MAX) {
        return cp_conf_fail(src, path, "unknown option");
    }
    int i = cp_conf_find(f->scope.table, key);
    if (i >= 0) {
        return read_option(f, i, path, value, weak);
    }
    if (cp_conf_is_group(f->scope.table, key)) {
        return read_group(f, key, path, value, weak);
    }
    return cp_conf_fail_unknown(src, path, f->scope.table, key);
}

static bool is_merge(struct fy_node *key)
{
    if (!key || !fy_node_is_scalar(key) || fy_node_is_alias(key)) {
        return false;
    }
    struct cp_conf_piece t = scalar_text(key);
    return t.n == 2 && memcmp(t.p, "<<", 2) == 0;
}

static cp_err read_merge(struct filling *f, struct fy_node *key, struct fy_node *value,
                         const char *prefix)
{
    go_to(f->src, key);
    CP_TRY(follow_alias(f->src, "<<", &value));
    if (!value || !fy_node_is_mapping(value)) {
        return cp_conf_fail(f->src, "<<", "takes the alias of a mapping");
    }
    if (++f->src->merges > MERGES_MAX) {
        return cp_conf_fail(f->src, "<<", "more than %d mappings are merged: is there a loop?",
                            MERGES_MAX);
    }
    return read_mapping(f, value, prefix, true);
}

/* What the mapping says itself first, then what it merges; weak: only what is not given yet. */
static cp_err read_mapping(struct filling *f, struct fy_node *node, const char *prefix, bool weak)
{
    for (int merging = 0; merging < 2; merging++) {
        void *pos = NULL;
        struct fy_node_pair *pair;
        while ((pair = fy_node_mapping_iterate(node, &pos)) != NULL) {
            struct fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
            if (is_merge(key) != (merging == 1)) {
                continue;
            }
            CP_TRY(merging ? read_merge(f, key, value, prefix)
                           : read_pair(f, key, value, prefix, weak));
        }
    }
    return CP_OK;
}

/* What libfyaml says of a text that is no YAML. */
static cp_err fail_syntax(struct cp_conf_source *src, struct fy_diag *diag)
{
    void *pos = NULL;
    struct fy_diag_error *e = fy_diag_errors_iterate(diag, &pos);
    if (!e) {
        return cp_conf_fail(src, "", "this is not valid YAML");
    }
    src->line = e->line;
    src->column = e->column;
    return cp_conf_fail(src, "", "%s", e->msg);
}

/* libfyaml 0.7.12 never returns from some texts that are no UTF-8 (found by fuzzing), so it gets
 * only lines of well-formed characters. */
static cp_err check_characters(struct cp_conf_source *src, const char *text, size_t n)
{
    size_t i = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    int line = 1, column = 1;
    while (i < n) {
        bool breaks = text[i] == '\n';
        size_t step = breaks || text[i] == '\r' ? 1 : cp_conf_character(text + i, n - i);
        if (step == 0) {
            src->line = line;
            src->column = column;
            return cp_conf_fail(src, "", "a control character or bytes that are no UTF-8");
        }
        line += breaks;
        column = breaks ? 1 : column + 1;
        i += step;
    }
    return CP_OK;
}

struct yaml {
    struct fy_diag *diag;
    struct fy_parser *parser;
    struct fy_document *doc; /* NULL: nothing but blanks and comments */
};

static void yaml_fini(struct yaml *y)
{
    if (y->doc) {
        fy_parse_document_destroy(y->parser, y->doc);
    }
    if (y->parser) {
        fy_parser_destroy(y->parser);
    }
    if (y->diag) {
        fy_diag_destroy(y->diag);
    }
}

static cp_err yaml_init(struct yaml *y, struct cp_conf_source *src, const char *text, size_t n)
{
    struct fy_diag_cfg diag_cfg;
    CP_TRY(check_characters(src, text, n));
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    *y = (struct yaml){.diag = fy_diag_create(&diag_cfg)};
    if (!y->diag) {
        return cp_fail(CP_E_NOMEM, "%s: out of memory while reading it", src->name);
    }
    fy_diag_set_collect_errors(y->diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG, .diag = y->diag};
    y->parser = fy_parser_create(&cfg);
    if (!y->parser || fy_parser_set_string(y->parser, text, n) != 0) {
        yaml_fini(y);
        return cp_fail(CP_E_NOMEM, "%s: out of memory while reading it", src->name);
    }
    y->doc = fy_parse_load_document(y->parser);
    struct fy_document *second = y->doc ? fy_parse_load_document(y->parser) : NULL;
    cp_err err = CP_OK;
    if (fy_parser_get_stream_error(y->parser)) {
        err = fail_syntax(src, y->diag);
    } else if (second) {
        go_to(src, fy_document_root(second));
        err = cp_conf_fail(src, "", "a second document starts; a configuration is one");
    }
    if (second) {
        fy_parse_document_destroy(y->parser, second);
    }
    if (err) {
        yaml_fini(y);
    }
    return err;
}

cp_err cp_conf_read_document(struct cp_conf_source *src, struct cp_conf_scope s, const char *text,
                             size_t n)
{
    struct yaml y;
    CP_TRY(yaml_init(&y, src, text, n));
    struct fy_node *root = y.doc ? fy_document_root(y.doc) : NULL;
    cp_err err = CP_OK;
    if (root && !fy_node_is_mapping(root)) {
        if (!fy_node_is_scalar(root) || !scalar_text(root).null) {
            go_to(src, root);
            err = cp_conf_fail(src, "", "a configuration is a mapping of options (key: value)");
        }
    } else if (root) {
        struct filling f = {.src = src, .scope = s, .path = ""};
        err = read_mapping(&f, root, "", false);
    }
    yaml_fini(&y);
    return err;
}

cp_err cp_conf_read_list_text(struct cp_conf_source *src, const struct cp_opt *o, char *base,
                              const char *path, struct cp_conf_piece text)
{
    struct yaml y;
    cp_err err = yaml_init(&y, src, text.p, text.n);
    if (err) {
        return cp_fail_in(err, "%s", path);
    }
    err = read_value(src, o, base, path, y.doc ? fy_document_root(y.doc) : NULL);
    yaml_fini(&y);
    return err;
}
