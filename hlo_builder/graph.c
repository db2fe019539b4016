/* The graph itself: memory, errors, scopes, values, nodes and the merging of equal ones. */
#include "hlo_builder/graph.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- memory ---- */

/* Bytes of the arena that are asked for at once. Builds with sanitizers set it to 1: then every
 * allocation has bounds that they watch, and can fail by itself. */
#ifndef HLO_CHUNK
#define HLO_CHUNK (1 << 18)
#endif
enum { CHUNK = HLO_CHUNK, ALIGN = 16 };

struct hlo_chunk {
    struct hlo_chunk *next;
    size_t used, size;
    _Alignas(ALIGN) char bytes[];
};

void *hlo__alloc(hlo_graph *g, size_t size)
{
    if (hlo__failed(g))
        return NULL;
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    hlo_chunk *chunk = g->chunks;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        size_t room = size > CHUNK ? size : CHUNK;
        chunk = malloc(sizeof *chunk + room);
        if (chunk == NULL) {
            hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
            return NULL;
        }
        chunk->next = g->chunks;
        chunk->used = 0;
        chunk->size = room;
        g->chunks = chunk;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += size;
    return memset(memory, 0, size);
}

void *hlo__copy(hlo_graph *g, const void *bytes, size_t size)
{
    void *copy = hlo__alloc(g, size);
    if (copy != NULL && size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

void *hlo__room(hlo_graph *g, void *list, int n, int *capacity, size_t item_size)
{
    if (n < *capacity)
        return list;
    int larger = *capacity == 0 ? 8 : 2 * *capacity;
    void *copy = hlo__alloc(g, (size_t)larger * item_size);
    if (copy == NULL)
        return NULL;
    if (n > 0)
        memcpy(copy, list, (size_t)n * item_size);
    *capacity = larger;
    return copy;
}

bool hlo__grow(hlo_graph *g, void **items, size_t *capacity, size_t item_size, size_t needed)
{
    if (needed <= *capacity)
        return !hlo__failed(g);
    size_t larger = *capacity == 0 ? 64 : *capacity;
    while (larger < needed)
        larger *= 2;
    void *moved = hlo__failed(g) ? NULL : realloc(*items, larger * item_size);
    if (moved == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
        return false;
    }
    *items = moved;
    *capacity = larger;
    return true;
}

uint64_t hlo__hash(const void *bytes, size_t size, uint64_t hash)
{
    const unsigned char *at = bytes;
    while (size >= 8) { /* multiply and fold, eight bytes at a time */
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
        at += 8;
        size -= 8;
    }
    for (; size > 0; size--)
        hash = (hash ^ *at++) * 0x100000001b3;
    return hash ^ hash >> 32;
}

/* Open addressing; `equal` decides between entries of one hash. Returns the slot to read or fill.
 */
void **hlo__table_slot(hlo_graph *g, hlo_table *table, uint64_t hash,
                       bool (*equal)(const void *entry, const void *key), const void *key)
{
    if (2 * (table->count + 1) > table->size) {
        size_t size = table->size == 0 ? 256 : 2 * table->size;
        hlo_table larger = {calloc(size, sizeof *larger.slots), size, table->count};
        if (larger.slots == NULL) {
            hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
            return NULL;
        }
        for (size_t i = 0; i < table->size; i++) {
            if (table->slots[i].entry == NULL)
                continue;
            size_t at = table->slots[i].hash & (size - 1);
            while (larger.slots[at].entry != NULL)
                at = (at + 1) & (size - 1);
            larger.slots[at] = table->slots[i];
        }
        free(table->slots);
        *table = larger;
    }
    size_t at = hash & (table->size - 1);
    while (table->slots[at].entry != NULL &&
           (table->slots[at].hash != hash || !equal(table->slots[at].entry, key)))
        at = (at + 1) & (table->size - 1);
    table->slots[at].hash = hash;
    return &table->slots[at].entry;
}

static bool same_text(const void *entry, const void *key)
{
    return strcmp(entry, key) == 0;
}

const char *hlo__intern(hlo_graph *g, const char *text)
{
    size_t length = strlen(text);
    void **slot = hlo__failed(g)
                      ? NULL
                      : hlo__table_slot(g, &g->texts, hlo__hash(text, length, 1), same_text, text);
    if (slot == NULL)
        return "";
    if (*slot == NULL) {
        *slot = hlo__copy(g, text, length + 1);
        if (*slot == NULL)
            return "";
        g->texts.count++;
    }
    return *slot;
}

/* ---- life and errors ---- */

hlo_graph *hlo_graph_new(const char *name)
{
    static atomic_uint serial;
    hlo_graph *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->serial = atomic_fetch_add(&serial, 1) + 1;
    g->name = hlo__intern(g, name);
    g->scope = hlo__intern(g, "");
    g->main = g->current = hlo__alloc(g, sizeof *g->main);
    if (hlo__failed(g)) {
        hlo_graph_free(g);
        return NULL;
    }
    g->main->graph = g;
    return g;
}

void hlo_graph_free(hlo_graph *g)
{
    if (g == NULL)
        return;
    for (hlo_block *block = g->blocks; block != NULL; block = block->next_in_graph)
        free(block->nodes);
    if (g->main != NULL)
        free(g->main->nodes);
    for (hlo_chunk *chunk = g->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(g->values);
    free(g->params);
    free(g->results);
    free(g->scopes);
    free(g->texts.slots);
    free(g->nodes.slots);
    free(g);
}

const hlo_error *hlo_graph_error(const hlo_graph *g)
{
    return hlo__failed(g) ? &g->error : NULL;
}

bool hlo__failed(const hlo_graph *g)
{
    return g->error.code != 0;
}

static void fail(hlo_graph *g, hlo_error_code code, const char *op, const char *operands,
                 const char *format, va_list args)
{
    if (hlo__failed(g))
        return;
    char words[320];
    vsnprintf(words, sizeof words, format, args);
    g->error.code = code;
    /* g->scope may not be there yet when the graph itself could not be made. */
    const char *scope = g->scope == NULL ? "" : g->scope;
    snprintf(g->error.message, sizeof g->error.message, "%s%s%s%s%s%s", scope,
             scope[0] == '\0' ? "" : ": ", op, op[0] == '\0' ? "" : ": ", words, operands);
}

void hlo_fail(hlo_graph *g, hlo_error_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(g, code, "", "", format, args);
    va_end(args);
}

void hlo__fail_op(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in, const char *format, ...)
{
    char operands[160] = "", text[HLO_SHAPE_TEXT];
    size_t used = 0;
    for (int i = 0; i < n_in && i < 4; i++) {
        const hlo_shape *shape = hlo_shape_of(g, in[i]);
        used += (size_t)snprintf(operands + used, sizeof operands - used, "%s%.32s",
                                 i == 0 ? " (" : ", ", hlo_shape_text(shape, text));
    }
    if (n_in > 0)
        snprintf(operands + used, sizeof operands - used, n_in > 4 ? ", …)" : ")");
    va_list args;
    va_start(args, format);
    fail(g, HLO_ERROR_SHAPE, hlo__op_name(op), operands, format, args);
    va_end(args);
}

const char *hlo__op_name(hlo_op op)
{
    static const char *const names[HLO_NUM_OPS] = {[HLO_OP_NONE] = "",
#define OP_NAME(name, spelling) [HLO_OP_##name] = spelling,
                                                   HLO_UNARY_OPS(OP_NAME) HLO_BINARY_OPS(OP_NAME)
                                                       HLO_OTHER_OPS(OP_NAME)
#undef OP_NAME
    };
    return op > HLO_OP_NONE && op < HLO_NUM_OPS ? names[op] : "?";
}

size_t hlo_graph_num_ops(const hlo_graph *g)
{
    return g->n_nodes;
}

uint32_t hlo__new_mark(hlo_graph *g)
{
    return ++g->mark;
}

const char *hlo__graph_name(const hlo_graph *g)
{
    return g->name;
}

/* ---- scopes ---- */

void hlo_scope_push(hlo_graph *g, const char *format, ...)
{
    char name[128], path[512];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    void *scopes = g->scopes;
    bool ok = hlo__grow(g, &scopes, &g->cap_scopes, sizeof *g->scopes, g->n_scopes + 1);
    g->scopes = scopes;
    if (!ok)
        return;
    g->scopes[g->n_scopes++] = g->scope;
    int n = snprintf(path, sizeof path, "%s%s%s", g->scope, g->scope[0] == '\0' ? "" : "/", name);
    (void)n; /* a path of more than 500 characters loses its end */
    g->scope = hlo__intern(g, path);
}

void hlo_scope_pop(hlo_graph *g)
{
    if (hlo__failed(g))
        return;
    if (g->n_scopes == 0)
        hlo_fail(g, HLO_ERROR_VALUE, "scope_pop: no scope is open");
    else
        g->scope = g->scopes[--g->n_scopes];
}

/* ---- values ---- */

hlo_val hlo__handle(const hlo_graph *g, const hlo_value *v)
{
    return v == NULL ? (hlo_val){0} : (hlo_val){v->id, g->serial};
}

/* The value if the handle is this graph's at all. */
static hlo_value *lookup(const hlo_graph *g, hlo_val v)
{
    return v.graph == g->serial && v.id > 0 && v.id <= g->n_values ? g->values[v.id - 1] : NULL;
}

static bool visible(const hlo_graph *g, const hlo_value *v)
{
    for (const hlo_block *b = g->current; b != NULL; b = b->parent) {
        if (v->node->block == b)
            return true;
    }
    return false;
}

bool hlo__values(hlo_graph *g, hlo_op op, const hlo_val *v, int n, hlo_value **out)
{
    for (int i = 0; i < n; i++) {
        if (hlo__failed(g))
            return false;
        out[i] = lookup(g, v[i]);
        const char *wrong = NULL;
        if (v[i].id == 0)
            wrong = "null";
        else if (out[i] == NULL)
            wrong = "not of this graph";
        else if (!visible(g, out[i]))
            wrong = "from inside a body, and cannot be used outside it";
        if (wrong != NULL) {
            hlo_fail(g, HLO_ERROR_VALUE, "%s: operand %d is %s", hlo__op_name(op), i, wrong);
            return false;
        }
    }
    return !hlo__failed(g);
}

hlo_value *hlo__value(hlo_graph *g, hlo_val v)
{
    hlo_value *value;
    return hlo__values(g, HLO_OP_NONE, &v, 1, &value) ? value : NULL;
}

const hlo_shape *hlo_shape_of(const hlo_graph *g, hlo_val v)
{
    static const hlo_shape none = {0};
    const hlo_value *value = lookup(g, v);
    return value == NULL ? &none : &value->shape;
}

hlo_type hlo_type_of(const hlo_graph *g, hlo_val v)
{
    return hlo_shape_of(g, v)->type;
}

int hlo_rank(const hlo_graph *g, hlo_val v)
{
    return hlo_shape_of(g, v)->rank;
}

int64_t hlo_dim(const hlo_graph *g, hlo_val v, int dim)
{
    const hlo_shape *shape = hlo_shape_of(g, v);
    if (dim < 0)
        dim += shape->rank;
    return dim >= 0 && dim < shape->rank ? shape->dims[dim] : 0;
}

hlo_val hlo__out(const hlo_node *node, int index)
{
    return node == NULL || index >= node->n_out ? (hlo_val){0}
                                                : hlo__handle(node->block->graph, node->out[index]);
}

hlo_value *hlo__new_value(hlo_graph *g, hlo_node *node, int index, const hlo_shape *shape)
{
    hlo_value *value = hlo__alloc(g, sizeof *value);
    void *values = g->values;
    bool ok =
        value != NULL && hlo__grow(g, &values, &g->cap_values, sizeof *g->values, g->n_values + 1);
    g->values = values;
    if (!ok)
        return NULL;
    value->node = node;
    value->index = index;
    value->shape = *shape;
    g->values[g->n_values++] = value;
    value->id = (uint32_t)g->n_values;
    return value;
}

/* ---- nodes ---- */

static bool mergeable(const hlo_node *n)
{
    if (n->n_regions > 0)
        return false;
    switch (n->op) {
    case HLO_OP_PARAM:
    case HLO_OP_BARRIER: /* exists to keep things apart */
    case HLO_OP_CUSTOM_CALL:
        return false;
    case HLO_OP_CONSTANT:
        return ((const hlo_constant_attrs *)n->attrs)->splat;
    default:
        return true;
    }
}

static bool same_node(const void *entry, const void *key)
{
    const hlo_node *a = entry, *b = key;
    return a->op == b->op && a->block == b->block && a->n_in == b->n_in && a->n_out == b->n_out &&
           a->attrs_size == b->attrs_size &&
           memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) == 0 &&
           (a->attrs_size == 0 || memcmp(a->attrs, b->attrs, a->attrs_size) == 0) &&
           hlo_shape_equal(&a->out[0]->shape, &b->out[0]->shape);
}

static uint64_t hash_node(const hlo_node *n, const hlo_shape *shape)
{
    uint64_t hash = hlo__hash(&n->op, sizeof n->op, (uintptr_t)n->block);
    hash = hlo__hash(n->in, (size_t)n->n_in * sizeof *n->in, hash);
    hash = hlo__hash(n->attrs, n->attrs_size, hash);
    hash = hlo__hash(&shape->type, sizeof shape->type, hash);
    return hlo__hash(shape->dims, (size_t)shape->rank * sizeof *shape->dims, hash);
}

bool hlo__block_append(hlo_graph *g, hlo_block *block, hlo_node *node)
{
    void *nodes = block->nodes;
    size_t capacity = (size_t)block->cap_nodes;
    bool ok = hlo__grow(g, &nodes, &capacity, sizeof *block->nodes, (size_t)block->n_nodes + 1);
    block->nodes = nodes;
    block->cap_nodes = (int)capacity;
    if (!ok)
        return false;
    node->position = block->n_nodes;
    block->nodes[block->n_nodes++] = node;
    g->n_nodes++;
    return true;
}

/* A node equal to `probe` that stands before, or NULL; remembers `probe` for next time. */
static hlo_node *merge(hlo_graph *g, hlo_node *probe)
{
    void **slot =
        hlo__table_slot(g, &g->nodes, hash_node(probe, &probe->out[0]->shape), same_node, probe);
    if (slot == NULL || *slot != NULL)
        return slot == NULL ? NULL : *slot;
    *slot = probe;
    g->nodes.count++;
    return NULL;
}

static hlo_node *add(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in, const hlo_shape *shapes,
                     int n_out, const void *attrs, size_t attrs_size, hlo_block **regions,
                     int n_regions)
{
    hlo_node *node = hlo__alloc(g, sizeof *node);
    hlo_value **operands = hlo__alloc(g, (size_t)(n_in + 1) * sizeof *operands);
    if (operands == NULL || !hlo__values(g, op, in, n_in, operands))
        return NULL;
    node->op = op;
    node->n_in = n_in;
    node->in = operands;
    node->n_out = n_out;
    node->n_regions = n_regions;
    node->block = g->current;
    node->scope = g->scope;
    node->attrs = attrs_size == 0 ? NULL : hlo__copy(g, attrs, attrs_size);
    node->attrs_size = attrs_size;
    node->regions =
        n_regions == 0 ? NULL : hlo__copy(g, regions, (size_t)n_regions * sizeof *regions);
    node->out = hlo__alloc(g, (size_t)(n_out + 1) * sizeof *node->out);
    if (hlo__failed(g))
        return NULL;
    if (mergeable(node)) {
        /* Compared before its values exist, so that a merged node costs no handle. */
        hlo_value probe = {.node = node, .shape = shapes[0]};
        node->out[0] = &probe;
        hlo_node *equal = merge(g, node);
        if (equal != NULL || hlo__failed(g))
            return equal;
    }
    for (int i = 0; i < n_out; i++)
        node->out[i] = hlo__new_value(g, node, i, &shapes[i]);
    return !hlo__failed(g) && hlo__block_append(g, g->current, node) ? node : NULL;
}

hlo_node *hlo__add(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in, const hlo_shape *shapes,
                   int n_out, const void *attrs, size_t attrs_size)
{
    return hlo__failed(g) ? NULL : add(g, op, in, n_in, shapes, n_out, attrs, attrs_size, NULL, 0);
}

hlo_val hlo__add1(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in, hlo_shape shape,
                  const void *attrs, size_t attrs_size)
{
    return hlo__out(hlo__add(g, op, in, n_in, &shape, 1, attrs, attrs_size), 0);
}

hlo_node *hlo__add_region_op(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in,
                             const hlo_shape *shapes, int n_out, const void *attrs,
                             size_t attrs_size, hlo_block **regions, int n_regions)
{
    return hlo__failed(g)
               ? NULL
               : add(g, op, in, n_in, shapes, n_out, attrs, attrs_size, regions, n_regions);
}

bool hlo__append_outs(hlo_graph *g, hlo_node *node, const hlo_shape *shapes, int n)
{
    hlo_value **out = hlo__alloc(g, (size_t)(node->n_out + n + 1) * sizeof *out);
    if (out == NULL)
        return false;
    memcpy(out, node->out, (size_t)node->n_out * sizeof *out);
    for (int i = 0; i < n; i++) {
        out[node->n_out + i] = hlo__new_value(g, node, node->n_out + i, &shapes[i]);
        if (out[node->n_out + i] == NULL)
            return false;
    }
    node->out = out;
    node->n_out += n;
    return true;
}

void hlo_set_f32_gradient_sums(hlo_graph *g, bool on)
{
    g->f32_gradient_sums = on;
}

hlo_type hlo__gradient_sum_type(const hlo_graph *g, hlo_type type)
{
    return g->f32_gradient_sums && (type == HLO_BF16 || type == HLO_F16) ? HLO_F32 : type;
}

/* ---- arguments and results ---- */

static hlo_io *add_io(hlo_graph *g, hlo_io **list, size_t *n, size_t *capacity, const char *name,
                      hlo_value *value)
{
    void *items = *list;
    bool ok = hlo__grow(g, &items, capacity, sizeof **list, *n + 1);
    *list = items;
    if (!ok)
        return NULL;
    hlo_io *io = &(*list)[(*n)++];
    *io = (hlo_io){.name = hlo__intern(g, name), .value = value, .alias = -1};
    return io;
}

hlo_val hlo_param(hlo_graph *g, const char *name, hlo_shape shape)
{
    if (hlo__failed(g))
        return (hlo_val){0};
    if (g->current != g->main) {
        hlo_fail(g, HLO_ERROR_VALUE, "param \"%s\": parameters belong to @main, not into a body",
                 name);
        return (hlo_val){0};
    }
    if (!hlo__shape_ok(&shape)) {
        hlo_fail(g, HLO_ERROR_SHAPE, "param \"%s\": not a shape", name);
        return (hlo_val){0};
    }
    hlo_val v = hlo__block_param(g, shape);
    hlo_value *value = hlo__failed(g) ? NULL : lookup(g, v);
    if (value != NULL)
        add_io(g, &g->params, &g->n_params, &g->cap_params, name, value);
    return hlo__failed(g) ? (hlo_val){0} : v;
}

void hlo_result(hlo_graph *g, const char *name, hlo_val v)
{
    hlo_value *value = hlo__failed(g) ? NULL : hlo__value(g, v);
    if (value == NULL)
        return;
    if (value->node->block != g->main)
        hlo_fail(g, HLO_ERROR_VALUE, "result \"%s\": it is from inside a body", name);
    else
        add_io(g, &g->results, &g->n_results, &g->cap_results, name, value);
}

static hlo_io *find_param(hlo_graph *g, hlo_val param, const char *what)
{
    for (size_t i = 0; i < g->n_params && !hlo__failed(g); i++) {
        if (g->params[i].value == lookup(g, param))
            return &g->params[i];
    }
    hlo_fail(g, HLO_ERROR_VALUE, "%s: that is no parameter of @main", what);
    return NULL;
}

void hlo_donate(hlo_graph *g, hlo_val param, int result)
{
    hlo_io *io = hlo__failed(g) ? NULL : find_param(g, param, "donate");
    if (io == NULL)
        return;
    if (result < 0 || (size_t)result >= g->n_results)
        hlo_fail(g, HLO_ERROR_VALUE, "donate: there is no result %d yet", result);
    else if (!hlo_shape_equal(&io->value->shape, &g->results[result].value->shape))
        hlo_fail(g, HLO_ERROR_SHAPE, "donate: parameter \"%s\" and result \"%s\" differ in shape",
                 io->name, g->results[result].name);
    else
        io->alias = result;
}

void hlo__set_param_spec(hlo_graph *g, hlo_val param, const hlo_spec *spec)
{
    hlo_io *io = hlo__failed(g) ? NULL : find_param(g, param, "shard_param");
    if (io != NULL) {
        io->spec = *spec;
        io->sharded = true;
    }
}

void hlo__set_result_spec(hlo_graph *g, int result, const hlo_spec *spec)
{
    if (hlo__failed(g))
        return;
    if (result < 0 || (size_t)result >= g->n_results) {
        hlo_fail(g, HLO_ERROR_VALUE, "shard_result: there is no result %d yet", result);
        return;
    }
    g->results[result].spec = *spec;
    g->results[result].sharded = true;
}

const hlo_io *hlo__io_params(const hlo_graph *g, int *n)
{
    *n = (int)g->n_params;
    return g->params;
}

const hlo_io *hlo__io_results(const hlo_graph *g, int *n)
{
    *n = (int)g->n_results;
    return g->results;
}
