#include "math/dropout.h"

#include "base/rng.h"
#include "math/vec.h"

#include <assert.h>

/*
 * One Philox block gives the words of four elements. Its counter holds, from the first word:
 * element / 4; step; sample (low half); sample (high, 16 bits), block (13 bits), site (3 bits).
 */
static void words(const struct cp_drop *d, int64_t sample, uint64_t quad, uint32_t out[4])
{
    assert(sample >= 0 && sample >> 48 == 0 && d->block >> 13 == 0 && quad >> 32 == 0);
    uint32_t c[4] = {(uint32_t)quad, d->step, (uint32_t)sample,
                     (uint32_t)(sample >> 32) << 16 | (uint32_t)d->block << 3 | (uint32_t)d->site};
    cp_rng_block(d->seed, CP_RNG_DROPOUT, c, out);
}

void cp_drop_mask(const struct cp_drop *d, int64_t sample, uint64_t first, int n, cp_real *mask)
{
    const uint32_t limit = (uint32_t)(d->rate * 0x1p32); /* words below it drop */
    const cp_real keep = (cp_real)(1 / (1 - d->rate));
    int k = 0, skip = (int)(first % 4);
    for (uint64_t quad = first / 4; k < n; quad++) {
        uint32_t w[4];
        words(d, sample, quad, w);
        for (int i = skip; i < 4 && k < n; i++) {
            mask[k++] = w[i] < limit ? 0 : keep;
        }
        skip = 0;
    }
}

void cp_drop_apply(const struct cp_drop *d, int b, int n, const int64_t *sample, cp_real *x)
{
    enum { CHUNK = 512 };
    cp_real mask[CHUNK];
    if (d->rate == 0) {
        return;
    }
    for (int s = 0; s < b; s++) {
        for (int first = 0; first < n; first += CHUNK) {
            int m = n - first < CHUNK ? n - first : CHUNK;
            cp_real *part = x + (size_t)s * n + first;
            cp_drop_mask(d, sample[s], (uint64_t)first, m, mask);
            for (int i = 0; i < m; i++) {
                part[i] *= mask[i];
            }
        }
    }
}
