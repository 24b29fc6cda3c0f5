/* grow: counted arrays whose final size is not known beforehand. */
#ifndef CP_DATA_GROW_H
#define CP_DATA_GROW_H

#include "base/mem.h"

#include <stddef.h>

/* Makes room for need elements of size bytes behind the pointer whose ADDRESS is given; used of the
 * *cap elements are kept, the new rest is zero. The pointer may be NULL with *cap 0. On failure
 * nothing changes. Doubling, so that n single additions cost O(n). */
CP_NODISCARD cp_err cp_grow(void *array_addr, size_t *cap, size_t used, size_t need, size_t size);

#endif
