/*
 * gradstat: the estimates have the right mean over draws of coordinates, over draws of samples
 * (docs/theory.md section 16 item 9) and over both in a real network; they do not depend on the
 * cut, change nothing, and say what they do not know.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "model/gradstat.h"
#include "unit/model/kit.h"

static const struct cp_shape shape = {.layers = 2,
                                      .width = 16,
                                      .heads = 2,
                                      .ffn = 24,
                                      .max_len = 8,
                                      .vocab = 60,
                                      .types = 2,
                                      .classes = 3,
                                      .norm_eps = 1e-12,
                                      .dropout = 0.1};
enum { BLOCKS = 4, HEAD = 3, T = 6 };

/* Mean and its standard error over repeats. */
struct mean {
    double sum, squares;
    int n;
};

static void mean_add(struct mean *m, double x)
{
    m->sum += x;
    m->squares += x * x;
    m->n++;
}

static void assert_mean(const struct mean *m, double want)
{
    double mean = m->sum / m->n, variance = m->squares / m->n - mean * mean;
    double error = sqrt(variance / (m->n - 1)); /* of the mean */
    if (!(fabs(mean - want) <= 4 * error + 1e-6 * fabs(want))) {
        print_error("mean %g, %g wanted, standard error %g\n", mean, want, error);
    }
    assert_true(fabs(mean - want) <= 4 * error + 1e-6 * fabs(want));
    assert_true(error < 0.05 * fabs(want)); /* close enough to see a wrong factor */
}

/* One block with gradients that the test makes up. */
struct one {
    struct cp_mem mem;
    struct cp_segment *seg;
    struct cp_gradstat *stat;
    int block;
    int64_t params;
    cp_real *g, *w;
};

static void one_new(struct one *o, int block)
{
    *o = (struct one){.mem = {.name = "one"}, .block = block};
    assert_int_equal(cp_segment_new(&shape, block, block, 2, T, 1, CP_OPTIM_SGD, &o->mem, &o->seg),
                     CP_OK);
    assert_int_equal(cp_gradstat_new(&shape, block, block, &o->mem, &o->stat), CP_OK);
    o->params = cp_shape_params(&shape, block, block);
    o->g = cp_segment_plane(o->seg, block, CP_PLANE_G);
    o->w = cp_segment_plane(o->seg, block, CP_PLANE_W);
}

static void one_free(struct one *o)
{
    cp_gradstat_free(o->stat);
    cp_segment_free(o->seg);
    assert_int_equal(o->mem.held_bytes, 0);
}

/* Labelled samples per micro-batch: uneven, one has none. */
static const int SIZES[] = {3, 1, 0, 2, 2};
enum { MICROS = sizeof SIZES / sizeof SIZES[0], SAMPLES = 8 };

/* A step whose samples' gradients are mean[j] + sd x normal; the segment adds them up. */
static void feed_step(struct one *o, int32_t step, const cp_real *mean, double sd, struct cp_rng *r)
{
    memset(o->g, 0, (size_t)o->params * sizeof *o->g);
    cp_gradstat_open(o->stat, o->seg, step, SAMPLES);
    for (int m = 0; m < MICROS; m++) {
        for (int64_t j = 0; j < o->params && SIZES[m] > 0; j++) {
            double noise = sd > 0 ? sd * sqrt(SIZES[m]) * cp_rng_normal(r) : 0;
            o->g[j] += (cp_real)((SIZES[m] * (double)mean[j] + noise) / SAMPLES);
        }
        cp_gradstat_add(o->stat, o->seg, SIZES[m]);
    }
    cp_gradstat_close(o->stat);
}

/* The first micro-batch of feed_step(), drawn with the generator of unbiased_over_coordinates(),
 * with a mean gradient that is 3 d further. */
static void repeat(struct one *o, const cp_real *mean, const cp_real *d)
{
    struct cp_rng r;
    cp_rng_init(&r, 4, CP_RNG_TEST, 3, 0);
    for (int64_t j = 0; j < o->params; j++) {
        double noise = sqrt(SIZES[0]) * cp_rng_normal(&r);
        o->g[j] = (cp_real)((SIZES[0] * ((double)mean[j] + 3 * (double)d[j]) + noise) / SAMPLES);
    }
    cp_gradstat_repeat(o->stat, o->seg);
}

