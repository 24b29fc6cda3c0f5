#include "node/member.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

/* A stand-by hears nothing while a round is trained, collected, evaluated and saved, each of which
 * has the deadline of a round at the edge. */
enum { IDLE_ROUNDS = 4 };

cp_err cp_wire_take(struct cp_net *net, int self, struct cp_msg *m, void *out, size_t bytes)
{
    cp_err err = CP_OK;
    if (m->bytes == bytes) {
        memcpy(out, m->payload, bytes);
    } else {
        err =
            cp_fail(CP_E_PROTO, "%s: %s of %zu bytes from %s, %zu expected", cp_net_name(net, self),
                    cp_msg_name(m->type), m->bytes, cp_net_name(net, m->key.from), bytes);
    }
    cp_msg_free(m);
    return err;
}

cp_err cp_wire_send(struct cp_net *net, struct cp_mem *mem, enum cp_msg_type type, uint32_t gen,
                    struct cp_key key, int to, const void *payload, size_t bytes)
{
    struct cp_msg *m;
    CP_TRY(cp_msg_new(mem, type, gen, key, bytes, &m));
    if (bytes) {
        memcpy(m->payload, payload, bytes);
    }
    return cp_net_send(net, to, m);
}

cp_err cp_member_init(struct cp_member *m, const struct cp_job *job, struct cp_net *net, int self,
                      const struct cp_event_sink *events)
{
    const struct cp_cast_node *me = &job->cast.node[self];
    *m = (struct cp_member){
        .job = job,
        .net = net,
        .self = self,
        .cluster = me->cluster,
        .role = me->role,
        .mem = {.name = me->name},
        .msg_mem = {.name = me->name},
    };
    m->stage = (struct cp_stage){
        .net = net,
        .self = self,
        .shape = &job->shape,
        .optim = job->optim,
        .clip = job->config->train.clip,
        .first_trained = cp_job_first_trained(job),
        .b_max = cp_job_micro_max(job),
        .t_max = job->shape.max_len,
        .wait_s = job->config->net.wait_s,
        .estimate = job->config->train.estimate_every > 0,
        .mem = &m->mem,
        .msg_mem = &m->msg_mem,
        .events = events,
        .part = {.first = 0, .last = -1, .index = -1},
    };
    const struct cp_cluster *cl = &job->base.cluster[me->cluster];
    if (me->role == CP_ROLE_DEVICE) { /* the plan's hard limit holds for the allocator too */
        m->mem.limit_bytes = cl->device[me->device].mem_bytes;
    } else if (me->role == CP_ROLE_CU) {
        m->mem.limit_bytes = cl->cu.mem_bytes;
    }
    return CP_OK;
}

void cp_member_fini(struct cp_member *m)
{
    cp_stage_fini(&m->stage);
    cp_plan_fini(&m->plan);
    cp_feed_fini(&m->feed);
}

static bool leads(const struct cp_member *m)
{
    return m->replica.n_stages > 0 && m->replica.node[0] == m->self;
}

static cp_err read_plan(struct cp_member *m, const struct cp_msg *msg, struct cp_wire_plan *head,
                        struct cp_plan *plan)
{
    const char *text = (const char *)msg->payload + sizeof *head;
    if (msg->bytes <= sizeof *head || ((const char *)msg->payload)[msg->bytes - 1] != 0) {
        return cp_fail(CP_E_PROTO, "%s: malformed PLAN", cp_net_name(m->net, m->self));
    }
    memcpy(head, msg->payload, sizeof *head);
    CP_TRY(cp_plan_from_json(text, plan));
    cp_err err = cp_cast_check(&m->job->cast, plan);
    if (err) {
        cp_plan_fini(plan);
        return cp_fail_in(err, "%s", cp_net_name(m->net, m->self));
    }
    return CP_OK;
}

/* Sends a copy of a message to the devices that this lead has behind it: they hear first from it,
 * then of it, whatever the way of other messages. */
