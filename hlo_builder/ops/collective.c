/*
 * Collectives, each seen from one device.
 *
 * Their gradients are those of the sum of every device's loss: what a device sent to others comes
 * back to it from them.
 */
#include "hlo_builder/dims.h"

/* Copies the groups; false, and an error, unless they are non-empty rows of different devices. */
static bool take_ids(hlo_graph *g, hlo_op op, hlo_val x, const int64_t *ids, int rows, int columns,
                     hlo_collective_attrs *attrs)
{
    if (ids == NULL || rows < 1 || columns < 1) {
        hlo__fail_op(g, op, &x, 1, "%d groups of %d devices", rows, columns);
        return false;
    }
    size_t n = (size_t)rows * (size_t)columns;
    for (size_t i = 0; i < n; i++) {
        bool twice = false;
        for (size_t k = 0; k < i; k++)
            twice = twice || ids[k] == ids[i];
        if (ids[i] < 0 || twice) {
            hlo__fail_op(g, op, &x, 1, "device %lld is %s", (long long)ids[i],
                         twice ? "in the groups twice" : "no device");
            return false;
        }
    }
    attrs->ids = hlo__copy(g, ids, n * sizeof *ids);
    attrs->rows = rows;
    attrs->columns = columns;
    return attrs->ids != NULL;
}

/* The groups that a node was made with. */
static hlo_groups groups_of(const hlo_collective_attrs *attrs)
{
    return (hlo_groups){attrs->ids, (int)attrs->rows, (int)attrs->columns};
}

/* The array behind the handle, when there is one and it has that dimension. */
static hlo_value *get(hlo_graph *g, hlo_op op, hlo_val x, int *dim)
{
    hlo_value *value;
    if (hlo__failed(g) || !hlo__values(g, op, &x, 1, &value))
        return NULL;
    if (dim == NULL)
        return value;
    *dim += *dim < 0 ? value->shape.rank : 0;
    if (*dim < 0 || *dim >= value->shape.rank) {
        hlo__fail_op(g, op, &x, 1, "there is no dimension %d", *dim);
        return NULL;
    }
    return value;
}

/* ---- all_reduce ---- */

/* In x's own type: unlike sums on one device these travel, and the wire is what they cost. */
hlo_val hlo_all_reduce(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, hlo_groups groups)
{
    hlo_value *value = get(g, HLO_OP_ALL_REDUCE, x, NULL);
    if (value == NULL)
        return (hlo_val){0};
    hlo_type type = value->shape.type;
    bool bitwise = kind == HLO_REDUCE_AND || kind == HLO_REDUCE_OR;
    if ((unsigned)kind > HLO_REDUCE_OR || (bitwise ? hlo_type_is_float(type) : type == HLO_PRED)) {
        hlo__fail_op(g, HLO_OP_ALL_REDUCE, &x, 1, "a reduction of that kind does not go with %s",
                     hlo_type_name(type));
        return (hlo_val){0};
    }
    hlo_collective_attrs attrs = {.kind = kind};
    if (!take_ids(g, HLO_OP_ALL_REDUCE, x, groups.ids, groups.n_groups, groups.group_size, &attrs))
        return (hlo_val){0};
    return hlo__add1(g, HLO_OP_ALL_REDUCE, &x, 1, value->shape, &attrs, sizeof attrs);
}

void hlo__vjp_all_reduce(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                         const bool *wanted, hlo_val *d_in)
{
    const hlo_collective_attrs *attrs = node->attrs;
    if (!wanted[0] || d_out[0].id == 0)
        return;
    hlo_groups groups = groups_of(attrs);
    hlo_val d = hlo_all_reduce(g, HLO_REDUCE_ADD, d_out[0], groups);
    if (attrs->kind == HLO_REDUCE_ADD) {
        d_in[0] = d;
    } else if (attrs->kind == HLO_REDUCE_MAX || attrs->kind == HLO_REDUCE_MIN) {
        /* Equals share it, as in a reduction on one device. */
        hlo_val hit = hlo_compare(g, HLO_EQ, hlo__in(g, node, 0), hlo__out(node, 0));
        hit = hlo_convert(g, hit, node->in[0]->shape.type);
        hlo_val count = hlo_all_reduce(g, HLO_REDUCE_ADD, hit, groups);
        d_in[0] = hlo_mul(g, hit, hlo_div(g, d, count));
    } else {
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "all_reduce: a product over devices has no gradient");
    }
}

/* ---- all_gather and reduce_scatter: each the other's gradient ---- */

