/*
 * Gather and scatter-add.
 *
 * Out of range is as StableHLO has it: a gather moves the window to the nearest place where it
 * fits, a scatter leaves out an update whose window does not fit. The gradients do the same.
 */
#include "hlo_builder/dims.h"
#include "hlo_builder/fold.h"

/* What is wrong with the dimension numbers for such an operand and indices, or NULL; cleans them.
 * `rank` is that of a gather's result or of a scatter's updates. */
static const char *check_dims(const hlo_shape *x, const hlo_shape *indices, hlo_gather_dims *d,
                              int64_t rank)
{
    if (!hlo__is_integer(indices->type))
        return "indices are integers";
    if (d->index_vector_dim < 0 || d->index_vector_dim > indices->rank)
        return "index_vector_dim is no dimension of the indices, nor the one behind them";
    if (!hlo__dims_distinct(&d->offset, rank) || !hlo__dims_sorted(&d->offset))
        return "offset dimensions are dimensions of the result in ascending order";
    if (!hlo__dims_distinct(&d->collapsed, x->rank) || !hlo__dims_sorted(&d->collapsed))
        return "collapsed dimensions are dimensions of the operand in ascending order";
    if (!hlo__dims_distinct(&d->operand_batch, x->rank) || !hlo__dims_sorted(&d->operand_batch))
        return "batching dimensions are dimensions of the operand in ascending order";
    if (!hlo__dims_distinct(&d->indices_batch, indices->rank) ||
        d->indices_batch.n != d->operand_batch.n ||
        hlo__dims_have(&d->indices_batch, d->index_vector_dim))
        return "batching dimensions of the indices are as many as those of the operand, and not "
               "the index_vector_dim";
    if (!hlo__dims_distinct(&d->start_map, x->rank))
        return "the start map names different dimensions of the operand";
    int64_t components =
        d->index_vector_dim < indices->rank ? indices->dims[d->index_vector_dim] : 1;
    if (d->start_map.n != components)
        return "the start map has as many entries as an index has components";
    for (int64_t i = 0; i < d->operand_batch.n; i++) {
        if (hlo__dims_have(&d->collapsed, d->operand_batch.d[i]) ||
            hlo__dims_have(&d->start_map, d->operand_batch.d[i]))
            return "a batching dimension is neither collapsed nor in the start map";
        if (x->dims[d->operand_batch.d[i]] != indices->dims[d->indices_batch.d[i]])
            return "batching dimensions have equal sizes";
    }
    if (d->offset.n + d->collapsed.n + d->operand_batch.n != x->rank)
        return "offset, collapsed and batching dimensions are as many as the operand has";
    return NULL;
}

/* The rank of a gather's result: the indices' dimensions but the one along which an index lies, and
 * the window's. -1 for a list that is none. */
static int64_t result_rank(const hlo_shape *indices, const hlo_gather_dims *d)
{
    if (d->offset.n < 0 || d->offset.n > HLO_MAX_RANK)
        return -1;
    return indices->rank - (d->index_vector_dim < indices->rank ? 1 : 0) + d->offset.n;
}

/* Whether dimension i of the operand is one of the window's in the result. */
static bool is_offset(const hlo_gather_dims *d, int i)
{
    return !hlo__dims_have(&d->collapsed, i) && !hlo__dims_have(&d->operand_batch, i);
}

/* The shape of a gather's result: the window's dimensions in their places, those of the indices in
 * the others. */
static hlo_dims result_dims(const hlo_shape *x, const hlo_shape *indices, const hlo_gather_dims *d,
                            const hlo_dims *window)
{
    hlo_dims result = {0}, sizes = {0};
    for (int i = 0; i < x->rank; i++) {
        if (is_offset(d, i))
            hlo__dims_push(&sizes, window->d[i]);
    }
    int64_t rank = result_rank(indices, d), from_window = 0, from_indices = 0;
    for (int64_t i = 0; i < rank; i++) {
        if (hlo__dims_have(&d->offset, i)) {
            hlo__dims_push(&result, sizes.d[from_window++]);
        } else {
            from_indices += from_indices == d->index_vector_dim;
            hlo__dims_push(&result, indices->dims[from_indices++]);
        }
    }
    return result;
}

static const char *check_window(const hlo_shape *x, const hlo_gather_dims *d, hlo_dims *window)
{
    if (!hlo__dims_clean(window) || window->n != x->rank)
        return "the window has as many dimensions as the operand";
    for (int i = 0; i < x->rank; i++) {
        if (window->d[i] < 0 || window->d[i] > x->dims[i])
            return "the window does not fit into the operand";
        if (!is_offset(d, i) && window->d[i] != 1)
            return "the window is 1 along collapsed and batching dimensions";
    }
    return NULL;
}

