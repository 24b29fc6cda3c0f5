/* The public header, as a program that links the library uses it: a run, its files, a stop and a
 * resume, the replay, predictions, and what wrong use is answered. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <collapipe.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

static const char *const SETTINGS[] = {
    "model.layers=2",      "model.width=16", "model.heads=2",       "model.ffn=24",
    "model.max_len=12",    "model.vocab=80", "train.micro_batch=4", "train.micro_batches=2",
    "train.local_steps=4", "fed.rounds=3",   "clusters=2x2",        "plan.policy=greedy",
    "data.path=data",
};
enum { N_SETTINGS = sizeof SETTINGS / sizeof SETTINGS[0] };

static int set_up(void **state)
{
    (void)state;
    char path[128];
    snprintf(dir, sizeof dir, "/tmp/cp-api-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "mkdir %s/data", dir);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/data/train.csv", dir);
    FILE *f = fopen(path, "w");
    fprintf(f, "label,text\n");
    for (int i = 0; i < 90; i++) {
        fprintf(f, "%s,%s thing %d\n", i % 2 ? "warm" : "cold", i % 2 ? "sun fire" : "ice snow", i);
    }
    fclose(f);
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    f = fopen(path, "w");
    fprintf(f, "# a comment\nseed: 3\n");
    fclose(f);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static collapipe_config *open_config(const char *extra)
{
    const char *args[N_SETTINGS + 1];
    collapipe_config *c = NULL;
    memcpy(args, SETTINGS, sizeof SETTINGS);
    args[N_SETTINGS] = extra;
    if (collapipe_config_open(dir, args, N_SETTINGS + (extra != NULL), &c) != COLLAPIPE_OK) {
        fail_msg("%s", collapipe_error());
    }
    return c;
}

static json_t *parse(char *text)
{
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    collapipe_free(text);
    return j;
}

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    if (!s) {
        fail_msg("no text '%s'", key);
    }
    return s;
}

static int stop_after;

/* Every event is one JSON object; a stop is asked for when a round ends. */
static void on_event(void *arg, const char *json)
{
    json_t *j = json_loads(json, 0, NULL);
    assert_non_null(j);
    int *seen = arg;
    const char *name = text_of(j, "event");
    seen[strcmp(name, "start") == 0   ? 0
         : strcmp(name, "step") == 0  ? 1
         : strcmp(name, "round") == 0 ? 2
                                      : 3]++;
    if (strcmp(name, "step") == 0 && stop_after &&
        json_integer_value(json_object_get(j, "round")) == stop_after) {
        collapipe_run_stop();
    }
    json_decref(j);
}

static json_t *run(collapipe_config *c, const char *resume, int expected, int seen[4])
{
    char *text = NULL;
    struct collapipe_run_options opt = {.resume = resume, .on_event = on_event, .arg = seen};
    int status = collapipe_run(c, &opt, &text);
    if (status != expected) {
        fail_msg("status %d: %s", status, collapipe_error());
    }
    return parse(text);
}

static void contract_fields(const json_t *j)
{
    static const char *const FIELDS[] = {
        "run_id",   "policy",        "rounds",    "steps",          "train_loss",
        "eval",     "model_time_s",  "wall_s",    "model_energy_j", "bubble_pct",
        "clusters", "params_sha256", "checkpoint"};
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++) {
        if (!json_object_get(j, FIELDS[i])) {
            fail_msg("no member %s", FIELDS[i]);
        }
    }
    json_t *node = json_array_get(
        json_object_get(json_array_get(json_object_get(j, "clusters"), 0), "nodes"), 0);
    static const char *const NODE[] = {
        "name", "role", "blocks", "slots", "mem_peak_bytes", "mem_model_bytes", "busy_s"};
    for (size_t i = 0; i < sizeof NODE / sizeof NODE[0]; i++) {
        assert_non_null(json_object_get(node, NODE[i]));
    }
}

