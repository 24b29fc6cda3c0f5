/* api: errors, logs and configuration of the public interface. */
#include "api/internal.h"

#include "base/log.h"
#include "plan/policy.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *collapipe_version(void)
{
    return CP_VERSION;
}

static _Thread_local cp_err last_error;

int cp_api_status(cp_err err)
{
    last_error = err;
    switch (err) {
    case CP_OK:
        return COLLAPIPE_OK;
    case CP_E_USAGE:
    case CP_E_CONFIG:
        return COLLAPIPE_CONFIG;
    case CP_E_TIMEOUT:
    case CP_E_PEER:
    case CP_E_PROTO:
        return COLLAPIPE_NETWORK;
    case CP_E_STOPPED:
        return COLLAPIPE_INTERRUPTED;
    default:
        return COLLAPIPE_FAILED;
    }
}

const char *collapipe_error(void)
{
    return cp_err_text();
}

const char *collapipe_error_name(void)
{
    return cp_err_name(last_error);
}

void collapipe_free(void *text)
{
    free(text);
}

/* --- logs ------------------------------------------------------------------------------------ */

static struct {
    void (*sink)(void *arg, int level, const char *line);
    void *arg;
} user_log;

static void to_user(enum cp_log_level level, const char *line, void *arg)
{
    (void)arg;
    user_log.sink(user_log.arg, (int)level, line);
}

void collapipe_log(int max, void (*sink)(void *arg, int level, const char *line), void *arg)
{
    user_log.sink = sink;
    user_log.arg = arg;
    cp_log_level(max < 0              ? CP_LOG_ERROR
                 : max > CP_LOG_DEBUG ? CP_LOG_DEBUG
                                      : (enum cp_log_level)max);
    cp_log_sink(sink ? to_user : NULL, NULL);
}

/* --- stopping -------------------------------------------------------------------------------- */

static atomic_int stop_calls; /* a signal handler may write it, and any thread read it */

void collapipe_run_stop(void)
{
    atomic_store(&stop_calls, 1);
}

bool cp_api_stop_wanted(void)
{
    return atomic_load(&stop_calls) != 0;
}

void cp_api_stop_forget(void)
{
    atomic_store(&stop_calls, 0);
}

/* --- JSON and paths -------------------------------------------------------------------------- */

cp_err cp_api_dump(json_t *doc, char **json)
{
    char *text = doc ? json_dumps(doc, JSON_INDENT(1)) : NULL;
    json_decref(doc);
    if (!text) {
        return cp_fail(CP_E_NOMEM, "out of memory while writing the result");
    }
    *json = text;
    return CP_OK;
}

void cp_api_real(json_t *object, const char *key, double x)
{
    if (isfinite(x)) {
        json_object_set_new(object, key, json_real(x));
        return;
    }
    char flag[96];
    snprintf(flag, sizeof flag, "%s_nonfinite", key);
    json_object_set_new(object, key, json_null());
    json_object_set_new(object, flag, json_true());
}

cp_err cp_api_path(const char *folder, const char *name, struct cp_str *out)
{
    cp_str_clear(out);
    if (name[0] != '/' && folder[0] && strcmp(folder, ".") != 0) {
        cp_str_printf(out, "%s/", folder);
    }
    cp_str_puts(out, name);
    return cp_str_check(out);
}

cp_err cp_api_read_json(const char *path, json_t **out)
{
    struct cp_str text = {0};
    json_error_t why;
    cp_err err = cp_file_read(path, (size_t)1 << 30, &text);
    if (!err) {
        *out = json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, &why);
        if (!*out) {
            err = cp_fail(CP_E_DATA, "%s:%d: not valid JSON: %s", path, why.line, why.text);
        }
    }
    cp_str_fini(&text);
    return err;
}

cp_err cp_api_write_json(const char *folder, const char *name, json_t *doc)
{
    struct cp_str path = {0};
    char *text = NULL;
    cp_err err = cp_api_dump(doc, &text);
    if (!err) {
        err = cp_api_path(folder, name, &path);
    }
    if (!err) {
        err = cp_file_write(path.p, text, strlen(text));
    }
    free(text);
    cp_str_fini(&path);
    return err;
}

cp_err cp_api_runs_dir(const collapipe_config *c, struct cp_str *out)
{
    return cp_api_path(c->folder, cp_config_of(c->conf)->run.dir, out);
}

/* --- configuration --------------------------------------------------------------------------- */

/* A run folder's config.yaml keeps the paths of the folder that the run was started from; env.json
 * beside it tells which that was. */
