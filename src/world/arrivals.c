#include "world/arrivals.h"

#include "base/rng.h"

#include <assert.h>
#include <math.h>

/*
 * Poisson numbers. Below ten the product of uniforms; above it Hoermann's transformed rejection
 * with squeeze (PTRS, 1993), whose cost does not grow with the mean.
 */
static double draw_small(struct cp_rng *r, double mean)
{
    double limit = exp(-mean), product = 1 - cp_rng_unit(r);
    int n = 0;
    for (; product > limit; n++) {
        product *= 1 - cp_rng_unit(r);
    }
    return n;
}

static double log_factorial(double k)
{
    int sign;
    return lgamma_r(k + 1, &sign);
}

static double draw_large(struct cp_rng *r, double mean)
{
    double b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b;
    double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), squeeze = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = cp_rng_unit(r) - 0.5, v = 1 - cp_rng_unit(r), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + mean + 0.43);
        if (us >= 0.07 && v <= squeeze) {
            return k;
        }
        if (!(k >= 0) || (us < 0.013 && v > us)) {
            continue;
        }
        if (log(v * inverse_alpha / (a / (us * us) + b)) <=
            k * log(mean) - mean - log_factorial(k)) {
            return k;
        }
    }
}

static double draw(enum cp_arrival kind, double mean, uint64_t seed, int32_t round, int cluster)
{
    if (kind == CP_ARRIVAL_CONSTANT) {
        return floor(mean * (round + 1.0)) - floor(mean * round);
    }
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_ARRIVALS, (uint32_t)round, (uint32_t)cluster);
    return mean < 10 ? draw_small(&r, mean) : draw_large(&r, mean);
}

void cp_arrivals_draw(struct cp_world *w, const struct cp_world *full, enum cp_arrival kind,
                      uint64_t seed)
{
    for (int c = 0; c < w->n_clusters; c++) {
        w->cluster[c].arrivals = draw(kind, full->cluster[c].arrivals, seed, w->round, c);
    }
}

int cp_backlog_micro_max(const struct cp_backlog *q, const struct cp_world *w)
{
    double steps = (double)w->local_steps * w->micro_samples;
    return (int)fmin(floor(q->waiting / steps), w->micro_max);
}

void cp_backlog_advance(struct cp_backlog *q, const struct cp_world *w, int micro_batches,
                        double arrived, double time_s)
{
    assert(micro_batches >= 0 && arrived >= 0 && isfinite(arrived));
    assert(time_s >= 0 && isfinite(time_s));
    double wanted = (double)w->local_steps * micro_batches * w->micro_samples;
    double taken = fmin(wanted, q->waiting);
    if (taken > 0) {
        double age = q->age_s + time_s / 2;
        q->trained += taken;
        q->trained_age_s += (age - q->trained_age_s) * taken / q->trained;
    }
    double left = q->waiting - taken;
    q->waiting = left + arrived;
    q->age_s =
        q->waiting > 0 ? (left * (q->age_s + time_s) + arrived * (time_s / 2)) / q->waiting : 0;
}
