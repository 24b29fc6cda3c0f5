#include "sim/study.h"

#include "base/clock.h"
#include "base/mem.h"
#include "sim/program.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const char *cp_study_outcome_name(enum cp_study_outcome outcome)
{
    static const char *const NAMES[] = {"planned", "kept", "idle"};
    return NAMES[outcome];
}

/* --- one task -------------------------------------------------------------------------------- */

/* Everything that a policy on a seed needs; grows with clusters, not with rounds. */
struct task {
    const struct cp_study *study;
    const struct cp_policy *policy;
    struct cp_study_case on;
    struct cp_programs *programs;
    struct cp_world world, mean;
    struct cp_world believed; /* empty where the planner sees the truth */
    struct cp_queues queues;
    struct cp_plan plan; /* no clusters until one is found */
    size_t plan_mem_bytes;
    struct cp_move *move;
    int n_moves, max_moves;
    struct cp_sim_round round;
    struct cp_forecast seen;             /* the round for the queues */
    double (*ratio)[CP_DEVICES_MAX + 1]; /* sums of E / E-bar */
    double work_flops, capacity_flops;
    struct cp_study_run *out;
};

static void task_fini(struct task *t)
{
    cp_mem_free(t->ratio);
    cp_forecast_fini(&t->seen);
    cp_sim_round_fini(&t->round);
    cp_mem_free(t->move);
    cp_plan_fini(&t->plan);
    cp_queues_fini(&t->queues);
    cp_world_fini(&t->mean);
    cp_world_fini(&t->believed);
    cp_world_fini(&t->world);
    cp_programs_free(t->programs);
    if (t->on.close) {
        t->on.close(t->on.arg);
    }
}

/* The size of everything is that of round 0: clusters do not come or go, and nor do layers. */
static cp_err task_init(struct task *t, int seed)
{
    CP_TRY(t->study->open(t->study->arg, seed, &t->on));
    CP_TRY(cp_programs_new(&t->programs));
    CP_TRY(t->on.world(t->on.arg, 0, true, &t->mean));
    CP_TRY(t->on.queues(t->on.arg, &t->mean, &t->queues));
    size_t n = (size_t)t->mean.n_clusters;
    CP_TRY(cp_mem_array(NULL, n, sizeof *t->seen.cluster, &t->seen.cluster));
    t->seen.n_clusters = t->mean.n_clusters;
    CP_TRY(cp_mem_array(NULL, n, sizeof *t->ratio, &t->ratio));
    if (t->on.keep_moments) {
        t->max_moves = t->mean.n_clusters * t->mean.model.layers;
        CP_TRY(cp_mem_array(NULL, (size_t)t->max_moves, sizeof *t->move, &t->move));
    }
    t->out->mem_full_bytes = t->mean.model.full_bytes_micro;
    t->out->mem_full_batch_bytes = t->mean.model.full_bytes_batch;
    return CP_OK;
}

static void take_plan(struct task *t, struct cp_plan *fresh)
{
    t->n_moves = t->plan.n_clusters && t->on.keep_moments
                     ? cp_plan_diff(&t->plan, fresh, t->world.model.layers, t->move, t->max_moves)
                     : 0;
    cp_plan_fini(&t->plan);
    t->plan = *fresh;
    t->plan_mem_bytes = 0;
    for (int c = 0; c < t->plan.n_clusters; c++) {
        for (int s = 0; s < t->plan.cluster[c].segments; s++) {
            size_t need = cp_plan_mem_bytes(&t->plan.cluster[c], s, &t->world.model);
            t->plan_mem_bytes = need > t->plan_mem_bytes ? need : t->plan_mem_bytes;
        }
    }
}

static cp_err ask(const struct task *t, const struct cp_world *w, struct cp_plan *fresh)
{
    struct cp_policy_args args = t->on.args;
    struct cp_decision d;
    args.world = w;
    args.mean = &t->mean;
    args.queues = &t->queues;
    args.incumbent = t->plan.n_clusters ? &t->plan : NULL;
    return cp_policy_decide(t->policy, &args, fresh, &d);
}

/* A plan of the world that the planner believes in; E_PLAN also if it does not hold in the true
 * one. */
