/*
 * The policies that DSSDA is compared with (docs/theory.md section 13), and the cut from the
 * configuration. They decide cluster by cluster and share radio and order with draft.c.
 */
#include "plan/draft.h"
#include "plan/policies.h"
#include "plan/split.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Calls one decision per cluster with room for that cluster. */
typedef cp_err decide_cluster_fn(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                                 struct cp_cluster_plan *c, struct cp_decision *d);

static cp_err decide_each(const struct cp_policy_args *a, decide_cluster_fn *decide,
                          struct cp_plan *out, struct cp_decision *d)
{
    struct cp_room *room;
    CP_TRY(cp_mem_new(NULL, sizeof *room, &room));
    cp_err err = CP_OK;
    for (int c = 0; c < a->world->n_clusters && !err; c++) {
        cp_room_init(room, a->world, c);
        err = decide(a, c, room, &out->cluster[c], d);
    }
    cp_mem_free(room);
    return err;
}

/* --- static ---------------------------------------------------------------------------------- */

static cp_err cut_static(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                         struct cp_cluster_plan *c, struct cp_decision *d)
{
    const struct cp_cluster *cl = &a->world->cluster[cluster];
    int layers = a->world->model.layers, sum = 0;
    *c = (struct cp_cluster_plan){.micro_batches = cp_draft_micro(a, cluster)};
    for (int k = 0; k < CP_DEVICES_MAX; k++) {
        int n = a->cuts[cluster][k];
        if (n < 0 || n > layers) {
            return cp_fail(CP_E_CONFIG, "plan.cuts: %s: %d layers on device %d; 0 to %d can be",
                           cl->name, n, k + 1, layers);
        }
        if (n == 0) {
            continue;
        }
        if (k >= cl->n_devices) {
            return cp_fail(CP_E_CONFIG, "plan.cuts: %s: layers for device %d, but it has only %d",
                           cl->name, k + 1, cl->n_devices);
        }
        if (!cl->device[k].present) {
            return cp_fail(CP_E_PLAN,
                           "plan.cuts: %s: %s should hold %d layers but is absent in this round",
                           cl->name, cl->device[k].name, n);
        }
        c->device[c->segments] = k;
        c->layers[c->segments++] = n;
        sum += n;
    }
    if (sum != layers) {
        return cp_fail(CP_E_CONFIG,
                       "plan.cuts: %s: the cuts have %d layers together, the model "
                       "has %d",
                       cl->name, sum, layers);
    }
    return cp_draft_finish(a, cluster, r, c, d);
}

static cp_err decide_static(const struct cp_policy_args *a, struct cp_plan *out,
                            struct cp_decision *d)
{
    if (!a->cuts || a->n_cuts != a->world->n_clusters) {
        return cp_fail(CP_E_CONFIG,
                       "plan.cuts has %d clusters, the world has %d; the policy static needs one "
                       "list of layers per cluster",
                       a->cuts ? a->n_cuts : 0, a->world->n_clusters);
    }
    return decide_each(a, cut_static, out, d);
}

const struct cp_policy CP_POLICY_STATIC = {
    .name = "static",
    .help = "the cuts of plan.cuts, equal shares, greatest powers",
    .decide = decide_static,
};

/* --- gpipe-uniform --------------------------------------------------------------------------- */

static cp_err cut_uniform(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                          struct cp_cluster_plan *c, struct cp_decision *d)
{
    CP_TRY(cp_draft_uniform(a->world, cluster, c));
    c->micro_batches = cp_draft_micro(a, cluster);
    return cp_draft_finish(a, cluster, r, c, d);
}

static cp_err decide_uniform(const struct cp_policy_args *a, struct cp_plan *out,
                             struct cp_decision *d)
{
    struct cp_policy_args gpipe = *a;
    gpipe.order = CP_ORDER_GPIPE;
    gpipe.choose_order = false;
    return decide_each(&gpipe, cut_uniform, out, d);
}

