/*
 * How good decisions are: the distribution of the gap between J of a policy's plan and a lower
 * bound on J (docs/theory.md section 11.8), over random worlds of section 15: BERT-base at b = 4
 * and 128 tokens but with L layers, Rayleigh fading, random backlogs, order and M free.
 *
 *   bench_quality [-w WORLDS] [-c CLUSTERS] [-k DEVICES] [-l LAYERS] [-e fast|full] [-z MOST] [-x]
 *                 [-u MHZ] [-s FIRST] [-v] POLICY...
 *
 * -z: backlogs of energy queues are 0 to MOST (20). -u: the band to the edge server (40). -x: sizes
 * of single clusters are drawn, up to DEVICES and LAYERS, and the policy `exhaustive` gives the
 * least J to compare with. Prints a line for each decision on standard error with -v, and the table
 * on standard output.
 */
#include "base/rng.h"
#include "model/shape.h"
#include "plan/policy.h"
#include "world/radio.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MICRO_SAMPLES = 4, TOKENS = 128, OPTIM_WORDS = 2, POLICIES_MAX = 16 };

struct ask {
    int worlds, clusters, devices, layers;
    uint64_t first;
    double backlog, up_mhz;
    enum cp_lower_effort effort;
    bool exact, verbose;
    int n_policies;
    const struct cp_policy *policy[POLICIES_MAX];
};

/* Figures of one policy over the worlds. */
struct figures {
    int n, failed;
    double *gap;          /* (J - bound) / bound */
    double *miss, *slack; /* (J - least) / least, (least - bound) / least */
    double solve_ms, bound_ms;
};

/* --- worlds ---------------------------------------------------------------------------------- */

static size_t segment_bytes(const void *arg, int n_layers, int slots)
{
    return cp_shape_cost(arg, 1, n_layers, MICRO_SAMPLES, TOKENS, slots, OPTIM_WORDS).total_bytes;
}

static size_t client_bytes(const void *arg, int n_layers)
{
    return cp_shape_cost(arg, 0, n_layers, MICRO_SAMPLES, TOKENS, 1, OPTIM_WORDS).total_bytes;
}

static struct cp_part_cost part_cost(const struct cp_shape *s, int block)
{
    struct cp_cost c = cp_shape_cost(s, block, block, MICRO_SAMPLES, TOKENS, 1, OPTIM_WORDS);
    return (struct cp_part_cost){c.work_fwd_flops, c.work_bwd_flops, 4.0 * (double)c.params};
}

static struct cp_model_cost model_of(const struct cp_shape *s, int micro_ref)
{
    int last = s->layers + 1;
    return (struct cp_model_cost){
        .layers = s->layers,
        .emb = part_cost(s, 0),
        .layer = part_cost(s, 1),
        .head = part_cost(s, last),
        .boundary_bytes = 4.0 * MICRO_SAMPLES * TOKENS * s->width,
        .label_bytes = 16.0 * MICRO_SAMPLES,
        .optim_words = OPTIM_WORDS,
        .width = s->width,
        .segment_bytes = segment_bytes,
        .client_bytes = client_bytes,
        .segment_arg = s,
        .full_bytes_micro =
            cp_shape_cost(s, 0, last, MICRO_SAMPLES, TOKENS, 1, OPTIM_WORDS).total_bytes,
        .full_bytes_batch =
            cp_shape_cost(s, 0, last, MICRO_SAMPLES, TOKENS, micro_ref, OPTIM_WORDS).total_bytes,
    };
}

