/*
 * From the graph as built to what StableHLO has.
 *
 * Everything is copied into new blocks: scans become whiles, remat and custom gradients are
 * inlined, marks that only gradients read vanish. Then what no result needs is taken out of the
 * copy (lower_prune.c), where each region belongs to one node and may be changed.
 */
#include "hlo_builder/write/lower.h"
#include "hlo_builder/fold.h"

#include <math.h>
#include <stdlib.h>

static void lower_nodes(hlo_lowering *l, const hlo_block *block, const hlo_val *args,
                        hlo_val *results);

static hlo_val lowered(const hlo_lowering *l, const hlo_value *v)
{
    return hlo__handle(l->g, l->to[v->id]);
}

static void set_lowered(hlo_lowering *l, const hlo_value *v, hlo_val to)
{
    l->to[v->id] = to.id == 0 ? NULL : l->g->values[to.id - 1];
}

/* Blocks of the copy see nothing outside them, for they are closed from the start. */
static hlo_block *open_block(hlo_lowering *l, hlo_block **around)
{
    *around = l->g->current;
    hlo_block *block = hlo__begin_block(l->g);
    if (block != NULL)
        block->parent = NULL;
    return block;
}

static void end_block(hlo_lowering *l, hlo_block *block, hlo_block *around, const hlo_val *results,
                      int n)
{
    hlo__end_block(l->g, block, results, n);
    l->g->current = around;
}

/* A node that stays although nobody may use its results. */
static void remember_effect(hlo_lowering *l, hlo_node *node)
{
    void *effects = l->effects;
    bool ok = hlo__grow(l->g, &effects, &l->cap_effects, sizeof(hlo_node *), l->n_effects + 1);
    l->effects = effects;
    if (ok && node != NULL)
        l->effects[l->n_effects++] = node;
    l->effect = true;
}

/* ---- regions ---- */

static hlo_block *lower_region(hlo_lowering *l, const hlo_block *region)
{
    hlo_block *around, *block = open_block(l, &around);
    hlo_val *args =
        hlo__alloc(l->g, (size_t)(region->n_params + region->n_results + 1) * sizeof *args);
    if (args == NULL)
        return NULL;
    for (int i = 0; i < region->n_params; i++)
        args[i] = hlo__block_param(l->g, region->params[i]->shape);
    hlo_val *results = args + region->n_params;
    lower_nodes(l, region, args, results);
    end_block(l, block, around, results, region->n_results);
    return block;
}

/* Each distinct body of calls becomes one function. Its first result leads to it. */
static hlo_block *lower_function(hlo_lowering *l, const hlo_block *region)
{
    hlo_val known = hlo__map_get(&l->function_of, region->results[0]);
    if (known.id != 0) {
        const hlo_lowered_function *f = &l->functions[known.id - 1];
        l->effect = l->effect || f->effect;
        return f->block;
    }
    hlo_block *block = lower_region(l, region);
    void *functions = l->functions;
    bool ok =
        hlo__grow(l->g, &functions, &l->cap_functions, sizeof *l->functions, l->n_functions + 1);
    l->functions = functions;
    if (!ok)
        return NULL;
    l->functions[l->n_functions++] = (hlo_lowered_function){block, l->effect};
    hlo__map_set(&l->function_of, region->results[0], (hlo_val){.id = (uint32_t)l->n_functions});
    return block;
}

static hlo_node *lower_region_op(hlo_lowering *l, const hlo_node *node, const hlo_val *in)
{
    hlo_graph *g = l->g;
    hlo_block **regions = hlo__alloc(g, (size_t)node->n_regions * sizeof *regions);
    hlo_shape *shapes = hlo__alloc(g, (size_t)(node->n_out + 1) * sizeof *shapes);
    bool effect = l->effect;
    l->effect = false;
    for (int i = 0; i < node->n_regions && !hlo__failed(g); i++)
        regions[i] = node->op == HLO_OP_CALL ? lower_function(l, node->regions[i])
                                             : lower_region(l, node->regions[i]);
    if (hlo__failed(g))
        return NULL;
    for (int i = 0; i < node->n_out; i++)
        shapes[i] = node->out[i]->shape;
    const char *scope = g->scope;
    g->scope = node->scope;
    hlo_node *copy = hlo__add_region_op(g, node->op, in, node->n_in, shapes, node->n_out,
                                        node->attrs, node->attrs_size, regions, node->n_regions);
    g->scope = scope;
    if (l->effect)
        remember_effect(l, copy);
    l->effect = l->effect || effect;
    return copy;
}

