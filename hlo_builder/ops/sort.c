/* Sorting, the k largest, and random numbers. */
#include "hlo_builder/dims.h"

/* ---- sort ---- */

static bool check_sort(hlo_graph *g, const hlo_val *arrays, int n, int *dim)
{
    const hlo_shape *key = hlo_shape_of(g, arrays[0]);
    if (key->type == HLO_PRED)
        hlo__fail_op(g, HLO_OP_SORT, arrays, n, "the key is numbers, not predicates");
    if (*dim < 0)
        *dim += key->rank;
    if (*dim < 0 || *dim >= key->rank)
        hlo__fail_op(g, HLO_OP_SORT, arrays, n, "the key has no dimension %d", *dim);
    for (int i = 1; i < n; i++) {
        hlo_shape shape = *hlo_shape_of(g, arrays[i]);
        shape.type = key->type;
        if (!hlo_shape_equal(&shape, key))
            hlo__fail_op(g, HLO_OP_SORT, arrays, n, "array %d differs from the key in shape", i);
    }
    return !hlo__failed(g);
}

void hlo_sort(hlo_graph *g, const hlo_val *arrays, int n, int dim, bool descending, hlo_val *out)
{
    if (hlo__failed(g) && n > 0)
        memset(out, 0, (size_t)n * sizeof *out);
    if (hlo__failed(g))
        return;
    if (n < 1) {
        hlo_fail(g, HLO_ERROR_VALUE, "sort: of %d arrays", n);
        return;
    }
    hlo_value **values = hlo__alloc(g, (size_t)n * sizeof *values);
    hlo_shape *shapes = hlo__alloc(g, (size_t)n * sizeof *shapes);
    hlo_sort_attrs attrs = {.descending = descending};
    hlo_node *node = NULL;
    if (!hlo__failed(g) && hlo__values(g, HLO_OP_SORT, arrays, n, values) &&
        check_sort(g, arrays, n, &dim)) {
        attrs.dim = dim;
        for (int i = 0; i < n; i++)
            shapes[i] = values[i]->shape;
        node = hlo__add(g, HLO_OP_SORT, arrays, n, shapes, n, &attrs, sizeof attrs);
    }
    for (int i = 0; i < n; i++)
        out[i] = hlo__out(node, i);
}

/* The numbers of the elements along the sorted dimension, in the array's shape. */
static hlo_val places(hlo_graph *g, const hlo_shape *shape, int dim)
{
    hlo_shape s = *shape;
    s.type = HLO_S32;
    return hlo_iota(g, s, dim);
}

/* Where each element of the results came from. The node itself may have sorted that along, as
 * hlo_top_k does; otherwise it is sorted again with it: sorting is stable, so it ends the same. */
static hlo_val origins(hlo_graph *g, const hlo_node *node)
{
    const hlo_sort_attrs *attrs = node->attrs;
    for (int i = 1; i < node->n_in; i++) {
        const hlo_node *from = node->in[i]->node;
        if (from->op == HLO_OP_IOTA && node->in[i]->shape.type == HLO_S32 &&
            ((const hlo_dim_attrs *)from->attrs)->dim == attrs->dim)
            return hlo__out(node, i);
    }
    hlo_val in[2] = {hlo__in(g, node, 0), places(g, &node->in[0]->shape, (int)attrs->dim)};
    hlo_val out[2];
    hlo_sort(g, in, 2, (int)attrs->dim, attrs->descending, out);
    return out[1];
}

/* Gradients go back to where the elements came from: sorted by that, they are there. Unlike a
 * scatter this is fast on every backend. */
void hlo__vjp_sort(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                   hlo_val *d_in)
{
    const hlo_sort_attrs *attrs = node->attrs;
    hlo_val *sorted = hlo__alloc(g, 2 * (size_t)(node->n_in + 1) * sizeof *sorted);
    if (sorted == NULL)
        return;
    hlo_val *back = sorted + node->n_in + 1;
    int n = 1;
    for (int i = 0; i < node->n_in; i++) {
        if (wanted[i] && d_out[i].id != 0)
            sorted[n++] = d_out[i];
    }
    if (n == 1)
        return;
    if (hlo_dim(g, hlo__in(g, node, 0), (int)attrs->dim) > INT32_MAX) {
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "sort: no gradient of more than 2^31 - 1 elements");
        return;
    }
    sorted[0] = origins(g, node);
    hlo_sort(g, sorted, n, (int)attrs->dim, false, back);
    n = 1;
    for (int i = 0; i < node->n_in; i++) {
        if (wanted[i] && d_out[i].id != 0)
            d_in[i] = back[n++];
    }
}

