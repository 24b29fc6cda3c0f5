/* What other policies would have cost: at the M of the run, where memory is short, over all rounds
 * of a log, and of a run that was stopped and resumed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "api/baseline.h"

#include <collapipe.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { M_RUN = 12, M_REF = 4, LAYERS = 6, DEVICES = 3 };

/* A round of a job that reads no data: a world whose devices hold their part of gpipe at M_REF, but
 * at M_RUN only that of 1f1b. */
struct fixture {
    struct cp_conf *conf;
    struct cp_job job;
    struct cp_world w, mean;
    struct cp_plan plan;
    struct cp_round_report report;
};

static void set_up(struct fixture *x)
{
    static const char *const SETTINGS[] = {
        "model.layers=6",        "model.width=16",     "model.heads=2", "model.ffn=24",
        "model.max_len=12",      "model.vocab=60",     "clusters=2x3",  "train.micro_batch=3",
        "train.micro_batches=4", "plan.policy=greedy",
    };
    memset(x, 0, sizeof *x);
    assert_int_equal(cp_config_new(&x->conf), CP_OK);
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++) {
        assert_int_equal(cp_conf_override(x->conf, SETTINGS[i]), CP_OK);
    }
    assert_int_equal(cp_job_init_world(&x->job, cp_config_of(x->conf), "."), CP_OK);
    assert_int_equal(cp_job_world(&x->job, 0, false, &x->w), CP_OK);
    assert_int_equal(cp_job_world(&x->job, 0, true, &x->mean), CP_OK);
    assert_int_equal(x->w.micro_ref, M_REF);
    struct cp_policy_args a = cp_job_policy_args(&x->job, &x->w, &x->mean);
    struct cp_decision d;
    assert_int_equal(cp_policy_decide(x->job.policy, &a, &x->plan, &d), CP_OK);
    const struct cp_model_cost *m = &x->w.model;
    for (int c = 0; c < x->w.n_clusters; c++) {
        x->plan.cluster[c].micro_batches = M_RUN;
        for (int k = 0; k < DEVICES; k++) {
            x->w.cluster[c].device[k].mem_bytes =
                m->segment_bytes(m->segment_arg, LAYERS / DEVICES, M_REF);
        }
    }
    x->report = (struct cp_round_report){.plan = &x->plan, .world = &x->w};
}

static void tear_down(struct fixture *x)
{
    cp_plan_fini(&x->plan);
    cp_world_fini(&x->w);
    cp_world_fini(&x->mean);
    cp_job_fini(&x->job);
    cp_conf_free(x->conf);
}

static double number(const json_t *j, const char *key)
{
    return json_is_number(json_object_get(j, key)) ? json_number_value(json_object_get(j, key))
                                                   : (double)NAN;
}

static const char *text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static void they_are_decided_for_the_m_of_the_run(void **state)
{
    (void)state;
    struct fixture x;
    set_up(&x);
    json_t *list = cp_baselines_round(&x.job, &x.report), *b = json_array_get(list, 0);
    assert_string_equal(text(b, "policy"), "gpipe-uniform");
    assert_string_equal(text(json_array_get(list, 1), "policy"), "fedavg");
    assert_int_equal(json_array_size(list), 2);

    /* the same in a world that knows no other M */
    struct cp_plan plan;
    struct cp_decision d;
    struct cp_forecast f;
    struct cp_policy_args a = {.world = &x.w, .mean = &x.mean, .seed = x.job.seed};
    x.w.micro_ref = x.w.micro_max = M_RUN;
    assert_int_equal(cp_policy_decide(cp_policy_find("gpipe-uniform"), &a, &plan, &d), CP_OK);
    assert_int_equal(plan.cluster[0].order, CP_ORDER_1F1B);
    assert_int_equal(cp_forecast_make(&plan, &x.w, NULL, 0, &f), CP_OK);
    assert_true(json_is_true(json_object_get(b, "feasible")));
    assert_string_equal(text(b, "why"), "");
    assert_true(number(b, "latency_s") == f.latency_s);
    assert_true(number(b, "energy_j") == f.energy_j);
    assert_true(number(b, "mem_peak_bytes") == (double)f.cluster[0].mem_bytes[0]);
    cp_forecast_fini(&f);
    cp_plan_fini(&plan);
    json_decref(list);
    tear_down(&x);
}

