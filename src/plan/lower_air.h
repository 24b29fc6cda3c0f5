/* lower_air: times on the air as convex functions of a share, and their least with a price on the
 * share, from below (docs/theory.md sections 5 and 11.8). */
#ifndef CP_PLAN_LOWER_AIR_H
#define CP_PLAN_LOWER_AIR_H

/* t(x) = scale_s / (x ln(1 + snr / x)): time of a message with share x of a band at some power. */
struct cp_air {
    double scale_s, snr;
};
/* x > 0; infinite where nothing arrives. */
double cp_air_s(const struct cp_air *air, double x);

/* sum_i weight_i t_i(x) + inverse / x with weights of 0 or more: convex and falling. */
struct cp_air_sum {
    int n;
    struct cp_air air[2];
    double weight[2], inverse;
};
double cp_air_sum_s(const struct cp_air_sum *f, double x);

/* -x^2 f'(x), which changes slowly with x. */
double cp_air_sum_slope(const struct cp_air_sum *f, double x);

/* Never above the least f(x) + price x of low <= x <= high, x > 0, and short of it by rounding
 * only; *x is where. price >= 0, 0 <= low < high <= 1. */
double cp_air_least(const struct cp_air_sum *f, double price, double low, double high, double *x);

/* The price at which the least places x_j of n functions add up to 1; 0 where even 1 each does. */
double cp_air_clearing_price(const struct cp_air_sum *f, int n);

#endif
