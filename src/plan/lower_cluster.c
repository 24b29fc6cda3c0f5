#include "plan/lower_cluster.h"

#include "base/mem.h"
#include "plan/lower_rule.h"
#include "world/radio.h"

#include <math.h>
#include <string.h>

/* Ranges of the longest stage end at so many times the least it can be. */
static const double RANGE[CP_LOWER_RANGES - 1] = {1.12, 1.3, 1.6};

static const double POWER_LOW = 1e-3; /* p_min / p^max, section 9 */

/* --- constants ------------------------------------------------------------------------------- */

static struct cp_air air_of(double bits, double band_hz, double power_w, double gain,
                            double noise_w_hz)
{
    return (struct cp_air){.scale_s = bits * M_LN2 / band_hz,
                           .snr = power_w * gain / (band_hz * noise_w_hz)};
}

/* The least energy of a message, which is at the least power and the whole band, with its price. */
static double least_joule(const struct cp_air *air, double power_w, double price)
{
    struct cp_air low = {.scale_s = air->scale_s, .snr = POWER_LOW * air->snr};
    return price > 0 ? price * POWER_LOW * power_w * cp_air_s(&low, 1) : 0;
}

static double price_of(const struct cp_lower_cluster *c, int node)
{
    return cp_queues_price(c->a->queues, c->a->world, c->cluster, node);
}

static void fill_parts(struct cp_lower_cluster *c)
{
    const struct cp_world *w = c->a->world;
    const struct cp_cluster *cl = &w->cluster[c->cluster];
    const struct cp_part_cost *layer = &w->model.layer, *emb = &w->model.emb;
    double work = layer->work_fwd_flops + layer->work_bwd_flops;
    double emb_work = emb->work_fwd_flops + emb->work_bwd_flops;
    double server = w->server_flops / w->n_clusters, bits = cp_layers_bits(w, 1);
    double band_hz = w->radio.band_d2d_hz, n0 = w->radio.noise_w_hz;
    c->longer = fmax(layer->work_fwd_flops, layer->work_bwd_flops) / work;
    c->cu_s = emb_work / cl->cu.rate_flops;
    c->cu_joule = c->steps * price_of(c, 0) * cl->cu.energy_j_flop * emb_work;
    c->head_s = (w->model.head.work_fwd_flops + w->model.head.work_bwd_flops) / server;
    c->edge_layer_s = work / server;
    for (int k = 0; k < c->n; k++) {
        int node = c->device[k] + 1;
        const struct cp_device *d = &cl->device[c->device[k]];
        double gain = cl->gain_d2d[0][node];
        double out_s = bits / cp_rate_bps(1, band_hz, cl->cu.power_d2d_w, gain, n0);
        double in_s = bits / cp_rate_bps(1, band_hz, d->power_d2d_w, gain, n0);
        c->layer_s[k] = work / d->rate_flops;
        c->layer_joule[k] = c->steps * price_of(c, node) * d->energy_j_flop * work;
        c->move_s[k] = out_s + in_s;
        c->move_joule[k] = (price_of(c, node) > 0 ? price_of(c, node) * d->power_d2d_w * in_s : 0) +
                           (price_of(c, 0) > 0 ? price_of(c, 0) * cl->cu.power_d2d_w * out_s : 0);
    }
}

