/*
 * Both searches walk from the edge server to the CU. By sets a state is (devices used, the front
 * one, layers served, whether a fallback is forced); its labels are those of which none is at least
 * as good in value and in q. Labels of a state are extended by the same choices, and the final
 * value falls in neither number, so nothing is lost. A front that outgrows its room is lowered
 * instead: two neighbours become one label with the better number of each. The result may then be
 * below the least value, never above.
 *
 * A label is dropped when no completion can be below what is known. For the layers that are left
 * the bound takes the cheapest and the quickest way if devices could be used twice, and, as the
 * longest stage, the least that the unused devices allow: n layers on a device make its stage n
 * times as long as one, so with r layers left it is the r-th smallest of all such times.
 */
#include "plan/lower_rule.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- fronts ---------------------------------------------------------------------------------- */

/* Sorted by rising cost and falling q. */
static void insert(struct cp_lower_front *f, const struct cp_lower_label *l)
{
    int at = f->n, end;
    while (at > 0 && f->label[at - 1].cost > l->cost) {
        at--;
    }
    if (at > 0 && f->label[at - 1].q_s <= l->q_s) {
        return;
    }
    for (end = at; end < f->n && f->label[end].q_s >= l->q_s; end++) {
    }
    if (end == at && f->n == CP_LOWER_FRONT) {
        if (at < f->n) { /* lower it, and the next with it */
            f->label[at].cost = l->cost;
        } else {
            f->label[at - 1].q_s = l->q_s;
        }
        return;
    }
    memmove(&f->label[at + 1], &f->label[end], (size_t)(f->n - end) * sizeof *f->label);
    f->label[at] = *l;
    f->n += 1 - (end - at);
}

/* --- what is left ---------------------------------------------------------------------------- */

/* rest_cost and rest_s[k][i]: least cost and time in front of device k with i layers served, up to
 * and with the CU's link, if devices may be used twice. */
static void fill_rest(const struct cp_lower_rule *r, struct cp_lower_work *w)
{
    const struct cp_lower_cluster *c = r->c;
    int all = w->layers, n = c->n;
    for (int i = all; i >= 1; i--) {
        for (int k = 0; k < n; k++) {
            double cost = i == all ? r->least[0][k].cost : INFINITY;
            double time_s = i == all ? r->least[0][k].s : INFINITY;
            for (int u = 0; u < n; u++) {
                int room = r->room[u];
                for (int m = 1; u != k && m <= room && i + m <= all; m++) {
                    double rest = r->least[u + 1][k].cost + m * r->layer_cost[u];
                    cost = fmin(cost, rest + w->rest_cost[u * (all + 1) + i + m]);
                    rest = r->least[u + 1][k].s + m * c->layer_s[u];
                    time_s = fmin(time_s, rest + w->rest_s[u * (all + 1) + i + m]);
                }
            }
            w->rest_cost[k * (all + 1) + i] = cost;
            w->rest_s[k * (all + 1) + i] = time_s;
        }
    }
}

/* Lower bounds of all completions of labels in front of k with i layers served. */
struct rest {
    double cost;    /* what is added to the cost */
    double least_s; /* q at least */
    double more_s;  /* what is added to q */
};

static struct rest rest_of(const struct cp_lower_rule *r, const struct cp_lower_work *w, int k,
                           int i, double slot_s)
{
    int at = k * (w->layers + 1) + i;
    if (r->kind == CP_LOWER_OVERLAP) {
        return (struct rest){w->rest_cost[at], r->micro * slot_s + r->c->cu_s,
                             w->rest_s[at] + r->c->cu_s};
    }
    return (struct rest){w->rest_cost[at], slot_s, 0};
}

/* --- by sets --------------------------------------------------------------------------------- */

struct search {
    const struct cp_lower_rule *r;
    struct cp_lower_work *w;
    struct cp_lower_label best;
};

static cp_err keep(struct cp_lower_work *w, const struct cp_lower_front *f, size_t state)
{
    w->many[state] = (int16_t)f->n;
    if (f->n == 0) {
        return CP_OK;
    }
    if (w->n_labels + f->n > w->cap) {
        int cap = 2 * w->cap + f->n + 1024;
        struct cp_lower_label *bigger;
        CP_TRY(cp_mem_array(NULL, (size_t)cap, sizeof *bigger, &bigger));
        if (w->n_labels > 0) {
            memcpy(bigger, w->label, (size_t)w->n_labels * sizeof *bigger);
        }
        cp_mem_free(w->label);
        w->label = bigger;
        w->cap = cap;
    }
    w->first[state] = w->n_labels;
    memcpy(w->label + w->n_labels, f->label, (size_t)f->n * sizeof *f->label);
    w->n_labels += f->n;
    return CP_OK;
}

/* Of 2 L that a set and a front device have. */
static size_t first_state(const struct cp_lower_rule *r, const struct cp_lower_work *w,
                          unsigned set, int k)
{
    return 2 * ((size_t)set * (size_t)r->c->n + (size_t)k) * (size_t)w->layers;
}

