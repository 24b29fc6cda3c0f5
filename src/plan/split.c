/*
 * A label is a way to place the first i layers on a set U of devices, the last of them k: the cost
 * so far and the longest forward and backward time so far. Two labels of one state (i, U, k) are
 * extended by the same choices at the same cost, and the final value rises with each of the three
 * numbers, so a label that is not smaller in any of them can go (Proposition 2).
 *
 * Four more prunings, and why each is exact:
 *
 * - A label goes if a lower bound of all it can lead to is above the value of a placement that is
 *   known, or above the caller's bound. What comes of it is no better than that placement. The
 *   bounds, and their proof, are in split_program.c; they have a margin for rounding (ROUNDING).
 * - Where the bounds are made for sets, they look at no link or step whose time is so long that the
 *   bottleneck alone makes up the difference between the known value and the least cost without
 *   any bottleneck: whatever uses it is above the known value (set_ceilings in second_pass).
 * - Twins, devices that are equal in all that counts, are used in their order only. A placement
 *   that uses them otherwise becomes one that does by renaming twins, at the same value. (With
 *   index_order there are no twins: renamed, a placement may be out of order.)
 * - A number of segments goes unsearched if the bound of its start is not below the known value.
 *
 * Known placements come from passes that keep only FIRST_PASS labels per segment. A first pass over
 * all programs has coarse bounds (groups of sets) unless sets are few; then the programs are
 * searched in the order of their bounds, each after a quick pass with the bounds by sets. A pass
 * never keeps a label whose rest has an infinite bound; with bounds by sets that is just a label
 * that cannot be completed, so quick passes lose no feasible program there. With bounds by size
 * rest_of() counts the room of the devices that are left, so that a beam does not lose the last
 * placement that fits.
 */
#include "plan/split_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <float.h>
#include <string.h>

enum {
    FIRST_PASS = 16, /* labels per segment in quick passes */
    FIRST_SETS = 64, /* up to so many sets the first bounds are by sets, too */
    LABELS = 1 << 21 /* of a pass: 128 MiB */
};

static const double ROUNDING = 1e-13; /* far above what sums of some dozen terms lose */
static const double FIRST_HIGH = 2;   /* first ceilings: up to so many times the least bottleneck */

struct cp_split_label {
    double cost, max_fwd_s, max_bwd_s;
    double bound; /* of what it leads to */
    uint32_t set;
    int32_t parent, next;  /* label before; next in the bucket */
    int16_t group, layers; /* of the set; placed so far */
    int8_t last;           /* node */
    bool dead;             /* dominated later, or out of the beam */
};

struct search {
    struct cp_split_program *p;
    struct cp_split_work *work;
    int beam;          /* labels kept per segment; 0: all */
    double best;       /* value of a placement that is known, or the limit */
    int best_label;    /* the complete placement; -1: none */
    bool overflow;     /* labels were lost for want of room */
    struct near *near; /* NULL: only the best placement is wanted */
};

/* The best complete placements so far, in rising order. */
struct near {
    int n, max, label[CP_SPLIT_NEAR];
    double value[CP_SPLIT_NEAR];
};

void cp_split_init(struct cp_split *s, const struct cp_world *w, int cluster, struct cp_room *room,
                   const struct cp_queues *q, int segments, int micro_batches, enum cp_order order)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    *s = (struct cp_split){.world = w,
                           .cluster = cluster,
                           .room = room,
                           .segments = segments,
                           .micro_batches = micro_batches,
                           .order = order,
                           .v = cp_queues_v(q),
                           .sum_weight = 1,
                           .micro_price = cp_queues_micro_price(q, w, cluster),
                           .bound = INFINITY,
                           .uplink_share = 1.0 / w->n_clusters,
                           .power_up_w = cl->cu.power_d2e_w};
    for (int j = 0; j < segments + 2; j++) {
        s->slots[j] = cp_order_slots(order, segments, micro_batches, j);
    }
    bool overlaps = s->slots[segments + 1] < micro_batches;
    for (int node = 0; node <= cl->n_devices; node++) {
        const struct cp_device *d = node == 0 ? &cl->cu : &cl->device[node - 1];
        double part = overlaps && node > 0 ? 0.5 : 1;
        s->price[node] = cp_queues_price(q, w, cluster, node);
        s->power_fwd_w[node] = part * d->power_d2d_w;
        s->power_edge_w[node] = part * d->power_d2e_w;
        s->power_bwd_w[node] = part * d->power_d2d_w;
    }
    for (int j = 0; j < segments; j++) {
        s->band_fwd[j] = s->band_bwd[j] = 1.0 / segments;
    }
}

