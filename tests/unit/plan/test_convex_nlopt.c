/*
 * The convex solvers against two algorithms of NLopt (docs/theory.md section 16, items 11 and 12).
 * Every maximum is written as a variable above its arguments, so that all functions are smooth and
 * all constraints inequalities. Nlopt's answers are made feasible and valued by the same formula.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "unit/plan/convex.h"

#include <nlopt.h>
#include <string.h>

enum { LINKS = 6, CLUSTERS = 4, VARS = 3 * CLUSTERS + 1, CONS = 3 * CLUSTERS + 1 };

/* What NLopt is asked to do: n variables, m constraints g(z) <= 0. */
struct task {
    const void *problem;
    int n, m;
    double (*goal)(const struct task *t, const double *z, double *grad);
    /* grad: m rows of n, zeroed */
    void (*limits)(const struct task *t, const double *z, double *g, double *grad);
    double low[VARS], high[VARS], start[VARS];
    double scale; /* of the goal */
};

static double call_goal(unsigned n, const double *z, double *grad, void *arg)
{
    const struct task *t = arg;
    double buf[VARS] = {0}, value = t->goal(t, z, buf) / t->scale;
    for (unsigned i = 0; grad && i < n; i++) {
        grad[i] = buf[i] / t->scale;
    }
    return value;
}

static void call_limits(unsigned m, double *g, unsigned n, const double *z, double *grad, void *arg)
{
    const struct task *t = arg;
    double buf[CONS * VARS] = {0};
    t->limits(t, z, g, buf);
    if (grad) {
        memcpy(grad, buf, (size_t)m * n * sizeof *grad);
    }
}

static void ask(const struct task *t, nlopt_algorithm algorithm, double *z)
{
    double tolerance[CONS], value;
    nlopt_opt opt = nlopt_create(algorithm, (unsigned)t->n);
    assert_non_null(opt);
    for (int i = 0; i < t->m; i++) {
        tolerance[i] = 1e-10;
    }
    nlopt_set_min_objective(opt, call_goal, (void *)t);
    nlopt_add_inequality_mconstraint(opt, (unsigned)t->m, call_limits, (void *)t, tolerance);
    nlopt_set_lower_bounds(opt, t->low);
    nlopt_set_upper_bounds(opt, t->high);
    nlopt_set_xtol_rel(opt, 1e-9);
    nlopt_set_maxeval(opt, algorithm == NLOPT_LN_COBYLA ? 2000 : 100);
    memcpy(z, t->start, (size_t)t->n * sizeof *z);
    nlopt_optimize(opt, z, &value); /* whatever it says, its last point is valued */
    nlopt_destroy(opt);
}

/* How our value compares with both. */
struct score {
    int cases, worse[2], both_worse;
    double behind; /* our greatest excess over the better one, relative */
};

static void count(struct score *s, double ours, const double theirs[2])
{
    double best = fmin(theirs[0], theirs[1]);
    s->cases++;
    for (int i = 0; i < 2; i++) {
        s->worse[i] += !(theirs[i] <= ours * (1 + 1e-6));
    }
    s->both_worse += !(best <= ours * (1 + 1e-6));
    s->behind = fmax(s->behind, (ours - best) / ours);
    if (!(ours <= best * (1 + 1e-6))) {
        fail_msg("case %d: %.12g, but NLopt found %.12g", s->cases, ours, best);
    }
}

/* One of them must be near our value in most cases, or the comparison says nothing. */
static void conclude(const char *what, const struct score *s)
{
    print_message("%s: %d cases; worse than ours by more than 1e-6: the first %d, the second %d, "
                  "both %d; ours at most %.1e behind\n",
                  what, s->cases, s->worse[0], s->worse[1], s->both_worse, s->behind);
    assert_true(s->cases >= 200 && s->both_worse < s->cases / 4);
}

static const nlopt_algorithm FIRST = NLOPT_LD_SLSQP, SECOND = NLOPT_LD_MMA;
static const nlopt_algorithm SECOND_OF_SHARES = NLOPT_LN_COBYLA; /* MMA takes seconds there */

/* Sum 1, nothing at or below 0. */
static void make_shares(const double *z, int n, double *share)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += share[i] = fmax(z[i], 1e-9);
    }
    for (int i = 0; i < n; i++) {
        share[i] /= sum;
    }
}

static double fall(struct cp_air a, double x)
{
    double r = rate(a.snr, x);
    return -a.unit_s * rate_slope(a.snr, x) / (r * r);
}

/* --- bandwidth: x_1..x_n, theta in units of start[n] -------------------------------------------
 */