static void a_run_its_stop_and_its_resume(void **state)
{
    (void)state;
    int seen[4] = {0};
    collapipe_config *c = open_config(NULL);
    json_t *whole = run(c, NULL, COLLAPIPE_OK, seen);
    contract_fields(whole);
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 2 * 3 * 4);
    assert_int_equal(seen[2], 3);
    assert_int_equal(seen[3], 3);

    stop_after = 2;
    json_t *half = run(c, NULL, COLLAPIPE_INTERRUPTED, seen);
    stop_after = 0;
    assert_true(json_is_true(json_object_get(half, "interrupted")));
    assert_int_equal(json_integer_value(json_object_get(half, "rounds")), 2);
    json_t *rest = run(c, text_of(half, "run_id"), COLLAPIPE_OK, seen);
    assert_string_equal(text_of(rest, "params_sha256"), text_of(whole, "params_sha256"));
    assert_int_equal(json_array_size(json_object_get(rest, "train_loss")), 3);

    /* a run keeps its settings */
    collapipe_config *other = open_config("train.lr=0.5");
    char *nothing = NULL;
    struct collapipe_run_options again = {.resume = text_of(half, "run_id")};
    assert_int_equal(collapipe_run(other, &again, &nothing), COLLAPIPE_CONFIG);
    assert_non_null(strstr(collapipe_error(), "lr: 0.5"));
    collapipe_config_close(other);

    /* a complete run does not go on */
    char *text = NULL;
    struct collapipe_run_options opt = {.resume = text_of(half, "run_id")};
    assert_int_equal(collapipe_run(c, &opt, &text), COLLAPIPE_CONFIG);
    assert_non_null(strstr(collapipe_error(), "complete"));

    assert_int_equal(collapipe_replay(text_of(rest, "dir"), NULL, NULL, &text), COLLAPIPE_OK);
    json_t *replay = parse(text);
    assert_true(json_is_true(json_object_get(replay, "equal")));

    static const char *const FILES[] = {"config.yaml",   "overrides.txt", "env.json", "plan.json",
                                        "metrics.jsonl", "trace.json",    "log.txt",  "shards.tsv"};
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", text_of(whole, "dir"), FILES[i]);
        if (access(path, R_OK) != 0) {
            fail_msg("no %s", path);
        }
    }
    json_decref(replay);
    json_decref(rest);
    json_decref(half);
    json_decref(whole);
    collapipe_config_close(c);
}

static void a_model_predicts_and_is_evaluated(void **state)
{
    (void)state;
    int seen[4] = {0};
    char *text = NULL, path[128];
    collapipe_model *m = NULL;
    collapipe_config *c = open_config("train.local_steps=40");
    json_t *result = run(c, NULL, COLLAPIPE_OK, seen);
    assert_int_equal(collapipe_model_open(text_of(result, "dir"), &m), COLLAPIPE_OK);
    assert_int_equal(
        collapipe_predict(m, (const char *const[]){"fire sun", "snow ice", ""}, 3, &text),
        COLLAPIPE_OK);
    json_t *predicted = parse(text), *p = json_object_get(predicted, "predictions");
    assert_int_equal(json_array_size(p), 3);
    assert_string_equal(text_of(json_array_get(p, 0), "label"), "warm");
    assert_string_equal(text_of(json_array_get(p, 1), "label"), "cold");
    snprintf(path, sizeof path, "%s/data/train.csv", dir);
    assert_int_equal(collapipe_eval(m, path, &text), COLLAPIPE_OK);
    json_t *e = parse(text);
    assert_true(json_number_value(json_object_get(json_object_get(e, "metrics"), "accuracy")) >
                0.99);
    assert_int_equal(json_integer_value(json_object_get(e, "samples")), 90);
    assert_int_equal(collapipe_eval(m, "/nowhere.csv", &text), COLLAPIPE_FAILED);
    assert_int_equal(collapipe_ckpt_verify(text_of(result, "checkpoint"), &text), COLLAPIPE_OK);
    json_t *v = parse(text);
    assert_string_equal(text_of(v, "params_sha256"), text_of(result, "params_sha256"));
    collapipe_model_close(m);
    json_decref(predicted);
    json_decref(v);
    json_decref(e);
    json_decref(result);
    collapipe_config_close(c);
}

/* Score of one text's label as the model in the folder sees it. */
static double score_of(const char *folder, const char *text)
{
    collapipe_model *m = NULL;
    char *out = NULL;
    assert_int_equal(collapipe_model_open(folder, &m), COLLAPIPE_OK);
    assert_int_equal(collapipe_predict(m, &text, 1, &out), COLLAPIPE_OK);
    json_t *j = parse(out);
    double score = json_number_value(json_object_get(
        json_object_get(json_array_get(json_object_get(j, "predictions"), 0), "scores"), "warm"));
    json_decref(j);
    collapipe_model_close(m);
    return score;
}

