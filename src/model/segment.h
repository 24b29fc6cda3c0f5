/*
 * segment: consecutive blocks on one node, with their weights, slots and scratch.
 *
 * A segment owns three arenas whose sizes come from cp_shape_cost() before anything is allocated.
 * It knows nothing of pipelines or messages: the executor puts a stage's input into a slot, calls
 * forward, later puts the output gradient and calls backward. Slots are independent; backwards must
 * come in ascending micro order, so that gradient sums do not depend on how the pipeline is cut.
 */
#ifndef CP_MODEL_SEGMENT_H
#define CP_MODEL_SEGMENT_H

#include "base/label.h"
#include "base/mem.h"
#include "math/real.h"
#include "model/optim.h"
#include "model/shape.h"

/* What a stage knows of a micro-batch. The arrays are borrowed: ids and labels until backward of
 * the micro-batch is done (only embedding and head read them); len and sample are copied. */
struct cp_micro {
    int32_t b, t;          /* samples (1..b_max), tokens per sample (1..t_max), padded at the end */
    const int32_t *len;    /* [b] real tokens of each sample, 1..t: attention never sees padding */
    const int64_t *sample; /* [b] index in the data set: keys dropout */
    const int32_t *ids;    /* [b*t] token ids; embedding only */
    const int32_t *label;  /* [b] class or CP_LABEL_IGNORE; head only; NULL: none is labelled */
    int64_t step_labelled; /* labelled samples of the whole step: the one denominator of the loss */
    uint64_t seed;         /* dropout */
    uint32_t step;         /* global step: dropout */
    bool train;            /* false: no dropout, nothing is kept for backward */
};

/* What the head found in a forward. Loss is summed in sample order, not divided. */
struct cp_head_result {
    double loss_sum; /* sum over labelled samples of -log p(label) */
    int64_t labelled, correct;
};

struct cp_segment;

/* Holds blocks first..last of shape s. b_max, t_max, slots >= 1 as in cp_shape_cost(). Parameters,
 * gradients and moments start as zeros. E_CONFIG names what does not fit; E_NOMEM leaves nothing
 * behind. */
CP_NODISCARD cp_err cp_segment_new(const struct cp_shape *s, int first, int last, int b_max,
                                   int t_max, int slots, enum cp_optim_kind optim,
                                   struct cp_mem *mem, struct cp_segment **out);
void cp_segment_free(struct cp_segment *seg);

int cp_segment_first(const struct cp_segment *seg);
int cp_segment_last(const struct cp_segment *seg);
bool cp_segment_has(const struct cp_segment *seg, int block);

/* Contiguous parameters, gradients, moments of one block, cp_shape_params(s, block, block) elements
 * each; plane 0 weights, 1 gradients, 2 and 3 the first and second moment (NULL if not kept). */
enum cp_plane { CP_PLANE_W, CP_PLANE_G, CP_PLANE_M, CP_PLANE_V };
cp_real *cp_segment_plane(struct cp_segment *seg, int block, enum cp_plane plane);

/* Optimizer steps that a block's moments have seen (bias correction); moves with the moments. */
int64_t *cp_segment_steps(struct cp_segment *seg, int block);

/* Where the executor puts the input of the first block, [b, t, D], before forward(slot). Not used
 * when the segment starts with the embedding. */
cp_real *cp_segment_input(struct cp_segment *seg, int slot);

/* Runs all blocks. Returns the output [b, t, D] of the last block in scratch, valid until the next
 * call on this segment; or, if the last block is the head, the logits [b, C], and fills *head
 * (which may be NULL). Rows of padding are finite, and meaningless. */
const cp_real *cp_segment_forward(struct cp_segment *seg, int slot, const struct cp_micro *m,
                                  struct cp_head_result *head);

/* Where the executor puts the gradient of the output, [b, t, D], before backward. Not used when the
 * segment ends with the head: backward then starts from the loss, divided by m->step_labelled. */
cp_real *cp_segment_grad_out(struct cp_segment *seg);

/* Adds to the gradients; returns the gradient of the input [b, t, D] in scratch (NULL if the
 * segment starts with the embedding), valid until the next call; filling grad_out does not touch
 * it. m as in the forward of this slot. With step_labelled 0 the gradient is 0. */
const cp_real *cp_segment_backward(struct cp_segment *seg, int slot, const struct cp_micro *m);

/* Blocks below `first_trained` keep their parameters: their gradients do not count in the norm and
 * no step changes them. All blocks are trained at the start. */
void cp_segment_freeze(struct cp_segment *seg, int first_trained);

/* Sum of squares of a block's gradients, in double, tensor by tensor in shape order: the terms of
 * the global norm. Not finite if any gradient is not; 0 for a frozen block. */
double cp_segment_norm2(const struct cp_segment *seg, int block);

/* One optimizer step on every block with gradients scaled by grad_scale, then gradients = 0. */
void cp_segment_step(struct cp_segment *seg, const struct cp_optim *opt, double lr,
                     double grad_scale);

/* Gradients = 0 without a step (a refused step). */
void cp_segment_zero_grad(struct cp_segment *seg);

/* Moments and step counts = 0 (fed.moments=reset). */
void cp_segment_reset_moments(struct cp_segment *seg);

/* Initial parameters of a block as a pure function of (std, seed, block): normal(0, std) cut off at
 * 2 std for weights and tables (BERT, arXiv 1810.04805, takes 0.02 at width 768), 0 for biases, 1
 * for LayerNorm weights. */
void cp_block_init(const struct cp_shape *s, int block, double std, uint64_t seed, cp_real *params);

#endif
