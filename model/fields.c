/* Records of named fields, by a table of them: set by text and by JSON, checked, written as JSON.
 */
#include "model/records.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ttt__field *ttt__field_find(const ttt__field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, fields[i].name) == 0)
            return &fields[i];
    }
    return NULL;
}

static void *place(void *record, const ttt__field *field)
{
    return (char *)record + field->offset;
}

static const void *place_of(const void *record, const ttt__field *field)
{
    return (const char *)record + field->offset;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static bool check_int(const ttt__field *field, int64_t value, ttt_error *error)
{
    if ((double)value < field->low || (double)value > field->high)
        return ttt__fail(error, "%s: %lld is not from %.0f to %.0f", field->name, (long long)value,
                         field->low, field->high);
    return true;
}

static bool check_real(const ttt__field *field, double value, ttt_error *error)
{
    if (!(value >= field->low && value <= field->high)) /* nor is NaN */
        return ttt__fail(error, "%s: %g is not from %g to %g", field->name, value, field->low,
                         field->high);
    return true;
}

/* By copy: an enum need not be an int to the compiler, but has an int's bytes. */
static int word_number(const void *record, const ttt__field *field)
{
    int number;
    memcpy(&number, place_of(record, field), sizeof number);
    return number;
}

static bool check_word(const ttt__field *field, int number, ttt_error *error)
{
    int count = 0;
    while (field->words[count] != NULL)
        count++;
    if (number < 0 || number >= count)
        return ttt__fail(error, "%s: there is no number %d", field->name, number);
    return true;
}

static bool check_number(const void *record, const ttt__field *field, ttt_error *error)
{
    const void *at = place_of(record, field);
    if (field->kind == TTT__INT)
        return check_int(field, *(const int64_t *)at, error);
    return field->kind != TTT__REAL || check_real(field, *(const double *)at, error);
}

bool ttt__fields_check(const void *record, const ttt__field *fields, size_t count, ttt_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (!check_number(record, &fields[i], error))
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (fields[i].kind == TTT__WORD &&
            !check_word(&fields[i], word_number(record, &fields[i]), error))
            return false;
    }
    return true;
}

/* ---- setting --------------------------------------------------------------------------------- */

static bool set_int(void *record, const ttt__field *field, int64_t value, ttt_error *error)
{
    if (!check_int(field, value, error))
        return false;
    *(int64_t *)place(record, field) = value;
    return true;
}

static bool set_real(void *record, const ttt__field *field, double value, ttt_error *error)
{
    if (!check_real(field, value, error))
        return false;
    *(double *)place(record, field) = value;
    return true;
}

static bool set_bool(void *record, const ttt__field *field, bool value)
{
    *(bool *)place(record, field) = value;
    return true;
}

static bool set_word(void *record, const ttt__field *field, const char *word, ttt_error *error)
{
    char all[256] = "";
    size_t used = 0;
    for (int i = 0; field->words[i] != NULL; i++) {
        if (strcmp(word, field->words[i]) == 0) {
            memcpy(place(record, field), &i, sizeof i);
            return true;
        }
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : ", ",
                                     field->words[i]);
    }
    return ttt__fail(error, "%s: there is no \"%.60s\"; there are %s", field->name, word, all);
}

static const char *noun(ttt__kind kind)
{
    switch (kind) {
    case TTT__INT:
        return "a whole number";
    case TTT__REAL:
        return "a number";
    case TTT__BOOL:
        return "true or false";
    case TTT__WORD:
        return "a string";
    }
    return NULL;
}

static bool not_of_kind(const ttt__field *field, const char *value, ttt_error *error)
{
    return ttt__fail(error, "%s: \"%.60s\" is not %s", field->name, value, noun(field->kind));
}

bool ttt__field_set(void *record, const ttt__field *field, const char *value, ttt_error *error)
{
    char *end;
    switch (field->kind) {
    case TTT__INT: {
        errno = 0;
        long long number = strtoll(value, &end, 10);
        if (errno != 0 || end == value || *end != '\0')
            return not_of_kind(field, value, error);
        return set_int(record, field, number, error);
    }
    case TTT__REAL: {
        double number = strtod(value, &end);
        if (end == value || *end != '\0' || !isfinite(number))
            return not_of_kind(field, value, error);
        return set_real(record, field, number, error);
    }
    case TTT__BOOL: {
        bool yes = strcmp(value, "true") == 0;
        if (!yes && strcmp(value, "false") != 0)
            return not_of_kind(field, value, error);
        return set_bool(record, field, yes);
    }
    case TTT__WORD:
        return set_word(record, field, value, error);
    }
    return false;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool is_of_kind(const json_t *value, ttt__kind kind)
{
    switch (kind) {
    case TTT__INT:
        return json_is_integer(value);
    case TTT__REAL:
        return json_is_number(value);
    case TTT__BOOL:
        return json_is_boolean(value);
    case TTT__WORD:
        return json_is_string(value);
    }
    return false;
}

const char *ttt__field_wants(const ttt__field *field, const json_t *value)
{
    return is_of_kind(value, field->kind) ? NULL : noun(field->kind);
}

bool ttt__field_set_json(void *record, const ttt__field *field, const json_t *value,
                         ttt_error *error)
{
    switch (field->kind) {
    case TTT__INT:
        return set_int(record, field, json_integer_value(value), error);
    case TTT__REAL:
        return set_real(record, field, json_number_value(value), error);
    case TTT__BOOL:
        return set_bool(record, field, json_is_true(value));
    case TTT__WORD:
        return set_word(record, field, json_string_value(value), error);
    }
    return false;
}

json_t *ttt__field_json(const void *record, const ttt__field *field)
{
    const void *at = place_of(record, field);
    switch (field->kind) {
    case TTT__INT:
        return json_integer(*(const int64_t *)at);
    case TTT__REAL:
        return json_real(*(const double *)at);
    case TTT__BOOL:
        return json_boolean(*(const bool *)at);
    case TTT__WORD:
        return json_string(field->words[word_number(record, field)]);
    }
    return NULL;
}

bool ttt__field_same(const void *record, const void *other, const ttt__field *field)
{
    const void *one = place_of(record, field), *two = place_of(other, field);
    switch (field->kind) {
    case TTT__INT:
        return *(const int64_t *)one == *(const int64_t *)two;
    case TTT__REAL:
        return *(const double *)one == *(const double *)two;
    case TTT__BOOL:
        return *(const bool *)one == *(const bool *)two;
    case TTT__WORD:
        return word_number(record, field) == word_number(other, field);
    }
    return false;
}

bool ttt__fields_put(const void *record, const ttt__field *fields, size_t count, json_t *object)
{
    bool ok = object != NULL;
    for (size_t i = 0; ok && i < count; i++)
        ok = json_object_set_new(object, fields[i].name, ttt__field_json(record, &fields[i])) == 0;
    return ok;
}

/* The fewest digits that bring every real number back. */
static int digits_of(const void *record, const ttt__field *fields, size_t count)
{
    int digits = 1;
    for (size_t i = 0; i < count; i++) {
        if (fields[i].kind != TTT__REAL)
            continue;
        double value = *(const double *)place_of(record, &fields[i]);
        char text[40];
        while (digits < 17) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value)
                break;
            digits++;
        }
    }
    return digits;
}

char *ttt__fields_dump(const void *record, const ttt__field *fields, size_t count, json_t *object,
                       bool ok, ttt_error *error)
{
    size_t digits = (size_t)digits_of(record, fields, count);
    char *text = ok ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(digits)) : NULL;
    json_decref(object);
    if (text == NULL)
        ttt__no_memory(error);
    return text;
}
