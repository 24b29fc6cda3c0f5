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

static void fill_links(struct cp_lower_rule *r, double a)
{
    const struct cp_lower_cluster *c = r->c;
    int half = c->band[r->band].half, formats = c->set.formats ? CP_FORMAT_INT8 : CP_FORMAT_FP32;
    for (int u = 0; u <= c->n; u++) {
        for (int k = 0; k < c->n; k++) {
            const struct cp_lower_link *l = &c->link[u * c->n + k];
            struct cp_lower_hop none = {.cost = INFINITY}, *least = &r->least[u][k];
            *least = none;
            for (int i = 0; i < c->intervals && u != k + 1; i++) {
                struct cp_lower_hop *hop = &r->hop[u][k][i];
                *hop = none;
                for (int f = 0; f <= formats; f++) {
                    double size = cp_format_size((enum cp_format)f, c->a->world->model.width);
                    double free = r->micro * size * l->joule +
                                  error_cost(c, 2 * cp_format_error((enum cp_format)f));
                    double cost = free + (a > 0 ? a * l->priced_s[r->band][i][f] : 0);
                    if (cost < hop->cost) {
                        *hop = (struct cp_lower_hop){cost, free, l->fast_s[half][i]};
                    }
                }
                *least = hop->cost < least->cost ? *hop : *least;
            }
            least->s = l->fast_s[half][0];
        }
    }
}

/* The edge server with e layers, the link to it from device k, and the upload: one share y. */
static struct cp_lower_label base_label(const struct cp_lower_rule *r,
                                        const struct cp_lower_price *price, double a, int k, int e)
{
    const struct cp_lower_cluster *c = r->c;
    const struct cp_world *w = c->a->world;
    int formats = c->set.formats ? CP_FORMAT_INT8 : CP_FORMAT_FP32;
    double link_a = r->kind == CP_LOWER_OVERLAP ? 0 : a; /* there q has it */
    struct cp_lower_label best = {.cost = INFINITY};
    for (int f = 0; f <= formats; f++) {
        double size = cp_format_size((enum cp_format)f, w->model.width);
        for (int g = 0; g <= formats; g++) {
            double bits = cp_upload_bits(w, e) * cp_format_size((enum cp_format)g, w->model.width);
            struct cp_air_sum sum = {.n = 2,
                                     .air = {c->upload, c->edge[k]},
                                     .weight = {price->time * bits, link_a * size},
                                     .inverse = link_a * size * c->edge_down_s[k]};
            struct cp_lower_label l = {
                .free = c->upload_joule * bits + r->micro * size * c->edge_joule[k] +
                        error_cost(c, 2 * cp_format_error((enum cp_format)f)) +
                        error_cost(c, cp_format_error((enum cp_format)g))};
            l.cost = l.free + cp_air_least(&sum, price->uplink, 0, 1, &l.uplink);
            best = l.cost < best.cost ? l : best;
        }
    }
    double least = cp_format_size((enum cp_format)formats, w->model.width);
    double link_s = least * (cp_air_s(&c->edge[k], 1) + c->edge_down_s[k]);
    double edge_s = c->head_s + e * c->edge_layer_s;
    double start_s = r->kind == CP_LOWER_OVERLAP ? 0 : r->kind == CP_LOWER_FLUSH ? c->cu_s : 0;
    best.free += price->uplink * best.uplink - e * c->broadcast_v * c->broadcast_s;
    best.cost += a * edge_s - e * c->broadcast_v * c->broadcast_s;
    best.q_s = cp_lower_cross(r, cp_lower_stage(r, start_s, edge_s), link_s);
    return best;
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
        double stage = kind == CP_LOWER_OVERLAP
                           ? a * (micro - 1) * c->longer * fmax(range.low_s, c->slot_s[layers - e])
                           : 0;
        for (int k = 0; k < c->n; k++) {
            struct cp_lower_label l = base_label(r, price, a, k, e);
            l.cost += cost + (stage < INFINITY ? stage : 0);
            l.free += free;
            base[k * (c->edge_max + 1) + e] = l;
        }
    }
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
        l = front < 0 ? r->base[k * (c->edge_max + 1) + p->edge_layers]
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