hlo_val hlo_gather(hlo_graph *g, hlo_val x, hlo_val indices, const hlo_gather_dims *dims,
                   hlo_dims window)
{
    const hlo_val in[2] = {x, indices};
    hlo_value *values[2];
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_GATHER, in, 2, values))
        return (hlo_val){0};
    const hlo_shape *xs = &values[0]->shape, *is = &values[1]->shape;
    hlo_gather_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.dims = *dims;
    attrs.window = window;
    int64_t rank = result_rank(is, dims);
    const char *wrong = rank > HLO_MAX_RANK ? "the result has too many dimensions"
                                            : check_dims(xs, is, &attrs.dims, rank);
    if (wrong == NULL)
        wrong = check_window(xs, &attrs.dims, &attrs.window);
    hlo_shape shape = {0};
    if (wrong == NULL) {
        hlo_dims result = result_dims(xs, is, &attrs.dims, &attrs.window);
        shape = hlo__shape_with(xs->type, &result);
        if (!hlo__shape_ok(&shape))
            wrong = "the result has too many elements";
    }
    if (wrong != NULL) {
        hlo__fail_op(g, HLO_OP_GATHER, in, 2, "%s", wrong);
        return (hlo_val){0};
    }
    return hlo__add1(g, HLO_OP_GATHER, in, 2, shape, &attrs, sizeof attrs);
}

/* The window that updates of that shape have, in the operand's dimensions. */
static hlo_dims updates_window(const hlo_shape *x, const hlo_shape *updates,
                               const hlo_gather_dims *d)
{
    hlo_dims window = {0};
    int64_t from = 0;
    for (int i = 0; i < x->rank; i++)
        hlo__dims_push(&window, is_offset(d, i) ? updates->dims[d->offset.d[from++]] : 1);
    return window;
}

static const char *check_updates(const hlo_shape *x, const hlo_shape *indices,
                                 const hlo_shape *updates, hlo_gather_dims *d)
{
    if (x->type != updates->type || x->type == HLO_PRED)
        return "the operand and the updates are numbers of one type";
    if (result_rank(indices, d) != updates->rank)
        return "the updates have the dimensions of the indices and of the window";
    const char *wrong = check_dims(x, indices, d, updates->rank);
    if (wrong != NULL)
        return wrong;
    hlo_dims window = updates_window(x, updates, d);
    for (int i = 0; i < x->rank; i++) {
        if (is_offset(d, i) && window.d[i] > x->dims[i])
            return "the updates' window does not fit into the operand";
    }
    hlo_dims expected = result_dims(x, indices, d, &window);
    hlo_shape shape = hlo__shape_with(updates->type, &expected);
    return hlo_shape_equal(&shape, updates) ? NULL
                                            : "the updates do not have the sizes of the indices";
}

/* Short floats are added up in f32, like every sum here: one row of an embedding may receive
 * thousands of updates. */
hlo_val hlo_scatter_add(hlo_graph *g, hlo_val x, hlo_val indices, hlo_val updates,
                        const hlo_gather_dims *dims)
{
    hlo_val in[3] = {x, indices, updates};
    hlo_value *values[3];
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_SCATTER_ADD, in, 3, values))
        return (hlo_val){0};
    hlo_gather_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.dims = *dims;
    const char *wrong =
        check_updates(&values[0]->shape, &values[1]->shape, &values[2]->shape, &attrs.dims);
    if (wrong != NULL) {
        hlo__fail_op(g, HLO_OP_SCATTER_ADD, in, 3, "%s", wrong);
        return (hlo_val){0};
    }
    if (hlo_shape_elements(&values[0]->shape) == 0 || hlo_shape_elements(&values[2]->shape) == 0)
        return x;
    hlo_shape shape = values[0]->shape;
    hlo_type type = shape.type;
    shape.type = hlo__wide_type(type);
    in[0] = hlo_convert(g, x, shape.type);
    in[2] = hlo_convert(g, updates, shape.type);
    return hlo_convert(g, hlo__add1(g, HLO_OP_SCATTER_ADD, in, 3, shape, &attrs, sizeof attrs),
                       type);
}

/* ---- gradients ---- */

/* The largest number of an integer type, as far as an int64 goes. */
static int64_t type_max(hlo_type type)
{
    int bits = hlo_type_bits(type) - (hlo__type_kind(type) == 's' ? 1 : 0);
    return bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
}

/* The last place at which the window fits, for each component of the indices and in their shape and
 * type: a scalar when all are the same. */
