/* ttt compile: a network's programs for a target that need not be here, without any weights. */
#include "tools/compile_report.h"
#include "tools/hlo.h"
#include "tools/model_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: ttt compile --preset P --step S --target T [options]\n"
    "\n"
    "Builds one of a network's programs, compiles it with the target's own compiler, whether its\n"
    "chips are here or not, and reports memory, cost, loops and collectives, per chip.\n"
    "\n"
    "  --step S           train (loss, gradients, update), eval (the loss), forward (logits),\n"
    "                     decode (one token of each sequence)\n"
    "  --target T         cpu, or ahead of time: tpu:GENERATION:TOPOLOGY (tpu:v5e:2x2),\n"
    "                     cuda:CHIP[:GPUS] (cuda:a100-sxm-40gb); ttt hlo compile --target list\n"
    "                     prints them\n"
    "  --mesh M           all chips of the target as a grid: data=2,fsdp=2 splits sequences over\n"
    "                     both axes and parameters over fsdp; time=4 splits every sequence into\n"
    "                     spans, and parameters; model=4 splits heads and widths.\n"
    "                     Without it the program is for one chip\n"
    "  --batch N          sequences a step (default: one for each of data x fsdp)\n"
    "  --context N        tokens of each (default 2048); of decode what attention remembers\n"
    "  --accumulation N   train: the batch goes through the network in N parts\n"
    "\n" MODEL_OPTIONS_HELP "\n" PROGRAM_OPTIONS_HELP PROGRAM_REMAT_HELP "\n"
    "  --emit FILE        write the program, StableHLO text\n"
    "  --save FILE        write the executable, with a stamp that ttt checks when it loads it\n"
    "  --optimized FILE   write the optimized program, a serialized HloModuleProto\n"
    "  --xla NAME=VALUE   an XLA option for this compile; may be given several times\n"
    "  --kernels          operations written by hand as custom calls, where there are some: cuda, "
    "cpu\n"
    "  --top N            how many rows of each table to print (default 8)\n"
    "  --json             everything as JSON\n"
    "\n"
    "Flops and bytes count a loop's body as often as it runs. Cycles are the TPU compiler's own\n"
    "estimates: good for comparing programs, not a time. cycles_in_mini_batch_loops are those of\n"
    "the learners' loops over mini-batches, forward and backward.\n"
    "\n"
    "example: ttt compile --preset 1.3b --step train --target tpu:v5e:2x2 --mesh fsdp=4 \\\n"
    "             --dtype bf16 --json\n";

typedef struct compile_options {
    model_options model;
    program_options program;
    const char *step, *target, *emit, *save, *optimized;
    int batch, context, accumulation, top;
    bool kernels;
    hlo_overrides overrides;
} compile_options;

#define AT(field) offsetof(compile_options, field)
static const cmd_option options[] = {
    MODEL_OPTIONS(compile_options, model),
    PROGRAM_OPTIONS(compile_options, program),
    PROGRAM_OPTION_REMAT(compile_options, program),
    {"step", "", CMD_TEXT, AT(step)},
    {"target", "", CMD_TEXT, AT(target)},
    {"emit", "", CMD_TEXT, AT(emit)},
    {"save", "", CMD_TEXT, AT(save)},
    {"optimized", "", CMD_TEXT, AT(optimized)},
    {"batch", "a number of sequences", CMD_NUMBER, AT(batch), .most = 1 << 24},
    {"context", "a number of tokens", CMD_NUMBER, AT(context), .most = 1 << 30},
    {"accumulation", "a number of parts", CMD_NUMBER, AT(accumulation), .most = 1 << 24},
    {"xla", "NAME=VALUE", CMD_CUSTOM, AT(overrides), .set = hlo_overrides_add},
    {"kernels", "", CMD_FLAG, AT(kernels), 0, NULL},
    {"top", "a positive number", CMD_NUMBER, AT(top), .most = 1000000},
};
static const cmd_spec spec = {"compile", help, options, sizeof options / sizeof *options};

static const struct {
    const char *name;
    ttt_task_kind kind;
} steps[] = {
    {"train", TTT_TASK_TRAIN},
    {"eval", TTT_TASK_LOSS},
    {"forward", TTT_TASK_LOGITS},
    {"decode", TTT_TASK_DECODE},
};

