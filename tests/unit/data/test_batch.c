#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/batch.h"
#include "unit/data/help.h"

enum { PAD, UNK, CLS, SEP, A, B };
static const char VOCAB[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n";

static void make_tokens(const char *rows, int max_len, struct cp_tokens *t)
{
    struct cp_vocab *v = make_vocab(VOCAB);
    struct cp_tokenizer tok = {.vocab = v, .lower = true, .max_word = 100};
    struct cp_dataset_options opt = {0};
    struct cp_dataset ds;
    assert_ok(cp_dataset_parse("f", CP_FORMAT_CSV, rows, strlen(rows), &opt, &ds));
    assert_ok(cp_tokens_make(&tok, &ds, max_len, t));
    cp_dataset_fini(&ds);
    cp_vocab_free(v);
}

/* B02, B07: rows without words are [CLS] [SEP]; cut rows are counted. */
static void test_tokens(void **state)
{
    (void)state;
    struct cp_tokens t;
    make_tokens("text,label\na b a b,1\n,0\n\"  \",0\na,-100\nx b,1\nb b b,0\n\x01\x02,1\n", 4, &t);
    static const int32_t WANT[] = {CLS, A,   B, SEP, CLS, SEP, CLS, SEP, CLS, A,  SEP,
                                   CLS, UNK, B, SEP, CLS, B,   B,   SEP, CLS, SEP};
    static const int32_t LABEL[] = {1, 0, 0, CP_LABEL_IGNORE, 1, 0, 1};
    static const int32_t LEN[] = {4, 2, 2, 3, 4, 4, 2};
    assert_int_equal(t.n, 7);
    assert_int_equal(t.n_cut, 2);
    assert_int_equal(t.pad_id, PAD);
    assert_int_equal(t.start[7], sizeof WANT / sizeof *WANT);
    assert_memory_equal(t.id, WANT, sizeof WANT);
    assert_memory_equal(t.label, LABEL, sizeof LABEL);
    for (int64_t i = 0; i < t.n; i++) {
        assert_int_equal(cp_tokens_len(&t, i), LEN[i]);
    }
    cp_tokens_fini(&t);
}

static void test_max_len_two(void **state)
{
    (void)state;
    struct cp_tokens t;
    make_tokens("text\na b\n \n", 2, &t);
    static const int32_t WANT[] = {CLS, SEP, CLS, SEP};
    assert_memory_equal(t.id, WANT, sizeof WANT);
    assert_int_equal(t.n_cut, 1);
    cp_tokens_fini(&t);
}

static void test_max_len_too_small(void **state)
{
    (void)state;
    struct cp_vocab *v = make_vocab(VOCAB);
    struct cp_tokenizer tok = {.vocab = v, .lower = true, .max_word = 100};
    struct cp_dataset ds = {0};
    struct cp_tokens t;
    assert_fails(cp_tokens_make(&tok, &ds, 1, &t), CP_E_CONFIG, "need 2");
    cp_vocab_free(v);
}

static void test_fill(void **state)
{
    (void)state;
    struct cp_tokens t;
    int32_t ids[3 * 8], len[3], label[3], width = 0;
    make_tokens("text,label\na b a b,1\n,0\na,-100\n", 8, &t);
    memset(ids, 0x55, sizeof ids);
    const int64_t some[] = {2, 1, 0};
    cp_batch_fill(&t, some, 3, 8, ids, len, label, &width);
    static const int32_t WANT[] = {CLS, A,   SEP, PAD, PAD, PAD, CLS, SEP, PAD,
                                   PAD, PAD, PAD, CLS, A,   B,   A,   B,   SEP};
    assert_int_equal(width, 6);
    assert_memory_equal(ids, WANT, sizeof WANT);
    assert_int_equal(ids[18], 0x55555555);
    static const int32_t LEN[] = {3, 2, 6}, LABEL[] = {CP_LABEL_IGNORE, 0, 1};
    assert_memory_equal(len, LEN, sizeof LEN);
    assert_memory_equal(label, LABEL, sizeof LABEL);
    cp_batch_fill(&t, some + 1, 1, 8, ids, len, label, &width); /* only empty rows */
    assert_int_equal(width, 2);
    cp_tokens_fini(&t);
}

/* ---- the batcher ---- */

static struct cp_shards make_shards(int64_t n, int32_t clusters)
{
    static int32_t label[1000];
    struct cp_shards s;
    assert_true(n <= 1000);
    assert_ok(cp_shard(label, n, clusters, CP_SHARD_IID, 0, 4, &s));
    return s;
}

/* Any sizes of batches, over 5 epochs: each sample of the shard exactly once per epoch. */
static void check_epochs(int64_t n, int32_t cluster, struct cp_rng *r)
{
    struct cp_shards s = make_shards(n, 2);
    struct cp_batcher b;
    int64_t size = cp_shards_size(&s, cluster), left = 5 * size, at = 0, got;
    int64_t list[5000], batch[64];
    assert_ok(cp_batcher_init(&b, &s, cluster, 11, false));
    while (left > 0) {
        int64_t want = 1 + cp_rng_below(r, 64);
        want = want < left ? want : left;
        cp_batcher_next(&b, want, batch, &got);
        assert_int_equal(got, want);
        memcpy(list + at, batch, (size_t)got * sizeof *batch);
        at += got;
        left -= got;
    }
    for (int epoch = 0; epoch < 5; epoch++) {
        int seen[1000] = {0};
        for (int64_t i = 0; i < size; i++) {
            seen[list[epoch * size + i]]++;
        }
        for (int64_t i = s.start[cluster]; i < s.start[cluster + 1]; i++) {
            assert_int_equal(seen[s.sample[i]], 1);
        }
    }
    if (size >= 20) { /* and each epoch in another order */
        assert_memory_not_equal(list, list + size, (size_t)size * sizeof *list);
    }
    cp_batcher_fini(&b);
    cp_shards_fini(&s);
}

static void test_each_sample_once_per_epoch(void **state)
{
    (void)state;
    struct cp_rng r;
    cp_rng_init(&r, 2, CP_RNG_TEST, 0, 0);
    static const int64_t N[] = {1, 2, 3, 10, 41, 200, 999};
    for (size_t i = 0; i < sizeof N / sizeof *N; i++) {
        check_epochs(N[i], 0, &r);
        check_epochs(N[i], 1, &r);
    }
}

/* B13: 10 samples in batches of 8, and 3 in batches of 8, without an epoch's end inside a batch. */
static void test_last_partial_batch(void **state)
{
    (void)state;
    int64_t batch[8], got;
    struct cp_batcher b;
    struct cp_shards s = make_shards(10, 1);
    assert_ok(cp_batcher_init(&b, &s, 0, 1, true));
    static const int64_t WANT[] = {8, 2, 0, 0};
    int seen[10] = {0};
    for (size_t i = 0; i < 4; i++) {
        cp_batcher_next(&b, 8, batch, &got);
        assert_int_equal(got, WANT[i]);
        for (int64_t k = 0; k < got; k++) {
            seen[batch[k]]++;
        }
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen[i], 1);
    }
    assert_ok(cp_batcher_seek(&b, 1, 0)); /* the next epoch */
    cp_batcher_next(&b, 8, batch, &got);
    assert_int_equal(got, 8);
    cp_batcher_fini(&b);
    cp_shards_fini(&s);
    s = make_shards(3, 1);
    assert_ok(cp_batcher_init(&b, &s, 0, 1, true));
    cp_batcher_next(&b, 8, batch, &got);
    assert_int_equal(got, 3);
    cp_batcher_fini(&b);
    assert_ok(cp_batcher_init(&b, &s, 0, 1, false));
    cp_batcher_next(&b, 8, batch, &got);
    assert_int_equal(got, 8);
    assert_int_equal(b.epoch, 2);
    assert_int_equal(b.pos, 2);
    cp_batcher_next(&b, 0, batch, &got);
    assert_int_equal(got, 0);
    cp_batcher_fini(&b);
    cp_shards_fini(&s);
}

