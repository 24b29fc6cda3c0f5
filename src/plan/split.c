/*
 * A label is a way to place the first i layers on a set U of devices, the last of them k: the cost
 * so far and the longest forward and backward time so far. Two labels of one state (i, U, k) are
 * extended by the same choices at the same cost, and the final value rises with each of the three
 * numbers, so a label that is not smaller in any of them can go (Proposition 2). What remains is
 * exact; it is small because few pairs of bottlenecks are worth having.
 *
 * Two more prunings are exact too. A label cannot win if a lower bound of what it leads to is above
 * a placement that is known: for the layers that are left the bound takes the cheapest unused
 * device, the cheapest link of every position, and the bottleneck of unused devices that share the
 * layers in fractions. The known placement comes from a first pass that keeps only a few labels.
 * And a label whose unused devices cannot hold the rest cannot be completed; this keeps narrow
 * passes, and the beam of large clusters, from losing the last placement that fits.
 */
#include "plan/split.h"

#include "base/mem.h"
#include "world/radio.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1 << 11, FIRST_PASS = 16 };

static const double ROUNDING = 1e-12; /* far above what sums of some dozen terms lose */

struct cp_split_label {
    double cost, max_fwd_s, max_bwd_s;
    double bound; /* of what it leads to */
    uint32_t set;
    int32_t parent, next; /* label before; next in the bucket */
    int16_t layers;       /* placed so far */
    int8_t last;          /* device */
    bool dead;            /* dominated later, or out of the beam */
};

/* All constants of one search, so that extending a label is a few additions. */
struct tables {
    const struct cp_split *s;
    int n, device[CP_DEVICES_MAX]; /* present */
    double bottleneck;             /* cost of one second of m^F or m^B */
    double layer_fwd_s[CP_DEVICES_MAX], layer_bwd_s[CP_DEVICES_MAX];
    double layer_cost[CP_DEVICES_MAX];    /* compute, scatter and gather: linear in the layers */
    double link_rest[CP_DEVICES_MAX + 1]; /* least cost of the links from position j on */
    int room[CP_DEVICES_MAX][CP_DEVICES_MAX]; /* [segment][device] layers that fit */
    /* Link s: from the CU (u = 0) or device u - 1 to device k. */
    double fwd_s[CP_DEVICES_MAX][CP_DEVICES_MAX + 1][CP_DEVICES_MAX];
    double bwd_s[CP_DEVICES_MAX][CP_DEVICES_MAX + 1][CP_DEVICES_MAX];
    double link_cost[CP_DEVICES_MAX][CP_DEVICES_MAX + 1][CP_DEVICES_MAX];
    double edge_fwd_s[CP_DEVICES_MAX], edge_bwd_s[CP_DEVICES_MAX], edge_cost[CP_DEVICES_MAX];
};

struct search {
    const struct tables *t;
    struct cp_split_work *work;
    int32_t bucket[BUCKETS];
    int beam;       /* labels kept per segment; 0: all */
    double best;    /* value of a placement that is known */
    int best_label; /* the complete placement; -1: none */
};

void cp_split_init(struct cp_split *s, const struct cp_world *w, int cluster, struct cp_room *room,
                   const struct cp_queues *q, int segments, int micro_batches, enum cp_order order)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    *s = (struct cp_split){.world = w,
                           .cluster = cluster,
                           .room = room,
                           .segments = segments,
                           .micro_batches = micro_batches,
                           .order = order,
                           .v = cp_queues_v(q),
                           .sum_weight = 1,
                           .micro_price = cp_queues_micro_price(q, w, cluster),
                           .bound = INFINITY,
                           .uplink_share = 1.0 / w->n_clusters,
                           .power_up_w = cl->cu.power_d2e_w};
    for (int j = 0; j < segments + 2; j++) {
        s->slots[j] = cp_order_slots(order, segments, micro_batches, j);
    }
    bool overlaps = s->slots[segments + 1] < micro_batches;
    for (int node = 0; node <= cl->n_devices; node++) {
        const struct cp_device *d = node == 0 ? &cl->cu : &cl->device[node - 1];
        double part = overlaps && node > 0 ? 0.5 : 1;
        s->price[node] = cp_queues_price(q, w, cluster, node);
        s->power_fwd_w[node] = part * d->power_d2d_w;
        s->power_edge_w[node] = part * d->power_d2e_w;
        s->power_bwd_w[node] = part * d->power_d2d_w;
    }
    for (int j = 0; j < segments; j++) {
        s->band_fwd[j] = s->band_bwd[j] = 1.0 / segments;
    }
}

