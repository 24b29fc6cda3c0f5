/*
 * converge: Theorems 1 and 1' on noisy quadratics, where every constant is known (docs/theory.md
 * section 8, section 16 item 8). Clusters have their own curvatures and minima; federated SGD with
 * H local steps and a number of micro-batches that follows the path is run many times, and the
 * mean of |grad F(w^t)|^2 compared with the right side. The fourth test knows the exact covariance.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/converge.h"
#include "unit/plan/worlds.h"

enum { DIM = 5, CLUSTERS = 4 };

/* F_c(w) = 1/2 (w - a_c)' A_c (w - a_c) */
struct quadratic {
    int clusters;
    double a[CLUSTERS][DIM], hess[CLUSTERS][DIM][DIM];
    double variance[CLUSTERS], rho[CLUSTERS];
    double beta;
    double least; /* F* */
};

static void draw_vector(struct cp_rng *r, double scale, double v[DIM])
{
    for (int i = 0; i < DIM; i++) {
        v[i] = scale * cp_rng_normal(r);
    }
}

static double square(const double v[DIM])
{
    double sum = 0;
    for (int i = 0; i < DIM; i++) {
        sum += v[i] * v[i];
    }
    return sum;
}

/* Q diag(e) Q with the reflection Q = I - 2 u u' / u'u: eigenvalues e, in no axis' direction. */
static void draw_hessian(struct cp_rng *r, const double e[DIM], double hess[DIM][DIM])
{
    double u[DIM], q[DIM][DIM];
    draw_vector(r, 1, u);
    for (int i = 0; i < DIM; i++) {
        for (int j = 0; j < DIM; j++) {
            q[i][j] = (i == j) - 2 * u[i] * u[j] / square(u);
        }
    }
    for (int i = 0; i < DIM; i++) {
        for (int j = 0; j < DIM; j++) {
            hess[i][j] = 0;
            for (int k = 0; k < DIM; k++) {
                hess[i][j] += q[i][k] * e[k] * q[k][j];
            }
        }
    }
}

static void gradient_of(const struct quadratic *q, int c, const double w[DIM], double g[DIM])
{
    for (int i = 0; i < DIM; i++) {
        g[i] = 0;
        for (int j = 0; j < DIM; j++) {
            g[i] += q->hess[c][i][j] * (w[j] - q->a[c][j]);
        }
    }
}

/* F, its gradient, and the dissimilarity sum rho |grad F_c - grad F|^2. */
static double evaluate(const struct quadratic *q, const double w[DIM], double g[DIM], double *apart)
{
    double value = 0, each = 0, part[DIM];
    memset(g, 0, DIM * sizeof *g);
    for (int c = 0; c < q->clusters; c++) {
        gradient_of(q, c, w, part);
        for (int i = 0; i < DIM; i++) {
            value += q->rho[c] * part[i] * (w[i] - q->a[c][i]) / 2;
            g[i] += q->rho[c] * part[i];
        }
        each += q->rho[c] * square(part);
    }
    *apart = each - square(g);
    return value;
}

/* apart: how far the minima lie from each other; noise: of a sample's gradient. */
static void draw_quadratic(struct quadratic *q, int clusters, double apart, double noise,
                           uint64_t seed)
{
    struct cp_rng r;
    double sum = 0, w[DIM] = {0}, g[DIM], unused;
    cp_rng_init(&r, seed, CP_RNG_TEST, 8, 0);
    *q = (struct quadratic){.clusters = clusters};
    for (int c = 0; c < clusters; c++) {
        double e[DIM];
        for (int i = 0; i < DIM; i++) {
            e[i] = cp_rng_range(&r, 0.05, 2);
            q->beta = fmax(q->beta, e[i]);
        }
        draw_hessian(&r, e, q->hess[c]);
        draw_vector(&r, apart, q->a[c]);
        q->variance[c] = noise * cp_rng_range(&r, 0.3, 3);
        q->rho[c] = cp_rng_range(&r, 0.2, 1);
        sum += q->rho[c];
    }
    for (int c = 0; c < clusters; c++) {
        q->rho[c] /= sum;
    }
    for (int i = 0; i < 20000; i++) { /* to the minimum: the least curvature is 0.05 or so */
        evaluate(q, w, g, &unused);
        for (int k = 0; k < DIM; k++) {
            w[k] -= g[k] / q->beta;
        }
    }
    q->least = evaluate(q, w, g, &unused);
    assert_true(square(g) < 1e-20);
}

