/* job_data: the parts of cp_job_init() that read files, and divide texts. */
#ifndef CP_NODE_JOB_DATA_H
#define CP_NODE_JOB_DATA_H

#include "node/job.h"

/* out: folder/path, or path itself if it is absolute. */
void cp_job_path(struct cp_str *out, const char *folder, const char *path);

/* Data sets, vocabulary, and the sizes of the model that follow from them. */
CP_NODISCARD cp_err cp_job_load_data(struct cp_job *job, const char *folder);

/* Ids of all texts. */
CP_NODISCARD cp_err cp_job_tokenize(struct cp_job *job);

/* Which cluster owns which sample, and the order of evaluation. The clusters are known by now. */
CP_NODISCARD cp_err cp_job_draw_shards(struct cp_job *job);

/* A world's trace; its bytes are part of the data. The clusters are known by now. */
CP_NODISCARD cp_err cp_job_read_trace(struct cp_job *job, const char *folder, const char *file,
                                      struct cp_world_trace **out);

#endif
