/* trace: what a viewer of Chrome traces needs, read back with another JSON reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/trace.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64], path[128];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cp_trace_XXXXXX");
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/trace.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

/* --- events and the file as a viewer sees it ---------------------------------------------------
 */

static struct cp_event event(const char *node, const char *kind, int stage, int micro,
                             int64_t t0_us, int64_t t1_us)
{
    return (struct cp_event){.t0_ns = 1000 * t0_us,
                             .t1_ns = 1000 * t1_us,
                             .node = node,
                             .kind = kind,
                             .round = 2,
                             .step = 4,
                             .stage = stage,
                             .micro = micro};
}

static struct cp_trace *trace_of(const struct cp_event *e, size_t n)
{
    struct cp_trace *t;
    assert_int_equal(cp_trace_new(n, &t), CP_OK);
    for (size_t i = 0; i < n; i++) {
        cp_trace_put(t, &e[i]);
    }
    return t;
}

static json_t *read_back(struct cp_trace *t)
{
    json_error_t why;
    assert_int_equal(cp_trace_write(t, path), CP_OK);
    json_t *doc = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!doc) {
        fail_msg("line %d: %s", why.line, why.text);
    }
    return doc;
}

/* Writes and frees t. */
static json_t *written(struct cp_trace *t)
{
    json_t *doc = read_back(t);
    cp_trace_free(t);
    return doc;
}

static json_t *list_of(json_t *doc)
{
    return json_object_get(doc, "traceEvents");
}

static const char *text_of(json_t *e, const char *member)
{
    const char *s = json_string_value(json_object_get(e, member));
    return s ? s : "";
}

static int int_of(json_t *e, const char *member)
{
    json_t *v = json_object_get(e, member);
    assert_true(json_is_integer(v));
    return (int)json_integer_value(v);
}

/* Times in the file are microseconds with three digits: back to nanoseconds. */
static int64_t ns_of(json_t *e, const char *member)
{
    json_t *v = json_object_get(e, member);
    assert_true(json_is_real(v));
    return llround(json_real_value(v) * 1000);
}

/* The which-th element of a phase with this name (NULL: any), or NULL. */
static json_t *find(json_t *doc, const char *phase, const char *name, int which)
{
    size_t i;
    json_t *e;
    json_array_foreach(list_of(doc), i, e)
    {
        if (strcmp(text_of(e, "ph"), phase) == 0 &&
            (!name || strcmp(text_of(e, "name"), name) == 0) && which-- == 0) {
            return e;
        }
    }
    return NULL;
}

/* What the M events call a process (what "process_name") or thread (what "thread_name"). */
static const char *name_of(json_t *doc, const char *what, json_t *of)
{
    json_t *m;
    for (int i = 0; (m = find(doc, "M", what, i)); i++) {
        if (int_of(m, "pid") == int_of(of, "pid") &&
            (strcmp(what, "process_name") == 0 || int_of(m, "tid") == int_of(of, "tid"))) {
            return text_of(json_object_get(m, "args"), "name");
        }
    }
    return "";
}

static void assert_place(json_t *doc, json_t *e, const char *process, const char *thread)
{
    assert_non_null(e);
    assert_string_equal(name_of(doc, "process_name", e), process);
    assert_string_equal(name_of(doc, "thread_name", e), thread);
}

/* --- slices ------------------------------------------------------------------------------------
 */

