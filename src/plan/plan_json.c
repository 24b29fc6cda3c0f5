#include "plan/plan.h"
#include "plan/predict.h"

#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- out ------------------------------------------------------------------------------------- */

/* jansson passes NULL on to whoever stores it, and every store fails on NULL: so one bool tells
 * whether the whole document could be built. */
static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *ints(const int *x, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) {
        if (json_array_append_new(a, json_integer(x[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *reals(const double *x, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) {
        if (json_array_append_new(a, json_real(x[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

/* What a reader wants to know beyond the decision; not read back. */
static bool put_forecast(json_t *o, const struct cp_cluster_plan *c, int cluster,
                         const struct cp_world *w)
{
    const struct cp_cluster *cl = &w->cluster[cluster];
    struct cp_cluster_forecast f;
    cp_cluster_forecast_make(c, cluster, w, &f);
    json_t *names = json_array(), *mem = json_array();
    double energy_j[CP_DEVICES_MAX + 1] = {f.energy_j[0]};
    bool ok = true;
    for (int s = 0; s < c->segments; s++) {
        ok = ok && json_array_append_new(names, json_string(cl->device[c->device[s]].name)) == 0 &&
             json_array_append_new(mem, json_integer((json_int_t)f.mem_bytes[s])) == 0;
        energy_j[s + 1] = f.energy_j[c->device[s] + 1];
    }
    ok = put(o, "name", json_string(cl->name)) && ok;
    ok = put(o, "device_names", names) && ok;
    ok = put(o, "mem_bytes", mem) && ok;
    return ok && put(o, "step_s", json_real(f.step_s)) &&
           put(o, "energy_j", reals(energy_j, c->segments + 1));
}

static json_t *formats(const struct cp_cluster_plan *c)
{
    json_t *a = json_array();
    for (int j = 0; j <= c->segments; j++) {
        if (json_array_append_new(a, json_string(cp_format_name(c->link_format[j]))) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *cluster_json(const struct cp_cluster_plan *c, int cluster, const struct cp_world *w)
{
    json_t *o = json_object();
    int n = c->segments;
    bool ok =
        put(o, "mode", json_string(cp_plan_mode_name(c->mode))) &&
        put(o, "order", json_string(cp_order_name(c->order))) &&
        put(o, "micro_batches", json_integer(c->micro_batches)) &&
        put(o, "uplink_share", json_real(c->uplink_share)) &&
        put(o, "power_up_w", json_real(c->power_up_w)) && put(o, "devices", ints(c->device, n)) &&
        put(o, "segments", ints(c->layers, n)) &&
        put(o, "edge_layers", json_integer(c->edge_layers)) && put(o, "link_format", formats(c)) &&
        put(o, "upload_format", json_string(cp_format_name(c->upload_format))) &&
        put(o, "slots", ints(c->slots, n + 2)) && put(o, "band_share_fwd", reals(c->band_fwd, n)) &&
        put(o, "band_share_bwd", reals(c->band_bwd, n)) &&
        put(o, "power_fwd_w", reals(c->power_fwd_w, n + 1)) &&
        put(o, "power_bwd_w", reals(c->power_bwd_w + 1, n)) &&
        (!w || put_forecast(o, c, cluster, w));
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static bool all_finite(const struct cp_cluster_plan *c)
{
    bool ok = isfinite(c->uplink_share) && isfinite(c->power_up_w) && isfinite(c->power_fwd_w[0]);
    for (int s = 0; s < c->segments; s++) {
        ok = ok && isfinite(c->band_fwd[s]) && isfinite(c->band_bwd[s]) &&
             isfinite(c->power_fwd_w[s + 1]) && isfinite(c->power_bwd_w[s + 1]);
    }
    return ok;
}

cp_err cp_plan_to_json(const struct cp_plan *p, const struct cp_world *w, struct cp_str *out)
{
    json_t *root = json_object(), *clusters = json_array();
    bool ok = true;
    for (int c = 0; c < p->n_clusters; c++) {
        if (!all_finite(&p->cluster[c])) {
            json_decref(clusters);
            json_decref(root);
            return cp_fail(CP_E_NONFINITE,
                           "cluster %d of the plan has a share or power that is "
                           "not a finite number; it cannot be written",
                           c + 1);
        }
        ok = ok && json_array_append_new(clusters, cluster_json(&p->cluster[c], c, w)) == 0;
    }
    ok = put(root, "gen", json_integer(p->gen)) && ok;
    ok = put(root, "policy", json_string(p->policy)) && ok;
    ok = put(root, "clusters", clusters) && ok;
    char *text = ok ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text) {
        return cp_fail(CP_E_NOMEM, "the plan could not be written as JSON: out of memory, or a "
                                   "forecast that is not finite");
    }
    cp_str_puts(out, text);
    free(text);
    return cp_str_check(out);
}

/* --- back ------------------------------------------------------------------------------------ */

static cp_err fail_field(int cluster, const char *key, const char *what)
{
    if (cluster < 0) {
        return cp_fail(CP_E_DATA, "plan: '%s' %s", key, what);
    }
    return cp_fail(CP_E_DATA, "plan: clusters[%d]: '%s' %s", cluster, key, what);
}

static cp_err to_int(const json_t *v, json_int_t low, json_int_t high, int cluster, const char *key,
                     json_int_t *out)
{
    char what[96];
    if (!json_is_integer(v) || json_integer_value(v) < low || json_integer_value(v) > high) {
        snprintf(what, sizeof what, "must be a whole number from %lld to %lld", (long long)low,
                 (long long)high);
        return fail_field(cluster, key, what);
    }
    *out = json_integer_value(v);
    return CP_OK;
}

static cp_err to_real(const json_t *v, int cluster, const char *key, double *out)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x < 0) {
        return fail_field(cluster, key, "must be a number, 0 or more");
    }
    *out = x;
    return CP_OK;
}

/* The array of a field; its length must be n. */
static cp_err get_array(const json_t *o, int cluster, const char *key, int n, const json_t **out)
{
    const json_t *a = json_object_get(o, key);
    if (!json_is_array(a) || json_array_size(a) != (size_t)n) {
        char what[64];
        snprintf(what, sizeof what, "must be an array of %d numbers", n);
        return fail_field(cluster, key, what);
    }
    *out = a;
    return CP_OK;
}

static cp_err get_ints(const json_t *o, int cluster, const char *key, int n, int low, int high,
                       int *out)
{
    const json_t *a = NULL;
    CP_TRY(get_array(o, cluster, key, n, &a));
    for (int i = 0; i < n; i++) {
        json_int_t x = 0;
        CP_TRY(to_int(json_array_get(a, (size_t)i), low, high, cluster, key, &x));
        out[i] = (int)x;
    }
    return CP_OK;
}

static cp_err get_reals(const json_t *o, int cluster, const char *key, int n, double *out)
{
    const json_t *a = NULL;
    CP_TRY(get_array(o, cluster, key, n, &a));
    for (int i = 0; i < n; i++) {
        CP_TRY(to_real(json_array_get(a, (size_t)i), cluster, key, &out[i]));
    }
    return CP_OK;
}

/* Which of the names 0..n-1 a string is; -1: none. */
static int find_name(const json_t *v, int n, const char *(*name)(int))
{
    const char *s = json_string_value(v);
    for (int i = 0; s && i < n; i++) {
        if (strcmp(s, name(i)) == 0) {
            return i;
        }
    }
    return -1;
}

static const char *order_name(int i)
{
    return cp_order_name((enum cp_order)i);
}

static const char *mode_name(int i)
{
    return cp_plan_mode_name((enum cp_plan_mode)i);
}

static const char *format_name(int i)
{
    return cp_format_name((enum cp_format)i);
}

static cp_err get_mode(const json_t *o, int cluster, struct cp_cluster_plan *c)
{
    int order = find_name(json_object_get(o, "order"), CP_ORDER_1F1B + 1, order_name);
    int mode = find_name(json_object_get(o, "mode"), CP_MODE_SPLIT + 1, mode_name);
    if (order < 0) {
        return fail_field(cluster, "order", "must be seq, gpipe or 1f1b");
    }
    if (mode < 0) {
        return fail_field(cluster, "mode", "must be pipeline, full or split");
    }
    c->order = (enum cp_order)order;
    c->mode = (enum cp_plan_mode)mode;
    return CP_OK;
}

/* What plans of the first version do not have: then the edge server holds the head alone, and all
 * numbers are fp32. */
static cp_err get_formats(const json_t *o, int cluster, struct cp_cluster_plan *c)
{
    const json_t *edge = json_object_get(o, "edge_layers"),
                 *up = json_object_get(o, "upload_format");
    const json_t *links = json_object_get(o, "link_format");
    if (edge) {
        json_int_t n = 0;
        CP_TRY(to_int(edge, 0, CP_LAYERS_MAX, cluster, "edge_layers", &n));
        c->edge_layers = (int)n;
    }
    if (links) {
        CP_TRY(get_array(o, cluster, "link_format", c->segments + 1, &links));
    }
    for (int j = 0; links && j <= c->segments; j++) {
        int f = find_name(json_array_get(links, (size_t)j), CP_FORMAT_INT8 + 1, format_name);
        if (f < 0) {
            return fail_field(cluster, "link_format", "must name fp32, bf16 or int8 for each link");
        }
        c->link_format[j] = (enum cp_format)f;
    }
    int f = up ? find_name(up, CP_FORMAT_INT8 + 1, format_name) : CP_FORMAT_FP32;
    if (f < 0) {
        return fail_field(cluster, "upload_format", "must be fp32, bf16 or int8");
    }
    c->upload_format = (enum cp_format)f;
    return CP_OK;
}

static cp_err read_cluster(const json_t *o, int i, struct cp_cluster_plan *c)
{
    const json_t *segments = json_object_get(o, "segments");
    size_t n = json_array_size(segments);
    json_int_t micro = 0;
    if (!json_is_array(segments) || n < 1 || n > CP_DEVICES_MAX) {
        return fail_field(i, "segments", "must be an array of 1 to 16 layer counts");
    }
    c->segments = (int)n;
    CP_TRY(get_mode(o, i, c));
    CP_TRY(
        to_int(json_object_get(o, "micro_batches"), 1, CP_MICRO_MAX, i, "micro_batches", &micro));
    c->micro_batches = (int)micro;
    CP_TRY(get_ints(o, i, "segments", c->segments, 1, CP_LAYERS_MAX, c->layers));
    CP_TRY(get_ints(o, i, "devices", c->segments, 0, CP_DEVICES_MAX - 1, c->device));
    CP_TRY(get_ints(o, i, "slots", c->segments + 2, 1, c->micro_batches, c->slots));
    CP_TRY(to_real(json_object_get(o, "uplink_share"), i, "uplink_share", &c->uplink_share));
    CP_TRY(to_real(json_object_get(o, "power_up_w"), i, "power_up_w", &c->power_up_w));
    CP_TRY(get_reals(o, i, "band_share_fwd", c->segments, c->band_fwd));
    CP_TRY(get_reals(o, i, "band_share_bwd", c->segments, c->band_bwd));
    CP_TRY(get_reals(o, i, "power_fwd_w", c->segments + 1, c->power_fwd_w));
    CP_TRY(get_reals(o, i, "power_bwd_w", c->segments, c->power_bwd_w + 1));
    return get_formats(o, i, c);
}

static cp_err read_plan(const json_t *root, struct cp_plan *p)
{
    json_int_t gen = 0;
    const char *policy = json_string_value(json_object_get(root, "policy"));
    if (!policy || strlen(policy) >= sizeof p->policy) {
        return fail_field(-1, "policy", "must be the name of a policy");
    }
    CP_TRY(to_int(json_object_get(root, "gen"), 0, UINT32_MAX, -1, "gen", &gen));
    p->gen = (uint32_t)gen;
    memcpy(p->policy, policy, strlen(policy) + 1);
    const json_t *clusters = json_object_get(root, "clusters");
    for (int c = 0; c < p->n_clusters; c++) {
        CP_TRY(read_cluster(json_array_get(clusters, (size_t)c), c, &p->cluster[c]));
    }
    return CP_OK;
}

cp_err cp_plan_from_json(const char *text, struct cp_plan *out)
{
    json_error_t where;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        return cp_fail(CP_E_DATA, "plan: line %d, column %d: %s", where.line, where.column,
                       where.text);
    }
    struct cp_plan p = {0};
    const json_t *clusters = json_object_get(root, "clusters");
    size_t n = json_array_size(clusters);
    cp_err err;
    if (!json_is_array(clusters) || n < 1 || n > CP_CLUSTERS_MAX) {
        err = fail_field(-1, "clusters", "must be an array of at least one cluster");
        goto done;
    }
    CP_TRY_GOTO(err, cp_plan_init(&p, (int)n), done);
    CP_TRY_GOTO(err, read_plan(root, &p), done);
    *out = p;
    p = (struct cp_plan){0};
done:
    cp_plan_fini(&p);
    json_decref(root);
    return err;
}
