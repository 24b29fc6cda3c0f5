/*
 * enc: one encoder layer of BERT, LayerNorm after the residual (arXiv 1810.04805, 1706.03762):
 *
 *   y1 = LN1(x + drop(attn(x)))          y = LN2(y1 + drop(W2 gelu(W1 y1)))
 *
 * Backward needs no more memory than one gradient [b, t, D] that turns from dy into dx in place,
 * one masked copy of it, and one wide buffer.
 */
#include "math/act.h"
#include "math/attn.h"
#include "math/linear.h"
#include "math/norm.h"
#include "model/block.h"

#include <string.h>

struct cp_enc_save cp_enc_save(struct cp_carve *c, const struct cp_shape *s, int b, int t)
{
    struct cp_enc_save v;
    int64_t tokens = (int64_t)b * t, thin = tokens * s->width, wide = tokens * s->ffn;
    v.x = cp_carve_reals(c, thin);
    v.q = cp_carve_reals(c, thin);
    v.k = cp_carve_reals(c, thin);
    v.v = cp_carve_reals(c, thin);
    v.probs = cp_carve_reals(c, tokens * s->heads * t);
    v.ctx = cp_carve_reals(c, thin);
    v.xhat1 = cp_carve_reals(c, thin);
    v.y1 = cp_carve_reals(c, thin);
    v.pre = cp_carve_reals(c, wide);
    v.hidden = cp_carve_reals(c, wide);
    v.xhat2 = cp_carve_reals(c, thin);
    v.rstd1 = cp_carve_reals(c, tokens);
    v.rstd2 = cp_carve_reals(c, tokens);
    return v;
}

static struct cp_linear linear(const struct cp_run *r, const struct cp_seg_block *k, int weight,
                               int in, int out)
{
    return (struct cp_linear){.rows = r->b * r->t,
                              .in = in,
                              .out = out,
                              .x_stride = in,
                              .w = block_w(k, weight),
                              .bias = block_w(k, weight + 1)};
}

/* y = W x + bias with the tensors weight and weight + 1 of the block. */
static void forward(const struct cp_run *r, const struct cp_seg_block *k, int weight, int in,
                    int out, const cp_real *x, cp_real *y)
{
    struct cp_linear l = linear(r, k, weight, in, out);
    cp_linear_forward(&l, x, y);
}

static void backward(const struct cp_run *r, const struct cp_seg_block *k, int weight, int in,
                     int out, const cp_real *x, const cp_real *dy, cp_real *dx, bool add)
{
    struct cp_linear l = linear(r, k, weight, in, out);
    cp_linear_backward(&l, x, dy, block_g(k, weight), block_g(k, weight + 1), dx, add);
}

/* x += y, n elements. */
static void add(size_t n, const cp_real *y, cp_real *restrict x)
{
    for (size_t i = 0; i < n; i++) {
        x[i] += y[i];
    }
}

static struct cp_attn attention(const struct cp_run *r, const struct cp_drop *drop)
{
    return (struct cp_attn){.b = r->b,
                            .t = r->t,
                            .width = r->shape->width,
                            .heads = r->shape->heads,
                            .max_len = r->shape->max_len,
                            .len = r->len,
                            .sample = r->sample,
                            .drop = drop};
}

