/*
 * share: shares of one band among clusters (docs/theory.md sections 5, 6.3 and 11.6 ii). Exact up
 * to rounding and CP_SHARE_LEAST; no allocation, no I/O; knows nothing of plans.
 *
 *   min over y > 0, sum y <= 1:  peak max(floor_s, max_c T_c(y_c)) + sum_c E_c(y_c)
 *
 * T_c and E_c are convex and decreasing. With Lemma 1, and in units of one round,
 *
 *   T_c = fixed_s + up_runs t^F + up_peaks max(up_floor_s, t^F)
 *                 + down_runs t^B + down_peaks max(down_floor_s, t^B) + t^U
 *   E_c = up_cost t^F + model_cost t^U
 *
 * where t^F is the uplink of the activations of one micro-batch, t^B = down_s / y the downlink of
 * the gradients, t^U the upload of the model. For a pipeline of section 6.1:
 * runs = H, peaks = H (M - 1), up_floor_s and down_floor_s the longest other forward and backward
 * time, fixed_s = H (sum of all times but t^F and t^B) + scatter + gather, up_cost = H M Z~ p of
 * the last device, model_cost = Z~_0 p^U. For `seq` (T_step = M Sigma): runs = H M, peaks = 0.
 */
#ifndef CP_PLAN_SHARE_H
#define CP_PLAN_SHARE_H

#include "plan/air.h"

#include <stdbool.h>

/* No share is less than this over n: whom nothing weighs keeps a finite time, and the objective is
 * within this share of the optimum. */
#define CP_SHARE_LEAST 1e-7

/* All >= 0 and finite. */
struct cp_share_cluster {
    double fixed_s;
    struct cp_air up; /* t^F */
    double up_runs, up_peaks, up_floor_s;
    double up_cost;
    double down_s; /* t^B with the whole band */
    double down_runs, down_peaks, down_floor_s;
    struct cp_air model; /* t^U */
    double model_cost;
};

struct cp_share {
    int n; /* >= 0 */
    const struct cp_share_cluster *cluster;
    double peak;    /* V >= 0, per second */
    double floor_s; /* 0 for clusters */
};

/* One cluster of the solution. */
struct cp_share_out {
    double share;  /* y_c; their sum is 1 */
    double time_s; /* T_c */
    double weight; /* v_c, the multiplier of T_c <= theta; the sum is peak where theta > floor_s */
};

struct cp_share_result {
    double peak_s; /* theta = max(floor_s, max T_c) */
    double value;  /* the objective; infinite where a link of some cluster is dead */
    double lambda; /* multiplier of sum y <= 1; infinite only with value */
};

/* Scratch of one cluster, nothing to be kept. */
struct cp_share_work {
    double base_s; /* of T_c, what is there at any share, less a common time; all T_c below too */
    double kink_w[2], kink_s[2]; /* where t^F and t^B pass their bottlenecks, and T_c there */
    double most_s;               /* T_c at the least share */
    double cap_w, cap_s, cap_time, cap_time_bend, cap_cost, cap_cost_bend; /* at T_c = theta */
    double free_w, free_log, free_bend, free_top;                          /* at E_c' = lambda */
    double slack; /* how far v_c may rise at a kink */
    bool held;
};

/* Never NaN. work: n of them; out: n of them. A dead link leaves equal shares. */
void cp_share_solve(const struct cp_share *p, struct cp_share_work *work, struct cp_share_out *out,
                    struct cp_share_result *result);

/* T_c and E_c at a share y > 0, from the same formulas. */
double cp_share_time_s(const struct cp_share_cluster *c, double share);
double cp_share_cost(const struct cp_share_cluster *c, double share);

#endif
