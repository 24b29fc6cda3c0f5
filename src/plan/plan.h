/*
 * plan: the only thing the brain says to the muscle. Plain data, copied and compared freely.
 *
 * A cluster's pipeline has stages 0..S+1: the control unit (embedding), S devices (segments of
 * encoder layers), the edge server (head). Arrays run from the control unit. A plan has a
 * generation; every tensor message carries it and other generations are refused.
 */
#ifndef CP_PLAN_PLAN_H
#define CP_PLAN_PLAN_H

#include "base/str.h"
#include "world/world.h"

enum { CP_STAGES_MAX = CP_DEVICES_MAX + 2, CP_POLICY_NAME = 24 };

enum cp_order { CP_ORDER_SEQ, CP_ORDER_GPIPE, CP_ORDER_1F1B };
const char *cp_order_name(enum cp_order order);

/*
 * pipeline: the segments of a cluster's devices, one after another.
 * full: every used device trains the whole model on its part of the cluster's samples (FedAvg).
 * split: every used device holds the embedding and the first a layers, and works with its own copy
 * of the rest on the edge server, without overlap (SplitFed).
 * In full and split the samples are spread evenly over the used devices (M / S micro-batches a step
 * each), layers[] = L or a for each, slots are 1, and no D2D band is used; the power of each device
 * towards the edge server is power_fwd_w[s + 1], and the cluster's uplink share is divided evenly.
 */
enum cp_plan_mode { CP_MODE_PIPELINE, CP_MODE_FULL, CP_MODE_SPLIT };
const char *cp_plan_mode_name(enum cp_plan_mode mode);

/* Numbers on the air. int8 has one scale per row. */
enum cp_format { CP_FORMAT_FP32, CP_FORMAT_BF16, CP_FORMAT_INT8 };
const char *cp_format_name(enum cp_format format);
/* Bytes against those of fp32, for rows of some width. */
double cp_format_size(enum cp_format format, int32_t width);
/* Root mean square of the rounding error against that of the numbers, for normal ones: bf16 has
 * steps of 2^-7 of the power of two below a number, which is taken as 1.36 times that power, int8
 * 127 steps up to the largest number of a row, taken as 3.5 times their root mean square. */
double cp_format_error(enum cp_format format);

struct cp_cluster_plan {
    enum cp_plan_mode mode;
    enum cp_order order;
    int segments;               /* S */
    int device[CP_DEVICES_MAX]; /* o_s: index into cluster->device */
    int layers[CP_DEVICES_MAX]; /* delta_s >= 1; with edge_layers their sum is L */
    int edge_layers;            /* last encoder layers, on the edge server beside the head */
    int micro_batches;          /* M */
    int slots[CP_STAGES_MAX];   /* per stage 0..S+1, 1..M, non-increasing */
    double uplink_share;        /* y_c */
    double band_fwd[CP_DEVICES_MAX], band_bwd[CP_DEVICES_MAX]; /* x_j of D2D link j < S */
    double power_fwd_w[CP_DEVICES_MAX + 1], power_bwd_w[CP_DEVICES_MAX + 1]; /* node at stage j */
    double power_up_w;                                                       /* p^U of the CU */
    enum cp_format link_format[CP_DEVICES_MAX + 1];                          /* link j, both ways */
    enum cp_format upload_format; /* of what the round changed in the model */
};

/*
 * Whether forward and backward phase may overlap on the air: some stage has fewer slots than M.
 * Then a D2D link has half the band each way, and a device that sends both ways splits its power:
 * p^F / p^F,max + p^B / p^B,max <= 1 (section 6.2; the same as p^F + p^B <= p^max where both
 * limits are equal).
 */
bool cp_plan_overlaps(const struct cp_cluster_plan *c);

struct cp_plan {
    uint32_t gen;
    char policy[CP_POLICY_NAME];
    int n_clusters;
    struct cp_cluster_plan *cluster; /* owned */
};

CP_NODISCARD cp_err cp_plan_init(struct cp_plan *p, int n_clusters); /* p is raw storage */
/* to is zeroed or a plan, and is replaced. */
CP_NODISCARD cp_err cp_plan_copy(struct cp_plan *to, const struct cp_plan *from);
void cp_plan_fini(struct cp_plan *p);

/* First encoder layer (0-based) of segment s; stage of a block (0..L+1) in the pipeline. */
int cp_plan_first_layer(const struct cp_cluster_plan *c, int segment);
int cp_plan_stage_of(const struct cp_cluster_plan *c, int layers, int block);

/* Whether two plans of a cluster have every layer in the same place. */
bool cp_plan_same_cut(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y);

/* Slots of a stage under an order: seq 1, gpipe M, 1f1b min(M, S+2-j); and all of a plan. */
int cp_order_slots(enum cp_order order, int segments, int micro_batches, int stage);
void cp_plan_set_slots(struct cp_cluster_plan *c);

/* Memory that a used device needs, in every mode. */
size_t cp_plan_mem_bytes(const struct cp_cluster_plan *c, int segment,
                         const struct cp_model_cost *model);

/* Proves a plan against a world: contiguity, assignment, presence, memory, slots, shares, powers
 * (C3-C9 of section 9). E_PLAN names the cluster, the device, and what binds with its sums. */
CP_NODISCARD cp_err cp_plan_check(const struct cp_plan *p, const struct cp_world *w);

/* One block that changes owner between two plans. */
enum { CP_OWNER_EDGE = -1 };
struct cp_move {
    int cluster, block; /* block 1..L */
    int from, to;       /* device indices, or CP_OWNER_EDGE */
};
/* Writes at most max moves, returns how many there are. A cluster that is not a pipeline in both
 * plans has none: each of its devices gets all it needs with the model of the round. */
int cp_plan_diff(const struct cp_plan *from, const struct cp_plan *to, int layers,
                 struct cp_move *moves, int max);

/*
 * JSON of a plan, one object, appended to out: gen, policy and clusters[] with mode, order,
 * micro_batches, uplink_share, power_up_w, devices[S], segments[S], edge_layers, slots[S+2],
 * band_share_fwd[S], band_share_bwd[S], power_fwd_w[S+1], power_bwd_w[S] (from the first device on:
 * the CU sends nothing back), link_format[S+1], upload_format. With a world, also what a reader of
 * the file wants to know: name, device_names[S], step_s, mem_bytes[S], energy_j[S+1].
 */
CP_NODISCARD cp_err cp_plan_to_json(const struct cp_plan *p, const struct cp_world *w,
                                    struct cp_str *out);
/* Reads it back; fields it does not know are left out. out is raw storage. E_DATA names the field;
 * what is wrong only in a certain world is left to cp_plan_check. */
CP_NODISCARD cp_err cp_plan_from_json(const char *text, struct cp_plan *out);

/* "c1: cu=emb  d2=1-2  d1=3  d3=4  edge=head  M=8 1f1b" appended to out. */
void cp_plan_line(const struct cp_cluster_plan *c, const struct cp_cluster *cl, struct cp_str *out);

#endif
