/*
 * rng: counter-based random numbers (Philox4x32-10 of Random123).
 *
 * A number is a pure function of (seed, purpose, coordinates), never of a thread, a device or the
 * order of arrival. So dropout does not know how the model is cut, and a resumed run draws what the
 * uninterrupted one would have drawn.
 */
#ifndef CP_BASE_RNG_H
#define CP_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Values are part of what a seed means: never renumber, only append. */
enum cp_rng_purpose {
    CP_RNG_INIT = 1,    /* initial parameters */
    CP_RNG_SHUFFLE = 2, /* order of samples in an epoch */
    CP_RNG_SHARD = 3,   /* which cluster owns which sample */
    CP_RNG_DROPOUT = 4,
    CP_RNG_FADING = 5, /* channel gains of a round */
    CP_RNG_WORLD = 6,  /* drawing devices, availability */
    CP_RNG_POLICY = 7, /* the random policy */
    CP_RNG_TEST = 8,
    CP_RNG_ARRIVALS = 9,  /* samples that come in a round */
    CP_RNG_GRADSTAT = 10, /* which coordinates of a gradient are looked at */
};

/* Four independent 32-bit words for the coordinates c[0..3]. */
void cp_rng_block(uint64_t seed, enum cp_rng_purpose purpose, const uint32_t c[4], uint32_t out[4]);

/* A stream: coordinates (a, b) fixed, the rest counts. */
struct cp_rng {
    uint64_t seed;
    enum cp_rng_purpose purpose;
    uint32_t a, b;
    uint64_t next; /* block counter */
    uint32_t buf[4];
    int left; /* unused words of buf */
};

void cp_rng_init(struct cp_rng *r, uint64_t seed, enum cp_rng_purpose purpose, uint32_t a,
                 uint32_t b);
uint32_t cp_rng_u32(struct cp_rng *r);
double cp_rng_unit(struct cp_rng *r);                        /* [0, 1) */
double cp_rng_range(struct cp_rng *r, double lo, double hi); /* [lo, hi) */
uint32_t cp_rng_below(struct cp_rng *r, uint32_t n);         /* 0..n-1, unbiased; n >= 1 */
double cp_rng_normal(struct cp_rng *r);                      /* N(0, 1) */
double cp_rng_exp(struct cp_rng *r);                         /* Exp(1) */
double cp_rng_gamma(struct cp_rng *r, double alpha);         /* Gamma(alpha, 1), alpha > 0 */

/* Fisher-Yates on n items of 4 bytes. */
void cp_rng_shuffle(struct cp_rng *r, int32_t *items, size_t n);

#endif
