#include "plan/share_impl.h"

#include <float.h>

/* From where t^F counts as the bottleneck, less its least time. */
static double up_gap_s(const struct cp_share_cluster *c)
{
    return fmax(0, c->up_floor_s - cp_air_least_s(c->up));
}

double cp_share_const_s(const struct cp_share_cluster *c)
{
    double up = cp_air_least_s(c->up), model = cp_air_least_s(c->model);
    double t = c->fixed_s + c->up_runs * up + c->up_peaks * fmax(c->up_floor_s, up) +
               c->down_peaks * c->down_floor_s + model;
    return t < INFINITY && up < INFINITY ? t : INFINITY; /* 0 x infinity is no number */
}

double cp_share_added_s(const struct cp_share_cluster *c, double w)
{
    double down = c->down_s * w;
    double t = c->down_runs * down + c->down_peaks * fmax(0, down - c->down_floor_s);
    if (c->up.unit_s > 0) {
        double up = cp_air_look(c->up, w).excess_s;
        t += c->up_runs * up + c->up_peaks * fmax(0, up - up_gap_s(c));
    }
    return c->model.unit_s > 0 ? t + cp_air_look(c->model, w).excess_s : t;
}

double cp_share_time_s(const struct cp_share_cluster *c, double share)
{
    double t = cp_share_const_s(c);
    return t < INFINITY ? t + cp_share_added_s(c, 1 / share) : t;
}

double cp_share_cost(const struct cp_share_cluster *c, double share)
{
    double cost = c->up_cost > 0 ? c->up_cost * cp_air_time_s(c->up, 1 / share) : 0;
    return cost + (c->model_cost > 0 ? c->model_cost * cp_air_time_s(c->model, 1 / share) : 0);
}

bool cp_share_priced(const struct cp_share_cluster *c)
{
    return c->up_cost * c->up.unit_s > 0 || c->model_cost * c->model.unit_s > 0;
}

struct slopes {
    double time_s, time, time_bend; /* T, T', d ln T' / d ln w */
    double cost, cost_bend;         /* E', d ln E' / d ln w */
};

/* above: whether t^F and t^B are their bottlenecks; base_s: T less what is computed here. */
static struct slopes look(const struct cp_share_cluster *c, double base_s, double w, bool above_up,
                          bool above_down)
{
    double runs = c->down_runs + (above_down ? c->down_peaks : 0), down = c->down_s * w;
    struct slopes s = {.time = runs * c->down_s};
    s.time_s = c->down_runs * down + (above_down ? c->down_peaks * (down - c->down_floor_s) : 0);
    if (c->up.unit_s > 0) {
        struct cp_air_at a = cp_air_look(c->up, w);
        runs = c->up_runs + (above_up ? c->up_peaks : 0);
        s.time_s += c->up_runs * a.excess_s;
        s.time_s += above_up ? c->up_peaks * (a.excess_s - up_gap_s(c)) : 0;
        s.time += runs * a.slope;
        s.time_bend += runs * a.slope * a.bend;
        s.cost += c->up_cost * a.slope;
        s.cost_bend += c->up_cost * a.slope * a.bend;
    }
    if (c->model.unit_s > 0) {
        struct cp_air_at a = cp_air_look(c->model, w);
        s.time_s += a.excess_s;
        s.time += a.slope;
        s.time_bend += a.slope * a.bend;
        s.cost += c->model_cost * a.slope;
        s.cost_bend += c->model_cost * a.slope * a.bend;
    }
    s.time_s += base_s;
    s.time_bend = s.time > 0 ? s.time_bend / s.time : 0;
    s.cost_bend = s.cost > 0 ? s.cost_bend / s.cost : 0;
    s.time = fmax(s.time, DBL_MIN);
    return s;
}

/* Where t(w) passes a bottleneck: 0 below w = 1, infinite beyond the least share. */
static double up_kink(const struct cp_share_cluster *c, double most_w)
{
    double gap = up_gap_s(c);
    if (!(c->up_peaks > 0 && c->up.unit_s > 0) || cp_air_look(c->up, most_w).excess_s <= gap) {
        return INFINITY;
    }
    if (cp_air_look(c->up, 1).excess_s >= gap) {
        return 0;
    }
    double w = 1;
    for (int i = 0; i < CP_SHARE_ROOT_STEPS;
         i++) { /* t is concave: from the left, without overshoot */
        struct cp_air_at a = cp_air_look(c->up, w);
        double step = (gap - a.excess_s) / a.slope;
        w = fmin(w + step, most_w);
        if (fabs(step) <= CP_SHARE_STEP_LAST * w) {
            break;
        }
    }
    return w;
}

