#include "node/edge.h"

#include "base/clock.h"
#include "base/log.h"
#include "node/member.h"

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

static struct cp_key edge_key(int round, int block)
{
    return (struct cp_key){CP_NODE_EDGE, round, CP_ANY, CP_ANY, block};
}

static int64_t deadline(const struct cp_edge *e)
{
    return cp_deadline_ns(e->job->config->fed.deadline_s);
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

cp_err cp_edge_init(struct cp_edge *e, const struct cp_job *job, struct cp_net *net)
{
    size_t clusters = (size_t)job->cast.n_clusters, nodes = (size_t)job->cast.n_nodes;
    *e = (struct cp_edge){
        .job = job, .net = net, .mem = {.name = "edge"}, .msg_mem = {.name = "edge"}};
    e->max_moves = job->cast.n_clusters * job->shape.layers;
    cp_err err = CP_OK;
    CP_TRY_GOTO(err, new_blocks(e), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, clusters, sizeof *e->cursor, &e->cursor), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, clusters, sizeof *e->sums, &e->sums), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, nodes, sizeof *e->node, &e->node), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)e->max_moves, sizeof *e->move, &e->move), fail);
    CP_TRY_GOTO(
        err, cp_mem_array(NULL, clusters * (size_t)n_blocks(e), sizeof *e->state, &e->state), fail);
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
    for (int i = 0; e->state && i < e->job->cast.n_clusters * n_blocks(e); i++) {
        cp_msg_free(e->state[i]);
        e->state[i] = NULL;
    }
}

void cp_edge_fini(struct cp_edge *e)
{
    for (int block = 0; block < CP_BLOCKS_MAX; block++) {
        cp_mem_free(e->block[block]);
    }
    drop_states(e);
    cp_mem_free(e->state);
    cp_fedavg_fini(&e->avg);
    cp_mem_free(e->cursor);
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

static cp_err decide(struct cp_edge *e, int round)
{
    struct cp_world w = {0};
    struct cp_plan plan = {0};
    CP_TRY(cp_job_world(e->job, round, false, &w));
    cp_err err = decide_or_keep(e, &w, &plan);
    if (err) {
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
    cp_world_fini(&e->world);
    e->world = w;
    return CP_OK;
}

/* --- talking to the clusters ----------------------------------------------------------------- */

/* PLAN to the control units (who pass it on) and to the edge's own stages. */
static cp_err send_plan(struct cp_edge *e, bool resumed)
{
    struct cp_wire_plan head = {resumed};
    struct cp_str text = {0};
    cp_err err;
    cp_str_add(&text, (const char *)&head, sizeof head);
    CP_TRY_GOTO(err, cp_plan_to_json(&e->plan, NULL, &text), out);
    CP_TRY_GOTO(err, cp_str_check(&text), out);
    for (int c = 0; c < e->plan.n_clusters && !err; c++) {
        int to[2] = {e->job->cast.cu[c], e->job->cast.head[c]};
        for (int i = 0; i < 2 && !err; i++) {
            err = cp_wire_send(e->net, &e->msg_mem, CP_MSG_PLAN, e->plan.gen,
                               edge_key(CP_ANY, CP_ANY), to[i], text.p, text.len + 1);
        }
    }
out:
    cp_str_fini(&text);
    return err;
}

/* After a resume: every block's optimizer state goes from the checkpoint to its owner. */
static cp_err send_states(struct cp_edge *e)
{
    for (int c = 0; c < e->plan.n_clusters; c++) {
        int owner[CP_BLOCKS_MAX];
        cp_cast_owners(&e->job->cast, c, &e->plan.cluster[c], owner);
        for (int block = 0; block < n_blocks(e); block++) {
            struct cp_msg **m = &e->state[c * n_blocks(e) + block];
            struct cp_msg *out = *m;
            out->gen = e->plan.gen;
            *m = NULL;
            CP_TRY(cp_net_send(e->net, owner[block], out));
        }
    }
    return CP_OK;
}

static cp_err scatter(struct cp_edge *e, int round)
{
    for (int c = 0; c < e->plan.n_clusters; c++) {
        for (int block = 0; block < n_blocks(e); block++) {
            int to = block == n_blocks(e) - 1 ? e->job->cast.head[c] : e->job->cast.cu[c];
            CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_BLOCK, e->plan.gen,
                                edge_key(round, block), to, e->block[block],
                                block_bytes(e, block)));
        }
    }
    return CP_OK;
}

