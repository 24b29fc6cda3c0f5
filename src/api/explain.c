#include "api/explain.h"

#include "api/internal.h"
#include "plan/explain.h"
#include "plan/whatif.h"

#include <math.h>
#include <stdio.h>

/* Each of what_if takes up to 7 decisions: few are asked for, and none where one takes seconds. */
enum { MEMORY_KNOBS = 2, WHAT_IF_CLUSTERS_MAX = 64 };

struct teller {
    const struct cp_policy *policy;
    const struct cp_policy_args *a;
    const struct cp_plan *plan;
    const struct cp_why *why;
    double objective;
    struct cp_forecast forecast;
    int slowest; /* cluster */
};

static double change_pct(const struct teller *t, double objective)
{
    return 100 * (objective / t->objective - 1);
}

/* One line per cluster, as everywhere else. */
static json_t *cut_json(const struct teller *t, const struct cp_cluster_plan *c, int cluster)
{
    struct cp_str line = {0};
    cp_plan_line(c, &t->a->world->cluster[cluster], &line);
    json_t *j = json_string(cp_str_text(&line));
    cp_str_fini(&line);
    return j;
}

/* --- what binds ------------------------------------------------------------------------------ */

/* A device whose memory would not hold one layer more. */
static bool is_full(const struct teller *t, int cluster, int device)
{
    const struct cp_device_why *d = &t->why->cluster[cluster].device[device];
    return t->plan->cluster[cluster].mode == CP_MODE_PIPELINE && d->present &&
           d->more_bytes > t->a->world->cluster[cluster].device[device].mem_bytes;
}

static void add_memory(const struct teller *t, json_t *list)
{
    for (int c = 0; c < t->plan->n_clusters; c++) {
        const struct cp_cluster *cl = &t->a->world->cluster[c];
        for (int k = 0; k < cl->n_devices; k++) {
            const struct cp_device_why *d = &t->why->cluster[c].device[k];
            if (is_full(t, c, k)) {
                json_array_append_new(list,
                                      json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "what", "memory",
                                                "cluster", cl->name, "node", cl->device[k].name,
                                                "used_bytes", (json_int_t)d->mem_bytes,
                                                "limit_bytes", (json_int_t)cl->device[k].mem_bytes,
                                                "more_bytes", (json_int_t)d->more_bytes));
            }
        }
    }
}

static void add_queues(const struct teller *t, json_t *list)
{
    const struct cp_queues *q = t->a->queues;
    for (int c = 0; q && c < t->plan->n_clusters; c++) {
        const struct cp_cluster *cl = &t->a->world->cluster[c];
        for (int node = 0; node <= cl->n_devices; node++) {
            const struct cp_device *d = node == 0 ? &cl->cu : &cl->device[node - 1];
            double used_j = t->forecast.cluster[c].energy_j[node];
            double cost = cp_queues_price(q, t->a->world, c, node) * used_j;
            if (cost > 0) {
                json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f}", "what",
                                                      "energy queue", "cluster", cl->name, "node",
                                                      d->name, "used_j", used_j, "budget_j",
                                                      d->budget_j, "cost", cost));
            }
        }
    }
    if (t->a->choose_micro && t->why->convergence_cost > 0) {
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:f}", "what", "convergence queue", "gamma",
                                        t->forecast.gamma, "cost", t->why->convergence_cost));
    }
}

static const char *stage_name(const struct cp_cluster_plan *c, const struct cp_cluster *cl, int j)
{
    return j == 0 ? cl->cu.name : j > c->segments ? "edge" : cl->device[c->device[j - 1]].name;
}

/* The stage or link of the slowest cluster that a step gains most from. */
static void add_bottleneck(const struct teller *t, json_t *list)
{
    const struct cp_cluster *cl = &t->a->world->cluster[t->slowest];
    const struct cp_cluster_plan *c = &t->plan->cluster[t->slowest];
    const struct cp_cluster_why *k = &t->why->cluster[t->slowest];
    double most = 0;
    bool link = false;
    int at = 0;
    for (int j = 0; j <= c->segments + 1 && c->mode == CP_MODE_PIPELINE; j++) {
        double by_link = j <= c->segments ? k->link_gain[j] : 0;
        if (fmax(k->stage_gain[j], by_link) > most) {
            most = fmax(k->stage_gain[j], by_link);
            link = by_link > k->stage_gain[j];
            at = j;
        }
    }
    if (most > 0) {
        char name[3 * CP_WORLD_NAME];
        snprintf(name, sizeof name, "%s%s%s", stage_name(c, cl, at), link ? " - " : "",
                 link ? stage_name(c, cl, at + 1) : "");
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:f}", "what",
                                              link ? "link" : "stage", "cluster", cl->name, "node",
                                              name, "tenth_pct", 100 * most));
    }
}

