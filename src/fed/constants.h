/*
 * constants: those of the convergence bound (docs/theory.md section 8), estimated by the edge from
 * what the stages of all clusters report of their gradients after a round (model/gradstat.h).
 *
 * sigma_c^2 and G^2 are means over rounds: of all of them at first, later of about the last ten.
 * beta is a high percentile of what was seen in the last rounds. G^2 here is the dissimilarity
 * where the training is, not a bound of it elsewhere.
 */
#ifndef CP_FED_CONSTANTS_H
#define CP_FED_CONSTANTS_H

#include "model/gradstat.h"

enum { CP_CONSTANTS_RATIOS = 32 };

/* What goes on from round to round, and into a checkpoint. */
struct cp_constants_mean {
    double value;   /* of unbiased estimates: may be below 0 */
    int32_t rounds; /* that told it; 0: unknown */
};

struct cp_constants {
    int n_clusters;
    struct cp_constants_mean *variance; /* [n_clusters] sigma_c^2 */
    struct cp_constants_mean dissimilarity2;
    int32_t n_ratios;
    double ratio[CP_CONSTANTS_RATIOS]; /* |grad' - grad| / |w' - w| of a round, oldest first */
    /* of the round under way */
    struct cp_shape shape;
    struct cp_told *told; /* [n_clusters * blocks] */
    double *rho;          /* [n_clusters] */
    double *mean;         /* [blocks * CP_GRADSTAT_COORDS] sum rho_c g_c */
    double *each;         /* [blocks] sum rho_c |g_c|^2 */
};

CP_NODISCARD cp_err cp_constants_init(struct cp_constants *k, const struct cp_shape *s,
                                      int n_clusters);
void cp_constants_fini(struct cp_constants *k);

/* A round: its weights rho[n_clusters]; then the reports of the blocks, for each block in cluster
 * order; then the end, which takes in what is complete. E_PROTO: a report that cannot be. */
void cp_constants_begin(struct cp_constants *k, const double *rho);
CP_NODISCARD cp_err cp_constants_add(struct cp_constants *k, int cluster,
                                     const struct cp_gradstat_block *b);
void cp_constants_end(struct cp_constants *k);

/* 0 or more; 0 also where nothing is known. */
double cp_constants_variance(const struct cp_constants *k, int cluster);
double cp_constants_dissimilarity2(const struct cp_constants *k);
double cp_constants_beta(const struct cp_constants *k);

#endif
