/*
 * bench plan: how long decisions take.
 *
 * A cold decision knows no last plan; a warm one has that of the round before, of which every
 * channel and every speed has changed since. Energy queues have a backlog, and order and M are the
 * policy's choice, so that nothing makes the problem easier than it is. Beside the decisions stands
 * the exact program over the cuts of one cluster. The unit that all of it is made of is the exact
 * evaluation of one plan (cp_plan_objective), so its time in the same worlds is the limit: a
 * decision of n times as much cannot have looked at many more than n plans.
 */
#include "api/bench.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "node/job.h"
#include "plan/lower.h"
#include "plan/split.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SAMPLES = 1000, MOST_BACKLOG = 10 };

struct setting {
    const char *policy; /* NULL: the exact program */
    int clusters, devices, layers, worlds;
    int warm; /* decisions after the first one, a round later each */
    int threads;
};

struct ground {
    collapipe_config *config;
    struct cp_job job;
    struct cp_world world, mean;
    struct cp_queues queues;
};

static void ground_fini(struct ground *g)
{
    cp_queues_fini(&g->queues);
    cp_world_fini(&g->mean);
    cp_world_fini(&g->world);
    cp_job_fini(&g->job);
    collapipe_config_close(g->config);
}

/* g is zeroed, and to be freed whatever happens. */
static cp_err ground_init(struct ground *g, const struct setting *s, int seed)
{
    char clusters[48], layers[48], seeds[48];
    snprintf(clusters, sizeof clusters, "clusters=%dx%d", s->clusters, s->devices);
    snprintf(layers, sizeof layers, "model.layers=%d", s->layers);
    snprintf(seeds, sizeof seeds, "seed=%d", seed);
    if (collapipe_simulate_config((const char *const[]){clusters, layers, seeds}, 3, &g->config)) {
        return CP_E_CONFIG;
    }
    CP_TRY(cp_job_init_world(&g->job, cp_config_of(g->config->conf), "."));
    CP_TRY(cp_job_world(&g->job, 0, false, &g->world));
    CP_TRY(cp_job_world(&g->job, 0, true, &g->mean));
    CP_TRY(cp_job_queues(&g->job, &g->mean, &g->queues));
    for (int c = 0; c < s->clusters; c++) {
        struct cp_rng r;
        cp_rng_init(&r, (uint64_t)seed, CP_RNG_TEST, (uint32_t)c, 0);
        for (int node = 0; node <= s->devices; node++) {
            g->queues.energy[c][node] = cp_rng_range(&r, 0, MOST_BACKLOG);
        }
    }
    return CP_OK;
}

/* --- samples --------------------------------------------------------------------------------- */

/* What was measured of the decisions of one kind. */
struct samples {
    int n;
    double cpu_ms[MOST_SAMPLES], wall_ms[MOST_SAMPLES], gap_pct[MOST_SAMPLES];
    double plan_us; /* to evaluate the last plan */
};

struct watch {
    clock_t cpu; /* of all threads: nothing else runs in the process */
    int64_t wall_ns;
};

static struct watch watch_start(void)
{
    return (struct watch){clock(), cp_now_ns()};
}

static void samples_add(struct samples *s, struct watch from)
{
    s->cpu_ms[s->n] = (double)(clock() - from.cpu) * 1e3 / CLOCKS_PER_SEC;
    s->wall_ms[s->n] = (double)(cp_now_ns() - from.wall_ns) * 1e-6;
    s->gap_pct[s->n++] = 0;
}

