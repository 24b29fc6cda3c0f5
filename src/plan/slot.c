/*
 * slot: P1 over all clusters (docs/theory.md sections 11.6, 11.7).
 *
 * A cluster's problem is solved for several weights of its own round time, because the slowest
 * cluster alone pays for latency: the others should spend their time on saving energy, and which
 * cluster is the slowest is only known afterwards. The merge picks one plan per cluster; then the
 * band to the edge server is divided anew for these plans, and the clusters think again, from what
 * they have. No step is taken that raises J (Proposition 4).
 */
#include "plan/share.h"
#include "plan/solver.h"

#include "base/mem.h"
#include "world/radio.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WEIGHTS = 6, ROUNDS = 4 }; /* of the grid V .. V 10^-2 / C, and 0 besides */
enum { TURNS = 6 };               /* of division and polish */

static const double GAIN = 1e-4; /* relative: less is not worth another round */

struct slot {
    const struct cp_policy_args *a;
    const struct cp_solver_options *o;
    struct cp_solver *x; /* [crew] */
    int crew;            /* threads */
    bool heuristic;
    int n;                           /* clusters */
    struct cp_front *front, *before; /* per cluster: of this round of the search, and the last */
    double *share;                   /* y */
    int *pick;
    struct cp_plan plan; /* borrowed: the best so far */
    double value;        /* its J */
    double last_sum;     /* of the shares of the incumbent; 0: it does not count */
};

/* Weights of the cluster's own time; returns how many. */
static int weights(const struct cp_policy_args *a, int cluster, double v[WEIGHTS + 1])
{
    const struct cp_world *w = a->world;
    double all = cp_queues_v(a->queues);
    double price = a->choose_micro ? cp_queues_micro_price(a->queues, w, cluster) : 0;
    for (int node = 0; node <= w->cluster[cluster].n_devices; node++) {
        price += cp_queues_price(a->queues, w, cluster, node);
    }
    if (price == 0) {
        v[0] = all > 0 ? all : 1; /* nothing to weigh the time against */
        return 1;
    }
    for (int i = 0; i < WEIGHTS; i++) {
        v[i] = all * pow(1e-2 / w->n_clusters, (double)i / (WEIGHTS - 1));
    }
    v[WEIGHTS] = 0;
    return WEIGHTS + 1;
}

/* The only way to another plan: J falls (Proposition 4). */
static void take_if_better(struct slot *s, const struct cp_plan *trial)
{
    double value = cp_plan_objective(trial, s->a->world, s->a->queues);
    if (value < s->value) {
        memcpy(s->plan.cluster, trial->cluster, (size_t)s->n * sizeof *trial->cluster);
        s->value = value;
    }
}

/* --- shares of the edge server's band (section 11.6 ii) -------------------------------------- */

/* How a cluster's time and cost depend on its share, by Lemma 1 or M Sigma. */
static void describe(const struct slot *s, const struct cp_cluster_plan *p, int c,
                     struct cp_share_cluster *out)
{
    const struct cp_policy_args *a = s->a;
    const struct cp_world *w = a->world;
    const struct cp_radio *r = &w->radio;
    const struct cp_cluster *cl = &w->cluster[c];
    struct cp_cluster_forecast f;
    cp_cluster_forecast_make(p, c, w, &f);
    int last = p->segments, node = p->device[last - 1] + 1;
    bool seq = p->slots[0] == 1;
    double steps = w->local_steps, m = p->micro_batches, power = p->power_fwd_w[last];
    double runs = seq ? steps * m : steps, peaks = seq ? 0 : steps * (m - 1);
    double up_s = f.times.link_fwd_s[last], down_s = f.times.link_bwd_s[last];
    f.times.link_fwd_s[last] = f.times.link_bwd_s[last] = 0;
    double up_floor = cp_times_max_fwd_s(&f.times), down_floor = cp_times_max_bwd_s(&f.times);
    double fixed = f.round_s - f.upload_s - runs * (up_s + down_s) -
                   peaks * (fmax(up_floor, up_s) + fmax(down_floor, down_s));
    *out = (struct cp_share_cluster){
        .fixed_s = fmax(fixed, 0), /* an overlapping order may be faster than Lemma 1 */
        .up = cp_air_make(cp_link_fwd_bits(w, p->link_format[last]), r->band_up_hz, power,
                          cl->gain_d2e[node], r->noise_w_hz),
        .up_runs = runs,
        .up_peaks = peaks,
        .up_floor_s = up_floor,
        .up_cost = steps * m * cp_queues_price(a->queues, w, c, node) * power,
        .down_s =
            cp_link_bwd_bits(w, p->link_format[last]) / cp_rate_down_bps(1, r, cl->gain_d2e[node]),
        .down_runs = runs,
        .down_peaks = peaks,
        .down_floor_s = down_floor,
        .model = cp_air_make(cp_model_bits(p, w), r->band_up_hz, p->power_up_w, cl->gain_d2e[0],
                             r->noise_w_hz),
        .model_cost = cp_queues_price(a->queues, w, c, 0) * p->power_up_w,
    };
}

