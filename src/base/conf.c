/* conf: the calls of conf.h, and what they need of the table. See conf_impl.h. */
#include "base/conf.h"

#include "base/conf_impl.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <ctype.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX_BYTES = 4 << 20 };

/* Stands in front of every piece of memory of a configuration. */
struct block {
    alignas(16) struct block *next;
};

struct cp_conf {
    struct cp_conf_scope scope;
    size_t size;
    struct block *blocks; /* newest first */
};

/* What a failed call goes back to. */
struct undo {
    char *values;
    const char **origin;
    struct block *blocks;
};

size_t cp_conf_count(const struct cp_opt *table)
{
    size_t n = 0;
    while (table[n].key) {
        n++;
    }
    return n;
}

size_t cp_conf_items_max(const struct cp_opt *o)
{
    return o->item_max ? o->item_max : CP_CONF_ITEMS_MAX;
}

int cp_conf_find(const struct cp_opt *table, const char *key)
{
    for (int i = 0; table[i].key; i++) {
        if (strcmp(table[i].key, key) == 0) {
            return i;
        }
    }
    return -1;
}

static bool is_inside(const char *key, const char *group)
{
    size_t n = strlen(group);
    return strncmp(key, group, n) == 0 && key[n] == '.';
}

int cp_conf_find_group_value(const struct cp_opt *table, const char *group)
{
    for (int i = 0; table[i].key; i++) {
        if (table[i].group_value && is_inside(table[i].key, group) &&
            !strchr(table[i].key + strlen(group) + 1, '.')) {
            return i;
        }
    }
    return -1;
}

bool cp_conf_is_group(const struct cp_opt *table, const char *key)
{
    for (int i = 0; table[i].key; i++) {
        if (is_inside(table[i].key, key)) {
            return true;
        }
    }
    return false;
}

static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* The first group that resembles key, into out. */
static bool suggest_group(const struct cp_opt *table, const char *key,
                          char out[CP_CONF_KEY_MAX + 1])
{
    for (int i = 0; table[i].key; i++) {
        const char *dot = strrchr(table[i].key, '.');
        snprintf(out, CP_CONF_KEY_MAX + 1, "%.*s", dot ? (int)(dot - table[i].key) : 0,
                 table[i].key);
        const char *group = out;
        if (dot && cp_nearest(key, &group, 1)) {
            return true;
        }
    }
    return false;
}

/* Among whole keys, then among groups; then "lr" alone may stand for "train.lr". */
bool cp_conf_suggest(const struct cp_opt *table, const char *key, char out[CP_CONF_KEY_MAX + 1])
{
    const char *word[CP_CONF_OPTIONS_MAX] = {0};
    size_t n = cp_conf_count(table);
    for (size_t i = 0; i < n; i++) {
        word[i] = table[i].key;
    }
    const char *near = cp_nearest(key, word, n);
    if (!near && suggest_group(table, key, out)) {
        return true;
    }
    for (size_t i = 0; !near && i < n; i++) {
        word[i] = last_word(table[i].key);
    }
    const char *last = near ? NULL : cp_nearest(last_word(key), word, n);
    for (size_t i = 0; last && !near && i < n; i++) {
        near = word[i] == last ? table[i].key : NULL;
    }
    snprintf(out, CP_CONF_KEY_MAX + 1, "%s", near ? near : "");
    return near != NULL;
}

cp_err cp_conf_fail_unknown(const struct cp_conf_source *src, const char *path,
                            const struct cp_opt *table, const char *key)
{
    char near[CP_CONF_KEY_MAX + 1];
    bool found = cp_conf_suggest(table, key, near);
    return cp_conf_fail(src, path, "unknown option%s%s%s", found ? "; did you mean '" : "", near,
                        found ? "'?" : "");
}

cp_err cp_conf_alloc(struct cp_conf *c, size_t n, size_t size, void *out_ptr)
{
    struct block *b = NULL;
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, sizeof *b, &bytes)) {
        return cp_fail(CP_E_NOMEM, "a list of %zu items of %zu bytes is too long", n, size);
    }
    CP_TRY(cp_mem_new(NULL, bytes, &b));
    b->next = c->blocks;
    c->blocks = b;
    void *payload = b + 1;
    memcpy(out_ptr, &payload, sizeof payload);
    return CP_OK;
}

