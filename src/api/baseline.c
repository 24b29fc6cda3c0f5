#include "api/baseline.h"

#include "api/internal.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdint.h>
#include <string.h>

static const char *const NAMES[] = {"gpipe-uniform", "fedavg"};
enum { BASELINES = sizeof NAMES / sizeof NAMES[0] };

struct figures {
    double latency_s, energy_j;
    size_t mem_peak_bytes;
};

/* --- one round ------------------------------------------------------------------------------- */

static struct figures figures_of(const struct cp_plan *plan, const struct cp_forecast *f)
{
    struct figures x = {.latency_s = f->latency_s, .energy_j = f->energy_j};
    for (int c = 0; c < plan->n_clusters; c++) {
        for (int s = 0; s < plan->cluster[c].segments; s++) {
            size_t m = f->cluster[c].mem_bytes[s];
            x.mem_peak_bytes = m > x.mem_peak_bytes ? m : x.mem_peak_bytes;
        }
    }
    return x;
}

/* The policy's plan at M per cluster, and its forecast. */
static cp_err forecast(const char *policy, const struct cp_policy_args *args, struct figures *out)
{
    struct cp_plan plan;
    struct cp_decision d;
    struct cp_forecast f;
    CP_TRY(cp_policy_decide(cp_policy_find(policy), args, &plan, &d));
    cp_err err = cp_forecast_make(&plan, args->world, NULL, 0, &f);
    if (!err) {
        *out = figures_of(&plan, &f);
        cp_forecast_fini(&f);
    }
    cp_plan_fini(&plan);
    return err;
}

/* The same as if memory had no limit. */
static cp_err imagine(const char *policy, const struct cp_policy_args *args, struct figures *out)
{
    struct cp_policy_args roomy = *args;
    struct cp_world w = {0};
    CP_TRY(cp_world_copy(&w, args->world));
    for (int c = 0; c < w.n_clusters; c++) {
        for (int k = 0; k < w.cluster[c].n_devices; k++) {
            w.cluster[c].device[k].mem_bytes = SIZE_MAX;
        }
    }
    roomy.world = &w;
    cp_err err = forecast(policy, &roomy, out);
    cp_world_fini(&w);
    return err;
}

static json_t *baseline_json(const char *policy, const struct cp_policy_args *args)
{
    struct figures x;
    char why[256] = "";
    cp_err err = forecast(policy, args, &x);
    bool feasible = !err;
    if (err) {
        cp_text_copy(why, sizeof why, cp_err_text());
        err = imagine(policy, args, &x);
    }
    json_t *j = json_object();
    json_object_set_new(j, "policy", json_string(policy));
    if (err) {
        cp_log(CP_LOG_DEBUG, "baseline %s: %s", policy, cp_err_text());
        json_object_set_new(j, "latency_s", json_null());
        json_object_set_new(j, "energy_j", json_null());
        json_object_set_new(j, "mem_peak_bytes", json_null());
    } else {
        cp_api_real(j, "latency_s", x.latency_s);
        cp_api_real(j, "energy_j", x.energy_j);
        json_object_set_new(j, "mem_peak_bytes", json_integer((json_int_t)x.mem_peak_bytes));
    }
    json_object_set_new(j, "feasible", json_boolean(feasible));
    json_object_set_new(j, "why", json_string(why));
    return j;
}

json_t *cp_baselines_round(const struct cp_job *job, const struct cp_round_report *r)
{
    json_t *list = json_array();
    struct cp_world mean = {0};
    int *micro = NULL;
    cp_err err;
    CP_TRY_GOTO(err, cp_job_world(job, r->round, true, &mean), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)r->plan->n_clusters, sizeof *micro, &micro), done);
    for (int c = 0; c < r->plan->n_clusters; c++) {
        micro[c] = r->plan->cluster[c].micro_batches;
    }
    struct cp_policy_args args = {.world = r->world,
                                  .mean = &mean,
                                  .order = CP_ORDER_GPIPE,
                                  .micro = micro,
                                  .seed = job->seed};
    for (int i = 0; i < BASELINES; i++) {
        json_array_append_new(list, baseline_json(NAMES[i], &args));
    }
done:
    if (err) { /* training does not need them */
        cp_log(CP_LOG_WARN, "round %d has no baselines: %s", r->round + 1, cp_err_text());
    }
    cp_mem_free(micro);
    cp_world_fini(&mean);
    return list;
}

/* --- all rounds ------------------------------------------------------------------------------ */

/* The baseline's object in a round, or NULL. */
static const json_t *find(const json_t *round, const char *policy)
{
    size_t i;
    json_t *b;
    json_array_foreach(json_object_get(round, "baselines"), i, b)
    {
        const char *name = json_string_value(json_object_get(b, "policy"));
        if (name && strcmp(name, policy) == 0) {
            return b;
        }
    }
    return NULL;
}

/* NULL: no round names it. */
static json_t *sum(const json_t *rounds_log, const char *policy)
{
    double latency_s = 0, energy_j = 0;
    json_int_t mem_peak_bytes = 0, rounds = 0;
    const char *why = "";
    bool named = false, feasible = true;
    size_t i;
    json_t *round;
    json_array_foreach(rounds_log, i, round)
    {
        const json_t *b = find(round, policy), *latency = json_object_get(b, "latency_s");
        if (!b) {
            continue;
        }
        named = true;
        if (feasible && !json_is_true(json_object_get(b, "feasible"))) {
            const char *text = json_string_value(json_object_get(b, "why"));
            feasible = false;
            why = text ? text : "";
        }
        if (json_is_number(latency)) {
            json_int_t bytes = json_integer_value(json_object_get(b, "mem_peak_bytes"));
            rounds++;
            latency_s += json_number_value(latency);
            energy_j += json_number_value(json_object_get(b, "energy_j"));
            mem_peak_bytes = bytes > mem_peak_bytes ? bytes : mem_peak_bytes;
        }
    }
    double n = (double)rounds;
    return !named ? NULL
           : rounds == 0
               ? json_pack("{s:s, s:i, s:n, s:n, s:n, s:b, s:s}", "policy", policy, "rounds", 0,
                           "latency_s", "energy_j", "mem_peak_bytes", "feasible", 0, "why", why)
               : json_pack("{s:s, s:I, s:f, s:f, s:I, s:b, s:s}", "policy", policy, "rounds",
                           rounds, "latency_s", latency_s / n, "energy_j", energy_j / n,
                           "mem_peak_bytes", mem_peak_bytes, "feasible", feasible, "why", why);
}

json_t *cp_baselines_json(const json_t *rounds_log)
{
    json_t *list = json_array();
    for (int i = 0; i < BASELINES; i++) {
        json_t *b = sum(rounds_log, NAMES[i]);
        if (b) {
            json_array_append_new(list, b);
        }
    }
    return list;
}
