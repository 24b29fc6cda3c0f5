/* safetensors: what must be accepted, what must be refused, and the bytes that we write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/safetensors.h"
#include "unit/folder.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' does not contain '%s'", text, part);
    }
}

/* A file of a header and n bytes of data 0, 1, 2 ..., exactly as long as needed. */
static char *make(const char *header, size_t n, size_t *size)
{
    uint64_t length = strlen(header);
    char *bytes = malloc(8 + length + n);
    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < n; i++) {
        bytes[8 + length + i] = (char)i;
    }
    *size = 8 + length + n;
    return bytes;
}

static cp_err open_made(const char *header, size_t n, struct cp_st **st, char **bytes)
{
    size_t size;
    *bytes = make(header, n, &size);
    *st = NULL;
    return cp_st_open_memory("m", *bytes, size, st);
}

static void test_odd_but_legal(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data, count;
    } FINE[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3,0,4],\"data_offsets\":[0,0]}}      ", 0, 1},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"z\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[2,2]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         6, 3}, /* an empty tensor between, then an unaligned one */
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]}}", 3, 1},
        {"{\"a\":{\"dtype\":\"F6_E3M2\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1},
        {"{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8],\"more\":1}}", 8, 1},
        {"{\"../x\":{\"dtype\":\"I8\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, 1},
    };
    for (size_t i = 0; i < sizeof FINE / sizeof *FINE; i++) {
        struct cp_st *st;
        char *bytes;
        if (open_made(FINE[i].header, FINE[i].data, &st, &bytes) != CP_OK) {
            fail_msg("%s: %s", FINE[i].header, cp_err_text());
        }
        assert_int_equal(cp_st_count(st), FINE[i].count);
        const char *end = NULL;
        for (size_t t = 0; t < cp_st_count(st); t++) {
            const struct cp_st_info *info = cp_st_at(st, t);
            assert_ptr_equal(cp_st_find(st, info->name), info);
            assert_true(!end || info->data == end);
            end = (const char *)info->data + info->bytes;
        }
        assert_null(cp_st_find(st, "none"));
        cp_st_close(st);
        free(bytes);
    }
}

