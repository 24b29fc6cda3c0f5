/* The lower bound of section 11.8 against enumeration, random plans, every policy, and itself with
 * random prices. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/lower_cluster.h"
#include "plan/lower_rule.h"
#include "unit/plan/situations.h"

static const double FREE = 1e300; /* no limit */

static double bound_of(const struct cp_policy_args *a, const struct cp_lower_set *set,
                       const struct cp_plan *p, enum cp_lower_effort effort)
{
    double bound = NAN;
    assert_int_equal(cp_lower_bound(a, set, p, effort, &bound), CP_OK);
    assert_false(isnan(bound));
    return bound;
}

/* --- times on the air ------------------------------------------------------------------------ */

static void least_of_the_air_is_a_tight_bound(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 8, 0);
    for (int i = 0; i < 400; i++) {
        struct cp_air_sum f = {.n = 1 + (int)cp_rng_below(&r, 2)};
        for (int j = 0; j < f.n; j++) {
            f.air[j] =
                (struct cp_air){pow(10, cp_rng_range(&r, -3, 3)), pow(10, cp_rng_range(&r, -9, 9))};
            f.weight[j] = i % 5 ? cp_rng_range(&r, 0, 2) : 0;
        }
        f.inverse = i % 3 ? 0 : cp_rng_range(&r, 0, 2);
        double x, price = i % 7 ? pow(10, cp_rng_range(&r, -4, 5)) : 0;
        double low = i % 2 ? 0 : cp_rng_range(&r, 0, 0.4), high = i % 4 ? 1 : low + 0.3;
        double least = cp_air_least(&f, price, low, high, &x), grid = FREE;
        for (int k = low > 0 ? 0 : 1; k <= 4000; k++) {
            double at = low > 0 ? low + (high - low) * k / 4000 : high * pow(1e-7, 1 - k / 4000.0);
            grid = fmin(grid, cp_air_sum_s(&f, at) + price * at);
        }
        assert_true(least <= grid * (1 + 1e-12));
        assert_true(least >= grid * (1 - 1e-3) - 1e-5 * price);
        assert_true(x > 0 && x <= high);
        assert_true(x >= low);
    }
}

static void clearing_price_shares_the_band(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 2, CP_RNG_TEST, 8, 0);
    for (int i = 0; i < 100; i++) {
        int n = 2 + (int)cp_rng_below(&r, 6);
        struct cp_air_sum f[8];
        for (int j = 0; j < n; j++) {
            struct cp_air air = {cp_rng_range(&r, 0.01, 1), pow(10, cp_rng_range(&r, 0, 6))};
            f[j] = (struct cp_air_sum){.n = 1, .air = {air}, .weight = {1}};
        }
        double x, sum = 0, price = cp_air_clearing_price(f, n);
        for (int j = 0; j < n; j++) {
            cp_air_least(&f[j], price, 0, 1, &x);
            sum += x;
        }
        assert_true(fabs(sum - 1) < 1e-3);
        assert_true(cp_air_clearing_price(f, 1) == 0);
    }
}

/* --- random plans ---------------------------------------------------------------------------- */

/* Any plan of a cluster that a set allows: cut, order, slots, radio, formats. False if it does not
 * fit. */
static bool draw_cluster(struct cp_cluster_plan *p, const struct cp_policy_args *a, int cluster,
                         const struct cp_lower_set *set, struct cp_rng *r)
{
    const struct cp_world *w = a->world;
    const struct cp_cluster *cl = &w->cluster[cluster];
    int device[CP_DEVICES_MAX], n, left = w->model.layers;
    if (cp_draft_present(cl, device, &n) != CP_OK) {
        return false;
    }
    *p = (struct cp_cluster_plan){.mode = CP_MODE_PIPELINE};
    p->edge_layers = set && set->edge_layers ? (int)cp_rng_below(r, (uint32_t)left) : 0;
    left -= p->edge_layers;
    p->micro_batches = a->choose_micro ? 1 + (int)cp_rng_below(r, (uint32_t)w->micro_max)
                                       : cp_draft_micro(a, cluster);
    for (int i = n - 1; i > 0; i--) {
        int j = (int)cp_rng_below(r, (uint32_t)i + 1), k = device[i];
        device[i] = device[j];
        device[j] = k;
    }
    int most = n < left ? n : left;
    p->segments = 1 + (int)cp_rng_below(r, (uint32_t)most);
    for (int s = 0; s < p->segments; s++) {
        p->device[s] = device[s];
        p->layers[s] = 1;
    }
    for (int i = p->segments; i < left; i++) {
        p->layers[cp_rng_below(r, (uint32_t)p->segments)]++;
    }
    struct cp_order_list list = cp_draft_orders(a);
    int pick = (int)cp_rng_below(r, (uint32_t)list.all);
    p->order = list.order[pick];
    cp_plan_set_slots(p);
    int bound = p->micro_batches;
    for (int j = 0; p->order == CP_ORDER_1F1B && j < p->segments + 2; j++) {
        bound = 1 + (int)cp_rng_below(r, (uint32_t)bound);
        bound = cp_rng_below(r, 3) ? bound : p->slots[j] < bound ? p->slots[j] : bound;
        p->slots[j] = bound;
    }
    cp_draft_radio(p, w, cluster);
    double part = cp_plan_overlaps(p) ? 0.5 : 1, fwd = 0, bwd = 0;
    for (int s = 0; s < p->segments; s++) {
        fwd += p->band_fwd[s] = cp_rng_range(r, 0.05, 1);
        bwd += p->band_bwd[s] = cp_rng_range(r, 0.05, 1);
    }
    for (int s = 0; s < p->segments; s++) {
        double power = cp_rng_unit(r) < 0.7 ? 1 : cp_rng_range(r, 2e-3, 1);
        double split = part < 1 ? cp_rng_range(r, 0.01, 0.99) : 1;
        p->band_fwd[s] /= fwd;
        p->band_bwd[s] /= bwd;
        p->power_fwd_w[s + 1] *= power / part * split;
        p->power_bwd_w[s + 1] *= power / part * (part < 1 ? 1 - split : 1);
    }
    if (set && set->formats) {
        for (int j = 0; j <= p->segments; j++) {
            p->link_format[j] = (enum cp_format)cp_rng_below(r, 3);
        }
        p->upload_format = (enum cp_format)cp_rng_below(r, 3);
    }
    return true;
}

