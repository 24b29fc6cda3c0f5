/* Claims of docs/theory.md section 16 that hold for any world: items 14, 15, 20, 21 and 22. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/solver.h"
#include "unit/plan/situations.h"

/* How far above the optimum a decision may be: item 16 holds dssda to 0.1 % of enumeration in one
 * cluster and to 1 % in the mean of two. */
static const double GAP_ONE = 1e-3, GAP_MANY = 1e-2;

/* One cluster with random queues, and a random plan of it in a given order that memory allows. */
struct one {
    struct cp_world w;
    struct cp_queues q;
    struct cp_room room;
    struct cp_cluster_plan plan;
    double v;
};

static void draw_one(struct one *x, uint64_t seed, enum cp_order order)
{
    struct cp_plan p;
    struct cp_decision d;
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_TEST, 15, 0);
    toy_world(&x->w, 1, 2 + (int)(seed % 3), 6, seed);
    toy_queues(&x->q, &x->w, seed % 5 ? 20 : 0, seed);
    x->w.radio.band_d2d_hz = seed % 4 ? 20e6 : 2e6;
    for (int k = 0; k < x->w.cluster[0].n_devices; k++) {
        x->w.cluster[0].device[k].mem_bytes = (size_t)(seed % 2 ? 4 : 1) << 30;
    }
    cp_room_init(&x->room, &x->w, 0);
    x->v = x->q.v * cp_rng_range(&r, 0.1, 1);
    struct cp_policy_args a = {
        .world = &x->w, .queues = &x->q, .order = order, .choose_micro = true, .seed = seed};
    assert_int_equal(cp_policy_decide(cp_policy_find("random"), &a, &p, &d), CP_OK);
    x->plan = p.cluster[0];
    cp_plan_fini(&p);
}

static void free_one(struct one *x)
{
    cp_queues_fini(&x->q);
    cp_world_fini(&x->w);
}

/* --- item 15: J does not rise over any block ------------------------------------------------- */

/* Blocks of the polish, each alone: what the others may do is forbidden. */
struct block {
    const char *name;
    struct cp_solver_options options;
    bool choose_micro;
};
static const struct block BLOCK[] = {
    {"bands", {.max_power = true}, false},
    {"powers", {.equal_band = true}, false},
    {"micro-batches and slots", {.max_power = true, .equal_band = true}, true},
    {"all", {0}, true},
    {"all and slots of each stage", {.extended = true}, true},
};
enum { BLOCKS = sizeof BLOCK / sizeof BLOCK[0] };

static bool same_bands(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y)
{
    return memcmp(x->band_fwd, y->band_fwd, sizeof x->band_fwd) == 0 &&
           memcmp(x->band_bwd, y->band_bwd, sizeof x->band_bwd) == 0;
}

static bool same_powers(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y)
{
    return memcmp(x->power_fwd_w, y->power_fwd_w, sizeof x->power_fwd_w) == 0 &&
           memcmp(x->power_bwd_w, y->power_bwd_w, sizeof x->power_bwd_w) == 0 &&
           x->power_up_w == y->power_up_w;
}

/* Blocks in any sequence: the value, by the forecast, never rises; a block leaves alone what is not
 * its own, and the plan stays one that holds. */
static void no_block_raises_j(void **state)
{
    (void)state;
    int fell[BLOCKS] = {0};
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct one x;
        struct cp_rng r;
        draw_one(&x, seed, (enum cp_order)(seed % 3));
        cp_rng_init(&r, seed, CP_RNG_TEST, 15, 1);
        for (int i = 0; i < 8; i++) {
            int k = (int)cp_rng_below(&r, BLOCKS);
            struct cp_policy_args a = {.world = &x.w,
                                       .queues = &x.q,
                                       .order = x.plan.order,
                                       .choose_micro = BLOCK[k].choose_micro};
            const struct cp_solver s = {.a = &a, .o = &BLOCK[k].options, .room = &x.room};
            struct cp_cluster_plan was = x.plan;
            double before = cp_solver_value(&s, 0, x.v, &was);
            cp_polish(&s, 0, x.v, &x.plan);
            double after = cp_solver_value(&s, 0, x.v, &x.plan);
            if (!(after <= before)) {
                fail_msg("seed %d: %s raised J from %.17g to %.17g", (int)seed, BLOCK[k].name,
                         before, after);
            }
            fell[k] += after < before * (1 - 1e-6);
            assert_true(!BLOCK[k].options.max_power || same_powers(&was, &x.plan));
            assert_true(!BLOCK[k].options.equal_band || same_bands(&was, &x.plan));
            assert_true(BLOCK[k].choose_micro || was.micro_batches == x.plan.micro_batches);
            struct cp_plan whole = {.n_clusters = 1, .cluster = &x.plan};
            assert_int_equal(cp_plan_check(&whole, &x.w), CP_OK);
        }
        free_one(&x);
    }
    for (int k = 0; k < BLOCKS; k++) {
        print_message("%s: J fell in %d cases\n", BLOCK[k].name, fell[k]);
        assert_true(fell[k] > 10);
    }
}

