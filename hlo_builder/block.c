/* Blocks: opening, closing over what is outside, and copying into another. */
#include "hlo_builder/graph.h"

#include <stdlib.h>

hlo_block *hlo__main_block(const hlo_graph *g)
{
    return g->main;
}

hlo_block *hlo__current_block(const hlo_graph *g)
{
    return g->current;
}

hlo_block *hlo__begin_block(hlo_graph *g)
{
    hlo_block *block = hlo__alloc(g, sizeof *block);
    if (block == NULL)
        return NULL;
    block->graph = g;
    block->parent = g->current;
    block->next_in_graph = g->blocks;
    g->blocks = block;
    g->current = block;
    return block;
}

/* Adds to an arena list that grows by doubling its copy; parameters are few. */
static bool append_param(hlo_graph *g, hlo_block *block, hlo_value *value)
{
    int n = block->n_params;
    if ((n & (n - 1)) == 0) { /* 0 and powers of two are the full sizes */
        hlo_value **larger = hlo__alloc(g, (size_t)(n == 0 ? 1 : 2 * n) * sizeof *larger);
        if (larger == NULL)
            return false;
        if (n > 0)
            memcpy(larger, block->params, (size_t)n * sizeof *larger);
        block->params = larger;
    }
    block->params[block->n_params++] = value;
    return true;
}

static hlo_value *new_param(hlo_graph *g, hlo_block *block, const hlo_shape *shape)
{
    hlo_node *node = hlo__alloc(g, sizeof *node);
    hlo_value **out = hlo__alloc(g, sizeof *out);
    hlo_value *value = out == NULL ? NULL : hlo__new_value(g, node, 0, shape);
    if (value == NULL || !append_param(g, block, value))
        return NULL;
    *out = value;
    *node = (hlo_node){.op = HLO_OP_PARAM, .n_out = 1, .out = out, .block = block, .position = -1};
    node->scope = g->scope;
    return value;
}

hlo_val hlo__block_param(hlo_graph *g, hlo_shape shape)
{
    return hlo__failed(g) ? (hlo_val){0} : hlo__handle(g, new_param(g, g->current, &shape));
}

void hlo__end_block(hlo_graph *g, hlo_block *block, const hlo_val *results, int n_results)
{
    if (block == NULL)
        return;
    hlo_value **values = hlo__alloc(g, (size_t)(n_results + 1) * sizeof *values);
    if (values != NULL && hlo__values(g, HLO_OP_NONE, results, n_results, values)) {
        block->results = values;
        block->n_results = n_results;
    }
    g->current = block->parent; /* also after an error, so that callers unwind as they came */
}

/* ---- closing ---- */

typedef struct closing {
    hlo_graph *g;
    hlo_block *block;
    hlo_map map; /* outer value to the parameter or constant that stands for it inside */
    hlo_val *captured;
    int n_captured, capacity;
    hlo_node **copies; /* of constants, to go before everything else */
    int n_copies, cap_copies;
} closing;

static bool remember_capture(closing *c, hlo_value *outer)
{
    hlo_val *list = hlo__room(c->g, c->captured, c->n_captured, &c->capacity, sizeof *list);
    if (list == NULL)
        return false;
    c->captured = list;
    c->captured[c->n_captured++] = hlo__handle(c->g, outer);
    return true;
}

/* A copy of a constant inside the block; moved to its front when all are known. */
static hlo_value *copy_constant(closing *c, const hlo_node *constant)
{
    hlo_node *node = hlo__copy(c->g, constant, sizeof *constant);
    hlo_value **out = hlo__alloc(c->g, sizeof *out);
    hlo_value *value = out == NULL ? NULL : hlo__new_value(c->g, node, 0, &constant->out[0]->shape);
    if (value == NULL)
        return NULL;
    *out = value;
    node->out = out;
    node->block = c->block;
    hlo_node **list = hlo__room(c->g, c->copies, c->n_copies, &c->cap_copies, sizeof *list);
    if (list == NULL)
        return NULL;
    c->copies = list;
    c->copies[c->n_copies++] = node;
    return value;
}

/* What stands for `v` inside the block. */
static hlo_value *inside(closing *c, hlo_value *v)
{
    if (v->node->block == c->block)
        return v;
    hlo_val known = hlo__map_get(&c->map, v);
    if (known.id != 0)
        return c->g->values[known.id - 1];
    hlo_value *stand_in;
    if (v->node->op == HLO_OP_CONSTANT) {
        stand_in = copy_constant(c, v->node);
    } else {
        stand_in = new_param(c->g, c->block, &v->shape);
        if (stand_in != NULL && !remember_capture(c, v))
            return NULL;
    }
    if (stand_in != NULL)
        hlo__map_set(&c->map, v, hlo__handle(c->g, stand_in));
    return stand_in;
}

/* Constants come first, for anything may use them. */
static void put_constants_first(closing *c)
{
    hlo_block *b = c->block;
    if (c->n_copies == 0)
        return;
    for (int i = 0; i < c->n_copies; i++) {
        if (!hlo__block_append(c->g, b, c->copies[i]))
            return;
    }
    int n = b->n_nodes - c->n_copies;
    memmove(b->nodes + c->n_copies, b->nodes, (size_t)n * sizeof *b->nodes);
    memcpy(b->nodes, c->copies, (size_t)c->n_copies * sizeof *b->nodes);
    for (int i = 0; i < b->n_nodes; i++)
        b->nodes[i]->position = i;
}