/* One device alone, or several, with the whole model or its first layers. */
static bool draw_apart(struct cp_cluster_plan *p, const struct cp_policy_args *a, int cluster,
                       const struct cp_lower_set *set, struct cp_rng *r)
{
    if (!draw_cluster(p, a, cluster, set, r)) {
        return false;
    }
    int all = a->world->model.layers;
    p->mode = cp_rng_below(r, 2) ? CP_MODE_FULL : CP_MODE_SPLIT;
    int layers = p->mode == CP_MODE_FULL ? all : 1 + (int)cp_rng_below(r, (uint32_t)all);
    p->edge_layers = all - layers;
    memset(p->link_format, 0, sizeof p->link_format);
    for (int j = 0; j < p->segments + 2; j++) {
        p->slots[j] = 1;
    }
    for (int s = 0; s < p->segments; s++) {
        const struct cp_device *d = &a->world->cluster[cluster].device[p->device[s]];
        p->layers[s] = layers;
        p->power_fwd_w[s + 1] = d->power_d2e_w * cp_rng_range(r, 0.01, 1);
    }
    return true;
}

/* The least J of some random plans, given a first one or none; the best is kept in p. */
static double least_drawn(const struct cp_policy_args *a, const struct cp_lower_set *set, int draws,
                          struct cp_rng *r, struct cp_plan *p)
{
    struct cp_plan trial;
    double best = FREE;
    assert_int_equal(cp_plan_init(&trial, a->world->n_clusters), CP_OK);
    for (int i = 0; i < draws; i++) {
        double sum = 0;
        bool ok = true;
        for (int c = 0; c < trial.n_clusters && ok; c++) {
            bool apart = set && set->apart && cp_rng_below(r, 2);
            ok = apart ? draw_apart(&trial.cluster[c], a, c, set, r)
                       : draw_cluster(&trial.cluster[c], a, c, set, r);
            sum += trial.cluster[c].uplink_share = ok ? cp_rng_range(r, 0.2, 1) : 1;
        }
        for (int c = 0; c < trial.n_clusters; c++) {
            trial.cluster[c].uplink_share /= sum;
        }
        if (!ok || cp_plan_check(&trial, a->world) != CP_OK) {
            continue;
        }
        double value = cp_plan_objective(&trial, a->world, a->queues);
        if (value < best) {
            best = value;
            assert_int_equal(cp_plan_copy(p, &trial), CP_OK);
        }
    }
    cp_plan_fini(&trial);
    return best;
}

/* Moves shares and powers of a plan at random, and keeps what is better. */
static double polish(const struct cp_policy_args *a, struct cp_plan *p, int moves, struct cp_rng *r)
{
    double best = cp_plan_objective(p, a->world, a->queues);
    struct cp_plan trial = {0};
    for (int i = 0; i < moves; i++) {
        assert_int_equal(cp_plan_copy(&trial, p), CP_OK);
        double step = pow(10, cp_rng_range(r, -3, -0.3)), sum = 0;
        for (int c = 0; c < trial.n_clusters; c++) {
            struct cp_cluster_plan *k = &trial.cluster[c];
            double fwd = 0, bwd = 0;
            sum += k->uplink_share *= exp(cp_rng_range(r, -step, step));
            for (int s = 0; s < k->segments; s++) {
                fwd += k->band_fwd[s] *= exp(cp_rng_range(r, -step, step));
                bwd += k->band_bwd[s] *= exp(cp_rng_range(r, -step, step));
                double move = exp(cp_rng_range(r, -step, step));
                k->power_fwd_w[s + 1] *= move;
                k->power_bwd_w[s + 1] *= cp_plan_overlaps(k) ? 1 / move : move;
            }
            for (int s = 0; s < k->segments; s++) {
                k->band_fwd[s] /= fwd;
                k->band_bwd[s] /= bwd;
            }
        }
        for (int c = 0; c < trial.n_clusters; c++) {
            trial.cluster[c].uplink_share /= sum;
        }
        double value = cp_plan_objective(&trial, a->world, a->queues);
        if (value < best && cp_plan_check(&trial, a->world) == CP_OK) {
            best = value;
            assert_int_equal(cp_plan_copy(p, &trial), CP_OK);
        }
    }
    cp_plan_fini(&trial);
    return best;
}

/* --- enumeration ----------------------------------------------------------------------------- */

/* Every cut, order and slots of a cluster at equal bands; the least of v T + cost by a weight. */
struct whole {
    const struct cp_policy_args *a;
    int cluster;
    double weight, best, uplink;
    struct cp_cluster_plan plan, best_plan;
    int seen;
};

