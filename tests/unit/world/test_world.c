/* Worlds: drawing, copying, and the check that planning can begin. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "world/radio.h"

#include <math.h>
#include <string.h>

static size_t no_bytes(const void *arg, int n_layers, int slots)
{
    (void)arg;
    return (size_t)(n_layers * slots);
}

static void make(struct cp_world *w)
{
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1};
    assert_int_equal(cp_world_draw_default(2, 3, 5, w), CP_OK);
    w->model = (struct cp_model_cost){.layers = 4,
                                      .emb = {1e6, 1e6, 1e6},
                                      .layer = {1e9, 2e9, 1e6},
                                      .head = {1e6, 1e6, 1e6},
                                      .boundary_bytes = 1e6,
                                      .width = 64,
                                      .segment_bytes = no_bytes};
    cp_channel_draw(w, &ch, 5, false);
    assert_int_equal(cp_world_check(w), CP_OK);
}

static void default_ranges(void **state)
{
    (void)state;
    struct cp_world w;
    double rate_low = INFINITY, rate_high = 0;
    assert_int_equal(cp_world_draw_default(40, 8, 1, &w), CP_OK);
    assert_int_equal(w.n_clusters, 40);
    assert_string_equal(w.cluster[39].name, "c40");
    assert_string_equal(w.cluster[3].cu.name, "cu");
    assert_string_equal(w.cluster[3].device[7].name, "d8");
    for (int c = 0; c < 40; c++) {
        const struct cp_cluster *cl = &w.cluster[c];
        assert_int_equal(cl->n_devices, 8);
        assert_true(cl->edge_x_m >= 50 && cl->edge_x_m < 200);
        assert_true(cl->cu.present && cl->cu.rate_flops == 60e9 && cl->cu.x_m == 0);
        for (int k = 0; k < 8; k++) {
            const struct cp_device *d = &cl->device[k];
            assert_true(d->present && d->rate_flops >= 20e9 && d->rate_flops < 120e9);
            assert_true(d->energy_j_flop >= 15e-12 && d->energy_j_flop < 40e-12);
            assert_true(d->mem_bytes >= (size_t)1 << 30 && d->mem_bytes < (size_t)4 << 30);
            assert_true(d->budget_j >= 280 && d->budget_j < 520);
            assert_true(fabs(d->x_m) <= 20 && fabs(d->y_m) <= 20);
            assert_true(d->power_d2d_w == 0.1 && fabs(d->power_d2e_w - 0.19953) < 1e-5);
            rate_low = fmin(rate_low, d->rate_flops);
            rate_high = fmax(rate_high, d->rate_flops);
        }
    }
    assert_true(rate_low < 25e9 && rate_high > 115e9);
    assert_true(w.radio.band_d2d_hz == 20e6 && w.radio.band_up_hz == 40e6);
    assert_true(fabs(w.radio.noise_w_hz - 3.981e-21) < 1e-24);
    assert_true(w.server_flops == 2e12 && w.local_steps == 20 && w.micro_samples == 4 &&
                w.micro_ref == 8 && w.micro_max == 16);
    cp_world_fini(&w);
}

static void a_larger_world_begins_with_the_smaller(void **state)
{
    (void)state;
    struct cp_world small, large, other;
    assert_int_equal(cp_world_draw_default(1, 2, 9, &small), CP_OK);
    assert_int_equal(cp_world_draw_default(3, 5, 9, &large), CP_OK);
    assert_int_equal(cp_world_draw_default(1, 2, 10, &other), CP_OK);
    assert_memory_equal(&small.cluster[0].device[1], &large.cluster[0].device[1],
                        sizeof(struct cp_device));
    assert_true(small.cluster[0].edge_x_m == large.cluster[0].edge_x_m);
    assert_true(small.cluster[0].device[1].rate_flops != other.cluster[0].device[1].rate_flops);
    assert_true(large.cluster[0].device[1].rate_flops != large.cluster[1].device[1].rate_flops);
    cp_world_fini(&small);
    cp_world_fini(&large);
    cp_world_fini(&other);
}

static void availability_of_a_round(void **state)
{
    (void)state;
    struct cp_world full, w = {0};
    double first = 0;
    assert_int_equal(cp_world_draw_default(2, 4, 9, &full), CP_OK);
    assert_int_equal(cp_world_copy(&w, &full), CP_OK);
    for (w.round = 0; w.round < 50; w.round++) {
        cp_world_draw_rates(&w, &full, 0.5, 9);
        for (int i = 0; i < 8; i++) {
            double share = w.cluster[i / 4].device[i % 4].rate_flops /
                           full.cluster[i / 4].device[i % 4].rate_flops;
            assert_true(share >= 0.5 * (1 - 1e-12) && share <= 1);
        }
        assert_true(w.cluster[0].device[0].rate_flops != first);
        double share[] = {w.cluster[0].device[0].rate_flops / full.cluster[0].device[0].rate_flops,
                          w.cluster[0].device[1].rate_flops / full.cluster[0].device[1].rate_flops,
                          w.cluster[1].device[0].rate_flops / full.cluster[1].device[0].rate_flops};
        assert_true(fabs(share[0] - share[1]) > 1e-9 && fabs(share[0] - share[2]) > 1e-9);
        first = w.cluster[0].device[0].rate_flops;
    }
    w.round = 49; /* the same round is drawn the same, from the full rates */
    cp_world_draw_rates(&w, &full, 0.5, 9);
    assert_true(w.cluster[0].device[0].rate_flops == first);
    full.round = 49; /* in place, too */
    cp_world_draw_rates(&full, &full, 0.5, 9);
    assert_true(full.cluster[0].device[0].rate_flops == first);
    cp_world_fini(&w);
    cp_world_fini(&full);
}

