#include "model/segment.h"

#include "base/rng.h"
#include "math/gemm.h"
#include "math/reduce.h"
#include "model/block.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static cp_err check(const struct cp_shape *s, int first, int last, int b_max, int t_max, int slots)
{
    CP_TRY(cp_shape_check(s));
    if (first < 0 || first > last || last >= cp_shape_blocks(s)) {
        return cp_fail(CP_E_CONFIG, "segment of blocks %d..%d: the model has blocks 0..%d", first,
                       last, cp_shape_blocks(s) - 1);
    }
    if (t_max < 1 || t_max > s->max_len) {
        return cp_fail(CP_E_CONFIG,
                       "segment: sequences of %d tokens, but the model has positions "
                       "for 1 to %d; change max_len or cut the text",
                       t_max, s->max_len);
    }
    /* so that b*t*D and b*t*F fit the int of BLAS and of loops, with room; b*H*t*t is size_t */
    int64_t most = (int64_t)1 << 30, row = (int64_t)t_max * (s->width > s->ffn ? s->width : s->ffn);
    if (b_max < 1 || row > most / b_max) {
        return cp_fail(CP_E_CONFIG,
                       "segment: micro-batches of %d samples of %d tokens are not "
                       "possible; use 1 to %lld samples",
                       b_max, t_max, (long long)(most / row));
    }
    if (slots < 1) {
        return cp_fail(CP_E_CONFIG, "segment: %d slots, at least 1 is needed", slots);
    }
    return CP_OK;
}

/* Takes the block table and the planes from the weights arena, in the order that cost.c counts. */
static void lay_out_weights(struct cp_segment *seg)
{
    int blocks = seg->last - seg->first + 1;
    seg->block = cp_arena_take(&seg->weights, (size_t)blocks * sizeof *seg->block);
    for (int i = 0; i < blocks; i++) {
        struct cp_seg_block *k = &seg->block[i];
        struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
        int block = seg->first + i, planes = 2 + cp_optim_words(seg->optim);
        size_t bytes = (size_t)cp_shape_params(&seg->shape, block, block) * sizeof(cp_real);
        for (int plane = 0; plane < planes; plane++) {
            k->plane[plane] = cp_arena_take(&seg->weights, bytes);
        }
        k->tensors = cp_shape_tensors(&seg->shape, block, info);
        for (int j = 0; j < k->tensors; j++) {
            k->span[j] = (struct cp_span){info[j].offset, info[j].count, info[j].decay};
        }
    }
}

cp_err cp_segment_new(const struct cp_shape *s, int first, int last, int b_max, int t_max,
                      int slots, enum cp_optim_kind optim, struct cp_mem *mem,
                      struct cp_segment **out)
{
    CP_TRY(check(s, first, last, b_max, t_max, slots));
    cp_gemm_init();
    struct cp_cost cost = cp_shape_cost(s, first, last, b_max, t_max, slots, cp_optim_words(optim));
    struct cp_arena weights = {0}, saved = {0}, work = {0};
    cp_err err;
    CP_TRY_GOTO(err, cp_arena_init(&weights, mem, cost.weight_bytes), fail);
    CP_TRY_GOTO(err, cp_arena_init(&saved, mem, (size_t)slots * cost.slot_bytes), fail);
    CP_TRY_GOTO(err, cp_arena_init(&work, mem, cost.scratch_bytes), fail);
    struct cp_segment *seg = cp_arena_take(&weights, sizeof *seg);
    *seg = (struct cp_segment){.shape = *s,
                               .first = first,
                               .last = last,
                               .b_max = b_max,
                               .t_max = t_max,
                               .slots = slots,
                               .optim = optim,
                               .slot_bytes = cost.slot_bytes,
                               .weights = weights,
                               .saved = saved,
                               .work = work};
    lay_out_weights(seg);
    struct cp_carve carve = {.base = work.base};
    seg->scratch = cp_scratch_carve(&carve, s, first, last, b_max, t_max);
    assert(seg->weights.used_bytes == cost.weight_bytes);
    assert(carve.used_bytes == cost.scratch_bytes);
    *out = seg;
    return CP_OK;
fail:
    cp_arena_fini(&work);
    cp_arena_fini(&saved);
    cp_arena_fini(&weights);
    return cp_fail_in(err, "segment of blocks %d..%d", first, last);
}

