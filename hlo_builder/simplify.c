/*
 * What is simpler once all gradients have been taken: pairs of operations that undo each other or
 * make one. While a graph is being built this would be wrong, for the value between the two may be
 * one that a gradient is asked for.
 */
#include "hlo_builder/dims.h"

/* Whether every number of type `from` is one of type `to`. */
static bool widens(hlo_type from, hlo_type to)
{
    bool is_half = from == HLO_BF16 || from == HLO_F16;
    return (is_half && to == HLO_F32) || ((is_half || from == HLO_F32) && to == HLO_F64);
}

/* dims of `outer` applied to what `inner` did: both transposes, or both broadcasts. */
static hlo_dims composed(const hlo_node *node, const hlo_node *inner)
{
    const hlo_dims *first = &((const hlo_dims_attrs *)inner->attrs)->dims;
    const hlo_dims *then = &((const hlo_dims_attrs *)node->attrs)->dims;
    bool transposes = node->op == HLO_OP_TRANSPOSE;
    hlo_dims both = {.n = first->n};
    for (int64_t i = 0; i < first->n; i++)
        both.d[i] = transposes ? first->d[then->d[i]] : then->d[first->d[i]];
    return both;
}

hlo_val hlo__simplify(hlo_graph *g, const hlo_node *node, const hlo_val *in)
{
    if (hlo__failed(g) || node->n_in != 1 || node->n_out != 1)
        return (hlo_val){0};
    const hlo_value *operand = hlo__value(g, in[0]);
    if (operand == NULL || operand->node->op != node->op || operand->node->n_in != 1)
        return (hlo_val){0};
    const hlo_node *inner = operand->node;
    hlo_val x = hlo__handle(g, inner->in[0]);
    switch (node->op) {
    case HLO_OP_neg:
    case HLO_OP_not:
        return x;
    case HLO_OP_TRANSPOSE:
        return hlo_transpose(g, x, composed(node, inner));
    case HLO_OP_BROADCAST:
        return hlo_broadcast(g, x, hlo__dims_of(&node->out[0]->shape), composed(node, inner));
    case HLO_OP_RESHAPE:
        return hlo_reshape(g, x, hlo__dims_of(&node->out[0]->shape));
    case HLO_OP_CONVERT:
        return widens(inner->in[0]->shape.type, operand->shape.type)
                   ? hlo_convert(g, x, node->out[0]->shape.type)
                   : (hlo_val){0};
    default:
        return (hlo_val){0};
    }
}
