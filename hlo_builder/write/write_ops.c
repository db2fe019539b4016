/* The text of each operation. What is common to all, the line and its location, is write.c's. */
#include "hlo_builder/write/write.h"

/* ---- small forms ---- */

/* "stablehlo.name %1, %2" */
static void put_call(hlo_writer *w, const hlo_node *node)
{
    PUT(w, "stablehlo.");
    hlo__put_str(w, hlo__op_name(node->op));
    if (node->n_in > 0)
        PUT(w, " ");
    hlo__put_values(w, node->in, 0, node->n_in);
}

/* One type if all are the same, as the pretty forms want it. */
static void put_common_type(hlo_writer *w, const hlo_node *node)
{
    const hlo_shape *shape = &node->out[0]->shape;
    for (int i = 0; i < node->n_in; i++) {
        if (!hlo_shape_equal(&node->in[i]->shape, shape)) {
            hlo__put_signature(w, node);
            return;
        }
    }
    PUT(w, " : ");
    hlo__put_type(w, shape);
}

static void write_elementwise(hlo_writer *w, const hlo_node *node)
{
    put_call(w, node);
    put_common_type(w, node);
}

/* Operands, a list of dimensions under a name, and the signature. */
static void write_with_dims(hlo_writer *w, const hlo_node *node, const char *label)
{
    put_call(w, node);
    hlo__put_str(w, label);
    hlo__put_dims(w, &((const hlo_dims_attrs *)node->attrs)->dims);
    if (node->op == HLO_OP_REVERSE)
        put_common_type(w, node);
    else
        hlo__put_signature(w, node);
}

static void write_constant(hlo_writer *w, const hlo_node *node)
{
    PUT(w, "stablehlo.constant ");
    hlo__write_dense(w, &node->out[0]->shape, node->attrs);
    PUT(w, " : ");
    hlo__put_type(w, &node->out[0]->shape);
}

static void write_iota(hlo_writer *w, const hlo_node *node)
{
    PUT(w, "stablehlo.iota dim = ");
    hlo__put_int(w, ((const hlo_dim_attrs *)node->attrs)->dim);
    PUT(w, " : ");
    hlo__put_type(w, &node->out[0]->shape);
}

/* StableHLO leaves erf to its client dialect, which every pinned compiler takes. */
static void write_erf(hlo_writer *w, const hlo_node *node)
{
    PUT(w, "chlo.erf ");
    hlo__put_value(w, node->in[0]);
    PUT(w, " : ");
    hlo__put_type(w, &node->in[0]->shape);
    PUT(w, " -> ");
    hlo__put_type(w, &node->out[0]->shape);
}

static const char *order_of(hlo_type type)
{
    switch (type) {
    case HLO_S64:
    case HLO_S32:
    case HLO_S8:
        return "SIGNED";
    case HLO_U64:
    case HLO_U32:
    case HLO_U16:
    case HLO_U8:
    case HLO_PRED:
        return "UNSIGNED";
    default:
        return "FLOAT";
    }
}