static void visit(struct whole *x)
{
    const struct cp_world *w = x->a->world;
    struct cp_cluster_plan p = x->plan;
    cp_draft_radio(&p, w, x->cluster);
    p.uplink_share = x->uplink;
    struct cp_value v = cp_draft_value(&p, w, x->a->queues, x->cluster);
    double value = x->weight * v.time_s + v.cost;
    x->seen++;
    if (value < x->best) {
        x->best = value;
        x->best_plan = p;
    }
}

static void visit_slots(struct whole *x, int j)
{
    struct cp_cluster_plan *p = &x->plan;
    if (j == p->segments + 2) {
        for (int s = 0; s < p->segments; s++) {
            if (cp_plan_mem_bytes(p, s, &x->a->world->model) >
                x->a->world->cluster[x->cluster].device[p->device[s]].mem_bytes) {
                return;
            }
        }
        visit(x);
        return;
    }
    for (int n = 1; n <= (j > 0 ? p->slots[j - 1] : p->micro_batches); n++) {
        p->slots[j] = n;
        visit_slots(x, j + 1);
    }
}

static void visit_orders(struct whole *x)
{
    struct cp_order_list list = cp_draft_orders(x->a);
    int given = cp_draft_micro(x->a, x->cluster);
    int first = x->a->choose_micro ? 1 : given,
        last = x->a->choose_micro ? x->a->world->micro_max : given;
    for (int m = first; m <= last; m++) {
        x->plan.micro_batches = m;
        if (list.all == 1) { /* seq */
            x->plan.order = CP_ORDER_SEQ;
            cp_plan_set_slots(&x->plan);
            visit_slots(x, x->plan.segments + 2);
        } else {
            x->plan.order = CP_ORDER_1F1B; /* holds all others */
            visit_slots(x, 0);
        }
    }
}

static void enumerate(struct whole *x, int left, unsigned used)
{
    if (left == 0) {
        visit_orders(x);
        return;
    }
    const struct cp_cluster *cl = &x->a->world->cluster[x->cluster];
    for (int k = 0; k < cl->n_devices; k++) {
        for (int n = 1; n <= left && !(used & 1u << k) && cl->device[k].present; n++) {
            x->plan.device[x->plan.segments] = k;
            x->plan.layers[x->plan.segments++] = n;
            enumerate(x, left - n, used | 1u << k);
            x->plan.segments--;
        }
    }
}

/* Small worlds: all cuts, orders, slots and M; the best of some weights and shares is polished. */
static void bound_is_below_enumeration(void **state)
{
    (void)state;
    double sum = 0, worst = 0;
    int cases = 0, seen = 0;
    for (uint64_t seed = 1; seed <= 250; seed++) {
        struct situation s;
        struct cp_plan p;
        struct cp_rng r;
        draw_situation(&s, seed);
        int clusters = 1 + (int)(seed % 2);
        free_situation(&s);
        memset(&s, 0, sizeof s);
        toy_world(&s.w, clusters, 2 + (int)(seed % 2), 2 + (int)(seed % 3), seed);
        s.w.micro_max = 4;
        s.w.micro_ref = 1 + (int)(seed % 4);
        s.w.radio.band_d2d_hz = seed % 3 ? 20e6 : 2e6;
        cp_world_weigh(&s.w);
        toy_queues(&s.q, &s.w, seed % 4 ? 10 : 0, seed);
        s.a = (struct cp_policy_args){.world = &s.w,
                                      .queues = &s.q,
                                      .order = (enum cp_order)(seed % 3),
                                      .choose_order = seed % 2,
                                      .choose_micro = seed % 5 < 2};
        for (int c = 0; c < clusters && seed % 7 == 0; c++) {
            s.w.cluster[c].device[0].mem_bytes = toy_bytes(&TOY, 1, 2);
        }
        if (!s.a.choose_order && s.a.order == CP_ORDER_GPIPE) {
            s.a.order = CP_ORDER_1F1B; /* fallbacks only have a test of their own */
        }
        cp_rng_init(&r, seed, CP_RNG_TEST, 9, 0);
        assert_int_equal(cp_plan_init(&p, clusters), CP_OK);
        double best = FREE;
        for (int share = 0; share < (clusters > 1 ? 3 : 1); share++) {
            for (int weight = 0; weight < 3; weight++) {
                bool found = true;
                for (int c = 0; c < clusters; c++) {
                    static const double PART[] = {0.5, 1, 0.2};
                    double y = clusters == 1 ? 1 : 0.3 + 0.2 * share;
                    struct whole x = {.a = &s.a,
                                      .cluster = c,
                                      .weight = s.q.v * PART[weight],
                                      .uplink = c ? 1 - y : y,
                                      .best = FREE};
                    enumerate(&x, s.w.model.layers, 0);
                    seen += x.seen;
                    found &= x.best < FREE;
                    p.cluster[c] = x.best_plan;
                }
                if (found) {
                    assert_int_equal(cp_plan_check(&p, &s.w), CP_OK);
                    best = fmin(best, polish(&s.a, &p, 60, &r));
                }
            }
        }
        double fast = bound_of(&s.a, NULL, best < FREE ? &p : NULL, CP_LOWER_FAST);
        double full = bound_of(&s.a, NULL, NULL, CP_LOWER_FULL);
        if (best < FREE) {
            assert_true(fast <= best && full <= best);
            worst = fmax(worst, 1 - fmax(fast, full) / best);
            sum += 1 - fmax(fast, full) / best;
            cases++;
        } else {
            assert_true(isinf(fast) && isinf(full));
        }
        cp_plan_fini(&p);
        free_situation(&s);
    }
    print_message("bound: %d cases, %d plans, mean gap %.4f, worst %.4f\n", cases, seen,
                  sum / cases, worst);
    assert_true(cases > 200 && sum / cases < 0.06);
}

