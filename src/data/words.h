/*
 * words: BERT's basic tokenizer, the part before WordPiece; used by the encoder and the trainer.
 *
 * In this order, as the reference does: malformed UTF-8, U+0000, U+FFFD and control, format and
 * private-use characters vanish (code points that this Unicode table does not know stay: a new
 * emoji must become [UNK], not nothing); every CJK ideograph becomes a word; lower-casing also
 * decomposes (NFD) and drops the combining marks (Mn); the text is cut at white space; every
 * punctuation character becomes a word. Lower-casing maps code point by code point: a final capital
 * sigma becomes an ordinary small one.
 */
#ifndef CP_DATA_WORDS_H
#define CP_DATA_WORDS_H

#include <stdbool.h>
#include <stddef.h>

enum { CP_WORD_LIMIT = 512 }; /* largest max_word, in code points */

/* One word, 1 <= len. too_long: it has more than max_word code points, and w holds only its
 * beginning. Returns false to stop. w is borrowed until return. */
typedef bool cp_word_fn(void *arg, const char *w, size_t len, bool too_long);

/* Calls fn for every word of text, in order. Time is linear in len, memory constant. */
void cp_words_each(const char *text, size_t len, bool lower, int max_word, cp_word_fn *fn,
                   void *arg);

#endif
