/* sim: means in one pass and their intervals, against numbers done by hand and from tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/stats.h"

#include <math.h>

static void assert_near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    struct cp_mean m = {0};
    assert_true(isnan(cp_mean_of(&m)) && isnan(cp_mean_sd(&m)) && isnan(cp_mean_ci95(&m)));
    cp_mean_add(&m, 4);
    assert_true(cp_mean_of(&m) == 4 && isnan(cp_mean_sd(&m)) && isnan(cp_mean_ci95(&m)));
    cp_mean_add(&m, 1);
    cp_mean_add(&m, 3);
    cp_mean_add(&m, 2);
    assert_near(cp_mean_of(&m), 2.5, 1e-15);
    assert_near(cp_mean_sd(&m), sqrt(5.0 / 3), 1e-15);
    assert_near(cp_mean_ci95(&m), 3.182446305284263 * sqrt(5.0 / 3) / 2, 1e-12);
    struct cp_mean same = {0};
    cp_mean_add(&same, 0.1);
    cp_mean_add(&same, 0.1);
    cp_mean_add(&same, 0.1);
    assert_true(cp_mean_of(&same) == 0.1 && cp_mean_ci95(&same) == 0);
}

/* What the sum of squares minus the square of the sum would lose. */
static void test_far_from_zero(void **state)
{
    (void)state;
    struct cp_mean m = {0};
    for (int i = 0; i < 1000000; i++) {
        cp_mean_add(&m, 1e9 + i % 2);
    }
    assert_near(cp_mean_of(&m), 1e9 + 0.5, 1e-15);
    assert_near(cp_mean_sd(&m), 0.5, 1e-6);
}

static void test_student(void **state)
{
    (void)state;
    /* the usual tables, with more digits */
    const struct {
        int64_t dof;
        double t;
    } known[] = {{1, 12.706204736174705}, {2, 4.302652729749464},    {3, 3.182446305284263},
                 {4, 2.776445105197793},  {9, 2.262157162798205},    {10, 2.228138851986274},
                 {29, 2.045229642132703}, {1000, 1.962339080792206}, {1000000000, 1.959963987}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_near(cp_student95(known[i].dof), known[i].t, 1e-9);
    }
    assert_near(cp_student95(1001), cp_student95(1000), 1e-5); /* sum and expansion meet */
    assert_true(cp_student95(1001) < cp_student95(1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_far_from_zero),
        cmocka_unit_test(test_student),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
