/* rng: the published Philox answers, streams, and the moments of every distribution. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Answers from the table that comes with Random123 (kat_vectors, philox4x32 10). */
static void test_published_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } KAT[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                {0xffffffff, 0xffffffff},
                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                {0xa4093822, 0x299f31d0},
                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (size_t i = 0; i < sizeof KAT / sizeof *KAT; i++) {
        uint64_t seed = KAT[i].key[0] | (uint64_t)KAT[i].key[1] << 32;
        uint32_t out[4];
        cp_rng_block(seed, (enum cp_rng_purpose)0, KAT[i].ctr, out); /* purpose 0: the bare key */
        assert_memory_equal(out, KAT[i].out, sizeof out);
    }
}

static void test_blocks_differ(void **state)
{
    (void)state;
    const uint32_t c[4] = {1, 2, 3, 4}, d[4] = {1, 2, 3, 5};
    uint32_t a[4], b[4];
    cp_rng_block(7, CP_RNG_INIT, c, a);
    cp_rng_block(7, CP_RNG_INIT, c, b);
    assert_memory_equal(a, b, sizeof a);
    cp_rng_block(7, CP_RNG_DROPOUT, c, b);
    assert_memory_not_equal(a, b, sizeof a);
    cp_rng_block(8, CP_RNG_INIT, c, b);
    assert_memory_not_equal(a, b, sizeof a);
    cp_rng_block(7 + (1ull << 40), CP_RNG_INIT, c, b);
    assert_memory_not_equal(a, b, sizeof a);
    cp_rng_block(7, CP_RNG_INIT, d, b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void test_streams(void **state)
{
    (void)state;
    struct cp_rng a, b, other;
    cp_rng_init(&a, 3, CP_RNG_TEST, 1, 2);
    cp_rng_init(&b, 3, CP_RNG_TEST, 1, 2);
    cp_rng_init(&other, 3, CP_RNG_TEST, 2, 1);
    uint32_t first[4], c[4] = {0, 0, 1, 2};
    cp_rng_block(3, CP_RNG_TEST, c, first);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t x = cp_rng_u32(&a);
        assert_int_equal(x, cp_rng_u32(&b));
        assert_true(i >= 4 || x == first[i]);
        same += x == cp_rng_u32(&other);
    }
    assert_int_equal(same, 0);
}

static double draw_unit(struct cp_rng *r)
{
    return cp_rng_unit(r);
}

static double draw_range(struct cp_rng *r)
{
    return cp_rng_range(r, -3, 5);
}

static double draw_normal(struct cp_rng *r)
{
    return cp_rng_normal(r);
}

static double draw_exp(struct cp_rng *r)
{
    return cp_rng_exp(r);
}

static double draw_gamma_03(struct cp_rng *r)
{
    return cp_rng_gamma(r, 0.3);
}

static double draw_gamma_1(struct cp_rng *r)
{
    return cp_rng_gamma(r, 1);
}

static double draw_gamma_7(struct cp_rng *r)
{
    return cp_rng_gamma(r, 7.5);
}

/* Mean, variance and skewness: each within 6 standard errors, which a fixed seed either keeps or
 * not for ever. k4 is the fourth central moment over variance squared. */
static void test_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    static const struct {
        double (*draw)(struct cp_rng *);
        double mean, var, skew, k4, lo, hi;
    } CASES[] = {{draw_unit, 0.5, 1.0 / 12, 0, 1.8, 0, 1},
                 {draw_range, 1, 64.0 / 12, 0, 1.8, -3, 5},
                 {draw_normal, 0, 1, 0, 3, -10, 10},
                 {draw_exp, 1, 1, 2, 9, 0, 100},
                 {draw_gamma_03, 0.3, 0.3, 3.6515, 23, 0, 100},
                 {draw_gamma_1, 1, 1, 2, 9, 0, 100},
                 {draw_gamma_7, 7.5, 7.5, 0.7303, 3.8, 0, 100}};
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct cp_rng r;
        cp_rng_init(&r, 11, CP_RNG_TEST, (uint32_t)k, 0);
        double s1 = 0, s2 = 0, s3 = 0;
        for (int i = 0; i < N; i++) {
            double x = CASES[k].draw(&r), d = x - CASES[k].mean;
            assert_true(x >= CASES[k].lo && x <= CASES[k].hi);
            s1 += d;
            s2 += d * d;
            s3 += d * d * d;
        }
        double var = CASES[k].var, n = N;
        assert_true(fabs(s1 / n) < 6 * sqrt(var / n));
        assert_true(fabs(s2 / n - var) < 6 * var * sqrt((CASES[k].k4 - 1) / n));
        double skew = s3 / n / pow(var, 1.5);
        assert_true(fabs(skew - CASES[k].skew) < 0.05 * CASES[k].k4);
    }
}

static void test_below(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 5, CP_RNG_TEST, 0, 0);
    int count[7] = {0};
    for (int i = 0; i < 70000; i++) {
        uint32_t x = cp_rng_below(&r, 7);
        assert_true(x < 7);
        count[x]++;
    }
    double chi2 = 0;
    for (int i = 0; i < 7; i++) {
        chi2 += (count[i] - 10000.0) * (count[i] - 10000.0) / 10000;
    }
    assert_true(chi2 < 32); /* 6 degrees of freedom: p about 2e-5 */
    assert_int_equal(cp_rng_below(&r, 1), 0);
    int high = 0; /* 3 * 2^30: a plain remainder would give the lower third twice as often */
    for (int i = 0; i < 30000; i++) {
        high += cp_rng_below(&r, 3u << 30) < 1u << 30;
    }
    assert_in_range(high, 9500, 10500);
}

static void test_shuffle(void **state)
{
    (void)state;
    struct cp_rng r;
    int place[5][5] = {{0}};
    cp_rng_init(&r, 9, CP_RNG_SHUFFLE, 0, 0);
    for (int k = 0; k < 20000; k++) {
        int32_t items[5] = {0, 1, 2, 3, 4};
        int seen = 0;
        cp_rng_shuffle(&r, items, 5);
        for (int i = 0; i < 5; i++) {
            seen |= 1 << items[i];
            place[i][items[i]]++;
        }
        assert_int_equal(seen, 31);
    }
    for (int i = 0; i < 25; i++) { /* each item in each place about 4000 times, sigma 57 */
        assert_in_range(place[i / 5][i % 5], 3660, 4340);
    }
    cp_rng_shuffle(&r, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_answers),
        cmocka_unit_test(test_blocks_differ),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_shuffle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
