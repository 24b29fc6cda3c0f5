/*
 * grid: a step drawn in the terminal, on the virtual clock.
 *
 * Time runs to the right, one row per stage. A forward of micro-batch 3 is "3>>", a backward
 * "3<<<<", as long as it takes; "." is idle. The number is left out where the op has no room for
 * it, and an op shorter than a column has one arrow if nothing else is there. Where that makes ops
 * readable the drawing is cut into up to four panels, one below the other; a line of times heads
 * each.
 */
#ifndef CP_SIM_GRID_H
#define CP_SIM_GRID_H

#include "base/str.h"
#include "sim/sim.h"

enum { CP_GRID_COLUMNS_MIN = 40, CP_GRID_COLUMNS_MAX = 400 };

struct cp_grid {
    const char *const *names; /* [n_stages] */
    int columns;              /* of a line, held within the limits above */
    bool links; /* also a row per link below its stage: ">" and "<" as above, "x" both at once */
};

/* Appends the drawing to out. The lists are those of cp_sim_run. */
CP_NODISCARD cp_err cp_grid_print(const struct cp_grid *g, const struct cp_ops *lists, int n_stages,
                                  const struct cp_times *t, struct cp_str *out);

#endif
