/*
 * job: everything that is fixed before a run starts: model, data, world, rules. Read by all nodes,
 * changed by none.
 */
#ifndef CP_NODE_JOB_H
#define CP_NODE_JOB_H

#include "data/batch.h"
#include "data/dataset.h"
#include "data/shard.h"
#include "data/vocab.h"
#include "model/optim.h"
#include "model/shape.h"
#include "node/cast.h"
#include "node/config.h"
#include "plan/policy.h"
#include "world/arrivals.h"
#include "world/radio.h"
#include "world/trace.h"

struct cp_job {
    const struct cp_config *config; /* borrowed */
    uint64_t seed;
    struct cp_shape shape;
    struct cp_optim optim;
    /* data */
    struct cp_vocab *vocab;
    struct cp_dataset *train_set, *heldout_set;
    struct cp_tokens train, heldout;
    struct cp_shards *shards;
    uint64_t data_hash;  /* of every id and label, and of a trace: a run goes on only with them */
    int32_t *eval_order; /* held-out samples in a fixed random order */
    /* world */
    /* undisturbed: configured or measured rates, everybody present; gains where links were
     * measured, else 0 */
    struct cp_world base;
    struct cp_channel channel;
    struct cp_world_trace *trace; /* NULL: the model says all */
    const struct cp_policy *policy;
    int (*cuts)[CP_DEVICES_MAX];
    struct cp_cast cast;
};

/* Reads data, trains a vocabulary where none is given, draws shards and world. folder: where
 * relative paths start. Every mistake in the configuration or the data is found here. */
CP_NODISCARD cp_err cp_job_init(struct cp_job *job, const struct cp_config *config,
                                const char *folder);
void cp_job_fini(struct cp_job *job);

/* The part of it that planning needs: no texts are read, samples per cluster are taken as equal. */
CP_NODISCARD cp_err cp_job_init_world(struct cp_job *job, const struct cp_config *config,
                                      const char *folder);

/* The world of a round (0-based); mean: on mean channels, everybody present at full speed, without
 * the trace. */
CP_NODISCARD cp_err cp_job_world(const struct cp_job *job, int round, bool mean,
                                 struct cp_world *out);

/* What a policy is asked with: queues and incumbent are left NULL. */
struct cp_policy_args cp_job_policy_args(const struct cp_job *job, const struct cp_world *w,
                                         const struct cp_world *mean);

/* Queues of round 0; with a fixed batch there is no convergence queue (section 8). */
CP_NODISCARD cp_err cp_job_queues(const struct cp_job *job, const struct cp_world *mean,
                                  struct cp_queues *q);
void cp_job_queues_advance(const struct cp_job *job, struct cp_queues *q, const struct cp_world *w,
                           const struct cp_forecast *f);

/* Samples of a step and how they are split: sizes[0..m-1], as even as possible, none empty. m is
 * lowered where there are fewer samples than micro-batches; returned. */
int cp_job_split(int64_t samples, int m, int32_t *sizes);

/* Samples that a step of M micro-batches wants (theory section 8: M b, or the fixed batch), and the
 * most in one micro-batch. */
int64_t cp_job_step_samples(const struct cp_job *job, int m);
int cp_job_micro_max(const struct cp_job *job);

/* The first block that is trained (train.freeze). */
int cp_job_first_trained(const struct cp_job *job);

double cp_job_lr(const struct cp_job *job, int64_t global_step);

#endif
