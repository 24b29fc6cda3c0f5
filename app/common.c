/* common: how every command fails, and how those with a configuration open it. */
#include "app.h"
#include "ui.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int tell(const struct args *a, int status, const char *kind, const char *sentence)
{
    fprintf(stderr, "%scollapipe:%s %s\n", ui_on(stderr, UI_BAD), ui_off(stderr), sentence);
    if (a->json) {
        /* %s+% would refuse what is not UTF-8; a path in a sentence may be anything */
        json_t *text = json_string(sentence);
        json_t *doc = json_pack("{s{ss ss? si}}", "error", "kind", kind, "message",
                                text ? json_string_value(text) : NULL, "status", status);
        char *json = json_dumps(doc, JSON_INDENT(1));
        app_print_json(json ? json : "{}");
        free(json);
        json_decref(doc);
        json_decref(text);
    }
    return status;
}

int app_fail(const struct args *a, int status, const char *fmt, ...)
{
    char sentence[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    return tell(a, status, status == COLLAPIPE_CONFIG ? "E_USAGE" : "E_IO", sentence);
}

int app_fail_library(const struct args *a, int status)
{
    return tell(a, status, collapipe_error_name(), collapipe_error());
}

int app_fail_unknown(const struct args *a, const char *what, const char *word,
                     const char *const *candidates, size_t n, const char *see)
{
    const char *near = args_nearest(word, candidates, n);
    char *clean = ui_clean(word, 60);
    int status;
    if (near) {
        status =
            app_fail(a, COLLAPIPE_CONFIG, "unknown %s '%s'; did you mean '%s'?", what, clean, near);
    } else {
        status = app_fail(a, COLLAPIPE_CONFIG, "unknown %s '%s'; see %s", what, clean, see);
    }
    free(clean);
    return status;
}

void app_print_json(const char *json)
{
    size_t n = strlen(json);
    printf("%s%s", json, n && json[n - 1] == '\n' ? "" : "\n");
}

void *app_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) {
        fputs("collapipe: out of memory\n", stderr);
        exit(COLLAPIPE_FAILED);
    }
    return p;
}

char *app_copy(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(app_alloc(n, 1), text, n);
}

static bool has_type(const char *path, mode_t type)
{
    struct stat st;
    return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == type;
}

bool app_is_folder(const char *path)
{
    return has_type(path, S_IFDIR);
}

bool app_is_file(const char *path)
{
    return has_type(path, S_IFREG);
}

/* --- configuration --------------------------------------------------------------------------- */

/* "train.lr=1e-3": a '=' after a word that can be a key; "./a=b.yaml" is a path. */
static bool is_assignment(const char *word)
{
    static const char KEY[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t n = strspn(word, KEY);
    return n > 0 && word[0] != '.' && word[n] == '=';
}

/* The configuration where none is named. path: where RUN/config.yaml is put. */
static int find_config(const struct args *a, char *path, size_t size)
{
    if (a->resume) {
        int n = snprintf(path, size, "%s/config.yaml", a->resume);
        if (n > 0 && (size_t)n < size && app_is_file(path)) {
            return COLLAPIPE_OK;
        }
    }
    if (!app_is_file("config.yaml")) {
        return app_fail(a, COLLAPIPE_CONFIG,
                        "there is no config.yaml in this folder: name a configuration, give "
                        "data.path=FILE, or make a folder to start from with 'collapipe new DIR'");
    }
    snprintf(path, size, "config.yaml");
    return COLLAPIPE_OK;
}

int app_config_open(const struct args *a, collapipe_config **out)
{
    const char **assignment = app_alloc(a->n_words, sizeof *assignment);
    const char *config = NULL;
    char found[4096];
    size_t n = 0;
    int status = COLLAPIPE_OK;
    for (size_t i = 0; i < a->n_words && !status; i++) {
        if (is_assignment(a->word[i])) {
            assignment[n++] = a->word[i];
        } else if (config) {
            status = app_fail(a, COLLAPIPE_CONFIG,
                              "'%s' and '%s' cannot both be the configuration; options of it are "
                              "given as group.key=value",
                              config, a->word[i]);
        } else {
            config = a->word[i];
        }
    }
    bool has_data = false;
    for (size_t i = 0; i < n; i++) {
        has_data = has_data || strncmp(assignment[i], "data.path=", 10) == 0;
    }
    /* data.path=my.csv alone is enough: all else has defaults. */
    bool own = a->command->config && !config && !app_is_file("config.yaml");
    if (!status && !own && !config && (a->resume || !has_data || app_is_file("config.yaml"))) {
        status = find_config(a, found, sizeof found);
        config = found;
    }
    if (!status) {
        status = own ? a->command->config(assignment, n, out)
                     : collapipe_config_open(config, assignment, n, out);
        status = status ? app_fail_library(a, status) : COLLAPIPE_OK;
    }
    free(assignment);
    return status;
}

int app_config_print(const struct args *a, const collapipe_config *c)
{
    char *yaml = NULL;
    int status = collapipe_config_print(c, &yaml);
    if (status) {
        return app_fail_library(a, status);
    }
    if (a->json) {
        json_t *doc = json_pack("{ss}", "config_yaml", yaml);
        char *json = json_dumps(doc, JSON_INDENT(1));
        app_print_json(json ? json : "{}");
        free(json);
        json_decref(doc);
    } else {
        fputs(yaml, stdout);
    }
    collapipe_free(yaml);
    return COLLAPIPE_OK;
}

/* --- help ------------------------------------------------------------------------------------ */

static int print_policies(void)
{
    char *json = NULL;
    int status = collapipe_policies(&json);
    if (status) {
        return status;
    }
    json_t *doc = json_loads(json, 0, NULL), *one;
    size_t i;
    printf("\npolicies (plan.policy):\n");
    json_array_foreach(json_object_get(doc, "policies"), i, one)
    {
        printf("  %-15s ", json_string_value(json_object_get(one, "name")));
        ui_wrap(stdout, 18, 18, json_string_value(json_object_get(one, "help")));
    }
    json_decref(doc);
    collapipe_free(json);
    return COLLAPIPE_OK;
}

int app_config_help(void)
{
    static const struct args plain = {0};
    char *text = NULL;
    int status = print_policies();
    if (!status) {
        status = collapipe_config_help(&text);
    }
    if (status) {
        return app_fail_library(&plain, status);
    }
    printf("\noptions of a configuration (group.key=value):\n%s", text);
    collapipe_free(text);
    return COLLAPIPE_OK;
}
