/* A decision does not hang on the number of threads that make it, and neither does its refusal. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/plan/worlds.h"

enum { CLUSTERS = 13 };

static void threads_do_not_decide(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan alone, together;
        struct cp_decision d, e;
        toy_world(&w, CLUSTERS, 3, 4, seed);
        toy_queues(&q, &w, 10, seed);
        struct cp_policy_args a = {.world = &w, .queues = &q, .choose_order = true};
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &alone, &d), CP_OK);
        a.threads = seed % 2 ? 3 : CP_POLICY_THREADS_MAX + 1;
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &together, &e), CP_OK);
        assert_memory_equal(alone.cluster, together.cluster, CLUSTERS * sizeof *alone.cluster);
        assert_true(d.objective == e.objective);
        assert_string_equal(d.binding, e.binding);
        cp_plan_fini(&alone);
        cp_plan_fini(&together);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
}

/* Of two clusters without a plan the first one is named, whoever came upon it. */
static void the_first_refusal_is_told(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_decision d;
    toy_world(&w, CLUSTERS, 2, 4, 1);
    for (int c = 5; c < CLUSTERS; c += 4) {
        w.cluster[c].device[0].mem_bytes = w.cluster[c].device[1].mem_bytes = 1000;
    }
    struct cp_policy_args a = {.world = &w, .choose_order = true};
    for (a.threads = 1; a.threads <= 3; a.threads++) {
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d), CP_E_PLAN);
        assert_non_null(strstr(cp_err_text(), "c6: no way to place 4 layers"));
    }
    for (uint64_t n = 1; n < 400; n += 7) { /* and nothing is lost where memory ends */
        cp_mem_fail_at(n);
        cp_err err = cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d);
        cp_mem_fail_at(0);
        assert_true(err == CP_E_NOMEM || err == CP_E_PLAN);
    }
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_decide),
        cmocka_unit_test(the_first_refusal_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
