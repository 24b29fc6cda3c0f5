/* sim: studies of policies, against the forecast and the queues of the plan floor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sim/study.h"
#include "unit/plan/worlds.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLUSTERS = 2, DEVICES = 3, LAYERS = 6, ROUNDS = 12, SEEDS = 4, LEAVES = 8, FIRST_SEED = 7 };

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

/* --- worlds ------------------------------------------------------------------------------ */

/* leaves: device 1 of cluster 1 is away from round LEAVES on; no_way: nothing can be sent between
 * its devices 1 and 3. */
struct seat {
    int seed;
    bool leaves, no_way;
    bool present; /* blind: device 1 of cluster 1 in the last round */
    int idle;     /* rounds that it was told of */
};

static cp_err draw_world(int seed, bool leaves, int round, bool mean, struct cp_world *w)
{
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1, .shadow_db = 4};
    struct cp_world fresh;
    CP_TRY(cp_world_draw_default(CLUSTERS, DEVICES, (uint64_t)seed, &fresh));
    fresh.model = toy_model(LAYERS);
    fresh.round = round;
    fresh.cluster[1].data_size = 3;
    cp_world_weigh(&fresh);
    if (!mean) {
        cp_world_draw_rates(&fresh, &fresh, 0.5, (uint64_t)seed);
        fresh.cluster[0].device[0].present = !(leaves && round >= LEAVES);
    }
    cp_channel_draw(&fresh, &ch, (uint64_t)seed, mean);
    cp_world_fini(w);
    *w = fresh;
    return CP_OK;
}

static cp_err seat_world(void *arg, int round, bool mean, struct cp_world *w)
{
    const struct seat *s = arg;
    CP_TRY(draw_world(s->seed, s->leaves, round, mean, w));
    if (s->no_way) {
        w->cluster[0].gain_d2d[1][3] = w->cluster[0].gain_d2d[3][1] = 1e-320;
    }
    return CP_OK;
}

static cp_err seat_queues(void *arg, const struct cp_world *mean, struct cp_queues *q)
{
    (void)arg;
    return cp_queues_init(q, mean, 10);
}

/* Tells in the backlog how many rounds were idle so far. */
static cp_err seat_after(void *arg, const struct cp_study_done *d, struct cp_queues *q,
                         struct cp_study_round *r)
{
    struct seat *s = arg;
    s->present = d->world->cluster[0].device[0].present;
    s->idle += d->plan == NULL;
    r->backlog = s->idle;
    if (d->plan) {
        r->trained = 10 + r->round;
        r->age_s = r->round;
        cp_queues_advance(q, d->world, d->cost);
    }
    return CP_OK;
}

/* The planner knows mean channels, full speed, and who was there in the last round. */
static cp_err seat_believe(void *arg, const struct cp_world *truth, bool sure, struct cp_world *out)
{
    const struct seat *s = arg;
    CP_TRY(draw_world(s->seed, false, truth->round, true, out));
    out->cluster[0].device[0].present = sure ? truth->cluster[0].device[0].present : s->present;
    return CP_OK;
}

static void seat_close(void *arg)
{
    cp_mem_free(arg);
}

/* --- what a study is told and asked ------------------------------------------------------ */

struct desk {
    bool leaves, no_way, keep_moments, blind;
    int fails_to_open; /* from this seed on; 0: never */
    int n;
    struct cp_study_round log[2000];
    int stop_after; /* rounds; 0: never */
    cp_err log_error;
    atomic_int seen;
};

static cp_err open_seat(void *arg, int seed, struct cp_study_case *out)
{
    const struct desk *d = arg;
    struct seat *s;
    if (d->fails_to_open && seed >= d->fails_to_open) {
        return cp_fail(CP_E_CONFIG, "there are no worlds of seed %d", seed);
    }
    CP_TRY(cp_mem_new(NULL, sizeof *s, &s));
    *s = (struct seat){
        .seed = seed + FIRST_SEED, .leaves = d->leaves, .no_way = d->no_way, .present = true};
    *out = (struct cp_study_case){.arg = s,
                                  .args = {.order = CP_ORDER_GPIPE, .seed = (uint64_t)s->seed},
                                  .keep_moments = d->keep_moments,
                                  .world = seat_world,
                                  .queues = seat_queues,
                                  .believe = d->blind ? seat_believe : NULL,
                                  .after = seat_after,
                                  .close = seat_close};
    return CP_OK;
}

static cp_err on_round(void *arg, const struct cp_study_round *r)
{
    struct desk *d = arg;
    if (d->log_error && d->n >= 5) {
        return cp_fail(d->log_error, "the disk is full");
    }
    d->log[d->n++] = *r;
    atomic_fetch_add(&d->seen, 1);
    return CP_OK;
}

