#include "json.h"

#include "app.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *doc_parse(const char *text)
{
    json_error_t where;
    json_t *doc = json_loads(text, JSON_DECODE_ANY, &where);
    if (!doc) {
        fprintf(stderr, "collapipe: internal error: a document is not valid JSON (line %d: %s)\n",
                where.line, where.text);
        exit(COLLAPIPE_FAILED);
    }
    return doc;
}

static const char *text_of(const json_t *v)
{
    const char *s = json_string_value(v);
    return s ? s : "-";
}

const char *doc_text(const json_t *object, const char *key)
{
    return text_of(json_object_get(object, key));
}

static double number_of(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

double doc_number(const json_t *object, const char *key)
{
    return number_of(json_object_get(object, key));
}

static int int_of(const json_t *v, int otherwise)
{
    double x = number_of(v);
    return isfinite(x) && fabs(x) < 2e9 ? (int)x : otherwise;
}

int doc_int(const json_t *object, const char *key, int otherwise)
{
    return int_of(json_object_get(object, key), otherwise);
}

int doc_int_at(const json_t *object, const char *key, size_t i, int otherwise)
{
    return int_of(json_array_get(doc_array(object, key), i), otherwise);
}

bool doc_bool(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

const json_t *doc_array(const json_t *object, const char *key)
{
    const json_t *a = json_object_get(object, key);
    return json_is_array(a) ? a : NULL; /* jansson takes NULL for an empty array */
}

double doc_number_at(const json_t *object, const char *key, size_t i)
{
    return number_of(json_array_get(doc_array(object, key), i));
}

const char *doc_text_at(const json_t *object, const char *key, size_t i)
{
    return text_of(json_array_get(doc_array(object, key), i));
}

char *doc_join(const json_t *object, const char *key, const char *between)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_array(v)) {
        return app_copy(json_is_string(v) ? json_string_value(v) : "");
    }
    size_t len = 1;
    for (size_t i = 0; i < json_array_size(v); i++) {
        len += strlen(text_of(json_array_get(v, i))) + strlen(between);
    }
    char *out = app_alloc(len, 1), *p = out;
    for (size_t i = 0; i < json_array_size(v); i++) {
        p = stpcpy(stpcpy(p, i ? between : ""), text_of(json_array_get(v, i)));
    }
    return out;
}
