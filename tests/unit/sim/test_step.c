/* sim: the virtual clock of one step against docs/theory.md sections 6.1 and 6.2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sim/sim.h"
#include "unit/pipe/lists.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 7, MICROS = 12, CASES = 1500, EVENTS = 4 * STAGES * MICROS };

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

/* --- the recurrence, from its text: micro-batches count from 1 here ---------------------- */

struct reference {
    const struct cp_times *t;
    int n, micros;
    const int *slots;
    double end_fwd[STAGES][MICROS + 1], end_bwd[STAGES][MICROS + 1]; /* memo; -1: not known yet */
    double arrive_fwd[STAGES][MICROS + 1], arrive_bwd[STAGES][MICROS + 1];
};

static double ref_end_bwd(struct reference *r, int m, int j);
static double ref_end_fwd(struct reference *r, int m, int j);

static double ref_arrive_fwd(struct reference *r, int m, int j)
{
    if (m == 0 || j == 0) {
        return 0;
    }
    if (r->arrive_fwd[j][m] < 0) {
        r->arrive_fwd[j][m] =
            fmax(ref_end_fwd(r, m, j - 1), ref_arrive_fwd(r, m - 1, j)) + r->t->link_fwd_s[j - 1];
    }
    return r->arrive_fwd[j][m];
}

static double ref_arrive_bwd(struct reference *r, int m, int j)
{
    if (m == 0) {
        return 0;
    }
    if (j == r->n - 1) {
        return ref_end_fwd(r, m, j);
    }
    if (r->arrive_bwd[j][m] < 0) {
        r->arrive_bwd[j][m] =
            fmax(ref_end_bwd(r, m, j + 1), ref_arrive_bwd(r, m - 1, j)) + r->t->link_bwd_s[j];
    }
    return r->arrive_bwd[j][m];
}

/* List of a stage: F_1..F_w, then (B_1, F_w+1), (B_2, F_w+2) ..., then the other B. */
static double ref_end_fwd(struct reference *r, int m, int j)
{
    int w = r->slots[j];
    if (r->end_fwd[j][m] < 0) {
        double before = m == 1 ? 0 : m <= w ? ref_end_fwd(r, m - 1, j) : ref_end_bwd(r, m - w, j);
        r->end_fwd[j][m] = fmax(before, ref_arrive_fwd(r, m, j)) + r->t->fwd_s[j];
    }
    return r->end_fwd[j][m];
}

static double ref_end_bwd(struct reference *r, int m, int j)
{
    int w = r->slots[j] < r->micros ? r->slots[j] : r->micros;
    if (r->end_bwd[j][m] < 0) {
        double before =
            w + m - 1 <= r->micros ? ref_end_fwd(r, w + m - 1, j) : ref_end_bwd(r, m - 1, j);
        r->end_bwd[j][m] = fmax(before, ref_arrive_bwd(r, m, j)) + r->t->bwd_s[j];
    }
    return r->end_bwd[j][m];
}

static double ref_step_s(const struct cp_times *t, int n, int micros, const int *slots)
{
    struct reference r = {.t = t, .n = n, .micros = micros, .slots = slots};
    for (int j = 0; j < STAGES; j++) {
        for (int m = 0; m <= MICROS; m++) {
            r.end_fwd[j][m] = r.end_bwd[j][m] = r.arrive_fwd[j][m] = r.arrive_bwd[j][m] = -1;
        }
    }
    return ref_end_bwd(&r, micros, 0);
}

static double sum_s(const struct cp_times *t, int n)
{
    double sum = 0;
    for (int j = 0; j < n; j++) {
        sum += t->fwd_s[j] + t->bwd_s[j];
        sum += j + 1 < n ? t->link_fwd_s[j] + t->link_bwd_s[j] : 0;
    }
    return sum;
}

static double lemma1_s(const struct cp_times *t, int n, int micros)
{
    double max_fwd = 0, max_bwd = 0;
    for (int j = 0; j < n; j++) {
        max_fwd = fmax(max_fwd, fmax(t->fwd_s[j], j + 1 < n ? t->link_fwd_s[j] : 0));
        max_bwd = fmax(max_bwd, fmax(t->bwd_s[j], j + 1 < n ? t->link_bwd_s[j] : 0));
    }
    return sum_s(t, n) + (micros - 1) * (max_fwd + max_bwd);
}

/* --- random cases ------------------------------------------------------------------------ */

struct pipeline {
    int n, micros, slots[STAGES];
    struct cp_times t;
};

