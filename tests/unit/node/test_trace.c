/* A recorded world in a job: file and folder, what a trace overrides and what not, its end, and the
 * worlds that nobody can train in. */
#include "kit.h"

#include "world/radio.h"

#include <math.h>

static char dir[64];

static void write_trace(const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "%s/t.csv", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "round,cluster,node,quantity,value\n%s", text);
    fclose(f);
}

/* A job without texts, of KIT_BASE and the assignments; relative paths start in dir. */
static cp_err open_job(struct kit *k, const char *const *assignments)
{
    memset(k, 0, sizeof *k);
    assert_int_equal(cp_config_new(&k->conf), CP_OK);
    for (int i = 0; KIT_BASE[i]; i++) {
        assert_int_equal(cp_conf_override(k->conf, KIT_BASE[i]), CP_OK);
    }
    assert_int_equal(cp_conf_override(k->conf, "radio.kind=trace"), CP_OK);
    assert_int_equal(cp_conf_override(k->conf, "radio.trace=t.csv"), CP_OK);
    for (int i = 0; assignments && assignments[i]; i++) {
        if (cp_conf_override(k->conf, assignments[i]) != CP_OK) {
            fail_msg("%s", cp_err_text());
        }
    }
    return cp_job_init_world(&k->job, cp_config_of(k->conf), dir);
}

static void opened(struct kit *k, const char *const *assignments)
{
    if (open_job(k, assignments) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
}

static void a_trace_has_the_last_word(void **state)
{
    (void)state;
    struct kit k;
    struct cp_world w, mean;
    write_trace("2,c1,cu/d1,gain_d2d,1e-9\n2,c1,d3,rate_factor,0.25\n3,c1,d2,present,1\n"
                "4,c1,d3,rate_factor,\n");
    opened(&k, (const char *const[]){
                   "changes=[{round: 2, node: c1.d2, kind: leave}, {round: 2, node: c1.d1, kind: "
                   "rate, factor: 0.5}, {round: 2, node: c1.d3, kind: rate, factor: 0.5}]",
                   "radio.shadow_db=8", "radio.availability=0.9", NULL});
    const struct cp_cluster *base = &k.job.base.cluster[0];
    assert_int_equal(cp_job_world(&k.job, 0, true, &mean), CP_OK);
    for (int round = 1; round <= 5; round++) {
        assert_int_equal(cp_job_world(&k.job, round - 1, false, &w), CP_OK);
        const struct cp_cluster *cl = &w.cluster[0];
        assert_int_equal(w.round, round - 1);
        assert_true(cl->device[1].present == (round != 2)); /* the script, then the trace */
        double first = cl->device[0].rate_flops / base->device[0].rate_flops;
        double third = cl->device[2].rate_flops / base->device[2].rate_flops;
        double most = round < 2 ? 1 : 0.5; /* times U[0.9, 1) */
        assert_true(first >= 0.9 * most && first <= most);
        if (round == 2 || round == 3) {
            assert_true(third == 0.25);
            assert_true(cl->gain_d2d[0][1] == 1e-9 && cl->gain_d2d[1][0] == 1e-9);
        } else {
            assert_true(third >= 0.9 * most && third <= most);
        }
        /* What is not mentioned is the mean channel: shadowed, but without fading. */
        assert_true(cl->gain_d2d[0][2] == mean.cluster[0].gain_d2d[0][2]);
        assert_true(cl->gain_d2e[1] == mean.cluster[0].gain_d2e[1]);
        cp_world_fini(&w);
    }
    cp_world_fini(&mean);
    kit_close(&k);
}

static void refused(const char *const *assignments, cp_err code, const char *text)
{
    struct kit k;
    cp_err err = open_job(&k, assignments);
    if (err != code || !strstr(cp_err_text(), text)) {
        fail_msg("%s: '%s' does not have '%s'", cp_err_name(err), cp_err_text(), text);
    }
    kit_close(&k);
}

static void the_end_of_a_trace(void **state)
{
    (void)state;
    struct kit k;
    struct cp_world w;
    write_trace("1,c1,d1,present,0\n2,c1,d1,present,1\n");
    for (int i = 0; i < 2; i++) {
        opened(&k, (const char *const[]){i ? "radio.trace_end=cycle" : "radio.trace_end=hold",
                                         "fed.rounds=9", NULL});
        assert_int_equal(cp_job_world(&k.job, 2, false, &w), CP_OK);
        assert_true(w.cluster[0].device[0].present == (i == 0));
        cp_world_fini(&w);
        kit_close(&k);
    }
    refused((const char *const[]){"radio.trace_end=stop", "fed.rounds=3", NULL}, CP_E_CONFIG,
            "t.csv has 2 rounds, fed.rounds is 3");
    opened(&k, (const char *const[]){"radio.trace_end=stop", "fed.rounds=2", NULL});
    assert_int_equal(cp_job_world(&k.job, 2, false, &w), CP_E_DATA);
    assert_non_null(strstr(cp_err_text(), "radio.trace_end"));
    kit_close(&k);
}

static void what_is_refused(void **state)
{
    (void)state;
    struct kit k;
    write_trace("1,c1,d1,gain_d2e,nan\n");
    refused(NULL, CP_E_DATA, "/t.csv:2: gain_d2e: 'nan' is not a finite number");
    refused((const char *const[]){"radio.trace=none.csv", NULL}, CP_E_IO, "none.csv");
    refused((const char *const[]){"radio.trace=null", NULL}, CP_E_CONFIG,
            "radio.kind is trace, but radio.trace names no file");
    /* Another kind does not look at the file. */
    opened(&k, (const char *const[]){"radio.kind=static", NULL});
    assert_null(k.job.trace);
    kit_close(&k);
}

static void write_figures(const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "%s/f.csv", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "cluster,node,quantity,value\n%s", text);
    fclose(f);
}

