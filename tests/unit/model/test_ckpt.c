/* ckpt: Hugging Face folders in and out, hashes, and checkpoints that survive crashes and damage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/ckpt.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct cp_shape SHAPE = {.layers = 2,
                                      .width = 4,
                                      .heads = 2,
                                      .ffn = 8,
                                      .max_len = 6,
                                      .vocab = 7,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12,
                                      .dropout = 0.1};
enum { BLOCKS = 4, PARAMS_MAX = 4096 };
static const char *const NAMES[] = {"no", "yes", "ma\"ybe ä"};
static const char VOCAB[] = "[UNK]\nthe\n[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n";

static char dir[64];
static float params[BLOCKS][PARAMS_MAX];
static struct cp_str logged;

static void keep_log(enum cp_log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    cp_str_printf(&logged, "%s\n", line);
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cp_ckpt_XXXXXX");
    for (int b = 0; b < BLOCKS; b++) {
        for (int i = 0; i < PARAMS_MAX; i++) {
            params[b][i] = (float)b + (float)i / 64;
        }
    }
    cp_log_sink(keep_log, NULL);
    cp_log_level(CP_LOG_INFO);
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    cp_log_sink(NULL, NULL);
    cp_str_fini(&logged);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

static const char *in_dir(const char *name)
{
    static char path[8][160];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' does not contain '%s'", text, part);
    }
}

static void pointers(float (*all)[PARAMS_MAX], float *p[BLOCKS])
{
    for (int b = 0; b < BLOCKS; b++) {
        p[b] = all[b];
    }
}

static struct cp_ckpt_model model_of(const float **p)
{
    for (int b = 0; b < BLOCKS; b++) {
        p[b] = params[b];
    }
    return (struct cp_ckpt_model){.shape = &SHAPE,
                                  .class_names = NAMES,
                                  .block_params = p,
                                  .vocab = VOCAB,
                                  .vocab_bytes = sizeof VOCAB - 1,
                                  .lower_case = true};
}

static void save(const char *where)
{
    const float *p[BLOCKS];
    struct cp_ckpt_model m = model_of(p);
    assert_int_equal(cp_ckpt_save_model(where, &m), CP_OK);
}

/* Every parameter is the saved one, and no element behind a block was touched. */
static void check_loaded(float (*got)[PARAMS_MAX])
{
    for (int b = 0; b < BLOCKS; b++) {
        size_t n = (size_t)cp_shape_params(&SHAPE, b, b);
        assert_true(n > 0 && n < PARAMS_MAX);
        assert_memory_equal(got[b], params[b], n * sizeof(float));
        assert_true(got[b][n] == -7);
    }
}

