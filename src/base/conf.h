/*
 * conf: one table of options that reads, checks, prints and explains a configuration.
 *
 * The owner describes a plain C struct by a table of struct cp_opt; every field of the struct that
 * the table names is filled from, in this order of calls, defaults, YAML files, the environment and
 * "group.key=value" arguments; a later call wins. Keys are dotted ("train.lr"); in YAML a group is
 * a mapping, and the dotted key itself is accepted too. A list holds records with a table of their
 * own, which may hold lists again (clusters -> devices).
 *
 * Environment: PREFIX + key in capitals with '.' as '_': train.micro_batch is
 * COLLAPIPE_TRAIN_MICRO_BATCH. Names are made from the table, never taken apart, so that a '_' in a
 * key needs no mark of its own; two keys with one name are a mistake in the table.
 *
 * An error in a file is "file:line:column: key: what is wrong, what is allowed". Failing calls
 * leave all values as they were.
 */
#ifndef CP_BASE_CONF_H
#define CP_BASE_CONF_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cp_opt_type {
    CP_OPT_BOOL,   /* bool: true or false only */
    CP_OPT_INT,    /* int64_t */
    CP_OPT_REAL,   /* double, finite */
    CP_OPT_STRING, /* const char *: UTF-8 without control characters */
    CP_OPT_CHOICE, /* int: index into choices */
    CP_OPT_LIST,   /* struct cp_conf_list: records described by item */
    CP_OPT_CUTS,   /* struct cp_conf_cuts: list of lists of integers */
};

struct cp_conf_list {
    void *items; /* n records of item_size bytes */
    size_t n;
    const char **origin; /* [n * options of the item's table]; for conf itself */
};

struct cp_conf_cuts {
    size_t n;
    struct cp_conf_row {
        size_t n;
        int32_t *v;
    } * row;
};

/* The longest key (with its group), and the most items of a list that states no item_max. */
enum { CP_CONF_KEY_MAX = 96, CP_CONF_ITEMS_MAX = 1024 };

/* A value that may stay unset (def is NULL) is NULL, INT64_MIN, NaN, -1 or an empty list until it
 * is set; null in YAML unsets it. An unset BOOL is false. */
#define CP_CONF_INT_UNSET INT64_MIN

struct cp_opt {
    const char *key; /* "train.lr"; NULL ends the table */
    enum cp_opt_type type;
    size_t offset;                    /* of the field in the owner's struct (or in the record) */
    const char *def;                  /* as it would be typed; NULL: unset */
    double min, max;                  /* INT, REAL, each integer of CUTS; both 0: any value */
    bool above_min, below_max;        /* the bound itself is not allowed */
    bool required;                    /* in records only: an item without it is refused */
    bool group_value;                 /* "net=x" and "net: x" are short for this option, net.kind */
    const char *const *choices;       /* CHOICE: NULL-terminated */
    const char *unit, *help, *symbol; /* each may be NULL; symbol: that of docs/theory.md */

    /* LIST */
    const struct cp_opt *item;
    size_t item_size;
    size_t item_min, item_max; /* LIST and CUTS: how many items; item_max 0: CP_CONF_ITEMS_MAX */
    bool short_form;     /* a scalar is accepted in place of the list and kept as text ("2x3") */
    size_t short_offset; /* of the const char * that gets it; NULL when the list itself is given */
};

struct cp_conf;

/* table is borrowed and must outlive the configuration. Values are the defaults. */
CP_NODISCARD cp_err cp_conf_new(const struct cp_opt *table, size_t struct_size,
                                struct cp_conf **out);
void cp_conf_free(struct cp_conf *c);

/* E_IO if it cannot be read; E_CONFIG as said above. An empty file is fine. */
CP_NODISCARD cp_err cp_conf_load_file(struct cp_conf *c, const char *path);

/* The same from memory; name stands for the file in messages and origins. */
CP_NODISCARD cp_err cp_conf_load_text(struct cp_conf *c, const char *name, const char *text,
                                      size_t n);

/* Variables of envp ("NAME=value", NULL-terminated) that start with prefix. One that is not an
 * option but nearly one is E_CONFIG; one that resembles none is only warned of, since others may
 * use the prefix. */
CP_NODISCARD cp_err cp_conf_load_env(struct cp_conf *c, const char *prefix, char *const *envp);

/* "train.lr=2e-5", "clusters=2x3", "plan.cuts=[[2,2]]", "clusters.0.devices.1.gflops=3". */
CP_NODISCARD cp_err cp_conf_override(struct cp_conf *c, const char *assignment);

/* The owner's struct. It stays at one place; strings and lists in it live as long as c. */
const void *cp_conf_values(const struct cp_conf *c);

/* "default", "FILE:LINE", "environment NAME" or "command line"; NULL if there is no such key. Keys
 * as for cp_conf_override. */
const char *cp_conf_origin(const struct cp_conf *c, const char *key);

/* YAML that loads back to the same values: with origin and help as comments, and without. */
CP_NODISCARD cp_err cp_conf_print(const struct cp_conf *c, struct cp_str *out);
CP_NODISCARD cp_err cp_conf_yaml(const struct cp_conf *c, struct cp_str *out);

/* Every option with type, unit, range, default and help. */
CP_NODISCARD cp_err cp_conf_help(const struct cp_opt *table, struct cp_str *out);

#endif
