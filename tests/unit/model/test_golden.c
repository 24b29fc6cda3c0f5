/* Against PyTorch in float64 (tests/golden/make_golden.py): logits, loss, every gradient, and the
 * parameters after ten steps, as one segment and cut in three. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/model/golden.h"
#include "unit/model/kit.h"

#include <stdio.h>

enum { STEPS = 10, MICROS = 2, B = 3, T = 7, C = 3, LABELLED = 5 };
static const double tolerance = 1e-5;

static struct cp_shape shape(double dropout)
{
    return (struct cp_shape){.layers = 2,
                             .width = 16,
                             .heads = 2,
                             .ffn = 32,
                             .max_len = 9,
                             .vocab = 50,
                             .types = 2,
                             .classes = C,
                             .norm_eps = 1e-12,
                             .dropout = dropout};
}

static const cp_real *tensor(const struct golden *g, const char *group, const char *name,
                             int64_t count)
{
    struct cp_str full = {0};
    cp_str_printf(&full, "%s/%s", group, name);
    const cp_real *p = golden_get(g, cp_str_text(&full), "F32", (size_t)count, sizeof(float));
    cp_str_fini(&full);
    return p;
}

static void load(struct chain *c, const struct golden *g)
{
    for (int block = 0; block < cp_shape_blocks(&c->shape); block++) {
        struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
        int n = cp_shape_tensors(&c->shape, block, info);
        cp_real *w = chain_plane(c, block, CP_PLANE_W);
        for (int i = 0; i < n; i++) {
            memcpy(w + info[i].offset, tensor(g, "init", info[i].name, info[i].count),
                   (size_t)info[i].count * sizeof *w);
        }
    }
}

/* Softmax does not change when all scores of a row move together, so the gradient of a key's bias
 * is 0 and what is computed is rounding, which AdamW would turn into steps. */
static bool is_key_bias(const char *name)
{
    return strstr(name, "key.bias") != NULL;
}

static void compare(struct chain *c, enum cp_plane plane, const struct golden *g, const char *group)
{
    double floor = plane == CP_PLANE_G ? 1e-6 * sqrt(chain_norm2(c)) : 1e-2;
    for (int block = 0; block < cp_shape_blocks(&c->shape); block++) {
        struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
        int n = cp_shape_tensors(&c->shape, block, info);
        const cp_real *p = chain_plane(c, block, plane);
        for (int i = 0; i < n; i++) {
            const cp_real *want = tensor(g, group, info[i].name, info[i].count);
            double error = kit_error(p + info[i].offset, want, info[i].count);
            if (is_key_bias(info[i].name) && strcmp(group, "sgd") != 0) {
                for (int64_t j = 0; j < info[i].count; j++) {
                    assert_true(fabs(p[info[i].offset + j] - want[j]) < floor);
                }
            } else if (!(error <= tolerance)) {
                fail_msg("%s/%s: relative error %g", group, info[i].name, error);
            }
        }
    }
}

static struct cp_micro micro(const struct golden *g, int step, int micro)
{
    size_t all = (size_t)STEPS * MICROS * B, at = ((size_t)step * MICROS + (size_t)micro) * B;
    const int32_t *len = golden_get(g, "len", "I32", all, sizeof(int32_t));
    const int32_t *ids = golden_get(g, "ids", "I32", all * T, sizeof(int32_t));
    const int32_t *label = golden_get(g, "label", "I32", all, sizeof(int32_t));
    const int64_t *sample = golden_get(g, "sample", "I64", all, sizeof(int64_t));
    return (struct cp_micro){.b = B,
                             .t = T,
                             .len = len + at,
                             .sample = sample + at,
                             .ids = ids + at * T,
                             .label = label + at,
                             .step_labelled = LABELLED,
                             .seed = 0x123456789ABCDEF0U,
                             .step = 7,
                             .train = true};
}

static void first_step(struct chain *c, const struct golden *plain, const struct golden *g)
{
    const float *logits = golden_get(g, "logits", "F32", (size_t)MICROS * B * C, sizeof(float));
    const double *loss = golden_get(g, "loss", "F64", 1, sizeof(double));
    double sum = 0;
    int64_t labelled = 0;
    for (int i = 0; i < MICROS; i++) {
        struct cp_micro m = micro(plain, 0, i);
        struct cp_head_result head = {0};
        const cp_real *y = chain_forward(c, 0, &m, &head);
        assert_true(kit_error(y, logits + (size_t)i * B * C, (int64_t)B * C) <= tolerance);
        chain_backward(c, 0, &m);
        sum += head.loss_sum;
        labelled += head.labelled;
    }
    assert_int_equal(labelled, LABELLED);
    assert_true(fabs(sum - *loss) <= tolerance * *loss);
    compare(c, CP_PLANE_G, g, "grad");
}

static void train(struct chain *c, const struct golden *g, const char *group,
                  const struct cp_optim *opt, double base)
{
    char name[32];
    snprintf(name, sizeof name, "%s_norm", group);
    const double *norm = golden_get(g, name, "F64", STEPS, sizeof(double));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < MICROS; i++) {
            struct cp_micro m = micro(g, step, i);
            (void)chain_forward(c, 0, &m, NULL);
            chain_backward(c, 0, &m);
        }
        double norm2 = chain_norm2(c);
        assert_true(fabs(sqrt(norm2) - norm[step]) <= tolerance * norm[step]);
        chain_step(c, opt, cp_optim_lr(base, step, 3, STEPS, CP_LR_LINEAR),
                   cp_optim_clip_scale(norm2, 0.5));
    }
    compare(c, CP_PLANE_W, g, group);
}

static const int cut_in_three[] = {1, 2};

static void run(int cuts)
{
    struct golden plain = golden_open(CP_TEST_DIR "/golden/plain.safetensors");
    struct golden dropped = golden_open(CP_TEST_DIR "/golden/dropout.safetensors");
    struct cp_shape s = shape(0), with_dropout = shape(0.1);
    struct chain c;

    chain_new(&c, &s, cuts, cut_in_three, B, T, 1, CP_OPTIM_SGD);
    load(&c, &plain);
    first_step(&c, &plain, &plain);
    chain_free(&c);

    chain_new(&c, &with_dropout, cuts, cut_in_three, B, T, 1, CP_OPTIM_SGD);
    load(&c, &plain);
    first_step(&c, &plain, &dropped);
    chain_free(&c);

    struct cp_optim adamw = {CP_OPTIM_ADAMW, 0.9, 0.999, 1e-8, 0.1};
    chain_new(&c, &s, cuts, cut_in_three, B, T, 1, CP_OPTIM_ADAMW);
    load(&c, &plain);
    train(&c, &plain, "adamw", &adamw, 2e-3);
    chain_free(&c);

    struct cp_optim sgd = {.kind = CP_OPTIM_SGD, .weight_decay = 0.1};
    chain_new(&c, &s, cuts, cut_in_three, B, T, 1, CP_OPTIM_SGD);
    load(&c, &plain);
    train(&c, &plain, "sgd", &sgd, 0.1);
    chain_free(&c);

    golden_close(&plain);
    golden_close(&dropped);
}

static void test_one_segment(void **state)
{
    (void)state;
    run(0);
}

static void test_three_segments(void **state)
{
    (void)state;
    run(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_segment),
        cmocka_unit_test(test_three_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
