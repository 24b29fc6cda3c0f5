/* DSSDA against enumeration, the baselines, its last plan, and its queues. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/solver.h"
#include "unit/plan/situations.h"

/* Section 16, item 16: one cluster against the enumeration of every cut, order and M, each with the
 * same polish. */
static void dssda_is_near_enumeration(void **state)
{
    (void)state;
    double worst = 0;
    int exact = 0, cases = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan p;
        struct cp_decision d, e;
        bool micro = seed % 6 == 0; /* 16 times as much to try */
        toy_world(&w, 1, micro ? 2 : 2 + (int)(seed % 3), micro ? 4 : 3 + (int)(seed % 3), seed);
        toy_queues(&q, &w, seed % 4 ? 10 : 0, seed);
        w.radio.band_d2d_hz = seed % 5 ? 20e6 : 3e6;
        for (int k = 0; k < w.cluster[0].n_devices; k++) {
            w.cluster[0].device[k].mem_bytes /= seed % 2 ? 2 : 1;
        }
        struct cp_policy_args a = {
            .world = &w, .queues = &q, .choose_order = true, .choose_micro = micro};
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d), CP_OK);
        cp_plan_fini(&p);
        assert_int_equal(cp_policy_decide(cp_policy_find("exhaustive"), &a, &p, &e), CP_OK);
        cp_plan_fini(&p);
        worst = fmax(worst, d.objective / e.objective - 1);
        exact += d.objective <= e.objective * (1 + 1e-9);
        cases++;
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    print_message("dssda: %d of %d clusters exact, worst gap %.3g\n", exact, cases, worst);
    assert_true(worst <= 0.001);
}

/* J of the best choice at fixed shares, every cut of both clusters tried. */
static double value_at(struct cp_solver *x, const double share[2])
{
    struct cp_front front[2] = {0};
    struct cp_plan p;
    int pick[2];
    double v[7] = {0}, all = x->a->queues->v;
    assert_int_equal(cp_plan_init(&p, 2), CP_OK);
    for (int i = 0; i < 6; i++) {
        v[i] = all * pow(0.005, i / 5.0);
    }
    for (int c = 0; c < 2; c++) {
        assert_int_equal(cp_cluster_solve(x, c, share[c], v, 7, NULL, &front[c]), CP_OK);
    }
    assert_int_equal(cp_front_merge(front, 2, all, pick), CP_OK);
    for (int c = 0; c < 2; c++) {
        p.cluster[c] = front[c].item[pick[c]].plan;
        cp_front_fini(&front[c]);
    }
    double value = cp_plan_objective(&p, x->a->world, x->a->queues);
    cp_plan_fini(&p);
    return value;
}

/* The same for two clusters, of which one waits for the other, and which share a band: against
 * enumeration at a grid of shares. */
static void dssda_couples_the_clusters(void **state)
{
    (void)state;
    static struct cp_room room;
    const struct cp_solver_options all = {.exhaustive = true};
    double worst = 0, sum = 0;
    int cases = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan p;
        struct cp_decision d;
        toy_world(&w, 2, 3, 4, seed);
        toy_queues(&q, &w, 4, seed);
        for (int k = 0; k < 3; k++) { /* the second cluster has time to save energy */
            w.cluster[1].device[k].rate_flops *= 4;
        }
        struct cp_policy_args a = {.world = &w, .queues = &q, .choose_order = true};
        struct cp_solver x = {.a = &a, .o = &all, .room = &room};
        double best = INFINITY;
        for (int i = 1; i <= 9; i++) {
            best = fmin(best, value_at(&x, (double[]){0.1 * i, 1 - 0.1 * i}));
        }
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d), CP_OK);
        worst = fmax(worst, d.objective / best - 1);
        sum += fmax(0, d.objective / best - 1);
        cases++;
        cp_split_work_fini(&x.work);
        cp_plan_fini(&p);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    print_message("dssda: two clusters, mean gap %.3g, worst %.3g\n", sum / cases, worst);
    assert_true(worst <= 0.05 && sum / cases <= 0.01);
}

