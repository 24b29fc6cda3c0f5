/* Wherever the model is cut and however its slots are used, gradients and steps are bitwise the
 * same; however a step is divided into micro-batches, they are the same up to rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/model/kit.h"

#include <pthread.h>

static const struct cp_shape shape = {.layers = 3,
                                      .width = 24,
                                      .heads = 3,
                                      .ffn = 40,
                                      .max_len = 14,
                                      .vocab = 40,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12,
                                      .dropout = 0.1};
enum { B = 4, T = 12, MICROS = 3, STEPS = 3, BLOCKS = 5 };

/* One step in some order of forwards and backwards; backwards ascend. */
enum order { SEQUENTIAL, ALL_FIRST, ROTATED, REDONE };

static void one_step(struct chain *c, struct kit_micro *k, enum order order)
{
    if (order == SEQUENTIAL || order == REDONE) {
        for (int i = 0; i < MICROS; i++) {
            (void)chain_forward(c, 0, &k[i].m, NULL);
            if (order == REDONE) { /* something else in the slot, then the same once more */
                struct cp_micro eval = k[(i + 1) % MICROS].m;
                eval.train = false;
                (void)chain_forward(c, 0, &eval, NULL);
                (void)chain_forward(c, 0, &k[i].m, NULL);
            }
            chain_backward(c, 0, &k[i].m);
        }
        return;
    }
    int shift = order == ROTATED;
    for (int i = MICROS - 1; i >= 0; i--) {
        (void)chain_forward(c, (i + shift) % MICROS, &k[i].m, NULL);
    }
    for (int i = 0; i < MICROS; i++) {
        chain_backward(c, (i + shift) % MICROS, &k[i].m);
    }
}

static void train(struct chain *c, enum order order)
{
    struct cp_optim opt = {CP_OPTIM_ADAMW, 0.9, 0.999, 1e-8, 0.01};
    chain_init(c, 77);
    for (int step = 0; step < STEPS; step++) {
        struct kit_micro k[MICROS];
        for (int i = 0; i < MICROS; i++) {
            kit_micro(&k[i], &shape, B - i, T - 3 * i, (uint64_t)(step * MICROS + i));
            k[i].m.step_labelled = B + (B - 1) + (B - 2);
            k[i].m.step = (uint32_t)step;
        }
        one_step(c, k, order);
        double norm2 = chain_norm2(c);
        assert_true(norm2 > 0 && isfinite(norm2));
        chain_step(c, &opt, 1e-3, cp_optim_clip_scale(norm2, 0.5));
    }
    /* leave gradients of one more step to be compared */
    struct kit_micro k[MICROS];
    for (int i = 0; i < MICROS; i++) {
        kit_micro(&k[i], &shape, B, T, 50 + (uint64_t)i);
    }
    one_step(c, k, order);
}

static void assert_same(struct chain *a, struct chain *b)
{
    for (int block = 0; block < BLOCKS; block++) {
        for (int plane = CP_PLANE_W; plane <= CP_PLANE_V; plane++) {
            assert_memory_equal(chain_plane(a, block, (enum cp_plane)plane),
                                chain_plane(b, block, (enum cp_plane)plane),
                                chain_block_bytes(a, block));
        }
        assert_int_equal(*cp_segment_steps(chain_owner(a, block), block), STEPS);
        assert_int_equal(*cp_segment_steps(chain_owner(b, block), block), STEPS);
        assert_true(cp_segment_norm2(chain_owner(a, block), block) ==
                    cp_segment_norm2(chain_owner(b, block), block));
    }
}

static void test_every_cut(void **state)
{
    (void)state;
    struct chain whole, parts;
    chain_new(&whole, &shape, 0, NULL, B, T, 1, CP_OPTIM_ADAMW);
    train(&whole, SEQUENTIAL);
    for (int mask = 0; mask < 1 << (BLOCKS - 1); mask++) {
        int cut[BLOCKS], cuts = 0;
        for (int i = 0; i < BLOCKS - 1; i++) {
            if (mask >> i & 1) {
                cut[cuts++] = i + 1;
            }
        }
        /* room for more than is needed must not matter either */
        chain_new(&parts, &shape, cuts, cut, B + mask % 3, T + mask % 2, MICROS, CP_OPTIM_ADAMW);
        train(&parts, (enum order)(mask % 4));
        assert_same(&whole, &parts);
        chain_free(&parts);
    }
    chain_free(&whole);
}

static void *train_alone(void *arg)
{
    train(arg, SEQUENTIAL);
    return NULL;
}

