/*
 * batch: samples as ids, their order, and padded micro-batches.
 *
 * The order is a function of (seed, cluster, epoch), so a resumed run, or another cut of the model,
 * sees what the uninterrupted run would have seen. State of a batcher is two integers.
 */
#ifndef CP_DATA_BATCH_H
#define CP_DATA_BATCH_H

#include "data/dataset.h"
#include "data/shard.h"
#include "data/wordpiece.h"

#include <stdbool.h>
#include <stdint.h>

/* A data set as ids, made once. */
struct cp_tokens {
    int64_t n;
    int64_t *start;  /* [n + 1]: sample i is id[start[i]] to id[start[i + 1] - 1], at least 2 */
    int32_t *id;     /* packed, without padding */
    int32_t *label;  /* [n] */
    int32_t max_len; /* no sample is longer */
    int32_t pad_id;
    int64_t n_cut; /* samples that lost their end */
};

static inline int32_t cp_tokens_len(const struct cp_tokens *t, int64_t sample)
{
    return (int32_t)(t->start[sample + 1] - t->start[sample]);
}

/* E_CONFIG as cp_tokenizer_check. *out is the caller's to fini; ds is not needed afterwards. */
CP_NODISCARD cp_err cp_tokens_make(const struct cp_tokenizer *tok, const struct cp_dataset *ds,
                                   int max_len, struct cp_tokens *out);
void cp_tokens_fini(struct cp_tokens *t);

struct cp_batcher {
    const int32_t *sample; /* [n] the samples of the shard; borrowed */
    int64_t n;
    uint64_t seed;
    int32_t cluster;
    bool one_epoch;
    int32_t *order; /* [n] samples in the order of this epoch */
    uint32_t epoch; /* with pos: the state */
    int64_t pos;    /* samples of this epoch given out so far */
};

/* At the beginning of epoch 0 over the samples of one cluster, which are borrowed until fini.
 * one_epoch: a batch never goes over the end of an epoch (for evaluation). */
CP_NODISCARD cp_err cp_batcher_init(struct cp_batcher *b, const struct cp_shards *shards,
                                    int32_t cluster, uint64_t seed, bool one_epoch);
void cp_batcher_fini(struct cp_batcher *b);

/* The next *got <= want samples. An exhausted epoch is followed by the next one, newly shuffled, so
 * *got == want; every sample comes exactly once per epoch, so a batch that goes over the end may
 * hold a sample twice. With one_epoch *got is smaller at the end and then 0, until
 * cp_batcher_seek. *got is always 0 if the cluster has no samples. */
void cp_batcher_next(struct cp_batcher *b, int64_t want, int64_t *samples, int64_t *got);

/* Continues where (epoch, pos) were saved. E_CKPT if pos does not fit the shard: other data or
 * another partition than when it was saved. */
CP_NODISCARD cp_err cp_batcher_seek(struct cp_batcher *b, uint32_t epoch, int64_t pos);

/* Fills a micro-batch of b >= 1 samples, padded at the end to the longest of them, *t. ids has room
 * for b * max_len, max_len >= tokens->max_len; *t <= max_len. */
void cp_batch_fill(const struct cp_tokens *tokens, const int64_t *samples, int32_t b,
                   int32_t max_len, int32_t *ids /* [b*t] */, int32_t *len /* [b] */,
                   int32_t *label /* [b] */, int32_t *t);

#endif
