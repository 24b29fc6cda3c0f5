#include "plan/lower_rule.h"

#include <math.h>

/* The values of a second that each micro-batch spends, as far as it is not in q; of a second of
 * q; and of one that the band's price counts. */
struct weights {
    double sum, q, band;
};

static struct weights weights_of(const struct cp_lower_rule *r, double v)
{
    double step = r->c->steps * v, mix = r->c->band[r->band].mix;
    switch (r->kind) {
    case CP_LOWER_FLUSH:
        return (struct weights){step, step * (r->micro - 1), step};
    case CP_LOWER_SERIAL:
        return (struct weights){step * r->micro, 0, step * r->micro};
    default:
        return (struct weights){step * mix, step * (1 - mix), step};
    }
}

/* What the error of a format adds: the tangent of the square of all errors together. */
static double error_cost(const struct cp_lower_cluster *c, double error)
{
    return c->error > 0 ? 2 * c->error_price * c->error * error : c->error_price * error * error;
}

/* The q of a label whose cost is `cost` and whose least value is `all`. */
static double q_of(const struct cp_lower_rule *r, double cost, double all)
{
    return r->weight > 0 && all > cost ? (all - cost) / r->weight : 0;
}

/* The least of all of a link's time with the price of its share; a: value of a second of it. */
static double whole_cost(const struct cp_lower_rule *r, const struct cp_lower_link *l, int interval,
                         enum cp_format f, double a)
{
    const struct cp_lower_band *b = &r->c->band[r->band];
    if (r->kind != CP_LOWER_FLUSH) {
        return a > 0 ? a * l->whole_s[r->band][interval][f] : 0;
    }
    double x, size = cp_format_size(f, r->c->a->world->model.width); /* M differs */
    struct cp_air_sum all = {
        .n = 1, .air = {cp_lower_link_air(l, b)}, .weight = {2 * size * (a + r->weight)}};
    return cp_air_least(&all, a * b->price_s, l->end[r->band][interval + 1],
                        l->end[r->band][interval], &x);
}

static struct cp_lower_hop hop_of(const struct cp_lower_rule *r, const struct cp_lower_link *l,
                                  int interval, double a)
{
    const struct cp_lower_cluster *c = r->c;
    int formats = c->set.formats ? CP_FORMAT_INT8 : CP_FORMAT_FP32;
    struct cp_lower_hop hop = {.cost = INFINITY};
    double all = INFINITY;
    if (!(l->end[r->band][interval] > l->end[r->band][interval + 1])) {
        return hop;
    }
    for (int f = 0; f <= formats; f++) {
        double size = cp_format_size((enum cp_format)f, c->a->world->model.width);
        double free =
            r->micro * size * l->joule + error_cost(c, 2 * cp_format_error((enum cp_format)f));
        double cost = free + (a > 0 ? a * l->priced_s[r->band][interval][f] : 0);
        if (cost < hop.cost) {
            hop = (struct cp_lower_hop){.cost = cost, .free = free};
        }
        if (r->weight > 0) {
            all = fmin(all, free + whole_cost(r, l, interval, (enum cp_format)f, a));
        }
    }
    hop.s = q_of(r, hop.cost, all);
    return hop;
}

static void fill_links(struct cp_lower_rule *r, double a)
{
    const struct cp_lower_cluster *c = r->c;
    for (int u = 0; u <= c->n; u++) {
        for (int k = 0; k < c->n; k++) {
            struct cp_lower_hop *least = &r->least[u][k];
            *least = (struct cp_lower_hop){.cost = INFINITY, .s = INFINITY};
            for (int i = 0; i < c->intervals && u != k + 1; i++) {
                struct cp_lower_hop hop = hop_of(r, &c->link[u * c->n + k], i, a);
                r->hop[u][k][i] = hop;
                double s = fmin(least->s, hop.cost < INFINITY ? hop.s : INFINITY);
                *least = hop.cost < least->cost ? hop : *least;
                least->s = s;
            }
        }
    }
}

/* --- the edge server ------------------------------------------------------------------------- */

/*
 * The link from the last device to the edge server, and the upload: they have one share y. The
 * value of link_s forwards, down_s backwards and the upload is known; where phases overlap, busy_a
 * is what it costs that all forwards pass a stage or link of the longest kind one after another.
 */
struct edge_side {
    const struct cp_lower_rule *r;
    int device;
    double price;                /* lambda */
    double upload, fwd, bwd;     /* values of a second of one bit's upload, and of the link */
    double busy, busy_s, edge_s; /* of (M - 1) times the longer one of busy_s and the link */
    double size;
};

static double edge_fwd_s(const struct edge_side *x, double y)
{
    return y > 0 ? x->size * cp_air_s(&x->r->c->edge[x->device], y) : INFINITY;
}

static double edge_bwd_s(const struct edge_side *x, double y)
{
    return y > 0 ? x->size * x->r->c->edge_down_s[x->device] / y : INFINITY;
}

