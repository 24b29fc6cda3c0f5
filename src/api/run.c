/* run: a training run, with its events and its result. */
#include "api/run.h"

#include "api/baseline.h"
#include "api/round_json.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/name.h"
#include "model/ckpt.h"
#include "node/local.h"
#include "node/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- events ---------------------------------------------------------------------------------- */

static void emit(const struct cp_runner *r, const json_t *doc)
{
    if (r->opt->on_event) {
        char *text = json_dumps(doc, JSON_COMPACT);
        if (text) {
            r->opt->on_event(r->opt->arg, text);
        }
        free(text);
    }
}

static void emit_start(const struct cp_runner *r)
{
    const struct cp_job *job = &r->job;
    json_t *clusters = json_array();
    for (int c = 0; c < job->base.n_clusters; c++) {
        json_array_append_new(clusters,
                              json_pack("{s:s, s:I}", "name", job->base.cluster[c].name, "samples",
                                        (json_int_t)cp_shards_size(job->shards, c)));
    }
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:i, s:I, s:o, s:I, s:I, s:i, s:I, s:I, s:I}", "event", "start",
        "run_id", r->run_id ? r->run_id : "", "dir", cp_str_text(&r->dir), "policy",
        cp_runner_config(r)->plan.policy, "rounds", (json_int_t)cp_runner_config(r)->fed.rounds,
        "first_round", r->edge.start_round + 1, "local_steps",
        (json_int_t)cp_runner_config(r)->train.local_steps, "clusters", clusters, "samples",
        (json_int_t)job->train.n, "heldout", (json_int_t)job->heldout.n, "classes",
        job->shape.classes, "params",
        (json_int_t)cp_shape_params(&job->shape, 0, job->shape.layers + 1), "cut_rows",
        (json_int_t)(job->train.n_cut + job->heldout.n_cut), "seed", (json_int_t)job->seed);
    json_object_set_new(j, "resumed", json_boolean(r->resumed));
    emit(r, j);
    json_decref(j);
}

static void on_step(void *arg, const struct cp_step_report *s)
{
    struct cp_runner *r = arg;
    json_t *j = json_pack("{s:s, s:i, s:s, s:i, s:i, s:I}", "event", "step", "round", s->round + 1,
                          "cluster", r->job.base.cluster[s->cluster].name, "step", s->done, "steps",
                          s->steps, "samples", (json_int_t)s->samples);
    cp_api_real(j, "loss", s->loss);
    emit(r, j);
    json_decref(j);
}

static void put_scalars(struct cp_runner *r, const struct cp_round_report *round)
{
    const struct cp_score *e = &round->eval;
    const struct {
        const char *tag;
        double value;
    } scalars[] = {
        {"train/loss", round->train_loss},
        {"eval/loss", e->loss},
        {"eval/accuracy", e->samples ? (double)e->correct / (double)e->samples : 0},
        {"model/latency_s", round->sim->latency_s},
        {"model/energy_j", round->sim->energy_j},
        {"model/bubble", round->sim->bubble},
        {"queue/convergence", round->queues->convergence},
        {"wall_s", round->wall_s},
    };
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        cp_err err = cp_tfevents_scalar(r->tb, cp_utc_s(), scalars[i].tag, round->round + 1,
                                        scalars[i].value);
        if (err) {
            cp_log(CP_LOG_WARN, "TensorBoard events: %s", cp_err_text());
            return;
        }
    }
}

static cp_err on_round(void *arg, const struct cp_round_report *round)
{
    struct cp_runner *r = arg;
    size_t n = json_array_size(r->rounds_log);
    json_t *j = cp_round_json(&r->job, round, n ? json_array_get(r->rounds_log, n - 1) : NULL);
    json_object_set_new(j, "baselines", cp_baselines_round(&r->job, round));
    char *line = json_dumps(j, JSON_COMPACT);
    json_array_append(r->rounds_log, j);
    if (line) {
        fprintf(r->metrics, "%s\n", line);
        fflush(r->metrics);
    }
    cp_log(CP_LOG_INFO,
           "round %d: loss %.4f, accuracy %.4f of %lld, modelled %.3f s and %.2f J, %.2f s here",
           round->round + 1, round->train_loss,
           round->eval.samples ? (double)round->eval.correct / (double)round->eval.samples : 0,
           (long long)round->eval.samples, round->sim->latency_s, round->sim->energy_j,
           round->wall_s);
    put_scalars(r, round);
    if (line && r->recorded &&
        cp_store_round_put(r->store, r->run_id, round->round + 1, line) != CP_OK) {
        cp_log(CP_LOG_WARN, "run database: %s", cp_err_text());
    }
    free(line);
    json_object_set_new(j, "event", json_string("round"));
    emit(r, j);
    json_object_del(j, "event");
    json_decref(j);
    return CP_OK;
}

