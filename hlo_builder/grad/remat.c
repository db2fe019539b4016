/* Bodies that are computed again backwards, and bodies with a gradient rule of their own. */
#include "hlo_builder/ops/joint.h"

hlo_block *hlo__build_body(hlo_graph *g, hlo_body body, void *ctx, const hlo_val *in, int n_in,
                           int n_out, hlo_val **all, int *n_all)
{
    hlo_value **values = hlo__alloc(g, (size_t)(n_in + 1) * sizeof *values);
    hlo_val *params = hlo__alloc(g, (size_t)(n_in + n_out + 1) * sizeof *params);
    if (params == NULL || !hlo__values(g, HLO_OP_NONE, in, n_in, values))
        return NULL;
    hlo_val *results = params + n_in;
    hlo_block *block = hlo__begin_block(g);
    if (block == NULL)
        return NULL;
    for (int i = 0; i < n_in; i++)
        params[i] = hlo__block_param(g, values[i]->shape);
    if (!hlo__failed(g))
        body(g, ctx, params, results);
    hlo__end_block(g, block, results, n_out);
    int n_captured = 0;
    hlo_val *captured = hlo__close(g, block, &n_captured);
    *n_all = n_in + n_captured;
    *all = hlo__alloc(g, (size_t)(*n_all + 1) * sizeof **all);
    if (hlo__failed(g))
        return NULL;
    if (n_in > 0)
        memcpy(*all, in, (size_t)n_in * sizeof *in);
    if (n_captured > 0)
        memcpy(*all + n_in, captured, (size_t)n_captured * sizeof *captured);
    return block;
}

static void add_inlined(hlo_graph *g, hlo_op op, hlo_body body, void *ctx, const hlo_val *in,
                        int n_in, hlo_val *out, int n_out, const void *attrs, size_t attrs_size)
{
    hlo_val *all;
    int n_all;
    hlo_node *node = NULL;
    hlo_block *block = hlo__build_body(g, body, ctx, in, n_in, n_out, &all, &n_all);
    hlo_shape *shapes = hlo__alloc(g, (size_t)(n_out + 1) * sizeof *shapes);
    if (block != NULL && shapes != NULL) {
        for (int i = 0; i < n_out; i++)
            shapes[i] = block->results[i]->shape;
        node = hlo__add_region_op(g, op, all, n_all, shapes, n_out, attrs, attrs_size, &block, 1);
    }
    for (int i = 0; i < n_out; i++) /* only now: `out` may be `in` */
        out[i] = hlo__out(node, i);
}

/* ---- remat ---- */

void hlo_remat(hlo_graph *g, hlo_body body, void *ctx, hlo_save save, const hlo_val *in, int n_in,
               hlo_val *out, int n_out)
{
    hlo_remat_attrs attrs = {.save = save};
    add_inlined(g, HLO_OP_REMAT, body, ctx, in, n_in, out, n_out, &attrs, sizeof attrs);
}

/* The node now also returns what its gradient wants saved. */
static void save_residuals(hlo_joint *j, hlo_node *node)
{
    hlo_graph *g = j->g;
    if (j->n_residuals == 0)
        return;
    hlo_shape *shapes = hlo__alloc(g, (size_t)j->n_residuals * sizeof *shapes);
    hlo_block **regions = hlo__alloc(g, sizeof *regions);
    if (hlo__failed(g))
        return;
    for (int i = 0; i < j->n_residuals; i++)
        shapes[i] = j->residuals[i]->shape;
    *regions = hlo__joint_forward(j, NULL, 0);
    if (*regions != NULL && hlo__append_outs(g, node, shapes, j->n_residuals))
        node->regions = regions;
}

/*
 * Everything the backward pass starts from goes through one barrier together with the gradients
 * that come in: so the second computation can neither be merged with the first nor begin before it
 * is needed.
 */
