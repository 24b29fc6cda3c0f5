/* safetensors_impl: what reader and writer share. */
#ifndef CP_MODEL_SAFETENSORS_IMPL_H
#define CP_MODEL_SAFETENSORS_IMPL_H

#include "model/safetensors.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files are little-endian and are used in place"
#endif

/* Elements and bytes of a tensor; the reason it is impossible, or NULL. */
const char *cp_st_size(enum cp_dtype dtype, int32_t rank, const int64_t *dims, int64_t *count,
                       size_t *bytes);

/* The reason a name is refused, or NULL. Names are no paths: only what breaks messages and keys. */
const char *cp_st_bad_name(const char *name);

#endif
