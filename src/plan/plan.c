#include "plan/plan.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

const char *cp_order_name(enum cp_order order)
{
    static const char *const names[] = {"seq", "gpipe", "1f1b"};
    return (unsigned)order <= CP_ORDER_1F1B ? names[order] : "unknown";
}

const char *cp_plan_mode_name(enum cp_plan_mode mode)
{
    static const char *const names[] = {"pipeline", "full", "split"};
    return (unsigned)mode <= CP_MODE_SPLIT ? names[mode] : "unknown";
}

const char *cp_format_name(enum cp_format format)
{
    static const char *const names[] = {"fp32", "bf16", "int8"};
    return (unsigned)format <= CP_FORMAT_INT8 ? names[format] : "unknown";
}

double cp_format_size(enum cp_format format, int32_t width)
{
    return format == CP_FORMAT_FP32 ? 1 : format == CP_FORMAT_BF16 ? 0.5 : 0.25 + 1.0 / width;
}

double cp_format_error(enum cp_format format)
{
    static const double error[] = {0, 0x1p-7 / 3.4641016 / 1.36, 3.5 / 127 / 3.4641016};
    return error[format];
}

cp_err cp_plan_init(struct cp_plan *p, int n_clusters)
{
    if (n_clusters < 1 || n_clusters > CP_CLUSTERS_MAX) {
        return cp_fail(CP_E_PLAN, "a plan has 1 to %d clusters, not %d", CP_CLUSTERS_MAX,
                       n_clusters);
    }
    struct cp_cluster_plan *cluster;
    CP_TRY(cp_mem_array(NULL, (size_t)n_clusters, sizeof *cluster, &cluster));
    *p = (struct cp_plan){.n_clusters = n_clusters, .cluster = cluster};
    return CP_OK;
}

cp_err cp_plan_copy(struct cp_plan *to, const struct cp_plan *from)
{
    struct cp_cluster_plan *cluster;
    CP_TRY(cp_mem_array(NULL, (size_t)from->n_clusters, sizeof *cluster, &cluster));
    memcpy(cluster, from->cluster, (size_t)from->n_clusters * sizeof *cluster);
    cp_mem_free(to->cluster);
    *to = *from;
    to->cluster = cluster;
    return CP_OK;
}

void cp_plan_fini(struct cp_plan *p)
{
    cp_mem_free(p->cluster);
    *p = (struct cp_plan){0};
}

int cp_plan_first_layer(const struct cp_cluster_plan *c, int segment)
{
    int first = 0;
    for (int s = 0; s < segment; s++) {
        first += c->layers[s];
    }
    return first;
}

int cp_plan_stage_of(const struct cp_cluster_plan *c, int layers, int block)
{
    assert(block >= 0 && block <= layers + 1);
    if (block == 0) {
        return 0;
    }
    int last = 0; /* block of the last layer of the segments so far */
    for (int s = 0; s < c->segments; s++) {
        last += c->layers[s];
        if (block <= last) {
            return s + 1;
        }
    }
    return c->segments + 1;
}

bool cp_plan_same_cut(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y)
{
    return x->mode == y->mode && x->segments == y->segments && x->edge_layers == y->edge_layers &&
           memcmp(x->device, y->device, (size_t)x->segments * sizeof x->device[0]) == 0 &&
           memcmp(x->layers, y->layers, (size_t)x->segments * sizeof x->layers[0]) == 0;
}

int cp_order_slots(enum cp_order order, int segments, int micro_batches, int stage)
{
    if (order == CP_ORDER_SEQ) {
        return 1;
    }
    int depth = segments + 2 - stage;
    return order == CP_ORDER_1F1B && depth < micro_batches ? depth : micro_batches;
}

void cp_plan_set_slots(struct cp_cluster_plan *c)
{
    for (int j = 0; j < c->segments + 2; j++) {
        c->slots[j] = cp_order_slots(c->order, c->segments, c->micro_batches, j);
    }
}

bool cp_plan_overlaps(const struct cp_cluster_plan *c)
{
    for (int j = 0; j < c->segments + 2; j++) {
        if (c->slots[j] < c->micro_batches) {
            return true;
        }
    }
    return false;
}