static cp_err ask_believing(struct task *t, bool sure, struct cp_plan *fresh)
{
    CP_TRY(t->on.believe(t->on.arg, &t->world, sure, &t->believed));
    CP_TRY(ask(t, &t->believed, fresh));
    cp_err err = cp_plan_check(fresh, &t->world);
    if (err) {
        cp_plan_fini(fresh);
        return cp_fail_in(err, "a plan made by what was observed does not hold");
    }
    return CP_OK;
}

/* The policy's plan, or the last one, or none. Only that there is no plan is forgiven. */
static cp_err decide(struct task *t, struct cp_study_round *r)
{
    struct cp_plan fresh;
    cp_err err = t->on.believe ? ask_believing(t, false, &fresh) : ask(t, &t->world, &fresh);
    if (err == CP_E_PLAN && t->on.believe) {
        r->redecided = true;
        err = ask_believing(t, true, &fresh);
    }
    if (!err) {
        take_plan(t, &fresh);
        r->outcome = CP_STUDY_PLANNED;
        return CP_OK;
    }
    if (err != CP_E_PLAN) {
        return err;
    }
    if (!t->out->why[0]) {
        snprintf(t->out->why, sizeof t->out->why, "round %d: ", t->world.round + 1);
        size_t n = strlen(t->out->why);
        cp_text_copy(t->out->why + n, sizeof t->out->why - n, cp_err_text());
    }
    t->n_moves = 0;
    bool holds = t->plan.n_clusters && cp_plan_check(&t->plan, &t->world) == CP_OK &&
                 cp_plan_round_s(&t->plan, &t->world) <= CP_ROUND_MOST_S;
    r->outcome = holds ? CP_STUDY_KEPT : CP_STUDY_IDLE;
    return CP_OK;
}

static double backlog(const struct cp_queues *q, const struct cp_world *w)
{
    double sum = q->convergence;
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            sum += q->energy[c][node];
        }
    }
    return sum;
}

/* FLOPs of one step that the device of a segment does (sections 3 and 13). */
static double device_work(const struct cp_cluster_plan *c, int s, const struct cp_model_cost *m)
{
    double emb = m->emb.work_fwd_flops + m->emb.work_bwd_flops;
    double layer = m->layer.work_fwd_flops + m->layer.work_bwd_flops;
    double head = m->head.work_fwd_flops + m->head.work_bwd_flops;
    switch (c->mode) {
    case CP_MODE_PIPELINE:
        return c->micro_batches * c->layers[s] * layer;
    case CP_MODE_FULL:
        return (double)c->micro_batches / c->segments * (emb + c->layers[s] * layer + head);
    case CP_MODE_SPLIT:
        return (double)c->micro_batches / c->segments * (emb + c->layers[s] * layer);
    }
    return 0;
}

static double budget_j(const struct cp_cluster *cl, int node)
{
    return node == 0 ? cl->cu.budget_j : cl->device[node - 1].budget_j;
}

/* Efficiency of section 14: work of the used devices, and what they could have done meanwhile. */
static void add_work(struct task *t, struct cp_study_round *r)
{
    double work = 0, capacity = 0;
    for (int c = 0; c < t->plan.n_clusters; c++) {
        const struct cp_cluster_plan *p = &t->plan.cluster[c];
        const struct cp_cluster *cl = &t->world.cluster[c];
        for (int s = 0; s < p->segments; s++) {
            work += device_work(p, s, &t->world.model);
            capacity += cl->device[p->device[s]].rate_flops * t->round.cluster[c].step_s;
        }
    }
    r->efficiency = work / capacity;
    t->work_flops += work;
    t->capacity_flops += capacity;
}