void cp_segment_free(struct cp_segment *seg)
{
    if (seg) {
        struct cp_arena weights = seg->weights; /* holds *seg itself */
        cp_arena_fini(&seg->work);
        cp_arena_fini(&seg->saved);
        cp_arena_fini(&weights);
    }
}

int cp_segment_first(const struct cp_segment *seg)
{
    return seg->first;
}

int cp_segment_last(const struct cp_segment *seg)
{
    return seg->last;
}

bool cp_segment_has(const struct cp_segment *seg, int block)
{
    return block >= seg->first && block <= seg->last;
}

static struct cp_seg_block *block_of(const struct cp_segment *seg, int block)
{
    assert(cp_segment_has(seg, block));
    return &seg->block[block - seg->first];
}

cp_real *cp_segment_plane(struct cp_segment *seg, int block, enum cp_plane plane)
{
    return block_of(seg, block)->plane[plane];
}

int64_t *cp_segment_steps(struct cp_segment *seg, int block)
{
    return &block_of(seg, block)->steps;
}

/* A slot: its meta data, then the parts of the blocks. */
struct slot {
    struct cp_slot_meta meta;
    char *parts;
};

static struct slot slot_at(const struct cp_segment *seg, int slot)
{
    assert(slot >= 0 && slot < seg->slots);
    struct cp_carve c = {.base = seg->saved.base + (size_t)slot * seg->slot_bytes};
    struct slot out = {.meta = cp_slot_meta(&c, seg->b_max)};
    out.parts = c.base + c.used_bytes;
    return out;
}

cp_real *cp_segment_input(struct cp_segment *seg, int slot)
{
    return (cp_real *)(void *)slot_at(seg, slot).parts;
}

cp_real *cp_segment_grad_out(struct cp_segment *seg)
{
    return seg->scratch.grad_out;
}

struct cp_drop cp_run_drop(const struct cp_run *r, enum cp_drop_site site)
{
    return (struct cp_drop){.rate = r->micro->train ? r->shape->dropout : 0,
                            .seed = r->micro->seed,
                            .step = r->micro->step,
                            .block = r->block,
                            .site = site};
}

static struct cp_run run_of(const struct cp_segment *seg, const struct slot *slot,
                            const struct cp_micro *m)
{
    return (struct cp_run){.shape = &seg->shape,
                           .scratch = &seg->scratch,
                           .micro = m,
                           .b = slot->meta.bt[0],
                           .t = slot->meta.bt[1],
                           .len = slot->meta.len,
                           .sample = slot->meta.sample};
}

const cp_real *cp_segment_forward(struct cp_segment *seg, int slot, const struct cp_micro *m,
                                  struct cp_head_result *head)
{
    assert(m->b >= 1 && m->b <= seg->b_max && m->t >= 1 && m->t <= seg->t_max);
    struct slot at = slot_at(seg, slot);
    at.meta.bt[0] = m->b;
    at.meta.bt[1] = m->t;
    for (int i = 0; i < m->b; i++) {
        assert(m->len[i] >= 1 && m->len[i] <= m->t);
        at.meta.len[i] = m->len[i];
        at.meta.sample[i] = m->sample[i];
    }
    struct cp_run run = run_of(seg, &at, m);
    char *part = at.parts;
    for (int block = seg->first; block <= seg->last; block++) {
        const struct cp_seg_block *k = block_of(seg, block);
        char *next = part + cp_block_save_bytes(&seg->shape, block, m->b, m->t);
        cp_real *y = block < seg->last ? (cp_real *)(void *)next : seg->scratch.out;
        run.block = block;
        switch (cp_shape_kind(&seg->shape, block)) {
        case CP_BLOCK_EMB:
            cp_emb_forward(&run, k, part, y);
            break;
        case CP_BLOCK_ENC:
            cp_enc_forward(&run, k, part, y);
            break;
        case CP_BLOCK_HEAD:
            cp_head_forward(&run, k, part, head);
            break;
        }
        part = next;
    }
    return cp_shape_kind(&seg->shape, seg->last) == CP_BLOCK_HEAD ? seg->scratch.logits
                                                                  : seg->scratch.out;
}

