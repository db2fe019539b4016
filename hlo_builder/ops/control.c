/*
 * Control: loops without a known length, branches, calls of functions, custom calls, barriers, and
 * their gradients. Scans, whose length is known, are in scan.c.
 */
#include "hlo_builder/graph.h"
#include "hlo_builder/ops/joint.h"

#include <stdio.h>
#include <stdlib.h>

static void set_null(hlo_val *values, int n)
{
    for (int i = 0; i < n; i++)
        values[i] = (hlo_val){0};
}

static void take_outs(const hlo_node *node, hlo_val *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = hlo__out(node, i);
}

static hlo_shape *shapes_of(hlo_graph *g, hlo_value *const *values, int n)
{
    hlo_shape *shapes = hlo__alloc(g, (size_t)(n + 1) * sizeof *shapes);
    for (int i = 0; i < n && shapes != NULL; i++)
        shapes[i] = values[i]->shape;
    return shapes;
}

/* Counts that a caller gave: there must be something to compute. */
static bool check_counts(hlo_graph *g, hlo_op op, int n_in, int n_out, bool has_body)
{
    if (hlo__failed(g))
        return false;
    if (n_in < 0 || n_out < 1)
        hlo_fail(g, HLO_ERROR_VALUE, "%s: %d inputs and %d results", hlo__op_name(op), n_in, n_out);
    else if (!has_body)
        hlo_fail(g, HLO_ERROR_VALUE, "%s: no body", hlo__op_name(op));
    return !hlo__failed(g);
}

/* ---- several regions with one list of captured values ---- */

typedef struct region_set {
    hlo_block **regions;
    hlo_val **captured; /* of each region, behind its first `fixed` parameters */
    int *n_captured;
    int n, fixed;
    hlo_val *all; /* what any of them captured */
    int n_all;
} region_set;

static bool new_region_set(hlo_graph *g, region_set *s, int n, int fixed)
{
    *s = (region_set){.n = n, .fixed = fixed};
    s->regions = hlo__alloc(g, (size_t)n * sizeof *s->regions);
    s->captured = hlo__alloc(g, (size_t)n * sizeof *s->captured);
    s->n_captured = hlo__alloc(g, (size_t)n * sizeof *s->n_captured);
    return !hlo__failed(g);
}

/* Finds the union of what was captured; the map has the place in it of each value, plus one. */
static void merge_captured(hlo_graph *g, region_set *s, hlo_map *places)
{
    int total = 0;
    for (int r = 0; r < s->n; r++)
        total += s->n_captured[r];
    s->all = hlo__alloc(g, (size_t)(total + 1) * sizeof *s->all);
    for (int r = 0; r < s->n && !hlo__failed(g); r++) {
        for (int k = 0; k < s->n_captured[r]; k++) {
            const hlo_value *value = hlo__known(g, s->captured[r][k]);
            if (hlo__map_get(places, value).id != 0)
                continue;
            s->all[s->n_all++] = s->captured[r][k];
            hlo__map_set(places, value, (hlo_val){.id = (uint32_t)s->n_all});
        }
    }
}

/* The region's parameters become the fixed ones and then one for each value in the union. */
static void line_up_params(hlo_graph *g, region_set *s, int r, const hlo_map *places)
{
    hlo_block *region = s->regions[r], *current = g->current;
    int n = s->fixed + s->n_all, room = 1;
    while (room < n)
        room *= 2; /* as hlo__block_param expects it */
    hlo_value **params = hlo__alloc(g, (size_t)room * sizeof *params);
    if (params == NULL)
        return;
    if (s->fixed > 0)
        memcpy(params, region->params, (size_t)s->fixed * sizeof *params);
    for (int k = 0; k < s->n_captured[r]; k++) {
        uint32_t place = hlo__map_get(places, hlo__known(g, s->captured[r][k])).id;
        params[s->fixed + (int)place - 1] = region->params[s->fixed + k];
    }
    g->current = region;
    for (int k = s->fixed; k < n && !hlo__failed(g); k++) {
        if (params[k] == NULL)
            params[k] = hlo__known(g, hlo__block_param(g, *hlo_shape_of(g, s->all[k - s->fixed])));
    }
    g->current = current;
    region->params = params;
    region->n_params = n;
}

