/*
 * trace: collects events under a lock that is held for a copy of one record, and makes the file
 * from a snapshot: a record never changes once it is counted, so writing needs no lock.
 */
#include "store/trace.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A node that has put an event. Written once, before the first record points to it. */
struct node {
    struct node *next;           /* of its bucket */
    struct node *older;          /* of all nodes, newest first */
    int index;                   /* in order of arrival */
    int32_t stage;               /* of its first event */
    size_t cluster, cluster_len; /* where the cluster's name stands in name */
    char name[];
};

struct record {
    int64_t t0_ns, t1_ns, bytes;
    const struct node *node;
    const char *kind;
    int32_t round, step, stage, micro;
    double energy_j;
};

enum { BUCKETS = 256 };

struct cp_trace {
    pthread_mutex_t lock;
    size_t n, max;
    int64_t dropped;
    int n_nodes;
    struct node *newest;
    struct node *bucket[BUCKETS];
    struct record record[];
};

cp_err cp_trace_new(size_t max_events, struct cp_trace **out)
{
    struct cp_trace *t = NULL;
    if (max_events > (SIZE_MAX - sizeof *t) / sizeof t->record[0]) {
        return cp_fail(CP_E_NOMEM, "a trace of %zu events is more than can be addressed",
                       max_events);
    }
    CP_TRY(cp_mem_new(NULL, sizeof *t + max_events * sizeof t->record[0], &t));
    t->max = max_events;
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return CP_OK;
}

void cp_trace_free(struct cp_trace *t)
{
    if (!t) {
        return;
    }
    for (struct node *v = t->newest, *older; v; v = older) {
        older = v->older;
        cp_mem_free(v);
    }
    pthread_mutex_destroy(&t->lock);
    cp_mem_free(t);
}

static unsigned bucket_of(const char *name)
{
    uint32_t h = 2166136261u;
    for (const char *p = name; *p; p++) {
        h = (h ^ (unsigned char)*p) * 16777619u;
    }
    return h % BUCKETS;
}

/* "c1.d2" and "edge.c1" belong to cluster c1; a name without a dot to none. */
static void set_cluster(struct node *v)
{
    const char *dot = strchr(v->name, '.');
    if (!dot) {
        return;
    }
    size_t head = (size_t)(dot - v->name);
    bool edge = head == 4 && memcmp(v->name, "edge", 4) == 0;
    v->cluster = edge ? head + 1 : 0;
    v->cluster_len = edge ? strlen(dot + 1) : head;
}

/* The node of an event, made at its first one; NULL without memory. */
static const struct node *node_of(struct cp_trace *t, const struct cp_event *e)
{
    struct node **first = &t->bucket[bucket_of(e->node)], *v = *first;
    while (v && strcmp(v->name, e->node) != 0) {
        v = v->next;
    }
    size_t n = strlen(e->node) + 1;
    if (v || cp_mem_new(NULL, sizeof *v + n, &v) != CP_OK) {
        return v;
    }
    memcpy(v->name, e->node, n);
    set_cluster(v);
    v->index = t->n_nodes++;
    v->stage = e->stage;
    v->next = *first;
    v->older = t->newest;
    *first = t->newest = v;
    return v;
}

void cp_trace_put(void *trace, const struct cp_event *e)
{
    struct cp_trace *t = trace;
    pthread_mutex_lock(&t->lock);
    const struct node *v = t->n < t->max ? node_of(t, e) : NULL;
    if (v) {
        t->record[t->n++] = (struct record){.t0_ns = e->t0_ns,
                                            .t1_ns = e->t1_ns > e->t0_ns ? e->t1_ns : e->t0_ns,
                                            .bytes = e->bytes,
                                            .node = v,
                                            .kind = e->kind,
                                            .round = e->round,
                                            .step = e->step,
                                            .stage = e->stage,
                                            .micro = e->micro,
                                            .energy_j = e->energy_j};
    } else {
        t->dropped++;
    }
    pthread_mutex_unlock(&t->lock);
}

