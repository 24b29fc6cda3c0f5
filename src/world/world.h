/*
 * world: what the planner knows of a round. Plain data, no tensors, no sockets.
 *
 * Units are in the names. Device 0..K-1 of a cluster are its devices; the control unit (CU) is kept
 * apart. "Node" indices of the channel matrix: 0 = CU, k + 1 = device k. Symbols in comments are
 * those of docs/theory.md section 1.
 */
#ifndef CP_WORLD_WORLD_H
#define CP_WORLD_WORLD_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CP_DEVICES_MAX = 16, CP_CLUSTERS_MAX = 16384, CP_WORLD_NAME = 32 };

/* Micro-batches of a local step, and encoder layers: more than anybody trains with, and few enough
 * for fixed arrays. */
enum { CP_MICRO_MAX = 1024, CP_LAYERS_MAX = 1024 };

/* Why a device is not present. */
enum cp_absence { CP_ABSENCE_LEFT, CP_ABSENCE_BATTERY };

struct cp_device {
    char name[CP_WORLD_NAME];
    bool present;             /* in this round */
    enum cp_absence absence;  /* where it is not */
    double rate_flops;        /* nu_k in this round, FLOP/s */
    double energy_j_flop;     /* epsilon_k */
    size_t mem_bytes;         /* Mem_k, a hard limit */
    double budget_j;          /* E-bar_k per round; 0: no limit, its queue stays 0 */
    double power_d2d_w;       /* p^max towards other nodes of the cluster */
    double power_d2e_w;       /* p^max towards the edge server */
    double battery_j;         /* B^cap, section 4; 0: no battery, it never leaves for that */
    double battery_reserve_j; /* with less it leaves */
    double harvest_w;         /* what charges the battery in this round */
    double x_m, y_m;          /* position; the CU of the cluster is at its own x_m, y_m */
};

/*
 * What a cluster counts in the convergence bound (section 8), from data_size and grad_variance of
 * all clusters. Only ratios of variances matter, and a cluster without one has the mean of the
 * others.
 */
struct cp_weight {
    double rho;    /* rho_c; they sum to 1 */
    double alpha;  /* alpha~_c; they sum to 1 */
    double spread; /* alpha~_c grows by this share for each further model that is trained apart */
    double lossy;  /* a relative error U of its gradients adds M_ref x lossy x U^2 to gamma */
};

struct cp_cluster {
    char name[CP_WORLD_NAME];
    struct cp_device cu;
    int n_devices; /* K */
    struct cp_device device[CP_DEVICES_MAX];
    double data_size;        /* |D_c|, samples */
    double grad_variance;    /* sigma_c^2 per sample, relative to the other clusters'; 0: unknown */
    struct cp_weight weight; /* set by cp_world_weigh() */
    double arrivals;     /* A_c: new samples of this round; in an undisturbed world their mean */
    int32_t micro_limit; /* most micro-batches of a step in this round, by what waits; 0: none */
    double edge_x_m;     /* distance of the CU to the base station; devices add their position */
    double gain_d2d[CP_DEVICES_MAX + 1][CP_DEVICES_MAX + 1]; /* g, symmetric, of this round */
    double gain_d2e[CP_DEVICES_MAX + 1];
};

/* Sizes and work of the model's parts at (b, len), from the one size function. */
struct cp_part_cost {
    double work_fwd_flops, work_bwd_flops; /* per micro-batch */
    double param_bytes;                    /* what an upload of the part carries */
};
struct cp_model_cost {
    int layers; /* L */
    struct cp_part_cost emb, layer, head;
    double boundary_bytes; /* a_0 */
    double label_bytes;    /* per micro-batch, beside the activation */
    int32_t width;         /* d: values in a row of a boundary tensor */
    double optim_words;    /* n_opt */
    /* Exact memory of a device with n layers and some slots: the size function, called back, so
     * that plan and allocator cannot disagree. */
    size_t (*segment_bytes)(const void *arg, int n_layers, int slots); /* rises with both */
    /* The same for a device of SplitFed: the embedding and the first n layers, one slot. */
    size_t (*client_bytes)(const void *arg, int n_layers);
    const void *segment_arg; /* of both; borrowed */
    size_t full_bytes_micro; /* Mem_full with one micro-batch in flight (section 14) */
    size_t full_bytes_batch; /* Mem_full with the whole local batch (M_ref micro-batches) */
};

struct cp_radio {
    double band_d2d_hz;  /* W_D, per cluster */
    double band_up_hz;   /* W_U, shared by the clusters */
    double band_down_hz; /* W_L */
    double noise_w_hz;   /* N_0 */
    double power_bs_w;   /* P_BS */
};

struct cp_world {
    int32_t round;
    int n_clusters;
    struct cp_cluster *cluster; /* owned */
    struct cp_radio radio;
    struct cp_model_cost model;
    double server_flops;   /* nu_srv in total; each cluster gets 1/C of it */
    int32_t local_steps;   /* H */
    int32_t micro_samples; /* b */
    int32_t micro_ref;     /* M_ref */
    int32_t micro_max;     /* M_max, at least M_ref */
};

/* A zeroed world of n clusters named c1..cn. */
CP_NODISCARD cp_err cp_world_init(struct cp_world *w, int n_clusters);
/* to is zeroed or a world, and is replaced; the model's callback argument is shared. */
CP_NODISCARD cp_err cp_world_copy(struct cp_world *to, const struct cp_world *from);
void cp_world_fini(struct cp_world *w);

/*
 * The short form `clusters=CxK`: clusters and devices drawn from the default ranges of section 15,
 * each device keyed by (seed, cluster, device), so that a larger world begins with the smaller one.
 * Radio, server, H, b, M_ref and M_max get the defaults; the model and the channel gains are left
 * to the caller. out is raw storage.
 */
CP_NODISCARD cp_err cp_world_draw_default(int n_clusters, int n_devices, uint64_t seed,
                                          struct cp_world *out);

/* Availability of the round: rate_flops = rate of full x U[low, 1), keyed by (seed, w->round,
 * cluster, device). full has the same clusters and holds the undisturbed rates; it may be w. */
void cp_world_draw_rates(struct cp_world *w, const struct cp_world *full, double low,
                         uint64_t seed);

/* Sets the weight of every cluster; whoever changes data_size, grad_variance or
 * local_steps calls it again, or cp_world_check refuses the world. */
void cp_world_weigh(struct cp_world *w);

/* The most micro-batches of a step of the cluster: M_max, or its own limit in this round. */
int cp_world_micro_max(const struct cp_world *w, int cluster);

/* Proves that planning can begin: sizes in range, every number of a present device finite and of
 * the right sign, gains included. E_CONFIG or E_NONFINITE names cluster, device and quantity. */
CP_NODISCARD cp_err cp_world_check(const struct cp_world *w);

#endif
