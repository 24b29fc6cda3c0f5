#include "ui.h"

#include "app.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

/* --- colour ---------------------------------------------------------------------------------- */

static bool color_out, color_err;

static bool wants_color(int mode, int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (mode != ARGS_COLOR_AUTO) {
        return mode == ARGS_COLOR_ALWAYS;
    }
    return isatty(fd) && !(no && no[0]) && term && strcmp(term, "dumb") != 0;
}

void ui_init(int color)
{
    /* Only the tables of wcwidth: the texts are UTF-8 whatever the user's locale is. */
    setlocale(LC_CTYPE, "C.UTF-8");
    color_out = wants_color(color, STDOUT_FILENO);
    color_err = wants_color(color, STDERR_FILENO);
}

const char *ui_on(FILE *f, enum ui_style style)
{
    static const char *const CODES[] = {
        [UI_NORMAL] = "",       [UI_BOLD] = "\033[1m",  [UI_DIM] = "\033[2m",
        [UI_GOOD] = "\033[32m", [UI_WARN] = "\033[33m", [UI_BAD] = "\033[1;31m"};
    return (f == stderr ? color_err : color_out) ? CODES[style] : "";
}

const char *ui_off(FILE *f)
{
    return (f == stderr ? color_err : color_out) ? "\033[0m" : "";
}

int ui_screen(FILE *f)
{
    struct winsize w;
    if (ioctl(fileno(f), TIOCGWINSZ, &w) != 0 || w.ws_col == 0) {
        return 80;
    }
    return w.ws_col < UI_WIDTH ? w.ws_col : UI_WIDTH;
}

/* --- values ---------------------------------------------------------------------------------- */

static struct ui_text make(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static struct ui_text make(const char *fmt, ...)
{
    struct ui_text t;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t.s, sizeof t.s, fmt, ap);
    va_end(ap);
    return t;
}

/* Three significant digits, never less than whole numbers, no exponent where that is readable. */
static struct ui_text digits(double x, const char *unit)
{
    double size = fabs(x);
    if (!isfinite(x)) {
        return make("-");
    }
    if (size == 0) {
        return make("0%s", unit);
    }
    if (size < 1e-4 || size >= 1e9) {
        return make("%.2e%s", x, unit);
    }
    int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
    decimals += size < 0.09995 ? 1 : 0;
    decimals += size < 0.009995 ? 1 : 0;
    return make("%.*f%s", decimals, x, unit);
}

struct ui_scale {
    double from, factor; /* used for sizes >= from */
    const char *unit;
};

/* The first scale that fits; the last one is for all that is smaller, and for 0 the one whose
 * factor is 1. */
static struct ui_text scaled(double x, const struct ui_scale *scales, int n)
{
    int i = 0;
    while (i < n - 1 && (x == 0 ? scales[i].factor != 1 : fabs(x) < scales[i].from)) {
        i++;
    }
    return digits(x * scales[i].factor, scales[i].unit);
}

#define SCALED(x, scales) scaled(x, scales, (int)(sizeof(scales) / sizeof *(scales)))

struct ui_text ui_number(double x)
{
    return digits(x, "");
}

struct ui_text ui_time(double x_s)
{
    static const struct ui_scale S[] = {{0.0995, 1, " s"}, {1e-4, 1e3, " ms"}, {0, 1e6, " us"}};
    return SCALED(x_s, S);
}

struct ui_text ui_energy(double x_j)
{
    static const struct ui_scale S[] = {
        {1e6, 1e-6, " MJ"}, {1e4, 1e-3, " kJ"}, {0.0995, 1, " J"}, {0, 1e3, " mJ"}};
    return SCALED(x_j, S);
}

struct ui_text ui_power(double x_w)
{
    static const struct ui_scale S[] = {{0.995, 1, " W"}, {0, 1e3, " mW"}};
    return SCALED(x_w, S);
}

struct ui_text ui_rate(double x_bps)
{
    static const struct ui_scale S[] = {{0.995e9, 1e-9, " Gbit/s"},
                                        {0.995e6, 1e-6, " Mbit/s"},
                                        {995, 1e-3, " kbit/s"},
                                        {0, 1, " bit/s"}};
    return SCALED(x_bps, S);
}

struct ui_text ui_bytes(double x_bytes)
{
    static const struct ui_scale S[] = {{1024.0 * 1048576, 1.0 / (1024.0 * 1048576), " GiB"},
                                        {0.0995 * 1048576, 1.0 / 1048576, " MiB"},
                                        {1024, 1.0 / 1024, " KiB"},
                                        {0, 1, " B"}};
    return fabs(x_bytes) < 1024 ? make("%.0f B", x_bytes) : SCALED(x_bytes, S);
}

