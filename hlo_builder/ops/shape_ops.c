/*
 * Operations that move elements and change none: broadcasts, reshapes, slices, joins.
 *
 * One that changes nothing returns its operand; of a splat it makes another splat. As in
 * elementwise.c, none looks through another.
 */
#include "hlo_builder/dims.h"
#include "hlo_builder/fold.h"

static const hlo_val null_value;

/* Anything larger is a mistake, and would overflow sums. */
static const int64_t far = INT64_C(1) << 60;

/* ---- checks ---- */

static bool fail(hlo_graph *g, hlo_op op, hlo_val x, const char *words)
{
    hlo__fail_op(g, op, &x, 1, "%s", words);
    return false;
}

/* The value of x, once it is there and the list of dimensions, if any, is a list at all. */
static hlo_value *begin(hlo_graph *g, hlo_op op, hlo_val x, hlo_dims *dims)
{
    hlo_value *value;
    if (!hlo__values(g, op, &x, 1, &value))
        return NULL;
    if (dims != NULL && !hlo__dims_clean(dims)) {
        hlo__fail_op(g, op, &x, 1, "a list of %lld dimensions", (long long)dims->n);
        return NULL;
    }
    return value;
}

static hlo_dims all_equal(int64_t n, int64_t value)
{
    hlo_dims dims = {.n = n};
    for (int64_t i = 0; i < n; i++)
        dims.d[i] = value;
    return dims;
}

static hlo_dims without(const hlo_dims *dims, int at)
{
    hlo_dims rest = {.n = dims->n - 1};
    for (int i = 0, k = 0; i < dims->n; i++) {
        if (i != at)
            rest.d[k++] = dims->d[i];
    }
    return rest;
}

/* Dimension `dim` of `rank`, -1 being the last; -1 and an error when there is none such. */
static int find_dim(hlo_graph *g, hlo_op op, hlo_val x, int rank, int dim)
{
    int found = dim < 0 ? dim + rank : dim;
    if (found >= 0 && found < rank)
        return found;
    hlo__fail_op(g, op, &x, 1, "there is no dimension %d in a rank of %d", dim, rank);
    return -1;
}

static bool shape_fits(hlo_graph *g, hlo_op op, hlo_val x, const hlo_shape *shape)
{
    return hlo__shape_ok(shape) ||
           fail(g, op, x, "the result has a negative dimension or too many elements");
}

/* ---- broadcast ---- */

static bool check_broadcast(hlo_graph *g, hlo_val x, const hlo_shape *shape, const hlo_dims *result,
                            hlo_dims *dims)
{
    if (dims->n != shape->rank || !hlo__dims_distinct(dims, result->n)) {
        hlo__fail_op(g, HLO_OP_BROADCAST, &x, 1,
                     "needs a different dimension of the result's %lld for each operand's",
                     (long long)result->n);
        return false;
    }
    for (int i = 0; i < shape->rank; i++) {
        int64_t size = result->d[dims->d[i]];
        if (shape->dims[i] != 1 && shape->dims[i] != size) {
            hlo__fail_op(g, HLO_OP_BROADCAST, &x, 1,
                         "dimension %d of size %lld does not repeat to %lld", i,
                         (long long)shape->dims[i], (long long)size);
            return false;
        }
    }
    return true;
}

hlo_val hlo_broadcast(hlo_graph *g, hlo_val x, hlo_dims result, hlo_dims dims)
{
    hlo_value *value = begin(g, HLO_OP_BROADCAST, x, &result);
    if (value == NULL || begin(g, HLO_OP_BROADCAST, x, &dims) == NULL)
        return null_value;
    hlo_shape shape = hlo__shape_with(value->shape.type, &result);
    if (!shape_fits(g, HLO_OP_BROADCAST, x, &shape) ||
        !check_broadcast(g, x, &value->shape, &result, &dims))
        return null_value;
    hlo_number number;
    bool in_order = true;
    for (int64_t i = 0; i < dims.n; i++)
        in_order = in_order && dims.d[i] == i;
    if (in_order && hlo_shape_equal(&shape, &value->shape))
        return x;
    if (hlo__splat_of(g, x, &number))
        return hlo__splat(g, shape, number);
    hlo_dims_attrs attrs = {dims};
    return hlo__add1(g, HLO_OP_BROADCAST, &x, 1, shape, &attrs, sizeof attrs);
}