static void copies_are_their_own(void **state)
{
    (void)state;
    struct cp_world a, b = {0};
    make(&a);
    assert_int_equal(cp_world_copy(&b, &a), CP_OK);
    assert_int_equal(cp_world_copy(&b, &a), CP_OK); /* replaced, nothing left behind */
    b.cluster[1].device[0].present = false;
    assert_true(a.cluster[1].device[0].present);
    cp_mem_fail_at(1);
    struct cp_cluster *before = b.cluster;
    assert_int_equal(cp_world_copy(&b, &a), CP_E_NOMEM);
    assert_ptr_equal(b.cluster, before);
    cp_world_fini(&a);
    cp_world_fini(&b);
    assert_int_equal(cp_world_init(&b, 0), CP_E_CONFIG);
    assert_int_equal(cp_world_init(&b, -1), CP_E_CONFIG);
    assert_int_equal(cp_world_init(&b, CP_CLUSTERS_MAX + 1), CP_E_CONFIG);
    assert_int_equal(cp_world_draw_default(1, 0, 1, &b), CP_E_CONFIG);
    assert_int_equal(cp_world_draw_default(1, CP_DEVICES_MAX + 1, 1, &b), CP_E_CONFIG);
    cp_mem_fail_at(1);
    assert_int_equal(cp_world_draw_default(1, 2, 1, &b), CP_E_NOMEM);
    assert_null(b.cluster);
}

#define CL  (&w.cluster[1])
#define DEV (&w.cluster[1].device[2])

