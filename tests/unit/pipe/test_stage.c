/* stage: what a stage refuses to take from a peer, and the end of a step over real messages: one
 * norm, one scale, one refusal for all stages, whoever has which blocks (field case B17). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "pipe/stage.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The pipeline of these tests: control unit (block 0), one device (1, 2), edge server (3). */
enum { CU, DEVICE, EDGE, STAGES, BLOCKS = 4, B = 2, T = 3, SAMPLES = 2, MICROS_MAX = 2 };

static const struct cp_shape shape = {.layers = 2,
                                      .width = 8,
                                      .heads = 2,
                                      .ffn = 12,
                                      .max_len = T,
                                      .vocab = 10,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12};
static const char *const names[] = {"c1.cu", "c1.phone", "edge.c1"};
static const int first_block[] = {0, 1, 3}, last_block[] = {0, 2, 3};

struct pipeline {
    struct cp_net *net;
    struct cp_stage stage[STAGES];
    struct cp_mem mem[STAGES], msg_mem[STAGES];
    struct cp_step_result result[STAGES];
    cp_err err[STAGES];
    char text[STAGES][512];
    struct cp_step step;
    int32_t len[SAMPLES];
};

static struct pipeline p;

static int set_up(void **state)
{
    int from[BLOCKS] = {-1, -1, -1, -1}, to[BLOCKS] = {0};
    (void)state;
    memset(&p, 0, sizeof p);
    assert_int_equal(cp_net_new(STAGES, names, &p.net), CP_OK);
    for (int j = 0; j < STAGES; j++) {
        struct cp_part part = {.first = first_block[j],
                               .last = last_block[j],
                               .slots = 1,
                               .index = j,
                               .n_stages = STAGES,
                               .node = {CU, DEVICE, EDGE}};
        p.stage[j] = (struct cp_stage){.net = p.net,
                                       .self = j,
                                       .shape = &shape,
                                       .optim = {.kind = CP_OPTIM_SGD},
                                       .clip = 1,
                                       .b_max = B,
                                       .t_max = T,
                                       .wait_s = 20,
                                       .estimate = true,
                                       .mem = &p.mem[j],
                                       .msg_mem = &p.msg_mem[j],
                                       .part = {.first = 0, .last = -1, .index = -1}};
        assert_int_equal(cp_stage_take(&p.stage[j], 1, &part, from, to, true), CP_OK);
        for (int block = part.first; block <= part.last; block++) {
            cp_block_init(&shape, block, 0.02, 1,
                          cp_segment_plane(p.stage[j].seg, block, CP_PLANE_W));
        }
    }
    /* no sample counts in the loss: the gradients are what a test puts there */
    p.len[0] = 3;
    p.len[1] = 2;
    p.step = (struct cp_step){.round = 4, .step = 6, .micros = 1, .lr = 1, .train = true};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int j = 0; j < STAGES; j++) {
        cp_stage_fini(&p.stage[j]);
    }
    cp_net_free(p.net);
    for (int j = 0; j < STAGES; j++) {
        assert_int_equal(p.mem[j].held_bytes, 0);
        assert_int_equal(p.msg_mem[j].held_bytes, 0);
    }
    return 0;
}

static struct cp_micro micro(void)
{
    static const int32_t ids[SAMPLES * T] = {2, 5, 3, 2, 3, 0}, label[SAMPLES] = {0, 2};
    static const int64_t sample[SAMPLES] = {7, 8};
    return (struct cp_micro){
        .b = SAMPLES, .t = T, .len = p.len, .sample = sample, .ids = ids, .label = label};
}

static void *run_stage(void *arg)
{
    int j = *(int *)arg;
    struct cp_micro m[MICROS_MAX] = {micro(), micro()};
    p.err[j] = cp_stage_run(&p.stage[j], &p.step, j == CU ? m : NULL, &p.result[j]);
    strncpy(p.text[j], cp_err_text(), sizeof p.text[j] - 1);
    return NULL;
}

/* One step of all stages, each in its thread. */
static void run_all(void)
{
    static int number[STAGES] = {CU, DEVICE, EDGE};
    pthread_t thread[STAGES];
    for (int j = 0; j < STAGES; j++) {
        assert_int_equal(pthread_create(&thread[j], NULL, run_stage, &number[j]), 0);
    }
    for (int j = 0; j < STAGES; j++) {
        assert_int_equal(pthread_join(thread[j], NULL), 0);
    }
}

