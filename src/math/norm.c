#include "math/norm.h"

#include "math/vec.h"

#include <math.h>
#include <stddef.h>

/* sum of (x - mean)^2: a second pass, since E[x^2] - mean^2 cancels in float. */
CP_INLINE cp_real spread(const cp_real *x, cp_real mean, int n)
{
    cp_vec acc = {0}, a;
    int i = 0;
    for (; i + CP_LANES <= n; i += CP_LANES) {
        cp_vec_load(&a, x + i);
        a -= mean;
        acc += a * a;
    }
    cp_real tail = 0;
    for (; i < n; i++) {
        tail += (x[i] - mean) * (x[i] - mean);
    }
    return cp_vec_fold(&acc) + tail;
}

CP_CLONES void cp_norm_forward(int rows, int n, double eps, const cp_real *x, const cp_real *gain,
                               const cp_real *bias, cp_real *xhat, cp_real *rstd, cp_real *y)
{
    for (int i = 0; i < rows; i++) {
        const cp_real *in = x + (size_t)i * n;
        cp_real *hat = xhat + (size_t)i * n, *out = y + (size_t)i * n;
        cp_real mean = cp_vec_sum(in, n) / (cp_real)n;
        cp_real var = spread(in, mean, n) / (cp_real)n;
        cp_real r = (cp_real)(1 / sqrt((double)var + eps));
        for (int j = 0; j < n; j++) {
            cp_real h = (in[j] - mean) * r;
            hat[j] = h;
            out[j] = h * gain[j] + bias[j];
        }
        rstd[i] = r;
    }
}

/* dx = rstd (u - mean(u) - xhat mean(u xhat)) with u = dy gain. */
CP_CLONES void cp_norm_backward(int rows, int n, const cp_real *xhat, const cp_real *rstd,
                                const cp_real *gain, const cp_real *dy, cp_real *dgain,
                                cp_real *dbias, cp_real *dx)
{
    for (int i = 0; i < rows; i++) {
        const cp_real *hat = xhat + (size_t)i * n, *in = dy + (size_t)i * n;
        cp_real *out = dx + (size_t)i * n;
        for (int j = 0; j < n; j++) {
            cp_real d = in[j];
            dgain[j] += d * hat[j];
            dbias[j] += d;
            out[j] = d * gain[j];
        }
        cp_real mean_u = cp_vec_sum(out, n) / (cp_real)n;
        cp_real mean_uh = cp_vec_dot(out, hat, n) / (cp_real)n;
        cp_real r = rstd[i];
        for (int j = 0; j < n; j++) {
            out[j] = r * (out[j] - mean_u - hat[j] * mean_uh);
        }
    }
}
