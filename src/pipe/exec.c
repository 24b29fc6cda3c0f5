/*
 * exec: runs the op list of one step.
 *
 * An activation travels with what later stages need to know of its micro-batch: lengths (attention
 * mask), sample numbers (dropout keys) and labels (loss). A gradient travels alone. Everything that
 * arrives is checked against the plan before it is used: a peer's numbers are never trusted.
 */
#include "base/clock.h"
#include "pipe/stage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Payload of ACT: len[b], label[b] (int32), sample[b] (int64), then x[b*t*D] at a 64-byte edge. */
static size_t act_meta_bytes(int b)
{
    return cp_arena_round((size_t)b * (2 * sizeof(int32_t) + sizeof(int64_t)));
}

static size_t tensor_bytes(const struct cp_stage *st, int b, int t)
{
    return (size_t)b * (size_t)t * (size_t)st->shape->width * sizeof(cp_real);
}

static struct cp_key key_of(const struct cp_stage *st, const struct cp_step *step, int micro)
{
    return (struct cp_key){st->self, step->round, step->step, micro, CP_ANY};
}

static void put_event(const struct cp_stage *st, const struct cp_step *step, const char *kind,
                      int micro, int64_t t0, int64_t bytes)
{
    if (st->events) {
        struct cp_event e = {.t0_ns = t0,
                             .t1_ns = cp_now_ns(),
                             .node = cp_net_name(st->net, st->self),
                             .kind = kind,
                             .round = step->round,
                             .step = step->step,
                             .stage = st->part.index,
                             .micro = micro,
                             .bytes = bytes};
        cp_event_put(st->events, &e);
    }
}

static int lead(const struct cp_stage *st)
{
    return st->part.node[0];
}

static cp_err wait_from(struct cp_stage *st, enum cp_msg_type type, const struct cp_step *step,
                        int from, int micro, struct cp_msg **out)
{
    struct cp_key want = {from, step->round, step->step, micro, CP_ANY};
    int64_t t0 = cp_now_ns();
    CP_TRY(cp_net_wait(st->net, st->self, 1u << type, want, cp_deadline_ns(st->wait_s), out));
    put_event(st, step, cp_msg_name(type), micro, t0, (int64_t)(*out)->bytes);
    return CP_OK;
}

static cp_err check_act(const struct cp_stage *st, const struct cp_msg *m)
{
    const char *from = cp_net_name(st->net, m->key.from), *self = cp_net_name(st->net, st->self);
    if (m->b < 1 || m->b > st->b_max || m->t < 1 || m->t > st->t_max) {
        return cp_fail(CP_E_PROTO,
                       "%s: activation of %d x %d tokens from %s, the plan allows %d x %d", self,
                       m->b, m->t, from, st->b_max, st->t_max);
    }
    size_t want = act_meta_bytes(m->b) + tensor_bytes(st, m->b, m->t);
    if (m->bytes != want) {
        return cp_fail(CP_E_PROTO, "%s: activation of %zu bytes from %s, %zu expected", self,
                       m->bytes, from, want);
    }
    const int32_t *len = m->payload, *label = len + m->b;
    const int64_t *sample = (const int64_t *)(const void *)(label + m->b);
    for (int i = 0; i < m->b; i++) {
        if (len[i] < 1 || len[i] > m->t) {
            return cp_fail(CP_E_PROTO, "%s: sample length %d from %s is not in 1..%d", self, len[i],
                           from, m->t);
        }
        if (label[i] != CP_LABEL_IGNORE && (label[i] < 0 || label[i] >= st->shape->classes)) {
            return cp_fail(CP_E_PROTO, "%s: label %d from %s is not in 0..%d", self, label[i], from,
                           st->shape->classes - 1);
        }
        if (sample[i] < 0 || sample[i] >> 48 != 0) { /* the counter of dropout has 48 bits */
            return cp_fail(CP_E_PROTO, "%s: sample number %lld from %s is not in 0..2^48-1", self,
                           (long long)sample[i], from);
        }
    }
    return CP_OK;
}