hlo_val hlo_all_gather(hlo_graph *g, hlo_val x, int dim, hlo_groups groups)
{
    hlo_value *value = get(g, HLO_OP_ALL_GATHER, x, &dim);
    hlo_collective_attrs attrs = {.dim = dim};
    if (value == NULL ||
        !take_ids(g, HLO_OP_ALL_GATHER, x, groups.ids, groups.n_groups, groups.group_size, &attrs))
        return (hlo_val){0};
    hlo_shape shape = value->shape;
    if (__builtin_mul_overflow(shape.dims[dim], (int64_t)groups.group_size, &shape.dims[dim]) ||
        !hlo__shape_ok(&shape)) {
        hlo__fail_op(g, HLO_OP_ALL_GATHER, &x, 1, "the result has too many elements");
        return (hlo_val){0};
    }
    return hlo__add1(g, HLO_OP_ALL_GATHER, &x, 1, shape, &attrs, sizeof attrs);
}

hlo_val hlo_reduce_scatter(hlo_graph *g, hlo_val x, int dim, hlo_groups groups)
{
    hlo_value *value = get(g, HLO_OP_REDUCE_SCATTER, x, &dim);
    hlo_collective_attrs attrs = {.kind = HLO_REDUCE_ADD, .dim = dim};
    if (value == NULL || !take_ids(g, HLO_OP_REDUCE_SCATTER, x, groups.ids, groups.n_groups,
                                   groups.group_size, &attrs))
        return (hlo_val){0};
    hlo_shape shape = value->shape;
    if (shape.type == HLO_PRED || shape.dims[dim] % groups.group_size != 0) {
        hlo__fail_op(g, HLO_OP_REDUCE_SCATTER, &x, 1,
                     "numbers whose dimension %d is divided among %d devices", dim,
                     groups.group_size);
        return (hlo_val){0};
    }
    shape.dims[dim] /= groups.group_size;
    return hlo__add1(g, HLO_OP_REDUCE_SCATTER, &x, 1, shape, &attrs, sizeof attrs);
}

void hlo__vjp_all_gather(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                         const bool *wanted, hlo_val *d_in)
{
    const hlo_collective_attrs *attrs = node->attrs;
    if (wanted[0] && d_out[0].id != 0)
        d_in[0] = hlo_reduce_scatter(g, d_out[0], (int)attrs->dim, groups_of(attrs));
}

void hlo__vjp_reduce_scatter(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                             const bool *wanted, hlo_val *d_in)
{
    const hlo_collective_attrs *attrs = node->attrs;
    if (wanted[0] && d_out[0].id != 0)
        d_in[0] = hlo_all_gather(g, d_out[0], (int)attrs->dim, groups_of(attrs));
}

/* ---- collective_permute ---- */

hlo_val hlo_collective_permute(hlo_graph *g, hlo_val x, const int64_t (*pairs)[2], int n_pairs)
{
    hlo_value *value = get(g, HLO_OP_COLLECTIVE_PERMUTE, x, NULL);
    if (value == NULL)
        return (hlo_val){0};
    bool ok = pairs != NULL && n_pairs >= 1;
    for (int i = 0; ok && i < n_pairs; i++) {
        ok = pairs[i][0] >= 0 && pairs[i][1] >= 0;
        for (int k = 0; ok && k < i; k++)
            ok = pairs[i][0] != pairs[k][0] && pairs[i][1] != pairs[k][1];
    }
    if (!ok) {
        hlo__fail_op(g, HLO_OP_COLLECTIVE_PERMUTE, &x, 1,
                     "of the %d pairs each source and each target is a device of its own", n_pairs);
        return (hlo_val){0};
    }
    hlo_collective_attrs attrs = {.rows = n_pairs, .columns = 2};
    attrs.ids = hlo__copy(g, pairs, (size_t)n_pairs * sizeof *pairs);
    return hlo__add1(g, HLO_OP_COLLECTIVE_PERMUTE, &x, 1, value->shape, &attrs, sizeof attrs);
}

void hlo__vjp_collective_permute(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                                 const bool *wanted, hlo_val *d_in)
{
    const hlo_collective_attrs *attrs = node->attrs;
    if (!wanted[0] || d_out[0].id == 0)
        return;
    int64_t(*back)[2] = hlo__alloc(g, (size_t)attrs->rows * sizeof *back);
    if (back == NULL)
        return;
    for (int64_t i = 0; i < attrs->rows; i++) {
        back[i][0] = attrs->ids[2 * i + 1];
        back[i][1] = attrs->ids[2 * i];
    }
    d_in[0] = hlo_collective_permute(g, d_out[0], (const int64_t(*)[2])back, (int)attrs->rows);
}

hlo_val hlo_partition_id(hlo_graph *g)
{
    return hlo__add1(g, HLO_OP_PARTITION_ID, NULL, 0, HLO_SCALAR(HLO_U32), NULL, 0);
}