static void test_order_and_metadata(void **state)
{
    (void)state;
    struct cp_st *st;
    char *bytes;
    assert_int_equal(open_made("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"
                               "\"a\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
                               "\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}}",
                               6, &st, &bytes),
                     CP_OK);
    assert_string_equal(cp_st_at(st, 0)->name, "a");
    assert_string_equal(cp_st_at(st, 1)->name, "b");
    assert_int_equal(cp_st_at(st, 0)->rank, 2);
    assert_int_equal(((const char *)cp_st_at(st, 1)->data)[1], 5);
    assert_string_equal(cp_st_metadata(st, "k"), "v");
    assert_null(cp_st_metadata(st, "x"));
    cp_st_close(st);
    free(bytes);
}

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } BAD[] = {
        {"", 0, "does not start with '{'"},
        {" {}", 0, "does not start with '{'"},
        {"[]", 0, "does not start with '{'"},
        {"{", 0, "not valid"},
        {"{} x", 0, "not valid"},
        {"{\"a\xff\":1}", 0, "not valid"},
        {"{\"a\\u0000\":1}", 0, "not valid"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("a", "F32", "[1]", "[0,4]") "}", 4,
         "not valid"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[0,4]") "}", 4,
         "tensor 'b': its data overlap"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[3,7]") "}", 8,
         "overlap"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[5,9]") "}", 9,
         "tensor 'b': there is a hole"},
        {"{" ENTRY("a", "F32", "[1]", "[1,5]") "}", 5, "hole"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 5, "1 bytes behind the last tensor"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 3, "behind the end of the file"},
        {"{}", 1, "behind the last tensor"},
        {"{" ENTRY("a", "F32", "[1]", "[4,0]") "}", 4, "wrong order"},
        {"{" ENTRY("a", "F32", "[1]", "[-4,0]") "}", 4, "negative"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4.0]") "}", 4, "not two integers"},
        {"{" ENTRY("a", "F32", "[1]", "[0]") "}", 4, "not two integers"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4,4]") "}", 4, "not two integers"},
        {"{" ENTRY("a", "F32", "[1]", "{}") "}", 4, "not two integers"},
        {"{" ENTRY("a", "F32", "[1]", "[0,99999999999999999999]") "}", 4, "not valid"},
        {"{" ENTRY("a", "F99", "[1]", "[0,4]") "}", 4, "tensor 'a': unknown dtype"},
        {"{" ENTRY("a", "f32", "[1]", "[0,4]") "}", 4, "unknown dtype"},
        {"{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 4, "do not fit its shape"},
        {"{" ENTRY("a", "F16", "[1]", "[0,4]") "}", 4, "do not fit its shape"},
        {"{" ENTRY("a", "F32", "[]", "[0,0]") "}", 0, "do not fit its shape"},
        {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "too large"},
        {"{" ENTRY("a", "F32", "[4611686018427387904]", "[0,0]") "}", 0, "more bits"},
        {"{" ENTRY("a", "U8", "[-1]", "[0,0]") "}", 0, "negative"},
        {"{" ENTRY("a", "U8", "[1.0]", "[0,1]") "}", 1, "not an integer"},
        {"{" ENTRY("a", "U8", "[true]", "[0,1]") "}", 1, "not an integer"},
        {"{" ENTRY("a", "U8", "3", "[0,3]") "}", 3, "no shape"},
        {"{" ENTRY("a", "F4", "[3]", "[0,2]") "}", 2, "whole bytes"},
        {"{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "more than 8 dimensions"},
        {"{\"a\":[]}", 0, "not an object"},
        {"{\"a\":{}}", 0, "no dtype"},
        {"{\"a\":{\"dtype\":3}}", 0, "no dtype"},
        {"{" ENTRY("", "U8", "[0]", "[0,0]") "}", 0, "its name is empty"},
        {"{" ENTRY("a\\n", "U8", "[0]", "[0,0]") "}", 0, "control character"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "not a text"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct cp_st *st;
        char *bytes;
        cp_err err = open_made(BAD[i].header, BAD[i].data, &st, &bytes);
        if (err != CP_E_CKPT || st) {
            fail_msg("accepted: %s", BAD[i].header);
        }
        if (!strstr(cp_err_text(), BAD[i].says)) {
            fail_msg("%s: '%s' does not contain '%s'", BAD[i].header, cp_err_text(), BAD[i].says);
        }
        assert_memory_equal(cp_err_text(), "m", 1);
        free(bytes);
    }
}

static void test_hostile_lengths(void **state)
{
    (void)state;
    static const uint64_t LENGTHS[] = {0,         3,          8312,       100000000,
                                       100000001, 1ull << 32, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        char bytes[10];
        struct cp_st *st = NULL;
        memcpy(bytes, &LENGTHS[i], 8);
        memcpy(bytes + 8, "{}", 2);
        assert_int_equal(cp_st_open_memory("m", bytes, sizeof bytes, &st), CP_E_CKPT);
        assert_null(st);
    }
    for (size_t n = 0; n < 8; n++) {
        struct cp_st *st = NULL;
        char *bytes = calloc(1, n + 1);
        assert_int_equal(cp_st_open_memory("m", bytes, n, &st), CP_E_CKPT);
        assert_contains(cp_err_text(), "too short");
        free(bytes);
    }
}

static void test_deep_and_long(void **state)
{
    (void)state;
    struct cp_str deep = {0}, name = {0};
    struct cp_st *st;
    char *bytes;
    cp_str_puts(&deep, "{\"a\":");
    for (int i = 0; i < 10000; i++) {
        cp_str_puts(&deep, "[");
    }
    assert_int_equal(open_made(deep.p, 0, &st, &bytes), CP_E_CKPT);
    free(bytes);
    for (int n = 255; n <= 256; n++) {
        cp_str_clear(&name);
        cp_str_printf(&name, "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                      n, 0);
        assert_int_equal(open_made(name.p, 0, &st, &bytes), n == 255 ? CP_OK : CP_E_CKPT);
        cp_st_close(st);
        free(bytes);
    }
    cp_str_fini(&deep);
    cp_str_fini(&name);
}

/* Every shortening of a good file, and every flipped bit, is refused or still whole. */
static void test_truncated_and_flipped(void **state)
{
    (void)state;
    size_t size;
    char *bytes = make(
        "{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "U8", "[3]", "[8,11]") "}", 11, &size);
    for (size_t n = 0; n < size; n++) {
        struct cp_st *st = NULL;
        char *copy = malloc(n + 1); /* exact, so that ASan sees a read past the end */
        memcpy(copy, bytes, n);
        assert_int_equal(cp_st_open_memory("m", copy, n, &st), CP_E_CKPT);
        free(copy);
    }
    for (size_t bit = 0; bit < 8 * size; bit++) {
        struct cp_st *st = NULL;
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        if (cp_st_open_memory("m", bytes, size, &st) == CP_OK) {
            size_t sum = 0;
            for (size_t t = 0; t < cp_st_count(st); t++) {
                sum += cp_st_at(st, t)->bytes;
            }
            assert_int_equal(sum, 11);
        }
        cp_st_close(st);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    free(bytes);
}

static void test_half_precision(void **state)
{
    (void)state;
    static const uint16_t F16[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0400,
                                   0x0001, 0x83ff, 0x7c00, 0xfc00, 0x7e01, 0x3555};
    static const float NEED16[] = {0.0f,     -0.0f,     1.0f,     -2.0f,
                                   65504.0f, 0x1p-14f,  0x1p-24f, -1023 * 0x1p-24f,
                                   INFINITY, -INFINITY, NAN,      0.333251953125f};
    static const uint16_t BF16[] = {0x3f80, 0xc049, 0x7f80, 0x7fc0, 0x0001};
    static const float NEEDB[] = {1.0f, -3.140625f, INFINITY, NAN, 0x1p-133f};
    struct cp_st_tensor t[2] = {
        {.name = "h", .dtype = CP_DT_F16, .rank = 1, .dims = {12}, .data = F16},
        {.name = "b", .dtype = CP_DT_BF16, .rank = 1, .dims = {5}, .data = BF16}};
    struct cp_st *st;
    float out[12];
    assert_int_equal(cp_st_write(in_dir("half"), t, 2, NULL, 0), CP_OK);
    assert_int_equal(cp_st_open(in_dir("half"), &st), CP_OK);
    assert_int_equal(cp_st_read_f32(st, cp_st_find(st, "h"), out), CP_OK);
    for (int i = 0; i < 12; i++) {
        assert_true(isnan(NEED16[i]) ? isnan(out[i]) : memcmp(&out[i], &NEED16[i], 4) == 0);
    }
    assert_int_equal(cp_st_read_f32(st, cp_st_find(st, "b"), out), CP_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(isnan(NEEDB[i]) ? isnan(out[i]) : memcmp(&out[i], &NEEDB[i], 4) == 0);
    }
    cp_st_close(st);
}

/* The bytes of a small file, and that reading gives back every byte (NaNs among them). */
static void test_written_bytes(void **state)
{
    (void)state;
    static const float A[2] = {1, NAN}, S[1] = {2};
    static const int64_t IDS[2] = {7, -1};
    static const uint8_t B[3] = {1, 0, 1};
    struct cp_st_tensor t[] = {
        {.name = "mask", .dtype = CP_DT_BOOL, .rank = 1, .dims = {3}, .data = B},
        {.name = "w", .dtype = CP_DT_F32, .rank = 2, .dims = {1, 2}, .data = A},
        {.name = "ids", .dtype = CP_DT_I64, .rank = 1, .dims = {2}, .data = IDS},
        {.name = "s", .dtype = CP_DT_F32, .rank = 0, .data = S},
        {.name = "none", .dtype = CP_DT_F32, .rank = 2, .dims = {0, 5}, .data = NULL},
    };
    struct cp_st_pair meta[] = {{"step", "12"}};
    static const char HEADER[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"12\"},"
        "\"ids\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[16,16]},"
        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[20,28]},"
        "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[28,31]}}";
    struct cp_str file = {0};
    struct cp_st *st;
    assert_int_equal(cp_st_write(in_dir("bytes"), t, 5, meta, 1), CP_OK);
    assert_int_equal(cp_file_read(in_dir("bytes"), 4096, &file), CP_OK);
    uint64_t length;
    memcpy(&length, file.p, 8);
    assert_int_equal(length % 8, 0);
    assert_memory_equal(file.p + 8, HEADER, sizeof HEADER - 1);
    for (size_t i = sizeof HEADER - 1; i < length; i++) {
        assert_int_equal(file.p[8 + i], ' ');
    }
    assert_int_equal(file.len, 8 + length + 31);
    assert_memory_equal(file.p + 8 + length, IDS, 16);
    assert_memory_equal(file.p + 8 + length + 20, A, 8);
    assert_int_equal(cp_st_open(in_dir("bytes"), &st), CP_OK);
    assert_string_equal(cp_st_metadata(st, "step"), "12");
    for (int i = 0; i < 5; i++) {
        const struct cp_st_info *info = cp_st_find(st, t[i].name);
        assert_int_equal(info->dtype, t[i].dtype);
        assert_int_equal(info->rank, t[i].rank);
        assert_memory_equal(info->dims, t[i].dims, sizeof info->dims);
        if (info->bytes > 0) {
            assert_memory_equal(info->data, t[i].data, info->bytes);
        }
    }
    float x;
    assert_int_equal(cp_st_read_f32(st, cp_st_find(st, "mask"), &x), CP_E_CKPT);
    assert_contains(cp_err_text(), "tensor 'mask' has dtype BOOL");
    assert_int_equal(cp_st_read_f32(st, cp_st_find(st, "none"), &x), CP_OK);
    cp_st_close(st);
    cp_str_fini(&file);
    assert_int_equal(cp_st_write(in_dir("empty"), NULL, 0, NULL, 0), CP_OK);
    assert_int_equal(cp_st_open(in_dir("empty"), &st), CP_OK);
    assert_int_equal(cp_st_count(st), 0);
    cp_st_close(st);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    static const float A[1] = {1};
    struct cp_st_tensor twice[2] = {
        {.name = "a", .dtype = CP_DT_F32, .rank = 1, .dims = {1}, .data = A},
        {.name = "a", .dtype = CP_DT_F32, .rank = 1, .dims = {1}, .data = A}};
    struct cp_st_tensor one = twice[0];
    assert_int_equal(cp_st_write(in_dir("w"), twice, 2, NULL, 0), CP_E_CKPT);
    assert_contains(cp_err_text(), "its name is taken");
    one.name = "__metadata__";
    assert_int_equal(cp_st_write(in_dir("w"), &one, 1, NULL, 0), CP_E_CKPT);
    one.name = "a\n";
    assert_int_equal(cp_st_write(in_dir("w"), &one, 1, NULL, 0), CP_E_CKPT);
    one.name = "\xff";
    assert_int_equal(cp_st_write(in_dir("w"), &one, 1, NULL, 0), CP_E_CKPT);
    one.name = "a";
    one.dims[0] = INT64_MAX;
    assert_int_equal(cp_st_write(in_dir("w"), &one, 1, NULL, 0), CP_E_CKPT);
    assert_int_equal(access(in_dir("w"), F_OK), -1);
    one.dims[0] = 1;
    assert_int_equal(cp_st_write(in_dir("no/w"), &one, 1, NULL, 0), CP_E_IO);
}

/* A full disk half way: the old file stays, the temporary one goes. */
static void test_write_is_atomic(void **state)
{
    (void)state;
    static float big[10000];
    struct cp_st_tensor t = {.name = "a", .dtype = CP_DT_F32, .rank = 1, .dims = {1}, .data = big};
    struct rlimit keep, small;
    struct cp_st *st;
    assert_int_equal(cp_st_write(in_dir("x"), &t, 1, NULL, 0), CP_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &keep), 0);
    small = keep;
    small.rlim_cur = 5000;
    t.dims[0] = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    cp_err err = cp_st_write(in_dir("x"), &t, 1, NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &keep), 0);
    assert_int_equal(err, CP_E_IO);
    assert_int_equal(access(in_dir("x.tmp"), F_OK), -1);
    assert_int_equal(cp_st_open(in_dir("x"), &st), CP_OK);
    assert_int_equal(cp_st_at(st, 0)->count, 1);
    cp_st_close(st);
}

static void test_what_is_opened(void **state)
{
    (void)state;
    struct cp_st *st = NULL;
    assert_int_equal(cp_st_write(in_dir("real"), NULL, 0, NULL, 0), CP_OK);
    assert_int_equal(symlink("real", in_dir("link")), 0);
    assert_int_equal(cp_st_open(in_dir("link"), &st), CP_E_IO);
    assert_contains(cp_err_text(), "symbolic link");
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    assert_int_equal(cp_st_open(in_dir("pipe"), &st), CP_E_IO); /* and does not wait */
    assert_int_equal(cp_st_open(dir, &st), CP_E_IO);
    assert_int_equal(cp_st_open(in_dir("none"), &st), CP_E_IO);
    assert_int_equal(cp_file_write(in_dir("seven"), "1234567", 7), CP_OK);
    assert_int_equal(cp_st_open(in_dir("seven"), &st), CP_E_CKPT);
    assert_int_equal(cp_file_write(in_dir("zero"), "", 0), CP_OK);
    assert_int_equal(cp_st_open(in_dir("zero"), &st), CP_E_CKPT);
    assert_null(st);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    static const float A[1] = {1};
    struct cp_st_tensor t = {.name = "a", .dtype = CP_DT_F32, .rank = 1, .dims = {1}, .data = A};
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        cp_mem_fail_at(n);
        cp_err err = cp_st_write(in_dir("oom"), &t, 1, NULL, 0);
        cp_mem_fail_at(0);
        done = err == CP_OK;
        assert_true(done || err == CP_E_NOMEM);
    }
    done = false;
    for (uint64_t n = 1; !done; n++) {
        struct cp_st *st = NULL;
        cp_mem_fail_at(n);
        cp_err err = cp_st_open(in_dir("oom"), &st);
        cp_mem_fail_at(0);
        done = err == CP_OK;
        assert_true(done ? st != NULL : err == CP_E_NOMEM && !st);
        cp_st_close(st);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_but_legal),   cmocka_unit_test(test_order_and_metadata),
        cmocka_unit_test(test_hostile_headers), cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_deep_and_long),   cmocka_unit_test(test_truncated_and_flipped),
        cmocka_unit_test(test_half_precision),  cmocka_unit_test(test_written_bytes),
        cmocka_unit_test(test_writer_refuses),  cmocka_unit_test(test_write_is_atomic),
        cmocka_unit_test(test_what_is_opened),  cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
