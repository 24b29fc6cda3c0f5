/* ckpt: parameters and named tensors. See ckpt_impl.h. */
#include "model/ckpt.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "model/ckpt_impl.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_MAX_BYTES = 64 << 20, SHARDS_MAX = 1024, LISTED_MAX = 20 };

/* ---- saving ---- */

static size_t count_tensors(const struct cp_shape *shape)
{
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    size_t n = 0;
    for (int b = 0; b < cp_shape_blocks(shape); b++) {
        n += (size_t)cp_shape_tensors(shape, b, info);
    }
    return n;
}

static cp_err save_params(const char *path, const struct cp_ckpt_model *m)
{
    struct cp_tensor_info(*info)[CP_BLOCK_TENSORS_MAX] = NULL;
    struct cp_st_tensor *tensor = NULL;
    int blocks = cp_shape_blocks(m->shape);
    size_t n = 0;
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)blocks, sizeof *info, &info), out);
    CP_TRY_GOTO(err, cp_mem_array(NULL, count_tensors(m->shape), sizeof *tensor, &tensor), out);
    for (int b = 0; b < blocks; b++) {
        int in_block = cp_shape_tensors(m->shape, b, info[b]);
        for (int i = 0; i < in_block; i++) {
            const struct cp_tensor_info *t = &info[b][i];
            tensor[n++] = (struct cp_st_tensor){.name = t->name,
                                                .dtype = CP_DT_F32,
                                                .rank = t->rank,
                                                .dims = {t->dims[0], t->dims[1]},
                                                .data = m->block_params[b] + t->offset};
        }
    }
    err = cp_st_write(path, tensor, n, NULL, 0);
out:
    cp_mem_free(tensor);
    cp_mem_free(info);
    return err;
}

cp_err cp_ckpt_save_model(const char *dir, const struct cp_ckpt_model *model)
{
    struct cp_str params = {0}, vocab = {0};
    cp_str_printf(&params, "%s/model.safetensors", dir);
    cp_str_printf(&vocab, "%s/vocab.txt", dir);
    cp_err err;
    CP_TRY_GOTO(err, cp_str_check(&params), out);
    CP_TRY_GOTO(err, cp_str_check(&vocab), out);
    CP_TRY_GOTO(err, cp_ckpt_write_config(dir, model), out);
    CP_TRY_GOTO(err, cp_file_write(vocab.p, model->vocab, model->vocab_bytes), out);
    err = save_params(params.p, model);
out:
    cp_str_fini(&params);
    cp_str_fini(&vocab);
    return err;
}

/* ---- the files of a model ---- */

struct files {
    const char *dir;
    struct cp_st *st[SHARDS_MAX];
    bool *used[SHARDS_MAX]; /* [tensors of the file] */
    char name[SHARDS_MAX][CP_FILE_NAME_MAX + 1];
    int n;
};

static void files_free(struct files *f)
{
    for (int i = 0; f && i < f->n; i++) {
        cp_mem_free(f->used[i]);
        cp_st_close(f->st[i]);
    }
    cp_mem_free(f);
}

static cp_err add_file(struct files *f, const char *name)
{
    struct cp_str path = {0};
    struct cp_st *st = NULL;
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->name[i], name) == 0) {
            return CP_OK;
        }
    }
    if (f->n == SHARDS_MAX) {
        return cp_fail(CP_E_CKPT, "%s: more than %d shards", f->dir, SHARDS_MAX);
    }
    cp_str_printf(&path, "%s/%s", f->dir, name);
    cp_err err = cp_str_check(&path);
    if (!err) {
        err = cp_st_open(path.p, &st);
    }
    if (!err) {
        err = cp_mem_array(NULL, cp_st_count(st), sizeof *f->used[0], &f->used[f->n]);
    }
    cp_str_fini(&path);
    if (err) {
        cp_st_close(st);
        return err;
    }
    snprintf(f->name[f->n], sizeof f->name[0], "%s", name);
    f->st[f->n++] = st;
    return CP_OK;
}

/* The files that "weight_map" of an index names; each must lie in the folder itself. */
static cp_err add_shards(struct files *f, const char *index_path)
{
    json_t *index = NULL, *file;
    const char *tensor;
    CP_TRY(cp_ckpt_read_json(index_path, INDEX_MAX_BYTES, &index));
    json_t *map = json_object_get(index, "weight_map");
    cp_err err = json_object_size(map) > 0
                     ? CP_OK
                     : cp_fail(CP_E_CKPT, "%s: 'weight_map' names no file", index_path);
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (!err && !name) {
            err = cp_fail(CP_E_CKPT, "%s: a file of 'weight_map' is not a text", index_path);
        }
        if (!err) {
            err = cp_name_check(CP_E_CKPT, "the shard", name);
            err =
                err ? cp_fail_in(err, "%s: tensor '%.80s'", index_path, tensor) : add_file(f, name);
        }
    }
    json_decref(index);
    return err;
}

