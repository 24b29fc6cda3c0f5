/*
 * baseline: what other policies would have cost in the rounds of a run, under the model (they are
 * not trained). Every baseline sees the worlds of the run and processes as many samples per step as
 * the run did (docs/theory.md section 13). The figures lie in the log of rounds, so that a run that
 * is resumed has those of its earlier rounds.
 */
#ifndef CP_API_BASELINE_H
#define CP_API_BASELINE_H

#include "node/edge.h"

#include <jansson.h>

/*
 * One round, an array with one object per baseline: policy, latency_s, energy_j, mem_peak_bytes,
 * feasible, why. Where memory does not allow a baseline it is not feasible, why says the reason,
 * and the figures are those without a limit of memory; null where there is no plan even so.
 */
json_t *cp_baselines_round(const struct cp_job *job, const struct cp_round_report *r);

/*
 * All rounds of a log, whose elements have a member "baselines" as above: the same objects with the
 * mean latency and energy of the `rounds` that have figures, the greatest memory, whether every
 * round was feasible, and the first reason. A baseline that no round names is left out.
 */
json_t *cp_baselines_json(const json_t *rounds_log);

#endif
