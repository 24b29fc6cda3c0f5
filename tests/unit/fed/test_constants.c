/* constants: variance, dissimilarity and smoothness of clusters whose losses are quadratics, from
 * what their segments report; what is not known is not made up; impossible reports are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fed/constants.h"

#include <math.h>
#include <string.h>

static const struct cp_shape shape = {.layers = 1,
                                      .width = 16,
                                      .heads = 2,
                                      .ffn = 24,
                                      .max_len = 8,
                                      .vocab = 60,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12};
enum { BLOCKS = 3, MOST = 4096, CLUSTERS = 3, MICROS = 4, B = 2, LOCAL_STEPS = 6 };
enum { MODELS = CLUSTERS + 1 }; /* one more than there are pipelines */

/* F_c = sum_j curve_j / 2 (w_j - best_j)^2; the gradient of a sample has noise of that variance. */
struct loss {
    cp_real curve[MOST], best[MOST];
    double variance;
};

struct cluster {
    struct cp_mem mem;
    struct cp_segment *seg;
    struct cp_gradstat *stat;
    struct loss loss;
    struct cp_rng rng;
};

static struct cluster cluster[CLUSTERS];
static cp_real model[MOST];
static const double rho[CLUSTERS] = {0.5, 0.2, 0.3};
static const double RATE = 0.05, LEAST = 0.5, BETA = 2;

static int64_t params(int block)
{
    return cp_shape_params(&shape, block, block);
}

static void set_up(double apart, double noise)
{
    for (int c = 0; c < CLUSTERS; c++) {
        struct cluster *k = &cluster[c];
        memset(k, 0, sizeof *k);
        assert_int_equal(
            cp_segment_new(&shape, 0, BLOCKS - 1, B, 8, 1, CP_OPTIM_SGD, &k->mem, &k->seg), CP_OK);
        assert_int_equal(cp_gradstat_new(&shape, 0, BLOCKS - 1, &k->mem, &k->stat), CP_OK);
        cp_rng_init(&k->rng, 3, CP_RNG_TEST, 1, (uint32_t)c);
        for (int j = 0; j < MOST; j++) {
            k->loss.curve[j] = (cp_real)cp_rng_range(&k->rng, LEAST, BETA);
            k->loss.best[j] = (cp_real)(apart * cp_rng_normal(&k->rng));
            model[j] = 3;
        }
        k->loss.variance = noise * (c + 1);
    }
}

static void tear_down(void)
{
    for (int c = 0; c < CLUSTERS; c++) {
        cp_gradstat_free(cluster[c].stat);
        cp_segment_free(cluster[c].seg);
        assert_int_equal(cluster[c].mem.held_bytes, 0);
    }
}

static cp_real *plane(struct cluster *k, int block, enum cp_plane which)
{
    return cp_segment_plane(k->seg, block, which);
}

/* Adds one micro-batch's part of the gradient everywhere. */
static void backward(struct cluster *k)
{
    int64_t at = 0, all = cp_shape_params(&shape, 0, BLOCKS - 1);
    double sd = sqrt(k->loss.variance / (double)(all * B));
    for (int block = 0; block < BLOCKS; block++) {
        cp_real *g = plane(k, block, CP_PLANE_G), *w = plane(k, block, CP_PLANE_W);
        for (int64_t j = 0; j < params(block); j++, at++) {
            double x = (double)k->loss.curve[at] * (double)(w[j] - k->loss.best[at]);
            x += sd > 0 ? sd * cp_rng_normal(&k->rng) : 0;
            g[j] += (cp_real)(x / MICROS);
        }
    }
}

static void copy_model(struct cluster *k, bool out, double weight)
{
    cp_real *p = model;
    for (int block = 0; block < BLOCKS; block++) {
        cp_real *w = plane(k, block, CP_PLANE_W);
        for (int64_t j = 0; j < params(block); j++, p++) {
            if (out) {
                *p += (cp_real)(weight * (double)w[j]);
            } else {
                w[j] = *p;
            }
        }
    }
}