static void test_empty_shard(void **state)
{
    (void)state;
    int64_t batch[8], got = 7;
    struct cp_batcher b;
    struct cp_shards s = make_shards(1, 2);
    int32_t empty = cp_shards_size(&s, 0) == 0 ? 0 : 1;
    for (int one_epoch = 0; one_epoch < 2; one_epoch++) {
        assert_ok(cp_batcher_init(&b, &s, empty, 1, one_epoch));
        cp_batcher_next(&b, 8, batch, &got);
        assert_int_equal(got, 0);
        cp_batcher_fini(&b);
    }
    cp_shards_fini(&s);
}

/* Saved and restored at every position, also at the end of an epoch, it goes on the same. */
static void test_resume(void **state)
{
    (void)state;
    enum { N = 13, ALL = 4 * N };
    struct cp_shards s = make_shards(N, 1);
    struct cp_batcher b, c;
    int64_t all[ALL], rest[ALL], got;
    assert_ok(cp_batcher_init(&b, &s, 0, 77, false));
    cp_batcher_next(&b, ALL, all, &got);
    cp_batcher_fini(&b);
    for (int64_t at = 0; at < ALL; at++) {
        assert_ok(cp_batcher_init(&b, &s, 0, 77, false));
        cp_batcher_next(&b, at, rest, &got);
        assert_ok(cp_batcher_init(&c, &s, 0, 77, false));
        assert_ok(cp_batcher_seek(&c, b.epoch, b.pos));
        cp_batcher_next(&c, ALL - at, rest, &got);
        assert_memory_equal(rest, all + at, (size_t)(ALL - at) * sizeof *rest);
        cp_batcher_fini(&b);
        cp_batcher_fini(&c);
    }
    assert_ok(cp_batcher_init(&b, &s, 0, 77, false));
    assert_fails(cp_batcher_seek(&b, 0, N + 1), CP_E_CKPT, "cluster 0 has 13 samples");
    assert_fails(cp_batcher_seek(&b, 0, -1), CP_E_CKPT, "position is -1");
    cp_batcher_next(&b, ALL, rest, &got); /* a refused seek changes nothing */
    assert_memory_equal(rest, all, sizeof all);
    cp_batcher_fini(&b);
    cp_shards_fini(&s);
}

