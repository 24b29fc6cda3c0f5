/*
 * Plans of every mode and format in a world of round numbers, with everything worked out by hand:
 * SNRs are 3, 7 or 15, so that a hertz carries 2, 3 or 4 bit/s.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "unit/plan/worlds.h"

static void close_to(double a, double b)
{
    if (!near_rel(a, b, 1e-12)) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

static size_t segment_bytes(const void *arg, int n_layers, int slots)
{
    (void)arg;
    return (size_t)(1000 * n_layers + 10 * slots);
}

static size_t client_bytes(const void *arg, int n_layers)
{
    (void)arg;
    return (size_t)(70000 + 1000 * n_layers);
}

/* Two equal clusters of a CU and two devices: d1 2 GFLOP/s, d2 4 GFLOP/s, CU 1 GFLOP/s. */
static void round_world(struct cp_world *w)
{
    assert_int_equal(cp_world_init(w, 2), CP_OK);
    w->model = (struct cp_model_cost){.layers = 4,
                                      .emb = {1e9, 1e9, 3e6},
                                      .layer = {2e9, 4e9, 1e6},
                                      .head = {1e9, 2e9, 0.5e6},
                                      .boundary_bytes = 1e6,
                                      .label_bytes = 0.25e6,
                                      .width = 8,
                                      .segment_bytes = segment_bytes,
                                      .client_bytes = client_bytes,
                                      .full_bytes_micro = 90000,
                                      .full_bytes_batch = 99000};
    w->radio = (struct cp_radio){4e6, 8e6, 8e6, 1e-9, 4};
    w->server_flops = 16e9;
    w->local_steps = 2;
    w->micro_samples = 4;
    w->micro_ref = 2;
    w->micro_max = 8;
    const struct cp_device node = {
        .present = true, .mem_bytes = 100000, .power_d2d_w = 2, .power_d2e_w = 2};
    for (int c = 0; c < 2; c++) {
        struct cp_cluster *cl = &w->cluster[c];
        *cl = (struct cp_cluster){.cu = node, .n_devices = 2, .device = {node, node}};
        cl->data_size = 1;
        cl->cu.rate_flops = 1e9;
        cl->cu.energy_j_flop = 3e-9;
        cl->device[0].rate_flops = 2e9;
        cl->device[0].energy_j_flop = 1e-9;
        cl->device[1].rate_flops = 4e9;
        cl->device[1].energy_j_flop = 2e-9;
        cl->gain_d2e[0] = 14e-3;
        cl->gain_d2e[1] = 6e-3;
        cl->gain_d2e[2] = 30e-3;
        cl->gain_d2d[0][2] = cl->gain_d2d[2][0] = 6e-3;
        cl->gain_d2d[0][1] = cl->gain_d2d[1][0] = 30e-3;
        cl->gain_d2d[1][2] = cl->gain_d2d[2][1] = 30e-3;
    }
    cp_world_weigh(w);
    assert_int_equal(cp_world_check(w), CP_OK);
}

