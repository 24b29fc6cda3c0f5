/* dssda against gpipe-uniform at equal samples per step (M = M_ref for both) on the same traces:
 * 10 seeds, mean modelled latency per round, 95 % interval of the paired difference. Rounds in
 * which dssda is not faster are printed with what binds, the queues among it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "node/job.h"
#include "sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = 10, ROUNDS = 30 };
static const double T95 = 2.262; /* two-sided Student quantile, 9 degrees of freedom */

static double latency(const struct cp_plan *p, const struct cp_world *w, struct cp_queues *q)
{
    struct cp_sim_round sim;
    struct cp_forecast f;
    assert_int_equal(cp_sim_round(p, w, NULL, 0, &sim), CP_OK);
    double t = sim.latency_s;
    cp_sim_round_fini(&sim);
    if (q) {
        assert_int_equal(cp_forecast_make(p, w, NULL, 0, &f), CP_OK);
        cp_queues_advance(q, w, &f);
        cp_forecast_fini(&f);
    }
    return t;
}

/* "energy queue of c3.d2 at 4.1": the longest one when the decision was made. */
static void longest_queue(const struct cp_queues *q, const struct cp_world *w, char *out, size_t n)
{
    int at_c = 0, at_k = 0;
    for (int c = 0; c < w->n_clusters; c++) {
        for (int k = 0; k <= w->cluster[c].n_devices; k++) {
            if (q->energy[c][k] > q->energy[at_c][at_k]) {
                at_c = c;
                at_k = k;
            }
        }
    }
    const struct cp_cluster *cl = &w->cluster[at_c];
    snprintf(out, n, "longest energy queue %s.%s at %.1f", cl->name,
             at_k ? cl->device[at_k - 1].name : "cu", q->energy[at_c][at_k]);
}

/* Mean latency of both policies over the rounds of one seed. */
static void one_seed(const char *const *settings, int seed, double mean[2], int *slower)
{
    static const char *const NAMES[2] = {"dssda", "gpipe-uniform"};
    struct cp_conf *conf;
    struct cp_job job;
    struct cp_world full;
    struct cp_queues q;
    struct cp_plan last = {0};
    char text[32];
    snprintf(text, sizeof text, "seed=%d", seed);
    assert_int_equal(cp_config_new(&conf), CP_OK);
    assert_int_equal(cp_conf_override(conf, text), CP_OK);
    for (int i = 0; settings[i]; i++) {
        assert_int_equal(cp_conf_override(conf, settings[i]), CP_OK);
    }
    assert_int_equal(cp_job_init_world(&job, cp_config_of(conf), "."), CP_OK);
    assert_int_equal(cp_job_world(&job, 0, true, &full), CP_OK);
    assert_int_equal(cp_queues_init(&q, &full, 10), CP_OK);
    mean[0] = mean[1] = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct cp_world w;
        double t[2];
        char binding[sizeof((struct cp_decision *)0)->binding] = "", queue[96];
        assert_int_equal(cp_job_world(&job, round, false, &w), CP_OK);
        longest_queue(&q, &w, queue, sizeof queue);
        for (int i = 0; i < 2; i++) {
            struct cp_policy_args args = cp_job_policy_args(&job, &w, &full);
            struct cp_plan p = {0};
            struct cp_decision d;
            args.choose_micro = false;
            args.queues = i == 0 ? &q : NULL;
            args.incumbent = i == 0 && round > 0 ? &last : NULL;
            if (cp_policy_decide(cp_policy_find(NAMES[i]), &args, &p, &d) != CP_OK) {
                fail_msg("seed %d, round %d, %s: %s", seed, round + 1, NAMES[i], cp_err_text());
            }
            for (int c = 0; c < p.n_clusters; c++) {
                assert_int_equal(p.cluster[c].micro_batches, w.micro_ref);
            }
            t[i] = latency(&p, &w, i == 0 ? &q : NULL);
            mean[i] += t[i] / ROUNDS;
            if (i == 0) {
                memcpy(binding, d.binding, sizeof binding);
                assert_int_equal(cp_plan_copy(&last, &p), CP_OK);
            }
            cp_plan_fini(&p);
        }
        if (t[0] >= t[1]) {
            ++*slower;
            print_message(
                "  seed %d, round %d: dssda %.2f s, gpipe-uniform %.2f s; binds: %s; %s\n", seed,
                round + 1, t[0], t[1], binding, queue);
        }
        cp_world_fini(&w);
    }
    cp_plan_fini(&last);
    cp_queues_fini(&q);
    cp_world_fini(&full);
    cp_job_fini(&job);
    cp_conf_free(conf);
}

static void compare(const char *title, const char *const *settings)
{
    double sum = 0, sum2 = 0, total[2] = {0, 0};
    int slower = 0;
    print_message("%s: %d seeds of %d rounds\n", title, SEEDS, ROUNDS);
    for (int seed = 1; seed <= SEEDS; seed++) {
        double mean[2];
        one_seed(settings, seed, mean, &slower);
        double diff = mean[0] - mean[1];
        sum += diff;
        sum2 += diff * diff;
        total[0] += mean[0] / SEEDS;
        total[1] += mean[1] / SEEDS;
    }
    double mean = sum / SEEDS;
    double half = T95 * sqrt((sum2 - SEEDS * mean * mean) / (SEEDS - 1) / SEEDS);
    print_message("  dssda %.2f s, gpipe-uniform %.2f s, ratio %.3f; difference %.2f s, 95 %% "
                  "interval %.2f to %.2f s; %d of %d rounds not faster\n",
                  total[0], total[1], total[0] / total[1], mean, mean - half, mean + half, slower,
                  SEEDS * ROUNDS);
    assert_true(mean + half < 0);
}

static void bert_base(void **state)
{
    (void)state;
    compare("BERT-base on 4 clusters of 4 devices of the default ranges",
            (const char *const[]){"clusters=4x4", "model.layers=12", "model.width=768",
                                  "model.heads=12", "model.ffn=3072", "model.max_len=128",
                                  "model.vocab=30522", "train.micro_batch=4", "radio.kind=rayleigh",
                                  "radio.availability=0.5", "server.gflops=2000", NULL});
}

static void small_bert(void **state)
{
    (void)state;
    compare("the model of `collapipe new` on 2 clusters of 3 devices of the default ranges",
            (const char *const[]){"clusters=2x3", "radio.kind=rayleigh", "radio.availability=0.5",
                                  NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_bert),
        cmocka_unit_test(bert_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
