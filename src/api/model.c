/* model: predictions and metrics of a checkpoint, and what is in it. */
#include "api/internal.h"
#include "data/batch.h"
#include "data/metrics.h"
#include "model/ckpt.h"
#include "model/segment.h"
#include "pipe/stage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_MAX = 16, ACTIVATION_BYTES_MAX = 1 << 28, WORD_MAX = 100 };

struct collapipe_model {
    struct cp_ckpt_meta meta;
    struct cp_vocab *vocab;
    struct cp_mem mem;
    struct cp_segment *seg; /* the whole model */
    int32_t *ids, *len, *label;
    int64_t *sample;
    int batch;     /* samples in one forward */
    float *scores; /* [batch * C] probabilities of the last batch */
    struct cp_str dir;
};

/* A checkpoint folder as it is, or the newest checkpoint of a run folder. */
static cp_err find_model(const char *dir, struct cp_str *out)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(dir, "model.safetensors", &path);
    bool has = !err && access(path.p, F_OK) == 0;
    if (!err && !has) {
        err = cp_api_path(dir, "model.safetensors.index.json", &path);
        has = !err && access(path.p, F_OK) == 0;
    }
    cp_str_fini(&path);
    CP_TRY(err);
    if (has) {
        cp_str_puts(out, dir);
        return cp_str_check(out);
    }
    if (access(dir, F_OK) != 0) {
        return cp_fail(CP_E_CKPT, "there is no folder %s", dir);
    }
    err = cp_ckpt_latest(dir, out);
    return err ? cp_fail(CP_E_CKPT,
                         "%s is neither a model folder (no model.safetensors) nor a run "
                         "folder with a complete checkpoint",
                         dir)
               : CP_OK;
}

static cp_err load_vocab(collapipe_model *m)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(m->dir.p, "vocab.txt", &path);
    if (!err) {
        err = cp_vocab_load(path.p, &m->vocab);
    }
    cp_str_fini(&path);
    CP_TRY(err);
    if (cp_vocab_size(m->vocab) != m->meta.shape.vocab) {
        return cp_fail(CP_E_CKPT, "%s/vocab.txt has %d pieces, the model %d", m->dir.p,
                       cp_vocab_size(m->vocab), m->meta.shape.vocab);
    }
    return CP_OK;
}

/* A segment keeps the activations of all its layers, so a large model takes fewer samples. */
static int batch_of(const struct cp_shape *s)
{
    int b = BATCH_MAX;
    while (b > 1 && cp_shape_cost(s, 0, s->layers + 1, b, s->max_len, 1, 0).slot_bytes >
                        ACTIVATION_BYTES_MAX) {
        b /= 2;
    }
    return b;
}

static cp_err load_weights(collapipe_model *m)
{
    const struct cp_shape *s = &m->meta.shape;
    int n = cp_shape_blocks(s);
    float **block = NULL;
    m->mem.name = "model";
    m->batch = batch_of(s);
    CP_TRY(cp_segment_new(s, 0, s->layers + 1, m->batch, s->max_len, 1, CP_OPTIM_SGD, &m->mem,
                          &m->seg));
    CP_TRY(cp_mem_array(&m->mem, (size_t)n, sizeof *block, &block));
    for (int k = 0; k < n; k++) {
        block[k] = cp_segment_plane(m->seg, k, CP_PLANE_W);
    }
    cp_err err = cp_ckpt_load_blocks(m->dir.p, s, block, false);
    cp_mem_free(block);
    return err;
}

/* A checkpoint of ours says what its files must be; a folder from elsewhere has no manifest. */
static cp_err check_manifest(const collapipe_model *m)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(m->dir.p, "manifest.json", &path);
    if (!err && access(path.p, F_OK) == 0) {
        err = cp_ckpt_verify(m->dir.p);
    }
    cp_str_fini(&path);
    return err;
}

static cp_err open_model(collapipe_model *m, const char *dir)
{
    CP_TRY(find_model(dir, &m->dir));
    CP_TRY(check_manifest(m));
    CP_TRY(cp_ckpt_load_meta(m->dir.p, &m->meta));
    CP_TRY(load_vocab(m));
    CP_TRY(load_weights(m));
    size_t classes = (size_t)m->meta.shape.classes, len = (size_t)m->meta.shape.max_len;
    size_t batch = (size_t)m->batch;
    CP_TRY(cp_mem_array(&m->mem, batch * len, sizeof *m->ids, &m->ids));
    CP_TRY(cp_mem_array(&m->mem, batch, sizeof *m->len, &m->len));
    CP_TRY(cp_mem_array(&m->mem, batch, sizeof *m->label, &m->label));
    CP_TRY(cp_mem_array(&m->mem, batch, sizeof *m->sample, &m->sample));
    return cp_mem_array(&m->mem, batch * classes, sizeof *m->scores, &m->scores);
}