static bool stop(void *arg)
{
    struct desk *d = arg;
    return d->stop_after && atomic_load(&d->seen) >= d->stop_after;
}

static struct cp_study study_of(struct desk *d, const struct cp_policy *const *policy, int n)
{
    return (struct cp_study){.policy = policy,
                             .n_policies = n,
                             .n_seeds = SEEDS,
                             .n_rounds = ROUNDS,
                             .n_threads = 1,
                             .open = open_seat,
                             .on_round = on_round,
                             .stop = stop,
                             .arg = d};
}

/* --- policies ---------------------------------------------------------------------------- */

static cp_err decide_as(const char *name, const struct cp_policy_args *a, struct cp_plan *out,
                        struct cp_decision *d)
{
    return cp_policy_find(name)->decide(a, out, d);
}

static cp_err decide_uniform(const struct cp_policy_args *a, struct cp_plan *out,
                             struct cp_decision *d)
{
    return decide_as("gpipe-uniform", a, out, d);
}

/* Gives in to its moods: in rounds 1 and 4 and from LEAVES on it finds no plan. */
static cp_err decide_moody(const struct cp_policy_args *a, struct cp_plan *out,
                           struct cp_decision *d)
{
    int round = a->world->round;
    if (round == 0 || round == 3 || round >= LEAVES) {
        return cp_fail(CP_E_PLAN, "no plan in round %d", round);
    }
    return decide_as("gpipe-uniform", a, out, d);
}

/* Swaps two devices in every second round. */
static cp_err decide_restless(const struct cp_policy_args *a, struct cp_plan *out,
                              struct cp_decision *d)
{
    cp_err err = decide_as("gpipe-uniform", a, out, d);
    if (!err && a->world->round % 2) {
        int first = out->cluster[0].device[0];
        out->cluster[0].device[0] = out->cluster[0].device[1];
        out->cluster[0].device[1] = first;
    }
    return err;
}

/* Breaks on the last three seeds. Side by side it does so in this order: fourth, second, third. */
static struct {
    bool side_by_side;
    atomic_int broken;
} breaking;

static cp_err decide_broken(const struct cp_policy_args *a, struct cp_plan *out,
                            struct cp_decision *d)
{
    static const int ROUND[SEEDS] = {-1, 5, 9, 3}, TURN[SEEDS] = {-1, 1, 2, 0};
    int seed = (int)a->seed - FIRST_SEED;
    if (a->world->round != ROUND[seed]) {
        return decide_as("gpipe-uniform", a, out, d);
    }
    while (breaking.side_by_side && atomic_load(&breaking.broken) < TURN[seed]) {
        sched_yield();
    }
    usleep(breaking.side_by_side ? 2000 : 0); /* until the one before is written down */
    atomic_fetch_add(&breaking.broken, 1);
    return cp_fail(CP_E_NOMEM, "out of memory in round %d", a->world->round);
}

/* Turns the pipeline round in every round but the sixth, when it finds no plan. */
static cp_err decide_turning(const struct cp_policy_args *a, struct cp_plan *out,
                             struct cp_decision *d)
{
    int round = a->world->round;
    if (round == 5) {
        return cp_fail(CP_E_PLAN, "dizzy");
    }
    cp_err err = decide_as("gpipe-uniform", a, out, d);
    if (!err && round % 2) {
        int first = out->cluster[0].device[0];
        out->cluster[0].device[0] = out->cluster[0].device[2];
        out->cluster[0].device[2] = first;
    }
    return err;
}

/* Sees to what it is asked with: its last plan, its queues, mean channels. Takes turns between an
 * order that fills the memory and one that does not. */
static struct {
    int rounds, last_device;
    double convergence;
    size_t mem_bytes[ROUNDS];
} witness;

static cp_err decide_witness(const struct cp_policy_args *a, struct cp_plan *out,
                             struct cp_decision *d)
{
    struct cp_policy_args other = *a;
    other.order = a->world->round % 2 ? CP_ORDER_SEQ : CP_ORDER_GPIPE;
    assert_int_equal(a->world->round, witness.rounds);
    assert_true((a->incumbent == NULL) == (witness.rounds == 0));
    assert_true(!a->incumbent || a->incumbent->cluster[0].device[0] == witness.last_device);
    assert_non_null(a->queues);
    assert_true(witness.rounds == 0 || a->queues->convergence == witness.convergence);
    assert_true(a->mean->cluster[0].gain_d2e[0] != a->world->cluster[0].gain_d2e[0]);
    witness.rounds++;
    witness.convergence = a->queues->convergence; /* gamma is 1: it stays */
    CP_TRY(decide_as("greedy", &other, out, d));
    for (int c = 0; c < CLUSTERS; c++) {
        for (int s = 0; s < out->cluster[c].segments; s++) {
            size_t need = toy_bytes(&TOY, out->cluster[c].layers[s], out->cluster[c].slots[s + 1]);
            size_t *most = &witness.mem_bytes[a->world->round];
            *most = need > *most ? need : *most;
        }
    }
    witness.last_device = out->cluster[0].device[0];
    return CP_OK;
}

