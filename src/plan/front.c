#include "plan/front.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void cp_front_fini(struct cp_front *f)
{
    cp_mem_free(f->item);
    *f = (struct cp_front){0};
}

static cp_err grow(struct cp_front *f)
{
    int cap = f->cap ? 2 * f->cap : 32;
    struct cp_candidate *bigger;
    CP_TRY(cp_mem_array(NULL, (size_t)cap, sizeof *bigger, &bigger));
    if (f->n > 0) {
        memcpy(bigger, f->item, (size_t)f->n * sizeof *bigger);
    }
    cp_mem_free(f->item);
    f->item = bigger;
    f->cap = cap;
    return CP_OK;
}

/* Searches offer thousands of plans, of which few are worth keeping: a place is made by dropping
 * the others, as long as that frees half of the memory. */
static cp_err make_room(struct cp_front *f)
{
    cp_front_reduce(f);
    return f->n >= (f->cap + 1) / 2 ? grow(f) : CP_OK;
}

cp_err cp_front_add(struct cp_front *f, const struct cp_policy_args *a, int cluster,
                    const struct cp_cluster_plan *plan)
{
    if (f->n == f->cap) {
        CP_TRY(make_room(f));
    }
    struct cp_value v = cp_draft_value(plan, a->world, a->queues, cluster);
    double broadcast_s = cp_broadcast_s(plan, cluster, a->world);
    if (v.time_s + broadcast_s <= CP_ROUND_MOST_S && isfinite(v.cost)) {
        f->item[f->n++] = (struct cp_candidate){v, broadcast_s, *plan};
    }
    return CP_OK;
}

/* --- order and dominance --------------------------------------------------------------------- */

static int compare_reals(double x, double y)
{
    return (x > y) - (x < y);
}

static int compare_ints(const int *x, const int *y, int n)
{
    for (int i = 0; i < n; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i] ? -1 : 1;
        }
    }
    return 0;
}

/* What tells apart two plans of equal value. Field by field, because bytes between fields may be
 * anything; formats, shares and powers follow from these or change the value. */
static int compare_plans(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y)
{
    const int a[] = {(int)x->mode, x->segments, (int)x->order, x->micro_batches, x->edge_layers};
    const int b[] = {(int)y->mode, y->segments, (int)y->order, y->micro_batches, y->edge_layers};
    int sign = compare_ints(a, b, (int)(sizeof a / sizeof a[0]));
    sign = sign ? sign : compare_ints(x->device, y->device, x->segments);
    sign = sign ? sign : compare_ints(x->layers, y->layers, x->segments);
    return sign ? sign : compare_ints(x->slots, y->slots, x->segments + 2);
}

/* By time, cost and broadcast; plans that are equal in all by what they are (fewer segments first,
 * then the order that holds less), so that the choice does not hang on how qsort treats them. */
static int compare_candidates(const void *a, const void *b)
{
    const struct cp_candidate *x = a, *y = b;
    int sign = compare_reals(x->value.time_s, y->value.time_s);
    sign = sign ? sign : compare_reals(x->value.cost, y->value.cost);
    sign = sign ? sign : compare_reals(x->broadcast_s, y->broadcast_s);
    return sign ? sign : compare_plans(&x->plan, &y->plan);
}

void cp_front_reduce(struct cp_front *f)
{
    if (f->n == 0) {
        return; /* qsort may not be given NULL */
    }
    qsort(f->item, (size_t)f->n, sizeof *f->item, compare_candidates);
    int kept = 0;
    for (int i = 0; i < f->n; i++) {
        bool beaten = false; /* by one that is no slower: those are kept already */
        for (int k = 0; k < kept && !beaten; k++) {
            beaten = f->item[k].value.cost <= f->item[i].value.cost &&
                     f->item[k].broadcast_s <= f->item[i].broadcast_s;
        }
        if (!beaten) {
            f->item[kept++] = f->item[i];
        }
    }
    f->n = kept;
}

/* --- merge ----------------------------------------------------------------------------------- */

struct step { /* from this time on, a cluster can have this candidate */
    double time_s;
    int cluster, item;
};

