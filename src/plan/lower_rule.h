/*
 * lower_rule: one M and one kind of schedule of a cluster at given prices, as constants of a
 * shortest path from the edge server back to the CU (docs/theory.md section 11.8); and the two
 * searches for the least value. Private to lower*.c.
 *
 * A label is a way to serve some last layers: the value so far, and a time q that the rest extends.
 * flush: the longest stage or link so far. overlap: max over the stages j so far of what they add
 * to P_j + M (tau^F_j + tau^B_j), P_j counted from where the label stands. serial: 0.
 *
 * A second of q has a value w, and whatever is still added, the total is cost + w max(a, b + q). A
 * link whose share x may be chosen from an interval becomes one label: its cost is the least cost
 * of all x, and its q is what makes cost + w q the least of all cost(x) + w q(x). That is below
 * every x, and exact where q never decides or always does.
 */
#ifndef CP_PLAN_LOWER_RULE_H
#define CP_PLAN_LOWER_RULE_H

#include "plan/lower_cluster.h"

/* Only cuts whose longest stage takes more than low_s and at most high_s. */
struct cp_lower_range {
    double low_s, high_s;
};

struct cp_lower_label {
    double cost, q_s;
    double free;   /* what of the cost does not grow with v */
    double uplink; /* y */
};

struct cp_lower_rule {
    const struct cp_lower_cluster *c;
    enum cp_lower_kind kind;
    int micro; /* M */
    int band;  /* of the cluster's */
    struct cp_lower_range range;
    int room[CP_DEVICES_MAX]; /* layers that fit, in memory and range */
    /* Only cuts that have more layers than this on some device: gpipe is asked for and does not
     * fit. */
    bool fallback;
    int fits[CP_DEVICES_MAX];
    double weight; /* value of a second of q */
    double known;  /* only less is sought */
    double layer_cost[CP_DEVICES_MAX], layer_free[CP_DEVICES_MAX];
    /* From the CU (0) or device u - 1, by interval of the share; and the least of all intervals. */
    struct cp_lower_hop {
        double cost, free, s;
    } hop[CP_DEVICES_MAX + 1][CP_DEVICES_MAX][CP_LOWER_INTERVALS];
    struct cp_lower_hop least[CP_DEVICES_MAX + 1][CP_DEVICES_MAX];
    const struct cp_lower_label *base; /* see cp_lower_base */
};

/* Labels of a last device with some layers on the edge server: one for each interval of y. */
static inline const struct cp_lower_label *cp_lower_base(const struct cp_lower_rule *r, int k,
                                                         int edge_layers)
{
    return &r->base[(k * (r->c->edge_max + 1) + edge_layers) * r->c->intervals];
}

/* q with a stage, and with a link, in front. */
static inline double cp_lower_stage(const struct cp_lower_rule *r, double q_s, double stage_s)
{
    if (r->kind == CP_LOWER_OVERLAP) {
        return r->micro * stage_s > stage_s + q_s ? r->micro * stage_s : stage_s + q_s;
    }
    return stage_s > q_s ? stage_s : q_s;
}

static inline double cp_lower_cross(const struct cp_lower_rule *r, double q_s, double link_s)
{
    if (r->kind == CP_LOWER_OVERLAP) {
        return q_s + link_s;
    }
    return link_s > q_s ? link_s : q_s;
}

/* l with a link in front. */
static inline struct cp_lower_label cp_lower_hopped(const struct cp_lower_rule *r,
                                                    const struct cp_lower_label *l,
                                                    const struct cp_lower_hop *hop)
{
    struct cp_lower_label to = *l;
    to.cost += hop->cost;
    to.free += hop->free;
    to.q_s = cp_lower_cross(r, l->q_s, hop->s);
    return to;
}

/* The value of a label with the CU in front. */
static inline double cp_lower_total(const struct cp_lower_rule *r, const struct cp_lower_label *l)
{
    return l->cost + (r->weight > 0 ? r->weight * cp_lower_stage(r, l->q_s, r->c->cu_s) : 0);
}

/* base is memory for its labels. */
void cp_lower_rule_make(const struct cp_lower_cluster *c, const struct cp_lower_price *price,
                        enum cp_lower_kind kind, int micro, int band, struct cp_lower_range range,
                        struct cp_lower_label *base, struct cp_lower_rule *out);

/* The label of a whole path; its cost counts q, too. False where the cut does not fit the rule. */
bool cp_lower_rule_path(const struct cp_lower_rule *r, const struct cp_cluster_plan *p,
                        struct cp_lower_label *out);

/* Both: if something below r->known can be, *out is the least (its cost counts q); else nothing is
 * written. By sets: exact but for fronts that outgrow their room, which are lowered. By counts:
 * below that. */
CP_NODISCARD cp_err cp_lower_by_sets(const struct cp_lower_rule *r, struct cp_lower_work *work,
                                     struct cp_lower_label *out);
void cp_lower_by_counts(const struct cp_lower_rule *r, struct cp_lower_work *work,
                        struct cp_lower_label *out);

/* Lowers *best to the least of modes full and split with M, if that is less. */
void cp_lower_apart(const struct cp_lower_cluster *c, const struct cp_lower_price *price, int micro,
                    struct cp_lower_label *best);

/* Memory of the searches; n devices, L layers. */
enum { CP_LOWER_FRONT = 96 };
struct cp_lower_front {
    int n;
    struct cp_lower_label label[CP_LOWER_FRONT];
};
struct cp_lower_work {
    int layers;
    struct cp_lower_label *base;   /* [n][L][CP_LOWER_INTERVALS] */
    struct cp_lower_front *source; /* [2 L] */
    double *rest_cost, *rest_s;    /* [n][L] */
    struct cp_lower_label *count;  /* [2][L + 1] */
    double *stage_s;               /* longest ones: [n (L + 1)], and one for each base */
    int32_t *first;                /* [sets][n][2 L], of labels */
    int16_t *many;
    struct cp_lower_label *label; /* all that are kept */
    int n_labels, cap;
};

#endif
