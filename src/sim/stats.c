#include "sim/stats.h"

#include <math.h>

void cp_mean_add(struct cp_mean *m, double x)
{
    double before = x - m->mean;
    m->n++;
    m->mean += before / (double)m->n;
    m->squares += before * (x - m->mean);
}

double cp_mean_of(const struct cp_mean *m)
{
    return m->n > 0 ? m->mean : (double)NAN;
}

double cp_mean_sd(const struct cp_mean *m)
{
    return m->n > 1 ? sqrt(m->squares / (double)(m->n - 1)) : (double)NAN;
}

double cp_mean_ci95(const struct cp_mean *m)
{
    return m->n > 1 ? cp_student95(m->n - 1) * cp_mean_sd(m) / sqrt((double)m->n) : (double)NAN;
}

/* P(|T| < t), a finite sum for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4). */
static double inside(double t, int64_t dof)
{
    double angle = atan(t / sqrt((double)dof)), c = cos(angle), sum = 0;
    double term = dof % 2 ? c : 1;
    for (int64_t k = dof % 2 ? 3 : 2; k <= dof; k += 2) {
        sum += term;
        term *= c * c * (double)(k - 1) / (double)k;
    }
    return dof % 2 ? M_2_PI * (angle + sin(angle) * sum) : sin(angle) * sum;
}

double cp_student95(int64_t dof)
{
    enum { LARGE = 1000 };
    double low = 1.9, high = 13; /* t lies between: 12.7 for 1, 1.96 for infinitely many */
    if (dof > LARGE) {           /* the first terms of its expansion around the normal quantile */
        const double z = 1.9599639845400545;
        double n = (double)dof, z3 = z * z * z, z5 = z3 * z * z;
        return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n);
    }
    while (high - low > 1e-13 * high) {
        double t = (low + high) / 2;
        if (t <= low || t >= high) {
            break;
        }
        *(inside(t, dof) < 0.95 ? &low : &high) = t;
    }
    return (low + high) / 2;
}
