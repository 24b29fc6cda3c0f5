/*
 * ckpt_folder: checkpoints that are whole or not there. See ckpt_impl.h.
 *
 * Order of a save: files, fsync of each, manifest.json, fsync of the folder, rename, fsync of the
 * run folder. A crash before the rename leaves NAME.tmp, which nobody reads; a crash after it
 * leaves a checkpoint whose manifest proves every byte. A disk that loses or flips bytes later is
 * found by the same manifest, and the next older checkpoint is used.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "model/ckpt_impl.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MANIFEST[] = "manifest.json";
static const char PREFIX[] = "checkpoint-";

enum { MANIFEST_MAX_BYTES = 4 << 20, DIGITS_MAX = 15, FOLDERS_OPEN = 16 };

static cp_err fail_errno(cp_err code, const char *what, const char *path)
{
    return cp_fail(errno == ENOSPC ? CP_E_NOSPACE : code, "cannot %s %s: %s", what, path,
                   strerror(errno));
}

static cp_err join(struct cp_str *out, const char *dir, const char *name, const char *ending)
{
    cp_str_clear(out);
    cp_str_printf(out, "%s/%s%s", dir, name, ending);
    return cp_str_check(out);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static cp_err remove_folder(const char *path)
{
    if (nftw(path, remove_entry, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        return fail_errno(CP_E_IO, "remove", path);
    }
    return CP_OK;
}

/* Size and SHA-256 of a regular file; sync: its bytes are on disk then. */
static cp_err hash_file(const char *path, bool sync, int64_t *size, char hex[CP_SHA256_HEX])
{
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES], buf[1 << 16];
    struct stat st;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return fail_errno(CP_E_CKPT, "open", path);
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return cp_fail(CP_E_CKPT, "%s is not a regular file", path);
    }
    *size = 0;
    crypto_hash_sha256_init(&state);
    while ((n = read(fd, buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0) {
            crypto_hash_sha256_update(&state, buf, (unsigned long long)n);
            *size += n;
        }
    }
    cp_err err = n < 0 ? fail_errno(CP_E_IO, "read", path) : CP_OK;
    if (!err && sync && fsync(fd) != 0) {
        err = fail_errno(CP_E_IO, "sync", path);
    }
    close(fd);
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hex, CP_SHA256_HEX, digest, sizeof digest);
    return err;
}

/* Calls visit for every entry of dir but "." and ".."; stops at the first failure. */
static cp_err each_entry(const char *dir, cp_err (*visit)(const char *name, void *arg), void *arg)
{
    DIR *d = opendir(dir);
    if (!d) {
        return fail_errno(CP_E_IO, "open the folder", dir);
    }
    cp_err err = CP_OK;
    for (struct dirent *e; !err && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            err = visit(e->d_name, arg);
        }
    }
    closedir(d);
    return err;
}

/* ---- saving ---- */

cp_err cp_ckpt_begin(const char *run_dir, const char *name, struct cp_str *tmp)
{
    CP_TRY(cp_name_check(CP_E_CKPT, "the name of a checkpoint", name));
    CP_TRY(join(tmp, run_dir, name, ".tmp"));
    CP_TRY(remove_folder(tmp->p));
    if (mkdir(tmp->p, 0755) != 0) {
        return fail_errno(CP_E_IO, "make the folder", tmp->p);
    }
    return CP_OK;
}

struct sealing {
    const char *dir;
    json_t *files;
};

static cp_err seal_file(const char *name, void *arg)
{
    struct sealing *s = arg;
    struct cp_str path = {0};
    char hex[CP_SHA256_HEX];
    int64_t size;
    cp_err err = cp_name_check(CP_E_CKPT, "a file of a checkpoint", name);
    if (!err) {
        err = join(&path, s->dir, name, "");
    }
    if (!err && strcmp(name, MANIFEST) != 0) {
        err = hash_file(path.p, true, &size, hex);
        if (!err && json_object_set_new(
                        s->files, name,
                        json_pack("{s:I, s:s}", "size", (json_int_t)size, "sha256", hex)) != 0) {
            err = cp_fail(CP_E_CKPT, "%s: a name in it is not UTF-8, or memory is out", s->dir);
        }
    }
    cp_str_fini(&path);
    return err;
}

static cp_err seal(const char *dir)
{
    struct sealing s = {.dir = dir, .files = json_object()};
    cp_err err = s.files ? each_entry(dir, seal_file, &s)
                         : cp_fail(CP_E_NOMEM, "%s: no memory for its manifest", dir);
    if (err) {
        json_decref(s.files);
        return err;
    }
    json_t *manifest = json_pack("{s:i, s:o}", "version", 1, "files", s.files);
    return cp_ckpt_write_json(dir, MANIFEST, manifest);
}

/* Renames tmp to final; what was at final is at tmp afterwards, or gone. */
static cp_err swap_in(const char *tmp, const char *final)
{
    if (rename(tmp, final) == 0) { /* nothing was there, or an empty folder */
        return CP_OK;
    }
    if (errno != EEXIST && errno != ENOTEMPTY) {
        return fail_errno(CP_E_IO, "rename to", final);
    }
#ifdef RENAME_EXCHANGE
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        return CP_OK;
    }
