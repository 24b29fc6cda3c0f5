/*
 * Rows are read into one array in the order of the file, then sorted by thing (cluster, quantity,
 * nodes) and line. Since rounds never go down in a file, the rows of a thing lie together and in
 * order of their rounds, and a thing's value in a round is found by bisection. `rate_flops` and
 * `rate_factor` are two ways to speak of one thing: the newer row counts.
 *
 * A file without the column round says what holds always: its rows count from round 1. Measured
 * figures are such files, and links are told by their rates there, since nobody measures a gain:
 * `rate_d2d_bps` is another way to speak of `gain_d2d`.
 *
 * The reader is strict, because a trace that is half understood gives a plausible wrong world. It
 * knows no quotes: no name that a world can have needs them.
 */
#include "world/trace.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"
#include "world/radio.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 5, FIELD_MAX = 2 * CP_WORLD_NAME };
static const char HEADER[] = "round,cluster,node,quantity,value";
static const char STEADY_HEADER[] = "cluster,node,quantity,value";

/* --- quantities ------------------------------------------------------------------------------ */

enum subject { CLUSTER, DEVICE, NODE, PAIR };
static const char *const SUBJECTS[] = {
    "a cluster: leave the node empty",
    "a device",
    "a device or cu",
    "two nodes of a cluster, as cu/NAME or NAME/NAME",
};

/* Kinds of things; two quantities may speak of one. */
enum thing { GAIN_D2D, GAIN_D2E, RATE, PRESENT, HARVEST, ARRIVALS, ENERGY, MEMORY };

enum quantity {
    Q_GAIN_D2D,
    Q_GAIN_D2E,
    Q_RATE_D2D,
    Q_RATE_D2E,
    Q_RATE,
    Q_FACTOR,
    Q_ENERGY,
    Q_MEMORY,
    Q_PRESENT,
    Q_HARVEST,
    Q_ARRIVALS
};

static const char GAINS[] = "a factor of power, 1e-30 to 1 (from dB: 10^(dB/10)); a device that "
                            "cannot be reached has present 0";

static const struct {
    const char *name;
    enum thing thing;
    enum subject subject;
    double min, max;
    const char *allowed;
} QUANTITIES[] = {
    [Q_GAIN_D2D] = {"gain_d2d", GAIN_D2D, PAIR, 1e-30, 1, GAINS},
    [Q_GAIN_D2E] = {"gain_d2e", GAIN_D2E, NODE, 1e-30, 1, GAINS},
    [Q_RATE_D2D] = {"rate_d2d_bps", GAIN_D2D, PAIR, 1, 1e13, "bit/s, 1 to 1e13"},
    [Q_RATE_D2E] = {"rate_d2e_bps", GAIN_D2E, NODE, 1, 1e13, "bit/s, 1 to 1e13"},
    [Q_ENERGY] = {"energy_j_flop", ENERGY, NODE, 0, 1e-3, "J/FLOP, 0 to 1e-3"},
    [Q_MEMORY] = {"mem_bytes", MEMORY, NODE, 1, 0x1p53, "bytes, 1 to 9e15"},
    [Q_RATE] = {"rate_flops", RATE, NODE, 1e6, 1e18, "FLOP/s, 1e6 to 1e18"},
    [Q_FACTOR] = {"rate_factor", RATE, NODE, 1e-6, 1e6,
                  "a multiple of the configured rate, 1e-6 to 1e6; a device that stands still has "
                  "present 0"},
    [Q_PRESENT] = {"present", PRESENT, DEVICE, 0, 1, "0 or 1"},
    [Q_HARVEST] = {"harvest_w", HARVEST, DEVICE, 0, 1e9, "W, 0 to 1e9"},
    [Q_ARRIVALS] = {"arrivals", ARRIVALS, CLUSTER, 0, 1e12, "samples, 0 to 1e12"},
};
enum { N_QUANTITIES = sizeof QUANTITIES / sizeof QUANTITIES[0] };

/* --- the trace ------------------------------------------------------------------------------- */

struct row {
    uint64_t key; /* of the thing */
    int32_t round;
    uint8_t quantity;
    double value; /* NaN: the model's value again */
    int64_t line;
};

struct cp_world_trace {
    int32_t rounds;
    int n_clusters;
    size_t n, cap;   /* rows */
    struct row *row; /* by thing and round */
    size_t n_things;
    size_t *first; /* [n_things + 1] index of its first row */
};

