#include "node/edge.h"

#include "base/clock.h"
#include "base/log.h"
#include "node/bound.h"
#include "node/talk.h"
#include "world/battery.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int n_blocks(const struct cp_edge *e)
{
    return cp_shape_blocks(&e->job->shape);
}

static size_t block_bytes(const struct cp_edge *e, int block)
{
    return (size_t)cp_shape_params(&e->job->shape, block, block) * sizeof(cp_real);
}

static cp_err new_blocks(struct cp_edge *e)
{
    int64_t largest = 0;
    for (int block = 0; block < n_blocks(e); block++) {
        int64_t n = cp_shape_params(&e->job->shape, block, block);
        CP_TRY(cp_mem_new(&e->mem, block_bytes(e, block), &e->block[block]));
        cp_block_init(&e->job->shape, block, e->job->config->model.init_std, e->job->seed,
                      e->block[block]);
        largest = n > largest ? n : largest;
    }
    return cp_fedavg_init(&e->avg, largest);
}

static size_t n_states(const struct cp_edge *e)
{
    return (size_t)e->job->cast.max_replicas * (size_t)n_blocks(e);
}

static cp_err new_states(const struct cp_edge *e, struct cp_msg ***out)
{
    return cp_mem_array(NULL, n_states(e), sizeof **out, out);
}

static void free_states(const struct cp_edge *e, struct cp_msg **state)
{
    for (size_t i = 0; state && i < n_states(e); i++) {
        cp_msg_free(state[i]);
    }
    cp_mem_free(state);
}

cp_err cp_edge_init(struct cp_edge *e, const struct cp_job *job, struct cp_net *net)
{
    size_t clusters = (size_t)job->cast.n_clusters, nodes = (size_t)job->cast.n_nodes;
    size_t replicas = (size_t)job->cast.max_replicas;
    size_t steps = replicas * (size_t)job->config->train.local_steps;
    *e = (struct cp_edge){
        .job = job, .net = net, .mem = {.name = "edge"}, .msg_mem = {.name = "edge"}};
    e->max_moves = job->cast.n_clusters * job->shape.layers;
    cp_err err = CP_OK;
    CP_TRY_GOTO(err, new_blocks(e), fail);
    CP_TRY_GOTO(
        err,
        cp_constants_init(&e->constants, &job->shape, job->cast.n_clusters, job->cast.max_replicas),
        fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, clusters, sizeof *e->cursor, &e->cursor), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, clusters, sizeof *e->charge_j, &e->charge_j), fail);
    for (size_t c = 0; c < clusters; c++) {
        cp_battery_fill(&job->base.cluster[c], e->charge_j[c]);
    }
    CP_TRY_GOTO(err, cp_mem_array(NULL, replicas, sizeof *e->replica, &e->replica), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, replicas, sizeof *e->done, &e->done), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, steps, sizeof *e->sums, &e->sums), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, nodes, sizeof *e->node, &e->node), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)e->max_moves, sizeof *e->move, &e->move), fail);
    CP_TRY_GOTO(err, new_states(e, &e->state), fail);
    CP_TRY_GOTO(err, cp_job_world(job, 0, true, &e->mean), fail);
    CP_TRY_GOTO(err, cp_job_queues(job, &e->mean, &e->queues), fail);
    CP_TRY_GOTO(err, cp_job_queues(job, &e->mean, &e->seen_queues), fail);
    return CP_OK;
fail:
    cp_edge_fini(e);
    return err;
}

static void drop_states(struct cp_edge *e)
{
    for (size_t i = 0; i < n_states(e); i++) {
        cp_msg_free(e->state[i]);
        e->state[i] = NULL;
    }
}

