#include "plan/draft.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *cp_bytes_text(size_t bytes, char out[CP_BYTES_TEXT])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB"};
    double x = (double)bytes;
    size_t u = 0;
    while (x >= 1024 && u + 1 < sizeof unit / sizeof unit[0]) {
        x /= 1024;
        u++;
    }
    snprintf(out, CP_BYTES_TEXT, u == 0 ? "%.0f %s" : "%.1f %s", x, unit[u]);
    return out;
}

double cp_fwd_limit_w(const struct cp_cluster_plan *c, const struct cp_cluster *cl, int stage)
{
    const struct cp_device *d = &cl->device[c->device[stage - 1]];
    return stage < c->segments ? d->power_d2d_w : d->power_d2e_w;
}

void cp_room_init(struct cp_room *r, const struct cp_world *w, int cluster)
{
    memset(r, 0, sizeof *r);
    r->model = &w->model;
    r->cl = &w->cluster[cluster];
}

int cp_room_layers(struct cp_room *r, int device, int slots)
{
    int *known = &r->layers[device][slots];
    if (*known == 0) {
        int low = 0, high = r->model->layers; /* low fits (or is 0), above high does not */
        while (low < high) {
            int middle = (low + high + 1) / 2;
            size_t need = r->model->segment_bytes(r->model->segment_arg, middle, slots);
            if (need <= r->cl->device[device].mem_bytes) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        *known = low + 1;
    }
    return *known - 1;
}

cp_err cp_draft_present(const struct cp_cluster *cl, int device[CP_DEVICES_MAX], int *n)
{
    int count = 0, empty = 0;
    for (int k = 0; k < cl->n_devices; k++) {
        if (cl->device[k].present) {
            device[count++] = k;
        } else {
            empty += cl->device[k].absence == CP_ABSENCE_BATTERY;
        }
    }
    if (count == 0) {
        char why[64] = "";
        if (empty > 0) {
            snprintf(why, sizeof why, " (%d under the reserve of the battery)", empty);
        }
        return cp_fail(CP_E_PLAN,
                       "%s: none of its %d devices is present%s: there is nobody to train the "
                       "encoder; wait for one or take the cluster out",
                       cl->name, cl->n_devices, why);
    }
    *n = count;
    return CP_OK;
}

int cp_draft_micro(const struct cp_policy_args *a, int cluster)
{
    int micro = a->micro && !a->choose_micro ? a->micro[cluster] : a->world->micro_ref;
    int most = cp_world_micro_max(a->world, cluster);
    return micro < most ? micro : most;
}

cp_err cp_draft_uniform(const struct cp_world *w, int cluster, struct cp_cluster_plan *c)
{
    int device[CP_DEVICES_MAX], n;
    CP_TRY(cp_draft_present(&w->cluster[cluster], device, &n));
    int layers = w->model.layers;
    *c = (struct cp_cluster_plan){.mode = CP_MODE_PIPELINE, .micro_batches = w->micro_ref};
    c->segments = n < layers ? n : layers;
    for (int s = 0; s < c->segments; s++) {
        c->device[s] = device[s];
        c->layers[s] = layers / c->segments + (s < layers % c->segments);
    }
    return CP_OK;
}

void cp_draft_radio(struct cp_cluster_plan *c, const struct cp_world *w, int cluster)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    double part = cp_plan_overlaps(c) ? 0.5 : 1;
    c->uplink_share = 1.0 / w->n_clusters;
    c->power_up_w = cl->cu.power_d2e_w;
    c->power_fwd_w[0] = cl->cu.power_d2d_w; /* sends one way only */
    for (int s = 0; s < c->segments; s++) {
        c->band_fwd[s] = c->band_bwd[s] = 1.0 / c->segments;
        c->power_fwd_w[s + 1] = part * cp_fwd_limit_w(c, cl, s + 1);
        c->power_bwd_w[s + 1] = part * cl->device[c->device[s]].power_d2d_w;
    }
}

void cp_draft_apart(const struct cp_world *w, int cluster, enum cp_plan_mode mode,
                    const int *device, int n, int layers, struct cp_cluster_plan *c)
{
    *c = (struct cp_cluster_plan){.mode = mode,
                                  .order = CP_ORDER_SEQ,
                                  .segments = n,
                                  .edge_layers = w->model.layers - layers,
                                  .micro_batches = w->micro_ref,
                                  .uplink_share = 1.0 / w->n_clusters};
    for (int s = 0; s < n; s++) {
        c->device[s] = device[s];
        c->layers[s] = layers;
        c->power_fwd_w[s + 1] = w->cluster[cluster].device[device[s]].power_d2e_w;
    }
    cp_plan_set_slots(c);
}

bool cp_draft_fits(const struct cp_cluster_plan *c, struct cp_room *r)
{
    for (int s = 0; s < c->segments; s++) {
        if (c->layers[s] > cp_room_layers(r, c->device[s], c->slots[s + 1])) {
            return false;
        }
    }
    return true;
}

struct cp_order_list cp_draft_orders(const struct cp_policy_args *a)
{
    if (a->choose_order) {
        return (struct cp_order_list){{CP_ORDER_GPIPE, CP_ORDER_1F1B, CP_ORDER_SEQ}, 3, 3};
    }
    if (a->order == CP_ORDER_GPIPE) {
        return (struct cp_order_list){{CP_ORDER_GPIPE, CP_ORDER_1F1B, CP_ORDER_SEQ}, 1, 3};
    }
    if (a->order == CP_ORDER_1F1B) {
        return (struct cp_order_list){{CP_ORDER_1F1B, CP_ORDER_SEQ}, 1, 2};
    }
    return (struct cp_order_list){{CP_ORDER_SEQ}, 1, 1};
}

