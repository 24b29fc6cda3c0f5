/* estimates: the constants of the convergence bound over a run: training does not feel them, they
 * do not feel the cut, a resumed run goes on with them, the planner and the bound get them. */
#include "unit/node/kit.h"

#include "base/log.h"
#include "node/bound.h"

#include <math.h>

static int set_up(void **state)
{
    static struct kit k;
    memset(&k, 0, sizeof k);
    kit_dir(&k, 90);
    *state = &k;
    return 0;
}

static int tear_down(void **state)
{
    kit_remove(*state);
    return 0;
}

static void run(struct kit *k, const char *const *args)
{
    k->rounds = 0;
    assert_int_equal(kit_open(k, args), CP_OK);
    if (kit_run(k) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
    kit_hash(k);
    kit_check_memory(k);
}

enum { CLUSTERS = 2 };

/* What a checkpoint keeps, by value. */
struct known {
    struct cp_constants_mean variance[CLUSTERS], dissimilarity2;
    double ratio[CP_CONSTANTS_RATIOS], start_loss;
    int n_ratios;
};

static struct known known_of(const struct cp_edge *e)
{
    struct known x;
    memset(&x, 0, sizeof x); /* it is compared as memory */
    memcpy(x.variance, e->constants.variance, sizeof x.variance);
    x.dissimilarity2 = e->constants.dissimilarity2;
    x.n_ratios = e->constants.n_ratios;
    memcpy(x.ratio, e->constants.ratio, (size_t)x.n_ratios * sizeof x.ratio[0]);
    x.start_loss = e->start_loss;
    return x;
}

static const char *const HALF[] = {"train.estimate_every=0", "train.estimate_every=1",
                                   "train.estimate_every=2", NULL};

static void training_does_not_feel_them(void **state)
{
    struct kit *k = *state;
    char sha[CP_SHA256_HEX] = "";
    for (int i = 0; HALF[i]; i++) {
        run(k, (const char *const[]){HALF[i], "clusters=2x3", "plan.cuts=[[1,1,1],[2,1,0]]", NULL});
        struct known x = known_of(&k->edge);
        assert_int_equal(x.variance[1].rounds, i > 0 ? 2 : 0);
        assert_int_equal(x.n_ratios, i > 0 ? 2 : 0);
        if (i == 0) {
            memcpy(sha, k->sha, sizeof sha);
        }
        assert_string_equal(sha, k->sha);
        kit_close(k);
    }
}

/* Cuts, orders, and one node for everything between: the same bits. */
static void they_do_not_feel_the_cut(void **state)
{
    struct kit *k = *state;
    static const char *const CUTS[] = {"plan.cuts=[[1,1,1],[1,1,1]]", "plan.cuts=[[3,0,0],[0,1,2]]",
                                       "plan.cuts=[[0,1,2],[2,0,1]]"};
    static const char *const ORDERS[] = {"pipe.order=1f1b", "pipe.order=gpipe", "pipe.order=seq"};
    struct known first = {0};
    for (int i = 0; i < 3; i++) {
        run(k, (const char *const[]){CUTS[i], ORDERS[i], "clusters=2x3", HALF[2], "data.alpha=0.3",
                                     "data.partition=dirichlet", "train.freeze=1", NULL});
        struct known x = known_of(&k->edge);
        for (int c = 0; c < CLUSTERS; c++) {
            assert_int_equal(x.variance[c].rounds, 2);
            assert_true(x.variance[c].value > 0 && isfinite(x.variance[c].value));
        }
        assert_int_equal(x.dissimilarity2.rounds, 2);
        assert_int_equal(x.n_ratios, 2);
        assert_true(x.start_loss > 0.5 && x.start_loss < 3); /* three classes, untrained: ln 3 */
        if (i == 0) {
            first = x;
        }
        assert_memory_equal(&first, &x, sizeof x);
        kit_close(k);
    }
}

static const char *const LONG[] = {"plan.policy=dssda",
                                   "plan.cuts=null",
                                   "clusters=2x3",
                                   "train.estimate_every=2",
                                   "fed.rounds=4",
                                   "radio.kind=rayleigh",
                                   "plan.v=10",
                                   "run.save_every=3",
                                   NULL};

/* Interrupted after two rounds or not; the planner's world knows the variances either way. */
static void a_resumed_run_goes_on_with_them(void **state)
{
    struct kit *k = *state;
    char dir[256], whole[CP_SHA256_HEX];
    k->stop_after = 0;
    run(k, LONG);
    struct known x = known_of(&k->edge);
    struct kit_cost cost[KIT_ROUNDS_MAX];
    memcpy(whole, k->sha, sizeof whole);
    memcpy(cost, k->cost, sizeof cost);
    kit_close(k);
    k->save = true;
    k->stop_after = 2;
    run(k, LONG);
    struct known half = known_of(&k->edge);
    assert_true(half.n_ratios == 2 && x.n_ratios == 4);
    assert_true(half.variance[0].rounds > 0 && half.variance[1].rounds > 0);
    snprintf(dir, sizeof dir, "%s", k->saved.p);
    kit_close(k);
    k->save = false;
    k->stop_after = 0;
    assert_int_equal(kit_open(k, LONG), CP_OK);
    assert_int_equal(kit_resume(k, dir), CP_OK);
    kit_hash(k);
    struct known end = known_of(&k->edge);
    assert_memory_equal(&x, &end, sizeof x);
    assert_string_equal(k->sha, whole);
    assert_memory_equal(k->cost + 2, cost + 2, 2 * sizeof cost[0]);
    const struct cp_world *w = &k->edge.world; /* of the last round, before what it told itself */
    for (int c = 0; c < CLUSTERS; c++) {
        assert_true(w->cluster[c].grad_variance > 0);
        assert_true(w->cluster[c].grad_variance != cp_constants_variance(&k->edge.constants, c));
    }
    double even = w->cluster[0].weight.alpha / w->cluster[1].weight.alpha;
    double told = w->cluster[0].grad_variance / w->cluster[1].grad_variance;
    struct cp_world equal = {0};
    assert_int_equal(cp_world_copy(&equal, w), CP_OK);
    equal.cluster[0].grad_variance = equal.cluster[1].grad_variance = 0;
    cp_world_weigh(&equal);
    even /= equal.cluster[0].weight.alpha / equal.cluster[1].weight.alpha;
    assert_true(fabs(even - told) < 1e-9 * told);
    cp_world_fini(&equal);
    kit_close(k);
}

static void damaged_constants_do_not_resume(void **state)
{
    struct kit *k = *state;
    static const char *const DAMAGE[] = {"s/\"start_loss\"/\"start_lost\"/",
                                         "s/\"smoothness\": \\[/\"smoothness\": [-1,/",
                                         "s/\"smoothness\": \\[/\"smoothness\": [\"x\",/",
                                         "s/\"dissimilarity2\": \\[/&1,/",
                                         "s/\"variance\": \\[/&[1,1],/",
                                         "s/\"constants\"/\"constant\"/"};
    char dir[256], cmd[600];
    k->save = true;
    run(k, (const char *const[]){"clusters=2x3", "plan.cuts=[[1,1,1],[2,1,0]]", NULL});
    snprintf(dir, sizeof dir, "%s", k->saved.p);
    kit_close(k);
    k->save = false;
    for (size_t i = 0; i < sizeof DAMAGE / sizeof DAMAGE[0]; i++) {
        struct cp_str log = {0};
        snprintf(cmd, sizeof cmd, "cd '%s' && cp trainer_state.json keep && sed -i '%s' %s", dir,
                 DAMAGE[i], "trainer_state.json && ! cmp -s keep trainer_state.json");
        assert_int_equal(system(cmd), 0);
        assert_int_equal(kit_open(k, (const char *const[]){"clusters=2x3", "fed.rounds=9",
                                                           "plan.cuts=[[1,1,1],[2,1,0]]", NULL}),
                         CP_OK);
        assert_int_equal(cp_net_new(k->job.cast.n_nodes, k->job.cast.names, &k->net), CP_OK);
        assert_int_equal(cp_edge_init(&k->edge, &k->job, k->net), CP_OK);
        assert_int_equal(cp_snapshot_load(dir, &k->edge, &log), CP_E_CKPT);
        cp_str_fini(&log);
        kit_close(k);
        snprintf(cmd, sizeof cmd, "cd '%s' && mv keep trainer_state.json", dir);
        assert_int_equal(system(cmd), 0);
    }
}

/* The bound for plain gradient descent with a small step, and why there is none elsewhere. */
static void the_bound_or_why_not(void **state)
{
    struct kit *k = *state;
    static const struct {
        const char *args[4], *why;
    } CASES[] = {
        {{"train.optimizer=sgd", "train.lr=1e-4", "train.estimate_every=2"}, NULL},
        {{"train.optimizer=adamw", "train.lr=1e-4", "train.estimate_every=2"}, "optimizer=sgd"},
        {{"train.optimizer=sgd", "train.lr=1e-4", "train.estimate_every=0"}, "estimate_every is 0"},
        {{"train.optimizer=sgd", "train.local_steps=1", "fed.rounds=1", "train.warmup=1"},
         "the weights have not moved"}, /* the first step of a warm-up has a rate of 0 */
        {{"train.optimizer=sgd", "train.micro_batches=1", "train.estimate_every=2"},
         "gradient variance of cluster c1"},
        {{"train.optimizer=sgd", "train.lr=1e2", "train.clip=0.001", "train.estimate_every=2"},
         "Theorem 1 needs at most 0.4"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct cp_bound b = {0};
        run(k,
            (const char *const[]){"clusters=2x3", "plan.cuts=[[1,1,1],[2,1,0]]", CASES[i].args[0],
                                  CASES[i].args[1], CASES[i].args[2], CASES[i].args[3], NULL});
        cp_err err = cp_edge_bound(&k->edge, 2, &b);
        if (CASES[i].why) {
            assert_int_equal(err, CP_E_CONFIG);
            if (!strstr(cp_err_text(), CASES[i].why)) {
                fail_msg("'%s' is not in: %s", CASES[i].why, cp_err_text());
            }
        } else {
            if (err) {
                fail_msg("%s", cp_err_text());
            }
            double lr = 1e-4, h = 3;
            assert_true(fabs(b.start - 4 * k->edge.start_loss / (lr * h * 2)) < 1e-9 * b.start);
            assert_true(b.noise > 0 && b.spread > 0 && b.drift >= 0 && b.lossy == 0);
            assert_int_equal(cp_edge_bound(&k->edge, 4, &b), CP_OK);
            assert_true(fabs(b.start - 4 * k->edge.start_loss / (lr * h * 4)) < 1e-9 * b.start);
        }
        kit_close(k);
    }
}

/* Devices that train whole models, each on its own part of a cluster's samples, tell as well. */
static void replicas_tell_of_their_cluster(void **state)
{
    struct kit *k = *state;
    run(k, (const char *const[]){"plan.policy=fedavg", "plan.cuts=null", "clusters=2x2", HALF[1],
                                 "train.micro_batches=8", NULL});
    struct known x = known_of(&k->edge);
    assert_true(x.variance[0].rounds == 2 && x.variance[1].rounds == 2);
    assert_true(x.dissimilarity2.rounds == 2 && x.n_ratios == 2);
    kit_close(k);
}

/* Three samples for four clusters: who has one tells how smooth the loss is, and no more; who has
 * none tells nothing. */
static void who_has_no_data_tells_nothing(void **state)
{
    (void)state;
    struct kit small = {0};
    kit_dir(&small, 3);
    run(&small, (const char *const[]){"clusters=4x1", "plan.cuts=[[3],[3],[3],[3]]", NULL});
    const struct cp_constants *k = &small.edge.constants;
    for (int c = 0; c < 4; c++) {
        assert_int_equal(k->variance[c].rounds, 0);
    }
    assert_true(k->n_ratios == 2 && k->dissimilarity2.rounds == 0);
    kit_close(&small);
    kit_remove(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_does_not_feel_them),
        cmocka_unit_test(they_do_not_feel_the_cut),
        cmocka_unit_test(a_resumed_run_goes_on_with_them),
        cmocka_unit_test(damaged_constants_do_not_resume),
        cmocka_unit_test(the_bound_or_why_not),
        cmocka_unit_test(replicas_tell_of_their_cluster),
        cmocka_unit_test(who_has_no_data_tells_nothing),
    };
    cp_log_level(CP_LOG_ERROR);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