static void test_slices(void **state)
{
    (void)state;
    struct cp_event e[] = {
        event("c1.d1", "FWD", 1, 3, 1000, 1250),     event("c1.d1", "SEND_ACT", 1, 3, 1250, 1251),
        event("c1.d1", "ACT", 1, 3, 990, 1000),      event("c1.d1", "BWD", 1, 3, 2000, 2500),
        event("c1.d1", "GRAD", 1, 3, 1300, 2000),    event("c1.d1", "SEND_GRAD", 1, 3, 2500, 2501),
        event("c1.d1", "STEP", 1, -1, 2600, 2900),   event("c1.d1", "NORM", 1, -1, 2601, 2700),
        event("c1.d1", "COMMIT", 1, -1, 2700, 2800), event("c1.d1", "PAUSE", 1, -1, 0, 3000),
    };
    static const char *const THREAD[] = {"compute", "send",    "wait", "compute", "wait",
                                         "send",    "compute", "wait", "wait",    "other"};
    e[0].energy_j = 0.1;
    e[1].bytes = 4096;
    e[3].step = -4; /* third part of an evaluation */
    e[3].t0_ns += 7;
    size_t n = sizeof e / sizeof e[0];
    json_t *doc = written(trace_of(e, n));
    for (size_t i = 0; i < n; i++) {
        json_t *x = find(doc, "X", e[i].kind, 0);
        assert_place(doc, x, "c1.d1", THREAD[i]);
        assert_null(find(doc, "X", e[i].kind, 1));
        assert_int_equal(ns_of(x, "ts"), e[i].t0_ns); /* the first event is at 0 */
        assert_int_equal(ns_of(x, "dur"), e[i].t1_ns - e[i].t0_ns);
        json_t *args = json_object_get(x, "args");
        assert_int_equal(int_of(args, "round"), 3);
        assert_int_equal(int_of(args, "stage"), 1);
        assert_int_equal(json_integer_value(json_object_get(args, "micro")),
                         e[i].micro < 0 ? 0 : 3);
        assert_int_equal(json_integer_value(json_object_get(args, "step")), i == 3 ? 0 : 5);
        assert_int_equal(json_integer_value(json_object_get(args, "evaluation")), i == 3 ? 3 : 0);
        assert_int_equal(json_integer_value(json_object_get(args, "bytes")), i == 1 ? 4096 : 0);
        assert_true(json_real_value(json_object_get(args, "energy_j")) == (i == 0 ? 0.1 : 0));
    }
    json_decref(doc);
}

static void test_times_start_at_zero(void **state)
{
    (void)state;
    struct cp_event e[] = {event("a", "FWD", 0, 0, 5000000, 5000010),
                           event("a", "FWD", 0, 1, 4000000, 4000001),
                           event("a", "FWD", 0, 2, 6000000, 5999999)}; /* ends before it starts */
    json_t *doc = written(trace_of(e, 3));
    assert_int_equal(ns_of(find(doc, "X", "FWD", 0), "ts"), 0);
    assert_int_equal(ns_of(find(doc, "X", "FWD", 1), "ts"), 1000000000);
    assert_int_equal(ns_of(find(doc, "X", "FWD", 2), "dur"), 0);
    json_decref(doc);
}

static void test_order_of_nodes(void **state)
{
    (void)state;
    struct cp_event e[] = {
        event("edge.c1", "FWD", 3, 0, 4, 5), event("c2.cu", "FWD", 0, 0, 1, 2),
        event("c1.a", "FWD", 2, 0, 3, 4),    event("c1.b", "FWD", 1, 0, 2, 3),
        event("c1.cu", "FWD", 0, 0, 1, 2),   event("edge.c2", "FWD", 1, 0, 1, 2),
    };
    static const char *const WANT[] = {"c1.cu", "c1.b", "c1.a", "edge.c1", "c2.cu", "edge.c2"};
    json_t *doc = written(trace_of(e, 6));
    for (int i = 0; i < 6; i++) {
        json_t *m = find(doc, "M", "process_name", i), *s = find(doc, "M", "process_sort_index", i);
        assert_string_equal(text_of(json_object_get(m, "args"), "name"), WANT[i]);
        assert_int_equal(int_of(m, "pid"), i + 1);
        assert_int_equal(int_of(json_object_get(s, "args"), "sort_index"), i);
    }
    assert_null(find(doc, "M", "process_name", 6));
    json_decref(doc);
}