/* Fronts of all that may stand behind a new front device k, by layers served; true if there is any.
 */
static bool gather(struct search *x, unsigned rest, int k)
{
    const struct cp_lower_rule *r = x->r;
    struct cp_lower_work *w = x->w;
    int n = r->c->n, all = w->layers;
    for (int i = 0; i < 2 * all; i++) {
        w->source[i].n = 0;
    }
    if (rest == 0) {
        for (int e = 0; e <= r->c->edge_max; e++) {
            for (int i = 0; i < r->c->intervals; i++) {
                insert(&w->source[2 * e + !r->fallback], &cp_lower_base(r, k, e)[i]);
            }
        }
        return true;
    }
    bool any = false;
    for (int u = 0; u < n; u++) {
        for (int i = 2; (rest & 1u << u) && i < 2 * all; i++) {
            size_t state = first_state(r, w, rest, u) + (size_t)i;
            any |= w->many[state] > 0;
            for (int j = 0; j < w->many[state]; j++) {
                for (int h = 0; h < r->c->intervals; h++) {
                    struct cp_lower_label l =
                        cp_lower_hopped(r, &w->label[w->first[state] + j], &r->hop[k + 1][u][h]);
                    if (l.cost < INFINITY) {
                        insert(&w->source[i], &l);
                    }
                }
            }
        }
    }
    return any;
}

/* l is all but the link from the CU. */
static void finish(struct search *x, const struct cp_lower_label *l, int k)
{
    for (int h = 0; h < x->r->c->intervals; h++) {
        struct cp_lower_label end = cp_lower_hopped(x->r, l, &x->r->hop[0][k][h]);
        end.cost = cp_lower_total(x->r, &end);
        x->best = end.cost < x->best.cost ? end : x->best;
    }
}

/* The states (rest and k, k, i), with and without a forced fallback. */
static cp_err settle(struct search *x, unsigned rest, int k, int i)
{
    const struct cp_lower_rule *r = x->r;
    struct cp_lower_work *w = x->w;
    int all = w->layers, room = r->room[k];
    unsigned set = rest | 1u << k;
    double slot_s = r->c->slot_s[(size_t)set * (size_t)(all + 1) + (size_t)(all - i)];
    struct rest left = rest_of(r, w, k, i, slot_s);
    double q_weight = r->weight > 0 ? r->weight : 0;
    double least = left.cost + (q_weight > 0 ? q_weight * left.least_s : 0);
    struct cp_lower_front front[2]; /* their labels are not cleared: there are many */
    front[0].n = front[1].n = 0;
    for (int m = 1; m <= room && m <= i && slot_s < INFINITY; m++) {
        for (int at = 0; at < 2; at++) {
            const struct cp_lower_front *from = &w->source[2 * (i - m) + at];
            int forced = at || m > r->fits[k];
            for (int j = 0; j < from->n; j++) {
                struct cp_lower_label l = from->label[j];
                l.cost += m * r->layer_cost[k];
                if (!(l.cost + least < x->best.cost)) {
                    break; /* those after it cost more */
                }
                l.free += m * r->layer_free[k];
                l.q_s = cp_lower_stage(r, l.q_s, m * r->c->layer_s[k]);
                double q_s = l.q_s + left.more_s;
                if (q_weight > 0 && !(l.cost + left.cost + q_weight * q_s < x->best.cost)) {
                    continue;
                }
                if (i < all) {
                    insert(&front[forced], &l);
                } else if (forced) {
                    finish(x, &l, k);
                }
            }
        }
    }
    for (int forced = 0; i < all && forced < 2; forced++) {
        CP_TRY(keep(w, &front[forced], first_state(r, w, set, k) + (size_t)(2 * i + forced)));
    }
    return CP_OK;
}

cp_err cp_lower_by_sets(const struct cp_lower_rule *r, struct cp_lower_work *w,
                        struct cp_lower_label *out)
{
    struct search x = {.r = r, .w = w, .best = {.cost = r->known}};
    w->n_labels = 0;
    fill_rest(r, w);
    for (unsigned set = 1; set < 1u << r->c->n; set++) {
        for (int k = 0; k < r->c->n; k++) {
            if (!(set & 1u << k)) {
                continue;
            }
            memset(w->many + first_state(r, w, set, k), 0, 2 * (size_t)w->layers * sizeof *w->many);
            bool any = gather(&x, set & ~(1u << k), k);
            for (int i = 1; any && i <= w->layers; i++) {
                CP_TRY(settle(&x, set & ~(1u << k), k, i));
            }
        }
    }
    if (x.best.cost < r->known) {
        *out = x.best;
    }
    return CP_OK;
}

/* --- by counts ------------------------------------------------------------------------------- */

