#include "data/build.h"

#include "data/grow.h"

#include <string.h>

cp_err cp_build_add(struct cp_build *b, const char *text, size_t len, int32_t label)
{
    size_t n = (size_t)b->n;
    CP_TRY(cp_grow(&b->bytes, &b->cap_bytes, b->n_bytes, b->n_bytes + len + 1, 1));
    CP_TRY(cp_grow(&b->end, &b->cap_end, n, n + 1, sizeof *b->end));
    CP_TRY(cp_grow(&b->label, &b->cap_label, n, n + 1, sizeof *b->label));
    if (len > 0) {
        memcpy(b->bytes + b->n_bytes, text, len);
    }
    b->end[n] = b->n_bytes + len;
    b->n_bytes += len + 1; /* the zero byte is there: new memory is zeroed */
    b->label[n] = label;
    b->n++;
    return CP_OK;
}

void cp_build_fini(struct cp_build *b)
{
    cp_mem_free(b->bytes);
    cp_mem_free(b->end);
    cp_mem_free(b->label);
    *b = (struct cp_build){0};
}

/* An array of names and the names themselves in one block. */
static cp_err copy_names(const char *const *name, int32_t n, char ***out)
{
    size_t bytes = (size_t)n * sizeof **out;
    for (int32_t i = 0; i < n; i++) {
        bytes += strlen(name[i]) + 1;
    }
    char **copy = NULL;
    CP_TRY(cp_mem_new(NULL, bytes, &copy));
    char *p = (char *)(copy + n);
    for (int32_t i = 0; i < n; i++) {
        copy[i] = p;
        size_t len = strlen(name[i]) + 1;
        memcpy(p, name[i], len);
        p += len;
    }
    *out = copy;
    return CP_OK;
}

cp_err cp_build_finish(struct cp_build *b, const char *const *class_name, int32_t n_classes,
                       struct cp_dataset *ds)
{
    struct cp_dataset d = {.n = b->n, .n_classes = n_classes};
    cp_err err;
    CP_TRY_GOTO(err, copy_names(class_name, n_classes, &d.class_name), failed);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)b->n, sizeof *d.text, &d.text), failed);
    CP_TRY_GOTO(err, cp_mem_array(NULL, (size_t)b->n, sizeof *d.len, &d.len), failed);
    size_t at = 0;
    for (int64_t i = 0; i < b->n; i++) {
        d.text[i] = b->bytes + at;
        d.len[i] = b->end[i] - at;
        at = b->end[i] + 1;
    }
    d.bytes = b->bytes;
    d.label = b->label;
    b->bytes = NULL;
    b->label = NULL;
    cp_build_fini(b);
    *ds = d;
    return CP_OK;
failed:
    cp_dataset_fini(&d);
    return err;
}

void cp_dataset_fini(struct cp_dataset *ds)
{
    cp_mem_free(ds->text);
    cp_mem_free(ds->len);
    cp_mem_free(ds->label);
    cp_mem_free(ds->class_name);
    cp_mem_free(ds->bytes);
    *ds = (struct cp_dataset){0};
}
