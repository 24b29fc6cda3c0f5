/*
 * One Philox block (Philox4x32-10, Salmon et al., SC 2011) gives the words of four neighbouring
 * elements, a quad. Its counter holds, from the first word: element / 4; step; sample (low half);
 * sample (high, 16 bits), block (13 bits), site (3 bits). The words are those of cp_rng_block()
 * with CP_RNG_DROPOUT, made LANES blocks at a time: one at a time they cost a fifth of a training
 * step.
 */
#include "math/dropout.h"

#include "base/rng.h"
#include "math/vec.h"

#include <assert.h>
#include <stddef.h>

enum { LANES = 32 };

/* words[4 i + w] = word w of the block of quad c0[i]. */
CP_CLONES static void philox(const struct cp_drop *d, int64_t sample, uint32_t c0[LANES],
                             uint32_t *restrict words)
{
    uint32_t c1[LANES], c2[LANES], c3[LANES];
    uint32_t k0 = (uint32_t)d->seed;
    uint32_t k1 = (uint32_t)(d->seed >> 32) ^ (uint32_t)CP_RNG_DROPOUT << 24;
    for (int i = 0; i < LANES; i++) {
        c1[i] = d->step;
        c2[i] = (uint32_t)sample;
        c3[i] = (uint32_t)(sample >> 32) << 16 | (uint32_t)d->block << 3 | (uint32_t)d->site;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < LANES; i++) {
            uint64_t a = (uint64_t)c0[i] * 0xD2511F53U, b = (uint64_t)c2[i] * 0xCD9E8D57U;
            c0[i] = (uint32_t)(b >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)b;
            c2[i] = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    for (int i = 0; i < LANES; i++) {
        words[4 * i] = c0[i];
        words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i];
        words[4 * i + 3] = c3[i];
    }
}

CP_CLONES static void to_factors(int n, const uint32_t *words, uint32_t limit, cp_real keep,
                                 cp_real *restrict mask)
{
    for (int i = 0; i < n; i++) {
        mask[i] = words[i] < limit ? 0 : keep;
    }
}

void cp_drop_mask(const struct cp_drop *d, int64_t sample, const struct cp_drop_range *at,
                  cp_real *mask)
{
    const uint32_t limit = (uint32_t)(d->rate * 0x1p32); /* words below it drop */
    const cp_real keep = (cp_real)(1 / (1 - d->rate));
    assert(sample >= 0 && sample >> 48 == 0 && d->block >> 13 == 0 && at->n >= 1);
    assert((at->first + (uint64_t)at->rows * at->stride + (uint64_t)at->n) / 4 >> 32 == 0);
    int row = 0, done = 0; /* elements of that row that have their factor */
    while (row < at->rows) {
        uint32_t quad[LANES] = {0}, words[4 * LANES];
        int filled = 0;
        for (int r = row, j = done; filled < LANES && r < at->rows;) {
            uint64_t e = at->first + (uint64_t)r * at->stride + (uint64_t)j;
            quad[filled++] = (uint32_t)(e / 4);
            j += 4 - (int)(e % 4);
            if (j >= at->n) {
                r++;
                j = 0;
            }
        }
        philox(d, sample, quad, words);
        for (int i = 0; i < filled;) { /* the quads of one row at a time */
            int skip = (int)((at->first + (uint64_t)row * at->stride + (uint64_t)done) % 4);
            int left = at->n - done, run = (skip + left + 3) / 4;
            run = run < filled - i ? run : filled - i;
            int m = left < 4 * run - skip ? left : 4 * run - skip;
            to_factors(m, words + (ptrdiff_t)4 * i + skip, limit, keep, mask);
            mask += m;
            done += m;
            i += run;
            if (done == at->n) {
                row++;
                done = 0;
            }
        }
    }
}

CP_CLONES static void multiply(int n, const cp_real *mask, cp_real *restrict x)
{
    for (int i = 0; i < n; i++) {
        x[i] *= mask[i];
    }
}

void cp_drop_apply(const struct cp_drop *d, int b, int n, const int64_t *sample, cp_real *x)
{
    enum { CHUNK = 1024 };
    cp_real mask[CHUNK];
    if (d->rate == 0) {
        return;
    }
    for (int s = 0; s < b; s++) {
        for (int first = 0; first < n; first += CHUNK) {
            int m = n - first < CHUNK ? n - first : CHUNK;
            struct cp_drop_range at = {.first = (uint64_t)first, .rows = 1, .n = m};
            cp_drop_mask(d, sample[s], &at, mask);
            multiply(m, mask, x + (size_t)s * n + first);
        }
    }
}
