/*
 * Reverse mode: which nodes matter, then one walk backwards over them.
 *
 * Only nodes of the current block are walked; what control flow hides inside regions is the affair
 * of its own rule. The rules build with the public operations, so what they build has gradients
 * too.
 */
#include "hlo_builder/graph.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct rule_entry {
    hlo_vjp_fn *rule;
    bool refused;
} rule_entry;

static const rule_entry rules[HLO_NUM_OPS] = {
#define UNARY_RULE(name, spelling) [HLO_OP_##name] = {hlo__vjp_unary, false},
    HLO_UNARY_OPS(UNARY_RULE)
#undef UNARY_RULE
#define BINARY_RULE(name, spelling) [HLO_OP_##name] = {hlo__vjp_binary, false},
        HLO_BINARY_OPS(BINARY_RULE)
#undef BINARY_RULE
            [HLO_OP_ERF] = {hlo__vjp_erf, false},
    [HLO_OP_SELECT] = {hlo__vjp_select, false},
    [HLO_OP_CLAMP] = {hlo__vjp_clamp, false},
    [HLO_OP_CONVERT] = {hlo__vjp_convert, false},
    [HLO_OP_BROADCAST] = {hlo__vjp_broadcast, false},
    [HLO_OP_RESHAPE] = {hlo__vjp_reshape, false},
    [HLO_OP_TRANSPOSE] = {hlo__vjp_transpose, false},
    [HLO_OP_REVERSE] = {hlo__vjp_reverse, false},
    [HLO_OP_SLICE] = {hlo__vjp_slice, false},
    [HLO_OP_DYNAMIC_SLICE] = {hlo__vjp_dynamic_slice, false},
    [HLO_OP_DYNAMIC_UPDATE] = {hlo__vjp_dynamic_update, false},
    [HLO_OP_PAD] = {hlo__vjp_pad, false},
    [HLO_OP_CONCAT] = {hlo__vjp_concat, false},
    [HLO_OP_REDUCE] = {hlo__vjp_reduce, false},
    [HLO_OP_DOT] = {hlo__vjp_dot, false},
    [HLO_OP_CONV] = {hlo__vjp_conv, false},
    [HLO_OP_GATHER] = {hlo__vjp_gather, false},
    [HLO_OP_SCATTER_ADD] = {hlo__vjp_scatter_add, false},
    [HLO_OP_SORT] = {hlo__vjp_sort, false},
    [HLO_OP_CASE] = {hlo__vjp_case, false},
    [HLO_OP_CALL] = {hlo__vjp_call, false},
    [HLO_OP_CUSTOM_CALL] = {hlo__vjp_custom_call, false},
    [HLO_OP_BARRIER] = {hlo__vjp_barrier, false},
    [HLO_OP_ALL_REDUCE] = {hlo__vjp_all_reduce, false},
    [HLO_OP_ALL_GATHER] = {hlo__vjp_all_gather, false},
    [HLO_OP_REDUCE_SCATTER] = {hlo__vjp_reduce_scatter, false},
    [HLO_OP_COLLECTIVE_PERMUTE] = {hlo__vjp_collective_permute, false},
    [HLO_OP_KEEP] = {hlo__vjp_keep, false},
    [HLO_OP_CUSTOM_VJP] = {hlo__vjp_custom_vjp, false},
    [HLO_OP_SCAN] = {hlo__vjp_scan, false},
    [HLO_OP_REMAT] = {hlo__vjp_remat, false},
    [HLO_OP_SHARD] = {hlo__vjp_shard, false},
    [HLO_OP_ROW_MAJOR] = {hlo__vjp_row_major, false},
    [HLO_OP_WHILE] = {NULL, true},
    [HLO_OP_MANUAL] = {NULL, true},
};

hlo_vjp_fn *hlo__vjp_of(hlo_op op, bool *refused)
{
    *refused = rules[op].refused;
    return rules[op].rule;
}

bool hlo__differentiable(const hlo_value *v)
{
    return hlo_type_is_float(v->shape.type);
}

/* ---- which nodes matter ---- */

