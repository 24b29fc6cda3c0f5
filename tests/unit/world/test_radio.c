/* Path loss, fading and rates (docs/theory.md section 5; section 16, item 10). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "world/radio.h"

#include <math.h>
#include <string.h>

static void assert_near(double a, double b, double rel)
{
    if (!(fabs(a - b) <= rel * fmax(fabs(a), fabs(b)))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

/* The link budget that section 15 states. */
static void link_budget(void **state)
{
    (void)state;
    const double n0 = pow(10, -20.4);
    double g = cp_path_gain_d2d(20);
    assert_near(-10 * log10(g), 148 + 40 * log10(0.02), 1e-12); /* 80.0 dB */
    assert_near(10 * log10(0.1 * g / (20e6 * n0)), 40.9, 2e-3);
    assert_near(cp_rate_bps(1, 20e6, 0.1, g, n0), 272e6, 2e-3);
    g = cp_path_gain_d2e(150);
    assert_near(-10 * log10(g), 97.1, 1e-3);
    assert_near(cp_rate_bps(0.5, 40e6, pow(10, -0.7), g, n0), 179e6, 5e-3);
    /* Nearer than a metre counts as a metre. */
    assert_true(cp_path_gain_d2d(0) == cp_path_gain_d2d(1) && cp_path_gain_d2e(-3) > 0);
    assert_true(cp_path_gain_d2d(1) > cp_path_gain_d2d(1.01));
}

/* r rises with x and p and is concave in x; r'' is the formula of Lemma 3. */
static void rate_shape(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 2000; i++) {
        double band = pow(10, cp_rng_range(&r, 6, 8)), p = pow(10, cp_rng_range(&r, -4, 0));
        double g = pow(10, cp_rng_range(&r, -13, -7)), n0 = pow(10, -20.4);
        double x = cp_rng_range(&r, 0.05, 0.9), h = 1e-3 * x;
        double mid = cp_rate_bps(x, band, p, g, n0);
        double low = cp_rate_bps(x - h, band, p, g, n0), high = cp_rate_bps(x + h, band, p, g, n0);
        assert_true(low < mid && mid < high && low + high < 2 * mid);
        assert_true(cp_rate_bps(x, band, p * 1.01, g, n0) > mid);
        double c = p * g / (n0 * band);
        double second = -band * c * c / (M_LN2 * x * (x + c) * (x + c));
        double rounding = 8e-16 * mid / (h * h);
        assert_true(fabs((low - 2 * mid + high) / (h * h) - second) <=
                    1e-4 * fabs(second) + rounding);
    }
    assert_true(
        fabs(cp_rate_gain(cp_rate_bps(0.3, 1e6, 2, 1e-9, 1e-20), 0.3, 1e6, 2, 1e-20) / 1e-9 - 1) <
        1e-12);
    assert_true(isfinite(cp_rate_gain(1e300, 1e-3, 1e3, 1e-3, 1e-20)));
    assert_true(cp_rate_bps(0, 1e6, 1, 1e-9, 1e-20) == 0);
    assert_true(cp_rate_bps(1, 1e6, 0, 1e-9, 1e-20) == 0);
    assert_true(cp_rate_bps(1, 1e6, 1, 0, 1e-20) == 0);
    assert_true(cp_rate_bps(-1, 1e6, 1, 1e-9, 1e-20) == 0);
    assert_true(cp_rate_bps(NAN, 1e6, 1, 1e-9, 1e-20) == 0);
}

static void downlink_is_linear(void **state)
{
    (void)state;
    const struct cp_radio r = {.band_down_hz = 40e6, .noise_w_hz = 4e-21, .power_bs_w = 1};
    double all = cp_rate_down_bps(1, &r, 1e-10);
    assert_near(all, 40e6 * log2(1 + 1e-10 / (40e6 * 4e-21)), 1e-12);
    assert_near(cp_rate_down_bps(0.3, &r, 1e-10), 0.3 * all, 1e-12);
}

static void make(struct cp_world *w, int32_t round)
{
    assert_int_equal(cp_world_draw_default(2, 5, 42, w), CP_OK);
    w->round = round;
}

