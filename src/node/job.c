#include "node/job.h"

#include "base/log.h"
#include "node/job_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- model and world ------------------------------------------------------------------------- */

static void set_shape(struct cp_job *job)
{
    const struct cp_config *c = job->config;
    job->shape = (struct cp_shape){
        .layers = (int32_t)c->model.layers,
        .width = (int32_t)c->model.width,
        .heads = (int32_t)c->model.heads,
        .ffn = (int32_t)c->model.ffn,
        .max_len = (int32_t)c->model.max_len,
        .vocab = (int32_t)c->model.vocab,
        .types = 2,
        .classes = c->data.classes ? (int32_t)c->data.classes : 2,
        .norm_eps = 1e-12,
        .dropout = c->train.dropout,
    };
    job->optim = (struct cp_optim){
        .kind = c->train.optimizer == 0 ? CP_OPTIM_SGD : CP_OPTIM_ADAMW,
        .beta1 = c->train.beta1,
        .beta2 = c->train.beta2,
        .eps = c->train.eps,
        .weight_decay = c->train.weight_decay,
    };
}

/* The plan's memory constraint asks the allocator's own function. */
static size_t segment_bytes(const void *arg, int n_layers, int slots)
{
    const struct cp_job *job = arg;
    return cp_shape_cost(&job->shape, 1, n_layers, cp_job_micro_max(job), job->shape.max_len, slots,
                         cp_optim_words(job->optim.kind))
        .total_bytes;
}

static size_t client_bytes(const void *arg, int n_layers)
{
    const struct cp_job *job = arg;
    return cp_shape_cost(&job->shape, 0, n_layers, cp_job_micro_max(job), job->shape.max_len, 1,
                         cp_optim_words(job->optim.kind))
        .total_bytes;
}

static struct cp_part_cost part_cost(const struct cp_job *job, int block)
{
    struct cp_cost c = cp_shape_cost(&job->shape, block, block, cp_job_micro_max(job),
                                     job->shape.max_len, 1, cp_optim_words(job->optim.kind));
    return (struct cp_part_cost){c.work_fwd_flops, c.work_bwd_flops,
                                 (double)c.params * sizeof(cp_real)};
}

static void set_model_cost(struct cp_job *job)
{
    const struct cp_shape *s = &job->shape;
    int b = cp_job_micro_max(job), words = cp_optim_words(job->optim.kind);
    int m_ref = (int)job->config->train.micro_batches;
    struct cp_model_cost *m = &job->base.model;
    *m = (struct cp_model_cost){
        .layers = s->layers,
        .emb = part_cost(job, 0),
        .layer = part_cost(job, 1),
        .head = part_cost(job, s->layers + 1),
        .boundary_bytes = (double)b * s->max_len * s->width * sizeof(cp_real),
        .label_bytes = (double)b * (2 * sizeof(int32_t) + sizeof(int64_t)), /* pipe/exec.c */
        .optim_words = words,
        .width = s->width,
        .segment_bytes = segment_bytes,
        .client_bytes = client_bytes,
        .segment_arg = job,
        .full_bytes_micro = cp_shape_cost(s, 0, s->layers + 1, b, s->max_len, 1, words).total_bytes,
        .full_bytes_batch =
            cp_shape_cost(s, 0, s->layers + 1, b, s->max_len, m_ref, words).total_bytes,
    };
}

static double watt(double dbm)
{
    return pow(10, (dbm - 30) / 10);
}

static void set_device(struct cp_device *d, const struct cp_config_device *from,
                       const struct cp_config *c)
{
    *d = (struct cp_device){
        .present = true,
        .rate_flops = from->gflops * 1e9,
        .energy_j_flop = from->energy_pj_per_flop * 1e-12,
        .mem_bytes = (size_t)(from->mem_mib * 0x1p20),
        .budget_j = from->budget_j,
        .battery_j = from->battery_j,
        .battery_reserve_j = from->battery_reserve_j,
        .harvest_w = from->harvest_w,
        .power_d2d_w = watt(c->radio.d2d_dbm),
        .power_d2e_w = watt(c->radio.d2e_dbm),
        .x_m = from->x_m,
        .y_m = from->y_m,
    };
    snprintf(d->name, sizeof d->name, "%s", from->name ? from->name : "cu");
}

