/* cmd_run: trains, tells how it goes, and says at the end what came out. */
#include "app.h"
#include "json.h"
#include "progress.h"
#include "run_text.h"
#include "ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct view {
    const struct args *args;
    FILE *out; /* of the blocks: stdout is for the document alone when that is JSON */
    int rounds;
    char **last; /* [n_last] what was printed for each cluster */
    size_t n_last;
};

static void free_last(struct view *v)
{
    for (size_t i = 0; i < v->n_last; i++) {
        free(v->last[i]);
    }
    free(v->last);
    v->last = NULL;
    v->n_last = 0;
}

static void on_event(void *arg, const char *json)
{
    struct view *v = arg;
    json_t *event = doc_parse(json);
    const char *name = doc_text(event, "event");
    bool start = strcmp(name, "start") == 0, round = strcmp(name, "round") == 0;
    if (start) {
        free_last(v);
        v->rounds = doc_int(event, "rounds", 0);
        v->n_last = json_array_size(doc_array(event, "clusters"));
        v->last = app_alloc(v->n_last, sizeof *v->last);
    }
    if (!start) {
        progress_event(event);
    }
    if ((start || round) && !v->args->quiet) {
        progress_pause();
        if (start) {
            run_text_start(v->out, event);
        } else {
            run_text_round(v->out, event, v->rounds, v->last, v->n_last);
        }
        fflush(v->out);
        progress_resume();
    }
    if (start) {
        progress_event(event);
    }
    json_decref(event);
}

static void print_result(const struct args *a, const char *json)
{
    if (a->json) {
        app_print_json(json);
        return;
    }
    json_t *doc = doc_parse(json);
    if (json_is_array(json_object_get(doc, "rounds_log")) ||
        json_is_string(json_object_get(doc, "params_sha256"))) {
        run_text_summary(stdout, doc, !a->quiet);
    }
    json_decref(doc);
}

static int run(const struct args *a, const collapipe_config *c)
{
    struct view v = {.args = a, .out = a->json ? stderr : stdout};
    struct collapipe_run_options options = {
        .resume = a->resume, .dry_run = a->dry_run, .on_event = on_event, .arg = &v};
    char *json = NULL;
    progress_open(a, PROGRESS_SAVES);
    int status = collapipe_run(c, &options, &json);
    progress_close();
    if (status && status != COLLAPIPE_INTERRUPTED) {
        app_fail_library(a, status);
    } else if (json) {
        print_result(a, json);
    }
    if (!status && a->dry_run && !a->json) {
        puts("The configuration, the data and the first plan are good; nothing was started.");
    }
    collapipe_free(json);
    free_last(&v);
    return status;
}

int cmd_run(const struct args *a)
{
    collapipe_config *c = NULL;
    int status = app_config_open(a, &c);
    if (!status) {
        status = a->print_config ? app_config_print(a, c) : run(a, c);
    }
    collapipe_config_close(c);
    return status;
}
