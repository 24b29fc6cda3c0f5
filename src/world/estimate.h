/*
 * estimate: figures of devices and links from measurement.
 *
 * A planner reads one struct, struct cp_world. It is made by the model (configuration, distances,
 * fading), and cp_estimate_apply() then overwrites what was measured. Observations may come in any
 * order and may be wrong: a clock that stood still, a process that slept, a cache that answered
 * instead of the air. Each figure is smoothed in its logarithm, so that being twice too fast and
 * twice too slow weigh the same; the first ones count by their median, later ones by an exponential
 * mean with limits on how far one observation can pull it.
 */
#ifndef CP_WORLD_ESTIMATE_H
#define CP_WORLD_ESTIMATE_H

#include "world/world.h"

struct cp_estimate;

struct cp_estimate_options {
    double gain;     /* weight of a new observation, (0, 1]; 0: 0.2 */
    int trusted;     /* observations before a figure is applied, 1..; 0: 3 */
    int32_t max_age; /* rounds after which a figure is the model's again; 0: never */
};

/* For worlds with these clusters and devices. E_CONFIG names an option out of range. */
CP_NODISCARD cp_err cp_estimate_new(const struct cp_world *w,
                                    const struct cp_estimate_options *options,
                                    struct cp_estimate **out);
void cp_estimate_free(struct cp_estimate *e);

/* What can be known. Nodes: 0 = CU, k + 1 = device k. */
enum cp_figure_kind {
    CP_FIGURE_RATE,   /* FLOP/s of a node */
    CP_FIGURE_ENERGY, /* J/FLOP of a node */
    CP_FIGURE_MEMORY, /* free bytes of a node */
    CP_FIGURE_D2D,    /* effective gain between two nodes, either way */
    CP_FIGURE_D2E,    /* effective gain of a node to the edge server */
};
struct cp_figure_id {
    enum cp_figure_kind kind;
    int cluster, node, peer; /* peer: D2D only */
};

/*
 * Observations in round `round` (from 0). False, and nothing changes, if the figure that follows is
 * absurd: not finite, not positive, or beyond what any machine or link does (0 s, 1e300 FLOP).
 */
bool cp_estimate_work(struct cp_estimate *e, int32_t round, int cluster, int node, double flops,
                      double time_s);
bool cp_estimate_energy(struct cp_estimate *e, int32_t round, int cluster, int node, double flops,
                        double energy_j);
bool cp_estimate_memory(struct cp_estimate *e, int32_t round, int cluster, int node,
                        double free_bytes);

/* bits that took time_s with a share of the band (of the D2D band, or of the uplink) and a transmit
 * power. The gain is the inverse of the rate formula of section 5, so that the formula gives back
 * the measured rate at this share and power, whatever carried the bits. */
struct cp_link_sample {
    double bits, time_s, share, power_w;
};
bool cp_estimate_d2d(struct cp_estimate *e, int32_t round, const struct cp_radio *radio,
                     int cluster, int from, int to, const struct cp_link_sample *s);
bool cp_estimate_d2e(struct cp_estimate *e, int32_t round, const struct cp_radio *radio,
                     int cluster, int node, const struct cp_link_sample *s);

/* Overwrites rate_flops, energy_j_flop, mem_bytes and gains of what is known well enough; w->round
 * says how old that is. Memory is a hard limit: the lower of the mean and the last reading, and
 * never more than the model's. Returns how many figures were set. */
int cp_estimate_apply(const struct cp_estimate *e, struct cp_world *w);

struct cp_figure {
    double value;   /* 0 with no observations */
    double spread;  /* relative, of one observation about the value: the error of predicting it */
    int64_t count;  /* observations taken */
    int64_t strays; /* of them, those that were limited because they were far off */
    int32_t round;  /* of the last one */
};
struct cp_figure cp_estimate_figure(const struct cp_estimate *e, struct cp_figure_id id);

/* How wrong a world is about a stage or link: predicted time / measured time - 1, from the rates,
 * or the rates that the gains give at the last observed share and power. (Energy and memory:
 * predicted / measured - 1.) False if nothing is known of it. */
bool cp_estimate_error(const struct cp_estimate *e, const struct cp_world *w,
                       struct cp_figure_id id, double *error);

#endif
