/*
 * baseline: what other policies would have cost in the rounds of a run, under the model (they are
 * not trained). Every baseline sees the worlds of the run and processes as many samples per step as
 * the run did (docs/theory.md section 13).
 */
#ifndef CP_API_BASELINE_H
#define CP_API_BASELINE_H

#include "node/edge.h"

#include <jansson.h>

struct cp_baseline {
    const struct cp_policy *policy;
    int rounds; /* that it could have done */
    double latency_s, energy_j;
    size_t mem_peak_bytes;
    char why[256]; /* memory did not allow it in some round: the first reason. The figures are then
                      those without a limit of memory. */
};

enum { CP_BASELINES = 2 };
void cp_baselines_init(struct cp_baseline b[CP_BASELINES]);
void cp_baselines_add(struct cp_baseline b[CP_BASELINES], const struct cp_job *job,
                      const struct cp_round_report *r);
json_t *cp_baselines_json(const struct cp_baseline b[CP_BASELINES]);

#endif
