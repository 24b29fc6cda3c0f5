/*
 * cast: who plays which role, and what a plan means for each node.
 *
 * Node 0 is the edge server's coordinator. Every cluster adds, in order, its control unit, its
 * devices, and as many stages on the edge server as it has devices: a pipeline needs one of them
 * (with the head), a split plan one for each device it uses.
 *
 * Whatever the mode, a cluster trains *replicas*: whole models, each a list of stages that hold
 * ranges of the one block list. A pipeline plan has one replica of S + 2 stages, full has one of
 * one stage for each used device, split one of two. The first stage's node is the *lead* of its
 * replica: it draws the batches and announces the steps. Averaging counts replicas.
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
    char name[CP_NODE_NAME]; /* "edge", "c1.cu", "c1.d2", "edge.c1", "edge.c1.2" */
};

struct cp_cast {
    int layers, n_clusters, n_nodes;
    int max_replicas;          /* of all clusters together, under any plan */
    struct cp_cast_node *node; /* [n_nodes] */
    const char **names;        /* [n_nodes], into node[] */
    int *cu, *head;            /* [n_clusters] node ids; devices lie between them; the edge server's
                                  further stages of a cluster follow the first */
};

CP_NODISCARD cp_err cp_cast_init(struct cp_cast *cast, const struct cp_world *w, int layers);
void cp_cast_fini(struct cp_cast *cast);

int cp_cast_device(const struct cp_cast *cast, int cluster, int device);

/* The nodes of a cluster are cu[cluster] to this one. */
int cp_cast_last(const struct cp_cast *cast, int cluster);

/* A plan that came as text has these clusters, devices and layers: E_PROTO otherwise. Everything
 * below relies on it; whether the plan is a good one is cp_plan_check's to say. */
CP_NODISCARD cp_err cp_cast_check(const struct cp_cast *cast, const struct cp_plan *plan);

struct cp_replica {
    int cluster, index, of; /* which of the cluster's replicas */
    int device;             /* whose it is in full and split; -1 in a pipeline */
    int n_stages;
    int node[CP_STAGES_MAX];      /* node[0] is the lead */
    int first[CP_STAGES_MAX + 1]; /* stage j holds the blocks first[j] to first[j + 1] - 1 */
    int slots[CP_STAGES_MAX];
};

/* How many a cluster has; one of them; all of a plan, in the order of clusters, into
 * out[max_replicas], which returns their number. */
int cp_cast_replicas(const struct cp_cluster_plan *plan);
void cp_cast_replica(const struct cp_cast *cast, int cluster, const struct cp_cluster_plan *plan,
                     int index, struct cp_replica *out);
int cp_cast_all(const struct cp_cast *cast, const struct cp_plan *plan, struct cp_replica *out);

/* The node that holds a block; and the one that brings it to the edge server and gets it from
 * there: its holder on the edge server itself, else the lead. */
int cp_replica_owner(const struct cp_replica *r, int block);
int cp_cast_carrier(const struct cp_cast *cast, const struct cp_replica *r, int block);

/* Whether a node of a replica hears from the edge server by its lead only. */
bool cp_cast_behind(const struct cp_cast *cast, const struct cp_replica *r, int node);

/*
 * Whose moments a replica goes on with after a change of plan: those of the old replica of the same
 * device. The others take those of the old replicas whose device is not used any more (or that are
 * a pipeline), in order: a device that takes another's place goes on with its moments. -1: none is
 * left, the moments start at zero. And the other way round: what becomes of an old replica's.
 */
int cp_cast_origin(const struct cp_cluster_plan *before, const struct cp_cluster_plan *now,
                   int index);
int cp_cast_heir(const struct cp_cluster_plan *before, const struct cp_cluster_plan *now,
                 int index);

/* The replica that a node works for under a plan, and its stage in it; all zero and -1 for a
 * stand-by. */
int cp_cast_find(const struct cp_cast *cast, int node, const struct cp_plan *plan,
                 struct cp_replica *out);

/* The same as a stage wants it. */
void cp_cast_part(const struct cp_cast *cast, int node, const struct cp_plan *plan,
                  struct cp_part *part);

#endif