void cp_split_work_fini(struct cp_split_work *work)
{
    cp_mem_free(work->program);
    cp_mem_free(work->label);
    cp_mem_free(work->bucket);
    cp_mem_free(work->bound);
    cp_mem_free(work->root);
    *work = (struct cp_split_work){0};
}

static void clear_buckets(struct cp_split_work *work)
{
    memset(work->bucket, 0xff, CP_SPLIT_BUCKETS * sizeof *work->bucket); /* -1 */
}

/* --- labels ----------------------------------------------------------------------------------- */

static cp_err add_label(struct cp_split_work *work, const struct cp_split_label *l)
{
    if (work->n == work->cap) {
        int cap = work->cap ? 2 * work->cap : 1024;
        struct cp_split_label *bigger;
        CP_TRY(cp_mem_array(NULL, (size_t)cap, sizeof *bigger, &bigger));
        if (work->n > 0) {
            memcpy(bigger, work->label, (size_t)work->n * sizeof *bigger);
        }
        cp_mem_free(work->label);
        work->label = bigger;
        work->cap = cap;
    }
    work->label[work->n++] = *l;
    return CP_OK;
}

static bool dominates(const struct cp_split_label *a, const struct cp_split_label *b)
{
    return a->cost <= b->cost && a->max_fwd_s <= b->max_fwd_s && a->max_bwd_s <= b->max_bwd_s;
}

static int32_t *bucket_of(const struct cp_split_work *work, const struct cp_split_label *l)
{
    uint32_t state = (l->set * 17u + (uint32_t)l->last) * 1031u + (uint32_t)l->layers;
    return &work->bucket[(state * 2654435769u) >> (32 - CP_SPLIT_BUCKET_BITS)];
}

/* Keeps l unless a label of its state is as good; labels that it beats are marked dead. */
static cp_err keep_label(struct search *x, struct cp_split_label *l)
{
    int32_t *head = bucket_of(x->work, l);
    struct cp_split_label *all = x->work->label;
    for (int32_t *at = head; *at >= 0;) {
        struct cp_split_label *other = &all[*at];
        bool same = other->set == l->set && other->last == l->last && other->layers == l->layers;
        if (same && dominates(other, l)) {
            return CP_OK;
        }
        if (same && dominates(l, other)) {
            other->dead = true;
            *at = other->next;
        } else {
            at = &other->next;
        }
    }
    int most = x->work->label_limit > 0 ? x->work->label_limit : LABELS;
    if (x->work->n >= most) {
        x->overflow = true;
        return CP_OK;
    }
    l->next = *head;
    *head = x->work->n;
    return add_label(x->work, l);
}

/* Where groups are sizes the bounds do not know which devices are left. */
struct rest {
    int room;                    /* layers that fit into the best of them */
    double fwd_speed, bwd_speed; /* layers per second of the fastest of them together */
};

/* The best `count` devices outside set, each number by itself. Slots do not rise along the
 * pipeline, so the room of the last segment is the largest. */