void cp_split_work_fini(struct cp_split_work *work)
{
    cp_mem_free(work->label);
    *work = (struct cp_split_work){0};
}

/* Slots do not rise along the pipeline. */
static bool overlaps(const struct cp_split *s)
{
    return s->slots[s->segments + 1] < s->micro_batches;
}

/* One micro-batch after another (seq): no bottleneck, all of Sigma M times. */
static bool one_by_one(const struct cp_split *s)
{
    return s->slots[0] == 1;
}

/* The cost of a second that every micro-batch spends in the pipeline alone (Sigma). */
static double latency_weight(const struct cp_split *s)
{
    return s->sum_weight * (one_by_one(s) ? s->v * s->micro_batches : s->v);
}

/* L of section 11.2: what is to be placed. */
static int layers_of(const struct cp_split *s)
{
    return s->world->model.layers - s->edge_layers;
}

static void fill_devices(struct tables *t)
{
    const struct cp_split *s = t->s;
    const struct cp_world *w = s->world;
    const struct cp_cluster *cl = &w->cluster[s->cluster];
    const struct cp_part_cost *layer = &w->model.layer;
    double steps = w->local_steps, bits = cp_layers_bits(w, 1);
    for (int i = 0; i < t->n; i++) {
        int k = t->device[i];
        const struct cp_device *d = &cl->device[k];
        double gain = cl->gain_d2d[0][k + 1], band = w->radio.band_d2d_hz;
        double out_s = bits / cp_rate_bps(1, band, cl->cu.power_d2d_w, gain, w->radio.noise_w_hz);
        double in_s = bits / cp_rate_bps(1, band, d->power_d2d_w, gain, w->radio.noise_w_hz);
        t->layer_fwd_s[k] = layer->work_fwd_flops / d->rate_flops;
        t->layer_bwd_s[k] = layer->work_bwd_flops / d->rate_flops;
        double joule = d->energy_j_flop * (layer->work_fwd_flops + layer->work_bwd_flops);
        t->layer_cost[k] = steps * (latency_weight(s) * (t->layer_fwd_s[k] + t->layer_bwd_s[k]) +
                                    s->micro_batches * s->price[k + 1] * joule) +
                           s->sum_weight * s->v * (out_s + in_s) +
                           s->price[k + 1] * d->power_d2d_w * in_s +
                           s->price[0] * cl->cu.power_d2d_w * out_s;
        for (int j = 0; j < s->segments; j++) {
            t->room[j][k] = cp_room_layers(s->room, k, s->slots[j + 1]);
        }
    }
}

static void fill_links(struct tables *t, double band_hz)
{
    const struct cp_split *s = t->s;
    const struct cp_world *w = s->world;
    const struct cp_cluster *cl = &w->cluster[s->cluster];
    double n0 = w->radio.noise_w_hz, steps = w->local_steps, m = s->micro_batches;
    for (int i = 0; i < t->n; i++) {
        int k = t->device[i];
        double fwd_bits, bwd_bits;
        for (int j = 0; j < s->segments; j++) {
            fwd_bits = cp_link_fwd_bits(w, s->link_format[j]);
            bwd_bits = cp_link_bwd_bits(w, s->link_format[j]);
            for (int from = -1; from < t->n; from++) {
                int u = from < 0 ? 0 : t->device[from] + 1;
                if (u == k + 1 || (u == 0) != (j == 0)) {
                    continue;
                }
                double g = cl->gain_d2d[u][k + 1];
                double f =
                    fwd_bits / cp_rate_bps(s->band_fwd[j], band_hz, s->power_fwd_w[u], g, n0);
                double b =
                    bwd_bits / cp_rate_bps(s->band_bwd[j], band_hz, s->power_bwd_w[k + 1], g, n0);
                t->fwd_s[j][u][k] = f;
                t->bwd_s[j][u][k] = b;
                t->link_cost[j][u][k] = steps * (latency_weight(s) * (f + b) +
                                                 m * (s->price[u] * s->power_fwd_w[u] * f +
                                                      s->price[k + 1] * s->power_bwd_w[k + 1] * b));
            }
        }
        fwd_bits = cp_link_fwd_bits(w, s->link_format[s->segments]);
        bwd_bits = cp_link_bwd_bits(w, s->link_format[s->segments]);
        double g = cl->gain_d2e[k + 1], p = s->power_edge_w[k + 1];
        double f = fwd_bits / cp_rate_bps(s->uplink_share, w->radio.band_up_hz, p, g, n0);
        double b = bwd_bits / cp_rate_down_bps(s->uplink_share, &w->radio, g);
        t->edge_fwd_s[k] = f;
        t->edge_bwd_s[k] = b;
        t->edge_cost[k] = steps * (latency_weight(s) * (f + b) + m * s->price[k + 1] * p * f);
    }
}

