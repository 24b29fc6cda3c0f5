#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_SIZE = 1024 };

static _Thread_local char text[TEXT_SIZE];

static const struct {
    const char *name, *sentence;
} ERRORS[CP_ERR_COUNT] = {
#define X(code, name, sentence) [CP_##code] = {name, sentence},
    CP_ERRORS(X)
#undef X
};

cp_err cp_fail(cp_err code, const char *fmt, ...)
{
    char fresh[TEXT_SIZE]; /* arguments may point into the old text */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    memcpy(text, fresh, sizeof text);
    return code;
}

cp_err cp_fail_in(cp_err code, const char *where_fmt, ...)
{
    char fresh[TEXT_SIZE];
    va_list ap;
    va_start(ap, where_fmt);
    int n = vsnprintf(fresh, sizeof fresh, where_fmt, ap);
    va_end(ap);
    const char *old = text[0] ? text : ERRORS[code].sentence;
    for (const char *p = ": "; *p && n >= 0 && n < TEXT_SIZE - 1; p++) {
        fresh[n++] = *p;
    }
    while (n >= 0 && n < TEXT_SIZE - 1 && *old) { /* a text that is too long is cut at its end */
        fresh[n++] = *old++;
    }
    if (n >= 0 && n < TEXT_SIZE) {
        fresh[n] = 0;
    }
    memcpy(text, fresh, sizeof text);
    return code;
}

const char *cp_err_text(void)
{
    return text;
}

const char *cp_err_name(cp_err code)
{
    return (unsigned)code < CP_ERR_COUNT ? ERRORS[code].name : "E_UNKNOWN";
}