struct merge {
    const struct cp_front *front;
    int n;
    double v;
    struct step *step;
    int n_steps;
    int *now, *pick; /* per cluster */
    double best;
};

static int compare_steps(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    int sign = compare_reals(x->time_s, y->time_s);
    const int i[] = {x->cluster, x->item}, j[] = {y->cluster, y->item};
    return sign ? sign : compare_ints(i, j, 2);
}

/*
 * Tries every candidate's time as the round time, in rising order, with candidates of at most this
 * T_bc: each cluster has the cheapest that it could have had until then.
 */
static void sweep(struct merge *m, double broadcast_s)
{
    double cost = 0;
    int ready = 0;
    for (int c = 0; c < m->n; c++) {
        m->now[c] = -1;
    }
    for (int i = 0; i < m->n_steps; i++) {
        const struct step *s = &m->step[i];
        const struct cp_candidate *x = &m->front[s->cluster].item[s->item];
        int *now = &m->now[s->cluster];
        double had = *now < 0 ? INFINITY : m->front[s->cluster].item[*now].value.cost;
        if (x->broadcast_s > broadcast_s || !(x->value.cost < had)) {
            continue;
        }
        ready += *now < 0;
        cost += x->value.cost - (*now < 0 ? 0 : had);
        *now = s->item;
        double value = m->v * (s->time_s + broadcast_s) + cost;
        if (ready == m->n && value < m->best) {
            m->best = value;
            memcpy(m->pick, m->now, (size_t)m->n * sizeof *m->pick);
        }
    }
}

static int compare_doubles(const void *a, const void *b)
{
    return compare_reals(*(const double *)a, *(const double *)b);
}

/* The different T_bc that the round can have, in rising order and thinned out; returns how many. No
 * cluster is left without a candidate by any of them. */
static int broadcasts(const struct merge *m, double *all, double out[CP_FRONT_BROADCASTS])
{
    int n = 0, different = 0;
    double least = 0; /* the least T_bc that every cluster can keep */
    for (int c = 0; c < m->n; c++) {
        double shortest = INFINITY;
        for (int i = 0; i < m->front[c].n; i++) {
            all[n++] = m->front[c].item[i].broadcast_s;
            shortest = fmin(shortest, m->front[c].item[i].broadcast_s);
        }
        least = fmax(least, shortest);
    }
    qsort(all, (size_t)n, sizeof *all, compare_doubles);
    for (int i = 0; i < n; i++) {
        if (all[i] >= least && (different == 0 || all[i] > all[different - 1])) {
            all[different++] = all[i];
        }
    }
    int most = different < CP_FRONT_BROADCASTS ? different : CP_FRONT_BROADCASTS;
    for (int i = 0; i < most; i++) {
        out[i] = all[(int)((double)(i + 1) * different / most) - 1];
    }
    return most;
}

static void merge(struct merge *m, double *scratch)
{
    double broadcast_s[CP_FRONT_BROADCASTS];
    int n = broadcasts(m, scratch, broadcast_s);
    for (int c = 0; c < m->n; c++) {
        for (int i = 0; i < m->front[c].n; i++) {
            m->step[m->n_steps++] = (struct step){m->front[c].item[i].value.time_s, c, i};
        }
    }
    qsort(m->step, (size_t)m->n_steps, sizeof *m->step, compare_steps);
    for (int i = 0; i < n; i++) {
        sweep(m, broadcast_s[i]);
    }
}

cp_err cp_front_merge(const struct cp_front *front, int n, double v, int *pick)
{
    struct merge m = {.front = front, .n = n, .v = v, .pick = pick, .best = INFINITY};
    size_t all = 0;
    for (int c = 0; c < n; c++) {
        all += (size_t)front[c].n;
    }
    double *scratch = NULL;
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_array(NULL, all, sizeof *m.step, &m.step), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, all, sizeof *scratch, &scratch), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n, sizeof *m.now, &m.now), done);
    merge(&m, scratch);
done:
    cp_mem_free(m.step);
    cp_mem_free(scratch);
    cp_mem_free(m.now);
    return err;
}
