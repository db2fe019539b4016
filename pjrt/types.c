/* Element types and shapes. */
#include "pjrt/pjrt.h"

#include <stdio.h>
#include <string.h>

size_t pjrt_type_size(pjrt_type type)
{
    switch (type) {
#define TYPE_SIZE(name, number, bits, mlir) \
    case PJRT_##name:                       \
        return bits / 8;
        PJRT_TYPES(TYPE_SIZE)
#undef TYPE_SIZE
    case PJRT_TYPE_INVALID:
        break;
    }
    return 0;
}

const char *pjrt_type_name(pjrt_type type)
{
    switch (type) {
#define TYPE_NAME(name, number, bits, mlir) \
    case PJRT_##name:                       \
        return mlir;
        PJRT_TYPES(TYPE_NAME)
#undef TYPE_NAME
    case PJRT_TYPE_INVALID:
        break;
    }
    return "?";
}

pjrt_type pjrt_type_parse(const char *name, size_t length)
{
#define TYPE_PARSE(id, number, bits, mlir)                             \
    if (length == sizeof(mlir) - 1 && memcmp(name, mlir, length) == 0) \
        return PJRT_##id;
    PJRT_TYPES(TYPE_PARSE)
#undef TYPE_PARSE
    return PJRT_TYPE_INVALID;
}

int pjrt_type_ffi(pjrt_type type)
{
    /* XLA FFI numbers types as XLA's PrimitiveType does: same order, but bf16 and the complex types
     * came after an opaque and a tuple type there. */
    switch (type) {
    case PJRT_BF16:
        return 16;
    case PJRT_C64:
        return 15;
    case PJRT_C128:
        return 18;
    default:
        return pjrt_type_size(type) == 0 ? 0 : (int)type;
    }
}

int64_t pjrt_shape_bytes(const pjrt_shape *shape)
{
    int64_t bytes = (int64_t)pjrt_type_size(shape->type);
    if (bytes == 0 || shape->rank < 0 || shape->rank > PJRT_MAX_RANK)
        return -1;
    /* A zero anywhere makes the array empty, however large the product of the rest. */
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0)
            return -1;
        if (shape->dims[i] == 0)
            bytes = 0;
    }
    for (int i = 0; i < shape->rank; i++) {
        if (__builtin_mul_overflow(bytes, shape->dims[i], &bytes))
            return -1;
    }
    return bytes;
}

bool pjrt_shape_equal(const pjrt_shape *a, const pjrt_shape *b)
{
    if (a->type != b->type || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i])
            return false;
    }
    return true;
}

char *pjrt_shape_text(const pjrt_shape *shape, char text[PJRT_SHAPE_TEXT])
{
    int n = snprintf(text, PJRT_SHAPE_TEXT, "%s[", pjrt_type_name(shape->type));
    for (int i = 0; i < shape->rank && i < PJRT_MAX_RANK; i++)
        n += snprintf(text + n, (size_t)(PJRT_SHAPE_TEXT - n), "%s%lld", i == 0 ? "" : ",",
                      (long long)shape->dims[i]);
    snprintf(text + n, (size_t)(PJRT_SHAPE_TEXT - n), "]");
    return text;
}
