/* Programs: before they are compiled, after, and as a plugin saved them. */
#include "runtime/device/ttt_device.h"
#include "tools/compile/compile_report.h"
#include "tools/report/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POINTS = 400
}; /* of the curve of memory: each the most of as many instructions as it takes */

/* ---- text ---- */

static json_t *values_json(const pjrt_hlo_text_value *values, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s*, s:s*, s:f}", "name", values[i].name, "type",
                                              values[i].type, "bytes", values[i].bytes));
    return list;
}

static json_t *text_loops_json(const pjrt_hlo_text *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->loop_count; i++) {
        const pjrt_hlo_text_loop *l = &t->loops[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:i, s:I, s:I, s:I}", "line", (json_int_t)l->line,
                                        "depth", l->depth, "parent", (json_int_t)l->parent,
                                        "operations", (json_int_t)l->operations,
                                        "while_counter_below", (json_int_t)l->below));
    }
    return list;
}

pjrt_status *inspect_text(const char *bytes, size_t size, json_t *about)
{
    pjrt_hlo_text *t;
    PJRT_TRY(pjrt_hlo_text_create(bytes, size, &t));
    json_t *ops = json_array();
    for (size_t i = 0; i < t->op_count; i++)
        json_array_append_new(ops, json_pack("{s:s*, s:I}", "name", t->ops[i].name, "count",
                                             (json_int_t)t->ops[i].count));
    json_object_set_new(about, "module", json_string(t->module));
    json_object_set_new(about, "lines", json_integer((json_int_t)t->lines));
    json_object_set_new(about, "functions", json_integer((json_int_t)t->functions));
    json_object_set_new(about, "operations", json_integer((json_int_t)t->operations));
    json_object_set_new(about, "operation_counts", ops);
    json_object_set_new(about, "loops", text_loops_json(t));
    json_object_set_new(about, "arguments", values_json(t->arguments, t->argument_count));
    json_object_set_new(about, "results", values_json(t->results, t->result_count));
    pjrt_hlo_text_free(t);
    return NULL;
}

/* "ML", two bytes, the version of the bytecode, and who wrote it: "StableHLO_v1.3.0". */
pjrt_status *inspect_bytecode(const char *bytes, size_t size, json_t *about)
{
    const char *producer = bytes + 5;
    if (size < 7 || memchr(producer, '\0', size - 5) == NULL)
        return PJRT_FAIL(DATA_LOSS, "ttt", "the bytecode ends in its first line: it was cut");
    json_object_set_new(about, "producer", json_string(producer));
    json_object_set_new(about, "note",
                        json_string("portable bytecode: ttt hlo compile FILE --target T "
                                    "--optimized F.pb makes a program that can be looked into"));
    return NULL;
}

/* ---- optimized programs ---- */

static json_t *curve_json(const pjrt_hlo_live *live)
{
    json_t *points = json_array();
    size_t n = live->point_count, bins = n < POINTS ? n : POINTS;
    for (size_t b = 0; b < bins; b++) {
        double most = 0;
        for (size_t i = b * n / bins; i < (b + 1) * n / bins; i++)
            most = live->points[i].bytes > most ? live->points[i].bytes : most;
        json_array_append_new(points, json_real(most));
    }
    return points;
}

static json_t *live_json(const pjrt_hlo_live *live)
{
    json_t *largest = json_array();
    for (size_t i = 0; i < live->array_count; i++)
        json_array_append_new(largest,
                              json_pack("{s:s*, s:s*, s:f}", "name", live->arrays[i].name, "scope",
                                        live->arrays[i].scope, "bytes", live->arrays[i].bytes));
    const char *name = live->point_count == 0 ? "" : live->points[live->peak].name;
    const char *scope = live->point_count == 0 ? "" : live->points[live->peak].scope;
    return json_pack("{s:s, s:f, s:f, s:I, s:I, s:s*, s:s*, s:o, s:o}", "note",
                     "an estimate: arrays of main memory that are live while each instruction of "
                     "the entry computation runs; how the compiler packs them is not known",
                     "argument_bytes", live->argument_bytes, "peak_bytes", live->peak_bytes,
                     "instructions", (json_int_t)live->point_count, "peak_instruction",
                     (json_int_t)live->peak, "peak_name", name, "peak_scope", scope, "largest",
                     largest, "points", curve_json(live));
}