/* Slow and fast links, stages that differ tenfold, some times exactly 0. */
static void draw(struct cp_rng *rng, struct pipeline *p)
{
    *p = (struct pipeline){.n = 2 + (int)cp_rng_below(rng, STAGES - 1),
                           .micros = 1 + (int)cp_rng_below(rng, MICROS)};
    double link = (double[]){0, 0.1, 1, 5}[cp_rng_below(rng, 4)];
    p->t.segments = p->n - 2;
    for (int j = 0; j < p->n; j++) {
        p->t.fwd_s[j] = cp_rng_range(rng, 0.1, 1);
        p->t.bwd_s[j] = cp_rng_range(rng, 0.1, 2);
        if (j + 1 < p->n) {
            p->t.link_fwd_s[j] = link * cp_rng_unit(rng);
            p->t.link_bwd_s[j] = link * cp_rng_unit(rng);
        }
    }
    int most = p->micros;
    for (int j = 0; j < p->n; j++) {
        most = 1 + (int)cp_rng_below(rng, (uint32_t)most);
        p->slots[j] = most;
    }
}

static void set_slots(struct pipeline *p, int ahead)
{
    for (int j = 0; j < p->n; j++) {
        int slots = p->n - j + ahead;
        p->slots[j] = slots < p->micros ? slots : p->micros;
    }
}

static void simulate(const struct pipeline *p, bool train, const struct cp_event_sink *sink,
                     struct cp_sim_step *out)
{
    struct cp_ops lists[STAGES];
    lists_make(lists, p->n, p->micros, p->slots, train);
    assert_int_equal(cp_sim_step(lists, p->n, &p->t, sink, out), CP_OK);
    lists_fini(lists, p->n);
}

static void assert_sums(const struct pipeline *p, const struct cp_sim_step *s)
{
    double busy_s = 0;
    assert_int_equal(s->n_stages, p->n);
    for (int j = 0; j < p->n; j++) {
        double stage_s = p->micros * (p->t.fwd_s[j] + p->t.bwd_s[j]);
        assert_near(s->busy_s[j], stage_s);
        busy_s += stage_s;
        assert_int_equal(s->in_flight_peak[j], p->slots[j]);
        assert_true(s->energy_j[j] == 0);
        if (j + 1 < p->n) {
            assert_near(s->link_busy_fwd_s[j], p->micros * p->t.link_fwd_s[j]);
            assert_near(s->link_busy_bwd_s[j], p->micros * p->t.link_bwd_s[j]);
        }
    }
    assert_near(1 - s->bubble, busy_s / (p->n * s->step_s));
}

static void assert_lower_bound(const struct pipeline *p, double step_s)
{
    double before_s = 0;
    for (int j = 0; j < p->n; j++) {
        assert_true(step_s * (1 + 1e-12) >= before_s + p->micros * (p->t.fwd_s[j] + p->t.bwd_s[j]));
        before_s += p->t.fwd_s[j] + p->t.bwd_s[j];
        before_s += j + 1 < p->n ? p->t.link_fwd_s[j] + p->t.link_bwd_s[j] : 0;
    }
}

static void test_gpipe_is_lemma_1(void **state)
{
    (void)state;
    struct cp_rng rng;
    cp_rng_init(&rng, 1, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < CASES; i++) {
        struct pipeline p;
        struct cp_sim_step s;
        draw(&rng, &p);
        set_slots(&p, p.micros);
        simulate(&p, true, NULL, &s);
        assert_near(s.step_s, lemma1_s(&p.t, p.n, p.micros));
        assert_near(s.step_s, cp_step_gpipe_s(&p.t, p.micros));
        assert_sums(&p, &s);
    }
}

static void test_any_slots_are_the_recurrence(void **state)
{
    (void)state;
    struct cp_rng rng;
    int faster = 0, slower = 0; /* 1F1B against GPipe at the same times: neither always wins */
    cp_rng_init(&rng, 2, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < CASES; i++) {
        struct pipeline p;
        struct cp_sim_step s;
        draw(&rng, &p); /* any slots that do not increase */
        simulate(&p, true, NULL, &s);
        assert_near(s.step_s, ref_step_s(&p.t, p.n, p.micros, p.slots));
        assert_near(s.step_s, cp_step_recurrence_s(&p.t, p.micros, p.slots));
        assert_sums(&p, &s);
        assert_lower_bound(&p, s.step_s);
        set_slots(&p, (int)cp_rng_below(&rng, 3)); /* 1F1B, and some more slots */
        simulate(&p, true, NULL, &s);
        assert_near(s.step_s, ref_step_s(&p.t, p.n, p.micros, p.slots));
        assert_near(s.step_s, cp_step_recurrence_s(&p.t, p.micros, p.slots));
        assert_lower_bound(&p, s.step_s);
        faster += s.step_s < lemma1_s(&p.t, p.n, p.micros) * (1 - 1e-9);
        slower += s.step_s > lemma1_s(&p.t, p.n, p.micros) * (1 + 1e-9);
    }
    assert_true(faster > 500 && slower > 50);
}

