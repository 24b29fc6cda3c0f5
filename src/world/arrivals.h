/*
 * arrivals: samples that come while training goes on (docs/theory.md section 4).
 *
 * A_c(t) samples come to cluster c in round t and may be trained from the next round on:
 * Q(t+1) = max(Q - H M b, 0) + A. A step draws uniformly from what waits, so the mean age of what
 * waits is all that must be remembered of it, and the state is four plain numbers. (By Little's law
 * the mean age over a long run is the same for every order that does not look at the samples.)
 */
#ifndef CP_WORLD_ARRIVALS_H
#define CP_WORLD_ARRIVALS_H

#include "world/world.h"

enum cp_arrival { CP_ARRIVAL_POISSON, CP_ARRIVAL_CONSTANT };

/* Sets arrivals of every cluster for w->round from the mean in full, keyed by (seed, round,
 * cluster). constant: as many whole samples as keep the mean, 3 3 4 for 10/3. */
void cp_arrivals_draw(struct cp_world *w, const struct cp_world *full, enum cp_arrival kind,
                      uint64_t seed);

struct cp_backlog {
    double waiting;       /* Q_c, samples */
    double age_s;         /* their mean age */
    double trained;       /* samples, of all rounds */
    double trained_age_s; /* their mean age when they were trained: freshness */
};

/* The most micro-batches of a local step that what waits is enough for; 0: not even for one. */
int cp_backlog_micro_max(const struct cp_backlog *q, const struct cp_world *w);

/* A round of time_s with M micro-batches (0: the cluster did not train), in which arrived samples
 * came. Samples count as born, and as trained, in the middle of a round. */
void cp_backlog_advance(struct cp_backlog *q, const struct cp_world *w, int micro_batches,
                        double arrived, double time_s);

#endif
