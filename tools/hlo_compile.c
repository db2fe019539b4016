/* ttt hlo compile: a program for a target that need not be here, and what came of it. */
#include "pjrt/pjrt_hlo.h"
#include "tools/hlo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: ttt hlo compile FILE --target T [options]\n"
    "       ttt hlo compile --target list\n"
    "\n"
    "Compiles a StableHLO program with the target's own compiler, whether its chips are here or\n"
    "not, and reports memory, cost, loops and collectives of the compiled program, per chip.\n"
    "\n"
    "  --target T         cpu, or ahead of time: tpu:GENERATION:TOPOLOGY (tpu:v5e:16x16),\n"
    "                     cuda:CHIP[:GPUS] (cuda:a100-sxm-40gb, cuda:h100-sxm:8); \"list\" prints "
    "them\n"
    "  --partitions N     over how many devices the program's shardings spread it (default 1)\n"
    "  --replicas N       how many copies of that run side by side (default 1)\n"
    "  --save FILE        write the executable, with a stamp that ttt checks when it loads it\n"
    "  --optimized FILE   write the optimized program, a serialized HloModuleProto\n"
    "  --ffi NAME         let the program call the custom call NAME (a stand-in handler: the\n"
    "                     program compiles, it cannot run); may be given several times\n"
    "  --xla NAME=VALUE   an XLA option for this compile; may be given several times\n"
    "  --top N            how many rows of each table to print (default 8)\n"
    "  --json             everything as JSON\n"
    "\n"
    "Flops and bytes count a loop's body as often as it runs. Cycles are the TPU compiler's own\n"
    "estimates: good for comparing programs, not a time.\n"
    "\n"
    "example: ttt hlo compile tools/examples/sharded_matmul.mlir --target tpu:v5e:16x16 \\\n"
    "             --partitions 256 --json\n";

enum { MAX_FFI = 64 };

typedef struct ffi_names {
    const char *list[MAX_FFI];
    size_t count;
} ffi_names;

static bool add_ffi_name(const char *value, void *field)
{
    ffi_names *names = field;
    if (*value == '\0' || names->count == MAX_FFI)
        return false;
    names->list[names->count++] = value;
    return true;
}

typedef struct compile_options {
    const char *target, *save, *optimized;
    int partitions, replicas, top;
    hlo_overrides overrides;
    ffi_names ffi;
} compile_options;

#define AT(field) offsetof(compile_options, field)
static const cmd_option options[] = {
    {"target", "a target", CMD_TEXT, AT(target)},
    {"partitions", "a number of devices", CMD_NUMBER, AT(partitions), .most = 1 << 20},
    {"replicas", "a number of devices", CMD_NUMBER, AT(replicas), .most = 1 << 20},
    {"save", "a path", CMD_TEXT, AT(save)},
    {"optimized", "a path", CMD_TEXT, AT(optimized)},
    {"ffi", "a name", CMD_CUSTOM, AT(ffi), .set = add_ffi_name},
    {"xla", "NAME=VALUE", CMD_CUSTOM, AT(overrides), .set = hlo_overrides_add},
    {"top", "a positive number", CMD_NUMBER, AT(top), .most = 1000000},
};
static const cmd_spec spec = {"hlo compile", help, options, sizeof options / sizeof *options};

/* ---- targets -----------------------------------------------------------------------------------
 */

static int list_targets(const cmd_common *common)
{
    size_t count;
    const pjrt_target *targets = pjrt_targets(&count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const pjrt_target *t = &targets[i];
        if (!common->json && t->memory_bytes == 0)
            printf("%-20s %s\n", t->name, t->description);
        else if (!common->json)
            printf("%-20s %-24s %-14s %-9s %s\n", t->name, t->description,
                   cmd_quantity(t->bf16_flops, "FLOP/s"),
                   cmd_quantity((double)t->memory_bytes, "B"),
                   cmd_quantity(t->bytes_per_second, "B/s"));
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:I}", "name",
                                              t->name, "description", t->description, "plugin",
                                              t->plugin, "bf16_flops", t->bf16_flops, "f32_flops",
                                              t->f32_flops, "bytes_per_second", t->bytes_per_second,
                                              "memory_bytes", (json_int_t)t->memory_bytes));
    }
    if (common->json)
        return cmd_print_json(json_pack("{s:o}", "targets", list));
    json_decref(list);
    puts("A TPU's topology may be any that libtpu knows; a GPU's name may end in their number "
         "(:8).\n"
         "bf16 peak, memory and its bandwidth are the makers' figures, for one chip.");
    return CMD_OK;
}

/* ---- compiling ---------------------------------------------------------------------------------
 */

typedef struct compile_state {
    const compile_options *options;
    const pjrt_target *target;
    pjrt_topology *topology;
    pjrt_client *client; /* for the CPU, which compiles for itself */
    pjrt_executable *exe;
    char *program_bytes;
    pjrt_hlo_report *report;
    double open_seconds, compile_seconds;
} compile_state;