/* --- policies -------------------------------------------------------------------------------- */

/* The searches take their time: each of them is asked in some situations only. */
static bool asked(const char *name, const struct situation *s, uint64_t seed)
{
    if (strcmp(name, "exhaustive") == 0) {
        return s->w.cluster[0].n_devices <= 3 && s->w.model.layers <= 4 && !s->a.choose_micro &&
               seed % 4 == 0;
    }
    if (strcmp(name, "dssda-x") == 0 || strcmp(name, "myopic") == 0) {
        return seed % 40 == 0;
    }
    return strncmp(name, "dssda", 5) != 0 || seed % 8 == strlen(name) % 8;
}

static void bound_is_below_every_policy(void **state)
{
    (void)state;
    int compared = 0, none = 0;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct situation s;
        double best = FREE, least = -FREE, whole = -FREE;
        static const struct cp_lower_set all = {
            .edge_layers = true, .formats = true, .apart = true};
        draw_situation(&s, seed);
        s.a.any_format = seed % 16 < 8;
        s.a.bound = seed % 3 ? CP_LOWER_NONE : CP_LOWER_FAST;
        for (int i = 0; CP_POLICIES[i]; i++) {
            struct cp_plan p;
            struct cp_decision d;
            if (!asked(CP_POLICIES[i]->name, &s, seed) ||
                cp_policy_decide(CP_POLICIES[i], &s.a, &p, &d) != CP_OK) {
                continue;
            }
            assert_true(s.a.bound ? d.bound <= d.objective && d.bound_ms >= 0 : isnan(d.bound));
            bool plain = true;
            for (int c = 0; c < p.n_clusters; c++) {
                plain &= p.cluster[c].mode == CP_MODE_PIPELINE && p.cluster[c].edge_layers == 0 &&
                         (s.a.choose_order || p.cluster[c].order <= s.a.order ||
                          (p.cluster[c].order == CP_ORDER_1F1B && s.a.order == CP_ORDER_GPIPE));
            }
            if (least < 0) {
                least = bound_of(&s.a, NULL, seed % 2 ? &p : NULL, CP_LOWER_FAST);
                whole = bound_of(&s.a, &all, &p, CP_LOWER_FAST);
                if (seed % 10 == 0) {
                    least = fmax(least, bound_of(&s.a, NULL, &p, CP_LOWER_FULL));
                }
            }
            assert_true(whole <= d.objective);
            if (plain) {
                assert_true(least <= d.objective);
                best = fmin(best, d.objective);
                compared++;
            }
            cp_plan_fini(&p);
        }
        if (best == FREE) {
            none++;
            (void)bound_of(&s.a, NULL, NULL, CP_LOWER_FAST);
        }
        free_situation(&s);
    }
    print_message("bound: below %d decisions; %d situations without one\n", compared, none);
    assert_true(compared > 2500);
}

/* --- any prices, any plan -------------------------------------------------------------------- */

static double lagrangian(const struct cp_policy_args *a, const struct cp_lower_set *set,
                         const struct cp_plan *p, int exact, struct cp_rng *r)
{
    const struct cp_world *w = a->world;
    double v[3],
        sum = 0, weights = 0,
        uplink = cp_rng_below(r, 4) ? cp_queues_v(a->queues) * pow(10, cp_rng_range(r, -2, 2)) : 0;
    for (int c = 0; c < w->n_clusters; c++) {
        weights += v[c] = cp_rng_below(r, 4) ? cp_rng_unit(r) + 1e-3 : 1e-6;
    }
    for (int c = 0; c < w->n_clusters; c++) {
        struct cp_lower_cluster k;
        struct cp_lower_work *work;
        struct cp_lower_value value = {0};
        struct cp_lower_price price = {cp_queues_v(a->queues) * v[c] / weights, uplink};
        const struct cp_lower_options options = {exact, 1 + (int)cp_rng_below(r, 6),
                                                 2 + (int)cp_rng_below(r, 3),
                                                 1 + (int)cp_rng_below(r, 4)};
        assert_int_equal(cp_lower_cluster_init(&k, a, set, p ? &p->cluster[c] : NULL, c, &options),
                         CP_OK);
        for (int b = 0; b < k.bands; b++) {
            double mix = b == 0 || k.serial ? 1 : cp_rng_unit(r);
            cp_lower_cluster_band(&k, b, cp_rng_range(r, 0, 3), mix);
        }
        assert_int_equal(cp_lower_work_new(k.n, exact, w->model.layers, &work), CP_OK);
        assert_int_equal(
            cp_lower_cluster_least(&k, &price, p ? &p->cluster[c] : NULL, false, work, &value),
            CP_OK);
        assert_false(isnan(value.value));
        sum += value.value;
        cp_lower_work_free(work);
        cp_lower_cluster_fini(&k);
    }
    return sum - uplink;
}

