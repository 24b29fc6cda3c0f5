/* internal: what the files of the api floor share; nothing here is public. */
#ifndef CP_API_INTERNAL_H
#define CP_API_INTERNAL_H

#include "node/config.h"
#include "plan/policy.h"

#include <collapipe.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct collapipe_config {
    struct cp_conf *conf;
    char *folder;              /* where relative paths start */
    struct cp_str assignments; /* one a line, as they were given */
};

/* An error of the library as the status of the public functions. */
int cp_api_status(cp_err err);

/* Takes doc over and gives its text; E_NOMEM if doc is NULL. */
cp_err cp_api_dump(json_t *doc, char **json) CP_NODISCARD;

/* Numbers that may not be finite: null, and "<key>_nonfinite": true beside it. */
void cp_api_real(json_t *object, const char *key, double x);

/* folder/name as new text. */
cp_err cp_api_path(const char *folder, const char *name, struct cp_str *out) CP_NODISCARD;

/* A whole JSON file. */
cp_err cp_api_read_json(const char *path, json_t **out) CP_NODISCARD;

/* Writes doc (taken over) into folder/name. */
cp_err cp_api_write_json(const char *folder, const char *name, json_t *doc) CP_NODISCARD;

/* As collapipe_config_open, from text in place of a file; name stands for it in messages. */
int cp_api_config_text(const char *name, const char *text, const char *const *assignments, size_t n,
                       collapipe_config **out);

/* The policy of a name. E_CONFIG says which is meant. */
cp_err cp_api_policy(const char *name, const struct cp_policy **out) CP_NODISCARD;

/* Whether collapipe_run_stop() was called since the last cp_api_stop_forget(). */
bool cp_api_stop_wanted(void);
void cp_api_stop_forget(void);

/* The folder of runs of a configuration. */
cp_err cp_api_runs_dir(const collapipe_config *c, struct cp_str *out) CP_NODISCARD;

#endif
