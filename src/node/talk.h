/*
 * talk: what the coordinator says to the replicas in a round, and what it hears from them. Who is
 * told follows from e->replica; the course of a round is edge.c's.
 */
#ifndef CP_NODE_TALK_H
#define CP_NODE_TALK_H

#include "node/edge.h"

/* e->plan to everybody. resumed: the state of every block comes from the edge server. */
CP_NODISCARD cp_err cp_talk_plan(struct cp_edge *e, bool resumed);

/* After a resume: every block's optimizer state goes from the checkpoint to its owner. */
CP_NODISCARD cp_err cp_talk_states(struct cp_edge *e);

/* The weights of the model to the replicas of e->plan. */
CP_NODISCARD cp_err cp_talk_scatter(struct cp_edge *e, int round);

/* The local steps of a round: e->sums, e->cursor. And the sums over all of it. */
CP_NODISCARD cp_err cp_talk_train(struct cp_edge *e, int round);
struct cp_edge_sums cp_talk_sums(const struct cp_edge *e);
/* Those of the first steps alone. */
struct cp_edge_sums cp_talk_first_sums(const struct cp_edge *e);

/* The end of training in a round: averages the model, takes reports (e->constants), and with_state
 * the optimizer state of every replica. */
CP_NODISCARD cp_err cp_talk_collect(struct cp_edge *e, int round, bool with_state);

/* full: all held-out samples, else at most eval.max_samples. Each replica scores a part. */
CP_NODISCARD cp_err cp_talk_evaluate(struct cp_edge *e, int round, bool full,
                                     struct cp_score *score);

CP_NODISCARD cp_err cp_talk_quit(struct cp_edge *e);

#endif
