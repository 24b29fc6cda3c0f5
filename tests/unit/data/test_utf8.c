#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "data/utf8.h"
#include "unit/data/help.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Every code point there is: what put writes, next reads, and utf8proc reads the same. */
static void test_every_code_point(void **state)
{
    (void)state;
    for (int32_t c = 0; c <= 0x10FFFF; c++) {
        char bytes[CP_UTF8_MAX];
        size_t n = cp_utf8_put(c, bytes);
        const char *p = bytes;
        int32_t got = cp_utf8_next(&p, bytes + n), theirs;
        if (c >= 0xD800 && c <= 0xDFFF) {
            assert_int_equal(got, CP_UTF8_BAD);
            continue;
        }
        assert_int_equal(got, c);
        assert_ptr_equal(p, bytes + n);
        assert_int_equal(utf8proc_iterate((utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)n, &theirs),
                         n);
        assert_int_equal(theirs, c);
    }
}

static void assert_repaired(const char *bytes, size_t n, const char *want)
{
    char *copy = malloc(n ? n : 1); /* of exact size: reading past the end is seen */
    struct cp_str out = {0};
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    cp_utf8_repair(copy, n, &out);
    assert_string_equal(cp_str_text(&out), want);
    cp_str_fini(&out);
    free(copy);
}

#define R "\xEF\xBF\xBD"

static void test_bad_parts(void **state)
{
    (void)state;
    assert_repaired("", 0, "");
    assert_repaired("\xE2\x80", 2, R);               /* cut at the end: one part */
    assert_repaired("\xF0\x9F", 2, R);               /* the same */
    assert_repaired("\xF0\x9F\x98", 3, R);           /* the same */
    assert_repaired("\xF0\x9F\x98x", 4, R "x");      /* cut by a letter, which stays */
    assert_repaired("\xC0\xAF", 2, R R);             /* overlong: C0 never begins a character */
    assert_repaired("\xE0\x9F\xBF", 3, R R R);       /* overlong, three bytes */
    assert_repaired("\xED\xA0\x80", 3, R R R);       /* a surrogate */
    assert_repaired("\xF4\x90\x80\x80", 4, R R R R); /* above U+10FFFF */
    assert_repaired("\xF5\x80", 2, R R);
    assert_repaired("a\x80z", 3, "a" R "z"); /* a lone continuation byte */
    assert_repaired("\xFF\xFE", 2, R R);
    assert_repaired("\xE2\xE2\x82\xAC", 4, R "\xE2\x82\xAC"); /* a beginning before a whole one */
    assert_repaired("\xC3\xA9", 2, "\xC3\xA9");
}

static void test_find_bad(void **state)
{
    (void)state;
    const char *s = "ab\xC3\xA9\x80";
    assert_null(cp_utf8_find_bad(s, 4));
    assert_ptr_equal(cp_utf8_find_bad(s, 5), s + 4);
    assert_ptr_equal(cp_utf8_find_bad(s, 3), s + 2);
}

static void test_show(void **state)
{
    (void)state;
    char out[CP_SHOWN_SIZE], lots[200];
    assert_string_equal(cp_utf8_show("a\x01\x80\n", 4, out), "a???");
    memset(lots, 'x', sizeof lots);
    cp_utf8_show(lots, sizeof lots, out);
    assert_int_equal(strlen(out), 43);
    assert_string_equal(out + 40, "...");
    for (size_t i = 0; i < 198; i += 3) { /* never cut inside a character */
        memcpy(lots + i, "\xE4\xB8\xAD", 3);
    }
    cp_utf8_show(lots, 198, out);
    assert_null(cp_utf8_find_bad(out, strlen(out)));
    assert_int_equal(strlen(out), 39 + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_bad_parts),
        cmocka_unit_test(test_find_bad),
        cmocka_unit_test(test_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
