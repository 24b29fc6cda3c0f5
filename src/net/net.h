/*
 * net: messages between nodes, and the wait by tag.
 *
 * A node is one thread with an inbox; nodes share nothing but messages. The receiver says what it
 * waits for (type and key); anything else that arrives is kept until asked for, so a result never
 * depends on who answers first. Messages of an old generation are dropped at the door: that fence
 * is why no other locking exists. Every wait has an absolute deadline.
 *
 * This is the in-process transport (net=inproc): a send moves a pointer. The messages are the ones
 * that a network will carry.
 */
#ifndef CP_NET_NET_H
#define CP_NET_NET_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* type, name. Tensor messages carry a generation that the receiver's fence checks. */
#define CP_MSG_TYPES(X)                                                                            \
    X(PLAN, "PLAN")         /* edge -> all: the plan as JSON */                                    \
    X(BLOCK, "BLOCK")       /* weights of one block: down after averaging, up to be averaged */    \
    X(STATE, "STATE")       /* moments and step count of one block, owner to owner */              \
    X(TRAIN, "TRAIN")       /* edge -> lead: run the local steps of a round */                     \
    X(STEP, "STEP")         /* lead -> stages: one step begins, with its own count of micros */    \
    X(ACT, "ACT")           /* stage j -> j+1: activation of a micro-batch */                      \
    X(GRAD, "GRAD")         /* stage j+1 -> j: gradient of a micro-batch */                        \
    X(NORM, "NORM")         /* stage -> lead: squared gradient norms of its blocks, loss */        \
    X(COMMIT, "COMMIT")     /* lead -> stages: one scale and rate for all, or refuse the step */   \
    X(PROGRESS, "PROGRESS") /* lead -> edge: a step is done */                                     \
    X(COLLECT, "COLLECT")   /* edge -> stages: send your blocks up, and a report */                \
    X(REPORT, "REPORT")     /* node -> edge: times, memory, traffic */                             \
    X(EVAL, "EVAL")         /* edge -> lead: evaluate a range of the held-out samples */           \
    X(SCORE, "SCORE")       /* lead -> edge: counts of an evaluation */                            \
    X(FAIL, "FAIL")         /* node -> edge: a named error ends the run */                         \
    X(QUIT, "QUIT")         /* edge -> all */

enum cp_msg_type {
#define X(type, name) CP_MSG_##type,
    CP_MSG_TYPES(X)
#undef X
        CP_MSG_TYPE_COUNT
};
const char *cp_msg_name(enum cp_msg_type type);

/* What identifies a message; CP_ANY matches everything in a wait. */
enum { CP_ANY = -1 };
struct cp_key {
    int32_t from;
    int32_t round, step, micro, block;
};

struct cp_msg {
    enum cp_msg_type type;
    uint32_t gen;
    struct cp_key key;
    int32_t b, t;        /* dims of an activation or gradient */
    size_t bytes;        /* payload size */
    void *payload;       /* 64-byte aligned, follows the header in the same allocation */
    struct cp_msg *next; /* inbox list */
};

/* A message with a zeroed payload, counted in mem. */
CP_NODISCARD cp_err cp_msg_new(struct cp_mem *mem, enum cp_msg_type type, uint32_t gen,
                               struct cp_key key, size_t bytes, struct cp_msg **out);
void cp_msg_free(struct cp_msg *m);

struct cp_net;

/* n inboxes, node ids 0..n-1. names[i] is borrowed. */
CP_NODISCARD cp_err cp_net_new(int n, const char *const *names, struct cp_net **out);
void cp_net_free(struct cp_net *net); /* frees what is left in the inboxes */

/* Frees what is left in the inboxes. To be called before the memory account of a sender ends: a
 * message is counted there until it is freed. */
void cp_net_clear(struct cp_net *net);

const char *cp_net_name(const struct cp_net *net, int node);

/* Gives m away, whatever it returns. CP_E_STOPPED after cp_net_stop(). */
CP_NODISCARD cp_err cp_net_send(struct cp_net *net, int to, struct cp_msg *m);

/* The oldest message of one of the types (bit set of 1u << type) that fits want; the caller frees
 * it. E_TIMEOUT at the deadline, E_STOPPED after cp_net_stop(). A FAIL message is always taken, by
 * whoever gets one: it becomes this call's error, with the sender's name and sentence (its payload;
 * key.block carries the cp_err, E_PEER if that is none). */
CP_NODISCARD cp_err cp_net_wait(struct cp_net *net, int self, uint32_t types, struct cp_key want,
                                int64_t deadline_ns, struct cp_msg **out);

/* From now on the node's inbox drops ACT, GRAD, NORM, COMMIT, STEP and STATE messages whose
 * generation is older than gen, including those already there. Returns how many were dropped. */
int cp_net_fence(struct cp_net *net, int self, uint32_t gen);

/* Wakes every wait with E_STOPPED. Safe from any thread. */
void cp_net_stop(struct cp_net *net);

struct cp_net_stats {
    int64_t sent_msgs, sent_bytes; /* tensor and control payload */
    int64_t fenced;                /* dropped as old */
};
struct cp_net_stats cp_net_stats(const struct cp_net *net, int node);

#endif
