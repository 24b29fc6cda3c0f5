/* cmd_bench: prints the cases of a measurement as a table: its columns are their members. */
#include "app.h"
#include "json.h"
#include "ui.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 15 };

/* "ops_per_s" as the head of a column: "ops/s". */
static char *head_of(const char *key, const json_t *value)
{
    char *head = app_alloc(strlen(key) + 2, 1);
    head[0] = '>';
    strcpy(head + json_is_number(value), key);
    char *rate = strstr(head, "_per_s");
    if (rate) {
        strcpy(rate, "/s");
    }
    for (char *p = head; *p; p++) {
        *p = *p == '_' ? ' ' : *p;
    }
    return head;
}

/* Large numbers are read digit by digit, small ones by their size. */
static struct ui_text cell(const json_t *value)
{
    double x = json_number_value(value);
    return json_is_integer(value) || x >= 1000 ? ui_count(x) : ui_number(x);
}

static void print_cases(const json_t *cases)
{
    char *heads[COLUMNS_MAX + 1] = {NULL};
    int n = 0;
    size_t i;
    json_t *first = json_array_get(cases, 0), *one, *value;
    const char *key;
    json_object_foreach(first, key, value)
    {
        if (n < COLUMNS_MAX) {
            heads[n++] = head_of(key, value);
        }
    }
    struct ui_table *t = ui_table_new((const char *const *)heads);
    json_array_foreach(cases, i, one)
    {
        int column = 0;
        json_object_foreach(one, key, value)
        {
            if (column++ < n) {
                ui_table_add(t, "%s", json_is_number(value) ? cell(value).s : doc_text(one, key));
            }
        }
    }
    ui_table_print(t, stdout, 2);
    for (int k = 0; k < n; k++) {
        free(heads[k]);
    }
}

int cmd_bench(const struct args *a)
{
    char *json = NULL;
    const struct collapipe_bench_options opt = {.clusters = (int)a->clusters,
                                                .devices = (int)a->devices,
                                                .layers = (int)a->layers,
                                                .worlds = (int)a->worlds};
    int status = collapipe_bench(a->word[0], &opt, &json);
    if (status) {
        return app_fail_library(a, status);
    }
    if (a->json) {
        app_print_json(json);
    } else {
        json_t *doc = doc_parse(json);
        print_cases(doc_array(doc, "cases"));
        json_decref(doc);
    }
    collapipe_free(json);
    return COLLAPIPE_OK;
}