/* What a micro-batch takes from its step. */
static void set_step(struct cp_micro *m, const struct cp_step *step)
{
    m->step_labelled = step->labelled;
    m->seed = step->seed;
    m->step = step->global_step;
    m->train = step->train;
}

static cp_err recv_act(struct cp_stage *st, const struct cp_step *step, const struct cp_op *op)
{
    struct cp_msg *m;
    CP_TRY(wait_from(st, CP_MSG_ACT, step, st->part.node[st->part.index - 1], op->micro, &m));
    cp_err err = check_act(st, m);
    if (!err) {
        const char *p = m->payload;
        size_t n = (size_t)m->b;
        struct cp_held *h = &st->held[op->slot];
        h->m = (struct cp_micro){
            .b = m->b, .t = m->t, .len = h->len, .sample = h->sample, .label = h->label};
        set_step(&h->m, step);
        memcpy(h->len, p, n * sizeof h->len[0]);
        memcpy(h->label, p + n * sizeof h->len[0], n * sizeof h->label[0]);
        memcpy(h->sample, p + 2 * n * sizeof h->len[0], n * sizeof h->sample[0]);
        memcpy(cp_segment_input(st->seg, op->slot), p + act_meta_bytes(m->b),
               tensor_bytes(st, m->b, m->t));
    }
    cp_msg_free(m);
    return err;
}

static cp_err send_act(struct cp_stage *st, const struct cp_step *step, const struct cp_op *op,
                       const cp_real *y)
{
    const struct cp_micro *mi = &st->held[op->slot].m;
    size_t n = (size_t)mi->b, meta = act_meta_bytes(mi->b), bytes = tensor_bytes(st, mi->b, mi->t);
    struct cp_msg *m;
    int64_t t0 = cp_now_ns();
    CP_TRY(cp_msg_new(st->msg_mem, CP_MSG_ACT, st->gen, key_of(st, step, op->micro), meta + bytes,
                      &m));
    char *p = m->payload;
    m->b = mi->b;
    m->t = mi->t;
    memcpy(p, mi->len, n * sizeof mi->len[0]);
    memcpy(p + n * sizeof mi->len[0], mi->label, n * sizeof mi->label[0]);
    memcpy(p + 2 * n * sizeof mi->len[0], mi->sample, n * sizeof mi->sample[0]);
    memcpy(p + meta, y, bytes);
    CP_TRY(cp_net_send(st->net, st->part.node[st->part.index + 1], m));
    put_event(st, step, "SEND_ACT", op->micro, t0, (int64_t)(meta + bytes));
    return CP_OK;
}

static cp_err recv_grad(struct cp_stage *st, const struct cp_step *step, const struct cp_op *op)
{
    struct cp_msg *m;
    CP_TRY(wait_from(st, CP_MSG_GRAD, step, st->part.node[st->part.index + 1], op->micro, &m));
    const struct cp_micro *mi = &st->held[op->slot].m;
    size_t want = tensor_bytes(st, mi->b, mi->t);
    cp_err err = CP_OK;
    if (m->bytes == want) {
        memcpy(cp_segment_grad_out(st->seg), m->payload, want);
    } else {
        err = cp_fail(CP_E_PROTO, "%s: gradient of %zu bytes from %s, %zu expected",
                      cp_net_name(st->net, st->self), m->bytes, cp_net_name(st->net, m->key.from),
                      want);
    }
    cp_msg_free(m);
    return err;
}

static cp_err send_grad(struct cp_stage *st, const struct cp_step *step, const struct cp_op *op,
                        const cp_real *dx)
{
    const struct cp_micro *mi = &st->held[op->slot].m;
    size_t bytes = tensor_bytes(st, mi->b, mi->t);
    struct cp_msg *m;
    int64_t t0 = cp_now_ns();
    CP_TRY(cp_msg_new(st->msg_mem, CP_MSG_GRAD, st->gen, key_of(st, step, op->micro), bytes, &m));
    memcpy(m->payload, dx, bytes);
    CP_TRY(cp_net_send(st->net, st->part.node[st->part.index - 1], m));
    put_event(st, step, "SEND_GRAD", op->micro, t0, (int64_t)bytes);
    return CP_OK;
}

