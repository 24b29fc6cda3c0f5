/*
 * explain: a decision against the plans next to it, in numbers: what one layer more or less on a
 * device would cost, which plan is the next best, which stage or link a step waits for.
 *
 * A neighbour differs in one thing: one layer on another device (which may join or leave the
 * pipeline by that), two devices exchanged, one micro-batch more or less, another order. Shares and
 * powers stay, each power as a part of its limit, where the number of segments and the overlap of
 * the phases do; else D2D shares are equal and powers the greatest (cp_draft_radio). Only pipelines
 * have neighbours.
 */
#ifndef CP_PLAN_EXPLAIN_H
#define CP_PLAN_EXPLAIN_H

#include "plan/policy.h"

enum cp_neighbour_kind {
    CP_NEIGHBOUR_LAYER,   /* one layer goes from a device to another one */
    CP_NEIGHBOUR_SWAP,    /* two devices exchange place and layers */
    CP_NEIGHBOUR_PLACES,  /* two devices exchange places, each with its layers */
    CP_NEIGHBOUR_REPLACE, /* a stand-by device takes over everything of another one */
    CP_NEIGHBOUR_MICRO,   /* one micro-batch more or less */
    CP_NEIGHBOUR_ORDER,   /* another order */
};

struct cp_neighbour {
    enum cp_neighbour_kind kind;
    int cluster;
    int from, to; /* devices of it; -1 where the kind has none */
    struct cp_cluster_plan plan;
    double objective, latency_s; /* of the whole plan with it */
};

/* One layer more or less on a device, by the best partner. */
struct cp_layer_change {
    bool possible;
    int other; /* the device that gives or takes the layer */
    double objective, latency_s;
};

struct cp_device_why {
    bool present;
    int segment; /* -1: not in the plan */
    int layers;
    double layer_s;               /* forward and backward of one layer, one micro-batch */
    size_t mem_bytes, more_bytes; /* needed now; with one layer more and the slots of now */
    struct cp_layer_change more, less;
};

/* gain: by what share a step is shorter if the stage or link takes a tenth less time, 0..0.1. */
struct cp_cluster_why {
    double round_s, broadcast_s, cost; /* T_c; its T_bc; its part of J without V T */
    double stage_gain[CP_STAGES_MAX], link_gain[CP_STAGES_MAX - 1];
    struct cp_device_why device[CP_DEVICES_MAX];
};

struct cp_why {
    double latency_cost, energy_cost, convergence_cost; /* their sum is J */
    bool has_next;
    struct cp_neighbour next; /* the neighbour of least J */
    int n_clusters;
    struct cp_cluster_why *cluster; /* owned */
};

/* p is a decision under the arguments. Neighbours in M or order are those that the arguments leave
 * open. out is raw storage. */
CP_NODISCARD cp_err cp_why_make(const struct cp_policy_args *a, const struct cp_plan *p,
                                struct cp_why *out);
void cp_why_fini(struct cp_why *why);

#endif