static void fill_air(struct cp_lower_cluster *c)
{
    const struct cp_world *w = c->a->world;
    const struct cp_radio *r = &w->radio;
    const struct cp_cluster *cl = &w->cluster[c->cluster];
    double fwd = cp_link_fwd_bits(w, CP_FORMAT_FP32), bwd = cp_link_bwd_bits(w, CP_FORMAT_FP32);
    for (int k = 0; k < c->n; k++) {
        int node = c->device[k] + 1;
        const struct cp_device *d = &cl->device[c->device[k]];
        for (int u = 0; u <= c->n; u++) {
            int other = u == 0 ? 0 : c->device[u - 1] + 1;
            const struct cp_device *from = u == 0 ? &cl->cu : &cl->device[other - 1];
            struct cp_lower_link *l = &c->link[u * c->n + k];
            double gain = cl->gain_d2d[other][node];
            struct cp_air there =
                air_of(fwd, r->band_d2d_hz, from->power_d2d_w, gain, r->noise_w_hz);
            struct cp_air back = air_of(bwd, r->band_d2d_hz, d->power_d2d_w, gain, r->noise_w_hz);
            l->air.scale_s = fmin(there.scale_s, back.scale_s);
            l->air.snr = fmax(there.snr, back.snr);
            l->joule = c->steps * (least_joule(&there, from->power_d2d_w, price_of(c, other)) +
                                   least_joule(&back, d->power_d2d_w, price_of(c, node)));
        }
        double gain = cl->gain_d2e[node];
        c->edge[k] = air_of(fwd, r->band_up_hz, d->power_d2e_w, gain, r->noise_w_hz);
        c->edge_down_s[k] = bwd / cp_rate_down_bps(1, r, gain);
        c->edge_joule[k] = c->steps * least_joule(&c->edge[k], d->power_d2e_w, price_of(c, node));
    }
    c->upload = air_of(1, r->band_up_hz, cl->cu.power_d2e_w, cl->gain_d2e[0], r->noise_w_hz);
    c->upload_joule = least_joule(&c->upload, cl->cu.power_d2e_w, price_of(c, 0));
}

/* T_bc is at least that of the cluster that decides it in plain pipelines: it alone has a price. */
static void fill_broadcast(struct cp_lower_cluster *c)
{
    const struct cp_world *w = c->a->world;
    int weakest = 0;
    if (!c->set.edge_layers && !c->set.apart) {
        return; /* it cannot change */
    }
    for (int i = 1; i < w->n_clusters; i++) {
        weakest = w->cluster[i].gain_d2e[0] < w->cluster[weakest].gain_d2e[0] ? i : weakest;
    }
    double gain = w->cluster[weakest].gain_d2e[0];
    c->broadcast_v = weakest == c->cluster ? cp_queues_v(c->a->queues) : 0;
    c->broadcast_s = cp_layers_bits(w, 1) / cp_rate_down_bps(1, &w->radio, gain);
}

static void fill_room(struct cp_lower_cluster *c, struct cp_room *room)
{
    cp_room_init(room, c->a->world, c->cluster);
    for (int m = 1; m <= c->micro_high; m++) {
        for (int k = 0; k < c->n && (m == 1 || m >= c->micro_low); k++) {
            c->room[m * c->n + k] = (int16_t)cp_room_layers(room, c->device[k], m);
        }
    }
}

/* The r-th smallest of the times of 1, 2, ... layers on each device outside a set: one more layer
 * goes where it is done first. */
static void fill_slots(struct cp_lower_cluster *c, unsigned set)
{
    int all = c->a->world->model.layers, used[CP_DEVICES_MAX] = {0};
    double *slot_s = c->slot_s + (size_t)set * (size_t)(all + 1);
    slot_s[0] = 0;
    for (int r = 1; r <= all; r++) {
        int best = -1;
        slot_s[r] = INFINITY;
        for (int k = 0; k < c->n; k++) {
            if (!(set & 1u << k) && used[k] < c->room[c->n + k] &&
                (used[k] + 1) * c->layer_s[k] < slot_s[r]) {
                slot_s[r] = (used[k] + 1) * c->layer_s[k];
                best = k;
            }
        }
        if (best >= 0) {
            used[best]++;
        }
    }
}

/* The price of squared errors, and their size in a plan: tangents are taken there. */
static void fill_errors(struct cp_lower_cluster *c, const struct cp_cluster_plan *p)
{
    const struct cp_world *w = c->a->world;
    const struct cp_queues *q = c->a->queues;
    c->error_price = q ? q->convergence * w->micro_ref * w->cluster[c->cluster].weight.lossy : 0;
    if (!p || !c->set.formats || p->mode != CP_MODE_PIPELINE) {
        return;
    }
    c->error = cp_format_error(p->upload_format);
    for (int j = 0; j <= p->segments; j++) {
        c->error += 2 * cp_format_error(p->link_format[j]);
    }
}

