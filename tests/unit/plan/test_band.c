/* Rates and bandwidth shares (docs/theory.md sections 5, 11.4 and 16, items 10 and 12). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "unit/plan/convex.h"
#include "world/radio.h"

static void assert_close(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fmax(fabs(a), fabs(b)))) {
        fail_msg("%.17g is not %.17g within %g", a, b, relative);
    }
}

static void rates_rise_and_bend_as_lemma_3_says(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        double x = log_range(&r, 1e-3, 1), c = log_range(&r, 1e-2, 1e6), h = 1e-4 * x;
        double low = cp_rate_bps(x - h, 1, c, 1, 1), mid = cp_rate_bps(x, 1, c, 1, 1);
        double high = cp_rate_bps(x + h, 1, c, 1, 1);
        assert_true(low < mid && mid < high);
        assert_true(cp_rate_bps(x, 1, c * 1.001, 1, 1) > mid);
        assert_close((high - low) / (2 * h), rate_slope(c, x) / M_LN2, 1e-4);
        double curved = -c * c / (x * (x + c) * (x + c)) / M_LN2;
        assert_true(curved < 0);
        assert_close((high - 2 * mid + low) / (h * h), curved, 2e-2);
    }
}

/* Time, slope and bend by w = 1 / x: against the rate of src/world and differences of it. */
static void times_bend_as_they_say(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 2, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        double w = log_range(&r, 1, 1e4), gain = log_range(&r, 1e-18, 1e-5), h = 1e-4;
        struct cp_air a = cp_air_make(ACT_BITS, 2e7, 0.1, gain, NOISE);
        struct cp_air_at at = cp_air_look(a, w);
        double time = cp_air_time_s(a, w);
        assert_close(time, ACT_BITS / cp_rate_bps(1 / w, 2e7, 0.1, gain, NOISE), 1e-12);
        assert_close(time, cp_air_least_s(a) + at.excess_s, 1e-15);
        double slope = at.slope / time * w; /* d ln t / d ln w */
        double s_hi = cp_air_look(a, w * (1 + h)).slope, s_lo = cp_air_look(a, w * (1 - h)).slope;
        double t_hi = cp_air_time_s(a, w * (1 + h)), t_lo = cp_air_time_s(a, w * (1 - h));
        assert_true(fabs((t_hi - t_lo) / time / (2 * h) - slope) < 1e-6);
        assert_true(fabs((s_hi - s_lo) / at.slope / (2 * h) - at.bend) < 1e-6);
        assert_true(at.bend <= 1e-12 && at.bend > -0.21);
    }
}

/* Across the place where the series ends, and far out on both sides. */
static void times_hold_at_any_snr(void **state)
{
    (void)state;
    double last_time = INFINITY, last_slope = 0.5 * (1 + 1e-12);
    for (double snr = 1e-300; snr < 1e280; snr *= 1.01) {
        struct cp_air_at at = cp_air_look((struct cp_air){1, snr}, 1);
        double time = cp_air_time_s((struct cp_air){1, snr}, 1);
        assert_true(time > 0 && time < last_time);
        assert_true(at.excess_s > 0 && at.excess_s <= time);
        assert_close(cp_air_least_s((struct cp_air){1, snr}) + at.excess_s, time, 1e-14);
        assert_true(at.slope > 0 && at.slope <= last_slope);
        assert_true(at.bend <= 1e-12 && at.bend > -0.21);
        last_time = time;
        last_slope = at.slope * (1 + 1e-12);
    }
    assert_close(cp_air_look((struct cp_air){1, 1e-300}, 1).slope, 0.5, 1e-15);
    assert_true(cp_air_time_s((struct cp_air){1, 0}, 1) == INFINITY);
    assert_true(cp_air_time_s((struct cp_air){0, 0}, 1) == 0);
    assert_true(cp_air_make(1, 1, 1e300, 1, 1e-300).snr == 1e280);
}

/* (A_j + mu_j) (-t_j') = lambda, sum x = 1, mu_j only where t_j = theta, sum mu = peak or theta =
 * floor: with derivatives from the rate of Lemma 3. */
