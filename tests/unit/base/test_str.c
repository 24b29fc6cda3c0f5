/* str: growing texts, whole files, atomic writes, folders, nearest words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"
#include "unit/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_grows(void **state)
{
    (void)state;
    struct cp_str s = {0};
    assert_string_equal(cp_str_text(&s), "");
    for (int i = 0; i < 1000; i++) {
        cp_str_printf(&s, "%d,", i);
    }
    assert_int_equal(s.len, strlen(s.p));
    assert_memory_equal(s.p, "0,1,2,", 6);
    assert_string_equal(s.p + s.len - 4, "999,");
    cp_str_clear(&s);
    assert_string_equal(cp_str_text(&s), "");
    cp_str_add(&s, "a\0b", 3);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.p, "a\0b", 4);
    assert_int_equal(cp_str_check(&s), CP_OK);
    cp_str_fini(&s);
    assert_null(s.p);
}

static void test_remembers_failure(void **state)
{
    (void)state;
    struct cp_str s = {0};
    cp_str_puts(&s, "ab");
    cp_str_add(&s, "x", SIZE_MAX / 2);
    cp_str_puts(&s, "cd"); /* after a loss nothing is added any more */
    assert_string_equal(cp_str_text(&s), "ab");
    assert_int_equal(cp_str_check(&s), CP_E_NOMEM);
    cp_str_fini(&s);
}

static void test_file_read(void **state)
{
    (void)state;
    struct cp_str s = {0};
    const char *path = in_dir("f");
    assert_int_equal(cp_file_read(path, 10, &s), CP_E_IO);
    assert_non_null(strstr(cp_err_text(), path));
    assert_int_equal(cp_file_read(dir, 10, &s), CP_E_IO);
    assert_int_equal(cp_file_write(path, "0123456789", 10), CP_OK);
    assert_int_equal(cp_file_read(path, 10, &s), CP_OK);
    assert_string_equal(s.p, "0123456789");
    assert_int_equal(cp_file_read(path, 9, &s), CP_E_DATA);
    assert_int_equal(cp_file_write(path, "", 0), CP_OK);
    assert_int_equal(cp_file_read(path, 0, &s), CP_OK);
    assert_int_equal(s.len, 0);
    assert_string_equal(s.p, "");
    cp_str_fini(&s);
}

/* A write that fails half way leaves the old file and no temporary one. */
static void test_file_write_is_atomic(void **state)
{
    (void)state;
    static char big[1 << 16];
    const char *path = in_dir("g");
    struct rlimit keep, small;
    struct cp_str s = {0};
    assert_int_equal(cp_file_write(path, "old", 3), CP_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &keep), 0);
    small = keep;
    small.rlim_cur = 5000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    cp_err err = cp_file_write(path, big, sizeof big);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &keep), 0);
    assert_int_equal(err, CP_E_IO);
    assert_int_equal(cp_file_read(path, 100, &s), CP_OK);
    assert_string_equal(s.p, "old");
    assert_int_equal(access(in_dir("g.tmp"), F_OK), -1);
    cp_str_fini(&s);
    assert_int_equal(cp_file_write(in_dir("no/such/folder"), "x", 1), CP_E_IO);
    assert_int_equal(mkdir(in_dir("folder"), 0755), 0);
    assert_int_equal(cp_file_write(in_dir("folder"), "x", 1), CP_E_IO);
    assert_int_equal(access(in_dir("folder.tmp"), F_OK), -1);
}

static void test_full_disk_has_its_code(void **state)
{
    (void)state;
    if (symlink("/dev/full", in_dir("h.tmp")) != 0) {
        skip();
    }
    assert_int_equal(cp_file_write(in_dir("h"), "x", 1), CP_E_NOSPACE);
    assert_int_equal(access(in_dir("h"), F_OK), -1);
}

static void test_dirs(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(cp_dir_make(in_dir("a/b/c")), CP_OK);
    assert_int_equal(cp_dir_make(in_dir("a/b/c")), CP_OK);
    assert_int_equal(stat(in_dir("a/b/c"), &st), 0);
    assert_int_equal(cp_dir_sync(in_dir("a/b")), CP_OK);
    assert_int_equal(cp_file_write(in_dir("a/file"), "x", 1), CP_OK);
    assert_int_equal(cp_dir_make(in_dir("a/file")), CP_E_IO);
    assert_int_equal(cp_dir_make(in_dir("a/file/x")), CP_E_IO);
    assert_int_equal(cp_dir_make(""), CP_E_IO);
    assert_int_equal(cp_dir_sync(in_dir("a/none")), CP_E_IO);
    assert_int_equal(cp_dir_sync(in_dir("a/file")), CP_E_IO);
}

static void test_cuts_between_characters(void **state)
{
    (void)state;
    static const char TEXT[] = "a\xc3\xbc\xe6\xbc\xa2\xf0\x9d\x84\x9e.";
    static const size_t CUT[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    char out[sizeof TEXT + 1];
    for (size_t max = 0; max < sizeof CUT / sizeof CUT[0]; max++) {
        assert_int_equal(cp_utf8_cut(TEXT, max), CUT[max]);
        memset(out, 'x', sizeof out);
        cp_text_copy(out, max + 1, TEXT);
        assert_int_equal(strlen(out), CUT[max]);
        assert_memory_equal(out, TEXT, CUT[max]);
    }
    assert_int_equal(cp_utf8_cut("ab\xe6\xbc", 9), 2); /* was cut by somebody else */
    assert_int_equal(cp_utf8_cut("\xf0", 1), 0);
    assert_int_equal(cp_utf8_cut("\x80\x80\x80\x80\x80\x80", 5), 5); /* no UTF-8 at all */
    assert_int_equal(cp_utf8_cut("\x80", 1), 1);
    assert_int_equal(cp_utf8_cut("", 4), 0);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const WORDS[] = {"learning_rate", "clip", "lr", "dropout", "batch"};
    assert_string_equal(cp_nearest("learing_rate", WORDS, 5), "learning_rate");
    assert_string_equal(cp_nearest("lr", WORDS, 5), "lr");
    assert_string_equal(cp_nearest("cilp", WORDS, 5), "clip");
    assert_string_equal(cp_nearest("dropuot", WORDS, 5), "dropout");
    assert_null(cp_nearest("completely", WORDS, 5));
    assert_null(cp_nearest("lr", WORDS, 0));
    assert_null(cp_nearest("", WORDS, 5));
    static char longer[200];
    memset(longer, 'l', sizeof longer - 1);
    assert_null(cp_nearest(longer, WORDS, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_remembers_failure),
        cmocka_unit_test(test_file_read),
        cmocka_unit_test(test_file_write_is_atomic),
        cmocka_unit_test(test_full_disk_has_its_code),
        cmocka_unit_test(test_dirs),
        cmocka_unit_test(test_cuts_between_characters),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
