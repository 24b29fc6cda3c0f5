/*
 * gemm: matrix products, the only place that sees BLAS.
 *
 * Results repeat bit for bit only at a fixed number of BLAS threads, and several nodes of one
 * process compute at the same time: so BLAS is held at one thread per call.
 */
#ifndef CP_MATH_GEMM_H
#define CP_MATH_GEMM_H

#include "base/err.h"
#include "math/real.h"

enum cp_trans { CP_N, CP_T }; /* as stored; transposed */

/* E_CONFIG if BLAS is a build that gives wrong results when several threads call it at once, as
 * Debian's libopenblas0-serial does. To be asked before nodes are started as threads. */
CP_NODISCARD cp_err cp_gemm_check(void);

/* Holds BLAS at one thread per call, for the whole process. Any thread, any number of times. */
void cp_gemm_init(void);

/* c[m,n] = alpha op(a)[m,k] op(b)[k,n] + beta c; row-major, ld* are the distances of stored rows.
 * With beta 0 what c held does not matter. */
void cp_gemm(enum cp_trans op_a, enum cp_trans op_b, int m, int n, int k, cp_real alpha,
             const cp_real *a, int lda, const cp_real *b, int ldb, cp_real beta, cp_real *c,
             int ldc);

#endif