/* Closes the regions, all over the same values. */
static bool close_regions(hlo_graph *g, region_set *s)
{
    hlo_map places;
    for (int r = 0; r < s->n; r++)
        s->captured[r] = hlo__close(g, s->regions[r], &s->n_captured[r]);
    if (!hlo__map_init(g, &places))
        return false;
    merge_captured(g, s, &places);
    for (int r = 0; r < s->n && !hlo__failed(g); r++)
        line_up_params(g, s, r, &places);
    hlo__map_free(&places);
    return !hlo__failed(g);
}

/* The node over closed regions: operands are `in`, then what was captured. */
static hlo_node *add_regions(hlo_graph *g, hlo_op op, region_set *s, const hlo_val *in, int n_in,
                             hlo_value *const *results, int n_out)
{
    hlo_val *all = hlo__alloc(g, (size_t)(n_in + s->n_all + 1) * sizeof *all);
    hlo_shape *shapes = shapes_of(g, results, n_out);
    if (hlo__failed(g))
        return NULL;
    memcpy(all, in, (size_t)n_in * sizeof *in);
    memcpy(all + n_in, s->all, (size_t)s->n_all * sizeof *all);
    /* StableHLO's while returns all that it takes, so the captured ones are results too. */
    if (op == HLO_OP_WHILE) {
        shapes = hlo__alloc(g, (size_t)(n_in + s->n_all + 1) * sizeof *shapes);
        for (int i = 0; i < n_in + s->n_all && shapes != NULL; i++)
            shapes[i] = *hlo_shape_of(g, all[i]);
        n_out = n_in + s->n_all;
    }
    return hlo__add_region_op(g, op, all, n_in + s->n_all, shapes, n_out, NULL, 0, s->regions,
                              s->n);
}

/* ---- while ---- */

/* Opens a block with parameters of those shapes. */
static hlo_block *open_block(hlo_graph *g, hlo_value *const *like, int n, hlo_val *params)
{
    hlo_block *block = hlo__begin_block(g);
    for (int i = 0; i < n && block != NULL; i++)
        params[i] = hlo__block_param(g, like[i]->shape);
    return block;
}

static hlo_block *build_condition(hlo_graph *g, hlo_condition condition, void *ctx,
                                  hlo_value *const *carry, int n)
{
    hlo_value *value;
    char text[HLO_SHAPE_TEXT];
    hlo_val *params = hlo__alloc(g, (size_t)n * sizeof *params), go_on = {0};
    hlo_block *block = open_block(g, carry, n, params);
    if (!hlo__failed(g))
        go_on = condition(g, ctx, params);
    if (hlo__values(g, HLO_OP_WHILE, &go_on, 1, &value) &&
        (value->shape.type != HLO_PRED || value->shape.rank != 0))
        hlo_fail(g, HLO_ERROR_SHAPE, "while: the condition is %s; it must be i1[]",
                 hlo_shape_text(&value->shape, text));
    hlo__end_block(g, block, &go_on, 1);
    return block;
}

static hlo_block *build_loop_body(hlo_graph *g, hlo_body body, void *ctx, hlo_value *const *carry,
                                  int n)
{
    char want[HLO_SHAPE_TEXT], have[HLO_SHAPE_TEXT];
    hlo_val *params = hlo__alloc(g, 2 * (size_t)n * sizeof *params);
    hlo_value **values = hlo__alloc(g, (size_t)n * sizeof *values);
    hlo_block *block = open_block(g, carry, n, params);
    if (!hlo__failed(g))
        body(g, ctx, params, params + n);
    if (!hlo__failed(g) && hlo__values(g, HLO_OP_WHILE, params + n, n, values)) {
        for (int i = 0; i < n && !hlo__failed(g); i++) {
            if (!hlo_shape_equal(&values[i]->shape, &carry[i]->shape))
                hlo_fail(g, HLO_ERROR_SHAPE, "while: carry %d is %s, the body makes it %s", i,
                         hlo_shape_text(&carry[i]->shape, want),
                         hlo_shape_text(&values[i]->shape, have));
        }
    }
    hlo__end_block(g, block, params == NULL ? NULL : params + n, params == NULL ? 0 : n);
    return block;
}

