/* golden: a minimal reader of the safetensors fixtures in tests/golden. Anything odd fails the
 * test. */
#ifndef CP_TESTS_GOLDEN_H
#define CP_TESTS_GOLDEN_H

#include "base/str.h"

#include <jansson.h>
#include <string.h>

struct golden {
    struct cp_str file;
    json_t *header;
    const char *data;
};

static inline struct golden golden_open(const char *path)
{
    struct golden g = {0};
    uint64_t n;
    assert_int_equal(cp_file_read(path, 1 << 20, &g.file), CP_OK);
    memcpy(&n, g.file.p, sizeof n);
    assert_true(n + 8 <= g.file.len);
    g.header = json_loadb(g.file.p + 8, n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(g.header);
    g.data = g.file.p + 8 + n;
    return g;
}

static inline void golden_close(struct golden *g)
{
    json_decref(g->header);
    cp_str_fini(&g->file);
}

/* The bytes of a tensor that must have this type and number of elements; size is that of one. */
static inline const void *golden_get(const struct golden *g, const char *name, const char *dtype,
                                     size_t count, size_t size)
{
    const json_t *t = json_object_get(g->header, name);
    if (!t) {
        fail_msg("%s is not in the fixture", name);
    }
    const json_t *at = json_object_get(t, "data_offsets");
    size_t from = (size_t)json_integer_value(json_array_get(at, 0));
    size_t to = (size_t)json_integer_value(json_array_get(at, 1));
    assert_string_equal(json_string_value(json_object_get(t, "dtype")), dtype);
    assert_int_equal(to - from, count * size);
    assert_true(g->data + to <= g->file.p + g->file.len);
    return g->data + from;
}

#endif
