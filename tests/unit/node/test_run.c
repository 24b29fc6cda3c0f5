/* A run's unhappy paths: what stops it, what is kept, what is said. */
#include "kit.h"

#include "base/clock.h"
#include "base/log.h"

#include <unistd.h>

static int set_up(void **state)
{
    static struct kit k;
    memset(&k, 0, sizeof k);
    kit_dir(&k, 40);
    *state = &k;
    return 0;
}

static int tear_down(void **state)
{
    kit_remove(*state);
    return 0;
}

static void expect_text(const char *part)
{
    if (!strstr(cp_err_text(), part)) {
        fail_msg("'%s' is not in the sentence: %s", part, cp_err_text());
    }
}

static void a_huge_rate_is_refused_and_named(void **state)
{
    struct kit *k = *state;
    assert_int_equal(
        kit_open(k, (const char *const[]){"train.lr=1e9", "train.clip=0", "train.warmup=0",
                                          "train.optimizer=sgd", "train.local_steps=20", NULL}),
        CP_OK);
    assert_int_equal(kit_run(k), CP_E_NONFINITE);
    expect_text("not finite");
    expect_text("train.lr");
    expect_text("round 1");
    kit_close(k);
}

static void a_plan_that_does_not_fit_is_named(void **state)
{
    struct kit *k = *state;
    assert_int_equal(
        kit_open(k, (const char *const[]){"plan.policy=dssda",
                                          "clusters=[{name: a, devices: [{name: x, mem_mib: "
                                          "0.01}, {name: y, mem_mib: 0.02}]}]",
                                          "plan.cuts=null", NULL}),
        CP_OK);
    assert_int_equal(kit_run(k), CP_E_PLAN);
    expect_text("a");
    expect_text("KiB");
    kit_close(k);
}

static void everybody_gone_is_named(void **state)
{
    struct kit *k = *state;
    k->rounds = 0;
    assert_int_equal(
        kit_open(k, (const char *const[]){"plan.policy=dssda", "plan.cuts=null", "clusters=1x1",
                                          "changes=[{round: 2, node: c1.d1, kind: leave}]", NULL}),
        CP_OK);
    assert_int_equal(kit_run(k), CP_E_PLAN);
    expect_text("round 2");
    assert_int_equal(k->rounds, 1); /* what was trained is evaluated and reported */
    kit_close(k);
}

static void mistakes_in_the_configuration(void **state)
{
    static const struct {
        const char *assignment, *part;
        cp_err code;
    } CASES[] = {
        {"plan.policy=dsda", "dssda", CP_E_CONFIG},
        {"clusters=2y3", "CxK", CP_E_CONFIG},
        {"clusters=[{name: a, cu: {mem_mib: 0.001}, devices: [{name: x}]}]", "a.cu", CP_E_PLAN},
        {"clusters=[{name: a}]", "no devices", CP_E_PLAN},
        {"clusters=[{name: a, devices: [{name: x}, {name: x}]}]", "two devices named x",
         CP_E_CONFIG},
        {"clusters=[{name: a.b, devices: [{name: x}]}]", "a.b", CP_E_CONFIG},
        {"changes=[{round: 1, node: c9.d1, kind: leave}]", "c9.d1", CP_E_CONFIG},
        {"clusters=[{name: edge, devices: [{name: x}]}]", "edge", CP_E_CONFIG},
        {"clusters=[{name: a, devices: [{name: cu}]}]", "named cu", CP_E_CONFIG},
        {"plan.cuts=[[1],[2]]", "2 lists", CP_E_PLAN},
        {"plan.cuts=[[1,1,1,1]]", "4 numbers", CP_E_PLAN},
        {"model.heads=3", "heads", CP_E_CONFIG},
        {"data.path=nowhere.tsv", "nowhere.tsv", CP_E_IO},
        {"data.classes=5", "3 classes", CP_E_DATA},
    };
    struct kit *k = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        cp_err err = kit_open(k, (const char *const[]){CASES[i].assignment, NULL});
        if (err != CASES[i].code) {
            fail_msg("%s: %s: %s", CASES[i].assignment, cp_err_name(err), cp_err_text());
        }
        expect_text(CASES[i].part);
        kit_close(k);
    }
}

