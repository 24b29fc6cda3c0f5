/*
 * constants: those of the convergence bound (docs/theory.md section 8), estimated by the edge from
 * what the stages of all models report of their gradients after a round (model/gradstat.h).
 *
 * sigma_c^2 and G^2 are means over rounds: of all of them at first, later of about the last ten.
 * beta is a high percentile of what was seen in the last rounds. G^2 here is the dissimilarity
 * where the training is, not a bound of it elsewhere.
 */
#ifndef CP_FED_CONSTANTS_H
#define CP_FED_CONSTANTS_H

#include "model/gradstat.h"

enum { CP_CONSTANTS_RATIOS = 32, CP_CONSTANTS_ROUNDS = 10 };

/* What goes on from round to round, and into a checkpoint. */
struct cp_constants_mean {
    double value;   /* of unbiased estimates: may be below 0 */
    int32_t rounds; /* that told it, at most CP_CONSTANTS_ROUNDS; 0: unknown */
};

struct cp_constants {
    int n_clusters;
    struct cp_constants_mean *variance; /* [n_clusters] sigma_c^2 */
    struct cp_constants_mean dissimilarity2;
    int32_t n_ratios;
    double ratio[CP_CONSTANTS_RATIOS]; /* |grad' - grad| / |w' - w| of a round, oldest first */
    /* of the round under way */
    struct cp_shape shape;
    int n_models;
    struct cp_told_model *model; /* [n_models] */
    struct cp_told *told;        /* [n_models * blocks] */
    double *mean;                /* [blocks * CP_GRADSTAT_COORDS] sum rho g */
    double *each;                /* [blocks] sum rho |g|^2 */
};

/* n_models: the most that are averaged in a round (one for each cluster, if all are pipelines). */
CP_NODISCARD cp_err cp_constants_init(struct cp_constants *k, const struct cp_shape *s,
                                      int n_clusters, int n_models);
void cp_constants_fini(struct cp_constants *k);

/* A round: its models, each with its cluster and its weight in the average; then the reports of
 * their blocks; then the end, which takes in what is complete. E_PROTO: a report that cannot be. */
void cp_constants_begin(struct cp_constants *k);
void cp_constants_model(struct cp_constants *k, int model, int cluster, double rho);
CP_NODISCARD cp_err cp_constants_add(struct cp_constants *k, int model,
                                     const struct cp_gradstat_block *b);
void cp_constants_end(struct cp_constants *k);

/* 0 or more; 0 also where nothing is known. */
double cp_constants_variance(const struct cp_constants *k, int cluster);
double cp_constants_dissimilarity2(const struct cp_constants *k);
double cp_constants_beta(const struct cp_constants *k);

#endif
