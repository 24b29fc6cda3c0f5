/* lists: the op lists of all stages, for tests of pipe and sim. Include after cmocka.h. */
#ifndef CP_TESTS_PIPE_LISTS_H
#define CP_TESTS_PIPE_LISTS_H

#include "pipe/ops.h"

static inline void lists_make(struct cp_ops *lists, int n_stages, int micros, const int *slots,
                              bool train)
{
    for (int j = 0; j < n_stages; j++) {
        assert_int_equal(cp_ops_make(j, n_stages, micros, slots[j], train, &lists[j]), CP_OK);
    }
}

static inline void lists_fini(struct cp_ops *lists, int n_stages)
{
    for (int j = 0; j < n_stages; j++) {
        cp_ops_fini(&lists[j]);
    }
}

/* The next vector of n numbers in 1..max, as an odometer; false after the last. Starts at all 1. */
static inline bool slots_next(int *slots, int n, int max)
{
    for (int j = n - 1; j >= 0; j--) {
        if (slots[j]++ < max) {
            return true;
        }
        slots[j] = 1;
    }
    return false;
}

static inline bool slots_increase(const int *slots, int n)
{
    for (int j = 1; j < n; j++) {
        if (slots[j] > slots[j - 1]) {
            return true;
        }
    }
    return false;
}

#endif
