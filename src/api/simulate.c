/* simulate: a study of policies in modelled worlds, with a record of every round if wanted. */
#include "api/internal.h"
#include "api/templates.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "node/job.h"
#include "sim/observe.h"
#include "sim/study.h"
#include "world/battery.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The template of that name: the set-up of section 15 of docs/theory.md. */
int collapipe_simulate_config(const char *const *assignments, size_t n, collapipe_config **out)
{
    const struct cp_template *t = CP_TEMPLATES;
    while (strcmp(t->name, "simulate") != 0) {
        t++;
    }
    return cp_api_config_text("template simulate", t->config, assignments, n, out);
}

/* --- one seed's worlds ----------------------------------------------------------------------- */

struct simulation {
    const collapipe_config *cfg;
    const struct cp_config *config;
    const struct collapipe_simulate_options *opt;
    const struct cp_policy *policy[CP_STUDY_POLICIES_MAX];
    struct cp_study study;
    bool measured; /* the planner knows what it observed; else the truth */
    /* the record of rounds */
    FILE *out;
    bool csv;
    struct cp_str line;
    /* how far it is */
    int64_t done, total, told_ns;
};

/* What a cluster carries from round to round. */
struct stock {
    double charge_j[CP_DEVICES_MAX]; /* of batteries */
    bool arrives;                    /* samples come; the backlog counts */
    struct cp_backlog backlog;
    bool present[CP_DEVICES_MAX]; /* in the last round, as the planner knows it */
};

/* What a task of the study meets: a job without data, under a seed of its own. */
struct seat {
    struct cp_config config;
    struct cp_job job;
    struct stock *stock;       /* per cluster */
    double idle_s;             /* T_ref: what an idle round takes */
    struct cp_estimate *known; /* NULL: the planner sees the truth */
    size_t *segment_bytes;     /* [layers][slots] what the size function said; 0: not asked */
};

/* The size function walks through a stage's tensors each time, and a large world asks it the same
 * all the time. */
static size_t seat_segment_bytes(const void *arg, int n_layers, int slots)
{
    const struct seat *s = arg;
    const struct cp_world *w = &s->job.base;
    size_t *bytes =
        &s->segment_bytes[(size_t)n_layers * ((size_t)w->micro_max + 1) + (size_t)slots];
    if (*bytes == 0) {
        *bytes = w->model.segment_bytes(w->model.segment_arg, n_layers, slots);
    }
    return *bytes;
}

static size_t seat_client_bytes(const void *arg, int n_layers)
{
    const struct seat *s = arg;
    return s->job.base.model.client_bytes(s->job.base.model.segment_arg, n_layers);
}

static cp_err model_world(struct seat *s, int round, bool mean, struct cp_world *w)
{
    cp_world_fini(w);
    CP_TRY(cp_job_world(&s->job, round, mean, w));
    w->model.segment_bytes = seat_segment_bytes;
    w->model.client_bytes = seat_client_bytes;
    w->model.segment_arg = s;
    return CP_OK;
}

/* A cluster with too few samples for one micro-batch per step trains one nevertheless, on what is
 * there and, for the rest, on samples that it had before: a cluster cannot sit out a round of
 * federated averaging that the others wait for. */
static int32_t micro_limit(const struct stock *k, const struct cp_world *w)
{
    int most = cp_backlog_micro_max(&k->backlog, w);
    return !k->arrives ? 0 : most > 1 ? most : 1;
}

static cp_err seat_world(void *arg, int round, bool mean, struct cp_world *w)
{
    struct seat *s = arg;
    CP_TRY(model_world(s, round, mean, w));
    for (int c = 0; c < w->n_clusters && !mean; c++) {
        cp_battery_apply(&w->cluster[c], s->stock[c].charge_j);
        w->cluster[c].micro_limit = micro_limit(&s->stock[c], w);
    }
    return CP_OK;
}

/* The model on mean channels, with what was observed in earlier rounds. Who is there is known from
 * the last round, or for sure; what waits in a cluster its control unit has counted. */
