/*
 * feed: batches of one cluster as micro-batches, ready for the embedding.
 *
 * A batch does not go over the end of an epoch: the last one of a pass is smaller, and its loss is
 * normalised by its own samples. Where a cluster trains several replicas, each takes an even part
 * of every batch, and the cursors of all stand where the cluster's stands: so whoever leads, the
 * samples of a step are the same.
 */
#ifndef CP_NODE_FEED_H
#define CP_NODE_FEED_H

#include "model/segment.h"
#include "node/job.h"
#include "node/wire.h"

enum { CP_EVAL_MICROS = 16 }; /* micro-batches under way at a time in an evaluation */

struct cp_feed {
    const struct cp_job *job;
    struct cp_batcher batcher;
    int64_t n;              /* samples of the batch at hand */
    int micros;             /* its micro-batches */
    int64_t labelled;       /* its samples that count in the loss */
    struct cp_micro *micro; /* [most micro-batches] */
    int32_t *sizes;         /* [most micro-batches] */
    int64_t *sample;        /* [most samples] */
    int32_t *len, *label;   /* [most samples] */
    int32_t *ids;           /* [most samples * max_len] */
};

/* f is raw storage; memory is counted in mem. After a failure fini is not needed. */
CP_NODISCARD cp_err cp_feed_init(struct cp_feed *f, const struct cp_job *job, int cluster,
                                 struct cp_mem *mem);
void cp_feed_fini(struct cp_feed *f);

/* Continues at a cursor; where it stands now. */
CP_NODISCARD cp_err cp_feed_seek(struct cp_feed *f, struct cp_wire_cursor cursor);
struct cp_wire_cursor cp_feed_cursor(const struct cp_feed *f);

/* The next batch of the shard, of m micro-batches for all replicas together, and of it the part
 * index of `of` in at most m / of micro-batches, rounded up. f->n is 0 if this part is empty. */
CP_NODISCARD cp_err cp_feed_train(struct cp_feed *f, int m, int index, int of);

/* Samples first..first+n-1 of the evaluation order, at most CP_EVAL_MICROS micro-batches of them.
 */
void cp_feed_eval(struct cp_feed *f, int64_t first, int64_t n);

#endif