/* reserved: the name that a node of another role has in full names ("c1.cu", "edge.c1"). */
static cp_err check_name(const char *name, const char *what, const char *reserved)
{
    if (strcmp(name, reserved) == 0) {
        return cp_fail(CP_E_CONFIG, "clusters: a %s cannot be named %s, another node is", what,
                       name);
    }
    if (strlen(name) == 0 || strlen(name) >= CP_WORLD_NAME || strpbrk(name, ". /")) {
        return cp_fail(CP_E_CONFIG,
                       "clusters: the %s name '%.40s' must have 1 to %d characters, none of them a "
                       "dot, a blank or a slash",
                       what, name, CP_WORLD_NAME - 1);
    }
    return CP_OK;
}

static cp_err set_cluster(struct cp_cluster *cl, const struct cp_config_cluster *from,
                          const struct cp_config *c)
{
    const struct cp_config_device *devices = from->devices.items;
    CP_TRY(check_name(from->name, "cluster", "edge"));
    snprintf(cl->name, sizeof cl->name, "%s", from->name);
    set_device(&cl->cu, &from->cu, c);
    cl->edge_x_m = from->distance_m;
    cl->data_size = 1;
    cl->arrivals = from->arrivals;
    cl->n_devices = (int)from->devices.n;
    if (cl->n_devices == 0) {
        return cp_fail(CP_E_PLAN, "cluster %s has no devices: add some under clusters", cl->name);
    }
    for (int k = 0; k < cl->n_devices; k++) {
        CP_TRY(check_name(devices[k].name, "device", "cu"));
        for (int i = 0; i < k; i++) {
            if (strcmp(devices[i].name, devices[k].name) == 0) {
                return cp_fail(CP_E_CONFIG, "cluster %s has two devices named %s", cl->name,
                               devices[k].name);
            }
        }
        set_device(&cl->device[k], &devices[k], c);
    }
    return CP_OK;
}

static cp_err listed_clusters(struct cp_job *job)
{
    const struct cp_config *c = job->config;
    const struct cp_config_cluster *from = c->clusters.items;
    CP_TRY(cp_world_init(&job->base, (int)c->clusters.n));
    for (size_t k = 0; k < c->clusters.n; k++) {
        CP_TRY(set_cluster(&job->base.cluster[k], &from[k], c));
        for (size_t i = 0; i < k; i++) {
            if (strcmp(job->base.cluster[i].name, job->base.cluster[k].name) == 0) {
                return cp_fail(CP_E_CONFIG, "two clusters are named %s", job->base.cluster[k].name);
            }
        }
    }
    return CP_OK;
}

/* "2x3" */
static cp_err drawn_clusters(struct cp_job *job, const char *text)
{
    int clusters = 0, devices = 0, end = 0;
    if (sscanf(text, "%6dx%6d%n", &clusters, &devices, &end) != 2 || text[end] != 0) {
        return cp_fail(CP_E_CONFIG,
                       "clusters: '%.40s' is neither a list nor of the form CxK, as 2x3: 2 "
                       "clusters of 3 devices",
                       text);
    }
    CP_TRY(cp_world_draw_default(clusters, devices, job->seed, &job->base));
    for (int c = 0; c < clusters; c++) {
        struct cp_cluster *cl = &job->base.cluster[c];
        for (int k = -1; k < devices; k++) {
            struct cp_device *d = k < 0 ? &cl->cu : &cl->device[k];
            d->power_d2d_w = watt(job->config->radio.d2d_dbm);
            d->power_d2e_w = watt(job->config->radio.d2e_dbm);
        }
    }
    return CP_OK;
}

