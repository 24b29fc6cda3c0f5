/*
 * Each class draws its shares p ~ Dirichlet(alpha) by Gamma variates and is cut at the rounded
 * cumulative sums, so every sample has exactly one owner whatever the rounding. All draws are keyed
 * by the class: a class is shared out the same way whatever other classes there are.
 */
#include "data/shard.h"

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"

#include <assert.h>
#include <string.h>

/* Streams of CP_RNG_SHARD: (group of samples, what). */
enum { ALL, SHARES, ORDER };

static const double MAX_ALPHA = 1e9; /* shares are equal to 5 digits; sums cannot overflow */

static cp_err check(const int32_t *label, int64_t n, int32_t n_clusters, enum cp_shard_kind kind,
                    double alpha)
{
    if (n_clusters < 1) {
        return cp_fail(CP_E_CONFIG, "the data cannot be shared out to %d clusters", n_clusters);
    }
    if (n < 0 || n > INT32_MAX) {
        return cp_fail(CP_E_DATA, "%lld samples cannot be shared out; at most %d", (long long)n,
                       INT32_MAX);
    }
    if (kind == CP_SHARD_DIRICHLET && !(alpha > 0 && alpha <= MAX_ALPHA)) {
        return cp_fail(CP_E_CONFIG,
                       "the Dirichlet concentration is %g; it must be above 0 and at "
                       "most %g",
                       alpha, MAX_ALPHA);
    }
    for (int64_t i = 0; i < n; i++) {
        if (label[i] != CP_LABEL_IGNORE && (label[i] < 0 || label[i] >= CP_MAX_CLASSES)) {
            return cp_fail(CP_E_DATA,
                           "sample %lld has the label %d; it must be a class from 0 "
                           "below %d",
                           (long long)i, label[i], CP_MAX_CLASSES);
        }
    }
    return CP_OK;
}

/* Draws cut points: of n items cluster k gets those from cut[k] to cut[k + 1]. */
static void draw_cuts(struct cp_rng *r, double alpha, int64_t n, int32_t n_clusters, double *share,
                      int64_t *cut)
{
    double sum = 0, before = 0;
    for (int32_t k = 0; k < n_clusters; k++) {
        share[k] = cp_rng_gamma(r, alpha);
        sum += share[k];
    }
    if (!(sum > 0)) { /* all underflow: the limit alpha -> 0 is one owner */
        memset(share, 0, (size_t)n_clusters * sizeof *share);
        share[cp_rng_below(r, (uint32_t)n_clusters)] = sum = 1;
    }
    cut[0] = 0;
    for (int32_t k = 0; k < n_clusters; k++) {
        before += share[k];
        cut[k + 1] = (int64_t)(before / sum * (double)n + 0.5);
    }
    assert(cut[n_clusters] == n); /* both sums were added in the same order: the ratio is 1 */
}

static void deal(const int32_t *item, const int64_t *cut, int32_t n_clusters, int32_t *owner)
{
    for (int32_t k = 0; k < n_clusters; k++) {
        for (int64_t i = cut[k]; i < cut[k + 1]; i++) {
            owner[item[i]] = k;
        }
    }
}

struct scratch {
    int32_t *owner; /* [n] */
    int32_t *item;  /* [n] */
    int64_t *cut;   /* [n_clusters + 1] */
    double *share;  /* [n_clusters] */
    int64_t *first; /* [n_classes + 2] where a class (0: no label) begins in item */
};

static void scratch_fini(struct scratch *s)
{
    cp_mem_free(s->owner);
    cp_mem_free(s->item);
    cp_mem_free(s->cut);
    cp_mem_free(s->share);
    cp_mem_free(s->first);
}

static int32_t group_of(int32_t label)
{
    return label == CP_LABEL_IGNORE ? 0 : label + 1;
}

