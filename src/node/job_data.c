/* job_data: the files of a job: its texts, their vocabulary, their shards, and recorded worlds. */
#include "node/job_data.h"

#include "base/rng.h"
#include "data/hash.h"
#include "data/wptrain.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HELDOUT_MODULUS = 10, /* every tenth text by hash, where no held-out file is given */
    WORD_MAX = 100,       /* longest word in code points, as in the common files */
};

/* --- files ----------------------------------------------------------------------------------- */

void cp_job_path(struct cp_str *out, const char *folder, const char *path)
{
    cp_str_clear(out);
    if (path[0] != '/' && folder[0] && strcmp(folder, ".") != 0) {
        cp_str_printf(out, "%s/", folder);
    }
    cp_str_puts(out, path);
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The file folder/stem.{tsv,csv,jsonl}; false if there is none. */
static bool find_file(struct cp_str *out, const char *folder, const char *stem)
{
    static const char *const SUFFIXES[] = {"tsv", "csv", "jsonl"};
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof SUFFIXES[0]; i++) {
        cp_str_clear(out);
        cp_str_printf(out, "%s/%s.%s", folder, stem, SUFFIXES[i]);
        if (access(cp_str_text(out), F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Where training, held-out and vocabulary files are; empty: there is none. */
struct paths {
    struct cp_str train, heldout, vocab;
};

static void paths_fini(struct paths *p)
{
    cp_str_fini(&p->train);
    cp_str_fini(&p->heldout);
    cp_str_fini(&p->vocab);
}

static cp_err find_paths(struct paths *p, const struct cp_config *c, const char *folder)
{
    struct cp_str base = {0};
    cp_job_path(&base, folder, c->data.path);
    cp_err err = cp_str_check(&base);
    if (!err && access(cp_str_text(&base), F_OK) != 0) {
        err = cp_fail(CP_E_IO,
                      "data.path: there is no file or folder %s (relative paths start at the "
                      "folder of the configuration)",
                      cp_str_text(&base));
    } else if (!err && !is_dir(cp_str_text(&base))) {
        cp_job_path(&p->train, folder, c->data.path);
    } else if (!err && !find_file(&p->train, cp_str_text(&base), "train")) {
        err = cp_fail(CP_E_DATA,
                      "data.path: the folder %s has no train.tsv, train.csv or train.jsonl",
                      cp_str_text(&base));
    } else if (!err) {
        if (!find_file(&p->heldout, cp_str_text(&base), "heldout")) {
            cp_str_clear(&p->heldout);
        }
        cp_str_printf(&p->vocab, "%s/vocab.txt", cp_str_text(&base));
        if (access(cp_str_text(&p->vocab), F_OK) != 0) {
            cp_str_clear(&p->vocab);
        }
    }
    cp_str_fini(&base);
    if (c->data.heldout) {
        cp_job_path(&p->heldout, folder, c->data.heldout);
    }
    if (c->data.vocab) {
        cp_job_path(&p->vocab, folder, c->data.vocab);
    }
    return err;
}

/* --- data ------------------------------------------------------------------------------------ */

static cp_err new_set(struct cp_dataset **set)
{
    return cp_mem_new(NULL, sizeof **set, set);
}

static cp_err read_sets(struct cp_job *job, const struct paths *p)
{
    const struct cp_config *c = job->config;
    struct cp_dataset_options opt = {.text_column = c->data.text_column,
                                     .label_column = c->data.label_column,
                                     .labels_required = true};
    CP_TRY(new_set(&job->train_set));
    CP_TRY(new_set(&job->heldout_set));
    cp_err err = cp_dataset_read(cp_str_text(&p->train), &opt, job->train_set);
    if (err && c->data.classes > 0) { /* a label out of range is named best by whoever knows it */
        opt.n_classes = (int32_t)c->data.classes;
        err = cp_dataset_read(cp_str_text(&p->train), &opt, job->train_set);
    }
    CP_TRY(err);
    if (c->data.classes && c->data.classes != job->train_set->n_classes) {
        return cp_fail(CP_E_DATA, "%s has %d classes, data.classes says %lld",
                       cp_str_text(&p->train), job->train_set->n_classes,
                       (long long)c->data.classes);
    }
    if (p->heldout.len > 0) {
        opt.class_names = (const char *const *)job->train_set->class_name;
        opt.n_classes = job->train_set->n_classes;
        return cp_dataset_read(cp_str_text(&p->heldout), &opt, job->heldout_set);
    }
    struct cp_dataset all = *job->train_set;
    *job->train_set = (struct cp_dataset){0};
    err = cp_dataset_split_hash(&all, HELDOUT_MODULUS, 0, job->train_set, job->heldout_set);
    cp_dataset_fini(&all);
    if (!err && (job->train_set->n == 0 || job->heldout_set->n == 0)) {
        err = cp_fail(CP_E_DATA,
                      "%s is too small to hold out every tenth text: %lld to train on, %lld to "
                      "evaluate on; add rows or set data.heldout",
                      cp_str_text(&p->train), (long long)job->train_set->n,
                      (long long)job->heldout_set->n);
    }
    return err;
}

static cp_err read_vocab(struct cp_job *job, const struct paths *p)
{
    if (p->vocab.len > 0) {
        return cp_vocab_load(cp_str_text(&p->vocab), &job->vocab);
    }
    return cp_wordpiece_train(job->train_set->text, job->train_set->len, job->train_set->n, true,
                              (int32_t)job->config->model.vocab, &job->vocab);
}

static uint64_t hash_tokens(const struct cp_tokens *t)
{
    uint64_t parts[3] = {
        cp_hash64((const char *)t->start, (size_t)(t->n + 1) * sizeof t->start[0]),
        cp_hash64((const char *)t->id, (size_t)t->start[t->n] * sizeof t->id[0]),
        cp_hash64((const char *)t->label, (size_t)t->n * sizeof t->label[0]),
    };
    return cp_hash64((const char *)parts, sizeof parts);
}

cp_err cp_job_tokenize(struct cp_job *job)
{
    struct cp_tokenizer tok = {job->vocab, true, WORD_MAX};
    CP_TRY(cp_tokens_make(&tok, job->train_set, job->shape.max_len, &job->train));
    CP_TRY(cp_tokens_make(&tok, job->heldout_set, job->shape.max_len, &job->heldout));
    job->data_hash += hash_tokens(&job->train) * 31 + hash_tokens(&job->heldout);
    return CP_OK;
}

cp_err cp_job_draw_shards(struct cp_job *job)
{
    const struct cp_config *c = job->config;
    enum cp_shard_kind kind =
        c->data.partition == CP_PARTITION_IID ? CP_SHARD_IID : CP_SHARD_DIRICHLET;
    CP_TRY(cp_mem_new(NULL, sizeof *job->shards, &job->shards));
    CP_TRY(cp_shard(job->train_set->label, job->train_set->n, job->base.n_clusters, kind,
                    c->data.alpha, job->seed, job->shards));
    for (int k = 0; k < job->base.n_clusters; k++) {
        job->base.cluster[k].data_size = (double)cp_shards_size(job->shards, k);
    }
    cp_world_weigh(&job->base);
    int64_t n = job->heldout_set->n;
    CP_TRY(cp_mem_array(NULL, (size_t)n, sizeof *job->eval_order, &job->eval_order));
    for (int64_t i = 0; i < n; i++) {
        job->eval_order[i] = (int32_t)i;
    }
    struct cp_rng rng;
    cp_rng_init(&rng, job->seed, CP_RNG_SHUFFLE, UINT32_MAX, 0); /* no cluster has this number */
    cp_rng_shuffle(&rng, job->eval_order, (size_t)n);
    return CP_OK;
}

cp_err cp_job_load_data(struct cp_job *job, const char *folder)
{
    struct paths p = {0};
    cp_err err = find_paths(&p, job->config, folder);
    if (!err) {
        err = read_sets(job, &p);
    }
    if (!err) {
        err = read_vocab(job, &p);
    }
    paths_fini(&p);
    CP_TRY(err);
    job->shape.vocab = cp_vocab_size(job->vocab);
    job->shape.classes = job->train_set->n_classes;
    return CP_OK;
}

cp_err cp_job_read_trace(struct cp_job *job, const char *folder, const char *file,
                         struct cp_world_trace **out)
{
    enum { BYTES_MAX = 1 << 30 };
    struct cp_str path = {0}, bytes = {0};
    cp_job_path(&path, folder, file);
    cp_err err = cp_str_check(&path);
    if (!err) {
        err = cp_file_read(cp_str_text(&path), BYTES_MAX, &bytes);
    }
    if (!err) {
        err = cp_world_trace_parse(cp_str_text(&path), cp_str_text(&bytes), bytes.len, &job->base,
                                   out);
    }
    if (!err) {
        job->data_hash = job->data_hash * 31 + cp_hash64(cp_str_text(&bytes), bytes.len);
    }
    cp_str_fini(&path);
    cp_str_fini(&bytes);
    return err;
}
