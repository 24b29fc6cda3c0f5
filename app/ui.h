/*
 * ui: values, tables and colours for people.
 *
 * Texts from files and from the network are cleaned of control characters before they reach a
 * terminal, and measured in columns, not bytes. Nothing printed is wider than UI_WIDTH.
 */
#ifndef APP_UI_H
#define APP_UI_H

#include <stdbool.h>
#include <stdio.h>

enum { UI_WIDTH = 100 };

/* Once, before any other call. color: enum args_color. */
void ui_init(int color);

enum ui_style { UI_NORMAL, UI_BOLD, UI_DIM, UI_GOOD, UI_WARN, UI_BAD };
/* The escape sequence for a stream, "" where colour is off. */
const char *ui_on(FILE *f, enum ui_style style);
const char *ui_off(FILE *f);

/* --- values ---------------------------------------------------------------------------------- */

/* A formatted value; as a temporary it lives to the end of the full expression that made it. */
struct ui_text {
    char s[64];
};

/* Three significant digits and a unit that suits; "-" for a value that is not finite. */
struct ui_text ui_number(double x);
struct ui_text ui_time(double x_s);
struct ui_text ui_energy(double x_j);
struct ui_text ui_power(double x_w);
struct ui_text ui_rate(double x_bps);
struct ui_text ui_bytes(double x_bytes);
struct ui_text ui_percent(double x_percent); /* 23.4 % */
struct ui_text ui_count(double n);           /* 1,234,567 */
struct ui_text ui_span(double x_s);          /* 9.8 s, 3:05 min, 2:07 h */

/* Columns of the terminal behind a stream, at most UI_WIDTH; 80 where there is none. */
int ui_screen(FILE *f);

/* --- text ------------------------------------------------------------------------------------ */

/* Columns of a UTF-8 text on a terminal. */
int ui_columns(const char *text);

/* A copy for printing: control characters and broken UTF-8 become '?', line ends blanks; at most
 * max columns (0: any), "..." at the end where it was cut. The caller frees it. */
char *ui_clean(const char *text, int max);

/* Breaks text at blanks so that no line is wider than UI_WIDTH; lines after the first start with
 * indent blanks. column: where the cursor is now. Ends the line. */
void ui_wrap(FILE *f, int column, int indent, const char *text);

/* A path as a user would type it here: relative if it is below the current folder, quoted if a
 * shell needs that. The caller frees it. */
char *ui_path(const char *path);

/* --- tables ---------------------------------------------------------------------------------- */

struct ui_table;

/* Heads end with NULL; one that starts with '>' makes its column right-aligned; '~' at the last one
 * lets long cells go on below, where others would be cut. */
struct ui_table *ui_table_new(const char *const *heads);
/* The next cell; rows fill from left to right. */
void ui_table_add(struct ui_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Style of the row that the next cell starts. */
void ui_table_style(struct ui_table *t, enum ui_style style);
/* Prints and frees. */
void ui_table_print(struct ui_table *t, FILE *f, int indent);

#endif
