/* ckpt_config: config.json and tokenizer_config.json of a model folder. See ckpt_impl.h. */
#include "base/log.h"
#include "base/mem.h"
#include "model/ckpt_impl.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_MAX_BYTES = 8 << 20, CLASSES_MAX = 1 << 15 };

cp_err cp_ckpt_read_json(const char *path, size_t max_bytes, json_t **out)
{
    struct cp_str text = {0};
    json_error_t e;
    cp_err err = cp_file_read(path, max_bytes, &text);
    if (!err) {
        json_t *json = json_loadb(cp_str_text(&text), text.len, JSON_REJECT_DUPLICATES, &e);
        if (json_is_object(json)) {
            *out = json;
        } else if (json) {
            err = cp_fail(CP_E_CKPT, "%s is not a JSON object", path);
            json_decref(json);
        } else {
            err = cp_fail(CP_E_CKPT, "%s:%d:%d: not valid JSON", path, e.line, e.column);
        }
    }
    cp_str_fini(&text);
    return err;
}

cp_err cp_ckpt_write_json(const char *dir, const char *file, json_t *json)
{
    struct cp_str path = {0};
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    cp_err err;
    cp_str_printf(&path, "%s/%s", dir, file);
    if (text) {
        CP_TRY_GOTO(err, cp_str_check(&path), out);
        err = cp_file_write(path.p, text, strlen(text));
    } else {
        err = cp_fail(CP_E_CKPT, "cannot write %s: a text in it is not UTF-8, or memory is out",
                      cp_str_text(&path));
    }
out:
    free(text);
    json_decref(json);
    cp_str_fini(&path);
    return err;
}

/* ---- writing ---- */

/* Line number of the piece in vocab.txt, or fallback. */
static int find_piece(const struct cp_ckpt_model *m, const char *piece, int fallback)
{
    size_t n = strlen(piece);
    const char *p = m->vocab, *end = m->vocab + m->vocab_bytes;
    for (int line = 0; p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t length = (size_t)((stop ? stop : end) - p);
        if (length > 0 && p[length - 1] == '\r') {
            length--;
        }
        if (length == n && memcmp(p, piece, n) == 0) {
            return line;
        }
        p = stop ? stop + 1 : end;
    }
    return fallback;
}

static json_t *config_of(const struct cp_ckpt_model *m)
{
    const struct cp_shape *s = m->shape;
    json_t *id2label = json_object(), *label2id = json_object();
    for (int i = 0; i < s->classes; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", i);
        if (json_object_set_new(id2label, id, json_string(m->class_names[i])) != 0 ||
            json_object_set_new(label2id, m->class_names[i], json_integer(i)) != 0) {
            json_decref(id2label);
            json_decref(label2id);
            return NULL;
        }
    }
    return json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:o, s:i, s:s, "
        "s:s, s:s}",
        "architectures", "BertForSequenceClassification", "model_type", "bert", "hidden_size",
        s->width, "num_hidden_layers", s->layers, "num_attention_heads", s->heads,
        "intermediate_size", s->ffn, "hidden_act", "gelu", "max_position_embeddings", s->max_len,
        "vocab_size", s->vocab, "type_vocab_size", s->types, "layer_norm_eps", s->norm_eps,
        "hidden_dropout_prob", s->dropout, "attention_probs_dropout_prob", s->dropout, "id2label",
        id2label, "label2id", label2id, "pad_token_id", find_piece(m, "[PAD]", 0),
        "position_embedding_type", "absolute", "problem_type", "single_label_classification",
        "torch_dtype", "float32");
}

cp_err cp_ckpt_write_config(const char *dir, const struct cp_ckpt_model *m)
{
    CP_TRY(cp_ckpt_write_json(dir, "config.json", config_of(m)));
    json_t *tokenizer = json_pack(
        "{s:s, s:b, s:i, s:s, s:s, s:s, s:s, s:s}", "tokenizer_class", "BertTokenizer",
        "do_lower_case", m->lower_case, "model_max_length", m->shape->max_len, "unk_token", "[UNK]",
        "sep_token", "[SEP]", "pad_token", "[PAD]", "cls_token", "[CLS]", "mask_token", "[MASK]");
    return cp_ckpt_write_json(dir, "tokenizer_config.json", tokenizer);
}

