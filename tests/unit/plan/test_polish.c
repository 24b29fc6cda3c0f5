/* Polish: never worse, optimal where it claims to be, and nothing but what the options leave free.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/solver.h"
#include "unit/plan/worlds.h"

/* One cluster with queues, a random cut of it, and a weight of its time. */
struct bench {
    struct cp_world w;
    struct cp_queues q;
    struct cp_policy_args a;
    struct cp_solver_options o;
    struct cp_room room;
    struct cp_solver x;
    double v;
    struct cp_cluster_plan plan;
};

static void draw_bench(struct bench *b, uint64_t seed, enum cp_order order)
{
    struct cp_rng r;
    struct cp_plan p;
    struct cp_decision d;
    memset(b, 0, sizeof *b);
    cp_rng_init(&r, seed, CP_RNG_TEST, 15, 0);
    toy_world(&b->w, 2, 2 + (int)cp_rng_below(&r, 3), 3 + (int)cp_rng_below(&r, 5), seed);
    toy_queues(&b->q, &b->w, seed % 5 ? 20 : 0, seed);
    b->w.radio.band_d2d_hz *= pow(10, cp_rng_range(&r, -1.5, 0.3));
    b->w.radio.band_up_hz *= pow(10, cp_rng_range(&r, -1, 0.3));
    b->a = (struct cp_policy_args){
        .world = &b->w, .mean = &b->w, .queues = &b->q, .order = order, .seed = seed};
    cp_room_init(&b->room, &b->w, 1);
    b->x = (struct cp_solver){.a = &b->a, .o = &b->o, .room = &b->room};
    b->v = b->q.v * (seed % 7 ? pow(10, cp_rng_range(&r, -2, 0)) : 0);
    assert_int_equal(cp_policy_decide(cp_policy_find("random"), &b->a, &p, &d), CP_OK);
    b->plan = p.cluster[1];
    cp_plan_fini(&p);
}

static void free_bench(struct bench *b)
{
    cp_queues_fini(&b->q);
    cp_world_fini(&b->w);
}

static double value(const struct bench *b, const struct cp_cluster_plan *plan)
{
    return cp_solver_value(&b->x, 1, b->v, plan);
}

static void assert_holds(struct bench *b, struct cp_cluster_plan *plan)
{
    struct cp_world alone = b->w;
    alone.cluster++;
    alone.n_clusters = 1;
    if (cp_plan_check(&(struct cp_plan){.n_clusters = 1, .cluster = plan}, &alone) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
}

/* p^max of each sender: forwards 0..S, backwards 1..S. */
static double limit_w(const struct bench *b, bool fwd, int stage)
{
    const struct cp_cluster *cl = &b->w.cluster[1];
    return stage == 0 ? cl->cu.power_d2d_w
           : fwd      ? cp_fwd_limit_w(&b->plan, cl, stage)
                      : cl->device[b->plan.device[stage - 1]].power_d2d_w;
}

/* Item 15: whatever the start, the weight, the order and the options. */
static void value_never_rises(void **state)
{
    (void)state;
    int lower[3] = {0};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct bench b;
        draw_bench(&b, seed, (enum cp_order)(seed % 3));
        b.o = (struct cp_solver_options){
            .equal_band = seed % 11 == 0, .max_power = seed % 13 == 0, .extended = seed % 4 == 0};
        b.a.choose_micro = seed % 2;
        b.a.any_format = seed % 8 == 0;
        struct cp_cluster_plan plan = b.plan;
        double before = value(&b, &plan), between = before;
        for (int i = 0; i < 3; i++) { /* again: it goes on where it stopped */
            cp_polish(&b.x, 1, b.v, &plan);
            assert_true(value(&b, &plan) <= between);
            between = value(&b, &plan);
            assert_holds(&b, &plan);
        }
        lower[plan.order] += between < before * 0.999;
        assert_true(plan.order == b.plan.order && cp_plan_same_cut(&plan, &b.plan));
        assert_true(plan.uplink_share == b.plan.uplink_share);
        assert_true(b.a.choose_micro || plan.micro_batches == b.plan.micro_batches);
        for (int j = 0; j < plan.segments; j++) {
            assert_true(b.a.any_format || plan.link_format[j] == CP_FORMAT_FP32);
            if (b.o.equal_band) {
                assert_true(plan.band_fwd[j] == 1.0 / plan.segments);
                assert_true(plan.band_bwd[j] == 1.0 / plan.segments);
            }
        }
        double part = cp_plan_overlaps(&plan) ? 0.5 : 1;
        for (int j = 0; b.o.max_power && j <= plan.segments; j++) {
            assert_true(plan.power_fwd_w[j] == (j ? part : 1) * limit_w(&b, true, j));
            assert_true(j == 0 || plan.power_bwd_w[j] == part * limit_w(&b, false, j));
            assert_true(plan.power_up_w == b.w.cluster[1].cu.power_d2e_w);
        }
        free_bench(&b);
    }
    assert_true(lower[0] > 20 && lower[1] > 20 && lower[2] > 20);
}

