#include "math/loss.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

/* In double: classes are few, and the sum is compared between runs. */
struct cp_loss cp_xent_forward(int b, int c, const cp_real *logits, const int32_t *label,
                               cp_real *probs)
{
    struct cp_loss loss = {0};
    for (int i = 0; i < b; i++) {
        const cp_real *z = logits + (size_t)i * c;
        cp_real *p = probs + (size_t)i * c;
        int best = 0;
        for (int j = 1; j < c; j++) {
            best = z[j] > z[best] ? j : best;
        }
        double sum = 0;
        for (int j = 0; j < c; j++) {
            sum += exp((double)z[j] - (double)z[best]);
        }
        for (int j = 0; j < c; j++) {
            p[j] = (cp_real)(exp((double)z[j] - (double)z[best]) / sum);
        }
        int y = label ? label[i] : CP_LABEL_IGNORE;
        if (y != CP_LABEL_IGNORE) {
            assert(y >= 0 && y < c);
            loss.sum += log(sum) - ((double)z[y] - (double)z[best]);
            loss.labelled++;
            loss.correct += y == best;
        }
    }
    return loss;
}

void cp_xent_backward(int b, int c, const cp_real *probs, const int32_t *label, double scale,
                      cp_real *dlogits)
{
    for (int i = 0; i < b; i++) {
        int y = label ? label[i] : CP_LABEL_IGNORE;
        for (int j = 0; j < c; j++) {
            double d = (double)probs[(size_t)i * c + j] - (j == y);
            dlogits[(size_t)i * c + j] = y == CP_LABEL_IGNORE ? 0 : (cp_real)(scale * d);
        }
    }
}