/* A round of local SGD; its first step is measured, and its first micro-batch repeated. */
static void train_round(int round)
{
    const struct cp_optim opt = {.kind = CP_OPTIM_SGD};
    for (int c = 0; c < CLUSTERS; c++) {
        struct cluster *k = &cluster[c];
        struct cp_rng first = k->rng;
        copy_model(k, false, 0);
        cp_gradstat_begin(k->stat, 1, round, 0);
        for (int h = 0; h < LOCAL_STEPS; h++) {
            bool measured = h == 0;
            if (measured) {
                cp_gradstat_open(k->stat, k->seg, h, MICROS * B);
            }
            for (int m = 0; m < MICROS; m++) {
                first = h + m == 0 ? k->rng : first;
                backward(k);
                if (measured) {
                    cp_gradstat_add(k->stat, k->seg, B);
                }
            }
            if (measured) {
                cp_gradstat_close(k->stat);
            }
            cp_segment_step(k->seg, &opt, RATE, 1);
        }
        k->rng = first;
        backward(k);
        cp_gradstat_repeat(k->stat, k->seg);
        cp_segment_zero_grad(k->seg);
        cp_rng_init(&k->rng, 4, CP_RNG_TEST, (uint32_t)round, (uint32_t)c);
    }
    memset(model, 0, sizeof model);
    for (int c = 0; c < CLUSTERS; c++) {
        copy_model(&cluster[c], true, rho[c]);
    }
}

/* sum rho |grad F_c - grad F|^2 at the model. */
static double exact_dissimilarity(void)
{
    double sum = 0;
    for (int64_t j = 0; j < cp_shape_params(&shape, 0, BLOCKS - 1); j++) {
        double each = 0, mean = 0;
        for (int c = 0; c < CLUSTERS; c++) {
            const struct loss *l = &cluster[c].loss;
            double g = (double)l->curve[j] * (double)(model[j] - l->best[j]);
            each += rho[c] * g * g;
            mean += rho[c] * g;
        }
        sum += each - mean * mean;
    }
    return sum;
}

static void begin(struct cp_constants *k, const double *weights)
{
    cp_constants_begin(k);
    for (int c = 0; c < CLUSTERS; c++) {
        cp_constants_model(k, c, c, weights[c]);
    }
}

static void take_reports(struct cp_constants *k, const double *weights)
{
    begin(k, weights);
    for (int c = 0; c < CLUSTERS; c++) {
        for (int block = 0; block < BLOCKS; block++) {
            assert_int_equal(cp_constants_add(k, c, cp_gradstat_blocks(cluster[c].stat) + block),
                             CP_OK);
        }
    }
    cp_constants_end(k);
}

static void constants_of_quadratics(void **state)
{
    (void)state;
    static const double kind[][2] = {{1, 300}, {1, 0}, {0.3, 3000}}; /* apart, noise */
    for (size_t i = 0; i < sizeof kind / sizeof kind[0]; i++) {
        struct cp_constants k;
        double apart = 0, low = INFINITY;
        set_up(kind[i][0], kind[i][1]);
        assert_int_equal(cp_constants_init(&k, &shape, CLUSTERS, MODELS), CP_OK);
        for (int round = 0; round < 30; round++) {
            apart += (exact_dissimilarity() - apart) / (round < 10 ? round + 1 : 10);
            train_round(round);
            take_reports(&k, rho);
            low = fmin(low, k.ratio[k.n_ratios - 1]);
        }
        double beta = cp_constants_beta(&k), g2 = cp_constants_dissimilarity2(&k);
        print_message("sigma^2 %.0f %.0f %.0f of %.0f %.0f %.0f; G^2 %.1f of %.1f; beta %.2f\n",
                      cp_constants_variance(&k, 0), cp_constants_variance(&k, 1),
                      cp_constants_variance(&k, 2), kind[i][1], 2 * kind[i][1], 3 * kind[i][1], g2,
                      apart, beta);
        for (int c = 0; c < CLUSTERS; c++) {
            double want = cluster[c].loss.variance;
            assert_true(fabs(cp_constants_variance(&k, c) - want) <= 0.1 * want + 1e-3);
        }
        assert_true(fabs(g2 - apart) < 0.1 * apart);
        assert_true(beta >= LEAST && beta <= BETA); /* |A dw| / |dw| lies between the curvatures */
        assert_true(low >= LEAST && low <= beta);
        cp_constants_fini(&k);
        tear_down();
    }
}

/* --- made-up reports ------------------------------------------------------------------------- */

static struct cp_gradstat_block made[CLUSTERS][BLOCKS];

