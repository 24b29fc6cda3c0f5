/* bench: how fast parts of the program are, each beside a limit measured in the same run. */
#include "api/bench.h"

#include "base/str.h"

#include <string.h>

static const struct cp_bench *const BENCHES[] = {&CP_BENCH_SIM};
enum { N_BENCHES = sizeof BENCHES / sizeof BENCHES[0] };

int collapipe_bench(const char *name, char **json)
{
    const char *names[N_BENCHES];
    for (int i = 0; i < N_BENCHES; i++) {
        json_t *doc = NULL;
        names[i] = BENCHES[i]->name;
        if (strcmp(name, names[i]) == 0) {
            cp_err err = BENCHES[i]->run(&doc);
            return cp_api_status(err ? err : cp_api_dump(doc, json));
        }
    }
    const char *near = cp_nearest(name, names, N_BENCHES);
    return cp_api_status(cp_fail(CP_E_CONFIG,
                                 "there is nothing to measure called '%.40s'%s%s; "
                                 "collapipe bench --help names all",
                                 name, near ? ", did you mean " : "", near ? near : ""));
}
