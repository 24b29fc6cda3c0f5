/* store: runs and rounds come back as they went in; damage and locks never stop the caller. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "store/store.h"

#include <jansson.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[96];
static struct cp_store *store;
static struct cp_str logged;

static void keep_log(enum cp_log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    cp_str_printf(&logged, "%s\n", line);
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cp_store_XXXXXX");
    cp_log_sink(keep_log, NULL);
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/runs.sqlite", dir);
    return cp_store_open(path, &store) == CP_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    cp_store_close(store);
    store = NULL;
    cp_log_sink(NULL, NULL);
    cp_str_fini(&logged);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' does not contain '%s'", text, part);
    }
}

static void begin_run(const char *id, const char *started)
{
    struct cp_store_run run = {.id = id,
                               .name = "na\"me",
                               .started_utc = started,
                               .config_yaml = "seed: 1\n",
                               .policy = "dssda"};
    assert_int_equal(cp_store_run_begin(store, &run), CP_OK);
}

static json_t *show(const char *run)
{
    struct cp_str out = {0};
    assert_int_equal(cp_store_run_show(store, run, &out), CP_OK);
    json_t *j = json_loads(out.p, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    cp_str_fini(&out);
    return j;
}

static const char *text(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

static void test_a_run(void **state)
{
    (void)state;
    begin_run("run-1", "2026-01-01T00:00:00Z");
    json_t *j = show("run-1");
    assert_string_equal(text(j, "status"), "running");
    assert_true(json_is_null(json_object_get(j, "summary")));
    assert_int_equal(json_array_size(json_object_get(j, "rounds")), 0);
    json_decref(j);
    assert_int_equal(cp_store_round_put(store, "run-1", 2, "{\"train_loss\":2}"), CP_OK);
    assert_int_equal(cp_store_round_put(store, "run-1", 1, "{\"train_loss\":1}"), CP_OK);
    assert_int_equal(cp_store_round_put(store, "run-1", 10, "{\"train_loss\":null}"), CP_OK);
    assert_int_equal(cp_store_round_put(store, "run-1", 2, "{\"train_loss\":2.5}"), CP_OK);
    struct cp_event e[2] = {
        {.t0_ns = 1, .t1_ns = 5, .node = "c1.d1", .kind = "FWD", .bytes = 7, .energy_j = 0.5},
        {.t0_ns = -1, .t1_ns = INT64_MAX, .node = NULL, .kind = "wait", .round = -1}};
    assert_int_equal(cp_store_event_put(store, "run-1", e, 2), CP_OK);
    assert_int_equal(cp_store_event_put(store, "run-1", NULL, 0), CP_OK);
    assert_int_equal(
        cp_store_run_end(store, "run-1", "2026-01-01T01:00:00Z", "done", "abcd", "{\"rounds\":3}"),
        CP_OK);
    cp_store_close(store);
    assert_int_equal(cp_store_open(path, &store), CP_OK);
    j = show("run");
    assert_string_equal(text(j, "run_id"), "run-1");
    assert_string_equal(text(j, "name"), "na\"me");
    assert_string_equal(text(j, "started_utc"), "2026-01-01T00:00:00Z");
    assert_string_equal(text(j, "ended_utc"), "2026-01-01T01:00:00Z");
    assert_string_equal(text(j, "status"), "done");
    assert_string_equal(text(j, "policy"), "dssda");
    assert_string_equal(text(j, "params_sha256"), "abcd");
    assert_string_equal(text(j, "config_yaml"), "seed: 1\n");
    assert_int_equal(json_integer_value(json_object_get(j, "events")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "summary"), "rounds")),
                     3);
    const json_t *rounds = json_object_get(j, "rounds");
    assert_int_equal(json_array_size(rounds), 3);
    static const double LOSS[] = {1, 2.5, 0};
    for (size_t i = 0; i < 3; i++) {
        const json_t *loss = json_object_get(json_array_get(rounds, i), "train_loss");
        assert_true(i == 2 ? json_is_null(loss) : json_number_value(loss) == LOSS[i]);
    }
    json_decref(j);
    assert_string_equal(cp_str_text(&logged), "");
}

static void test_events_arrive_whole(void **state)
{
    (void)state;
    sqlite3 *db;
    sqlite3_stmt *stmt;
    struct cp_event e = {3, 9, "edge", "BWD", 1, 2, 3, 4, 5, 0.25};
    begin_run("r", "2026");
    assert_int_equal(cp_store_event_put(store, "r", &e, 1), CP_OK);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT t0_ns, t1_ns, round, step, stage, micro, bytes, "
                                        "node, kind, energy_j FROM events",
                                        -1, &stmt, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    static const int NEED[] = {3, 9, 1, 2, 3, 4, 5};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(sqlite3_column_int(stmt, i), NEED[i]);
    }
    assert_string_equal((const char *)sqlite3_column_text(stmt, 7), "edge");
    assert_string_equal((const char *)sqlite3_column_text(stmt, 8), "BWD");
    assert_true(sqlite3_column_double(stmt, 9) == 0.25);
    assert_int_equal(sqlite3_step(stmt), SQLITE_DONE);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

struct seen {
    char ids[200];
    int64_t rounds;
    bool has_last, has_summary;
};

static void see(void *arg, const struct cp_store_row *row)
{
    struct seen *s = arg;
    strcat(s->ids, row->id);
    strcat(s->ids, " ");
    s->rounds += row->rounds;
    s->has_last |= row->last_round_json && strcmp(row->last_round_json, "{\"n\":11}") == 0;
    s->has_summary |= row->summary_json != NULL;
}

static void test_list_newest_first(void **state)
{
    (void)state;
    begin_run("b", "2026-01-02");
    begin_run("c", "2026-01-03");
    begin_run("a", "2026-01-01");
    assert_int_equal(cp_store_round_put(store, "b", 9, "{\"n\":9}"), CP_OK);
    assert_int_equal(cp_store_round_put(store, "b", 11, "{\"n\":11}"), CP_OK);
    assert_int_equal(cp_store_round_put(store, "lost", 1, "{}"), CP_OK); /* without a head */
    struct seen s = {0};
    assert_int_equal(cp_store_runs_list(store, see, &s), CP_OK);
    assert_string_equal(s.ids, "c b a lost ");
    assert_int_equal(s.rounds, 3);
    assert_true(s.has_last && !s.has_summary);
}

