/*
 * Pair counts are kept up to date instead of being recounted: merging a pair touches only the words
 * that contain it, which a list per pair remembers, so all merges together cost about (different
 * words x their length), not (vocabulary x corpus). In a touched word every pair is first
 * subtracted, then the merge done, then every pair added again: longer than patching neighbours,
 * but right also for "aaa".
 *
 * The heap may hold outdated entries. Its invariant: every pair with a count c > 0 has an entry
 * with a count >= c. Counts that fall leave their entry too high; it is corrected when popped.
 * Counts rise only for pairs of the piece just made, and these are pushed after the merge.
 */
#include "data/wptrain.h"

#include "base/str.h"
#include "data/bag.h"
#include "data/grow.h"
#include "data/utf8.h"
#include "data/words.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ALPHABET = 1000, MAX_WORD = 100, MIN_COUNT = 2 };

struct pair {
    uint64_t key; /* left piece << 32 | right piece; 0: free slot (piece 0 is [PAD]) */
    int64_t count;
    int32_t words;  /* newest link of the list of words that have or had this pair; -1: none */
    int32_t pushed; /* the last merge that pushed this pair into the heap */
};

struct link {
    int32_t word, next;
};

struct entry {
    int64_t count;
    uint64_t key;
};

struct word {
    int64_t count;
    size_t at; /* into symbol */
    int32_t len;
};

struct trainer {
    struct cp_bag seen; /* the words and how often each occurs */
    cp_err err;         /* the first failure inside a callback */

    struct cp_bag piece; /* token of each piece; its number is the id */

    struct word *word;
    int32_t *symbol; /* pieces of all words */
    int32_t n_words;
    size_t n_symbols;

    struct pair *pair; /* open hash table */
    size_t n_pairs, pair_mask;
    struct link *link;
    size_t n_links, cap_links;
    struct entry *heap;
    size_t n_heap, cap_heap;
};

static void trainer_fini(struct trainer *t)
{
    cp_bag_fini(&t->seen);
    cp_bag_fini(&t->piece);
    cp_mem_free(t->word);
    cp_mem_free(t->symbol);
    cp_mem_free(t->pair);
    cp_mem_free(t->link);
    cp_mem_free(t->heap);
}

/* ---- characters ---- */

struct letter {
    int32_t c;
    int64_t count;
};

static int by_point(const void *a, const void *b)
{
    int32_t x = ((const struct letter *)a)->c, y = ((const struct letter *)b)->c;
    return (x > y) - (x < y);
}

static int by_count(const void *a, const void *b)
{
    int64_t x = ((const struct letter *)a)->count, y = ((const struct letter *)b)->count;
    return x != y ? (x < y) - (x > y) : by_point(a, b);
}

/* Sums equal characters of a sorted list; returns how many are left. */
static size_t fold_letters(struct letter *l, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && l[kept - 1].c == l[i].c) {
            l[kept - 1].count += l[i].count;
        } else {
            l[kept++] = l[i];
        }
    }
    return kept;
}

/* The alphabet, most frequent characters first cut to limit, then by code point. */
static cp_err find_alphabet(const struct cp_bag *seen, size_t limit, struct letter **out,
                            size_t *n_out)
{
    struct letter *l = NULL;
    size_t n = 0;
    CP_TRY(cp_mem_array(NULL, seen->n_bytes, sizeof *l, &l));
    for (int32_t k = 0; k < seen->n; k++) {
        const char *p = seen->bytes + seen->start[k], *end = seen->bytes + seen->start[k + 1];
        while (p < end) {
            l[n++] = (struct letter){cp_utf8_next(&p, end), seen->count[k]};
        }
    }
    qsort(l, n, sizeof *l, by_point);
    n = fold_letters(l, n);
    qsort(l, n, sizeof *l, by_count);
    n = n < limit ? n : limit;
    qsort(l, n, sizeof *l, by_point);
    *out = l;
    *n_out = n;
    return CP_OK;
}

/* ---- pieces ---- */

