/* segment: clipping over segments, refused steps, no allocation, padding, initial parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/model/kit.h"

static const struct cp_shape shape = {.layers = 2,
                                      .width = 24,
                                      .heads = 3,
                                      .ffn = 40,
                                      .max_len = 20,
                                      .vocab = 40,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12};
enum { B = 3, T = 10, C = 3, BLOCKS = 4 };
static const int cut[] = {2};

static void zero(struct chain *c, enum cp_plane plane)
{
    for (int block = 0; block < BLOCKS; block++) {
        memset(chain_plane(c, block, plane), 0, chain_block_bytes(c, block));
    }
}

/* Two segments with gradients of norm 3 and 4, limit 1: every gradient is scaled by 0.2. */
static void test_clip_over_segments(void **state)
{
    (void)state;
    struct chain c;
    struct cp_optim sgd = {.kind = CP_OPTIM_SGD};
    chain_new(&c, &shape, 1, cut, B, T, 1, CP_OPTIM_SGD);
    chain_plane(&c, 0, CP_PLANE_G)[40] = 2;
    chain_plane(&c, 1, CP_PLANE_G)[7] = -2;
    chain_plane(&c, 1, CP_PLANE_G)[900] = 1;
    chain_plane(&c, 3, CP_PLANE_G)[cp_shape_params(&shape, 3, 3) - 1] = 4;
    assert_true(cp_segment_norm2(c.seg[0], 0) == 4 && cp_segment_norm2(c.seg[0], 1) == 5);
    assert_true(cp_segment_norm2(c.seg[1], 2) == 0 && cp_segment_norm2(c.seg[1], 3) == 16);
    double scale = cp_optim_clip_scale(chain_norm2(&c), 1);
    assert_true(fabs(scale - 0.2) < 1e-6);
    chain_step(&c, &sgd, 1, scale);
    assert_float_equal(chain_plane(&c, 0, CP_PLANE_W)[40], -0.4F, 1e-6F);
    assert_float_equal(chain_plane(&c, 1, CP_PLANE_W)[7], 0.4F, 1e-6F);
    assert_float_equal(chain_plane(&c, 3, CP_PLANE_W)[cp_shape_params(&shape, 3, 3) - 1], -0.8F,
                       1e-6F);
    assert_true(chain_norm2(&c) == 0); /* a step clears the gradients */
    chain_free(&c);
}

/* A value that is not finite shows in the norm of its block, wherever it is. */
static void test_not_finite(void **state)
{
    (void)state;
    struct chain c;
    chain_new(&c, &shape, 1, cut, B, T, 1, CP_OPTIM_SGD);
    for (int block = 0; block < BLOCKS; block++) {
        int64_t n = cp_shape_params(&shape, block, block);
        for (int64_t i = 0; i < n; i += i < 80 || i > n - 80 ? 1 : 97) {
            cp_real *g = &chain_plane(&c, block, CP_PLANE_G)[i];
            *g = i % 2 ? NAN : INFINITY;
            assert_false(isfinite(cp_segment_norm2(chain_owner(&c, block), block)));
            *g = 0;
        }
    }
    chain_plane(&c, 2, CP_PLANE_G)[5] = NAN;
    assert_true(isnan(cp_optim_clip_scale(chain_norm2(&c), 1)));
    cp_segment_zero_grad(c.seg[1]); /* the step is refused */
    assert_true(chain_norm2(&c) == 0);
    chain_free(&c);
}

static void test_moments(void **state)
{
    (void)state;
    struct chain c;
    struct cp_optim adamw = {CP_OPTIM_ADAMW, 0.9, 0.999, 1e-8, 0.5};
    chain_new(&c, &shape, 1, cut, B, T, 1, CP_OPTIM_ADAMW);
    struct cp_segment *seg = c.seg[1];
    cp_real *w = cp_segment_plane(seg, 2, CP_PLANE_W), *g = cp_segment_plane(seg, 2, CP_PLANE_G);
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    (void)cp_shape_tensors(&shape, 2, info);
    const int64_t bias = info[1].offset;
    assert_int_equal(*cp_segment_steps(seg, 2), 0);
    w[0] = w[bias] = 1;
    g[0] = 1;
    cp_segment_step(seg, &adamw, 0.1, 1);
    cp_segment_step(seg, &adamw, 0.1, 1);
    assert_int_equal(*cp_segment_steps(seg, 2), 2);
    assert_int_equal(*cp_segment_steps(seg, 3), 2);
    assert_true(w[bias] == 1); /* no decay of biases */
    assert_true(w[0] < 1 - 2 * 0.1F * 0.5F);
    assert_true(cp_segment_plane(seg, 2, CP_PLANE_M)[0] != 0);
    assert_true(cp_segment_plane(seg, 2, CP_PLANE_V)[0] != 0);
    cp_segment_reset_moments(seg);
    assert_true(cp_segment_plane(seg, 2, CP_PLANE_M)[0] == 0);
    assert_true(cp_segment_plane(seg, 2, CP_PLANE_V)[0] == 0);
    assert_int_equal(*cp_segment_steps(seg, 2), 0);
    chain_free(&c);

    chain_new(&c, &shape, 0, NULL, B, T, 1, CP_OPTIM_SGD);
    assert_null(cp_segment_plane(c.seg[0], 1, CP_PLANE_M));
    assert_null(cp_segment_plane(c.seg[0], 1, CP_PLANE_V));
    cp_segment_reset_moments(c.seg[0]);
    assert_int_equal(cp_segment_first(c.seg[0]), 0);
    assert_int_equal(cp_segment_last(c.seg[0]), BLOCKS - 1);
    assert_false(cp_segment_has(c.seg[0], BLOCKS));
    chain_free(&c);
}

