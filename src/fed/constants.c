/*
 * Dissimilarity. Model c's gradient at the round's first weights is mu_c + noise of variance v_c.
 * For independent noises E[sum rho_c |g_c|^2 - |sum rho_c g_c|^2] = sum rho_c |mu_c - mu|^2 + sum
 * rho_c (1 - rho_c) v_c, and the last sum is taken off as estimated. All models look at the same
 * coordinates (one seed, block and round), so the sums over coordinates are unbiased, too.
 */
#include "fed/constants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double PERCENTILE = 0.9;

struct cp_told_model {
    int cluster; /* -1: this model is not averaged in this round */
    double rho;
};

/* What one model told of one block. */
struct cp_told {
    bool seen, frozen, first; /* first: its gradient is of the round's first step */
    bool variance_known, noise_known, pair_known;
    double variance, noise2, change2, path2;
};

cp_err cp_constants_init(struct cp_constants *k, const struct cp_shape *s, int n_clusters,
                         int n_models)
{
    size_t clusters = (size_t)n_clusters, models = (size_t)n_models;
    size_t blocks = (size_t)cp_shape_blocks(s);
    struct cp_constants x = {.n_clusters = n_clusters, .n_models = n_models, .shape = *s};
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_array(NULL, clusters, sizeof *x.variance, &x.variance), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, models * blocks, sizeof *x.told, &x.told), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, models, sizeof *x.model, &x.model), fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, blocks * CP_GRADSTAT_COORDS, sizeof *x.mean, &x.mean),
                fail);
    CP_TRY_GOTO(err, cp_mem_array(NULL, blocks, sizeof *x.each, &x.each), fail);
    *k = x;
    return CP_OK;
fail:
    cp_constants_fini(&x);
    return err;
}

void cp_constants_fini(struct cp_constants *k)
{
    cp_mem_free(k->variance);
    cp_mem_free(k->told);
    cp_mem_free(k->model);
    cp_mem_free(k->mean);
    cp_mem_free(k->each);
    *k = (struct cp_constants){0};
}

void cp_constants_begin(struct cp_constants *k)
{
    size_t blocks = (size_t)cp_shape_blocks(&k->shape);
    for (int i = 0; i < k->n_models; i++) {
        k->model[i] = (struct cp_told_model){.cluster = -1};
    }
    memset(k->told, 0, (size_t)k->n_models * blocks * sizeof *k->told);
    memset(k->mean, 0, blocks * CP_GRADSTAT_COORDS * sizeof *k->mean);
    memset(k->each, 0, blocks * sizeof *k->each);
}

void cp_constants_model(struct cp_constants *k, int model, int cluster, double rho)
{
    k->model[model] = (struct cp_told_model){cluster, rho};
}

static bool all_finite(const struct cp_gradstat_block *b)
{
    double sum = b->variance + b->noise2 + b->change2 + b->path2;
    for (int i = 0; i < b->coords; i++) {
        sum += (double)b->gradient[i];
    }
    return isfinite(sum);
}

static cp_err check(const struct cp_constants *k, const struct cp_gradstat_block *b)
{
    int blocks = cp_shape_blocks(&k->shape);
    if (b->block < 0 || b->block >= blocks) {
        return cp_fail(CP_E_PROTO, "a report of gradients of block %d, the model has 0..%d",
                       b->block, blocks - 1);
    }
    int64_t params = cp_shape_params(&k->shape, b->block, b->block);
    int want = params < CP_GRADSTAT_COORDS ? (int)params : CP_GRADSTAT_COORDS;
    if (b->coords != 0 && b->coords != want) {
        return cp_fail(CP_E_PROTO, "a report of %d gradients of block %d, %d expected", b->coords,
                       b->block, want);
    }
    if (!all_finite(b)) {
        return cp_fail(CP_E_PROTO, "a report of the gradients of block %d is not finite", b->block);
    }
    return CP_OK;
}

cp_err cp_constants_add(struct cp_constants *k, int model, const struct cp_gradstat_block *b)
{
    CP_TRY(check(k, b));
    struct cp_told *told = &k->told[model * cp_shape_blocks(&k->shape) + b->block];
    if (told->seen) {
        return cp_fail(CP_E_PROTO, "a second report of the gradients of block %d", b->block);
    }
    *told = (struct cp_told){.seen = true,
                             .frozen = b->coords == 0,
                             .first = b->step == 0,
                             .variance_known = b->variances > 0,
                             .noise_known = b->noise != 0,
                             .pair_known = b->pair != 0,
                             .variance = b->variance,
                             .noise2 = b->noise2,
                             .change2 = b->change2,
                             .path2 = b->path2};
    int64_t params = cp_shape_params(&k->shape, b->block, b->block);
    double *mean = k->mean + (size_t)b->block * CP_GRADSTAT_COORDS, sum = 0;
    double rho = k->model[model].rho;
    for (int i = 0; i < b->coords; i++) {
        double g = (double)b->gradient[i];
        mean[i] += rho * g;
        sum += (double)cp_gradstat_weight(params, b->coords, i) * g * g;
    }
    k->each[b->block] += rho * sum;
    return CP_OK;
}

