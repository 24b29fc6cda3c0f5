/* D2E shares of the clusters (docs/theory.md section 11.6 ii): against Lemma 1, duality, grids. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/predict.h"
#include "unit/plan/convex.h"
#include "world/radio.h"

#include <stdlib.h>

enum { MANY = 1000 };

static void assert_close(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fmax(fabs(a), fabs(b)))) {
        fail_msg("%.17g is not %.17g within %g", a, b, relative);
    }
}

/* The struct of one cluster says what Lemma 1 and section 6.3 say. */
static void times_are_those_of_lemma_1(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 1000; i++) {
        struct cp_share_cluster c;
        struct cp_times t = {.segments = 1 + (int)cp_rng_below(&r, 5)};
        double y = log_range(&r, 1e-3, 1), around = 0;
        share_draw(&r, true, true, &c);
        int steps = (int)c.up_runs, last = t.segments;
        int micro = 1 + (int)(c.up_peaks / c.up_runs + 0.5);
        c.up_floor_s = c.down_floor_s = 0;
        for (int j = 0; j <= last + 1; j++) {
            t.fwd_s[j] = cp_rng_range(&r, 0, 1);
            t.bwd_s[j] = cp_rng_range(&r, 0, 2);
            if (j < last) {
                t.link_fwd_s[j] = cp_rng_range(&r, 0, 1);
                t.link_bwd_s[j] = cp_rng_range(&r, 0, 1);
            }
            around += t.fwd_s[j] + t.bwd_s[j] + t.link_fwd_s[j] + t.link_bwd_s[j];
            c.up_floor_s = fmax(c.up_floor_s, fmax(t.fwd_s[j], t.link_fwd_s[j]));
            c.down_floor_s = fmax(c.down_floor_s, fmax(t.bwd_s[j], t.link_bwd_s[j]));
        }
        double scatter = cp_rng_range(&r, 0, 10), model = cp_air_time_s(c.model, 1 / y);
        c.fixed_s = steps * around + scatter;
        t.link_fwd_s[last] = c.up.unit_s * M_LOG2E / cp_rate_bps(y, 1, c.up.snr, 1, 1);
        t.link_bwd_s[last] = c.down_s / y;
        double time = steps * cp_step_gpipe_s(&t, micro) + scatter + model;
        assert_close(cp_share_time_s(&c, y), time, 1e-12);
        double cost = c.up_cost * t.link_fwd_s[last] + c.model_cost * model;
        assert_close(cp_share_cost(&c, y), cost, 1e-12);
    }
}

/* The least of v T(y) + E(y) + lambda y: one-dimensional and convex. */
static double least(const struct cp_share_cluster *c, double v, double lambda, double lowest)
{
    double a = log(lowest), b = 0, best = INFINITY;
    for (int i = 0; i < 120; i++) {
        double y[2] = {exp(a + 0.382 * (b - a)), exp(a + 0.618 * (b - a))}, f[2];
        for (int k = 0; k < 2; k++) {
            f[k] = v * cp_share_time_s(c, y[k]) + cp_share_cost(c, y[k]) + lambda * y[k];
        }
        best = fmin(best, fmin(f[0], f[1]));
        f[0] < f[1] ? (b = log(y[1])) : (a = log(y[0]));
    }
    return best;
}

/* Shares sum to 1, weights to peak; and the multipliers prove by weak duality that nothing is
 * better: the least of the Lagrangian is the value. */
static void assert_optimal(const struct cp_share *p, const struct cp_share_out *x,
                           const struct cp_share_result *r)
{
    double shares = 0, weights = 0, bound = -r->lambda, y[MANY];
    for (int c = 0; c < p->n; c++) {
        assert_true(x[c].share > 0 && x[c].weight >= 0);
        assert_close(x[c].time_s, cp_share_time_s(&p->cluster[c], x[c].share), 1e-12);
        assert_true(x[c].time_s <= r->peak_s * (1 + 1e-12));
        assert_true(x[c].weight <= 1e-9 * p->peak || x[c].time_s >= r->peak_s * (1 - 1e-6));
        y[c] = x[c].share;
        shares += x[c].share;
        weights += x[c].weight;
        bound += least(&p->cluster[c], x[c].weight, r->lambda, CP_SHARE_LEAST / p->n);
    }
    assert_close(shares, 1, 1e-12);
    assert_true(weights <= p->peak * (1 + 1e-9));
    if (r->peak_s > p->floor_s * (1 + 1e-9)) {
        assert_close(weights, p->peak, 1e-9);
    }
    bound += (p->peak - weights) * p->floor_s;
    assert_close(r->value, share_value(p, y), 1e-10);
    assert_true(r->value <= bound + 1e-8 * r->value);
}

