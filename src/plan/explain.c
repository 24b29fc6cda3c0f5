#include "plan/explain.h"

#include "base/mem.h"
#include "plan/draft.h"

#include <math.h>
#include <string.h>

struct totals {
    double time_s, broadcast_s, cost; /* of all other clusters */
};

struct explainer {
    const struct cp_policy_args *a;
    const struct cp_plan *plan;
    struct cp_room *room; /* of the cluster that is looked at */
    int cluster;
    struct totals others;
    double plain_s; /* the constant part of T_bc */
    struct cp_why *why;
};

/* --- a trial and its value ------------------------------------------------------------------- */

/* Shares and powers of a trial; was: the plan that it comes from. */
static void refit_radio(const struct cp_cluster_plan *was, const struct cp_world *w, int cluster,
                        struct cp_cluster_plan *c)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    if (c->segments != was->segments || cp_plan_overlaps(c) != cp_plan_overlaps(was)) {
        cp_draft_radio(c, w, cluster);
        c->uplink_share = was->uplink_share;
        c->power_up_w = was->power_up_w;
        return;
    }
    for (int s = 0; s < c->segments; s++) {
        c->power_fwd_w[s + 1] *= cp_fwd_limit_w(c, cl, s + 1) / cp_fwd_limit_w(was, cl, s + 1);
        c->power_bwd_w[s + 1] *=
            cl->device[c->device[s]].power_d2d_w / cl->device[was->device[s]].power_d2d_w;
    }
}

/* Slots of a trial with another number of segments or micro-batches. Those of the order, if the
 * plan has them; else its own, as far as M allows. */
static void refit_slots(const struct cp_cluster_plan *was, struct cp_cluster_plan *c)
{
    struct cp_cluster_plan usual = *was;
    cp_plan_set_slots(&usual);
    size_t n = (size_t)(was->segments + 2) * sizeof was->slots[0];
    if (c->segments != was->segments || memcmp(usual.slots, was->slots, n) == 0) {
        cp_plan_set_slots(c);
        return;
    }
    for (int j = 0; j < c->segments + 2; j++) {
        c->slots[j] = c->slots[j] < c->micro_batches ? c->slots[j] : c->micro_batches;
    }
}

/* J and T of the plan with one cluster as in the trial. */
static void value(const struct explainer *x, const struct cp_cluster_plan *c, double *objective,
                  double *latency_s)
{
    const struct cp_world *w = x->a->world;
    struct cp_value v = cp_draft_value(c, w, x->a->queues, x->cluster);
    double broadcast_s = fmax(x->others.broadcast_s, cp_broadcast_s(c, x->cluster, w));
    *latency_s = broadcast_s + fmax(x->others.time_s, v.time_s);
    *objective = cp_queues_v(x->a->queues) * (*latency_s - x->plain_s) + x->others.cost + v.cost;
}

static void note_change(struct cp_layer_change *change, const struct cp_neighbour *n, int other)
{
    if (!change->possible || n->objective < change->objective) {
        *change = (struct cp_layer_change){true, other, n->objective, n->latency_s};
    }
}

/* Values a trial and keeps it where it is the best of its kind. slots: they must be made anew. */
static void try_plan(struct explainer *x, enum cp_neighbour_kind kind, int from, int to,
                     const struct cp_cluster_plan *trial, bool slots)
{
    const struct cp_cluster_plan *was = &x->plan->cluster[x->cluster];
    struct cp_neighbour n = {
        .kind = kind, .cluster = x->cluster, .from = from, .to = to, .plan = *trial};
    if (slots) {
        refit_slots(was, &n.plan);
    }
    refit_radio(was, x->a->world, x->cluster, &n.plan);
    if (!cp_draft_fits(&n.plan, x->room)) {
        return;
    }
    value(x, &n.plan, &n.objective, &n.latency_s);
    if (!isfinite(n.objective)) {
        return;
    }
    if (kind == CP_NEIGHBOUR_LAYER) {
        struct cp_device_why *d = x->why->cluster[x->cluster].device;
        note_change(&d[to].more, &n, from);
        note_change(&d[from].less, &n, to);
    }
    if (!x->why->has_next || n.objective < x->why->next.objective) {
        x->why->has_next = true;
        x->why->next = n;
    }
}

/* --- neighbours ------------------------------------------------------------------------------ */

static void insert_segment(struct cp_cluster_plan *c, int at, int device, int layers)
{
    for (int s = c->segments; s > at; s--) {
        c->device[s] = c->device[s - 1];
        c->layers[s] = c->layers[s - 1];
    }
    c->device[at] = device;
    c->layers[at] = layers;
    c->segments++;
    c->link_format[c->segments] = c->link_format[c->segments - 1]; /* still the link to the edge */
    c->link_format[c->segments - 1] = c->link_format[c->segments - 2]; /* one D2D link more */
}

