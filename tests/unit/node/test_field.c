/* Data and sizes that broke other trainers, through the whole pipeline: micro-batches of empty
 * texts (field case B02), and fewer samples than a step or its micro-batches want (B13). Everything
 * ends with a finite loss, each sample is used once, and one process makes the same model. */
#include "kit.h"

#include <math.h>

static FILE *open_data(const struct kit *k, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", k->dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "text\tlabel\n");
    return f;
}

static void train_and_compare(struct kit *k, const char *const *assignments)
{
    char sha[CP_SHA256_HEX];
    if (kit_open(k, assignments) != CP_OK || kit_run(k) != CP_OK) {
        fail_msg("%s: %s", assignments[0], cp_err_text());
    }
    for (int round = 0; round < k->rounds; round++) {
        assert_true(isfinite(k->loss[round]) && k->loss[round] > 0);
    }
    kit_hash(k);
    kit_replay(k, sha);
    assert_string_equal(k->sha, sha);
}

static void write_blanks(const struct kit *k, bool some_words)
{
    static const char *const BLANK[] = {"", " ", "\xE2\x80\x8B", "\x01\x02"};
    FILE *f = open_data(k, "train.tsv");
    for (int i = 0; i < 24; i++) {
        fprintf(f, "%s\tc%d\n", some_words && i % 5 == 0 ? "red fox" : BLANK[i % 4], i % 3);
    }
    assert_int_equal(fclose(f), 0);
}

/* Micro-batches of one sample, so that most or all of them have no word at all: [CLS] [SEP]. */
static void empty_texts(void **state)
{
    (void)state;
    static const char *const ARGS[] = {"train.micro_batch=1", NULL};
    struct kit k = {0};
    char path[96];
    kit_dir(&k, 3);
    write_blanks(&k, true);
    train_and_compare(&k, ARGS);
    assert_int_equal(k.job.train.n, 24);
    assert_int_equal(cp_tokens_len(&k.job.train, 0), 4);
    assert_int_equal(cp_tokens_len(&k.job.train, 1), 2);
    kit_close(&k);

    write_blanks(&k, false);
    assert_int_equal(kit_open(&k, ARGS), CP_E_DATA); /* nothing to learn a vocabulary from */
    assert_non_null(strstr(cp_err_text(), "no word"));
    kit_close(&k);
    snprintf(path, sizeof path, "%s/vocab.txt", k.dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\n");
    assert_int_equal(fclose(f), 0);
    train_and_compare(&k, ARGS);
    kit_close(&k);
    kit_remove(&k);
}

/* rows of training data, a step of `batch` samples in `micros` micro-batches. */
static void check_sizes(int rows, const char *batch, const char *micros, const char *clusters,
                        const char *cuts, int samples_of_a_round)
{
    struct kit k = {0};
    kit_dir(&k, rows);
    train_and_compare(&k, (const char *const[]){"plan.batch_mode=fixed-batch", batch, micros,
                                                clusters, cuts, "train.local_steps=2", NULL});
    assert_int_equal(k.samples[0], samples_of_a_round);
    kit_close(&k);
    kit_remove(&k);
}

static void few_samples(void **state)
{
    (void)state;
    static const char *const MICROS[] = {"train.micro_batches=1", "train.micro_batches=2",
                                         "train.micro_batches=3"};
    /* the epoch ends with a batch of 2; then 3 samples, each once in a step */
    check_sizes(10, "train.batch=8", "train.micro_batches=4", "clusters=1x3", "plan.cuts=[[1,1,1]]",
                8 + 2);
    check_sizes(3, "train.batch=8", "train.micro_batches=4", "clusters=1x3", "plan.cuts=[[1,1,1]]",
                3 + 3);
    for (int i = 0; i < 3; i++) { /* four stages */
        check_sizes(20, "train.batch=7", MICROS[i], "clusters=1x2", "plan.cuts=[[1,2]]", 7 + 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_texts),
        cmocka_unit_test(few_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
