#include "plan/policies.h"

#include "base/clock.h"
#include "plan/draft.h"
#include "plan/lower.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct cp_policy *const CP_POLICIES[] = {
    &CP_POLICY_DSSDA,       &CP_POLICY_DSSDA_X,
    &CP_POLICY_STATIC,      &CP_POLICY_GPIPE_UNIFORM,
    &CP_POLICY_PIPEEDGE,    &CP_POLICY_GREEDY,
    &CP_POLICY_RANDOM,      &CP_POLICY_FEDAVG,
    &CP_POLICY_BEST_SINGLE, &CP_POLICY_SPLITFED,
    &CP_POLICY_MYOPIC,      &CP_POLICY_LATENCY_ONLY,
    &CP_POLICY_EXHAUSTIVE,  &CP_POLICY_DSSDA_UNIFORM,
    &CP_POLICY_DSSDA_ORDER, &CP_POLICY_DSSDA_MICRO,
    &CP_POLICY_DSSDA_BAND,  &CP_POLICY_DSSDA_SHARE,
    &CP_POLICY_DSSDA_POWER, NULL,
};

const struct cp_policy *cp_policy_find(const char *name)
{
    for (int i = 0; CP_POLICIES[i]; i++) {
        if (strcmp(CP_POLICIES[i]->name, name) == 0) {
            return CP_POLICIES[i];
        }
    }
    return NULL;
}

/* What the clusters of a plan come to together. */
struct totals {
    double slowest_s, broadcast_s, cost;
};

static struct totals add_up(const struct cp_plan *p, const struct cp_world *w,
                            const struct cp_queues *q)
{
    struct totals sum = {0};
    for (int c = 0; c < p->n_clusters; c++) {
        struct cp_value v = cp_draft_value(&p->cluster[c], w, q, c);
        sum.slowest_s = fmax(sum.slowest_s, v.time_s);
        sum.cost += v.cost;
        sum.broadcast_s = fmax(sum.broadcast_s, cp_broadcast_s(&p->cluster[c], c, w));
    }
    return sum;
}

double cp_plan_objective(const struct cp_plan *p, const struct cp_world *w,
                         const struct cp_queues *q)
{
    struct totals sum = add_up(p, w, q);
    double more_s = sum.broadcast_s - cp_broadcast_plain_s(w);
    return cp_queues_v(q) * (sum.slowest_s + more_s) + sum.cost;
}

double cp_plan_round_s(const struct cp_plan *p, const struct cp_world *w)
{
    struct totals sum = add_up(p, w, NULL);
    return sum.slowest_s + sum.broadcast_s;
}

static cp_err check_queues(const struct cp_queues *q, const struct cp_world *w)
{
    if (q->n_clusters != w->n_clusters) {
        return cp_fail(CP_E_PLAN, "the virtual queues are those of %d clusters, the world has %d",
                       q->n_clusters, w->n_clusters);
    }
    double sum = q->v + q->convergence, least = fmin(q->v, q->convergence);
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            sum += q->energy[c][node];
            least = fmin(least, q->energy[c][node]);
        }
    }
    if (!isfinite(sum) || least < 0) {
        return cp_fail(CP_E_NONFINITE, "a virtual queue is negative or not a finite number: "
                                       "nothing can be weighed against latency");
    }
    return CP_OK;
}

static cp_err check_micro(const struct cp_policy_args *a)
{
    for (int c = 0; c < a->world->n_clusters; c++) {
        int m = a->micro[c];
        if (m < 1 || m > a->world->micro_max) {
            return cp_fail(CP_E_PLAN, "%s: %d micro-batches are asked for; 1 to %d are allowed",
                           a->world->cluster[c].name, m, a->world->micro_max);
        }
    }
    return CP_OK;
}

