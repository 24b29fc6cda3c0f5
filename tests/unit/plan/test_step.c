/* Step times against an event simulation that shares no code with them (section 16, items 2, 4). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "unit/plan/worlds.h"

enum { STAGES = 8, MICRO = 12, OPS = 2 * MICRO };

/* Resources: stages, then links forwards, then links backwards. Each serves one job at a time. */
enum { RESOURCES = 3 * STAGES };

struct job {
    bool fwd;
    int micro;
};

struct resource {
    struct job list[OPS];  /* stages: the list of section 6.2 */
    struct job queue[OPS]; /* links: what waits, first in, first out */
    int n, at;             /* jobs of list or queue; next of them */
    bool busy;
    double free_at;
    struct job now;
};

struct simulation {
    const struct cp_times *t;
    int stages, micro;
    struct resource r[RESOURCES];
    bool here[STAGES][2][MICRO]; /* input of (stage, direction, micro) is there */
};

static void make_list(struct resource *r, int micro, int slots)
{
    int f = 0, b = 0;
    while (f < slots) {
        r->list[r->n++] = (struct job){true, f++};
    }
    while (b < micro) {
        r->list[r->n++] = (struct job){false, b++};
        if (f < micro) {
            r->list[r->n++] = (struct job){true, f++};
        }
    }
}

static double service_s(const struct simulation *s, int i, struct job job)
{
    if (i < STAGES) {
        return job.fwd ? s->t->fwd_s[i] : s->t->bwd_s[i];
    }
    return i < 2 * STAGES ? s->t->link_fwd_s[i - STAGES] : s->t->link_bwd_s[i - 2 * STAGES];
}

static void start_what_can(struct simulation *s, double now)
{
    for (int i = 0; i < RESOURCES; i++) {
        struct resource *r = &s->r[i];
        if (r->busy || r->at == r->n) {
            continue;
        }
        struct job next = i < STAGES ? r->list[r->at] : r->queue[r->at];
        if (i < STAGES && !s->here[i][next.fwd][next.micro]) {
            continue;
        }
        r->at++;
        r->busy = true;
        r->now = next;
        r->free_at = now + service_s(s, i, next);
    }
}

static void finish(struct simulation *s, int i)
{
    struct job job = s->r[i].now;
    s->r[i].busy = false;
    if (i >= 2 * STAGES) {
        s->here[i - 2 * STAGES][0][job.micro] = true;
    } else if (i >= STAGES) {
        s->here[i - STAGES + 1][1][job.micro] = true;
    } else if (job.fwd && i == s->stages - 1) {
        s->here[i][0][job.micro] = true;
    } else if (job.fwd) {
        struct resource *link = &s->r[STAGES + i];
        link->queue[link->n++] = job;
    } else if (i > 0) {
        struct resource *link = &s->r[2 * STAGES + i - 1];
        link->queue[link->n++] = job;
    }
}

/* Negative where the pipeline is stuck. */
static double simulate_s(const struct cp_times *t, int micro, const int *slots)
{
    struct simulation s = {.t = t, .stages = t->segments + 2, .micro = micro};
    double now = 0;
    for (int j = 0; j < s.stages; j++) {
        make_list(&s.r[j], micro, slots[j]);
    }
    for (int m = 0; m < micro; m++) {
        s.here[0][1][m] = true;
    }
    for (;;) {
        start_what_can(&s, now);
        double next = INFINITY;
        for (int i = 0; i < RESOURCES; i++) {
            if (s.r[i].busy && s.r[i].free_at < next) {
                next = s.r[i].free_at;
            }
        }
        if (isinf(next)) {
            return s.r[0].at == s.r[0].n ? now : -1;
        }
        now = next;
        for (int i = 0; i < RESOURCES; i++) {
            if (s.r[i].busy && s.r[i].free_at <= now) {
                finish(&s, i);
            }
        }
    }
}

static void draw_times(struct cp_times *t, struct cp_rng *r)
{
    *t = (struct cp_times){.segments = 1 + (int)cp_rng_below(r, STAGES - 2)};
    double link = pow(10, cp_rng_range(r, -2, 0.5));
    for (int j = 0; j <= t->segments + 1; j++) {
        t->fwd_s[j] = cp_rng_range(r, 0.05, 1);
        t->bwd_s[j] = cp_rng_range(r, 0.05, 2);
    }
    for (int j = 0; j <= t->segments; j++) {
        t->link_fwd_s[j] = link * cp_rng_unit(r);
        t->link_bwd_s[j] = link * cp_rng_unit(r);
    }
}

static double lower_bound_s(const struct cp_times *t, int micro)
{
    double bound = 0, way = 0;
    for (int j = 0; j <= t->segments + 1; j++) {
        bound = fmax(bound, way + micro * (t->fwd_s[j] + t->bwd_s[j]));
        if (j <= t->segments) {
            way += t->fwd_s[j] + t->bwd_s[j] + t->link_fwd_s[j] + t->link_bwd_s[j];
        }
    }
    return bound;
}