struct setting {
    int local_steps, rounds, runs;
    double product; /* eta beta H */
    double error2;  /* delta_S^2 as a share of the first |grad F|^2 */
};

/* M_c of a round: follows the path (A5), and is drawn anew where it does not. */
static int choose_micro(struct cp_rng *r, double norm2, double last_norm2)
{
    int m = 1 + (int)cp_rng_below(r, 8);
    return norm2 > last_norm2 ? m + 8 : m;
}

/* The local steps of one cluster: gradient, noise of M b samples, and an error that shrinks it. */
static void train(const struct quadratic *q, const struct cp_converge *k, int c, int micro,
                  struct cp_rng *r, double w[DIM])
{
    double sd = sqrt(q->variance[c] / (micro * k->micro_samples * DIM));
    for (int h = 0; h < k->local_steps; h++) {
        double g[DIM];
        gradient_of(q, c, w, g);
        for (int i = 0; i < DIM; i++) {
            g[i] += sd * cp_rng_normal(r);
        }
        double left = fmax(0, 1 - sqrt(k->error2 / fmax(square(g), 1e-300)));
        for (int i = 0; i < DIM; i++) {
            w[i] -= k->step * (k->error2 > 0 ? left : 1) * g[i];
        }
    }
}

/* Means over the runs of one setting. */
struct outcome {
    double left; /* mean |grad F(w^t)|^2 */
    struct cp_noise noise;
    double apart; /* the largest dissimilarity at the start of a round: G^2 */
};

static void run_once(const struct quadratic *q, const struct cp_converge *k,
                     const struct setting *s, const double start[DIM], struct cp_rng *r,
                     struct outcome *sum)
{
    double w[DIM], g[DIM], apart, last = INFINITY, share = 1.0 / (s->rounds * s->runs);
    memcpy(w, start, sizeof w);
    for (int t = 0; t < s->rounds; t++) {
        int micro[CLUSTERS];
        double next[DIM] = {0};
        evaluate(q, w, g, &apart);
        sum->apart = fmax(sum->apart, apart);
        sum->left += square(g) * share;
        for (int c = 0; c < q->clusters; c++) {
            double mine[DIM];
            memcpy(mine, w, sizeof mine);
            micro[c] = choose_micro(r, square(g), last);
            train(q, k, c, micro[c], r, mine);
            for (int i = 0; i < DIM; i++) {
                next[i] += q->rho[c] * mine[i];
            }
        }
        struct cp_noise n = cp_converge_noise(k, micro);
        sum->noise.phi += n.phi * share;
        sum->noise.psi += n.psi * share;
        last = square(g);
        memcpy(w, next, sizeof w);
    }
}

/* Left side over right side. */
static double ratio(const struct quadratic *q, const struct setting *s, uint64_t seed,
                    struct cp_bound *b)
{
    struct cp_rng r;
    struct outcome sum = {0};
    double w[DIM], g[DIM], unused;
    cp_rng_init(&r, seed, CP_RNG_TEST, 9, 0);
    draw_vector(&r, 2, w);
    struct cp_converge k = {.beta = q->beta,
                            .step = s->product / (q->beta * s->local_steps),
                            .local_steps = s->local_steps,
                            .micro_samples = 4,
                            .gap = evaluate(q, w, g, &unused) - q->least,
                            .n_clusters = q->clusters,
                            .variance = q->variance,
                            .rho = q->rho};
    k.error2 = s->error2 * square(g);
    for (int i = 0; i < s->runs; i++) {
        run_once(q, &k, s, w, &r, &sum);
    }
    k.dissimilarity2 = sum.apart;
    assert_int_equal(cp_converge_bound(&k, &sum.noise, s->rounds, b), CP_OK);
    assert_true(near_rel(b->total, b->start + b->noise + b->spread + b->drift + b->lossy, 1e-12));
    return sum.left / b->total;
}