static cp_err seat_believe(void *arg, const struct cp_world *truth, bool sure, struct cp_world *out)
{
    struct seat *s = arg;
    CP_TRY(model_world(s, truth->round, true, out));
    cp_estimate_apply(s->known, out);
    for (int c = 0; c < out->n_clusters; c++) {
        struct cp_cluster *cl = &out->cluster[c];
        cl->micro_limit = truth->cluster[c].micro_limit;
        for (int k = 0; k < cl->n_devices; k++) {
            const struct cp_device *d = &truth->cluster[c].device[k];
            cl->device[k].present = sure ? d->present : s->stock[c].present[k];
            cl->device[k].absence = d->absence;
        }
    }
    return CP_OK;
}

static cp_err seat_queues(void *arg, const struct cp_world *mean, struct cp_queues *q)
{
    struct seat *s = arg;
    CP_TRY(cp_job_queues(&s->job, mean, q));
    s->idle_s = s->config.plan.v / q->v; /* V = V' / T_ref */
    return CP_OK;
}

/* How wrong the planner was about this round, and what it learns of it. */
static cp_err observe(struct seat *s, const struct cp_study_done *d, struct cp_study_round *r)
{
    struct cp_estimate *seen;
    struct cp_mean stages = {0}, links = {0};
    CP_TRY(cp_estimate_new(d->world, &(struct cp_estimate_options){0}, &seen));
    cp_observe_round(d->plan, d->world, d->sim, seen);
    cp_observe_errors(d->plan, d->believed, seen, &stages, &links);
    cp_observe_round(d->plan, d->world, d->sim, s->known);
    cp_estimate_free(seen);
    r->stage_error = cp_mean_of(&stages);
    r->link_error = cp_mean_of(&links);
    return CP_OK;
}

static void advance_backlog(struct stock *k, const struct cp_world *w, double arrived, int micro,
                            double time_s, struct cp_study_round *r)
{
    double age_s = k->backlog.age_s + time_s / 2, before = k->backlog.trained;
    r->backlog = k->backlog.waiting + (isnan(r->backlog) ? 0 : r->backlog);
    cp_backlog_advance(&k->backlog, w, micro, arrived, time_s);
    double trained = k->backlog.trained - before;
    if (trained > 0) {
        double sum = r->trained > 0 ? r->age_s * r->trained : 0;
        r->trained += trained;
        r->age_s = (sum + age_s * trained) / r->trained;
    }
}

/* In an idle round time passes, too: batteries charge, and samples come. */
static cp_err seat_after(void *arg, const struct cp_study_done *d, struct cp_queues *q,
                         struct cp_study_round *r)
{
    static const double NOTHING[CP_DEVICES_MAX + 1];
    struct seat *s = arg;
    const struct cp_world *w = d->world;
    double time_s = d->plan ? d->cost->latency_s : s->idle_s;
    for (int c = 0; c < w->n_clusters; c++) {
        struct stock *k = &s->stock[c];
        const struct cp_cluster *cl = &w->cluster[c];
        cp_battery_advance(cl, d->plan ? d->cost->cluster[c].energy_j : NOTHING, time_s,
                           k->charge_j);
        if (k->arrives) {
            advance_backlog(k, w, cl->arrivals, d->plan ? d->plan->cluster[c].micro_batches : 0,
                            time_s, r);
        }
        for (int i = 0; i < cl->n_devices; i++) {
            k->present[i] = cl->device[i].present;
        }
    }
    if (d->plan) {
        cp_job_queues_advance(&s->job, q, w, d->cost);
    }
    return d->plan && s->known ? observe(s, d, r) : CP_OK;
}

static void seat_close(void *arg)
{
    struct seat *s = arg;
    cp_mem_free(s->stock);
    cp_estimate_free(s->known);
    cp_mem_free(s->segment_bytes);
    cp_job_fini(&s->job);
    cp_mem_free(s);
}

