#include "data/readers.h"

#include "base/str.h"
#include "data/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static cp_err fail_key(const struct cp_place *at, const json_t *object, const char *name)
{
    struct cp_str list = {0};
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)object, key, value)
    {
        char shown[CP_SHOWN_SIZE];
        if (n < 20) {
            cp_str_printf(&list, "%s'%s'", n ? ", " : "", cp_utf8_show(key, strlen(key), shown));
        }
        n++;
    }
    cp_err err = cp_fail_at(at, "no key '%s'; the object has %s%s", name,
                            n ? cp_str_text(&list) : "none", n > 20 ? ", ..." : "");
    cp_str_fini(&list);
    return err;
}

static cp_err map_label(struct cp_labels *labels, const struct cp_place *at, const json_t *value,
                        const char *name, int32_t *out)
{
    char text[24];
    if (!value || json_is_null(value)) {
        return cp_labels_map(labels, at, "", 0, out);
    }
    if (json_is_string(value)) {
        return cp_labels_map(labels, at, json_string_value(value), json_string_length(value), out);
    }
    if (json_is_integer(value)) {
        int n = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        return cp_labels_map(labels, at, text, (size_t)n, out);
    }
    if (json_is_real(value)) {
        return cp_fail_at(at,
                          "'%s' is the number %g with a fraction or exponent; a label is an "
                          "integer or a word",
                          name, json_real_value(value));
    }
    return cp_fail_at(at, "'%s' is neither an integer nor a string, so it is no label", name);
}

static cp_err read_object(const json_t *object, const struct cp_place *at,
                          const struct cp_dataset_options *opt, struct cp_labels *labels,
                          struct cp_build *out)
{
    const char *text_column = cp_text_column(opt), *label_column = cp_label_column(opt);
    if (!json_is_object(object)) {
        return cp_fail_at(at, "the line is not a JSON object");
    }
    const json_t *text = json_object_get(object, text_column);
    const json_t *label = json_object_get(object, label_column);
    if (!text || (!label && opt->labels_required)) {
        return fail_key(at, object, text ? label_column : text_column);
    }
    if (!json_is_string(text)) {
        return cp_fail_at(at, "'%s' is not a string", text_column);
    }
    int32_t class;
    CP_TRY(map_label(labels, at, label, label_column, &class));
    return cp_build_add(out, json_string_value(text), json_string_length(text), class);
}

static bool is_blank(const char *p, const char *end)
{
    for (; p < end; p++) {
        if (*p != ' ' && *p != '\t' && *p != '\r') {
            return false;
        }
    }
    return true;
}

cp_err cp_jsonl_read(const char *name, const char *bytes, size_t n,
                     const struct cp_dataset_options *opt, struct cp_labels *labels,
                     struct cp_build *out)
{
    struct cp_place at = {.file = name};
    for (const char *p = bytes, *end = bytes + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        const char *next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        at.line++;
        if (!is_blank(p, stop)) {
            at.row++;
            json_error_t why;
            json_t *object =
                json_loadb(p, (size_t)(stop - p), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
            if (!object) {
                return cp_fail_at(&at, "not valid JSON at column %d: %s", why.column, why.text);
            }
            cp_err err = read_object(object, &at, opt, labels, out);
            json_decref(object);
            CP_TRY(err);
        }
        p = next;
    }
    return CP_OK;
}
