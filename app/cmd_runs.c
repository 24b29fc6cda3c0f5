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
        ui_table_add(t, "%.16s", doc_text(r, "started_utc"));
        ui_table_add(t, "%s", doc_text(r, "status"));
        ui_table_add(t, "%s", doc_text(r, "policy"));
        ui_table_add(t, "%s", ui_count(doc_number(r, "rounds")).s);
        ui_table_add(t, "%s", ui_percent(100 * doc_number(r, "accuracy")).s);
        ui_table_add(t, "%.12s", doc_text(r, "params_sha256"));
    }
    ui_table_print(t, stdout, 0);
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
        json_t *doc = doc_parse(json);
        if (which == 0) {
            print_list(doc);
        } else if (which == 1) {
            run_text_summary(stdout, doc, false);
        } else {
            printf("removed %s\n", doc_text(doc, "run_id"));
        }
        json_decref(doc);
    }
    collapipe_free(json);
    place_free(&p);
    return status;
}