static void test_special_cases(void **state)
{
    (void)state;
    struct cp_rng rng;
    struct cp_sim_step s;
    cp_rng_init(&rng, 3, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 200; i++) {
        struct pipeline p;
        draw(&rng, &p);
        for (int j = 0; j < p.n; j++) {
            p.slots[j] = 1;
        }
        simulate(&p, true, NULL, &s); /* sequential: nothing overlaps */
        assert_near(s.step_s, p.micros * sum_s(&p.t, p.n));
        p.micros = 1;
        simulate(&p, true, NULL, &s);
        assert_near(s.step_s, sum_s(&p.t, p.n));

        draw(&rng, &p);
        for (int j = 0; j < p.n; j++) { /* equal stages, no communication */
            p.t.fwd_s[j] = p.t.fwd_s[0];
            p.t.bwd_s[j] = p.t.bwd_s[0];
            p.t.link_fwd_s[j] = p.t.link_bwd_s[j] = 0;
        }
        set_slots(&p, i % 2 ? p.micros : 0);
        simulate(&p, true, NULL, &s);
        assert_near(s.step_s, (p.micros + p.n - 1) * (p.t.fwd_s[0] + p.t.bwd_s[0]));
        assert_near(s.bubble + 1, 1 + (p.n - 1.0) / (p.micros + p.n - 1));
    }
}

static void test_evaluation_and_one_stage(void **state)
{
    (void)state;
    struct cp_sim_step s;
    struct pipeline p = {.n = 3, .micros = 4, .slots = {3, 2, 1}};
    p.t = (struct cp_times){.segments = 1, .fwd_s = {1, 3, 2}, .link_fwd_s = {0.5, 4}};
    simulate(&p, false, NULL, &s);
    assert_near(s.step_s, 1 + 0.5 + 3 + 4 + 2 + 3 * 4); /* the second link is the slowest */
    assert_near(s.busy_s[1], 12);
    assert_near(s.link_busy_fwd_s[1], 16);
    assert_true(s.link_busy_bwd_s[0] == 0);
    assert_near(s.bubble, 1 - 24 / (3 * 22.5));
    for (int j = 0; j < 3; j++) {
        assert_int_equal(s.in_flight_peak[j], 1);
    }

    struct pipeline one = {.n = 1, .micros = 3, .slots = {2}};
    one.t = (struct cp_times){.fwd_s = {1}, .bwd_s = {2}};
    simulate(&one, true, NULL, &s);
    assert_near(s.step_s, 9);
    assert_true(s.bubble == 0);
    assert_int_equal(s.in_flight_peak[0], 2);
    one.t = (struct cp_times){0}; /* no time at all: no share of it is idle */
    simulate(&one, true, NULL, &s);
    assert_true(s.step_s == 0 && s.bubble == 0);
}

/* --- events ------------------------------------------------------------------------------ */

struct log {
    int n;
    struct cp_event e[EVENTS];
    char node[EVENTS][CP_SIM_NAME]; /* the events' own are borrowed */
};

static void log_put(void *arg, const struct cp_event *e)
{
    struct log *log = arg;
    assert_true(log->n < EVENTS);
    snprintf(log->node[log->n], CP_SIM_NAME, "%s", e->node);
    log->e[log->n] = *e;
    log->e[log->n].node = log->node[log->n];
    log->n++;
}

static bool is_kind(const struct cp_event *e, enum cp_op_kind kind)
{
    return strcmp(e->kind, cp_op_name(kind)) == 0;
}

static const struct cp_event *log_find(const struct log *log, enum cp_op_kind kind, int stage,
                                       int micro)
{
    for (int i = 0; i < log->n; i++) {
        const struct cp_event *e = &log->e[i];
        if (is_kind(e, kind) && e->stage == stage && e->micro == micro) {
            return e;
        }
    }
    fail_msg("no %s %d of stage %d", cp_op_name(kind), micro, stage);
    return NULL;
}

