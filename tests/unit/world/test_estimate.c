/* Figures from measurement: convergence, outliers, few samples, absurd values. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "world/estimate.h"
#include "world/radio.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cp_figure_id RATE = {.kind = CP_FIGURE_RATE, .cluster = 1, .node = 2};

struct kit {
    struct cp_world model, w;
    struct cp_estimate *e;
};

static void make(struct kit *k, struct cp_estimate_options o)
{
    const struct cp_channel ch = {.fading = CP_FADING_STATIC, .clamp = 0.1};
    memset(k, 0, sizeof *k);
    assert_int_equal(cp_world_draw_default(2, 3, 5, &k->model), CP_OK);
    cp_channel_draw(&k->model, &ch, 5, true);
    assert_int_equal(cp_world_copy(&k->w, &k->model), CP_OK);
    assert_int_equal(cp_estimate_new(&k->model, &o, &k->e), CP_OK);
}

static void drop(struct kit *k)
{
    cp_estimate_free(k->e);
    cp_world_fini(&k->w);
    cp_world_fini(&k->model);
}

static void assert_near(double a, double b, double rel)
{
    if (!(fabs(a - b) <= rel * fmax(fabs(a), fabs(b)))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

/* An op of 1 GFLOP at a rate. */
static bool work(struct kit *k, int32_t round, double rate)
{
    return cp_estimate_work(k->e, round, 1, 2, 1e9, 1e9 / rate);
}

static void nothing_measured_changes_nothing(void **state)
{
    (void)state;
    struct kit k;
    double error = 7;
    make(&k, (struct cp_estimate_options){0});
    assert_int_equal(cp_estimate_apply(k.e, &k.w), 0);
    assert_memory_equal(k.w.cluster, k.model.cluster, 2 * sizeof *k.w.cluster);
    struct cp_figure f = cp_estimate_figure(k.e, RATE);
    assert_true(f.value == 0 && f.count == 0 && f.spread == 0);
    assert_false(cp_estimate_error(k.e, &k.w, RATE, &error));
    assert_true(error == 7);
    drop(&k);
}

/* 10 % noise about 8 GFLOP/s: within 10 % (4.4 deviations of an exponential mean) after 40
 * observations, for every one of 200 seeds, and hardly any of them taken for strays. */
static void converges(void **state)
{
    (void)state;
    double spread = 0, strays = 0;
    for (uint32_t seed = 0; seed < 200; seed++) {
        struct kit k;
        struct cp_rng r;
        cp_rng_init(&r, seed, CP_RNG_TEST, 0, 0);
        make(&k, (struct cp_estimate_options){.gain = 0.1});
        for (int i = 0; i < 40; i++) {
            assert_true(work(&k, i, 8e9 * exp(0.1 * cp_rng_normal(&r))));
        }
        assert_int_equal(cp_estimate_apply(k.e, &k.w), 1);
        assert_near(k.w.cluster[1].device[1].rate_flops, 8e9, 0.1);
        struct cp_figure f = cp_estimate_figure(k.e, RATE);
        assert_true(f.value == k.w.cluster[1].device[1].rate_flops && f.count == 40);
        spread += f.spread / 200;
        strays += (double)f.strays / (200 * 40);
        /* Only this figure was set. */
        k.w.cluster[1].device[1].rate_flops = k.model.cluster[1].device[1].rate_flops;
        assert_memory_equal(k.w.cluster, k.model.cluster, 2 * sizeof *k.w.cluster);
        drop(&k);
    }
    assert_near(spread, 0.1, 0.1);
    assert_true(strays < 0.02);
}

