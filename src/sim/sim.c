/* sim: the virtual clock of one step. */
#include "sim/sim.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

/* One direction of a link: messages leave in the order in which they were sent, so the k-th receive
 * gets the k-th send, as the checker has proved. */
struct channel {
    double *arrive_s; /* [sent] */
    int sent, taken;
    double free_s; /* end of the last transmission */
};

struct stage {
    int at; /* next op */
    double time_s;
    int held;
};

struct run {
    const struct cp_ops *lists;
    const struct cp_sim_costs *costs;
    const struct cp_event_sink *sink;
    struct cp_sim_step out;
    struct stage stage[CP_STAGES_MAX];
    struct channel fwd[CP_STAGES_MAX - 1], bwd[CP_STAGES_MAX - 1]; /* of the link after stage j */
};

static int64_t to_ns(const struct run *r, double time_s)
{
    return r->costs->start_ns + llround(time_s * 1e9);
}

static void emit(struct run *r, int stage, const struct cp_op *op, double t0_s, double t1_s,
                 int64_t bytes, double energy_j)
{
    r->out.energy_j[stage] += energy_j;
    cp_event_put(r->sink, &(struct cp_event){.t0_ns = to_ns(r, t0_s),
                                             .t1_ns = to_ns(r, t1_s),
                                             .node = r->costs->node[stage],
                                             .kind = cp_op_name(op->kind),
                                             .round = r->costs->round,
                                             .step = r->costs->step,
                                             .stage = stage,
                                             .micro = op->micro,
                                             .bytes = bytes,
                                             .energy_j = energy_j});
}

static void compute(struct run *r, int stage, const struct cp_op *op, double seconds, double joules)
{
    struct stage *s = &r->stage[stage];
    double t0_s = s->time_s;
    s->time_s += seconds;
    r->out.busy_s[stage] += seconds;
    emit(r, stage, op, t0_s, s->time_s, 0, joules);
}

/* Only the link is busy; the stage goes on at once. */
static double transmit(struct run *r, int stage, const struct cp_op *op, struct channel *c,
                       double seconds, int64_t bytes, double joules)
{
    double t0_s = fmax(r->stage[stage].time_s, c->free_s);
    c->free_s = t0_s + seconds;
    c->arrive_s[c->sent++] = c->free_s;
    emit(r, stage, op, t0_s, c->free_s, bytes, joules);
    return seconds;
}

static bool receive(struct run *r, int stage, struct channel *c)
{
    if (c->taken == c->sent) {
        return false;
    }
    r->stage[stage].time_s = fmax(r->stage[stage].time_s, c->arrive_s[c->taken++]);
    return true;
}

static void hold(struct run *r, int stage, int change)
{
    r->stage[stage].held += change;
    if (r->stage[stage].held > r->out.in_flight_peak[stage]) {
        r->out.in_flight_peak[stage] = r->stage[stage].held;
    }
}

/* False if the op waits for a message that was not sent yet. */
static bool run_op(struct run *r, int j, const struct cp_op *op, bool train)
{
    const struct cp_sim_costs *k = r->costs;
    switch (op->kind) {
    case CP_OP_RECV_ACT:
        return receive(r, j, &r->fwd[j - 1]);
    case CP_OP_RECV_GRAD:
        return receive(r, j, &r->bwd[j]);
    case CP_OP_FWD:
        hold(r, j, 1);
        compute(r, j, op, k->times.fwd_s[j], k->fwd_j[j]);
        hold(r, j, train ? 0 : -1);
        break;
    case CP_OP_BWD:
        compute(r, j, op, k->times.bwd_s[j], k->bwd_j[j]);
        hold(r, j, -1);
        break;
    case CP_OP_SEND_ACT:
        r->out.link_busy_fwd_s[j] +=
            transmit(r, j, op, &r->fwd[j], k->times.link_fwd_s[j], k->act_bytes, k->send_act_j[j]);
        break;
    case CP_OP_SEND_GRAD:
        r->out.link_busy_bwd_s[j - 1] += transmit(
            r, j, op, &r->bwd[j - 1], k->times.link_bwd_s[j - 1], k->grad_bytes, k->send_grad_j[j]);
        break;
    case CP_OP_STEP: /* the optimizer takes no modelled time */
    case CP_OP_KIND_COUNT:
        break;
    }
    return true;
}

/* Runs every list as far as its messages allow, until all are through or none moves. Times do not
 * depend on whose turn it is: an op's start is a maximum of ends that never change. */
static cp_err run_all(struct run *r, int n)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int j = 0; j < n; j++) {
            const struct cp_ops *list = &r->lists[j];
            bool train = list->n > 0 && list->op[list->n - 1].kind == CP_OP_STEP;
            int *at = &r->stage[j].at;
            while (*at < list->n && run_op(r, j, &list->op[*at], train)) {
                ++*at;
                moved = true;
            }
        }
    }
    for (int j = 0; j < n; j++) {
        const struct cp_ops *list = &r->lists[j];
        int at = r->stage[j].at;
        if (at < list->n) {
            return cp_fail(CP_E_PLAN,
                           "simulation: deadlock, stage %d waits for ever in op %d (%s %d)", j, at,
                           cp_op_name(list->op[at].kind), list->op[at].micro);
        }
    }
    return CP_OK;
}

static void sum_up(struct run *r, int n)
{
    struct cp_sim_step *out = &r->out;
    double busy_s = 0;
    out->n_stages = n;
    for (int j = 0; j < n; j++) {
        out->step_s = fmax(out->step_s, r->stage[j].time_s);
        busy_s += out->busy_s[j];
    }
    out->bubble = out->step_s > 0 ? 1 - busy_s / (n * out->step_s) : 0;
}

cp_err cp_sim_run(const struct cp_ops *lists, int n_stages, const struct cp_sim_costs *costs,
                  const struct cp_event_sink *sink, struct cp_sim_step *out)
{
    assert(n_stages >= 1 && n_stages <= CP_STAGES_MAX);
    struct run r = {.lists = lists, .costs = costs, .sink = sink};
    double *arrivals = NULL;
    size_t longest = 0;
    for (int j = 0; j < n_stages; j++) {
        longest = (size_t)lists[j].n > longest ? (size_t)lists[j].n : longest;
    }
    size_t links = (size_t)n_stages - 1;
    CP_TRY(cp_mem_array(NULL, 2 * links * longest, sizeof *arrivals, &arrivals));
    for (size_t j = 0; j < links; j++) {
        r.fwd[j].arrive_s = arrivals + 2 * j * longest;
        r.bwd[j].arrive_s = r.fwd[j].arrive_s + longest;
    }
    cp_err err = run_all(&r, n_stages);
    cp_mem_free(arrivals);
    CP_TRY(err);
    sum_up(&r, n_stages);
    *out = r.out;
    return CP_OK;
}

cp_err cp_sim_step(const struct cp_ops *lists, int n_stages, const struct cp_times *t,
                   const struct cp_event_sink *sink, struct cp_sim_step *out)
{
    struct cp_sim_costs costs = {.times = *t, .round = -1, .step = -1};
    for (int j = 0; j < CP_STAGES_MAX; j++) {
        snprintf(costs.node[j], sizeof costs.node[j], "stage%d", j);
    }
    return cp_sim_run(lists, n_stages, &costs, sink, out);
}