static uint64_t key_of(int cluster, enum thing thing, int a, int b)
{
    return (uint64_t)cluster << 32 | (uint64_t)thing << 16 | (uint64_t)a << 8 | (uint64_t)b;
}

static int key_cluster(uint64_t key)
{
    return (int)(key >> 32);
}

static int key_node(uint64_t key)
{
    return (int)(key >> 8 & 0xff);
}

static int key_peer(uint64_t key)
{
    return (int)(key & 0xff);
}

/* --- reading --------------------------------------------------------------------------------- */

struct reader {
    const char *name;
    int64_t line;
    const struct cp_world *names;
    int columns;  /* 0: the header is to come */
    int *by_name; /* clusters in the order of their names */
    int cluster;  /* of the last row */
    struct cp_world_trace *trace;
};

static cp_err fail_row(const struct reader *r, const char *fmt, ...) CP_PRINTF(2, 3);

static cp_err fail_row(const struct reader *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return cp_fail(CP_E_DATA, "%s:%lld: %s", r->name, (long long)r->line, text);
}

static const char *cluster_name(const struct reader *r, int sorted)
{
    return r->names->cluster[r->by_name[sorted]].name;
}

static int compare_clusters(const void *a, const void *b, void *world)
{
    const struct cp_world *w = world;
    return strcmp(w->cluster[*(const int *)a].name, w->cluster[*(const int *)b].name);
}

static cp_err sort_clusters(struct reader *r)
{
    size_t n = (size_t)r->names->n_clusters;
    CP_TRY(cp_mem_array(NULL, n, sizeof *r->by_name, &r->by_name));
    for (size_t c = 0; c < n; c++) {
        r->by_name[c] = (int)c;
    }
    qsort_r(r->by_name, n, sizeof *r->by_name, compare_clusters, (void *)(uintptr_t)r->names);
    return CP_OK;
}

static cp_err fail_cluster(const struct reader *r, const char *name)
{
    enum { TRIED = 256 }; /* names to compare with: nobody misspells among more */
    const char *names[TRIED];
    size_t n = 0;
    for (; n < TRIED && n < (size_t)r->names->n_clusters; n++) {
        names[n] = r->names->cluster[n].name;
    }
    const char *near = cp_nearest(name, names, n);
    return fail_row(r, "there is no cluster '%s'; did you mean '%s'?", name,
                    near ? near : names[0]);
}

/* Rows of one cluster usually follow each other. */
static cp_err find_cluster(struct reader *r, const char *name)
{
    if (strcmp(r->names->cluster[r->cluster].name, name) == 0) {
        return CP_OK;
    }
    int low = 0, high = r->names->n_clusters;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (strcmp(cluster_name(r, mid), name) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low == r->names->n_clusters || strcmp(cluster_name(r, low), name) != 0) {
        return fail_cluster(r, name);
    }
    r->cluster = r->by_name[low];
    return CP_OK;
}

/* 0: the control unit, k + 1: device k. */
static cp_err find_node(const struct reader *r, const char *name, int *node)
{
    const struct cp_cluster *cl = &r->names->cluster[r->cluster];
    const char *names[CP_DEVICES_MAX + 1] = {"cu"};
    for (int k = 0; k < cl->n_devices; k++) {
        names[k + 1] = cl->device[k].name;
    }
    for (int i = 0; i <= cl->n_devices; i++) {
        if (strcmp(name, names[i]) == 0) {
            *node = i;
            return CP_OK;
        }
    }
    const char *near = cp_nearest(name, names, (size_t)cl->n_devices + 1);
    return fail_row(r, "the cluster %s has no node '%s'; did you mean '%s'?", cl->name, name,
                    near ? near : names[cl->n_devices > 0]);
}

static cp_err find_subject(struct reader *r, char *node, int quantity, uint64_t *key)
{
    enum subject subject = QUANTITIES[quantity].subject;
    const char *name = QUANTITIES[quantity].name;
    char *slash = strchr(node, '/');
    int a = 0, b = 0;
    if ((subject == CLUSTER) != (node[0] == 0) || (subject == PAIR) != (slash != NULL)) {
        return fail_row(r, "%s is of %s, not of '%s'", name, SUBJECTS[subject], node);
    }
    if (slash) {
        *slash = 0;
        CP_TRY(find_node(r, slash + 1, &b));
    }
    if (subject != CLUSTER) {
        CP_TRY(find_node(r, node, &a));
    }
    if (subject == DEVICE && a == 0) {
        return fail_row(r, "%s is of %s; the control unit is always there, on mains", name,
                        SUBJECTS[subject]);
    }
    if (subject == PAIR && a == b) {
        return fail_row(r, "'%s' has no channel to itself", node);
    }
    *key = key_of(r->cluster, QUANTITIES[quantity].thing, a < b ? a : b, a < b ? b : a);
    return CP_OK;
}

