/*
 * band: shares of the D2D band among the links of one cluster in one phase (docs/theory.md section
 * 11.4). Exact up to rounding and CP_SHARE_LEAST; no allocation, no I/O; knows nothing of plans.
 *
 *   min over x > 0, sum x <= 1:  sum_j A_j t_j(x_j) + peak max(floor_s, max_j t_j(x_j))
 *
 * It is the problem of plan/share.h with T_j = t_j and E_j = A_j t_j, and is solved as such.
 */
#ifndef CP_PLAN_BAND_H
#define CP_PLAN_BAND_H

#include "plan/share.h"

enum { CP_BAND_LINKS_MAX = 16 };

/* All finite and >= 0. */
struct cp_band {
    int n;                                 /* 0..CP_BAND_LINKS_MAX */
    struct cp_air link[CP_BAND_LINKS_MAX]; /* one micro-batch, on the whole band of this phase */
    double cost[CP_BAND_LINKS_MAX];        /* A_j = v + M Z~ p of the sender, per second */
    double peak;                           /* v (M - 1), per second */
    double floor_s;                        /* m_0: the longest other time of the phase */
};

struct cp_band_result {
    double share[CP_BAND_LINKS_MAX];  /* x_j; their sum is 1 */
    double time_s[CP_BAND_LINKS_MAX]; /* t_j */
    double mult[CP_BAND_LINKS_MAX];   /* mu_j of t_j <= theta; sum = peak where theta > floor_s */
    double peak_s;                    /* theta = max(floor_s, max t_j) */
    double value;                     /* the objective; infinite where a link is dead */
    double lambda;                    /* multiplier of sum x <= 1 */
};

/* Never NaN. A dead link (nothing gets through in finite time) leaves equal shares. */
void cp_band_solve(const struct cp_band *b, struct cp_band_result *out);

#endif