/* The order depends on seed and cluster. */
static void test_order_is_keyed(void **state)
{
    (void)state;
    enum { N = 50 };
    struct cp_shards s = make_shards(N, 1), two = s;
    int64_t start[3] = {0, N, 2 * N}; /* the same samples as cluster 1, too */
    int32_t sample[2 * N];
    memcpy(sample, s.sample, N * sizeof *sample);
    memcpy(sample + N, s.sample, N * sizeof *sample);
    two = (struct cp_shards){.n_clusters = 2, .start = start, .sample = sample};
    int64_t order[3][N], got;
    static const struct {
        int32_t cluster;
        uint64_t seed;
    } KEY[] = {{0, 5}, {1, 5}, {0, 6}};
    for (int i = 0; i < 3; i++) {
        struct cp_batcher b;
        assert_ok(cp_batcher_init(&b, &two, KEY[i].cluster, KEY[i].seed, false));
        cp_batcher_next(&b, N, order[i], &got);
        cp_batcher_fini(&b);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[0], order[2], sizeof order[0]);
    cp_shards_fini(&s);
}

static void test_failing_memory(void **state)
{
    (void)state;
    struct cp_vocab *v = make_vocab(VOCAB);
    struct cp_tokenizer tok = {.vocab = v, .lower = true, .max_word = 100};
    struct cp_dataset_options opt = {0};
    struct cp_dataset ds;
    struct cp_tokens t;
    struct cp_shards s = make_shards(5, 1);
    struct cp_batcher b;
    cp_err err;
    assert_ok(cp_dataset_parse("f", CP_FORMAT_CSV, "text\na b\n", 9, &opt, &ds));
    for_each_failing_allocation(err)
    {
        err = cp_tokens_make(&tok, &ds, 8, &t);
    }
    for_each_failing_allocation(err)
    {
        err = cp_batcher_init(&b, &s, 0, 1, false);
    }
    cp_batcher_fini(&b);
    cp_shards_fini(&s);
    cp_tokens_fini(&t);
    cp_dataset_fini(&ds);
    cp_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_max_len_two),
        cmocka_unit_test(test_max_len_too_small),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_each_sample_once_per_epoch),
        cmocka_unit_test(test_last_partial_batch),
        cmocka_unit_test(test_empty_shard),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_order_is_keyed),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