static void blank(float (*got)[PARAMS_MAX])
{
    for (int b = 0; b < BLOCKS; b++) {
        for (int i = 0; i < PARAMS_MAX; i++) {
            got[b][i] = -7;
        }
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    float *to[BLOCKS];
    struct cp_ckpt_meta meta;
    save(dir);
    assert_int_equal(cp_ckpt_load_meta(dir, &meta), CP_OK);
    assert_int_equal(meta.shape.layers, SHAPE.layers);
    assert_int_equal(meta.shape.width, SHAPE.width);
    assert_int_equal(meta.shape.heads, SHAPE.heads);
    assert_int_equal(meta.shape.ffn, SHAPE.ffn);
    assert_int_equal(meta.shape.max_len, SHAPE.max_len);
    assert_int_equal(meta.shape.vocab, SHAPE.vocab);
    assert_int_equal(meta.shape.types, SHAPE.types);
    assert_int_equal(meta.shape.classes, SHAPE.classes);
    assert_true(meta.shape.norm_eps == 1e-12 && meta.shape.dropout == 0.1);
    assert_int_equal(meta.n_classes, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(meta.class_names[i], NAMES[i]);
    }
    blank(got);
    pointers(got, to);
    assert_int_equal(cp_ckpt_load_blocks(dir, &meta.shape, to, false), CP_OK);
    check_loaded(got);
    assert_string_equal(cp_str_text(&logged), "");
    cp_ckpt_meta_fini(&meta);
    blank(got); /* a part of the blocks */
    to[1] = to[3] = NULL;
    assert_int_equal(cp_ckpt_load_blocks(dir, &SHAPE, to, false), CP_OK);
    assert_true(got[1][0] == -7 && got[3][0] == -7 && got[2][5] == params[2][5]);
    assert_string_equal(cp_str_text(&logged), "");
}

static void test_config_is_huggingface(void **state)
{
    (void)state;
    struct cp_str text = {0};
    save(dir);
    json_t *c = json_load_file(in_dir("config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(c, "model_type")), "bert");
    assert_string_equal(json_string_value(json_array_get(json_object_get(c, "architectures"), 0)),
                        "BertForSequenceClassification");
    assert_string_equal(json_string_value(json_object_get(c, "hidden_act")), "gelu");
    assert_int_equal(json_integer_value(json_object_get(c, "intermediate_size")), 8);
    assert_int_equal(json_integer_value(json_object_get(c, "pad_token_id")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(c, "label2id"), "yes")), 1);
    assert_true(json_real_value(json_object_get(c, "layer_norm_eps")) == 1e-12);
    json_decref(c);
    c = json_load_file(in_dir("tokenizer_config.json"), 0, NULL);
    assert_true(json_is_true(json_object_get(c, "do_lower_case")));
    assert_int_equal(json_integer_value(json_object_get(c, "model_max_length")), 6);
    json_decref(c);
    assert_int_equal(cp_file_read(in_dir("vocab.txt"), 1000, &text), CP_OK);
    assert_string_equal(text.p, VOCAB);
    cp_str_fini(&text);
}

/* The definition again, in one buffer and one call. */
static void test_hash(void **state)
{
    (void)state;
    struct cp_str all = {0};
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    const float *p[BLOCKS];
    char hex[CP_SHA256_HEX], need[CP_SHA256_HEX], other[CP_SHA256_HEX];
    unsigned char digest[32];
    (void)model_of(p);
    for (int b = 0; b < BLOCKS; b++) {
        int n = cp_shape_tensors(&SHAPE, b, info);
        for (int i = 0; i < n; i++) {
            cp_str_add(&all, info[i].name, strlen(info[i].name) + 1);
            cp_str_add(&all, (const char *)(params[b] + info[i].offset), (size_t)info[i].count * 4);
        }
    }
    crypto_hash_sha256(digest, (const unsigned char *)all.p, all.len);
    sodium_bin2hex(need, sizeof need, digest, sizeof digest);
    cp_params_sha256(&SHAPE, p, hex);
    assert_string_equal(hex, need);
    params[2][3] = -params[2][3];
    cp_params_sha256(&SHAPE, p, other);
    assert_string_not_equal(hex, other);
    params[2][3] = -params[2][3];
    cp_str_fini(&all);
}

/* ---- files of other makers ---- */

/* All tensors of the model; names may be changed before writing. */
struct sheet {
    struct cp_st_tensor t[64];
    char name[64][CP_NAME_MAX];
    size_t n;
};

static void sheet_fill(struct sheet *s)
{
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    s->n = 0;
    for (int b = 0; b < BLOCKS; b++) {
        int n = cp_shape_tensors(&SHAPE, b, info);
        for (int i = 0; i < n; i++, s->n++) {
            strcpy(s->name[s->n], info[i].name);
            s->t[s->n] = (struct cp_st_tensor){.name = s->name[s->n],
                                               .dtype = CP_DT_F32,
                                               .rank = info[i].rank,
                                               .dims = {info[i].dims[0], info[i].dims[1]},
                                               .data = params[b] + info[i].offset};
        }
    }
}

static size_t sheet_find(const struct sheet *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->name[i], name) == 0) {
            return i;
        }
    }
    fail_msg("no tensor %s", name);
    return 0;
}

static void replace(char *name, const char *old, const char *new)
{
    char *at = strstr(name, old);
    if (at) {
        char rest[CP_NAME_MAX];
        strcpy(rest, at + strlen(old));
        strcpy(at, new);
        strcat(at, rest);
    }
}

static void sheet_save(const struct sheet *s)
{
    assert_int_equal(cp_st_write(in_dir("model.safetensors"), s->t, s->n, NULL, 0), CP_OK);
}

static cp_err load(float (*got)[PARAMS_MAX], bool new_head)
{
    float *to[BLOCKS];
    blank(got);
    pointers(got, to);
    return cp_ckpt_load_blocks(dir, &SHAPE, to, new_head);
}

static void test_old_and_short_names(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    static struct sheet s;
    for (int variant = 1; variant < 4; variant++) {
        sheet_fill(&s);
        for (size_t i = 0; i < s.n; i++) {
            if (variant & 1) {
                replace(s.name[i], "LayerNorm.weight", "LayerNorm.gamma");
                replace(s.name[i], "LayerNorm.bias", "LayerNorm.beta");
            }
            if (variant & 2) {
                replace(s.name[i], "bert.", "");
            }
        }
        sheet_save(&s);
        assert_int_equal(load(got, false), CP_OK);
        check_loaded(got);
    }
}

static void test_unused_are_listed(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    static struct sheet s;
    sheet_fill(&s);
    s.t[s.n++] = (struct cp_st_tensor){.name = "bert.embeddings.position_ids", .dtype = CP_DT_I64};
    s.t[s.n - 1].data = params;
    s.t[s.n++] = (struct cp_st_tensor){.name = "cls.predictions.bias", .dtype = CP_DT_F32};
    s.t[s.n - 1].data = params;
    sheet_save(&s);
    assert_int_equal(load(got, false), CP_OK);
    check_loaded(got);
    assert_contains(logged.p, "tensor 'cls.predictions.bias' is not used");
    assert_null(strstr(logged.p, "position_ids"));
}

