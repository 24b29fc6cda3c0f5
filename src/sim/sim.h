/*
 * sim: op lists on a virtual clock, without tensors.
 *
 * The lists are those that the trainer runs (cp_ops_make). A stage runs its list in order; a link
 * is one FIFO server per direction, so a send costs its stage no time (docs/theory.md section 6.2).
 * Every op adds its own time and energy, and nothing here knows a closed form: that the sums equal
 * cp_forecast_make to 1e-9 is a test of both. The H steps of a round are equal, so one is run and
 * counts H times.
 */
#ifndef CP_SIM_SIM_H
#define CP_SIM_SIM_H

#include "base/event.h"
#include "pipe/ops.h"
#include "plan/plan.h"
#include "plan/predict.h"

enum { CP_SIM_NAME = 2 * CP_WORLD_NAME };

/* What one op of each kind costs, per stage j = 0..S+1. Joules of a send are those of stage j. */
struct cp_sim_costs {
    struct cp_times times;
    double fwd_j[CP_STAGES_MAX], bwd_j[CP_STAGES_MAX];
    double send_act_j[CP_STAGES_MAX], send_grad_j[CP_STAGES_MAX];
    int64_t act_bytes[CP_STAGES_MAX], grad_bytes[CP_STAGES_MAX]; /* of what stage j sends */
    char node[CP_STAGES_MAX][CP_SIM_NAME]; /* "c1.cu", "c1.d2", "edge": for events */
    int32_t round, step;                   /* for events; -1: does not apply */
    int64_t start_ns;                      /* of the step, for events */
};

struct cp_sim_step {
    int n_stages;
    double step_s;                /* end of the last op */
    double busy_s[CP_STAGES_MAX]; /* of the stages */
    double link_busy_fwd_s[CP_STAGES_MAX - 1], link_busy_bwd_s[CP_STAGES_MAX - 1];
    int in_flight_peak[CP_STAGES_MAX]; /* micro-batches begun and not yet through */
    double energy_j[CP_STAGES_MAX];    /* of all ops of the stage */
    double bubble;                     /* idle share of the stages over the step, 0..1 */
};

/* One step of 1..CP_STAGES_MAX stages, training or evaluation. The lists have passed cp_ops_check
 * but for deadlocks, which are E_PLAN. A sink (NULL: none) gets one event per compute and link op,
 * in the order of each stage's list; the clock is costs->start_ns + virtual time. */
CP_NODISCARD cp_err cp_sim_run(const struct cp_ops *lists, int n_stages,
                               const struct cp_sim_costs *costs, const struct cp_event_sink *sink,
                               struct cp_sim_step *out);

/* The same where only times are known: no energy, no bytes, nodes named "stage0" and so on. */
CP_NODISCARD cp_err cp_sim_step(const struct cp_ops *lists, int n_stages, const struct cp_times *t,
                                const struct cp_event_sink *sink, struct cp_sim_step *out);

/* Costs of a cluster's pipeline (sections 4-7); round as in the world, step -1, start 0. */
void cp_sim_costs_make(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                       const struct cp_world *w, struct cp_sim_costs *out);

struct cp_sim_cluster {
    bool modelled;           /* full or split: no pipeline to run, the figures are the forecast's */
    struct cp_sim_step step; /* zero if modelled */
    double step_s;
    double scatter_s, gather_s, upload_s, moves_s;
    double round_s;                      /* H steps and the transfers */
    double energy_j[CP_DEVICES_MAX + 1]; /* per round: [0] CU, [k + 1] device k */
    double bubble;
};

struct cp_sim_round {
    double broadcast_s, latency_s; /* latency: broadcast + slowest cluster */
    double energy_j;               /* all devices and CUs */
    double bubble; /* mean over clusters, weighted by stages (modelled: by devices) */
    int n_clusters;
    struct cp_sim_cluster *cluster; /* owned */
};

/* A round of a plan that has passed cp_plan_check. moves (n_moves >= 0) as for cp_forecast_make. */
CP_NODISCARD cp_err cp_sim_round(const struct cp_plan *p, const struct cp_world *w,
                                 const struct cp_move *moves, int n_moves,
                                 struct cp_sim_round *out);
void cp_sim_round_fini(struct cp_sim_round *r);

#endif