/* The least for one choice of what the maxima are. */
static double edge_sum(const struct edge_side *x, double fwd, double bwd, double low, double high,
                       double *y)
{
    const struct cp_lower_cluster *c = x->r->c;
    struct cp_air_sum sum = {.n = 2,
                             .air = {c->upload, c->edge[x->device]},
                             .weight = {x->upload, fwd * x->size},
                             .inverse = bwd * x->size * c->edge_down_s[x->device]};
    return cp_air_least(&sum, x->price, low, high, y);
}

/* The least of the cost over an interval of y, with fwd and bwd more for a second of the link. */
static double edge_busy(const struct edge_side *x, double fwd, double bwd, double low, double high,
                        double *y)
{
    double most = -INFINITY, at;
    fwd += x->fwd;
    bwd += x->bwd;
    if (!(x->busy > 0) || edge_fwd_s(x, high) < x->busy_s) {
        most = edge_sum(x, fwd, bwd, low, high, y) + x->busy * x->busy_s;
    }
    if (x->busy > 0 && edge_fwd_s(x, low) > x->busy_s) {
        double other = edge_sum(x, fwd + x->busy, bwd, low, high, &at);
        *y = other > most ? at : *y;
        most = fmax(most, other);
    }
    return most;
}

/* The same with what of q the link and, where phases overlap, the edge server make. */
static double edge_all(const struct edge_side *x, double low, double high, double *y)
{
    const struct cp_lower_rule *r = x->r;
    double w = r->weight, m = r->micro, most = -INFINITY, at;
    if (r->kind != CP_LOWER_OVERLAP) {
        return edge_busy(x, w, w, low, high, y);
    }
    double fwd_s = edge_fwd_s(x, high), bwd_s = edge_bwd_s(x, high);
    if (x->edge_s >= fmax(fwd_s, bwd_s)) {
        most = edge_busy(x, w, w, low, high, y) + w * m * x->edge_s;
    }
    if (x->edge_s < fmax(edge_fwd_s(x, low), edge_bwd_s(x, low))) {
        bool out = fwd_s >= bwd_s;
        double other =
            edge_busy(x, out ? m * w : w, out ? w : m * w, low, high, &at) + w * x->edge_s;
        *y = other > most ? at : *y;
        most = fmax(most, other);
    }
    return most;
}

/* Formats and the energy that goes with them. */
struct edge_way {
    double size, bits, free;
};

static int edge_ways(const struct cp_lower_rule *r, int k, int e, struct edge_way way[9])
{
    const struct cp_lower_cluster *c = r->c;
    const struct cp_world *w = c->a->world;
    int n = 0, formats = c->set.formats ? CP_FORMAT_INT8 : CP_FORMAT_FP32;
    for (int f = 0; f <= formats; f++) {
        for (int g = 0; g <= formats; g++) {
            double size = cp_format_size((enum cp_format)f, w->model.width);
            double bits = cp_upload_bits(w, e) * cp_format_size((enum cp_format)g, w->model.width);
            double free = c->upload_joule * bits + r->micro * size * c->edge_joule[k] +
                          error_cost(c, 2 * cp_format_error((enum cp_format)f)) +
                          error_cost(c, cp_format_error((enum cp_format)g));
            way[n++] = (struct edge_way){size, bits, free};
        }
    }
    return n;
}

/* Labels of the edge server with e layers, the link to it from device k, and the upload: one for
 * each interval of the share y. */
static void fill_base(const struct cp_lower_rule *r, const struct cp_lower_price *price, double a,
                      double busy_s, int k, int e, struct cp_lower_label *label)
{
    const struct cp_lower_cluster *c = r->c;
    bool overlap = r->kind == CP_LOWER_OVERLAP;
    struct edge_way way[9];
    int ways = edge_ways(r, k, e, way);
    double end[CP_LOWER_INTERVALS + 1], y_cost, y_all, y, edge_s = c->head_s + e * c->edge_layer_s;
    struct edge_side x = {.r = r,
                          .device = k,
                          .price = price->uplink,
                          .fwd = a,
                          .bwd = a,
                          .busy = overlap ? a * (r->micro - 1) : 0,
                          .busy_s = busy_s,
                          .edge_s = edge_s,
                          .upload = price->time * way[0].bits,
                          .size = 1};
    edge_busy(&x, 0, 0, 0, 1, &y_cost);
    edge_all(&x, 0, 1, &y_all);
    cp_lower_intervals(y_cost, y_all, c->intervals, end);
    for (int i = 0; i < c->intervals; i++) {
        struct cp_lower_label best = {.cost = INFINITY};
        double all = INFINITY;
        for (int f = 0; f < ways && end[i] > end[i + 1]; f++) {
            x.size = way[f].size;
            x.upload = price->time * way[f].bits;
            double cost = way[f].free + edge_busy(&x, 0, 0, end[i + 1], end[i], &y);
            if (cost < best.cost) {
                best = (struct cp_lower_label){.cost = cost, .free = way[f].free, .uplink = y};
            }
            all = fmin(all, way[f].free + edge_all(&x, end[i + 1], end[i], &y));
        }
        best.q_s = q_of(r, best.cost, all);
        best.free += price->uplink * best.uplink - e * c->broadcast_v * c->broadcast_s;
        best.cost += a * edge_s - e * c->broadcast_v * c->broadcast_s;
        if (r->kind == CP_LOWER_FLUSH) {
            best.q_s = fmax(best.q_s, fmax(c->cu_s, edge_s));
        }
        label[i] = best;
    }
}