static void remove_segment(struct cp_cluster_plan *c, int at)
{
    for (int s = at; s + 1 < c->segments; s++) {
        c->device[s] = c->device[s + 1];
        c->layers[s] = c->layers[s + 1];
    }
    c->link_format[c->segments - 1] = c->link_format[c->segments];
    c->segments--;
}

/* One layer from segment s to device `to`, which is segment t or (t < 0) not in the plan. */
static void try_layer(struct explainer *x, int s, int t, int to)
{
    const struct cp_cluster_plan *was = &x->plan->cluster[x->cluster];
    struct cp_cluster_plan c = *was;
    int from = was->device[s];
    c.layers[s]--;
    if (t >= 0) {
        c.layers[t]++;
        if (c.layers[s] == 0) {
            remove_segment(&c, s);
        }
        try_plan(x, CP_NEIGHBOUR_LAYER, from, to, &c, c.segments != was->segments);
        return;
    }
    for (int at = 0; c.layers[s] > 0 && at <= was->segments; at++) {
        struct cp_cluster_plan longer = c;
        insert_segment(&longer, at, to, 1);
        try_plan(x, CP_NEIGHBOUR_LAYER, from, to, &longer, true);
    }
}

static void try_pair(struct explainer *x, int s, int t)
{
    const struct cp_cluster_plan *was = &x->plan->cluster[x->cluster];
    struct cp_cluster_plan c = *was;
    c.device[s] = was->device[t];
    c.device[t] = was->device[s];
    try_plan(x, CP_NEIGHBOUR_SWAP, was->device[s], was->device[t], &c, false);
    if (was->layers[s] != was->layers[t]) {
        c.layers[s] = was->layers[t];
        c.layers[t] = was->layers[s];
        try_plan(x, CP_NEIGHBOUR_PLACES, was->device[s], was->device[t], &c, false);
    }
}

static void try_devices(struct explainer *x)
{
    const struct cp_cluster_plan *was = &x->plan->cluster[x->cluster];
    const struct cp_cluster_why *k = &x->why->cluster[x->cluster];
    int n_devices = x->a->world->cluster[x->cluster].n_devices;
    for (int s = 0; s < was->segments; s++) {
        for (int d = 0; d < n_devices; d++) {
            int t = k->device[d].segment;
            if (!k->device[d].present || t == s) {
                continue;
            }
            try_layer(x, s, t, d);
            if (t > s) {
                try_pair(x, s, t);
            } else if (t < 0) {
                struct cp_cluster_plan c = *was;
                c.device[s] = d;
                try_plan(x, CP_NEIGHBOUR_REPLACE, was->device[s], d, &c, false);
            }
        }
    }
}

static void try_micro_and_order(struct explainer *x)
{
    const struct cp_cluster_plan *was = &x->plan->cluster[x->cluster];
    for (int change = -1; x->a->choose_micro && change <= 1; change += 2) {
        struct cp_cluster_plan c = *was;
        c.micro_batches += change;
        if (c.micro_batches >= 1 &&
            c.micro_batches <= cp_world_micro_max(x->a->world, x->cluster)) {
            try_plan(x, CP_NEIGHBOUR_MICRO, -1, -1, &c, true);
        }
    }
    struct cp_order_list list = cp_draft_orders(x->a);
    for (int i = 0; i < list.n; i++) {
        struct cp_cluster_plan c = *was;
        c.order = list.order[i];
        cp_plan_set_slots(&c);
        size_t n = (size_t)(c.segments + 2) * sizeof c.slots[0];
        if (memcmp(c.slots, was->slots, n) != 0) {
            try_plan(x, CP_NEIGHBOUR_ORDER, -1, -1, &c, false);
        }
    }
}

/* --- one cluster ----------------------------------------------------------------------------- */