/* It holds for whatever prices; and for the plans of every set. */
static void bound_holds_for_any_prices(void **state)
{
    (void)state;
    static const struct cp_lower_set set[] = {
        {0}, {.edge_layers = true}, {.formats = true}, {true, true, true}};
    int compared = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct situation s;
        struct cp_plan p = {0};
        struct cp_rng r;
        draw_situation(&s, seed);
        cp_rng_init(&r, seed, CP_RNG_TEST, 10, 0);
        s.w.radio.band_d2d_hz *= seed % 3 ? 1 : 0.1;
        if (!s.a.choose_order && s.a.order == CP_ORDER_GPIPE) {
            s.a.choose_order = true; /* fallbacks only have a test of their own */
        }
        const struct cp_lower_set *of = &set[seed % 4];
        double best = least_drawn(&s.a, of, 60, &r, &p);
        if (best < FREE) {
            best = polish(&s.a, &p, 20, &r);
            for (int i = 0; i < 4; i++) {
                double low = lagrangian(&s.a, of, i % 2 ? &p : NULL, i < 2 ? 8 : 0, &r);
                if (!(low <= best * (1 + 1e-8) + 1e-12))
                    print_message("ANY set %d seed %d: %.10g > %.10g mode %d\n", (int)(seed % 4),
                                  (int)seed, low, best, p.cluster[0].mode);
            }
            if (!(bound_of(&s.a, of, &p, CP_LOWER_FAST) <= best))
                print_message("set %d seed %d: %.10g > %.10g mode %d\n", (int)(seed % 4), (int)seed,
                              bound_of(&s.a, of, &p, CP_LOWER_FAST), best, p.cluster[0].mode);
            compared++;
        }
        cp_plan_fini(&p);
        free_situation(&s);
    }
    print_message("bound: %d random plans with random prices\n", compared);
    assert_true(compared > 150);
}

/* --- at given prices -------------------------------------------------------------------------- */

static const struct cp_lower_options SETS = {8, 4, 2, 1};

static double least_of(const struct cp_policy_args *a, const struct cp_lower_set *set,
                       const struct cp_lower_options *options)
{
    struct cp_lower_cluster k;
    struct cp_lower_work *work;
    struct cp_lower_value value = {0};
    const struct cp_lower_price price = {cp_queues_v(a->queues), 20 * cp_queues_v(a->queues)};
    assert_int_equal(cp_lower_cluster_init(&k, a, set, NULL, 0, options), CP_OK);
    for (int b = 0; b < k.bands; b++) {
        cp_lower_cluster_band(&k, b, 0.4, b == 0 || k.serial ? 1 : 0.3);
    }
    assert_int_equal(
        cp_lower_work_new(k.n, options->exact_devices, k.a->world->model.layers, &work), CP_OK);
    assert_int_equal(cp_lower_cluster_least(&k, &price, NULL, false, work, &value), CP_OK);
    cp_lower_work_free(work);
    cp_lower_cluster_fini(&k);
    return value.value;
}

/* --- gpipe with fallbacks --------------------------------------------------------------------- */

/* Asked for gpipe, other orders count only for cuts that gpipe has no memory for: enough memory is
 * worth more than the freedom, and with too little of it the policies' fallbacks are not below. */
static void fallbacks_count_only_where_memory_forces_them(void **state)
{
    (void)state;
    int higher = 0, fell_back = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct cp_world w;
        struct cp_plan p;
        struct cp_decision d;
        toy_world(&w, 2, 3, 5, seed);
        cp_world_weigh(&w);
        for (int k = 0; k < 3; k++) {
            size_t some = toy_bytes(&TOY, 2, 3 + (int)(seed % 4));
            w.cluster[0].device[k].mem_bytes = seed % 2 ? some : (size_t)64 << 30;
            w.cluster[1].device[k].mem_bytes = (size_t)64 << 30;
        }
        struct cp_policy_args a = {.world = &w, .mean = &w, .order = CP_ORDER_GPIPE, .seed = seed};
        struct cp_policy_args any = a;
        any.choose_order = true;
        static const char *const NAMES[] = {"dssda", "greedy", "random"};
        for (int i = 0; i < 3; i++) {
            if (cp_policy_decide(cp_policy_find(NAMES[i]), &a, &p, &d) != CP_OK) {
                continue;
            }
            double strict = least_of(&a, NULL, &SETS), loose = least_of(&any, NULL, &SETS);
            assert_true(bound_of(&a, NULL, &p, CP_LOWER_FAST) <= d.objective);
            assert_true(bound_of(&a, NULL, NULL, CP_LOWER_FAST) <= d.objective);
            assert_true(strict >= loose * (1 - 1e-9));
            higher += strict > loose * 1.001;
            fell_back += p.cluster[0].order != CP_ORDER_GPIPE;
            /* An incumbent may keep an order that memory no longer forces. */
            a.incumbent = &p;
            p.cluster[0].order = CP_ORDER_1F1B;
            assert_true(fabs(least_of(&a, NULL, &SETS) - loose) <= 1e-9 * loose);
            a.incumbent = NULL;
            cp_plan_fini(&p);
        }
        cp_world_fini(&w);
    }
    assert_true(higher > 30 && fell_back > 30);
}

/* --- edges ------------------------------------------------------------------------------------ */

