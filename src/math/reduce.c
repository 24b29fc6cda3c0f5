#include "math/reduce.h"

#include "math/vec.h"

CP_CLONES double cp_sum_squares(const cp_real *x, int64_t n)
{
    enum { LANES = 16 };
    typedef cp_real part __attribute__((vector_size(LANES * sizeof(cp_real))));
    typedef double wide __attribute__((vector_size(LANES * sizeof(double))));
    wide acc = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        part a;
        memcpy(&a, x + i, sizeof a);
        wide d = __builtin_convertvector(a, wide);
        acc += d * d;
    }
    double sum = 0;
    for (int j = 0; j < LANES; j++) {
        sum += acc[j];
    }
    for (; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}
