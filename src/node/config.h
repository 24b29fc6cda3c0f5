/*
 * config: every option of a run, in one table (node/config.c), and the plain struct that it fills.
 * The table parses, validates, prints provenance and makes the help; docs/config.md is made from
 * it.
 */
#ifndef CP_NODE_CONFIG_H
#define CP_NODE_CONFIG_H

#include "base/conf.h"

enum cp_partition { CP_PARTITION_IID, CP_PARTITION_DIRICHLET };
enum cp_batch_mode { CP_BATCH_FIXED_B, CP_BATCH_FIXED_BATCH };
enum cp_plan_formats { CP_FORMATS_FP32, CP_FORMATS_ANY };
enum cp_moments { CP_MOMENTS_KEEP, CP_MOMENTS_RESET };
enum cp_weights { CP_WEIGHTS_DATA, CP_WEIGHTS_TRAINED };
enum cp_change { CP_CHANGE_LEAVE, CP_CHANGE_JOIN, CP_CHANGE_RATE };
enum { CP_CONFIG_ORDER_AUTO = 3 };  /* after the values of enum cp_order */
enum { CP_CONFIG_RADIO_TRACE = 3 }; /* after the values of enum cp_fading */

struct cp_config_device {
    const char *name;
    double gflops, mem_mib, energy_pj_per_flop, budget_j, x_m, y_m;
    double battery_j, battery_reserve_j, harvest_w; /* devices only */
};

struct cp_config_cluster {
    const char *name;
    double distance_m; /* of the control unit to the base station */
    double arrivals;   /* samples per round, in the mean */
    struct cp_config_device cu;
    struct cp_conf_list devices; /* struct cp_config_device */
};

/* A scripted change of the world: from this round on. */
struct cp_config_change {
    int64_t round;    /* 1-based, as printed */
    const char *node; /* "c1.d2" */
    int kind;         /* enum cp_change */
    double factor;    /* rate: of the device's configured speed */
};

struct cp_config {
    int64_t seed;
    bool deterministic;
    struct {
        const char *dir, *name;
        int64_t keep, save_every, events;
    } run;
    struct {
        int kind;
        int64_t layers, width, heads, ffn, max_len, vocab;
        double init_std;
    } model;
    struct {
        const char *path, *heldout, *vocab, *text_column, *label_column;
        int task, partition, arrivals;
        int64_t classes;
        double alpha;
    } data;
    struct {
        int64_t micro_batch, micro_batches, micro_max, batch, local_steps, freeze, estimate_every;
        double lr, warmup, weight_decay, beta1, beta2, eps, clip, dropout;
        int optimizer, decay;
    } train;
    struct {
        int64_t max_samples;
    } eval;
    struct {
        const char *policy;
        struct cp_conf_cuts cuts;
        double v;
        const char *figures; /* file of measured figures; NULL: the model's */
        bool measured;       /* simulate: the planner knows what it has observed, not the truth */
        int batch_mode, formats;
    } plan;
    struct {
        int order;
    } pipe;
    struct {
        int64_t rounds;
        int aggregator, moments, weights;
        double deadline_s;
    } fed;
    struct {
        int kind;
        double wait_s;
    } net;
    struct {
        int64_t threads;
    } node;
    struct {
        int kind;
        double d2d_mhz, up_mhz, down_mhz, noise_dbm_hz, d2d_dbm, d2e_dbm, bs_dbm;
        double rician_k_db, clamp, shadow_db, availability;
        const char *trace; /* kind trace: the file */
        int trace_end;     /* enum cp_world_trace_end */
    } radio;
    struct {
        double gflops;
    } server;
    struct cp_conf_list clusters; /* struct cp_config_cluster */
    const char *clusters_short;   /* "2x3" */
    struct cp_conf_list changes;  /* struct cp_config_change */
};

extern const struct cp_opt CP_CONFIG_TABLE[];

CP_NODISCARD cp_err cp_config_new(struct cp_conf **out);
const struct cp_config *cp_config_of(const struct cp_conf *c);

#endif
