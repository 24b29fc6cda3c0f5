/* grid: steps drawn by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/pipe/lists.h"

#include <string.h>

static const char *const NAMES[] = {"c1.cu", "c1.d2", "edge"};

static void assert_grid(int n, int micros, const int *slots, bool train, const char *want)
{
    struct cp_ops lists[3] = {0};
    struct cp_str text = {0};
    lists_make(lists, n, micros, slots, train);
    assert_int_equal(cp_grid_print(lists, n, NAMES, &text), CP_OK);
    assert_string_equal(cp_str_text(&text), want);
    cp_str_fini(&text);
    lists_fini(lists, n);
}

/* Both take (M + J - 1) x 3 units with equal stages and free links, but 1F1B holds less. */
static void test_1f1b(void **state)
{
    (void)state;
    assert_grid(
        3, 4, (const int[]){3, 2, 1}, true,
        "  c1.cu     |  F1  F2  F3   .   .   .   .  B1   -  F4  B2   -   .  B3   -   .  B4   -\n"
        "  c1.d2     |   .  F1  F2   .   .  B1   -  F3  B2   -  F4  B3   -   .  B4   -   .   .\n"
        "  edge      |   .   .  F1  B1   -  F2  B2   -  F3  B3   -  F4  B4   -   .   .   .   .\n");
}

static void test_gpipe(void **state)
{
    (void)state;
    assert_grid(
        3, 4, (const int[]){4, 4, 4}, true,
        "  c1.cu     |  F1  F2  F3  F4   .   .   .   .   .   .  B1   -  B2   -  B3   -  B4   -\n"
        "  c1.d2     |   .  F1  F2  F3  F4   .   .   .  B1   -  B2   -  B3   -  B4   -   .   .\n"
        "  edge      |   .   .  F1  F2  F3  F4  B1   -  B2   -  B3   -  B4   -   .   .   .   .\n");
}

static void test_seq_and_evaluation(void **state)
{
    (void)state;
    assert_grid(2, 2, (const int[]){1, 1}, true,
                "  c1.cu     |  F1   .   .   .  B1   -  F2   .   .   .  B2   -\n"
                "  c1.d2     |   .  F1  B1   -   .   .   .  F2  B2   -   .   .\n");
    assert_grid(2, 3, (const int[]){1, 1}, false,
                "  c1.cu     |  F1  F2  F3   .\n"
                "  c1.d2     |   .  F1  F2  F3\n");
    assert_grid(1, 1, (const int[]){1}, true, "  c1.cu     |  F1  B1   -\n");
}

static void test_appends_and_cuts_names(void **state)
{
    (void)state;
    struct cp_ops list;
    struct cp_str text = {0};
    const char *const long_name[] = {"a-very-long-name"};
    assert_int_equal(cp_ops_make(0, 1, 1, 1, false, &list), CP_OK);
    cp_str_puts(&text, "step\n");
    assert_int_equal(cp_grid_print(&list, 1, long_name, &text), CP_OK);
    assert_string_equal(cp_str_text(&text), "step\n  a-very-lon|  F1\n");
    cp_str_fini(&text);
    cp_ops_fini(&list);
}

/* 150 micro-batches of 3 units are more than the 400 columns; the last op shown is a backward whose
 * second column is cut off. */
static void test_long_step_is_cut(void **state)
{
    (void)state;
    struct cp_ops list;
    struct cp_str text = {0};
    assert_int_equal(cp_ops_make(0, 1, 150, 3, true, &list), CP_OK);
    assert_int_equal(cp_grid_print(&list, 1, NAMES, &text), CP_OK);
    assert_int_equal(text.len, 13 + 400 * 4 + 5);
    assert_string_equal(text.p + text.len - 13, "F135B133 ...\n");
    cp_str_fini(&text);
    cp_ops_fini(&list);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct cp_ops lists[3];
    const int slots[3] = {3, 2, 1};
    lists_make(lists, 3, 4, slots, true);
    for (int n = 1; n <= 2; n++) {
        struct cp_str text = {0};
        cp_mem_fail_at((uint64_t)n);
        assert_int_equal(cp_grid_print(lists, 3, NAMES, &text), CP_E_NOMEM);
        assert_int_equal(text.len, 0);
        cp_mem_fail_at(0);
        cp_str_fini(&text);
    }
    lists_fini(lists, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1f1b),
        cmocka_unit_test(test_gpipe),
        cmocka_unit_test(test_seq_and_evaluation),
        cmocka_unit_test(test_appends_and_cuts_names),
        cmocka_unit_test(test_long_step_is_cut),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
