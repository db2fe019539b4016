/*
 * Elementwise operations. Operands of different shapes are broadcast here, so that a node's have
 * one shape; operations on splat constants are done here; neutral constants go away.
 *
 * What goes away is always a constant. An operation never looks through another to what that was
 * made from: the value in between may be one that a gradient is asked for.
 */
#include "hlo_builder/dims.h"
#include "hlo_builder/fold.h"

static const hlo_val null_value;

/* ---- types ---- */

/* The kinds of element types that an operation takes, as hlo__type_kind tells them. */
static const char *kinds_of(hlo_op op)
{
    switch (op) {
    case HLO_OP_neg:
    case HLO_OP_abs:
    case HLO_OP_sign:
        return "fs";
    case HLO_OP_not:
    case HLO_OP_and:
    case HLO_OP_or:
    case HLO_OP_xor:
        return "sup";
    case HLO_OP_shift_left:
    case HLO_OP_shift_right:
        return "su";
    case HLO_OP_add:
    case HLO_OP_sub:
    case HLO_OP_mul:
    case HLO_OP_div:
    case HLO_OP_rem:
    case HLO_OP_pow:
    case HLO_OP_max:
    case HLO_OP_min:
    case HLO_OP_CLAMP:
        return "fsu";
    default:
        return "f";
    }
}

static const char *kinds_text(const char *kinds)
{
    return strcmp(kinds, "f") == 0     ? "floats"
           : strcmp(kinds, "fs") == 0  ? "floats and signed integers"
           : strcmp(kinds, "fsu") == 0 ? "numbers"
           : strcmp(kinds, "su") == 0  ? "integers"
                                       : "integers and predicates";
}

/* One type for the operands from `first` on, and, when `kinds` is given, of these. */
static bool check_types(hlo_graph *g, hlo_op op, const hlo_val *in, int n, int first,
                        const char *kinds)
{
    hlo_type type = hlo_type_of(g, in[first]);
    for (int i = first + 1; i < n; i++) {
        if (hlo_type_of(g, in[i]) != type) {
            hlo__fail_op(g, op, in, n, "operands are of different types");
            return false;
        }
    }
    if (kinds != NULL && strchr(kinds, hlo__type_kind(type)) == NULL) {
        hlo__fail_op(g, op, in, n, "takes %s, not %s", kinds_text(kinds), hlo_type_name(type));
        return false;
    }
    return true;
}

/* ---- broadcasting ---- */

/* The shape all operands broadcast to; false when they do not go together. */
static bool common_dims(hlo_graph *g, hlo_op op, const hlo_val *in, int n, hlo_dims *dims)
{
    *dims = HLO_NO_DIMS;
    for (int i = 0; i < n; i++)
        dims->n = hlo_rank(g, in[i]) > dims->n ? hlo_rank(g, in[i]) : dims->n;
    for (int64_t k = 0; k < dims->n; k++) {
        dims->d[k] = 1;
        for (int i = 0; i < n; i++) {
            const hlo_shape *shape = hlo_shape_of(g, in[i]);
            int64_t own = k - (dims->n - shape->rank);
            int64_t size = own < 0 ? 1 : shape->dims[own];
            if (size != 1 && dims->d[k] != 1 && size != dims->d[k]) {
                hlo__fail_op(g, op, in, n, "shapes do not broadcast: %lld and %lld in a dimension",
                             (long long)dims->d[k], (long long)size);
                return false;
            }
            dims->d[k] = size != 1 ? size : dims->d[k];
        }
    }
    hlo_shape shape = hlo__shape_with(HLO_F32, dims);
    if (!hlo__shape_ok(&shape))
        hlo__fail_op(g, op, in, n, "too many elements");
    return !hlo__failed(g);
}

static hlo_val add_broadcast(hlo_graph *g, hlo_op op, const hlo_val *in, int n, hlo_type type,
                             const hlo_dims *dims, const void *attrs, size_t attrs_size)
{
    hlo_val full[3];
    for (int i = 0; i < n; i++)
        full[i] = hlo_broadcast_to(g, in[i], *dims);
    return hlo__add1(g, op, full, n, hlo__shape_with(type, dims), attrs, attrs_size);
}

/* ---- unary ---- */

