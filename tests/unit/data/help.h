/* help: what the tests of the data floor share. Include after cmocka.h. */
#ifndef CP_TESTS_DATA_HELP_H
#define CP_TESTS_DATA_HELP_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/vocab.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        cp_err err_ = (expr);                                                                      \
        if (err_) {                                                                                \
            fail_msg("%s: %s", cp_err_name(err_), cp_err_text());                                  \
        }                                                                                          \
    } while (0)

/* The call fails with code, and its sentence contains part. */
#define assert_fails(expr, code, part)                                                             \
    do {                                                                                           \
        cp_err err_ = (expr);                                                                      \
        assert_string_equal(cp_err_name(err_), cp_err_name(code));                                 \
        if (!strstr(cp_err_text(), part)) {                                                        \
            fail_msg("'%s' does not contain '%s'", cp_err_text(), part);                           \
        }                                                                                          \
    } while (0)

/* Runs a statement that sets err with the 1st, 2nd, ... allocation failing until none fails; each
 * failure must be E_NOMEM. Leaks are found by the sanitizer build. */
#define for_each_failing_allocation(err)                                                           \
    for (uint64_t fail_n_ = 1; fail_n_ < 100000; fail_n_++)                                        \
        for (bool once_ = (cp_mem_fail_at(fail_n_), true); once_; once_ = false,                   \
                  cp_mem_fail_at(0),                                                               \
                  (err) ? assert_int_equal(err, CP_E_NOMEM) : (void)(fail_n_ = 100000))

static inline struct cp_vocab *make_vocab(const char *lines)
{
    struct cp_vocab *v = NULL;
    assert_ok(cp_vocab_parse("test", lines, strlen(lines), &v));
    return v;
}

/* A path with this process in its name; the next call overwrites the text. */
static inline const char *temp_path(const char *suffix)
{
    static char path[128];
    snprintf(path, sizeof path, "/tmp/collapipe-test-%d%s", (int)getpid(), suffix);
    return path;
}

static inline const char *temp_file(const char *suffix, const char *bytes, size_t n)
{
    const char *path = temp_path(suffix);
    assert_ok(cp_file_write(path, bytes, n));
    return path;
}

#endif
