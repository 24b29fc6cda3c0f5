#include "node/local.h"

#include "math/gemm.h"
#include "node/member.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct cast_member {
    struct cp_member member;
    pthread_t thread;
    bool initialised, started;
};

static void *member_main(void *arg)
{
    struct cast_member *cm = arg;
    cp_err told = cp_member_run(&cm->member); /* to the edge, as FAIL */
    (void)told;
    return NULL;
}

static cp_err start(struct cp_edge *e, struct cast_member *cm, const struct cp_event_sink *events)
{
    for (int i = CP_NODE_EDGE + 1; i < e->job->cast.n_nodes; i++) {
        cm[i].initialised = true; /* fini is safe after a failed init */
        CP_TRY(cp_member_init(&cm[i].member, e->job, e->net, i, events));
        int rc = pthread_create(&cm[i].thread, NULL, member_main, &cm[i]);
        if (rc != 0) {
            return cp_fail(CP_E_NOMEM, "cannot start the thread of node %s: %s",
                           cp_net_name(e->net, i), strerror(rc));
        }
        cm[i].started = true;
    }
    return CP_OK;
}

cp_err cp_local_run(struct cp_edge *e, const struct cp_event_sink *events, int *rounds_done)
{
    struct cast_member *cm;
    char why[1024];
    CP_TRY(cp_gemm_check());
    CP_TRY(cp_mem_array(NULL, (size_t)e->job->cast.n_nodes, sizeof *cm, &cm));
    cp_err err = start(e, cm, events);
    if (!err) {
        err = cp_edge_run(e, rounds_done);
    }
    snprintf(why, sizeof why, "%s", err ? cp_err_text() : "");
    if (err) {
        cp_net_stop(e->net);
    }
    for (int i = CP_NODE_EDGE + 1; i < e->job->cast.n_nodes; i++) {
        if (cm[i].started) {
            pthread_join(cm[i].thread, NULL);
        }
    }
    cp_net_clear(e->net); /* after a failure: messages that are counted in a member's account */
    for (int i = CP_NODE_EDGE + 1; i < e->job->cast.n_nodes; i++) {
        if (cm[i].initialised) {
            cp_member_fini(&cm[i].member);
        }
    }
    cp_mem_free(cm);
    return err ? cp_fail(err, "%s", why) : CP_OK;
}
