/* round: the steps of every cluster, and the transfers around them (docs/theory.md section 6.3). */
#include "sim/program.h"
#include "world/radio.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

static void make_costs(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                       const struct cp_world *w, struct cp_sim_costs *out)
{
    const struct cp_model_cost *m = &w->model;
    *out = (struct cp_sim_costs){.round = w->round, .step = -1};
    cp_times_make(c, cl, w, &out->times);
    for (int j = 0; j <= c->segments; j++) { /* the edge server's energy is not counted */
        const struct cp_device *d = j == 0 ? &cl->cu : &cl->device[c->device[j - 1]];
        const struct cp_part_cost *part = j == 0 ? &m->emb : &m->layer;
        double parts = j == 0 ? 1 : c->layers[j - 1];
        out->fwd_j[j] = d->energy_j_flop * parts * part->work_fwd_flops;
        out->bwd_j[j] = d->energy_j_flop * parts * part->work_bwd_flops;
        out->act_bytes[j] = llround(cp_link_fwd_bits(w, c->link_format[j]) / 8);
        out->grad_bytes[j + 1] = llround(cp_link_bwd_bits(w, c->link_format[j]) / 8);
        out->send_act_j[j] = c->power_fwd_w[j] * out->times.link_fwd_s[j];
        out->send_grad_j[j] = j > 0 ? c->power_bwd_w[j] * out->times.link_bwd_s[j - 1] : 0;
    }
}

void cp_sim_costs_make(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                       const struct cp_world *w, struct cp_sim_costs *out)
{
    make_costs(c, cl, w, out);
    for (int j = 0; j <= c->segments; j++) {
        const char *node = j == 0 ? cl->cu.name : cl->device[c->device[j - 1]].name;
        snprintf(out->node[j], sizeof out->node[j], "%s.%s", cl->name, node);
    }
    snprintf(out->node[c->segments + 1], sizeof out->node[0], "edge");
}

static cp_err run_step(struct cp_programs *known, const struct cp_cluster_plan *c,
                       const struct cp_cluster *cl, const struct cp_world *w,
                       struct cp_sim_step *out)
{
    struct cp_program *program;
    struct cp_sim_costs costs;
    cp_err err = cp_programs_find(known, c->segments + 2, c->micro_batches, c->slots, &program);
    if (err) {
        return cp_fail_in(err, "cluster %s", cl->name);
    }
    make_costs(c, cl, w, &costs);
    cp_program_run(program, &costs, NULL, out);
    return CP_OK;
}

/* One transfer after another over the whole D2D band at full power; node 0 is the CU. The sender
 * pays. Returns its time. */
static double send_d2d(const struct cp_cluster *cl, const struct cp_radio *radio, int from, int to,
                       double bytes, double *energy_j)
{
    double power_w = from == 0 ? cl->cu.power_d2d_w : cl->device[from - 1].power_d2d_w;
    double time_s =
        8 * bytes /
        cp_rate_bps(1, radio->band_d2d_hz, power_w, cl->gain_d2d[from][to], radio->noise_w_hz);
    energy_j[from] += power_w * time_s;
    return time_s;
}

/* Of the embedding and the layers that are not on the edge server. */
static double upload_bytes(const struct cp_cluster_plan *c, const struct cp_model_cost *m)
{
    return (m->layers - c->edge_layers) * m->layer.param_bytes + m->emb.param_bytes;
}

static void run_transfers(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                          const struct cp_world *w, struct cp_sim_cluster *out)
{
    for (int s = 0; s < c->segments; s++) {
        double bytes = c->layers[s] * w->model.layer.param_bytes;
        int node = c->device[s] + 1;
        out->scatter_s += send_d2d(cl, &w->radio, 0, node, bytes, out->energy_j);
        out->gather_s += send_d2d(cl, &w->radio, node, 0, bytes, out->energy_j);
    }
    out->upload_s = 8 * upload_bytes(c, &w->model) *
                    cp_format_size(c->upload_format, w->model.width) /
                    cp_rate_bps(c->uplink_share, w->radio.band_up_hz, c->power_up_w,
                                cl->gain_d2e[0], w->radio.noise_w_hz);
    out->energy_j[0] += c->power_up_w * out->upload_s;
}

/* The H steps of a round are equal: one is run, and counts H times. */
static cp_err run_pipeline(struct cp_programs *known, const struct cp_cluster_plan *c,
                           const struct cp_cluster *cl, const struct cp_world *w,
                           struct cp_sim_cluster *out)
{
    *out = (struct cp_sim_cluster){0};
    CP_TRY(run_step(known, c, cl, w, &out->step));
    out->step_s = out->step.step_s;
    out->bubble = out->step.bubble;
    for (int j = 0; j <= c->segments; j++) {
        int node = j == 0 ? 0 : c->device[j - 1] + 1;
        out->energy_j[node] += w->local_steps * out->step.energy_j[j];
    }
    run_transfers(c, cl, w, out);
    out->round_s = w->local_steps * out->step_s + out->scatter_s + out->gather_s + out->upload_s;
    return CP_OK;
}

