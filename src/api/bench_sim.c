/*
 * bench sim: device-rounds per second of the simulator with a fixed plan.
 *
 * A device-round is one device in one round: the op lists of its cluster's step ran on the virtual
 * clock, and the transfers around the steps were added. The H equal steps of a round are run once
 * and count H times. Beside it stand the same with a new channel and new rates before every round,
 * and the closed form (cp_cluster_forecast_make) of the same figures, which runs no ops: no
 * simulator of this kind can be much faster than that.
 */
#include "api/bench.h"
#include "base/clock.h"
#include "node/job.h"
#include "sim/program.h"

#include <math.h>

struct setting {
    const char *clusters;
    enum cp_order order;
};

struct ground {
    struct cp_job job;
    struct cp_world world;
    struct cp_plan plan;
    struct cp_programs *known;
    struct cp_sim_round round;
    int devices; /* that the plan uses */
    long ops;    /* of a round: one step of every cluster */
};

static void ground_fini(struct ground *g)
{
    cp_sim_round_fini(&g->round);
    cp_programs_free(g->known);
    cp_plan_fini(&g->plan);
    cp_world_fini(&g->world);
    cp_job_fini(&g->job);
}

static cp_err ground_init(struct ground *g, const struct setting *s, const struct cp_config *c)
{
    struct cp_decision d;
    CP_TRY(cp_job_init_world(&g->job, c, "."));
    CP_TRY(cp_job_world(&g->job, 0, false, &g->world));
    struct cp_policy_args args = cp_job_policy_args(&g->job, &g->world, &g->world);
    args.order = s->order;
    args.choose_order = false;
    CP_TRY(cp_policy_decide(cp_policy_find("greedy"), &args, &g->plan, &d));
    CP_TRY(cp_programs_new(&g->known));
    for (int i = 0; i < g->plan.n_clusters; i++) {
        const struct cp_cluster_plan *p = &g->plan.cluster[i];
        g->devices += p->segments;
        for (int j = 0; j < p->segments + 2; j++) {
            g->ops += cp_ops_count(j, p->segments + 2, p->micro_batches, true);
        }
    }
    return CP_OK;
}

/* One round of each kind. */
static cp_err simulate(struct ground *g)
{
    return cp_sim_round_again(g->known, &g->plan, &g->world, NULL, 0, &g->round);
}

static cp_err simulate_new_world(struct ground *g)
{
    g->world.round++;
    cp_world_draw_rates(&g->world, &g->job.base, 0.5, g->job.seed);
    cp_channel_draw(&g->world, &g->job.channel, g->job.seed, false);
    return simulate(g);
}

static cp_err forecast(struct ground *g)
{
    struct cp_cluster_forecast f;
    double sum_s = 0;
    for (int i = 0; i < g->plan.n_clusters; i++) {
        cp_cluster_forecast_make(&g->plan.cluster[i], i, &g->world, &f);
        sum_s += f.round_s;
    }
    return isfinite(sum_s) ? CP_OK : cp_fail(CP_E_NONFINITE, "a forecast is not finite");
}

/* Rounds per second: the best of some windows, which the rest of the machine disturbs least. */
static cp_err measure(struct ground *g, cp_err (*one)(struct ground *), double *rounds_per_s)
{
    enum { WINDOWS = 4, WINDOW_MS = 40 };
    double best = 0;
    CP_TRY(one(g)); /* everything is known and in the caches */
    for (int i = 0; i < WINDOWS; i++) {
        int64_t start_ns = cp_thread_cpu_ns(), now_ns = start_ns;
        long rounds = 0;
        while (now_ns - start_ns < WINDOW_MS * (int64_t)1000000) {
            CP_TRY(one(g));
            rounds++;
            now_ns = cp_thread_cpu_ns();
        }
        best = fmax(best, (double)rounds * 1e9 / (double)(now_ns - start_ns));
    }
    *rounds_per_s = best;
    return CP_OK;
}

static cp_err measure_all(struct ground *g, const struct setting *s, json_t *j)
{
    static const struct {
        const char *key;
        cp_err (*one)(struct ground *);
    } KINDS[] = {{"device_rounds_per_s", simulate},
                 {"with_new_worlds_per_s", simulate_new_world},
                 {"forecast_per_s", forecast}};
    json_object_set_new(j, "clusters", json_string(s->clusters));
    json_object_set_new(j, "order", json_string(cp_order_name(s->order)));
    json_object_set_new(j, "devices", json_integer(g->devices));
    json_object_set_new(j, "ops", json_integer(g->ops));
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        double rounds_per_s;
        CP_TRY(measure(g, KINDS[i].one, &rounds_per_s));
        cp_api_real(j, KINDS[i].key, rounds_per_s * g->devices);
        if (i == 0) {
            cp_api_real(j, "ops_per_s", rounds_per_s * (double)g->ops);
        }
    }
    return CP_OK;
}

static cp_err run_setting(const struct setting *s, json_t *cases)
{
    char clusters[64];
    snprintf(clusters, sizeof clusters, "clusters=%s", s->clusters);
    /* memory is no matter here: every order must fit */
    const char *const assignments[] = {clusters, "train.micro_batch=1"};
    collapipe_config *config = NULL;
    struct ground g = {0};
    json_t *j = json_object();
    cp_err err = collapipe_simulate_config(assignments, 2, &config) ? CP_E_CONFIG : CP_OK;
    if (!err) {
        err = ground_init(&g, s, cp_config_of(config->conf));
    }
    if (!err) {
        err = measure_all(&g, s, j);
    }
    json_array_append_new(cases, j);
    ground_fini(&g);
    collapipe_config_close(config);
    return err;
}

static cp_err run(const struct collapipe_bench_options *opt, json_t **out)
{
    (void)opt;
    static const struct setting SETTINGS[] = {{"4x4", CP_ORDER_GPIPE},
                                              {"4x4", CP_ORDER_1F1B},
                                              {"100x8", CP_ORDER_1F1B},
                                              {"1000x8", CP_ORDER_1F1B}};
    json_t *cases = json_array();
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++) {
        cp_err err = run_setting(&SETTINGS[i], cases);
        if (err) {
            json_decref(cases);
            return err;
        }
    }
    *out = json_pack("{s:s, s:i, s:o}", "bench", "sim", "threads", 1, "cases", cases);
    return CP_OK;
}

const struct cp_bench CP_BENCH_SIM = {"sim", false, run};
