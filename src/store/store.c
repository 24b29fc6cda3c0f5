#include "store/store.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/schema.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUSY_MS = 300,        /* longest wait for a lock */
    CHECK_STEPS = 1000,   /* database instructions between two looks at the clock */
    DAMAGED_MAX = 1000000 /* numbers that are tried for a damaged file's new name */
};
static const double CHECK_S = 0.3; /* longest check at open; the rest is taken on trust */

struct cp_store {
    char *path;
    sqlite3 *db;
    pthread_mutex_t lock;
};

static cp_err fail_sqlite(const struct cp_store *s, const char *what)
{
    int rc = sqlite3_errcode(s->db);
    cp_err code = rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? CP_E_TIMEOUT
                  : rc == SQLITE_FULL                      ? CP_E_NOSPACE
                  : rc == SQLITE_NOMEM                     ? CP_E_NOMEM
                  : rc == SQLITE_CONSTRAINT                ? CP_E_DATA
                                                           : CP_E_IO;
    return cp_fail(code, "%s: cannot %s: %s", s->path, what, sqlite3_errmsg(s->db));
}

static cp_err exec(const struct cp_store *s, const char *what, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? CP_OK : fail_sqlite(s, what);
}

/* Prepares sql and binds its parameters: one letter each, t text (NULL allowed), i int64_t. */
static cp_err prepare(const struct cp_store *s, const char *what, sqlite3_stmt **out,
                      const char *sql, const char *types, ...)
{
    if (sqlite3_prepare_v2(s->db, sql, -1, out, NULL) != SQLITE_OK) {
        return fail_sqlite(s, what);
    }
    va_list ap;
    va_start(ap, types);
    int rc = SQLITE_OK;
    for (int i = 0; types[i] && rc == SQLITE_OK; i++) {
        rc = types[i] == 't'
                 ? sqlite3_bind_text(*out, i + 1, va_arg(ap, const char *), -1, SQLITE_TRANSIENT)
                 : sqlite3_bind_int64(*out, i + 1, va_arg(ap, int64_t));
    }
    va_end(ap);
    if (rc != SQLITE_OK) {
        cp_err err = fail_sqlite(s, what);
        sqlite3_finalize(*out);
        *out = NULL;
        return err;
    }
    return CP_OK;
}

/* Runs a statement that gives no rows, and finalizes it. */
static cp_err finish(const struct cp_store *s, const char *what, sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    cp_err err = rc == SQLITE_DONE || rc == SQLITE_ROW ? CP_OK : fail_sqlite(s, what);
    sqlite3_finalize(stmt);
    return err;
}

static const char *text_of(sqlite3_stmt *stmt, int column)
{
    return (const char *)sqlite3_column_text(stmt, column);
}

/* Every public call is begin ... end; end rolls back if err. */
static cp_err begin(struct cp_store *s, const char *what)
{
    pthread_mutex_lock(&s->lock);
    cp_err err = exec(s, what, "BEGIN IMMEDIATE");
    if (err) {
        pthread_mutex_unlock(&s->lock);
    }
    return err;
}

static cp_err end(struct cp_store *s, const char *what, cp_err err)
{
    if (!err) {
        err = exec(s, what, "COMMIT");
    }
    if (err) {
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL); /* nothing to do if this fails too */
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

/* ---- open and close ---- */

static int past_deadline(void *deadline_ns)
{
    return cp_now_ns() > *(const int64_t *)deadline_ns;
}

/* What sqlite itself says of the file, within CHECK_S. */
static bool is_sound(const struct cp_store *s)
{
    int64_t deadline_ns = cp_deadline_ns(CHECK_S);
    sqlite3_stmt *stmt = NULL;
    bool sound = true;
    sqlite3_progress_handler(s->db, CHECK_STEPS, past_deadline, &deadline_ns);
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
    }
    if (rc == SQLITE_ROW) {
        sound = strcmp(text_of(stmt, 0) ? text_of(stmt, 0) : "", "ok") == 0;
    } else {
        sound = rc != SQLITE_CORRUPT && rc != SQLITE_NOTADB;
    }
    sqlite3_finalize(stmt);
    sqlite3_progress_handler(s->db, 0, NULL, NULL);
    return sound;
}

static int read_number(const struct cp_store *s, const char *sql, int64_t *out)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
    }
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(stmt, 0);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(stmt);
    return rc;
}

