/*
 * safetensors: the file format of tensors that Hugging Face tools read and write.
 *
 *   8 bytes   N, the length of the header, little-endian
 *   N bytes   JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]}, may end in spaces;
 *             optional "__metadata__": text -> text
 *   the rest  data, little-endian, C order, without holes or overlaps
 *
 * Files come from strangers. The reader maps the file, believes nothing and allocates nothing that
 * the file is too short to need; every refusal is E_CKPT and names file, tensor and reason. Legal
 * oddities are accepted: scalars, empty tensors, any order, any alignment, padding.
 */
#ifndef CP_MODEL_SAFETENSORS_H
#define CP_MODEL_SAFETENSORS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* code, bits per element; ordered by decreasing size, which is the order of a file we write */
#define CP_DTYPES(X)                                                                               \
    X(C64, 64)                                                                                     \
    X(F64, 64)                                                                                     \
    X(I64, 64)                                                                                     \
    X(U64, 64)                                                                                     \
    X(F32, 32)                                                                                     \
    X(I32, 32)                                                                                     \
    X(U32, 32)                                                                                     \
    X(F16, 16)                                                                                     \
    X(BF16, 16)                                                                                    \
    X(I16, 16)                                                                                     \
    X(U16, 16)                                                                                     \
    X(BOOL, 8)                                                                                     \
    X(I8, 8)                                                                                       \
    X(U8, 8)                                                                                       \
    X(F8_E4M3, 8)                                                                                  \
    X(F8_E5M2, 8)                                                                                  \
    X(F8_E8M0, 8)                                                                                  \
    X(F8_E4M3FNUZ, 8)                                                                              \
    X(F8_E5M2FNUZ, 8)                                                                              \
    X(F6_E2M3, 6)                                                                                  \
    X(F6_E3M2, 6)                                                                                  \
    X(F4, 4)

enum cp_dtype {
#define X(name, bits) CP_DT_##name,
    CP_DTYPES(X)
#undef X
        CP_DT_COUNT
};

const char *cp_dtype_name(enum cp_dtype dtype);
int cp_dtype_bits(enum cp_dtype dtype);

enum { CP_ST_RANK_MAX = 8, CP_ST_NAME_MAX = 255, CP_ST_HEADER_MAX = 100 * 1000 * 1000 };

struct cp_st_info {
    const char *name;
    enum cp_dtype dtype;
    int32_t rank; /* 0: a scalar */
    int64_t dims[CP_ST_RANK_MAX];
    int64_t count; /* elements */
    size_t bytes;
    const void *data; /* in the map, of any alignment */
};

struct cp_st;

/* Maps path, which must be a regular file and no symbolic link. E_IO if it cannot be opened. The
 * file must not shrink while it is open. */
CP_NODISCARD cp_err cp_st_open(const char *path, struct cp_st **out);

/* The same on n bytes that the caller keeps; name is for messages. */
CP_NODISCARD cp_err cp_st_open_memory(const char *name, const void *bytes, size_t n,
                                      struct cp_st **out);
void cp_st_close(struct cp_st *st);

/* Tensors in the order of their data; all strings live until close. */
size_t cp_st_count(const struct cp_st *st);
const struct cp_st_info *cp_st_at(const struct cp_st *st, size_t i);
const struct cp_st_info *cp_st_find(const struct cp_st *st, const char *name); /* NULL: none */

/* A text of "__metadata__", or NULL. */
const char *cp_st_metadata(const struct cp_st *st, const char *key);

/* Copies a tensor of F32, F16 or BF16 as info->count floats. E_CKPT for another dtype. */
CP_NODISCARD cp_err cp_st_read_f32(const struct cp_st *st, const struct cp_st_info *info,
                                   float *out);

/* What is written: dims[rank], and count * bits / 8 bytes at data. */
struct cp_st_tensor {
    const char *name;
    enum cp_dtype dtype;
    int32_t rank;
    int64_t dims[CP_ST_RANK_MAX];
    const void *data;
};

struct cp_st_pair {
    const char *key, *value;
};

/* Writes path through path.tmp: data from the pointers, fsync, rename, fsync of the folder. Tensors
 * are sorted by decreasing size of their dtype, then name; the header is padded to a multiple of 8
 * bytes, and its metadata starts with "format": "pt", which transformers asks for. E_CKPT for names
 * that are taken twice or not readable back. */
CP_NODISCARD cp_err cp_st_write(const char *path, const struct cp_st_tensor *tensors, size_t n,
                                const struct cp_st_pair *metadata, size_t n_metadata);

#endif
