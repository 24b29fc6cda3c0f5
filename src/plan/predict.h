/*
 * predict: modelled latency and energy of a plan in a world (docs/theory.md sections 4-7).
 * Closed form (Lemma 1) for GPipe, exact recurrence for depth-limited orders, both without running
 * any op list: src/sim checks itself against this at 1e-9.
 */
#ifndef CP_PLAN_PREDICT_H
#define CP_PLAN_PREDICT_H

#include "plan/plan.h"

/* Per micro-batch times of one cluster's pipeline, stage j = 0..S+1, link j = 0..S. */
struct cp_times {
    int segments; /* S */
    double fwd_s[CP_STAGES_MAX], bwd_s[CP_STAGES_MAX];
    double link_fwd_s[CP_DEVICES_MAX + 1], link_bwd_s[CP_DEVICES_MAX + 1];
};

struct cp_cluster_forecast {
    struct cp_times times;
    double step_s;                         /* T_step */
    double scatter_s, gather_s, upload_s;
    double round_s;                        /* T_c */
    double energy_j[CP_DEVICES_MAX + 1];   /* per round: [0] CU, [k + 1] device k */
    double bubble;                         /* idle share of stages over the step, 0..1 */
    size_t mem_bytes[CP_DEVICES_MAX];      /* per segment (pipeline) or used device (full model) */
};

struct cp_forecast {
    double broadcast_s, latency_s; /* T_bc, T = T_bc + max_c T_c */
    double energy_j;               /* all devices and CUs */
    double gamma;                  /* M_ref sum_c alpha_c / M_c */
    int n_clusters;
    struct cp_cluster_forecast *cluster; /* owned */
};

/* p must have passed cp_plan_check. Moves of kept moments (n_moves >= 0 of them, as found by
 * cp_plan_diff) add their D2D transfer to T_c and E (section 6.3, last sentence). */
CP_NODISCARD cp_err cp_forecast_make(const struct cp_plan *p, const struct cp_world *w,
                                     const struct cp_move *moves, int n_moves,
                                     struct cp_forecast *out);
void cp_forecast_fini(struct cp_forecast *f);

/* Times of a cluster's pipeline; bands are halved where the two phases overlap (section 6.2). */
void cp_times_make(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                   const struct cp_world *w, struct cp_times *out);

/* Lemma 1, and the recurrence of section 6.2 for any slots (non-increasing, >= 1). */
double cp_step_gpipe_s(const struct cp_times *t, int micro_batches);
double cp_step_recurrence_s(const struct cp_times *t, int micro_batches, const int *slots);

#endif