/* Makes the tables in a file that has none; *why is set if the file has to be set aside. */
static cp_err check_schema(struct cp_store *s, const char **why)
{
    char sql[64];
    int64_t version = 0, tables = 0;
    int rc = read_number(s, "PRAGMA user_version", &version);
    if (rc == SQLITE_OK) {
        rc = read_number(s, "SELECT count(*) FROM sqlite_schema", &tables);
    }
    if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT) {
        *why = "it is damaged";
        return CP_OK;
    }
    if (rc != SQLITE_OK) {
        return fail_sqlite(s, "read");
    }
    if (version != CP_STORE_VERSION && (version != 0 || tables != 0)) {
        *why = "it has another version";
        return CP_OK;
    }
    if (version == CP_STORE_VERSION) {
        *why = is_sound(s) ? NULL : "it is damaged";
        return CP_OK;
    }
    CP_TRY(exec(s, "lock", "BEGIN IMMEDIATE"));
    cp_err err = CP_OK;
    if (read_number(s, "PRAGMA user_version", &version) == SQLITE_OK && version == 0) {
        snprintf(sql, sizeof sql, "PRAGMA user_version = %d", CP_STORE_VERSION);
        err = exec(s, "make the tables", CP_STORE_SCHEMA);
        if (!err) {
            err = exec(s, "set the version", sql);
        }
    } /* else: another process made them in between */
    if (!err) {
        err = exec(s, "make the tables", "COMMIT");
    }
    return err;
}

static cp_err open_db(struct cp_store *s, const char **why)
{
    *why = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    if (sqlite3_open_v2(s->path, &s->db, flags, NULL) != SQLITE_OK) {
        return cp_fail(CP_E_IO, "cannot open %s: %s", s->path,
                       s->db ? sqlite3_errmsg(s->db) : "out of memory");
    }
    sqlite3_busy_timeout(s->db, BUSY_MS);
    CP_TRY(check_schema(s, why));
    if (*why) {
        return CP_OK;
    }
    /* WAL: readers do not block us. NORMAL: a power cut may lose the last rounds, never the file.
     */
    return exec(s, "set up", "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
}

/* Renames the database and its log to the first free NAME.damaged-<n>. */
static cp_err set_aside(const struct cp_store *s, const char *why)
{
    struct cp_str to = {0}, side = {0}, side_to = {0};
    cp_err err = CP_OK;
    for (int n = 1; n <= DAMAGED_MAX; n++) {
        cp_str_clear(&to);
        cp_str_printf(&to, "%s.damaged-%d", s->path, n);
        err = cp_str_check(&to);
        if (err || access(to.p, F_OK) != 0) {
            break;
        }
    }
    if (!err && rename(s->path, to.p) != 0) {
        err = cp_fail(CP_E_IO, "cannot set %s aside (%s): %s", s->path, why, strerror(errno));
    }
    for (int i = 0; !err && i < 2; i++) { /* they belong to the old file, and would spoil the new */
        const char *ending = i == 0 ? "-wal" : "-shm";
        cp_str_clear(&side);
        cp_str_clear(&side_to);
        cp_str_printf(&side, "%s%s", s->path, ending);
        cp_str_printf(&side_to, "%s%s", to.p, ending);
        err = side.failed ? cp_str_check(&side) : cp_str_check(&side_to);
        if (!err && rename(side.p, side_to.p) != 0 && errno != ENOENT) {
            err = cp_fail(CP_E_IO, "cannot set %s aside: %s", side.p, strerror(errno));
        }
    }
    if (!err) {
        cp_log(CP_LOG_WARN, "run database %s: %s; kept as %s, a new one is made", s->path, why,
               to.p);
    }
    cp_str_fini(&to);
    cp_str_fini(&side);
    cp_str_fini(&side_to);
    return err;
}

cp_err cp_store_open(const char *path, struct cp_store **out)
{
    struct cp_store *s = NULL;
    const char *why = NULL;
    cp_err err;
    CP_TRY(cp_mem_new(NULL, sizeof *s, &s));
    pthread_mutex_init(&s->lock, NULL);
    CP_TRY_GOTO(err, cp_mem_new(NULL, strlen(path) + 1, &s->path), fail);
    memcpy(s->path, path, strlen(path) + 1);
    CP_TRY_GOTO(err, open_db(s, &why), fail);
    if (why) {
        sqlite3_close(s->db);
        s->db = NULL;
        CP_TRY_GOTO(err, set_aside(s, why), fail);
        CP_TRY_GOTO(err, open_db(s, &why), fail);
        if (why) {
            err = cp_fail(CP_E_IO, "cannot make a new run database %s: %s", path, why);
            goto fail;
        }
    }
    *out = s;
    return CP_OK;
fail:
    cp_store_close(s);
    return err;
}

void cp_store_close(struct cp_store *s)
{
    if (s) {
        sqlite3_close(s->db);
        pthread_mutex_destroy(&s->lock);
        cp_mem_free(s->path);
        cp_mem_free(s);
    }
}

/* ---- writing ---- */

/* Key of the run; a run that is not known (its head was in a database set aside) gets a bare row.
 */
static cp_err key_of(const struct cp_store *s, const char *id, int64_t *key)
{
    static const char WHAT[] = "record a run";
    sqlite3_stmt *stmt;
    CP_TRY(prepare(s, WHAT, &stmt,
                   "INSERT INTO runs (id) VALUES (?1) ON CONFLICT DO UPDATE SET id = id "
                   "RETURNING key",
                   "t", id));
    cp_err err = CP_OK;
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        *key = sqlite3_column_int64(stmt, 0);
    } else {
        err = fail_sqlite(s, WHAT);
    }
    sqlite3_finalize(stmt);
    return err;
}