#endif
    /* file systems without the exchange: for a moment only older checkpoints are there */
    CP_TRY(remove_folder(final));
    return rename(tmp, final) == 0 ? CP_OK : fail_errno(CP_E_IO, "rename to", final);
}

cp_err cp_ckpt_commit(const char *run_dir, const char *name)
{
    struct cp_str tmp = {0}, final = {0};
    cp_err err;
    CP_TRY_GOTO(err, cp_name_check(CP_E_CKPT, "the name of a checkpoint", name), out);
    CP_TRY_GOTO(err, join(&tmp, run_dir, name, ".tmp"), out);
    CP_TRY_GOTO(err, join(&final, run_dir, name, ""), out);
    CP_TRY_GOTO(err, seal(tmp.p), out);
    CP_TRY_GOTO(err, cp_dir_sync(tmp.p), out);
    CP_TRY_GOTO(err, swap_in(tmp.p, final.p), out);
    CP_TRY_GOTO(err, cp_dir_sync(run_dir), out);
    err = remove_folder(tmp.p);
out:
    cp_str_fini(&tmp);
    cp_str_fini(&final);
    return err;
}

/* ---- checking ---- */

static cp_err check_file(const char *dir, const char *name, const json_t *entry, bool content)
{
    const json_t *size = json_object_get(entry, "size");
    const char *sha256 = json_string_value(json_object_get(entry, "sha256"));
    struct cp_str path = {0};
    struct stat st;
    char hex[CP_SHA256_HEX];
    int64_t found = -1;
    cp_err err;
    CP_TRY_GOTO(err, cp_name_check(CP_E_CKPT, "a file of the manifest", name), out);
    CP_TRY_GOTO(err, join(&path, dir, name, ""), out);
    if (!json_is_integer(size) || !sha256) {
        err = cp_fail(CP_E_CKPT, "%s: the manifest has no size or hash of %s", dir, name);
        goto out;
    }
    if (lstat(path.p, &st) != 0 || !S_ISREG(st.st_mode)) {
        err = cp_fail(CP_E_CKPT, "%s: %s is missing", dir, name);
        goto out;
    }
    if (st.st_size != json_integer_value(size)) {
        err = cp_fail(CP_E_CKPT, "%s: %s has %lld bytes, the manifest says %lld", dir, name,
                      (long long)st.st_size, (long long)json_integer_value(size));
        goto out;
    }
    if (content) {
        CP_TRY_GOTO(err, hash_file(path.p, false, &found, hex), out);
        if (found != json_integer_value(size) || strcmp(hex, sha256) != 0) {
            err = cp_fail(CP_E_CKPT, "%s: the content of %s is not what the manifest says", dir,
                          name);
        }
    }
out:
    cp_str_fini(&path);
    return err;
}

struct listing {
    const char *dir;
    const json_t *files;
};

/* A file that the manifest does not know could be read by mistake. Hidden files are left alone. */
static cp_err check_listed(const char *name, void *arg)
{
    const struct listing *l = arg;
    if (name[0] == '.' || strcmp(name, MANIFEST) == 0 || json_object_get(l->files, name)) {
        return CP_OK;
    }
    return cp_fail(CP_E_CKPT, "%s: %.80s is not in the manifest", l->dir, name);
}

/* content: hashes too, not only names and sizes. */
static cp_err check_folder(const char *dir, bool content)
{
    struct cp_str path = {0};
    json_t *manifest = NULL, *entry;
    const char *name;
    cp_err err;
    CP_TRY_GOTO(err, join(&path, dir, MANIFEST, ""), out);
    if (access(path.p, F_OK) != 0) {
        err = cp_fail(CP_E_CKPT, "%s has no %s: its save was not completed", dir, MANIFEST);
        goto out;
    }
    CP_TRY_GOTO(err, cp_ckpt_read_json(path.p, MANIFEST_MAX_BYTES, &manifest), out);
    json_t *files = json_object_get(manifest, "files");
    if (json_integer_value(json_object_get(manifest, "version")) != 1 ||
        json_object_size(files) == 0) {
        err = cp_fail(CP_E_CKPT, "%s is not a manifest of version 1 with files", path.p);
        goto out;
    }
    json_object_foreach(files, name, entry)
    {
        CP_TRY_GOTO(err, check_file(dir, name, entry, content), out);
    }
    struct listing listing = {dir, files};
    err = each_entry(dir, check_listed, &listing);
out:
    json_decref(manifest);
    cp_str_fini(&path);
    return err;
}

cp_err cp_ckpt_verify(const char *dir)
{
    cp_err err = check_folder(dir, true);
    /* whatever could not be read could not be proved */
    return err && err != CP_E_NOMEM ? CP_E_CKPT : err;
}

/* ---- finding and pruning ---- */

struct numbers {
    int64_t *v;
    size_t n, cap;
};

