/* grid: a step drawn in the terminal, from the op lists themselves. */
#include "pipe/ops.h"

#include <stdio.h>
#include <string.h>

enum { FWD_UNITS = 1, BWD_UNITS = 2, COLUMNS_MAX = 400, NAME_WIDTH = 10 };

static const char LETTERS[CP_OP_KIND_COUNT] = {
#define X(kind, name, letter) [CP_OP_##kind] = letter,
    CP_OP_KINDS(X)
#undef X
};

struct row {
    int at, time;
    int start[COLUMNS_MAX]; /* op index that starts in a column, else -1 */
    int *sent_act, *sent_grad;
};

static int units(enum cp_op_kind kind)
{
    return kind == CP_OP_FWD ? FWD_UNITS : kind == CP_OP_BWD ? BWD_UNITS : 0;
}

/* Runs op lists on the unit clock; times of sends are kept per micro-batch. */
static void run(const struct cp_ops *lists, int n_stages, struct row *rows)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int j = 0; j < n_stages; j++) {
            struct row *r = &rows[j];
            while (r->at < lists[j].n) {
                const struct cp_op *op = &lists[j].op[r->at];
                int ready = r->time;
                if (op->kind == CP_OP_RECV_ACT) {
                    ready = rows[j - 1].sent_act[op->micro];
                } else if (op->kind == CP_OP_RECV_GRAD) {
                    ready = rows[j + 1].sent_grad[op->micro];
                }
                if (ready < 0) {
                    break;
                }
                r->time = ready > r->time ? ready : r->time;
                if (units(op->kind) && r->time < COLUMNS_MAX) {
                    r->start[r->time] = r->at;
                }
                r->time += units(op->kind);
                if (op->kind == CP_OP_SEND_ACT) {
                    r->sent_act[op->micro] = r->time;
                } else if (op->kind == CP_OP_SEND_GRAD) {
                    r->sent_grad[op->micro] = r->time;
                }
                r->at++;
                moved = true;
            }
        }
    }
}

static void print_row(const struct cp_ops *ops, const struct row *r, const char *name, int end,
                      bool cut, struct cp_str *out)
{
    cp_str_printf(out, "  %-*.*s|", NAME_WIDTH, NAME_WIDTH, name);
    for (int t = 0; t < end; t++) {
        if (r->start[t] < 0) {
            cp_str_puts(out, "   .");
            continue;
        }
        const struct cp_op *op = &ops->op[r->start[t]];
        char cell[16];
        snprintf(cell, sizeof cell, "%c%d", LETTERS[op->kind], op->micro + 1);
        cp_str_printf(out, "%4s", cell);
        for (int k = 1; k < units(op->kind) && t + 1 < end; k++, t++) {
            cp_str_puts(out, "   -");
        }
    }
    cp_str_puts(out, cut ? " ...\n" : "\n");
}

cp_err cp_grid_print(const struct cp_ops *lists, int n_stages, const char *const *names,
                     struct cp_str *out)
{
    struct row *rows = NULL;
    int *sent = NULL, micros = 0, end = 0;
    for (int i = 0; i < lists[0].n; i++) {
        micros = lists[0].op[i].micro >= micros ? lists[0].op[i].micro + 1 : micros;
    }
    CP_TRY(cp_mem_array(NULL, (size_t)n_stages, sizeof *rows, &rows));
    cp_err err = cp_mem_array(NULL, 2 * (size_t)n_stages * (size_t)micros, sizeof *sent, &sent);
    if (err) {
        cp_mem_free(rows);
        return err;
    }
    memset(sent, 0xff, 2 * (size_t)n_stages * (size_t)micros * sizeof *sent);
    for (int j = 0; j < n_stages; j++) {
        memset(rows[j].start, 0xff, sizeof rows[j].start);
        rows[j].sent_act = sent + 2 * j * micros;
        rows[j].sent_grad = rows[j].sent_act + micros;
    }
    run(lists, n_stages, rows);
    for (int j = 0; j < n_stages; j++) {
        end = rows[j].time > end ? rows[j].time : end;
    }
    int shown = end < COLUMNS_MAX ? end : COLUMNS_MAX;
    for (int j = 0; j < n_stages; j++) {
        print_row(&lists[j], &rows[j], names[j], shown, end > shown, out);
    }
    cp_mem_free(sent);
    cp_mem_free(rows);
    return cp_str_check(out);
}
