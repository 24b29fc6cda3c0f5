/*
 * One statistic per figure, in logarithms.
 *
 * Start: the first FIRST observations are kept, and their median is the value: one bad reading
 * among the first three does no harm, two among five neither. Their median distance from it, scaled
 * to a standard deviation, is the spread. After that: an observation further than CLIP spreads away
 * counts as one at CLIP spreads (a stray). Value and spread are exponential means of what is left.
 * A device that has really changed looks like strays on one side: after SHIFT of them in a row the
 * statistic begins anew with the last.
 */
#include "world/estimate.h"

#include "base/mem.h"
#include "world/radio.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 5, SHIFT = 5, NODES = CP_DEVICES_MAX + 1 };
static const double CLIP = 3;
static const double LEAST_SPREAD = 0.01; /* a steady device may vary by a per cent */
static const double MAD_TO_SIGMA = 1.4826, MEAN_DISTANCE_TO_SIGMA = 1.2533; /* of a normal */
/* FIRST observations say little about their spread, and one that is too small would make strays of
 * good ones: it begins wide and narrows. */
static const double WIDE = 2;

struct stat {
    double log_value, spread, last; /* last: the newest observation's logarithm */
    double first[FIRST];
    int64_t count, strays;
    int32_t round;
    int run; /* strays in a row: above, or below 0 */
};

struct link {
    struct stat gain;
    double share, power_w; /* of the last observation */
};

struct cluster {
    int n_devices;
    struct stat rate[NODES], energy[NODES], memory[NODES];
    struct link d2d[NODES][NODES]; /* [low][high] */
    struct link d2e[NODES];
};

struct cp_estimate {
    struct cp_estimate_options options;
    int n_clusters;
    struct cluster *cluster;
};

/* What a figure can be. */
static const struct {
    double min, max;
} SANE[] = {
    [CP_FIGURE_RATE] = {1e3, 1e20},   [CP_FIGURE_ENERGY] = {1e-18, 1e-3},
    [CP_FIGURE_MEMORY] = {1, 0x1p60}, [CP_FIGURE_D2D] = {1e-30, 1e100},
    [CP_FIGURE_D2E] = {1e-30, 1e100},
};

cp_err cp_estimate_new(const struct cp_world *w, const struct cp_estimate_options *options,
                       struct cp_estimate **out)
{
    struct cp_estimate_options o = *options;
    if (!(o.gain >= 0 && o.gain <= 1) || o.trusted < 0 || o.max_age < 0) {
        return cp_fail(
            CP_E_CONFIG,
            "estimates with weight %g, %d trusted observations and age %d: the weight is "
            "in [0, 1], the others 0 or more",
            o.gain, o.trusted, o.max_age);
    }
    o.gain = o.gain > 0 ? o.gain : 0.2;
    o.trusted = o.trusted > 0 ? o.trusted : 3;
    struct cp_estimate *e;
    CP_TRY(cp_mem_array(NULL, 1, sizeof *e, &e));
    *e = (struct cp_estimate){.options = o, .n_clusters = w->n_clusters};
    cp_err err = cp_mem_array(NULL, (size_t)w->n_clusters, sizeof *e->cluster, &e->cluster);
    if (err) {
        cp_mem_free(e);
        return err;
    }
    for (int c = 0; c < w->n_clusters; c++) {
        e->cluster[c].n_devices = w->cluster[c].n_devices;
    }
    *out = e;
    return CP_OK;
}

void cp_estimate_free(struct cp_estimate *e)
{
    if (e) {
        cp_mem_free(e->cluster);
        cp_mem_free(e);
    }
}

/* --- one statistic --------------------------------------------------------------------------- */

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *x, int n)
{
    double sorted[FIRST];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_reals);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static void begin_stat(struct stat *s, int n)
{
    double distance[FIRST];
    s->log_value = median(s->first, n);
    for (int i = 0; i < n; i++) {
        distance[i] = fabs(s->first[i] - s->log_value);
    }
    s->spread = fmax(WIDE * MAD_TO_SIGMA * median(distance, n), LEAST_SPREAD);
    s->run = 0;
}