/* What was measured takes the place of what is configured: under fading, on mean channels, and
 * below what a script and a trace say. */
static void figures_replace_the_model(void **state)
{
    (void)state;
    struct kit k, plain;
    struct cp_world w, mean;
    const char *const args[] = {"radio.kind=rayleigh", "plan.figures=f.csv",
                                "changes=[{round: 2, node: c1.d1, kind: rate, factor: 0.5}]", NULL};
    write_figures("c1,d1,rate_flops,8e9\nc1,d2/d3,gain_d2d,2e-9\nc1,cu,rate_d2e_bps,5e6\n"
                  "c1,d3,mem_bytes,99000000\nc1,d3,energy_j_flop,7e-12\n");
    opened(&plain, (const char *const[]){"radio.kind=rayleigh", NULL});
    opened(&k, args);
    assert_true(k.job.data_hash != plain.job.data_hash);
    assert_int_equal(cp_job_world(&k.job, 0, true, &mean), CP_OK);
    for (int round = 1; round <= 3; round++) {
        struct cp_world model;
        assert_int_equal(cp_job_world(&k.job, round - 1, false, &w), CP_OK);
        assert_int_equal(cp_job_world(&plain.job, round - 1, false, &model), CP_OK);
        const struct cp_cluster *cl = &w.cluster[0], *x = &mean.cluster[0];
        assert_true(cl->device[0].rate_flops == (round < 2 ? 8e9 : 4e9));
        assert_true(cl->gain_d2d[2][3] == 2e-9 && cl->gain_d2d[3][2] == 2e-9);
        assert_true(x->gain_d2d[2][3] == 2e-9 && x->device[0].rate_flops == 8e9);
        assert_true(cl->gain_d2e[0] == x->gain_d2e[0]);
        double rate = cp_rate_bps(1, w.radio.band_up_hz, cl->cu.power_d2e_w, cl->gain_d2e[0],
                                  w.radio.noise_w_hz);
        assert_true(fabs(rate / 5e6 - 1) < 1e-12);
        assert_true(cl->device[2].mem_bytes == 99000000 && cl->device[2].energy_j_flop == 7e-12);
        assert_true(cl->gain_d2d[0][1] == model.cluster[0].gain_d2d[0][1]); /* not measured */
        assert_true(cl->device[1].rate_flops == model.cluster[0].device[1].rate_flops);
        assert_int_equal(cp_world_check(&w), CP_OK);
        cp_world_fini(&w);
        cp_world_fini(&model);
    }
    cp_world_fini(&mean);
    kit_close(&k);
    kit_close(&plain);
    write_trace("1,c1,d1,rate_factor,0.25\n"); /* of what was measured */
    opened(&k, (const char *const[]){"plan.figures=f.csv", NULL});
    assert_int_equal(cp_job_world(&k.job, 0, false, &w), CP_OK);
    assert_true(w.cluster[0].device[0].rate_flops == 2e9);
    cp_world_fini(&w);
    kit_close(&k);
    write_figures("c1,d9,rate_flops,8e9\n");
    refused((const char *const[]){"plan.figures=f.csv", NULL}, CP_E_DATA,
            "f.csv:2: the cluster c1 has no node 'd9'");
    write_figures("c1,cu,mem_bytes,9\n");
    refused((const char *const[]){"plan.figures=f.csv", NULL}, CP_E_PLAN, "c1.cu: the embedding");
    refused((const char *const[]){"plan.figures=none.csv", NULL}, CP_E_IO, "none.csv");
}

