/* optim: SGD and AdamW on one block, learning rate over steps, clipping by the global norm. */
#ifndef CP_MODEL_OPTIM_H
#define CP_MODEL_OPTIM_H

#include "math/real.h"

#include <stdbool.h>
#include <stdint.h>

enum cp_optim_kind { CP_OPTIM_SGD, CP_OPTIM_ADAMW };

struct cp_optim {
    enum cp_optim_kind kind;
    double beta1, beta2, eps; /* AdamW (Loshchilov and Hutter, arXiv 1711.05101) */
    double weight_decay;      /* decoupled (the same as L2 for SGD); not on biases and LayerNorm */
};

/* Optimizer words per weight: 0 for SGD, 2 for AdamW. */
int cp_optim_words(enum cp_optim_kind kind);

/* One step on n elements; t >= 1 counts this step too. m and v may be NULL for SGD. As torch.optim:
 * SGD w -= lr (g + decay w); AdamW with bias correction, eps outside the root. */
void cp_optim_step(const struct cp_optim *o, int64_t n, double lr, double grad_scale, bool decay,
                   int64_t t, cp_real *w, const cp_real *g, cp_real *m, cp_real *v);

/* Learning rate of step (0-based) of total: linear warm-up over warmup steps to base, then "linear"
 * decay to 0 at total, or constant. As in BERT, step s < warmup has base * s / warmup: the first
 * one of a warm-up only feeds the moments. */
enum cp_lr_decay { CP_LR_CONSTANT, CP_LR_LINEAR };
double cp_optim_lr(double base, int64_t step, int64_t warmup, int64_t total,
                   enum cp_lr_decay decay);

/* Scale that brings a gradient of squared norm norm2 to at most clip (0: no clipping); as
 * torch.nn.utils.clip_grad_norm_: min(1, clip / (norm + 1e-6)). NaN if norm2 is not finite: such a
 * step is to be refused. */
double cp_optim_clip_scale(double norm2, double clip);

#endif