static bool at_kink(const struct cp_share_cluster *c, double share)
{
    double up = cp_air_time_s(c->up, 1 / share), down = c->down_s / share;
    return (c->up_peaks > 0 && fabs(up - c->up_floor_s) < 1e-9 * up) ||
           (c->down_peaks > 0 && fabs(down - c->down_floor_s) < 1e-9 * down);
}

static void optima_have_no_duality_gap(void **state)
{
    (void)state;
    struct cp_rng r;
    int kinks = 0, floors = 0;
    cp_rng_init(&r, 2, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 1500; i++) {
        struct cp_share_cluster c[16];
        struct cp_share_work work[16];
        struct cp_share_out x[16];
        struct cp_share_result result;
        struct cp_share p = {.n = 1 + i % 16, .cluster = c};
        p.peak = i % 3 ? log_range(&r, 1e-4, 10) : 1;
        p.floor_s = i % 5 ? 0 : cp_rng_range(&r, 100, 2000);
        for (int k = 0; k < p.n; k++) {
            share_draw(&r, i & 1, i & 2, &c[k]);
        }
        cp_share_solve(&p, work, x, &result);
        assert_optimal(&p, x, &result);
        for (int k = 0; k < p.n; k++) { /* bottlenecks that matter */
            double up = cp_air_time_s(c[k].up, 1 / x[k].share), down = c[k].down_s / x[k].share;
            c[k].up_floor_s = up * cp_rng_range(&r, 0.9, 1.1);
            c[k].down_floor_s = down * cp_rng_range(&r, 0.9, 1.1);
        }
        cp_share_solve(&p, work, x, &result);
        assert_optimal(&p, x, &result);
        bool kink = false;
        for (int k = 0; k < p.n; k++) {
            kink |= x[k].weight > 0 && at_kink(&c[k], x[k].share);
        }
        kinks += kink;
        floors += p.floor_s > 0 && fabs(result.peak_s - p.floor_s) < 1e-9 * p.floor_s;
    }
    assert_true(kinks > 50 && floors > 20);
}

static void a_thousand_clusters_have_no_duality_gap(void **state)
{
    (void)state;
    struct cp_rng r;
    struct cp_share_cluster *c = calloc(MANY, sizeof *c);
    struct cp_share_work *work = calloc(MANY, sizeof *work);
    struct cp_share_out *x = calloc(MANY, sizeof *x);
    assert_true(c && work && x);
    cp_rng_init(&r, 3, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 8; i++) {
        struct cp_share p = {.n = MANY, .cluster = c, .peak = i & 4 ? 1e-3 : 1};
        struct cp_share_result result;
        for (int k = 0; k < MANY; k++) {
            share_draw(&r, i & 1, i & 2, &c[k]);
        }
        cp_share_solve(&p, work, x, &result);
        assert_optimal(&p, x, &result);
    }
    free(c);
    free(work);
    free(x);
}

/* Without prices the best theta is the one at which everybody ends together. */
static void without_prices_all_end_together(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 4, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 200; i++) {
        struct cp_share_cluster c[8];
        struct cp_share_work work[8];
        struct cp_share_out x[8];
        struct cp_share_result result;
        struct cp_share p = {.n = 2 + i % 7, .cluster = c, .peak = 1};
        for (int k = 0; k < p.n; k++) {
            share_draw(&r, false, i & 1, &c[k]);
        }
        c[1] = c[0];
        cp_share_solve(&p, work, x, &result);
        for (int k = 0; k < p.n; k++) {
            assert_close(x[k].time_s, result.peak_s, 1e-9);
        }
        assert_close(x[0].share, x[1].share, 1e-9);
        assert_close(x[0].weight, x[1].weight, 1e-6);
    }
}

static void two_clusters_are_not_beaten_by_a_grid(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 5, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 200; i++) {
        struct cp_share_cluster c[2];
        struct cp_share_work work[2];
        struct cp_share_out x[2];
        struct cp_share_result result;
        struct cp_share p = {.n = 2, .cluster = c, .peak = log_range(&r, 1e-3, 1)};
        double best = INFINITY;
        share_draw(&r, true, true, &c[0]);
        share_draw(&r, true, true, &c[1]);
        cp_share_solve(&p, work, x, &result);
        for (int k = 1; k < 5000; k++) {
            best = fmin(best, share_value(&p, (double[]){k / 5000.0, 1 - k / 5000.0}));
        }
        assert_true(result.value <= best * (1 + 1e-12) && result.value >= best * (1 - 1e-2));
    }
}