/* ---- reading ---- */

/* A positive integer; a negative fallback: it must be there. */
static cp_err read_size(const json_t *config, const char *path, const char *key, int32_t fallback,
                        int32_t *out)
{
    const json_t *value = json_object_get(config, key);
    if (!value && fallback >= 0) {
        *out = fallback;
        return CP_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > INT32_MAX) {
        return cp_fail(CP_E_CKPT, "%s: '%s' is not a positive integer", path, key);
    }
    *out = (int32_t)json_integer_value(value);
    return CP_OK;
}

static cp_err read_number(const json_t *config, const char *path, const char *key, double fallback,
                          double *out)
{
    const json_t *value = json_object_get(config, key);
    if (value && !json_is_number(value)) {
        return cp_fail(CP_E_CKPT, "%s: '%s' is not a number", path, key);
    }
    *out = value ? json_number_value(value) : fallback;
    return CP_OK;
}

/* A text that must be the one we compute. */
static cp_err need_text(const json_t *config, const char *path, const char *key, const char *need)
{
    const json_t *value = json_object_get(config, key);
    const char *text = json_string_value(value);
    if (!value || (text && strcmp(text, need) == 0)) {
        return CP_OK;
    }
    return cp_fail(CP_E_CKPT, "%s: '%s' is %.40s; only '%s' is supported", path, key,
                   text ? text : "not a text", need);
}

static cp_err check_kind(const json_t *config, const char *path)
{
    CP_TRY(need_text(config, path, "model_type", "bert"));
    CP_TRY(need_text(config, path, "hidden_act", "gelu"));
    CP_TRY(need_text(config, path, "position_embedding_type", "absolute"));
    if (json_is_true(json_object_get(config, "is_decoder"))) {
        return cp_fail(CP_E_CKPT, "%s: 'is_decoder' is true; only encoders are supported", path);
    }
    return CP_OK;
}

static cp_err read_shape(const json_t *config, const char *path, struct cp_shape *s)
{
    double attention;
    CP_TRY(read_size(config, path, "num_hidden_layers", -1, &s->layers));
    CP_TRY(read_size(config, path, "hidden_size", -1, &s->width));
    CP_TRY(read_size(config, path, "num_attention_heads", -1, &s->heads));
    CP_TRY(read_size(config, path, "intermediate_size", -1, &s->ffn));
    CP_TRY(read_size(config, path, "max_position_embeddings", -1, &s->max_len));
    CP_TRY(read_size(config, path, "vocab_size", -1, &s->vocab));
    CP_TRY(read_size(config, path, "type_vocab_size", 2, &s->types));
    CP_TRY(read_number(config, path, "layer_norm_eps", 1e-12, &s->norm_eps));
    CP_TRY(read_number(config, path, "hidden_dropout_prob", 0.1, &s->dropout));
    CP_TRY(read_number(config, path, "attention_probs_dropout_prob", s->dropout, &attention));
    if (attention != s->dropout) {
        cp_log(CP_LOG_WARN, "%s: two dropout rates, %g and %g; %g is used everywhere", path,
               s->dropout, attention, s->dropout);
    }
    return CP_OK;
}