/* A world, the same on mean channels, and queues with random backlogs. */
static cp_err draw(const struct ask *ask, const struct cp_shape *shape, int clusters, int devices,
                   uint64_t seed, struct cp_world *w, struct cp_world *mean, struct cp_queues *q)
{
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1};
    struct cp_rng r;
    CP_TRY(cp_world_draw_default(clusters, devices, seed, w));
    w->radio.band_up_hz = 1e6 * ask->up_mhz;
    w->model = model_of(shape, w->micro_ref);
    cp_world_weigh(w);
    CP_TRY(cp_world_copy(mean, w));
    cp_channel_draw(mean, &ch, seed, true);
    cp_channel_draw(w, &ch, seed, false);
    CP_TRY(cp_queues_init(q, mean, 10));
    cp_rng_init(&r, seed, CP_RNG_TEST, 20, 0);
    for (int c = 0; c < clusters; c++) {
        for (int node = 0; node <= devices; node++) {
            q->energy[c][node] = cp_rng_range(&r, 0, ask->backlog);
        }
    }
    q->convergence *= cp_rng_range(&r, 0.2, 3);
    return CP_OK;
}

/* --- one world ------------------------------------------------------------------------------- */

static cp_err measure(const struct ask *ask, const struct cp_policy_args *a, int world,
                      struct figures *all)
{
    struct cp_plan p;
    struct cp_decision d;
    struct cp_policy_args exact = *a;
    double least = NAN;
    exact.bound = CP_LOWER_NONE;
    if (ask->exact) {
        CP_TRY(cp_policy_decide(cp_policy_find("exhaustive"), &exact, &p, &d));
        cp_plan_fini(&p);
        least = d.objective;
    }
    for (int i = 0; i < ask->n_policies; i++) {
        struct figures *f = &all[i];
        if (cp_policy_decide(ask->policy[i], a, &p, &d) != CP_OK) {
            f->failed++;
            continue;
        }
        cp_plan_fini(&p);
        f->gap[f->n] = (d.objective - d.bound) / d.bound;
        f->miss[f->n] = (d.objective - least) / least;
        f->slack[f->n] = (least - d.bound) / least;
        f->solve_ms += d.solve_ms;
        f->bound_ms += d.bound_ms;
        if (ask->verbose) {
            fprintf(stderr, "%d %s %.8g %.8g %.5f %.5f %.5f\n", world, ask->policy[i]->name,
                    d.objective, d.bound, f->gap[f->n], f->miss[f->n], f->slack[f->n]);
        }
        f->n++;
    }
    return CP_OK;
}

static cp_err one(const struct ask *ask, int world, struct figures *all)
{
    struct cp_shape shape = {.layers = ask->layers,
                             .width = 768,
                             .heads = 12,
                             .ffn = 3072,
                             .max_len = TOKENS,
                             .vocab = 30522,
                             .types = 2,
                             .classes = 2,
                             .norm_eps = 1e-12};
    struct cp_world w = {0}, mean = {0};
    struct cp_queues q = {0};
    struct cp_rng r;
    uint64_t seed = ask->first + (uint64_t)world;
    int clusters = ask->clusters, devices = ask->devices;
    cp_rng_init(&r, seed, CP_RNG_TEST, 21, 0);
    if (ask->exact) {
        clusters = 1;
        devices = 1 + (int)cp_rng_below(&r, (uint32_t)devices);
        shape.layers = 1 + (int)cp_rng_below(&r, (uint32_t)shape.layers);
    }
    cp_err err = draw(ask, &shape, clusters, devices, seed, &w, &mean, &q);
    struct cp_policy_args a = {.world = &w,
                               .mean = &mean,
                               .queues = &q,
                               .choose_order = true,
                               .choose_micro = true,
                               .any_format = true,
                               .bound = ask->effort,
                               .seed = seed};
    err = err ? err : measure(ask, &a, world, all);
    cp_queues_fini(&q);
    cp_world_fini(&w);
    cp_world_fini(&mean);
    return err;
}

