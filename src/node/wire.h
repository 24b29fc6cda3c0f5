/*
 * wire: payloads of the control messages between edge and cluster (tensor messages: pipe/exec.c).
 */
#ifndef CP_NODE_WIRE_H
#define CP_NODE_WIRE_H

#include <stdint.h>

#include "node/cast.h"

/* Most micro-batches of one step; a STEP with more is refused. */
enum { CP_MICROS_MAX = 1024 };

/* PLAN: this head, then the plan as JSON text with its zero byte. */
struct cp_wire_plan {
    int32_t resumed; /* the state of every block comes from the edge (a checkpoint) */
};

/* Where a cluster's batches stand: complete passes over its shard, and samples of the open one. */
struct cp_wire_cursor {
    int64_t epoch, position;
};

/* TRAIN, edge -> the lead of every replica; the cursor is the cluster's. */
struct cp_wire_train {
    int32_t round;
    struct cp_wire_cursor cursor;
};

/* STEP, lead -> stages: struct cp_step as it is; nodes of one program version share it (the network
 * protocol fixes its layout). */

/* PROGRESS, lead -> edge, after every step; steps == done ends the round of the replica. */
struct cp_wire_progress {
    int32_t done, steps;
    int64_t samples; /* of this step, in this replica */
    double loss_sum, grad_norm;
    int64_t labelled, correct;
    struct cp_wire_cursor cursor;
};

/* COLLECT, edge -> all; a lead passes it on, as PLAN, to the devices behind it. */
struct cp_wire_collect {
    int32_t with_state; /* moments and step counts too, for a checkpoint */
};

/* REPORT, every node -> edge, at the end of a round: this head, then a struct cp_gradstat_block for
 * each block of a stage that looked at its gradients in the round. */
struct cp_wire_report {
    double busy_s;
    int64_t mem_peak_bytes, mem_model_bytes, msg_peak_bytes, sent_bytes;
};

/* EVAL, edge -> lead: held-out samples first..first+count-1 of the evaluation order. */
struct cp_wire_eval {
    int64_t first, count;
};

/* SCORE, lead -> edge. */
struct cp_wire_score {
    double loss_sum;
    int64_t labelled, correct;
};

#endif
