/* folder: data */
/* Two bytes of options, then raw bytes as text: encoded, and learned from. */
#include "data/wordpiece.h"
#include "data/wptrain.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* [CLS] and [SEP] at the ends, no special id but [UNK] between, nothing written behind the end. */
static void check_encoding(const struct cp_tokenizer *tok, const char *text, size_t len,
                           int max_len)
{
    enum { GUARD = 0x55555555 };
    int32_t *ids = malloc(((size_t)max_len + 1) * sizeof *ids);
    int n;
    bool cut;
    CHECK(ids);
    ids[max_len] = GUARD;
    cp_tokenize(tok, text, len, max_len, ids, &n, &cut);
    CHECK(ids[max_len] == GUARD && n >= 2 && n <= max_len && (!cut || n == max_len));
    CHECK((size_t)n <= len + 2);
    CHECK(ids[0] == cp_vocab_special(tok->vocab, CP_CLS));
    CHECK(ids[n - 1] == cp_vocab_special(tok->vocab, CP_SEP));
    for (int i = 1; i < n - 1; i++) {
        CHECK(ids[i] >= 0 && ids[i] < cp_vocab_size(tok->vocab));
        CHECK(ids[i] == cp_vocab_special(tok->vocab, CP_UNK) ||
              !cp_vocab_is_special(tok->vocab, ids[i]));
    }
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cp_vocab *fixed;
    static const char FIXED[] =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n##a\n##b\n##ab\n[\n]\n"
        "sep\n##\xCC\x81\n\xE4\xB8\xAD\n";
    if (size < 2) {
        return 0;
    }
    if (!fixed) {
        CHECK(cp_vocab_parse("fixed", FIXED, sizeof FIXED - 1, &fixed) == CP_OK);
    }
    const char *text = (const char *)data + 2;
    size_t len = size - 2;
    struct cp_tokenizer tok = {
        .vocab = fixed,
        .lower = data[0] & 1,
        .max_word = 1 + (data[0] >> 1) * 4,
    };
    int max_len = 2 + data[1];
    CHECK(cp_tokenizer_check(&tok, max_len) == CP_OK);
    check_encoding(&tok, text, len, max_len);
    struct cp_vocab *learned;
    if (cp_wordpiece_train(&text, &len, 1, tok.lower, 7 + data[1], &learned) == CP_OK) {
        CHECK(cp_vocab_size(learned) <= 7 + data[1]);
        tok.vocab = learned;
        check_encoding(&tok, text, len, max_len);
        cp_vocab_free(learned);
    }
    return 0;
}