static void gains_are_reciprocal_and_keyed(void **state)
{
    (void)state;
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1};
    struct cp_world a, b;
    make(&a, 3);
    make(&b, 3);
    cp_channel_draw(&a, &ch, 7, false);
    cp_channel_draw(&b, &ch, 7, false);
    for (int c = 0; c < 2; c++) {
        assert_memory_equal(a.cluster[c].gain_d2d, b.cluster[c].gain_d2d,
                            sizeof a.cluster[c].gain_d2d);
        for (int i = 0; i <= 5; i++) {
            assert_true(a.cluster[c].gain_d2d[i][i] == 0 && a.cluster[c].gain_d2e[i] > 0);
            for (int j = 0; j <= 5; j++) {
                assert_true(a.cluster[c].gain_d2d[i][j] == a.cluster[c].gain_d2d[j][i]);
            }
        }
    }
    /* Another round, seed or cluster is another channel; a device less changes no other pair. */
    double pair = a.cluster[0].gain_d2d[1][4], up = a.cluster[0].gain_d2e[2];
    b.round = 4;
    cp_channel_draw(&b, &ch, 7, false);
    assert_true(b.cluster[0].gain_d2d[1][4] != pair && b.cluster[0].gain_d2e[2] != up);
    b.round = 3;
    cp_channel_draw(&b, &ch, 8, false);
    assert_true(b.cluster[0].gain_d2d[1][4] != pair);
    b.cluster[1] = b.cluster[0];
    b.cluster[0].n_devices = 4;
    cp_channel_draw(&b, &ch, 7, false);
    assert_true(b.cluster[0].gain_d2d[1][4] == pair && b.cluster[0].gain_d2e[2] == up);
    assert_true(b.cluster[1].gain_d2d[1][4] != pair);
    cp_world_fini(&a);
    cp_world_fini(&b);
}

/* On mean channels a gain is the path gain of the distance; the edge stands along x from the CU. */
static void gains_follow_the_positions(void **state)
{
    (void)state;
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1};
    struct cp_world w;
    make(&w, 3);
    struct cp_cluster *cl = &w.cluster[1];
    cl->cu.x_m = 100;
    cl->cu.y_m = 50;
    cl->edge_x_m = 80;
    cl->device[0].x_m = 112;
    cl->device[0].y_m = 45;
    cl->device[4].x_m = 109;
    cl->device[4].y_m = 49;
    cp_channel_draw(&w, &ch, 7, true);
    assert_near(cl->gain_d2d[0][1], cp_path_gain_d2d(13), 1e-12);
    assert_near(cl->gain_d2d[5][1], cp_path_gain_d2d(5), 1e-12);
    assert_near(cl->gain_d2e[0], cp_path_gain_d2e(80), 1e-12);
    assert_near(cl->gain_d2e[1], cp_path_gain_d2e(hypot(68, 5)), 1e-12);
    cp_world_fini(&w);
}

struct moments {
    double mean, second, least;
    int n, clamped;
};

/* chi of all pairs over many rounds. */
static struct moments sample(const struct cp_channel *ch)
{
    struct cp_world w, mean;
    struct moments m = {.least = INFINITY};
    make(&w, 0);
    make(&mean, 0);
    const struct cp_channel still = {.fading = CP_FADING_STATIC, .clamp = 0.1};
    cp_channel_draw(&mean, &still, 7, true);
    for (w.round = 0; w.round < 2000; w.round++) {
        cp_channel_draw(&w, ch, 7, false);
        for (int c = 0; c < 2; c++) {
            for (int i = 0; i < 5; i++) {
                double chi = w.cluster[c].gain_d2d[i][5] / mean.cluster[c].gain_d2d[i][5];
                m.mean += chi;
                m.second += chi * chi;
                m.least = fmin(m.least, chi);
                m.clamped += chi <= ch->clamp * (1 + 1e-9);
                m.n++;
            }
        }
    }
    m.mean /= m.n;
    m.second /= m.n;
    cp_world_fini(&w);
    cp_world_fini(&mean);
    return m;
}