static const int LOCAL_STEPS[] = {1, 2, 5, 20, 50};
enum { N_STEPS = sizeof LOCAL_STEPS / sizeof LOCAL_STEPS[0] };

/* Every H, step sizes up to the limit, and three kinds of problems: noise, different data, both;
 * largest[] tells how much of the right side each term was somewhere. */
static void hold_theorem(double limit, double error2, const char *name)
{
    static const double kind[][2] = {{0, 4000}, {2, 0}, {1, 100}}; /* apart, noise */
    static const double share[] = {0.1, 0.5, 1};
    double low = INFINITY, high = 0, largest[4] = {0};
    uint64_t seed = 1;
    int settings = 0;
    for (int h = 0; h < N_STEPS; h++) {
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 3; j++, seed++, settings++) {
                struct quadratic q;
                struct cp_bound b;
                struct setting s = {.local_steps = LOCAL_STEPS[h],
                                    .rounds = 40,
                                    .runs = 8,
                                    .product = limit * share[i],
                                    .error2 = error2};
                draw_quadratic(&q, 1 + (int)(seed % CLUSTERS), kind[j][0], kind[j][1], seed);
                double x = ratio(&q, &s, seed, &b);
                if (!(x <= 1)) {
                    print_error("seed %d: left / right is %g\n", (int)seed, x);
                }
                assert_true(x <= 1);
                low = fmin(low, x);
                high = fmax(high, x);
                const double term[4] = {b.noise, b.spread, b.drift, b.lossy};
                for (int n = 0; n < 4; n++) {
                    largest[n] = fmax(largest[n], term[n] / b.total);
                }
            }
        }
    }
    print_message("%s: %d settings, left / right %.3f to %.3f; largest shares of the right side: "
                  "noise %.2f, spread %.2f, drift %.2f, links %.2f\n",
                  name, settings, low, high, largest[0], largest[1], largest[2], largest[3]);
    assert_true(high > 0.1); /* not a bound that holds because it is far away */
    assert_true(largest[0] > 0.1 && largest[1] > 0.1 && largest[2] > 0.1);
    assert_true(error2 > 0 ? largest[3] > 0.1 : largest[3] == 0);
}

static void theorem_1_holds(void **state)
{
    (void)state;
    hold_theorem(0.4, 0, "Theorem 1");
}

static void theorem_1_with_errors_holds(void **state)
{
    (void)state;
    hold_theorem(0.25, 0.01, "Theorem 1', small error");
    hold_theorem(0.25, 0.2, "Theorem 1', large error");
}

/* --- the noise floor, exactly ------------------------------------------------------------------
 */

/* Diagonal curvatures and one minimum, at 0: every coordinate is an autoregression w' = f w + n
 * with f = sum rho_c d_c^H, d_c = 1 - eta a_c, and n from the H draws of every cluster. */
struct floor_case {
    double curve[2][DIM], rho[2], variance[2], step;
    int local_steps, micro;
};

enum { FLOOR_B = 4 };

static double draw_sd(const struct floor_case *f, int c)
{
    return sqrt(f->variance[c] / (f->micro * FLOOR_B * DIM));
}

/* E|grad F|^2 when the process is stationary. */
static double exact_floor(const struct floor_case *f)
{
    double sum = 0;
    for (int i = 0; i < DIM; i++) {
        double factor = 0, noise = 0, curve = 0;
        for (int c = 0; c < 2; c++) {
            double d = 1 - f->step * f->curve[c][i], draws = 0;
            for (int h = 0; h < f->local_steps; h++) {
                draws += pow(d, 2 * h);
            }
            factor += f->rho[c] * pow(d, f->local_steps);
            noise += pow(f->rho[c] * f->step * draw_sd(f, c), 2) * draws;
            curve += f->rho[c] * f->curve[c][i];
        }
        sum += curve * curve * noise / (1 - factor * factor);
    }
    return sum;
}