/* What the simulation counted, for the queues and for the record. */
static void read_round(struct task *t, struct cp_study_round *r)
{
    t->seen.latency_s = r->latency_s = t->round.latency_s;
    t->seen.gamma = 0;
    r->energy_j = t->round.energy_j;
    r->bubble = t->round.bubble;
    r->mem_peak_bytes = t->plan_mem_bytes;
    r->moves = t->n_moves;
    for (int c = 0; c < t->plan.n_clusters; c++) {
        const struct cp_sim_cluster *sim = &t->round.cluster[c];
        const struct cp_cluster *cl = &t->world.cluster[c];
        int stages = sim->step.n_stages;
        for (int node = 0; node <= cl->n_devices; node++) {
            double budget = budget_j(cl, node), e = sim->energy_j[node];
            double ratio = budget > 0 ? e / budget : 0;
            t->seen.cluster[c].energy_j[node] = e;
            t->ratio[c][node] += ratio;
            r->energy_ratio = fmax(r->energy_ratio, ratio);
        }
        for (int j = 0; j < stages; j++) {
            int held = sim->step.in_flight_peak[j];
            r->in_flight_peak = held > r->in_flight_peak ? held : r->in_flight_peak;
        }
        if (stages == 0) { /* modelled: one after another */
            r->in_flight_peak = r->in_flight_peak > 1 ? r->in_flight_peak : 1;
        }
        t->seen.gamma += cp_cluster_gamma(&t->plan.cluster[c], &t->world, c);
    }
    r->gamma = t->seen.gamma;
    add_work(t, r);
}

static void add_known(struct cp_mean *mean, double x)
{
    if (!isnan(x)) {
        cp_mean_add(mean, x);
    }
}

static void count_round(struct cp_study_run *out, const struct cp_study_round *r)
{
    cp_mean_add(&out->queue, r->queue);
    add_known(&out->backlog, r->backlog);
    out->redecided += r->redecided;
    if (r->outcome == CP_STUDY_IDLE) {
        out->idle++;
        return;
    }
    out->rounds++;
    out->kept += r->outcome == CP_STUDY_KEPT;
    out->moves += r->moves;
    cp_mean_add(&out->latency_s, r->latency_s);
    cp_mean_add(&out->energy_j, r->energy_j);
    cp_mean_add(&out->gamma, r->gamma);
    cp_mean_add(&out->bubble, r->bubble);
    add_known(&out->stage_error, r->stage_error);
    add_known(&out->link_error, r->link_error);
    if (r->trained > 0) {
        out->trained += r->trained;
        out->age_s += (r->age_s - out->age_s) * r->trained / out->trained;
    }
    if (r->mem_peak_bytes > out->mem_peak_bytes) {
        out->mem_peak_bytes = r->mem_peak_bytes;
    }
    if (r->in_flight_peak > out->in_flight_peak) {
        out->in_flight_peak = r->in_flight_peak;
    }
}

static cp_err end_round(struct task *t, struct cp_study_round *r)
{
    struct cp_study_done d = {.world = &t->world};
    if (r->outcome != CP_STUDY_IDLE) {
        d.plan = &t->plan;
        d.believed = t->on.believe ? &t->believed : NULL;
        d.sim = &t->round;
        d.cost = &t->seen;
    }
    return t->on.after(t->on.arg, &d, &t->queues, r);
}

static cp_err run_round(struct task *t, struct cp_study_round *r)
{
    r->backlog = r->age_s = r->stage_error = r->link_error = (double)NAN;
    CP_TRY(t->on.world(t->on.arg, r->round, false, &t->world));
    r->queue = backlog(&t->queues, &t->world);
    CP_TRY(decide(t, r));
    if (r->outcome == CP_STUDY_IDLE) {
        return end_round(t, r);
    }
    CP_TRY(cp_sim_round_again(t->programs, &t->plan, &t->world, t->move, t->n_moves, &t->round));
    if (!(t->round.latency_s <= CP_ROUND_MOST_S)) {
        return cp_fail(CP_E_NONFINITE,
                       "the round would never end: with what is moved it takes more "
                       "than a year, because a link is too weak");
    }
    read_round(t, r);
    return end_round(t, r);
}

/* Figures that are known when all rounds are. */
static void finish(struct task *t)
{
    struct cp_study_run *out = t->out;
    double n = out->rounds;
    for (int c = 0; c < t->mean.n_clusters && n > 0; c++) {
        const struct cp_cluster *cl = &t->mean.cluster[c];
        for (int node = 0; node <= cl->n_devices; node++) {
            bool first = !out->energy_node[0];
            double ratio = t->ratio[c][node] / n;
            if (budget_j(cl, node) > 0 && (first || ratio > out->energy_ratio_max)) {
                out->energy_ratio_max = ratio;
                snprintf(out->energy_node, sizeof out->energy_node, "%s.%s", cl->name,
                         node == 0 ? cl->cu.name : cl->device[node - 1].name);
            }
        }
    }
    out->efficiency = n > 0 ? t->work_flops / t->capacity_flops : (double)NAN;
    out->done = true;
}

