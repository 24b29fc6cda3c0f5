#include "node/snapshot.h"

#include "base/log.h"
#include "model/ckpt.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_blocks(const struct cp_edge *e)
{
    return cp_shape_blocks(&e->job->shape);
}

/* --- optimizer state: one tensor per parameter, moment and replica --------------------------- */

struct moments {
    struct cp_ckpt_tensor *tensor;
    char (*name)[CP_NODE_NAME + CP_NAME_MAX + 16];
    size_t n;
};

static void moments_fini(struct moments *m)
{
    cp_mem_free(m->tensor);
    cp_mem_free(m->name);
}

/* The payload of a block's state: step count, then the moments (pipe/migrate.c). */
static float *plane_of(const struct cp_edge *e, int replica, int block, int plane)
{
    char *p = e->state[replica * n_blocks(e) + block]->payload;
    size_t params = (size_t)cp_shape_params(&e->job->shape, block, block);
    return (float *)(void *)(p + sizeof(int64_t) + (size_t)plane * params * sizeof(float));
}

/* "c1", or where its devices have replicas of their own "c1.d2". */
static const char *replica_name(const struct cp_edge *e, int replica)
{
    const struct cp_replica *r = &e->replica[replica];
    return r->device < 0 ? e->job->base.cluster[r->cluster].name : e->job->cast.names[r->node[0]];
}

static void add_block(struct moments *m, const struct cp_edge *e, int replica, int block)
{
    static const char *const SUFFIX[] = {"exp_avg", "exp_avg_sq"};
    struct cp_tensor_info info[CP_BLOCK_TENSORS_MAX];
    int n = cp_shape_tensors(&e->job->shape, block, info);
    for (int plane = 0; plane < cp_optim_words(e->job->optim.kind); plane++) {
        for (int i = 0; i < n; i++, m->n++) {
            snprintf(m->name[m->n], sizeof m->name[0], "%.65s.%.95s.%s", replica_name(e, replica),
                     info[i].name, SUFFIX[plane]);
            m->tensor[m->n] = (struct cp_ckpt_tensor){
                .name = m->name[m->n],
                .rank = info[i].rank,
                .dims = {info[i].dims[0], info[i].dims[1]},
                .data = plane_of(e, replica, block, plane) + info[i].offset,
            };
        }
    }
}

/* Views into e->state, which must be complete. */
static cp_err moments_init(struct moments *m, const struct cp_edge *e)
{
    size_t most = (size_t)e->n_replicas * (size_t)n_blocks(e) * CP_BLOCK_TENSORS_MAX * 2;
    *m = (struct moments){0};
    CP_TRY(cp_mem_array(NULL, most, sizeof *m->tensor, &m->tensor));
    cp_err err = cp_mem_array(NULL, most, sizeof *m->name, &m->name);
    if (err) {
        moments_fini(m);
        return err;
    }
    for (int r = 0; r < e->n_replicas; r++) {
        for (int block = 0; block < n_blocks(e); block++) {
            add_block(m, e, r, block);
        }
    }
    return CP_OK;
}

/* Optimizer steps of a block; the blocks of a cluster's replicas lie one after another. */
static int64_t *steps_of(const struct cp_edge *e, int cluster, int i)
{
    int r = 0;
    while (e->replica[r].cluster != cluster) {
        r++;
    }
    return e->state[r * n_blocks(e) + i]->payload;
}

static int n_steps(const struct cp_edge *e, int cluster)
{
    return cp_cast_replicas(&e->plan.cluster[cluster]) * n_blocks(e);
}

/* --- trainer_state.json ---------------------------------------------------------------------- */

static json_t *cluster_state(const struct cp_edge *e, int c)
{
    json_t *energy = json_array(), *steps = json_array(), *charge = json_array();
    for (int k = 0; k <= e->job->base.cluster[c].n_devices; k++) {
        json_array_append_new(energy, json_real(e->queues.energy[c][k]));
    }
    for (int k = 0; k < e->job->base.cluster[c].n_devices; k++) {
        json_array_append_new(charge, json_real(e->charge_j[c][k]));
    }
    for (int i = 0; i < n_steps(e, c); i++) {
        json_array_append_new(steps, json_integer(*steps_of(e, c, i)));
    }
    return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o}", "name", e->job->base.cluster[c].name,
                     "epoch", (json_int_t)e->cursor[c].epoch, "position",
                     (json_int_t)e->cursor[c].position, "queue_energy", energy, "charge_j", charge,
                     "optimizer_steps", steps);
}

