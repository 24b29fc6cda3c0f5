/*
 * front: what the clusters could do, and the best choice of one each (docs/theory.md section
 * 11.6 i). The slowest cluster alone pays for latency, so a cluster offers several plans: fast ones
 * that cost energy, slow ones that save it. Private to src/plan and its tests.
 */
#ifndef CP_PLAN_FRONT_H
#define CP_PLAN_FRONT_H

#include "plan/draft.h"

struct cp_candidate {
    struct cp_value value;
    double broadcast_s; /* T_bc as far as this cluster decides it */
    struct cp_cluster_plan plan;
};

struct cp_front { /* zeroed at first */
    struct cp_candidate *item;
    int n, cap;
};
void cp_front_fini(struct cp_front *f);

/* Values a plan of a cluster exactly and keeps it; one that would never end is left out. */
CP_NODISCARD cp_err cp_front_add(struct cp_front *f, const struct cp_policy_args *a, int cluster,
                                 const struct cp_cluster_plan *plan);

/* Sorts by rising time and drops what is no better than another in time, cost and broadcast. What
 * is left does not hang on the order of adding. */
void cp_front_reduce(struct cp_front *f);

/*
 * The choice that minimises V (max T_c + T_bc) + sum cost, exactly over the candidates of n reduced
 * fronts, none of them empty; pick[c] indexes front[c].item. Where more than CP_FRONT_BROADCASTS
 * different T_bc are on offer, that many of them, evenly spaced, are tried.
 */
enum { CP_FRONT_BROADCASTS = 24 };
CP_NODISCARD cp_err cp_front_merge(const struct cp_front *front, int n, double v, int *pick);

#endif