const cp_real *cp_segment_backward(struct cp_segment *seg, int slot, const struct cp_micro *m)
{
    struct slot at = slot_at(seg, slot);
    struct cp_run run = run_of(seg, &at, m);
    assert(m->b == run.b && m->t == run.t && m->train);
    char *part = at.parts;
    for (int block = seg->first; block <= seg->last; block++) {
        part += cp_block_save_bytes(&seg->shape, block, run.b, run.t);
    }
    cp_real *dx = seg->scratch.grad_in;
    const cp_real *dy = seg->scratch.grad_out;
    for (int block = seg->last; block >= seg->first; block--) {
        const struct cp_seg_block *k = block_of(seg, block);
        part -= cp_block_save_bytes(&seg->shape, block, run.b, run.t);
        run.block = block;
        switch (cp_shape_kind(&seg->shape, block)) {
        case CP_BLOCK_EMB:
            cp_emb_backward(&run, k, part, dy);
            return NULL;
        case CP_BLOCK_ENC:
            cp_enc_backward(&run, k, part, dy, dx);
            break;
        case CP_BLOCK_HEAD:
            cp_head_backward(&run, k, part, dx);
            break;
        }
        dy = dx; /* from here on in place */
    }
    return dx;
}

void cp_segment_freeze(struct cp_segment *seg, int first_trained)
{
    seg->first_trained = first_trained;
}

double cp_segment_norm2(const struct cp_segment *seg, int block)
{
    const struct cp_seg_block *k = block_of(seg, block);
    double sum = 0;
    if (block < seg->first_trained) {
        return 0;
    }
    for (int i = 0; i < k->tensors; i++) {
        sum += cp_sum_squares(block_g(k, i), k->span[i].count);
    }
    return sum;
}

static size_t plane_bytes(const struct cp_segment *seg, int block)
{
    return (size_t)cp_shape_params(&seg->shape, block, block) * sizeof(cp_real);
}

void cp_segment_step(struct cp_segment *seg, const struct cp_optim *opt, double lr,
                     double grad_scale)
{
    assert(opt->kind == seg->optim);
    int first = seg->first > seg->first_trained ? seg->first : seg->first_trained;
    for (int block = first; block <= seg->last; block++) {
        struct cp_seg_block *k = block_of(seg, block);
        cp_real *m = k->plane[CP_PLANE_M], *v = k->plane[CP_PLANE_V];
        k->steps++;
        for (int i = 0; i < k->tensors; i++) {
            const struct cp_span *p = &k->span[i];
            cp_optim_step(opt, p->count, lr, grad_scale, p->decay, k->steps,
                          k->plane[CP_PLANE_W] + p->offset, block_g(k, i), m ? m + p->offset : NULL,
                          v ? v + p->offset : NULL);
        }
    }
    cp_segment_zero_grad(seg);
}

void cp_segment_zero_grad(struct cp_segment *seg)
{
    for (int block = seg->first; block <= seg->last; block++) {
        memset(cp_segment_plane(seg, block, CP_PLANE_G), 0, plane_bytes(seg, block));
    }
}

void cp_segment_reset_moments(struct cp_segment *seg)
{
    for (int block = seg->first; block <= seg->last; block++) {
        struct cp_seg_block *k = block_of(seg, block);
        for (int plane = CP_PLANE_M; plane <= CP_PLANE_V; plane++) {
            if (k->plane[plane]) {
                memset(k->plane[plane], 0, plane_bytes(seg, block));
            }
        }
        k->steps = 0;
    }
}

void cp_block_init(const struct cp_shape *s, int block, double std, uint64_t seed, cp_real *params)
{
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    int n = cp_shape_tensors(s, block, info);
    for (int i = 0; i < n; i++) {
        cp_real *p = params + info[i].offset;
        struct cp_rng rng;
        cp_rng_init(&rng, seed, CP_RNG_INIT, (uint32_t)block, (uint32_t)i);
        bool gain = strstr(info[i].name, "LayerNorm.weight") != NULL;
        for (int64_t j = 0; j < info[i].count; j++) {
            double x = gain ? 1 : 0;
            if (info[i].rank == 2) {
                do {
                    x = cp_rng_normal(&rng);
                } while (fabs(x) > 2);
                x *= std;
            }
            p[j] = (cp_real)x;
        }
    }
}
