/* Virtual queues (docs/theory.md section 10): what the long-term constraints cost today. */
#include "plan/draft.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>

cp_err cp_queues_init(struct cp_queues *q, const struct cp_world *mean, double v_prime)
{
    if (!isfinite(v_prime) || v_prime < 0) {
        return cp_fail(CP_E_CONFIG, "V' is %g; it must be a finite number, 0 or more", v_prime);
    }
    CP_TRY(cp_world_check(mean));
    double slowest = 0, maxima = 0, broadcast = 0;
    for (int c = 0; c < mean->n_clusters; c++) {
        struct cp_cluster_plan p;
        struct cp_cluster_forecast f;
        CP_TRY(cp_draft_uniform(mean, c, &p));
        p.order = CP_ORDER_GPIPE;
        cp_plan_set_slots(&p);
        cp_draft_radio(&p, mean, c);
        cp_cluster_forecast_make(&p, c, mean, &f);
        slowest = fmax(slowest, f.round_s);
        broadcast = fmax(broadcast, cp_broadcast_s(&p, c, mean));
        maxima += cp_times_max_fwd_s(&f.times) + cp_times_max_bwd_s(&f.times);
    }
    double reference_s = broadcast + slowest;
    if (!isfinite(reference_s)) {
        return cp_fail(CP_E_PLAN,
                       "V' has no scale: on mean channels a round of gpipe-uniform would "
                       "never end, because a link is dead or a node too slow");
    }
    struct cp_queues fresh = {.n_clusters = mean->n_clusters};
    CP_TRY(cp_mem_array(NULL, (size_t)mean->n_clusters, sizeof *fresh.energy, &fresh.energy));
    fresh.v = v_prime / reference_s;
    fresh.convergence = mean->micro_ref * fresh.v / mean->n_clusters * mean->local_steps * maxima;
    *q = fresh;
    return CP_OK;
}

void cp_queues_fini(struct cp_queues *q)
{
    cp_mem_free(q->energy);
    *q = (struct cp_queues){0};
}

void cp_queues_advance(struct cp_queues *q, const struct cp_world *w, const struct cp_forecast *f)
{
    assert(q->n_clusters == w->n_clusters && f->n_clusters == w->n_clusters);
    for (int c = 0; c < w->n_clusters; c++) {
        const struct cp_cluster *cl = &w->cluster[c];
        for (int node = 0; node <= cl->n_devices; node++) {
            double budget = node == 0 ? cl->cu.budget_j : cl->device[node - 1].budget_j;
            double *z = &q->energy[c][node];
            *z = budget > 0 ? fmax(*z + f->cluster[c].energy_j[node] / budget - 1, 0) : 0;
        }
    }
    q->convergence = fmax(q->convergence + f->gamma - 1, 0);
}

double cp_queues_price(const struct cp_queues *q, const struct cp_world *w, int cluster, int node)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    double budget = node == 0 ? cl->cu.budget_j : cl->device[node - 1].budget_j;
    return q && budget > 0 ? q->energy[cluster][node] / budget : 0;
}

double cp_queues_micro_price(const struct cp_queues *q, const struct cp_world *w, int cluster)
{
    return q ? q->convergence * w->micro_ref * w->cluster[cluster].weight.alpha : 0;
}

double cp_queues_v(const struct cp_queues *q)
{
    return q ? q->v : 1;
}
