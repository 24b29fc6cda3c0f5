#include "data/bag.h"

#include "data/grow.h"
#include "data/hash.h"

#include <string.h>

enum { FIRST_SLOTS = 1024 };

cp_err cp_bag_init(struct cp_bag *b)
{
    struct cp_bag fresh = {.mask = FIRST_SLOTS - 1};
    CP_TRY(cp_mem_array(NULL, FIRST_SLOTS, sizeof *fresh.slot, &fresh.slot));
    cp_err err = cp_grow(&fresh.start, &fresh.cap_start, 0, 1, sizeof *fresh.start);
    if (err) {
        cp_bag_fini(&fresh);
        return err;
    }
    *b = fresh;
    return CP_OK;
}

void cp_bag_fini(struct cp_bag *b)
{
    cp_mem_free(b->bytes);
    cp_mem_free(b->start);
    cp_mem_free(b->count);
    cp_mem_free(b->slot);
    *b = (struct cp_bag){0};
}

const char *cp_bag_get(const struct cp_bag *b, int32_t k, size_t *len)
{
    *len = b->start[k + 1] - b->start[k];
    return b->bytes + b->start[k];
}

/* Where s is, or the free slot where it belongs. */
static int32_t *find(const struct cp_bag *b, const char *s, size_t len)
{
    for (size_t i = cp_hash64(s, len);; i++) {
        int32_t *slot = &b->slot[i & b->mask];
        size_t n;
        if (*slot == 0) {
            return slot;
        }
        const char *old = cp_bag_get(b, *slot - 1, &n);
        if (n == len && memcmp(old, s, len) == 0) {
            return slot;
        }
    }
}

static cp_err widen(struct cp_bag *b)
{
    int32_t *fresh = NULL;
    size_t slots = 2 * (b->mask + 1);
    CP_TRY(cp_mem_array(NULL, slots, sizeof *fresh, &fresh));
    cp_mem_free(b->slot);
    b->slot = fresh;
    b->mask = slots - 1;
    for (int32_t k = 0; k < b->n; k++) {
        size_t len;
        const char *s = cp_bag_get(b, k, &len);
        *find(b, s, len) = k + 1;
    }
    return CP_OK;
}

cp_err cp_bag_put(struct cp_bag *b, const char *s, size_t len, int32_t *number)
{
    int32_t *slot = find(b, s, len);
    if (*slot) {
        *number = *slot - 1;
        return CP_OK;
    }
    size_t n = (size_t)b->n;
    if (n == INT32_MAX - 1) {
        return cp_fail(CP_E_DATA, "the texts have more than %d different words", INT32_MAX - 1);
    }
    CP_TRY(cp_grow(&b->bytes, &b->cap_bytes, b->n_bytes, b->n_bytes + len, 1));
    CP_TRY(cp_grow(&b->start, &b->cap_start, n + 1, n + 2, sizeof *b->start));
    CP_TRY(cp_grow(&b->count, &b->cap_count, n, n + 1, sizeof *b->count));
    if (2 * (n + 1) > b->mask) {
        CP_TRY(widen(b));
        slot = find(b, s, len);
    }
    if (len > 0) {
        memcpy(b->bytes + b->n_bytes, s, len);
    }
    b->n_bytes += len;
    b->start[n + 1] = b->n_bytes;
    *number = b->n++;
    *slot = b->n;
    return CP_OK;
}
