/*
 * run_folder: the folder of a run, RUN.DIR/<name>-<UTC>/, and its record in the database.
 *
 * What is in the folder is described in docs/formats.md. A lock keeps a second process out.
 */
#include "api/run.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { LOCK_TRIES = 10, LOCK_PAUSE_US = 20000 };

static cp_err take_lock(struct cp_runner *r)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(r->dir.p, ".lock", &path);
    if (!err) {
        r->lock = open(path.p, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        bool held = r->lock >= 0 && flock(r->lock, LOCK_EX | LOCK_NB) == 0;
        for (int i = 0; i < LOCK_TRIES && r->lock >= 0 && !held; i++) {
            usleep(LOCK_PAUSE_US); /* runs list looks at the lock for a moment */
            held = flock(r->lock, LOCK_EX | LOCK_NB) == 0;
        }
        if (!held) {
            err = cp_fail(CP_E_IO, "cannot lock the run folder %s: %s", r->dir.p,
                          errno == EWOULDBLOCK ? "another process is working on it"
                                               : strerror(errno));
        }
    }
    cp_str_fini(&path);
    return err;
}

static void set_run_id(struct cp_runner *r)
{
    const char *slash = strrchr(r->dir.p, '/');
    r->run_id = slash ? slash + 1 : r->dir.p;
}

/* A new folder; a second run in the same second gets -2 and so on. */
static cp_err make_folder(struct cp_runner *r)
{
    char utc[CP_UTC_SIZE], name[256];
    cp_utc_compact(utc);
    CP_TRY(cp_dir_make(r->runs_dir.p));
    for (int i = 1; i < 1000; i++) {
        snprintf(name, sizeof name, i == 1 ? "%.200s-%s" : "%.200s-%s-%d",
                 cp_runner_config(r)->run.name, utc, i);
        CP_TRY(cp_api_path(r->runs_dir.p, name, &r->dir));
        if (mkdir(r->dir.p, 0755) == 0) {
            set_run_id(r);
            return take_lock(r);
        }
        if (errno != EEXIST) {
            return cp_fail(CP_E_IO, "cannot make the run folder %s: %s", r->dir.p, strerror(errno));
        }
    }
    return cp_fail(CP_E_IO, "there are too many runs named %s", name);
}

/* Settings that may change when a run goes on: how it is kept and evaluated, how long to wait. (Not
 * fed.rounds: the learning rate depends on it, and so would the rounds that are done.) */
static bool may_change(const char *group, const char *line)
{
    static const char *const KEYS[] = {"fed deadline_s",  "net wait_s", "run keep",
                                       "run save_every",  "run events", "run dir",
                                       "eval max_samples"};
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        const char *key = strchr(KEYS[i], ' ') + 1;
        size_t g = (size_t)(key - KEYS[i]) - 1, n = strlen(key);
        line += strspn(line, " ");
        if (strlen(group) == g && strncmp(group, KEYS[i], g) == 0 && strncmp(line, key, n) == 0 &&
            line[n] == ':') {
            return true;
        }
    }
    return false;
}

/* The next line of a text, without its end; false after the last. */
static bool next_line(const char **at, char *line, size_t size)
{
    size_t n = strcspn(*at, "\n");
    if (**at == 0) {
        return false;
    }
    snprintf(line, size, "%.*s", (int)n, *at);
    *at += n + ((*at)[n] == '\n');
    return true;
}

/* A resumed run keeps its settings: both texts are resolved YAML, one value a line. */
static cp_err check_same(const char *before, const char *now)
{
    char group[64] = "", a[512], b[512];
    for (;;) {
        bool more_a = next_line(&before, a, sizeof a), more_b = next_line(&now, b, sizeof b);
        if (!more_a && !more_b) {
            return CP_OK;
        }
        if (more_a && a[0] != ' ') {
            snprintf(group, sizeof group, "%.*s", (int)strcspn(a, ":"), a);
        }
        if (!more_a || !more_b || (strcmp(a, b) != 0 && !may_change(group, a))) {
            return cp_fail(CP_E_CONFIG,
                           "a resumed run keeps its settings, but under '%s' the run has '%s' and "
                           "the configuration now '%s'; collapipe run --resume without further "
                           "settings goes on as it was",
                           group, more_a ? a + strspn(a, " ") : "nothing",
                           more_b ? b + strspn(b, " ") : "nothing");
        }
    }
}

static cp_err check_settings(const struct cp_runner *r, const struct cp_str *yaml)
{
    struct cp_str path = {0}, before = {0};
    cp_err err = cp_api_path(r->dir.p, "config.yaml", &path);
    if (!err) {
        err = cp_file_read(path.p, (size_t)1 << 24, &before);
    }
    if (!err) {
        err = check_same(cp_str_text(&before), cp_str_text(yaml));
    }
    if (!err) {
        err = cp_file_write(path.p, yaml->p, yaml->len);
    }
    cp_str_fini(&path);
    cp_str_fini(&before);
    return err;
}