static cp_err find_quantity(const struct reader *r, const char *name, int *quantity)
{
    const char *names[N_QUANTITIES];
    for (int i = 0; i < N_QUANTITIES; i++) {
        names[i] = QUANTITIES[i].name;
        if (strcmp(name, names[i]) == 0) {
            *quantity = i;
            return CP_OK;
        }
    }
    const char *near = cp_nearest(name, names, N_QUANTITIES);
    return fail_row(r,
                    "there is no quantity '%s'%s%s%s; there are gain_d2d, gain_d2e, rate_d2d_bps, "
                    "rate_d2e_bps, rate_flops, rate_factor, energy_j_flop, mem_bytes, present, "
                    "harvest_w and arrivals",
                    name, near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}

static cp_err read_value(const struct reader *r, const char *text, int quantity, double *value)
{
    const char *name = QUANTITIES[quantity].name;
    double x;
    if (text[0] == 0) {
        *value = NAN;
        return CP_OK;
    }
    if (!cp_num_real(text, &x)) {
        return fail_row(r,
                        "%s: '%s' is not a finite number; leave the value empty from where nothing "
                        "is known on, and the model's value counts",
                        name, text);
    }
    bool inside = x >= QUANTITIES[quantity].min && x <= QUANTITIES[quantity].max &&
                  (quantity != Q_PRESENT || x == 0 || x == 1);
    if (!inside) {
        return fail_row(r, "%s: '%s' is out of range; allowed: %s", name, text,
                        QUANTITIES[quantity].allowed);
    }
    *value = x;
    return CP_OK;
}

static cp_err read_round(const struct reader *r, const char *text, int32_t *round)
{
    int64_t x;
    if (!cp_num_int(text, &x) || x < 1 || x >= INT32_MAX) {
        return fail_row(r, "'%s' is no round; rounds are whole numbers from 1", text);
    }
    if (x < r->trace->rounds) {
        return fail_row(r, "round %lld comes after round %d; sort the rows by their round",
                        (long long)x, r->trace->rounds);
    }
    *round = (int32_t)x;
    return CP_OK;
}

static cp_err add_row(struct cp_world_trace *t, struct row row)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        struct row *bigger;
        CP_TRY(cp_mem_array(NULL, cap, sizeof *bigger, &bigger));
        if (t->n > 0) {
            memcpy(bigger, t->row, t->n * sizeof *bigger);
        }
        cp_mem_free(t->row);
        t->row = bigger;
        t->cap = cap;
    }
    t->row[t->n++] = row;
    t->rounds = row.round;
    return CP_OK;
}

static const char *header_of(int columns)
{
    return columns == COLUMNS ? HEADER : STEADY_HEADER;
}

/* The line without blanks around its fields; no field of a good trace is longer than FIELD_MAX. */
static cp_err split(const struct reader *r, const char *p, size_t len,
                    char field[COLUMNS][FIELD_MAX])
{
    int n = 0, columns = r->columns > 0 ? r->columns : COLUMNS;
    for (const char *end = p + len;; n++) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;
        const char *q = stop;
        for (; p < q && (*p == ' ' || *p == '\t'); p++) {
        }
        for (; q > p && (q[-1] == ' ' || q[-1] == '\t'); q--) {
        }
        if (n == columns) {
            return fail_row(r, "there are more than %d columns; they are %s", columns,
                            header_of(columns));
        }
        for (const char *c = p; c < q; c++) {
            if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '"') {
                return fail_row(r,
                                "column %d holds a quote or a control character; fields are "
                                "plain, without quotes",
                                n + 1);
            }
        }
        if (q - p >= FIELD_MAX) {
            return fail_row(r, "column %d has %zu bytes; at most %d are allowed", n + 1,
                            (size_t)(q - p), FIELD_MAX - 1);
        }
        memcpy(field[n], p, (size_t)(q - p));
        field[n][q - p] = 0;
        if (!comma) {
            break;
        }
        p = comma + 1;
    }
    if (n != columns - 1 && r->columns > 0) {
        return fail_row(r, "there are %d columns instead of %d; they are %s", n + 1, columns,
                        header_of(columns));
    }
    return CP_OK;
}

