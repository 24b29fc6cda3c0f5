#include "api/round_json.h"

#include "api/internal.h"

#include <math.h>
#include <string.h>

json_t *cp_score_json(const struct cp_score *s)
{
    json_t *j = json_object();
    cp_api_real(j, "accuracy", s->samples ? (double)s->correct / (double)s->samples : 0);
    cp_api_real(j, "loss", s->loss);
    json_object_set_new(j, "samples", json_integer(s->samples));
    return j;
}

static bool uses(const struct cp_cluster_plan *p, int device)
{
    for (int s = 0; s < p->segments; s++) {
        if (p->device[s] == device) {
            return true;
        }
    }
    return false;
}

static json_t *cluster_json(const struct cp_job *job, const struct cp_round_report *r, int c)
{
    const struct cp_cluster_plan *p = &r->plan->cluster[c];
    const struct cp_cluster *cl = &r->world->cluster[c];
    json_t *devices = json_array(), *segments = json_array(), *standby = json_array();
    json_t *absent = json_array();
    for (int s = 0; s < p->segments; s++) {
        json_array_append_new(devices, json_string(cl->device[p->device[s]].name));
        json_array_append_new(segments, json_integer(p->layers[s]));
    }
    for (int k = 0; k < cl->n_devices; k++) {
        if (!cl->device[k].present) {
            json_array_append_new(absent, json_string(cl->device[k].name));
        } else if (!uses(p, k)) {
            json_array_append_new(standby, json_string(cl->device[k].name));
        }
    }
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:o, s:o, s:f, s:f, s:f, s:o, s:o}", "name",
                     cl->name, "mode", cp_plan_mode_name(p->mode), "order", cp_order_name(p->order),
                     "edge_layers", p->edge_layers, "micro_batches", p->micro_batches,
                     "step_samples", (json_int_t)cp_job_step_samples(job, p->micro_batches),
                     "devices", devices, "segments", segments, "step_s", r->sim->cluster[c].step_s,
                     "round_s", r->sim->cluster[c].round_s, "bubble_pct",
                     100 * r->sim->cluster[c].bubble, "standby", standby, "absent", absent);
}

static const char *owner_name(const struct cp_cluster *cl, int owner)
{
    return owner == CP_OWNER_EDGE ? "edge" : cl->device[owner].name;
}

static json_t *move_json(const struct cp_round_report *r, const struct cp_move *m)
{
    const struct cp_cluster *cl = &r->world->cluster[m->cluster];
    return json_pack("{s:s, s:i, s:s, s:s}", "cluster", cl->name, "layer", m->block, "from",
                     owner_name(cl, m->from), "to", owner_name(cl, m->to));
}

