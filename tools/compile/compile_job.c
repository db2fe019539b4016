/* A network's program for a target: chosen, built, compiled, told about. */
#include "tools/compile/compile_job.h"

#include "runtime/train/ttt_trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 2048, TOP = 8 };

static const struct {
    const char *name;
    ttt_program_kind kind;
} steps[] = {
    {"train", TTT_PROGRAM_TRAIN},    {"eval", TTT_PROGRAM_LOSS},
    {"forward", TTT_PROGRAM_LOGITS}, {"prefill", TTT_PROGRAM_EXTEND},
    {"decode", TTT_PROGRAM_DECODE},
};

static bool find_step(const char *name, ttt_program_kind *kind)
{
    for (size_t i = 0; name != NULL && i < sizeof steps / sizeof *steps; i++) {
        if (strcmp(steps[i].name, name) == 0) {
            *kind = steps[i].kind;
            return true;
        }
    }
    return false;
}

const char *compile_step_name(int index)
{
    return (size_t)index < sizeof steps / sizeof *steps ? steps[index].name : NULL;
}

bool compile_step_exists(const char *name)
{
    ttt_program_kind kind;
    return find_step(name, &kind);
}

/* ---- choosing ----------------------------------------------------------------------------------
 */

/* The recipe shapes the program little: any preset's will do for a folder's configuration. */
static pjrt_status *choose_recipe(compile_job *job)
{
    ttt_error error;
    const char *preset = job->options->model.preset == NULL ? "tiny" : job->options->model.preset;
    if (!ttt_recipe_preset(&job->recipe, preset, ttt_mixer_name(job->config.mixer), &error))
        return ttt_failed(&error);
    job->recipe.sequence_length = job->desc.time;
    job->recipe.batch_tokens = job->desc.time * job->desc.batch;
    job->desc.recipe = &job->recipe;
    job->desc.train.accumulation = job->options->accumulation;
    return ttt_recipe_check(&job->recipe, &error) ? NULL : ttt_failed(&error);
}

/* --batch, --batch-tokens, or one sequence for each part of the mesh that has its own. */
static pjrt_status *choose_batch(compile_job *job)
{
    const compile_options *o = job->options;
    int64_t time = job->desc.time;
    job->desc.batch = ttt_mesh_size(&job->mesh, "data") * ttt_mesh_size(&job->mesh, "fsdp");
    if (o->batch != 0)
        job->desc.batch = o->batch;
    if (o->batch_tokens == 0)
        return NULL;
    if (o->batch != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "--batch or --batch-tokens, not both");
    if (job->desc.kind == TTT_PROGRAM_DECODE)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "--step decode makes one token of each sequence: give --batch");
    if (o->batch_tokens % time != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "--batch-tokens %d is no multiple of the context, %lld", o->batch_tokens,
                         (long long)time);
    job->desc.batch = o->batch_tokens / time;
    return NULL;
}

pjrt_status *compile_job_choose(compile_job *job)
{
    const compile_options *o = job->options;
    ttt_error error;
    if (!find_step(o->step, &job->desc.kind))
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "--step must be " COMPILE_STEPS);
    PJRT_TRY(ttt_mesh_parse(o->program.mesh, &job->mesh));
    PJRT_TRY(model_options_config(&o->model, &job->config));
    program_task(&o->program, &job->desc);
    job->desc.time = o->context == 0 ? CONTEXT : o->context;
    PJRT_TRY(choose_batch(job));
    job->params = ttt_params_new(&job->config, o->program.layout, &error);
    if (job->params == NULL)
        return ttt_failed(&error);
    if (o->accumulation != 0 && job->desc.kind != TTT_PROGRAM_TRAIN)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "--accumulation is for --step train");
    return job->desc.kind == TTT_PROGRAM_TRAIN ? choose_recipe(job) : NULL;
}

/* ---- compiling ---------------------------------------------------------------------------------
 */

/* A mesh is all of the target, so that the figures are those of a machine there is. */
static pjrt_status *check_mesh(const compile_job *job)
{
    int64_t devices = ttt_mesh_devices(&job->mesh);
    const pjrt_topology *topology = job->result.topology;
    if (job->mesh.n == 0 || topology == NULL)
        return NULL;
    if (devices != (int64_t)pjrt_topology_num_devices(topology))
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "--mesh %s is %lld chips, %s has %zu: the mesh must be all of them",
                         job->options->program.mesh, (long long)devices, job->options->target,
                         pjrt_topology_num_devices(topology));
    return NULL;
}

static pjrt_status *build(compile_job *job)
{
    ttt_graph graph;
    double start = cmd_seconds();
    PJRT_TRY(ttt_build_graph(&job->desc, &job->config, job->params, &job->mesh, &graph));
    pjrt_status *st = ttt_graph_text(&graph, &job->text);
    ttt_graph_free(&graph);
    job->build_seconds = cmd_seconds() - start;
    if (st == NULL && job->options->emit != NULL)
        st = cmd_write_file(job->options->emit, job->text, strlen(job->text));
    return st;
}