static void test_missing_and_misshapen(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    static struct sheet s;
    sheet_fill(&s);
    size_t i = sheet_find(&s, "bert.encoder.layer.1.output.dense.weight");
    strcpy(s.name[i], "bert.encoder.layer.9.output.dense.weight");
    sheet_save(&s);
    assert_int_equal(load(got, true), CP_E_CKPT);
    assert_contains(cp_err_text(), "tensor 'bert.encoder.layer.1.output.dense.weight' is missing");
    assert_true(got[0][0] == -7);
    sheet_fill(&s);
    s.t[i].dims[0] = 8;
    s.t[i].dims[1] = 4; /* transposed */
    sheet_save(&s);
    assert_int_equal(load(got, true), CP_E_CKPT);
    assert_contains(cp_err_text(), "layer.1.output.dense.weight' has shape [8, 4], the model needs "
                                   "[4, 8]");
    assert_true(got[0][0] == -7);
    sheet_fill(&s);
    s.t[i].rank = 1;
    s.t[i].dims[0] = 32;
    sheet_save(&s);
    assert_int_equal(load(got, false), CP_E_CKPT);
    sheet_fill(&s);
    size_t bias = sheet_find(&s, "bert.encoder.layer.0.output.dense.bias");
    s.t[bias].rank = 2;
    s.t[bias].dims[1] = 1; /* [4, 1] is not [4] */
    sheet_save(&s);
    assert_int_equal(load(got, false), CP_E_CKPT);
    assert_contains(cp_err_text(), "has shape [4, 1], the model needs [4]");
    sheet_fill(&s);
    s.t[i].dtype = CP_DT_I32;
    sheet_save(&s);
    assert_int_equal(load(got, false), CP_E_CKPT);
    assert_contains(cp_err_text(), "has dtype I32; allowed: F32, F16, BF16");
    assert_true(got[0][0] == -7);
}

static void test_new_head(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    static struct sheet s;
    sheet_fill(&s);
    s.n = sheet_find(&s, "classifier.weight"); /* a pre-trained encoder with its pooler */
    sheet_save(&s);
    assert_int_equal(load(got, false), CP_E_CKPT);
    assert_contains(cp_err_text(), "tensor 'classifier.weight' is missing");
    assert_int_equal(load(got, true), CP_OK);
    assert_memory_equal(got[3], params[3], (4 * 4 + 4) * sizeof(float));
    assert_true(got[3][20] == -7);
    assert_contains(logged.p, "tensor 'classifier.bias' starts anew");
    sheet_fill(&s);
    size_t w = sheet_find(&s, "classifier.weight"), b = sheet_find(&s, "classifier.bias");
    s.t[w].dims[0] = s.t[b].dims[0] = 2; /* two classes, not three */
    sheet_save(&s);
    assert_int_equal(load(got, false), CP_E_CKPT);
    assert_contains(cp_err_text(), "tensor 'classifier.weight' has shape [2, 4]");
    assert_int_equal(load(got, true), CP_OK);
    assert_true(got[3][20] == -7 && got[3][19] == params[3][19]);
}

static void test_half_precision_file(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    static struct sheet s;
    static uint16_t half[PARAMS_MAX];
    sheet_fill(&s);
    size_t i = sheet_find(&s, "bert.embeddings.LayerNorm.bias");
    for (int k = 0; k < 4; k++) {
        half[k] = 0x3c00; /* 1.0 */
    }
    s.t[i].dtype = CP_DT_F16;
    s.t[i].data = half;
    sheet_save(&s);
    assert_int_equal(load(got, false), CP_OK);
    size_t n = (size_t)cp_shape_params(&SHAPE, 0, 0);
    assert_true(got[0][n - 1] == 1 && got[0][n - 4] == 1 && got[0][n - 5] == params[0][n - 5]);
}

static void write_text(const char *name, const char *text)
{
    assert_int_equal(cp_file_write(in_dir(name), text, strlen(text)), CP_OK);
}