/* What is being compiled, and what must be released at the end. */
typedef struct compiling {
    const compile_options *options;
    ttt_config config;
    ttt_recipe recipe;
    ttt_mesh mesh;
    ttt_task task;
    ttt_params *params;
    char *text;
    compiled result;
    double build_seconds;
} compiling;

static bool find_step(const char *name, ttt_task_kind *kind)
{
    for (size_t i = 0; name != NULL && i < sizeof steps / sizeof *steps; i++) {
        if (strcmp(steps[i].name, name) == 0) {
            *kind = steps[i].kind;
            return true;
        }
    }
    return false;
}

/* The recipe shapes the program little: any preset's will do for a folder's configuration. */
static pjrt_status *choose_recipe(compiling *c)
{
    ttt_error error;
    const char *preset = c->options->model.preset == NULL ? "tiny" : c->options->model.preset;
    if (!ttt_recipe_preset(&c->recipe, preset, ttt_mixer_name(c->config.mixer), &error))
        return ttt_failed(&error);
    c->recipe.sequence_length = c->task.time;
    c->recipe.batch_tokens = c->task.time * c->task.batch;
    c->task.recipe = &c->recipe;
    c->task.train.accumulation = c->options->accumulation;
    return ttt_recipe_check(&c->recipe, &error) ? NULL : ttt_failed(&error);
}

static pjrt_status *choose(compiling *c)
{
    const compile_options *o = c->options;
    PJRT_TRY(model_options_config(&o->model, &c->config));
    int64_t split = ttt_mesh_size(&c->mesh, "data") * ttt_mesh_size(&c->mesh, "fsdp");
    program_task(&o->program, &c->task);
    c->task.batch = o->batch == 0 ? split : o->batch;
    c->task.time = o->context == 0 ? 2048 : o->context;
    if (o->accumulation != 0 && c->task.kind != TTT_TASK_TRAIN)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "--accumulation is for --step train");
    return c->task.kind == TTT_TASK_TRAIN ? choose_recipe(c) : NULL;
}

/* A mesh is all of the target, so that the figures are those of a machine there is. */
static pjrt_status *check_mesh(const compiling *c)
{
    int64_t devices = ttt_mesh_devices(&c->mesh);
    const pjrt_topology *topology = c->result.topology;
    if (c->mesh.n == 0 || topology == NULL)
        return NULL;
    if (devices != (int64_t)pjrt_topology_num_devices(topology))
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "--mesh %s is %lld chips, %s has %zu: the mesh must be all of them",
                         c->options->program.mesh, (long long)devices, c->options->target,
                         pjrt_topology_num_devices(topology));
    return NULL;
}

static pjrt_status *build(compiling *c)
{
    ttt_graph graph;
    ttt_error error;
    double start = cmd_seconds();
    c->params = ttt_params_new(&c->config, c->options->program.layout, &error);
    if (c->params == NULL)
        return ttt_failed(&error);
    PJRT_TRY(ttt_task_build(&c->task, &c->config, c->params, &c->mesh, &graph));
    pjrt_status *st = ttt_graph_text(&graph, &c->text);
    ttt_graph_free(&graph);
    c->build_seconds = cmd_seconds() - start;
    if (st == NULL && c->options->emit != NULL)
        st = cmd_write_file(c->options->emit, c->text, strlen(c->text));
    return st;
}

static pjrt_status *compile(compiling *c)
{
    const compile_options *o = c->options;
    PJRT_TRY(choose(c));
    PJRT_TRY(compiled_open(&c->result, o->target));
    PJRT_TRY(check_mesh(c));
    c->task.matrix_sums = strcmp(c->result.target->plugin, "tpu") == 0;
    if (o->kernels && ttt_mesh_devices(&c->mesh) == 1)
        PJRT_TRY(ttt_calls_register(c->result.plugin, c->result.target->plugin, &c->task.calls));
    if (o->kernels && c->task.calls == TTT_CALL_NONE)
        return PJRT_FAIL(UNIMPLEMENTED, "ttt", "there are no kernels for %s and this mesh",
                         o->target);
    PJRT_TRY(build(c));
    pjrt_compile_options how = {.partitions = (int)ttt_mesh_devices(&c->mesh),
                                .overrides = o->overrides.list,
                                .n_overrides = o->overrides.count};
    return compiled_make(&c->result, pjrt_program_text(c->text), &how, o->save, o->optimized);
}