cp_err cp_conf_strdup(struct cp_conf *c, const char *p, size_t n, const char **out)
{
    char *copy = NULL;
    CP_TRY(cp_conf_alloc(c, n + 1, 1, &copy));
    memcpy(copy, p, n);
    *out = copy;
    return CP_OK;
}

static void free_blocks(struct cp_conf *c, const struct block *until)
{
    while (c->blocks != until) {
        struct block *next = c->blocks->next;
        cp_mem_free(c->blocks);
        c->blocks = next;
    }
}

cp_err cp_conf_fail(const struct cp_conf_source *src, const char *path, const char *fmt, ...)
{
    char sentence[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    const char *colon = path[0] ? ": " : "";
    if (src->has_lines) {
        return cp_fail(CP_E_CONFIG, "%s:%d:%d: %s%s%s", src->name, src->line, src->column, path,
                       colon, sentence);
    }
    return cp_fail(CP_E_CONFIG, "%s: %s%s%s", src->name, path, colon, sentence);
}

cp_err cp_conf_origin_text(const struct cp_conf_source *src, const char **out)
{
    char text[CP_CONF_PATH];
    int n = src->has_lines ? snprintf(text, sizeof text, "%s:%d", src->name, src->line)
                           : snprintf(text, sizeof text, "%s", src->name);
    if (n < 0 || n >= (int)sizeof text) {
        n = (int)sizeof text - 1;
    }
    for (int i = 0; i < n; i++) { /* it will be a comment in YAML: one line */
        text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    }
    return cp_conf_strdup(src->conf, text, (size_t)n, out);
}

cp_err cp_conf_defaults(struct cp_conf *c, struct cp_conf_scope s)
{
    for (int i = 0; s.table[i].key; i++) {
        const struct cp_opt *o = &s.table[i];
        struct cp_conf_source src = {.conf = c, .name = "default"};
        s.origin[i] = "default";
        if (!o->def) {
            cp_conf_unset(o, s.base);
        } else {
            struct cp_conf_piece text = {.p = o->def, .n = strlen(o->def)};
            cp_err err = cp_conf_read_text(&src, o, s.base, o->key, text);
            assert(err != CP_E_CONFIG); /* the table's own default does not fit the table */
            CP_TRY(err);
        }
    }
    return CP_OK;
}

static void env_name(const char *key, size_t n, char out[CP_CONF_KEY_MAX + 1])
{
    size_t i = 0;
    for (; i < n && i < CP_CONF_KEY_MAX; i++) {
        out[i] = key[i] == '.' ? '_' : (char)toupper((unsigned char)key[i]);
    }
    out[i] = 0;
}

/* The option that a variable (without prefix) names; -1. */
static int find_env(const struct cp_opt *table, const char *name)
{
    char expected[CP_CONF_KEY_MAX + 1];
    for (int i = 0; table[i].key; i++) {
        env_name(table[i].key, strlen(table[i].key), expected);
        if (strcmp(name, expected) == 0) {
            return i;
        }
        if (table[i].group_value) {
            env_name(table[i].key, (size_t)(strrchr(table[i].key, '.') - table[i].key), expected);
            if (strcmp(name, expected) == 0) {
                return i;
            }
        }
    }
    return -1;
}

/* Mistakes in a table are ours. */
static void check_table(const struct cp_opt *table)
{
    size_t n = cp_conf_count(table);
    assert(n <= CP_CONF_OPTIONS_MAX);
    for (size_t i = 0; i < n; i++) {
        assert(strlen(table[i].key) <= CP_CONF_KEY_MAX);
        assert(cp_conf_find(table, table[i].key) == (int)i);
        assert(!cp_conf_is_group(table, table[i].key));
        assert(!table[i].group_value || strchr(table[i].key, '.'));
        assert(table[i].type != CP_OPT_CHOICE || table[i].choices);
        if (table[i].type == CP_OPT_LIST) {
            check_table(table[i].item);
        }
    }
}

static void check_env_names(const struct cp_opt *table)
{
    char name[CP_CONF_KEY_MAX + 1];
    for (int i = 0; table[i].key; i++) {
        env_name(table[i].key, strlen(table[i].key), name);
        assert(find_env(table, name) == i);
    }
}

cp_err cp_conf_new(const struct cp_opt *table, size_t struct_size, struct cp_conf **out)
{
    struct cp_conf *c = NULL;
    CP_TRY(cp_mem_new(NULL, sizeof *c, &c));
    size_t n = cp_conf_count(table);
    check_table(table);
    check_env_names(table);
    c->scope.table = table;
    c->size = struct_size;
    cp_err err;
    CP_TRY_GOTO(err, cp_conf_alloc(c, struct_size, 1, &c->scope.base), fail);
    CP_TRY_GOTO(err, cp_conf_alloc(c, n, sizeof *c->scope.origin, &c->scope.origin), fail);
    CP_TRY_GOTO(err, cp_conf_defaults(c, c->scope), fail);
    *out = c;
    return CP_OK;
fail:
    cp_conf_free(c);
    return err;
}

void cp_conf_free(struct cp_conf *c)
{
    if (c) {
        free_blocks(c, NULL);
        cp_mem_free(c);
    }
}

static size_t origin_bytes(const struct cp_conf *c)
{
    return cp_conf_count(c->scope.table) * sizeof *c->scope.origin;
}

static cp_err undo_init(struct undo *u, struct cp_conf *c)
{
    *u = (struct undo){.blocks = c->blocks};
    CP_TRY(cp_mem_new(NULL, c->size, &u->values));
    cp_err err = cp_mem_new(NULL, origin_bytes(c), &u->origin);
    if (err) {
        cp_mem_free(u->values);
        return err;
    }
    memcpy(u->values, c->scope.base, c->size);
    memcpy(u->origin, c->scope.origin, origin_bytes(c));
    return CP_OK;
}

/* Ends what undo_init began: goes back if err. */
static cp_err undo_end(struct undo *u, struct cp_conf *c, cp_err err)
{
    if (err) {
        memcpy(c->scope.base, u->values, c->size);
        memcpy(c->scope.origin, u->origin, origin_bytes(c));
        free_blocks(c, u->blocks);
    }
    cp_mem_free(u->values);
    cp_mem_free(u->origin);
    return err;
}

cp_err cp_conf_load_text(struct cp_conf *c, const char *name, const char *text, size_t n)
{
    struct cp_conf_source src = {
        .conf = c, .name = name, .has_lines = true, .line = 1, .column = 1};
    struct undo undo;
    CP_TRY(undo_init(&undo, c));
    return undo_end(&undo, c, cp_conf_read_document(&src, c->scope, text, n));
}

cp_err cp_conf_load_file(struct cp_conf *c, const char *path)
{
    struct cp_str text = {0};
    cp_err err = cp_file_read(path, FILE_MAX_BYTES, &text);
    if (!err) {
        err = cp_conf_load_text(c, path, cp_str_text(&text), text.len);
    }
    cp_str_fini(&text);
    return err;
}

/* A text typed outside of YAML: taken as it is; "null", "~" and nothing unset what may be unset. */
static cp_err set_typed(struct cp_conf_source *src, struct cp_conf_scope s, int i, const char *path,
                        const char *value)
{
    const struct cp_opt *o = &s.table[i];
    struct cp_conf_piece text = {.p = value, .n = strlen(value)};
    text.null = text.n == 0 || strcmp(value, "~") == 0 || strcmp(value, "null") == 0;
    if (text.null && o->type == CP_OPT_STRING && o->def) {
        text.null = false;
    }
    const char *origin;
    CP_TRY(cp_conf_origin_text(src, &origin));
    CP_TRY(cp_conf_read_text(src, o, s.base, path, text));
    s.origin[i] = origin;
    return CP_OK;
}

/* "clusters.0.devices.1.gflops" -> the record and its option; *scope is narrowed on the way. */
static int find_deep(struct cp_conf_scope *scope, const char *key)
{
    int i = cp_conf_find(scope->table, key);
    if (i < 0) {
        i = cp_conf_find_group_value(scope->table, key);
    }
    for (int k = 0; i < 0 && scope->table[k].key; k++) {
        const struct cp_opt *o = &scope->table[k];
        if (o->type != CP_OPT_LIST || !is_inside(key, o->key)) {
            continue;
        }
        const struct cp_conf_list *list = (const void *)(scope->base + o->offset);
        const char *p = key + strlen(o->key) + 1;
        size_t index = 0, digits = 0;
        for (; isdigit((unsigned char)p[digits]) && digits < 6; digits++) {
            index = index * 10 + (size_t)(p[digits] - '0');
        }
        if (digits == 0 || p[digits] != '.' || index >= list->n) {
            return -1;
        }
        *scope = (struct cp_conf_scope){o->item, (char *)list->items + index * o->item_size,
                                        list->origin + index * cp_conf_count(o->item)};
        return find_deep(scope, p + digits + 1);
    }
    return i;
}

cp_err cp_conf_override(struct cp_conf *c, const char *assignment)
{
    struct cp_conf_source src = {.conf = c, .name = "command line"};
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        return cp_conf_fail(&src, "", "'%.60s' is not of the form group.key=value", assignment);
    }
    size_t n = (size_t)(equals - assignment);
    char key[CP_CONF_PATH];
    if (n >= sizeof key) {
        return cp_conf_fail(&src, "", "unknown option '%.60s...'", assignment);
    }
    memcpy(key, assignment, n);
    key[n] = 0;
    struct cp_conf_scope scope = c->scope;
    int i = find_deep(&scope, key);
    if (i < 0) {
        return cp_conf_fail_unknown(&src, key, scope.table, key);
    }
    struct undo undo;
    CP_TRY(undo_init(&undo, c));
    return undo_end(&undo, c, set_typed(&src, scope, i, key, equals + 1));
}

