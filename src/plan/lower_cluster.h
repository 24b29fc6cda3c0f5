/*
 * lower_cluster: the least value of one cluster's part of the Lagrangian (docs/theory.md section
 * 11.8), over every M, kind of schedule, cut and power. Private to lower*.c and their tests.
 */
#ifndef CP_PLAN_LOWER_CLUSTER_H
#define CP_PLAN_LOWER_CLUSTER_H

#include "plan/draft.h"
#include "plan/lower.h"
#include "plan/lower_air.h"

/* Schedules by what bounds their step: all slots M (gpipe, and M = 1); one slot (seq); any slots of
 * which some are below M, which holds 1f1b and seq. */
enum cp_lower_kind { CP_LOWER_FLUSH, CP_LOWER_SERIAL, CP_LOWER_OVERLAP, CP_LOWER_KINDS };

/* The share of a link lies in one of some intervals: each is one label, see lower_rule.h. */
enum { CP_LOWER_INTERVALS = 6 };

/* A way to weigh a link's times against its share: the band that it is part of, the price of all
 * of it (in s of a step), and, where phases overlap, the part of Sigma + (M - 1) tau in the time
 * (0..1; the rest is q). */
struct cp_lower_band {
    int half; /* 0: the whole D2D band, 1: half of it */
    double price_s, mix;
};
/* Band [0] is for flush, [1] for serial or overlap, all others for overlap. */
enum { CP_LOWER_BANDS = 4, CP_LOWER_RANGES = 4 };

/* From a node to a device of the cluster, both ways. */
struct cp_lower_link {
    struct cp_air air; /* not slower than either way, in the whole band */
    double joule;      /* least priced energy of a round per micro-batch */
    /* By band: where the intervals end, from 1 down; the least of mix times there and back with the
     * price of the share in each, by format; and of the whole times (but band 0). */
    double end[CP_LOWER_BANDS][CP_LOWER_INTERVALS + 1];
    double priced_s[CP_LOWER_BANDS][CP_LOWER_INTERVALS][CP_FORMAT_INT8 + 1];
    double whole_s[CP_LOWER_BANDS][CP_LOWER_INTERVALS][CP_FORMAT_INT8 + 1];
};

/* The shares of a link in a band and their intervals; whole: times count so often with q. */
struct cp_air cp_lower_link_air(const struct cp_lower_link *l, const struct cp_lower_band *b);

/* Ends of n intervals, from end[0] = 1 down to end[n] = 0, where the least without q is at x_cost
 * and with it at x_all. */
void cp_lower_intervals(double x_cost, double x_all, int n, double end[CP_LOWER_INTERVALS + 1]);

/* A cluster as prices do not change it. Devices are those present, 0..n-1; costs of energy hold for
 * a round and are priced. */
struct cp_lower_cluster {
    const struct cp_policy_args *a;
    struct cp_lower_set set;
    int cluster, n, device[CP_DEVICES_MAX];
    int micro_low, micro_high;          /* M */
    int edge_max;                       /* most layers on the edge server */
    bool serial;                        /* seq only */
    bool gpipe;                         /* anything else only where gpipe does not fit */
    double steps;                       /* H */
    double layer_s[CP_DEVICES_MAX];     /* of a micro-batch, forwards and backwards */
    double layer_joule[CP_DEVICES_MAX]; /* per micro-batch */
    double move_s[CP_DEVICES_MAX], move_joule[CP_DEVICES_MAX]; /* scatter and gather of a layer */
    double cu_s, cu_joule, head_s, edge_layer_s;
    double longer;                              /* the longer direction's part of a layer's time */
    struct cp_air edge[CP_DEVICES_MAX], upload; /* the upload: of one bit */
    double edge_down_s[CP_DEVICES_MAX], edge_joule[CP_DEVICES_MAX], upload_joule;
    double micro_price, error_price, error; /* Y~; of the squared error; the error of the tangent */
    /* Value of a second of the broadcast, which is 0 for all but one cluster; what a layer on the
     * edge server takes off it. */
    double broadcast_v, broadcast_s;
    int intervals; /* of shares, at most CP_LOWER_INTERVALS */
    int ranges;    /* of the longest stage */
    int bands;     /* 2 where there is only seq */
    struct cp_lower_band band[CP_LOWER_BANDS];
    struct cp_lower_link *link; /* [n + 1][n], from the CU or a device; owned */
    int16_t *room;              /* [micro_high + 1][n] layers with so many slots; owned */
    double *slot_s; /* [sets][L + 1] the least longest time of layers outside a set; owned */
    bool exact;     /* slot_s knows all sets, not only the empty one */
};

/* Prices of a Lagrangian. */
struct cp_lower_price {
    double time;   /* v */
    double uplink; /* lambda */
};

struct cp_lower_value {
    double value;
    int micro;             /* M there */
    double time_s, uplink; /* dvalue/dv and dvalue/dlambda, where the least value is taken */
};

/* Memory of the searches, for clusters of up to n devices, by sets up to exact_devices. */
struct cp_lower_work;
CP_NODISCARD cp_err cp_lower_work_new(int n, int exact_devices, int layers,
                                      struct cp_lower_work **out);
void cp_lower_work_free(struct cp_lower_work *work);

/* How finely a cluster is bounded. */
struct cp_lower_options {
    int exact_devices; /* with more present devices, by counts */
    int intervals;     /* of shares, 1 to CP_LOWER_INTERVALS */
    int bands;         /* 2 to CP_LOWER_BANDS */
    int ranges;        /* of the longest stage, 1 to CP_LOWER_RANGES */
};

/* c is raw storage. p, or NULL, is only asked for the errors of its formats. */
CP_NODISCARD cp_err cp_lower_cluster_init(struct cp_lower_cluster *c,
                                          const struct cp_policy_args *a,
                                          const struct cp_lower_set *set,
                                          const struct cp_cluster_plan *p, int cluster,
                                          const struct cp_lower_options *options);
void cp_lower_cluster_fini(struct cp_lower_cluster *c);

/* Sets one of the bands; intervals must be set. */
void cp_lower_cluster_band(struct cp_lower_cluster *c, int band, double price_s, double mix);

/* p, or NULL: a plan of this cluster where the search begins. near: only its M, and the one in *out
 * where that is not 0, and roughly: no bound of the cluster, but the way to good prices. */
CP_NODISCARD cp_err cp_lower_cluster_least(const struct cp_lower_cluster *c,
                                           const struct cp_lower_price *price,
                                           const struct cp_cluster_plan *p, bool near,
                                           struct cp_lower_work *work, struct cp_lower_value *out);

#endif
