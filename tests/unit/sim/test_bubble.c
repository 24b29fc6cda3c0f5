/* bubble: parts of a step that add up, and what they are in cases that a person can see through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sim/bubble.h"
#include "unit/pipe/lists.h"

#include <math.h>
#include <string.h>

enum { STAGES = 6, MICROS = 12, CASES = 3000 };

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fmax(1, fabs(want)))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

static void split(int n, int micros, const int *slots, const struct cp_times *t,
                  struct cp_bubble *b)
{
    struct cp_ops lists[STAGES] = {0};
    lists_make(lists, n, micros, slots, true);
    assert_int_equal(cp_bubble_make(lists, n, t, b), CP_OK);
    lists_fini(lists, n);
}

static void order_slots(enum cp_order order, int n, int micros, int *slots)
{
    for (int j = 0; j < n; j++) {
        slots[j] = cp_order_slots(order, n - 2, micros, j);
    }
}

static void set_times(struct cp_times *t, int n, double fwd_s, double bwd_s, double link_s)
{
    *t = (struct cp_times){.segments = n - 2};
    for (int j = 0; j < n; j++) {
        t->fwd_s[j] = fwd_s;
        t->bwd_s[j] = bwd_s;
        if (j + 1 < n) {
            t->link_fwd_s[j] = t->link_bwd_s[j] = link_s;
        }
    }
}

static void check_sums(const struct cp_bubble *b)
{
    double mean_s = b->mean.busy_s + b->mean.fill_s + b->mean.imbalance_s + b->mean.transfer_s;
    for (int j = 0; j < b->n_stages; j++) {
        const struct cp_bubble_parts *p = &b->stage[j];
        assert_near(p->busy_s + p->fill_s + p->imbalance_s + p->transfer_s, b->step_s);
        assert_true(p->busy_s >= 0 && p->fill_s >= 0);
        assert_true(p->imbalance_s >= 0 && p->transfer_s >= 0);
    }
    assert_near(mean_s, b->step_s);
}

/* Random times and falling slots: no part is negative, and they add up to the recurrence's step. */
static void test_parts_add_up(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 5, 0);
    for (int i = 0; i < CASES; i++) {
        int n = 2 + (int)cp_rng_below(&r, STAGES - 1), micros = 1 + (int)cp_rng_below(&r, MICROS);
        int slots[STAGES];
        struct cp_times t;
        struct cp_bubble b;
        set_times(&t, n, 0, 0, 0);
        for (int j = 0; j < n; j++) {
            slots[j] = 1 + (int)cp_rng_below(&r, (uint32_t)(j == 0 ? micros : slots[j - 1]));
            t.fwd_s[j] = cp_rng_range(&r, 0, 2);
            t.bwd_s[j] = cp_rng_range(&r, 0, 4);
            if (j + 1 < n) {
                t.link_fwd_s[j] = cp_rng_range(&r, 0, 1);
                t.link_bwd_s[j] = cp_rng_range(&r, 0, 1);
            }
        }
        split(n, micros, slots, &t, &b);
        check_sums(&b);
        assert_near(b.step_s, cp_step_recurrence_s(&t, micros, slots));
    }
}

/* Equal stages without links wait for nothing but filling and draining: (n - 1)(f + b), in both
 * orders and for any M, so that its share falls as (n - 1) / (M + n - 1). */
static void test_balanced(void **state)
{
    (void)state;
    for (int micros = 1; micros <= 512; micros *= 2) {
        for (int order = CP_ORDER_GPIPE; order <= CP_ORDER_1F1B; order++) {
            int slots[STAGES], n = 5;
            struct cp_times t;
            struct cp_bubble b;
            set_times(&t, n, 0.1, 0.2, 0);
            order_slots((enum cp_order)order, n, micros, slots);
            split(n, micros, slots, &t, &b);
            check_sums(&b);
            for (int j = 0; j < n; j++) {
                assert_near(b.stage[j].fill_s, (n - 1) * 0.3);
                assert_near(b.stage[j].imbalance_s, 0);
                assert_near(b.stage[j].transfer_s, 0);
            }
            assert_near(b.mean.fill_s / b.step_s, (n - 1.0) / (micros + n - 1));
        }
    }
}

/* Links alone make the rest, and without them that part is 0 whatever the stages are. */
static void test_links(void **state)
{
    (void)state;
    int slots[STAGES];
    struct cp_times t;
    struct cp_bubble b;
    set_times(&t, 3, 1, 2, 0.25);
    order_slots(CP_ORDER_GPIPE, 3, 4, slots);
    split(3, 4, slots, &t, &b); /* Lemma 1: links are faster than stages, each is passed once */
    for (int j = 0; j < 3; j++) {
        assert_near(b.stage[j].transfer_s, 2 * 2 * 0.25);
        assert_near(b.stage[j].imbalance_s, 0);
        assert_near(b.stage[j].fill_s, 2 * 3);
    }
    set_times(&t, 3, 1, 2, 5);
    split(3, 4, slots, &t, &b); /* now they are what every micro-batch waits for */
    assert_near(b.stage[1].transfer_s, 2 * 2 * 5 + 3 * (5 - 1 + 5 - 2));
    t.fwd_s[1] = 7;
    memset(t.link_fwd_s, 0, sizeof t.link_fwd_s);
    memset(t.link_bwd_s, 0, sizeof t.link_bwd_s);
    split(3, 4, slots, &t, &b);
    assert_near(b.stage[0].transfer_s, 0);
    assert_true(b.stage[0].imbalance_s > 1);
}

