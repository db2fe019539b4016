/*
 * Each operation in VHLO, in the form that the written version has. Properties are in the
 * alphabetical order of their names, which stand beside them.
 */
#include "hlo_builder/fold.h"
#include "hlo_builder/write/vhlo.h"

#include <stdio.h>

/* ---- small forms ---- */

/* Functions that have been given an accuracy in 1.9 and 1.10; 0 for the others. */
static int accuracy_since(hlo_op op)
{
    switch (op) {
    case HLO_OP_exp:
        return 9;
    case HLO_OP_expm1:
    case HLO_OP_log:
    case HLO_OP_log1p:
    case HLO_OP_tanh:
    case HLO_OP_logistic:
    case HLO_OP_sqrt:
    case HLO_OP_rsqrt:
    case HLO_OP_sin:
    case HLO_OP_cos:
        return 10;
    default:
        return 0;
    }
}

/* The operation under its own name, in its second form or its first. */
static void put_as(hlo_portable *p, const hlo_node *node, bool second, const uint32_t *attrs,
                   int n_attrs)
{
    char name[64];
    snprintf(name, sizeof name, "%s_v%d", hlo__op_name(node->op), second ? 2 : 1);
    hlo__put_node(p, node, name, attrs, n_attrs);
}

static void put_plain(hlo_portable *p, const hlo_node *node)
{
    int since = accuracy_since(node->op);
    if (since > 0 && p->minor >= since) {
        uint32_t accuracy = hlo__vhlo_accuracy(p);
        put_as(p, node, true, &accuracy, 1);
    } else {
        put_as(p, node, false, NULL, 0);
    }
}

/* With one attribute, a list of dimensions. */
static void put_with_dims(hlo_portable *p, const hlo_node *node)
{
    uint32_t dims = hlo__vhlo_dims(p, &((const hlo_dims_attrs *)node->attrs)->dims);
    put_as(p, node, false, &dims, 1);
}

/* With one attribute, a dimension. */
static void put_with_dim(hlo_portable *p, const hlo_node *node)
{
    uint32_t dim = hlo__vhlo_int(p, HLO_S64, ((const hlo_dim_attrs *)node->attrs)->dim);
    put_as(p, node, false, &dim, 1);
}

static void put_constant(hlo_portable *p, const hlo_node *node)
{
    uint32_t value = hlo__vhlo_constant(p, &node->out[0]->shape, node->attrs);
    put_as(p, node, false, &value, 1);
}

enum { ORDER_FLOAT = 1, ORDER_TOTAL = 2, ORDER_SIGNED = 3, ORDER_UNSIGNED = 4 };

static int order_of(hlo_type type)
{
    if (hlo_type_is_float(type))
        return ORDER_FLOAT;
    return hlo__type_kind(type) == 's' ? ORDER_SIGNED : ORDER_UNSIGNED;
}

static void comparison(hlo_portable *p, hlo_compare_kind kind, int order, uint32_t attrs[2])
{
    static const int directions[] = {
        [HLO_EQ] = 0, [HLO_NE] = 1, [HLO_GE] = 2, [HLO_GT] = 3, [HLO_LE] = 4, [HLO_LT] = 5};
    attrs[0] = hlo__vhlo_enum(p, HLO_VHLO_COMPARISON, order);           /* compare_type */
    attrs[1] = hlo__vhlo_enum(p, HLO_VHLO_DIRECTION, directions[kind]); /* comparison_direction */
}

static void put_compare(hlo_portable *p, const hlo_node *node)
{
    uint32_t attrs[2];
    hlo_compare_kind kind = (hlo_compare_kind)((const hlo_compare_attrs *)node->attrs)->kind;
    comparison(p, kind, order_of(node->in[0]->shape.type), attrs);
    put_as(p, node, false, attrs, 2);
}

static void put_slice(hlo_portable *p, const hlo_node *node)
{
    const hlo_slice_attrs *a = node->attrs;
    uint32_t attrs[3];
    attrs[0] = hlo__vhlo_dims(p, &a->limit);  /* limit_indices */
    attrs[1] = hlo__vhlo_dims(p, &a->start);  /* start_indices */
    attrs[2] = hlo__vhlo_dims(p, &a->stride); /* strides */
    put_as(p, node, false, attrs, 3);
}