static void few_samples(void **state)
{
    (void)state;
    struct kit k;
    make(&k, (struct cp_estimate_options){.trusted = 3});
    double model = k.model.cluster[1].device[1].rate_flops;
    static const double SEEN[] = {8e9, 9e12, 7e9, 1e4, 8.1e9};
    static const double VALUE[] = {8e9, 0, 8e9, 0, 8e9}; /* medians; 0: not looked at */
    for (int i = 0; i < 5; i++) {
        assert_true(work(&k, 0, SEEN[i]));
        assert_int_equal(cp_estimate_apply(k.e, &k.w), i >= 2);
        if (VALUE[i] > 0) {
            assert_near(cp_estimate_figure(k.e, RATE).value, VALUE[i], 1e-9);
        }
        if (i < 2) {
            assert_true(k.w.cluster[1].device[1].rate_flops == model);
        }
    }
    assert_near(k.w.cluster[1].device[1].rate_flops, 8e9, 1e-9); /* two wild ones of five */
    drop(&k);
    make(&k, (struct cp_estimate_options){.trusted = 1});
    assert_true(work(&k, 0, 8e9));
    assert_int_equal(cp_estimate_apply(k.e, &k.w), 1);
    assert_near(k.w.cluster[1].device[1].rate_flops, 8e9, 1e-12);
    drop(&k);
}

/* One observation in ten is a thousand times off, either way. */
static void outliers_are_limited(void **state)
{
    (void)state;
    struct kit k;
    struct cp_rng r;
    int64_t wild = 0;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    make(&k, (struct cp_estimate_options){.gain = 0.1});
    for (int i = 0; i < 1000; i++) {
        double rate = 8e9 * exp(0.05 * cp_rng_normal(&r));
        if (i % 10 == 7) {
            rate *= i % 20 == 7 ? 1000 : 0.001;
            wild++;
        }
        assert_true(work(&k, i, rate));
        if (i >= 4) {
            assert_near(cp_estimate_figure(k.e, RATE).value, 8e9, 0.15);
        }
    }
    assert_true(cp_estimate_figure(k.e, RATE).strays >= wild - 1);
    assert_true(cp_estimate_figure(k.e, RATE).spread < 0.12);
    drop(&k);
}

/* A device that is throttled to a third looks like outliers, but not for long. */
static void a_change_is_followed(void **state)
{
    (void)state;
    struct kit k;
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    make(&k, (struct cp_estimate_options){0});
    for (int i = 0; i < 50; i++) {
        assert_true(work(&k, i, 9e9 * exp(0.02 * cp_rng_normal(&r))));
    }
    for (int i = 0; i < 4; i++) {
        assert_true(work(&k, 50 + i, 3e9 * exp(0.02 * cp_rng_normal(&r))));
    }
    assert_true(cp_estimate_figure(k.e, RATE).value > 6e9);
    assert_true(work(&k, 54, 3e9));
    assert_near(cp_estimate_figure(k.e, RATE).value, 3e9, 0.05);
    assert_true(cp_estimate_figure(k.e, RATE).spread < 0.05);
    drop(&k);
}

static void a_steady_value_does_not_get_stuck(void **state)
{
    (void)state;
    struct kit k;
    make(&k, (struct cp_estimate_options){0});
    for (int i = 0; i < 100; i++) {
        assert_true(work(&k, i, 8e9));
    }
    assert_near(cp_estimate_figure(k.e, RATE).value, 8e9, 1e-12);
    assert_true(cp_estimate_figure(k.e, RATE).spread == 0.01);
    for (int i = 0; i < 30; i++) { /* 2 %: within the least spread, followed smoothly */
        assert_true(work(&k, i, 8.16e9));
    }
    assert_near(cp_estimate_figure(k.e, RATE).value, 8.16e9, 1e-3);
    assert_int_equal(cp_estimate_figure(k.e, RATE).strays, 0);
    drop(&k);
}

static void old_figures_are_the_models_again(void **state)
{
    (void)state;
    struct kit k;
    make(&k, (struct cp_estimate_options){.trusted = 1, .max_age = 10});
    assert_true(work(&k, 5, 8e9));
    assert_int_equal(cp_estimate_figure(k.e, RATE).round, 5);
    k.w.round = 15;
    assert_int_equal(cp_estimate_apply(k.e, &k.w), 1);
    k.w.round = 16;
    assert_int_equal(cp_estimate_apply(k.e, &k.w), 0);
    assert_true(work(&k, 16, 8e9));
    assert_int_equal(cp_estimate_apply(k.e, &k.w), 1);
    drop(&k);
}

