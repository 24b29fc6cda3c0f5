/* emb: word + position + type rows, LayerNorm, dropout. */
#include "math/embed.h"
#include "math/norm.h"
#include "model/block.h"

#include <assert.h>
#include <string.h>

struct cp_emb_save cp_emb_save(struct cp_carve *c, const struct cp_shape *s, int b, int t)
{
    struct cp_emb_save v;
    int64_t tokens = (int64_t)b * t;
    v.xhat = cp_carve_reals(c, tokens * s->width);
    v.rstd = cp_carve_reals(c, tokens);
    return v;
}

void cp_emb_forward(const struct cp_run *r, const struct cp_seg_block *k, char *saved, cp_real *y)
{
    const struct cp_shape *s = r->shape;
    const int d = s->width;
    struct cp_emb_save v = cp_emb_save(&(struct cp_carve){saved, 0}, s, r->b, r->t);
    for (int i = 0; i < r->b * r->t; i++) {
        assert(r->micro->ids[i] >= 0 && r->micro->ids[i] < s->vocab);
    }
    cp_embed_forward(r->b, r->t, d, r->micro->ids, block_w(k, EMB_WORD), block_w(k, EMB_POSITION),
                     block_w(k, EMB_TYPE), y);
    cp_norm_forward(r->b * r->t, d, s->norm_eps, y, block_w(k, EMB_GAIN), block_w(k, EMB_BIAS),
                    v.xhat, v.rstd, y);
    struct cp_drop drop = cp_run_drop(r, CP_DROP_EMB);
    cp_drop_apply(&drop, r->b, r->t * d, r->sample, y);
}

void cp_emb_backward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                     const cp_real *dy)
{
    const int d = r->shape->width, tokens = r->b * r->t;
    struct cp_emb_save v = cp_emb_save(&(struct cp_carve){saved, 0}, r->shape, r->b, r->t);
    cp_real *dx = r->scratch->tmp;
    memcpy(dx, dy, (size_t)tokens * d * sizeof *dx);
    struct cp_drop drop = cp_run_drop(r, CP_DROP_EMB);
    cp_drop_apply(&drop, r->b, r->t * d, r->sample, dx);
    cp_norm_backward(tokens, d, v.xhat, v.rstd, block_w(k, EMB_GAIN), dx, block_g(k, EMB_GAIN),
                     block_g(k, EMB_BIAS), dx);
    cp_embed_backward(r->b, r->t, d, r->micro->ids, dx, block_g(k, EMB_WORD),
                      block_g(k, EMB_POSITION), block_g(k, EMB_TYPE));
}