hlo_val hlo_broadcast_to(hlo_graph *g, hlo_val x, hlo_dims result)
{
    hlo_value *value = begin(g, HLO_OP_BROADCAST, x, &result);
    if (value == NULL)
        return null_value;
    int64_t rank = value->shape.rank;
    if (rank > result.n) {
        hlo__fail_op(g, HLO_OP_BROADCAST, &x, 1, "to fewer dimensions, %lld", (long long)result.n);
        return null_value;
    }
    hlo_dims dims = {.n = rank};
    for (int64_t i = 0; i < rank; i++)
        dims.d[i] = result.n - rank + i;
    return hlo_broadcast(g, x, result, dims);
}

/* The sum over all that an element was repeated to. */
void hlo__vjp_broadcast(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                        const bool *wanted, hlo_val *d_in)
{
    if (!wanted[0])
        return;
    const hlo_dims *to = &((const hlo_dims_attrs *)node->attrs)->dims;
    const hlo_shape *x = &node->in[0]->shape, *y = &node->out[0]->shape;
    int source[HLO_MAX_RANK]; /* the operand's dimension behind one of the result's; -1 */
    for (int k = 0; k < y->rank; k++)
        source[k] = -1;
    for (int i = 0; i < x->rank; i++) {
        if (x->dims[i] == y->dims[to->d[i]])
            source[to->d[i]] = i;
    }
    hlo_dims summed = HLO_NO_DIMS, order = HLO_NO_DIMS;
    int left[HLO_MAX_RANK]; /* the operand's dimensions in the order the sum leaves them */
    int n_left = 0;
    for (int k = 0; k < y->rank; k++) {
        if (source[k] < 0)
            summed.d[summed.n++] = k;
        else
            left[n_left++] = source[k];
    }
    for (int i = 0; i < x->rank; i++) {
        for (int k = 0; k < n_left; k++) {
            if (left[k] == i)
                order.d[order.n++] = k;
        }
    }
    hlo_val d = summed.n == 0 ? d_out[0] : hlo_sum(g, d_out[0], summed);
    d_in[0] = hlo_reshape(g, hlo_transpose(g, d, order), hlo__dims_of(x));
}

/* ---- reshape, transpose, reverse ---- */

/* Fills in the dimension given as -1. */
static bool infer_dim(hlo_graph *g, hlo_val x, int64_t elements, hlo_dims *dims)
{
    int64_t unknown = -1, known = 1;
    for (int64_t i = 0; i < dims->n; i++) {
        if (dims->d[i] == -1 && unknown >= 0)
            return fail(g, HLO_OP_RESHAPE, x, "only one dimension may be -1");
        if (dims->d[i] == -1)
            unknown = i;
        else if (dims->d[i] < 0 || __builtin_mul_overflow(known, dims->d[i], &known))
            return fail(g, HLO_OP_RESHAPE, x, "a dimension is negative or too large");
    }
    if (unknown >= 0 && (known == 0 || elements % known != 0)) {
        hlo__fail_op(g, HLO_OP_RESHAPE, &x, 1,
                     "no size for the dimension of -1: the others make %lld", (long long)known);
        return false;
    }
    if (unknown >= 0)
        dims->d[unknown] = elements / known;
    else if (known != elements)
        hlo__fail_op(g, HLO_OP_RESHAPE, &x, 1, "%lld elements into %lld", (long long)elements,
                     (long long)known);
    return !hlo__failed(g);
}