static void test_shards(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    static struct sheet s;
    sheet_fill(&s);
    assert_int_equal(cp_st_write(in_dir("s1"), s.t, 10, NULL, 0), CP_OK);
    assert_int_equal(cp_st_write(in_dir("s2"), s.t + 10, s.n - 10, NULL, 0), CP_OK);
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\",\"c\":\"s1\"}}");
    assert_int_equal(load(got, false), CP_OK);
    check_loaded(got);
    assert_int_equal(cp_st_write(in_dir("s2"), s.t + 9, s.n - 9, NULL, 0), CP_OK);
    assert_int_equal(load(got, false), CP_E_CKPT);
    assert_contains(cp_err_text(), "is in two files, s1 and s2");
    static const char *const BAD[] = {
        "\"../s1\"", "\"/etc/passwd\"", "\"a\\\\b\"", "\".\"", "\"..\"", "\"\"", "\"a\\nb\"", "3"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        char index[100];
        snprintf(index, sizeof index, "{\"weight_map\":{\"a\":%s}}", BAD[i]);
        write_text("model.safetensors.index.json", index);
        assert_int_equal(load(got, false), CP_E_CKPT);
        assert_contains(cp_err_text(), "model.safetensors.index.json");
    }
    assert_int_equal(symlink("s1", in_dir("link")), 0);
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"link\"}}");
    assert_int_equal(load(got, false), CP_E_IO);
    assert_contains(cp_err_text(), "symbolic link");
    write_text("model.safetensors.index.json", "{\"weight_map\":[]}");
    assert_int_equal(load(got, false), CP_E_CKPT);
    assert_true(got[0][0] == -7);
}

#define SIZES                                                                                      \
    "\"num_hidden_layers\":2,\"hidden_size\":4,\"num_attention_heads\":2,\"intermediate_size\":8," \
    "\"max_position_embeddings\":6,\"vocab_size\":7"

static void test_foreign_configs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says; /* NULL: accepted */
    } CASES[] = {
        {"{" SIZES "}", NULL},
        {"{" SIZES ",\"hidden_act\":\"gelu\",\"model_type\":\"bert\",\"num_labels\":2}", NULL},
        {"{" SIZES ",\"hidden_act\":\"relu\"}", "'hidden_act' is relu; only 'gelu' is supported"},
        {"{" SIZES ",\"hidden_act\":\"gelu_new\"}", "'hidden_act' is gelu_new"},
        {"{" SIZES ",\"hidden_act\":3}", "'hidden_act' is not a text"},
        {"{" SIZES ",\"model_type\":\"roberta\"}", "'model_type' is roberta"},
        {"{" SIZES ",\"position_embedding_type\":\"relative_key\"}", "is relative_key"},
        {"{" SIZES ",\"is_decoder\":true}", "only encoders"},
        {"{" SIZES ",\"layer_norm_eps\":\"x\"}", "'layer_norm_eps' is not a number"},
        {"{" SIZES ",\"layer_norm_eps\":0}", "norm_eps"},
        {"{" SIZES ",\"hidden_dropout_prob\":1.5}", "dropout"},
        {"{" SIZES ",\"id2label\":{\"0\":\"a\",\"2\":\"b\"}}", "no text for class 1"},
        {"{" SIZES ",\"id2label\":{\"0\":\"a\",\"1\":2}}", "no text for class 1"},
        {"{" SIZES ",\"id2label\":{}}", "'id2label' is not an object of"},
        {"{" SIZES ",\"id2label\":[1]}", "'id2label' is not an object of"},
        {"{" SIZES ",\"num_labels\":2000000000}", "'num_labels' is above"},
        {"{" SIZES ",\"num_labels\":-1}", "'num_labels' is not a positive integer"},
        {"{" SIZES ",\"vocab_size\":8}", "not valid JSON"}, /* twice */
        {"{\"hidden_size\":4}", "'num_hidden_layers' is not a positive integer"},
        {"{" SIZES ",\"type_vocab_size\":3000000000}", "'type_vocab_size' is not"},
        {"{\"num_hidden_layers\":2,\"hidden_size\":5,\"num_attention_heads\":2,"
         "\"intermediate_size\":8,\"max_position_embeddings\":6,\"vocab_size\":7}",
         "heads"},
        {"{\"num_hidden_layers\":65,\"hidden_size\":4,\"num_attention_heads\":2,"
         "\"intermediate_size\":8,\"max_position_embeddings\":6,\"vocab_size\":7}",
         "layers is 65, it must be from 1 to 64"},
        {"[]", "is not a JSON object"},
        {"", "not valid JSON"},
        {"{\"a\":", "config.json:1:"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct cp_ckpt_meta meta = {.n_classes = -5};
        write_text("config.json", CASES[i].text);
        cp_err err = cp_ckpt_load_meta(dir, &meta);
        if (CASES[i].says) {
            assert_int_equal(err, CP_E_CKPT);
            assert_contains(cp_err_text(), "config.json");
            assert_contains(cp_err_text(), CASES[i].says);
            assert_int_equal(meta.n_classes, -5);
        } else {
            assert_int_equal(err, CP_OK);
            assert_int_equal(meta.n_classes, 2);
            assert_string_equal(meta.class_names[1], "LABEL_1");
            assert_true(meta.shape.norm_eps == 1e-12);
            cp_ckpt_meta_fini(&meta);
        }
    }
    struct cp_ckpt_meta meta;
    assert_int_equal(cp_ckpt_load_meta(in_dir("none"), &meta), CP_E_IO);
}

