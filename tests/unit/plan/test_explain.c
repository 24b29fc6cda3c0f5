/* explain, whatif: neighbours of a decision against plans made by hand, and what changes a cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/draft.h"
#include "plan/explain.h"
#include "plan/whatif.h"
#include "unit/plan/worlds.h"

#include <stdlib.h>

enum { WORLDS = 150 };

struct scene {
    struct cp_world w;
    struct cp_queues q;
    struct cp_policy_args a;
    const struct cp_policy *policy;
    struct cp_plan plan;
    struct cp_decision d;
    struct cp_why why;
};

/* A drawn world with memory for about `room` layers per device with one slot; policy decides. */
static void open_scene(struct scene *x, int clusters, int devices, int layers, double room,
                       const char *policy, uint64_t seed)
{
    struct cp_rng r;
    *x = (struct scene){.policy = cp_policy_find(policy)};
    toy_world(&x->w, clusters, devices, layers, seed);
    toy_queues(&x->q, &x->w, 20, seed);
    cp_rng_init(&r, seed, CP_RNG_TEST, 9, 0);
    for (int c = 0; c < clusters; c++) {
        for (int k = 0; k < devices; k++) {
            struct cp_device *d = &x->w.cluster[c].device[k];
            d->mem_bytes = (size_t)(room * cp_rng_range(&r, 0.7, 1.5) * (107 << 20)) + (6 << 20);
            d->power_d2d_w *= cp_rng_range(&r, 0.3, 1);
            d->power_d2e_w *= cp_rng_range(&r, 0.3, 1);
        }
    }
    x->a = (struct cp_policy_args){.world = &x->w,
                                   .mean = &x->w,
                                   .queues = &x->q,
                                   .order = CP_ORDER_1F1B,
                                   .choose_order = true,
                                   .choose_micro = true,
                                   .seed = seed};
}

/* The decision, but with shares and powers of the upload that are not what policies would give. */
static bool decide(struct scene *x)
{
    if (cp_policy_decide(x->policy, &x->a, &x->plan, &x->d) != CP_OK) {
        return false;
    }
    for (int c = 0; c < x->plan.n_clusters; c++) {
        x->plan.cluster[c].uplink_share *= 0.8;
        x->plan.cluster[c].power_up_w = 0.5 * x->w.cluster[c].cu.power_d2e_w;
    }
    x->d.objective = cp_plan_objective(&x->plan, &x->w, x->a.queues);
    assert_int_equal(cp_why_make(&x->a, &x->plan, &x->why), CP_OK);
    return true;
}

