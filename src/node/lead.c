/*
 * lead: what only the node of a replica's first stage does: it draws the batches and announces
 * every step to the other stages with its own count of micro-batches. In a pipeline that is the
 * control unit, in full and split each used device.
 */
#include "base/log.h"
#include "node/member.h"

/* Announces a step to the other stages and runs this node's part of it. */
static cp_err run_step(struct cp_member *m, const struct cp_step *step,
                       struct cp_step_result *result)
{
    const struct cp_part *part = &m->stage.part;
    struct cp_key key = {m->self, step->round, step->step, CP_ANY, CP_ANY};
    for (int j = 1; j < part->n_stages; j++) {
        CP_TRY(cp_wire_send(m->net, &m->msg_mem, CP_MSG_STEP, m->plan.gen, key, part->node[j], step,
                            sizeof *step));
    }
    return cp_stage_run(&m->stage, step, m->feed.micro, result);
}

static cp_err send_progress(struct cp_member *m, int round, const struct cp_wire_progress *p)
{
    struct cp_key key = {m->self, round, p->done - 1, CP_ANY, CP_ANY};
    return cp_wire_send(m->net, &m->msg_mem, CP_MSG_PROGRESS, m->plan.gen, key, CP_NODE_EDGE, p,
                        sizeof *p);
}

static cp_err train_step(struct cp_member *m, int round, int h, struct cp_wire_progress *p)
{
    const struct cp_job *job = m->job;
    int64_t global = (int64_t)round * job->config->train.local_steps + h;
    int64_t every = job->config->train.estimate_every;
    struct cp_step_result result = {0};
    struct cp_step step = {.round = round,
                           .step = h,
                           .global_step = (uint32_t)global,
                           .micros = m->feed.micros,
                           .labelled = m->feed.labelled,
                           .lr = cp_job_lr(job, global),
                           .seed = job->seed,
                           .train = true,
                           .measure = every > 0 && h % every == 0};
    if (step.labelled > 0) {
        CP_TRY(run_step(m, &step, &result));
    } else if (m->feed.n > 0) { /* else there were fewer samples than replicas */
        cp_log(CP_LOG_WARN, "%s: none of the %lld samples of step %d has a label, no step is made",
               cp_net_name(m->net, m->self), (long long)m->feed.n, h + 1);
    }
    *p = (struct cp_wire_progress){
        .done = h + 1,
        .steps = (int32_t)job->config->train.local_steps,
        .samples = m->feed.n,
        .loss_sum = result.head.loss_sum,
        .grad_norm = result.grad_norm,
        .labelled = result.head.labelled,
        .correct = result.head.correct,
        .cursor = cp_feed_cursor(&m->feed),
    };
    return CP_OK;
}

static cp_err draw_step(struct cp_member *m)
{
    return cp_feed_train(&m->feed, m->plan.cluster[m->cluster].micro_batches, m->replica.index,
                         m->replica.of);
}

/* The first micro-batch of the round once more, at the weights of its end: its gradient tells how
 * smooth the loss is (model/gradstat.h). No step is made of it; the feed is left where that was. */
static cp_err repeat_first(struct cp_member *m, const struct cp_wire_train *t)
{
    const struct cp_job *job = m->job;
    struct cp_step_result result;
    cp_err err = CP_OK;
    CP_TRY(cp_feed_seek(&m->feed, t->cursor));
    CP_TRY(draw_step(m));
    int steps = (int)job->config->train.local_steps;
    struct cp_step step = {.round = t->round,
                           .step = steps, /* a key of its own */
                           .global_step = (uint32_t)((int64_t)t->round * steps),
                           .micros = 1,
                           .labelled = m->feed.labelled,
                           .seed = job->seed,
                           .train = true,
                           .repeat = true};
    if (step.labelled > 0) {
        err = run_step(m, &step, &result);
    }
    return err == CP_E_NONFINITE ? CP_OK : err; /* training has not come to this */
}

cp_err cp_lead_train(struct cp_member *m, const struct cp_wire_train *t)
{
    const struct cp_job *job = m->job;
    int64_t steps = job->config->train.local_steps;
    CP_TRY(cp_feed_seek(&m->feed, t->cursor));
    if (m->feed.batcher.n == 0) {
        struct cp_wire_progress p = {.cursor = t->cursor};
        cp_log(CP_LOG_WARN, "%s has no samples and sits this round out",
               cp_net_name(m->net, m->self));
        return send_progress(m, t->round, &p);
    }
    for (int h = 0; h < steps; h++) {
        struct cp_wire_progress p;
        CP_TRY(draw_step(m));
        CP_TRY(train_step(m, t->round, h, &p));
        if (h == steps - 1 && job->config->train.estimate_every > 0) {
            CP_TRY(repeat_first(m, t));
        }
        CP_TRY(send_progress(m, t->round, &p));
    }
    return CP_OK;
}

cp_err cp_lead_eval(struct cp_member *m, const struct cp_wire_eval *e, int round)
{
    const struct cp_job *job = m->job;
    struct cp_wire_score score = {0};
    int64_t chunk = (int64_t)CP_EVAL_MICROS * cp_job_micro_max(job);
    if (e->first < 0 || e->count < 0 || e->count > job->heldout.n - e->first) {
        return cp_fail(CP_E_PROTO, "%s: evaluation of samples %lld..%lld, there are %lld",
                       cp_net_name(m->net, m->self), (long long)e->first,
                       (long long)(e->first + e->count), (long long)job->heldout.n);
    }
    for (int64_t at = 0, k = 0; at < e->count; at += chunk, k++) {
        struct cp_step_result result;
        cp_feed_eval(&m->feed, e->first + at, e->count - at < chunk ? e->count - at : chunk);
        /* Steps of an evaluation count down from -2: no training step has such a key. */
        struct cp_step step = {.round = round,
                               .step = (int32_t)(-2 - k),
                               .micros = m->feed.micros,
                               .labelled = m->feed.labelled,
                               .seed = job->seed};
        CP_TRY(run_step(m, &step, &result));
        score.loss_sum += result.head.loss_sum;
        score.labelled += result.head.labelled;
        score.correct += result.head.correct;
    }
    struct cp_key key = {m->self, round, CP_ANY, CP_ANY, CP_ANY};
    return cp_wire_send(m->net, &m->msg_mem, CP_MSG_SCORE, m->plan.gen, key, CP_NODE_EDGE, &score,
                        sizeof score);
}