static void put_pad(hlo_portable *p, const hlo_node *node)
{
    const hlo_pad_attrs *a = node->attrs;
    uint32_t attrs[3];
    attrs[0] = hlo__vhlo_dims(p, &a->high);     /* edge_padding_high */
    attrs[1] = hlo__vhlo_dims(p, &a->low);      /* edge_padding_low */
    attrs[2] = hlo__vhlo_dims(p, &a->interior); /* interior_padding */
    put_as(p, node, false, attrs, 3);
}

/* ---- small regions ---- */

/* An operation on scalars with one result, whose number is returned. */
static uint32_t put_scalar_op(hlo_portable *p, const char *name, const uint32_t *attrs, int n_attrs,
                              hlo_type type, const uint32_t *operands, int n_operands)
{
    uint32_t result = p->next, scalar = hlo__vhlo_type(p, &HLO_SCALAR(type));
    hlo__put_op(p, &(hlo_portable_op){.dialect = "vhlo",
                                      .name = name,
                                      .location = p->unknown_location,
                                      .attrs = attrs,
                                      .n_attrs = n_attrs,
                                      .types = &scalar,
                                      .n_results = 1,
                                      .operands = operands,
                                      .n_operands = n_operands});
    return result;
}

/* The region that combines two scalars. */
static void put_reducer(hlo_portable *p, int64_t kind, hlo_type type)
{
    static const char *const names[] = {
        [HLO_REDUCE_ADD] = "add_v1",     [HLO_REDUCE_MUL] = "multiply_v1",
        [HLO_REDUCE_MAX] = "maximum_v1", [HLO_REDUCE_MIN] = "minimum_v1",
        [HLO_REDUCE_AND] = "and_v1",     [HLO_REDUCE_OR] = "or_v1",
    };
    uint32_t scalar = hlo__vhlo_type(p, &HLO_SCALAR(type)), types[2] = {scalar, scalar};
    hlo_portable_region around = hlo__begin_region(p, types, 2, NULL, 2, 3, false);
    uint32_t operands[2] = {p->next - 2, p->next - 1};
    uint32_t sum = put_scalar_op(p, names[kind], NULL, 0, type, operands, 2);
    hlo__put_return(p, "vhlo", "return_v1", &sum, 1);
    hlo__end_region(p, around);
}

static uint32_t put_scalar_compare(hlo_portable *p, hlo_compare_kind kind, int order, uint32_t a,
                                   uint32_t b)
{
    uint32_t attrs[2];
    comparison(p, kind, order, attrs);
    return put_scalar_op(p, "compare_v1", attrs, 2, HLO_PRED, (uint32_t[]){a, b}, 2);
}

/* A float key as the comparison takes it: all NaN alike, and one zero. */
static uint32_t put_sort_key(hlo_portable *p, hlo_type type, uint32_t x, uint32_t zero,
                             uint32_t nan)
{
    uint32_t is_zero = put_scalar_compare(p, HLO_EQ, ORDER_FLOAT, x, zero);
    uint32_t one_zero =
        put_scalar_op(p, "select_v1", NULL, 0, type, (uint32_t[]){is_zero, zero, x}, 3);
    uint32_t is_nan = put_scalar_compare(p, HLO_NE, ORDER_FLOAT, x, x);
    return put_scalar_op(p, "select_v1", NULL, 0, type, (uint32_t[]){is_nan, nan, one_zero}, 3);
}

static void put_comparator(hlo_portable *p, const hlo_node *node, bool descending)
{
    enum { KEY_VALUES = 4 }; /* of put_sort_key */
    hlo_type type = node->in[0]->shape.type;
    bool is_float = hlo_type_is_float(type);
    size_t n_values = 1 + (is_float ? 2 + 2 * KEY_VALUES : 0);
    uint32_t *types = hlo__list(p, 2 * (size_t)node->n_in);
    if (types == NULL)
        return;
    for (int i = 0; i < 2 * node->n_in; i++)
        types[i] = hlo__vhlo_type(p, &HLO_SCALAR(node->in[i / 2]->shape.type));
    hlo_portable_region around = hlo__begin_region(p, types, 2 * node->n_in, NULL, n_values + 1,
                                                   2 * (size_t)node->n_in + n_values, false);
    uint32_t left = p->next - 2 * (uint32_t)node->n_in, right = left + 1;
    if (is_float) {
        uint32_t number = hlo__vhlo_number(p, type, 0);
        uint32_t zero = put_scalar_op(p, "constant_v1", &number, 1, type, NULL, 0);
        number = hlo__vhlo_number(p, type, __builtin_nan(""));
        uint32_t nan = put_scalar_op(p, "constant_v1", &number, 1, type, NULL, 0);
        left = put_sort_key(p, type, left, zero, nan);
        right = put_sort_key(p, type, right, zero, nan);
    }
    uint32_t before = put_scalar_compare(p, descending ? HLO_GT : HLO_LT,
                                         is_float ? ORDER_TOTAL : order_of(type), left, right);
    hlo__put_return(p, "vhlo", "return_v1", &before, 1);
    hlo__end_region(p, around);
}

