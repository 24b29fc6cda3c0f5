/* optim: values of single steps, the schedule of the learning rate, clipping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/optim.h"

#include <math.h>

static void test_sgd(void **state)
{
    (void)state;
    struct cp_optim o = {.kind = CP_OPTIM_SGD, .weight_decay = 0.1};
    cp_real w[2] = {1, -2}, g[2] = {4, 8};
    assert_int_equal(cp_optim_words(CP_OPTIM_SGD), 0);
    cp_optim_step(&o, 2, 0.5, 0.25, false, 1, w, g, NULL, NULL);
    assert_float_equal(w[0], 0.5F, 1e-7F);
    assert_float_equal(w[1], -3, 1e-7F);
    cp_optim_step(&o, 2, 0.5, 0.25, true, 2, w, g, NULL, NULL);
    assert_float_equal(w[0], 0.5F - 0.5F * 0.1F * 0.5F - 0.5F, 1e-7F);
    assert_float_equal(g[0], 4, 0);
}

/* Two steps by hand, in double. */
static void test_adamw(void **state)
{
    (void)state;
    enum { N = 37 };
    struct cp_optim o = {CP_OPTIM_ADAMW, 0.9, 0.999, 1e-8, 0.05};
    cp_real w[N], g[N], m[N] = {0}, v[N] = {0};
    double want[N], mm[N] = {0}, vv[N] = {0};
    assert_int_equal(cp_optim_words(CP_OPTIM_ADAMW), 2);
    for (int i = 0; i < N; i++) {
        want[i] = w[i] = (cp_real)(i - 10) * 0.125F;
    }
    for (int t = 1; t <= 3; t++) {
        for (int i = 0; i < N; i++) {
            g[i] = (cp_real)((i * t) % 7) - 2; /* some are 0 */
            double d = 0.5 * (double)g[i];
            mm[i] = 0.9 * mm[i] + 0.1 * d;
            vv[i] = 0.999 * vv[i] + 0.001 * d * d;
            want[i] *= 1 - 0.01 * 0.05;
            want[i] -=
                0.01 * (mm[i] / (1 - pow(0.9, t))) / (sqrt(vv[i] / (1 - pow(0.999, t))) + 1e-8);
        }
        cp_optim_step(&o, N, 0.01, 0.5, true, t, w, g, m, v);
        for (int i = 0; i < N; i++) {
            assert_true(fabs((double)w[i] - want[i]) < 1e-6);
            assert_true(fabs((double)m[i] - mm[i]) < 1e-6);
            assert_true(fabs((double)v[i] - vv[i]) < 1e-6);
        }
    }
}

static void test_adamw_details(void **state)
{
    (void)state;
    struct cp_optim o = {CP_OPTIM_ADAMW, 0.9, 0.999, 0.5, 0.05};
    cp_real w[1] = {1}, g[1] = {2}, m[1] = {0}, v[1] = {0};
    /* eps stands outside of the root: the first step is lr * g / (|g| + eps) */
    cp_optim_step(&o, 1, 0.1, 1, false, 1, w, g, m, v);
    assert_float_equal(w[0], 1 - 0.1F * 2 / 2.5F, 1e-6F);
    /* without a gradient ever, nothing moves but the decay */
    cp_real x[1] = {2}, zero[1] = {0}, mx[1] = {0}, vx[1] = {0};
    cp_optim_step(&o, 1, 0.1, 1, false, 9, x, zero, mx, vx);
    assert_float_equal(x[0], 2, 0);
    cp_optim_step(&o, 1, 0.1, 1, true, 10, x, zero, mx, vx);
    assert_float_equal(x[0], 2 * (1 - 0.1F * 0.05F), 1e-7F);
}

static void test_lr(void **state)
{
    (void)state;
    assert_true(cp_optim_lr(2, 0, 4, 12, CP_LR_LINEAR) == 0);
    assert_true(cp_optim_lr(2, 1, 4, 12, CP_LR_LINEAR) == 0.5);
    assert_true(cp_optim_lr(2, 4, 4, 12, CP_LR_LINEAR) == 2);
    assert_true(cp_optim_lr(2, 8, 4, 12, CP_LR_LINEAR) == 1);
    assert_true(cp_optim_lr(2, 11, 4, 12, CP_LR_LINEAR) == 0.25);
    assert_true(cp_optim_lr(2, 12, 4, 12, CP_LR_LINEAR) == 0);
    assert_true(cp_optim_lr(2, 99, 4, 12, CP_LR_LINEAR) == 0);
    assert_true(cp_optim_lr(2, 3, 4, 12, CP_LR_CONSTANT) == 1.5);
    assert_true(cp_optim_lr(2, 99, 4, 12, CP_LR_CONSTANT) == 2);
    assert_true(cp_optim_lr(2, 0, 0, 0, CP_LR_CONSTANT) == 2);
    assert_true(cp_optim_lr(2, 0, 0, 10, CP_LR_LINEAR) == 2);
    assert_true(cp_optim_lr(2, 5, 20, 10, CP_LR_LINEAR) == 0.5); /* never gets out of warm-up */
    assert_true(cp_optim_lr(2, 10, 10, 10, CP_LR_LINEAR) == 0);
}

static void test_clip(void **state)
{
    (void)state;
    assert_true(fabs(cp_optim_clip_scale(25, 1) - 0.2) < 1e-6);
    assert_true(cp_optim_clip_scale(25, 1) < 0.2); /* as torch, 1e-6 is added to the norm */
    assert_true(cp_optim_clip_scale(25, 10) == 1);
    assert_true(cp_optim_clip_scale(25, 0) == 1);
    assert_true(cp_optim_clip_scale(0, 1) == 1);
    assert_true(isnan(cp_optim_clip_scale(NAN, 1)));
    assert_true(isnan(cp_optim_clip_scale(INFINITY, 1)));
    assert_true(isnan(cp_optim_clip_scale(NAN, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),           cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_details), cmocka_unit_test(test_lr),
        cmocka_unit_test(test_clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
