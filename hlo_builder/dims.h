/* Private to hlo_builder: small helpers that many operations share, most of them on lists of
 * dimension numbers. */
#ifndef HLO_BUILDER_DIMS_H
#define HLO_BUILDER_DIMS_H

#include "hlo_builder/internal.h"

/* An operand of a node, as the public functions take it. */
static inline hlo_val hlo__in(const hlo_graph *g, const hlo_node *node, int i)
{
    return hlo__handle(g, node->in[i]);
}

static inline hlo_dims hlo__dims_of(const hlo_shape *shape)
{
    hlo_dims dims = {.n = shape->rank};
    memcpy(dims.d, shape->dims, (size_t)shape->rank * sizeof *dims.d);
    return dims;
}

/* A shape of these dimensions, of which there may be any number: see hlo__shape_ok. */
static inline hlo_shape hlo__shape_with(hlo_type type, const hlo_dims *dims)
{
    hlo_shape shape = {.type = type, .rank = (int)dims->n};
    for (int64_t i = 0; i < dims->n && i < HLO_MAX_RANK; i++)
        shape.dims[i] = dims->d[i];
    return shape;
}

static inline bool hlo__dims_have(const hlo_dims *dims, int64_t d)
{
    for (int64_t i = 0; i < dims->n; i++) {
        if (dims->d[i] == d)
            return true;
    }
    return false;
}

/* Adds to a list; beyond the room only the count grows, for the caller to find. */
static inline void hlo__dims_push(hlo_dims *dims, int64_t d)
{
    if (dims->n < HLO_MAX_RANK)
        dims->d[dims->n] = d;
    dims->n++;
}

/* The dimensions of a `rank` that are not in `dims`, in order. */
static inline hlo_dims hlo__dims_others(const hlo_dims *dims, int rank)
{
    hlo_dims others = {0};
    for (int i = 0; i < rank; i++) {
        if (!hlo__dims_have(dims, i))
            hlo__dims_push(&others, i);
    }
    return others;
}

/* Attributes are compared byte by byte, so what is behind the end of a list has to be zero. False
 * when the list is longer than lists can be. */
static inline bool hlo__dims_clean(hlo_dims *dims)
{
    if (dims->n < 0 || dims->n > HLO_MAX_RANK)
        return false;
    for (int64_t i = dims->n; i < HLO_MAX_RANK; i++)
        dims->d[i] = 0;
    return true;
}

/* Each in [0, rank), none twice; and the unused end is cleaned. */
static inline bool hlo__dims_distinct(hlo_dims *dims, int64_t rank)
{
    if (!hlo__dims_clean(dims))
        return false;
    for (int64_t i = 0; i < dims->n; i++) {
        hlo_dims before = *dims;
        before.n = i;
        if (dims->d[i] < 0 || dims->d[i] >= rank || hlo__dims_have(&before, dims->d[i]))
            return false;
    }
    return true;
}

static inline bool hlo__dims_sorted(const hlo_dims *dims)
{
    for (int64_t i = 1; i < dims->n; i++) {
        if (dims->d[i - 1] >= dims->d[i])
            return false;
    }
    return true;
}

static inline bool hlo__is_integer(hlo_type type)
{
    return type != HLO_TYPE_NONE && type != HLO_PRED && !hlo_type_is_float(type);
}

/* The type in which sums of `type` are made: f32 for what is shorter. */
static inline hlo_type hlo__wide_type(hlo_type type)
{
    return type == HLO_BF16 || type == HLO_F16 ? HLO_F32 : type;
}

/* x moved by `by` places along `dim`, towards the end when positive; `fill` comes in. */
hlo_val hlo__shift(hlo_graph *g, hlo_val x, int dim, int64_t by, double fill);

#endif
