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

/* Queues for round 0: Z = 0, Y = Y_0, V from v_prime; mean is the world on mean channels. */
CP_NODISCARD cp_err cp_queues_init(struct cp_queues *q, const struct cp_world *mean,
                                   double v_prime);
void cp_queues_fini(struct cp_queues *q);
/* Z <- max(Z + E/E-bar - 1, 0), Y <- max(Y + gamma - 1, 0) with the realised round. */
void cp_queues_advance(struct cp_queues *q, const struct cp_world *w, const struct cp_forecast *f);

struct cp_policy_args {
    const struct cp_world *world;
    const struct cp_world *mean;      /* the same world on mean channels */
    const struct cp_queues *queues;   /* NULL: as if all were 0 */
    const struct cp_plan *incumbent;  /* last round's plan; NULL in round 0 */
    enum cp_order order;              /* where the policy does not choose */
    bool choose_micro;                /* fixed-b: the policy may choose M; else M = M_ref */
    uint64_t seed;
    int n_cuts;                       /* static: clusters in cuts */
    const int (*cuts)[CP_DEVICES_MAX]; /* layers per device, 0-terminated */
};

struct cp_decision {
    double objective; /* J of P1 (section 10) where the policy has one, else V * latency */
    double solve_ms;
    char binding[160]; /* what binds: memory, energy queue, convergence queue ... for people */
};

struct cp_policy {
    const char *name;
    const char *help; /* one line */
    bool trains;      /* may be used by `run`; else only modelled */
    cp_err (*decide)(const struct cp_policy_args *a, struct cp_plan *out, struct cp_decision *d);
};

/* NULL-terminated. */
extern const struct cp_policy *const CP_POLICIES[];
const struct cp_policy *cp_policy_find(const char *name);

/* Decides and proves the result with cp_plan_check; out.gen is left 0. E_PLAN says what binds. */
CP_NODISCARD cp_err cp_policy_decide(const struct cp_policy *policy, const struct cp_policy_args *a,
                                     struct cp_plan *out, struct cp_decision *d);

#endif
