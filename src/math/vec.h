/*
 * vec: what makes the plain loops of this folder fast without changing their results.
 *
 * Loops are compiled for several x86 levels (CP_CLONES) and the widest one that the machine has is
 * taken at start. No level changes a result: multiply-add is never contracted (-ffp-contract=off),
 * and sums use a fixed number of partial sums, CP_LANES, whatever the width of a register, so that
 * the compiler may vectorise them without being allowed to reorder anything.
 */
#ifndef CP_MATH_VEC_H
#define CP_MATH_VEC_H

#include "math/real.h"

#include <string.h>

/* Clones need ifunc, which starts before a sanitizer's runtime does: not together. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CP_CLONES
#endif

/* Part of every clone that calls it. */
#define CP_INLINE static inline __attribute__((always_inline, unused))

enum { CP_LANES = 64 / sizeof(cp_real) };
typedef cp_real cp_vec __attribute__((vector_size(64)));

CP_INLINE void cp_vec_load(cp_vec *v, const cp_real *p)
{
    memcpy(v, p, sizeof *v);
}

/* The lanes summed as a binary tree. */
CP_INLINE cp_real cp_vec_fold(const cp_vec *v)
{
    cp_real lane[CP_LANES];
    memcpy(lane, v, sizeof lane);
    for (int half = CP_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

CP_INLINE cp_real cp_vec_sum(const cp_real *x, int n)
{
    cp_vec acc = {0}, a;
    int i = 0;
    for (; i + CP_LANES <= n; i += CP_LANES) {
        cp_vec_load(&a, x + i);
        acc += a;
    }
    cp_real tail = 0;
    for (; i < n; i++) {
        tail += x[i];
    }
    return cp_vec_fold(&acc) + tail;
}

CP_INLINE cp_real cp_vec_dot(const cp_real *x, const cp_real *y, int n)
{
    cp_vec acc = {0}, a, b;
    int i = 0;
    for (; i + CP_LANES <= n; i += CP_LANES) {
        cp_vec_load(&a, x + i);
        cp_vec_load(&b, y + i);
        acc += a * b;
    }
    cp_real tail = 0;
    for (; i < n; i++) {
        tail += x[i] * y[i];
    }
    return cp_vec_fold(&acc) + tail;
}

#endif