/* The captured values stay what they are from one iteration to the next. */
static void return_captured(hlo_graph *g, hlo_block *body, int n)
{
    hlo_value **results = hlo__alloc(g, (size_t)(body->n_params + 1) * sizeof *results);
    if (results == NULL)
        return;
    memcpy(results, body->results, (size_t)n * sizeof *results);
    memcpy(results + n, body->params + n, (size_t)(body->n_params - n) * sizeof *results);
    body->results = results;
    body->n_results = body->n_params;
}

static hlo_node *add_while(hlo_graph *g, hlo_condition condition, hlo_body body, void *ctx,
                           const hlo_val *carry, int n)
{
    region_set s;
    hlo_value **values = hlo__alloc(g, (size_t)n * sizeof *values);
    if (values == NULL || !hlo__values(g, HLO_OP_WHILE, carry, n, values) ||
        !new_region_set(g, &s, 2, n))
        return NULL;
    s.regions[0] = build_condition(g, condition, ctx, values, n);
    if (!hlo__failed(g))
        s.regions[1] = build_loop_body(g, body, ctx, values, n);
    if (hlo__failed(g) || !close_regions(g, &s))
        return NULL;
    return_captured(g, s.regions[1], n);
    return add_regions(g, HLO_OP_WHILE, &s, carry, n, NULL, 0);
}

void hlo_while(hlo_graph *g, hlo_condition condition, hlo_body body, void *ctx, hlo_val *carry,
               int n)
{
    hlo_node *node = NULL;
    if (check_counts(g, HLO_OP_WHILE, n, n, condition != NULL && body != NULL))
        node = add_while(g, condition, body, ctx, carry, n);
    take_outs(node, carry, n);
}

/* ---- if and case ---- */

static bool check_index(hlo_graph *g, hlo_val index, hlo_type type)
{
    hlo_value *value;
    if (!hlo__values(g, HLO_OP_CASE, &index, 1, &value))
        return false;
    if (value->shape.type != type || value->shape.rank != 0)
        hlo__fail_op(g, HLO_OP_CASE, &index, 1, "%s must be %s[]",
                     type == HLO_PRED ? "the predicate" : "the index", hlo_type_name(type));
    return !hlo__failed(g);
}

static hlo_block *build_branch(hlo_graph *g, hlo_body body, void *ctx, hlo_val *out, int n_out)
{
    hlo_value **values = hlo__alloc(g, (size_t)(n_out + 1) * sizeof *values);
    hlo_block *block = hlo__begin_block(g);
    set_null(out, n_out);
    if (!hlo__failed(g))
        body(g, ctx, NULL, out);
    /* Before the block ends, for the error to say whose result is missing. */
    if (!hlo__failed(g))
        hlo__values(g, HLO_OP_CASE, out, n_out, values);
    hlo__end_block(g, block, out, n_out);
    return block;
}

static bool check_branches(hlo_graph *g, const region_set *s, int n_out)
{
    char first[HLO_SHAPE_TEXT], other[HLO_SHAPE_TEXT];
    for (int r = 1; r < s->n && !hlo__failed(g); r++) {
        for (int i = 0; i < n_out && !hlo__failed(g); i++) {
            const hlo_shape *a = &s->regions[0]->results[i]->shape;
            const hlo_shape *b = &s->regions[r]->results[i]->shape;
            if (!hlo_shape_equal(a, b))
                hlo_fail(g, HLO_ERROR_SHAPE,
                         "case: result %d is %s in branch 0 and %s in branch %d", i,
                         hlo_shape_text(a, first), hlo_shape_text(b, other), r);
        }
    }
    return !hlo__failed(g);
}

static void add_case(hlo_graph *g, hlo_val index, hlo_type type, const hlo_body *branches, int n,
                     void *ctx, hlo_val *out, int n_out)
{
    region_set s;
    if (!check_index(g, index, type) || !new_region_set(g, &s, n, 0))
        return;
    for (int r = 0; r < n && !hlo__failed(g); r++)
        s.regions[r] = build_branch(g, branches[r], ctx, out, n_out);
    set_null(out, n_out);
    if (!check_branches(g, &s, n_out) || !close_regions(g, &s))
        return;
    take_outs(add_regions(g, HLO_OP_CASE, &s, &index, 1, s.regions[0]->results, n_out), out, n_out);
}