static int owner_of(int block)
{
    return block == 0 ? CU : block < 3 ? DEVICE : EDGE;
}

static cp_real *plane(int block, enum cp_plane which)
{
    return cp_segment_plane(p.stage[owner_of(block)].seg, block, which);
}

static int64_t params(int block)
{
    return cp_shape_params(&shape, block, block);
}

/* Every parameter of the model, one block after the other. */
static void copy_params(cp_real *out)
{
    for (int block = 0; block < BLOCKS; block++) {
        memcpy(out, plane(block, CP_PLANE_W), (size_t)params(block) * sizeof *out);
        out += params(block);
    }
}

static void assert_no_gradients(void)
{
    for (int block = 0; block < BLOCKS; block++) {
        assert_true(cp_segment_norm2(p.stage[owner_of(block)].seg, block) == 0);
    }
}

static void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in the sentence: %s", part, text);
    }
}

/* --- one norm (B17) ----------------------------------------------------------------------------
 */

/* The device's gradients have norm 3 over two blocks, the edge server's 4; the limit is 1: the norm
 * is 5, and everything is scaled by 0.2. */
static void one_norm_for_all_stages(void **state)
{
    (void)state;
    enum { MAX = 4000 };
    static cp_real before[MAX], after[MAX];
    int64_t at1 = params(0) + 5, at2 = params(0) + params(1), at3 = at2 + params(2) + 9;
    assert_true(cp_shape_params(&shape, 0, BLOCKS - 1) <= MAX);
    copy_params(before);
    plane(1, CP_PLANE_G)[5] = 2;
    plane(2, CP_PLANE_G)[0] = -2;
    plane(2, CP_PLANE_G)[params(2) - 1] = 1;
    plane(3, CP_PLANE_G)[9] = 4;
    run_all();
    for (int j = 0; j < STAGES; j++) {
        assert_int_equal(p.err[j], CP_OK);
    }
    assert_true(fabs(p.result[CU].grad_norm - 5) < 1e-12);
    copy_params(after);
    assert_float_equal(after[at1] - before[at1], -0.4, 1e-6);
    assert_float_equal(after[at2] - before[at2], 0.4, 1e-6);
    assert_float_equal(after[at2 + params(2) - 1] - before[at2 + params(2) - 1], -0.2, 1e-6);
    assert_float_equal(after[at3] - before[at3], -0.8, 1e-6);
    for (int64_t i = 0; i < cp_shape_params(&shape, 0, BLOCKS - 1); i++) {
        bool moved = i == at1 || i == at2 || i == at2 + params(2) - 1 || i == at3;
        assert_true(moved || after[i] == before[i]);
    }
    assert_no_gradients();
}

/* Wherever a gradient is not finite, nobody changes a parameter, the control unit names block and
 * node, and the next step is made as if nothing had been. */
static void a_bad_gradient_refuses_the_step_everywhere(void **state)
{
    (void)state;
    static const cp_real BAD[] = {(cp_real)NAN, (cp_real)INFINITY, (cp_real)-INFINITY};
    static cp_real before[4000], after[4000];
    copy_params(before);
    for (int block = 0; block < BLOCKS; block++) {
        for (int i = 0; i < 3; i++) {
            char where[64];
            plane(0, CP_PLANE_G)[0] = 1; /* the others have good ones */
            plane(3, CP_PLANE_G)[1] = 1;
            plane(block, CP_PLANE_G)[params(block) - 1 - i] = BAD[i];
            run_all();
            for (int j = 0; j < STAGES; j++) {
                assert_int_equal(p.err[j], j == CU ? CP_E_NONFINITE : CP_OK);
            }
            snprintf(where, sizeof where, "block %d (on %s)", block, names[owner_of(block)]);
            expect_text(p.text[CU], where);
            expect_text(p.text[CU], "round 5, step 7");
            copy_params(after);
            assert_memory_equal(before, after, sizeof before);
            assert_no_gradients();
            p.step.step++;
            run_all();
            assert_int_equal(p.err[CU], CP_OK);
            p.step.step--;
        }
    }
}