static struct rest rest_of(const struct cp_split_program *p, uint32_t set, int count)
{
    struct rest r = {0};
    const int *last_room = p->room[p->s->segments - 1];
    int room[CP_DEVICES_MAX], n = 0;
    double fwd_s[CP_DEVICES_MAX], bwd_s[CP_DEVICES_MAX];
    for (int i = 0; i < p->n; i++) {
        int at;
        if (set & 1u << i) {
            continue;
        }
        for (at = n; at > 0 && room[at - 1] < last_room[i]; at--) {
            room[at] = room[at - 1];
        }
        room[at] = last_room[i];
        for (at = n; at > 0 && fwd_s[at - 1] > p->layer_fwd_s[i]; at--) {
            fwd_s[at] = fwd_s[at - 1]; /* the order is that of bwd_s, too: both are work / rate */
            bwd_s[at] = bwd_s[at - 1];
        }
        fwd_s[at] = p->layer_fwd_s[i];
        bwd_s[at] = p->layer_bwd_s[i];
        n++;
    }
    for (int i = 0; i < count && i < n; i++) {
        r.room += room[i];
        r.fwd_speed += 1 / fwd_s[i];
        r.bwd_speed += 1 / bwd_s[i];
    }
    return r;
}

/* A lower bound of every completion of l; its value where it is complete. */
static double bound_of(const struct cp_split_program *p, const struct cp_split_label *l,
                       const struct rest *r)
{
    int left = p->layers - l->layers;
    if (left == 0) {
        return l->cost + p->bottleneck * (l->max_fwd_s + l->max_bwd_s);
    }
    double fwd = l->max_fwd_s, bwd = l->max_bwd_s;
    if (!p->groups->exact) {
        fwd = fmax(fwd, left / r->fwd_speed);
        bwd = fmax(bwd, left / r->bwd_speed);
    }
    return cp_split_bound(p, l->group, l->last, l->layers, l->cost, fwd, bwd);
}

/* Keeps a complete placement among the best; from the last of them on, nothing is looked for. */
static cp_err keep_near(struct search *x, const struct cp_split_label *l)
{
    struct near *near = x->near;
    int at = near->n < near->max ? near->n++ : near->max - 1;
    for (; at > 0 && near->value[at - 1] > l->bound; at--) {
        near->value[at] = near->value[at - 1];
        near->label[at] = near->label[at - 1];
    }
    near->value[at] = l->bound;
    near->label[at] = x->work->n;
    if (near->n == near->max) {
        x->best = near->value[near->max - 1];
    }
    return add_label(x->work, l);
}

/* Places segment j on device i after the label `from`, in every size. */
static cp_err extend(struct search *x, int from, int j, int i)
{
    const struct cp_split_program *p = x->p;
    int after = p->s->segments - 1 - j;
    struct cp_split_label l = x->work->label[from];
    int u = l.last, left = p->layers - l.layers;
    struct rest rest = {0};
    int most = left - after < p->room[j][i] ? left - after : p->room[j][i];
    int least = after == 0 ? left : 1;
    double base = l.cost + p->link_cost[j][u][i];
    double fwd = fmax(l.max_fwd_s, p->fwd_s[j][u][i]), bwd = fmax(l.max_bwd_s, p->bwd_s[j][u][i]);
    if (!p->groups->exact && after > 0) {
        rest = rest_of(p, l.set | 1u << i, after);
        least = left - rest.room > 1 ? left - rest.room : 1;
    }
    if (after == 0) {
        base += p->edge_cost[i];
        fwd = fmax(fwd, p->edge_fwd_s[i]);
        bwd = fmax(bwd, p->edge_bwd_s[i]);
    }
    for (int n = least; n <= most; n++) {
        struct cp_split_label next = {.cost = base + n * p->layer_cost[i],
                                      .max_fwd_s = fmax(fwd, n * p->layer_fwd_s[i]),
                                      .max_bwd_s = fmax(bwd, n * p->layer_bwd_s[i]),
                                      .set = l.set | 1u << i,
                                      .parent = from,
                                      .next = -1,
                                      .group = (int16_t)(l.group + p->groups->place[i]),
                                      .layers = (int16_t)(l.layers + n),
                                      .last = (int8_t)(i + 1)};
        next.bound = bound_of(p, &next, &rest);
        if (!(next.bound <= x->best)) {
            continue;
        }
        if (after > 0) {
            CP_TRY(keep_label(x, &next));
        } else if (x->near) {
            CP_TRY(keep_near(x, &next));
        } else if (next.bound < x->best) {
            x->best = next.bound;
            x->best_label = x->work->n;
            CP_TRY(add_label(x->work, &next));
        }
    }
    return CP_OK;
}

