/* The slot: shares, ablations, last round's plan, and the modes beyond the paper. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "plan/solver.h"
#include "unit/plan/worlds.h"

static void decide(const char *policy, const struct cp_policy_args *a, struct cp_plan *p,
                   struct cp_decision *d)
{
    if (cp_policy_decide(cp_policy_find(policy), a, p, d) != CP_OK) {
        fail_msg("%s: %s", policy, cp_err_text());
    }
}

/* --- shares of the edge server's band -------------------------------------------------------- */

enum { STEPS = 16, CLUSTERS = 4 };

/* Weights as in section 11.6, for the reference. */
static int all_weights(double v, int n_clusters, double out[7])
{
    for (int i = 0; i < 6; i++) {
        out[i] = v * pow(1e-2 / n_clusters, i / 5.0);
    }
    out[6] = 0;
    return 7;
}

/* The least J of all ways to deal out what is left of the band in steps, everything else solved
 * again at each share. */
static double deal(struct cp_front front[CLUSTERS][STEPS], const struct cp_policy_args *a,
                   struct cp_plan *p, int share[CLUSTERS], int c, int left)
{
    int n = a->world->n_clusters, pick[CLUSTERS];
    struct cp_front chosen[CLUSTERS] = {{0}};
    double best = INFINITY;
    if (c + 1 < n) {
        for (share[c] = 1; share[c] <= left - (n - 1 - c); share[c]++) {
            best = fmin(best, deal(front, a, p, share, c + 1, left - share[c]));
        }
        return best;
    }
    share[c] = left;
    for (int i = 0; i < n; i++) {
        chosen[i] = front[i][share[i] - 1];
    }
    assert_int_equal(cp_front_merge(chosen, n, a->queues->v, pick), CP_OK);
    for (int i = 0; i < n; i++) {
        p->cluster[i] = chosen[i].item[pick[i]].plan;
    }
    return cp_plan_objective(p, a->world, a->queues);
}

static double best_on_a_grid(const struct cp_policy_args *a, const struct cp_solver_options *o)
{
    static struct cp_front front[CLUSTERS][STEPS];
    static struct cp_room room;
    struct cp_solver x = {.a = a, .o = o, .room = &room};
    struct cp_plan p;
    double v[7];
    int n = a->world->n_clusters, share[CLUSTERS];
    for (int c = 0; c < n; c++) {
        for (int y = 1; y <= STEPS; y++) {
            assert_int_equal(cp_cluster_solve(&x, c, (double)y / STEPS, v,
                                              all_weights(a->queues->v, n, v), NULL,
                                              &front[c][y - 1]),
                             CP_OK);
        }
    }
    assert_int_equal(cp_plan_init(&p, n), CP_OK);
    double best = deal(front, a, &p, share, 0, STEPS);
    for (int c = 0; c < n; c++) {
        for (int y = 0; y < STEPS; y++) {
            cp_front_fini(&front[c][y]);
        }
    }
    cp_split_work_fini(&x.work);
    cp_plan_fini(&p);
    return best;
}

/* Uplinks that matter: half of the clusters far away, a narrow band, prices of very different
 * height. Uniform cuts, so that only what is shared is searched. */
