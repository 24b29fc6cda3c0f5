/* stats: the mean of a stream in one pass (Welford), and how far it may be off (Student). */
#ifndef CP_SIM_STATS_H
#define CP_SIM_STATS_H

#include <stdint.h>

/* Zeroed: nothing seen yet. */
struct cp_mean {
    int64_t n;
    double mean;
    double squares; /* sum of squared distances from the mean */
};

void cp_mean_add(struct cp_mean *m, double x);

double cp_mean_of(const struct cp_mean *m);   /* NaN of nothing */
double cp_mean_sd(const struct cp_mean *m);   /* sample standard deviation; NaN below 2 values */
double cp_mean_ci95(const struct cp_mean *m); /* half width of the 95 % interval; NaN below 2 */

/* The t with P(|T| < t) = 0.95 for T of Student's distribution with dof >= 1. */
double cp_student95(int64_t dof);

#endif