struct ui_text ui_percent(double x_percent)
{
    return isfinite(x_percent) ? make("%.1f %%", x_percent) : make("-");
}

struct ui_text ui_count(double n)
{
    if (!isfinite(n) || fabs(n) > 9e15) {
        return make("-");
    }
    char plain[32];
    struct ui_text t;
    size_t len = (size_t)snprintf(plain, sizeof plain, "%.0f", fabs(n)), out = 0;
    if (n <= -0.5) {
        t.s[out++] = '-';
    }
    for (size_t i = 0; i < len; i++) {
        t.s[out++] = plain[i];
        if ((len - i - 1) % 3 == 0 && i + 1 < len) {
            t.s[out++] = ',';
        }
    }
    t.s[out] = 0;
    return t;
}

struct ui_text ui_span(double x_s)
{
    if (!isfinite(x_s) || x_s > 1e8) {
        return make("-");
    }
    long whole = lround(x_s);
    if (x_s < 59.95) {
        return make("%.1f s", x_s);
    }
    if (whole < 3600) {
        return make("%ld:%02ld min", whole / 60, whole % 60);
    }
    return make("%ld:%02ld h", whole / 3600, whole % 3600 / 60);
}

/* --- text ------------------------------------------------------------------------------------ */

/* One character of UTF-8 and its bytes; -1 and 1 if it is broken. */
static int32_t decode(const char *p, int *bytes)
{
    wchar_t w = 0;
    mbstate_t state = {0};
    size_t n = mbrtowc(&w, p, MB_CUR_MAX < 4 ? 4 : MB_CUR_MAX, &state);
    *bytes = n == 0 || n > 4 ? 1 : (int)n;
    return n > 4 ? -1 : (int32_t)w;
}

static int columns_of(int32_t c)
{
    int n = c < 0 ? 1 : wcwidth((wchar_t)c);
    return n < 0 ? 1 : n;
}

int ui_columns(const char *text)
{
    int sum = 0, bytes;
    for (const char *p = text; *p; p += bytes) {
        sum += columns_of(decode(p, &bytes));
    }
    return sum;
}

static bool is_control(int32_t c)
{
    /* also the marks that reorder or hide text */
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

char *ui_clean(const char *text, int max)
{
    enum { DOTS = 3 };
    char *out = app_alloc(strlen(text) + DOTS + 1, 1), *p = out, *cut = out;
    int sum = 0, bytes;
    for (const char *in = text; *in; in += bytes) {
        int32_t c = decode(in, &bytes);
        bool blank = c == '\n' || c == '\r' || c == '\t', bad = !blank && is_control(c);
        int wide = blank || bad ? 1 : columns_of(c);
        if (max > 0 && sum + wide > max) {
            memcpy(cut, "...", max >= DOTS ? DOTS + 1 : 1);
            cut[max >= DOTS ? DOTS : 0] = 0;
            return out;
        }
        if (blank || bad) {
            *p++ = blank ? ' ' : '?';
        } else {
            memcpy(p, in, (size_t)bytes);
            p += bytes;
        }
        sum += wide;
        if (sum + DOTS <= max) {
            cut = p;
        }
    }
    *p = 0;
    return out;
}

void ui_wrap(FILE *f, int column, int indent, const char *text)
{
    char *clean = ui_clean(text, 0);
    bool first = true; /* of its line: goes there however long it is */
    for (char *p = clean; *p;) {
        int blanks = (int)strspn(p, " "), bytes = (int)strcspn(p + blanks, " ");
        char *word = p + blanks, *end = word + bytes, kept = *end;
        *end = 0;
        int wide = ui_columns(word);
        if (!first && bytes && column + blanks + wide > UI_WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
            blanks = 0;
        }
        if (bytes) {
            fprintf(f, "%*s%s", blanks, "", word);
            column += blanks + wide;
            first = false;
        }
        *end = kept;
        p = end;
    }
    fputc('\n', f);
    free(clean);
}

char *ui_path(const char *path)
{
    char here[4096];
    size_t n = getcwd(here, sizeof here) ? strlen(here) : 0;
    if (n > 1 && strncmp(path, here, n) == 0 && path[n] == '/' && path[n + 1]) {
        path += n + 1;
    }
    char *clean = ui_clean(path, 0);
    if (strspn(clean, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                      "_-./:+,@%=") == strlen(clean)) {
        return clean;
    }
    char *quoted = app_alloc(4 * strlen(clean) + 3, 1), *p = quoted;
    *p++ = '\'';
    for (const char *c = clean; *c; c++) {
        p = *c == '\'' ? stpcpy(p, "'\\''") : (*p = *c, p + 1);
    }
    stpcpy(p, "'");
    free(clean);
    return quoted;
}

/* --- tables ---------------------------------------------------------------------------------- */

enum { COLUMNS_MAX = 16, GAP = 2, CELL_MIN = 8 };

struct ui_table {
    int columns;
    bool right[COLUMNS_MAX], wraps; /* wraps: the last column */
    char **cell;                    /* [rows * columns], the heads first */
    enum ui_style *style;           /* [rows] */
    enum ui_style next_style;
    size_t n, room; /* cells */
};

static void add_cell(struct ui_table *t, char *text)
{
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 8 * (size_t)t->columns;
        char **cell = app_alloc(room, sizeof *cell);
        enum ui_style *style = app_alloc(room / (size_t)t->columns, sizeof *style);
        if (t->n) {
            memcpy(cell, t->cell, t->n * sizeof *cell);
            memcpy(style, t->style, t->n / (size_t)t->columns * sizeof *style);
        }
        free(t->cell);
        free(t->style);
        t->cell = cell;
        t->style = style;
        t->room = room;
    }
    if (t->n % (size_t)t->columns == 0) {
        t->style[t->n / (size_t)t->columns] = t->next_style;
        t->next_style = UI_NORMAL;
    }
    t->cell[t->n++] = text;
}

