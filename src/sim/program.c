#include "sim/program.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct instr {
    uint8_t kind; /* enum cp_op_kind */
    uint8_t stage;
    int32_t micro;   /* for events */
    int32_t message; /* of a send or receive: index into arrive_s */
};

struct cp_program {
    int n_stages, n;
    int in_flight_peak[CP_STAGES_MAX];
    struct instr *op;
    double *arrive_s; /* [messages of a step] */
};

/* --- making ---------------------------------------------------------------------------------- */

/* One direction of a link while the lists are walked. */
struct channel {
    int first; /* message */
    int sent, taken;
};

struct walk {
    struct cp_program *p;
    const struct cp_ops *list;
    struct channel fwd[CP_STAGES_MAX], bwd[CP_STAGES_MAX]; /* of the link after stage j */
    int at[CP_STAGES_MAX];                                 /* next op */
    int held[CP_STAGES_MAX];
};

static void hold(struct walk *w, int j, int change)
{
    w->held[j] += change;
    if (w->held[j] > w->p->in_flight_peak[j]) {
        w->p->in_flight_peak[j] = w->held[j];
    }
}

/* The message of an op; false if it waits for one that was not sent yet. */
static bool take_message(struct channel *c, bool send, int32_t *message)
{
    if (!send && c->taken == c->sent) {
        return false;
    }
    *message = c->first + (send ? c->sent++ : c->taken++);
    return true;
}

/* Writes the next op of stage j; false if it must wait. train: forwards are held until their
 * backward. */
static bool put(struct walk *w, int j, bool train)
{
    const struct cp_op *op = &w->list[j].op[w->at[j]];
    struct instr in = {.kind = (uint8_t)op->kind, .stage = (uint8_t)j, .micro = op->micro};
    bool ready = true;
    switch (op->kind) {
    case CP_OP_RECV_ACT:
        ready = take_message(&w->fwd[j - 1], false, &in.message);
        break;
    case CP_OP_RECV_GRAD:
        ready = take_message(&w->bwd[j], false, &in.message);
        break;
    case CP_OP_SEND_ACT:
        ready = take_message(&w->fwd[j], true, &in.message);
        break;
    case CP_OP_SEND_GRAD:
        ready = take_message(&w->bwd[j - 1], true, &in.message);
        break;
    case CP_OP_FWD:
        hold(w, j, 1);
        hold(w, j, train ? 0 : -1);
        break;
    case CP_OP_BWD:
        hold(w, j, -1);
        break;
    case CP_OP_STEP: /* the optimizer takes no modelled time */
    case CP_OP_KIND_COUNT:
        return true;
    }
    if (ready) {
        w->p->op[w->p->n++] = in;
    }
    return ready;
}

/* Walks every list as far as its messages allow, until all are through or none moves. */
static cp_err walk(struct walk *w)
{
    int n = w->p->n_stages;
    for (bool moved = true; moved;) {
        moved = false;
        for (int j = 0; j < n; j++) {
            const struct cp_ops *list = &w->list[j];
            bool train = list->n > 0 && list->op[list->n - 1].kind == CP_OP_STEP;
            while (w->at[j] < list->n && put(w, j, train)) {
                w->at[j]++;
                moved = true;
            }
        }
    }
    for (int j = 0; j < n; j++) {
        int at = w->at[j];
        if (at < w->list[j].n) {
            return cp_fail(CP_E_PLAN,
                           "simulation: deadlock, stage %d waits for ever in op %d (%s %d)", j, at,
                           cp_op_name(w->list[j].op[at].kind), w->list[j].op[at].micro);
        }
    }
    return CP_OK;
}

static int count(const struct cp_ops *list, enum cp_op_kind kind)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        n += list->op[i].kind == kind;
    }
    return n;
}