static void draw_reals(cp_real *x, int64_t n, uint64_t seed)
{
    struct cp_rng r;
    cp_rng_init(&r, seed, CP_RNG_TEST, 1, 0);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (cp_real)cp_rng_normal(&r);
    }
}

static double squares(const cp_real *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

enum { MOST = 4096 };

/* All coordinates of the head, many draws of samples: sigma^2 = sd^2 x parameters, in the first
 * step and, with another mean, in a second one. */
static void unbiased_over_samples(void **state)
{
    (void)state;
    static cp_real mean[MOST], moved[MOST];
    struct one o;
    struct cp_rng r;
    struct mean variance = {0}, noise = {0};
    one_new(&o, HEAD);
    assert_true(o.params < CP_GRADSTAT_COORDS);
    draw_reals(mean, o.params, 1);
    draw_reals(moved, o.params, 2);
    cp_rng_init(&r, 3, CP_RNG_TEST, 2, 0);
    for (int i = 0; i < 1500; i++) {
        cp_gradstat_begin(o.stat, 5, i, 0);
        feed_step(&o, 0, mean, 2, &r);
        feed_step(&o, 7, moved, 2, &r);
        const struct cp_gradstat_block *k = cp_gradstat_blocks(o.stat);
        assert_int_equal(k->block, HEAD);
        assert_int_equal(k->coords, o.params);
        assert_true(k->step == 0 && k->variances == 2 && k->noise && !k->pair);
        mean_add(&variance, k->variance);
        mean_add(&noise, k->noise2);
    }
    double sigma2 = 4 * (double)o.params;
    assert_mean(&variance, sigma2);
    assert_mean(&noise, sigma2 / SAMPLES);
    one_free(&o);
}

/* A fixed set of gradients, many draws of coordinates: means are those of all coordinates. */
static void unbiased_over_coordinates(void **state)
{
    (void)state;
    static cp_real mean[MOST], sum[MOST], d[MOST];
    struct one o;
    struct mean variance = {0}, path = {0}, change = {0}, size = {0};
    one_new(&o, 1);
    assert_true(o.params > 3 * CP_GRADSTAT_COORDS && o.params % CP_GRADSTAT_COORDS != 0);
    draw_reals(d, o.params, 2);
    for (int64_t i = 0; i < o.params; i++) {
        mean[i] = i < o.params / 7 ? 3 : (cp_real)0.1; /* nothing like it elsewhere */
        d[i] *= i % 11 == 0;
    }
    double exact = 0; /* over all coordinates, from the definition in section 8 */
    for (int i = 0; i < 600; i++) {
        struct cp_rng r;
        cp_rng_init(&r, 4, CP_RNG_TEST, 3, 0); /* the same samples */
        cp_gradstat_begin(o.stat, 6, i, 0);
        memset(o.w, 0, (size_t)o.params * sizeof *o.w);
        feed_step(&o, 0, mean, 1, &r);
        memcpy(sum, o.g, (size_t)o.params * sizeof *sum);
        memcpy(o.w, d, (size_t)o.params * sizeof *o.w);
        repeat(&o, mean, d);
        const struct cp_gradstat_block *k = cp_gradstat_blocks(o.stat);
        assert_int_equal(k->coords, CP_GRADSTAT_COORDS);
        double estimate = 0;
        for (int j = 0; j < k->coords; j++) {
            double x = (double)k->gradient[j];
            estimate += (double)cp_gradstat_weight(o.params, k->coords, j) * x * x;
        }
        mean_add(&size, estimate);
        mean_add(&path, k->path2);
        mean_add(&change, k->change2);
        mean_add(&variance, k->noise2 * SAMPLES);
    }
    struct cp_rng r;
    cp_rng_init(&r, 4, CP_RNG_TEST, 3, 0);
    for (int m = 0; m < MICROS; m++) {
        for (int64_t j = 0; j < o.params && SIZES[m] > 0; j++) {
            double g = (double)mean[j] + cp_rng_normal(&r) / sqrt(SIZES[m]);
            exact += SIZES[m] * g * g;
        }
    }
    exact = (exact - SAMPLES * squares(sum, o.params)) / (MICROS - 2); /* one has no samples */
    assert_mean(&size, squares(sum, o.params));
    assert_mean(&path, squares(d, o.params));
    assert_mean(&change, 9 * squares(d, o.params));
    assert_mean(&variance, exact);
    one_free(&o);
}

/* Runs cover a block: weights add up to it, whatever its size. */
static void weights_cover_the_block(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 7, 511, 512, 513, 1000, 23837184, 2147483647};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int coords = sizes[i] < CP_GRADSTAT_COORDS ? (int)sizes[i] : CP_GRADSTAT_COORDS;
        int64_t sum = 0;
        for (int j = 0; j < coords; j++) {
            int64_t x = cp_gradstat_weight(sizes[i], coords, j);
            assert_true(x >= sizes[i] / coords && x <= sizes[i] / coords + 1);
            sum += x;
        }
        assert_true(sum == sizes[i]);
    }
}