/* do_lower_case is what it says, and true where nothing is said. */
static void test_case_of_the_tokenizer(void **state)
{
    (void)state;
    static const struct {
        const char *text; /* NULL: there is no file */
        bool lower;
        const char *says; /* NULL: accepted */
    } CASES[] = {
        {NULL, true, NULL},
        {"{}", true, NULL},
        {"{\"do_lower_case\":true}", true, NULL},
        {"{\"do_lower_case\":false}", false, NULL},
        {"{\"do_lower_case\":false,\"strip_accents\":null}", false, NULL},
        {"{\"do_lower_case\":false,\"strip_accents\":false}", false, NULL},
        {"{\"strip_accents\":true}", true, NULL},
        {"{\"do_lower_case\":\"no\"}", true, "'do_lower_case' is neither"},
        {"{\"do_lower_case\":null}", true, "'do_lower_case' is neither"},
        {"{\"do_lower_case\":false,\"strip_accents\":true}", true, "'strip_accents' is not null"},
        {"{\"strip_accents\":false}", true, "'strip_accents' is not null"},
        {"{\"strip_accents\":1}", true, "'strip_accents' is not null"},
        {"[]", true, "is not a JSON object"},
        {"{", true, "not valid JSON"},
    };
    write_text("config.json", "{" SIZES "}");
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct cp_ckpt_meta meta = {.n_classes = -5};
        if (CASES[i].text) {
            write_text("tokenizer_config.json", CASES[i].text);
        }
        cp_err err = cp_ckpt_load_meta(dir, &meta);
        if (CASES[i].says) {
            assert_int_equal(err, CP_E_CKPT);
            assert_contains(cp_err_text(), "tokenizer_config.json");
            assert_contains(cp_err_text(), CASES[i].says);
            assert_int_equal(meta.n_classes, -5);
        } else {
            assert_int_equal(err, CP_OK);
            assert_int_equal(meta.lower_case, CASES[i].lower);
            cp_ckpt_meta_fini(&meta);
        }
    }
    for (int lower = 0; lower < 2; lower++) { /* and as we save it */
        const float *p[BLOCKS];
        struct cp_ckpt_model m = model_of(p);
        struct cp_ckpt_meta meta;
        m.lower_case = lower;
        assert_int_equal(cp_ckpt_save_model(dir, &m), CP_OK);
        assert_int_equal(cp_ckpt_load_meta(dir, &meta), CP_OK);
        assert_int_equal(meta.lower_case, lower);
        cp_ckpt_meta_fini(&meta);
    }
}

static void test_named_tensors(void **state)
{
    (void)state;
    float m[6] = {1, 2, 3, 4, 5, 6}, v[2] = {7, 8}, m2[6] = {0}, v2[2] = {0};
    struct cp_ckpt_tensor t[] = {{"c0.w.exp_avg", 2, {2, 3}, m}, {"c0.w.exp_avg_sq", 1, {2}, v}};
    assert_int_equal(cp_ckpt_save_tensors(in_dir("o.safetensors"), t, 2), CP_OK);
    t[0].data = m2;
    t[1].data = v2;
    assert_int_equal(cp_ckpt_load_tensors(in_dir("o.safetensors"), t, 2), CP_OK);
    assert_memory_equal(m, m2, sizeof m);
    assert_memory_equal(v, v2, sizeof v);
    m2[0] = 77;
    t[1].name = "c1.w.exp_avg_sq";
    assert_int_equal(cp_ckpt_load_tensors(in_dir("o.safetensors"), t, 2), CP_E_CKPT);
    assert_contains(cp_err_text(), "tensor 'c1.w.exp_avg_sq' is missing");
    t[1].name = "c0.w.exp_avg_sq";
    t[1].dims[0] = 3;
    assert_int_equal(cp_ckpt_load_tensors(in_dir("o.safetensors"), t, 2), CP_E_CKPT);
    assert_contains(cp_err_text(), "has shape [2], the model needs [3]");
    assert_true(m2[0] == 77);
}

/* ---- checkpoint folders ---- */

static void make_checkpoint(int number)
{
    char name[32];
    struct cp_str tmp = {0};
    snprintf(name, sizeof name, "checkpoint-%d", number);
    assert_int_equal(cp_ckpt_begin(dir, name, &tmp), CP_OK);
    save(tmp.p);
    float m[2] = {(float)number, 2};
    struct cp_ckpt_tensor t = {"c0.w.exp_avg", 1, {2}, m};
    struct cp_str path = {0};
    cp_str_printf(&path, "%s/optimizer.safetensors", tmp.p);
    assert_int_equal(cp_ckpt_save_tensors(path.p, &t, 1), CP_OK);
    assert_int_equal(cp_ckpt_commit(dir, name), CP_OK);
    assert_int_equal(access(tmp.p, F_OK), -1);
    cp_str_fini(&tmp);
    cp_str_fini(&path);
}