/* ---- scans ---- */

/* The loop's operands in order: counter, carries, outputs so far, inputs, captured values. */
typedef struct scan {
    hlo_lowering *l;
    const hlo_node *node;
    const hlo_block *body;
    int64_t length, unroll;
    bool reverse;
    int n_carry, n_inputs, n_outputs, n_captured;
    hlo_val *args, *results; /* of the body, scratch */
    bool *is_splat; /* inputs that are one number all over: their slices are made in place */
    hlo_number *splats;
} scan;

static hlo_val *scratch(hlo_graph *g, int n)
{
    return hlo__alloc(g, (size_t)(n + 1) * sizeof(hlo_val));
}

/* One step on the values `at` of the loop, s->results receiving the next carries and outputs.
 * `place` is where the step's slices are: a number, or, when that is negative, `index`. */
static void scan_step(scan *s, int64_t place, hlo_val index, const hlo_val *at)
{
    hlo_graph *g = s->l->g;
    const hlo_val *inputs = at + 1 + s->n_carry + s->n_outputs;
    s->args[0] = place < 0 ? index : hlo_scalar_int(g, HLO_S32, place);
    memcpy(s->args + 1, at + 1, (size_t)s->n_carry * sizeof *at);
    for (int i = 0; i < s->n_inputs; i++) {
        hlo_val *slice = &s->args[1 + s->n_carry + i];
        if (s->is_splat[i]) {
            *slice = hlo__splat(g, s->body->params[1 + s->n_carry + i]->shape, s->splats[i]);
        } else if (place < 0) {
            *slice = hlo_index(g, inputs[i], 0, index);
        } else {
            hlo_dims dims = {.n = hlo_rank(g, inputs[i]) - 1};
            for (int k = 0; k < dims.n; k++)
                dims.d[k] = hlo_dim(g, inputs[i], k + 1);
            *slice = hlo_reshape(g, hlo_slice_dim(g, inputs[i], 0, place, place + 1), dims);
        }
    }
    memcpy(s->args + 1 + s->n_carry + s->n_inputs, inputs + s->n_inputs,
           (size_t)s->n_captured * sizeof *at);
    lower_nodes(s->l, s->body, s->args, s->results);
}

/* A step whose results replace the carries in `at` and are written into the outputs there. */
static void scan_step_in_place(scan *s, int64_t place, hlo_val index, hlo_val *at)
{
    hlo_graph *g = s->l->g;
    scan_step(s, place, index, at);
    memcpy(at + 1, s->results, (size_t)s->n_carry * sizeof *at);
    hlo_val where = s->args[0];
    for (int i = 0; i < s->n_outputs && !hlo__failed(g); i++) {
        hlo_val *output = &at[1 + s->n_carry + i];
        *output = hlo_update_index(g, *output, 0, where, s->results[s->n_carry + i]);
    }
}

static hlo_shape stacked_shape(const scan *s, int output)
{
    const hlo_shape *slice = &s->body->results[s->n_carry + output]->shape;
    hlo_shape shape = {.type = slice->type, .rank = slice->rank + 1, .dims = {s->length}};
    memcpy(shape.dims + 1, slice->dims, (size_t)slice->rank * sizeof *slice->dims);
    return shape;
}

/* Without a loop: few steps, one after the other, and their outputs stacked at the end. */
static void unroll_scan(scan *s, hlo_val *at)
{
    hlo_graph *g = s->l->g;
    hlo_val **parts = hlo__alloc(g, (size_t)(s->n_outputs + 1) * sizeof *parts);
    for (int i = 0; i < s->n_outputs && parts != NULL; i++)
        parts[i] = scratch(g, (int)s->length);
    for (int64_t i = 0; i < s->length && !hlo__failed(g); i++) {
        int64_t place = s->reverse ? s->length - 1 - i : i;
        scan_step(s, place, (hlo_val){0}, at);
        memcpy(at + 1, s->results, (size_t)s->n_carry * sizeof *at);
        for (int k = 0; k < s->n_outputs; k++)
            parts[k][place] = s->results[s->n_carry + k];
    }
    for (int i = 0; i < s->n_outputs && !hlo__failed(g); i++) {
        hlo_shape shape = stacked_shape(s, i);
        hlo_dims dims = {.n = shape.rank};
        memcpy(dims.d, shape.dims, (size_t)shape.rank * sizeof *dims.d);
        hlo_val *output = &at[1 + s->n_carry + i];
        if (s->length == 0)
            *output = hlo_full(g, shape, 0);
        else if (s->length == 1)
            *output = hlo_reshape(g, parts[i][0], dims);
        else
            *output = hlo_stack(g, parts[i], (int)s->length, 0);
    }
}

