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
    return mode == CP_MODE_FULL ? "full" : "pipeline";
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

static int diff_cluster(const struct cp_cluster_plan *from, const struct cp_cluster_plan *to,
                        int cluster, int layers, struct cp_move *moves, int n, int max)
{
    for (int block = 1; block <= layers; block++) {
        int a = from->device[cp_plan_stage_of(from, layers, block) - 1];
        int b = to->device[cp_plan_stage_of(to, layers, block) - 1];
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
        n = diff_cluster(&from->cluster[c], &to->cluster[c], c, layers, moves, n, max);
    }
    return n;
}

void cp_plan_line(const struct cp_cluster_plan *c, const struct cp_cluster *cl, struct cp_str *out)
{
    cp_str_printf(out, "%s: ", cl->name);
    if (c->mode == CP_MODE_FULL) {
        for (int s = 0; s < c->segments; s++) {
            cp_str_printf(out, "%s=all  ", cl->device[c->device[s]].name);
        }
        cp_str_printf(out, "M=%d full", c->micro_batches);
        return;
    }
    cp_str_puts(out, "cu=emb  ");
    for (int s = 0, first = 1; s < c->segments; first += c->layers[s], s++) {
        const char *name = cl->device[c->device[s]].name;
        if (c->layers[s] == 1) {
            cp_str_printf(out, "%s=%d  ", name, first);
        } else {
            cp_str_printf(out, "%s=%d-%d  ", name, first, first + c->layers[s] - 1);
        }
    }
    cp_str_printf(out, "edge=head  M=%d %s", c->micro_batches, cp_order_name(c->order));
}