struct ui_table *ui_table_new(const char *const *heads)
{
    struct ui_table *t = app_alloc(1, sizeof *t);
    while (t->columns < COLUMNS_MAX && heads[t->columns]) {
        t->columns++;
    }
    t->next_style = UI_DIM;
    for (int i = 0; i < t->columns; i++) {
        t->right[i] = heads[i][0] == '>';
        t->wraps = heads[i][0] == '~';
        add_cell(t, app_copy(heads[i] + (t->right[i] || t->wraps)));
    }
    return t;
}

void ui_table_add(struct ui_table *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = app_alloc((size_t)(n > 0 ? n : 0) + 1, 1);
    vsnprintf(text, (size_t)(n > 0 ? n : 0) + 1, fmt, again);
    va_end(again);
    add_cell(t, ui_clean(text, 0));
    free(text);
}

void ui_table_style(struct ui_table *t, enum ui_style style)
{
    t->next_style = style;
}

/* Columns of each table column; the widest left-aligned ones give way until all fit. */
static void measure(const struct ui_table *t, int indent, int *width)
{
    int sum = indent + GAP * (t->columns - 1);
    for (int i = 0; i < t->columns; i++) {
        width[i] = 0;
        for (size_t k = (size_t)i; k < t->n; k += (size_t)t->columns) {
            int n = ui_columns(t->cell[k]);
            width[i] = n > width[i] ? n : width[i];
        }
        sum += width[i];
    }
    while (sum > UI_WIDTH) {
        int widest = -1;
        for (int i = 0; i < t->columns; i++) {
            if (!t->right[i] && width[i] > CELL_MIN && (widest < 0 || width[i] >= width[widest])) {
                widest = i;
            }
        }
        if (widest < 0) {
            return;
        }
        width[widest]--;
        sum--;
    }
}

/* One cell; column: where it starts. The last one of a row ends the line. */
static void print_cell(const struct ui_table *t, FILE *f, size_t k, const int *width, int column)
{
    int i = (int)(k % (size_t)t->columns);
    enum ui_style style = t->style[k / (size_t)t->columns];
    bool last = i == t->columns - 1;
    char *cell = ui_clean(t->cell[k], last && t->wraps ? 0 : width[i]);
    int blanks = width[i] - ui_columns(cell);
    if (last && t->wraps && !style) {
        ui_wrap(f, column, column, cell);
        free(cell);
        return;
    }
    fprintf(f, "%*s%s%s%s", t->right[i] ? blanks : 0, "", style ? ui_on(f, style) : "", cell,
            style ? ui_off(f) : "");
    if (last) {
        fputc('\n', f);
    } else {
        fprintf(f, "%*s", t->right[i] ? 0 : blanks, "");
    }
    free(cell);
}

void ui_table_print(struct ui_table *t, FILE *f, int indent)
{
    int width[COLUMNS_MAX] = {0}, column = 0;
    while (t->n % (size_t)t->columns != 0) {
        add_cell(t, app_copy(""));
    }
    measure(t, indent, width);
    for (size_t k = 0; k < t->n; k++) {
        int i = (int)(k % (size_t)t->columns), gap = i == 0 ? indent : GAP;
        bool nothing = i == t->columns - 1 && !t->right[i] && t->cell[k][0] == 0;
        column = (i == 0 ? 0 : column) + gap;
        fprintf(f, "%*s", nothing ? 0 : gap, ""); /* no blanks at the end of a line */
        print_cell(t, f, k, width, column);
        column += width[i];
        free(t->cell[k]);
    }
    free(t->cell);
    free(t->style);
    free(t);
}
