/* Simulations through the public header: the document, the record of rounds, stops, mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/folder.h"

#include <collapipe.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <unistd.h>

static const char *const PAIR[] = {"gpipe-uniform", "greedy"};

static collapipe_config *open_config(const char *extra)
{
    const char *const args[] = {"clusters=2x3", "radio.shadow_db=4", extra};
    collapipe_config *c = NULL;
    if (collapipe_simulate_config(args, extra ? 3 : 2, &c) != COLLAPIPE_OK) {
        fail_msg("%s", collapipe_error());
    }
    return c;
}

static struct collapipe_simulate_options options_of(int rounds, int seeds)
{
    return (struct collapipe_simulate_options){
        .policies = PAIR, .n_policies = 2, .rounds = rounds, .seeds = seeds, .threads = 2};
}

/* Runs it and takes the document apart; NULL where there is none. */
static json_t *simulate(const char *extra, const struct collapipe_simulate_options *o, int want)
{
    collapipe_config *c = open_config(extra);
    char *text = NULL;
    int status = collapipe_simulate(c, o, &text);
    if (status != want) {
        fail_msg("status %d: %s", status, collapipe_error());
    }
    json_t *doc = text ? json_loads(text, 0, NULL) : NULL;
    assert_true(!text || doc);
    collapipe_free(text);
    collapipe_config_close(c);
    return doc;
}

static double number(const json_t *object, const char *key)
{
    const json_t *x = json_object_get(object, key);
    if (!json_is_number(x)) {
        fail_msg("%s is no number", key);
    }
    return json_number_value(x);
}

static const json_t *policy(const json_t *doc, size_t i)
{
    return json_array_get(json_object_get(doc, "policies"), i);
}

static void test_document(void **state)
{
    (void)state;
    static const char *const NUMBERS[] = {"energy_ratio_max",   "energy_ratio",    "gamma_mean",
                                          "compute_efficiency", "mem_peak_bytes",  "mem_full_bytes",
                                          "queue_mean",         "bubble_mean",     "rounds_per_s",
                                          "in_flight_peak",     "infeasible_share"};
    struct collapipe_simulate_options o = options_of(5, 3);
    json_t *doc = simulate(NULL, &o, COLLAPIPE_OK);
    assert_true(number(doc, "rounds") == 5 && number(doc, "seeds") == 3);
    assert_true(number(doc, "seeds_done") == 3 && number(doc, "first_seed") == 1);
    assert_true(json_is_false(json_object_get(doc, "interrupted")));
    for (size_t i = 0; i < 2; i++) {
        const json_t *p = policy(doc, i), *latency = json_object_get(p, "latency_s");
        assert_string_equal(json_string_value(json_object_get(p, "name")), PAIR[i]);
        for (size_t k = 0; k < sizeof NUMBERS / sizeof NUMBERS[0]; k++) {
            assert_true(isfinite(number(p, NUMBERS[k])));
        }
        assert_true(number(p, "rounds") == 15 && number(p, "infeasible_share") == 0);
        assert_true(number(latency, "mean") > 0 && number(latency, "ci95") > 0);
        assert_true(number(p, "gamma_mean") == 1 && number(p, "compute_efficiency") < 1);
        assert_true(number(p, "mem_peak_bytes") < number(p, "mem_full_batch_bytes"));
    }
    assert_true(json_is_null(json_object_get(policy(doc, 0), "against_first")));
    const json_t *against = json_object_get(policy(doc, 1), "against_first");
    double diff = number(json_object_get(policy(doc, 1), "latency_s"), "mean") -
                  number(json_object_get(policy(doc, 0), "latency_s"), "mean");
    assert_true(fabs(number(json_object_get(against, "latency_diff_s"), "mean") - diff) < 1e-6);
    json_decref(doc);

    o.threads = 1; /* of one seed there is no interval */
    o.seeds = 1;
    doc = simulate(NULL, &o, COLLAPIPE_OK);
    const json_t *latency = json_object_get(policy(doc, 0), "latency_s");
    assert_true(json_is_null(json_object_get(latency, "ci95")));
    assert_true(json_is_true(json_object_get(latency, "ci95_nonfinite")));
    json_decref(doc);
}