cp_err cp_lower_cluster_init(struct cp_lower_cluster *c, const struct cp_policy_args *a,
                             const struct cp_lower_set *set, const struct cp_cluster_plan *p,
                             int cluster, const struct cp_lower_options *options)
{
    static const struct cp_lower_set plain;
    const struct cp_world *w = a->world;
    const struct cp_cluster *cl = &w->cluster[cluster];
    int all = w->model.layers;
    struct cp_room *room = NULL;
    *c = (struct cp_lower_cluster){.a = a, .set = set ? *set : plain, .cluster = cluster};
    for (int k = 0; k < cl->n_devices; k++) {
        if (cl->device[k].present) {
            c->device[c->n++] = k;
        }
    }
    c->micro_low = a->choose_micro ? 1 : cp_draft_micro(a, cluster);
    c->micro_high = a->choose_micro ? cp_world_micro_max(w, cluster) : c->micro_low;
    c->edge_max = c->set.edge_layers ? all - 1 : 0;
    c->serial = cp_draft_orders(a).all == 1;
    c->gpipe = cp_draft_orders(a).n == 1 && a->order == CP_ORDER_GPIPE &&
               !(a->incumbent && a->incumbent->n_clusters == w->n_clusters &&
                 a->incumbent->cluster[cluster].order != CP_ORDER_GPIPE);
    c->steps = w->local_steps;
    c->micro_price = cp_queues_micro_price(a->queues, w, cluster);
    c->exact = c->n <= options->exact_devices;
    c->intervals = options->intervals;
    c->ranges = options->ranges;
    fill_errors(c, p);
    cp_err err;
    size_t n = (size_t)c->n, sets = c->exact ? (size_t)1 << n : 1;
    CP_TRY_GOTO(err, cp_mem_new(NULL, sizeof *room, &room), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (n + 1) * n, sizeof *c->link, &c->link), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)(c->micro_high + 1) * n, sizeof *c->room, &c->room),
                done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, sets * (size_t)(all + 1), sizeof *c->slot_s, &c->slot_s),
                done);
    fill_parts(c);
    fill_air(c);
    fill_broadcast(c);
    fill_room(c, room);
    for (unsigned s = 0; s < sets; s++) {
        fill_slots(c, s);
    }
    c->bands = c->serial ? 2 : options->bands;
    for (int b = 0; b < c->bands; b++) {
        cp_lower_cluster_band(c, b, 0, 1);
    }
done:
    cp_mem_free(room);
    if (err) {
        cp_lower_cluster_fini(c);
    }
    return err;
}

void cp_lower_cluster_fini(struct cp_lower_cluster *c)
{
    cp_mem_free(c->link);
    cp_mem_free(c->room);
    cp_mem_free(c->slot_s);
    *c = (struct cp_lower_cluster){0};
}

/* Above x_all nothing is gained, below x_cost neither. */
void cp_lower_intervals(double x_cost, double x_all, int n, double end[CP_LOWER_INTERVALS + 1])
{
    double ratio = n > 2 ? pow(x_cost / x_all, 1.0 / (n - 1)) : 0.6;
    ratio = fmin(fmax(ratio, 0.5), 0.9);
    end[0] = 1;
    for (int i = 1; i < n; i++) {
        end[i] = (i > 1 ? end[i - 1] : x_all) * (i > 1 ? ratio : 1);
    }
    end[n] = 0;
}

struct cp_air cp_lower_link_air(const struct cp_lower_link *l, const struct cp_lower_band *b)
{
    double times = b->half + 1; /* in half the band, twice as long and twice as strong */
    return (struct cp_air){times * l->air.scale_s, times * l->air.snr};
}

