/*
 * err: one error type for the whole library.
 *
 * Every function that can fail returns cp_err and is marked CP_NODISCARD; 0 is success. The place
 * that fails writes one sentence for people ("what, where, why, what to do next") with cp_fail();
 * callers pass the code on with CP_TRY or prepend where they were with cp_fail_in(). The sentence
 * is kept per thread. Asserts are for our own mistakes; cp_err is for the world's.
 */
#ifndef CP_BASE_ERR_H
#define CP_BASE_ERR_H

#define CP_NODISCARD    __attribute__((warn_unused_result))
#define CP_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* code, name as shown to users, default sentence */
#define CP_ERRORS(X)                                                                               \
    X(OK, "OK", "no error")                                                                        \
    X(E_USAGE, "E_USAGE", "wrong use of the command line")                                         \
    X(E_CONFIG, "E_CONFIG", "the configuration is not valid")                                      \
    X(E_IO, "E_IO", "a file could not be read or written")                                         \
    X(E_NOSPACE, "E_NOSPACE", "the disk is full")                                                  \
    X(E_DATA, "E_DATA", "the data is not valid")                                                   \
    X(E_CKPT, "E_CKPT", "the checkpoint or model file is not valid")                               \
    X(E_NOMEM, "E_NOMEM", "out of memory")                                                         \
    X(E_PLAN, "E_PLAN", "no valid plan")                                                           \
    X(E_NONFINITE, "E_NONFINITE", "a value is not finite")                                         \
    X(E_TIMEOUT, "E_TIMEOUT", "a deadline passed")                                                 \
    X(E_PEER, "E_PEER", "a node failed")                                                           \
    X(E_PROTO, "E_PROTO", "a message does not fit the protocol or the plan")                       \
    X(E_STOPPED, "E_STOPPED", "the run was stopped")

typedef enum cp_err {
#define X(code, name, text) CP_##code,
    CP_ERRORS(X)
#undef X
        CP_ERR_COUNT
} cp_err;

/* Writes the sentence of this thread and returns code. */
cp_err cp_fail(cp_err code, const char *fmt, ...) CP_PRINTF(2, 3);

/* Prepends "WHERE: " to the sentence of this thread and returns code. */
cp_err cp_fail_in(cp_err code, const char *where_fmt, ...) CP_PRINTF(2, 3);

/* The sentence of the last failure on this thread; valid until the next failure on it. */
const char *cp_err_text(void);

/* "E_DATA" and the like; never NULL. */
const char *cp_err_name(cp_err code);

#define CP_TRY(expr)                                                                               \
    do {                                                                                           \
        cp_err cp_try_err_ = (expr);                                                               \
        if (cp_try_err_ != CP_OK) {                                                                \
            return cp_try_err_;                                                                    \
        }                                                                                          \
    } while (0)

/* The same for functions that must clean up: sets err and jumps. */
#define CP_TRY_GOTO(err, expr, label)                                                              \
    do {                                                                                           \
        (err) = (expr);                                                                            \
        if ((err) != CP_OK) {                                                                      \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

#endif
