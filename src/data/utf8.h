/* utf8: reading, writing and repairing UTF-8. Nothing here reads past the end that it is given. */
#ifndef CP_DATA_UTF8_H
#define CP_DATA_UTF8_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CP_UTF8_BAD = -1, CP_UTF8_MAX = 4, CP_SHOWN_SIZE = 64 };

/* The code point at *p, which moves on by at least one byte; *p < end. CP_UTF8_BAD for a malformed
 * part: *p then stands behind its longest beginning of a valid character (Unicode 3.9, D93b). */
int32_t cp_utf8_next(const char **p, const char *end);

/* Writes a valid code point and returns its number of bytes, 1 to 4. */
size_t cp_utf8_put(int32_t c, char out[CP_UTF8_MAX]);

/* The first malformed byte of text, or NULL. */
const char *cp_utf8_find_bad(const char *text, size_t len);

/* Appends text to out, each malformed part as U+FFFD; out->failed tells of lack of memory. */
void cp_utf8_repair(const char *text, size_t len, struct cp_str *out);

/* A value for a message: at most 40 bytes, control characters as '?', "..." where it was cut.
 * Returns out. */
const char *cp_utf8_show(const char *text, size_t len, char out[CP_SHOWN_SIZE]);

#endif
