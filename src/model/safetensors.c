#include "model/safetensors.h"

#include "base/mem.h"
#include "model/safetensors_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8 };

struct cp_st {
    const char *path; /* for messages; owned */
    const char *bytes;
    size_t size;
    bool mapped;
    json_t *header; /* owns names and metadata */
    size_t n;
    struct cp_st_info *tensors;        /* [n] by position in the file */
    const struct cp_st_info **by_name; /* [n] */
};

static const struct {
    const char *name;
    int bits;
} DTYPES[CP_DT_COUNT] = {
#define X(name, bits) [CP_DT_##name] = {#name, bits},
    CP_DTYPES(X)
#undef X
};

const char *cp_dtype_name(enum cp_dtype dtype)
{
    return DTYPES[dtype].name;
}

int cp_dtype_bits(enum cp_dtype dtype)
{
    return DTYPES[dtype].bits;
}

const char *cp_st_size(enum cp_dtype dtype, int32_t rank, const int64_t *dims, int64_t *count,
                       size_t *bytes)
{
    int64_t n = 1, bits;
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return "a dimension is negative";
        }
        if (__builtin_mul_overflow(n, dims[i], &n)) {
            return "the product of its dimensions is too large";
        }
    }
    if (__builtin_mul_overflow(n, DTYPES[dtype].bits, &bits)) {
        return "it has more bits than can be counted";
    }
    if (bits % 8 != 0) {
        return "it does not fill whole bytes";
    }
    *count = n;
    *bytes = (size_t)bits / 8;
    return NULL;
}

const char *cp_st_bad_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > CP_ST_NAME_MAX) {
        return "its name is empty or longer than 255 bytes";
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) {
            return "its name holds a control character";
        }
    }
    return NULL;
}

/* The name as far as a message may repeat it. */
static cp_err refuse(const struct cp_st *st, const char *name, const char *reason)
{
    return cp_st_bad_name(name) ? cp_fail(CP_E_CKPT, "%s: a tensor: %s", st->path, reason)
                                : cp_fail(CP_E_CKPT, "%s: tensor '%s': %s", st->path, name, reason);
}

static cp_err read_dtype(const struct cp_st *st, const char *name, const json_t *entry,
                         enum cp_dtype *out)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    for (int i = 0; text && i < CP_DT_COUNT; i++) {
        if (strcmp(text, DTYPES[i].name) == 0) {
            *out = (enum cp_dtype)i;
            return CP_OK;
        }
    }
    return refuse(st, name, text ? "unknown dtype" : "it has no dtype");
}

static cp_err read_dims(const struct cp_st *st, const char *name, const json_t *entry,
                        struct cp_st_info *out)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) {
        return refuse(st, name, "it has no shape");
    }
    if (json_array_size(shape) > CP_ST_RANK_MAX) {
        return refuse(st, name, "it has more than 8 dimensions");
    }
    out->rank = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < out->rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim)) {
            return refuse(st, name, "a dimension is not an integer");
        }
        out->dims[i] = json_integer_value(dim);
    }
    const char *reason = cp_st_size(out->dtype, out->rank, out->dims, &out->count, &out->bytes);
    return reason ? refuse(st, name, reason) : CP_OK;
}

static cp_err read_place(const struct cp_st *st, const char *name, const json_t *entry,
                         const char *data, size_t data_bytes, struct cp_st_info *out)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to)) {
        return refuse(st, name, "its data_offsets are not two integers");
    }
    json_int_t begin = json_integer_value(from), end = json_integer_value(to);
    if (begin < 0 || begin > end) {
        return refuse(st, name, "its data_offsets are negative or in wrong order");
    }
    if ((uint64_t)end > data_bytes) {
        return refuse(st, name, "its data end behind the end of the file");
    }
    if ((uint64_t)(end - begin) != out->bytes) {
        return refuse(st, name, "its data_offsets do not fit its shape and dtype");
    }
    out->data = data + begin;
    return CP_OK;
}