hlo_val hlo_reshape(hlo_graph *g, hlo_val x, hlo_dims dims)
{
    hlo_value *value = begin(g, HLO_OP_RESHAPE, x, &dims);
    if (value == NULL || !infer_dim(g, x, hlo_shape_elements(&value->shape), &dims))
        return null_value;
    hlo_number number;
    hlo_shape shape = hlo__shape_with(value->shape.type, &dims);
    if (hlo_shape_equal(&shape, &value->shape))
        return x;
    if (!shape_fits(g, HLO_OP_RESHAPE, x, &shape))
        return null_value;
    if (hlo__splat_of(g, x, &number))
        return hlo__splat(g, shape, number);
    return hlo__add1(g, HLO_OP_RESHAPE, &x, 1, shape, NULL, 0);
}

void hlo__vjp_reshape(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                      hlo_val *d_in)
{
    if (wanted[0])
        d_in[0] = hlo_reshape(g, d_out[0], hlo__dims_of(&node->in[0]->shape));
}

hlo_val hlo_transpose(hlo_graph *g, hlo_val x, hlo_dims permutation)
{
    hlo_value *value = begin(g, HLO_OP_TRANSPOSE, x, &permutation);
    if (value == NULL)
        return null_value;
    if (permutation.n != value->shape.rank ||
        !hlo__dims_distinct(&permutation, value->shape.rank)) {
        fail(g, HLO_OP_TRANSPOSE, x, "that is no permutation of its dimensions");
        return null_value;
    }
    hlo_dims_attrs attrs = {permutation};
    hlo_shape shape = value->shape;
    bool moves = false;
    for (int i = 0; i < shape.rank; i++) {
        shape.dims[i] = value->shape.dims[permutation.d[i]];
        moves = moves || permutation.d[i] != i;
    }
    hlo_number number;
    if (!moves)
        return x;
    if (hlo__splat_of(g, x, &number))
        return hlo__splat(g, shape, number);
    return hlo__add1(g, HLO_OP_TRANSPOSE, &x, 1, shape, &attrs, sizeof attrs);
}

void hlo__vjp_transpose(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                        const bool *wanted, hlo_val *d_in)
{
    const hlo_dims *permutation = &((const hlo_dims_attrs *)node->attrs)->dims;
    hlo_dims inverse = {.n = permutation->n};
    for (int64_t i = 0; i < permutation->n; i++)
        inverse.d[permutation->d[i]] = i;
    if (wanted[0])
        d_in[0] = hlo_transpose(g, d_out[0], inverse);
}

hlo_val hlo_reverse(hlo_graph *g, hlo_val x, hlo_dims dims)
{
    hlo_value *value = begin(g, HLO_OP_REVERSE, x, &dims);
    if (value == NULL)
        return null_value;
    if (!hlo__dims_distinct(&dims, value->shape.rank)) {
        fail(g, HLO_OP_REVERSE, x, "those are not different dimensions of it");
        return null_value;
    }
    hlo_number number;
    hlo_dims_attrs attrs = {dims};
    if (dims.n == 0 || hlo__splat_of(g, x, &number))
        return x;
    return hlo__add1(g, HLO_OP_REVERSE, &x, 1, value->shape, &attrs, sizeof attrs);
}

void hlo__vjp_reverse(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                      hlo_val *d_in)
{
    if (wanted[0])
        d_in[0] = hlo_reverse(g, d_out[0], ((const hlo_dims_attrs *)node->attrs)->dims);
}

/* ---- slice ---- */