bool hlo__is_active(const hlo_value *v, uint32_t mark, const hlo_map *is_from)
{
    return hlo__differentiable(v) && (v->node->mark == mark || hlo__map_get(is_from, v).id != 0);
}

uint32_t hlo__mark_active(hlo_graph *g, hlo_block *block, int first, int end,
                          hlo_value *const *from, int n_from, hlo_map *is_from)
{
    uint32_t mark = hlo__new_mark(g);
    for (int i = 0; i < n_from; i++)
        hlo__map_set(is_from, from[i], hlo__handle(g, from[i]));
    for (int i = first; i < end; i++) {
        hlo_node *node = block->nodes[i];
        if (rules[node->op].rule == NULL && !rules[node->op].refused)
            continue;
        for (int k = 0; k < node->n_in; k++) {
            if (hlo__is_active(node->in[k], mark, is_from)) {
                node->mark = mark;
                break;
            }
        }
    }
    return mark;
}

/* ---- the walk ---- */

typedef struct walk {
    hlo_graph *g;
    hlo_map grads;   /* value to the sum of the gradients that have reached it */
    hlo_map is_from; /* the values asked for */
    uint32_t mark;
    const char *scope; /* the last forward scope, and the one its gradients go under */
    const char *grad_scope;
} walk;

static void accumulate(walk *w, const hlo_value *v, hlo_val d)
{
    hlo_type sum_type = hlo__gradient_sum_type(w->g, v->shape.type);
    hlo_val so_far = hlo__map_get(&w->grads, v);
    if (so_far.id != 0) {
        d = hlo_add(w->g, hlo_convert(w->g, so_far, sum_type), hlo_convert(w->g, d, sum_type));
        if (hlo__failed(w->g))
            return;
    }
    hlo__map_set(&w->grads, v, d);
}

/* The gradient of `v` in its own type, or null. */
static hlo_val gradient_of(walk *w, const hlo_value *v)
{
    hlo_val d = hlo__map_get(&w->grads, v);
    return d.id == 0 ? d : hlo_convert(w->g, d, v->shape.type);
}

/* Gradients are found in profiles under the scope of what they are the gradients of. */
static void enter_scope(walk *w, const hlo_node *node)
{
    if (node->scope != w->scope) {
        char path[600];
        snprintf(path, sizeof path, "%s%sgrad", node->scope, node->scope[0] == '\0' ? "" : "/");
        w->scope = node->scope;
        w->grad_scope = hlo__intern(w->g, path);
    }
    w->g->scope = w->grad_scope;
}

static void check_rule(walk *w, const hlo_node *node, int operand, hlo_val d)
{
    char want[HLO_SHAPE_TEXT], have[HLO_SHAPE_TEXT];
    const hlo_shape *shape = hlo_shape_of(w->g, d);
    if (!hlo__failed(w->g) && !hlo_shape_equal(shape, &node->in[operand]->shape))
        hlo_fail(w->g, HLO_ERROR_SHAPE, "gradient of %s: operand %d is %s, its gradient %s",
                 hlo__op_name(node->op), operand, hlo_shape_text(&node->in[operand]->shape, want),
                 hlo_shape_text(shape, have));
}

static void step_back(walk *w, const hlo_node *node)
{
    enum { FEW = 8 };
    hlo_val few[2 * FEW];
    bool few_wanted[FEW], any = false;
    hlo_graph *g = w->g;
    bool small = node->n_in <= FEW && node->n_out <= FEW;
    hlo_val *d_out = small ? few : hlo__alloc(g, (size_t)node->n_out * sizeof *d_out);
    hlo_val *d_in = small ? few + FEW : hlo__alloc(g, (size_t)node->n_in * sizeof *d_in);
    bool *wanted = small ? few_wanted : hlo__alloc(g, (size_t)node->n_in * sizeof *wanted);
    if (hlo__failed(g))
        return;
    enter_scope(w, node);
    for (int i = 0; i < node->n_out; i++) {
        d_out[i] = gradient_of(w, node->out[i]);
        any = any || d_out[i].id != 0;
    }
    if (!any)
        return;
    if (rules[node->op].refused) {
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "%s has no gradient", hlo__op_name(node->op));
        return;
    }
    for (int i = 0; i < node->n_in; i++) {
        d_in[i] = (hlo_val){0};
        wanted[i] = hlo__is_active(node->in[i], w->mark, &w->is_from);
    }
    rules[node->op].rule(g, node, d_out, wanted, d_in);
    for (int i = 0; i < node->n_in && !hlo__failed(g); i++) {
        if (!wanted[i] || d_in[i].id == 0)
            continue;
        check_rule(w, node, i, d_in[i]);
        if (!hlo__failed(g))
            accumulate(w, node->in[i], d_in[i]);
    }
}

