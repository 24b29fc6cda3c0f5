/* folder: data */
/* First byte: format and options; the rest: a file. What is read must keep its promises, and what
 * is written as .tsv must be read back the same. */
#include "data/dataset.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void check_dataset(const struct cp_dataset *ds)
{
    CHECK(ds->n >= 1 && ds->n_classes >= 0);
    for (int64_t i = 0; i < ds->n; i++) {
        CHECK(ds->label[i] == CP_LABEL_IGNORE ||
              (ds->label[i] >= 0 && ds->label[i] < ds->n_classes));
        CHECK(ds->text[i][ds->len[i]] == 0);
        CHECK(i == 0 || ds->text[i] == ds->text[i - 1] + ds->len[i - 1] + 1);
    }
    for (int32_t i = 0; i < ds->n_classes; i++) {
        CHECK(ds->class_name[i][0] != 0);
    }
}

static void check_round_trip(const struct cp_dataset *ds)
{
    struct cp_dataset again;
    struct cp_dataset_options opt = {
        .class_names = (const char *const *)ds->class_name,
        .n_classes = ds->n_classes,
    };
    char path[64];
    snprintf(path, sizeof path, "/tmp/collapipe-fuzz-%d.tsv", (int)getpid());
    CHECK(cp_dataset_write_tsv(ds, path) == CP_OK);
    cp_err err = cp_dataset_read(path, &opt, &again);
    unlink(path);
    CHECK(err == CP_OK);
    CHECK(again.n == ds->n);
    for (int64_t i = 0; i < ds->n; i++) {
        CHECK(again.len[i] == ds->len[i] && again.label[i] == ds->label[i]);
        CHECK(memcmp(again.text[i], ds->text[i], ds->len[i]) == 0);
    }
    cp_dataset_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const NAMES[] = {"a", "b", "c"};
    if (size < 1) {
        return 0;
    }
    uint8_t how = data[0];
    struct cp_dataset_options opt = {
        .labels_required = how & 4,
        .strict_utf8 = how & 8,
        .raw_quotes = how & 16,
        .n_classes = how & 32 ? 3 : 0,
        .class_names = (how & 96) == 96 ? NAMES : NULL,
    };
    struct cp_dataset ds;
    enum cp_dataset_format format = (enum cp_dataset_format)((how & 3) % 3);
    if (cp_dataset_parse("fuzz", format, (const char *)data + 1, size - 1, &opt, &ds) == CP_OK) {
        check_dataset(&ds);
        if (how & 128 && ds.n_classes > 0) {
            check_round_trip(&ds);
        }
        cp_dataset_fini(&ds);
    }
    return 0;
}