static cp_err add_first_pieces(struct trainer *t, const struct letter *l, size_t n)
{
    static const char *const SPECIAL[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    int32_t id;
    for (size_t i = 0; i < sizeof SPECIAL / sizeof *SPECIAL; i++) {
        CP_TRY(cp_bag_put(&t->piece, SPECIAL[i], strlen(SPECIAL[i]), &id));
    }
    for (size_t i = 0; i < n; i++) {
        char token[2 + CP_UTF8_MAX] = "##";
        size_t len = cp_utf8_put(l[i].c, token + 2);
        CP_TRY(cp_bag_put(&t->piece, token + 2, len, &id));
        CP_TRY(cp_bag_put(&t->piece, token, len + 2, &id));
    }
    return CP_OK;
}

/* Id of the piece left + right, made if it is new; *id is its place, so it may be an old one. */
static cp_err join_pieces(struct trainer *t, int32_t left, int32_t right, int32_t *id)
{
    char token[2 + MAX_WORD * CP_UTF8_MAX];
    size_t n_left, n_right;
    const char *p = cp_bag_get(&t->piece, left, &n_left);
    memcpy(token, p, n_left);
    p = cp_bag_get(&t->piece, right, &n_right) + 2; /* the right one always begins with "##" */
    n_right -= 2;
    memcpy(token + n_left, p, n_right);
    return cp_bag_put(&t->piece, token, n_left + n_right, id);
}

/* ---- words as pieces ---- */

/* Index of c in the alphabet, -1: not in it. */
static int32_t letter_index(const struct letter *l, size_t n, int32_t c)
{
    struct letter key = {.c = c};
    const struct letter *hit = bsearch(&key, l, n, sizeof *l, by_point);
    return hit ? (int32_t)(hit - l) : -1;
}

static cp_err make_words(struct trainer *t, const struct letter *l, size_t n)
{
    enum { FIRST = 5 }; /* pieces: 5 specials, then "c" and "##c" of each letter */
    CP_TRY(cp_mem_array(NULL, (size_t)t->seen.n, sizeof *t->word, &t->word));
    CP_TRY(cp_mem_array(NULL, t->seen.n_bytes, sizeof *t->symbol, &t->symbol));
    for (int32_t k = 0; k < t->seen.n; k++) {
        const char *p = t->seen.bytes + t->seen.start[k];
        const char *end = t->seen.bytes + t->seen.start[k + 1];
        struct word w = {.count = t->seen.count[k], .at = t->n_symbols};
        bool known = true;
        while (p < end && known) {
            int32_t i = letter_index(l, n, cp_utf8_next(&p, end));
            known = i >= 0;
            t->symbol[w.at + (size_t)w.len] = FIRST + 2 * i + (w.len > 0);
            w.len++;
        }
        if (known && w.len > 1) {
            t->n_symbols += (size_t)w.len;
            t->word[t->n_words++] = w;
        }
    }
    return CP_OK;
}

/* ---- pairs ---- */

static struct pair *pair_slot(const struct trainer *t, uint64_t key)
{
    uint64_t i = key * UINT64_C(0x9E3779B97F4A7C15) >> 24;
    while (t->pair[i & t->pair_mask].key != 0 && t->pair[i & t->pair_mask].key != key) {
        i++;
    }
    return &t->pair[i & t->pair_mask];
}

static cp_err widen_pairs(struct trainer *t)
{
    size_t slots = t->pair ? 2 * (t->pair_mask + 1) : 1024, old_slots = t->pair_mask + 1;
    struct pair *fresh = NULL, *old = t->pair;
    CP_TRY(cp_mem_array(NULL, slots, sizeof *fresh, &fresh));
    t->pair = fresh;
    t->pair_mask = slots - 1;
    for (size_t i = 0; old && i < old_slots; i++) {
        if (old[i].key) {
            *pair_slot(t, old[i].key) = old[i];
        }
    }
    cp_mem_free(old);
    return CP_OK;
}

/* The pair of a key, made if it is new. Pointers to pairs live until the next call. */
static cp_err pair_make(struct trainer *t, uint64_t key, struct pair **out)
{
    if (!t->pair || 2 * (t->n_pairs + 1) > t->pair_mask) {
        CP_TRY(widen_pairs(t));
    }
    struct pair *p = pair_slot(t, key);
    if (!p->key) {
        *p = (struct pair){.key = key, .words = -1, .pushed = -1};
        t->n_pairs++;
    }
    *out = p;
    return CP_OK;
}

static uint64_t pair_key(const int32_t *symbol)
{
    return (uint64_t)symbol[0] << 32 | (uint32_t)symbol[1];
}

static bool key_has(uint64_t key, int32_t piece)
{
    return (int32_t)(key >> 32) == piece || (int32_t)key == piece;
}

/* Adds the pairs of word k to the counts. Pairs with the piece fresh (or all, if it is -1) learn
 * that they are in k; the others know. */
static cp_err add_pairs(struct trainer *t, int32_t k, int32_t fresh)
{
    const struct word *w = &t->word[k];
    for (int32_t i = 0; i + 1 < w->len; i++) {
        struct pair *p = NULL;
        CP_TRY(pair_make(t, pair_key(t->symbol + w->at + i), &p));
        p->count += w->count;
        bool listed = p->words >= 0 && t->link[p->words].word == k;
        if (!listed && (fresh < 0 || key_has(p->key, fresh))) {
            if (t->n_links == INT32_MAX) {
                return cp_fail(CP_E_DATA, "the texts have too many different words to learn from");
            }
            CP_TRY(cp_grow(&t->link, &t->cap_links, t->n_links, t->n_links + 1, sizeof *t->link));
            t->link[t->n_links] = (struct link){k, p->words};
            p->words = (int32_t)t->n_links++;
        }
    }
    return CP_OK;
}

static void subtract_pairs(struct trainer *t, const struct word *w)
{
    for (int32_t i = 0; i + 1 < w->len; i++) {
        pair_slot(t, pair_key(t->symbol + w->at + i))->count -= w->count;
    }
}

/* ---- the heap: largest count first, then the pieces in byte order ---- */

static int piece_compare(const struct trainer *t, int32_t a, int32_t b)
{
    size_t n, m;
    const char *x = cp_bag_get(&t->piece, a, &n), *y = cp_bag_get(&t->piece, b, &m);
    int c = memcmp(x, y, n < m ? n : m);
    return c ? c : (n > m) - (n < m);
}

static bool comes_first(const struct trainer *t, const struct entry *a, const struct entry *b)
{
    if (a->count != b->count) {
        return a->count > b->count;
    }
    int c = piece_compare(t, (int32_t)(a->key >> 32), (int32_t)(b->key >> 32));
    return (c ? c : piece_compare(t, (int32_t)a->key, (int32_t)b->key)) < 0;
}

static cp_err heap_push(struct trainer *t, struct entry e)
{
    CP_TRY(cp_grow(&t->heap, &t->cap_heap, t->n_heap, t->n_heap + 1, sizeof *t->heap));
    size_t i = t->n_heap++;
    while (i > 0 && comes_first(t, &e, &t->heap[(i - 1) / 2])) {
        t->heap[i] = t->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    t->heap[i] = e;
    return CP_OK;
}

static struct entry heap_pop(struct trainer *t)
{
    struct entry top = t->heap[0], e = t->heap[--t->n_heap];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= t->n_heap) {
            break;
        }
        k += k + 1 < t->n_heap && comes_first(t, &t->heap[k + 1], &t->heap[k]);
        if (!comes_first(t, &t->heap[k], &e)) {
            break;
        }
        t->heap[i] = t->heap[k];
        i = k;
    }
    t->heap[i] = e;
    return top;
}

