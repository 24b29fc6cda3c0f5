/* norm, linear, embed, loss: values, sums that add up, and extreme inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "math/embed.h"
#include "math/linear.h"
#include "math/loss.h"
#include "math/norm.h"

#include <math.h>
#include <string.h>

static void test_norm_forward(void **state)
{
    (void)state;
    for (int n = 1; n <= 70; n += 3) {
        float x[140], gain[70], bias[70], hat[140], y[140], rstd[2];
        for (int j = 0; j < 2 * n; j++) {
            x[j] = (float)((j * 37) % 19) + (j < n ? 0 : 1000); /* a large mean: no cancellation */
            gain[j % n] = 1 + 0.01F * (float)(j % n);
            bias[j % n] = 0.5F - 0.02F * (float)(j % n);
        }
        cp_norm_forward(2, n, 1e-5, x, gain, bias, hat, rstd, y);
        for (int i = 0; i < 2; i++) {
            double mean = 0, var = 0;
            for (int j = 0; j < n; j++) {
                mean += (double)x[i * n + j] / n;
            }
            for (int j = 0; j < n; j++) {
                var += pow((double)x[i * n + j] - mean, 2) / n;
            }
            assert_true(fabs((double)rstd[i] * sqrt(var + 1e-5) - 1) < 1e-5);
            for (int j = 0; j < n; j++) {
                double want = ((double)x[i * n + j] - mean) / sqrt(var + 1e-5);
                assert_true(fabs((double)hat[i * n + j] - want) < 1e-4);
                want = want * (double)gain[j] + (double)bias[j];
                assert_true(fabs((double)y[i * n + j] - want) < 1e-4);
            }
        }
    }
}

static void test_norm_constant_row(void **state)
{
    (void)state;
    float x[20], gain[20], bias[20], hat[20], rstd[1], dgain[20] = {0}, dbias[20] = {0};
    for (int j = 0; j < 20; j++) {
        x[j] = 0.25F;
        gain[j] = 1;
        bias[j] = (float)j;
    }
    cp_norm_forward(1, 20, 1e-12, x, gain, bias, hat, rstd, x); /* y is x */
    for (int j = 0; j < 20; j++) {
        assert_true(hat[j] == 0 && x[j] == (float)j);
    }
    assert_true(isfinite(rstd[0]));
    cp_norm_backward(1, 20, hat, rstd, gain, x, dgain, dbias, x); /* dx is dy */
    for (int j = 0; j < 20; j++) {
        assert_true(isfinite(x[j]) && dgain[j] == 0 && dbias[j] == (float)j);
    }
}

static void test_linear(void **state)
{
    (void)state;
    /* two rows of two out of rows of three; y = x W^T + bias */
    const float w[6] = {1, 2, 3, 4, 5, 6}, bias[3] = {10, 20, 30};
    const float x[6] = {1, -1, 99, 2, 0.5F, 99}, dy[6] = {1, 0, 2, 0, 1, 1};
    float y[6], dw[6] = {1, 1, 1, 1, 1, 1}, db[3] = {5, 5, 5}, dx[6] = {7, 7, 7, 7, 7, 7};
    struct cp_linear l = {.rows = 2, .in = 2, .out = 3, .x_stride = 3, .w = w, .bias = bias};
    cp_linear_forward(&l, x, y);
    const float want_y[6] = {9, 19, 29, 13, 28, 43};
    cp_linear_backward(&l, x, dy, dw, db, dx, 0);
    const float want_dw[6] = {2, 0, 3, 1.5F, 5, -0.5F}, want_db[3] = {6, 6, 8};
    const float want_dx[6] = {11, 14, 7, 8, 10, 7};
    for (int i = 0; i < 6; i++) {
        assert_float_equal(y[i], want_y[i], 1e-5F);
        assert_float_equal(dw[i], want_dw[i], 1e-5F);
        assert_float_equal(dx[i], want_dx[i], 1e-5F);
        assert_float_equal(db[i % 3], want_db[i % 3], 1e-5F);
    }
    cp_linear_backward(&l, x, dy, dw, db, dx, 1);
    assert_float_equal(dx[0], 22, 1e-5F);
    assert_float_equal(dx[2], 7, 1e-5F); /* beyond the row: not touched */
    cp_linear_backward(&l, x, dy, dw, db, NULL, 0);
    assert_float_equal(db[0], 8, 1e-5F);
}

