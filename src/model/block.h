/*
 * block: what segment.c and the three kinds of blocks share (private to this folder).
 *
 * Each kind tells how a micro-batch's saved tensors lie in its part of a slot through one *_save()
 * function: called without memory it only counts, so the size that is promised and the layout that
 * is used cannot differ. Every block but the embedding has its input at the start of its part.
 */
#ifndef CP_MODEL_BLOCK_H
#define CP_MODEL_BLOCK_H

#include "base/mem.h"
#include "math/dropout.h"
#include "model/segment.h"

/* Tensors of a block, in the order of cp_shape_tensors(). */
enum { EMB_WORD, EMB_POSITION, EMB_TYPE, EMB_GAIN, EMB_BIAS };
enum {
    ENC_Q_W,
    ENC_Q_B,
    ENC_K_W,
    ENC_K_B,
    ENC_V_W,
    ENC_V_B,
    ENC_O_W,
    ENC_O_B,
    ENC_GAIN1,
    ENC_BIAS1,
    ENC_UP_W,
    ENC_UP_B,
    ENC_DOWN_W,
    ENC_DOWN_B,
    ENC_GAIN2,
    ENC_BIAS2
};
enum { HEAD_POOL_W, HEAD_POOL_B, HEAD_CLASS_W, HEAD_CLASS_B };

struct cp_span {
    int64_t offset, count; /* in elements, in the block */
    bool decay;
};

struct cp_seg_block {
    cp_real *plane[4]; /* by enum cp_plane */
    int64_t steps;
    int tensors;
    struct cp_span span[CP_BLOCK_TENSORS_MAX];
};

static inline const cp_real *block_w(const struct cp_seg_block *k, int tensor)
{
    return k->plane[CP_PLANE_W] + k->span[tensor].offset;
}

static inline cp_real *block_g(const struct cp_seg_block *k, int tensor)
{
    return k->plane[CP_PLANE_G] + k->span[tensor].offset;
}

/* Work memory of a segment; sizes for b_max and t_max. */
struct cp_scratch {
    cp_real *out;      /* [b, t, D] the segment's output; free in backward */
    cp_real *grad_out; /* [b, t, D] */
    cp_real *grad_in;  /* [b, t, D] */
    cp_real *tmp;      /* [b, t, D] */
    cp_real *wide;     /* [b, t, max(F, 3D)] encoder only */
    cp_real *scores;   /* [2, t, t] encoder only */
    cp_real *logits;   /* [b, C] head only */
    cp_real *dlogits;  /* [b, C] head only */
};

struct cp_segment {
    struct cp_shape shape;
    int first, last, b_max, t_max, slots;
    enum cp_optim_kind optim;
    int first_trained; /* blocks below keep their parameters */
    size_t slot_bytes;
    struct cp_arena weights, saved, work;
    struct cp_scratch scratch;
    struct cp_seg_block *block; /* [last - first + 1] */
};

/* One micro-batch as a block sees it. */
struct cp_run {
    const struct cp_shape *shape;
    const struct cp_scratch *scratch;
    const struct cp_micro *micro;
    int b, t, block;
    const int32_t *len;    /* [b] of the slot */
    const int64_t *sample; /* [b] of the slot */
};

/* The dropout of a site: rate 0 outside of training. */
struct cp_drop cp_run_drop(const struct cp_run *r, enum cp_drop_site site);

/* Hands out pieces of memory one after the other; with base NULL it only counts. */
struct cp_carve {
    char *base;
    size_t used_bytes;
};
void *cp_carve_take(struct cp_carve *c, size_t n);
cp_real *cp_carve_reals(struct cp_carve *c, int64_t n);

/* The copied part of cp_micro, at the start of a slot. */
struct cp_slot_meta {
    int32_t *bt;     /* [2] b and t of the micro-batch */
    int32_t *len;    /* [b_max] */
    int64_t *sample; /* [b_max] */
};
struct cp_slot_meta cp_slot_meta(struct cp_carve *c, int b_max);

/* Bytes of a block's part of a slot, for b samples of t tokens. */
size_t cp_block_save_bytes(const struct cp_shape *s, int block, int b, int t);

struct cp_scratch cp_scratch_carve(struct cp_carve *c, const struct cp_shape *s, int first,
                                   int last, int b, int t);

struct cp_emb_save {
    cp_real *xhat; /* [b, t, D] LayerNorm */
    cp_real *rstd; /* [b, t] */
};
struct cp_emb_save cp_emb_save(struct cp_carve *c, const struct cp_shape *s, int b, int t);
void cp_emb_forward(const struct cp_run *r, const struct cp_seg_block *k, char *saved, cp_real *y);
void cp_emb_backward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                     const cp_real *dy);

/* Section 3: (8 + 2F/D) b t D + b H t^2 + 2 b t elements. */
struct cp_enc_save {
    cp_real *x;             /* [b, t, D] input */
    cp_real *q, *k, *v;     /* [b, t, D] */
    cp_real *probs;         /* [b, H, t, t] before dropout */
    cp_real *ctx;           /* [b, t, D] */
    cp_real *xhat1, *y1;    /* [b, t, D] first LayerNorm: normalised, output */
    cp_real *pre, *hidden;  /* [b, t, F] before and after GELU */
    cp_real *xhat2;         /* [b, t, D] second LayerNorm: normalised */
    cp_real *rstd1, *rstd2; /* [b, t] */
};
struct cp_enc_save cp_enc_save(struct cp_carve *c, const struct cp_shape *s, int b, int t);
void cp_enc_forward(const struct cp_run *r, const struct cp_seg_block *k, char *saved, cp_real *y);
/* dx may be dy. */
void cp_enc_backward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                     const cp_real *dy, cp_real *dx);

struct cp_head_save {
    cp_real *x;      /* [b, t, D] input; only the first token is read */
    cp_real *pooled; /* [b, D] before dropout */
    cp_real *probs;  /* [b, C] */
};
struct cp_head_save cp_head_save(struct cp_carve *c, const struct cp_shape *s, int b, int t);
/* Leaves the logits in scratch. */
void cp_head_forward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                     struct cp_head_result *result);
void cp_head_backward(const struct cp_run *r, const struct cp_seg_block *k, char *saved,
                      cp_real *dx);

#endif
