/* The dynamic program against plain enumeration (docs/theory.md section 16, item 13). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/split_impl.h"
#include "unit/plan/splits.h"

static bool one_by_one(const struct cp_cluster_plan *p)
{
    return p->micro_batches > 1 && p->slots[0] == 1;
}

/* P1_c(v) of a placement, through the forecast: nothing in common with the tables of the DP. */
static double enumerated_value(const struct cp_split *s, const struct cp_cluster_plan *p)
{
    const struct cp_world *w = s->world;
    struct cp_cluster_forecast f;
    cp_cluster_forecast_make(p, s->cluster, w, &f);
    double step = one_by_one(p) ? p->micro_batches * cp_step_gpipe_s(&f.times, 1)
                                : cp_step_gpipe_s(&f.times, p->micro_batches);
    if (one_by_one(p) || !cp_plan_overlaps(p)) {
        assert_true(near_rel(step, f.step_s, 1e-9)); /* there Lemma 1 holds */
    }
    double time = w->local_steps * step + f.scatter_s + f.gather_s + f.upload_s;
    double value = s->v * time + s->micro_price / p->micro_batches;
    for (int node = 0; node <= w->cluster[s->cluster].n_devices; node++) {
        value += s->price[node] * f.energy_j[node];
    }
    return value;
}

struct enumeration {
    const struct cp_split *s;
    struct cp_cluster_plan plan;
    double best;
};

static void visit(struct enumeration *e)
{
    const struct cp_split *s = e->s;
    const struct cp_cluster *cl = &s->world->cluster[s->cluster];
    struct cp_cluster_plan *p = &e->plan;
    for (int j = 0; j < p->segments; j++) {
        if (toy_bytes(s->world->model.segment_arg, p->layers[j], p->slots[j + 1]) >
            cl->device[p->device[j]].mem_bytes) {
            return;
        }
        int node = p->device[j] + 1;
        p->band_fwd[j] = s->band_fwd[j];
        p->band_bwd[j] = s->band_bwd[j];
        p->power_fwd_w[j + 1] = j + 1 < p->segments ? s->power_fwd_w[node] : s->power_edge_w[node];
        p->power_bwd_w[j + 1] = s->power_bwd_w[node];
    }
    e->best = fmin(e->best, enumerated_value(s, p));
}

static void enumerate(struct enumeration *e, int segment, int left, unsigned used)
{
    const struct cp_cluster *cl = &e->s->world->cluster[e->s->cluster];
    if (segment == e->plan.segments) {
        if (left == 0) {
            visit(e);
        }
        return;
    }
    for (int k = 0; k < cl->n_devices; k++) {
        bool late = e->s->index_order && segment > 0 && k < e->plan.device[segment - 1];
        if (late || used & 1u << k || !cl->device[k].present) {
            continue;
        }
        for (int n = 1; n <= left; n++) {
            e->plan.device[segment] = k;
            e->plan.layers[segment] = n;
            enumerate(e, segment + 1, left - n, used | 1u << k);
        }
    }
}

/* The least value of all placements; infinite if there is none. */
static double enumerated_best(const struct cp_split *s)
{
    struct enumeration e = {.s = s, .best = INFINITY};
    e.plan = (struct cp_cluster_plan){.order = s->order,
                                      .segments = s->segments,
                                      .micro_batches = s->micro_batches,
                                      .edge_layers = s->edge_layers,
                                      .uplink_share = s->uplink_share,
                                      .power_up_w = s->power_up_w,
                                      .upload_format = s->upload_format};
    memcpy(e.plan.slots, s->slots, sizeof e.plan.slots);
    memcpy(e.plan.link_format, s->link_format, sizeof e.plan.link_format);
    e.plan.power_fwd_w[0] = s->power_fwd_w[0];
    enumerate(&e, 0, s->world->model.layers - s->edge_layers, 0);
    return e.best;
}

