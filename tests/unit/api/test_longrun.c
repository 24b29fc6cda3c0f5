/*
 * Many rounds of dssda (docs/theory.md section 16, items 18 and 19): what V' trades, and what the
 * constraints come to. A small world in every check; with CP_CHECK_LONG in the environment the
 * default world of section 15 over 500 rounds, which takes minutes.
 */
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

enum { V_MOST = 4 };

/* What is run: V' in rising order, and how long. */
struct study {
    const char *const *world; /* assignments */
    size_t n_world;
    double v[V_MOST];
    int n_v, rounds;
    double within; /* constraint ratios, where V' <= 10 */
};

/* Means over the rounds of one V', and of the backlog over halves. */
struct outcome {
    double latency_s, backlog, half[2], energy, gamma;
};

static double number(const json_t *object, const char *key)
{
    const json_t *x = json_object_get(object, key);
    if (!json_is_number(x)) {
        fail_msg("%s is no number", key);
    }
    return json_number_value(x);
}

/* Mean backlog of each half of the rounds. */
static void read_rounds(const char *path, int rounds, double half[2])
{
    FILE *f = fopen(path, "r");
    json_t *line;
    int n = 0;
    assert_non_null(f);
    while ((line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL))) {
        half[n++ / (rounds / 2)] += number(line, "queue") / (rounds / 2.0);
        json_decref(line);
        if (n == rounds) {
            break;
        }
    }
    fclose(f);
    assert_int_equal(n, rounds);
}

static struct outcome run(const struct study *s, double v)
{
    const char *args[8], *const policy[] = {"dssda"};
    char set[32], *text = NULL;
    const char *path = in_dir("rounds.jsonl");
    struct outcome o = {0};
    collapipe_config *c = NULL;
    snprintf(set, sizeof set, "plan.v=%g", v);
    for (size_t i = 0; i < s->n_world; i++) {
        args[i] = s->world[i];
    }
    args[s->n_world] = set;
    const struct collapipe_simulate_options opt = {.policies = policy,
                                                   .n_policies = 1,
                                                   .rounds = s->rounds,
                                                   .seeds = 1,
                                                   .threads = 1,
                                                   .out = path};
    if (collapipe_simulate_config(args, s->n_world + 1, &c) != COLLAPIPE_OK ||
        collapipe_simulate(c, &opt, &text) != COLLAPIPE_OK) {
        fail_msg("%s", collapipe_error());
    }
    json_t *doc = json_loads(text, 0, NULL);
    const json_t *p = json_array_get(json_object_get(doc, "policies"), 0);
    o.latency_s = number(json_object_get(p, "latency_s"), "mean");
    o.backlog = number(p, "queue_mean");
    o.energy = number(p, "energy_ratio_max");
    o.gamma = number(p, "gamma_mean");
    assert_true(number(p, "rounds") == s->rounds && number(p, "infeasible_share") == 0);
    read_rounds(path, s->rounds, o.half);
    json_decref(doc);
    collapipe_free(text);
    collapipe_config_close(c);
    return o;
}

/* Latency falls with V' and, where it is what makes the backlog, that rises; at each V' the second
 * half of the rounds has hardly more backlog than the first; the constraints are kept. */
static void v_trades_latency_for_backlog(void **state)
{
    (void)state;
    static const char *const small[] = {"clusters=2x3", "model.layers=6", "train.local_steps=30"};
    const struct study quick = {small, 3, {3, 30}, 2, 100, 1.08};
    const struct study full = {NULL, 0, {1, 3, 10, 30}, 4, 500, 1.05};
    const struct study *s = getenv("CP_CHECK_LONG") ? &full : &quick;
    struct outcome before = {.latency_s = INFINITY};
    for (int i = 0; i < s->n_v; i++) {
        double v = s->v[i];
        struct outcome o = run(s, v);
        print_message("V' %4g: latency %.1f s, backlog %.2f (halves %.2f, %.2f), energy %.3f, "
                      "gamma %.3f\n",
                      v, o.latency_s, o.backlog, o.half[0], o.half[1], o.energy, o.gamma);
        assert_true(o.latency_s < before.latency_s);
        assert_true(v <= 3 || o.backlog > before.backlog);
        assert_true(o.half[1] <= 1.25 * o.half[0]);
        assert_true(v > 10 || (o.energy <= s->within && o.gamma <= s->within));
        before = o;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v_trades_latency_for_backlog),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