/* One token at a time has one form. */
static const char *form_of(const compiling *c)
{
    return c->task.kind == TTT_TASK_DECODE ? "primal" : program_form(&c->options->program);
}

static json_t *mesh_json(const ttt_mesh *mesh)
{
    json_t *json = json_object();
    for (int i = 0; i < mesh->n; i++)
        json_object_set_new(json, mesh->names[i], json_integer(mesh->sizes[i]));
    return json;
}

static json_t *text_or_null(const char *text)
{
    return text == NULL ? json_null() : json_string(text);
}

static int print_json(const compiling *c)
{
    const compile_options *o = c->options;
    json_t *about =
        json_pack("{s:s, s:s, s:I, s:o, s:I, s:I, s:s, s:s, s:s, s:s, s:f, s:I, s:f, s:o, s:o}",
                  "step", o->step, "mixer", ttt_mixer_name(c->config.mixer), "parameters",
                  (json_int_t)c->params->elements, "mesh", mesh_json(&c->mesh), "batch",
                  (json_int_t)c->task.batch, "context", (json_int_t)c->task.time, "form",
                  form_of(c), "dtype", hlo_type_name(o->program.dtype), "layers",
                  program_layers(&o->program), "remat", program_remat(&o->program), "build_seconds",
                  c->build_seconds, "text_bytes", (json_int_t)strlen(c->text),
                  "cycles_in_mini_batch_loops", compiled_cycles_under(&c->result, "learn"),
                  "emitted", text_or_null(o->emit), "saved", text_or_null(o->save));
    json_t *figures = compiled_json(&c->result);
    if (json_object_update(about, figures) != 0) {
        json_decref(about);
        about = NULL;
    }
    json_decref(figures);
    return cmd_print_json(about);
}

static void print_text(const compiling *c)
{
    const compile_options *o = c->options;
    double cycles = c->result.report->total.cycles;
    printf("%s of %lld parameters, %lld x %lld tokens, %s, %s, layers %s: built in %.2f s, %s of "
           "text\n",
           ttt_mixer_name(c->config.mixer), (long long)c->params->elements,
           (long long)c->task.batch, (long long)c->task.time, form_of(c),
           hlo_type_name(o->program.dtype), program_layers(&o->program), c->build_seconds,
           cmd_quantity((double)strlen(c->text), "B"));
    compiled_print(&c->result, o->top == 0 ? 8 : o->top);
    if (cycles > 0)
        printf("in the learners' loops over mini-batches: %s, %.0f%%\n",
               cmd_quantity(compiled_cycles_under(&c->result, "learn"), "cycles"),
               100 * compiled_cycles_under(&c->result, "learn") / cycles);
    if (o->emit != NULL)
        printf("written to %s\n", o->emit);
    if (o->save != NULL)
        printf("saved to %s\n", o->save);
}

static void free_compiling(compiling *c)
{
    compiled_free(&c->result);
    free(c->text);
    ttt_params_free(c->params);
}

static int check_use(const cmd_operands *operands, const compile_options *o, compiling *c)
{
    if (operands->count > 0)
        return cmd_wrong_use(&spec, "what is \"%s\"?", operands->items[0]);
    if (!find_step(o->step, &c->task.kind))
        return cmd_wrong_use(&spec, "--step must be train, eval, forward or decode");
    if (o->target == NULL)
        return cmd_wrong_use(&spec,
                             "--target is missing; ttt hlo compile --target list shows them");
    pjrt_status *st = ttt_mesh_parse(o->program.mesh, &c->mesh);
    int code = st == NULL ? -1 : cmd_wrong_use(&spec, "--mesh: %s", pjrt_status_message(st));
    pjrt_status_free(st);
    return code;
}

int cmd_compile(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    compile_options chosen = {.program = PROGRAM_DEFAULTS};
    compiling c = {.options = &chosen};
    int code = cmd_parse(&spec, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = check_use(&operands, &chosen, &c);
    if (code < 0) {
        pjrt_status *st = compile(&c);
        if (st != NULL)
            code = cmd_fail(&common, st);
        else if (common.json)
            code = print_json(&c);
        else
            print_text(&c);
        free_compiling(&c);
    }
    hlo_overrides_free(&chosen.overrides);
    return code < 0 ? CMD_OK : code;
}
