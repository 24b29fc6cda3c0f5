/* The rule for M against search (docs/theory.md section 16, item 14). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/micro.h"

#include <math.h>

static void micro_rule_equals_search(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 12, CP_RNG_TEST, 1, 0);
    for (int i = 0; i < 5000; i++) {
        double slope = cp_rng_unit(&r) < 0.05 ? 0 : pow(10, cp_rng_range(&r, -4, 4));
        double price = cp_rng_unit(&r) < 0.05 ? 0 : pow(10, cp_rng_range(&r, -4, 6));
        int most = 1 + (int)cp_rng_below(&r, 40), best = 1;
        for (int m = 2; m <= most; m++) {
            if (slope * m + price / m < slope * best + price / best) {
                best = m;
            }
        }
        int got = cp_micro_best(slope, price, most);
        assert_in_range(got, 1, most);
        assert_true(slope * got + price / got <= slope * best + price / best);
    }
    assert_int_equal(cp_micro_best(0, 1, 16), 16);
    assert_int_equal(cp_micro_best(0, 0, 16), 1);
    assert_int_equal(cp_micro_best(1, 1e300, 16), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(micro_rule_equals_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