static void lemma_1_equals_simulation(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 1500; i++) {
        struct cp_times t;
        int slots[CP_STAGES_MAX], micro = 1 + (int)cp_rng_below(&r, MICRO);
        draw_times(&t, &r);
        for (int j = 0; j < t.segments + 2; j++) {
            slots[j] = micro;
        }
        double lemma = cp_step_gpipe_s(&t, micro);
        assert_true(near_rel(lemma, simulate_s(&t, micro, slots), 1e-9));
        assert_true(near_rel(lemma, cp_step_recurrence_s(&t, micro, slots), 1e-9));
        assert_true(lemma >= lower_bound_s(&t, micro) * (1 - 1e-12));
    }
}

static void recurrence_equals_simulation(void **state)
{
    (void)state;
    struct cp_rng r;
    int below = 0, above = 0;
    cp_rng_init(&r, 2, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 3000; i++) {
        struct cp_times t;
        int slots[CP_STAGES_MAX], micro = 1 + (int)cp_rng_below(&r, MICRO);
        draw_times(&t, &r);
        int depth = (int)cp_rng_below(&r, 4); /* omega; every third case any falling slots */
        for (int j = 0; j < t.segments + 2; j++) {
            int most = j == 0 ? micro : slots[j - 1];
            int w = t.segments + 2 - j + depth;
            slots[j] =
                i % 3 == 0 ? 1 + (int)cp_rng_below(&r, (uint32_t)most) : (w < micro ? w : micro);
        }
        double step = cp_step_recurrence_s(&t, micro, slots), lemma = cp_step_gpipe_s(&t, micro);
        assert_true(near_rel(step, simulate_s(&t, micro, slots), 1e-9));
        assert_true(step >= lower_bound_s(&t, micro) * (1 - 1e-12));
        below += step < lemma * (1 - 1e-9);
        above += step > lemma * (1 + 1e-9);
    }
    assert_true(below > 100 && above > 100); /* neither order is always the faster one */
}

static void rising_slots_get_stuck(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 3, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 300; i++) {
        struct cp_times t;
        int slots[CP_STAGES_MAX], micro = 3 + (int)cp_rng_below(&r, MICRO - 3);
        draw_times(&t, &r);
        int at = 1 + (int)cp_rng_below(&r, (uint32_t)t.segments + 1);
        for (int j = 0; j < t.segments + 2; j++) {
            slots[j] = j < at ? 2 : 3;
        }
        assert_true(simulate_s(&t, micro, slots) < 0);
    }
}

static void special_cases(void **state)
{
    (void)state;
    struct cp_times t = {.segments = 3};
    int slots[CP_STAGES_MAX], ones[CP_STAGES_MAX];
    for (int j = 0; j < 5; j++) {
        t.fwd_s[j] = 0.25;
        t.bwd_s[j] = 0.5;
        slots[j] = 7;
        ones[j] = 1;
    }
    /* Equal stages, no links: (M + J - 1)(tau^F + tau^B), for gpipe and for 1f1b. */
    assert_true(near_rel(cp_step_gpipe_s(&t, 7), (7 + 5 - 1) * 0.75, 1e-12));
    struct cp_cluster_plan c = {.order = CP_ORDER_1F1B, .segments = 3, .micro_batches = 7};
    cp_plan_set_slots(&c);
    assert_true(near_rel(cp_step_s(&c, &t), (7 + 5 - 1) * 0.75, 1e-12));
    /* One micro-batch: Sigma; one slot: M Sigma. */
    struct cp_rng r;
    cp_rng_init(&r, 4, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 100; i++) {
        draw_times(&t, &r);
        double sigma = 0;
        for (int j = 0; j <= t.segments + 1; j++) {
            sigma += t.fwd_s[j] + t.bwd_s[j];
        }
        for (int j = 0; j <= t.segments; j++) {
            sigma += t.link_fwd_s[j] + t.link_bwd_s[j];
        }
        for (int j = 0; j < t.segments + 2; j++) {
            ones[j] = 1;
        }
        assert_true(near_rel(cp_step_gpipe_s(&t, 1), sigma, 1e-12));
        assert_true(near_rel(cp_step_recurrence_s(&t, 1, ones), sigma, 1e-12));
        assert_true(near_rel(cp_step_recurrence_s(&t, 9, ones), 9 * sigma, 1e-12));
    }
    /* The largest step that may be asked for. */
    for (int j = 0; j < t.segments + 2; j++) {
        slots[j] = CP_MICRO_MAX;
    }
    assert_true(near_rel(cp_step_recurrence_s(&t, CP_MICRO_MAX, slots),
                         cp_step_gpipe_s(&t, CP_MICRO_MAX), 1e-9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lemma_1_equals_simulation),
        cmocka_unit_test(recurrence_equals_simulation),
        cmocka_unit_test(rising_slots_get_stuck),
        cmocka_unit_test(special_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
