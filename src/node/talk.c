#include "node/talk.h"

#include "base/clock.h"
#include "base/log.h"
#include "node/member.h"

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

static int local_steps(const struct cp_edge *e)
{
    return (int)e->job->config->train.local_steps;
}

static int64_t deadline(const struct cp_edge *e)
{
    return cp_deadline_ns(e->job->config->fed.deadline_s);
}

/* --- plans and weights ----------------------------------------------------------------- */

/* To every node but those that hear it from their lead. */
static cp_err tell_all(struct cp_edge *e, enum cp_msg_type type, int round, const void *payload,
                       size_t bytes)
{
    const struct cp_cast *cast = &e->job->cast;
    for (int i = CP_NODE_EDGE + 1; i < cast->n_nodes; i++) {
        struct cp_replica r;
        if (cp_cast_find(cast, i, &e->plan, &r) < 0 || !cp_cast_behind(cast, &r, i)) {
            CP_TRY(cp_wire_send(e->net, &e->msg_mem, type, e->plan.gen, edge_key(round, CP_ANY), i,
                                payload, bytes));
        }
    }
    return CP_OK;
}

cp_err cp_talk_plan(struct cp_edge *e, bool resumed)
{
    struct cp_wire_plan head = {resumed};
    struct cp_str text = {0};
    cp_err err;
    cp_str_add(&text, (const char *)&head, sizeof head);
    CP_TRY_GOTO(err, cp_plan_to_json(&e->plan, NULL, &text), out);
    CP_TRY_GOTO(err, cp_str_check(&text), out);
    err = tell_all(e, CP_MSG_PLAN, CP_ANY, text.p, text.len + 1);
out:
    cp_str_fini(&text);
    return err;
}

cp_err cp_talk_states(struct cp_edge *e)
{
    for (int r = 0; r < e->n_replicas; r++) {
        for (int block = 0; block < n_blocks(e); block++) {
            struct cp_msg **m = &e->state[r * n_blocks(e) + block];
            struct cp_msg *out = *m;
            out->gen = e->plan.gen;
            *m = NULL;
            CP_TRY(cp_net_send(e->net, cp_replica_owner(&e->replica[r], block), out));
        }
    }
    return CP_OK;
}