/* ---- reductions, products, gather, sort ---- */

static void put_reduce(hlo_portable *p, const hlo_node *node)
{
    const hlo_reduce_attrs *a = node->attrs;
    uint32_t dims = hlo__vhlo_dims(p, &a->dims);
    hlo_portable_op op = {
        .name = "reduce_v1", .attrs = &dims, .n_attrs = 1, .n_operands = 2, .n_regions = 1};
    hlo__put_node_op(p, node, op);
    put_reducer(p, a->kind, node->in[0]->shape.type);
}

static uint32_t precision_config(hlo_portable *p, hlo_precision precision)
{
    uint32_t one = hlo__vhlo_enum(p, HLO_VHLO_PRECISION, (int)precision), both[2] = {one, one};
    return hlo__vhlo_array(p, both, 2);
}

static void put_dot(hlo_portable *p, const hlo_node *node)
{
    enum { ALGORITHM_SINCE = 6 };
    const hlo_dot_options *o = node->attrs;
    uint32_t lhs_batch = hlo__vhlo_dims(p, &o->lhs_batch);
    uint32_t lhs_contract = hlo__vhlo_dims(p, &o->lhs_contract);
    uint32_t rhs_batch = hlo__vhlo_dims(p, &o->rhs_batch);
    uint32_t rhs_contract = hlo__vhlo_dims(p, &o->rhs_contract);
    uint32_t precision = precision_config(p, o->precision);
    if (p->minor < ALGORITHM_SINCE) {
        uint32_t attrs[] = {lhs_batch, lhs_contract, precision, rhs_batch, rhs_contract};
        put_as(p, node, false, attrs, 5);
        return;
    }
    uint32_t none = hlo__vhlo_type_attr(p, hlo__vhlo_no_type(p)); /* no algorithm is asked for */
    uint32_t attrs[] = {
        none,         /* accumulation_type */
        none,         /* allow_imprecise_accumulation */
        lhs_batch,    /* lhs_batching_dimensions */
        none,         /* lhs_component_count */
        lhs_contract, /* lhs_contracting_dimensions */
        none,         /* lhs_precision_type */
        none,         /* num_primitive_operations */
        precision,    /* precision_config */
        rhs_batch,    /* rhs_batching_dimensions */
        none,         /* rhs_component_count */
        rhs_contract, /* rhs_contracting_dimensions */
        none,         /* rhs_precision_type */
    };
    put_as(p, node, true, attrs, 12);
}

static void put_conv(hlo_portable *p, const hlo_node *node)
{
    const hlo_conv_options *o = node->attrs;
    hlo_constant_attrs no = {.splat = 1};
    uint32_t number[3], one = hlo__vhlo_ints(p, (int64_t[]){1}, 1);
    for (int i = 0; i < 3; i++)
        number[i] = hlo__vhlo_int(p, HLO_S64, i);
    uint32_t zeroth = hlo__vhlo_ints(p, (int64_t[]){0}, 1);
    uint32_t attrs[17] = {
        number[1],                                                 /* batch_group_count */
        hlo__vhlo_int(p, HLO_S64, o->groups == 0 ? 1 : o->groups), /* feature_group_count */
        number[0],                                                 /* input_batch_dimension */
        number[2],                                                 /* input_feature_dimension */
        one,                                                       /* input_spatial_dimensions */
        number[1], /* kernel_input_feature_dimension */
        number[2], /* kernel_output_feature_dimension */
        zeroth,    /* kernel_spatial_dimensions */
        one,       /* lhs_dilation */
        number[0], /* output_batch_dimension */
        number[2], /* output_feature_dimension */
        one,       /* output_spatial_dimensions */
        hlo__vhlo_rows(p, (int64_t[]){o->pad_low, o->pad_high}, 1, 2), /* padding */
        precision_config(p, HLO_PRECISION_DEFAULT),                    /* precision_config */
        one,                                                           /* rhs_dilation */
        hlo__vhlo_constant(p, &HLO_SHAPE(HLO_PRED, 1), &no),           /* window_reversal */
        one,                                                           /* window_strides */
    };
    put_as(p, node, false, attrs, 17);
}

