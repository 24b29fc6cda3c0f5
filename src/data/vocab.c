/*
 * One structure answers both questions, "which id has this token" and "which is the longest token
 * here": a trie over bytes, its edges in one open hash table. An edge is a single word, (parent
 * node, byte) -> child node. The longest match walks down while there is an edge, so a position
 * costs the length of the longest common beginning, never the length of the word: hashing every
 * substring would make a long word quadratic.
 */
#include "data/vocab.h"

#include "base/mem.h"
#include "base/str.h"
#include "data/utf8.h"

#include <assert.h>
#include <string.h>

enum { MAX_BYTES = 16 << 20, NODE_BITS = 28 };
_Static_assert(MAX_BYTES < 1 << NODE_BITS, "every byte of the file may need a node");

static const char *const SPECIAL[CP_SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

struct cp_vocab {
    int32_t size;
    int32_t special[CP_SPECIALS];
    uint32_t inside;    /* node of "##"; 0 if no token begins so */
    char *bytes;        /* all tokens, each followed by a zero byte */
    const char **token; /* [size] into bytes */
    uint64_t *edge;     /* [mask + 1] parent 28 bits, byte 8 bits, child 28 bits; 0: free */
    uint64_t mask;
    int32_t *node_id; /* [nodes] id of the token that ends here, -1: none */
    uint32_t nodes;   /* node 0 is the root and nobody's child */
};

static uint64_t *edge_slot(const struct cp_vocab *v, uint32_t parent, unsigned char byte)
{
    uint64_t key = (uint64_t)parent << 8 | byte;
    uint64_t i = key * UINT64_C(0x9E3779B97F4A7C15) >> 20;
    while (v->edge[i & v->mask] != 0 && v->edge[i & v->mask] >> NODE_BITS != key) {
        i++;
    }
    return &v->edge[i & v->mask];
}

/* 0 if there is no such edge. */
static uint32_t child(const struct cp_vocab *v, uint32_t parent, unsigned char byte)
{
    return (uint32_t)(*edge_slot(v, parent, byte) & ((1u << NODE_BITS) - 1));
}

static uint32_t child_make(struct cp_vocab *v, uint32_t parent, unsigned char byte)
{
    uint64_t *slot = edge_slot(v, parent, byte);
    if (*slot == 0) {
        *slot = ((uint64_t)parent << 8 | byte) << NODE_BITS | v->nodes;
        v->node_id[v->nodes++] = -1;
    }
    return (uint32_t)(*slot & ((1u << NODE_BITS) - 1));
}

int32_t cp_vocab_find(const struct cp_vocab *v, const char *token, size_t len)
{
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        node = child(v, node, (unsigned char)token[i]);
        if (node == 0) {
            return -1;
        }
    }
    return v->node_id[node];
}

int32_t cp_vocab_longest(const struct cp_vocab *v, bool inside, const char *text, size_t len,
                         size_t *used)
{
    uint32_t node = inside ? v->inside : 0;
    int32_t best = -1;
    if (inside && node == 0) {
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        node = child(v, node, (unsigned char)text[i]);
        if (node == 0) {
            break;
        }
        if (v->node_id[node] >= 0) {
            best = v->node_id[node];
            *used = i + 1;
        }
    }
    return best;
}

/* Takes the token of one line into the trie as the next id. */
static cp_err add_token(struct cp_vocab *v, const char *name, const char *line, size_t len)
{
    int32_t number = v->size + 1;
    char shown[CP_SHOWN_SIZE];
    if (len == 0) {
        return cp_fail(CP_E_DATA, "%s: line %d is empty; every line must hold one token", name,
                       number);
    }
    if (memchr(line, 0, len) || cp_utf8_find_bad(line, len)) {
        return cp_fail(CP_E_DATA, "%s: line %d is not UTF-8 text: '%s'", name, number,
                       cp_utf8_show(line, len, shown));
    }
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        node = child_make(v, node, (unsigned char)line[i]);
    }
    if (v->node_id[node] >= 0) {
        return cp_fail(CP_E_DATA, "%s: line %d repeats the token '%s' of line %d; remove one", name,
                       number, cp_utf8_show(line, len, shown), v->node_id[node] + 1);
    }
    v->node_id[node] = v->size++;
    return CP_OK;
}

static size_t count_lines(const char *bytes, size_t n)
{
    size_t lines = n > 0 && bytes[n - 1] != '\n';
    for (size_t i = 0; i < n; i++) {
        lines += bytes[i] == '\n';
    }
    return lines;
}

