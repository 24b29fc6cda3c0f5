/*
 * dropout: masks as a pure function of where an element stands in the training, never of the
 * device, the thread, the padding or the make-up of its micro-batch. So nothing is stored for
 * backward, and cutting the model elsewhere, resuming or redoing a step draws the same masks.
 */
#ifndef CP_MATH_DROPOUT_H
#define CP_MATH_DROPOUT_H

#include "math/real.h"

#include <stdint.h>

/* Values are part of what a seed means: never renumber, only append. */
enum cp_drop_site {
    CP_DROP_EMB = 0,    /* after the embedding's LayerNorm; element t*D + j */
    CP_DROP_PROBS = 1,  /* attention probabilities; element (h*max_len + i)*max_len + j */
    CP_DROP_ATTN = 2,   /* output of attention, before the residual; t*D + j */
    CP_DROP_FFN = 3,    /* output of the feed-forward part, before the residual; t*D + j */
    CP_DROP_POOLED = 4, /* pooled output; j */
};

struct cp_drop {
    double rate; /* 0: no dropout */
    uint64_t seed;
    uint32_t step;
    int32_t block; /* 0..8191 */
    enum cp_drop_site site;
};

/* Elements first + i * stride + j of a sample, i < rows, j < n. */
struct cp_drop_range {
    uint64_t first, stride;
    int rows, n;
};

/* mask[rows, n] = 0 or 1 / (1 - rate) for elements of one sample (0..2^48-1). */
void cp_drop_mask(const struct cp_drop *d, int64_t sample, const struct cp_drop_range *at,
                  cp_real *mask);

/* x[b, n] *= mask, the elements of each sample counted from 0. */
void cp_drop_apply(const struct cp_drop *d, int b, int n, const int64_t *sample, cp_real *x);

#endif
