#include "api/baseline.h"

#include "base/log.h"

#include <stdint.h>
#include <stdio.h>

void cp_baselines_init(struct cp_baseline b[CP_BASELINES])
{
    static const char *const NAMES[CP_BASELINES] = {"gpipe-uniform", "fedavg"};
    for (int i = 0; i < CP_BASELINES; i++) {
        b[i] = (struct cp_baseline){.policy = cp_policy_find(NAMES[i])};
    }
}

/* The baseline's plan with the run's micro-batches: most in flight that the order asks for, fewer
 * where memory does not hold them. */
static cp_err same_samples(struct cp_plan *p, const struct cp_round_report *r,
                           const struct cp_world *w)
{
    static const enum cp_order ORDERS[] = {CP_ORDER_GPIPE, CP_ORDER_1F1B, CP_ORDER_SEQ};
    cp_err err = CP_OK;
    for (size_t i = 0; i < sizeof ORDERS / sizeof ORDERS[0]; i++) {
        for (int c = 0; c < p->n_clusters; c++) {
            p->cluster[c].micro_batches = r->plan->cluster[c].micro_batches;
            if (p->cluster[c].mode == CP_MODE_PIPELINE) {
                p->cluster[c].order = ORDERS[i];
                cp_plan_set_slots(&p->cluster[c]);
            }
        }
        err = cp_plan_check(p, w);
        if (!err) {
            break;
        }
    }
    return err;
}

static void count(struct cp_baseline *b, const struct cp_plan *plan, const struct cp_forecast *f)
{
    b->rounds++;
    b->latency_s += f->latency_s;
    b->energy_j += f->energy_j;
    for (int c = 0; c < plan->n_clusters; c++) {
        for (int s = 0; s < plan->cluster[c].segments; s++) {
            size_t m = f->cluster[c].mem_bytes[s];
            b->mem_peak_bytes = m > b->mem_peak_bytes ? m : b->mem_peak_bytes;
        }
    }
}

static cp_err add(struct cp_baseline *b, const struct cp_job *job, const struct cp_world *w,
                  const struct cp_round_report *r)
{
    struct cp_world mean = {0};
    struct cp_plan plan = {0};
    struct cp_decision d;
    struct cp_forecast f;
    CP_TRY(cp_job_world(job, r->round, true, &mean));
    struct cp_policy_args args = {
        .world = w, .mean = &mean, .order = CP_ORDER_GPIPE, .seed = job->seed};
    cp_err err = cp_policy_decide(b->policy, &args, &plan, &d);
    cp_world_fini(&mean);
    CP_TRY(err);
    err = same_samples(&plan, r, w);
    if (!err) {
        err = cp_forecast_make(&plan, w, NULL, 0, &f);
    }
    if (!err) {
        count(b, &plan, &f);
        cp_forecast_fini(&f);
    }
    cp_plan_fini(&plan);
    return err;
}

/* Where memory does not allow it, what it would cost if memory had no limit. */
static void add_or_imagine(struct cp_baseline *b, const struct cp_job *job,
                           const struct cp_round_report *r)
{
    struct cp_world w = {0};
    if (add(b, job, r->world, r) == CP_OK) {
        return;
    }
    if (!b->why[0]) {
        snprintf(b->why, sizeof b->why, "%s", cp_err_text());
    }
    cp_err err = cp_world_copy(&w, r->world);
    for (int c = 0; c < w.n_clusters && !err; c++) {
        for (int k = 0; k < w.cluster[c].n_devices; k++) {
            w.cluster[c].device[k].mem_bytes = SIZE_MAX;
        }
    }
    if (!err) {
        err = add(b, job, &w, r);
    }
    if (err) {
        cp_log(CP_LOG_DEBUG, "baseline %s: %s", b->policy->name, cp_err_text());
    }
    cp_world_fini(&w);
}

void cp_baselines_add(struct cp_baseline b[CP_BASELINES], const struct cp_job *job,
                      const struct cp_round_report *r)
{
    for (int i = 0; i < CP_BASELINES; i++) {
        add_or_imagine(&b[i], job, r);
    }
}

json_t *cp_baselines_json(const struct cp_baseline b[CP_BASELINES])
{
    json_t *list = json_array();
    for (int i = 0; i < CP_BASELINES; i++) {
        double n = b[i].rounds > 0 ? b[i].rounds : 1;
        json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:f, s:I, s:b, s:s}", "policy",
                                              b[i].policy->name, "rounds", b[i].rounds, "latency_s",
                                              b[i].latency_s / n, "energy_j", b[i].energy_j / n,
                                              "mem_peak_bytes", (json_int_t)b[i].mem_peak_bytes,
                                              "feasible", b[i].why[0] == 0, "why", b[i].why));
    }
    return list;
}
