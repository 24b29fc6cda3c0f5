/*
 * polish: block after block, each by its exact method under Lemma 1 (for seq, under M Sigma), and
 * taken only if the exact value of the plan does not rise. Where the phases overlap Lemma 1 is a
 * surrogate, so a block may be refused; the value never rises (docs/theory.md, Proposition 4).
 */
#include "plan/band.h"
#include "plan/micro.h"
#include "plan/power.h"
#include "plan/solver.h"

#include "world/radio.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { SWEEPS = 6, MICRO_STEPS = 2 };

static const double GAIN = 1e-6;      /* relative: less is not worth another sweep */
static const double POWER_LOW = 1e-3; /* p_min / p^max, constraint C8 */

double cp_solver_value(const struct cp_solver *x, int cluster, double v,
                       const struct cp_cluster_plan *plan)
{
    struct cp_value value = cp_draft_value(plan, x->a->world, x->a->queues, cluster);
    return isfinite(value.time_s) ? v * value.time_s + value.cost : INFINITY;
}

/* What the blocks share: one plan under one weight, and its value. */
struct polish {
    const struct cp_solver *x;
    int cluster;
    const struct cp_cluster *cl;
    double v;
    struct cp_cluster_plan *plan;
    double value;
};

static bool is_sequential(const struct cp_cluster_plan *plan)
{
    return plan->slots[0] == 1; /* slots do not rise along the pipeline */
}

/* Weight of a second of every link, and of a second of the longest of a phase. */
static double sum_weight(const struct polish *p)
{
    return is_sequential(p->plan) ? p->v * p->plan->micro_batches : p->v;
}

static double peak_weight(const struct polish *p)
{
    return is_sequential(p->plan) ? 0 : p->v * (p->plan->micro_batches - 1);
}

/* M Z~ of the node at a stage. */
static double price_at(const struct polish *p, int stage)
{
    int node = stage == 0 ? 0 : p->plan->device[stage - 1] + 1;
    return p->plan->micro_batches *
           cp_queues_price(p->x->a->queues, p->x->a->world, p->cluster, node);
}

static double gain_d2d(const struct polish *p, int link)
{
    const struct cp_cluster_plan *c = p->plan;
    int from = link == 0 ? 0 : c->device[link - 1] + 1;
    return p->cl->gain_d2d[from][c->device[link] + 1];
}

static double band_d2d_hz(const struct polish *p)
{
    return p->x->a->world->radio.band_d2d_hz * (cp_plan_overlaps(p->plan) ? 0.5 : 1);
}

static double longest_stage_s(const struct cp_times *t, bool fwd)
{
    double longest = 0;
    for (int j = 0; j <= t->segments + 1; j++) {
        longest = fmax(longest, fwd ? t->fwd_s[j] : t->bwd_s[j]);
    }
    return longest;
}

static void take_if_better(struct polish *p, const struct cp_cluster_plan *trial)
{
    double value = cp_solver_value(p->x, p->cluster, p->v, trial);
    if (value < p->value) {
        p->value = value;
        *p->plan = *trial;
    }
}

/* --- bands (section 11.4) -------------------------------------------------------------------- */

static void polish_band(struct polish *p, bool fwd)
{
    const struct cp_world *w = p->x->a->world;
    struct cp_cluster_plan trial = *p->plan;
    struct cp_band_result result;
    struct cp_times t;
    cp_times_make(&trial, p->cl, w, &t);
    double edge_s = fwd ? t.link_fwd_s[trial.segments] : t.link_bwd_s[trial.segments];
    struct cp_band b = {.n = trial.segments,
                        .peak = peak_weight(p),
                        .floor_s = fmax(edge_s, longest_stage_s(&t, fwd))};
    for (int j = 0; j < trial.segments; j++) {
        int sender = fwd ? j : j + 1;
        double power_w = fwd ? trial.power_fwd_w[sender] : trial.power_bwd_w[sender];
        double bits = fwd ? cp_link_fwd_bits(w, trial.link_format[j])
                          : cp_link_bwd_bits(w, trial.link_format[j]);
        b.link[j] = cp_air_make(bits, band_d2d_hz(p), power_w, gain_d2d(p, j), w->radio.noise_w_hz);
        b.cost[j] = sum_weight(p) + price_at(p, sender) * power_w;
    }
    cp_band_solve(&b, &result);
    memcpy(fwd ? trial.band_fwd : trial.band_bwd, result.share,
           (size_t)trial.segments * sizeof result.share[0]);
    take_if_better(p, &trial);
}

/* --- powers (section 11.5) ------------------------------------------------------------------- */