static json_t *binds_json(const struct teller *t)
{
    json_t *list = json_array();
    double next_s = 0; /* of the second slowest */
    for (int c = 0; c < t->plan->n_clusters; c++) {
        next_s = c == t->slowest ? next_s : fmax(next_s, t->why->cluster[c].round_s);
    }
    if (t->plan->n_clusters > 1) {
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:f}", "what", "slowest cluster", "cluster",
                                        t->a->world->cluster[t->slowest].name, "ahead_s",
                                        t->why->cluster[t->slowest].round_s - next_s));
    }
    add_bottleneck(t, list);
    add_memory(t, list);
    add_queues(t, list);
    return list;
}

/* --- devices --------------------------------------------------------------------------------- */

static json_t *change_json(const struct teller *t, const struct cp_cluster *cl,
                           const struct cp_layer_change *x)
{
    if (!x->possible) {
        return json_null();
    }
    return json_pack("{s:s, s:f, s:f}", "other", cl->device[x->other].name, "objective_change_pct",
                     change_pct(t, x->objective), "latency_change_s",
                     x->latency_s - t->forecast.latency_s);
}

static json_t *percent_array(const double *x, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(a, json_real(100 * x[i]));
    }
    return a;
}

static json_t *cluster_json(const struct teller *t, int c)
{
    const struct cp_cluster *cl = &t->a->world->cluster[c];
    const struct cp_cluster_why *k = &t->why->cluster[c];
    int n = t->plan->cluster[c].segments;
    json_t *devices = json_array();
    for (int i = 0; i < cl->n_devices; i++) {
        const struct cp_device_why *d = &k->device[i];
        json_array_append_new(
            devices,
            json_pack("{s:s, s:b, s:i, s:f, s:I, s:I, s:I, s:o, s:o}", "name", cl->device[i].name,
                      "present", d->present, "layers", d->layers, "layer_s", d->layer_s,
                      "mem_bytes", (json_int_t)d->mem_bytes, "mem_limit_bytes",
                      (json_int_t)cl->device[i].mem_bytes, "more_bytes", (json_int_t)d->more_bytes,
                      "more", change_json(t, cl, &d->more), "less", change_json(t, cl, &d->less)));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "name", cl->name, "stage_tenth_pct",
                     percent_array(k->stage_gain, n + 2), "link_tenth_pct",
                     percent_array(k->link_gain, n + 1), "devices", devices);
}

/* --- the next best plan ---------------------------------------------------------------------- */

static void change_text(const struct teller *t, char *out, size_t size)
{
    const struct cp_neighbour *n = &t->why->next;
    const struct cp_cluster *cl = &t->a->world->cluster[n->cluster];
    const struct cp_cluster_plan *was = &t->plan->cluster[n->cluster];
    const char *from = n->from < 0 ? "" : cl->device[n->from].name;
    const char *to = n->to < 0 ? "" : cl->device[n->to].name;
    switch (n->kind) {
    case CP_NEIGHBOUR_LAYER:
        snprintf(out, size, "one layer from %s to %s", from, to);
        break;
    case CP_NEIGHBOUR_SWAP:
        snprintf(out, size, "%s and %s exchange places and layers", from, to);
        break;
    case CP_NEIGHBOUR_PLACES:
        snprintf(out, size, "%s and %s exchange places, each with its layers", from, to);
        break;
    case CP_NEIGHBOUR_REPLACE:
        snprintf(out, size, "%s in place of %s", to, from);
        break;
    case CP_NEIGHBOUR_MICRO:
        snprintf(out, size, "%d micro-batches instead of %d", n->plan.micro_batches,
                 was->micro_batches);
        break;
    case CP_NEIGHBOUR_ORDER:
        snprintf(out, size, "order %s instead of %s", cp_order_name(n->plan.order),
                 cp_order_name(was->order));
        break;
    }
}

static json_t *next_json(const struct teller *t)
{
    const struct cp_neighbour *n = &t->why->next;
    char change[4 * CP_WORLD_NAME];
    if (!t->why->has_next) {
        return json_null();
    }
    change_text(t, change, sizeof change);
    return json_pack(
        "{s:s, s:s, s:o, s:f, s:f, s:f}", "cluster", t->a->world->cluster[n->cluster].name,
        "change", change, "cut", cut_json(t, &n->plan, n->cluster), "objective", n->objective,
        "objective_change_pct", change_pct(t, n->objective), "latency_s", n->latency_s);
}

/* --- what would change it -------------------------------------------------------------------- */