void hlo_top_k(hlo_graph *g, hlo_val x, int64_t k, hlo_val *values, hlo_val *indices)
{
    *values = *indices = (hlo_val){0};
    hlo_value *value;
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_SORT, &x, 1, &value))
        return;
    int last = value->shape.rank - 1;
    int64_t length = last < 0 ? 0 : value->shape.dims[last];
    if (last < 0 || k < 0 || k > length || length > INT32_MAX) {
        hlo__fail_op(g, HLO_OP_SORT, &x, 1, "top_k: the %lld largest of %lld", (long long)k,
                     (long long)length);
        return;
    }
    hlo_val in[2] = {x, places(g, &value->shape, last)}, out[2];
    hlo_sort(g, in, 2, last, true, out);
    *values = hlo_slice_dim(g, out[0], last, 0, k);
    *indices = hlo_slice_dim(g, out[1], last, 0, k);
}

/* ---- random ---- */

static bool is_unsigned(hlo_type type)
{
    return type == HLO_U64 || type == HLO_U32 || type == HLO_U16 || type == HLO_U8;
}

hlo_val hlo_random_bits(hlo_graph *g, hlo_val state, hlo_shape shape, hlo_val *next_state)
{
    *next_state = (hlo_val){0};
    hlo_value *value;
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_RANDOM_BITS, &state, 1, &value))
        return (hlo_val){0};
    hlo_shape state_shape = HLO_SHAPE(HLO_U64, 2);
    if (!hlo_shape_equal(&value->shape, &state_shape)) {
        hlo__fail_op(g, HLO_OP_RANDOM_BITS, &state, 1, "the state is ui64[2]");
        return (hlo_val){0};
    }
    if (!hlo__shape_ok(&shape) || !is_unsigned(shape.type)) {
        hlo__fail_op(g, HLO_OP_RANDOM_BITS, &state, 1, "bits are of an unsigned type, not %s",
                     hlo_type_name(shape.type));
        return (hlo_val){0};
    }
    for (int i = shape.rank; i < HLO_MAX_RANK; i++)
        shape.dims[i] = 0;
    if (hlo_shape_elements(&shape) == 0) {
        *next_state = state;
        return hlo_full(g, shape, 0);
    }
    /* The shape is an attribute too: nodes that differ only in later results must not be merged. */
    hlo_shape shapes[2] = {state_shape, shape};
    hlo_node *node = hlo__add(g, HLO_OP_RANDOM_BITS, &state, 1, shapes, 2, &shape, sizeof shape);
    *next_state = hlo__out(node, 0);
    return hlo__out(node, 1);
}

/* Binary digits that every number in [0, 1) of that distance can have. */
static int digits(hlo_type type)
{
    switch (type) {
    case HLO_F64:
        return 53;
    case HLO_F32:
        return 24;
    case HLO_F16:
        return 11;
    case HLO_BF16:
        return 8;
    default:
        return 0;
    }
}

/*
 * As many random bits as the type has digits, over two to that power. All steps are exact, for the
 * short types too, so that nothing is ever rounded up to 1.
 */
hlo_val hlo_random_uniform(hlo_graph *g, hlo_val state, hlo_shape shape, hlo_val *next_state)
{
    *next_state = (hlo_val){0};
    hlo_value *value;
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_RANDOM_BITS, &state, 1, &value))
        return (hlo_val){0};
    hlo_type type = shape.type;
    if (!hlo__shape_ok(&shape) || !hlo_type_is_float(type)) {
        hlo__fail_op(g, HLO_OP_RANDOM_BITS, &state, 1, "uniform numbers are floats, not %s",
                     hlo_type_name(type));
        return (hlo_val){0};
    }
    shape.type = type == HLO_F64 ? HLO_U64 : HLO_U32;
    hlo_val bits = hlo_random_bits(g, state, shape, next_state);
    int surplus = hlo_type_bits(shape.type) - digits(type);
    bits = hlo_shift_right(g, bits, hlo_scalar_int(g, shape.type, surplus));
    hlo_val x = hlo_convert(g, bits, hlo__wide_type(type));
    double unit = 1.0 / (double)((uint64_t)1 << digits(type));
    return hlo_convert(g, hlo_mul(g, x, hlo_like(g, x, unit)), type);
}