/* --- a real network -------------------------------------------------------------------------- */

struct network {
    struct chain c;
    struct cp_gradstat *stat[KIT_SEGMENTS];
};

static void network_new(struct network *n, int cuts, const int *cut)
{
    chain_new(&n->c, &shape, cuts, cut, 2, T, 1, CP_OPTIM_SGD);
    chain_init(&n->c, 21);
    for (int i = 0; i < n->c.n; i++) {
        assert_int_equal(cp_gradstat_new(&shape, cp_segment_first(n->c.seg[i]),
                                         cp_segment_last(n->c.seg[i]), &n->c.mem, &n->stat[i]),
                         CP_OK);
    }
}

static void network_free(struct network *n)
{
    for (int i = 0; i < n->c.n; i++) {
        cp_gradstat_free(n->stat[i]);
    }
    chain_free(&n->c);
}

static const struct cp_gradstat_block *block_report(const struct network *n, int block)
{
    for (int i = 0; i < n->c.n; i++) {
        if (cp_segment_has(n->c.seg[i], block)) {
            return cp_gradstat_blocks(n->stat[i]) + (block - cp_segment_first(n->c.seg[i]));
        }
    }
    fail();
    return NULL;
}

/* One step of `micros` micro-batches of two samples from a pool, measured or not. */
enum { POOL = 12 };

static void network_step(struct network *n, int step, int micros, bool measured, struct cp_rng *r)
{
    struct cp_optim opt = {.kind = CP_OPTIM_SGD};
    for (int i = 0; i < n->c.n && measured; i++) {
        cp_gradstat_open(n->stat[i], n->c.seg[i], step, 2 * micros);
    }
    for (int m = 0; m < micros; m++) {
        struct kit_micro k = {0};
        k.m = (struct cp_micro){.b = 2,
                                .t = T,
                                .len = k.len,
                                .sample = k.sample,
                                .ids = k.ids,
                                .label = k.label,
                                .step_labelled = 2 * micros,
                                .train = true};
        for (int i = 0; i < 2; i++) {
            struct kit_micro one;
            uint32_t which = cp_rng_below(r, POOL);
            kit_micro(&one, &shape, 1, T, 400 + which);
            memcpy(k.ids + i * T, one.ids, T * sizeof *k.ids);
            k.label[i] = one.label[0];
            k.sample[i] = which; /* with a mask of its own, always the same */
            k.len[i] = T;
        }
        (void)chain_forward(&n->c, 0, &k.m, NULL);
        chain_backward(&n->c, 0, &k.m);
        for (int i = 0; i < n->c.n && measured; i++) {
            cp_gradstat_add(n->stat[i], n->c.seg[i], 2);
        }
    }
    for (int i = 0; i < n->c.n && measured; i++) {
        cp_gradstat_close(n->stat[i]);
    }
    chain_step(&n->c, &opt, 0.1, 1);
}

