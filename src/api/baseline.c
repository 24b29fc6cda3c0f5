#include "api/baseline.h"

#include <stdio.h>
#include <string.h>

void cp_baselines_init(struct cp_baseline b[CP_BASELINES])
{
    static const char *const NAMES[CP_BASELINES] = {"gpipe-uniform", "fedavg"};
    for (int i = 0; i < CP_BASELINES; i++) {
        b[i] = (struct cp_baseline){.policy = cp_policy_find(NAMES[i])};
    }
}

/* The baseline's plan with the run's micro-batches: most in flight that the order asks for, fewer
 * where memory does not hold them. */
static cp_err same_samples(struct cp_plan *p, const struct cp_round_report *r)
{
    static const enum cp_order FALLBACK[] = {CP_ORDER_1F1B, CP_ORDER_SEQ};
    for (int c = 0; c < p->n_clusters; c++) {
        p->cluster[c].micro_batches = r->plan->cluster[c].micro_batches;
        if (p->cluster[c].mode == CP_MODE_PIPELINE) {
            cp_plan_set_slots(&p->cluster[c]);
        }
    }
    cp_err err = cp_plan_check(p, r->world);
    for (int i = 0; i < 2 && err; i++) {
        for (int c = 0; c < p->n_clusters; c++) {
            if (p->cluster[c].mode == CP_MODE_PIPELINE) {
                p->cluster[c].order = FALLBACK[i];
                cp_plan_set_slots(&p->cluster[c]);
            }
        }
        err = cp_plan_check(p, r->world);
    }
    return err;
}

static cp_err add(struct cp_baseline *b, const struct cp_job *job, const struct cp_round_report *r)
{
    struct cp_world mean = {0};
    struct cp_plan plan = {0};
    struct cp_decision d;
    struct cp_forecast f;
    CP_TRY(cp_job_world(job, r->round, true, &mean));
    struct cp_policy_args args = {
        .world = r->world, .mean = &mean, .order = CP_ORDER_GPIPE, .seed = job->seed};
    cp_err err = cp_policy_decide(b->policy, &args, &plan, &d);
    cp_world_fini(&mean);
    CP_TRY(err);
    err = same_samples(&plan, r);
    if (!err) {
        err = cp_forecast_make(&plan, r->world, NULL, 0, &f);
    }
    if (!err) {
        b->rounds++;
        b->latency_s += f.latency_s;
        b->energy_j += f.energy_j;
        for (int c = 0; c < plan.n_clusters; c++) {
            for (int s = 0; s < plan.cluster[c].segments; s++) {
                size_t m = f.cluster[c].mem_bytes[s];
                b->mem_peak_bytes = m > b->mem_peak_bytes ? m : b->mem_peak_bytes;
            }
        }
        cp_forecast_fini(&f);
    }
    cp_plan_fini(&plan);
    return err;
}

void cp_baselines_add(struct cp_baseline b[CP_BASELINES], const struct cp_job *job,
                      const struct cp_round_report *r)
{
    for (int i = 0; i < CP_BASELINES; i++) {
        if (add(&b[i], job, r) != CP_OK && !b[i].why[0]) {
            snprintf(b[i].why, sizeof b[i].why, "%s", cp_err_text());
        }
    }
}

json_t *cp_baselines_json(const struct cp_baseline b[CP_BASELINES])
{
    json_t *list = json_array();
    for (int i = 0; i < CP_BASELINES; i++) {
        double n = b[i].rounds > 0 ? b[i].rounds : 1;
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:f, s:f, s:I, s:b, s:s}", "policy", b[i].policy->name,
                            "rounds", b[i].rounds, "latency_s", b[i].latency_s / n, "energy_j",
                            b[i].energy_j / n, "mem_peak_bytes", (json_int_t)b[i].mem_peak_bytes,
                            "feasible", b[i].why[0] == 0, "why", b[i].why));
    }
    return list;
}