static void shares_are_near_the_best_of_a_grid(void **state)
{
    (void)state;
    const struct cp_solver_options uniform = {.uniform_cut = true};
    const struct cp_solver_options equal_too = {.uniform_cut = true, .equal_share = true};
    double worst = 0, sum = 0, equal = 0;
    for (uint64_t seed = 1; seed <= 15; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan p;
        struct cp_decision d, e = {0};
        toy_world(&w, 2 + (int)(seed % 3), 2, 4, seed);
        w.radio.band_up_hz /= seed % 2 ? 1 : 8;
        toy_queues(&q, &w, seed % 4 ? 10 : 0, seed);
        struct cp_policy_args a = {
            .world = &w, .queues = &q, .choose_order = seed % 5 == 0, .order = CP_ORDER_GPIPE};
        for (int c = 0; c < w.n_clusters; c += 2) {
            for (int node = 0; node <= 2; node++) {
                w.cluster[c].gain_d2e[node] /= 30;
                w.cluster[c].device[node].mem_bytes = (size_t)4 << 30;
            }
        }
        decide("dssda-uniform", &a, &p, &d);
        cp_plan_fini(&p);
        assert_int_equal(cp_plan_init(&p, w.n_clusters), CP_OK);
        assert_int_equal(cp_slot_solve(&a, &equal_too, &p, &e), CP_OK);
        double fixed = cp_plan_objective(&p, &w, &q);
        cp_plan_fini(&p);
        double best = best_on_a_grid(&a, &uniform);
        worst = fmax(worst, d.objective / best - 1);
        sum += d.objective / best - 1;
        equal = fmax(equal, fixed / best - 1);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    print_message("slot: shares %.3g above a grid, at most %.3g; equal ones %.3g\n", sum / 15,
                  worst, equal);
    assert_true(sum / 15 <= 0.01 && worst <= 0.08 && equal > 0.1);
}

/* Small clusters of any mode: shares of those that work apart, too. */
static void shares_of_other_modes(void **state)
{
    (void)state;
    const struct cp_solver_options extended = {.extended = true};
    double worst = 0;
    int apart = 0, split = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan p;
        struct cp_decision d;
        toy_world(&w, 2, 2, 2, seed);
        w.server_flops = seed % 2 ? 1e11 : 1e13;
        w.radio.band_up_hz /= seed % 4 < 2 ? 1 : 8;
        w.radio.band_d2d_hz /= 50; /* pipelines are slow */
        toy_queues(&q, &w, seed % 3 ? 10 : 0, seed);
        for (int k = 0; k < 2; k++) {
            w.cluster[0].device[k].mem_bytes = w.cluster[1].device[k].mem_bytes = (size_t)4 << 30;
            w.cluster[0].gain_d2e[k + 1] /= 10;
        }
        struct cp_policy_args a = {
            .world = &w, .queues = &q, .order = CP_ORDER_GPIPE, .alone = true};
        decide("dssda-x", &a, &p, &d);
        for (int c = 0; c < 2; c++) {
            apart += p.cluster[c].mode != CP_MODE_PIPELINE;
            split += p.cluster[c].mode == CP_MODE_SPLIT;
        }
        assert_null(strstr(d.binding, "does not fit"));
        cp_plan_fini(&p);
        worst = fmax(worst, d.objective / best_on_a_grid(&a, &extended) - 1);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    print_message("slot: other modes (%d of 32, %d split) at most %.3g above a grid\n", apart,
                  split, worst);
    assert_true(worst <= 0.04 && apart > 10 && split > 3);
}

/* --- options --------------------------------------------------------------------------------- */

static void check_ablation(const char *name, const struct cp_plan *p, const struct cp_world *w)
{
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_plan *k = &p->cluster[c];
        const struct cp_cluster *cl = &w->cluster[c];
        struct cp_cluster_plan uniform;
        double part = cp_plan_overlaps(k) ? 0.5 : 1;
        bool band = strcmp(name, "dssda-equal-band") == 0;
        bool power = strcmp(name, "dssda-max-power") == 0;
        assert_int_equal(k->mode, CP_MODE_PIPELINE);
        assert_int_equal(k->edge_layers, 0);
        assert_int_equal(k->upload_format, CP_FORMAT_FP32);
        for (int s = 0; s < k->segments; s++) {
            const struct cp_device *d = &cl->device[k->device[s]];
            assert_int_equal(k->link_format[s], CP_FORMAT_FP32);
            assert_true(!band || k->band_fwd[s] == 1.0 / k->segments);
            assert_true(!band || k->band_bwd[s] == 1.0 / k->segments);
            assert_true(!power || k->power_bwd_w[s + 1] == part * d->power_d2d_w);
            assert_true(!power || k->power_fwd_w[s + 1] == part * cp_fwd_limit_w(k, cl, s + 1));
            if (strcmp(name, "dssda-order") == 0 && s > 0) {
                assert_true(k->device[s] > k->device[s - 1]);
            }
        }
        assert_true(!power || (k->power_up_w == cl->cu.power_d2e_w &&
                               k->power_fwd_w[0] == cl->cu.power_d2d_w));
        if (strcmp(name, "dssda-equal-share") == 0) {
            assert_true(k->uplink_share == 1.0 / p->n_clusters);
        }
        if (strcmp(name, "dssda-uniform") == 0) {
            assert_int_equal(cp_draft_uniform(w, c, &uniform), CP_OK);
            assert_true(cp_plan_same_cut(k, &uniform));
        }
        if (strcmp(name, "dssda-fixed-m") == 0) {
            assert_int_equal(k->micro_batches, w->micro_ref);
        }
    }
}

static const char *const ABLATIONS[] = {
    "dssda-uniform",     "dssda-order",     "dssda-fixed-m", "dssda-equal-band",
    "dssda-equal-share", "dssda-max-power", "dssda",
};

/* Every ablation holds fixed what its name says, also where the last round was decided by a policy
 * that did not, or that does more than the paper. */
