/* folder: model
 * Any bytes as a safetensors file: no crash, no leak, and of an accepted file every byte that is
 * promised can be read. */
#include "model/safetensors.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int fact)
{
    if (!fact) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cp_st *st = NULL;
    if (cp_st_open_memory("fuzz", data, size, &st) != CP_OK) {
        need(st == NULL && cp_err_text()[0]);
        return 0;
    }
    size_t bytes = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < cp_st_count(st); i++) {
        const struct cp_st_info *info = cp_st_at(st, i);
        const uint8_t *p = info->data;
        for (size_t k = 0; k < info->bytes; k++) {
            sum += p[k];
        }
        bytes += info->bytes;
        need(cp_st_find(st, info->name) == info);
        need(info->count >= 0 && (uint64_t)info->count <= 2 * size);
        float *out = calloc((size_t)info->count + 1, sizeof *out);
        need(out != NULL);
        if (cp_st_read_f32(st, info, out) != CP_OK) {
            need(info->dtype != CP_DT_F32);
        }
        free(out);
    }
    need(bytes <= size && sum != UINT32_MAX);
    (void)cp_st_metadata(st, "format");
    cp_st_close(st);
    return 0;
}