static cp_err wait_any(struct cp_edge *e, enum cp_msg_type type, int from, int block,
                       struct cp_msg **out)
{
    struct cp_key want = {from, CP_ANY, CP_ANY, CP_ANY, block};
    return cp_net_wait(e->net, CP_NODE_EDGE, 1u << type, want, deadline(e), out);
}

/* --- training -------------------------------------------------------------------------------- */

static void take_progress(struct cp_edge *e, int round, int c, const struct cp_wire_progress *p)
{
    e->cursor[c] = p->cursor;
    e->sums[c].samples += p->samples;
    e->sums[c].loss_sum += p->loss_sum;
    e->sums[c].labelled += p->labelled;
    if (e->on_step) {
        struct cp_step_report r = {
            round,     c, p->done, p->steps, p->labelled ? p->loss_sum / (double)p->labelled : 0,
            p->samples};
        e->on_step(e->arg, &r);
    }
}

static cp_err train(struct cp_edge *e, int round)
{
    int open = e->job->cast.n_clusters;
    memset(e->sums, 0, (size_t)open * sizeof *e->sums);
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        struct cp_wire_train t = {round, e->cursor[c]};
        CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_TRAIN, e->plan.gen, edge_key(round, CP_ANY),
                            e->job->cast.cu[c], &t, sizeof t));
    }
    int64_t end = deadline(e); /* one for all steps of the round */
    while (open > 0) {
        struct cp_msg *m;
        struct cp_wire_progress p = {0};
        struct cp_key any = {CP_ANY, CP_ANY, CP_ANY, CP_ANY, CP_ANY};
        CP_TRY(cp_net_wait(e->net, CP_NODE_EDGE, 1u << CP_MSG_PROGRESS, any, end, &m));
        int c = e->job->cast.node[m->key.from].cluster;
        CP_TRY(cp_wire_take(e->net, CP_NODE_EDGE, m, &p, sizeof p));
        take_progress(e, round, c, &p);
        open -= p.done == p.steps;
    }
    return CP_OK;
}

/* --- averaging ------------------------------------------------------------------------------- */

/* One block of every cluster, in cluster order. If nobody has any weight the model is unchanged. */
static cp_err average_block(struct cp_edge *e, int block, const double *weights, bool change)
{
    cp_fedavg_begin(&e->avg, cp_shape_params(&e->job->shape, block, block));
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        struct cp_msg *m;
        int from = block == n_blocks(e) - 1 ? e->job->cast.head[c] : e->job->cast.cu[c];
        CP_TRY(wait_any(e, CP_MSG_BLOCK, from, block, &m));
        cp_err err =
            m->bytes == block_bytes(e, block)
                ? cp_fedavg_add(&e->avg, weights[c], m->payload)
                : cp_fail(CP_E_PROTO, "%zu bytes, %zu expected", m->bytes, block_bytes(e, block));
        cp_msg_free(m);
        if (err) {
            return cp_fail_in(err, "block %d of cluster %s", block, e->job->base.cluster[c].name);
        }
    }
    if (change) {
        cp_fedavg_finish(&e->avg, e->block[block]);
    }
    return CP_OK;
}

static cp_err average(struct cp_edge *e)
{
    double size[CP_CLUSTERS_MAX], weights[CP_CLUSTERS_MAX], total = 0;
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        bool by_data = e->job->config->fed.weights == CP_WEIGHTS_DATA;
        double trained = (double)e->sums[c].samples;
        size[c] = trained > 0 && by_data ? e->job->base.cluster[c].data_size : trained;
    }
    cp_fedavg_weights(size, e->job->cast.n_clusters, weights);
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        total += weights[c];
    }
    if (!(total > 0)) {
        cp_log(CP_LOG_WARN, "no cluster trained in this round: the model is unchanged");
    }
    for (int block = 0; block < n_blocks(e); block++) {
        CP_TRY(average_block(e, block, weights, total > 0));
    }
    return CP_OK;
}

static cp_err take_states(struct cp_edge *e)
{
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        for (int block = 0; block < n_blocks(e); block++) {
            int from = block == n_blocks(e) - 1 ? e->job->cast.head[c] : e->job->cast.cu[c];
            CP_TRY(wait_any(e, CP_MSG_STATE, from, block, &e->state[c * n_blocks(e) + block]));
        }
    }
    return CP_OK;
}

static cp_err take_reports(struct cp_edge *e)
{
    for (int i = CP_NODE_EDGE + 1; i < e->job->cast.n_nodes; i++) {
        struct cp_msg *m;
        CP_TRY(wait_any(e, CP_MSG_REPORT, i, CP_ANY, &m));
        CP_TRY(cp_wire_take(e->net, CP_NODE_EDGE, m, &e->node[i].last, sizeof e->node[i].last));
        e->node[i].seen = true;
    }
    return CP_OK;
}

