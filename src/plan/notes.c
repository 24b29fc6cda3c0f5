/* notes: what binds, in a few words for people. */
#include "plan/solver.h"

#include <math.h>

/* The slowest cluster, and the stage or link that is busy longest per micro-batch. */
static void note_slowest(const struct cp_plan *p, const struct cp_world *w, struct cp_decision *d)
{
    struct cp_cluster_forecast f, slow = {0};
    int cluster = 0, at = 0;
    for (int c = 0; c < p->n_clusters; c++) {
        cp_cluster_forecast_make(&p->cluster[c], c, w, &f);
        if (f.round_s > slow.round_s) {
            slow = f;
            cluster = c;
        }
    }
    const struct cp_cluster *cl = &w->cluster[cluster];
    const struct cp_cluster_plan *c = &p->cluster[cluster];
    double longest = 0;
    bool link = false;
    if (c->mode != CP_MODE_PIPELINE) { /* no stages */
        cp_draft_note(d, "%s is slowest: mode %s", cl->name, cp_plan_mode_name(c->mode));
        return;
    }
    for (int j = 0; j <= c->segments + 1; j++) {
        double stage_s = slow.times.fwd_s[j] + slow.times.bwd_s[j];
        double link_s = j <= c->segments ? slow.times.link_fwd_s[j] + slow.times.link_bwd_s[j] : 0;
        if (fmax(stage_s, link_s) > longest) {
            longest = fmax(stage_s, link_s);
            link = link_s > stage_s;
            at = j;
        }
    }
    const char *name = at == 0             ? cl->cu.name
                       : at <= c->segments ? cl->device[c->device[at - 1]].name
                                           : "the edge server";
    cp_draft_note(d, "%s is slowest: %s %s", cl->name, link ? "link after" : "compute of", name);
}

static void note_prices(const struct cp_plan *p, const struct cp_policy_args *a,
                        struct cp_decision *d)
{
    const struct cp_world *w = a->world;
    const char *cluster = NULL, *node = NULL;
    double most = 0;
    for (int c = 0; c < p->n_clusters; c++) {
        struct cp_cluster_forecast f;
        cp_cluster_forecast_make(&p->cluster[c], c, w, &f);
        for (int k = 0; k <= w->cluster[c].n_devices; k++) {
            double cost = cp_queues_price(a->queues, w, c, k) * f.energy_j[k];
            if (cost > most) {
                most = cost;
                cluster = w->cluster[c].name;
                node = k == 0 ? w->cluster[c].cu.name : w->cluster[c].device[k - 1].name;
            }
        }
    }
    if (cluster) {
        cp_draft_note(d, "energy queue of %s.%s", cluster, node);
    }
    if (a->choose_micro && a->queues && a->queues->convergence > 0) {
        cp_draft_note(d, "convergence queue");
    }
}

static void note_backlog(const struct cp_plan *p, const struct cp_world *w, struct cp_decision *d)
{
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster *cl = &w->cluster[c];
        if (p->cluster[c].micro_batches == cl->micro_limit && cl->micro_limit < w->micro_max) {
            cp_draft_note(d, "samples that wait in %s", cl->name);
        }
    }
}

static void note_memory(struct cp_solver *x, const struct cp_plan *p, struct cp_decision *d)
{
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_plan *k = &p->cluster[c];
        if (k->mode != CP_MODE_PIPELINE) {
            continue; /* one slot, whatever the order */
        }
        cp_room_init(x->room, x->a->world, c);
        for (int s = 0; s < k->segments; s++) {
            bool full = k->layers[s] < x->a->world->model.layers &&
                        k->layers[s] == cp_room_layers(x->room, k->device[s], k->slots[s + 1]);
            if (full) {
                cp_draft_note(d, "memory of %s.%s", x->room->cl->name,
                              x->room->cl->device[k->device[s]].name);
            }
        }
        cp_draft_note_order(x->a, x->room->cl, k, d);
    }
}

void cp_solver_note(struct cp_solver *x, const struct cp_plan *p, struct cp_decision *d)
{
    note_slowest(p, x->a->world, d);
    note_prices(p, x->a, d);
    note_backlog(p, x->a->world, d);
    note_memory(x, p, d);
}