static cp_err pass_on(struct cp_member *m, const struct cp_msg *msg)
{
    for (int j = 1; leads(m) && j < m->replica.n_stages; j++) {
        int to = m->replica.node[j];
        if (!cp_cast_behind(&m->job->cast, &m->replica, to)) {
            continue;
        }
        struct cp_key key = msg->key;
        key.from = m->self;
        CP_TRY(cp_wire_send(m->net, &m->msg_mem, msg->type, msg->gen, key, to, msg->payload,
                            msg->bytes));
    }
    return CP_OK;
}

/* The node of each block of a replica; nobody for replica -1, nowhere. */
static void owners(const struct cp_member *m, const struct cp_plan *plan, int index, int *owner)
{
    struct cp_replica r;
    if (index >= 0) {
        cp_cast_replica(&m->job->cast, m->cluster, &plan->cluster[m->cluster], index, &r);
    }
    for (int block = 0; block < cp_shape_blocks(&m->job->shape); block++) {
        owner[block] = index >= 0 ? cp_replica_owner(&r, block) : -1;
    }
}

/* Where the moments of the part under a new plan come from, and where those of the part so far go.
 */
static void find_moves(const struct cp_member *m, const struct cp_plan *plan,
                       const struct cp_replica *now, bool resumed, int *from, int *to)
{
    if (m->plan.n_clusters == 0) {
        for (int block = 0; block < cp_shape_blocks(&m->job->shape); block++) {
            from[block] = resumed ? CP_NODE_EDGE : -1;
        }
        owners(m, plan, -1, to);
        return;
    }
    const struct cp_cluster_plan *a = &m->plan.cluster[m->cluster];
    const struct cp_cluster_plan *b = &plan->cluster[m->cluster];
    owners(m, &m->plan, now ? cp_cast_origin(a, b, now->index) : -1, from);
    owners(m, plan, m->stage.seg ? cp_cast_heir(a, b, m->replica.index) : -1, to);
}

static cp_err take_plan(struct cp_member *m, const struct cp_msg *msg)
{
    struct cp_wire_plan head = {0};
    struct cp_plan plan = {0};
    struct cp_part part;
    struct cp_replica replica;
    int from[CP_BLOCKS_MAX], to[CP_BLOCKS_MAX];
    CP_TRY(read_plan(m, msg, &head, &plan));
    plan.gen = msg->gen;
    cp_cast_part(&m->job->cast, m->self, &plan, &part);
    cp_cast_find(&m->job->cast, m->self, &plan, &replica);
    find_moves(m, &plan, part.index < 0 ? NULL : &replica, head.resumed, from, to);
    cp_plan_fini(&m->plan);
    m->plan = plan;
    m->replica = replica;
    CP_TRY(pass_on(m, msg));
    if (!leads(m)) {
        cp_feed_fini(&m->feed);
    } else if (!m->feed.job) {
        CP_TRY(cp_feed_init(&m->feed, m->job, m->cluster, &m->msg_mem));
    }
    return cp_stage_take(&m->stage, plan.gen, &part, from, to,
                         m->job->config->fed.moments == CP_MOMENTS_KEEP);
}

/* Weights of one block, coming down: kept if they are this node's, else passed to their owner. */
static cp_err take_block(struct cp_member *m, struct cp_msg *msg)
{
    int block = msg->key.block, n_blocks = cp_shape_blocks(&m->job->shape);
    cp_err err = CP_OK;
    if (block < 0 || block >= n_blocks ||
        msg->bytes != (size_t)cp_shape_params(&m->job->shape, block, block) * sizeof(cp_real)) {
        err = cp_fail(CP_E_PROTO, "%s: BLOCK %d of %zu bytes from %s does not fit the model",
                      cp_net_name(m->net, m->self), block, msg->bytes,
                      cp_net_name(m->net, msg->key.from));
    } else if (m->stage.seg && cp_segment_has(m->stage.seg, block)) {
        memcpy(cp_segment_plane(m->stage.seg, block, CP_PLANE_W), msg->payload, msg->bytes);
    } else if (leads(m)) {
        msg->key.from = m->self;
        return cp_net_send(m->net, cp_replica_owner(&m->replica, block), msg);
    } else {
        err = cp_fail(CP_E_PROTO, "%s: block %d from %s is not mine in plan %u",
                      cp_net_name(m->net, m->self), block, cp_net_name(m->net, msg->key.from),
                      m->plan.gen);
    }
    cp_msg_free(msg);
    return err;
}

