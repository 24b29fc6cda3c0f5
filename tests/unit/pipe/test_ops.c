/* ops: the lists, and that the checker accepts exactly the right ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"
#include "unit/pipe/lists.h"

#include <string.h>

enum { STAGES = 5, MICROS = 6, OPS = 6 * MICROS + 1 };

/* "<0 F0 >0 ..." : receive, compute and send; ( ) for gradients. */
static void text_of(const struct cp_ops *o, struct cp_str *out)
{
    static const char *const FORMS[CP_OP_KIND_COUNT] = {"<%d ", "F%d ", ">%d ", ")%d ",
                                                        "B%d ", "(%d ", "S"};
    for (int i = 0; i < o->n; i++) {
        cp_str_printf(out, FORMS[o->op[i].kind], o->op[i].micro);
    }
}

static void assert_list(int stage, int n, int micros, int slots, bool train, const char *want)
{
    struct cp_ops o;
    struct cp_str text = {0};
    assert_int_equal(cp_ops_make(stage, n, micros, slots, train, &o), CP_OK);
    text_of(&o, &text);
    assert_string_equal(cp_str_text(&text), want);
    for (int i = 0; i < o.n; i++) {
        int micro = o.op[i].micro;
        assert_int_equal(o.op[i].slot, micro < 0 ? -1 : micro % slots);
    }
    cp_str_fini(&text);
    cp_ops_fini(&o);
}

static void test_lists_written_by_hand(void **state)
{
    (void)state;
    /* sequential, 1F1B and GPipe differ in the slots alone */
    assert_list(1, 3, 2, 1, true, "<0 F0 >0 )0 B0 (0 <1 F1 >1 )1 B1 (1 S");
    assert_list(1, 3, 2, 2, true, "<0 F0 >0 <1 F1 >1 )0 B0 (0 )1 B1 (1 S");
    assert_list(0, 3, 4, 3, true, "F0 >0 F1 >1 F2 >2 )0 B0 F3 >3 )1 B1 )2 B2 )3 B3 S");
    assert_list(2, 3, 2, 1, true, "<0 F0 B0 (0 <1 F1 B1 (1 S");
    /* one stage is first and last: nobody to talk to */
    assert_list(0, 1, 3, 2, true, "F0 F1 B0 F2 B1 B2 S");
    /* fewer micro-batches than slots and stages */
    assert_list(0, 5, 1, 5, true, "F0 >0 )0 B0 S");
    /* evaluation: forwards only, whatever the slots */
    assert_list(0, 2, 3, 1, false, "F0 >0 F1 >1 F2 >2 ");
    assert_list(1, 3, 2, 2, false, "<0 F0 >0 <1 F1 >1 ");
    assert_list(1, 2, 2, 1, false, "<0 F0 <1 F1 ");
    assert_list(0, 1, 2, 1, false, "F0 F1 ");
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(cp_op_name(CP_OP_RECV_ACT), "RECV_ACT");
    assert_string_equal(cp_op_name(CP_OP_STEP), "STEP");
    assert_string_equal(cp_op_name(CP_OP_KIND_COUNT), "?");
    assert_string_equal(cp_op_name((enum cp_op_kind) - 1), "?");
}

/* Every pipeline of at most 5 stages and 6 micro-batches whose slots do not increase is proved. */
static void test_non_increasing_slots_pass(void **state)
{
    (void)state;
    int cases = 0;
    for (int micros = 1; micros <= MICROS; micros++) {
        for (int n = 1; n <= STAGES; n++) {
            int slots[STAGES] = {1, 1, 1, 1, 1};
            do {
                if (slots_increase(slots, n)) {
                    continue;
                }
                struct cp_ops lists[STAGES];
                for (int train = 0; train <= 1; train++) {
                    lists_make(lists, n, micros, slots, train);
                    assert_int_equal(cp_ops_check(lists, n, micros, slots, train), CP_OK);
                    lists_fini(lists, n);
                }
                cases++;
            } while (slots_next(slots, n, micros));
        }
    }
    assert_int_equal(cases, 917);
}

