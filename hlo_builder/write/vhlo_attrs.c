/* Types and attributes of the portable form: VHLO's, and the few of MLIR's own that it needs. */
#include "hlo_builder/fold.h"
#include "hlo_builder/write/vhlo.h"

#include <math.h>

/* The codes that begin an encoding. */
enum {
    VHLO_ARRAY = 1,
    VHLO_BOOL = 2,
    VHLO_DICT = 6,
    VHLO_FLOAT = 8,
    VHLO_INTEGER = 9,
    VHLO_ALIAS = 10,
    VHLO_STRING = 14,
    VHLO_TENSOR = 15,
    VHLO_TYPE = 17,
    VHLO_ACCURACY_MODE = 19,
    VHLO_ACCURACY = 20,
};
enum { VHLO_FUNCTION_TYPE = 8, VHLO_INDEX_TYPE = 9, VHLO_TENSOR_TYPE = 20, VHLO_NO_TYPE = 33 };
enum { BUILTIN_DICT = 1, BUILTIN_STRING = 2, BUILTIN_INTEGER = 8 };
enum { BUILTIN_NAME_LOCATION = 14, BUILTIN_UNKNOWN_LOCATION = 15 };
enum { BUILTIN_INTEGER_TYPE = 0, BUILTIN_TENSOR_TYPE = 13 };

/* An encoding is made in one go: what it refers to must have its number before. */
static hlo_text *begin(hlo_portable *p, uint64_t code)
{
    p->scratch.size = 0;
    hlo__put_varint(&p->scratch, code);
    return &p->scratch;
}

static uint32_t vhlo_attr(hlo_portable *p)
{
    return hlo__bytecode_attr(&p->bytecode, "vhlo", &p->scratch);
}

static uint32_t vhlo_type(hlo_portable *p)
{
    return hlo__bytecode_type(&p->bytecode, "vhlo", &p->scratch);
}

static uint32_t builtin_attr(hlo_portable *p)
{
    return hlo__bytecode_attr(&p->bytecode, "builtin", &p->scratch);
}

static uint32_t builtin_type(hlo_portable *p)
{
    return hlo__bytecode_type(&p->bytecode, "builtin", &p->scratch);
}

/* ---- types ---- */

uint32_t hlo__vhlo_element(hlo_portable *p, hlo_type type)
{
    static const unsigned char codes[] = {
        [HLO_PRED] = 0, [HLO_BF16] = 2, [HLO_F16] = 3,  [HLO_F32] = 4,
        [HLO_F64] = 5,  [HLO_S8] = 11,  [HLO_S32] = 13, [HLO_S64] = 14,
        [HLO_U8] = 16,  [HLO_U16] = 17, [HLO_U32] = 18, [HLO_U64] = 19,
    };
    begin(p, codes[type]);
    return vhlo_type(p);
}

static void put_tensor_type(hlo_portable *p, int code, const hlo_shape *shape, uint32_t element)
{
    hlo_text *t = begin(p, (uint64_t)code);
    hlo__put_varint(t, (uint64_t)shape->rank);
    for (int i = 0; i < shape->rank; i++)
        hlo__put_signed(t, shape->dims[i]);
    hlo__put_varint(t, element);
}

uint32_t hlo__vhlo_type(hlo_portable *p, const hlo_shape *shape)
{
    uint32_t element = hlo__vhlo_element(p, shape->type);
    put_tensor_type(p, VHLO_TENSOR_TYPE, shape, element);
    return vhlo_type(p);
}

static uint32_t builtin_element(hlo_portable *p, hlo_type type)
{
    static const unsigned char floats[] = {
        [HLO_BF16] = 3, [HLO_F16] = 4, [HLO_F32] = 5, [HLO_F64] = 6};
    enum { UNSIGNED = 2 };
    char kind = hlo__type_kind(type);
    if (kind == 'f') {
        begin(p, floats[type]);
    } else {
        uint64_t bits = type == HLO_PRED ? 1 : (uint64_t)hlo_type_bits(type);
        hlo__put_varint(begin(p, BUILTIN_INTEGER_TYPE), bits << 2 | (kind == 'u' ? UNSIGNED : 0));
    }
    return builtin_type(p);
}

