/*
 * cluster: the search over cuts of one cluster (docs/theory.md sections 11.2, 11.3, 11.7).
 *
 * For each weight of the cluster's time the dynamic program is started from several M with equal
 * bands, its best cuts are polished, and with the polished bands and M the program runs again,
 * until an M comes back that was tried before. Everything that was polished goes to the front:
 * which of them is wanted is decided when all clusters are known.
 */
#include "plan/solver.h"

#include "plan/micro.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The program knows Lemma 1 and the bands it is given: cuts within this share of its best value
 * are polished, too. */
static const double NEAR = 0.05;

/* In 1f1b Lemma 1 only stands in for the recurrence. */
static const double NEAR_OVERLAPPED = 0.1;

enum { NEAR_CUTS = 4 };

struct search {
    struct cp_solver *x;
    int cluster;
    const struct cp_cluster *cl;
    int device[CP_DEVICES_MAX], n_devices; /* present */
    double uplink_share;
    double v;
    struct cp_front *front;
    /* The best of this weight so far, and how it was found. */
    double best;
    struct cp_cluster_plan plan;
};

static cp_err offer(struct search *s, struct cp_cluster_plan *plan)
{
    cp_polish(s->x, s->cluster, s->v, plan);
    double value = cp_solver_value(s->x, s->cluster, s->v, plan);
    if (value < s->best) {
        s->best = value;
        s->plan = *plan;
    }
    return cp_front_add(s->front, s->x->a, s->cluster, plan);
}

/* Fresh slots and radio for an order; false where it does not fit. */
static bool set_order(const struct search *s, enum cp_order order, struct cp_cluster_plan *plan)
{
    plan->order = order;
    cp_plan_set_slots(plan);
    if (!cp_draft_fits(plan, s->x->room)) {
        return false;
    }
    cp_draft_radio(plan, s->x->a->world, s->cluster);
    plan->uplink_share = s->uplink_share;
    return true;
}

/* A cut that was found for one order, in every order that may be chosen: what Lemma 1 thinks best
 * for 1f1b need not be, and the cuts of gpipe are often good ones. */
static cp_err offer_in_each_order(struct search *s, const struct cp_cluster_plan *found)
{
    struct cp_cluster_plan plan = *found;
    struct cp_order_list list = cp_draft_orders(s->x->a);
    CP_TRY(offer(s, &plan));
    for (int i = 0; i < list.n; i++) {
        plan = *found;
        if (list.order[i] != found->order && set_order(s, list.order[i], &plan)) {
            CP_TRY(offer(s, &plan));
        }
    }
    return CP_OK;
}

/* --- cuts by the dynamic program ------------------------------------------------------------- */

/* What one run of the program is given. */
struct aim {
    enum cp_order order;
    int micro, edge_layers;
    const struct cp_cluster_plan *like; /* bands, powers and formats of this plan; NULL: equal */
};

/* Powers by node for cuts that may use any device: those of the plan where it uses the node. */
static void take_radio(struct cp_split *split, const struct cp_cluster_plan *like)
{
    for (int j = 0; j < split->segments; j++) {
        split->band_fwd[j] = like->band_fwd[j];
        split->band_bwd[j] = like->band_bwd[j];
    }
    split->power_up_w = like->power_up_w;
    split->power_fwd_w[0] = like->power_fwd_w[0];
    for (int j = 1; j <= like->segments; j++) {
        int node = like->device[j - 1] + 1;
        if (j < like->segments) {
            split->power_fwd_w[node] = like->power_fwd_w[j];
        } else {
            split->power_edge_w[node] = like->power_fwd_w[j];
        }
        split->power_bwd_w[node] = like->power_bwd_w[j];
    }
}

static void make_split(const struct search *s, const struct aim *aim, int segments,
                       struct cp_split *split)
{
    const struct cp_policy_args *a = s->x->a;
    cp_split_init(split, a->world, s->cluster, s->x->room, a->queues, segments, aim->micro,
                  aim->order);
    split->v = s->v;
    split->uplink_share = s->uplink_share;
    split->edge_layers = aim->edge_layers;
    split->index_order = s->x->o->index_order;
    if (!aim->like) {
        return;
    }
    memcpy(split->link_format, aim->like->link_format, sizeof split->link_format);
    split->upload_format = aim->like->upload_format;
    if (aim->like->order == aim->order) { /* else overlap may differ, and with it what a band is */
        if (segments == aim->like->segments) {
            take_radio(split, aim->like);
        }
    }
}

