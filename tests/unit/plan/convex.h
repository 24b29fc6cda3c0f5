/*
 * convex: random instances of the bandwidth, power and share problems (docs/theory.md sections
 * 11.4 - 11.6), the radio of section 15 stretched both ways, and formulas that have nothing in
 * common with the solvers.
 */
#ifndef TEST_PLAN_CONVEX_H
#define TEST_PLAN_CONVEX_H

#include "base/rng.h"
#include "plan/band.h"
#include "plan/power.h"
#include "plan/share.h"

#include <math.h>

static const double ACT_BITS = 12.6e6, NOISE = 4e-21;

static inline double log_range(struct cp_rng *r, double lo, double hi)
{
    return exp(cp_rng_range(r, log(lo), log(hi)));
}

/* 0 now and then, else 10^-decades .. 10^decades. */
static inline double wild(struct cp_rng *r, int decades)
{
    return cp_rng_unit(r) < 0.1 ? 0 : pow(10, cp_rng_range(r, -decades, decades));
}

/* --- section 11.4 --- */

static inline void band_draw(struct cp_rng *r, int n, struct cp_band *b)
{
    int micro = 1 + (int)cp_rng_below(r, 16);
    double v = log_range(r, 1e-3, 1), band = log_range(r, 1e6, 2e7);
    *b = (struct cp_band){.n = n, .peak = v * (micro - 1)};
    b->floor_s = cp_rng_unit(r) < 0.3 ? 0 : cp_rng_range(r, 0, 20 * ACT_BITS / band);
    for (int j = 0; j < n; j++) {
        double power = log_range(r, 1e-3, 0.1);
        b->link[j] = cp_air_make(ACT_BITS, band, power, log_range(r, 1e-12, 1e-6), NOISE);
        b->cost[j] = v + (cp_rng_unit(r) < 0.7 ? micro * log_range(r, 1e-3, 10) * power : 0);
    }
}

/* r / W ln 2 and its derivatives by x, as in Lemma 3. */
static inline double rate(double c, double x)
{
    return x * log1p(c / x);
}

static inline double rate_slope(double c, double x)
{
    return log1p(c / x) - c / (x + c);
}

static inline double band_value(const struct cp_band *b, const double *x)
{
    double longest = b->floor_s, sum = 0;
    for (int j = 0; j < b->n; j++) {
        double t = b->link[j].unit_s / rate(b->link[j].snr, x[j]);
        longest = fmax(longest, t);
        sum += b->cost[j] * t;
    }
    return sum + b->peak * longest;
}

/* --- section 11.5 --- */

static inline void power_draw(struct cp_rng *r, int n, struct cp_power_link *link,
                              struct cp_power *p)
{
    int micro = 1 + (int)cp_rng_below(r, 16);
    double v = log_range(r, 1e-3, 1);
    *p = (struct cp_power){.n = n, .link = link, .weight = v, .peak = v * (micro - 1)};
    for (int j = 0; j < n; j++) {
        double band = log_range(r, 3e5, 2e7), most = log_range(r, 0.01, 0.2);
        link[j] = (struct cp_power_link){.bits = ACT_BITS,
                                         .band_hz = band,
                                         .snr_w = log_range(r, 1e-12, 1e-6) / NOISE / band,
                                         .min_w = 1e-3 * most,
                                         .max_w = most};
        link[j].price = cp_rng_unit(r) < 0.2 ? 0 : micro * log_range(r, 1e-3, 1e2);
        p->floor_s = fmax(p->floor_s, cp_rng_range(r, 0, 4 * ACT_BITS / band));
    }
    p->floor_s *= cp_rng_unit(r) < 0.5 ? 0 : cp_rng_unit(r);
}

static inline double power_time(const struct cp_power_link *l, double power)
{
    return l->bits / (l->band_hz * log2(1 + power * l->snr_w));
}

static inline double power_value(const struct cp_power *p, const double *power)
{
    double longest = p->floor_s, sum = 0;
    for (int j = 0; j < p->n; j++) {
        double t = power_time(&p->link[j], power[j]);
        longest = fmax(longest, t);
        sum += (p->weight + p->link[j].price * power[j]) * t;
    }
    return sum + p->peak * longest;
}

/* --- section 11.6 ii --- */

/* priced: some clusters have prices on energy; bottlenecks: the other stages take time. */
static inline void share_draw(struct cp_rng *r, bool priced, bool bottlenecks,
                              struct cp_share_cluster *c)
{
    double steps = 20, micro = 1 + cp_rng_below(r, 16), band = 4e7;
    double act_w = log_range(r, 1e-3, 0.2), model_w = log_range(r, 1e-3, 0.2);
    *c = (struct cp_share_cluster){
        .fixed_s = cp_rng_range(r, 50, 400),
        .up = cp_air_make(ACT_BITS, band, act_w, log_range(r, 1e-13, 1e-8), NOISE),
        .up_runs = steps,
        .up_peaks = steps * (micro - 1),
        .up_floor_s = bottlenecks ? cp_rng_range(r, 0.1, 3) : 0,
        .down_s = ACT_BITS / log_range(r, 1e8, 1e9),
        .down_runs = steps,
        .down_peaks = steps * (micro - 1),
        .down_floor_s = bottlenecks ? cp_rng_range(r, 0.1, 3) : 0,
        .model = cp_air_make(436e6 * 8, band, model_w, log_range(r, 1e-13, 1e-8), NOISE),
    };
    if (priced && cp_rng_unit(r) < 0.7) {
        c->up_cost = steps * micro * log_range(r, 1e-3, 1e2) * act_w;
    }
    if (priced && cp_rng_unit(r) < 0.7) {
        c->model_cost = log_range(r, 1e-3, 1) * model_w;
    }
}

static inline double share_value(const struct cp_share *p, const double *y)
{
    double longest = p->floor_s, sum = 0;
    for (int i = 0; i < p->n; i++) {
        const struct cp_share_cluster *c = &p->cluster[i];
        double up = c->up.unit_s / rate(c->up.snr, y[i]), down = c->down_s / y[i];
        double model = c->model.unit_s / rate(c->model.snr, y[i]);
        double t = c->fixed_s + c->up_runs * up + c->up_peaks * fmax(c->up_floor_s, up) +
                   c->down_runs * down + c->down_peaks * fmax(c->down_floor_s, down) + model;
        longest = fmax(longest, t);
        sum += c->up_cost * up + c->model_cost * model;
    }
    return sum + p->peak * longest;
}

#endif
