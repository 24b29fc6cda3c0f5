/* label: from what a file says to a class; the rules are in data/dataset.h. */
#ifndef CP_DATA_LABEL_H
#define CP_DATA_LABEL_H

#include "data/dataset.h"

struct cp_learned {
    char *word;
    size_t len;
    int32_t first; /* number by first appearance, until the end of the file */
};

struct cp_labels {
    const struct cp_dataset_options *opt;
    bool numeric_names; /* a given name looks like a number: then labels are names only */
    enum { CP_LEARN_OPEN, CP_LEARN_INTEGERS, CP_LEARN_WORDS } kind;
    int64_t kind_row;        /* the row that decided kind */
    int32_t n;               /* learned so far: words, or largest integer + 1 */
    struct cp_learned *word; /* sorted */
    size_t cap_word;
    bool seen[CP_MAX_LEARNED_CLASSES]; /* integers */
};

/* Where a value stands, for messages. */
struct cp_place {
    const char *file;
    int64_t row, line;
};

/* E_DATA "FILE: row R (line L): ...". */
cp_err cp_fail_at(const struct cp_place *at, const char *fmt, ...) CP_PRINTF(2, 3);

/* E_CONFIG if the classes given by opt cannot be used. opt is borrowed until fini. */
CP_NODISCARD cp_err cp_labels_init(struct cp_labels *l, const struct cp_dataset_options *opt);
void cp_labels_fini(struct cp_labels *l);

/* The class of one label, preliminary while classes are learned. */
CP_NODISCARD cp_err cp_labels_map(struct cp_labels *l, const struct cp_place *at, const char *text,
                                  size_t len, int32_t *out);

/* Makes the n labels final. *names has *n_classes entries, of which each is owned by l or opt; the
 * caller frees the array itself with cp_mem_free. */
CP_NODISCARD cp_err cp_labels_finish(struct cp_labels *l, const char *file, int32_t *label,
                                     int64_t n, const char ***names, int32_t *n_classes);

#endif