static void polish_power(struct polish *p, bool fwd)
{
    const struct cp_world *w = p->x->a->world;
    struct cp_cluster_plan trial = *p->plan;
    struct cp_power_link link[CP_POWER_LINKS_MAX];
    struct cp_power_result result;
    struct cp_times t;
    cp_times_make(&trial, p->cl, w, &t);
    int n = fwd ? trial.segments + 1 : trial.segments; /* the base station's power is no choice */
    double part = cp_plan_overlaps(&trial) ? 0.5 : 1;  /* of a device that sends both ways */
    for (int j = 0; j < n; j++) {
        bool edge = j == trial.segments;
        int sender = fwd ? j : j + 1;
        double band_hz = edge ? trial.uplink_share * w->radio.band_up_hz
                              : band_d2d_hz(p) * (fwd ? trial.band_fwd[j] : trial.band_bwd[j]);
        double gain = edge ? p->cl->gain_d2e[trial.device[j - 1] + 1] : gain_d2d(p, j);
        double limit_w = sender == 0 ? p->cl->cu.power_d2d_w
                         : fwd       ? cp_fwd_limit_w(&trial, p->cl, sender)
                                     : p->cl->device[trial.device[sender - 1]].power_d2d_w;
        link[j] = (struct cp_power_link){
            .bits = fwd ? cp_link_fwd_bits(w, trial.link_format[j])
                        : cp_link_bwd_bits(w, trial.link_format[j]),
            .band_hz = band_hz,
            .snr_w = fmin(gain / w->radio.noise_w_hz / band_hz, 1e280), /* finite */
            .min_w = POWER_LOW * limit_w,
            .max_w = (sender == 0 ? 1 : part) * limit_w,
            .price = price_at(p, sender),
        };
    }
    const struct cp_power problem = {
        .n = n,
        .link = link,
        .weight = sum_weight(p),
        .peak = peak_weight(p),
        .floor_s = fmax(fwd ? 0 : t.link_bwd_s[trial.segments], longest_stage_s(&t, fwd)),
    };
    cp_power_solve(&problem, &result);
    memcpy(fwd ? trial.power_fwd_w : trial.power_bwd_w + 1, result.power_w,
           (size_t)n * sizeof result.power_w[0]);
    take_if_better(p, &trial);
}

/* A power of one link alone: the upload of the model, or of a device that trains apart. */
static double alone_w(const struct polish *p, int node, double share, double gain, double limit_w)
{
    const struct cp_world *w = p->x->a->world;
    double band_hz = share * w->radio.band_up_hz;
    const struct cp_power_link link = {
        .band_hz = band_hz,
        .snr_w = fmin(gain / w->radio.noise_w_hz / band_hz, 1e280), /* finite */
        .min_w = POWER_LOW * limit_w,
        .max_w = limit_w,
        .price = cp_queues_price(p->x->a->queues, w, p->cluster, node),
    };
    return cp_power_alone_w(&link, p->v);
}

static void polish_upload(struct polish *p)
{
    struct cp_cluster_plan trial = *p->plan;
    trial.power_up_w = alone_w(p, 0, trial.uplink_share, p->cl->gain_d2e[0], p->cl->cu.power_d2e_w);
    take_if_better(p, &trial);
}

/* Modes without a pipeline: each device as if it were the slowest. */
static void polish_apart(struct polish *p)
{
    struct cp_cluster_plan trial = *p->plan;
    for (int s = 0; s < trial.segments; s++) {
        int node = trial.device[s] + 1;
        trial.power_fwd_w[s + 1] =
            alone_w(p, node, trial.uplink_share / trial.segments, p->cl->gain_d2e[node],
                    p->cl->device[node - 1].power_d2e_w);
    }
    take_if_better(p, &trial);
}

/* --- micro-batches and slots (sections 6.2, 11.3) -------------------------------------------- */

/* Slots of 1f1b with some more at every stage: w_j = min(M, S + 2 - j + extra); false: that is
 * gpipe. */
static bool set_slots(struct cp_cluster_plan *c, int extra)
{
    int m = c->micro_batches;
    for (int j = 0; j < c->segments + 2; j++) {
        int slots = c->segments + 2 - j + extra;
        c->slots[j] = slots < m ? slots : m;
    }
    return c->slots[c->segments + 1] < m;
}

/* The extra slots of a plan of this order; for other orders 0. */
static int extra_slots(const struct cp_cluster_plan *c)
{
    return c->order == CP_ORDER_1F1B ? c->slots[c->segments + 1] - 1 : 0;
}

static void set_micro(struct cp_cluster_plan *c, int micro, int extra)
{
    c->micro_batches = micro;
    if (c->order != CP_ORDER_1F1B || !set_slots(c, extra)) {
        cp_plan_set_slots(c);
    }
}

/* M_mem: the most micro-batches that fit with this cut, order and extra slots. */
static int micro_room(const struct polish *p)
{
    struct cp_cluster_plan trial = *p->plan;
    int extra = extra_slots(&trial), m = cp_world_micro_max(p->x->a->world, p->cluster);
    for (; m > 1; m--) {
        set_micro(&trial, m, extra);
        if (cp_draft_fits(&trial, p->x->room)) {
            break;
        }
    }
    return m;
}

