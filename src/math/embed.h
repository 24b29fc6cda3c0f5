/* embed: a token's row is the sum of its word's, its position's and its type's row. Single
 * sentences only: the type is 0 everywhere. */
#ifndef CP_MATH_EMBED_H
#define CP_MATH_EMBED_H

#include "math/real.h"

#include <stdint.h>

/* y[b, t, n]; word [V, n], position [>= t, n], type [>= 1, n]. */
void cp_embed_forward(int b, int t, int n, const int32_t *ids, const cp_real *word,
                      const cp_real *position, const cp_real *type, cp_real *restrict y);

/* Adds dy to the rows that made y, in the order of the tokens. */
void cp_embed_backward(int b, int t, int n, const int32_t *ids, const cp_real *dy,
                       cp_real *restrict dword, cp_real *restrict dposition,
                       cp_real *restrict dtype);

#endif
