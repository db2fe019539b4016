/*
 * The graph as StableHLO text: the module, its functions, regions, names and locations.
 *
 * The text is made from the lowered copy in one pass, in order, so the same calls give the same
 * bytes. Pretty forms, one operation a line, are used where every pinned compiler reads them.
 */
#include "hlo_builder/write/write.h"
#include "hlo_builder/graph.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- pieces ---- */

void hlo__put_value(hlo_writer *w, const hlo_value *v)
{
    hlo_name name = w->names[v->id];
    if (name.is_arg)
        PUT(w, "%arg");
    else
        PUT(w, "%");
    hlo__put_int(w, name.number);
    if (name.result >= 0) {
        PUT(w, "#");
        hlo__put_int(w, name.result);
    }
}

void hlo__put_values(hlo_writer *w, hlo_value *const *values, int first, int n)
{
    for (int i = first; i < n; i++) {
        if (i > first)
            PUT(w, ", ");
        hlo__put_value(w, values[i]);
    }
}

void hlo__put_type(hlo_writer *w, const hlo_shape *shape)
{
    PUT(w, "tensor<");
    for (int i = 0; i < shape->rank; i++) {
        hlo__put_int(w, shape->dims[i]);
        PUT(w, "x");
    }
    hlo__put_str(w, hlo_type_name(shape->type));
    PUT(w, ">");
}

void hlo__put_types(hlo_writer *w, hlo_value *const *values, int n)
{
    for (int i = 0; i < n; i++) {
        if (i > 0)
            PUT(w, ", ");
        hlo__put_type(w, &values[i]->shape);
    }
}

static void put_result_types(hlo_writer *w, hlo_value *const *values, int n)
{
    if (n != 1)
        PUT(w, "(");
    hlo__put_types(w, values, n);
    if (n != 1)
        PUT(w, ")");
}

void hlo__put_signature(hlo_writer *w, const hlo_node *node)
{
    /* The regions of a branch read the captured values where they stand: one operand is left. */
    PUT(w, " : (");
    hlo__put_types(w, node->in, node->op == HLO_OP_CASE ? 1 : node->n_in);
    PUT(w, ") -> ");
    put_result_types(w, node->out, node->n_out);
}

void hlo__put_list(hlo_writer *w, const int64_t *numbers, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            PUT(w, ", ");
        hlo__put_int(w, numbers[i]);
    }
}

void hlo__put_dims(hlo_writer *w, const hlo_dims *dims)
{
    PUT(w, "[");
    hlo__put_list(w, dims->d, dims->n);
    PUT(w, "]");
}

void hlo__put_quoted(hlo_writer *w, const char *text)
{
    PUT(w, "\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            hlo__text_printf(&w->text, "\\%02X", c);
        else
            hlo__text_put(&w->text, text, 1);
    }
    PUT(w, "\"");
}

static bool is_identifier(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && strchr("_$.", *name) == NULL)
            return false;
    }
    return true;
}

void hlo__put_symbol(hlo_writer *w, const char *name)
{
    PUT(w, "@");
    if (is_identifier(name))
        hlo__put_str(w, name);
    else
        hlo__put_quoted(w, name);
}

void hlo__new_line(hlo_writer *w)
{
    static const char spaces[] = "                                                                ";
    size_t n = 2 * (size_t)w->depth;
    PUT(w, "\n");
    hlo__text_put(&w->text, spaces, n < sizeof spaces ? n : sizeof spaces - 1);
}

hlo_name hlo__new_name(hlo_writer *w)
{
    return (hlo_name){.number = w->next++, .result = -1};
}

void hlo__begin_op(hlo_writer *w, const hlo_node *node)
{
    if (node->n_out == 0)
        return;
    hlo_name name = hlo__new_name(w);
    PUT(w, "%");
    hlo__put_int(w, name.number);
    if (node->n_out > 1) {
        PUT(w, ":");
        hlo__put_int(w, node->n_out);
    }
    PUT(w, " = ");
    for (int i = 0; i < node->n_out; i++) {
        name.result = node->n_out > 1 ? i : -1;
        w->names[node->out[i]->id] = name;
    }
}