/* The same from the process itself, beginning at the minimum. */
static double run_floor(const struct floor_case *f, int rounds, int unheard)
{
    struct cp_rng r;
    double w[DIM] = {0}, sum = 0;
    cp_rng_init(&r, 5, CP_RNG_TEST, 10, 0); /* the same draws for every M */
    for (int t = 0; t < rounds; t++) {
        for (int i = 0; i < DIM; i++) {
            double next = 0, curve = 0;
            for (int c = 0; c < 2; c++) {
                double mine = w[i];
                for (int h = 0; h < f->local_steps; h++) {
                    mine -= f->step * (f->curve[c][i] * mine + draw_sd(f, c) * cp_rng_normal(&r));
                }
                next += f->rho[c] * mine;
                curve += f->rho[c] * f->curve[c][i];
            }
            sum += t >= unheard ? pow(curve * w[i], 2) : 0;
            w[i] = next;
        }
    }
    return sum / (rounds - unheard);
}

static void noise_floor_is_one_over_m(void **state)
{
    (void)state;
    for (int h = 1; h <= 10; h += 3) {
        struct floor_case f = {.curve = {{0.5, 1, 1.5, 2, 0.7}, {0.9, 0.4, 2, 1.1, 1.6}},
                               .rho = {0.7, 0.3},
                               .variance = {9, 4},
                               .step = 0.2 / h,
                               .local_steps = h,
                               .micro = 1};
        double one = exact_floor(&f), ran = run_floor(&f, 20000, 200);
        assert_true(near_rel(ran, one, 0.06));
        struct cp_converge k = {.beta = 2,
                                .step = f.step,
                                .local_steps = h,
                                .micro_samples = FLOOR_B,
                                .n_clusters = 2,
                                .variance = f.variance,
                                .rho = f.rho};
        for (int m = 1; m <= 64; m *= 4) {
            const int micro[2] = {m, m};
            struct cp_noise n = cp_converge_noise(&k, micro);
            struct cp_bound b;
            f.micro = m;
            assert_true(near_rel(exact_floor(&f) * m, one, 1e-12));
            assert_true(near_rel(run_floor(&f, 20000, 200) * m, ran, 1e-9)); /* the path scales */
            assert_int_equal(cp_converge_bound(&k, &n, 1, &b), CP_OK);
            assert_true(exact_floor(&f) <= b.noise + b.spread);
            assert_true(near_rel(b.noise + b.spread,
                                 (cp_converge_alpha(&k, 0) + cp_converge_alpha(&k, 1)) / m, 1e-12));
            if (m == 1) {
                print_message("H %d: floor %.4g exactly, %.4g run, bound %.4g\n", h, one, ran,
                              b.noise + b.spread);
            }
        }
    }
}

/* --- terms, targets, refusals ------------------------------------------------------------------
 */

static const double variances[] = {3, 1, 0}, rhos[] = {0.5, 0.3, 0.2};

static struct cp_converge sample(void)
{
    return (struct cp_converge){.beta = 2,
                                .step = 0.02,
                                .local_steps = 5,
                                .micro_samples = 4,
                                .gap = 10,
                                .dissimilarity2 = 0.7,
                                .n_clusters = 3,
                                .variance = variances,
                                .rho = rhos};
}

static const int eight[] = {8, 4, 2};

static struct cp_bound bound_of(const struct cp_converge *k)
{
    struct cp_bound b;
    struct cp_noise n = cp_converge_noise(k, eight);
    assert_int_equal(cp_converge_bound(k, &n, 100, &b), CP_OK);
    return b;
}

