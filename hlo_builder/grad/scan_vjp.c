/*
 * The gradient of a scan is a scan the other way round.
 *
 * The forward scan is made to also stack what its gradient needs: residuals of the body, and the
 * carries as they went into each step. The backward scan carries the gradients of the carries and,
 * for each captured value, the sum of its gradients over the steps; it is given the inputs, the
 * stacks and the gradients of the outputs, and stacks the gradients of the inputs.
 */
#include "hlo_builder/ops/joint.h"
#include "hlo_builder/ops/scan.h"

typedef struct scan_back {
    hlo_graph *g;
    hlo_node *node;
    const hlo_scan_attrs *attrs;
    int n_carry, n_inputs, n_outputs, n_captured;
    const hlo_val *d_out;
    const bool *wanted;
    hlo_joint j;
    bool *carried;   /* carries through which a gradient flows */
    int first_stack; /* where the node's extra results begin */
} scan_back;

/* Parameters of a scan body: the step, then as the node's operands. */
static int carry_param(int i)
{
    return 1 + i;
}

/* ---- which carries take part ---- */

/* A carry has a gradient when its start has, or when a step makes it depend on something that has;
 * that may take several rounds to spread from carry to carry. */
static void find_carried(scan_back *s, const bool *wanted_params)
{
    hlo_graph *g = s->g;
    hlo_block *body = s->node->regions[0];
    hlo_value **from = hlo__alloc(g, (size_t)(body->n_params + 1) * sizeof *from);
    if (from == NULL)
        return;
    for (int i = 0; i < s->n_carry; i++)
        s->carried[i] = wanted_params[carry_param(i)];
    for (bool changed = true; changed && !hlo__failed(g);) {
        hlo_map is_from;
        int n = 0;
        changed = false;
        for (int i = 0; i < body->n_params; i++) {
            bool carry = i >= 1 && i <= s->n_carry;
            if (carry ? s->carried[i - 1] : wanted_params[i])
                from[n++] = body->params[i];
        }
        if (!hlo__map_init(g, &is_from))
            return;
        uint32_t mark = hlo__mark_active(g, body, 0, body->n_nodes, from, n, &is_from);
        for (int i = 0; i < s->n_carry; i++) {
            if (!s->carried[i] && hlo__is_active(body->results[i], mark, &is_from))
                changed = s->carried[i] = true;
        }
        hlo__map_free(&is_from);
    }
}

/* ---- forward: stack what is needed ---- */

static void stack_residuals(scan_back *s)
{
    hlo_graph *g = s->g;
    hlo_joint *j = &s->j;
    int room = j->n_residuals + s->n_carry + 1, n = 0;
    hlo_shape *shapes = hlo__alloc(g, (size_t)room * sizeof *shapes);
    bool *carry_saved = hlo__alloc(g, (size_t)(s->n_carry + 2) * sizeof *carry_saved);
    hlo_block **regions = hlo__alloc(g, sizeof *regions);
    hlo_scan_attrs *attrs = hlo__copy(g, s->attrs, sizeof *attrs);
    if (hlo__failed(g))
        return;
    for (int i = 0; i < j->n_residuals; i++)
        shapes[n++] = j->residuals[i]->shape;
    for (int i = 0; i < s->n_carry; i++) {
        carry_saved[carry_param(i)] = j->param_needed[carry_param(i)];
        if (j->param_needed[carry_param(i)])
            shapes[n++] = j->block->params[carry_param(i)]->shape;
    }
    s->first_stack = s->node->n_out;
    if (n == 0)
        return;
    for (int i = 0; i < n; i++)
        shapes[i] = hlo__stacked_shape(g, &shapes[i], attrs->length);
    if (hlo__failed(g))
        return;
    *regions = hlo__joint_forward(j, carry_saved, s->n_carry + 1);
    attrs->n_outputs += n;
    if (*regions != NULL && hlo__append_outs(g, s->node, shapes, n)) {
        s->node->regions = regions;
        s->node->attrs = attrs;
    }
}

/* ---- backward ---- */

/* The backward scan's lists as they are put together: start values or stacked arrays, and what
 * stands for each in the joint block. */
typedef struct back_lists {
    hlo_val *carry, *inputs;
    hlo_value **carry_inside, **inputs_inside; /* NULL for a sum of gradients */
    int n_carry, n_inputs;
} back_lists;

static void add_input(back_lists *l, hlo_val stacked, hlo_value *inside)
{
    l->inputs[l->n_inputs] = stacked;
    l->inputs_inside[l->n_inputs++] = inside;
}

