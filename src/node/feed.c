#include "node/feed.h"

#include <stdlib.h>
#include <string.h>

cp_err cp_feed_init(struct cp_feed *f, const struct cp_job *job, int cluster, struct cp_mem *mem)
{
    int most = job->base.micro_max > CP_EVAL_MICROS ? job->base.micro_max : CP_EVAL_MICROS;
    size_t micros = (size_t)most, n = micros * (size_t)cp_job_micro_max(job);
    cp_err err;
    *f = (struct cp_feed){.job = job};
    CP_TRY_GOTO(err, cp_mem_array(mem, micros, sizeof *f->micro, &f->micro), fail);
    CP_TRY_GOTO(err, cp_mem_array(mem, micros, sizeof *f->sizes, &f->sizes), fail);
    CP_TRY_GOTO(err, cp_mem_array(mem, n, sizeof *f->sample, &f->sample), fail);
    CP_TRY_GOTO(err, cp_mem_array(mem, n, sizeof *f->len, &f->len), fail);
    CP_TRY_GOTO(err, cp_mem_array(mem, n, sizeof *f->label, &f->label), fail);
    CP_TRY_GOTO(err, cp_mem_array(mem, n * (size_t)job->shape.max_len, sizeof *f->ids, &f->ids),
                fail);
    CP_TRY_GOTO(err, cp_batcher_init(&f->batcher, job->shards, cluster, job->seed, true), fail);
    return CP_OK;
fail:
    cp_feed_fini(f);
    return err;
}

void cp_feed_fini(struct cp_feed *f)
{
    cp_batcher_fini(&f->batcher);
    cp_mem_free(f->micro);
    cp_mem_free(f->sizes);
    cp_mem_free(f->sample);
    cp_mem_free(f->len);
    cp_mem_free(f->label);
    cp_mem_free(f->ids);
    *f = (struct cp_feed){0};
}

cp_err cp_feed_seek(struct cp_feed *f, struct cp_wire_cursor cursor)
{
    return cp_batcher_seek(&f->batcher, (uint32_t)cursor.epoch, cursor.position);
}

struct cp_wire_cursor cp_feed_cursor(const struct cp_feed *f)
{
    return (struct cp_wire_cursor){(int64_t)f->batcher.epoch, f->batcher.pos};
}

static int by_length(const void *a, const void *b, void *arg)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    int32_t p = cp_tokens_len(arg, x), q = cp_tokens_len(arg, y);
    return p != q ? (p > q) - (p < q) : (x > y) - (x < y);
}

/* Cuts sample[0..n-1] of a token set into at most micros micro-batches, short texts first: a
 * micro-batch is padded to its longest, and the sum over a step does not care for order. */
static void fill(struct cp_feed *f, const struct cp_tokens *tokens, int64_t n, int micros)
{
    qsort_r(f->sample, (size_t)n, sizeof f->sample[0], by_length, (void *)tokens);
    int64_t at = 0;
    int max_len = f->job->shape.max_len;
    f->n = n;
    f->micros = cp_job_split(n, micros, f->sizes);
    f->labelled = 0;
    for (int i = 0; i < f->micros; i++) {
        struct cp_micro *mi = &f->micro[i];
        int32_t *ids = f->ids + at * max_len;
        *mi = (struct cp_micro){.b = f->sizes[i],
                                .len = f->len + at,
                                .sample = f->sample + at,
                                .ids = ids,
                                .label = f->label + at};
        cp_batch_fill(tokens, f->sample + at, mi->b, max_len, ids, f->len + at, f->label + at,
                      &mi->t);
        at += mi->b;
    }
    for (int64_t i = 0; i < n; i++) {
        f->labelled += f->label[i] != CP_LABEL_IGNORE;
    }
}

cp_err cp_feed_train(struct cp_feed *f, int m, int index, int of)
{
    int64_t want = cp_job_step_samples(f->job, m), got;
    cp_batcher_next(&f->batcher, want, f->sample, &got);
    if (got == 0 && f->batcher.n > 0) { /* the epoch is over */
        CP_TRY(cp_batcher_seek(&f->batcher, f->batcher.epoch + 1, 0));
        cp_batcher_next(&f->batcher, want, f->sample, &got);
    }
    int64_t from = got * index / of, to = got * (index + 1) / of;
    memmove(f->sample, f->sample + from, (size_t)(to - from) * sizeof f->sample[0]);
    fill(f, &f->job->train, to - from, (m + of - 1) / of);
    return CP_OK;
}

void cp_feed_eval(struct cp_feed *f, int64_t first, int64_t n)
{
    int b = cp_job_micro_max(f->job);
    for (int64_t i = 0; i < n; i++) {
        f->sample[i] = f->job->eval_order[first + i];
    }
    fill(f, &f->job->heldout, n, (int)((n + b - 1) / b));
}