cp_err cp_program_make(const struct cp_ops *lists, int n_stages, struct cp_program **out)
{
    assert(n_stages >= 1 && n_stages <= CP_STAGES_MAX);
    struct walk w = {.list = lists};
    size_t ops = 0;
    int messages = 0;
    for (int j = 0; j < n_stages; j++) {
        ops += (size_t)lists[j].n;
        w.fwd[j].first = messages;
        messages += count(&lists[j], CP_OP_SEND_ACT);
        if (j + 1 < n_stages) {
            w.bwd[j].first = messages;
            messages += count(&lists[j + 1], CP_OP_SEND_GRAD);
        }
    }
    size_t head = cp_arena_round(sizeof *w.p), body = cp_arena_round(ops * sizeof *w.p->op);
    char *base = NULL;
    CP_TRY(cp_mem_new(NULL, head + body + (size_t)messages * sizeof *w.p->arrive_s, &base));
    w.p = (struct cp_program *)(void *)base;
    w.p->n_stages = n_stages;
    w.p->op = (struct instr *)(void *)(base + head);
    w.p->arrive_s = (double *)(void *)(base + head + body);
    cp_err err = walk(&w);
    if (err) {
        cp_program_free(w.p);
        return err;
    }
    *out = w.p;
    return CP_OK;
}

void cp_program_free(struct cp_program *p)
{
    cp_mem_free(p);
}

/* --- running --------------------------------------------------------------------------------- */

struct clock {
    const struct cp_sim_costs *costs;
    const struct cp_event_sink *sink;
    double stage_s[CP_STAGES_MAX];
    double fwd_free_s[CP_STAGES_MAX], bwd_free_s[CP_STAGES_MAX]; /* end of the last transmission */
};

/* fmax without a call: there are no NaN here. */
static inline double later_s(double a_s, double b_s)
{
    return a_s > b_s ? a_s : b_s;
}

static int64_t to_ns(const struct clock *k, double time_s)
{
    return k->costs->start_ns + llround(time_s * 1e9);
}

static void emit(const struct clock *k, const struct instr *in, double t0_s, double t1_s,
                 int64_t bytes, double energy_j)
{
    cp_event_put(k->sink, &(struct cp_event){.t0_ns = to_ns(k, t0_s),
                                             .t1_ns = to_ns(k, t1_s),
                                             .node = k->costs->node[in->stage],
                                             .kind = cp_op_name((enum cp_op_kind)in->kind),
                                             .round = k->costs->round,
                                             .step = k->costs->step,
                                             .stage = in->stage,
                                             .micro = in->micro,
                                             .bytes = bytes,
                                             .energy_j = energy_j});
}

static void compute(struct clock *k, const struct instr *in, double time_s, double energy_j,
                    struct cp_sim_step *out)
{
    int j = in->stage;
    double t0_s = k->stage_s[j];
    k->stage_s[j] = t0_s + time_s;
    out->busy_s[j] += time_s;
    out->energy_j[j] += energy_j;
    if (k->sink) {
        emit(k, in, t0_s, k->stage_s[j], 0, energy_j);
    }
}

/* Only the link is busy; the stage goes on at once. free_s: of the link's direction. */
static double transmit(struct clock *k, const struct instr *in, double *free_s, double time_s,
                       int64_t bytes, double energy_j, struct cp_sim_step *out)
{
    int j = in->stage;
    double t0_s = later_s(k->stage_s[j], *free_s);
    *free_s = t0_s + time_s;
    out->energy_j[j] += energy_j;
    if (k->sink) {
        emit(k, in, t0_s, *free_s, bytes, energy_j);
    }
    return *free_s;
}

static void run_instr(struct clock *k, const struct instr *in, double *arrive_s,
                      struct cp_sim_step *out)
{
    const struct cp_sim_costs *c = k->costs;
    int j = in->stage;
    switch ((enum cp_op_kind)in->kind) {
    case CP_OP_RECV_ACT:
    case CP_OP_RECV_GRAD:
        k->stage_s[j] = later_s(k->stage_s[j], arrive_s[in->message]);
        break;
    case CP_OP_FWD:
        compute(k, in, c->times.fwd_s[j], c->fwd_j[j], out);
        break;
    case CP_OP_BWD:
        compute(k, in, c->times.bwd_s[j], c->bwd_j[j], out);
        break;
    case CP_OP_SEND_ACT:
        arrive_s[in->message] = transmit(k, in, &k->fwd_free_s[j], c->times.link_fwd_s[j],
                                         c->act_bytes[j], c->send_act_j[j], out);
        out->link_busy_fwd_s[j] += c->times.link_fwd_s[j];
        break;
    case CP_OP_SEND_GRAD:
        arrive_s[in->message] = transmit(k, in, &k->bwd_free_s[j - 1], c->times.link_bwd_s[j - 1],
                                         c->grad_bytes[j], c->send_grad_j[j], out);
        out->link_busy_bwd_s[j - 1] += c->times.link_bwd_s[j - 1];
        break;
    case CP_OP_STEP:
    case CP_OP_KIND_COUNT:
        break;
    }
}