enum { BATCHED_GATHER_SINCE = 1 };

static void put_gather(hlo_portable *p, const hlo_node *node)
{
    const hlo_gather_attrs *a = node->attrs;
    bool second = p->minor >= BATCHED_GATHER_SINCE;
    uint32_t attrs[8];
    int n = 0;
    attrs[n++] = hlo__vhlo_dims(p, &a->dims.collapsed); /* collapsed_slice_dims */
    attrs[n++] = hlo__vhlo_int(p, HLO_S64, a->dims.index_vector_dim);
    attrs[n++] = hlo__vhlo_bool(p, false);           /* indices_are_sorted */
    attrs[n++] = hlo__vhlo_dims(p, &a->dims.offset); /* offset_dims */
    if (second)
        attrs[n++] = hlo__vhlo_dims(p, &a->dims.operand_batch); /* operand_batching_dims */
    attrs[n++] = hlo__vhlo_dims(p, &a->window);                 /* slice_sizes */
    attrs[n++] = hlo__vhlo_dims(p, &a->dims.start_map);         /* start_index_map */
    if (second)
        attrs[n++] = hlo__vhlo_dims(p, &a->dims.indices_batch); /* start_indices_batching_dims */
    put_as(p, node, second, attrs, n);
}

static void put_scatter_add(hlo_portable *p, const hlo_node *node)
{
    const hlo_gather_attrs *a = node->attrs;
    bool second = p->minor >= BATCHED_GATHER_SINCE;
    uint32_t attrs[8];
    int n = 0;
    attrs[n++] = hlo__vhlo_int(p, HLO_S64, a->dims.index_vector_dim);
    attrs[n++] = hlo__vhlo_bool(p, false); /* indices_are_sorted */
    if (second)
        attrs[n++] = hlo__vhlo_dims(p, &a->dims.operand_batch); /* input_batching_dims */
    attrs[n++] = hlo__vhlo_dims(p, &a->dims.collapsed);         /* inserted_window_dims */
    attrs[n++] = hlo__vhlo_dims(p, &a->dims.start_map);         /* scatter_dims_to_operand_dims */
    if (second)
        attrs[n++] = hlo__vhlo_dims(p, &a->dims.indices_batch); /* scatter_indices_batching_dims */
    attrs[n++] = hlo__vhlo_bool(p, false);                      /* unique_indices */
    attrs[n++] = hlo__vhlo_dims(p, &a->dims.offset);            /* update_window_dims */
    hlo_portable_op op = {.name = second ? "scatter_v2" : "scatter_v1",
                          .attrs = attrs,
                          .n_attrs = n,
                          .n_operands = node->n_in,
                          .n_regions = 1};
    hlo__put_node_op(p, node, op);
    put_reducer(p, HLO_REDUCE_ADD, node->in[0]->shape.type);
}

static void put_sort(hlo_portable *p, const hlo_node *node)
{
    const hlo_sort_attrs *a = node->attrs;
    uint32_t attrs[2];
    attrs[0] = hlo__vhlo_int(p, HLO_S64, a->dim); /* dimension */
    attrs[1] = hlo__vhlo_bool(p, true);           /* is_stable */
    hlo_portable_op op = {
        .name = "sort_v1", .attrs = attrs, .n_attrs = 2, .n_operands = node->n_in, .n_regions = 1};
    hlo__put_node_op(p, node, op);
    put_comparator(p, node, a->descending != 0);
}

static void put_random_bits(hlo_portable *p, const hlo_node *node)
{
    enum { THREE_FRY = 1 };
    uint32_t algorithm = hlo__vhlo_enum(p, HLO_VHLO_RNG, THREE_FRY);
    put_as(p, node, false, &algorithm, 1);
}

/* ---- control ---- */

static void put_while(hlo_portable *p, const hlo_node *node)
{
    hlo_portable_op op = {.name = "while_v1", .n_operands = node->n_in, .n_regions = 2};
    hlo__put_node_op(p, node, op);
    hlo__put_region(p, node->regions[0], NULL);
    hlo__put_region(p, node->regions[1], NULL);
}