static json_t *move_list(const struct cp_edge *e)
{
    json_t *list = json_array();
    for (int i = 0; i < e->n_moves; i++) {
        const struct cp_move *m = &e->move[i];
        json_array_append_new(list, json_pack("[i,i,i,i]", m->cluster, m->block, m->from, m->to));
    }
    return list;
}

/* Why the plan of the next round is as it is: for the report of that round. */
static json_t *decision_json(const struct cp_edge *e)
{
    return json_pack("{s:f, s:f, s:s, s:b, s:s, s:f}", "objective", e->decision.objective,
                     "solve_ms", e->decision.solve_ms, "binding", e->decision.binding, "kept",
                     e->kept, "note", e->note, "wait_s", e->wait_s);
}

static json_t *mean_json(const struct cp_constants_mean *m)
{
    return json_pack("[f,i]", m->value, m->rounds);
}

/* What is known of the constants of the convergence bound. */
static json_t *constants_json(const struct cp_edge *e)
{
    const struct cp_constants *k = &e->constants;
    json_t *variance = json_array(), *ratio = json_array();
    for (int c = 0; c < k->n_clusters; c++) {
        json_array_append_new(variance, mean_json(&k->variance[c]));
    }
    for (int i = 0; i < k->n_ratios; i++) {
        json_array_append_new(ratio, json_real(k->ratio[i]));
    }
    return json_pack("{s:f, s:o, s:o, s:o}", "start_loss", e->start_loss, "variance", variance,
                     "dissimilarity2", mean_json(&k->dissimilarity2), "smoothness", ratio);
}

static json_t *trainer_state(const struct cp_edge *e, int rounds_done, const char *log_json)
{
    const struct cp_config *c = e->job->config;
    json_t *clusters = json_array();
    for (int k = 0; k < e->job->cast.n_clusters; k++) {
        json_array_append_new(clusters, cluster_state(e, k));
    }
    json_t *log = json_loads(log_json, JSON_ALLOW_NUL, NULL);
    char data[20];
    snprintf(data, sizeof data, "%016llx", (unsigned long long)e->job->data_hash);
    return json_pack("{s:i, s:s, s:I, s:I, s:i, s:I, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:b, s:o, "
                     "s:o*}",
                     "format", 1, "data", data, "seed", (json_int_t)e->job->seed, "global_step",
                     (json_int_t)rounds_done * c->train.local_steps, "rounds_done", rounds_done,
                     "max_steps", (json_int_t)(c->fed.rounds * c->train.local_steps), "plan_gen",
                     (int)e->plan.gen, "train_samples", (json_int_t)e->job->train.n,
                     "heldout_samples", (json_int_t)e->job->heldout.n, "queue_convergence",
                     json_real(e->queues.convergence), "clusters", clusters, "moves", move_list(e),
                     "decision", decision_json(e), "decided", e->decided, "constants",
                     constants_json(e), "log_history", log);
}

static cp_err write_json(const char *dir, const char *file, json_t *doc)
{
    struct cp_str path = {0};
    char *text = doc ? json_dumps(doc, JSON_INDENT(1)) : NULL;
    json_decref(doc);
    cp_str_printf(&path, "%s/%s", dir, file);
    cp_err err = cp_str_check(&path);
    if (!err) {
        err = text
                  ? cp_file_write(path.p, text, strlen(text))
                  : cp_fail(CP_E_NOMEM,
                            "cannot write %s: a text in it is not UTF-8, or memory is out", path.p);
    }
    free(text);
    cp_str_fini(&path);
    return err;
}

/* --- saving ---------------------------------------------------------------------------------- */

static cp_err vocab_text(const struct cp_vocab *v, struct cp_str *out)
{
    for (int32_t i = 0; i < cp_vocab_size(v); i++) {
        cp_str_printf(out, "%s\n", cp_vocab_token(v, i));
    }
    return cp_str_check(out);
}

static cp_err save_model(const char *dir, const struct cp_edge *e)
{
    struct cp_str vocab = {0};
    cp_err err = vocab_text(e->job->vocab, &vocab);
    if (!err) {
        struct cp_ckpt_model model = {
            .shape = &e->job->shape,
            .class_names = (const char *const *)e->job->train_set->class_name,
            .block_params = (const float *const *)e->block,
            .vocab = vocab.p,
            .vocab_bytes = vocab.len,
            .lower_case = true,
        };
        err = cp_ckpt_save_model(dir, &model);
    }
    cp_str_fini(&vocab);
    return err;
}