int64_t cp_trace_dropped(struct cp_trace *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t dropped = t->dropped;
    pthread_mutex_unlock(&t->lock);
    return dropped;
}

/* --- the file -------------------------------------------------------------------------------- */

enum lane { COMPUTE, WAIT, SEND, OTHER, LANES };
static const char *const LANE_NAMES[LANES] = {"compute", "wait", "send", "other"};

static const struct {
    const char *kind;
    enum lane lane;
} KINDS[] = {
    {"FWD", COMPUTE}, {"BWD", COMPUTE}, {"STEP", COMPUTE}, {"SEND_ACT", SEND}, {"SEND_GRAD", SEND},
    {"ACT", WAIT},    {"GRAD", WAIT},   {"NORM", WAIT},    {"COMMIT", WAIT},
};

static enum lane lane_of(const char *kind)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strcmp(kind, KINDS[i].kind) == 0) {
            return KINDS[i].lane;
        }
    }
    return OTHER;
}

/* A record and where it is drawn. */
struct slice {
    const struct record *r;
    int pid;
    enum lane lane;
    int track; /* -1 until found */
};

static int tid_of(const struct slice *s)
{
    return 1 + (int)s->lane + LANES * s->track;
}

/* One end of an arrow. */
struct end {
    const struct slice *slice;
    bool grad;
    int32_t to; /* stage that receives */
    enum { SENT, WAITED, USED } rank;
    bool taken;
};

struct writer {
    size_t n_records;
    int n_nodes;
    int64_t dropped, origin_ns;
    const struct record *record;
    const struct node **node;  /* [n_nodes], sorted: pid is the place + 1 */
    int *pid;                  /* [n_nodes] by node index */
    struct slice *slice;       /* [n_records], by pid, lane and time */
    const struct slice **open; /* [n_records], the stack of one track */
    struct end *end;           /* [n_records] */
    size_t n_ends;
    struct cp_str text;
    bool first; /* no element was written yet */
};

static int compare_nodes(const void *pa, const void *pb)
{
    const struct node *a = *(const struct node *const *)pa, *b = *(const struct node *const *)pb;
    size_t n = a->cluster_len < b->cluster_len ? a->cluster_len : b->cluster_len;
    int by_cluster = memcmp(a->name + a->cluster, b->name + b->cluster, n);
    if (by_cluster == 0) {
        by_cluster = (a->cluster_len > b->cluster_len) - (a->cluster_len < b->cluster_len);
    }
    if (by_cluster != 0) {
        return by_cluster;
    }
    return a->stage != b->stage ? (a->stage > b->stage) - (a->stage < b->stage)
                                : strcmp(a->name, b->name);
}

static int compare_slices(const void *pa, const void *pb)
{
    const struct slice *a = pa, *b = pb;
    int place_a = a->pid * LANES + (int)a->lane, place_b = b->pid * LANES + (int)b->lane;
    if (place_a != place_b) {
        return place_a < place_b ? -1 : 1;
    }
    if (a->r->t0_ns != b->r->t0_ns) {
        return a->r->t0_ns < b->r->t0_ns ? -1 : 1;
    }
    if (a->r->t1_ns != b->r->t1_ns) { /* the longer one holds the other */
        return a->r->t1_ns > b->r->t1_ns ? -1 : 1;
    }
    return (a->r > b->r) - (a->r < b->r);
}

/* Finds tracks for the slices of one lane, in order of time: a track takes what nests in it. */
static void assign_tracks(struct slice *s, size_t n, const struct slice **open)
{
    size_t left = n;
    for (int track = 0; left > 0; track++) {
        size_t depth = 0;
        for (size_t i = 0; i < n; i++) {
            if (s[i].track >= 0) {
                continue;
            }
            while (depth > 0 && open[depth - 1]->r->t1_ns <= s[i].r->t0_ns) {
                depth--;
            }
            if (depth == 0 || s[i].r->t1_ns <= open[depth - 1]->r->t1_ns) {
                s[i].track = track;
                open[depth++] = &s[i];
                left--;
            }
        }
    }
}

