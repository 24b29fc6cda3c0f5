/*
 * policy: world -> plan, as pure functions found by name in one table.
 *
 * A policy that learns over rounds keeps its queues in struct cp_queues, which the caller advances
 * with cp_queues_advance() after every round and stores in checkpoints.
 */
#ifndef CP_PLAN_POLICY_H
#define CP_PLAN_POLICY_H

#include "plan/plan.h"
#include "plan/predict.h"

/* Virtual queues (section 10), dimensionless. */
struct cp_queues {
    int n_clusters;
    double (*energy)[CP_DEVICES_MAX + 1]; /* Z_{c,k}: [c][0] CU, [c][k + 1] device k; owned */
    double convergence;                   /* Y */
    double v;                             /* V = V' / T_ref, 1/s */
};

/* Queues for round 0: Z = 0, Y = Y_0, V from v_prime; mean is the world on mean channels. T_ref is
 * the latency of GPipe-uniform as if memory had no limit: a reference, not a plan. q is raw. */
CP_NODISCARD cp_err cp_queues_init(struct cp_queues *q, const struct cp_world *mean,
                                   double v_prime);
void cp_queues_fini(struct cp_queues *q);
/* Z <- max(Z + E/E-bar - 1, 0), Y <- max(Y + gamma - 1, 0) with the realised round. */
void cp_queues_advance(struct cp_queues *q, const struct cp_world *w, const struct cp_forecast *f);

/* Z~ = Z / E-bar of a node (0 = CU, k + 1 = device k), 1/J; 0 without queues or without budget. */
double cp_queues_price(const struct cp_queues *q, const struct cp_world *w, int cluster, int node);
/* Y~_c = Y M_ref alpha~_c; 0 without queues. */
double cp_queues_micro_price(const struct cp_queues *q, const struct cp_world *w, int cluster);
/* V; 1 without queues, so that an objective is a latency. */
double cp_queues_v(const struct cp_queues *q);

/* J of P1 (section 10) of a plan that passed cp_plan_check. T_bc counts as far as it differs from
 * that of plain pipelines, which is a constant of P1 and left out there. */
double cp_plan_objective(const struct cp_plan *p, const struct cp_world *w,
                         const struct cp_queues *q);

/*
 * Nobody waits for a round longer than a year: a plan that asks for it would never end, and is
 * refused. Weak links and slow devices have finite times, however absurd, down to gains of 1e-300.
 */
#define CP_ROUND_MOST_S (365.25 * 86400)

/* T of a plan that passed cp_plan_check, without moves (section 6.3); infinite where a link is
 * dead. */
double cp_plan_round_s(const struct cp_plan *p, const struct cp_world *w);

/*
 * A lower bound on J (plan/lower.h). fast: meant to run inside each decision. full: searches for
 * better weights and prices, and is exact in larger clusters.
 */
enum cp_lower_effort { CP_LOWER_NONE, CP_LOWER_FAST, CP_LOWER_FULL };

/* What plans may do beside the pipelines of sections 6 and 9. */
struct cp_lower_set {
    bool edge_layers; /* last layers on the edge server */
    bool formats;     /* of links and of the upload */
    bool apart;       /* modes full and split */
};

enum { CP_POLICY_THREADS_MAX = 16 };

struct cp_policy_args {
    const struct cp_world *world;
    const struct cp_world *mean;     /* the same world on mean channels */
    const struct cp_queues *queues;  /* NULL: as if all were 0 */
    const struct cp_plan *incumbent; /* last round's plan; NULL in round 0 */
    enum cp_order order;             /* where nobody chooses */
    bool choose_order;               /* whichever order is best by J; order is ignored */
    bool choose_micro;               /* fixed-b: the policy may choose M; else it is given */
    const int *micro;           /* [n_clusters] M where it is given, 1..micro_max; NULL: M_ref */
    enum cp_lower_effort bound; /* whether the decision comes with a bound */
    int threads;     /* that a decision may use, CP_POLICY_THREADS_MAX at most; 0 and 1: this one */
    bool any_format; /* who carries the plan out knows other formats than fp32 */
    bool alone;      /* dssda-x: without the decisions of the other policies as candidates */
    uint64_t seed;
    int n_cuts;                        /* static: clusters in cuts */
    const int (*cuts)[CP_DEVICES_MAX]; /* layers per device in device order; 0: stand-by */
};

struct cp_decision {
    double objective; /* J of P1 (section 10), whatever the policy minimised */
    double solve_ms;  /* without the bound */
    /*
     * J of every plan that the arguments allow to policies of this kind is at least this: all
     * pipelines with their choice of M and order (whether the policy would choose them or not),
     * what `beyond` of the policy adds, and what else the plan itself does (gpipe-uniform has an
     * order of its own). NaN where none was asked for.
     */
    double bound;
    double bound_ms;   /* what it took */
    char binding[160]; /* what binds: memory, energy queue, convergence queue ... for people */
};

/* dssda keeps last round's plan unless the new one lowers J by more than this share: plans that
 * are equal but for noise would move layers (and their moments) for nothing. */
#define CP_KEEP_MARGIN 0.01

struct cp_policy {
    const char *name;
    const char *help; /* one line */
    /* What its plans may do beside plain pipelines; formats only with args->any_format. */
    struct cp_lower_set beyond;
    cp_err (*decide)(const struct cp_policy_args *a, struct cp_plan *out, struct cp_decision *d);
};

/* NULL-terminated. */
extern const struct cp_policy *const CP_POLICIES[];
const struct cp_policy *cp_policy_find(const char *name);

/*
 * Checks the world, decides, and proves the result with cp_plan_check; out is raw storage, its gen
 * is 0. E_PLAN says what binds.
 *
 * Memory and order: a plan whose order does not fit into memory at its M falls back to the next
 * order that holds fewer micro-batches (gpipe, 1f1b, seq) and says so in d->binding. Without
 * choose_micro M is the given one always, or the cluster's limit where that is less: it is the work
 * to be done.
 */
CP_NODISCARD cp_err cp_policy_decide(const struct cp_policy *policy, const struct cp_policy_args *a,
                                     struct cp_plan *out, struct cp_decision *d);

#endif