static void fill_rest(struct tables *t)
{
    int segments = t->s->segments;
    double edge = INFINITY;
    for (int i = 0; i < t->n; i++) {
        edge = fmin(edge, t->edge_cost[t->device[i]]);
    }
    t->link_rest[segments] = edge;
    for (int j = segments - 1; j > 0; j--) {
        double least = INFINITY;
        for (int i = 0; i < t->n * t->n; i++) {
            int from = t->device[i / t->n], to = t->device[i % t->n];
            least = from == to ? least : fmin(least, t->link_cost[j][from + 1][to]);
        }
        t->link_rest[j] = t->link_rest[j + 1] + least;
    }
}

/* Theta_0 and the bottlenecks that do not depend on the cut: CU, edge server, upload. */
static struct cp_split_label start_label(const struct cp_split *s)
{
    const struct cp_world *w = s->world;
    const struct cp_cluster *cl = &w->cluster[s->cluster];
    const struct cp_part_cost *emb = &w->model.emb, *head = &w->model.head;
    const struct cp_part_cost *layer = &w->model.layer;
    double server = w->server_flops / w->n_clusters;
    double emb_fwd = emb->work_fwd_flops / cl->cu.rate_flops;
    double emb_bwd = emb->work_bwd_flops / cl->cu.rate_flops;
    double head_fwd = (head->work_fwd_flops + s->edge_layers * layer->work_fwd_flops) / server;
    double head_bwd = (head->work_bwd_flops + s->edge_layers * layer->work_bwd_flops) / server;
    double joule = cl->cu.energy_j_flop * (emb->work_fwd_flops + emb->work_bwd_flops);
    double bits =
        cp_upload_bits(w, s->edge_layers) * cp_format_size(s->upload_format, w->model.width);
    double upload_s = bits / cp_rate_bps(s->uplink_share, w->radio.band_up_hz, s->power_up_w,
                                         cl->gain_d2e[0], w->radio.noise_w_hz);
    return (struct cp_split_label){
        .cost = w->local_steps * (latency_weight(s) * (emb_fwd + emb_bwd + head_fwd + head_bwd) +
                                  s->micro_batches * s->price[0] * joule) +
                (s->sum_weight * s->v + s->price[0] * s->power_up_w) * upload_s +
                s->micro_price / s->micro_batches,
        .max_fwd_s = fmax(emb_fwd, head_fwd),
        .max_bwd_s = fmax(emb_bwd, head_bwd),
        .parent = -1,
        .last = -1,
    };
}

static cp_err add_label(struct cp_split_work *work, const struct cp_split_label *l)
{
    if (work->n == work->cap) {
        int cap = work->cap ? 2 * work->cap : 1024;
        struct cp_split_label *bigger;
        CP_TRY(cp_mem_array(NULL, (size_t)cap, sizeof *bigger, &bigger));
        if (work->n > 0) {
            memcpy(bigger, work->label, (size_t)work->n * sizeof *bigger);
        }
        cp_mem_free(work->label);
        work->label = bigger;
        work->cap = cap;
    }
    work->label[work->n++] = *l;
    return CP_OK;
}

static bool dominates(const struct cp_split_label *a, const struct cp_split_label *b)
{
    return a->cost <= b->cost && a->max_fwd_s <= b->max_fwd_s && a->max_bwd_s <= b->max_bwd_s;
}

/* Keeps l unless a label of its state is as good; labels that it beats are marked dead. */
static cp_err keep_label(struct search *x, struct cp_split_label *l)
{
    uint32_t state = (l->set * 16u + (uint32_t)l->last) * 64u + (uint32_t)l->layers;
    int32_t *head = &x->bucket[(state * 2654435769u) >> 21];
    struct cp_split_label *all = x->work->label;
    for (int32_t *at = head; *at >= 0;) {
        struct cp_split_label *other = &all[*at];
        bool same = other->set == l->set && other->last == l->last && other->layers == l->layers;
        if (same && dominates(other, l)) {
            return CP_OK;
        }
        if (same && dominates(l, other)) {
            other->dead = true;
            *at = other->next;
        } else {
            at = &other->next;
        }
    }
    l->next = *head;
    *head = x->work->n;
    return add_label(x->work, l);
}

/* What the devices outside a set can do for the segments from one position on. */
struct rest {
    int room;                    /* layers that fit */
    double layer_cost;           /* least per layer */
    double fwd_speed, bwd_speed; /* layers per second of all of them together */
};