static void expect_latest(int number)
{
    struct cp_str out = {0};
    char name[32];
    cp_err err = cp_ckpt_latest(dir, &out);
    if (number < 0) {
        assert_int_equal(err, CP_E_CKPT);
        assert_int_equal(out.len, 0);
    } else {
        assert_int_equal(err, CP_OK);
        snprintf(name, sizeof name, "checkpoint-%d", number);
        assert_string_equal(out.p, in_dir(name));
    }
    cp_str_fini(&out);
}

static void test_newest_is_found_by_number(void **state)
{
    (void)state;
    expect_latest(-1);
    make_checkpoint(9);
    make_checkpoint(10);
    make_checkpoint(2);
    assert_int_equal(mkdir(in_dir("checkpoint-11.tmp"), 0755), 0);
    assert_int_equal(mkdir(in_dir("checkpoint-012"), 0755), 0);
    assert_int_equal(mkdir(in_dir("checkpoint-13x"), 0755), 0);
    assert_int_equal(mkdir(in_dir("checkpoint-99999999999999999999"), 0755), 0);
    expect_latest(10);
    assert_string_equal(cp_str_text(&logged), "");
    assert_int_equal(cp_ckpt_verify(in_dir("checkpoint-9")), CP_OK);
    assert_int_equal(cp_ckpt_latest(in_dir("none"), &logged), CP_E_IO);
}

static void shorten(const char *file, off_t by)
{
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(truncate(file, by < 0 ? 0 : st.st_size - by), 0);
}