static void a_cluster_without_data_has_weight_0(void **state)
{
    (void)state;
    struct kit small = {0};
    char sha[CP_SHA256_HEX];
    kit_dir(&small, 3); /* 3 rows for 4 clusters */
    assert_int_equal(kit_open(&small, (const char *const[]){"clusters=4x1",
                                                            "plan.cuts=[[3],[3],[3],[3]]", NULL}),
                     CP_OK);
    assert_true(cp_shards_size(small.job.shards, 3) == 0 ||
                cp_shards_size(small.job.shards, 0) == 0);
    assert_int_equal(kit_run(&small), CP_OK);
    kit_hash(&small);
    kit_replay(&small, sha);
    assert_string_equal(small.sha, sha);
    kit_close(&small);
    kit_remove(&small);
}

/* Two clusters of devices with next to no energy, so that their queues grow from the first round.
 */
static const char TIRED[] =
    "clusters=[{name: a, cu: {budget_j: 1e-4}, devices: [{name: x, budget_j: 1e-3}, "
    "{name: y, gflops: 3, budget_j: 2e-4}, {name: z, gflops: 9, budget_j: 5e-4}]}, "
    "{name: b, devices: [{name: x, budget_j: 1e-4}, {name: y}, {name: z, gflops: 4}]}]";

/* Two rounds, a stop, and two more rounds are the same as four in one go: parameters,
 * micro-batches, the queues that decide, and what the rounds cost. */
static void resume_is_bitwise_the_same(void **state)
{
    struct kit *k = *state;
    static const char *const POLICIES[] = {"plan.policy=dssda", "plan.policy=random"};
    static const char *const MOMENTS[] = {"fed.moments=keep", "fed.moments=reset"};
    for (int i = 0; i < 4; i++) {
        const char *const args[] = {POLICIES[i % 2],    MOMENTS[i / 2],           "plan.cuts=null",
                                    "fed.rounds=4",     "radio.kind=rayleigh",    TIRED,
                                    "run.save_every=3", "radio.availability=0.5", NULL};
        char whole[CP_SHA256_HEX];
        struct cp_replay_cluster did[KIT_ROUNDS_MAX * KIT_CLUSTERS_MAX];
        struct kit_cost cost[KIT_ROUNDS_MAX];
        k->save = false;
        k->stop_after = 0;
        assert_int_equal(kit_open(k, args), CP_OK);
        assert_int_equal(kit_run(k), CP_OK);
        kit_hash(k);
        memcpy(whole, k->sha, sizeof whole);
        memcpy(did, k->did, sizeof did);
        memcpy(cost, k->cost, sizeof cost);
        kit_close(k);
        assert_true(cost[0].energy_queues == 0);
        assert_true(cost[2].energy_queues > 0 && cost[3].energy_queues > cost[2].energy_queues);

        k->save = true;
        k->rounds = 0;
        k->stop_after = 2;
        assert_int_equal(kit_open(k, args), CP_OK);
        assert_int_equal(kit_run(k), CP_OK);
        assert_int_equal(k->rounds, 2);
        char dir[256];
        snprintf(dir, sizeof dir, "%s", k->saved.p);
        kit_close(k);

        struct cp_str log = {0};
        k->stop_after = 0;
        k->save = false;
        memset(k->did, 0, sizeof k->did);
        memset(k->cost, 0, sizeof k->cost);
        assert_int_equal(kit_open(k, args), CP_OK);
        assert_int_equal(cp_net_new(k->job.cast.n_nodes, k->job.cast.names, &k->net), CP_OK);
        assert_int_equal(cp_edge_init(&k->edge, &k->job, k->net), CP_OK);
        if (cp_snapshot_load(dir, &k->edge, &log) != CP_OK) {
            fail_msg("%s", cp_err_text());
        }
        k->edge.on_round = kit_on_round;
        k->edge.arg = k;
        int done;
        assert_int_equal(cp_local_run(&k->edge, NULL, &done), CP_OK);
        assert_int_equal(done, 4);
        kit_hash(k);
        assert_string_equal(k->sha, whole);
        assert_memory_equal(k->did + 4, did + 4, 4 * sizeof did[0]);
        assert_memory_equal(k->cost + 2, cost + 2, 2 * sizeof cost[0]);
        cp_str_fini(&log);
        kit_close(k);
    }
}

/* A save that fails half-way, as on a full disk: the checkpoint before stays, and nothing is left
 * of the failed one that would keep the disk full. */