/* --- measuring ------------------------------------------------------------------------------- */

static bool measures(const struct cp_stage *st, const struct cp_step *step)
{
    return st->stat && step->train && step->measure && step->labelled > 0;
}

static void begin_measuring(struct cp_stage *st, const struct cp_step *step)
{
    if (st->stat_round != step->round) {
        cp_gradstat_begin(st->stat, step->seed, step->round, st->first_trained);
        st->stat_round = step->round;
    }
    cp_gradstat_open(st->stat, st->seg, step->step, step->labelled);
}

static int64_t labelled_in(const struct cp_micro *m)
{
    int64_t n = 0;
    for (int i = 0; m->label && i < m->b; i++) {
        n += m->label[i] != CP_LABEL_IGNORE;
    }
    return n;
}

/* --- the end of a step: one norm, one decision, one scale for all ---------------------------- */

/* Payload of NORM: the sender's first block and count, the head's sums, then one term per block. */
struct norm_report {
    int32_t first, count;
    struct cp_head_result head;
    double norm2[];
};

/* Payload of COMMIT. apply false: a refused step, gradients are dropped everywhere. */
struct commit {
    int32_t apply;
    double scale;
};

static cp_err send_norm(struct cp_stage *st, const struct cp_step *step,
                        const struct cp_head_result *head)
{
    int count = step->train ? st->part.last - st->part.first + 1 : 0;
    struct cp_msg *m;
    struct norm_report *r;
    CP_TRY(cp_msg_new(st->msg_mem, CP_MSG_NORM, st->gen, key_of(st, step, -1),
                      sizeof *r + (size_t)count * sizeof r->norm2[0], &m));
    r = m->payload;
    *r = (struct norm_report){.first = st->part.first, .count = count, .head = *head};
    for (int i = 0; i < count; i++) {
        r->norm2[i] = cp_segment_norm2(st->seg, st->part.first + i);
    }
    return cp_net_send(st->net, lead(st), m);
}

/* Takes one report; in training (norm2 not NULL) it must begin with block *next, so that every
 * block counts exactly once. */
static cp_err take_report(struct cp_stage *st, const struct cp_step *step, int from, double *norm2,
                          int *stage_node, int *next, struct cp_head_result *head)
{
    struct cp_msg *m;
    int n_blocks = cp_shape_blocks(st->shape);
    CP_TRY(wait_from(st, CP_MSG_NORM, step, from, CP_ANY, &m));
    const struct norm_report *r = m->payload;
    bool sized = m->bytes >= sizeof *r && r->count >= 0 && r->count <= n_blocks &&
                 m->bytes == sizeof *r + (size_t)r->count * sizeof r->norm2[0];
    bool fits = sized && (norm2 ? r->count > 0 && r->first == *next && r->count <= n_blocks - *next
                                : r->count == 0);
    cp_err err = CP_OK;
    if (!fits) {
        err = cp_fail(CP_E_PROTO, "%s: malformed NORM from %s", cp_net_name(st->net, st->self),
                      cp_net_name(st->net, m->key.from));
    }
    for (int k = 0; !err && k < r->count; k++, ++*next) {
        norm2[*next] = r->norm2[k];
        stage_node[*next] = from;
    }
    if (!err) {
        head->loss_sum += r->head.loss_sum;
        head->labelled += r->head.labelled;
        head->correct += r->head.correct;
    }
    cp_msg_free(m);
    return err;
}

/* The reports of all stages, in stage order: norm2[block] and the head's sums. */
static cp_err gather_norms(struct cp_stage *st, const struct cp_step *step, double *norm2,
                           int *stage_node, struct cp_head_result *head)
{
    int next = 0;
    for (int j = 0; j < st->part.n_stages; j++) {
        CP_TRY(take_report(st, step, st->part.node[j], norm2, stage_node, &next, head));
    }
    return next == cp_shape_blocks(st->shape)
               ? CP_OK
               : cp_fail(CP_E_PROTO, "%s: the stages report %d blocks, the model has %d",
                         cp_net_name(st->net, st->self), next, cp_shape_blocks(st->shape));
}

