/*
 * replay: the same training in one process, block after block and sample after sample: no pipeline,
 * no messages, no plan but the number of micro-batches. It is the oracle of house law 1: a run's
 * final parameters must equal a replay's bit for bit, whatever was cut, moved or resumed.
 */
#ifndef CP_NODE_REPLAY_H
#define CP_NODE_REPLAY_H

#include "node/job.h"

/* micro[round * n_clusters + c]: micro-batches per step. block[0..L+1]: the caller's memory for the
 * averaged model. progress (may be NULL) is called after every round. */
CP_NODISCARD cp_err cp_replay(const struct cp_job *job, int rounds, const int *micro,
                              cp_real *const *block, void (*progress)(void *arg, int round),
                              void *arg);

#endif