void hlo_case(hlo_graph *g, hlo_val index, const hlo_body *branches, int n_branches, void *ctx,
              hlo_val *out, int n_out)
{
    set_null(out, n_out);
    bool complete = branches != NULL && n_branches > 0;
    for (int i = 0; i < n_branches && complete; i++)
        complete = branches[i] != NULL;
    if (check_counts(g, HLO_OP_CASE, 0, n_out, complete))
        add_case(g, index, HLO_S32, branches, n_branches, ctx, out, n_out);
}

void hlo_if(hlo_graph *g, hlo_val pred, hlo_body on_true, hlo_body on_false, void *ctx,
            hlo_val *out, int n_out)
{
    hlo_body branches[2] = {on_true, on_false};
    set_null(out, n_out);
    if (check_counts(g, HLO_OP_CASE, 0, n_out, on_true != NULL && on_false != NULL))
        add_case(g, pred, HLO_PRED, branches, 2, ctx, out, n_out);
}

/* ---- calls ---- */

static bool same_data(const hlo_node *a, const hlo_node *b)
{
    const hlo_constant_attrs *x = a->attrs, *y = b->attrs;
    size_t size = (size_t)hlo_shape_elements(&a->out[0]->shape) *
                  (size_t)(hlo_type_bits(a->out[0]->shape.type) / 8);
    return !x->splat && !y->splat && memcmp(x->data, y->data, size) == 0;
}

static bool same_region(hlo_graph *g, const hlo_block *a, const hlo_block *b);

/* Whether two nodes do the same; `map` leads from a's values to b's. */
static bool same_nodes(hlo_graph *g, const hlo_node *a, const hlo_node *b, hlo_map *map)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out ||
        a->n_regions != b->n_regions || a->attrs_size != b->attrs_size)
        return false;
    for (int i = 0; i < a->n_in; i++) {
        if (hlo__map_get(map, a->in[i]).id != b->in[i]->id)
            return false;
    }
    for (int i = 0; i < a->n_out; i++) {
        if (!hlo_shape_equal(&a->out[i]->shape, &b->out[i]->shape))
            return false;
        hlo__map_set(map, a->out[i], hlo__handle(g, b->out[i]));
    }
    /* Attributes that point to lists of their own differ here: such bodies are just not shared. */
    if (a->attrs_size > 0 && memcmp(a->attrs, b->attrs, a->attrs_size) != 0 &&
        !(a->op == HLO_OP_CONSTANT && same_data(a, b)))
        return false;
    for (int i = 0; i < a->n_regions; i++) {
        if (a->regions[i] != b->regions[i] && !same_region(g, a->regions[i], b->regions[i]))
            return false;
    }
    return true;
}

static bool same_region(hlo_graph *g, const hlo_block *a, const hlo_block *b)
{
    hlo_map map;
    if (a->n_params != b->n_params || a->n_nodes != b->n_nodes || a->n_results != b->n_results ||
        !hlo__map_init(g, &map))
        return false;
    bool same = true;
    for (int i = 0; i < a->n_params && same; i++) {
        same = hlo_shape_equal(&a->params[i]->shape, &b->params[i]->shape);
        hlo__map_set(&map, a->params[i], hlo__handle(g, b->params[i]));
    }
    for (int i = 0; i < a->n_nodes && same; i++)
        same = same_nodes(g, a->nodes[i], b->nodes[i], &map);
    for (int i = 0; i < a->n_results && same; i++)
        same = hlo__map_get(&map, a->results[i]).id == b->results[i]->id;
    hlo__map_free(&map);
    return same && !hlo__failed(g);
}

/*
 * The region of an earlier call by that name if it computes the same, else `region` itself, which
 * later calls may share. The body was built all the same: its context may have changed in between,
 * and only what it built can tell.
 */
