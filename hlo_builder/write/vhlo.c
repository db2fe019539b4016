/*
 * The graph as a portable artifact: MLIR bytecode in VHLO, made from the lowered copy in one pass.
 *
 * It has the same operations in the same order as the text, and reads back as the same module.
 */
#include "hlo_builder/write/vhlo.h"
#include "hlo_builder/graph.h"

#include <stdio.h>
#include <stdlib.h>

/* Of StableHLO 1.x: the first and the last whose operations are known here. */
enum { OLDEST_MINOR = 0, NEWEST_MINOR = 17 };

/* ---- operations ---- */

uint32_t *hlo__list(hlo_portable *p, size_t n)
{
    void *list = p->list;
    bool ok = hlo__grow(p->g, &list, &p->cap_list, sizeof *p->list, n + 1);
    p->list = list;
    return ok ? p->list : NULL;
}

static void put_numbers(hlo_text *t, const uint32_t *numbers, int n)
{
    hlo__put_varint(t, (uint64_t)n);
    for (int i = 0; i < n; i++)
        hlo__put_varint(t, numbers[i]);
}

static uint32_t properties(hlo_portable *p, const uint32_t *attrs, int n)
{
    p->scratch.size = 0;
    for (int i = 0; i < n; i++)
        hlo__put_varint(&p->scratch, attrs[i]);
    return hlo__bytecode_properties(&p->bytecode, &p->scratch);
}

void hlo__put_op(hlo_portable *p, const hlo_portable_op *op)
{
    enum { DICTIONARY = 1, RESULTS = 2, OPERANDS = 4, REGIONS = 16, PROPERTIES = 64 };
    hlo_text *t = &p->ir;
    hlo__put_varint(t, hlo__bytecode_op(&p->bytecode, op->dialect, op->name));
    hlo__put_byte(
        t, (unsigned char)((op->dictionary != 0 ? DICTIONARY : 0) |
                           (op->n_results > 0 ? RESULTS : 0) | (op->n_operands > 0 ? OPERANDS : 0) |
                           (op->n_regions > 0 ? REGIONS : 0) | (op->n_attrs > 0 ? PROPERTIES : 0)));
    hlo__put_varint(t, op->location);
    if (op->dictionary != 0)
        hlo__put_varint(t, op->dictionary - 1);
    if (op->n_attrs > 0)
        hlo__put_varint(t, properties(p, op->attrs, op->n_attrs));
    if (op->n_results > 0)
        put_numbers(t, op->types, op->n_results);
    if (op->n_operands > 0)
        put_numbers(t, op->operands, op->n_operands);
    if (op->n_regions > 0)
        hlo__put_varint(t, (uint64_t)op->n_regions << 1 | op->isolated);
    p->next += (uint32_t)op->n_results;
}

uint32_t hlo__node_location(hlo_portable *p, const hlo_node *node)
{
    if (p->options.no_locations || node->scope[0] == '\0')
        return p->unknown_location;
    if (node->scope != p->scope) {
        p->scope = node->scope;
        p->scope_location = hlo__named_location(p, node->scope);
    }
    return p->scope_location;
}

void hlo__put_node_op(hlo_portable *p, const hlo_node *node, hlo_portable_op op)
{
    uint32_t *types = hlo__list(p, (size_t)node->n_out + (size_t)op.n_operands);
    if (types == NULL)
        return;
    uint32_t *operands = types + node->n_out;
    for (int i = 0; i < node->n_out; i++) {
        types[i] = hlo__vhlo_type(p, &node->out[i]->shape);
        p->numbers[node->out[i]->id] = p->next + (uint32_t)i;
    }
    for (int i = 0; i < op.n_operands; i++)
        operands[i] = p->numbers[node->in[i]->id];
    op.dialect = "vhlo";
    op.location = hlo__node_location(p, node);
    op.types = types;
    op.n_results = node->n_out;
    op.operands = operands;
    hlo__put_op(p, &op);
}

void hlo__put_node(hlo_portable *p, const hlo_node *node, const char *name, const uint32_t *attrs,
                   int n_attrs)
{
    hlo_portable_op op = {
        .name = name, .attrs = attrs, .n_attrs = n_attrs, .n_operands = node->n_in};
    hlo__put_node_op(p, node, op);
}

void hlo__put_return(hlo_portable *p, const char *dialect, const char *name,
                     const uint32_t *operands, int n)
{
    hlo__put_op(p, &(hlo_portable_op){.dialect = dialect,
                                      .name = name,
                                      .location = p->unknown_location,
                                      .operands = operands,
                                      .n_operands = n});
}

/* ---- regions ---- */

/* The values of a region are numbered on from those of the region around it, all of which have
 * their numbers before any of its own: so how many there are must be known first. */
