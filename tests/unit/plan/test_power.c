/* Lambert's function and transmit powers (docs/theory.md sections 11.5 and 16, item 11). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/lambert.h"
#include "unit/plan/convex.h"

static void assert_close(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fmax(fabs(a), fabs(b)))) {
        fail_msg("%.17g is not %.17g within %g", a, b, relative);
    }
}

static void lambert_inverts_w_exp_w(void **state)
{
    (void)state;
    double last = -1;
    for (double z = -1 / M_E; z < 0; z += 1e-5) {
        double w = cp_lambert(z);
        assert_true(w >= last && w < 0);
        assert_close(w * exp(w), z, 1e-12);
        last = w;
    }
    for (double z = 1e-300; z < 1e300; z *= 1.01) {
        double w = cp_lambert(z);
        assert_true(w > last);
        /* e^w of a great w magnifies its rounding, so the far end is compared in logarithms */
        z < 1e2 ? assert_close(w * exp(w), z, 1e-12) : assert_close(w + log(w), log(z), 1e-14);
        last = w;
    }
    for (double y = 1; y < 1e300; y *= 1.1) {
        double w = cp_lambert_exp(y);
        assert_close(w + log(w), y, 1e-14);
    }
    assert_true(cp_lambert(-1 / M_E) >= -1 && cp_lambert(-1 / M_E) < -1 + 1e-7);
    assert_true(cp_lambert(-1) == -1 && cp_lambert(0) == 0);
    assert_close(cp_lambert(M_E), 1, 1e-15);
    assert_true(cp_lambert(INFINITY) == INFINITY);
}

/* Where 1 + W_0((z - 1) / e) would have no digits left: u = sqrt(2 z) - 2 z / 3 + ... */
static void the_shifted_root_keeps_its_digits_near_zero(void **state)
{
    (void)state;
    double last = 0;
    assert_true(cp_lambert_root(0) == 0);
    for (double z = 1e-300; z < 1e-7; z *= 1.1) {
        double s = sqrt(2 * z);
        assert_close(cp_lambert_root(z), s - s * s / 3 + 11 * s * s * s / 72, 1e-10);
    }
    for (double z = 1e-3; z < 1e300; z *= 1.01) {
        double u = cp_lambert_root(z);
        assert_true(u > last);
        if (u < 5) {
            assert_close((u - 1) * exp(u) + 1, z, 1e-12);
        } else {
            assert_close(log(u - 1) + u, log(z - 1), 1e-14);
        }
        last = u;
    }
}

static struct cp_power_link draw_link(struct cp_rng *r)
{
    struct cp_power_link l[1];
    struct cp_power p;
    power_draw(r, 1, l, &p);
    l->price = log_range(r, 1e-3, 1e2);
    return *l;
}

static void closed_form_is_not_beaten_by_a_grid(void **state)
{
    (void)state;
    struct cp_rng r;
    int inside = 0;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        struct cp_power_link l = draw_link(&r);
        double v = log_range(&r, 1e-4, 1e2), best = INFINITY;
        double p = cp_power_alone_w(&l, v);
        assert_true(p >= l.min_w && p <= l.max_w);
        inside += p > l.min_w && p < l.max_w;
        for (int k = 0; k <= 2000; k++) {
            double q = l.min_w * pow(l.max_w / l.min_w, k / 2000.0);
            best = fmin(best, (v + l.price * q) * power_time(&l, q));
        }
        double value = (v + l.price * p) * power_time(&l, p);
        assert_true(value <= best * (1 + 1e-12) && value >= best * (1 - 1e-4));
        assert_close(cp_power_time_s(&l, p), power_time(&l, p), 1e-9);
    }
    assert_true(inside > 100);
}

static void power_rises_with_v_and_falls_with_price(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 2, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 200; i++) {
        struct cp_power_link l = draw_link(&r);
        l.min_w = 1e-12;
        l.max_w = 1e6;
        double last = 0;
        for (double v = 1e-4; v < 1e4; v *= 2) {
            double p = cp_power_alone_w(&l, v);
            assert_true(p > last || p == l.max_w);
            last = p;
        }
        last = INFINITY;
        for (l.price = 1e-4; l.price < 1e4; l.price *= 2) {
            double p = cp_power_alone_w(&l, 1);
            assert_true(p < last || p == l.max_w);
            last = p;
        }
        l.price = 0;
        assert_true(cp_power_alone_w(&l, 1) == l.max_w);
        assert_true(cp_power_alone_w(&l, 0) == l.max_w);
        l.price = 1;
        assert_true(cp_power_alone_w(&l, 0) == l.min_w);
    }
}

