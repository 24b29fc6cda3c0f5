/*
 * The Lagrangian's prices. Where the cut is given, the clusters' times are evened out by the uplink
 * shares: every cluster is the slowest, and v_c is in proportion to what a second of it takes of
 * the uplink. That is where the search begins; it goes on along subgradients, with steps that a
 * bound at the value of the given plan would ask for.
 */
#include "plan/lower.h"

#include "base/mem.h"
#include "plan/lower_cluster.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Rounding, and what cp_plan_check grants: shares and powers may exceed their limits by 1e-9. */
static const double MARGIN = 1e-8;

/* The part of Sigma + (M - 1) tau in the time of overlapping phases that the bands take. */
static const double MIX[CP_LOWER_BANDS - 1] = {0.35, 0, 0.55};

static const struct cp_lower_options FAST = {CP_LOWER_EXACT_FAST, 3, 3, 2};
static const struct cp_lower_options FULL = {CP_LOWER_EXACT_FULL, 6, 4, 4};

enum { NEAR_FAST = 5, NEAR_FULL = 30, STEPS_FULL = 6 };

struct dual {
    const struct cp_policy_args *a;
    const struct cp_plan *p;
    int n;
    double v;     /* V */
    double upper; /* J of the plan; infinite without one */
    double best;  /* the bound */
    struct cp_lower_cluster *cluster;
    struct cp_lower_value *value;              /* at the prices of now */
    struct cp_lower_price *price, *best_price; /* the uplink's is the same for all */
    struct cp_lower_work *work;
};

static const struct cp_cluster_plan *plan_of(const struct dual *d, int cluster)
{
    return d->p ? &d->p->cluster[cluster] : NULL;
}

/* The bound at the prices of now; near: what stands in for it on the way to good prices. */
static cp_err evaluate(struct dual *d, bool near, double *bound)
{
    double sum = -d->price[0].uplink, size = d->price[0].uplink;
    for (int c = 0; c < d->n; c++) {
        CP_TRY(cp_lower_cluster_least(&d->cluster[c], &d->price[c], plan_of(d, c), near, d->work,
                                      &d->value[c]));
        sum += d->value[c].value;
        size += fabs(d->value[c].value);
    }
    assert(!isnan(sum));
    *bound = sum < INFINITY ? sum - MARGIN * size : INFINITY;
    return CP_OK;
}

/* --- prices of a cut ------------------------------------------------------------------------- */

/* What a cluster does with the uplink, in s of its round, and the rest of its round. */
struct uplink_use {
    struct cp_air_sum sum;
    double rest_s;
};

/* y with f(y) = time_s; f(y) y changes slowly. */
static double share_for(const struct cp_air_sum *f, double time_s)
{
    double y = 1;
    for (int i = 0; i < 8; i++) {
        y = fmax(1e-12, y * cp_air_sum_s(f, y) / time_s);
    }
    return y;
}

/* Prices at which clusters that all take as long as each other share the uplink. */
static void even_out(struct dual *d, const struct uplink_use *use)
{
    double low = 0, sum = 0;
    for (int c = 0; c < d->n; c++) {
        low = fmax(low, use[c].rest_s);
        sum += cp_air_sum_s(&use[c].sum, 1);
    }
    double high = low + 4 * sum, per_s = 0;
    for (int step = 0; step < 40; step++) {
        double theta = 0.5 * (low + high), y = 0;
        for (int c = 0; c < d->n; c++) {
            y += share_for(&use[c].sum, theta - use[c].rest_s);
        }
        *(y > 1 ? &low : &high) = theta;
    }
    for (int c = 0; c < d->n; c++) {
        double y = share_for(&use[c].sum, high - use[c].rest_s);
        d->price[c].time = y * y / cp_air_sum_slope(&use[c].sum, y); /* share for a second */
        per_s += d->price[c].time;
    }
    bool usable = per_s > 0 && per_s < INFINITY; /* a link may be too weak for any share */
    for (int c = 0; c < d->n; c++) {
        d->price[c].time = usable ? d->price[c].time * d->v / per_s : d->v / d->n;
        d->price[c].uplink = usable && d->n > 1 ? d->v / per_s : 0;
    }
}

