/* sim: what rounds tell of the speed of nodes and links, against the world that they ran in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/observe.h"
#include "unit/plan/worlds.h"

enum { CLUSTERS = 2 };

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

struct kit {
    struct cp_world w;
    struct cp_plan p;
    struct cp_sim_round r;
    struct cp_estimate *e;
};

/* One round of a policy, observed. */
static void make(struct kit *k, const char *policy, enum cp_order order, uint64_t seed)
{
    struct cp_decision d;
    *k = (struct kit){0};
    toy_world(&k->w, CLUSTERS, 4, 6, seed);
    struct cp_policy_args a = {.world = &k->w, .mean = &k->w, .order = order};
    assert_int_equal(cp_policy_decide(cp_policy_find(policy), &a, &k->p, &d), CP_OK);
    assert_int_equal(cp_sim_round(&k->p, &k->w, NULL, 0, &k->r), CP_OK);
    assert_int_equal(cp_estimate_new(&k->w, &(struct cp_estimate_options){.trusted = 1}, &k->e),
                     CP_OK);
    cp_observe_round(&k->p, &k->w, &k->r, k->e);
}

static void drop(struct kit *k)
{
    cp_estimate_free(k->e);
    cp_sim_round_fini(&k->r);
    cp_plan_fini(&k->p);
    cp_world_fini(&k->w);
}

static double figure(const struct kit *k, enum cp_figure_kind kind, int cluster, int node, int peer)
{
    struct cp_figure f = cp_estimate_figure(k->e, (struct cp_figure_id){kind, cluster, node, peer});
    assert_true(f.count == 1 && f.round == k->w.round);
    return f.value;
}

/* With half the band each way (1f1b) and with all of it (gpipe) the truth comes back. */
static void the_truth_comes_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct kit k;
        make(&k, "dssda", seed % 2 ? CP_ORDER_1F1B : CP_ORDER_GPIPE, seed);
        for (int c = 0; c < CLUSTERS; c++) {
            const struct cp_cluster_plan *p = &k.p.cluster[c];
            const struct cp_cluster *cl = &k.w.cluster[c];
            int before = 0;
            assert_near(figure(&k, CP_FIGURE_RATE, c, 0, 0), cl->cu.rate_flops);
            for (int s = 0; s < p->segments; s++) {
                int node = p->device[s] + 1;
                assert_near(figure(&k, CP_FIGURE_RATE, c, node, 0),
                            cl->device[p->device[s]].rate_flops);
                assert_near(figure(&k, CP_FIGURE_D2D, c, before, node), cl->gain_d2d[before][node]);
                before = node;
            }
            assert_near(figure(&k, CP_FIGURE_D2E, c, before, 0), cl->gain_d2e[before]);
            assert_near(figure(&k, CP_FIGURE_D2E, c, 0, 0), cl->gain_d2e[0]);
        }
        drop(&k);
    }
}

/* Stages: twice as fast as believed is an error of 1, half as fast one of a half. Links likewise,
 * by their rate. */
static void errors_are_of_times(void **state)
{
    (void)state;
    struct kit k;
    struct cp_world believed = {0};
    struct cp_mean stages = {0}, links = {0};
    make(&k, "gpipe-uniform", CP_ORDER_GPIPE, 3);
    cp_observe_errors(&k.p, &k.w, k.e, &stages, &links);
    assert_int_equal(stages.n, CLUSTERS * 5);
    assert_int_equal(links.n, CLUSTERS * 6);
    assert_true(stages.mean < 1e-9 && links.mean < 1e-9);

    assert_int_equal(cp_world_copy(&believed, &k.w), CP_OK);
    believed.cluster[0].cu.rate_flops /= 2;
    believed.cluster[1].device[2].rate_flops *= 2;
    believed.cluster[1].gain_d2e[0] *= 1e6;
    stages = links = (struct cp_mean){0};
    cp_observe_errors(&k.p, &believed, k.e, &stages, &links);
    assert_near(stages.mean, (1 + 0.5) / (CLUSTERS * 5));
    assert_true(links.mean > 0 && links.mean < 1.0 / (CLUSTERS * 6));
    cp_world_fini(&believed);
    drop(&k);
}

/* Nothing is timed where nothing runs op by op. */
static void whole_models_tell_nothing(void **state)
{
    (void)state;
    struct kit k = {0};
    struct cp_decision d;
    struct cp_mean stages = {0}, links = {0};
    toy_world(&k.w, CLUSTERS, 2, 3, 5);
    for (int c = 0; c < CLUSTERS; c++) {
        for (int i = 0; i < 2; i++) {
            k.w.cluster[c].device[i].mem_bytes = (size_t)1 << 40;
        }
    }
    struct cp_policy_args a = {.world = &k.w, .mean = &k.w};
    assert_int_equal(cp_policy_decide(cp_policy_find("fedavg"), &a, &k.p, &d), CP_OK);
    assert_int_equal(cp_sim_round(&k.p, &k.w, NULL, 0, &k.r), CP_OK);
    assert_int_equal(cp_estimate_new(&k.w, &(struct cp_estimate_options){0}, &k.e), CP_OK);
    cp_observe_round(&k.p, &k.w, &k.r, k.e);
    cp_observe_errors(&k.p, &k.w, k.e, &stages, &links);
    assert_true(stages.n == 0 && links.n == 0);
    drop(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_truth_comes_back),
        cmocka_unit_test(errors_are_of_times),
        cmocka_unit_test(whole_models_tell_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