/* Puts the greatest number of a heap on top again after the top was replaced. */
static void sift(double *heap, int n)
{
    double top = heap[0];
    int at = 0;
    for (int child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] > heap[child];
        if (heap[child] <= top) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = top;
}

/* Marks all but the `beam` most promising labels from first on as dead. */
static void cut_to_beam(struct cp_split_work *work, int first, int beam)
{
    double heap[CP_SPLIT_BEAM_LABELS]; /* the least bounds so far */
    for (int i = 0; i < beam; i++) {
        heap[i] = INFINITY;
    }
    for (int i = first; i < work->n; i++) {
        if (!work->label[i].dead && work->label[i].bound < heap[0]) {
            heap[0] = work->label[i].bound;
            sift(heap, beam);
        }
    }
    for (int i = first; i < work->n; i++) {
        work->label[i].dead |= work->label[i].bound > heap[0];
    }
}

static cp_err run_pass(struct search *x)
{
    const struct cp_split_program *p = x->p;
    struct cp_split_work *work = x->work;
    const struct cp_split_label start = {.cost = p->start_cost,
                                         .max_fwd_s = p->start_fwd_s,
                                         .max_bwd_s = p->start_bwd_s,
                                         .parent = -1};
    int first = 0;
    work->n = 0;
    x->best_label = -1;
    if (x->near) {
        x->near->n = 0;
    }
    CP_TRY(add_label(work, &start));
    for (int j = 0; j < p->s->segments; j++) {
        int end = work->n;
        for (int from = first; from < end; from++) {
            for (int i = 0; i < p->n && !work->label[from].dead; i++) {
                uint32_t set = work->label[from].set;
                if (!(set & 1u << i) && (set & p->twins[i]) == p->twins[i] &&
                    cp_split_may_follow(p, work->label[from].last, i)) {
                    CP_TRY(extend(x, from, j, i));
                }
            }
        }
        first = end;
        for (int i = first; i < work->n; i++) {
            *bucket_of(work, &work->label[i]) = -1;
        }
        if (x->beam > 0 && j + 1 < p->s->segments) {
            cut_to_beam(work, first, x->beam);
        }
    }
    return CP_OK;
}

/* Walks back from a complete label. */
static void write_plan(const struct search *x, int label, struct cp_cluster_plan *out)
{
    const struct cp_split *s = x->p->s;
    *out = (struct cp_cluster_plan){.mode = CP_MODE_PIPELINE,
                                    .order = s->order,
                                    .segments = s->segments,
                                    .edge_layers = s->edge_layers,
                                    .micro_batches = s->micro_batches,
                                    .uplink_share = s->uplink_share,
                                    .power_up_w = s->power_up_w,
                                    .upload_format = s->upload_format};
    memcpy(out->slots, s->slots, sizeof out->slots);
    memcpy(out->link_format, s->link_format, sizeof out->link_format);
    int at = label;
    for (int j = s->segments - 1; j >= 0; j--) {
        const struct cp_split_label *l = &x->work->label[at];
        out->device[j] = x->p->device[l->last - 1];
        out->layers[j] = l->layers - x->work->label[l->parent].layers;
        at = l->parent;
    }
    out->power_fwd_w[0] = s->power_fwd_w[0];
    for (int j = 0; j < s->segments; j++) {
        int node = out->device[j] + 1;
        out->band_fwd[j] = s->band_fwd[j];
        out->band_bwd[j] = s->band_bwd[j];
        out->power_fwd_w[j + 1] =
            j + 1 < s->segments ? s->power_fwd_w[node] : s->power_edge_w[node];
        out->power_bwd_w[j + 1] = s->power_bwd_w[node];
    }
}