/* One device and one micro-batch: only the labels beside the activations are; seq: the powers. */
static void bound_is_exact_where_little_is_relaxed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct cp_world w;
        struct cp_plan p;
        struct cp_decision d;
        toy_world(&w, 1, 1, 1 + (int)(seed % 6), seed);
        cp_world_weigh(&w);
        w.micro_ref = seed % 2 ? 1 : 8;
        w.cluster[0].device[0].mem_bytes = (size_t)64 << 30;
        struct cp_policy_args a = {.world = &w, .mean = &w, .order = CP_ORDER_SEQ};
        a.order = seed % 2 ? CP_ORDER_GPIPE : CP_ORDER_SEQ;
        assert_int_equal(cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d), CP_OK);
        if (a.order == CP_ORDER_SEQ) { /* it counts half of the powers as the greatest ones */
            struct cp_cluster_plan *k = &p.cluster[0];
            k->power_fwd_w[1] *= 1.998;
            k->power_bwd_w[1] *= 0.002;
            double one = cp_plan_objective(&p, &w, NULL);
            k->power_bwd_w[1] *= 999;
            double other = cp_plan_objective(&p, &w, NULL);
            assert_true(bound_of(&a, NULL, &p, CP_LOWER_FAST) <= fmin(one, other));
        } else {
            assert_true(near_rel(bound_of(&a, NULL, &p, CP_LOWER_FAST), d.objective, 1e-4));
        }
        assert_true(bound_of(&a, NULL, &p, CP_LOWER_FULL) <= d.objective);
        assert_true(bound_of(&a, NULL, NULL, CP_LOWER_FAST) >= 0.97 * d.objective);
        cp_plan_fini(&p);
        cp_world_fini(&w);
    }
}

static void odd_worlds_have_a_bound(void **state)
{
    (void)state;
    for (int odd = 0; odd < 10; odd++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan p;
        struct cp_decision d;
        toy_world(&w, 2, 3, 4, 7);
        cp_world_weigh(&w);
        toy_queues(&q, &w, 5, 7);
        struct cp_cluster *cl = &w.cluster[1];
        if (odd == 0) { /* nobody is there */
            cl->device[0].present = cl->device[1].present = cl->device[2].present = false;
        } else if (odd == 1) { /* no memory */
            cl->device[0].mem_bytes = cl->device[1].mem_bytes = cl->device[2].mem_bytes = 1000;
        } else if (odd == 2) {
            cl->gain_d2d[0][1] = cl->gain_d2d[1][0] = cl->gain_d2e[2] = 1e-300;
        } else if (odd == 3) {
            cl->gain_d2e[0] = 1e-300;
        } else if (odd == 4) {
            q.v = 0;
        } else if (odd == 5) {
            q.v = q.convergence = 0;
            memset(q.energy, 0, 2 * sizeof *q.energy);
        } else if (odd == 6) {
            q.convergence = 1e12;
            q.energy[1][2] = 1e12;
        } else if (odd == 7) {
            cl->device[1].rate_flops = 1e-3;
        } else if (odd == 8) {
            w.radio.band_d2d_hz = 1;
        } else {
            cl->cu.power_d2e_w = 1e6;
            cl->device[0].energy_j_flop = 0;
        }
        static const struct cp_lower_set all = {true, true, true};
        for (int i = 0; i < 8; i++) {
            struct cp_policy_args a = {.world = &w,
                                       .mean = &w,
                                       .queues = &q,
                                       .choose_order = i % 2,
                                       .choose_micro = i / 2 % 2};
            bool made = cp_policy_decide(cp_policy_find("dssda"), &a, &p, &d) == CP_OK;
            double fast = bound_of(&a, NULL, made && i < 4 ? &p : NULL, CP_LOWER_FAST);
            double full = bound_of(&a, NULL, made ? &p : NULL, CP_LOWER_FULL);
            double more = bound_of(&a, &all, made ? &p : NULL, CP_LOWER_FAST);
            if (made) {
                assert_true(fast <= d.objective && full <= d.objective && more <= d.objective);
                cp_plan_fini(&p);
            } else {
                assert_true(odd == 2 || odd == 3 || odd == 8 || (isinf(fast) && isinf(full)));
            }
        }
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
}

/* --- labels of links -------------------------------------------------------------------------- */

/* What a label stands for: whatever is still added (rest), it is never above the value of a share;
 * and the least of the labels is not far below the least of all shares. */
struct curve {
    double rest, label, least; /* least: of the shares that were tried */
};

static void try_share(struct curve *x, double value)
{
    assert_true(x->label <= value * (1 + 1e-9));
    x->least = fmin(x->least, value);
}

/* Shares of a D2D link, whose times there and back count in the cost and in q. */
static void check_hop(const struct cp_lower_rule *r, const struct cp_lower_price *price, int u,
                      int k, double rest_s, struct curve *all)
{
    const struct cp_lower_band *b = &r->c->band[r->band];
    const struct cp_lower_link *l = &r->c->link[u * r->c->n + k];
    struct cp_air air = cp_lower_link_air(l, b);
    double a = r->c->steps * price->time;
    for (int i = 0; i < r->c->intervals; i++) {
        const struct cp_lower_hop *hop = &r->hop[u][k][i];
        double low = l->end[r->band][i + 1], high = l->end[r->band][i];
        struct curve x = {rest_s, hop->cost + r->weight * fmax(rest_s, hop->s), FREE};
        for (int at = 1; at <= 40 && low < high; at++) {
            double share = low + (high - low) * at / 40, time_s = 2 * cp_air_s(&air, share);
            try_share(&x, r->micro * l->joule + a * (b->mix * time_s + b->price_s * share) +
                              r->weight * fmax(rest_s, time_s));
        }
        all->least = fmin(all->least, x.least);
        all->label = fmin(all->label, low < high ? x.label : FREE);
    }
}

/* Shares of the link to the edge server, which has e layers. */
static void check_base(const struct cp_lower_rule *r, const struct cp_lower_price *price, int k,
                       int e, double rest_s, struct curve *all)
{
    const struct cp_lower_cluster *c = r->c;
    const struct cp_world *w = c->a->world;
    bool overlap = r->kind == CP_LOWER_OVERLAP;
    double mix = overlap ? c->band[r->band].mix : 1, a = c->steps * price->time * mix;
    double edge_s = c->head_s + e * c->edge_layer_s, m = r->micro;
    double busy_s = c->longer * fmax(r->range.low_s, c->slot_s[w->model.layers - e]);
    double fixed = m * (c->cu_joule + c->edge_joule[k]) + c->micro_price / m + a * c->cu_s +
                   c->upload_joule * cp_upload_bits(w, e) -
                   c->steps * price->time * c->band[r->band].price_s;
    for (int at = 0; at <= 300; at++) {
        double y = pow(10, -5 * (1 - at / 300.0));
        double out_s = cp_air_s(&c->edge[k], y), back_s = c->edge_down_s[k] / y;
        double link_s = out_s + back_s, longest_s = fmax(edge_s, fmax(out_s, back_s));
        double q_s = overlap ? link_s + edge_s + (m - 1) * longest_s : fmax(link_s, edge_s);
        double value = fixed + a * (link_s + edge_s) + price->uplink * y +
                       price->time * cp_upload_bits(w, e) * cp_air_s(&c->upload, y) +
                       (overlap ? a * (m - 1) * fmax(busy_s < FREE ? busy_s : 0, out_s) : 0) +
                       r->weight * fmax(rest_s, overlap ? q_s : fmax(q_s, c->cu_s));
        all->least = fmin(all->least, value);
    }
    for (int i = 0; i < c->intervals; i++) {
        const struct cp_lower_label *l = &cp_lower_base(r, k, e)[i];
        all->label = fmin(all->label, l->cost + r->weight * fmax(rest_s, l->q_s));
    }
    assert_true(all->label <= all->least + 1e-9 * fabs(all->least));
}

static void labels_of_links_are_tight_bounds(void **state)
{
    (void)state;
    double ends = 0, ratio = 0;
    int cases = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct situation s;
        struct cp_lower_cluster k;
        struct cp_lower_work *work;
        struct cp_lower_rule r;
        struct cp_rng rng;
        cp_rng_init(&rng, seed, CP_RNG_TEST, 11, 0);
        draw_situation(&s, seed);
        s.w.radio.band_up_hz *= pow(10, cp_rng_range(&rng, -3, 0.5));
        s.a.choose_order = true;
        const struct cp_lower_set set = {.edge_layers = seed % 2};
        const struct cp_lower_options options = {8, 1 + (int)(seed % 6), 3, 1};
        double v = cp_queues_v(s.a.queues);
        const struct cp_lower_price price = {v, v * pow(10, cp_rng_range(&rng, -1, 4))};
        assert_int_equal(cp_lower_cluster_init(&k, &s.a, &set, NULL, 0, &options), CP_OK);
        assert_int_equal(cp_lower_work_new(k.n, 8, s.w.model.layers, &work), CP_OK);
        cp_lower_cluster_band(&k, 0, cp_rng_range(&rng, 0, 1), 1);
        cp_lower_cluster_band(&k, 1, cp_rng_range(&rng, 0, 1), cp_rng_range(&rng, 0, 0.9));
        for (int kind = 0; kind < 2 && k.n > 0; kind++) {
            struct cp_lower_range range = {0, INFINITY};
            cp_lower_rule_make(&k, &price, kind ? CP_LOWER_OVERLAP : CP_LOWER_FLUSH, k.micro_high,
                               kind, range, work->base, &r);
            for (int i = 0; i < 12; i++) {
                double rest_s = i < 2 ? 0 : pow(10, cp_rng_range(&rng, -3, 2));
                struct curve hop = {.label = FREE, .least = FREE}, base = hop;
                check_hop(&r, &price, 0, (int)(seed % (uint64_t)k.n), rest_s, &hop);
                check_base(&r, &price, (int)(seed % (uint64_t)k.n), k.edge_max / 2, rest_s, &base);
                if (options.intervals == 6) {
                    ends += hop.label / hop.least;
                    ratio += base.label / base.least;
                    cases++;
                }
            }
        }
        cp_lower_work_free(work);
        cp_lower_cluster_fini(&k);
        free_situation(&s);
    }
    print_message("bound: labels are %.4f of D2D links, %.4f of those to the edge server\n",
                  ends / cases, ratio / cases);
    assert_true(cases > 200 && ends / cases > 0.98 && ratio / cases > 0.97);
}

