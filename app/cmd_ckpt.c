/* cmd_ckpt: what is in a checkpoint, and whether its files are whole. */
#include "app.h"
#include "json.h"
#include "ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void shape_text(const json_t *tensor, char *out, size_t size)
{
    const json_t *shape = doc_array(tensor, "shape");
    size_t n = (size_t)snprintf(out, size, "[");
    for (size_t i = 0; i < json_array_size(shape) && n < size; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%.0f", i ? ", " : "",
                              doc_number_at(tensor, "shape", i));
    }
    if (n < size) {
        snprintf(out + n, size - n, "]");
    }
}

static void print_inspect(const json_t *doc)
{
    static const char *const HEADS[] = {"tensor", "shape", "type", NULL};
    static const char *const KEYS[] = {
        "model_type",        "num_hidden_layers",       "hidden_size", "num_attention_heads",
        "intermediate_size", "max_position_embeddings", "vocab_size"};
    const json_t *tensors = doc_array(doc, "tensors"), *config = json_object_get(doc, "config");
    if (json_is_string(json_object_get(doc, "dir"))) {
        char *dir = ui_path(doc_text(doc, "dir"));
        printf("checkpoint  %s\n", dir);
        free(dir);
    }
    printf("parameters  %s in %zu tensors\n", ui_count(doc_number(doc, "params")).s,
           json_array_size(tensors));
    printf("sha256      %s\n", doc_text(doc, "params_sha256"));
    char line[512] = "";
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        const json_t *v = json_object_get(config, KEYS[i]);
        char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
        size_t n = strlen(line);
        if (text) {
            snprintf(line + n, sizeof line - n, "%s%s %.40s", n ? ", " : "", KEYS[i], text);
        }
        free(text);
    }
    fputs("config      ", stdout);
    ui_wrap(stdout, 12, 12, line);
    putchar('\n');
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *one = json_array_get(tensors, i);
        char shape[64];
        shape_text(one, shape, sizeof shape);
        ui_table_add(t, "%s", doc_text(one, "name"));
        ui_table_add(t, "%s", shape);
        ui_table_add(t, "%s", doc_text(one, "dtype"));
    }
    ui_table_print(t, stdout, 0);
}

static void print_verify(const json_t *doc)
{
    printf("%sgood%s: %d files are whole, params sha256 %s\n", ui_on(stdout, UI_GOOD),
           ui_off(stdout), doc_int(doc, "files", 0), doc_text(doc, "params_sha256"));
}

int cmd_ckpt(const struct args *a)
{
    static const struct {
        const char *name;
        int (*call)(const char *dir, char **json);
        void (*print)(const json_t *doc);
    } VERBS[] = {{"inspect", collapipe_ckpt_inspect, print_inspect},
                 {"verify", collapipe_ckpt_verify, print_verify}};
    const char *names[] = {VERBS[0].name, VERBS[1].name};
    char *json = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (strcmp(a->word[0], VERBS[i].name) != 0) {
            continue;
        }
        int status = VERBS[i].call(a->word[1], &json);
        if (status) {
            return app_fail_library(a, status);
        }
        if (a->json) {
            app_print_json(json);
        } else {
            json_t *doc = doc_parse(json);
            VERBS[i].print(doc);
            json_decref(doc);
        }
        collapipe_free(json);
        return COLLAPIPE_OK;
    }
    return app_fail_unknown(a, "command", a->word[0], names, 2, "collapipe ckpt --help");
}