/* Of every block: sigma^2 part 10 (c + 1), gradient c everywhere, curvature 3. */
static void make_reports(void)
{
    for (int c = 0; c < CLUSTERS; c++) {
        for (int block = 0; block < BLOCKS; block++) {
            struct cp_gradstat_block *b = &made[c][block];
            *b =
                (struct cp_gradstat_block){.block = block,
                                           .coords = params(block) < 512 ? (int)params(block) : 512,
                                           .variances = 1,
                                           .noise = 1,
                                           .pair = 1,
                                           .variance = 10 * (c + 1),
                                           .noise2 = 0.5,
                                           .change2 = 9 * 4 * (c + 1),
                                           .path2 = 4 * (c + 1)};
            for (int i = 0; i < b->coords; i++) {
                b->gradient[i] = (cp_real)c;
            }
        }
    }
}

static void add_made(struct cp_constants *k, const double *weights, int clusters)
{
    begin(k, weights);
    for (int block = BLOCKS - 1; block >= 0; block--) { /* any order of blocks */
        for (int c = 0; c < clusters; c++) {
            assert_int_equal(cp_constants_add(k, c, &made[c][block]), CP_OK);
        }
    }
    cp_constants_end(k);
}

static void sums_by_hand(void **state)
{
    (void)state;
    struct cp_constants k;
    double n = (double)cp_shape_params(&shape, 0, BLOCKS - 1);
    assert_int_equal(cp_constants_init(&k, &shape, CLUSTERS, MODELS), CP_OK);
    assert_true(cp_constants_variance(&k, 0) == 0 && cp_constants_beta(&k) == 0);
    make_reports();
    add_made(&k, rho, CLUSTERS);
    for (int c = 0; c < CLUSTERS; c++) {
        assert_true(cp_constants_variance(&k, c) == 30 * (c + 1));
    }
    assert_true(fabs(cp_constants_beta(&k) - 3) < 1e-12);
    /* of 0, 1, 2 with weights 0.5, 0.2, 0.3: mean 0.8, mean square 1.4; noise (1 - sum rho^2) 1.5
     */
    double want = n * (1.4 - 0.64) - 1.5 * (1 - 0.38);
    assert_true(fabs(cp_constants_dissimilarity2(&k) - want) < 1e-9 * want);
    for (int block = 0; block < BLOCKS; block++) {
        made[0][block].variance = 21;
    }
    for (int i = 0; i < 9; i++) { /* mean of 30 once and 63 nine times */
        add_made(&k, rho, CLUSTERS);
    }
    assert_true(fabs(cp_constants_variance(&k, 0) - (30 + 9 * 63) / 10.0) < 1e-9);
    for (int i = 0; i < 200; i++) { /* what was long ago is forgotten */
        add_made(&k, rho, CLUSTERS);
    }
    assert_true(fabs(cp_constants_variance(&k, 0) - 63) < 1e-6);
    made[1][2].change2 = 9 * 4 * 2 + 1000;
    for (int i = 0; i < CP_CONSTANTS_RATIOS;
         i++) { /* one high value in ten is not the percentile */
        made[1][2].change2 = i % 16 == 0 ? 1e6 : 9 * 4 * 2;
        add_made(&k, rho, CLUSTERS);
        assert_int_equal(k.n_ratios, CP_CONSTANTS_RATIOS);
    }
    assert_true(fabs(cp_constants_beta(&k) - 3) < 1e-12);
    for (int i = 0; i < CP_CONSTANTS_RATIOS / 4; i++) {
        made[1][2].change2 = 1e6;
        add_made(&k, rho, CLUSTERS);
    }
    assert_true(cp_constants_beta(&k) > 100);
    for (int block = 0; block < BLOCKS; block++) { /* estimates below 0 are told as 0 */
        made[2][block].variance = -1e6;
        made[2][block].change2 = made[1][block].change2 = made[0][block].change2 = -5;
    }
    for (int i = 0; i < CP_CONSTANTS_RATIOS; i++) {
        add_made(&k, rho, CLUSTERS);
    }
    assert_true(cp_constants_variance(&k, 2) == 0 && cp_constants_beta(&k) == 0);
    cp_constants_fini(&k);
}

/* Two models of one cluster: their variances are averaged, both count in the dissimilarity. */
static void two_models_of_a_cluster(void **state)
{
    (void)state;
    struct cp_constants k;
    double n = (double)cp_shape_params(&shape, 0, BLOCKS - 1);
    assert_int_equal(cp_constants_init(&k, &shape, CLUSTERS, MODELS), CP_OK);
    make_reports();
    cp_constants_begin(&k);
    cp_constants_model(&k, 0, 1, 0.5);
    cp_constants_model(&k, 1, 1, 0.2);
    cp_constants_model(&k, 2, 2, 0.3);
    for (int c = 0; c < CLUSTERS; c++) {
        for (int block = 0; block < BLOCKS; block++) {
            assert_int_equal(cp_constants_add(&k, c, &made[c][block]), CP_OK);
        }
    }
    cp_constants_end(&k);
    assert_int_equal(k.variance[0].rounds, 0);
    assert_true(cp_constants_variance(&k, 1) == 45 && cp_constants_variance(&k, 2) == 90);
    double want = n * (1.4 - 0.64) - 1.5 * (1 - 0.38);
    assert_true(fabs(cp_constants_dissimilarity2(&k) - want) < 1e-9 * want);
    cp_constants_fini(&k);
}

