#include "store/tfevents.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct cp_tfevents {
    int fd;
    off_t size; /* whole records */
    struct cp_str path, event, record, value;
};

/* --- encoding -------------------------------------------------------------------------------- */

/* CRC-32C (Castagnoli), bit by bit: records are a few dozen bytes. */
static uint32_t crc32c(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
        }
    }
    return ~c;
}

/* The format hides checksums, so that a checksum over data with checksums in it stays a good one.
 */
static uint32_t masked(uint32_t c)
{
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_le(struct cp_str *s, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(x >> 8 * i & 0xff);
        cp_str_add(s, &byte, 1);
    }
}

static void put_varint(struct cp_str *s, uint64_t x)
{
    do {
        char byte = (char)((x & 0x7f) | (x > 0x7f ? 0x80 : 0));
        cp_str_add(s, &byte, 1);
        x >>= 7;
    } while (x > 0);
}

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_key(struct cp_str *s, int field, enum wire wire)
{
    put_varint(s, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_bytes(struct cp_str *s, int field, const char *bytes, size_t n)
{
    put_key(s, field, BYTES);
    put_varint(s, n);
    cp_str_add(s, bytes, n);
}

static void put_double(struct cp_str *s, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(s, field, FIXED64);
    put_le(s, bits, 8);
}

static void put_float(struct cp_str *s, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(s, field, FIXED32);
    put_le(s, bits, 4);
}

/* Fields of Event: wall_time 1, step 2, file_version 3, summary 5; of Summary: value 1; of Value:
 * tag 1, simple_value 2. */
static void start_event(struct cp_str *s, double wall_s)
{
    cp_str_clear(s);
    put_double(s, 1, wall_s);
}

/* --- the file -------------------------------------------------------------------------------- */

static cp_err fail_errno(const struct cp_tfevents *t, const char *what)
{
    return cp_fail(errno == ENOSPC ? CP_E_NOSPACE : CP_E_IO, "cannot %s %s: %s", what,
                   cp_str_text(&t->path), strerror(errno));
}

/* Puts the bytes behind the whole records, or leaves the file with those alone. */
static cp_err append(struct cp_tfevents *t, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t w = pwrite(t->fd, bytes + at, n - at, t->size + (off_t)at);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w < 0) {
            cp_err err = fail_errno(t, "write");
            return ftruncate(t->fd, t->size) == 0 ? err : cp_fail_in(err, "half a record is left");
        }
        at += (size_t)w;
    }
    t->size += (off_t)n;
    return CP_OK;
}

static cp_err write_event(struct cp_tfevents *t)
{
    CP_TRY(cp_str_check(&t->event));
    struct cp_str *r = &t->record;
    cp_str_clear(r);
    put_le(r, t->event.len, 8);
    put_le(r, masked(crc32c(cp_str_text(r), 8)), 4);
    cp_str_add(r, cp_str_text(&t->event), t->event.len);
    put_le(r, masked(crc32c(cp_str_text(&t->event), t->event.len)), 4);
    CP_TRY(cp_str_check(r));
    return append(t, r->p, r->len);
}

static cp_err create(struct cp_tfevents *t, const char *dir, double wall_s)
{
    enum { TRIES = 10000 };
    for (int n = 0; n < TRIES; n++) {
        cp_str_clear(&t->path);
        cp_str_printf(&t->path, "%s/events.out.tfevents.%010lld.collapipe.%d", dir,
                      (long long)wall_s, n);
        CP_TRY(cp_str_check(&t->path));
        t->fd = open(t->path.p, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (t->fd >= 0) {
            return CP_OK;
        }
        if (errno != EEXIST) {
            return fail_errno(t, "create");
        }
    }
    return fail_errno(t, "create");
}

static void release(struct cp_tfevents *t)
{
    cp_str_fini(&t->path);
    cp_str_fini(&t->event);
    cp_str_fini(&t->record);
    cp_str_fini(&t->value);
    cp_mem_free(t);
}

cp_err cp_tfevents_open(const char *dir, double wall_s, struct cp_tfevents **out)
{
    static const char VERSION[] = "brain.Event:2";
    struct cp_tfevents *t = NULL;
    CP_TRY(cp_mem_new(NULL, sizeof *t, &t));
    cp_err err = create(t, dir, wall_s);
    if (err) {
        release(t);
        return err;
    }
    start_event(&t->event, wall_s);
    put_bytes(&t->event, 3, VERSION, sizeof VERSION - 1);
    err = write_event(t);
    if (err) {
        close(t->fd);
        unlink(t->path.p);
        release(t);
        return err;
    }
    *out = t;
    return CP_OK;
}

const char *cp_tfevents_path(const struct cp_tfevents *t)
{
    return cp_str_text(&t->path);
}

cp_err cp_tfevents_scalar(struct cp_tfevents *t, double wall_s, const char *tag, int64_t step,
                          double value)
{
    struct cp_str *v = &t->value, *r = &t->record;
    cp_str_clear(v);
    put_bytes(v, 1, tag, strlen(tag));
    put_float(v, 2, (float)value);
    cp_str_clear(r); /* the summary is built where the record will be */
    put_bytes(r, 1, cp_str_text(v), v->len);
    start_event(&t->event, wall_s);
    put_key(&t->event, 2, VARINT);
    put_varint(&t->event, (uint64_t)step);
    put_bytes(&t->event, 5, cp_str_text(r), r->len);
    CP_TRY(cp_str_check(v));
    CP_TRY(cp_str_check(r));
    return write_event(t);
}

cp_err cp_tfevents_close(struct cp_tfevents *t)
{
    if (!t) {
        return CP_OK;
    }
    cp_err err = fsync(t->fd) == 0 ? CP_OK : fail_errno(t, "sync");
    close(t->fd);
    release(t);
    return err;
}
