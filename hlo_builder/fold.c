/*
 * Arithmetic on single numbers, as the element types have it. Floats are computed in double and
 * rounded once, so a folded number is at least as good as the backend's.
 */
#include "hlo_builder/fold.h"

#include <math.h>

char hlo__type_kind(hlo_type type)
{
    switch (type) {
#define TYPE_KIND(name, spelling, bits, kind) \
    case HLO_##name:                          \
        return kind;
        HLO_TYPES(TYPE_KIND)
#undef TYPE_KIND
    default:
        return '?';
    }
}

/* ---- numbers of a type ---- */

/* To `precision` bits, the last of them no less than 2^lowest; beyond `largest` is infinity. */
static double round_to(double value, int precision, int lowest, double largest)
{
    if (!isfinite(value) || value == 0)
        return value;
    int exponent;
    frexp(value, &exponent);
    int last = exponent - precision > lowest ? exponent - precision : lowest;
    double rounded = ldexp(nearbyint(ldexp(value, -last)), last);
    return fabs(rounded) > largest ? copysign(INFINITY, value) : rounded;
}

hlo_number hlo__float_number(hlo_type type, double value)
{
    hlo_number n = {.real = value};
    switch (type) {
    case HLO_F32:
        n.real = round_to(value, 24, -149, 0x1.fffffep127);
        break;
    case HLO_BF16:
        n.real = round_to(value, 8, -133, 0x1.fep127);
        break;
    case HLO_F16:
        n.real = round_to(value, 11, -24, 65504);
        break;
    default:
        break;
    }
    if (isnan(n.real))
        n.real = NAN; /* one NaN for all, so that they merge */
    return n;
}

hlo_number hlo__int_number(hlo_type type, uint64_t bits)
{
    hlo_number n = {0};
    switch (type) {
    case HLO_S64:
    case HLO_U64:
        n.integer = (int64_t)bits;
        break;
    case HLO_S32:
        n.integer = (int32_t)(uint32_t)bits;
        break;
    case HLO_S8:
        n.integer = (int8_t)(uint8_t)bits;
        break;
    case HLO_U32:
        n.integer = (uint32_t)bits;
        break;
    case HLO_U16:
        n.integer = (uint16_t)bits;
        break;
    case HLO_U8:
        n.integer = (uint8_t)bits;
        break;
    default:
        n.integer = bits & 1;
        break;
    }
    n.real = type == HLO_U64 ? (double)bits : (double)n.integer;
    return n;
}

/* A binary float of 16 bits, of which `fraction` are the fraction. */
static double read_half(uint16_t bits, int fraction)
{
    int exponent_bits = 15 - fraction;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = bits >> fraction & ((1 << exponent_bits) - 1);
    int low = bits & ((1 << fraction) - 1);
    double magnitude;
    if (exponent == (1 << exponent_bits) - 1)
        magnitude = low != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(low, 1 - bias - fraction);
    else
        magnitude = ldexp(low + (1 << fraction), exponent - bias - fraction);
    return bits >> 15 ? -magnitude : magnitude;
}

hlo_number hlo__read_number(hlo_type type, const void *bytes)
{
    uint64_t bits = 0;
    uint16_t half;
    float single;
    double real = 0;
    switch (type) {
    case HLO_F64:
        memcpy(&real, bytes, sizeof real);
        return hlo__float_number(type, real);
    case HLO_F32:
        memcpy(&single, bytes, sizeof single);
        return hlo__float_number(type, single);
    case HLO_F16:
    case HLO_BF16:
        memcpy(&half, bytes, sizeof half);
        return hlo__float_number(type, read_half(half, type == HLO_F16 ? 10 : 7));
    case HLO_PRED:
        return hlo__int_number(type, *(const uint8_t *)bytes != 0);
    default:
        for (int i = hlo_type_bits(type) / 8 - 1; i >= 0; i--)
            bits = bits << 8 | ((const uint8_t *)bytes)[i]; /* hosts are little-endian */
        return hlo__int_number(type, bits);
    }
}

/* ---- operations ---- */

static double sign_of(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x; /* keeps NaN and both zeros */
}

static bool float_unary(hlo_op op, double x, double *y)
{
    switch (op) {
    case HLO_OP_neg:
        *y = -x;
        return true;
    case HLO_OP_abs:
        *y = fabs(x);
        return true;
    case HLO_OP_sign:
        *y = sign_of(x);
        return true;
    case HLO_OP_floor:
        *y = floor(x);
        return true;
    case HLO_OP_ceil:
        *y = ceil(x);
        return true;
    case HLO_OP_exp:
        *y = exp(x);
        return true;
    case HLO_OP_expm1:
        *y = expm1(x);
        return true;
    case HLO_OP_log:
        *y = log(x);
        return true;
    case HLO_OP_log1p:
        *y = log1p(x);
        return true;
    case HLO_OP_tanh:
        *y = tanh(x);
        return true;
    case HLO_OP_logistic:
        *y = 1 / (1 + exp(-x));
        return true;
    case HLO_OP_sqrt:
        *y = sqrt(x);
        return true;
    case HLO_OP_rsqrt:
        *y = 1 / sqrt(x);
        return true;
    case HLO_OP_sin:
        *y = sin(x);
        return true;
    case HLO_OP_cos:
        *y = cos(x);
        return true;
    case HLO_OP_ERF:
        *y = erf(x);
        return true;
    default:
        return false;
    }
}

