#include "base/rng.h"

#include <Random123/philox.h>
#include <assert.h>
#include <math.h>

void cp_rng_block(uint64_t seed, enum cp_rng_purpose purpose, const uint32_t c[4], uint32_t out[4])
{
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32) ^ ((uint32_t)purpose << 24)}};
    philox4x32_ctr_t ctr = {{c[0], c[1], c[2], c[3]}};
    philox4x32_ctr_t r = philox4x32(ctr, key);
    for (int i = 0; i < 4; i++) {
        out[i] = r.v[i];
    }
}

void cp_rng_init(struct cp_rng *r, uint64_t seed, enum cp_rng_purpose purpose, uint32_t a,
                 uint32_t b)
{
    *r = (struct cp_rng){.seed = seed, .purpose = purpose, .a = a, .b = b};
}

uint32_t cp_rng_u32(struct cp_rng *r)
{
    if (r->left == 0) {
        uint32_t c[4] = {(uint32_t)r->next, (uint32_t)(r->next >> 32), r->a, r->b};
        cp_rng_block(r->seed, r->purpose, c, r->buf);
        r->next++;
        r->left = 4;
    }
    return r->buf[4 - r->left--];
}

double cp_rng_unit(struct cp_rng *r)
{
    uint64_t hi = cp_rng_u32(r) >> 5, lo = cp_rng_u32(r) >> 6; /* 27 + 26 bits */
    return (double)((hi << 26) | lo) * 0x1p-53;
}

double cp_rng_range(struct cp_rng *r, double lo, double hi)
{
    return lo + (hi - lo) * cp_rng_unit(r);
}

uint32_t cp_rng_below(struct cp_rng *r, uint32_t n)
{
    assert(n >= 1);
    uint32_t limit = UINT32_MAX - UINT32_MAX % n; /* the largest multiple of n that fits */
    uint32_t x;
    do {
        x = cp_rng_u32(r);
    } while (x >= limit);
    return x % n;
}

double cp_rng_normal(struct cp_rng *r)
{
    /* Box-Muller, one of the pair: simple, and stateless between calls. */
    double u = 1.0 - cp_rng_unit(r), v = cp_rng_unit(r);
    return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}

double cp_rng_exp(struct cp_rng *r)
{
    return -log(1.0 - cp_rng_unit(r));
}

double cp_rng_gamma(struct cp_rng *r, double alpha)
{
    /* Marsaglia and Tsang (2000); alpha < 1 by the boost Gamma(alpha+1) U^(1/alpha). */
    assert(alpha > 0);
    if (alpha < 1) {
        double u = 1.0 - cp_rng_unit(r);
        return cp_rng_gamma(r, alpha + 1) * pow(u, 1 / alpha);
    }
    double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = cp_rng_normal(r), v = 1 + c * x;
        if (v <= 0) {
            continue;
        }
        v = v * v * v;
        double u = 1.0 - cp_rng_unit(r);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) {
            return d * v;
        }
    }
}

void cp_rng_shuffle(struct cp_rng *r, int32_t *items, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = cp_rng_below(r, (uint32_t)i);
        int32_t t = items[i - 1];
        items[i - 1] = items[j];
        items[j] = t;
    }
}
