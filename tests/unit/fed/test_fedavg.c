/* Weights and averages by hand, the order of clusters, and updates that must be refused. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "fed/fedavg.h"

#include <math.h>
#include <string.h>

static void weights_are_shares_of_the_data(void **state)
{
    (void)state;
    double w[3];
    cp_fedavg_weights((const double[]){10, 30, 0}, 3, w);
    assert_true(w[0] == 0.25 && w[1] == 0.75 && w[2] == 0);
    cp_fedavg_weights((const double[]){0, 0, 0}, 3, w);
    assert_true(w[0] == 0 && w[1] == 0 && w[2] == 0); /* never 0/0 */
}

static void average_by_hand(void **state)
{
    (void)state;
    struct cp_fedavg a;
    cp_real out[3];
    assert_int_equal(cp_fedavg_init(&a, 5), CP_OK);
    for (int again = 0; again < 2; again++) { /* the second block starts from zero */
        cp_fedavg_begin(&a, 3);
        assert_int_equal(cp_fedavg_add(&a, 0.25, (const cp_real[]){4, 8, -4}), CP_OK);
        assert_int_equal(cp_fedavg_add(&a, 0.75, (const cp_real[]){0, 4, 8}), CP_OK);
        cp_fedavg_finish(&a, out);
        assert_true(out[0] == 1 && out[1] == 5 && out[2] == 5);
    }
    cp_fedavg_fini(&a);
}

/* Clusters with 10 and 1,000 samples (field case B14): a parameter moves by their shares. */
static void ten_and_a_thousand_samples(void **state)
{
    (void)state;
    struct cp_fedavg a;
    double w[2];
    cp_real out[2];
    cp_fedavg_weights((const double[]){10, 1000}, 2, w);
    assert_true(fabs(w[0] - 10.0 / 1010) < 1e-15 && fabs(w[1] - 1000.0 / 1010) < 1e-15);
    assert_int_equal(cp_fedavg_init(&a, 2), CP_OK);
    cp_fedavg_begin(&a, 2);
    assert_int_equal(cp_fedavg_add(&a, w[0], (const cp_real[]){101, -202}), CP_OK);
    assert_int_equal(cp_fedavg_add(&a, w[1], (const cp_real[]){0, 0}), CP_OK);
    cp_fedavg_finish(&a, out);
    assert_float_equal(out[0], 1, 1e-6);
    assert_float_equal(out[1], -2, 1e-6);
    cp_fedavg_fini(&a);
}

/* Values that a float cannot tell apart when they are added to a large one. */
static void sums_are_made_in_double(void **state)
{
    (void)state;
    struct cp_fedavg a;
    cp_real out;
    assert_int_equal(cp_fedavg_init(&a, 1), CP_OK);
    cp_fedavg_begin(&a, 1);
    assert_int_equal(cp_fedavg_add(&a, 0.5, (const cp_real[]){0x1p25f}), CP_OK);
    assert_int_equal(cp_fedavg_add(&a, 0.25, (const cp_real[]){4}), CP_OK);
    assert_int_equal(cp_fedavg_add(&a, 0.25, (const cp_real[]){-0x1p26f}), CP_OK);
    cp_fedavg_finish(&a, &out);
    assert_true(out == 1);
    cp_fedavg_fini(&a);
}

static void non_finite_updates_are_refused(void **state)
{
    (void)state;
    struct cp_fedavg a;
    assert_int_equal(cp_fedavg_init(&a, 2), CP_OK);
    cp_fedavg_begin(&a, 2);
    assert_int_equal(cp_fedavg_add(&a, 0.5, (const cp_real[]){1, (cp_real)NAN}), CP_E_NONFINITE);
    assert_int_equal(cp_fedavg_add(&a, 0.5, (const cp_real[]){1, (cp_real)-INFINITY}),
                     CP_E_NONFINITE);
    /* a cluster of weight 0 is not even looked at */
    cp_fedavg_begin(&a, 2);
    assert_int_equal(cp_fedavg_add(&a, 0, (const cp_real[]){1, (cp_real)NAN}), CP_OK);
    cp_fedavg_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_shares_of_the_data), cmocka_unit_test(average_by_hand),
        cmocka_unit_test(ten_and_a_thousand_samples),     cmocka_unit_test(sums_are_made_in_double),
        cmocka_unit_test(non_finite_updates_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