uint32_t hlo__builtin_type(hlo_portable *p, const hlo_shape *shape)
{
    uint32_t element = builtin_element(p, shape->type);
    put_tensor_type(p, BUILTIN_TENSOR_TYPE, shape, element);
    return builtin_type(p);
}

uint32_t hlo__vhlo_function_type(hlo_portable *p, const hlo_block *block)
{
    size_t n_in = (size_t)block->n_params, n_out = (size_t)block->n_results;
    uint32_t *types = hlo__list(p, n_in + n_out);
    if (types == NULL)
        return 0;
    for (size_t i = 0; i < n_in + n_out; i++)
        types[i] = hlo__vhlo_type(p, i < n_in ? &block->params[i]->shape
                                              : &block->results[i - n_in]->shape);
    hlo_text *t = begin(p, VHLO_FUNCTION_TYPE);
    hlo__put_varint(t, n_in);
    for (size_t i = 0; i < n_in + n_out; i++) {
        if (i == n_in)
            hlo__put_varint(t, n_out);
        hlo__put_varint(t, types[i]);
    }
    if (n_out == 0)
        hlo__put_varint(t, 0);
    return vhlo_type(p);
}

uint32_t hlo__vhlo_no_type(hlo_portable *p)
{
    begin(p, VHLO_NO_TYPE);
    return vhlo_type(p);
}

/* ---- attributes ---- */