/* The best of a front under a weight. */
static double least(const struct cp_front *f, double v)
{
    double value = INFINITY;
    for (int i = 0; i < f->n; i++) {
        value = fmin(value, v * f->item[i].value.time_s + f->item[i].value.cost);
    }
    return value;
}

/* A cluster that searches again from what it has found, at the same share, loses nothing; nor does
 * a slot that begins at its own plan, again and again. */
static void no_iteration_raises_j(void **state)
{
    (void)state;
    static const struct cp_solver_options free_all = {0};
    for (uint64_t seed = 1; seed <= 15; seed++) {
        struct one x;
        struct cp_front front[2] = {0};
        draw_one(&x, seed, CP_ORDER_GPIPE);
        struct cp_policy_args a = {
            .world = &x.w, .queues = &x.q, .choose_order = true, .choose_micro = seed % 3 == 0};
        struct cp_solver s = {.a = &a, .o = &free_all, .room = &x.room};
        const double v[] = {x.q.v, x.v};
        assert_int_equal(cp_cluster_solve(&s, 0, 1, v, 2, NULL, &front[0]), CP_OK);
        for (int i = 0; i < 2; i++) {
            double first = least(&front[0], v[0]), second = least(&front[0], v[1]);
            front[1].n = 0;
            assert_int_equal(cp_cluster_solve(&s, 0, 1, v, 2, &front[0], &front[1]), CP_OK);
            assert_true(least(&front[1], v[0]) <= first && least(&front[1], v[1]) <= second);
            struct cp_front swap = front[0];
            front[0] = front[1];
            front[1] = swap;
        }
        cp_front_fini(&front[0]);
        cp_front_fini(&front[1]);
        cp_split_work_fini(&s.work);
        free_one(&x);
    }
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct situation s;
        struct cp_plan p[4] = {{0}};
        struct cp_decision d;
        double before = INFINITY;
        draw_situation(&s, seed);
        for (int i = 0; i < 4; i++) {
            s.a.incumbent = i > 0 ? &p[i - 1] : NULL;
            if (cp_policy_decide(cp_policy_find("dssda"), &s.a, &p[i], &d) != CP_OK) {
                break; /* refused by name: another test */
            }
            assert_true(d.objective <= before);
            before = d.objective;
        }
        for (int i = 0; i < 4; i++) {
            cp_plan_fini(&p[i]);
        }
        free_situation(&s);
    }
}

/* --- item 14: the M of a plan ---------------------------------------------------------------- */

/* With everything else given, M is the best of all that fit into memory, by the forecast. Exact
 * where Lemma 1 or M Sigma is. */
static void m_of_a_plan_is_the_best(void **state)
{
    (void)state;
    static const struct cp_solver_options only_micro = {.max_power = true, .equal_band = true};
    int limited = 0, interior = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct one x;
        draw_one(&x, seed, seed % 3 ? CP_ORDER_GPIPE : CP_ORDER_SEQ);
        struct cp_policy_args a = {
            .world = &x.w, .queues = &x.q, .order = x.plan.order, .choose_micro = true};
        const struct cp_solver s = {.a = &a, .o = &only_micro, .room = &x.room};
        if (x.plan.order == CP_ORDER_1F1B) { /* what memory left of gpipe */
            free_one(&x);
            continue;
        }
        double best = INFINITY;
        int most = 0;
        for (int m = 1; m <= x.w.micro_max; m++) {
            struct cp_cluster_plan trial = x.plan;
            struct cp_plan whole = {.n_clusters = 1, .cluster = &trial};
            trial.micro_batches = m;
            cp_plan_set_slots(&trial);
            /* of one order M = 1 is a special case: nothing overlaps, and seq is gpipe */
            if (cp_plan_check(&whole, &x.w) == CP_OK) {
                best = fmin(best, cp_solver_value(&s, 0, x.v, &trial));
                most = m;
            }
        }
        cp_polish(&s, 0, x.v, &x.plan);
        double got = cp_solver_value(&s, 0, x.v, &x.plan);
        if (!(got <= best * (1 + 1e-12))) {
            fail_msg("seed %d: M = %d has %.17g, the best has %.17g", (int)seed,
                     x.plan.micro_batches, got, best);
        }
        limited += most < x.w.micro_max && x.plan.micro_batches == most;
        interior += x.plan.micro_batches > 1 && x.plan.micro_batches < most;
        free_one(&x);
    }
    print_message("M: %d limited by memory, %d between the limits\n", limited, interior);
    assert_true(limited > 10 && interior > 50);
}

