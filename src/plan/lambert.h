/*
 * lambert: the principal branch W_0 of Lambert's function, w e^w = z (docs/theory.md section 11.5).
 * Relative error of w e^w at most 1e-12; every loop is bounded.
 */
#ifndef CP_PLAN_LAMBERT_H
#define CP_PLAN_LAMBERT_H

/* W_0(z), z >= -1/e (less counts as -1/e); infinite at infinity. */
double cp_lambert(double z);

/* W_0(e^y), the root of w + ln w = y, for y >= 1: also where e^y is beyond a double. */
double cp_lambert_exp(double y);

/*
 * The root u >= 0 of (u - 1) e^u + 1 = z, z >= 0: u = 1 + W_0((z - 1) / e), without the
 * cancellation that this has near the branch point, where u is about sqrt(2 z).
 */
double cp_lambert_root(double z);

#endif
