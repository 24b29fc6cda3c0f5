#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "data/metrics.h"
#include "unit/data/help.h"

#include <math.h>

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) < 1e-12)) {
        fail_msg("%.15g is not %.15g", got, want);
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    struct cp_confusion c;
    assert_ok(cp_confusion_init(&c, 3));
    static const int32_t TRUTH[] = {0, 0, 0, 1, 1, 2, 2, 2, 2, CP_LABEL_IGNORE};
    static const int32_t GUESS[] = {0, 0, 1, 1, 2, 2, 2, 0, -1, 1};
    for (int i = 0; i < 10; i++) {
        cp_confusion_add(&c, TRUTH[i], GUESS[i]);
    }
    assert_int_equal(c.total, 9);
    assert_int_equal(cp_confusion_count(&c, 0, 1), 1);
    assert_int_equal(cp_confusion_count(&c, 2, 0), 1);
    assert_int_equal(cp_confusion_count(&c, 2, 3), 1); /* no prediction */
    assert_near(cp_confusion_accuracy(&c), 5.0 / 9);
    assert_near(cp_confusion_f1(&c, 0), 2.0 / 3); /* TP 2, FP 1, FN 1 */
    assert_near(cp_confusion_f1(&c, 1), 0.5);     /* TP 1, FP 1, FN 1 */
    assert_near(cp_confusion_f1(&c, 2), 4.0 / 7); /* TP 2, FP 1, FN 2 */
    assert_near(cp_confusion_macro_f1(&c), (2.0 / 3 + 0.5 + 4.0 / 7) / 3);
    cp_confusion_fini(&c);
}

static void test_nothing_counted(void **state)
{
    (void)state;
    struct cp_confusion c;
    assert_ok(cp_confusion_init(&c, 4));
    cp_confusion_add(&c, CP_LABEL_IGNORE, 1);
    assert_int_equal(c.total, 0);
    assert_near(cp_confusion_accuracy(&c), 0);
    assert_near(cp_confusion_macro_f1(&c), 0);
    assert_near(cp_confusion_f1(&c, 3), 0);
    cp_confusion_fini(&c);
}

/* Classes that never occur do not count; one that is only predicted does, with 0. */
static void test_absent_classes(void **state)
{
    (void)state;
    struct cp_confusion c;
    assert_ok(cp_confusion_init(&c, 10));
    cp_confusion_add(&c, 0, 0);
    cp_confusion_add(&c, 0, 0);
    assert_near(cp_confusion_macro_f1(&c), 1);
    cp_confusion_add(&c, 0, 9);
    assert_near(cp_confusion_macro_f1(&c), (4.0 / 5 + 0) / 2);
    cp_confusion_add(&c, 5, -1); /* only as truth, never predicted: 0 as well */
    assert_near(cp_confusion_macro_f1(&c), (4.0 / 5 + 0 + 0) / 3);
    cp_confusion_add(&c, 5, 10); /* no such class: wrong */
    assert_near(cp_confusion_accuracy(&c), 2.0 / 5);
    cp_confusion_fini(&c);
}

static void test_merge(void **state)
{
    (void)state;
    struct cp_confusion a, b, all;
    assert_ok(cp_confusion_init(&a, 3));
    assert_ok(cp_confusion_init(&b, 3));
    assert_ok(cp_confusion_init(&all, 3));
    for (int i = 0; i < 100; i++) {
        int32_t truth = i * i % 3, guess = i % 4 - (i % 5 == 0);
        cp_confusion_add(i % 2 ? &a : &b, truth, guess);
        cp_confusion_add(&all, truth, guess);
    }
    cp_confusion_merge(&a, &b);
    assert_int_equal(a.total, 100);
    assert_memory_equal(a.count, all.count, 12 * sizeof *a.count);
    cp_confusion_fini(&a);
    cp_confusion_fini(&b);
    cp_confusion_fini(&all);
}

static void test_argmax(void **state)
{
    (void)state;
    assert_int_equal(cp_argmax((float[]){-3}, 1), 0);
    assert_int_equal(cp_argmax((float[]){-3, -1, -2}, 3), 1);
    assert_int_equal(cp_argmax((float[]){2, 5, 5}, 3), 1);
    assert_int_equal(cp_argmax((float[]){2, NAN, 5}, 3), -1);
    assert_int_equal(cp_argmax((float[]){NAN, 1, 2}, 3), -1);
    assert_int_equal(cp_argmax((float[]){1, 2, INFINITY}, 3), -1);
    assert_int_equal(cp_argmax((float[]){1, 2, -INFINITY}, 3), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),        cmocka_unit_test(test_nothing_counted),
        cmocka_unit_test(test_absent_classes), cmocka_unit_test(test_merge),
        cmocka_unit_test(test_argmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