hlo_val *hlo__close(hlo_graph *g, hlo_block *block, int *n)
{
    *n = 0;
    closing c = {.g = g, .block = block};
    if (hlo__failed(g) || !hlo__map_init(g, &c.map))
        return NULL;
    bool ok = true;
    for (int i = 0; i < block->n_nodes && ok; i++) {
        hlo_node *node = block->nodes[i];
        for (int k = 0; k < node->n_in && ok; k++) {
            node->in[k] = inside(&c, node->in[k]);
            ok = node->in[k] != NULL;
        }
    }
    for (int i = 0; i < block->n_results && ok; i++) {
        block->results[i] = inside(&c, block->results[i]);
        ok = block->results[i] != NULL;
    }
    put_constants_first(&c);
    block->parent = NULL;
    hlo__map_free(&c.map);
    *n = hlo__failed(g) ? 0 : c.n_captured;
    return c.captured;
}

/* ---- copying ---- */

bool hlo__map_init(hlo_graph *g, hlo_map *map)
{
    enum { START = 64 };
    *map = (hlo_map){.graph = g};
    if (hlo__failed(g))
        return false;
    map->keys = calloc(2 * START, sizeof *map->keys);
    if (map->keys == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
        return false;
    }
    map->ids = map->keys + START;
    map->size = START;
    return true;
}

void hlo__map_free(hlo_map *map)
{
    free(map->keys);
    *map = (hlo_map){0};
}

/* Where `key` is or would go. The size is a power of two and never full. */
static size_t find(const uint32_t *keys, size_t size, uint32_t key)
{
    size_t at = (key * 2654435769u) & (size - 1);
    while (keys[at] != 0 && keys[at] != key)
        at = (at + 1) & (size - 1);
    return at;
}

static bool grow_map(hlo_map *map)
{
    size_t size = 2 * map->size;
    uint32_t *keys = calloc(2 * size, sizeof *keys);
    if (keys == NULL) {
        hlo_fail(map->graph, HLO_ERROR_MEMORY, "out of memory");
        return false;
    }
    for (size_t i = 0; i < map->size; i++) {
        if (map->keys[i] == 0)
            continue;
        size_t at = find(keys, size, map->keys[i]);
        keys[at] = map->keys[i];
        keys[size + at] = map->ids[i];
    }
    free(map->keys);
    map->keys = keys;
    map->ids = keys + size;
    map->size = size;
    return true;
}

void hlo__map_set(hlo_map *map, const hlo_value *from, hlo_val to)
{
    if (map->size == 0 || (2 * (map->count + 1) > map->size && !grow_map(map)))
        return;
    size_t at = find(map->keys, map->size, from->id);
    map->count += map->keys[at] == 0;
    map->keys[at] = from->id;
    map->ids[at] = to.id;
}

hlo_val hlo__map_get(const hlo_map *map, const hlo_value *from)
{
    uint32_t id = map->size == 0 ? 0 : map->ids[find(map->keys, map->size, from->id)];
    return id == 0 ? (hlo_val){0} : (hlo_val){id, map->graph->serial};
}

hlo_node *hlo__clone_node(hlo_graph *g, const hlo_node *node, const hlo_val *in)
{
    hlo_shape *shapes = hlo__alloc(g, (size_t)(node->n_out + 1) * sizeof *shapes);
    if (shapes == NULL)
        return NULL;
    for (int i = 0; i < node->n_out; i++)
        shapes[i] = node->out[i]->shape;
    const char *scope = g->scope;
    g->scope = node->scope;
    hlo_node *copy =
        hlo__add_region_op(g, node->op, in, node->n_in, shapes, node->n_out, node->attrs,
                           node->attrs_size, node->regions, node->n_regions);
    g->scope = scope;
    return copy;
}

bool hlo__clone_mapped(hlo_graph *g, const hlo_node *node, hlo_map *map)
{
    hlo_val few[8], *in = few;
    if (node->n_in > 8)
        in = hlo__alloc(g, (size_t)node->n_in * sizeof *in);
    if (in == NULL)
        return false;
    for (int i = 0; i < node->n_in; i++)
        in[i] = hlo__map_get(map, node->in[i]);
    hlo_node *copy = hlo__clone_node(g, node, in);
    for (int i = 0; copy != NULL && i < node->n_out; i++)
        hlo__map_set(map, node->out[i], hlo__out(copy, i));
    return copy != NULL && !hlo__failed(g);
}

void hlo__inline_mapped(hlo_graph *g, const hlo_block *block, const hlo_val *args, hlo_map *map,
                        hlo_val *results)
{
    for (int i = 0; i < block->n_params; i++)
        hlo__map_set(map, block->params[i], args[i]);
    for (int i = 0; i < block->n_nodes && !hlo__failed(g); i++)
        hlo__clone_mapped(g, block->nodes[i], map);
    for (int i = 0; i < block->n_results; i++)
        results[i] = hlo__failed(g) ? (hlo_val){0} : hlo__map_get(map, block->results[i]);
}

void hlo__inline(hlo_graph *g, const hlo_block *block, const hlo_val *args, hlo_val *results)
{
    hlo_map map;
    if (hlo__map_init(g, &map))
        hlo__inline_mapped(g, block, args, &map, results);
    hlo__map_free(&map);
}