hlo_val hlo_slice(hlo_graph *g, hlo_val x, hlo_dims start, hlo_dims limit, hlo_dims stride)
{
    hlo_value *value = begin(g, HLO_OP_SLICE, x, NULL);
    if (value == NULL)
        return null_value;
    hlo_shape shape = value->shape;
    if (start.n != shape.rank || limit.n != shape.rank || stride.n != shape.rank) {
        fail(g, HLO_OP_SLICE, x, "needs a start, a limit and a stride for every dimension");
        return null_value;
    }
    for (int i = 0; i < shape.rank; i++) {
        if (start.d[i] < 0 || start.d[i] > limit.d[i] || limit.d[i] > shape.dims[i] ||
            stride.d[i] < 1 || stride.d[i] > far) {
            hlo__fail_op(g, HLO_OP_SLICE, &x, 1, "[%lld, %lld) by %lld in dimension %d",
                         (long long)start.d[i], (long long)limit.d[i], (long long)stride.d[i], i);
            return null_value;
        }
        int64_t length = limit.d[i] - start.d[i];
        shape.dims[i] = length / stride.d[i] + (length % stride.d[i] != 0);
    }
    hlo_number number;
    if (hlo_shape_equal(&shape, &value->shape))
        return x; /* as many elements as before can only be all of them, in order */
    if (hlo__splat_of(g, x, &number))
        return hlo__splat(g, shape, number);
    hlo__dims_clean(&start);
    hlo__dims_clean(&limit);
    hlo__dims_clean(&stride);
    hlo_slice_attrs attrs = {start, limit, stride};
    return hlo__add1(g, HLO_OP_SLICE, &x, 1, shape, &attrs, sizeof attrs);
}

hlo_val hlo_slice_dim(hlo_graph *g, hlo_val x, int dim, int64_t start, int64_t limit)
{
    hlo_value *value = begin(g, HLO_OP_SLICE, x, NULL);
    int at = value == NULL ? -1 : find_dim(g, HLO_OP_SLICE, x, value->shape.rank, dim);
    if (at < 0)
        return null_value;
    int64_t size = value->shape.dims[at];
    hlo_dims starts = all_equal(value->shape.rank, 0), limits = hlo__dims_of(&value->shape);
    starts.d[at] = start < 0 ? start + size : start;
    limits.d[at] = limit < 0 ? limit + size : limit;
    return hlo_slice(g, x, starts, limits, all_equal(value->shape.rank, 1));
}

/* Zeros where nothing was taken from. */
void hlo__vjp_slice(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                    hlo_val *d_in)
{
    const hlo_slice_attrs *attrs = node->attrs;
    const hlo_shape *x = &node->in[0]->shape, *y = &node->out[0]->shape;
    hlo_dims high = {.n = x->rank}, interior = {.n = x->rank};
    for (int i = 0; i < x->rank; i++) {
        int64_t gaps = y->dims[i] > 1 ? y->dims[i] - 1 : 0;
        interior.d[i] = gaps == 0 ? 0 : attrs->stride.d[i] - 1;
        high.d[i] = x->dims[i] - attrs->start.d[i] - y->dims[i] - gaps * interior.d[i];
    }
    if (wanted[0])
        d_in[0] = hlo_pad(g, d_out[0], hlo_like(g, d_out[0], 0), attrs->start, high, interior);
}

/* ---- slices at places known only at run time ---- */

enum { MAX_DYNAMIC = HLO_MAX_RANK + 2 };

/* The starts behind the n operands that `in` holds already; all integer scalars of one type. */
static bool check_starts(hlo_graph *g, hlo_op op, hlo_val *in, int n, int rank,
                         const hlo_val *starts)
{
    if (rank > 0 && starts == NULL)
        return fail(g, op, in[0], "no starts");
    for (int i = 0; i < rank; i++)
        in[n + i] = starts[i];
    hlo_value *values[MAX_DYNAMIC];
    if (!hlo__values(g, op, in, n + rank, values))
        return false;
    for (int i = n; i < n + rank; i++) {
        const hlo_shape *shape = &values[i]->shape;
        char kind = hlo__type_kind(shape->type), text[HLO_SHAPE_TEXT];
        if (shape->rank != 0 || (kind != 's' && kind != 'u')) {
            hlo__fail_op(g, op, in, 1, "start %d is %s, not an integer scalar", i - n,
                         hlo_shape_text(shape, text));
            return false;
        }
        if (shape->type != values[n]->shape.type)
            return fail(g, op, in[0], "the starts are of different types");
    }
    return true;
}