/* Another trace is another run: a checkpoint knows it by the hash of its data. */
static void a_trace_is_part_of_the_data(void **state)
{
    (void)state;
    struct kit k = {0};
    char name[96];
    const char *const set[] = {"radio.kind=trace", name, NULL};
    uint64_t hash[3];
    kit_dir(&k, 60);
    snprintf(name, sizeof name, "radio.trace=%s/t.csv", dir);
    for (int i = 0; i < 3; i++) {
        write_trace(i < 2 ? "1,c1,d1,rate_factor,0.5\n" : "1,c1,d1,rate_factor,0.6\n");
        if (kit_open(&k, set) != CP_OK) {
            fail_msg("%s", cp_err_text());
        }
        hash[i] = k.job.data_hash;
        kit_close(&k);
    }
    assert_true(hash[0] == hash[1] && hash[1] != hash[2]);
    kit_remove(&k);
}

/* Devices leave and return by the trace; what is trained is what one process trains. */
static void a_run_over_a_trace(void **state)
{
    (void)state;
    struct kit k = {0};
    char name[96], sha[CP_SHA256_HEX];
    kit_dir(&k, 60);
    write_trace("2,c1,d1,present,0\n3,c1,d1,present,1\n3,c1,d3,present,0\n4,c1,d2,rate_factor,9\n");
    snprintf(name, sizeof name, "radio.trace=%s/t.csv", dir);
    if (kit_open(&k, (const char *const[]){"radio.kind=trace", name, "plan.policy=dssda",
                                           "fed.rounds=4", NULL}) != CP_OK ||
        kit_run(&k) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
    assert_int_equal(k.rounds, 4);
    assert_true(k.moves > 0);
    kit_hash(&k);
    kit_replay(&k, sha);
    assert_string_equal(k.sha, sha);
    kit_close(&k);
    kit_remove(&k);
}

/* Decides for the first round of a trace. */
static cp_err decide(const char *policy, const char *trace, struct cp_plan *plan)
{
    struct kit k;
    struct cp_world w, mean;
    struct cp_queues q;
    struct cp_decision d;
    char name[64];
    snprintf(name, sizeof name, "plan.policy=%s", policy);
    write_trace(trace);
    opened(&k, (const char *const[]){name, NULL});
    assert_int_equal(cp_job_world(&k.job, 0, false, &w), CP_OK);
    assert_int_equal(cp_job_world(&k.job, 0, true, &mean), CP_OK);
    assert_int_equal(cp_job_queues(&k.job, &mean, &q), CP_OK);
    struct cp_policy_args a = cp_job_policy_args(&k.job, &w, &mean);
    a.queues = &q;
    cp_err err = cp_policy_decide(k.job.policy, &a, plan, &d);
    if (!err) {
        assert_true(isfinite(d.objective) && cp_plan_check(plan, &w) == CP_OK);
    }
    cp_queues_fini(&q);
    cp_world_fini(&w);
    cp_world_fini(&mean);
    kit_close(&k);
    return err;
}

static void bad_worlds_are_named(void **state)
{
    (void)state;
    struct cp_plan p;
    /* Nobody is there. */
    assert_int_equal(
        decide("dssda", "1,c1,d1,present,0\n1,c1,d2,present,0\n1,c1,d3,present,0\n", &p),
        CP_E_PLAN);
    assert_non_null(strstr(cp_err_text(), "c1: none of its 3 devices is present"));
    /* One device, and a link that is as good as dead next to good ones: a plan around them. */
    assert_int_equal(decide("dssda", "1,c1,d1,present,0\n1,c1,d2,present,0\n", &p), CP_OK);
    assert_true(p.cluster[0].segments == 1 && p.cluster[0].device[0] == 2);
    cp_plan_fini(&p);
    assert_int_equal(decide("dssda", "1,c1,d1/d2,gain_d2d,1e-30\n", &p), CP_OK);
    for (int s = 1; s < p.cluster[0].segments; s++) {
        assert_true(p.cluster[0].device[s - 1] + p.cluster[0].device[s] != 1); /* not d1 - d2 */
    }
    cp_plan_fini(&p);
    /* Hardly a way to the edge server: its time is finite, but nobody waits for it. */
    assert_int_equal(decide("dssda",
                            "1,c1,cu,gain_d2e,1e-30\n1,c1,d1,gain_d2e,1e-30\n"
                            "1,c1,d2,gain_d2e,1e-30\n1,c1,d3,gain_d2e,1e-30\n",
                            &p),
                     CP_E_PLAN);
    assert_non_null(strstr(cp_err_text(), "c1: no placement would ever end"));
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/cp-trace-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_replace_the_model),   cmocka_unit_test(a_trace_has_the_last_word),
        cmocka_unit_test(the_end_of_a_trace),          cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_trace_is_part_of_the_data), cmocka_unit_test(bad_worlds_are_named),
        cmocka_unit_test(a_run_over_a_trace),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
