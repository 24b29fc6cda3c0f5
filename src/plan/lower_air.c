/*
 * The derivative of weight t(x) is -S(x) / x^2 with an S that hardly depends on x: it goes from
 * scale / ln(snr / x) where the signal is strong to scale / (2 snr) where it is weak. So
 * x <- sqrt(S(x) / price) settles within a few steps, and where it has stopped the tangent bounds
 * the convex function from below whether it has settled or not.
 */
#include "plan/lower_air.h"

#include <math.h>

double cp_air_s(const struct cp_air *air, double x)
{
    return air->scale_s / (x * log1p(air->snr / x));
}

double cp_air_sum_s(const struct cp_air_sum *f, double x)
{
    double sum = f->inverse > 0 ? f->inverse / x : 0;
    for (int i = 0; i < f->n; i++) {
        sum += f->weight[i] > 0 ? f->weight[i] * cp_air_s(&f->air[i], x) : 0;
    }
    return sum;
}

/* ln(1 + z) - z / (1 + z) over ln(1 + z)^2, which rounding would spoil where z is small. */
static double slope_part(double z)
{
    if (z < 1e-4) {
        return 0.5 - z / 6;
    }
    double l = log1p(z);
    return (l - z / (1 + z)) / (l * l);
}

double cp_air_sum_slope(const struct cp_air_sum *f, double x)
{
    double sum = f->inverse;
    for (int i = 0; i < f->n; i++) {
        sum +=
            f->weight[i] > 0 ? f->weight[i] * f->air[i].scale_s * slope_part(f->air[i].snr / x) : 0;
    }
    return sum;
}

/* The derivative of f(x) + price x. */
static double derivative(const struct cp_air_sum *f, double price, double x)
{
    return price - cp_air_sum_slope(f, x) / (x * x);
}

double cp_air_least(const struct cp_air_sum *f, double price, double low, double high, double *x)
{
    enum { STEPS = 12 };
    static const double SETTLED = 1e-7, LEAST = 1e-12;
    if (!(derivative(f, price, high) > 0)) { /* it falls all the way */
        *x = high;
        return cp_air_sum_s(f, high) + price * high;
    }
    if (low > 0 && !(derivative(f, price, low) < 0)) {
        *x = low;
        return cp_air_sum_s(f, low) + price * low;
    }
    double at = high;
    for (int i = 0; i < STEPS; i++) {
        double next = fmax(LEAST, fmin(high, sqrt(cp_air_sum_slope(f, at) / price)));
        double moved = fabs(next - at);
        at = next;
        if (moved <= SETTLED * at) {
            break;
        }
    }
    *x = at;
    double value = cp_air_sum_s(f, at), slope = derivative(f, price, at);
    if (!(value < INFINITY)) {
        return INFINITY;
    }
    return value + price * at - (slope > 0 ? slope * at : -slope * (high - at));
}

double cp_air_clearing_price(const struct cp_air_sum *f, int n)
{
    enum { STEPS = 40 };
    double x, low = 0, high = 0;
    for (int i = 0; i < n; i++) { /* with this price each takes 1 / n at most */
        high = fmax(high, cp_air_sum_slope(&f[i], 1.0 / n) * n * n);
    }
    if (n < 2 || !(high < INFINITY)) {
        return 0;
    }
    for (int step = 0; step < STEPS && high - low > 1e-6 * high; step++) {
        double price = 0.5 * (low + high), sum = 0;
        for (int i = 0; i < n; i++) {
            cp_air_least(&f[i], price, 0, 1, &x);
            sum += x;
        }
        *(sum > 1 ? &low : &high) = price;
    }
    return high;
}