static void ablations_hold_what_they_say(void **state)
{
    (void)state;
    static const char *const before[] = {"", "dssda", "fedavg", "splitfed", "dssda-x", "random"};
    int different = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan last = {0}, p;
        struct cp_decision d;
        toy_world(&w, 2, 3, 5, seed);
        toy_queues(&q, &w, 10, seed);
        for (int k = 0; k < 6; k++) {
            w.cluster[k / 3].device[k % 3].mem_bytes = (size_t)4 << 30;
        }
        w.server_flops *= 10;
        struct cp_policy_args a = {.world = &w,
                                   .mean = &w,
                                   .queues = &q,
                                   .choose_order = true,
                                   .choose_micro = true,
                                   .any_format = true,
                                   .alone = true,
                                   .seed = seed};
        if (seed % 6) {
            decide(before[seed % 6], &a, &last, &d);
        }
        a.incumbent = seed % 6 ? &last : NULL;
        for (size_t i = 0; i < sizeof ABLATIONS / sizeof ABLATIONS[0]; i++) {
            decide(ABLATIONS[i], &a, &p, &d);
            check_ablation(ABLATIONS[i], &p, &w);
            different += !last.cluster || !cp_plan_same_cut(&p.cluster[0], &last.cluster[0]);
            cp_plan_fini(&p);
        }
        cp_plan_fini(&last);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    assert_true(different > 20);
}

/* Somebody comes back: the uniform cut is that of all who are there, whatever it was. */
static void uniform_cut_follows_presence(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p, next;
    struct cp_decision d;
    toy_world(&w, 2, 4, 8, 4);
    for (int k = 0; k < 8; k++) {
        w.cluster[k / 4].device[k % 4].mem_bytes = (size_t)4 << 30;
    }
    struct cp_policy_args a = {.world = &w, .choose_order = true};
    w.cluster[1].device[2].present = false;
    decide("dssda-uniform", &a, &p, &d);
    assert_int_equal(p.cluster[1].segments, 3);
    w.cluster[1].device[2].present = true;
    a.incumbent = &p;
    decide("dssda-uniform", &a, &next, &d);
    check_ablation("dssda-uniform", &next, &w);
    cp_plan_fini(&p);
    cp_plan_fini(&next);
    cp_world_fini(&w);
}

/* --- the last plan --------------------------------------------------------------------------- */

/* A plan of other clusters, layers or devices is not looked at. */
static void plans_of_other_worlds_are_ignored(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct cp_world w, other;
        struct cp_plan p, odd, fresh;
        struct cp_decision d, e;
        toy_world(&w, 2, 3, 5, seed);
        struct cp_policy_args a = {.world = &w, .choose_order = true, .choose_micro = true};
        decide("dssda", &a, &fresh, &d);
        const int size[][3] = {{3, 3, 5}, {1, 3, 5}, {2, 3, 7}, {2, 3, 3}, {2, 6, 5}};
        for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
            toy_world(&other, size[i][0], size[i][1], size[i][2], seed + 100);
            struct cp_policy_args b = {
                .world = &other, .order = CP_ORDER_GPIPE, .choose_order = true, .seed = seed};
            decide(i < 4 ? "dssda" : "gpipe-uniform", &b, &odd, &e); /* with devices 4 and 5 */
            a.incumbent = &odd;
            decide("dssda", &a, &p, &e);
            assert_null(strstr(e.binding, "cuts kept"));
            assert_true(e.objective == d.objective);
            assert_memory_equal(p.cluster, fresh.cluster, 2 * sizeof *p.cluster);
            a.incumbent = NULL;
            cp_plan_fini(&p);
            cp_plan_fini(&odd);
            cp_world_fini(&other);
        }
        cp_plan_fini(&fresh);
        cp_world_fini(&w);
    }
}

/* Cuts that are within the margin stay, with everything else decided anew, and J does not show it
 * by more than the margin. */
static void cuts_stay_under_the_margin(void **state)
{
    (void)state;
    int kept = 0, moved = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_plan p, next, fresh;
        struct cp_decision d, e, f;
        struct cp_rng r;
        toy_world(&w, 2, 3, 6, seed);
        toy_queues(&q, &w, 10, seed);
        cp_rng_init(&r, seed, CP_RNG_TEST, 18, 0);
        struct cp_policy_args a = {.world = &w, .queues = &q, .choose_order = true};
        double most = seed % 3 ? 0.05 : 0.2; /* change of rates and channels */
        decide("dssda", &a, &p, &d);
        for (int i = 0; i < 6; i++) {
            w.cluster[i / 3].device[i % 3].rate_flops *= 1 + cp_rng_range(&r, -most, most);
            w.cluster[i / 3].gain_d2e[1 + i % 3] *= 1 + cp_rng_range(&r, -most, most);
        }
        decide("dssda", &a, &fresh, &f);
        a.incumbent = &p;
        decide("dssda", &a, &next, &e);
        bool same = cp_plan_same_cut(&p.cluster[0], &next.cluster[0]) &&
                    cp_plan_same_cut(&p.cluster[1], &next.cluster[1]);
        assert_true(e.objective * (1 - CP_KEEP_MARGIN) <= f.objective * (1 + 2e-3));
        if (strstr(e.binding, "cuts kept")) {
            assert_true(same);
            kept++;
        }
        moved += !same;
        double sum = next.cluster[0].uplink_share + next.cluster[1].uplink_share;
        assert_true(near_rel(sum, 1, 1e-9));
        cp_plan_fini(&p);
        cp_plan_fini(&next);
        cp_plan_fini(&fresh);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    print_message("slot: cuts kept %d times, moved %d times\n", kept, moved);
    assert_true(kept > 3 && moved > 3);
}

