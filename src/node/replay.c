#include "node/replay.h"

#include "fed/fedavg.h"
#include "node/feed.h"

#include <math.h>
#include <string.h>

/* One cluster: the whole model with its own optimizer state, and its batches. */
struct solo {
    struct cp_mem mem;
    struct cp_segment *seg;
    struct cp_feed feed;
    double trained; /* samples of the round */
};

static cp_err solo_init(struct solo *s, const struct cp_job *job, int cluster)
{
    s->mem.name = "replay";
    CP_TRY(cp_feed_init(&s->feed, job, cluster, &s->mem));
    CP_TRY(cp_segment_new(&job->shape, 0, job->shape.layers + 1, cp_job_micro_max(job),
                          job->shape.max_len, 1, job->optim.kind, &s->mem, &s->seg));
    cp_segment_freeze(s->seg, cp_job_first_trained(job));
    return CP_OK;
}

static void solo_fini(struct solo *s)
{
    cp_segment_free(s->seg);
    cp_feed_fini(&s->feed);
}

/* One local step: forward and backward of each micro-batch, one norm, one update. */
static cp_err step(struct solo *s, const struct cp_job *job, int64_t global)
{
    double norm2 = 0;
    for (int i = 0; i < s->feed.micros; i++) {
        struct cp_micro m = s->feed.micro[i];
        struct cp_head_result head = {0};
        m.step_labelled = s->feed.labelled;
        m.seed = job->seed;
        m.step = (uint32_t)global;
        m.train = true;
        cp_segment_forward(s->seg, 0, &m, &head);
        cp_segment_backward(s->seg, 0, &m);
    }
    for (int block = 0; block < cp_shape_blocks(&job->shape); block++) {
        norm2 += cp_segment_norm2(s->seg, block);
    }
    if (!isfinite(norm2)) {
        return cp_fail(CP_E_NONFINITE, "step %lld: a gradient is not finite", (long long)global);
    }
    cp_segment_step(s->seg, &job->optim, cp_job_lr(job, global),
                    cp_optim_clip_scale(norm2, job->config->train.clip));
    return CP_OK;
}

static size_t block_bytes(const struct cp_job *job, int block)
{
    return (size_t)cp_shape_params(&job->shape, block, block) * sizeof(cp_real);
}

static cp_err train(struct solo *s, const struct cp_job *job, int round, int micro,
                    cp_real *const *block)
{
    for (int k = 0; k < cp_shape_blocks(&job->shape); k++) {
        memcpy(cp_segment_plane(s->seg, k, CP_PLANE_W), block[k], block_bytes(job, k));
    }
    if (job->config->fed.moments == CP_MOMENTS_RESET) {
        cp_segment_reset_moments(s->seg);
    }
    s->trained = 0;
    for (int h = 0; h < job->config->train.local_steps; h++) {
        CP_TRY(cp_feed_train(&s->feed, micro));
        s->trained += (double)s->feed.n;
        if (s->feed.labelled > 0) {
            CP_TRY(step(s, job, (int64_t)round * job->config->train.local_steps + h));
        }
    }
    return CP_OK;
}

static cp_err average(struct solo *solo, const struct cp_job *job, struct cp_fedavg *avg,
                      double *size, cp_real *const *block)
{
    int n = job->cast.n_clusters;
    double total = 0, *weights = size + n;
    /* The rule of edge.c, written again on purpose: an oracle that calls what it checks proves
     * nothing (mutant weights-by-setting). */
    for (int c = 0; c < n; c++) {
        bool by_data = job->config->fed.weights == CP_WEIGHTS_DATA;
        size[c] = solo[c].trained > 0 && by_data ? job->base.cluster[c].data_size : solo[c].trained;
        total += size[c];
    }
    cp_fedavg_weights(size, n, weights);
    for (int k = 0; k < cp_shape_blocks(&job->shape) && total > 0; k++) {
        cp_fedavg_begin(avg, cp_shape_params(&job->shape, k, k));
        for (int c = 0; c < n; c++) {
            CP_TRY(cp_fedavg_add(avg, weights[c], cp_segment_plane(solo[c].seg, k, CP_PLANE_W)));
        }
        cp_fedavg_finish(avg, block[k]);
    }
    return CP_OK;
}

cp_err cp_replay(const struct cp_job *job, int rounds, const int *micro, cp_real *const *block,
                 void (*progress)(void *arg, int round), void *arg)
{
    int n = job->cast.n_clusters, ready = 0;
    int64_t largest = 0;
    struct solo *solo = NULL;
    struct cp_fedavg avg = {0};
    double *size = NULL;
    cp_err err;
    for (int k = 0; k < cp_shape_blocks(&job->shape); k++) {
        int64_t count = cp_shape_params(&job->shape, k, k);
        largest = count > largest ? count : largest;
        cp_block_init(&job->shape, k, job->config->model.init_std, job->seed, block[k]);
    }
    CP_TRY_GOTO(err, cp_mem_array(NULL, 2 * (size_t)n, sizeof *size, &size), out);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n, sizeof *solo, &solo), out);
    CP_TRY_GOTO(err, cp_fedavg_init(&avg, largest), out);
    for (; ready < n; ready++) {
        CP_TRY_GOTO(err, solo_init(&solo[ready], job, ready), out);
    }
    for (int round = 0; round < rounds; round++) {
        for (int c = 0; c < n; c++) {
            CP_TRY_GOTO(err, train(&solo[c], job, round, micro[round * n + c], block), out);
        }
        CP_TRY_GOTO(err, average(solo, job, &avg, size, block), out);
        if (progress) {
            progress(arg, round);
        }
    }
out:
    for (int c = 0; solo && c < n && c <= ready; c++) {
        solo_fini(&solo[c]);
    }
    cp_fedavg_fini(&avg);
    cp_mem_free(solo);
    cp_mem_free(size);
    return err;
}
