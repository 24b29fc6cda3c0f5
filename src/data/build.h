/* build: a data set in the making; shared by the readers. */
#ifndef CP_DATA_BUILD_H
#define CP_DATA_BUILD_H

#include "data/dataset.h"

struct cp_build {
    int64_t n;
    char *bytes;
    size_t *end;    /* [n] where text i ends in bytes */
    int32_t *label; /* [n] */
    size_t n_bytes, cap_bytes, cap_end, cap_label;
};

/* A zeroed struct is an empty one. */
CP_NODISCARD cp_err cp_build_add(struct cp_build *b, const char *text, size_t len, int32_t label);
void cp_build_fini(struct cp_build *b);

/* Moves the samples into ds and copies the class names. On success b is empty again. */
CP_NODISCARD cp_err cp_build_finish(struct cp_build *b, const char *const *class_name,
                                    int32_t n_classes, struct cp_dataset *ds);

#endif
