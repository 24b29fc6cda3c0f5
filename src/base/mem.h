/*
 * mem: counted memory.
 *
 * Every allocation belongs to an account (struct cp_mem), so that what a node holds can be compared
 * with what the size function promised (house law 2). Long-lived memory is taken as arenas whose
 * size is known beforehand: one allocation, then cp_arena_take() hands out 64-byte aligned pieces.
 */
#ifndef CP_BASE_MEM_H
#define CP_BASE_MEM_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cp_mem {
    const char *name;          /* for messages; borrowed */
    size_t limit_bytes;        /* 0: no limit */
    _Atomic size_t held_bytes; /* now */
    _Atomic size_t peak_bytes; /* most ever held */
    _Atomic uint64_t allocs;   /* calls of cp_mem_new */
};

/* Zeroed memory of n bytes, 64-byte aligned, counted in m (NULL: a common account). n may be 0.
 * E_NOMEM names the account, the wish and the limit. */
CP_NODISCARD cp_err cp_mem_new(struct cp_mem *m, size_t n, void *out_ptr);

/* n elements of size bytes, the product checked. */
CP_NODISCARD cp_err cp_mem_array(struct cp_mem *m, size_t n, size_t size, void *out_ptr);

/* Frees what cp_mem_new gave; NULL is allowed. The account is remembered by the block. */
void cp_mem_free(void *p);

/* Tests only: the n-th call of cp_mem_new from now on fails (1 = the next); 0 switches it off. */
void cp_mem_fail_at(uint64_t n);

/* Bytes that an arena piece of n bytes takes: n rounded up to 64. */
static inline size_t cp_arena_round(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

struct cp_arena {
    char *base;
    size_t size_bytes, used_bytes;
};

CP_NODISCARD cp_err cp_arena_init(struct cp_arena *a, struct cp_mem *m, size_t size_bytes);
void cp_arena_fini(struct cp_arena *a);

/* A piece of n bytes. Running over is our mistake (sizes are computed before): it asserts. */
void *cp_arena_take(struct cp_arena *a, size_t n);

#endif
