/*
 * conf_impl: what the files of conf share.
 *
 *   conf.c        the calls of conf.h: defaults, environment, overrides, undo
 *   conf_yaml.c   YAML nodes -> records
 *   conf_value.c  one text -> one field, with its checks
 *   conf_print.c  records -> YAML; table -> help
 */
#ifndef CP_BASE_CONF_IMPL_H
#define CP_BASE_CONF_IMPL_H

#include "base/conf.h"

/* One record and the table that describes it. */
struct cp_conf_scope {
    const struct cp_opt *table;
    char *base;
    const char **origin; /* [options of table] */
};

/* Where a text comes from. line and column move along while a file is read. */
struct cp_conf_source {
    struct cp_conf *conf;
    const char *name; /* "run.yaml", "environment COLLAPIPE_SEED", "command line", "default" */
    bool has_lines;
    int line, column; /* from 1 */
    int merges;       /* merge keys followed so far: they may form loops */
};

/* Text of a scalar. */
struct cp_conf_piece {
    const char *p;
    size_t n;
    bool null; /* plain null, ~ or nothing */
};

enum { CP_CONF_OPTIONS_MAX = 512 }; /* of one table */
enum { CP_CONF_PATH = 256 };        /* "clusters[1].devices[0].gflops", cut in messages if longer */

size_t cp_conf_count(const struct cp_opt *table);
size_t cp_conf_items_max(const struct cp_opt *o);

/* Index of the option with exactly this key, or of the one that stands for this group; -1. */
int cp_conf_find(const struct cp_opt *table, const char *key);
int cp_conf_find_group_value(const struct cp_opt *table, const char *group);
bool cp_conf_is_group(const struct cp_opt *table, const char *key);

/* The key or group that was probably meant; false if there is none. */
bool cp_conf_suggest(const struct cp_opt *table, const char *key, char out[CP_CONF_KEY_MAX + 1]);

/* Memory that lives as long as the configuration (or until a failed call is undone). */
CP_NODISCARD cp_err cp_conf_alloc(struct cp_conf *c, size_t n, size_t size, void *out_ptr);
CP_NODISCARD cp_err cp_conf_strdup(struct cp_conf *c, const char *p, size_t n, const char **out);

/* E_CONFIG "WHERE: path: sentence". */
cp_err cp_conf_fail(const struct cp_conf_source *src, const char *path, const char *fmt, ...)
    CP_PRINTF(3, 4);

/* E_CONFIG "WHERE: path: unknown option; did you mean ..." */
cp_err cp_conf_fail_unknown(const struct cp_conf_source *src, const char *path,
                            const struct cp_opt *table, const char *key);

/* "FILE:LINE" or the source's name, kept by the configuration. */
CP_NODISCARD cp_err cp_conf_origin_text(const struct cp_conf_source *src, const char **out);

/* Every option of the scope is set to its default. */
CP_NODISCARD cp_err cp_conf_defaults(struct cp_conf *c, struct cp_conf_scope s);

/* Bytes of the UTF-8 character at text that may stand in a line of text; 0 for ill-formed bytes and
 * for control characters, line breaks of every kind and the byte order mark among them. */
size_t cp_conf_character(const char *text, size_t left);

/* One text into the field of o at base. Lists in brackets are read as YAML. */
CP_NODISCARD cp_err cp_conf_read_text(struct cp_conf_source *src, const struct cp_opt *o,
                                      char *base, const char *path, struct cp_conf_piece text);
/* The same for what is no list, and for the short form of a list. */
CP_NODISCARD cp_err cp_conf_read_scalar(struct cp_conf_source *src, const struct cp_opt *o,
                                        char *base, const char *path, struct cp_conf_piece text);
CP_NODISCARD cp_err cp_conf_read_int(struct cp_conf_source *src, const struct cp_opt *o,
                                     const char *path, struct cp_conf_piece text, int64_t *out);
void cp_conf_unset(const struct cp_opt *o, char *base);

/* A YAML document into the scope; the value of one list option from YAML text. */
CP_NODISCARD cp_err cp_conf_read_document(struct cp_conf_source *src, struct cp_conf_scope s,
                                          const char *text, size_t n);
CP_NODISCARD cp_err cp_conf_read_list_text(struct cp_conf_source *src, const struct cp_opt *o,
                                           char *base, const char *path, struct cp_conf_piece text);

/* The record as YAML; comments: with origins and help. */
CP_NODISCARD cp_err cp_conf_print_scope(struct cp_conf_scope s, bool comments, struct cp_str *out);

/* "in (0, 1]", "at least 1"; "" if any value is allowed. "one of a, b, c" for choices. */
void cp_conf_range_text(const struct cp_opt *o, struct cp_str *out);

#endif