static bool same_lane(const struct slice *a, const struct slice *b)
{
    return a->pid == b->pid && a->lane == b->lane;
}

static void arrange(struct writer *w)
{
    qsort(w->node, (size_t)w->n_nodes, sizeof w->node[0], compare_nodes);
    for (int i = 0; i < w->n_nodes; i++) {
        w->pid[w->node[i]->index] = i + 1;
    }
    for (size_t i = 0; i < w->n_records; i++) {
        const struct record *r = &w->record[i];
        w->slice[i] = (struct slice){r, w->pid[r->node->index], lane_of(r->kind), -1};
        w->origin_ns = i == 0 || r->t0_ns < w->origin_ns ? r->t0_ns : w->origin_ns;
    }
    if (w->n_records > 0) {
        qsort(w->slice, w->n_records, sizeof w->slice[0], compare_slices);
    }
    for (size_t i = 0, n; i < w->n_records; i += n) {
        for (n = 1; i + n < w->n_records && same_lane(&w->slice[i], &w->slice[i + n]);) {
            n++;
        }
        assign_tracks(&w->slice[i], n, w->open);
    }
}

/* --- text ------------------------------------------------------------------------------------ */

static void put_json_text(struct cp_str *s, const char *text)
{
    cp_str_puts(s, "\"");
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\') {
            cp_str_printf(s, "\\%c", *p);
        } else if ((unsigned char)*p < 0x20) {
            cp_str_printf(s, "\\u%04x", *p);
        } else {
            cp_str_add(s, p, 1);
        }
    }
    cp_str_puts(s, "\"");
}

/* Microseconds with the nanoseconds behind the point: no rounding, so what nests stays nested. */
static void put_us(struct cp_str *s, const char *member, uint64_t ns)
{
    cp_str_printf(s, ",\"%s\":%llu.%03u", member, (unsigned long long)(ns / 1000),
                  (unsigned)(ns % 1000));
}

static void put_start(struct writer *w, const char *phase, int pid, int tid)
{
    cp_str_printf(&w->text, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", w->first ? "\n" : ",\n",
                  phase, pid, tid);
    w->first = false;
}

static void put_sort_index(struct writer *w, const char *what, int pid, int tid, int place)
{
    put_start(w, "M", pid, tid);
    cp_str_printf(&w->text, ",\"name\":\"%s\",\"args\":{\"sort_index\":%d}}", what, place);
}

static void put_names(struct writer *w)
{
    int tracks = 0;
    for (int i = 0; i < w->n_nodes; i++) {
        put_start(w, "M", i + 1, 0);
        cp_str_puts(&w->text, ",\"name\":\"process_name\",\"args\":{\"name\":");
        put_json_text(&w->text, w->node[i]->name);
        cp_str_puts(&w->text, "}}");
        put_sort_index(w, "process_sort_index", i + 1, 0, i);
    }
    for (size_t i = 0; i < w->n_records; i++) {
        const struct slice *s = &w->slice[i];
        tracks = i > 0 && same_lane(s, s - 1) ? tracks : 0;
        if (s->track < tracks) {
            continue;
        }
        tracks++; /* in order of time the tracks of a lane appear one by one */
        put_start(w, "M", s->pid, tid_of(s));
        cp_str_printf(&w->text, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s",
                      LANE_NAMES[s->lane]);
        if (s->track > 0) {
            cp_str_printf(&w->text, " %d", s->track + 1);
        }
        cp_str_puts(&w->text, "\"}}");
        put_sort_index(w, "thread_sort_index", s->pid, tid_of(s), tid_of(s));
    }
}

