/* cmd_new: a folder to start from. */
#include "app.h"
#include "json.h"
#include "ui.h"

#include <stdio.h>
#include <stdlib.h>

static int list_templates(const struct args *a)
{
    static const char *const HEADS[] = {"template", "what it is", NULL};
    char *json = NULL;
    int status = collapipe_templates(&json);
    if (status) {
        return app_fail_library(a, status);
    }
    if (a->json) {
        app_print_json(json);
    } else {
        json_t *doc = doc_parse(json);
        const json_t *list = doc_array(doc, "templates");
        struct ui_table *t = ui_table_new(HEADS);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *one = json_array_get(list, i);
            ui_table_add(t, "%s", doc_text(one, "name"));
            ui_table_add(t, "%s", doc_text(one, "help"));
        }
        ui_table_print(t, stdout, 0);
        json_decref(doc);
    }
    collapipe_free(json);
    return COLLAPIPE_OK;
}

static void print_new(const struct args *a, const json_t *doc)
{
    bool with_data = json_object_get(doc, "samples") != NULL;
    char *dir = ui_path(doc_text(doc, "dir")), *classes = doc_join(doc, "classes", ", ");
    printf("made %s from the template %s\n", dir, doc_text(doc, "template"));
    if (with_data) {
        printf("  %-10s%s texts to train on, %s held out, a vocabulary of %s pieces\n", "data",
               ui_count(doc_number(doc, "samples")).s, ui_count(doc_number(doc, "heldout")).s,
               ui_count(doc_number(doc, "vocab")).s);
        printf("  %-10s%zu: ", "classes", json_array_size(doc_array(doc, "classes")));
        ui_wrap(stdout, 16, 12, classes);
    }
    printf("  %-10s%s/config.yaml: every option used, with a comment\n", "settings", dir);
    if (!a->quiet) {
        printf("\nNext\n  cd %s && collapipe %s\n", dir, with_data ? "run" : "plan");
    }
    free(classes);
    free(dir);
}

int cmd_new(const struct args *a)
{
    char *json = NULL;
    if (a->list) {
        return list_templates(a);
    }
    if (a->n_words == 0) {
        return app_fail(a, COLLAPIPE_CONFIG,
                        "the name of the new folder is missing; usage: "
                        "collapipe new DIR [--template NAME]");
    }
    int status = collapipe_new(a->word[0], a->template_name, &json);
    if (status) {
        return app_fail_library(a, status);
    }
    if (a->json) {
        app_print_json(json);
    } else {
        json_t *doc = doc_parse(json);
        print_new(a, doc);
        json_decref(doc);
    }
    collapipe_free(json);
    return COLLAPIPE_OK;
}
