#include "pipe/ops.h"

#include <assert.h>
#include <string.h>

static const char *const NAMES[CP_OP_KIND_COUNT] = {
#define X(kind, name) [CP_OP_##kind] = name,
    CP_OP_KINDS(X)
#undef X
};

const char *cp_op_name(enum cp_op_kind kind)
{
    return (unsigned)kind < CP_OP_KIND_COUNT ? NAMES[kind] : "?";
}

int cp_ops_count(int stage, int n_stages, int micros, bool train)
{
    int fwd = 1 + (stage > 0) + (stage < n_stages - 1);
    return train ? 2 * fwd * micros + 1 : fwd * micros;
}

struct writer {
    struct cp_ops *ops;
    bool first, last;
    int slots;
};

static void put(struct writer *w, enum cp_op_kind kind, int micro)
{
    w->ops->op[w->ops->n++] = (struct cp_op){kind, micro, micro < 0 ? -1 : micro % w->slots};
}

static void put_fwd(struct writer *w, int micro)
{
    if (!w->first) {
        put(w, CP_OP_RECV_ACT, micro);
    }
    put(w, CP_OP_FWD, micro);
    if (!w->last) {
        put(w, CP_OP_SEND_ACT, micro);
    }
}

static void put_bwd(struct writer *w, int micro)
{
    if (!w->last) {
        put(w, CP_OP_RECV_GRAD, micro);
    }
    put(w, CP_OP_BWD, micro);
    if (!w->first) {
        put(w, CP_OP_SEND_GRAD, micro);
    }
}

cp_err cp_ops_make(int stage, int n_stages, int micros, int slots, bool train, struct cp_ops *out)
{
    assert(stage >= 0 && stage < n_stages && micros >= 1 && slots >= 1);
    struct cp_ops ops = {0};
    int count = cp_ops_count(stage, n_stages, micros, train);
    CP_TRY(cp_mem_array(NULL, (size_t)count, sizeof ops.op[0], &ops.op));
    struct writer w = {&ops, stage == 0, stage == n_stages - 1, slots};
    int fwd = 0, bwd = 0;
    while (fwd < micros || (train && bwd < micros)) {
        if (fwd < micros && (!train || fwd - bwd < slots)) {
            put_fwd(&w, fwd++);
        } else {
            put_bwd(&w, bwd++);
        }
    }
    if (train) {
        put(&w, CP_OP_STEP, -1);
    }
    assert(ops.n == count);
    *out = ops;
    return CP_OK;
}

void cp_ops_fini(struct cp_ops *o)
{
    cp_mem_free(o->op);
    *o = (struct cp_ops){0};
}

/* --- checker --------------------------------------------------------------------------------- */

static cp_err fail_op(int stage, int i, const struct cp_op *op, const char *why)
{
    return cp_fail(CP_E_PLAN, "stage %d, op %d (%s %d, slot %d): %s", stage, i,
                   cp_op_name(op->kind), op->micro, op->slot, why);
}

/* Whether a stage has ops of this kind at all. */
static bool belongs(enum cp_op_kind kind, bool first, bool last, bool train)
{
    switch (kind) {
    case CP_OP_RECV_ACT:
        return !first;
    case CP_OP_FWD:
        return true;
    case CP_OP_SEND_ACT:
        return !last;
    case CP_OP_RECV_GRAD:
        return train && !last;
    case CP_OP_SEND_GRAD:
        return train && !first;
    case CP_OP_BWD:
    case CP_OP_STEP:
        return train;
    case CP_OP_KIND_COUNT:
        break;
    }
    return false;
}