/* Random unequal shares and powers, as the later blocks of DSSDA will hand in. */
static void disturb(struct cp_split *s, struct cp_rng *r)
{
    double fwd = 0, bwd = 0;
    for (int j = 0; j < s->segments; j++) {
        fwd += s->band_fwd[j] = cp_rng_range(r, 0.1, 1);
        bwd += s->band_bwd[j] = cp_rng_range(r, 0.1, 1);
    }
    for (int j = 0; j < s->segments; j++) {
        s->band_fwd[j] /= fwd;
        s->band_bwd[j] /= bwd;
    }
    for (int node = 0; node <= CP_DEVICES_MAX; node++) {
        s->power_fwd_w[node] *= cp_rng_range(r, 0.01, 1);
        s->power_edge_w[node] *= cp_rng_range(r, 0.01, 1);
        s->power_bwd_w[node] *= cp_rng_range(r, 0.01, 1);
    }
}

/* Any non-increasing slots, and formats of every kind. */
static void diversify(struct cp_split *s, struct cp_rng *r)
{
    if (s->order == CP_ORDER_1F1B) {
        for (int j = 0, most = s->micro_batches; j < s->segments + 2; j++) {
            s->slots[j] = most -= (int)cp_rng_below(r, 2) && most > 1;
        }
    }
    for (int j = 0; j <= s->segments; j++) {
        s->link_format[j] = (enum cp_format)cp_rng_below(r, 3);
    }
    s->upload_format = (enum cp_format)cp_rng_below(r, 3);
}

/* Equal in all but one thing: it must count. The last choices leave a twin. */
static void spoil_twin(struct cp_world *w, struct cp_queues *q, int cluster, int k, int what)
{
    struct cp_cluster *cl = &w->cluster[cluster];
    double *const quantity[] = {&cl->device[k].rate_flops,  &cl->device[k].energy_j_flop,
                                &cl->device[k].power_d2d_w, &cl->gain_d2e[k + 1],
                                &q->energy[cluster][k + 1], &cl->gain_d2d[0][k + 1]};
    if (what < (int)(sizeof quantity / sizeof quantity[0])) {
        *quantity[what] *= 20;
    }
    cl->gain_d2d[k + 1][0] = cl->gain_d2d[0][k + 1];
}

/* A world for enumeration: in half of the trials links are as long as stages, in either direction;
 * devices have room for a few layers, sometimes none; some are equal. */
static int small_world(struct cp_world *w, struct cp_queues *q, int devices, int layers, int trial,
                       struct cp_rng *r)
{
    uint64_t seed = cp_rng_u32(r);
    int cluster = (int)cp_rng_below(r, 2);
    struct cp_device *device;
    toy_world(w, 2, devices, layers, seed);
    toy_queues(q, w, trial % 2 ? 30 : 0, seed);
    w->radio.band_d2d_hz = cp_rng_range(r, 2e6, 20e6);
    w->radio.band_down_hz *= trial < 3 ? 1 : pow(10, cp_rng_range(r, -2, 0));
    w->model.boundary_bytes *= trial < 3 ? 1 : cp_rng_range(r, 1, 10);
    device = w->cluster[cluster].device;
    for (int k = 0; k < devices; k++) {
        device[k].mem_bytes =
            toy_bytes(&TOY, 1 + (int)cp_rng_below(r, 5), 1) - (cp_rng_u32(r) % 3 == 0);
        device[k].mem_bytes *= 1 + cp_rng_below(r, 3);
    }
    if (devices > 2) {
        device[cp_rng_below(r, 3)].present = cp_rng_unit(r) < 0.7;
    }
    if (devices > 1 && trial % 3 == 0) {
        make_twin(w, q, cluster, 0, devices - 1);
        spoil_twin(w, q, cluster, devices - 1, (int)cp_rng_below(r, 8));
    }
    return cluster;
}

static int compare_with_enumeration(const struct cp_split *s, struct cp_split_work *work)
{
    struct cp_split_result got;
    double best = enumerated_best(s);
    assert_int_equal(cp_split_solve(s, work, &got), CP_OK);
    assert_int_equal(got.found, isfinite(best));
    assert_int_equal(got.kind, CP_SPLIT_EXACT);
    if (got.found) {
        assert_true(near_rel(got.value, best, 1e-12));
        assert_true(near_rel(enumerated_value(s, &got.plan), got.value, 1e-12));
        assert_memory_equal(got.plan.slots, s->slots, sizeof s->slots);
    }
    return got.found;
}