static void simple_cases_are_what_they_are(void **state)
{
    (void)state;
    struct cp_share_work work[2];
    struct cp_share_out x[2];
    struct cp_share_result r;
    struct cp_share_cluster c[2] = {{.fixed_s = 5, .down_s = 1, .down_runs = 2},
                                    {.fixed_s = 5, .down_s = 3, .down_runs = 2}};
    cp_share_solve(&(struct cp_share){.n = 0, .peak = 2, .floor_s = 3}, work, x, &r);
    assert_true(r.value == 6 && r.peak_s == 3);
    /* 2 / y = 6 / (1 - y) */
    cp_share_solve(&(struct cp_share){.n = 2, .cluster = c, .peak = 2}, work, x, &r);
    assert_close(x[0].share, 0.25, 1e-12);
    assert_close(r.value, 26, 1e-12);
    assert_close(r.lambda, 16, 1e-9); /* dV/d(sum y) = -2 (2 + 6) */
    /* Nothing weighs anything: equal shares. One cluster: everything. */
    cp_share_solve(&(struct cp_share){.n = 2, .cluster = c}, work, x, &r);
    assert_true(x[0].share == 0.5 && x[1].share == 0.5 && r.value == 0);
    cp_share_solve(&(struct cp_share){.n = 1, .cluster = c, .peak = 2}, work, x, &r);
    assert_true(x[0].share == 1 && r.peak_s == 7 && x[0].weight == 2);
    assert_close(r.lambda, 4, 1e-12);
    /* Shares decide nothing. */
    struct cp_share_cluster still[2] = {{.fixed_s = 5}, {.fixed_s = 7}};
    cp_share_solve(&(struct cp_share){.n = 2, .cluster = still, .peak = 2}, work, x, &r);
    assert_true(x[0].share == 0.5 && r.value == 14 && x[1].weight == 2 && r.lambda < 1e-300);
    /* A dead link, even one that nothing weighs. */
    c[1].up = (struct cp_air){1, 0};
    cp_share_solve(&(struct cp_share){.n = 2, .cluster = c, .peak = 2}, work, x, &r);
    assert_true(r.value == INFINITY && x[0].share == 0.5);
}

static double wild_snr(struct cp_rng *r, int decades)
{
    return fmin(wild(r, decades), 1e280);
}

static void survives_anything(void **state)
{
    (void)state;
    struct cp_rng r;
    int finite = 0;
    cp_rng_init(&r, 6, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 60000; i++) {
        static const int reach[] = {1, 3, 6, 12, 100, 300};
        int d = reach[i % 6];
        struct cp_share_cluster c[5];
        struct cp_share_work work[5];
        struct cp_share_out x[5];
        struct cp_share_result result;
        struct cp_share p = {.n = 1 + (int)cp_rng_below(&r, 5), .cluster = c};
        p.peak = wild(&r, d);
        p.floor_s = wild(&r, d);
        for (int k = 0; k < p.n; k++) {
            c[k] = (struct cp_share_cluster){
                .fixed_s = wild(&r, d),
                .up = {wild(&r, d), wild_snr(&r, d)},
                .up_runs = wild(&r, d),
                .up_peaks = wild(&r, d),
                .up_floor_s = wild(&r, d),
                .up_cost = wild(&r, d),
                .down_s = wild(&r, d),
                .down_runs = wild(&r, d),
                .down_peaks = wild(&r, d),
                .down_floor_s = wild(&r, d),
                .model = {wild(&r, d), wild_snr(&r, d)},
                .model_cost = wild(&r, d),
            };
            c[k] = k > 0 && cp_rng_unit(&r) < 0.2 ? c[0] : c[k];
        }
        cp_share_solve(&p, work, x, &result);
        double sum = 0;
        for (int k = 0; k < p.n; k++) {
            sum += x[k].share;
            assert_true(x[k].share > 0 && x[k].time_s >= 0 && x[k].weight >= 0);
        }
        assert_close(sum, 1, 1e-12);
        assert_true(result.value >= 0 && result.peak_s >= 0 && result.lambda >= 0);
        for (int k = 0; k < 10 && result.value < INFINITY && d <= 12; k++) {
            double y[5], value = 0, longest = p.floor_s;
            sum = 0;
            for (int j = 0; j < p.n; j++) {
                y[j] = k == 0 ? 1 : x[j].share * exp(cp_rng_range(&r, -1, 1) * (k < 5 ? 0.01 : 1));
                sum += y[j];
            }
            for (int j = 0; j < p.n; j++) {
                value += cp_share_cost(&c[j], y[j] / sum);
                longest = fmax(longest, cp_share_time_s(&c[j], y[j] / sum));
            }
            assert_true(result.value <= (value + p.peak * longest) * (1 + 1e-6));
            finite++;
        }
    }
    assert_true(finite > 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_those_of_lemma_1),
        cmocka_unit_test(optima_have_no_duality_gap),
        cmocka_unit_test(a_thousand_clusters_have_no_duality_gap),
        cmocka_unit_test(without_prices_all_end_together),
        cmocka_unit_test(two_clusters_are_not_beaten_by_a_grid),
        cmocka_unit_test(simple_cases_are_what_they_are),
        cmocka_unit_test(survives_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
