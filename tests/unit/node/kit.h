/* kit: small runs for the tests of the node floor. Data is made here, from a seed. */
#ifndef TESTS_NODE_KIT_H
#define TESTS_NODE_KIT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/ckpt.h"
#include "node/local.h"
#include "node/replay.h"
#include "node/snapshot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { KIT_ROUNDS_MAX = 16, KIT_CLUSTERS_MAX = 4 };

/* What a round cost under the model, and the queues that its plan was decided with. */
struct kit_cost {
    double latency_s, energy_j, convergence, energy_queues;
};

struct kit {
    char dir[64];
    struct cp_conf *conf;
    struct cp_job job;
    struct cp_net *net;
    struct cp_edge edge;
    struct cp_replay_cluster did[KIT_ROUNDS_MAX * KIT_CLUSTERS_MAX];
    int rounds, moves, stop_after, pause_us;
    double loss[KIT_ROUNDS_MAX];
    int64_t samples[KIT_ROUNDS_MAX];
    struct kit_cost cost[KIT_ROUNDS_MAX];
    struct cp_str saved;
    bool save;
    int fail_save; /* the round whose save runs into a limit of the size of files; 0: none */
    char sha[CP_SHA256_HEX];
};

static const char *const KIT_WORDS[] = {"red",   "green", "blue", "stone", "river",
                                        "cloud", "fox",   "bird", "fish",  "apple",
                                        "bread", "rice",  "iron", "gold"};

/* rows lines of a few words; the class is the word group that occurs most. */
static void kit_data(const char *dir, int rows)
{
    char path[128];
    struct cp_rng r;
    snprintf(path, sizeof path, "%s/train.tsv", dir);
    FILE *f = fopen(path, "w");
    snprintf(path, sizeof path, "%s/heldout.tsv", dir);
    FILE *g = fopen(path, "w");
    assert_non_null(f);
    assert_non_null(g);
    fprintf(f, "text\tlabel\n");
    fprintf(g, "text\tlabel\n");
    cp_rng_init(&r, 7, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < rows + 20; i++) {
        FILE *out = i < rows ? f : g;
        int label = i < 3 ? i : (int)cp_rng_below(&r, 3), n = 1 + (int)cp_rng_below(&r, 9);
        for (int k = 0; k < n; k++) {
            fprintf(out, "%s%s", k ? " " : "",
                    KIT_WORDS[(label * 4 + (int)cp_rng_below(&r, 6)) % 14]);
        }
        fprintf(out, "\tc%d\n", label);
    }
    fclose(f);
    fclose(g);
}

static void kit_dir(struct kit *k, int rows)
{
    snprintf(k->dir, sizeof k->dir, "/tmp/cp-node-XXXXXX");
    assert_non_null(mkdtemp(k->dir));
    kit_data(k->dir, rows);
}

static const char *const KIT_BASE[] = {
    "model.layers=3",
    "model.width=16",
    "model.heads=2",
    "model.ffn=24",
    "model.max_len=12",
    "model.vocab=60",
    "train.micro_batch=3",
    "train.micro_batches=4",
    "train.local_steps=3",
    "train.dropout=0.1",
    "fed.rounds=2",
    "clusters=1x3",
    "plan.policy=static",
    "plan.cuts=[[1,1,1]]",
    "net.wait_s=60",
    "radio.kind=static",
    "data.partition=iid",
    "train.lr=1e-2",
    NULL,
};

/* A configuration of KIT_BASE and the given assignments; the job is ready. */
static cp_err kit_open(struct kit *k, const char *const *assignments)
{
    char path[96];
    assert_int_equal(cp_config_new(&k->conf), CP_OK);
    snprintf(path, sizeof path, "data.path=%s", k->dir);
    cp_err err = cp_conf_override(k->conf, path);
    for (int i = 0; KIT_BASE[i] && !err; i++) {
        err = cp_conf_override(k->conf, KIT_BASE[i]);
    }
    for (int i = 0; assignments && assignments[i] && !err; i++) {
        err = cp_conf_override(k->conf, assignments[i]);
    }
    return err ? err : cp_job_init(&k->job, cp_config_of(k->conf), ".");
}

static void kit_close(struct kit *k)
{
    if (k->net) {
        cp_edge_fini(&k->edge);
        cp_net_free(k->net);
        k->net = NULL;
    }
    cp_job_fini(&k->job);
    cp_conf_free(k->conf);
    k->conf = NULL;
    cp_str_fini(&k->saved);
}

static void kit_remove(struct kit *k)
{
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", k->dir);
    assert_int_equal(system(cmd), 0);
}

