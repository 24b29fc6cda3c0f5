/* grid: ops run on the clock of sim.c, which is told in units of a thousandth of the step, so that
 * its nanoseconds are fine enough for steps of any length. */
#include "sim/grid.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PANELS_MAX = 4, NAME_MAX_COLUMNS = 16, TICK_COLUMNS = 12, ROWS_MAX = 2 * CP_STAGES_MAX };

static const double TOLD_S = 1e3; /* length of a step on the clock that is drawn */

struct bar {
    int row, micro;
    bool back;
    int64_t from_ns, to_ns;
};

struct drawing {
    const struct cp_grid *g;
    int n_stages, n_rows, head, panel, panels; /* head, panel: columns of a line */
    double step_s;
    struct bar *bar;
    int n_bars;
    char *cell; /* [n_rows][panels * panel] */
};

/* --- ops to bars ----------------------------------------------------------------------------- */

/* Row of an op and its direction; false if it takes no time. */
static bool find_row(const struct drawing *d, const struct cp_event *e, int *row, bool *back)
{
    static const struct {
        enum cp_op_kind kind;
        bool back;
        int link; /* offset to the stage of the link's row; -1: none */
    } KINDS[] = {{CP_OP_FWD, false, -1},
                 {CP_OP_BWD, true, -1},
                 {CP_OP_SEND_ACT, false, 0},
                 {CP_OP_SEND_GRAD, true, 1}};
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strcmp(e->kind, cp_op_name(KINDS[i].kind)) != 0) {
            continue;
        }
        *back = KINDS[i].back;
        if (KINDS[i].link < 0) {
            *row = d->g->links ? 2 * e->stage : e->stage;
            return true;
        }
        *row = 2 * (e->stage - KINDS[i].link) + 1;
        return d->g->links;
    }
    return false;
}

static void collect(void *arg, const struct cp_event *e)
{
    struct drawing *d = arg;
    struct bar b = {.micro = e->micro, .from_ns = e->t0_ns, .to_ns = e->t1_ns};
    if (find_row(d, e, &b.row, &b.back)) {
        d->bar[d->n_bars++] = b;
    }
}

