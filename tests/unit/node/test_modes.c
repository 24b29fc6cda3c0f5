/* The modes of a plan, trained for real: whole models on devices, models split between a device and
 * the edge server, pipelines whose last layers are on the edge server, and changes between them.
 * Where the mathematics is the same the parameters are, bit for bit: law 1; and law 2 on the way.
 */
#include "kit.h"

#include "base/log.h"
#include "plan/draft.h"

#include <math.h>

/* A plan of a test: for one cluster in one round. layers of a pipeline: per segment; else of each
 * device. */
struct made {
    enum cp_plan_mode mode;
    int n, device[3], layers[3], edge_layers;
};

enum { MADE_MAX = 24 };
static struct made made[MADE_MAX]; /* [round * clusters + cluster], again from the start */
static int n_made;
static enum cp_order made_order;

static void set_made(const struct made *list, int n)
{
    memcpy(made, list, (size_t)n * sizeof *list);
    n_made = n;
}

static cp_err decide_made(const struct cp_policy_args *a, struct cp_plan *out,
                          struct cp_decision *d)
{
    const struct cp_world *w = a->world;
    (void)d;
    for (int i = 0; i < w->n_clusters; i++) {
        const struct made *m = &made[(w->round * w->n_clusters + i) % n_made];
        bool pipeline = m->mode == CP_MODE_PIPELINE;
        struct cp_cluster_plan c = {.mode = m->mode,
                                    .order = pipeline ? made_order : CP_ORDER_SEQ,
                                    .segments = m->n,
                                    .edge_layers = m->edge_layers,
                                    .micro_batches = w->micro_ref,
                                    .uplink_share = 1.0 / w->n_clusters};
        for (int s = 0; s < m->n; s++) {
            c.device[s] = m->device[s];
            c.layers[s] = pipeline ? m->layers[s] : m->layers[0];
            c.power_fwd_w[s + 1] = w->cluster[i].device[m->device[s]].power_d2e_w;
        }
        cp_plan_set_slots(&c);
        if (pipeline) {
            cp_draft_radio(&c, w, i);
        }
        out->cluster[i] = c;
    }
    return CP_OK;
}

static const struct cp_policy MADE = {
    .name = "made", .help = "a plan of a test", .decide = decide_made};

static int set_up(void **state)
{
    static struct kit k;
    memset(&k, 0, sizeof k);
    kit_dir(&k, 70);
    made_order = CP_ORDER_1F1B;
    *state = &k;
    return 0;
}

static int tear_down(void **state)
{
    kit_remove(*state);
    return 0;
}

