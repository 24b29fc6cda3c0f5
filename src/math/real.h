/*
 * real: the number type of math and model. The product computes in float; the same sources are
 * compiled once more in double (CP_REAL_DOUBLE) for the finite-difference tests.
 */
#ifndef CP_MATH_REAL_H
#define CP_MATH_REAL_H

#ifdef CP_REAL_DOUBLE
typedef double cp_real;
#else
typedef float cp_real;
#endif

#endif