/* Saves or loads optimizer.safetensors: the same tensors, the same file. */
static cp_err with_optimizer(const char *dir, const struct cp_edge *e,
                             cp_err (*act)(const char *path, const struct cp_ckpt_tensor *tensors,
                                           size_t n))
{
    struct moments m;
    struct cp_str path = {0};
    CP_TRY(moments_init(&m, e));
    cp_str_printf(&path, "%s/optimizer.safetensors", dir);
    cp_err err = cp_str_check(&path);
    if (!err) {
        err = act(path.p, m.tensor, m.n);
    }
    cp_str_fini(&path);
    moments_fini(&m);
    return err;
}

static cp_err save_plan(const char *dir, const struct cp_edge *e)
{
    struct cp_str text = {0}, path = {0};
    cp_err err = cp_plan_to_json(&e->plan, &e->world, &text);
    cp_str_printf(&path, "%s/plan.json", dir);
    if (!err) {
        err = cp_str_check(&path);
    }
    if (!err) {
        err = cp_file_write(path.p, text.p, text.len);
    }
    cp_str_fini(&text);
    cp_str_fini(&path);
    return err;
}

static cp_err save_all(const char *dir, const struct cp_edge *e, int rounds_done,
                       const char *log_json)
{
    CP_TRY(save_model(dir, e));
    CP_TRY(with_optimizer(dir, e, cp_ckpt_save_tensors));
    CP_TRY(save_plan(dir, e));
    return write_json(dir, "trainer_state.json", trainer_state(e, rounds_done, log_json));
}

static cp_err save(const char *run_dir, const struct cp_edge *e, int rounds_done,
                   const char *log_json, struct cp_str *path)
{
    char name[32];
    struct cp_str tmp = {0};
    snprintf(name, sizeof name, "checkpoint-%d", rounds_done);
    cp_err err = cp_ckpt_begin(run_dir, name, &tmp);
    if (!err) {
        err = save_all(tmp.p, e, rounds_done, log_json);
    }
    if (!err) {
        err = cp_ckpt_commit(run_dir, name);
    }
    cp_str_fini(&tmp);
    if (!err) {
        cp_str_clear(path);
        cp_str_printf(path, "%s/%s", run_dir, name);
        err = cp_str_check(path);
    }
    return err;
}

cp_err cp_snapshot_save(const char *run_dir, const struct cp_edge *e, int rounds_done,
                        const char *log_json, struct cp_str *path)
{
    char why[1024];
    cp_err err = save(run_dir, e, rounds_done, log_json, path);
    snprintf(why, sizeof why, "%s", err ? cp_err_text() : "");
    /* after a failure too: what was written of it would keep a full disk full */
    cp_err pruned = cp_ckpt_prune(run_dir, (int)e->job->config->run.keep, cp_str_text(path));
    return err ? cp_fail(err, "%s", why) : pruned;
}

/* --- loading --------------------------------------------------------------------------------- */

static cp_err read_json(const char *dir, const char *file, json_t **out)
{
    struct cp_str path = {0}, text = {0};
    json_error_t why;
    cp_str_printf(&path, "%s/%s", dir, file);
    cp_err err = cp_str_check(&path);
    if (!err) {
        err = cp_file_read(path.p, (size_t)1 << 28, &text);
    }
    if (!err) {
        *out = json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, &why);
        if (!*out) {
            err = cp_fail(CP_E_CKPT, "%s:%d: %s", path.p, why.line, why.text);
        }
    }
    cp_str_fini(&path);
    cp_str_fini(&text);
    return err;
}

static cp_err fail_state(const char *dir, const char *what)
{
    return cp_fail(CP_E_CKPT, "%s/trainer_state.json: %s", dir, what);
}

