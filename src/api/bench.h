/* bench: the table of measurements behind `collapipe bench`. */
#ifndef CP_API_BENCH_H
#define CP_API_BENCH_H

#include "api/internal.h"

struct cp_bench {
    const char *name;
    bool sizes; /* whether the options may set any */
    /* A document with a member "bench", the name, and "cases", an array of objects of one kind. */
    cp_err (*run)(const struct collapipe_bench_options *opt, json_t **out);
};

extern const struct cp_bench CP_BENCH_PLAN, CP_BENCH_SIM;

#endif