static void observe(struct stat *s, double gain, double value, int32_t round)
{
    double x = log(value);
    s->last = x;
    s->round = round;
    s->count++;
    if (s->count <= FIRST) {
        s->first[s->count - 1] = x;
        begin_stat(s, (int)s->count);
        return;
    }
    double off = x - s->log_value, limit = CLIP * s->spread;
    if (fabs(off) <= limit) {
        s->run = 0;
    } else {
        s->strays++;
        s->run = off > 0 ? (s->run > 0 ? s->run + 1 : 1) : (s->run < 0 ? s->run - 1 : -1);
        s->first[(abs(s->run) - 1) % FIRST] = x;
        off = copysign(limit, off);
    }
    if (abs(s->run) == SHIFT) {
        begin_stat(s, SHIFT);
        return;
    }
    s->log_value += gain * off;
    s->spread += gain * (MEAN_DISTANCE_TO_SIGMA * fabs(off) - s->spread);
    s->spread = fmax(s->spread, LEAST_SPREAD);
}

_Static_assert(SHIFT == FIRST, "a shifted statistic begins with the strays that showed the shift");

static bool take(struct cp_estimate *e, struct stat *s, enum cp_figure_kind kind, double value,
                 int32_t round)
{
    if (!(value >= SANE[kind].min && value <= SANE[kind].max)) { /* NaN too */
        return false;
    }
    observe(s, e->options.gain, value, round);
    return true;
}

/* --- where a figure is ----------------------------------------------------------------------- */

static struct cluster *cluster_at(const struct cp_estimate *e, int cluster, int a, int b)
{
    assert(cluster >= 0 && cluster < e->n_clusters);
    struct cluster *cl = &e->cluster[cluster];
    assert(a >= 0 && a <= cl->n_devices && b >= 0 && b <= cl->n_devices);
    return cl;
}

static struct link *link_at(const struct cp_estimate *e, struct cp_figure_id id)
{
    struct cluster *cl = cluster_at(e, id.cluster, id.node, id.peer);
    int low = id.node < id.peer ? id.node : id.peer, high = id.node < id.peer ? id.peer : id.node;
    assert(id.kind == CP_FIGURE_D2E || low < high);
    return id.kind == CP_FIGURE_D2E ? &cl->d2e[id.node] : &cl->d2d[low][high];
}

static struct stat *stat_at(const struct cp_estimate *e, struct cp_figure_id id)
{
    if (id.kind == CP_FIGURE_D2D || id.kind == CP_FIGURE_D2E) {
        return &link_at(e, id)->gain;
    }
    struct cluster *cl = cluster_at(e, id.cluster, id.node, 0);
    return id.kind == CP_FIGURE_RATE     ? &cl->rate[id.node]
           : id.kind == CP_FIGURE_ENERGY ? &cl->energy[id.node]
                                         : &cl->memory[id.node];
}

/* --- observations ---------------------------------------------------------------------------- */

static bool is_positive(double x)
{
    return isfinite(x) && x > 0;
}

static bool take_node(struct cp_estimate *e, int32_t round, enum cp_figure_kind kind, int cluster,
                      int node, double value)
{
    struct cp_figure_id id = {.kind = kind, .cluster = cluster, .node = node};
    return take(e, stat_at(e, id), kind, value, round);
}

bool cp_estimate_work(struct cp_estimate *e, int32_t round, int cluster, int node, double flops,
                      double time_s)
{
    return is_positive(flops) && is_positive(time_s) &&
           take_node(e, round, CP_FIGURE_RATE, cluster, node, flops / time_s);
}

bool cp_estimate_energy(struct cp_estimate *e, int32_t round, int cluster, int node, double flops,
                        double energy_j)
{
    return is_positive(flops) && is_positive(energy_j) &&
           take_node(e, round, CP_FIGURE_ENERGY, cluster, node, energy_j / flops);
}

bool cp_estimate_memory(struct cp_estimate *e, int32_t round, int cluster, int node,
                        double free_bytes)
{
    return take_node(e, round, CP_FIGURE_MEMORY, cluster, node, free_bytes);
}

static bool take_link(struct cp_estimate *e, int32_t round, struct cp_figure_id id, double band_hz,
                      double noise_w_hz, const struct cp_link_sample *s)
{
    struct link *link = link_at(e, id);
    if (!is_positive(s->bits) || !is_positive(s->time_s) || !is_positive(s->power_w) ||
        !(s->share > 0 && s->share <= 1) ||
        !take(e, &link->gain, id.kind,
              cp_rate_gain(s->bits / s->time_s, s->share, band_hz, s->power_w, noise_w_hz),
              round)) {
        return false;
    }
    link->share = s->share;
    link->power_w = s->power_w;
    return true;
}

bool cp_estimate_d2d(struct cp_estimate *e, int32_t round, const struct cp_radio *radio,
                     int cluster, int from, int to, const struct cp_link_sample *s)
{
    struct cp_figure_id id = {CP_FIGURE_D2D, cluster, from, to};
    return take_link(e, round, id, radio->band_d2d_hz, radio->noise_w_hz, s);
}

