#include "fed/fedavg.h"

#include <math.h>
#include <string.h>

void cp_fedavg_weights(const double *size, int n_clusters, double *weights)
{
    double total = 0;
    for (int c = 0; c < n_clusters; c++) {
        total += size[c];
    }
    for (int c = 0; c < n_clusters; c++) {
        weights[c] = total > 0 ? size[c] / total : 0;
    }
}

cp_err cp_fedavg_init(struct cp_fedavg *a, int64_t max_params)
{
    double *sum = NULL;
    CP_TRY(cp_mem_array(NULL, (size_t)max_params, sizeof *sum, &sum));
    *a = (struct cp_fedavg){.sum = sum};
    return CP_OK;
}

void cp_fedavg_fini(struct cp_fedavg *a)
{
    cp_mem_free(a->sum);
    *a = (struct cp_fedavg){0};
}

void cp_fedavg_begin(struct cp_fedavg *a, int64_t n)
{
    a->size = n;
    memset(a->sum, 0, (size_t)n * sizeof *a->sum);
}

cp_err cp_fedavg_add(struct cp_fedavg *a, double weight, const cp_real *params)
{
    if (weight <= 0) {
        return CP_OK;
    }
    double seen = 0; /* x - x is 0 for a finite x, else NaN */
    for (int64_t i = 0; i < a->size; i++) {
        double x = (double)params[i];
        a->sum[i] += weight * x;
        seen += x - x;
    }
    if (!(seen == 0)) {
        return cp_fail(CP_E_NONFINITE, "the update has a value that is not finite; it was refused, "
                                       "and the last checkpoint is as it was");
    }
    return CP_OK;
}

void cp_fedavg_finish(const struct cp_fedavg *a, cp_real *out)
{
    for (int64_t i = 0; i < a->size; i++) {
        out[i] = (cp_real)a->sum[i];
    }
}