static const struct cp_policy UNIFORM = {.name = "gpipe-uniform", .decide = decide_uniform};
static const struct cp_policy TWIN = {.name = "twin", .decide = decide_uniform};
static const struct cp_policy MOODY = {.name = "moody", .decide = decide_moody};
static const struct cp_policy RESTLESS = {.name = "restless", .decide = decide_restless};
static const struct cp_policy TURNING = {.name = "turning", .decide = decide_turning};
static const struct cp_policy WITNESS = {.name = "witness", .decide = decide_witness};
static const struct cp_policy BROKEN = {.name = "broken", .decide = decide_broken};

/* --- figures ----------------------------------------------------------------------------- */

/* What section 14 says of one round of a plan, from the forecast. */
struct figures {
    double latency_s, energy_j, gamma, queue, bubble, work, capacity;
    double ratio[CLUSTERS][DEVICES + 1];
};

static void add_figures(struct figures *sum, const struct cp_plan *p, const struct cp_world *w,
                        const struct cp_forecast *f)
{
    double stages = 0, bubbles = 0;
    sum->latency_s += f->latency_s;
    sum->energy_j += f->energy_j;
    sum->gamma += f->gamma;
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_plan *cp = &p->cluster[c];
        const struct cp_cluster *cl = &w->cluster[c];
        double flops = w->model.layer.work_fwd_flops + w->model.layer.work_bwd_flops;
        for (int s = 0; s < cp->segments; s++) {
            sum->work += cp->micro_batches * cp->layers[s] * flops;
            sum->capacity += cl->device[cp->device[s]].rate_flops * f->cluster[c].step_s;
        }
        sum->ratio[c][0] += f->cluster[c].energy_j[0] / cl->cu.budget_j;
        for (int k = 0; k < cl->n_devices; k++) {
            sum->ratio[c][k + 1] += f->cluster[c].energy_j[k + 1] / cl->device[k].budget_j;
        }
        stages += cp->segments + 2;
        bubbles += f->cluster[c].bubble * (cp->segments + 2);
    }
    sum->bubble += bubbles / stages;
}

static double queue_sum(const struct cp_queues *q)
{
    double sum = q->convergence;
    for (int c = 0; c < CLUSTERS; c++) {
        for (int node = 0; node <= DEVICES; node++) {
            sum += q->energy[c][node];
        }
    }
    return sum;
}

/* The course of one task, done again with the forecast in place of the simulator. */
static void reference(const char *policy, int seed, struct figures *sum)
{
    struct cp_world mean = {0}, w = {0};
    struct cp_queues q;
    *sum = (struct figures){0};
    assert_int_equal(draw_world(seed, false, 0, true, &mean), CP_OK);
    assert_int_equal(cp_queues_init(&q, &mean, 10), CP_OK);
    for (int round = 0; round < ROUNDS; round++) {
        struct cp_plan p;
        struct cp_decision d;
        struct cp_forecast f;
        assert_int_equal(draw_world(seed, false, round, false, &w), CP_OK);
        struct cp_policy_args a = {.world = &w,
                                   .mean = &mean,
                                   .queues = &q,
                                   .order = CP_ORDER_GPIPE,
                                   .seed = (uint64_t)seed};
        sum->queue += queue_sum(&q);
        assert_int_equal(cp_policy_decide(cp_policy_find(policy), &a, &p, &d), CP_OK);
        assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &f), CP_OK);
        add_figures(sum, &p, &w, &f);
        cp_queues_advance(&q, &w, &f);
        cp_forecast_fini(&f);
        cp_plan_fini(&p);
    }
    cp_queues_fini(&q);
    cp_world_fini(&w);
    cp_world_fini(&mean);
}

static double max_ratio(const struct figures *f, int *cluster, int *node)
{
    double most = 0;
    for (int c = 0; c < CLUSTERS; c++) {
        for (int n = 0; n <= DEVICES; n++) {
            if (f->ratio[c][n] > most) {
                most = f->ratio[c][n];
                *cluster = c;
                *node = n;
            }
        }
    }
    return most / ROUNDS;
}