/* An uplink of a cluster whose devices work apart: each has its part of the share. */
static struct cp_air air_apart(const struct slot *s, const struct cp_cluster_plan *p, int c, int i,
                               double bits)
{
    const struct cp_world *w = s->a->world;
    return cp_air_make(bits, w->radio.band_up_hz / p->segments, p->power_fwd_w[i + 1],
                       w->cluster[c].gain_d2e[p->device[i] + 1], w->radio.noise_w_hz);
}

/* Which of them takes longest: a forecast where all are like it knows no other. */
static int slowest_apart(const struct slot *s, const struct cp_cluster_plan *p, int c)
{
    int slow = 0;
    double slowest = 0;
    for (int i = 0; i < p->segments; i++) {
        struct cp_cluster_plan alike = *p;
        struct cp_cluster_forecast f;
        for (int k = 0; k < p->segments; k++) {
            alike.device[k] = p->device[i];
            alike.power_fwd_w[k + 1] = p->power_fwd_w[i + 1];
        }
        cp_cluster_forecast_make(&alike, c, s->a->world, &f);
        if (f.round_s > slowest) {
            slowest = f.round_s;
            slow = i;
        }
    }
    return slow;
}

/* A cluster whose devices work apart: the time of its slowest device, and the costs of all, which
 * are taken to change with the share as those of the slowest. */
static void describe_apart(const struct slot *s, const struct cp_cluster_plan *p, int c,
                           struct cp_share_cluster *out)
{
    const struct cp_world *w = s->a->world;
    struct cp_cluster_forecast f;
    int slow = slowest_apart(s, p, c);
    double gain = w->cluster[c].gain_d2e[p->device[slow] + 1], now = 1 / p->uplink_share;
    double fwd = cp_link_fwd_bits(w, CP_FORMAT_FP32), bwd = cp_link_bwd_bits(w, CP_FORMAT_FP32);
    double model = cp_model_bits(p, w);
    double runs =
        p->mode == CP_MODE_SPLIT ? (double)w->local_steps * p->micro_batches / p->segments : 0;
    *out = (struct cp_share_cluster){
        .up = air_apart(s, p, c, slow, fwd),
        .up_runs = runs,
        .down_s = p->segments * bwd / cp_rate_down_bps(1, &w->radio, gain),
        .down_runs = runs,
        .model = air_apart(s, p, c, slow, model),
    };
    for (int i = 0; i < p->segments; i++) {
        double price = cp_queues_price(s->a->queues, w, c, p->device[i] + 1);
        double up_s = cp_air_time_s(air_apart(s, p, c, i, fwd), now);
        double model_s = cp_air_time_s(air_apart(s, p, c, i, model), now);
        price *= p->power_fwd_w[i + 1];
        out->up_cost += price * runs * up_s / cp_air_time_s(out->up, now);
        out->model_cost += price * model_s / cp_air_time_s(out->model, now);
    }
    cp_cluster_forecast_make(p, c, w, &f);
    out->fixed_s = fmax(0, f.round_s - cp_share_time_s(out, p->uplink_share));
}

/* What one division of the band needs, per cluster. */
struct division {
    struct cp_share_cluster *cluster;
    struct cp_share_work *work;
    struct cp_share_out *out;
};

static cp_err division_init(struct division *v, size_t n)
{
    CP_TRY(cp_mem_array(NULL, n, sizeof *v->cluster, &v->cluster));
    CP_TRY(cp_mem_array(NULL, n, sizeof *v->work, &v->work));
    return cp_mem_array(NULL, n, sizeof *v->out, &v->out);
}