bool hlo__fold_unary(hlo_op op, hlo_type type, hlo_number x, hlo_number *out)
{
    uint64_t bits = (uint64_t)x.integer;
    if (hlo_type_is_float(type)) {
        double y;
        if (!float_unary(op, x.real, &y))
            return false;
        *out = hlo__float_number(type, y);
        return true;
    }
    switch (op) {
    case HLO_OP_neg:
        bits = 0 - bits;
        break;
    case HLO_OP_abs:
        bits = x.integer < 0 ? 0 - bits : bits;
        break;
    case HLO_OP_sign:
        bits = (uint64_t)(int64_t)((x.integer > 0) - (x.integer < 0));
        break;
    case HLO_OP_not:
        bits = ~bits;
        break;
    default:
        return false;
    }
    *out = hlo__int_number(type, bits);
    return true;
}

/* NaN wins, and of two zeros the one that `larger` asks for. */
static double extreme(double a, double b, bool larger)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return (signbit(a) != 0) == larger ? b : a;
    return (a > b) == larger ? a : b;
}

static bool float_binary(hlo_op op, double a, double b, double *y)
{
    switch (op) {
    case HLO_OP_add:
        *y = a + b;
        return true;
    case HLO_OP_sub:
        *y = a - b;
        return true;
    case HLO_OP_mul:
        *y = a * b;
        return true;
    case HLO_OP_div:
        *y = a / b;
        return true;
    case HLO_OP_rem:
        *y = fmod(a, b);
        return true;
    case HLO_OP_pow:
        *y = pow(a, b);
        return true;
    case HLO_OP_max:
        *y = extreme(a, b, true);
        return true;
    case HLO_OP_min:
        *y = extreme(a, b, false);
        return true;
    default:
        return false;
    }
}

static bool less(hlo_type type, hlo_number a, hlo_number b)
{
    if (hlo_type_is_float(type))
        return a.real < b.real;
    return hlo__type_kind(type) == 's' ? a.integer < b.integer
                                       : (uint64_t)a.integer < (uint64_t)b.integer;
}

static bool divide(hlo_op op, hlo_type type, hlo_number a, hlo_number b, uint64_t *y)
{
    bool is_signed = hlo__type_kind(type) == 's';
    uint64_t x = (uint64_t)a.integer, by = (uint64_t)b.integer;
    if (by == 0 || (is_signed && b.integer == -1)) /* the latter may overflow */
        return false;
    if (is_signed)
        *y = (uint64_t)(op == HLO_OP_div ? a.integer / b.integer : a.integer % b.integer);
    else
        *y = op == HLO_OP_div ? x / by : x % by;
    return true;
}

/* Shifts are of the type's own bits: a signed number moves right as if it were unsigned. */
static uint64_t shift(hlo_op op, hlo_type type, uint64_t x, uint64_t by)
{
    uint64_t width = (uint64_t)hlo_type_bits(type);
    if (by >= width)
        return 0;
    return op == HLO_OP_shift_left ? x << by : (x & (~UINT64_C(0) >> (64 - width))) >> by;
}

bool hlo__fold_binary(hlo_op op, hlo_type type, hlo_number a, hlo_number b, hlo_number *out)
{
    uint64_t x = (uint64_t)a.integer, y = (uint64_t)b.integer;
    if (hlo_type_is_float(type)) {
        double real;
        if (!float_binary(op, a.real, b.real, &real))
            return false;
        *out = hlo__float_number(type, real);
        return true;
    }
    switch (op) {
    case HLO_OP_add:
        x += y;
        break;
    case HLO_OP_sub:
        x -= y;
        break;
    case HLO_OP_mul:
        x *= y;
        break;
    case HLO_OP_div:
    case HLO_OP_rem:
        if (!divide(op, type, a, b, &x))
            return false;
        break;
    case HLO_OP_max:
        x = less(type, a, b) ? y : x;
        break;
    case HLO_OP_min:
        x = less(type, b, a) ? y : x;
        break;
    case HLO_OP_and:
        x &= y;
        break;
    case HLO_OP_or:
        x |= y;
        break;
    case HLO_OP_xor:
        x ^= y;
        break;
    case HLO_OP_shift_left:
    case HLO_OP_shift_right:
        x = shift(op, type, x, y);
        break;
    default:
        return false;
    }
    *out = hlo__int_number(type, x);
    return true;
}

bool hlo__fold_compare(hlo_compare_kind kind, hlo_type type, hlo_number a, hlo_number b)
{
    bool equal = hlo_type_is_float(type) ? a.real == b.real : a.integer == b.integer;
    switch (kind) {
    case HLO_EQ:
        return equal;
    case HLO_NE:
        return !equal;
    case HLO_LT:
        return less(type, a, b);
    case HLO_LE:
        return less(type, a, b) || equal;
    case HLO_GT:
        return less(type, b, a);
    case HLO_GE:
        return less(type, b, a) || equal;
    }
    return false;
}

bool hlo__fold_convert(hlo_type from, hlo_number x, hlo_type to, hlo_number *out)
{
    if (hlo_type_is_float(to)) {
        /* An integer that a double does not hold would be rounded twice. */
        if (!hlo_type_is_float(from) && fabs(x.real) > 0x1p53)
            return false;
        *out = hlo__float_number(to, x.real);
        return true;
    }
    if (to == HLO_PRED) {
        *out = hlo__int_number(to, x.real != 0);
        return true;
    }
    if (!hlo_type_is_float(from)) {
        *out = hlo__int_number(to, (uint64_t)x.integer);
        return true;
    }
    double whole = trunc(x.real);
    if (!(fabs(whole) <= 0x1p53)) /* NaN too */
        return false;
    *out = hlo__int_number(to, (uint64_t)(int64_t)whole);
    return out->real == whole;
}
