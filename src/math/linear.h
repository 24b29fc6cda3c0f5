/* linear: y = x W^T + bias, with W as PyTorch stores it, [out, in]. */
#ifndef CP_MATH_LINEAR_H
#define CP_MATH_LINEAR_H

#include "math/real.h"

struct cp_linear {
    int rows, in, out;
    int x_stride;        /* distance of rows of x, and of dx; >= in */
    const cp_real *w;    /* [out, in] */
    const cp_real *bias; /* [out] */
};

void cp_linear_forward(const struct cp_linear *l, const cp_real *x, cp_real *y /* [rows, out] */);

/* Adds to dw [out, in] and dbias [out]. dx = dy W, or dx += dy W if add; dx may be NULL. */
void cp_linear_backward(const struct cp_linear *l, const cp_real *x, const cp_real *dy, cp_real *dw,
                        cp_real *dbias, cp_real *dx, int add);

#endif
