/* Compiling for a target, and telling what came of it. */
#include "tools/compile/compile_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- compiling ---------------------------------------------------------------------------------
 */

pjrt_status *compiled_open(compiled *c, const char *target)
{
    double start = cmd_seconds();
    c->name = target;
    PJRT_TRY(pjrt_target_open(target, &c->target, &c->topology));
    PJRT_TRY(pjrt_plugin_load(c->target->plugin, &c->plugin));
    c->open_seconds = cmd_seconds() - start;
    return NULL;
}

void compiled_free(compiled *c)
{
    pjrt_hlo_report_free(c->report);
    pjrt_executable_free(c->exe);
    pjrt_client_free(c->client);
    pjrt_topology_free(c->topology);
}

static pjrt_status *compile(compiled *c, pjrt_program program, const pjrt_compile_options *options)
{
    double start = cmd_seconds();
    c->partitions = options->partitions == 0 ? 1 : options->partitions;
    c->replicas = options->replicas == 0 ? 1 : options->replicas;
    if (c->topology == NULL) {
        pjrt_client_options client = {.cpu_devices = c->partitions * c->replicas};
        PJRT_TRY(pjrt_client_create(c->plugin, &client, &c->client));
        c->open_seconds += cmd_seconds() - start;
        start = cmd_seconds();
    }
    PJRT_TRY(c->topology != NULL ? pjrt_compile_ahead(c->topology, program, options, &c->exe)
                                 : pjrt_compile(c->client, program, options, &c->exe));
    c->compile_seconds = cmd_seconds() - start;
    return NULL;
}

pjrt_status *compiled_make(compiled *c, pjrt_program program, const pjrt_compile_options *options,
                           const char *save, const char *optimized)
{
    char *bytes;
    size_t size;
    const char *format;
    PJRT_TRY(compile(c, program, options));
    if (save != NULL)
        PJRT_TRY(pjrt_executable_save(c->exe, save));
    pjrt_status_free(pjrt_executable_size(c->exe, &c->program_bytes));
    PJRT_TRY(pjrt_executable_optimized(c->exe, &bytes, &size, &format));
    pjrt_status *st = pjrt_hlo_report_create(format, bytes, size, &c->report);
    if (st == NULL)
        st = roofline_make(c->target, c->partitions * c->replicas, format, bytes, size,
                           &c->roofline);
    if (st == NULL && optimized != NULL)
        st = cmd_write_file(optimized, bytes, size);
    free(bytes);
    return st;
}

/* ---- figures -----------------------------------------------------------------------------------
 */

bool compiled_needs(const compiled *c, int64_t *bytes, int64_t *limit)
{
    pjrt_memory_stats m;
    pjrt_status *st = pjrt_executable_memory(c->exe, &m);
    bool told = st == NULL;
    pjrt_status_free(st);
    if (!told)
        return false;
    int64_t sum = m.arguments + m.results - m.alias + m.temp;
    *bytes = (m.peak > sum ? m.peak : sum) + m.code;
    *limit = c->target->memory_bytes;
    return true;
}

/* "learn" in "layers/mixer/learn/grad". */
static bool is_under(const char *path, const char *scope)
{
    size_t length = strlen(scope);
    while (*path != '\0') {
        size_t part = strcspn(path, "/");
        if (part == length && memcmp(path, scope, length) == 0)
            return true;
        path += part + (path[part] == '/');
    }
    return false;
}

double compiled_cycles_under(const compiled *c, const char *scope)
{
    const pjrt_hlo_loop *loops = c->report->loops;
    double cycles = 0;
    for (size_t i = 0; i < c->report->loop_count; i++) {
        bool inside = false;
        for (ptrdiff_t at = loops[i].parent; at >= 0; at = loops[at].parent)
            inside = inside || is_under(loops[at].origin, scope);
        if (!inside && is_under(loops[i].origin, scope))
            cycles += loops[i].total.cycles;
    }
    return cycles;
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static json_t *cost_json(const pjrt_hlo_cost *c)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "flops", c->flops, "transcendentals",
                     c->transcendentals, "bytes", c->bytes, "main_bytes", c->main_bytes, "cycles",
                     c->cycles);
}

static json_t *tally_json(const pjrt_hlo_tally *rows, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s*, s:I, s:I, s:f, s:o}", "name", rows[i].name,
                                              "count", (json_int_t)rows[i].count, "fused",
                                              (json_int_t)rows[i].fused, "executed",
                                              rows[i].executed, "cost", cost_json(&rows[i].cost)));
    return list;
}

static json_t *loops_json(const pjrt_hlo_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->loop_count; i++) {
        const pjrt_hlo_loop *l = &r->loops[i];
        json_array_append_new(
            list, json_pack("{s:s*, s:s*, s:I, s:i, s:I, s:f, s:o, s:o}", "name", l->name, "origin",
                            l->origin, "trip_count", (json_int_t)l->trip_count, "depth", l->depth,
                            "parent", (json_int_t)l->parent, "entered", l->entered, "iteration",
                            cost_json(&l->iteration), "total", cost_json(&l->total)));
    }
    return list;
}