/* The least label of all cuts of a rule, one by one. */
static void walk_cuts(const struct cp_lower_rule *r, struct cp_cluster_plan *p, int left,
                      unsigned used, double *best)
{
    struct cp_lower_label l;
    if (left == 0) {
        if (cp_lower_rule_path(r, p, &l)) {
            *best = fmin(*best, l.cost);
        }
        return;
    }
    for (int k = 0; k < r->c->n; k++) {
        for (int n = 1; n <= left && !(used & 1u << k); n++) {
            p->device[p->segments] = r->c->device[k];
            p->layers[p->segments++] = n;
            walk_cuts(r, p, left - n, used | 1u << k, best);
            p->segments--;
        }
    }
}

/* With one interval a cut has one label: the search finds the least one; with more, it is not above
 * the one that each cut is given. */
static void search_equals_enumeration(void **state)
{
    (void)state;
    int cases = 0;
    for (uint64_t seed = 1; seed <= 90; seed++) {
        struct situation s;
        struct cp_lower_cluster k;
        struct cp_lower_work *work;
        struct cp_lower_rule r;
        draw_situation(&s, seed);
        bool large = seed % 9 == 0;
        if (large) { /* fronts outgrow their room */
            free_situation(&s);
            memset(&s, 0, sizeof s);
            toy_world(&s.w, 1, 4, 10, seed);
            cp_world_weigh(&s.w);
            toy_queues(&s.q, &s.w, 20, seed);
            s.a = (struct cp_policy_args){.world = &s.w, .queues = &s.q, .choose_order = true};
        }
        const struct cp_lower_options options = {8, seed % 2 ? 1 : 6, 3, 1};
        const struct cp_lower_price price = {cp_queues_v(s.a.queues), 10 * cp_queues_v(s.a.queues)};
        assert_int_equal(cp_lower_cluster_init(&k, &s.a, NULL, NULL, 0, &options), CP_OK);
        assert_int_equal(cp_lower_work_new(k.n, 8, s.w.model.layers, &work), CP_OK);
        cp_lower_cluster_band(&k, 0, 0.4, 1);
        cp_lower_cluster_band(&k, 1, 0.7, k.serial ? 1 : 0.2);
        for (int kind = 0; kind < CP_LOWER_KINDS; kind++) {
            struct cp_lower_range range = {0,
                                           seed % 5 ? INFINITY : 1.3 * k.slot_s[s.w.model.layers]};
            struct cp_lower_label found = {.cost = INFINITY}, counted = {.cost = INFINITY};
            struct cp_cluster_plan p = {.mode = CP_MODE_PIPELINE};
            double best = INFINITY;
            cp_lower_rule_make(&k, &price, (enum cp_lower_kind)kind, k.micro_high, kind > 0, range,
                               work->base, &r);
            walk_cuts(&r, &p, s.w.model.layers, 0, &best);
            assert_int_equal(cp_lower_by_sets(&r, work, &found), CP_OK);
            cp_lower_by_counts(&r, work, &counted);
            assert_true(isinf(found.cost) == isinf(best));
            if (isinf(best)) {
                continue;
            }
            double least = large ? best : found.cost, slack = 1e-12 * fabs(best);
            assert_true(found.cost <= best + slack);
            assert_true(found.cost >= best - (options.intervals == 1 ? slack : 0.1 * fabs(best)));
            assert_true(counted.cost <= least + slack);
            cases++;
        }
        cp_lower_work_free(work);
        cp_lower_cluster_fini(&k);
        free_situation(&s);
    }
    assert_true(cases > 150);
}