static void test_figures_are_the_forecasts(void **state)
{
    (void)state;
    static struct desk d;
    d = (struct desk){0};
    const struct cp_policy *const policy[] = {cp_policy_find("greedy"), cp_policy_find("random")};
    struct cp_study s = study_of(&d, policy, 2);
    struct cp_study_result r;
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    assert_int_equal(d.n, 2 * SEEDS * ROUNDS);
    for (int i = 0; i < 2 * SEEDS; i++) {
        const struct cp_study_run *run = &r.run[i];
        struct figures f;
        char node[CP_SIM_NAME];
        int c = 0, k = 0;
        reference(policy[i / SEEDS]->name, i % SEEDS + FIRST_SEED, &f);
        assert_true(run->done && run->rounds == ROUNDS && run->kept == 0 && run->idle == 0);
        assert_near(run->latency_s.mean, f.latency_s / ROUNDS);
        assert_near(run->energy_j.mean, f.energy_j / ROUNDS);
        assert_near(run->gamma.mean, f.gamma / ROUNDS);
        assert_near(run->queue.mean, f.queue / ROUNDS);
        assert_near(run->bubble.mean, f.bubble / ROUNDS);
        assert_near(run->efficiency, f.work / f.capacity);
        assert_near(run->energy_ratio_max, max_ratio(&f, &c, &k));
        if (k == 0) {
            snprintf(node, sizeof node, "c%d.cu", c + 1);
        } else {
            snprintf(node, sizeof node, "c%d.d%d", c + 1, k);
        }
        assert_string_equal(run->energy_node, node);
        assert_true(run->mem_full_bytes == toy_model(LAYERS).full_bytes_micro);
        assert_true(run->mem_full_batch_bytes == toy_model(LAYERS).full_bytes_batch);
        assert_true(run->why[0] == 0 && run->moves == 0 && run->cpu_s > 0);
    }
    cp_study_result_fini(&r);
}

/* By hand: 6 layers on 3 devices of 2 each, gpipe with M = 8. */
static void test_memory_and_slots_by_hand(void **state)
{
    (void)state;
    static struct desk d;
    d = (struct desk){0};
    const struct cp_policy *const policy[] = {&UNIFORM};
    struct cp_study s = study_of(&d, policy, 1);
    struct cp_study_result r;
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    for (int i = 0; i < SEEDS; i++) {
        assert_int_equal(r.run[i].mem_peak_bytes, toy_bytes(&TOY, 2, 8));
        assert_int_equal(r.run[i].in_flight_peak, 8);
        assert_near(r.run[i].gamma.mean, 1);
    }
    for (int i = 0; i < d.n; i++) { /* one thread: seed by seed, round by round */
        assert_int_equal(d.log[i].seed, i / ROUNDS);
        assert_int_equal(d.log[i].round, i % ROUNDS);
        assert_true(d.log[i].efficiency > 0 && d.log[i].efficiency < 1);
        assert_true(d.log[i].bubble > 0 && d.log[i].bubble < 1);
        assert_true(d.log[i].energy_ratio > 0 && isfinite(d.log[i].energy_ratio));
    }
    cp_study_result_fini(&r);
}

/* --- threads and pairs ------------------------------------------------------------------- */

static void assert_same_mean(const struct cp_mean *a, const struct cp_mean *b)
{
    assert_true(a->n == b->n && a->mean == b->mean && a->squares == b->squares);
}

static void assert_same_run(const struct cp_study_run *a, const struct cp_study_run *b)
{
    assert_true(a->done == b->done && a->rounds == b->rounds && a->kept == b->kept &&
                a->idle == b->idle && a->moves == b->moves);
    assert_string_equal(a->why, b->why);
    assert_string_equal(a->energy_node, b->energy_node);
    assert_same_mean(&a->latency_s, &b->latency_s);
    assert_same_mean(&a->energy_j, &b->energy_j);
    assert_same_mean(&a->gamma, &b->gamma);
    assert_same_mean(&a->bubble, &b->bubble);
    assert_same_mean(&a->queue, &b->queue);
    assert_true(a->efficiency == b->efficiency && a->energy_ratio_max == b->energy_ratio_max);
    assert_true(a->mem_peak_bytes == b->mem_peak_bytes && a->in_flight_peak == b->in_flight_peak);
}

static int compare_rounds(const void *a, const void *b)
{
    const struct cp_study_round *x = a, *y = b;
    int sign = x->policy - y->policy;
    sign = sign ? sign : x->seed - y->seed;
    return sign ? sign : x->round - y->round;
}