static void a_bad_loss_refuses_the_step_everywhere(void **state)
{
    (void)state;
    static cp_real before[4000], after[4000];
    p.step.labelled = SAMPLES;
    plane(3, CP_PLANE_W)[params(3) - 1] = (cp_real)NAN; /* the bias of the last class */
    copy_params(before);
    run_all();
    assert_int_equal(p.err[CU], CP_E_NONFINITE);
    expect_text(p.text[CU], "the loss is not finite");
    copy_params(after);
    assert_memory_equal(before, after, sizeof before);
    assert_no_gradients();
}

/* A micro-batch of empty texts only: [CLS] [SEP] and padding (field case B02). */
static void empty_texts_have_a_finite_loss(void **state)
{
    (void)state;
    p.step.labelled = SAMPLES;
    p.len[0] = p.len[1] = 2;
    run_all();
    assert_int_equal(p.err[CU], CP_OK);
    assert_int_equal(p.result[CU].head.labelled, SAMPLES);
    assert_true(isfinite(p.result[CU].head.loss_sum) && p.result[CU].head.loss_sum > 0);
    assert_true(isfinite(p.result[CU].grad_norm) && p.result[CU].grad_norm > 0);
}

/* --- looking at the gradients ------------------------------------------------------------------
 */

static const struct cp_gradstat_block *report_of(int block)
{
    const struct cp_stage *st = &p.stage[owner_of(block)];
    return cp_gradstat_blocks(st->stat) + (block - st->part.first);
}

/* Two equal micro-batches: no variance, and the mean gradient is that of either. A refused step
 * counts for nothing; the first micro-batch once more makes no step. */
static void measured_steps_are_reported(void **state)
{
    (void)state;
    double norm2[BLOCKS] = {0};
    p.step.micros = MICROS_MAX;
    p.step.labelled = 2 * SAMPLES;
    p.step.measure = true;
    run_all();
    for (int block = 0; block < BLOCKS; block++) {
        const struct cp_gradstat_block *k = report_of(block);
        assert_int_equal(k->block, block);
        assert_int_equal(k->coords, params(block) < 512 ? params(block) : 512);
        assert_int_equal(k->step, 6);
        assert_true(k->variances == 1 && k->noise && !k->pair);
        for (int i = 0; i < k->coords; i++) {
            double x = (double)k->gradient[i];
            norm2[block] += x * x * (double)cp_gradstat_weight(params(block), k->coords, i);
        }
        assert_true(norm2[block] > 0);
        assert_true(fabs(k->variance) < 1e-5 * norm2[block]);
    }
    double all = sqrt(norm2[0] + norm2[1] + norm2[2] + norm2[3]);
    assert_true(params(1) > 512 ? fabs(all - p.result[CU].grad_norm) < 0.3 * all
                                : fabs(all - p.result[CU].grad_norm) < 1e-5 * all);
    p.step.step = 7;
    plane(3, CP_PLANE_G)[1] = (cp_real)NAN;
    run_all();
    assert_int_equal(p.err[CU], CP_E_NONFINITE);
    p.step.step = 8;
    p.step.measure = false;
    run_all();
    assert_int_equal(report_of(1)->variances, 1);
    static cp_real before[4000], after[4000];
    copy_params(before);
    p.step.step = 9;
    p.step.micros = 1;
    p.step.repeat = true;
    run_all();
    copy_params(after);
    assert_memory_equal(before, after, sizeof before);
    assert_no_gradients();
    for (int block = 0; block < BLOCKS; block++) {
        const struct cp_gradstat_block *k = report_of(block);
        assert_true(k->step == 6 && k->variances == 1 && k->pair && k->path2 > 0);
        assert_true(k->change2 > 0 && isfinite(k->change2));
    }
    p.step.round = 5; /* of another round: nothing is known of it */
    run_all();
    p.step.repeat = false;
    p.step.measure = true;
    p.step.micros = MICROS_MAX;
    run_all();
    assert_true(report_of(2)->step == 9 && report_of(2)->variances == 1 && !report_of(2)->pair);
}