/* --- freedoms and memory --------------------------------------------------------------------- */

/* At given prices: counts are below sets, more freedom never raises the least value. */
static void freedom_never_raises_the_least_value(void **state)
{
    (void)state;
    static const struct cp_lower_options counts = {0, 4, 2, 1};
    static const struct cp_lower_set more = {true, true, true};
    double sum = 0;
    int cases = 0;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct situation s;
        draw_situation(&s, seed);
        double first = least_of(&s.a, NULL, &SETS), low = least_of(&s.a, NULL, &counts);
        if (isinf(first)) {
            free_situation(&s);
            continue;
        }
        assert_true(low <= first * (1 + 1e-9));
        sum += low / first;
        cases++;
        assert_true(least_of(&s.a, &more, &SETS) <= first * (1 + 1e-9));
        struct cp_policy_args any = s.a;
        any.choose_order = any.choose_micro = true;
        assert_true(least_of(&any, NULL, &SETS) <= first * (1 + 1e-9));
        for (int k = 0; k < s.w.cluster[0].n_devices; k++) {
            s.w.cluster[0].device[k].mem_bytes *= 2;
        }
        double roomy = least_of(&any, NULL, &SETS);
        assert_true(roomy <= first * (1 + 1e-9));
        s.w.radio.band_d2d_hz *= 2;
        s.w.radio.band_up_hz *= 2;
        assert_true(least_of(&any, NULL, &SETS) <= roomy * (1 + 1e-9));
        free_situation(&s);
    }
    print_message("bound: counts are %.3f of sets in the mean\n", sum / cases);
    assert_true(cases > 60 && sum / cases > 0.85);
}

static void failing_allocations_leave_nothing(void **state)
{
    (void)state;
    struct cp_world w;
    toy_world(&w, 2, 3, 4, 3);
    cp_world_weigh(&w);
    struct cp_policy_args a = {.world = &w, .mean = &w, .choose_order = true};
    double bound = -7;
    uint64_t n = 1;
    for (;; n++) {
        cp_mem_fail_at(n);
        cp_err err = cp_lower_bound(&a, NULL, NULL, CP_LOWER_FULL, &bound);
        cp_mem_fail_at(0);
        if (err == CP_OK) {
            break;
        }
        assert_int_equal(err, CP_E_NOMEM);
        assert_true(bound == -7);
    }
    assert_true(n > 20 && bound > 0);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_of_the_air_is_a_tight_bound),
        cmocka_unit_test(clearing_price_shares_the_band),
        cmocka_unit_test(bound_is_below_enumeration),
        cmocka_unit_test(bound_is_below_every_policy),
        cmocka_unit_test(bound_holds_for_any_prices),
        cmocka_unit_test(fallbacks_count_only_where_memory_forces_them),
        cmocka_unit_test(bound_is_exact_where_little_is_relaxed),
        cmocka_unit_test(odd_worlds_have_a_bound),
        cmocka_unit_test(labels_of_links_are_tight_bounds),
        cmocka_unit_test(search_equals_enumeration),
        cmocka_unit_test(freedom_never_raises_the_least_value),
        cmocka_unit_test(failing_allocations_leave_nothing),
    };
    return cmocka_run_group_tests_name("lower", tests, NULL, NULL);
}
