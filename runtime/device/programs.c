/* Graphs that know how their results are split, and what they become on the devices of a place. */
#include "runtime/device/internal.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "runtime";

pjrt_status *ttt_graph_failed(const hlo_graph *g)
{
    const hlo_error *error = g == NULL ? NULL : hlo_graph_error(g);
    if (error == NULL || error->code == HLO_ERROR_MEMORY)
        return PJRT_NO_MEMORY("graph");
    return PJRT_FAIL(INVALID_ARGUMENT, "graph", "%s", error->message);
}

/* ---- graphs ------------------------------------------------------------------------------------
 */

pjrt_status *ttt_graph_new(const char *name, const ttt_mesh *mesh, ttt_graph *out)
{
    *out = (ttt_graph){.g = hlo_graph_new(name)};
    if (out->g == NULL)
        return ttt_graph_failed(NULL);
    ttt_mesh_apply(mesh, out->g);
    return NULL;
}

void ttt_graph_free(ttt_graph *graph)
{
    hlo_graph_free(graph->g);
    free(graph->results);
    *graph = (ttt_graph){0};
}

hlo_val ttt_graph_param(ttt_graph *graph, const char *name, hlo_shape shape, hlo_spec spec)
{
    hlo_val v = hlo_param(graph->g, name, shape);
    hlo_shard_param(graph->g, v, spec);
    return v;
}

void ttt_graph_result(ttt_graph *graph, const char *name, hlo_val v, hlo_spec spec)
{
    size_t count = (size_t)graph->n_results + 1;
    ttt_sharded *results = realloc(graph->results, count * sizeof *results);
    if (results == NULL) {
        hlo_fail(graph->g, HLO_ERROR_MEMORY, "out of memory");
        return;
    }
    graph->results = results;
    results[graph->n_results] = (ttt_sharded){*hlo_shape_of(graph->g, v), spec};
    hlo_result(graph->g, name, v);
    hlo_shard_result(graph->g, graph->n_results++, spec);
}

pjrt_status *ttt_graph_text(const ttt_graph *graph, char **text)
{
    *text = hlo_write_text(graph->g, NULL);
    return *text == NULL ? ttt_graph_failed(graph->g) : NULL;
}

/* ---- programs ----------------------------------------------------------------------------------
 */

pjrt_status *ttt__devices_compile(const ttt_devices *devs, pjrt_program code, pjrt_executable **out,
                                  bool *cached)
{
    pjrt_compile_options options = {.partitions = devs->n_devices};
    pjrt_status *why = NULL;
    *cached = false;
    if (devs->job != NULL) {
        options.devices = devs->ids;
        options.process = ttt_job_rank(devs->job);
        options.num_processes = ttt_job_size(devs->job);
    }
    if (devs->cache == NULL)
        return pjrt_compile(devs->client, code, &options, out);
    pjrt_status *st = pjrt_compile_cached(devs->client, code, &options, devs->cache, out, &why);
    *cached = st == NULL && why == NULL;
    pjrt_status_free(why);
    return st;
}

static pjrt_status *compile(ttt_program *p, const ttt_graph *graph)
{
    char *text;
    p->results = malloc(((size_t)graph->n_results + 1) * sizeof *p->results);
    if (p->results == NULL)
        return PJRT_NO_MEMORY(call);
    if (graph->n_results > 0)
        memcpy(p->results, graph->results, (size_t)graph->n_results * sizeof *p->results);
    p->n_results = graph->n_results;
    PJRT_TRY(ttt_graph_text(graph, &text));
    pjrt_status *st =
        ttt__devices_compile(p->devices, pjrt_program_text(text), &p->exe, &p->cached);
    free(text);
    if (st == NULL && pjrt_executable_num_results(p->exe) != p->n_results)
        st = PJRT_FAIL(INTERNAL, call, "%s has %d results, its graph %d",
                       pjrt_executable_name(p->exe), pjrt_executable_num_results(p->exe),
                       p->n_results);
    return st;
}

