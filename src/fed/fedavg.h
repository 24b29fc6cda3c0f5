/*
 * fedavg: federated averaging (McMahan et al., arXiv 1602.05629), one block at a time.
 *
 * The average is the sum over clusters of weight x parameters, in cluster order and in double, so
 * that it does not depend on who answered first. It holds one block, never a model.
 */
#ifndef CP_FED_FEDAVG_H
#define CP_FED_FEDAVG_H

#include "base/mem.h"
#include "math/real.h"

struct cp_fedavg {
    double *sum;  /* [max_params] */
    int64_t size; /* elements of the block under way */
};

/* weights[c] = size[c] / sum of sizes; all 0 if nobody has anything (the round changes nothing). */
void cp_fedavg_weights(const double *size, int n_clusters, double *weights);

CP_NODISCARD cp_err cp_fedavg_init(struct cp_fedavg *a, int64_t max_params);
void cp_fedavg_fini(struct cp_fedavg *a);

/* Starts a block of n elements; then adds the clusters in order. E_NONFINITE if weight > 0 and an
 * element is not finite: the average must then not be used. */
void cp_fedavg_begin(struct cp_fedavg *a, int64_t n);
CP_NODISCARD cp_err cp_fedavg_add(struct cp_fedavg *a, double weight, const cp_real *params);
void cp_fedavg_finish(const struct cp_fedavg *a, cp_real *out);

#endif