size_t cp_plan_mem_bytes(const struct cp_cluster_plan *c, int segment,
                         const struct cp_model_cost *model)
{
    if (c->mode == CP_MODE_FULL) {
        return model->full_bytes_micro;
    }
    int n = c->layers[segment];
    return c->mode == CP_MODE_SPLIT
               ? model->client_bytes(model->segment_arg, n)
               : model->segment_bytes(model->segment_arg, n, c->slots[segment + 1]);
}

static int owner(const struct cp_cluster_plan *c, int layers, int block)
{
    int stage = cp_plan_stage_of(c, layers, block);
    return stage > c->segments ? CP_OWNER_EDGE : c->device[stage - 1];
}

static int diff_cluster(const struct cp_cluster_plan *from, const struct cp_cluster_plan *to,
                        int cluster, int layers, struct cp_move *moves, int n, int max)
{
    for (int block = 1; block <= layers; block++) {
        int a = owner(from, layers, block), b = owner(to, layers, block);
        if (a == b) {
            continue;
        }
        if (n < max) {
            moves[n] = (struct cp_move){.cluster = cluster, .block = block, .from = a, .to = b};
        }
        n++;
    }
    return n;
}

int cp_plan_diff(const struct cp_plan *from, const struct cp_plan *to, int layers,
                 struct cp_move *moves, int max)
{
    assert(from->n_clusters == to->n_clusters);
    int n = 0;
    for (int c = 0; c < from->n_clusters; c++) {
        if (from->cluster[c].mode == CP_MODE_PIPELINE && to->cluster[c].mode == CP_MODE_PIPELINE) {
            n = diff_cluster(&from->cluster[c], &to->cluster[c], c, layers, moves, n, max);
        }
    }
    return n;
}

/* "name=3-5  " */
static void put_layers(struct cp_str *out, const char *name, int first, int n, const char *tail)
{
    cp_str_printf(out, n == 1 ? "%s=%d" : "%s=%d-%d", name, first, first + n - 1);
    cp_str_printf(out, "%s  ", tail);
}

/* Formats that are not fp32: "  link 2 bf16", "  upload int8". */
static void put_formats(struct cp_str *out, const struct cp_cluster_plan *c)
{
    for (int j = 0; c->mode == CP_MODE_PIPELINE && j <= c->segments; j++) {
        if (c->link_format[j] != CP_FORMAT_FP32) {
            cp_str_printf(out, "  link %d %s", j, cp_format_name(c->link_format[j]));
        }
    }
    if (c->upload_format != CP_FORMAT_FP32) {
        cp_str_printf(out, "  upload %s", cp_format_name(c->upload_format));
    }
}

void cp_plan_line(const struct cp_cluster_plan *c, const struct cp_cluster *cl, struct cp_str *out)
{
    cp_str_printf(out, "%s: ", cl->name);
    if (c->mode == CP_MODE_PIPELINE) {
        cp_str_puts(out, "cu=emb  ");
    }
    int first = 1;
    for (int s = 0; s < c->segments; s++) {
        const char *name = cl->device[c->device[s]].name;
        if (c->mode == CP_MODE_FULL) {
            cp_str_printf(out, "%s=all  ", name);
        } else if (c->mode == CP_MODE_SPLIT) {
            cp_str_printf(out, "%s=emb+1-%d  ", name, c->layers[s]);
        } else {
            put_layers(out, name, first, c->layers[s], "");
            first += c->layers[s];
        }
    }
    if (c->mode == CP_MODE_SPLIT) {
        first = c->layers[0] + 1;
    }
    if (c->mode != CP_MODE_FULL && c->edge_layers > 0) {
        put_layers(out, "edge", first, c->edge_layers, "+head");
    } else if (c->mode != CP_MODE_FULL) {
        cp_str_puts(out, "edge=head  ");
    }
    cp_str_printf(out, "M=%d %s", c->micro_batches,
                  c->mode == CP_MODE_PIPELINE ? cp_order_name(c->order)
                                              : cp_plan_mode_name(c->mode));
    put_formats(out, c);
}
