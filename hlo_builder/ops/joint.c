/* A body and its gradient, and the choice between saving and computing again. */
#include "hlo_builder/ops/joint.h"

#include "hlo_builder/graph.h"

#include <stdlib.h>

hlo_value *hlo__known(const hlo_graph *g, hlo_val v)
{
    return g->values[v.id - 1];
}

/* ---- building ---- */

static bool allocate(hlo_graph *g, hlo_joint *j, const hlo_block *body, const bool *wanted)
{
    *j = (hlo_joint){.g = g, .n_params = body->n_params, .n_outs = body->n_results};
    j->wanted = hlo__copy(g, wanted, (size_t)body->n_params * sizeof *wanted);
    j->outs = hlo__alloc(g, (size_t)(body->n_results + 1) * sizeof *j->outs);
    j->d_outs = hlo__alloc(g, (size_t)(body->n_results + 1) * sizeof *j->d_outs);
    j->d_params = hlo__alloc(g, (size_t)(body->n_params + 1) * sizeof *j->d_params);
    j->param_needed = hlo__alloc(g, (size_t)(body->n_params + 1) * sizeof *j->param_needed);
    return !hlo__failed(g);
}

/* The gradients of the wanted parameters, those that are plain zero left out. */
static void differentiate(hlo_joint *j)
{
    hlo_graph *g = j->g;
    int n_max = j->n_outs + j->n_params;
    hlo_val *lists = hlo__alloc(g, (size_t)(2 * n_max + 2 * j->n_params + 1) * sizeof *lists);
    if (lists == NULL)
        return;
    hlo_val *outs = lists, *d_outs = outs + n_max, *wrt = d_outs + n_max,
            *d_wrt = wrt + j->n_params;
    int n_outs = 0, n_wrt = 0;
    for (int i = 0; i < j->n_outs; i++) {
        if (j->d_outs[i].id == 0)
            continue;
        outs[n_outs] = j->outs[i];
        d_outs[n_outs++] = j->d_outs[i];
    }
    for (int i = 0; i < j->n_params; i++) {
        if (j->wanted[i])
            wrt[n_wrt++] = hlo__handle(g, j->block->params[i]);
    }
    hlo_vjp(g, outs, d_outs, n_outs, wrt, n_wrt, d_wrt);
    for (int i = 0, k = 0; i < j->n_params && !hlo__failed(g); i++) {
        double zero;
        if (!j->wanted[i])
            continue;
        hlo_val d = d_wrt[k++];
        if (!(hlo__is_splat(g, d, &zero) && zero == 0))
            j->d_params[i] = d;
    }
}

void hlo__joint_build(hlo_graph *g, hlo_joint *j, const hlo_block *body, const bool *has_d_out,
                      const bool *wanted)
{
    if (!allocate(g, j, body, wanted))
        return;
    hlo_val *args = hlo__alloc(g, (size_t)(body->n_params + 1) * sizeof *args);
    j->block = hlo__begin_block(g);
    if (j->block == NULL)
        return;
    for (int i = 0; i < body->n_params; i++)
        args[i] = hlo__block_param(g, body->params[i]->shape);
    hlo__inline(g, body, args, j->outs);
    j->n_forward = j->block->n_nodes;
    for (int i = 0; i < j->n_outs; i++) {
        if (has_d_out[i])
            j->d_outs[i] = hlo__block_param(g, body->results[i]->shape);
    }
    if (!hlo__failed(g))
        differentiate(j);
    g->current = j->block->parent;
}

/* ---- splitting ---- */

/* Costs next to nothing to compute again, so nothing is worth saving. */
static bool is_free(hlo_op op)
{
    switch (op) {
    case HLO_OP_CONSTANT:
    case HLO_OP_IOTA:
    case HLO_OP_BROADCAST:
    case HLO_OP_RESHAPE:
    case HLO_OP_TRANSPOSE:
    case HLO_OP_REVERSE:
    case HLO_OP_CONVERT:
    case HLO_OP_BITCAST:
    case HLO_OP_SLICE:
    case HLO_OP_PAD:
    case HLO_OP_STOP_GRADIENT:
    case HLO_OP_SHARD:
    case HLO_OP_ROW_MAJOR:
        return true;
    default:
        return false;
    }
}

static bool is_saved(hlo_op op, hlo_save save)
{
    switch (save) {
    case HLO_SAVE_ALL:
        return !is_free(op);
    case HLO_SAVE_DOTS:
        return op == HLO_OP_DOT || op == HLO_OP_CONV || op == HLO_OP_KEEP ||
               op == HLO_OP_CUSTOM_CALL || op == HLO_OP_SCAN;
    case HLO_SAVE_LOOPS:
        return op == HLO_OP_KEEP || op == HLO_OP_SCAN;
    case HLO_SAVE_MARKED:
        break;
    }
    return op == HLO_OP_KEEP;
}

static bool add_residual(hlo_joint *j, hlo_value *v)
{
    hlo_value **list =
        hlo__room(j->g, j->residuals, j->n_residuals, &j->cap_residuals, sizeof *list);
    if (list == NULL)
        return false;
    j->residuals = list;
    j->residuals[j->n_residuals++] = v;
    return true;
}

