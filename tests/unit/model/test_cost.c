/* cost: the promises of the size function are what a segment holds, to the last byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/model/kit.h"

static const struct cp_shape small = {.layers = 3,
                                      .width = 20,
                                      .heads = 4,
                                      .ffn = 36,
                                      .max_len = 11,
                                      .vocab = 31,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12,
                                      .dropout = 0.1};

static void check_held(int first, int last, int b, int t, int slots, enum cp_optim_kind optim)
{
    struct cp_mem mem = {.name = "node"};
    struct cp_segment *seg;
    struct cp_cost cost = cp_shape_cost(&small, first, last, b, t, slots, cp_optim_words(optim));
    assert_int_equal(cost.total_bytes,
                     cost.weight_bytes + (size_t)slots * cost.slot_bytes + cost.scratch_bytes);
    assert_int_equal(cp_segment_new(&small, first, last, b, t, slots, optim, &mem, &seg), CP_OK);
    assert_int_equal(mem.held_bytes, cost.total_bytes);
    assert_int_equal(mem.peak_bytes, cost.total_bytes);
    cp_segment_free(seg);
    assert_int_equal(mem.held_bytes, 0);

    mem.limit_bytes = cost.total_bytes; /* just enough */
    assert_int_equal(cp_segment_new(&small, first, last, b, t, slots, optim, &mem, &seg), CP_OK);
    cp_segment_free(seg);
    mem.limit_bytes--;
    assert_int_equal(cp_segment_new(&small, first, last, b, t, slots, optim, &mem, &seg),
                     CP_E_NOMEM);
    assert_int_equal(mem.held_bytes, 0);
}

static void test_memory_law(void **state)
{
    (void)state;
    const int bs[] = {1, 3, 8}, ts[] = {1, 5, 11}, slot_counts[] = {1, 2, 5};
    for (int first = 0; first < 5; first++) {
        for (int last = first; last < 5; last++) {
            for (int i = 0; i < 27; i++) {
                check_held(first, last, bs[i / 9], ts[i / 3 % 3], slot_counts[i % 3],
                           i % 2 ? CP_OPTIM_ADAMW : CP_OPTIM_SGD);
            }
        }
    }
}

/* docs/theory.md section 3, b = 4, 128 tokens. */
static void test_check_values(void **state)
{
    (void)state;
    struct cp_shape s = {.layers = 12,
                         .width = 768,
                         .heads = 12,
                         .ffn = 3072,
                         .max_len = 512,
                         .vocab = 30522,
                         .types = 2,
                         .classes = 2,
                         .norm_eps = 1e-12};
    struct cp_cost one = cp_shape_cost(&s, 1, 1, 4, 128, 1, 2);
    struct cp_cost two = cp_shape_cost(&s, 1, 2, 4, 128, 3, 2);
    size_t saved = two.slot_bytes - one.slot_bytes; /* of one block, without what a slot adds */
    assert_int_equal(saved, 4 * (16LL * 4 * 128 * 768 + 4LL * 12 * 128 * 128 + 2LL * 4 * 128));
    assert_true(fabs((double)saved / (1 << 20) - 27.0) < 0.01);
    assert_int_equal(one.slot_bytes - saved, 3 * 64); /* b and t, lengths, samples */
    assert_true(fabs(one.work_fwd_flops / 1e9 - 7.449) < 0.001);
    assert_true(one.work_bwd_flops == 2 * one.work_fwd_flops);
    assert_int_equal(one.boundary_bytes, 3 << 19);
    assert_int_equal(one.params, 7087872);
    assert_int_equal(two.params, 2 * 7087872);
    size_t planes = 4 * 4 * (size_t)one.params; /* weight, gradient, two moments */
    assert_true(one.weight_bytes >= planes && one.weight_bytes - planes < 2048);
    struct cp_cost sgd = cp_shape_cost(&s, 1, 1, 4, 128, 1, 0);
    assert_int_equal(one.weight_bytes - sgd.weight_bytes, planes / 2);

    s.width = 512;
    s.heads = 8;
    s.ffn = 2048;
    one = cp_shape_cost(&s, 1, 1, 4, 128, 1, 2);
    two = cp_shape_cost(&s, 1, 2, 4, 128, 1, 2);
    assert_true(fabs(one.work_fwd_flops / 1e9 - 3.355) < 0.001);
    assert_true(fabs((double)(two.slot_bytes - one.slot_bytes) / (1 << 20) - 18.0) < 0.01);
    assert_int_equal(one.boundary_bytes, 1 << 20);
}