static void fading_has_its_distribution(void **state)
{
    (void)state;
    /* Exp(1): mean 1, second moment 2; P(chi < 0.1) = 1 - e^-0.1. n = 20,000. */
    struct moments m = sample(&(struct cp_channel){.fading = CP_FADING_RAYLEIGH, .clamp = 1e-9});
    assert_true(fabs(m.mean - 1) < 0.03 && fabs(m.second - 2) < 0.15);
    m = sample(&(struct cp_channel){.fading = CP_FADING_RAYLEIGH, .clamp = 0.1});
    assert_true(m.least >= 0.1 * (1 - 1e-9));
    assert_true(fabs((double)m.clamped / m.n - (1 - exp(-0.1))) < 0.01);
    /* Rician: mean 1, variance (2K + 1) / (K + 1)^2. */
    m = sample(&(struct cp_channel){.fading = CP_FADING_RICIAN, .rician_k = 4, .clamp = 1e-9});
    assert_true(fabs(m.mean - 1) < 0.02 && fabs(m.second - m.mean * m.mean - 9.0 / 25) < 0.03);
    m = sample(&(struct cp_channel){.fading = CP_FADING_RICIAN, .rician_k = 0, .clamp = 1e-9});
    assert_true(fabs(m.mean - 1) < 0.03 && fabs(m.second - 2) < 0.15); /* K = 0 is Rayleigh */
    m = sample(&(struct cp_channel){.fading = CP_FADING_RICIAN, .rician_k = 4, .clamp = 0.5});
    assert_true(m.least >= 0.5 * (1 - 1e-9) && m.clamped > 0);
    /* The clamp raises the mean: E max(chi, c) = c + e^-c for Exp(1). */
    m = sample(&(struct cp_channel){.fading = CP_FADING_RAYLEIGH, .clamp = 0.5});
    assert_true(fabs(m.mean - (0.5 + exp(-0.5))) < 0.03);
    m = sample(&(struct cp_channel){.fading = CP_FADING_STATIC, .clamp = 0.1});
    assert_near(m.mean, 1, 1e-12);
    assert_near(m.second, 1, 1e-12);
}

static void shadowing_stays(void **state)
{
    (void)state;
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1, .shadow_db = 8};
    const struct cp_channel bare = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1};
    struct cp_world shadowed, plain, mean, still;
    double sum = 0, square = 0, first[2][6];
    int n = 0;
    make(&shadowed, 0);
    make(&plain, 0);
    make(&mean, 5);
    make(&still, 0);
    cp_channel_draw(&mean, &ch, 7, true); /* on mean channels the shadow is still there */
    cp_channel_draw(&still, &bare, 7, true);
    for (int32_t round = 0; round < 3; round++) {
        shadowed.round = plain.round = round;
        cp_channel_draw(&shadowed, &ch, 7, false);
        cp_channel_draw(&plain, &bare, 7, false);
        for (int c = 0; c < 2; c++) {
            for (int i = 0; i <= 5; i++) {
                double f = shadowed.cluster[c].gain_d2e[i] / plain.cluster[c].gain_d2e[i];
                double db = 10 * log10(f);
                first[c][i] = round == 0 ? f : first[c][i];
                assert_near(f, first[c][i], 1e-9); /* the same in every round */
                assert_near(f, mean.cluster[c].gain_d2e[i] / still.cluster[c].gain_d2e[i], 1e-9);
                sum += db;
                square += db * db;
                n++;
            }
        }
    }
    double spread = sqrt(square / n - (sum / n) * (sum / n));
    assert_true(spread > 4 && spread < 13); /* 12 draws of N(0, 8 dB) */
    cp_world_fini(&shadowed);
    cp_world_fini(&plain);
    cp_world_fini(&mean);
    cp_world_fini(&still);
}