static void test_names_are_escaped_and_copied(void **state)
{
    (void)state;
    char name[] = "a\"\\\n\xc3\xa9";
    struct cp_event e = event(name, "FWD", 0, 0, 0, 1);
    struct cp_trace *t = trace_of(&e, 1);
    memset(name, 'x', sizeof name - 1); /* the sink had borrowed it */
    json_t *doc = written(t);
    assert_place(doc, find(doc, "X", "FWD", 0), "a\"\\\n\xc3\xa9", "compute");
    json_decref(doc);
}

static void test_energy_that_is_not_finite_is_left_out(void **state)
{
    (void)state;
    struct cp_event e[] = {event("a", "FWD", 0, 0, 0, 1), event("a", "BWD", 0, 0, 1, 2)};
    e[0].energy_j = NAN;
    e[1].energy_j = INFINITY;
    json_t *doc = written(trace_of(e, 2));
    assert_null(json_object_get(json_object_get(find(doc, "X", "FWD", 0), "args"), "energy_j"));
    assert_null(json_object_get(json_object_get(find(doc, "X", "BWD", 0), "args"), "energy_j"));
    json_decref(doc);
}

/* --- nesting -----------------------------------------------------------------------------------
 */

static void test_half_overlaps_get_a_second_thread(void **state)
{
    (void)state;
    struct cp_event e[] = {
        event("a", "SEND_ACT", 1, 0, 0, 10),  event("a", "SEND_GRAD", 1, 0, 5, 15),
        event("a", "SEND_ACT", 1, 1, 10, 20), event("a", "SEND_GRAD", 1, 1, 15, 25),
        event("a", "SEND_ACT", 1, 2, 30, 40), event("a", "SEND_GRAD", 1, 2, 32, 38), /* nests */
        event("a", "SEND_ACT", 1, 3, 50, 55), event("a", "SEND_GRAD", 1, 3, 50, 60), /* nests */
    };
    json_t *doc = written(trace_of(e, 8));
    for (int i = 0; i < 4; i++) {
        assert_place(doc, find(doc, "X", "SEND_ACT", i), "a", "send");
        assert_place(doc, find(doc, "X", "SEND_GRAD", i), "a", i < 2 ? "send 2" : "send");
    }
    json_decref(doc);
}

static bool same_thread(json_t *a, json_t *b)
{
    return strcmp(text_of(b, "ph"), "X") == 0 && int_of(a, "pid") == int_of(b, "pid") &&
           int_of(a, "tid") == int_of(b, "tid");
}

static void test_any_events_nest(void **state)
{
    (void)state;
    enum { N = 400 };
    static const char *const KIND[] = {"FWD", "BWD", "SEND_ACT", "GRAD"};
    static const char *const NODE[] = {"c1.d1", "c1.d2"};
    struct cp_event e[N];
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        e[i] = event(NODE[x >> 30 & 1], KIND[x >> 28 & 3], 1, i, x >> 8 & 1023, 0);
        e[i].t1_ns = e[i].t0_ns + 1000 * (x >> 18 & 63) + (x & 1); /* some without length */
    }
    json_t *doc = written(trace_of(e, N)), *list = list_of(doc), *a, *b;
    int slices = 0;
    for (size_t i = 0; (a = json_array_get(list, i)); i++) {
        if (strcmp(text_of(a, "ph"), "X") != 0) {
            continue;
        }
        slices++;
        assert_string_not_equal(name_of(doc, "thread_name", a), "");
        int64_t a0 = ns_of(a, "ts"), a1 = a0 + ns_of(a, "dur");
        for (size_t k = i + 1; (b = json_array_get(list, k)); k++) {
            if (!same_thread(a, b)) {
                continue;
            }
            int64_t b0 = ns_of(b, "ts"), b1 = b0 + ns_of(b, "dur");
            bool apart = a1 <= b0 || b1 <= a0;
            bool nested = (a0 <= b0 && b1 <= a1) || (b0 <= a0 && a1 <= b1);
            assert_true(apart || nested);
        }
    }
    assert_int_equal(slices, N);
    json_decref(doc);
}

/* --- arrows ------------------------------------------------------------------------------------
 */

