#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "data/wordnet.h"
#include "unit/data/help.h"

/* Lines of our own in the form of data.noun. */
static const char FILE_TEXT[] =
    "  1 a line of the licence | not a gloss  \n"
    "00000001 03 n 01 thing 0 000 | a top concept  \n"
    "00000002 05 n 02 beast 0 brute 0 001 @ 00000001 n 0000 | a live thing | with a bar; \"go\"  \n"
    "00000003 06 n 01 cup 0 000 | for tea \xE0 la mode\n"
    "00000004 04 n 01 walk 0 000 | going on foot  \r\n"
    "00000005 28 n 01 day 0 000 |   twenty-four hours\n"
    "00000006 29 v 01 run 0 000 | not a noun file\n"
    "00000007 13 n 01 bread 0 000 | ";

static void assert_sample(const struct cp_dataset *ds, int64_t i, const char *text,
                          const char *class_name)
{
    assert_true(i < ds->n);
    assert_string_equal(ds->text[i], text);
    assert_string_equal(ds->class_name[ds->label[i]], class_name);
}

static void test_small_file(void **state)
{
    (void)state;
    struct cp_dataset ds;
    const char *path = temp_file(".noun", FILE_TEXT, sizeof FILE_TEXT - 1);
    assert_ok(cp_wordnet_read(path, CP_WORDNET_25, &ds));
    assert_int_equal(ds.n, 5);
    assert_int_equal(ds.n_classes, 25);
    assert_string_equal(ds.class_name[0], "act");
    assert_string_equal(ds.class_name[24], "time");
    assert_sample(&ds, 0, "a live thing | with a bar; \"go\"", "animal");
    assert_sample(&ds, 1, "for tea \xC3\xA0 la mode", "artifact");
    assert_sample(&ds, 2, "going on foot", "act");
    assert_sample(&ds, 3, "  twenty-four hours", "time");
    assert_sample(&ds, 4, "", "food");
    assert_int_equal(ds.label[3], 24);
    cp_dataset_fini(&ds);
    assert_ok(cp_wordnet_read(path, CP_WORDNET_8, &ds));
    assert_int_equal(ds.n, 3);
    assert_int_equal(ds.n_classes, 8);
    assert_sample(&ds, 0, "a live thing | with a bar; \"go\"", "animal");
    assert_int_equal(ds.label[0], 3);
    assert_sample(&ds, 1, "for tea \xC3\xA0 la mode", "artifact");
    assert_sample(&ds, 2, "", "food");
    cp_dataset_fini(&ds);
    unlink(path);
}

static void assert_refused(const char *text, const char *part)
{
    struct cp_dataset ds;
    const char *path = temp_file(".noun", text, strlen(text));
    assert_fails(cp_wordnet_read(path, CP_WORDNET_25, &ds), CP_E_DATA, part);
    unlink(path);
}

static void test_bad_files(void **state)
{
    (void)state;
    struct cp_dataset ds;
    assert_refused("", "0 samples");
    assert_refused("  only the licence\n", "0 samples");
    assert_refused("00000001 03 n 01 thing 0 000 | a top concept\n", "0 samples");
    assert_refused("  1 x\n00000001 05 n 01 beast 0 000 no bar\n", "line 2 is not a synset");
    assert_refused("00000001 5 n 01 beast 0 000 | x\n", "line 1 is not a synset");
    assert_refused("00000001 0x n 01 beast 0 000 | x\n", "line 1 is not a synset");
    assert_refused("short\n", "line 1 is not a synset");
    assert_refused("\n", "line 1 is not a synset");
    assert_fails(cp_wordnet_read("/nonexistent", CP_WORDNET_8, &ds), CP_E_IO, "wordnet-base");
}

static void test_the_real_file(void **state)
{
    (void)state;
    struct cp_dataset ds, train, held;
    if (access(CP_WORDNET_PATH, R_OK) != 0) {
        skip();
    }
    assert_ok(cp_wordnet_read(CP_WORDNET_PATH, CP_WORDNET_25, &ds));
    assert_int_equal(ds.n, 82064);
    cp_dataset_fini(&ds);
    assert_ok(cp_wordnet_read(CP_WORDNET_PATH, CP_WORDNET_8, &ds));
    assert_int_equal(ds.n, 52585);
    int64_t count[8] = {0};
    for (int64_t i = 0; i < ds.n; i++) {
        count[ds.label[i]]++;
    }
    assert_int_equal(count[0], 11587); /* artifact */
    assert_int_equal(count[1], 11087); /* person */
    assert_int_equal(count[2], 8030);  /* plant */
    assert_int_equal(count[3], 7509);  /* animal */
    assert_int_equal(count[4], 5607);  /* communication */
    assert_int_equal(count[5], 3209);  /* location */
    assert_ok(cp_dataset_split_hash(&ds, 10, 0, &train, &held));
    print_message("WordNet, 8 classes: %lld for training, %lld held out\n", (long long)train.n,
                  (long long)held.n);
    assert_int_equal(train.n + held.n, ds.n);
    assert_in_range(held.n, 5100, 5420);  /* a tenth, +-3 standard deviations */
    const char *path = temp_path(".tsv"); /* 5,000 real texts, written and read again */
    struct cp_dataset again;
    struct cp_dataset_options opt = {.labels_required = true};
    assert_ok(cp_dataset_write_tsv(&held, path));
    assert_ok(cp_dataset_read(path, &opt, &again));
    unlink(path);
    assert_int_equal(again.n, held.n);
    for (int64_t i = 0; i < held.n; i++) {
        assert_sample(&again, i, held.text[i], held.class_name[held.label[i]]);
    }
    cp_dataset_fini(&again);
    cp_dataset_fini(&held);
    cp_dataset_fini(&train);
    cp_dataset_fini(&ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_file),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_the_real_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