/* Moves shares of one phase at random; their sum stays 1. */
static void stir(struct cp_rng *r, double *share, int n, double most)
{
    double sum = 0;
    for (int j = 0; j < n; j++) {
        sum += share[j] *= exp(cp_rng_range(r, -most, most));
    }
    for (int j = 0; j < n; j++) {
        share[j] /= sum;
    }
}

/*
 * Both problems are convex (sections 11.4, 11.5), and without an overlap the objective of polish is
 * the exact one: who looks around from its answer, near and far, finds nothing better. Sequential
 * and gpipe; only bands are free, or only powers.
 */
static void nothing_near_is_better(void **state)
{
    (void)state;
    enum { LOOKS = 400 };
    int moved = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct bench b;
        struct cp_rng r;
        bool bands = seed % 2;
        draw_bench(&b, seed, seed % 4 < 2 ? CP_ORDER_GPIPE : CP_ORDER_SEQ);
        cp_rng_init(&r, seed, CP_RNG_TEST, 16, 0);
        b.o = (struct cp_solver_options){.equal_band = !bands, .max_power = bands};
        struct cp_cluster_plan plan = b.plan;
        if (plan.order == CP_ORDER_1F1B) { /* memory */
            free_bench(&b);
            continue;
        }
        cp_polish(&b.x, 1, b.v, &plan);
        double best = value(&b, &plan);
        moved += best < value(&b, &b.plan) * (1 - 1e-4);
        for (int i = 0; i < LOOKS; i++) {
            struct cp_cluster_plan near = plan;
            double most = pow(10, cp_rng_range(&r, -4, 0.5));
            if (bands) {
                stir(&r, i % 2 ? near.band_fwd : near.band_bwd, near.segments, most);
            }
            double part = cp_plan_overlaps(&near) ? 0.5 : 1;
            for (int j = 0; j <= near.segments && !bands; j++) {
                double low = 1e-3 * limit_w(&b, true, j);
                double high = (j ? part : 1) * limit_w(&b, true, j);
                double *p = &near.power_fwd_w[j];
                *p = fmax(low, fmin(high, *p * exp(cp_rng_range(&r, -most, most))));
                low = 1e-3 * limit_w(&b, false, j);
                high = part * limit_w(&b, false, j);
                p = &near.power_bwd_w[j];
                *p = j ? fmax(low, fmin(high, *p * exp(cp_rng_range(&r, -most, most)))) : 0;
            }
            if (!bands && i % 2) {
                near.power_up_w *= exp(cp_rng_range(&r, -most, most));
                double top = b.w.cluster[1].cu.power_d2e_w;
                near.power_up_w = fmax(1e-3 * top, fmin(top, near.power_up_w));
            }
            if (!(value(&b, &near) >= best * (1 - 1e-6))) {
                fail_msg("seed %d: %.12g, but %.12g is near", (int)seed, best, value(&b, &near));
            }
        }
        free_bench(&b);
    }
    assert_true(moved > 40);
}

/* From anywhere the same bands come out: there is one optimum. */
static void start_does_not_matter(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct bench b;
        struct cp_rng r;
        draw_bench(&b, seed, CP_ORDER_GPIPE);
        cp_rng_init(&r, seed, CP_RNG_TEST, 17, 0);
        b.o.max_power = true;
        struct cp_cluster_plan plan = b.plan, other = b.plan;
        stir(&r, other.band_fwd, other.segments, 3);
        stir(&r, other.band_bwd, other.segments, 3);
        cp_polish(&b.x, 1, b.v, &plan);
        cp_polish(&b.x, 1, b.v, &other);
        if (plan.order == CP_ORDER_GPIPE) {
            assert_true(near_rel(value(&b, &plan), value(&b, &other), 1e-6));
        }
        free_bench(&b);
    }
}