/* The branches read the captured values where they stand. */
static void put_case(hlo_portable *p, const hlo_node *node)
{
    bool is_if = node->in[0]->shape.type == HLO_PRED;
    hlo_portable_op op = {
        .name = is_if ? "if_v1" : "case_v1", .n_operands = 1, .n_regions = node->n_regions};
    hlo__put_node_op(p, node, op);
    for (int i = 0; i < node->n_regions; i++)
        hlo__put_region(p, node->regions[i], node->in + 1);
}

static void put_call(hlo_portable *p, const hlo_node *node)
{
    enum { COMPOSITE_REGIONS_SINCE = 14 };
    const hlo_call_attrs *a = node->attrs;
    uint32_t function = hlo__vhlo_string(p, hlo__function_name(&p->texts, node));
    if (!a->composite) {
        hlo__put_node(p, node, "call_v1", &function, 1);
        return;
    }
    uint32_t attrs[4];
    attrs[0] = hlo__vhlo_dict(p, NULL, 0);   /* composite_attributes */
    attrs[1] = function;                     /* decomposition */
    attrs[2] = hlo__vhlo_string(p, a->name); /* name */
    attrs[3] = hlo__vhlo_int(p, HLO_S64, 0); /* version */
    bool second = p->minor >= COMPOSITE_REGIONS_SINCE;
    hlo__put_node(p, node, second ? "composite_v2" : "composite_v1", attrs, 4);
}

static uint32_t custom_attr(hlo_portable *p, const hlo_attr *a)
{
    switch (a->kind) {
    case HLO_ATTR_STRING:
        return hlo__vhlo_string(p, a->string);
    case HLO_ATTR_INT:
        return hlo__vhlo_int(p, HLO_S64, a->integer);
    case HLO_ATTR_FLOAT:
        return hlo__vhlo_float(p, (float)a->real);
    default:
        return hlo__vhlo_bool(p, a->integer != 0);
    }
}

typedef struct custom_call {
    const char *target;
    int api_version;
    uint32_t config;
    bool has_side_effect;
    uint32_t operand_layouts, aliases, result_layouts;
    uint32_t dictionary; /* as of hlo_portable_op */
} custom_call;

static void put_custom(hlo_portable *p, const hlo_node *node, const custom_call *call)
{
    uint32_t attrs[8];
    attrs[0] = hlo__vhlo_enum(p, HLO_VHLO_API_VERSION, call->api_version);
    attrs[1] = call->config; /* backend_config */
    attrs[2] = hlo__vhlo_string(p, call->target);
    attrs[3] = hlo__vhlo_array(p, NULL, 0); /* called_computations */
    attrs[4] = hlo__vhlo_bool(p, call->has_side_effect);
    attrs[5] = call->operand_layouts;
    attrs[6] = call->aliases;
    attrs[7] = call->result_layouts;
    hlo_portable_op op = {.name = "custom_call_v1",
                          .attrs = attrs,
                          .n_attrs = 8,
                          .n_operands = node->n_in,
                          .dictionary = call->dictionary};
    hlo__put_node_op(p, node, op);
}

/* Row-major layouts of n arrays. */
static uint32_t row_major_layouts(hlo_portable *p, hlo_value *const *values, int n)
{
    uint32_t *layouts = hlo__alloc(p->g, (size_t)(n + 1) * sizeof *layouts);
    if (layouts == NULL)
        return 0;
    for (int i = 0; i < n; i++)
        layouts[i] = hlo__vhlo_row_major(p, values[i]->shape.rank);
    return hlo__vhlo_array(p, layouts, (size_t)n);
}

/* Layouts are explicit for the reason given in write_ops.c. */
static void put_custom_call(hlo_portable *p, const hlo_node *node)
{
    enum { TYPED_FFI = 4 };
    const hlo_custom_call_options *o = node->attrs;
    uint32_t(*pairs)[2] = hlo__alloc(p->g, (size_t)(o->n_attrs + 1) * sizeof *pairs);
    uint32_t *aliases = hlo__alloc(p->g, (size_t)(o->n_aliases + 1) * sizeof *aliases);
    if (pairs == NULL || aliases == NULL)
        return;
    for (int i = 0; i < o->n_attrs; i++) {
        pairs[i][0] = hlo__vhlo_string(p, o->attrs[i].name);
        pairs[i][1] = custom_attr(p, &o->attrs[i]);
    }
    for (int i = 0; i < o->n_aliases; i++)
        aliases[i] = hlo__vhlo_alias(p, node->n_out > 1 ? o->aliases[i][0] : -1, o->aliases[i][1]);
    custom_call call = {.target = o->target, .api_version = TYPED_FFI};
    call.config = hlo__vhlo_dict(p, (const uint32_t(*)[2])pairs, (size_t)o->n_attrs);
    call.has_side_effect = o->has_side_effect;
    call.operand_layouts = row_major_layouts(p, node->in, node->n_in);
    call.aliases = hlo__vhlo_array(p, aliases, (size_t)o->n_aliases);
    call.result_layouts = row_major_layouts(p, node->out, node->n_out);
    put_custom(p, node, &call);
}

