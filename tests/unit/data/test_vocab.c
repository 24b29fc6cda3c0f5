#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "unit/data/help.h"

#include "base/rng.h"

#define HEAD "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"

static cp_err parse(const char *text, struct cp_vocab **v)
{
    return cp_vocab_parse("v.txt", text, strlen(text), v);
}

static void test_ids_and_tokens(void **state)
{
    (void)state;
    struct cp_vocab *v =
        make_vocab("[unused0]\n[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\n##ab\n##\n");
    assert_int_equal(cp_vocab_size(v), 9);
    assert_int_equal(cp_vocab_special(v, CP_PAD), 1);
    assert_int_equal(cp_vocab_special(v, CP_UNK), 2);
    assert_int_equal(cp_vocab_special(v, CP_CLS), 3);
    assert_int_equal(cp_vocab_special(v, CP_SEP), 4);
    assert_int_equal(cp_vocab_special(v, CP_MASK), 5);
    for (int32_t i = 0; i < 9; i++) {
        const char *token = cp_vocab_token(v, i);
        assert_int_equal(cp_vocab_find(v, token, strlen(token)), i);
        assert_int_equal(cp_vocab_is_special(v, i), i >= 1 && i <= 5);
    }
    assert_false(cp_vocab_is_special(v, -1));
    assert_int_equal(cp_vocab_find(v, "a", 1), -1);   /* a beginning is not a token */
    assert_int_equal(cp_vocab_find(v, "abc", 3), -1); /* nor is a longer one */
    assert_int_equal(cp_vocab_find(v, "", 0), -1);
    assert_int_equal(cp_vocab_find(v, "ab\0", 3), -1); /* length counts, not the zero byte */
    cp_vocab_free(v);
    cp_vocab_free(NULL);
}

static void test_mask_is_optional(void **state)
{
    (void)state;
    struct cp_vocab *v = make_vocab(HEAD);
    assert_int_equal(cp_vocab_special(v, CP_MASK), -1);
    assert_false(cp_vocab_is_special(v, -1));
    cp_vocab_free(v);
}

static void test_longest(void **state)
{
    (void)state;
    struct cp_vocab *v = make_vocab(HEAD "a\nabc\n##a\n##ab\n##\n");
    size_t used = 99;
    assert_int_equal(cp_vocab_longest(v, false, "abcd", 4, &used), 5);
    assert_int_equal(used, 3);
    assert_int_equal(cp_vocab_longest(v, false, "abcd", 2, &used), 4); /* len is a border */
    assert_int_equal(used, 1);
    assert_int_equal(cp_vocab_longest(v, true, "abcd", 4, &used), 7);
    assert_int_equal(used, 2);
    used = 99;
    assert_int_equal(cp_vocab_longest(v, true, "x", 1, &used), -1); /* "##" alone is no match */
    assert_int_equal(cp_vocab_longest(v, true, "", 0, &used), -1);
    assert_int_equal(used, 99);
    cp_vocab_free(v);
    v = make_vocab(HEAD "a\n#b\n"); /* no token begins with "##": nothing may be taken instead */
    assert_int_equal(cp_vocab_longest(v, true, "a", 1, &used), -1);
    assert_int_equal(cp_vocab_longest(v, true, "b", 1, &used), -1);
    cp_vocab_free(v);
}

static void test_line_ends(void **state)
{
    (void)state;
    static const char *const SAME[] = {
        HEAD "x\n",
        HEAD "x",
        "\xEF\xBB\xBF" HEAD "x\n",
        "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nx\r\n",
        "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nx",
    };
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        struct cp_vocab *v = make_vocab(SAME[i]);
        assert_int_equal(cp_vocab_size(v), 5);
        assert_int_equal(cp_vocab_find(v, "x", 1), 4);
        assert_int_equal(cp_vocab_special(v, CP_PAD), 0);
        cp_vocab_free(v);
    }
}

static void test_bad_files(void **state)
{
    (void)state;
    struct cp_vocab *v = NULL;
    assert_fails(parse(HEAD "a\nb\na\n", &v), CP_E_DATA, "line 7 repeats the token 'a' of line 5");
    assert_fails(parse(HEAD "a\n\nb\n", &v), CP_E_DATA, "line 6 is empty");
    assert_fails(parse(HEAD "a\n\r\nb\n", &v), CP_E_DATA, "line 6 is empty");
    assert_fails(parse(HEAD "a\n\n", &v), CP_E_DATA, "line 6 is empty");
    assert_fails(parse(HEAD "a\xC3\n", &v), CP_E_DATA, "line 5 is not UTF-8");
    assert_fails(cp_vocab_parse("v.txt", "[PAD]\na\0b\n", 10, &v), CP_E_DATA, "line 2");
    assert_fails(parse("", &v), CP_E_DATA, "[PAD] is missing");
    assert_fails(parse("[PAD]\n[UNK]\n[CLS]\n", &v), CP_E_DATA, "[SEP] is missing");
    assert_fails(parse("[pad]\n[UNK]\n[CLS]\n[SEP]\n", &v), CP_E_DATA, "[PAD] is missing");
    assert_fails(cp_vocab_load("/nonexistent/vocab.txt", &v), CP_E_IO, "/nonexistent/vocab.txt");
    assert_fails(cp_vocab_load("/tmp", &v), CP_E_IO, "folder");
    assert_null(v); /* untouched by all of them */
}

/* Random tokens over a small alphabet, so that many are beginnings of others. */
static void test_round_trip(void **state)
{
    (void)state;
    struct cp_str text = {0}, again = {0};
    struct cp_rng r;
    cp_rng_init(&r, 1, CP_RNG_TEST, 0, 0);
    cp_str_puts(&text, HEAD);
    for (int i = 0; i < 3000; i++) {
        cp_str_printf(&text, "%s%d\n", i % 3 ? "##" : "", i);
        cp_str_printf(&text, "%x\xC3\xA9%u\n", i, cp_rng_below(&r, 100));
    }
    assert_ok(cp_str_check(&text));
    struct cp_vocab *v = make_vocab(text.p), *w = NULL;
    const char *path = temp_path(".vocab.txt");
    assert_ok(cp_vocab_save(v, path));
    assert_ok(cp_file_read(path, 1 << 20, &again));
    assert_string_equal(text.p, again.p);
    assert_ok(cp_vocab_load(path, &w));
    assert_int_equal(cp_vocab_size(w), 6004);
    for (int32_t i = 0; i < cp_vocab_size(v); i++) {
        const char *token = cp_vocab_token(w, i);
        assert_string_equal(token, cp_vocab_token(v, i));
        assert_int_equal(cp_vocab_find(w, token, strlen(token)), i);
    }
    unlink(path);
    assert_fails(cp_vocab_save(v, "/nonexistent/x"), CP_E_IO, "/nonexistent/x");
    cp_vocab_free(v);
    cp_vocab_free(w);
    cp_str_fini(&text);
    cp_str_fini(&again);
}

static void test_failing_memory(void **state)
{
    (void)state;
    struct cp_vocab *v = NULL;
    cp_err err;
    for_each_failing_allocation(err)
    {
        err = parse(HEAD "a\n", &v);
    }
    assert_non_null(v);
    cp_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_and_tokens), cmocka_unit_test(test_mask_is_optional),
        cmocka_unit_test(test_longest),        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_bad_files),      cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