static void scale(double *x, int n, double factor)
{
    for (int i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static cp_err run(struct drawing *d, const struct cp_ops *lists, const struct cp_times *t)
{
    struct cp_times told = *t;
    struct cp_sim_step step;
    struct cp_event_sink sink = {collect, d};
    double factor = d->step_s > 0 ? TOLD_S / d->step_s : 1;
    scale(told.fwd_s, d->n_stages, factor);
    scale(told.bwd_s, d->n_stages, factor);
    scale(told.link_fwd_s, d->n_stages - 1, factor);
    scale(told.link_bwd_s, d->n_stages - 1, factor);
    return cp_sim_step(lists, d->n_stages, &told, &sink, &step);
}

/* --- bars to cells --------------------------------------------------------------------------- */

static int to_column(const struct drawing *d, int64_t ns)
{
    return (int)lround((double)ns * 1e-9 / TOLD_S * d->panels * d->panel);
}

static void paint(struct drawing *d, const struct bar *b)
{
    char number[16], *row = d->cell + (size_t)b->row * (size_t)(d->panels * d->panel);
    int from = to_column(d, b->from_ns), to = to_column(d, b->to_ns);
    int digits = snprintf(number, sizeof number, "%d", b->micro + 1);
    int clear = from; /* end of the cells that the other direction of a link leaves */
    for (int i = from; i < to; i++) {
        clear += clear == i && row[i] == '.';
        row[i] = row[i] != '.' ? 'x' : b->back ? '<' : '>';
    }
    if (digits < clear - from) {
        memcpy(row + from, number, (size_t)digits);
    }
}

/* An op that is shorter than a column. */
static void mark(struct drawing *d, const struct bar *b)
{
    int width = d->panels * d->panel, at = to_column(d, b->from_ns);
    char *c = d->cell + (size_t)b->row * (size_t)width + (at < width ? at : width - 1);
    if (*c == '.' && b->from_ns < b->to_ns) {
        *c = b->back ? '<' : '>';
    }
}

static void paint_all(struct drawing *d)
{
    for (int i = 0; i < d->n_bars; i++) {
        if (to_column(d, d->bar[i].from_ns) < to_column(d, d->bar[i].to_ns)) {
            paint(d, &d->bar[i]);
        }
    }
    for (int i = 0; i < d->n_bars; i++) {
        if (to_column(d, d->bar[i].from_ns) == to_column(d, d->bar[i].to_ns)) {
            mark(d, &d->bar[i]);
        }
    }
}

/* --- cells to text --------------------------------------------------------------------------- */

/* Characters of UTF-8, of which a name shows at most NAME_MAX_COLUMNS. */
static int name_columns(const char *name, size_t *bytes)
{
    int n = 0;
    size_t i = 0;
    for (; name[i]; i++) {
        bool starts = ((unsigned char)name[i] & 0xc0) != 0x80;
        if (starts && n == NAME_MAX_COLUMNS) {
            break;
        }
        n += starts;
    }
    *bytes = i;
    return n;
}

static void put_head(const struct drawing *d, const char *name, char end, struct cp_str *out)
{
    size_t bytes;
    int n = name_columns(name, &bytes);
    cp_str_printf(out, "  %.*s%*s%c", (int)bytes, name, d->head - 3 - n, "", end);
}

/* 1, 2 or 5 times a power of ten, so that ticks are TICK_COLUMNS or more apart. */
static double tick_of(double per_column)
{
    double least = per_column * TICK_COLUMNS, power = pow(10, floor(log10(least)));
    double steps = least / power;
    return power * (steps <= 1 ? 1 : steps <= 2 ? 2 : steps <= 5 ? 5 : 10);
}

static void put_times(const struct drawing *d, int panel, struct cp_str *out)
{
    static const struct {
        double from, factor;
        const char *unit;
    } UNITS[] = {{1, 1, "seconds"}, {1e-3, 1e3, "ms"}, {0, 1e6, "us"}};
    char line[CP_GRID_COLUMNS_MAX + 1];
    size_t u = 0;
    memset(line, ' ', (size_t)d->panel);
    while (d->step_s < UNITS[u].from) {
        u++;
    }
    double per_column = d->step_s * UNITS[u].factor / (d->panels * d->panel);
    double tick = per_column > 0 ? tick_of(per_column) : 1;
    for (int k = 0; per_column > 0; k++) {
        int at = (int)lround(k * tick / per_column) - panel * d->panel;
        char text[24];
        int n = snprintf(text, sizeof text, "|%.12g", k * tick);
        if (at + n > d->panel) {
            break;
        }
        if (at >= 0) {
            memcpy(line + at, text, (size_t)n);
        }
    }
    int n = d->panel;
    while (n > 0 && line[n - 1] == ' ') {
        n--;
    }
    put_head(d, UNITS[u].unit, ' ', out);
    cp_str_add(out, line, (size_t)n);
    cp_str_puts(out, "\n");
}

static void put_panel(const struct drawing *d, int panel, struct cp_str *out)
{
    size_t width = (size_t)(d->panels * d->panel), from = (size_t)(panel * d->panel);
    put_times(d, panel, out);
    for (int r = 0; r < d->n_rows; r++) {
        bool link = d->g->links && r % 2;
        put_head(d, link ? "" : d->g->names[d->g->links ? r / 2 : r], link ? ':' : '|', out);
        cp_str_add(out, d->cell + (size_t)r * width + from, (size_t)d->panel);
        cp_str_puts(out, "\n");
    }
}

/* --- together -------------------------------------------------------------------------------- */

/* Columns of a line, and as many panels as give the longest forward room for its number. */
static void lay_out(struct drawing *d, const struct cp_ops *lists, const struct cp_times *t)
{
    int columns = d->g->columns, widest = 7; /* "seconds" */
    columns = columns < CP_GRID_COLUMNS_MIN ? CP_GRID_COLUMNS_MIN : columns;
    columns = columns > CP_GRID_COLUMNS_MAX ? CP_GRID_COLUMNS_MAX : columns;
    double longest_s = 0;
    int micros = 0;
    for (int j = 0; j < d->n_stages; j++) {
        size_t bytes;
        int n = name_columns(d->g->names[j], &bytes);
        widest = n > widest ? n : widest;
        longest_s = fmax(longest_s, t->fwd_s[j]);
    }
    for (int i = 0; i < lists[0].n; i++) {
        micros = lists[0].op[i].micro >= micros ? lists[0].op[i].micro + 1 : micros;
    }
    d->head = 2 + widest + 1;
    d->panel = columns - d->head;
    int room = snprintf(NULL, 0, "%d", micros) + 1;
    double wanted = longest_s > 0 ? ceil(room * d->step_s / (longest_s * d->panel)) : 1;
    d->panels = wanted <= 1 ? 1 : wanted < PANELS_MAX ? (int)wanted : PANELS_MAX;
}

cp_err cp_grid_print(const struct cp_grid *g, const struct cp_ops *lists, int n_stages,
                     const struct cp_times *t, struct cp_str *out)
{
    assert(n_stages >= 1 && n_stages <= CP_STAGES_MAX);
    struct drawing d = {.g = g, .n_stages = n_stages};
    struct cp_sim_step step;
    size_t ops = 0;
    d.n_rows = g->links ? 2 * n_stages - 1 : n_stages;
    CP_TRY(cp_sim_step(lists, n_stages, t, NULL, &step));
    d.step_s = step.step_s;
    lay_out(&d, lists, t);
    for (int j = 0; j < n_stages; j++) {
        ops += (size_t)lists[j].n;
    }
    size_t cells = (size_t)d.n_rows * (size_t)(d.panels * d.panel);
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_array(NULL, ops, sizeof *d.bar, &d.bar), done);
    CP_TRY_GOTO(err, cp_mem_new(NULL, cells, &d.cell), done);
    memset(d.cell, '.', cells);
    CP_TRY_GOTO(err, run(&d, lists, t), done);
    paint_all(&d);
    for (int i = 0; i < d.panels; i++) {
        put_panel(&d, i, out);
    }
    err = cp_str_check(out);
done:
    cp_mem_free(d.cell);
    cp_mem_free(d.bar);
    return err;
}
