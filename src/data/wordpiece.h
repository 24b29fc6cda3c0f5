/*
 * wordpiece: text -> ids, as BERT's tokenizer: words (data/words.h), each cut greedily into the
 * longest pieces of the vocabulary, between [CLS] and [SEP]. A word that cannot be cut, or that is
 * longer than max_word, is one [UNK]. Text never yields [PAD], [CLS], [SEP] or [MASK]: '[' is
 * punctuation and stands alone.
 */
#ifndef CP_DATA_WORDPIECE_H
#define CP_DATA_WORDPIECE_H

#include "data/vocab.h"

struct cp_tokenizer {
    const struct cp_vocab *vocab; /* borrowed */
    bool lower;                   /* uncased: lower-case and without accents */
    int max_word;                 /* longest word in code points; 100 in the common files */
};

/* E_CONFIG unless max_word and max_len (longest sequence, at least 2 for [CLS] [SEP]) can be used.
 */
CP_NODISCARD cp_err cp_tokenizer_check(const struct cp_tokenizer *tok, int max_len);

/* Writes [CLS] pieces [SEP] to ids, 2 <= *n_ids <= max_len; *cut tells that pieces were left out at
 * the end. text is any len_bytes bytes: malformed UTF-8 is left out; empty text is [CLS] [SEP].
 * Cannot fail on a tokenizer and max_len that passed the check; time is linear in len_bytes. */
void cp_tokenize(const struct cp_tokenizer *tok, const char *text, size_t len_bytes, int max_len,
                 int32_t *ids, int *n_ids, bool *cut); /* ids: [max_len] */

#endif