static json_t *collectives_json(const pjrt_hlo_report *r, const roofline *roof)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->collective_count; i++) {
        const pjrt_hlo_collective *c = &r->collectives[i];
        json_array_append_new(
            list, json_pack("{s:s, s:f, s:I, s:b, s:I, s:f, s:f, s:f, s:o}", "kind", c->kind,
                            "bytes", c->bytes, "group_size", (json_int_t)c->group_size,
                            "asynchronous", (int)c->asynchronous, "count", (json_int_t)c->count,
                            "executed", c->executed, "total_bytes", c->total_bytes, "link_bytes",
                            c->executed * pjrt_hlo_link_bytes(c), "link_seconds",
                            roof->known ? json_real(roofline_link_seconds(roof, c)) : json_null()));
    }
    return list;
}

json_t *compiled_program_json(const pjrt_hlo_report *r, const roofline *roof)
{
    return json_pack(
        "{s:s*, s:I, s:I, s:o, s:f, s:f, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "module",
        r->module_name, "computations", (json_int_t)r->computation_count, "instructions",
        (json_int_t)r->instruction_count, "total", cost_json(&r->total), "cycles_in_loops",
        r->cycles_in_loops, "collective_bytes", r->collective_bytes, "unknown_trip_counts",
        (json_int_t)r->unknown_trip_counts, "conditionals", (json_int_t)r->conditionals,
        "without_cycles", (json_int_t)r->without_cycles, "ops", tally_json(r->ops, r->op_count),
        "fusions", tally_json(r->fusions, r->fusion_count), "custom_calls",
        tally_json(r->custom_calls, r->custom_call_count), "scopes",
        tally_json(r->scopes, r->scope_count), "loops", loops_json(r), "collectives",
        collectives_json(r, roof));
}

static json_t *shapes_json(const pjrt_shape *shapes, int count)
{
    json_t *list = json_array();
    char text[PJRT_SHAPE_TEXT];
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_string(pjrt_shape_text(&shapes[i], text)));
    return list;
}

/* Below 0 when it does not fit. */
static double free_percent(int64_t needed, int64_t limit)
{
    return 100 * (double)(limit - needed) / (double)limit;
}

/* Sections a plugin does not answer are null. */
static json_t *memory_json(const compiled *c)
{
    pjrt_memory_stats m;
    int64_t needed, limit;
    if (!compiled_needs(c, &needed, &limit))
        return json_null();
    pjrt_status_free(pjrt_executable_memory(c->exe, &m));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "code_bytes",
                     (json_int_t)m.code, "argument_bytes", (json_int_t)m.arguments, "result_bytes",
                     (json_int_t)m.results, "alias_bytes", (json_int_t)m.alias, "temp_bytes",
                     (json_int_t)m.temp, "peak_bytes", (json_int_t)m.peak, "needed_bytes",
                     (json_int_t)needed, "limit_bytes",
                     limit == 0 ? json_null() : json_integer(limit), "fits",
                     limit == 0 ? json_null() : json_boolean(needed <= limit), "free_bytes",
                     limit == 0 ? json_null() : json_integer(limit - needed), "free_percent",
                     limit == 0 ? json_null() : json_real(free_percent(needed, limit)));
}

static json_t *xla_costs_json(pjrt_executable *exe)
{
    const pjrt_option *costs;
    size_t count;
    pjrt_status *st = pjrt_executable_costs(exe, &costs, &count);
    bool told = st == NULL;
    pjrt_status_free(st);
    json_t *json = told ? json_object() : json_null();
    for (size_t i = 0; i < count; i++)
        json_object_set_new(json, costs[i].name, cmd_json_option(&costs[i]));
    return json;
}

json_t *compiled_json(const compiled *c, const roofline_work *work)
{
    const pjrt_shape *arguments;
    int n_arguments;
    pjrt_status_free(pjrt_executable_arguments(c->exe, &arguments, &n_arguments));
    const pjrt_shape *results = pjrt_executable_result(c->exe, 0);
    return json_pack("{s:s, s:s, s:i, s:i, s:I, s:f, s:f, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "target", c->name, "description", c->target->description, "partitions",
                     c->partitions, "replicas", c->replicas, "topology_devices",
                     (json_int_t)(c->topology != NULL ? pjrt_topology_num_devices(c->topology)
                                                      : pjrt_client_num_devices(c->client)),
                     "open_seconds", c->open_seconds, "compile_seconds", c->compile_seconds,
                     "program_bytes", (json_int_t)c->program_bytes, "memory", memory_json(c),
                     "roofline", roofline_json(&c->roofline, work), "arguments",
                     shapes_json(arguments, n_arguments), "results",
                     shapes_json(results, pjrt_executable_num_results(c->exe)), "program",
                     compiled_program_json(c->report, &c->roofline), "xla_cost_analysis",
                     xla_costs_json(c->exe));
}