int collapipe_model_open(const char *dir, collapipe_model **out)
{
    collapipe_model *m = calloc(1, sizeof *m);
    cp_err err = m ? open_model(m, dir) : cp_fail(CP_E_NOMEM, "out of memory");
    if (err) {
        collapipe_model_close(m);
        return cp_api_status(err);
    }
    *out = m;
    return cp_api_status(CP_OK);
}

void collapipe_model_close(collapipe_model *m)
{
    if (!m) {
        return;
    }
    cp_segment_free(m->seg);
    cp_mem_free(m->ids);
    cp_mem_free(m->len);
    cp_mem_free(m->label);
    cp_mem_free(m->sample);
    cp_mem_free(m->scores);
    cp_vocab_free(m->vocab);
    cp_ckpt_meta_fini(&m->meta);
    cp_str_fini(&m->dir);
    free(m);
}

/* Probabilities of logits [b, C] into m->scores. */
static void softmax(collapipe_model *m, const cp_real *logits, int b)
{
    int n = m->meta.shape.classes;
    for (int i = 0; i < b; i++) {
        const cp_real *z = logits + (ptrdiff_t)i * n;
        float *p = m->scores + (ptrdiff_t)i * n;
        double max = z[0], sum = 0;
        for (int c = 1; c < n; c++) {
            max = z[c] > max ? z[c] : max;
        }
        for (int c = 0; c < n; c++) {
            sum += exp(z[c] - max);
        }
        for (int c = 0; c < n; c++) {
            p[c] = (float)(exp(z[c] - max) / sum);
        }
    }
}

/* Samples first..first+b-1 of a token set; the loss is summed over those with a label. */
static void run_batch(collapipe_model *m, const struct cp_tokens *tokens, int64_t first, int b,
                      struct cp_head_result *head)
{
    struct cp_micro micro = {.b = b,
                             .len = m->len,
                             .sample = m->sample,
                             .ids = m->ids,
                             .label = m->label,
                             .step_labelled = b};
    for (int i = 0; i < b; i++) {
        m->sample[i] = first + i;
    }
    cp_batch_fill(tokens, m->sample, b, m->meta.shape.max_len, m->ids, m->len, m->label, &micro.t);
    softmax(m, cp_segment_forward(m->seg, 0, &micro, head), b);
}

static cp_err make_tokens(const collapipe_model *m, const struct cp_dataset *ds,
                          struct cp_tokens *out)
{
    struct cp_tokenizer tok = {m->vocab, m->meta.lower_case, WORD_MAX};
    return cp_tokens_make(&tok, ds, m->meta.shape.max_len, out);
}

/* --- predict --------------------------------------------------------------------------------- */

static json_t *prediction(const collapipe_model *m, const struct cp_dataset *ds, int64_t sample,
                          const float *p)
{
    json_t *j = json_object(), *scores = json_object();
    int32_t best = cp_argmax(p, m->meta.n_classes);
    for (int c = 0; c < m->meta.n_classes; c++) {
        cp_api_real(scores, m->meta.class_names[c], p[c]);
    }
    json_t *text = json_stringn(ds->text[sample], ds->len[sample]);
    json_object_set_new(j, "text", text ? text : json_null()); /* not UTF-8 */
    json_object_set_new(j, "label",
                        best < 0 ? json_null() : json_string(m->meta.class_names[best]));
    cp_api_real(j, "score", best < 0 ? NAN : p[best]);
    json_object_set_new(j, "scores", scores);
    return j;
}

static cp_err predict(collapipe_model *m, const struct cp_dataset *ds, char **json)
{
    struct cp_tokens tokens;
    json_t *list = json_array();
    int classes = m->meta.shape.classes;
    cp_err err = make_tokens(m, ds, &tokens);
    for (int64_t at = 0; at < ds->n && !err; at += m->batch) {
        int b = (int)(ds->n - at < m->batch ? ds->n - at : m->batch);
        struct cp_head_result head = {0};
        run_batch(m, &tokens, at, b, &head);
        for (int i = 0; i < b; i++) {
            json_array_append_new(list,
                                  prediction(m, ds, at + i, m->scores + (ptrdiff_t)i * classes));
        }
    }
    if (!err) {
        cp_tokens_fini(&tokens);
        return cp_api_dump(json_pack("{s:o}", "predictions", list), json);
    }
    json_decref(list);
    return err;
}

