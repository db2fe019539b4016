/* Element access by type; half and bfloat16 are converted by hand, rounding to nearest even. */
#include "tools/cli/values.h"

#include <string.h>

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double half_to_double(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 0) { /* zero and subnormals are multiples of 2^-24 */
        double value = fraction * 0x1p-24;
        return sign != 0 ? -value : value;
    }
    if (exponent == 0x1f)
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t half_of_double(double value)
{
    uint32_t bits = bits_of_float((float)value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return sign | 0x7e00;
    if (magnitude >= 0x477ff000) /* rounds to 65536 or more */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) { /* below the smallest normal half: round in units of 2^-24 */
        float shifted = float_of_bits(magnitude) + 0.5f; /* 0.5 has its last bit at 2^-24 */
        return (uint16_t)(sign | (bits_of_float(shifted) - bits_of_float(0.5f)));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112 << 10)));
}

static uint16_t bfloat_of_double(double value)
{
    uint32_t bits = bits_of_float((float)value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define VALUE_TYPES(X) \
    X(S8, int8_t)      \
    X(S16, int16_t)    \
    X(S32, int32_t)    \
    X(S64, int64_t)    \
    X(U8, uint8_t) X(U16, uint16_t) X(U32, uint32_t) X(U64, uint64_t) X(F32, float) X(F64, double)

double value_get(pjrt_type type, const void *data, size_t index)
{
    switch (type) {
#define GET(name, ctype) \
    case PJRT_##name:    \
        return (double)((const ctype *)data)[index];
        VALUE_TYPES(GET)
#undef GET
    case PJRT_PRED:
        return ((const unsigned char *)data)[index] != 0;
    case PJRT_F16:
        return half_to_double(((const uint16_t *)data)[index]);
    case PJRT_BF16:
        return float_of_bits((uint32_t)((const uint16_t *)data)[index] << 16);
    case PJRT_C64:
        return ((const float *)data)[2 * index];
    case PJRT_C128:
        return ((const double *)data)[2 * index];
    case PJRT_TYPE_INVALID:
        break;
    }
    return 0;
}

void value_set(pjrt_type type, void *data, size_t index, double value)
{
    switch (type) {
#define SET(name, ctype)                       \
    case PJRT_##name:                          \
        ((ctype *)data)[index] = (ctype)value; \
        return;
        VALUE_TYPES(SET)
#undef SET
    case PJRT_PRED:
        ((unsigned char *)data)[index] = value != 0;
        return;
    case PJRT_F16:
        ((uint16_t *)data)[index] = half_of_double(value);
        return;
    case PJRT_BF16:
        ((uint16_t *)data)[index] = bfloat_of_double(value);
        return;
    case PJRT_C64:
        ((float *)data)[2 * index] = (float)value;
        ((float *)data)[2 * index + 1] = 0;
        return;
    case PJRT_C128:
        ((double *)data)[2 * index] = value;
        ((double *)data)[2 * index + 1] = 0;
        return;
    case PJRT_TYPE_INVALID:
        return;
    }
}
