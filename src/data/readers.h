/* readers: from bytes in memory to samples. Bytes are valid UTF-8 without a byte order mark. */
#ifndef CP_DATA_READERS_H
#define CP_DATA_READERS_H

#include "data/build.h"
#include "data/label.h"

/* RFC 4180 with a header row; delim '\t', or 0: comma or semicolon, by the header. The bytes are
 * overwritten (quotes are taken away in place). */
CP_NODISCARD cp_err cp_table_read(const char *name, char *bytes, size_t n, char delim,
                                  const struct cp_dataset_options *opt, struct cp_labels *labels,
                                  struct cp_build *out);

/* One JSON object per line; empty lines do not count. */
CP_NODISCARD cp_err cp_jsonl_read(const char *name, const char *bytes, size_t n,
                                  const struct cp_dataset_options *opt, struct cp_labels *labels,
                                  struct cp_build *out);

/* Names of columns as they should be after NULL was replaced. */
const char *cp_text_column(const struct cp_dataset_options *opt);
const char *cp_label_column(const struct cp_dataset_options *opt);

#endif
