/*
 * split: number, sizes, order and devices of the segments of one cluster, by an exact dynamic
 * program over Pareto labels (docs/theory.md section 11.2).
 *
 * Minimises P1_c(v) = v T_c + sum_k Z~_k E_k + Y~_c / M for a given number of segments S, M, order,
 * shares and powers, with T_step by Lemma 1 (exact for gpipe; a surrogate where the phases overlap,
 * with the times of the overlapping phases) or, for seq, M Sigma (exact).
 */
#ifndef CP_PLAN_SPLIT_H
#define CP_PLAN_SPLIT_H

#include "plan/draft.h"

/* Above this many present devices the search keeps only the CP_SPLIT_BEAM best labels per segment:
 * a heuristic, no longer exact. */
enum { CP_SPLIT_EXACT_DEVICES = 8, CP_SPLIT_BEAM = 256 };

struct cp_split {
    const struct cp_world *world;
    int cluster;
    struct cp_room *room; /* of the same cluster */
    int segments;         /* S <= devices present, L */
    int micro_batches;    /* M */
    enum cp_order order;
    double v;                         /* weight of T_c, >= 0 */
    double price[CP_DEVICES_MAX + 1]; /* Z~ per node, 1/J: [0] CU, [k + 1] device k */
    double micro_price;               /* Y~_c */
    double bound;                     /* only placements of at most this value are sought */
    bool narrow;                      /* a quick pass: a good placement, not the best */
    double uplink_share, power_up_w;
    double band_fwd[CP_DEVICES_MAX], band_bwd[CP_DEVICES_MAX]; /* by position: link s < S */
    /* Powers by node: forwards to a device, forwards to the edge, backwards. */
    double power_fwd_w[CP_DEVICES_MAX + 1], power_edge_w[CP_DEVICES_MAX + 1];
    double power_bwd_w[CP_DEVICES_MAX + 1];
};

/* Equal bands, y = 1/C, greatest powers for these segments, micro_batches and order, as
 * cp_draft_radio(); v and prices from the queues (NULL: 1 and 0); no bound, not narrow. */
void cp_split_init(struct cp_split *s, const struct cp_world *w, int cluster, struct cp_room *room,
                   const struct cp_queues *q, int segments, int micro_batches, enum cp_order order);

/* Memory of a search, kept between calls; zeroed at first. */
struct cp_split_work {
    struct cp_split_label *label;
    int n, cap;
};
void cp_split_work_fini(struct cp_split_work *work);

/* found: false where memory and bound allow no placement. out: device, layers, segments,
 * micro_batches, order, slots, bands and powers; value: P1_c(v) as above. Fails only for want of
 * memory. */
CP_NODISCARD cp_err cp_split_solve(const struct cp_split *s, struct cp_split_work *work,
                                   struct cp_cluster_plan *out, double *value, bool *found);

#endif
