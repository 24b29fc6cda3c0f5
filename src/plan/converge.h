/*
 * converge: the convergence bound of docs/theory.md section 8, term by term.
 *
 * Theorem 1 holds for exact gradients, Theorem 1' where every computed gradient carries an error
 * (lossy number formats on the links). Both bound the mean of E|grad F(w^t)|^2 over the rounds of
 * local SGD. Pure arithmetic on constants that are given, or estimated by model/gradstat.h.
 */
#ifndef CP_PLAN_CONVERGE_H
#define CP_PLAN_CONVERGE_H

#include "base/err.h"

#include <stdint.h>

struct cp_converge {
    double beta;           /* smoothness of every F_c */
    double step;           /* eta */
    int32_t local_steps;   /* H */
    double micro_samples;  /* b */
    double gap;            /* Delta = F(w^0) - F*, or more */
    double dissimilarity2; /* G^2 */
    double error2;         /* delta_S^2, mean square of a gradient's error; > 0: Theorem 1' */
    int n_clusters;
    const double *variance; /* [n_clusters] sigma_c^2, per sample; borrowed */
    const double *rho;      /* [n_clusters] they sum to 1; borrowed */
};

/* Noise of one round with M_c micro-batches, or the mean of several. */
struct cp_noise {
    double phi; /* sum rho_c^2 sigma_c^2 / (M_c b) */
    double psi; /* sum rho_c   sigma_c^2 / (M_c b) */
};

/* The right side: what each cause adds to it. */
struct cp_bound {
    double start;  /* of the initial gap */
    double noise;  /* of phi */
    double spread; /* of psi: noise that moves the clusters apart; 0 if H = 1 */
    double drift;  /* of G^2: data that moves them apart; 0 if H = 1 */
    double lossy;  /* of errors on the links */
    double total;
};

/* E_CONFIG names the constant that no bound can be made of, or the condition that fails: eta beta H
 * at most 2/5 in Theorem 1, at most 1/4 in Theorem 1'. */
CP_NODISCARD cp_err cp_converge_check(const struct cp_converge *k);

/* micro_batches[c] = M_c >= 1. */
struct cp_noise cp_converge_noise(const struct cp_converge *k, const int *micro_batches);

/* The right side after `rounds` rounds whose mean noise is given. */
CP_NODISCARD cp_err cp_converge_bound(const struct cp_converge *k, const struct cp_noise *mean,
                                      int32_t rounds, struct cp_bound *out);

/* alpha_c: with constant M_c the noise and spread of the bound are sum_c alpha_c / M_c. */
double cp_converge_alpha(const struct cp_converge *k, int cluster);

/* The least M, not rounded, with which every cluster meets the target for the mean of E|grad F|^2
 * after `rounds` rounds. E_CONFIG tells what is left with any M, if that is not below the target.
 */
CP_NODISCARD cp_err cp_converge_micro_ref(const struct cp_converge *k, double target,
                                          int32_t rounds, double *micro_ref);

#endif