/* --- all tasks ------------------------------------------------------------------------------- */

struct pool {
    const struct cp_study *study;
    struct cp_study_run *run;
    pthread_mutex_t lock; /* of what follows, and of on_round */
    int next, n;          /* tasks, seed by seed */
    int failed;           /* the first task that failed; n: none */
    cp_err err;
    char why[1024];
    bool stopped;
};

static bool wants_stop(struct pool *p)
{
    const struct cp_study *s = p->study;
    bool now = s->stop && s->stop(s->arg);
    pthread_mutex_lock(&p->lock);
    now = p->stopped = p->stopped || now;
    pthread_mutex_unlock(&p->lock);
    return now;
}

static cp_err tell_round(struct pool *p, const struct cp_study_round *r)
{
    const struct cp_study *s = p->study;
    if (!s->on_round) {
        return CP_OK;
    }
    pthread_mutex_lock(&p->lock);
    cp_err err = s->on_round(s->arg, r);
    pthread_mutex_unlock(&p->lock);
    return err;
}

static cp_err run_rounds(struct pool *p, struct task *t, int policy, int seed)
{
    cp_err err = task_init(t, seed);
    for (int round = 0; !err && round < p->study->n_rounds; round++) {
        struct cp_study_round r = {.policy = policy, .seed = seed, .round = round};
        if (wants_stop(p)) {
            return CP_OK;
        }
        err = run_round(t, &r);
        if (err) {
            return cp_fail_in(err, "round %d", round + 1);
        }
        count_round(t->out, &r);
        err = tell_round(p, &r);
    }
    if (!err) {
        finish(t);
    }
    return err;
}

static void run_task(struct pool *p, int index)
{
    const struct cp_study *s = p->study;
    int policy = index % s->n_policies, seed = index / s->n_policies;
    struct task t = {
        .study = s, .policy = s->policy[policy], .out = &p->run[policy * s->n_seeds + seed]};
    int64_t start_ns = cp_thread_cpu_ns();
    cp_err err = run_rounds(p, &t, policy, seed);
    t.out->cpu_s = (double)(cp_thread_cpu_ns() - start_ns) * 1e-9;
    if (err) {
        err = cp_fail_in(err, "policy %s, seed %d", t.policy->name, seed + 1);
        pthread_mutex_lock(&p->lock);
        if (index < p->failed) {
            p->failed = index;
            p->err = err;
            cp_text_copy(p->why, sizeof p->why, cp_err_text());
        }
        pthread_mutex_unlock(&p->lock);
    }
    task_fini(&t);
}

/* Takes tasks until there are none, one failed, or somebody wants to stop. Tasks that were taken
 * before the failing one go on to their end, so that the first failure is always the same. */
static void *work(void *arg)
{
    struct pool *p = arg;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        bool more = p->next < p->n && p->failed == p->n && !p->stopped;
        int index = p->next;
        p->next += more;
        pthread_mutex_unlock(&p->lock);
        if (!more) {
            return NULL;
        }
        run_task(p, index);
    }
}

/* This thread works, too; where the system gives no more threads, those that are there do it all.
 */
static cp_err run_pool(struct pool *p, int n_threads)
{
    pthread_t *thread;
    int begun = 0;
    CP_TRY(cp_mem_array(NULL, (size_t)n_threads, sizeof *thread, &thread));
    while (begun < n_threads - 1 && begun < p->n - 1 &&
           pthread_create(&thread[begun], NULL, work, p) == 0) {
        begun++;
    }
    work(p);
    for (int i = 0; i < begun; i++) {
        pthread_join(thread[i], NULL);
    }
    cp_mem_free(thread);
    return p->err ? cp_fail(p->err, "%s", p->why) : CP_OK;
}

cp_err cp_study_run(const struct cp_study *s, struct cp_study_result *out)
{
    assert(s->n_policies >= 1 && s->n_policies <= CP_STUDY_POLICIES_MAX && s->n_seeds >= 1 &&
           s->n_seeds <= CP_STUDY_SEEDS_MAX && s->n_rounds >= 1 && s->n_threads >= 1);
    int n = s->n_policies * s->n_seeds;
    struct pool p = {.study = s, .n = n, .failed = n, .lock = PTHREAD_MUTEX_INITIALIZER};
    CP_TRY(cp_mem_array(NULL, (size_t)n, sizeof *p.run, &p.run));
    cp_err err = run_pool(&p, s->n_threads);
    if (err) {
        cp_mem_free(p.run);
        return err;
    }
    *out = (struct cp_study_result){s->n_policies, s->n_seeds, p.run};
    return p.stopped ? cp_fail(CP_E_STOPPED, "the simulation was stopped") : CP_OK;
}