static cp_err on_save(void *arg, const struct cp_edge *e, int rounds_done)
{
    struct cp_runner *r = arg;
    char *log = json_dumps(r->rounds_log, JSON_COMPACT);
    cp_err err = log ? cp_snapshot_save(r->dir.p, e, rounds_done, log, &r->checkpoint)
                     : cp_fail(CP_E_NOMEM, "out of memory");
    free(log);
    if (err == CP_E_NOSPACE && !cp_api_stop_wanted() &&
        rounds_done < cp_runner_config(r)->fed.rounds) {
        cp_log(CP_LOG_WARN, "round %d was not saved, training goes on: %s", rounds_done,
               cp_err_text());
        return CP_OK;
    }
    CP_TRY(err);
    cp_log(CP_LOG_INFO, "saved %s", r->checkpoint.p);
    json_t *j = json_pack("{s:s, s:s, s:i}", "event", "saved", "path", r->checkpoint.p, "round",
                          rounds_done);
    emit(r, j);
    json_decref(j);
    return CP_OK;
}

static bool stop(void *arg)
{
    (void)arg;
    return cp_api_stop_wanted();
}

/* --- the result ------------------------------------------------------------------------------ */

static json_t *node_json(const struct cp_runner *r, int node)
{
    const struct cp_cast_node *n = &r->job.cast.node[node];
    const struct cp_wire_report *w = &r->edge.node[node].last;
    struct cp_part part;
    cp_cast_part(&r->job.cast, node, &r->edge.plan, &part);
    json_t *blocks =
        part.first <= part.last ? json_pack("[i,i]", part.first, part.last) : json_null();
    return json_pack("{s:s, s:s, s:o, s:i, s:I, s:I, s:I, s:I, s:f}", "name", n->name, "role",
                     cp_role_name(n->role), "blocks", blocks, "slots", part.slots, "mem_peak_bytes",
                     (json_int_t)w->mem_peak_bytes, "mem_model_bytes",
                     (json_int_t)w->mem_model_bytes, "msg_peak_bytes",
                     (json_int_t)w->msg_peak_bytes, "sent_bytes", (json_int_t)w->sent_bytes,
                     "busy_s", w->busy_s);
}

/* A stage of the edge server that no plan of the run has used: there is one for every device. */
static bool is_spare(const struct cp_runner *r, int node)
{
    return r->job.cast.node[node].role == CP_ROLE_HEAD &&
           r->edge.node[node].last.mem_model_bytes == 0;
}

static json_t *clusters_json(const struct cp_runner *r)
{
    json_t *list = json_array();
    for (int c = 0; c < r->job.base.n_clusters; c++) {
        json_t *nodes = json_array();
        for (int i = 0; i < r->job.cast.n_nodes; i++) {
            if (r->job.cast.node[i].cluster == c && !is_spare(r, i)) {
                json_array_append_new(nodes, node_json(r, i));
            }
        }
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:o}", "name", r->job.base.cluster[c].name, "samples",
                            (json_int_t)cp_shards_size(r->job.shards, c), "nodes", nodes));
    }
    return list;
}

/* Sums and series over the rounds that were logged. */
static void add_history(const struct cp_runner *r, json_t *j)
{
    json_t *losses = json_array(), *round;
    double latency = 0, energy = 0, bubble = 0;
    int changes = 0;
    size_t i, n = json_array_size(r->rounds_log);
    json_array_foreach(r->rounds_log, i, round)
    {
        json_array_append(losses, json_object_get(round, "train_loss"));
        latency += json_number_value(json_object_get(round, "latency_s"));
        energy += json_number_value(json_object_get(round, "energy_j"));
        bubble += json_number_value(json_object_get(round, "bubble_pct"));
        changes += json_array_size(json_object_get(round, "moves")) > 0;
    }
    double count = n ? (double)n : 1;
    json_object_set_new(j, "train_loss", losses);
    json_object_set(
        j, "eval", n ? json_object_get(json_array_get(r->rounds_log, n - 1), "eval") : json_null());
    cp_api_real(j, "model_time_s", latency);
    cp_api_real(j, "model_energy_j", energy);
    cp_api_real(j, "latency_s", latency / count);
    cp_api_real(j, "energy_j", energy / count);
    cp_api_real(j, "bubble_pct", bubble / count);
    json_object_set_new(j, "plan_changes", json_integer(changes));
    json_object_set_new(j, "rounds", json_integer((json_int_t)n));
    json_object_set_new(j, "steps",
                        json_integer((json_int_t)n * cp_runner_config(r)->train.local_steps));
    json_object_set(j, "rounds_log", r->rounds_log);
}

