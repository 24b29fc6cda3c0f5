/* The dynamic program against plain enumeration (docs/theory.md section 16, items 13 and 14). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/micro.h"
#include "plan/split.h"
#include "unit/plan/worlds.h"

/* P1_c(v) of a placement, through the forecast: nothing in common with the tables of the DP. */
static double enumerated_value(const struct cp_split *s, const struct cp_cluster_plan *p)
{
    const struct cp_world *w = s->world;
    struct cp_cluster_forecast f;
    cp_cluster_forecast_make(p, s->cluster, w, &f);
    double step = p->order == CP_ORDER_SEQ ? p->micro_batches * cp_step_gpipe_s(&f.times, 1)
                                           : cp_step_gpipe_s(&f.times, p->micro_batches);
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
    int feasible;
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
    e->feasible++;
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
        if (used & 1u << k || !cl->device[k].present) {
            continue;
        }
        for (int n = 1; n <= left; n++) {
            e->plan.device[segment] = k;
            e->plan.layers[segment] = n;
            enumerate(e, segment + 1, left - n, used | 1u << k);
        }
    }
}

static void init_enumeration(struct enumeration *e, const struct cp_split *s)
{
    *e = (struct enumeration){.s = s, .best = INFINITY};
    e->plan = (struct cp_cluster_plan){.order = s->order,
                                       .segments = s->segments,
                                       .micro_batches = s->micro_batches,
                                       .uplink_share = s->uplink_share,
                                       .power_up_w = s->power_up_w};
    e->plan.power_fwd_w[0] = s->power_fwd_w[0];
    cp_plan_set_slots(&e->plan);
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

static void dp_equals_enumeration(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    struct cp_rng r;
    int cases = 0, infeasible = 0, priced = 0;
    cp_rng_init(&r, 4711, CP_RNG_TEST, 0, 0);
    for (int trial = 0; trial < 6; trial++) {
        for (int devices = 1; devices <= 4; devices++) {
            for (int layers = 1; layers <= 6; layers++) {
                struct cp_world w;
                struct cp_queues q;
                uint64_t seed = cp_rng_u32(&r);
                toy_world(&w, 2, devices, layers, seed);
                toy_queues(&q, &w, trial % 2 ? 30 : 0, seed);
                /* In half of the trials links are as long as stages, in either direction. */
                w.radio.band_d2d_hz = cp_rng_range(&r, 2e6, 20e6);
                w.radio.band_down_hz *= trial < 3 ? 1 : pow(10, cp_rng_range(&r, -2, 0));
                w.model.boundary_bytes *= trial < 3 ? 1 : cp_rng_range(&r, 1, 10);
                int cluster = (int)cp_rng_below(&r, 2);
                for (int k = 0; k < devices; k++) { /* room for a few layers, sometimes none */
                    w.cluster[cluster].device[k].mem_bytes =
                        toy_bytes(&TOY, 1 + (int)cp_rng_below(&r, 5), 1) -
                        (cp_rng_u32(&r) % 3 == 0);
                    w.cluster[cluster].device[k].mem_bytes *= 1 + cp_rng_below(&r, 3);
                }
                if (devices > 2) {
                    w.cluster[cluster].device[cp_rng_below(&r, 3)].present = cp_rng_unit(&r) < 0.7;
                }
                static struct cp_room room;
                cp_room_init(&room, &w, cluster);
                int present[CP_DEVICES_MAX], n;
                assert_int_equal(cp_draft_present(&w.cluster[cluster], present, &n), CP_OK);
                for (int s = 1; s <= n && s <= layers; s++) {
                    struct cp_split split;
                    int micro = 1 + (int)cp_rng_below(&r, 9);
                    enum cp_order order = (enum cp_order)cp_rng_below(&r, 3);
                    cp_split_init(&split, &w, cluster, &room, &q, s, micro, order);
                    split.v *= trial == 3 ? 0 : pow(10, cp_rng_range(&r, -3, 0));
                    disturb(&split, &r);
                    struct enumeration e;
                    init_enumeration(&e, &split);
                    enumerate(&e, 0, layers, 0);
                    struct cp_split_result got;
                    assert_int_equal(cp_split_solve(&split, &work, &got), CP_OK);
                    assert_int_equal(got.found, e.feasible > 0);
                    cases++;
                    infeasible += !got.found;
                    priced += q.energy[cluster][1] > 0;
                    if (got.found) {
                        assert_true(near_rel(got.value, e.best, 1e-12));
                        assert_true(
                            near_rel(enumerated_value(&split, &got.plan), got.value, 1e-12));
                    }
                }
                cp_queues_fini(&q);
                cp_world_fini(&w);
            }
        }
    }
    print_message("%d cases, %d infeasible, %d with prices\n", cases, infeasible, priced);
    assert_true(cases > 200 && infeasible > 20 && infeasible < cases / 2 && priced > 50);
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
        struct enumeration e;
        struct cp_split_result got;
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
        init_enumeration(&e, &split);
        enumerate(&e, 0, 6, 0);
        assert_int_equal(cp_split_solve(&split, &work, &got), CP_OK);
        assert_true(got.found && near_rel(got.value, e.best, 1e-12));
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

/* A narrow pass finds something; a bound below the optimum finds nothing, at it the optimum. */
static void narrow_and_bound(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    static struct cp_room room;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct cp_world w;
        struct cp_split s;
        struct cp_split_result r;
        toy_world(&w, 1, 6, 12, seed);
        cp_room_init(&room, &w, 0);
        cp_split_init(&s, &w, 0, &room, NULL, 4, 4, CP_ORDER_1F1B);
        assert_int_equal(cp_split_solve(&s, &work, &r), CP_OK);
        assert_true(r.found);
        double best = r.value;
        s.narrow = true;
        assert_int_equal(cp_split_solve(&s, &work, &r), CP_OK);
        assert_true(r.found && r.value >= best * (1 - 1e-12));
        s.narrow = false;
        s.bound = best;
        assert_int_equal(cp_split_solve(&s, &work, &r), CP_OK);
        assert_true(r.found && near_rel(r.value, best, 1e-12));
        s.bound = best * (1 - 1e-9);
        assert_int_equal(cp_split_solve(&s, &work, &r), CP_OK);
        assert_false(r.found);
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

/* Above CP_SPLIT_EXACT_DEVICES the search is a beam: it must still find what fits at all. */
static void beam_finds_a_tight_placement(void **state)
{
    (void)state;
    struct cp_split_work work = {0};
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct cp_world w;
        static struct cp_room room;
        struct cp_rng r;
        toy_world(&w, 1, 12, 24, seed);
        cp_rng_init(&r, seed, CP_RNG_TEST, 5, 0);
        int sum = 0; /* together exactly 24 layers with one slot, no layer to spare */
        for (int k = 0; k < 12; k++) {
            int room_for = k == 11 ? 24 - sum : 1 + (int)cp_rng_below(&r, 3);
            room_for = room_for < 24 - sum - (11 - k) ? room_for : 24 - sum - (11 - k);
            sum += room_for;
            w.cluster[0].device[k].mem_bytes = toy_bytes(&TOY, room_for, 1);
        }
        assert_int_equal(sum, 24);
        cp_room_init(&room, &w, 0);
        struct cp_split s;
        struct cp_split_result got;
        cp_split_init(&s, &w, 0, &room, NULL, 12, 4, CP_ORDER_SEQ);
        assert_int_equal(cp_split_solve(&s, &work, &got), CP_OK);
        assert_true(got.found);
        assert_true(cp_draft_fits(&got.plan, &room));
        w.cluster[0].device[3].mem_bytes--;
        cp_room_init(&room, &w, 0);
        assert_int_equal(cp_split_solve(&s, &work, &got), CP_OK);
        assert_false(got.found);
        cp_world_fini(&w);
    }
    cp_split_work_fini(&work);
}

static void micro_rule_equals_search(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 12, CP_RNG_TEST, 1, 0);
    for (int i = 0; i < 5000; i++) {
        double slope = cp_rng_unit(&r) < 0.05 ? 0 : pow(10, cp_rng_range(&r, -4, 4));
        double price = cp_rng_unit(&r) < 0.05 ? 0 : pow(10, cp_rng_range(&r, -4, 6));
        int most = 1 + (int)cp_rng_below(&r, 40), best = 1;
        for (int m = 2; m <= most; m++) {
            if (slope * m + price / m < slope * best + price / best) {
                best = m;
            }
        }
        int got = cp_micro_best(slope, price, most);
        assert_in_range(got, 1, most);
        assert_true(slope * got + price / got <= slope * best + price / best);
    }
    assert_int_equal(cp_micro_best(0, 1, 16), 16);
    assert_int_equal(cp_micro_best(0, 0, 16), 1);
    assert_int_equal(cp_micro_best(1, 1e300, 16), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dp_equals_enumeration),    cmocka_unit_test(both_bottlenecks_count),
        cmocka_unit_test(narrow_and_bound),         cmocka_unit_test(beam_finds_a_tight_placement),
        cmocka_unit_test(micro_rule_equals_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
