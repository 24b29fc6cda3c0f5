/*
 * split_impl: the constants of one program of split.h, and lower bounds of what is left to do.
 * Private to split*.c.
 *
 * Nodes of a program are counted from 0: u = 0 is the CU, u = i + 1 the i-th device that is
 * present. A group stands for all sets of devices that the bounds do not tell apart.
 */
#ifndef CP_PLAN_SPLIT_IMPL_H
#define CP_PLAN_SPLIT_IMPL_H

#include "plan/split.h"

#include <math.h>

enum {
    CP_SPLIT_LEVELS = 4, /* ceilings */
    CP_SPLIT_BUCKET_BITS = 14,
    CP_SPLIT_BUCKETS = 1 << CP_SPLIT_BUCKET_BITS, /* of labels; all -1 between passes */
    CP_SPLIT_GROUPS_MAX = 1 << CP_SPLIT_EXACT_DEVICES,
    CP_SPLIT_STATES_MAX = 1 << 20 /* of the bounds; each takes 64 bytes */
};

/* What the bounds know of a set of devices. */
struct cp_split_groups {
    bool exact;                       /* a group is one set, up to twins; else all sets of a size */
    int n, place[CP_DEVICES_MAX];     /* group of a set: the sum of its places */
    int8_t size[CP_SPLIT_GROUPS_MAX]; /* devices */
    uint32_t end[CP_SPLIT_GROUPS_MAX];    /* which of its devices can be the last */
    uint32_t follow[CP_SPLIT_GROUPS_MAX]; /* which can come next */
};

struct cp_split_program {
    const struct cp_split *s;
    int n, device[CP_DEVICES_MAX]; /* present */
    int layers;                    /* to be placed */
    double bottleneck;             /* cost of one second of m^F or m^B */
    double layer_fwd_s[CP_DEVICES_MAX], layer_bwd_s[CP_DEVICES_MAX];
    double layer_cost[CP_DEVICES_MAX]; /* compute, scatter and gather: linear in the layers */
    int room[CP_DEVICES_MAX][CP_DEVICES_MAX]; /* [segment][device] layers that fit */
    /* Link j: from node u to device i. */
    double fwd_s[CP_DEVICES_MAX][CP_DEVICES_MAX + 1][CP_DEVICES_MAX];
    double bwd_s[CP_DEVICES_MAX][CP_DEVICES_MAX + 1][CP_DEVICES_MAX];
    double link_cost[CP_DEVICES_MAX][CP_DEVICES_MAX + 1][CP_DEVICES_MAX];
    double edge_fwd_s[CP_DEVICES_MAX], edge_bwd_s[CP_DEVICES_MAX], edge_cost[CP_DEVICES_MAX];
    /* Theta_0, and the bottlenecks that do not depend on the cut: CU and edge server. */
    double start_cost, start_fwd_s, start_bwd_s;

    uint32_t twins[CP_DEVICES_MAX];       /* equal devices before this one: they are used first */
    struct cp_split_groups sets, sizes;   /* sets.n = 0: too many */
    const struct cp_split_groups *groups; /* those of the bounds: one of the two */

    double ceiling[CP_SPLIT_LEVELS]; /* rising; the last may be infinite */
    double *rest, *step;             /* [group][node][layers][level], see cp_split_bound() */
};

/* Devices, twins and groups: what n programs of a cluster have in common. */
CP_NODISCARD cp_err cp_split_program_init(struct cp_split_program *p, const struct cp_split *list,
                                          int n);
/* Everything else but the bounds; s is one of the list. */
void cp_split_program_fill(struct cp_split_program *p, const struct cp_split *s);

/* Whether device i may come right after node u. */
static inline bool cp_split_may_follow(const struct cp_split_program *p, int u, int i)
{
    return p->s->index_order ? i + 1 > u : i + 1 != u;
}

/* Number of doubles that rest and step have each. */
size_t cp_split_bound_size(const struct cp_split_program *p);
/* Fills rest for the ceilings. */
void cp_split_bound_fill(struct cp_split_program *p);

/*
 * A lower bound of what every completion of a label adds up to: cost so far plus what is left, and
 * the bottlenecks. The label has used `group`, its last node is u, i layers are placed.
 */
static inline double cp_split_bound(const struct cp_split_program *p, int group, int u, int i,
                                    double cost, double fwd_s, double bwd_s)
{
    size_t state =
        ((size_t)group * (size_t)(p->n + 1) + (size_t)u) * (size_t)(p->layers + 1) + (size_t)i;
    const double *rest = p->rest + state * CP_SPLIT_LEVELS;
    double slowest = fwd_s + bwd_s, least = INFINITY, above = slowest;
    for (int q = 0; q < CP_SPLIT_LEVELS; q++) {
        double bound = rest[q] + p->bottleneck * above;
        least = bound < least ? bound : least;
        above = p->ceiling[q] > slowest ? p->ceiling[q] : slowest;
    }
    return cost + least;
}

#endif
