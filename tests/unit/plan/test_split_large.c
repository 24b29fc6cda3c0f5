/* The dynamic program for many devices: types, the beam, and limits (docs/theory.md section 11.2).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "unit/plan/splits.h"

/* Twins are used in one order only: the same value as if every device were one of its own. A byte
 * of memory tells devices apart and changes nothing else. */
static void types_equal_sets(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_split list[CP_DEVICES_MAX];
        struct cp_split_result types, sets;
        int devices = seed <= 20 ? 8 : 12, kinds = seed <= 20 ? 1 + (int)(seed % 4) : 3;
        toy_world(&w, 1, devices, 16, seed);
        toy_queues(&q, &w, 10, seed);
        for (int k = kinds; k < devices; k++) {
            make_twin(&w, &q, 0, k % kinds, k);
        }
        for (int a = 0; a < devices; a++) { /* gains depend on the types alone */
            double inside = w.cluster[0].gain_d2d[0][a % kinds + 1];
            for (int b = 0; b < devices; b++) {
                double g = w.cluster[0].gain_d2d[a % kinds + 1][b % kinds + 1];
                w.cluster[0].gain_d2d[a + 1][b + 1] = a % kinds == b % kinds ? inside : g;
            }
        }
        int n = all_splits(list, &w, &room, &q, 4, (enum cp_order)(seed % 3));
        assert_int_equal(cp_split_best(list, n, &work, &types), CP_OK);
        assert_int_equal(types.kind, devices > 10 ? CP_SPLIT_TYPES : CP_SPLIT_EXACT);
        for (int k = 0; k < devices; k++) {
            w.cluster[0].device[k].mem_bytes += (size_t)k;
        }
        cp_room_init(&room, &w, 0);
        assert_int_equal(cp_split_best(list, n, &work, &sets), CP_OK);
        assert_int_equal(sets.kind, devices > 10 ? CP_SPLIT_BEAM : CP_SPLIT_EXACT);
        assert_true(types.found && sets.found);
        if (devices <= 10) {
            assert_true(near_rel(types.value, sets.value, 1e-12));
        } else {
            assert_true(types.value <= sets.value * (1 + 1e-12));
            assert_true(sets.value <= types.value * 1.2);
        }
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

/* Above CP_SPLIT_EXACT_DEVICES the search is a beam: it must still find what fits at all. */
static void beam_finds_a_tight_placement(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct cp_world w;
        static struct cp_room room;
        struct cp_rng r;
        toy_world(&w, 1, 12, 24, seed);
        cp_rng_init(&r, seed, CP_RNG_TEST, 5, 0);
        int sum = 0; /* together exactly 24 layers with one slot, no layer to spare */
        for (int k = 0; k < 12; k++) {
            int room_for = k == 11 ? 24 - sum : 1 + (int)cp_rng_below(&r, 3);
            room_for = room_for < 24 - sum - (11 - k) ? room_for : 24 - sum - (11 - k);
            sum += room_for;
            w.cluster[0].device[k].mem_bytes = toy_bytes(&TOY, room_for, 1);
        }
        assert_int_equal(sum, 24);
        cp_room_init(&room, &w, 0);
        struct cp_split s;
        struct cp_split_result got;
        cp_split_init(&s, &w, 0, &room, NULL, 12, 4, CP_ORDER_SEQ);
        assert_int_equal(cp_split_solve(&s, &work, &got), CP_OK);
        assert_true(got.found);
        assert_true(cp_draft_fits(&got.plan, &room));
        w.cluster[0].device[3].mem_bytes--;
        cp_room_init(&room, &w, 0);
        assert_int_equal(cp_split_solve(&s, &work, &got), CP_OK);
        assert_false(got.found);
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

/* The beam against the exact program: devices without room make a cluster too large for it and
 * change no placement. */
static void beam_is_close(void **state)
{
    (void)state;
    enum { WORLDS = 24 };
    struct cp_split_work work = {0};
    static struct cp_room room;
    double sum = 0, worst = 0;
    int same = 0;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_split list[CP_DEVICES_MAX];
        struct cp_split_result exact, beam;
        int devices = 9 + (int)(seed % 2);
        toy_world(&w, 1, 12, 24, seed);
        toy_queues(&q, &w, seed % 4 < 2 ? 30 : 3, seed);
        for (int k = devices; k < 12; k++) {
            w.cluster[0].device[k].present = false;
        }
        all_splits(list, &w, &room, &q, 8, seed % 3 ? CP_ORDER_GPIPE : CP_ORDER_1F1B);
        assert_int_equal(cp_split_best(list, devices, &work, &exact), CP_OK);
        assert_int_equal(exact.kind, CP_SPLIT_EXACT);
        for (int k = devices; k < 12; k++) {
            w.cluster[0].device[k].present = true;
            w.cluster[0].device[k].mem_bytes = (size_t)k;
        }
        cp_room_init(&room, &w, 0);
        assert_int_equal(cp_split_best(list, devices, &work, &beam), CP_OK);
        assert_int_equal(beam.kind, CP_SPLIT_BEAM);
        assert_int_equal(beam.found, exact.found);
        if (exact.found) {
            double gap = beam.value / exact.value - 1;
            assert_true(gap >= -1e-12);
            same += gap < 1e-9;
            sum += gap;
            worst = fmax(worst, gap);
        }
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    print_message("beam: %d of %d exact, gap %.3f %% in the mean, %.3f %% at most\n", same, WORLDS,
                  100 * sum / WORLDS, 100 * worst);
    assert_true(sum / WORLDS < 0.02);
    cp_split_work_fini(&work);
}

/* Too little memory for labels: a heuristic that says so. */
static void few_labels(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    struct cp_world w;
    struct cp_split list[CP_DEVICES_MAX];
    struct cp_split_result all, few;
    toy_world(&w, 1, 8, 24, 5);
    int n = all_splits(list, &w, &room, NULL, 8, CP_ORDER_1F1B);
    assert_int_equal(cp_split_best(list, n, &work, &all), CP_OK);
    work.label_limit = 40;
    assert_int_equal(cp_split_best(list, n, &work, &few), CP_OK);
    assert_int_equal(all.kind, CP_SPLIT_EXACT);
    assert_int_equal(few.kind, CP_SPLIT_BEAM);
    assert_true(few.found && few.value >= all.value * (1 - 1e-12));
    cp_world_fini(&w);
    cp_split_work_fini(&work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_equal_sets),
        cmocka_unit_test(beam_finds_a_tight_placement),
        cmocka_unit_test(beam_is_close),
        cmocka_unit_test(few_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
