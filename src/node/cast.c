#include "node/cast.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *cp_role_name(enum cp_role role)
{
    static const char *const NAMES[] = {"edge", "control-unit", "device", "edge-stage"};
    return NAMES[role];
}

static int add(struct cp_cast *cast, enum cp_role role, int cluster, int device)
{
    cast->node[cast->n_nodes] = (struct cp_cast_node){role, cluster, device, ""};
    cast->names[cast->n_nodes] = cast->node[cast->n_nodes].name;
    return cast->n_nodes++;
}

static void add_cluster(struct cp_cast *cast, const struct cp_cluster *cl, int c)
{
    cast->cu[c] = add(cast, CP_ROLE_CU, c, -1);
    snprintf(cast->node[cast->cu[c]].name, CP_NODE_NAME, "%s.cu", cl->name);
    for (int k = 0; k < cl->n_devices; k++) {
        int id = add(cast, CP_ROLE_DEVICE, c, k);
        snprintf(cast->node[id].name, CP_NODE_NAME, "%s.%s", cl->name, cl->device[k].name);
    }
    cast->head[c] = add(cast, CP_ROLE_HEAD, c, -1);
    snprintf(cast->node[cast->head[c]].name, CP_NODE_NAME, "edge.%s", cl->name);
}

cp_err cp_cast_init(struct cp_cast *cast, const struct cp_world *w, int layers)
{
    int n = 1;
    for (int c = 0; c < w->n_clusters; c++) {
        n += w->cluster[c].n_devices + 2;
    }
    struct cp_cast made = {.layers = layers, .n_clusters = w->n_clusters};
    size_t clusters = (size_t)w->n_clusters;
    cp_err err = CP_OK;
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n, sizeof *made.node, &made.node), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n, sizeof *made.names, &made.names), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, clusters, sizeof *made.cu, &made.cu), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, clusters, sizeof *made.head, &made.head), fail);
    int edge = add(&made, CP_ROLE_EDGE, -1, -1);
    snprintf(made.node[edge].name, CP_NODE_NAME, "edge");
    for (int c = 0; c < w->n_clusters; c++) {
        add_cluster(&made, &w->cluster[c], c);
    }
    *cast = made;
    return CP_OK;
fail:
    cp_cast_fini(&made);
    return err;
}

void cp_cast_fini(struct cp_cast *cast)
{
    cp_mem_free(cast->node);
    cp_mem_free(cast->names);
    cp_mem_free(cast->cu);
    cp_mem_free(cast->head);
    *cast = (struct cp_cast){0};
}

int cp_cast_device(const struct cp_cast *cast, int cluster, int device)
{
    return cast->cu[cluster] + 1 + device;
}

static bool fits(const struct cp_cast *cast, int cluster, const struct cp_cluster_plan *p)
{
    int devices = cast->head[cluster] - cast->cu[cluster] - 1, layers = 0;
    if (p->segments < 1 || p->segments > devices) {
        return false;
    }
    for (int s = 0; s < p->segments; s++) {
        if (p->device[s] < 0 || p->device[s] >= devices || p->layers[s] < 1 ||
            p->layers[s] > cast->layers) {
            return false;
        }
        layers += p->layers[s];
    }
    return layers == cast->layers;
}

cp_err cp_cast_check(const struct cp_cast *cast, const struct cp_plan *plan)
{
    if (plan->n_clusters != cast->n_clusters) {
        return cp_fail(CP_E_PROTO, "the plan is for %d clusters, there are %d", plan->n_clusters,
                       cast->n_clusters);
    }
    for (int c = 0; c < plan->n_clusters; c++) {
        if (!fits(cast, c, &plan->cluster[c])) {
            return cp_fail(CP_E_PROTO,
                           "the plan of cluster %d names devices that are not there, or does not "
                           "place %d layers",
                           c + 1, cast->layers);
        }
    }
    return CP_OK;
}

void cp_cast_owners(const struct cp_cast *cast, int cluster, const struct cp_cluster_plan *plan,
                    int *owner)
{
    int block = 0;
    owner[block++] = cast->cu[cluster];
    for (int s = 0; s < plan->segments; s++) {
        for (int i = 0; i < plan->layers[s]; i++) {
            owner[block++] = cp_cast_device(cast, cluster, plan->device[s]);
        }
    }
    assert(block == cast->layers + 1);
    owner[block] = cast->head[cluster];
}

/* The stage of a node in its cluster's pipeline, -1 for a stand-by. */
static int stage_of(const struct cp_cast_node *node, const struct cp_cluster_plan *plan)
{
    if (node->role == CP_ROLE_CU) {
        return 0;
    }
    if (node->role == CP_ROLE_HEAD) {
        return plan->segments + 1;
    }
    for (int s = 0; s < plan->segments; s++) {
        if (plan->device[s] == node->device) {
            return s + 1;
        }
    }
    return -1;
}

void cp_cast_part(const struct cp_cast *cast, int node, const struct cp_plan *plan,
                  struct cp_part *part)
{
    const struct cp_cast_node *me = &cast->node[node];
    const struct cp_cluster_plan *c = &plan->cluster[me->cluster];
    int owner[CP_BLOCKS_MAX], stage = stage_of(me, c);
    *part = (struct cp_part){.first = 0, .last = -1, .index = -1};
    if (stage < 0) {
        return;
    }
    cp_cast_owners(cast, me->cluster, c, owner);
    part->first = CP_BLOCKS_MAX;
    for (int block = 0; block <= cast->layers + 1; block++) {
        if (owner[block] == node) {
            part->first = block < part->first ? block : part->first;
            part->last = block;
        }
    }
    part->index = stage;
    part->n_stages = c->segments + 2;
    part->slots = c->slots[stage];
    part->node[0] = cast->cu[me->cluster];
    for (int s = 0; s < c->segments; s++) {
        part->node[s + 1] = cp_cast_device(cast, me->cluster, c->device[s]);
    }
    part->node[c->segments + 1] = cast->head[me->cluster];
}
