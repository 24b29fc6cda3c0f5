/* cmd_predict: classes of texts, with their probabilities. */
#include "app.h"
#include "json.h"
#include "ui.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lines {
    char **line;
    size_t n, room;
};

static void lines_free(struct lines *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->line[i]);
    }
    free(l->line);
}

/* Standard input, one text a line; an empty line is an empty text. */
static int read_lines(const struct args *a, struct lines *l)
{
    char *text = NULL;
    size_t size = 0;
    ssize_t n;
    while ((n = getline(&text, &size, stdin)) >= 0) {
        if (memchr(text, 0, (size_t)n)) {
            free(text);
            return app_fail(a, COLLAPIPE_FAILED,
                            "line %zu of standard input has a NUL byte: it is not text", l->n + 1);
        }
        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) {
            text[--n] = 0;
        }
        if (l->n == l->room) {
            size_t room = l->room ? 2 * l->room : 64;
            char **grown = app_alloc(room, sizeof *grown);
            if (l->n) {
                memcpy(grown, l->line, l->n * sizeof *grown);
            }
            free(l->line);
            l->line = grown;
            l->room = room;
        }
        l->line[l->n++] = app_copy(text);
    }
    free(text);
    return ferror(stdin)
               ? app_fail(a, COLLAPIPE_FAILED, "cannot read standard input: %s", strerror(errno))
               : COLLAPIPE_OK;
}

struct score {
    const char *label;
    double value;
};

static int by_score(const void *a, const void *b)
{
    double x = ((const struct score *)a)->value, y = ((const struct score *)b)->value;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* "b 0.21, c 0.03": the classes after the best one. */
static char *next_best(const json_t *prediction, long top)
{
    json_t *scores = json_object_get(prediction, "scores"), *value;
    size_t n = 0, count = json_object_size(scores), len = 1, want = (size_t)top;
    struct score *s = app_alloc(count, sizeof *s);
    const char *label;
    json_object_foreach(scores, label, value)
    {
        s[n++] = (struct score){label, json_number_value(value)};
        len += strlen(label) + 16;
    }
    qsort(s, n, sizeof *s, by_score);
    char *out = app_alloc(len, 1), *p = out;
    for (size_t i = 1; i < n && i < want; i++) {
        p += sprintf(p, "%s%s %.3f", i > 1 ? ", " : "", s[i].label, s[i].value);
    }
    free(s);
    return out;
}

static void print_predictions(const struct args *a, const json_t *doc)
{
    static const char *const HEADS[] = {"label", ">score", "text", NULL};
    static const char *const TOP_HEADS[] = {"label", ">score", "next", "text", NULL};
    const json_t *list = doc_array(doc, "predictions");
    struct ui_table *t = ui_table_new(a->top > 1 ? TOP_HEADS : HEADS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        ui_table_add(t, "%s", doc_text(p, "label"));
        ui_table_add(t, "%.3f", doc_number(p, "score"));
        if (a->top > 1) {
            char *next = next_best(p, a->top);
            ui_table_add(t, "%s", next);
            free(next);
        }
        ui_table_add(t, "%s", doc_text(p, "text")[0] ? doc_text(p, "text") : "(empty)");
    }
    ui_table_print(t, stdout, 0);
}

static int predict(const struct args *a, collapipe_model *model, char **json)
{
    struct lines l = {0};
    int status;
    if (a->n_texts) {
        status = collapipe_predict(model, a->text, a->n_texts, json);
        return status ? app_fail_library(a, status) : COLLAPIPE_OK;
    }
    if (strcmp(a->file, "-") != 0) {
        status = collapipe_predict_file(model, a->file, json);
        return status ? app_fail_library(a, status) : COLLAPIPE_OK;
    }
    status = read_lines(a, &l);
    if (!status) {
        status = collapipe_predict(model, (const char *const *)l.line, l.n, json);
        status = status ? app_fail_library(a, status) : COLLAPIPE_OK;
    }
    lines_free(&l);
    return status;
}

int cmd_predict(const struct args *a)
{
    collapipe_model *model = NULL;
    char *json = NULL;
    if (!a->n_texts == !a->file) {
        return app_fail(a, COLLAPIPE_CONFIG,
                        "give the texts with --text TEXT (which may be repeated) or with --file "
                        "FILE; --file - reads standard input");
    }
    int status = collapipe_model_open(a->word[0], &model);
    if (status) {
        return app_fail_library(a, status);
    }
    status = predict(a, model, &json);
    if (!status && a->json) {
        app_print_json(json);
    } else if (!status) {
        json_t *doc = doc_parse(json);
        print_predictions(a, doc);
        json_decref(doc);
    }
    collapipe_free(json);
    collapipe_model_close(model);
    return status;
}
