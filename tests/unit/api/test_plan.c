/* plan: the document of one decision: the contract's fields for every policy, parts that add up,
 * and what an explanation says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <collapipe.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two clusters; the devices of the first are small. No data: a plan needs none. */
static const char *const SETTINGS[] = {
    "model.layers=4",
    "model.width=128",
    "model.heads=4",
    "model.ffn=512",
    "model.max_len=32",
    "model.vocab=2000",
    "data.path=none",
    "train.micro_batch=8",
    "train.micro_batches=4",
    "train.local_steps=4",
    "radio.kind=static",
    "clusters=[{name: home, cu: {gflops: 10}, devices: ["
    "{name: phone, gflops: 4, mem_mib: 16, budget_j: 3, x_m: 4, y_m: 3}, "
    "{name: tablet, gflops: 6, mem_mib: 24, x_m: -6, y_m: 2}, "
    "{name: laptop, gflops: 16, mem_mib: 28, x_m: 2, y_m: -8}]}, "
    "{name: lab, cu: {gflops: 12}, devices: ["
    "{name: mini, gflops: 10, mem_mib: 200, x_m: -9, y_m: -12}, "
    "{name: desktop, gflops: 20, mem_mib: 200, x_m: 15, y_m: -3}]}]",
};
enum { N_SETTINGS = sizeof SETTINGS / sizeof SETTINGS[0] };

static json_t *parse(char *text)
{
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    collapipe_free(text);
    return j;
}

static collapipe_config *open_config(const char *extra)
{
    const char *args[N_SETTINGS + 1];
    collapipe_config *c = NULL;
    memcpy(args, SETTINGS, sizeof SETTINGS);
    args[N_SETTINGS] = extra;
    if (collapipe_config_open(NULL, args, N_SETTINGS + (extra != NULL), &c) != COLLAPIPE_OK) {
        fail_msg("%s", collapipe_error());
    }
    return c;
}

/* The plan of a policy, or NULL with the sentence in collapipe_error(). */
static json_t *plan_of(const char *policy, bool explain, const char *extra)
{
    struct collapipe_plan_options opt = {.policy = policy, .explain = explain};
    collapipe_config *c = open_config(extra);
    char *text = NULL;
    int status = collapipe_plan(c, &opt, &text);
    collapipe_config_close(c);
    assert_true((status == COLLAPIPE_OK) == (text != NULL));
    return text ? parse(text) : NULL;
}

static json_t *get(const json_t *j, const char *key)
{
    json_t *member = json_object_get(j, key);
    if (!member) {
        fail_msg("there is no '%s'", key);
    }
    return member;
}

static double number(const json_t *j, const char *key)
{
    assert_true(json_is_number(get(j, key)));
    return json_number_value(get(j, key));
}

static double number_at(const json_t *j, const char *key, size_t i)
{
    return json_number_value(json_array_get(get(j, key), i));
}

static const char *text_of(const json_t *j, const char *key)
{
    assert_true(json_is_string(get(j, key)));
    return json_string_value(get(j, key));
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

/* The element of an array whose member is this text. */
static json_t *find(const json_t *list, const char *key, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *have = json_string_value(json_object_get(json_array_get(list, i), key));
        if (have && strcmp(have, text) == 0) {
            return json_array_get(list, i);
        }
    }
    return NULL;
}

/* --- the contract ---------------------------------------------------------------------------- */

static void check_cluster(const json_t *doc, const json_t *c)
{
    static const struct {
        const char *key;
        size_t more; /* than segments */
    } ARRAYS[] = {{"devices", 0},        {"segments", 0},       {"slots", 2},
                  {"band_share_fwd", 0}, {"band_share_bwd", 0}, {"power_fwd_w", 1},
                  {"power_bwd_w", 0},    {"mem_bytes", 0},      {"energy_j", 1}};
    size_t n = json_array_size(get(c, "segments"));
    assert_true(n > 0);
    for (size_t i = 0; i < sizeof ARRAYS / sizeof ARRAYS[0]; i++) {
        assert_int_equal(json_array_size(get(c, ARRAYS[i].key)), n + ARRAYS[i].more);
        for (size_t k = 0; k < n + ARRAYS[i].more; k++) {
            assert_true(json_is_number(json_array_get(get(c, ARRAYS[i].key), k)));
        }
    }
    assert_true(number(c, "micro_batches") >= 1);
    assert_true(number(c, "uplink_share") > 0 && number(c, "power_up_w") >= 0);
    const char *order = text_of(c, "order");
    assert_true(!strcmp(order, "gpipe") || !strcmp(order, "1f1b") || !strcmp(order, "seq"));
    const json_t *parts = get(c, "round_parts");
    assert_near(number(parts, "steps_s") + number(parts, "exchange_s") +
                    number(parts, "straggler_s") + number(parts, "broadcast_s"),
                number(doc, "latency_s"));
    assert_near(number(parts, "steps_s"), 4 * number(c, "step_s"));
    assert_true(number(parts, "straggler_s") >= 0);
    const json_t *bubble = get(c, "bubble");
    if (strcmp(text_of(c, "mode"), "pipeline") != 0) {
        assert_true(json_is_null(bubble));
        return;
    }
    double idle_s = 0;
    for (size_t j = 0; j < n + 2; j++) {
        double busy_s = number_at(bubble, "busy_s", j);
        idle_s += number(c, "step_s") - busy_s;
        assert_near(busy_s + number_at(bubble, "fill_s", j) + number_at(bubble, "imbalance_s", j) +
                        number_at(bubble, "transfer_s", j),
                    number(c, "step_s"));
    }
    assert_near(100 * idle_s / ((double)(n + 2) * number(c, "step_s")), number(c, "bubble_pct"));
    assert_non_null(strstr(text_of(c, "grid"), "edge"));
}

