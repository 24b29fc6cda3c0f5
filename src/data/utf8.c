#include "data/utf8.h"

#include <string.h>

int32_t cp_utf8_next(const char **text, const char *end)
{
    const unsigned char *p = (const unsigned char *)*text, *stop = (const unsigned char *)end;
    unsigned c = *p++;
    int more = c < 0x80 ? 0 : c >= 0xC2 && c <= 0xDF ? 1 : c >= 0xE0 && c <= 0xEF ? 2 : 3;
    if (c >= 0x80 && (c < 0xC2 || c > 0xF4)) { /* a lone continuation, or never a first byte */
        *text = (const char *)p;
        return CP_UTF8_BAD;
    }
    /* The second byte is narrower after these: no overlong forms, surrogates or values above
     * U+10FFFF. */
    unsigned lo = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    unsigned hi = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    int32_t value = (int32_t)(more == 0 ? c : c & (0x3Fu >> more));
    for (int i = 0; i < more; i++) {
        if (p == stop || *p < lo || *p > hi) {
            *text = (const char *)p;
            return CP_UTF8_BAD;
        }
        value = value << 6 | (*p++ & 0x3F);
        lo = 0x80;
        hi = 0xBF;
    }
    *text = (const char *)p;
    return value;
}

size_t cp_utf8_put(int32_t c, char out[CP_UTF8_MAX])
{
    uint32_t u = (uint32_t)c;
    if (u < 0x80) {
        out[0] = (char)u;
        return 1;
    }
    if (u < 0x800) {
        out[0] = (char)(0xC0 | u >> 6);
        out[1] = (char)(0x80 | (u & 0x3F));
        return 2;
    }
    if (u < 0x10000) {
        out[0] = (char)(0xE0 | u >> 12);
        out[1] = (char)(0x80 | (u >> 6 & 0x3F));
        out[2] = (char)(0x80 | (u & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | u >> 18);
    out[1] = (char)(0x80 | (u >> 12 & 0x3F));
    out[2] = (char)(0x80 | (u >> 6 & 0x3F));
    out[3] = (char)(0x80 | (u & 0x3F));
    return 4;
}

const char *cp_utf8_find_bad(const char *text, size_t len)
{
    for (const char *p = text, *end = text + len; p < end;) {
        const char *at = p;
        if (cp_utf8_next(&p, end) == CP_UTF8_BAD) {
            return at;
        }
    }
    return NULL;
}

void cp_utf8_repair(const char *text, size_t len, struct cp_str *out)
{
    const char *end = text + len;
    while (text < end) {
        const char *bad = cp_utf8_find_bad(text, (size_t)(end - text));
        const char *stop = bad ? bad : end;
        cp_str_add(out, text, (size_t)(stop - text));
        text = stop;
        if (bad) {
            (void)cp_utf8_next(&text, end);
            cp_str_add(out, "\xEF\xBF\xBD", 3);
        }
    }
}

const char *cp_utf8_show(const char *text, size_t len, char out[CP_SHOWN_SIZE])
{
    enum { LIMIT = 40 };
    const char *p = text, *end = text + len;
    size_t n = 0;
    while (p < end) {
        int32_t c = cp_utf8_next(&p, end);
        char bytes[CP_UTF8_MAX];
        size_t k = cp_utf8_put(c < 0x20 || c == 0x7F ? '?' : c, bytes);
        if (n + k > LIMIT) {
            memcpy(out + n, "...", 3);
            n += 3;
            break;
        }
        memcpy(out + n, bytes, k);
        n += k;
    }
    out[n] = 0;
    return out;
}