static hlo_block *share_region(hlo_graph *g, const hlo_call_attrs *attrs, hlo_block *region)
{
    for (const hlo_function *f = g->functions; f != NULL && !hlo__failed(g); f = f->next) {
        if (f->name == attrs->name && f->composite == (attrs->composite != 0) &&
            same_region(g, f->block, region))
            return f->block;
    }
    hlo_function *function = hlo__alloc(g, sizeof *function);
    if (function != NULL) {
        *function = (hlo_function){g->functions, attrs->name, attrs->composite != 0, region};
        g->functions = function;
    }
    return region;
}

static hlo_node *add_call(hlo_graph *g, const char *name, bool composite, hlo_block *region,
                          const hlo_val *in, int n_in)
{
    hlo_call_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.name = hlo__intern(g, name);
    attrs.composite = composite;
    hlo_shape *shapes = hlo__failed(g) ? NULL : shapes_of(g, region->results, region->n_results);
    if (shapes == NULL)
        return NULL;
    region = share_region(g, &attrs, region);
    return hlo__add_region_op(g, HLO_OP_CALL, in, n_in, shapes, region->n_results, &attrs,
                              sizeof attrs, &region, 1);
}

/* StableHLO wants a composite's name to have a namespace, "ttt.attention", of plain letters. */
static bool is_composite_name(const char *name)
{
    const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const char *plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strspn(name, plain);
    if (length == 0 || strchr(letters, name[0]) == NULL || name[length] != '.')
        return false;
    for (name += length; *name == '.'; name += length) {
        length = 1;
        while (name[length] != '\0' && (strchr(plain, name[length]) != NULL || name[length] == '$'))
            length++;
        if (length == 1)
            return false;
    }
    return *name == '\0';
}

static void call(hlo_graph *g, const char *name, bool composite, hlo_body body, void *ctx,
                 const hlo_val *in, int n_in, hlo_val *out, int n_out)
{
    hlo_val *all;
    int n_all;
    hlo_node *node = NULL;
    if (!hlo__failed(g) && (name == NULL || name[0] == '\0'))
        hlo_fail(g, HLO_ERROR_VALUE, "call: a function needs a name");
    else if (!hlo__failed(g) && composite && !is_composite_name(name))
        hlo_fail(g, HLO_ERROR_VALUE, "composite: \"%s\" is not like \"namespace.name\"", name);
    if (check_counts(g, HLO_OP_CALL, n_in, n_out, body != NULL)) {
        hlo_block *region = hlo__build_body(g, body, ctx, in, n_in, n_out, &all, &n_all);
        if (region != NULL)
            node = add_call(g, name, composite, region, all, n_all);
    }
    take_outs(node, out, n_out); /* at the end: `out` may be `in` */
}

void hlo_call(hlo_graph *g, const char *name, hlo_body body, void *ctx, const hlo_val *in, int n_in,
              hlo_val *out, int n_out)
{
    call(g, name, false, body, ctx, in, n_in, out, n_out);
}

void hlo_composite(hlo_graph *g, const char *name, hlo_body body, void *ctx, const hlo_val *in,
                   int n_in, hlo_val *out, int n_out)
{
    call(g, name, true, body, ctx, in, n_in, out, n_out);
}

/* ---- custom calls and barriers ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const hlo_attr *)a)->name, ((const hlo_attr *)b)->name);
}

/* A copy in the arena, sorted by name, as handlers read them. */
static const hlo_attr *copy_attrs(hlo_graph *g, const hlo_custom_call_options *o)
{
    hlo_attr *attrs = hlo__alloc(g, (size_t)(o->n_attrs + 1) * sizeof *attrs);
    for (int i = 0; i < o->n_attrs && attrs != NULL; i++) {
        const hlo_attr *from = &o->attrs[i];
        if (from->name == NULL || (from->kind == HLO_ATTR_STRING && from->string == NULL)) {
            hlo_fail(g, HLO_ERROR_VALUE, "custom_call @%s: attribute %d has no name or no value",
                     o->target, i);
            return NULL;
        }
        attrs[i] = *from;
        attrs[i].name = hlo__intern(g, from->name);
        attrs[i].string = from->kind == HLO_ATTR_STRING ? hlo__intern(g, from->string) : NULL;
    }
    if (attrs == NULL || hlo__failed(g))
        return NULL;
    qsort(attrs, (size_t)o->n_attrs, sizeof *attrs, by_name);
    for (int i = 1; i < o->n_attrs; i++) {
        if (attrs[i].name == attrs[i - 1].name)
            hlo_fail(g, HLO_ERROR_VALUE, "custom_call @%s: attribute \"%s\" is given twice",
                     o->target, attrs[i].name);
    }
    return attrs;
}