static double down_kink(const struct cp_share_cluster *c, double most_w)
{
    double w = c->down_s > 0 ? c->down_floor_s / c->down_s : INFINITY;
    return !(c->down_peaks > 0) || w >= most_w ? INFINITY : w <= 1 ? 0 : w;
}

void cp_share_set_kinks(const struct cp_share_cluster *c, struct cp_share_work *k, double most_w)
{
    k->kink_w[0] = up_kink(c, most_w);
    k->kink_w[1] = down_kink(c, most_w);
    for (int i = 0; i < 2; i++) {
        double w = k->kink_w[i];
        if (w > 0 && w < INFINITY) {
            bool other = w > k->kink_w[1 - i];
            k->kink_s[i] = look(c, k->base_s, w, i == 1 && other, i == 0 && other).time_s;
        } else {
            k->kink_s[i] = w > 0 ? INFINITY : -INFINITY;
        }
    }
    k->most_s = k->base_s + cp_share_added_s(c, most_w);
}

void cp_share_set_cap(const struct cp_share_cluster *c, struct cp_share_work *k, double w,
                      double theta_s, bool longer)
{
    bool above[2];
    for (int i = 0; i < 2; i++) {
        above[i] = longer ? k->kink_s[i] <= theta_s : k->kink_s[i] < theta_s;
    }
    struct slopes s = look(c, k->base_s, w, above[0], above[1]);
    k->cap_w = w;
    k->cap_s = s.time_s;
    k->cap_time = s.time;
    k->cap_time_bend = s.time_bend;
    k->cap_cost = s.cost;
    k->cap_cost_bend = s.cost_bend;
}

/* Between two kinks T is concave, so Newton comes from the left. */
void cp_share_reach(const struct cp_share_cluster *c, struct cp_share_work *k, double most_w,
                    double theta_s)
{
    if (k->most_s <= theta_s) {
        k->cap_w = most_w;
        k->cap_time = 0;
        return;
    }
    double lo = 1, hi = most_w;
    for (int i = 0; i < 2; i++) {
        if (k->kink_s[i] < theta_s) {
            lo = fmax(lo, k->kink_w[i]);
        } else if (k->kink_s[i] > theta_s) {
            hi = fmin(hi, k->kink_w[i]);
        } else {
            cp_share_set_cap(c, k, k->kink_w[i], theta_s, false);
            return;
        }
    }
    double w = k->cap_w;
    if (k->cap_time > 0) {
        w += (theta_s - k->cap_s) / k->cap_time; /* as far as the last look goes */
    }
    for (int i = 0; i < CP_SHARE_ROOT_STEPS; i++) {
        w = fmax(lo, fmin(hi, w));
        cp_share_set_cap(c, k, w, theta_s, false);
        double step = (theta_s - k->cap_s) / k->cap_time;
        w += step;
        if (fabs(step) <= CP_SHARE_STEP_LAST * w) {
            break;
        }
    }
    k->cap_w = fmax(lo, fmin(hi, w));
    k->cap_s = theta_s;
}

void cp_share_set_free(const struct cp_share_cluster *c, struct cp_share_work *k, double w)
{
    struct slopes s = look(c, 0, w, false, false);
    k->free_w = w;
    k->free_log = log(fmax(DBL_MIN, fmin(DBL_MAX, s.cost * w * w)));
    k->free_bend = 2 + s.cost_bend;
}

void cp_share_set_price(const struct cp_share_cluster *c, struct cp_share_work *k, double most_w,
                        double log_lambda)
{
    for (int i = 0; i < CP_SHARE_ROOT_STEPS; i++) {
        double step = (log_lambda - k->free_log) / k->free_bend;
        double w = fmax(1, fmin(most_w, k->free_w * exp(step)));
        bool last = fabs(w - k->free_w) <= CP_SHARE_STEP_LAST * w;
        if (w != k->free_w) {
            cp_share_set_free(c, k, w);
        }
        if (last) {
            break;
        }
    }
}