static void knob_text(const struct teller *t, const struct cp_knob *k, char *out, size_t size)
{
    const struct cp_cluster *cl = &t->a->world->cluster[k->cluster];
    switch (k->kind) {
    case CP_KNOB_MEMORY:
        snprintf(out, size, "memory of %s.%s", cl->name, cl->device[k->device].name);
        break;
    case CP_KNOB_D2D:
        snprintf(out, size, "band between devices");
        break;
    case CP_KNOB_EDGE:
        snprintf(out, size, "band to the edge server");
        break;
    case CP_KNOB_SERVER:
        snprintf(out, size, "speed of the edge server");
        break;
    }
}

static cp_err add_what_if(const struct teller *t, const struct cp_knob *knob, json_t *list)
{
    struct cp_what_if x;
    char what[3 * CP_WORLD_NAME];
    CP_TRY(cp_what_if_make(t->policy, t->a, t->plan, knob, &x));
    knob_text(t, knob, what, sizeof what);
    json_t *cuts = json_array();
    for (int c = 0; x.changes && c < t->plan->n_clusters; c++) {
        if (cp_cut_differs(&x.plan.cluster[c], &t->plan->cluster[c])) {
            json_array_append_new(cuts, cut_json(t, &x.plan.cluster[c], c));
        }
    }
    json_t *j = json_pack("{s:s, s:o, s:i, s:o, s:i}", "what", what, "factor",
                          x.changes ? json_real(x.factor) : json_null(), "up_to", CP_WHATIF_MOST,
                          "cut", cuts, "decisions", x.decisions);
    json_object_set_new(j, "objective", x.changes ? json_real(x.objective) : json_null());
    json_object_set_new(j, "latency_s", x.changes ? json_real(x.latency_s) : json_null());
    json_array_append_new(list, j);
    cp_what_if_fini(&x);
    return CP_OK;
}

/* The bands, the server, and the memory of the first few devices that are full, those of the
 * slowest cluster before others. */
static cp_err add_what_ifs(const struct teller *t, json_t *list)
{
    static const enum cp_knob_kind KINDS[] = {CP_KNOB_D2D, CP_KNOB_EDGE, CP_KNOB_SERVER};
    int left = MEMORY_KNOBS, n = t->plan->n_clusters;
    for (int i = 0; i < n && left > 0; i++) {
        int c = (t->slowest + i) % n;
        for (int k = 0; k < t->a->world->cluster[c].n_devices && left > 0; k++) {
            if (is_full(t, c, k)) {
                struct cp_knob knob = {CP_KNOB_MEMORY, c, k};
                CP_TRY(add_what_if(t, &knob, list));
                left--;
            }
        }
    }
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        struct cp_knob knob = {.kind = KINDS[i]};
        CP_TRY(add_what_if(t, &knob, list));
    }
    return CP_OK;
}

/* --- together -------------------------------------------------------------------------------- */

static cp_err tell(struct teller *t, json_t **out)
{
    json_t *clusters = json_array(), *what_ifs = json_array();
    for (int c = 0; c < t->plan->n_clusters; c++) {
        if (t->why->cluster[c].round_s > t->why->cluster[t->slowest].round_s) {
            t->slowest = c;
        }
    }
    for (int c = 0; c < t->plan->n_clusters; c++) {
        json_array_append_new(clusters, cluster_json(t, c));
    }
    cp_err err = CP_OK;
    if (t->plan->n_clusters <= WHAT_IF_CLUSTERS_MAX) {
        err = add_what_ifs(t, what_ifs);
    }
    json_t *costs = json_pack("{s:f, s:f, s:f}", "latency", t->why->latency_cost, "energy",
                              t->why->energy_cost, "convergence", t->why->convergence_cost);
    json_t *j = json_pack("{s:o, s:o, s:o, s:o, s:o}", "objective", costs, "binds", binds_json(t),
                          "clusters", clusters, "next", next_json(t), "what_if", what_ifs);
    if (!err && !j) {
        err = cp_fail(CP_E_NOMEM, "out of memory while a plan was explained");
    }
    if (err) {
        json_decref(j);
        return err;
    }
    *out = j;
    return CP_OK;
}

cp_err cp_explain_json(const struct cp_policy *policy, const struct cp_policy_args *a,
                       const struct cp_plan *plan, json_t **out)
{
    struct cp_why why;
    struct teller t = {.policy = policy, .a = a, .plan = plan, .why = &why};
    CP_TRY(cp_why_make(a, plan, &why));
    t.objective = why.latency_cost + why.energy_cost + why.convergence_cost;
    cp_err err = cp_forecast_make(plan, a->world, NULL, 0, &t.forecast);
    if (!err) {
        err = tell(&t, out);
        cp_forecast_fini(&t.forecast);
    }
    cp_why_fini(&why);
    return err;
}