static cp_err read_tensor(const struct cp_st *st, const char *name, const json_t *entry,
                          const char *data, size_t data_bytes, struct cp_st_info *out)
{
    const char *reason = cp_st_bad_name(name);
    if (reason) {
        return refuse(st, name, reason);
    }
    if (!json_is_object(entry)) {
        return refuse(st, name, "its description is not an object");
    }
    struct cp_st_info info = {.name = name};
    CP_TRY(read_dtype(st, name, entry, &info.dtype));
    CP_TRY(read_dims(st, name, entry, &info));
    CP_TRY(read_place(st, name, entry, data, data_bytes, &info));
    *out = info;
    return CP_OK;
}

static cp_err check_metadata(const struct cp_st *st, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return cp_fail(CP_E_CKPT, "%s: __metadata__ is not an object", st->path);
    }
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) {
            return cp_fail(CP_E_CKPT, "%s: a value of __metadata__ is not a text", st->path);
        }
    }
    return CP_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct cp_st_info *x = a, *y = b;
    const char *p = x->data, *q = y->data;
    /* empty tensors come before the one that starts at their place */
    return p != q ? (p > q) - (p < q) : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
    const struct cp_st_info *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Sorts, and proves that the data have no hole, no overlap and nothing behind them. */
static cp_err check_layout(struct cp_st *st, const char *data, size_t data_bytes)
{
    if (st->n > 0) {
        qsort(st->tensors, st->n, sizeof *st->tensors, by_place);
    }
    const char *end = data;
    for (size_t i = 0; i < st->n; i++) {
        const struct cp_st_info *t = &st->tensors[i];
        if ((const char *)t->data != end) {
            return refuse(st, t->name,
                          (const char *)t->data < end ? "its data overlap those of another tensor"
                                                      : "there is a hole before its data");
        }
        end += t->bytes;
        st->by_name[i] = t;
    }
    if (end != data + data_bytes) {
        return cp_fail(CP_E_CKPT, "%s: %zu bytes behind the last tensor", st->path,
                       (size_t)(data + data_bytes - end));
    }
    if (st->n > 0) {
        qsort(st->by_name, st->n, sizeof *st->by_name, by_name);
    }
    return CP_OK;
}

static cp_err read_tensors(struct cp_st *st, const char *data, size_t data_bytes)
{
    const char *name;
    json_t *entry;
    size_t i = 0, most = json_object_size(st->header);
    CP_TRY(cp_mem_array(NULL, most, sizeof *st->tensors, &st->tensors));
    CP_TRY(cp_mem_array(NULL, most, sizeof *st->by_name, &st->by_name));
    json_object_foreach(st->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            CP_TRY(check_metadata(st, entry));
        } else {
            CP_TRY(read_tensor(st, name, entry, data, data_bytes, &st->tensors[i++]));
        }
    }
    st->n = i;
    return check_layout(st, data, data_bytes);
}

/* jansson repeats the text near a mistake, which may hold anything. */
static cp_err fail_json(const struct cp_st *st, json_error_t *e)
{
    for (char *p = e->text; *p; p++) {
        *p = (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p;
    }
    return cp_fail(CP_E_CKPT, "%s: its header is not valid (byte %d): %s", st->path, e->position,
                   e->text);
}

static cp_err parse(struct cp_st *st)
{
    if (st->size < LENGTH_BYTES) {
        return cp_fail(CP_E_CKPT, "%s has %zu bytes: too short for a safetensors file", st->path,
                       st->size);
    }
    uint64_t length;
    memcpy(&length, st->bytes, sizeof length);
    if (length > CP_ST_HEADER_MAX) {
        return cp_fail(CP_E_CKPT, "%s: its header would have %llu bytes; allowed: %d", st->path,
                       (unsigned long long)length, CP_ST_HEADER_MAX);
    }
    if (length > st->size - LENGTH_BYTES) {
        return cp_fail(CP_E_CKPT, "%s: its header would have %llu bytes, the file has %zu",
                       st->path, (unsigned long long)length, st->size);
    }
    const char *text = st->bytes + LENGTH_BYTES;
    if (length == 0 || text[0] != '{') {
        return cp_fail(CP_E_CKPT, "%s: its header does not start with '{'", st->path);
    }
    json_error_t e;
    st->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &e);
    if (!st->header) {
        return fail_json(st, &e);
    }
    return read_tensors(st, text + length, st->size - LENGTH_BYTES - (size_t)length);
}

