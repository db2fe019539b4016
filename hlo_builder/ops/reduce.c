/* Reductions, cumulative sums and argmax. */
#include "hlo_builder/dims.h"

static bool kind_takes(hlo_reduce_kind kind, hlo_type type)
{
    switch (kind) {
    case HLO_REDUCE_ADD:
    case HLO_REDUCE_MUL:
    case HLO_REDUCE_MAX:
    case HLO_REDUCE_MIN:
        return type != HLO_PRED;
    case HLO_REDUCE_AND:
    case HLO_REDUCE_OR:
        return type == HLO_PRED || hlo__is_integer(type);
    }
    return false;
}

/* Dimension numbers from the end made positive, in ascending order: one form for one meaning. */
static bool normalize(hlo_dims *dims, int rank)
{
    if (!hlo__dims_clean(dims))
        return false;
    for (int64_t i = 0; i < dims->n; i++) {
        int64_t d = dims->d[i] < 0 ? dims->d[i] + rank : dims->d[i], at = i;
        for (; at > 0 && dims->d[at - 1] > d; at--)
            dims->d[at] = dims->d[at - 1];
        dims->d[at] = d;
    }
    return hlo__dims_distinct(dims, rank);
}

/* Checks a reduction of x and normalizes `dims`. */
static bool check(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, hlo_dims *dims)
{
    static const char *const names[] = {"add", "mul", "max", "min", "and", "or"};
    hlo_value *value;
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_REDUCE, &x, 1, &value))
        return false;
    const hlo_shape *shape = &value->shape;
    if ((unsigned)kind >= sizeof names / sizeof *names)
        hlo__fail_op(g, HLO_OP_REDUCE, &x, 1, "no such kind of reduction: %d", (int)kind);
    else if (!kind_takes(kind, shape->type))
        hlo__fail_op(g, HLO_OP_REDUCE, &x, 1, "\"%s\" does not go with %s", names[kind],
                     hlo_type_name(shape->type));
    else if (!normalize(dims, shape->rank))
        hlo__fail_op(g, HLO_OP_REDUCE, &x, 1,
                     "the reduced dimensions are not different dimensions of a rank %d array",
                     shape->rank);
    return !hlo__failed(g);
}

/* The reduction itself, in x's own type, of checked and normalized dimensions. */
static hlo_val reduce(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, const hlo_dims *dims)
{
    if (dims->n == 0)
        return x;
    const hlo_shape *shape = hlo_shape_of(g, x);
    hlo_reduce_attrs attrs = {.kind = kind, .dims = *dims};
    hlo_shape result = {.type = shape->type};
    for (int i = 0; i < shape->rank; i++) {
        if (!hlo__dims_have(dims, i))
            result.dims[result.rank++] = shape->dims[i];
    }
    return hlo__add1(g, HLO_OP_REDUCE, &x, 1, result, &attrs, sizeof attrs);
}

hlo_val hlo_reduce(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, hlo_dims dims)
{
    if (!check(g, kind, x, &dims))
        return (hlo_val){0};
    hlo_type type = hlo_type_of(g, x);
    if (dims.n > 0 && (kind == HLO_REDUCE_ADD || kind == HLO_REDUCE_MUL))
        x = hlo_convert(g, x, hlo__wide_type(type));
    return hlo_convert(g, reduce(g, kind, x, &dims), type);
}

hlo_val hlo_sum(hlo_graph *g, hlo_val x, hlo_dims dims)
{
    return hlo_reduce(g, HLO_REDUCE_ADD, x, dims);
}