/* Section 16, items 20 and 21: never above a baseline of its kind, and better for more room. */
static void dssda_is_not_above_the_baselines(void **state)
{
    (void)state;
    const char *const names[] = {"gpipe-uniform", "greedy", "random", "static"};
    int above = 0, compared = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct situation s;
        struct cp_plan p;
        struct cp_decision d, e;
        draw_situation(&s, seed);
        s.a.choose_order = true;
        if (cp_policy_decide(cp_policy_find("dssda"), &s.a, &p, &d) != CP_OK) {
            free_situation(&s);
            continue;
        }
        cp_plan_fini(&p);
        for (size_t i = 0; i < 4; i++) {
            if (cp_policy_decide(cp_policy_find(names[i]), &s.a, &p, &e) == CP_OK) {
                above += d.objective > e.objective * (1 + 1e-9);
                assert_true(d.objective <= e.objective * 1.01);
                compared++;
                cp_plan_fini(&p);
            }
        }
        struct cp_policy_args looser = s.a;
        for (int c = 0; c < s.w.n_clusters; c++) {
            for (int k = 0; k < s.w.cluster[c].n_devices; k++) {
                s.w.cluster[c].device[k].mem_bytes *= 2;
            }
        }
        s.w.radio.band_d2d_hz *= 1.5;
        s.w.radio.band_up_hz *= 1.5;
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &looser, &p, &e), CP_OK);
        assert_true(e.objective <= d.objective * (1 + 1e-3)); /* the solver's own gap */
        cp_plan_fini(&p);
        free_situation(&s);
    }
    print_message("dssda: above a baseline in %d of %d comparisons\n", above, compared);
    assert_true(compared > 200);
}

static bool same_cuts(const struct cp_plan *x, const struct cp_plan *y)
{
    struct cp_move move;
    return cp_plan_diff(x, y, 8, &move, 1) == 0;
}

static void dssda_keeps_what_is_as_good(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p, next, odd = {0};
    struct cp_decision d, e;
    toy_world(&w, 2, 4, 8, 3);
    struct cp_policy_args a = {.world = &w, .choose_order = true};
    const struct cp_policy *dssda = cp_policy_find("dssda");
    /* A little noise: some new cuts are better by less than the margin, and are not taken. */
    int not_worth_it = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct cp_rng r;
        struct cp_plan fresh;
        struct cp_decision f;
        a.incumbent = NULL;
        cp_rng_init(&r, seed, CP_RNG_TEST, 3, 0);
        assert_int_equal(cp_policy_decide(dssda, &a, &p, &d), CP_OK);
        for (int i = 0; i < 8; i++) {
            w.cluster[i / 4].device[i % 4].rate_flops *= cp_rng_range(&r, 0.97, 1.03);
        }
        assert_int_equal(cp_policy_decide(dssda, &a, &fresh, &f), CP_OK);
        a.incumbent = &p;
        assert_int_equal(cp_policy_decide(dssda, &a, &next, &e), CP_OK);
        /* Not to move costs the margin at most; to move gains it. */
        assert_true(e.objective * (1 - CP_KEEP_MARGIN) <= f.objective * (1 + 1e-3));
        bool kept = strstr(e.binding, "cuts kept") != NULL;
        if (kept) {
            assert_true(same_cuts(&p, &next));
        } else if (!same_cuts(&p, &next)) {
            assert_true(e.objective < cp_plan_objective(&p, &w, NULL) * (1 - CP_KEEP_MARGIN));
        }
        not_worth_it += kept && !same_cuts(&p, &fresh);
        cp_plan_fini(&p);
        cp_plan_fini(&next);
        cp_plan_fini(&fresh);
    }
    assert_true(not_worth_it > 3);
    a.incumbent = NULL;
    assert_int_equal(cp_policy_decide(dssda, &a, &p, &d), CP_OK);
    /* Whatever the incumbent is, J does not rise above it (item 15). */
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct cp_policy_args r = a;
        r.seed = seed;
        assert_int_equal(cp_policy_decide(cp_policy_find("random"), &r, &odd, &d), CP_OK);
        a.incumbent = &odd;
        assert_int_equal(cp_policy_decide(dssda, &a, &next, &e), CP_OK);
        assert_true(e.objective <= d.objective * (1 + 1e-12));
        cp_plan_fini(&next);
        cp_plan_fini(&odd);
    }
    /* A device ten times slower, or gone, or an incumbent of other rules: it moves. */
    a.incumbent = &p;
    int used = p.cluster[0].device[0];
    w.cluster[0].device[used].rate_flops /= 10;
    assert_int_equal(cp_policy_decide(dssda, &a, &next, &e), CP_OK);
    assert_null(strstr(e.binding, "cuts kept"));
    cp_plan_fini(&next);
    w.cluster[0].device[used].rate_flops *= 10;
    w.cluster[0].device[used].present = false;
    assert_int_equal(cp_policy_decide(dssda, &a, &next, &e), CP_OK);
    assert_true(!strstr(e.binding, "cuts kept") || strstr(e.binding, "where they hold"));
    cp_plan_fini(&next);
    w.cluster[0].device[used].present = true;
    w.micro_ref = 10; /* M is not the planner's to choose: less work is no better plan */
    assert_int_equal(cp_policy_decide(dssda, &a, &next, &e), CP_OK);
    assert_int_equal(next.cluster[0].micro_batches, 10);
    cp_plan_fini(&next);
    w.micro_ref = 8;
    a.choose_order = false;
    a.order = CP_ORDER_SEQ;
    assert_int_equal(cp_policy_decide(dssda, &a, &next, &e), CP_OK);
    assert_int_equal(next.cluster[0].order, CP_ORDER_SEQ);
    cp_plan_fini(&next);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