static cp_err set_world(struct cp_job *job)
{
    const struct cp_config *c = job->config;
    CP_TRY(c->clusters_short ? drawn_clusters(job, c->clusters_short) : listed_clusters(job));
    struct cp_world *w = &job->base;
    w->radio = (struct cp_radio){
        .band_d2d_hz = c->radio.d2d_mhz * 1e6,
        .band_up_hz = c->radio.up_mhz * 1e6,
        .band_down_hz = c->radio.down_mhz * 1e6,
        .noise_w_hz = watt(c->radio.noise_dbm_hz),
        .power_bs_w = watt(c->radio.bs_dbm),
    };
    w->server_flops = c->server.gflops * 1e9;
    w->local_steps = (int32_t)c->train.local_steps;
    w->micro_samples = cp_job_micro_max(job);
    w->micro_ref = (int32_t)c->train.micro_batches;
    w->micro_max = (int32_t)(c->train.micro_max > c->train.micro_batches ? c->train.micro_max
                                                                         : c->train.micro_batches);
    job->channel = (struct cp_channel){
        .fading = c->radio.kind == CP_CONFIG_RADIO_TRACE ? CP_FADING_STATIC
                                                         : (enum cp_fading)c->radio.kind,
        .rician_k = pow(10, c->radio.rician_k_db / 10),
        .clamp = c->radio.clamp,
        .shadow_db = c->radio.shadow_db,
    };
    return CP_OK;
}

/* The device that "c1.d2" names, NULL if there is none. */
static struct cp_device *find_device(const struct cp_world *w, const char *name)
{
    for (int c = 0; c < w->n_clusters; c++) {
        for (int k = 0; k < w->cluster[c].n_devices; k++) {
            char full[CP_NODE_NAME];
            snprintf(full, sizeof full, "%s.%s", w->cluster[c].name, w->cluster[c].device[k].name);
            if (strcmp(full, name) == 0) {
                return &w->cluster[c].device[k];
            }
        }
    }
    return NULL;
}

static cp_err check_changes(struct cp_job *job)
{
    const struct cp_config_change *ch = job->config->changes.items;
    for (size_t i = 0; i < job->config->changes.n; i++) {
        if (!find_device(&job->base, ch[i].node)) {
            return cp_fail(
                CP_E_CONFIG,
                "changes.%zu.node: there is no device %s; the first is %s (changes=[] drops the "
                "script)",
                i, ch[i].node, job->cast.node[job->cast.cu[0] + 1].name);
        }
    }
    return CP_OK;
}

static cp_err load_trace(struct cp_job *job, const char *folder)
{
    const struct cp_config *c = job->config;
    if (c->radio.kind != CP_CONFIG_RADIO_TRACE) {
        return CP_OK;
    }
    if (!c->radio.trace) {
        return cp_fail(CP_E_CONFIG, "radio.kind is trace, but radio.trace names no file");
    }
    CP_TRY(cp_job_read_trace(job, folder, c->radio.trace, &job->trace));
    if (c->radio.trace_end == CP_WORLD_TRACE_STOP &&
        c->fed.rounds > cp_world_trace_rounds(job->trace)) {
        return cp_fail(CP_E_CONFIG,
                       "radio.trace: %s has %d rounds, fed.rounds is %lld: ask for fewer, or let "
                       "radio.trace_end be hold or cycle",
                       c->radio.trace, cp_world_trace_rounds(job->trace), (long long)c->fed.rounds);
    }
    return CP_OK;
}

/* What was measured takes the place of what is configured. Gains stay 0 in the undisturbed world
 * where the model is to draw them. */
static cp_err load_figures(struct cp_job *job, const char *folder)
{
    struct cp_world_trace *figures = NULL;
    if (!job->config->plan.figures) {
        return CP_OK;
    }
    CP_TRY(cp_job_read_trace(job, folder, job->config->plan.figures, &figures));
    cp_err err = cp_world_trace_apply(figures, CP_WORLD_TRACE_HOLD, &job->base, &job->base);
    cp_world_trace_free(figures);
    return err;
}

