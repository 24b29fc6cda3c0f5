/* name: what stays inside its folder passes, everything else is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/name.h"

#include <string.h>

static void test_names(void **state)
{
    (void)state;
    static const char *const GOOD[] = {
        "a",       "run-20261130T180405Z", "checkpoint-12", "a..b", "ä b", "x.safetensors", "-",
        "<script>"};
    static const char *const BAD[] = {"",    ".",  "..",   ".hidden", "../x", "/etc",
                                      "a/b", "a/", "a\\b", "a\nb",    "\x1b", "a\x7f"};
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        assert_int_equal(cp_name_check(CP_E_DATA, "the name", GOOD[i]), CP_OK);
    }
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        assert_int_equal(cp_name_check(CP_E_DATA, "the name", BAD[i]), CP_E_DATA);
        assert_memory_equal(cp_err_text(), "the name ", 9);
        for (const char *p = cp_err_text(); *p; p++) {
            assert_false((unsigned char)*p < 0x20 || *p == 0x7f);
        }
    }
    char text[300];
    memset(text, 'a', sizeof text);
    text[CP_FILE_NAME_MAX] = 0;
    assert_int_equal(cp_name_check(CP_E_USAGE, "the name", text), CP_OK);
    text[CP_FILE_NAME_MAX] = 'a';
    text[CP_FILE_NAME_MAX + 1] = 0;
    assert_int_equal(cp_name_check(CP_E_USAGE, "the name", text), CP_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
