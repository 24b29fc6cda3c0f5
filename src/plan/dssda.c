/*
 * DSSDA, first form: P1 of docs/theory.md section 10 over segments, devices, order and
 * micro-batches, at equal shares and greatest powers (sections 11.2, 11.3, 11.6 i, 11.7).
 *
 * A cluster's problem is solved for several weights v of its own round time, because the slowest
 * cluster alone pays for latency: the others should spend their time on saving energy, and which
 * cluster is the slowest is only known afterwards. Every solution is valued exactly (recurrence
 * times where phases overlap, although the search itself uses Lemma 1), and the merge picks one per
 * cluster. With no price on energy or micro-batches one weight is enough.
 */
#include "plan/draft.h"
#include "plan/micro.h"
#include "plan/policies.h"
#include "plan/split.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS = 6 }; /* of the grid V .. V 10^-2 / C, and 0 besides */

/* In 1f1b Lemma 1 only stands in for the recurrence, so placements within this share of the best
 * surrogate value are valued exactly, too. */
static const double SURROGATE_SLACK = 0.1;

struct candidate {
    struct cp_value value;
    struct cp_cluster_plan plan;
};

struct front {
    struct candidate *item;
    int n, cap;
};

struct solver {
    const struct cp_policy_args *a;
    struct cp_room *room;
    struct cp_split_work work;
    struct front *front; /* per cluster */
};

static cp_err add_candidate(struct solver *x, int cluster, const struct cp_cluster_plan *plan)
{
    struct front *f = &x->front[cluster];
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : 32;
        struct candidate *bigger;
        CP_TRY(cp_mem_array(NULL, (size_t)cap, sizeof *bigger, &bigger));
        if (f->n > 0) {
            memcpy(bigger, f->item, (size_t)f->n * sizeof *bigger);
        }
        cp_mem_free(f->item);
        f->item = bigger;
        f->cap = cap;
    }
    struct cp_value v = cp_draft_value(plan, x->a->world, x->a->queues, cluster);
    if (isfinite(v.time_s) && isfinite(v.cost)) {
        f->item[f->n++] = (struct candidate){v, *plan};
    }
    return CP_OK;
}

/* --- one cluster ----------------------------------------------------------------------------- */

/* M_mem: the most micro-batches that fit with this cut and order. */
static int micro_room(struct cp_room *r, const struct cp_cluster_plan *plan, int micro_max)
{
    struct cp_cluster_plan trial = *plan;
    for (trial.micro_batches = micro_max; trial.micro_batches > 1; trial.micro_batches--) {
        cp_plan_set_slots(&trial);
        if (cp_draft_fits(&trial, r)) {
            break;
        }
    }
    return trial.micro_batches;
}

/* The rule of section 11.3 for a placement. */
static int choose_micro(const struct cp_split *s, const struct cp_cluster_plan *plan)
{
    const struct cp_world *w = s->world;
    const struct cp_cluster *cl = &w->cluster[s->cluster];
    struct cp_times t;
    cp_times_make(plan, cl, w, &t);
    double per_micro_s = plan->order == CP_ORDER_SEQ
                             ? cp_step_gpipe_s(&t, 1) /* Sigma: nothing overlaps */
                             : cp_times_max_fwd_s(&t) + cp_times_max_bwd_s(&t);
    double slope = s->v * per_micro_s;
    for (int j = 0; j <= plan->segments; j++) {
        int node = j == 0 ? 0 : plan->device[j - 1] + 1;
        slope += s->price[node] * cp_micro_energy_j(plan, cl, w, &t, j);
    }
    return cp_micro_best(w->local_steps * slope, s->micro_price,
                         micro_room(s->room, plan, w->micro_max));
}

/* A placement that was found for one order, valued exactly in every order that may be chosen: what
 * Lemma 1 thinks best for 1f1b need not be, and the cuts of gpipe are often good ones. */
static cp_err add_in_each_order(struct solver *x, int cluster, const struct cp_cluster_plan *plan)
{
    CP_TRY(add_candidate(x, cluster, plan));
    struct cp_order_list list = cp_draft_orders(x->a);
    for (int i = 0; i < list.n; i++) {
        struct cp_cluster_plan other = *plan;
        other.order = list.order[i];
        cp_plan_set_slots(&other);
        if (other.order != plan->order && cp_draft_fits(&other, x->room)) {
            cp_draft_radio(&other, x->a->world, cluster);
            CP_TRY(add_candidate(x, cluster, &other));
        }
    }
    return CP_OK;
}

/* The best placement for every number of segments that is not hopeless: narrow passes first, so
 * that the exact ones need only look below the best value known. best is the one of least value. */