static void dp_equals_enumeration(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    struct cp_rng r;
    int cases = 0, found = 0, priced = 0;
    cp_rng_init(&r, 4711, CP_RNG_TEST, 0, 0);
    for (int trial = 0; trial < 12; trial++) {
        for (int devices = 1; devices <= 4; devices++) {
            for (int layers = 1; layers <= 6; layers++) {
                struct cp_world w;
                struct cp_queues q;
                static struct cp_room room;
                int cluster = small_world(&w, &q, devices, layers, trial, &r);
                int present[CP_DEVICES_MAX], n, edge = (int)cp_rng_below(&r, (uint32_t)layers);
                edge = trial % 2 ? 0 : edge;
                cp_room_init(&room, &w, cluster);
                assert_int_equal(cp_draft_present(&w.cluster[cluster], present, &n), CP_OK);
                for (int s = 1; s <= n && s <= layers - edge; s++) {
                    struct cp_split split;
                    int micro = 1 + (int)cp_rng_below(&r, 9);
                    enum cp_order order = (enum cp_order)cp_rng_below(&r, 3);
                    cp_split_init(&split, &w, cluster, &room, &q, s, micro, order);
                    split.v *= trial == 3 ? 0 : pow(10, cp_rng_range(&r, -3, 0));
                    split.edge_layers = edge;
                    split.index_order = trial == 6;
                    diversify(&split, &r);
                    if (trial % 3 != 0) {
                        disturb(&split, &r); /* there are no twins with unequal powers */
                    }
                    found += compare_with_enumeration(&split, &work);
                    cases++;
                    priced += q.energy[cluster][1] > 0;
                }
                cp_queues_fini(&q);
                cp_world_fini(&w);
            }
        }
    }
    print_message("%d cases, %d infeasible, %d with prices\n", cases, cases - found, priced);
    assert_true(cases > 400 && found < cases - 40 && found > cases / 2 && priced > 100);
    cp_split_work_fini(&work);
}

/* Links whose two directions have nothing to do with each other, and dominate: the label must
 * carry both bottlenecks. */