static struct uplink_use use_of(const struct dual *d, int c)
{
    const struct cp_lower_cluster *l = &d->cluster[c];
    const struct cp_world *w = d->a->world;
    const struct cp_cluster_plan *p = plan_of(d, c);
    struct uplink_use use = {.sum = {.n = 1, .air = {l->upload}, .weight = {cp_upload_bits(w, 0)}}};
    if (!p || p->mode != CP_MODE_PIPELINE) {
        use.rest_s = fmax(0, d->value[c].time_s);
        return use;
    }
    struct cp_cluster_forecast f;
    cp_cluster_forecast_make(p, c, w, &f);
    use.sum.weight[0] =
        cp_upload_bits(w, p->edge_layers) * cp_format_size(p->upload_format, w->model.width);
    for (int k = 0; k < l->n && !cp_plan_overlaps(p); k++) {
        if (l->device[k] == p->device[p->segments - 1]) {
            use.sum.n = 2;
            use.sum.air[1] = l->edge[k];
            use.sum.weight[1] = l->steps;
            use.sum.inverse = l->steps * l->edge_down_s[k];
        }
    }
    use.rest_s = fmax(0, f.round_s - cp_air_sum_s(&use.sum, p->uplink_share));
    return use;
}

/* The price of the D2D bands at which the links of the cut ask for all of it. */
static void price_bands(struct dual *d, int c)
{
    struct cp_lower_cluster *l = &d->cluster[c];
    const struct cp_cluster_plan *p = plan_of(d, c);
    bool given = p && p->mode == CP_MODE_PIPELINE;
    struct cp_air_sum whole[CP_DEVICES_MAX], half[CP_DEVICES_MAX];
    int segments = given                              ? p->segments
                   : l->n < d->a->world->model.layers ? l->n
                                                      : d->a->world->model.layers;
    int from = 0, n = 0;
    for (int s = 0; s < segments; s++) {
        int k = given ? 0 : s;
        while (given && k < l->n && l->device[k] != p->device[s]) {
            k++;
        }
        if (k == l->n) {
            continue;
        }
        struct cp_air air = l->link[from * l->n + k].air;
        whole[n] = (struct cp_air_sum){.n = 1, .air = {air}, .weight = {2}};
        air.scale_s *= 2;
        air.snr *= 2;
        half[n++] = (struct cp_air_sum){.n = 1, .air = {air}, .weight = {2}};
        from = k + 1;
    }
    cp_lower_cluster_band(l, 0, cp_air_clearing_price(whole, n), 1);
    for (int b = 1; b < l->bands; b++) {
        double mix = l->serial ? 1 : MIX[b - 1], part = l->serial ? 1 : 0.7;
        cp_lower_cluster_band(l, b, part * cp_air_clearing_price(half, n), mix);
    }
}

static cp_err first_prices(struct dual *d)
{
    struct uplink_use *use;
    double bound;
    CP_TRY(cp_mem_array(NULL, (size_t)d->n, sizeof *use, &use));
    for (int c = 0; c < d->n; c++) {
        price_bands(d, c);
        d->price[c].time = d->v / d->n;
        d->price[c].uplink = 0;
    }
    cp_err err = d->p ? CP_OK : evaluate(d, true, &bound);
    if (!err && d->v > 0) {
        for (int c = 0; c < d->n; c++) {
            use[c] = use_of(d, c);
        }
        even_out(d, use);
    }
    cp_mem_free(use);
    return err;
}

/* --- better prices --------------------------------------------------------------------------- */

/* One step along the subgradient; the weights stay at 0 or more, with the sum V. */
static void climb(struct dual *d, double now, double part)
{
    double upper = d->upper < INFINITY ? d->upper : now + 0.03 * fabs(now);
    double mean = 0, length = 0, shares = -1, sum = 0, scale = d->best_price[0].uplink;
    for (int c = 0; c < d->n; c++) {
        mean += d->value[c].time_s / d->n;
        shares += d->value[c].uplink;
    }
    for (int c = 0; c < d->n; c++) {
        double g = d->v * (d->value[c].time_s - mean);
        length += g * g;
    }
    length += shares * scale * shares * scale;
    if (!(length > 0)) {
        return;
    }
    double step = part * (upper - now) / length;
    for (int c = 0; c < d->n; c++) {
        double v = d->price[c].time + step * d->v * d->v * (d->value[c].time_s - mean);
        d->price[c].time = fmax(v, 1e-6 * d->v);
        sum += d->price[c].time;
    }
    for (int c = 0; c < d->n; c++) {
        d->price[c].time *= d->v / sum;
        d->price[c].uplink = fmax(0, d->price[c].uplink + step * scale * scale * shares);
    }
}