static hlo_block *scan_condition(scan *s, const hlo_val *like, int n, int64_t limit)
{
    hlo_graph *g = s->l->g;
    hlo_block *around, *block = open_block(s->l, &around);
    hlo_val counter = {0};
    for (int i = 0; i < n; i++) {
        hlo_val param = hlo__block_param(g, *hlo_shape_of(g, like[i]));
        counter = i == 0 ? param : counter;
    }
    hlo_val go_on = hlo_compare(g, HLO_LT, counter, hlo_scalar_int(g, HLO_S32, limit));
    end_block(s->l, block, around, &go_on, 1);
    return block;
}

static hlo_block *scan_body(scan *s, const hlo_val *like, int n)
{
    hlo_graph *g = s->l->g;
    hlo_block *around, *block = open_block(s->l, &around);
    hlo_val *at = scratch(g, n);
    if (at == NULL)
        return NULL;
    for (int i = 0; i < n; i++)
        at[i] = hlo__block_param(g, *hlo_shape_of(g, like[i]));
    hlo_val counter = at[0];
    for (int64_t i = 0; i < s->unroll && !hlo__failed(g); i++) {
        hlo_val index = i == 0 ? counter : hlo_add(g, counter, hlo_scalar_int(g, HLO_S32, i));
        if (s->reverse)
            index = hlo_sub(g, hlo_scalar_int(g, HLO_S32, s->length - 1), index);
        scan_step_in_place(s, -1, index, at);
    }
    at[0] = hlo_add(g, counter, hlo_scalar_int(g, HLO_S32, s->unroll));
    end_block(s->l, block, around, at, n);
    return block;
}

/* As a loop over groups of `unroll` steps; what is left over follows it. */
static void loop_scan(scan *s, hlo_val *at)
{
    hlo_graph *g = s->l->g;
    int n = 1 + s->n_carry + s->n_outputs + s->n_inputs + s->n_captured;
    int64_t limit = s->length - s->length % s->unroll;
    hlo_shape *shapes = hlo__alloc(g, (size_t)n * sizeof *shapes);
    at[0] = hlo_scalar_int(g, HLO_S32, 0);
    for (int i = 0; i < s->n_outputs; i++)
        at[1 + s->n_carry + i] = hlo_full(g, stacked_shape(s, i), 0);
    if (hlo__failed(g))
        return;
    for (int i = 0; i < n; i++)
        shapes[i] = *hlo_shape_of(g, at[i]);
    bool effect = s->l->effect;
    s->l->effect = false;
    hlo_block *regions[2] = {scan_condition(s, at, n, limit), scan_body(s, at, n)};
    hlo_node *loop = hlo__add_region_op(g, HLO_OP_WHILE, at, n, shapes, n, NULL, 0, regions, 2);
    if (s->l->effect && loop != NULL)
        remember_effect(s->l, loop);
    s->l->effect = s->l->effect || effect;
    for (int i = 0; i < 1 + s->n_carry + s->n_outputs; i++)
        at[i] = hlo__out(loop, i);
    for (int64_t i = limit; i < s->length && !hlo__failed(g); i++)
        scan_step_in_place(s, s->reverse ? s->length - 1 - i : i, (hlo_val){0}, at);
}

static void lower_scan(hlo_lowering *l, const hlo_node *node, const hlo_val *in)
{
    hlo_graph *g = l->g;
    const hlo_scan_attrs *a = node->attrs;
    scan s = {.l = l, .node = node, .body = node->regions[0]};
    s.length = a->length;
    s.reverse = a->reverse != 0;
    s.unroll = a->unroll < 1 ? 1 : a->unroll;
    s.n_carry = (int)a->n_carry;
    s.n_inputs = (int)a->n_inputs;
    s.n_outputs = (int)a->n_outputs;
    s.n_captured = node->n_in - s.n_carry - s.n_inputs;
    s.args = scratch(g, s.body->n_params);
    s.results = scratch(g, s.body->n_results);
    s.is_splat = hlo__alloc(g, (size_t)(s.n_inputs + 1) * sizeof *s.is_splat);
    s.splats = hlo__alloc(g, (size_t)(s.n_inputs + 1) * sizeof *s.splats);
    hlo_val *at = scratch(g, 1 + node->n_in + s.n_outputs);
    if (hlo__failed(g))
        return;
    memcpy(at + 1, in, (size_t)s.n_carry * sizeof *in);
    memcpy(at + 1 + s.n_carry + s.n_outputs, in + s.n_carry,
           (size_t)(s.n_inputs + s.n_captured) * sizeof *in);
    for (int i = 0; i < s.n_inputs; i++)
        s.is_splat[i] = hlo__splat_of(g, in[s.n_carry + i], &s.splats[i]);
    const char *scope = g->scope;
    g->scope = node->scope;
    if (s.length / s.unroll < 2)
        unroll_scan(&s, at);
    else
        loop_scan(&s, at);
    g->scope = scope;
    for (int i = 0; i < node->n_out && !hlo__failed(g); i++)
        set_lowered(l, node->out[i], at[1 + i]);
}