void cp_program_run(struct cp_program *p, const struct cp_sim_costs *costs,
                    const struct cp_event_sink *sink, struct cp_sim_step *out)
{
    struct clock k = {.costs = costs, .sink = sink};
    double busy_s = 0;
    *out = (struct cp_sim_step){.n_stages = p->n_stages};
    for (int i = 0; i < p->n; i++) {
        run_instr(&k, &p->op[i], p->arrive_s, out);
    }
    for (int j = 0; j < p->n_stages; j++) {
        out->in_flight_peak[j] = p->in_flight_peak[j];
        out->step_s = fmax(out->step_s, k.stage_s[j]);
        busy_s += out->busy_s[j];
    }
    out->bubble = out->step_s > 0 ? 1 - busy_s / (p->n_stages * out->step_s) : 0;
}

/* --- the ones made before -------------------------------------------------------------------- */

enum { SLOTS = 1024, OPS_MOST = 4 << 20 }; /* of the table; of all programs: about 90 MB */

struct key {
    int32_t n_stages, micro_batches, slots[CP_STAGES_MAX];
};

struct cp_programs {
    struct entry {
        struct key key; /* n_stages 0: free */
        struct cp_program *program;
    } entry[SLOTS];
    int n, ops;
};

cp_err cp_programs_new(struct cp_programs **out)
{
    return cp_mem_new(NULL, sizeof **out, out);
}

static void forget(struct cp_programs *all)
{
    for (int i = 0; i < SLOTS; i++) {
        cp_program_free(all->entry[i].program);
    }
    *all = (struct cp_programs){0};
}

void cp_programs_free(struct cp_programs *all)
{
    if (all) {
        forget(all);
        cp_mem_free(all);
    }
}

static struct key key_of(int n_stages, int micro_batches, const int *slots)
{
    struct key k = {.n_stages = n_stages, .micro_batches = micro_batches};
    for (int j = 0; j < n_stages; j++) {
        k.slots[j] = slots[j];
    }
    return k;
}

/* FNV-1a over the numbers. */
static uint32_t hash(const struct key *k)
{
    uint32_t h = 2166136261u;
    h = (h ^ (uint32_t)k->micro_batches) * 16777619u;
    for (int j = 0; j < k->n_stages; j++) {
        h = (h ^ (uint32_t)k->slots[j]) * 16777619u;
    }
    return h ^ h >> 15;
}

/* The entry of a key, or the free one where it belongs: there always is one. */
static struct entry *look_up(struct cp_programs *all, const struct key *k)
{
    for (uint32_t i = hash(k);; i++) {
        struct entry *e = &all->entry[i % SLOTS];
        if (e->key.n_stages == 0 || memcmp(&e->key, k, sizeof *k) == 0) {
            return e;
        }
    }
}

static cp_err make_from_slots(const struct key *k, struct cp_program **out)
{
    struct cp_ops lists[CP_STAGES_MAX] = {{0}};
    cp_err err = CP_OK;
    for (int j = 0; j < k->n_stages && !err; j++) {
        err = cp_ops_make(j, k->n_stages, k->micro_batches, k->slots[j], true, &lists[j]);
    }
    if (!err) {
        err = cp_program_make(lists, k->n_stages, out);
    }
    for (int j = 0; j < k->n_stages; j++) {
        cp_ops_fini(&lists[j]);
    }
    return err;
}

cp_err cp_programs_find(struct cp_programs *all, int n_stages, int micro_batches, const int *slots,
                        struct cp_program **out)
{
    struct key k = key_of(n_stages, micro_batches, slots);
    struct entry *e = look_up(all, &k);
    if (e->key.n_stages == 0) {
        struct cp_program *fresh;
        CP_TRY(make_from_slots(&k, &fresh));
        if (all->n == SLOTS / 2 || fresh->n > OPS_MOST - all->ops) {
            forget(all);
            e = look_up(all, &k);
        }
        *e = (struct entry){k, fresh};
        all->n++;
        all->ops += fresh->n;
    }
    *out = e->program;
    return CP_OK;
}
