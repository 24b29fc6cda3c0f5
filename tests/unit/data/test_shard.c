#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "data/shard.h"
#include "unit/data/help.h"

#include <math.h>

enum { N = 10000, CLASSES = 5 };

static int32_t label[N];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        label[i] = i % 50 == 0 ? CP_LABEL_IGNORE : i / 3 % CLASSES;
    }
    return 0;
}

/* Every sample belongs to exactly one cluster, in ascending order there. */
static void assert_partition(const struct cp_shards *s, int64_t n)
{
    static uint8_t seen[N];
    int64_t bad = 0;
    memset(seen, 0, sizeof seen);
    assert_int_equal(s->start[0], 0);
    assert_int_equal(s->start[s->n_clusters], n);
    for (int32_t k = 0; k < s->n_clusters; k++) {
        assert_true(cp_shards_size(s, k) >= 0);
        for (int64_t i = s->start[k]; i < s->start[k + 1]; i++) {
            bool in_range = s->sample[i] >= 0 && s->sample[i] < n;
            bad += !in_range || seen[s->sample[i]]++;
            bad += i > s->start[k] && s->sample[i] <= s->sample[i - 1];
        }
    }
    assert_int_equal(bad, 0);
}

static void test_iid(void **state)
{
    (void)state;
    static const int32_t CLUSTERS[] = {1, 2, 3, 7, 64};
    for (size_t c = 0; c < sizeof CLUSTERS / sizeof *CLUSTERS; c++) {
        struct cp_shards s;
        int32_t k = CLUSTERS[c];
        assert_ok(cp_shard(label, N, k, CP_SHARD_IID, 0, 1, &s));
        assert_partition(&s, N);
        for (int32_t i = 0; i < k; i++) {
            assert_in_range(cp_shards_size(&s, i), N / k, N / k + (N % k != 0));
        }
        cp_shards_fini(&s);
    }
}

/* Shares are drawn at random, not cut off the file: it may be sorted. */
static void test_samples_are_mixed(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct cp_shards s;
        int64_t low = 0;
        assert_ok(cp_shard(label, N, 2, (enum cp_shard_kind)kind, 1e9, 1, &s));
        for (int64_t i = 0; i < s.start[1]; i++) {
            low += s.sample[i] < N / 2;
        }
        assert_in_range(low, N / 4 - 200, N / 4 + 200);
        cp_shards_fini(&s);
    }
}

static void test_fewer_samples_than_clusters(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        for (int64_t n = 0; n < 4; n++) {
            struct cp_shards s;
            assert_ok(cp_shard(label, n, 6, (enum cp_shard_kind)kind, 1, 1, &s));
            assert_partition(&s, n);
            cp_shards_fini(&s);
        }
    }
}

/* Share of class c among the clusters: sum of squares, 1/k if even, 1 if one owner. */
static double unevenness(const struct cp_shards *s, int32_t class)
{
    double sum = 0, squares = 0;
    for (int32_t k = 0; k < s->n_clusters; k++) {
        double here = 0;
        for (int64_t i = s->start[k]; i < s->start[k + 1]; i++) {
            here += label[s->sample[i]] == class;
        }
        sum += here;
        squares += here * here;
    }
    return squares / (sum * sum);
}

/* E[sum p^2] of a symmetric Dirichlet over k is (alpha + 1) / (k alpha + 1). */
static void test_dirichlet_follows_alpha(void **state)
{
    (void)state;
    static const double ALPHA[] = {0.1, 0.5, 1, 10, 1e9};
    enum { K = 4, SEEDS = 100 };
    for (size_t a = 0; a < sizeof ALPHA / sizeof *ALPHA; a++) {
        double mean = 0, want = (ALPHA[a] + 1) / (K * ALPHA[a] + 1);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct cp_shards s;
            assert_ok(cp_shard(label, N, K, CP_SHARD_DIRICHLET, ALPHA[a], seed, &s));
            assert_partition(&s, N);
            for (int32_t c = 0; c < CLASSES; c++) {
                mean += unevenness(&s, c) / (SEEDS * (double)CLASSES);
            }
            cp_shards_fini(&s);
        }
        assert_true(fabs(mean - want) < 0.03); /* 500 draws: standard error about 0.01 */
    }
}

static void test_tiny_alpha(void **state)
{
    (void)state;
    int owners[4] = {0};
    for (uint64_t seed = 0; seed < 50; seed++) { /* all Gamma draws underflow to 0 */
        struct cp_shards s;
        assert_ok(cp_shard(label, N, 4, CP_SHARD_DIRICHLET, 1e-300, seed, &s));
        assert_partition(&s, N);
        for (int32_t c = 0; c < CLASSES; c++) {
            assert_true(unevenness(&s, c) == 1);
        }
        for (int k = 0; k < 4; k++) {
            owners[k] += cp_shards_size(&s, k) > 0;
        }
        cp_shards_fini(&s);
    }
    for (int k = 0; k < 4; k++) {
        assert_in_range(owners[k], 20, 50); /* not always the same owner */
    }
}

static bool same(const struct cp_shards *a, const struct cp_shards *b)
{
    return memcmp(a->start, b->start, ((size_t)a->n_clusters + 1) * sizeof *a->start) == 0 &&
           memcmp(a->sample, b->sample, N * sizeof *a->sample) == 0;
}

static void test_seed_decides(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct cp_shards a, b, c;
        assert_ok(cp_shard(label, N, 3, (enum cp_shard_kind)kind, 0.5, 9, &a));
        assert_ok(cp_shard(label, N, 3, (enum cp_shard_kind)kind, 0.5, 9, &b));
        assert_ok(cp_shard(label, N, 3, (enum cp_shard_kind)kind, 0.5, 10, &c));
        assert_true(same(&a, &b));
        assert_false(same(&a, &c));
        cp_shards_fini(&a);
        cp_shards_fini(&b);
        cp_shards_fini(&c);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct cp_shards s;
    static const double ALPHA[] = {0, -1, NAN, INFINITY, 2e9};
    static const int32_t BAD[] = {-1, -99, CP_MAX_CLASSES, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof ALPHA / sizeof *ALPHA; i++) {
        assert_fails(cp_shard(label, N, 3, CP_SHARD_DIRICHLET, ALPHA[i], 1, &s), CP_E_CONFIG,
                     "Dirichlet concentration");
    }
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        int32_t one[2] = {0, BAD[i]};
        assert_fails(cp_shard(one, 2, 3, CP_SHARD_IID, 1, 1, &s), CP_E_DATA, "sample 1 has");
    }
    assert_fails(cp_shard(label, N, 0, CP_SHARD_IID, 1, 1, &s), CP_E_CONFIG, "0 clusters");
    assert_fails(cp_shard(label, N, -1, CP_SHARD_IID, 1, 1, &s), CP_E_CONFIG, "-1 clusters");
    assert_fails(cp_shard(label, (int64_t)INT32_MAX + 1, 1, CP_SHARD_IID, 1, 1, &s), CP_E_DATA,
                 "2147483648 samples");
}

static void test_failing_memory(void **state)
{
    (void)state;
    struct cp_shards s;
    cp_err err;
    for_each_failing_allocation(err)
    {
        err = cp_shard(label, N, 3, CP_SHARD_DIRICHLET, 1, 1, &s);
    }
    cp_shards_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_iid),
        cmocka_unit_test(test_samples_are_mixed),
        cmocka_unit_test(test_fewer_samples_than_clusters),
        cmocka_unit_test(test_dirichlet_follows_alpha),
        cmocka_unit_test(test_tiny_alpha),
        cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