static void close_scene(struct scene *x)
{
    cp_why_fini(&x->why);
    cp_plan_fini(&x->plan);
    cp_queues_fini(&x->q);
    cp_world_fini(&x->w);
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

/* J and T of the decision with another plan for one cluster, the long way. */
static bool value_of(struct scene *x, int cluster, const struct cp_cluster_plan *c,
                     double *objective, double *latency_s)
{
    struct cp_cluster_plan was = x->plan.cluster[cluster];
    struct cp_forecast f;
    x->plan.cluster[cluster] = *c;
    bool holds = cp_plan_check(&x->plan, &x->w) == CP_OK;
    if (holds) {
        assert_int_equal(cp_forecast_make(&x->plan, &x->w, NULL, 0, &f), CP_OK);
        *objective = cp_plan_objective(&x->plan, &x->w, &x->q);
        *latency_s = f.latency_s;
        cp_forecast_fini(&f);
    }
    x->plan.cluster[cluster] = was;
    return holds;
}

/* The best change of one layer between two used devices that both stay, found by trying all. */
static void check_layers(struct scene *x, int cluster)
{
    const struct cp_cluster_plan *was = &x->plan.cluster[cluster];
    for (int to = 0; to < was->segments; to++) {
        const struct cp_device_why *d = &x->why.cluster[cluster].device[was->device[to]];
        double best = INFINITY, least = INFINITY, objective, latency_s;
        for (int other = 0; other < was->segments; other++) {
            for (int sign = -1; sign <= 1 && other != to; sign += 2) {
                struct cp_cluster_plan c = *was;
                c.layers[to] += sign;
                c.layers[other] -= sign;
                if (c.layers[other] == 0 || c.layers[to] == 0 ||
                    !value_of(x, cluster, &c, &objective, &latency_s)) {
                    continue;
                }
                *(sign > 0 ? &best : &least) = fmin(sign > 0 ? best : least, objective);
                assert_true(sign > 0 ? d->more.possible : d->less.possible);
            }
        }
        /* joining and leaving devices may be better still */
        assert_true(!isfinite(best) || d->more.objective <= best * (1 + 1e-12));
        assert_true(!isfinite(least) || d->less.objective <= least * (1 + 1e-12));
        assert_int_equal(d->segment, to);
        assert_int_equal(d->layers, was->layers[to]);
        assert_int_equal(d->mem_bytes, toy_bytes(&TOY, was->layers[to], was->slots[to + 1]));
    }
}

/* The best way for a stand-by device to join with one layer, by hand; the upload stays as it is. */
static void check_join(struct scene *x, int cluster, int device)
{
    const struct cp_cluster_plan *was = &x->plan.cluster[cluster];
    const struct cp_device_why *d = &x->why.cluster[cluster].device[device];
    double best = INFINITY, objective, latency_s;
    for (int s = 0; s < was->segments; s++) {
        for (int at = 0; at <= was->segments && was->layers[s] > 1; at++) {
            struct cp_cluster_plan c = *was;
            for (int i = 0, from = 0; i <= was->segments; i++) {
                c.device[i] = i == at ? device : was->device[from];
                c.layers[i] = i == at ? 1 : was->layers[from] - (from == s);
                from += i != at;
            }
            c.segments++;
            cp_plan_set_slots(&c);
            cp_draft_radio(&c, &x->w, cluster);
            c.uplink_share = was->uplink_share;
            c.power_up_w = was->power_up_w;
            if (value_of(x, cluster, &c, &objective, &latency_s)) {
                best = fmin(best, objective);
            }
        }
    }
    assert_int_equal(d->more.possible, isfinite(best));
    if (isfinite(best)) {
        assert_near(d->more.objective, best);
    }
    assert_true(d->segment == -1 && d->layers == 0 && !d->less.possible);
}

/* Every neighbour that is named is a plan that holds, with the J and T that it is said to have. */
static void test_neighbours_hold(void **state)
{
    (void)state;
    static const char *const POLICIES[] = {"dssda", "gpipe-uniform", "greedy", "random"};
    int found = 0, kinds[CP_NEIGHBOUR_ORDER + 1] = {0}, full = 0;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct scene x;
        open_scene(&x, 1 + (int)seed % 3, 2 + (int)seed % 4, 5, 1.5 + (double)(seed % 5),
                   POLICIES[seed % 4], seed);
        x.a.choose_micro = seed % 2;
        if (!decide(&x)) {
            close_scene(&x);
            continue;
        }
        found++;
        assert_near(x.why.latency_cost + x.why.energy_cost + x.why.convergence_cost, x.d.objective);
        if (x.why.has_next) {
            const struct cp_neighbour *n = &x.why.next;
            double objective, latency_s;
            if (!value_of(&x, n->cluster, &n->plan, &objective, &latency_s)) {
                fail_msg("kind %d: %s", (int)n->kind, cp_err_text());
            }
            assert_near(n->objective, objective);
            assert_near(n->latency_s, latency_s);
            assert_true(x.a.choose_micro || n->kind != CP_NEIGHBOUR_MICRO);
            kinds[n->kind]++;
        }
        for (int c = 0; c < x.w.n_clusters; c++) {
            check_layers(&x, c);
            for (int k = 0; k < x.w.cluster[c].n_devices; k++) {
                const struct cp_device_why *d = &x.why.cluster[c].device[k];
                if (d->segment < 0) {
                    check_join(&x, c, k);
                }
                full += d->more_bytes > x.w.cluster[c].device[k].mem_bytes;
                assert_true(!d->more.possible || d->more.objective >= x.why.next.objective);
            }
        }
        close_scene(&x);
    }
    assert_true(found > WORLDS / 2 && full > 50);
    assert_true(kinds[CP_NEIGHBOUR_LAYER] && kinds[CP_NEIGHBOUR_MICRO]);
    assert_true(kinds[CP_NEIGHBOUR_SWAP] && kinds[CP_NEIGHBOUR_ORDER]);
}

/* Two equal devices, links that count for little: with 6 layers each of 12, one layer more here and
 * one less there are the same, and cost about a sixth of a step; a stand-by device of the same kind
 * would cost less. */