/* ---- locations ---- */

static size_t scope_slot(const uint32_t *slots, size_t size, const char *const *scopes,
                         const char *scope)
{
    size_t at = ((uintptr_t)scope >> 4) * 0x9e3779b1 & (size - 1);
    while (slots[at] != 0 && scopes[slots[at] - 1] != scope)
        at = (at + 1) & (size - 1);
    return at;
}

static bool grow_scopes(hlo_writer *w)
{
    hlo_scope_table *t = &w->scopes;
    void *scopes = t->scopes;
    bool ok = hlo__grow(w->g, &scopes, &t->capacity, sizeof *t->scopes, t->n + 1);
    t->scopes = scopes;
    if (!ok || 2 * (t->n + 1) <= t->size)
        return ok;
    size_t size = t->size == 0 ? 256 : 2 * t->size;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (slots == NULL) {
        hlo_fail(w->g, HLO_ERROR_MEMORY, "out of memory");
        return false;
    }
    for (size_t i = 0; i < t->n; i++)
        slots[scope_slot(slots, size, t->scopes, t->scopes[i])] = (uint32_t)i + 1;
    free(t->slots);
    t->slots = slots;
    t->size = size;
    return true;
}

/* Number of the alias for a scope, from 1. */
static size_t location(hlo_writer *w, const char *scope)
{
    hlo_scope_table *t = &w->scopes;
    if (t->last > 0 && t->scopes[t->last - 1] == scope)
        return t->last;
    if (!grow_scopes(w))
        return 0;
    uint32_t *slot = &t->slots[scope_slot(t->slots, t->size, t->scopes, scope)];
    if (*slot == 0) {
        t->scopes[t->n++] = scope;
        *slot = (uint32_t)t->n;
    }
    t->last = *slot;
    return t->last;
}

static void put_location(hlo_writer *w, const char *scope)
{
    if (w->options.no_locations || scope[0] == '\0')
        return;
    PUT(w, " loc(#loc");
    hlo__put_int(w, (int64_t)location(w, scope));
    PUT(w, ")");
}

static void write_locations(hlo_writer *w)
{
    for (size_t i = 0; i < w->scopes.n; i++) {
        PUT(w, "#loc");
        hlo__put_int(w, (int64_t)i + 1);
        PUT(w, " = loc(");
        hlo__put_quoted(w, w->scopes.scopes[i]);
        PUT(w, ")\n");
    }
}

/* A comment where the text moves on to another part of the model. Constants stand where they are
 * needed first or where a region begins, and say nothing. */
static void put_scope_comment(hlo_writer *w, const hlo_node *node)
{
    if (node->scope == w->scope || node->op == HLO_OP_CONSTANT)
        return;
    w->scope = node->scope;
    hlo__new_line(w);
    PUT(w, "// ");
    if (node->scope[0] == '\0')
        PUT(w, "(top)");
    for (const char *c = node->scope; *c != '\0'; c++) /* a line end would end the comment */
        hlo__text_put(&w->text, iscntrl((unsigned char)*c) ? " " : c, 1);
}

/* ---- regions and functions ---- */

void hlo__write_region(hlo_writer *w, const hlo_block *block, const char *keyword)
{
    w->depth++;
    for (int i = 0; i < block->n_nodes && !hlo__failed(w->g); i++) {
        const hlo_node *node = block->nodes[i];
        put_scope_comment(w, node);
        hlo__new_line(w);
        hlo__write_op(w, node);
        put_location(w, node->scope);
    }
    hlo__new_line(w);
    hlo__put_str(w, keyword);
    if (block->n_results > 0) {
        PUT(w, " ");
        hlo__put_values(w, block->results, 0, block->n_results);
        PUT(w, " : ");
        hlo__put_types(w, block->results, block->n_results);
    }
    w->depth--;
    hlo__new_line(w);
    PUT(w, "}");
}

