/* cmd_simulate: policies in the same worlds, as a table. */
#include "app.h"
#include "json.h"
#include "progress.h"
#include "ui.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "A,B,C" taken apart in place; returns how many. */
static size_t split(char *list, const char **name)
{
    size_t n = 0;
    for (char *p = list; p; n++) {
        name[n] = p;
        p = strchr(p, ',');
        if (p) {
            *p++ = 0;
        }
    }
    return n;
}

static void on_event(void *arg, const char *json)
{
    (void)arg;
    json_t *event = doc_parse(json);
    progress_event(event);
    json_decref(event);
}

/* --- the table ------------------------------------------------------------------------------- */

/* "409 s +- 12 s": the next cell is a mean over seeds with its interval, if there is one. */
static void add_mean(struct ui_table *t, const json_t *object, const char *key,
                     struct ui_text (*value)(double))
{
    const json_t *m = json_object_get(object, key);
    double mean = doc_number(m, "mean"), ci95 = doc_number(m, "ci95");
    if (isfinite(mean) && isfinite(ci95)) {
        ui_table_add(t, "%s \u00b1 %s", value(mean).s, value(ci95).s);
    } else {
        ui_table_add(t, "%s", value(mean).s);
    }
}

static struct ui_text share(double x)
{
    return ui_percent(100 * x);
}

static void table(const json_t *policies)
{
    static const char *const HEADS[] = {"policy", ">latency", ">of first", ">E/budget", ">gamma",
                                        ">busy",  ">memory",  ">queues",   ">no plan",  NULL};
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(policies); i++) {
        const json_t *p = json_array_get(policies, i);
        const json_t *against = json_object_get(p, "against_first");
        ui_table_add(t, "%s", doc_text(p, "name"));
        add_mean(t, p, "latency_s", ui_time);
        add_mean(t, against, "latency_ratio", ui_number);
        ui_table_add(t, "%s", ui_number(doc_number(p, "energy_ratio_max")).s);
        ui_table_add(t, "%s", ui_number(doc_number(p, "gamma_mean")).s);
        ui_table_add(t, "%s", share(doc_number(p, "compute_efficiency")).s);
        ui_table_add(t, "%s", ui_bytes(doc_number(p, "mem_peak_bytes")).s);
        ui_table_add(t, "%s", ui_number(doc_number(p, "queue_mean")).s);
        ui_table_add(t, "%s", share(doc_number(p, "infeasible_share")).s);
    }
    ui_table_print(t, stdout, 2);
}

/* Samples that wait, where any arrive. */
static void backlog_table(const json_t *policies)
{
    static const char *const HEADS[] = {"policy", ">samples waiting", ">age when trained", NULL};
    if (!json_is_object(json_object_get(json_array_get(policies, 0), "backlog"))) {
        return;
    }
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(policies); i++) {
        const json_t *p = json_array_get(policies, i), *backlog = json_object_get(p, "backlog");
        ui_table_add(t, "%s", doc_text(p, "name"));
        add_mean(t, backlog, "waiting", ui_number);
        add_mean(t, backlog, "freshness_s", ui_time);
    }
    puts("");
    ui_table_print(t, stdout, 2);
}

/* What it is to know only what was observed. */
static void measured_table(const json_t *policies)
{
    static const char *const HEADS[] = {"policy",     ">error of stages",    ">of links",
                                        ">redecided", ">latency of truth's", NULL};
    if (!json_is_object(json_object_get(json_array_get(policies, 0), "measured"))) {
        return;
    }
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(policies); i++) {
        const json_t *p = json_array_get(policies, i), *m = json_object_get(p, "measured");
        ui_table_add(t, "%s", doc_text(p, "name"));
        add_mean(t, m, "stage_error", share);
        add_mean(t, m, "link_error", share);
        ui_table_add(t, "%s", ui_count(doc_int(m, "redecided", 0)).s);
        add_mean(t, json_object_get(m, "against_truth"), "latency_ratio", ui_number);
    }
    puts("");
    ui_table_print(t, stdout, 2);
}

/* Rounds without a plan, and why there was none the first time. */
static void notes(const json_t *policies)
{
    for (size_t i = 0; i < json_array_size(policies); i++) {
        const json_t *p = json_array_get(policies, i);
        int kept = doc_int(p, "rounds_kept", 0), idle = doc_int(p, "rounds_idle", 0);
        if (kept + idle > 0) {
            char line[1024];
            snprintf(line, sizeof line,
                     "%s found no plan for %d rounds; %d went on with the last one, %d did not "
                     "run. %s",
                     doc_text(p, "name"), kept + idle, kept, idle, doc_text(p, "why"));
            fputs("  ", stdout);
            ui_wrap(stdout, 2, 4, line);
        }
    }
}

static void print_result(const struct args *a, const json_t *doc)
{
    const json_t *policies = doc_array(doc, "policies"), *first = json_array_get(policies, 0);
    int done = doc_int(doc, "seeds_done", 0), seeds = doc_int(doc, "seeds", 0);
    if (!a->quiet) {
        printf("%d rounds of each of %d seeds, from seed %d on", doc_int(doc, "rounds", 0), seeds,
               doc_int(doc, "first_seed", 0));
        printf(done < seeds ? "; %d of them were finished by all policies\n" : "\n", done);
        printf("the whole model on one device: %s with one micro-batch, %s with a whole step\n\n",
               ui_bytes(doc_number(first, "mem_full_bytes")).s,
               ui_bytes(doc_number(first, "mem_full_batch_bytes")).s);
    }
    table(policies);
    backlog_table(policies);
    measured_table(policies);
    if (!a->quiet) {
        puts("\n  \u00b1: 95 % interval over seeds. E/budget: of the node that uses most of its "
             "budget, of all seeds.\n"
             "  busy: useful work of the devices, as a share of what they could have done in the "
             "steps.");
        notes(policies);
    }
}

/* --- the command ----------------------------------------------------------------------------- */

static int simulate(const struct args *a, const collapipe_config *c)
{
    char *list = app_copy(a->policy ? a->policy : ""), *json = NULL;
    const char **names = app_alloc(strlen(list) + 1, sizeof *names);
    struct collapipe_simulate_options options = {.policies = names,
                                                 .n_policies = a->policy ? split(list, names) : 0,
                                                 .rounds = (int)a->rounds,
                                                 .seeds = (int)a->seeds,
                                                 .threads = (int)a->threads,
                                                 .out = a->out,
                                                 .on_event = on_event};
    progress_open(a, PROGRESS_REPORTS);
    int status = collapipe_simulate(c, &options, &json);
    progress_close();
    if (!json) {
        app_fail_library(a, status);
    } else if (a->json) {
        app_print_json(json);
    } else {
        json_t *doc = doc_parse(json);
        print_result(a, doc);
        json_decref(doc);
    }
    collapipe_free(json);
    free(names);
    free(list);
    return status;
}

int cmd_simulate(const struct args *a)
{
    collapipe_config *c = NULL;
    int status = app_config_open(a, &c);
    if (!status && a->print_config) {
        status = app_config_print(a, c);
    } else if (!status && a->dry_run) {
        puts(a->json ? "{\"ok\": true}" : "The configuration is good; nothing was simulated.");
    } else if (!status) {
        status = simulate(a, c);
    }
    collapipe_config_close(c);
    return status;
}