/* A data set that borrows the caller's texts. */
static cp_err predict_texts(collapipe_model *m, const char *const *texts, size_t n, char **json)
{
    struct cp_dataset ds = {.n = (int64_t)n};
    CP_TRY(cp_mem_array(NULL, n, sizeof *ds.text, &ds.text));
    cp_err err = cp_mem_array(NULL, n, sizeof *ds.len, &ds.len);
    if (!err) {
        err = cp_mem_array(NULL, n, sizeof *ds.label, &ds.label);
    }
    for (size_t i = 0; i < n && !err; i++) {
        ds.text[i] = texts[i];
        ds.len[i] = strlen(texts[i]);
        ds.label[i] = CP_LABEL_IGNORE;
    }
    if (!err) {
        err = predict(m, &ds, json);
    }
    cp_mem_free(ds.text);
    cp_mem_free(ds.len);
    cp_mem_free(ds.label);
    return err;
}

int collapipe_predict(collapipe_model *m, const char *const *texts, size_t n, char **json)
{
    return cp_api_status(predict_texts(m, texts, n, json));
}

/* The lines of a text file; a last line without an end counts too. */
static cp_err predict_lines(collapipe_model *m, const char *path, char **json)
{
    struct cp_str text = {0};
    const char **line = NULL;
    size_t n = 0;
    cp_err err = cp_file_read(path, (size_t)1 << 30, &text);
    for (size_t i = 0; i < text.len && !err; i++) {
        n += text.p[i] == '\n' || i + 1 == text.len;
    }
    if (!err) {
        err = cp_mem_array(NULL, n, sizeof *line, &line);
    }
    char *p = text.p;
    for (size_t i = 0; i < n && !err; i++) {
        size_t len = strcspn(p, "\n");
        line[i] = p;
        p[len] = 0;
        if (len > 0 && p[len - 1] == '\r') {
            p[len - 1] = 0;
        }
        p += len + 1;
    }
    if (!err) {
        err = predict_texts(m, line, n, json);
    }
    cp_mem_free(line);
    cp_str_fini(&text);
    return err;
}

static cp_err read_labelled(const collapipe_model *m, const char *path, bool required,
                            struct cp_dataset *ds)
{
    struct cp_dataset_options opt = {.class_names = (const char *const *)m->meta.class_names,
                                     .n_classes = m->meta.n_classes,
                                     .labels_required = required};
    return cp_dataset_read(path, &opt, ds);
}

static bool is_table(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".tsv") || !strcmp(dot, ".csv") || !strcmp(dot, ".jsonl"));
}

int collapipe_predict_file(collapipe_model *m, const char *path, char **json)
{
    if (!is_table(path)) {
        return cp_api_status(predict_lines(m, path, json));
    }
    struct cp_dataset ds = {0};
    cp_err err = read_labelled(m, path, false, &ds);
    if (!err) {
        err = predict(m, &ds, json);
        cp_dataset_fini(&ds);
    }
    return cp_api_status(err);
}

/* --- eval ------------------------------------------------------------------------------------ */

static json_t *eval_json(const collapipe_model *m, const struct cp_confusion *conf, double loss)
{
    json_t *classes = json_array(), *metrics = json_object();
    cp_api_real(metrics, "accuracy", cp_confusion_accuracy(conf));
    cp_api_real(metrics, "macro_f1", cp_confusion_macro_f1(conf));
    cp_api_real(metrics, "loss", loss);
    for (int c = 0; c < m->meta.n_classes; c++) {
        int64_t n = 0;
        for (int k = 0; k <= m->meta.n_classes; k++) {
            n += cp_confusion_count(conf, c, k);
        }
        json_t *j =
            json_pack("{s:s, s:I}", "name", m->meta.class_names[c], "samples", (json_int_t)n);
        cp_api_real(j, "f1", cp_confusion_f1(conf, c));
        json_array_append_new(classes, j);
    }
    return json_pack("{s:o, s:I, s:o}", "metrics", metrics, "samples", (json_int_t)conf->total,
                     "classes", classes);
}