void cp_enc_forward(const struct cp_run *r, const struct cp_seg_block *k, char *saved, cp_real *y)
{
    const struct cp_shape *s = r->shape;
    const int d = s->width, f = s->ffn, tokens = r->b * r->t;
    const size_t thin = (size_t)tokens * d;
    struct cp_enc_save v = cp_enc_save(&(struct cp_carve){saved, 0}, s, r->b, r->t);
    struct cp_drop drop_probs = cp_run_drop(r, CP_DROP_PROBS);
    struct cp_drop drop_attn = cp_run_drop(r, CP_DROP_ATTN);
    struct cp_drop drop_ffn = cp_run_drop(r, CP_DROP_FFN);
    struct cp_attn attn = attention(r, &drop_probs);
    cp_real *h = r->scratch->tmp;

    forward(r, k, ENC_Q_W, d, d, v.x, v.q);
    forward(r, k, ENC_K_W, d, d, v.x, v.k);
    forward(r, k, ENC_V_W, d, d, v.x, v.v);
    cp_attn_forward(&attn, v.q, v.k, v.v, v.probs, v.ctx, r->scratch->scores);
    forward(r, k, ENC_O_W, d, d, v.ctx, h);
    cp_drop_apply(&drop_attn, r->b, r->t * d, r->sample, h);
    add(thin, v.x, h);
    cp_norm_forward(tokens, d, s->norm_eps, h, block_w(k, ENC_GAIN1), block_w(k, ENC_BIAS1),
                    v.xhat1, v.rstd1, v.y1);

    forward(r, k, ENC_UP_W, d, f, v.y1, v.pre);
    cp_gelu_forward((int64_t)tokens * f, v.pre, v.hidden);
    forward(r, k, ENC_DOWN_W, f, d, v.hidden, h);
    cp_drop_apply(&drop_ffn, r->b, r->t * d, r->sample, h);
    add(thin, v.y1, h);
    cp_norm_forward(tokens, d, s->norm_eps, h, block_w(k, ENC_GAIN2), block_w(k, ENC_BIAS2),
                    v.xhat2, v.rstd2, y);
}

void cp_enc_backward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                     const cp_real *dy, cp_real *dx)
{
    const struct cp_shape *s = r->shape;
    const int d = s->width, f = s->ffn, tokens = r->b * r->t;
    const size_t thin = (size_t)tokens * d;
    struct cp_enc_save v = cp_enc_save(&(struct cp_carve){saved, 0}, s, r->b, r->t);
    struct cp_drop drop_probs = cp_run_drop(r, CP_DROP_PROBS);
    struct cp_drop drop_attn = cp_run_drop(r, CP_DROP_ATTN);
    struct cp_drop drop_ffn = cp_run_drop(r, CP_DROP_FFN);
    struct cp_attn attn = attention(r, &drop_probs);
    cp_real *masked = r->scratch->tmp, *dctx = r->scratch->out, *dhidden = r->scratch->wide;
    cp_real *dq = r->scratch->wide, *dk = dq + thin, *dv = dk + thin;

    cp_norm_backward(tokens, d, v.xhat2, v.rstd2, block_w(k, ENC_GAIN2), dy, block_g(k, ENC_GAIN2),
                     block_g(k, ENC_BIAS2), dx);
    memcpy(masked, dx, thin * sizeof *dx);
    cp_drop_apply(&drop_ffn, r->b, r->t * d, r->sample, masked);
    backward(r, k, ENC_DOWN_W, f, d, v.hidden, masked, dhidden, false);
    cp_gelu_backward((int64_t)tokens * f, v.pre, dhidden);
    backward(r, k, ENC_UP_W, d, f, v.y1, dhidden, dx, true);

    cp_norm_backward(tokens, d, v.xhat1, v.rstd1, block_w(k, ENC_GAIN1), dx, block_g(k, ENC_GAIN1),
                     block_g(k, ENC_BIAS1), dx);
    memcpy(masked, dx, thin * sizeof *dx);
    cp_drop_apply(&drop_attn, r->b, r->t * d, r->sample, masked);
    backward(r, k, ENC_O_W, d, d, v.ctx, masked, dctx, false);
    cp_attn_backward(&attn, v.q, v.k, v.v, v.probs, dctx, dq, dk, dv, r->scratch->scores);
    backward(r, k, ENC_Q_W, d, d, v.x, dq, dx, true);
    backward(r, k, ENC_K_W, d, d, v.x, dk, dx, true);
    backward(r, k, ENC_V_W, d, d, v.x, dv, dx, true);
}