hlo_portable_region hlo__begin_region(hlo_portable *p, const uint32_t *arg_types, int n_args,
                                      const uint32_t *arg_locations, size_t n_ops, size_t n_values,
                                      bool isolated)
{
    hlo_portable_region around = {p->next, p->end};
    hlo_text *t = &p->ir;
    p->next = isolated ? 0 : p->end;
    p->end = p->next + (uint32_t)n_values;
    hlo__put_varint(t, 1); /* blocks */
    hlo__put_varint(t, n_values);
    hlo__put_varint(t, (uint64_t)n_ops << 1 | (n_args > 0));
    if (n_args > 0) {
        hlo__put_varint(t, (uint64_t)n_args);
        for (int i = 0; i < n_args; i++) {
            bool located = arg_locations != NULL && arg_locations[i] != p->unknown_location;
            hlo__put_varint(t, (uint64_t)arg_types[i] << 1 | located);
            if (located)
                hlo__put_varint(t, arg_locations[i]);
        }
        hlo__put_byte(t, 0); /* uses are in their natural order */
    }
    p->next += (uint32_t)n_args;
    return around;
}

void hlo__end_region(hlo_portable *p, hlo_portable_region around)
{
    if (p->next != p->end) /* the file would be nonsense */
        hlo_fail(p->g, HLO_ERROR_UNSUPPORTED, "write: %u values instead of %u in a region", p->next,
                 p->end);
    p->next = around.next;
    p->end = around.end;
}

void hlo__measure_block(const hlo_portable *p, const hlo_block *block, size_t *ops, size_t *values)
{
    *ops = 1; /* the return */
    *values = 0;
    for (int i = 0; i < block->n_nodes; i++) {
        size_t node_ops, node_values;
        hlo__measure_node(p, block->nodes[i], &node_ops, &node_values);
        *ops += node_ops;
        *values += node_values;
    }
}

void hlo__put_nodes(hlo_portable *p, const hlo_block *block)
{
    for (int i = 0; i < block->n_nodes && !hlo__failed(p->g); i++)
        hlo__put_portable_op(p, block->nodes[i]);
}

static void put_block_return(hlo_portable *p, const hlo_block *block)
{
    uint32_t *operands = hlo__list(p, (size_t)block->n_results);
    if (operands == NULL)
        return;
    for (int i = 0; i < block->n_results; i++)
        operands[i] = p->numbers[block->results[i]->id];
    hlo__put_return(p, "vhlo", "return_v1", operands, block->n_results);
}