/* ---- merging ---- */

/* Replaces the pair by made everywhere in w, from the left. */
static void merge_in_word(struct trainer *t, struct word *w, uint64_t key, int32_t made)
{
    int32_t *s = t->symbol + w->at, n = 0;
    for (int32_t i = 0; i < w->len; n++) {
        bool hit = i + 1 < w->len && pair_key(s + i) == key;
        s[n] = hit ? made : s[i];
        i += 1 + hit;
    }
    w->len = n;
}

static bool word_has(const struct trainer *t, const struct word *w, uint64_t key)
{
    for (int32_t i = 0; i + 1 < w->len; i++) {
        if (pair_key(t->symbol + w->at + i) == key) {
            return true;
        }
    }
    return false;
}

/* Pushes the pairs of w that contain the piece made, each once per merge. */
static cp_err push_made(struct trainer *t, const struct word *w, int32_t made, int32_t merge)
{
    for (int32_t i = 0; i + 1 < w->len; i++) {
        struct pair *p = pair_slot(t, pair_key(t->symbol + w->at + i));
        if (key_has(p->key, made) && p->pushed != merge) {
            p->pushed = merge;
            CP_TRY(heap_push(t, (struct entry){p->count, p->key}));
        }
    }
    return CP_OK;
}

static cp_err merge_pair(struct trainer *t, uint64_t key, int32_t merge)
{
    int32_t made;
    CP_TRY(join_pieces(t, (int32_t)(key >> 32), (int32_t)key, &made));
    int32_t first = pair_slot(t, key)->words;
    for (int32_t at = first; at >= 0; at = t->link[at].next) {
        int32_t k = t->link[at].word;
        if (word_has(t, &t->word[k], key)) {
            subtract_pairs(t, &t->word[k]);
            merge_in_word(t, &t->word[k], key, made);
            CP_TRY(add_pairs(t, k, made));
        }
    }
    for (int32_t at = first; at >= 0; at = t->link[at].next) {
        CP_TRY(push_made(t, &t->word[t->link[at].word], made, merge));
    }
    return CP_OK;
}

