/* norm: LayerNorm over the last dimension. Keeps what backward needs: the normalised rows xhat and
 * 1 / standard deviation of each row. */
#ifndef CP_MATH_NORM_H
#define CP_MATH_NORM_H

#include "math/real.h"

/* y = xhat * gain + bias per row of n. x, xhat and y may be the same memory, except that xhat and y
 * must differ. */
void cp_norm_forward(int rows, int n, double eps, const cp_real *x, const cp_real *gain,
                     const cp_real *bias, cp_real *xhat /* [rows, n] */, cp_real *rstd /* [rows] */,
                     cp_real *y /* [rows, n] */);

/* Adds to dgain and dbias [n]. dx may be dy. */
void cp_norm_backward(int rows, int n, const cp_real *xhat, const cp_real *rstd,
                      const cp_real *gain, const cp_real *dy, cp_real *dgain, cp_real *dbias,
                      cp_real *dx /* [rows, n] */);

#endif
