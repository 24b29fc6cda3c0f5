/*
 * cast: who plays which role, and what a plan means for each node.
 *
 * Node 0 is the edge server's coordinator. Every cluster adds, in order, its control unit, its
 * devices and the edge server's stage for this cluster (which holds the head).
 */
#ifndef CP_NODE_CAST_H
#define CP_NODE_CAST_H

#include "pipe/stage.h"
#include "plan/plan.h"
#include "world/world.h"

enum { CP_NODE_EDGE = 0, CP_NODE_NAME = 2 * CP_WORLD_NAME + 2 };
enum cp_role { CP_ROLE_EDGE, CP_ROLE_CU, CP_ROLE_DEVICE, CP_ROLE_HEAD };
const char *cp_role_name(enum cp_role role);

struct cp_cast_node {
    enum cp_role role;
    int cluster, device;     /* -1 where it does not apply */
    char name[CP_NODE_NAME]; /* "edge", "c1.cu", "c1.d2", "edge.c1" */
};

struct cp_cast {
    int layers, n_clusters, n_nodes;
    struct cp_cast_node *node; /* [n_nodes] */
    const char **names;        /* [n_nodes], into node[] */
    int *cu, *head;            /* [n_clusters] node ids; devices lie between them */
};

CP_NODISCARD cp_err cp_cast_init(struct cp_cast *cast, const struct cp_world *w, int layers);
void cp_cast_fini(struct cp_cast *cast);

int cp_cast_device(const struct cp_cast *cast, int cluster, int device);

/* A plan that came as text has these clusters, devices and layers: E_PROTO otherwise. Everything
 * below relies on it; whether the plan is a good one is cp_plan_check's to say. */
CP_NODISCARD cp_err cp_cast_check(const struct cp_cast *cast, const struct cp_plan *plan);

/* The node that owns each block 0..L+1 of a cluster under a plan: owner[L + 2]. */
void cp_cast_owners(const struct cp_cast *cast, int cluster, const struct cp_cluster_plan *plan,
                    int *owner);

/* What a node does under a plan. */
void cp_cast_part(const struct cp_cast *cast, int node, const struct cp_plan *plan,
                  struct cp_part *part);

#endif