static int compare_reals(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The value that the part q of all samples does not exceed; sorts them. */
static double quantile(double *x, int n, double q)
{
    qsort(x, (size_t)n, sizeof *x, compare_reals);
    int at = (int)ceil(q * n) - 1;
    return x[at < 0 ? 0 : at];
}

static void samples_print(struct samples *x, const struct setting *s, const char *what,
                          json_t *cases)
{
    char clusters[32];
    snprintf(clusters, sizeof clusters, "%dx%d", s->clusters, s->devices);
    json_t *j = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i}", "what", what, "policy",
                          s->policy ? s->policy : "-", "clusters", clusters, "layers", s->layers,
                          "threads", s->threads, "decisions", x->n);
    cp_api_real(j, "cpu_ms", quantile(x->cpu_ms, x->n, 0.5));
    cp_api_real(j, "p95_ms", quantile(x->cpu_ms, x->n, 0.95));
    cp_api_real(j, "wall_ms", quantile(x->wall_ms, x->n, 0.5));
    cp_api_real(j, "plan_us", x->plan_us);
    cp_api_real(j, "gap_pct", quantile(x->gap_pct, x->n, 0.5));
    json_array_append_new(cases, j);
}

/* Microseconds of cp_plan_objective: the best of some windows. */
static double evaluate_us(const struct ground *g, const struct cp_plan *p)
{
    enum { WINDOWS = 5, WINDOW_NS = 2000000 };
    double best = INFINITY, sum = 0;
    for (int i = 0; i < WINDOWS; i++) {
        int64_t start_ns = cp_thread_cpu_ns(), now_ns = start_ns;
        int n = 0;
        for (; now_ns - start_ns < WINDOW_NS; n++) {
            sum += cp_plan_objective(p, &g->world, &g->queues);
            now_ns = cp_thread_cpu_ns();
        }
        best = fmin(best, (double)(now_ns - start_ns) * 1e-3 / n);
    }
    return isnan(sum) ? NAN : best; /* the sum is wanted, or nothing might be computed */
}

/* --- decisions ------------------------------------------------------------------------------- */

/* How far above the lower bound a decision is at most, in percent of the bound. */
static cp_err gap_of(const struct cp_policy_args *a, const struct cp_policy *policy,
                     const struct cp_plan *p, double *gap_pct)
{
    double bound;
    struct cp_lower_set set = policy->beyond;
    set.formats = set.formats && a->any_format;
    CP_TRY(cp_lower_bound(a, &set, p, CP_LOWER_FAST, &bound));
    *gap_pct = 100 * (cp_plan_objective(p, a->world, a->queues) / bound - 1);
    return CP_OK;
}

/* Decides in the world of now, with the last plan if it is warm, and replaces that. */
static cp_err decide(const struct ground *g, const struct setting *s, bool warm,
                     struct cp_plan *plan, struct samples *x)
{
    const struct cp_policy *policy = cp_policy_find(s->policy);
    struct cp_policy_args a = cp_job_policy_args(&g->job, &g->world, &g->mean);
    struct cp_plan next;
    struct cp_decision d;
    a.queues = &g->queues;
    a.incumbent = warm ? plan : NULL;
    a.threads = s->threads;
    struct watch from = watch_start();
    CP_TRY(cp_policy_decide(policy, &a, &next, &d));
    samples_add(x, from);
    cp_err err = gap_of(&a, policy, &next, &x->gap_pct[x->n - 1]);
    cp_plan_fini(plan);
    *plan = next;
    return err;
}

static cp_err decide_in_world(const struct setting *s, int seed, struct samples *cold,
                              struct samples *warm)
{
    struct ground g = {0};
    struct cp_plan plan = {0};
    cp_err err;
    CP_TRY_GOTO(err, ground_init(&g, s, seed), done);
    CP_TRY_GOTO(err, decide(&g, s, false, &plan, cold), done);
    for (int i = 1; i <= s->warm; i++) {
        cp_world_fini(&g.world);
        CP_TRY_GOTO(err, cp_job_world(&g.job, i, false, &g.world), done);
        CP_TRY_GOTO(err, decide(&g, s, true, &plan, warm), done);
    }
    cold->plan_us = warm->plan_us = evaluate_us(&g, &plan);
done:
    cp_plan_fini(&plan);
    ground_fini(&g);
    return err;
}

/* --- the exact program ----------------------------------------------------------------------- */

