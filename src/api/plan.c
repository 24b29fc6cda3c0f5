/* plan: one decision, explained. */
#include "api/internal.h"
#include "node/job.h"
#include "pipe/ops.h"
#include "sim/sim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct planner {
    struct cp_job job;
    struct cp_world world, mean;
    struct cp_queues queues;
    bool with_data;
};

static void planner_fini(struct planner *p)
{
    cp_queues_fini(&p->queues);
    cp_world_fini(&p->world);
    cp_world_fini(&p->mean);
    cp_job_fini(&p->job);
}

/* With its data, if that is there: the sizes of vocabulary and shards are then those of a run. */
static cp_err planner_init(struct planner *p, const collapipe_config *config)
{
    const struct cp_config *c = cp_config_of(config->conf);
    struct cp_str path = {0};
    CP_TRY(cp_api_path(config->folder, c->data.path, &path));
    p->with_data = access(path.p, F_OK) == 0;
    cp_str_fini(&path);
    CP_TRY(p->with_data ? cp_job_init(&p->job, c, config->folder) : cp_job_init_world(&p->job, c, config->folder));
    CP_TRY(cp_job_world(&p->job, 0, false, &p->world));
    CP_TRY(cp_job_world(&p->job, 0, true, &p->mean));
    return cp_job_queues(&p->job, &p->mean, &p->queues);
}

static cp_err decide(const struct planner *p, const struct cp_policy *policy, struct cp_plan *plan,
                     struct cp_decision *d)
{
    struct cp_policy_args args = cp_job_policy_args(&p->job, &p->world, &p->mean);
    args.queues = &p->queues;
    return cp_policy_decide(policy, &args, plan, d);
}

/* The pipeline of one cluster drawn from its op lists. */
static cp_err grid(const struct cp_cluster_plan *c, const struct cp_cluster *cl, struct cp_str *out)
{
    struct cp_ops lists[CP_STAGES_MAX] = {{0}};
    const char *names[CP_STAGES_MAX];
    int n = c->segments + 2;
    cp_err err = CP_OK;
    for (int j = 0; j < n && !err; j++) {
        names[j] = j == 0 ? "cu" : j == n - 1 ? "edge" : cl->device[c->device[j - 1]].name;
        err = cp_ops_make(j, n, c->micro_batches, c->slots[j], true, &lists[j]);
    }
    if (!err) {
        err = cp_ops_check(lists, n, c->micro_batches, c->slots, true);
    }
    if (!err) {
        err = cp_grid_print(lists, n, names, out);
    }
    for (int j = 0; j < n; j++) {
        cp_ops_fini(&lists[j]);
    }
    return err;
}

static json_t *real_array(const double *x, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(a, json_real(x[i]));
    }
    return a;
}

/* Rates of the links, forwards: D2D links, then the link to the edge server. */
static json_t *rates_json(const struct planner *p, const struct cp_cluster_plan *c,
                          const struct cp_cluster_forecast *f)
{
    double bits = 8 * (p->world.model.boundary_bytes + p->world.model.label_bytes);
    json_t *a = json_array();
    for (int j = 0; j <= c->segments; j++) {
        double t = f->times.link_fwd_s[j];
        json_array_append_new(a, json_real(t > 0 ? bits / t : 0));
    }
    return a;
}

/* What predict adds to the plan's own JSON of a cluster. */
static cp_err add_cluster(const struct planner *p, json_t *j, const struct cp_cluster_plan *c,
                          int index, const struct cp_cluster_forecast *f)
{
    const struct cp_cluster *cl = &p->world.cluster[index];
    json_t *limits = json_array();
    struct cp_str drawn = {0};
    json_object_set_new(j, "step_s", json_real(f->step_s));
    json_object_set_new(j, "round_s", json_real(f->round_s));
    json_object_set_new(j, "bubble_pct", json_real(100 * f->bubble));
    json_object_set_new(j, "upload_s", json_real(f->upload_s));
    for (int s = 0; s < c->segments; s++) {
        json_array_append_new(limits, json_integer((json_int_t)cl->device[c->device[s]].mem_bytes));
    }
    json_object_set_new(j, "mem_limit_bytes", limits);
    if (c->mode != CP_MODE_PIPELINE) {
        return CP_OK;
    }
    json_object_set_new(j, "fwd_s", real_array(f->times.fwd_s, c->segments + 2));
    json_object_set_new(j, "bwd_s", real_array(f->times.bwd_s, c->segments + 2));
    json_object_set_new(j, "link_fwd_s", real_array(f->times.link_fwd_s, c->segments + 1));
    json_object_set_new(j, "link_bwd_s", real_array(f->times.link_bwd_s, c->segments + 1));
    json_object_set_new(j, "link_rate_bps", rates_json(p, c, f));
    cp_err err = grid(c, cl, &drawn);
    if (!err) {
        json_object_set_new(j, "grid", json_string(cp_str_text(&drawn)));
    }
    cp_str_fini(&drawn);
    return err;
}