static void test_devices_by_hand(void **state)
{
    (void)state;
    struct scene x;
    const int cuts[1][CP_DEVICES_MAX] = {{6, 6}};
    open_scene(&x, 1, 3, 12, 100, "static", 4);
    x.w.radio.band_d2d_hz = x.w.radio.band_up_hz = x.w.radio.band_down_hz = 1e15;
    for (int k = 0; k < 3; k++) {
        x.w.cluster[0].device[k].rate_flops = 1e10;
        x.w.cluster[0].device[k].mem_bytes = (size_t)1 << 40;
    }
    x.a.queues = NULL;
    x.a.cuts = cuts;
    x.a.n_cuts = 1;
    x.a.choose_order = x.a.choose_micro = false;
    x.a.order = CP_ORDER_GPIPE;
    assert_true(decide(&x));
    const struct cp_device_why *d = x.why.cluster[0].device;
    double layer_s = (7.449e9 + 14.898e9) / 1e10;
    assert_near(d[0].layer_s, layer_s);
    assert_true(d[0].more.possible && d[0].more.other == 1);
    assert_int_equal(d[0].less.other, 2); /* the stand-by takes it: then nothing is longer */
    assert_int_equal(d[2].segment, -1);
    assert_true(d[2].more.possible && !d[2].less.possible);
    double longer_s = x.w.local_steps * (x.w.micro_ref - 1) * layer_s; /* Lemma 1: m^F + m^B */
    assert_true(fabs(d[0].more.latency_s - x.d.objective - longer_s) <
                0.02 * longer_s + cp_broadcast_plain_s(&x.w));
    assert_true(d[2].more.objective <= x.d.objective * 1.001);
    /* a tenth less on one of two equal bottlenecks saves little, on the edge nothing */
    assert_true(x.why.cluster[0].stage_gain[1] < 0.02 && x.why.cluster[0].stage_gain[3] < 1e-3);
    close_scene(&x);
}

static void test_absent_and_full_model(void **state)
{
    (void)state;
    struct scene x;
    open_scene(&x, 1, 3, 4, 100, "fedavg", 5);
    x.w.cluster[0].device[1].present = false;
    for (int k = 0; k < 3; k++) {
        x.w.cluster[0].device[k].mem_bytes = (size_t)1 << 40;
    }
    assert_true(decide(&x));
    assert_false(x.why.has_next);
    for (int k = 0; k < 3; k++) {
        const struct cp_device_why *d = &x.why.cluster[0].device[k];
        assert_true(!d->more.possible && !d->less.possible);
        assert_int_equal(d->present, k != 1);
        assert_int_equal(d->layers, k == 1 ? 0 : 4);
    }
    close_scene(&x);
}

/* --- what would change it -------------------------------------------------------------------- */

/* A device that is far faster but holds one layer: with memory for two it gets two. The factor is
 * that of the size function, to the width of the bisection. */
static void test_memory_changes_the_cut(void **state)
{
    (void)state;
    struct scene x;
    struct cp_what_if y;
    open_scene(&x, 1, 2, 4, 100, "dssda", 6);
    x.w.cluster[0].device[0].rate_flops = 5e9;
    x.w.cluster[0].device[1].rate_flops = 5e11;
    x.w.cluster[0].device[0].mem_bytes = (size_t)1 << 40;
    x.a.queues = NULL;
    x.a.choose_micro = x.a.choose_order = false;
    x.a.order = CP_ORDER_SEQ; /* one slot, whatever M is */
    size_t one = toy_bytes(&TOY, 1, 1), two = toy_bytes(&TOY, 2, 1);
    x.w.cluster[0].device[1].mem_bytes = one + one / 10;
    assert_true(decide(&x));
    const struct cp_device_why *d = &x.why.cluster[0].device[1];
    assert_int_equal(d->layers, 1);
    assert_false(d->more.possible);
    assert_int_equal(d->more_bytes, two);
    const struct cp_knob memory = {CP_KNOB_MEMORY, 0, 1}, server = {.kind = CP_KNOB_SERVER};
    assert_int_equal(cp_what_if_make(x.policy, &x.a, &x.plan, &memory, &y), CP_OK);
    double exact = (double)two / (double)x.w.cluster[0].device[1].mem_bytes;
    assert_true(y.changes && y.factor >= exact && y.factor < exact * 1.045);
    assert_true(y.objective < x.d.objective && y.latency_s > 0);
    assert_true(y.decisions >= 5 && y.decisions <= 7);
    assert_true(cp_cut_differs(&y.plan.cluster[0], &x.plan.cluster[0]));
    cp_what_if_fini(&y);
    assert_int_equal(x.w.cluster[0].device[1].mem_bytes, one + one / 10); /* untouched */
    assert_int_equal(cp_what_if_make(x.policy, &x.a, &x.plan, &server, &y), CP_OK);
    assert_true(!y.changes && y.factor == CP_WHATIF_MOST && y.decisions == 3);
    cp_what_if_fini(&y);
    close_scene(&x);
}