/* The claim of the design: over all cases with at most 4 stages and 5 micro-batches, a deadlock
 * occurs exactly when some stage has more slots than the one before it. */
static void test_deadlock_exactly_if_slots_increase(void **state)
{
    (void)state;
    int cases = 0, deadlocks = 0;
    for (int micros = 1; micros <= 5; micros++) {
        for (int n = 1; n <= 4; n++) {
            int slots[STAGES] = {1, 1, 1, 1, 1};
            do {
                struct cp_ops lists[STAGES];
                lists_make(lists, n, micros, slots, true);
                cp_err err = cp_ops_check(lists, n, micros, slots, true);
                assert_int_equal(err, slots_increase(slots, n) ? CP_E_PLAN : CP_OK);
                if (err) {
                    assert_non_null(strstr(cp_err_text(), "deadlock"));
                    deadlocks++;
                }
                /* without backwards there is nothing to wait for in a circle */
                lists_fini(lists, n);
                lists_make(lists, n, micros, slots, false);
                assert_int_equal(cp_ops_check(lists, n, micros, slots, false), CP_OK);
                lists_fini(lists, n);
                cases++;
            } while (slots_next(slots, n, micros));
        }
    }
    assert_int_equal(cases, 1274);
    assert_int_equal(deadlocks, 1274 - 246);
}

static void test_deadlock_is_named(void **state)
{
    (void)state;
    struct cp_ops lists[3];
    const int slots[3] = {3, 1, 2};
    lists_make(lists, 3, 4, slots, true);
    assert_int_equal(cp_ops_check(lists, 3, 4, slots, true), CP_E_PLAN);
    /* stage 1 wants the gradient of 0, stage 2 wants a second activation first: stage 0 sees it as
     * a gradient that does not come */
    assert_non_null(strstr(cp_err_text(), "stage 0, op 6 (RECV_GRAD 0, slot 0): deadlock"));
    lists_fini(lists, 3);
}

/* --- an oracle by positions, to hold against the checker --------------------------------- */

struct places {
    int at[CP_OP_KIND_COUNT][MICROS + 2]; /* -1: nowhere */
};

static bool place_ops(const struct cp_ops *o, int micros, int slots, struct places *p)
{
    memset(p, 0xff, sizeof *p);
    for (int i = 0; i < o->n; i++) {
        const struct cp_op *op = &o->op[i];
        bool step = op->kind == CP_OP_STEP;
        int micro = step ? 0 : op->micro;
        if ((unsigned)op->kind >= CP_OP_KIND_COUNT || micro < 0 || micro >= micros ||
            p->at[op->kind][micro] >= 0 || (step && (op->micro != -1 || op->slot != -1)) ||
            (!step && op->slot != micro % slots)) {
            return false;
        }
        p->at[op->kind][micro] = i;
    }
    return true;
}

/* Both are there, in this order. */
static bool before(const struct places *p, enum cp_op_kind a, int ma, enum cp_op_kind b, int mb)
{
    return p->at[a][ma] >= 0 && p->at[b][mb] >= 0 && p->at[a][ma] < p->at[b][mb];
}