static cp_err evaluate(collapipe_model *m, const struct cp_dataset *ds, char **json)
{
    struct cp_tokens tokens;
    struct cp_confusion conf;
    struct cp_head_result head = {0};
    double loss = 0;
    CP_TRY(cp_confusion_init(&conf, m->meta.n_classes));
    cp_err err = make_tokens(m, ds, &tokens);
    for (int64_t at = 0; at < ds->n && !err; at += m->batch) {
        int b = (int)(ds->n - at < m->batch ? ds->n - at : m->batch);
        run_batch(m, &tokens, at, b, &head);
        loss += head.loss_sum;
        for (int i = 0; i < b; i++) {
            cp_confusion_add(
                &conf, ds->label[at + i],
                cp_argmax(m->scores + (ptrdiff_t)i * m->meta.n_classes, m->meta.n_classes));
        }
    }
    if (!err) {
        cp_tokens_fini(&tokens);
        err = cp_api_dump(eval_json(m, &conf, conf.total ? loss / (double)conf.total : 0), json);
    }
    cp_confusion_fini(&conf);
    return err;
}

int collapipe_eval(collapipe_model *m, const char *path, char **json)
{
    struct cp_dataset ds = {0};
    cp_err err = read_labelled(m, path, true, &ds);
    if (!err) {
        err = evaluate(m, &ds, json);
        cp_dataset_fini(&ds);
    }
    return cp_api_status(err);
}

/* --- ckpt ------------------------------------------------------------------------------------ */

/* The hash of the parameters that are loaded. */
static void model_hash(const collapipe_model *m, char sha[CP_SHA256_HEX])
{
    const float *block[CP_BLOCKS_MAX];
    for (int k = 0; k < cp_shape_blocks(&m->meta.shape); k++) {
        block[k] = cp_segment_plane(m->seg, k, CP_PLANE_W);
    }
    cp_params_sha256(&m->meta.shape, block, sha);
}

static json_t *tensor_list(const struct cp_shape *s)
{
    json_t *list = json_array();
    for (int block = 0; block < cp_shape_blocks(s); block++) {
        struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
        int n = cp_shape_tensors(s, block, info);
        for (int i = 0; i < n; i++) {
            json_t *dims = json_array();
            for (int d = 0; d < info[i].rank; d++) {
                json_array_append_new(dims, json_integer(info[i].dims[d]));
            }
            json_array_append_new(list, json_pack("{s:s, s:o, s:s}", "name", info[i].name, "shape",
                                                  dims, "dtype", "F32"));
        }
    }
    return list;
}

int collapipe_ckpt_inspect(const char *dir, char **json)
{
    collapipe_model *m = NULL;
    char sha[CP_SHA256_HEX];
    json_t *config = NULL;
    struct cp_str path = {0};
    int status = collapipe_model_open(dir, &m);
    if (status != COLLAPIPE_OK) {
        return status;
    }
    const struct cp_shape *s = &m->meta.shape;
    cp_err err = cp_api_path(m->dir.p, "config.json", &path);
    if (!err) {
        err = cp_api_read_json(path.p, &config);
    }
    if (!err) {
        model_hash(m, sha);
        err = cp_api_dump(json_pack("{s:s, s:s, s:I, s:o, s:o}", "dir", m->dir.p, "params_sha256",
                                    sha, "params", (json_int_t)cp_shape_params(s, 0, s->layers + 1),
                                    "tensors", tensor_list(s), "config", config),
                          json);
    }
    cp_str_fini(&path);
    collapipe_model_close(m);
    return cp_api_status(err);
}

int collapipe_ckpt_verify(const char *dir, char **json)
{
    struct cp_str path = {0}, manifest = {0};
    collapipe_model *m = NULL;
    json_t *doc = NULL;
    char sha[CP_SHA256_HEX];
    cp_err err = find_model(dir, &path);
    if (!err) {
        err = cp_ckpt_verify(path.p);
    }
    if (!err) {
        err = cp_api_path(path.p, "manifest.json", &manifest);
    }
    if (!err) {
        err = cp_api_read_json(manifest.p, &doc);
    }
    int status = cp_api_status(err);
    if (!err) {
        status = collapipe_model_open(path.p, &m);
    }
    if (status == COLLAPIPE_OK) {
        model_hash(m, sha);
        status = cp_api_status(
            cp_api_dump(json_pack("{s:b, s:s, s:I, s:s}", "ok", 1, "dir", path.p, "files",
                                  (json_int_t)json_object_size(json_object_get(doc, "files")),
                                  "params_sha256", sha),
                        json));
    }
    collapipe_model_close(m);
    json_decref(doc);
    cp_str_fini(&path);
    cp_str_fini(&manifest);
    return status;
}
