/* Forecasts against sums written out from the sections, operation by operation. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/plan/worlds.h"

static double shannon(double band_hz, double power_w, double gain, double n0)
{
    return band_hz * log2(1 + power_w * gain / (band_hz * n0));
}

static void close_to(double a, double b)
{
    if (!near_rel(a, b, 1e-9)) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

/* Every micro-batch, step and transfer of a round logged one by one (section 16, item 22). */
static void log_cluster(const struct cp_world *w, int cluster, const struct cp_cluster_plan *p,
                        double energy_j[CP_DEVICES_MAX + 1], double *round_s)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    const struct cp_model_cost *m = &w->model;
    double n0 = w->radio.noise_w_hz, band = w->radio.band_d2d_hz, air_s = 0;
    double half = p->order == CP_ORDER_GPIPE || p->micro_batches == 1 ? 1 : 0.5;
    struct cp_times t;
    cp_times_make(p, cl, w, &t);
    for (int step = 0; step < w->local_steps; step++) {
        for (int micro = 0; micro < p->micro_batches; micro++) {
            energy_j[0] += cl->cu.energy_j_flop * (m->emb.work_fwd_flops + m->emb.work_bwd_flops);
            int from = 0;
            for (int s = 0; s < p->segments; s++) {
                int to = p->device[s] + 1;
                double work = p->layers[s] * (m->layer.work_fwd_flops + m->layer.work_bwd_flops);
                double g = cl->gain_d2d[from][to];
                double fwd = 8 * (m->boundary_bytes + m->label_bytes) /
                             shannon(p->band_fwd[s] * band * half, p->power_fwd_w[s], g, n0);
                double bwd = 8 * m->boundary_bytes /
                             shannon(p->band_bwd[s] * band * half, p->power_bwd_w[s + 1], g, n0);
                energy_j[to] += cl->device[to - 1].energy_j_flop * work;
                energy_j[from] += p->power_fwd_w[s] * fwd;
                energy_j[to] += p->power_bwd_w[s + 1] * bwd;
                close_to(t.link_fwd_s[s], fwd);
                close_to(t.link_bwd_s[s], bwd);
                close_to(t.fwd_s[s + 1] + t.bwd_s[s + 1], work / cl->device[to - 1].rate_flops);
                from = to;
            }
            double up = 8 * (m->boundary_bytes + m->label_bytes) /
                        shannon(p->uplink_share * w->radio.band_up_hz, p->power_fwd_w[p->segments],
                                cl->gain_d2e[from], n0);
            energy_j[from] += p->power_fwd_w[p->segments] * up;
            close_to(t.link_fwd_s[p->segments], up);
        }
    }
    double upload = 8 * m->emb.param_bytes;
    for (int s = 0; s < p->segments; s++) {
        int k = p->device[s];
        double bits = 8 * m->layer.param_bytes * p->layers[s], g = cl->gain_d2d[0][k + 1];
        double out = bits / shannon(band, cl->cu.power_d2d_w, g, n0);
        double in = bits / shannon(band, cl->device[k].power_d2d_w, g, n0);
        energy_j[0] += cl->cu.power_d2d_w * out;
        energy_j[k + 1] += cl->device[k].power_d2d_w * in;
        air_s += out + in;
        upload += bits;
    }
    double up =
        upload / shannon(p->uplink_share * w->radio.band_up_hz, p->power_up_w, cl->gain_d2e[0], n0);
    energy_j[0] += p->power_up_w * up;
    *round_s = w->local_steps * cp_step_s(p, &t) + air_s + up;
}

static void energy_is_the_sum_of_operations(void **state)
{
    (void)state;
    const enum cp_order orders[] = {CP_ORDER_SEQ, CP_ORDER_GPIPE, CP_ORDER_1F1B};
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct cp_world w;
        struct cp_plan p;
        struct cp_forecast f;
        toy_world(&w, 1 + (int)(seed % 3), 4, 8, seed);
        w.local_steps = 3;
        cp_world_weigh(&w);
        struct cp_policy_args a = {
            .world = &w, .order = orders[seed % 3], .seed = seed, .choose_micro = seed % 2};
        struct cp_decision d;
        assert_int_equal(cp_policy_decide(cp_policy_find("random"), &a, &p, &d), CP_OK);
        assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &f), CP_OK);
        double total = 0, slowest = 0, broadcast = 0,
               bits = 8 * (w.model.emb.param_bytes + 8 * w.model.layer.param_bytes);
        for (int c = 0; c < w.n_clusters; c++) {
            double e[CP_DEVICES_MAX + 1] = {0}, round_s;
            log_cluster(&w, c, &p.cluster[c], e, &round_s);
            for (int node = 0; node <= 4; node++) {
                close_to(f.cluster[c].energy_j[node], e[node]); /* unused devices: 0 */
                total += e[node];
            }
            close_to(f.cluster[c].round_s, round_s);
            assert_true(f.cluster[c].bubble >= 0 && f.cluster[c].bubble < 1);
            slowest = fmax(slowest, round_s);
            broadcast =
                fmax(broadcast, bits / shannon(w.radio.band_down_hz, w.radio.power_bs_w,
                                               w.cluster[c].gain_d2e[0], w.radio.noise_w_hz));
        }
        close_to(f.energy_j, total);
        close_to(f.latency_s, broadcast + slowest);
        cp_forecast_fini(&f);
        cp_plan_fini(&p);
        cp_world_fini(&w);
    }
}