static cp_err seat_init(struct seat *s, const struct simulation *x, int seed)
{
    s->config = *x->config;
    s->config.seed += seed;
    CP_TRY(cp_job_init_world(&s->job, &s->config, x->cfg->folder));
    const struct cp_world *w = &s->job.base;
    CP_TRY(cp_mem_array(NULL, ((size_t)w->model.layers + 1) * ((size_t)w->micro_max + 1),
                        sizeof *s->segment_bytes, &s->segment_bytes));
    CP_TRY(cp_mem_array(NULL, (size_t)w->n_clusters, sizeof *s->stock, &s->stock));
    for (int c = 0; c < w->n_clusters; c++) {
        struct stock *k = &s->stock[c];
        cp_battery_fill(&w->cluster[c], k->charge_j);
        k->arrives = w->cluster[c].arrivals > 0 ||
                     (s->job.trace && cp_world_trace_has_arrivals(s->job.trace, c));
        for (int i = 0; i < w->cluster[c].n_devices; i++) {
            k->present[i] = w->cluster[c].device[i].present;
        }
    }
    return x->measured ? cp_estimate_new(w, &(struct cp_estimate_options){0}, &s->known) : CP_OK;
}

static cp_err seat_open(void *arg, int seed, struct cp_study_case *out)
{
    const struct simulation *x = arg;
    struct seat *s;
    CP_TRY(cp_mem_new(NULL, sizeof *s, &s));
    cp_err err = seat_init(s, x, seed);
    if (err) {
        seat_close(s);
        return err;
    }
    *out = (struct cp_study_case){.arg = s,
                                  .args = cp_job_policy_args(&s->job, NULL, NULL),
                                  .keep_moments = x->config->fed.moments == CP_MOMENTS_KEEP,
                                  .world = seat_world,
                                  .queues = seat_queues,
                                  .believe = x->measured ? seat_believe : NULL,
                                  .after = seat_after,
                                  .close = seat_close};
    return CP_OK;
}

/* --- the record of rounds -------------------------------------------------------------------- */

enum { FIELDS = 15 };
static const char *const FIELD[FIELDS] = {"queue",        "latency_s",      "energy_j",
                                          "energy_ratio", "gamma",          "compute_efficiency",
                                          "bubble",       "mem_peak_bytes", "in_flight_peak",
                                          "moves",        "backlog",        "freshness_s",
                                          "stage_error",  "link_error",     "redecided"};
enum { QUEUE, BACKLOG = 10 }; /* that an idle round has, too */

static void field_values(const struct cp_study_round *r, double value[FIELDS])
{
    const double all[FIELDS] = {
        r->queue,          r->latency_s,  r->energy_j, r->energy_ratio,
        r->gamma,          r->efficiency, r->bubble,   (double)r->mem_peak_bytes,
        r->in_flight_peak, r->moves,      r->backlog,  r->age_s,
        r->stage_error,    r->link_error, r->redecided};
    memcpy(value, all, sizeof all);
}

static cp_err fail_out(const struct simulation *x, const char *what)
{
    cp_err code = errno == ENOSPC ? CP_E_NOSPACE : CP_E_IO;
    return cp_fail(code, "cannot %s %s: %s", what, x->opt->out, strerror(errno));
}

static cp_err put_line(struct simulation *x)
{
    CP_TRY(cp_str_check(&x->line));
    return fwrite(x->line.p, 1, x->line.len, x->out) == x->line.len ? CP_OK : fail_out(x, "write");
}

static cp_err open_record(struct simulation *x)
{
    const char *name = x->opt->out, *dot = name ? strrchr(name, '.') : NULL;
    if (!name) {
        return CP_OK;
    }
    x->csv = dot && strcmp(dot, ".csv") == 0;
    if (!x->csv && !(dot && strcmp(dot, ".jsonl") == 0)) {
        return cp_fail(CP_E_CONFIG,
                       "'%.200s' cannot hold the rounds: the name must end in .csv or .jsonl",
                       name);
    }
    x->out = fopen(name, "w");
    if (!x->out) {
        return fail_out(x, "create");
    }
    if (!x->csv) {
        return CP_OK;
    }
    cp_str_puts(&x->line, "policy,seed,round,outcome");
    for (int i = 0; i < FIELDS; i++) {
        cp_str_printf(&x->line, ",%s", FIELD[i]);
    }
    cp_str_puts(&x->line, "\n");
    return put_line(x);
}