static double band_goal(const struct task *t, const double *z, double *grad)
{
    const struct cp_band *b = t->problem;
    double sum = b->peak * z[b->n];
    grad[b->n] = b->peak;
    for (int j = 0; j < b->n; j++) {
        sum += b->cost[j] * b->link[j].unit_s / rate(b->link[j].snr, z[j]);
        grad[j] = b->cost[j] * fall(b->link[j], z[j]);
    }
    return sum;
}

static void band_limits(const struct task *t, const double *z, double *g, double *grad)
{
    const struct cp_band *b = t->problem;
    int n = b->n;
    g[n] = -1;
    for (int j = 0; j < n; j++) {
        g[j] = b->link[j].unit_s / rate(b->link[j].snr, z[j]) - z[n];
        grad[j * t->n + j] = fall(b->link[j], z[j]);
        grad[j * t->n + n] = -1;
        g[n] += z[j];
        grad[n * t->n + j] = 1;
    }
}

static void bandwidth_is_not_beaten(void **state)
{
    (void)state;
    struct cp_rng r;
    struct score score = {0};
    cp_rng_init(&r, 21, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        struct cp_band b;
        struct cp_band_result ours;
        double z[VARS], x[LINKS], theirs[2];
        band_draw(&r, 1 + i % LINKS, &b);
        struct task t = {&b, b.n + 1, b.n + 1, band_goal, band_limits, {0}, {0}, {0}, 1};
        t.low[b.n] = t.start[b.n] = b.floor_s;
        t.high[b.n] = INFINITY;
        for (int j = 0; j < b.n; j++) {
            t.low[j] = 1e-6;
            t.high[j] = 1;
            t.start[j] = 1.0 / b.n;
            t.start[b.n] = fmax(t.start[b.n], b.link[j].unit_s / rate(b.link[j].snr, t.start[j]));
        }
        t.scale = band_value(&b, t.start);
        cp_band_solve(&b, &ours);
        for (int k = 0; k < 2; k++) {
            ask(&t, k == 0 ? FIRST : SECOND, z);
            make_shares(z, b.n, x);
            theirs[k] = band_value(&b, x);
        }
        count(&score, ours.value, theirs);
    }
    conclude("bandwidth", &score);
}

/* --- power: t_1..t_n, theta --------------------------------------------------------------------
 */

static double power_of(const struct cp_power_link *l, double t)
{
    return expm1(l->bits * M_LN2 / l->band_hz / t) / l->snr_w;
}

static double power_goal(const struct task *t, const double *z, double *grad)
{
    const struct cp_power *p = t->problem;
    double sum = p->peak * z[p->n];
    grad[p->n] = p->peak;
    for (int j = 0; j < p->n; j++) {
        const struct cp_power_link *l = &p->link[j];
        double u = l->bits * M_LN2 / l->band_hz / z[j];
        sum += (p->weight + l->price * power_of(l, z[j])) * z[j];
        grad[j] = p->weight - l->price * ((u - 1) * exp(u) + 1) / l->snr_w;
    }
    return sum;
}

static void power_limits(const struct task *t, const double *z, double *g, double *grad)
{
    for (int j = 0; j + 1 < t->n; j++) {
        g[j] = z[j] - z[t->n - 1];
        grad[j * t->n + j] = 1;
        grad[j * t->n + t->n - 1] = -1;
    }
}

static void power_is_not_beaten(void **state)
{
    (void)state;
    struct cp_rng r;
    struct score score = {0};
    cp_rng_init(&r, 22, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        struct cp_power_link l[LINKS];
        struct cp_power p;
        struct cp_power_result ours;
        double z[VARS], power[LINKS], theirs[2];
        power_draw(&r, 1 + i % LINKS, l, &p);
        struct task t = {&p, p.n + 1, p.n, power_goal, power_limits, {0}, {0}, {0}, 1};
        t.low[p.n] = t.start[p.n] = p.floor_s;
        t.high[p.n] = INFINITY;
        for (int j = 0; j < p.n; j++) {
            t.low[j] = power_time(&l[j], l[j].max_w);
            t.high[j] = power_time(&l[j], l[j].min_w);
            t.start[j] = sqrt(t.low[j] * t.high[j]);
            t.start[p.n] = fmax(t.start[p.n], t.start[j]);
        }
        double ignored[VARS];
        t.scale = power_goal(&t, t.start, ignored);
        cp_power_solve(&p, &ours);
        for (int k = 0; k < 2; k++) {
            ask(&t, k == 0 ? FIRST : SECOND, z);
            for (int j = 0; j < p.n; j++) {
                power[j] = fmax(l[j].min_w, fmin(l[j].max_w, power_of(&l[j], z[j])));
            }
            theirs[k] = power_value(&p, power);
        }
        count(&score, ours.value, theirs);
    }
    conclude("power", &score);
}