/* Costs as members of the rows themselves, so that tables have them as columns. */
static void flatten(json_t *program, const char *table, const char *cost)
{
    static const char *const figures[] = {"flops", "bytes", "cycles"};
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(program, table), i, row)
    {
        for (size_t j = 0; j < sizeof figures / sizeof *figures; j++)
            json_object_set(row, figures[j],
                            json_object_get(json_object_get(row, cost), figures[j]));
        json_object_del(row, cost);
    }
}

static json_t *flat_program_json(const pjrt_hlo_report *report)
{
    const roofline none = {0};
    json_t *program = compiled_program_json(report, &none);
    flatten(program, "ops", "cost");
    flatten(program, "fusions", "cost");
    flatten(program, "custom_calls", "cost");
    flatten(program, "scopes", "cost");
    flatten(program, "loops", "total");
    return program;
}

static pjrt_status *inspect_module(const char *format, const char *bytes, size_t size,
                                   json_t *about)
{
    pjrt_hlo_report *report;
    pjrt_hlo_live *live;
    PJRT_TRY(pjrt_hlo_report_create(format, bytes, size, &report));
    pjrt_status *st = pjrt_hlo_live_create(format, bytes, size, &live);
    if (st == NULL) {
        json_object_set_new(about, "program", flat_program_json(report));
        json_object_set_new(about, "memory_over_step", live_json(live));
        pjrt_hlo_live_free(live);
    }
    pjrt_hlo_report_free(report);
    return st;
}

/* Files do not say which of the two forms they are; what is one is not the other. */
pjrt_status *inspect_optimized(const char *bytes, size_t size, json_t *about)
{
    pjrt_status *st = inspect_module("hlo_with_config", bytes, size, about);
    if (st == NULL)
        return NULL;
    pjrt_status_free(st);
    return inspect_module("hlo", bytes, size, about);
}

/* ---- executables ---- */

static void add_field(const char *field, const char *value, void *user)
{
    json_object_set_new(user, field, json_string(value));
}

/* Only the plugin that wrote an executable can tell what is in it; here that is the CPU's. */
static pjrt_status *look_inside(const char *path, json_t *about)
{
    pjrt_plugin *plugin;
    pjrt_client *client;
    pjrt_executable *exe;
    ttt_kernel_set calls;
    char *bytes = NULL;
    size_t size;
    const char *format;
    pjrt_program any = {0};
    PJRT_TRY(pjrt_plugin_load("cpu", &plugin));
    PJRT_TRY(ttt_kernels_register(plugin, "cpu", &calls));
    PJRT_TRY(pjrt_client_create(plugin, NULL, &client));
    pjrt_status *st =
        pjrt_executable_load(client, path, any, &(pjrt_compile_options){.partitions = 1}, &exe);
    if (st == NULL)
        st = pjrt_executable_optimized(exe, &bytes, &size, &format);
    if (st == NULL)
        st = inspect_module(format, bytes, size, about);
    free(bytes);
    pjrt_executable_free(exe);
    pjrt_client_free(client);
    return st;
}

pjrt_status *inspect_executable(const char *path, json_t *about)
{
    json_t *stamp = json_object();
    json_object_set_new(about, "stamp", stamp);
    pjrt_status *broken = pjrt_stamp_read(path, add_field, stamp);
    if (broken != NULL) {
        pjrt_status *named =
            PJRT_FAIL(DATA_LOSS, "ttt", "%s: %s", path, pjrt_status_message(broken));
        pjrt_status_free(broken);
        return named;
    }
    const char *platform = json_string_value(json_object_get(stamp, "platform"));
    if (platform == NULL || strcmp(platform, "cpu") != 0) {
        json_object_set_new(about, "program_note",
                            json_string("only its device's plugin can look inside; inspect what "
                                        "ttt compile --optimized wrote instead"));
        return NULL;
    }
    pjrt_status *st = look_inside(path, about);
    if (st != NULL)
        json_object_set_new(about, "program_note", json_string(pjrt_status_message(st)));
    pjrt_status_free(st);
    return NULL;
}