cp_err cp_talk_scatter(struct cp_edge *e, int round)
{
    for (int r = 0; r < e->n_replicas; r++) {
        for (int block = 0; block < n_blocks(e); block++) {
            int to = cp_cast_carrier(&e->job->cast, &e->replica[r], block);
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

static void add_sums(struct cp_edge_sums *to, const struct cp_edge_sums *from, int n)
{
    for (int i = 0; i < n; i++) {
        to->loss_sum += from[i].loss_sum;
        to->labelled += from[i].labelled;
        to->samples += from[i].samples;
    }
}

/* Of a replica's step (0-based). */
static struct cp_edge_sums *step_sums(const struct cp_edge *e, int replica, int step)
{
    return e->sums + (size_t)replica * (size_t)local_steps(e) + step;
}

/* A replica's sums over the round. */
static struct cp_edge_sums sums_of(const struct cp_edge *e, int replica)
{
    struct cp_edge_sums all = {0};
    add_sums(&all, step_sums(e, replica, 0), local_steps(e));
    return all;
}

struct cp_edge_sums cp_talk_sums(const struct cp_edge *e)
{
    struct cp_edge_sums all = {0};
    for (int r = 0; r < e->n_replicas; r++) {
        struct cp_edge_sums one = sums_of(e, r);
        add_sums(&all, &one, 1);
    }
    return all;
}

struct cp_edge_sums cp_talk_first_sums(const struct cp_edge *e)
{
    struct cp_edge_sums all = {0};
    for (int r = 0; r < e->n_replicas; r++) {
        add_sums(&all, step_sums(e, r, 0), 1);
    }
    return all;
}

/* Tells of a cluster's step when the last of its replicas has made it. */
static void report_step(const struct cp_edge *e, int round, int replica,
                        const struct cp_wire_progress *p)
{
    const struct cp_replica *r = &e->replica[replica];
    struct cp_edge_sums step = {0};
    int first = replica - r->index;
    for (int i = first; i < first + r->of; i++) {
        if (e->done[i] < p->done) {
            return;
        }
        if (p->done > 0) {
            add_sums(&step, step_sums(e, i, p->done - 1), 1);
        }
    }
    struct cp_step_report report = {
        .round = round,
        .cluster = r->cluster,
        .done = p->done,
        .steps = p->steps,
        .loss = step.labelled ? step.loss_sum / (double)step.labelled : 0,
        .samples = step.samples,
    };
    e->on_step(e->arg, &report);
}

static cp_err take_progress(struct cp_edge *e, int round, int from,
                            const struct cp_wire_progress *p)
{
    int r = 0;
    while (r < e->n_replicas && e->replica[r].node[0] != from) {
        r++;
    }
    bool known = r < e->n_replicas;
    int next = known && e->done[r] > 0 ? e->done[r] + 1 : 1;
    if (!known || p->steps > local_steps(e) || p->done > p->steps ||
        p->done != (p->steps == 0 ? 0 : next)) {
        return cp_fail(CP_E_PROTO, "PROGRESS from %s: step %d of %d does not follow",
                       cp_net_name(e->net, from), p->done, p->steps);
    }
    e->cursor[e->replica[r].cluster] = p->cursor; /* the same for all of its replicas */
    e->done[r] = p->done;
    if (p->done > 0) {
        *step_sums(e, r, p->done - 1) = (struct cp_edge_sums){p->loss_sum, p->labelled, p->samples};
    }
    if (e->on_step) {
        report_step(e, round, r, p);
    }
    return CP_OK;
}

cp_err cp_talk_train(struct cp_edge *e, int round)
{
    int open = e->n_replicas;
    memset(e->sums, 0, (size_t)open * (size_t)local_steps(e) * sizeof *e->sums);
    for (int r = 0; r < e->n_replicas; r++) {
        struct cp_wire_train t = {round, e->cursor[e->replica[r].cluster]};
        e->done[r] = -1;
        CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_TRAIN, e->plan.gen, edge_key(round, CP_ANY),
                            e->replica[r].node[0], &t, sizeof t));
    }
    int64_t end = deadline(e); /* one for all steps of the round */
    while (open > 0) {
        struct cp_msg *m;
        struct cp_wire_progress p = {0};
        struct cp_key any = {CP_ANY, CP_ANY, CP_ANY, CP_ANY, CP_ANY};
        CP_TRY(cp_net_wait(e->net, CP_NODE_EDGE, 1u << CP_MSG_PROGRESS, any, end, &m));
        int from = m->key.from;
        CP_TRY(cp_wire_take(e->net, CP_NODE_EDGE, m, &p, sizeof p));
        CP_TRY(take_progress(e, round, from, &p));
        open -= p.done == p.steps;
    }
    return CP_OK;
}

/* --- averaging ------------------------------------------------------------------------------- */

/* One block of every replica, in their order. If nobody has any weight the model is unchanged. */
static cp_err average_block(struct cp_edge *e, int block, const double *weights, bool change)
{
    cp_fedavg_begin(&e->avg, cp_shape_params(&e->job->shape, block, block));
    for (int r = 0; r < e->n_replicas; r++) {
        struct cp_msg *m;
        int from = cp_cast_carrier(&e->job->cast, &e->replica[r], block);
        CP_TRY(wait_any(e, CP_MSG_BLOCK, from, block, &m));
        cp_err err =
            m->bytes == block_bytes(e, block)
                ? cp_fedavg_add(&e->avg, weights[r], m->payload)
                : cp_fail(CP_E_PROTO, "%zu bytes, %zu expected", m->bytes, block_bytes(e, block));
        cp_msg_free(m);
        if (err) {
            return cp_fail_in(err, "block %d of cluster %s", block,
                              e->job->base.cluster[e->replica[r].cluster].name);
        }
    }
    if (change) {
        cp_fedavg_finish(&e->avg, e->block[block]);
    }
    return CP_OK;
}

/* What a replica weighs: the samples it has trained, or that share of its cluster's data. */
static double size_of(const struct cp_edge *e, int replica)
{
    const struct cp_replica *r = &e->replica[replica];
    double trained = (double)sums_of(e, replica).samples, cluster = 0;
    if (!(trained > 0) || e->job->config->fed.weights != CP_WEIGHTS_DATA) {
        return trained;
    }
    for (int i = replica - r->index; i < replica - r->index + r->of; i++) {
        cluster += (double)sums_of(e, i).samples;
    }
    return e->job->base.cluster[r->cluster].data_size * (trained / cluster);
}

static cp_err average(struct cp_edge *e)
{
    double total = 0, *size, *weights;
    CP_TRY(cp_mem_array(NULL, 2 * (size_t)e->n_replicas, sizeof *size, &size));
    weights = size + e->n_replicas;
    for (int r = 0; r < e->n_replicas; r++) {
        size[r] = size_of(e, r);
    }
    cp_fedavg_weights(size, e->n_replicas, weights);
    cp_constants_begin(&e->constants);
    for (int r = 0; r < e->n_replicas; r++) {
        cp_constants_model(&e->constants, r, e->replica[r].cluster, weights[r]);
        total += weights[r];
    }
    if (!(total > 0)) {
        cp_log(CP_LOG_WARN, "no cluster trained in this round: the model is unchanged");
    }
    cp_err err = CP_OK;
    for (int block = 0; block < n_blocks(e) && !err; block++) {
        err = average_block(e, block, weights, total > 0);
    }
    cp_mem_free(size);
    return err;
}

static cp_err take_states(struct cp_edge *e)
{
    for (int r = 0; r < e->n_replicas; r++) {
        for (int block = 0; block < n_blocks(e); block++) {
            int from = cp_cast_carrier(&e->job->cast, &e->replica[r], block);
            CP_TRY(wait_any(e, CP_MSG_STATE, from, block, &e->state[r * n_blocks(e) + block]));
        }
    }
    return CP_OK;
}

/* What the blocks of a node have told of their gradients. */
static cp_err take_gradients(struct cp_edge *e, int from, const struct cp_gradstat_block *block,
                             size_t n)
{
    for (int r = 0; r < e->n_replicas; r++) {
        for (int j = 0; j < e->replica[r].n_stages; j++) {
            for (size_t i = 0; i < n && e->replica[r].node[j] == from; i++) {
                CP_TRY(cp_constants_add(&e->constants, r, &block[i]));
            }
        }
    }
    return CP_OK;
}

static cp_err take_report(struct cp_edge *e, int from, const struct cp_msg *m)
{
    size_t head = sizeof e->node[from].last, each = sizeof(struct cp_gradstat_block);
    if (m->bytes < head || (m->bytes - head) % each != 0) {
        return cp_fail(CP_E_PROTO, "a report of %zu bytes", m->bytes);
    }
    memcpy(&e->node[from].last, m->payload, head);
    e->node[from].seen = true;
    const char *tail = (const char *)m->payload + head;
    return take_gradients(e, from, (const struct cp_gradstat_block *)(const void *)tail,
                          (m->bytes - head) / each);
}

static cp_err take_reports(struct cp_edge *e)
{
    for (int i = CP_NODE_EDGE + 1; i < e->job->cast.n_nodes; i++) {
        struct cp_msg *m;
        CP_TRY(wait_any(e, CP_MSG_REPORT, i, CP_ANY, &m));
        cp_err err = take_report(e, i, m);
        cp_msg_free(m);
        if (err) {
            return cp_fail_in(err, "%s", cp_net_name(e->net, i));
        }
    }
    cp_constants_end(&e->constants);
    return CP_OK;
}

cp_err cp_talk_collect(struct cp_edge *e, int round, bool with_state)
{
    struct cp_wire_collect want = {with_state};
    CP_TRY(tell_all(e, CP_MSG_COLLECT, round, &want, sizeof want));
    CP_TRY(average(e));
    if (with_state) {
        CP_TRY(take_states(e));
    }
    return take_reports(e);
}

/* --- evaluating ------------------------------------------------------------------------------ */

cp_err cp_talk_evaluate(struct cp_edge *e, int round, bool full, struct cp_score *score)
{
    int parts = e->n_replicas;
    int64_t n = e->job->heldout.n, most = e->job->config->eval.max_samples;
    int64_t count = !full && most > 0 && most < n ? most : n;
    double loss_sum = 0;
    int64_t labelled = 0;
    *score = (struct cp_score){.samples = count};
    for (int r = 0; r < parts; r++) {
        struct cp_wire_eval w = {count * r / parts, 0};
        w.count = count * (r + 1) / parts - w.first;
        CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_EVAL, e->plan.gen, edge_key(round, CP_ANY),
                            e->replica[r].node[0], &w, sizeof w));
    }
    for (int r = 0; r < parts; r++) {
        struct cp_msg *m;
        struct cp_wire_score s = {0};
        CP_TRY(wait_any(e, CP_MSG_SCORE, e->replica[r].node[0], CP_ANY, &m));
        CP_TRY(cp_wire_take(e->net, CP_NODE_EDGE, m, &s, sizeof s));
        loss_sum += s.loss_sum;
        labelled += s.labelled;
        score->correct += s.correct;
    }
    score->samples = labelled;
    score->loss = labelled ? loss_sum / (double)labelled : 0;
    return CP_OK;
}

cp_err cp_talk_quit(struct cp_edge *e)
{
    for (int i = CP_NODE_EDGE + 1; i < e->job->cast.n_nodes; i++) {
        CP_TRY(cp_wire_send(e->net, &e->msg_mem, CP_MSG_QUIT, e->plan.gen, edge_key(CP_ANY, CP_ANY),
                            i, NULL, 0));
    }
    return CP_OK;
}
