/* grid: steps drawn by hand, to scale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sim/grid.h"
#include "unit/pipe/lists.h"

#include <stdio.h>
#include <string.h>

enum { STAGES = 6 };

static const char *const NAMES[] = {"cu", "d1", "d2", "d3", "d4", "edge"};

static void draw(const struct cp_grid *g, int n, int micros, const int *slots,
                 const struct cp_times *t, struct cp_str *text)
{
    struct cp_ops lists[STAGES] = {0};
    lists_make(lists, n, micros, slots, true);
    assert_int_equal(cp_grid_print(g, lists, n, t, text), CP_OK);
    lists_fini(lists, n);
}

static void assert_drawn(const struct cp_grid *g, int n, int micros, const int *slots,
                         const struct cp_times *t, const char *want)
{
    struct cp_str text = {0};
    draw(g, n, micros, slots, t, &text);
    if (strcmp(cp_str_text(&text), want) != 0) {
        fail_msg("drawn:\n%s\nwanted:\n%s", cp_str_text(&text), want);
    }
    cp_str_fini(&text);
}

/* A step of 15 s (Lemma 1: 9 + 2 x 3) in 45 columns: 3 columns a second. The first micro-batch's
 * arrows go right on the way to the edge and left on the way back. */
static void test_equal_stages(void **state)
{
    (void)state;
    const struct cp_grid g = {.names = NAMES, .columns = 45 + 10};
    const int gpipe[] = {3, 3, 3}, one_f_one_b[] = {3, 2, 1};
    const struct cp_times t = {.segments = 1, .fwd_s = {1, 1, 1}, .bwd_s = {2, 2, 2}};
    assert_drawn(&g, 3, 3, gpipe, &t,
                 "  seconds |0             |5             |10\n"
                 "  cu     |1>>2>>3>>..................1<<<<<2<<<<<3<<<<<\n"
                 "  d1     |...1>>2>>3>>.........1<<<<<2<<<<<3<<<<<......\n"
                 "  d2     |......1>>2>>3>>1<<<<<2<<<<<3<<<<<............\n");
    assert_drawn(&g, 3, 3, one_f_one_b, &t,
                 "  seconds |0             |5             |10\n"
                 "  cu     |1>>2>>3>>............1<<<<<...2<<<<<...3<<<<<\n"
                 "  d1     |...1>>2>>......1<<<<<3>>2<<<<<...3<<<<<......\n"
                 "  d2     |......1>>1<<<<<2>>2<<<<<3>>3<<<<<............\n");
}

/* Links have rows of their own, ops their lengths; both directions of a link at once are x. */
static void test_links(void **state)
{
    (void)state;
    const struct cp_grid g = {.names = NAMES, .columns = 44 + 10, .links = true};
    const int slots[] = {2, 1};
    struct cp_times t = {.fwd_s = {2, 2}, .bwd_s = {2, 2}};
    t.link_fwd_s[0] = 6;
    t.link_bwd_s[0] = 2;
    assert_drawn(&g, 2, 2, slots, &t,
                 "  seconds |0                  |10                 |20\n"
                 "  cu     |1>>>2>>>....................1<<<........2<<<\n"
                 "         :....1>>>>>>>>>>>2>>>>>>>xxxx........2<<<....\n"
                 "  d1     |................1>>>1<<<....2>>>2<<<........\n");
}

/* At 4 columns a second an op of one column has no room for its number, and one of a hundredth of a
 * second still has a mark, the last one in the last column. Names are padded by characters, and cut
 * after 16. */
static void test_short_ops_and_names(void **state)
{
    (void)state;
    const char *const names[] = {"k\xc3\xbc"
                                 "che",
                                 "a-name-of-many-letters"};
    const struct cp_grid g = {.names = names, .columns = 0};
    const int slots[] = {1, 1};
    const struct cp_times t = {.fwd_s = {0.25, 2}, .bwd_s = {0.01, 2.99}};
    assert_drawn(&g, 2, 1, slots, &t,
                 "  seconds          |0\n"
                 "  k\xc3\xbc"
                 "che           |>...................<\n"
                 "  a-name-of-many-l|.1>>>>>>>1<<<<<<<<<<<\n");
}