static json_t *result_json(const struct cp_runner *r, bool interrupted)
{
    char sha[CP_SHA256_HEX];
    json_t *j = json_object();
    cp_params_sha256(&r->job.shape, (const float *const *)r->edge.block, sha);
    json_object_set_new(j, "run_id", json_string(r->run_id));
    json_object_set_new(j, "dir", json_string(r->dir.p));
    json_object_set_new(j, "policy", json_string(cp_runner_config(r)->plan.policy));
    add_history(r, j);
    cp_api_real(j, "wall_s", r->wall_s);
    json_object_set_new(j, "clusters", clusters_json(r));
    json_object_set_new(j, "params_sha256", json_string(sha));
    json_object_set_new(j, "checkpoint", json_string(cp_str_text(&r->checkpoint)));
    json_object_set_new(j, "interrupted", json_boolean(interrupted));
    json_object_set_new(j, "baselines", cp_baselines_json(r->rounds_log));
    json_object_set_new(j, "files",
                        json_pack("{s:s, s:s, s:s, s:s, s:s}", "config", "config.yaml", "metrics",
                                  "metrics.jsonl", "trace", "trace.json", "log", "log.txt", "plan",
                                  "plan.json"));
    return j;
}

static void end_record(struct cp_runner *r, const char *status, const json_t *result)
{
    char utc[CP_UTC_SIZE];
    char *summary = result ? json_dumps(result, JSON_COMPACT) : NULL;
    cp_utc_text(utc);
    if (r->recorded && cp_store_run_end(r->store, r->run_id, utc, status,
                                        json_string_value(json_object_get(result, "params_sha256")),
                                        summary) != CP_OK) {
        cp_log(CP_LOG_WARN, "run database: %s", cp_err_text());
    }
    free(summary);
}

/* --- the course of a run --------------------------------------------------------------------- */

static cp_err load_checkpoint(struct cp_runner *r)
{
    struct cp_str log = {0};
    CP_TRY(cp_ckpt_latest(r->dir.p, &r->checkpoint));
    cp_err err = cp_snapshot_load(r->checkpoint.p, &r->edge, &log);
    if (!err) {
        json_t *rounds = json_loads(log.p, 0, NULL);
        json_decref(r->rounds_log);
        r->rounds_log = rounds ? rounds : json_array();
        cp_log(CP_LOG_INFO, "going on from %s", r->checkpoint.p);
    }
    cp_str_fini(&log);
    return err;
}

static cp_err read_job(struct cp_runner *r)
{
    CP_TRY(cp_name_check(CP_E_CONFIG, "run.name", cp_runner_config(r)->run.name));
    CP_TRY(cp_job_init(&r->job, cp_runner_config(r), r->cfg->folder));
    if (cp_runner_config(r)->plan.formats != CP_FORMATS_FP32) {
        return cp_fail(CP_E_CONFIG, "plan.formats=any is for plan and simulate: in this version a "
                                    "run sends fp32; take plan.formats=fp32");
    }
    return CP_OK;
}

static cp_err prepare(struct cp_runner *r)
{
    CP_TRY(cp_net_new(r->job.cast.n_nodes, r->job.cast.names, &r->net));
    CP_TRY(cp_edge_init(&r->edge, &r->job, r->net));
    r->edge.on_step = on_step;
    r->edge.on_round = on_round;
    r->edge.on_save = on_save;
    r->edge.stop = stop;
    r->edge.arg = r;
    r->rounds_log = json_array();
    return r->rounds_log ? CP_OK : cp_fail(CP_E_NOMEM, "out of memory");
}

/* Everything that a dry run proves: data, model, world, and a valid plan for the first round. */
static cp_err dry_run(struct cp_runner *r)
{
    struct cp_world w = {0}, mean = {0};
    struct cp_plan plan = {0};
    struct cp_decision d;
    cp_err err = cp_job_world(&r->job, 0, false, &w);
    if (!err) {
        err = cp_job_world(&r->job, 0, true, &mean);
    }
    if (!err) {
        struct cp_policy_args args = cp_job_policy_args(&r->job, &w, &mean);
        err = cp_policy_decide(r->job.policy, &args, &plan, &d);
    }
    if (!err) {
        emit_start(r);
    }
    cp_plan_fini(&plan);
    cp_world_fini(&w);
    cp_world_fini(&mean);
    return err;
}

