#include "data/batch.h"

#include "base/rng.h"
#include "data/grow.h"

#include <assert.h>
#include <string.h>

static cp_err tokenise(const struct cp_tokenizer *tok, const struct cp_dataset *ds, int max_len,
                       struct cp_tokens *t)
{
    size_t used = 0, cap = 0;
    CP_TRY(cp_mem_array(NULL, (size_t)ds->n + 1, sizeof *t->start, &t->start));
    CP_TRY(cp_mem_array(NULL, (size_t)ds->n, sizeof *t->label, &t->label));
    for (int64_t i = 0; i < ds->n; i++) {
        bool cut;
        int n;
        /* A text has at most one piece per byte. */
        size_t most = ds->len[i] < (size_t)max_len - 2 ? ds->len[i] + 2 : (size_t)max_len;
        CP_TRY(cp_grow(&t->id, &cap, used, used + most, sizeof *t->id));
        cp_tokenize(tok, ds->text[i], ds->len[i], max_len, t->id + used, &n, &cut);
        used += (size_t)n;
        t->n_cut += cut;
        t->start[i + 1] = (int64_t)used;
        t->label[i] = ds->label[i];
    }
    return CP_OK;
}

cp_err cp_tokens_make(const struct cp_tokenizer *tok, const struct cp_dataset *ds, int max_len,
                      struct cp_tokens *out)
{
    CP_TRY(cp_tokenizer_check(tok, max_len));
    struct cp_tokens t = {
        .n = ds->n,
        .max_len = max_len,
        .pad_id = cp_vocab_special(tok->vocab, CP_PAD),
    };
    cp_err err = tokenise(tok, ds, max_len, &t);
    if (err) {
        cp_tokens_fini(&t);
        return err;
    }
    *out = t;
    return CP_OK;
}

void cp_tokens_fini(struct cp_tokens *t)
{
    cp_mem_free(t->start);
    cp_mem_free(t->id);
    cp_mem_free(t->label);
    *t = (struct cp_tokens){0};
}

static void shuffle(struct cp_batcher *b)
{
    struct cp_rng r;
    cp_rng_init(&r, b->seed, CP_RNG_SHUFFLE, (uint32_t)b->cluster, b->epoch);
    if (b->n > 0) {
        memcpy(b->order, b->sample, (size_t)b->n * sizeof *b->order);
    }
    cp_rng_shuffle(&r, b->order, (size_t)b->n);
}

cp_err cp_batcher_init(struct cp_batcher *b, const struct cp_shards *shards, int32_t cluster,
                       uint64_t seed, bool one_epoch)
{
    assert(cluster >= 0 && cluster < shards->n_clusters);
    struct cp_batcher fresh = {
        .sample = shards->sample + shards->start[cluster],
        .n = cp_shards_size(shards, cluster),
        .seed = seed,
        .cluster = cluster,
        .one_epoch = one_epoch,
    };
    CP_TRY(cp_mem_array(NULL, (size_t)fresh.n, sizeof *fresh.order, &fresh.order));
    shuffle(&fresh);
    *b = fresh;
    return CP_OK;
}

void cp_batcher_fini(struct cp_batcher *b)
{
    cp_mem_free(b->order);
    *b = (struct cp_batcher){0};
}

void cp_batcher_next(struct cp_batcher *b, int64_t want, int64_t *samples, int64_t *got)
{
    int64_t n = 0;
    while (n < want && b->n > 0) {
        if (b->pos == b->n) {
            if (b->one_epoch) {
                break;
            }
            b->epoch++;
            b->pos = 0;
            shuffle(b);
        }
        samples[n++] = b->order[b->pos++];
    }
    *got = n;
}

cp_err cp_batcher_seek(struct cp_batcher *b, uint32_t epoch, int64_t pos)
{
    if (pos < 0 || pos > b->n) {
        return cp_fail(CP_E_CKPT,
                       "cluster %d has %lld samples, but the saved position is %lld; resume with "
                       "the data and partition of the saved run",
                       b->cluster, (long long)b->n, (long long)pos);
    }
    b->epoch = epoch;
    b->pos = pos;
    shuffle(b);
    return CP_OK;
}

void cp_batch_fill(const struct cp_tokens *tokens, const int64_t *samples, int32_t b,
                   int32_t max_len, int32_t *ids, int32_t *len, int32_t *label, int32_t *t)
{
    int32_t longest = 0;
    assert(b >= 1);
    for (int32_t i = 0; i < b; i++) {
        assert(samples[i] >= 0 && samples[i] < tokens->n);
        len[i] = cp_tokens_len(tokens, samples[i]);
        label[i] = tokens->label[samples[i]];
        longest = len[i] > longest ? len[i] : longest;
    }
    assert(longest <= max_len);
    for (int32_t i = 0; i < b; i++) {
        int32_t *row = ids + (int64_t)i * longest;
        memcpy(row, tokens->id + tokens->start[samples[i]], (size_t)len[i] * sizeof *row);
        for (int32_t k = len[i]; k < longest; k++) {
            row[k] = tokens->pad_id;
        }
    }
    *t = longest;
}
