/* local: all roles of a run in this process, one thread per node (net=inproc). */
#ifndef CP_NODE_LOCAL_H
#define CP_NODE_LOCAL_H

#include "node/edge.h"

/* Starts every member's thread, runs the edge on the calling thread, and joins them. edge must have
 * been initialised with net; it may have been given a checkpoint. On failure the first named cause
 * is the error. */
CP_NODISCARD cp_err cp_local_run(struct cp_edge *edge, const struct cp_event_sink *events,
                                 int *rounds_done);

#endif