/* "checkpoint-12" -> 12; -1 for other names, among them those with leading zeros. */
static int64_t number_of(const char *name)
{
    size_t skip = sizeof PREFIX - 1, digits = 0;
    int64_t x = 0;
    if (strncmp(name, PREFIX, skip) != 0) {
        return -1;
    }
    for (; name[skip + digits] >= '0' && name[skip + digits] <= '9' && digits < DIGITS_MAX;
         digits++) {
        x = x * 10 + (name[skip + digits] - '0');
    }
    bool padded = digits > 1 && name[skip] == '0';
    return digits > 0 && !padded && name[skip + digits] == 0 ? x : -1;
}

static cp_err collect(const char *name, void *arg)
{
    struct numbers *all = arg;
    int64_t number = number_of(name);
    if (number < 0) {
        return CP_OK;
    }
    if (all->n == all->cap) {
        size_t cap = all->cap ? 2 * all->cap : 16;
        int64_t *more = NULL;
        CP_TRY(cp_mem_array(NULL, cap, sizeof *more, &more));
        if (all->n > 0) {
            memcpy(more, all->v, all->n * sizeof *more);
        }
        cp_mem_free(all->v);
        all->v = more;
        all->cap = cap;
    }
    all->v[all->n++] = number;
    return CP_OK;
}

static int descending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* All checkpoints by name, newest first; v is freed by the caller, also after a failure. */
static cp_err list_numbers(const char *run_dir, struct numbers *out)
{
    CP_TRY(each_entry(run_dir, collect, out));
    if (out->n > 0) {
        qsort(out->v, out->n, sizeof *out->v, descending);
    }
    return CP_OK;
}

static cp_err join_number(struct cp_str *out, const char *run_dir, int64_t number)
{
    cp_str_clear(out);
    cp_str_printf(out, "%s/%s%lld", run_dir, PREFIX, (long long)number);
    return cp_str_check(out);
}

cp_err cp_ckpt_latest(const char *run_dir, struct cp_str *out)
{
    struct numbers all = {0};
    struct cp_str path = {0};
    bool found = false;
    cp_err err = list_numbers(run_dir, &all);
    for (size_t i = 0; !err && !found && i < all.n; i++) {
        CP_TRY_GOTO(err, join_number(&path, run_dir, all.v[i]), out);
        cp_err bad = cp_ckpt_verify(path.p);
        found = bad == CP_OK;
        if (!found) {
            cp_log(CP_LOG_WARN, "checkpoint skipped: %s", cp_err_text());
        }
    }
    if (!err && !found) {
        err =
            cp_fail(CP_E_CKPT, "%s has no complete checkpoint (%zu damaged ones)", run_dir, all.n);
    }
    if (!err) {
        cp_str_clear(out);
        cp_str_puts(out, path.p);
        err = cp_str_check(out);
    }
out:
    cp_str_fini(&path);
    cp_mem_free(all.v);
    return err;
}

/* Removes RUN_DIR/checkpoint-*.tmp. */
static cp_err remove_leftover(const char *name, void *arg)
{
    const char *const *run_dir = arg;
    size_t n = strlen(name);
    struct cp_str path = {0};
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0 || n < 4 ||
        strcmp(name + n - 4, ".tmp") != 0) {
        return CP_OK;
    }
    cp_err err = join(&path, *run_dir, name, "");
    if (!err) {
        err = remove_folder(path.p);
    }
    cp_str_fini(&path);
    return err;
}

/* By way of NAME.tmp, so that a crash leaves no half checkpoint under a good name. */
static cp_err remove_checkpoint(const char *path)
{
    struct cp_str gone = {0};
    cp_str_printf(&gone, "%s.tmp", path);
    cp_err err = cp_str_check(&gone);
    if (!err && rename(path, gone.p) != 0) {
        err = fail_errno(CP_E_IO, "rename", path);
    }
    if (!err) {
        err = remove_folder(gone.p);
    }
    cp_str_fini(&gone);
    return err;
}

cp_err cp_ckpt_prune(const char *run_dir, int keep, const char *current)
{
    struct numbers all = {0};
    struct cp_str path = {0};
    const char *slash = current ? strrchr(current, '/') : NULL;
    int64_t stands_on = current ? number_of(slash ? slash + 1 : current) : -1;
    int complete = 0;
    assert(keep >= 1);
    cp_err err = each_entry(run_dir, remove_leftover, &run_dir);
    if (!err) {
        err = list_numbers(run_dir, &all);
    }
    for (size_t i = 0; !err && i < all.n; i++) {
        if (stands_on >= 0 && all.v[i] > stands_on) {
            continue;
        }
        err = join_number(&path, run_dir, all.v[i]);
        if (!err && check_folder(path.p, false) == CP_OK && ++complete > keep) {
            err = remove_checkpoint(path.p);
        }
    }
    if (!err) {
        err = cp_dir_sync(run_dir);
    }
    cp_str_fini(&path);
    cp_mem_free(all.v);
    return err;
}