static void take_in(struct cp_constants_mean *m, double x)
{
    m->rounds += m->rounds < CP_CONSTANTS_ROUNDS;
    m->value += (x - m->value) / m->rounds;
}

/* The blocks of a model together: known is only what all its trained ones told, and nothing where
 * none is trained. In block order: the sums do not depend on who holds what. */
static struct cp_told sum_of(const struct cp_constants *k, int model)
{
    int blocks = cp_shape_blocks(&k->shape);
    struct cp_told all = {.frozen = true,
                          .first = true,
                          .variance_known = true,
                          .noise_known = true,
                          .pair_known = true};
    for (int block = 0; block < blocks; block++) {
        const struct cp_told *t = &k->told[model * blocks + block];
        if (t->frozen) {
            continue;
        }
        all.frozen = false;
        all.first &= t->first;
        all.variance_known &= t->variance_known;
        all.noise_known &= t->noise_known;
        all.pair_known &= t->pair_known;
        all.variance += t->variance;
        all.noise2 += t->noise2;
        all.change2 += t->change2;
        all.path2 += t->path2;
    }
    if (all.frozen) {
        return (struct cp_told){0};
    }
    return all;
}

/* sum over blocks of sum rho |g_c|^2 - |sum rho g_c|^2 */
static double spread(const struct cp_constants *k)
{
    double sum = 0;
    for (int block = 0; block < cp_shape_blocks(&k->shape); block++) {
        int64_t params = cp_shape_params(&k->shape, block, block);
        int coords = params < CP_GRADSTAT_COORDS ? (int)params : CP_GRADSTAT_COORDS;
        const double *mean = k->mean + (size_t)block * CP_GRADSTAT_COORDS;
        double square = 0;
        for (int i = 0; i < coords; i++) {
            square += (double)cp_gradstat_weight(params, coords, i) * mean[i] * mean[i];
        }
        sum += k->each[block] - square;
    }
    return sum;
}

static void keep_ratio(struct cp_constants *k, double ratio)
{
    if (k->n_ratios == CP_CONSTANTS_RATIOS) {
        memmove(k->ratio, k->ratio + 1, (CP_CONSTANTS_RATIOS - 1) * sizeof *k->ratio);
        k->n_ratios--;
    }
    k->ratio[k->n_ratios++] = ratio;
}

/* The models of a cluster have the same data: the mean of what they told. */
static void take_variance(struct cp_constants *k, int cluster)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < k->n_models; i++) {
        struct cp_told t = {0};
        if (k->model[i].cluster == cluster) {
            t = sum_of(k, i);
        }
        if (t.variance_known) {
            sum += t.variance;
            n++;
        }
    }
    if (n > 0) {
        take_in(&k->variance[cluster], sum / n);
    }
}

void cp_constants_end(struct cp_constants *k)
{
    double noise = 0, ratio = -1;
    bool comparable = true;
    int trained = 0;
    for (int c = 0; c < k->n_clusters; c++) {
        take_variance(k, c);
    }
    for (int i = 0; i < k->n_models; i++) {
        struct cp_told t = sum_of(k, i);
        double rho = k->model[i].rho;
        if (t.pair_known && t.path2 > 0) { /* every F_c is to be beta-smooth */
            ratio = fmax(ratio, sqrt(fmax(t.change2, 0) / t.path2));
        }
        if (rho > 0) {
            trained++;
            comparable &= t.first && t.noise_known;
            noise += rho * (1 - rho) * t.noise2;
        }
    }
    if (trained > 0 && comparable) {
        take_in(&k->dissimilarity2, spread(k) - noise);
    }
    if (ratio >= 0) {
        keep_ratio(k, ratio);
    }
}

double cp_constants_variance(const struct cp_constants *k, int cluster)
{
    return fmax(k->variance[cluster].value, 0);
}

double cp_constants_dissimilarity2(const struct cp_constants *k)
{
    return fmax(k->dissimilarity2.value, 0);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cp_constants_beta(const struct cp_constants *k)
{
    double sorted[CP_CONSTANTS_RATIOS];
    if (k->n_ratios == 0) {
        return 0;
    }
    memcpy(sorted, k->ratio, (size_t)k->n_ratios * sizeof *sorted);
    qsort(sorted, (size_t)k->n_ratios, sizeof *sorted, compare);
    return sorted[(int)(PERCENTILE * (k->n_ratios - 1) + 0.5)];
}
