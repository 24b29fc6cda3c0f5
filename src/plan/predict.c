#include "plan/predict.h"

#include "base/mem.h"
#include "world/radio.h"

#include <math.h>

double cp_layers_bits(const struct cp_world *w, int layers)
{
    return 8 * w->model.layer.param_bytes * layers;
}

double cp_upload_bits(const struct cp_world *w)
{
    return cp_layers_bits(w, w->model.layers) + 8 * w->model.emb.param_bytes;
}

double cp_link_fwd_bits(const struct cp_world *w)
{
    return 8 * (w->model.boundary_bytes + w->model.label_bytes);
}

double cp_link_bwd_bits(const struct cp_world *w)
{
    return 8 * w->model.boundary_bytes;
}

/* eta beta H = 2/5 makes eta beta (H - 1) = 2/5 (H - 1) / H (section 8). */
static double alpha_of(double rho, int local_steps)
{
    return rho * rho + 0.4 * (local_steps - 1) / local_steps * rho;
}

double cp_alpha(const struct cp_world *w, int cluster)
{
    double data = 0, sum = 0;
    for (int c = 0; c < w->n_clusters; c++) {
        data += w->cluster[c].data_size;
    }
    if (!(data > 0)) {
        return 1.0 / w->n_clusters;
    }
    for (int c = 0; c < w->n_clusters; c++) {
        sum += alpha_of(w->cluster[c].data_size / data, w->local_steps);
    }
    return alpha_of(w->cluster[cluster].data_size / data, w->local_steps) / sum;
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
    out->fwd_s[last + 1] = m->head.work_fwd_flops * w->n_clusters / w->server_flops;
    out->bwd_s[last + 1] = m->head.work_bwd_flops * w->n_clusters / w->server_flops;
    double band = r->band_d2d_hz * (cp_plan_overlaps(c) ? 0.5 : 1);
    double fwd_bits = cp_link_fwd_bits(w), bwd_bits = cp_link_bwd_bits(w);
    for (int j = 0; j < last; j++) {
        double g = cl->gain_d2d[node_index(c, j)][node_index(c, j + 1)];
        out->link_fwd_s[j] =
            fwd_bits / cp_rate_bps(c->band_fwd[j], band, c->power_fwd_w[j], g, r->noise_w_hz);
        out->link_bwd_s[j] =
            bwd_bits / cp_rate_bps(c->band_bwd[j], band, c->power_bwd_w[j + 1], g, r->noise_w_hz);
    }
    int node = node_index(c, last);
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
        out->mem_bytes[s] =
            w->model.segment_bytes(w->model.segment_arg, c->layers[s], c->slots[s + 1]);
    }
    out->upload_s =
        cp_upload_bits(w) / cp_rate_bps(c->uplink_share, w->radio.band_up_hz, c->power_up_w,
                                        cl->gain_d2e[0], w->radio.noise_w_hz);
    out->energy_j[0] += c->power_up_w * out->upload_s;
    out->round_s = w->local_steps * out->step_s + out->scatter_s + out->gather_s + out->upload_s;
}

static double full_bits(const struct cp_world *w)
{
    return cp_upload_bits(w) + 8 * w->model.head.param_bytes;
}

/* FedAvg on the whole model (section 13): M b / K samples a step on each used device. */
static void forecast_full(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                          const struct cp_world *w, struct cp_cluster_forecast *out)
{
    const struct cp_model_cost *m = &w->model;
    double work = m->emb.work_fwd_flops + m->emb.work_bwd_flops + m->head.work_fwd_flops +
                  m->head.work_bwd_flops +
                  m->layers * (m->layer.work_fwd_flops + m->layer.work_bwd_flops);
    work *= (double)c->micro_batches / c->segments;
    double busy = 0;
    out->times.segments = c->segments;
    for (int s = 0; s < c->segments; s++) {
        const struct cp_device *d = &cl->device[c->device[s]];
        int node = c->device[s] + 1;
        double step = work / d->rate_flops, power = c->power_fwd_w[s + 1];
        double upload =
            full_bits(w) / cp_rate_bps(c->uplink_share / c->segments, w->radio.band_up_hz, power,
                                       cl->gain_d2e[node], w->radio.noise_w_hz);
        out->step_s = fmax(out->step_s, step);
        out->upload_s = fmax(out->upload_s, upload);
        out->round_s = fmax(out->round_s, w->local_steps * step + upload);
        out->energy_j[node] = w->local_steps * work * d->energy_j_flop + power * upload;
        out->mem_bytes[s] = m->full_bytes_micro;
        busy += step;
    }
    out->bubble = fmax(0, 1 - busy / (c->segments * out->step_s));
}

void cp_cluster_forecast_make(const struct cp_cluster_plan *c, int cluster,
                              const struct cp_world *w, struct cp_cluster_forecast *out)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    *out = (struct cp_cluster_forecast){0};
    if (c->mode == CP_MODE_FULL) {
        forecast_full(c, cl, w, out);
    } else {
        forecast_pipeline(c, cl, w, out);
    }
}

double cp_broadcast_s(const struct cp_cluster_plan *c, int cluster, const struct cp_world *w)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    if (c->mode == CP_MODE_PIPELINE) {
        return cp_upload_bits(w) / cp_rate_down_bps(1, &w->radio, cl->gain_d2e[0]);
    }
    double gain = INFINITY;
    for (int s = 0; s < c->segments; s++) {
        gain = fmin(gain, cl->gain_d2e[c->device[s] + 1]);
    }
    return full_bits(w) / cp_rate_down_bps(1, &w->radio, gain);
}

static void add_moves(const struct cp_move *moves, int n, const struct cp_world *w,
                      struct cp_forecast *f)
{
    double bits = 8 * w->model.optim_words * w->model.layer.param_bytes;
    for (int i = 0; i < n; i++) {
        const struct cp_cluster *cl = &w->cluster[moves[i].cluster];
        const struct cp_device *from = &cl->device[moves[i].from];
        if (!from->present) {
            continue;
        }
        double t = bits / transfer_rate_bps(cl, w, moves[i].from + 1, moves[i].to + 1);
        f->cluster[moves[i].cluster].round_s += t;
        f->cluster[moves[i].cluster].energy_j[moves[i].from + 1] += from->power_d2d_w * t;
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
    add_moves(moves, n_moves, w, &f);
    double slowest = 0;
    for (int c = 0; c < p->n_clusters; c++) {
        f.broadcast_s = fmax(f.broadcast_s, cp_broadcast_s(&p->cluster[c], c, w));
        slowest = fmax(slowest, f.cluster[c].round_s);
        f.gamma += w->micro_ref * cp_alpha(w, c) / p->cluster[c].micro_batches;
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