static cp_err fail_nonfinite(const struct cp_stage *st, const struct cp_step *step, int block,
                             int node)
{
    const char *hint = "the step was refused everywhere; lower train.lr or train.clip";
    if (block < 0) {
        return cp_fail(CP_E_NONFINITE, "round %d, step %d: the loss is not finite; %s",
                       step->round + 1, step->step + 1, hint);
    }
    return cp_fail(CP_E_NONFINITE,
                   "round %d, step %d: a gradient of block %d (on %s) is not finite; %s",
                   step->round + 1, step->step + 1, block, cp_net_name(st->net, node), hint);
}

/* The lead's side. Norm terms are added in block order, whatever the cut (B17). */
static cp_err decide_commit(struct cp_stage *st, const struct cp_step *step,
                            struct cp_step_result *out, struct commit *c)
{
    double norm2[CP_BLOCKS_MAX] = {0}, sum = 0;
    int stage_node[CP_BLOCKS_MAX] = {0}, n_blocks = cp_shape_blocks(st->shape), bad = -1;
    out->head = (struct cp_head_result){0};
    CP_TRY(gather_norms(st, step, norm2, stage_node, &out->head));
    for (int block = 0; block < n_blocks; block++) {
        sum += norm2[block];
        if (bad < 0 && !isfinite(norm2[block])) {
            bad = block;
        }
    }
    bool finite = isfinite(out->head.loss_sum) && isfinite(sum);
    out->grad_norm = sqrt(sum);
    *c = (struct commit){finite, finite ? cp_optim_clip_scale(sum, st->clip) : 0};
    if (finite) {
        return CP_OK;
    }
    return fail_nonfinite(st, step, isfinite(out->head.loss_sum) ? bad : -1,
                          bad < 0 ? st->self : stage_node[bad]);
}

static cp_err send_commit(struct cp_stage *st, const struct cp_step *step, const struct commit *c)
{
    for (int i = 0; i < st->part.n_stages; i++) {
        struct cp_msg *m;
        CP_TRY(
            cp_msg_new(st->msg_mem, CP_MSG_COMMIT, st->gen, key_of(st, step, -1), sizeof *c, &m));
        memcpy(m->payload, c, sizeof *c);
        CP_TRY(cp_net_send(st->net, st->part.node[i], m));
    }
    return CP_OK;
}

static cp_err recv_commit(struct cp_stage *st, const struct cp_step *step, struct commit *c)
{
    struct cp_msg *m;
    CP_TRY(wait_from(st, CP_MSG_COMMIT, step, lead(st), CP_ANY, &m));
    cp_err err = CP_OK;
    if (m->bytes == sizeof *c) {
        memcpy(c, m->payload, sizeof *c);
    } else {
        err = cp_fail(CP_E_PROTO, "%s: malformed COMMIT", cp_net_name(st->net, st->self));
    }
    cp_msg_free(m);
    return err;
}

static cp_err op_step(struct cp_stage *st, const struct cp_step *step, struct cp_step_result *out)
{
    struct commit c;
    cp_err refused = CP_OK;
    CP_TRY(send_norm(st, step, &out->head));
    if (st->self == lead(st)) {
        refused = decide_commit(st, step, out, &c);
        if (refused != CP_OK && refused != CP_E_NONFINITE) {
            return refused;
        }
        char why[512]; /* the sentence must outlive the messages below */
        snprintf(why, sizeof why, "%s", cp_err_text());
        CP_TRY(send_commit(st, step, &c));
        refused = refused ? cp_fail(refused, "%s", why) : CP_OK;
    }
    CP_TRY(recv_commit(st, step, &c));
    if (c.apply && measures(st, step)) {
        cp_gradstat_close(st->stat);
    }
    if (c.apply && !step->repeat) {
        cp_segment_step(st->seg, &st->optim, step->lr, c.scale);
    } else {
        cp_segment_zero_grad(st->seg);
    }
    return refused;
}