/* Nanoseconds in which a D2D link sends forwards while one sends backwards. */
static int64_t both_ways_ns(const struct log *log, int last_stage)
{
    int64_t sum = 0;
    for (int i = 0; i < log->n; i++) {
        const struct cp_event *a = &log->e[i];
        for (int k = 0; k < log->n && is_kind(a, CP_OP_SEND_ACT); k++) {
            const struct cp_event *b = &log->e[k];
            if (is_kind(b, CP_OP_SEND_GRAD) && a->stage < last_stage - 1 && b->stage < last_stage) {
                int64_t t0 = a->t0_ns > b->t0_ns ? a->t0_ns : b->t0_ns;
                int64_t t1 = a->t1_ns < b->t1_ns ? a->t1_ns : b->t1_ns;
                sum += t1 > t0 ? t1 - t0 : 0;
            }
        }
    }
    return sum;
}

/* A server does one thing after another: stage, link forwards, link backwards. */
static void assert_one_after_another(const struct log *log)
{
    for (int i = 0; i < log->n; i++) {
        for (int k = i + 1; k < log->n; k++) {
            const struct cp_event *a = &log->e[i], *b = &log->e[k];
            bool links = is_kind(a, CP_OP_SEND_ACT) || is_kind(a, CP_OP_SEND_GRAD) ||
                         is_kind(b, CP_OP_SEND_ACT) || is_kind(b, CP_OP_SEND_GRAD);
            if (a->stage == b->stage && (!links || strcmp(a->kind, b->kind) == 0)) {
                assert_true(a->t1_ns <= b->t0_ns);
            }
        }
    }
}

static void assert_causes(const struct log *log, const struct pipeline *p)
{
    for (int m = 0; m < p->micros; m++) {
        for (int j = 0; j < p->n; j++) {
            const struct cp_event *fwd = log_find(log, CP_OP_FWD, j, m);
            const struct cp_event *bwd = log_find(log, CP_OP_BWD, j, m);
            assert_true(fwd->t1_ns <= bwd->t0_ns);
            assert_true(llabs(fwd->t1_ns - fwd->t0_ns - llround(p->t.fwd_s[j] * 1e9)) <= 1);
            assert_true(llabs(bwd->t1_ns - bwd->t0_ns - llround(p->t.bwd_s[j] * 1e9)) <= 1);
            if (j + 1 < p->n) {
                const struct cp_event *act = log_find(log, CP_OP_SEND_ACT, j, m);
                const struct cp_event *grad = log_find(log, CP_OP_SEND_GRAD, j + 1, m);
                assert_true(fwd->t1_ns <= act->t0_ns);
                assert_true(act->t1_ns <= log_find(log, CP_OP_FWD, j + 1, m)->t0_ns);
                assert_true(log_find(log, CP_OP_BWD, j + 1, m)->t1_ns <= grad->t0_ns);
                assert_true(grad->t1_ns <= bwd->t0_ns);
            }
        }
    }
}

static void test_events(void **state)
{
    (void)state;
    static struct log log;
    const struct cp_event_sink sink = {log_put, &log};
    struct cp_rng rng;
    int overlaps = 0;
    cp_rng_init(&rng, 4, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 100; i++) {
        struct pipeline p;
        struct cp_sim_step s;
        draw(&rng, &p);
        for (int ahead = 0; ahead <= p.micros; ahead += p.micros) {
            int64_t end_ns = 0;
            log.n = 0;
            set_slots(&p, ahead);
            simulate(&p, true, &sink, &s);
            assert_int_equal(log.n, p.micros * (4 * p.n - 2)); /* no STEP, no receives */
            assert_one_after_another(&log);
            assert_causes(&log, &p);
            for (int k = 0; k < log.n; k++) {
                end_ns = log.e[k].t1_ns > end_ns ? log.e[k].t1_ns : end_ns;
            }
            assert_int_equal(end_ns, llround(s.step_s * 1e9));
            /* half duplex: only where orders overlap the phases need two bands */
            if (ahead) {
                assert_int_equal(both_ways_ns(&log, p.n - 1), 0);
            } else {
                overlaps += both_ways_ns(&log, p.n - 1) > 0;
            }
        }
        for (int j = 0; j < p.n; j++) {
            p.slots[j] = 1;
        }
        log.n = 0;
        simulate(&p, true, &sink, &s);
        assert_int_equal(both_ways_ns(&log, p.n - 1), 0);
    }
    assert_true(overlaps > 10);
}