static void a_reason_is_told_and_memory_imagined(void **state)
{
    (void)state;
    struct fixture x;
    set_up(&x);
    struct cp_cluster *cl = &x.w.cluster[1];
    for (int k = 0; k < DEVICES; k++) {
        x.w.cluster[0].device[k].mem_bytes = cl->device[k].mem_bytes = (size_t)1 << 40;
    }
    json_t *roomy = cp_baselines_round(&x.job, &x.report);
    cl->device[1].mem_bytes = 10;
    json_t *tight = cp_baselines_round(&x.job, &x.report), *b;
    size_t i;
    json_array_foreach(tight, i, b)
    {
        json_t *r = json_array_get(roomy, i);
        assert_true(json_is_true(json_object_get(r, "feasible")));
        assert_true(json_is_false(json_object_get(b, "feasible")));
        assert_non_null(strstr(text(b, "why"), cl->device[1].name));
        assert_true(number(b, "latency_s") > 0 && number(b, "latency_s") == number(r, "latency_s"));
        assert_true(number(b, "mem_peak_bytes") == number(r, "mem_peak_bytes"));
    }
    for (int k = 0; k < DEVICES; k++) { /* no plan at all: no figures */
        cl->device[k].present = false;
    }
    json_t *nobody = cp_baselines_round(&x.job, &x.report);
    json_array_foreach(nobody, i, b)
    {
        assert_true(json_is_false(json_object_get(b, "feasible")));
        assert_true(json_is_null(json_object_get(b, "latency_s")));
        assert_true(json_is_null(json_object_get(b, "energy_j")));
        assert_true(json_is_null(json_object_get(b, "mem_peak_bytes")));
        assert_non_null(strstr(text(b, "why"), "present"));
    }
    json_decref(roomy);
    json_decref(tight);
    json_decref(nobody);
    tear_down(&x);
}

static void a_log_is_summed(void **state)
{
    (void)state;
    static const char LOG[] =
        "[{'round': 1, 'baselines': ["
        "   {'policy': 'gpipe-uniform', 'latency_s': 2, 'energy_j': 10, 'mem_peak_bytes': 70,"
        "    'feasible': true, 'why': ''},"
        "   {'policy': 'fedavg', 'latency_s': null, 'energy_j': null, 'mem_peak_bytes': null,"
        "    'feasible': false, 'why': 'nobody there'}]},"
        " {'round': 2},"
        " {'round': 3, 'baselines': ["
        "   {'policy': 'fedavg', 'latency_s': null, 'energy_j': null, 'mem_peak_bytes': null,"
        "    'feasible': false, 'why': 'nobody again'},"
        "   {'policy': 'gpipe-uniform', 'latency_s': 5, 'energy_j': 4, 'mem_peak_bytes': 60,"
        "    'feasible': true, 'why': ''}]}]";
    char json[sizeof LOG];
    for (size_t i = 0; i < sizeof LOG; i++) {
        json[i] = LOG[i] == '\'' ? '"' : LOG[i];
    }
    json_t *log = json_loads(json, 0, NULL);
    assert_non_null(log);
    json_t *list = cp_baselines_json(log), *b = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(text(b, "policy"), "gpipe-uniform");
    assert_true(number(b, "rounds") == 2);
    assert_true(number(b, "latency_s") == 3.5);
    assert_true(number(b, "energy_j") == 7);
    assert_true(number(b, "mem_peak_bytes") == 70);
    assert_true(json_is_true(json_object_get(b, "feasible")));
    b = json_array_get(list, 1);
    assert_string_equal(text(b, "policy"), "fedavg");
    assert_true(number(b, "rounds") == 0);
    assert_true(json_is_null(json_object_get(b, "latency_s")));
    assert_true(json_is_false(json_object_get(b, "feasible")));
    assert_string_equal(text(b, "why"), "nobody there");
    json_decref(list);

    /* one round that memory does not allow is told, and its figures count */
    b = json_array_get(json_object_get(json_array_get(log, 2), "baselines"), 1);
    json_object_set_new(b, "feasible", json_false());
    json_object_set_new(b, "why", json_string("too small"));
    list = cp_baselines_json(log);
    b = json_array_get(list, 0);
    assert_true(json_is_false(json_object_get(b, "feasible")));
    assert_string_equal(text(b, "why"), "too small");
    assert_true(number(b, "latency_s") == 3.5);
    json_decref(list);
    json_decref(log);

    log = json_loads("[{\"round\": 1}]", 0, NULL); /* of a version that had none */
    list = cp_baselines_json(log);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    json_decref(log);
}

