/*
 * observe: what a simulated round tells of the speed of nodes and links, as a real one would.
 *
 * Pipelines only: a cluster in full or split is modelled, it has no ops whose time could be taken.
 * Seen are the stages that were used (the edge server is ours), the links between them by their
 * forward messages (back they have the same gain), and the control unit's upload.
 */
#ifndef CP_SIM_OBSERVE_H
#define CP_SIM_OBSERVE_H

#include "sim/sim.h"
#include "sim/stats.h"
#include "world/estimate.h"

/* Adds what the round r of plan p in world w shows. */
void cp_observe_round(const struct cp_plan *p, const struct cp_world *w,
                      const struct cp_sim_round *r, struct cp_estimate *e);

/* Adds |predicted time / observed time - 1| of every stage and of every link of plan p on which
 * `seen` has something; `believed` is the world of the prediction. */
void cp_observe_errors(const struct cp_plan *p, const struct cp_world *believed,
                       const struct cp_estimate *seen, struct cp_mean *stages,
                       struct cp_mean *links);

#endif