static void network_repeat(struct network *n)
{
    struct kit_micro k;
    kit_micro(&k, &shape, 2, T, 5);
    (void)chain_forward(&n->c, 0, &k.m, NULL);
    chain_backward(&n->c, 0, &k.m);
    for (int i = 0; i < n->c.n; i++) {
        cp_gradstat_repeat(n->stat[i], n->c.seg[i]);
        cp_segment_zero_grad(n->c.seg[i]);
    }
}

/* Repeated steps at the same weights against the variance over the pool, sample by sample. */
static void unbiased_in_a_network(void **state)
{
    (void)state;
    struct network n;
    struct mean estimate[BLOCKS] = {{0}};
    double exact[BLOCKS] = {0};
    static cp_real mean[BLOCKS][MOST];
    network_new(&n, 0, NULL);
    for (int i = 0; i < POOL; i++) {
        struct kit_micro k;
        kit_micro(&k, &shape, 1, T, 400 + (uint64_t)i);
        k.sample[0] = i;
        k.m.seed = k.m.step = 0;
        (void)chain_forward(&n.c, 0, &k.m, NULL);
        chain_backward(&n.c, 0, &k.m);
        for (int block = 0; block < BLOCKS; block++) {
            cp_real *g = chain_plane(&n.c, block, CP_PLANE_G);
            int64_t params = cp_shape_params(&shape, block, block);
            exact[block] += squares(g, params) / POOL;
            for (int64_t j = 0; j < params; j++) {
                mean[block][j] += g[j] / POOL;
            }
        }
        cp_segment_zero_grad(n.c.seg[0]);
    }
    struct cp_rng r;
    cp_rng_init(&r, 8, CP_RNG_TEST, 4, 0);
    for (int i = 0; i < 600; i++) {
        chain_init(&n.c, 21);
        cp_gradstat_begin(n.stat[0], 9, i, 0);
        network_step(&n, 0, 4, true, &r);
        for (int block = 0; block < BLOCKS; block++) {
            mean_add(&estimate[block], block_report(&n, block)->variance);
        }
    }
    for (int block = 0; block < BLOCKS; block++) {
        exact[block] -= squares(mean[block], cp_shape_params(&shape, block, block));
        assert_mean(&estimate[block], exact[block]);
    }
    network_free(&n);
}

/* Any cut reports the same of every block to the last bit, and trains to the same weights as
 * without being looked at. */
static void neither_cut_nor_looking_matters(void **state)
{
    (void)state;
    static const int cuts[][3] = {{1, 2, 3}, {2, 0, 0}, {0, 0, 0}};
    static const int n_cuts[] = {3, 1, 0};
    struct network n[3], blind;
    for (int i = 0; i < 4; i++) {
        struct network *x = i < 3 ? &n[i] : &blind;
        struct cp_rng r;
        network_new(x, n_cuts[i % 3], cuts[i % 3]);
        cp_rng_init(&r, 5, CP_RNG_TEST, 5, 0);
        for (int j = 0; j < x->c.n && i < 3; j++) {
            cp_gradstat_begin(x->stat[j], 3, 2, 0);
        }
        for (int step = 0; step < 4; step++) {
            network_step(x, step, 3, i < 3 && step % 2 == 0, &r);
        }
        if (i < 3) {
            network_repeat(x);
        }
    }
    for (int block = 0; block < BLOCKS; block++) {
        const struct cp_gradstat_block *a = block_report(&n[0], block);
        assert_true(a->step == 0 && a->pair == 1 && a->path2 > 0 && a->variance > 0);
        size_t bytes = chain_block_bytes(&n[0].c, block);
        for (int i = 1; i < 3; i++) {
            assert_memory_equal(a, block_report(&n[i], block), sizeof *a);
        }
        for (int i = 0; i < 3; i++) {
            assert_memory_equal(chain_plane(&n[i].c, block, CP_PLANE_W),
                                chain_plane(&blind.c, block, CP_PLANE_W), bytes);
        }
    }
    for (int i = 0; i < 4; i++) {
        network_free(i < 3 ? &n[i] : &blind);
    }
}