static void test_find(void **state)
{
    (void)state;
    struct cp_str id = {0}, out = {0};
    begin_run("demo", "1");
    begin_run("demo-2", "2");
    begin_run("other%", "3");
    assert_int_equal(cp_store_run_find(store, "demo", &id), CP_OK); /* exact wins */
    assert_string_equal(id.p, "demo");
    assert_int_equal(cp_store_run_find(store, "demo-", &id), CP_OK);
    assert_string_equal(id.p, "demo-2");
    assert_int_equal(cp_store_run_find(store, "dem", &id), CP_E_USAGE);
    assert_contains(cp_err_text(), "'dem' could be the run demo or demo-2");
    assert_string_equal(id.p, "demo-2"); /* untouched */
    static const char *const NONE[] = {"x", "", "%", "o_her", "demo-22", "DEMO"};
    for (size_t i = 0; i < sizeof NONE / sizeof *NONE; i++) {
        assert_int_equal(cp_store_run_find(store, NONE[i], &id), CP_E_USAGE);
        assert_contains(cp_err_text(), "has no run");
        assert_int_equal(cp_store_run_show(store, NONE[i], &out), CP_E_USAGE);
        assert_int_equal(cp_store_run_rm(store, NONE[i]), CP_E_USAGE);
    }
    cp_str_fini(&id);
    cp_str_fini(&out);
}

static void test_rm(void **state)
{
    (void)state;
    struct cp_event e = {.node = "n", .kind = "k"};
    for (int i = 0; i < 2; i++) {
        begin_run(i ? "two" : "one", "1");
        assert_int_equal(cp_store_round_put(store, i ? "two" : "one", 1, "{}"), CP_OK);
        assert_int_equal(cp_store_event_put(store, i ? "two" : "one", &e, 1), CP_OK);
    }
    assert_int_equal(cp_store_run_rm(store, "on"), CP_OK);
    json_t *j = show("two");
    assert_int_equal(json_array_size(json_object_get(j, "rounds")), 1);
    assert_int_equal(json_integer_value(json_object_get(j, "events")), 1);
    json_decref(j);
    begin_run("one", "2"); /* nothing of the old one comes back */
    j = show("one");
    assert_int_equal(json_array_size(json_object_get(j, "rounds")), 0);
    assert_int_equal(json_integer_value(json_object_get(j, "events")), 0);
    json_decref(j);
}

