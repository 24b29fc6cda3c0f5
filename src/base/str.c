#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool reserve(struct cp_str *s, size_t more)
{
    if (s->failed || more > SIZE_MAX / 4 - s->len) {
        s->failed = true;
        return false;
    }
    size_t need = s->len + more + 1;
    if (need <= s->cap) {
        return true;
    }
    size_t cap = s->cap ? s->cap : 64;
    while (cap < need) {
        cap *= 2;
    }
    char *p = realloc(s->p, cap);
    if (!p) {
        s->failed = true;
        return false;
    }
    s->p = p;
    s->cap = cap;
    return true;
}

void cp_str_add(struct cp_str *s, const char *bytes, size_t n)
{
    if (reserve(s, n)) {
        memcpy(s->p + s->len, bytes, n);
        s->len += n;
        s->p[s->len] = 0;
    }
}

void cp_str_puts(struct cp_str *s, const char *text)
{
    cp_str_add(s, text, strlen(text));
}

void cp_str_printf(struct cp_str *s, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->p + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void cp_str_clear(struct cp_str *s)
{
    s->len = 0;
    if (s->p) {
        s->p[0] = 0;
    }
}

void cp_str_fini(struct cp_str *s)
{
    free(s->p);
    *s = (struct cp_str){0};
}

const char *cp_str_text(const struct cp_str *s)
{
    return s->p ? s->p : "";
}

cp_err cp_str_check(const struct cp_str *s)
{
    return s->failed
               ? cp_fail(CP_E_NOMEM, "out of memory while building a text of %zu bytes", s->len)
               : CP_OK;
}

static cp_err fail_errno(const char *what, const char *path)
{
    cp_err code = errno == ENOSPC ? CP_E_NOSPACE : CP_E_IO;
    return cp_fail(code, "cannot %s %s: %s", what, path, strerror(errno));
}

cp_err cp_file_read(const char *path, size_t max_bytes, struct cp_str *out)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        return fail_errno("open", path);
    }
    struct stat st;
    if (fstat(fileno(f), &st) != 0 || S_ISDIR(st.st_mode)) {
        fclose(f);
        return cp_fail(CP_E_IO, "cannot read %s: it is a folder", path);
    }
    char buf[1 << 16];
    size_t n;
    cp_str_clear(out);
    cp_str_add(out, "", 0);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0 && out->len <= max_bytes) {
        cp_str_add(out, buf, n);
    }
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed) {
        return fail_errno("read", path);
    }
    if (out->len > max_bytes) {
        return cp_fail(CP_E_DATA, "%s is larger than the limit of %zu bytes", path, max_bytes);
    }
    return cp_str_check(out);
}

static cp_err write_all(int fd, const char *bytes, size_t n, const char *path)
{
    while (n > 0) {
        ssize_t w = write(fd, bytes, n);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w < 0) {
            return fail_errno("write", path);
        }
        bytes += w;
        n -= (size_t)w;
    }
    return fsync(fd) == 0 ? CP_OK : fail_errno("sync", path);
}

cp_err cp_file_write(const char *path, const void *bytes, size_t n)
{
    struct cp_str tmp = {0};
    cp_str_printf(&tmp, "%s.tmp", path);
    cp_err err = cp_str_check(&tmp);
    if (err) {
        return err;
    }
    int fd = open(tmp.p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        err = fail_errno("create", tmp.p);
        cp_str_fini(&tmp);
        return err;
    }
    err = write_all(fd, bytes, n, tmp.p);
    close(fd);
    if (!err && rename(tmp.p, path) != 0) {
        err = fail_errno("rename to", path);
    }
    if (err) {
        unlink(tmp.p);
    } else {
        char *slash = strrchr(tmp.p, '/');
        if (slash) {
            *slash = 0;
        }
        err = cp_dir_sync(slash ? tmp.p : ".");
    }
    cp_str_fini(&tmp);
    return err;
}

cp_err cp_dir_make(const char *path)
{
    char buf[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof buf) {
        return cp_fail(CP_E_IO, "cannot make the folder '%.80s': bad length of its name", path);
    }
    memcpy(buf, path, n + 1);
    for (char *p = buf + 1;; p++) {
        if (*p == '/' || *p == 0) {
            char keep = *p;
            *p = 0;
            if (mkdir(buf, 0755) != 0 && errno != EEXIST) {
                return fail_errno("make the folder", buf);
            }
            *p = keep;
            if (keep == 0) {
                break;
            }
        }
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return cp_fail(CP_E_IO, "cannot make the folder %s: a file of that name exists", path);
    }
    return CP_OK;
}

cp_err cp_dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fail_errno("open the folder", path);
    }
    int rc = fsync(fd);
    close(fd);
    return rc == 0 ? CP_OK : fail_errno("sync the folder", path);
}

size_t cp_utf8_cut(const char *text, size_t max)
{
    enum { LONGEST = 4 };
    size_t n = strnlen(text, max), lead = n, length = 1;
    while (lead > 0 && n - lead < LONGEST) {
        unsigned char byte = (unsigned char)text[--lead];
        if ((byte & 0xc0) != 0x80) { /* the first byte of the last character */
            length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
            break;
        }
    }
    return length > n - lead ? lead : n;
}

void cp_text_copy(char *out, size_t size, const char *text)
{
    size_t n = cp_utf8_cut(text, size - 1);
    memcpy(out, text, n);
    out[n] = 0;
}

/* Levenshtein distance, cut off above limit; words are short. */
static int distance(const char *a, const char *b, int limit)
{
    enum { MAX = 63 };
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX || m > MAX) {
        return limit + 1;
    }
    int row[MAX + 1];
    for (size_t j = 0; j <= m; j++) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = best < row[j] + 1 ? best : row[j] + 1;
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *cp_nearest(const char *word, const char *const *candidates, size_t n)
{
    int limit = 1 + (int)strlen(word) / 3, best = limit + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        int d = distance(word, candidates[i], limit);
        if (d < best) {
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}