static bool check_aliases(hlo_graph *g, const hlo_custom_call_options *o, const hlo_val *in,
                          int n_in, const hlo_shape *shapes, int n_out)
{
    for (int i = 0; i < o->n_aliases && !hlo__failed(g); i++) {
        int result = o->aliases[i][0], operand = o->aliases[i][1];
        if (result < 0 || result >= n_out || operand < 0 || operand >= n_in)
            hlo__fail_op(g, HLO_OP_CUSTOM_CALL, in, n_in,
                         "@%s: alias of result %d and operand %d, of %d and %d", o->target, result,
                         operand, n_out, n_in);
        else if (!hlo_shape_equal(&shapes[result], hlo_shape_of(g, in[operand])))
            hlo__fail_op(g, HLO_OP_CUSTOM_CALL, in, n_in,
                         "@%s: result %d and operand %d differ in shape and cannot share memory",
                         o->target, result, operand);
    }
    return !hlo__failed(g);
}

static bool check_custom_call(hlo_graph *g, const hlo_custom_call_options *o, const hlo_val *in,
                              int n_in, const hlo_shape *shapes, int n_out)
{
    if (hlo__failed(g))
        return false;
    if (o == NULL || o->target == NULL || o->target[0] == '\0' || n_in < 0 || n_out < 0 ||
        o->n_attrs < 0 || o->n_aliases < 0) {
        hlo_fail(g, HLO_ERROR_VALUE, "custom_call: no target, or a negative count");
        return false;
    }
    hlo_value **values = hlo__alloc(g, (size_t)(n_in + 1) * sizeof *values);
    if (values == NULL || !hlo__values(g, HLO_OP_CUSTOM_CALL, in, n_in, values))
        return false;
    for (int i = 0; i < n_out && !hlo__failed(g); i++) {
        if (!hlo__shape_ok(&shapes[i]))
            hlo__fail_op(g, HLO_OP_CUSTOM_CALL, in, n_in, "@%s: result %d has no valid shape",
                         o->target, i);
    }
    if (n_out == 0 && !o->has_side_effect)
        hlo__fail_op(g, HLO_OP_CUSTOM_CALL, in, n_in, "@%s: neither results nor a side effect",
                     o->target);
    return check_aliases(g, o, in, n_in, shapes, n_out);
}

static hlo_node *add_custom_call(hlo_graph *g, const hlo_custom_call_options *options,
                                 const hlo_val *in, int n_in, const hlo_shape *shapes, int n_out)
{
    hlo_custom_call_options attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.target = hlo__intern(g, options->target);
    attrs.attrs = copy_attrs(g, options);
    attrs.n_attrs = options->n_attrs;
    attrs.aliases =
        hlo__copy(g, options->aliases, (size_t)options->n_aliases * sizeof *options->aliases);
    attrs.n_aliases = options->n_aliases;
    attrs.has_side_effect = options->has_side_effect;
    attrs.vjp = options->vjp;
    attrs.vjp_ctx = options->vjp_ctx;
    return hlo__add(g, HLO_OP_CUSTOM_CALL, in, n_in, shapes, n_out, &attrs, sizeof attrs);
}

void hlo_custom_call(hlo_graph *g, const hlo_custom_call_options *options, const hlo_val *in,
                     int n_in, const hlo_shape *shapes, hlo_val *out, int n_out)
{
    hlo_node *node = NULL;
    if (check_custom_call(g, options, in, n_in, shapes, n_out))
        node = add_custom_call(g, options, in, n_in, shapes, n_out);
    take_outs(node, out, n_out);
}

void hlo_barrier(hlo_graph *g, const hlo_val *in, int n, hlo_val *out)
{
    if (!check_counts(g, HLO_OP_BARRIER, n, n, true)) {
        set_null(out, n);
        return;
    }
    hlo_shape *shapes = hlo__alloc(g, (size_t)n * sizeof *shapes);
    for (int i = 0; i < n && shapes != NULL; i++)
        shapes[i] = *hlo_shape_of(g, in[i]);
    take_outs(hlo__add(g, HLO_OP_BARRIER, in, n, shapes, n, NULL, 0), out, n);
}