static cp_err send_block(struct cp_member *m, enum cp_msg_type type, int block, int to)
{
    const struct cp_shape *s = &m->job->shape;
    struct cp_key key = {m->self, CP_ANY, CP_ANY, CP_ANY, block};
    size_t weights = (size_t)cp_shape_params(s, block, block) * sizeof(cp_real);
    struct cp_msg *msg;
    CP_TRY(cp_msg_new(&m->msg_mem, type, m->plan.gen, key,
                      type == CP_MSG_BLOCK ? weights : cp_state_bytes(s, block, m->job->optim.kind),
                      &msg));
    if (type == CP_MSG_BLOCK) {
        memcpy(msg->payload, cp_segment_plane(m->stage.seg, block, CP_PLANE_W), weights);
    } else {
        cp_state_pack(m->stage.seg, s, block, m->job->optim.kind, msg->payload);
    }
    return cp_net_send(m->net, to, msg);
}

static cp_err send_report(struct cp_member *m, int round)
{
    const struct cp_part *part = &m->stage.part;
    bool looked = m->stage.stat && m->stage.stat_round == round;
    size_t tail =
        looked ? (size_t)(part->last - part->first + 1) * sizeof(struct cp_gradstat_block) : 0;
    struct cp_net_stats net = cp_net_stats(m->net, m->self);
    struct cp_wire_report r = {
        .busy_s = (double)m->stage.busy_ns * 1e-9,
        .mem_peak_bytes = (int64_t)m->mem.peak_bytes,
        .mem_model_bytes = (int64_t)m->stage.model_bytes,
        .msg_peak_bytes = (int64_t)m->msg_mem.peak_bytes,
        .sent_bytes = net.sent_bytes,
    };
    struct cp_key key = {m->self, CP_ANY, CP_ANY, CP_ANY, CP_ANY};
    struct cp_msg *msg;
    CP_TRY(cp_msg_new(&m->msg_mem, CP_MSG_REPORT, m->plan.gen, key, sizeof r + tail, &msg));
    memcpy(msg->payload, &r, sizeof r);
    if (looked) {
        memcpy((char *)msg->payload + sizeof r, cp_gradstat_blocks(m->stage.stat), tail);
    }
    return cp_net_send(m->net, CP_NODE_EDGE, msg);
}

/* Blocks go up in shape order: own ones are sent, a lead then passes on those of other devices. */
static cp_err send_up(struct cp_member *m, enum cp_msg_type type)
{
    const struct cp_cast *cast = &m->job->cast;
    const struct cp_replica *r = &m->replica;
    for (int block = m->stage.part.first; block <= m->stage.part.last; block++) {
        int carrier = cp_cast_carrier(cast, r, block);
        CP_TRY(send_block(m, type, block, carrier == m->self ? CP_NODE_EDGE : carrier));
    }
    for (int block = 0; leads(m) && block < cp_shape_blocks(&m->job->shape); block++) {
        int owner = cp_replica_owner(r, block);
        if (owner == m->self || cp_cast_carrier(cast, r, block) != m->self) {
            continue;
        }
        struct cp_msg *msg;
        struct cp_key want = {owner, CP_ANY, CP_ANY, CP_ANY, block};
        CP_TRY(cp_net_wait(m->net, m->self, 1u << type, want,
                           cp_deadline_ns(m->job->config->net.wait_s), &msg));
        msg->key.from = m->self;
        CP_TRY(cp_net_send(m->net, CP_NODE_EDGE, msg));
    }
    return CP_OK;
}