/* Why the ops up to and with one are wrong, or NULL. done[kind]: how many of each there were. */
static const char *find_misuse(const int *done, bool first, bool last, int slots, bool train)
{
    int recv_act = done[CP_OP_RECV_ACT], fwd = done[CP_OP_FWD], send_act = done[CP_OP_SEND_ACT];
    int recv_grad = done[CP_OP_RECV_GRAD], bwd = done[CP_OP_BWD], send_grad = done[CP_OP_SEND_GRAD];
    if (bwd > fwd) {
        return "a backward comes before its forward";
    }
    if ((!first && fwd > recv_act) || (!last && bwd > recv_grad)) {
        return "it uses what was not received before";
    }
    if (send_act > fwd || send_grad > bwd) {
        return "it sends what was not made before";
    }
    int held = first ? fwd : recv_act, freed = train ? bwd : last ? fwd : send_act;
    if (held - freed > slots) {
        return "more micro-batches in flight than slots";
    }
    if ((!first && recv_act - fwd > 1) || (!last && fwd - send_act > 1) ||
        (!last && recv_grad - bwd > 1) || (!first && bwd - send_grad > 1)) {
        return "its boundary tensor still holds the micro-batch before";
    }
    return NULL;
}

/* Order, completeness and slots of one list. Complete, since the number of ops is right and no
 * kind has more than its share. */
static cp_err check_list(const struct cp_ops *o, int stage, int n_stages, int micros, int slots,
                         bool train)
{
    bool first = stage == 0, last = stage == n_stages - 1;
    int done[CP_OP_KIND_COUNT] = {0};
    if (o->n != cp_ops_count(stage, n_stages, micros, train)) {
        return cp_fail(CP_E_PLAN, "stage %d has %d ops, %d are needed for %d micro-batches", stage,
                       o->n, cp_ops_count(stage, n_stages, micros, train), micros);
    }
    for (int i = 0; i < o->n; i++) {
        const struct cp_op *op = &o->op[i];
        if (!belongs(op->kind, first, last, train)) {
            return fail_op(stage, i, op, "this stage has no ops of this kind");
        }
        if (op->kind == CP_OP_STEP) {
            if (i != o->n - 1) {
                return fail_op(stage, i, op, "the step comes before its last backward");
            }
            if (op->micro != -1 || op->slot != -1) {
                return fail_op(stage, i, op, "a step has no micro-batch and no slot");
            }
            continue;
        }
        if (op->micro != done[op->kind]++) {
            return fail_op(stage, i, op, "micro-batches are not in ascending order");
        }
        if (op->micro >= micros) {
            return fail_op(stage, i, op, "the step has no such micro-batch");
        }
        if (op->slot != op->micro % slots) {
            return fail_op(stage, i, op, "wrong slot");
        }
        const char *why = find_misuse(done, first, last, slots, train);
        if (why) {
            return fail_op(stage, i, op, why);
        }
    }
    return CP_OK;
}

cp_err cp_ops_check(const struct cp_ops *lists, int n_stages, int micros, const int *slots,
                    bool train)
{
    int *at = NULL, *acts, *grads; /* next op; messages on the link after each stage */
    for (int j = 0; j < n_stages; j++) {
        CP_TRY(check_list(&lists[j], j, n_stages, micros, slots[j], train));
    }
    CP_TRY(cp_mem_array(NULL, 3 * (size_t)n_stages, sizeof *at, &at));
    acts = at + n_stages;
    grads = acts + n_stages;
    bool moved = true;
    while (moved) {
        moved = false;
        for (int j = 0; j < n_stages; j++) {
            for (; at[j] < lists[j].n; at[j]++, moved = true) {
                enum cp_op_kind kind = lists[j].op[at[j]].kind;
                if ((kind == CP_OP_RECV_ACT && acts[j - 1] == 0) ||
                    (kind == CP_OP_RECV_GRAD && grads[j] == 0)) {
                    break;
                }
                if (kind == CP_OP_RECV_ACT) {
                    acts[j - 1]--;
                } else if (kind == CP_OP_SEND_ACT) {
                    acts[j]++;
                } else if (kind == CP_OP_RECV_GRAD) {
                    grads[j]--;
                } else if (kind == CP_OP_SEND_GRAD) {
                    grads[j - 1]++;
                }
            }
        }
    }
    cp_err err = CP_OK;
    for (int j = 0; j < n_stages && !err; j++) {
        if (at[j] < lists[j].n) {
            err = fail_op(j, at[j], &lists[j].op[at[j]],
                          "deadlock: what it waits for never comes (slots must not increase along "
                          "the pipeline)");
        }
    }
    cp_mem_free(at);
    return err;
}