hlo_val hlo_mean(hlo_graph *g, hlo_val x, hlo_dims dims)
{
    if (!check(g, HLO_REDUCE_ADD, x, &dims))
        return (hlo_val){0};
    const hlo_shape *shape = hlo_shape_of(g, x);
    hlo_type type = shape->type;
    if (!hlo_type_is_float(type)) {
        hlo__fail_op(g, HLO_OP_REDUCE, &x, 1, "a mean is of floats, not of %s",
                     hlo_type_name(type));
        return (hlo_val){0};
    }
    double count = 1;
    for (int64_t i = 0; i < dims.n; i++)
        count *= (double)shape->dims[dims.d[i]];
    /* Divided before it is rounded to a shorter type, where the sum might not even fit. */
    hlo_val sum = reduce(g, HLO_REDUCE_ADD, hlo_convert(g, x, hlo__wide_type(type)), &dims);
    return hlo_convert(g, hlo_div(g, sum, hlo_like(g, sum, count)), type);
}

hlo_val hlo_reduce_keep(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, hlo_dims dims)
{
    if (!check(g, kind, x, &dims))
        return (hlo_val){0};
    hlo_dims kept = hlo__dims_of(hlo_shape_of(g, x));
    for (int64_t i = 0; i < dims.n; i++)
        kept.d[dims.d[i]] = 1;
    return hlo_reshape(g, hlo_reduce(g, kind, x, dims), kept);
}

/* ---- cumulative sums and products ---- */

hlo_val hlo__shift(hlo_graph *g, hlo_val x, int dim, int64_t by, double fill)
{
    hlo_dims zero = {.n = hlo_rank(g, x)}, low = zero, high = zero;
    low.d[dim] = by;
    high.d[dim] = -by;
    return hlo_pad(g, x, hlo_like(g, x, fill), low, high, zero);
}

/*
 * Every element with all before it (behind it, for `sign` -1), in log2(length) steps, each joining
 * neighbouring runs of twice the length. All of it is pad and elementwise: compilers fuse a step
 * into one pass, and its gradient is the same thing the other way round.
 */
static hlo_val cumulate(hlo_graph *g, hlo_val x, int dim, int sign, double neutral,
                        hlo_val (*join)(hlo_graph *, hlo_val, hlo_val))
{
    int64_t length = hlo_dim(g, x, dim);
    for (int64_t step = 1; step < length && !hlo__failed(g); step *= 2)
        x = join(g, x, hlo__shift(g, x, dim, sign * step, neutral));
    return x;
}

/* A dimension number as it is given, made positive; false, and an error, when there is no such. */
static bool one_dim(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, int *dim)
{
    hlo_dims dims = HLO_DIMS(*dim);
    if (!check(g, kind, x, &dims))
        return false;
    *dim = (int)dims.d[0];
    return true;
}

hlo_val hlo_cumsum(hlo_graph *g, hlo_val x, int dim)
{
    if (!one_dim(g, HLO_REDUCE_ADD, x, &dim))
        return (hlo_val){0};
    hlo_type type = hlo_type_of(g, x);
    x = hlo_convert(g, x, hlo__wide_type(type));
    return hlo_convert(g, cumulate(g, x, dim, 1, 0, hlo_add), type);
}

/* The first place at which x equals its maximum; a NaN counts as the maximum, as in NumPy. */
hlo_val hlo_argmax(hlo_graph *g, hlo_val x, int dim)
{
    if (!one_dim(g, HLO_REDUCE_MAX, x, &dim))
        return (hlo_val){0};
    int64_t length = hlo_dim(g, x, dim);
    if (length == 0 || length > INT32_MAX) {
        hlo__fail_op(g, HLO_OP_REDUCE, &x, 1, "argmax over %lld elements", (long long)length);
        return (hlo_val){0};
    }
    hlo_dims dims = HLO_DIMS(dim);
    hlo_val most = hlo_reduce_keep(g, HLO_REDUCE_MAX, x, dims);
    hlo_val hit = hlo_compare(g, HLO_EQ, x, most);
    if (hlo_type_is_float(hlo_type_of(g, x)))
        hit = hlo_or(g, hit, hlo_compare(g, HLO_NE, x, x));
    hlo_shape places = *hlo_shape_of(g, x);
    places.type = HLO_S32;
    hlo_val place =
        hlo_select(g, hit, hlo_iota(g, places, dim), hlo_scalar_int(g, HLO_S32, length - 1));
    return hlo_reduce(g, HLO_REDUCE_MIN, place, dims);
}

