/*
 * Constants and bounds of a program.
 *
 * The bounds are another dynamic program, from the end to the start, with one number per state
 * instead of labels. rest[group][u][i][q] is the least cost that can follow when i layers are
 * placed on a set of the group, node u last, if no link and no step after it takes longer than
 * ceiling q, forwards and backwards together; step[group][u][i][q] is the same seen from before the
 * step that makes u the last.
 *
 * cp_split_bound() is a lower bound of every completion of a label: let a completion's slowest
 * item after the label take t, and q be the first level with t <= ceiling q. Its further cost is
 * at least rest[..][q]. Its m^F + m^B is at least what the label has, and above ceiling q - 1,
 * because an item's two times are at most m^F and m^B. The minimum over q covers every completion
 * below the last ceiling; the others are above the value that this ceiling was made from.
 *
 * Groups. By sets: the set tells who can follow, so rest is exact for its ceiling, and finite where
 * the label can be completed at all. By size: anybody but the last device can follow, which only
 * adds completions: the bound stays one, and costs little to make.
 */
#include "plan/split_impl.h"

#include "world/radio.h"

#include <math.h>
#include <string.h>

/* Slots do not rise along the pipeline. */
static bool overlaps(const struct cp_split *s)
{
    return s->slots[s->segments + 1] < s->micro_batches;
}

/* One micro-batch after another (seq): no bottleneck, all of Sigma M times. */
static bool one_by_one(const struct cp_split *s)
{
    return s->slots[0] == 1;
}

/* The cost of a second that every micro-batch spends in the pipeline alone (Sigma). */
static double latency_weight(const struct cp_split *s)
{
    return s->sum_weight * (one_by_one(s) ? s->v * s->micro_batches : s->v);
}

/* --- devices, twins, groups ------------------------------------------------------------------- */

/* Whether two present devices can change places in every placement without any difference. */
static bool are_twins(const struct cp_split *s, int a, int b)
{
    const struct cp_cluster *cl = &s->world->cluster[s->cluster];
    const struct cp_device *x = &cl->device[a], *y = &cl->device[b];
    int u = a + 1, v = b + 1;
    bool same =
        !s->index_order && x->rate_flops == y->rate_flops && x->energy_j_flop == y->energy_j_flop &&
        x->mem_bytes == y->mem_bytes && x->power_d2d_w == y->power_d2d_w &&
        s->price[u] == s->price[v] && s->power_fwd_w[u] == s->power_fwd_w[v] &&
        s->power_edge_w[u] == s->power_edge_w[v] && s->power_bwd_w[u] == s->power_bwd_w[v] &&
        cl->gain_d2e[u] == cl->gain_d2e[v] && cl->gain_d2d[u][v] == cl->gain_d2d[v][u];
    for (int node = 0; same && node <= cl->n_devices; node++) {
        if (node != u && node != v) {
            same = cl->gain_d2d[node][u] == cl->gain_d2d[node][v] &&
                   cl->gain_d2d[u][node] == cl->gain_d2d[v][node];
        }
    }
    return same;
}

/* Being twins is an equivalence, so it is enough to ask the last one before. */
static void find_twins(struct cp_split_program *p, const struct cp_split *list, int n)
{
    for (int i = 0; i < p->n; i++) {
        p->twins[i] = 0;
        for (int before = i - 1; before >= 0; before--) {
            bool twins = true;
            for (int l = 0; l < n && twins; l++) {
                twins = are_twins(&list[l], p->device[before], p->device[i]);
            }
            if (twins) {
                p->twins[i] = p->twins[before] | 1u << before;
                break;
            }
        }
    }
}

/* All sets that use twins in their order, numbered so that a larger set comes later. */
static void make_sets(const struct cp_split_program *p, struct cp_split_groups *out)
{
    uint32_t members[CP_SPLIT_GROUPS_MAX];
    members[0] = 0;
    out->exact = true;
    out->size[0] = 0;
    out->n = 1;
    for (int i = 0; i < p->n; i++) {
        int place = p->twins[i] ? 0 : out->n; /* twins are counted with the first of their kind */
        uint32_t used = 0;
        for (int k = i; k < p->n && place > 0; k++) {
            if (k != i && !(p->twins[k] & 1u << i)) {
                continue;
            }
            used |= 1u << k;
            out->place[k] = place;
            for (int g = 0; g < place; g++) {
                members[out->n] = members[g] | used;
                out->size[out->n] = (int8_t)(out->size[g] + __builtin_popcount(used));
                out->n++;
            }
        }
    }
    for (int g = 0; g < out->n; g++) {
        out->end[g] = members[g];
        out->follow[g] = 0;
        for (int i = 0; i < p->n; i++) {
            if (members[g] & 1u << i) {
                out->end[g] &= ~p->twins[i];
            } else if ((members[g] & p->twins[i]) == p->twins[i]) {
                out->follow[g] |= 1u << i;
            }
        }
    }
}