/* Every term against the formula as section 8 has it, and where it vanishes. */
static void terms_are_those_of_section_8(void **state)
{
    (void)state;
    struct cp_converge k = sample();
    double eb = 0.02 * 2, phi = 0.25 * 3 / 32 + 0.09 / 16, psi = 0.5 * 3 / 32 + 0.3 / 16;
    struct cp_bound b = bound_of(&k);
    assert_true(near_rel(b.start, 4 * 10 / (0.02 * 5 * 100), 1e-12));
    assert_true(near_rel(b.noise, 4 * eb * phi, 1e-12));
    assert_true(near_rel(b.spread, 4 * eb * eb * 4 * psi, 1e-12));
    assert_true(near_rel(b.drift, 8.0 / 3 * eb * eb * 4 * 9 * 0.7, 1e-12));
    assert_true(b.lossy == 0);
    k.error2 = 0.5;
    struct cp_bound lossy = bound_of(&k);
    assert_true(lossy.start == b.start && lossy.noise == b.noise);
    assert_true(near_rel(lossy.spread, 3 * b.spread, 1e-12));
    assert_true(near_rel(lossy.drift, 3 * b.drift, 1e-12));
    assert_true(near_rel(lossy.lossy, 4.5 * 0.5, 1e-12));
    k.local_steps = 1;
    b = bound_of(&k);
    assert_true(b.spread == 0 && b.drift == 0 && b.noise > 0);
    k = sample();
    k.dissimilarity2 = 0;
    b = bound_of(&k);
    assert_true(b.drift == 0 && b.spread > 0);
    k.variance = (const double[3]){0};
    b = bound_of(&k);
    assert_true(b.spread == 0 && b.noise == 0 && b.total == b.start);
}

/* Where the terms vanish, so does what they stand for: clusters with the same data and no noise go
 * the way of one gradient descent of H steps a round. */
static void no_drift_without_cause(void **state)
{
    (void)state;
    struct quadratic q;
    double w[DIM] = {3, -2, 1, 4, -1}, alone[DIM], g[DIM], apart;
    draw_quadratic(&q, CLUSTERS, 1, 0, 7);
    for (int c = 1; c < CLUSTERS; c++) {
        memcpy(q.hess[c], q.hess[0], sizeof q.hess[0]);
        memcpy(q.a[c], q.a[0], sizeof q.a[0]);
    }
    memcpy(alone, w, sizeof w);
    struct cp_converge k = {.step = 0.3 / q.beta, .local_steps = 6, .micro_samples = 4};
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 11, 0);
    for (int t = 0; t < 5; t++) {
        double next[DIM] = {0};
        for (int c = 0; c < CLUSTERS; c++) {
            double mine[DIM];
            memcpy(mine, w, sizeof w);
            train(&q, &k, c, 1, &r, mine);
            for (int i = 0; i < DIM; i++) {
                next[i] += q.rho[c] * mine[i];
            }
        }
        memcpy(w, next, sizeof w);
        for (int h = 0; h < 6; h++) {
            evaluate(&q, alone, g, &apart);
            assert_true(fabs(apart) < 1e-12 * (1 + square(g)));
            for (int i = 0; i < DIM; i++) {
                alone[i] -= k.step * g[i];
            }
        }
    }
    for (int i = 0; i < DIM; i++) {
        assert_true(fabs(w[i] - alone[i]) < 1e-12);
    }
}

static void micro_ref_meets_the_target(void **state)
{
    (void)state;
    for (int lossy = 0; lossy < 2; lossy++) {
        struct cp_converge k = sample();
        struct cp_bound rest, b;
        struct cp_noise n = {0};
        k.error2 = lossy * 0.01;
        assert_int_equal(cp_converge_bound(&k, &n, 1000, &rest), CP_OK);
        for (double over = 1e-3; over < 10; over *= 7) {
            double m = -1, target = rest.total + over;
            assert_int_equal(cp_converge_micro_ref(&k, target, 1000, &m), CP_OK);
            n = cp_converge_noise(&k, (const int[]){1, 1, 1});
            n.phi /= m;
            n.psi /= m;
            assert_int_equal(cp_converge_bound(&k, &n, 1000, &b), CP_OK);
            assert_true(near_rel(b.total, target, 1e-12));
        }
        double m = -1;
        assert_int_equal(cp_converge_micro_ref(&k, rest.total, 1000, &m), CP_E_CONFIG);
        assert_non_null(strstr(cp_err_text(), "no number of micro-batches reaches the target"));
        assert_int_equal(cp_converge_micro_ref(&k, NAN, 1000, &m), CP_E_CONFIG);
        assert_int_equal(cp_converge_micro_ref(&k, 1, 0, &m), CP_E_CONFIG);
        assert_true(m == -1);
    }
}

