/* runs: what the run database knows. */
#include "api/internal.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static cp_err open_store(const char *dir, struct cp_store **out)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(dir, "runs.sqlite", &path);
    if (!err && access(path.p, F_OK) != 0) {
        err = cp_fail(CP_E_CONFIG,
                      "there are no runs in %s (no runs.sqlite); collapipe run makes one, --dir "
                      "names another folder",
                      dir);
    }
    if (!err) {
        err = cp_store_open(path.p, out);
    }
    cp_str_fini(&path);
    return err;
}

static void set_text(json_t *j, const char *key, const char *text)
{
    json_object_set_new(j, key, text ? json_string(text) : json_null());
}

/* A run that a process is working on has a locked file in its folder (run.c). *lock: -1 if there is
 * no such file; the caller closes it. */
static cp_err lock_folder(const char *folder, int *lock)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(folder, ".lock", &path);
    *lock = err ? -1 : open(path.p, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    cp_str_fini(&path);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) != 0) {
        err = cp_fail(CP_E_IO, "%s: another process is working on it", folder);
    }
    return err;
}

struct listing {
    const char *dir;
    json_t *list;
};

/* A run that says it is running, but whose folder nobody holds, was killed. */
static bool is_dead(const char *dir, const char *id)
{
    struct cp_str folder = {0};
    int lock = -1;
    bool dead = cp_api_path(dir, id, &folder) == CP_OK && lock_folder(folder.p, &lock) == CP_OK;
    if (lock >= 0) {
        close(lock);
    }
    cp_str_fini(&folder);
    return dead;
}

static void add_row(void *arg, const struct cp_store_row *row)
{
    struct listing *l = arg;
    json_t *j = json_object();
    bool dead = row->status && strcmp(row->status, "running") == 0 && is_dead(l->dir, row->id);
    json_t *last = row->last_round_json ? json_loads(row->last_round_json, 0, NULL) : NULL;
    json_t *accuracy = json_object_get(json_object_get(last, "eval"), "accuracy");
    set_text(j, "run_id", row->id);
    set_text(j, "name", row->name);
    set_text(j, "started_utc", row->started_utc);
    set_text(j, "ended_utc", row->ended_utc);
    set_text(j, "status", dead ? "killed" : row->status);
    set_text(j, "policy", row->policy);
    set_text(j, "params_sha256", row->params_sha256);
    json_object_set_new(j, "rounds", json_integer(row->rounds));
    json_object_set(j, "accuracy", accuracy ? accuracy : json_null());
    json_array_append_new(l->list, j);
    json_decref(last);
}

int collapipe_runs_list(const char *dir, char **json)
{
    struct cp_store *s = NULL;
    struct listing l = {dir, json_array()};
    cp_err err = open_store(dir, &s);
    if (!err) {
        err = cp_store_runs_list(s, add_row, &l);
    }
    cp_store_close(s);
    if (err) {
        json_decref(l.list);
        return cp_api_status(err);
    }
    return cp_api_status(cp_api_dump(json_pack("{s:o}", "runs", l.list), json));
}

int collapipe_runs_show(const char *dir, const char *run, char **json)
{
    struct cp_store *s = NULL;
    struct cp_str text = {0};
    cp_err err = open_store(dir, &s);
    if (!err) {
        err = cp_store_run_show(s, run, &text);
    }
    if (!err) {
        err = cp_api_dump(json_loadb(text.p, text.len, 0, NULL), json);
    }
    cp_store_close(s);
    cp_str_fini(&text);
    return cp_api_status(err);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* Only a folder that a run made is removed: it has an env.json. */
static cp_err remove_folder(const char *dir, const char *id, bool *removed)
{
    struct cp_str folder = {0}, mark = {0};
    int lock = -1;
    *removed = false;
    if (strchr(id, '/') || id[0] == '.') {
        return cp_fail(CP_E_DATA, "the run's name %s is no name of a folder", id);
    }
    cp_err err = cp_api_path(dir, id, &folder);
    if (!err) {
        err = cp_api_path(folder.p, "env.json", &mark);
    }
    bool found = !err && access(mark.p, F_OK) == 0;
    if (found) {
        err = lock_folder(folder.p, &lock);
    }
    if (found && !err) {
        *removed = nftw(folder.p, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0;
        if (!*removed) {
            err = cp_fail(CP_E_IO, "cannot remove %s: %s", folder.p, strerror(errno));
        }
    }
    if (lock >= 0) {
        close(lock);
    }
    cp_str_fini(&folder);
    cp_str_fini(&mark);
    return err;
}

int collapipe_runs_rm(const char *dir, const char *run, char **json)
{
    struct cp_store *s = NULL;
    struct cp_str id = {0};
    bool removed = false;
    cp_err err = open_store(dir, &s);
    if (!err) {
        err = cp_store_run_find(s, run, &id);
    }
    if (!err) {
        err = remove_folder(dir, id.p, &removed);
    }
    if (!err) {
        err = cp_store_run_rm(s, id.p);
    }
    if (!err) {
        err = cp_api_dump(json_pack("{s:s, s:b}", "run_id", id.p, "folder_removed", removed), json);
    }
    cp_store_close(s);
    cp_str_fini(&id);
    return cp_api_status(err);
}
