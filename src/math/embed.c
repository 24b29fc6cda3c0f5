#include "math/embed.h"

#include "math/vec.h"

#include <stddef.h>

CP_CLONES void cp_embed_forward(int b, int t, int n, const int32_t *ids, const cp_real *word,
                                const cp_real *position, const cp_real *type, cp_real *restrict y)
{
    for (int i = 0; i < b * t; i++) {
        const cp_real *w = word + (size_t)ids[i] * n, *p = position + (size_t)(i % t) * n;
        cp_real *out = y + (size_t)i * n;
        for (int j = 0; j < n; j++) {
            out[j] = w[j] + p[j] + type[j];
        }
    }
}

CP_CLONES void cp_embed_backward(int b, int t, int n, const int32_t *ids, const cp_real *dy,
                                 cp_real *restrict dword, cp_real *restrict dposition,
                                 cp_real *restrict dtype)
{
    for (int i = 0; i < b * t; i++) {
        const cp_real *d = dy + (size_t)i * n;
        cp_real *w = dword + (size_t)ids[i] * n, *p = dposition + (size_t)(i % t) * n;
        for (int j = 0; j < n; j++) {
            w[j] += d[j];
            p[j] += d[j];
            dtype[j] += d[j];
        }
    }
}