/* --- programs --------------------------------------------------------------------------------- */

/* Ceilings at equal distances from low to high; without a useful high the last one is infinite. */
static void set_ceilings(struct cp_split_program *p, double low, double high)
{
    bool useful = high < FIRST_HIGH * low;
    double step = ((useful ? high : FIRST_HIGH * low) - low) / CP_SPLIT_LEVELS;
    for (int q = 0; q < CP_SPLIT_LEVELS; q++) {
        p->ceiling[q] = low + step * (q + 1);
    }
    p->ceiling[CP_SPLIT_LEVELS - 1] = useful ? high : INFINITY;
}

static cp_err reserve_bounds(struct cp_split_work *work, struct cp_split_program *p)
{
    size_t n = cp_split_bound_size(p);
    if (work->bound_cap < 2 * n) {
        cp_mem_free(work->bound);
        work->bound = NULL;
        work->bound_cap = 0;
        CP_TRY(cp_mem_array(NULL, 2 * n, sizeof *work->bound, &work->bound));
        work->bound_cap = 2 * n;
    }
    p->rest = work->bound;
    p->step = work->bound + n;
    return CP_OK;
}

/* What is known of a program after its first pass. */
struct cp_split_root {
    double bound;      /* of all of its placements */
    double cost;       /* the least without bottlenecks */
    double bottleneck; /* the least */
    bool done;
};

/* Runs a pass below the least value of interest and keeps what is better than before. That value is
 * finite, and with a margin, so that what has just the caller's bound is found. */
static cp_err run_and_keep(struct search *x, int beam, struct cp_split_result *out)
{
    double most = out->found && out->value < x->p->s->bound ? out->value : x->p->s->bound;
    x->beam = beam;
    x->best = fmin(most * (1 + ROUNDING), DBL_MAX);
    cp_err err = run_pass(x);
    if (err != CP_OK) {
        clear_buckets(x->work);
        return err;
    }
    if (x->best_label >= 0 && (!out->found || x->best < out->value)) {
        out->found = true;
        out->value = x->best;
        write_plan(x, x->best_label, &out->plan);
    }
    return CP_OK;
}

/* Bounds, a placement, and what is known of the program then. */
static cp_err first_pass(struct search *x, const struct cp_split *s, struct cp_split_result *out,
                         struct cp_split_root *root)
{
    struct cp_split_program *p = x->p;
    cp_split_program_fill(p, s);
    p->groups = p->sets.n > 0 && p->sets.n <= FIRST_SETS ? &p->sets : &p->sizes;
    CP_TRY(reserve_bounds(x->work, p));
    struct rest fastest = rest_of(p, 0, s->segments);
    double fwd_s = fmax(p->start_fwd_s, p->layers / fastest.fwd_speed);
    double bwd_s = fmax(p->start_bwd_s, p->layers / fastest.bwd_speed);
    *root = (struct cp_split_root){.bottleneck = fwd_s + bwd_s};
    set_ceilings(p, root->bottleneck, INFINITY);
    cp_split_bound_fill(p);
    root->bound = cp_split_bound(p, 0, 0, 0, p->start_cost, fwd_s, bwd_s);
    root->cost = p->start_cost + p->rest[CP_SPLIT_LEVELS - 1];
    return run_and_keep(x, FIRST_PASS, out);
}

/* Everything below the best value so far. */
static cp_err second_pass(struct search *x, const struct cp_split *s, struct cp_split_result *out,
                          const struct cp_split_root *root)
{
    struct cp_split_program *p = x->p;
    if (p->s != s) {
        cp_split_program_fill(p, s);
    }
    p->groups = p->sets.n > 0 ? &p->sets : &p->sizes;
    CP_TRY(reserve_bounds(x->work, p));
    double most = fmin(out->found ? out->value : INFINITY, s->bound) * (1 + ROUNDING);
    set_ceilings(p, root->bottleneck, (most - root->cost) / p->bottleneck);
    cp_split_bound_fill(p);
    if (p->sets.n > FIRST_SETS) {
        CP_TRY(run_and_keep(x, FIRST_PASS, out));
    }
    return run_and_keep(x, p->groups->exact ? 0 : CP_SPLIT_BEAM_LABELS, out);
}