/* A run is named by its folder, or by its name in the folder of runs. */
cp_err cp_runner_find_folder(struct cp_runner *r)
{
    const char *run = r->opt->resume;
    CP_TRY(cp_api_runs_dir(r->cfg, &r->runs_dir));
    CP_TRY(cp_api_path(r->runs_dir.p, run, &r->dir));
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (stat(r->dir.p, &st) == 0 && S_ISDIR(st.st_mode)) {
            while (r->dir.len > 1 && r->dir.p[r->dir.len - 1] == '/') {
                r->dir.p[--r->dir.len] = 0;
            }
            set_run_id(r);
            return take_lock(r);
        }
        cp_str_clear(&r->dir);
        cp_str_puts(&r->dir, run);
    }
    return cp_fail(CP_E_CONFIG, "there is no run folder %s, neither here nor in %s", run,
                   r->runs_dir.p);
}

static json_t *environment(const struct cp_runner *r)
{
    struct utsname u;
    char utc[CP_UTC_SIZE], *base = realpath(r->cfg->folder, NULL);
    uname(&u);
    cp_utc_text(utc);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s}", "version", CP_VERSION, "system",
                          u.sysname, "release", u.release, "machine", u.machine, "cpus",
                          (int)sysconf(_SC_NPROCESSORS_ONLN), "started_utc", utc, "base_folder",
                          base ? base : r->cfg->folder);
    free(base);
    return j;
}

cp_err cp_runner_write(const struct cp_runner *r, const char *name, const char *text, size_t n)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(r->dir.p, name, &path);
    if (!err) {
        err = cp_file_write(path.p, text, n);
    }
    cp_str_fini(&path);
    return err;
}

/* Which cluster owns which row of the training data (0-based), one line each. */
static cp_err write_shards(const struct cp_runner *r)
{
    const struct cp_shards *s = r->job.shards;
    struct cp_str text = {0};
    cp_str_puts(&text, "cluster\trow\n");
    for (int32_t c = 0; c < s->n_clusters; c++) {
        for (int64_t i = s->start[c]; i < s->start[c + 1]; i++) {
            cp_str_printf(&text, "%d\t%d\n", c, s->sample[i]);
        }
    }
    cp_err err = cp_str_check(&text);
    if (!err) {
        err = cp_runner_write(r, "shards.tsv", text.p, text.len);
    }
    cp_str_fini(&text);
    return err;
}

static cp_err write_head(struct cp_runner *r, const struct cp_str *yaml)
{
    CP_TRY(write_shards(r));
    CP_TRY(cp_runner_write(r, "config.yaml", yaml->p, yaml->len));
    CP_TRY(cp_runner_write(r, "overrides.txt", cp_str_text(&r->cfg->assignments),
                           r->cfg->assignments.len));
    return cp_api_write_json(r->dir.p, "env.json", environment(r));
}

static cp_err open_append(const struct cp_runner *r, const char *name, FILE **out)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(r->dir.p, name, &path);
    if (!err) {
        *out = fopen(path.p, "ae");
        err = *out ? CP_OK : cp_fail(CP_E_IO, "cannot write %s: %s", path.p, strerror(errno));
    }
    cp_str_fini(&path);
    return err;
}

/* The database is a convenience: training goes on without it. */
void cp_runner_open_store(struct cp_runner *r, const struct cp_str *yaml)
{
    struct cp_str path = {0};
    char utc[CP_UTC_SIZE];
    cp_utc_text(utc);
    cp_err err = cp_api_path(r->runs_dir.p, "runs.sqlite", &path);
    if (!err) {
        err = cp_store_open(path.p, &r->store);
    }
    if (!err) {
        struct cp_store_run run = {.id = r->run_id,
                                   .name = cp_runner_config(r)->run.name,
                                   .started_utc = utc,
                                   .config_yaml = cp_str_text(yaml),
                                   .policy = cp_runner_config(r)->plan.policy};
        err = cp_store_run_begin(r->store, &run);
    }
    r->recorded = !err;
    if (err) {
        cp_log(CP_LOG_WARN, "the run database is not used: %s", cp_err_text());
    }
    cp_str_fini(&path);
}

cp_err cp_runner_open_folder(struct cp_runner *r, struct cp_str *yaml)
{
    cp_err err = CP_OK;
    if (!r->resumed) {
        CP_TRY(cp_api_runs_dir(r->cfg, &r->runs_dir));
        err = make_folder(r);
    }
    if (!err) {
        err = cp_conf_yaml(r->cfg->conf, yaml);
    }
    if (!err) {
        err = r->resumed ? check_settings(r, yaml) : write_head(r, yaml);
    }
    if (!err) {
        err = open_append(r, "log.txt", &r->log);
    }
    if (!err) {
        err = open_append(r, "metrics.jsonl", &r->metrics);
    }
    if (!err) {
        err = cp_tfevents_open(r->dir.p, cp_utc_s(), &r->tb);
    }
    if (!err && cp_runner_config(r)->run.events > 0) {
        err = cp_trace_new((size_t)cp_runner_config(r)->run.events, &r->trace);
    }
    if (!err) {
        cp_log_file(r->log);
    }
    return err;
}
