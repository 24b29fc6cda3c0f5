/* schema: the tables of runs.sqlite. A change of any of them raises CP_STORE_VERSION. */
#ifndef CP_STORE_SCHEMA_H
#define CP_STORE_SCHEMA_H

enum { CP_STORE_VERSION = 1 }; /* kept in user_version */

#define CP_STORE_SCHEMA                                                                            \
    "CREATE TABLE runs ("                                                                          \
    "  key INTEGER PRIMARY KEY,"                                                                   \
    "  id TEXT NOT NULL UNIQUE,"                                                                   \
    "  name TEXT, started_utc TEXT, ended_utc TEXT,"                                               \
    "  status TEXT, policy TEXT, params_sha256 TEXT, config_yaml TEXT,"                            \
    "  summary_json TEXT CHECK (summary_json IS NULL OR json_valid(summary_json))"                 \
    ") STRICT;"                                                                                    \
    "CREATE TABLE rounds ("                                                                        \
    "  run INTEGER NOT NULL, round INTEGER NOT NULL,"                                              \
    "  json TEXT NOT NULL CHECK (json_valid(json)),"                                               \
    "  PRIMARY KEY (run, round)"                                                                   \
    ") STRICT, WITHOUT ROWID;"                                                                     \
    "CREATE TABLE events ("                                                                        \
    "  run INTEGER NOT NULL, t0_ns INTEGER NOT NULL, t1_ns INTEGER NOT NULL,"                      \
    "  node TEXT, kind TEXT, round INTEGER, step INTEGER, stage INTEGER, micro INTEGER,"           \
    "  bytes INTEGER, energy_j REAL"                                                               \
    ") STRICT;"                                                                                    \
    "CREATE INDEX events_run ON events (run);"

#endif