/* Two stages of 3 and 9 s, M = 4: Lemma 1 gives 39 s, with equal stages 30 s, of which 6 s fill. */
static void test_unequal(void **state)
{
    (void)state;
    const int slots[] = {4, 4};
    struct cp_times t;
    struct cp_bubble b;
    set_times(&t, 2, 1, 2, 0);
    t.fwd_s[1] = 3;
    t.bwd_s[1] = 6;
    split(2, 4, slots, &t, &b);
    check_sums(&b);
    assert_near(b.step_s, 39);
    assert_near(b.stage[0].busy_s, 12);
    assert_near(b.stage[0].fill_s, 6);
    assert_near(b.stage[0].imbalance_s, 21);
    assert_near(b.stage[1].busy_s, 36); /* it waits for 3 s only, while the first one fills it */
    assert_near(b.stage[1].fill_s, 3);
    assert_near(b.stage[1].imbalance_s, 0);
    assert_near(b.mean.imbalance_s, 10.5);
}

/* With few slots a step of unequal stages can be shorter than that of equal ones: no part may be
 * negative for that. Equal stages take 3 x 3 s, these 3.2 + 2 x 2.8 s. */
static void test_unequal_and_faster(void **state)
{
    (void)state;
    const int slots[] = {2, 1};
    struct cp_times t;
    struct cp_bubble b;
    set_times(&t, 2, 1.2, 2, 0);
    t.fwd_s[1] = 0.8;
    split(2, 2, slots, &t, &b);
    check_sums(&b);
    assert_near(b.step_s, 8.8);
    assert_near(b.stage[0].fill_s, 8.8 - 6.4);
    assert_near(b.stage[0].imbalance_s, 0);
    assert_near(b.stage[1].fill_s, 3);
    assert_near(b.stage[1].imbalance_s, 8.8 - 5.6 - 3);
}

static void test_one_stage_and_no_time(void **state)
{
    (void)state;
    const int slots[] = {1, 1};
    struct cp_times t;
    struct cp_bubble b;
    set_times(&t, 2, 1, 2, 0);
    split(1, 1, slots, &t, &b);
    assert_near(b.stage[0].busy_s, b.step_s);
    assert_near(b.mean.fill_s + b.mean.imbalance_s + b.mean.transfer_s, 0);
    set_times(&t, 2, 0, 0, 0);
    split(2, 1, slots, &t, &b);
    check_sums(&b);
    assert_near(b.step_s, 0);
}

static void test_failures_leave_nothing(void **state)
{
    (void)state;
    struct cp_ops lists[2];
    struct cp_times t;
    struct cp_bubble b = {.n_stages = 7};
    set_times(&t, 2, 1, 2, 0);
    lists_make(lists, 2, 3, (const int[]){1, 2}, true);
    assert_int_equal(cp_bubble_make(lists, 2, &t, &b), CP_E_PLAN); /* deadlock */
    lists_fini(lists, 2);
    lists_make(lists, 2, 3, (const int[]){2, 1}, true);
    int failures = 0;
    cp_err err = CP_E_NOMEM;
    for (uint64_t n = 1; err; n++) {
        assert_int_equal(b.n_stages, 7);
        cp_mem_fail_at(n);
        err = cp_bubble_make(lists, 2, &t, &b);
        cp_mem_fail_at(0);
        assert_true(err == CP_OK || err == CP_E_NOMEM);
        failures += err != CP_OK;
    }
    assert_true(failures >= 3); /* each of the three runs */
    assert_int_equal(b.n_stages, 2);
    lists_fini(lists, 2);
}

/* The slowest cluster waits for nobody, the others for it. */
static void test_round(void **state)
{
    (void)state;
    struct cp_cluster_forecast c[2] = {{.step_s = 2, .round_s = 12}, {.step_s = 1, .round_s = 6.5}};
    struct cp_forecast f = {.broadcast_s = 3, .latency_s = 15, .n_clusters = 2, .cluster = c};
    struct cp_round_parts p;
    cp_round_parts_make(&f, 0, 5, &p);
    assert_near(p.steps_s, 10);
    assert_near(p.exchange_s, 2);
    assert_near(p.straggler_s, 0);
    assert_near(p.broadcast_s, 3);
    cp_round_parts_make(&f, 1, 5, &p);
    assert_near(p.straggler_s, 5.5);
    assert_near(p.steps_s + p.exchange_s + p.straggler_s + p.broadcast_s, f.latency_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_balanced),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_unequal),
        cmocka_unit_test(test_unequal_and_faster),
        cmocka_unit_test(test_one_stage_and_no_time),
        cmocka_unit_test(test_failures_leave_nothing),
        cmocka_unit_test(test_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
