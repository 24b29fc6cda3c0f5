/* elem, act: exp, erf, GELU and tanh against libm in double; sums on every length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "math/act.h"
#include "math/elem.h"
#include "math/reduce.h"

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = -87; x <= 88; x += 0.00371F) {
        worst = fmax(worst, fabs((double)cp_exp(x) / exp((double)x) - 1));
    }
    assert_true(worst < 1.2e-7);
    assert_true(cp_exp(0) == 1);
    assert_true(cp_exp(-1e30F) >= 0 && cp_exp(-1e30F) < 2e-38F);
    assert_true(cp_exp(-INFINITY) < 2e-38F);
    assert_true(isfinite(cp_exp(INFINITY)));
    assert_true(isnan(cp_exp(NAN)));
}

static void test_erf(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = -6; x <= 6; x += 0.000191F) {
        if (x != 0) {
            worst = fmax(worst, fabs((double)cp_erf(x) / erf((double)x) - 1));
        }
    }
    assert_true(worst < 4.2e-7);
    assert_true(cp_erf(0) == 0);
    assert_true(fabs((double)cp_erf(1e-20F) / erf(1e-20) - 1) < 5e-7);
    assert_float_equal(cp_erf(INFINITY), 1, 5e-7F);
    assert_true(isnan(cp_erf(NAN)));
}

static void test_gelu(void **state)
{
    (void)state;
    enum { N = 4001 };
    static float x[N], y[N], dx[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - N / 2) * 0.005F;
        dx[i] = 2;
    }
    cp_gelu_forward(N, x, y);
    cp_gelu_backward(N, x, dx);
    for (int i = 0; i < N; i++) {
        double v = x[i], below = 0.5 * (1 + erf(v * M_SQRT1_2));
        double slope = below + v * exp(-v * v / 2) / sqrt(2 * M_PI);
        assert_true(fabs((double)y[i] - v * below) <= 4e-7 * fmax(1, fabs(v)));
        assert_true(fabs((double)dx[i] - 2 * slope) <= 2e-6);
    }
}

static void test_tanh(void **state)
{
    (void)state;
    float y[3] = {0.5F, -30, NAN}, dy[3] = {3, 3, 3};
    cp_tanh_forward(3, y);
    cp_tanh_backward(3, y, dy);
    assert_float_equal(y[0], 0.46211716F, 1e-6F);
    assert_float_equal(dy[0], 3 * (1 - 0.46211716F * 0.46211716F), 1e-6F);
    assert_float_equal(y[1], -1, 0);
    assert_float_equal(dy[1], 0, 0);
    assert_true(isnan(y[2]));
}

static void test_sums(void **state)
{
    (void)state;
    enum { N = 70 };
    float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i + 1);
        y[i] = (float)(2 * i - 5);
    }
    for (int n = 0; n <= N; n++) {
        double sum = 0, dot = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            sum += x[i];
            dot += x[i] * y[i];
            squares += x[i] * x[i];
        }
        assert_true(cp_vec_sum(x, n) == sum); /* whole numbers: exact in any order */
        assert_true(cp_vec_dot(x, y, n) == dot);
        assert_true(cp_sum_squares(x, n) == squares);
    }
}

/* A million terms, whose sum in float would be off by far more. */
static void test_squares_in_double(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static float x[N];
    for (int i = 0; i < N; i++) {
        x[i] = 0.1F;
    }
    double want = N * ((double)0.1F * (double)0.1F);
    assert_true(fabs(cp_sum_squares(x, N) / want - 1) < 1e-10);
    for (int i = 0; i < 40; i++) {
        float keep = x[i];
        x[i] = NAN;
        assert_true(isnan(cp_sum_squares(x, 40)));
        x[i] = INFINITY;
        assert_true(isinf(cp_sum_squares(x, 40)));
        x[i] = keep;
    }
    x[3] = 1e30F; /* its square is not a float */
    assert_true(fabs(cp_sum_squares(x, 40) / 1e60 - 1) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),  cmocka_unit_test(test_erf),
        cmocka_unit_test(test_gelu), cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_sums), cmocka_unit_test(test_squares_in_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