static void assert_kkt(const struct cp_band *b, const struct cp_band_result *x)
{
    double sum = 0, weights = 0;
    for (int j = 0; j < b->n; j++) {
        double c = b->link[j].snr, r = rate(c, x->share[j]);
        double fall = b->link[j].unit_s * rate_slope(c, x->share[j]) / (r * r);
        assert_true(x->mult[j] >= 0);
        assert_close((b->cost[j] + x->mult[j]) * fall, x->lambda, 1e-6);
        assert_close(x->time_s[j], b->link[j].unit_s / r, 1e-12);
        assert_true(x->time_s[j] <= x->peak_s);
        if (x->mult[j] > 1e-6 * b->peak) {
            assert_close(x->time_s[j], x->peak_s, 1e-6);
        }
        sum += x->share[j];
        weights += x->mult[j];
    }
    assert_close(sum, 1, 1e-12);
    assert_true(weights <= b->peak * (1 + 1e-6));
    if (x->peak_s > b->floor_s * (1 + 1e-9)) {
        assert_close(weights, b->peak, 1e-6);
    }
    assert_close(x->value, band_value(b, x->share), 1e-12);
}

static void optima_satisfy_kkt(void **state)
{
    (void)state;
    struct cp_rng r;
    int at_floor = 0, above = 0, below = 0;
    cp_rng_init(&r, 3, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 4000; i++) {
        struct cp_band b;
        struct cp_band_result x;
        band_draw(&r, 1 + i % CP_BAND_LINKS_MAX, &b);
        cp_band_solve(&b, &x);
        assert_kkt(&b, &x);
        double most = 0;
        for (int j = 0; j < b.n; j++) {
            most = fmax(most, x.time_s[j]);
        }
        above += most > b.floor_s * (1 + 1e-9);
        below += most < b.floor_s * (1 - 1e-9);
        at_floor += fabs(most - b.floor_s) <= 1e-9 * b.floor_s;
    }
    assert_true(above > 100 && below > 100 && at_floor > 100);
}

static void two_links_are_not_beaten_by_a_grid(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 4, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 200; i++) {
        struct cp_band b;
        struct cp_band_result x;
        double best = INFINITY;
        band_draw(&r, 2, &b);
        cp_band_solve(&b, &x);
        for (int k = 1; k < 2000; k++) {
            best = fmin(best, band_value(&b, (double[]){k / 2000.0, 1 - k / 2000.0}));
        }
        assert_true(x.value <= best * (1 + 1e-12));
        assert_true(x.value >= best * (1 - 1e-2)); /* and it is the same problem */
    }
}

static void equal_links_share_equally_and_worse_ones_get_more(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 5, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        struct cp_band b;
        struct cp_band_result x;
        band_draw(&r, 2 + i % 15, &b);
        for (int j = 0; j < b.n; j++) {
            b.cost[j] = b.cost[0];
        }
        b.link[1] = b.link[0];
        cp_band_solve(&b, &x);
        assert_close(x.share[0], x.share[1], 1e-9);
        for (int j = 0; j < b.n; j++) {
            for (int k = 0; k < b.n; k++) {
                if (b.link[j].snr < b.link[k].snr * 0.999) {
                    assert_true(x.share[j] > x.share[k]);
                }
            }
        }
        for (int j = 0; j < b.n; j++) {
            b.link[j] = b.link[0];
        }
        cp_band_solve(&b, &x);
        for (int j = 0; j < b.n; j++) {
            assert_close(x.share[j], 1.0 / b.n, 1e-9);
        }
    }
}

static void simple_cases_are_what_they_are(void **state)
{
    (void)state;
    struct cp_band_result x;
    struct cp_air good = {0.4, 1e5}, bad = {0.4, 10}, dead = {0.4, 0}, idle = {0, 0};
    cp_band_solve(&(struct cp_band){.n = 0, .peak = 2, .floor_s = 3}, &x);
    assert_true(x.value == 6 && x.peak_s == 3);
    struct cp_band one = {.n = 1, .link = {bad}, .cost = {2}, .peak = 3};
    cp_band_solve(&one, &x);
    assert_true(x.share[0] == 1 && x.mult[0] == 3);
    assert_kkt(&one, &x);
    one.floor_s = 100;
    cp_band_solve(&one, &x);
    assert_true(x.share[0] == 1 && x.mult[0] == 0);
    assert_kkt(&one, &x);
    /* v = 0: nothing weighs anything, or only energy does. */
    cp_band_solve(&(struct cp_band){.n = 2, .link = {good, bad}}, &x);
    assert_true(x.share[0] == 0.5 && x.share[1] == 0.5 && x.value == 0);
    cp_band_solve(&(struct cp_band){.n = 2, .link = {good, bad}, .cost = {0, 1}}, &x);
    assert_close(x.share[0], CP_SHARE_LEAST / 2, 1e-9);
    /* Only the longest time weighs. */
    cp_band_solve(&(struct cp_band){.n = 2, .link = {good, bad}, .peak = 1}, &x);
    assert_close(x.time_s[0], x.time_s[1], 1e-9);
    assert_close(x.mult[0] + x.mult[1], 1, 1e-9);
    /* No payload, no share; a dead link is known by its value. */
    cp_band_solve(&(struct cp_band){.n = 2, .link = {idle, bad}, .cost = {1, 1}, .peak = 1}, &x);
    assert_true(x.time_s[0] == 0 && x.share[1] > 1 - 1e-6);
    cp_band_solve(&(struct cp_band){.n = 2, .link = {good, dead}, .cost = {1, 1}, .peak = 1}, &x);
    assert_true(x.value == INFINITY && x.share[0] == 0.5 && x.lambda == INFINITY);
}

