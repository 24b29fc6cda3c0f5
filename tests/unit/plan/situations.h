/* situations: random worlds with absences, tight memory, queues and freedoms, for suites of
 * policies. */
#ifndef TEST_PLAN_SITUATIONS_H
#define TEST_PLAN_SITUATIONS_H

#include "plan/draft.h"
#include "unit/plan/worlds.h"

/* A random situation: sizes, absences, tight memory, queues, what may be chosen. */
struct situation {
    struct cp_world w;
    struct cp_queues q;
    struct cp_policy_args a;
    int cuts[3][CP_DEVICES_MAX];
};

static inline void draw_situation(struct situation *s, uint64_t seed)
{
    struct cp_rng r;
    memset(s, 0, sizeof *s);
    cp_rng_init(&r, seed, CP_RNG_TEST, 0, 1);
    int clusters = 1 + (int)cp_rng_below(&r, 3), devices = 1 + (int)cp_rng_below(&r, 5);
    int layers = 1 + (int)cp_rng_below(&r, 8);
    toy_world(&s->w, clusters, devices, layers, seed);
    s->w.micro_ref = 1 + (int)cp_rng_below(&r, 8);
    for (int c = 0; c < clusters; c++) {
        struct cp_cluster *cl = &s->w.cluster[c];
        cl->data_size = 1 + (int)cp_rng_below(&r, 5);
        for (int k = 0; k < devices; k++) {
            cl->device[k].present = cp_rng_unit(&r) < 0.85;
            if (seed % 2) {
                cl->device[k].mem_bytes =
                    toy_bytes(&TOY, 1 + (int)cp_rng_below(&r, 8), 1 + (int)cp_rng_below(&r, 4)) -
                    cp_rng_below(&r, 2);
            }
        }
        for (int left = layers; left > 0; left--) { /* cuts on any device */
            s->cuts[c][cp_rng_below(&r, (uint32_t)devices)]++;
        }
    }
    cp_world_weigh(&s->w);
    s->a = (struct cp_policy_args){.world = &s->w,
                                   .mean = &s->w,
                                   .order = (enum cp_order)cp_rng_below(&r, 3),
                                   .choose_order = cp_rng_below(&r, 2),
                                   .choose_micro = cp_rng_below(&r, 2),
                                   .seed = seed,
                                   .n_cuts = clusters,
                                   .cuts = (const int(*)[CP_DEVICES_MAX])s->cuts};
    bool all_there = true; /* queues need a reference pipeline everywhere */
    for (int c = 0; c < clusters; c++) {
        int device[CP_DEVICES_MAX], n;
        all_there &= cp_draft_present(&s->w.cluster[c], device, &n) == CP_OK;
    }
    if (all_there && cp_rng_below(&r, 3) > 0) {
        toy_queues(&s->q, &s->w, 20, seed);
        s->a.queues = &s->q;
    }
}

static inline void free_situation(struct situation *s)
{
    cp_queues_fini(&s->q);
    cp_world_fini(&s->w);
}

#endif