/* How far above the best value cuts are of interest: less far where there are very many. */
static double near_of(const struct search *s, enum cp_order order)
{
    double near = order == CP_ORDER_1F1B ? NEAR_OVERLAPPED : NEAR;
    return near * fmin(1, pow(4.0 / s->n_devices, 2));
}

/* The least value for any number of segments. */
static cp_err best_value(struct search *s, const struct aim *aim, int most, double *value)
{
    struct cp_split list[CP_DEVICES_MAX];
    struct cp_split_result result;
    for (int i = 0; i < most; i++) {
        make_split(s, aim, i + 1, &list[i]);
    }
    CP_TRY(cp_split_best(list, most, &s->x->work, &result));
    *value = result.found ? result.value : INFINITY;
    return CP_OK;
}

/* Offers the cuts that are best, or nearly so, for each number of segments. */
static cp_err place(struct search *s, const struct aim *aim)
{
    int layers = s->x->a->world->model.layers - aim->edge_layers;
    int most = s->n_devices < layers ? s->n_devices : layers;
    double value;
    CP_TRY(best_value(s, aim, most, &value));
    for (int segments = 1; segments <= most && isfinite(value); segments++) {
        struct cp_split split;
        struct cp_cluster_plan found[NEAR_CUTS];
        enum cp_split_kind kind;
        int n;
        make_split(s, aim, segments, &split);
        split.bound = value * (1 + near_of(s, aim->order));
        CP_TRY(cp_split_near(&split, &s->x->work, found, NEAR_CUTS, &n, &kind));
        s->x->heuristic |= kind == CP_SPLIT_BEAM;
        for (int i = 0; i < n; i++) {
            CP_TRY(offer_in_each_order(s, &found[i]));
        }
    }
    return CP_OK;
}

/* From one M: program and polish in turn, until an M comes back that was tried before. */
static cp_err descend(struct search *s, struct aim aim, bool tried[CP_MICRO_MAX + 1])
{
    while (!tried[aim.micro]) {
        struct cp_cluster_plan plan;
        double best = s->best;
        tried[aim.micro] = true;
        CP_TRY(place(s, &aim));
        if (!(s->best < best)) {
            return CP_OK;
        }
        plan = s->plan;
        aim.like = &plan;
        if (plan.order == aim.order) { /* the program again, with the bands that it led to */
            aim.micro = plan.micro_batches;
            CP_TRY(place(s, &aim));
        }
        aim.like = NULL;
        aim.micro = s->plan.micro_batches;
    }
    return CP_OK;
}

/* Starts of M; without a choice there is one. Returns how many. */
static int micro_starts(const struct search *s, int start[5])
{
    static const int all[] = {8, 2, 4, 16, 1};
    const struct cp_world *w = s->x->a->world;
    int n = 0;
    if (!s->x->a->choose_micro) {
        start[0] = cp_draft_micro(s->x->a, s->cluster);
        return 1;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] <= cp_world_micro_max(w, s->cluster)) {
            start[n++] = all[i];
        }
    }
    return n;
}

static cp_err explore(struct search *s, enum cp_order order, int edge_layers)
{
    bool tried[CP_MICRO_MAX + 1] = {false};
    int start[5], n = micro_starts(s, start);
    for (int i = 0; i < n; i++) {
        CP_TRY(descend(s, (struct aim){order, start[i], edge_layers, NULL}, tried));
    }
    return CP_OK;
}

/* The one cut that the options allow. */
static cp_err explore_uniform(struct search *s, enum cp_order order)
{
    struct cp_cluster_plan plan;
    int start[5], n = micro_starts(s, start);
    CP_TRY(cp_draft_uniform(s->x->a->world, s->cluster, &plan));
    for (int i = 0; i < n; i++) {
        plan.micro_batches = start[i];
        if (set_order(s, order, &plan)) {
            CP_TRY(offer(s, &plan));
        }
    }
    return CP_OK;
}

