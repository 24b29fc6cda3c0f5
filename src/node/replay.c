#include "node/replay.h"

#include "fed/fedavg.h"
#include "node/feed.h"

#include <math.h>
#include <string.h>

/* A whole model with its own optimizer state. */
struct solo {
    struct cp_segment *seg;
    int device;     /* -1: of no device */
    double trained; /* samples of the round */
};

/* A cluster: its batches and its models. */
struct group {
    struct cp_mem mem;
    struct cp_feed feed;
    int n;
    struct solo solo[CP_DEVICES_MAX];
};

static void group_fini(struct group *g)
{
    for (int i = 0; i < g->n; i++) {
        cp_segment_free(g->solo[i].seg);
    }
    cp_feed_fini(&g->feed);
}

struct cp_replay_cluster cp_replay_cluster_of(const struct cp_cluster_plan *plan)
{
    struct cp_replay_cluster did = {.micro = plan->micro_batches,
                                    .n = plan->mode == CP_MODE_PIPELINE ? 0 : plan->segments};
    memcpy(did.device, plan->device, (size_t)did.n * sizeof did.device[0]);
    return did;
}

/* The models of a round: a device keeps its own; those without one take what is left over, in
 * order, and the rest start anew. The rule of node/cast.h, written again on purpose. */
static cp_err regroup(struct group *g, const struct cp_job *job,
                      const struct cp_replay_cluster *did)
{
    struct solo next[CP_DEVICES_MAX] = {{0}};
    int n = did->n ? did->n : 1, left = 0;
    for (int i = 0; i < n; i++) {
        next[i].device = did->n ? did->device[i] : -1;
        for (int k = 0; k < g->n && next[i].device >= 0; k++) {
            if (g->solo[k].device == next[i].device) {
                next[i].seg = g->solo[k].seg;
                g->solo[k].seg = NULL;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        while (!next[i].seg && left < g->n) {
            next[i].seg = g->solo[left].seg;
            g->solo[left++].seg = NULL;
        }
    }
    for (int k = 0; k < g->n; k++) {
        cp_segment_free(g->solo[k].seg);
    }
    memcpy(g->solo, next, sizeof next);
    g->n = n;
    for (int i = 0; i < n; i++) {
        if (!g->solo[i].seg) {
            CP_TRY(cp_segment_new(&job->shape, 0, job->shape.layers + 1, cp_job_micro_max(job),
                                  job->shape.max_len, 1, job->optim.kind, &g->mem,
                                  &g->solo[i].seg));
            cp_segment_freeze(g->solo[i].seg, cp_job_first_trained(job));
        }
    }
    return CP_OK;
}

/* One local step: forward and backward of each micro-batch, one norm, one update. */
static cp_err step(struct cp_segment *seg, const struct cp_feed *feed, const struct cp_job *job,
                   int64_t global)
{
    double norm2 = 0;
    for (int i = 0; i < feed->micros; i++) {
        struct cp_micro m = feed->micro[i];
        struct cp_head_result head = {0};
        m.step_labelled = feed->labelled;
        m.seed = job->seed;
        m.step = (uint32_t)global;
        m.train = true;
        cp_segment_forward(seg, 0, &m, &head);
        cp_segment_backward(seg, 0, &m);
    }
    for (int block = 0; block < cp_shape_blocks(&job->shape); block++) {
        norm2 += cp_segment_norm2(seg, block);
    }
    if (!isfinite(norm2)) {
        return cp_fail(CP_E_NONFINITE, "step %lld: a gradient is not finite", (long long)global);
    }
    cp_segment_step(seg, &job->optim, cp_job_lr(job, global),
                    cp_optim_clip_scale(norm2, job->config->train.clip));
    return CP_OK;
}

static size_t block_bytes(const struct cp_job *job, int block)
{
    return (size_t)cp_shape_params(&job->shape, block, block) * sizeof(cp_real);
}

/* One model's round, on its part of every batch of the cluster. */
static cp_err train_solo(struct group *g, int index, const struct cp_job *job, int round, int micro,
                         cp_real *const *block)
{
    struct solo *s = &g->solo[index];
    for (int k = 0; k < cp_shape_blocks(&job->shape); k++) {
        memcpy(cp_segment_plane(s->seg, k, CP_PLANE_W), block[k], block_bytes(job, k));
    }
    if (job->config->fed.moments == CP_MOMENTS_RESET) {
        cp_segment_reset_moments(s->seg);
    }
    s->trained = 0;
    for (int h = 0; h < job->config->train.local_steps; h++) {
        CP_TRY(cp_feed_train(&g->feed, micro, index, g->n));
        s->trained += (double)g->feed.n;
        if (g->feed.labelled > 0) {
            CP_TRY(
                step(s->seg, &g->feed, job, (int64_t)round * job->config->train.local_steps + h));
        }
    }
    return CP_OK;
}

static cp_err train(struct group *g, const struct cp_job *job, int round,
                    const struct cp_replay_cluster *did, cp_real *const *block)
{
    struct cp_wire_cursor start = cp_feed_cursor(&g->feed);
    CP_TRY(regroup(g, job, did));
    for (int i = 0; i < g->n; i++) {
        CP_TRY(cp_feed_seek(&g->feed, start));
        CP_TRY(train_solo(g, i, job, round, did->micro, block));
    }
    return CP_OK;
}

/* The rule of edge.c, written again on purpose: an oracle that calls what it checks proves nothing
 * (mutant weights-by-setting). */
static int weigh(const struct group *group, const struct cp_job *job, double *size)
{
    int n = 0;
    for (int c = 0; c < job->cast.n_clusters; c++) {
        double trained = 0;
        for (int i = 0; i < group[c].n; i++) {
            trained += group[c].solo[i].trained;
        }
        for (int i = 0; i < group[c].n; i++, n++) {
            double mine = group[c].solo[i].trained;
            bool by_data = job->config->fed.weights == CP_WEIGHTS_DATA && mine > 0;
            size[n] = by_data ? job->base.cluster[c].data_size * (mine / trained) : mine;
        }
    }
    return n;
}

static cp_err average(const struct group *group, const struct cp_job *job, struct cp_fedavg *avg,
                      double *size, cp_real *const *block)
{
    double total = 0, *weights = size + job->cast.max_replicas;
    int n = weigh(group, job, size);
    for (int i = 0; i < n; i++) {
        total += size[i];
    }
    cp_fedavg_weights(size, n, weights);
    for (int k = 0; k < cp_shape_blocks(&job->shape) && total > 0; k++) {
        int at = 0;
        cp_fedavg_begin(avg, cp_shape_params(&job->shape, k, k));
        for (int c = 0; c < job->cast.n_clusters; c++) {
            for (int i = 0; i < group[c].n; i++, at++) {
                CP_TRY(cp_fedavg_add(avg, weights[at],
                                     cp_segment_plane(group[c].solo[i].seg, k, CP_PLANE_W)));
            }
        }
        cp_fedavg_finish(avg, block[k]);
    }
    return CP_OK;
}

cp_err cp_replay(const struct cp_job *job, int rounds, const struct cp_replay_cluster *did,
                 cp_real *const *block, void (*progress)(void *arg, int round), void *arg)
{
    int n = job->cast.n_clusters, ready = 0;
    int64_t largest = 0;
    struct group *group = NULL;
    struct cp_fedavg avg = {0};
    double *size = NULL;
    cp_err err;
    for (int k = 0; k < cp_shape_blocks(&job->shape); k++) {
        int64_t count = cp_shape_params(&job->shape, k, k);
        largest = count > largest ? count : largest;
        cp_block_init(&job->shape, k, job->config->model.init_std, job->seed, block[k]);
    }
    CP_TRY_GOTO(err, cp_mem_array(NULL, 2 * (size_t)job->cast.max_replicas, sizeof *size, &size),
                out);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n, sizeof *group, &group), out);
    CP_TRY_GOTO(err, cp_fedavg_init(&avg, largest), out);
    for (; ready < n; ready++) {
        group[ready].mem.name = "replay";
        CP_TRY_GOTO(err, cp_feed_init(&group[ready].feed, job, ready, &group[ready].mem), out);
    }
    for (int round = 0; round < rounds; round++) {
        for (int c = 0; c < n; c++) {
            CP_TRY_GOTO(err, train(&group[c], job, round, &did[round * n + c], block), out);
        }
        CP_TRY_GOTO(err, average(group, job, &avg, size, block), out);
        if (progress) {
            progress(arg, round);
        }
    }
out:
    for (int c = 0; group && c < n && c <= ready; c++) {
        group_fini(&group[c]);
    }
    cp_fedavg_fini(&avg);
    cp_mem_free(group);
    cp_mem_free(size);
    return err;
}