/* A block with arguments of its own; `locations` may be NULL. */
static void put_block(hlo_portable *p, const hlo_block *block, const uint32_t *locations,
                      bool isolated)
{
    size_t ops, values, n = (size_t)block->n_params;
    uint32_t *types = hlo__list(p, n);
    if (types == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        types[i] = hlo__vhlo_type(p, &block->params[i]->shape);
    hlo__measure_block(p, block, &ops, &values);
    hlo_portable_region around =
        hlo__begin_region(p, types, block->n_params, locations, ops, n + values, isolated);
    for (size_t i = 0; i < n; i++)
        p->numbers[block->params[i]->id] = p->next - (uint32_t)(n - i);
    hlo__put_nodes(p, block);
    put_block_return(p, block);
    hlo__end_region(p, around);
}

void hlo__put_region(hlo_portable *p, const hlo_block *block, hlo_value *const *args)
{
    size_t ops, values;
    if (args == NULL) {
        put_block(p, block, NULL, false);
        return;
    }
    for (int i = 0; i < block->n_params; i++)
        p->numbers[block->params[i]->id] = p->numbers[args[i]->id];
    hlo__measure_block(p, block, &ops, &values);
    hlo_portable_region around = hlo__begin_region(p, NULL, 0, NULL, ops, values, false);
    hlo__put_nodes(p, block);
    put_block_return(p, block);
    hlo__end_region(p, around);
}

/* ---- functions ---- */

/* An array of dictionaries, one an argument or result; empty when all of them are. */
static uint32_t io_attrs(hlo_portable *p, const hlo_io *io, int n, bool is_result)
{
    uint32_t *attrs = hlo__list(p, (size_t)n);
    bool any = false;
    for (int i = 0; i < n && attrs != NULL; i++) {
        uint32_t pairs[3][2];
        size_t n_pairs = 0;
        int rank = io[i].value->shape.rank;
        if (is_result) {
            pairs[n_pairs][0] = hlo__vhlo_string(p, "jax.result_info");
            pairs[n_pairs++][1] = hlo__vhlo_string(p, io[i].name);
        }
        if (io[i].sharded) {
            bool gspmd = p->options.gspmd;
            pairs[n_pairs][0] = hlo__vhlo_string(p, gspmd ? "mhlo.sharding" : "sdy.sharding");
            pairs[n_pairs++][1] = gspmd ? hlo__gspmd_sharding(p, &io[i].spec, rank)
                                        : hlo__sdy_sharding(p, &io[i].spec, rank);
        }
        if (!is_result && io[i].alias >= 0) {
            pairs[n_pairs][0] = hlo__vhlo_string(p, "tf.aliasing_output");
            pairs[n_pairs++][1] = hlo__vhlo_int(p, HLO_S32, io[i].alias);
        }
        attrs[i] = hlo__vhlo_dict(p, pairs, n_pairs);
        any = any || n_pairs > 0;
    }
    return hlo__vhlo_array(p, attrs, any ? (size_t)n : 0);
}

/* The body is a section of its own, of a length that comes first: it is written aside. */
static void put_function(hlo_portable *p, const char *name, bool is_main, const hlo_block *block)
{
    int n_params = 0, n_results = 0;
    const hlo_io *params = is_main ? hlo__io_params(p->g, &n_params) : NULL;
    const hlo_io *results = is_main ? hlo__io_results(p->g, &n_results) : NULL;
    uint32_t attrs[5];
    attrs[0] = io_attrs(p, params, n_params, false);
    attrs[1] = hlo__vhlo_type_attr(p, hlo__vhlo_function_type(p, block));
    attrs[2] = io_attrs(p, results, n_results, true);
    attrs[3] = hlo__vhlo_string(p, name);
    attrs[4] = hlo__vhlo_string(p, is_main ? "public" : "private");
    hlo__put_op(p, &(hlo_portable_op){.dialect = "vhlo",
                                      .name = "func_v1",
                                      .location = p->unknown_location,
                                      .attrs = attrs,
                                      .n_attrs = 5,
                                      .n_regions = 1,
                                      .isolated = true});
    uint32_t *locations = NULL;
    if (is_main && !p->options.no_locations && n_params > 0) {
        locations = hlo__alloc(p->g, (size_t)n_params * sizeof *locations);
        for (int i = 0; i < n_params && locations != NULL; i++)
            locations[i] = hlo__named_location(p, params[i].name);
    }
    if (hlo__failed(p->g))
        return;
    hlo_text around = p->ir;
    p->ir = (hlo_text){0};
    put_block(p, block, locations, true);
    hlo_text body = p->ir;
    p->ir = around;
    hlo__put_section(&p->ir, HLO_SECTION_IR, &body);
    hlo__text_free(&body);
}

/* ---- the module ---- */

static void put_mesh(hlo_portable *p)
{
    hlo__put_str(&p->texts, "#sdy.mesh");
    hlo__put_mesh(&p->texts);
    uint32_t attrs[2] = {hlo__sdy_attr(p), hlo__builtin_string(p, "mesh")};
    hlo__put_op(p, &(hlo_portable_op){.dialect = "sdy",
                                      .name = "mesh",
                                      .location = p->unknown_location,
                                      .attrs = attrs,
                                      .n_attrs = 2});
}

/* The functions, @main first, and how many there are with the mesh. */
static size_t put_module_body(hlo_portable *p, const hlo_block *block)
{
    const hlo_mesh_info *mesh = hlo__mesh(p->g);
    bool has_mesh = mesh->n > 0 && !p->options.gspmd;
    hlo_writer *w = &p->texts;
    if (has_mesh)
        put_mesh(p);
    put_function(p, "main", true, block);
    for (size_t i = 0; i < w->n_functions && !hlo__failed(p->g); i++) /* it grows on the way */
        put_function(p, w->function_names[i], false, w->functions[i]);
    return w->n_functions + 1 + has_mesh;
}

static void put_module(hlo_portable *p, const hlo_block *block)
{
    const hlo_mesh_info *mesh = hlo__mesh(p->g);
    const char *name = hlo__graph_name(p->g);
    uint32_t dictionary = 0;
    if (mesh->n > 0) {
        int64_t devices = 1;
        for (int i = 0; i < mesh->n; i++)
            devices *= mesh->sizes[i];
        uint32_t pairs[2][2];
        pairs[0][0] = hlo__builtin_string(p, "mhlo.num_partitions");
        pairs[0][1] = hlo__builtin_int(p, HLO_S32, devices);
        pairs[1][0] = hlo__builtin_string(p, "mhlo.num_replicas");
        pairs[1][1] = hlo__builtin_int(p, HLO_S32, 1);
        dictionary = hlo__builtin_dict(p, pairs, 2) + 1;
    }
    size_t n_ops = put_module_body(p, block);
    hlo_text body = p->ir;
    p->ir = (hlo_text){0};
    hlo__end_region(p, hlo__begin_region(p, NULL, 0, NULL, n_ops, 0, true));
    hlo__put_text(&p->ir, &body);
    hlo__text_free(&body);
    body = p->ir;
    p->ir = (hlo_text){0};
    /* Its two properties may be absent: the low bit tells that the name is not. */
    uint32_t symbol = hlo__builtin_string(p, name[0] == '\0' ? "program" : name);
    uint32_t attrs[2] = {symbol << 1 | 1, 0};
    hlo__put_op(p, &(hlo_portable_op){.dialect = "builtin",
                                      .name = "module",
                                      .location = p->unknown_location,
                                      .attrs = attrs,
                                      .n_attrs = 2,
                                      .dictionary = dictionary,
                                      .n_regions = 1,
                                      .isolated = true});
    hlo__put_section(&p->ir, HLO_SECTION_IR, &body);
    hlo__text_free(&body);
}

/* ---- versions ---- */

/* Raises `*minor` to what the nodes of a block need; `*why` is the one that needs most. */
static void raise_version(const hlo_portable *p, const hlo_block *block, uint32_t mark, int *minor,
                          const hlo_node **why)
{
    for (int i = 0; i < block->n_nodes; i++) {
        hlo_node *node = block->nodes[i];
        if (node->mark == mark)
            return; /* a function seen before */
        node->mark = mark;
        int needed = hlo__version_of(node, p->options.gspmd);
        if (needed > *minor) {
            *minor = needed;
            *why = node;
        }
        for (int k = 0; k < node->n_regions; k++)
            raise_version(p, node->regions[k], mark, minor, why);
    }
}

static bool choose_version(hlo_portable *p, const hlo_block *block, char producer[64])
{
    enum { OTHER_DIALECTS = 11 };
    const int *asked = p->options.version;
    const hlo_node *why = NULL;
    const hlo_mesh_info *mesh = hlo__mesh(p->g);
    int needed = mesh->n > 0 && !p->options.gspmd ? OTHER_DIALECTS : OLDEST_MINOR;
    raise_version(p, block, hlo__new_mark(p->g), &needed, &why);
    bool any = asked[0] == 0 && asked[1] == 0 && asked[2] == 0;
    p->minor = any ? needed : asked[1];
    if (!any &&
        (asked[0] != 1 || asked[1] < OLDEST_MINOR || asked[1] > NEWEST_MINOR || asked[2] < 0)) {
        hlo_fail(p->g, HLO_ERROR_UNSUPPORTED,
                 "write: no portable form of StableHLO %d.%d.%d: 1.%d.0 to 1.%d are known",
                 asked[0], asked[1], asked[2], OLDEST_MINOR, NEWEST_MINOR);
    } else if (p->minor < needed) {
        hlo_fail(
            p->g, HLO_ERROR_UNSUPPORTED,
            "write: %s%s%s has no portable form before StableHLO 1.%d.0, asked for was 1.%d.%d",
            why != NULL ? why->scope : "", why != NULL && why->scope[0] != '\0' ? ": " : "",
            why != NULL ? hlo__op_name(why->op) : "a sharding", needed, asked[1], asked[2]);
    }
    snprintf(producer, 64, "StableHLO_v1.%d.%d", p->minor, any ? 0 : asked[2]);
    return !hlo__failed(p->g);
}

void hlo_portable_versions(int oldest[3], int newest[3])
{
    memcpy(oldest, (const int[3]){1, OLDEST_MINOR, 0}, 3 * sizeof *oldest);
    memcpy(newest, (const int[3]){1, NEWEST_MINOR, 0}, 3 * sizeof *newest);
}

char *hlo_write_portable(hlo_graph *g, const hlo_portable_options *options, size_t *size)
{
    char producer[64], *file = NULL;
    hlo_block *block = hlo__check_donations(g) ? hlo__lower(g, false) : NULL;
    hlo_portable p = {.g = g, .bytecode.g = g, .texts.g = g};
    if (options != NULL)
        p.options = *options;
    if (block == NULL || !choose_version(&p, block, producer))
        return NULL;
    p.numbers = calloc(g->n_values + 1, sizeof *p.numbers);
    if (p.numbers == NULL)
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
    if (!hlo__failed(g) && hlo__map_init(g, &p.texts.function_of)) {
        p.unknown_location = hlo__unknown_location(&p);
        put_module(&p, block);
    }
    if (!hlo__failed(g))
        file = hlo__bytecode_file(&p.bytecode, producer, &p.ir, size);
    hlo__map_free(&p.texts.function_of);
    hlo__text_free(&p.texts.text);
    free(p.texts.functions);
    free(p.texts.function_names);
    hlo__bytecode_free(&p.bytecode);
    hlo__text_free(&p.scratch);
    hlo__text_free(&p.ir);
    free(p.numbers);
    free(p.list);
    return file;
}
