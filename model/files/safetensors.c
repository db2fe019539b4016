/*
 * safetensors files: eight bytes with the length of a JSON header, the header, the data. Reading
 * trusts nothing. The header is read by a small parser of its own and not by a JSON library: it may
 * have 100 MB, and a tree of that would not fit where the tensors do.
 */
#include "model/records.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER = 100 * 1000 * 1000 };

static const struct {
    const char *name;
    hlo_type type;
} types[] = {
    {"F64", HLO_F64}, {"F32", HLO_F32}, {"BF16", HLO_BF16}, {"F16", HLO_F16},
    {"I64", HLO_S64}, {"I32", HLO_S32}, {"U64", HLO_U64},   {"U32", HLO_U32},
    {"U16", HLO_U16}, {"U8", HLO_U8},   {"BOOL", HLO_PRED},
};

/* ---- the header's JSON ----------------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    char *string; /* the last one read, as long as the header at most; not ended by a NUL */
    size_t length;
    ttt_error *error;
} reader;

static bool bad(reader *r, const char *what)
{
    return ttt__fail(r->error, "the header is not what it should be: %s", what);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

/* The next character, if it is this one. */
static bool take(reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool hex4(reader *r, uint32_t *code)
{
    *code = 0;
    if (r->end - r->at < 4)
        return bad(r, "a string ends within an escape");
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return bad(r, "a bad \\u escape");
        *code = *code << 4 | digit;
    }
    return true;
}

static void put_utf8(reader *r, uint32_t code)
{
    char *to = r->string + r->length;
    if (code < 0x80) {
        to[0] = (char)code;
        r->length += 1;
    } else if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 63));
        r->length += 2;
    } else if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 63));
        to[2] = (char)(0x80 | (code & 63));
        r->length += 3;
    } else {
        to[0] = (char)(0xf0 | code >> 18);
        to[1] = (char)(0x80 | (code >> 12 & 63));
        to[2] = (char)(0x80 | (code >> 6 & 63));
        to[3] = (char)(0x80 | (code & 63));
        r->length += 4;
    }
}

/* What follows a backslash. An escape is never shorter than what it stands for. */
static bool read_escape(reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t code, low;
    if (r->at == r->end)
        return bad(r, "a string has no end");
    char c = *r->at++;
    if (c != 'u') {
        const char *found = c == '\0' ? NULL : strchr(from, c);
        if (found == NULL)
            return bad(r, "an unknown escape");
        r->string[r->length++] = to[found - from];
        return true;
    }
    if (!hex4(r, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return bad(r, "half a surrogate pair");
        r->at += 2;
        if (!hex4(r, &low))
            return false;
        if (low < 0xdc00 || low >= 0xe000)
            return bad(r, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return bad(r, "half a surrogate pair");
    }
    if (code == 0)
        return bad(r, "a NUL in a string");
    put_utf8(r, code);
    return true;
}

/* Bytes of the UTF-8 sequence at `at`, 0 when it is none. */
static int utf8_length(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *)at;
    int n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n == 0 || p[0] > 0xf4 || end - at < n)
        return 0;
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    /* No long forms, no surrogates, nothing past the last code point. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

static bool read_string(reader *r)
{
    if (!take(r, '"'))
        return bad(r, "a string is missing");
    r->length = 0;
    while (r->at < r->end && *r->at != '"') {
        if (*r->at == '\\') {
            r->at++;
            if (!read_escape(r))
                return false;
            continue;
        }
        int n = utf8_length(r->at, r->end);
        if (n == 0 || (unsigned char)*r->at < ' ')
            return bad(r, "a string is not UTF-8");
        memcpy(r->string + r->length, r->at, (size_t)n);
        r->length += (size_t)n;
        r->at += n;
    }
    if (r->at == r->end)
        return bad(r, "a string has no end");
    r->at++;
    return true;
}

static bool string_is(const reader *r, const char *text)
{
    return r->length == strlen(text) && memcmp(r->string, text, r->length) == 0;
}

/* A number from 0 to 2^63 - 1, spelt as JSON spells it. */
static bool read_number(reader *r, int64_t *value)
{
    skip_space(r);
    const char *first = r->at;
    *value = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, *r->at - '0', value))
            return bad(r, "a number is too large");
        r->at++;
    }
    if (r->at == first || (*first == '0' && r->at - first > 1))
        return bad(r, "not a whole number where one should be");
    return true;
}

/* A list of at most `most` numbers. */
static bool read_numbers(reader *r, int64_t *values, int most, int *count)
{
    *count = 0;
    if (!take(r, '['))
        return bad(r, "a list is missing");
    if (take(r, ']'))
        return true;
    do {
        if (*count == most)
            return bad(r, "a list is too long");
        if (!read_number(r, &values[(*count)++]))
            return false;
    } while (take(r, ','));
    return take(r, ']') || bad(r, "a list has no end");
}

/* ---- entries --------------------------------------------------------------------------------- */

typedef struct entry {
    hlo_shape shape;
    int64_t offsets[2];
    bool typed, shaped, placed;
} entry;

