/*
 * store: the run database, runs.sqlite beside the run folders.
 *
 * It knows strings and numbers, no training: a run has a head, a line of JSON per round and, if
 * wanted, events. It is a convenience: a database that is damaged or of another version is set
 * aside as NAME.damaged-<n> with a warning and a new one is made; a lock that another process holds
 * is waited for a fraction of a second and is then E_TIMEOUT, after which the caller goes on
 * without. Safe from any thread; every call is one transaction.
 */
#ifndef CP_STORE_STORE_H
#define CP_STORE_STORE_H

#include "base/err.h"
#include "base/event.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

struct cp_store;

/* E_IO if it cannot be opened or set aside. The folder must exist. */
CP_NODISCARD cp_err cp_store_open(const char *path, struct cp_store **out);
void cp_store_close(struct cp_store *s);

/* Strings may be NULL where nothing is known; id is not. */
struct cp_store_run {
    const char *id, *name, *started_utc, *config_yaml, *policy;
};

/* The head of a run, status "running". For a known id (a resumed run) what is given replaces what
 * was, but started_utc stays. */
CP_NODISCARD cp_err cp_store_run_begin(struct cp_store *s, const struct cp_store_run *run);

/* status: "done", "failed" ...; summary_json must be JSON or NULL. */
CP_NODISCARD cp_err cp_store_run_end(struct cp_store *s, const char *id, const char *ended_utc,
                                     const char *status, const char *params_sha256,
                                     const char *summary_json);

/* One JSON value for a round, replacing an earlier one. E_DATA if it is no JSON (NaN is none). */
CP_NODISCARD cp_err cp_store_round_put(struct cp_store *s, const char *id, int64_t round,
                                       const char *json);

/* Appends n events, all or none. */
CP_NODISCARD cp_err cp_store_event_put(struct cp_store *s, const char *id,
                                       const struct cp_event *events, size_t n);

/* A row of the list; borrowed until row() returns, NULL where nothing is known. */
struct cp_store_row {
    const char *id, *name, *started_utc, *ended_utc, *status, *policy, *params_sha256;
    const char *last_round_json, *summary_json;
    int64_t rounds;
};

/* Calls row for every run, newest first. row must not call the store. */
CP_NODISCARD cp_err cp_store_runs_list(struct cp_store *s,
                                       void (*row)(void *arg, const struct cp_store_row *row),
                                       void *arg);

/* The whole id of the run that run names: an id, or the beginning of exactly one. E_USAGE if it
 * names none or several. */
CP_NODISCARD cp_err cp_store_run_find(struct cp_store *s, const char *run, struct cp_str *id);

/* One JSON object, run as in cp_store_run_find: {"run_id", "name", "started_utc", "ended_utc",
 * "status", "policy", "params_sha256", "config_yaml", "summary", "rounds": [...], "events": n}. */
CP_NODISCARD cp_err cp_store_run_show(struct cp_store *s, const char *run, struct cp_str *out);

/* Forgets a run, its rounds and events. */
CP_NODISCARD cp_err cp_store_run_rm(struct cp_store *s, const char *run);

#endif
