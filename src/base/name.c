#include "base/name.h"

#include <string.h>

cp_err cp_name_check(cp_err code, const char *what, const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > CP_FILE_NAME_MAX) {
        return cp_fail(code, "%s has %zu bytes; allowed: 1 to %d", what, n, CP_FILE_NAME_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c == 0x7f) { /* not repeated in the sentence */
            return cp_fail(code, "%s holds a control character", what);
        }
        if (c == '/' || c == '\\') {
            return cp_fail(code, "%s '%s' must be a plain name, without '/' or '\\'", what, name);
        }
    }
    if (name[0] == '.') {
        return cp_fail(code, "%s '%s' must not start with a dot", what, name);
    }
    return CP_OK;
}