cp_err cp_store_run_begin(struct cp_store *s, const struct cp_store_run *run)
{
    static const char WHAT[] = "record the start of a run";
    sqlite3_stmt *stmt;
    CP_TRY(begin(s, WHAT));
    cp_err err =
        prepare(s, WHAT, &stmt,
                "INSERT INTO runs (id, name, started_utc, config_yaml, policy, status)"
                " VALUES (?1, ?2, ?3, ?4, ?5, 'running')"
                " ON CONFLICT DO UPDATE SET name = ?2, started_utc = ifnull(started_utc, ?3),"
                " config_yaml = ?4, policy = ?5, status = 'running', ended_utc = NULL",
                "ttttt", run->id, run->name, run->started_utc, run->config_yaml, run->policy);
    if (!err) {
        err = finish(s, WHAT, stmt);
    }
    return end(s, WHAT, err);
}

cp_err cp_store_run_end(struct cp_store *s, const char *id, const char *ended_utc,
                        const char *status, const char *params_sha256, const char *summary_json)
{
    static const char WHAT[] = "record the end of a run";
    sqlite3_stmt *stmt;
    int64_t key = 0;
    CP_TRY(begin(s, WHAT));
    cp_err err = key_of(s, id, &key);
    if (!err) {
        err = prepare(s, WHAT, &stmt,
                      "UPDATE runs SET ended_utc = ?1, status = ?2, params_sha256 = ?3,"
                      " summary_json = ?4 WHERE key = ?5",
                      "tttti", ended_utc, status, params_sha256, summary_json, key);
    }
    if (!err) {
        err = finish(s, WHAT, stmt);
    }
    return end(s, WHAT, err);
}

cp_err cp_store_round_put(struct cp_store *s, const char *id, int64_t round, const char *json)
{
    static const char WHAT[] = "record a round";
    sqlite3_stmt *stmt;
    int64_t key = 0;
    CP_TRY(begin(s, WHAT));
    cp_err err = key_of(s, id, &key);
    if (!err) {
        err = prepare(s, WHAT, &stmt, "INSERT OR REPLACE INTO rounds VALUES (?1, ?2, ?3)", "iit",
                      key, round, json);
    }
    if (!err) {
        err = finish(s, WHAT, stmt);
    }
    return end(s, WHAT, err);
}

static cp_err put_event(const struct cp_store *s, const char *what, sqlite3_stmt *stmt,
                        const struct cp_event *e)
{
    const int64_t numbers[] = {e->round, e->step, e->stage, e->micro, e->bytes};
    sqlite3_bind_int64(stmt, 2, e->t0_ns);
    sqlite3_bind_int64(stmt, 3, e->t1_ns);
    sqlite3_bind_text(stmt, 4, e->node, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 5, e->kind, -1, SQLITE_STATIC);
    for (int i = 0; i < 5; i++) {
        sqlite3_bind_int64(stmt, 6 + i, numbers[i]);
    }
    sqlite3_bind_double(stmt, 11, e->energy_j);
    return sqlite3_step(stmt) == SQLITE_DONE ? CP_OK : fail_sqlite(s, what);
}

