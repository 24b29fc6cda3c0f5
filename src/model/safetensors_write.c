/* safetensors_write: see safetensors.h. */
#include "base/mem.h"
#include "base/str.h"
#include "model/safetensors_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAD = 8 };

static int by_size_then_name(const void *a, const void *b)
{
    const struct cp_st_tensor *const *x = a, *const *y = b;
    int p = cp_dtype_bits((*x)->dtype), q = cp_dtype_bits((*y)->dtype);
    return p != q ? (p < q) - (p > q) : strcmp((*x)->name, (*y)->name);
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, or NULL without memory. */
static json_t *describe(const struct cp_st_tensor *t, json_int_t begin, json_int_t end)
{
    json_t *shape = json_array();
    for (int32_t i = 0; shape && i < t->rank; i++) {
        if (json_array_append_new(shape, json_integer(t->dims[i])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    return shape ? json_pack("{s:s, s:o, s:[I, I]}", "dtype", cp_dtype_name(t->dtype), "shape",
                             shape, "data_offsets", begin, end)
                 : NULL;
}

static cp_err add_tensors(json_t *header, const char *path,
                          const struct cp_st_tensor *const *sorted, size_t n)
{
    json_int_t begin = 0;
    for (size_t i = 0; i < n; i++) {
        const struct cp_st_tensor *t = sorted[i];
        int64_t count;
        size_t bytes = 0;
        const char *reason = cp_st_bad_name(t->name);
        if (!reason && (strcmp(t->name, "__metadata__") == 0 || json_object_get(header, t->name))) {
            reason = "its name is taken";
        }
        if (!reason) {
            reason = cp_st_size(t->dtype, t->rank, t->dims, &count, &bytes);
        }
        if (reason) {
            return cp_fail(CP_E_CKPT, "cannot write tensor %zu of %s: %s", i, path, reason);
        }
        json_int_t end = begin + (json_int_t)bytes;
        if (json_object_set_new(header, t->name, describe(t, begin, end)) != 0) {
            return cp_fail(CP_E_CKPT,
                           "cannot describe tensor %zu of %s: its name is not UTF-8, or "
                           "memory is out",
                           i, path);
        }
        begin = end;
    }
    return CP_OK;
}

static cp_err make_header(const char *path, const struct cp_st_tensor *const *sorted, size_t n,
                          const struct cp_st_pair *metadata, size_t n_metadata, struct cp_str *out)
{
    json_t *meta = json_pack("{s:s}", "format", "pt");
    json_t *header = json_pack("{s:O?}", "__metadata__", meta);
    bool failed = !meta || !header;
    for (size_t i = 0; !failed && i < n_metadata; i++) {
        failed = json_object_set_new(meta, metadata[i].key, json_string(metadata[i].value)) != 0;
    }
    cp_err err = failed ? cp_fail(CP_E_CKPT, "cannot write %s: bad metadata", path)
                        : add_tensors(header, path, sorted, n);
    char *text = err ? NULL : json_dumps(header, JSON_COMPACT);
    if (!err && !text) {
        err = cp_fail(CP_E_NOMEM, "cannot write %s: no memory for its header", path);
    }
    if (!err) {
        cp_str_puts(out, text);
        while (out->len % PAD != 0 && !out->failed) {
            cp_str_puts(out, " ");
        }
        err = cp_str_check(out);
    }
    if (!err && out->len > CP_ST_HEADER_MAX) {
        err = cp_fail(CP_E_CKPT, "cannot write %s: too many tensors for one header", path);
    }
    free(text);
    json_decref(header);
    json_decref(meta);
    return err;
}

static cp_err fail_errno(const char *what, const char *path)
{
    return cp_fail(errno == ENOSPC ? CP_E_NOSPACE : CP_E_IO, "cannot %s %s: %s", what, path,
                   strerror(errno));
}

static cp_err write_all(int fd, const char *path, const void *data, size_t n)
{
    for (const char *p = data; n > 0;) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w < 0) {
            return fail_errno("write", path);
        }
        p += w;
        n -= (size_t)w;
    }
    return CP_OK;
}

static cp_err write_body(int fd, const char *path, const struct cp_str *header,
                         const struct cp_st_tensor *const *sorted, size_t n)
{
    uint64_t length = header->len;
    CP_TRY(write_all(fd, path, &length, sizeof length));
    CP_TRY(write_all(fd, path, header->p, header->len));
    for (size_t i = 0; i < n; i++) {
        int64_t count;
        size_t bytes = 0;
        (void)cp_st_size(sorted[i]->dtype, sorted[i]->rank, sorted[i]->dims, &count, &bytes);
        CP_TRY(write_all(fd, path, sorted[i]->data, bytes));
    }
    return fsync(fd) == 0 ? CP_OK : fail_errno("sync", path);
}

static cp_err write_file(const char *path, const struct cp_str *header,
                         const struct cp_st_tensor *const *sorted, size_t n)
{
    struct cp_str tmp = {0};
    cp_str_printf(&tmp, "%s.tmp", path);
    CP_TRY(cp_str_check(&tmp));
    int fd = open(tmp.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    cp_err err = fd < 0 ? fail_errno("create", tmp.p) : write_body(fd, tmp.p, header, sorted, n);
    if (fd >= 0 && close(fd) != 0 && !err) {
        err = fail_errno("close", tmp.p);
    }
    if (!err && rename(tmp.p, path) != 0) {
        err = fail_errno("rename to", path);
    }
    if (err && fd >= 0) {
        unlink(tmp.p);
    }
    if (!err) {
        char *slash = strrchr(tmp.p, '/');
        if (slash) {
            slash[slash == tmp.p] = 0; /* "/x" lies in "/" */
        }
        err = cp_dir_sync(slash ? tmp.p : ".");
    }
    cp_str_fini(&tmp);
    return err;
}

cp_err cp_st_write(const char *path, const struct cp_st_tensor *tensors, size_t n,
                   const struct cp_st_pair *metadata, size_t n_metadata)
{
    const struct cp_st_tensor **sorted = NULL;
    struct cp_str header = {0};
    CP_TRY(cp_mem_array(NULL, n, sizeof *sorted, &sorted));
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &tensors[i];
    }
    if (n > 0) {
        qsort(sorted, n, sizeof *sorted, by_size_then_name);
    }
    cp_err err = make_header(path, sorted, n, metadata, n_metadata, &header);
    if (!err) {
        err = write_file(path, &header, sorted, n);
    }
    cp_str_fini(&header);
    cp_mem_free(sorted);
    return err;
}
