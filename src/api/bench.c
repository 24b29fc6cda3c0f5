/* bench: how fast parts of the program are, each beside a limit measured in the same run. */
#include "api/bench.h"

#include "base/str.h"

#include <string.h>

static const struct cp_bench *const BENCHES[] = {&CP_BENCH_PLAN, &CP_BENCH_SIM};
enum { N_BENCHES = sizeof BENCHES / sizeof BENCHES[0] };

static cp_err run(const struct cp_bench *b, const struct collapipe_bench_options *opt, char **json)
{
    static const struct collapipe_bench_options none = {0};
    json_t *doc = NULL;
    opt = opt ? opt : &none;
    if (!b->sizes && (opt->clusters || opt->devices || opt->layers || opt->worlds)) {
        return cp_fail(CP_E_CONFIG, "bench %s has its own sizes: leave out those that were given",
                       b->name);
    }
    CP_TRY(b->run(opt, &doc));
    return cp_api_dump(doc, json);
}

int collapipe_bench(const char *name, const struct collapipe_bench_options *opt, char **json)
{
    const char *names[N_BENCHES];
    for (int i = 0; i < N_BENCHES; i++) {
        names[i] = BENCHES[i]->name;
        if (strcmp(name, names[i]) == 0) {
            return cp_api_status(run(BENCHES[i], opt, json));
        }
    }
    const char *near = cp_nearest(name, names, N_BENCHES);
    return cp_api_status(cp_fail(CP_E_CONFIG,
                                 "there is nothing to measure called '%.40s'%s%s; "
                                 "collapipe bench --help names all",
                                 name, near ? ", did you mean " : "", near ? near : ""));
}
