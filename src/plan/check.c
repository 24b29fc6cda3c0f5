/*
 * The proof that a plan may be carried out in a world: constraints C3 to C9 of docs/theory.md
 * section 9, in that order, first what is needed to make sense of the rest. Every policy's result
 * passes through here, and every plan that comes from a file or from the network.
 */
#include "plan/draft.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>

static const double SLACK = 1e-9;     /* of sums of shares, and of powers against their limits */
static const double POWER_LOW = 1e-3; /* p_min / p^max */

static cp_err check_devices(const struct cp_cluster_plan *c, const struct cp_cluster *cl)
{
    if (c->segments < 1 || c->segments > cl->n_devices) {
        return cp_fail(CP_E_PLAN, "%s: %d segments on %d devices; 1 to %d can be used", cl->name,
                       c->segments, cl->n_devices, cl->n_devices);
    }
    unsigned used = 0;
    for (int s = 0; s < c->segments; s++) {
        int k = c->device[s];
        if (k < 0 || k >= cl->n_devices) {
            return cp_fail(CP_E_PLAN, "%s: segment %d is on device %d of %d", cl->name, s + 1,
                           k + 1, cl->n_devices);
        }
        if (!cl->device[k].present) {
            return cp_fail(CP_E_PLAN, "%s: segment %d is on %s, which is absent in this round",
                           cl->name, s + 1, cl->device[k].name);
        }
        if (used & 1u << k) {
            return cp_fail(CP_E_PLAN, "%s: %s is used twice; a device runs one segment", cl->name,
                           cl->device[k].name);
        }
        used |= 1u << k;
    }
    return CP_OK;
}

static cp_err check_layers(const struct cp_cluster_plan *c, const struct cp_cluster *cl, int layers)
{
    int sum = 0;
    for (int s = 0; s < c->segments; s++) {
        int n = c->layers[s];
        const char *name = cl->device[c->device[s]].name;
        if (n < 1 || n > layers) {
            return cp_fail(CP_E_PLAN, "%s: %s has %d layers; a segment has 1 to %d", cl->name, name,
                           n, layers);
        }
        if (c->mode == CP_MODE_FULL && n != layers) {
            return cp_fail(CP_E_PLAN, "%s: %s trains the whole model but has %d of %d layers",
                           cl->name, name, n, layers);
        }
        if (c->mode == CP_MODE_SPLIT && n != c->layers[0]) {
            return cp_fail(CP_E_PLAN, "%s: %s has %d layers and %s %d; in split all hold the same",
                           cl->name, name, n, cl->device[c->device[0]].name, c->layers[0]);
        }
        sum = c->mode == CP_MODE_PIPELINE ? sum + n : n;
    }
    if (c->edge_layers < 0 || c->edge_layers > layers) {
        return cp_fail(CP_E_PLAN, "%s: the edge server has %d layers; 0 to %d can be", cl->name,
                       c->edge_layers, layers);
    }
    if (sum + c->edge_layers != layers) {
        return cp_fail(CP_E_PLAN,
                       "%s: the segments and the edge server have %d layers together, the model "
                       "has %d",
                       cl->name, sum + c->edge_layers, layers);
    }
    return CP_OK;
}

static cp_err check_formats(const struct cp_cluster_plan *c, const struct cp_cluster *cl)
{
    for (int j = 0; j <= c->segments; j++) {
        unsigned most = c->mode == CP_MODE_PIPELINE ? CP_FORMAT_INT8 : CP_FORMAT_FP32;
        if ((unsigned)c->link_format[j] > most) {
            return cp_fail(CP_E_PLAN, "%s: link %d has the format %s, which mode %s cannot have",
                           cl->name, j, cp_format_name(c->link_format[j]),
                           cp_plan_mode_name(c->mode));
        }
    }
    if ((unsigned)c->upload_format > CP_FORMAT_INT8) {
        return cp_fail(CP_E_PLAN, "%s: the format %d of the upload is unknown", cl->name,
                       (int)c->upload_format);
    }
    return CP_OK;
}

static cp_err check_slots(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                          const struct cp_world *w)
{
    int m = c->micro_batches;
    if (m < 1 || m > w->micro_max) {
        return cp_fail(CP_E_PLAN, "%s: %d micro-batches; 1 to %d are allowed", cl->name, m,
                       w->micro_max);
    }
    if (cl->micro_limit > 0 && m > cl->micro_limit) {
        return cp_fail(CP_E_PLAN,
                       "%s: %d micro-batches a step, but the samples that wait are enough for %d",
                       cl->name, m, cl->micro_limit);
    }
    for (int j = 0; j < c->segments + 2; j++) {
        int slots = c->slots[j];
        if (slots < 1 || slots > m) {
            return cp_fail(CP_E_PLAN, "%s: stage %d has %d slots for %d micro-batches", cl->name, j,
                           slots, m);
        }
        if (j > 0 && slots > c->slots[j - 1]) {
            return cp_fail(CP_E_PLAN,
                           "%s: stage %d has %d slots and the stage before it %d: they would wait "
                           "for each other for ever",
                           cl->name, j, slots, c->slots[j - 1]);
        }
        bool fits = c->order == CP_ORDER_1F1B || c->mode != CP_MODE_PIPELINE ||
                    slots == cp_order_slots(c->order, c->segments, m, j);
        if (!fits) {
            return cp_fail(CP_E_PLAN,
                           "%s: stage %d has %d slots, which is not the order %s with "
                           "%d micro-batches",
                           cl->name, j, slots, cp_order_name(c->order), m);
        }
    }
    return CP_OK;
}

