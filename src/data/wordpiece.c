#include "data/wordpiece.h"

#include "data/words.h"

#include <assert.h>
#include <string.h>

struct encoder {
    const struct cp_tokenizer *tok;
    int32_t *ids;
    int n, room; /* room: where [SEP] must stand at the latest */
    bool cut;
};

cp_err cp_tokenizer_check(const struct cp_tokenizer *tok, int max_len)
{
    if (tok->max_word < 1 || tok->max_word > CP_WORD_LIMIT) {
        return cp_fail(CP_E_CONFIG, "the longest word is %d characters; it must be 1 to %d",
                       tok->max_word, CP_WORD_LIMIT);
    }
    if (max_len < 2) {
        return cp_fail(CP_E_CONFIG,
                       "the longest sequence is %d tokens; [CLS] and [SEP] alone need 2", max_len);
    }
    return CP_OK;
}

/* Pieces of one word; 0 if it cannot be cut. */
static int split_word(const struct cp_vocab *v, const char *w, size_t len,
                      int32_t piece[CP_WORD_LIMIT])
{
    int n = 0;
    for (size_t at = 0, used = 0; at < len; at += used) {
        int32_t id = cp_vocab_longest(v, at > 0, w + at, len - at, &used);
        if (id < 0) {
            return 0;
        }
        piece[n++] = id; /* a piece is at least one code point, so CP_WORD_LIMIT is enough */
    }
    return n;
}

static bool encode_word(void *arg, const char *w, size_t len, bool too_long)
{
    struct encoder *e = arg;
    int32_t piece[CP_WORD_LIMIT];
    int n = too_long ? 0 : split_word(e->tok->vocab, w, len, piece);
    if (n == 0) {
        piece[n++] = cp_vocab_special(e->tok->vocab, CP_UNK);
    }
    int fit = n <= e->room - e->n ? n : e->room - e->n;
    memcpy(e->ids + e->n, piece, (size_t)fit * sizeof *piece);
    e->n += fit;
    e->cut = fit < n;
    return !e->cut;
}

void cp_tokenize(const struct cp_tokenizer *tok, const char *text, size_t len_bytes, int max_len,
                 int32_t *ids, int *n_ids, bool *cut)
{
    assert(max_len >= 2);
    struct encoder e = {.tok = tok, .ids = ids, .n = 1, .room = max_len - 1};
    ids[0] = cp_vocab_special(tok->vocab, CP_CLS);
    cp_words_each(text, len_bytes, tok->lower, tok->max_word, encode_word, &e);
    ids[e.n] = cp_vocab_special(tok->vocab, CP_SEP);
    *n_ids = e.n + 1;
    *cut = e.cut;
}