static cp_err check_cuts(const struct cp_job *job)
{
    const struct cp_conf_cuts *cuts = &job->config->plan.cuts;
    if (cuts->n != (size_t)job->base.n_clusters) {
        return cp_fail(CP_E_PLAN, "plan.cuts has %zu lists, there are %d clusters", cuts->n,
                       job->base.n_clusters);
    }
    for (size_t c = 0; c < cuts->n; c++) {
        if (cuts->row[c].n > (size_t)job->base.cluster[c].n_devices) {
            return cp_fail(CP_E_PLAN, "plan.cuts: %zu numbers for cluster %s, which has %d devices",
                           cuts->row[c].n, job->base.cluster[c].name,
                           job->base.cluster[c].n_devices);
        }
    }
    return CP_OK;
}

/* Cuts that do not fit the clusters are a mistake only if the policy wants them. */
static cp_err set_cuts(struct cp_job *job)
{
    const struct cp_conf_cuts *cuts = &job->config->plan.cuts;
    if (cuts->n == 0) {
        return CP_OK;
    }
    cp_err err = check_cuts(job);
    if (err) {
        return strcmp(job->policy->name, "static") == 0 ? err : CP_OK;
    }
    CP_TRY(cp_mem_array(NULL, cuts->n, sizeof *job->cuts, &job->cuts));
    for (size_t c = 0; c < cuts->n; c++) {
        for (size_t k = 0; k < cuts->row[c].n; k++) {
            job->cuts[c][k] = cuts->row[c].v[k];
        }
    }
    return CP_OK;
}

static cp_err set_policy(struct cp_job *job)
{
    const char *name = job->config->plan.policy;
    job->policy = cp_policy_find(name);
    if (job->policy) {
        return CP_OK;
    }
    const char *names[64];
    size_t n = 0;
    for (; CP_POLICIES[n] && n < 64; n++) {
        names[n] = CP_POLICIES[n]->name;
    }
    const char *near = cp_nearest(name, names, n);
    return cp_fail(CP_E_CONFIG,
                   "plan.policy: there is no policy '%.40s'%s%s; collapipe plan --help "
                   "lists them",
                   name, near ? ", did you mean " : "", near ? near : "");
}

/* A control unit holds the embedding whatever the plan; with most micro-batches in flight, so that
 * no plan can surprise it. */
static cp_err check_control_units(const struct cp_job *job)
{
    size_t need = cp_shape_cost(&job->shape, 0, 0, cp_job_micro_max(job), job->shape.max_len,
                                job->base.micro_max, cp_optim_words(job->optim.kind))
                      .total_bytes;
    for (int c = 0; c < job->base.n_clusters; c++) {
        if (job->base.cluster[c].cu.mem_bytes < need) {
            return cp_fail(CP_E_PLAN,
                           "%s.cu: the embedding needs up to %.1f MiB on the control unit, which "
                           "has %.1f MiB (mem_mib); a smaller train.micro_max or vocabulary needs "
                           "less",
                           job->base.cluster[c].name, (double)need / 0x1p20,
                           (double)job->base.cluster[c].cu.mem_bytes / 0x1p20);
        }
    }
    return CP_OK;
}

static cp_err init_world(struct cp_job *job, const char *folder)
{
    CP_TRY(cp_shape_check(&job->shape));
    if (job->config->train.freeze > job->shape.layers) {
        return cp_fail(CP_E_CONFIG, "train.freeze is %lld, the model has %d layers",
                       (long long)job->config->train.freeze, job->shape.layers);
    }
    CP_TRY(set_policy(job));
    CP_TRY(set_world(job));
    set_model_cost(job);
    cp_world_weigh(&job->base);
    CP_TRY(load_figures(job, folder));
    CP_TRY(check_control_units(job));
    CP_TRY(cp_cast_init(&job->cast, &job->base, job->shape.layers));
    CP_TRY(check_changes(job));
    CP_TRY(load_trace(job, folder));
    return set_cuts(job);
}

