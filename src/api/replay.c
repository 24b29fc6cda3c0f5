/* replay: is a run's model the one that a single process makes? */
#include "node/replay.h"
#include "api/internal.h"
#include "model/ckpt.h"

#include <stdio.h>
#include <string.h>

struct replayer {
    collapipe_config *cfg;
    struct cp_job job;
    struct cp_str checkpoint;
    json_t *state;
    int rounds;
    struct cp_replay_cluster *did;
    cp_real *block[CP_BLOCKS_MAX];
    void (*on_event)(void *arg, const char *json);
    void *arg;
};

static void replayer_fini(struct replayer *r)
{
    for (int k = 0; k < CP_BLOCKS_MAX; k++) {
        cp_mem_free(r->block[k]);
    }
    cp_mem_free(r->did);
    cp_job_fini(&r->job);
    json_decref(r->state);
    cp_str_fini(&r->checkpoint);
    collapipe_config_close(r->cfg);
}

/* A replay of other data proves nothing. */
static cp_err check_data(const struct replayer *r)
{
    char now[20];
    const char *then = json_string_value(json_object_get(r->state, "data"));
    snprintf(now, sizeof now, "%016llx", (unsigned long long)r->job.data_hash);
    return then && strcmp(then, now) == 0
               ? CP_OK
               : cp_fail(CP_E_DATA, "the data of %s is not what the run was trained on",
                         cp_config_of(r->cfg->conf)->data.path);
}

static int find_device(const struct cp_cluster *cl, const char *name)
{
    int k = cl->n_devices - 1;
    while (k >= 0 && (!name || strcmp(cl->device[k].name, name) != 0)) {
        k--;
    }
    return k;
}

/* A cluster of a round, as the run recorded it; false if it is malformed. */
static bool read_cluster(const struct replayer *r, int c, const json_t *j,
                         struct cp_replay_cluster *did)
{
    const char *mode = json_string_value(json_object_get(j, "mode"));
    json_t *devices = json_object_get(j, "devices");
    json_int_t micro = json_integer_value(json_object_get(j, "micro_batches"));
    if (micro < 1 || micro > r->job.base.micro_max || json_array_size(devices) > CP_DEVICES_MAX) {
        return false;
    }
    *did = (struct cp_replay_cluster){.micro = (int)micro};
    if (!mode || strcmp(mode, cp_plan_mode_name(CP_MODE_PIPELINE)) == 0) {
        return true;
    }
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const char *name = json_string_value(json_array_get(devices, i));
        did->device[did->n] = find_device(&r->job.base.cluster[c], name);
        if (did->device[did->n++] < 0) {
            return false;
        }
    }
    return did->n > 0;
}

static cp_err read_rounds(struct replayer *r)
{
    int n = r->job.cast.n_clusters;
    json_t *log = json_object_get(r->state, "log_history");
    r->rounds = (int)json_integer_value(json_object_get(r->state, "rounds_done"));
    if (r->rounds < 1 || json_array_size(log) != (size_t)r->rounds) {
        return cp_fail(CP_E_CKPT, "%s does not tell the micro-batches of its %d rounds",
                       r->checkpoint.p, r->rounds);
    }
    CP_TRY(cp_mem_array(NULL, (size_t)r->rounds * (size_t)n, sizeof *r->did, &r->did));
    for (int i = 0; i < r->rounds; i++) {
        json_t *clusters = json_object_get(json_array_get(log, (size_t)i), "clusters");
        for (int c = 0; c < n; c++) {
            if (!read_cluster(r, c, json_array_get(clusters, (size_t)c), &r->did[i * n + c])) {
                return cp_fail(CP_E_CKPT,
                               "%s: round %d has no valid micro_batches and devices for cluster %d",
                               r->checkpoint.p, i + 1, c + 1);
            }
        }
    }
    return CP_OK;
}

static cp_err prepare(struct replayer *r, const char *run_dir)
{
    struct cp_str path = {0};
    CP_TRY(cp_ckpt_latest(run_dir, &r->checkpoint));
    if (collapipe_config_open(run_dir, NULL, 0, &r->cfg) != COLLAPIPE_OK) {
        return cp_fail(CP_E_CONFIG, "%s", cp_err_text());
    }
    cp_err err = cp_api_path(r->checkpoint.p, "trainer_state.json", &path);
    if (!err) {
        err = cp_api_read_json(path.p, &r->state);
    }
    cp_str_fini(&path);
    CP_TRY(err);
    CP_TRY(cp_job_init(&r->job, cp_config_of(r->cfg->conf), r->cfg->folder));
    CP_TRY(check_data(r));
    CP_TRY(read_rounds(r));
    for (int k = 0; k < cp_shape_blocks(&r->job.shape); k++) {
        size_t n = (size_t)cp_shape_params(&r->job.shape, k, k);
        CP_TRY(cp_mem_array(NULL, n, sizeof *r->block[k], &r->block[k]));
    }
    return CP_OK;
}

static void progress(void *arg, int round)
{
    struct replayer *r = arg;
    char text[96];
    if (r->on_event) {
        snprintf(text, sizeof text, "{\"event\":\"replay\",\"round\":%d,\"rounds\":%d}", round + 1,
                 r->rounds);
        r->on_event(r->arg, text);
    }
}

static cp_err replay(struct replayer *r, const char *run_dir, char **json)
{
    char before[CP_SHA256_HEX], after[CP_SHA256_HEX];
    CP_TRY(prepare(r, run_dir));
    CP_TRY(cp_ckpt_load_blocks(r->checkpoint.p, &r->job.shape, r->block, false));
    cp_params_sha256(&r->job.shape, (const float *const *)r->block, before);
    CP_TRY(cp_replay(&r->job, r->rounds, r->did, r->block, progress, r));
    cp_params_sha256(&r->job.shape, (const float *const *)r->block, after);
    bool equal = strcmp(before, after) == 0;
    CP_TRY(cp_api_dump(json_pack("{s:s, s:s, s:i, s:s, s:s, s:b}", "dir", run_dir, "checkpoint",
                                 r->checkpoint.p, "rounds", r->rounds, "params_sha256", before,
                                 "replay_sha256", after, "equal", equal),
                       json));
    return CP_OK;
}

int collapipe_replay(const char *run_dir, void (*on_event)(void *arg, const char *json), void *arg,
                     char **json)
{
    struct replayer r = {.on_event = on_event, .arg = arg};
    char why[1024];
    cp_err err = replay(&r, run_dir, json);
    snprintf(why, sizeof why, "%s", err ? cp_err_text() : "");
    replayer_fini(&r);
    return cp_api_status(err ? cp_fail(err, "%s", why) : CP_OK);
}