static void test_any_number_of_threads(void **state)
{
    (void)state;
    static struct desk one, more;
    one = (struct desk){.leaves = true, .keep_moments = true};
    const struct cp_policy *const policy[] = {&RESTLESS, cp_policy_find("dssda"), &MOODY,
                                              cp_policy_find("random")};
    struct cp_study s = study_of(&one, policy, 4);
    struct cp_study_result a, b;
    assert_int_equal(cp_study_run(&s, &a), CP_OK);
    qsort(one.log, (size_t)one.n, sizeof one.log[0], compare_rounds);
    for (int threads = 2; threads <= 32; threads *= 4) {
        more = (struct desk){.leaves = true, .keep_moments = true};
        s.arg = &more;
        s.n_threads = threads; /* also more threads than tasks */
        assert_int_equal(cp_study_run(&s, &b), CP_OK);
        for (int i = 0; i < 4 * SEEDS; i++) {
            assert_same_run(&a.run[i], &b.run[i]);
        }
        qsort(more.log, (size_t)more.n, sizeof more.log[0], compare_rounds);
        assert_int_equal(one.n, more.n);
        for (int i = 0; i < one.n; i++) {
            const struct cp_study_round *x = &one.log[i], *y = &more.log[i];
            assert_true(compare_rounds(x, y) == 0 && x->outcome == y->outcome);
            assert_true(x->latency_s == y->latency_s && x->queue == y->queue &&
                        x->energy_j == y->energy_j && x->efficiency == y->efficiency);
        }
        cp_study_result_fini(&b);
    }
    cp_study_result_fini(&a);
}

static void test_policies_meet_the_same_worlds(void **state)
{
    (void)state;
    static struct desk d;
    d = (struct desk){0};
    const struct cp_policy *const policy[] = {&UNIFORM, &TWIN, cp_policy_find("greedy")};
    struct cp_study s = study_of(&d, policy, 3);
    struct cp_study_result r;
    struct cp_study_summary first, twin, greedy;
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    for (int i = 0; i < SEEDS; i++) {
        assert_same_run(&r.run[i], &r.run[SEEDS + i]);
        assert_true(i == 0 || r.run[i].latency_s.mean != r.run[0].latency_s.mean);
    }
    cp_study_sum_up(&r, 0, &first);
    cp_study_sum_up(&r, 1, &twin);
    cp_study_sum_up(&r, 2, &greedy);
    assert_true(twin.against_first.latency_diff_s.n == SEEDS &&
                twin.against_first.latency_diff_s.mean == 0);
    assert_true(twin.against_first.latency_ratio.mean == 1 &&
                cp_mean_ci95(&twin.against_first.latency_ratio) == 0);
    assert_true(cp_mean_ci95(&first.latency_s) > 0);
    assert_near(greedy.against_first.latency_diff_s.mean,
                greedy.latency_s.mean - first.latency_s.mean);
    cp_study_result_fini(&r);
}

/* Two policies on three seeds, the last of which only one has finished. */
static void test_sums_by_hand(void **state)
{
    (void)state;
    struct cp_study_run run[6] = {{0}};
    struct cp_study_result r = {.n_policies = 2, .n_seeds = 3, .run = run};
    const double latency_s[6] = {10, 20, 99, 15, 20, 1};
    const double ratio[6] = {0.5, 0.9, 9, 1.5, 1.2, 9};
    for (int i = 0; i < 6; i++) {
        run[i] = (struct cp_study_run){.done = i != 5,
                                       .rounds = 4,
                                       .kept = 1,
                                       .latency_s = {4, latency_s[i], 1},
                                       .efficiency = 0.25 * (1 + i % 3),
                                       .energy_ratio_max = ratio[i],
                                       .mem_peak_bytes = (size_t)(100 + i),
                                       .in_flight_peak = i,
                                       .cpu_s = 0.5};
        snprintf(run[i].energy_node, sizeof run[i].energy_node, "n%d", i);
    }
    snprintf(run[4].why, sizeof run[4].why, "because");
    struct cp_study_summary s;
    cp_study_sum_up(&r, 1, &s);
    assert_true(s.seeds == 2 && s.rounds == 8 && s.kept == 2 && s.idle == 0);
    assert_near(s.latency_s.mean, 17.5);
    assert_near(cp_mean_ci95(&s.latency_s), 12.706204736174705 * 2.5);
    assert_near(s.against_first.latency_diff_s.mean, 2.5);
    assert_near(s.against_first.latency_ratio.mean, 1.25);
    assert_near(s.efficiency.mean, 0.375);
    assert_near(s.energy_ratio.mean, 1.35);
    assert_near(s.energy_ratio_max, 1.5);
    assert_string_equal(s.energy_node, "n3");
    assert_string_equal(s.why, "because");
    assert_int_equal(s.mem_peak_bytes, 104);
    assert_int_equal(s.in_flight_peak, 4);
    assert_near(s.rounds_per_s, 8);
}

/* --- rounds without a plan --------------------------------------------------------------- */