static void price_link(struct cp_lower_link *l, const struct cp_lower_cluster *c, int band)
{
    const struct cp_lower_band *b = &c->band[band];
    int formats = c->set.formats ? CP_FORMAT_INT8 : CP_FORMAT_FP32;
    double x_cost, x_all, x, often = band > 0 ? 1 : cp_draft_micro(c->a, c->cluster);
    struct cp_air_sum cost = {.n = 1, .air = {cp_lower_link_air(l, b)}, .weight = {2 * b->mix}};
    struct cp_air_sum all = cost;
    all.weight[0] = 2 * often;
    cp_air_least(&cost, b->price_s, 0, 1, &x_cost);
    cp_air_least(&all, b->price_s, 0, 1, &x_all);
    cp_lower_intervals(x_cost, x_all, c->intervals, l->end[band]);
    for (int i = 0; i < c->intervals; i++) {
        double high = l->end[band][i], low = l->end[band][i + 1];
        for (int f = 0; f <= formats; f++) {
            double size = cp_format_size((enum cp_format)f, c->a->world->model.width);
            cost.weight[0] = 2 * b->mix * size;
            all.weight[0] = 2 * size;
            l->priced_s[band][i][f] = cp_air_least(&cost, b->price_s, low, high, &x);
            l->whole_s[band][i][f] = cp_air_least(&all, b->price_s, low, high, &x);
        }
    }
}

void cp_lower_cluster_band(struct cp_lower_cluster *c, int band, double price_s, double mix)
{
    c->band[band] = (struct cp_lower_band){band > 0, price_s, mix};
    for (int i = 0; i < (c->n + 1) * c->n; i++) {
        price_link(&c->link[i], c, band);
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

cp_err cp_lower_work_new(int n, int exact_devices, int layers, struct cp_lower_work **out)
{
    struct cp_lower_work *w;
    size_t devices = n > 0 ? (size_t)n : 1, all = (size_t)layers, pairs = devices * (all + 1);
    size_t ends = CP_LOWER_INTERVALS * devices * all;
    size_t many = (size_t)(n < exact_devices ? n : exact_devices);
    size_t states = 2 * ((size_t)1 << many) * many * all;
    cp_err err;
    CP_TRY(cp_mem_new(NULL, sizeof *w, &w));
    w->layers = layers;
    CP_TRY_GOTO(err, cp_mem_array(NULL, ends, sizeof *w->base, &w->base), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, 2 * all, sizeof *w->source, &w->source), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, pairs, sizeof *w->rest_cost, &w->rest_cost), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, pairs, sizeof *w->rest_s, &w->rest_s), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, 2 * (all + 1), sizeof *w->count, &w->count), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, pairs + ends, sizeof *w->stage_s, &w->stage_s), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, states, sizeof *w->first, &w->first), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, states, sizeof *w->many, &w->many), fail);
    *out = w;
    return CP_OK;
fail:
    cp_lower_work_free(w);
    return err;
}

void cp_lower_work_free(struct cp_lower_work *w)
{
    if (!w) {
        return;
    }
    cp_mem_free(w->base);
    cp_mem_free(w->source);
    cp_mem_free(w->rest_cost);
    cp_mem_free(w->rest_s);
    cp_mem_free(w->count);
    cp_mem_free(w->stage_s);
    cp_mem_free(w->first);
    cp_mem_free(w->many);
    cp_mem_free(w->label);
    cp_mem_free(w);
}

/* --- the least of all --------------------------------------------------------------------------
 */

struct least {
    const struct cp_lower_cluster *c;
    const struct cp_lower_price *price;
    const struct cp_cluster_plan *p;
    bool near;
    struct cp_lower_work *work;
    struct cp_lower_label best;
    int micro; /* of the best */
};

/* The least of one rule, as far as it is below the best so far. */
static cp_err try_band(struct least *x, enum cp_lower_kind kind, int micro, int band,
                       struct cp_lower_range range, struct cp_lower_label *out)
{
    struct cp_lower_rule r;
    struct cp_lower_label path;
    *out = x->best;
    cp_lower_rule_make(x->c, x->price, kind, micro, band, range, x->work->base, &r);
    if (x->p && cp_lower_rule_path(&r, x->p, &path) && path.cost < out->cost) {
        *out = path;
    }
    r.known = out->cost;
    if (x->c->exact && (!x->near || x->c->n <= CP_LOWER_EXACT_FAST)) {
        return cp_lower_by_sets(&r, x->work, out);
    }
    cp_lower_by_counts(&r, x->work, out);
    return CP_OK;
}

