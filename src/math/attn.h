/*
 * attn: softmax(Q K^T / sqrt(D/H)) V per sample and head (arXiv 1706.03762), with dropout on the
 * probabilities. Only the real tokens of a sample take part, as keys and as queries: probabilities
 * and context of padding are exactly 0, and so are the gradients there.
 */
#ifndef CP_MATH_ATTN_H
#define CP_MATH_ATTN_H

#include "math/dropout.h"
#include "math/real.h"

#include <stdint.h>

struct cp_attn {
    int b, t, width, heads;
    int max_len;           /* counts the elements of the dropout masks */
    const int32_t *len;    /* [b] 1..t */
    const int64_t *sample; /* [b] */
    const struct cp_drop *drop;
};

/* q, k, v, ctx are [b, t, D], a head being D/H neighbouring columns; probs [b, H, t, t] before
 * dropout; scratch [t, t]. */
void cp_attn_forward(const struct cp_attn *a, const cp_real *q, const cp_real *k, const cp_real *v,
                     cp_real *probs, cp_real *ctx, cp_real *scratch);

/* Sets dq, dk, dv [b, t, D]; scratch [2, t, t]. */
void cp_attn_backward(const struct cp_attn *a, const cp_real *q, const cp_real *k, const cp_real *v,
                      const cp_real *probs, const cp_real *dctx, cp_real *dq, cp_real *dk,
                      cp_real *dv, cp_real *scratch);

#endif