bool cp_estimate_d2e(struct cp_estimate *e, int32_t round, const struct cp_radio *radio,
                     int cluster, int node, const struct cp_link_sample *s)
{
    struct cp_figure_id id = {.kind = CP_FIGURE_D2E, .cluster = cluster, .node = node};
    return take_link(e, round, id, radio->band_up_hz, radio->noise_w_hz, s);
}

/* --- what is known --------------------------------------------------------------------------- */

struct apply {
    const struct cp_estimate *e;
    int32_t round;
    int set;
};

/* Sets *field if the figure is known well and not too old. */
static void apply_stat(struct apply *a, const struct stat *s, double *field)
{
    const struct cp_estimate_options *o = &a->e->options;
    bool fresh = o->max_age == 0 || a->round - s->round <= o->max_age;
    if (s->count >= o->trusted && fresh) {
        *field = exp(s->log_value);
        a->set++;
    }
}

static void apply_memory(struct apply *a, const struct stat *s, size_t *mem_bytes)
{
    double bytes = -1;
    apply_stat(a, s, &bytes);
    if (bytes >= 0) {
        bytes = fmin(bytes, exp(s->last));
        *mem_bytes = bytes < (double)*mem_bytes ? (size_t)bytes : *mem_bytes;
    }
}

int cp_estimate_apply(const struct cp_estimate *e, struct cp_world *w)
{
    struct apply a = {.e = e, .round = w->round};
    assert(w->n_clusters == e->n_clusters);
    for (int c = 0; c < w->n_clusters; c++) {
        struct cp_cluster *cl = &w->cluster[c];
        const struct cluster *known = &e->cluster[c];
        assert(cl->n_devices == known->n_devices);
        for (int i = 0; i <= cl->n_devices; i++) {
            struct cp_device *d = i == 0 ? &cl->cu : &cl->device[i - 1];
            apply_stat(&a, &known->rate[i], &d->rate_flops);
            apply_stat(&a, &known->energy[i], &d->energy_j_flop);
            apply_memory(&a, &known->memory[i], &d->mem_bytes);
            apply_stat(&a, &known->d2e[i].gain, &cl->gain_d2e[i]);
            for (int j = i + 1; j <= cl->n_devices; j++) {
                apply_stat(&a, &known->d2d[i][j].gain, &cl->gain_d2d[i][j]);
                cl->gain_d2d[j][i] = cl->gain_d2d[i][j];
            }
        }
    }
    return a.set;
}

struct cp_figure cp_estimate_figure(const struct cp_estimate *e, struct cp_figure_id id)
{
    const struct stat *s = stat_at(e, id);
    return (struct cp_figure){
        .value = s->count > 0 ? exp(s->log_value) : 0,
        .spread = s->count > 0 ? s->spread : 0,
        .count = s->count,
        .strays = s->strays,
        .round = s->round,
    };
}

static double link_error(const struct link *link, double band_hz, double noise_w_hz, double gain,
                         double value)
{
    return cp_rate_bps(link->share, band_hz, link->power_w, value, noise_w_hz) /
               cp_rate_bps(link->share, band_hz, link->power_w, gain, noise_w_hz) -
           1;
}

bool cp_estimate_error(const struct cp_estimate *e, const struct cp_world *w,
                       struct cp_figure_id id, double *error)
{
    struct cp_figure f = cp_estimate_figure(e, id);
    if (f.count == 0) {
        return false;
    }
    const struct cp_cluster *cl = &w->cluster[id.cluster];
    const struct cp_device *d = id.node == 0 ? &cl->cu : &cl->device[id.node - 1];
    switch (id.kind) {
    case CP_FIGURE_RATE: /* times are the inverse of rates */
        *error = f.value / d->rate_flops - 1;
        break;
    case CP_FIGURE_ENERGY:
        *error = d->energy_j_flop / f.value - 1;
        break;
    case CP_FIGURE_MEMORY:
        *error = (double)d->mem_bytes / f.value - 1;
        break;
    case CP_FIGURE_D2D:
        *error = link_error(link_at(e, id), w->radio.band_d2d_hz, w->radio.noise_w_hz,
                            cl->gain_d2d[id.node][id.peer], f.value);
        break;
    case CP_FIGURE_D2E:
        *error = link_error(link_at(e, id), w->radio.band_up_hz, w->radio.noise_w_hz,
                            cl->gain_d2e[id.node], f.value);
        break;
    }
    return true;
}