static cp_err collect(struct cp_member *m, struct cp_msg *msg)
{
    struct cp_wire_collect c = {0};
    int round = msg->key.round;
    cp_err err = pass_on(m, msg);
    if (err) {
        cp_msg_free(msg);
        return err;
    }
    CP_TRY(cp_wire_take(m->net, m->self, msg, &c, sizeof c));
    CP_TRY(send_up(m, CP_MSG_BLOCK));
    if (c.with_state) {
        CP_TRY(send_up(m, CP_MSG_STATE));
    }
    return send_report(m, round);
}

static cp_err run_step(struct cp_member *m, struct cp_msg *msg)
{
    struct cp_step step = {0};
    struct cp_step_result result;
    CP_TRY(cp_wire_take(m->net, m->self, msg, &step, sizeof step));
    if (!m->stage.seg || step.micros < 1 || step.micros > CP_MICROS_MAX) {
        return cp_fail(CP_E_PROTO, "%s: STEP of %d micro-batches to %s",
                       cp_net_name(m->net, m->self), step.micros,
                       m->stage.seg ? "a stage" : "a stand-by");
    }
    return cp_stage_run(&m->stage, &step, NULL, &result);
}

static cp_err fail_lead(const struct cp_member *m, enum cp_msg_type type)
{
    return cp_fail(CP_E_PROTO, "%s: %s, but it leads no replica in plan %u",
                   cp_net_name(m->net, m->self), cp_msg_name(type), m->plan.gen);
}

static cp_err answer(struct cp_member *m, struct cp_msg *msg)
{
    cp_err err;
    int round = msg->key.round;
    struct cp_wire_train train = {0};
    struct cp_wire_eval eval = {0};
    switch (msg->type) {
    case CP_MSG_PLAN:
        err = take_plan(m, msg);
        cp_msg_free(msg);
        return err;
    case CP_MSG_BLOCK:
        return take_block(m, msg);
    case CP_MSG_STEP:
        return run_step(m, msg);
    case CP_MSG_COLLECT:
        return collect(m, msg);
    case CP_MSG_TRAIN:
        CP_TRY(cp_wire_take(m->net, m->self, msg, &train, sizeof train));
        return leads(m) ? cp_lead_train(m, &train) : fail_lead(m, CP_MSG_TRAIN);
    default: /* EVAL: the wait below admits nothing else */
        CP_TRY(cp_wire_take(m->net, m->self, msg, &eval, sizeof eval));
        return leads(m) ? cp_lead_eval(m, &eval, round) : fail_lead(m, CP_MSG_EVAL);
    }
}

static cp_err loop(struct cp_member *m)
{
    uint32_t types = 1u << CP_MSG_PLAN | 1u << CP_MSG_BLOCK | 1u << CP_MSG_STEP |
                     1u << CP_MSG_COLLECT | 1u << CP_MSG_TRAIN | 1u << CP_MSG_EVAL |
                     1u << CP_MSG_QUIT;
    struct cp_key any = {CP_ANY, CP_ANY, CP_ANY, CP_ANY, CP_ANY};
    for (;;) {
        struct cp_msg *msg;
        CP_TRY(cp_net_wait(m->net, m->self, types, any,
                           cp_deadline_ns(IDLE_ROUNDS * m->job->config->fed.deadline_s), &msg));
        if (msg->type == CP_MSG_QUIT) {
            cp_msg_free(msg);
            return CP_OK;
        }
        CP_TRY(answer(m, msg));
    }
}

cp_err cp_member_run(struct cp_member *m)
{
    cp_err err = loop(m);
    if (err && err != CP_E_STOPPED) {
        const char *text = cp_err_text();
        struct cp_key key = {m->self, CP_ANY, CP_ANY, CP_ANY, (int32_t)err};
        cp_err told = cp_wire_send(m->net, NULL, CP_MSG_FAIL, m->plan.gen, key, CP_NODE_EDGE, text,
                                   strlen(text) + 1);
        if (told) {
            cp_log(CP_LOG_ERROR, "%s: %s", cp_net_name(m->net, m->self), cp_err_text());
        }
    }
    return err;
}