/* ---- gradients ---- */

/* The gradient of a region: what goes into the block that computes it. */
typedef struct region_vjp {
    const hlo_block *region;
    hlo_value *const *in; /* what the region is given */
    int n_in;
    const hlo_val *d_out;
    const bool *wanted;
    int n_wanted;
    hlo_val *operands; /* `in`, then the gradients that there are */
    int n_operands;
} region_vjp;

static bool new_region_vjp(hlo_graph *g, region_vjp *v, hlo_value *const *in, int n_in,
                           const hlo_val *d_out, int n_out, const bool *wanted)
{
    *v = (region_vjp){.in = in, .n_in = n_in, .d_out = d_out, .wanted = wanted};
    v->operands = hlo__alloc(g, (size_t)(n_in + n_out + 1) * sizeof *v->operands);
    if (v->operands == NULL)
        return false;
    for (int i = 0; i < n_in; i++) {
        v->operands[v->n_operands++] = hlo__handle(g, in[i]);
        v->n_wanted += wanted[i];
    }
    for (int i = 0; i < n_out; i++) {
        if (d_out[i].id != 0)
            v->operands[v->n_operands++] = d_out[i];
    }
    return v->n_wanted > 0;
}

/* A block with parameters like v->operands: the region once more, and from it the gradients of all
 * inputs that are wanted, zeros included. */
static hlo_block *build_region_vjp(hlo_graph *g, const region_vjp *v)
{
    int n_out = v->region->n_results, n_from = 0, n_wrt = 0;
    size_t room = (size_t)(v->n_operands + 2 * n_out + 2 * v->n_in + 1);
    hlo_val *params = hlo__alloc(g, room * sizeof *params);
    hlo_val *results = hlo__alloc(g, (size_t)(n_out + 1) * sizeof *results);
    hlo_block *block = hlo__begin_block(g);
    if (hlo__failed(g))
        return block;
    hlo_val *from = params + v->n_operands, *d_from = from + n_out, *wrt = d_from + n_out;
    hlo_val *d_wrt = wrt + v->n_in;
    for (int i = 0; i < v->n_operands; i++)
        params[i] = hlo__block_param(g, *hlo_shape_of(g, v->operands[i]));
    if (!hlo__failed(g))
        hlo__inline(g, v->region, params, results);
    for (int i = 0; i < n_out; i++) {
        if (v->d_out[i].id == 0)
            continue;
        from[n_from] = results[i];
        d_from[n_from] = params[v->n_in + n_from];
        n_from++;
    }
    for (int i = 0; i < v->n_in; i++) {
        if (v->wanted[i])
            wrt[n_wrt++] = params[i];
    }
    hlo_vjp(g, from, d_from, n_from, wrt, n_wrt, d_wrt);
    hlo__end_block(g, block, d_wrt, n_wrt);
    return block;
}

/* Drops the results that are zero in every region; `kept[i]` tells about the i-th wanted one. */
static int drop_zeros(hlo_graph *g, hlo_block **regions, int n_regions, int n_wanted, bool *kept)
{
    int n = 0;
    for (int i = 0; i < n_wanted; i++) {
        for (int r = 0; r < n_regions && !kept[i]; r++) {
            double value;
            hlo_val d = hlo__handle(g, regions[r]->results[i]);
            kept[i] = !hlo__is_splat(g, d, &value) || value != 0;
        }
        for (int r = 0; r < n_regions && kept[i]; r++)
            regions[r]->results[n] = regions[r]->results[i];
        n += kept[i];
    }
    for (int r = 0; r < n_regions; r++)
        regions[r]->n_results = n;
    return n;
}

/* Hands the node's results out as the gradients of the wanted inputs. */
static void spread(const hlo_node *node, const bool *wanted, const bool *kept, int n_in,
                   hlo_val *d_in)
{
    int nth_wanted = 0, nth_result = 0;
    for (int i = 0; i < n_in; i++) {
        if (wanted[i] && kept[nth_wanted++])
            d_in[i] = hlo__out(node, nth_result++);
    }
}

