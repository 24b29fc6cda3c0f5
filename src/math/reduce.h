/* reduce: sums over long arrays, in double and in an order that nothing changes. */
#ifndef CP_MATH_REDUCE_H
#define CP_MATH_REDUCE_H

#include "math/real.h"

#include <stdint.h>

double cp_sum_squares(const cp_real *x, int64_t n);

#endif
