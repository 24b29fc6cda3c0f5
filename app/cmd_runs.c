/* cmd_runs: the run database. */
#include "app.h"
#include "json.h"
#include "run_text.h"
#include "ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* run.dir of ./config.yaml: the value after "dir:" in the group "run:" of the printed
 * configuration. The caller frees it; NULL if there is no such configuration. */
static char *dir_of_config(void)
{
    collapipe_config *c = NULL;
    char *yaml = NULL, *dir = NULL;
    if (!app_is_file("config.yaml") || collapipe_config_open("config.yaml", NULL, 0, &c)) {
        return NULL;
    }
    if (collapipe_config_print(c, &yaml) == COLLAPIPE_OK) {
        char *p = strncmp(yaml, "run:\n", 5) == 0 ? yaml : strstr(yaml, "\nrun:\n");
        p = p ? strstr(p, "\n  dir: ") : NULL;
        if (p) {
            p += strlen("\n  dir: ");
            bool quoted = *p == '"';
            p += quoted;
            p[strcspn(p, quoted ? "\"\n" : " \n")] = 0;
            dir = app_copy(p);
        }
    }
    collapipe_free(yaml);
    collapipe_config_close(c);
    return dir;
}

/* Where the database is, and the name of the run in it. "runs/NAME" names both. */
struct place {
    char *dir, *run;
};

static void place_free(struct place *p)
{
    free(p->dir);
    free(p->run);
}

static struct place find(const struct args *a, const char *run)
{
    struct place p = {NULL, run ? app_copy(run) : NULL};
    if (run) {
        size_t n = strlen(p.run);
        while (n > 1 && p.run[n - 1] == '/') {
            p.run[--n] = 0;
        }
        char *slash = strrchr(p.run, '/');
        if (slash && slash > p.run) {
            char *name = app_copy(slash + 1);
            *slash = 0;
            p.dir = p.run;
            p.run = name;
        }
    }
    if (a->dir || !p.dir) {
        char *dir = a->dir ? app_copy(a->dir) : dir_of_config();
        free(p.dir);
        p.dir = dir ? dir : app_copy("runs");
    }
    return p;
}

/* "2026-01-31T12:00:59Z" without the seconds. */
static void add_time(struct ui_table *t, const char *utc)
{
    if (strlen(utc) >= 16 && utc[10] == 'T') {
        ui_table_add(t, "%.10s %.5s", utc, utc + 11);
    } else {
        ui_table_add(t, "%s", utc);
    }
}

static void print_list(const json_t *doc)
{
    static const char *const HEADS[] = {"run",     "started (UTC)", "status", "policy",
                                        ">rounds", ">accuracy",     "params", NULL};
    const json_t *runs = doc_array(doc, "runs");
    if (json_array_size(runs) == 0) {
        puts("no runs yet");
        return;
    }
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *r = json_array_get(runs, i);
        ui_table_add(t, "%s", doc_text(r, "run_id"));
        add_time(t, doc_text(r, "started_utc"));
        ui_table_add(t, "%s", doc_text(r, "status"));
        ui_table_add(t, "%s", doc_text(r, "policy"));
        ui_table_add(t, "%s", ui_count(doc_number(r, "rounds")).s);
        ui_table_add(t, "%s", ui_percent(100 * doc_number(r, "accuracy")).s);
        ui_table_add(t, "%.12s", doc_text(r, "params_sha256"));
    }
    ui_table_print(t, stdout, 0);
}

static void print_show(const json_t *doc)
{
    const json_t *rounds = doc_array(doc, "rounds"), *summary = json_object_get(doc, "summary");
    printf("%srun %s%s\n", ui_on(stdout, UI_BOLD), doc_text(doc, "run_id"), ui_off(stdout));
    printf("  status    %s\n", doc_text(doc, "status"));
    printf("  started   %s\n", doc_text(doc, "started_utc"));
    printf("  ended     %s\n", doc_text(doc, "ended_utc"));
    printf("  policy    %s\n\n", doc_text(doc, "policy"));
    run_text_rounds(stdout, rounds);
    if (json_is_object(summary)) {
        run_text_summary(stdout, summary, false);
    } else {
        puts("\nThere is no result: the run is still going on, or it ended before its last round.");
    }
}

static void print_removed(const json_t *doc)
{
    printf("removed %s%s\n", doc_text(doc, "run_id"),
           doc_bool(doc, "folder_removed") ? " and its folder" : "; its folder was not there");
}

int cmd_runs(const struct args *a)
{
    static const char *const VERBS[] = {"list", "show", "rm"};
    const char *verb = a->word[0], *run = a->n_words > 1 ? a->word[1] : NULL;
    int which = -1, status;
    char *json = NULL;
    for (int i = 0; i < 3; i++) {
        which = strcmp(verb, VERBS[i]) == 0 ? i : which;
    }
    if (which < 0) {
        return app_fail_unknown(a, "command", verb, VERBS, 3, "collapipe runs --help");
    }
    if ((which == 0) != !run) {
        return app_fail(a, COLLAPIPE_CONFIG,
                        run ? "collapipe runs list takes no run; runs show RUN shows one"
                            : "the run is missing; collapipe runs list names them");
    }
    struct place p = find(a, run);
    status = which == 0   ? collapipe_runs_list(p.dir, &json)
             : which == 1 ? collapipe_runs_show(p.dir, p.run, &json)
                          : collapipe_runs_rm(p.dir, p.run, &json);
    if (status) {
        app_fail_library(a, status);
    } else if (a->json) {
        app_print_json(json);
    } else {
        static void (*const PRINT[])(const json_t *) = {print_list, print_show, print_removed};
        json_t *doc = doc_parse(json);
        PRINT[which](doc);
        json_decref(doc);
    }
    collapipe_free(json);
    place_free(&p);
    return status;
}