/* All sets of a size together. Their members are not known: anybody may be last, or follow. */
static void make_sizes(const struct cp_split_program *p, struct cp_split_groups *out)
{
    out->exact = false;
    out->n = p->n + 1;
    for (int g = 0; g <= p->n; g++) {
        out->size[g] = (int8_t)g;
        out->end[g] = out->follow[g] = (1u << p->n) - 1;
    }
    for (int i = 0; i < p->n; i++) {
        out->place[i] = 1;
    }
}

cp_err cp_split_program_init(struct cp_split_program *p, const struct cp_split *list, int n)
{
    const struct cp_world *w = list[0].world;
    CP_TRY(cp_draft_present(&w->cluster[list[0].cluster], p->device, &p->n));
    p->s = NULL;
    find_twins(p, list, n);
    make_sizes(p, &p->sizes);
    double sets = 1;
    for (int i = 0; i < p->n; i++) {
        int twins = __builtin_popcount(p->twins[i]); /* n of a kind: x 2/1 x 3/2 x ... (n+1)/n */
        sets *= (twins + 2.0) / (twins + 1);
    }
    double states = sets * (p->n + 1) * (w->model.layers + 1);
    p->sets.n = 0;
    if (sets < CP_SPLIT_GROUPS_MAX + 0.5 && states <= CP_SPLIT_STATES_MAX) {
        make_sets(p, &p->sets);
    }
    return CP_OK;
}

/* --- constants -------------------------------------------------------------------------------- */

static void fill_devices(struct cp_split_program *p)
{
    const struct cp_split *s = p->s;
    const struct cp_world *w = s->world;
    const struct cp_cluster *cl = &w->cluster[s->cluster];
    const struct cp_part_cost *layer = &w->model.layer;
    double steps = w->local_steps, bits = cp_layers_bits(w, 1);
    for (int i = 0; i < p->n; i++) {
        int k = p->device[i];
        const struct cp_device *d = &cl->device[k];
        double gain = cl->gain_d2d[0][k + 1], band = w->radio.band_d2d_hz;
        double out_s = bits / cp_rate_bps(1, band, cl->cu.power_d2d_w, gain, w->radio.noise_w_hz);
        double in_s = bits / cp_rate_bps(1, band, d->power_d2d_w, gain, w->radio.noise_w_hz);
        p->layer_fwd_s[i] = layer->work_fwd_flops / d->rate_flops;
        p->layer_bwd_s[i] = layer->work_bwd_flops / d->rate_flops;
        double joule = d->energy_j_flop * (layer->work_fwd_flops + layer->work_bwd_flops);
        p->layer_cost[i] = steps * (latency_weight(s) * (p->layer_fwd_s[i] + p->layer_bwd_s[i]) +
                                    s->micro_batches * s->price[k + 1] * joule) +
                           s->sum_weight * s->v * (out_s + in_s) +
                           s->price[k + 1] * d->power_d2d_w * in_s +
                           s->price[0] * cl->cu.power_d2d_w * out_s;
        for (int j = 0; j < s->segments; j++) {
            p->room[j][i] = cp_room_layers(s->room, k, s->slots[j + 1]);
        }
    }
}

/* Link j from node u to device i. */
static void fill_link(struct cp_split_program *p, int j, int u, int i, double band_hz)
{
    const struct cp_split *s = p->s;
    const struct cp_world *w = s->world;
    int from = u == 0 ? 0 : p->device[u - 1] + 1, to = p->device[i] + 1;
    double g = w->cluster[s->cluster].gain_d2d[from][to], n0 = w->radio.noise_w_hz;
    double fwd_w = s->power_fwd_w[from], bwd_w = s->power_bwd_w[to];
    double fwd_bits = cp_link_fwd_bits(w, s->link_format[j]);
    double bwd_bits = cp_link_bwd_bits(w, s->link_format[j]);
    double f = fwd_bits / cp_rate_bps(s->band_fwd[j], band_hz, fwd_w, g, n0);
    double b = bwd_bits / cp_rate_bps(s->band_bwd[j], band_hz, bwd_w, g, n0);
    p->fwd_s[j][u][i] = f;
    p->bwd_s[j][u][i] = b;
    p->link_cost[j][u][i] =
        w->local_steps *
        (latency_weight(s) * (f + b) +
         s->micro_batches * (s->price[from] * fwd_w * f + s->price[to] * bwd_w * b));
}