/* The best `count` devices outside set, each number by itself. Slots do not rise along the
 * pipeline, so the room of the last segment is the largest. */
static struct rest rest_of(const struct tables *t, uint32_t set, int count)
{
    struct rest r = {.layer_cost = INFINITY};
    int room[CP_DEVICES_MAX], n = 0;
    double fwd_s[CP_DEVICES_MAX], bwd_s[CP_DEVICES_MAX];
    for (int i = 0; i < t->n; i++) {
        int k = t->device[i], at;
        if (set & 1u << k) {
            continue;
        }
        r.layer_cost = fmin(r.layer_cost, t->layer_cost[k]);
        for (at = n; at > 0 && room[at - 1] < t->room[t->s->segments - 1][k]; at--) {
            room[at] = room[at - 1];
        }
        room[at] = t->room[t->s->segments - 1][k];
        for (at = n; at > 0 && fwd_s[at - 1] > t->layer_fwd_s[k]; at--) {
            fwd_s[at] = fwd_s[at - 1]; /* the order is that of bwd_s, too: both are work / rate */
            bwd_s[at] = bwd_s[at - 1];
        }
        fwd_s[at] = t->layer_fwd_s[k];
        bwd_s[at] = t->layer_bwd_s[k];
        n++;
    }
    for (int i = 0; i < count && i < n; i++) {
        r.room += room[i];
        r.fwd_speed += 1 / fwd_s[i];
        r.bwd_speed += 1 / bwd_s[i];
    }
    return r;
}

/* A lower bound of every completion of l, a label of segment j; its value where it is complete. */
static double bound_of(const struct tables *t, const struct cp_split_label *l, int j,
                       const struct rest *r)
{
    int left = layers_of(t->s) - l->layers;
    if (left == 0) {
        return l->cost + t->bottleneck * (l->max_fwd_s + l->max_bwd_s);
    }
    return l->cost + left * r->layer_cost + t->link_rest[j + 1] +
           t->bottleneck *
               (fmax(l->max_fwd_s, left / r->fwd_speed) + fmax(l->max_bwd_s, left / r->bwd_speed));
}