/* One thing that is missing at one block of one cluster makes only that unknown. */
static void what_is_missing_is_unknown(void **state)
{
    (void)state;
    enum { NO_VARIANCE, NO_NOISE, NO_PAIR, NO_PATH, LATE, ABSENT, FROZEN, IDLE, CASES };
    for (int i = 0; i < CASES; i++) {
        struct cp_constants k;
        double weights[CLUSTERS];
        memcpy(weights, rho, sizeof weights);
        assert_int_equal(cp_constants_init(&k, &shape, CLUSTERS, MODELS), CP_OK);
        make_reports();
        for (int block = 0; block < BLOCKS; block++) {
            struct cp_gradstat_block *b = &made[2][block];
            b->path2 *= i != NO_PATH;
            b->coords *= i != FROZEN || block > 0;
        }
        made[2][1].variances = i != NO_VARIANCE;
        made[2][1].noise = i != NO_NOISE;
        made[2][1].pair = i != NO_PAIR;
        made[2][1].step = i == LATE;
        weights[2] = i == IDLE ? 0 : weights[2];
        for (int c = 0; c < 2; c++) { /* told apart: the pair of cluster 3 would be the largest */
            made[c][0].change2 = made[c][1].change2 = made[c][2].change2 = 4 * (c + 1);
        }
        add_made(&k, weights, i == ABSENT || i == IDLE ? 2 : CLUSTERS);
        bool gone = i == ABSENT || i == IDLE;
        assert_int_equal(k.variance[0].rounds, 1);
        assert_int_equal(k.variance[2].rounds, !gone && i != NO_VARIANCE);
        assert_true(cp_constants_variance(&k, 2) == (i == FROZEN ? 60 : k.variance[2].rounds * 90));
        assert_int_equal(k.dissimilarity2.rounds, i != NO_NOISE && i != LATE && i != ABSENT);
        bool pair = !gone && i != NO_PAIR && i != NO_PATH;
        assert_true(fabs(cp_constants_beta(&k) - (pair ? 3 : 1)) < 1e-12);
        cp_constants_fini(&k);
    }
}

static void impossible_reports_are_refused(void **state)
{
    (void)state;
    struct cp_constants k;
    assert_int_equal(cp_constants_init(&k, &shape, CLUSTERS, MODELS), CP_OK);
    begin(&k, rho);
    for (int i = 0; i < 9; i++) {
        make_reports();
        struct cp_gradstat_block *b = &made[0][1];
        switch (i) {
        case 0:
            b->block = BLOCKS;
            break;
        case 1:
            b->block = -1;
            break;
        case 2:
            b->coords = 511;
            break;
        case 3:
            b->coords = 1 << 30;
            break;
        case 4:
            b->coords = -1;
            break;
        case 5:
            b->gradient[7] = (cp_real)NAN;
            break;
        case 6:
            b->variance = INFINITY;
            break;
        case 7:
            b->path2 = NAN;
            break;
        default:
            assert_int_equal(cp_constants_add(&k, 0, b), CP_OK); /* and once more below */
        }
        assert_int_equal(cp_constants_add(&k, 0, b), CP_E_PROTO);
    }
    cp_constants_end(&k);
    assert_int_equal(k.variance[0].rounds, 0);
    cp_constants_fini(&k);
    memset(&k, 7, sizeof k);
    struct cp_constants before = k;
    for (uint64_t n = 1; n <= 5; n++) {
        cp_mem_fail_at(n);
        assert_int_equal(cp_constants_init(&k, &shape, CLUSTERS, MODELS), CP_E_NOMEM);
        assert_memory_equal(&k, &before, sizeof k);
    }
    cp_mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_of_quadratics),
        cmocka_unit_test(sums_by_hand),
        cmocka_unit_test(two_models_of_a_cluster),
        cmocka_unit_test(what_is_missing_is_unknown),
        cmocka_unit_test(impossible_reports_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