bool cp_draft_order(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                    struct cp_cluster_plan *c)
{
    struct cp_order_list list = cp_draft_orders(a);
    double best = INFINITY;
    bool found = false;
    for (int i = 0; i < list.all && (i < list.n || !found); i++) {
        struct cp_cluster_plan trial = *c;
        trial.order = list.order[i];
        cp_plan_set_slots(&trial);
        if (!cp_draft_fits(&trial, r)) {
            continue;
        }
        cp_draft_radio(&trial, a->world, cluster);
        struct cp_value v = cp_draft_value(&trial, a->world, a->queues, cluster);
        double value = cp_queues_v(a->queues) * v.time_s + v.cost;
        if (!found || value < best) {
            best = value;
            *c = trial;
        }
        found = true;
    }
    return found;
}

struct cp_value cp_draft_value(const struct cp_cluster_plan *c, const struct cp_world *w,
                               const struct cp_queues *q, int cluster)
{
    struct cp_cluster_forecast f;
    cp_cluster_forecast_make(c, cluster, w, &f);
    struct cp_value v = {.time_s = f.round_s};
    v.cost = q ? q->convergence * cp_cluster_gamma(c, w, cluster) : 0;
    for (int node = 0; node <= w->cluster[cluster].n_devices; node++) {
        double price = cp_queues_price(q, w, cluster, node);
        v.cost += price > 0 ? price * f.energy_j[node] : 0; /* which a dead link makes infinite */
    }
    return v;
}

cp_err cp_draft_no_plan(struct cp_room *r)
{
    const struct cp_cluster *cl = r->cl;
    int present = 0, sum = 0, largest = -1;
    for (int k = 0; k < cl->n_devices; k++) {
        if (!cl->device[k].present) {
            continue;
        }
        present++;
        sum += cp_room_layers(r, k, 1);
        if (largest < 0 || cl->device[k].mem_bytes > cl->device[largest].mem_bytes) {
            largest = k;
        }
    }
    if (sum >= r->model->layers) {
        return cp_fail(CP_E_PLAN,
                       "%s: no placement would ever end: with each a round takes more than a year, "
                       "because links are too weak or devices too slow",
                       cl->name);
    }
    const struct cp_device *d = &cl->device[largest];
    int more = cp_room_layers(r, largest, 1) + 1;
    char needs[CP_BYTES_TEXT], has[CP_BYTES_TEXT];
    cp_bytes_text(r->model->segment_bytes(r->model->segment_arg, more, 1), needs);
    cp_bytes_text(d->mem_bytes, has);
    if (sum == 0) {
        return cp_fail(CP_E_PLAN,
                       "%s: no way to place %d layers on %d devices: one layer needs %s, the "
                       "largest device %s has %s",
                       cl->name, r->model->layers, present, needs, d->name, has);
    }
    return cp_fail(CP_E_PLAN,
                   "%s: no way to place %d layers on %d devices: with one micro-batch in flight "
                   "they hold %d together; %d layers need %s, the largest device %s has %s",
                   cl->name, r->model->layers, present, sum, more, needs, d->name, has);
}

void cp_draft_note(struct cp_decision *d, const char *fmt, ...)
{
    size_t n = strlen(d->binding);
    if (n > 0 && n + 3 < sizeof d->binding) {
        memcpy(d->binding + n, "; ", 3);
        n += 2;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->binding + n, sizeof d->binding - n, fmt, ap);
    va_end(ap);
    d->binding[cp_utf8_cut(d->binding, sizeof d->binding - 1)] = 0; /* it may have been too long */
}

/* This cut does not fit: names the first segment that does not, with one slot. */
static cp_err fail_no_fit(const struct cp_cluster_plan *c, struct cp_room *r)
{
    int s = 0;
    while (s + 1 < c->segments && c->layers[s] <= cp_room_layers(r, c->device[s], 1)) {
        s++;
    }
    const struct cp_device *d = &r->cl->device[c->device[s]];
    char needs[CP_BYTES_TEXT], has[CP_BYTES_TEXT];
    cp_bytes_text(r->model->segment_bytes(r->model->segment_arg, c->layers[s], 1), needs);
    return cp_fail(CP_E_PLAN,
                   "%s: %d layers do not fit into %s: with one micro-batch in flight they need %s, "
                   "it has %s",
                   r->cl->name, c->layers[s], d->name, needs, cp_bytes_text(d->mem_bytes, has));
}

cp_err cp_draft_finish(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                       struct cp_cluster_plan *c, struct cp_decision *d)
{
    if (!cp_draft_order(a, cluster, r, c)) {
        return fail_no_fit(c, r);
    }
    cp_draft_note_order(a, r->cl, c, d);
    return CP_OK;
}

void cp_draft_note_order(const struct cp_policy_args *a, const struct cp_cluster *cl,
                         const struct cp_cluster_plan *c, struct cp_decision *d)
{
    struct cp_order_list list = cp_draft_orders(a);
    for (int i = 0; i < list.n; i++) {
        if (list.order[i] == c->order) {
            return;
        }
    }
    cp_draft_note(d, "memory: %s runs %s, %s does not fit", cl->name, cp_order_name(c->order),
                  cp_order_name(list.order[0]));
}
