/*
 * whatif: the least change of the world that alters a decision.
 *
 * One quantity is multiplied by 2, 4 and 8; where the policy then decides on other cuts, bisection
 * finds the factor at which that begins, to about 4 %. Queues, seed and everything else stay, and
 * the plan in question is the incumbent, as in the next round of a run: a policy that keeps its
 * plan unless another one is clearly better does so here, too. Should the cut change and change
 * back in between, the factor is that of one of the changes.
 */
#ifndef CP_PLAN_WHATIF_H
#define CP_PLAN_WHATIF_H

#include "plan/policy.h"

enum { CP_WHATIF_MOST = 8 }; /* the largest factor */

enum cp_knob_kind {
    CP_KNOB_MEMORY, /* of one device */
    CP_KNOB_D2D,    /* band within every cluster */
    CP_KNOB_EDGE,   /* bands up and down */
    CP_KNOB_SERVER, /* speed of the edge server */
};

struct cp_knob {
    enum cp_knob_kind kind;
    int cluster, device; /* of CP_KNOB_MEMORY */
};

struct cp_what_if {
    bool changes;
    double factor;       /* where the cut changes; CP_WHATIF_MOST if it does not */
    double objective;    /* J of the decision there */
    double latency_s;    /* T of it */
    struct cp_plan plan; /* the decision; zeroed if nothing changes */
    int decisions;       /* that were made to find it */
};

/* p: the policy's decision under the arguments. out is raw storage. */
CP_NODISCARD cp_err cp_what_if_make(const struct cp_policy *policy, const struct cp_policy_args *a,
                                    const struct cp_plan *p, const struct cp_knob *knob,
                                    struct cp_what_if *out);
void cp_what_if_fini(struct cp_what_if *x);

/* Whether devices, layers or modes differ. */
bool cp_cut_differs(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y);

/*
 * After a decision failed for want of memory: adds to its sentence what would make one possible,
 * the factor for the memory of all devices (up to 64) and the most layers that could be placed.
 * Returns err; with another error, or where neither helps, the sentence is left as it is.
 */
cp_err cp_what_if_fail(const struct cp_policy *policy, const struct cp_policy_args *a, cp_err err);

#endif
