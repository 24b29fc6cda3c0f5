/*
 * trace: worlds that were recorded or scripted, as a CSV file (docs/formats.md section 9).
 *
 *   round,cluster,node,quantity,value
 *   1,home,phone/tablet,gain_d2d,2.5e-9
 *   3,home,phone,present,0
 *
 * A row says the value of one thing from its round on, until the next row of the same thing. An
 * empty value takes back what was said: the thing has the model's value again. What no row
 * mentions keeps the model's value, so a trace may be as partial as the measurement was. Without
 * the column round a row holds in every round: so are figures written that were measured.
 */
#ifndef CP_WORLD_TRACE_H
#define CP_WORLD_TRACE_H

#include "world/world.h"

/* Rounds after the last one of the trace: its last values hold, it begins again, or they are
 * refused. */
enum cp_world_trace_end { CP_WORLD_TRACE_HOLD, CP_WORLD_TRACE_CYCLE, CP_WORLD_TRACE_STOP };

struct cp_world_trace;

/* names: a world that has every cluster and device that rows may name. E_DATA is "NAME:LINE: what
 * is wrong, why, what to do"; name stands for the file. */
CP_NODISCARD cp_err cp_world_trace_parse(const char *name, const char *bytes, size_t n,
                                         const struct cp_world *names, struct cp_world_trace **out);
void cp_world_trace_free(struct cp_world_trace *t);

/* The last round that a row names, counted from 1: as many rounds as the trace speaks of. */
int32_t cp_world_trace_rounds(const struct cp_world_trace *t);

/* Whether some row, of any round, is about samples that come to the cluster. */
bool cp_world_trace_has_arrivals(const struct cp_world_trace *t, int cluster);

/*
 * Overwrites in w what the trace says about w->round (which counts from 0); rate_factor is of the
 * rate in full, the undisturbed world. Both have the clusters of the world that the trace was read
 * with. Time: a binary search per thing that has rows. E_DATA, and w untouched, only with
 * CP_WORLD_TRACE_STOP after the last round.
 */
CP_NODISCARD cp_err cp_world_trace_apply(const struct cp_world_trace *t,
                                         enum cp_world_trace_end end, const struct cp_world *full,
                                         struct cp_world *w);

#endif