/* E'(t) = [e^u (1 - u) - 1] / snr_w of section 11.5 by differences of t p(t), and KKT with it. */
static double energy_slope(const struct cp_power_link *l, double t)
{
    double u = l->bits * M_LN2 / l->band_hz / t;
    return -((u - 1) * exp(u) + 1) / l->snr_w;
}

static void assert_kkt(const struct cp_power *p, const struct cp_power_result *x)
{
    double weights = 0, longest = p->floor_s;
    for (int j = 0; j < p->n; j++) {
        const struct cp_power_link *l = &p->link[j];
        double t = x->time_s[j], slope = p->weight + l->price * energy_slope(l, t) + x->mult[j];
        double scale = p->weight - l->price * energy_slope(l, t) + x->mult[j];
        assert_close(t, power_time(l, x->power_w[j]), 1e-9);
        assert_true(x->power_w[j] >= l->min_w && x->power_w[j] <= l->max_w && x->mult[j] >= 0);
        if (x->power_w[j] < l->max_w * (1 - 1e-9)) {
            assert_true(slope <= 1e-6 * scale); /* no gain from a shorter time */
        }
        if (x->power_w[j] > l->min_w * (1 + 1e-9)) {
            assert_true(slope >= -1e-6 * scale); /* none from a longer one */
        }
        assert_true(x->mult[j] <= 1e-9 * p->peak || t >= x->peak_s * (1 - 1e-9));
        weights += x->mult[j];
        longest = fmax(longest, t);
    }
    assert_close(x->peak_s, longest, 1e-12);
    assert_true(weights <= p->peak * (1 + 1e-9));
    if (x->peak_s > p->floor_s * (1 + 1e-9)) {
        assert_close(weights, p->peak, 1e-6);
    }
    assert_close(x->value, power_value(p, x->power_w), 1e-9);
}

static void optima_satisfy_kkt(void **state)
{
    (void)state;
    struct cp_rng r;
    int held = 0, at_floor = 0, at_most = 0, at_least = 0;
    cp_rng_init(&r, 3, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 6000; i++) {
        struct cp_power_link l[CP_POWER_LINKS_MAX];
        struct cp_power p;
        struct cp_power_result x;
        power_draw(&r, 1 + i % CP_POWER_LINKS_MAX, l, &p);
        if (i % 5 == 0) {
            p.weight *= 1e-3; /* least powers */
            p.peak *= 1e-3;
        }
        cp_power_solve(&p, &x);
        assert_kkt(&p, &x);
        int on = 0;
        for (int j = 0; j < p.n; j++) {
            on += x.mult[j] > 0 && x.power_w[j] < l[j].max_w;
            at_most += x.power_w[j] == l[j].max_w;
            at_least += x.power_w[j] == l[j].min_w;
        }
        held += on > 1;
        at_floor += on > 0 && x.peak_s <= p.floor_s * (1 + 1e-12);
    }
    assert_true(held > 100 && at_floor > 100 && at_most > 100 && at_least > 100);
}

static void two_links_are_not_beaten_by_a_grid(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 4, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 100; i++) {
        struct cp_power_link l[2];
        struct cp_power p;
        struct cp_power_result x;
        double best = INFINITY;
        power_draw(&r, 2, l, &p);
        cp_power_solve(&p, &x);
        for (int k = 0; k < 200 * 200; k++) {
            double a = l[0].min_w * pow(1e3, k / 200 / 199.0);
            double b = l[1].min_w * pow(1e3, k % 200 / 199.0);
            best = fmin(best, power_value(&p, (double[]){a, b}));
        }
        assert_true(x.value <= best * (1 + 1e-12) && x.value >= best * (1 - 2e-2));
    }
}