const struct cp_policy CP_POLICY_GPIPE_UNIFORM = {
    .name = "gpipe-uniform",
    .help = "equal segments on all devices in index order, equal shares, gpipe",
    .decide = decide_uniform,
};

/* --- greedy ---------------------------------------------------------------------------------- */

/* The fastest min(K, L) devices that can hold a layer at all; returns how many. */
static int pick_fastest(const struct cp_cluster *cl, struct cp_room *r, int layers, int *device)
{
    int n = 0;
    for (int k = 0; k < cl->n_devices; k++) {
        if (!cl->device[k].present || cp_room_layers(r, k, 1) == 0) {
            continue;
        }
        int at = n++;
        for (; at > 0 && cl->device[device[at - 1]].rate_flops < cl->device[k].rate_flops; at--) {
            device[at] = device[at - 1];
        }
        device[at] = k;
    }
    return n < layers ? n : layers;
}

/* Orders the devices as a walk from the CU to the nearest one that is left (the best gain). */
static void walk_nearest(const struct cp_cluster *cl, int *device, int n)
{
    int at = 0; /* node: the CU */
    for (int s = 0; s < n; s++) {
        int best = s;
        for (int i = s + 1; i < n; i++) {
            if (cl->gain_d2d[at][device[i] + 1] > cl->gain_d2d[at][device[best] + 1]) {
                best = i;
            }
        }
        int next = device[best];
        device[best] = device[s];
        device[s] = next;
        at = next + 1;
    }
}

/* Layers in proportion to the rate, within memory at the plan's slots: one to each, then one by one
 * to the device that will be done first. False if they do not fit. */
static bool share_layers(const struct cp_cluster *cl, struct cp_room *r, int layers,
                         struct cp_cluster_plan *c)
{
    for (int s = 0; s < c->segments; s++) {
        c->layers[s] = 1;
    }
    for (int placed = c->segments; placed < layers; placed++) {
        int best = -1;
        double best_time = INFINITY;
        for (int s = 0; s < c->segments; s++) {
            double time = (c->layers[s] + 1) / cl->device[c->device[s]].rate_flops;
            if (c->layers[s] < cp_room_layers(r, c->device[s], c->slots[s + 1]) &&
                time < best_time) {
                best = s;
                best_time = time;
            }
        }
        if (best < 0) {
            return false;
        }
        c->layers[best]++;
    }
    return true;
}

/* The greedy cut for one order; devices that hold no layer at its slots are left out. */
static bool cut_for_order(const struct cp_world *w, int cluster, struct cp_room *r, int micro,
                          enum cp_order order, struct cp_cluster_plan *c)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    int device[CP_DEVICES_MAX];
    int n = pick_fastest(cl, r, w->model.layers, device);
    while (n > 0) {
        *c = (struct cp_cluster_plan){.order = order, .segments = n, .micro_batches = micro};
        for (int s = 0; s < n; s++) {
            c->device[s] = device[s];
        }
        walk_nearest(cl, c->device, n);
        cp_plan_set_slots(c);
        int full = -1;
        for (int s = 0; s < n; s++) {
            if (cp_room_layers(r, c->device[s], c->slots[s + 1]) == 0) {
                full = c->device[s];
            }
        }
        if (full < 0) {
            return share_layers(cl, r, w->model.layers, c);
        }
        int kept = 0;
        for (int i = 0; i < n; i++) {
            device[kept] = device[i];
            kept += device[i] != full;
        }
        n = kept;
    }
    return false;
}

static cp_err cut_greedy(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                         struct cp_cluster_plan *c, struct cp_decision *d)
{
    const struct cp_world *w = a->world;
    int device[CP_DEVICES_MAX], n;
    CP_TRY(cp_draft_present(&w->cluster[cluster], device, &n));
    struct cp_order_list list = cp_draft_orders(a);
    double best = INFINITY;
    bool found = false;
    for (int i = 0; i < list.all && (i < list.n || !found); i++) {
        struct cp_cluster_plan trial;
        if (!cut_for_order(w, cluster, r, cp_draft_micro(a, cluster), list.order[i], &trial)) {
            continue;
        }
        cp_draft_radio(&trial, w, cluster);
        struct cp_value v = cp_draft_value(&trial, w, a->queues, cluster);
        double value = cp_queues_v(a->queues) * v.time_s + v.cost;
        if (!found || value < best) {
            best = value;
            *c = trial;
        }
        found = true;
    }
    if (!found) {
        return cp_draft_no_plan(r);
    }
    cp_draft_note_order(a, r->cl, c, d);
    return CP_OK;
}

