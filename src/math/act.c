#include "math/act.h"

#include "math/elem.h"

#define SQRT_HALF      ((cp_real)0.70710678118654752440)
#define INV_SQRT_TWOPI ((cp_real)0.39894228040143267794)

CP_CLONES void cp_gelu_forward(int64_t n, const cp_real *x, cp_real *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        cp_real v = x[i];
        y[i] = (cp_real)0.5 * v * (1 + cp_erf(v * SQRT_HALF));
    }
}

CP_CLONES void cp_gelu_backward(int64_t n, const cp_real *x, cp_real *restrict dy)
{
    for (int64_t i = 0; i < n; i++) {
        cp_real v = x[i];
        cp_real below = (cp_real)0.5 * (1 + cp_erf(v * SQRT_HALF));
        cp_real density = INV_SQRT_TWOPI * cp_exp((cp_real)-0.5 * v * v);
        dy[i] *= below + v * density;
    }
}

/* The pooler only, [b, D]: libm is fast enough. */
void cp_tanh_forward(int64_t n, cp_real *x)
{
    for (int64_t i = 0; i < n; i++) {
#ifdef CP_REAL_DOUBLE
        x[i] = tanh(x[i]);
#else
        x[i] = tanhf(x[i]);
#endif
    }
}

void cp_tanh_backward(int64_t n, const cp_real *y, cp_real *restrict dy)
{
    for (int64_t i = 0; i < n; i++) {
        dy[i] *= 1 - y[i] * y[i];
    }
}
