#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

/* Stands in front of every block; one alignment unit wide. */
struct header {
    struct cp_mem *account;
    size_t bytes;
};

static struct cp_mem common = {.name = "common"};
static _Atomic uint64_t fail_countdown;

void cp_mem_fail_at(uint64_t n)
{
    atomic_store(&fail_countdown, n);
}

static bool fails_now(void)
{
    uint64_t left = atomic_load(&fail_countdown);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
            return left == 1;
        }
    }
    return false;
}

cp_err cp_mem_new(struct cp_mem *m, size_t n, void *out_ptr)
{
    if (!m) {
        m = &common;
    }
    size_t total = cp_arena_round(n) + ALIGN;
    if (n > SIZE_MAX / 2 || fails_now()) {
        return cp_fail(CP_E_NOMEM, "%s: could not get %zu bytes of memory", m->name, n);
    }
    size_t held = atomic_fetch_add(&m->held_bytes, n) + n;
    if (m->limit_bytes && held > m->limit_bytes) {
        atomic_fetch_sub(&m->held_bytes, n);
        return cp_fail(CP_E_NOMEM, "%s: %zu bytes wanted, %zu held, limit %zu bytes", m->name, n,
                       held - n, m->limit_bytes);
    }
    char *block = aligned_alloc(ALIGN, total);
    if (!block) {
        atomic_fetch_sub(&m->held_bytes, n);
        return cp_fail(CP_E_NOMEM, "%s: the system gave no %zu bytes of memory", m->name, n);
    }
    memset(block, 0, total);
    *(struct header *)(void *)block = (struct header){m, n};
    size_t peak = atomic_load(&m->peak_bytes);
    while (held > peak && !atomic_compare_exchange_weak(&m->peak_bytes, &peak, held)) {
    }
    atomic_fetch_add(&m->allocs, 1);
    block += ALIGN;
    memcpy(out_ptr, &block, sizeof block); /* out_ptr is some T **: no aliasing through void ** */
    return CP_OK;
}

cp_err cp_mem_array(struct cp_mem *m, size_t n, size_t size, void *out_ptr)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        return cp_fail(CP_E_NOMEM, "%s: %zu elements of %zu bytes is more than can be addressed",
                       m ? m->name : common.name, n, size);
    }
    return cp_mem_new(m, bytes, out_ptr);
}

void cp_mem_free(void *p)
{
    if (!p) {
        return;
    }
    char *block = (char *)p - ALIGN;
    struct header *h = (struct header *)(void *)block;
    atomic_fetch_sub(&h->account->held_bytes, h->bytes);
    free(block);
}

cp_err cp_arena_init(struct cp_arena *a, struct cp_mem *m, size_t size_bytes)
{
    char *base = NULL;
    CP_TRY(cp_mem_new(m, size_bytes, &base));
    *a = (struct cp_arena){.base = base, .size_bytes = size_bytes};
    return CP_OK;
}

void cp_arena_fini(struct cp_arena *a)
{
    cp_mem_free(a->base);
    *a = (struct cp_arena){0};
}

void *cp_arena_take(struct cp_arena *a, size_t n)
{
    size_t bytes = cp_arena_round(n);
    assert(bytes <= a->size_bytes - a->used_bytes);
    void *p = a->base + a->used_bytes;
    a->used_bytes += bytes;
    return p;
}
