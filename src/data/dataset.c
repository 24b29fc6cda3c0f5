#include "data/dataset.h"

#include "base/mem.h"
#include "base/str.h"
#include "data/hash.h"
#include "data/readers.h"
#include "data/utf8.h"

#include <string.h>
#include <strings.h>

static const size_t MAX_BYTES = (size_t)1 << 32;

const char *cp_text_column(const struct cp_dataset_options *opt)
{
    return opt->text_column ? opt->text_column : "text";
}

const char *cp_label_column(const struct cp_dataset_options *opt)
{
    return opt->label_column ? opt->label_column : "label";
}

static cp_err find_format(const char *path, enum cp_dataset_format *out)
{
    static const struct {
        const char *suffix;
        enum cp_dataset_format format;
    } FORMATS[] = {
        {".tsv", CP_FORMAT_TSV},
        {".csv", CP_FORMAT_CSV},
        {".jsonl", CP_FORMAT_JSONL},
    };
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        size_t k = strlen(FORMATS[i].suffix);
        if (n > k && strcasecmp(path + n - k, FORMATS[i].suffix) == 0) {
            *out = FORMATS[i].format;
            return CP_OK;
        }
    }
    return cp_fail(CP_E_DATA,
                   "%s: the format is not known by the suffix; name it .tsv, .csv or "
                   ".jsonl",
                   path);
}

static cp_err check_utf8(const char *name, const char *bytes, size_t n)
{
    const char *bad = cp_utf8_find_bad(bytes, n);
    if (!bad) {
        return CP_OK;
    }
    long long line = 1;
    const char *begin = bytes;
    for (const char *p = bytes; p < bad; p++) {
        if (*p == '\n') {
            line++;
            begin = p + 1;
        }
    }
    return cp_fail(CP_E_DATA,
                   "%s: line %lld: byte %lld (0x%02X) is not valid UTF-8; convert the "
                   "file to UTF-8",
                   name, line, (long long)(bad - begin) + 1, (unsigned char)*bad);
}

/* Samples with preliminary classes from valid UTF-8. */
static cp_err read_format(const char *name, enum cp_dataset_format format, struct cp_str *text,
                          const struct cp_dataset_options *opt, struct cp_labels *labels,
                          struct cp_build *out)
{
    switch (format) {
    case CP_FORMAT_TSV:
        return cp_table_read(name, text->p, text->len, '\t', opt, labels, out);
    case CP_FORMAT_CSV:
        return cp_table_read(name, text->p, text->len, 0, opt, labels, out);
    case CP_FORMAT_JSONL:
        return cp_jsonl_read(name, text->p, text->len, opt, labels, out);
    }
    return cp_fail(CP_E_DATA, "%s: unknown format %d", name, (int)format);
}

/* Frees nothing of what it is given. */
static cp_err parse_with(const char *name, enum cp_dataset_format format, struct cp_str *text,
                         const struct cp_dataset_options *opt, struct cp_labels *labels,
                         struct cp_build *build, struct cp_dataset *ds)
{
    const char **names = NULL;
    int32_t n_classes = 0;
    CP_TRY(cp_labels_init(labels, opt));
    CP_TRY(read_format(name, format, text, opt, labels, build));
    if (build->n == 0) {
        return cp_fail(CP_E_DATA, "%s: 0 samples in the file", name);
    }
    CP_TRY(cp_labels_finish(labels, name, build->label, build->n, &names, &n_classes));
    cp_err err = cp_build_finish(build, names, n_classes, ds);
    cp_mem_free(names);
    return err;
}