void cp_edge_fini(struct cp_edge *e)
{
    for (int block = 0; block < CP_BLOCKS_MAX; block++) {
        cp_mem_free(e->block[block]);
    }
    free_states(e, e->state);
    cp_fedavg_fini(&e->avg);
    cp_constants_fini(&e->constants);
    cp_mem_free(e->cursor);
    cp_mem_free(e->charge_j);
    cp_mem_free(e->replica);
    cp_mem_free(e->done);
    cp_mem_free(e->sums);
    cp_mem_free(e->node);
    cp_mem_free(e->move);
    cp_plan_fini(&e->plan);
    cp_world_fini(&e->world);
    cp_world_fini(&e->mean);
    cp_queues_fini(&e->queues);
    cp_queues_fini(&e->seen_queues);
}

/* --- deciding -------------------------------------------------------------------------------- */

static bool same_plan(const struct cp_plan *a, const struct cp_plan *b)
{
    return a->n_clusters == b->n_clusters &&
           memcmp(a->cluster, b->cluster, (size_t)a->n_clusters * sizeof *a->cluster) == 0;
}

/* The new plan, or the last one where the policy finds none and the last one is still valid. */
static cp_err decide_or_keep(struct cp_edge *e, const struct cp_world *w, struct cp_plan *plan)
{
    struct cp_policy_args args = cp_job_policy_args(e->job, w, &e->mean);
    struct cp_decision d = {0};
    args.queues = &e->queues;
    args.incumbent = e->plan.n_clusters ? &e->plan : NULL;
    cp_err err = cp_policy_decide(e->job->policy, &args, plan, &d);
    e->kept = false;
    e->note[0] = 0;
    if (!err) {
        e->decision = d;
        return CP_OK;
    }
    cp_text_copy(e->note, sizeof e->note, cp_err_text());
    if (err != CP_E_PLAN || !e->plan.n_clusters || cp_plan_check(&e->plan, w) != CP_OK) {
        return cp_fail(err, "%s", e->note);
    }
    cp_log(CP_LOG_WARN, "round %d keeps its plan: %s", w->round + 1, e->note);
    e->kept = true;
    return cp_plan_copy(plan, &e->plan);
}

static cp_err copy_queues(struct cp_queues *to, const struct cp_queues *from)
{
    memcpy(to->energy, from->energy, (size_t)from->n_clusters * sizeof *from->energy);
    to->convergence = from->convergence;
    to->v = from->v;
    return CP_OK;
}

static cp_err new_state(struct cp_edge *e, int block, struct cp_msg **out)
{
    struct cp_key key = {CP_NODE_EDGE, CP_ANY, CP_ANY, CP_ANY, block};
    return cp_msg_new(&e->msg_mem, CP_MSG_STATE, 0, key,
                      cp_state_bytes(&e->job->shape, block, e->job->optim.kind), out);
}

cp_err cp_edge_new_states(struct cp_edge *e)
{
    e->n_replicas = cp_cast_all(&e->job->cast, &e->plan, e->replica);
    for (int i = 0; i < e->n_replicas * n_blocks(e); i++) {
        CP_TRY(new_state(e, i % n_blocks(e), &e->state[i]));
    }
    return CP_OK;
}

/* Where a replica of the next plan finds its optimizer state among the replicas of the last one;
 * -1: nowhere (node/cast.h). */
static int origin_of(const struct cp_edge *e, const struct cp_plan *next, int cluster, int index)
{
    int first = 0,
        origin = cp_cast_origin(&e->plan.cluster[cluster], &next->cluster[cluster], index);
    for (int c = 0; c < cluster; c++) {
        first += cp_cast_replicas(&e->plan.cluster[c]);
    }
    return origin < 0 ? -1 : first + origin;
}

/* Optimizer state at hand becomes that of the replicas of the next plan: whoever goes on with one
 * gets it, others start at zero. new_only: makes the zero states, and touches nothing else. */