static void open_made(struct kit *k, const char *const *assignments)
{
    const char *all[16] = {"plan.policy=random", "plan.cuts=null"};
    for (int i = 0; assignments[i]; i++) {
        assert_true(i < 13);
        all[i + 2] = assignments[i];
    }
    if (kit_open(k, all) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
    k->job.policy = &MADE;
}

/* Trains the made plans; the result is that of one process, and every node's memory is as said. */
static void train_made(struct kit *k, const char *const *assignments)
{
    char sha[CP_SHA256_HEX];
    open_made(k, assignments);
    if (kit_run(k) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
    kit_hash(k);
    kit_replay(k, sha);
    if (strcmp(k->sha, sha) != 0) {
        fail_msg("%s: the nodes gave %.16s, one process %.16s", assignments[0], k->sha, sha);
    }
    kit_check_memory(k);
}

static void hash_made(struct kit *k, const struct made *m, const char *const *assignments,
                      char sha[CP_SHA256_HEX])
{
    set_made(m, 1);
    train_made(k, assignments);
    memcpy(sha, k->sha, CP_SHA256_HEX);
    kit_close(k);
}

/* --- golden equalities ----------------------------------------------------------------------- */

/* One device, however the model is held: the same parameters, in every mode. */
static void one_device_is_a_pipeline(void **state)
{
    static const struct made SAME[] = {
        {CP_MODE_PIPELINE, 1, {1}, {3}, 0}, {CP_MODE_FULL, 1, {1}, {3}, 0},
        {CP_MODE_FULL, 1, {0}, {3}, 0},     {CP_MODE_SPLIT, 1, {1}, {3}, 0},
        {CP_MODE_SPLIT, 1, {2}, {1}, 2},    {CP_MODE_PIPELINE, 1, {2}, {1}, 2},
    };
    static const char *const CASES[][4] = {
        {"train.micro_batches=4", NULL},
        {"train.micro_batches=1", "train.optimizer=sgd", NULL},
        {"plan.batch_mode=fixed-batch", "train.batch=7", "train.micro_batches=3", NULL},
        {"fed.moments=reset", "train.clip=0.05", NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char first[CP_SHA256_HEX], sha[CP_SHA256_HEX];
        hash_made(*state, &SAME[0], CASES[i], first);
        for (size_t k = 1; k < sizeof SAME / sizeof SAME[0]; k++) {
            hash_made(*state, &SAME[k], CASES[i], sha);
            assert_string_equal(sha, first);
        }
    }
}

/* Whichever device it is, in every round another: whoever takes a device's place takes its moments.
 */
static void one_device_after_another(void **state)
{
    static const struct made ROUNDS[][4] = {
        {{CP_MODE_PIPELINE, 1, {1}, {3}, 0}},
        {{CP_MODE_FULL, 1, {0}, {3}, 0},
         {CP_MODE_FULL, 1, {2}, {3}, 0},
         {CP_MODE_FULL, 1, {2}, {3}, 0},
         {CP_MODE_FULL, 1, {1}, {3}, 0}},
        {{CP_MODE_SPLIT, 1, {0}, {1}, 2},
         {CP_MODE_FULL, 1, {1}, {3}, 0},
         {CP_MODE_PIPELINE, 2, {2, 1}, {1, 1}, 1},
         {CP_MODE_SPLIT, 1, {1}, {2}, 1}},
    };
    const char *const args[] = {"fed.rounds=4", NULL};
    char first[CP_SHA256_HEX];
    for (size_t i = 0; i < sizeof ROUNDS / sizeof ROUNDS[0]; i++) {
        struct kit *k = *state;
        set_made(ROUNDS[i], i ? 4 : 1);
        train_made(k, args);
        if (i == 0) {
            memcpy(first, k->sha, sizeof first);
        }
        assert_string_equal(k->sha, first);
        kit_close(k);
    }
}

/* Layers on the edge server change nothing either, in any order of a pipeline. */
static void layers_on_the_edge_server(void **state)
{
    static const struct made CUTS[] = {
        {CP_MODE_PIPELINE, 3, {0, 1, 2}, {1, 1, 1}, 0},
        {CP_MODE_PIPELINE, 2, {2, 0}, {1, 1}, 1},
        {CP_MODE_PIPELINE, 1, {1}, {2}, 1},
        {CP_MODE_PIPELINE, 1, {1}, {1}, 2},
    };
    static const enum cp_order ORDERS[] = {CP_ORDER_SEQ, CP_ORDER_GPIPE, CP_ORDER_1F1B};
    const char *const args[] = {"train.micro_batches=5", NULL};
    char first[CP_SHA256_HEX], sha[CP_SHA256_HEX];
    for (size_t o = 0; o < 3; o++) {
        made_order = ORDERS[o];
        for (size_t i = 0; i < sizeof CUTS / sizeof CUTS[0]; i++) {
            hash_made(*state, &CUTS[i], args, o + i ? sha : first);
            assert_string_equal(o + i ? sha : first, first);
        }
    }
}

/* The largest difference between the model and another one, relative to its own size. */
static double difference(const struct kit *k, cp_real *const *other)
{
    double diff = 0, size = 0;
    for (int block = 0; block < cp_shape_blocks(&k->job.shape); block++) {
        for (int64_t i = 0; i < cp_shape_params(&k->job.shape, block, block); i++) {
            diff = fmax(diff, fabs((double)k->edge.block[block][i] - (double)other[block][i]));
            size = fmax(size, fabs((double)other[block][i]));
        }
    }
    return diff / size;
}

/* With one local step of SGD, equal parts and no clipping, the average of n devices is one step
 * with the batch of all. */
static void one_local_step_is_a_large_batch(void **state)
{
    static const struct made PLANS[] = {
        {CP_MODE_PIPELINE, 1, {0}, {3}, 0},
        {CP_MODE_FULL, 3, {0, 1, 2}, {3}, 0},
        {CP_MODE_FULL, 2, {2, 0}, {3}, 0},
        {CP_MODE_SPLIT, 3, {1, 2, 0}, {2}, 1},
    };
    const char *const args[] = {"train.optimizer=sgd", "train.lr=0.5",           "train.clip=0",
                                "fed.rounds=1",        "train.local_steps=1",    "train.warmup=0",
                                "train.micro_batch=3", "train.micro_batches=12", NULL};
    cp_real *large[CP_BLOCKS_MAX] = {0}, *start[CP_BLOCKS_MAX] = {0};
    struct kit *k = *state;
    int blocks = 0;
    for (size_t i = 0; i < sizeof PLANS / sizeof PLANS[0]; i++) {
        set_made(&PLANS[i], 1);
        train_made(k, args);
        blocks = cp_shape_blocks(&k->job.shape);
        for (int block = 0; block < blocks && i == 0; block++) {
            size_t n = (size_t)cp_shape_params(&k->job.shape, block, block);
            assert_int_equal(cp_mem_array(NULL, n, sizeof *large[block], &large[block]), CP_OK);
            assert_int_equal(cp_mem_array(NULL, n, sizeof *start[block], &start[block]), CP_OK);
            memcpy(large[block], k->edge.block[block], n * sizeof *large[block]);
            cp_block_init(&k->job.shape, block, cp_config_of(k->conf)->model.init_std, k->job.seed,
                          start[block]);
        }
        assert_int_equal(k->samples[0], 36);
        assert_true(difference(k, large) <= 1e-6);
        assert_true(difference(k, start) > 1e-3);
        kit_close(k);
    }
    for (int block = 0; block < blocks; block++) {
        cp_mem_free(large[block]);
        cp_mem_free(start[block]);
    }
}

/* --- laws 1 and 2 ---------------------------------------------------------------------------- */

/* Parts that do not divide, more devices than micro-batches or than samples, unequal data, clusters
 * of different modes. */
static void odd_sizes(void **state)
{
    static const struct made PLANS[][3] = {
        {{CP_MODE_FULL, 3, {0, 1, 2}, {3}, 0}},
        {{CP_MODE_SPLIT, 2, {2, 0}, {1}, 2}},
        {{CP_MODE_SPLIT, 3, {0, 1, 2}, {3}, 0}},
        {{CP_MODE_FULL, 3, {0, 1, 2}, {3}, 0},
         {CP_MODE_PIPELINE, 2, {1, 0}, {1, 1}, 1},
         {CP_MODE_SPLIT, 3, {2, 1, 0}, {2}, 1}},
    };
    static const char *const CASES[][5] = {
        {"clusters=3x3", "train.micro_batches=1", NULL},
        {"clusters=3x3", "train.micro_batches=5", "data.partition=dirichlet", "data.alpha=0.3",
         NULL},
        {"clusters=3x3", "plan.batch_mode=fixed-batch", "train.batch=2", "train.micro_batches=2",
         NULL},
        {"clusters=3x3", "plan.batch_mode=fixed-batch", "train.batch=17", "train.micro_batches=4",
         NULL},
        {"clusters=3x3", "fed.weights=trained", "train.local_steps=5", "fed.moments=reset", NULL},
        {"clusters=3x3", "train.optimizer=sgd", "train.lr=0.1", "train.freeze=1", NULL},
    };
    for (size_t p = 0; p < sizeof PLANS / sizeof PLANS[0]; p++) {
        set_made(PLANS[p], PLANS[p][1].n ? 3 : 1);
        for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
            train_made(*state, CASES[i]);
            kit_close(*state);
        }
    }
}

/* Six rounds: a device leaves, another comes, one takes another's place, and every mode follows
 * every other. */
static const struct made CHANGING[] = {
    {CP_MODE_FULL, 3, {0, 1, 2}, {3}, 0},  {CP_MODE_PIPELINE, 3, {2, 1, 0}, {1, 1, 1}, 0},
    {CP_MODE_FULL, 2, {2, 0}, {3}, 0},     {CP_MODE_SPLIT, 2, {1, 0}, {1}, 2},
    {CP_MODE_FULL, 3, {1, 2, 0}, {3}, 0},  {CP_MODE_SPLIT, 3, {2, 1, 0}, {2}, 1},
    {CP_MODE_SPLIT, 3, {0, 2, 1}, {1}, 2}, {CP_MODE_PIPELINE, 1, {1}, {1}, 2},
    {CP_MODE_SPLIT, 1, {2}, {1}, 2},       {CP_MODE_PIPELINE, 2, {0, 2}, {2, 1}, 0},
    {CP_MODE_FULL, 2, {1, 2}, {3}, 0},     {CP_MODE_PIPELINE, 1, {0}, {2}, 1},
};
static const char *const SIX_ROUNDS[] = {"fed.rounds=6",          "clusters=2x3",
                                         "train.micro_batches=3", "train.local_steps=2",
                                         "run.save_every=9",      NULL};

static void modes_change(void **state)
{
    set_made(CHANGING, sizeof CHANGING / sizeof CHANGING[0]);
    train_made(*state, SIX_ROUNDS);
    kit_close(*state);
    const char *const reset[] = {"fed.moments=reset", "fed.rounds=6", "clusters=2x3", NULL};
    train_made(*state, reset);
    kit_close(*state);
}

/* A run that stops after any round goes on as if it had not. */
static void modes_resume(void **state)
{
    struct kit *k = *state;
    char whole[CP_SHA256_HEX], dir[256];
    set_made(CHANGING, sizeof CHANGING / sizeof CHANGING[0]);
    train_made(k, SIX_ROUNDS);
    memcpy(whole, k->sha, sizeof whole);
    kit_close(k);
    for (int stop = 1; stop < 6; stop++) {
        k->save = true;
        k->rounds = 0;
        k->stop_after = stop;
        open_made(k, SIX_ROUNDS);
        assert_int_equal(kit_run(k), CP_OK);
        assert_int_equal(k->rounds, stop);
        snprintf(dir, sizeof dir, "%s", k->saved.p);
        kit_close(k);
        k->save = false;
        k->stop_after = 0;
        open_made(k, SIX_ROUNDS);
        if (kit_resume(k, dir) != CP_OK) {
            fail_msg("after round %d: %s", stop, cp_err_text());
        }
        kit_hash(k);
        assert_string_equal(k->sha, whole);
        kit_check_memory(k);
        kit_close(k);
    }
}

/* A checkpoint of a complete run holds the moments of its last plan: more rounds, which begin with
 * a new decision, go on with them. */
static void more_rounds_in_another_mode(void **state)
{
    struct kit *k = *state;
    const char *const two[] = {"fed.rounds=2", "clusters=2x3", "train.decay=constant",
                               "train.warmup=0", NULL};
    const char *const four[] = {"fed.rounds=4", "clusters=2x3", "train.decay=constant",
                                "train.warmup=0", NULL};
    char whole[CP_SHA256_HEX], dir[256];
    set_made(CHANGING, sizeof CHANGING / sizeof CHANGING[0]);
    train_made(k, four);
    memcpy(whole, k->sha, sizeof whole);
    kit_close(k);
    k->save = true;
    k->stop_after = 0;
    open_made(k, two);
    assert_int_equal(kit_run(k), CP_OK);
    snprintf(dir, sizeof dir, "%s", k->saved.p);
    kit_close(k);
    k->save = false;
    open_made(k, four);
    assert_int_equal(kit_resume(k, dir), CP_OK);
    kit_hash(k);
    assert_string_equal(k->sha, whole);
    kit_close(k);
}

/* Whatever allocation fails while modes change and states are at hand, the run ends with a named
 * error, and nothing leaks (the asan build sees that). */
static void any_failing_allocation_ends_the_run(void **state)
{
    struct kit *k = *state;
    int failed = 0;
    cp_err err = CP_E_NOMEM;
    const char *const args[] = {"clusters=1x2",        "fed.rounds=2",     "train.local_steps=1",
                                "train.micro_batch=2", "run.save_every=1", "net.wait_s=20",
                                "eval.max_samples=4",  "model.layers=3",   NULL};
    static const struct made PLANS[] = {{CP_MODE_SPLIT, 1, {1}, {1}, 2},
                                        {CP_MODE_FULL, 2, {0, 1}, {3}, 0}};
    set_made(PLANS, 2);
    k->save = false;
    k->stop_after = 0;
    open_made(k, args);
    for (uint64_t n = 1; err && n < 4000; n += n < 30 ? 1 : 7) {
        cp_mem_fail_at(n);
        err = kit_run(k);
        cp_mem_fail_at(0);
        if (k->net) {
            cp_edge_fini(&k->edge);
            cp_net_free(k->net);
            k->net = NULL;
        }
        assert_true(err == CP_OK || err == CP_E_NOMEM);
        failed += err != CP_OK;
    }
    assert_int_equal(err, CP_OK);
    assert_true(failed > 40);
    kit_close(k);
}

/* --- policies -------------------------------------------------------------------------------- */

static void fedavg_trains(void **state)
{
    struct kit *k = *state;
    char sha[CP_SHA256_HEX];
    const char *const args[] = {"plan.policy=fedavg",
                                "plan.cuts=null",
                                "clusters=2x3",
                                "fed.rounds=4",
                                "changes=[{round: 2, node: c1.d2, kind: leave}, "
                                "{round: 4, node: c1.d2, kind: join}]",
                                NULL};
    assert_int_equal(kit_open(k, args), CP_OK);
    assert_int_equal(kit_run(k), CP_OK);
    assert_int_equal(k->did[0].n, 3);
    assert_int_equal(k->did[2].n, 2);
    assert_int_equal(k->did[6].n, 3);
    kit_hash(k);
    kit_replay(k, sha);
    assert_string_equal(k->sha, sha);
    kit_check_memory(k);
    kit_close(k);
}

/* Whatever a policy decides, while devices leave, return and slow down. */
static void every_policy_is_replayed(void **state)
{
    int trained = 0;
    for (int i = 0; CP_POLICIES[i]; i++) {
        char policy[48], sha[CP_SHA256_HEX];
        bool cuts = strcmp(CP_POLICIES[i]->name, "static") == 0;
        const char *const args[] = {
            policy,
            cuts ? "plan.cuts=[[1,2],[3,0]]" : "plan.cuts=null",
            "clusters=2x2",
            "fed.rounds=4",
            "radio.kind=rayleigh",
            cuts ? "changes=[]"
                 : "changes=[{round: 2, node: c1.d1, kind: leave}, {round: 3, node: c2.d2, kind: "
                   "rate, factor: 0.02}, {round: 4, node: c1.d1, kind: join}]",
            NULL};
        struct kit *k = *state;
        snprintf(policy, sizeof policy, "plan.policy=%s", CP_POLICIES[i]->name);
        if (kit_open(k, args) != CP_OK || kit_run(k) != CP_OK) {
            fail_msg("%s: %s", policy, cp_err_text());
        }
        kit_hash(k);
        kit_replay(k, sha);
        if (strcmp(k->sha, sha) != 0) {
            fail_msg("%s: the nodes gave %.16s, one process %.16s", policy, k->sha, sha);
        }
        kit_check_memory(k);
        kit_close(k);
        trained++;
    }
    assert_true(trained >= 8);
}

/* The device of best-single as a static cut: the same parameters. */
static void best_single_is_a_static_cut(void **state)
{
    struct kit *k = *state;
    char single[CP_SHA256_HEX];
    const char devices[] = "clusters=[{name: a, devices: [{name: x, gflops: 2}, {name: y, gflops: "
                           "9}, {name: z, gflops: 99, mem_mib: 0.02}]}]";
    const char *const best[] = {"plan.policy=best-single", "plan.cuts=null", devices, NULL};
    const char *const cut[] = {"plan.policy=static", "plan.cuts=[[0,3,0]]", devices, NULL};
    assert_int_equal(kit_open(k, best), CP_OK);
    assert_int_equal(kit_run(k), CP_OK);
    assert_int_equal(k->did[0].n, 1);
    assert_int_equal(k->did[0].device[0], 1); /* z is faster, and too small */
    kit_hash(k);
    memcpy(single, k->sha, sizeof single);
    kit_close(k);
    assert_int_equal(kit_open(k, cut), CP_OK);
    assert_int_equal(kit_run(k), CP_OK);
    assert_int_equal(k->did[0].n, 0);
    kit_hash(k);
    assert_string_equal(k->sha, single);
    kit_close(k);
}

static void a_device_that_is_too_small_is_named(void **state)
{
    struct kit *k = *state;
    const char *const args[] = {"plan.policy=fedavg", "plan.cuts=null",
                                "clusters=[{name: a, devices: [{name: x}, {name: y, mem_mib: "
                                "0.02}]}]",
                                NULL};
    assert_int_equal(kit_open(k, args), CP_OK);
    assert_int_equal(kit_run(k), CP_E_PLAN);
    assert_non_null(strstr(cp_err_text(), "y cannot train the whole model"));
    assert_non_null(strstr(cp_err_text(), "KiB"));
    kit_close(k);
}

/* --- the cast -------------------------------------------------------------------------------- */

static struct cp_cluster_plan plan_of(const struct made *m)
{
    struct cp_cluster_plan c = {
        .mode = m->mode, .segments = m->n, .edge_layers = m->edge_layers, .micro_batches = 4};
    for (int s = 0; s < m->n; s++) {
        c.device[s] = m->device[s];
        c.layers[s] = m->mode == CP_MODE_PIPELINE ? m->layers[s] : m->layers[0];
    }
    cp_plan_set_slots(&c);
    return c;
}

/* Devices keep their moments; who takes another's place goes on with what is left over. */
static void origins(void **state)
{
    static const struct {
        struct made before, now;
        int origin[3];
    } CASES[] = {
        {{CP_MODE_PIPELINE, 2, {0, 1}, {2, 1}, 0}, {CP_MODE_PIPELINE, 1, {2}, {3}, 0}, {0}},
        {{CP_MODE_PIPELINE, 2, {0, 1}, {2, 1}, 0}, {CP_MODE_FULL, 2, {2, 0}, {3}, 0}, {0, -1}},
        {{CP_MODE_FULL, 2, {2, 0}, {3}, 0}, {CP_MODE_PIPELINE, 1, {0}, {3}, 0}, {0}},
        {{CP_MODE_FULL, 1, {0}, {3}, 0}, {CP_MODE_FULL, 1, {2}, {3}, 0}, {0}},
        {{CP_MODE_FULL, 3, {0, 1, 2}, {3}, 0}, {CP_MODE_SPLIT, 2, {2, 0}, {1}, 2}, {2, 0}},
        {{CP_MODE_FULL, 2, {0, 2}, {3}, 0}, {CP_MODE_FULL, 3, {1, 0, 2}, {3}, 0}, {-1, 0, 1}},
        {{CP_MODE_SPLIT, 2, {0, 2}, {1}, 2}, {CP_MODE_FULL, 2, {1, 0}, {3}, 0}, {1, 0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct cp_cluster_plan a = plan_of(&CASES[i].before), b = plan_of(&CASES[i].now);
        int taken[3] = {-1, -1, -1};
        for (int r = 0; r < cp_cast_replicas(&b); r++) {
            int origin = cp_cast_origin(&a, &b, r);
            assert_int_equal(origin, CASES[i].origin[r]);
            if (origin >= 0) {
                assert_int_equal(taken[origin], -1);
                taken[origin] = r;
            }
        }
        for (int r = 0; r < cp_cast_replicas(&a); r++) {
            assert_int_equal(cp_cast_heir(&a, &b, r), taken[r]);
        }
    }
}

/* Every block of every replica has one owner, and no node is in two places. */
static void parts_cover_the_model(void **state)
{
    struct kit *k = *state;
    struct cp_plan plan;
    open_made(k, (const char *const[]){"clusters=1x3", NULL});
    assert_int_equal(cp_plan_init(&plan, 1), CP_OK);
    for (size_t i = 0; i < sizeof CHANGING / sizeof CHANGING[0]; i++) {
        int held[3][5] = {{0}};
        plan.cluster[0] = plan_of(&CHANGING[i]);
        assert_int_equal(cp_cast_check(&k->job.cast, &plan), CP_OK);
        for (int node = 1; node < k->job.cast.n_nodes; node++) {
            struct cp_replica r;
            struct cp_part part;
            int stage = cp_cast_find(&k->job.cast, node, &plan, &r);
            cp_cast_part(&k->job.cast, node, &plan, &part);
            assert_int_equal(part.index, stage);
            for (int block = part.first; block <= part.last; block++) {
                assert_int_equal(cp_replica_owner(&r, block), node);
                held[r.index][block]++;
            }
        }
        for (int r = 0; r < cp_cast_replicas(&plan.cluster[0]); r++) {
            for (int block = 0; block < 5; block++) {
                assert_int_equal(held[r][block], 1);
            }
        }
    }
    cp_plan_fini(&plan);
    kit_close(k);
}

static void plans_that_do_not_fit_are_refused(void **state)
{
    static const struct made BAD[] = {
        {CP_MODE_PIPELINE, 2, {0, 1}, {1, 1}, 0}, /* a layer is missing */
        {CP_MODE_PIPELINE, 2, {0, 1}, {1, 1}, 2}, /* one too many */
        {CP_MODE_PIPELINE, 2, {1, 1}, {1, 1}, 1}, /* one device twice */
        {CP_MODE_PIPELINE, 1, {3}, {3}, 0},       /* no such device */
        {CP_MODE_PIPELINE, 1, {0}, {4}, -1},      /* less than none on the edge server */
        {CP_MODE_FULL, 2, {0, 1}, {2}, 0},        /* not the whole model */
        {CP_MODE_FULL, 2, {0, 1}, {2}, 1},        /* full, and yet on the edge server */
        {CP_MODE_FULL, 2, {2, 2}, {3}, 0},        /* one device twice */
        {CP_MODE_SPLIT, 2, {0, 1}, {2}, 0},       /* a layer is missing */
        {CP_MODE_SPLIT, 1, {0}, {0}, 3},          /* a device without a layer */
    };
    struct kit *k = *state;
    struct cp_plan plan;
    open_made(k, (const char *const[]){"clusters=1x3", NULL});
    assert_int_equal(cp_plan_init(&plan, 1), CP_OK);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        plan.cluster[0] = plan_of(&BAD[i]);
        assert_int_equal(cp_cast_check(&k->job.cast, &plan), CP_E_PROTO);
    }
    plan.cluster[0] = plan_of(&CHANGING[5]);
    plan.cluster[0].layers[1] = 1; /* one device has less than the others */
    assert_int_equal(cp_cast_check(&k->job.cast, &plan), CP_E_PROTO);
    cp_plan_fini(&plan);
    kit_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_is_a_pipeline),
        cmocka_unit_test(one_device_after_another),
        cmocka_unit_test(layers_on_the_edge_server),
        cmocka_unit_test(one_local_step_is_a_large_batch),
        cmocka_unit_test(odd_sizes),
        cmocka_unit_test(modes_change),
        cmocka_unit_test(modes_resume),
        cmocka_unit_test(more_rounds_in_another_mode),
        cmocka_unit_test(any_failing_allocation_ends_the_run),
        cmocka_unit_test(fedavg_trains),
        cmocka_unit_test(every_policy_is_replayed),
        cmocka_unit_test(best_single_is_a_static_cut),
        cmocka_unit_test(a_device_that_is_too_small_is_named),
        cmocka_unit_test(origins),
        cmocka_unit_test(parts_cover_the_model),
        cmocka_unit_test(plans_that_do_not_fit_are_refused),
    };
    cp_log_level(CP_LOG_ERROR);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