/* Items 14: with all else fixed, M of gpipe and seq is the best of all that fit. */
static void micro_is_the_best_of_all(void **state)
{
    (void)state;
    int seen[17] = {0}, different = 0, memory = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct bench b;
        draw_bench(&b, seed, seed % 3 ? CP_ORDER_GPIPE : CP_ORDER_SEQ);
        b.o = (struct cp_solver_options){.equal_band = true, .max_power = true};
        b.a.choose_micro = true;
        for (int k = 0; k < 4 && seed % 2; k++) { /* room for 8 slots of this plan, or a few more */
            b.w.cluster[1].device[k].mem_bytes = toy_bytes(&TOY, 8, 5 + (int)(seed % 4));
        }
        cp_room_init(&b.room, &b.w, 1);
        b.plan.micro_batches = 2; /* with 1, seq would have the whole band */
        cp_plan_set_slots(&b.plan);
        if (b.plan.order == CP_ORDER_1F1B || !cp_draft_fits(&b.plan, &b.room)) {
            free_bench(&b);
            continue;
        }
        struct cp_cluster_plan plan = b.plan;
        double best = INFINITY;
        int best_m = 0;
        for (int m = 1; m <= b.w.micro_max; m++) {
            struct cp_cluster_plan trial = b.plan;
            trial.micro_batches = m;
            cp_plan_set_slots(&trial);
            bool fits = cp_draft_fits(&trial, &b.room);
            memory += !fits;
            /* From overlapping phases to one micro-batch is another band: another start of M. */
            bool reached = cp_plan_overlaps(&trial) == cp_plan_overlaps(&b.plan);
            if (fits && reached && value(&b, &trial) < best) {
                best = value(&b, &trial);
                best_m = m;
            }
        }
        cp_polish(&b.x, 1, b.v, &plan);
        assert_true(near_rel(value(&b, &plan), best, 1e-12));
        seen[plan.micro_batches]++;
        assert_true(plan.micro_batches == best_m || value(&b, &plan) == best ||
                    near_rel(value(&b, &plan), best, 1e-12));
        free_bench(&b);
    }
    for (int m = 1; m <= 16; m++) {
        different += seen[m] > 0;
    }
    assert_true(different > 8 && memory > 100);
}

/* Section 6.2, rule: of all extra slots of 1f1b that fit, the fastest; beyond the paper no slot
 * more or less at one stage is faster. */
static void slots_are_the_fastest(void **state)
{
    (void)state;
    int more = 0, single = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct bench b;
        draw_bench(&b, seed, CP_ORDER_1F1B);
        b.v = b.q.v;
        b.o = (struct cp_solver_options){.equal_band = true, .max_power = true};
        if (b.plan.order != CP_ORDER_1F1B || !cp_plan_overlaps(&b.plan)) {
            free_bench(&b);
            continue;
        }
        struct cp_cluster_plan plan = b.plan, trial = b.plan;
        double best = INFINITY;
        for (int extra = 0; extra + 1 < plan.micro_batches; extra++) {
            for (int j = 0; j < plan.segments + 2; j++) {
                int depth = plan.segments + 2 - j + extra;
                trial.slots[j] = depth < plan.micro_batches ? depth : plan.micro_batches;
            }
            if (cp_draft_fits(&trial, &b.room)) {
                best = fmin(best, value(&b, &trial));
            }
        }
        cp_polish(&b.x, 1, b.v, &plan);
        assert_true(value(&b, &plan) == best);
        more += plan.slots[plan.segments + 1] > 1;
        b.o.extended = true;
        cp_polish(&b.x, 1, b.v, &plan);
        assert_holds(&b, &plan);
        single += value(&b, &plan) < best;
        for (int j = 0; j < plan.segments + 2; j++) {
            for (int change = -1; change <= 1; change += 2) {
                trial = plan;
                trial.slots[j] += change;
                struct cp_world alone = b.w;
                alone.cluster++;
                alone.n_clusters = 1;
                bool holds = cp_plan_overlaps(&trial) &&
                             cp_plan_check(&(struct cp_plan){.n_clusters = 1, .cluster = &trial},
                                           &alone) == CP_OK;
                assert_true(!holds || value(&b, &trial) >= value(&b, &plan) * (1 - 1e-5));
            }
        }
        free_bench(&b);
    }
    assert_true(more > 20 && single > 0);
}

/* Where devices work apart, the power of one alone is the best there is for it; and a link that is
 * dead has no value, whatever its time weighs. */
static void powers_of_other_modes(void **state)
{
    (void)state;
    int lower = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct bench b;
        struct cp_cluster_plan plan;
        draw_bench(&b, seed, CP_ORDER_GPIPE);
        enum cp_plan_mode mode = seed % 2 ? CP_MODE_FULL : CP_MODE_SPLIT;
        cp_draft_apart(&b.w, 1, mode, &(int){1}, 1, seed % 2 ? b.w.model.layers : 2, &plan);
        double before = value(&b, &plan), top = plan.power_fwd_w[1];
        cp_polish(&b.x, 1, b.v, &plan);
        double best = value(&b, &plan);
        lower += best < before;
        assert_true(best <= before && plan.power_fwd_w[1] >= 1e-3 * top);
        for (int i = 0; i <= 1000; i++) {
            struct cp_cluster_plan trial = plan;
            trial.power_fwd_w[1] = top * pow(1e-3, i / 1000.0);
            assert_true(value(&b, &trial) >= best * (1 - 1e-9));
        }
        plan.uplink_share = 0;
        b.v = 0;
        assert_true(value(&b, &plan) == INFINITY);
        free_bench(&b);
    }
    assert_true(lower > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(value_never_rises),     cmocka_unit_test(nothing_near_is_better),
        cmocka_unit_test(start_does_not_matter), cmocka_unit_test(micro_is_the_best_of_all),
        cmocka_unit_test(slots_are_the_fastest), cmocka_unit_test(powers_of_other_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