/* Prices steer: without a price on it energy does not matter, with one it falls. */
static void queues_steer_dssda(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_queues q;
    struct cp_plan p;
    struct cp_decision d;
    struct cp_forecast free_run, priced;
    toy_world(&w, 2, 4, 8, 3);
    assert_int_equal(cp_queues_init(&q, &w, 10), CP_OK);
    struct cp_policy_args a = {.world = &w, .queues = &q, .choose_order = true};
    const struct cp_policy *dssda = cp_policy_find("dssda");
    assert_int_equal(cp_policy_decide(dssda, &a, &p, &d), CP_OK);
    assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &free_run), CP_OK);
    int used = p.cluster[0].device[0];
    cp_plan_fini(&p);
    q.energy[0][used + 1] = 1e4;
    assert_int_equal(cp_policy_decide(dssda, &a, &p, &d), CP_OK);
    assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &priced), CP_OK);
    assert_true(priced.cluster[0].energy_j[used + 1] < free_run.cluster[0].energy_j[used + 1] / 2);
    cp_plan_fini(&p);
    q.energy[0][used + 1] = 0;
    a.choose_micro = true;
    for (int y = 0; y < 3; y++) { /* a longer convergence queue asks for more micro-batches */
        double y0[] = {0, 1, 1e9};
        q.convergence = y0[y];
        assert_int_equal(cp_policy_decide(dssda, &a, &p, &d), CP_OK);
        if (y == 0) {
            assert_int_equal(p.cluster[0].micro_batches, 1);
        } else if (y == 2) {
            assert_int_equal(p.cluster[0].micro_batches, w.micro_max);
            assert_non_null(strstr(d.binding, "convergence queue"));
        }
        cp_plan_fini(&p);
    }
    cp_forecast_fini(&free_run);
    cp_forecast_fini(&priced);
    cp_queues_fini(&q);
    cp_world_fini(&w);
}

/* With one micro-batch every order is the same: of plans that are equal in time and cost the one is
 * taken that holds least, not the one that was found first. */
static void equal_plans_have_an_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cp_world w;
        struct cp_plan p;
        struct cp_decision d;
        toy_world(&w, 2, 3, 4, seed);
        w.micro_ref = 1;
        struct cp_policy_args a = {.world = &w, .choose_order = true};
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d), CP_OK);
        for (int c = 0; c < 2; c++) {
            struct cp_cluster_plan other = p.cluster[c];
            for (int order = CP_ORDER_SEQ; order <= CP_ORDER_1F1B; order++) {
                other.order = (enum cp_order)order;
                cp_plan_set_slots(&other);
                assert_true(cp_draft_value(&other, &w, NULL, c).time_s ==
                            cp_draft_value(&p.cluster[c], &w, NULL, c).time_s);
            }
            assert_int_equal(p.cluster[c].order, CP_ORDER_SEQ);
        }
        cp_plan_fini(&p);
        cp_world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dssda_is_near_enumeration),
        cmocka_unit_test(dssda_couples_the_clusters),
        cmocka_unit_test(dssda_is_not_above_the_baselines),
        cmocka_unit_test(dssda_keeps_what_is_as_good),
        cmocka_unit_test(queues_steer_dssda),
        cmocka_unit_test(equal_plans_have_an_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