/* Places segment j on device k after the label `from`, in every size. */
static cp_err extend(struct search *x, int from, int j, int k)
{
    const struct tables *t = x->t;
    int all = layers_of(t->s), after = t->s->segments - 1 - j;
    struct cp_split_label l = x->work->label[from];
    int u = l.last + 1, left = all - l.layers;
    uint32_t set = l.set | 1u << k;
    struct rest rest = rest_of(t, set, after);
    int most = left - after < t->room[j][k] ? left - after : t->room[j][k];
    int least = left - rest.room > 1 ? left - rest.room : 1;
    double base = l.cost + t->link_cost[j][u][k];
    double fwd = fmax(l.max_fwd_s, t->fwd_s[j][u][k]), bwd = fmax(l.max_bwd_s, t->bwd_s[j][u][k]);
    if (after == 0) {
        base += t->edge_cost[k];
        fwd = fmax(fwd, t->edge_fwd_s[k]);
        bwd = fmax(bwd, t->edge_bwd_s[k]);
    }
    for (int n = least; n <= most; n++) {
        struct cp_split_label next = {.cost = base + n * t->layer_cost[k],
                                      .max_fwd_s = fmax(fwd, n * t->layer_fwd_s[k]),
                                      .max_bwd_s = fmax(bwd, n * t->layer_bwd_s[k]),
                                      .set = set,
                                      .parent = from,
                                      .next = -1,
                                      .layers = (int16_t)(l.layers + n),
                                      .last = (int8_t)k};
        next.bound = bound_of(t, &next, j, &rest);
        if (!(next.bound <= x->best)) {
            continue;
        }
        if (after > 0) {
            CP_TRY(keep_label(x, &next));
        } else if (next.bound < x->best) {
            x->best = next.bound;
            x->best_label = x->work->n;
            CP_TRY(add_label(x->work, &next));
        }
    }
    return CP_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Marks all but the `beam` most promising labels from first on as dead. */
static cp_err cut_to_beam(struct cp_split_work *work, int first, int beam)
{
    int n = 0;
    double *bound;
    CP_TRY(cp_mem_array(NULL, (size_t)(work->n - first), sizeof *bound, &bound));
    for (int i = first; i < work->n; i++) {
        if (!work->label[i].dead) {
            bound[n++] = work->label[i].bound;
        }
    }
    if (n > beam) {
        qsort(bound, (size_t)n, sizeof *bound, compare_doubles);
        for (int i = first; i < work->n; i++) {
            work->label[i].dead |= work->label[i].bound > bound[beam - 1];
        }
    }
    cp_mem_free(bound);
    return CP_OK;
}

static cp_err run_pass(struct search *x, const struct cp_split_label *start)
{
    const struct tables *t = x->t;
    int first = 0;
    x->work->n = 0;
    x->best_label = -1;
    CP_TRY(add_label(x->work, start));
    for (int j = 0; j < t->s->segments; j++) {
        int end = x->work->n;
        for (int i = 0; i < BUCKETS; i++) {
            x->bucket[i] = -1;
        }
        for (int from = first; from < end; from++) {
            if (x->work->label[from].dead) {
                continue;
            }
            for (int i = 0; i < t->n; i++) {
                int k = t->device[i];
                bool before = t->s->index_order && k < x->work->label[from].last;
                if (!before && !(x->work->label[from].set & 1u << k)) {
                    CP_TRY(extend(x, from, j, k));
                }
            }
        }
        first = end;
        if (x->beam > 0 && j + 1 < t->s->segments) {
            CP_TRY(cut_to_beam(x->work, first, x->beam));
        }
    }
    return CP_OK;
}

/* A narrow pass for a bound, then everything below it; large clusters get one wide pass. */
static cp_err run_search(struct search *x, const struct cp_split_label *start)
{
    const struct cp_split *s = x->t->s;
    bool large = x->t->n > CP_SPLIT_EXACT_DEVICES;
    x->best = s->bound * (1 + ROUNDING); /* so that what has just this value is found */
    x->beam = large && !s->narrow ? CP_SPLIT_BEAM_LABELS : FIRST_PASS;
    CP_TRY(run_pass(x, start));
    if (large || s->narrow || (x->best_label < 0 && isinf(s->bound))) {
        return CP_OK; /* narrow passes lose nothing that fits: there is nothing to be found */
    }
    x->beam = 0;
    x->best *= 1 + ROUNDING;
    return run_pass(x, start);
}

/* Walks back from the complete label. */
static void write_plan(const struct search *x, struct cp_cluster_plan *out)
{
    const struct cp_split *s = x->t->s;
    *out = (struct cp_cluster_plan){.mode = CP_MODE_PIPELINE,
                                    .order = s->order,
                                    .segments = s->segments,
                                    .edge_layers = s->edge_layers,
                                    .micro_batches = s->micro_batches,
                                    .uplink_share = s->uplink_share,
                                    .power_up_w = s->power_up_w,
                                    .upload_format = s->upload_format};
    memcpy(out->slots, s->slots, sizeof out->slots);
    memcpy(out->link_format, s->link_format, sizeof out->link_format);
    int at = x->best_label;
    for (int j = s->segments - 1; j >= 0; j--) {
        const struct cp_split_label *l = &x->work->label[at];
        out->device[j] = (int)l->last;
        out->layers[j] = l->layers - x->work->label[l->parent].layers;
        at = l->parent;
    }
    out->power_fwd_w[0] = s->power_fwd_w[0];
    for (int j = 0; j < s->segments; j++) {
        int node = out->device[j] + 1;
        out->band_fwd[j] = s->band_fwd[j];
        out->band_bwd[j] = s->band_bwd[j];
        out->power_fwd_w[j + 1] =
            j + 1 < s->segments ? s->power_fwd_w[node] : s->power_edge_w[node];
        out->power_bwd_w[j + 1] = s->power_bwd_w[node];
    }
}

cp_err cp_split_solve(const struct cp_split *s, struct cp_split_work *work,
                      struct cp_split_result *out)
{
    const struct cp_cluster *cl = &s->world->cluster[s->cluster];
    struct tables t = {.s = s};
    assert(layers_of(s) <= CP_LAYERS_MAX);
    CP_TRY(cp_draft_present(cl, t.device, &t.n));
    assert(s->segments >= 1 && s->segments <= t.n && s->segments <= layers_of(s));
    t.bottleneck = s->world->local_steps * s->v * (one_by_one(s) ? 0 : s->micro_batches - 1);
    struct cp_split_label start = start_label(s);
    fill_devices(&t);
    fill_links(&t, s->world->radio.band_d2d_hz * (overlaps(s) ? 0.5 : 1));
    fill_rest(&t);
    struct search x = {.t = &t, .work = work};
    CP_TRY(run_search(&x, &start));
    *out = (struct cp_split_result){
        .found = x.best_label >= 0,
        .kind = t.n > CP_SPLIT_EXACT_DEVICES ? CP_SPLIT_BEAM : CP_SPLIT_EXACT,
    };
    if (out->found) {
        out->value = x.best;
        write_plan(&x, &out->plan);
    }
    return CP_OK;
}