/* ---- gradient ---- */

/* d of a reduction's result, repeated along the reduced dimensions. */
static hlo_val spread(hlo_graph *g, hlo_val d, const hlo_value *x, const hlo_dims *reduced)
{
    return hlo_broadcast(g, d, hlo__dims_of(&x->shape), hlo__dims_others(reduced, x->shape.rank));
}

/* Equals share the gradient of the maximum or minimum. */
static hlo_val vjp_extremum(hlo_graph *g, const hlo_node *node, const hlo_dims *dims, hlo_val d)
{
    hlo_val hit = hlo_compare(g, HLO_EQ, hlo__in(g, node, 0),
                              spread(g, hlo__out(node, 0), node->in[0], dims));
    hit = hlo_convert(g, hit, node->in[0]->shape.type);
    hlo_val share = hlo_div(g, d, hlo_sum(g, hit, *dims));
    return hlo_mul(g, hit, spread(g, share, node->in[0], dims));
}

/*
 * The derivative by an element is the product of the others. Dividing the whole by the element
 * fails at zeros, so it is made of what stands before and what stands behind: the reduced
 * dimensions become one, along which products accumulate from both ends.
 */
static hlo_val vjp_product(hlo_graph *g, const hlo_node *node, const hlo_dims *dims, hlo_val d)
{
    const hlo_shape *shape = &node->in[0]->shape;
    hlo_dims order = hlo__dims_others(dims, shape->rank), flat = {0}, moved = {0}, back = {0};
    for (int64_t i = 0; i < order.n; i++)
        hlo__dims_push(&flat, shape->dims[order.d[i]]);
    int last = (int)flat.n;
    int64_t length = 1;
    for (int64_t i = 0; i < dims->n; i++) {
        hlo__dims_push(&order, dims->d[i]);
        length *= shape->dims[dims->d[i]];
    }
    hlo__dims_push(&flat, length);
    back.n = order.n;
    for (int64_t i = 0; i < order.n; i++) {
        hlo__dims_push(&moved, shape->dims[order.d[i]]);
        back.d[order.d[i]] = i;
    }
    hlo_val x = hlo_reshape(g, hlo_transpose(g, hlo__in(g, node, 0), order), flat);
    hlo_val before = hlo__shift(g, cumulate(g, x, last, 1, 1, hlo_mul), last, 1, 1);
    hlo_val behind = hlo__shift(g, cumulate(g, x, last, -1, 1, hlo_mul), last, -1, 1);
    hlo_val others = hlo_mul(g, before, behind);
    others = hlo_transpose(g, hlo_reshape(g, others, moved), back);
    return hlo_mul(g, others, spread(g, d, node->in[0], dims));
}

void hlo__vjp_reduce(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                     hlo_val *d_in)
{
    const hlo_reduce_attrs *attrs = node->attrs;
    if (!wanted[0] || d_out[0].id == 0 || hlo_shape_elements(&node->in[0]->shape) == 0)
        return;
    switch ((hlo_reduce_kind)attrs->kind) {
    case HLO_REDUCE_ADD:
        d_in[0] = spread(g, d_out[0], node->in[0], &attrs->dims);
        break;
    case HLO_REDUCE_MUL:
        d_in[0] = vjp_product(g, node, &attrs->dims, d_out[0]);
        break;
    case HLO_REDUCE_MAX:
    case HLO_REDUCE_MIN:
        d_in[0] = vjp_extremum(g, node, &attrs->dims, d_out[0]);
        break;
    case HLO_REDUCE_AND:
    case HLO_REDUCE_OR:
        break; /* not of floats */
    }
}