static cp_err prove(const struct cp_policy *policy, const struct cp_policy_args *a,
                    const struct cp_plan *p, struct cp_decision *d)
{
    cp_err err = cp_plan_check(p, a->world);
    if (err) {
        return cp_fail_in(err, "the policy %s made a plan that does not hold", policy->name);
    }
    double round_s = cp_plan_round_s(p, a->world);
    if (!(round_s <= CP_ROUND_MOST_S)) {
        return cp_fail(CP_E_PLAN,
                       "the best plan of %s would never end: a round of it takes %.3g s, more than "
                       "a year, because a link is too weak or a node too slow",
                       policy->name, round_s);
    }
    d->objective = cp_plan_objective(p, a->world, a->queues);
    if (!isfinite(d->objective)) {
        return cp_fail(CP_E_NONFINITE,
                       "what the plan of %s costs is not a finite number: a virtual queue is too "
                       "long to be weighed",
                       policy->name);
    }
    return CP_OK;
}

/* Widens a set of plans until it holds one of a cluster: a policy may have an order of its own
 * (gpipe-uniform), or keep a plan that another one has made. */
static void widen(struct cp_policy_args *a, struct cp_lower_set *set, int cluster,
                  const struct cp_cluster_plan *p)
{
    bool pipeline = p->mode == CP_MODE_PIPELINE, listed = !pipeline;
    struct cp_order_list list = cp_draft_orders(a);
    for (int i = 0; i < list.all; i++) {
        listed = listed || list.order[i] == p->order;
    }
    a->choose_order = a->choose_order || !listed;
    a->choose_micro = a->choose_micro || p->micro_batches != cp_draft_micro(a, cluster);
    set->apart = set->apart || !pipeline;
    set->edge_layers = set->edge_layers || (pipeline && p->edge_layers > 0);
    set->formats = set->formats || p->upload_format != CP_FORMAT_FP32;
    for (int j = 0; pipeline && j <= p->segments; j++) {
        set->formats = set->formats || p->link_format[j] != CP_FORMAT_FP32;
    }
}

/* Searched from the plan that was decided. */
static cp_err add_bound(const struct cp_policy *policy, const struct cp_policy_args *a,
                        const struct cp_plan *p, struct cp_decision *d)
{
    d->bound = NAN;
    if (a->bound == CP_LOWER_NONE) {
        return CP_OK;
    }
    struct cp_policy_args wide = *a;
    struct cp_lower_set set = policy->beyond;
    set.formats = set.formats && a->any_format;
    for (int c = 0; c < p->n_clusters; c++) {
        widen(&wide, &set, c, &p->cluster[c]);
    }
    int64_t start_ns = cp_now_ns();
    CP_TRY(cp_lower_bound(&wide, &set, p, a->bound, &d->bound));
    d->bound_ms = (double)(cp_now_ns() - start_ns) * 1e-6;
    return CP_OK;
}

cp_err cp_policy_decide(const struct cp_policy *policy, const struct cp_policy_args *a,
                        struct cp_plan *out, struct cp_decision *d)
{
    CP_TRY(cp_world_check(a->world));
    if (a->queues) {
        CP_TRY(check_queues(a->queues, a->world));
    }
    if (a->micro) {
        CP_TRY(check_micro(a));
    }
    struct cp_plan plan;
    struct cp_decision decision = {0};
    int64_t start_ns = cp_now_ns();
    CP_TRY(cp_plan_init(&plan, a->world->n_clusters));
    cp_err err = policy->decide(a, &plan, &decision);
    err = err ? err : prove(policy, a, &plan, &decision);
    decision.solve_ms = (double)(cp_now_ns() - start_ns) * 1e-6;
    err = err ? err : add_bound(policy, a, &plan, &decision);
    if (err) {
        cp_plan_fini(&plan);
        return err;
    }
    snprintf(plan.policy, sizeof plan.policy, "%s", policy->name);
    plan.gen = 0;
    *out = plan;
    *d = decision;
    return CP_OK;
}