/* The bands are several bounds of the same cuts: the highest counts. */
static cp_err try_range(struct least *x, enum cp_lower_kind kind, int micro,
                        struct cp_lower_range range)
{
    int first = 0, last = 0;
    if (kind != CP_LOWER_FLUSH) {
        first = 1;
        last = x->near ? 1 : x->c->bands - 1;
    }
    struct cp_lower_label highest = {.cost = -INFINITY}, one;
    for (int b = first; b <= last && highest.cost < x->best.cost; b++) {
        CP_TRY(try_band(x, kind, micro, b, range, &one));
        highest = one.cost > highest.cost ? one : highest;
    }
    x->best = highest.cost < x->best.cost ? highest : x->best;
    return CP_OK;
}

/* Where phases overlap, the bound knows the longest stage only by its range: cuts are sorted. */
static cp_err try_kind(struct least *x, enum cp_lower_kind kind, int micro)
{
    const struct cp_lower_cluster *c = x->c;
    int room = 0, layers = c->a->world->model.layers;
    bool fallback = !c->gpipe || kind != CP_LOWER_OVERLAP;
    for (int k = 0; k < c->n; k++) {
        fallback |= c->room[c->n + k] > c->room[micro * c->n + k];
        room += c->room[(kind == CP_LOWER_FLUSH ? micro : 1) * c->n + k];
    }
    if (!fallback || room < layers - c->edge_max) {
        return CP_OK;
    }
    struct cp_lower_range range = {.high_s = INFINITY};
    if (kind == CP_LOWER_OVERLAP && c->ranges > 1 && !x->near) {
        struct cp_lower_label all; /* mostly, all cuts together can be dismissed */
        CP_TRY(try_band(x, kind, micro, 1, range, &all));
        if (!(all.cost < x->best.cost)) {
            return CP_OK;
        }
    }
    range.high_s = 0;
    for (int i = 0; range.high_s < INFINITY; i++) {
        range.low_s = range.high_s;
        bool last = kind != CP_LOWER_OVERLAP || i + 1 >= c->ranges || x->near;
        range.high_s = last ? INFINITY : RANGE[i] * c->slot_s[layers];
        CP_TRY(try_range(x, kind, micro, range));
    }
    return CP_OK;
}

static cp_err try_schedules(struct least *x, int micro)
{
    if (x->c->set.apart) {
        cp_lower_apart(x->c, x->price, micro, &x->best);
    }
    if (micro == 1) {
        return try_kind(x, CP_LOWER_FLUSH, 1);
    }
    if (x->c->serial) {
        return try_kind(x, CP_LOWER_SERIAL, micro);
    }
    CP_TRY(try_kind(x, CP_LOWER_FLUSH, micro));
    return try_kind(x, CP_LOWER_OVERLAP, micro);
}

static cp_err try_micro(struct least *x, int micro)
{
    if (micro < x->c->micro_low || micro > x->c->micro_high) {
        return CP_OK;
    }
    double before = x->best.cost;
    CP_TRY(try_schedules(x, micro));
    x->micro = x->best.cost < before ? micro : x->micro;
    return CP_OK;
}

cp_err cp_lower_cluster_least(const struct cp_lower_cluster *c, const struct cp_lower_price *price,
                              const struct cp_cluster_plan *p, bool near,
                              struct cp_lower_work *work, struct cp_lower_value *out)
{
    struct least x = {.c = c, .price = price, .p = p, .near = near, .work = work};
    x.best.cost = INFINITY;
    int first = p ? p->micro_batches : c->a->world->micro_ref;
    first = first < c->micro_low ? c->micro_low : first > c->micro_high ? c->micro_high : first;
    CP_TRY(try_micro(&x, first));
    int far = near ? 0 : c->micro_high - c->micro_low;
    for (int d = 1; d <= far; d++) { /* from there the rest is soon seen not to be better */
        CP_TRY(try_micro(&x, first - d));
        CP_TRY(try_micro(&x, first + d));
    }
    if (near && out->micro != first) {
        CP_TRY(try_micro(&x, out->micro));
    }
    out->micro = near && out->micro ? out->micro : x.micro;
    out->value = x.best.cost;
    out->uplink = x.best.uplink;
    out->time_s = price->time > 0 ? (x.best.cost - x.best.free) / price->time : 0;
    return CP_OK;
}
