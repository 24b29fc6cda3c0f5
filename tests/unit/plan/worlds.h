/*
 * worlds: small worlds for the tests of plan. The model is a size function that is linear in layers
 * and slots, so that memory limits can be set in units of layers.
 */
#ifndef TEST_PLAN_WORLDS_H
#define TEST_PLAN_WORLDS_H

#include "base/rng.h"
#include "plan/policy.h"
#include "world/radio.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a segment: layers x (weights + slots x saved) + fixed. */
struct toy_size {
    size_t weights, saved, fixed;
};

static size_t toy_bytes(const void *arg, int n_layers, int slots)
{
    const struct toy_size *t = arg;
    return (size_t)n_layers * (t->weights + (size_t)slots * t->saved) + t->fixed;
}

static size_t toy_client_bytes(const void *arg, int n_layers)
{
    return toy_bytes(arg, n_layers, 1) + (size_t)390e6;
}

static const struct toy_size TOY = {.weights = 80 << 20, .saved = 27 << 20, .fixed = 6 << 20};

/* BERT-base at b = 4, 128 tokens, but with L layers. */
static inline struct cp_model_cost toy_model(int layers)
{
    struct cp_model_cost m = {
        .layers = layers,
        .emb = {7.9e6, 7.9e6, 95.3e6},
        .layer = {7.449e9, 14.898e9, 28.35e6},
        .head = {9.5e6, 19e6, 2.4e6},
        .boundary_bytes = 1.5 * 0x1p20,
        .label_bytes = 32,
        .optim_words = 2,
        .width = 768,
        .segment_bytes = toy_bytes,
        .client_bytes = toy_client_bytes,
        .segment_arg = &TOY,
    };
    m.full_bytes_micro = toy_bytes(&TOY, layers, 1) + (size_t)400e6;
    m.full_bytes_batch = toy_bytes(&TOY, layers, 8) + (size_t)400e6;
    return m;
}

/* A drawn world with Rayleigh fading of its round. Aborts where memory is short. */
static inline void toy_world(struct cp_world *w, int clusters, int devices, int layers,
                             uint64_t seed)
{
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1};
    assert_int_equal(cp_world_draw_default(clusters, devices, seed, w), CP_OK);
    w->model = toy_model(layers);
    w->round = (int32_t)(seed % 1000);
    cp_channel_draw(w, &ch, seed, false);
}

/* Queues with random backlog: dimensionless, about 0 to `most`. */
static inline void toy_queues(struct cp_queues *q, const struct cp_world *w, double most,
                              uint64_t seed)
{
    struct cp_rng r;
    assert_int_equal(cp_queues_init(q, w, 10), CP_OK);
    cp_rng_init(&r, seed, CP_RNG_TEST, 77, 0);
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            q->energy[c][node] = cp_rng_range(&r, 0, most);
        }
    }
    q->convergence *= cp_rng_range(&r, 0.2, 3);
}

/* A valid plan of a world by a policy. */
static inline void toy_plan(struct cp_plan *p, const struct cp_world *w, const char *policy)
{
    struct cp_policy_args a = {.world = w, .mean = w, .order = CP_ORDER_GPIPE};
    struct cp_decision d;
    assert_int_equal(cp_policy_decide(cp_policy_find(policy), &a, p, &d), CP_OK);
}

static inline bool near_rel(double a, double b, double rel)
{
    return fabs(a - b) <= rel * fmax(fabs(a), fabs(b)) + 1e-300;
}

#endif
