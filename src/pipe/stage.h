/*
 * stage: a node's place in the pipeline, and the executor of its op list.
 *
 * Control unit, device and edge server run the same executor over a range of one block list; a role
 * is only who coordinates. The node of the first stage, which embeds, is the lead of the pipeline:
 * norms go to it, and it decides whether a step is made. A pipeline may have a single stage, which
 * is both first and last. The executor allocates nothing on the training path but messages: a
 * segment's arenas are taken when a plan is taken over.
 */
#ifndef CP_PIPE_STAGE_H
#define CP_PIPE_STAGE_H

#include "base/event.h"
#include "model/gradstat.h"
#include "model/segment.h"
#include "net/net.h"
#include "pipe/ops.h"
#include "plan/plan.h"

enum { CP_BLOCKS_MAX = CP_LAYERS_LIMIT + 2 }; /* of a model: embedding, layers, head */

/* A node's part in a plan. first > last: a stand-by, which holds nothing. */
struct cp_part {
    int first, last;         /* blocks */
    int slots;               /* >= 1 */
    int index, n_stages;     /* stage number (-1: stand-by), stages of the pipeline */
    int node[CP_STAGES_MAX]; /* node id of every stage; node[0] is the lead */
};

/* What a stage keeps of a micro-batch between its forward and its backward, per slot. On the stage
 * with the embedding m points into the caller's batch; elsewhere into the arrays of this struct. */
struct cp_held {
    struct cp_micro m;
    int32_t *len, *label; /* [b_max] */
    int64_t *sample;      /* [b_max] */
};

struct cp_stage {
    /* set once */
    struct cp_net *net;
    int self; /* node id */
    const struct cp_shape *shape;
    struct cp_optim optim;
    double clip;
    int first_trained; /* blocks below are frozen */
    int b_max, t_max;
    double wait_s;          /* deadline of one wait */
    bool estimate;          /* whether stat is kept: a sample of the gradients of measured steps */
    struct cp_mem *mem;     /* arenas: compared with the size function */
    struct cp_mem *msg_mem; /* messages, the bookkeeping of micro-batches, and stat */
    const struct cp_event_sink *events;
    /* of the plan in force */
    uint32_t gen;
    struct cp_part part;
    struct cp_segment *seg;   /* NULL for a stand-by */
    struct cp_held *held;     /* [slots] */
    struct cp_gradstat *stat; /* NULL: not asked for, or a stand-by */
    int32_t stat_round;       /* of its last measured step; -1: none yet */
    struct cp_ops ops;        /* of the last step; made again when ops_micros or ops_train change */
    int ops_micros;
    bool ops_train;
    /* counters */
    int64_t busy_ns;    /* thread CPU time in FWD, BWD and STEP */
    size_t model_bytes; /* largest total_bytes of the size function over the plans so far */
};

/* One step as every stage is told it. */
struct cp_step {
    int32_t round, step; /* step within the round */
    uint32_t global_step;
    int32_t micros;
    int64_t labelled; /* samples that count in the loss of this step */
    double lr;
    uint64_t seed; /* dropout */
    bool train;
    bool measure; /* look at the gradients, where the stage keeps a sample of them */
    bool repeat;  /* of the first micro-batch of a measured step: looked at, and then no step */
};

struct cp_step_result {
    struct cp_head_result head; /* sums over the step; on the lead and the head's stage */
    double grad_norm;           /* lead, training only */
};

/* Takes a part of plan generation gen. The state (moments, step counts) of every block held so far
 * is sent to its new owner, which may be this node itself; then the old arenas are given back, new
 * ones taken, and the state of every block of the new part is received from its old owner. So a
 * node never holds two segments, and what it counts stays equal to the size function. Weights are
 * zero afterwards: they come with the scatter. from[block], to[block]: node ids of old and new
 * owners; from < 0: nobody, state starts at zero; to < 0: nobody, it is dropped. keep false:
 * moments start at zero everywhere. */
CP_NODISCARD cp_err cp_stage_take(struct cp_stage *st, uint32_t gen, const struct cp_part *part,
                                  const int *from, const int *to, bool keep);

/* Runs one step. micro: the micro-batches, on the stage that has the embedding; else NULL. On the
 * lead a refused step (a non-finite loss or gradient anywhere) is E_NONFINITE, naming the
 * stage; every stage then keeps its parameters. */
CP_NODISCARD cp_err cp_stage_run(struct cp_stage *st, const struct cp_step *step,
                                 const struct cp_micro *micro, struct cp_step_result *out);

void cp_stage_fini(struct cp_stage *st);

/* State of one block as a STATE message payload; shared with checkpoints. */
size_t cp_state_bytes(const struct cp_shape *s, int block, enum cp_optim_kind optim);
void cp_state_pack(struct cp_segment *seg, const struct cp_shape *s, int block,
                   enum cp_optim_kind optim, void *payload);
void cp_state_unpack(struct cp_segment *seg, const struct cp_shape *s, int block,
                     enum cp_optim_kind optim, const void *payload);

#endif
