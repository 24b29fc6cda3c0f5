/*
 * dataset: texts with one class label each, read from a file or made by data/wordnet.h.
 *
 * Files: .csv and .tsv by RFC 4180 (quoted fields may hold delimiters, line breaks and "" for one
 * quote) with a header row, LF or CRLF, a byte order mark allowed; a .csv whose header has more
 * semicolons than commas is cut at semicolons. .jsonl: one JSON object per line. Rows count from 1,
 * the header is not a row.
 *
 * Labels are integers 0..C-1 written plainly, or words; blanks around them do not count. -100 means
 * "ignore this sample in the loss". "00", "+1", "1.0", "nan", other negative numbers and numbers
 * outside the range are errors that name file, row and value.
 */
#ifndef CP_DATA_DATASET_H
#define CP_DATA_DATASET_H

#include "base/err.h"
#include "base/label.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CP_MAX_CLASSES = 65536,
    CP_MAX_LEARNED_CLASSES = 4096, /* more than that was not meant to be a label column */
};

struct cp_dataset {
    int64_t n;
    const char **text; /* [n] UTF-8, followed by a zero byte; zero bytes inside are possible */
    size_t *len;       /* [n] in bytes */
    int32_t *label;    /* [n] class, or CP_LABEL_IGNORE */
    int32_t n_classes; /* 0 only if no sample has a label and no classes were given */
    char **class_name; /* [n_classes] */
    char *bytes;       /* what text points into */
};

struct cp_dataset_options {
    const char *text_column;  /* NULL: "text" */
    const char *label_column; /* NULL: "label" */

    /* The classes. Names and number given: a label is a name, or (if no name looks like a number)
     * an index. Number only: an index. Neither (NULL and 0): learned from the file; integers must
     * then use every class from 0 to the largest, words are numbered in byte order. Files that
     * belong together (clients, training and test) must be read with the same classes given. */
    const char *const *class_names;
    int32_t n_classes;

    bool labels_required; /* false: the label column or single labels may be missing (ignored) */
    bool strict_utf8;     /* malformed UTF-8 is an error; otherwise it becomes U+FFFD */
    bool raw_quotes;      /* .csv, .tsv: quotes are ordinary characters, a line is a row */
};

enum cp_dataset_format { CP_FORMAT_TSV, CP_FORMAT_CSV, CP_FORMAT_JSONL };

/* Reads path, its format known by the suffix .tsv, .csv or .jsonl. On success *ds is the caller's
 * to fini; it has at least one sample. E_IO: not readable; E_DATA: anything wrong inside ("0
 * samples", a missing column with the names found, a label); E_CONFIG: classes that cannot be used.
 */
CP_NODISCARD cp_err cp_dataset_read(const char *path, const struct cp_dataset_options *opt,
                                    struct cp_dataset *ds);

/* The same from n bytes; name stands for the path in messages. */
CP_NODISCARD cp_err cp_dataset_parse(const char *name, enum cp_dataset_format format,
                                     const char *bytes, size_t n,
                                     const struct cp_dataset_options *opt, struct cp_dataset *ds);

/* Two data sets by a hash of the text (cp_hash64 modulo modulus; which: held out), so that equal
 * texts are on one side and the split does not depend on the order or on other samples. Either may
 * have 0 samples. E_CONFIG unless modulus >= 2 and 0 <= which < modulus. */
CP_NODISCARD cp_err cp_dataset_split_hash(const struct cp_dataset *ds, int modulus, int which,
                                          struct cp_dataset *train, struct cp_dataset *heldout);

/* Columns text and label (the class name, or -100), quoted where needed; cp_dataset_read gives the
 * same samples back. */
CP_NODISCARD cp_err cp_dataset_write_tsv(const struct cp_dataset *ds, const char *path);

void cp_dataset_fini(struct cp_dataset *ds);

#endif