static void pass_barrier(hlo_joint *j, const hlo_node *node, int first_residual,
                         const hlo_val *d_out, hlo_map *map)
{
    hlo_graph *g = j->g;
    int room = j->n_params + j->n_residuals + j->n_outs + 1, n = 0;
    hlo_val *values = hlo__alloc(g, 2 * (size_t)room * sizeof *values);
    hlo_value **inside = hlo__alloc(g, (size_t)room * sizeof *inside);
    if (hlo__failed(g))
        return;
    for (int i = 0; i < j->n_params; i++) {
        inside[n] = j->block->params[i];
        if (j->param_needed[i])
            values[n++] = hlo__handle(g, node->in[i]);
    }
    for (int i = 0; i < j->n_residuals; i++) {
        inside[n] = j->residuals[i];
        values[n++] = hlo__out(node, first_residual + i);
    }
    for (int i = 0; i < j->n_outs; i++) {
        if (j->d_outs[i].id == 0)
            continue;
        inside[n] = hlo__known(g, j->d_outs[i]);
        values[n++] = d_out[i];
    }
    hlo_val *behind = values + room;
    hlo_barrier(g, values, n, behind);
    for (int i = 0; i < n && !hlo__failed(g); i++)
        hlo__map_set(map, inside[i], behind[i]);
}

void hlo__vjp_remat(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                    hlo_val *d_in)
{
    hlo_joint j;
    hlo_map map;
    int n_results = node->regions[0]->n_results;
    const hlo_remat_attrs *attrs = node->attrs;
    bool *has_d = hlo__alloc(g, (size_t)(n_results + 1) * sizeof *has_d);
    if (has_d == NULL || !hlo__map_init(g, &map))
        return;
    for (int i = 0; i < n_results; i++)
        has_d[i] = d_out[i].id != 0;
    hlo__joint_build(g, &j, node->regions[0], has_d, wanted);
    hlo__joint_split(&j, (hlo_save)attrs->save, j.n_params);
    int first_residual = node->n_out;
    if (!hlo__failed(g))
        save_residuals(&j,
                       (hlo_node *)node); /* rules see nodes as const, but this one is extended */
    if (!hlo__failed(g))
        pass_barrier(&j, node, first_residual, d_out, &map);
    if (!hlo__failed(g))
        hlo__joint_backward(&j, &map);
    for (int i = 0; i < node->n_in && !hlo__failed(g); i++) {
        if (j.d_params[i].id != 0)
            d_in[i] = hlo__map_get(&map, hlo__known(g, j.d_params[i]));
    }
    hlo__joint_free(&j);
    hlo__map_free(&map);
}

/* ---- custom gradients ---- */

void hlo_custom_vjp(hlo_graph *g, hlo_body body, hlo_vjp_rule rule, void *ctx, const hlo_val *in,
                    int n_in, hlo_val *out, int n_out)
{
    hlo_rule_attrs attrs = {.rule = rule, .ctx = ctx, .n_in = n_in};
    add_inlined(g, HLO_OP_CUSTOM_VJP, body, ctx, in, n_in, out, n_out, &attrs, sizeof attrs);
}

void hlo__vjp_custom_vjp(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                         const bool *wanted, hlo_val *d_in)
{
    const hlo_rule_attrs *attrs = node->attrs;
    int n_in = (int)attrs->n_in;
    for (int i = n_in; i < node->n_in; i++) {
        if (wanted[i]) {
            hlo_fail(
                g, HLO_ERROR_UNSUPPORTED,
                "custom_vjp: its body uses a value from outside whose gradient is wanted: make "
                "it an input");
            return;
        }
    }
    hlo_val *lists = hlo__alloc(g, (size_t)(n_in + 2 * node->n_out + 1) * sizeof *lists);
    if (lists == NULL)
        return;
    hlo_val *in = lists, *out = in + n_in, *d = out + node->n_out;
    for (int i = 0; i < n_in; i++)
        in[i] = hlo__handle(g, node->in[i]);
    for (int i = 0; i < node->n_out; i++) {
        out[i] = hlo__out(node, i);
        bool none = d_out[i].id == 0 && hlo__differentiable(node->out[i]);
        d[i] = none ? hlo_full(g, node->out[i]->shape, 0) : d_out[i];
    }
    if (!hlo__failed(g))
        attrs->rule(g, attrs->ctx, in, n_in, out, d, node->n_out, d_in);
}