static void test_bands_and_nothing_leaks(void **state)
{
    (void)state;
    struct scene x;
    struct cp_what_if y = {0};
    open_scene(&x, 2, 3, 6, 3, "dssda", 8);
    x.w.radio.band_d2d_hz = 2e5; /* so narrow that few devices are worth it */
    assert_true(decide(&x));
    const struct cp_knob d2d = {.kind = CP_KNOB_D2D};
    int failures = 0;
    cp_err err = CP_E_NOMEM;
    for (uint64_t n = 1; err; n += n) {
        assert_null(y.plan.cluster);
        cp_mem_fail_at(n);
        err = cp_what_if_make(x.policy, &x.a, &x.plan, &d2d, &y);
        cp_mem_fail_at(0);
        failures += err == CP_E_NOMEM;
    }
    assert_true(failures > 3);
    assert_true(y.changes);
    cp_what_if_fini(&y);
    struct cp_why why = {.n_clusters = 7};
    for (uint64_t n = 1; n <= 2; n++) {
        cp_mem_fail_at(n);
        assert_int_equal(cp_why_make(&x.a, &x.plan, &why), CP_E_NOMEM);
        cp_mem_fail_at(0);
        assert_int_equal(why.n_clusters, 7);
    }
    close_scene(&x);
}

/* --- no plan --------------------------------------------------------------------------------- */

static void test_advice_where_memory_is_short(void **state)
{
    (void)state;
    struct scene x;
    open_scene(&x, 1, 2, 8, 1, "dssda", 9);
    for (int k = 0; k < 2; k++) {
        x.w.cluster[0].device[k].mem_bytes = toy_bytes(&TOY, 3, 1);
    }
    cp_err err = cp_policy_decide(x.policy, &x.a, &x.plan, &x.d);
    assert_int_equal(err, CP_E_PLAN);
    assert_int_equal(cp_what_if_fail(x.policy, &x.a, err), CP_E_PLAN);
    const char *times = strstr(cp_err_text(), "; it takes ");
    assert_non_null(strstr(cp_err_text(), "no way to place 8 layers on 2 devices"));
    assert_non_null(times);
    double exact = (double)toy_bytes(&TOY, 4, 1) / (double)toy_bytes(&TOY, 3, 1);
    double told = strtod(times + strlen("; it takes "), NULL);
    assert_true(told >= exact - 0.005 && told < exact * 1.01 + 0.005);
    assert_non_null(strstr(times, "a model of at most 6 layers, or more devices"));

    /* less than one layer: no smaller model helps */
    x.w.cluster[0].device[0].mem_bytes = x.w.cluster[0].device[1].mem_bytes = 50 << 20;
    err = cp_policy_decide(x.policy, &x.a, &x.plan, &x.d);
    assert_int_equal(cp_what_if_fail(x.policy, &x.a, err), CP_E_PLAN);
    assert_non_null(strstr(cp_err_text(), "times the memory on every device, or more devices"));
    assert_null(strstr(cp_err_text(), "a model of"));

    /* nobody there, or another kind of error: nothing is added */
    x.w.cluster[0].device[0].present = x.w.cluster[0].device[1].present = false;
    err = cp_policy_decide(x.policy, &x.a, &x.plan, &x.d);
    assert_int_equal(cp_what_if_fail(x.policy, &x.a, err), CP_E_PLAN);
    assert_null(strstr(cp_err_text(), "it takes"));
    err = cp_fail(CP_E_CONFIG, "something else");
    assert_int_equal(cp_what_if_fail(x.policy, &x.a, err), CP_E_CONFIG);
    assert_string_equal(cp_err_text(), "something else");
    close_scene(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_hold),
        cmocka_unit_test(test_devices_by_hand),
        cmocka_unit_test(test_absent_and_full_model),
        cmocka_unit_test(test_memory_changes_the_cut),
        cmocka_unit_test(test_bands_and_nothing_leaks),
        cmocka_unit_test(test_advice_where_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