static void begin(struct cp_job *job, const struct cp_config *config)
{
    *job = (struct cp_job){.config = config, .seed = (uint64_t)config->seed};
    set_shape(job);
}

cp_err cp_job_init_world(struct cp_job *job, const struct cp_config *config, const char *folder)
{
    begin(job, config);
    cp_err err = init_world(job, folder);
    if (err) {
        cp_job_fini(job);
    }
    return err;
}

/* What only simulated rounds have: real ones train what is there. */
static void warn_of_simulated(const struct cp_job *job)
{
    bool arrivals = false;
    for (int c = 0; c < job->base.n_clusters; c++) {
        arrivals = arrivals || job->base.cluster[c].arrivals > 0;
    }
    if (arrivals) {
        cp_log(CP_LOG_WARN, "arrivals of samples: only simulated rounds take them into account, "
                            "training does not");
    }
}

cp_err cp_job_init(struct cp_job *job, const struct cp_config *config, const char *folder)
{
    begin(job, config);
    cp_err err = cp_job_load_data(job, folder);
    if (!err) {
        err = init_world(job, folder);
    }
    if (!err) {
        err = cp_job_tokenize(job);
    }
    if (!err) {
        err = cp_job_draw_shards(job);
    }
    if (!err) {
        warn_of_simulated(job);
    }
    if (err) {
        cp_job_fini(job);
    }
    return err;
}

void cp_job_fini(struct cp_job *job)
{
    cp_tokens_fini(&job->train);
    cp_tokens_fini(&job->heldout);
    for (int i = 0; i < 2; i++) {
        struct cp_dataset *set = i ? job->heldout_set : job->train_set;
        if (set) {
            cp_dataset_fini(set);
            cp_mem_free(set);
        }
    }
    if (job->shards) {
        cp_shards_fini(job->shards);
        cp_mem_free(job->shards);
    }
    cp_vocab_free(job->vocab);
    cp_mem_free(job->eval_order);
    cp_mem_free(job->cuts);
    cp_cast_fini(&job->cast);
    cp_world_trace_free(job->trace);
    cp_world_fini(&job->base);
    *job = (struct cp_job){0};
}

/* --- the world of a round -------------------------------------------------------------------- */

/* Scripted changes up to this round, in the order of the list; a later one wins. */
static void apply_changes(const struct cp_job *job, struct cp_world *w)
{
    const struct cp_config_change *ch = job->config->changes.items;
    for (size_t i = 0; i < job->config->changes.n; i++) {
        if (ch[i].round > w->round + 1) {
            continue;
        }
        struct cp_device *d = find_device(w, ch[i].node);
        if (ch[i].kind == CP_CHANGE_RATE) {
            d->rate_flops = find_device(&job->base, ch[i].node)->rate_flops * ch[i].factor;
        } else {
            d->present = ch[i].kind == CP_CHANGE_JOIN;
        }
    }
}

/* A link that was measured is what it was, in every round. */
static void keep_measured(const struct cp_world *base, struct cp_world *w)
{
    for (int c = 0; c < w->n_clusters; c++) {
        const struct cp_cluster *known = &base->cluster[c];
        struct cp_cluster *cl = &w->cluster[c];
        for (int i = 0; i <= cl->n_devices; i++) {
            cl->gain_d2e[i] = known->gain_d2e[i] > 0 ? known->gain_d2e[i] : cl->gain_d2e[i];
            for (int j = 0; j <= cl->n_devices; j++) {
                double g = known->gain_d2d[i][j];
                cl->gain_d2d[i][j] = g > 0 ? g : cl->gain_d2d[i][j];
            }
        }
    }
}

