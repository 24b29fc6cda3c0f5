/* cmd_replay: the same run without a pipeline, and whether it gives the same bits. */
#include "app.h"
#include "json.h"
#include "progress.h"
#include "ui.h"

#include <stdio.h>
#include <stdlib.h>

static void on_event(void *arg, const char *json)
{
    (void)arg;
    json_t *event = doc_parse(json);
    progress_event(event);
    json_decref(event);
}

int cmd_replay(const struct args *a)
{
    char *json = NULL;
    if (!a->quiet) {
        fputs("training the run again in one process; this takes about as long as the run did\n",
              stderr);
    }
    progress_open(a, PROGRESS_ENDS);
    int status = collapipe_replay(a->word[0], on_event, NULL, &json);
    progress_close();
    if (status && !json) {
        return app_fail_library(a, status);
    }
    json_t *doc = doc_parse(json);
    bool equal = doc_bool(doc, "equal");
    if (a->json) {
        app_print_json(json);
    } else {
        char *run = ui_path(a->word[0]);
        printf("run     %s, %d rounds\n", run, doc_int(doc, "rounds", 0));
        free(run);
        printf("run     params sha256 %s\n", doc_text(doc, "params_sha256"));
        printf("replay  params sha256 %s\n", doc_text(doc, "replay_sha256"));
        printf("%s%s%s\n", ui_on(stdout, equal ? UI_GOOD : UI_BAD),
               equal ? "equal, bit for bit" : "NOT equal", ui_off(stdout));
    }
    json_decref(doc);
    collapipe_free(json);
    return status ? status : equal ? COLLAPIPE_OK : COLLAPIPE_FAILED;
}