static cp_err place(struct solver *x, int cluster, int n_devices, struct cp_split *s,
                    struct cp_cluster_plan *best, bool *found)
{
    int layers = x->a->world->model.layers, most = n_devices < layers ? n_devices : layers;
    double v = s->v, bound = INFINITY, best_value = INFINITY;
    double slack = s->order == CP_ORDER_1F1B ? SURROGATE_SLACK : 0;
    *found = false;
    for (int pass = 0; pass < 2; pass++) {
        for (int segments = 1; segments <= most; segments++) {
            struct cp_split_result r;
            cp_split_init(s, x->a->world, cluster, x->room, x->a->queues, segments,
                          s->micro_batches, s->order);
            s->v = v;
            s->narrow = pass == 0;
            s->bound = bound * (1 + slack);
            CP_TRY(cp_split_solve(s, &x->work, &r));
            if (!r.found) {
                continue;
            }
            bound = fmin(bound, r.value);
            if (pass == 1) {
                CP_TRY(add_in_each_order(x, cluster, &r.plan));
                if (r.value < best_value) {
                    best_value = r.value;
                    *best = r.plan;
                    *found = true;
                }
            }
        }
    }
    return CP_OK;
}

/* Placement and M in turn from one M, until an M comes back that was tried before. */
static cp_err descend(struct solver *x, int cluster, int n_devices, enum cp_order order, double v,
                      int micro, bool tried[CP_MICRO_MAX + 1])
{
    while (!tried[micro]) {
        struct cp_split s = {.order = order, .v = v, .micro_batches = micro};
        struct cp_cluster_plan plan;
        bool found;
        tried[micro] = true;
        CP_TRY(place(x, cluster, n_devices, &s, &plan, &found));
        if (!found) {
            break;
        }
        if (x->a->choose_micro) {
            micro = choose_micro(&s, &plan);
        }
    }
    return CP_OK;
}

static cp_err explore(struct solver *x, int cluster, int n_devices, enum cp_order order, double v)
{
    static const int starts[] = {1, 2, 4, 8, 16};
    const struct cp_world *w = x->a->world;
    bool tried[CP_MICRO_MAX + 1] = {false};
    if (!x->a->choose_micro) {
        return descend(x, cluster, n_devices, order, v, cp_draft_micro(x->a, cluster), tried);
    }
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (starts[i] <= w->micro_max) {
            CP_TRY(descend(x, cluster, n_devices, order, v, starts[i], tried));
        }
    }
    return CP_OK;
}

/* Weights of the cluster's own time; returns how many. */
static int weights(const struct cp_policy_args *a, int cluster, double v[WEIGHTS + 1])
{
    const struct cp_world *w = a->world;
    double all = cp_queues_v(a->queues);
    double price = a->choose_micro ? cp_queues_micro_price(a->queues, w, cluster) : 0;
    for (int node = 0; node <= w->cluster[cluster].n_devices; node++) {
        price += cp_queues_price(a->queues, w, cluster, node);
    }
    if (price == 0) {
        v[0] = all > 0 ? all : 1; /* nothing to weigh the time against */
        return 1;
    }
    for (int i = 0; i < WEIGHTS; i++) {
        v[i] = all * pow(1e-2 / w->n_clusters, (double)i / (WEIGHTS - 1));
    }
    v[WEIGHTS] = 0;
    return WEIGHTS + 1;
}

static int compare_ints(const int *x, const int *y, int n)
{
    for (int i = 0; i < n; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Everything that tells two plans of one front apart: slots, shares and powers follow from it.
 * Field by field, because bytes between fields may be anything. */
static int compare_plans(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y)
{
    const int a[] = {x->segments, (int)x->order, x->micro_batches};
    const int b[] = {y->segments, (int)y->order, y->micro_batches};
    int sign = compare_ints(a, b, 3);
    sign = sign ? sign : compare_ints(x->device, y->device, x->segments);
    return sign ? sign : compare_ints(x->layers, y->layers, x->segments);
}

/* By time, then cost; plans that are equal in both by what they are (fewer segments first, then the
 * order that holds less), so that the choice does not hang on how qsort treats equal elements. */
static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->value.time_s != y->value.time_s) {
        return x->value.time_s < y->value.time_s ? -1 : 1;
    }
    if (x->value.cost != y->value.cost) {
        return x->value.cost < y->value.cost ? -1 : 1;
    }
    return compare_plans(&x->plan, &y->plan);
}

/* Sorts by rising time and drops what costs no less than something faster. */
static void reduce(struct front *f)
{
    qsort(f->item, (size_t)f->n, sizeof *f->item, compare_candidates);
    int kept = 0;
    for (int i = 0; i < f->n; i++) {
        if (kept == 0 || f->item[i].value.cost < f->item[kept - 1].value.cost) {
            f->item[kept++] = f->item[i];
        }
    }
    f->n = kept;
}