static cp_err fill_states(struct cp_edge *e, const struct cp_plan *next, bool new_only,
                          struct cp_msg **state)
{
    for (int c = 0; c < next->n_clusters; c++) {
        for (int i = 0; i < cp_cast_replicas(&next->cluster[c]); i++) {
            int origin = origin_of(e, next, c, i);
            for (int block = 0; block < n_blocks(e); block++, state++) {
                if (origin < 0 && new_only) {
                    CP_TRY(new_state(e, block, state));
                } else if (origin >= 0 && !new_only) {
                    struct cp_msg **old = &e->state[origin * n_blocks(e) + block];
                    *state = *old;
                    *old = NULL;
                }
            }
        }
    }
    return CP_OK;
}

static cp_err regroup(struct cp_edge *e, const struct cp_plan *next)
{
    struct cp_msg **state;
    if (!e->state[0]) {
        return CP_OK;
    }
    CP_TRY(new_states(e, &state));
    cp_err err = fill_states(e, next, true, state);
    if (!err) {
        err = fill_states(e, next, false, state);
        struct cp_msg **old = e->state;
        e->state = state;
        state = old;
    }
    free_states(e, state);
    return err;
}

/* The world of a round, with what is known of the noise of gradients, and without devices whose
 * battery is empty. */
static cp_err make_world(const struct cp_edge *e, int round, struct cp_world *w)
{
    CP_TRY(cp_job_world(e->job, round, false, w));
    for (int c = 0; c < w->n_clusters; c++) {
        w->cluster[c].grad_variance = cp_constants_variance(&e->constants, c);
        cp_battery_apply(&w->cluster[c], e->charge_j[c]);
    }
    cp_world_weigh(w);
    return CP_OK;
}

/* Seconds until the next device that is away for its battery is back; infinite: none charges. A
 * hair more, so that it is. */
static double until_charged_s(const struct cp_edge *e, const struct cp_world *w)
{
    double least = INFINITY;
    for (int c = 0; c < w->n_clusters; c++) {
        for (int k = 0; k < w->cluster[c].n_devices; k++) {
            const struct cp_device *d = &w->cluster[c].device[k];
            if (!d->present && d->absence == CP_ABSENCE_BATTERY && d->harvest_w > 0) {
                double lacks_j = d->battery_reserve_j - e->charge_j[c][k];
                least = fmin(least, lacks_j / d->harvest_w * (1 + 1e-9));
            }
        }
    }
    return least;
}

static void charge(struct cp_edge *e, const struct cp_world *w, double time_s)
{
    static const double NOTHING[CP_DEVICES_MAX + 1];
    for (int c = 0; c < w->n_clusters; c++) {
        cp_battery_advance(&w->cluster[c], NOTHING, time_s, e->charge_j[c]);
    }
    e->wait_s += time_s;
}

/* World and plan of a round. Each wait brings a device back, so there is an end. */
static cp_err decide_or_wait(struct cp_edge *e, int round, struct cp_world *w, struct cp_plan *plan)
{
    e->wait_s = 0;
    CP_TRY(make_world(e, round, w));
    cp_err err = decide_or_keep(e, w, plan);
    while (err == CP_E_PLAN) {
        double time_s = until_charged_s(e, w);
        if (!(e->wait_s + time_s <= CP_ROUND_MOST_S)) {
            return err;
        }
        charge(e, w, time_s);
        cp_world_fini(w);
        CP_TRY(make_world(e, round, w));
        err = decide_or_keep(e, w, plan);
    }
    if (!err && e->wait_s > 0) {
        cp_log(CP_LOG_WARN, "round %d waited %.3g s (modelled) for batteries to charge", round + 1,
               e->wait_s);
    }
    return err;
}