static void moves_cost_their_transfer(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_forecast plain, moved;
    const struct cp_move moves[] = {{0, 1, 2, 0}, {0, 2, 2, 1}, {1, 3, 0, 1}};
    toy_world(&w, 2, 3, 4, 5);
    toy_plan(&p, &w, "gpipe-uniform");
    w.cluster[1].device[0].present = false; /* gone: there is nothing left to move from it */
    assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &plain), CP_OK);
    assert_int_equal(cp_forecast_make(&p, &w, moves, 3, &moved), CP_OK);
    double bits = 8 * 2 * w.model.layer.param_bytes, power = w.cluster[0].device[2].power_d2d_w;
    double t = 0;
    for (int to = 1; to <= 2; to++) {
        t += bits /
             shannon(w.radio.band_d2d_hz, power, w.cluster[0].gain_d2d[3][to], w.radio.noise_w_hz);
    }
    close_to(moved.cluster[0].round_s, plain.cluster[0].round_s + t);
    close_to(moved.cluster[0].energy_j[3], plain.cluster[0].energy_j[3] + power * t);
    close_to(moved.cluster[1].round_s, plain.cluster[1].round_s);
    close_to(moved.energy_j, plain.energy_j + power * t);
    cp_forecast_fini(&plain);
    cp_forecast_fini(&moved);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

static void full_model_baseline(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_forecast f;
    toy_world(&w, 2, 3, 6, 8);
    w.cluster[0].device[1].present = false;
    for (int i = 0; i < 6; i++) {
        w.cluster[i / 3].device[i % 3].mem_bytes = (size_t)4 << 30;
    }
    toy_plan(&p, &w, "fedavg");
    assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &f), CP_OK);
    const struct cp_model_cost *m = &w.model;
    double work = 7.9e6 * 2 + 9.5e6 + 19e6 + 6 * (7.449e9 + 14.898e9);
    double bits = 8 * (m->emb.param_bytes + 6 * m->layer.param_bytes + m->head.param_bytes);
    for (int c = 0; c < 2; c++) {
        const struct cp_cluster *cl = &w.cluster[c];
        int n = c == 0 ? 2 : 3;
        double slowest = 0;
        assert_int_equal(p.cluster[c].segments, n);
        for (int k = 0; k < 3; k++) {
            if (!cl->device[k].present) {
                close_to(f.cluster[c].energy_j[k + 1], 0);
                continue;
            }
            const struct cp_device *d = &cl->device[k];
            double train = w.local_steps * 8.0 / n * work;
            double up = bits / shannon(w.radio.band_up_hz / 2 / n, d->power_d2e_w,
                                       cl->gain_d2e[k + 1], w.radio.noise_w_hz);
            slowest = fmax(slowest, train / d->rate_flops + up);
            close_to(f.cluster[c].energy_j[k + 1], train * d->energy_j_flop + d->power_d2e_w * up);
        }
        close_to(f.cluster[c].round_s, slowest);
        assert_int_equal(f.cluster[c].mem_bytes[0], m->full_bytes_micro);
    }
    double weakest = fmin(w.cluster[0].gain_d2e[1], w.cluster[0].gain_d2e[3]);
    for (int k = 1; k <= 3; k++) {
        weakest = fmin(weakest, w.cluster[1].gain_d2e[k]);
    }
    close_to(f.broadcast_s, bits / shannon(w.radio.band_down_hz, 1, weakest, w.radio.noise_w_hz));
    cp_forecast_fini(&f);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

/* Noise, what it means to train apart, and what rounding adds. */
static void weights_of_gamma(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_forecast f;
    toy_world(&w, 3, 2, 4, 3);
    close_to(w.cluster[1].weight.alpha, 1.0 / 3);
    w.cluster[0].data_size = 1;
    w.cluster[1].data_size = 2;
    w.cluster[2].data_size = 5;
    w.local_steps = 1; /* no drift term: alpha ~ rho^2 */
    cp_world_weigh(&w);
    close_to(w.cluster[2].weight.alpha, 25.0 / 30);
    w.local_steps = 20;
    cp_world_weigh(&w);
    close_to(w.cluster[0].weight.alpha + w.cluster[1].weight.alpha + w.cluster[2].weight.alpha, 1);
    double a0 = 1.0 / 64 + 0.38 / 8, a1 = 4.0 / 64 + 0.38 / 4, a2 = 25.0 / 64 + 0.38 * 5 / 8;
    close_to(w.cluster[1].weight.alpha, a1 / (a0 + a1 + a2));
    toy_plan(&p, &w, "gpipe-uniform");
    p.cluster[1].micro_batches = 4;
    cp_plan_set_slots(&p.cluster[1]);
    assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &f), CP_OK);
    close_to(f.gamma, 1 + w.cluster[1].weight.alpha);
    cp_forecast_fini(&f);
    w.cluster[0].data_size = w.cluster[1].data_size = w.cluster[2].data_size = 0;
    cp_world_weigh(&w);
    close_to(w.cluster[2].weight.alpha, 1.0 / 3);
    cp_mem_fail_at(1);
    f.latency_s = 5;
    assert_int_equal(cp_forecast_make(&p, &w, NULL, 0, &f), CP_E_NOMEM);
    assert_true(f.latency_s == 5);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(energy_is_the_sum_of_operations),
        cmocka_unit_test(moves_cost_their_transfer),
        cmocka_unit_test(full_model_baseline),
        cmocka_unit_test(weights_of_gamma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