static void take_micro(struct polish *p, int micro)
{
    struct cp_cluster_plan trial = *p->plan;
    if (micro == trial.micro_batches || micro < 1 ||
        micro > cp_world_micro_max(p->x->a->world, p->cluster)) {
        return;
    }
    bool overlapped = cp_plan_overlaps(&trial);
    set_micro(&trial, micro, extra_slots(&trial));
    if (cp_plan_overlaps(&trial) == overlapped && /* else bands and powers mean something else */
        cp_draft_fits(&trial, p->x->room)) {
        take_if_better(p, &trial);
    }
}

static void polish_micro(struct polish *p)
{
    const struct cp_world *w = p->x->a->world;
    struct cp_cluster_plan trial = *p->plan;
    struct cp_times t;
    cp_times_make(&trial, p->cl, w, &t);
    double slope = p->v * (is_sequential(&trial) ? cp_step_gpipe_s(&t, 1) /* Sigma */
                                                 : cp_times_max_fwd_s(&t) + cp_times_max_bwd_s(&t));
    for (int j = 0; j <= trial.segments; j++) {
        slope += price_at(p, j) / trial.micro_batches * cp_micro_energy_j(&trial, p->cl, w, &t, j);
    }
    int m = cp_micro_best(w->local_steps * slope,
                          cp_queues_micro_price(p->x->a->queues, w, p->cluster), micro_room(p));
    take_micro(p, m);
    for (int i = 1; i <= MICRO_STEPS && cp_plan_overlaps(p->plan); i++) {
        take_micro(p, p->plan->micro_batches - i); /* the rule is for Lemma 1 */
        take_micro(p, p->plan->micro_batches + i);
    }
}

/* The fastest number of extra slots that fits (section 6.2, rule). */
static void polish_slots(struct polish *p)
{
    struct cp_cluster_plan trial = *p->plan;
    for (int extra = 0; extra < trial.micro_batches && set_slots(&trial, extra); extra++) {
        if (!cp_draft_fits(&trial, p->x->room)) {
            break; /* more slots need more memory */
        }
        take_if_better(p, &trial);
    }
}

/* One slot more or less at a stage; whether it fits, and slots do not rise along the pipeline. */
static void take_slot(struct polish *p, int stage, int change)
{
    struct cp_cluster_plan trial = *p->plan;
    int slots = trial.slots[stage] += change;
    int most = stage == 0 ? trial.micro_batches : trial.slots[stage - 1];
    int least = stage > trial.segments ? 1 : trial.slots[stage + 1];
    if (slots >= least && slots <= most && cp_plan_overlaps(&trial) &&
        cp_draft_fits(&trial, p->x->room)) {
        take_if_better(p, &trial);
    }
}

/* Beyond the paper: one slot more or less at a time, at any stage, until none is better. From 1f1b
 * to the best there are many such steps. */
static void polish_each_slot(struct polish *p)
{
    double before;
    do {
        before = p->value;
        for (int j = 0; j < p->plan->segments + 2; j++) {
            take_slot(p, j, -1);
            take_slot(p, j, 1);
        }
    } while (p->value < before * (1 - GAIN));
}

/* Beyond the paper: another format of one link or of the upload. */
static void polish_formats(struct polish *p)
{
    int links = p->plan->mode == CP_MODE_PIPELINE ? p->plan->segments + 1 : 0;
    for (int j = 0; j <= links; j++) { /* the last is the upload */
        for (int f = CP_FORMAT_FP32; f <= CP_FORMAT_INT8; f++) {
            struct cp_cluster_plan trial = *p->plan;
            enum cp_format *format = j < links ? &trial.link_format[j] : &trial.upload_format;
            if ((enum cp_format)f != *format) {
                *format = (enum cp_format)f;
                take_if_better(p, &trial);
            }
        }
    }
}

static void sweep(struct polish *p)
{
    const struct cp_solver_options *o = p->x->o;
    if (o->extended && p->x->a->any_format) {
        polish_formats(p);
    }
    if (p->plan->mode != CP_MODE_PIPELINE) {
        polish_apart(p);
        return;
    }
    if (!o->equal_band) {
        polish_band(p, true);
        polish_band(p, false);
    }
    if (!o->max_power) {
        polish_power(p, true);
        polish_power(p, false);
        polish_upload(p);
    }
    if (p->x->a->choose_micro) {
        polish_micro(p);
    }
    if (p->plan->order == CP_ORDER_1F1B) {
        polish_slots(p);
    }
    if (o->extended && p->plan->order == CP_ORDER_1F1B) {
        polish_each_slot(p);
    }
}

void cp_polish(const struct cp_solver *x, int cluster, double v, struct cp_cluster_plan *plan)
{
    struct polish p = {.x = x,
                       .cluster = cluster,
                       .cl = &x->a->world->cluster[cluster],
                       .v = v,
                       .plan = plan,
                       .value = cp_solver_value(x, cluster, v, plan)};
    for (int i = 0; i < SWEEPS; i++) {
        double before = p.value;
        sweep(&p);
        assert(p.value <= before);
        if (!(p.value < before * (1 - GAIN))) {
            break;
        }
    }
    assert(p.value == cp_solver_value(x, cluster, v, plan));
}