static cp_err files_open(const char *dir, struct files **out)
{
    struct files *f = NULL;
    struct cp_str path = {0};
    cp_err err;
    CP_TRY(cp_mem_new(NULL, sizeof *f, &f));
    f->dir = dir;
    cp_str_printf(&path, "%s/model.safetensors.index.json", dir);
    CP_TRY_GOTO(err, cp_str_check(&path), out);
    err = access(path.p, F_OK) == 0 ? add_shards(f, path.p) : add_file(f, "model.safetensors");
out:
    cp_str_fini(&path);
    if (err) {
        files_free(f);
        return err;
    }
    *out = f;
    return CP_OK;
}

/* The tensor of exactly this name, in whichever file; E_CKPT if two files have it. */
static cp_err find_exact(struct files *f, const char *name, int *file,
                         const struct cp_st_info **out)
{
    for (int i = 0; i < f->n; i++) {
        const struct cp_st_info *info = cp_st_find(f->st[i], name);
        if (info && *out) {
            return cp_fail(CP_E_CKPT, "%s: tensor '%s' is in two files, %s and %s", f->dir, name,
                           f->name[*file], f->name[i]);
        }
        if (info) {
            *file = i;
            *out = info;
        }
    }
    return CP_OK;
}

/* ---- loading ---- */

struct want {
    struct cp_tensor_info info;
    const struct cp_st_info *found; /* NULL: a new tensor of the head keeps its values */
    int file;
    float *to;
};

/* "...LayerNorm.weight" -> "...LayerNorm.gamma", .bias -> .beta; false for other names. */
static bool old_norm_name(const char *name, char out[CP_NAME_MAX])
{
    static const char *const PAIRS[2][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                            {"LayerNorm.bias", "LayerNorm.beta"}};
    size_t n = strlen(name);
    for (int i = 0; i < 2; i++) {
        size_t k = strlen(PAIRS[i][0]);
        if (n >= k && strcmp(name + n - k, PAIRS[i][0]) == 0) {
            snprintf(out, CP_NAME_MAX, "%.*s%s", (int)(n - k), name, PAIRS[i][1]);
            return true;
        }
    }
    return false;
}

static cp_err find_tensor(struct files *f, struct want *w)
{
    static const char PREFIX[] = "bert.";
    char old[CP_NAME_MAX];
    const char *names[4];
    int n = 0;
    names[n++] = w->info.name;
    if (old_norm_name(w->info.name, old)) {
        names[n++] = old;
    }
    for (int i = 0, direct = n; i < direct; i++) {
        if (strncmp(names[i], PREFIX, sizeof PREFIX - 1) == 0) {
            names[n++] = names[i] + sizeof PREFIX - 1;
        }
    }
    for (int i = 0; i < n && !w->found; i++) {
        CP_TRY(find_exact(f, names[i], &w->file, &w->found));
    }
    return CP_OK;
}

