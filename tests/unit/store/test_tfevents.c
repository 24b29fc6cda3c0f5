/* tfevents: golden bytes, made by an encoder in another language, and a reader of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/tfevents.h"
#include "unit/folder.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct cp_tfevents *opened(double wall_s)
{
    struct cp_tfevents *t;
    assert_int_equal(cp_tfevents_open(dir, wall_s, &t), CP_OK);
    return t;
}

static struct cp_str read_file(const struct cp_tfevents *t)
{
    struct cp_str s = {0};
    assert_int_equal(cp_file_read(cp_tfevents_path(t), 1 << 20, &s), CP_OK);
    return s;
}

/* --- a reader ----------------------------------------------------------------------------------
 */

/* CRC-32C by a table, most significant bit first over mirrored bits: not as the writer does it. */
static uint32_t mirror(uint32_t x, int bits)
{
    uint32_t y = 0;
    for (int i = 0; i < bits; i++) {
        y |= (x >> i & 1) << (bits - 1 - i);
    }
    return y;
}

static uint32_t reader_crc(const unsigned char *p, size_t n)
{
    uint32_t table[256], c = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i << 24;
        for (int k = 0; k < 8; k++) {
            table[i] = table[i] << 1 ^ (table[i] >> 31 ? 0x1edc6f41u : 0);
        }
    }
    for (size_t i = 0; i < n; i++) {
        c = c << 8 ^ table[c >> 24 ^ mirror(p[i], 8)];
    }
    return mirror(~c, 32);
}

static uint64_t le(const unsigned char *p, int bytes)
{
    uint64_t x = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        x = x << 8 | p[i];
    }
    return x;
}

static void assert_crc(const unsigned char *p, size_t n)
{
    uint32_t stored = (uint32_t)le(p + n, 4) - 0xa282ead8u;
    assert_int_equal(stored >> 17 | stored << 15, reader_crc(p, n));
}

struct event {
    double wall_s;
    int64_t step;
    char version[32], tag[32];
    float value;
    int n_values;
};

struct cursor {
    const unsigned char *p, *end;
};

static uint64_t varint(struct cursor *c)
{
    uint64_t x = 0;
    int shift = 0;
    do {
        assert_true(c->p < c->end && shift < 64);
        x |= (uint64_t)(*c->p & 0x7f) << shift;
        shift += 7;
    } while (*c->p++ & 0x80);
    return x;
}

static struct cursor bytes(struct cursor *c)
{
    uint64_t n = varint(c);
    assert_true(n <= (uint64_t)(c->end - c->p));
    struct cursor inner = {c->p, c->p + n};
    c->p += n;
    return inner;
}

static void fixed(struct cursor *c, void *out, size_t n)
{
    assert_true((size_t)(c->end - c->p) >= n);
    memcpy(out, c->p, n);
    c->p += n;
}

static void text(struct cursor c, char *out, size_t size)
{
    size_t n = (size_t)(c.end - c.p);
    assert_true(n < size);
    memcpy(out, c.p, n);
    out[n] = 0;
}

static void read_value(struct cursor c, struct event *e)
{
    e->n_values++;
    while (c.p < c.end) {
        switch (varint(&c)) {
        case 1 << 3 | 2:
            text(bytes(&c), e->tag, sizeof e->tag);
            break;
        case 2 << 3 | 5:
            fixed(&c, &e->value, 4);
            break;
        default:
            fail_msg("unknown field of Value");
        }
    }
}

static struct event read_event(struct cursor c)
{
    struct event e = {0};
    struct cursor summary;
    while (c.p < c.end) {
        switch (varint(&c)) {
        case 1 << 3 | 1:
            fixed(&c, &e.wall_s, 8);
            break;
        case 2 << 3 | 0:
            e.step = (int64_t)varint(&c);
            break;
        case 3 << 3 | 2:
            text(bytes(&c), e.version, sizeof e.version);
            break;
        case 5 << 3 | 2:
            for (summary = bytes(&c); summary.p < summary.end;) {
                assert_int_equal(varint(&summary), 1 << 3 | 2);
                read_value(bytes(&summary), &e);
            }
            break;
        default:
            fail_msg("unknown field of Event");
        }
    }
    return e;
}