static void test_resumed_run(void **state)
{
    (void)state;
    begin_run("r", "first");
    assert_int_equal(cp_store_round_put(store, "r", 1, "{}"), CP_OK);
    assert_int_equal(cp_store_run_end(store, "r", "end", "failed", NULL, NULL), CP_OK);
    begin_run("r", "second");
    json_t *j = show("r");
    assert_string_equal(text(j, "started_utc"), "first");
    assert_string_equal(text(j, "status"), "running");
    assert_true(json_is_null(json_object_get(j, "ended_utc")));
    assert_int_equal(json_array_size(json_object_get(j, "rounds")), 1);
    json_decref(j);
}

static void test_bad_values(void **state)
{
    (void)state;
    begin_run("r", "1");
    static const char *const BAD[] = {"", "{", "{\"a\":NaN}", "{\"a\":Infinity}", "{} x", NULL};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        assert_int_equal(cp_store_round_put(store, "r", 1, BAD[i]), CP_E_DATA);
    }
    assert_int_equal(cp_store_round_put(store, "new", 1, "{"), CP_E_DATA);
    assert_int_equal(cp_store_run_end(store, "r", "e", "done", NULL, "{"), CP_E_DATA);
    json_t *j = show("r");
    assert_string_equal(text(j, "status"), "running");
    assert_int_equal(json_array_size(json_object_get(j, "rounds")), 0);
    json_decref(j);
    struct cp_str id = {0};
    assert_int_equal(cp_store_run_find(store, "new", &id), CP_E_USAGE); /* rolled back */
    struct cp_store_run run = {.id = "u", .name = "\xff"};
    assert_int_equal(cp_store_run_begin(store, &run), CP_OK);
    assert_int_equal(cp_store_run_show(store, "u", &id), CP_E_DATA);
    run.id = NULL;
    assert_int_equal(cp_store_run_begin(store, &run), CP_E_DATA);
    cp_str_fini(&id);
}

/* ---- damage ---- */

static void expect_set_aside(int number, const char *why)
{
    char aside[128];
    struct seen s = {0};
    struct stat st;
    cp_str_clear(&logged);
    assert_int_equal(cp_store_open(path, &store), CP_OK);
    assert_contains(cp_str_text(&logged), why);
    snprintf(aside, sizeof aside, "%s.damaged-%d", path, number);
    assert_int_equal(stat(aside, &st), 0);
    assert_contains(logged.p, aside);
    assert_int_equal(cp_store_runs_list(store, see, &s), CP_OK);
    assert_string_equal(s.ids, "");
    begin_run("fresh", "1");
}

static void test_damaged(void **state)
{
    (void)state;
    struct cp_str bytes = {0};
    begin_run("r", "1");
    for (int i = 0; i < 400; i++) {
        char json[600];
        snprintf(json, sizeof json, "{\"x\":\"%0500d\"}", i);
        assert_int_equal(cp_store_round_put(store, "r", i, json), CP_OK);
    }
    cp_store_close(store);
    store = NULL;
    assert_int_equal(cp_file_read(path, 1 << 24, &bytes), CP_OK);
    assert_true(bytes.len > 100000);
    /* no database at all */
    assert_int_equal(cp_file_write(path, "this is not a database, it only has its name", 44),
                     CP_OK);
    expect_set_aside(1, "it is damaged");
    cp_store_close(store);
    store = NULL;
    /* cut off in the middle */
    assert_int_equal(cp_file_write(path, bytes.p, bytes.len / 2), CP_OK);
    expect_set_aside(2, "it is damaged");
    cp_store_close(store);
    store = NULL;
    /* a page of garbage */
    memset(bytes.p + 4096 * 5, 0x5a, 4096);
    assert_int_equal(cp_file_write(path, bytes.p, bytes.len), CP_OK);
    expect_set_aside(3, "it is damaged");
    cp_str_fini(&bytes);
}