static void free_state(compile_state *s)
{
    pjrt_hlo_report_free(s->report);
    pjrt_executable_free(s->exe);
    pjrt_client_free(s->client);
    pjrt_topology_free(s->topology);
    free(s->program_bytes);
}

/* Stands in for a kernel that is not in this program: it says what it is, and that is all. */
static void *stand_in_handler(void *call_frame)
{
    pjrt_ffi_answer_metadata(call_frame, true);
    return NULL;
}

static pjrt_status *open_target(compile_state *s)
{
    const compile_options *o = s->options;
    PJRT_TRY(pjrt_target_open(o->target, &s->target, &s->topology));
    pjrt_plugin *plugin;
    PJRT_TRY(pjrt_plugin_load(s->target->plugin, &plugin));
    bool cuda = strcmp(s->target->plugin, "cuda") == 0;
    void *handler;
    void *(*function)(void *) = stand_in_handler;
    memcpy(&handler, &function, sizeof handler);
    for (size_t i = 0; i < o->ffi.count; i++)
        PJRT_TRY(pjrt_ffi_register(plugin, o->ffi.list[i], cuda ? "CUDA" : "Host", handler, true));
    if (s->topology != NULL)
        return NULL;
    int devices = (o->partitions == 0 ? 1 : o->partitions) * (o->replicas == 0 ? 1 : o->replicas);
    pjrt_client_options client = {.cpu_devices = devices};
    return pjrt_client_create(plugin, &client, &s->client);
}

static pjrt_status *write_bytes(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    bool ok = file != NULL && fwrite(bytes, 1, size, file) == size;
    if (file != NULL)
        ok = fclose(file) == 0 && ok;
    return ok ? NULL : PJRT_FAIL(UNAVAILABLE, "hlo compile", "%s: %s", path, strerror(errno));
}

static pjrt_status *compile_and_read(compile_state *s, const char *path)
{
    const compile_options *o = s->options;
    pjrt_program program;
    PJRT_TRY(hlo_read_program(path, &s->program_bytes, &program));
    double start = cmd_seconds();
    PJRT_TRY(open_target(s));
    s->open_seconds = cmd_seconds() - start;
    pjrt_compile_options compile = {.partitions = o->partitions,
                                    .replicas = o->replicas,
                                    .overrides = o->overrides.list,
                                    .n_overrides = o->overrides.count};
    start = cmd_seconds();
    PJRT_TRY(s->topology != NULL ? pjrt_compile_ahead(s->topology, program, &compile, &s->exe)
                                 : pjrt_compile(s->client, program, &compile, &s->exe));
    s->compile_seconds = cmd_seconds() - start;
    if (o->save != NULL)
        PJRT_TRY(pjrt_executable_save(s->exe, o->save));

    char *bytes;
    size_t size;
    const char *format;
    PJRT_TRY(pjrt_executable_optimized(s->exe, &bytes, &size, &format));
    pjrt_status *st = pjrt_hlo_report_create(format, bytes, size, &s->report);
    if (st == NULL && o->optimized != NULL)
        st = write_bytes(o->optimized, bytes, size);
    free(bytes);
    return st;
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static json_t *cost_json(const pjrt_hlo_cost *c)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "flops", c->flops, "transcendentals",
                     c->transcendentals, "bytes", c->bytes, "cycles", c->cycles);
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
            list, json_pack("{s:s*, s:I, s:i, s:I, s:f, s:o, s:o}", "name", l->name, "trip_count",
                            (json_int_t)l->trip_count, "depth", l->depth, "parent",
                            (json_int_t)l->parent, "entered", l->entered, "iteration",
                            cost_json(&l->iteration), "total", cost_json(&l->total)));
    }
    return list;
}

static json_t *collectives_json(const pjrt_hlo_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->collective_count; i++) {
        const pjrt_hlo_collective *c = &r->collectives[i];
        json_array_append_new(
            list, json_pack("{s:s, s:f, s:I, s:I, s:f, s:f}", "kind", c->kind, "bytes", c->bytes,
                            "group_size", (json_int_t)c->group_size, "count", (json_int_t)c->count,
                            "executed", c->executed, "total_bytes", c->total_bytes));
    }
    return list;
}

static json_t *program_json(const pjrt_hlo_report *r)
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
        collectives_json(r));
}

static json_t *shapes_json(const pjrt_shape *shapes, int count)
{
    json_t *list = json_array();
    char text[PJRT_SHAPE_TEXT];
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_string(pjrt_shape_text(&shapes[i], text)));
    return list;
}

