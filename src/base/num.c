#include "base/num.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale; /* lives as long as the process */

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t enter_c(void)
{
    pthread_once(&once, make_locale);
    return uselocale(c_locale);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The grammar of cp_num_real; *zero is set if every digit before the exponent is 0. */
static bool is_real(const char *p, bool *zero)
{
    int digits = 0;
    *zero = true;
    p += *p == '+' || *p == '-';
    for (int part = 0; part < 2; part++) {
        for (; is_digit(*p); p++, digits++) {
            *zero = *zero && *p == '0';
        }
        if (part == 0 && *p != '.') {
            break;
        }
        p += part == 0;
    }
    if (digits == 0) {
        return false;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        if (!is_digit(*p)) {
            return false;
        }
        while (is_digit(*p)) {
            p++;
        }
    }
    return *p == 0;
}

bool cp_num_real(const char *text, double *out)
{
    bool zero;
    if (!is_real(text, &zero)) {
        return false;
    }
    locale_t old = enter_c();
    double x = strtod(text, NULL);
    uselocale(old);
    if (!isfinite(x) || (x == 0 && !zero)) {
        return false;
    }
    *out = x;
    return true;
}

bool cp_num_int(const char *text, int64_t *out)
{
    bool minus = *text == '-';
    text += minus || *text == '+';
    if (!is_digit(*text)) {
        return false;
    }
    int64_t x = 0;
    for (; is_digit(*text); text++) {
        int digit = minus ? '0' - *text : *text - '0';
        if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, digit, &x)) {
            return false;
        }
    }
    if (*text != 0) {
        return false;
    }
    *out = x;
    return true;
}

void cp_num_text(double x, char out[CP_NUM_TEXT])
{
    locale_t old = enter_c();
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, CP_NUM_TEXT, "%.*g", digits, x);
        if (!isfinite(x) || strtod(out, NULL) == x) {
            break;
        }
    }
    uselocale(old);
}
