/* Fronts of candidates against dominance and choice by brute force. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/front.h"
#include "unit/plan/worlds.h"

enum { CLUSTERS = 4, ITEMS = 6, MANY = 200 };

/* Small whole numbers, so that equal times, costs and broadcasts are frequent. The number of
 * micro-batches is the name of a candidate. */
static struct cp_candidate draw(struct cp_rng *r, int values, int name)
{
    return (struct cp_candidate){.value = {.time_s = 1 + (int)cp_rng_below(r, (uint32_t)values),
                                           .cost = (int)cp_rng_below(r, (uint32_t)values)},
                                 .broadcast_s = (int)cp_rng_below(r, (uint32_t)values),
                                 .plan = {.segments = 1, .micro_batches = name}};
}

/* Whether x is no worse than y in everything. */
static bool covers(const struct cp_candidate *x, const struct cp_candidate *y)
{
    return x->value.time_s <= y->value.time_s && x->value.cost <= y->value.cost &&
           x->broadcast_s <= y->broadcast_s;
}

static bool same_values(const struct cp_candidate *x, const struct cp_candidate *y)
{
    return covers(x, y) && covers(y, x);
}

static void reduce_keeps_what_nothing_beats(void **state)
{
    (void)state;
    static struct cp_candidate all[MANY], item[MANY];
    int dropped = 0, twins = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct cp_rng r;
        cp_rng_init(&r, seed, CP_RNG_TEST, 11, 0);
        int n = 1 + (int)cp_rng_below(&r, MANY), wanted = 0;
        for (int i = 0; i < n; i++) {
            all[i] = item[i] = draw(&r, 2 + (int)(seed % 12), i + 1);
        }
        struct cp_front f = {.item = item, .n = n, .cap = n};
        cp_front_reduce(&f);
        for (int i = 0; i < n; i++) {
            bool beaten = false; /* or the same as one that comes before it by name */
            for (int k = 0; k < n; k++) {
                bool same = same_values(&all[k], &all[i]);
                beaten |= same ? k < i : covers(&all[k], &all[i]);
                twins += same && k < i;
            }
            wanted += !beaten;
            int found = 0;
            for (int k = 0; k < f.n; k++) {
                found += f.item[k].plan.micro_batches == i + 1;
            }
            assert_int_equal(found, !beaten);
        }
        assert_int_equal(f.n, wanted);
        dropped += n - f.n;
        for (int k = 1; k < f.n; k++) {
            assert_true(f.item[k - 1].value.time_s <= f.item[k].value.time_s);
        }
        cp_front_reduce(&f);
        assert_int_equal(f.n, wanted);
    }
    assert_true(dropped > 1000 && twins > 100);
    struct cp_front none = {0};
    cp_front_reduce(&none);
    assert_int_equal(none.n, 0);
}

/* V (max T + max T_bc) + sum cost of one choice. */
static double value_of(const struct cp_front *f, int n, double v, const int *pick)
{
    double time = 0, broadcast = 0, cost = 0;
    for (int c = 0; c < n; c++) {
        const struct cp_candidate *x = &f[c].item[pick[c]];
        time = fmax(time, x->value.time_s);
        broadcast = fmax(broadcast, x->broadcast_s);
        cost += x->value.cost;
    }
    return v * (time + broadcast) + cost;
}

/* The best choice of all there are. */
static double try_all(const struct cp_front *f, int n, double v, int *pick, int c)
{
    double best = c == n ? value_of(f, n, v, pick) : INFINITY;
    for (int i = 0; c < n && i < f[c].n; i++) {
        pick[c] = i;
        best = fmin(best, try_all(f, n, v, pick, c + 1));
    }
    return best;
}

static void merge_is_the_best_choice(void **state)
{
    (void)state;
    static struct cp_candidate item[CLUSTERS][ITEMS];
    static const double weight[] = {0, 0.1, 1, 3, 1e6};
    int bound = 0; /* choices that another broadcast than the greatest decides */
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct cp_rng r;
        struct cp_front f[CLUSTERS];
        int pick[CLUSTERS], all[CLUSTERS];
        cp_rng_init(&r, seed, CP_RNG_TEST, 12, 0);
        int n = 1 + (int)cp_rng_below(&r, CLUSTERS), values = 2 + (int)cp_rng_below(&r, 20);
        double v = weight[seed % 5], greatest = 0, chosen = 0;
        for (int c = 0; c < n; c++) {
            f[c] = (struct cp_front){.item = item[c], .n = 1 + (int)cp_rng_below(&r, ITEMS)};
            for (int i = 0; i < f[c].n; i++) {
                item[c][i] = draw(&r, values, i + 1);
            }
            cp_front_reduce(&f[c]);
            for (int i = 0; i < f[c].n; i++) {
                greatest = fmax(greatest, item[c][i].broadcast_s);
            }
        }
        assert_int_equal(cp_front_merge(f, n, v, pick), CP_OK);
        assert_true(near_rel(value_of(f, n, v, pick), try_all(f, n, v, all, 0), 1e-12));
        for (int c = 0; c < n; c++) {
            chosen = fmax(chosen, item[c][pick[c]].broadcast_s);
        }
        bound += chosen < greatest;
    }
    assert_true(bound > 500);
}

