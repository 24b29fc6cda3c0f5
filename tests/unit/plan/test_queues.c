/* Virtual queues: slot inequality and path bounds (docs/theory.md section 16, items 17, 18, 23). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/draft.h"
#include "unit/plan/worlds.h"

/* A forecast with given energies: only what the queues read. */
static void draw_forecast(struct cp_forecast *f, struct cp_cluster_forecast *cluster,
                          const struct cp_world *w, struct cp_rng *r)
{
    *f = (struct cp_forecast){.n_clusters = w->n_clusters, .cluster = cluster};
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            cluster[c].energy_j[node] = cp_rng_range(r, 0, 900);
        }
    }
    f->gamma = cp_rng_range(r, 0.1, 2.5);
}

static double budget(const struct cp_world *w, int c, int node)
{
    return node == 0 ? w->cluster[c].cu.budget_j : w->cluster[c].device[node - 1].budget_j;
}

static double lyapunov(const struct cp_queues *q, const struct cp_world *w)
{
    double sum = q->convergence * q->convergence;
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            sum += q->energy[c][node] * q->energy[c][node];
        }
    }
    return sum / 2;
}

/* The exact right side of the slot inequality; clipped tells whether some queue was. */
static double drift_bound(const struct cp_queues *q, const struct cp_world *w,
                          const struct cp_forecast *f, bool *clipped)
{
    double g = f->gamma - 1, sum = g * g / 2 + q->convergence * g;
    *clipped = q->convergence + g < 0;
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            if (budget(w, c, node) > 0) {
                double e = f->cluster[c].energy_j[node] / budget(w, c, node) - 1;
                sum += e * e / 2 + q->energy[c][node] * e;
                *clipped |= q->energy[c][node] + e < 0;
            }
        }
    }
    return sum;
}

static void slot_inequality_and_path_bound(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    int equal = 0, below = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_rng r;
        struct cp_cluster_forecast cluster[2];
        struct cp_forecast f;
        double e_sum[2][CP_DEVICES_MAX + 1] = {{0}}, gamma_sum = 0;
        toy_world(&w, 2, 1 + (int)(seed % 3), 4, seed);
        w.cluster[1].device[0].budget_j = 0; /* no limit */
        assert_int_equal(cp_queues_init(&q, &w, 10), CP_OK);
        double y0 = q.convergence;
        cp_rng_init(&r, seed, CP_RNG_TEST, 0, 0);
        for (int t = 0; t < ROUNDS; t++) {
            draw_forecast(&f, cluster, &w, &r);
            bool clipped;
            double before = lyapunov(&q, &w), bound = drift_bound(&q, &w, &f, &clipped);
            cp_queues_advance(&q, &w, &f);
            double drift = lyapunov(&q, &w) - before;
            assert_true(drift <= bound + 1e-9 * (1 + fabs(bound)));
            if (!clipped) {
                assert_true(fabs(drift - bound) <= 1e-9 * (1 + before));
                equal++;
            } else {
                below++;
            }
            gamma_sum += f.gamma;
            assert_true(q.convergence >= 0);
            for (int c = 0; c < 2; c++) {
                for (int node = 0; node <= w.cluster[c].n_devices; node++) {
                    double b = budget(&w, c, node);
                    e_sum[c][node] += b > 0 ? f.cluster[c].energy_j[node] / b : 0;
                    assert_true(q.energy[c][node] >= 0 && isfinite(q.energy[c][node]));
                    /* on every path, at every time */
                    assert_true(e_sum[c][node] <= (t + 1) + q.energy[c][node] + 1e-9);
                }
            }
            assert_true(gamma_sum <= (t + 1) + q.convergence - y0 + 1e-9);
        }
        assert_true(q.energy[1][1] == 0);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    assert_true(equal > 100 && below > 100);
}

/* Y_0 makes the rule of section 11.3 choose M_ref for GPipe-uniform on mean channels. */
static void first_backlog_gives_m_ref(void **state)
{
    (void)state;
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 0.1};
    struct cp_world w;
    struct cp_queues q;
    toy_world(&w, 3, 4, 12, 9);
    cp_channel_draw(&w, &ch, 9, true);
    assert_int_equal(cp_queues_init(&q, &w, 10), CP_OK);
    double maxima = 0, slowest = 0, broadcast = 0;
    for (int c = 0; c < 3; c++) {
        struct cp_cluster_plan p;
        struct cp_cluster_forecast f;
        assert_int_equal(cp_draft_uniform(&w, c, &p), CP_OK);
        p.order = CP_ORDER_GPIPE;
        cp_plan_set_slots(&p);
        cp_draft_radio(&p, &w, c);
        cp_cluster_forecast_make(&p, c, &w, &f);
        maxima += cp_times_max_fwd_s(&f.times) + cp_times_max_bwd_s(&f.times);
        slowest = fmax(slowest, f.round_s);
        broadcast = fmax(broadcast, cp_broadcast_s(&p, c, &w));
    }
    assert_true(near_rel(q.v, 10 / (broadcast + slowest), 1e-12));
    /* At V/C of the mean bottleneck: sqrt(Y~ / B_1) = M_ref. */
    double slope = w.local_steps * q.v / 3 * maxima / 3;
    assert_true(near_rel(sqrt(cp_queues_micro_price(&q, &w, 0) / slope), w.micro_ref, 1e-9));
    for (int c = 0; c < 3; c++) {
        for (int node = 0; node <= 4; node++) {
            assert_true(q.energy[c][node] == 0);
            assert_true(cp_queues_price(&q, &w, c, node) == 0);
        }
    }
    q.energy[1][2] = 6;
    assert_true(
        near_rel(cp_queues_price(&q, &w, 1, 2), 6 / w.cluster[1].device[1].budget_j, 1e-12));
    w.cluster[1].device[1].budget_j = 0;
    assert_true(cp_queues_price(&q, &w, 1, 2) == 0);
    assert_true(cp_queues_price(NULL, &w, 1, 1) == 0 && cp_queues_v(NULL) == 1);
    cp_queues_fini(&q);
    cp_world_fini(&w);
}

static void refusals(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_queues q = {.convergence = 3};
    toy_world(&w, 2, 2, 4, 9);
    assert_int_equal(cp_queues_init(&q, &w, -1), CP_E_CONFIG);
    assert_int_equal(cp_queues_init(&q, &w, NAN), CP_E_CONFIG);
    cp_mem_fail_at(1);
    assert_int_equal(cp_queues_init(&q, &w, 10), CP_E_NOMEM);
    w.cluster[0].device[0].present = w.cluster[0].device[1].present = false;
    assert_int_equal(cp_queues_init(&q, &w, 10), CP_E_PLAN);
    assert_true(q.convergence == 3);
    w.cluster[0].device[0].present = true;
    w.cluster[0].device[0].mem_bytes = 1; /* the reference needs no memory */
    assert_int_equal(cp_queues_init(&q, &w, 10), CP_OK);
    cp_queues_fini(&q);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slot_inequality_and_path_bound),
        cmocka_unit_test(first_backlog_gives_m_ref),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