/* Policies and outcomes are plain words: nothing to escape. A round that did not run has a queue
 * and a backlog, and no other figures. */
static cp_err put_round(struct simulation *x, const struct cp_study_round *r)
{
    double value[FIELDS];
    char number[CP_NUM_TEXT];
    field_values(r, value);
    cp_str_clear(&x->line);
    cp_str_printf(&x->line,
                  x->csv ? "%s,%lld,%d,%s"
                         : "{\"policy\":\"%s\",\"seed\":%lld,\"round\":%d,\"outcome\":\"%s\"",
                  x->policy[r->policy]->name, (long long)x->config->seed + r->seed, r->round + 1,
                  cp_study_outcome_name(r->outcome));
    for (int i = 0; i < FIELDS; i++) {
        bool known =
            (i == QUEUE || i == BACKLOG || r->outcome != CP_STUDY_IDLE) && !isnan(value[i]);
        cp_num_text(value[i], number);
        if (x->csv) {
            cp_str_printf(&x->line, ",%s", known ? number : "");
        } else {
            cp_str_printf(&x->line, ",\"%s\":%s", FIELD[i], known ? number : "null");
        }
    }
    cp_str_puts(&x->line, x->csv ? "\n" : "}\n");
    return put_line(x);
}

static cp_err close_record(struct simulation *x)
{
    FILE *f = x->out;
    x->out = NULL;
    return f && fclose(f) != 0 ? fail_out(x, "write") : CP_OK;
}

/* Told now and then only: a round may take microseconds. */
static void tell(struct simulation *x)
{
    const int64_t every_ns = 50 * 1000 * 1000;
    int64_t now_ns = cp_now_ns();
    if (!x->opt->on_event || (x->done < x->total && now_ns - x->told_ns < every_ns)) {
        return;
    }
    char text[128];
    x->told_ns = now_ns;
    snprintf(text, sizeof text, "{\"event\":\"simulated\",\"round\":%lld,\"rounds\":%lld}",
             (long long)x->done, (long long)x->total);
    x->opt->on_event(x->opt->arg, text);
}

static cp_err on_round(void *arg, const struct cp_study_round *r)
{
    struct simulation *x = arg;
    x->done++;
    tell(x);
    return x->out && x->measured == x->config->plan.measured ? put_round(x, r) : CP_OK;
}

static bool stop(void *arg)
{
    (void)arg;
    return cp_api_stop_wanted();
}

/* --- the result ------------------------------------------------------------------------------ */

static json_t *mean_json(const struct cp_mean *m)
{
    json_t *j = json_object();
    cp_api_real(j, "mean", cp_mean_of(m));
    cp_api_real(j, "ci95", cp_mean_ci95(m));
    return j;
}

/* NAME_mean or NAME, and its interval beside it. */
static void put_mean(json_t *j, const char *key, const struct cp_mean *m)
{
    char beside[64];
    snprintf(beside, sizeof beside, "%s_ci95", key);
    cp_api_real(j, key, cp_mean_of(m));
    cp_api_real(j, beside, cp_mean_ci95(m));
}

static json_t *pair_json(const char *policy, const struct cp_study_pair *pair)
{
    return json_pack("{s:s, s:o, s:o}", "policy", policy, "latency_diff_s",
                     mean_json(&pair->latency_diff_s), "latency_ratio",
                     mean_json(&pair->latency_ratio));
}

/* null where no samples arrive. */
static json_t *backlog_json(const struct cp_study_summary *s)
{
    return s->backlog.n == 0 ? json_null()
                             : json_pack("{s:o, s:o}", "waiting", mean_json(&s->backlog),
                                         "freshness_s", mean_json(&s->age_s));
}

