/*
 * Numbers out of a backend configuration, which compilers write as JSON.
 *
 * It is no JSON parser: it finds a key and reads a number, tells strings from structure, never
 * recurses, and takes whatever else it meets for noise.
 */
#include "pjrt/hlo/internal.h"

#include <string.h>

static void skip_space(hlo_json *text)
{
    while (text->at < text->end && strchr(" \t\r\n", *text->at) != NULL && *text->at != '\0')
        text->at++;
}

/* Behind the string that begins at text->at. */
static void skip_string(hlo_json *text)
{
    for (text->at++; text->at < text->end && *text->at != '"'; text->at++)
        if (*text->at == '\\' && text->end - text->at > 1)
            text->at++;
    if (text->at < text->end)
        text->at++;
}

bool hlo_json_find(hlo_json text, const char *key, hlo_json *value)
{
    size_t length = strlen(key);
    while (text.at < text.end) {
        if (*text.at != '"') {
            text.at++;
            continue;
        }
        const char *start = text.at + 1;
        skip_string(&text);
        bool same = (size_t)(text.at - start) == length + 1 && memcmp(start, key, length) == 0;
        skip_space(&text);
        if (same && text.at < text.end && *text.at == ':') {
            text.at++;
            skip_space(&text);
            *value = text;
            return true;
        }
    }
    return false;
}

/* The digits at text->at, if any; text->at moves behind them. */
static bool read_integer(hlo_json *text, int64_t *out)
{
    bool negative = text->at < text->end && *text->at == '-';
    if (negative)
        text->at++;
    const char *first = text->at;
    int64_t value = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        int digit = *text->at - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = negative ? -value : value;
    return text->at > first;
}

bool hlo_json_integer(hlo_json text, int64_t *out)
{
    if (text.at < text.end && *text.at == '"')
        text.at++;
    return read_integer(&text, out);
}

bool hlo_json_next_integer(hlo_json *array, int64_t *out)
{
    while (array->at < array->end && strchr("[\", \t\r\n", *array->at) != NULL &&
           *array->at != '\0')
        array->at++;
    return read_integer(array, out);
}

hlo_json hlo_backend_config(const hlo_instruction *in)
{
    const ProtobufCBinaryData *config = &in->proto->backend_config;
    const char *at = config->len == 0 ? "" : (const char *)config->data;
    return (hlo_json){.at = at, .end = at + config->len};
}