/* --- the loop -------------------------------------------------------------------------------- */

static const cp_real *op_fwd(struct cp_stage *st, const struct cp_step *step,
                             const struct cp_op *op, const struct cp_micro *micro,
                             struct cp_head_result *sums)
{
    struct cp_held *h = &st->held[op->slot];
    struct cp_head_result head = {0};
    if (st->part.first == 0) {
        h->m = micro[op->micro];
        set_step(&h->m, step);
    }
    const cp_real *y = cp_segment_forward(st->seg, op->slot, &h->m, &head);
    sums->loss_sum += head.loss_sum;
    sums->labelled += head.labelled;
    sums->correct += head.correct;
    return y;
}

static cp_err run_op(struct cp_stage *st, const struct cp_step *step, const struct cp_op *op,
                     const struct cp_micro *micro, struct cp_step_result *out, const cp_real **made)
{
    int64_t t0 = cp_now_ns(), cpu0 = cp_thread_cpu_ns();
    cp_err err = CP_OK;
    switch (op->kind) {
    case CP_OP_RECV_ACT:
        return recv_act(st, step, op);
    case CP_OP_SEND_ACT:
        return send_act(st, step, op, *made);
    case CP_OP_RECV_GRAD:
        return recv_grad(st, step, op);
    case CP_OP_SEND_GRAD:
        return send_grad(st, step, op, *made);
    case CP_OP_FWD:
        *made = op_fwd(st, step, op, micro, &out->head);
        break;
    case CP_OP_BWD:
        *made = cp_segment_backward(st->seg, op->slot, &st->held[op->slot].m);
        if (measures(st, step)) {
            cp_gradstat_add(st->stat, st->seg, labelled_in(&st->held[op->slot].m));
        } else if (step->repeat && st->stat && st->stat_round == step->round) {
            cp_gradstat_repeat(st->stat, st->seg);
        }
        break;
    case CP_OP_STEP:
        err = op_step(st, step, out);
        break;
    case CP_OP_KIND_COUNT:
        break;
    }
    st->busy_ns += cp_thread_cpu_ns() - cpu0;
    put_event(st, step, cp_op_name(op->kind), op->micro, t0, 0);
    return err;
}

/* An evaluation has no STEP: the head's sums go to the lead, which waits for them, so that
 * at most one such list is under way. */
static cp_err end_evaluation(struct cp_stage *st, const struct cp_step *step,
                             struct cp_step_result *out)
{
    if (st->part.index == st->part.n_stages - 1) {
        CP_TRY(send_norm(st, step, &out->head));
    }
    if (st->self == lead(st)) {
        out->head = (struct cp_head_result){0};
        int last = st->part.node[st->part.n_stages - 1];
        return take_report(st, step, last, NULL, NULL, NULL, &out->head);
    }
    return CP_OK;
}

cp_err cp_stage_run(struct cp_stage *st, const struct cp_step *step, const struct cp_micro *micro,
                    struct cp_step_result *out)
{
    const cp_real *made = NULL; /* output of the last FWD or BWD, to be sent by the next op */
    *out = (struct cp_step_result){0};
    if (st->ops_micros != step->micros || st->ops_train != step->train) {
        cp_ops_fini(&st->ops);
        st->ops_micros = 0;
        CP_TRY(cp_ops_make(st->part.index, st->part.n_stages, step->micros, st->part.slots,
                           step->train, &st->ops));
        st->ops_micros = step->micros;
        st->ops_train = step->train;
    }
    if (measures(st, step)) {
        begin_measuring(st, step);
    }
    for (int i = 0; i < st->ops.n; i++) {
        CP_TRY(run_op(st, step, &st->ops.op[i], micro, out, &made));
    }
    return step->train ? CP_OK : end_evaluation(st, step, out);
}
