/* splits: programs of a cluster, and equal devices, for the tests of split. */
#ifndef TEST_PLAN_SPLITS_H
#define TEST_PLAN_SPLITS_H

#include "plan/split.h"
#include "unit/plan/worlds.h"

/* Makes device b the same as a in all but the name. */
static inline void make_twin(struct cp_world *w, struct cp_queues *q, int cluster, int a, int b)
{
    struct cp_cluster *cl = &w->cluster[cluster];
    double between = cl->gain_d2d[a + 1][b + 1];
    cl->device[b] = cl->device[a];
    cl->gain_d2e[b + 1] = cl->gain_d2e[a + 1];
    for (int node = 0; node <= cl->n_devices; node++) {
        cl->gain_d2d[b + 1][node] = cl->gain_d2d[a + 1][node];
        cl->gain_d2d[node][b + 1] = cl->gain_d2d[node][a + 1];
    }
    cl->gain_d2d[a + 1][b + 1] = cl->gain_d2d[b + 1][a + 1] = between;
    if (q) {
        q->energy[cluster][b + 1] = q->energy[cluster][a + 1];
    }
}

/* All numbers of segments of a cluster, with the defaults of an order. */
static inline int all_splits(struct cp_split list[CP_DEVICES_MAX], const struct cp_world *w,
                             struct cp_room *room, const struct cp_queues *q, int micro,
                             enum cp_order order)
{
    int most = w->cluster[0].n_devices, layers = w->model.layers;
    most = most < layers ? most : layers;
    cp_room_init(room, w, 0);
    for (int s = 1; s <= most; s++) {
        cp_split_init(&list[s - 1], w, 0, room, q, s, micro, order);
    }
    return most;
}

#endif
