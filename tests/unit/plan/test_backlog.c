/* Samples that wait limit M of a cluster: in every policy, in the proof, and in the world. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "unit/plan/worlds.h"

enum { LIMIT = 3 };

static void assert_says(const char *part)
{
    if (!strstr(cp_err_text(), part)) {
        fail_msg("'%s' is not in: %s", part, cp_err_text());
    }
}

/* A world of two clusters, of which the first is limited. */
static void make(struct cp_world *w, struct cp_queues *q, int devices, uint64_t seed)
{
    toy_world(w, 2, devices, 3, seed);
    toy_queues(q, w, 2, seed);
    w->cluster[0].micro_limit = LIMIT;
}

static struct cp_policy_args args_of(const struct cp_world *w, const struct cp_queues *q)
{
    return (struct cp_policy_args){.world = w,
                                   .mean = w,
                                   .queues = q,
                                   .choose_order = true,
                                   .order = CP_ORDER_1F1B,
                                   .choose_micro = true,
                                   .seed = 1};
}

static const int CUTS[2][CP_DEVICES_MAX] = {{2, 1}, {1, 2}};

/* Every policy, with M chosen, given, or neither: the first cluster keeps to its limit, and the
 * second has more. */
static void every_policy_keeps_to_it(void **state)
{
    (void)state;
    static const int given[2] = {8, 8};
    struct cp_world w;
    struct cp_queues q;
    make(&w, &q, 2, 1);
    q.convergence *= 10; /* M would be large */
    for (int i = 0; CP_POLICIES[i]; i++) {
        int plans = 0;
        for (int how = 0; how < 3; how++) {
            struct cp_policy_args a = args_of(&w, &q);
            struct cp_plan p;
            struct cp_decision d;
            a.choose_micro = how == 0;
            a.micro = how == 1 ? given : NULL;
            a.n_cuts = 2;
            a.cuts = CUTS;
            if (cp_policy_decide(CP_POLICIES[i], &a, &p, &d) != CP_OK) {
                assert_null(strstr(cp_err_text(), "does not hold"));
                continue;
            }
            plans++;
            assert_true(p.cluster[0].micro_batches <= LIMIT);
            assert_true(how == 0 || p.cluster[0].micro_batches == LIMIT);
            assert_true(how == 0 || p.cluster[1].micro_batches == 8);
            cp_plan_fini(&p);
        }
        if (plans == 0) {
            fail_msg("%s made no plan at all", CP_POLICIES[i]->name);
        }
    }
    cp_queues_fini(&q);
    cp_world_fini(&w);
}

/* The last plan had more micro-batches than wait now. */
static void a_known_plan_is_repaired(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_queues q;
    struct cp_plan before, after;
    struct cp_decision d;
    make(&w, &q, 3, 11);
    q.convergence *= 10;
    w.cluster[0].micro_limit = 0;
    struct cp_policy_args a = args_of(&w, &q);
    const struct cp_policy *dssda = cp_policy_find("dssda");
    assert_int_equal(cp_policy_decide(dssda, &a, &before, &d), CP_OK);
    assert_true(before.cluster[0].micro_batches > LIMIT);
    assert_null(strstr(d.binding, "samples that wait"));
    w.cluster[0].micro_limit = LIMIT;
    assert_int_equal(cp_plan_check(&before, &w), CP_E_PLAN);
    assert_says("the samples that wait are enough for 3");
    a.incumbent = &before;
    assert_int_equal(cp_policy_decide(dssda, &a, &after, &d), CP_OK);
    assert_int_equal(after.cluster[0].micro_batches, LIMIT);
    assert_non_null(strstr(d.binding, "samples that wait in c1"));
    cp_plan_fini(&before);
    cp_plan_fini(&after);
    cp_queues_fini(&q);
    cp_world_fini(&w);
}

/* No limit and the greatest limit are the same decision; the objective does not fall with less. */
static void a_limit_only_takes_away(void **state)
{
    (void)state;
    const int limits[] = {0, 16, 8, 4, 2, 1};
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct cp_world w;
        struct cp_queues q;
        double first = 0, last = 0;
        make(&w, &q, 3, seed);
        for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
            struct cp_policy_args a = args_of(&w, &q);
            struct cp_plan p;
            struct cp_decision d;
            w.cluster[0].micro_limit = w.cluster[1].micro_limit = limits[i];
            assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d), CP_OK);
            first = i == 0 ? d.objective : first;
            assert_true(i != 1 || d.objective == first);
            assert_true(d.objective >= last * 0.98); /* the search is not exact */
            last = d.objective;
            cp_plan_fini(&p);
        }
        assert_true(last > first);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
}

static void impossible_limits_are_named(void **state)
{
    (void)state;
    struct cp_world w;
    toy_world(&w, 2, 3, 4, 1);
    assert_int_equal(cp_world_micro_max(&w, 1), w.micro_max);
    for (int i = 0; i < 2; i++) {
        w.cluster[1].micro_limit = i ? -1 : w.micro_max + 1;
        assert_int_equal(cp_world_check(&w), CP_E_CONFIG);
        assert_says("c2: its limit of");
    }
    w.cluster[1].micro_limit = 1;
    assert_int_equal(cp_world_check(&w), CP_OK);
    assert_int_equal(cp_world_micro_max(&w, 1), 1);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_keeps_to_it),
        cmocka_unit_test(a_known_plan_is_repaired),
        cmocka_unit_test(a_limit_only_takes_away),
        cmocka_unit_test(impossible_limits_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