static void both_bottlenecks_count(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    struct cp_rng r;
    cp_rng_init(&r, 99, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < 400; i++) {
        struct cp_world w;
        struct cp_split split;
        toy_world(&w, 1, 5, 6, (uint64_t)i);
        w.model.boundary_bytes *= 10;
        w.model.label_bytes = i % 2 ? 3 * w.model.boundary_bytes : 0; /* either phase may lead */
        cp_room_init(&room, &w, 0);
        cp_split_init(&split, &w, 0, &room, NULL, 4, 16, CP_ORDER_GPIPE);
        for (int node = 0; node <= 5; node++) {
            if (node > 0) {
                w.cluster[0].device[node - 1].mem_bytes = (size_t)1 << 40;
            }
            split.power_fwd_w[node] *= pow(10, cp_rng_range(&r, -3, 0));
            split.power_bwd_w[node] *= pow(10, cp_rng_range(&r, -3, 0));
        }
        assert_true(compare_with_enumeration(&split, &work));
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

/* Six devices, twelve layers: large enough that every pruning and both kinds of bounds work. */
static void pruning_loses_nothing(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    for (int trial = 0; trial < 3; trial++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_split list[CP_DEVICES_MAX];
        struct cp_split_result got;
        toy_world(&w, 1, 6, 12, 31 + (uint64_t)trial);
        toy_queues(&q, &w, 10, 31 + (uint64_t)trial);
        w.radio.band_d2d_hz = 5e6;
        int n = all_splits(list, &w, &room, &q, 8, (enum cp_order)trial);
        double best = INFINITY;
        for (int s = 0; s < n; s++) {
            best = fmin(best, enumerated_best(&list[s]));
        }
        assert_int_equal(cp_split_best(list, n, &work, &got), CP_OK);
        assert_true(got.found && near_rel(got.value, best, 1e-12));
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

/* A narrow pass finds something; a bound below the optimum finds nothing, at it the optimum; the
 * best of all numbers of segments is the least of them. */
static void narrow_and_bound(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct cp_world w;
        struct cp_split list[CP_DEVICES_MAX], *s = &list[3];
        struct cp_split_result r, all;
        toy_world(&w, 1, 7, 12, seed);
        int n = all_splits(list, &w, &room, NULL, 4, (enum cp_order)(seed % 3));
        assert_int_equal(cp_split_best(list, n, &work, &all), CP_OK);
        double least = INFINITY;
        for (int i = 0; i < n; i++) {
            assert_int_equal(cp_split_solve(&list[i], &work, &r), CP_OK);
            least = r.found ? fmin(least, r.value) : least;
        }
        assert_true(all.found && near_rel(all.value, least, 1e-12));
        assert_int_equal(cp_split_solve(s, &work, &r), CP_OK);
        double best = r.value;
        s->narrow = true;
        assert_int_equal(cp_split_solve(s, &work, &r), CP_OK);
        assert_true(r.found && r.value >= best * (1 - 1e-12));
        assert_int_equal(r.kind, CP_SPLIT_BEAM);
        s->narrow = false;
        s->bound = best;
        assert_int_equal(cp_split_solve(s, &work, &r), CP_OK);
        assert_true(r.found && near_rel(r.value, best, 1e-12));
        s->bound = best * (1 - 1e-9);
        assert_int_equal(cp_split_solve(s, &work, &r), CP_OK);
        assert_false(r.found);
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

static void swap_devices(struct cp_cluster *cl, int a, int b)
{
    struct cp_device d = cl->device[a];
    cl->device[a] = cl->device[b];
    cl->device[b] = d;
    double g = cl->gain_d2e[a + 1];
    cl->gain_d2e[a + 1] = cl->gain_d2e[b + 1];
    cl->gain_d2e[b + 1] = g;
    for (int node = 0; node <= cl->n_devices; node++) {
        g = cl->gain_d2d[node][a + 1];
        cl->gain_d2d[node][a + 1] = cl->gain_d2d[node][b + 1];
        cl->gain_d2d[node][b + 1] = g;
    }
    for (int node = 0; node <= cl->n_devices; node++) {
        g = cl->gain_d2d[a + 1][node];
        cl->gain_d2d[a + 1][node] = cl->gain_d2d[b + 1][node];
        cl->gain_d2d[b + 1][node] = g;
    }
}

static void labels_of_devices_do_not_matter(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct cp_world w;
        struct cp_split list[CP_DEVICES_MAX];
        struct cp_split_result before, after;
        int a = (int)(seed % 7), b = (a + 1 + (int)(seed % 5)) % 7;
        toy_world(&w, 1, 7, 16, seed);
        int n = all_splits(list, &w, &room, NULL, 4, (enum cp_order)(seed % 3));
        assert_int_equal(cp_split_best(list, n, &work, &before), CP_OK);
        swap_devices(&w.cluster[0], a, b);
        n = all_splits(list, &w, &room, NULL, 4, (enum cp_order)(seed % 3));
        assert_int_equal(cp_split_best(list, n, &work, &after), CP_OK);
        assert_int_equal(before.found, after.found);
        assert_true(near_rel(before.value, after.value, 1e-12));
        assert_int_equal(before.plan.segments, after.plan.segments);
        for (int s = 0; s < before.plan.segments; s++) {
            int k = before.plan.device[s];
            assert_int_equal(after.plan.device[s], k == a ? b : k == b ? a : k);
            assert_int_equal(after.plan.layers[s], before.plan.layers[s]);
        }
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

static void memory_never_hurts(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    int better = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct cp_world w;
        struct cp_split list[CP_DEVICES_MAX];
        struct cp_split_result tight, wide;
        toy_world(&w, 1, 7, 16, seed);
        int n = all_splits(list, &w, &room, NULL, 16, CP_ORDER_GPIPE);
        assert_int_equal(cp_split_best(list, n, &work, &tight), CP_OK);
        w.cluster[0].device[seed % 7].mem_bytes *= 2;
        cp_room_init(&room, &w, 0);
        assert_int_equal(cp_split_best(list, n, &work, &wide), CP_OK);
        assert_true(wide.found >= tight.found);
        assert_true(!tight.found || wide.value <= tight.value * (1 + 1e-12));
        better += !tight.found || wide.value < tight.value * (1 - 1e-6);
        cp_world_fini(&w);
    }
    assert_in_range(better, 2, 40);
    cp_split_work_fini(&work);
}

/* Every allocation of a search fails once; the memory that is kept stays good. */
static void memory_fails(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    struct cp_world w;
    struct cp_split list[CP_DEVICES_MAX];
    struct cp_split_result good, got = {.value = -1}, one;
    double value[CP_DEVICES_MAX];
    toy_world(&w, 1, 8, 24, 10);
    w.radio.band_d2d_hz = 5e6;
    int n = all_splits(list, &w, &room, NULL, 8, CP_ORDER_GPIPE), fails = 0;
    assert_int_equal(cp_split_best(list, n, &work, &good), CP_OK);
    assert_true(work.cap > 1024); /* also in the middle of a pass */
    for (int i = 0; i < n; i++) {
        assert_int_equal(cp_split_solve(&list[i], &work, &one), CP_OK);
        value[i] = one.value;
    }
    cp_split_work_fini(&work);
    for (;; fails++) {
        cp_mem_fail_at((uint64_t)fails + 1);
        cp_err err = cp_split_best(list, n, &work, &got);
        cp_mem_fail_at(0);
        if (err == CP_OK) {
            break;
        }
        assert_int_equal(err, CP_E_NOMEM);
        assert_true(got.value == -1);
        for (int i = 0; work.bucket && i < CP_SPLIT_BUCKETS; i++) {
            assert_int_equal(work.bucket[i], -1);
        }
        for (int i = n - 1; i >= 0; i--) {
            assert_int_equal(cp_split_solve(&list[i], &work, &one), CP_OK);
            assert_true(one.value == value[i]);
        }
        assert_int_equal(cp_split_best(list, n, &work, &got), CP_OK);
        assert_true(got.found && got.value == good.value);
        cp_split_work_fini(&work);
        got.value = -1;
    }
    assert_true(got.found && got.value == good.value);
    assert_in_range(fails, 5, 100);
    cp_world_fini(&w);
    cp_split_work_fini(&work);
}

/* Links that never end, and devices without any room. */
static void nothing_fits(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    for (int devices = 3; devices <= 12; devices += 9) {
        struct cp_world w;
        struct cp_split list[CP_DEVICES_MAX];
        struct cp_split_result r;
        toy_world(&w, 1, devices, 12, 3);
        struct cp_cluster *cl = &w.cluster[0];
        for (int k = 0; k < devices; k++) {
            cl->gain_d2d[0][k + 1] = cl->gain_d2d[k + 1][0] = 0;
        }
        int n = all_splits(list, &w, &room, NULL, 4, CP_ORDER_GPIPE);
        assert_int_equal(cp_split_best(list, n, &work, &r), CP_OK);
        assert_false(r.found);
        cl->gain_d2d[0][2] = cl->gain_d2d[2][0] = 1e-9;
        assert_int_equal(cp_split_best(list, n, &work, &r), CP_OK);
        assert_true(r.found && isfinite(r.value) && r.plan.segments == 1 && r.plan.device[0] == 1);
        cl->device[1].mem_bytes = 0;
        cp_room_init(&room, &w, 0);
        assert_int_equal(cp_split_best(list, n, &work, &r), CP_OK);
        assert_false(r.found);
        for (int k = 0; k < devices; k++) {
            cl->device[k].present = false;
        }
        assert_int_equal(cp_split_best(list, n, &work, &r), CP_E_PLAN);
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dp_equals_enumeration),
        cmocka_unit_test(both_bottlenecks_count),
        cmocka_unit_test(pruning_loses_nothing),
        cmocka_unit_test(narrow_and_bound),
        cmocka_unit_test(labels_of_devices_do_not_matter),
        cmocka_unit_test(memory_never_hurts),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(nothing_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
