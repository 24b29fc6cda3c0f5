/*
 * The method of section 11.6 (ii), turned so that one root remains. Everything is a function of
 * w = 1 / y (see plan/air.h).
 *
 * KKT: with theta the longest time, v_c the multipliers of T_c <= theta (their sum is peak) and
 * lambda that of the shares, E_c'(w) w^2 = lambda where theta does not bind, and
 * v_c = (lambda - E_c' w^2) / (T_c' w^2) > 0 where T_c(w) = theta. So for a given theta
 *   - T_c(w) = theta gives each cluster's least share (cp_share_reach),
 *   - sum v_c = peak gives lambda at once, as that sum is piecewise linear (balance),
 *   - lambda gives the shares of the others, and the sum of all shares, which falls with theta:
 *     theta is where it is 1. Its reciprocal is almost straight, so Newton takes few steps.
 * A bottleneck max(m_0, t) kinks T_c; there v_c may be anything between two slopes and the sum of
 * shares jumps. Optima lie at kinks now and then, so kinks are tried themselves, from both sides,
 * and the multipliers are taken between the two.
 *
 * Without a ceiling, and at a given one, lambda is the root of a sum that is almost straight in
 * logarithms: E_c' w^2 goes as w^1.8 to w^2 (level).
 */
#include "plan/share_impl.h"

#include <assert.h>
#include <float.h>

enum {
    THETA_STEPS = 500, /* 10 are usual; what is found by then is still feasible */
    LEVEL_STEPS = 60,  /* 4 are usual */
};
static const double SUM_LAST = 1e-12;

struct solver {
    const struct cp_share *p;
    struct cp_share_work *k; /* per cluster */
    double most_w;           /* of the least share */
    double floor_s;          /* less the common time, as all times here */
    bool above_floor;        /* theta > floor_s, so that sum v_c = peak */
    double lambda;
    double sum, newton_s; /* of balance: sum of shares, and where theta should go */
};

/* --- given lambda ---------------------------------------------------------------------------- */

/* The sum of shares at a lambda, as the last looks tell it, and what can change of it. */
static double predict_sum(const struct solver *x, double log_lambda, double *slope)
{
    double sum = 0;
    *slope = 0;
    for (int c = 0; c < x->p->n; c++) {
        const struct cp_share_work *k = &x->k[c];
        double y = 0, least = 1 / k->cap_w;
        if (cp_share_priced(&x->p->cluster[c])) {
            y = fmin(1, exp((k->free_log - log_lambda) / k->free_bend) / k->free_w);
        }
        if (y > least) {
            *slope += y / k->free_bend;
        }
        sum += fmax(y, least);
    }
    return sum;
}

/* The lambda at which the looks promise a sum of 1. ln sum is convex and falls with ln lambda. */
static double predict_log_lambda(struct solver *x)
{
    double first = -INFINITY, slope; /* where the first cluster would take everything */
    for (int c = 0; c < x->p->n; c++) {
        if (cp_share_priced(&x->p->cluster[c])) {
            const struct cp_share_work *k = &x->k[c];
            first = fmax(first, k->free_log - k->free_bend * log(k->free_w));
        }
    }
    double log_lambda = first;
    for (int i = 0; i < CP_SHARE_ROOT_STEPS; i++) {
        double over = log(predict_sum(x, log_lambda, &slope));
        if (!(slope > 0) || fabs(over) <= 1e-13) {
            break;
        }
        log_lambda = fmax(first, log_lambda + over * exp(over) / slope);
    }
    return log_lambda;
}

/*
 * Shares that are at least 1 / cap_w and otherwise have one lambda; their sum is 1. False if there
 * is nothing to choose: nobody has a price, or the least shares fill the band.
 */
static bool level(struct solver *x)
{
    double least = 0;
    bool any = false;
    for (int c = 0; c < x->p->n; c++) {
        struct cp_share_work *k = &x->k[c];
        least += 1 / k->cap_w;
        if (cp_share_priced(&x->p->cluster[c])) {
            any = true;
            if (k->free_w > k->cap_w) {
                cp_share_set_free(&x->p->cluster[c], k, k->cap_w);
            }
        }
    }
    x->lambda = 0;
    if (!any || least >= 1) {
        return false;
    }
    double log_lambda = 0, move = INFINITY;
    for (int i = 0; i < LEVEL_STEPS && move > CP_SHARE_STEP_LAST; i++) {
        log_lambda = predict_log_lambda(x);
        move = 0;
        for (int c = 0; c < x->p->n; c++) {
            struct cp_share_work *k = &x->k[c];
            if (cp_share_priced(&x->p->cluster[c])) {
                double w = k->free_w * exp((log_lambda - k->free_log) / k->free_bend);
                w = fmax(1, fmin(k->cap_w, w));
                move = fmax(move, fabs(w - k->free_w) / w);
                if (w != k->free_w) {
                    cp_share_set_free(&x->p->cluster[c], k, w);
                }
            }
        }
    }
    x->lambda = exp(log_lambda);
    return true;
}