/* ---- many devices ---- */

/* Collectives are between partitions: that needs a channel, and device numbers that are global. */
static void put_collective(hlo_portable *p, const hlo_node *node)
{
    enum { VARIADIC_SINCE = 5 };
    const hlo_collective_attrs *a = node->attrs;
    bool gathers = node->op == HLO_OP_ALL_GATHER, permutes = node->op == HLO_OP_COLLECTIVE_PERMUTE;
    bool scatters = node->op == HLO_OP_REDUCE_SCATTER, reduces = node->op == HLO_OP_ALL_REDUCE;
    uint32_t attrs[4];
    int n = 0;
    char name[64];
    if (gathers)
        attrs[n++] = hlo__vhlo_int(p, HLO_S64, a->dim); /* all_gather_dim */
    attrs[n++] = hlo__vhlo_int(p, HLO_S64, 1);          /* channel_id */
    attrs[n++] = hlo__vhlo_rows(p, a->ids, a->rows, a->columns);
    if (scatters)
        attrs[n++] = hlo__vhlo_int(p, HLO_S64, a->dim); /* scatter_dimension */
    if (!permutes)
        attrs[n++] = hlo__vhlo_bool(p, true); /* use_global_device_ids */
    bool second = (gathers || reduces) && p->minor >= VARIADIC_SINCE;
    snprintf(name, sizeof name, "%s_v%d", hlo__op_name(node->op), second ? 2 : 1);
    hlo_portable_op op = {.name = name,
                          .attrs = attrs,
                          .n_attrs = n,
                          .n_operands = node->n_in,
                          .n_regions = reduces || scatters};
    hlo__put_node_op(p, node, op);
    if (reduces || scatters)
        put_reducer(p, reduces ? a->kind : HLO_REDUCE_ADD, node->in[0]->shape.type);
}

/* A value of one dialect's type as one of the other's; the number of that. */
static uint32_t put_cast(hlo_portable *p, uint32_t operand, uint32_t type, uint32_t location)
{
    uint32_t result = p->next;
    hlo__put_op(p, &(hlo_portable_op){.dialect = "builtin",
                                      .name = "unrealized_conversion_cast",
                                      .location = location,
                                      .types = &type,
                                      .n_results = 1,
                                      .operands = &operand,
                                      .n_operands = 1});
    return result;
}

/* A unary operation of another dialect. */
static void put_foreign(hlo_portable *p, const hlo_node *node, const char *dialect,
                        const char *name, const uint32_t *attrs, int n_attrs)
{
    uint32_t location = hlo__node_location(p, node);
    uint32_t type = hlo__builtin_type(p, &node->out[0]->shape);
    uint32_t operand = put_cast(p, p->numbers[node->in[0]->id], type, location);
    uint32_t result = p->next;
    hlo__put_op(p, &(hlo_portable_op){.dialect = dialect,
                                      .name = name,
                                      .location = location,
                                      .attrs = attrs,
                                      .n_attrs = n_attrs,
                                      .types = &type,
                                      .n_results = 1,
                                      .operands = &operand,
                                      .n_operands = 1});
    p->numbers[node->out[0]->id] =
        put_cast(p, result, hlo__vhlo_type(p, &node->out[0]->shape), location);
}

