/*
 * radio: path loss, block fading and FDMA Shannon rates (docs/theory.md section 5).
 * Pure functions; fading is keyed by (seed, round, cluster, pair of nodes).
 */
#ifndef CP_WORLD_RADIO_H
#define CP_WORLD_RADIO_H

#include "world/world.h"

enum cp_fading { CP_FADING_STATIC, CP_FADING_RAYLEIGH, CP_FADING_RICIAN };

struct cp_channel {
    enum cp_fading fading;
    double rician_k;  /* linear, not dB */
    double clamp;     /* smallest chi, > 0 */
    double shadow_db; /* standard deviation of log-normal shadowing, fixed over rounds; 0: none */
};

/* Distances below 1 m count as 1 m: the path losses do not hold nearer, and gains stay finite. */
double cp_path_gain_d2d(double distance_m); /* 10^(-PL/10), PL = 148 + 40 log10 d_km */
double cp_path_gain_d2e(double distance_m); /* PL = 128.1 + 37.6 log10 d_km */

/* Writes gain_d2d and gain_d2e of every cluster for w->round. mean: chi = 1 (mean channels);
 * shadowing stays. The base station stands edge_x_m from the CU along x. */
void cp_channel_draw(struct cp_world *w, const struct cp_channel *ch, uint64_t seed, bool mean);

/* r(x, p) = x W log2(1 + p g / (x W N_0)) in bit/s; 0 where x or p is 0. */
double cp_rate_bps(double share, double band_hz, double power_w, double gain, double noise_w_hz);

/* Its inverse: the g that gives this rate, whatever carried the bits; x, W, p > 0. Above 256 bit/s
 * and Hz rates are not told apart, so that gains stay finite. */
double cp_rate_gain(double rate_bps, double share, double band_hz, double power_w,
                    double noise_w_hz);

/* Downlink of cluster c at constant power density: y W_L log2(1 + P_BS g / (W_L N_0)). */
double cp_rate_down_bps(double share, const struct cp_radio *r, double gain);

#endif