static void division_fini(struct division *v)
{
    cp_mem_free(v->cluster);
    cp_mem_free(v->work);
    cp_mem_free(v->out);
}

/* Divides the band for the plans of trial, which is taken if J falls. With V = 0 time weighs
 * nothing, but the round must end. */
static void divide_for(struct slot *s, struct division *v, struct cp_plan *trial)
{
    struct cp_share_result result;
    for (int c = 0; c < s->n; c++) {
        if (trial->cluster[c].mode == CP_MODE_PIPELINE) {
            describe(s, &trial->cluster[c], c, &v->cluster[c]);
        } else {
            describe_apart(s, &trial->cluster[c], c, &v->cluster[c]);
        }
    }
    const struct cp_share problem = {
        .n = s->n, .cluster = v->cluster, .peak = cp_queues_v(s->a->queues)};
    cp_share_solve(&problem, v->work, v->out, &result);
    for (int c = 0; c < s->n; c++) {
        trial->cluster[c].uplink_share = v->out[c].share;
    }
    if (cp_plan_round_s(trial, s->a->world) <= CP_ROUND_MOST_S) {
        take_if_better(s, trial);
    }
}

/*
 * Divides the band for the plans of s->plan. Then many clusters take the same time, and the choice
 * at these shares stalls: none is worth speeding up alone, although a faster one would leave band
 * to the slowest. So the clusters are polished for the weights v_c that the division found, and the
 * band is divided again: both together are one step (section 11.6 iii).
 */
static cp_err divide(struct slot *s)
{
    struct division v = {0};
    struct cp_plan trial = {0};
    double before = INFINITY;
    cp_err err;
    CP_TRY_GOTO(err, division_init(&v, (size_t)s->n), done);
    CP_TRY_GOTO(err, cp_plan_copy(&trial, &s->plan), done);
    divide_for(s, &v, &trial);
    for (int i = 0; i < TURNS && s->value < before * (1 - GAIN); i++) {
        before = s->value;
        for (int c = 0; c < s->n; c++) {
            cp_room_init(s->x[0].room, s->a->world, c);
            cp_polish(&s->x[0], c, v.out[c].weight, &trial.cluster[c]);
        }
        divide_for(s, &v, &trial);
    }
done:
    cp_plan_fini(&trial);
    division_fini(&v);
    return err;
}

/* --- the search ------------------------------------------------------------------------------ */

static cp_err solve_cluster(const struct slot *s, struct cp_solver *x, bool known, int c)
{
    double v[WEIGHTS + 1];
    int n = weights(x->a, c, v);
    s->front[c].n = 0;
    return cp_cluster_solve(x, c, s->share[c], v, n, known ? &s->before[c] : NULL, &s->front[c]);
}

enum { CREW_WHY = 512 };

/* Every step-th cluster from the first on, by one thread with a solver of its own. */
struct crew {
    const struct slot *s;
    struct cp_solver *x;
    bool known;
    int first, step;
    int failed; /* the cluster where it stopped, if it did */
    cp_err err;
    char why[CREW_WHY]; /* texts of errors belong to their thread */
};

static void *solve_some(void *arg)
{
    struct crew *crew = arg;
    for (int c = crew->first; c < crew->s->n && !crew->err; c += crew->step) {
        crew->err = solve_cluster(crew->s, crew->x, crew->known, c);
        if (crew->err) {
            crew->failed = c;
            snprintf(crew->why, sizeof crew->why, "%s", cp_err_text());
        }
    }
    return NULL;
}

/* Clusters do not know of each other, so the fronts do not hang on the number of threads, nor which
 * failure is told: that of the first cluster that has one. */