static void assert_event(const struct cp_event *e, const char *node, int64_t t0_ns, int64_t t1_ns,
                         int64_t bytes, double energy_j)
{
    assert_string_equal(e->node, node);
    assert_int_equal(e->t0_ns, t0_ns);
    assert_int_equal(e->t1_ns, t1_ns);
    assert_int_equal(e->bytes, bytes);
    assert_true(e->energy_j == energy_j);
}

static void test_event_fields_and_energy(void **state)
{
    (void)state;
    static struct log log;
    const struct cp_event_sink sink = {log_put, &log};
    struct cp_ops lists[2];
    struct cp_sim_step s;
    struct cp_sim_costs costs = {
        .times = {.fwd_s = {1, 2}, .bwd_s = {3, 4}, .link_fwd_s = {0.5}, .link_bwd_s = {0.25}},
        .fwd_j = {10, 20},
        .bwd_j = {30, 40},
        .send_act_j = {5, 1000}, /* a last stage sends no activation */
        .send_grad_j = {1000, 6},
        .act_bytes = {77},
        .grad_bytes = {0, 66},
        .node = {"c1.cu", "edge"},
        .round = 3,
        .step = 5,
        .start_ns = 7000000000};
    const int slots[2] = {2, 1};
    lists_make(lists, 2, 2, slots, true);
    log.n = 0;
    assert_int_equal(cp_sim_run(lists, 2, &costs, &sink, &s), CP_OK);
    lists_fini(lists, 2);
    assert_int_equal(log.n, 12);
    for (int i = 0; i < log.n; i++) {
        assert_int_equal(log.e[i].round, 3);
        assert_int_equal(log.e[i].step, 5);
    }
    const int64_t ms = 1000000, t = 7000 * ms;
    assert_event(log_find(&log, CP_OP_FWD, 0, 1), "c1.cu", t + 1000 * ms, t + 2000 * ms, 0, 10);
    assert_event(log_find(&log, CP_OP_SEND_ACT, 0, 1), "c1.cu", t + 2000 * ms, t + 2500 * ms, 77,
                 5);
    assert_event(log_find(&log, CP_OP_BWD, 1, 0), "edge", t + 3500 * ms, t + 7500 * ms, 0, 40);
    assert_event(log_find(&log, CP_OP_SEND_GRAD, 1, 0), "edge", t + 7500 * ms, t + 7750 * ms, 66,
                 6);
    assert_true(s.energy_j[0] == 2 * (10 + 30 + 5) && s.energy_j[1] == 2 * (20 + 40 + 6));

    log.n = 0; /* where only times are known */
    lists_make(lists, 2, 2, slots, true);
    assert_int_equal(cp_sim_step(lists, 2, &costs.times, &sink, &s), CP_OK);
    lists_fini(lists, 2);
    const struct cp_event *e = log_find(&log, CP_OP_FWD, 1, 0);
    assert_string_equal(e->node, "stage1");
    assert_true(e->round == -1 && e->step == -1 && e->bytes == 0 && e->t0_ns == 1500 * ms);
}

/* --- unhappy paths ----------------------------------------------------------------------- */

static void test_failures_leave_no_trace(void **state)
{
    (void)state;
    struct cp_ops lists[3];
    struct cp_sim_step s = {.step_s = 42};
    struct cp_times t = {.segments = 1, .fwd_s = {1, 1, 1}, .bwd_s = {1, 1, 1}};
    const int increasing[3] = {1, 1, 2}, good[3] = {3, 2, 1};
    lists_make(lists, 3, 3, increasing, true);
    assert_int_equal(cp_sim_step(lists, 3, &t, NULL, &s), CP_E_PLAN);
    assert_string_equal(cp_err_text(),
                        "simulation: deadlock, stage 0 waits for ever in op 2 (RECV_GRAD 0)");
    assert_true(s.step_s == 42);
    lists_fini(lists, 3);

    lists_make(lists, 3, 3, good, true);
    cp_mem_fail_at(1);
    assert_int_equal(cp_sim_step(lists, 3, &t, NULL, &s), CP_E_NOMEM);
    assert_true(s.step_s == 42);
    assert_int_equal(cp_sim_step(lists, 3, &t, NULL, &s), CP_OK);
    lists_fini(lists, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpipe_is_lemma_1),
        cmocka_unit_test(test_any_slots_are_the_recurrence),
        cmocka_unit_test(test_special_cases),
        cmocka_unit_test(test_evaluation_and_one_stage),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_event_fields_and_energy),
        cmocka_unit_test(test_failures_leave_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