void cp_lower_rule_make(const struct cp_lower_cluster *c, const struct cp_lower_price *price,
                        enum cp_lower_kind kind, int micro, int band, struct cp_lower_range range,
                        struct cp_lower_label *base, struct cp_lower_rule *r)
{
    int layers = c->a->world->model.layers;
    r->c = c;
    r->kind = kind;
    r->micro = micro;
    r->band = band;
    r->range = range;
    r->fallback = kind == CP_LOWER_OVERLAP && c->gpipe;
    struct weights weight = weights_of(r, price->time);
    double v = price->time, a = weight.sum;
    r->weight = weight.q;
    r->known = INFINITY;
    r->base = base;
    for (int k = 0; k < c->n; k++) {
        r->fits[k] = c->room[micro * c->n + k];
        r->room[k] = c->room[(kind == CP_LOWER_FLUSH ? micro : 1) * c->n + k];
        if (r->room[k] * c->layer_s[k] > range.high_s) {
            r->room[k] = (int)(range.high_s / c->layer_s[k] * (1 + 1e-12));
        }
        r->layer_free[k] = c->move_joule[k] + micro * c->layer_joule[k];
        r->layer_cost[k] = r->layer_free[k] + v * c->move_s[k] + a * c->layer_s[k];
    }
    fill_links(r, weight.band);
    double free = micro * c->cu_joule + c->micro_price / micro -
                  (c->error > 0 ? c->error_price * c->error * c->error : 0);
    double cost = free + a * c->cu_s - weight.band * c->band[band].price_s;
    for (int e = 0; e <= c->edge_max; e++) {
        /* Sigma + (M - 1) tau_j of the longer direction, as some stage must have it */
        double busy_s = c->longer * fmax(range.low_s, c->slot_s[layers - e]);
        for (int k = 0; k < c->n; k++) {
            struct cp_lower_label *l = &base[(k * (c->edge_max + 1) + e) * c->intervals];
            fill_base(r, price, a, busy_s < INFINITY ? busy_s : 0, k, e, l);
            for (int i = 0; i < c->intervals; i++) {
                l[i].cost += cost;
                l[i].free += free;
            }
        }
    }
}

/* The interval that is best if the path ended behind its stage. */
static struct cp_lower_label base_path(const struct cp_lower_rule *r, int k, int edge_layers,
                                       double stage_s)
{
    const struct cp_lower_label *base = cp_lower_base(r, k, edge_layers);
    struct cp_lower_label best = {.cost = INFINITY}, least = best;
    for (int i = 0; i < r->c->intervals; i++) {
        struct cp_lower_label l = base[i];
        l.q_s = cp_lower_stage(r, l.q_s, stage_s);
        if (cp_lower_total(r, &l) < least.cost) {
            least.cost = cp_lower_total(r, &l);
            best = base[i];
        }
    }
    return best;
}

/* The interval that is best if the path ended here. Whatever it takes is a path of the search, and
 * never below the least one. */
static struct cp_lower_label hop_path(const struct cp_lower_rule *r, const struct cp_lower_label *l,
                                      int u, int k)
{
    struct cp_lower_label best = {.cost = INFINITY};
    for (int i = 0; i < r->c->intervals; i++) {
        struct cp_lower_label to = cp_lower_hopped(r, l, &r->hop[u][k][i]);
        best = cp_lower_total(r, &to) < cp_lower_total(r, &best) ? to : best;
    }
    return best;
}

bool cp_lower_rule_path(const struct cp_lower_rule *r, const struct cp_cluster_plan *p,
                        struct cp_lower_label *out)
{
    const struct cp_lower_cluster *c = r->c;
    struct cp_lower_label l = {0};
    int front = -1, placed = p->edge_layers;
    bool forced = !r->fallback;
    if (p->mode != CP_MODE_PIPELINE || p->edge_layers > c->edge_max) {
        return false;
    }
    for (int s = p->segments - 1; s >= 0; s--) {
        int k = 0, n = p->layers[s];
        while (k < c->n && c->device[k] != p->device[s]) {
            k++;
        }
        if (k == c->n || n > r->room[k]) {
            return false;
        }
        l = front < 0 ? base_path(r, k, p->edge_layers, n * c->layer_s[k])
                      : hop_path(r, &l, k + 1, front);
        l.cost += n * r->layer_cost[k];
        l.free += n * r->layer_free[k];
        l.q_s = cp_lower_stage(r, l.q_s, n * c->layer_s[k]);
        front = k;
        placed += n;
        forced |= n > r->fits[k];
    }
    if (front < 0 || !forced || placed != c->a->world->model.layers) {
        return false;
    }
    l = hop_path(r, &l, 0, front);
    l.cost = cp_lower_total(r, &l);
    *out = l;
    return true;
}
