#include "world/world.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

cp_err cp_world_init(struct cp_world *w, int n_clusters)
{
    if (n_clusters < 1 || n_clusters > CP_CLUSTERS_MAX) {
        return cp_fail(CP_E_CONFIG, "a world has 1 to %d clusters, not %d", CP_CLUSTERS_MAX,
                       n_clusters);
    }
    struct cp_cluster *cluster;
    CP_TRY(cp_mem_array(NULL, (size_t)n_clusters, sizeof *cluster, &cluster));
    *w = (struct cp_world){.n_clusters = n_clusters, .cluster = cluster};
    for (int c = 0; c < n_clusters; c++) {
        snprintf(cluster[c].name, sizeof cluster[c].name, "c%d", c + 1);
        snprintf(cluster[c].cu.name, sizeof cluster[c].cu.name, "cu");
    }
    return CP_OK;
}

cp_err cp_world_copy(struct cp_world *to, const struct cp_world *from)
{
    struct cp_cluster *cluster;
    CP_TRY(cp_mem_array(NULL, (size_t)from->n_clusters, sizeof *cluster, &cluster));
    memcpy(cluster, from->cluster, (size_t)from->n_clusters * sizeof *cluster);
    cp_mem_free(to->cluster);
    *to = *from;
    to->cluster = cluster;
    return CP_OK;
}

void cp_world_fini(struct cp_world *w)
{
    cp_mem_free(w->cluster);
    *w = (struct cp_world){0};
}

/* Default ranges of section 15. */
static void draw_device(struct cp_device *d, uint64_t seed, int cluster, int node)
{
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_WORLD, (uint32_t)cluster, (uint32_t)node);
    d->present = true;
    d->rate_flops = cp_rng_range(&r, 20e9, 120e9);
    d->energy_j_flop = cp_rng_range(&r, 15e-12, 40e-12);
    d->mem_bytes = (size_t)cp_rng_range(&r, 0x1p30, 0x1p32); /* 1 to 4 GiB */
    d->budget_j = 400 * cp_rng_range(&r, 0.7, 1.3);
    d->x_m = cp_rng_range(&r, -20, 20);
    d->y_m = cp_rng_range(&r, -20, 20);
    d->power_d2d_w = 0.1;             /* 20 dBm */
    d->power_d2e_w = pow(10.0, -0.7); /* 23 dBm */
}

static void draw_cluster(struct cp_cluster *cl, int n_devices, uint64_t seed, int cluster)
{
    draw_device(&cl->cu, seed, cluster, 0);
    cl->cu.rate_flops = 60e9;
    cl->cu.x_m = cl->cu.y_m = 0;
    cl->n_devices = n_devices;
    for (int k = 0; k < n_devices; k++) {
        draw_device(&cl->device[k], seed, cluster, k + 1);
        snprintf(cl->device[k].name, sizeof cl->device[k].name, "d%d", k + 1);
    }
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_WORLD, (uint32_t)cluster, CP_DEVICES_MAX + 1);
    cl->edge_x_m = cp_rng_range(&r, 50, 200);
    cl->data_size = 1; /* equal, until the data says otherwise */
}

cp_err cp_world_draw_default(int n_clusters, int n_devices, uint64_t seed, struct cp_world *out)
{
    if (n_devices < 1 || n_devices > CP_DEVICES_MAX) {
        return cp_fail(CP_E_CONFIG, "a cluster has 1 to %d devices, not %d", CP_DEVICES_MAX,
                       n_devices);
    }
    struct cp_world w;
    CP_TRY(cp_world_init(&w, n_clusters));
    for (int c = 0; c < n_clusters; c++) {
        draw_cluster(&w.cluster[c], n_devices, seed, c);
    }
    w.radio = (struct cp_radio){
        .band_d2d_hz = 20e6,
        .band_up_hz = 40e6,
        .band_down_hz = 40e6,
        .noise_w_hz = pow(10.0, -20.4), /* -174 dBm/Hz */
        .power_bs_w = 1.0,              /* 30 dBm */
    };
    w.server_flops = 2e12;
    w.local_steps = 20;
    w.micro_samples = 4;
    w.micro_ref = 8;
    w.micro_max = 16;
    cp_world_weigh(&w);
    *out = w;
    return CP_OK;
}