static void flip(const char *file, off_t at)
{
    char c;
    int fd = open(file, O_RDWR);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static void test_damage(void **state)
{
    (void)state;
    static const char *const FILES[] = {
        "config.json",           "model.safetensors",     "vocab.txt",
        "tokenizer_config.json", "optimizer.safetensors", "manifest.json"};
    struct stat st;
    make_checkpoint(1);
    for (size_t i = 0; i < 6; i++) {
        for (int way = 0; way < 4; way++) {
            char file[64];
            make_checkpoint(2);
            snprintf(file, sizeof file, "checkpoint-2/%s", FILES[i]);
            assert_int_equal(stat(in_dir(file), &st), 0);
            if (way == 0) {
                shorten(in_dir(file), 1);
            } else if (way == 1) {
                shorten(in_dir(file), -1);
            } else if (way == 2) {
                unlink(in_dir(file));
            } else {
                flip(in_dir(file), st.st_size / 2);
            }
            cp_str_clear(&logged);
            expect_latest(1);
            assert_contains(logged.p, "checkpoint skipped: ");
            assert_contains(logged.p, "checkpoint-2");
            if (i < 5) {
                assert_contains(logged.p, FILES[i]);
            }
        }
    }
    unlink(in_dir("checkpoint-1/manifest.json"));
    expect_latest(-1);
    assert_contains(cp_err_text(), "(2 damaged ones)");
}

/* Every single bit of a manifest, and of one small file. */
static void test_any_flipped_bit(void **state)
{
    (void)state;
    static const char *const FILES[] = {"checkpoint-1/manifest.json",
                                        "checkpoint-1/optimizer.safetensors"};
    make_checkpoint(1);
    for (int f = 0; f < 2; f++) {
        struct cp_str text = {0};
        assert_int_equal(cp_file_read(in_dir(FILES[f]), 1 << 16, &text), CP_OK);
        int accepted = 0;
        for (size_t i = 0; i < text.len; i++) {
            flip(in_dir(FILES[f]), (off_t)i);
            accepted += cp_ckpt_verify(in_dir("checkpoint-1")) == CP_OK;
            flip(in_dir(FILES[f]), (off_t)i);
        }
        assert_int_equal(accepted, 0);
        assert_int_equal(cp_ckpt_verify(in_dir("checkpoint-1")), CP_OK);
        cp_str_fini(&text);
    }
}

static void test_strange_entries(void **state)
{
    (void)state;
    make_checkpoint(1);
    write_text("checkpoint-1/.hidden", "x");
    assert_int_equal(cp_ckpt_verify(in_dir("checkpoint-1")), CP_OK);
    write_text("checkpoint-1/extra.safetensors", "x");
    assert_int_equal(cp_ckpt_verify(in_dir("checkpoint-1")), CP_E_CKPT);
    assert_contains(cp_err_text(), "extra.safetensors is not in the manifest");
    unlink(in_dir("checkpoint-1/extra.safetensors"));
    assert_int_equal(rename(in_dir("checkpoint-1/vocab.txt"), in_dir("moved")), 0);
    assert_int_equal(symlink(in_dir("moved"), in_dir("checkpoint-1/vocab.txt")), 0);
    assert_int_equal(cp_ckpt_verify(in_dir("checkpoint-1")), CP_E_CKPT);
    assert_contains(cp_err_text(), "vocab.txt is missing");
    static const char *const MANIFESTS[] = {
        "{\"version\":1,\"files\":{\"../x\":{\"size\":1,\"sha256\":\"\"}}}",
        "{\"version\":1,\"files\":{}}",
        "{\"version\":2,\"files\":{\"a\":{\"size\":1,\"sha256\":\"\"}}}",
        "{\"version\":1,\"files\":{\"config.json\":3}}",
        "{}",
        "[]",
        ""};
    for (size_t i = 0; i < sizeof MANIFESTS / sizeof *MANIFESTS; i++) {
        write_text("checkpoint-1/manifest.json", MANIFESTS[i]);
        assert_int_equal(cp_ckpt_verify(in_dir("checkpoint-1")), CP_E_CKPT);
    }
    assert_int_equal(cp_ckpt_verify(in_dir("none")), CP_E_CKPT);
}

static void test_begin_and_commit(void **state)
{
    (void)state;
    struct cp_str tmp = {0};
    static const char *const NAMES_BAD[] = {"", ".", "..", "../x", "/x", "a/b", "a\\b", "a\nb"};
    for (size_t i = 0; i < sizeof NAMES_BAD / sizeof *NAMES_BAD; i++) {
        assert_int_equal(cp_ckpt_begin(dir, NAMES_BAD[i], &tmp), CP_E_CKPT);
        assert_int_equal(cp_ckpt_commit(dir, NAMES_BAD[i]), CP_E_CKPT);
    }
    char longer[300];
    memset(longer, 'a', 299);
    longer[299] = 0;
    assert_int_equal(cp_ckpt_begin(dir, longer, &tmp), CP_E_CKPT);
    /* what a crash left is not taken into the next try */
    assert_int_equal(cp_ckpt_begin(dir, "checkpoint-1", &tmp), CP_OK);
    assert_int_equal(cp_file_write(in_dir("checkpoint-1.tmp/old"), "x", 1), CP_OK);
    assert_int_equal(mkdir(in_dir("checkpoint-1.tmp/sub"), 0755), 0);
    assert_int_equal(cp_ckpt_commit(dir, "checkpoint-1"), CP_E_CKPT); /* a folder in it */
    assert_int_equal(access(in_dir("checkpoint-1"), F_OK), -1);
    make_checkpoint(1);
    assert_int_equal(access(in_dir("checkpoint-1/old"), F_OK), -1);
    /* a second save of the same number replaces the first as a whole */
    struct stat before, after;
    write_text("checkpoint-1/extra", "x");
    assert_int_equal(stat(in_dir("checkpoint-1"), &before), 0);
    make_checkpoint(1);
    assert_int_equal(stat(in_dir("checkpoint-1"), &after), 0);
    assert_true(before.st_ino != after.st_ino);
    assert_int_equal(cp_ckpt_verify(in_dir("checkpoint-1")), CP_OK);
    assert_int_equal(cp_ckpt_begin(in_dir("none"), "checkpoint-1", &tmp), CP_E_IO);
    cp_str_fini(&tmp);
}

static void test_prune(void **state)
{
    (void)state;
    for (int i = 1; i <= 5; i++) {
        make_checkpoint(i);
    }
    shorten(in_dir("checkpoint-5/model.safetensors"), 1); /* damaged: does not count, stays */
    assert_int_equal(mkdir(in_dir("checkpoint-6.tmp"), 0755), 0);
    write_text("checkpoint-6.tmp/x", "x");
    assert_int_equal(mkdir(in_dir("other.tmp"), 0755), 0);
    assert_int_equal(cp_ckpt_prune(dir, 2, NULL), CP_OK);
    assert_int_equal(access(in_dir("checkpoint-1"), F_OK), -1);
    assert_int_equal(access(in_dir("checkpoint-2"), F_OK), -1);
    assert_int_equal(access(in_dir("checkpoint-3"), F_OK), 0);
    assert_int_equal(access(in_dir("checkpoint-4"), F_OK), 0);
    assert_int_equal(access(in_dir("checkpoint-5"), F_OK), 0);
    assert_int_equal(access(in_dir("checkpoint-6.tmp"), F_OK), -1);
    assert_int_equal(access(in_dir("other.tmp"), F_OK), 0);
    expect_latest(4);
    assert_int_equal(cp_ckpt_prune(dir, 9, ""), CP_OK);
    assert_int_equal(access(in_dir("checkpoint-3"), F_OK), 0);
}

/* The checkpoints that are there, as a text of digits. */
static void expect_there(const char *digits)
{
    char there[16];
    int n = 0;
    for (int i = 1; i <= 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "checkpoint-%d", i);
        if (access(in_dir(name), F_OK) == 0) {
            there[n++] = (char)('0' + i);
        }
    }
    there[n] = 0;
    assert_string_equal(there, digits);
}