/* Polishes a cut with every M. */
static cp_err offer_each_micro(struct search *s, enum cp_order order, struct cp_cluster_plan plan)
{
    const struct cp_policy_args *a = s->x->a;
    int first = a->choose_micro ? 1 : cp_draft_micro(a, s->cluster);
    int last = a->choose_micro ? cp_world_micro_max(a->world, s->cluster) : first;
    for (int m = first; m <= last; m++) {
        struct cp_cluster_plan trial = plan;
        trial.micro_batches = m;
        if (set_order(s, order, &trial)) {
            CP_TRY(offer(s, &trial));
        }
    }
    return CP_OK;
}

/* Every cut: plan has the segments so far, left layers are still to be placed. */
static cp_err explore_all(struct search *s, enum cp_order order, struct cp_cluster_plan *plan,
                          int left, unsigned used)
{
    if (left == 0) {
        return offer_each_micro(s, order, *plan);
    }
    for (int i = 0; i < s->n_devices; i++) {
        if (used & 1u << i) {
            continue;
        }
        for (int n = 1; n <= left; n++) {
            plan->device[plan->segments] = s->device[i];
            plan->layers[plan->segments++] = n;
            CP_TRY(explore_all(s, order, plan, left - n, used | 1u << i));
            plan->segments--;
        }
    }
    return CP_OK;
}

static cp_err from_scratch(struct search *s)
{
    struct cp_order_list list = cp_draft_orders(s->x->a);
    for (int i = 0; i < list.all && (i < list.n || !isfinite(s->best)); i++) {
        struct cp_cluster_plan none = {0};
        CP_TRY(s->x->o->uniform_cut ? explore_uniform(s, list.order[i])
               : s->x->o->exhaustive
                   ? explore_all(s, list.order[i], &none, s->x->a->world->model.layers, 0)
                   : explore(s, list.order[i], 0));
    }
    return CP_OK;
}

/* --- from plans that are known --------------------------------------------------------------- */

/* Whether this policy could have made such a plan: the last round's may be of another one, of other
 * arguments, or of when other devices were present. */
static bool is_allowed(const struct search *s, const struct cp_cluster_plan *plan)
{
    const struct cp_solver_options *o = s->x->o;
    struct cp_order_list list = cp_draft_orders(s->x->a);
    struct cp_cluster_plan uniform;
    bool pipeline = plan->mode == CP_MODE_PIPELINE, listed = !pipeline, rises = true;
    for (int i = 0; i < list.all; i++) {
        listed |= list.order[i] == plan->order;
    }
    if (!listed || plan->segments < 1 || plan->segments > s->cl->n_devices ||
        (!o->extended && (!pipeline || plan->edge_layers > 0))) {
        return false;
    }
    for (int i = 0; i < plan->segments; i++) {
        int k = plan->device[i];
        if (k < 0 || k >= s->cl->n_devices || !s->cl->device[k].present) {
            return false;
        }
        rises = rises && (i == 0 || k > plan->device[i - 1]);
    }
    if (o->uniform_cut) {
        return cp_draft_uniform(s->x->a->world, s->cluster, &uniform) == CP_OK &&
               cp_plan_same_cut(&uniform, plan);
    }
    return rises || !o->index_order;
}

/* Whether a plan passes the proof, but for the shares of the other clusters. */
static bool is_proven(const struct search *s, struct cp_cluster_plan *plan)
{
    struct cp_world alone = *s->x->a->world;
    alone.cluster += s->cluster;
    alone.n_clusters = 1;
    return cp_plan_check(&(struct cp_plan){.n_clusters = 1, .cluster = plan}, &alone) == CP_OK;
}

/* Makes a plan of another round or share one of this; false where it does not hold here. */
static bool repair(const struct search *s, struct cp_cluster_plan *plan)
{
    const struct cp_policy_args *a = s->x->a;
    const struct cp_solver_options *o = s->x->o;
    if (!is_allowed(s, plan)) {
        return false;
    }
    if (!o->extended || !a->any_format) {
        memset(plan->link_format, 0, sizeof plan->link_format);
        plan->upload_format = CP_FORMAT_FP32;
    }
    int micro = a->choose_micro ? plan->micro_batches : cp_draft_micro(a, s->cluster);
    int most = cp_world_micro_max(a->world, s->cluster);
    micro = micro < most ? micro : most;
    bool fresh = micro != plan->micro_batches || o->equal_band || o->max_power;
    plan->micro_batches = micro;
    plan->uplink_share = s->uplink_share;
    if (fresh && plan->mode == CP_MODE_PIPELINE && !set_order(s, plan->order, plan)) {
        return false;
    }
    return is_proven(s, plan);
}

