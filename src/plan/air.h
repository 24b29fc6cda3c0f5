/*
 * air: the time of one payload on a share x of a band (docs/theory.md section 5), and how it bends.
 *
 *   t(x) = D / (x W log2(1 + c / x)) = unit_s w / log1p(snr w),   w = 1 / x,
 *   unit_s = D ln 2 / W,   snr = c = p g / (N_0 W)
 *
 * Everything here is a function of w, because there t is concave, increasing and almost straight
 * over hundreds of decades (w / log1p(w) is a Bernstein function), so Newton's method cannot
 * overshoot. As a function of x it is convex and decreasing (Lemma 3). Exact to rounding for snr
 * from 1e-300 to 1e280, also where c / x is tiny and 1 - ln(1 + s) / s cancels.
 */
#ifndef CP_PLAN_AIR_H
#define CP_PLAN_AIR_H

#include <math.h>

struct cp_air {
    double unit_s; /* D ln 2 / W >= 0; 0: nothing is sent */
    double snr;    /* with the power on the whole band, linear, >= 0 */
};

/* bits: one payload; band_hz: the whole band, > 0. */
static inline struct cp_air cp_air_make(double bits, double band_hz, double power_w, double gain,
                                        double noise_w_hz)
{
    double snr = power_w * gain / noise_w_hz / band_hz;
    return (struct cp_air){.unit_s = bits * M_LN2 / band_hz, .snr = fmin(snr, 1e280)};
}

/* t at w = 1 / x, in seconds: infinite where something is to be sent and the link is dead. */
static inline double cp_air_time_s(struct cp_air a, double w)
{
    return a.unit_s > 0 ? a.unit_s * w / log1p(a.snr * w) : 0;
}

/* t as w goes to 0: what even a band without end would leave, D / (p g / (N_0 ln 2)). */
static inline double cp_air_least_s(struct cp_air a)
{
    return a.unit_s > 0 ? a.unit_s / a.snr : 0;
}

/* A link at one w. */
struct cp_air_at {
    double excess_s; /* t less cp_air_least_s, to full precision */
    double slope;    /* dt/dw = unit_s rho(snr w) > 0, so that -dt/dx = slope w^2 */
    double bend;     /* d ln slope / d ln w, always in (-0.21, 0] */
};

/*
 * With s = snr w, L = ln(1 + s), q = s / (1 + s), h = L - q: rho = h / L^2 falls from 1/2 to 1 / L.
 * p = h / q^2 is computed by its series where h cancels, and s / L - 1 = s q / L (1 - p / (1 + s)).
 * snr > 0, snr w finite.
 */
static inline struct cp_air_at cp_air_look(struct cp_air a, double w)
{
    double s = a.snr * w, l = log1p(s), q = s / (1 + s), p;
    if (q < 0.03) {
        p = 1.0 / 7 + q * (0.125 + q * (1.0 / 9 + q / 10));
        p = 0.5 + q * (1.0 / 3 + q * (0.25 + q * (0.2 + q * (1.0 / 6 + q * p))));
    } else {
        p = (l - q) / (q * q);
    }
    double r = q / l;
    return (struct cp_air_at){
        .excess_s = a.unit_s * w * r * (1 - p / (1 + s)),
        .slope = a.unit_s * r * r * p,
        .bend = 1 / p + 2 * r * q * p - 2,
    };
}

#endif