cp_err cp_dataset_parse(const char *name, enum cp_dataset_format format, const char *bytes,
                        size_t n, const struct cp_dataset_options *opt, struct cp_dataset *ds)
{
    if (n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) {
        bytes += 3;
        n -= 3;
    }
    if (opt->strict_utf8) {
        CP_TRY(check_utf8(name, bytes, n));
    }
    struct cp_build build = {0};
    struct cp_str text = {0};
    struct cp_labels *labels = NULL;
    cp_err err = cp_mem_new(NULL, sizeof *labels, &labels);
    if (err) {
        return err;
    }
    cp_str_add(&text, "", 0); /* so that text.p is not NULL */
    cp_utf8_repair(bytes, n, &text);
    err = cp_str_check(&text);
    if (!err) {
        err = parse_with(name, format, &text, opt, labels, &build, ds);
        cp_labels_fini(labels);
    }
    cp_build_fini(&build);
    cp_str_fini(&text);
    cp_mem_free(labels);
    return err;
}

cp_err cp_dataset_read(const char *path, const struct cp_dataset_options *opt,
                       struct cp_dataset *ds)
{
    enum cp_dataset_format format = CP_FORMAT_TSV;
    struct cp_str file = {0};
    CP_TRY(find_format(path, &format));
    cp_err err = cp_file_read(path, MAX_BYTES, &file);
    if (!err) {
        err = cp_dataset_parse(path, format, cp_str_text(&file), file.len, opt, ds);
    }
    cp_str_fini(&file);
    return err;
}

cp_err cp_dataset_split_hash(const struct cp_dataset *ds, int modulus, int which,
                             struct cp_dataset *train, struct cp_dataset *heldout)
{
    if (modulus < 2 || which < 0 || which >= modulus) {
        return cp_fail(CP_E_CONFIG,
                       "a split into part %d of %d is not possible; use at least 2 parts, counted "
                       "from 0",
                       which, modulus);
    }
    struct cp_build part[2] = {0};
    struct cp_dataset done[2] = {0};
    const char *const *names = (const char *const *)ds->class_name;
    cp_err err = CP_OK;
    for (int64_t i = 0; i < ds->n && !err; i++) {
        int side = cp_hash64(ds->text[i], ds->len[i]) % (uint64_t)modulus == (uint64_t)which;
        err = cp_build_add(&part[side], ds->text[i], ds->len[i], ds->label[i]);
    }
    for (int side = 0; side < 2 && !err; side++) {
        err = cp_build_finish(&part[side], names, ds->n_classes, &done[side]);
    }
    cp_build_fini(&part[0]);
    cp_build_fini(&part[1]);
    if (err) {
        cp_dataset_fini(&done[0]);
        cp_dataset_fini(&done[1]);
        return err;
    }
    *train = done[0];
    *heldout = done[1];
    return CP_OK;
}

static bool needs_quotes(const char *p, size_t len)
{
    return memchr(p, '"', len) || memchr(p, '\t', len) || memchr(p, '\n', len) ||
           memchr(p, '\r', len);
}

static void write_field(struct cp_str *out, const char *p, size_t len)
{
    if (!needs_quotes(p, len)) {
        cp_str_add(out, p, len);
        return;
    }
    cp_str_puts(out, "\"");
    for (const char *end = p + len; p < end;) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        const char *stop = quote ? quote + 1 : end;
        cp_str_add(out, p, (size_t)(stop - p));
        if (quote) {
            cp_str_puts(out, "\"");
        }
        p = stop;
    }
    cp_str_puts(out, "\"");
}

cp_err cp_dataset_write_tsv(const struct cp_dataset *ds, const char *path)
{
    struct cp_str out = {0};
    cp_str_puts(&out, "text\tlabel\n");
    for (int64_t i = 0; i < ds->n; i++) {
        const char *label = ds->label[i] < 0 ? "-100" : ds->class_name[ds->label[i]];
        write_field(&out, ds->text[i], ds->len[i]);
        cp_str_puts(&out, "\t");
        write_field(&out, label, strlen(label));
        cp_str_puts(&out, "\n");
    }
    cp_err err = cp_str_check(&out);
    if (!err) {
        err = cp_file_write(path, cp_str_text(&out), out.len);
    }
    cp_str_fini(&out);
    return err;
}