cp_err cp_store_event_put(struct cp_store *s, const char *id, const struct cp_event *events,
                          size_t n)
{
    static const char WHAT[] = "record events";
    sqlite3_stmt *stmt = NULL;
    int64_t key = 0;
    CP_TRY(begin(s, WHAT));
    cp_err err = key_of(s, id, &key);
    if (!err) {
        err = prepare(s, WHAT, &stmt,
                      "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                      "i", key);
    }
    for (size_t i = 0; !err && i < n; i++) {
        err = put_event(s, WHAT, stmt, &events[i]);
        sqlite3_reset(stmt);
    }
    sqlite3_finalize(stmt);
    return end(s, WHAT, err);
}

/* ---- reading ---- */

cp_err cp_store_runs_list(struct cp_store *s,
                          void (*row)(void *arg, const struct cp_store_row *row), void *arg)
{
    static const char WHAT[] = "list runs";
    sqlite3_stmt *stmt;
    int rc = SQLITE_DONE;
    pthread_mutex_lock(&s->lock);
    cp_err err = prepare(
        s, WHAT, &stmt,
        "SELECT id, name, started_utc, ended_utc, status, policy, params_sha256, summary_json,"
        " (SELECT json FROM rounds WHERE run = key ORDER BY round DESC LIMIT 1),"
        " (SELECT count(*) FROM rounds WHERE run = key)"
        " FROM runs ORDER BY started_utc DESC, key DESC",
        "");
    while (!err && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct cp_store_row r = {.id = text_of(stmt, 0),
                                 .name = text_of(stmt, 1),
                                 .started_utc = text_of(stmt, 2),
                                 .ended_utc = text_of(stmt, 3),
                                 .status = text_of(stmt, 4),
                                 .policy = text_of(stmt, 5),
                                 .params_sha256 = text_of(stmt, 6),
                                 .summary_json = text_of(stmt, 7),
                                 .last_round_json = text_of(stmt, 8),
                                 .rounds = sqlite3_column_int64(stmt, 9)};
        row(arg, &r);
    }
    if (!err) {
        err = rc == SQLITE_DONE ? CP_OK : fail_sqlite(s, WHAT);
        sqlite3_finalize(stmt);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

/* The lock is held. */
static cp_err find_run(const struct cp_store *s, const char *run, struct cp_str *id)
{
    static const char WHAT[] = "look up a run";
    sqlite3_stmt *stmt;
    cp_str_clear(id);
    /* the exact id comes first, being the shortest with this beginning */
    CP_TRY(prepare(s, WHAT, &stmt,
                   "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1"
                   " ORDER BY length(id), id LIMIT 2",
                   "t", run));
    cp_err err = CP_OK;
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && run[0]) {
        cp_str_puts(id, text_of(stmt, 0));
        err = cp_str_check(id);
        rc = strcmp(id->p ? id->p : "", run) == 0 ? SQLITE_DONE : sqlite3_step(stmt);
        if (!err && rc == SQLITE_ROW) {
            err = cp_fail(CP_E_USAGE, "'%.80s' could be the run %s or %s; write more of it", run,
                          id->p, text_of(stmt, 0));
        }
    } else if (rc == SQLITE_DONE || rc == SQLITE_ROW) {
        err = cp_fail(CP_E_USAGE, "%s has no run '%.80s'; see collapipe runs list", s->path, run);
    }
    if (!err && rc != SQLITE_DONE) {
        err = fail_sqlite(s, WHAT);
    }
    sqlite3_finalize(stmt);
    if (err) {
        cp_str_clear(id);
    }
    return err;
}

cp_err cp_store_run_find(struct cp_store *s, const char *run, struct cp_str *id)
{
    struct cp_str found = {0};
    pthread_mutex_lock(&s->lock);
    cp_err err = find_run(s, run, &found);
    pthread_mutex_unlock(&s->lock);
    if (!err) {
        cp_str_clear(id);
        cp_str_puts(id, found.p);
        err = cp_str_check(id);
    }
    cp_str_fini(&found);
    return err;
}

/* A JSON text of the database; null if there is none. */
static json_t *parsed(const char *text)
{
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    return value ? value : json_null();
}

static cp_err read_rounds(const struct cp_store *s, const char *id, json_t *out)
{
    static const char WHAT[] = "read the rounds of a run";
    sqlite3_stmt *stmt;
    int rc;
    CP_TRY(prepare(s, WHAT, &stmt,
                   "SELECT json FROM rounds JOIN runs ON run = key WHERE id = ?1 ORDER BY round",
                   "t", id));
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (json_array_append_new(out, parsed(text_of(stmt, 0))) != 0) {
            rc = SQLITE_NOMEM;
            break;
        }
    }
    cp_err err = rc == SQLITE_DONE    ? CP_OK
                 : rc == SQLITE_NOMEM ? cp_fail(CP_E_NOMEM, "%s: no memory to %s", s->path, WHAT)
                                      : fail_sqlite(s, WHAT);
    sqlite3_finalize(stmt);
    return err;
}

static cp_err read_head(const struct cp_store *s, const char *id, json_t **out)
{
    static const char WHAT[] = "read a run";
    sqlite3_stmt *stmt;
    CP_TRY(prepare(s, WHAT, &stmt,
                   "SELECT id, name, started_utc, ended_utc, status, policy, params_sha256,"
                   " config_yaml, summary_json, (SELECT count(*) FROM events WHERE run = key)"
                   " FROM runs WHERE id = ?1",
                   "t", id));
    cp_err err = CP_OK;
    if (sqlite3_step(stmt) != SQLITE_ROW) {
        err = fail_sqlite(s, WHAT);
    } else {
        *out = json_pack(
            "{s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:o, s:I}", "run_id", text_of(stmt, 0),
            "name", text_of(stmt, 1), "started_utc", text_of(stmt, 2), "ended_utc",
            text_of(stmt, 3), "status", text_of(stmt, 4), "policy", text_of(stmt, 5),
            "params_sha256", text_of(stmt, 6), "config_yaml", text_of(stmt, 7), "summary",
            parsed(text_of(stmt, 8)), "events", (json_int_t)sqlite3_column_int64(stmt, 9));
        if (!*out) {
            err = cp_fail(CP_E_DATA, "%s: a text of run %s is not UTF-8", s->path, id);
        }
    }
    sqlite3_finalize(stmt);
    return err;
}

cp_err cp_store_run_show(struct cp_store *s, const char *run, struct cp_str *out)
{
    struct cp_str id = {0};
    json_t *head = NULL, *rounds = json_array();
    pthread_mutex_lock(&s->lock);
    cp_err err = find_run(s, run, &id);
    if (!err) {
        err = read_head(s, id.p, &head);
    }
    if (!err) {
        err = read_rounds(s, id.p, rounds);
    }
    pthread_mutex_unlock(&s->lock);
    char *text = NULL;
    if (!err && json_object_set(head, "rounds", rounds) == 0) {
        text = json_dumps(head, JSON_COMPACT);
    }
    if (!err && !text) {
        err = cp_fail(CP_E_NOMEM, "%s: no memory to show run %s", s->path, id.p);
    }
    if (!err) {
        cp_str_clear(out);
        cp_str_puts(out, text);
        err = cp_str_check(out);
    }
    free(text);
    json_decref(head);
    json_decref(rounds);
    cp_str_fini(&id);
    return err;
}

cp_err cp_store_run_rm(struct cp_store *s, const char *run)
{
    static const char WHAT[] = "remove a run";
    static const char *const SQL[] = {
        "DELETE FROM events WHERE run = (SELECT key FROM runs WHERE id = ?1)",
        "DELETE FROM rounds WHERE run = (SELECT key FROM runs WHERE id = ?1)",
        "DELETE FROM runs WHERE id = ?1"};
    struct cp_str id = {0};
    CP_TRY(begin(s, WHAT));
    cp_err err = find_run(s, run, &id);
    for (int i = 0; !err && i < 3; i++) {
        sqlite3_stmt *stmt;
        err = prepare(s, WHAT, &stmt, SQL[i], "t", id.p);
        if (!err) {
            err = finish(s, WHAT, stmt);
        }
    }
    cp_str_fini(&id);
    return end(s, WHAT, err);
}
