/* folder: world */
/* Any bytes as a trace: refused with file and line, or every round of it gives a world whose
 * figures are finite and of the right sign. */
#include "world/radio.h"
#include "world/trace.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void check_device(const struct cp_device *d)
{
    CHECK(isfinite(d->rate_flops) && d->rate_flops > 0);
    CHECK(isfinite(d->harvest_w) && d->harvest_w >= 0);
}

static void check_world(const struct cp_world *w)
{
    for (int c = 0; c < w->n_clusters; c++) {
        const struct cp_cluster *cl = &w->cluster[c];
        CHECK(isfinite(cl->arrivals) && cl->arrivals >= 0 && cl->cu.present);
        for (int i = 0; i <= cl->n_devices; i++) {
            check_device(i == 0 ? &cl->cu : &cl->device[i - 1]);
            CHECK(cl->gain_d2e[i] > 0 && cl->gain_d2e[i] <= 1);
            for (int j = 0; j <= cl->n_devices; j++) {
                CHECK(cl->gain_d2d[i][j] == cl->gain_d2d[j][i]);
                CHECK((cl->gain_d2d[i][j] > 0) == (i != j) && cl->gain_d2d[i][j] <= 1);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cp_channel ch = {.fading = CP_FADING_STATIC, .clamp = 0.1};
    struct cp_world base, w = {0};
    struct cp_world_trace *t;
    CHECK(cp_world_draw_default(3, 2, 1, &base) == CP_OK);
    cp_channel_draw(&base, &ch, 1, true);
    if (cp_world_trace_parse("fuzz", (const char *)data, size, &base, &t) == CP_OK) {
        int32_t rounds = cp_world_trace_rounds(t);
        CHECK(rounds >= 1);
        for (int i = 0; i < 8; i++) { /* from the first round to past the last */
            int64_t later = (int64_t)rounds * i / 6;
            int32_t round = later < INT32_MAX ? (int32_t)later : INT32_MAX;
            CHECK(cp_world_copy(&w, &base) == CP_OK);
            w.round = round;
            cp_err err = cp_world_trace_apply(t, (enum cp_world_trace_end)(i % 3), &base, &w);
            CHECK(err == CP_OK || (i % 3 == CP_WORLD_TRACE_STOP && round >= rounds));
            check_world(&w);
        }
        cp_world_trace_free(t);
    } else {
        CHECK(strncmp(cp_err_text(), "fuzz:", 5) == 0);
    }
    cp_world_fini(&w);
    cp_world_fini(&base);
    return 0;
}