/* All records of a file, whose checksums and lengths must be right to the last byte. */
static int read_records(const struct cp_str *s, struct event *out, int max)
{
    const unsigned char *p = (const unsigned char *)s->p, *end = p + s->len;
    int n = 0;
    while (p < end) {
        assert_true(end - p >= 16 && n < max);
        assert_crc(p, 8);
        uint64_t len = le(p, 8);
        assert_true(len <= (uint64_t)(end - p) - 16);
        assert_crc(p + 12, len);
        out[n++] = read_event((struct cursor){p + 12, p + 12 + len});
        p += 16 + len;
    }
    return n;
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void test_golden_bytes(void **state)
{
    (void)state;
    static const char WANT[] =
        "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110"
        "2100000000000000017becf60900005040fc54d94110ac022a130a110a0a747261696e2f6c6f7373"
        "150000803ed7758482";
    struct cp_tfevents *t = opened(1700000000.5);
    assert_int_equal(cp_tfevents_scalar(t, 1700000001.25, "train/loss", 300, 0.25), CP_OK);
    struct cp_str s = read_file(t); /* while it is open */
    assert_int_equal(s.len, strlen(WANT) / 2);
    for (size_t i = 0; i < s.len; i++) {
        char hex[3];
        snprintf(hex, sizeof hex, "%02x", (unsigned char)s.p[i]);
        assert_memory_equal(hex, WANT + 2 * i, 2);
    }
    cp_str_fini(&s);
    assert_int_equal(cp_tfevents_close(t), CP_OK);
}

static void test_reader_reads_back(void **state)
{
    (void)state;
    static const unsigned char DIGITS[] = "123456789";
    assert_int_equal(reader_crc(DIGITS, 9), 0xe3069283u);
    static const struct {
        const char *tag;
        int64_t step;
        double value;
    } ROW[] = {{"a", 0, 0},           {"eval/accuracy", 127, 1}, {"b", 128, -2.5},
               {"", INT64_MAX, 1e30}, {"a", -1, 1e-30},          {"\xc3\xa9", 16384, 3.14159},
               {"a", 1, NAN},         {"a", 2, INFINITY}};
    enum { N = sizeof ROW / sizeof ROW[0] };
    struct event e[N + 2];
    struct cp_tfevents *t = opened(1700000100);
    for (int i = 0; i < N; i++) {
        assert_int_equal(cp_tfevents_scalar(t, 0.5 + i, ROW[i].tag, ROW[i].step, ROW[i].value),
                         CP_OK);
    }
    struct cp_str s = read_file(t);
    assert_int_equal(read_records(&s, e, N + 2), N + 1);
    assert_string_equal(e[0].version, "brain.Event:2");
    assert_true(e[0].wall_s == 1700000100);
    assert_int_equal(e[0].n_values, 0);
    for (int i = 0; i < N; i++) {
        assert_true(e[i + 1].wall_s == 0.5 + i);
        assert_int_equal(e[i + 1].n_values, 1);
        assert_string_equal(e[i + 1].tag, ROW[i].tag);
        assert_int_equal(e[i + 1].step, ROW[i].step);
        float want = (float)ROW[i].value;
        assert_memory_equal(&e[i + 1].value, &want, 4);
        assert_string_equal(e[i + 1].version, "");
    }
    cp_str_fini(&s);
    assert_int_equal(cp_tfevents_close(t), CP_OK);
}

static void test_a_second_file_beside_the_first(void **state)
{
    (void)state;
    struct cp_tfevents *a = opened(1700000200), *b = opened(1700000200.9);
    char want[128];
    snprintf(want, sizeof want, "%s/events.out.tfevents.1700000200.collapipe.0", dir);
    assert_string_equal(cp_tfevents_path(a), want);
    want[strlen(want) - 1] = '1';
    assert_string_equal(cp_tfevents_path(b), want);
    assert_int_equal(cp_tfevents_close(a), CP_OK);
    assert_int_equal(cp_tfevents_close(b), CP_OK);
    assert_int_equal(cp_tfevents_close(NULL), CP_OK);
}

static int count_files(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static void test_open_fails_cleanly(void **state)
{
    (void)state;
    struct cp_tfevents *t = NULL;
    assert_int_equal(cp_tfevents_open("/nonexistent", 1, &t), CP_E_IO);
    assert_non_null(strstr(cp_err_text(), "/nonexistent/events.out.tfevents"));
    cp_mem_fail_at(1);
    assert_int_equal(cp_tfevents_open(dir, 1, &t), CP_E_NOMEM);
    cp_mem_fail_at(0);
    assert_null(t);
}

/* Runs with files limited to a size: writes beyond it fail as on a full disk, half way. */
static void limit_files(rlim_t size, struct rlimit *before)
{
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, before), 0);
    r = *before;
    r.rlim_cur = size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void test_a_failed_write_leaves_whole_records(void **state)
{
    (void)state;
    struct rlimit before;
    struct event e[4];
    struct cp_tfevents *t = opened(1700000300);
    assert_int_equal(cp_tfevents_scalar(t, 1, "a", 1, 1), CP_OK);
    struct cp_str s = read_file(t);
    limit_files(s.len + 20, &before); /* into the middle of the next record */
    cp_err err = cp_tfevents_scalar(t, 2, "a", 2, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err, CP_E_IO);
    assert_non_null(strstr(cp_err_text(), cp_tfevents_path(t)));
    cp_str_fini(&s);
    s = read_file(t);
    assert_int_equal(read_records(&s, e, 4), 2);
    assert_int_equal(cp_tfevents_scalar(t, 3, "a", 3, 3), CP_OK); /* room again: it goes on */
    cp_str_fini(&s);
    s = read_file(t);
    assert_int_equal(read_records(&s, e, 4), 3);
    assert_int_equal(e[2].step, 3);
    cp_str_fini(&s);
    assert_int_equal(cp_tfevents_close(t), CP_OK);
}

static void test_no_file_without_its_first_record(void **state)
{
    (void)state;
    char folder[100];
    struct rlimit before;
    struct cp_tfevents *t = NULL;
    snprintf(folder, sizeof folder, "%s/full", dir);
    assert_int_equal(mkdir(folder, 0755), 0);
    limit_files(5, &before);
    cp_err err = cp_tfevents_open(folder, 1, &t);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err, CP_E_IO);
    assert_null(t);
    assert_int_equal(count_files(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_bytes),
        cmocka_unit_test(test_reader_reads_back),
        cmocka_unit_test(test_a_second_file_beside_the_first),
        cmocka_unit_test(test_open_fails_cleanly),
        cmocka_unit_test(test_a_failed_write_leaves_whole_records),
        cmocka_unit_test(test_no_file_without_its_first_record),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