static cp_err unknown_env(const struct cp_conf *c, const char *prefix, const char *name)
{
    const char *word[CP_CONF_OPTIONS_MAX] = {0};
    char(*names)[CP_CONF_KEY_MAX + 1] = NULL;
    size_t n = cp_conf_count(c->scope.table);
    CP_TRY(cp_mem_array(NULL, n, sizeof *names, &names));
    for (size_t i = 0; i < n; i++) {
        env_name(c->scope.table[i].key, strlen(c->scope.table[i].key), names[i]);
        word[i] = names[i];
    }
    const char *near = cp_nearest(name, word, n);
    cp_err err = CP_OK;
    if (near) {
        err = cp_fail(CP_E_CONFIG, "environment %s%s: unknown option; did you mean %s%s?", prefix,
                      name, prefix, near);
    }
    cp_mem_free(names);
    if (err) {
        return err;
    }
    cp_log(CP_LOG_WARN, "environment %s%s is not an option and is ignored", prefix, name);
    return CP_OK;
}

static cp_err load_variable(struct cp_conf *c, const char *prefix, const char *variable)
{
    char name[CP_CONF_PATH], full[CP_CONF_PATH + 16];
    size_t skip = strlen(prefix);
    const char *equals = strchr(variable, '=');
    if (strncmp(variable, prefix, skip) != 0 || !equals || equals < variable + skip ||
        equals - variable - (ptrdiff_t)skip >= (ptrdiff_t)sizeof name) {
        return CP_OK;
    }
    size_t n = (size_t)(equals - variable) - skip;
    memcpy(name, variable + skip, n);
    name[n] = 0;
    int i = find_env(c->scope.table, name);
    if (i < 0) {
        return unknown_env(c, prefix, name);
    }
    snprintf(full, sizeof full, "environment %.*s", (int)(equals - variable), variable);
    struct cp_conf_source src = {.conf = c, .name = full};
    return set_typed(&src, c->scope, i, c->scope.table[i].key, equals + 1);
}

cp_err cp_conf_load_env(struct cp_conf *c, const char *prefix, char *const *envp)
{
    struct undo undo;
    CP_TRY(undo_init(&undo, c));
    cp_err err = CP_OK;
    for (size_t i = 0; !err && envp && envp[i]; i++) {
        err = load_variable(c, prefix, envp[i]);
    }
    return undo_end(&undo, c, err);
}

const void *cp_conf_values(const struct cp_conf *c)
{
    return c->scope.base;
}

const char *cp_conf_origin(const struct cp_conf *c, const char *key)
{
    struct cp_conf_scope scope = c->scope;
    int i = find_deep(&scope, key);
    return i < 0 ? NULL : scope.origin[i];
}

cp_err cp_conf_yaml(const struct cp_conf *c, struct cp_str *out)
{
    return cp_conf_print_scope(c->scope, false, out);
}

cp_err cp_conf_print(const struct cp_conf *c, struct cp_str *out)
{
    return cp_conf_print_scope(c->scope, true, out);
}
