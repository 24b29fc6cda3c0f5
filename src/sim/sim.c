/* sim: one step whose lists are met only once. */
#include "sim/program.h"

#include <stdio.h>

cp_err cp_sim_run(const struct cp_ops *lists, int n_stages, const struct cp_sim_costs *costs,
                  const struct cp_event_sink *sink, struct cp_sim_step *out)
{
    struct cp_program *p;
    CP_TRY(cp_program_make(lists, n_stages, &p));
    cp_program_run(p, costs, sink, out);
    cp_program_free(p);
    return CP_OK;
}

cp_err cp_sim_step(const struct cp_ops *lists, int n_stages, const struct cp_times *t,
                   const struct cp_event_sink *sink, struct cp_sim_step *out)
{
    struct cp_sim_costs costs = {.times = *t, .round = -1, .step = -1};
    for (int j = 0; j < CP_STAGES_MAX; j++) {
        snprintf(costs.node[j], sizeof costs.node[j], "stage%d", j);
    }
    return cp_sim_run(lists, n_stages, &costs, sink, out);
}
