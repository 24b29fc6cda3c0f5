/* plan: one decision, drawn and explained. */
#include "api/explain.h"
#include "api/internal.h"
#include "node/job.h"
#include "pipe/ops.h"
#include "plan/whatif.h"
#include "sim/bubble.h"
#include "sim/grid.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS = 80, FULL_CLUSTERS = 64 /* with more, a bound takes as long as a decision */ };

struct planner {
    struct collapipe_plan_options opt;
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
    CP_TRY(p->with_data ? cp_job_init(&p->job, c, config->folder)
                        : cp_job_init_world(&p->job, c, config->folder));
    CP_TRY(cp_job_world(&p->job, 0, false, &p->world));
    CP_TRY(cp_job_world(&p->job, 0, true, &p->mean));
    return cp_job_queues(&p->job, &p->mean, &p->queues);
}

static struct cp_policy_args policy_args(const struct planner *p)
{
    struct cp_policy_args args = cp_job_policy_args(&p->job, &p->world, &p->mean);
    args.queues = &p->queues;
    args.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return args;
}

static cp_err decide(const struct planner *p, const struct cp_policy *policy, struct cp_plan *plan,
                     struct cp_decision *d)
{
    struct cp_policy_args args = policy_args(p);
    return cp_policy_decide(policy, &args, plan, d);
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

static json_t *bubble_json(const struct cp_bubble *b)
{
    json_t *busy = json_array(), *fill = json_array(), *imbalance = json_array();
    json_t *transfer = json_array();
    for (int j = 0; j < b->n_stages; j++) {
        json_array_append_new(busy, json_real(b->stage[j].busy_s));
        json_array_append_new(fill, json_real(b->stage[j].fill_s));
        json_array_append_new(imbalance, json_real(b->stage[j].imbalance_s));
        json_array_append_new(transfer, json_real(b->stage[j].transfer_s));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "busy_s", busy, "fill_s", fill, "imbalance_s",
                     imbalance, "transfer_s", transfer);
}

/* One step of a cluster, run on the virtual clock: where its time goes, and the drawing. */
static cp_err add_step(const struct planner *p, json_t *j, const struct cp_cluster_plan *c,
                       const struct cp_cluster *cl, const struct cp_times *t)
{
    struct cp_ops lists[CP_STAGES_MAX] = {{0}};
    const char *names[CP_STAGES_MAX];
    struct cp_grid g = {.names = names,
                        .columns = p->opt.columns ? p->opt.columns : COLUMNS,
                        .links = p->opt.explain};
    struct cp_bubble bubble;
    struct cp_str drawn = {0};
    int n = c->segments + 2;
    cp_err err = CP_OK;
    for (int i = 0; i < n && !err; i++) {
        names[i] = i == 0 ? cl->cu.name : i == n - 1 ? "edge" : cl->device[c->device[i - 1]].name;
        err = cp_ops_make(i, n, c->micro_batches, c->slots[i], true, &lists[i]);
    }
    err = err ? err : cp_bubble_make(lists, n, t, &bubble);
    err = err ? err : cp_grid_print(&g, lists, n, t, &drawn);
    if (!err) {
        json_object_set_new(j, "bubble", bubble_json(&bubble));
        json_object_set_new(j, "grid", json_string(cp_str_text(&drawn)));
    }
    for (int i = 0; i < n; i++) {
        cp_ops_fini(&lists[i]);
    }
    cp_str_fini(&drawn);
    return err;
}

/* What predict and sim add to the plan's own JSON of a cluster. */
static cp_err add_cluster(const struct planner *p, json_t *j, const struct cp_cluster_plan *c,
                          int index, const struct cp_forecast *all)
{
    const struct cp_cluster *cl = &p->world.cluster[index];
    const struct cp_cluster_forecast *f = &all->cluster[index];
    struct cp_round_parts parts;
    json_t *limits = json_array();
    cp_round_parts_make(all, index, p->world.local_steps, &parts);
    json_object_set_new(j, "step_s", json_real(f->step_s));
    json_object_set_new(j, "round_s", json_real(f->round_s));
    json_object_set_new(j, "bubble_pct", json_real(100 * f->bubble));
    json_object_set_new(j, "upload_s", json_real(f->upload_s));
    json_object_set_new(j, "round_parts",
                        json_pack("{s:f, s:f, s:f, s:f}", "steps_s", parts.steps_s, "exchange_s",
                                  parts.exchange_s, "straggler_s", parts.straggler_s, "broadcast_s",
                                  parts.broadcast_s));
    for (int s = 0; s < c->segments; s++) {
        json_array_append_new(limits, json_integer((json_int_t)cl->device[c->device[s]].mem_bytes));
    }
    json_object_set_new(j, "mem_limit_bytes", limits);
    json_object_set_new(j, "bubble", json_null());
    if (c->mode != CP_MODE_PIPELINE) {
        return CP_OK;
    }
    json_object_set_new(j, "fwd_s", real_array(f->times.fwd_s, c->segments + 2));
    json_object_set_new(j, "bwd_s", real_array(f->times.bwd_s, c->segments + 2));
    json_object_set_new(j, "link_fwd_s", real_array(f->times.link_fwd_s, c->segments + 1));
    json_object_set_new(j, "link_bwd_s", real_array(f->times.link_bwd_s, c->segments + 1));
    json_object_set_new(j, "link_rate_bps", rates_json(p, c, f));
    return add_step(p, j, c, cl, &f->times);
}

/* What binds is told as one text, its parts divided by "; ". */
static json_t *binding_json(const char *text)
{
    json_t *list = json_array();
    while (text[0]) {
        const char *end = strstr(text, "; ");
        size_t n = end ? (size_t)(end - text) : strlen(text);
        json_array_append_new(list, json_stringn(text, n));
        text += n + (end ? 2 : 0);
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
    json_object_set_new(j, "bound", d->bound > 0 ? json_real(d->bound) : json_null());
    json_object_set_new(j, "gap_bound",
                        d->bound > 0 ? json_real((d->objective - d->bound) / d->bound)
                                     : json_null());
    json_object_set_new(j, "bound_ms", json_real(d->bound_ms));
    json_object_set_new(j, "solve_ms", json_real(d->solve_ms));
    json_object_set_new(j, "binding", binding_json(d->binding));
    cp_err err = CP_OK;
    for (int c = 0; c < plan->n_clusters && !err; c++) {
        err = add_cluster(p, json_array_get(json_object_get(j, "clusters"), (size_t)c),
                          &plan->cluster[c], c, &f);
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

static cp_err explain(const struct planner *p, const struct cp_policy *policy,
                      const struct cp_plan *plan, json_t *doc)
{
    struct cp_policy_args args = policy_args(p);
    json_t *why = NULL;
    CP_TRY(cp_explain_json(policy, &args, plan, &why));
    json_object_set_new(doc, "explain", why);
    json_object_set_new(doc, "next_best", others_json(p, policy));
    return CP_OK;
}

static cp_err make_plan(const struct planner *p, json_t **out)
{
    const char *name = p->opt.policy;
    const struct cp_policy *policy = p->job.policy;
    struct cp_policy_args args = policy_args(p);
    struct cp_plan plan = {0};
    struct cp_decision d = {0};
    json_t *doc = NULL;
    if (name) {
        CP_TRY(cp_api_policy(name, &policy));
    }
    args.bound = p->world.n_clusters > FULL_CLUSTERS ? CP_LOWER_FAST : CP_LOWER_FULL;
    cp_err err = cp_policy_decide(policy, &args, &plan, &d);
    args.bound = CP_LOWER_NONE;
    if (err) {
        return cp_what_if_fail(policy, &args, err);
    }
    plan.gen = 1;
    err = plan_json(p, &plan, &d, &doc);
    err = err || !p->opt.explain ? err : explain(p, policy, &plan, doc);
    cp_plan_fini(&plan);
    if (err) {
        json_decref(doc);
        return err;
    }
    json_object_set_new(doc, "with_data", json_boolean(p->with_data));
    *out = doc;
    return CP_OK;
}

int collapipe_plan(const collapipe_config *c, const struct collapipe_plan_options *opt, char **json)
{
    struct planner p = {.opt = *opt};
    json_t *doc = NULL;
    char why[1024];
    cp_err err = planner_init(&p, c);
    err = err ? err : make_plan(&p, &doc);
    err = err ? err : cp_api_dump(doc, json);
    snprintf(why, sizeof why, "%s", err ? cp_err_text() : "");
    planner_fini(&p);
    return cp_api_status(err ? cp_fail(err, "%s", why) : CP_OK);
}