/* --- item 20: more room, and less freedom ---------------------------------------------------- */

static void more_memory(struct cp_world *w)
{
    for (int c = 0; c < w->n_clusters; c++) {
        for (int k = 0; k < w->cluster[c].n_devices; k++) {
            w->cluster[c].device[k].mem_bytes *= 2;
        }
    }
}
static void looser_budgets(struct cp_world *w)
{
    for (int c = 0; c < w->n_clusters; c++) {
        w->cluster[c].cu.budget_j *= 1.3;
        for (int k = 0; k < w->cluster[c].n_devices; k++) {
            w->cluster[c].device[k].budget_j *= 1.3;
        }
    }
}
static void more_d2d_band(struct cp_world *w)
{
    w->radio.band_d2d_hz *= 1.5;
}
static void more_uplink(struct cp_world *w)
{
    w->radio.band_up_hz *= 1.5;
}
static void more_downlink(struct cp_world *w)
{
    w->radio.band_down_hz *= 1.5;
}
static const struct {
    const char *name;
    void (*widen)(struct cp_world *w);
} WIDEN[] = {{"memory", more_memory},
             {"budgets", looser_budgets},
             {"D2D band", more_d2d_band},
             {"uplink", more_uplink},
             {"downlink", more_downlink}};
enum { WIDENED = sizeof WIDEN / sizeof WIDEN[0] };

/* J of dssda; infinite where it has no plan. */
static double decide(const struct situation *s, const char *policy)
{
    struct cp_plan p;
    struct cp_decision d;
    if (cp_policy_decide(cp_policy_find(policy), &s->a, &p, &d) != CP_OK) {
        return INFINITY;
    }
    cp_plan_fini(&p);
    return d.objective;
}

/* One thing more at a time, with the same queues: J falls, but for the gap of the solver. (T_bc
 * falls with the downlink and is no part of J.) */
static void more_room_never_hurts(void **state)
{
    (void)state;
    double worst[WIDENED] = {0};
    int fell[WIDENED] = {0}, cases = 0;
    for (uint64_t seed = 201; seed <= 240; seed++) {
        struct situation s;
        draw_situation(&s, seed);
        double before = decide(&s, "dssda");
        if (!isfinite(before)) {
            free_situation(&s);
            continue;
        }
        cases++;
        for (int i = 0; i < WIDENED; i++) {
            struct situation wider = s;
            wider.w = (struct cp_world){0};
            assert_int_equal(cp_world_copy(&wider.w, &s.w), CP_OK);
            WIDEN[i].widen(&wider.w);
            wider.a.world = wider.a.mean = &wider.w;
            wider.a.cuts = (const int(*)[CP_DEVICES_MAX])wider.cuts;
            double after = decide(&wider, "dssda");
            worst[i] = fmax(worst[i], after / before - 1);
            fell[i] += after < before * (1 - 1e-9);
            assert_true(after <= before * (1 + (s.w.n_clusters == 1 ? GAP_ONE : GAP_MANY)));
            cp_world_fini(&wider.w);
        }
        free_situation(&s);
    }
    for (int i = 0; i < WIDENED; i++) {
        print_message("more %s: J fell in %d of %d worlds, rose by %.3g at most\n", WIDEN[i].name,
                      fell[i], cases, worst[i]);
        assert_true(fell[i] > 5);
    }
}

/* --- items 20, 21: dssda against less freedom and other policies ----------------------------- */

static const char *const OTHERS[] = {
    "dssda-uniform",   "dssda-order",   "dssda-fixed-m", "dssda-equal-band", "dssda-equal-share",
    "dssda-max-power", /* ablations */
    "static",          "gpipe-uniform", "pipeedge",      "greedy",           "random",
    "myopic",          "latency-only", /* pipelines */
};
enum { OTHER = sizeof OTHERS / sizeof OTHERS[0] };

/* None of them is a candidate of dssda, so each is a test of its search: where one is better, it is
 * counted and told, and by no more than the gap. */