/* ---- text --------------------------------------------------------------------------------------
 */

static void print_tally(const char *title, const pjrt_hlo_tally *rows, size_t count, int top)
{
    if (count == 0)
        return;
    printf("%s\n", title);
    for (size_t i = 0; i < count && i < (size_t)top; i++)
        printf("  %-28.28s %6lld  %8s  %9s  %9s  %9s\n", rows[i].name, (long long)rows[i].count,
               cmd_quantity(rows[i].executed, "x"), cmd_quantity(rows[i].cost.flops, "FLOP"),
               cmd_quantity(rows[i].cost.bytes, "B"), cmd_quantity(rows[i].cost.cycles, "cyc"));
    if (count > (size_t)top)
        printf("  … %zu more\n", count - (size_t)top);
}

static void print_loops(const pjrt_hlo_report *r, int top)
{
    for (size_t i = 0; i < r->loop_count && i < (size_t)top; i++) {
        const pjrt_hlo_loop *l = &r->loops[i];
        if (i == 0)
            puts("loops: iterations, flops, bytes and cycles of all of them");
        printf("  %*s%-*.24s %6lld  %9s  %9s  %9s\n", 2 * l->depth, "", 28 - 2 * l->depth, l->name,
               (long long)l->trip_count, cmd_quantity(l->total.flops, "FLOP"),
               cmd_quantity(l->total.bytes, "B"), cmd_quantity(l->total.cycles, "cyc"));
    }
}

static void print_collectives(const compiled *result, int top)
{
    const pjrt_hlo_report *r = result->report;
    for (size_t i = 0; i < r->collective_count && i < (size_t)top; i++) {
        const pjrt_hlo_collective *c = &r->collectives[i];
        if (i == 0)
            puts("collectives: times run, bytes each, devices in a group, links busy for all");
        printf("  %-28s %8s  %9s  %5lld  %9s  %s\n", c->kind, cmd_quantity(c->executed, "x"),
               cmd_quantity(c->bytes, "B"), (long long)c->group_size,
               result->roofline.known ? cmd_duration(roofline_link_seconds(&result->roofline, c))
                                      : "",
               c->asynchronous ? "asynchronous" : "waited for");
    }
}

static void print_memory(const compiled *c)
{
    pjrt_memory_stats m;
    int64_t needed, limit;
    if (!compiled_needs(c, &needed, &limit))
        return;
    pjrt_status_free(pjrt_executable_memory(c->exe, &m));
    printf("memory a chip: arguments %s, results %s (%s aliased), temporaries %s, code %s",
           cmd_quantity((double)m.arguments, "B"), cmd_quantity((double)m.results, "B"),
           cmd_quantity((double)m.alias, "B"), cmd_quantity((double)m.temp, "B"),
           cmd_quantity((double)m.code, "B"));
    if (limit > 0)
        printf("; in all %s of %s: %s by %s (%.1f%%)", cmd_quantity((double)needed, "B"),
               cmd_quantity((double)limit, "B"), needed <= limit ? "fits" : "TOO MUCH",
               cmd_quantity(fabs((double)(limit - needed)), "B"),
               fabs(free_percent(needed, limit)));
    putchar('\n');
}

void compiled_print(const compiled *c, const roofline_work *work, int top)
{
    const pjrt_hlo_report *r = c->report;
    printf("%s for %s (%s), compiled in %.2f s, %s serialized\n", pjrt_executable_name(c->exe),
           c->name, c->target->description, c->compile_seconds,
           cmd_quantity((double)c->program_bytes, "B"));
    print_memory(c);
    printf("work a chip: %s, %s moved (%s in main memory)", cmd_quantity(r->total.flops, "FLOP"),
           cmd_quantity(r->total.bytes, "B"), cmd_quantity(r->total.main_bytes, "B"));
    if (r->total.cycles > 0)
        printf(", %s estimated (%.0f%% in loops)", cmd_quantity(r->total.cycles, "cycles"),
               100 * r->cycles_in_loops / r->total.cycles);
    if (r->collective_bytes > 0)
        printf(", %s in collectives", cmd_quantity(r->collective_bytes, "B"));
    printf("\n%zu instructions in %zu computations", r->instruction_count, r->computation_count);
    if (r->unknown_trip_counts > 0)
        printf("; %zu loops of unknown length counted once", r->unknown_trip_counts);
    putchar('\n');
    roofline_print(&c->roofline, work);
    print_tally("operations: in the program, times run, flops, bytes, cycles", r->ops, r->op_count,
                top);
    print_loops(r, top);
    print_collectives(c, top);
    print_tally("custom calls", r->custom_calls, r->custom_call_count, top);
}