static cp_err solve_cluster(struct solver *x, int cluster)
{
    const struct cp_policy_args *a = x->a;
    int device[CP_DEVICES_MAX], n;
    double v[WEIGHTS + 1];
    CP_TRY(cp_draft_present(&a->world->cluster[cluster], device, &n));
    cp_room_init(x->room, a->world, cluster);
    int n_weights = weights(a, cluster, v);
    struct cp_order_list list = cp_draft_orders(a);
    for (int i = 0; i < list.all && (i < list.n || x->front[cluster].n == 0); i++) {
        for (int j = 0; j < n_weights; j++) {
            CP_TRY(explore(x, cluster, n, list.order[i], v[j]));
        }
    }
    if (x->front[cluster].n > 0) {
        reduce(&x->front[cluster]);
        return CP_OK;
    }
    int room = 0;
    for (int i = 0; i < n; i++) {
        room += cp_room_layers(x->room, device[i], 1);
    }
    return room < a->world->model.layers
               ? cp_draft_no_room(x->room)
               : cp_fail(CP_E_PLAN,
                         "%s: no placement would ever end: its links are too weak or its devices "
                         "too slow to count in seconds",
                         a->world->cluster[cluster].name);
}

/* --- all clusters ---------------------------------------------------------------------------- */

/* The cheapest candidate that is no slower than limit_s; -1: none. Cost falls with time. */
static int cheapest(const struct front *f, double limit_s)
{
    int i = -1;
    while (i + 1 < f->n && f->item[i + 1].value.time_s <= limit_s) {
        i++;
    }
    return i;
}

/* V theta + cost with every cluster at its cheapest within theta; infinite if one has none. */
static double merged_value(const struct solver *x, double theta)
{
    double cost = 0;
    for (int c = 0; c < x->a->world->n_clusters; c++) {
        int i = cheapest(&x->front[c], theta);
        if (i < 0) {
            return INFINITY;
        }
        cost += x->front[c].item[i].value.cost;
    }
    return cp_queues_v(x->a->queues) * theta + cost;
}

/* Section 11.6 (i): tries every candidate's time as the round time; exact over the candidates. */
static void merge(const struct solver *x, struct cp_plan *out)
{
    int n = x->a->world->n_clusters;
    double best = INFINITY, best_theta = INFINITY;
    for (int c = 0; c < n; c++) {
        for (int i = 0; i < x->front[c].n; i++) {
            double theta = x->front[c].item[i].value.time_s, value = merged_value(x, theta);
            if (value < best || (value == best && theta < best_theta)) {
                best = value;
                best_theta = theta;
            }
        }
    }
    for (int c = 0; c < n; c++) {
        out->cluster[c] = x->front[c].item[cheapest(&x->front[c], best_theta)].plan;
    }
}

/* Whether last round's plan is one that this call could have made. */
static bool incumbent_holds(const struct cp_policy_args *a)
{
    const struct cp_plan *p = a->incumbent;
    if (!p || cp_plan_check(p, a->world) != CP_OK) {
        return false;
    }
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_plan *k = &p->cluster[c];
        if (k->mode != CP_MODE_PIPELINE ||
            (!a->choose_micro && k->micro_batches != cp_draft_micro(a, c))) {
            return false;
        }
        struct cp_order_list list = cp_draft_orders(a);
        bool listed = false;
        for (int i = 0; i < list.all; i++) {
            listed |= list.order[i] == k->order;
        }
        if (!listed) {
            return false;
        }
    }
    return true;
}

/* --- what binds ------------------------------------------------------------------------------ */

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

static void note_memory(struct solver *x, const struct cp_plan *p, struct cp_decision *d)
{
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_plan *k = &p->cluster[c];
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

static cp_err solve(struct solver *x, struct cp_plan *out, struct cp_decision *d)
{
    const struct cp_policy_args *a = x->a;
    for (int c = 0; c < a->world->n_clusters; c++) {
        CP_TRY(solve_cluster(x, c));
    }
    merge(x, out);
    if (incumbent_holds(a)) {
        double fresh = cp_plan_objective(out, a->world, a->queues);
        double kept = cp_plan_objective(a->incumbent, a->world, a->queues);
        if (!(fresh < kept * (1 - CP_KEEP_MARGIN))) {
            memcpy(out->cluster, a->incumbent->cluster,
                   (size_t)out->n_clusters * sizeof *out->cluster);
            cp_draft_note(d, "last plan kept");
        }
    }
    note_slowest(out, a->world, d);
    note_prices(out, a, d);
    note_memory(x, out, d);
    return CP_OK;
}

static cp_err decide_dssda(const struct cp_policy_args *a, struct cp_plan *out,
                           struct cp_decision *d)
{
    struct solver x = {.a = a};
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_new(NULL, sizeof *x.room, &x.room), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)a->world->n_clusters, sizeof *x.front, &x.front),
                done);
    err = solve(&x, out, d);
done:
    for (int c = 0; x.front && c < a->world->n_clusters; c++) {
        cp_mem_free(x.front[c].item);
    }
    cp_mem_free(x.front);
    cp_split_work_fini(&x.work);
    cp_mem_free(x.room);
    return err;
}

const struct cp_policy CP_POLICY_DSSDA = {
    .name = "dssda",
    .help = "cuts, devices, order and micro-batches by drift plus penalty",
    .trains = true,
    .decide = decide_dssda,
};