/* Sections a plugin does not answer are null. */
static json_t *memory_json(const pjrt_executable *exe)
{
    pjrt_memory_stats m;
    pjrt_status *st = pjrt_executable_memory(exe, &m);
    pjrt_code code = pjrt_status_code(st);
    pjrt_status_free(st);
    if (code != PJRT_CODE_OK)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "code_bytes", (json_int_t)m.code,
                     "argument_bytes", (json_int_t)m.arguments, "result_bytes",
                     (json_int_t)m.results, "alias_bytes", (json_int_t)m.alias, "temp_bytes",
                     (json_int_t)m.temp, "peak_bytes", (json_int_t)m.peak);
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

static int print_json(compile_state *s)
{
    const compile_options *o = s->options;
    const pjrt_shape *arguments;
    int n_arguments;
    pjrt_status_free(pjrt_executable_arguments(s->exe, &arguments, &n_arguments));
    const pjrt_shape *results = pjrt_executable_result(s->exe, 0);
    return cmd_print_json(json_pack(
        "{s:s, s:s, s:i, s:i, s:I, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:s?}", "target", o->target,
        "description", s->target->description, "partitions", o->partitions ? o->partitions : 1,
        "replicas", o->replicas ? o->replicas : 1, "topology_devices",
        (json_int_t)(s->topology != NULL ? pjrt_topology_num_devices(s->topology)
                                         : pjrt_client_num_devices(s->client)),
        "open_seconds", s->open_seconds, "compile_seconds", s->compile_seconds, "memory",
        memory_json(s->exe), "arguments", shapes_json(arguments, n_arguments), "results",
        shapes_json(results, pjrt_executable_num_results(s->exe)), "program",
        program_json(s->report), "xla_cost_analysis", xla_costs_json(s->exe), "saved", o->save));
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

static void print_collectives(const pjrt_hlo_report *r, int top)
{
    for (size_t i = 0; i < r->collective_count && i < (size_t)top; i++) {
        const pjrt_hlo_collective *c = &r->collectives[i];
        if (i == 0)
            puts("collectives: times run, bytes each, devices in a group");
        printf("  %-28s %8s  %9s  %lld\n", c->kind, cmd_quantity(c->executed, "x"),
               cmd_quantity(c->bytes, "B"), (long long)c->group_size);
    }
}

static void print_text(compile_state *s)
{
    const pjrt_hlo_report *r = s->report;
    int top = s->options->top == 0 ? 8 : s->options->top;
    pjrt_memory_stats m;
    printf("%s for %s (%s), compiled in %.2f s\n", pjrt_executable_name(s->exe), s->options->target,
           s->target->description, s->compile_seconds);
    pjrt_status *st = pjrt_executable_memory(s->exe, &m);
    if (st == NULL)
        printf("memory a chip: arguments %s, results %s (%s aliased), temporaries %s, code %s\n",
               cmd_quantity((double)m.arguments, "B"), cmd_quantity((double)m.results, "B"),
               cmd_quantity((double)m.alias, "B"), cmd_quantity((double)m.temp, "B"),
               cmd_quantity((double)m.code, "B"));
    pjrt_status_free(st);
    printf("work a chip: %s, %s moved", cmd_quantity(r->total.flops, "FLOP"),
           cmd_quantity(r->total.bytes, "B"));
    if (r->total.cycles > 0)
        printf(", %s estimated (%.0f%% in loops)", cmd_quantity(r->total.cycles, "cycles"),
               100 * r->cycles_in_loops / r->total.cycles);
    if (r->collective_bytes > 0)
        printf(", %s in collectives", cmd_quantity(r->collective_bytes, "B"));
    printf("\n%zu instructions in %zu computations", r->instruction_count, r->computation_count);
    if (r->unknown_trip_counts > 0)
        printf("; %zu loops of unknown length counted once", r->unknown_trip_counts);
    putchar('\n');
    print_tally("operations: in the program, times run, flops, bytes, cycles", r->ops, r->op_count,
                top);
    print_loops(r, top);
    print_collectives(r, top);
    print_tally("custom calls", r->custom_calls, r->custom_call_count, top);
    if (s->options->save != NULL)
        printf("saved to %s\n", s->options->save);
}

int hlo_compile(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    compile_options chosen = {0};
    int code = cmd_parse(&spec, argc, argv, &common, &chosen, &operands);
    if (code < 0 && chosen.target != NULL && strcmp(chosen.target, "list") == 0)
        code = list_targets(&common);
    if (code < 0 && operands.count != 1)
        code =
            cmd_wrong_use(&spec, operands.count == 0 ? "which program?" : "one program at a time");
    if (code < 0 && chosen.target == NULL)
        code = cmd_wrong_use(&spec, "--target is missing; --target list shows them");
    if (code < 0) {
        compile_state s = {.options = &chosen};
        pjrt_status *st = compile_and_read(&s, operands.items[0]);
        if (st != NULL)
            code = cmd_fail(&common, st);
        else if (common.json)
            code = print_json(&s);
        else
            print_text(&s);
        free_state(&s);
    }
    hlo_overrides_free(&chosen.overrides);
    return code < 0 ? CMD_OK : code;
}