static cp_err decide_greedy(const struct cp_policy_args *a, struct cp_plan *out,
                            struct cp_decision *d)
{
    return decide_each(a, cut_greedy, out, d);
}

const struct cp_policy CP_POLICY_GREEDY = {
    .name = "greedy",
    .help = "layers in proportion to speed within memory, nearest neighbour next",
    .decide = decide_greedy,
};

/* --- random ---------------------------------------------------------------------------------- */

static void draw_cut(struct cp_rng *rng, const struct cp_policy_args *a, int cluster, int *device,
                     int n, struct cp_cluster_plan *c)
{
    int layers = a->world->model.layers, most = n < layers ? n : layers;
    *c = (struct cp_cluster_plan){.micro_batches = cp_draft_micro(a, cluster)};
    c->segments = 1 + (int)cp_rng_below(rng, (uint32_t)most);
    if (a->choose_micro) {
        c->micro_batches =
            1 + (int)cp_rng_below(rng, (uint32_t)cp_world_micro_max(a->world, cluster));
    }
    cp_rng_shuffle(rng, device, (size_t)n);
    for (int s = 0; s < c->segments; s++) {
        c->device[s] = device[s];
        c->layers[s] = 1;
    }
    for (int placed = c->segments; placed < layers; placed++) {
        c->layers[cp_rng_below(rng, (uint32_t)c->segments)]++;
    }
}

static cp_err cut_random(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                         struct cp_cluster_plan *c, struct cp_decision *d)
{
    enum { TRIES = 64 };
    struct cp_rng rng;
    int device[CP_DEVICES_MAX], n;
    CP_TRY(cp_draft_present(&a->world->cluster[cluster], device, &n));
    cp_rng_init(&rng, a->seed, CP_RNG_POLICY, (uint32_t)a->world->round, (uint32_t)cluster);
    for (int i = 0; i < TRIES; i++) {
        draw_cut(&rng, a, cluster, device, n, c);
        if (cp_draft_order(a, cluster, r, c)) {
            cp_draft_note_order(a, r->cl, c, d);
            return CP_OK;
        }
    }
    cp_draft_note(d, "memory: %s has room for few cuts, the greedy one is taken", r->cl->name);
    return cut_greedy(a, cluster, r, c, d);
}

static cp_err decide_random(const struct cp_policy_args *a, struct cp_plan *out,
                            struct cp_decision *d)
{
    return decide_each(a, cut_random, out, d);
}

const struct cp_policy CP_POLICY_RANDOM = {
    .name = "random",
    .help = "a random cut that fits into memory, from the seed",
    .decide = decide_random,
};

/* --- pipeedge -------------------------------------------------------------------------------- */

/* So small that other times only break ties between cuts of the same bottlenecks. */
static const double TIE_WEIGHT = 1e-6;

/* The min-max cut of one order on mean channels; false where memory allows none. */
static cp_err cut_min_max(const struct cp_world *w, int cluster, struct cp_room *r, int micro,
                          enum cp_order order, int most, struct cp_split_work *work,
                          struct cp_cluster_plan *c, bool *found)
{
    double best = INFINITY;
    *found = false;
    for (int segments = 1; segments <= most; segments++) {
        struct cp_split split;
        struct cp_split_result result;
        cp_split_init(&split, w, cluster, r, NULL, segments, micro, order);
        split.sum_weight = TIE_WEIGHT;
        split.bound = best;
        CP_TRY(cp_split_solve(&split, work, &result));
        if (result.found && result.value < best) {
            best = result.value;
            *c = result.plan;
            *found = true;
        }
    }
    return CP_OK;
}

