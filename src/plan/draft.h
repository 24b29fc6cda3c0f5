/*
 * draft: what every policy does alike when it turns a cut into a plan. Private to src/plan and its
 * tests.
 */
#ifndef CP_PLAN_DRAFT_H
#define CP_PLAN_DRAFT_H

#include "plan/policy.h"

/* "61.2 MiB" and the like; returns out. */
enum { CP_BYTES_TEXT = 24 };
const char *cp_bytes_text(size_t bytes, char out[CP_BYTES_TEXT]);

/* p^max of the forward sender at stage j >= 1: to the next device, or from the last to the edge. */
double cp_fwd_limit_w(const struct cp_cluster_plan *c, const struct cp_cluster *cl, int stage);

/*
 * How many layers a device can hold with some slots, asked of segment_bytes and remembered. A world
 * and a cluster of it; both are borrowed.
 */
struct cp_room {
    const struct cp_model_cost *model;
    const struct cp_cluster *cl;
    int layers[CP_DEVICES_MAX][CP_MICRO_MAX + 1]; /* + 1, so that 0 is "not asked yet" */
};
void cp_room_init(struct cp_room *r, const struct cp_world *w, int cluster);
/* 0..L. */
int cp_room_layers(struct cp_room *r, int device, int slots);

/* Devices that are present, in index order; returns how many. E_PLAN if there is none. */
CP_NODISCARD cp_err cp_draft_present(const struct cp_cluster *cl, int device[CP_DEVICES_MAX],
                                     int *n);

/* M of a cluster where the policy does not choose it: the given one, within the cluster's limit. */
int cp_draft_micro(const struct cp_policy_args *a, int cluster);

/* The cut of GPipe-uniform: S = min(K present, L), L/S layers each (the first ones one more where
 * that is not whole), index order, M_ref. Order, slots and radio are left. */
CP_NODISCARD cp_err cp_draft_uniform(const struct cp_world *w, int cluster,
                                     struct cp_cluster_plan *c);

/* Equal bands x_j = 1/S, y = 1/C, greatest powers: p^max, and half of it each way for a device
 * where the phases overlap. Slots must be set. */
void cp_draft_radio(struct cp_cluster_plan *c, const struct cp_world *w, int cluster);

/* A plan of n devices that train apart (full, split): `layers` each, the rest of a split model on
 * the edge server, y = 1/C, greatest powers, M_ref. */
void cp_draft_apart(const struct cp_world *w, int cluster, enum cp_plan_mode mode,
                    const int *device, int n, int layers, struct cp_cluster_plan *c);

/* Whether every segment fits into its device with the slots of the plan. */
bool cp_draft_fits(const struct cp_cluster_plan *c, struct cp_room *r);

/* The orders to try, best first: n of them are equal choices, the rest are fallbacks. */
struct cp_order_list {
    enum cp_order order[3];
    int n, all;
};
struct cp_order_list cp_draft_orders(const struct cp_policy_args *a);

/*
 * Order, slots and radio of a cut (device, layers, segments, micro_batches): the order of the
 * arguments, then those that hold less, down to seq; or the best of all by its share of J. False if
 * not even seq fits.
 */
bool cp_draft_order(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                    struct cp_cluster_plan *c);

/* cp_draft_order for a policy that has only this cut: a fallback is noted in d, and E_PLAN names
 * the device that cannot hold its segment. */
CP_NODISCARD cp_err cp_draft_finish(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                                    struct cp_cluster_plan *c, struct cp_decision *d);

/* V T_c + sum Z~ E + Y gamma_c of one cluster, exactly; and its parts. */
struct cp_value {
    double time_s; /* T_c */
    double cost;   /* sum Z~ E + Y gamma_c */
};
struct cp_value cp_draft_value(const struct cp_cluster_plan *c, const struct cp_world *w,
                               const struct cp_queues *q, int cluster);

/* E_PLAN: why no placement was found, even with one micro-batch in flight. The sums show it where
 * memory is too small; else no round would end. */
cp_err cp_draft_no_plan(struct cp_room *r);

/* Notes a fallback order of a cluster, if its plan has one. */
void cp_draft_note_order(const struct cp_policy_args *a, const struct cp_cluster *cl,
                         const struct cp_cluster_plan *c, struct cp_decision *d);

/* Adds "; text" to what binds, as far as there is room for whole characters. */
void cp_draft_note(struct cp_decision *d, const char *fmt, ...) CP_PRINTF(2, 3);

#endif