static void a_failed_save_leaves_nothing(void **state)
{
    (void)state;
    struct kit own = {.save = true, .fail_save = 2};
    char path[160];
    kit_dir(&own, 40);
    assert_int_equal(
        kit_open(&own, (const char *const[]){"fed.rounds=3", "run.save_every=1", NULL}), CP_OK);
    assert_int_equal(kit_run(&own), CP_E_IO);
    expect_text("checkpoint-2.tmp");
    snprintf(path, sizeof path, "%s/checkpoint-2.tmp", own.dir);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/checkpoint-2", own.dir);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/checkpoint-1", own.dir);
    assert_string_equal(own.saved.p, path);
    assert_int_equal(cp_ckpt_verify(path), CP_OK);
    kit_close(&own);
    kit_remove(&own);
}

/* A rate that destroys the model in a later round: the checkpoint is whole, and goes on well. */
static void a_checkpoint_survives_a_bad_rate(void **state)
{
    struct kit *k = *state;
    char dir[256];
    k->save = true;
    k->rounds = 0;
    k->stop_after = 1;
    assert_int_equal(kit_open(k, NULL), CP_OK);
    assert_int_equal(kit_run(k), CP_OK);
    snprintf(dir, sizeof dir, "%s", k->saved.p);
    kit_close(k);
    k->stop_after = 0;
    assert_int_equal(kit_open(k, (const char *const[]){"train.lr=1e9", "train.clip=0", NULL}),
                     CP_OK);
    assert_int_equal(kit_resume(k, dir), CP_E_NONFINITE);
    expect_text("round 2");
    kit_close(k);
    assert_int_equal(cp_ckpt_verify(dir), CP_OK);
    assert_int_equal(kit_open(k, NULL), CP_OK);
    assert_int_equal(kit_resume(k, dir), CP_OK);
    kit_close(k);
    k->save = false;
}

/* Other texts or labels than the run began with, however alike. */
static void changed_data_does_not_resume(void **state)
{
    struct kit *k = *state, other = {0};
    struct cp_str log = {0};
    char dir[256];
    k->save = true;
    k->stop_after = 0;
    assert_int_equal(kit_open(k, NULL), CP_OK);
    assert_int_equal(kit_run(k), CP_OK);
    snprintf(dir, sizeof dir, "%s", k->saved.p);
    kit_close(k);
    kit_dir(&other, 40);
    char cmd[160];
    snprintf(cmd, sizeof cmd, "sed -i 's/c1$/c9/; s/c2$/c1/; s/c9$/c2/' %s/train.tsv", other.dir);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(kit_open(&other, (const char *const[]){"fed.rounds=9", NULL}), CP_OK);
    assert_int_equal(cp_net_new(other.job.cast.n_nodes, other.job.cast.names, &other.net), CP_OK);
    assert_int_equal(cp_edge_init(&other.edge, &other.job, other.net), CP_OK);
    assert_int_equal(cp_snapshot_load(dir, &other.edge, &log), CP_E_CKPT);
    expect_text("other data");
    cp_str_fini(&log);
    kit_close(&other);
    kit_remove(&other);
}

/* A stand-by hears nothing while others train for longer than the deadline of one wait. */
static void a_stand_by_outlives_a_round(void **state)
{
    struct kit *k = *state;
    assert_int_equal(
        kit_open(k, (const char *const[]){"plan.cuts=[[3,0,0]]", "fed.deadline_s=1", "fed.rounds=2",
                                          "train.local_steps=1", NULL}),
        CP_OK);
    k->pause_us = 1500000; /* in the report of the round, while members wait */
    assert_int_equal(kit_run(k), CP_OK);
    k->pause_us = 0;
    kit_close(k);
}

/* A run that was complete goes on with more rounds: the next plan was never decided, so it is
 * decided now, in the world of that round. */