static void fill_lists(scan_back *s, back_lists *l)
{
    hlo_graph *g = s->g;
    hlo_joint *j = &s->j;
    for (int i = 0; i < s->n_carry; i++) {
        if (!s->carried[i])
            continue;
        const hlo_shape *shape = &s->node->out[i]->shape;
        l->carry[l->n_carry] = s->d_out[i].id != 0 ? s->d_out[i] : hlo_full(g, *shape, 0);
        l->carry_inside[l->n_carry++] = hlo__known(g, j->d_outs[i]);
    }
    for (int i = 0; i < s->n_captured; i++) {
        int operand = s->n_carry + s->n_inputs + i;
        if (j->d_params[1 + operand].id == 0)
            continue;
        hlo_shape shape = s->node->in[operand]->shape;
        shape.type = hlo__gradient_sum_type(g, shape.type);
        l->carry[l->n_carry++] = hlo_full(g, shape, 0);
    }
    for (int i = 0; i < s->n_inputs; i++) {
        int param = 1 + s->n_carry + i;
        if (j->param_needed[param])
            add_input(l, hlo__handle(g, s->node->in[s->n_carry + i]), j->block->params[param]);
    }
    int stack = s->first_stack;
    for (int i = 0; i < j->n_residuals; i++)
        add_input(l, hlo__out(s->node, stack++), j->residuals[i]);
    for (int i = 0; i < s->n_carry; i++) {
        if (j->param_needed[carry_param(i)])
            add_input(l, hlo__out(s->node, stack++), j->block->params[carry_param(i)]);
    }
    for (int i = s->n_carry; i < s->n_carry + s->n_outputs; i++) {
        if (j->d_outs[i].id != 0)
            add_input(l, s->d_out[i], hlo__known(g, j->d_outs[i]));
    }
}

/* The gradients as the joint block has them, now in the backward body; zero where there is none. */
static hlo_val gradient_in(scan_back *s, hlo_map *map, int param, const hlo_shape *shape)
{
    hlo_val d = s->j.d_params[param];
    return d.id == 0 ? hlo_full(s->g, *shape, 0) : hlo__map_get(map, hlo__known(s->g, d));
}

/* Builds one step backwards into the current block; returns the number of results. */
static int build_step_back(scan_back *s, const back_lists *l, hlo_map *map, hlo_val *results)
{
    hlo_graph *g = s->g;
    hlo_joint *j = &s->j;
    hlo_val *sums = hlo__alloc(g, (size_t)(l->n_carry + 1) * sizeof *sums);
    if (sums == NULL)
        return 0;
    hlo__map_set(map, j->block->params[0], hlo__block_param(g, HLO_SCALAR(HLO_S32)));
    for (int i = 0; i < l->n_carry; i++) {
        sums[i] = hlo__block_param(g, *hlo_shape_of(g, l->carry[i]));
        if (l->carry_inside[i] != NULL)
            hlo__map_set(map, l->carry_inside[i], sums[i]);
    }
    for (int i = 0; i < l->n_inputs; i++)
        hlo__map_set(map, l->inputs_inside[i],
                     hlo__block_param(g, hlo__slice_shape(hlo_shape_of(g, l->inputs[i]))));
    for (int i = 0; i < s->n_captured; i++) { /* used from outside, and captured anew */
        int operand = s->n_carry + s->n_inputs + i;
        hlo__map_set(map, j->block->params[1 + operand], hlo__handle(g, s->node->in[operand]));
    }
    hlo__joint_backward(j, map);
    int n = 0;
    for (int i = 0; i < s->n_carry && !hlo__failed(g); i++) {
        if (s->carried[i])
            results[n++] = gradient_in(s, map, carry_param(i), &s->node->out[i]->shape);
    }
    for (int i = 0; i < s->n_captured && !hlo__failed(g); i++) {
        int param = 1 + s->n_carry + s->n_inputs + i;
        if (j->d_params[param].id == 0)
            continue;
        hlo_val d = hlo__map_get(map, hlo__known(g, j->d_params[param]));
        results[n] = hlo_add(g, sums[n], hlo_convert(g, d, hlo_type_of(g, sums[n])));
        n++;
    }
    for (int i = 0; i < s->n_inputs && !hlo__failed(g); i++) {
        int param = 1 + s->n_carry + i;
        if (j->d_params[param].id != 0)
            results[n++] = hlo__map_get(map, hlo__known(g, j->d_params[param]));
    }
    return n;
}

