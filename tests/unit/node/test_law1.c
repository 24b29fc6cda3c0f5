/* House law 1: any cut, order, number of slots, micro-batches, and any plan change gives bitwise
 * the parameters of the one-process run with the same micro-batches. And law 2 on the way: what
 * each node counts is what the size function says. */
#include "kit.h"

static int set_up(void **state)
{
    static struct kit k;
    memset(&k, 0, sizeof k);
    kit_dir(&k, 70);
    *state = &k;
    return 0;
}

static int tear_down(void **state)
{
    kit_remove(*state);
    return 0;
}

/* Runs and replays one configuration; the trained model is not the initial one. */
static void check_equal(struct kit *k, const char *const *assignments)
{
    char sha[CP_SHA256_HEX];
    if (kit_open(k, assignments) != CP_OK || kit_run(k) != CP_OK) {
        fail_msg("%s: %s", assignments[0], cp_err_text());
    }
    kit_hash(k);
    kit_replay(k, sha);
    if (strcmp(k->sha, sha) != 0) {
        fail_msg("%s %s %s: the pipeline gave %.16s, one process %.16s", assignments[0],
                 assignments[1] ? assignments[1] : "", assignments[2] ? assignments[2] : "", k->sha,
                 sha);
    }
    kit_check_memory(k);
    kit_close(k);
}

static void cuts_orders_micros(void **state)
{
    static const char *const CUTS[] = {"plan.cuts=[[1,1,1]]", "plan.cuts=[[2,1,0]]",
                                       "plan.cuts=[[1,0,2]]", "plan.cuts=[[0,3,0]]"};
    static const char *const ORDERS[] = {"pipe.order=seq", "pipe.order=gpipe", "pipe.order=1f1b"};
    static const char *const MICROS[] = {"train.micro_batches=1", "train.micro_batches=2",
                                         "train.micro_batches=5", "train.micro_batches=8"};
    char first[CP_SHA256_HEX];
    for (size_t m = 0; m < 4; m++) {
        for (size_t c = 0; c < 4; c++) {
            for (size_t o = 0; o < 3; o++) {
                struct kit *k = *state;
                check_equal(k, (const char *const[]){CUTS[c], ORDERS[o], MICROS[m], NULL});
                if (c == 0 && o == 0) {
                    memcpy(first, k->sha, sizeof first);
                }
                assert_string_equal(k->sha, first);
            }
        }
    }
}

/* Batches that do not divide, epochs that end with a small batch, fewer samples than micro-batches
 * (field case B13), one device, more devices than layers (B12). */
static void odd_sizes(void **state)
{
    static const char *const CASES[][6] = {
        {"plan.batch_mode=fixed-batch", "train.batch=7", "train.micro_batches=3", NULL},
        {"plan.batch_mode=fixed-batch", "train.batch=33", "train.micro_batches=4", NULL},
        {"train.micro_batch=16", "train.micro_batches=4", "train.local_steps=5", NULL},
        {"clusters=1x1", "plan.cuts=[[3]]", "train.micro_batches=3", NULL},
        {"clusters=1x5", "plan.cuts=[[1,0,1,0,1]]", "train.micro_batches=3", NULL},
        {"model.layers=1", "clusters=1x3", "plan.cuts=[[0,1,0]]", NULL},
        {"clusters=2x2", "plan.cuts=[[1,2],[3,0]]", "data.partition=dirichlet", "data.alpha=0.3",
         NULL},
        {"train.optimizer=sgd", "train.lr=0.1", "train.clip=0.05", NULL},
        {"fed.moments=reset", "clusters=2x3", "plan.cuts=[[1,1,1],[2,1,0]]", NULL},
        {"fed.weights=trained", "clusters=2x3", "plan.cuts=[[1,1,1],[2,1,0]]",
         "data.partition=dirichlet", NULL},
        {"train.freeze=1", "plan.cuts=[[1,1,1]]", NULL}, /* a whole segment is frozen */
        {"train.freeze=3", "plan.cuts=[[2,1,0]]", NULL},
        {"clusters=3x2", "plan.cuts=[[1,2],[3,0],[0,3]]", "eval.max_samples=5", NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        check_equal(*state, CASES[i]);
    }
}

/* Devices leave, come back and slow down: layers move with their moments, and nothing changes. */
static void plan_changes(void **state)
{
    struct kit *k = *state;
    static const char *const CHANGES =
        "changes=[{round: 2, node: c1.d1, kind: leave}, {round: 3, node: c1.d1, kind: join}, "
        "{round: 4, node: c1.d2, kind: rate, factor: 0.05}, {round: 4, node: c1.d3, kind: leave}]";
    static const char *const POLICIES[] = {"plan.policy=dssda", "plan.policy=greedy",
                                           "plan.policy=random", "plan.policy=gpipe-uniform"};
    for (size_t p = 0; p < 4; p++) {
        k->moves = 0;
        check_equal(k,
                    (const char *const[]){POLICIES[p], "fed.rounds=5", "radio.kind=rayleigh",
                                          "radio.availability=0.5", CHANGES, "clusters=2x3", NULL});
        if (p > 0) { /* dssda may rightly leave everything on one fast device */
            assert_true(k->moves > 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_orders_micros),
        cmocka_unit_test(odd_sizes),
        cmocka_unit_test(plan_changes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
