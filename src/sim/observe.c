#include "sim/observe.h"

#include <math.h>

/* Index into the gain matrices of the node at stage 0..S. */
static int node_at(const struct cp_cluster_plan *c, int stage)
{
    return stage == 0 ? 0 : c->device[stage - 1] + 1;
}

static void observe_stages(const struct cp_cluster_plan *c, int cluster, const struct cp_world *w,
                           const struct cp_sim_step *step, struct cp_estimate *e)
{
    const struct cp_model_cost *m = &w->model;
    for (int j = 0; j <= c->segments; j++) {
        const struct cp_part_cost *part = j == 0 ? &m->emb : &m->layer;
        double flops = c->micro_batches * (part->work_fwd_flops + part->work_bwd_flops);
        flops *= j == 0 ? 1 : c->layers[j - 1];
        cp_estimate_work(e, w->round, cluster, node_at(c, j), flops, step->busy_s[j]);
    }
}

static void observe_links(const struct cp_cluster_plan *c, int cluster, const struct cp_world *w,
                          const struct cp_sim_cluster *r, struct cp_estimate *e)
{
    double part = cp_plan_overlaps(c) ? 0.5 : 1;
    struct cp_link_sample s;
    for (int j = 0; j <= c->segments; j++) {
        bool edge = j == c->segments;
        s = (struct cp_link_sample){
            .bits = c->micro_batches * cp_link_fwd_bits(w, c->link_format[j]),
            .time_s = r->step.link_busy_fwd_s[j],
            .share = edge ? c->uplink_share : part * c->band_fwd[j],
            .power_w = c->power_fwd_w[j],
        };
        if (edge) {
            cp_estimate_d2e(e, w->round, &w->radio, cluster, node_at(c, j), &s);
        } else {
            cp_estimate_d2d(e, w->round, &w->radio, cluster, node_at(c, j), node_at(c, j + 1), &s);
        }
    }
    s = (struct cp_link_sample){.bits = cp_model_bits(c, w),
                                .time_s = r->upload_s,
                                .share = c->uplink_share,
                                .power_w = c->power_up_w};
    cp_estimate_d2e(e, w->round, &w->radio, cluster, 0, &s);
}

void cp_observe_round(const struct cp_plan *p, const struct cp_world *w,
                      const struct cp_sim_round *r, struct cp_estimate *e)
{
    for (int c = 0; c < p->n_clusters; c++) {
        if (!r->cluster[c].modelled) {
            observe_stages(&p->cluster[c], c, w, &r->cluster[c].step, e);
            observe_links(&p->cluster[c], c, w, &r->cluster[c], e);
        }
    }
}

static void add_error(const struct cp_estimate *seen, const struct cp_world *believed,
                      struct cp_figure_id id, struct cp_mean *mean)
{
    double error;
    if (cp_estimate_error(seen, believed, id, &error)) {
        cp_mean_add(mean, fabs(error));
    }
}

void cp_observe_errors(const struct cp_plan *p, const struct cp_world *believed,
                       const struct cp_estimate *seen, struct cp_mean *stages,
                       struct cp_mean *links)
{
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_plan *plan = &p->cluster[c];
        for (int j = 0; j <= plan->segments; j++) {
            struct cp_figure_id id = {.kind = CP_FIGURE_RATE, .cluster = c};
            id.node = node_at(plan, j);
            add_error(seen, believed, id, stages);
            id.kind = j < plan->segments ? CP_FIGURE_D2D : CP_FIGURE_D2E;
            id.peer = j < plan->segments ? node_at(plan, j + 1) : 0;
            add_error(seen, believed, id, links);
        }
        struct cp_figure_id upload = {.kind = CP_FIGURE_D2E, .cluster = c};
        add_error(seen, believed, upload, links);
    }
}
