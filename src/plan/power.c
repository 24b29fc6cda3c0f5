/*
 * With a = D ln 2 / B, u = a / t and power p = (e^u - 1) / snr_w, the price of a shorter time is
 * -E'(t) = [(u - 1) e^u + 1] / snr_w = p eta(u), eta(u) = u / (1 - e^-u) - 1. The last form is used
 * throughout: it neither cancels nor leaves the range of a double at an SNR of 1e-300 or 1e12.
 *
 * The ceiling theta is the root of the falling function sum_j [w_j p_j eta_j - v]^+ = peak. It
 * jumps where theta passes the time of a link at its least power, so the bracket decides and
 * Newton's method only proposes.
 */
#include "plan/power.h"

#include "plan/lambert.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>

static const double NEAR = 1e-12; /* rounding of times and powers that are meant to be equal */
enum { STEPS_MAX = 200 };         /* a bisection of doubles ends before; 8 are usual */

static double unit_s(const struct cp_power_link *l)
{
    return l->bits * M_LN2 / l->band_hz;
}

double cp_power_time_s(const struct cp_power_link *l, double power_w)
{
    double t = l->bits > 0 ? unit_s(l) / log1p(power_w * l->snr_w) : 0;
    return t < INFINITY ? t : INFINITY; /* infinity / infinity is no number */
}

double cp_power_alone_w(const struct cp_power_link *l, double weight)
{
    assert(l->min_w > 0 && l->min_w <= l->max_w);
    if (l->price == 0 || l->snr_w == 0) {
        return l->max_w;
    }
    /* v snr_w / price, of which every order of multiplying may leave the range of a double */
    double z = exp(log(weight) + log(l->snr_w) - log(l->price));
    double p = expm1(cp_lambert_root(z)) / l->snr_w;
    return fmax(l->min_w, fmin(l->max_w, p));
}

/* u / (1 - e^-u) - 1. */
static double eta(double u)
{
    return u > 0.01 ? u / -expm1(-u) - 1 : u * (0.5 + u * (1.0 / 12 - u * u / 720));
}

/* What the links above theta would pay for a longer one, less peak; and where Newton's method for
 * the logarithm of their sum, almost straight in ln theta, would go. */
static double excess(const struct cp_power *p, const struct cp_power_result *at, double theta_s,
                     double *newton_s)
{
    double slopes = 0, bends = 0, goal = p->peak;
    for (int j = 0; j < p->n; j++) {
        const struct cp_power_link *l = &p->link[j];
        if (at->time_s[j] > theta_s) {
            double u = unit_s(l) / theta_s, e = eta(u);
            double pay = l->price * fmin(expm1(u) / l->snr_w, l->max_w);
            if (pay * e > p->weight) {
                slopes += pay * e;
                bends -= pay * u * (1 + e);
                goal += p->weight;
            }
        }
    }
    *newton_s = theta_s * exp(log(goal / slopes) * slopes / bends);
    return slopes - goal;
}

/* The best theta between lo, which is too low, and hi, which is not. */
static double ceiling(const struct cp_power *p, const struct cp_power_result *at, double lo,
                      double hi, double proposal)
{
    for (int i = 0; i < STEPS_MAX && hi - lo > 2 * DBL_EPSILON * hi; i++) {
        double theta = proposal;
        if (!(theta > lo && theta < hi) || i % 8 == 7) {
            theta = hi < 4 * lo ? lo + (hi - lo) / 2 : sqrt(lo) * sqrt(hi);
        }
        if (!(theta > lo && theta < hi)) {
            break;
        }
        double over = excess(p, at, theta, &proposal);
        if (fabs(over) <= 1e-12 * p->peak) {
            return theta;
        }
        if (over > 0) {
            lo = theta;
        } else {
            hi = theta;
        }
    }
    return hi;
}

/* What a longer time would save, less what it costs: -(v + w E'), at least 0. */
static double saving(const struct cp_power *p, int j, double power_w)
{
    const struct cp_power_link *l = &p->link[j];
    return fmax(0, l->price * power_w * eta(log1p(power_w * l->snr_w)) - p->weight);
}

/* Gives a link up to most of what is left of peak. */
static void give(struct cp_power_result *out, int j, double most, double *left)
{
    double mult = fmax(0, fmin(most, *left));
    out->mult[j] += mult;
    *left -= mult;
}

/* Powers of the links that theta holds, and the multipliers: first theirs, then those of links that
 * are as long at their least power. The rest belongs to one at its greatest, or is rounding. */
static void hold(const struct cp_power *p, double theta_s, struct cp_power_result *out)
{
    double left = p->peak, longest_s = 0;
    int last = -1;
    for (int j = 0; j < p->n; j++) {
        const struct cp_power_link *l = &p->link[j];
        if (out->time_s[j] > theta_s) {
            out->power_w[j] = expm1(unit_s(l) / theta_s) / l->snr_w;
            out->power_w[j] = fmax(l->min_w, fmin(out->power_w[j], l->max_w));
            out->time_s[j] = theta_s;
            give(out, j, saving(p, j, out->power_w[j]), &left);
        }
        longest_s = fmax(longest_s, out->time_s[j]);
    }
    for (int j = 0; j < p->n && longest_s > p->floor_s; j++) {
        if (out->time_s[j] >= longest_s * (1 - NEAR)) {
            bool least = out->power_w[j] == p->link[j].min_w;
            bool most = out->power_w[j] >= p->link[j].max_w * (1 - NEAR);
            give(out, j, least ? saving(p, j, out->power_w[j]) - out->mult[j] : 0, &left);
            last = last < 0 || most ? j : last;
        }
    }
    if (last >= 0) {
        give(out, last, left, &left);
    }
}

static void value(const struct cp_power *p, struct cp_power_result *out)
{
    double sum = 0;
    out->peak_s = p->floor_s;
    for (int j = 0; j < p->n; j++) {
        sum += (p->weight + p->link[j].price * out->power_w[j]) * out->time_s[j];
        out->peak_s = fmax(out->peak_s, out->time_s[j]);
    }
    sum += p->peak * out->peak_s;
    out->value = sum < INFINITY ? sum : INFINITY; /* 0 x infinity is no number */
}

void cp_power_solve(const struct cp_power *p, struct cp_power_result *out)
{
    assert(p->n >= 0 && p->n <= CP_POWER_LINKS_MAX);
    double lo = p->floor_s, hi = 0, proposal;
    *out = (struct cp_power_result){0};
    for (int j = 0; j < p->n; j++) {
        lo = fmax(lo, cp_power_time_s(&p->link[j], p->link[j].max_w));
    }
    for (int j = 0; j < p->n; j++) {
        const struct cp_power_link *l = &p->link[j];
        out->power_w[j] = lo < INFINITY ? cp_power_alone_w(l, p->weight) : l->max_w;
        out->time_s[j] = cp_power_time_s(l, out->power_w[j]);
        hi = fmax(hi, out->time_s[j]);
    }
    double theta = hi;
    if (hi > lo && p->peak > 0) {
        theta = excess(p, out, lo, &proposal) > 0 ? ceiling(p, out, lo, hi, proposal) : lo;
    }
    hold(p, theta, out);
    value(p, out);
}
