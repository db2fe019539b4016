/* Element types and shapes. */
#include "hlo_builder/internal.h"

#include <stdio.h>

typedef struct type_info {
    const char *name;
    int bits;
    char kind;
} type_info;

static type_info info(hlo_type type)
{
    static const type_info table[] = {[HLO_TYPE_NONE] = {"?", 0, '?'},
#define TYPE_INFO(name, spelling, bits, kind) [HLO_##name] = {spelling, bits, kind},
                                      HLO_TYPES(TYPE_INFO)
#undef TYPE_INFO
    };
    size_t n = sizeof table / sizeof *table;
    return table[(size_t)type < n ? type : HLO_TYPE_NONE];
}

const char *hlo_type_name(hlo_type type)
{
    return info(type).name;
}

int hlo_type_bits(hlo_type type)
{
    return info(type).bits;
}

bool hlo_type_is_float(hlo_type type)
{
    return info(type).kind == 'f';
}

bool hlo__shape_ok(const hlo_shape *shape)
{
    if (info(shape->type).bits == 0 || shape->rank < 0 || shape->rank > HLO_MAX_RANK)
        return false;
    int64_t elements = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dims[i];
        if (dim < 0 || __builtin_mul_overflow(elements, dim > 0 ? dim : 1, &elements))
            return false;
    }
    return true;
}

int64_t hlo_shape_elements(const hlo_shape *shape)
{
    int64_t elements = 1;
    if (shape->rank < 0 || shape->rank > HLO_MAX_RANK)
        return -1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0 || __builtin_mul_overflow(elements, shape->dims[i], &elements))
            return -1;
    }
    return elements;
}

bool hlo_shape_equal(const hlo_shape *a, const hlo_shape *b)
{
    return a->type == b->type && a->rank == b->rank && a->rank >= 0 && a->rank <= HLO_MAX_RANK &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

char *hlo_shape_text(const hlo_shape *shape, char text[HLO_SHAPE_TEXT])
{
    int n = snprintf(text, HLO_SHAPE_TEXT, "%s[", hlo_type_name(shape->type));
    for (int i = 0; i < shape->rank && i < HLO_MAX_RANK; i++)
        n += snprintf(text + n, (size_t)(HLO_SHAPE_TEXT - n), "%s%lld", i == 0 ? "" : ",",
                      (long long)shape->dims[i]);
    snprintf(text + n, (size_t)(HLO_SHAPE_TEXT - n), "]");
    return text;
}
