/*
 * elem: exp and erf of one number, written so that a loop over them becomes vector code: no branch,
 * no table, no call. In float their relative errors are at most 1.0e-7 and 3.7e-7 (tested against
 * libm in double); the double build simply calls libm.
 */
#ifndef CP_MATH_ELEM_H
#define CP_MATH_ELEM_H

#include "math/vec.h"

#include <math.h>
#include <stdint.h>

#ifdef CP_REAL_DOUBLE

CP_INLINE cp_real cp_exp(cp_real x)
{
    return exp(x);
}

CP_INLINE cp_real cp_erf(cp_real x)
{
    return erf(x);
}

#else

/*
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, exp(r) by its Taylor polynomial of
 * degree 7 (truncation 5e-9). x is held within [-87, 88], where 2^n is a normal number. Adding and
 * taking away 1.5 * 2^23 rounds to an integer, and leaves that integer in the low bits of the sum.
 * NaN stays NaN.
 */
CP_INLINE cp_real cp_exp(cp_real x)
{
    const float round = 0x1.8p23F, ln2_hi = 0x1.62e4p-1F, ln2_lo = 0x1.7f7d1cp-20F;
    x = x < -87.0F ? -87.0F : x;
    x = x > 88.0F ? 88.0F : x;
    float shifted = x * 0x1.715476p0F + round;
    float n = shifted - round;
    float r = (x - n * ln2_hi) - n * ln2_lo;
    float p = 1.0F / 5040;
    p = p * r + 1.0F / 720;
    p = p * r + 1.0F / 120;
    p = p * r + 1.0F / 24;
    p = p * r + 1.0F / 6;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127U) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/*
 * erf(x) = x P(x^2) / Q(x^2), both of degree 5: a fit of least greatest relative error (2.1e-8
 * before rounding) on |x| <= 3.95, where erf is already 1 in float.
 */
CP_INLINE cp_real cp_erf(cp_real x)
{
    x = x < -3.95F ? -3.95F : x;
    x = x > 3.95F ? 3.95F : x;
    float z = x * x;
    float p = 2.02593446e-06F;
    p = p * z + 2.84686481e-04F;
    p = p * z + 3.80807044e-03F;
    p = p * z + 5.28751612e-02F;
    p = p * z + 1.91548079e-01F;
    p = p * z + 1.12837911F;
    float q = 3.7832011e-05F;
    q = q * z + 1.17070531e-03F;
    q = q * z + 1.50549049e-02F;
    q = q * z + 1.14558712e-01F;
    q = q * z + 5.03087759e-01F;
    q = q * z + 1.0F;
    return x * p / q;
}

#endif

#endif