static void test_rounds_without_a_plan(void **state)
{
    (void)state;
    static struct desk d;
    d = (struct desk){.leaves = true};
    const struct cp_policy *const policy[] = {&MOODY, &UNIFORM};
    struct cp_study s = study_of(&d, policy, 2);
    struct cp_study_result r;
    struct cp_study_summary x;
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    for (int i = 0; i < SEEDS; i++) {
        const struct cp_study_run *run = &r.run[i];
        /* before there is any plan, and when the last one needs a device that is away */
        assert_int_equal(run->idle, 1 + ROUNDS - LEAVES);
        assert_int_equal(run->kept, 1);
        assert_int_equal(run->rounds, LEAVES - 1);
        assert_int_equal(run->latency_s.n, run->rounds);
        assert_int_equal(run->queue.n, ROUNDS);
        assert_string_equal(run->why, "round 1: no plan in round 0");
        assert_int_equal(r.run[SEEDS + i].rounds, ROUNDS);
        assert_int_equal(run->backlog.n, ROUNDS);
    }
    for (int i = 0; i < ROUNDS; i++) {
        const struct cp_study_round *l = &d.log[i];
        bool idle = l->round == 0 || l->round >= LEAVES;
        assert_int_equal(l->outcome, idle            ? CP_STUDY_IDLE
                                     : l->round == 3 ? CP_STUDY_KEPT
                                                     : CP_STUDY_PLANNED);
        assert_true((l->latency_s > 0) == !idle);
        assert_true(l->backlog == (l->round < LEAVES ? 1 : 2 + l->round - LEAVES));
        assert_true(isfinite(l->queue));
        assert_true(i == 0 || l->round != LEAVES + 1 || l->queue == d.log[i - 1].queue);
    }
    cp_study_sum_up(&r, 0, &x);
    assert_true(x.idle == SEEDS * (1 + ROUNDS - LEAVES) && x.kept == SEEDS);
    assert_string_equal(x.why, "round 1: no plan in round 0");
    cp_study_result_fini(&r);
}

/* Samples count by themselves, not by rounds. */
static void test_freshness(void **state)
{
    (void)state;
    static struct desk d;
    d = (struct desk){0};
    const struct cp_policy *const policy[] = {&UNIFORM};
    struct cp_study s = study_of(&d, policy, 1);
    struct cp_study_result r;
    struct cp_study_summary x;
    double samples = 0, sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        samples += 10 + i;
        sum += (10 + i) * i;
    }
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    assert_near(r.run[0].trained, samples);
    assert_near(r.run[0].age_s, sum / samples);
    cp_study_sum_up(&r, 0, &x);
    assert_true(x.age_s.n == SEEDS && x.backlog.mean == 0 && x.stage_error.n == 0);
    cp_study_result_fini(&r);
}

/* --- a planner that does not see the truth ------------------------------------------------ */

/* It plans in the world that it believes in, the round runs in the true one, and a device that is
 * gone is missed once. */
static void test_belief(void **state)
{
    (void)state;
    static struct desk blind, sees;
    const struct cp_policy *const policy[] = {&TWIN, cp_policy_find("greedy")};
    struct cp_study_result x, y;
    struct cp_study_pair pair;
    blind = (struct desk){.blind = true, .leaves = true};
    sees = (struct desk){.leaves = true};
    struct cp_study s = study_of(&blind, policy, 2);
    assert_int_equal(cp_study_run(&s, &x), CP_OK);
    s = study_of(&sees, policy, 2);
    assert_int_equal(cp_study_run(&s, &y), CP_OK);
    for (int i = 0; i < SEEDS; i++) {
        assert_int_equal(x.run[i].rounds, ROUNDS);
        assert_int_equal(x.run[i].redecided, 1);
        assert_int_equal(y.run[i].redecided, 0);
        /* an equal cut needs no knowledge, greedy does */
        assert_true(x.run[i].latency_s.mean == y.run[i].latency_s.mean);
        assert_true(x.run[SEEDS + i].latency_s.mean != y.run[SEEDS + i].latency_s.mean);
    }
    for (int i = 0; i < ROUNDS; i++) {
        assert_true(blind.log[i].redecided == (blind.log[i].round == LEAVES));
        assert_int_equal(blind.log[i].outcome, CP_STUDY_PLANNED);
    }
    cp_study_compare(&x, 0, &y, 0, &pair);
    assert_true(pair.latency_ratio.n == SEEDS && pair.latency_ratio.mean == 1);
    cp_study_compare(&x, 1, &y, 1, &pair);
    assert_near(pair.latency_diff_s.mean,
                (x.run[4].latency_s.mean + x.run[5].latency_s.mean + x.run[6].latency_s.mean +
                 x.run[7].latency_s.mean - y.run[4].latency_s.mean - y.run[5].latency_s.mean -
                 y.run[6].latency_s.mean - y.run[7].latency_s.mean) /
                    SEEDS);
    y.run[3].done = false; /* a seed that one of them has not finished */
    cp_study_compare(&x, 1, &y, 1, &pair);
    assert_int_equal(pair.latency_ratio.n, SEEDS - 1);
    cp_study_result_fini(&x);
    cp_study_result_fini(&y);
}