static struct kit_cost kit_cost_of(const struct cp_round_report *r)
{
    struct kit_cost cost = {.latency_s = r->sim->latency_s,
                            .energy_j = r->sim->energy_j,
                            .convergence = r->queues->convergence};
    for (int c = 0; c < r->world->n_clusters; c++) {
        for (int node = 0; node <= r->world->cluster[c].n_devices; node++) {
            cost.energy_queues += r->queues->energy[c][node];
        }
    }
    return cost;
}

static cp_err kit_on_round(void *arg, const struct cp_round_report *r)
{
    struct kit *k = arg;
    k->cost[r->round] = kit_cost_of(r);
    for (int c = 0; c < r->plan->n_clusters; c++) {
        k->did[r->round * r->plan->n_clusters + c] = cp_replay_cluster_of(&r->plan->cluster[c]);
    }
    k->loss[r->round] = r->train_loss;
    k->samples[r->round] = r->samples;
    k->moves += r->n_moves;
    k->rounds = r->round + 1;
    usleep((unsigned)k->pause_us);
    return CP_OK;
}

static cp_err kit_on_save(void *arg, const struct cp_edge *e, int rounds_done)
{
    struct kit *k = arg;
    struct rlimit before;
    if (!k->save) {
        return CP_OK;
    }
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    if (k->fail_save == rounds_done) {
        struct rlimit small = {3000, before.rlim_max}; /* enough for some of the files, not all */
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    cp_err err = cp_snapshot_save(k->dir, e, rounds_done, "[]", &k->saved);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    return err;
}

static bool kit_stop(void *arg)
{
    struct kit *k = arg;
    return k->stop_after > 0 && k->rounds + 1 >= k->stop_after;
}

/* Runs the job; the hash of the averaged model is in k->sha. */
static inline cp_err kit_run(struct kit *k)
{
    int done;
    CP_TRY(cp_net_new(k->job.cast.n_nodes, k->job.cast.names, &k->net));
    cp_err err = cp_edge_init(&k->edge, &k->job, k->net);
    if (err) {
        cp_net_free(k->net);
        k->net = NULL;
        return err;
    }
    k->edge.on_round = kit_on_round;
    k->edge.on_save = kit_on_save;
    k->edge.stop = kit_stop;
    k->edge.arg = k;
    return cp_local_run(&k->edge, NULL, &done);
}

/* House law 2: every node counts what the size function says. */
static inline void kit_check_memory(const struct kit *k)
{
    for (int i = 1; i < k->job.cast.n_nodes; i++) {
        const struct cp_wire_report *r = &k->edge.node[i].last;
        if (r->mem_peak_bytes != r->mem_model_bytes) {
            fail_msg("%s counted %lld bytes, the size function says %lld", k->job.cast.names[i],
                     (long long)r->mem_peak_bytes, (long long)r->mem_model_bytes);
        }
    }
}

/* Loads the checkpoint dir into the job at hand and runs what is left of it. */
static inline cp_err kit_resume(struct kit *k, const char *dir)
{
    struct cp_str log = {0};
    int done;
    assert_int_equal(cp_net_new(k->job.cast.n_nodes, k->job.cast.names, &k->net), CP_OK);
    assert_int_equal(cp_edge_init(&k->edge, &k->job, k->net), CP_OK);
    assert_int_equal(cp_snapshot_load(dir, &k->edge, &log), CP_OK);
    cp_str_fini(&log);
    k->edge.on_round = kit_on_round;
    k->edge.arg = k;
    return cp_local_run(&k->edge, NULL, &done);
}

static void kit_hash(struct kit *k)
{
    cp_params_sha256(&k->job.shape, (const float *const *)k->edge.block, k->sha);
}

/* What one process makes of the same rounds. */
static inline void kit_replay(struct kit *k, char sha[CP_SHA256_HEX])
{
    cp_real *block[CP_BLOCKS_MAX] = {0};
    int n = cp_shape_blocks(&k->job.shape);
    for (int i = 0; i < n; i++) {
        assert_int_equal(cp_mem_array(NULL, (size_t)cp_shape_params(&k->job.shape, i, i),
                                      sizeof *block[i], &block[i]),
                         CP_OK);
    }
    assert_int_equal(cp_replay(&k->job, k->rounds, k->did, block, NULL, NULL), CP_OK);
    cp_params_sha256(&k->job.shape, (const float *const *)block, sha);
    for (int i = 0; i < n; i++) {
        cp_mem_free(block[i]);
    }
}

#endif