/* One micro-batch has no bottleneck that counts: the cut is made for two at least. */
static cp_err cut_pipeedge(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                           struct cp_cluster_plan *c, struct cp_decision *d)
{
    const struct cp_world *w = a->world;
    struct cp_split_work work = {0};
    struct cp_order_list list = cp_draft_orders(a);
    int device[CP_DEVICES_MAX], n, micro = cp_draft_micro(a, cluster);
    bool found = false;
    cp_err err = cp_draft_present(&w->cluster[cluster], device, &n);
    int most = n < w->model.layers ? n : w->model.layers;
    for (int i = 0; i < list.all && !found && !err; i++) {
        err = cut_min_max(a->mean, cluster, r, micro > 2 ? micro : 2, list.order[i], most, &work, c,
                          &found);
    }
    cp_split_work_fini(&work);
    CP_TRY(err);
    if (!found) {
        return cp_draft_no_plan(r);
    }
    c->micro_batches = micro;
    return cp_draft_finish(a, cluster, r, c, d);
}

/* The channels are the mean ones; who is present is a matter of this round. */
static cp_err decide_pipeedge(const struct cp_policy_args *a, struct cp_plan *out,
                              struct cp_decision *d)
{
    struct cp_world mean = {0};
    struct cp_policy_args args = *a;
    CP_TRY(cp_world_copy(&mean, a->mean ? a->mean : a->world));
    for (int c = 0; c < mean.n_clusters; c++) {
        for (int k = 0; k < mean.cluster[c].n_devices; k++) {
            mean.cluster[c].device[k].present = a->world->cluster[c].device[k].present;
        }
    }
    args.mean = &mean;
    cp_err err = decide_each(&args, cut_pipeedge, out, d);
    cp_world_fini(&mean);
    return err;
}

const struct cp_policy CP_POLICY_PIPEEDGE = {
    .name = "pipeedge",
    .help = "the cut of the shortest bottleneck on mean channels, equal shares",
    .decide = decide_pipeedge,
};

/* --- whole models ---------------------------------------------------------------------------- */

static cp_err fail_whole(const struct cp_world *w, const char *cluster, const struct cp_device *d)
{
    char needs[CP_BYTES_TEXT], has[CP_BYTES_TEXT];
    return cp_fail(CP_E_PLAN, "%s: %s cannot train the whole model: it needs %s, the device has %s",
                   cluster, d->name, cp_bytes_text(w->model.full_bytes_micro, needs),
                   cp_bytes_text(d->mem_bytes, has));
}

static cp_err use_all(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                      struct cp_cluster_plan *c, struct cp_decision *d)
{
    const struct cp_world *w = a->world;
    const struct cp_cluster *cl = &w->cluster[cluster];
    int device[CP_DEVICES_MAX], n;
    (void)r, (void)d;
    CP_TRY(cp_draft_present(cl, device, &n));
    for (int i = 0; i < n; i++) {
        if (w->model.full_bytes_micro > cl->device[device[i]].mem_bytes) {
            return fail_whole(w, cl->name, &cl->device[device[i]]);
        }
    }
    cp_draft_apart(w, cluster, CP_MODE_FULL, device, n, w->model.layers, c);
    c->micro_batches = cp_draft_micro(a, cluster);
    return CP_OK;
}

static cp_err decide_fedavg(const struct cp_policy_args *a, struct cp_plan *out,
                            struct cp_decision *d)
{
    return decide_each(a, use_all, out, d);
}

const struct cp_policy CP_POLICY_FEDAVG = {
    .name = "fedavg",
    .help = "every device trains the whole model on its share of the samples",
    .beyond = {.apart = true},
    .decide = decide_fedavg,
};

