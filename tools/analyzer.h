/*
 * Included before every file that clang-tidy reads, and by nothing else. The analyzer cannot see
 * into err.c, so it would follow paths on which a failed function returns CP_OK. This tells it
 * better.
 */
#include "base/err.h"

#define cp_fail(code, ...)    ((void)(cp_fail)((code), __VA_ARGS__), (code))
#define cp_fail_in(code, ...) ((void)(cp_fail_in)((code), __VA_ARGS__), (code))
