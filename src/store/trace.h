/*
 * trace: events of a run as a Chrome trace (trace.json), which Perfetto and speedscope open.
 *
 * A node is a process and has three threads: compute (FWD, BWD, STEP), wait (messages that a stage
 * waited for: ACT, GRAD, NORM, COMMIT) and send (SEND_ACT, SEND_GRAD); kinds not known here go to a
 * fourth, other. Viewers want the slices of one thread to nest, so a slice that only partly
 * overlaps another one goes to a second thread of its name ("send 2": the two directions of a radio
 * link). An arrow ties each send to its receive: the wait that it ended, or the op that used it
 * where no wait was recorded (the simulator's events). Rounds and steps count from 1 in the file,
 * as everywhere in print; micro-batches and stages from 0.
 */
#ifndef CP_STORE_TRACE_H
#define CP_STORE_TRACE_H

#include "base/err.h"
#include "base/event.h"

#include <stddef.h>
#include <stdint.h>

struct cp_trace;

/* Holds at most max_events, whose memory is taken now; later ones are counted and dropped. */
CP_NODISCARD cp_err cp_trace_new(size_t max_events, struct cp_trace **out);
void cp_trace_free(struct cp_trace *t);

/* Keeps a copy of the event: {cp_trace_put, trace} is a cp_event_sink. Safe from any thread. */
void cp_trace_put(void *trace, const struct cp_event *e);

int64_t cp_trace_dropped(struct cp_trace *t);

/* Writes the events so far to path, whole or not at all. Other threads may go on putting. The
 * number of dropped events stands in the file under otherData. */
CP_NODISCARD cp_err cp_trace_write(struct cp_trace *t, const char *path);

#endif
