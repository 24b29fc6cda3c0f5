/* folder: data */
/* Any bytes as vocab.txt: refused, or every id finds its token and the longest match is a match. */
#include "data/vocab.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cp_vocab *v;
    if (cp_vocab_parse("fuzz", (const char *)data, size, &v) != CP_OK) {
        return 0;
    }
    CHECK(cp_vocab_size(v) >= 4);
    for (int32_t i = 0; i < cp_vocab_size(v); i++) {
        const char *token = cp_vocab_token(v, i);
        size_t len = strlen(token), used = 0;
        CHECK(len > 0 && cp_vocab_find(v, token, len) == i);
        CHECK(cp_vocab_longest(v, false, token, len, &used) == i && used == len);
        if (len > 2 && memcmp(token, "##", 2) == 0) {
            CHECK(cp_vocab_longest(v, true, token + 2, len - 2, &used) == i && used == len - 2);
        }
    }
    for (int s = 0; s < CP_MASK; s++) {
        CHECK(cp_vocab_is_special(v, cp_vocab_special(v, (enum cp_special)s)));
    }
    cp_vocab_free(v);
    return 0;
}