/* The most promising program that may hold something better than what is known; -1: none. */
static int next_program(const struct cp_split *list, int n, const struct cp_split_root *root,
                        const struct cp_split_result *out)
{
    int next = -1;
    for (int i = 0; i < n; i++) {
        bool open = !root[i].done && root[i].bound <= list[i].bound * (1 + ROUNDING) &&
                    (!out->found || root[i].bound < out->value * (1 - ROUNDING));
        if (open && isfinite(root[i].bound) && (next < 0 || root[i].bound < root[next].bound)) {
            next = i;
        }
    }
    return next;
}

static cp_err reserve(struct cp_split_work *work, int n)
{
    if (!work->program) {
        CP_TRY(cp_mem_new(NULL, sizeof *work->program, &work->program));
    }
    if (!work->bucket) {
        CP_TRY(cp_mem_array(NULL, CP_SPLIT_BUCKETS, sizeof *work->bucket, &work->bucket));
        clear_buckets(work);
    }
    if (work->root_cap < n) {
        cp_mem_free(work->root);
        work->root = NULL;
        work->root_cap = 0;
        CP_TRY(cp_mem_array(NULL, (size_t)n, sizeof *work->root, &work->root));
        work->root_cap = n;
    }
    return CP_OK;
}

static enum cp_split_kind kind_of(const struct search *x)
{
    bool heuristic = x->p->sets.n == 0 || x->overflow;
    return heuristic                          ? CP_SPLIT_BEAM
           : x->p->n > CP_SPLIT_EXACT_DEVICES ? CP_SPLIT_TYPES
                                              : CP_SPLIT_EXACT;
}

cp_err cp_split_best(const struct cp_split *list, int n, struct cp_split_work *work,
                     struct cp_split_result *out)
{
    CP_TRY(reserve(work, n));
    struct search x = {.p = work->program, .work = work};
    struct cp_split_result best = {0};
    CP_TRY(cp_split_program_init(x.p, list, n));
    for (int i = 0; i < n; i++) {
        CP_TRY(first_pass(&x, &list[i], &best, &work->root[i]));
    }
    for (int i; !list[0].narrow && (i = next_program(list, n, work->root, &best)) >= 0;) {
        CP_TRY(second_pass(&x, &list[i], &best, &work->root[i]));
        work->root[i].done = true;
    }
    best.kind = list[0].narrow ? CP_SPLIT_BEAM : kind_of(&x);
    *out = best;
    return CP_OK;
}

cp_err cp_split_near(const struct cp_split *s, struct cp_split_work *work,
                     struct cp_cluster_plan *out, int max, int *n, enum cp_split_kind *kind)
{
    assert(max >= 1 && max <= CP_SPLIT_NEAR);
    CP_TRY(reserve(work, 1));
    struct near near = {.max = max};
    struct search x = {.p = work->program, .work = work};
    struct cp_split_result none = {0};
    CP_TRY(cp_split_program_init(x.p, s, 1));
    CP_TRY(first_pass(&x, s, &none, &work->root[0]));
    x.near = &near;
    if (work->root[0].bound <= s->bound * (1 + ROUNDING)) {
        none = (struct cp_split_result){0};
        CP_TRY(second_pass(&x, s, &none, &work->root[0]));
    }
    for (int i = 0; i < near.n; i++) {
        write_plan(&x, near.label[i], &out[i]);
    }
    *n = near.n;
    *kind = kind_of(&x);
    return CP_OK;
}

cp_err cp_split_solve(const struct cp_split *s, struct cp_split_work *work,
                      struct cp_split_result *out)
{
    return cp_split_best(s, 1, work, out);
}