static void put_shard(hlo_portable *p, const hlo_node *node)
{
    enum { ORIGINAL_API = 1 };
    int rank = node->out[0]->shape.rank;
    if (!p->options.gspmd) {
        uint32_t sharding = hlo__sdy_sharding(p, node->attrs, rank);
        put_foreign(p, node, "sdy", "sharding_constraint", &sharding, 1);
        return;
    }
    uint32_t pair[1][2] = {{hlo__builtin_string(p, "mhlo.sharding"), 0}};
    pair[0][1] = hlo__gspmd_sharding(p, node->attrs, rank);
    custom_call call = {.target = "Sharding", .api_version = ORIGINAL_API};
    call.config = hlo__vhlo_string(p, "");
    call.operand_layouts = call.aliases = call.result_layouts = hlo__vhlo_array(p, NULL, 0);
    call.dictionary = hlo__builtin_dict(p, (const uint32_t(*)[2])pair, 1) + 1;
    put_custom(p, node, &call);
}

static uint32_t shardings(hlo_portable *p, const hlo_spec *specs, hlo_value *const *values, int n)
{
    hlo_writer *w = &p->texts;
    hlo__put_str(w, "#sdy.sharding_per_value<[");
    hlo__put_shardings(w, specs, values, n);
    hlo__put_str(w, "]>");
    return hlo__sdy_attr(p);
}

