/* Every gradient against central differences, in double, with dropout on and off, two micro-batches
 * of unequal lengths and one ignored label. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/model/kit.h"

static const struct cp_shape base = {.layers = 2,
                                     .width = 8,
                                     .heads = 2,
                                     .ffn = 12,
                                     .max_len = 7,
                                     .vocab = 11,
                                     .types = 2,
                                     .classes = 3,
                                     .norm_eps = 1e-12};
enum { B = 3, T = 5, MICROS = 2, LABELLED = 5 };

static double loss(struct chain *c, struct kit_micro *k)
{
    double sum = 0;
    for (int i = 0; i < MICROS; i++) {
        struct cp_head_result head = {0};
        (void)chain_forward(c, i, &k[i].m, &head);
        sum += head.loss_sum;
    }
    return sum / LABELLED;
}

static void check_tensor(struct chain *c, struct kit_micro *k, int block,
                         const struct cp_tensor_info *info, double total)
{
    cp_real *w = chain_plane(c, block, CP_PLANE_W) + info->offset;
    const cp_real *g = chain_plane(c, block, CP_PLANE_G) + info->offset;
    double diff = 0, size = 0;
    const double h = 1e-5;
    for (int64_t i = 0; i < info->count; i++) {
        cp_real keep = w[i];
        w[i] = keep + h;
        double up = loss(c, k);
        w[i] = keep - h;
        double want = (up - loss(c, k)) / (2 * h);
        w[i] = keep;
        diff += (g[i] - want) * (g[i] - want);
        size += want * want;
    }
    /* a tensor whose gradient is 0 (key.bias, the second token type) is held to the others' size */
    double scale = fmax(sqrt(size), 1e-3 * total);
    if (!(sqrt(diff) <= 1e-6 * scale)) {
        fail_msg("%s: relative error %g", info->name, sqrt(diff) / scale);
    }
}

static void check(double dropout)
{
    struct cp_shape s = base;
    s.dropout = dropout;
    struct chain c;
    struct kit_micro k[MICROS];
    const int cuts[] = {2};
    chain_new(&c, &s, 1, cuts, B, T, MICROS, CP_OPTIM_SGD);
    chain_init(&c, 5);
    for (int block = 0; block < cp_shape_blocks(&s); block++) {
        cp_real *w = chain_plane(&c, block, CP_PLANE_W);
        struct cp_rng r;
        cp_rng_init(&r, 6, CP_RNG_TEST, (uint32_t)block, 0);
        for (int64_t i = 0; i < cp_shape_params(&s, block, block); i++) {
            w[i] += 0.3 * cp_rng_normal(&r);
        }
    }
    for (int i = 0; i < MICROS; i++) {
        kit_micro(&k[i], &s, B, T - i, 20 + (uint64_t)i);
        k[i].m.step_labelled = LABELLED;
    }
    k[1].label[2] = CP_LABEL_IGNORE;
    (void)loss(&c, k);
    for (int i = 0; i < MICROS; i++) {
        chain_backward(&c, i, &k[i].m);
    }
    double total = sqrt(chain_norm2(&c));
    for (int block = 0; block < cp_shape_blocks(&s); block++) {
        struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
        int n = cp_shape_tensors(&s, block, info);
        for (int i = 0; i < n; i++) {
            check_tensor(&c, k, block, &info[i], total);
        }
    }
    chain_free(&c);
}

static void test_plain(void **state)
{
    (void)state;
    check(0);
}

static void test_dropout(void **state)
{
    (void)state;
    check(0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
