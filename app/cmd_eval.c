/* cmd_eval: metrics of a model on labelled texts. */
#include "app.h"
#include "json.h"
#include "ui.h"

#include <math.h>
#include <stdio.h>

static void print_eval(const json_t *doc)
{
    static const char *const HEADS[] = {"class", ">samples", ">F1", NULL};
    const json_t *metrics = json_object_get(doc, "metrics"), *classes = doc_array(doc, "classes");
    const char *name;
    json_t *value;
    printf("%-10s %s\n", "samples", ui_count(doc_number(doc, "samples")).s);
    json_object_foreach((json_t *)metrics, name, value)
    {
        bool share = json_number_value(value) <= 1 && name[0] != 'l';
        double x = json_is_number(value) ? json_number_value(value) : (double)NAN;
        printf("%-10s %s\n", name, share ? ui_percent(100 * x).s : ui_number(x).s);
    }
    if (!json_is_object(json_array_get(classes, 0))) {
        return;
    }
    putchar('\n');
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const json_t *c = json_array_get(classes, i);
        ui_table_add(t, "%s", doc_text(c, "name"));
        ui_table_add(t, "%s", ui_count(doc_number(c, "samples")).s);
        ui_table_add(t, "%s", ui_percent(100 * doc_number(c, "f1")).s);
    }
    ui_table_print(t, stdout, 0);
}

int cmd_eval(const struct args *a)
{
    collapipe_model *model = NULL;
    char *json = NULL;
    if (!a->data) {
        return app_fail(a, COLLAPIPE_CONFIG,
                        "--data FILE is missing: the labelled texts to measure on");
    }
    int status = collapipe_model_open(a->word[0], &model);
    if (!status) {
        status = collapipe_eval(model, a->data, &json);
    }
    if (status) {
        app_fail_library(a, status);
    } else if (a->json) {
        app_print_json(json);
    } else {
        json_t *doc = doc_parse(json);
        print_eval(doc);
        json_decref(doc);
    }
    collapipe_free(json);
    collapipe_model_close(model);
    return status;
}