static cp_err load_cluster(const char *dir, struct cp_edge *e, int c, const json_t *j)
{
    const char *name = NULL;
    json_int_t epoch, position;
    json_t *energy, *charge, *steps;
    if (json_unpack((json_t *)j, "{s:s, s:I, s:I, s:o, s:o, s:o}", "name", &name, "epoch", &epoch,
                    "position", &position, "queue_energy", &energy, "charge_j", &charge,
                    "optimizer_steps", &steps) != 0 ||
        json_array_size(charge) != (size_t)e->job->base.cluster[c].n_devices ||
        json_array_size(energy) != (size_t)e->job->base.cluster[c].n_devices + 1 ||
        json_array_size(steps) != (size_t)n_steps(e, c) || epoch < 0 || position < 0) {
        return fail_state(dir, "a cluster is malformed, or has other devices or layers than the "
                               "configuration or the plan");
    }
    if (strcmp(name, e->job->base.cluster[c].name) != 0) {
        return fail_state(dir, "the clusters have other names than in the configuration");
    }
    e->cursor[c] = (struct cp_wire_cursor){epoch, position};
    for (size_t k = 0; k < json_array_size(energy); k++) {
        e->queues.energy[c][k] = json_number_value(json_array_get(energy, k));
    }
    for (size_t k = 0; k < json_array_size(charge); k++) {
        e->charge_j[c][k] = json_number_value(json_array_get(charge, k));
    }
    for (int i = 0; i < n_steps(e, c); i++) {
        *steps_of(e, c, i) = json_integer_value(json_array_get(steps, (size_t)i));
    }
    return CP_OK;
}

static bool is_move(const struct cp_edge *e, const struct cp_move *m)
{
    if (m->cluster < 0 || m->cluster >= e->job->base.n_clusters || m->block < 1 ||
        m->block > e->job->shape.layers) {
        return false;
    }
    int devices = e->job->base.cluster[m->cluster].n_devices;
    return m->from >= CP_OWNER_EDGE && m->from < devices && m->to >= CP_OWNER_EDGE &&
           m->to < devices && m->from != m->to;
}

static cp_err load_moves(const char *dir, struct cp_edge *e, const json_t *list)
{
    if (json_array_size(list) > (size_t)e->max_moves) {
        return fail_state(dir, "more moves than layers");
    }
    e->n_moves = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct cp_move *m = &e->move[i];
        if (json_unpack(json_array_get(list, i), "[i,i,i,i]", &m->cluster, &m->block, &m->from,
                        &m->to) != 0 ||
            !is_move(e, m)) {
            return fail_state(dir, "a move is malformed");
        }
        e->n_moves++;
    }
    return CP_OK;
}

static cp_err load_decision(const char *dir, struct cp_edge *e, const json_t *j)
{
    const char *binding, *note;
    int kept;
    if (json_unpack((json_t *)j, "{s:F, s:F, s:s, s:b, s:s, s:F}", "objective",
                    &e->decision.objective, "solve_ms", &e->decision.solve_ms, "binding", &binding,
                    "kept", &kept, "note", &note, "wait_s", &e->wait_s) != 0) {
        return fail_state(dir, "the decision is malformed");
    }
    snprintf(e->decision.binding, sizeof e->decision.binding, "%s", binding);
    snprintf(e->note, sizeof e->note, "%s", note);
    e->kept = kept != 0;
    return CP_OK;
}

static bool load_mean(const json_t *j, struct cp_constants_mean *m)
{
    return json_unpack((json_t *)j, "[F,i!]", &m->value, &m->rounds) == 0 && m->rounds >= 0 &&
           m->rounds <= CP_CONSTANTS_ROUNDS;
}

static cp_err load_constants(const char *dir, struct cp_edge *e, const json_t *j)
{
    struct cp_constants *k = &e->constants;
    json_t *variance, *dissimilarity2, *ratio;
    bool good =
        json_unpack((json_t *)j, "{s:F, s:o, s:o, s:o}", "start_loss", &e->start_loss, "variance",
                    &variance, "dissimilarity2", &dissimilarity2, "smoothness", &ratio) == 0 &&
        json_array_size(variance) == (size_t)k->n_clusters &&
        json_array_size(ratio) <= CP_CONSTANTS_RATIOS &&
        load_mean(dissimilarity2, &k->dissimilarity2);
    for (int c = 0; good && c < k->n_clusters; c++) {
        good = load_mean(json_array_get(variance, (size_t)c), &k->variance[c]);
    }
    k->n_ratios = good ? (int32_t)json_array_size(ratio) : 0;
    for (int i = 0; i < k->n_ratios; i++) {
        const json_t *x = json_array_get(ratio, (size_t)i);
        k->ratio[i] = json_number_value(x);
        good &= json_is_number(x) && k->ratio[i] >= 0;
    }
    return good ? CP_OK : fail_state(dir, "the constants of the convergence bound are malformed");
}

