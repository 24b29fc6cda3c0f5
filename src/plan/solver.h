/*
 * solver: the problem P1 of one slot (docs/theory.md sections 10, 11), in three layers:
 *
 *   polish   the continuous variables of one cluster's plan, its micro-batches and slots, for a
 *            given cut
 *   cluster  cuts: many starts, each polished, kept on the cluster's front
 *   slot     all clusters: fronts, merge, shares of the link to the edge server, again
 *
 * Which variables are free is a set of options, so that an ablation is an option and nothing else.
 * Private to src/plan and its tests.
 */
#ifndef CP_PLAN_SOLVER_H
#define CP_PLAN_SOLVER_H

#include "plan/front.h"
#include "plan/split.h"

/* What is held fixed (section 13, ablations), and what goes beyond the paper (section 11.9). */
struct cp_solver_options {
    bool uniform_cut; /* the cut of gpipe-uniform */
    bool index_order; /* devices in index order */
    bool equal_band, equal_share, max_power;
    bool exhaustive; /* every cut, order and M is polished: small clusters only */
    bool extended;   /* layers on the edge server, formats, slots per stage, other modes */
};

struct cp_solver {
    const struct cp_policy_args *a;
    const struct cp_solver_options *o;
    struct cp_room *room; /* of the cluster that is being solved */
    struct cp_split_work work;
    bool heuristic; /* some search was no longer exact: too many devices */
};

/* v T_c + cost: the objective of a cluster whose time weighs v; infinite where a link is dead. */
double cp_solver_value(const struct cp_solver *x, int cluster, double v,
                       const struct cp_cluster_plan *plan);

/* --- polish ---------------------------------------------------------------------------------- */

/*
 * Improves bands, powers, M (where it may be chosen) and slots of a plan whose cut and order are
 * given, at its uplink share, until nothing gains 1e-6 of v T_c + cost any more; what does not
 * improve that value is not taken (sections 11.3 to 11.5). room is that of the cluster. For other
 * modes than pipelines only the powers.
 */
void cp_polish(const struct cp_solver *x, int cluster, double v, struct cp_cluster_plan *plan);

/* --- cluster --------------------------------------------------------------------------------- */

/*
 * Adds to a front what is worth having at this uplink share, for the weights v[0..n-1] of the
 * cluster's time. Without a start it searches from scratch; with one (a front of the same cluster,
 * at another share or in another round) it begins at its plans. E_PLAN says why there is none.
 */
CP_NODISCARD cp_err cp_cluster_solve(struct cp_solver *x, int cluster, double uplink_share,
                                     const double *v, int n, const struct cp_front *start,
                                     struct cp_front *front);

/* Adds to a front the plans of one given cut, if it holds in this round: a plan of another round
 * with everything but the cut decided anew. */
CP_NODISCARD cp_err cp_cluster_keep(struct cp_solver *x, int cluster, double uplink_share,
                                    const double *v, int n, const struct cp_cluster_plan *cut,
                                    struct cp_front *front);

/* --- slot ------------------------------------------------------------------------------------ */

/* Decides the whole slot; out is a plan of the world's clusters, filled. */
CP_NODISCARD cp_err cp_slot_solve(const struct cp_policy_args *a, const struct cp_solver_options *o,
                                  struct cp_plan *out, struct cp_decision *d);

/* What binds in a plan, for people: the slowest cluster and what it waits for, the dearest energy
 * queue, full memories, orders that memory asked for. */
void cp_solver_note(struct cp_solver *x, const struct cp_plan *p, struct cp_decision *d);

#endif