static cp_err merge_all(struct trainer *t, int32_t vocab_size)
{
    for (int32_t k = 0; k < t->n_words; k++) {
        CP_TRY(add_pairs(t, k, -1));
    }
    for (size_t i = 0; t->pair && i <= t->pair_mask; i++) {
        if (t->pair[i].key) {
            CP_TRY(heap_push(t, (struct entry){t->pair[i].count, t->pair[i].key}));
        }
    }
    for (int32_t merge = 0; t->piece.n < vocab_size && t->n_heap > 0; merge++) {
        struct entry e = heap_pop(t);
        int64_t count = pair_slot(t, e.key)->count;
        if (count < MIN_COUNT) {
            continue;
        }
        if (count != e.count) {
            CP_TRY(heap_push(t, (struct entry){count, e.key}));
            continue;
        }
        CP_TRY(merge_pair(t, e.key, merge));
    }
    return CP_OK;
}

/* ---- the whole ---- */

static bool count_word(void *arg, const char *w, size_t len, bool too_long)
{
    struct trainer *t = arg;
    int32_t k;
    if (!too_long) {
        t->err = cp_bag_put(&t->seen, w, len, &k);
        if (t->err == CP_OK) {
            t->seen.count[k]++;
        }
    }
    return t->err == CP_OK;
}

static cp_err learn(struct trainer *t, int32_t vocab_size)
{
    struct letter *l = NULL;
    size_t n = 0, limit = (size_t)(vocab_size - 5) / 2;
    CP_TRY(find_alphabet(&t->seen, limit < MAX_ALPHABET ? limit : MAX_ALPHABET, &l, &n));
    cp_err err = add_first_pieces(t, l, n);
    if (!err) {
        err = make_words(t, l, n);
    }
    cp_mem_free(l);
    return err ? err : merge_all(t, vocab_size);
}

static cp_err make_vocab(const struct trainer *t, struct cp_vocab **out)
{
    struct cp_str text = {0};
    for (int32_t id = 0; id < t->piece.n; id++) {
        size_t len;
        const char *p = cp_bag_get(&t->piece, id, &len);
        cp_str_add(&text, p, len);
        cp_str_add(&text, "\n", 1);
    }
    cp_err err = cp_str_check(&text);
    if (!err) {
        err = cp_vocab_parse("the learned vocabulary", cp_str_text(&text), text.len, out);
    }
    cp_str_fini(&text);
    return err;
}

cp_err cp_wordpiece_train(const char *const *text, const size_t *len, int64_t n, bool lower,
                          int32_t vocab_size, struct cp_vocab **out)
{
    if (vocab_size < 7) {
        return cp_fail(CP_E_CONFIG,
                       "a vocabulary of %d pieces is too small: 5 special tokens and one "
                       "character, in two forms, need 7",
                       vocab_size);
    }
    struct trainer t = {0};
    cp_err err;
    CP_TRY_GOTO(err, cp_bag_init(&t.seen), done);
    CP_TRY_GOTO(err, cp_bag_init(&t.piece), done);
    for (int64_t i = 0; i < n; i++) {
        cp_words_each(text[i], len[i], lower, MAX_WORD, count_word, &t);
        CP_TRY_GOTO(err, t.err, done);
    }
    if (t.seen.n == 0) {
        err = cp_fail(CP_E_DATA, "the %lld texts to learn a vocabulary from hold no word",
                      (long long)n);
        goto done;
    }
    CP_TRY_GOTO(err, learn(&t, vocab_size), done);
    err = make_vocab(&t, out);
done:
    trainer_fini(&t);
    return err;
}
