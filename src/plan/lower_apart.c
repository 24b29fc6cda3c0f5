/*
 * Modes full and split, where every used device works by itself: T_c is the longest of their times,
 * each at its own best share of the uplink, and costs of energy add up. For each time that the
 * longest one can have, the cheapest devices that are not slower.
 */
#include "plan/lower_rule.h"

#include "world/radio.h"

#include <math.h>

/* One way to work apart: n devices with the first `layers` layers (or, with whole, all and the
 * head), M micro-batches among them, a format of the upload. */
struct way {
    const struct cp_lower_cluster *c;
    const struct cp_lower_price *price;
    bool whole;
    int layers, devices, micro;
    enum cp_format upload;
};

/* What a device of it costs: its time with the uplink, apart from the others; and its energy. */
struct apart {
    double time_cost, joule, uplink;
};

static bool fits(const struct way *x, int k)
{
    const struct cp_world *w = x->c->a->world;
    const struct cp_model_cost *m = &w->model;
    size_t need = x->whole ? m->full_bytes_micro : m->client_bytes(m->segment_arg, x->layers);
    return need <= w->cluster[x->c->cluster].device[x->c->device[k]].mem_bytes;
}

static struct apart device_of(const struct way *x, int k)
{
    const struct cp_lower_cluster *c = x->c;
    const struct cp_world *w = c->a->world;
    const struct cp_model_cost *m = &w->model;
    const struct cp_device *d = &w->cluster[c->cluster].device[c->device[k]];
    double head = m->head.work_fwd_flops + m->head.work_bwd_flops, v = x->price->time;
    double layer = m->layer.work_fwd_flops + m->layer.work_bwd_flops;
    double work = m->emb.work_fwd_flops + m->emb.work_bwd_flops + x->layers * layer;
    double n = x->devices, runs = c->steps * x->micro / n,
           fwd = cp_link_fwd_bits(w, CP_FORMAT_FP32);
    double bits =
        cp_upload_bits(w, m->layers - x->layers) + (x->whole ? 8 * m->head.param_bytes : 0);
    bits *= cp_format_size(x->upload, m->width);
    double away_s = 0, messages = bits / fwd; /* in units of a boundary tensor on its way */
    if (x->whole) {
        work += head;
    } else {
        away_s = n * (head + (m->layers - x->layers) * layer) * w->n_clusters / w->server_flops;
        messages += runs;
    }
    struct cp_air air = {n * c->edge[k].scale_s, n * c->edge[k].snr};
    struct cp_air_sum sum = {.n = 1,
                             .air = {air},
                             .weight = {v * messages},
                             .inverse = x->whole ? 0 : v * runs * n * c->edge_down_s[k]};
    double price = cp_queues_price(c->a->queues, w, c->cluster, c->device[k] + 1);
    struct apart a = {.joule = runs * work * d->energy_j_flop * price +
                               messages * c->edge_joule[k] / c->steps};
    a.time_cost = v * runs * (work / d->rate_flops + away_s) +
                  cp_air_least(&sum, x->price->uplink, 0, 1, &a.uplink);
    return a;
}

/* Values that the devices do not change: gamma, and what the broadcast costs beyond a plain one. */
static double common_cost(const struct way *x)
{
    const struct cp_lower_cluster *c = x->c;
    const struct cp_world *w = c->a->world;
    const struct cp_cluster *cl = &w->cluster[c->cluster];
    double error = cp_format_error(x->upload), gain = 0;
    double apart = 1 + (x->devices - 1) * cl->weight.spread;
    double cost = c->micro_price * apart / x->micro + c->error_price * error * error;
    if (c->broadcast_v > 0) {
        for (int k = 0; k < c->n; k++) {
            gain = fmax(gain, cl->gain_d2e[c->device[k] + 1]);
        }
        double bits = cp_upload_bits(w, w->model.layers - x->layers) +
                      (x->whole ? 8 * w->model.head.param_bytes : 0);
        cost += c->broadcast_v *
                (bits / cp_rate_down_bps(1, &w->radio, gain) - cp_broadcast_plain_s(w));
    }
    return cost;
}

static void try_way(const struct way *x, struct cp_lower_label *best)
{
    struct apart device[CP_DEVICES_MAX];
    int n = 0;
    double common = common_cost(x);
    for (int k = 0; k < x->c->n; k++) {
        if (fits(x, k)) {
            device[n++] = device_of(x, k);
        }
    }
    for (int longest = 0; longest < n; longest++) {
        double joule[CP_DEVICES_MAX]; /* of those that are not slower, rising */
        int many = 0;
        for (int k = 0; k < n; k++) {
            int at = many;
            if (k == longest || device[k].time_cost > device[longest].time_cost) {
                continue;
            }
            for (; at > 0 && joule[at - 1] > device[k].joule; at--) {
                joule[at] = joule[at - 1];
            }
            joule[at] = device[k].joule;
            many++;
        }
        if (many < x->devices - 1) {
            continue;
        }
        struct cp_lower_label l = {.free = common + device[longest].joule,
                                   .uplink = device[longest].uplink};
        for (int i = 0; i < x->devices - 1; i++) {
            l.free += joule[i];
        }
        l.cost = l.free + device[longest].time_cost;
        l.free += x->price->uplink * l.uplink;
        *best = l.cost < best->cost ? l : *best;
    }
}

void cp_lower_apart(const struct cp_lower_cluster *c, const struct cp_lower_price *price, int micro,
                    struct cp_lower_label *best)
{
    struct way x = {.c = c, .price = price, .micro = micro};
    int formats = c->set.formats ? CP_FORMAT_INT8 : CP_FORMAT_FP32, all = c->a->world->model.layers;
    for (x.devices = 1; x.devices <= c->n; x.devices++) {
        for (int f = 0; f <= formats; f++) {
            x.upload = (enum cp_format)f;
            x.whole = true;
            x.layers = all;
            try_way(&x, best);
            x.whole = false;
            for (x.layers = 1; x.layers <= all; x.layers++) {
                try_way(&x, best);
            }
        }
    }
}