static bool list_is_right(const struct cp_ops *o, int j, int n, int micros, int slots, bool train,
                          struct places *p)
{
    bool first = j == 0, last = j == n - 1;
    enum cp_op_kind enters = first ? CP_OP_FWD : CP_OP_RECV_ACT;
    enum cp_op_kind leaves = train ? CP_OP_BWD : last ? CP_OP_FWD : CP_OP_SEND_ACT;
    if (o->n != cp_ops_count(j, n, micros, train) || !place_ops(o, micros, slots, p)) {
        return false;
    }
    bool ok = p->at[CP_OP_FWD][0] >= 0 && (!train || p->at[CP_OP_STEP][0] == o->n - 1);
    for (int m = 0; m < micros; m++) {
        bool more = m + 1 < micros;
        ok = ok && (!more || before(p, CP_OP_FWD, m, CP_OP_FWD, m + 1));
        ok = ok && (first || before(p, CP_OP_RECV_ACT, m, CP_OP_FWD, m));
        ok = ok && (last || before(p, CP_OP_FWD, m, CP_OP_SEND_ACT, m));
        ok = ok && (first || !more || before(p, CP_OP_FWD, m, CP_OP_RECV_ACT, m + 1));
        ok = ok && (last || !more || before(p, CP_OP_SEND_ACT, m, CP_OP_FWD, m + 1));
        ok = ok &&
             (m + slots >= micros || enters == leaves || before(p, leaves, m, enters, m + slots));
        if (train) {
            ok = ok && before(p, CP_OP_FWD, m, CP_OP_BWD, m);
            ok = ok && (!more || before(p, CP_OP_BWD, m, CP_OP_BWD, m + 1));
            ok = ok && (last || before(p, CP_OP_RECV_GRAD, m, CP_OP_BWD, m));
            ok = ok && (first || before(p, CP_OP_BWD, m, CP_OP_SEND_GRAD, m));
            ok = ok && (last || !more || before(p, CP_OP_BWD, m, CP_OP_RECV_GRAD, m + 1));
            ok = ok && (first || !more || before(p, CP_OP_SEND_GRAD, m, CP_OP_BWD, m + 1));
        }
    }
    return ok;
}

/* Depth first over "needs": a circle is a deadlock. state: 0 new, 1 open, 2 done. */
static bool reaches_itself(const struct cp_ops *lists, const struct places *p, int j, int i,
                           char state[STAGES][OPS])
{
    if (state[j][i]) {
        return state[j][i] == 1;
    }
    state[j][i] = 1;
    const struct cp_op *op = &lists[j].op[i];
    bool circle = i > 0 && reaches_itself(lists, p, j, i - 1, state);
    if (op->kind == CP_OP_RECV_ACT && !circle) {
        circle = reaches_itself(lists, p, j - 1, p[j - 1].at[CP_OP_SEND_ACT][op->micro], state);
    } else if (op->kind == CP_OP_RECV_GRAD && !circle) {
        circle = reaches_itself(lists, p, j + 1, p[j + 1].at[CP_OP_SEND_GRAD][op->micro], state);
    }
    state[j][i] = 2;
    return circle;
}

static bool lists_are_right(const struct cp_ops *lists, int n, int micros, const int *slots,
                            bool train)
{
    struct places p[STAGES];
    char state[STAGES][OPS] = {{0}};
    for (int j = 0; j < n; j++) {
        if (!list_is_right(&lists[j], j, n, micros, slots[j], train, &p[j])) {
            return false;
        }
    }
    for (int j = 0; j < n; j++) {
        if (lists[j].n > 0 && reaches_itself(lists, p, j, lists[j].n - 1, state)) {
            return false;
        }
    }
    return true;
}

struct tally {
    int right, wrong;
};

static void compare(const struct cp_ops *lists, int n, int micros, const int *slots, bool train,
                    struct tally *t)
{
    bool right = lists_are_right(lists, n, micros, slots, train);
    cp_err err = cp_ops_check(lists, n, micros, slots, train);
    assert_int_equal(err, right ? CP_OK : CP_E_PLAN);
    t->right += right;
    t->wrong += !right;
}

/* Any two ops of a stage exchanged. */
static void swap_all(struct cp_ops *lists, int n, int micros, const int *slots, bool train,
                     struct tally *t)
{
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < lists[j].n; i++) {
            for (int k = i + 1; k < lists[j].n; k++) {
                struct cp_op a = lists[j].op[i], b = lists[j].op[k];
                lists[j].op[i] = b;
                lists[j].op[k] = a;
                compare(lists, n, micros, slots, train, t);
                lists[j].op[i] = a;
                lists[j].op[k] = b;
            }
        }
    }
}

