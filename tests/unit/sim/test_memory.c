/* Micro-batches in flight and what they hold in memory (docs/theory.md section 16, item 3): op
 * lists on the virtual clock say how many a stage holds at once, real segments how many bytes that
 * is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/segment.h"
#include "sim/sim.h"
#include "unit/pipe/lists.h"

enum { SEGMENTS = 2, STAGES = SEGMENTS + 2, MOST = 9, B = 2, T = 5 };

static const struct cp_shape SHAPE = {.layers = 4,
                                      .width = 16,
                                      .heads = 2,
                                      .ffn = 24,
                                      .max_len = T,
                                      .vocab = 30,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12};
static const int FIRST[STAGES] = {0, 1, 2, 5}, LAST[STAGES] = {0, 1, 4, 5};

/* Bytes that a stage holds with this many slots. */
static size_t held_bytes(int stage, int slots)
{
    struct cp_mem mem = {.name = "stage"};
    struct cp_segment *seg;
    assert_int_equal(
        cp_segment_new(&SHAPE, FIRST[stage], LAST[stage], B, T, slots, CP_OPTIM_ADAMW, &mem, &seg),
        CP_OK);
    size_t held = mem.held_bytes;
    cp_segment_free(seg);
    return held;
}

/* Most micro-batches in flight at every stage, whatever the times. */
static void run(enum cp_order order, int micros, struct cp_rng *r, int peak[STAGES])
{
    struct cp_ops lists[STAGES];
    struct cp_times t = {.segments = SEGMENTS};
    struct cp_sim_step s;
    int slots[STAGES];
    for (int j = 0; j < STAGES; j++) {
        slots[j] = cp_order_slots(order, SEGMENTS, micros, j);
        t.fwd_s[j] = cp_rng_range(r, 0.1, 2);
        t.bwd_s[j] = cp_rng_range(r, 0.1, 4);
        if (j + 1 < STAGES) {
            t.link_fwd_s[j] = cp_rng_range(r, 0, 2);
            t.link_bwd_s[j] = cp_rng_range(r, 0, 2);
        }
    }
    lists_make(lists, STAGES, micros, slots, true);
    assert_int_equal(cp_sim_step(lists, STAGES, &t, NULL, &s), CP_OK);
    for (int j = 0; j < STAGES; j++) {
        peak[j] = s.in_flight_peak[j];
        assert_in_range(peak[j], 1, slots[j]);
    }
    lists_fini(lists, STAGES);
}

static void memory_rises_with_m_in_gpipe_only(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 3, CP_RNG_TEST, 3, 0);
    for (int i = 0; i < 20; i++) {
        size_t gpipe[MOST + 1][STAGES], ahead[MOST + 1][STAGES];
        for (int m = 1; m <= MOST; m++) {
            int peak[STAGES];
            run(CP_ORDER_GPIPE, m, &r, peak);
            for (int j = 0; j < STAGES; j++) {
                gpipe[m][j] = held_bytes(j, peak[j]);
            }
            run(CP_ORDER_1F1B, m, &r, peak);
            for (int j = 0; j < STAGES; j++) {
                ahead[m][j] = held_bytes(j, peak[j]);
            }
        }
        for (int j = 0; j < STAGES; j++) {
            size_t slot = cp_shape_cost(&SHAPE, FIRST[j], LAST[j], B, T, 1, 2).slot_bytes;
            for (int m = 2; m <= MOST; m++) {
                assert_int_equal(gpipe[m][j] - gpipe[m - 1][j], slot); /* a straight line */
                size_t more = m <= SEGMENTS + 2 - j ? slot : 0;        /* then flat */
                assert_int_equal(ahead[m][j] - ahead[m - 1][j], more);
            }
            assert_int_equal(gpipe[1][j], ahead[1][j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_rises_with_m_in_gpipe_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