static void put_args(struct cp_str *s, const struct record *r)
{
    char joules[CP_NUM_TEXT];
    cp_str_printf(s, ",\"args\":{\"stage\":%d", r->stage);
    if (r->round >= 0) {
        cp_str_printf(s, ",\"round\":%d", r->round + 1);
    }
    if (r->step >= 0) {
        cp_str_printf(s, ",\"step\":%d", r->step + 1);
    } else if (r->step < -1) { /* the k-th part of an evaluation counts down from -2 */
        cp_str_printf(s, ",\"evaluation\":%d", -1 - r->step);
    }
    if (r->micro >= 0) {
        cp_str_printf(s, ",\"micro\":%d", r->micro);
    }
    if (r->bytes > 0) {
        cp_str_printf(s, ",\"bytes\":%lld", (long long)r->bytes);
    }
    if (isfinite(r->energy_j) && r->energy_j != 0) {
        cp_num_text(r->energy_j, joules);
        cp_str_printf(s, ",\"energy_j\":%s", joules);
    }
    cp_str_puts(s, "}}");
}

static void put_slices(struct writer *w)
{
    for (size_t i = 0; i < w->n_records; i++) {
        const struct slice *s = &w->slice[i];
        const struct record *r = s->r;
        put_start(w, "X", s->pid, tid_of(s));
        put_us(&w->text, "ts", (uint64_t)r->t0_ns - (uint64_t)w->origin_ns);
        put_us(&w->text, "dur", (uint64_t)r->t1_ns - (uint64_t)r->t0_ns);
        cp_str_printf(&w->text, ",\"cat\":\"%s\",\"name\":", LANE_NAMES[s->lane]);
        put_json_text(&w->text, r->kind);
        put_args(&w->text, r);
    }
}

/* --- arrows ---------------------------------------------------------------------------------- */

/* False for what no arrow starts from or ends at. */
static bool end_of(const struct slice *s, struct end *e)
{
    static const struct {
        const char *kind;
        bool grad;
        int step; /* from this stage to the one that receives */
        int rank;
    } ENDS[] = {
        {"SEND_ACT", false, 1, SENT}, {"SEND_GRAD", true, -1, SENT}, {"ACT", false, 0, WAITED},
        {"GRAD", true, 0, WAITED},    {"FWD", false, 0, USED},       {"BWD", true, 0, USED},
    };
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++) {
        if (strcmp(s->r->kind, ENDS[i].kind) == 0) {
            *e = (struct end){s, ENDS[i].grad, s->r->stage + ENDS[i].step, ENDS[i].rank, false};
            return true;
        }
    }
    return false;
}

/* Orders by what must be equal on both ends. */
static int compare_tags(const struct end *a, const struct end *b)
{
    const struct record *ra = a->slice->r, *rb = b->slice->r;
    if (ra->round != rb->round) {
        return ra->round < rb->round ? -1 : 1;
    }
    if (ra->step != rb->step) {
        return ra->step < rb->step ? -1 : 1;
    }
    if (ra->micro != rb->micro) {
        return ra->micro < rb->micro ? -1 : 1;
    }
    if (a->to != b->to) {
        return a->to < b->to ? -1 : 1;
    }
    return a->grad - b->grad;
}

static int compare_ends(const void *pa, const void *pb)
{
    const struct end *a = pa, *b = pb;
    int by_tag = compare_tags(a, b);
    if (by_tag != 0) {
        return by_tag;
    }
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return (a->slice > b->slice) - (a->slice < b->slice);
}

/* The simulator has one edge for all clusters, so a name without a cluster fits any. */
static bool may_meet(const struct node *a, const struct node *b)
{
    return a->cluster_len == 0 || b->cluster_len == 0 ||
           (a->cluster_len == b->cluster_len &&
            memcmp(a->name + a->cluster, b->name + b->cluster, a->cluster_len) == 0);
}