static bool name_is_taken(const hlo_writer *w, const char *name)
{
    for (size_t i = 0; i < w->n_functions; i++) {
        if (strcmp(w->function_names[i], name) == 0)
            return true;
    }
    return strcmp(name, "main") == 0;
}

const char *hlo__function_name(hlo_writer *w, const hlo_node *node)
{
    hlo_graph *g = w->g;
    hlo_block *block = node->regions[0];
    const hlo_call_attrs *a = node->attrs;
    uint32_t known = hlo__map_get(&w->function_of, block->results[0]).id;
    if (known != 0)
        return w->function_names[known - 1];
    char wish[300], name[300];
    snprintf(wish, sizeof wish, "%.280s%s", a->name, a->composite ? ".impl" : "");
    snprintf(name, sizeof name, "%s", wish);
    for (int i = 1; name_is_taken(w, name); i++)
        snprintf(name, sizeof name, "%.280s_%d", wish, i);
    void *functions = w->functions, *names = w->function_names;
    bool ok = hlo__grow(g, &functions, &w->cap_functions, sizeof *w->functions, w->n_functions + 1);
    w->functions = functions;
    ok = ok && hlo__grow(g, &names, &w->cap_names, sizeof *w->function_names, w->n_functions + 1);
    w->function_names = names;
    const char *interned = hlo__intern(g, name);
    if (!ok || hlo__failed(g))
        return "";
    w->functions[w->n_functions] = block;
    w->function_names[w->n_functions++] = interned;
    hlo__map_set(&w->function_of, block->results[0], (hlo_val){.id = (uint32_t)w->n_functions});
    return interned;
}

static void name_args(hlo_writer *w, const hlo_block *block)
{
    w->next = 0;
    w->scope = hlo__intern(w->g, "");
    for (int i = 0; i < block->n_params; i++)
        w->names[block->params[i]->id] = (hlo_name){(uint32_t)i, -1, true};
}

static void write_private_function(hlo_writer *w, const char *name, const hlo_block *block)
{
    name_args(w, block);
    hlo__new_line(w);
    PUT(w, "func.func private ");
    hlo__put_symbol(w, name);
    PUT(w, "(");
    for (int i = 0; i < block->n_params; i++) {
        if (i > 0)
            PUT(w, ", ");
        hlo__put_value(w, block->params[i]);
        PUT(w, ": ");
        hlo__put_type(w, &block->params[i]->shape);
    }
    PUT(w, ") -> ");
    put_result_types(w, block->results, block->n_results);
    PUT(w, " {");
    hlo__write_region(w, block, "return");
}

/* ---- @main and the module ---- */

static void put_io_sharding(hlo_writer *w, const hlo_io *io)
{
    int rank = io->value->shape.rank;
    if (w->options.gspmd) {
        PUT(w, "mhlo.sharding = ");
        hlo__put_gspmd(w, &io->spec, rank);
    } else {
        PUT(w, "sdy.sharding = #sdy.sharding");
        hlo__put_sharding(w, &io->spec, rank);
    }
}

static void write_main(hlo_writer *w, const hlo_block *block)
{
    int n_params, n_results;
    const hlo_io *params = hlo__io_params(w->g, &n_params);
    const hlo_io *results = hlo__io_results(w->g, &n_results);
    name_args(w, block);
    hlo__new_line(w);
    PUT(w, "func.func public @main(");
    w->depth += 2; /* one argument a line: models have hundreds */
    for (int i = 0; i < n_params; i++) {
        hlo__new_line(w);
        hlo__put_value(w, block->params[i]);
        PUT(w, ": ");
        hlo__put_type(w, &params[i].value->shape);
        if (params[i].sharded || params[i].alias >= 0)
            PUT(w, " {");
        if (params[i].sharded)
            put_io_sharding(w, &params[i]);
        if (params[i].alias >= 0)
            hlo__text_printf(&w->text, "%stf.aliasing_output = %d : i32",
                             params[i].sharded ? ", " : "", params[i].alias);
        if (params[i].sharded || params[i].alias >= 0)
            PUT(w, "}");
        if (!w->options.no_locations) {
            PUT(w, " loc(");
            hlo__put_quoted(w, params[i].name);
            PUT(w, ")");
        }
        if (i + 1 < n_params)
            PUT(w, ",");
    }
    PUT(w, ") -> (");
    for (int i = 0; i < n_results; i++) {
        hlo__new_line(w);
        hlo__put_type(w, &results[i].value->shape);
        PUT(w, " {jax.result_info = ");
        hlo__put_quoted(w, results[i].name);
        if (results[i].sharded) {
            PUT(w, ", ");
            put_io_sharding(w, &results[i]);
        }
        hlo__put_str(w, i + 1 < n_results ? "}," : "}");
    }
    w->depth -= 2;
    PUT(w, ") {");
    hlo__write_region(w, block, "return");
}

