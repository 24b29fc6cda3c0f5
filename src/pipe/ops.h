/*
 * ops: a stage of the pipeline as a list of instructions.
 *
 * One pure function makes the list, one checker proves it, and the same list is run by the trainer
 * (exec), by the simulator on a virtual clock (sim) and drawn from that. Sequential, GPipe and
 * 1F1B differ only in one integer per stage, its slots: the number of micro-batches that it may
 * hold. "Run a forward while a slot is free, else the oldest backward" (GPipe arXiv 1811.06965,
 * 1F1B arXiv 1806.03377 and 2104.04473). Deadlock-free exactly if slots do not increase along the
 * pipeline (docs/theory.md section 6.2). Backwards go in ascending order of micro-batches, so that
 * gradient sums do not depend on the order.
 */
#ifndef CP_PIPE_OPS_H
#define CP_PIPE_OPS_H

#include "base/mem.h"

/* kind, name */
#define CP_OP_KINDS(X)                                                                             \
    X(RECV_ACT, "RECV_ACT")                                                                        \
    X(FWD, "FWD")                                                                                  \
    X(SEND_ACT, "SEND_ACT")                                                                        \
    X(RECV_GRAD, "RECV_GRAD")                                                                      \
    X(BWD, "BWD")                                                                                  \
    X(SEND_GRAD, "SEND_GRAD")                                                                      \
    X(STEP, "STEP") /* norms to the control unit, its commit, the optimizer */

enum cp_op_kind {
#define X(kind, name) CP_OP_##kind,
    CP_OP_KINDS(X)
#undef X
        CP_OP_KIND_COUNT
};
const char *cp_op_name(enum cp_op_kind kind);

struct cp_op {
    enum cp_op_kind kind;
    int32_t micro; /* 0-based; -1 for STEP */
    int32_t slot;  /* micro mod slots: the one that is free when it comes */
};

struct cp_ops {
    int n;
    struct cp_op *op; /* owned */
};

/* The list of stage (0..n_stages-1) for micros >= 1 micro-batches with slots >= 1. train false:
 * forwards only (evaluation). A stage that is both first and last sends and receives nothing. */
CP_NODISCARD cp_err cp_ops_make(int stage, int n_stages, int micros, int slots, bool train,
                                struct cp_ops *out);
void cp_ops_fini(struct cp_ops *o);

/* Most ops a list can have. */
int cp_ops_count(int stage, int n_stages, int micros, bool train);

/* Proves the lists of all stages together: every forward and backward once and in ascending order,
 * sends and receives paired, never more micro-batches held than slots (so no slot is used twice at
 * a time), one tensor at a time in each of the four boundary buffers, and no deadlock (by running
 * them with unbounded channels). E_PLAN names stage and op. */
CP_NODISCARD cp_err cp_ops_check(const struct cp_ops *lists, int n_stages, int micros,
                                 const int *slots, bool train);

#endif