/* --- tables ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_row(const char *name, const char *what, double *x, int n)
{
    double sum = 0;
    qsort(x, (size_t)n, sizeof *x, compare);
    for (int i = 0; i < n; i++) {
        sum += x[i];
    }
    printf("| %s | %s | %.2f %% | %.2f %% | %.2f %% | %.2f %% | %.2f %% |\n", name, what,
           100 * sum / n, 100 * x[n / 2], 100 * x[9 * n / 10], 100 * x[19 * n / 20],
           100 * x[n - 1]);
}

static void print(const struct ask *ask, struct figures *all)
{
    puts("| policy | of | mean | p50 | p90 | p95 | max |\n|---|---|---|---|---|---|---|");
    for (int i = 0; i < ask->n_policies; i++) {
        struct figures *f = &all[i];
        if (f->n == 0) {
            continue;
        }
        print_row(ask->policy[i]->name, "J above its bound", f->gap, f->n);
        if (ask->exact) {
            int best = 0;
            for (int k = 0; k < f->n; k++) {
                best += f->miss[k] <= 1e-6;
            }
            print_row(ask->policy[i]->name, "J above the least J", f->miss, f->n);
            print_row(ask->policy[i]->name, "bound below the least J", f->slack, f->n);
            printf("%s: within 1e-6 of the least J in %d of %d\n", ask->policy[i]->name, best,
                   f->n);
        }
        printf("%s: %d decisions, %d without a plan, %.2f ms each, bound %.2f ms\n",
               ask->policy[i]->name, f->n, f->failed, f->solve_ms / f->n, f->bound_ms / f->n);
    }
}

/* --- arguments ------------------------------------------------------------------------------- */

static bool parse(int argc, char **argv, struct ask *ask)
{
    *ask = (struct ask){.worlds = 100,
                        .clusters = 4,
                        .devices = 4,
                        .layers = 12,
                        .first = 1,
                        .backlog = 20,
                        .up_mhz = 40,
                        .effort = CP_LOWER_FULL};
    for (int c; (c = getopt(argc, argv, "w:c:k:l:s:z:u:e:xv")) != -1;) {
        int *number = c == 'w'   ? &ask->worlds
                      : c == 'c' ? &ask->clusters
                      : c == 'k' ? &ask->devices
                      : c == 'l' ? &ask->layers
                                 : NULL;
        if (number) {
            *number = atoi(optarg);
        } else if (c == 's') {
            ask->first = strtoull(optarg, NULL, 10);
        } else if (c == 'z') {
            ask->backlog = atof(optarg);
        } else if (c == 'u') {
            ask->up_mhz = atof(optarg);
        } else if (c == 'e') {
            ask->effort = strcmp(optarg, "fast") == 0 ? CP_LOWER_FAST : CP_LOWER_FULL;
        } else if (c == 'x') {
            ask->exact = true;
        } else if (c == 'v') {
            ask->verbose = true;
        } else {
            return false;
        }
    }
    for (; optind < argc && ask->n_policies < POLICIES_MAX; optind++) {
        ask->policy[ask->n_policies] = cp_policy_find(argv[optind]);
        if (!ask->policy[ask->n_policies++]) {
            return false;
        }
    }
    return ask->worlds > 0 && ask->clusters > 0 && ask->devices > 0 && ask->layers > 0 &&
           ask->n_policies > 0;
}

int main(int argc, char **argv)
{
    struct ask ask;
    struct figures all[POLICIES_MAX] = {{0}};
    if (!parse(argc, argv, &ask)) {
        fputs("bench_quality [-w WORLDS] [-c CLUSTERS] [-k DEVICES] [-l LAYERS] [-e fast|full]\n"
              "              [-z MOST] [-u MHZ] [-x] [-v] [-s FIRST] POLICY...\n",
              stderr);
        return 2;
    }
    int status = 0;
    size_t n = (size_t)ask.worlds;
    for (int i = 0; i < ask.n_policies; i++) {
        all[i].gap = malloc(3 * n * sizeof(double));
        if (!all[i].gap) {
            return 1;
        }
        all[i].miss = all[i].gap + n;
        all[i].slack = all[i].miss + n;
    }
    for (int i = 0; i < ask.worlds && !status; i++) {
        if (one(&ask, i, all) != CP_OK) {
            fprintf(stderr, "world %d: %s\n", i, cp_err_text());
            status = 1;
        }
    }
    print(&ask, all);
    for (int i = 0; i < ask.n_policies; i++) {
        free(all[i].gap);
    }
    return status;
}
