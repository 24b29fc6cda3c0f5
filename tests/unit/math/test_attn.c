/* attn: against plain loops in double; padding has no part in it, whatever stands there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "math/attn.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { B = 3, T = 6, D = 12, H = 3, DH = D / H, MAX_LEN = 7, X = B * T * D, P = B * H * T * T };

static const int32_t len[B] = {6, 1, 4};
static const int64_t sample[B] = {10, 20, 30};

struct inputs {
    float q[X], k[X], v[X];
};

/* Padding rows hold NaN: they must not be read. */
static void fill(struct inputs *in)
{
    struct cp_rng r;
    cp_rng_init(&r, 3, CP_RNG_TEST, 0, 0);
    float *x[] = {in->q, in->k, in->v};
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < X; i++) {
            bool real = i / D % T < len[i / D / T];
            float value = (float)cp_rng_normal(&r);
            x[a][i] = real ? value : NAN;
        }
    }
}

static struct cp_attn attn(const struct cp_drop *drop)
{
    return (struct cp_attn){.b = B,
                            .t = T,
                            .width = D,
                            .heads = H,
                            .max_len = MAX_LEN,
                            .len = len,
                            .sample = sample,
                            .drop = drop};
}

static void check_row(const struct inputs *in, const struct cp_drop *drop, int s, int h, int i,
                      const float *probs, const float *ctx)
{
    double e[T], sum = 0, want[DH] = {0};
    const size_t head = (size_t)s * T * D + (size_t)h * DH;
    for (int j = 0; j < len[s]; j++) {
        double dot = 0;
        for (int c = 0; c < DH; c++) {
            dot += (double)in->q[head + i * D + c] * (double)in->k[head + j * D + c];
        }
        e[j] = exp(dot / sqrt(DH));
        sum += e[j];
    }
    for (int j = 0; j < T; j++) {
        float p = probs[((s * H + h) * T + i) * T + j], mask = 1;
        if (j >= len[s]) {
            assert_true(p == 0);
            continue;
        }
        assert_true(fabs((double)p - e[j] / sum) < 1e-6);
        if (drop->rate > 0) {
            struct cp_drop_range at = {(uint64_t)((h * MAX_LEN + i) * MAX_LEN + j), 0, 1, 1};
            cp_drop_mask(drop, sample[s], &at, &mask);
        }
        for (int c = 0; c < DH; c++) {
            want[c] += e[j] / sum * (double)mask * (double)in->v[head + j * D + c];
        }
    }
    for (int c = 0; c < DH; c++) {
        assert_true(fabs((double)ctx[head + i * D + c] - want[c]) < 2e-6);
    }
}

static void check_forward(double rate)
{
    static struct inputs in;
    float probs[P], ctx[X], scratch[2 * T * T];
    struct cp_drop drop = {.rate = rate, .seed = 1, .block = 2, .site = CP_DROP_PROBS};
    struct cp_attn a = attn(&drop);
    fill(&in);
    memset(probs, 0xFF, sizeof probs);
    memset(ctx, 0xFF, sizeof ctx);
    cp_attn_forward(&a, in.q, in.k, in.v, probs, ctx, scratch);
    for (int s = 0; s < B; s++) {
        for (int h = 0; h < H; h++) {
            for (int i = 0; i < len[s]; i++) {
                check_row(&in, &drop, s, h, i, probs, ctx);
            }
            for (int i = len[s] * T; i < T * T; i++) {
                assert_true(probs[(s * H + h) * T * T + i] == 0);
            }
        }
        for (int i = len[s] * D; i < T * D; i++) {
            assert_true(ctx[s * T * D + i] == 0);
        }
    }
}

static void test_forward(void **state)
{
    (void)state;
    check_forward(0);
    check_forward(0.4);
}

/* The values of gradients are checked in model/test_grad_double; here: padding stays out of them.
 */
static void test_backward_padding(void **state)
{
    (void)state;
    static struct inputs in;
    float probs[P], ctx[X], g[3][X], scratch[2 * T * T];
    struct cp_drop drop = {.rate = 0.4, .seed = 1, .block = 2, .site = CP_DROP_PROBS};
    struct cp_attn a = attn(&drop);
    fill(&in);
    cp_attn_forward(&a, in.q, in.k, in.v, probs, ctx, scratch);
    memset(g, 0xFF, sizeof g);
    cp_attn_backward(&a, in.q, in.k, in.v, probs, in.v, g[0], g[1], g[2], scratch);
    for (int i = 0; i < X; i++) {
        bool real = i / D % T < len[i / D / T];
        for (int k = 0; k < 3; k++) {
            assert_true(real ? isfinite(g[k][i]) : g[k][i] == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