void cp_world_draw_rates(struct cp_world *w, const struct cp_world *full, double low, uint64_t seed)
{
    for (int c = 0; c < w->n_clusters; c++) {
        for (int k = 0; k < w->cluster[c].n_devices; k++) {
            /* The top bit keeps these keys apart from those of draw_device(). */
            uint32_t key = 1u << 31 | (uint32_t)c << 8 | (uint32_t)k;
            struct cp_rng r;
            cp_rng_init(&r, seed, CP_RNG_WORLD, (uint32_t)w->round, key);
            w->cluster[c].device[k].rate_flops =
                full->cluster[c].device[k].rate_flops * cp_rng_range(&r, low, 1);
        }
    }
}

/*
 * alpha~_c ~ sigma_c^2 [rho_c^2 + eta beta (H - 1) rho_c] at the largest step size of Theorem 1,
 * eta beta H = 2/5. n models that share a cluster's samples have the same noise in their mean and n
 * times as much in their drift, hence spread. An error of the gradients enters Theorem 1' with
 * 4.5 delta^2; that theorem allows eta beta H = 1/4 and has 3 times the drift, and its own noise
 * terms at one micro-batch are what the error is measured with. The mean square of a micro-batch's
 * gradient is taken as twice its variance: as much signal as noise.
 */
struct cp_weights {
    double data, variance, alpha, noise; /* sums over the clusters */
};

static const double SIGNAL_TO_VARIANCE = 2;

static double cluster_variance(const struct cp_cluster *cl, double unknown)
{
    return cl->grad_variance > 0 ? cl->grad_variance : unknown;
}

static struct cp_weight weigh(const struct cp_world *w, const struct cp_cluster *cl,
                              const struct cp_weights *sum)
{
    double steps = w->local_steps, variance = cluster_variance(cl, sum->variance);
    double rho = sum->data > 0 ? cl->data_size / sum->data : 1.0 / w->n_clusters;
    double drift = 0.4 * (steps - 1) / steps * rho, all = rho * rho + drift;
    struct cp_weight x = {.rho = rho,
                          .alpha = variance * all,
                          .spread = all > 0 ? drift / all : 0,
                          .lossy = 4.5 * SIGNAL_TO_VARIANCE * rho * variance};
    if (sum->alpha > 0) {
        x.alpha /= sum->alpha;
        x.lossy /= sum->noise;
    }
    return x;
}

/* Noise terms of Theorem 1' times M b: 4 eta beta phi + 12 eta^2 beta^2 (H - 1) psi. */
static double lossy_noise(const struct cp_world *w, double rho, double variance)
{
    double eta_beta = 0.25 / w->local_steps;
    return 4 * eta_beta * variance * (rho * rho + 3 * eta_beta * (w->local_steps - 1) * rho);
}

static struct cp_weights sum_weights(const struct cp_world *w)
{
    struct cp_weights sum = {0};
    int known = 0;
    for (int c = 0; c < w->n_clusters; c++) {
        sum.data += w->cluster[c].data_size;
        sum.variance += w->cluster[c].grad_variance;
        known += w->cluster[c].grad_variance > 0;
    }
    sum.variance = known > 0 ? sum.variance / known : 1; /* of those that do not know it */
    struct cp_weights bare = sum;
    for (int c = 0; c < w->n_clusters; c++) {
        struct cp_weight x = weigh(w, &w->cluster[c], &bare);
        sum.alpha += x.alpha;
        sum.noise += lossy_noise(w, x.rho, cluster_variance(&w->cluster[c], sum.variance));
    }
    return sum;
}

void cp_world_weigh(struct cp_world *w)
{
    struct cp_weights sum = sum_weights(w);
    for (int c = 0; c < w->n_clusters; c++) {
        w->cluster[c].weight = weigh(w, &w->cluster[c], &sum);
    }
}

