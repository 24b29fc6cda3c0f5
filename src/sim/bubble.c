#include "sim/bubble.h"

#include <math.h>
#include <string.h>

static void free_links(struct cp_times *t)
{
    memset(t->link_fwd_s, 0, sizeof t->link_fwd_s);
    memset(t->link_bwd_s, 0, sizeof t->link_bwd_s);
}

static void equal_stages(struct cp_times *t, int n)
{
    double fwd_s = 0, bwd_s = 0;
    for (int j = 0; j < n; j++) {
        fwd_s += t->fwd_s[j] / n;
        bwd_s += t->bwd_s[j] / n;
    }
    for (int j = 0; j < n; j++) {
        t->fwd_s[j] = fwd_s;
        t->bwd_s[j] = bwd_s;
    }
}

/* A step is a maximum of sums of times: it cannot be shorter than a stage is busy, nor longer with
 * free links. With unequal stages it can be shorter than with equal ones (few slots, few
 * micro-batches), hence the minimum. */
cp_err cp_bubble_make(const struct cp_ops *lists, int n_stages, const struct cp_times *t,
                      struct cp_bubble *out)
{
    struct cp_sim_step real, light, even;
    struct cp_times times = *t;
    CP_TRY(cp_sim_step(lists, n_stages, &times, NULL, &real));
    free_links(&times);
    CP_TRY(cp_sim_step(lists, n_stages, &times, NULL, &light));
    equal_stages(&times, n_stages);
    CP_TRY(cp_sim_step(lists, n_stages, &times, NULL, &even));
    struct cp_bubble b = {.n_stages = n_stages, .step_s = real.step_s};
    double most_fill_s = even.step_s - even.busy_s[0];
    for (int j = 0; j < n_stages; j++) {
        struct cp_bubble_parts *p = &b.stage[j];
        double idle_s = light.step_s - light.busy_s[j];
        p->busy_s = real.busy_s[j];
        p->fill_s = fmin(idle_s, most_fill_s);
        p->imbalance_s = idle_s - p->fill_s;
        p->transfer_s = real.step_s - light.step_s;
        b.mean.busy_s += p->busy_s / n_stages;
        b.mean.fill_s += p->fill_s / n_stages;
        b.mean.imbalance_s += p->imbalance_s / n_stages;
        b.mean.transfer_s += p->transfer_s / n_stages;
    }
    *out = b;
    return CP_OK;
}

void cp_round_parts_make(const struct cp_forecast *f, int cluster, int local_steps,
                         struct cp_round_parts *out)
{
    const struct cp_cluster_forecast *c = &f->cluster[cluster];
    *out = (struct cp_round_parts){.steps_s = local_steps * c->step_s,
                                   .exchange_s = c->round_s - local_steps * c->step_s,
                                   .straggler_s = f->latency_s - f->broadcast_s - c->round_s,
                                   .broadcast_s = f->broadcast_s};
}
