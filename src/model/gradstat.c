/*
 * Why the estimates are unbiased.
 *
 * Coordinates. A block's N parameters are cut into n runs of s_i elements, one coordinate J_i is
 * drawn evenly from each run. For any vector x: E sum_i s_i x_{J_i}^2 = sum_i s_i (1/s_i)
 * sum_{j in run i} x_j^2 = |x|^2. The draw knows nothing of the gradients, so this holds given
 * them, for sums of squares of differences and of means alike. The draw is new in every round:
 * otherwise a mean over rounds would keep the error of one sample for ever.
 *
 * Variance. Micro-batch m has n_m of the step's n labelled samples, and adds u_m = (n_m / n) g_m
 * where g_m is its mean gradient, with E g_m = mu and E|g_m - mu|^2 = sigma^2 / n_m; the step's
 * gradient is g = sum_m u_m. With M micro-batches
 *     E sum_m (n^2 / n_m) |u_m|^2 = sum_m n_m E|g_m|^2 = M sigma^2 + n |mu|^2,
 *     E n |g|^2 = sigma^2 + n |mu|^2,
 * so that the difference divided by M - 1 has the mean sigma^2. For n_m = b this is the estimator
 * of section 8.
 *
 * Change. The same samples with the same dropout at other weights: no noise comes between, and
 * |g'_m - g_m| / |w' - w| is at most the smoothness of this micro-batch's loss. Its mean square is
 * at least that of the whole loss. (The gradients of different batches are of no use here: their
 * noise does not shrink with the step that was made, so what is left of it after a correction is as
 * large as the change itself, and the first one's noise has moved the weights, too.)
 */
#include "model/gradstat.h"

#include "base/rng.h"

#include <assert.h>
#include <string.h>

/* What a block keeps beside its report. */
struct sample {
    int32_t index[CP_GRADSTAT_COORDS];
    cp_real last[CP_GRADSTAT_COORDS];    /* gradient after the last micro-batch */
    cp_real weights[CP_GRADSTAT_COORDS]; /* at the first measured step */
    cp_real single[CP_GRADSTAT_COORDS];  /* its gradient after its first micro-batch */
    double squares;                      /* sum over m of (n^2 / n_m) |u_m|^2 */
};

struct cp_gradstat {
    struct cp_shape shape;
    int first, last;
    int32_t step;          /* under way */
    int64_t samples;       /* n of it */
    int added, micros;     /* micro-batches of it so far; those with labelled samples */
    double single;         /* n / n_0 of the first measured step; 0: its first one had no label */
    struct sample *sample; /* [last - first + 1] */
    struct cp_gradstat_block *block;
};

size_t cp_gradstat_bytes(int first, int last)
{
    size_t n = (size_t)(last - first + 1);
    return cp_arena_round(sizeof(struct cp_gradstat)) + cp_arena_round(n * sizeof(struct sample)) +
           n * sizeof(struct cp_gradstat_block);
}

cp_err cp_gradstat_new(const struct cp_shape *s, int first, int last, struct cp_mem *mem,
                       struct cp_gradstat **out)
{
    char *p = NULL;
    size_t n = (size_t)(last - first + 1);
    CP_TRY(cp_mem_new(mem, cp_gradstat_bytes(first, last), &p));
    struct cp_gradstat *g = (struct cp_gradstat *)(void *)p;
    p += cp_arena_round(sizeof *g);
    *g = (struct cp_gradstat){.shape = *s, .first = first, .last = last};
    g->sample = (struct sample *)(void *)p;
    g->block = (struct cp_gradstat_block *)(void *)(p + cp_arena_round(n * sizeof(struct sample)));
    *out = g;
    return CP_OK;
}

void cp_gradstat_free(struct cp_gradstat *g)
{
    cp_mem_free(g);
}

const struct cp_gradstat_block *cp_gradstat_blocks(const struct cp_gradstat *g)
{
    return g->block;
}

/* Where run i of n runs over N parameters begins; both below 2^31. */
static int64_t run_start(int64_t params, int coords, int i)
{
    return params * i / coords;
}

int64_t cp_gradstat_weight(int64_t params, int coords, int i)
{
    return run_start(params, coords, i + 1) - run_start(params, coords, i);
}