static cp_err read_header(struct reader *r, char field[COLUMNS][FIELD_MAX])
{
    char line[COLUMNS * FIELD_MAX + COLUMNS] = "";
    size_t n = 0;
    for (int i = 0; i < COLUMNS && (i < COLUMNS - 1 || field[i][0]); i++) {
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s", i ? "," : "", field[i]);
    }
    for (r->columns = COLUMNS; strcmp(line, header_of(r->columns)) != 0; r->columns--) {
        if (r->columns < COLUMNS) {
            return fail_row(r, "the header is '%.80s'; it must be %s, or %s for what holds always",
                            line, HEADER, STEADY_HEADER);
        }
    }
    return CP_OK;
}

static cp_err read_line(struct reader *r, const char *p, size_t len)
{
    char field[COLUMNS][FIELD_MAX] = {{0}};
    struct row row = {.line = r->line, .round = 1};
    int quantity = 0;
    CP_TRY(split(r, p, len, field));
    if (r->columns == 0) {
        return read_header(r, field);
    }
    int at = r->columns == COLUMNS;
    if (at) {
        CP_TRY(read_round(r, field[0], &row.round));
    }
    CP_TRY(find_cluster(r, field[at]));
    CP_TRY(find_quantity(r, field[at + 2], &quantity));
    CP_TRY(find_subject(r, field[at + 1], quantity, &row.key));
    CP_TRY(read_value(r, field[at + 3], quantity, &row.value));
    row.quantity = (uint8_t)quantity;
    return add_row(r->trace, row);
}

/* Lines that are empty or begin with # do not count. */
static cp_err read_lines(struct reader *r, const char *p, const char *end)
{
    if (end - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        p += 3;
    }
    while (p < end) {
        const char *feed = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((feed ? feed : end) - p);
        if (len > 0 && p[len - 1] == '\r') {
            len--;
        }
        r->line++;
        if (len > 0 && *p != '#') {
            CP_TRY(read_line(r, p, len));
        }
        p = feed ? feed + 1 : end;
    }
    if (r->trace->n == 0) {
        return cp_fail(CP_E_DATA, "%s: the trace has no rows; the columns are %s", r->name, HEADER);
    }
    return CP_OK;
}

/* --- order ----------------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Two rows about one thing in one round: the first such line of the file. */
static cp_err check_unique(struct reader *r)
{
    const struct cp_world_trace *t = r->trace;
    const struct row *again = NULL;
    for (size_t i = 1; i < t->n; i++) {
        const struct row *x = &t->row[i];
        if (x->key == x[-1].key && x->round == x[-1].round && (!again || x->line < again->line)) {
            again = x;
        }
    }
    if (!again) {
        return CP_OK;
    }
    r->line = again->line;
    return fail_row(r, "line %lld says this of round %d already; keep one of the two",
                    (long long)again[-1].line, again->round);
}

static cp_err index_things(struct cp_world_trace *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        n += i == 0 || t->row[i].key != t->row[i - 1].key;
    }
    CP_TRY(cp_mem_array(NULL, n + 1, sizeof *t->first, &t->first));
    for (size_t i = 0; i < t->n; i++) {
        if (i == 0 || t->row[i].key != t->row[i - 1].key) {
            t->first[t->n_things++] = i;
        }
    }
    t->first[n] = t->n;
    return CP_OK;
}

static cp_err read_all(struct reader *r, const char *bytes, size_t n)
{
    CP_TRY(sort_clusters(r));
    CP_TRY(read_lines(r, bytes, bytes + n));
    qsort(r->trace->row, r->trace->n, sizeof *r->trace->row, compare_rows);
    CP_TRY(check_unique(r));
    return index_things(r->trace);
}

cp_err cp_world_trace_parse(const char *name, const char *bytes, size_t n,
                            const struct cp_world *names, struct cp_world_trace **out)
{
    struct reader r = {.name = name, .names = names};
    CP_TRY(cp_mem_array(NULL, 1, sizeof *r.trace, &r.trace));
    r.trace->n_clusters = names->n_clusters;
    cp_err err = read_all(&r, bytes, n);
    cp_mem_free(r.by_name);
    if (err) {
        cp_world_trace_free(r.trace);
        return err;
    }
    *out = r.trace;
    return CP_OK;
}

