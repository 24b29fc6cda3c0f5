/* sim: programs that were made before run like those made anew, and are found without memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sim/program.h"
#include "unit/pipe/lists.h"

#include <string.h>

enum { STAGES = 8, MICROS = 9 };

struct shape {
    int n, micros, slots[STAGES];
};

static void draw_shape(struct cp_rng *rng, struct shape *s)
{
    *s = (struct shape){.n = 1 + (int)cp_rng_below(rng, STAGES),
                        .micros = 1 + (int)cp_rng_below(rng, MICROS)};
    uint32_t most = (uint32_t)s->micros;
    for (int j = 0; j < s->n; j++) {
        most = 1 + cp_rng_below(rng, most);
        s->slots[j] = (int)most;
    }
}

static void draw_costs(struct cp_rng *rng, struct cp_sim_costs *k)
{
    *k = (struct cp_sim_costs){.round = -1, .step = -1};
    for (int j = 0; j < STAGES; j++) {
        k->times.fwd_s[j] = cp_rng_unit(rng);
        k->times.bwd_s[j] = cp_rng_unit(rng);
        k->times.link_fwd_s[j] = cp_rng_unit(rng);
        k->times.link_bwd_s[j] = cp_rng_unit(rng);
        k->fwd_j[j] = cp_rng_unit(rng);
        k->send_grad_j[j] = cp_rng_unit(rng);
    }
}

static void test_equals_lists_met_once(void **state)
{
    (void)state;
    struct cp_programs *all;
    struct cp_rng rng;
    cp_rng_init(&rng, 1, CP_RNG_TEST, 0, 0);
    assert_int_equal(cp_programs_new(&all), CP_OK);
    for (int i = 0; i < 3000; i++) { /* more shapes than are remembered at a time */
        struct shape s;
        struct cp_sim_costs k;
        struct cp_ops lists[STAGES];
        struct cp_program *p;
        struct cp_sim_step known, anew;
        draw_shape(&rng, &s);
        draw_costs(&rng, &k);
        assert_int_equal(cp_programs_find(all, s.n, s.micros, s.slots, &p), CP_OK);
        memset(&known, 0x5a, sizeof known); /* nothing of what was there stays */
        cp_program_run(p, &k, NULL, &known);
        lists_make(lists, s.n, s.micros, s.slots, true);
        memset(&anew, 0, sizeof anew);
        assert_int_equal(cp_sim_run(lists, s.n, &k, NULL, &anew), CP_OK);
        lists_fini(lists, s.n);
        assert_true(known.step_s == anew.step_s && known.bubble == anew.bubble);
        assert_int_equal(known.n_stages, s.n);
        assert_memory_equal(known.busy_s, anew.busy_s, sizeof anew.busy_s);
        assert_memory_equal(known.energy_j, anew.energy_j, sizeof anew.energy_j);
        assert_memory_equal(known.link_busy_bwd_s, anew.link_busy_bwd_s,
                            sizeof anew.link_busy_bwd_s);
        assert_memory_equal(known.in_flight_peak, anew.in_flight_peak, sizeof anew.in_flight_peak);
    }
    cp_programs_free(all);
    cp_programs_free(NULL);
}

static void test_found_again_without_memory(void **state)
{
    (void)state;
    const int slots[3] = {3, 2, 1}, other[3] = {3, 2, 2};
    struct cp_programs *all;
    struct cp_program *first, *again = NULL;
    assert_int_equal(cp_programs_new(&all), CP_OK);
    assert_int_equal(cp_programs_find(all, 3, 4, slots, &first), CP_OK);
    cp_mem_fail_at(1);
    assert_int_equal(cp_programs_find(all, 3, 4, slots, &again), CP_OK);
    assert_ptr_equal(again, first);
    assert_int_equal(cp_programs_find(all, 3, 4, other, &again), CP_E_NOMEM);
    assert_ptr_equal(again, first);
    assert_int_equal(cp_programs_find(all, 3, 4, other, &again), CP_OK);
    assert_ptr_not_equal(again, first);
    assert_int_equal(cp_programs_find(all, 3, 5, slots, &again), CP_OK);
    assert_ptr_not_equal(again, first);
    cp_programs_free(all);
}

static void test_a_deadlock_is_told_each_time(void **state)
{
    (void)state;
    const int increasing[3] = {1, 1, 2};
    struct cp_programs *all;
    struct cp_program *p = NULL;
    assert_int_equal(cp_programs_new(&all), CP_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cp_programs_find(all, 3, 3, increasing, &p), CP_E_PLAN);
        assert_string_equal(cp_err_text(),
                            "simulation: deadlock, stage 0 waits for ever in op 2 (RECV_GRAD 0)");
        assert_null(p);
    }
    cp_programs_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_lists_met_once),
        cmocka_unit_test(test_found_again_without_memory),
        cmocka_unit_test(test_a_deadlock_is_told_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
