/* bag: different byte strings, numbered in order of first appearance, each with a counter. */
#ifndef CP_DATA_BAG_H
#define CP_DATA_BAG_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct cp_bag {
    int32_t n;
    char *bytes;    /* the strings one after another, not terminated */
    size_t *start;  /* [n + 1] into bytes */
    int64_t *count; /* [n] for the caller; 0 at first */
    size_t n_bytes, cap_bytes, cap_start, cap_count;
    int32_t *slot; /* [mask + 1] number + 1; 0: free */
    size_t mask;
};

CP_NODISCARD cp_err cp_bag_init(struct cp_bag *b);
void cp_bag_fini(struct cp_bag *b);

/* The number of a string, which is put in if it is new. */
CP_NODISCARD cp_err cp_bag_put(struct cp_bag *b, const char *s, size_t len, int32_t *number);

/* String k and its length; valid until the next put. */
const char *cp_bag_get(const struct cp_bag *b, int32_t k, size_t *len);

#endif
