#include "plan/predict.h"

#include "base/mem.h"
#include "world/radio.h"

#include <math.h>

double cp_layers_bits(const struct cp_world *w, int layers)
{
    return 8 * w->model.layer.param_bytes * layers;
}

double cp_upload_bits(const struct cp_world *w, int edge_layers)
{
    return cp_layers_bits(w, w->model.layers - edge_layers) + 8 * w->model.emb.param_bytes;
}

double cp_model_bits(const struct cp_cluster_plan *c, const struct cp_world *w)
{
    double head = c->mode == CP_MODE_FULL ? 8 * w->model.head.param_bytes : 0;
    return (cp_upload_bits(w, c->edge_layers) + head) *
           cp_format_size(c->upload_format, w->model.width);
}

double cp_link_bwd_bits(const struct cp_world *w, enum cp_format format)
{
    return 8 * w->model.boundary_bytes * cp_format_size(format, w->model.width);
}

double cp_link_fwd_bits(const struct cp_world *w, enum cp_format format)
{
    return cp_link_bwd_bits(w, format) + 8 * w->model.label_bytes;
}

double cp_cluster_gamma(const struct cp_cluster_plan *c, const struct cp_world *w, int cluster)
{
    const struct cp_weight *weight = &w->cluster[cluster].weight;
    int apart = c->mode == CP_MODE_PIPELINE ? 1 : c->segments;
    double error = cp_format_error(c->upload_format);
    for (int j = 0; c->mode == CP_MODE_PIPELINE && j <= c->segments; j++) {
        error += 2 * cp_format_error(c->link_format[j]); /* there and back */
    }
    return w->micro_ref * (weight->alpha * (1 + (apart - 1) * weight->spread) / c->micro_batches +
                           weight->lossy * error * error);
}

static const struct cp_device *node_at(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                                       int stage)
{
    return stage == 0 ? &cl->cu : &cl->device[c->device[stage - 1]];
}

/* Index into the gain matrices. */
static int node_index(const struct cp_cluster_plan *c, int stage)
{
    return stage == 0 ? 0 : c->device[stage - 1] + 1;
}

/* Parameters go between CU and device over the whole band at full power (section 5). */
static double transfer_rate_bps(const struct cp_cluster *cl, const struct cp_world *w, int from,
                                int to)
{
    double power = from == 0 ? cl->cu.power_d2d_w : cl->device[from - 1].power_d2d_w;
    return cp_rate_bps(1, w->radio.band_d2d_hz, power, cl->gain_d2d[from][to], w->radio.noise_w_hz);
}

void cp_times_make(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                   const struct cp_world *w, struct cp_times *out)
{
    const struct cp_model_cost *m = &w->model;
    const struct cp_radio *r = &w->radio;
    int last = c->segments; /* the stage that sends to the edge server */
    *out = (struct cp_times){.segments = c->segments};
    out->fwd_s[0] = m->emb.work_fwd_flops / cl->cu.rate_flops;
    out->bwd_s[0] = m->emb.work_bwd_flops / cl->cu.rate_flops;
    for (int s = 0; s < c->segments; s++) {
        double rate = cl->device[c->device[s]].rate_flops;
        out->fwd_s[s + 1] = c->layers[s] * m->layer.work_fwd_flops / rate;
        out->bwd_s[s + 1] = c->layers[s] * m->layer.work_bwd_flops / rate;
    }
    double server = w->server_flops / w->n_clusters;
    out->fwd_s[last + 1] =
        (m->head.work_fwd_flops + c->edge_layers * m->layer.work_fwd_flops) / server;
    out->bwd_s[last + 1] =
        (m->head.work_bwd_flops + c->edge_layers * m->layer.work_bwd_flops) / server;
    double band = r->band_d2d_hz * (cp_plan_overlaps(c) ? 0.5 : 1);
    double fwd_bits, bwd_bits;
    for (int j = 0; j < last; j++) {
        fwd_bits = cp_link_fwd_bits(w, c->link_format[j]);
        bwd_bits = cp_link_bwd_bits(w, c->link_format[j]);
        double g = cl->gain_d2d[node_index(c, j)][node_index(c, j + 1)];
        out->link_fwd_s[j] =
            fwd_bits / cp_rate_bps(c->band_fwd[j], band, c->power_fwd_w[j], g, r->noise_w_hz);
        out->link_bwd_s[j] =
            bwd_bits / cp_rate_bps(c->band_bwd[j], band, c->power_bwd_w[j + 1], g, r->noise_w_hz);
    }
    int node = node_index(c, last);
    fwd_bits = cp_link_fwd_bits(w, c->link_format[last]);
    bwd_bits = cp_link_bwd_bits(w, c->link_format[last]);
    out->link_fwd_s[last] =
        fwd_bits / cp_rate_bps(c->uplink_share, r->band_up_hz, c->power_fwd_w[last],
                               cl->gain_d2e[node], r->noise_w_hz);
    out->link_bwd_s[last] = bwd_bits / cp_rate_down_bps(c->uplink_share, r, cl->gain_d2e[node]);
}