/* Begins at the plan that is best under this weight, and runs the program with what it has; does
 * nothing where none holds. */
static cp_err from_known(struct search *s, const struct cp_front *start)
{
    struct cp_cluster_plan best, plan;
    double best_value = INFINITY;
    for (int i = 0; i < start->n; i++) {
        plan = start->item[i].plan;
        if (!repair(s, &plan)) {
            continue;
        }
        double value = cp_solver_value(s->x, s->cluster, s->v, &plan);
        if (value < best_value) {
            best_value = value;
            best = plan;
        }
    }
    if (!isfinite(best_value)) {
        return CP_OK;
    }
    CP_TRY(cp_front_add(s->front, s->x->a, s->cluster, &best)); /* as it is, too */
    if (best.mode != CP_MODE_PIPELINE) {
        return offer(s, &best);
    }
    CP_TRY(offer_in_each_order(s, &best));
    assert(s->best <= best_value); /* Proposition 4 */
    if (s->x->o->uniform_cut || s->x->o->exhaustive) {
        return CP_OK;
    }
    struct cp_cluster_plan like = s->plan;
    return place(s, &(struct aim){like.order, like.micro_batches, like.edge_layers, &like});
}

/* --- beyond the paper (section 11.9) --------------------------------------------------------- */

/* One more number of layers on the edge server, from the best order and M so far, or in the orders
 * that may be chosen until one fits. */
static cp_err explore_edge(struct search *s, int edge_layers)
{
    struct cp_order_list list = cp_draft_orders(s->x->a);
    bool known = isfinite(s->best) && s->plan.mode == CP_MODE_PIPELINE;
    for (int i = 0; i < list.all && (i == 0 || !isfinite(s->best)); i++) {
        bool tried[CP_MICRO_MAX + 1] = {false};
        CP_TRY(descend(s,
                       (struct aim){.order = known ? s->plan.order : list.order[i],
                                    .micro = s->plan.micro_batches,
                                    .edge_layers = edge_layers},
                       tried));
    }
    return CP_OK;
}

/* The first weight takes coarse steps, later ones begin where the one before ended; then the
 * neighbours of the best. */
static cp_err explore_edges(struct search *s, int *edge_layers)
{
    enum { STEPS = 4 };
    int most = s->x->a->world->model.layers - 1;
    for (int i = 1; i <= STEPS && *edge_layers < 0; i++) {
        if (i * most / STEPS > (i - 1) * most / STEPS) {
            CP_TRY(explore_edge(s, i * most / STEPS));
        }
    }
    if (*edge_layers > 0) {
        CP_TRY(explore_edge(s, *edge_layers));
    }
    for (int at = -1; at != s->plan.edge_layers;) {
        at = s->plan.edge_layers;
        for (int edge = at - 1; edge <= at + 1; edge += 2) {
            if (edge >= 0 && edge <= most) {
                CP_TRY(explore_edge(s, edge));
            }
        }
    }
    *edge_layers = s->plan.edge_layers;
    return CP_OK;
}

/* M of a mode without a pipeline: its value is a + slope M + price / M. */
static void set_apart_micro(const struct search *s, struct cp_cluster_plan *plan)
{
    const struct cp_policy_args *a = s->x->a;
    if (!a->choose_micro) {
        plan->micro_batches = cp_draft_micro(a, s->cluster);
        return;
    }
    plan->micro_batches = 1;
    double one = cp_solver_value(s->x, s->cluster, s->v, plan);
    double price =
        a->queues ? a->queues->convergence * cp_cluster_gamma(plan, a->world, s->cluster) : 0;
    plan->micro_batches = 2;
    double slope = cp_solver_value(s->x, s->cluster, s->v, plan) - one + price / 2;
    plan->micro_batches =
        cp_micro_best(fmax(slope, 0), price, cp_world_micro_max(a->world, s->cluster));
}

/* Whole models or their first layers on the fastest 1, 2, ... of the devices that can hold them;
 * rank has all devices, the fastest first. */