static void describe_devices(const struct explainer *x, struct cp_cluster_why *k)
{
    const struct cp_world *w = x->a->world;
    const struct cp_cluster *cl = &w->cluster[x->cluster];
    const struct cp_cluster_plan *c = &x->plan->cluster[x->cluster];
    const struct cp_model_cost *m = &w->model;
    bool pipeline = c->mode == CP_MODE_PIPELINE;
    for (int i = 0; i < cl->n_devices; i++) {
        struct cp_device_why *d = &k->device[i];
        d->present = cl->device[i].present;
        d->segment = -1;
        if (d->present) {
            d->layer_s =
                (m->layer.work_fwd_flops + m->layer.work_bwd_flops) / cl->device[i].rate_flops;
        }
        /* whoever joins last holds least */
        d->more_bytes = pipeline ? m->segment_bytes(m->segment_arg, 1, c->slots[c->segments]) : 0;
    }
    for (int s = 0; s < c->segments; s++) {
        struct cp_device_why *d = &k->device[c->device[s]];
        d->segment = s;
        d->layers = c->layers[s];
        d->mem_bytes = cp_plan_mem_bytes(c, s, m);
        d->more_bytes = pipeline && d->layers < m->layers
                            ? m->segment_bytes(m->segment_arg, d->layers + 1, c->slots[s + 1])
                            : d->mem_bytes;
    }
}

static double gain_of(const struct cp_cluster_plan *c, const struct cp_times *t, double *fwd_s,
                      double *bwd_s)
{
    double before_s = cp_step_s(c, t), fwd = *fwd_s, bwd = *bwd_s;
    *fwd_s *= 0.9;
    *bwd_s *= 0.9;
    double after_s = cp_step_s(c, t);
    *fwd_s = fwd;
    *bwd_s = bwd;
    return before_s > 0 ? fmax(0, 1 - after_s / before_s) : 0;
}

static void describe_gains(const struct cp_cluster_plan *c, const struct cp_cluster *cl,
                           const struct cp_world *w, struct cp_cluster_why *k)
{
    struct cp_times t;
    cp_times_make(c, cl, w, &t);
    for (int j = 0; j <= c->segments + 1; j++) {
        k->stage_gain[j] = gain_of(c, &t, &t.fwd_s[j], &t.bwd_s[j]);
        if (j <= c->segments) {
            k->link_gain[j] = gain_of(c, &t, &t.link_fwd_s[j], &t.link_bwd_s[j]);
        }
    }
}

static void explain_cluster(struct explainer *x)
{
    const struct cp_world *w = x->a->world;
    const struct cp_cluster_plan *c = &x->plan->cluster[x->cluster];
    struct cp_cluster_why *k = &x->why->cluster[x->cluster];
    x->others = (struct totals){0};
    for (int i = 0; i < w->n_clusters; i++) {
        if (i != x->cluster) {
            const struct cp_cluster_why *other = &x->why->cluster[i];
            x->others.time_s = fmax(x->others.time_s, other->round_s);
            x->others.broadcast_s = fmax(x->others.broadcast_s, other->broadcast_s);
            x->others.cost += other->cost;
        }
    }
    describe_devices(x, k);
    if (c->mode == CP_MODE_PIPELINE) {
        cp_room_init(x->room, w, x->cluster);
        describe_gains(c, &w->cluster[x->cluster], w, k);
        try_devices(x);
        try_micro_and_order(x);
    }
}

static void sum_costs(const struct cp_policy_args *a, const struct cp_plan *p, struct cp_why *why)
{
    double cost = 0;
    for (int c = 0; c < p->n_clusters; c++) {
        struct cp_value v = cp_draft_value(&p->cluster[c], a->world, a->queues, c);
        why->cluster[c].round_s = v.time_s;
        why->cluster[c].cost = v.cost;
        why->cluster[c].broadcast_s = cp_broadcast_s(&p->cluster[c], c, a->world);
        double gamma = cp_cluster_gamma(&p->cluster[c], a->world, c);
        why->convergence_cost += a->queues ? a->queues->convergence * gamma : 0;
        cost += v.cost;
    }
    why->energy_cost = cost - why->convergence_cost;
    why->latency_cost = cp_plan_objective(p, a->world, a->queues) - cost;
}

cp_err cp_why_make(const struct cp_policy_args *a, const struct cp_plan *p, struct cp_why *out)
{
    struct cp_why why = {.n_clusters = p->n_clusters};
    struct explainer x = {
        .a = a, .plan = p, .plain_s = cp_broadcast_plain_s(a->world), .why = &why};
    CP_TRY(cp_mem_new(NULL, sizeof *x.room, &x.room));
    cp_err err = cp_mem_array(NULL, (size_t)p->n_clusters, sizeof *why.cluster, &why.cluster);
    if (!err) {
        sum_costs(a, p, &why);
        for (x.cluster = 0; x.cluster < p->n_clusters; x.cluster++) {
            explain_cluster(&x);
        }
        *out = why;
    }
    cp_mem_free(x.room);
    return err;
}

void cp_why_fini(struct cp_why *why)
{
    cp_mem_free(why->cluster);
    *why = (struct cp_why){0};
}
