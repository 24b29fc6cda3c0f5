/* dropout: masks are the words of the counter generator, whatever window is asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "math/dropout.h"

#include <math.h>
#include <string.h>

static const struct cp_drop base = {
    .rate = 0.25, .seed = 0xFEDCBA9876543210U, .step = 41, .block = 5, .site = CP_DROP_FFN};

static float factor(const struct cp_drop *d, int64_t sample, uint64_t element)
{
    uint32_t w[4],
        c[4] = {(uint32_t)(element / 4), d->step, (uint32_t)sample,
                (uint32_t)(sample >> 32) << 16 | (uint32_t)d->block << 3 | (uint32_t)d->site};
    cp_rng_block(d->seed, CP_RNG_DROPOUT, c, w);
    return w[element % 4] < (uint32_t)(d->rate * 4294967296.0) ? 0 : (float)(1 / (1 - d->rate));
}

static void test_words(void **state)
{
    (void)state;
    const int64_t samples[] = {0, 7, 5000000007, ((int64_t)1 << 48) - 1};
    const struct cp_drop_range ranges[] = {
        {0, 0, 1, 1},
        {3, 0, 1, 1},
        {2, 0, 1, 3},
        {0, 0, 1, 128},
        {1, 0, 1, 127},
        {3, 0, 1, 500},
        {5, 9, 7, 5},
        {0, 24, 24, 24},
        {7, 31, 40, 29},
        {16, 64, 3, 64},
        {2, 7, 200, 1},
        {11, 2, 5, 9},
        {1ULL << 33, 512, 4, 511},
    };
    static float mask[4096];
    for (size_t s = 0; s < sizeof samples / sizeof *samples; s++) {
        for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
            const struct cp_drop_range *r = &ranges[k];
            memset(mask, 0xFF, sizeof mask);
            cp_drop_mask(&base, samples[s], r, mask);
            for (int i = 0; i < r->rows; i++) {
                for (int j = 0; j < r->n; j++) {
                    uint64_t e = r->first + (uint64_t)i * r->stride + (uint64_t)j;
                    assert_true(mask[i * r->n + j] == factor(&base, samples[s], e));
                }
            }
            assert_true(isnan(mask[r->rows * r->n])); /* nothing beyond */
        }
    }
}

static int differing(const struct cp_drop *a, int64_t sample_a, const struct cp_drop *b,
                     int64_t sample_b)
{
    enum { N = 400 };
    float x[N], y[N];
    int n = 0;
    cp_drop_mask(a, sample_a, &(struct cp_drop_range){0, 0, 1, N}, x);
    cp_drop_mask(b, sample_b, &(struct cp_drop_range){0, 0, 1, N}, y);
    for (int i = 0; i < N; i++) {
        n += x[i] != y[i];
    }
    return n;
}

/* Every part of the key matters: two independent masks at rate 1/4 differ in 3/8 of the places. */
static void test_keys(void **state)
{
    (void)state;
    struct cp_drop other[6];
    for (int i = 0; i < 6; i++) {
        other[i] = base;
    }
    other[0].seed ^= 1;
    other[1].seed ^= 1ULL << 40;
    other[2].step++;
    other[3].block++;
    other[4].site = CP_DROP_ATTN;
    other[5].block ^= 1 << 12;
    for (int i = 0; i < 6; i++) {
        int n = differing(&base, 9, &other[i], 9);
        assert_in_range(n, 100, 200);
    }
    assert_int_equal(differing(&base, 9, &base, 9), 0);
    assert_in_range(differing(&base, 9, &base, 10), 100, 200);
    assert_in_range(differing(&base, 9, &base, 9 + ((int64_t)1 << 40)), 100, 200);
}

static void test_rate(void **state)
{
    (void)state;
    enum { N = 40000 };
    static float mask[N];
    struct cp_drop d = base;
    d.rate = 0.1;
    cp_drop_mask(&d, 3, &(struct cp_drop_range){0, 0, 1, N}, mask);
    int dropped = 0;
    for (int i = 0; i < N; i++) {
        dropped += mask[i] == 0;
        assert_true(mask[i] == 0 || mask[i] == (float)(1 / 0.9));
    }
    assert_in_range(dropped, 3700, 4300); /* 5 sigma */
}

static void test_apply(void **state)
{
    (void)state;
    enum { B = 3, N = 1500 };
    static float x[B * N];
    const int64_t sample[B] = {4, 2, 4};
    for (int i = 0; i < B * N; i++) {
        x[i] = 3;
    }
    struct cp_drop none = base;
    none.rate = 0;
    cp_drop_apply(&none, B, N, sample, x);
    assert_true(x[0] == 3 && x[B * N - 1] == 3);
    cp_drop_apply(&base, B, N, sample, x);
    for (int s = 0; s < B; s++) {
        for (int i = 0; i < N; i++) {
            assert_true(x[s * N + i] == 3 * factor(&base, sample[s], (uint64_t)i));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_apply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
