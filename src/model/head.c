/* head: pooler (tanh of a linear map of the first token, [CLS]), dropout, classifier, loss. */
#include "math/act.h"
#include "math/linear.h"
#include "math/loss.h"
#include "model/block.h"

#include <string.h>

struct cp_head_save cp_head_save(struct cp_carve *c, const struct cp_shape *s, int b, int t)
{
    struct cp_head_save v;
    v.x = cp_carve_reals(c, (int64_t)b * t * s->width);
    v.pooled = cp_carve_reals(c, (int64_t)b * s->width);
    v.probs = cp_carve_reals(c, (int64_t)b * s->classes);
    return v;
}

static struct cp_linear pooler(const struct cp_run *r, const struct cp_seg_block *k)
{
    return (struct cp_linear){.rows = r->b,
                              .in = r->shape->width,
                              .out = r->shape->width,
                              .x_stride = r->t * r->shape->width, /* the first token of each */
                              .w = block_w(k, HEAD_POOL_W),
                              .bias = block_w(k, HEAD_POOL_B)};
}

static struct cp_linear classifier(const struct cp_run *r, const struct cp_seg_block *k)
{
    return (struct cp_linear){.rows = r->b,
                              .in = r->shape->width,
                              .out = r->shape->classes,
                              .x_stride = r->shape->width,
                              .w = block_w(k, HEAD_CLASS_W),
                              .bias = block_w(k, HEAD_CLASS_B)};
}

/* The pooled output after dropout, in tmp. */
static cp_real *dropped(const struct cp_run *r, const cp_real *pooled)
{
    cp_real *x = r->scratch->tmp;
    memcpy(x, pooled, (size_t)r->b * r->shape->width * sizeof *x);
    struct cp_drop drop = cp_run_drop(r, CP_DROP_POOLED);
    cp_drop_apply(&drop, r->b, r->shape->width, r->sample, x);
    return x;
}

void cp_head_forward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                     struct cp_head_result *result)
{
    const struct cp_shape *s = r->shape;
    struct cp_head_save v = cp_head_save(&(struct cp_carve){saved, 0}, s, r->b, r->t);
    struct cp_linear pool = pooler(r, k), classify = classifier(r, k);
    cp_linear_forward(&pool, v.x, v.pooled);
    cp_tanh_forward((int64_t)r->b * s->width, v.pooled);
    cp_linear_forward(&classify, dropped(r, v.pooled), r->scratch->logits);
    struct cp_loss loss =
        cp_xent_forward(r->b, s->classes, r->scratch->logits, r->micro->label, v.probs);
    if (result) {
        *result = (struct cp_head_result){loss.sum, loss.labelled, loss.correct};
    }
}

void cp_head_backward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                      cp_real *dx)
{
    const struct cp_shape *s = r->shape;
    struct cp_head_save v = cp_head_save(&(struct cp_carve){saved, 0}, s, r->b, r->t);
    struct cp_linear pool = pooler(r, k), classify = classifier(r, k);
    cp_real *dlogits = r->scratch->dlogits, *dpooled = r->scratch->out;
    double scale = r->micro->step_labelled > 0 ? 1.0 / (double)r->micro->step_labelled : 0;
    cp_xent_backward(r->b, s->classes, v.probs, r->micro->label, scale, dlogits);
    cp_linear_backward(&classify, dropped(r, v.pooled), dlogits, block_g(k, HEAD_CLASS_W),
                       block_g(k, HEAD_CLASS_B), dpooled, false);
    struct cp_drop drop = cp_run_drop(r, CP_DROP_POOLED);
    cp_drop_apply(&drop, r->b, s->width, r->sample, dpooled);
    cp_tanh_backward((int64_t)r->b * s->width, v.pooled, dpooled);
    memset(dx, 0, (size_t)r->b * r->t * s->width * sizeof *dx);
    cp_linear_backward(&pool, v.x, dpooled, block_g(k, HEAD_POOL_W), block_g(k, HEAD_POOL_B), dx,
                       false);
}