static cp_err check_weights(const struct cp_world *w)
{
    struct cp_weights sum = sum_weights(w);
    for (int c = 0; c < w->n_clusters; c++) {
        struct cp_weight is = w->cluster[c].weight, should = weigh(w, &w->cluster[c], &sum);
        if (is.rho != should.rho || is.alpha != should.alpha || is.lossy != should.lossy) {
            return cp_fail(CP_E_CONFIG,
                           "%s: its weight in the convergence bound is not that of its data: the "
                           "world changed without cp_world_weigh()",
                           w->cluster[c].name);
        }
    }
    return CP_OK;
}

/* What a number must be. */
enum sign { POSITIVE, NOT_NEGATIVE };

static cp_err check_number(double x, enum sign sign, const char *cluster, const char *node,
                           const char *what)
{
    const char *sep = node[0] ? "." : "";
    if (!isfinite(x)) {
        return cp_fail(CP_E_NONFINITE, "%s%s%s: %s is not a finite number: nothing can be planned",
                       cluster, sep, node, what);
    }
    if (x < 0 || (sign == POSITIVE && x <= 0)) {
        return cp_fail(CP_E_CONFIG, "%s%s%s: %s is %g; it must be %s", cluster, sep, node, what, x,
                       sign == POSITIVE ? "above 0" : "0 or more");
    }
    return CP_OK;
}

static cp_err check_node(const struct cp_cluster *cl, int node)
{
    const struct cp_device *d = node == 0 ? &cl->cu : &cl->device[node - 1];
    const struct {
        const char *what;
        double value;
        enum sign sign;
    } number[] = {
        {"the compute rate (FLOP/s)", d->rate_flops, POSITIVE},
        {"the energy per FLOP", d->energy_j_flop, NOT_NEGATIVE},
        {"the energy budget", d->budget_j, NOT_NEGATIVE},
        {"the transmit power to devices", d->power_d2d_w, POSITIVE},
        {"the transmit power to the edge server", d->power_d2e_w, POSITIVE},
        {"the size of the battery", d->battery_j, NOT_NEGATIVE},
        {"the reserve of the battery", d->battery_reserve_j, NOT_NEGATIVE},
        {"the power that charges the battery", d->harvest_w, NOT_NEGATIVE},
        {"the gain to the edge server", cl->gain_d2e[node], POSITIVE},
    };
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        CP_TRY(check_number(number[i].value, number[i].sign, cl->name, d->name, number[i].what));
    }
    if (d->budget_j > 0 && d->budget_j < 1e-9) {
        return cp_fail(CP_E_CONFIG,
                       "%s.%s: an energy budget of %g J is too little to be counted with; 0 is no "
                       "limit",
                       cl->name, d->name, d->budget_j);
    }
    if (d->battery_reserve_j > d->battery_j) {
        return cp_fail(CP_E_CONFIG,
                       "%s.%s: the reserve of %g J is more than its battery holds, %g J: it could "
                       "never take part",
                       cl->name, d->name, d->battery_reserve_j, d->battery_j);
    }
    for (int other = 0; other <= cl->n_devices; other++) {
        if (other == node || (other > 0 && !cl->device[other - 1].present)) {
            continue;
        }
        CP_TRY(check_number(cl->gain_d2d[node][other], POSITIVE, cl->name, d->name,
                            "the gain to another node"));
        if (cl->gain_d2d[node][other] != cl->gain_d2d[other][node]) {
            return cp_fail(CP_E_CONFIG, "%s.%s: the gain to node %d differs from the gain back",
                           cl->name, d->name, other);
        }
    }
    return CP_OK;
}

