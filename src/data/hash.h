/* hash: one stable 64-bit hash of bytes. Splits of data sets depend on it: never change it. */
#ifndef CP_DATA_HASH_H
#define CP_DATA_HASH_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a, then the finalizer of MurmurHash3, since the low bits of FNV alone mix badly. */
static inline uint64_t cp_hash64(const char *bytes, size_t len)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    }
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

#endif
