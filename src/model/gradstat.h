/*
 * gradstat: what a segment can tell of its gradients without a second copy of them.
 *
 * The micro-batches of a step add their gradients up in place, so the single ones are never seen. A
 * sample of coordinates is: per block one coordinate in each of up to 512 runs of equal length,
 * drawn for (seed, block, round), hence the same however the model is cut. After each backward the
 * growth of the gradient there is that micro-batch's own gradient. From it come the parts of this
 * block in the constants of docs/theory.md section 8: the variance of a sample's gradient; and how
 * far gradient and weights went in a round, where one micro-batch is repeated at its end. Nothing
 * is written but the sample: training goes on to the same bit.
 */
#ifndef CP_MODEL_GRADSTAT_H
#define CP_MODEL_GRADSTAT_H

#include "model/segment.h"

enum { CP_GRADSTAT_COORDS = 512 };

/* Of one block after a round; sums over its parameters, estimated from the sample. */
struct cp_gradstat_block {
    int32_t block;
    int32_t coords;    /* sampled: all of a small block; 0: the block is frozen */
    int32_t step;      /* of the first measured step in the round; -1: none */
    int32_t variances; /* measured steps that had two micro-batches or more */
    int32_t noise;     /* whether noise2 is known: the first one had */
    int32_t pair;      /* whether change2 and path2 are: it was repeated */
    double variance;   /* mean of the unbiased estimates of sigma_c^2; may be below 0 */
    double noise2;     /* E|g - E g|^2 of the first measured step's gradient g; may be below 0 */
    double change2; /* |g' - g|^2 of the first micro-batch's mean gradient when it was repeated */
    double path2;   /* |w' - w|^2 from the one time to the other */
    cp_real gradient[CP_GRADSTAT_COORDS]; /* of the first measured step */
};

struct cp_gradstat;

/* For blocks first..last, counted in mem, bytes as below: not in the arenas of the segment, whose
 * size is that of the plan's memory constraint. */
CP_NODISCARD cp_err cp_gradstat_new(const struct cp_shape *s, int first, int last,
                                    struct cp_mem *mem, struct cp_gradstat **out);
void cp_gradstat_free(struct cp_gradstat *g);
size_t cp_gradstat_bytes(int first, int last);

/* A round begins: nothing is known, the sample is drawn. first_trained as in cp_segment_freeze. */
void cp_gradstat_begin(struct cp_gradstat *g, uint64_t seed, int32_t round, int first_trained);

/* A step to be measured, before its first backward, with gradients 0; samples: labelled ones. */
void cp_gradstat_open(struct cp_gradstat *g, struct cp_segment *seg, int32_t step, int64_t samples);
/* After the backward of a micro-batch with that many labelled samples. */
void cp_gradstat_add(struct cp_gradstat *g, struct cp_segment *seg, int64_t samples);
/* After the last backward, before the optimizer's step. */
void cp_gradstat_close(struct cp_gradstat *g);

/* After a backward of the first micro-batch of the round's first measured step once more, alone,
 * with the same samples, dropout and denominator. */
void cp_gradstat_repeat(struct cp_gradstat *g, struct cp_segment *seg);

/* [last - first + 1] */
const struct cp_gradstat_block *cp_gradstat_blocks(const struct cp_gradstat *g);

/* A block's parameters that coordinate i of a sample of `coords` stands for: its weight in sums. */
int64_t cp_gradstat_weight(int64_t params, int coords, int i);

#endif