/* The model folder says whether its tokenizer lower-cases. */
static void a_model_keeps_its_case(void **state)
{
    (void)state;
    int seen[4] = {0};
    char folder[96], cmd[512];
    collapipe_config *c = open_config("train.local_steps=40");
    json_t *result = run(c, NULL, COLLAPIPE_OK, seen);
    snprintf(folder, sizeof folder, "%s/cased", dir);
    snprintf(cmd, sizeof cmd, "cp -r '%s' '%s'", text_of(result, "checkpoint"), folder);
    assert_int_equal(system(cmd), 0);
    assert_true(score_of(folder, "FIRE sun") == score_of(folder, "fire sun"));
    snprintf(cmd, sizeof cmd, "%s/tokenizer_config.json", folder);
    FILE *f = fopen(cmd, "w");
    fprintf(f, "{\"do_lower_case\": false}\n");
    fclose(f);
    collapipe_model *m =
        NULL; /* a checkpoint whose files are not as its manifest says is not used */
    assert_int_equal(collapipe_model_open(folder, &m), COLLAPIPE_FAILED);
    snprintf(cmd, sizeof cmd, "%s/manifest.json", folder);
    assert_int_equal(unlink(cmd), 0);
    assert_true(score_of(folder, "FIRE sun") != score_of(folder, "fire sun"));
    json_decref(result);
    collapipe_config_close(c);
}

static void runs_are_listed_shown_and_removed(void **state)
{
    (void)state;
    char *text = NULL, runs[96];
    snprintf(runs, sizeof runs, "%s/runs", dir);
    assert_int_equal(collapipe_runs_list(runs, &text), COLLAPIPE_OK);
    json_t *listed = parse(text), *list = json_object_get(listed, "runs");
    size_t n = json_array_size(list);
    assert_true(n >= 3);
    const char *id = text_of(json_array_get(list, 0), "run_id");
    assert_int_equal(collapipe_runs_show(runs, id, &text), COLLAPIPE_OK);
    json_decref(parse(text));
    assert_int_equal(collapipe_runs_rm(runs, id, &text), COLLAPIPE_OK);
    json_t *gone = parse(text);
    assert_true(json_is_true(json_object_get(gone, "folder_removed")));
    assert_int_equal(collapipe_runs_show(runs, id, &text), COLLAPIPE_CONFIG);
    assert_int_equal(collapipe_runs_list("/nowhere", &text), COLLAPIPE_CONFIG);
    json_decref(gone);
    json_decref(listed);
}

static void wrong_use_is_answered(void **state)
{
    (void)state;
    collapipe_config *c = NULL;
    char *text = NULL;
    const char *typo = "train.learing_rate=1";
    assert_int_equal(collapipe_config_open(dir, &typo, 1, &c), COLLAPIPE_CONFIG);
    assert_int_equal(collapipe_config_open("/nowhere/config.yaml", NULL, 0, &c), COLLAPIPE_CONFIG);
    assert_non_null(strstr(collapipe_error(), "/nowhere/config.yaml"));
    assert_string_equal(collapipe_error_name(), "E_CONFIG");
    collapipe_model *m = NULL;
    assert_int_equal(collapipe_model_open(dir, &m), COLLAPIPE_FAILED);
    assert_int_equal(collapipe_new(dir, "classify", &text), COLLAPIPE_CONFIG); /* not empty */
    assert_int_equal(collapipe_new("/tmp/x", "clasify", &text), COLLAPIPE_CONFIG);
    assert_non_null(strstr(collapipe_error(), "classify"));

    c = open_config("train.lr=1e9");
    struct collapipe_run_options opt = {.dry_run = 1};
    assert_int_equal(collapipe_run(c, &opt, &text), COLLAPIPE_OK); /* nothing was started */
    collapipe_free(text);
    opt.dry_run = 0;
    assert_int_equal(collapipe_run(c, &opt, &text), COLLAPIPE_FAILED);
    assert_non_null(strstr(collapipe_error(), "not finite"));
    collapipe_config_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_its_stop_and_its_resume),
        cmocka_unit_test(a_model_predicts_and_is_evaluated),
        cmocka_unit_test(a_model_keeps_its_case),
        cmocka_unit_test(runs_are_listed_shown_and_removed),
        cmocka_unit_test(wrong_use_is_answered),
    };
    collapipe_log(0, NULL, NULL);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