/* null where the planner saw the truth. */
static json_t *measured_json(const char *policy, const struct cp_study_summary *s,
                             const struct cp_study_pair *against_truth)
{
    return json_pack("{s:o, s:o, s:i, s:o}", "stage_error", mean_json(&s->stage_error),
                     "link_error", mean_json(&s->link_error), "redecided", s->redecided,
                     "against_truth", pair_json(policy, against_truth));
}

static json_t *policy_json(const struct simulation *x, const struct cp_study_result *r,
                           const struct cp_study_result *truth, int policy)
{
    const char *name = x->policy[policy]->name;
    struct cp_study_summary s;
    cp_study_sum_up(r, policy, &s);
    int all = s.rounds + s.idle;
    json_t *j =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:s}", "name", name, "seeds", s.seeds, "rounds",
                  s.rounds, "rounds_kept", s.kept, "rounds_idle", s.idle, "why", s.why);
    cp_api_real(j, "infeasible_share", all > 0 ? (double)(s.kept + s.idle) / all : 0);
    json_object_set_new(j, "latency_s", mean_json(&s.latency_s));
    json_object_set_new(j, "energy_j", mean_json(&s.energy_j));
    put_mean(j, "energy_ratio", &s.energy_ratio);
    cp_api_real(j, "energy_ratio_max", s.energy_ratio_max);
    json_object_set_new(j, "energy_ratio_node", json_string(s.energy_node));
    put_mean(j, "gamma_mean", &s.gamma);
    put_mean(j, "compute_efficiency", &s.efficiency);
    put_mean(j, "queue_mean", &s.queue);
    put_mean(j, "bubble_mean", &s.bubble);
    json_object_set_new(j, "mem_peak_bytes",
                        s.rounds > 0 ? json_integer((json_int_t)s.mem_peak_bytes) : json_null());
    json_object_set_new(j, "mem_full_bytes", json_integer((json_int_t)s.mem_full_bytes));
    json_object_set_new(j, "mem_full_batch_bytes",
                        json_integer((json_int_t)s.mem_full_batch_bytes));
    json_object_set_new(j, "in_flight_peak", json_integer(s.in_flight_peak));
    json_object_set_new(j, "moves", json_integer(s.moves));
    cp_api_real(j, "rounds_per_s", s.rounds_per_s);
    json_object_set_new(j, "backlog", backlog_json(&s));
    json_object_set_new(j, "against_first",
                        policy == 0 ? json_null()
                                    : pair_json(x->policy[0]->name, &s.against_first));
    json_object_set_new(j, "measured", json_null());
    if (x->config->plan.measured) {
        struct cp_study_pair pair;
        cp_study_compare(r, policy, truth, policy, &pair);
        json_object_set_new(j, "measured", measured_json(name, &s, &pair));
    }
    return j;
}

static json_t *result_json(const struct simulation *x, const struct cp_study_result *r,
                           const struct cp_study_result *truth, bool stopped, double wall_s)
{
    struct cp_study_summary first;
    json_t *policies = json_array();
    cp_study_sum_up(r, 0, &first);
    for (int p = 0; p < r->n_policies; p++) {
        json_array_append_new(policies, policy_json(x, r, truth, p));
    }
    json_t *j = json_pack("{s:i, s:i, s:i, s:I, s:i, s:b, s:o}", "rounds", x->study.n_rounds,
                          "seeds", x->study.n_seeds, "seeds_done", first.seeds, "first_seed",
                          (json_int_t)x->config->seed, "threads", x->study.n_threads, "interrupted",
                          stopped, "policies", policies);
    cp_api_real(j, "wall_s", wall_s);
    json_object_set_new(j, "out", x->opt->out ? json_string(x->opt->out) : json_null());
    return j;
}

/* --- the course of it ------------------------------------------------------------------------ */