/* Steps of a millisecond, of years and of no time at all. */
static void test_scales(void **state)
{
    (void)state;
    static const struct {
        double s;
        const char *head;
    } CASES[] = {{1e-6, "  us      |0  "}, {1e-3, "  ms      |0  "},      {1, "  seconds |0   "},
                 {1e12, "  seconds |0  "}, {1e200, "  seconds |0      "}, {0, "  us   "}};
    const struct cp_grid g = {.names = NAMES, .columns = 80};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct cp_str text = {0};
        const struct cp_times t = {.fwd_s = {CASES[i].s, CASES[i].s},
                                   .bwd_s = {2 * CASES[i].s, 2 * CASES[i].s}};
        draw(&g, 2, 2, (const int[]){2, 2}, &t, &text);
        if (strncmp(cp_str_text(&text), CASES[i].head, strlen(CASES[i].head)) != 0) {
            fail_msg("%g s:\n%s", CASES[i].s, cp_str_text(&text));
        }
        cp_str_fini(&text);
    }
}

/* 16 micro-batches on 4 devices in 80 columns: four panels at most, no line longer, and every
 * number of every micro-batch is there, both ways. */
static void test_readable_at_80_columns(void **state)
{
    (void)state;
    const struct cp_grid g = {.names = NAMES, .columns = 80};
    const struct cp_times t = {.segments = 4,
                               .fwd_s = {1e-4, 1, 1.1, 0.9, 1, 1e-4},
                               .bwd_s = {1e-4, 2, 2.2, 1.8, 2, 1e-4}};
    const int slots[] = {6, 5, 4, 3, 2, 1};
    struct cp_str text = {0};
    draw(&g, 6, 16, slots, &t, &text);
    int lines = 0;
    for (const char *p = text.p; *p; p += strcspn(p, "\n") + 1) {
        assert_true(strcspn(p, "\n") <= 80);
        lines++;
    }
    assert_true(lines % 7 == 0 && lines <= 4 * 7);
    for (int m = 1; m <= 16; m++) {
        char fwd[16], bwd[16];
        snprintf(fwd, sizeof fwd, "%d>", m);
        snprintf(bwd, sizeof bwd, "%d<", m);
        assert_non_null(strstr(text.p, fwd));
        assert_non_null(strstr(text.p, bwd));
    }
    cp_str_fini(&text);
}

static void test_failures_leave_nothing(void **state)
{
    (void)state;
    const struct cp_grid g = {.names = NAMES, .columns = 80};
    const struct cp_times t = {.fwd_s = {1, 1}, .bwd_s = {2, 2}};
    struct cp_ops lists[2];
    struct cp_str text = {0};
    lists_make(lists, 2, 3, (const int[]){1, 2}, true);
    assert_int_equal(cp_grid_print(&g, lists, 2, &t, &text), CP_E_PLAN); /* deadlock */
    assert_int_equal(text.len, 0);
    lists_fini(lists, 2);
    lists_make(lists, 2, 3, (const int[]){2, 1}, true);
    int failures = 0;
    cp_err err = CP_E_NOMEM;
    for (uint64_t n = 1; err; n++) {
        assert_int_equal(text.len, 0);
        cp_mem_fail_at(n);
        err = cp_grid_print(&g, lists, 2, &t, &text);
        cp_mem_fail_at(0);
        failures += err == CP_E_NOMEM;
    }
    assert_true(failures >= 4); /* bars, cells and the two runs */
    assert_true(text.len > 0);
    cp_str_fini(&text);
    lists_fini(lists, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_stages),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_short_ops_and_names),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_readable_at_80_columns),
        cmocka_unit_test(test_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