static void test_nothing_labelled(void **state)
{
    (void)state;
    struct chain c;
    struct kit_micro k;
    struct cp_head_result head = {.labelled = 5};
    chain_new(&c, &shape, 1, cut, B, T, 1, CP_OPTIM_SGD);
    chain_init(&c, 1);
    kit_micro(&k, &shape, B, T, 1);
    k.m.step_labelled = 0;
    (void)chain_forward(&c, 0, &k.m, &head); /* labels, but none that the step counts */
    chain_backward(&c, 0, &k.m);
    assert_true(head.labelled == B && chain_norm2(&c) == 0);
    for (int i = 0; i < B; i++) {
        k.label[i] = CP_LABEL_IGNORE;
    }
    for (int i = 0; i < 2; i++) {
        (void)chain_forward(&c, 0, &k.m, &head);
        chain_backward(&c, 0, &k.m);
        assert_true(head.loss_sum == 0 && head.labelled == 0 && head.correct == 0);
        assert_true(chain_norm2(&c) == 0);
        k.m.label = NULL;
    }
    chain_free(&c);
}

static void test_no_allocation(void **state)
{
    (void)state;
    struct chain c;
    struct kit_micro k;
    struct cp_optim adamw = {CP_OPTIM_ADAMW, 0.9, 0.999, 1e-8, 0.01};
    struct cp_shape s = shape;
    s.dropout = 0.1;
    chain_new(&c, &s, 1, cut, B, T, 2, CP_OPTIM_ADAMW);
    chain_init(&c, 1);
    uint64_t allocs = c.mem.allocs;
    assert_int_equal(allocs, 6); /* three arenas each */
    kit_micro(&k, &s, B, T, 1);
    for (int i = 0; i < 3; i++) {
        cp_mem_fail_at(1); /* of any account */
        (void)chain_forward(&c, i % 2, &k.m, NULL);
        chain_backward(&c, i % 2, &k.m);
        chain_step(&c, &adamw, 1e-3, cp_optim_clip_scale(chain_norm2(&c), 1));
    }
    assert_int_equal(c.mem.allocs, allocs);
    char *p = NULL;
    assert_int_equal(cp_mem_new(NULL, 1, &p), CP_E_NOMEM); /* nobody took the failing one */
    cp_mem_fail_at(0);
    chain_free(&c);
}

/* Runs k and copies logits and gradients out. */
struct outcome {
    cp_real logits[B * C];
    double loss;
    cp_real *grad[BLOCKS];
};

static void run(struct chain *c, const struct kit_micro *k, struct outcome *o)
{
    struct cp_head_result head = {0};
    zero(c, CP_PLANE_G);
    const cp_real *y = chain_forward(c, 0, &k->m, &head);
    memcpy(o->logits, y, (size_t)k->m.b * C * sizeof *y);
    o->loss = head.loss_sum;
    chain_backward(c, 0, &k->m);
    for (int block = 0; block < BLOCKS; block++) {
        assert_int_equal(cp_mem_new(NULL, chain_block_bytes(c, block), &o->grad[block]), CP_OK);
        memcpy(o->grad[block], chain_plane(c, block, CP_PLANE_G), chain_block_bytes(c, block));
    }
}

static void drop_outcome(struct outcome *o)
{
    for (int block = 0; block < BLOCKS; block++) {
        cp_mem_free(o->grad[block]);
    }
}

