/* str: a growing byte string. Out of memory is remembered and told once, by cp_str_check(). */
#ifndef CP_BASE_STR_H
#define CP_BASE_STR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct cp_str {
    char *p; /* always ends in a zero byte once something was added; NULL before */
    size_t len, cap;
    bool failed;
};

void cp_str_add(struct cp_str *s, const char *bytes, size_t n);
void cp_str_puts(struct cp_str *s, const char *text);
void cp_str_printf(struct cp_str *s, const char *fmt, ...) CP_PRINTF(2, 3);
void cp_str_clear(struct cp_str *s);
void cp_str_fini(struct cp_str *s);

/* The text so far, never NULL. */
const char *cp_str_text(const struct cp_str *s);

/* E_NOMEM if any addition was lost. */
CP_NODISCARD cp_err cp_str_check(const struct cp_str *s);

/* A whole file as bytes. E_IO names the path and the reason; E_DATA if it is larger than max. */
CP_NODISCARD cp_err cp_file_read(const char *path, size_t max_bytes, struct cp_str *out);

/* Writes path through a temporary name: write, fsync, rename, fsync of the folder. */
CP_NODISCARD cp_err cp_file_write(const char *path, const void *bytes, size_t n);

/* mkdir -p. */
CP_NODISCARD cp_err cp_dir_make(const char *path);

/* fsync of a folder, so that a rename in it is on disk. */
CP_NODISCARD cp_err cp_dir_sync(const char *path);

/* The most bytes of text, at most max, that end between two characters of UTF-8: a cut elsewhere
 * makes a text that JSON refuses. Bytes that are no UTF-8 count as characters of their own. */
size_t cp_utf8_cut(const char *text, size_t max);

/* text into out[size], cut like this where it is longer; size >= 1. They must not overlap. */
void cp_text_copy(char *out, size_t size, const char *text);

/* The candidate nearest to word by edit distance, or NULL if none is near: "did you mean". */
const char *cp_nearest(const char *word, const char *const *candidates, size_t n);

#endif
