#include "data/wordnet.h"

#include "base/str.h"
#include "data/build.h"
#include "data/utf8.h"

#include <string.h>

enum { MAX_BYTES = 256 << 20, FIRST_FILE = 4, FILES = 25 };

static const char *const NAME_25[FILES] = {
    "act",    "animal",     "artifact",  "attribute",  "body",     "cognition", "communication",
    "event",  "feeling",    "food",      "group",      "location", "motive",    "object",
    "person", "phenomenon", "plant",     "possession", "process",  "quantity",  "relation",
    "shape",  "state",      "substance", "time",
};

static const char *const NAME_8[] = {"artifact",      "person",   "plant",     "animal",
                                     "communication", "location", "substance", "food"};

struct classes {
    const char *const *name;
    int32_t n;
};

/* Class of a lexicographer file, -1: not in the set. */
static int32_t class_of(const struct classes *set, int file)
{
    if (file < FIRST_FILE || file >= FIRST_FILE + FILES) {
        return -1;
    }
    for (int32_t i = 0; i < set->n; i++) {
        if (strcmp(set->name[i], NAME_25[file - FIRST_FILE]) == 0) {
            return i;
        }
    }
    return -1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "OOOOOOOO FF n ... | gloss": the file number and the gloss; false if the line is not so. */
static bool split_line(const char *p, const char *stop, int *file, const char **gloss)
{
    enum { OFFSET = 8 };
    if (stop - p < OFFSET + 4 || p[OFFSET] != ' ' || !is_digit(p[OFFSET + 1]) ||
        !is_digit(p[OFFSET + 2]) || p[OFFSET + 3] != ' ') {
        return false;
    }
    *file = (p[OFFSET + 1] - '0') * 10 + (p[OFFSET + 2] - '0');
    const char *bar = memmem(p, (size_t)(stop - p), " | ", 3);
    *gloss = bar ? bar + 3 : NULL;
    return bar != NULL;
}

static cp_err add_gloss(struct cp_build *b, const char *p, const char *stop, int32_t class,
                        struct cp_str *utf8)
{
    while (stop > p && (stop[-1] == ' ' || stop[-1] == '\r')) {
        stop--;
    }
    cp_str_clear(utf8);
    for (; p < stop; p++) {
        char bytes[CP_UTF8_MAX];
        cp_str_add(utf8, bytes, cp_utf8_put((unsigned char)*p, bytes));
    }
    CP_TRY(cp_str_check(utf8));
    return cp_build_add(b, cp_str_text(utf8), utf8->len, class);
}

static cp_err read_lines(const char *path, const struct cp_str *file, const struct classes *set,
                         struct cp_build *b, struct cp_str *utf8)
{
    int64_t line = 0;
    for (const char *p = cp_str_text(file), *end = p + file->len; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p)), *gloss;
        const char *next = stop ? stop + 1 : end;
        int number;
        stop = stop ? stop : end;
        line++;
        if (*p != ' ') {
            if (!split_line(p, stop, &number, &gloss)) {
                return cp_fail(CP_E_DATA, "%s: line %lld is not a synset of a WordNet data file",
                               path, (long long)line);
            }
            int32_t class = class_of(set, number);
            if (class >= 0) {
                CP_TRY(add_gloss(b, gloss, stop, class, utf8));
            }
        }
        p = next;
    }
    return b->n > 0 ? CP_OK : cp_fail(CP_E_DATA, "%s: 0 samples in the file", path);
}

cp_err cp_wordnet_read(const char *path, enum cp_wordnet_classes set, struct cp_dataset *out)
{
    struct classes classes = {NAME_8, sizeof NAME_8 / sizeof *NAME_8};
    if (set == CP_WORDNET_25) {
        classes = (struct classes){NAME_25, FILES};
    }
    struct cp_str file = {0}, utf8 = {0};
    struct cp_build b = {0};
    cp_err err = cp_file_read(path, MAX_BYTES, &file);
    if (err == CP_E_IO) {
        err = cp_fail_in(err, "WordNet (Debian package wordnet-base)");
    }
    if (!err) {
        err = read_lines(path, &file, &classes, &b, &utf8);
    }
    if (!err) {
        err = cp_build_finish(&b, classes.name, classes.n, out);
    }
    cp_build_fini(&b);
    cp_str_fini(&utf8);
    cp_str_fini(&file);
    return err;
}