static cp_err solve_clusters(struct slot *s, bool known)
{
    struct crew crew[CP_POLICY_THREADS_MAX];
    pthread_t thread[CP_POLICY_THREADS_MAX];
    bool begun[CP_POLICY_THREADS_MAX] = {false};
    for (int c = 0; c < s->n; c++) {
        struct cp_front old = s->before[c];
        s->before[c] = s->front[c];
        s->front[c] = old;
    }
    for (int i = 0; i < s->crew; i++) {
        crew[i] = (struct crew){.s = s, .x = &s->x[i], .known = known, .first = i, .step = s->crew};
        begun[i] = i > 0 && pthread_create(&thread[i], NULL, solve_some, &crew[i]) == 0;
    }
    const struct crew *failed = NULL;
    for (int i = 0; i < s->crew; i++) {
        if (begun[i]) {
            pthread_join(thread[i], NULL);
        } else {
            solve_some(&crew[i]); /* the first, and those for which there was no thread */
        }
        if (crew[i].err && (!failed || crew[i].failed < failed->failed)) {
            failed = &crew[i];
        }
        s->heuristic |= s->x[i].heuristic;
    }
    return failed ? cp_fail(failed->err, "%s", failed->why) : CP_OK;
}

/* The best choice of the fronts, taken if it lowers J. */
static cp_err merge(struct slot *s)
{
    struct cp_plan trial = {0};
    CP_TRY(cp_front_merge(s->front, s->n, cp_queues_v(s->a->queues), s->pick));
    CP_TRY(cp_plan_copy(&trial, &s->plan));
    for (int c = 0; c < s->n; c++) {
        trial.cluster[c] = s->front[c].item[s->pick[c]].plan;
    }
    take_if_better(s, &trial);
    cp_plan_fini(&trial);
    return CP_OK;
}

/* Whether a plan is one of this world: of its clusters, devices and layers. Not more: who is
 * present, and what fits, may have changed. */
static bool belongs_here(const struct cp_plan *p, const struct cp_world *w)
{
    bool belongs = p && p->n_clusters == w->n_clusters;
    for (int c = 0; belongs && c < w->n_clusters; c++) {
        const struct cp_cluster_plan *k = &p->cluster[c];
        int layers = k->edge_layers + (k->mode == CP_MODE_PIPELINE ? 0 : k->layers[0]);
        belongs = k->segments >= 1 && k->segments <= w->cluster[c].n_devices;
        for (int i = 0; belongs && i < k->segments; i++) {
            belongs = k->device[i] >= 0 && k->device[i] < w->cluster[c].n_devices;
            layers += k->mode == CP_MODE_PIPELINE ? k->layers[i] : 0;
        }
        belongs = belongs && layers == w->model.layers;
    }
    return belongs;
}

/* The share that a cluster had in the last plan; without one an equal part. */
static double last_share(const struct slot *s, int cluster)
{
    bool known = s->last_sum > 0 && !s->o->equal_share;
    return known ? s->a->incumbent->cluster[cluster].uplink_share / s->last_sum : 1.0 / s->n;
}

/* Last round's plans are where the search begins. */
static cp_err start(struct slot *s, bool *known)
{
    const struct cp_plan *p = s->a->incumbent;
    *known = belongs_here(p, s->a->world);
    for (int c = 0; *known && c < s->n; c++) {
        CP_TRY(cp_front_add(&s->front[c], s->a, c, &p->cluster[c]));
        s->last_sum += p->cluster[c].uplink_share;
    }
    for (int c = 0; c < s->n; c++) {
        s->share[c] = last_share(s, c);
    }
    return CP_OK;
}

static cp_err search(struct slot *s)
{
    bool known;
    CP_TRY(start(s, &known));
    for (int i = 0; i < ROUNDS; i++) {
        double before = s->value;
        CP_TRY(solve_clusters(s, known || i > 0));
        CP_TRY(merge(s));
        if (s->o->equal_share || s->n == 1) {
            break;
        }
        CP_TRY(divide(s));
        assert(s->value <= before);
        if (i > 0 && !(s->value < before * (1 - GAIN))) {
            break;
        }
        for (int c = 0; c < s->n; c++) {
            s->share[c] = s->plan.cluster[c].uplink_share;
        }
    }
    return CP_OK;
}

/* --- staying with the last plan -------------------------------------------------------------- */

static bool same_cuts(const struct cp_plan *x, const struct cp_plan *y)
{
    bool same = true;
    for (int c = 0; c < x->n_clusters; c++) {
        same = same && cp_plan_same_cut(&x->cluster[c], &y->cluster[c]);
    }
    return same;
}

/*
 * The last plan's cuts with everything else decided anew: plans that are equal but for noise would
 * move layers (and their moments) for nothing, so other cuts must lower J by CP_KEEP_MARGIN.
 */