static void every_policy_gives_the_contract(void **state)
{
    (void)state;
    char *text = NULL;
    int plans = 0;
    assert_int_equal(collapipe_policies(&text), COLLAPIPE_OK);
    json_t *policies = parse(text);
    const json_t *list = get(policies, "policies");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = text_of(json_array_get(list, i), "name");
        json_t *doc = plan_of(name, false, "plan.cuts=[[0,1,3],[1,3]]");
        if (!doc) {
            doc = plan_of(name, false, "clusters=2x3"); /* memory enough for a whole model */
        }
        if (!doc) {
            fail_msg("%s: %s", name, collapipe_error());
        }
        assert_string_equal(text_of(doc, "policy"), name);
        assert_true(number(doc, "objective") > 0 && number(doc, "latency_s") > 0);
        assert_true(number(doc, "solve_ms") >= 0);
        double bound = number(doc, "bound"), gap = number(doc, "objective") / bound - 1;
        assert_true(bound > 0 && gap >= 0 && number(doc, "bound_ms") > 0);
        assert_true(fabs(number(doc, "gap_bound") - gap) <= 1e-9 * (1 + gap));
        assert_true(json_is_array(get(doc, "binding")));
        assert_null(json_object_get(doc, "explain"));
        const json_t *clusters = get(doc, "clusters");
        double share = 0;
        assert_int_equal(json_array_size(clusters), 2);
        for (size_t c = 0; c < 2; c++) {
            check_cluster(doc, json_array_get(clusters, c));
            share += number(json_array_get(clusters, c), "uplink_share");
        }
        assert_true(share <= 1 + 1e-9);
        json_decref(doc);
        plans++;
    }
    assert_true(plans >= 6);
    json_decref(policies);
}

static void what_binds_is_a_list(void **state)
{
    (void)state;
    json_t *doc = plan_of("dssda", false, NULL);
    const json_t *list = get(doc, "binding");
    assert_true(json_array_size(list) >= 2);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        assert_true(text[0] && !strstr(text, "; "));
    }
    json_decref(doc);
}

/* --- explanations ---------------------------------------------------------------------------- */

static void a_decision_is_explained(void **state)
{
    (void)state;
    json_t *doc = plan_of("dssda", true, NULL), *why = get(doc, "explain");
    const json_t *parts = get(why, "objective"), *clusters = get(why, "clusters");
    double objective = number(doc, "objective");
    assert_near(number(parts, "latency") + number(parts, "energy") + number(parts, "convergence"),
                objective);
    assert_non_null(find(get(why, "binds"), "what", "convergence queue"));
    assert_non_null(find(get(why, "binds"), "what", "slowest cluster"));
    int more = 0, full = 0;
    for (size_t c = 0; c < 2; c++) {
        const json_t *devices = get(json_array_get(clusters, c), "devices");
        int layers = 0;
        for (size_t k = 0; k < json_array_size(devices); k++) {
            const json_t *d = json_array_get(devices, k), *x = get(d, "more");
            layers += (int)number(d, "layers");
            assert_true(number(d, "layer_s") > 0);
            if (json_is_object(x)) {
                more++;
                /* dssda weighs every layer: no single move may make it much better */
                assert_true(number(x, "objective_change_pct") > -1);
                assert_non_null(find(devices, "name", text_of(x, "other")));
            } else if (number(d, "more_bytes") > number(d, "mem_limit_bytes")) {
                full++;
                assert_non_null(find(get(why, "binds"), "node", text_of(d, "name")));
            }
            assert_true(number(d, "mem_bytes") <= number(d, "mem_limit_bytes"));
        }
        assert_int_equal(layers, 4);
    }
    assert_true(more > 0 && full > 0);
    const json_t *next = get(why, "next");
    assert_true(number(next, "objective") >= 0.99 * objective);
    assert_near(100 * (number(next, "objective") / objective - 1),
                number(next, "objective_change_pct"));
    assert_true(text_of(next, "change")[0] && strstr(text_of(next, "cut"), "edge="));
    assert_non_null(get(doc, "next_best"));
    json_decref(doc);
}