static void simple_cases_are_what_they_are(void **state)
{
    (void)state;
    struct cp_power_result x;
    struct cp_power_link l[2] = {{1e6, 1e6, 100, 1e-4, 0.1, 0}, {1e6, 1e6, 10, 1e-4, 0.1, 50}};
    cp_power_solve(&(struct cp_power){.n = 0, .peak = 2, .floor_s = 3}, &x);
    assert_true(x.value == 6 && x.peak_s == 3);
    /* v = 0: what has a price sends at its least power. */
    cp_power_solve(&(struct cp_power){.n = 2, .link = l}, &x);
    assert_true(x.power_w[0] == 0.1 && x.power_w[1] == 1e-4);
    /* Only the longest time weighs: the weak link decides, and has all the weight. */
    cp_power_solve(&(struct cp_power){.n = 2, .link = l, .peak = 1e9}, &x);
    assert_true(x.power_w[1] == 0.1 && x.mult[1] == 1e9 && x.peak_s == x.time_s[1]);
    /* A ceiling so light that it only stops the link at its least power. */
    cp_power_solve(&(struct cp_power){.n = 2, .link = l, .peak = 1e-9}, &x);
    assert_true(x.power_w[1] == 1e-4 && x.mult[1] == 1e-9);
    l[0].bits = 0;
    cp_power_solve(&(struct cp_power){.n = 2, .link = l, .weight = 1}, &x);
    assert_true(x.time_s[0] == 0 && x.value < INFINITY);
    l[0] = (struct cp_power_link){1e6, 1e6, 0, 1e-4, 0.1, 1};
    cp_power_solve(&(struct cp_power){.n = 2, .link = l, .weight = 1}, &x);
    assert_true(x.value == INFINITY && x.power_w[0] == 0.1 && x.power_w[1] == 0.1);
    assert_true(cp_power_time_s(&l[0], 0.1) == INFINITY);
}

/* Nothing is NaN, powers stay in their limits and no random neighbour is better. */
static void survives_anything(void **state)
{
    (void)state;
    struct cp_rng r;
    int finite = 0;
    cp_rng_init(&r, 5, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 60000; i++) {
        static const int reach[] = {1, 3, 6, 12, 100, 300};
        int decades = reach[i % 6];
        struct cp_power_link l[5];
        struct cp_power p = {.n = 1 + (int)cp_rng_below(&r, 5), .link = l};
        struct cp_power_result x;
        p.weight = wild(&r, decades);
        p.peak = wild(&r, decades);
        p.floor_s = wild(&r, decades);
        for (int j = 0; j < p.n; j++) {
            double most = wild(&r, decades / 2) + 1e-30;
            l[j] = (struct cp_power_link){.bits = wild(&r, decades),
                                          .band_hz = wild(&r, decades / 2) + 1e-30,
                                          .snr_w = wild(&r, decades),
                                          .min_w = most * log_range(&r, 1e-9, 1),
                                          .max_w = most,
                                          .price = wild(&r, decades)};
            l[j] = j > 0 && cp_rng_unit(&r) < 0.2 ? l[0] : l[j];
        }
        cp_power_solve(&p, &x);
        assert_true(x.value >= 0 && x.peak_s >= 0);
        for (int j = 0; j < p.n; j++) {
            assert_true(x.power_w[j] >= l[j].min_w && x.power_w[j] <= l[j].max_w);
            assert_true(x.time_s[j] >= 0 && x.mult[j] >= 0);
        }
        for (int k = 0; k < 10 && x.value < INFINITY && decades <= 100; k++) {
            double sum = 0, longest = p.floor_s;
            for (int j = 0; j < p.n; j++) {
                double q = x.power_w[j] * exp(cp_rng_range(&r, -1, 1) * (k < 5 ? 0.01 : 1));
                q = fmax(l[j].min_w, fmin(l[j].max_w, k == 0 ? INFINITY : q));
                double t = cp_power_time_s(&l[j], q);
                sum += (p.weight + l[j].price * q) * t;
                longest = fmax(longest, t);
            }
            assert_true(!(x.value > (sum + p.peak * longest) * (1 + 1e-9)));
            finite++;
        }
    }
    assert_true(finite > 50000);
}

/* Gains of 1e-300 send with all they have, at an SNR of 1e12 nobody needs to. */
static void survives_gains_out_of_this_world(void **state)
{
    (void)state;
    struct cp_power_link l[2] = {{1e6, 1e6, 1e-300, 1e-4, 0.1, 1}, {1e6, 1e6, 1e13, 1e-4, 0.1, 1}};
    struct cp_power_result x;
    cp_power_solve(&(struct cp_power){2, l, 1, 7, 0.5}, &x);
    assert_true(x.value < INFINITY && x.power_w[0] == 0.1);
    assert_true(x.power_w[1] == 1e-4 || x.power_w[1] < 0.1);
    assert_close(x.mult[0], 7, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lambert_inverts_w_exp_w),
        cmocka_unit_test(the_shifted_root_keeps_its_digits_near_zero),
        cmocka_unit_test(closed_form_is_not_beaten_by_a_grid),
        cmocka_unit_test(power_rises_with_v_and_falls_with_price),
        cmocka_unit_test(optima_satisfy_kkt),
        cmocka_unit_test(two_links_are_not_beaten_by_a_grid),
        cmocka_unit_test(simple_cases_are_what_they_are),
        cmocka_unit_test(survives_anything),
        cmocka_unit_test(survives_gains_out_of_this_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