/* The part of the current block between the first of `wrt` and the last of `outputs`. */
static void find_range(hlo_graph *g, hlo_value *const *outputs, int n_outputs,
                       hlo_value *const *wrt, int n_wrt, int *first, int *end)
{
    *end = 0;
    for (int i = 0; i < n_outputs; i++) {
        if (outputs[i]->node->block == g->current && outputs[i]->node->position >= *end)
            *end = outputs[i]->node->position + 1;
    }
    *first = *end;
    for (int i = 0; i < n_wrt; i++) {
        bool here = wrt[i]->node->block == g->current;
        int position = here ? wrt[i]->node->position + 1 : 0;
        *first = position < *first ? position : *first;
    }
}

static bool check_outputs(hlo_graph *g, hlo_value *const *outputs, const hlo_val *d, int n)
{
    for (int i = 0; i < n; i++) {
        if (!hlo__differentiable(outputs[i])) {
            hlo_fail(g, HLO_ERROR_SHAPE, "vjp: output %d is %s; only floats have gradients", i,
                     hlo_type_name(outputs[i]->shape.type));
            return false;
        }
        if (d[i].id != 0 && !hlo_shape_equal(hlo_shape_of(g, d[i]), &outputs[i]->shape)) {
            char want[HLO_SHAPE_TEXT], have[HLO_SHAPE_TEXT];
            hlo_fail(g, HLO_ERROR_SHAPE, "vjp: output %d is %s, its gradient %s", i,
                     hlo_shape_text(&outputs[i]->shape, want),
                     hlo_shape_text(hlo_shape_of(g, d[i]), have));
            return false;
        }
    }
    return true;
}

/*
 * A rule may ask for a gradient itself, in the block that is being walked: what the walk around
 * this one marked is kept, and put back.
 */
static uint32_t *keep_marks(hlo_graph *g, const hlo_block *block, int first, int end)
{
    uint32_t *marks = malloc((size_t)(end - first + 1) * sizeof *marks);
    if (marks == NULL)
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
    for (int i = first; i < end && marks != NULL; i++)
        marks[i - first] = block->nodes[i]->mark;
    return marks;
}

static void put_marks_back(uint32_t *marks, const hlo_block *block, int first, int end)
{
    for (int i = first; i < end && marks != NULL; i++)
        block->nodes[i]->mark = marks[i - first];
    free(marks);
}

static void walk_back(walk *w, hlo_value *const *outputs, const hlo_val *d_outputs, int n_outputs,
                      hlo_value *const *wrt, int n_wrt, hlo_val *d_wrt)
{
    hlo_graph *g = w->g;
    const char *scope = g->scope;
    hlo_block *block = g->current;
    int first, end;
    find_range(g, outputs, n_outputs, wrt, n_wrt, &first, &end);
    uint32_t *marks = keep_marks(g, block, first, end);
    w->mark = hlo__mark_active(g, block, first, end, wrt, n_wrt, &w->is_from);
    for (int i = 0; i < n_outputs; i++) {
        if (d_outputs[i].id != 0 && hlo__is_active(outputs[i], w->mark, &w->is_from))
            accumulate(w, outputs[i], d_outputs[i]);
    }
    for (int i = end - 1; i >= first && !hlo__failed(g); i--) {
        hlo_node *node = block->nodes[i]; /* read anew: the list moves as rules add to it */
        if (node->mark == w->mark)
            step_back(w, node);
    }
    put_marks_back(marks, block, first, end);
    if (!hlo__failed(g))
        g->scope = scope;
    for (int i = 0; i < n_wrt && !hlo__failed(g); i++) {
        d_wrt[i] = gradient_of(w, wrt[i]);
        if (d_wrt[i].id == 0)
            d_wrt[i] = hlo_full(g, wrt[i]->shape, 0);
    }
}