static cp_err check_common(const struct cp_world *w)
{
    const struct cp_model_cost *m = &w->model;
    const struct {
        const char *what;
        double value;
        enum sign sign;
    } number[] = {
        {"the D2D band", w->radio.band_d2d_hz, POSITIVE},
        {"the uplink band", w->radio.band_up_hz, POSITIVE},
        {"the downlink band", w->radio.band_down_hz, POSITIVE},
        {"the noise density", w->radio.noise_w_hz, POSITIVE},
        {"the power of the base station", w->radio.power_bs_w, POSITIVE},
        {"the compute rate of the edge server", w->server_flops, POSITIVE},
        {"the forward work of the embedding", m->emb.work_fwd_flops, NOT_NEGATIVE},
        {"the backward work of the embedding", m->emb.work_bwd_flops, NOT_NEGATIVE},
        {"the forward work of a layer", m->layer.work_fwd_flops, POSITIVE},
        {"the backward work of a layer", m->layer.work_bwd_flops, POSITIVE},
        {"the forward work of the head", m->head.work_fwd_flops, NOT_NEGATIVE},
        {"the backward work of the head", m->head.work_bwd_flops, NOT_NEGATIVE},
        {"the size of the embedding", m->emb.param_bytes, NOT_NEGATIVE},
        {"the size of a layer", m->layer.param_bytes, POSITIVE},
        {"the size of the head", m->head.param_bytes, NOT_NEGATIVE},
        {"the size of a boundary tensor", m->boundary_bytes, POSITIVE},
        {"the size of the labels", m->label_bytes, NOT_NEGATIVE},
        {"the number of optimizer words", m->optim_words, NOT_NEGATIVE},
        {"the width of a boundary tensor", m->width, POSITIVE},
    };
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        CP_TRY(check_number(number[i].value, number[i].sign, "world", "", number[i].what));
    }
    return CP_OK;
}

int cp_world_micro_max(const struct cp_world *w, int cluster)
{
    int limit = w->cluster[cluster].micro_limit;
    return limit > 0 ? limit : w->micro_max;
}

cp_err cp_world_check(const struct cp_world *w)
{
    if (w->n_clusters < 1 || w->n_clusters > CP_CLUSTERS_MAX || w->model.layers < 1 ||
        w->model.layers > CP_LAYERS_MAX) {
        return cp_fail(CP_E_CONFIG,
                       "the world has %d clusters and a model of %d layers; 1 to %d clusters and 1 "
                       "to %d layers can be planned",
                       w->n_clusters, w->model.layers, CP_CLUSTERS_MAX, CP_LAYERS_MAX);
    }
    if (w->micro_ref < 1 || w->micro_max < w->micro_ref || w->micro_max > CP_MICRO_MAX ||
        w->local_steps < 1) {
        return cp_fail(CP_E_CONFIG,
                       "%d micro-batches of at most %d and %d local steps do not fit together: 1 "
                       "<= micro-batches <= limit <= %d, steps >= 1",
                       w->micro_ref, w->micro_max, w->local_steps, CP_MICRO_MAX);
    }
    CP_TRY(check_common(w));
    for (int c = 0; c < w->n_clusters; c++) {
        const struct cp_cluster *cl = &w->cluster[c];
        if (cl->n_devices < 0 || cl->n_devices > CP_DEVICES_MAX) {
            return cp_fail(CP_E_CONFIG, "%s: a cluster has at most %d devices, not %d", cl->name,
                           CP_DEVICES_MAX, cl->n_devices);
        }
        if (cl->micro_limit < 0 || cl->micro_limit > w->micro_max) {
            return cp_fail(CP_E_CONFIG,
                           "%s: its limit of %d micro-batches is not one: 1 to %d, or 0 for none",
                           cl->name, cl->micro_limit, w->micro_max);
        }
        CP_TRY(check_number(cl->data_size, NOT_NEGATIVE, cl->name, "", "the size of the data"));
        CP_TRY(check_number(cl->arrivals, NOT_NEGATIVE, cl->name, "", "the samples that arrive"));
        CP_TRY(
            check_number(cl->grad_variance, NOT_NEGATIVE, cl->name, "", "the gradient variance"));
        for (int node = 0; node <= cl->n_devices; node++) {
            if (node == 0 || cl->device[node - 1].present) {
                CP_TRY(check_node(cl, node));
            }
        }
    }
    return check_weights(w);
}