static cp_err find_folder(const char *file, char **folder)
{
    struct cp_str dir = {0}, path = {0};
    const char *slash = strrchr(file, '/');
    json_t *env = NULL;
    cp_str_add(&dir, slash ? file : ".", slash ? (size_t)(slash - file) : 1);
    cp_err err = cp_str_check(&dir);
    if (!err) {
        err = cp_api_path(dir.p, "env.json", &path);
    }
    if (!err && access(path.p, F_OK) == 0) {
        err = cp_api_read_json(path.p, &env);
        const char *base = json_string_value(json_object_get(env, "base_folder"));
        if (!err && base) {
            cp_str_clear(&dir);
            cp_str_puts(&dir, base);
        }
    }
    if (!err) {
        *folder = strdup(cp_str_text(&dir));
        err = *folder ? CP_OK : cp_fail(CP_E_NOMEM, "out of memory");
    }
    json_decref(env);
    cp_str_fini(&dir);
    cp_str_fini(&path);
    return err;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static cp_err load_file(collapipe_config *c, const char *path)
{
    struct cp_str file = {0};
    cp_err err;
    if (is_dir(path)) {
        err = cp_api_path(path, "config.yaml", &file);
        if (!err && access(file.p, F_OK) != 0) {
            err = cp_fail(CP_E_CONFIG,
                          "the folder %s has no config.yaml; collapipe new DIR makes one", path);
        }
    } else {
        cp_str_puts(&file, path);
        err = cp_str_check(&file);
    }
    if (!err) {
        err = cp_conf_load_file(c->conf, file.p);
    }
    if (!err) {
        err = find_folder(file.p, &c->folder);
    }
    cp_str_fini(&file);
    return err;
}

/* What stands where a file would: a path, or a text with a name, or nothing. */
struct config_source {
    const char *path, *name, *text;
};

static cp_err open_config(collapipe_config *c, const struct config_source *from,
                          const char *const *assignments, size_t n)
{
    CP_TRY(cp_config_new(&c->conf));
    if (from->path) {
        CP_TRY(load_file(c, from->path));
    } else {
        c->folder = strdup(".");
    }
    if (from->text) {
        CP_TRY(cp_conf_load_text(c->conf, from->name, from->text, strlen(from->text)));
    }
    CP_TRY(cp_conf_load_env(c->conf, "COLLAPIPE_", environ));
    for (size_t i = 0; i < n; i++) {
        CP_TRY(cp_conf_override(c->conf, assignments[i]));
        cp_str_printf(&c->assignments, "%s\n", assignments[i]);
    }
    CP_TRY(cp_str_check(&c->assignments));
    return c->folder ? CP_OK : cp_fail(CP_E_NOMEM, "out of memory");
}

static int new_config(const struct config_source *from, const char *const *assignments, size_t n,
                      collapipe_config **out)
{
    collapipe_config *c = calloc(1, sizeof *c);
    cp_err err = c ? open_config(c, from, assignments, n) : cp_fail(CP_E_NOMEM, "out of memory");
    if (err) {
        collapipe_config_close(c);
        /* A configuration that cannot be read is a mistake of use, not of a run. */
        return cp_api_status(err == CP_E_IO ? CP_E_CONFIG : err);
    }
    *out = c;
    return cp_api_status(CP_OK);
}

int collapipe_config_open(const char *path, const char *const *assignments, size_t n,
                          collapipe_config **out)
{
    return new_config(&(struct config_source){.path = path}, assignments, n, out);
}

int cp_api_config_text(const char *name, const char *text, const char *const *assignments, size_t n,
                       collapipe_config **out)
{
    return new_config(&(struct config_source){.name = name, .text = text}, assignments, n, out);
}

void collapipe_config_close(collapipe_config *c)
{
    if (c) {
        cp_conf_free(c->conf);
        free(c->folder);
        cp_str_fini(&c->assignments);
        free(c);
    }
}

static cp_err give_text(cp_err err, struct cp_str *text, char **out)
{
    if (!err) {
        *out = strdup(cp_str_text(text));
        err = *out ? CP_OK : cp_fail(CP_E_NOMEM, "out of memory");
    }
    cp_str_fini(text);
    return err;
}

int collapipe_config_print(const collapipe_config *c, char **yaml)
{
    struct cp_str text = {0};
    return cp_api_status(give_text(cp_conf_print(c->conf, &text), &text, yaml));
}

int collapipe_config_help(char **out)
{
    struct cp_str text = {0};
    return cp_api_status(give_text(cp_conf_help(CP_CONFIG_TABLE, &text), &text, out));
}

cp_err cp_api_policy(const char *name, const struct cp_policy **out)
{
    const char *names[64];
    size_t n = 0;
    *out = cp_policy_find(name);
    if (*out) {
        return CP_OK;
    }
    for (; CP_POLICIES[n] && n < sizeof names / sizeof names[0]; n++) {
        names[n] = CP_POLICIES[n]->name;
    }
    const char *near = cp_nearest(name, names, n);
    return cp_fail(CP_E_CONFIG, "there is no policy '%.40s'%s%s; collapipe plan --help lists them",
                   name, near ? ", did you mean " : "", near ? near : "");
}

int collapipe_policies(char **json)
{
    json_t *list = json_array();
    for (int i = 0; CP_POLICIES[i]; i++) {
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", CP_POLICIES[i]->name, "help",
                                              CP_POLICIES[i]->help));
    }
    return cp_api_status(cp_api_dump(json_pack("{s:o}", "policies", list), json));
}