static void fill_links(struct cp_split_program *p)
{
    const struct cp_split *s = p->s;
    double band_hz = s->world->radio.band_d2d_hz * (overlaps(s) ? 0.5 : 1);
    for (int i = 0; i < p->n; i++) {
        fill_link(p, 0, 0, i, band_hz);
    }
    for (int j = 1; j < s->segments; j++) {
        if (j > 1 && s->band_fwd[j] == s->band_fwd[j - 1] && s->band_bwd[j] == s->band_bwd[j - 1] &&
            s->link_format[j] == s->link_format[j - 1]) {
            size_t used = (size_t)(p->n + 1) * sizeof p->fwd_s[j][0];
            memcpy(p->fwd_s[j], p->fwd_s[j - 1], used);
            memcpy(p->bwd_s[j], p->bwd_s[j - 1], used);
            memcpy(p->link_cost[j], p->link_cost[j - 1], used);
            continue;
        }
        for (int u = 1; u <= p->n; u++) {
            for (int i = 0; i < p->n; i++) {
                if (u != i + 1) {
                    fill_link(p, j, u, i, band_hz);
                }
            }
        }
    }
}

static void fill_edge(struct cp_split_program *p)
{
    const struct cp_split *s = p->s;
    const struct cp_world *w = s->world;
    double fwd_bits = cp_link_fwd_bits(w, s->link_format[s->segments]);
    double bwd_bits = cp_link_bwd_bits(w, s->link_format[s->segments]);
    for (int i = 0; i < p->n; i++) {
        int node = p->device[i] + 1;
        double g = w->cluster[s->cluster].gain_d2e[node], power = s->power_edge_w[node];
        double rate =
            cp_rate_bps(s->uplink_share, w->radio.band_up_hz, power, g, w->radio.noise_w_hz);
        double f = fwd_bits / rate, b = bwd_bits / cp_rate_down_bps(s->uplink_share, &w->radio, g);
        p->edge_fwd_s[i] = f;
        p->edge_bwd_s[i] = b;
        p->edge_cost[i] = w->local_steps * (latency_weight(s) * (f + b) +
                                            s->micro_batches * s->price[node] * power * f);
    }
}

/* Theta_0 and the bottlenecks that do not depend on the cut: CU, edge server, upload. */
static void fill_start(struct cp_split_program *p)
{
    const struct cp_split *s = p->s;
    const struct cp_world *w = s->world;
    const struct cp_cluster *cl = &w->cluster[s->cluster];
    const struct cp_part_cost *emb = &w->model.emb, *head = &w->model.head;
    const struct cp_part_cost *layer = &w->model.layer;
    double server = w->server_flops / w->n_clusters;
    double emb_fwd = emb->work_fwd_flops / cl->cu.rate_flops;
    double emb_bwd = emb->work_bwd_flops / cl->cu.rate_flops;
    double head_fwd = (head->work_fwd_flops + s->edge_layers * layer->work_fwd_flops) / server;
    double head_bwd = (head->work_bwd_flops + s->edge_layers * layer->work_bwd_flops) / server;
    double joule = cl->cu.energy_j_flop * (emb->work_fwd_flops + emb->work_bwd_flops);
    double bits =
        cp_upload_bits(w, s->edge_layers) * cp_format_size(s->upload_format, w->model.width);
    double upload_s = bits / cp_rate_bps(s->uplink_share, w->radio.band_up_hz, s->power_up_w,
                                         cl->gain_d2e[0], w->radio.noise_w_hz);
    p->start_cost =
        w->local_steps * (latency_weight(s) * (emb_fwd + emb_bwd + head_fwd + head_bwd) +
                          s->micro_batches * s->price[0] * joule) +
        (s->sum_weight * s->v + s->price[0] * s->power_up_w) * upload_s +
        s->micro_price / s->micro_batches;
    p->start_fwd_s = fmax(emb_fwd, head_fwd);
    p->start_bwd_s = fmax(emb_bwd, head_bwd);
}

void cp_split_program_fill(struct cp_split_program *p, const struct cp_split *s)
{
    int depth = one_by_one(s) ? 0 : s->micro_batches - 1;
    p->s = s;
    p->layers = s->world->model.layers - s->edge_layers;
    p->bottleneck = s->world->local_steps * s->v * depth;
    fill_devices(p);
    fill_links(p);
    fill_edge(p);
    fill_start(p);
}

