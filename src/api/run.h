/* run: what a training run holds while it goes on; shared by run.c and run_folder.c. */
#ifndef CP_API_RUN_H
#define CP_API_RUN_H

#include "api/internal.h"
#include "node/edge.h"
#include "store/store.h"
#include "store/tfevents.h"
#include "store/trace.h"

#include <stdio.h>

struct cp_runner {
    const collapipe_config *cfg;
    const struct collapipe_run_options *opt;
    struct cp_job job;
    struct cp_net *net;
    struct cp_edge edge;
    struct cp_str runs_dir, dir, checkpoint;
    const char *run_id; /* the last part of dir */
    bool resumed, recorded;
    int lock;
    FILE *log, *metrics;
    struct cp_store *store;
    struct cp_tfevents *tb;
    struct cp_trace *trace;
    json_t *rounds_log; /* array */
    double wall_s;      /* training in this process */
};

static inline const struct cp_config *cp_runner_config(const struct cp_runner *r)
{
    return cp_config_of(r->cfg->conf);
}

/* Finds and locks the folder of the run to resume. */
CP_NODISCARD cp_err cp_runner_find_folder(struct cp_runner *r);

/* A new run folder with its lock, or the one that was found; head files and logs. yaml gets the
 * resolved configuration. */
CP_NODISCARD cp_err cp_runner_open_folder(struct cp_runner *r, struct cp_str *yaml);

/* The run database. It is a convenience: a warning is given, and training goes on without it. */
void cp_runner_open_store(struct cp_runner *r, const struct cp_str *yaml);

/* A file of the run folder, written whole. */
CP_NODISCARD cp_err cp_runner_write(const struct cp_runner *r, const char *name, const char *text,
                                    size_t n);

#endif