static void deal_iid(struct scratch *s, int64_t n, int32_t n_clusters, uint64_t seed)
{
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_SHARD, 0, ALL);
    for (int64_t i = 0; i < n; i++) {
        s->item[i] = (int32_t)i;
    }
    cp_rng_shuffle(&r, s->item, (size_t)n);
    for (int32_t k = 0; k <= n_clusters; k++) {
        s->cut[k] = n / n_clusters * k + (n % n_clusters < k ? n % n_clusters : k);
    }
    deal(s->item, s->cut, n_clusters, s->owner);
}

static void deal_dirichlet(struct scratch *s, const int32_t *label, int64_t n, int32_t n_groups,
                           int32_t n_clusters, double alpha, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) { /* a counting sort by class */
        s->first[group_of(label[i]) + 1]++;
    }
    for (int32_t g = 0; g < n_groups; g++) {
        s->first[g + 1] += s->first[g];
    }
    for (int64_t i = 0; i < n; i++) {
        s->item[s->first[group_of(label[i])]++] = (int32_t)i;
    }
    for (int32_t g = 0; g < n_groups; g++) {
        int64_t from = g ? s->first[g - 1] : 0, size = s->first[g] - from;
        struct cp_rng shares, order;
        cp_rng_init(&shares, seed, CP_RNG_SHARD, (uint32_t)g, SHARES);
        cp_rng_init(&order, seed, CP_RNG_SHARD, (uint32_t)g, ORDER);
        draw_cuts(&shares, alpha, size, n_clusters, s->share, s->cut);
        cp_rng_shuffle(&order, s->item + from, (size_t)size);
        deal(s->item + from, s->cut, n_clusters, s->owner);
    }
}

static cp_err gather(const int32_t *owner, int64_t n, int32_t n_clusters, struct cp_shards *out)
{
    struct cp_shards s = {.n_clusters = n_clusters};
    cp_err err = cp_mem_array(NULL, (size_t)n_clusters + 2, sizeof *s.start, &s.start);
    if (!err) {
        err = cp_mem_array(NULL, (size_t)n, sizeof *s.sample, &s.sample);
    }
    if (err) {
        cp_shards_fini(&s);
        return err;
    }
    /* start[k + 2] counts cluster k, then start[k + 1] is the place of its next sample, and where
     * the last pass has put all of them, start[k + 1] is the end of cluster k. */
    for (int64_t i = 0; i < n; i++) {
        s.start[owner[i] + 2]++;
    }
    for (int32_t k = 0; k < n_clusters; k++) {
        s.start[k + 2] += s.start[k + 1];
    }
    for (int64_t i = 0; i < n; i++) {
        s.sample[s.start[owner[i] + 1]++] = (int32_t)i;
    }
    *out = s;
    return CP_OK;
}

cp_err cp_shard(const int32_t *label, int64_t n, int32_t n_clusters, enum cp_shard_kind kind,
                double alpha, uint64_t seed, struct cp_shards *out)
{
    CP_TRY(check(label, n, n_clusters, kind, alpha));
    int32_t n_groups = 1;
    for (int64_t i = 0; i < n; i++) {
        int32_t g = group_of(label[i]);
        n_groups = g >= n_groups ? g + 1 : n_groups;
    }
    struct scratch s = {0};
    size_t n_cuts = (size_t)n_clusters + 1;
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n, sizeof *s.owner, &s.owner), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n, sizeof *s.item, &s.item), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, n_cuts, sizeof *s.cut, &s.cut), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, n_cuts, sizeof *s.share, &s.share), done);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)n_groups + 1, sizeof *s.first, &s.first), done);
    if (kind == CP_SHARD_IID) {
        deal_iid(&s, n, n_clusters, seed);
    } else {
        deal_dirichlet(&s, label, n, n_groups, n_clusters, alpha, seed);
    }
    err = gather(s.owner, n, n_clusters, out);
done:
    scratch_fini(&s);
    return err;
}

void cp_shards_fini(struct cp_shards *s)
{
    cp_mem_free(s->start);
    cp_mem_free(s->sample);
    *s = (struct cp_shards){0};
}
