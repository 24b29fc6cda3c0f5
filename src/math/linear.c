#include "math/linear.h"

#include "math/gemm.h"
#include "math/vec.h"

#include <string.h>

void cp_linear_forward(const struct cp_linear *l, const cp_real *x, cp_real *y)
{
    for (int i = 0; i < l->rows; i++) {
        memcpy(y + (size_t)i * l->out, l->bias, (size_t)l->out * sizeof *y);
    }
    cp_gemm(CP_N, CP_T, l->rows, l->out, l->in, 1, x, l->x_stride, l->w, l->in, 1, y, l->out);
}

/* out[j] += sum over rows of x[i][j], row after row. */
CP_CLONES static void add_rows(int rows, int n, const cp_real *x, cp_real *restrict out)
{
    for (int i = 0; i < rows; i++) {
        const cp_real *row = x + (size_t)i * n;
        for (int j = 0; j < n; j++) {
            out[j] += row[j];
        }
    }
}

void cp_linear_backward(const struct cp_linear *l, const cp_real *x, const cp_real *dy, cp_real *dw,
                        cp_real *dbias, cp_real *dx, int add)
{
    cp_gemm(CP_T, CP_N, l->out, l->in, l->rows, 1, dy, l->out, x, l->x_stride, 1, dw, l->in);
    add_rows(l->rows, l->out, dy, dbias);
    if (dx) {
        cp_gemm(CP_N, CP_N, l->rows, l->in, l->out, 1, dy, l->out, l->w, l->in, add ? 1 : 0, dx,
                l->x_stride);
    }
}