/* Insists on device 1 of cluster 1: there is no plan without it, whatever is believed. */
static cp_err decide_stubborn(const struct cp_policy_args *a, struct cp_plan *out,
                              struct cp_decision *d)
{
    CP_TRY(decide_as("gpipe-uniform", a, out, d));
    out->cluster[0].device[0] = 0;
    return CP_OK;
}

static void test_belief_without_a_plan(void **state)
{
    (void)state;
    static const struct cp_policy STUBBORN = {.name = "stubborn", .decide = decide_stubborn};
    static struct desk d;
    d = (struct desk){.blind = true, .leaves = true};
    const struct cp_policy *const policy[] = {&STUBBORN};
    struct cp_study s = study_of(&d, policy, 1);
    struct cp_study_result r;
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    assert_int_equal(r.run[0].rounds, LEAVES);
    assert_int_equal(r.run[0].idle, ROUNDS - LEAVES);
    assert_int_equal(r.run[0].redecided, ROUNDS - LEAVES);
    assert_non_null(strstr(r.run[0].why, "d1, which is absent"));
    cp_study_result_fini(&r);
}

static cp_err decide_never(const struct cp_policy_args *a, struct cp_plan *out,
                           struct cp_decision *d)
{
    (void)a;
    (void)out;
    (void)d;
    return cp_fail(CP_E_PLAN, "never");
}

static void test_a_policy_that_never_plans(void **state)
{
    (void)state;
    static const struct cp_policy NEVER = {.name = "never", .decide = decide_never};
    static struct desk d;
    d = (struct desk){0};
    const struct cp_policy *const policy[] = {&NEVER, &UNIFORM};
    struct cp_study s = study_of(&d, policy, 2);
    struct cp_study_result r;
    struct cp_study_summary x;
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    cp_study_sum_up(&r, 0, &x);
    assert_true(x.seeds == SEEDS && x.rounds == 0 && x.idle == SEEDS * ROUNDS);
    assert_true(x.latency_s.n == 0 && x.efficiency.n == 0 && isnan(x.energy_ratio_max));
    assert_true(x.queue.n == SEEDS && isfinite(x.queue.mean));
    cp_study_sum_up(&r, 1, &x); /* nothing to be compared with */
    assert_true(x.latency_s.n == SEEDS && x.against_first.latency_ratio.n == 0 &&
                x.against_first.latency_diff_s.n == 0);
    cp_study_result_fini(&r);
}

static void test_moments_move_along(void **state)
{
    (void)state;
    static struct desk d;
    const struct cp_policy *const policy[] = {&RESTLESS};
    struct cp_study s = study_of(&d, policy, 1);
    struct cp_study_result stays, moves;
    d = (struct desk){0};
    assert_int_equal(cp_study_run(&s, &stays), CP_OK);
    d = (struct desk){.keep_moments = true};
    assert_int_equal(cp_study_run(&s, &moves), CP_OK);
    for (int i = 0; i < SEEDS; i++) {
        assert_int_equal(stays.run[i].moves, 0);
        assert_int_equal(moves.run[i].moves, 4 * (ROUNDS - 1)); /* 2 devices of 2 layers swap */
        assert_true(moves.run[i].energy_j.mean > stays.run[i].energy_j.mean);
        assert_true(moves.run[i].latency_s.mean >= stays.run[i].latency_s.mean);
    }
    cp_study_result_fini(&stays);
    cp_study_result_fini(&moves);

    const struct cp_policy *const turning[] = {&TURNING};
    s = study_of(&d, turning, 1);
    d = (struct desk){.keep_moments = true};
    assert_int_equal(cp_study_run(&s, &moves), CP_OK);
    for (int i = 1; i < ROUNDS; i++) { /* a plan that is kept moves nothing */
        assert_int_equal(d.log[i].moves, i == 5 || i == 6 ? 0 : 4);
    }
    cp_study_result_fini(&moves);
    d = (struct desk){.keep_moments = true, .no_way = true};
    assert_int_equal(cp_study_run(&s, &moves), CP_E_NONFINITE);
    assert_non_null(
        strstr(cp_err_text(), "policy turning, seed 1: round 2: the round would never"));
}

static void test_what_a_policy_is_asked_with(void **state)
{
    (void)state;
    static struct desk d;
    d = (struct desk){0};
    const struct cp_policy *const policy[] = {&WITNESS};
    struct cp_study s = study_of(&d, policy, 1);
    struct cp_study_result r;
    witness.rounds = 0;
    s.n_seeds = 1;
    assert_int_equal(cp_study_run(&s, &r), CP_OK);
    assert_int_equal(witness.rounds, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) { /* of the plan of the round, not of any before */
        assert_int_equal(d.log[i].mem_peak_bytes, witness.mem_bytes[i]);
        assert_int_equal(d.log[i].in_flight_peak, i % 2 ? 1 : 8);
    }
    cp_study_result_fini(&r);
}