static void assert_inside(json_t *doc, json_t *end, const char *node, const char *kind)
{
    assert_non_null(end);
    assert_string_equal(name_of(doc, "process_name", end), node);
    json_t *x;
    for (int i = 0; (x = find(doc, "X", kind, i)); i++) {
        int64_t at = ns_of(end, "ts"), t0 = ns_of(x, "ts"), dur = ns_of(x, "dur");
        if (int_of(x, "pid") == int_of(end, "pid") && int_of(x, "tid") == int_of(end, "tid") &&
            at >= t0 && at < t0 + dur) {
            return;
        }
    }
    fail_msg("an arrow's end is in no %s of %s", kind, node);
}

/* Arrow number which goes from a slice to another one, forward in time. */
static void assert_arrow(json_t *doc, int which, const char *name, const char *from,
                         const char *from_kind, const char *to, const char *to_kind)
{
    json_t *s = find(doc, "s", name, which), *f = find(doc, "f", name, which);
    assert_inside(doc, s, from, from_kind);
    assert_inside(doc, f, to, to_kind);
    assert_int_equal(int_of(s, "id"), int_of(f, "id"));
    assert_string_equal(text_of(s, "cat"), text_of(f, "cat"));
    assert_string_equal(text_of(f, "bp"), "e");
    assert_true(ns_of(s, "ts") <= ns_of(f, "ts"));
}

static void test_arrows_of_a_run(void **state)
{
    (void)state;
    struct cp_event e[] = {
        /* both clusters do the same at the same time; waits begin before and after the send */
        event("c2.d1", "ACT", 1, 0, 0, 30),
        event("c2.cu", "SEND_ACT", 0, 0, 20, 29),
        event("c1.cu", "SEND_ACT", 0, 0, 20, 29),
        event("c1.d1", "ACT", 1, 0, 100, 101),
        event("c1.d1", "FWD", 1, 0, 101, 110),
        event("c2.d1", "FWD", 1, 0, 30, 40),
        event("edge.c1", "SEND_GRAD", 2, 0, 200, 210),
        event("c1.d1", "GRAD", 1, 0, 150, 211),
        event("c1.d1", "BWD", 1, 0, 211, 300),
        event("c1.cu", "GRAD", 0, 1, 150, 211),
    };
    json_t *doc = written(trace_of(e, sizeof e / sizeof e[0]));
    assert_arrow(doc, 0, "ACT", "c1.cu", "SEND_ACT", "c1.d1", "ACT");
    assert_arrow(doc, 1, "ACT", "c2.cu", "SEND_ACT", "c2.d1", "ACT");
    assert_arrow(doc, 0, "GRAD", "edge.c1", "SEND_GRAD", "c1.d1", "GRAD");
    assert_null(find(doc, "s", NULL, 3));
    assert_null(find(doc, "f", NULL, 3));
    assert_int_not_equal(int_of(find(doc, "s", NULL, 0), "id"),
                         int_of(find(doc, "s", NULL, 1), "id"));
    json_decref(doc);
}

static void test_arrows_of_a_simulation(void **state)
{
    (void)state;
    struct cp_event e[] = {
        event("c1.d1", "SEND_ACT", 1, 0, 10, 20), event("edge", "FWD", 2, 0, 20, 30),
        event("edge", "BWD", 2, 0, 30, 50),       event("edge", "SEND_GRAD", 2, 0, 50, 60),
        event("c1.d1", "BWD", 1, 0, 60, 80),
    };
    json_t *doc = written(trace_of(e, 5));
    assert_arrow(doc, 0, "ACT", "c1.d1", "SEND_ACT", "edge", "FWD");
    assert_arrow(doc, 0, "GRAD", "edge", "SEND_GRAD", "c1.d1", "BWD");
    assert_null(find(doc, "s", NULL, 2));
    json_decref(doc);
}