static void put_arrow_end(struct writer *w, const char *phase, const struct end *e, uint64_t at_ns,
                          int id)
{
    put_start(w, phase, e->slice->pid, tid_of(e->slice));
    put_us(&w->text, "ts", at_ns - (uint64_t)w->origin_ns);
    cp_str_printf(&w->text, ",\"id\":%d,\"cat\":\"message\",\"name\":\"%s\"%s}", id,
                  e->grad ? "GRAD" : "ACT", phase[0] == 'f' ? ",\"bp\":\"e\"" : "");
}

/* From the start of the send to the last nanosecond of the wait, or to the start of the op: a point
 * inside the slice, to which the viewer ties it. An arrow back in time is left out. */
static bool put_arrow(struct writer *w, const struct end *from, const struct end *to, int id)
{
    const struct record *sent = from->slice->r, *got = to->slice->r;
    int64_t at_ns = to->rank == WAITED && got->t1_ns > got->t0_ns ? got->t1_ns - 1 : got->t0_ns;
    if (at_ns < sent->t0_ns) {
        return false;
    }
    put_arrow_end(w, "s", from, (uint64_t)sent->t0_ns, id);
    put_arrow_end(w, "f", to, (uint64_t)at_ns, id);
    return true;
}

static void put_arrows(struct writer *w)
{
    int id = 1;
    for (size_t i = 0; i < w->n_records; i++) {
        w->n_ends += end_of(&w->slice[i], &w->end[w->n_ends]);
    }
    if (w->n_ends > 0) {
        qsort(w->end, w->n_ends, sizeof w->end[0], compare_ends);
    }
    for (size_t i = 0; i < w->n_ends; i++) {
        struct end *from = &w->end[i];
        for (size_t k = i + 1;
             from->rank == SENT && k < w->n_ends && compare_tags(from, &w->end[k]) == 0; k++) {
            struct end *to = &w->end[k];
            if (to->rank != SENT && !to->taken &&
                may_meet(from->slice->r->node, to->slice->r->node)) {
                to->taken = true;
                id += put_arrow(w, from, to, id);
                break;
            }
        }
    }
}

/* --- all of it ------------------------------------------------------------------------------- */

static void writer_fini(struct writer *w)
{
    cp_mem_free(w->node);
    cp_mem_free(w->pid);
    cp_mem_free(w->slice);
    cp_mem_free(w->open);
    cp_mem_free(w->end);
    cp_str_fini(&w->text);
}

static cp_err snapshot(struct cp_trace *t, struct writer *w)
{
    pthread_mutex_lock(&t->lock);
    *w = (struct writer){.n_records = t->n,
                         .n_nodes = t->n_nodes,
                         .dropped = t->dropped,
                         .record = t->record,
                         .first = true};
    const struct node *v = t->newest;
    pthread_mutex_unlock(&t->lock);
    CP_TRY(cp_mem_array(NULL, (size_t)w->n_nodes, sizeof w->node[0], &w->node));
    CP_TRY(cp_mem_array(NULL, (size_t)w->n_nodes, sizeof w->pid[0], &w->pid));
    CP_TRY(cp_mem_array(NULL, w->n_records, sizeof w->slice[0], &w->slice));
    CP_TRY(cp_mem_array(NULL, w->n_records, sizeof w->open[0], &w->open));
    CP_TRY(cp_mem_array(NULL, w->n_records, sizeof w->end[0], &w->end));
    for (int i = 0; v; v = v->older) {
        w->node[i++] = v;
    }
    return CP_OK;
}

cp_err cp_trace_write(struct cp_trace *t, const char *path)
{
    struct writer w;
    cp_err err = snapshot(t, &w);
    if (!err) {
        arrange(&w);
        cp_str_printf(&w.text,
                      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"events\":%zu,\"dropped\":%lld},"
                      "\"traceEvents\":[",
                      w.n_records, (long long)w.dropped);
        put_names(&w);
        put_slices(&w);
        put_arrows(&w);
        cp_str_puts(&w.text, "\n]}\n");
        err = cp_str_check(&w.text);
    }
    if (!err) {
        err = cp_file_write(path, w.text.p, w.text.len);
    }
    writer_fini(&w);
    return err;
}
