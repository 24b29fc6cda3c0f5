/*
 * power: transmit powers of the links of one phase at given bandwidths (docs/theory.md
 * section 11.5). Exact; no allocation, no I/O; knows nothing of plans.
 *
 *   min over min_w <= p_j <= max_w:  sum_j [v t_j + w_j p_j t_j] + peak max(floor_s, max_j t_j)
 *
 * with t_j(p) = D_j / (B_j log2(1 + p g_j / (N_0 B_j))) the time of one micro-batch. In t it is
 * convex: without the ceiling each power has a closed form (Lambert W); the ceiling is one root.
 */
#ifndef CP_PLAN_POWER_H
#define CP_PLAN_POWER_H

/* D2D links of a phase and the uplink of the activations. */
enum { CP_POWER_LINKS_MAX = 17 };

/* All finite and >= 0, 0 < min_w <= max_w, band_hz > 0. */
struct cp_power_link {
    double bits;         /* D, of one micro-batch; 0: the link sends nothing and takes no time */
    double band_hz;      /* B: x W_D, or y W_U */
    double snr_w;        /* g / (N_0 B), linear, per watt */
    double min_w, max_w; /* p_min, p^max */
    double price;        /* w = M Z~ of the sender, per joule; 0: it sends at max_w */
};

struct cp_power {
    int n; /* 0..CP_POWER_LINKS_MAX */
    const struct cp_power_link *link;
    double weight;  /* v >= 0, of each time, per second */
    double peak;    /* v (M - 1) >= 0, of the longest time */
    double floor_s; /* m_0 >= 0: the longest other time of the phase */
};

struct cp_power_result {
    double power_w[CP_POWER_LINKS_MAX];
    double time_s[CP_POWER_LINKS_MAX];
    double mult[CP_POWER_LINKS_MAX]; /* of t_j <= theta; their sum is peak where theta > floor_s */
    double peak_s;                   /* theta = max(floor_s, max_j t_j) */
    double value;                    /* the objective; infinite where a link is dead */
};

/* Never NaN. Where some link cannot send its payload in finite time even at max_w, value is
 * infinite and all powers are max_w. */
void cp_power_solve(const struct cp_power *p, struct cp_power_result *out);

/*
 * The power of one link alone, without a ceiling: min (v + price p) t(p), as for the upload of the
 * model (price = Z~_0) with v the weight of T_c. It depends on neither bits nor band_hz.
 */
double cp_power_alone_w(const struct cp_power_link *l, double weight);

/* t(p); infinite where the link is dead, 0 without payload. */
double cp_power_time_s(const struct cp_power_link *l, double power_w);

#endif