/* What the planner weighs the clusters with is alpha at the largest step that Theorem 1 allows. */
static void planner_uses_alpha(void **state)
{
    (void)state;
    struct cp_world w;
    toy_world(&w, 3, 2, 4, 3);
    double variance[3] = {2, 0.5, 7}, rho[3], data = 0, sum = 0;
    for (int c = 0; c < 3; c++) {
        data += w.cluster[c].data_size;
        w.cluster[c].grad_variance = variance[c];
    }
    cp_world_weigh(&w);
    struct cp_converge k = {.beta = 5,
                            .step = 0.4 / (5 * w.local_steps),
                            .local_steps = w.local_steps,
                            .micro_samples = 4,
                            .n_clusters = 3,
                            .variance = variance,
                            .rho = rho};
    for (int c = 0; c < 3; c++) {
        rho[c] = w.cluster[c].data_size / data;
    }
    for (int c = 0; c < 3; c++) {
        sum += cp_converge_alpha(&k, c);
    }
    for (int c = 0; c < 3; c++) {
        assert_true(near_rel(cp_converge_alpha(&k, c) / sum, w.cluster[c].weight.alpha, 1e-12));
    }
    cp_world_fini(&w);
}

static void refuse(struct cp_converge k, const char *why)
{
    struct cp_bound b = {.total = 3};
    struct cp_noise n = {1, 1};
    assert_int_equal(cp_converge_check(&k), CP_E_CONFIG);
    assert_int_equal(cp_converge_bound(&k, &n, 10, &b), CP_E_CONFIG);
    if (!strstr(cp_err_text(), why)) {
        print_error("'%s' is not in: %s\n", why, cp_err_text());
    }
    assert_non_null(strstr(cp_err_text(), why));
    assert_true(b.total == 3);
}

static void refusals(void **state)
{
    (void)state;
    struct cp_converge k = sample();
    struct cp_bound b = {.total = 3};
    k.step = 0.4 / (2 * 5); /* the limit itself */
    assert_int_equal(cp_converge_check(&k), CP_OK);
    k.step = 0.4001 / (2 * 5);
    refuse(k, "Theorem 1 needs at most 0.4");
    k.error2 = 1e-9;
    k.step = 0.25 / (2 * 5);
    assert_int_equal(cp_converge_check(&k), CP_OK);
    k.step = 0.2501 / (2 * 5);
    refuse(k, "Theorem 1' needs at most 0.25");
    static const double bad[] = {NAN, INFINITY, -1};
    for (int i = 0; i < 3; i++) {
        k = sample(), k.beta = bad[i], refuse(k, "beta");
        k = sample(), k.step = bad[i], refuse(k, "eta");
        k = sample(), k.micro_samples = bad[i], refuse(k, "size b");
        k = sample(), k.gap = bad[i], refuse(k, "gap");
        k = sample(), k.dissimilarity2 = bad[i], refuse(k, "G^2");
        k = sample(), k.error2 = bad[i], refuse(k, "error");
        k = sample(), k.variance = (double[3]){1, bad[i], 1}, refuse(k, "variance");
        k = sample(), k.rho = (double[3]){1, bad[i], 1}, refuse(k, "weight");
        const struct cp_noise phi = {bad[i], 1}, psi = {1, bad[i]};
        k = sample();
        assert_int_equal(cp_converge_bound(&k, &phi, 10, &b), CP_E_CONFIG);
        assert_int_equal(cp_converge_bound(&k, &psi, 10, &b), CP_E_CONFIG);
    }
    k = sample(), k.local_steps = 0, refuse(k, "local steps");
    k = sample(), k.n_clusters = 0, refuse(k, "0 clusters");
    k = sample(), k.rho = (double[3]){0.5, 0.3, 0.3}, refuse(k, "sum to 1.1");
    assert_true(b.total == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(theorem_1_holds),           cmocka_unit_test(theorem_1_with_errors_holds),
        cmocka_unit_test(noise_floor_is_one_over_m), cmocka_unit_test(terms_are_those_of_section_8),
        cmocka_unit_test(no_drift_without_cause),    cmocka_unit_test(micro_ref_meets_the_target),
        cmocka_unit_test(planner_uses_alpha),        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