/* --- shares: y_1..y_n, m^F_1..m^F_n, m^B_1..m^B_n, theta ----------------------------------------
 */

static double share_goal(const struct task *t, const double *z, double *grad)
{
    const struct cp_share *p = t->problem;
    double sum = p->peak * z[3 * p->n];
    grad[3 * p->n] = p->peak;
    for (int i = 0; i < p->n; i++) {
        const struct cp_share_cluster *c = &p->cluster[i];
        sum += c->up_cost * c->up.unit_s / rate(c->up.snr, z[i]);
        sum += c->model_cost * c->model.unit_s / rate(c->model.snr, z[i]);
        grad[i] = c->up_cost * fall(c->up, z[i]) + c->model_cost * fall(c->model, z[i]);
    }
    return sum;
}

static void share_limits(const struct task *t, const double *z, double *g, double *grad)
{
    const struct cp_share *p = t->problem;
    int n = p->n;
    g[3 * n] = -1;
    for (int i = 0; i < n; i++) {
        const struct cp_share_cluster *c = &p->cluster[i];
        double up = c->up.unit_s / rate(c->up.snr, z[i]), down = c->down_s / z[i];
        double model = c->model.unit_s / rate(c->model.snr, z[i]);
        double up_fall = fall(c->up, z[i]), down_fall = -down / z[i];
        double *row = grad + (size_t)i * (size_t)t->n;
        g[i] = c->fixed_s + c->up_runs * up + c->up_peaks * z[n + i] + c->down_runs * down +
               c->down_peaks * z[2 * n + i] + model - z[3 * n];
        row[i] = c->up_runs * up_fall + c->down_runs * down_fall + fall(c->model, z[i]);
        row[n + i] = c->up_peaks;
        row[2 * n + i] = c->down_peaks;
        row[3 * n] = -1;
        g[n + i] = up - z[n + i];
        grad[(n + i) * t->n + i] = up_fall;
        grad[(n + i) * t->n + n + i] = -1;
        g[2 * n + i] = down - z[2 * n + i];
        grad[(2 * n + i) * t->n + i] = down_fall;
        grad[(2 * n + i) * t->n + 2 * n + i] = -1;
        g[3 * n] += z[i];
        grad[3 * n * t->n + i] = 1;
    }
}

static void shares_are_not_beaten(void **state)
{
    (void)state;
    struct cp_rng r;
    struct score score = {0};
    cp_rng_init(&r, 23, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 240; i++) {
        struct cp_share_cluster c[CLUSTERS];
        struct cp_share_work work[CLUSTERS];
        struct cp_share_out ours[CLUSTERS];
        struct cp_share_result result;
        struct cp_share p = {.n = 1 + i % CLUSTERS, .cluster = c};
        int n = p.n;
        double z[VARS], y[CLUSTERS], theirs[2];
        struct task t = {&p, 3 * n + 1, 3 * n + 1, share_goal, share_limits, {0}, {0}, {0}, 1};
        p.peak = log_range(&r, 1e-3, 1);
        t.high[3 * n] = INFINITY;
        for (int k = 0; k < n; k++) {
            share_draw(&r, i & 4, i & 8, &c[k]);
            t.low[k] = 1e-6;
            t.high[k] = 1;
            t.start[k] = 1.0 / n;
            t.low[n + k] = c[k].up_floor_s;
            t.low[2 * n + k] = c[k].down_floor_s;
            t.high[n + k] = t.high[2 * n + k] = INFINITY;
            t.start[n + k] = fmax(c[k].up_floor_s, c[k].up.unit_s / rate(c[k].up.snr, 1.0 / n));
            t.start[2 * n + k] = fmax(c[k].down_floor_s, c[k].down_s * n);
            t.start[3 * n] = fmax(t.start[3 * n], cp_share_time_s(&c[k], 1.0 / n));
        }
        t.scale = share_value(&p, t.start);
        cp_share_solve(&p, work, ours, &result);
        for (int k = 0; k < 2; k++) {
            ask(&t, k == 0 ? FIRST : SECOND_OF_SHARES, z);
            make_shares(z, n, y);
            theirs[k] = share_value(&p, y);
        }
        count(&score, result.value, theirs);
    }
    conclude("shares", &score);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bandwidth_is_not_beaten),
        cmocka_unit_test(power_is_not_beaten),
        cmocka_unit_test(shares_are_not_beaten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
