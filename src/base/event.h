/*
 * event: one record per op, the same from the trainer (real time) and the simulator (virtual time).
 * Sinks: the run database, metrics.jsonl, trace.json.
 */
#ifndef CP_BASE_EVENT_H
#define CP_BASE_EVENT_H

#include <stdint.h>

struct cp_event {
    int64_t t0_ns, t1_ns; /* start and end, on one clock per run */
    const char *node;     /* "edge", "c1.cu", "c1.d2"; borrowed until the sink returns */
    const char *kind;     /* op or phase name: FWD, BWD, SEND_ACT, wait, ...; static */
    int32_t round, step, stage, micro; /* -1: does not apply */
    int64_t bytes;                     /* sent or received; 0 otherwise */
    double energy_j;                   /* modelled; 0 if not known */
};

/* Called from node threads: a sink must be quick and safe to call from any thread. */
struct cp_event_sink {
    void (*put)(void *arg, const struct cp_event *e);
    void *arg;
};

static inline void cp_event_put(const struct cp_event_sink *s, const struct cp_event *e)
{
    if (s && s->put) {
        s->put(s->arg, e);
    }
}

#endif