void hlo__vjp_case(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                   hlo_val *d_in)
{
    region_vjp v;
    region_set s;
    hlo_val index = hlo__handle(g, node->in[0]);
    if (!new_region_vjp(g, &v, node->in + 1, node->n_in - 1, d_out, node->n_out, wanted + 1) ||
        !new_region_set(g, &s, node->n_regions, v.n_operands))
        return;
    for (int r = 0; r < s.n && !hlo__failed(g); r++) {
        v.region = node->regions[r];
        s.regions[r] = build_region_vjp(g, &v);
    }
    bool *kept = hlo__alloc(g, (size_t)v.n_wanted * sizeof *kept);
    if (kept == NULL)
        return;
    int n = drop_zeros(g, s.regions, s.n, v.n_wanted, kept);
    if (n == 0 || !close_regions(g, &s))
        return;
    /* What the new branches take was all given to them as parameters, and counts as captured. */
    hlo_val *operands = hlo__alloc(g, (size_t)(v.n_operands + 1) * sizeof *operands);
    if (operands == NULL)
        return;
    operands[0] = index;
    memcpy(operands + 1, v.operands, (size_t)v.n_operands * sizeof *operands);
    spread(add_regions(g, HLO_OP_CASE, &s, operands, v.n_operands + 1, s.regions[0]->results, n),
           wanted + 1, kept, v.n_in, d_in + 1);
}

/* A function of its own, that computes the call's once more: XLA merges the two after inlining. */
void hlo__vjp_call(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                   hlo_val *d_in)
{
    region_vjp v;
    region_set s;
    char name[256];
    snprintf(name, sizeof name, "%s.vjp", ((const hlo_call_attrs *)node->attrs)->name);
    if (!new_region_vjp(g, &v, node->in, node->n_in, d_out, node->n_out, wanted) ||
        !new_region_set(g, &s, 1, v.n_operands))
        return;
    v.region = node->regions[0];
    s.regions[0] = build_region_vjp(g, &v);
    bool *kept = hlo__alloc(g, (size_t)v.n_wanted * sizeof *kept);
    if (kept == NULL || drop_zeros(g, s.regions, 1, v.n_wanted, kept) == 0 || !close_regions(g, &s))
        return;
    spread(add_call(g, name, false, s.regions[0], v.operands, v.n_operands), wanted, kept,
           node->n_in, d_in);
}

void hlo__vjp_custom_call(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                          const bool *wanted, hlo_val *d_in)
{
    (void)wanted;
    const hlo_custom_call_options *o = node->attrs;
    if (o->vjp == NULL) {
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "custom_call @%s has no gradient", o->target);
        return;
    }
    hlo_val *values = hlo__alloc(g, (size_t)(node->n_in + 2 * node->n_out + 1) * sizeof *values);
    if (values == NULL)
        return;
    hlo_val *out = values + node->n_in, *d = out + node->n_out;
    for (int i = 0; i < node->n_in; i++)
        values[i] = hlo__handle(g, node->in[i]);
    for (int i = 0; i < node->n_out; i++) {
        out[i] = hlo__out(node, i);
        d[i] = d_out[i]; /* zeros where there are none, so that rules need no second form */
        if (d[i].id == 0 && hlo__differentiable(node->out[i]))
            d[i] = hlo_zeros_like(g, out[i]);
    }
    if (!hlo__failed(g))
        o->vjp(g, o->vjp_ctx, values, node->n_in, out, d, node->n_out, d_in);
}

/* The gradients go through a barrier of their own, so that the backward pass keeps the order. */
void hlo__vjp_barrier(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                      hlo_val *d_in)
{
    int n = 0;
    hlo_val *d = hlo__alloc(g, 2 * (size_t)node->n_in * sizeof *d);
    if (d == NULL)
        return;
    for (int i = 0; i < node->n_in; i++) {
        if (wanted[i] && d_out[i].id != 0)
            d[n++] = d_out[i];
    }
    if (n == 0)
        return;
    hlo_barrier(g, d, n, d + node->n_in);
    for (int i = 0, k = 0; i < node->n_in; i++) {
        if (wanted[i] && d_out[i].id != 0)
            d_in[i] = d[node->n_in + k++];
    }
}