/* Nothing is NaN and no random neighbour is better, whatever goes in. */
static void survives_anything(void **state)
{
    (void)state;
    struct cp_rng r;
    int finite = 0;
    cp_rng_init(&r, 6, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 60000; i++) {
        static const int reach[] = {1, 3, 6, 12, 100, 300};
        int decades = reach[i % 6];
        struct cp_band b = {.n = 1 + (int)cp_rng_below(&r, 5)};
        struct cp_band_result x;
        b.peak = wild(&r, decades);
        b.floor_s = wild(&r, decades);
        for (int j = 0; j < b.n; j++) {
            b.link[j] = (struct cp_air){wild(&r, decades), fmin(wild(&r, decades), 1e280)};
            b.cost[j] = wild(&r, decades);
            if (j > 0 && cp_rng_unit(&r) < 0.2) {
                b.link[j] = b.link[0];
                b.cost[j] = b.cost[0];
            }
        }
        cp_band_solve(&b, &x);
        double sum = 0;
        for (int j = 0; j < b.n; j++) {
            sum += x.share[j];
            assert_true(x.share[j] > 0 && x.time_s[j] >= 0 && x.mult[j] >= 0);
        }
        assert_close(sum, 1, 1e-12);
        assert_true(x.value >= 0 && x.peak_s >= 0 && x.lambda >= 0);
        for (int k = 0; k < 10 && x.value < INFINITY && decades <= 12; k++) {
            double y[CP_BAND_LINKS_MAX];
            for (int j = 0; j < b.n; j++) {
                y[j] = k == 0 ? 1 : x.share[j] * exp(cp_rng_range(&r, -1, 1) * (k < 5 ? 0.01 : 1));
            }
            sum = 0;
            for (int j = 0; j < b.n; j++) {
                sum += y[j];
            }
            double value = 0, longest = b.floor_s;
            for (int j = 0; j < b.n; j++) {
                double t = cp_air_time_s(b.link[j], sum / y[j]);
                value += b.cost[j] * t;
                longest = fmax(longest, t);
            }
            assert_true(x.value <= (value + b.peak * longest) * (1 + 1e-6));
            finite++;
        }
    }
    assert_true(finite > 50000);
}

/* A far-off gain of 1e-300, a near one with an SNR of 1e12. */
static void survives_gains_out_of_this_world(void **state)
{
    (void)state;
    double gains[] = {1e-300, 1e-100, 1e-30, 1e-9, 1e3};
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < 5; j++) {
            struct cp_band b = {.n = 2, .cost = {1, 1}, .peak = 7};
            struct cp_band_result x;
            b.link[0] = cp_air_make(ACT_BITS, 2e7, 0.1, gains[i], NOISE);
            b.link[1] = cp_air_make(ACT_BITS, 2e7, 0.1, gains[j], NOISE);
            cp_band_solve(&b, &x);
            assert_close(x.share[0] + x.share[1], 1, 1e-12);
            assert_true(x.value < INFINITY);
            assert_true(x.value <= band_value(&b, (double[]){0.5, 0.5}) * (1 + 1e-12));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_rise_and_bend_as_lemma_3_says),
        cmocka_unit_test(times_bend_as_they_say),
        cmocka_unit_test(times_hold_at_any_snr),
        cmocka_unit_test(optima_satisfy_kkt),
        cmocka_unit_test(two_links_are_not_beaten_by_a_grid),
        cmocka_unit_test(equal_links_share_equally_and_worse_ones_get_more),
        cmocka_unit_test(simple_cases_are_what_they_are),
        cmocka_unit_test(survives_anything),
        cmocka_unit_test(survives_gains_out_of_this_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
