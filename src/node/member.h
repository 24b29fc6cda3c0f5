/*
 * member: the thread of a control unit, a device, or a stage of a cluster on the edge server.
 *
 * It answers messages until QUIT. All three are stages of a replica, or stand by; the lead of a
 * replica also draws batches, announces steps, and passes on weights between the edge server and
 * the replica's other stages.
 */
#ifndef CP_NODE_MEMBER_H
#define CP_NODE_MEMBER_H

#include "node/feed.h"
#include "node/job.h"
#include "node/wire.h"

struct cp_member {
    const struct cp_job *job;
    struct cp_net *net;
    int self, cluster;
    enum cp_role role;
    struct cp_mem mem, msg_mem;
    struct cp_stage stage;
    struct cp_plan plan;       /* in force; n_clusters 0 before the first */
    struct cp_replica replica; /* this node's; all zero while it stands by */
    struct cp_feed feed;       /* of a lead; else all zero */
};

CP_NODISCARD cp_err cp_member_init(struct cp_member *m, const struct cp_job *job,
                                   struct cp_net *net, int self,
                                   const struct cp_event_sink *events);
void cp_member_fini(struct cp_member *m);

/* The loop. A failure is told to the edge as FAIL, with its sentence; CP_OK after QUIT. */
CP_NODISCARD cp_err cp_member_run(struct cp_member *m);

/* Copies a payload of a fixed size out of a message and frees it; E_PROTO if the size differs. */
CP_NODISCARD cp_err cp_wire_take(struct cp_net *net, int self, struct cp_msg *m, void *out,
                                 size_t bytes);

/* Sends a small payload. */
CP_NODISCARD cp_err cp_wire_send(struct cp_net *net, struct cp_mem *mem, enum cp_msg_type type,
                                 uint32_t gen, struct cp_key key, int to, const void *payload,
                                 size_t bytes);

/* A lead only (lead.c). */
CP_NODISCARD cp_err cp_lead_train(struct cp_member *m, const struct cp_wire_train *t);
CP_NODISCARD cp_err cp_lead_eval(struct cp_member *m, const struct cp_wire_eval *e, int round);

#endif