/*
 * Who holds how many layers, whatever the order: a device that is used has its cheapest incoming
 * link, the edge server the cheapest one of all. For each time that a longest stage, or what stands
 * for it at the edge server, can have, the least cost with no longer one.
 */
struct counts {
    const struct cp_lower_rule *r;
    struct cp_lower_work *w;
    int in[CP_DEVICES_MAX]; /* node of the cheapest incoming link */
    double first_s;         /* overlap: least time before the first device */
};

/* The longest stage that asks for as much q as a base does. */
static double stage_of(const struct cp_lower_rule *r, const struct cp_lower_label *base)
{
    return r->kind == CP_LOWER_OVERLAP ? base->q_s / r->micro : base->q_s;
}

static void cheaper(struct cp_lower_label *a, double cost, double free, double uplink)
{
    if (cost < a->cost) {
        *a = (struct cp_lower_label){.cost = cost, .free = free, .uplink = uplink};
    }
}

/* The least sum of costs where no stage is longer than limit_s. */
static struct cp_lower_label least_below(const struct counts *x, double limit_s)
{
    const struct cp_lower_rule *r = x->r;
    const struct cp_lower_cluster *c = r->c;
    int all = x->w->layers;
    struct cp_lower_label *now = x->w->count, *next = now + all + 1;
    for (int i = 0; i <= all; i++) {
        now[i] = (struct cp_lower_label){.cost = INFINITY};
        for (int k = 0; i <= c->edge_max && k < c->n; k++) {
            const struct cp_lower_label *b = cp_lower_base(r, k, i);
            for (int h = 0; h < c->intervals; h++) {
                if (!(r->weight > 0) || stage_of(r, &b[h]) <= limit_s) {
                    cheaper(&now[i], b[h].cost, b[h].free, b[h].uplink);
                }
            }
        }
    }
    for (int k = 0; k < c->n; k++) {
        double link = r->least[x->in[k]][k].cost, free = r->least[x->in[k]][k].free;
        int most = r->room[k];
        most = most * c->layer_s[k] > limit_s ? (int)(limit_s / c->layer_s[k] * (1 + 1e-12)) : most;
        for (int i = 0; i <= all; i++) {
            next[i] = now[i];
            for (int m = 1; m <= most && m <= i; m++) {
                const struct cp_lower_label *l = &now[i - m];
                cheaper(&next[i], l->cost + link + m * r->layer_cost[k],
                        l->free + free + m * r->layer_free[k], l->uplink);
            }
        }
        struct cp_lower_label *other = now;
        now = next;
        next = other;
    }
    return now[all];
}

static double q_below(const struct counts *x, double limit_s)
{
    double q_s = x->r->kind == CP_LOWER_OVERLAP ? x->first_s + x->r->micro * limit_s : limit_s;
    return x->r->weight > 0 ? x->r->weight * q_s : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void start_counts(struct counts *x)
{
    const struct cp_lower_rule *r = x->r;
    const struct cp_lower_cluster *c = r->c;
    x->first_s = INFINITY;
    for (int k = 0; k < c->n; k++) {
        x->first_s = fmin(x->first_s, c->cu_s + r->least[0][k].s);
        for (int u = x->in[k] = 0; u <= c->n; u++) {
            x->in[k] = r->least[u][k].cost < r->least[x->in[k]][k].cost ? u : x->in[k];
        }
    }
}

void cp_lower_by_counts(const struct cp_lower_rule *r, struct cp_lower_work *w,
                        struct cp_lower_label *out)
{
    const struct cp_lower_cluster *c = r->c;
    struct counts x = {.r = r, .w = w};
    int n = 0;
    start_counts(&x);
    for (int k = 0; k < c->n; k++) {
        for (int m = 1; m <= r->room[k] && m <= w->layers; m++) {
            w->stage_s[n++] = m * c->layer_s[k];
        }
    }
    for (int i = 0; i < c->n * (c->edge_max + 1) * c->intervals && r->weight > 0; i++) {
        if (r->base[i].cost < INFINITY) {
            w->stage_s[n++] = stage_of(r, &r->base[i]);
        }
    }
    qsort(w->stage_s, (size_t)n, sizeof *w->stage_s, compare_doubles);
    double floor = n > 0 ? least_below(&x, w->stage_s[n - 1]).cost : INFINITY, known = r->known;
    double least_s = c->slot_s[w->layers - c->edge_max];
    int first = r->weight > 0 ? 0 : n - 1; /* a limit only costs where q is worth nothing */
    for (int i = first; i >= 0 && i < n && floor + q_below(&x, w->stage_s[i]) < known; i++) {
        if (w->stage_s[i] < least_s || w->stage_s[i] <= r->range.low_s ||
            (i + 1 < n && w->stage_s[i + 1] == w->stage_s[i])) {
            continue;
        }
        struct cp_lower_label l = least_below(&x, w->stage_s[i]);
        l.cost += q_below(&x, w->stage_s[i]);
        if (l.cost < known) {
            known = l.cost;
            *out = l;
        }
    }
}
