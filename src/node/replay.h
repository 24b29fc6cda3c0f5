/*
 * replay: the same training in one process, block after block and sample after sample: no pipeline,
 * no messages, and of the plans only how many models a cluster trains with how many micro-batches.
 * It is the oracle of house law 1: a run's final parameters must equal a replay's bit for bit,
 * whatever was cut, moved or resumed.
 */
#ifndef CP_NODE_REPLAY_H
#define CP_NODE_REPLAY_H

#include "node/job.h"

/* What a cluster did in a round: micro-batches per step, and the devices that trained a whole model
 * each (n of them, whatever part of it was elsewhere); n = 0: one model, in a pipeline. */
struct cp_replay_cluster {
    int micro, n;
    int device[CP_DEVICES_MAX];
};
struct cp_replay_cluster cp_replay_cluster_of(const struct cp_cluster_plan *plan);

/* did[round * n_clusters + c]. block[0..L+1]: the caller's memory for the averaged model. progress
 * (may be NULL) is called after every round. */
CP_NODISCARD cp_err cp_replay(const struct cp_job *job, int rounds,
                              const struct cp_replay_cluster *did, cp_real *const *block,
                              void (*progress)(void *arg, int round), void *arg);

#endif