static hlo_type type_of(pjrt_type type)
{
    for (hlo_type t = HLO_TYPE_NONE + 1; t <= HLO_PRED; t++) {
        if (ttt_pjrt_type(t) == type)
            return t;
    }
    return HLO_TYPE_NONE;
}

static hlo_shape shape_of(const pjrt_shape *from)
{
    hlo_shape shape = {.type = type_of(from->type), .rank = from->rank};
    memcpy(shape.dims, from->dims, sizeof shape.dims);
    return shape;
}

pjrt_status *ttt__program_adopt(const ttt_devices *devs, pjrt_executable *exe, ttt_program **out)
{
    int count = pjrt_executable_num_results(exe);
    ttt_program *p = calloc(1, sizeof *p);
    ttt_sharded *results = calloc((size_t)count + 1, sizeof *results);
    *out = p;
    if (p == NULL || results == NULL) {
        free(p);
        free(results);
        pjrt_executable_free(exe);
        *out = NULL;
        return PJRT_NO_MEMORY(call);
    }
    *p = (ttt_program){.devices = devs, .exe = exe, .results = results, .n_results = count};
    for (int i = 0; i < count; i++)
        results[i].shape = shape_of(pjrt_executable_result(exe, i));
    return NULL;
}

pjrt_status *ttt_program_compile(const ttt_devices *devs, const ttt_graph *graph, ttt_program **out)
{
    *out = NULL;
    ttt_program *p = calloc(1, sizeof *p);
    if (p == NULL)
        return PJRT_NO_MEMORY(call);
    p->devices = devs;
    pjrt_status *st = compile(p, graph);
    if (st != NULL) {
        ttt_program_free(p);
        return st;
    }
    *out = p;
    return NULL;
}

void ttt_program_free(ttt_program *program)
{
    if (program == NULL)
        return;
    pjrt_executable_free(program->exe);
    free(program->results);
    free(program);
}

/* One list of buffers after the other, a list a device of this process, as pjrt_execute takes and
 * gives them. */
static pjrt_status *run(const ttt_program *p, pjrt_buffer **buffers, ttt_array *const *args,
                        int n_args, ttt_array **results)
{
    const ttt_devices *devs = p->devices;
    pjrt_buffer **out = buffers + devs->n_mine * n_args;
    int at = 0;
    for (int d = devs->first; d < devs->first + devs->n_mine; d++) {
        for (int i = 0; i < n_args; i++)
            buffers[at++] = args[i]->parts[d];
    }
    PJRT_TRY(pjrt_execute(p->exe, buffers, (size_t)n_args, NULL, out, (size_t)p->n_results, NULL));
    at = 0;
    for (int d = devs->first; d < devs->first + devs->n_mine; d++) {
        for (int i = 0; i < p->n_results; i++)
            results[i]->parts[d] = out[at++];
    }
    return NULL;
}

static pjrt_status *empty_results(const ttt_program *p, ttt_array **results)
{
    for (int i = 0; i < p->n_results; i++) {
        results[i] = ttt__array_new(p->devices, &p->results[i].shape, &p->results[i].spec);
        if (results[i] == NULL)
            return PJRT_NO_MEMORY(call);
    }
    return NULL;
}

pjrt_status *ttt_program_run(const ttt_program *program, ttt_array *const *args, int n_args,
                             ttt_array **results)
{
    size_t lists = (size_t)(n_args + program->n_results) * (size_t)program->devices->n_devices;
    pjrt_buffer **buffers = calloc(lists + 1, sizeof(pjrt_buffer *));
    for (int i = 0; i < program->n_results; i++)
        results[i] = NULL;
    pjrt_status *st = buffers == NULL ? PJRT_NO_MEMORY(call) : empty_results(program, results);
    if (st == NULL)
        st = run(program, buffers, args, n_args, results);
    for (int i = 0; i < program->n_results && st != NULL; i++) {
        ttt_array_free(results[i]);
        results[i] = NULL;
    }
    free(buffers);
    return st;
}