static cp_err decide(struct cp_edge *e, int round)
{
    struct cp_world w = {0};
    struct cp_plan plan = {0};
    cp_err err = decide_or_wait(e, round, &w, &plan);
    if (!err && e->plan.n_clusters) {
        err = regroup(e, &plan);
    }
    if (err) {
        cp_plan_fini(&plan);
        cp_world_fini(&w);
        return cp_fail_in(err, "round %d", round + 1);
    }
    CP_TRY(copy_queues(&e->seen_queues, &e->queues));
    e->n_moves = 0;
    if (e->plan.n_clusters) {
        e->n_moves = cp_plan_diff(&e->plan, &plan, e->job->shape.layers, e->move, e->max_moves);
    }
    plan.gen = e->plan.n_clusters ? e->plan.gen + !same_plan(&e->plan, &plan) : 1;
    cp_plan_fini(&e->plan);
    e->plan = plan;
    e->n_replicas = cp_cast_all(&e->job->cast, &e->plan, e->replica);
    cp_world_fini(&e->world);
    e->world = w;
    return CP_OK;
}

/* --- rounds ---------------------------------------------------------------------------------- */

/* What round r cost under the model; the queues see it. */
static cp_err account(struct cp_edge *e, struct cp_sim_round *sim)
{
    struct cp_forecast f;
    bool keep = e->job->config->fed.moments == CP_MOMENTS_KEEP;
    int moves = keep ? e->n_moves : 0;
    CP_TRY(cp_forecast_make(&e->plan, &e->world, e->move, moves, &f));
    cp_job_queues_advance(e->job, &e->queues, &e->world, &f);
    for (int c = 0; c < e->world.n_clusters; c++) {
        cp_battery_advance(&e->world.cluster[c], f.cluster[c].energy_j, f.latency_s,
                           e->charge_j[c]);
    }
    cp_forecast_fini(&f);
    return cp_sim_round(&e->plan, &e->world, e->move, moves, sim);
}

/* Everything that describes round r is kept here while the plan of r + 1 takes its place. */
struct finished {
    struct cp_plan plan;
    struct cp_world world;
    struct cp_sim_round sim;
    struct cp_queues queues;
    struct cp_decision decision;
    struct cp_move *move;
    int n_moves;
    bool kept;
    double wait_s;
    char note[sizeof(((struct cp_edge *)0)->note)];
    double train_loss;
    int64_t samples;
    struct cp_bound bound;
    bool bounded;
    char bound_note[sizeof(((struct cp_edge *)0)->note)];
};

static void finished_fini(struct finished *f)
{
    cp_plan_fini(&f->plan);
    cp_world_fini(&f->world);
    cp_sim_round_fini(&f->sim);
    cp_queues_fini(&f->queues);
    cp_mem_free(f->move);
}

static void note_bound(struct cp_edge *e, int round, struct finished *f)
{
    if (round == 0) {
        struct cp_edge_sums first = cp_talk_first_sums(e);
        e->start_loss = first.labelled ? first.loss_sum / (double)first.labelled : 0;
    }
    f->bounded = cp_edge_bound(e, round + 1, &f->bound) == CP_OK;
    cp_text_copy(f->bound_note, sizeof f->bound_note, f->bounded ? "" : cp_err_text());
}

static cp_err finish_training(struct cp_edge *e, int round, struct finished *f)
{
    CP_TRY(cp_plan_copy(&f->plan, &e->plan));
    CP_TRY(cp_world_copy(&f->world, &e->world));
    CP_TRY(cp_job_queues(e->job, &e->mean, &f->queues));
    CP_TRY(copy_queues(&f->queues, &e->seen_queues));
    CP_TRY(cp_mem_array(NULL, (size_t)e->max_moves, sizeof *f->move, &f->move));
    memcpy(f->move, e->move, (size_t)e->n_moves * sizeof *f->move);
    f->n_moves = e->n_moves;
    f->decision = e->decision;
    f->kept = e->kept;
    f->wait_s = e->wait_s;
    memcpy(f->note, e->note, sizeof f->note);
    struct cp_edge_sums all = cp_talk_sums(e);
    f->train_loss = all.labelled ? all.loss_sum / (double)all.labelled : 0;
    f->samples = all.samples;
    note_bound(e, round, f);
    return account(e, &f->sim);
}