static cp_err add_lines(struct cp_vocab *v, const char *name, const char *bytes, size_t n)
{
    char *out = v->bytes;
    for (const char *p = bytes, *end = bytes + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        const char *next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        stop -= stop > p && stop[-1] == '\r';
        size_t len = (size_t)(stop - p);
        CP_TRY(add_token(v, name, p, len));
        memcpy(out, p, len); /* the zero byte is there: the memory came zeroed */
        v->token[v->size - 1] = out;
        out += len + 1;
        p = next;
    }
    return CP_OK;
}

static cp_err find_specials(struct cp_vocab *v, const char *name)
{
    for (int s = 0; s < CP_SPECIALS; s++) {
        v->special[s] = cp_vocab_find(v, SPECIAL[s], strlen(SPECIAL[s]));
        if (v->special[s] < 0 && s != CP_MASK) {
            return cp_fail(
                CP_E_DATA,
                "%s: the token %s is missing; a vocabulary needs [PAD] [UNK] [CLS] [SEP]", name,
                SPECIAL[s]);
        }
    }
    v->inside = child(v, 0, '#');
    v->inside = v->inside ? child(v, v->inside, '#') : 0;
    return CP_OK;
}

cp_err cp_vocab_parse(const char *name, const char *bytes, size_t n, struct cp_vocab **out)
{
    if (n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) {
        bytes += 3;
        n -= 3;
    }
    if (n > MAX_BYTES) {
        return cp_fail(CP_E_DATA, "%s is larger than the limit of %d bytes", name, MAX_BYTES);
    }
    size_t lines = count_lines(bytes, n), slots = 16;
    while (slots < 2 * (n + 1)) {
        slots *= 2;
    }
    struct cp_vocab *v = NULL;
    CP_TRY(cp_mem_new(NULL, sizeof *v, &v));
    v->mask = slots - 1;
    cp_err err;
    CP_TRY_GOTO(err, cp_mem_new(NULL, n + lines + 1, &v->bytes), failed);
    CP_TRY_GOTO(err, cp_mem_array(NULL, lines, sizeof *v->token, &v->token), failed);
    CP_TRY_GOTO(err, cp_mem_array(NULL, slots, sizeof *v->edge, &v->edge), failed);
    CP_TRY_GOTO(err, cp_mem_array(NULL, n + 1, sizeof *v->node_id, &v->node_id), failed);
    v->node_id[v->nodes++] = -1;
    CP_TRY_GOTO(err, add_lines(v, name, bytes, n), failed);
    CP_TRY_GOTO(err, find_specials(v, name), failed);
    *out = v;
    return CP_OK;
failed:
    cp_vocab_free(v);
    return err;
}

cp_err cp_vocab_load(const char *path, struct cp_vocab **out)
{
    struct cp_str file = {0};
    cp_err err = cp_file_read(path, MAX_BYTES, &file);
    if (!err) {
        err = cp_vocab_parse(path, cp_str_text(&file), file.len, out);
    }
    cp_str_fini(&file);
    return err;
}

cp_err cp_vocab_save(const struct cp_vocab *v, const char *path)
{
    struct cp_str text = {0};
    for (int32_t i = 0; i < v->size; i++) {
        cp_str_puts(&text, v->token[i]);
        cp_str_add(&text, "\n", 1);
    }
    cp_err err = cp_str_check(&text);
    if (!err) {
        err = cp_file_write(path, cp_str_text(&text), text.len);
    }
    cp_str_fini(&text);
    return err;
}

void cp_vocab_free(struct cp_vocab *v)
{
    if (v) {
        cp_mem_free(v->bytes);
        cp_mem_free(v->token);
        cp_mem_free(v->edge);
        cp_mem_free(v->node_id);
        cp_mem_free(v);
    }
}

int32_t cp_vocab_size(const struct cp_vocab *v)
{
    return v->size;
}

const char *cp_vocab_token(const struct cp_vocab *v, int32_t id)
{
    assert(id >= 0 && id < v->size);
    return v->token[id];
}

int32_t cp_vocab_special(const struct cp_vocab *v, enum cp_special which)
{
    return v->special[which];
}

bool cp_vocab_is_special(const struct cp_vocab *v, int32_t id)
{
    for (int s = 0; s < CP_SPECIALS; s++) {
        if (id >= 0 && v->special[s] == id) {
            return true;
        }
    }
    return false;
}
