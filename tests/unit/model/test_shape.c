/* shape: names, order and sizes of every tensor; every field that can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/shape.h"

#include <math.h>
#include <string.h>

static const struct cp_shape bert_base = {.layers = 12,
                                          .width = 768,
                                          .heads = 12,
                                          .ffn = 3072,
                                          .max_len = 512,
                                          .vocab = 30522,
                                          .types = 2,
                                          .classes = 2,
                                          .norm_eps = 1e-12,
                                          .dropout = 0.1};

/* docs/theory.md section 3 */
static void test_check_values(void **state)
{
    (void)state;
    const struct cp_shape *s = &bert_base;
    assert_int_equal(cp_shape_params(s, 1, 1), 7087872);
    assert_int_equal(cp_shape_params(s, 0, 0), 23837184);
    int64_t classifier = 2 * 768 + 2;
    assert_int_equal(cp_shape_params(s, 0, 13), 109482240 + classifier);
    assert_int_equal(cp_shape_params(s, 1, 12), 12 * 7087872);
    struct cp_shape base = bert_base;
    base.width = 512;
    base.heads = 8;
    base.ffn = 2048;
    assert_int_equal(cp_shape_params(&base, 3, 3), 3152384);
}

static void test_tensors(void **state)
{
    (void)state;
    const char *first[] = {"bert.embeddings.word_embeddings.weight",
                           "bert.encoder.layer.0.attention.self.query.weight",
                           "bert.encoder.layer.11.attention.self.query.weight",
                           "bert.pooler.dense.weight"};
    const char *last[] = {"bert.embeddings.LayerNorm.bias",
                          "bert.encoder.layer.0.output.LayerNorm.bias",
                          "bert.encoder.layer.11.output.LayerNorm.bias", "classifier.bias"};
    const int block[] = {0, 1, 12, 13}, count[] = {5, 16, 16, 4};
    for (int k = 0; k < 4; k++) {
        struct cp_tensor_info t[CP_BLOCK_TENSORS_MAX];
        int n = cp_shape_tensors(&bert_base, block[k], t);
        int64_t offset = 0;
        assert_int_equal(n, count[k]);
        assert_string_equal(t[0].name, first[k]);
        assert_string_equal(t[n - 1].name, last[k]);
        for (int i = 0; i < n; i++) {
            bool bare = strstr(t[i].name, "bias") || strstr(t[i].name, "LayerNorm");
            assert_int_equal(t[i].rank, bare ? 1 : 2);
            assert_int_equal(t[i].decay, !bare);
            assert_int_equal(t[i].offset, offset);
            assert_int_equal(t[i].count, t[i].dims[0] * (t[i].rank == 2 ? t[i].dims[1] : 1));
            offset += t[i].count;
            for (int j = 0; j < i; j++) {
                assert_string_not_equal(t[i].name, t[j].name);
            }
        }
        assert_int_equal(offset, cp_shape_params(&bert_base, block[k], block[k]));
    }
}

static void test_dims(void **state)
{
    (void)state;
    struct cp_tensor_info t[CP_BLOCK_TENSORS_MAX];
    (void)cp_shape_tensors(&bert_base, 2, t);
    assert_string_equal(t[10].name, "bert.encoder.layer.1.intermediate.dense.weight");
    assert_true(t[10].dims[0] == 3072 && t[10].dims[1] == 768); /* [out, in] */
    assert_string_equal(t[12].name, "bert.encoder.layer.1.output.dense.weight");
    assert_true(t[12].dims[0] == 768 && t[12].dims[1] == 3072);
    (void)cp_shape_tensors(&bert_base, 0, t);
    assert_true(t[0].dims[0] == 30522 && t[1].dims[0] == 512 && t[2].dims[0] == 2);
    (void)cp_shape_tensors(&bert_base, 13, t);
    assert_true(t[2].dims[0] == 2 && t[2].dims[1] == 768);
}

static void test_kinds(void **state)
{
    (void)state;
    assert_int_equal(cp_shape_blocks(&bert_base), 14);
    assert_int_equal(cp_shape_kind(&bert_base, 0), CP_BLOCK_EMB);
    assert_int_equal(cp_shape_kind(&bert_base, 1), CP_BLOCK_ENC);
    assert_int_equal(cp_shape_kind(&bert_base, 12), CP_BLOCK_ENC);
    assert_int_equal(cp_shape_kind(&bert_base, 13), CP_BLOCK_HEAD);
}

static void refuse(struct cp_shape s, const char *field)
{
    assert_int_equal(cp_shape_check(&s), CP_E_CONFIG);
    if (!strstr(cp_err_text(), field)) {
        fail_msg("'%s' does not name %s", cp_err_text(), field);
    }
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(cp_shape_check(&bert_base), CP_OK);
    struct cp_shape s;
#define REFUSE(field, value) (s = bert_base, s.field = (value), refuse(s, #field))
    const int32_t bad[] = {0, -1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        REFUSE(layers, bad[i]);
        REFUSE(width, bad[i]);
        REFUSE(heads, bad[i]);
        REFUSE(ffn, bad[i]);
        REFUSE(max_len, bad[i]);
        REFUSE(vocab, bad[i]);
        REFUSE(types, bad[i]);
        REFUSE(classes, bad[i]);
    }
    REFUSE(classes, 1);
    REFUSE(layers, CP_LAYERS_LIMIT + 1);
    REFUSE(heads, 7);
    REFUSE(norm_eps, 0);
    REFUSE(norm_eps, NAN);
    REFUSE(norm_eps, INFINITY);
    REFUSE(dropout, 1);
    REFUSE(dropout, -0.1);
    REFUSE(dropout, NAN);
#undef REFUSE
    s = bert_base;
    s.dropout = 0;
    s.layers = CP_LAYERS_LIMIT;
    assert_int_equal(cp_shape_check(&s), CP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_values), cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_dims),         cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