static cp_err use_fastest(const struct cp_policy_args *a, int cluster, struct cp_room *r,
                          struct cp_cluster_plan *c, struct cp_decision *d)
{
    const struct cp_world *w = a->world;
    const struct cp_cluster *cl = &w->cluster[cluster];
    int device[CP_DEVICES_MAX], n, best = -1, largest = 0;
    (void)r, (void)d;
    CP_TRY(cp_draft_present(cl, device, &n));
    for (int i = 0; i < n; i++) {
        const struct cp_device *x = &cl->device[device[i]];
        if (x->mem_bytes > cl->device[device[largest]].mem_bytes) {
            largest = i;
        }
        if (x->mem_bytes >= w->model.full_bytes_micro &&
            (best < 0 || x->rate_flops > cl->device[device[best]].rate_flops)) {
            best = i;
        }
    }
    if (best < 0) {
        return fail_whole(w, cl->name, &cl->device[device[largest]]);
    }
    cp_draft_apart(w, cluster, CP_MODE_FULL, &device[best], 1, w->model.layers, c);
    c->micro_batches = cp_draft_micro(a, cluster);
    return CP_OK;
}

static cp_err decide_best_single(const struct cp_policy_args *a, struct cp_plan *out,
                                 struct cp_decision *d)
{
    return decide_each(a, use_fastest, out, d);
}

const struct cp_policy CP_POLICY_BEST_SINGLE = {
    .name = "best-single",
    .help = "the fastest device that can hold the whole model trains it alone",
    .beyond = {.apart = true},
    .decide = decide_best_single,
};

/* --- splitfed -------------------------------------------------------------------------------- */

/* Every present device with the embedding and the first layers; E_PLAN names one that cannot. */
static cp_err split_all(const struct cp_policy_args *a, int layers, struct cp_plan *p)
{
    const struct cp_world *w = a->world;
    for (int c = 0; c < w->n_clusters; c++) {
        const struct cp_cluster *cl = &w->cluster[c];
        int device[CP_DEVICES_MAX], n;
        CP_TRY(cp_draft_present(cl, device, &n));
        cp_draft_apart(w, c, CP_MODE_SPLIT, device, n, layers, &p->cluster[c]);
        p->cluster[c].micro_batches = cp_draft_micro(a, c);
        for (int s = 0; s < n; s++) {
            const struct cp_device *d = &cl->device[device[s]];
            size_t need = cp_plan_mem_bytes(&p->cluster[c], s, &w->model);
            if (need > d->mem_bytes) {
                char needs[CP_BYTES_TEXT], has[CP_BYTES_TEXT];
                return cp_fail(CP_E_PLAN,
                               "%s: %s cannot hold the embedding and %d layer%s: they need %s, the "
                               "device has %s",
                               cl->name, d->name, layers, layers == 1 ? "" : "s",
                               cp_bytes_text(need, needs), cp_bytes_text(d->mem_bytes, has));
            }
        }
    }
    return CP_OK;
}

/* The best number of layers that all devices of all clusters can hold. */
static cp_err decide_splitfed(const struct cp_policy_args *a, struct cp_plan *out,
                              struct cp_decision *d)
{
    struct cp_plan trial = {0};
    double best = INFINITY;
    cp_err err = cp_plan_copy(&trial, out);
    for (int layers = 1; layers <= a->world->model.layers && !err; layers++) {
        err = split_all(a, layers, &trial);
        double value = err ? INFINITY : cp_plan_objective(&trial, a->world, a->queues);
        if (!err && (layers == 1 || value < best)) { /* all may be infinite, with a dead link */
            best = value;
            memcpy(out->cluster, trial.cluster, (size_t)out->n_clusters * sizeof *out->cluster);
        }
        if (err == CP_E_PLAN && layers > 1) { /* memory ends here */
            err = CP_OK;
            cp_draft_note(d, "memory: no more than %d layers fit on every device", layers - 1);
            break;
        }
    }
    cp_plan_fini(&trial);
    return err;
}

const struct cp_policy CP_POLICY_SPLITFED = {
    .name = "splitfed",
    .help = "the embedding and the first layers on every device, the rest on the edge server",
    .beyond = {.apart = true},
    .decide = decide_splitfed,
};