static cp_err write_tail(struct cp_runner *r)
{
    struct cp_str text = {0}, path = {0};
    cp_err err = cp_plan_to_json(&r->edge.plan, &r->edge.world, &text);
    if (!err) {
        err = cp_runner_write(r, "plan.json", text.p, text.len);
    }
    if (!err && r->trace) {
        err = cp_api_path(r->dir.p, "trace.json", &path);
    }
    if (!err && r->trace) {
        err = cp_trace_write(r->trace, path.p);
    }
    cp_str_fini(&text);
    cp_str_fini(&path);
    return err;
}

static cp_err train(struct cp_runner *r, const struct cp_str *yaml, char **json)
{
    int done = 0, rounds = (int)cp_runner_config(r)->fed.rounds;
    struct cp_event_sink sink = {cp_trace_put, r->trace};
    if (r->resumed) {
        CP_TRY(load_checkpoint(r));
    }
    if (r->edge.start_round >= rounds) {
        return cp_fail(CP_E_CONFIG, "the run %s is complete: all of its %d rounds are done",
                       r->run_id, rounds);
    }
    cp_runner_open_store(r, yaml); /* a run that is complete keeps its record */
    emit_start(r);
    cp_log(CP_LOG_INFO, "run %s: policy %s, seed %llu, %d rounds from round %d on", r->run_id,
           cp_runner_config(r)->plan.policy, (unsigned long long)r->job.seed, rounds,
           r->edge.start_round + 1);
    int64_t t0 = cp_now_ns();
    cp_err err = cp_local_run(&r->edge, r->trace ? &sink : NULL, &done);
    r->wall_s = (double)(cp_now_ns() - t0) * 1e-9;
    if (err) {
        return r->checkpoint.len > 0
                   ? cp_fail(err, "%s (the last saved state is %s)", cp_err_text(), r->checkpoint.p)
                   : err;
    }
    CP_TRY(write_tail(r));
    bool interrupted = done < rounds;
    json_t *result = result_json(r, interrupted);
    end_record(r, interrupted ? "interrupted" : "done", result);
    CP_TRY(cp_api_dump(result, json));
    return interrupted ? cp_fail(CP_E_STOPPED,
                                 "stopped after round %d of %d; go on with: collapipe "
                                 "run --resume %s",
                                 done, rounds, r->dir.p)
                       : CP_OK;
}

static cp_err run(struct cp_runner *r, char **json)
{
    struct cp_str yaml = {0};
    if (r->resumed) {
        CP_TRY(cp_runner_find_folder(r));
    }
    CP_TRY(read_job(r));
    if (r->opt->dry_run) {
        CP_TRY(dry_run(r));
        return cp_api_dump(json_pack("{s:b}", "ok", 1), json);
    }
    CP_TRY(prepare(r));
    cp_err err = cp_runner_open_folder(r, &yaml);
    if (!err) {
        err = train(r, &yaml, json);
    }
    cp_str_fini(&yaml);
    if (err && err != CP_E_STOPPED) {
        char why[1024];
        snprintf(why, sizeof why, "%s", cp_err_text());
        cp_log(CP_LOG_DEBUG, "the run failed: %s", why);
        end_record(r, "failed", NULL);
        return cp_fail(err, "%s", why);
    }
    return err;
}

static void runner_fini(struct cp_runner *r)
{
    cp_log_file(NULL);
    if (r->net) {
        cp_edge_fini(&r->edge);
        cp_net_free(r->net);
    }
    cp_job_fini(&r->job);
    cp_store_close(r->store);
    if (cp_tfevents_close(r->tb) != CP_OK) {
        cp_log(CP_LOG_WARN, "TensorBoard events: %s", cp_err_text());
    }
    cp_trace_free(r->trace);
    if (r->log) {
        fclose(r->log);
    }
    if (r->metrics) {
        fclose(r->metrics);
    }
    if (r->lock >= 0) {
        close(r->lock);
    }
    json_decref(r->rounds_log);
    cp_str_fini(&r->runs_dir);
    cp_str_fini(&r->dir);
    cp_str_fini(&r->checkpoint);
}

int collapipe_run(const collapipe_config *c, const struct collapipe_run_options *opt, char **json)
{
    struct cp_runner r = {.cfg = c, .opt = opt, .resumed = opt->resume != NULL, .lock = -1};
    char why[1024];
    cp_api_stop_forget();
    cp_err err = run(&r, json);
    snprintf(why, sizeof why, "%s", err ? cp_err_text() : "");
    runner_fini(&r);
    return cp_api_status(err ? cp_fail(err, "%s", why) : CP_OK);
}