/* The body of a manual computation, whose arguments and results are of MLIR's own types. */
static void put_manual_body(hlo_portable *p, const hlo_block *body, uint32_t location)
{
    size_t ops, values, n = (size_t)body->n_params, n_out = (size_t)body->n_results;
    hlo__measure_block(p, body, &ops, &values);
    uint32_t *list = hlo__list(p, n);
    if (list == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        list[i] = hlo__builtin_type(p, &body->params[i]->shape);
    hlo_portable_region around =
        hlo__begin_region(p, list, (int)n, NULL, ops + n + n_out, values + 2 * n + n_out, false);
    uint32_t first = p->next - (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        uint32_t type = hlo__vhlo_type(p, &body->params[i]->shape);
        p->numbers[body->params[i]->id] = put_cast(p, first + (uint32_t)i, type, location);
    }
    hlo__put_nodes(p, body);
    list = hlo__list(p, n_out);
    for (size_t i = 0; i < n_out && list != NULL; i++) {
        uint32_t type = hlo__builtin_type(p, &body->results[i]->shape);
        list[i] = put_cast(p, p->numbers[body->results[i]->id], type, location);
    }
    if (list != NULL)
        hlo__put_return(p, "sdy", "return", list, (int)n_out);
    hlo__end_region(p, around);
}

static void put_manual(hlo_portable *p, const hlo_node *node)
{
    const hlo_manual_attrs *a = node->attrs;
    uint32_t location = hlo__node_location(p, node), attrs[3], first = p->next;
    attrs[0] = shardings(p, a->in_specs, node->in, node->n_in); /* in_shardings */
    hlo__put_str(&p->texts, "#sdy<manual_axes");
    hlo__put_manual_axes(&p->texts);
    hlo__put_str(&p->texts, ">");
    attrs[1] = hlo__sdy_attr(p);                                   /* manual_axes */
    attrs[2] = shardings(p, a->out_specs, node->out, node->n_out); /* out_shardings */
    for (int i = 0; i < node->n_in; i++) {
        uint32_t type = hlo__builtin_type(p, &node->in[i]->shape);
        put_cast(p, p->numbers[node->in[i]->id], type, location);
    }
    uint32_t *types = hlo__list(p, (size_t)node->n_out + (size_t)node->n_in);
    if (types == NULL)
        return;
    uint32_t *operands = types + node->n_out, result = p->next;
    for (int i = 0; i < node->n_out; i++)
        types[i] = hlo__builtin_type(p, &node->out[i]->shape);
    for (int i = 0; i < node->n_in; i++)
        operands[i] = first + (uint32_t)i;
    hlo__put_op(p, &(hlo_portable_op){.dialect = "sdy",
                                      .name = "manual_computation",
                                      .location = location,
                                      .attrs = attrs,
                                      .n_attrs = 3,
                                      .types = types,
                                      .n_results = node->n_out,
                                      .operands = operands,
                                      .n_operands = node->n_in,
                                      .n_regions = 1});
    put_manual_body(p, node->regions[0], location);
    for (int i = 0; i < node->n_out; i++) {
        uint32_t type = hlo__vhlo_type(p, &node->out[i]->shape);
        p->numbers[node->out[i]->id] = put_cast(p, result + (uint32_t)i, type, location);
    }
}

/* ---- which is which ---- */

int hlo__version_of(const hlo_node *node, bool gspmd)
{
    enum { CUSTOM_DICT_SINCE = 3, OTHER_DIALECTS_SINCE = 11 };
    switch (node->op) {
    case HLO_OP_GATHER:
    case HLO_OP_SCATTER_ADD:
        return ((const hlo_gather_attrs *)node->attrs)->dims.operand_batch.n > 0
                   ? BATCHED_GATHER_SINCE
                   : 0;
    case HLO_OP_CUSTOM_CALL:
        return CUSTOM_DICT_SINCE;
    case HLO_OP_SHARD:
        return gspmd ? 0 : OTHER_DIALECTS_SINCE;
    case HLO_OP_ERF:
    case HLO_OP_MANUAL:
        return OTHER_DIALECTS_SINCE;
    default:
        return 0;
    }
}

void hlo__measure_node(const hlo_portable *p, const hlo_node *node, size_t *ops, size_t *values)
{
    size_t n_in = (size_t)node->n_in, n_out = (size_t)node->n_out;
    bool foreign = node->op == HLO_OP_ERF || node->op == HLO_OP_MANUAL ||
                   (node->op == HLO_OP_SHARD && !p->options.gspmd);
    *ops = foreign ? n_in + 1 + n_out : 1; /* casts before and behind */
    *values = foreign ? n_in + 2 * n_out : n_out;
}

static void put_control(hlo_portable *p, const hlo_node *node)
{
    switch (node->op) {
    case HLO_OP_WHILE:
        put_while(p, node);
        break;
    case HLO_OP_CASE:
        put_case(p, node);
        break;
    case HLO_OP_CALL:
        put_call(p, node);
        break;
    case HLO_OP_CUSTOM_CALL:
        put_custom_call(p, node);
        break;
    case HLO_OP_ALL_REDUCE:
    case HLO_OP_ALL_GATHER:
    case HLO_OP_REDUCE_SCATTER:
    case HLO_OP_COLLECTIVE_PERMUTE:
        put_collective(p, node);
        break;
    case HLO_OP_SHARD:
        put_shard(p, node);
        break;
    case HLO_OP_MANUAL:
        if (p->options.gspmd)
            hlo_fail(p->g, HLO_ERROR_UNSUPPORTED, "write: manual regions have no GSPMD form");
        else
            put_manual(p, node);
        break;
    default:
        hlo_fail(p->g, HLO_ERROR_UNSUPPORTED, "write: %s has no portable form",
                 hlo__op_name(node->op));
    }
}

void hlo__put_portable_op(hlo_portable *p, const hlo_node *node)
{
    switch (node->op) {
#define ELEMENTWISE(name, spelling) case HLO_OP_##name:
        HLO_UNARY_OPS(ELEMENTWISE)
        HLO_BINARY_OPS(ELEMENTWISE)
#undef ELEMENTWISE
    case HLO_OP_SELECT:
    case HLO_OP_CLAMP:
    case HLO_OP_CONVERT:
    case HLO_OP_BITCAST:
    case HLO_OP_RESHAPE:
    case HLO_OP_DYNAMIC_UPDATE:
    case HLO_OP_BARRIER:
    case HLO_OP_PARTITION_ID:
        put_plain(p, node);
        break;
    case HLO_OP_CONSTANT:
        put_constant(p, node);
        break;
    case HLO_OP_IOTA:
    case HLO_OP_CONCAT:
        put_with_dim(p, node);
        break;
    case HLO_OP_ERF:
        put_foreign(p, node, "chlo", "erf", NULL, 0);
        break;
    case HLO_OP_COMPARE:
        put_compare(p, node);
        break;
    case HLO_OP_BROADCAST:
    case HLO_OP_TRANSPOSE:
    case HLO_OP_REVERSE:
    case HLO_OP_DYNAMIC_SLICE:
        put_with_dims(p, node);
        break;
    case HLO_OP_SLICE:
        put_slice(p, node);
        break;
    case HLO_OP_PAD:
        put_pad(p, node);
        break;
    case HLO_OP_REDUCE:
        put_reduce(p, node);
        break;
    case HLO_OP_DOT:
        put_dot(p, node);
        break;
    case HLO_OP_CONV:
        put_conv(p, node);
        break;
    case HLO_OP_GATHER:
        put_gather(p, node);
        break;
    case HLO_OP_SCATTER_ADD:
        put_scatter_add(p, node);
        break;
    case HLO_OP_SORT:
        put_sort(p, node);
        break;
    case HLO_OP_RANDOM_BITS:
        put_random_bits(p, node);
        break;
    default:
        put_control(p, node);
    }
}