/* Links of one round, and rounds of one link, are independent: no correlation of chi in either. */
static void fading_is_independent(void **state)
{
    (void)state;
    enum { ROUNDS = 20000, LINKS = 4 };
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 1e-9};
    struct cp_world w, still;
    double last[LINKS] = {0}, across = 0, along = 0;
    make(&w, 0);
    make(&still, 0);
    cp_channel_draw(&still, &ch, 7, true);
    for (w.round = 0; w.round < ROUNDS; w.round++) {
        cp_channel_draw(&w, &ch, 7, false);
        const struct cp_cluster *a = &w.cluster[0], *b = &still.cluster[0];
        double z[LINKS] = {a->gain_d2d[0][1] / b->gain_d2d[0][1] - 1,
                           a->gain_d2d[1][2] / b->gain_d2d[1][2] - 1,
                           a->gain_d2e[1] / b->gain_d2e[1] - 1,
                           w.cluster[1].gain_d2d[0][1] / still.cluster[1].gain_d2d[0][1] - 1};
        for (int i = 0; i < LINKS; i++) {
            along += w.round > 0 ? z[i] * last[i] : 0;
            last[i] = z[i];
            for (int j = 0; j < i; j++) {
                across += z[i] * z[j];
            }
        }
    }
    /* Sums of ROUNDS x 4 and ROUNDS x 6 products of variance 1. */
    assert_true(fabs(along) < 4 * sqrt(ROUNDS * 4.0) && fabs(across) < 4 * sqrt(ROUNDS * 6.0));
    cp_world_fini(&w);
    cp_world_fini(&still);
}

/* 0 dB in the mean, 8 dB deviation, normal in dB, on D2D and D2E links alike; one per link. */
static void shadowing_is_log_normal(void **state)
{
    (void)state;
    enum { CLUSTERS = 300, DEVICES = 8 };
    const struct cp_channel bare = {.fading = CP_FADING_STATIC, .clamp = 0.1};
    const struct cp_channel ch = {.fading = CP_FADING_STATIC, .clamp = 0.1, .shadow_db = 8};
    struct cp_world w, plain;
    assert_int_equal(cp_world_draw_default(CLUSTERS, DEVICES, 42, &w), CP_OK);
    assert_int_equal(cp_world_draw_default(CLUSTERS, DEVICES, 42, &plain), CP_OK);
    cp_channel_draw(&w, &ch, 7, false);
    cp_channel_draw(&plain, &bare, 7, false);
    double sum[2] = {0}, square[2] = {0}, fourth[2] = {0}, inside[2] = {0}, n[2] = {0};
    for (int c = 0; c < CLUSTERS; c++) {
        const struct cp_cluster *a = &w.cluster[c], *b = &plain.cluster[c];
        for (int i = 0; i <= DEVICES; i++) {
            for (int j = i; j <= DEVICES; j++) { /* j = i stands for the link to the edge */
                double x =
                    j > i ? a->gain_d2d[i][j] / b->gain_d2d[i][j] : a->gain_d2e[i] / b->gain_d2e[i];
                double z = 10 * log10(x) / 8;
                int kind = j > i;
                sum[kind] += z;
                square[kind] += z * z;
                fourth[kind] += z * z * z * z;
                inside[kind] += fabs(z) < 1;
                n[kind]++;
                assert_true(j == i || a->gain_d2d[i][j] == a->gain_d2d[j][i]);
            }
        }
    }
    for (int kind = 0; kind < 2; kind++) {
        double one = 1 / sqrt(n[kind]); /* bounds: 4 deviations of each statistic */
        assert_true(fabs(sum[kind] / n[kind]) < 4 * one);
        assert_true(fabs(square[kind] / n[kind] - 1) < 4 * sqrt(2) * one);
        assert_true(fabs(fourth[kind] / n[kind] - 3) < 4 * sqrt(96) * one);
        assert_true(fabs(inside[kind] / n[kind] - 0.6827) < 4 * 0.4655 * one);
    }
    double first = w.cluster[0].gain_d2d[0][1];
    cp_channel_draw(&w, &ch, 8, false); /* another seed is another place */
    assert_true(w.cluster[0].gain_d2d[0][1] != first);
    cp_world_fini(&w);
    cp_world_fini(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_budget),
        cmocka_unit_test(rate_shape),
        cmocka_unit_test(downlink_is_linear),
        cmocka_unit_test(gains_are_reciprocal_and_keyed),
        cmocka_unit_test(gains_follow_the_positions),
        cmocka_unit_test(fading_has_its_distribution),
        cmocka_unit_test(shadowing_stays),
        cmocka_unit_test(fading_is_independent),
        cmocka_unit_test(shadowing_is_log_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