/* Any op replaced by any other thinkable one: never right. */
static void replace_all(struct cp_ops *lists, int n, int micros, const int *slots, bool train)
{
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < lists[j].n; i++) {
            struct cp_op keep = lists[j].op[i], op = {0};
            for (int kind = -1; kind <= CP_OP_KIND_COUNT; kind++) {
                op.kind = (enum cp_op_kind)kind;
                for (op.micro = -1; op.micro <= micros; op.micro++) {
                    for (op.slot = -1; op.slot <= slots[j]; op.slot++) {
                        if (op.kind == keep.kind && op.micro == keep.micro &&
                            op.slot == keep.slot) {
                            continue;
                        }
                        lists[j].op[i] = op;
                        assert_int_equal(cp_ops_check(lists, n, micros, slots, train), CP_E_PLAN);
                    }
                }
            }
            lists[j].op[i] = keep;
        }
    }
}

static void test_every_swap_and_replacement(void **state)
{
    (void)state;
    struct tally swaps = {0};
    for (int micros = 1; micros <= 3; micros++) {
        for (int n = 1; n <= 3; n++) {
            int slots[STAGES] = {1, 1, 1, 1, 1};
            do {
                for (int train = 0; train <= 1 && !slots_increase(slots, n); train++) {
                    struct cp_ops lists[STAGES];
                    struct tally whole = {0};
                    lists_make(lists, n, micros, slots, train);
                    compare(lists, n, micros, slots, train, &whole);
                    assert_int_equal(whole.right, 1);
                    swap_all(lists, n, micros, slots, train, &swaps);
                    replace_all(lists, n, micros, slots, train);
                    lists_fini(lists, n);
                }
            } while (slots_next(slots, n, micros));
        }
    }
    /* few swaps are harmless, as a receive moved before the send that stood ahead of it */
    assert_true(swaps.right > 0 && swaps.wrong > 20 * swaps.right);
}

/* --- the sentences ----------------------------------------------------------------------- */

struct broken {
    struct cp_ops lists[3];
    int slots[3];
    int micros;
    bool train;
};

static void broken_make(struct broken *b)
{
    *b = (struct broken){.slots = {3, 2, 1}, .micros = 3, .train = true};
    lists_make(b->lists, 3, b->micros, b->slots, true);
}

static void assert_refused(struct broken *b, const char *sentence)
{
    assert_int_equal(cp_ops_check(b->lists, 3, b->micros, b->slots, b->train), CP_E_PLAN);
    if (!strstr(cp_err_text(), sentence)) {
        fail_msg("'%s' does not say '%s'", cp_err_text(), sentence);
    }
    lists_fini(b->lists, 3);
}

static void swap(struct cp_ops *o, int i, int k)
{
    struct cp_op op = o->op[i];
    o->op[i] = o->op[k];
    o->op[k] = op;
}