static hlo_val unary(hlo_graph *g, hlo_op op, hlo_val x)
{
    hlo_value *value;
    hlo_number number;
    if (!hlo__values(g, op, &x, 1, &value) || !check_types(g, op, &x, 1, 0, kinds_of(op)))
        return null_value;
    if (hlo__splat_of(g, x, &number) && hlo__fold_unary(op, value->shape.type, number, &number))
        return hlo__splat(g, value->shape, number);
    return hlo__add1(g, op, &x, 1, value->shape, NULL, 0);
}

#define DEFINE_UNARY(name, spelling)            \
    hlo_val hlo_##name(hlo_graph *g, hlo_val x) \
    {                                           \
        return unary(g, HLO_OP_##name, x);      \
    }
HLO_UNARY_OPS(DEFINE_UNARY)
#undef DEFINE_UNARY

hlo_val hlo_erf(hlo_graph *g, hlo_val x)
{
    return unary(g, HLO_OP_ERF, x);
}

/* ---- binary ---- */

/* Whether `op` with this number on its right gives its left operand. (For a float -0, adding 0
 * makes 0 of it: that much is let go.) */
static bool neutral_right(hlo_op op, hlo_type type, hlo_number number)
{
    switch (op) {
    case HLO_OP_add:
    case HLO_OP_sub:
    case HLO_OP_or:
    case HLO_OP_xor:
    case HLO_OP_shift_left:
    case HLO_OP_shift_right:
        return number.real == 0;
    case HLO_OP_mul:
    case HLO_OP_div:
    case HLO_OP_pow:
        return number.real == 1;
    case HLO_OP_and:
        return number.integer == hlo__int_number(type, ~UINT64_C(0)).integer;
    default:
        return false;
    }
}

static bool neutral_left(hlo_op op, hlo_type type, hlo_number number)
{
    bool commutes = op == HLO_OP_add || op == HLO_OP_mul || op == HLO_OP_and || op == HLO_OP_or ||
                    op == HLO_OP_xor;
    return commutes && neutral_right(op, type, number);
}

static hlo_val binary(hlo_graph *g, hlo_op op, hlo_val a, hlo_val b)
{
    hlo_val in[2] = {a, b};
    hlo_value *values[2];
    hlo_dims dims;
    if (!hlo__values(g, op, in, 2, values) || !check_types(g, op, in, 2, 0, kinds_of(op)) ||
        !common_dims(g, op, in, 2, &dims))
        return null_value;
    hlo_type type = values[0]->shape.type;
    hlo_number left, right, result;
    bool left_known = hlo__splat_of(g, a, &left), right_known = hlo__splat_of(g, b, &right);
    if (left_known && right_known && hlo__fold_binary(op, type, left, right, &result))
        return hlo__splat(g, hlo__shape_with(type, &dims), result);
    if (right_known && neutral_right(op, type, right))
        return hlo_broadcast_to(g, a, dims);
    if (left_known && neutral_left(op, type, left))
        return hlo_broadcast_to(g, b, dims);
    return add_broadcast(g, op, in, 2, type, &dims, NULL, 0);
}

#define DEFINE_BINARY(name, spelling)                      \
    hlo_val hlo_##name(hlo_graph *g, hlo_val a, hlo_val b) \
    {                                                      \
        return binary(g, HLO_OP_##name, a, b);             \
    }
HLO_BINARY_OPS(DEFINE_BINARY)
#undef DEFINE_BINARY

/* ---- comparing and choosing ---- */

hlo_val hlo_compare(hlo_graph *g, hlo_compare_kind kind, hlo_val a, hlo_val b)
{
    hlo_val in[2] = {a, b};
    hlo_value *values[2];
    hlo_dims dims;
    hlo_compare_attrs attrs = {(int64_t)kind};
    if (!hlo__values(g, HLO_OP_COMPARE, in, 2, values) ||
        !check_types(g, HLO_OP_COMPARE, in, 2, 0, NULL) ||
        !common_dims(g, HLO_OP_COMPARE, in, 2, &dims))
        return null_value;
    if (attrs.kind < HLO_EQ || attrs.kind > HLO_GE) {
        hlo__fail_op(g, HLO_OP_COMPARE, in, 2, "there is no comparison %d", (int)kind);
        return null_value;
    }
    hlo_number left, right;
    if (hlo__splat_of(g, a, &left) && hlo__splat_of(g, b, &right)) {
        bool holds = hlo__fold_compare(kind, values[0]->shape.type, left, right);
        return hlo__splat(g, hlo__shape_with(HLO_PRED, &dims), hlo__int_number(HLO_PRED, holds));
    }
    return add_broadcast(g, HLO_OP_COMPARE, in, 2, HLO_PRED, &dims, &attrs, sizeof attrs);
}

hlo_val hlo_select(hlo_graph *g, hlo_val pred, hlo_val on_true, hlo_val on_false)
{
    hlo_val in[3] = {pred, on_true, on_false};
    hlo_value *values[3];
    hlo_dims dims;
    if (!hlo__values(g, HLO_OP_SELECT, in, 3, values))
        return null_value;
    if (values[0]->shape.type != HLO_PRED) {
        hlo__fail_op(g, HLO_OP_SELECT, in, 3, "the first operand is not a predicate");
        return null_value;
    }
    if (!check_types(g, HLO_OP_SELECT, in, 3, 1, NULL) ||
        !common_dims(g, HLO_OP_SELECT, in, 3, &dims))
        return null_value;
    hlo_number chosen;
    if (values[1] == values[2])
        return hlo_broadcast_to(g, on_true, dims);
    if (hlo__splat_of(g, pred, &chosen))
        return hlo_broadcast_to(g, chosen.integer != 0 ? on_true : on_false, dims);
    return add_broadcast(g, HLO_OP_SELECT, in, 3, values[1]->shape.type, &dims, NULL, 0);
}

hlo_val hlo_clamp(hlo_graph *g, hlo_val low, hlo_val x, hlo_val high)
{
    hlo_val in[3] = {low, x, high};
    hlo_value *values[3];
    hlo_dims dims;
    if (!hlo__values(g, HLO_OP_CLAMP, in, 3, values) ||
        !check_types(g, HLO_OP_CLAMP, in, 3, 0, kinds_of(HLO_OP_CLAMP)) ||
        !common_dims(g, HLO_OP_CLAMP, in, 3, &dims))
        return null_value;
    hlo_type type = values[1]->shape.type;
    hlo_number l, n, h;
    if (hlo__splat_of(g, low, &l) && hlo__splat_of(g, x, &n) && hlo__splat_of(g, high, &h) &&
        hlo__fold_binary(HLO_OP_max, type, l, n, &n) &&
        hlo__fold_binary(HLO_OP_min, type, n, h, &n))
        return hlo__splat(g, hlo__shape_with(type, &dims), n);
    return add_broadcast(g, HLO_OP_CLAMP, in, 3, type, &dims, NULL, 0);
}

/* ---- other types ---- */

hlo_val hlo_convert(hlo_graph *g, hlo_val x, hlo_type type)
{
    hlo_value *value;
    if (!hlo__values(g, HLO_OP_CONVERT, &x, 1, &value))
        return null_value;
    hlo_shape shape = value->shape;
    if (hlo_type_bits(type) == 0) {
        hlo__fail_op(g, HLO_OP_CONVERT, &x, 1, "there is no type %d", (int)type);
        return null_value;
    }
    if (shape.type == type)
        return x;
    hlo_number number;
    bool known =
        hlo__splat_of(g, x, &number) && hlo__fold_convert(shape.type, number, type, &number);
    shape.type = type;
    return known ? hlo__splat(g, shape, number)
                 : hlo__add1(g, HLO_OP_CONVERT, &x, 1, shape, NULL, 0);
}

hlo_val hlo_bitcast(hlo_graph *g, hlo_val x, hlo_type type)
{
    hlo_value *value;
    if (!hlo__values(g, HLO_OP_BITCAST, &x, 1, &value))
        return null_value;
    hlo_shape shape = value->shape;
    if (shape.type == type)
        return x;
    /* A predicate is one bit to StableHLO, whatever it takes in memory. */
    if (hlo_type_bits(type) != hlo_type_bits(shape.type) || type == HLO_PRED ||
        shape.type == HLO_PRED) {
        hlo__fail_op(g, HLO_OP_BITCAST, &x, 1, "to %s, which has another number of bits",
                     hlo_type_name(type));
        return null_value;
    }
    shape.type = type;
    return hlo__add1(g, HLO_OP_BITCAST, &x, 1, shape, NULL, 0);
}