/* The slice that constant starts ask for, moved inside as at run time; false: not constant. */
static bool known_starts(const hlo_graph *g, const hlo_shape *x, const hlo_val *starts,
                         const hlo_dims *sizes, hlo_dims *start, hlo_dims *limit)
{
    *start = *limit = (hlo_dims){.n = x->rank};
    for (int i = 0; i < x->rank; i++) {
        hlo_number number = {0};
        int64_t last = x->dims[i] - sizes->d[i];
        if (last > 0 && !hlo__splat_of(g, starts[i], &number))
            return false;
        /* A u64 beyond 2^63 has a negative integer and a large real part. */
        int64_t at = number.real < 0 ? 0 : number.real > (double)last ? last : number.integer;
        start->d[i] = at > last ? last : at;
        limit->d[i] = start->d[i] + sizes->d[i];
    }
    return true;
}

hlo_val hlo_dynamic_slice(hlo_graph *g, hlo_val x, const hlo_val *starts, hlo_dims sizes)
{
    hlo_val in[MAX_DYNAMIC] = {x};
    hlo_value *value = begin(g, HLO_OP_DYNAMIC_SLICE, x, &sizes);
    if (value == NULL || !check_starts(g, HLO_OP_DYNAMIC_SLICE, in, 1, value->shape.rank, starts))
        return null_value;
    hlo_shape shape = value->shape;
    if (sizes.n != shape.rank) {
        fail(g, HLO_OP_DYNAMIC_SLICE, x, "needs a size for every dimension");
        return null_value;
    }
    for (int i = 0; i < shape.rank; i++) {
        if (sizes.d[i] < 0 || sizes.d[i] > shape.dims[i]) {
            hlo__fail_op(g, HLO_OP_DYNAMIC_SLICE, &x, 1, "a size of %lld in dimension %d",
                         (long long)sizes.d[i], i);
            return null_value;
        }
        shape.dims[i] = sizes.d[i];
    }
    hlo_dims start, limit;
    hlo_number number;
    if (known_starts(g, &value->shape, starts, &sizes, &start, &limit))
        return hlo_slice(g, x, start, limit, all_equal(shape.rank, 1));
    if (hlo__splat_of(g, x, &number))
        return hlo__splat(g, shape, number);
    hlo_dims_attrs attrs = {sizes};
    return hlo__add1(g, HLO_OP_DYNAMIC_SLICE, in, 1 + shape.rank, shape, &attrs, sizeof attrs);
}

hlo_val hlo_dynamic_update(hlo_graph *g, hlo_val x, hlo_val update, const hlo_val *starts)
{
    hlo_val in[MAX_DYNAMIC] = {x, update};
    hlo_value *values[2];
    if (!hlo__values(g, HLO_OP_DYNAMIC_UPDATE, in, 2, values) ||
        !check_starts(g, HLO_OP_DYNAMIC_UPDATE, in, 2, values[0]->shape.rank, starts))
        return null_value;
    const hlo_shape *shape = &values[0]->shape, *part = &values[1]->shape;
    bool fits = part->type == shape->type && part->rank == shape->rank;
    for (int i = 0; fits && i < shape->rank; i++)
        fits = part->dims[i] <= shape->dims[i];
    if (!fits) {
        hlo__fail_op(g, HLO_OP_DYNAMIC_UPDATE, in, 2, "the update does not fit into the array");
        return null_value;
    }
    if (hlo_shape_equal(shape, part))
        return update;
    if (hlo_shape_elements(part) == 0)
        return x;
    return hlo__add1(g, HLO_OP_DYNAMIC_UPDATE, in, 2 + shape->rank, *shape, NULL, 0);
}

static const hlo_val *starts_of(hlo_graph *g, const hlo_node *node, int first, hlo_val *starts)
{
    for (int i = first; i < node->n_in; i++)
        starts[i - first] = hlo__in(g, node, i);
    return starts;
}

void hlo__vjp_dynamic_slice(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                            const bool *wanted, hlo_val *d_in)
{
    hlo_val starts[MAX_DYNAMIC];
    if (wanted[0])
        d_in[0] = hlo_dynamic_update(g, hlo_full(g, node->in[0]->shape, 0), d_out[0],
                                     starts_of(g, node, 1, starts));
}