/* The same plan for both clusters: y = 1/2 each. */
static void forecast(const struct cp_world *w, const struct cp_cluster_plan *plan,
                     struct cp_cluster_forecast *out, double *latency_s, double *gamma)
{
    struct cp_plan p;
    struct cp_forecast f;
    assert_int_equal(cp_plan_init(&p, 2), CP_OK);
    p.cluster[0] = p.cluster[1] = *plan;
    if (cp_plan_check(&p, w) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
    assert_int_equal(cp_forecast_make(&p, w, NULL, 0, &f), CP_OK);
    *out = f.cluster[0];
    *latency_s = f.latency_s;
    *gamma = f.gamma;
    /* T_bc of plain pipelines: 8 (3 + 4) Mbit at 8 MHz x 3 */
    close_to(cp_plan_objective(&p, w, NULL), f.latency_s - 56.0 / 24);
    cp_forecast_fini(&f);
    cp_plan_fini(&p);
}

static const struct cp_cluster_plan APART = {
    .order = CP_ORDER_SEQ,
    .segments = 2,
    .device = {0, 1},
    .micro_batches = 4,
    .slots = {1, 1, 1, 1},
    .uplink_share = 0.5,
    .power_fwd_w = {0, 1, 1},
};

/* Noise without and with drift: rho^2 = 1/4, eta beta (H - 1) rho = 2/5 x 1/2 x 1/2 = 1/10, so two
 * models in a cluster have 9/7 of the noise of one. An error U of the gradients: with eta beta H =
 * 1/4 the noise of M = 1 is 2 x 4/8 (1/4 + 3/8 x 1/2) = 7/16, and 4.5 x 2 U^2 / (7/16) = 144/7 U^2,
 * times M_ref. */
static double gamma_of(double models, double micro_batches, double error)
{
    return 2 * ((1 + (models - 1) * 2 / 7) / micro_batches + 144.0 / 7 * error * error);
}

static void full_by_hand(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_cluster_forecast f;
    struct cp_cluster_plan p = APART;
    double latency_s, gamma;
    round_world(&w);
    p.mode = CP_MODE_FULL;
    p.layers[0] = p.layers[1] = 4;
    forecast(&w, &p, &f, &latency_s, &gamma);
    /* A micro-batch has 2 + 4 x 6 + 3 = 29 GFLOP; each device has 4 / 2 in each of 2 steps. On 2
     * MHz d1 sends 4 Mbit/s, d2 8; the model has 8 (3 + 4 + 0.5) = 60 Mbit. d1: 58 + 15 s, d2: 29 +
     * 7.5 s. Down to d1 come 8 x 2 Mbit/s: 3.75 s. */
    close_to(f.round_s, 73);
    close_to(f.step_s, 29);
    close_to(f.upload_s, 15);
    close_to(latency_s, 76.75);
    close_to(f.energy_j[0] + 1, 1);
    close_to(f.energy_j[1], 116 + 15);
    close_to(f.energy_j[2], 232 + 7.5);
    close_to(f.bubble, 0.25);
    assert_true(f.mem_bytes[0] == 90000 && f.mem_bytes[1] == 90000);
    close_to(gamma, gamma_of(2, 4, 0));
    p.upload_format = CP_FORMAT_BF16; /* half as much goes up, not down */
    forecast(&w, &p, &f, &latency_s, &gamma);
    close_to(f.round_s, 58 + 7.5);
    close_to(latency_s, 58 + 7.5 + 3.75);
    close_to(f.energy_j[2], 232 + 3.75);
    close_to(gamma, gamma_of(2, 4, cp_format_error(CP_FORMAT_BF16)));
    p.upload_format = CP_FORMAT_FP32;
    p.segments = 1; /* d1 alone: everything, with the whole share */
    p.power_fwd_w[1] = 2;
    forecast(&w, &p, &f, &latency_s, &gamma);
    close_to(f.round_s, 116 + 7.5);
    close_to(f.energy_j[1], 232 + 2 * 7.5);
    close_to(f.energy_j[2] + 1, 1);
    close_to(f.bubble + 1, 1);
    close_to(gamma, gamma_of(1, 4, 0));
    cp_world_fini(&w);
}

static void split_by_hand(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_cluster_forecast f;
    struct cp_cluster_plan p = APART;
    double latency_s, gamma;
    round_world(&w);
    p.mode = CP_MODE_SPLIT;
    p.layers[0] = p.layers[1] = 3;
    p.edge_layers = 1;
    forecast(&w, &p, &f, &latency_s, &gamma);
    /* A device has 2 + 3 x 6 = 20 GFLOP: 10 and 5 s. The server has 16 / 2 / 2 GFLOP/s for each and
     * (3 + 6) / 4 = 2.25 s to do. 10 Mbit go up at 4 and 8 Mbit/s, 8 Mbit come down at 1/4 of 8 MHz
     * x 2 and x 4: 4 and 8 Mbit/s. d1: 10 + 2.5 + 2.25 + 2, d2: 5 + 1.25 + 2.25 + 1, 4 times each,
     * then 8 (3 + 3) = 48 Mbit at 4 and 8. Down come 48 Mbit at 16. */
    close_to(f.step_s, 2 * 16.75);
    close_to(f.round_s, 67 + 12);
    close_to(latency_s, 79 + 3);
    close_to(f.energy_j[0] + 1, 1);
    close_to(f.energy_j[1], 4 * (20 + 2.5) + 12);
    close_to(f.energy_j[2], 4 * (40 + 1.25) + 6);
    close_to(f.bubble, 1 - (20 + 10) / (2 * 33.5));
    assert_true(f.mem_bytes[0] == 73000 && f.mem_bytes[1] == 73000);
    close_to(gamma, gamma_of(2, 4, 0));
    p.upload_format = CP_FORMAT_INT8; /* 1/4 and a scale for 8 numbers: 3/8 */
    forecast(&w, &p, &f, &latency_s, &gamma);
    close_to(f.round_s, 67 + 4.5);
    close_to(f.energy_j[1], 4 * (20 + 2.5) + 4.5);
    close_to(gamma, gamma_of(2, 4, cp_format_error(CP_FORMAT_INT8)));
    p.link_format[2] = CP_FORMAT_BF16; /* SplitFed has no formats of links */
    struct cp_plan odd = {.n_clusters = 2};
    assert_int_equal(cp_plan_init(&odd, 2), CP_OK);
    odd.cluster[0] = odd.cluster[1] = p;
    assert_int_equal(cp_plan_check(&odd, &w), CP_E_PLAN);
    cp_plan_fini(&odd);
    cp_world_fini(&w);
}

static void formats_and_edge_layers_by_hand(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_cluster_forecast f;
    struct cp_cluster_plan p = {
        .order = CP_ORDER_GPIPE,
        .segments = 2,
        .device = {1, 0},
        .layers = {2, 1},
        .edge_layers = 1,
        .micro_batches = 4,
        .uplink_share = 0.5,
        .band_fwd = {0.5, 0.5},
        .band_bwd = {0.5, 0.5},
        .power_fwd_w = {1, 1, 2},
        .power_bwd_w = {0, 1, 1},
        .power_up_w = 6.0 / 7,
        .link_format = {CP_FORMAT_INT8, CP_FORMAT_BF16, CP_FORMAT_FP32},
        .upload_format = CP_FORMAT_INT8,
    };
    double latency_s, gamma;
    round_world(&w);
    cp_plan_set_slots(&p);
    forecast(&w, &p, &f, &latency_s, &gamma);
    /* Server: 16 / 2 = 8 GFLOP/s for the head and one layer: 3/8 and 6/8 s. Links have 2 MHz x 2,
     * 2 MHz x 4 and 4 MHz x 2, and the same back. Labels are 2 Mbit in every format. */
    const double fwd[] = {1, 1, 1, 0.375}, bwd[] = {1, 2, 2, 0.75};
    const double link_fwd[] = {(8 * 0.375 + 2) / 4, (8 * 0.5 + 2) / 8, 10.0 / 8};
    const double link_bwd[] = {8 * 0.375 / 4, 8 * 0.5 / 8, 8.0 / 8};
    for (int j = 0; j < 4; j++) {
        close_to(f.times.fwd_s[j], fwd[j]);
        close_to(f.times.bwd_s[j], bwd[j]);
    }
    for (int j = 0; j < 3; j++) {
        close_to(f.times.link_fwd_s[j], link_fwd[j]);
        close_to(f.times.link_bwd_s[j], link_bwd[j]);
    }
    /* Sigma = 3.375 + 5.75 + 3.25 + 2.25, m^F = 1.25, m^B = 2. A layer of 8 Mbit goes at 8 Mbit/s
     * to d2 and at 16 to d1, and back. 8 (3 + 3) 3/8 = 18 Mbit go up at 8. */
    close_to(f.step_s, 14.625 + 3 * 3.25);
    close_to(f.scatter_s, 2 + 0.5);
    close_to(f.gather_s, 2 + 0.5);
    close_to(f.upload_s, 2.25);
    close_to(f.round_s, 2 * 24.375 + 5 + 2.25);
    close_to(latency_s, 56 + 2); /* 48 Mbit at 24 come down */
    close_to(f.energy_j[0], 8 * (6 + 1.25) + 2 * 2.5 + 6.0 / 7 * 2.25);
    close_to(f.energy_j[1], 8 * (6 + 2 * 1.25 + 0.5) + 2 * 0.5);
    close_to(f.energy_j[2], 8 * (24 + 0.75 + 0.75) + 2 * 2);
    close_to(f.bubble, 1 - 4 * 9.125 / (4 * 24.375));
    assert_true(f.mem_bytes[0] == 2040 && f.mem_bytes[1] == 1040);
    double int8 = cp_format_error(CP_FORMAT_INT8), bf16 = cp_format_error(CP_FORMAT_BF16);
    close_to(gamma, gamma_of(1, 4, int8 + 2 * (int8 + bf16)));
    cp_world_fini(&w);
}

/* To the 7 bits after the leading one; halves to even. */
static double round_bf16(double x)
{
    int e;
    double m = frexp(x, &e);
    return ldexp(nearbyint(m * 256), e - 8);
}

/* The errors that the planner reckons with, against rows of normal numbers that are rounded. */
static void format_errors_are_those_of_rounding(void **state)
{
    (void)state;
    enum { ROWS = 300, WIDTH = 768 };
    struct cp_rng r;
    double sum = 0, bf16 = 0, int8 = 0;
    cp_rng_init(&r, 5, CP_RNG_TEST, 14, 0);
    for (int i = 0; i < ROWS; i++) {
        double x[WIDTH], most = 0;
        for (int k = 0; k < WIDTH; k++) {
            x[k] = cp_rng_normal(&r);
            most = fmax(most, fabs(x[k]));
        }
        for (int k = 0; k < WIDTH; k++) {
            double step = most / 127;
            sum += x[k] * x[k];
            bf16 += pow(round_bf16(x[k]) - x[k], 2);
            int8 += pow(nearbyint(x[k] / step) * step - x[k], 2);
        }
    }
    assert_true(near_rel(sqrt(bf16 / sum), cp_format_error(CP_FORMAT_BF16), 0.02));
    assert_true(near_rel(sqrt(int8 / sum), cp_format_error(CP_FORMAT_INT8), 0.10));
    assert_true(cp_format_error(CP_FORMAT_FP32) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_by_hand),
        cmocka_unit_test(split_by_hand),
        cmocka_unit_test(formats_and_edge_layers_by_hand),
        cmocka_unit_test(format_errors_are_those_of_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