static void take_forecast(const struct cp_cluster_forecast *f, struct cp_sim_cluster *out)
{
    *out = (struct cp_sim_cluster){.modelled = true,
                                   .step_s = f->step_s,
                                   .scatter_s = f->scatter_s,
                                   .gather_s = f->gather_s,
                                   .upload_s = f->upload_s,
                                   .round_s = f->round_s,
                                   .bubble = f->bubble};
    for (int k = 0; k <= CP_DEVICES_MAX; k++) {
        out->energy_j[k] = f->energy_j[k];
    }
}

static cp_err run_cluster(struct cp_programs *known, const struct cp_plan *p,
                          const struct cp_world *w, int index, struct cp_sim_cluster *out)
{
    const struct cp_cluster_plan *c = &p->cluster[index];
    if (c->mode == CP_MODE_PIPELINE) {
        return run_pipeline(known, c, &w->cluster[index], w, out);
    }
    struct cp_cluster_forecast forecast;
    cp_cluster_forecast_make(c, index, w, &forecast);
    take_forecast(&forecast, out);
    return CP_OK;
}

/* Moments go from owner to owner; what an absent device held is lost, not sent. */
static void run_moves(const struct cp_plan *p, const struct cp_world *w,
                      const struct cp_move *moves, int n_moves, struct cp_sim_cluster *cluster)
{
    for (int i = 0; i < n_moves; i++) {
        const struct cp_move *m = &moves[i];
        struct cp_sim_cluster *c = &cluster[m->cluster];
        double energy_j, time_s = cp_move_cost_s(m, &p->cluster[m->cluster], w, &energy_j);
        c->moves_s += time_s;
        c->round_s += time_s;
        if (m->from != CP_OWNER_EDGE) {
            c->energy_j[m->from + 1] += energy_j;
        }
    }
}

/* The global model reaches a CU over the whole downlink. */
static double broadcast_s(const struct cp_plan *p, const struct cp_world *w, int index)
{
    const struct cp_cluster_plan *c = &p->cluster[index];
    if (c->mode != CP_MODE_PIPELINE) {
        return cp_broadcast_s(c, index, w); /* modelled, like the rest of it */
    }
    return 8 * upload_bytes(c, &w->model) /
           cp_rate_down_bps(1, &w->radio, w->cluster[index].gain_d2e[0]);
}

static void sum_up(const struct cp_plan *p, const struct cp_world *w, struct cp_sim_round *r)
{
    double slowest_s = 0, bubbles = 0;
    int stages = 0;
    r->broadcast_s = r->energy_j = 0;
    for (int i = 0; i < r->n_clusters; i++) {
        const struct cp_sim_cluster *c = &r->cluster[i];
        int n = c->modelled ? p->cluster[i].segments : c->step.n_stages;
        r->broadcast_s = fmax(r->broadcast_s, broadcast_s(p, w, i));
        slowest_s = fmax(slowest_s, c->round_s);
        for (int k = 0; k <= w->cluster[i].n_devices; k++) {
            r->energy_j += c->energy_j[k];
        }
        stages += n;
        bubbles += c->bubble * n;
    }
    r->latency_s = r->broadcast_s + slowest_s;
    r->bubble = bubbles / stages;
}

static cp_err make_room(struct cp_sim_round *r, int n_clusters)
{
    if (r->n_clusters != n_clusters) {
        struct cp_sim_cluster *cluster;
        CP_TRY(cp_mem_array(NULL, (size_t)n_clusters, sizeof *cluster, &cluster));
        cp_sim_round_fini(r);
        *r = (struct cp_sim_round){.n_clusters = n_clusters, .cluster = cluster};
    }
    return CP_OK;
}

cp_err cp_sim_round_again(struct cp_programs *known, const struct cp_plan *p,
                          const struct cp_world *w, const struct cp_move *moves, int n_moves,
                          struct cp_sim_round *r)
{
    assert(p->n_clusters == w->n_clusters && p->n_clusters >= 1 && n_moves >= 0);
    CP_TRY(make_room(r, p->n_clusters));
    for (int i = 0; i < r->n_clusters; i++) {
        CP_TRY(run_cluster(known, p, w, i, &r->cluster[i]));
    }
    run_moves(p, w, moves, n_moves, r->cluster);
    sum_up(p, w, r);
    return CP_OK;
}

cp_err cp_sim_round(const struct cp_plan *p, const struct cp_world *w, const struct cp_move *moves,
                    int n_moves, struct cp_sim_round *out)
{
    struct cp_programs *known;
    struct cp_sim_round r = {0};
    CP_TRY(cp_programs_new(&known));
    cp_err err = cp_sim_round_again(known, p, w, moves, n_moves, &r);
    cp_programs_free(known);
    if (err) {
        cp_sim_round_fini(&r);
        return err;
    }
    *out = r;
    return CP_OK;
}

void cp_sim_round_fini(struct cp_sim_round *r)
{
    cp_mem_free(r->cluster);
    *r = (struct cp_sim_round){0};
}
