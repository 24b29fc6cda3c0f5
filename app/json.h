/*
 * json: reading the documents of the library. A member that is missing or null is "-" as a text,
 * NaN as a number and an empty array, so that a table can be printed from whatever there is.
 */
#ifndef APP_JSON_H
#define APP_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* The program ends if the library gave something that is no JSON: that is a mistake of ours. */
json_t *doc_parse(const char *text);

const char *doc_text(const json_t *object, const char *key);
double doc_number(const json_t *object, const char *key);
int doc_int(const json_t *object, const char *key, int otherwise);
bool doc_bool(const json_t *object, const char *key);
const json_t *doc_array(const json_t *object, const char *key);

/* Elements of an array member. */
double doc_number_at(const json_t *object, const char *key, size_t i);
int doc_int_at(const json_t *object, const char *key, size_t i, int otherwise);
const char *doc_text_at(const json_t *object, const char *key, size_t i);

/* "a, b, c" of an array of texts, or the text itself, or "" ; the caller frees it. */
char *doc_join(const json_t *object, const char *key, const char *between);

#endif