/* --- given theta ----------------------------------------------------------------------------- */

/* lambda from sum v_c = peak; all reach() have been done. The sum over a set of clusters is a line
 * below the true one, so its root is above lambda: leave out who would pay less than nothing. */
static void set_lambda(struct solver *x)
{
    bool changed = true;
    while (changed) {
        double top = x->p->peak, bottom = 0;
        for (int c = 0; c < x->p->n; c++) {
            const struct cp_share_work *k = &x->k[c];
            if (k->held) {
                top += k->cap_cost / k->cap_time;
                bottom += 1 / (k->cap_time * k->cap_w * k->cap_w);
            }
        }
        x->lambda = top / bottom;
        changed = false;
        for (int c = 0; c < x->p->n; c++) {
            struct cp_share_work *k = &x->k[c];
            if (k->held && k->cap_cost * k->cap_w * k->cap_w > x->lambda * (1 + 8 * DBL_EPSILON)) {
                k->held = false;
                changed = true;
            }
        }
    }
}

static double weight_at(const struct cp_share_work *k, double lambda)
{
    double v = lambda / (k->cap_time * k->cap_w * k->cap_w) - k->cap_cost / k->cap_time;
    return k->held ? fmax(0, v) : 0;
}

/* The sum of shares with theta as the longest time, on one side of a kink. */
static void balance(struct solver *x, double theta_s, bool longer)
{
    double bottom = 0, turn = 0;
    for (int c = 0; c < x->p->n; c++) {
        struct cp_share_work *k = &x->k[c];
        k->held = k->most_s > theta_s;
        if (longer && k->held && (k->kink_s[0] == theta_s || k->kink_s[1] == theta_s)) {
            cp_share_set_cap(&x->p->cluster[c], k, k->cap_w, theta_s, true);
        }
    }
    set_lambda(x);
    double sum = 0, slope = 0, free_slope = 0, log_lambda = log(x->lambda);
    for (int c = 0; c < x->p->n; c++) {
        struct cp_share_work *k = &x->k[c];
        if (k->held) {
            double each = 1 / (k->cap_time * k->cap_w * k->cap_w);
            bottom += each;
            /* d lambda / d theta, from sum v_c = peak */
            turn += (k->cap_cost * (2 + k->cap_cost_bend) / k->cap_time +
                     weight_at(k, x->lambda) * (2 + k->cap_time_bend)) /
                    (k->cap_w * k->cap_time);
            sum += 1 / k->cap_w;
            slope -= each;
        } else if (cp_share_priced(&x->p->cluster[c])) {
            cp_share_set_price(&x->p->cluster[c], k, x->most_w, log_lambda);
            sum += 1 / k->free_w;
            free_slope -= k->free_w < x->most_w ? 1 / (k->free_w * k->free_bend) : 0;
        } else {
            sum += 1 / k->cap_w;
        }
    }
    slope += free_slope / x->lambda * (turn / bottom);
    x->sum = sum;
    x->newton_s = theta_s - sum * (sum - 1) / slope;
}

/* --- theta ----------------------------------------------------------------------------------- */

struct search {
    double lo, hi;   /* theta: too short; long enough */
    double target_s; /* where theta should be */
    bool smooth;     /* the sum is 1 at the last look */
};

/* Whether theta is a kink of some cluster. */
static bool place(struct solver *x, double theta_s)
{
    bool kink = false;
    for (int c = 0; c < x->p->n; c++) {
        cp_share_reach(&x->p->cluster[c], &x->k[c], x->most_w, theta_s);
        kink |= x->k[c].kink_s[0] == theta_s || x->k[c].kink_s[1] == theta_s;
    }
    return kink;
}

/* One look from one side: theta becomes lo or hi. */
static void narrow(struct solver *x, struct search *s, double theta_s, bool longer)
{
    balance(x, theta_s, longer);
    *(x->sum <= 1 ? &s->hi : &s->lo) = theta_s;
    s->smooth = fabs(x->sum - 1) <= SUM_LAST;
    s->target_s = x->newton_s;
}