static cp_err collect(struct cp_edge *e, int round, bool with_state)
{
    struct cp_wire_collect want = {with_state};
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        int to[2] = {e->job->cast.cu[c], e->job->cast.head[c]};
        for (int i = 0; i < 2; i++) {
            CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_COLLECT, e->plan.gen,
                                edge_key(round, CP_ANY), to[i], &want, sizeof want));
        }
    }
    CP_TRY(average(e));
    if (with_state) {
        CP_TRY(take_states(e));
    }
    return take_reports(e);
}

/* --- evaluating ------------------------------------------------------------------------------ */

static cp_err evaluate(struct cp_edge *e, int round, bool full, struct cp_score *score)
{
    int clusters = e->job->cast.n_clusters;
    int64_t n = e->job->heldout.n, most = e->job->config->eval.max_samples;
    int64_t count = !full && most > 0 && most < n ? most : n;
    double loss_sum = 0;
    int64_t labelled = 0;
    *score = (struct cp_score){.samples = count};
    for (int c = 0; c < clusters; c++) {
        struct cp_wire_eval w = {count * c / clusters, 0};
        w.count = count * (c + 1) / clusters - w.first;
        CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_EVAL, e->plan.gen, edge_key(round, CP_ANY),
                            e->job->cast.cu[c], &w, sizeof w));
    }
    for (int c = 0; c < clusters; c++) {
        struct cp_msg *m;
        struct cp_wire_score s = {0};
        CP_TRY(wait_any(e, CP_MSG_SCORE, e->job->cast.cu[c], CP_ANY, &m));
        CP_TRY(cp_wire_take(e->net, CP_NODE_EDGE, m, &s, sizeof s));
        loss_sum += s.loss_sum;
        labelled += s.labelled;
        score->correct += s.correct;
    }
    score->samples = labelled;
    score->loss = labelled ? loss_sum / (double)labelled : 0;
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
    char note[sizeof(((struct cp_edge *)0)->note)];
    double train_loss;
    int64_t samples;
};

static void finished_fini(struct finished *f)
{
    cp_plan_fini(&f->plan);
    cp_world_fini(&f->world);
    cp_sim_round_fini(&f->sim);
    cp_queues_fini(&f->queues);
    cp_mem_free(f->move);
}

static cp_err finish_training(struct cp_edge *e, struct finished *f)
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
    memcpy(f->note, e->note, sizeof f->note);
    struct cp_edge_sums all = {0};
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        all.loss_sum += e->sums[c].loss_sum;
        all.labelled += e->sums[c].labelled;
        all.samples += e->sums[c].samples;
    }
    f->train_loss = all.labelled ? all.loss_sum / (double)all.labelled : 0;
    f->samples = all.samples;
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
    CP_TRY(train(e, round));
    *saved = last || wants_stop(e) || (round + 1) % c->run.save_every == 0;
    CP_TRY(collect(e, round, *saved));
    CP_TRY(finish_training(e, f));
    /* Without a valid plan for the next round this one is still evaluated and saved. */
    char why[sizeof e->note] = "";
    cp_err stuck = last ? CP_OK : decide(e, round + 1);
    e->decided = !last && !stuck;
    if (stuck) {
        cp_text_copy(why, sizeof why, cp_err_text());
    } else if (!last) {
        CP_TRY(send_plan(e, false));
    }
    CP_TRY(scatter(e, round));
    CP_TRY(evaluate(e, round, last, &score));
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
        CP_TRY(cp_job_world(e->job, e->start_round, false, &e->world));
        CP_TRY(copy_queues(&e->seen_queues, &e->queues));
        cp_err err = cp_plan_check(&e->plan, &e->world);
        if (err) {
            return cp_fail_in(err, "the plan of the checkpoint, for round %d", e->start_round + 1);
        }
    } else {
        CP_TRY(decide(e, e->start_round));
    }
    CP_TRY(send_plan(e, resumed));
    if (resumed && e->job->config->fed.moments == CP_MOMENTS_KEEP) {
        CP_TRY(send_states(e));
    }
    drop_states(e); /* loaded, but of no use where moments start at zero in every round */
    return scatter(e, e->start_round);
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
    for (int i = CP_NODE_EDGE + 1; i < e->job->cast.n_nodes; i++) {
        CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_QUIT, e->plan.gen, edge_key(CP_ANY, CP_ANY),
                            i, NULL, 0));
    }
    return CP_OK;
}