/* ---- nodes ---- */

static void lower_inline(hlo_lowering *l, const hlo_node *node, const hlo_val *in)
{
    hlo_val *results = scratch(l->g, node->regions[0]->n_results);
    if (results == NULL)
        return;
    lower_nodes(l, node->regions[0], in, results);
    for (int i = 0; i < node->n_out && !hlo__failed(l->g); i++)
        set_lowered(l, node->out[i], results[i]);
}

/* What a reduction of nothing gives. */
static hlo_val identity(hlo_graph *g, int64_t kind, hlo_type type)
{
    bool is_signed = hlo__type_kind(type) == 's';
    int bits = hlo_type_bits(type);
    int64_t ones = type == HLO_PRED ? 1 : is_signed || bits == 64 ? -1 : (1ll << bits) - 1;
    int64_t largest = !is_signed ? ones : INT64_MAX >> (64 - bits);
    switch (kind) {
    case HLO_REDUCE_MUL:
        return hlo_scalar(g, type, 1);
    case HLO_REDUCE_MAX:
        if (hlo_type_is_float(type))
            return hlo_scalar(g, type, -INFINITY);
        return hlo_scalar_int(g, type, is_signed ? -largest - 1 : 0);
    case HLO_REDUCE_MIN:
        return hlo_type_is_float(type) ? hlo_scalar(g, type, INFINITY)
                                       : hlo_scalar_int(g, type, largest);
    case HLO_REDUCE_AND:
        return hlo_scalar_int(g, type, ones);
    default:
        return hlo_scalar(g, type, 0);
    }
}

/* StableHLO's takes the value it starts from as an operand. */
static hlo_node *lower_reduce(hlo_graph *g, const hlo_node *node, hlo_val x)
{
    const hlo_reduce_attrs *attrs = node->attrs;
    const char *scope = g->scope;
    g->scope = node->scope;
    hlo_val in[2] = {x, identity(g, attrs->kind, node->in[0]->shape.type)};
    hlo_node *copy =
        hlo__add(g, HLO_OP_REDUCE, in, 2, &node->out[0]->shape, 1, node->attrs, node->attrs_size);
    g->scope = scope;
    return copy;
}

/*
 * Nearly every node takes this way, so it is short: the attributes are shared, and equal nodes are
 * not looked for, for they were merged when the block was built.
 */
static hlo_node *copy_node(hlo_lowering *l, const hlo_node *node)
{
    hlo_graph *g = l->g;
    size_t n_in = (size_t)node->n_in, n_out = (size_t)node->n_out;
    hlo_node *copy = hlo__alloc(g, sizeof *copy + (n_in + n_out) * sizeof(hlo_value *));
    if (copy == NULL)
        return NULL;
    *copy = *node;
    copy->block = g->current;
    copy->mark = 0;
    copy->in = (hlo_value **)(copy + 1);
    copy->out = copy->in + n_in;
    for (size_t i = 0; i < n_in; i++)
        copy->in[i] = l->to[node->in[i]->id];
    for (size_t i = 0; i < n_out; i++) {
        copy->out[i] = hlo__new_value(g, copy, (int)i, &node->out[i]->shape);
        l->to[node->out[i]->id] = copy->out[i];
    }
    if (hlo__failed(g) || !hlo__block_append(g, g->current, copy))
        return NULL;
    if (node->op == HLO_OP_CUSTOM_CALL &&
        ((const hlo_custom_call_options *)node->attrs)->has_side_effect)
        remember_effect(l, copy);
    return copy;
}