/* The same steps without being looked at, or with no sample kept, lead to the same bits. */
static void measuring_changes_nothing(void **state)
{
    static cp_real after[3][4000];
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < STAGES && i == 2; j++) {
            cp_gradstat_free(p.stage[j].stat);
            p.stage[j].stat = NULL;
        }
        p.step.micros = MICROS_MAX;
        p.step.labelled = 2 * SAMPLES;
        p.step.measure = i != 1;
        for (p.step.step = 0; p.step.step < 3; p.step.step++) {
            run_all();
            assert_int_equal(p.err[CU], CP_OK);
        }
        copy_params(after[i]);
        assert_int_equal(tear_down(state), 0);
        assert_int_equal(set_up(state), 0);
    }
    assert_memory_equal(after[0], after[1], sizeof after[0]);
    assert_memory_equal(after[0], after[2], sizeof after[0]);
}

/* --- what peers send ---------------------------------------------------------------------------
 */

static struct cp_msg *message(enum cp_msg_type type, int from, int micro_batch, size_t bytes)
{
    struct cp_key key = {from, p.step.round, p.step.step, micro_batch, CP_ANY};
    struct cp_msg *m;
    assert_int_equal(cp_msg_new(NULL, type, 1, key, bytes, &m), CP_OK);
    return m;
}

static const size_t META = 64, TENSOR = SAMPLES * T * 8 * sizeof(cp_real);

/* A good activation of two samples. */
static struct cp_msg *activation(int from)
{
    struct cp_msg *m = message(CP_MSG_ACT, from, 0, META + TENSOR);
    int32_t *len = m->payload;
    m->b = SAMPLES;
    m->t = T;
    len[0] = 3;
    len[1] = 2;
    len[2] = 1; /* the labels */
    len[3] = 2;
    return m;
}

static cp_err run_alone(int stage)
{
    struct cp_micro m = micro();
    return cp_stage_run(&p.stage[stage], &p.step, stage == CU ? &m : NULL, &p.result[stage]);
}

static void a_good_activation_is_evaluated(void **state)
{
    (void)state;
    p.step.train = false;
    assert_int_equal(cp_net_send(p.net, EDGE, activation(DEVICE)), CP_OK);
    assert_int_equal(run_alone(EDGE), CP_OK);
    assert_int_equal(p.result[EDGE].head.labelled, 2);
}

static void bad_activations_are_refused(void **state)
{
    (void)state;
    static const struct {
        int at, value; /* of the payload's numbers; -1 b, -2 t */
        const char *part;
    } CASES[] = {
        {-1, 0, "activation of 0 x 3"},
        {-1, -5, "activation of -5 x 3"},
        {-1, B + 1, "allows 2 x 3"},
        {-1, 1, "expected"},
        {-2, 0, "activation of 2 x 0"},
        {-2, T + 1, "allows 2 x 3"},
        {-2, 2, "expected"},
        {0, 0, "sample length 0"},
        {0, -1, "sample length -1"},
        {1, T + 1, "sample length 4"},
        {1, INT32_MAX, "sample length"},
        {2, -1, "label -1"},
        {2, 3, "label 3"},
        {3, INT32_MIN, "label"},
        {3, INT32_MAX, "label"},
    };
    p.step.train = false;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct cp_msg *m = activation(DEVICE);
        if (CASES[i].at == -1) {
            m->b = CASES[i].value;
        } else if (CASES[i].at == -2) {
            m->t = CASES[i].value;
        } else {
            ((int32_t *)m->payload)[CASES[i].at] = CASES[i].value;
        }
        assert_int_equal(cp_net_send(p.net, EDGE, m), CP_OK);
        assert_int_equal(run_alone(EDGE), CP_E_PROTO);
        expect_text(cp_err_text(), "edge.c1: ");
        expect_text(cp_err_text(), "from c1.phone");
        expect_text(cp_err_text(), CASES[i].part);
    }
    for (int change = -1; change <= 1; change += 2) {
        struct cp_msg *m = message(CP_MSG_ACT, DEVICE, 0, (size_t)((int)(META + TENSOR) + change));
        m->b = SAMPLES;
        m->t = T;
        assert_int_equal(cp_net_send(p.net, EDGE, m), CP_OK);
        assert_int_equal(run_alone(EDGE), CP_E_PROTO);
    }
}