typedef struct split {
    hlo_joint *j;
    hlo_map used;    /* values that something needed uses */
    bool *invariant; /* by position of forward nodes */
    int first_invariant;
} split;

static int param_index(const hlo_joint *j, const hlo_value *v)
{
    for (int i = 0; i < j->n_params; i++) {
        if (j->block->params[i] == v)
            return i;
    }
    return -1; /* a gradient parameter */
}

static void use(split *s, hlo_value *v)
{
    hlo_joint *j = s->j;
    if (v->node->block != j->block)
        return; /* from outside: a custom rule may use such values */
    if (v->node->op == HLO_OP_PARAM) {
        int i = param_index(j, v);
        if (i >= 0)
            j->param_needed[i] = true;
        return;
    }
    hlo__map_set(&s->used, v, hlo__handle(j->g, v));
    j->needed[v->node->position] = 1;
}

static void find_invariant(split *s)
{
    hlo_joint *j = s->j;
    for (int i = 0; i < j->n_forward; i++) {
        const hlo_node *node = j->block->nodes[i];
        bool all = node->op != HLO_OP_CUSTOM_CALL && node->op != HLO_OP_RANDOM_BITS;
        for (int k = 0; k < node->n_in && all; k++) {
            const hlo_value *v = node->in[k];
            if (v->node->op == HLO_OP_PARAM)
                all = param_index(j, v) >= s->first_invariant;
            else
                all = s->invariant[v->node->position];
        }
        s->invariant[i] = all;
    }
}

/* From the last node to the first: what is needed makes its operands needed, or is saved. */
static void split_walk(split *s, hlo_save save)
{
    hlo_joint *j = s->j;
    for (int i = 0; i < j->n_params; i++) {
        if (j->d_params[i].id != 0)
            use(s, hlo__known(j->g, j->d_params[i]));
    }
    for (int i = j->block->n_nodes - 1; i >= 0 && !hlo__failed(j->g); i--) {
        hlo_node *node = j->block->nodes[i];
        if (!j->needed[i])
            continue;
        if (i < j->n_forward && is_saved(node->op, save) && !s->invariant[i]) {
            j->needed[i] = 0;
            for (int k = 0; k < node->n_out; k++) {
                if (hlo__map_get(&s->used, node->out[k]).id != 0)
                    add_residual(j, node->out[k]);
            }
            continue;
        }
        for (int k = 0; k < node->n_in; k++)
            use(s, node->in[k]);
    }
}

void hlo__joint_split(hlo_joint *j, hlo_save save, int first_invariant)
{
    if (hlo__failed(j->g))
        return;
    split s = {.j = j, .first_invariant = first_invariant};
    j->needed = calloc((size_t)j->block->n_nodes + 1, 1);
    s.invariant = calloc((size_t)j->n_forward + 1, sizeof *s.invariant);
    if (j->needed == NULL || s.invariant == NULL)
        hlo_fail(j->g, HLO_ERROR_MEMORY, "out of memory");
    if (hlo__map_init(j->g, &s.used)) {
        find_invariant(&s);
        split_walk(&s, save);
    }
    hlo__map_free(&s.used);
    free(s.invariant);
}

/* ---- the two bodies ---- */

hlo_block *hlo__joint_forward(hlo_joint *j, const bool *extra, int n_extra)
{
    hlo_graph *g = j->g;
    hlo_map map;
    if (!hlo__map_init(g, &map))
        return NULL;
    int room = j->n_outs + j->n_residuals + n_extra + 1, n = 0;
    hlo_val *results = hlo__alloc(g, (size_t)room * sizeof *results);
    hlo_block *block = hlo__begin_block(g);
    for (int i = 0; i < j->n_params && block != NULL; i++)
        hlo__map_set(&map, j->block->params[i], hlo__block_param(g, j->block->params[i]->shape));
    for (int i = 0; i < j->n_forward && block != NULL && !hlo__failed(g); i++)
        hlo__clone_mapped(g, j->block->nodes[i], &map);
    if (!hlo__failed(g)) {
        for (int i = 0; i < j->n_outs; i++)
            results[n++] = hlo__map_get(&map, hlo__known(g, j->outs[i]));
        for (int i = 0; i < j->n_residuals; i++)
            results[n++] = hlo__map_get(&map, j->residuals[i]);
        for (int i = 0; i < n_extra; i++) {
            if (extra[i])
                results[n++] = hlo__map_get(&map, j->block->params[i]);
        }
    }
    hlo__end_block(g, block, results, n);
    hlo__map_free(&map);
    int n_captured;
    if (!hlo__failed(g))
        hlo__close(g, block, &n_captured);
    return hlo__failed(g) ? NULL : block;
}

void hlo__joint_backward(hlo_joint *j, hlo_map *map)
{
    for (int i = 0; i < j->block->n_nodes && !hlo__failed(j->g); i++) {
        hlo_node *node = j->block->nodes[i];
        if (!j->needed[i])
            continue;
        for (int k = 0; k < node->n_in; k++) {
            if (node->in[k]->node->block != j->block) /* from outside, used as it is */
                hlo__map_set(map, node->in[k], hlo__handle(j->g, node->in[k]));
        }
        hlo__clone_mapped(j->g, node, map);
    }
}

void hlo__joint_free(hlo_joint *j)
{
    free(j->needed);
    j->needed = NULL;
}