/* After a resume, newer checkpoints are damaged ones, some of them with the right sizes. What the
 * run stands on is not pushed out by them. */
static void test_prune_keeps_the_current(void **state)
{
    (void)state;
    for (int i = 1; i <= 5; i++) {
        make_checkpoint(i);
    }
    flip(in_dir("checkpoint-4/model.safetensors"), 700);
    flip(in_dir("checkpoint-5/model.safetensors"), 700);
    expect_latest(3);
    assert_int_equal(cp_ckpt_prune(dir, 2, in_dir("checkpoint-3")), CP_OK);
    expect_there("2345");
    make_checkpoint(4);
    assert_int_equal(cp_ckpt_prune(dir, 1, "checkpoint-4"), CP_OK);
    expect_there("45");
    expect_latest(4);
    make_checkpoint(5);
    shorten(in_dir("checkpoint-5/vocab.txt"), 1); /* damaged as soon as written */
    assert_int_equal(cp_ckpt_prune(dir, 1, in_dir("checkpoint-5")), CP_OK);
    expect_there("45");
}

/* A saving process is killed at some moment, twenty times: what it reported as committed is there,
 * and the newest that is found verifies. */
static void test_killed_while_saving(void **state)
{
    (void)state;
    int saved = 0;
    for (int round = 0; round < 20; round++) {
        int fd[2];
        assert_int_equal(pipe(fd), 0);
        pid_t child = fork();
        if (child == 0) {
            for (unsigned char i = 1; i < 255; i++) {
                make_checkpoint(i);
                if (write(fd[1], &i, 1) != 1 || cp_ckpt_prune(dir, 2, NULL) != CP_OK) {
                    _exit(1);
                }
            }
            _exit(0);
        }
        close(fd[1]);
        unsigned char last = 0, next;
        for (int i = 0; i <= round % 3; i++) { /* some saves, then some moment of the next */
            assert_int_equal(read(fd[0], &last, 1), 1);
        }
        usleep((useconds_t)(1777 * round));
        kill(child, SIGKILL);
        while (read(fd[0], &next, 1) == 1) {
            last = next;
        }
        close(fd[0]);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        struct cp_str found = {0};
        cp_err err = cp_ckpt_latest(dir, &found);
        saved = last > saved ? last : saved;
        if (err == CP_OK) {
            assert_true(atoi(strrchr(found.p, '-') + 1) >= saved);
        } else {
            assert_int_equal(saved, 0);
        }
        cp_str_fini(&found);
    }
    assert_true(saved > 0);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    static float got[BLOCKS][PARAMS_MAX];
    const float *p[BLOCKS];
    struct cp_ckpt_model m = model_of(p);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        cp_mem_fail_at(n);
        cp_err err = cp_ckpt_save_model(dir, &m);
        cp_mem_fail_at(0);
        done = err == CP_OK;
        assert_true(done || err == CP_E_NOMEM);
    }
    done = false;
    for (uint64_t n = 1; !done; n++) {
        struct cp_ckpt_meta meta = {.n_classes = -5};
        cp_mem_fail_at(n);
        cp_err err = cp_ckpt_load_meta(dir, &meta);
        cp_mem_fail_at(0);
        done = err == CP_OK;
        assert_true(done || (err == CP_E_NOMEM && meta.n_classes == -5));
        if (done) {
            cp_ckpt_meta_fini(&meta);
        }
    }
    done = false;
    for (uint64_t n = 1; !done; n++) {
        cp_mem_fail_at(n);
        cp_err err = load(got, false);
        cp_mem_fail_at(0);
        done = err == CP_OK;
        assert_true(done || (err == CP_E_NOMEM && got[0][0] == -7));
    }
    check_loaded(got);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_round_trip),
        WITH(test_config_is_huggingface),
        WITH(test_hash),
        WITH(test_old_and_short_names),
        WITH(test_unused_are_listed),
        WITH(test_missing_and_misshapen),
        WITH(test_new_head),
        WITH(test_half_precision_file),
        WITH(test_shards),
        WITH(test_foreign_configs),
        WITH(test_case_of_the_tokenizer),
        WITH(test_named_tensors),
        WITH(test_newest_is_found_by_number),
        WITH(test_damage),
        WITH(test_any_flipped_bit),
        WITH(test_strange_entries),
        WITH(test_begin_and_commit),
        WITH(test_prune),
        WITH(test_prune_keeps_the_current),
        WITH(test_killed_while_saving),
        WITH(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