/* Those that do not become a copy of themselves. */
static void lower_special(hlo_lowering *l, const hlo_node *node)
{
    hlo_graph *g = l->g;
    hlo_node *copy = NULL;
    hlo_val *in = scratch(g, node->n_in);
    if (in == NULL)
        return;
    for (int i = 0; i < node->n_in; i++)
        in[i] = lowered(l, node->in[i]);
    switch (node->op) {
    case HLO_OP_REMAT:
    case HLO_OP_CUSTOM_VJP:
        lower_inline(l, node, in);
        return;
    case HLO_OP_SCAN:
        lower_scan(l, node, in);
        return;
    case HLO_OP_REDUCE:
        copy = lower_reduce(g, node, in[0]);
        break;
    case HLO_OP_CONSTANT: /* inlined bodies bring their own: these are merged once more */
        copy = hlo__clone_node(g, node, in);
        break;
    default:
        copy = lower_region_op(l, node, in);
    }
    for (int i = 0; i < node->n_out && copy != NULL; i++)
        set_lowered(l, node->out[i], hlo__out(copy, i));
}

/* Now that all gradients are taken: an operation that undoes its operand, or makes one with it. */
static bool lower_simplified(hlo_lowering *l, const hlo_node *node)
{
    if (node->n_in != 1 || l->to[node->in[0]->id] == NULL ||
        l->to[node->in[0]->id]->node->op != node->op)
        return false;
    hlo_val in = lowered(l, node->in[0]);
    hlo_val simpler = hlo__simplify(l->g, node, &in);
    if (simpler.id == 0)
        return false;
    set_lowered(l, node->out[0], simpler);
    return true;
}

static void lower_node(hlo_lowering *l, const hlo_node *node)
{
    if (node->op == HLO_OP_STOP_GRADIENT || node->op == HLO_OP_KEEP ||
        (node->op == HLO_OP_ROW_MAJOR && !l->layouts))
        l->to[node->out[0]->id] = l->to[node->in[0]->id];
    else if (lower_simplified(l, node))
        return;
    else if (node->n_regions > 0 || node->op == HLO_OP_REDUCE || node->op == HLO_OP_CONSTANT)
        lower_special(l, node);
    else
        copy_node(l, node);
}

/* The nodes of a block into the current one of the copy. */
static void lower_nodes(hlo_lowering *l, const hlo_block *block, const hlo_val *args,
                        hlo_val *results)
{
    for (int i = 0; i < block->n_params; i++)
        set_lowered(l, block->params[i], args[i]);
    for (int i = 0; i < block->n_nodes && !hlo__failed(l->g); i++)
        lower_node(l, block->nodes[i]);
    for (int i = 0; i < block->n_results && !hlo__failed(l->g); i++)
        results[i] = lowered(l, block->results[i]);
}

static hlo_block *lower_main(hlo_lowering *l)
{
    hlo_graph *g = l->g;
    int n_params, n_results;
    const hlo_io *io_params = hlo__io_params(g, &n_params);
    const hlo_io *io_results = hlo__io_results(g, &n_results);
    hlo_val *args = scratch(g, n_params), *results = scratch(g, n_results);
    hlo_block *around, *block = open_block(l, &around);
    if (block == NULL)
        return NULL;
    for (int i = 0; i < n_params; i++)
        args[i] = hlo__block_param(g, io_params[i].value->shape);
    lower_nodes(l, hlo__main_block(g), args, results);
    for (int i = 0; i < n_results && !hlo__failed(g); i++)
        results[i] = lowered(l, io_results[i].value);
    end_block(l, block, around, results, n_results);
    return block;
}

hlo_block *hlo__lower(hlo_graph *g, bool layouts)
{
    hlo_lowering l = {.g = g, .first = (uint32_t)g->n_values + 1, .layouts = layouts};
    if (hlo__failed(g))
        return NULL;
    if (g->current != g->main) {
        hlo_fail(g, HLO_ERROR_VALUE, "write: a body is still being built");
        return NULL;
    }
    if (g->n_results == 0) {
        hlo_fail(g, HLO_ERROR_VALUE, "write: @main has no results");
        return NULL;
    }
    l.to = calloc(g->n_values + 1, sizeof *l.to);
    if (l.to == NULL)
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
    size_t n_nodes = g->n_nodes;
    hlo_block *block = NULL;
    if (!hlo__failed(g) && hlo__map_init(g, &l.function_of))
        block = lower_main(&l);
    if (!hlo__failed(g))
        hlo__prune(&l, block);
    g->n_nodes = n_nodes; /* the copy is nothing the user built */
    g->current = g->main;
    hlo__map_free(&l.function_of);
    free(l.to);
    free(l.effects);
    free(l.functions);
    return hlo__failed(g) ? NULL : block;
}