/* The next theta: the target, or the kink nearest to it on the way there from theta. */
static double next_theta(const struct solver *x, const struct search *s, double theta, bool halve)
{
    double target = s->target_s, from = theta;
    if (halve || !(target > s->lo && target < s->hi)) {
        bool far = s->lo > 0 && s->hi > 4 * s->lo;
        target = far ? sqrt(s->lo) * sqrt(s->hi) : s->lo + (s->hi - s->lo) / 2;
        from = target < theta ? s->hi : s->lo;
    }
    double best = target, distance = INFINITY;
    for (int c = 0; c < x->p->n; c++) {
        for (int i = 0; i < 2; i++) {
            double kink = x->k[c].kink_s[i], away = fabs(kink - target);
            if (away < distance && kink > fmin(from, target) && kink < fmax(from, target)) {
                distance = away;
                best = kink;
            }
        }
    }
    return best;
}

/* Ends smooth, or with nothing between lo and hi. */
static void search_theta(struct solver *x, struct search *s)
{
    double theta = s->hi;
    for (int i = 1; i <= THETA_STEPS; i++) {
        bool kink = place(x, theta);
        narrow(x, s, theta, false);
        if (!s->smooth && kink && x->sum > 1) {
            narrow(x, s, theta, true);
        }
        if (s->smooth || s->hi - s->lo <= 4 * DBL_EPSILON * s->hi) {
            break;
        }
        theta = next_theta(x, s, theta, i % 8 == 0);
        if (!(theta > s->lo && theta < s->hi)) {
            break;
        }
    }
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Shares, and weights at x->lambda. */
static void set_out(struct solver *x, struct cp_share_out *out)
{
    for (int c = 0; c < x->p->n; c++) {
        const struct cp_share_work *k = &x->k[c];
        bool cap = k->held || !cp_share_priced(&x->p->cluster[c]);
        out[c].share = 1 / (cap ? k->cap_w : k->free_w);
        out[c].weight = weight_at(k, x->lambda);
    }
}

/* The same where lambda comes from the shares at a given theta instead of sum v_c = peak. */
static bool set_out_at(struct solver *x, double theta_s, struct cp_share_out *out)
{
    if (!level(x)) {
        return false;
    }
    for (int c = 0; c < x->p->n; c++) {
        struct cp_share_work *k = &x->k[c];
        double lambda = x->lambda;
        k->held = k->most_s > theta_s && !(k->cap_cost * k->cap_w * k->cap_w > lambda);
    }
    set_out(x, out);
    return true;
}

/*
 * At theta = s->hi, where the sum of shares jumps over 1: clusters that have a kink there take what
 * the others leave of peak. Without one, theta is as good as doubles can tell.
 */
static void settle(struct solver *x, double theta_s, struct cp_share_out *out)
{
    place(x, theta_s);
    if (!set_out_at(x, theta_s, out)) {
        balance(x, theta_s, true);
        set_out(x, out);
        return;
    }
    double sum = 0, slack = 0;
    for (int c = 0; c < x->p->n; c++) {
        struct cp_share_work *k = &x->k[c];
        k->slack = 0;
        if (k->held && (k->kink_s[0] == theta_s || k->kink_s[1] == theta_s)) {
            k->slack = out[c].weight;
            cp_share_set_cap(&x->p->cluster[c], k, k->cap_w, theta_s, true);
            out[c].weight = weight_at(k, x->lambda);
            k->slack -= out[c].weight;
        }
        sum += out[c].weight;
        slack += k->slack;
    }
    double part = slack > 0 ? fmax(0, fmin(1, (x->p->peak - sum) / slack)) : 0;
    double scale = x->p->peak / (sum + part * slack);
    for (int c = 0; c < x->p->n && scale < INFINITY; c++) {
        out[c].weight = (out[c].weight + part * x->k[c].slack) * scale;
    }
}

/* Whether floor_s itself is the best theta: even there the shares do not fill the band. */
static bool stay_at_floor(struct solver *x, struct cp_share_out *out)
{
    place(x, x->floor_s);
    balance(x, x->floor_s, true);
    if (x->sum > 1) {
        return false;
    }
    if (!set_out_at(x, x->floor_s, out)) {
        x->lambda = 0;
        set_out(x, out);
    }
    return true;
}

static void solve_ceiling(struct solver *x, double lo, double hi, struct cp_share_out *out)
{
    for (int c = 0; c < x->p->n; c++) {
        x->k[c].cap_w = 1 / out[c].share;
        x->k[c].cap_time = 0;
    }
    x->above_floor = lo > x->floor_s || !stay_at_floor(x, out);
    if (!x->above_floor) {
        return;
    }
    struct search s = {.lo = lo, .hi = hi};
    search_theta(x, &s);
    if (s.smooth) {
        set_out(x, out);
    } else {
        settle(x, s.hi, out);
    }
}

/* Without a ceiling: shares and lambda; equal shares if nobody has a price. Returns max T_c. */
static double solve_free(struct solver *x, struct cp_share_out *out)
{
    int n = x->p->n;
    double longest = -INFINITY;
    for (int c = 0; c < n; c++) {
        x->k[c].cap_w = x->most_w;
        if (cp_share_priced(&x->p->cluster[c])) {
            cp_share_set_free(&x->p->cluster[c], &x->k[c], n);
        }
    }
    bool any = level(x);
    for (int c = 0; c < n; c++) {
        const struct cp_share_work *k = &x->k[c];
        double w = cp_share_priced(&x->p->cluster[c]) ? k->free_w : k->cap_w;
        out[c] = (struct cp_share_out){.share = any ? 1 / w : 1.0 / n};
        longest = fmax(longest, k->base_s + cp_share_added_s(&x->p->cluster[c], 1 / out[c].share));
    }
    return longest;
}

/* One cluster, or a longest time that no share changes within rounding: the ceiling costs nothing,
 * and the longest cluster has all the weight. */
static void set_rigid(struct solver *x, struct cp_share_out *out, double theta_s)
{
    for (int c = 0; c < x->p->n; c++) {
        struct cp_share_work *k = &x->k[c];
        double w = 1 / out[c].share;
        if (k->base_s + cp_share_added_s(&x->p->cluster[c], w) == theta_s) {
            cp_share_set_cap(&x->p->cluster[c], k, w, theta_s, false);
            out[c].weight = x->p->peak;
            x->lambda = (x->p->peak * k->cap_time + k->cap_cost) * w * w;
            break;
        }
    }
    x->above_floor = true;
}

/* Sum 1, times, value; and sum v_c = peak to rounding where it must be. */
static void finish(const struct solver *x, struct cp_share_out *out, struct cp_share_result *r)
{
    const struct cp_share *p = x->p;
    double sum = 0, cost = 0, weights = 0;
    int slowest = 0;
    for (int c = 0; c < p->n; c++) {
        sum += out[c].share;
        weights += out[c].weight;
    }
    r->peak_s = p->floor_s;
    for (int c = 0; c < p->n; c++) {
        out[c].share /= sum;
        out[c].time_s = cp_share_time_s(&p->cluster[c], out[c].share);
        r->peak_s = fmax(r->peak_s, out[c].time_s);
        cost += cp_share_cost(&p->cluster[c], out[c].share);
        slowest = out[c].time_s > out[slowest].time_s ? c : slowest;
    }
    double scale = x->above_floor ? p->peak / weights : fmin(1, p->peak / weights);
    bool drowned = !(weights > 0 && weights < INFINITY && scale < INFINITY); /* by prices */
    for (int c = 0; c < p->n; c++) {
        out[c].weight = drowned ? 0 : out[c].weight * scale;
    }
    if (drowned && x->above_floor && p->n > 0) {
        out[slowest].weight = p->peak;
    }
    cost += p->peak > 0 ? p->peak * r->peak_s : 0;
    r->value = cost < INFINITY ? cost : INFINITY;
    r->lambda = x->lambda;
}

static void solve_dead(const struct cp_share *p, struct cp_share_out *out,
                       struct cp_share_result *result)
{
    for (int c = 0; c < p->n; c++) {
        double y = 1.0 / p->n;
        out[c] = (struct cp_share_out){.share = y, .time_s = cp_share_time_s(&p->cluster[c], y)};
    }
    *result = (struct cp_share_result){INFINITY, INFINITY, INFINITY};
}

void cp_share_solve(const struct cp_share *p, struct cp_share_work *work, struct cp_share_out *out,
                    struct cp_share_result *result)
{
    struct solver x = {.p = p, .k = work, .most_w = fmax(p->n, 1) / CP_SHARE_LEAST};
    double base = 0;
    assert(p->n >= 0);
    for (int c = 0; c < p->n; c++) {
        double still = cp_share_const_s(&p->cluster[c]);
        double alone = still < INFINITY ? cp_share_added_s(&p->cluster[c], 1) : 0;
        work[c] = (struct cp_share_work){.base_s = still, .cap_s = alone};
        base = still + alone <= base ? base : still + alone;
    }
    if (!(base < INFINITY)) {
        solve_dead(p, out, result);
        return;
    }
    double lo = x.floor_s = p->floor_s - base;
    for (int c = 0; c < p->n; c++) {
        work[c].base_s -= base;
        lo = fmax(lo, work[c].base_s + work[c].cap_s);
        cp_share_set_kinks(&p->cluster[c], &work[c], x.most_w);
    }
    double hi = solve_free(&x, out);
    if (p->peak > 0 && hi > lo && hi < INFINITY) {
        solve_ceiling(&x, lo, hi, out);
    } else if (p->peak > 0 && hi > x.floor_s) {
        set_rigid(&x, out, hi);
    }
    finish(&x, out, result);
}
