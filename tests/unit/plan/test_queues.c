/* Virtual queues: slot inequality and path bounds (docs/theory.md section 16, items 17, 18, 23),
 * and what Theorem 2 promises of them, on a problem whose optimum is known. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/draft.h"
#include "unit/plan/worlds.h"

static const double ENERGY_MOST = 900, GAMMA_MOST = 2.5;

/* A forecast with given energies: only what the queues read. */
static void draw_forecast(struct cp_forecast *f, struct cp_cluster_forecast *cluster,
                          const struct cp_world *w, double gamma_most, struct cp_rng *r)
{
    *f = (struct cp_forecast){.n_clusters = w->n_clusters, .cluster = cluster};
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            cluster[c].energy_j[node] = cp_rng_range(r, 0, ENERGY_MOST);
        }
    }
    f->gamma = cp_rng_range(r, 0.1, gamma_most);
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

static double largest_square(double most)
{
    return fmax(1, (most - 1) * (most - 1));
}

/* The same with B_0 in place of the squares. */
static double coarse_bound(const struct cp_queues *q, const struct cp_world *w,
                           const struct cp_forecast *f)
{
    double sum = largest_square(GAMMA_MOST) / 2 + q->convergence * (f->gamma - 1);
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            double b = budget(w, c, node);
            if (b > 0) {
                sum += largest_square(ENERGY_MOST / b) / 2 +
                       q->energy[c][node] * (f->cluster[c].energy_j[node] / b - 1);
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
        double seen[2][CP_DEVICES_MAX + 1];
        toy_world(&w, 2, 1 + (int)(seed % 3), 4, seed);
        w.cluster[1].device[0].budget_j = 0; /* no limit */
        assert_int_equal(cp_queues_init(&q, &w, 10), CP_OK);
        double y0 = q.convergence = fmin(q.convergence, 3);
        cp_rng_init(&r, seed, CP_RNG_TEST, 0, 0);
        for (int t = 0; t < ROUNDS; t++) {
            draw_forecast(&f, cluster, &w, seed % 2 ? GAMMA_MOST : 1.5, &r);
            bool clipped;
            double before = lyapunov(&q, &w), bound = drift_bound(&q, &w, &f, &clipped);
            struct cp_queues q0 = {.energy = seen, .convergence = q.convergence};
            memcpy(seen, q.energy, sizeof seen);
            cp_queues_advance(&q, &w, &f);
            double drift = lyapunov(&q, &w) - before;
            assert_true(drift <= bound + 1e-9 * (1 + fabs(bound)));
            assert_true(bound <= coarse_bound(&q0, &w, &f) + 1e-9 * (1 + fabs(bound)));
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

/* --- Theorem 2 ------------------------------------------------------------------------------- */

/* A problem with two states of equal chance and four decisions in each: time, energy over budget,
 * gamma. The last decision has slack in both constraints. */
enum { STATES = 2, CHOICES = 4 };
struct choice {
    double time_s, energy, gamma;
};
static const struct choice CHOICE[STATES][CHOICES] = {
    {{1, 2.4, 1.8}, {2, 0.5, 1.6}, {3, 1.1, 0.4}, {7, 0.5, 0.6}},
    {{2, 3.0, 1.5}, {4, 1.4, 1.9}, {5, 0.3, 1.3}, {9, 0.6, 0.5}},
};
static const double SLACK = 0.4, TIME_MOST = 9, TIME_LEAST = 1, ENERGY_TOP = 3, GAMMA_TOP = 1.9;

/* The best of the dual: with prices z and y no policy has a smaller mean of T + z (e - 1) + y
 * (gamma
 * - 1), so none within the constraints a smaller mean of T. */
struct dual {
    double time_s, z, y;
};

static struct dual best_dual(void)
{
    struct dual best = {0};
    for (double z = 0; z < 8; z += 0.02) {
        for (double y = 0; y < 8; y += 0.02) {
            double mean = 0;
            for (int s = 0; s < STATES; s++) {
                double least = INFINITY;
                for (int d = 0; d < CHOICES; d++) {
                    const struct choice *x = &CHOICE[s][d];
                    least = fmin(least, x->time_s + z * (x->energy - 1) + y * (x->gamma - 1));
                }
                mean += least / STATES;
            }
            if (mean > best.time_s) {
                best = (struct dual){mean, z, y};
            }
        }
    }
    return best;
}

/* What P1 takes, or something at most gap worse. */
static const struct choice *choose(const struct cp_queues *q, int state, double gap)
{
    double j[CHOICES], least = INFINITY;
    int worst = 0;
    for (int d = 0; d < CHOICES; d++) {
        const struct choice *x = &CHOICE[state][d];
        j[d] = q->v * x->time_s + q->energy[0][1] * x->energy + q->convergence * x->gamma;
        least = fmin(least, j[d]);
    }
    for (int d = 0; d < CHOICES; d++) {
        if (j[d] <= least + gap && !(j[worst] <= least + gap && j[worst] >= j[d])) {
            worst = d;
        }
    }
    return &CHOICE[state][worst];
}

struct averages {
    double time_s, backlog;
    double energy, gamma; /* over what C1 and C2 allow */
};

/* Means over rounds and paths; C1 and C2 by their path bounds on each path. */
static struct averages run_paths(const struct cp_world *w, double v, double y0, double gap,
                                 int rounds)
{
    enum { PATHS = 200 };
    struct averages mean = {0};
    for (int path = 0; path < PATHS; path++) {
        double energy[1][CP_DEVICES_MAX + 1] = {{0}}, e_sum = 0, gamma_sum = 0;
        struct cp_queues q = {.n_clusters = 1, .energy = energy, .v = v, .convergence = y0};
        struct cp_rng r;
        cp_rng_init(&r, 2, CP_RNG_TEST, 40, (uint32_t)path);
        for (int t = 0; t < rounds; t++) {
            const struct choice *x = choose(&q, (int)cp_rng_below(&r, STATES), gap);
            struct cp_cluster_forecast cluster = {.energy_j = {0, x->energy}};
            struct cp_forecast f = {.n_clusters = 1, .cluster = &cluster, .gamma = x->gamma};
            mean.time_s += x->time_s / (rounds * PATHS);
            mean.backlog += (energy[0][1] + q.convergence) / (rounds * PATHS);
            cp_queues_advance(&q, w, &f);
            e_sum += x->energy;
            gamma_sum += x->gamma;
        }
        mean.energy += (e_sum / rounds - 1) / PATHS;
        mean.gamma += (gamma_sum / rounds - 1) / PATHS;
        assert_true(e_sum <= rounds + energy[0][1] + 1e-9);
        assert_true(gamma_sum <= rounds + q.convergence - y0 + 1e-9);
    }
    return mean;
}

static void what_theorem_2_promises(void **state)
{
    (void)state;
    enum { ROUNDS = 2000 };
    struct cp_world w;
    toy_world(&w, 1, 1, 4, 9);
    w.cluster[0].cu.budget_j = 0;
    w.cluster[0].device[0].budget_j = 1;
    struct dual best = best_dual();
    double last_backlog = 0, b0 = (largest_square(ENERGY_TOP) + largest_square(GAMMA_TOP)) / 2;
    for (double v = 0.5; v < 70; v *= 2) {
        for (int i = 0; i < 4; i++) {
            double y0 = i % 2 * v, gap = i / 2 * 0.5 * v;
            struct averages a = run_paths(&w, v, y0, gap, ROUNDS);
            double late = (b0 + gap) / v + y0 * y0 / (2 * v * ROUNDS);
            assert_true(a.time_s <= best.time_s + late);
            /* what is gained on T* was paid for in constraints (0.02: chance in 200 paths) */
            double sold = best.z * a.energy + best.y * a.gamma;
            assert_true(a.time_s >= best.time_s - sold - 0.02);
            double most = (b0 + gap + v * (TIME_MOST - TIME_LEAST)) / SLACK;
            assert_true(a.backlog <= most + y0 * y0 / (2 * SLACK * ROUNDS));
            if (i == 0) {
                assert_true(a.backlog >= last_backlog);
                assert_true(v < 16 || fabs(a.time_s + sold - best.time_s) < 0.03);
                last_backlog = a.backlog;
                print_message("V %4.1f: mean time %.3f and %.3f sold, T* %.3f, promised %.3f; "
                              "backlog %.1f, promised %.1f\n",
                              v, a.time_s, sold, best.time_s, best.time_s + late, a.backlog, most);
            }
        }
    }
    cp_world_fini(&w);
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
        cmocka_unit_test(what_theorem_2_promises),
        cmocka_unit_test(first_backlog_gives_m_ref),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
