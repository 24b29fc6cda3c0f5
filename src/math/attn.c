#include "math/attn.h"

#include "math/elem.h"
#include "math/gemm.h"

#include <math.h>
#include <string.h>

/* Rows of n scores in place of their softmax; rows are stride apart. */
CP_CLONES static void softmax_rows(int rows, int n, int stride, cp_real *x)
{
    for (int i = 0; i < rows; i++) {
        cp_real *p = x + (size_t)i * stride;
        cp_real max = p[0];
        for (int j = 1; j < n; j++) {
            max = p[j] > max ? p[j] : max;
        }
        for (int j = 0; j < n; j++) {
            p[j] = cp_exp(p[j] - max);
        }
        cp_real inv = 1 / cp_vec_sum(p, n);
        for (int j = 0; j < n; j++) {
            p[j] *= inv;
        }
    }
}

/* dp[n, n] becomes the gradient of the scores: p (dp - sum of dp p); rows of p are stride apart. */
CP_CLONES static void softmax_back_rows(int n, int stride, const cp_real *p, cp_real *restrict dp)
{
    for (int i = 0; i < n; i++, p += stride, dp += n) {
        cp_real sum = cp_vec_dot(p, dp, n);
        for (int j = 0; j < n; j++) {
            dp[j] = p[j] * (dp[j] - sum);
        }
    }
}

/* out[n, n] = p * mask; rows of p are stride apart, those of mask and out are not; out may be p. */
CP_CLONES static void mask_rows(int n, int stride, const cp_real *p, const cp_real *mask,
                                cp_real *out)
{
    for (int i = 0; i < n; i++, p += stride, mask += n, out += n) {
        for (int j = 0; j < n; j++) {
            out[j] = p[j] * mask[j];
        }
    }
}

/* The masks of head h of sample s, [n, n]. */
static void head_mask(const struct cp_attn *a, int s, int h, int n, cp_real *mask)
{
    uint64_t len = (uint64_t)a->max_len;
    struct cp_drop_range at = {.first = (uint64_t)h * len * len, .stride = len, .rows = n, .n = n};
    cp_drop_mask(a->drop, a->sample[s], &at, mask);
}

/* Rows n..t-1 of x [t, D]. */
static void clear_padding(const struct cp_attn *a, int n, cp_real *x)
{
    memset(x + (size_t)n * a->width, 0, (size_t)(a->t - n) * a->width * sizeof *x);
}

void cp_attn_forward(const struct cp_attn *a, const cp_real *q, const cp_real *k, const cp_real *v,
                     cp_real *probs, cp_real *ctx, cp_real *scratch)
{
    const int t = a->t, d = a->width, dh = d / a->heads;
    const cp_real scale = (cp_real)(1 / sqrt((double)dh));
    for (int s = 0; s < a->b; s++) {
        const int n = a->len[s];
        const size_t rows = (size_t)s * t * d;
        clear_padding(a, n, ctx + rows);
        for (int h = 0; h < a->heads; h++) {
            const size_t at = rows + (size_t)h * dh;
            cp_real *p = probs + ((size_t)s * a->heads + h) * t * t;
            cp_gemm(CP_N, CP_T, n, n, dh, scale, q + at, d, k + at, d, 0, p, t);
            softmax_rows(n, n, t, p);
            for (int i = 0; i < n; i++) {
                memset(p + (size_t)i * t + n, 0, (size_t)(t - n) * sizeof *p);
            }
            memset(p + (size_t)n * t, 0, (size_t)(t - n) * t * sizeof *p);
            const cp_real *used = p;
            if (a->drop->rate > 0) {
                head_mask(a, s, h, n, scratch);
                mask_rows(n, t, p, scratch, scratch);
                used = scratch;
            }
            cp_gemm(CP_N, CP_N, n, dh, n, 1, used, used == p ? t : n, v + at, d, 0, ctx + at, d);
        }
    }
}

void cp_attn_backward(const struct cp_attn *a, const cp_real *q, const cp_real *k, const cp_real *v,
                      const cp_real *probs, const cp_real *dctx, cp_real *dq, cp_real *dk,
                      cp_real *dv, cp_real *scratch)
{
    const int t = a->t, d = a->width, dh = d / a->heads;
    const cp_real scale = (cp_real)(1 / sqrt((double)dh));
    cp_real *mask = scratch, *work = scratch + (size_t)t * t;
    for (int s = 0; s < a->b; s++) {
        const int n = a->len[s];
        const size_t rows = (size_t)s * t * d;
        clear_padding(a, n, dq + rows);
        clear_padding(a, n, dk + rows);
        clear_padding(a, n, dv + rows);
        for (int h = 0; h < a->heads; h++) {
            const size_t at = rows + (size_t)h * dh;
            const cp_real *p = probs + ((size_t)s * a->heads + h) * t * t, *used = p;
            if (a->drop->rate > 0) {
                head_mask(a, s, h, n, mask);
                mask_rows(n, t, p, mask, work);
                used = work;
            }
            cp_gemm(CP_T, CP_N, n, dh, n, 1, used, used == p ? t : n, dctx + at, d, 0, dv + at, d);
            cp_gemm(CP_N, CP_T, n, n, dh, 1, dctx + at, d, v + at, d, 0, work, n);
            if (a->drop->rate > 0) {
                mask_rows(n, n, work, mask, work);
            }
            softmax_back_rows(n, t, p, work);
            cp_gemm(CP_N, CP_N, n, dh, n, scale, work, n, k + at, d, 0, dq + at, d);
            cp_gemm(CP_T, CP_N, n, dh, n, scale, work, n, q + at, d, 0, dk + at, d);
        }
    }
}
