/* err: codes, names, sentences per thread, and texts that are too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

#include <pthread.h>
#include <string.h>

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(CP_OK, 0);
    assert_string_equal(cp_err_name(CP_OK), "OK");
    assert_string_equal(cp_err_name(CP_E_CONFIG), "E_CONFIG");
    assert_string_equal(cp_err_name(CP_E_STOPPED), "E_STOPPED");
    assert_string_equal(cp_err_name(CP_ERR_COUNT), "E_UNKNOWN");
    assert_string_equal(cp_err_name((cp_err)-1), "E_UNKNOWN");
}

static void test_sentences(void **state)
{
    (void)state;
    assert_int_equal(cp_fail(CP_E_DATA, "row %d is wrong", 3), CP_E_DATA);
    assert_string_equal(cp_err_text(), "row 3 is wrong");
    assert_int_equal(cp_fail_in(CP_E_IO, "file %s", "x"), CP_E_IO);
    assert_string_equal(cp_err_text(), "file x: row 3 is wrong");
    cp_fail(CP_E_DATA, "again: %s", cp_err_text()); /* an argument in the old sentence */
    assert_string_equal(cp_err_text(), "again: file x: row 3 is wrong");
    cp_fail_in(CP_E_DATA, "%s", cp_err_text());
    assert_string_equal(cp_err_text(),
                        "again: file x: row 3 is wrong: again: file x: row 3 is wrong");
}

static void *first_words(void *arg)
{
    (void)arg;
    cp_fail_in(CP_E_NOMEM, "here"); /* nothing was said on this thread: the default sentence */
    return strcmp(cp_err_text(), "here: out of memory") == 0 ? (void *)1 : NULL;
}

static void test_one_sentence_per_thread(void **state)
{
    (void)state;
    pthread_t t;
    void *ok;
    cp_fail(CP_E_DATA, "mine");
    assert_int_equal(pthread_create(&t, NULL, first_words, NULL), 0);
    assert_int_equal(pthread_join(t, &ok), 0);
    assert_non_null(ok);
    assert_string_equal(cp_err_text(), "mine");
}

static void test_long_texts_are_cut(void **state)
{
    (void)state;
    static char huge[5000];
    memset(huge, 'x', sizeof huge - 1);
    cp_fail(CP_E_DATA, "%s", huge);
    size_t n = strlen(cp_err_text());
    assert_in_range(n, 500, 2000);
    cp_fail_in(CP_E_DATA, "where");
    assert_memory_equal(cp_err_text(), "where: xxx", 10);
    assert_int_equal(strlen(cp_err_text()), n);
    cp_fail_in(CP_E_DATA, "%s", huge);
    assert_int_equal(strlen(cp_err_text()), n);
}

static cp_err tries(cp_err err, int *reached)
{
    CP_TRY(err);
    *reached = 1;
    return CP_OK;
}

static cp_err tries_goto(cp_err in, int *cleaned)
{
    cp_err err;
    CP_TRY_GOTO(err, in, out);
    err = CP_E_IO;
out:
    *cleaned = 1;
    return err;
}

static void test_try(void **state)
{
    (void)state;
    int reached = 0, cleaned = 0;
    assert_int_equal(tries(CP_E_PEER, &reached), CP_E_PEER);
    assert_int_equal(reached, 0);
    assert_int_equal(tries(CP_OK, &reached), CP_OK);
    assert_int_equal(reached, 1);
    assert_int_equal(tries_goto(CP_E_PLAN, &cleaned), CP_E_PLAN);
    assert_int_equal(cleaned, 1);
    assert_int_equal(tries_goto(CP_OK, &cleaned), CP_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_one_sentence_per_thread),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