static void test_one_arrow_for_each_end(void **state)
{
    (void)state;
    struct cp_event e[] = {
        /* one edge takes the same micro-batch of two clusters */
        event("c1.d1", "SEND_ACT", 1, 0, 10, 20), event("c2.d1", "SEND_ACT", 1, 0, 12, 22),
        event("edge", "FWD", 2, 0, 30, 40),       event("edge", "FWD", 2, 0, 40, 50),
        event("c1.d1", "SEND_ACT", 1, 1, 60, 70), event("c2.d1", "SEND_ACT", 1, 1, 62, 72),
        event("edge", "FWD", 2, 1, 80, 90), /* the other one was dropped */
        event("edge", "SEND_GRAD", 2, 0, 90, 95), event("edge", "SEND_GRAD", 2, 0, 95, 99),
        event("c1.d1", "BWD", 1, 0, 100, 110),    event("c2.d1", "BWD", 1, 0, 100, 110),
    };
    json_t *doc = written(trace_of(e, sizeof e / sizeof e[0]));
    json_t *a = find(doc, "f", "ACT", 0), *b = find(doc, "f", "ACT", 1);
    assert_int_not_equal(ns_of(a, "ts"), ns_of(b, "ts"));
    assert_non_null(find(doc, "f", "ACT", 2));
    assert_null(find(doc, "f", "ACT", 3));
    assert_null(find(doc, "s", "ACT", 3));
    assert_arrow(doc, 0, "GRAD", "edge", "SEND_GRAD", "c1.d1", "BWD");
    assert_arrow(doc, 1, "GRAD", "edge", "SEND_GRAD", "c2.d1", "BWD");
    json_decref(doc);
}

static void test_no_arrow_between_strangers(void **state)
{
    (void)state;
    struct cp_event e[] = {
        event("c1.cu", "SEND_ACT", 0, 0, 10, 20), event("c1.d1", "ACT", 1, 1, 10, 30), /* micro */
        event("c1.d1", "ACT", 1, 0, 10, 30),                                           /* step */
        event("c1.d1", "ACT", 1, 0, 10, 30),                                           /* round */
        event("c1.d2", "ACT", 2, 0, 10, 30),                                           /* stage */
        event("c2.d1", "ACT", 1, 0, 10, 30),                                           /* cluster */
        event("c1.d1", "GRAD", 1, 0, 10, 30), /* direction */
        event("c1.cu", "SEND_ACT", 0, 7, 50, 60), event("c1.d1", "ACT", 1, 7, 10, 30), /* back */
    };
    e[2].step++;
    e[3].round++;
    json_t *doc = written(trace_of(e, 9));
    assert_null(find(doc, "s", NULL, 0));
    assert_null(find(doc, "f", NULL, 0));
    json_decref(doc);
}

/* --- bounds, threads, failures -----------------------------------------------------------------
 */

static void test_bound(void **state)
{
    (void)state;
    for (size_t max = 0; max <= 3; max++) {
        struct cp_trace *t;
        assert_int_equal(cp_trace_new(max, &t), CP_OK);
        for (int i = 0; i < 5; i++) {
            struct cp_event e = event("a", "FWD", 0, i, i, i + 1);
            cp_trace_put(t, &e);
        }
        assert_int_equal(cp_trace_dropped(t), 5 - max);
        json_t *doc = written(t), *other = json_object_get(doc, "otherData");
        assert_int_equal(int_of(other, "events"), max);
        assert_int_equal(int_of(other, "dropped"), 5 - max);
        assert_null(find(doc, "X", NULL, (int)max));
        assert_true(max == 0 || find(doc, "X", NULL, (int)max - 1));
        json_decref(doc);
    }
    struct cp_trace *untouched = (struct cp_trace *)&dir;
    assert_int_equal(cp_trace_new(SIZE_MAX / 8, &untouched), CP_E_NOMEM);
    assert_int_equal(cp_trace_new(SIZE_MAX, &untouched), CP_E_NOMEM);
    assert_ptr_equal(untouched, &dir);
    cp_trace_free(NULL);
}

enum { THREADS = 4, PUTS = 2000 };

struct putter {
    struct cp_event_sink sink;
    int number;
};