static cp_err set_policies(struct simulation *x)
{
    const struct collapipe_simulate_options *o = x->opt;
    const char *fallback = x->config->plan.policy;
    const char *const *names = o->n_policies ? o->policies : &fallback;
    size_t n = o->n_policies ? o->n_policies : 1;
    if (n > CP_STUDY_POLICIES_MAX) {
        return cp_fail(CP_E_CONFIG, "%zu policies are too many; at most %d are compared", n,
                       CP_STUDY_POLICIES_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        CP_TRY(cp_api_policy(names[i], &x->policy[i]));
        for (size_t k = 0; k < i; k++) {
            if (x->policy[k] == x->policy[i]) {
                return cp_fail(CP_E_CONFIG, "the policy %s is named twice", names[i]);
            }
        }
    }
    x->study.policy = x->policy;
    x->study.n_policies = (int)n;
    return CP_OK;
}

static cp_err check_count(const char *what, int n, int max)
{
    return n >= 1 && n <= max
               ? CP_OK
               : cp_fail(CP_E_CONFIG, "%d %s: 1 to %d can be simulated", n, what, max);
}

static cp_err set_study(struct simulation *x)
{
    enum { ROUNDS_MAX = 1000000, SEEDS = 10, THREADS_MAX = 256 };
    const struct collapipe_simulate_options *o = x->opt;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct cp_study *s = &x->study;
    CP_TRY(set_policies(x));
    s->n_rounds = o->rounds ? o->rounds : (int)x->config->fed.rounds;
    s->n_seeds = o->seeds ? o->seeds : SEEDS;
    s->n_threads = o->threads                 ? o->threads
                   : processors < 1           ? 1
                   : processors > THREADS_MAX ? THREADS_MAX
                                              : (int)processors;
    CP_TRY(check_count("rounds", s->n_rounds, ROUNDS_MAX));
    CP_TRY(check_count("seeds", s->n_seeds, CP_STUDY_SEEDS_MAX));
    CP_TRY(check_count("threads", s->n_threads, THREADS_MAX));
    s->open = seat_open;
    s->on_round = on_round;
    s->stop = stop;
    s->arg = x;
    x->total =
        (int64_t)s->n_policies * s->n_seeds * s->n_rounds * (x->config->plan.measured ? 2 : 1);
    return CP_OK;
}

/* With measured figures the same worlds again, now seen as they are: what not knowing costs. */
static cp_err run_studies(struct simulation *x, struct cp_study_result *r,
                          struct cp_study_result *truth)
{
    x->measured = x->config->plan.measured;
    CP_TRY(cp_study_run(&x->study, r));
    if (!x->measured) {
        return CP_OK;
    }
    x->measured = false;
    return cp_study_run(&x->study, truth);
}

static cp_err simulate(struct simulation *x, char **json)
{
    struct cp_study_result r = {0}, truth = {0};
    CP_TRY(set_study(x));
    CP_TRY(open_record(x));
    int64_t start_ns = cp_now_ns();
    cp_err err = run_studies(x, &r, &truth);
    double wall_s = (double)(cp_now_ns() - start_ns) * 1e-9;
    bool stopped = err == CP_E_STOPPED;
    if (!err || stopped) {
        err = close_record(x);
    }
    if (!err) {
        err = cp_api_dump(result_json(x, &r, &truth, stopped, wall_s), json);
    }
    if (!err && stopped) {
        err = cp_fail(CP_E_STOPPED, "the simulation was stopped");
    }
    cp_study_result_fini(&r);
    cp_study_result_fini(&truth);
    return err;
}

int collapipe_simulate(const collapipe_config *c, const struct collapipe_simulate_options *opt,
                       char **json)
{
    struct simulation x = {.cfg = c, .config = cp_config_of(c->conf), .opt = opt};
    char why[1024];
    cp_api_stop_forget();
    cp_err err = simulate(&x, json);
    snprintf(why, sizeof why, "%s", err ? cp_err_text() : "");
    cp_str_fini(&x.line);
    if (x.out) { /* after a failure, which is what counts */
        fclose(x.out);
    }
    return cp_api_status(err ? cp_fail(err, "%s", why) : CP_OK);
}