static cp_err report(struct cp_edge *e, int round, const struct finished *f,
                     const struct cp_score *score, bool full, int64_t t0)
{
    struct cp_round_report r = {
        .round = round,
        .train_loss = f->train_loss,
        .samples = f->samples,
        .eval = *score,
        .eval_full = full,
        .plan = &f->plan,
        .world = &f->world,
        .sim = &f->sim,
        .decision = &f->decision,
        .queues = &f->queues,
        .move = f->move,
        .n_moves = f->n_moves,
        .kept = f->kept,
        .note = f->note,
        .wait_s = f->wait_s,
        .constants = &e->constants,
        .bound = f->bounded ? &f->bound : NULL,
        .bound_note = f->bound_note,
        .wall_s = (double)(cp_now_ns() - t0) * 1e-9,
    };
    return e->on_round ? e->on_round(e->arg, &r) : CP_OK;
}

static bool wants_stop(const struct cp_edge *e)
{
    return e->stop && e->stop(e->arg);
}

/* *saved: the round is in a checkpoint. */
static cp_err run_round(struct cp_edge *e, int round, bool *saved, struct finished *f)
{
    const struct cp_config *c = e->job->config;
    bool last = round + 1 == c->fed.rounds;
    int64_t t0 = cp_now_ns();
    struct cp_score score;
    CP_TRY(cp_talk_train(e, round));
    *saved = last || wants_stop(e) || (round + 1) % c->run.save_every == 0;
    CP_TRY(cp_talk_collect(e, round, *saved));
    CP_TRY(finish_training(e, round, f));
    /* Without a valid plan for the next round this one is still evaluated and saved. */
    char why[sizeof e->note] = "";
    cp_err stuck = last ? CP_OK : decide(e, round + 1);
    e->decided = !last && !stuck;
    if (stuck) {
        cp_text_copy(why, sizeof why, cp_err_text());
    } else if (!last) {
        CP_TRY(cp_talk_plan(e, false));
    }
    CP_TRY(cp_talk_scatter(e, round));
    CP_TRY(cp_talk_evaluate(e, round, last, &score));
    CP_TRY(report(e, round, f, &score, last, t0));
    if (*saved && e->on_save) {
        CP_TRY(e->on_save(e->arg, e, round + 1));
    }
    drop_states(e);
    return stuck ? cp_fail(stuck, "%s", why) : CP_OK;
}

static cp_err begin(struct cp_edge *e)
{
    bool resumed = e->start_round > 0;
    if (resumed && e->decided) { /* before the checkpoint, with these queues */
        CP_TRY(make_world(e, e->start_round, &e->world));
        CP_TRY(copy_queues(&e->seen_queues, &e->queues));
        cp_err err = cp_plan_check(&e->plan, &e->world);
        if (err) {
            return cp_fail_in(err, "the plan of the checkpoint, for round %d", e->start_round + 1);
        }
    } else {
        CP_TRY(decide(e, e->start_round));
    }
    CP_TRY(cp_talk_plan(e, resumed));
    if (resumed && e->job->config->fed.moments == CP_MOMENTS_KEEP) {
        CP_TRY(cp_talk_states(e));
    }
    drop_states(e); /* loaded, but of no use where moments start at zero in every round */
    return cp_talk_scatter(e, e->start_round);
}

static cp_err run_rounds(struct cp_edge *e, int *rounds_done)
{
    CP_TRY(begin(e));
    for (int round = e->start_round; round < e->job->config->fed.rounds; round++) {
        struct finished f = {0};
        bool saved = false;
        cp_err err = run_round(e, round, &saved, &f);
        finished_fini(&f);
        CP_TRY(err);
        *rounds_done = round + 1;
        if (saved && wants_stop(e)) {
            break;
        }
    }
    return CP_OK;
}

cp_err cp_edge_run(struct cp_edge *e, int *rounds_done)
{
    *rounds_done = e->start_round;
    cp_err err = run_rounds(e, rounds_done);
    if (err) {
        drop_states(e); /* they are counted in the accounts of members */
        return err;
    }
    return cp_talk_quit(e);
}