/* Names from id2label ("0": ..., "1": ...); without it LABEL_0, LABEL_1 as in transformers. */
static cp_err read_classes(const json_t *config, const char *path, struct cp_ckpt_meta *m)
{
    const json_t *labels = json_object_get(config, "id2label");
    int32_t n = (int32_t)json_object_size(labels);
    if (labels && (n < 1 || json_object_size(labels) > CLASSES_MAX)) {
        return cp_fail(CP_E_CKPT, "%s: 'id2label' is not an object of 1 to %d classes", path,
                       CLASSES_MAX);
    }
    if (!labels) {
        CP_TRY(read_size(config, path, "num_labels", 2, &n));
        if (n > CLASSES_MAX) {
            return cp_fail(CP_E_CKPT, "%s: 'num_labels' is above %d", path, CLASSES_MAX);
        }
    }
    CP_TRY(cp_mem_array(NULL, (size_t)n, sizeof *m->class_names, &m->class_names));
    m->n_classes = m->shape.classes = n;
    for (int i = 0; i < n; i++) {
        char id[32];
        snprintf(id, sizeof id, "%d", i);
        const char *name = json_string_value(json_object_get(labels, id));
        if (labels && !name) {
            return cp_fail(CP_E_CKPT, "%s: 'id2label' has no text for class %d", path, i);
        }
        snprintf(id, sizeof id, "LABEL_%d", i);
        name = name ? name : id;
        CP_TRY(cp_mem_new(NULL, strlen(name) + 1, &m->class_names[i]));
        memcpy(m->class_names[i], name, strlen(name) + 1);
    }
    return CP_OK;
}

/* strip_accents: null or missing follows do_lower_case, and our tokenizer knows no other way. */
static cp_err read_tokenizer(const json_t *config, const char *path, bool *lower_case)
{
    const json_t *lower = json_object_get(config, "do_lower_case");
    const json_t *strip = json_object_get(config, "strip_accents");
    if (lower && !json_is_boolean(lower)) {
        return cp_fail(CP_E_CKPT, "%s: 'do_lower_case' is neither true nor false", path);
    }
    bool lowers = !lower || json_is_true(lower);
    if (strip && !json_is_null(strip) && !(lowers ? json_is_true(strip) : json_is_false(strip))) {
        return cp_fail(CP_E_CKPT,
                       "%s: 'strip_accents' is not null and not as 'do_lower_case', which is %s; "
                       "only tokenizers that do both or neither are supported",
                       path, lowers ? "true" : "false");
    }
    *lower_case = lowers;
    return CP_OK;
}

static cp_err load_tokenizer(const char *dir, bool *lower_case)
{
    struct cp_str path = {0};
    json_t *config = NULL;
    cp_err err;
    cp_str_printf(&path, "%s/tokenizer_config.json", dir);
    CP_TRY_GOTO(err, cp_str_check(&path), out);
    if (access(path.p, F_OK) == 0) {
        CP_TRY_GOTO(err, cp_ckpt_read_json(path.p, CONFIG_MAX_BYTES, &config), out);
    }
    err = read_tokenizer(config, path.p, lower_case);
out:
    json_decref(config);
    cp_str_fini(&path);
    return err;
}

void cp_ckpt_meta_fini(struct cp_ckpt_meta *meta)
{
    for (int i = 0; meta->class_names && i < meta->n_classes; i++) {
        cp_mem_free(meta->class_names[i]);
    }
    cp_mem_free(meta->class_names);
    *meta = (struct cp_ckpt_meta){0};
}

cp_err cp_ckpt_load_meta(const char *dir, struct cp_ckpt_meta *out)
{
    struct cp_ckpt_meta meta = {0};
    struct cp_str path = {0};
    json_t *config = NULL;
    cp_err err;
    cp_str_printf(&path, "%s/config.json", dir);
    CP_TRY_GOTO(err, cp_str_check(&path), fail);
    CP_TRY_GOTO(err, cp_ckpt_read_json(path.p, CONFIG_MAX_BYTES, &config), fail);
    CP_TRY_GOTO(err, check_kind(config, path.p), fail);
    CP_TRY_GOTO(err, read_shape(config, path.p, &meta.shape), fail);
    CP_TRY_GOTO(err, read_classes(config, path.p, &meta), fail);
    CP_TRY_GOTO(err, load_tokenizer(dir, &meta.lower_case), fail);
    err = cp_shape_check(&meta.shape);
    if (err) {
        err = cp_fail_in(CP_E_CKPT, "%s", path.p);
        goto fail;
    }
    *out = meta;
    meta = (struct cp_ckpt_meta){0};
fail:
    cp_ckpt_meta_fini(&meta);
    json_decref(config);
    cp_str_fini(&path);
    return err;
}