/* --- fronts of clusters ---------------------------------------------------------------------- */

/* Where memory asks for another order than the given one, the front is as good as if that had been
 * asked for: every weight counts, not the first alone. */
static void fallback_orders_have_whole_fronts(void **state)
{
    (void)state;
    static struct cp_room room;
    const struct cp_solver_options none = {0};
    int larger = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct cp_world w;
        struct cp_queues q;
        struct cp_front front[2] = {{0}, {0}};
        double v[7];
        toy_world(&w, 1, 3, 6, seed);
        toy_queues(&q, &w, 20, seed);
        for (int k = 0; k < 3; k++) {
            w.cluster[0].device[k].mem_bytes = toy_bytes(&TOY, 3, seed % 2 ? 4 : 1);
        }
        int n = all_weights(q.v, 1, v);
        struct cp_policy_args a = {.world = &w, .queues = &q};
        struct cp_solver x = {.a = &a, .o = &none, .room = &room};
        for (int i = 0; i < 2; i++) {
            a.order = i == 0 ? CP_ORDER_GPIPE : seed % 2 ? CP_ORDER_1F1B : CP_ORDER_SEQ;
            assert_int_equal(cp_cluster_solve(&x, 0, 1, v, n, NULL, &front[i]), CP_OK);
        }
        assert_int_equal(front[0].n, front[1].n);
        larger += front[0].n > 1;
        for (int i = 0; i < front[0].n; i++) {
            assert_true(front[0].item[i].value.time_s == front[1].item[i].value.time_s);
            assert_true(front[0].item[i].value.cost == front[1].item[i].value.cost);
        }
        cp_front_fini(&front[0]);
        cp_front_fini(&front[1]);
        cp_split_work_fini(&x.work);
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    assert_true(larger > 6);
}

/* The fastest device cannot hold the whole model: the next one can. */
static void modes_look_past_small_devices(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct cp_world w;
        struct cp_plan p;
        struct cp_decision d, e;
        toy_world(&w, 1, 3, 4, seed);
        w.radio.band_d2d_hz /= 1e4; /* no pipeline can be of use */
        w.server_flops = 1e9;
        for (int k = 0; k < 3; k++) {
            w.cluster[0].device[k].mem_bytes = (size_t)4 << 30;
            w.cluster[0].device[k].rate_flops = 1e11 * (k == 1 ? 2 : 1);
        }
        w.cluster[0].device[1].mem_bytes = toy_bytes(&TOY, 1, 16);
        struct cp_policy_args a = {.world = &w, .mean = &w, .choose_order = true};
        decide("best-single", &a, &p, &e);
        cp_plan_fini(&p);
        a.alone = true;
        decide("dssda-x", &a, &p, &d);
        assert_int_equal(p.cluster[0].mode, CP_MODE_FULL);
        assert_true(d.objective <= e.objective);
        assert_non_null(strstr(d.binding, "mode full"));
        cp_plan_fini(&p);
        cp_world_fini(&w);
    }
}

/* A link that carries nothing in any time is named, also where a policy has no other choice. */
static void dead_links_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"splitfed", "fedavg", "best-single", "pipeedge"};
    struct cp_world w;
    toy_world(&w, 1, 2, 3, 3);
    for (int node = 0; node <= 2; node++) {
        w.cluster[0].gain_d2e[node] = 1e-320;
    }
    for (int k = 0; k < 2; k++) {
        w.cluster[0].device[k].mem_bytes = (size_t)4 << 30;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct cp_policy_args a = {.world = &w, .mean = &w, .choose_order = true};
        struct cp_plan p;
        struct cp_decision d;
        assert_int_equal(cp_policy_decide(cp_policy_find(names[i]), &a, &p, &d), CP_E_PLAN);
        if (!strstr(cp_err_text(), "ever end")) {
            fail_msg("%s: %s", names[i], cp_err_text());
        }
    }
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_near_the_best_of_a_grid),
        cmocka_unit_test(shares_of_other_modes),
        cmocka_unit_test(ablations_hold_what_they_say),
        cmocka_unit_test(uniform_cut_follows_presence),
        cmocka_unit_test(plans_of_other_worlds_are_ignored),
        cmocka_unit_test(cuts_stay_under_the_margin),
        cmocka_unit_test(fallback_orders_have_whole_fronts),
        cmocka_unit_test(modes_look_past_small_devices),
        cmocka_unit_test(dead_links_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