void cp_study_result_fini(struct cp_study_result *r)
{
    cp_mem_free(r->run);
    *r = (struct cp_study_result){0};
}

/* --- over seeds ------------------------------------------------------------------------------ */

static void add_mean(struct cp_mean *to, const struct cp_mean *of_rounds)
{
    if (of_rounds->n > 0) {
        cp_mean_add(to, of_rounds->mean);
    }
}

static void add_run(struct cp_study_summary *x, const struct cp_study_run *run)
{
    x->rounds += run->rounds;
    x->kept += run->kept;
    x->idle += run->idle;
    x->moves += run->moves;
    x->redecided += run->redecided;
    x->why = x->why[0] ? x->why : run->why;
    add_mean(&x->latency_s, &run->latency_s);
    add_mean(&x->energy_j, &run->energy_j);
    add_mean(&x->gamma, &run->gamma);
    add_mean(&x->bubble, &run->bubble);
    add_mean(&x->queue, &run->queue);
    add_mean(&x->backlog, &run->backlog);
    add_mean(&x->stage_error, &run->stage_error);
    add_mean(&x->link_error, &run->link_error);
    if (run->trained > 0) {
        cp_mean_add(&x->age_s, run->age_s);
    }
    if (run->rounds > 0) {
        cp_mean_add(&x->efficiency, run->efficiency);
    }
    if (run->energy_node[0]) {
        cp_mean_add(&x->energy_ratio, run->energy_ratio_max);
        if (!x->energy_node[0] || run->energy_ratio_max > x->energy_ratio_max) {
            x->energy_ratio_max = run->energy_ratio_max;
            x->energy_node = run->energy_node;
        }
    }
    x->mem_full_bytes = run->mem_full_bytes;
    x->mem_full_batch_bytes = run->mem_full_batch_bytes;
    if (run->mem_peak_bytes > x->mem_peak_bytes) {
        x->mem_peak_bytes = run->mem_peak_bytes;
    }
    if (run->in_flight_peak > x->in_flight_peak) {
        x->in_flight_peak = run->in_flight_peak;
    }
}

static bool all_done(const struct cp_study_result *r, int seed)
{
    bool done = true;
    for (int p = 0; p < r->n_policies; p++) {
        done = done && r->run[p * r->n_seeds + seed].done;
    }
    return done;
}

void cp_study_compare(const struct cp_study_result *r, int policy,
                      const struct cp_study_result *other, int other_policy,
                      struct cp_study_pair *out)
{
    *out = (struct cp_study_pair){0};
    for (int s = 0; s < r->n_seeds && s < other->n_seeds; s++) {
        const struct cp_study_run *x = &r->run[policy * r->n_seeds + s];
        const struct cp_study_run *y = &other->run[other_policy * other->n_seeds + s];
        if (all_done(r, s) && all_done(other, s) && x->rounds > 0 && y->rounds > 0) {
            cp_mean_add(&out->latency_diff_s, x->latency_s.mean - y->latency_s.mean);
            cp_mean_add(&out->latency_ratio, x->latency_s.mean / y->latency_s.mean);
        }
    }
}

void cp_study_sum_up(const struct cp_study_result *r, int policy, struct cp_study_summary *out)
{
    struct cp_study_summary x = {.why = "", .energy_node = "", .energy_ratio_max = (double)NAN};
    double cpu_s = 0;
    for (int s = 0; s < r->n_seeds; s++) {
        const struct cp_study_run *run = &r->run[policy * r->n_seeds + s];
        if (!all_done(r, s)) {
            continue;
        }
        x.seeds++;
        add_run(&x, run);
        cpu_s += run->cpu_s;
    }
    cp_study_compare(r, policy, r, 0, &x.against_first);
    x.rounds_per_s = cpu_s > 0 ? x.rounds / cpu_s : 0;
    *out = x;
}