static void absurd_values_are_refused(void **state)
{
    (void)state;
    static const double BAD[] = {0, -0.0, -1, NAN, INFINITY, -INFINITY, 1e300, 1e-300, DBL_MIN / 4};
    struct kit k;
    make(&k, (struct cp_estimate_options){.trusted = 1});
    const struct cp_radio *radio = &k.model.radio;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        double x = BAD[i];
        assert_false(cp_estimate_work(k.e, 0, 1, 2, 1e9, x));
        assert_false(cp_estimate_work(k.e, 0, 1, 2, x, 1));
        assert_false(cp_estimate_energy(k.e, 0, 1, 2, 1e9, x));
        assert_false(cp_estimate_energy(k.e, 0, 1, 2, x, 1));
        assert_false(cp_estimate_memory(k.e, 0, 1, 2, x));
        for (int field = 0; field < 4; field++) {
            struct cp_link_sample s = {1e6, 1, 0.5, 0.1};
            double *const f[] = {&s.bits, &s.time_s, &s.share, &s.power_w};
            if (field == 0 && x == 1e300) {
                continue; /* very fast: taken as the fastest that is told apart */
            }
            *f[field] = x;
            bool d2d = cp_estimate_d2d(k.e, 0, radio, 1, 0, 2, &s);
            bool d2e = cp_estimate_d2e(k.e, 0, radio, 1, 0, &s);
            if ((field == 1 || field == 2) && x > 0 && x < 1) {
                continue; /* the same */
            }
            assert_false(d2d || d2e);
        }
    }
    assert_true(cp_estimate_figure(k.e, RATE).count == 0);
    assert_false(
        cp_estimate_d2d(k.e, 0, radio, 1, 0, 2, &(struct cp_link_sample){1e6, 1, 1.01, 0.1}));
    /* Whatever was taken, the world can be planned with. */
    cp_estimate_apply(k.e, &k.w);
    for (int i = 0; i <= 3; i++) {
        const struct cp_cluster *cl = &k.w.cluster[1];
        assert_true(isfinite(cl->gain_d2e[i]) && cl->gain_d2e[i] > 0);
        for (int j = 0; j <= 3; j++) {
            double g = cl->gain_d2d[i][j], c = g * 0.1 / (radio->noise_w_hz * radio->band_d2d_hz);
            assert_true(isfinite(c * c) && (g > 0) == (i != j));
        }
    }
    drop(&k);
}

/* The formula gives back the measured rate at the measured share and power. */
static void a_link_rate_becomes_a_gain(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 2, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 300; i++) {
        struct kit k;
        make(&k, (struct cp_estimate_options){.trusted = 1});
        const struct cp_radio *radio = &k.model.radio;
        struct cp_link_sample s = {.bits = pow(10, cp_rng_range(&r, 3, 9)),
                                   .share = cp_rng_range(&r, 0.02, 1),
                                   .power_w = pow(10, cp_rng_range(&r, -4, 0))};
        s.time_s = s.bits / pow(10, cp_rng_range(&r, 2, 8)); /* 100 bit/s to 100 Mbit/s */
        assert_true(cp_estimate_d2d(k.e, 0, radio, 1, 3, 1, &s));
        assert_true(cp_estimate_d2e(k.e, 0, radio, 0, 2, &s));
        assert_int_equal(cp_estimate_apply(k.e, &k.w), 2);
        const struct cp_cluster *a = &k.w.cluster[1], *b = &k.w.cluster[0];
        assert_true(a->gain_d2d[1][3] == a->gain_d2d[3][1]);
        assert_near(cp_rate_bps(s.share, radio->band_d2d_hz, s.power_w, a->gain_d2d[1][3],
                                radio->noise_w_hz),
                    s.bits / s.time_s, 1e-9);
        assert_near(
            cp_rate_bps(s.share, radio->band_up_hz, s.power_w, b->gain_d2e[2], radio->noise_w_hz),
            s.bits / s.time_s, 1e-9);
        /* The world that has it predicts it; the model's is off by the ratio of rates. */
        struct cp_figure_id up = {.kind = CP_FIGURE_D2E, .cluster = 0, .node = 2};
        struct cp_figure_id pair = {CP_FIGURE_D2D, 1, 1, 3};
        double error;
        assert_true(cp_estimate_error(k.e, &k.w, up, &error) && fabs(error) < 1e-9);
        assert_true(cp_estimate_error(k.e, &k.w, pair, &error) && fabs(error) < 1e-9);
        assert_true(cp_estimate_error(k.e, &k.model, pair, &error));
        double model = cp_rate_bps(s.share, radio->band_d2d_hz, s.power_w,
                                   k.model.cluster[1].gain_d2d[1][3], radio->noise_w_hz);
        assert_near(1 + error, s.bits / s.time_s / model, 1e-9);
        drop(&k);
    }
}

