/*
 * vocab: the pieces of a WordPiece tokenizer and their ids.
 *
 * The file is the usual vocab.txt: one token per line in id order, UTF-8, LF or CRLF, a byte order
 * mark and the last line end optional. Pieces that continue a word begin with "##". [PAD], [UNK],
 * [CLS] and [SEP] must be there, [MASK] may be; where they stand is free.
 */
#ifndef CP_DATA_VOCAB_H
#define CP_DATA_VOCAB_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cp_vocab;

enum cp_special { CP_PAD, CP_UNK, CP_CLS, CP_SEP, CP_MASK, CP_SPECIALS };

/* E_IO if path cannot be read; E_DATA names the line of an empty, double or malformed token and the
 * special token that is missing. The caller frees *out. */
CP_NODISCARD cp_err cp_vocab_load(const char *path, struct cp_vocab **out);

/* The same from n bytes; name stands for the path in messages. */
CP_NODISCARD cp_err cp_vocab_parse(const char *name, const char *bytes, size_t n,
                                   struct cp_vocab **out);

/* Writes what cp_vocab_load reads, LF at every line end. */
CP_NODISCARD cp_err cp_vocab_save(const struct cp_vocab *v, const char *path);

void cp_vocab_free(struct cp_vocab *v);

int32_t cp_vocab_size(const struct cp_vocab *v);

/* Id of a token, -1 if there is none. */
int32_t cp_vocab_find(const struct cp_vocab *v, const char *token, size_t len);

/* Token of an id in 0..size-1; lives as long as v. */
const char *cp_vocab_token(const struct cp_vocab *v, int32_t id);

/* Id of a special token; -1 only for CP_MASK, where the file has none. */
int32_t cp_vocab_special(const struct cp_vocab *v, enum cp_special which);

bool cp_vocab_is_special(const struct cp_vocab *v, int32_t id);

/* Id of the longest token that text begins with, and its length in bytes of text; inside a word the
 * tokens that begin with "##" are meant, and "##" is not counted. -1 if there is none. Costs at
 * most the length of the longest token, whatever len is. */
int32_t cp_vocab_longest(const struct cp_vocab *v, bool inside, const char *text, size_t len,
                         size_t *used);

#endif
