/* act: the activation functions of BERT, element by element. */
#ifndef CP_MATH_ACT_H
#define CP_MATH_ACT_H

#include "math/real.h"

#include <stdint.h>

/* GELU in its exact form x Phi(x), Phi the normal distribution function (arXiv 1606.08415). */
void cp_gelu_forward(int64_t n, const cp_real *x, cp_real *restrict y);

/* dx = dy (Phi(x) + x phi(x)), in place of dy. */
void cp_gelu_backward(int64_t n, const cp_real *x, cp_real *restrict dy);

void cp_tanh_forward(int64_t n, cp_real *x); /* in place */

/* dx = dy (1 - y^2), in place of dy. */
void cp_tanh_backward(int64_t n, const cp_real *y, cp_real *restrict dy);

#endif