static void energy_memory_and_errors(void **state)
{
    (void)state;
    struct kit k;
    double error;
    make(&k, (struct cp_estimate_options){.trusted = 2});
    size_t had = k.model.cluster[0].device[0].mem_bytes;
    for (int i = 0; i < 4; i++) {
        assert_true(cp_estimate_energy(k.e, 0, 0, 1, 1e9, 0.05));
        assert_true(cp_estimate_work(k.e, 0, 0, 0, 1e9, 0.1));
        assert_true(cp_estimate_memory(k.e, 0, 0, 1, 0x1p28)); /* less than the model has */
        assert_true(cp_estimate_memory(k.e, 0, 0, 2, 0x1p50)); /* more: the model's limit stays */
    }
    cp_estimate_apply(k.e, &k.w);
    assert_near(k.w.cluster[0].device[0].energy_j_flop, 5e-11, 1e-12);
    assert_near(k.w.cluster[0].cu.rate_flops, 1e10, 1e-12);
    assert_true(had > 1 << 28);
    assert_true(llabs((long long)k.w.cluster[0].device[0].mem_bytes - (1 << 28)) <= 1);
    assert_true(k.w.cluster[0].device[1].mem_bytes == k.model.cluster[0].device[1].mem_bytes);
    /* The last reading counts at once where it is lower: memory is a hard limit. */
    assert_true(cp_estimate_memory(k.e, 0, 0, 1, 0x1p20));
    cp_estimate_apply(k.e, &k.w);
    assert_true(llabs((long long)k.w.cluster[0].device[0].mem_bytes - (1 << 20)) <= 1);
    struct cp_figure_id id = {.kind = CP_FIGURE_ENERGY, .node = 1};
    assert_true(cp_estimate_error(k.e, &k.model, id, &error));
    assert_near(1 + error, k.model.cluster[0].device[0].energy_j_flop / 5e-11, 1e-9);
    id = (struct cp_figure_id){.kind = CP_FIGURE_RATE};
    assert_true(cp_estimate_error(k.e, &k.model, id, &error));
    assert_near(error, 1e10 / 60e9 - 1, 1e-9); /* 60 GFLOP/s promise a sixth of the time */
    id = (struct cp_figure_id){.kind = CP_FIGURE_MEMORY, .node = 2};
    assert_true(cp_estimate_error(k.e, &k.model, id, &error));
    assert_near(1 + error, (double)k.model.cluster[0].device[1].mem_bytes / 0x1p50, 1e-9);
    drop(&k);
}

static void options_and_memory(void **state)
{
    (void)state;
    static const struct cp_estimate_options BAD[] = {
        {.gain = -0.1}, {.gain = 1.1}, {.gain = NAN}, {.trusted = -1}, {.max_age = -1}};
    struct cp_world w;
    struct cp_estimate *e = NULL;
    assert_int_equal(cp_world_draw_default(1, 1, 5, &w), CP_OK);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(cp_estimate_new(&w, &BAD[i], &e), CP_E_CONFIG);
    }
    for (uint64_t n = 1; n <= 2; n++) {
        cp_mem_fail_at(n);
        assert_int_equal(cp_estimate_new(&w, &(struct cp_estimate_options){0}, &e), CP_E_NOMEM);
    }
    cp_mem_fail_at(0);
    assert_null(e);
    cp_estimate_free(NULL);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_measured_changes_nothing),
        cmocka_unit_test(converges),
        cmocka_unit_test(few_samples),
        cmocka_unit_test(outliers_are_limited),
        cmocka_unit_test(a_change_is_followed),
        cmocka_unit_test(a_steady_value_does_not_get_stuck),
        cmocka_unit_test(old_figures_are_the_models_again),
        cmocka_unit_test(absurd_values_are_refused),
        cmocka_unit_test(a_link_rate_becomes_a_gain),
        cmocka_unit_test(energy_memory_and_errors),
        cmocka_unit_test(options_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
