/*
 * cost: the one size function, and the layouts it counts. cp_segment_new() carves its arenas with
 * the same functions, so a promise here is an allocation there.
 */
#include "model/block.h"

#include <assert.h>

void *cp_carve_take(struct cp_carve *c, size_t n)
{
    void *p = c->base ? c->base + c->used_bytes : NULL;
    c->used_bytes += cp_arena_round(n);
    return p;
}

cp_real *cp_carve_reals(struct cp_carve *c, int64_t n)
{
    return cp_carve_take(c, (size_t)n * sizeof(cp_real));
}

struct cp_slot_meta cp_slot_meta(struct cp_carve *c, int b_max)
{
    struct cp_slot_meta m;
    m.bt = cp_carve_take(c, 2 * sizeof *m.bt);
    m.len = cp_carve_take(c, (size_t)b_max * sizeof *m.len);
    m.sample = cp_carve_take(c, (size_t)b_max * sizeof *m.sample);
    return m;
}

size_t cp_block_save_bytes(const struct cp_shape *s, int block, int b, int t)
{
    struct cp_carve c = {0};
    switch (cp_shape_kind(s, block)) {
    case CP_BLOCK_EMB:
        (void)cp_emb_save(&c, s, b, t);
        break;
    case CP_BLOCK_ENC:
        (void)cp_enc_save(&c, s, b, t);
        break;
    case CP_BLOCK_HEAD:
        (void)cp_head_save(&c, s, b, t);
        break;
    }
    return c.used_bytes;
}

struct cp_scratch cp_scratch_carve(struct cp_carve *c, const struct cp_shape *s, int first,
                                   int last, int b, int t)
{
    struct cp_scratch w = {0};
    int64_t tokens = (int64_t)b * t, wide = s->ffn > 3 * s->width ? s->ffn : 3 * s->width;
    w.out = cp_carve_reals(c, tokens * s->width);
    w.grad_out = cp_carve_reals(c, tokens * s->width);
    w.grad_in = cp_carve_reals(c, tokens * s->width);
    w.tmp = cp_carve_reals(c, tokens * s->width);
    if (first <= s->layers && last >= 1) {
        w.wide = cp_carve_reals(c, tokens * wide);
        w.scores = cp_carve_reals(c, 2 * (int64_t)t * t);
    }
    if (last > s->layers) {
        w.logits = cp_carve_reals(c, (int64_t)b * s->classes);
        w.dlogits = cp_carve_reals(c, (int64_t)b * s->classes);
    }
    return w;
}

/* Forward flops of a block (section 3; multiply-add is two). */
static double block_work(const struct cp_shape *s, int block, int b, int t)
{
    double tokens = (double)b * t, d = s->width;
    switch (cp_shape_kind(s, block)) {
    case CP_BLOCK_EMB:
        return 30 * tokens * d;
    case CP_BLOCK_ENC:
        return 2 * tokens * (4 * d * d + 2 * d * s->ffn) + 4 * tokens * t * d;
    default:
        return 2.0 * b * d * d + 2.0 * b * d * s->classes;
    }
}

struct cp_cost cp_shape_cost(const struct cp_shape *s, int first, int last, int b, int len,
                             int slots, int optim_words)
{
    assert(first >= 0 && first <= last && last < cp_shape_blocks(s));
    assert(b >= 1 && len >= 1 && slots >= 1 && optim_words >= 0);
    struct cp_cost cost = {.params = cp_shape_params(s, first, last)};
    struct cp_carve weights = {0}, slot = {0}, work = {0};
    size_t blocks = (size_t)last - (size_t)first + 1;
    cp_carve_take(&weights, sizeof(struct cp_segment));
    cp_carve_take(&weights, blocks * sizeof(struct cp_seg_block));
    (void)cp_slot_meta(&slot, b);
    (void)cp_scratch_carve(&work, s, first, last, b, len);
    for (int block = first; block <= last; block++) {
        for (int plane = 0; plane < 2 + optim_words; plane++) {
            cp_carve_reals(&weights, cp_shape_params(s, block, block));
        }
        slot.used_bytes += cp_block_save_bytes(s, block, b, len);
        double flops = block_work(s, block, b, len);
        cost.work_fwd_flops += flops;
        cost.work_bwd_flops += cp_shape_kind(s, block) == CP_BLOCK_EMB ? flops : 2 * flops;
    }
    cost.weight_bytes = weights.used_bytes;
    cost.slot_bytes = slot.used_bytes;
    cost.scratch_bytes = work.used_bytes;
    cost.total_bytes = cost.weight_bytes + (size_t)slots * cost.slot_bytes + cost.scratch_bytes;
    cost.boundary_bytes = (size_t)b * (size_t)len * (size_t)s->width * sizeof(cp_real);
    return cost;
}