static void write_module(hlo_writer *w, const hlo_block *block)
{
    const hlo_mesh_info *mesh = hlo__mesh(w->g);
    const char *name = hlo__graph_name(w->g);
    int64_t devices = 1;
    PUT(w, "module ");
    hlo__put_symbol(w, name[0] == '\0' ? "program" : name);
    for (int i = 0; i < mesh->n; i++)
        devices *= mesh->sizes[i];
    if (mesh->n > 0)
        hlo__text_printf(&w->text,
                         " attributes {mhlo.num_partitions = %lld : i32, mhlo.num_replicas = 1 : "
                         "i32}",
                         (long long)devices);
    PUT(w, " {");
    w->depth = 1;
    if (mesh->n > 0 && !w->options.gspmd) {
        hlo__new_line(w);
        PUT(w, "sdy.mesh @mesh = ");
        hlo__put_mesh(w);
    }
    write_main(w, block);
    for (size_t i = 0; i < w->n_functions && !hlo__failed(w->g); i++) /* it grows on the way */
        write_private_function(w, w->function_names[i], w->functions[i]);
    PUT(w, "\n}\n");
    write_locations(w);
}

bool hlo__check_donations(hlo_graph *g)
{
    bool *taken = hlo__alloc(g, g->n_results + 1);
    for (size_t i = 0; i < g->n_params && !hlo__failed(g); i++) {
        hlo_io *param = &g->params[i];
        if (param->alias < 0)
            continue;
        hlo_io *result = &g->results[param->alias];
        if (taken[param->alias])
            hlo_fail(g, HLO_ERROR_VALUE, "write: two parameters are donated to result \"%s\"",
                     result->name);
        else if (param->sharded && result->sharded &&
                 memcmp(&param->spec, &result->spec, sizeof param->spec) != 0)
            hlo_fail(g, HLO_ERROR_SHAPE,
                     "write: parameter \"%s\" is donated to result \"%s\", which has another spec",
                     param->name, result->name);
        else if (param->sharded != result->sharded) { /* what only one was told holds for both */
            param->spec = result->spec = param->sharded ? param->spec : result->spec;
            param->sharded = result->sharded = true;
        }
        taken[param->alias] = true;
    }
    return !hlo__failed(g);
}

char *hlo_write_text(hlo_graph *g, const hlo_write_options *options)
{
    hlo_block *block = hlo__check_donations(g) ? hlo__lower(g, true) : NULL;
    if (block == NULL)
        return NULL;
    hlo_writer w = {.g = g};
    if (options != NULL)
        w.options = *options;
    w.names = calloc(g->n_values + 1, sizeof *w.names);
    if (w.names == NULL)
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
    if (!hlo__failed(g) && hlo__map_init(g, &w.function_of))
        write_module(&w, block);
    if (w.text.failed)
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
    char *text = hlo__failed(g) ? NULL : hlo__text_take(&w.text);
    if (text == NULL)
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory"); /* the first error wins */
    hlo__text_free(&w.text);
    hlo__map_free(&w.function_of);
    free(w.names);
    free(w.scopes.scopes);
    free(w.scopes.slots);
    free(w.functions);
    free(w.function_names);
    return text;
}