/* What the backward scan found, in the order of build_step_back's results. */
static void hand_out(scan_back *s, const hlo_node *back, hlo_val *d_in)
{
    int n = 0;
    for (int i = 0; i < s->n_carry; i++) {
        if (s->carried[i]) {
            hlo_val d = hlo__out(back, n++);
            if (s->wanted[i])
                d_in[i] = d;
        }
    }
    for (int i = 0; i < s->n_captured; i++) {
        int operand = s->n_carry + s->n_inputs + i;
        if (s->j.d_params[1 + operand].id != 0)
            d_in[operand] =
                hlo_convert(s->g, hlo__out(back, n++), s->node->in[operand]->shape.type);
    }
    for (int i = 0; i < s->n_inputs; i++) {
        if (s->j.d_params[1 + s->n_carry + i].id != 0)
            d_in[s->n_carry + i] = hlo__out(back, n++);
    }
}

static void build_backward(scan_back *s, hlo_val *d_in)
{
    hlo_graph *g = s->g;
    int n_carry_max = s->n_carry + s->n_captured + 1;
    int n_inputs_max = s->n_inputs + s->j.n_residuals + s->n_carry + s->n_outputs + 1;
    int room = n_carry_max + n_inputs_max;
    back_lists l = {0};
    l.carry = hlo__alloc(g, 2 * (size_t)room * sizeof *l.carry);
    l.carry_inside = hlo__alloc(g, (size_t)room * sizeof *l.carry_inside);
    hlo_map map;
    if (hlo__failed(g))
        return;
    l.inputs = l.carry + n_carry_max;
    l.inputs_inside = l.carry_inside + n_carry_max;
    hlo_val *results = l.carry + room;
    fill_lists(s, &l);
    if (!hlo__map_init(g, &map))
        return;
    hlo_block *block = hlo__begin_block(g);
    int n_results = block == NULL ? 0 : build_step_back(s, &l, &map, results), n_captured = 0;
    hlo__end_block(g, block, results, n_results);
    hlo__map_free(&map);
    hlo_val *captured = hlo__failed(g) ? NULL : hlo__close(g, block, &n_captured);
    int n_given = l.n_carry + l.n_inputs;
    hlo_val *in = hlo__alloc(g, (size_t)(n_given + n_captured + 1) * sizeof *in);
    if (hlo__failed(g))
        return;
    for (int i = 0; i < n_given + n_captured; i++)
        in[i] = i < l.n_carry ? l.carry[i]
                : i < n_given ? l.inputs[i - l.n_carry]
                              : captured[i - n_given];
    hlo_scan_attrs attrs = {.length = s->attrs->length,
                            .n_carry = l.n_carry,
                            .n_inputs = l.n_inputs,
                            .n_outputs = n_results - l.n_carry,
                            .reverse = !s->attrs->reverse,
                            .unroll = s->attrs->unroll,
                            .save = HLO_SAVE_ALL};
    hand_out(s, hlo__make_scan(g, block, &attrs, in, n_given + n_captured), d_in);
}

void hlo__vjp_scan(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                   hlo_val *d_in)
{
    const hlo_scan_attrs *attrs = node->attrs;
    scan_back s = {.g = g,
                   .node = (hlo_node *)node, /* const for rules; this one is extended */
                   .attrs = attrs,
                   .n_carry = (int)attrs->n_carry,
                   .n_inputs = (int)attrs->n_inputs,
                   .n_outputs = (int)attrs->n_outputs,
                   .d_out = d_out,
                   .wanted = wanted};
    s.n_captured = node->n_in - s.n_carry - s.n_inputs;
    int n_results = s.n_carry + s.n_outputs;
    bool *wanted_params = hlo__alloc(g, (size_t)(node->n_in + 1) * sizeof *wanted_params);
    bool *has_d = hlo__alloc(g, (size_t)(n_results + 1) * sizeof *has_d);
    s.carried = hlo__alloc(g, (size_t)(s.n_carry + 1) * sizeof *s.carried);
    if (hlo__failed(g))
        return;
    memcpy(wanted_params + 1, wanted, (size_t)node->n_in * sizeof *wanted);
    find_carried(&s, wanted_params);
    for (int i = 0; i < n_results; i++)
        has_d[i] = i < s.n_carry ? s.carried[i] : d_out[i].id != 0;
    for (int i = 0; i < s.n_carry; i++)
        wanted_params[carry_param(i)] = s.carried[i];
    hlo__joint_build(g, &s.j, node->regions[0], has_d, wanted_params);
    hlo__joint_split(&s.j, (hlo_save)attrs->save, 1 + s.n_carry + s.n_inputs);
    if (!hlo__failed(g))
        stack_residuals(&s);
    if (!hlo__failed(g))
        build_backward(&s, d_in);
    hlo__joint_free(&s.j);
}