void hlo__vjp_dynamic_update(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                             const bool *wanted, hlo_val *d_in)
{
    hlo_val starts[MAX_DYNAMIC];
    starts_of(g, node, 2, starts);
    const hlo_shape *update = &node->in[1]->shape;
    if (wanted[0])
        d_in[0] = hlo_dynamic_update(g, d_out[0], hlo_full(g, *update, 0), starts);
    if (wanted[1])
        d_in[1] = hlo_dynamic_slice(g, d_out[0], starts, hlo__dims_of(update));
}

/* Starts that are 0 but for one. */
static void index_starts(hlo_graph *g, int rank, int dim, hlo_val index, hlo_val *starts)
{
    for (int i = 0; i < rank; i++)
        starts[i] = i == dim ? index : hlo_like(g, index, 0);
}

hlo_val hlo_index(hlo_graph *g, hlo_val x, int dim, hlo_val index)
{
    hlo_value *value = begin(g, HLO_OP_DYNAMIC_SLICE, x, NULL);
    int at = value == NULL ? -1 : find_dim(g, HLO_OP_DYNAMIC_SLICE, x, value->shape.rank, dim);
    if (at < 0)
        return null_value;
    hlo_val starts[HLO_MAX_RANK];
    hlo_dims sizes = hlo__dims_of(&value->shape);
    sizes.d[at] = 1;
    index_starts(g, value->shape.rank, at, index, starts);
    return hlo_reshape(g, hlo_dynamic_slice(g, x, starts, sizes), without(&sizes, at));
}

hlo_val hlo_update_index(hlo_graph *g, hlo_val x, int dim, hlo_val index, hlo_val update)
{
    hlo_val in[2] = {x, update};
    hlo_value *values[2];
    if (!hlo__values(g, HLO_OP_DYNAMIC_UPDATE, in, 2, values))
        return null_value;
    int rank = values[0]->shape.rank;
    int at = find_dim(g, HLO_OP_DYNAMIC_UPDATE, x, rank, dim);
    if (at < 0)
        return null_value;
    hlo_val starts[HLO_MAX_RANK];
    hlo_dims one = hlo__dims_of(&values[0]->shape);
    one.d[at] = 1;
    hlo_dims rest = without(&one, at);
    hlo_shape element = hlo__shape_with(values[0]->shape.type, &rest);
    if (!hlo_shape_equal(&element, &values[1]->shape)) {
        hlo__fail_op(g, HLO_OP_DYNAMIC_UPDATE, in, 2,
                     "the update is not an element along dimension %d", at);
        return null_value;
    }
    index_starts(g, rank, at, index, starts);
    return hlo_dynamic_update(g, x, hlo_reshape(g, update, one), starts);
}

/* ---- pad ---- */

static bool padded_size(int64_t size, int64_t low, int64_t high, int64_t interior, int64_t *result)
{
    int64_t inside;
    if (low < -far || low > far || high < -far || high > far || interior < 0 ||
        __builtin_mul_overflow(size > 0 ? size - 1 : 0, interior, &inside) || inside > far ||
        size > far)
        return false;
    *result = low + size + inside + high;
    return *result >= 0;
}

