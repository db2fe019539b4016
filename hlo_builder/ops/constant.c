/* Constants: splats, which the other operations compute with (fold.h), and dense arrays. */
#include "hlo_builder/fold.h"
#include "hlo_builder/graph.h"

#include <math.h>

/* ---- splats ---- */

bool hlo__splat_of(const hlo_graph *g, hlo_val v, hlo_number *number)
{
    /* A bad handle is no splat; it becomes an error where it is used. */
    if (v.graph != g->serial || v.id == 0 || v.id > g->n_values)
        return false;
    const hlo_node *node = g->values[v.id - 1]->node;
    while (node->op == HLO_OP_BROADCAST)
        node = node->in[0]->node;
    const hlo_constant_attrs *attrs = node->attrs;
    if (node->op != HLO_OP_CONSTANT || !attrs->splat)
        return false;
    *number = (hlo_number){attrs->real, attrs->integer};
    return true;
}

bool hlo__is_splat(const hlo_graph *g, hlo_val v, double *value)
{
    hlo_number number;
    if (!hlo__splat_of(g, v, &number))
        return false;
    *value = number.real;
    return true;
}

hlo_val hlo__splat(hlo_graph *g, hlo_shape shape, hlo_number number)
{
    hlo_constant_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.splat = 1;
    attrs.real = number.real;
    attrs.integer = number.integer;
    return hlo__add1(g, HLO_OP_CONSTANT, NULL, 0, shape, &attrs, sizeof attrs);
}

static bool check_shape(hlo_graph *g, hlo_op op, const hlo_shape *shape)
{
    if (hlo__failed(g))
        return false;
    if (!hlo__shape_ok(shape))
        hlo__fail_op(g, op, NULL, 0, "not a shape (type %d, rank %d)", (int)shape->type,
                     shape->rank);
    return !hlo__failed(g);
}

/* An integer type takes its own numbers only; 2.5 or -1 for an unsigned one is a mistake. */
static bool number_from_double(hlo_type type, double value, hlo_number *number)
{
    if (hlo_type_is_float(type)) {
        *number = hlo__float_number(type, value);
        return true;
    }
    if (!(fabs(value) < 0x1p64) || (value < 0 && value < -0x1p63))
        return false;
    *number = hlo__int_number(type, value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value);
    return number->real == value;
}

hlo_val hlo_full(hlo_graph *g, hlo_shape shape, double value)
{
    hlo_number number;
    if (!check_shape(g, HLO_OP_CONSTANT, &shape))
        return (hlo_val){0};
    if (!number_from_double(shape.type, value, &number)) {
        hlo__fail_op(g, HLO_OP_CONSTANT, NULL, 0, "%.17g is no number of type %s", value,
                     hlo_type_name(shape.type));
        return (hlo_val){0};
    }
    return hlo__splat(g, shape, number);
}

hlo_val hlo_scalar(hlo_graph *g, hlo_type type, double value)
{
    return hlo_full(g, HLO_SCALAR(type), value);
}

/* For u64 the value is 64 bits: -1 is its largest number. */
static bool number_from_int(hlo_type type, int64_t value, hlo_number *number)
{
    if (hlo_type_is_float(type)) {
        *number = type == HLO_F32 ? hlo__float_number(type, (float)value)
                                  : hlo__float_number(type, (double)value);
        return true;
    }
    *number = hlo__int_number(type, (uint64_t)value);
    return number->integer == value;
}

hlo_val hlo_scalar_int(hlo_graph *g, hlo_type type, int64_t value)
{
    hlo_shape shape = HLO_SCALAR(type);
    hlo_number number;
    if (!check_shape(g, HLO_OP_CONSTANT, &shape))
        return (hlo_val){0};
    if (!number_from_int(type, value, &number)) {
        hlo__fail_op(g, HLO_OP_CONSTANT, NULL, 0, "%lld is no number of type %s", (long long)value,
                     hlo_type_name(type));
        return (hlo_val){0};
    }
    return hlo__splat(g, shape, number);
}

hlo_val hlo_like(hlo_graph *g, hlo_val v, double value)
{
    hlo_value *like;
    if (!hlo__values(g, HLO_OP_CONSTANT, &v, 1, &like))
        return (hlo_val){0};
    return hlo_scalar(g, like->shape.type, value);
}

hlo_val hlo_zeros_like(hlo_graph *g, hlo_val v)
{
    hlo_value *like;
    if (!hlo__values(g, HLO_OP_CONSTANT, &v, 1, &like))
        return (hlo_val){0};
    return hlo_full(g, like->shape, 0);
}

/* ---- arrays ---- */

hlo_val hlo_constant(hlo_graph *g, hlo_shape shape, const void *data)
{
    if (!check_shape(g, HLO_OP_CONSTANT, &shape))
        return (hlo_val){0};
    int64_t size, elements = hlo_shape_elements(&shape);
    int64_t width = hlo_type_bits(shape.type) / 8;
    if (elements == 0)
        return hlo_full(g, shape, 0);
    if (data == NULL || __builtin_mul_overflow(elements, width, &size)) {
        hlo__fail_op(g, HLO_OP_CONSTANT, NULL, 0, data == NULL ? "no data" : "too large");
        return (hlo_val){0};
    }
    const char *bytes = data;
    if (memcmp(bytes, bytes + width, (size_t)(size - width)) == 0)
        return hlo__splat(g, shape, hlo__read_number(shape.type, data));
    hlo_constant_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    char *copy = hlo__copy(g, data, (size_t)size);
    if (copy == NULL)
        return (hlo_val){0};
    for (int64_t i = 0; shape.type == HLO_PRED && i < size; i++)
        copy[i] = copy[i] != 0;
    attrs.data = copy;
    return hlo__add1(g, HLO_OP_CONSTANT, NULL, 0, shape, &attrs, sizeof attrs);
}

hlo_val hlo_iota(hlo_graph *g, hlo_shape shape, int dim)
{
    hlo_dim_attrs attrs = {dim < 0 ? dim + (int64_t)shape.rank : dim};
    if (!check_shape(g, HLO_OP_IOTA, &shape))
        return (hlo_val){0};
    if (shape.type == HLO_PRED)
        hlo__fail_op(g, HLO_OP_IOTA, NULL, 0, "it counts in numbers, not in i1");
    else if (attrs.dim < 0 || attrs.dim >= shape.rank)
        hlo__fail_op(g, HLO_OP_IOTA, NULL, 0, "dimension %d of a shape of rank %d", dim,
                     shape.rank);
    return hlo__add1(g, HLO_OP_IOTA, NULL, 0, shape, &attrs, sizeof attrs);
}