void cp_world_trace_free(struct cp_world_trace *t)
{
    if (t) {
        cp_mem_free(t->row);
        cp_mem_free(t->first);
        cp_mem_free(t);
    }
}

int32_t cp_world_trace_rounds(const struct cp_world_trace *t)
{
    return t->rounds;
}

/* --- the world of a round -------------------------------------------------------------------- */

/* The last row of the thing up to this round; NULL: none yet. */
static const struct row *row_at(const struct cp_world_trace *t, size_t thing, int32_t round)
{
    size_t low = t->first[thing], high = t->first[thing + 1];
    const struct row *before = &t->row[low];
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->row[mid].round <= round) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return &t->row[low] == before ? NULL : &t->row[low - 1];
}

static void set_value(const struct row *row, const struct cp_world *full, struct cp_world *w)
{
    int c = key_cluster(row->key), a = key_node(row->key), b = key_peer(row->key);
    struct cp_cluster *cl = &w->cluster[c];
    const struct cp_cluster *whole = &full->cluster[c];
    /* A quantity of one node has it as its peer: key_of() puts the smaller number first. */
    struct cp_device *d = b == 0 ? &cl->cu : &cl->device[b - 1];
    double rate = b == 0 ? whole->cu.rate_flops : whole->device[b - 1].rate_flops;
    const struct cp_radio *radio = &w->radio;
    switch ((enum quantity)row->quantity) {
    case Q_GAIN_D2D:
        cl->gain_d2d[a][b] = cl->gain_d2d[b][a] = row->value;
        break;
    case Q_GAIN_D2E:
        cl->gain_d2e[b] = row->value;
        break;
    case Q_RATE_D2D:
        cl->gain_d2d[a][b] = cl->gain_d2d[b][a] =
            cp_rate_gain(row->value, 1, radio->band_d2d_hz, d->power_d2d_w, radio->noise_w_hz);
        break;
    case Q_RATE_D2E:
        cl->gain_d2e[b] =
            cp_rate_gain(row->value, 1, radio->band_up_hz, d->power_d2e_w, radio->noise_w_hz);
        break;
    case Q_ENERGY:
        d->energy_j_flop = row->value;
        break;
    case Q_MEMORY:
        d->mem_bytes = (size_t)row->value;
        break;
    case Q_RATE:
        d->rate_flops = row->value;
        break;
    case Q_FACTOR:
        d->rate_flops = rate * row->value;
        break;
    case Q_PRESENT:
        d->present = row->value == 1;
        d->absence = CP_ABSENCE_LEFT;
        break;
    case Q_HARVEST:
        d->harvest_w = row->value;
        break;
    case Q_ARRIVALS:
        cl->arrivals = row->value;
        break;
    }
}

bool cp_world_trace_has_arrivals(const struct cp_world_trace *t, int cluster)
{
    for (size_t i = 0; i < t->n_things; i++) {
        const struct row *row = &t->row[t->first[i]];
        if (key_cluster(row->key) == cluster && row->quantity == Q_ARRIVALS) {
            return true;
        }
    }
    return false;
}

cp_err cp_world_trace_apply(const struct cp_world_trace *t, enum cp_world_trace_end end,
                            const struct cp_world *full, struct cp_world *w)
{
    assert(w->n_clusters == t->n_clusters && full->n_clusters == t->n_clusters && w->round >= 0);
    int64_t round = (int64_t)w->round + 1;
    if (round > t->rounds && end == CP_WORLD_TRACE_STOP) {
        return cp_fail(
            CP_E_DATA,
            "the trace ends with round %d, round %lld has no world: ask for fewer rounds, "
            "or let radio.trace_end be hold or cycle",
            t->rounds, (long long)round);
    }
    if (end == CP_WORLD_TRACE_CYCLE) {
        round = (round - 1) % t->rounds + 1;
    }
    round = round < t->rounds ? round : t->rounds;
    for (size_t i = 0; i < t->n_things; i++) {
        const struct row *row = row_at(t, i, (int32_t)round);
        if (row && !isnan(row->value)) {
            set_value(row, full, w);
        }
    }
    return CP_OK;
}