static bool read_property(reader *r, entry *e)
{
    int count;
    if (!read_string(r))
        return false;
    bool dtype = string_is(r, "dtype"), shape = string_is(r, "shape"),
         offsets = string_is(r, "data_offsets");
    if (!take(r, ':'))
        return bad(r, "a colon is missing");
    if (dtype && !e->typed) {
        if (!read_string(r))
            return false;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            if (string_is(r, types[i].name))
                e->shape.type = types[i].type;
        }
        e->typed = e->shape.type != HLO_TYPE_NONE;
        return e->typed || ttt__fail(r->error, "the dtype \"%.*s\" is not supported",
                                     (int)(r->length < 40 ? r->length : 40), r->string);
    }
    if (shape && !e->shaped) {
        e->shaped = true;
        return read_numbers(r, e->shape.dims, HLO_MAX_RANK, &e->shape.rank);
    }
    if (offsets && !e->placed) {
        e->placed = true;
        return read_numbers(r, e->offsets, 2, &count) &&
               (count == 2 || bad(r, "data_offsets are not two"));
    }
    return bad(r, "a tensor has a property twice or one that is unknown");
}

static bool read_entry(reader *r, entry *e)
{
    if (!take(r, '{'))
        return bad(r, "a tensor is not an object");
    do {
        if (!read_property(r, e))
            return false;
    } while (take(r, ','));
    if (!take(r, '}'))
        return bad(r, "a tensor has no end");
    return (e->typed && e->shaped && e->placed) ||
           bad(r, "a tensor lacks dtype, shape or data_offsets");
}

/* Strings by strings, which we do not keep. */
static bool skip_metadata(reader *r)
{
    if (!take(r, '{'))
        return bad(r, "__metadata__ is not an object");
    if (take(r, '}'))
        return true;
    do {
        if (!read_string(r))
            return false;
        if (!take(r, ':'))
            return bad(r, "a colon is missing");
        if (!read_string(r))
            return false;
    } while (take(r, ','));
    return take(r, '}') || bad(r, "__metadata__ has no end");
}

bool ttt__shape_bytes(const hlo_shape *shape, size_t *bytes)
{
    *bytes = (size_t)hlo_type_bits(shape->type) / 8;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0 || __builtin_mul_overflow(*bytes, (size_t)shape->dims[i], bytes))
            return false;
    }
    return *bytes <= PTRDIFF_MAX;
}

static bool add_entry(ttt_tensors *tensors, reader *r, const char *name, size_t length,
                      const char *data, size_t size)
{
    entry e = {0};
    size_t bytes;
    int shown = (int)(length < 100 ? length : 100);
    if (!read_entry(r, &e))
        return false;
    if (e.offsets[0] > e.offsets[1] || (uint64_t)e.offsets[1] > size)
        return ttt__fail(r->error, "tensor \"%.*s\" lies outside the file", shown, name);
    if (!ttt__shape_bytes(&e.shape, &bytes) || bytes != (size_t)e.offsets[1] - (size_t)e.offsets[0])
        return ttt__fail(r->error, "tensor \"%.*s\" has a shape of another size than its data",
                         shown, name);
    return ttt__tensors_add(tensors, name, length, e.shape, data + e.offsets[0], bytes, r->error);
}

static bool read_header(ttt_tensors *tensors, reader *r, const char *data, size_t size)
{
    bool metadata = false;
    if (r->at == r->end || *r->at != '{')
        return bad(r, "it does not start with {");
    r->at++;
    if (!take(r, '}')) {
        do {
            if (!read_string(r))
                return false;
            char *name = r->string;
            size_t length = r->length;
            if (!take(r, ':'))
                return bad(r, "a colon is missing");
            if (string_is(r, "__metadata__")) {
                if (metadata || !skip_metadata(r))
                    return metadata ? bad(r, "__metadata__ comes twice") : false;
                metadata = true;
                continue;
            }
            r->string += length; /* what follows must not write over the name */
            bool ok = add_entry(tensors, r, name, length, data, size);
            r->string = name;
            if (!ok)
                return false;
        } while (take(r, ','));
        if (!take(r, '}'))
            return bad(r, "it has no end");
    }
    skip_space(r);
    return r->at == r->end || bad(r, "something follows it");
}

/* ---- placement ------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const ttt_tensor *x = a, *y = b;
    uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
    if (p != q)
        return p < q ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

/* Each tensor begins where the one before ends, and the last ends with the file. */
static bool check_placement(ttt_tensor *list, int count, const char *data, size_t size,
                            ttt_error *error)
{
    const char *at = data;
    if (count > 1)
        qsort(list, (size_t)count, sizeof *list, by_place);
    for (int i = 0; i < count; i++) {
        if ((const char *)list[i].data != at)
            return ttt__fail(error, "tensor \"%.100s\" %s", list[i].name,
                             (const char *)list[i].data < at ? "overlaps another"
                                                             : "leaves a hole before it");
        at += list[i].size;
    }
    return at == data + size ||
           ttt__fail(error, "%zu bytes of data belong to no tensor", (size_t)(data + size - at));
}

bool ttt__safetensors_parse(ttt_tensors *tensors, const void *bytes, size_t size, ttt_error *error)
{
    const unsigned char *b = bytes;
    uint64_t header = 0;
    if (size < 8)
        return ttt__fail(error, "too short for a safetensors file");
    for (int i = 7; i >= 0; i--)
        header = header << 8 | b[i];
    if (header > MOST_HEADER || header > size - 8)
        return ttt__fail(error, "a header of %llu bytes is larger than the file or than %d",
                         (unsigned long long)header, MOST_HEADER);
    const char *text = (const char *)b + 8, *data = text + header;
    char *string = malloc((size_t)header + 1);
    if (string == NULL)
        return ttt__no_memory(error);
    reader r = {.at = text, .end = data, .string = string, .error = error};
    int before = tensors->count;
    size_t data_size = size - 8 - (size_t)header;
    bool ok =
        read_header(tensors, &r, data, data_size) &&
        check_placement(tensors->list + before, tensors->count - before, data, data_size, error);
    free(string);
    return ok;
}
