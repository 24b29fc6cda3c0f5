#include "data/grow.h"

#include <string.h>

cp_err cp_grow(void *array_addr, size_t *cap, size_t used, size_t need, size_t size)
{
    if (need <= *cap) {
        return CP_OK;
    }
    size_t want = *cap < 16 ? 16 : *cap > SIZE_MAX / 2 ? SIZE_MAX : 2 * *cap;
    want = want < need ? need : want;
    char *fresh = NULL, *old = NULL;
    CP_TRY(cp_mem_array(NULL, want, size, &fresh));
    memcpy(&old, array_addr, sizeof old); /* some T **: no aliasing through void ** */
    if (used > 0) {
        memcpy(fresh, old, used * size);
    }
    cp_mem_free(old);
    memcpy(array_addr, &fresh, sizeof fresh);
    *cap = want;
    return CP_OK;
}