/* --- unhappy paths ----------------------------------------------------------------------- */

static void test_the_first_failure_is_told(void **state)
{
    (void)state;
    static struct desk d;
    const struct cp_policy *const policy[] = {&UNIFORM, &BROKEN};
    struct cp_study s = study_of(&d, policy, 2);
    struct cp_study_result r = {.n_seeds = 42};
    for (int threads = 1; threads <= 2 * SEEDS; threads += 2 * SEEDS - 1) {
        d = (struct desk){0};
        s.n_threads = threads;
        breaking.side_by_side = threads > 1;
        atomic_store(&breaking.broken, 0);
        assert_int_equal(cp_study_run(&s, &r), CP_E_NOMEM);
        assert_string_equal(cp_err_text(),
                            "policy broken, seed 2: round 6: out of memory in round 5");
        assert_int_equal(r.n_seeds, 42);
        assert_true(threads > 1 || d.n == 3 * ROUNDS + 5); /* nothing was begun afterwards */
    }
    breaking.side_by_side = false;
    d = (struct desk){.fails_to_open = 2};
    assert_int_equal(cp_study_run(&s, &r), CP_E_NOMEM); /* the earlier one still */
    s.n_policies = 1;
    assert_int_equal(cp_study_run(&s, &r), CP_E_CONFIG);
    assert_string_equal(cp_err_text(),
                        "policy gpipe-uniform, seed 3: there are no worlds of seed 2");
    d = (struct desk){.log_error = CP_E_NOSPACE};
    s.n_threads = 1;
    assert_int_equal(cp_study_run(&s, &r), CP_E_NOSPACE);
    assert_non_null(strstr(cp_err_text(), "the disk is full"));
    assert_int_equal(d.n, 5);
    assert_int_equal(r.n_seeds, 42);
}

static void test_stopped(void **state)
{
    (void)state;
    static struct desk d;
    const struct cp_policy *const policy[] = {&UNIFORM, &TWIN};
    struct cp_study s = study_of(&d, policy, 2);
    struct cp_study_result r;
    struct cp_study_summary x;
    d = (struct desk){.stop_after = 5 * ROUNDS / 2}; /* amid the first policy's second seed */
    assert_int_equal(cp_study_run(&s, &r), CP_E_STOPPED);
    assert_int_equal(d.n, 5 * ROUNDS / 2);
    assert_true(r.run[0].done && r.run[SEEDS].done && !r.run[1].done && !r.run[SEEDS + 1].done);
    cp_study_sum_up(&r, 1, &x);
    assert_true(x.seeds == 1 && x.rounds == ROUNDS && x.latency_s.n == 1);
    cp_study_result_fini(&r);

    d = (struct desk){.stop_after = 1};
    s.n_threads = 3;
    assert_int_equal(cp_study_run(&s, &r), CP_E_STOPPED);
    cp_study_sum_up(&r, 0, &x);
    assert_true(x.seeds == 0 && x.latency_s.n == 0 && x.rounds_per_s == 0);
    cp_study_result_fini(&r);
}

static void test_no_memory_anywhere(void **state)
{
    (void)state;
    static struct desk d;
    const struct cp_policy *const policy[] = {&RESTLESS};
    struct cp_study s = study_of(&d, policy, 1);
    struct cp_study_result r;
    cp_err err = CP_E_NOMEM;
    int n = 0;
    s.n_seeds = 1;
    s.n_rounds = 2;
    while (err) {
        d = (struct desk){.keep_moments = true};
        cp_mem_fail_at((uint64_t)++n);
        err = cp_study_run(&s, &r);
        cp_mem_fail_at(0);
        assert_true(err == CP_OK || err == CP_E_NOMEM);
        assert_true(n < 200);
    }
    assert_true(n > 20);
    cp_study_result_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_are_the_forecasts),
        cmocka_unit_test(test_memory_and_slots_by_hand),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_policies_meet_the_same_worlds),
        cmocka_unit_test(test_sums_by_hand),
        cmocka_unit_test(test_rounds_without_a_plan),
        cmocka_unit_test(test_freshness),
        cmocka_unit_test(test_belief),
        cmocka_unit_test(test_belief_without_a_plan),
        cmocka_unit_test(test_a_policy_that_never_plans),
        cmocka_unit_test(test_moments_move_along),
        cmocka_unit_test(test_what_a_policy_is_asked_with),
        cmocka_unit_test(test_the_first_failure_is_told),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_no_memory_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