static cp_err open_bytes(const char *path, const void *bytes, size_t n, bool mapped,
                         struct cp_st **out)
{
    struct cp_st *st = NULL;
    char *copy;
    size_t path_bytes = strlen(path) + 1;
    CP_TRY(cp_mem_new(NULL, sizeof *st + path_bytes, &st));
    copy = (char *)(st + 1);
    memcpy(copy, path, path_bytes);
    *st = (struct cp_st){.path = copy, .bytes = bytes, .size = n};
    cp_err err = parse(st);
    if (err) {
        cp_st_close(st); /* not mapped yet: the bytes are still the caller's */
        return err;
    }
    st->mapped = mapped;
    *out = st;
    return CP_OK;
}

cp_err cp_st_open_memory(const char *name, const void *bytes, size_t n, struct cp_st **out)
{
    return open_bytes(name, bytes, n, false, out);
}

cp_err cp_st_open(const char *path, struct cp_st **out)
{
    struct stat status;
    /* O_NONBLOCK: opening a named pipe must not wait for a writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return cp_fail(CP_E_IO, "cannot open %s: %s", path,
                       errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return cp_fail(CP_E_IO, "cannot read %s: it is not a regular file", path);
    }
    size_t size = (size_t)status.st_size;
    if (size < LENGTH_BYTES) { /* nothing to map */
        close(fd);
        return cp_fail(CP_E_CKPT, "%s has %zu bytes: too short for a safetensors file", path, size);
    }
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) {
        return cp_fail(CP_E_IO, "cannot map %s: %s", path, strerror(errno));
    }
    cp_err err = open_bytes(path, map, size, true, out);
    if (err) {
        munmap(map, size);
    }
    return err;
}

void cp_st_close(struct cp_st *st)
{
    if (!st) {
        return;
    }
    json_decref(st->header);
    cp_mem_free(st->tensors);
    cp_mem_free(st->by_name);
    if (st->mapped) {
        munmap((void *)(uintptr_t)st->bytes, st->size);
    }
    cp_mem_free(st);
}

size_t cp_st_count(const struct cp_st *st)
{
    return st->n;
}

const struct cp_st_info *cp_st_at(const struct cp_st *st, size_t i)
{
    return &st->tensors[i];
}

const struct cp_st_info *cp_st_find(const struct cp_st *st, const char *name)
{
    struct cp_st_info key = {.name = name};
    const struct cp_st_info *key_ptr = &key;
    const struct cp_st_info **found =
        st->n ? bsearch(&key_ptr, st->by_name, st->n, sizeof *st->by_name, by_name) : NULL;
    return found ? *found : NULL;
}

const char *cp_st_metadata(const struct cp_st *st, const char *key)
{
    return json_string_value(json_object_get(json_object_get(st->header, "__metadata__"), key));
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* IEEE 754 binary16: exponent bias 15, 10 bits of fraction. */
static float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) {
        return from_bits(sign | 0x7f800000 | fraction << 13);
    }
    if (exponent == 0) { /* subnormal: fraction * 2^-24 */
        float x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

cp_err cp_st_read_f32(const struct cp_st *st, const struct cp_st_info *info, float *out)
{
    if (info->dtype == CP_DT_F32) {
        if (info->bytes > 0) {
            memcpy(out, info->data, info->bytes);
        }
        return CP_OK;
    }
    if (info->dtype != CP_DT_F16 && info->dtype != CP_DT_BF16) {
        return cp_fail(CP_E_CKPT, "%s: tensor '%s' has dtype %s; allowed: F32, F16, BF16", st->path,
                       info->name, cp_dtype_name(info->dtype));
    }
    const char *p = info->data;
    for (int64_t i = 0; i < info->count; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        out[i] = info->dtype == CP_DT_F16 ? from_f16(h) : from_bits((uint32_t)h << 16);
    }
    return CP_OK;
}