static cp_err check_memory(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                           const struct cp_model_cost *model)
{
    for (int s = 0; s < c->segments; s++) {
        const struct cp_device *d = &cl->device[c->device[s]];
        size_t need = cp_plan_mem_bytes(c, s, model);
        if (need <= d->mem_bytes) {
            continue;
        }
        char needs[CP_BYTES_TEXT], has[CP_BYTES_TEXT], what[64];
        if (c->mode == CP_MODE_FULL) {
            snprintf(what, sizeof what, "the whole model needs");
        } else if (c->mode == CP_MODE_SPLIT) {
            snprintf(what, sizeof what, "the embedding and %d layers need", c->layers[s]);
        } else {
            snprintf(what, sizeof what, "%d layers with %d micro-batches in flight need",
                     c->layers[s], c->slots[s + 1]);
        }
        return cp_fail(CP_E_PLAN, "%s: %s has not enough memory: %s %s, it has %s", cl->name,
                       d->name, what, cp_bytes_text(need, needs), cp_bytes_text(d->mem_bytes, has));
    }
    return CP_OK;
}

/* One share vector of the D2D band. */
static cp_err check_band(const double *share, int n, const struct cp_cluster *cl, const char *phase)
{
    double sum = 0;
    for (int j = 0; j < n; j++) {
        if (!(share[j] > 0 && share[j] <= 1 + SLACK)) {
            return cp_fail(CP_E_PLAN,
                           "%s: D2D link %d has the %s band share %g; it must be in 0..1", cl->name,
                           j, phase, share[j]);
        }
        sum += share[j];
    }
    if (sum > 1 + SLACK) {
        return cp_fail(CP_E_PLAN, "%s: the %s band shares add up to %.9g, more than 1", cl->name,
                       phase, sum);
    }
    return CP_OK;
}

static cp_err check_power(double power_w, double limit_w, const struct cp_cluster *cl,
                          const char *node, const char *what)
{
    if (!(power_w >= POWER_LOW * limit_w * (1 - SLACK) && power_w <= limit_w * (1 + SLACK))) {
        return cp_fail(CP_E_PLAN, "%s: %s sends %s with %g W; %g to %g W are allowed", cl->name,
                       node, what, power_w, POWER_LOW * limit_w, limit_w);
    }
    return CP_OK;
}

static cp_err check_pipeline_powers(const struct cp_cluster_plan *c, const struct cp_cluster *cl)
{
    bool overlaps = cp_plan_overlaps(c);
    CP_TRY(check_power(c->power_fwd_w[0], cl->cu.power_d2d_w, cl, cl->cu.name, "activations"));
    CP_TRY(check_power(c->power_up_w, cl->cu.power_d2e_w, cl, cl->cu.name, "the model"));
    for (int j = 1; j <= c->segments; j++) {
        const struct cp_device *d = &cl->device[c->device[j - 1]];
        double fwd = c->power_fwd_w[j], fwd_max = cp_fwd_limit_w(c, cl, j);
        double bwd = c->power_bwd_w[j], bwd_max = d->power_d2d_w;
        CP_TRY(check_power(fwd, fwd_max, cl, d->name, "activations"));
        CP_TRY(check_power(bwd, bwd_max, cl, d->name, "gradients"));
        if (overlaps && fwd / fwd_max + bwd / bwd_max > 1 + SLACK) {
            return cp_fail(CP_E_PLAN,
                           "%s: %s sends both ways at once with %g and %g W: %.6g of its power, "
                           "more than 1",
                           cl->name, d->name, fwd, bwd, fwd / fwd_max + bwd / bwd_max);
        }
    }
    return CP_OK;
}

static cp_err check_cluster(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                            const struct cp_world *w)
{
    if ((unsigned)c->mode > CP_MODE_SPLIT || (unsigned)c->order > CP_ORDER_1F1B) {
        return cp_fail(CP_E_PLAN, "%s: mode %d and order %d: unknown", cl->name, (int)c->mode,
                       (int)c->order);
    }
    CP_TRY(check_devices(c, cl));
    CP_TRY(check_layers(c, cl, w->model.layers));
    CP_TRY(check_slots(c, cl, w));
    CP_TRY(check_memory(c, cl, &w->model));
    CP_TRY(check_formats(c, cl));
    if (!(c->uplink_share > 0)) {
        return cp_fail(CP_E_PLAN, "%s: the uplink share is %g; it must be above 0", cl->name,
                       c->uplink_share);
    }
    if (c->mode != CP_MODE_PIPELINE) {
        for (int s = 0; s < c->segments; s++) {
            const struct cp_device *d = &cl->device[c->device[s]];
            CP_TRY(check_power(c->power_fwd_w[s + 1], d->power_d2e_w, cl, d->name, "the model"));
        }
        return CP_OK;
    }
    CP_TRY(check_band(c->band_fwd, c->segments, cl, "forward"));
    CP_TRY(check_band(c->band_bwd, c->segments, cl, "backward"));
    return check_pipeline_powers(c, cl);
}

cp_err cp_plan_check(const struct cp_plan *p, const struct cp_world *w)
{
    if (p->n_clusters != w->n_clusters) {
        return cp_fail(CP_E_PLAN, "the plan has %d clusters, the world has %d", p->n_clusters,
                       w->n_clusters);
    }
    double sum = 0;
    for (int c = 0; c < p->n_clusters; c++) {
        CP_TRY(check_cluster(&p->cluster[c], &w->cluster[c], w));
        sum += p->cluster[c].uplink_share;
    }
    if (sum > 1 + SLACK) {
        return cp_fail(CP_E_PLAN, "the uplink shares of the clusters add up to %.9g, more than 1",
                       sum);
    }
    return CP_OK;
}