/* Nodes of one process compute at the same time. */
static void test_threads(void **state)
{
    (void)state;
    struct chain c[3];
    pthread_t thread[2];
    for (int i = 0; i < 3; i++) {
        chain_new(&c[i], &shape, 0, NULL, B, T, 1, CP_OPTIM_ADAMW);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, train_alone, &c[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    train(&c[2], SEQUENTIAL);
    assert_same(&c[2], &c[0]);
    assert_same(&c[2], &c[1]);
    for (int i = 0; i < 3; i++) {
        chain_free(&c[i]);
    }
}

/* The same samples as one micro-batch, or one by one, each cut to its own length: same dropout,
 * same denominator, so the same gradient. */
static void test_division_into_micros(void **state)
{
    (void)state;
    struct chain one, many;
    struct kit_micro k;
    chain_new(&one, &shape, 0, NULL, B, T, 1, CP_OPTIM_SGD);
    chain_new(&many, &shape, 0, NULL, B, T, 1, CP_OPTIM_SGD);
    chain_init(&one, 77);
    chain_init(&many, 77);
    kit_micro(&k, &shape, B, T, 9);
    k.len[1] = 2;
    k.label[2] = CP_LABEL_IGNORE;
    k.m.step_labelled = B - 1;
    struct cp_head_result head = {0};
    double loss = 0;
    (void)chain_forward(&one, 0, &k.m, &head);
    chain_backward(&one, 0, &k.m);
    for (int i = 0; i < B; i++) {
        struct cp_micro m = k.m;
        m.b = 1;
        m.t = k.len[i];
        m.len += i;
        m.sample += i;
        m.label += i;
        m.ids += (ptrdiff_t)i * T;
        struct cp_head_result part = {0};
        (void)chain_forward(&many, 0, &m, &part);
        chain_backward(&many, 0, &m);
        loss += part.loss_sum;
    }
    assert_true(fabs(loss / head.loss_sum - 1) < 1e-6);
    assert_int_equal(head.labelled, B - 1);
    for (int block = 0; block < BLOCKS; block++) {
        double error =
            kit_error(chain_plane(&many, block, CP_PLANE_G), chain_plane(&one, block, CP_PLANE_G),
                      cp_shape_params(&shape, block, block));
        assert_true(error < 1e-6);
    }
    chain_free(&one);
    chain_free(&many);
}

/* Samples of 11 and 101 tokens in one micro-batch or in two, on one, two and three stages (field
 * case B14): one denominator for the step, so the same gradient. */
static void test_unequal_lengths(void **state)
{
    (void)state;
    enum { LONG = 101, SHORT = 11 };
    static const int cut[] = {1, 3};
    struct cp_shape s = shape;
    struct chain one, two;
    int32_t ids[2 * LONG] = {0}, len[] = {SHORT, LONG}, label[] = {2, 0};
    int64_t sample[] = {4, 5};
    s.max_len = LONG;
    for (int i = 0; i < 2 * LONG; i++) {
        ids[i] = i < SHORT || i >= LONG ? (i * 7) % s.vocab : 0;
    }
    chain_new(&one, &s, 0, NULL, 2, LONG, 1, CP_OPTIM_SGD);
    chain_init(&one, 77);
    struct cp_micro both = {2, LONG, len, sample, ids, label, 2, 3, 1, true};
    (void)chain_forward(&one, 0, &both, NULL);
    chain_backward(&one, 0, &both);
    for (int cuts = 0; cuts <= 2; cuts++) {
        chain_new(&two, &s, cuts, cut, 1, LONG, 2, CP_OPTIM_SGD);
        chain_init(&two, 77);
        for (int i = 0; i < 2; i++) {
            struct cp_micro m = {1,         len[i], len + i, sample + i, ids + (ptrdiff_t)i * LONG,
                                 label + i, 2,      3,       1,          true};
            (void)chain_forward(&two, i, &m, NULL);
            chain_backward(&two, i, &m);
        }
        for (int block = 0; block < BLOCKS; block++) {
            assert_true(kit_error(chain_plane(&two, block, CP_PLANE_G),
                                  chain_plane(&one, block, CP_PLANE_G),
                                  cp_shape_params(&s, block, block)) < 1e-6);
        }
        chain_free(&two);
    }
    chain_free(&one);
}

/* Dropout is on in the tests above: seed, step and sample each change the logits; evaluation knows
 * none of them. */
static void test_dropout_is_on(void **state)
{
    (void)state;
    struct chain c;
    struct kit_micro k;
    cp_real base[B * 3];
    chain_new(&c, &shape, 0, NULL, B, T, 1, CP_OPTIM_SGD);
    chain_init(&c, 77);
    for (int train = 0; train <= 1; train++) {
        kit_micro(&k, &shape, B, T, 9);
        k.m.train = train == 1;
        memcpy(base, chain_forward(&c, 0, &k.m, NULL), sizeof base);
        for (int change = 0; change < 3; change++) {
            kit_micro(&k, &shape, B, T, 9);
            k.m.train = train == 1;
            k.m.seed += change == 0;
            k.m.step += change == 1;
            k.sample[0] += change == 2;
            const cp_real *y = chain_forward(&c, 0, &k.m, NULL);
            assert_int_equal(memcmp(y, base, 3 * sizeof *y) != 0, train);
        }
    }
    chain_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_division_into_micros),
        cmocka_unit_test(test_unequal_lengths),
        cmocka_unit_test(test_dropout_is_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
