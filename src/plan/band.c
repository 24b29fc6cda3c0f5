#include "plan/band.h"

#include <assert.h>

void cp_band_solve(const struct cp_band *b, struct cp_band_result *out)
{
    struct cp_share_cluster link[CP_BAND_LINKS_MAX];
    struct cp_share_work work[CP_BAND_LINKS_MAX];
    struct cp_share_out x[CP_BAND_LINKS_MAX];
    struct cp_share_result r;
    assert(b->n >= 0 && b->n <= CP_BAND_LINKS_MAX);
    for (int j = 0; j < b->n; j++) {
        link[j] = (struct cp_share_cluster){.model = b->link[j], .model_cost = b->cost[j]};
    }
    struct cp_share p = {.n = b->n, .cluster = link, .peak = b->peak, .floor_s = b->floor_s};
    cp_share_solve(&p, work, x, &r);
    *out = (struct cp_band_result){.peak_s = r.peak_s, .value = r.value, .lambda = r.lambda};
    for (int j = 0; j < b->n; j++) {
        out->share[j] = x[j].share;
        out->time_s[j] = x[j].time_s;
        out->mult[j] = x[j].weight;
    }
}
