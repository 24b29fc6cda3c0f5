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
    for (int k = 0; k < cl->n_devices; k++) {
        int id = add(cast, CP_ROLE_HEAD, c, -1);
        cast->head[c] = k == 0 ? id : cast->head[c];
        int n = snprintf(cast->node[id].name, CP_NODE_NAME, "edge.%s", cl->name);
        if (k > 0) {
            snprintf(cast->node[id].name + n, CP_NODE_NAME - (size_t)n, ".%d", k + 1);
        }
    }
    cast->max_replicas += cl->n_devices;
}

cp_err cp_cast_init(struct cp_cast *cast, const struct cp_world *w, int layers)
{
    int n = 1;
    for (int c = 0; c < w->n_clusters; c++) {
        n += 2 * w->cluster[c].n_devices + 1;
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

static int n_devices(const struct cp_cast *cast, int cluster)
{
    return cast->head[cluster] - cast->cu[cluster] - 1;
}

int cp_cast_last(const struct cp_cast *cast, int cluster)
{
    return cast->head[cluster] + n_devices(cast, cluster) - 1;
}

/* --- what a plan says ------------------------------------------------------------------------ */

static bool fits(const struct cp_cast *cast, int cluster, const struct cp_cluster_plan *p)
{
    int devices = n_devices(cast, cluster), layers = 0;
    unsigned used = 0;
    if (p->segments < 1 || p->segments > devices || p->edge_layers < 0) {
        return false;
    }
    for (int s = 0; s < p->segments; s++) {
        int k = p->device[s], n = p->layers[s];
        bool alike = p->mode == CP_MODE_PIPELINE || n == p->layers[0];
        if (k < 0 || k >= devices || used & 1u << k || n < 1 || n > cast->layers || !alike) {
            return false;
        }
        used |= 1u << k;
        layers = p->mode == CP_MODE_PIPELINE ? layers + n : n;
    }
    return layers + p->edge_layers == cast->layers &&
           (p->mode != CP_MODE_FULL || p->edge_layers == 0);
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

int cp_cast_replicas(const struct cp_cluster_plan *plan)
{
    return plan->mode == CP_MODE_PIPELINE ? 1 : plan->segments;
}

static void add_stage(struct cp_replica *r, int node, int n_blocks, int slots)
{
    r->node[r->n_stages] = node;
    r->slots[r->n_stages] = slots;
    r->first[r->n_stages + 1] = r->first[r->n_stages] + n_blocks;
    r->n_stages++;
}

void cp_cast_replica(const struct cp_cast *cast, int cluster, const struct cp_cluster_plan *plan,
                     int index, struct cp_replica *out)
{
    bool pipeline = plan->mode == CP_MODE_PIPELINE;
    struct cp_replica r = {.cluster = cluster,
                           .index = index,
                           .of = cp_cast_replicas(plan),
                           .device = pipeline ? -1 : plan->device[index]};
    if (pipeline) {
        add_stage(&r, cast->cu[cluster], 1, plan->slots[0]);
        for (int s = 0; s < plan->segments; s++) {
            add_stage(&r, cp_cast_device(cast, cluster, plan->device[s]), plan->layers[s],
                      plan->slots[s + 1]);
        }
    } else { /* the embedding, its layers, and in full the head */
        int blocks = 1 + plan->layers[index] + (plan->mode == CP_MODE_FULL);
        add_stage(&r, cp_cast_device(cast, cluster, r.device), blocks, 1);
    }
    if (plan->mode != CP_MODE_FULL) {
        int slots = pipeline ? plan->slots[plan->segments + 1] : 1;
        add_stage(&r, cast->head[cluster] + index, plan->edge_layers + 1, slots);
    }
    assert(r.first[r.n_stages] == cast->layers + 2);
    *out = r;
}

int cp_cast_all(const struct cp_cast *cast, const struct cp_plan *plan, struct cp_replica *out)
{
    int n = 0;
    for (int c = 0; c < plan->n_clusters; c++) {
        for (int i = 0; i < cp_cast_replicas(&plan->cluster[c]); i++) {
            cp_cast_replica(cast, c, &plan->cluster[c], i, &out[n++]);
        }
    }
    assert(n <= cast->max_replicas);
    return n;
}

int cp_replica_owner(const struct cp_replica *r, int block)
{
    int stage = 0;
    assert(block >= 0 && block < r->first[r->n_stages]);
    while (block >= r->first[stage + 1]) {
        stage++;
    }
    return r->node[stage];
}

int cp_cast_carrier(const struct cp_cast *cast, const struct cp_replica *r, int block)
{
    int owner = cp_replica_owner(r, block);
    return cp_cast_behind(cast, r, owner) ? r->node[0] : owner;
}

bool cp_cast_behind(const struct cp_cast *cast, const struct cp_replica *r, int node)
{
    return node != r->node[0] && cast->node[node].role == CP_ROLE_DEVICE;
}

/* --- what a change of plan means ------------------------------------------------------------- */

/* The replica in another plan of the device that has this one; -1: there is none. */
static int same_device(const struct cp_cluster_plan *mine, int index,
                       const struct cp_cluster_plan *other)
{
    if (mine->mode == CP_MODE_PIPELINE || other->mode == CP_MODE_PIPELINE) {
        return -1;
    }
    for (int i = 0; i < other->segments; i++) {
        if (other->device[i] == mine->device[index]) {
            return i;
        }
    }
    return -1;
}

int cp_cast_origin(const struct cp_cluster_plan *before, const struct cp_cluster_plan *now,
                   int index)
{
    int same = same_device(now, index, before), before_me = 0;
    if (same >= 0) {
        return same;
    }
    for (int i = 0; i < index; i++) {
        before_me += same_device(now, i, before) < 0;
    }
    for (int i = 0; i < cp_cast_replicas(before); i++) {
        if (same_device(before, i, now) < 0 && before_me-- == 0) {
            return i;
        }
    }
    return -1;
}

int cp_cast_heir(const struct cp_cluster_plan *before, const struct cp_cluster_plan *now, int index)
{
    for (int i = 0; i < cp_cast_replicas(now); i++) {
        if (cp_cast_origin(before, now, i) == index) {
            return i;
        }
    }
    return -1;
}

/* --- what a node does ------------------------------------------------------------------------ */

int cp_cast_find(const struct cp_cast *cast, int node, const struct cp_plan *plan,
                 struct cp_replica *out)
{
    int cluster = cast->node[node].cluster;
    const struct cp_cluster_plan *c = &plan->cluster[cluster];
    for (int i = 0; i < cp_cast_replicas(c); i++) {
        cp_cast_replica(cast, cluster, c, i, out);
        for (int j = 0; j < out->n_stages; j++) {
            if (out->node[j] == node) {
                return j;
            }
        }
    }
    *out = (struct cp_replica){0};
    return -1;
}

void cp_cast_part(const struct cp_cast *cast, int node, const struct cp_plan *plan,
                  struct cp_part *part)
{
    struct cp_replica r;
    int stage = cp_cast_find(cast, node, plan, &r);
    *part = (struct cp_part){.first = 0, .last = -1, .index = stage};
    if (stage < 0) {
        return;
    }
    part->first = r.first[stage];
    part->last = r.first[stage + 1] - 1;
    part->slots = r.slots[stage];
    part->n_stages = r.n_stages;
    memcpy(part->node, r.node, sizeof part->node);
}