void cp_gradstat_begin(struct cp_gradstat *g, uint64_t seed, int32_t round, int first_trained)
{
    g->single = 0;
    for (int block = g->first; block <= g->last; block++) {
        struct sample *s = &g->sample[block - g->first];
        struct cp_gradstat_block *k = &g->block[block - g->first];
        int64_t params = cp_shape_params(&g->shape, block, block);
        struct cp_rng r;
        memset(k, 0, sizeof *k);
        k->block = block;
        k->step = -1;
        if (block >= first_trained) {
            k->coords = params < CP_GRADSTAT_COORDS ? (int32_t)params : CP_GRADSTAT_COORDS;
        }
        cp_rng_init(&r, seed, CP_RNG_GRADSTAT, (uint32_t)block, (uint32_t)round);
        for (int i = 0; i < k->coords; i++) {
            uint32_t run = (uint32_t)cp_gradstat_weight(params, k->coords, i);
            s->index[i] = (int32_t)(run_start(params, k->coords, i) + cp_rng_below(&r, run));
        }
    }
}

void cp_gradstat_open(struct cp_gradstat *g, struct cp_segment *seg, int32_t step, int64_t samples)
{
    assert(samples > 0);
    g->step = step;
    g->samples = samples;
    g->added = g->micros = 0;
    for (int block = g->first; block <= g->last; block++) {
        struct sample *s = &g->sample[block - g->first];
        const struct cp_gradstat_block *k = &g->block[block - g->first];
        const cp_real *w = cp_segment_plane(seg, block, CP_PLANE_W);
        memset(s->last, 0, sizeof s->last);
        s->squares = 0;
        for (int i = 0; i < k->coords && k->step < 0; i++) {
            s->weights[i] = w[s->index[i]];
        }
    }
}

static void keep_single(struct cp_gradstat *g, int64_t samples)
{
    for (int block = g->first; block <= g->last; block++) {
        struct sample *s = &g->sample[block - g->first];
        memcpy(s->single, s->last, sizeof s->single);
    }
    g->single = (double)g->samples / (double)samples;
}

void cp_gradstat_add(struct cp_gradstat *g, struct cp_segment *seg, int64_t samples)
{
    bool first = g->added++ == 0 && g->block[0].step < 0;
    if (samples == 0) {
        return; /* its gradient is 0 */
    }
    double n = (double)g->samples;
    g->micros++;
    for (int block = g->first; block <= g->last; block++) {
        struct sample *s = &g->sample[block - g->first];
        const struct cp_gradstat_block *k = &g->block[block - g->first];
        const cp_real *now = cp_segment_plane(seg, block, CP_PLANE_G);
        int64_t params = cp_shape_params(&g->shape, block, block);
        double sum = 0;
        for (int i = 0; i < k->coords; i++) {
            cp_real x = now[s->index[i]];
            double u = (double)x - (double)s->last[i];
            sum += (double)cp_gradstat_weight(params, k->coords, i) * u * u;
            s->last[i] = x;
        }
        s->squares += n * n / (double)samples * sum;
    }
    if (first) {
        keep_single(g, samples);
    }
}

void cp_gradstat_close(struct cp_gradstat *g)
{
    double n = (double)g->samples;
    for (int block = g->first; block <= g->last; block++) {
        struct sample *s = &g->sample[block - g->first];
        struct cp_gradstat_block *k = &g->block[block - g->first];
        int64_t params = cp_shape_params(&g->shape, block, block);
        double mean2 = 0, variance = 0;
        for (int i = 0; i < k->coords; i++) {
            double x = (double)s->last[i];
            mean2 += (double)cp_gradstat_weight(params, k->coords, i) * x * x;
        }
        if (g->micros >= 2) {
            variance = (s->squares - n * mean2) / (g->micros - 1);
            k->variances++;
            k->variance += (variance - k->variance) / k->variances;
        }
        if (k->step < 0) {
            k->step = g->step;
            k->noise = g->micros >= 2;
            k->noise2 = variance / n;
            memcpy(k->gradient, s->last, sizeof k->gradient);
        }
    }
}

void cp_gradstat_repeat(struct cp_gradstat *g, struct cp_segment *seg)
{
    for (int block = g->first; block <= g->last && g->single > 0; block++) {
        const struct sample *s = &g->sample[block - g->first];
        struct cp_gradstat_block *k = &g->block[block - g->first];
        const cp_real *now = cp_segment_plane(seg, block, CP_PLANE_G);
        const cp_real *w = cp_segment_plane(seg, block, CP_PLANE_W);
        int64_t params = cp_shape_params(&g->shape, block, block);
        k->pair = 1;
        k->change2 = k->path2 = 0;
        for (int i = 0; i < k->coords; i++) {
            double weight = (double)cp_gradstat_weight(params, k->coords, i);
            double dg = g->single * ((double)now[s->index[i]] - (double)s->single[i]);
            double dw = (double)w[s->index[i]] - (double)s->weights[i];
            k->change2 += weight * dg * dg;
            k->path2 += weight * dw * dw;
        }
    }
}