/* The same samples padded to more tokens, with other ids there: the same results. */
static void test_padding(void **state)
{
    (void)state;
    struct chain c;
    struct kit_micro k, wide;
    struct outcome a, b;
    struct cp_shape s = shape;
    s.dropout = 0.1;
    chain_new(&c, &s, 1, cut, B, 2 * T, 1, CP_OPTIM_SGD);
    chain_init(&c, 4);
    kit_micro(&k, &s, B, T, 1);
    k.len[1] = 2; /* [CLS] [SEP] */
    kit_micro(&wide, &s, B, T, 1);
    wide.m.t = T + 7;
    wide.len[1] = 2;
    for (int i = 0; i < B; i++) {
        for (int j = 0; j < T + 7; j++) {
            wide.ids[i * (T + 7) + j] = j < k.len[i] ? k.ids[i * T + j] : (j * 5 + i) % 40;
        }
    }
    run(&c, &k, &a);
    run(&c, &wide, &b);
    assert_true(kit_error(b.logits, a.logits, (int64_t)B * C) < 1e-6);
    assert_true(fabs(b.loss / a.loss - 1) < 1e-6);
    for (int block = 0; block < BLOCKS; block++) {
        int64_t n = cp_shape_params(&s, block, block);
        assert_true(kit_error(b.grad[block], a.grad[block], n) < 1e-6);
    }
    drop_outcome(&a);
    drop_outcome(&b);
    chain_free(&c);
}

/* A segment in the middle: outputs and gradients of padding are finite whatever the slot held. */
static void test_padding_is_finite(void **state)
{
    (void)state;
    struct cp_mem mem = {.name = "node"};
    struct cp_segment *seg;
    struct kit_micro k;
    assert_int_equal(cp_segment_new(&shape, 1, 2, B, T, 1, CP_OPTIM_SGD, &mem, &seg), CP_OK);
    cp_block_init(&shape, 1, 0.02, 8, cp_segment_plane(seg, 1, CP_PLANE_W));
    cp_block_init(&shape, 2, 0.02, 8, cp_segment_plane(seg, 2, CP_PLANE_W));
    kit_micro(&k, &shape, B, T, 1);
    struct cp_cost cost = cp_shape_cost(&shape, 1, 2, B, T, 1, 0);
    size_t meta = 3 * 64; /* keeps to the part of the slot that blocks use */
    memset(cp_segment_input(seg, 0), 0xFF, cost.slot_bytes - meta);
    for (int i = 0; i < B; i++) {
        k.len[i] = 1 + i;
    }
    const int n = B * T * shape.width;
    cp_real *x = cp_segment_input(seg, 0), *dy = cp_segment_grad_out(seg);
    for (int i = 0; i < n; i++) {
        x[i] = 0.25F; /* rows without any spread: the hardest case of LayerNorm */
        dy[i] = (cp_real)(i % 5);
    }
    const cp_real *y = cp_segment_forward(seg, 0, &k.m, NULL);
    for (int i = 0; i < n; i++) {
        assert_true(isfinite(y[i]));
    }
    const cp_real *dx = cp_segment_backward(seg, 0, &k.m);
    assert_true(dx != dy); /* filling the next gradient leaves this one alone */
    for (int i = 0; i < n; i++) {
        assert_true(isfinite(dx[i]));
    }
    assert_true(isfinite(cp_segment_norm2(seg, 1)) && isfinite(cp_segment_norm2(seg, 2)));
    cp_segment_free(seg);
}

static void test_init(void **state)
{
    (void)state;
    static cp_real p[20000], q[20000];
    for (int block = 0; block < BLOCKS; block++) {
        struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
        int n = cp_shape_tensors(&shape, block, info);
        int64_t count = cp_shape_params(&shape, block, block);
        assert_true(count <= 20000);
        cp_block_init(&shape, block, 0.02, 5, p);
        cp_block_init(&shape, block, 0.02, 5, q);
        assert_memory_equal(p, q, (size_t)count * sizeof *p);
        cp_block_init(&shape, block, 0.02, 6, q);
        assert_memory_not_equal(p, q, (size_t)count * sizeof *p);
        for (int i = 0; i < n; i++) {
            double sum2 = 0;
            for (int64_t j = 0; j < info[i].count; j++) {
                cp_real w = p[info[i].offset + j];
                bool gain = strstr(info[i].name, "LayerNorm.weight") != NULL;
                assert_true(info[i].rank == 2 ? fabs((double)w) <= 0.04 : w == (gain ? 1 : 0));
                sum2 += (double)w * (double)w;
            }
            if (info[i].count >= 500) { /* deviation of the truncated normal: 0.8796 sigma */
                double deviation = sqrt(sum2 / (double)info[i].count) / 0.02;
                assert_true(deviation > 0.78 && deviation < 0.98);
            }
        }
    }
    cp_block_init(&shape, 1, 0.02, 5, p);
    cp_block_init(&shape, 2, 0.02, 5, q);
    assert_memory_not_equal(p, q, 64 * sizeof *p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip_over_segments),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_nothing_labelled),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_padding_is_finite),
        cmocka_unit_test(test_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