#define MUTATIONS(X)                                                                               \
    X(w.n_clusters = 0, CP_E_CONFIG, "0 clusters")                                                 \
    X(w.model.layers = 0, CP_E_CONFIG, "0 layers")                                                 \
    X(w.model.layers = CP_LAYERS_MAX + 1, CP_E_CONFIG, "layers")                                   \
    X(w.micro_ref = 0, CP_E_CONFIG, "0 micro-batches")                                             \
    X(w.micro_max = 7, CP_E_CONFIG, "8 micro-batches of at most 7")                                \
    X(w.micro_max = CP_MICRO_MAX + 1, CP_E_CONFIG, "micro-batches")                                \
    X(w.local_steps = 0, CP_E_CONFIG, "0 local steps")                                             \
    X(w.radio.band_d2d_hz = 0, CP_E_CONFIG, "the D2D band is 0")                                   \
    X(w.radio.band_up_hz = NAN, CP_E_NONFINITE, "the uplink band")                                 \
    X(w.radio.band_down_hz = INFINITY, CP_E_NONFINITE, "the downlink band")                        \
    X(w.radio.noise_w_hz = -1, CP_E_CONFIG, "the noise density is -1")                             \
    X(w.radio.power_bs_w = 0, CP_E_CONFIG, "the base station")                                     \
    X(w.server_flops = 0, CP_E_CONFIG, "the edge server is 0")                                     \
    X(w.model.layer.work_fwd_flops = 0, CP_E_CONFIG, "the forward work of a layer")                \
    X(w.model.layer.work_bwd_flops = NAN, CP_E_NONFINITE, "the backward work of a layer")          \
    X(w.model.emb.param_bytes = -1, CP_E_CONFIG, "the size of the embedding")                      \
    X(w.model.boundary_bytes = 0, CP_E_CONFIG, "a boundary tensor")                                \
    X(w.model.label_bytes = NAN, CP_E_NONFINITE, "the labels")                                     \
    X(w.model.optim_words = -1, CP_E_CONFIG, "optimizer words")                                    \
    X(CL->n_devices = CP_DEVICES_MAX + 1, CP_E_CONFIG, "c2: a cluster has at most")                \
    X(CL->n_devices = -1, CP_E_CONFIG, "c2: a cluster has at most")                                \
    X(CL->data_size = NAN, CP_E_NONFINITE, "c2: the size of the data")                             \
    X(CL->cu.rate_flops = 0, CP_E_CONFIG, "c2.cu: the compute rate")                               \
    X(DEV->rate_flops = 0, CP_E_CONFIG, "c2.d3: the compute rate (FLOP/s) is 0")                   \
    X(DEV->rate_flops = NAN, CP_E_NONFINITE, "c2.d3: the compute rate")                            \
    X(DEV->energy_j_flop = -1e-12, CP_E_CONFIG, "c2.d3: the energy per FLOP")                      \
    X(DEV->budget_j = -1, CP_E_CONFIG, "c2.d3: the energy budget")                                 \
    X(DEV->power_d2d_w = 0, CP_E_CONFIG, "c2.d3: the transmit power to devices")                   \
    X(DEV->power_d2e_w = NAN, CP_E_NONFINITE, "c2.d3: the transmit power to the edge")             \
    X(DEV->battery_j = NAN, CP_E_NONFINITE, "c2.d3: the size of the battery")                      \
    X(DEV->battery_reserve_j = 5, CP_E_CONFIG, "c2.d3: the reserve of 5 J is more than its")       \
    X(DEV->harvest_w = -1, CP_E_CONFIG, "c2.d3: the power that charges the battery")               \
    X(CL->arrivals = INFINITY, CP_E_NONFINITE, "c2: the samples that arrive")                      \
    X(CL->arrivals = -1, CP_E_CONFIG, "c2: the samples that arrive")                               \
    X(CL->gain_d2e[3] = 0, CP_E_CONFIG, "c2.d3: the gain to the edge server is 0")                 \
    X(CL->gain_d2d[3][1] = 0, CP_E_CONFIG, "gain")                                                 \
    X(CL->gain_d2d[0][3] = INFINITY, CP_E_NONFINITE, "c2.cu: the gain to another node")            \
    X(CL->gain_d2d[1][3] *= 2, CP_E_CONFIG, "differs from the gain back")

static void check_names_what_is_wrong(void **state)
{
    (void)state;
    struct cp_world w;
#define X(mutation, code, text)                                                                    \
    make(&w);                                                                                      \
    mutation;                                                                                      \
    assert_int_equal(cp_world_check(&w), code);                                                    \
    if (!strstr(cp_err_text(), text)) {                                                            \
        fail_msg("'%s' does not have '%s'", cp_err_text(), text);                                  \
    }                                                                                              \
    cp_world_fini(&w);
    MUTATIONS(X)
#undef X
    /* Of a device that is absent nothing needs to be known. */
    make(&w);
    DEV->present = false;
    DEV->rate_flops = NAN;
    for (int i = 0; i <= 3; i++) {
        CL->gain_d2d[3][i] = CL->gain_d2e[3] = 0;
    }
    assert_int_equal(cp_world_check(&w), CP_OK);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_ranges),
        cmocka_unit_test(a_larger_world_begins_with_the_smaller),
        cmocka_unit_test(availability_of_a_round),
        cmocka_unit_test(copies_are_their_own),
        cmocka_unit_test(check_names_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