void hlo_vjp(hlo_graph *g, const hlo_val *outputs, const hlo_val *d_outputs, int n_outputs,
             const hlo_val *wrt, int n_wrt, hlo_val *d_wrt)
{
    for (int i = 0; i < n_wrt; i++)
        d_wrt[i] = (hlo_val){0};
    hlo_value **values = hlo__alloc(g, (size_t)(n_outputs + n_wrt + 1) * sizeof *values);
    if (values == NULL || !hlo__values(g, HLO_OP_NONE, outputs, n_outputs, values) ||
        !hlo__values(g, HLO_OP_NONE, wrt, n_wrt, values + n_outputs) ||
        !check_outputs(g, values, d_outputs, n_outputs))
        return;
    for (int i = 0; i < n_wrt; i++) {
        if (!hlo__differentiable(values[n_outputs + i])) {
            hlo_fail(g, HLO_ERROR_SHAPE, "vjp: value %d is %s; only floats have gradients", i,
                     hlo_type_name(values[n_outputs + i]->shape.type));
            return;
        }
        /* What was computed with it may have been folded, and no longer depends on it. */
        if (values[n_outputs + i]->node->op == HLO_OP_CONSTANT) {
            hlo_fail(g, HLO_ERROR_VALUE,
                     "vjp: value %d is a constant; take hlo_keep of it, use that, and ask for its "
                     "gradient",
                     i);
            return;
        }
    }
    walk w = {.g = g};
    if (hlo__map_init(g, &w.grads) && hlo__map_init(g, &w.is_from))
        walk_back(&w, values, d_outputs, n_outputs, values + n_outputs, n_wrt, d_wrt);
    hlo__map_free(&w.grads);
    hlo__map_free(&w.is_from);
    for (int i = 0; i < n_wrt && hlo__failed(g); i++)
        d_wrt[i] = (hlo_val){0};
}

void hlo_grad(hlo_graph *g, hlo_val loss, const hlo_val *wrt, int n, hlo_val *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (hlo_val){0};
    hlo_value *value = hlo__failed(g) ? NULL : hlo__value(g, loss);
    if (value == NULL)
        return;
    char text[HLO_SHAPE_TEXT];
    if (!hlo__differentiable(value) || value->shape.rank != 0) {
        hlo_fail(g, HLO_ERROR_SHAPE, "grad: the loss is %s; it must be a float scalar",
                 hlo_shape_text(&value->shape, text));
        return;
    }
    hlo_val one = hlo_scalar(g, value->shape.type, 1);
    hlo_vjp(g, &loss, &one, 1, wrt, n, out);
}

/* ---- the simplest rules ---- */

hlo_val hlo_stop_gradient(hlo_graph *g, hlo_val x)
{
    return hlo__add1(g, HLO_OP_STOP_GRADIENT, &x, 1, *hlo_shape_of(g, x), NULL, 0);
}

hlo_val hlo_row_major(hlo_graph *g, hlo_val x)
{
    return hlo__add1(g, HLO_OP_ROW_MAJOR, &x, 1, *hlo_shape_of(g, x), NULL, 0);
}

void hlo__vjp_row_major(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                        const bool *wanted, hlo_val *d_in)
{
    (void)node, (void)wanted;
    d_in[0] = hlo_row_major(g, d_out[0]);
}

hlo_val hlo_keep(hlo_graph *g, hlo_val x)
{
    return hlo__add1(g, HLO_OP_KEEP, &x, 1, *hlo_shape_of(g, x), NULL, 0);
}

void hlo__vjp_keep(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                   hlo_val *d_in)
{
    (void)g, (void)node, (void)wanted;
    d_in[0] = d_out[0];
}