static void what_would_change_a_decision(void **state)
{
    (void)state;
    /* myopic has no last plan that it would rather keep */
    json_t *doc = plan_of("myopic", true, NULL);
    const json_t *list = get(get(doc, "explain"), "what_if");
    const json_t *memory = find(list, "what", "memory of home.laptop");
    assert_non_null(memory);
    double factor = number(memory, "factor");
    assert_true(factor > 1 && factor <= 8);
    assert_true(number(memory, "objective") < number(doc, "objective"));
    assert_non_null(strstr(json_string_value(json_array_get(get(memory, "cut"), 0)), "laptop=1-4"));
    /* At that factor the decision is the one told; a little below it is today's. */
    char clusters[700];
    for (int i = 0; i < 2; i++) {
        double mib = 28 * factor * (i == 0 ? 1 : 0.95);
        const char *from = strstr(SETTINGS[N_SETTINGS - 1], "mem_mib: 28");
        snprintf(clusters, sizeof clusters, "%.*smem_mib: %.6f%s",
                 (int)(from - SETTINGS[N_SETTINGS - 1]), SETTINGS[N_SETTINGS - 1], mib,
                 from + strlen("mem_mib: 28"));
        json_t *other = plan_of("myopic", false, clusters);
        assert_non_null(other);
        int same = json_equal(get(json_array_get(get(other, "clusters"), 0), "segments"),
                              get(json_array_get(get(doc, "clusters"), 0), "segments"));
        assert_int_equal(same, i);
        json_decref(other);
    }
    json_decref(doc);

    doc = plan_of("static", true, "plan.cuts=[[0,1,3],[1,3]]"); /* nothing changes what is given */
    list = get(get(doc, "explain"), "what_if");
    assert_true(json_array_size(list) >= 3);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *x = json_array_get(list, i);
        assert_true(json_is_null(get(x, "factor")) && json_is_null(get(x, "objective")));
        assert_int_equal((int)number(x, "up_to"), 8);
        assert_int_equal((int)number(x, "decisions"), 3);
    }
    json_decref(doc);
}

static void modes_without_a_pipeline(void **state)
{
    (void)state;
    json_t *doc = plan_of("fedavg", true, "clusters=2x3"), *why = get(doc, "explain");
    assert_true(json_is_null(get(why, "next")));
    const json_t *d = json_array_get(get(json_array_get(get(why, "clusters"), 0), "devices"), 0);
    assert_true(json_is_null(get(d, "more")) && json_is_null(get(d, "less")));
    assert_null(find(get(why, "binds"), "what", "memory"));
    json_decref(doc);
}

/* --- refusals -------------------------------------------------------------------------------- */

static void refusals(void **state)
{
    (void)state;
    char *text = NULL;
    struct collapipe_plan_options opt = {.policy = "nonsense"};
    collapipe_config *c = open_config(NULL);
    assert_int_equal(collapipe_plan(c, &opt, &text), COLLAPIPE_CONFIG);
    collapipe_config_close(c);

    /* 2 x 2 layers would fit, 12 do not; more memory or a smaller model would help */
    assert_null(plan_of("dssda", false, "model.layers=12"));
    assert_non_null(strstr(collapipe_error(), "home: no way to place 12 layers"));
    const char *times = strstr(collapipe_error(), "; it takes "), *layers;
    assert_non_null(times);
    double factor = strtod(times + strlen("; it takes "), NULL);
    assert_true(factor > 1 && factor < 8);
    layers = strstr(times, "a model of at most ");
    assert_non_null(layers);
    long most = strtol(layers + strlen("a model of at most "), NULL, 10);
    char setting[40];
    for (int i = 0; i < 2; i++) {
        snprintf(setting, sizeof setting, "model.layers=%ld", most + i);
        json_t *doc = plan_of("dssda", false, setting);
        assert_true((doc != NULL) == (i == 0));
        json_decref(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_gives_the_contract),
        cmocka_unit_test(what_binds_is_a_list),
        cmocka_unit_test(a_decision_is_explained),
        cmocka_unit_test(what_would_change_a_decision),
        cmocka_unit_test(modes_without_a_pipeline),
        cmocka_unit_test(refusals),
    };
    collapipe_log(0, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
