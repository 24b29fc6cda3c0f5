/*
 * Newton's method in the form that suits each range: w + ln w = y for large arguments (nothing
 * overflows, and the left side is almost straight), w = z e^-w around 0, and near the branch point
 * (u - 1) e^u + 1 = z, whose left side is written as a series there so that nothing cancels. Each
 * function has one curvature, so that after the first step the iterates come from one side.
 */
#include "plan/lambert.h"

#include <math.h>

/* More than are ever seen (7). The error after a step is about the square of it. */
enum { STEPS_MAX = 40 };
static const double STEP_LAST = 1e-8;

double cp_lambert_exp(double y)
{
    if (!(y < INFINITY)) {
        return y;
    }
    double w = y > 3 ? y - log(y) : 0.6 * y + 0.4; /* W_0(e) = 1 */
    for (int i = 0; i < STEPS_MAX; i++) {
        double step = w * (y - w - log(w)) / (1 + w);
        w += step;
        if (fabs(step) <= STEP_LAST * w) {
            break;
        }
    }
    return w;
}

/* (u - 1) e^u + 1, the sum of u^k (k - 1) / k! over k >= 2. */
static double curve(double u)
{
    if (u > 0.1) {
        return (u - 1) * exp(u) + 1;
    }
    double sum = 1.0 / 5760 + u * (1.0 / 45360 + u / 403200);
    sum = 1.0 / 8 + u * (1.0 / 30 + u * (1.0 / 144 + u * (1.0 / 840 + u * sum)));
    return u * u * (1.0 / 2 + u * (1.0 / 3 + u * sum));
}

double cp_lambert_root(double z)
{
    if (z > 0.3) {
        return 1 + cp_lambert((z - 1) / M_E);
    }
    if (!(z > 0)) {
        return 0;
    }
    double u = sqrt(2 * z);
    u /= 1 + u / 3;
    for (int i = 0; i < STEPS_MAX; i++) {
        double step = (z - curve(u)) / (u * exp(u));
        u += step;
        if (fabs(step) <= STEP_LAST * u) {
            break;
        }
    }
    return u;
}

double cp_lambert(double z)
{
    if (z > M_E) {
        return cp_lambert_exp(log(z));
    }
    if (!(z > -0.26)) {
        return cp_lambert_root(fmax(1 + M_E * z, 0)) - 1;
    }
    double w = log1p(z); /* >= W_0(z), and w e^w is convex from there down */
    for (int i = 0; i < STEPS_MAX; i++) {
        double step = (z * exp(-w) - w) / (1 + w);
        w += step;
        if (fabs(step) <= STEP_LAST * fabs(w)) {
            break;
        }
    }
    return w;
}
