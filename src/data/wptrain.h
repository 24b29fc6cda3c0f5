/*
 * wptrain: learns a WordPiece vocabulary from texts.
 *
 * Byte-pair style: words start as single characters ("a", "##b"), then the most frequent adjacent
 * pair becomes a new piece, again and again. Equal counts go to the pair whose left piece, then
 * right piece, comes first in byte order, so the result is a function of the texts alone.
 */
#ifndef CP_DATA_WPTRAIN_H
#define CP_DATA_WPTRAIN_H

#include "data/vocab.h"

/* Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then each character of the alphabet as "c" and
 * "##c", then the pieces in the order of their making. The alphabet is the most frequent
 * characters, at most 1,000 and at most what vocab_size has room for; words with other characters
 * are not learned from, and neither are words above 100 characters. Pieces seen only once are not
 * made, so the vocabulary may stay smaller than vocab_size.
 *
 * text[i] has len[i] bytes; lower as in struct cp_tokenizer. E_CONFIG if vocab_size is below 7;
 * E_DATA if the texts hold no word. The caller frees *out. */
CP_NODISCARD cp_err cp_wordpiece_train(const char *const *text, const size_t *len, int64_t n,
                                       bool lower, int32_t vocab_size, struct cp_vocab **out);

#endif