/* Another round looks elsewhere; the same round at the same places. */
static void a_round_draws_its_sample(void **state)
{
    (void)state;
    struct one o;
    cp_real first[CP_GRADSTAT_COORDS];
    one_new(&o, 1);
    draw_reals(o.w, o.params, 3);
    for (int round = 0; round < 3; round++) { /* 0, 1, 0 */
        static cp_real mean[MOST];
        draw_reals(mean, o.params, 7);
        cp_gradstat_begin(o.stat, 1, round % 2, 0);
        feed_step(&o, 0, mean, 0, NULL);
        const cp_real *g = cp_gradstat_blocks(o.stat)->gradient;
        if (round == 0) {
            memcpy(first, g, sizeof first);
        }
        assert_int_equal(memcmp(first, g, sizeof first) == 0, round != 1);
    }
    one_free(&o);
}

static void says_what_it_does_not_know(void **state)
{
    (void)state;
    struct one o;
    static cp_real mean[MOST];
    struct cp_rng r;
    one_new(&o, 1);
    draw_reals(mean, o.params, 7);
    cp_rng_init(&r, 5, CP_RNG_TEST, 6, 0);
    const struct cp_gradstat_block *k = cp_gradstat_blocks(o.stat);
    cp_gradstat_begin(o.stat, 1, 0, 0);
    assert_true(k->step == -1 && !k->variances && !k->noise && !k->pair);
    for (int step = 2; step < 4; step++) { /* one micro-batch: a gradient, no variance */
        cp_gradstat_open(o.stat, o.seg, step, 2);
        cp_gradstat_add(o.stat, o.seg, 2);
        cp_gradstat_add(o.stat, o.seg, 0);
        cp_gradstat_close(o.stat);
        assert_true(k->step == 2 && !k->variances && !k->noise && !k->pair);
    }
    feed_step(&o, 4, mean, 1, &r);
    assert_true(k->step == 2 && k->variances == 1 && !k->noise && !k->pair);
    cp_gradstat_repeat(o.stat, o.seg);
    assert_true(k->pair);
    cp_gradstat_begin(o.stat, 1, 0, 0); /* no label in the first micro-batch: nothing to repeat */
    cp_gradstat_repeat(o.stat, o.seg);
    cp_gradstat_open(o.stat, o.seg, 0, 2);
    cp_gradstat_add(o.stat, o.seg, 0);
    cp_gradstat_add(o.stat, o.seg, 2);
    cp_gradstat_close(o.stat);
    cp_gradstat_repeat(o.stat, o.seg);
    assert_true(k->step == 0 && !k->pair);
    cp_gradstat_begin(o.stat, 1, 0, 2); /* frozen */
    feed_step(&o, 0, mean, 1, &r);
    feed_step(&o, 1, mean, 1, &r);
    cp_gradstat_repeat(o.stat, o.seg);
    assert_true(k->coords == 0 && k->variance == 0 && k->change2 == 0 && k->path2 == 0);
    one_free(&o);
}

static void bytes_are_counted(void **state)
{
    (void)state;
    struct cp_mem mem = {.name = "m"};
    struct cp_gradstat *g = NULL;
    for (int last = 0; last < BLOCKS; last++) {
        assert_int_equal(cp_gradstat_new(&shape, 0, last, &mem, &g), CP_OK);
        assert_int_equal(mem.held_bytes, cp_gradstat_bytes(0, last));
        assert_true(mem.held_bytes < (size_t)(last + 1) * 10240 + 1024);
        cp_gradstat_free(g);
        assert_int_equal(mem.held_bytes, 0);
    }
    g = NULL;
    cp_mem_fail_at(1);
    assert_int_equal(cp_gradstat_new(&shape, 0, 1, &mem, &g), CP_E_NOMEM);
    assert_null(g);
    cp_gradstat_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unbiased_over_samples),
        cmocka_unit_test(unbiased_over_coordinates),
        cmocka_unit_test(weights_cover_the_block),
        cmocka_unit_test(unbiased_in_a_network),
        cmocka_unit_test(neither_cut_nor_looking_matters),
        cmocka_unit_test(a_round_draws_its_sample),
        cmocka_unit_test(says_what_it_does_not_know),
        cmocka_unit_test(bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
