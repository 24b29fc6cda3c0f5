/* kit: a model as a chain of segments, run by hand, for the tests of this folder. */
#ifndef CP_TESTS_MODEL_KIT_H
#define CP_TESTS_MODEL_KIT_H

#include "base/rng.h"
#include "model/segment.h"

#include <math.h>
#include <string.h>

enum { KIT_SEGMENTS = 8 };

struct chain {
    struct cp_shape shape;
    int n;
    struct cp_segment *seg[KIT_SEGMENTS];
    struct cp_mem mem;
};

/* cuts: the first blocks of the segments after the first one. */
static inline void chain_new(struct chain *c, const struct cp_shape *s, int cuts, const int *cut,
                             int b, int t, int slots, enum cp_optim_kind optim)
{
    *c = (struct chain){.shape = *s, .n = cuts + 1, .mem = {.name = "chain"}};
    for (int i = 0; i <= cuts; i++) {
        int first = i == 0 ? 0 : cut[i - 1];
        int last = i == cuts ? cp_shape_blocks(s) - 1 : cut[i] - 1;
        assert_int_equal(cp_segment_new(s, first, last, b, t, slots, optim, &c->mem, &c->seg[i]),
                         CP_OK);
    }
}

static inline void chain_free(struct chain *c)
{
    for (int i = 0; i < c->n; i++) {
        cp_segment_free(c->seg[i]);
    }
    assert_int_equal(c->mem.held_bytes, 0);
}

static inline struct cp_segment *chain_owner(struct chain *c, int block)
{
    for (int i = 0; i < c->n; i++) {
        if (cp_segment_has(c->seg[i], block)) {
            return c->seg[i];
        }
    }
    fail_msg("nobody has block %d", block);
    return NULL;
}

static inline cp_real *chain_plane(struct chain *c, int block, enum cp_plane plane)
{
    return cp_segment_plane(chain_owner(c, block), block, plane);
}

static inline size_t chain_block_bytes(const struct chain *c, int block)
{
    return (size_t)cp_shape_params(&c->shape, block, block) * sizeof(cp_real);
}

static inline void chain_init(struct chain *c, uint64_t seed)
{
    for (int block = 0; block < cp_shape_blocks(&c->shape); block++) {
        cp_block_init(&c->shape, block, 0.02, seed, chain_plane(c, block, CP_PLANE_W));
    }
}

static inline const cp_real *chain_forward(struct chain *c, int slot, const struct cp_micro *m,
                                           struct cp_head_result *head)
{
    const cp_real *y = NULL;
    size_t bytes = (size_t)m->b * (size_t)m->t * (size_t)c->shape.width * sizeof *y;
    for (int i = 0; i < c->n; i++) {
        if (i > 0) {
            memcpy(cp_segment_input(c->seg[i], slot), y, bytes);
        }
        y = cp_segment_forward(c->seg[i], slot, m, head);
    }
    return y;
}

static inline void chain_backward(struct chain *c, int slot, const struct cp_micro *m)
{
    const cp_real *dy = NULL;
    size_t bytes = (size_t)m->b * (size_t)m->t * (size_t)c->shape.width * sizeof *dy;
    for (int i = c->n - 1; i >= 0; i--) {
        if (dy) {
            memcpy(cp_segment_grad_out(c->seg[i]), dy, bytes);
        }
        dy = cp_segment_backward(c->seg[i], slot, m);
    }
    assert_null(dy);
}

static inline double chain_norm2(struct chain *c)
{
    double sum = 0;
    for (int block = 0; block < cp_shape_blocks(&c->shape); block++) {
        sum += cp_segment_norm2(chain_owner(c, block), block);
    }
    return sum;
}

static inline void chain_step(struct chain *c, const struct cp_optim *opt, double lr, double scale)
{
    for (int i = 0; i < c->n; i++) {
        cp_segment_step(c->seg[i], opt, lr, scale);
    }
}

/* A micro-batch with storage of its own, drawn from seed. */
enum { KIT_B = 8, KIT_T = 32 };
struct kit_micro {
    struct cp_micro m;
    int32_t len[KIT_B], ids[KIT_B * KIT_T], label[KIT_B];
    int64_t sample[KIT_B];
};

static inline void kit_micro(struct kit_micro *k, const struct cp_shape *s, int b, int t,
                             uint64_t seed)
{
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_TEST, 0, 0);
    memset(k, 0, sizeof *k);
    for (int i = 0; i < b; i++) {
        k->len[i] = i == 0 ? t : 1 + (int32_t)cp_rng_below(&r, (uint32_t)t);
        k->label[i] = (int32_t)cp_rng_below(&r, (uint32_t)s->classes);
        k->sample[i] = (int64_t)(seed * 100) + i;
        for (int j = 0; j < t; j++) {
            k->ids[i * t + j] = (int32_t)cp_rng_below(&r, (uint32_t)s->vocab);
        }
    }
    k->m = (struct cp_micro){.b = b,
                             .t = t,
                             .len = k->len,
                             .sample = k->sample,
                             .ids = k->ids,
                             .label = k->label,
                             .step_labelled = b,
                             .seed = 11,
                             .step = 3,
                             .train = true};
}

/* |a - b| / |b|, or |a| if b is 0. */
static inline double kit_error(const cp_real *a, const cp_real *b, int64_t n)
{
    double diff = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(diff) / (size > 0 ? sqrt(size) : 1);
}

#endif
