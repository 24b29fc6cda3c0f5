/* mem: counts are exact, limits hold, the n-th allocation fails, arenas hand out aligned pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

static void test_counts(void **state)
{
    (void)state;
    struct cp_mem m = {.name = "test"};
    char *a = NULL, *b = NULL, *none = NULL;
    assert_int_equal(cp_mem_new(&m, 100, &a), CP_OK);
    assert_int_equal(cp_mem_new(&m, 28, &b), CP_OK);
    assert_int_equal(cp_mem_new(&m, 0, &none), CP_OK);
    assert_non_null(none);
    assert_int_equal(m.held_bytes, 128);
    assert_int_equal((uintptr_t)a % 64 + (uintptr_t)b % 64 + (uintptr_t)none % 64, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(a[i], 0);
    }
    cp_mem_free(a);
    assert_int_equal(m.held_bytes, 28);
    assert_int_equal(m.peak_bytes, 128);
    assert_int_equal(m.allocs, 3);
    cp_mem_free(b);
    cp_mem_free(none);
    cp_mem_free(NULL);
    assert_int_equal(m.held_bytes, 0);
}

static void test_limit(void **state)
{
    (void)state;
    struct cp_mem m = {.name = "small", .limit_bytes = 100};
    char *a = NULL, *b = NULL;
    assert_int_equal(cp_mem_new(&m, 60, &a), CP_OK);
    assert_int_equal(cp_mem_new(&m, 41, &b), CP_E_NOMEM);
    assert_null(b);
    assert_string_equal(cp_err_text(), "small: 41 bytes wanted, 60 held, limit 100 bytes");
    assert_int_equal(m.held_bytes, 60);
    assert_int_equal(m.peak_bytes, 60);
    assert_int_equal(cp_mem_new(&m, 40, &b), CP_OK);
    cp_mem_free(a);
    cp_mem_free(b);
}

static void test_impossible_sizes(void **state)
{
    (void)state;
    struct cp_mem m = {.name = "test"};
    char *a = NULL;
    assert_int_equal(cp_mem_new(&m, SIZE_MAX, &a), CP_E_NOMEM);
    assert_int_equal(cp_mem_new(&m, SIZE_MAX / 2 + 1, &a), CP_E_NOMEM);
#ifndef __SANITIZE_ADDRESS__ /* which ends the program on such a wish */
    assert_int_equal(cp_mem_new(&m, SIZE_MAX / 4, &a), CP_E_NOMEM); /* the system refuses */
#endif
    assert_int_equal(cp_mem_array(&m, SIZE_MAX / 8, 9, &a), CP_E_NOMEM);
    assert_int_equal(cp_mem_array(NULL, SIZE_MAX, 2, &a), CP_E_NOMEM);
    assert_null(a);
    assert_int_equal(m.held_bytes, 0);
    assert_int_equal(cp_mem_array(&m, 3, 5, &a), CP_OK);
    assert_int_equal(m.held_bytes, 15);
    cp_mem_free(a);
}

static void test_nth_failure(void **state)
{
    (void)state;
    struct cp_mem m = {.name = "test"};
    char *p[4] = {0};
    cp_mem_fail_at(3);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cp_mem_new(&m, 8, &p[i]), i == 2 ? CP_E_NOMEM : CP_OK);
    }
    assert_null(p[2]);
    cp_mem_fail_at(1);
    cp_mem_fail_at(0); /* switched off again */
    assert_int_equal(cp_mem_new(&m, 8, &p[2]), CP_OK);
    for (int i = 0; i < 4; i++) {
        cp_mem_free(p[i]);
    }
    assert_int_equal(m.held_bytes, 0);
}

static void *churn(void *arg)
{
    for (int i = 0; i < 2000; i++) {
        char *p;
        if (cp_mem_new(arg, 10, &p) != CP_OK) {
            return NULL;
        }
        cp_mem_free(p);
    }
    return arg;
}

static void test_threads(void **state)
{
    (void)state;
    struct cp_mem m = {.name = "shared"};
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, churn, &m), 0);
    }
    for (int i = 0; i < 3; i++) {
        void *ok;
        assert_int_equal(pthread_join(t[i], &ok), 0);
        assert_non_null(ok);
    }
    assert_int_equal(m.held_bytes, 0);
    assert_int_equal(m.allocs, 6000);
    assert_in_range(m.peak_bytes, 10, 30);
}

static void test_arena(void **state)
{
    (void)state;
    struct cp_mem m = {.name = "test"};
    struct cp_arena a;
    assert_int_equal(cp_arena_round(0), 0);
    assert_int_equal(cp_arena_round(1), 64);
    assert_int_equal(cp_arena_round(64), 64);
    assert_int_equal(cp_arena_init(&a, &m, cp_arena_round(1) + cp_arena_round(65)), CP_OK);
    assert_int_equal(m.held_bytes, 192);
    char *x = cp_arena_take(&a, 1), *y = cp_arena_take(&a, 65);
    assert_int_equal(y - x, 64);
    assert_int_equal((uintptr_t)y % 64, 0);
    memset(y, 1, 128);
    assert_int_equal(a.used_bytes, a.size_bytes);
    cp_arena_fini(&a);
    assert_int_equal(m.held_bytes, 0);
    cp_mem_fail_at(1);
    struct cp_arena untouched = {0};
    assert_int_equal(cp_arena_init(&untouched, &m, 64), CP_E_NOMEM);
    assert_null(untouched.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),           cmocka_unit_test(test_limit),
        cmocka_unit_test(test_impossible_sizes), cmocka_unit_test(test_nth_failure),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
