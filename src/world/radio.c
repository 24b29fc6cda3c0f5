/*
 * The fading of a pair of nodes is a stream of its own, keyed by (seed, round; cluster, pair): a
 * device that joins or leaves does not change what the others see, and a resumed run sees what the
 * uninterrupted one saw. Shadowing uses the same key with a round that no run has, so it stays put.
 */
#include "world/radio.h"

#include "base/rng.h"

#include <math.h>

enum { EDGE_NODE = CP_DEVICES_MAX + 1 }; /* in the key of a pair; after every node of a cluster */

static const uint32_t SHADOW_ROUND = UINT32_MAX; /* rounds are int32_t */

static double gain_at(double intercept_db, double slope_db, double distance_m)
{
    double km = fmax(distance_m, 1.0) / 1000.0;
    return pow(10.0, -(intercept_db + slope_db * log10(km)) / 10.0);
}

double cp_path_gain_d2d(double distance_m)
{
    return gain_at(148.0, 40.0, distance_m);
}

double cp_path_gain_d2e(double distance_m)
{
    return gain_at(128.1, 37.6, distance_m);
}

static uint32_t pair_key(int cluster, int low, int high)
{
    return (uint32_t)cluster << 16 | (uint32_t)low << 8 | (uint32_t)high;
}

/* chi: mean 1 before the clamp, which bounds times and energies (section 5). */
static double draw_fading(const struct cp_channel *ch, uint64_t seed, int32_t round, uint32_t key)
{
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_FADING, (uint32_t)round, key);
    double chi = 1.0;
    if (ch->fading == CP_FADING_RAYLEIGH) {
        chi = cp_rng_exp(&r);
    } else if (ch->fading == CP_FADING_RICIAN) {
        double line = sqrt(ch->rician_k / (ch->rician_k + 1));
        double spread = sqrt(1 / (2 * (ch->rician_k + 1))); /* per real dimension of CN(0, 1) */
        double re = line + spread * cp_rng_normal(&r), im = spread * cp_rng_normal(&r);
        chi = re * re + im * im;
    }
    return fmax(chi, ch->clamp);
}

static double draw_shadow(const struct cp_channel *ch, uint64_t seed, uint32_t key)
{
    if (ch->shadow_db <= 0) {
        return 1.0;
    }
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_FADING, SHADOW_ROUND, key);
    return pow(10.0, ch->shadow_db * cp_rng_normal(&r) / 10.0);
}

static double draw_factor(const struct cp_channel *ch, uint64_t seed, int32_t round, uint32_t key,
                          bool mean)
{
    double chi = mean ? 1.0 : draw_fading(ch, seed, round, key);
    return chi * draw_shadow(ch, seed, key);
}

void cp_channel_draw(struct cp_world *w, const struct cp_channel *ch, uint64_t seed, bool mean)
{
    for (int c = 0; c < w->n_clusters; c++) {
        struct cp_cluster *cl = &w->cluster[c];
        double edge_x = cl->cu.x_m + cl->edge_x_m, edge_y = cl->cu.y_m;
        for (int i = 0; i <= cl->n_devices; i++) {
            const struct cp_device *a = i == 0 ? &cl->cu : &cl->device[i - 1];
            double far_m = hypot(edge_x - a->x_m, edge_y - a->y_m);
            cl->gain_d2e[i] = cp_path_gain_d2e(far_m) *
                              draw_factor(ch, seed, w->round, pair_key(c, i, EDGE_NODE), mean);
            cl->gain_d2d[i][i] = 0; /* nobody sends to itself */
            for (int j = i + 1; j <= cl->n_devices; j++) {
                const struct cp_device *b = &cl->device[j - 1];
                double near_m = hypot(a->x_m - b->x_m, a->y_m - b->y_m);
                double g = cp_path_gain_d2d(near_m) *
                           draw_factor(ch, seed, w->round, pair_key(c, i, j), mean);
                cl->gain_d2d[i][j] = cl->gain_d2d[j][i] = g;
            }
        }
    }
}

/* On next to no band the ratio is more than a number can hold, and the rate still next to nothing.
 */
static double finite_snr(double snr)
{
    return fmin(snr, 1e280);
}

double cp_rate_bps(double share, double band_hz, double power_w, double gain, double noise_w_hz)
{
    double band = share * band_hz;
    if (!(band > 0) || !(power_w > 0)) {
        return 0;
    }
    return band * log1p(finite_snr(power_w * gain / (band * noise_w_hz))) / M_LN2;
}

double cp_rate_gain(double rate_bps, double share, double band_hz, double power_w,
                    double noise_w_hz)
{
    const double most = 256; /* bit/s and Hz: the square of this SNR is still finite */
    double band = share * band_hz;
    double efficiency = fmin(rate_bps / band, most);
    return band * noise_w_hz * expm1(efficiency * M_LN2) / power_w;
}

double cp_rate_down_bps(double share, const struct cp_radio *r, double gain)
{
    double snr = r->power_bs_w * gain / (r->band_down_hz * r->noise_w_hz);
    return share * r->band_down_hz * log1p(finite_snr(snr)) / M_LN2;
}
