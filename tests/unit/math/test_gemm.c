/* gemm: every combination of transposes against three loops; one BLAS thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "math/gemm.h"

#include <math.h>

int openblas_get_num_threads(void); /* cblas.h belongs to gemm.c alone */

enum { M = 5, N = 7, K = 6, LD = 9 };

static float at(const float *x, enum cp_trans op, int i, int j)
{
    return op == CP_T ? x[j * LD + i] : x[i * LD + j];
}

static void check(enum cp_trans ta, enum cp_trans tb, float alpha, float beta)
{
    float a[LD * LD], b[LD * LD], c[M * LD], was[M * LD];
    for (int i = 0; i < LD * LD; i++) {
        a[i] = (float)(i % 11) - 5;
        b[i] = (float)(i % 7) - 3;
    }
    for (int i = 0; i < M * LD; i++) {
        was[i] = c[i] = beta == 0 ? NAN : (float)(i % 5);
    }
    cp_gemm(ta, tb, M, N, K, alpha, a, LD, b, LD, beta, c, LD);
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < LD; j++) {
            float sum = 0;
            for (int k = 0; k < K && j < N; k++) {
                sum += at(a, ta, i, k) * at(b, tb, k, j);
            }
            float old = was[i * LD + j];
            float want = j >= N ? old : alpha * sum + (beta == 0 ? 0 : beta * old);
            if (j < N || beta != 0) {
                assert_float_equal(c[i * LD + j], want, 1e-4F);
            } else {
                assert_true(isnan(c[i * LD + j])); /* beyond the row: not touched */
            }
        }
    }
}

static void test_products(void **state)
{
    (void)state;
    for (int ta = CP_N; ta <= CP_T; ta++) {
        for (int tb = CP_N; tb <= CP_T; tb++) {
            check((enum cp_trans)ta, (enum cp_trans)tb, 1, 0);
            check((enum cp_trans)ta, (enum cp_trans)tb, 0.5F, 1);
            check((enum cp_trans)ta, (enum cp_trans)tb, -2, 0.25F);
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    cp_gemm_init();
    cp_gemm_init();
    assert_int_equal(openblas_get_num_threads(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
