/*
 * Dead code in the lowered copy.
 *
 * A value is live if a result or a side effect needs it. Of a loop a carry is live only if its end
 * is used or it influences something that is; of a branch only what some branch reads. Calls and
 * manual regions keep their signatures. One pass marks, each value at most once; one removes.
 */
#include "hlo_builder/write/lower.h"

#include <stdlib.h>

typedef struct marking {
    hlo_graph *g;
    uint32_t first;
    bool *live;             /* by id - first */
    hlo_value **outside;    /* of a region's parameter: what is live with it */
    const hlo_value **todo; /* live, but not yet looked at */
    size_t n_todo;
    uint32_t opened; /* the mark of nodes whose regions have been connected */
} marking;

static bool is_live(const marking *m, const hlo_value *v)
{
    return m->live[v->id - m->first];
}

static void need(marking *m, const hlo_value *v)
{
    bool *live = &m->live[v->id - m->first];
    if (!*live) {
        *live = true;
        m->todo[m->n_todo++] = v; /* each value comes here once, so the list is long enough */
    }
}

static void need_all(marking *m, hlo_value *const *values, int n)
{
    for (int i = 0; i < n; i++)
        need(m, values[i]);
}

/* A node some result of which is live, or which has a side effect. */
static void need_node(marking *m, hlo_node *node)
{
    bool first_time = node->mark != m->opened;
    if (!first_time)
        return;
    node->mark = m->opened;
    switch (node->op) {
    case HLO_OP_WHILE:
        for (int r = 0; r < 2; r++) {
            for (int i = 0; i < node->n_in; i++)
                m->outside[node->regions[r]->params[i]->id - m->first] = node->out[i];
        }
        need(m, node->regions[0]->results[0]);
        break;
    case HLO_OP_CASE:
        for (int r = 0; r < node->n_regions; r++) {
            for (int i = 0; i < node->n_in - 1; i++)
                m->outside[node->regions[r]->params[i]->id - m->first] = node->in[i + 1];
        }
        need(m, node->in[0]);
        break;
    default:
        need_all(m, node->in, node->n_in);
        for (int r = 0; r < node->n_regions; r++)
            need_all(m, node->regions[r]->results, node->regions[r]->n_results);
    }
}

static void look_at(marking *m, const hlo_value *v)
{
    hlo_node *node = v->node;
    if (node->op == HLO_OP_PARAM) {
        hlo_value *outside = m->outside[v->id - m->first];
        if (outside != NULL)
            need(m, outside);
        return;
    }
    need_node(m, node);
    if (node->op == HLO_OP_WHILE) {
        need(m, node->in[v->index]);
        need(m, node->regions[1]->results[v->index]);
    } else if (node->op == HLO_OP_CASE) {
        for (int r = 0; r < node->n_regions; r++)
            need(m, node->regions[r]->results[v->index]);
    }
}

/* ---- removing ---- */

static void prune_block(const marking *m, hlo_block *block);

/* Keeps the i-th of `values` if keep[i]. */
static void filter(hlo_value **values, const bool *keep, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (keep[i])
            values[kept++] = values[i];
    }
}

static int count(const bool *keep, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        kept += keep[i];
    return kept;
}

static void number_outs(hlo_node *node, int n)
{
    node->n_out = n;
    for (int i = 0; i < n; i++)
        node->out[i]->index = i;
}

static void prune_while(const marking *m, hlo_node *node)
{
    int n = node->n_in;
    bool *keep = hlo__alloc(m->g, (size_t)(n + 1));
    if (keep == NULL)
        return;
    for (int i = 0; i < n; i++)
        keep[i] = is_live(m, node->out[i]);
    int kept = count(keep, n);
    for (int r = 0; r < 2; r++) {
        filter(node->regions[r]->params, keep, n);
        node->regions[r]->n_params = kept;
    }
    filter(node->regions[1]->results, keep, n);
    node->regions[1]->n_results = kept;
    filter(node->in, keep, n);
    node->n_in = kept;
    filter(node->out, keep, n);
    number_outs(node, kept);
}

static void prune_case(const marking *m, hlo_node *node)
{
    int n_in = node->n_in - 1, n_out = node->n_out;
    bool *keep = hlo__alloc(m->g, (size_t)(n_in + n_out + 1));
    if (keep == NULL)
        return;
    bool *keep_out = keep + n_in;
    for (int i = 0; i < n_in; i++) {
        for (int r = 0; r < node->n_regions; r++)
            keep[i] = keep[i] || is_live(m, node->regions[r]->params[i]);
    }
    for (int i = 0; i < n_out; i++)
        keep_out[i] = is_live(m, node->out[i]);
    int kept = count(keep, n_in), kept_out = count(keep_out, n_out);
    for (int r = 0; r < node->n_regions; r++) {
        filter(node->regions[r]->params, keep, n_in);
        node->regions[r]->n_params = kept;
        filter(node->regions[r]->results, keep_out, n_out);
        node->regions[r]->n_results = kept_out;
    }
    filter(node->in + 1, keep, n_in);
    node->n_in = 1 + kept;
    filter(node->out, keep_out, n_out);
    number_outs(node, kept_out);
}

static void prune_block(const marking *m, hlo_block *block)
{
    int kept = 0;
    for (int i = 0; i < block->n_nodes && !hlo__failed(m->g); i++) {
        hlo_node *node = block->nodes[i];
        if (node->mark != m->opened)
            continue;
        node->position = kept;
        block->nodes[kept++] = node;
        if (node->op == HLO_OP_WHILE)
            prune_while(m, node);
        else if (node->op == HLO_OP_CASE)
            prune_case(m, node);
        for (int r = 0; r < node->n_regions && node->op != HLO_OP_CALL; r++)
            prune_block(m, node->regions[r]);
    }
    block->n_nodes = kept;
}

void hlo__prune(hlo_lowering *l, hlo_block *main_block)
{
    hlo_graph *g = l->g;
    size_t n = g->n_values + 1 - l->first + 1;
    marking m = {.g = g, .first = l->first, .opened = hlo__new_mark(g)};
    m.live = calloc(n, sizeof *m.live);
    m.outside = calloc(n, sizeof *m.outside);
    m.todo = malloc(n * sizeof *m.todo);
    if (m.live == NULL || m.outside == NULL || m.todo == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
    } else {
        need_all(&m, main_block->results, main_block->n_results);
        for (size_t i = 0; i < l->n_effects; i++)
            need_node(&m, l->effects[i]);
        while (m.n_todo > 0)
            look_at(&m, m.todo[--m.n_todo]);
        prune_block(&m, main_block);
        for (size_t i = 0; i < l->n_functions; i++)
            prune_block(&m, l->functions[i].block);
    }
    free(m.live);
    free(m.outside);
    free(m.todo);
}