/* Stage 1 of the broken lists: <0 F0 >0 <1 F1 >1 )0 B0 (0 <2 F2 >2 )1 B1 (1 )2 B2 (2 S */
static void test_sentences(void **state)
{
    (void)state;
    struct broken b;
    broken_make(&b);
    swap(&b.lists[1], 0, 1);
    assert_refused(&b, "stage 1, op 0 (FWD 0, slot 0): it uses what was not received before");
    broken_make(&b);
    swap(&b.lists[1], 1, 2);
    assert_refused(&b, "stage 1, op 1 (SEND_ACT 0, slot 0): it sends what was not made before");
    broken_make(&b);
    swap(&b.lists[1], 7, 8);
    assert_refused(&b, "stage 1, op 7 (SEND_GRAD 0, slot 0): it sends what was not made before");
    broken_make(&b);
    b.lists[1].n--; /* the last op is missing */
    assert_refused(&b, "stage 1 has 18 ops, 19 are needed for 3 micro-batches");
    broken_make(&b);
    swap(&b.lists[0], 1, 2);
    assert_refused(
        &b,
        "stage 0, op 1 (FWD 1, slot 1): its boundary tensor still holds the micro-batch before");
    broken_make(&b);
    b.lists[1].op[9].slot = 1;
    assert_refused(&b, "stage 1, op 9 (RECV_ACT 2, slot 1): wrong slot");
    broken_make(&b);
    b.lists[1].op[4].micro = 0;
    assert_refused(&b, "stage 1, op 4 (FWD 0, slot 1): micro-batches are not in ascending order");
    broken_make(&b);
    b.lists[0].op[0] = (struct cp_op){CP_OP_BWD, 0, 0};
    assert_refused(&b, "stage 0, op 0 (BWD 0, slot 0): a backward comes before its forward");
    broken_make(&b);
    b.lists[1].op[6] = b.lists[1].op[9]; /* a third one while two are held */
    b.lists[1].op[9] = (struct cp_op){CP_OP_RECV_GRAD, 0, 0};
    assert_refused(&b,
                   "stage 1, op 6 (RECV_ACT 2, slot 0): more micro-batches in flight than slots");
    broken_make(&b);
    swap(&b.lists[1], 17, 18);
    assert_refused(&b,
                   "stage 1, op 17 (STEP -1, slot -1): the step comes before its last backward");
    broken_make(&b);
    b.lists[1].op[18].micro = 3;
    assert_refused(&b, "a step has no micro-batch and no slot");
    broken_make(&b);
    b.lists[0].op[0].kind = CP_OP_RECV_ACT;
    assert_refused(&b, "stage 0, op 0 (RECV_ACT 0, slot 0): this stage has no ops of this kind");
    broken_make(&b);
    b.lists[2].op[12] = (struct cp_op){CP_OP_RECV_ACT, 3, 0};
    assert_refused(&b, "stage 2, op 12 (RECV_ACT 3, slot 0): the step has no such micro-batch");
    broken_make(&b);
    b.micros = 4;
    assert_refused(&b, "stage 0 has 13 ops, 17 are needed for 4 micro-batches");
    broken_make(&b);
    b.train = false; /* same lists taken for an evaluation */
    assert_refused(&b, "stage 0 has 13 ops, 6 are needed");
    broken_make(&b);
    b.slots[1] = 1; /* the plan says less than the list takes */
    assert_refused(&b, "stage 1, op 3 (RECV_ACT 1, slot 1): wrong slot");
}

/* More slots than micro-batches are no harm. */
static void test_slots_beyond_micros(void **state)
{
    (void)state;
    struct cp_ops lists[3], want[3];
    const int many[3] = {9, 9, 5}, all[3] = {2, 2, 2};
    lists_make(lists, 3, 2, many, true);
    lists_make(want, 3, 2, all, true);
    assert_int_equal(cp_ops_check(lists, 3, 2, many, true), CP_OK);
    for (int j = 0; j < 3; j++) {
        assert_int_equal(lists[j].n, want[j].n);
        assert_memory_equal(lists[j].op, want[j].op, (size_t)want[j].n * sizeof want[j].op[0]);
    }
    lists_fini(lists, 3);
    lists_fini(want, 3);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct cp_ops o = {.n = 7}, lists[3];
    const int slots[3] = {3, 2, 1};
    cp_mem_fail_at(1);
    assert_int_equal(cp_ops_make(0, 2, 3, 2, true, &o), CP_E_NOMEM);
    assert_int_equal(o.n, 7);
    lists_make(lists, 3, 3, slots, true);
    cp_mem_fail_at(1);
    assert_int_equal(cp_ops_check(lists, 3, 3, slots, true), CP_E_NOMEM);
    cp_mem_fail_at(0);
    lists_fini(lists, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_written_by_hand),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_non_increasing_slots_pass),
        cmocka_unit_test(test_deadlock_exactly_if_slots_increase),
        cmocka_unit_test(test_deadlock_is_named),
        cmocka_unit_test(test_every_swap_and_replacement),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_slots_beyond_micros),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