/* Every number of segments, M_ref, equal shares, greatest powers: the best cut, exactly. */
static cp_err solve_program(struct ground *g, const struct setting *s, struct samples *x)
{
    struct cp_split list[CP_DEVICES_MAX];
    struct cp_split_result result;
    struct cp_split_work work = {0};
    struct cp_room *room;
    int most = s->devices < s->layers ? s->devices : s->layers;
    CP_TRY(cp_mem_new(NULL, sizeof *room, &room));
    struct watch from = watch_start();
    cp_room_init(room, &g->world, 0);
    for (int i = 0; i < most; i++) {
        cp_split_init(&list[i], &g->world, 0, room, &g->queues, i + 1, g->world.micro_ref,
                      CP_ORDER_1F1B);
    }
    cp_err err = cp_split_best(list, most, &work, &result);
    if (!err && !result.found) {
        err = cp_fail(CP_E_PLAN, "no cut of %d layers on %d devices fits into memory", s->layers,
                      s->devices);
    }
    if (!err) {
        struct cp_plan plan = {.n_clusters = 1, .cluster = &result.plan};
        samples_add(x, from);
        x->plan_us = evaluate_us(g, &plan);
    }
    cp_split_work_fini(&work);
    cp_mem_free(room);
    return err;
}

static cp_err program_in_world(const struct setting *s, int seed, struct samples *x)
{
    struct ground g = {0};
    cp_err err = ground_init(&g, s, seed);
    if (!err) {
        err = solve_program(&g, s, x);
    }
    ground_fini(&g);
    return err;
}

/* --- settings -------------------------------------------------------------------------------- */

static cp_err run_setting(const struct setting *s, struct samples *cold, struct samples *warm,
                          json_t *cases)
{
    *cold = *warm = (struct samples){0};
    for (int i = 1; i <= s->worlds; i++) {
        CP_TRY(s->policy ? decide_in_world(s, i, cold, warm) : program_in_world(s, i, cold));
    }
    if (cold->n > 0) {
        samples_print(cold, s, s->policy ? "cold" : "program", cases);
    }
    if (warm->n > 0) {
        samples_print(warm, s, "warm", cases);
    }
    return CP_OK;
}

static cp_err run_settings(const struct setting *s, int n, json_t **out)
{
    struct samples *cold = NULL, *warm = NULL;
    json_t *cases = json_array();
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_new(NULL, sizeof *cold, &cold), done);
    CP_TRY_GOTO(err, cp_mem_new(NULL, sizeof *warm, &warm), done);
    for (int i = 0; i < n; i++) {
        CP_TRY_GOTO(err, run_setting(&s[i], cold, warm, cases), done);
    }
    *out = json_pack("{s:s, s:O}", "bench", "plan", "cases", cases);
done:
    json_decref(cases);
    cp_mem_free(cold);
    cp_mem_free(warm);
    return err;
}

static int or_else(int given, int otherwise)
{
    return given > 0 ? given : otherwise;
}

/* Sizes that are given make one setting of their own; the standard ones have the large cases. */
static cp_err run(const struct collapipe_bench_options *o, json_t **out)
{
    int clusters = or_else(o->clusters, 4), devices = or_else(o->devices, 4);
    int layers = or_else(o->layers, 12), worlds = or_else(o->worlds, 20);
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    bool sizes = o->clusters > 0 || o->devices > 0 || o->layers > 0;
    if (worlds > MOST_SAMPLES) {
        return cp_fail(CP_E_CONFIG, "bench plan takes at most %d worlds, not %d", MOST_SAMPLES,
                       worlds);
    }
    const struct setting settings[] = {
        {"dssda", clusters, devices, layers, worlds, .warm = 1, .threads = 1},
        {"dssda-x", clusters, devices, layers, worlds, .warm = 1, .threads = 1},
        {NULL, 1, sizes ? devices : 10, sizes ? layers : 24, worlds, .warm = 0, .threads = 1},
        {"dssda", 1000, 8, 12, 1, .warm = 2, .threads = cores > 1 ? cores : 1},
    };
    return run_settings(settings, sizes ? 3 : 4, out);
}

const struct cp_bench CP_BENCH_PLAN = {"plan", true, run};