static pjrt_status *use_kernels(compile_job *job)
{
    if (ttt_mesh_devices(&job->mesh) == 1)
        PJRT_TRY(
            ttt_kernels_register(job->result.plugin, job->result.target->plugin, &job->desc.calls));
    if (job->desc.calls == TTT_KERNEL_NONE)
        return PJRT_FAIL(UNIMPLEMENTED, "ttt", "there are no kernels for %s and this mesh",
                         job->options->target);
    return NULL;
}

pjrt_status *compile_job_run(compile_job *job)
{
    const compile_options *o = job->options;
    PJRT_TRY(compile_job_choose(job));
    PJRT_TRY(compiled_open(&job->result, o->target));
    PJRT_TRY(check_mesh(job));
    ttt_program_desc_fit(&job->desc, job->result.target->plugin);
    if (o->kernels)
        PJRT_TRY(use_kernels(job));
    PJRT_TRY(build(job));
    pjrt_compile_options how = {.partitions = (int)ttt_mesh_devices(&job->mesh),
                                .overrides = o->overrides.list,
                                .n_overrides = o->overrides.count};
    return compiled_make(&job->result, pjrt_program_text(job->text), &how, o->save, o->optimized);
}

void compile_job_free(compile_job *job)
{
    compiled_free(&job->result);
    free(job->text);
    ttt_params_free(job->params);
    *job = (compile_job){0};
}

/* ---- telling -----------------------------------------------------------------------------------
 */

/* One token at a time has one form. */
static const char *form_of(const compile_job *job)
{
    return job->desc.kind == TTT_PROGRAM_DECODE ? "primal" : program_form(&job->options->program);
}

/* Training is a forward and a backward pass, which is twice as much; others are forward alone. */
roofline_work compile_job_work(const compile_job *job)
{
    double training = ttt_flops_per_token(&job->config, job->params, job->desc.time);
    bool train = job->desc.kind == TTT_PROGRAM_TRAIN, decode = job->desc.kind == TTT_PROGRAM_DECODE;
    return (roofline_work){
        .tokens = (double)job->desc.batch * (decode ? 1 : (double)job->desc.time),
        .model_flops = train ? training : training / 3,
    };
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

json_t *compile_job_json(const compile_job *job)
{
    const compile_options *o = job->options;
    roofline_work work = compile_job_work(job);
    json_t *about = json_pack(
        "{s:s, s:o, s:s, s:I, s:o, s:I, s:I, s:s, s:s, s:s, s:s, s:f, s:I, s:f, s:o, s:o}", "step",
        o->step, "preset", text_or_null(o->model.preset), "mixer",
        ttt_mixer_name(job->config.mixer), "parameters", (json_int_t)job->params->elements, "mesh",
        mesh_json(&job->mesh), "batch", (json_int_t)job->desc.batch, "context",
        (json_int_t)job->desc.time, "form", form_of(job), "dtype", hlo_type_name(o->program.dtype),
        "layers", program_layers(&o->program), "remat", program_remat(&o->program), "build_seconds",
        job->build_seconds, "text_bytes", (json_int_t)strlen(job->text),
        "cycles_in_mini_batch_loops", compiled_cycles_under(&job->result, "learn"), "emitted",
        text_or_null(o->emit), "saved", text_or_null(o->save));
    json_t *figures = compiled_json(&job->result, &work);
    if (json_object_update(about, figures) != 0) {
        json_decref(about);
        about = NULL;
    }
    json_decref(figures);
    return about;
}

void compile_job_print(const compile_job *job)
{
    const compile_options *o = job->options;
    double cycles = job->result.report->total.cycles;
    roofline_work work = compile_job_work(job);
    printf("%s of %lld parameters, %lld x %lld tokens, %s, %s, layers %s: built in %.2f s, %s of "
           "text\n",
           ttt_mixer_name(job->config.mixer), (long long)job->params->elements,
           (long long)job->desc.batch, (long long)job->desc.time, form_of(job),
           hlo_type_name(o->program.dtype), program_layers(&o->program), job->build_seconds,
           cmd_quantity((double)strlen(job->text), "B"));
    compiled_print(&job->result, &work, o->top == 0 ? TOP : o->top);
    if (cycles > 0)
        printf("in the learners' loops over mini-batches: %s, %.0f%%\n",
               cmd_quantity(compiled_cycles_under(&job->result, "learn"), "cycles"),
               100 * compiled_cycles_under(&job->result, "learn") / cycles);
    if (o->emit != NULL)
        printf("written to %s\n", o->emit);
    if (o->save != NULL)
        printf("saved to %s\n", o->save);
}