double cp_micro_energy_j(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                         const struct cp_world *w, const struct cp_times *t, int stage)
{
    const struct cp_part_cost *part = stage == 0 ? &w->model.emb : &w->model.layer;
    double work = (part->work_fwd_flops + part->work_bwd_flops);
    work *= stage == 0 ? 1 : c->layers[stage - 1];
    double e = node_at(c, cl, stage)->energy_j_flop * work;
    e += c->power_fwd_w[stage] * t->link_fwd_s[stage];
    if (stage > 0) {
        e += c->power_bwd_w[stage] * t->link_bwd_s[stage - 1];
    }
    return e;
}

static void forecast_pipeline(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                              const struct cp_world *w, struct cp_cluster_forecast *out)
{
    cp_times_make(c, cl, w, &out->times);
    out->step_s = cp_step_s(c, &out->times);
    double runs = (double)w->local_steps * c->micro_batches, busy = 0;
    for (int j = 0; j <= c->segments + 1; j++) {
        busy += c->micro_batches * (out->times.fwd_s[j] + out->times.bwd_s[j]);
    }
    out->bubble = fmax(0, 1 - busy / ((c->segments + 2) * out->step_s));
    out->energy_j[0] = runs * cp_micro_energy_j(c, cl, w, &out->times, 0);
    for (int s = 0; s < c->segments; s++) {
        int node = c->device[s] + 1;
        double bits = cp_layers_bits(w, c->layers[s]);
        double scatter = bits / transfer_rate_bps(cl, w, 0, node);
        double gather = bits / transfer_rate_bps(cl, w, node, 0);
        out->scatter_s += scatter;
        out->gather_s += gather;
        out->energy_j[0] += cl->cu.power_d2d_w * scatter;
        out->energy_j[node] = runs * cp_micro_energy_j(c, cl, w, &out->times, s + 1) +
                              cl->device[c->device[s]].power_d2d_w * gather;
        out->mem_bytes[s] = cp_plan_mem_bytes(c, s, &w->model);
    }
    out->upload_s =
        cp_model_bits(c, w) / cp_rate_bps(c->uplink_share, w->radio.band_up_hz, c->power_up_w,
                                          cl->gain_d2e[0], w->radio.noise_w_hz);
    out->energy_j[0] += c->power_up_w * out->upload_s;
    out->round_s = w->local_steps * out->step_s + out->scatter_s + out->gather_s + out->upload_s;
}

/* One device that works by itself, in full and split: its share of the micro-batches of a step, one
 * after another (section 13). */
static void forecast_apart(const struct cp_cluster_plan *c, int s, const struct cp_cluster *cl,
                           const struct cp_world *w, struct cp_cluster_forecast *out)
{
    const struct cp_model_cost *m = &w->model;
    const struct cp_device *d = &cl->device[c->device[s]];
    int node = c->device[s] + 1, layers = c->layers[s];
    double share = c->uplink_share / c->segments, runs = (double)c->micro_batches / c->segments;
    double layer = m->layer.work_fwd_flops + m->layer.work_bwd_flops;
    double head = m->head.work_fwd_flops + m->head.work_bwd_flops;
    double work = m->emb.work_fwd_flops + m->emb.work_bwd_flops + layers * layer;
    double power = c->power_fwd_w[s + 1], gain = cl->gain_d2e[node];
    double rate_bps = cp_rate_bps(share, w->radio.band_up_hz, power, gain, w->radio.noise_w_hz);
    double air_s = 0, away_s = 0; /* per micro-batch: sending; everything that is not the device */
    if (c->mode == CP_MODE_SPLIT) {
        double server = w->server_flops / w->n_clusters / c->segments;
        air_s = cp_link_fwd_bits(w, CP_FORMAT_FP32) / rate_bps;
        away_s = air_s + (head + c->edge_layers * layer) / server +
                 cp_link_bwd_bits(w, CP_FORMAT_FP32) / cp_rate_down_bps(share, &w->radio, gain);
    } else {
        work += head;
    }
    double busy_s = runs * work / d->rate_flops, upload_s = cp_model_bits(c, w) / rate_bps;
    double step_s = busy_s + runs * away_s, round_s = w->local_steps * step_s + upload_s;
    out->step_s = fmax(out->step_s, step_s);
    out->upload_s = fmax(out->upload_s, upload_s);
    out->round_s = fmax(out->round_s, round_s);
    out->energy_j[node] =
        w->local_steps * runs * (work * d->energy_j_flop + power * air_s) + power * upload_s;
    out->mem_bytes[s] = cp_plan_mem_bytes(c, s, m);
    out->bubble += busy_s; /* the sum, until it is known how long the step is */
}