static void write_compare(hlo_writer *w, const hlo_node *node)
{
    static const char *const kinds[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    PUT(w, "stablehlo.compare ");
    hlo__put_str(w, kinds[((const hlo_compare_attrs *)node->attrs)->kind]);
    PUT(w, ", ");
    hlo__put_values(w, node->in, 0, 2);
    PUT(w, ", ");
    hlo__put_str(w, order_of(node->in[0]->shape.type));
    hlo__put_signature(w, node);
}

static void write_select(hlo_writer *w, const hlo_node *node)
{
    put_call(w, node);
    PUT(w, " : ");
    hlo__put_types(w, node->in, 2);
}

static void write_converted(hlo_writer *w, const hlo_node *node)
{
    put_call(w, node);
    hlo__put_signature(w, node);
}

static void write_slice(hlo_writer *w, const hlo_node *node)
{
    const hlo_slice_attrs *a = node->attrs;
    put_call(w, node);
    PUT(w, " [");
    for (int i = 0; i < a->start.n; i++) {
        if (i > 0)
            PUT(w, ", ");
        hlo__put_int(w, a->start.d[i]);
        PUT(w, ":");
        hlo__put_int(w, a->limit.d[i]);
        if (a->stride.d[i] != 1) {
            PUT(w, ":");
            hlo__put_int(w, a->stride.d[i]);
        }
    }
    PUT(w, "]");
    hlo__put_signature(w, node);
}

static void write_pad(hlo_writer *w, const hlo_node *node)
{
    const hlo_pad_attrs *a = node->attrs;
    put_call(w, node);
    PUT(w, ", low = ");
    hlo__put_dims(w, &a->low);
    PUT(w, ", high = ");
    hlo__put_dims(w, &a->high);
    PUT(w, ", interior = ");
    hlo__put_dims(w, &a->interior);
    hlo__put_signature(w, node);
}

static void write_concat(hlo_writer *w, const hlo_node *node)
{
    put_call(w, node);
    PUT(w, ", dim = ");
    hlo__put_int(w, ((const hlo_dim_attrs *)node->attrs)->dim);
    hlo__put_signature(w, node);
}

/* ---- reductions and products ---- */

static const char *reducer(int64_t kind)
{
    static const char *const names[] = {
        [HLO_REDUCE_ADD] = "add",     [HLO_REDUCE_MUL] = "multiply", [HLO_REDUCE_MAX] = "maximum",
        [HLO_REDUCE_MIN] = "minimum", [HLO_REDUCE_AND] = "and",      [HLO_REDUCE_OR] = "or",
    };
    return names[kind];
}

static void write_reduce(hlo_writer *w, const hlo_node *node)
{
    const hlo_reduce_attrs *a = node->attrs;
    PUT(w, "stablehlo.reduce(");
    hlo__put_value(w, node->in[0]);
    PUT(w, " init: ");
    hlo__put_value(w, node->in[1]);
    PUT(w, ") applies stablehlo.");
    hlo__put_str(w, reducer(a->kind));
    PUT(w, " across dimensions = ");
    hlo__put_dims(w, &a->dims);
    hlo__put_signature(w, node);
}

static void write_dot(hlo_writer *w, const hlo_node *node)
{
    static const char *const precisions[] = {"DEFAULT", "HIGH", "HIGHEST"};
    const hlo_dot_options *o = node->attrs;
    put_call(w, node);
    if (o->lhs_batch.n > 0) {
        PUT(w, ", batching_dims = ");
        hlo__put_dims(w, &o->lhs_batch);
        PUT(w, " x ");
        hlo__put_dims(w, &o->rhs_batch);
    }
    PUT(w, ", contracting_dims = ");
    hlo__put_dims(w, &o->lhs_contract);
    PUT(w, " x ");
    hlo__put_dims(w, &o->rhs_contract);
    if (o->precision != HLO_PRECISION_DEFAULT)
        hlo__text_printf(&w->text, ", precision = [%s, %s]", precisions[o->precision],
                         precisions[o->precision]);
    hlo__put_signature(w, node);
}

static void write_conv(hlo_writer *w, const hlo_node *node)
{
    const hlo_conv_options *o = node->attrs;
    PUT(w, "stablehlo.convolution(");
    hlo__put_values(w, node->in, 0, 2);
    hlo__text_printf(&w->text,
                     ") dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad "
                     "= [[%lld, %lld]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} "
                     "{batch_group_count = 1 : i64, feature_group_count = %lld : i64}",
                     (long long)o->pad_low, (long long)o->pad_high,
                     (long long)(o->groups == 0 ? 1 : o->groups));
    hlo__put_signature(w, node);
}

/* ---- gather, scatter, sort, random ---- */

/* "\"stablehlo.name\"(%1, %2)" */
static void put_generic(hlo_writer *w, const hlo_node *node)
{
    PUT(w, "\"stablehlo.");
    hlo__put_str(w, hlo__op_name(node->op));
    PUT(w, "\"(");
    hlo__put_values(w, node->in, 0, node->n_in);
    PUT(w, ")");
}

/* "name = [1], ", or nothing for none. */
static void put_named_dims(hlo_writer *w, const char *name, const hlo_dims *dims)
{
    if (dims->n == 0)
        return;
    hlo__put_str(w, name);
    PUT(w, " = ");
    hlo__put_dims(w, dims);
    PUT(w, ", ");
}

static void write_gather(hlo_writer *w, const hlo_node *node)
{
    const hlo_gather_attrs *a = node->attrs;
    put_generic(w, node);
    PUT(w, " <{dimension_numbers = #stablehlo.gather<");
    put_named_dims(w, "offset_dims", &a->dims.offset);
    put_named_dims(w, "collapsed_slice_dims", &a->dims.collapsed);
    put_named_dims(w, "operand_batching_dims", &a->dims.operand_batch);
    put_named_dims(w, "start_indices_batching_dims", &a->dims.indices_batch);
    put_named_dims(w, "start_index_map", &a->dims.start_map);
    PUT(w, "index_vector_dim = ");
    hlo__put_int(w, a->dims.index_vector_dim);
    PUT(w, ">, indices_are_sorted = false, slice_sizes = array<i64");
    if (a->window.n > 0)
        PUT(w, ": ");
    hlo__put_list(w, a->window.d, a->window.n);
    PUT(w, ">}>");
    hlo__put_signature(w, node);
}

/* The names of the parameters of a small region that only the text has, from `first` on. */
static void put_scalar_params(hlo_writer *w, uint32_t first, int n, hlo_type type)
{
    for (int i = 0; i < n; i++)
        hlo__text_printf(&w->text, "%s%%%u: tensor<%s>", i > 0 ? ", " : "", first + (uint32_t)i,
                         hlo_type_name(type));
}

/* "({ ^bb0(%1: …, %2: …): … })" with a reduction of two scalars. */
static void put_reducer(hlo_writer *w, int64_t kind, hlo_type type)
{
    uint32_t a = hlo__new_name(w).number, b = hlo__new_name(w).number;
    uint32_t sum = hlo__new_name(w).number;
    const char *name = hlo_type_name(type);
    PUT(w, " ({");
    hlo__new_line(w);
    PUT(w, "^bb0(");
    put_scalar_params(w, a, 2, type);
    PUT(w, "):");
    w->depth++;
    hlo__new_line(w);
    hlo__text_printf(&w->text, "%%%u = stablehlo.%s %%%u, %%%u : tensor<%s>", sum, reducer(kind), a,
                     b, name);
    hlo__new_line(w);
    hlo__text_printf(&w->text, "stablehlo.return %%%u : tensor<%s>", sum, name);
    w->depth--;
    hlo__new_line(w);
    PUT(w, "})");
}

static void write_scatter_add(hlo_writer *w, const hlo_node *node)
{
    const hlo_gather_attrs *a = node->attrs;
    put_generic(w, node);
    PUT(w, " <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<");
    put_named_dims(w, "update_window_dims", &a->dims.offset);
    put_named_dims(w, "inserted_window_dims", &a->dims.collapsed);
    put_named_dims(w, "input_batching_dims", &a->dims.operand_batch);
    put_named_dims(w, "scatter_indices_batching_dims", &a->dims.indices_batch);
    put_named_dims(w, "scatter_dims_to_operand_dims", &a->dims.start_map);
    PUT(w, "index_vector_dim = ");
    hlo__put_int(w, a->dims.index_vector_dim);
    PUT(w, ">, unique_indices = false}>");
    put_reducer(w, HLO_REDUCE_ADD, node->in[0]->shape.type);
    hlo__put_signature(w, node);
}

/* A float key as the comparison takes it: all NaN alike, and one zero. */
static uint32_t put_sort_key(hlo_writer *w, uint32_t x, hlo_type type, uint32_t zero, uint32_t nan)
{
    const char *t = hlo_type_name(type);
    uint32_t n[4];
    for (int i = 0; i < 4; i++)
        n[i] = hlo__new_name(w).number;
    hlo__new_line(w);
    hlo__text_printf(&w->text,
                     "%%%u = stablehlo.compare EQ, %%%u, %%%u, FLOAT : (tensor<%s>, tensor<%s>) -> "
                     "tensor<i1>",
                     n[0], x, zero, t, t);
    hlo__new_line(w);
    hlo__text_printf(&w->text, "%%%u = stablehlo.select %%%u, %%%u, %%%u : tensor<i1>, tensor<%s>",
                     n[1], n[0], zero, x, t);
    hlo__new_line(w);
    hlo__text_printf(&w->text,
                     "%%%u = stablehlo.compare NE, %%%u, %%%u, FLOAT : (tensor<%s>, tensor<%s>) -> "
                     "tensor<i1>",
                     n[2], x, x, t, t);
    hlo__new_line(w);
    hlo__text_printf(&w->text, "%%%u = stablehlo.select %%%u, %%%u, %%%u : tensor<i1>, tensor<%s>",
                     n[3], n[2], nan, n[1], t);
    return n[3];
}

static uint32_t put_scalar_constant(hlo_writer *w, hlo_type type, double value)
{
    uint32_t name = hlo__new_name(w).number;
    hlo__new_line(w);
    hlo__text_printf(&w->text, "%%%u = stablehlo.constant dense<", name);
    hlo__put_float(w, type, value);
    hlo__text_printf(&w->text, "> : tensor<%s>", hlo_type_name(type));
    return name;
}

static void write_sort(hlo_writer *w, const hlo_node *node)
{
    const hlo_sort_attrs *a = node->attrs;
    hlo_type type = node->in[0]->shape.type;
    const char *t = hlo_type_name(type);
    uint32_t first = w->next;
    w->next += 2 * (uint32_t)node->n_in;
    put_generic(w, node);
    hlo__text_printf(&w->text, " <{dimension = %lld : i64, is_stable = true}> ({",
                     (long long)a->dim);
    hlo__new_line(w);
    PUT(w, "^bb0(");
    for (int i = 0; i < node->n_in; i++) {
        hlo__put_str(w, i > 0 ? ", " : "");
        put_scalar_params(w, first + 2 * (uint32_t)i, 2, node->in[i]->shape.type);
    }
    PUT(w, "):");
    w->depth++;
    uint32_t left = first, right = first + 1;
    if (hlo_type_is_float(type)) {
        uint32_t zero = put_scalar_constant(w, type, 0);
        uint32_t nan = put_scalar_constant(w, type, __builtin_nan(""));
        left = put_sort_key(w, left, type, zero, nan);
        right = put_sort_key(w, right, type, zero, nan);
    }
    uint32_t before = hlo__new_name(w).number;
    hlo__new_line(w);
    hlo__text_printf(&w->text,
                     "%%%u = stablehlo.compare %s, %%%u, %%%u, %s : (tensor<%s>, tensor<%s>) -> "
                     "tensor<i1>",
                     before, a->descending ? "GT" : "LT", left, right,
                     hlo_type_is_float(type) ? "TOTALORDER" : order_of(type), t, t);
    hlo__new_line(w);
    hlo__text_printf(&w->text, "stablehlo.return %%%u : tensor<i1>", before);
    w->depth--;
    hlo__new_line(w);
    PUT(w, "})");
    hlo__put_signature(w, node);
}

static void write_random_bits(hlo_writer *w, const hlo_node *node)
{
    put_call(w, node);
    PUT(w, ", algorithm = THREE_FRY");
    hlo__put_signature(w, node);
}

/* ---- control ---- */

static void write_while(hlo_writer *w, const hlo_node *node)
{
    const hlo_block *condition = node->regions[0], *body = node->regions[1];
    PUT(w, "stablehlo.while(");
    for (int i = 0; i < node->n_in; i++) {
        hlo_name name = hlo__new_name(w);
        w->names[condition->params[i]->id] = w->names[body->params[i]->id] = name;
        hlo__text_printf(&w->text, "%s%%%u = ", i > 0 ? ", " : "", name.number);
        hlo__put_value(w, node->in[i]);
    }
    PUT(w, ") : ");
    hlo__put_types(w, node->in, node->n_in);
    hlo__new_line(w);
    PUT(w, "cond {");
    hlo__write_region(w, condition, "stablehlo.return");
    PUT(w, " do {");
    hlo__write_region(w, body, "stablehlo.return");
}

static void write_case(hlo_writer *w, const hlo_node *node)
{
    bool is_if = node->in[0]->shape.type == HLO_PRED;
    hlo__put_str(w, is_if ? "\"stablehlo.if\"(" : "\"stablehlo.case\"(");
    hlo__put_value(w, node->in[0]);
    PUT(w, ") (");
    for (int r = 0; r < node->n_regions; r++) {
        for (int i = 0; i < node->regions[r]->n_params; i++)
            w->names[node->regions[r]->params[i]->id] = w->names[node->in[i + 1]->id];
        hlo__put_str(w, r > 0 ? ", {" : "{");
        hlo__write_region(w, node->regions[r], "stablehlo.return");
    }
    PUT(w, ")");
    hlo__put_signature(w, node);
}

static void write_call(hlo_writer *w, const hlo_node *node)
{
    const hlo_call_attrs *a = node->attrs;
    const char *function = hlo__function_name(w, node);
    if (a->composite) {
        PUT(w, "stablehlo.composite ");
        hlo__put_quoted(w, a->name);
        PUT(w, " ");
        hlo__put_values(w, node->in, 0, node->n_in);
        PUT(w, " {decomposition = ");
        hlo__put_symbol(w, function);
        PUT(w, "}");
    } else {
        PUT(w, "func.call ");
        hlo__put_symbol(w, function);
        PUT(w, "(");
        hlo__put_values(w, node->in, 0, node->n_in);
        PUT(w, ")");
    }
    hlo__put_signature(w, node);
}

static void put_attr(hlo_writer *w, const hlo_attr *a)
{
    hlo__put_quoted(w, a->name);
    PUT(w, " = ");
    switch (a->kind) {
    case HLO_ATTR_STRING:
        hlo__put_quoted(w, a->string);
        break;
    case HLO_ATTR_INT:
        hlo__put_int(w, a->integer);
        PUT(w, " : i64");
        break;
    case HLO_ATTR_FLOAT:
        hlo__put_float(w, HLO_F32, (double)(float)a->real);
        PUT(w, " : f32");
        break;
    default:
        hlo__put_str(w, a->integer ? "true" : "false");
    }
}

/* "dense<[1, 0]> : tensor<2xindex>": the dimensions from minor to major. */
static void put_row_major(hlo_writer *w, int rank)
{
    PUT(w, "dense<");
    for (int i = rank - 1; i >= 0; i--) {
        hlo__put_str(w, i == rank - 1 ? "[" : ", ");
        hlo__put_int(w, i);
    }
    hlo__put_str(w, rank > 0 ? "]> : tensor<" : "> : tensor<");
    hlo__put_int(w, rank);
    PUT(w, "xindex>");
}

/* "name = [layout, layout]", all row-major. */
static void put_layouts(hlo_writer *w, const char *name, hlo_value *const *values, int n)
{
    hlo__put_str(w, name);
    PUT(w, " = [");
    for (int i = 0; i < n; i++) {
        hlo__put_str(w, i > 0 ? ", " : "");
        put_row_major(w, values[i]->shape.rank);
    }
    PUT(w, "]");
}

/*
 * An FFI handler receives dimensions but no layouts, and kernels index row-major arrays. Without
 * explicit layouts XLA:CUDA picks its own.
 */
static void write_custom_call(hlo_writer *w, const hlo_node *node)
{
    const hlo_custom_call_options *o = node->attrs;
    PUT(w, "stablehlo.custom_call ");
    hlo__put_symbol(w, o->target);
    PUT(w, "(");
    hlo__put_values(w, node->in, 0, node->n_in);
    PUT(w, ") {api_version = 4 : i32, backend_config = {");
    for (int i = 0; i < o->n_attrs; i++) {
        hlo__put_str(w, i > 0 ? ", " : "");
        put_attr(w, &o->attrs[i]);
    }
    PUT(w, "}");
    if (o->has_side_effect)
        PUT(w, ", has_side_effect = true");
    put_layouts(w, ", operand_layouts", node->in, node->n_in);
    for (int i = 0; i < o->n_aliases; i++) {
        hlo__put_str(w, i == 0 ? ", output_operand_aliases = [" : ", ");
        PUT(w, "#stablehlo.output_operand_alias<output_tuple_indices = [");
        if (node->n_out > 1)
            hlo__put_int(w, o->aliases[i][0]);
        PUT(w, "], operand_index = ");
        hlo__put_int(w, o->aliases[i][1]);
        PUT(w, ", operand_tuple_indices = []>");
        hlo__put_str(w, i + 1 == o->n_aliases ? "]" : "");
    }
    put_layouts(w, ", result_layouts", node->out, node->n_out);
    PUT(w, "}");
    hlo__put_signature(w, node);
}

static void write_barrier(hlo_writer *w, const hlo_node *node)
{
    put_call(w, node);
    PUT(w, " : ");
    hlo__put_types(w, node->in, node->n_in);
}

static void write_row_major(hlo_writer *w, const hlo_node *node)
{
    PUT(w, "stablehlo.custom_call @LayoutConstraint(");
    hlo__put_value(w, node->in[0]);
    PUT(w, ") {backend_config = \"\", ");
    put_layouts(w, "operand_layouts", node->in, 1);
    put_layouts(w, ", result_layouts", node->out, 1);
    PUT(w, "}");
    hlo__put_signature(w, node);
}

/* ---- many devices ---- */

/* "name = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>" */
static void put_id_rows(hlo_writer *w, const char *name, const hlo_collective_attrs *a)
{
    hlo__put_str(w, name);
    PUT(w, " = dense<[");
    for (int64_t i = 0; i < a->rows; i++) {
        hlo__put_str(w, i > 0 ? ", [" : "[");
        hlo__put_list(w, a->ids + i * a->columns, a->columns);
        PUT(w, "]");
    }
    hlo__text_printf(&w->text, "]> : tensor<%lldx%lldxi64>", (long long)a->rows,
                     (long long)a->columns);
}

/* Collectives are between partitions: that needs a channel, and device numbers that are global. */
static void write_collective(hlo_writer *w, const hlo_node *node)
{
    const hlo_collective_attrs *a = node->attrs;
    put_generic(w, node);
    PUT(w, " <{");
    if (node->op == HLO_OP_ALL_GATHER)
        hlo__text_printf(&w->text, "all_gather_dim = %lld : i64, ", (long long)a->dim);
    PUT(w, "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, ");
    if (node->op == HLO_OP_COLLECTIVE_PERMUTE)
        put_id_rows(w, "source_target_pairs", a);
    else
        put_id_rows(w, "replica_groups", a);
    if (node->op == HLO_OP_REDUCE_SCATTER)
        hlo__text_printf(&w->text, ", scatter_dimension = %lld : i64", (long long)a->dim);
    if (node->op != HLO_OP_COLLECTIVE_PERMUTE)
        PUT(w, ", use_global_device_ids");
    PUT(w, "}>");
    if (node->op == HLO_OP_ALL_REDUCE)
        put_reducer(w, a->kind, node->in[0]->shape.type);
    else if (node->op == HLO_OP_REDUCE_SCATTER)
        put_reducer(w, HLO_REDUCE_ADD, node->in[0]->shape.type);
    hlo__put_signature(w, node);
}

static void write_shard(hlo_writer *w, const hlo_node *node)
{
    const hlo_shape *shape = &node->out[0]->shape;
    if (w->options.gspmd) {
        PUT(w, "stablehlo.custom_call @Sharding(");
        hlo__put_value(w, node->in[0]);
        PUT(w, ") {mhlo.sharding = ");
        hlo__put_gspmd(w, node->attrs, shape->rank);
        PUT(w, "}");
        hlo__put_signature(w, node);
        return;
    }
    PUT(w, "sdy.sharding_constraint ");
    hlo__put_value(w, node->in[0]);
    PUT(w, " ");
    hlo__put_sharding(w, node->attrs, shape->rank);
    PUT(w, " : ");
    hlo__put_type(w, shape);
}

static void write_manual(hlo_writer *w, const hlo_node *node)
{
    const hlo_manual_attrs *a = node->attrs;
    const hlo_block *body = node->regions[0];
    if (w->options.gspmd) {
        hlo_fail(w->g, HLO_ERROR_UNSUPPORTED, "write: manual regions have no GSPMD form");
        return;
    }
    PUT(w, "sdy.manual_computation(");
    hlo__put_values(w, node->in, 0, node->n_in);
    PUT(w, ") in_shardings=[");
    hlo__put_shardings(w, a->in_specs, node->in, node->n_in);
    PUT(w, "] out_shardings=[");
    hlo__put_shardings(w, a->out_specs, node->out, node->n_out);
    PUT(w, "] manual_axes=");
    hlo__put_manual_axes(w);
    PUT(w, " (");
    for (int i = 0; i < node->n_in; i++) {
        hlo_value *param = body->params[i];
        w->names[param->id] = hlo__new_name(w);
        hlo__put_str(w, i > 0 ? ", " : "");
        hlo__put_value(w, param);
        PUT(w, ": ");
        hlo__put_type(w, &param->shape);
    }
    PUT(w, ") {");
    hlo__write_region(w, body, "sdy.return");
    hlo__put_signature(w, node);
}

/* ---- which is which ---- */

static void write_control(hlo_writer *w, const hlo_node *node)
{
    switch (node->op) {
    case HLO_OP_WHILE:
        write_while(w, node);
        break;
    case HLO_OP_CASE:
        write_case(w, node);
        break;
    case HLO_OP_CALL:
        write_call(w, node);
        break;
    case HLO_OP_CUSTOM_CALL:
        write_custom_call(w, node);
        break;
    case HLO_OP_BARRIER:
        write_barrier(w, node);
        break;
    case HLO_OP_ALL_REDUCE:
    case HLO_OP_ALL_GATHER:
    case HLO_OP_REDUCE_SCATTER:
    case HLO_OP_COLLECTIVE_PERMUTE:
        write_collective(w, node);
        break;
    case HLO_OP_SHARD:
        write_shard(w, node);
        break;
    case HLO_OP_ROW_MAJOR:
        write_row_major(w, node);
        break;
    case HLO_OP_MANUAL:
        write_manual(w, node);
        break;
    default:
        hlo_fail(w->g, HLO_ERROR_UNSUPPORTED, "write: %s has no StableHLO form",
                 hlo__op_name(node->op));
    }
}

void hlo__write_op(hlo_writer *w, const hlo_node *node)
{
    hlo__begin_op(w, node);
    switch (node->op) {
#define ELEMENTWISE(name, spelling) case HLO_OP_##name:
        HLO_UNARY_OPS(ELEMENTWISE)
        HLO_BINARY_OPS(ELEMENTWISE)
#undef ELEMENTWISE
    case HLO_OP_CLAMP:
    case HLO_OP_PARTITION_ID:
        write_elementwise(w, node);
        break;
    case HLO_OP_CONSTANT:
        write_constant(w, node);
        break;
    case HLO_OP_IOTA:
        write_iota(w, node);
        break;
    case HLO_OP_ERF:
        write_erf(w, node);
        break;
    case HLO_OP_COMPARE:
        write_compare(w, node);
        break;
    case HLO_OP_SELECT:
        write_select(w, node);
        break;
    case HLO_OP_CONVERT:
    case HLO_OP_BITCAST:
    case HLO_OP_RESHAPE:
    case HLO_OP_DYNAMIC_UPDATE:
        write_converted(w, node);
        break;
    case HLO_OP_BROADCAST:
    case HLO_OP_TRANSPOSE:
    case HLO_OP_REVERSE:
        write_with_dims(w, node, ", dims = ");
        break;
    case HLO_OP_DYNAMIC_SLICE:
        write_with_dims(w, node, ", sizes = ");
        break;
    case HLO_OP_SLICE:
        write_slice(w, node);
        break;
    case HLO_OP_PAD:
        write_pad(w, node);
        break;
    case HLO_OP_CONCAT:
        write_concat(w, node);
        break;
    case HLO_OP_REDUCE:
        write_reduce(w, node);
        break;
    case HLO_OP_DOT:
        write_dot(w, node);
        break;
    case HLO_OP_CONV:
        write_conv(w, node);
        break;
    case HLO_OP_GATHER:
        write_gather(w, node);
        break;
    case HLO_OP_SCATTER_ADD:
        write_scatter_add(w, node);
        break;
    case HLO_OP_SORT:
        write_sort(w, node);
        break;
    case HLO_OP_RANDOM_BITS:
        write_random_bits(w, node);
        break;
    default:
        write_control(w, node);
    }
}