static bool listed(const json_t *cluster, const char *key, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(cluster, key), i, item)
    {
        if (strcmp(json_string_value(item), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Devices that left or came back since the round before. */
static void membership_changes(json_t *changes, const json_t *now, const json_t *before)
{
    const char *name = json_string_value(json_object_get(now, "name"));
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(now, "absent"), i, device)
    {
        if (!listed(before, "absent", json_string_value(device))) {
            json_array_append_new(changes,
                                  json_sprintf("%s: %s left", name, json_string_value(device)));
        }
    }
    json_array_foreach(json_object_get(before, "absent"), i, device)
    {
        if (!listed(now, "absent", json_string_value(device))) {
            json_array_append_new(changes,
                                  json_sprintf("%s: %s is back", name, json_string_value(device)));
        }
    }
}

static void plan_changes(json_t *changes, const json_t *now, const json_t *before)
{
    const char *name = json_string_value(json_object_get(now, "name"));
    json_int_t m = json_integer_value(json_object_get(now, "micro_batches"));
    json_int_t m0 = json_integer_value(json_object_get(before, "micro_batches"));
    const char *order = json_string_value(json_object_get(now, "order"));
    const char *order0 = json_string_value(json_object_get(before, "order"));
    const char *mode = json_string_value(json_object_get(now, "mode"));
    const char *mode0 = json_string_value(json_object_get(before, "mode"));
    if (mode0 && strcmp(mode, mode0) != 0) {
        json_array_append_new(changes, json_sprintf("%s: %s -> %s", name, mode0, mode));
        order0 = NULL; /* the mode says it */
    }
    if (m != m0) {
        json_array_append_new(changes, json_sprintf("%s: M %d -> %d", name, (int)m0, (int)m));
    }
    if (order0 && strcmp(order, order0) != 0) {
        json_array_append_new(changes, json_sprintf("%s: %s -> %s", name, order0, order));
    }
}

static json_t *changes_json(const json_t *clusters, const json_t *previous, const json_t *moves)
{
    json_t *changes = json_array(), *before = json_object_get(previous, "clusters"), *move;
    size_t i;
    if (!before) {
        return changes;
    }
    for (i = 0; i < json_array_size(clusters); i++) {
        membership_changes(changes, json_array_get(clusters, i), json_array_get(before, i));
    }
    json_array_foreach(moves, i, move)
    {
        json_array_append_new(changes,
                              json_sprintf("%s: layer %d %s -> %s",
                                           json_string_value(json_object_get(move, "cluster")),
                                           (int)json_integer_value(json_object_get(move, "layer")),
                                           json_string_value(json_object_get(move, "from")),
                                           json_string_value(json_object_get(move, "to"))));
    }
    for (i = 0; i < json_array_size(clusters); i++) {
        plan_changes(changes, json_array_get(clusters, i), json_array_get(before, i));
    }
    return changes;
}

static double worst_energy_queue(const struct cp_round_report *r)
{
    double worst = 0;
    for (int c = 0; c < r->world->n_clusters; c++) {
        for (int k = 0; k <= r->world->cluster[c].n_devices; k++) {
            worst = fmax(worst, r->queues->energy[c][k]);
        }
    }
    return worst;
}

/* x, or null where it is not known. */
static json_t *known(bool known, double x)
{
    return known ? json_real(x) : json_null();
}

static json_t *bound_json(const struct cp_bound *b)
{
    return b ? json_pack("{s:f, s:f, s:f, s:f, s:f}", "start", b->start, "noise", b->noise,
                         "spread", b->spread, "drift", b->drift, "total", b->total)
             : json_null();
}

static json_t *constants_json(const struct cp_round_report *r)
{
    const struct cp_constants *k = r->constants;
    json_t *variance = json_array();
    for (int c = 0; c < k->n_clusters; c++) {
        json_array_append_new(variance,
                              known(k->variance[c].rounds > 0, cp_constants_variance(k, c)));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:s}", "variance", variance, "dissimilarity2",
                     known(k->dissimilarity2.rounds > 0, cp_constants_dissimilarity2(k)),
                     "smoothness", known(k->n_ratios > 0, cp_constants_beta(k)), "bound",
                     bound_json(r->bound), "bound_note", r->bound_note);
}

json_t *cp_round_json(const struct cp_job *job, const struct cp_round_report *r,
                      const json_t *previous)
{
    json_t *j = json_object(), *clusters = json_array(), *moves = json_array();
    json_t *eval = cp_score_json(&r->eval);
    for (int c = 0; c < r->world->n_clusters; c++) {
        json_array_append_new(clusters, cluster_json(job, r, c));
    }
    for (int i = 0; i < r->n_moves; i++) {
        json_array_append_new(moves, move_json(r, &r->move[i]));
    }
    json_object_set_new(eval, "full", json_boolean(r->eval_full));
    json_object_set_new(j, "round", json_integer(r->round + 1));
    json_object_set_new(j, "step", json_integer((r->round + 1) * job->config->train.local_steps));
    cp_api_real(j, "train_loss", r->train_loss);
    json_object_set_new(j, "samples", json_integer(r->samples));
    json_object_set_new(j, "eval", eval);
    cp_api_real(j, "latency_s", r->sim->latency_s);
    cp_api_real(j, "energy_j", r->sim->energy_j);
    cp_api_real(j, "bubble_pct", 100 * r->sim->bubble);
    cp_api_real(j, "wall_s", r->wall_s);
    json_object_set_new(j, "gen", json_integer(r->plan->gen));
    json_object_set_new(j, "changes", changes_json(clusters, previous, moves));
    json_object_set_new(j, "moves", moves);
    json_object_set_new(j, "kept", json_boolean(r->kept));
    json_object_set_new(j, "note", json_string(r->note));
    cp_api_real(j, "wait_s", r->wait_s);
    json_object_set_new(j, "binding", json_string(r->decision->binding));
    cp_api_real(j, "objective", r->decision->objective);
    cp_api_real(j, "solve_ms", r->decision->solve_ms);
    cp_api_real(j, "queue_convergence", r->queues->convergence);
    cp_api_real(j, "queue_energy_max", worst_energy_queue(r));
    json_object_set_new(j, "constants", constants_json(r));
    json_object_set_new(j, "clusters", clusters);
    return j;
}