void cp_cluster_forecast_make(const struct cp_cluster_plan *c, int cluster,
                              const struct cp_world *w, struct cp_cluster_forecast *out)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    *out = (struct cp_cluster_forecast){0};
    if (c->mode == CP_MODE_PIPELINE) {
        forecast_pipeline(c, cl, w, out);
        return;
    }
    out->times.segments = c->segments;
    for (int s = 0; s < c->segments; s++) {
        forecast_apart(c, s, cl, w, out);
    }
    out->bubble = fmax(0, 1 - out->bubble / (c->segments * out->step_s));
}

double cp_broadcast_s(const struct cp_cluster_plan *c, int cluster, const struct cp_world *w)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    double gain = cl->gain_d2e[0], head = 0;
    if (c->mode != CP_MODE_PIPELINE) {
        gain = INFINITY;
        for (int s = 0; s < c->segments; s++) {
            gain = fmin(gain, cl->gain_d2e[c->device[s] + 1]);
        }
        head = c->mode == CP_MODE_FULL ? 8 * w->model.head.param_bytes : 0;
    }
    return (cp_upload_bits(w, c->edge_layers) + head) / cp_rate_down_bps(1, &w->radio, gain);
}

double cp_broadcast_plain_s(const struct cp_world *w)
{
    double gain = INFINITY;
    for (int c = 0; c < w->n_clusters; c++) {
        gain = fmin(gain, w->cluster[c].gain_d2e[0]);
    }
    return cp_upload_bits(w, 0) / cp_rate_down_bps(1, &w->radio, gain);
}

/* Time of one block's moments between two owners; the edge server sends over its whole band. */
static double move_s(const struct cp_move *m, const struct cp_cluster *cl, const struct cp_world *w,
                     double share)
{
    double bits = 8 * w->model.optim_words * w->model.layer.param_bytes;
    if (m->from == CP_OWNER_EDGE) {
        return bits / cp_rate_down_bps(1, &w->radio, cl->gain_d2e[m->to + 1]);
    }
    const struct cp_device *from = &cl->device[m->from];
    if (m->to == CP_OWNER_EDGE) {
        return bits / cp_rate_bps(share, w->radio.band_up_hz, from->power_d2e_w,
                                  cl->gain_d2e[m->from + 1], w->radio.noise_w_hz);
    }
    return bits / transfer_rate_bps(cl, w, m->from + 1, m->to + 1);
}

double cp_move_cost_s(const struct cp_move *m, const struct cp_cluster_plan *c,
                      const struct cp_world *w, double *energy_j)
{
    const struct cp_cluster *cl = &w->cluster[m->cluster];
    *energy_j = 0;
    if (m->from != CP_OWNER_EDGE && !cl->device[m->from].present) {
        return 0;
    }
    double t = move_s(m, cl, w, c->uplink_share);
    if (m->from != CP_OWNER_EDGE) {
        const struct cp_device *d = &cl->device[m->from];
        *energy_j = (m->to == CP_OWNER_EDGE ? d->power_d2e_w : d->power_d2d_w) * t;
    }
    return t;
}

static void add_moves(const struct cp_plan *p, const struct cp_move *moves, int n,
                      const struct cp_world *w, struct cp_forecast *f)
{
    for (int i = 0; i < n; i++) {
        const struct cp_move *m = &moves[i];
        double energy_j, t = cp_move_cost_s(m, &p->cluster[m->cluster], w, &energy_j);
        f->cluster[m->cluster].round_s += t;
        if (m->from != CP_OWNER_EDGE) {
            f->cluster[m->cluster].energy_j[m->from + 1] += energy_j;
        }
    }
}

cp_err cp_forecast_make(const struct cp_plan *p, const struct cp_world *w,
                        const struct cp_move *moves, int n_moves, struct cp_forecast *out)
{
    struct cp_forecast f = {.n_clusters = p->n_clusters};
    CP_TRY(cp_mem_array(NULL, (size_t)p->n_clusters, sizeof *f.cluster, &f.cluster));
    for (int c = 0; c < p->n_clusters; c++) {
        cp_cluster_forecast_make(&p->cluster[c], c, w, &f.cluster[c]);
    }
    add_moves(p, moves, n_moves, w, &f);
    double slowest = 0;
    for (int c = 0; c < p->n_clusters; c++) {
        f.broadcast_s = fmax(f.broadcast_s, cp_broadcast_s(&p->cluster[c], c, w));
        slowest = fmax(slowest, f.cluster[c].round_s);
        f.gamma += cp_cluster_gamma(&p->cluster[c], w, c);
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            f.energy_j += f.cluster[c].energy_j[node];
        }
    }
    f.latency_s = f.broadcast_s + slowest;
    *out = f;
    return CP_OK;
}

void cp_forecast_fini(struct cp_forecast *f)
{
    cp_mem_free(f->cluster);
    *f = (struct cp_forecast){0};
}
