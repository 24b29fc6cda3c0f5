/* shard: which cluster owns which sample. */
#ifndef CP_DATA_SHARD_H
#define CP_DATA_SHARD_H

#include "base/err.h"

#include <stdint.h>

enum cp_shard_kind {
    CP_SHARD_IID,       /* equal shares (sizes differ by at most 1) of all samples, at random */
    CP_SHARD_DIRICHLET, /* the samples of each class are shared out by Dirichlet(alpha) */
};

/* Cluster k owns sample[start[k]] to sample[start[k + 1] - 1], in ascending order. */
struct cp_shards {
    int32_t n_clusters;
    int64_t *start;  /* [n_clusters + 1] */
    int32_t *sample; /* [n]: every index 0..n-1 exactly once */
};

static inline int64_t cp_shards_size(const struct cp_shards *s, int32_t cluster)
{
    return s->start[cluster + 1] - s->start[cluster];
}

/* Shares out n samples with these labels (CP_LABEL_IGNORE counts as a class of its own); a function
 * of the arguments alone. A small alpha gives uneven shares, a large one nearly equal ones;
 * clusters may be empty if alpha is tiny or there are fewer samples than clusters. alpha is only
 * for CP_SHARD_DIRICHLET. E_CONFIG unless n_clusters >= 1 and 0 < alpha <= 1e9; E_DATA for a label
 * that is no class. *out is the caller's to fini. */
CP_NODISCARD cp_err cp_shard(const int32_t *label, int64_t n, int32_t n_clusters,
                             enum cp_shard_kind kind, double alpha, uint64_t seed,
                             struct cp_shards *out);

void cp_shards_fini(struct cp_shards *s);

#endif