static void *put_many(void *arg)
{
    const struct putter *p = arg;
    char name[16];
    for (int i = 0; i < PUTS; i++) {
        snprintf(name, sizeof name, "c%d.d%d", p->number, i % 7);
        struct cp_event e = event(name, "FWD", 1, i, i, i + 1);
        cp_event_put(&p->sink, &e);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct cp_trace *t;
    pthread_t thread[THREADS];
    struct putter p[THREADS];
    assert_int_equal(cp_trace_new(THREADS * PUTS - 10, &t), CP_OK);
    for (int i = 0; i < THREADS; i++) {
        p[i] = (struct putter){{cp_trace_put, t}, i};
        assert_int_equal(pthread_create(&thread[i], NULL, put_many, &p[i]), 0);
    }
    for (int i = 0; i < 3; i++) { /* while they put */
        json_decref(read_back(t));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    assert_int_equal(cp_trace_dropped(t), 10);
    json_t *doc = written(t);
    assert_int_equal(int_of(json_object_get(doc, "otherData"), "events"), THREADS * PUTS - 10);
    assert_non_null(find(doc, "M", "process_name", THREADS * 7 - 1));
    assert_null(find(doc, "M", "process_name", THREADS * 7));
    json_decref(doc);
}

static void test_write_is_whole_or_not_at_all(void **state)
{
    (void)state;
    struct cp_event e = event("a", "FWD", 0, 0, 0, 1);
    struct cp_trace *t = trace_of(&e, 1);
    assert_int_equal(cp_trace_write(t, "/nonexistent/trace.json"), CP_E_IO);
    assert_non_null(strstr(cp_err_text(), "/nonexistent/trace.json"));
    assert_int_equal(cp_trace_write(t, path), CP_OK);
    struct cp_str before = {0}, after = {0};
    assert_int_equal(cp_file_read(path, 1 << 20, &before), CP_OK);
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        cp_mem_fail_at(n);
        cp_err err = cp_trace_write(t, path);
        cp_mem_fail_at(0);
        assert_int_equal(cp_file_read(path, 1 << 20, &after), CP_OK);
        assert_int_equal(after.len, before.len);
        assert_memory_equal(after.p, before.p, before.len);
        if (err == CP_OK) {
            break;
        }
        assert_int_equal(err, CP_E_NOMEM);
        failures++;
    }
    assert_int_equal(failures, 5);
    cp_str_fini(&before);
    cp_str_fini(&after);
    cp_trace_free(t);
}

static void test_a_node_without_memory_is_dropped(void **state)
{
    (void)state;
    struct cp_event e = event("a", "FWD", 0, 0, 0, 1);
    struct cp_trace *t, *untouched = NULL;
    cp_mem_fail_at(1);
    assert_int_equal(cp_trace_new(4, &untouched), CP_E_NOMEM);
    cp_mem_fail_at(0);
    assert_null(untouched);
    assert_int_equal(cp_trace_new(4, &t), CP_OK);
    cp_mem_fail_at(1);
    cp_trace_put(t, &e);
    cp_mem_fail_at(0);
    assert_int_equal(cp_trace_dropped(t), 1);
    cp_trace_put(t, &e);
    assert_int_equal(cp_trace_dropped(t), 1);
    json_t *doc = written(t);
    assert_non_null(find(doc, "X", "FWD", 0));
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_times_start_at_zero),
        cmocka_unit_test(test_order_of_nodes),
        cmocka_unit_test(test_names_are_escaped_and_copied),
        cmocka_unit_test(test_energy_that_is_not_finite_is_left_out),
        cmocka_unit_test(test_half_overlaps_get_a_second_thread),
        cmocka_unit_test(test_any_events_nest),
        cmocka_unit_test(test_arrows_of_a_run),
        cmocka_unit_test(test_arrows_of_a_simulation),
        cmocka_unit_test(test_one_arrow_for_each_end),
        cmocka_unit_test(test_no_arrow_between_strangers),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_write_is_whole_or_not_at_all),
        cmocka_unit_test(test_a_node_without_memory_is_dropped),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