/* More different broadcasts than are tried: the choice is at most one step of them away. */
static void many_broadcasts_are_thinned_out(void **state)
{
    (void)state;
    enum { EACH = 40 };
    static struct cp_candidate item[2][EACH];
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct cp_rng r;
        struct cp_front f[2];
        int pick[2], all[2];
        cp_rng_init(&r, seed, CP_RNG_TEST, 13, 0);
        for (int c = 0; c < 2; c++) {
            f[c] = (struct cp_front){.item = item[c], .n = EACH};
            for (int i = 0; i < EACH; i++) { /* dearer with a shorter time and broadcast */
                double time = cp_rng_range(&r, 1, 100), broadcast = i + 0.5 * c;
                item[c][i] =
                    (struct cp_candidate){{time, 300 - time - 2 * broadcast}, broadcast, {0}};
            }
            cp_front_reduce(&f[c]);
        }
        double v = cp_rng_range(&r, 0.5, 3), step_s = 0.5 * (2 * EACH / CP_FRONT_BROADCASTS + 1);
        assert_int_equal(cp_front_merge(f, 2, v, pick), CP_OK);
        double best = try_all(f, 2, v, all, 0), got = value_of(f, 2, v, pick);
        assert_true(got >= best * (1 - 1e-12) && got <= best + v * step_s);
    }
}

/* What is added is valued as cp_draft_value() does it; what would never end is left out; the order
 * of adding does not matter, and thousands of candidates do not take thousands of places. */
static void adding(void **state)
{
    (void)state;
    enum { PLANS = 300 };
    static struct cp_cluster_plan plan[PLANS];
    struct cp_world w;
    struct cp_queues q;
    struct cp_front f[2] = {{0}, {0}};
    toy_world(&w, 2, 4, 6, 9);
    toy_queues(&q, &w, 10, 9);
    struct cp_policy_args a = {.world = &w, .queues = &q, .choose_order = true};
    for (int i = 0; i < PLANS; i++) {
        struct cp_plan p;
        struct cp_decision d;
        a.seed = (uint64_t)i / 2; /* each one twice */
        assert_int_equal(cp_policy_decide(cp_policy_find("random"), &a, &p, &d), CP_OK);
        plan[i] = p.cluster[1];
        cp_plan_fini(&p);
    }
    assert_int_equal(cp_front_add(&f[0], &a, 1, &plan[0]), CP_OK);
    struct cp_value v = cp_draft_value(&plan[0], &w, &q, 1);
    assert_true(f[0].item[0].value.time_s == v.time_s && f[0].item[0].value.cost == v.cost);
    assert_true(f[0].item[0].broadcast_s == cp_broadcast_s(&plan[0], 1, &w));
    for (int i = 1; i < PLANS; i++) {
        assert_int_equal(cp_front_add(&f[0], &a, 1, &plan[i]), CP_OK);
    }
    for (int i = PLANS - 1; i >= 0; i--) {
        assert_int_equal(cp_front_add(&f[1], &a, 1, &plan[(i * 7) % PLANS]), CP_OK);
    }
    assert_true(f[0].cap < PLANS / 2);
    cp_front_reduce(&f[0]);
    cp_front_reduce(&f[1]);
    assert_int_equal(f[0].n, f[1].n);
    for (int i = 0; i < f[0].n; i++) {
        assert_true(same_values(&f[0].item[i], &f[1].item[i]));
        assert_memory_equal(&f[0].item[i].plan, &f[1].item[i].plan, sizeof f[0].item[i].plan);
    }
    struct cp_cluster_plan dead = plan[0];
    dead.uplink_share = 0;
    int n = f[0].n;
    assert_int_equal(cp_front_add(&f[0], &a, 1, &dead), CP_OK);
    assert_int_equal(f[0].n, n);
    cp_front_fini(&f[0]);
    cp_front_fini(&f[1]);
    cp_queues_fini(&q);
    cp_world_fini(&w);
}

/* On failure nothing is changed, and nothing is left behind. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_front f[2] = {{0}, {0}};
    toy_world(&w, 2, 3, 4, 5);
    toy_plan(&p, &w, "gpipe-uniform");
    struct cp_policy_args a = {.world = &w};
    cp_mem_fail_at(1);
    assert_int_equal(cp_front_add(&f[0], &a, 0, &p.cluster[0]), CP_E_NOMEM);
    assert_true(f[0].n == 0 && !f[0].item);
    cp_mem_fail_at(0);
    bool failed = false;
    for (int i = 0; i < 1000 && !failed; i++) {
        int n = f[0].n, cap = f[0].cap;
        cp_mem_fail_at(cap > 0 && n == cap);
        cp_err err = cp_front_add(&f[0], &a, 0, &p.cluster[0]);
        cp_mem_fail_at(0);
        if (err) {
            assert_int_equal(err, CP_E_NOMEM);
            assert_true(f[0].n == n && f[0].cap == cap);
            failed = true;
        } else { /* later and cheaper than all before: nothing is beaten */
            f[0].item[n].value = (struct cp_value){1 + i, -i};
        }
    }
    assert_true(failed);
    assert_int_equal(cp_front_add(&f[0], &a, 0, &p.cluster[0]), CP_OK);
    assert_int_equal(cp_front_add(&f[1], &a, 1, &p.cluster[1]), CP_OK);
    int pick[2] = {-7, -7}, fails = 1;
    for (;; fails++) {
        cp_mem_fail_at((uint64_t)fails);
        cp_err err = cp_front_merge(f, 2, 1, pick);
        cp_mem_fail_at(0);
        if (err == CP_OK) {
            break;
        }
        assert_int_equal(err, CP_E_NOMEM);
        assert_true(pick[0] == -7 && pick[1] == -7);
    }
    assert_int_equal(fails, 4);
    cp_front_fini(&f[0]);
    cp_front_fini(&f[1]);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reduce_keeps_what_nothing_beats),
        cmocka_unit_test(merge_is_the_best_choice),
        cmocka_unit_test(many_broadcasts_are_thinned_out),
        cmocka_unit_test(adding),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