static cp_err stay(struct slot *s, struct cp_decision *d)
{
    const struct cp_policy_args *a = s->a;
    if (!belongs_here(a->incumbent, a->world) || same_cuts(a->incumbent, &s->plan)) {
        return CP_OK;
    }
    double v[WEIGHTS + 1], fresh = s->value;
    struct cp_plan best = {0};
    int held = 0; /* clusters whose last cut can stay */
    for (int c = 0; c < s->n; c++) {
        int n = weights(a, c, v);
        s->front[c].n = 0;
        CP_TRY(cp_cluster_keep(&s->x[0], c, last_share(s, c), v, n, &a->incumbent->cluster[c],
                               &s->front[c]));
        held += s->front[c].n > 0;
        if (s->front[c].n == 0) { /* this cut does not hold any more */
            struct cp_cluster_plan other = s->plan.cluster[c];
            other.uplink_share = last_share(s, c); /* so that the shares fit together */
            CP_TRY(cp_front_add(&s->front[c], a, c, &other));
        }
        if (s->front[c].n == 0) {
            return CP_OK; /* nor does another one at this share */
        }
    }
    if (held == 0) {
        return CP_OK;
    }
    CP_TRY(cp_plan_copy(&best, &s->plan));
    s->value = INFINITY;
    cp_err err = merge(s);
    if (!err && !s->o->equal_share) {
        err = divide(s);
    }
    if (!err && fresh < s->value * (1 - CP_KEEP_MARGIN)) {
        memcpy(s->plan.cluster, best.cluster, (size_t)s->n * sizeof *best.cluster);
        s->value = fresh;
    } else if (!err) {
        cp_draft_note(d, "last plan's cuts kept%s", held < s->n ? " where they hold" : "");
    }
    assert(err || s->value * (1 - CP_KEEP_MARGIN) <= fresh);
    cp_plan_fini(&best);
    return err;
}

/* One thread for every few clusters, as many as are allowed. */
static cp_err open_crew(struct slot *s)
{
    enum { CLUSTERS_EACH = 4 };
    int most = s->a->threads < CP_POLICY_THREADS_MAX ? s->a->threads : CP_POLICY_THREADS_MAX;
    s->crew = s->n / CLUSTERS_EACH < most ? s->n / CLUSTERS_EACH : most;
    s->crew = s->crew > 1 ? s->crew : 1;
    CP_TRY(cp_mem_array(NULL, (size_t)s->crew, sizeof *s->x, &s->x));
    for (int i = 0; i < s->crew; i++) {
        s->x[i] = (struct cp_solver){.a = s->a, .o = s->o};
        CP_TRY(cp_mem_new(NULL, sizeof *s->x[i].room, &s->x[i].room));
    }
    return CP_OK;
}

static void close_crew(struct slot *s)
{
    for (int i = 0; s->x && i < s->crew; i++) {
        cp_split_work_fini(&s->x[i].work);
        cp_mem_free(s->x[i].room);
    }
    cp_mem_free(s->x);
}

cp_err cp_slot_solve(const struct cp_policy_args *a, const struct cp_solver_options *o,
                     struct cp_plan *out, struct cp_decision *d)
{
    struct slot s = {.a = a, .o = o, .n = a->world->n_clusters, .plan = *out, .value = INFINITY};
    size_t n = (size_t)s.n;
    cp_err err;
    CP_TRY_GOTO(err, open_crew(&s), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, n, sizeof *s.front, &s.front), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, n, sizeof *s.before, &s.before), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, n, sizeof *s.share, &s.share), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, n, sizeof *s.pick, &s.pick), done);
    CP_TRY_GOTO(err, search(&s), done);
    CP_TRY_GOTO(err, stay(&s, d), done);
    assert(s.value == cp_plan_objective(&s.plan, a->world, a->queues));
    if (s.heuristic) {
        cp_draft_note(d, "too many devices for the exact program: beam search");
    }
    cp_solver_note(&s.x[0], out, d);
done:
    for (int c = 0; c < s.n; c++) {
        if (s.front) {
            cp_front_fini(&s.front[c]);
        }
        if (s.before) {
            cp_front_fini(&s.before[c]);
        }
    }
    cp_mem_free(s.front);
    cp_mem_free(s.before);
    cp_mem_free(s.share);
    cp_mem_free(s.pick);
    close_crew(&s);
    return err;
}
