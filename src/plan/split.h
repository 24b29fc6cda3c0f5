/*
 * split: number, sizes, order and devices of the segments of one cluster, by an exact dynamic
 * program over Pareto labels (docs/theory.md section 11.2).
 *
 * Minimises P1_c(v) = v T_c + sum_k Z~_k E_k + Y~_c / M for a given number of segments S, M, order,
 * shares and powers. T_step follows from the slots: all M (gpipe): Lemma 1, exact; all 1 (seq):
 * M Sigma, exact; anything else is an order whose phases overlap: Lemma 1 with the times of the
 * overlapping phases, a surrogate. What formats add to gamma is the same for every placement and
 * left out.
 */
#ifndef CP_PLAN_SPLIT_H
#define CP_PLAN_SPLIT_H

#include "plan/draft.h"

/*
 * How a result was found. exact: the least value of all placements. types: the same, with more
 * present devices than CP_SPLIT_EXACT_DEVICES, of which many are equal. beam: a heuristic, because
 * there are too many different devices (or, with 10 of them, more than 92 layers), because labels
 * would take too much memory, or because the pass was narrow; then only the most promising labels
 * of each segment are kept, CP_SPLIT_BEAM_LABELS of them.
 */
enum cp_split_kind { CP_SPLIT_EXACT, CP_SPLIT_TYPES, CP_SPLIT_BEAM };
enum { CP_SPLIT_EXACT_DEVICES = 10, CP_SPLIT_BEAM_LABELS = 256 };

struct cp_split {
    const struct cp_world *world;
    int cluster;
    struct cp_room *room;     /* of the same cluster */
    int segments;             /* S <= devices present, L - edge_layers */
    int micro_batches;        /* M */
    enum cp_order order;      /* name of the slots, for the plan */
    int slots[CP_STAGES_MAX]; /* per stage 0..S+1, non-increasing; they decide memory and time */
    int edge_layers;          /* on the edge server; L - edge_layers are to be placed */
    enum cp_format link_format[CP_DEVICES_MAX + 1]; /* by position: link 0..S */
    enum cp_format upload_format;
    bool index_order;  /* only devices in rising order */
    double v;          /* weight of T_c, >= 0 */
    double sum_weight; /* of all times but the bottlenecks: 1; tiny for a min-max cut */
    double price[CP_DEVICES_MAX + 1]; /* Z~ per node, 1/J: [0] CU, [k + 1] device k */
    double micro_price;               /* Y~_c */
    double bound;                     /* only placements of at most this value are sought */
    bool narrow; /* a quick pass: a good placement, or none where few fit; not the best */
    double uplink_share, power_up_w;
    double band_fwd[CP_DEVICES_MAX], band_bwd[CP_DEVICES_MAX]; /* by position: link s < S */
    /* Powers by node: forwards to a device, forwards to the edge, backwards. */
    double power_fwd_w[CP_DEVICES_MAX + 1], power_edge_w[CP_DEVICES_MAX + 1];
    double power_bwd_w[CP_DEVICES_MAX + 1];
};

/* Slots of the order; equal bands, y = 1/C, greatest powers for these segments, micro_batches and
 * order, as cp_draft_radio(); v and prices from the queues (NULL: 1 and 0); no layers on the edge
 * server, fp32, no bound, not narrow. Who changes slots between "all M" and less changes the powers
 * too. */
void cp_split_init(struct cp_split *s, const struct cp_world *w, int cluster, struct cp_room *room,
                   const struct cp_queues *q, int segments, int micro_batches, enum cp_order order);

/* Memory of a search, kept between calls; zeroed at first. */
struct cp_split_work {
    struct cp_split_program *program;
    struct cp_split_label *label;
    int n, cap;      /* labels */
    int label_limit; /* of a pass; 0: what takes 128 MiB */
    int32_t *bucket;
    double *bound;
    size_t bound_cap;
    struct cp_split_root *root;
    int root_cap;
};
void cp_split_work_fini(struct cp_split_work *work);

struct cp_split_result {
    bool found; /* false where memory and bound allow no placement; then the rest but kind is 0 */
    enum cp_split_kind kind;
    double value;                /* P1_c(v) as above */
    struct cp_cluster_plan plan; /* complete: also what the split only hands through */
};

/* Fails only where nobody is present or for want of memory. */
CP_NODISCARD cp_err cp_split_solve(const struct cp_split *s, struct cp_split_work *work,
                                   struct cp_split_result *out);

/* The placements of least value, at most s->bound, in rising order; at most max <= CP_SPLIT_NEAR of
 * them, written to out, and how many to n. Of placements that use the same devices with the same
 * one last, only those that are better than each other in cost or in a bottleneck are told apart.
 */
enum { CP_SPLIT_NEAR = 8 };
CP_NODISCARD cp_err cp_split_near(const struct cp_split *s, struct cp_split_work *work,
                                  struct cp_cluster_plan *out, int max, int *n,
                                  enum cp_split_kind *kind);

/* The best of n > 0 programs of one cluster, say of all numbers of segments: quicker than one after
 * another, because what is found for one bounds the others. narrow of the first counts for all. */
CP_NODISCARD cp_err cp_split_best(const struct cp_split *list, int n, struct cp_split_work *work,
                                  struct cp_split_result *out);

#endif
