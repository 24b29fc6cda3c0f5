/* loss: softmax cross-entropy over classes, summed in sample order and not divided: the one
 * denominator of a step belongs to the step, not to its micro-batches. */
#ifndef CP_MATH_LOSS_H
#define CP_MATH_LOSS_H

#include "base/label.h"
#include "math/real.h"

#include <stdint.h>

struct cp_loss {
    double sum; /* of -log p(label) */
    int64_t labelled, correct;
};

/* probs[b, c] = softmax of logits; label [b] of 0..c-1 or CP_LABEL_IGNORE, NULL: all ignored. */
struct cp_loss cp_xent_forward(int b, int c, const cp_real *logits, const int32_t *label,
                               cp_real *probs);

/* dlogits[b, c] = scale (probs - onehot(label)), 0 for ignored samples. */
void cp_xent_backward(int b, int c, const cp_real *probs, const int32_t *label, double scale,
                      cp_real *dlogits);

#endif