static void more_rounds_begin_with_a_decision(void **state)
{
    struct kit *k = *state;
    const char *const args[] = {"plan.policy=greedy", "plan.cuts=null", "clusters=1x3",
                                "changes=[{round: 3, node: c1.d1, kind: leave}]", NULL};
    const char *const more[] = {
        "plan.policy=greedy", "plan.cuts=null",
        "clusters=1x3",       "changes=[{round: 3, node: c1.d1, kind: leave}]",
        "fed.rounds=3",       NULL};
    struct cp_str log = {0};
    char dir[256];
    int done;
    k->save = true;
    k->stop_after = 0;
    assert_int_equal(kit_open(k, args), CP_OK);
    assert_int_equal(kit_run(k), CP_OK);
    snprintf(dir, sizeof dir, "%s", k->saved.p);
    kit_close(k);
    k->save = false;
    assert_int_equal(kit_open(k, more), CP_OK);
    assert_int_equal(cp_net_new(k->job.cast.n_nodes, k->job.cast.names, &k->net), CP_OK);
    assert_int_equal(cp_edge_init(&k->edge, &k->job, k->net), CP_OK);
    assert_int_equal(cp_snapshot_load(dir, &k->edge, &log), CP_OK);
    assert_int_equal(cp_local_run(&k->edge, NULL, &done), CP_OK);
    assert_int_equal(done, 3);
    for (int s = 0; s < k->edge.plan.cluster[0].segments; s++) {
        assert_int_not_equal(k->edge.plan.cluster[0].device[s], 0); /* d1 is gone */
    }
    cp_str_fini(&log);
    kit_close(k);
}

static void another_seed_or_model_does_not_resume(void **state)
{
    struct kit *k = *state;
    char dir[256];
    k->save = true;
    k->stop_after = 0;
    assert_int_equal(kit_open(k, NULL), CP_OK);
    assert_int_equal(kit_run(k), CP_OK);
    snprintf(dir, sizeof dir, "%s", k->saved.p);
    kit_close(k);
    static const char *const OTHER[] = {"seed=2", "model.ffn=32", "clusters=1x4"};
    for (int i = 0; i < 3; i++) {
        struct cp_str log = {0};
        assert_int_equal(kit_open(k, (const char *const[]){OTHER[i], "fed.rounds=9", NULL}), CP_OK);
        assert_int_equal(cp_net_new(k->job.cast.n_nodes, k->job.cast.names, &k->net), CP_OK);
        assert_int_equal(cp_edge_init(&k->edge, &k->job, k->net), CP_OK);
        assert_int_equal(cp_snapshot_load(dir, &k->edge, &log), CP_E_CKPT);
        cp_str_fini(&log);
        kit_close(k);
    }
}

/* House laws 5 and 7: whatever allocation fails, the run ends with a named error, in time, and
 * nothing leaks (the asan build sees that). */
static void any_failing_allocation_ends_the_run(void **state)
{
    struct kit *k = *state;
    int failed = 0;
    k->save = false;
    k->stop_after = 0;
    assert_int_equal(kit_open(k, (const char *const[]){"fed.rounds=1", "train.local_steps=2",
                                                       "net.wait_s=20", NULL}),
                     CP_OK);
    for (uint64_t n = 1; n < 4000; n += n < 60 ? 1 : 37) {
        int64_t t0 = cp_now_ns();
        cp_mem_fail_at(n);
        cp_err err = kit_run(k);
        cp_mem_fail_at(0);
        if (k->net) {
            cp_edge_fini(&k->edge);
            cp_net_free(k->net);
            k->net = NULL;
        }
        assert_true(err == CP_OK || err == CP_E_NOMEM);
        assert_true(cp_now_ns() - t0 < 60000000000);
        failed += err != CP_OK;
        if (err == CP_OK) {
            break;
        }
    }
    assert_true(failed > 50);
    kit_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_huge_rate_is_refused_and_named),
        cmocka_unit_test(a_plan_that_does_not_fit_is_named),
        cmocka_unit_test(everybody_gone_is_named),
        cmocka_unit_test(mistakes_in_the_configuration),
        cmocka_unit_test(a_cluster_without_data_has_weight_0),
        cmocka_unit_test(resume_is_bitwise_the_same),
        cmocka_unit_test(a_failed_save_leaves_nothing),
        cmocka_unit_test(a_checkpoint_survives_a_bad_rate),
        cmocka_unit_test(changed_data_does_not_resume),
        cmocka_unit_test(a_stand_by_outlives_a_round),
        cmocka_unit_test(more_rounds_begin_with_a_decision),
        cmocka_unit_test(another_seed_or_model_does_not_resume),
        cmocka_unit_test(any_failing_allocation_ends_the_run),
    };
    cp_log_level(CP_LOG_ERROR);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
