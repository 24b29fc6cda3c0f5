/*
 * edge: the coordinator. One round is: train H local steps in every cluster, collect and average,
 * decide the next plan, scatter along it, evaluate, save.
 *
 * Weights are scattered along the *new* plan, so they never move on their own; only the state of
 * the optimizer goes from owner to owner (pipe/migrate.c). The plan that trained round r is decided
 * from the world of round r; queues and batteries advance with what round r really cost under the
 * model.
 *
 * Where there is no plan because batteries are empty, the run waits, in modelled time, until enough
 * of them have charged. Where none charges, it ends with an error that says who is missing.
 */
#ifndef CP_NODE_EDGE_H
#define CP_NODE_EDGE_H

#include "fed/constants.h"
#include "fed/fedavg.h"
#include "node/job.h"
#include "node/wire.h"
#include "plan/converge.h"
#include "sim/sim.h"

struct cp_step_report {
    int round, cluster;
    int32_t done, steps; /* local steps that all replicas of the cluster have made in this round */
    double loss;         /* mean over the step's labelled samples */
    int64_t samples;     /* of the step */
};

struct cp_score {
    int64_t samples, correct;
    double loss; /* mean */
};

struct cp_round_report {
    int round; /* 0-based */
    double train_loss;
    int64_t samples;
    struct cp_score eval;
    bool eval_full;               /* all held-out samples */
    const struct cp_plan *plan;   /* that trained the round */
    const struct cp_world *world; /* of the round */
    const struct cp_sim_round *sim;
    const struct cp_decision *decision;
    const struct cp_queues *queues; /* as the decision saw them */
    const struct cp_move *move;     /* blocks that changed owner at the start of the round */
    int n_moves;
    bool kept;        /* the policy found no valid plan and the last one was kept */
    const char *note; /* why, or "" */
    double wait_s; /* modelled time before the round, for batteries to charge; not in its latency */
    const struct cp_constants *constants; /* of the convergence bound, as estimated so far */
    const struct cp_bound *bound;         /* after this many rounds like this one; NULL: none */
    const char *bound_note;               /* why, or "" */
    double wall_s;
};

/* What the edge knows of a node after the last round. */
struct cp_node_report {
    struct cp_wire_report last;
    bool seen;
};

struct cp_edge {
    const struct cp_job *job;
    struct cp_net *net;
    struct cp_mem mem, msg_mem;
    cp_real *block[CP_BLOCKS_MAX]; /* the global model, block by block */
    struct cp_fedavg avg;
    struct cp_constants constants;
    double start_loss; /* mean of the very first step: F(w^0), and Delta as no loss is below 0 */
    struct cp_plan plan;
    struct cp_world world, mean;
    struct cp_queues queues, seen_queues;
    struct cp_decision decision;
    double (*charge_j)[CP_DEVICES_MAX]; /* [n_clusters] of batteries */
    double wait_s;                      /* before the round of plan */
    struct cp_replica *replica;         /* [n_replicas] of plan */
    int n_replicas;
    struct cp_wire_cursor *cursor; /* [n_clusters] */
    struct cp_msg **state;       /* [n_replicas * n_blocks] optimizer state of plan's replicas, for
                                    a checkpoint; all NULL where none is asked for */
    struct cp_node_report *node; /* [n_nodes] */
    int start_round;             /* > 0: resumed, state[] holds what the owners get */
    bool decided; /* plan is that of the next round, else still that of the last one */
    struct cp_edge_sums {
        double loss_sum;
        int64_t labelled, samples;
    } * sums; /* [n_replicas * H] steps of the round; added in their order, whoever was faster */
    int32_t *done; /* [n_replicas] steps made; -1: not heard of */
    struct cp_move *move;
    int n_moves, max_moves;
    bool kept;
    char note[512];

    /* set by the caller before cp_edge_run; any may be NULL */
    void (*on_step)(void *arg, const struct cp_step_report *r);
    cp_err (*on_round)(void *arg, const struct cp_round_report *r);
    cp_err (*on_save)(void *arg, const struct cp_edge *e, int rounds_done);
    bool (*stop)(void *arg);
    void *arg;
};

/* The model starts from the seed. */
CP_NODISCARD cp_err cp_edge_init(struct cp_edge *e, const struct cp_job *job, struct cp_net *net);
void cp_edge_fini(struct cp_edge *e);

/* Zero state for every replica of e->plan, for a checkpoint to be read into. */
CP_NODISCARD cp_err cp_edge_new_states(struct cp_edge *e);

/* All rounds from start_round on. *rounds_done tells how many are complete when it returns; a wish
 * to stop ends it with CP_OK after a saved round. Members are told to QUIT when it succeeds. */
CP_NODISCARD cp_err cp_edge_run(struct cp_edge *e, int *rounds_done);

#endif