hlo_val hlo_pad(hlo_graph *g, hlo_val x, hlo_val value, hlo_dims low, hlo_dims high,
                hlo_dims interior)
{
    hlo_val in[2] = {x, value};
    hlo_value *values[2];
    if (!hlo__values(g, HLO_OP_PAD, in, 2, values))
        return null_value;
    hlo_shape shape = values[0]->shape;
    if (values[1]->shape.rank != 0 || values[1]->shape.type != shape.type) {
        hlo__fail_op(g, HLO_OP_PAD, in, 2, "it is padded with a scalar of its type");
        return null_value;
    }
    if (low.n != shape.rank || high.n != shape.rank || interior.n != shape.rank) {
        hlo__fail_op(g, HLO_OP_PAD, in, 2, "needs a low, high and interior for every dimension");
        return null_value;
    }
    bool changes = false;
    for (int i = 0; i < shape.rank; i++) {
        if (!padded_size(shape.dims[i], low.d[i], high.d[i], interior.d[i], &shape.dims[i])) {
            hlo__fail_op(g, HLO_OP_PAD, in, 2, "by %lld, %lld, between %lld in dimension %d",
                         (long long)low.d[i], (long long)high.d[i], (long long)interior.d[i], i);
            return null_value;
        }
        changes = changes || low.d[i] != 0 || high.d[i] != 0 || interior.d[i] != 0;
    }
    hlo_number inner, outer;
    if (!changes)
        return x;
    if (!shape_fits(g, HLO_OP_PAD, x, &shape))
        return null_value;
    if (hlo__splat_of(g, x, &inner) && hlo__splat_of(g, value, &outer) &&
        memcmp(&inner, &outer, sizeof inner) == 0)
        return hlo__splat(g, shape, inner);
    hlo__dims_clean(&low);
    hlo__dims_clean(&high);
    hlo__dims_clean(&interior);
    hlo_pad_attrs attrs = {low, high, interior};
    return hlo__add1(g, HLO_OP_PAD, in, 2, shape, &attrs, sizeof attrs);
}

hlo_val hlo_shift(hlo_graph *g, hlo_val x, int dim, int64_t by)
{
    hlo_value *value = begin(g, HLO_OP_PAD, x, NULL);
    int at = value == NULL ? -1 : find_dim(g, HLO_OP_PAD, x, value->shape.rank, dim);
    if (at < 0)
        return null_value;
    hlo_dims none = all_equal(value->shape.rank, 0), low = none, high = none;
    low.d[at] = by;
    high.d[at] = -by;
    return hlo_pad(g, x, hlo_like(g, x, 0), low, high, none);
}

/* The padding taken off again. */
static hlo_val unpad(hlo_graph *g, const hlo_shape *x, const hlo_pad_attrs *pad, hlo_val d)
{
    hlo_dims low = {.n = x->rank}, high = low, none = low, limit = low, stride = low;
    for (int i = 0; i < x->rank; i++) {
        low.d[i] = -pad->low.d[i];
        high.d[i] = -pad->high.d[i];
        stride.d[i] = x->dims[i] > 1 ? pad->interior.d[i] + 1 : 1;
        limit.d[i] = x->dims[i] == 0 ? 0 : (x->dims[i] - 1) * stride.d[i] + 1;
    }
    hlo_val inside = hlo_pad(g, d, hlo_like(g, d, 0), low, high, none);
    return hlo_slice(g, inside, none, limit, stride);
}

void hlo__vjp_pad(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                  hlo_val *d_in)
{
    const hlo_pad_attrs *pad = node->attrs;
    const hlo_shape *x = &node->in[0]->shape;
    hlo_val d = d_out[0];
    if (wanted[0])
        d_in[0] = unpad(g, x, pad, d);
    if (!wanted[1])
        return;
    hlo_shape mask_shape = *x;
    mask_shape.type = HLO_PRED;
    hlo_val mask = hlo_pad(g, hlo_full(g, mask_shape, 0), hlo_scalar(g, HLO_PRED, 1), pad->low,
                           pad->high, pad->interior);
    hlo_dims all = {.n = x->rank};
    for (int i = 0; i < x->rank; i++)
        all.d[i] = i;
    d_in[1] = hlo_sum(g, hlo_select(g, mask, d, hlo_like(g, d, 0)), all);
}

/* ---- concatenate ---- */

/* The parts' shapes put together; false, and an error, when they do not go together. */
static bool joined_shape(hlo_graph *g, const hlo_val *parts, hlo_value *const *values, int n,
                         int at, hlo_shape *shape)
{
    *shape = values[0]->shape;
    for (int i = 1; i < n; i++) {
        hlo_shape other = values[i]->shape;
        bool fits = other.rank == shape->rank;
        int64_t size = fits ? other.dims[at] : 0;
        int64_t joined = fits ? shape->dims[at] : 0;
        if (fits)
            other.dims[at] = joined;
        if (!fits || !hlo_shape_equal(&other, shape)) {
            hlo_val two[2] = {parts[0], parts[i]};
            hlo__fail_op(g, HLO_OP_CONCAT, two, 2,
                         "part %d does not go with part 0 in dimension %d", i, at);
            return false;
        }
        if (__builtin_add_overflow(joined, size, &shape->dims[at]))
            return fail(g, HLO_OP_CONCAT, parts[0], "too many elements");
    }
    return shape_fits(g, HLO_OP_CONCAT, parts[0], shape);
}