static void test_flops_of_ends(void **state)
{
    (void)state;
    struct cp_cost emb = cp_shape_cost(&small, 0, 0, 2, 7, 1, 0);
    struct cp_cost head = cp_shape_cost(&small, 4, 4, 2, 7, 1, 0);
    struct cp_cost all = cp_shape_cost(&small, 0, 4, 2, 7, 1, 0);
    struct cp_cost enc = cp_shape_cost(&small, 1, 3, 2, 7, 1, 0);
    assert_true(emb.work_fwd_flops == 30.0 * 2 * 7 * 20);
    assert_true(emb.work_bwd_flops == emb.work_fwd_flops);
    assert_true(head.work_fwd_flops == 2.0 * 2 * 20 * 20 + 2.0 * 2 * 20 * 3);
    assert_true(head.work_bwd_flops == 2 * head.work_fwd_flops);
    assert_true(
        fabs(all.work_fwd_flops / (emb.work_fwd_flops + enc.work_fwd_flops + head.work_fwd_flops) -
             1) < 1e-12);
}

/* Every failing allocation leaves nothing behind, and the output untouched. */
static void test_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        struct cp_mem mem = {.name = "c1.d2"};
        struct cp_segment *seg = NULL;
        cp_mem_fail_at(n);
        assert_int_equal(cp_segment_new(&small, 0, 4, 2, 4, 2, CP_OPTIM_ADAMW, &mem, &seg),
                         CP_E_NOMEM);
        assert_null(seg);
        assert_int_equal(mem.held_bytes, 0);
        assert_non_null(strstr(cp_err_text(), "blocks 0..4"));
        assert_non_null(strstr(cp_err_text(), "c1.d2"));
    }
    cp_mem_fail_at(0);
    cp_segment_free(NULL);
}

static void refuse(int first, int last, int b, int t, int slots, const char *word)
{
    struct cp_mem mem = {.name = "node"};
    struct cp_segment *seg = NULL;
    assert_int_equal(cp_segment_new(&small, first, last, b, t, slots, CP_OPTIM_SGD, &mem, &seg),
                     CP_E_CONFIG);
    assert_null(seg);
    assert_int_equal(mem.allocs, 0);
    if (!strstr(cp_err_text(), word)) {
        fail_msg("'%s' does not say %s", cp_err_text(), word);
    }
}

static void test_refused(void **state)
{
    (void)state;
    refuse(-1, 2, 1, 4, 1, "blocks");
    refuse(3, 2, 1, 4, 1, "blocks");
    refuse(0, 5, 1, 4, 1, "blocks");
    refuse(0, 4, 0, 4, 1, "samples");
    refuse(0, 4, INT32_MAX, 4, 1, "samples");
    refuse(0, 4, 1, 0, 1, "tokens");
    refuse(0, 4, 1, 12, 1, "max_len");
    refuse(0, 4, 1, 4, 0, "slots");
    struct cp_shape s = small;
    struct cp_segment *seg = NULL;
    s.heads = 3;
    assert_int_equal(cp_segment_new(&s, 0, 4, 1, 4, 1, CP_OPTIM_SGD, NULL, &seg), CP_E_CONFIG);
    assert_non_null(strstr(cp_err_text(), "heads"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_law),    cmocka_unit_test(test_check_values),
        cmocka_unit_test(test_flops_of_ends), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
