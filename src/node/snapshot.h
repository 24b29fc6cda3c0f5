/*
 * snapshot: the state of a run between two rounds, as a checkpoint folder, and back.
 *
 * checkpoint-<rounds done>/ is a Hugging Face model folder with optimizer.safetensors (moments of
 * every replica), trainer_state.json (counters, cursors, queues, what was logged) and plan.json
 * (the plan of the next round). A resumed run goes on bit for bit as the uninterrupted one.
 */
#ifndef CP_NODE_SNAPSHOT_H
#define CP_NODE_SNAPSHOT_H

#include "node/edge.h"

/* Writes run_dir/checkpoint-<rounds_done> and prunes old ones. log_json: the rounds so far as a
 * JSON array, kept for the reader. e->state must hold every replica's state. path holds the
 * checkpoint that the run stands on, if there is one; it is not pruned after a failure. On success
 * path gets the new folder. */
CP_NODISCARD cp_err cp_snapshot_save(const char *run_dir, const struct cp_edge *e, int rounds_done,
                                     const char *log_json, struct cp_str *path);

/* Loads a verified checkpoint folder into an edge that was just initialised. log_json gets what was
 * saved. E_CKPT if it is of another model, seed, data or cast. */
CP_NODISCARD cp_err cp_snapshot_load(const char *dir, struct cp_edge *e, struct cp_str *log_json);

#endif