static void test_embed(void **state)
{
    (void)state;
    const float word[6] = {1, 2, 3, 4, 5, 6}, pos[4] = {10, 20, 30, 40}, type[2] = {0.5F, 0.25F};
    const int32_t ids[4] = {2, 0, 2, 2};
    float y[8], dw[6] = {0}, dp[4] = {0}, dt[2] = {1, 1};
    cp_embed_forward(2, 2, 2, ids, word, pos, type, y);
    const float want[8] = {15.5F, 26.25F, 31.5F, 42.25F, 15.5F, 26.25F, 35.5F, 46.25F};
    assert_memory_equal(y, want, sizeof y);
    const float dy[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    cp_embed_backward(2, 2, 2, ids, dy, dw, dp, dt);
    const float want_dw[6] = {3, 4, 0, 0, 13, 16}, want_dp[4] = {6, 8, 10, 12};
    assert_memory_equal(dw, want_dw, sizeof dw);
    assert_memory_equal(dp, want_dp, sizeof dp);
    assert_true(dt[0] == 17 && dt[1] == 21);
}

static void test_loss(void **state)
{
    (void)state;
    const float z[12] = {1, 2, 0.5F, 0, 0, 0, 3, 3, 1, -1, 5, 2};
    const int32_t label[4] = {1, 2, CP_LABEL_IGNORE, 0};
    float p[12], d[12];
    struct cp_loss loss = cp_xent_forward(4, 3, z, label, p);
    double e0 = exp(1) + exp(2) + exp(0.5), e3 = exp(-1) + exp(5) + exp(2);
    assert_true(fabs(loss.sum - ((log(e0) - 2) + log(3) + (log(e3) + 1))) < 1e-12);
    assert_int_equal(loss.labelled, 3);
    assert_int_equal(loss.correct, 1); /* ties go to the first class: sample 1 is wrong */
    assert_float_equal(p[0], (float)(exp(1) / e0), 1e-6F);
    assert_float_equal(p[6], p[7], 0); /* an ignored sample has probabilities, too */
    cp_xent_backward(4, 3, p, label, 0.5, d);
    assert_float_equal(d[1], (float)(0.5 * (exp(2) / e0 - 1)), 1e-6F);
    assert_float_equal(d[3], 0.5F / 3, 1e-6F);
    assert_true(d[6] == 0 && d[7] == 0 && d[8] == 0);
}

static void test_loss_extremes(void **state)
{
    (void)state;
    const float z[4] = {1e30F, -1e30F, NAN, 0};
    const int32_t label[2] = {1, 1};
    float p[4], d[4];
    struct cp_loss loss = cp_xent_forward(1, 2, z, label, p);
    assert_true(isfinite(loss.sum) && loss.sum > 1e30);
    assert_true(p[0] == 1 && p[1] == 0);
    loss = cp_xent_forward(2, 2, z, label, p);
    assert_true(isnan(loss.sum));
    loss = cp_xent_forward(1, 2, z, NULL, p);
    assert_true(loss.sum == 0 && loss.labelled == 0 && loss.correct == 0);
    cp_xent_backward(1, 2, p, NULL, 1, d);
    assert_true(d[0] == 0 && d[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_forward), cmocka_unit_test(test_norm_constant_row),
        cmocka_unit_test(test_linear),       cmocka_unit_test(test_embed),
        cmocka_unit_test(test_loss),         cmocka_unit_test(test_loss_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