/* Some steps from the prices of now; leaves the best ones and their value. J of the given plan may
 * be far away: what does not help makes the next step shorter. */
static cp_err ascend(struct dual *d, int steps, bool near)
{
    double now, best = -INFINITY, part = 1;
    CP_TRY(evaluate(d, near, &now));
    for (int i = 0;; i++) {
        if (now > best) {
            best = now;
            memcpy(d->best_price, d->price, (size_t)d->n * sizeof *d->price);
        } else {
            part *= 0.7;
        }
        if (i == steps || d->n == 1 || !(d->v > 0) || !(now < d->upper) || !(now < INFINITY)) {
            break;
        }
        climb(d, now, part);
        CP_TRY(evaluate(d, near, &now));
    }
    memcpy(d->price, d->best_price, (size_t)d->n * sizeof *d->price);
    d->best = best;
    return CP_OK;
}

/* Whether the bound has its least values at another M than the steps before it looked at. */
static bool elsewhere(const struct dual *d)
{
    bool found = false;
    for (int c = 0; c < d->n; c++) {
        int looked = d->p ? d->p->cluster[c].micro_batches : cp_draft_micro(d->a, c);
        found |= d->a->choose_micro && d->value[c].micro != looked;
    }
    return found;
}

static cp_err search(struct dual *d, enum cp_lower_effort effort)
{
    bool full = effort == CP_LOWER_FULL;
    int near = full ? NEAR_FULL : NEAR_FAST, steps = full ? STEPS_FULL : 0;
    for (int c = 0; c < d->n; c++) { /* each step would take long */
        steps = d->cluster[c].n > CP_LOWER_EXACT_FAST ? 0 : steps;
    }
    CP_TRY(first_prices(d));
    CP_TRY(ascend(d, near, true));
    CP_TRY(ascend(d, steps, false));
    if (d->n > 1 && elsewhere(d)) {
        double best = d->best;
        CP_TRY(ascend(d, near, true));
        CP_TRY(ascend(d, steps, false));
        d->best = fmax(d->best, best);
    }
    return CP_OK;
}

cp_err cp_lower_bound(const struct cp_policy_args *a, const struct cp_lower_set *set,
                      const struct cp_plan *p, enum cp_lower_effort effort, double *bound)
{
    const struct cp_lower_options *options = effort == CP_LOWER_FAST ? &FAST : &FULL;
    int n = a->world->n_clusters, devices = 0, made = 0;
    struct dual d = {.a = a, .p = p, .n = n, .v = cp_queues_v(a->queues), .best = -INFINITY};
    d.upper = p ? cp_plan_objective(p, a->world, a->queues) : INFINITY;
    size_t count = (size_t)n;
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_array(NULL, count, sizeof *d.cluster, &d.cluster), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, count, sizeof *d.value, &d.value), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, count, sizeof *d.price, &d.price), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, count, sizeof *d.best_price, &d.best_price), done);
    for (; made < n; made++) {
        struct cp_lower_cluster *c = &d.cluster[made];
        CP_TRY_GOTO(err, cp_lower_cluster_init(c, a, set, plan_of(&d, made), made, options), done);
        devices = c->n > devices ? c->n : devices;
    }
    CP_TRY_GOTO(err,
                cp_lower_work_new(devices, options->exact_devices, a->world->model.layers, &d.work),
                done);
    err = search(&d, effort);
    if (!err) {
        *bound = d.best;
    }
done:
    for (int c = 0; c < made; c++) {
        cp_lower_cluster_fini(&d.cluster[c]);
    }
    cp_mem_free(d.cluster);
    cp_mem_free(d.value);
    cp_mem_free(d.price);
    cp_mem_free(d.best_price);
    cp_lower_work_free(d.work);
    return err;
}