static cp_err load_state(const char *dir, struct cp_edge *e, const json_t *doc,
                         struct cp_str *log_json)
{
    json_int_t seed, train_n, heldout_n;
    const char *data;
    char now[20];
    snprintf(now, sizeof now, "%016llx", (unsigned long long)e->job->data_hash);
    int rounds_done, gen, decided;
    double convergence;
    json_t *clusters, *moves, *decision, *constants, *log = NULL;
    if (json_unpack((json_t *)doc,
                    "{s:s, s:I, s:i, s:i, s:I, s:I, s:F, s:o, s:o, s:o, s:b, s:o, s?o}", "data",
                    &data, "seed", &seed, "rounds_done", &rounds_done, "plan_gen", &gen,
                    "train_samples", &train_n, "heldout_samples", &heldout_n, "queue_convergence",
                    &convergence, "clusters", &clusters, "moves", &moves, "decision", &decision,
                    "decided", &decided, "constants", &constants, "log_history", &log) != 0) {
        return fail_state(dir, "a member is missing or has the wrong type");
    }
    if (seed != (json_int_t)e->job->seed || train_n != e->job->train.n ||
        heldout_n != e->job->heldout.n || strcmp(data, now) != 0) {
        return fail_state(dir, "it was made with another seed or other data than the configuration "
                               "names");
    }
    if (json_array_size(clusters) != (size_t)e->job->cast.n_clusters || rounds_done < 1 ||
        rounds_done > e->job->config->fed.rounds || gen < 1) {
        return fail_state(dir, "clusters, rounds or plan generation do not fit the configuration");
    }
    e->queues.convergence = convergence;
    e->start_round = rounds_done;
    e->decided = decided != 0;
    e->plan.gen = (uint32_t)gen;
    for (int c = 0; c < e->job->cast.n_clusters; c++) {
        CP_TRY(load_cluster(dir, e, c, json_array_get(clusters, (size_t)c)));
    }
    char *text = log ? json_dumps(log, 0) : NULL;
    cp_str_puts(log_json, text ? text : "[]");
    free(text);
    CP_TRY(cp_str_check(log_json));
    CP_TRY(load_decision(dir, e, decision));
    CP_TRY(load_constants(dir, e, constants));
    return load_moves(dir, e, moves);
}

static cp_err load_plan(const char *dir, struct cp_edge *e)
{
    struct cp_str path = {0}, text = {0};
    cp_str_printf(&path, "%s/plan.json", dir);
    cp_err err = cp_str_check(&path);
    if (!err) {
        err = cp_file_read(path.p, (size_t)1 << 26, &text);
    }
    if (!err) {
        err = cp_plan_from_json(text.p, &e->plan);
    }
    if (!err && cp_cast_check(&e->job->cast, &e->plan) != CP_OK) {
        err = cp_fail(CP_E_CKPT, "%s: %s", path.p, cp_err_text());
    }
    cp_str_fini(&path);
    cp_str_fini(&text);
    return err;
}

static cp_err check_shape(const char *dir, const struct cp_edge *e)
{
    struct cp_ckpt_meta meta;
    const struct cp_shape *a = &e->job->shape;
    CP_TRY(cp_ckpt_load_meta(dir, &meta));
    struct cp_shape b = meta.shape;
    cp_ckpt_meta_fini(&meta);
    if (a->layers != b.layers || a->width != b.width || a->heads != b.heads || a->ffn != b.ffn ||
        a->max_len != b.max_len || a->vocab != b.vocab || a->classes != b.classes) {
        return cp_fail(CP_E_CKPT,
                       "%s holds another model (%d layers of width %d, %d pieces, %d "
                       "classes) than the configuration asks for",
                       dir, b.layers, b.width, b.vocab, b.classes);
    }
    return CP_OK;
}

cp_err cp_snapshot_load(const char *dir, struct cp_edge *e, struct cp_str *log_json)
{
    json_t *doc;
    CP_TRY(check_shape(dir, e));
    CP_TRY(cp_ckpt_load_blocks(dir, &e->job->shape, e->block, false));
    CP_TRY(load_plan(dir, e));
    CP_TRY(cp_edge_new_states(e));
    CP_TRY(read_json(dir, "trainer_state.json", &doc));
    cp_err err = load_state(dir, e, doc, log_json);
    json_decref(doc);
    return err ? err : with_optimizer(dir, e, cp_ckpt_load_tensors);
}