/* Sample numbers key dropout, which has 48 bits for them. */
static void bad_sample_numbers_are_refused(void **state)
{
    (void)state;
    static const int64_t BAD[] = {-1, INT64_MIN, (int64_t)1 << 48, INT64_MAX};
    const size_t at = 2 * SAMPLES * sizeof(int32_t); /* behind lengths and labels */
    p.step.train = false;
    for (size_t i = 0; i < 2 * sizeof BAD / sizeof BAD[0]; i++) {
        struct cp_msg *m = activation(DEVICE);
        memcpy((char *)m->payload + at + i % 2 * sizeof BAD[0], &BAD[i / 2], sizeof BAD[0]);
        assert_int_equal(cp_net_send(p.net, EDGE, m), CP_OK);
        assert_int_equal(run_alone(EDGE), CP_E_PROTO);
        expect_text(cp_err_text(), "edge.c1: sample number ");
        expect_text(cp_err_text(), "from c1.phone");
    }
    const int64_t largest = ((int64_t)1 << 48) - 1;
    struct cp_msg *m = activation(DEVICE);
    memcpy((char *)m->payload + at, &largest, sizeof largest);
    assert_int_equal(cp_net_send(p.net, EDGE, m), CP_OK);
    assert_int_equal(run_alone(EDGE), CP_OK);
}

static void bad_gradients_and_commits_are_refused(void **state)
{
    (void)state;
    for (size_t extra = 0; extra <= 8; extra += 8) {
        assert_int_equal(cp_net_send(p.net, DEVICE, activation(CU)), CP_OK);
        assert_int_equal(
            cp_net_send(p.net, DEVICE, message(CP_MSG_GRAD, EDGE, 0, TENSOR - 4 + extra)), CP_OK);
        assert_int_equal(run_alone(DEVICE), CP_E_PROTO);
        expect_text(cp_err_text(), "c1.phone: gradient of ");
        expect_text(cp_err_text(), "from edge.c1");
    }
    assert_int_equal(cp_net_send(p.net, DEVICE, activation(CU)), CP_OK);
    assert_int_equal(cp_net_send(p.net, DEVICE, message(CP_MSG_GRAD, EDGE, 0, TENSOR)), CP_OK);
    assert_int_equal(cp_net_send(p.net, DEVICE, message(CP_MSG_COMMIT, CU, -1, 3)), CP_OK);
    assert_int_equal(run_alone(DEVICE), CP_E_PROTO);
    expect_text(cp_err_text(), "malformed COMMIT");
}

static void bad_norms_are_refused(void **state)
{
    (void)state;
    /* first block and count of the report, and the terms that it really has; the last three are
     * well formed, but a block is counted twice, one is left out, there is none */
    static const int CASES[][3] = {{0, 1, 0}, {-1, 1, 1},        {1, -1, 0}, {1, BLOCKS, BLOCKS},
                                   {4, 1, 1}, {INT32_MAX, 1, 1}, {3, 1, 2},  {1, INT32_MAX, 1},
                                   {0, 1, 1}, {2, 1, 1},         {1, 0, 0}};
    const size_t head = 2 * sizeof(int32_t) + sizeof(struct cp_head_result);
    for (size_t i = 0; i <= sizeof CASES / sizeof CASES[0]; i++) {
        struct cp_msg *m;
        if (i == sizeof CASES / sizeof CASES[0]) {
            m = message(CP_MSG_NORM, DEVICE, -1, 2);
        } else {
            m = message(CP_MSG_NORM, DEVICE, -1, head + (size_t)CASES[i][2] * sizeof(double));
            memcpy(m->payload, CASES[i], 2 * sizeof(int32_t));
        }
        assert_int_equal(cp_net_send(p.net, CU, m), CP_OK);
        assert_int_equal(cp_net_send(p.net, CU, message(CP_MSG_GRAD, DEVICE, 0, TENSOR)), CP_OK);
        assert_int_equal(run_alone(CU), CP_E_PROTO);
        expect_text(cp_err_text(), "malformed NORM from c1.phone");
        tear_down(state);
        set_up(state); /* the control unit's own report waits in its inbox */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_norm_for_all_stages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bad_gradient_refuses_the_step_everywhere, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_bad_loss_refuses_the_step_everywhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(empty_texts_have_a_finite_loss, set_up, tear_down),
        cmocka_unit_test_setup_teardown(measured_steps_are_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(measuring_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_good_activation_is_evaluated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_activations_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_sample_numbers_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_gradients_and_commits_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_norms_are_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