static hlo_val last_places(hlo_graph *g, const hlo_value *indices, const hlo_shape *x,
                           const hlo_gather_dims *d, const hlo_dims *window)
{
    hlo_type type = indices->shape.type;
    hlo_val parts[HLO_MAX_RANK];
    bool same = true;
    int64_t first = 0;
    for (int64_t i = 0; i < d->start_map.n; i++) {
        int64_t dim = d->start_map.d[i], last = x->dims[dim] - window->d[dim];
        last = last > type_max(type) ? type_max(type) : last;
        first = i == 0 ? last : first;
        same = same && last == first;
        parts[i] = hlo_broadcast_to(g, hlo_scalar_int(g, type, last), HLO_DIMS(1));
    }
    if (same)
        return hlo_scalar_int(g, type, first);
    hlo_val vector = hlo_concat(g, parts, (int)d->start_map.n, 0);
    return hlo_broadcast(g, vector, hlo__dims_of(&indices->shape), HLO_DIMS(d->index_vector_dim));
}

void hlo__vjp_gather(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                     hlo_val *d_in)
{
    const hlo_gather_attrs *attrs = node->attrs;
    const hlo_shape *x = &node->in[0]->shape;
    if (!wanted[0] || d_out[0].id == 0 || hlo_shape_elements(&node->out[0]->shape) == 0)
        return;
    hlo_val last = last_places(g, node->in[1], x, &attrs->dims, &attrs->window);
    hlo_val zero = hlo_scalar_int(g, node->in[1]->shape.type, 0);
    hlo_val indices = hlo_min(g, hlo_max(g, hlo__in(g, node, 1), zero), last);
    d_in[0] = hlo_scatter_add(g, hlo_full(g, *x, 0), indices, d_out[0], &attrs->dims);
}

/* Where the updates' windows fit: a predicate of the updates' shape. */
static hlo_val fits(hlo_graph *g, const hlo_node *node, const hlo_dims *window)
{
    const hlo_gather_dims *d = &((const hlo_gather_attrs *)node->attrs)->dims;
    const hlo_shape *indices = &node->in[1]->shape, *updates = &node->in[2]->shape;
    hlo_val index = hlo__in(g, node, 1);
    hlo_val last = last_places(g, node->in[1], &node->in[0]->shape, d, window);
    hlo_val fit = hlo_and(g, hlo_compare(g, HLO_GE, index, hlo_scalar_int(g, indices->type, 0)),
                          hlo_compare(g, HLO_LE, index, last));
    if (d->index_vector_dim < indices->rank)
        fit = hlo_reduce(g, HLO_REDUCE_AND, fit, HLO_DIMS(d->index_vector_dim));
    return hlo_broadcast(g, fit, hlo__dims_of(updates),
                         hlo__dims_others(&d->offset, updates->rank));
}

void hlo__vjp_scatter_add(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                          const bool *wanted, hlo_val *d_in)
{
    const hlo_gather_attrs *attrs = node->attrs;
    if (d_out[0].id == 0)
        return;
    if (wanted[0])
        d_in[0] = d_out[0];
    if (wanted[2]) {
        hlo_dims window = updates_window(&node->in[0]->shape, &node->in[2]->shape, &attrs->dims);
        hlo_val d = hlo_gather(g, d_out[0], hlo__in(g, node, 1), &attrs->dims, window);
        d_in[2] = hlo_select(g, fits(g, node, &window), d, hlo_like(g, d, 0));
    }
}

/* ---- rows of a table ---- */

hlo_val hlo_take(hlo_graph *g, hlo_val table, hlo_val indices)
{
    const hlo_val in[2] = {table, indices};
    hlo_value *values[2];
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_GATHER, in, 2, values))
        return (hlo_val){0};
    const hlo_shape *xs = &values[0]->shape, *is = &values[1]->shape;
    hlo_shape result = {.type = xs->type, .rank = is->rank + xs->rank - 1};
    if (xs->rank < 1 || result.rank > HLO_MAX_RANK || !hlo__is_integer(is->type)) {
        hlo__fail_op(g, HLO_OP_GATHER, in, 2,
                     "take is of a table [rows, ...] and integer indices, %d dimensions at most",
                     HLO_MAX_RANK);
        return (hlo_val){0};
    }
    hlo_gather_dims dims;
    memset(&dims, 0, sizeof dims);
    hlo_dims window = HLO_DIMS(1);
    memcpy(result.dims, is->dims, (size_t)is->rank * sizeof *is->dims);
    for (int i = 1; i < xs->rank; i++) {
        hlo__dims_push(&dims.offset, is->rank + i - 1);
        hlo__dims_push(&window, xs->dims[i]);
        result.dims[is->rank + i - 1] = xs->dims[i];
    }
    if (xs->dims[0] == 0 && hlo__shape_ok(&result) && hlo_shape_elements(&result) == 0)
        return hlo_full(g, result, 0); /* nothing out of nothing */
    dims.collapsed = HLO_DIMS(0);
    dims.start_map = HLO_DIMS(0);
    dims.index_vector_dim = is->rank;
    return hlo_gather(g, table, indices, &dims, window);
}