static void set_version(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void test_other_version(void **state)
{
    (void)state;
    cp_store_close(store);
    store = NULL;
    set_version("PRAGMA user_version = 99");
    expect_set_aside(1, "it has another version");
    cp_store_close(store);
    store = NULL;
    unlink(path);
    set_version("CREATE TABLE somebody_elses (x)"); /* version 0, but not empty */
    expect_set_aside(2, "it has another version");
    cp_store_close(store);
    store = NULL;
    assert_int_equal(cp_file_write(path, "", 0), CP_OK); /* an empty file is simply new */
    cp_str_clear(&logged);
    assert_int_equal(cp_store_open(path, &store), CP_OK);
    assert_string_equal(cp_str_text(&logged), "");
}

/* The log of a run that was killed is gone: what was checkpointed is there, the rest is lost. */
static void test_deleted_log(void **state)
{
    (void)state;
    struct cp_str bytes = {0};
    char copy[128];
    begin_run("r", "1");
    assert_int_equal(cp_file_read(path, 1 << 24, &bytes), CP_OK); /* as a kill would leave it */
    snprintf(copy, sizeof copy, "%s/copy.sqlite", dir);
    assert_int_equal(cp_file_write(copy, bytes.p, bytes.len), CP_OK);
    struct cp_store *other;
    assert_int_equal(cp_store_open(copy, &other), CP_OK);
    struct cp_store_run run = {.id = "x"};
    assert_int_equal(cp_store_run_begin(other, &run), CP_OK);
    cp_store_close(other);
    cp_str_fini(&bytes);
}

static void test_locked(void **state)
{
    (void)state;
    sqlite3 *db;
    begin_run("r", "1");
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    /* a reader in the middle of its work does not hinder us */
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT * FROM runs", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(cp_store_round_put(store, "r", 1, "{}"), CP_OK);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    /* a writer does, for a fraction of a second, and its lock is not taken for damage */
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(cp_store_round_put(store, "r", 2, "{}"), CP_E_TIMEOUT);
    struct cp_store *second = NULL;
    cp_err err = cp_store_open(path, &second); /* needs no lock once the tables are there */
    assert_true(err == CP_OK || err == CP_E_TIMEOUT);
    cp_store_close(second);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(cp_store_round_put(store, "r", 2, "{}"), CP_OK);
    sqlite3_close(db);
    /* a file that another process is just making is locked, not damaged */
    char fresh[128], aside[160];
    snprintf(fresh, sizeof fresh, "%s/fresh.sqlite", dir);
    assert_int_equal(sqlite3_open(fresh, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    second = NULL;
    assert_int_equal(cp_store_open(fresh, &second), CP_E_TIMEOUT);
    assert_null(second);
    sqlite3_close(db);
    assert_int_equal(cp_store_open(fresh, &second), CP_OK);
    cp_store_close(second);
    snprintf(aside, sizeof aside, "%s.damaged-1", path);
    assert_int_equal(access(aside, F_OK), -1);
    snprintf(aside, sizeof aside, "%s.damaged-1", fresh);
    assert_int_equal(access(aside, F_OK), -1);
    assert_string_equal(cp_str_text(&logged), "");
}

static void test_cannot_open(void **state)
{
    (void)state;
    struct cp_store *s = NULL;
    char none[128];
    snprintf(none, sizeof none, "%s/no/runs.sqlite", dir);
    assert_int_equal(cp_store_open(none, &s), CP_E_IO);
    assert_contains(cp_err_text(), none);
    assert_int_equal(cp_store_open(dir, &s), CP_E_IO);
    assert_null(s);
    for (uint64_t n = 1; n <= 2; n++) {
        cp_mem_fail_at(n);
        assert_int_equal(cp_store_open(path, &s), CP_E_NOMEM);
        cp_mem_fail_at(0);
        assert_null(s);
    }
}

static void *put_rounds(void *arg)
{
    const char *id = arg;
    for (int i = 0; i < 30; i++) {
        if (cp_store_round_put(store, id, i, "{}") != CP_OK) {
            return arg;
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static char ids[3][4] = {"t0", "t1", "t2"};
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, put_rounds, ids[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        void *failed;
        assert_int_equal(pthread_join(t[i], &failed), 0);
        assert_null(failed);
    }
    struct seen s = {0};
    assert_int_equal(cp_store_runs_list(store, see, &s), CP_OK);
    assert_int_equal(s.rounds, 90);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_a_run),
        WITH(test_events_arrive_whole),
        WITH(test_list_newest_first),
        WITH(test_find),
        WITH(test_rm),
        WITH(test_resumed_run),
        WITH(test_bad_values),
        WITH(test_damaged),
        WITH(test_other_version),
        WITH(test_deleted_log),
        WITH(test_locked),
        WITH(test_cannot_open),
        WITH(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