static json_t *binding_json(const char *text)
{
    json_t *list = json_array();
    if (text[0]) {
        json_array_append_new(list, json_string(text));
    }
    return list;
}

static cp_err add_forecast(const struct planner *p, json_t *j, const struct cp_plan *plan,
                           const struct cp_decision *d)
{
    struct cp_forecast f;
    CP_TRY(cp_forecast_make(plan, &p->world, NULL, 0, &f));
    json_object_set_new(j, "objective", json_real(d->objective));
    json_object_set_new(j, "latency_s", json_real(f.latency_s));
    json_object_set_new(j, "round_energy_j", json_real(f.energy_j));
    json_object_set_new(j, "gap_bound", json_null()); /* no certificate in this version */
    json_object_set_new(j, "solve_ms", json_real(d->solve_ms));
    json_object_set_new(j, "binding", binding_json(d->binding));
    cp_err err = CP_OK;
    for (int c = 0; c < plan->n_clusters && !err; c++) {
        err = add_cluster(p, json_array_get(json_object_get(j, "clusters"), (size_t)c),
                          &plan->cluster[c], c, &f.cluster[c]);
    }
    cp_forecast_fini(&f);
    return err;
}

static cp_err plan_json(const struct planner *p, const struct cp_plan *plan,
                        const struct cp_decision *d, json_t **out)
{
    struct cp_str text = {0};
    cp_err err = cp_plan_to_json(plan, &p->world, &text);
    json_t *j = err ? NULL : json_loadb(text.p, text.len, 0, NULL);
    cp_str_fini(&text);
    if (!err && !j) {
        err = cp_fail(CP_E_NOMEM, "out of memory");
    }
    if (!err) {
        err = add_forecast(p, j, plan, d);
    }
    if (err) {
        json_decref(j);
        return err;
    }
    *out = j;
    return CP_OK;
}

/* Plans of the other policies by rising objective; those that find none say why. */
static json_t *others_json(const struct planner *p, const struct cp_policy *chosen)
{
    json_t *list = json_array();
    for (int i = 0; CP_POLICIES[i]; i++) {
        struct cp_plan plan = {0};
        struct cp_decision d = {0};
        if (CP_POLICIES[i] == chosen) {
            continue;
        }
        json_t *j = json_pack("{s:s}", "policy", CP_POLICIES[i]->name);
        struct cp_forecast f;
        if (decide(p, CP_POLICIES[i], &plan, &d) == CP_OK &&
            cp_forecast_make(&plan, &p->world, NULL, 0, &f) == CP_OK) {
            json_object_set_new(j, "objective", json_real(d.objective));
            json_object_set_new(j, "latency_s", json_real(f.latency_s));
            cp_forecast_fini(&f);
        } else {
            json_object_set_new(j, "why", json_string(cp_err_text()));
        }
        cp_plan_fini(&plan);
        size_t at = 0;
        for (; at < json_array_size(list); at++) {
            json_t *other = json_object_get(json_array_get(list, at), "objective");
            if (!other ||
                (json_object_get(j, "objective") && d.objective < json_number_value(other))) {
                break;
            }
        }
        json_array_insert_new(list, at, j);
    }
    return list;
}

static cp_err make_plan(struct planner *p, const char *name, bool explain, json_t **out)
{
    const struct cp_policy *policy = name ? cp_policy_find(name) : p->job.policy;
    struct cp_plan plan = {0};
    struct cp_decision d = {0};
    if (!policy) {
        return cp_fail(CP_E_CONFIG, "there is no policy '%.40s'; collapipe plan --help lists them",
                       name);
    }
    CP_TRY(decide(p, policy, &plan, &d));
    plan.gen = 1;
    cp_err err = plan_json(p, &plan, &d, out);
    cp_plan_fini(&plan);
    if (!err && explain) {
        json_object_set_new(*out, "next_best", others_json(p, policy));
    }
    if (!err) {
        json_object_set_new(*out, "with_data", json_boolean(p->with_data));
    }
    return err;
}

int collapipe_plan(const collapipe_config *c, const char *policy, int explain, char **json)
{
    struct planner p = {0};
    json_t *doc = NULL;
    char why[1024];
    cp_err err = planner_init(&p, c);
    if (!err) {
        err = make_plan(&p, policy, explain != 0, &doc);
    }
    if (!err) {
        err = cp_api_dump(doc, json);
    }
    snprintf(why, sizeof why, "%s", err ? cp_err_text() : "");
    planner_fini(&p);
    return cp_api_status(err ? cp_fail(err, "%s", why) : CP_OK);
}