/* --- a whole run ----------------------------------------------------------------------------- */

static void stop_in_round_2(void *arg, const char *event)
{
    (void)arg;
    json_t *j = json_loads(event, 0, NULL);
    if (strcmp(text(j, "event"), "step") == 0 && number(j, "round") == 2) {
        collapipe_run_stop();
    }
    json_decref(j);
}

static json_t *run(collapipe_config *c, const char *resume, bool stop, int expected)
{
    char *json = NULL;
    struct collapipe_run_options opt = {.resume = resume,
                                        .on_event = stop ? stop_in_round_2 : NULL};
    int status = collapipe_run(c, &opt, &json);
    if (status != expected) {
        fail_msg("status %d: %s", status, collapipe_error());
    }
    json_t *j = json_loads(json, 0, NULL);
    assert_non_null(j);
    collapipe_free(json);
    return j;
}

static void make_folder(char dir[64])
{
    char path[96];
    strcpy(dir, "/tmp/cp-baseline-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/train.csv", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "label,text\n");
    for (int i = 0; i < 60; i++) {
        fprintf(f, "%s,%s thing %d\n", i % 2 ? "warm" : "cold", i % 2 ? "sun fire" : "ice snow", i);
    }
    fclose(f);
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "seed: 3\n");
    fclose(f);
}

static void a_resumed_run_has_those_of_all_its_rounds(void **state)
{
    (void)state;
    static const char *const SETTINGS[] = {
        "model.layers=2",      "model.width=16", "model.heads=2",       "model.ffn=24",
        "model.max_len=12",    "model.vocab=80", "train.micro_batch=4", "train.micro_batches=2",
        "train.local_steps=2", "fed.rounds=4",   "clusters=2x2",        "plan.policy=greedy",
        "data.path=train.csv",
    };
    char dir[64], cmd[96];
    collapipe_config *c;
    make_folder(dir);
    assert_int_equal(collapipe_config_open(dir, SETTINGS, sizeof SETTINGS / sizeof SETTINGS[0], &c),
                     COLLAPIPE_OK);
    json_t *whole = run(c, NULL, false, COLLAPIPE_OK);
    json_t *half = run(c, NULL, true, COLLAPIPE_INTERRUPTED);
    json_t *rest = run(c, text(half, "run_id"), false, COLLAPIPE_OK);
    const json_t *a = json_object_get(whole, "baselines"), *b = json_object_get(rest, "baselines");
    assert_int_equal(json_array_size(a), 2);
    assert_true(number(json_array_get(a, 0), "rounds") == 4);
    assert_true(number(json_array_get(json_object_get(half, "baselines"), 0), "rounds") == 2);
    assert_true(json_equal(a, b));

    /* rounds differ, or a mean of the later ones alone would pass for that of all */
    const json_t *log = json_object_get(whole, "rounds_log");
    assert_false(json_equal(json_object_get(json_array_get(log, 0), "baselines"),
                            json_object_get(json_array_get(log, 3), "baselines")));
    json_decref(whole);
    json_decref(half);
    json_decref(rest);
    collapipe_config_close(c);
    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    assert_int_equal(system(cmd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_decided_for_the_m_of_the_run),
        cmocka_unit_test(a_reason_is_told_and_memory_imagined),
        cmocka_unit_test(a_log_is_summed),
        cmocka_unit_test(a_resumed_run_has_those_of_all_its_rounds),
    };
    collapipe_log(0, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