static void test_defaults(void **state)
{
    (void)state;
    struct collapipe_simulate_options o = {.threads = 1};
    json_t *doc = simulate("fed.rounds=2", &o, COLLAPIPE_OK);
    assert_true(number(doc, "rounds") == 2 && number(doc, "seeds") == 10);
    assert_int_equal(json_array_size(json_object_get(doc, "policies")), 1);
    assert_string_equal(json_string_value(json_object_get(policy(doc, 0), "name")), "dssda");
    /* BERT-base with two words of optimizer state */
    assert_true(fabs(number(policy(doc, 0), "mem_full_bytes") / 0x1p30 - 1.96) < 0.01);
    json_decref(doc);
}

/* --- the record of rounds ---------------------------------------------------------------- */

static char *read_file(const char *path)
{
    static char text[1 << 18];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

/* Nobody finds a plan in the last two rounds, when all devices of a cluster are away. */
static json_t *record(const char *name, int threads)
{
    static char path[128];
    struct collapipe_simulate_options o = options_of(4, 3);
    snprintf(path, sizeof path, "%s", in_dir(name));
    o.threads = threads;
    o.out = path;
    return simulate("changes=[{round: 3, node: c1.d1, kind: leave}, {round: 3, node: c1.d2, "
                    "kind: leave}, {round: 3, node: c1.d3, kind: leave}]",
                    &o, COLLAPIPE_OK);
}

static void test_jsonl(void **state)
{
    (void)state;
    json_t *doc = record("rounds.jsonl", 2);
    double latency_s = 0, queue = 0;
    int lines = 0, idle = 0, seeds[4] = {0};
    char *save = NULL;
    for (char *line = strtok_r(read_file(in_dir("rounds.jsonl")), "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(j);
        lines++;
        bool ran = strcmp(json_string_value(json_object_get(j, "outcome")), "planned") == 0;
        assert_true(ran == (number(j, "round") <= 2));
        assert_true(ran || json_is_null(json_object_get(j, "latency_s")));
        assert_true(isfinite(number(j, "queue")));
        idle += !ran;
        seeds[(int)number(j, "seed")]++;
        if (strcmp(json_string_value(json_object_get(j, "policy")), "greedy") == 0) {
            latency_s += ran ? number(j, "latency_s") / 6 : 0;
            queue += number(j, "queue") / 12;
        }
        json_decref(j);
    }
    assert_int_equal(lines, 24);
    assert_int_equal(idle, 12);
    assert_true(seeds[0] == 0 && seeds[1] == 8 && seeds[2] == 8 && seeds[3] == 8);
    const json_t *greedy = policy(doc, 1);
    assert_true(fabs(number(json_object_get(greedy, "latency_s"), "mean") / latency_s - 1) < 1e-9);
    assert_true(fabs(number(greedy, "queue_mean") / queue - 1) < 1e-9);
    assert_true(number(greedy, "infeasible_share") == 0.5 && number(greedy, "rounds_idle") == 6);
    assert_non_null(strstr(json_string_value(json_object_get(greedy, "why")), "round 3: "));
    json_decref(doc);
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of a file in order, as one text. */
static char *sorted(const char *path)
{
    char *line[64], *out = calloc(1, 1 << 18), *save = NULL;
    size_t n = 0;
    for (char *p = strtok_r(read_file(path), "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
        line[n++] = p;
    }
    qsort(line, n, sizeof line[0], compare_lines);
    for (size_t i = 0; i < n; i++) {
        strcat(strcat(out, line[i]), "\n");
    }
    return out;
}

static void test_csv(void **state)
{
    (void)state;
    json_decref(record("one.csv", 1));
    json_decref(record("many.csv", 4));
    char *one = read_file(in_dir("one.csv")), *save = NULL;
    int lines = 0;
    for (char *line = strtok_r(one, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int commas = 0;
        for (const char *p = line; *p; p++) {
            commas += *p == ',';
        }
        assert_int_equal(commas, 18);
        assert_true(lines > 0 || strncmp(line, "policy,seed,round,outcome,queue,", 32) == 0);
        assert_null(strstr(line, "nan"));
        lines++;
    }
    assert_int_equal(lines, 25);
    char *a = sorted(in_dir("one.csv")), *b = sorted(in_dir("many.csv"));
    assert_string_equal(a, b);
    free(a);
    free(b);
}

/* --- stops and mistakes ------------------------------------------------------------------ */

struct watch {
    int events;
    double last, total;
};

static void on_event(void *arg, const char *text)
{
    struct watch *w = arg;
    json_t *j = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(j, "event")), "simulated");
    w->events++;
    w->last = number(j, "round");
    w->total = number(j, "rounds");
    json_decref(j);
}

static void stop_on_event(void *arg, const char *text)
{
    on_event(arg, text);
    collapipe_run_stop();
}

static void test_progress_and_stop(void **state)
{
    (void)state;
    struct watch w = {0};
    struct collapipe_simulate_options o = options_of(5, 2);
    o.on_event = on_event;
    o.arg = &w;
    json_decref(simulate(NULL, &o, COLLAPIPE_OK));
    assert_true(w.events >= 1 && w.last == 20 && w.total == 20);

    w = (struct watch){0};
    o = options_of(100000, 1000); /* hours, if it did not stop */
    o.on_event = stop_on_event;
    o.arg = &w;
    json_t *doc = simulate(NULL, &o, COLLAPIPE_INTERRUPTED);
    assert_true(json_is_true(json_object_get(doc, "interrupted")));
    assert_true(number(doc, "seeds_done") == 0);
    assert_true(
        json_is_null(json_object_get(json_object_get(policy(doc, 0), "latency_s"), "mean")));
    assert_true(json_is_null(json_object_get(policy(doc, 0), "mem_peak_bytes")));
    json_decref(doc);

    o = options_of(1, 1); /* a stop is forgotten afterwards */
    json_decref(simulate(NULL, &o, COLLAPIPE_OK));
}

static void mistake(const struct collapipe_simulate_options *o, int status, const char *says)
{
    assert_null(simulate(NULL, o, status));
    if (!strstr(collapipe_error(), says)) {
        fail_msg("'%s' does not say '%s'", collapipe_error(), says);
    }
}

static void test_mistakes(void **state)
{
    (void)state;
    const char *const unknown[] = {"greedy", "gpipe-unifrm"}, *const twice[] = {"greedy", "greedy"};
    const char *many[100];
    struct collapipe_simulate_options o = options_of(2, 2);
    o.policies = unknown;
    mistake(&o, COLLAPIPE_CONFIG, "did you mean gpipe-uniform");
    o.policies = twice;
    mistake(&o, COLLAPIPE_CONFIG, "greedy is named twice");
    for (int i = 0; i < 100; i++) {
        many[i] = "greedy";
    }
    o.policies = many;
    o.n_policies = 100;
    mistake(&o, COLLAPIPE_CONFIG, "100 policies are too many");
    o = options_of(-1, 2);
    mistake(&o, COLLAPIPE_CONFIG, "-1 rounds: 1 to 1000000");
    o = options_of(2, 100000);
    mistake(&o, COLLAPIPE_CONFIG, "100000 seeds: 1 to 10000");
    o = options_of(2, 2);
    o.threads = 1000;
    mistake(&o, COLLAPIPE_CONFIG, "1000 threads");
    o = options_of(2, 2);
    o.out = "rounds.txt";
    mistake(&o, COLLAPIPE_CONFIG, "must end in .csv or .jsonl");
    o.out = "nowhere/rounds.csv";
    mistake(&o, COLLAPIPE_FAILED, "cannot create nowhere/rounds.csv");
    assert_int_equal(symlink("/dev/full", in_dir("full.csv")), 0);
    o.out = in_dir("full.csv"); /* seen when it is closed, and with more than is buffered */
    mistake(&o, COLLAPIPE_FAILED, "No space left");
    o.out = in_dir("full.csv");
    o.rounds = 1000;
    mistake(&o, COLLAPIPE_FAILED, "No space left");
}

/* --- what rounds leave behind ------------------------------------------------------------ */

static void test_batteries(void **state)
{
    (void)state;
    /* one round takes more than the reserve leaves, but a strong sun fills the battery again */
    static const char WORLD[] =
        "clusters=[{name: a, cu: {gflops: 60, mem_mib: 4096}, devices: [{name: x, gflops: 100, "
        "mem_mib: 9000, energy_pj_per_flop: 20, battery_j: 1000, battery_reserve_j: 999, "
        "harvest_w: %s}]}]";
    const char *const names[] = {"greedy"};
    struct collapipe_simulate_options o = {
        .policies = names, .n_policies = 1, .rounds = 6, .seeds = 1, .threads = 1};
    char world[512];
    for (int sun = 0; sun < 2; sun++) {
        snprintf(world, sizeof world, WORLD, sun ? "1e6" : "0");
        json_t *doc = simulate(world, &o, COLLAPIPE_OK);
        assert_true(number(policy(doc, 0), "rounds") == (sun ? 6 : 1));
        assert_true(number(policy(doc, 0), "rounds_idle") == (sun ? 0 : 5));
        json_decref(doc);
    }
}

/* All devices are empty for a while: time passes in idle rounds, too. */
static void test_idle_rounds_charge(void **state)
{
    (void)state;
    static const char WORLD[] =
        "clusters=[{name: a, cu: {gflops: 60, mem_mib: 4096}, devices: [{name: x, gflops: 100, "
        "mem_mib: 9000, energy_pj_per_flop: 20, battery_j: 1000, battery_reserve_j: 999, "
        "harvest_w: %g}]}]";
    const char *const names[] = {"greedy"};
    struct collapipe_simulate_options o = {
        .policies = names, .n_policies = 1, .rounds = 60, .seeds = 1, .threads = 1};
    char world[512];
    double ran[2];
    for (int sun = 0; sun < 2; sun++) {
        snprintf(world, sizeof world, WORLD, sun ? 0.2 : 0.1);
        json_t *doc = simulate(world, &o, COLLAPIPE_OK);
        ran[sun] = number(policy(doc, 0), "rounds");
        assert_true(ran[sun] > 2 && number(policy(doc, 0), "rounds_idle") == 60 - ran[sun]);
        json_decref(doc);
    }
    assert_true(ran[1] > 1.5 * ran[0]);
}

/* Samples come slower than they could be trained: nearly all are trained, and by Little's law they
 * wait Q / (A / T) seconds. */
static void test_backlog(void **state)
{
    (void)state;
    static const char WORLD[] =
        "clusters=[{name: a, arrivals: 400, cu: {gflops: 60, mem_mib: 4096}, devices: [{name: x, "
        "gflops: 100, mem_mib: 9000}]}, {name: b, cu: {gflops: 60, mem_mib: 4096}, devices: "
        "[{name: x, gflops: 100, mem_mib: 9000}]}]";
    const char *const names[] = {"gpipe-uniform", "dssda"};
    struct collapipe_simulate_options o = {.policies = names,
                                           .n_policies = 2,
                                           .rounds = 30,
                                           .seeds = 1,
                                           .threads = 1,
                                           .out = in_dir("backlog.jsonl")};
    json_t *doc = simulate(WORLD, &o, COLLAPIPE_OK);
    for (size_t i = 0; i < 2; i++) {
        const json_t *b = json_object_get(policy(doc, i), "backlog");
        double waiting = number(json_object_get(b, "waiting"), "mean");
        double fresh_s = number(json_object_get(b, "freshness_s"), "mean");
        double round_s = number(json_object_get(policy(doc, i), "latency_s"), "mean");
        /* half a round before they count as waiting, and half until they count as trained */
        assert_true(waiting > 300 && waiting < 800);
        assert_true(fabs(fresh_s / (waiting / 400 * round_s) - 1) < 0.1);
        assert_true(number(policy(doc, i), "rounds") == 30);
    }
    json_decref(doc);
    /* nothing has come before the first round, which is run all the same */
    char *line = strtok(read_file(in_dir("backlog.jsonl")), "\n");
    json_t *j = json_loads(line, 0, NULL);
    assert_true(number(j, "backlog") == 0 && number(j, "latency_s") > 0);
    assert_true(json_is_null(json_object_get(j, "freshness_s")));
    assert_true(json_is_null(json_object_get(j, "stage_error")));
    json_decref(j);
    o.out = NULL;
    doc = simulate(NULL, &o, COLLAPIPE_OK); /* no arrivals: nothing to tell */
    assert_true(json_is_null(json_object_get(policy(doc, 0), "backlog")));
    assert_true(json_is_null(json_object_get(policy(doc, 0), "measured")));
    json_decref(doc);
}

/* Where nothing varies, what was observed is the truth; where it does, it is not, and that costs.
 */
static void test_measured(void **state)
{
    (void)state;
    const char *const names[] = {"gpipe-uniform", "greedy"};
    struct watch w = {0};
    struct collapipe_simulate_options o = {.policies = names,
                                           .n_policies = 2,
                                           .rounds = 12,
                                           .seeds = 3,
                                           .threads = 2,
                                           .out = in_dir("measured.csv"),
                                           .on_event = on_event,
                                           .arg = &w};
    for (int varies = 0; varies < 2; varies++) {
        collapipe_config *c = NULL;
        char *text = NULL;
        const char *const args[] = {"clusters=2x3", "plan.measured=true",
                                    varies ? "radio.availability=0.2" : "radio.availability=1",
                                    varies ? "radio.kind=rayleigh" : "radio.kind=static",
                                    "changes=[{round: 5, node: c1.d1, kind: leave}]"};
        assert_int_equal(collapipe_simulate_config(args, 5, &c), COLLAPIPE_OK);
        if (collapipe_simulate(c, &o, &text) != COLLAPIPE_OK) {
            fail_msg("%s", collapipe_error());
        }
        json_t *doc = json_loads(text, 0, NULL);
        for (size_t i = 0; i < 2; i++) {
            const json_t *m = json_object_get(policy(doc, i), "measured");
            const json_t *against = json_object_get(m, "against_truth");
            double stage = number(json_object_get(m, "stage_error"), "mean");
            double link = number(json_object_get(m, "link_error"), "mean");
            double ratio = number(json_object_get(against, "latency_ratio"), "mean");
            assert_true(varies ? stage > 0.05 && link > 0.01 : stage < 1e-9 && link < 1e-9);
            assert_true(varies && i == 1 ? ratio > 1.01 : fabs(ratio - 1) < 1e-9);
            assert_true(number(m, "redecided") == 3); /* once per seed */
            assert_true(number(policy(doc, i), "rounds") == 36);
        }
        json_decref(doc);
        collapipe_free(text);
        collapipe_config_close(c);
    }
    assert_true(w.last == 144 && w.total == 144);
    int lines = 0;
    for (const char *p = read_file(in_dir("measured.csv")); *p; p++) {
        lines += *p == '\n';
    }
    assert_int_equal(lines, 1 + 72); /* not those of the planner that sees the truth */
}

static void test_moments(void **state)
{
    (void)state;
    const char *const names[] = {"random"};
    struct collapipe_simulate_options o = {
        .policies = names, .n_policies = 1, .rounds = 6, .seeds = 1, .threads = 1};
    json_t *keep = simulate("fed.moments=keep", &o, COLLAPIPE_OK);
    json_t *reset = simulate("fed.moments=reset", &o, COLLAPIPE_OK);
    assert_true(number(policy(keep, 0), "moves") > 0 && number(policy(reset, 0), "moves") == 0);
    json_decref(keep);
    json_decref(reset);
}

static void test_bench(void **state)
{
    (void)state;
    char *text = NULL;
    struct collapipe_bench_options o = {.clusters = 1};
    assert_int_equal(collapipe_bench("simm", NULL, &text), COLLAPIPE_CONFIG);
    assert_non_null(strstr(collapipe_error(), "did you mean sim"));
    assert_int_equal(collapipe_bench("sim", &o, &text), COLLAPIPE_CONFIG);
    assert_non_null(strstr(collapipe_error(), "bench sim has its own sizes"));
    o = (struct collapipe_bench_options){.clusters = 1, .devices = 17, .layers = 2, .worlds = 1};
    assert_int_equal(collapipe_bench("plan", &o, &text), COLLAPIPE_CONFIG);
    o.worlds = 1001;
    assert_int_equal(collapipe_bench("plan", &o, &text), COLLAPIPE_CONFIG);
    assert_non_null(strstr(collapipe_error(), "at most 1000 worlds"));
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_backlog),
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_idle_rounds_charge),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_batteries),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_progress_and_stop),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
