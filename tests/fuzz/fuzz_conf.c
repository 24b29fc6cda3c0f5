/* folder: base
 * Any text as a configuration file and as an override: no crash, no leak; what is accepted prints
 * as YAML that loads back to the same values. */
#include "base/conf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct leaf {
    const char *name;
    double rate;
};

struct item {
    int64_t n;
    struct cp_conf_list leaves;
};

struct values {
    int64_t seed;
    double lr;
    bool flag;
    int kind;
    const char *path, *list_short;
    struct cp_conf_list list;
    struct cp_conf_cuts cuts;
};

static const char *const KINDS[] = {"a", "b", NULL};

static const struct cp_opt LEAF[] = {
    {.key = "name", .type = CP_OPT_STRING, .offset = offsetof(struct leaf, name), .required = true},
    {.key = "rate", .type = CP_OPT_REAL, .offset = offsetof(struct leaf, rate)},
    {0}};

static const struct cp_opt ITEM[] = {
    {.key = "n", .type = CP_OPT_INT, .offset = offsetof(struct item, n), .def = "3", .max = 9},
    {.key = "leaves",
     .type = CP_OPT_LIST,
     .offset = offsetof(struct item, leaves),
     .item = LEAF,
     .item_size = sizeof(struct leaf),
     .item_max = 8},
    {0}};

#define FIELD(f) .offset = offsetof(struct values, f)
static const struct cp_opt TABLE[] = {
    {.key = "seed", .type = CP_OPT_INT, FIELD(seed), .def = "1"},
    {.key = "g.lr", .type = CP_OPT_REAL, FIELD(lr), .def = "2e-5", .max = 1, .above_min = true},
    {.key = "g.flag", .type = CP_OPT_BOOL, FIELD(flag), .def = "true"},
    {.key = "g.kind",
     .type = CP_OPT_CHOICE,
     FIELD(kind),
     .def = "a",
     .choices = KINDS,
     .group_value = true},
    {.key = "path", .type = CP_OPT_STRING, FIELD(path)},
    {.key = "cuts", .type = CP_OPT_CUTS, FIELD(cuts), .def = "[]", .item_max = 8},
    {.key = "list",
     .type = CP_OPT_LIST,
     FIELD(list),
     .def = "2x3",
     .item = ITEM,
     .item_size = sizeof(struct item),
     .item_max = 8,
     .short_form = true,
     .short_offset = offsetof(struct values, list_short)},
    {0}};

static void need(bool fact)
{
    if (!fact) {
        abort();
    }
}

static void check_loads_back(const struct cp_conf *c)
{
    struct cp_str commented = {0}, plain = {0}, again = {0};
    struct cp_conf *other;
    need(cp_conf_print(c, &commented) == CP_OK && cp_conf_yaml(c, &plain) == CP_OK);
    need(cp_conf_new(TABLE, sizeof(struct values), &other) == CP_OK);
    need(cp_conf_load_text(other, "again", commented.p, commented.len) == CP_OK);
    need(cp_conf_yaml(other, &again) == CP_OK);
    need(strcmp(plain.p, again.p) == 0);
    cp_conf_free(other);
    cp_str_fini(&commented);
    cp_str_fini(&plain);
    cp_str_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cp_conf *c;
    need(cp_conf_new(TABLE, sizeof(struct values), &c) == CP_OK);
    if (cp_conf_load_text(c, "fuzz", (const char *)data, size) == CP_OK) {
        check_loads_back(c);
    }
    struct cp_str text = {0};
    cp_str_add(&text, (const char *)data, size);
    if (cp_conf_override(c, cp_str_text(&text)) == CP_OK) {
        check_loads_back(c);
    }
    cp_str_fini(&text);
    cp_conf_free(c);
    return 0;
}