/* --- bounds ----------------------------------------------------------------------------------- */

static size_t row(const struct cp_split_program *p, int group, int u)
{
    size_t state = ((size_t)group * (size_t)(p->n + 1) + (size_t)u) * (size_t)(p->layers + 1);
    return state * CP_SPLIT_LEVELS;
}

size_t cp_split_bound_size(const struct cp_split_program *p)
{
    return row(p, p->groups->n, 0);
}

/* Cost at each level of something that takes a time: infinite above the ceiling. */
static void at_levels(const struct cp_split_program *p, double time_s, double cost,
                      double out[CP_SPLIT_LEVELS])
{
    for (int q = 0; q < CP_SPLIT_LEVELS; q++) {
        out[q] = time_s <= p->ceiling[q] ? cost : INFINITY;
    }
}

/* to[i] = min(to[i], from[i] + add) over n layer counts, at each level. */
static void relax(double *restrict to, const double *restrict from, int n,
                  const double add[CP_SPLIT_LEVELS])
{
    for (int i = 0; i < n; i++) {
        for (int q = 0; q < CP_SPLIT_LEVELS; q++) {
            double sum = from[i * CP_SPLIT_LEVELS + q] + add[q];
            double *best = &to[i * CP_SPLIT_LEVELS + q];
            *best = sum < *best ? sum : *best;
        }
    }
}

static void set_infinite(double *x, int n)
{
    for (int i = 0; i < n * CP_SPLIT_LEVELS; i++) {
        x[i] = INFINITY;
    }
}

/* Layers that can be placed when j segments are: at least one for each of them, and one is left
 * for each of the others. */
static int least_placed(const struct cp_split_program *p, int j)
{
    return j == p->s->segments ? p->layers : j;
}

static int most_placed(const struct cp_split_program *p, int j)
{
    return j == 0 ? 0 : p->layers - (p->s->segments - j);
}

/* What is left after `group` with node u last: the next link, and the best step after it. */
static void fill_rest(struct cp_split_program *p, int group, int u)
{
    int j = p->groups->size[group], low = least_placed(p, j), n = most_placed(p, j) - low + 1;
    double *rest = p->rest + row(p, group, u) + low * CP_SPLIT_LEVELS, add[CP_SPLIT_LEVELS];
    if (j == p->s->segments) {
        at_levels(p, p->edge_fwd_s[u - 1] + p->edge_bwd_s[u - 1], p->edge_cost[u - 1], rest);
        return;
    }
    set_infinite(rest, n);
    for (int i = 0; i < p->n; i++) {
        if (p->groups->follow[group] & 1u << i && cp_split_may_follow(p, u, i)) {
            const double *step = p->step + row(p, group + p->groups->place[i], i + 1);
            at_levels(p, p->fwd_s[j][u][i] + p->bwd_s[j][u][i], p->link_cost[j][u][i], add);
            relax(rest, step + low * CP_SPLIT_LEVELS, n, add);
        }
    }
}

/* The best step that makes device i the last of `group`: its layers, and what is left then. */
static void fill_step(struct cp_split_program *p, int group, int i)
{
    int j = p->groups->size[group], low = least_placed(p, j - 1), high = most_placed(p, j - 1);
    double *step = p->step + row(p, group, i + 1), add[CP_SPLIT_LEVELS];
    const double *rest = p->rest + row(p, group, i + 1);
    set_infinite(step + low * CP_SPLIT_LEVELS, high - low + 1);
    for (int d = 1; d <= p->room[j - 1][i] && low + d <= most_placed(p, j); d++) {
        int first = least_placed(p, j) - d > low ? least_placed(p, j) - d : low;
        int last = most_placed(p, j) - d < high ? most_placed(p, j) - d : high;
        at_levels(p, d * p->layer_fwd_s[i] + d * p->layer_bwd_s[i], d * p->layer_cost[i], add);
        if (first <= last) {
            relax(step + first * CP_SPLIT_LEVELS, rest + (first + d) * CP_SPLIT_LEVELS,
                  last - first + 1, add);
        }
    }
}

void cp_split_bound_fill(struct cp_split_program *p)
{
    for (int g = p->groups->n - 1; g > 0; g--) {
        for (int i = 0; i < p->n && p->groups->size[g] <= p->s->segments; i++) {
            if (p->groups->end[g] & 1u << i) {
                fill_rest(p, g, i + 1);
                fill_step(p, g, i);
            }
        }
    }
    fill_rest(p, 0, 0);
}