uint32_t hlo__vhlo_string(hlo_portable *p, const char *string)
{
    hlo__put_varint(begin(p, VHLO_STRING), hlo__bytecode_string(&p->bytecode, string));
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_int(hlo_portable *p, hlo_type type, int64_t value)
{
    uint32_t element = hlo__vhlo_element(p, type);
    hlo_text *t = begin(p, VHLO_INTEGER);
    hlo__put_varint(t, element);
    hlo__put_signed(t, value);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_float(hlo_portable *p, float value)
{
    uint32_t element = hlo__vhlo_element(p, HLO_F32), bits;
    memcpy(&bits, &value, sizeof bits);
    hlo_text *t = begin(p, VHLO_FLOAT);
    hlo__put_varint(t, element);
    hlo__put_signed(t, bits);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_bool(hlo_portable *p, bool value)
{
    hlo__put_varint(begin(p, VHLO_BOOL), value);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_type_attr(hlo_portable *p, uint32_t type)
{
    hlo__put_varint(begin(p, VHLO_TYPE), type);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_array(hlo_portable *p, const uint32_t *attrs, size_t n)
{
    hlo_text *t = begin(p, VHLO_ARRAY);
    hlo__put_varint(t, n);
    for (size_t i = 0; i < n; i++)
        hlo__put_varint(t, attrs[i]);
    return vhlo_attr(p);
}

static void put_dict(hlo_portable *p, uint64_t code, const uint32_t (*pairs)[2], size_t n)
{
    hlo_text *t = begin(p, code);
    hlo__put_varint(t, n);
    for (size_t i = 0; i < n; i++) {
        hlo__put_varint(t, pairs[i][0]);
        hlo__put_varint(t, pairs[i][1]);
    }
}

uint32_t hlo__vhlo_dict(hlo_portable *p, const uint32_t (*pairs)[2], size_t n)
{
    put_dict(p, VHLO_DICT, pairs, n);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_enum(hlo_portable *p, int which, int value)
{
    hlo__put_varint(begin(p, (uint64_t)which), (uint64_t)value);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_accuracy(hlo_portable *p)
{
    hlo__put_varint(begin(p, VHLO_ACCURACY_MODE), 0);
    uint32_t mode = vhlo_attr(p);
    hlo_text *t = begin(p, VHLO_ACCURACY);
    hlo__put_signed(t, 0); /* tolerances that this mode does not have */
    hlo__put_signed(t, 0);
    hlo__put_signed(t, 0);
    hlo__put_varint(t, mode);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_alias(hlo_portable *p, int result, int operand)
{
    hlo_text *t = begin(p, VHLO_ALIAS);
    hlo__put_varint(t, result >= 0);
    if (result >= 0)
        hlo__put_signed(t, result);
    hlo__put_signed(t, operand);
    hlo__put_varint(t, 0);
    return vhlo_attr(p);
}

/* ---- arrays of numbers ---- */

static hlo_text *begin_tensor_of(hlo_portable *p, uint32_t type, size_t size)
{
    hlo_text *t = begin(p, VHLO_TENSOR);
    hlo__put_varint(t, type);
    hlo__put_varint(t, size);
    return t;
}

static hlo_text *begin_tensor(hlo_portable *p, const hlo_shape *shape, size_t size)
{
    return begin_tensor_of(p, hlo__vhlo_type(p, shape), size);
}

static uint32_t int_tensor(hlo_portable *p, const hlo_shape *shape, const int64_t *numbers)
{
    size_t size = (size_t)hlo_shape_elements(shape) * sizeof *numbers;
    hlo_text *t = begin_tensor(p, shape, size);
    if (size > 0)
        hlo__text_put(t, (const char *)numbers, size);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_ints(hlo_portable *p, const int64_t *numbers, int64_t n)
{
    return int_tensor(p, &HLO_SHAPE(HLO_S64, n), numbers);
}

uint32_t hlo__vhlo_dims(hlo_portable *p, const hlo_dims *dims)
{
    return hlo__vhlo_ints(p, dims->d, dims->n);
}

uint32_t hlo__vhlo_row_major(hlo_portable *p, int rank)
{
    begin(p, VHLO_INDEX_TYPE);
    uint32_t index = vhlo_type(p);
    put_tensor_type(p, VHLO_TENSOR_TYPE, &HLO_SHAPE(HLO_TYPE_NONE, rank), index);
    hlo_text *t = begin_tensor_of(p, vhlo_type(p), (size_t)rank * sizeof(int64_t));
    for (int64_t i = rank - 1; i >= 0; i--)
        hlo__text_put(t, (const char *)&i, sizeof i);
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_rows(hlo_portable *p, const int64_t *numbers, int64_t rows, int64_t columns)
{
    return int_tensor(p, &HLO_SHAPE(HLO_S64, rows, columns), numbers);
}

/* A number that a float of 16 bits holds exactly, as that float. */
static uint16_t half_bits(double value, int fraction)
{
    int exponent_bits = 15 - fraction, bias = (1 << (exponent_bits - 1)) - 1, exponent;
    uint16_t sign = (uint16_t)((signbit(value) != 0) << 15);
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << fraction);
    if (isnan(value))
        return (uint16_t)(sign | infinity | 1 << (fraction - 1));
    if (isinf(value))
        return sign | infinity;
    if (value == 0)
        return sign;
    frexp(value, &exponent); /* of a fraction between 1/2 and 1 */
    exponent = exponent + bias - 1 < 1 ? 1 : exponent + bias - 1;
    /* The leading one adds to the exponent; without it the number is a denormal. */
    int scaled = (int)ldexp(fabs(value), bias + fraction - exponent);
    return (uint16_t)(sign | (scaled + ((exponent - 1) << fraction)));
}

static void put_number(hlo_text *t, hlo_type type, hlo_number number)
{
    float single = (float)number.real;
    uint16_t half = half_bits(number.real, type == HLO_F16 ? 10 : 7);
    switch (type) {
    case HLO_F64:
        hlo__text_put(t, (const char *)&number.real, sizeof number.real);
        break;
    case HLO_F32:
        hlo__text_put(t, (const char *)&single, sizeof single);
        break;
    case HLO_F16:
    case HLO_BF16:
        hlo__text_put(t, (const char *)&half, sizeof half);
        break;
    default: /* the low bytes come first */
        hlo__text_put(t, (const char *)&number.integer, (size_t)hlo_type_bits(type) / 8);
    }
}

/* Predicates are packed, the first in the lowest bit. All true is one byte of ones, however many
 * they are: readers of every age take that for it. */
static uint32_t pred_tensor(hlo_portable *p, const hlo_shape *shape, const unsigned char *data,
                            bool splat, bool value)
{
    size_t n = (size_t)hlo_shape_elements(shape);
    bool same = true;
    for (size_t i = 1; i < n && !splat; i++)
        same = same && (data[i] != 0) == (data[0] != 0);
    if (n > 0 && same) {
        hlo__put_byte(begin_tensor(p, shape, 1), (splat ? value : data[0] != 0) ? 0xff : 0);
        return vhlo_attr(p);
    }
    hlo_text *t = begin_tensor(p, shape, (n + 7) / 8);
    for (size_t i = 0; i < n; i += 8) {
        unsigned byte = 0;
        for (size_t k = i; k < n && k < i + 8; k++)
            byte |= (unsigned)(data[k] != 0) << (k - i);
        hlo__put_byte(t, (unsigned char)byte);
    }
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_constant(hlo_portable *p, const hlo_shape *shape, const hlo_constant_attrs *a)
{
    size_t n = (size_t)hlo_shape_elements(shape), width = (size_t)hlo_type_bits(shape->type) / 8;
    bool splat = a->splat && n > 0;
    if (shape->type == HLO_PRED)
        return pred_tensor(p, shape, a->data, splat, a->integer != 0);
    if (splat) {
        hlo_text *t = begin_tensor(p, shape, width);
        put_number(t, shape->type, (hlo_number){a->real, a->integer});
    } else {
        hlo_text *t = begin_tensor(p, shape, n * width);
        if (n > 0)
            hlo__text_put(t, a->data, n * width);
    }
    return vhlo_attr(p);
}

uint32_t hlo__vhlo_number(hlo_portable *p, hlo_type type, double value)
{
    hlo_constant_attrs a = {.splat = 1, .real = value};
    return hlo__vhlo_constant(p, &HLO_SCALAR(type), &a);
}

/* ---- MLIR's and Shardy's own ---- */

uint32_t hlo__builtin_string(hlo_portable *p, const char *string)
{
    hlo__put_varint(begin(p, BUILTIN_STRING), hlo__bytecode_string(&p->bytecode, string));
    return builtin_attr(p);
}

uint32_t hlo__builtin_int(hlo_portable *p, hlo_type type, int64_t value)
{
    uint32_t element = builtin_element(p, type);
    hlo_text *t = begin(p, BUILTIN_INTEGER);
    hlo__put_varint(t, element);
    hlo__put_signed(t, value);
    return builtin_attr(p);
}

uint32_t hlo__builtin_dict(hlo_portable *p, const uint32_t (*pairs)[2], size_t n)
{
    put_dict(p, BUILTIN_DICT, pairs, n);
    return builtin_attr(p);
}

uint32_t hlo__unknown_location(hlo_portable *p)
{
    begin(p, BUILTIN_UNKNOWN_LOCATION);
    return builtin_attr(p);
}

uint32_t hlo__named_location(hlo_portable *p, const char *name)
{
    uint32_t string = hlo__builtin_string(p, name);
    hlo_text *t = begin(p, BUILTIN_NAME_LOCATION);
    hlo__put_varint(t, string);
    hlo__put_varint(t, p->unknown_location);
    return builtin_attr(p);
}

uint32_t hlo__sdy_attr(hlo_portable *p)
{
    hlo__put_byte(&p->texts.text, 0);
    uint32_t attr = hlo__bytecode_text_attr(&p->bytecode, "sdy", &p->texts.text);
    p->texts.text.size = 0;
    return attr;
}

uint32_t hlo__sdy_sharding(hlo_portable *p, const hlo_spec *spec, int rank)
{
    hlo__put_str(&p->texts, "#sdy.sharding");
    hlo__put_sharding(&p->texts, spec, rank);
    return hlo__sdy_attr(p);
}

uint32_t hlo__gspmd_sharding(hlo_portable *p, const hlo_spec *spec, int rank)
{
    hlo_text *t = &p->texts.text;
    hlo__put_gspmd(&p->texts, spec, rank);
    hlo__put_byte(t, 0);
    uint32_t attr = 0;
    if (!t->failed) { /* without its quotes; nothing in it is escaped */
        t->bytes[t->size - 2] = '\0';
        attr = hlo__vhlo_string(p, t->bytes + 1);
    } else {
        hlo_fail(p->g, HLO_ERROR_MEMORY, "out of memory");
    }
    t->size = 0;
    return attr;
}