/* The number that all parts are, if they are. */
static bool one_number(const hlo_graph *g, const hlo_val *parts, int n, hlo_number *number)
{
    if (!hlo__splat_of(g, parts[0], number))
        return false;
    for (int i = 1; i < n; i++) {
        hlo_number other;
        if (!hlo__splat_of(g, parts[i], &other) || memcmp(&other, number, sizeof other) != 0)
            return false;
    }
    return true;
}

/* The parts' values, in the arena; NULL, and an error, when one is bad or there are none. */
static hlo_value **part_values(hlo_graph *g, const hlo_val *parts, int n)
{
    if (!hlo__failed(g) && (n < 1 || parts == NULL))
        hlo__fail_op(g, HLO_OP_CONCAT, NULL, 0, "there are no parts");
    hlo_value **values = hlo__failed(g) ? NULL : hlo__alloc(g, (size_t)n * sizeof *values);
    return values != NULL && hlo__values(g, HLO_OP_CONCAT, parts, n, values) ? values : NULL;
}

hlo_val hlo_concat(hlo_graph *g, const hlo_val *parts, int n, int dim)
{
    hlo_value **values = part_values(g, parts, n);
    if (values == NULL)
        return null_value;
    hlo_dim_attrs attrs = {find_dim(g, HLO_OP_CONCAT, parts[0], values[0]->shape.rank, dim)};
    hlo_shape shape;
    hlo_number number;
    if (attrs.dim < 0 || !joined_shape(g, parts, values, n, (int)attrs.dim, &shape))
        return null_value;
    if (n == 1)
        return parts[0];
    if (one_number(g, parts, n, &number))
        return hlo__splat(g, shape, number);
    return hlo__add1(g, HLO_OP_CONCAT, parts, n, shape, &attrs, sizeof attrs);
}

hlo_val hlo_stack(hlo_graph *g, const hlo_val *parts, int n, int dim)
{
    hlo_value **values = part_values(g, parts, n);
    hlo_val *rows = values == NULL ? NULL : hlo__alloc(g, (size_t)n * sizeof *rows);
    if (rows == NULL)
        return null_value;
    const hlo_shape *shape = &values[0]->shape;
    int rank = shape->rank;
    if (rank == HLO_MAX_RANK) {
        fail(g, HLO_OP_CONCAT, parts[0], "no room for a dimension more");
        return null_value;
    }
    int at = find_dim(g, HLO_OP_CONCAT, parts[0], rank + 1, dim);
    if (at < 0)
        return null_value;
    hlo_dims row = {.n = rank + 1};
    for (int k = 0, from = 0; k <= rank; k++)
        row.d[k] = k == at ? 1 : shape->dims[from++];
    for (int i = 0; i < n; i++) {
        if (!hlo_shape_equal(&values[i]->shape, shape)) {
            hlo_val two[2] = {parts[0], parts[i]};
            hlo__fail_op(g, HLO_OP_CONCAT, two, 2, "part %d has another shape than part 0", i);
            return null_value;
        }
        rows[i] = hlo_reshape(g, parts[i], row);
    }
    return hlo_concat(g, rows, n, at);
}

void hlo__vjp_concat(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                     hlo_val *d_in)
{
    int dim = (int)((const hlo_dim_attrs *)node->attrs)->dim;
    int64_t start = 0;
    for (int i = 0; i < node->n_in; i++) {
        int64_t size = node->in[i]->shape.dims[dim];
        if (wanted[i])
            d_in[i] = hlo_slice_dim(g, d_out[0], dim, start, start + size);
        start += size;
    }
}