static bool same_shape(const struct cp_st_info *a, int32_t rank, const int64_t *dims)
{
    return a->rank == rank && memcmp(a->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

static void dims_text(char out[64], int32_t rank, const int64_t *dims)
{
    int n = snprintf(out, 64, "[");
    for (int32_t i = 0; i < rank && n < 60; i++) {
        n += snprintf(out + n, 64 - (size_t)n, "%s%lld", i ? ", " : "", (long long)dims[i]);
    }
    snprintf(out + (n < 62 ? n : 62), 2, "]");
}

static cp_err fail_shape(const char *where, const struct cp_st_info *found, const char *name,
                         int32_t rank, const int64_t *dims)
{
    char has[64], need[64];
    dims_text(has, found->rank, found->dims);
    dims_text(need, rank, dims);
    return cp_fail(CP_E_CKPT, "%s: tensor '%s' has shape %s, the model needs %s", where, name, has,
                   need);
}

static cp_err check_want(struct files *f, struct want *w, bool in_head, bool new_head)
{
    const struct cp_st_info *found = w->found;
    if (!found && in_head && new_head) {
        return CP_OK;
    }
    if (!found) {
        return cp_fail(CP_E_CKPT, "%s: tensor '%s' is missing", f->dir, w->info.name);
    }
    if (found->dtype != CP_DT_F32 && found->dtype != CP_DT_F16 && found->dtype != CP_DT_BF16) {
        return cp_fail(CP_E_CKPT, "%s: tensor '%s' has dtype %s; allowed: F32, F16, BF16", f->dir,
                       w->info.name, cp_dtype_name(found->dtype));
    }
    f->used[w->file][found - cp_st_at(f->st[w->file], 0)] = true;
    if (!same_shape(found, w->info.rank, w->info.dims)) {
        if (new_head && strncmp(w->info.name, "classifier.", 11) == 0) {
            w->found = NULL; /* for another number of classes */
            return CP_OK;
        }
        return fail_shape(f->dir, found, w->info.name, w->info.rank, w->info.dims);
    }
    return CP_OK;
}

/* Finds and checks everything before anything is written. */
static cp_err find_wants(struct files *f, const struct cp_shape *shape, float *const *block_params,
                         bool new_head, struct want *want, size_t *n)
{
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    for (int b = 0; b < cp_shape_blocks(shape); b++) {
        int in_block = cp_shape_tensors(shape, b, info);
        bool in_head = cp_shape_kind(shape, b) == CP_BLOCK_HEAD;
        for (int i = 0; i < in_block; i++) {
            struct want w = {.info = info[i]};
            CP_TRY(find_tensor(f, &w));
            if (!block_params[b]) { /* known, not wanted */
                if (w.found) {
                    f->used[w.file][w.found - cp_st_at(f->st[w.file], 0)] = true;
                }
                continue;
            }
            w.to = block_params[b] + info[i].offset;
            CP_TRY(check_want(f, &w, in_head, new_head));
            want[(*n)++] = w;
        }
    }
    return CP_OK;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static void log_unused(const struct files *f)
{
    int listed = 0, more = 0;
    for (int i = 0; i < f->n; i++) {
        for (size_t t = 0; t < cp_st_count(f->st[i]); t++) {
            const char *name = cp_st_at(f->st[i], t)->name;
            if (f->used[i][t] || ends_with(name, "position_ids")) {
                continue;
            }
            if (listed < LISTED_MAX) {
                cp_log(CP_LOG_INFO, "%s/%s: tensor '%s' is not used", f->dir, f->name[i], name);
                listed++;
            } else {
                more++;
            }
        }
    }
    if (more > 0) {
        cp_log(CP_LOG_INFO, "%s: %d more tensors are not used", f->dir, more);
    }
}

cp_err cp_ckpt_load_blocks(const char *dir, const struct cp_shape *shape,
                           float *const *block_params, bool new_head)
{
    struct files *f = NULL;
    struct want *want = NULL;
    size_t n = 0;
    cp_err err;
    CP_TRY(files_open(dir, &f));
    CP_TRY_GOTO(err, cp_mem_array(NULL, count_tensors(shape), sizeof *want, &want), out);
    CP_TRY_GOTO(err, find_wants(f, shape, block_params, new_head, want, &n), out);
    for (size_t i = 0; i < n; i++) {
        if (want[i].found) {
            CP_TRY_GOTO(err, cp_st_read_f32(f->st[want[i].file], want[i].found, want[i].to), out);
        } else {
            cp_log(CP_LOG_WARN, "%s: tensor '%s' starts anew", dir, want[i].info.name);
        }
    }
    log_unused(f);
out:
    cp_mem_free(want);
    files_free(f);
    return err;
}

/* ---- hash ---- */

void cp_params_sha256(const struct cp_shape *shape, const float *const *block_params,
                      char hex[CP_SHA256_HEX])
{
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_init(&state);
    for (int b = 0; b < cp_shape_blocks(shape); b++) {
        int n = cp_shape_tensors(shape, b, info);
        for (int i = 0; i < n; i++) {
            crypto_hash_sha256_update(&state, (const unsigned char *)info[i].name,
                                      strlen(info[i].name) + 1);
            crypto_hash_sha256_update(&state,
                                      (const unsigned char *)(block_params[b] + info[i].offset),
                                      (size_t)info[i].count * sizeof(float));
        }
    }
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hex, CP_SHA256_HEX, digest, sizeof digest);
}

/* ---- named tensors ---- */

cp_err cp_ckpt_save_tensors(const char *path, const struct cp_ckpt_tensor *tensors, size_t n)
{
    struct cp_st_tensor *st = NULL;
    CP_TRY(cp_mem_array(NULL, n, sizeof *st, &st));
    for (size_t i = 0; i < n; i++) {
        st[i] = (struct cp_st_tensor){.name = tensors[i].name,
                                      .dtype = CP_DT_F32,
                                      .rank = tensors[i].rank,
                                      .dims = {tensors[i].dims[0], tensors[i].dims[1]},
                                      .data = tensors[i].data};
    }
    cp_err err = cp_st_write(path, st, n, NULL, 0);
    cp_mem_free(st);
    return err;
}

static cp_err check_named(const struct cp_st *st, const char *path, const struct cp_ckpt_tensor *t)
{
    const struct cp_st_info *found = cp_st_find(st, t->name);
    if (!found) {
        return cp_fail(CP_E_CKPT, "%s: tensor '%s' is missing", path, t->name);
    }
    if (found->dtype != CP_DT_F32) {
        return cp_fail(CP_E_CKPT, "%s: tensor '%s' has dtype %s, F32 is needed", path, t->name,
                       cp_dtype_name(found->dtype));
    }
    return same_shape(found, t->rank, t->dims) ? CP_OK
                                               : fail_shape(path, found, t->name, t->rank, t->dims);
}

cp_err cp_ckpt_load_tensors(const char *path, const struct cp_ckpt_tensor *tensors, size_t n)
{
    struct cp_st *st = NULL;
    CP_TRY(cp_st_open(path, &st));
    cp_err err = CP_OK;
    for (size_t i = 0; !err && i < n; i++) {
        err = check_named(st, path, &tensors[i]);
    }
    for (size_t i = 0; !err && i < n; i++) {
        err = cp_st_read_f32(st, cp_st_find(st, tensors[i].name), tensors[i].data);
    }
    cp_st_close(st);
    return err;
}