cp_err cp_job_world(const struct cp_job *job, int round, bool mean, struct cp_world *out)
{
    const struct cp_config *c = job->config;
    struct cp_world w = {0};
    CP_TRY(cp_world_copy(&w, &job->base));
    w.round = round;
    if (!mean) {
        apply_changes(job, &w);
        cp_arrivals_draw(&w, &job->base, (enum cp_arrival)c->data.arrivals, job->seed);
    }
    if (!mean && c->radio.availability < 1) {
        cp_world_draw_rates(&w, &w, c->radio.availability, job->seed);
    }
    cp_channel_draw(&w, &job->channel, job->seed, mean);
    keep_measured(&job->base, &w);
    if (!mean && job->trace) { /* what was recorded has the last word */
        cp_err err = cp_world_trace_apply(job->trace, (enum cp_world_trace_end)c->radio.trace_end,
                                          &job->base, &w);
        if (err) {
            cp_world_fini(&w);
            return err;
        }
    }
    *out = w;
    return CP_OK;
}

/* M trades only time and memory where the samples of a step are fixed. */
static void drop_convergence(const struct cp_job *job, struct cp_queues *q)
{
    if (job->config->plan.batch_mode == CP_BATCH_FIXED_BATCH) {
        q->convergence = 0;
    }
}

cp_err cp_job_queues(const struct cp_job *job, const struct cp_world *mean, struct cp_queues *q)
{
    CP_TRY(cp_queues_init(q, mean, job->config->plan.v));
    drop_convergence(job, q);
    return CP_OK;
}

void cp_job_queues_advance(const struct cp_job *job, struct cp_queues *q, const struct cp_world *w,
                           const struct cp_forecast *f)
{
    cp_queues_advance(q, w, f);
    drop_convergence(job, q);
}

struct cp_policy_args cp_job_policy_args(const struct cp_job *job, const struct cp_world *w,
                                         const struct cp_world *mean)
{
    const struct cp_config *c = job->config;
    bool choose_order = c->pipe.order == CP_CONFIG_ORDER_AUTO;
    return (struct cp_policy_args){
        .world = w,
        .mean = mean,
        .order = choose_order ? CP_ORDER_1F1B : (enum cp_order)c->pipe.order,
        .choose_order = choose_order,
        .choose_micro = c->plan.batch_mode == CP_BATCH_FIXED_B,
        .any_format = c->plan.formats == CP_FORMATS_ANY,
        .seed = job->seed,
        .n_cuts = job->cuts ? job->base.n_clusters : 0,
        .cuts = (const int(*)[CP_DEVICES_MAX])job->cuts,
    };
}

/* --- steps ----------------------------------------------------------------------------------- */

int64_t cp_job_step_samples(const struct cp_job *job, int m)
{
    const struct cp_config *c = job->config;
    return c->plan.batch_mode == CP_BATCH_FIXED_B ? m * c->train.micro_batch : c->train.batch;
}

int cp_job_micro_max(const struct cp_job *job)
{
    const struct cp_config *c = job->config;
    int64_t m = c->train.micro_batches;
    return (int)(c->plan.batch_mode == CP_BATCH_FIXED_B ? c->train.micro_batch
                                                        : (c->train.batch + m - 1) / m);
}

int cp_job_split(int64_t samples, int m, int32_t *sizes)
{
    if (samples < m) {
        m = (int)samples;
    }
    for (int i = 0; i < m; i++) {
        sizes[i] = (int32_t)(samples * (i + 1) / m - samples * i / m);
    }
    return m;
}

int cp_job_first_trained(const struct cp_job *job)
{
    int n = (int)job->config->train.freeze; /* encoder layers; the embedding goes with them */
    return n > 0 ? n + 1 : 0;
}

double cp_job_lr(const struct cp_job *job, int64_t global_step)
{
    const struct cp_config *c = job->config;
    int64_t total = c->fed.rounds * c->train.local_steps;
    int64_t warmup = (int64_t)ceil(c->train.warmup * (double)total);
    return cp_optim_lr(c->train.lr, global_step, warmup, total, (enum cp_lr_decay)c->train.decay);
}
