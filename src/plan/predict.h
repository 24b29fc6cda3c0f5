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
    double step_s; /* T_step */
    double scatter_s, gather_s, upload_s;
    double round_s;                      /* T_c */
    double energy_j[CP_DEVICES_MAX + 1]; /* per round: [0] CU, [k + 1] device k */
    double bubble;                       /* 1 - busy time of the stages / (stages x step), 0..1 */
    size_t mem_bytes[CP_DEVICES_MAX];    /* per segment (pipeline) or used device (full model) */
};

struct cp_forecast {
    double broadcast_s, latency_s; /* T_bc, T = T_bc + max_c T_c */
    double energy_j;               /* all devices and CUs */
    double gamma;                  /* sum of cp_cluster_gamma() */
    int n_clusters;
    struct cp_cluster_forecast *cluster; /* owned */
};

/* One cluster of the plan, without allocation; moves are added by cp_forecast_make only. */
void cp_cluster_forecast_make(const struct cp_cluster_plan *c, int cluster,
                              const struct cp_world *w, struct cp_cluster_forecast *out);

/* T_bc as far as one cluster decides it: what is trained outside the edge server, to its CU, or in
 * full and split to its weakest device. Plain: T_bc of pipelines without layers on the edge server,
 * which no decision changes. */
double cp_broadcast_s(const struct cp_cluster_plan *c, int cluster, const struct cp_world *w);
double cp_broadcast_plain_s(const struct cp_world *w);

/* A cluster's part of gamma (section 8): M_ref alpha~_c / M_c, more where several models are
 * trained apart, and what rounding on the air adds by Theorem 1': an error per hop, and hops add
 * up. */
double cp_cluster_gamma(const struct cp_cluster_plan *c, const struct cp_world *w, int cluster);

/* Time of moving one block's moments between owners under a plan, and the sender's energy; 0 from a
 * device that is absent. */
double cp_move_cost_s(const struct cp_move *m, const struct cp_cluster_plan *c,
                      const struct cp_world *w, double *energy_j);

/* p must have passed cp_plan_check; out is raw storage. Moves of kept moments (n_moves >= 0 of
 * them, as found by cp_plan_diff) add their D2D transfer to T_c and E (section 6.3, last sentence);
 * from a device that is gone nothing can be moved, and nothing is added. */
CP_NODISCARD cp_err cp_forecast_make(const struct cp_plan *p, const struct cp_world *w,
                                     const struct cp_move *moves, int n_moves,
                                     struct cp_forecast *out);
void cp_forecast_fini(struct cp_forecast *f);

/* Times of a cluster's pipeline; bands are halved where the two phases overlap (section 6.2). */
void cp_times_make(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                   const struct cp_world *w, struct cp_times *out);

/* e_{c,k} of section 7: energy of the node at stage 0..S for one micro-batch. */
double cp_micro_energy_j(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                         const struct cp_world *w, const struct cp_times *t, int stage);

/* Payloads in bits: Pi of n layers; Pi_up of the embedding and the layers that are not on the edge
 * server, in fp32; D^F and D^B of a link. */
double cp_layers_bits(const struct cp_world *w, int layers);
double cp_upload_bits(const struct cp_world *w, int edge_layers);
/* What a cluster, or a device that trains apart, uploads after a round: all that was trained
 * outside the edge server, in the format of the upload. */
double cp_model_bits(const struct cp_cluster_plan *c, const struct cp_world *w);
double cp_link_fwd_bits(const struct cp_world *w, enum cp_format format);
double cp_link_bwd_bits(const struct cp_world *w, enum cp_format format);

/* T_step of a cluster's plan: Lemma 1 if every slot is M, else the recurrence. */
double cp_step_s(const struct cp_cluster_plan *c, const struct cp_times *t);

/* Lemma 1, and the recurrence of section 6.2 for any slots (non-increasing, >= 1). */
double cp_step_gpipe_s(const struct cp_times *t, int micro_batches);
double cp_step_recurrence_s(const struct cp_times *t, int micro_batches, const int *slots);

/* m^F and m^B: the longest forward and backward time over all stages and links. */
double cp_times_max_fwd_s(const struct cp_times *t);
double cp_times_max_bwd_s(const struct cp_times *t);

#endif
