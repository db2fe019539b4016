/* Numbers and arrays of them, spelled so that MLIR reads back the same bits. */
#include "hlo_builder/fold.h"
#include "hlo_builder/write/write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Arrays of more elements are written as their bytes. */
enum { MOST_LISTED = 16 };

static void put_hex(hlo_writer *w, uint64_t bits, int digits)
{
    hlo__text_printf(&w->text, "0x%0*llX", digits, (unsigned long long)bits);
}

/* Infinities and NaN have no decimal spelling. */
static void put_not_finite(hlo_writer *w, hlo_type type, double value)
{
    uint64_t sign = signbit(value) != 0;
    bool nan = isnan(value);
    switch (type) {
    case HLO_F64:
        put_hex(w, sign << 63 | (nan ? 0x7ff8ull << 48 : 0x7ff0ull << 48), 16);
        break;
    case HLO_F32:
        put_hex(w, sign << 31 | (nan ? 0x7fc00000 : 0x7f800000), 8);
        break;
    case HLO_BF16:
        put_hex(w, sign << 15 | (nan ? 0x7fc0 : 0x7f80), 4);
        break;
    default:
        put_hex(w, sign << 15 | (nan ? 0x7e00 : 0x7c00), 4);
    }
}

void hlo__put_float(hlo_writer *w, hlo_type type, double value)
{
    char text[40];
    if (!isfinite(value)) {
        put_not_finite(w, type, value);
        return;
    }
    /* MLIR reads a double and rounds it to the type: the shortest text that ends there. */
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (hlo__float_number(type, strtod(text, NULL)).real == value)
            break;
    }
    size_t mantissa = strcspn(text, "e");
    hlo__text_put(&w->text, text, mantissa);
    if (memchr(text, '.', mantissa) == NULL)
        PUT(w, ".0");
    hlo__put_str(w, text + mantissa);
}

static void put_number(hlo_writer *w, hlo_type type, hlo_number number)
{
    if (hlo_type_is_float(type))
        hlo__put_float(w, type, number.real);
    else if (type == HLO_PRED)
        hlo__put_str(w, number.integer ? "true" : "false");
    else if (type == HLO_U64)
        hlo__text_printf(&w->text, "%llu", (unsigned long long)number.integer);
    else
        hlo__put_int(w, number.integer);
}

/* Element `i` of dense data. A NaN keeps its bits. */
static void put_element(hlo_writer *w, hlo_type type, const void *data, int64_t i)
{
    size_t width = (size_t)hlo_type_bits(type) / 8;
    const unsigned char *at = (const unsigned char *)data + (size_t)i * width;
    hlo_number number = hlo__read_number(type, at);
    if (hlo_type_is_float(type) && !isfinite(number.real)) {
        uint64_t bits = 0;
        memcpy(&bits, at, width);
        put_hex(w, bits, 2 * (int)width);
    } else {
        put_number(w, type, number);
    }
}

/* "[[1, 2], [3, 4]]" */
static void put_nested(hlo_writer *w, const hlo_shape *shape, const void *data)
{
    int64_t n = hlo_shape_elements(shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t block = 1; /* brackets open and close where whole rows begin and end */
        int opens = 0, closes = 0;
        for (int d = shape->rank - 1; d >= 0; d--) {
            block *= shape->dims[d];
            opens += i % block == 0;
            closes += (i + 1) % block == 0;
        }
        if (i > 0)
            PUT(w, ", ");
        while (opens-- > 0)
            PUT(w, "[");
        put_element(w, shape->type, data, i);
        while (closes-- > 0)
            PUT(w, "]");
    }
}

static void put_bytes(hlo_writer *w, const unsigned char *bytes, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    PUT(w, "\"0x");
    if (!hlo__text_reserve(&w->text, 2 * size + 1))
        return;
    char *at = w->text.bytes + w->text.size;
    for (size_t i = 0; i < size; i++) {
        *at++ = digits[bytes[i] >> 4];
        *at++ = digits[bytes[i] & 15];
    }
    w->text.size += 2 * size;
    PUT(w, "\"");
}

void hlo__write_dense(hlo_writer *w, const hlo_shape *shape, const hlo_constant_attrs *attrs)
{
    int64_t n = hlo_shape_elements(shape);
    PUT(w, "dense<");
    if (n > 0 && attrs->splat)
        put_number(w, shape->type, (hlo_number){attrs->real, attrs->integer});
    else if (n > MOST_LISTED && shape->type != HLO_PRED) /* i1 is packed in its own ways */
        put_bytes(w, attrs->data, (size_t)n * (size_t)hlo_type_bits(shape->type) / 8);
    else
        put_nested(w, shape, attrs->data);
    PUT(w, ">");
}
