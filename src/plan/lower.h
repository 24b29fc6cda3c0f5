/*
 * lower: a number that no plan can beat (docs/theory.md section 11.8), so that every decision can
 * say how far from the optimum it is at most.
 *
 * The bound is a Lagrangian one: clusters are parted by weights of their times and a price of the
 * uplink, links by a price of the D2D band; what is left of a cluster is solved exactly, or relaxed
 * further where it has many devices. It holds for whatever weights and prices; good ones make it
 * tight.
 */
#ifndef CP_PLAN_LOWER_H
#define CP_PLAN_LOWER_H

#include "plan/policy.h"

/* Clusters of up to so many present devices are solved exactly. */
enum { CP_LOWER_EXACT_FAST = 5, CP_LOWER_EXACT_FULL = 8 };

/*
 * At most cp_plan_objective() of every plan that passes cp_plan_check() and that the arguments
 * allow: M as choose_micro and micro say; orders as choose_order and order say, and those that a
 * lack of memory falls back to (where gpipe is asked for: only cuts that do not fit it, but in a
 * cluster whose incumbent has another order); any slots in 1f1b, any shares and powers; fp32
 * pipelines without layers on the edge server, and what set adds (NULL: nothing).
 *
 * p, or NULL, is a plan of all clusters to start from, as good as there is: its cut sets weights
 * and prices. It need not be one of those that are allowed. Infinite where no plan exists (or none
 * that ends). The world has passed cp_world_check(). Fails only for want of memory.
 */
CP_NODISCARD cp_err cp_lower_bound(const struct cp_policy_args *a, const struct cp_lower_set *set,
                                   const struct cp_plan *p, enum cp_lower_effort effort,
                                   double *bound);

#endif