static cp_err offer_apart(struct search *s, enum cp_plan_mode mode, const int *rank, int layers)
{
    const struct cp_world *w = s->x->a->world;
    int device[CP_DEVICES_MAX], n = 0;
    for (int i = 0; i < s->n_devices; i++) {
        struct cp_cluster_plan plan;
        device[n] = rank[i];
        cp_draft_apart(w, s->cluster, mode, device, n + 1, layers, &plan);
        if (cp_plan_mem_bytes(&plan, n, &w->model) > s->cl->device[rank[i]].mem_bytes) {
            continue;
        }
        n++;
        plan.uplink_share = s->uplink_share;
        set_apart_micro(s, &plan);
        CP_TRY(offer(s, &plan));
    }
    return CP_OK;
}

/* FedAvg, and SplitFed with every number of layers. */
static cp_err explore_apart(struct search *s)
{
    int rank[CP_DEVICES_MAX], layers = s->x->a->world->model.layers;
    for (int i = 0; i < s->n_devices; i++) {
        double rate = s->cl->device[s->device[i]].rate_flops;
        int at = i;
        for (; at > 0 && s->cl->device[rank[at - 1]].rate_flops < rate; at--) {
            rank[at] = rank[at - 1];
        }
        rank[at] = s->device[i];
    }
    CP_TRY(offer_apart(s, CP_MODE_FULL, rank, layers));
    for (int n = 1; n <= layers; n++) {
        CP_TRY(offer_apart(s, CP_MODE_SPLIT, rank, n));
    }
    return CP_OK;
}

/* --- all weights ----------------------------------------------------------------------------- */

static cp_err fail_no_plan(const struct search *s)
{
    if (s->x->o->uniform_cut) {
        struct cp_decision d = {0};
        struct cp_cluster_plan plan;
        CP_TRY(cp_draft_uniform(s->x->a->world, s->cluster, &plan));
        plan.micro_batches = cp_draft_micro(s->x->a, s->cluster);
        CP_TRY(cp_draft_finish(s->x->a, s->cluster, s->x->room, &plan, &d));
    }
    return cp_draft_no_plan(s->x->room);
}

cp_err cp_cluster_solve(struct cp_solver *x, int cluster, double uplink_share, const double *v,
                        int n, const struct cp_front *start, struct cp_front *front)
{
    struct search s = {.x = x,
                       .cluster = cluster,
                       .cl = &x->a->world->cluster[cluster],
                       .uplink_share = uplink_share,
                       .front = front};
    CP_TRY(cp_draft_present(s.cl, s.device, &s.n_devices));
    cp_room_init(x->room, x->a->world, cluster);
    int edge_layers = -1; /* of the weight before */
    for (int i = 0; i < n; i++) {
        s.v = v[i];
        s.best = INFINITY;
        s.plan = (struct cp_cluster_plan){.micro_batches = cp_draft_micro(x->a, cluster)};
        if (start && start->n > 0) {
            CP_TRY(from_known(&s, start));
        }
        if (!isfinite(s.best) || front->n == 0) {
            CP_TRY(from_scratch(&s));
        }
        if (x->o->extended) {
            CP_TRY(explore_edges(&s, &edge_layers));
            CP_TRY(explore_apart(&s));
        }
    }
    if (front->n == 0) {
        return fail_no_plan(&s);
    }
    cp_front_reduce(front);
    return CP_OK;
}

cp_err cp_cluster_keep(struct cp_solver *x, int cluster, double uplink_share, const double *v,
                       int n, const struct cp_cluster_plan *cut, struct cp_front *front)
{
    struct search s = {.x = x,
                       .cluster = cluster,
                       .cl = &x->a->world->cluster[cluster],
                       .uplink_share = uplink_share,
                       .front = front};
    cp_room_init(x->room, x->a->world, cluster);
    for (int i = 0; i < n; i++) {
        struct cp_cluster_plan plan = *cut;
        s.v = v[i];
        s.best = INFINITY;
        if (repair(&s, &plan)) {
            CP_TRY(cp_front_add(front, x->a, cluster, &plan)); /* as it is, too */
            CP_TRY(plan.mode == CP_MODE_PIPELINE ? offer_in_each_order(&s, &plan)
                                                 : offer(&s, &plan));
        }
    }
    cp_front_reduce(front);
    return CP_OK;
}