static void nobody_is_below_dssda(void **state)
{
    (void)state;
    int compared[OTHER] = {0}, below[OTHER] = {0}, sum = 0, violations = 0;
    double worst = 0;
    for (uint64_t seed = 301; seed <= 360; seed++) {
        struct situation s;
        draw_situation(&s, seed);
        s.a.choose_order = true; /* else it is not dssda's choice */
        double own = decide(&s, "dssda");
        for (int i = 0; i < OTHER && isfinite(own); i++) {
            if (strcmp(OTHERS[i], "myopic") == 0 && seed % 4) {
                continue; /* ten times as long */
            }
            double j = decide(&s, OTHERS[i]);
            if (!isfinite(j)) {
                continue;
            }
            compared[i]++;
            below[i] += j < own * (1 - 1e-9);
            worst = fmax(worst, own / j - 1);
            assert_true(own <= j * (1 + (s.w.n_clusters == 1 ? GAP_ONE : GAP_MANY)));
        }
        free_situation(&s);
    }
    for (int i = 0; i < OTHER; i++) {
        print_message("%s: below dssda in %d of %d worlds\n", OTHERS[i], below[i], compared[i]);
        assert_true(compared[i] >= 10);
        sum += compared[i];
        violations += below[i];
    }
    print_message("dssda: above another in %d of %d comparisons, by %.3g at most\n", violations,
                  sum, worst);
    assert_true(violations * 40 <= sum);
}

/* --- item 22: names of devices --------------------------------------------------------------- */

/* A plan and its world with devices and clusters renamed have the same figures, renamed. */
static void labels_do_not_matter(void **state)
{
    (void)state;
    const int to[] = {2, 0, 3, 1};
    const char *const names[] = {"random", "fedavg", "splitfed", "dssda-x"};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct cp_world w, named;
        struct cp_queues q;
        struct cp_plan p;
        struct cp_decision d;
        struct cp_forecast f, g;
        toy_world(&w, 2, 4, 6, seed);
        toy_queues(&q, &w, 10, seed);
        for (int i = 0; i < 8; i++) {
            w.cluster[i / 4].device[i % 4].mem_bytes = (size_t)4 << 30;
        }
        struct cp_policy_args a = {
            .world = &w, .mean = &w, .queues = &q, .seed = seed, .alone = true};
        assert_int_equal(cp_policy_decide(cp_policy_find(names[seed % 4]), &a, &p, &d), CP_OK);
        assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &f), CP_OK);
        named = (struct cp_world){0};
        assert_int_equal(cp_world_copy(&named, &w), CP_OK);
        for (int c = 0; c < 2; c++) { /* cluster c becomes 1 - c, device k becomes to[k] */
            const struct cp_cluster *old = &w.cluster[1 - c];
            struct cp_cluster *cl = &named.cluster[c];
            *cl = *old;
            for (int x = 0; x <= 4; x++) {
                int nx = x == 0 ? 0 : to[x - 1] + 1;
                if (x > 0) {
                    cl->device[nx - 1] = old->device[x - 1];
                }
                cl->gain_d2e[nx] = old->gain_d2e[x];
                for (int y = 0; y <= 4; y++) {
                    cl->gain_d2d[nx][y == 0 ? 0 : to[y - 1] + 1] = old->gain_d2d[x][y];
                }
            }
        }
        struct cp_cluster_plan first = p.cluster[0];
        p.cluster[0] = p.cluster[1];
        p.cluster[1] = first;
        for (int c = 0; c < 2; c++) {
            for (int s = 0; s < p.cluster[c].segments; s++) {
                p.cluster[c].device[s] = to[p.cluster[c].device[s]];
            }
        }
        assert_int_equal(cp_plan_check(&p, &named), CP_OK);
        assert_int_equal(cp_forecast_make(&p, &named, NULL, 0, &g), CP_OK);
        assert_true(f.latency_s == g.latency_s && f.broadcast_s == g.broadcast_s);
        assert_true(near_rel(f.energy_j, g.energy_j, 1e-12) && near_rel(f.gamma, g.gamma, 1e-12));
        for (int c = 0; c < 2; c++) {
            const struct cp_cluster_forecast *old = &f.cluster[1 - c], *now = &g.cluster[c];
            assert_true(old->round_s == now->round_s && old->energy_j[0] == now->energy_j[0]);
            for (int k = 0; k < 4; k++) {
                assert_true(old->energy_j[k + 1] == now->energy_j[to[k] + 1]);
            }
        }
        cp_forecast_fini(&f);
        cp_forecast_fini(&g);
        cp_plan_fini(&p);
        cp_queues_fini(&q);
        cp_world_fini(&named);
        cp_world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_block_raises_j),       cmocka_unit_test(no_iteration_raises_j),
        cmocka_unit_test(m_of_a_plan_is_the_best), cmocka_unit_test(more_room_never_hurts),
        cmocka_unit_test(nobody_is_below_dssda),   cmocka_unit_test(labels_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
