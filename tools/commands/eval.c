/* ttt eval: the loss of a model on prepared data. */
#include "runtime/train/ttt_trainer.h"
#include "tools/cli/job_options.h"
#include "tools/cli/model_options.h"
#include "tools/cli/progress.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct eval_options {
    const char *model, *data, *split, *by_position, *cache;
    int context, batch, sequences, span;
    ttt_eval_path path;
    program_options program;
    world_options job;
} eval_options;

static const char *const paths[] = {[TTT_EVAL_DUAL] = "dual",
                                    [TTT_EVAL_PRIMAL] = "primal",
                                    [TTT_EVAL_STREAM] = "stream",
                                    [TTT_EVAL_DECODE] = "decode",
                                    NULL};

#define AT(member) offsetof(eval_options, member)
static const cmd_option options[] = {
    {"model", "DIR", CMD_FOLDER, AT(model),
     "a folder with config.json and model.safetensors, or of a run: its newest checkpoint"},
    {"data", "DIR", CMD_FOLDER, AT(data), "what ttt data prepare wrote"},
    {"split", "S", CMD_TEXT, AT(split), "which part of it: validation or train",
     .usual = "validation", .choices = CMD_WORDS("validation", "train"), .open = true},
    {"context", "N", CMD_NUMBER, AT(context),
     "tokens of a sequence; it may be longer than in training", .usual = "1024", .most = 1 << 30},
    {"sequences", "N", CMD_NUMBER, AT(sequences), "at most so many", .usual = "all",
     .most = 1 << 30},
    {"batch", "N", CMD_NUMBER, AT(batch), "sequences at once", .usual = "1", .most = 1 << 20},
    {"by-position", "FILE", CMD_FILE, AT(by_position),
     "write the loss at each index of a sequence there, as lines index,loss,perplexity"},
    {"path", "P", CMD_CHOICE, AT(path),
     "how sequences go through the network; all agree but for rounding. dual: whole; stream: spans "
     "of --span tokens with the state between, in memory that does not grow with the context; "
     "decode: half of it by spans, the rest as text is generated; primal: token by token",
     .usual = "dual", .choices = paths},
    {"span", "N", CMD_NUMBER, AT(span), "tokens of a span, of --path stream and decode",
     .most = 1 << 24},
    PROGRAM_OPTION_DTYPE(eval_options, program, "of activations and products", "f32", "bf16",
                         "f64"),
    PROGRAM_OPTION_MESH(eval_options, program,
                        "over several devices, virtual ones of the CPU: data=2,fsdp=2"),
    CMD_OPTION_CACHE(eval_options, cache),
    JOB_OPTIONS(eval_options, job),
};
static int eval_command(int argc, char **argv);
const cmd_spec cmd_eval = {
    .name = "eval",
    .summary = "the loss and perplexity of a model on prepared data",
    .usage = "--model DIR --data DIR [options]",
    .about = "Loss and perplexity of a model on prepared data: sequences of --context tokens, one "
             "after another, every token given those before it.",
    CMD_OPTIONS(options),
    .example = "ttt eval --model run --data prepared --context 4096 --path stream --span 512",
    .plugin = CMD_PLUGIN,
    .run = eval_command,
};

/* What must be released at the end, however far it got. */
typedef struct evaluating {
    const eval_options *options;
    const cmd_common *common;
    ttt_job *job;
    ttt_devices *devices;
    ttt_model *model;
    ttt_dataset *data;
    ttt_evaluator *evaluator;
    ttt_evaluation result;
    char *folder;
    progress_line line;
    double seconds;
} evaluating;

static bool progress(void *ctx, int64_t done, int64_t all)
{
    evaluating *e = ctx;
    bool speaks = !e->common->json && ttt_job_rank(e->job) == 0;
    if (speaks && progress_due(&e->line))
        progress_show(&e->line, "%lld/%lld sequences", (long long)done, (long long)all);
    if (done == all)
        progress_end(&e->line);
    return true;
}

static pjrt_status *open_model(evaluating *e)
{
    const eval_options *o = e->options;
    ttt_mesh mesh;
    char cache[PATH_MAX];
    hlo_type type = o->program.dtype == HLO_F64 ? HLO_F64 : HLO_F32;
    PJRT_TRY(ttt_mesh_parse(o->program.mesh, &mesh));
    PJRT_TRY(ttt_model_folder(o->model, &e->folder));
    PJRT_TRY(ttt_devices_open_job(e->common->plugin, &mesh, e->job, &e->devices));
    const char *folder = cmd_program_cache(o->cache, cache);
    if (folder != NULL)
        PJRT_TRY(ttt_devices_cache(e->devices, folder));
    return ttt_model_load(e->devices, e->folder, TTT_STACKED, type, &e->model);
}

static pjrt_status *evaluate(evaluating *e)
{
    const eval_options *o = e->options;
    PJRT_TRY(ttt_dataset_open(o->data, o->split == NULL ? "validation" : o->split, &e->data));
    PJRT_TRY(open_model(e));
    const ttt_dataset_about *about = ttt_dataset_info(e->data);
    if (about->vocab > e->model->config.vocab_size)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "the data has tokens up to %lld, the model knows %lld",
                         (long long)about->vocab - 1, (long long)e->model->config.vocab_size);
    ttt_evaluator_options how = {.batch = o->batch == 0 ? 1 : o->batch,
                                 .time = o->context == 0 ? 1024 : o->context,
                                 .path = o->path,
                                 .span = o->span,
                                 .compute = o->program.dtype,
                                 .masked_label = about->bos};
    PJRT_TRY(
        ttt_evaluator_new(e->devices, &e->model->config, e->model->params, &how, &e->evaluator));
    double start = cmd_seconds();
    PJRT_TRY(ttt_evaluator_run(e->evaluator, e->model->weights, e->data, o->sequences, progress, e,
                               &e->result));
    e->seconds = cmd_seconds() - start;
    return NULL;
}

static pjrt_status *write_positions(const evaluating *e)
{
    const ttt_evaluation *v = &e->result;
    size_t room = 32 + (size_t)v->time * 80, used = 0;
    char *text = malloc(room);
    if (text == NULL)
        return PJRT_NO_MEMORY("ttt");
    used += (size_t)snprintf(text, room, "index,loss,perplexity\n");
    for (int64_t i = 0; i < v->time && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%lld,%.6f,%.6g\n", (long long)i,
                                 v->by_position[i], exp(v->by_position[i]));
    pjrt_status *st = cmd_write_file(e->options->by_position, text, used);
    free(text);
    return st;
}

static int show(const evaluating *e)
{
    const ttt_evaluation *v = &e->result;
    double perplexity = exp(v->loss), rate = (double)(v->sequences * v->time) / e->seconds;
    if (e->common->json)
        return cmd_print_json(json_pack(
            "{s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:o, s:s, s:f, s:f}", "model", e->folder,
            "sequences", (json_int_t)v->sequences, "context", (json_int_t)v->time, "tokens",
            (json_int_t)v->tokens, "loss", v->loss, "loss_error", cmd_json_number(v->error),
            "perplexity", perplexity, "perplexity_error", cmd_json_number(perplexity * v->error),
            "path", paths[e->options->path], "seconds", e->seconds, "tokens_per_second", rate));
    printf("%s: loss %.4f ± %.4f, perplexity %.3f ± %.3f over %lld sequences of %lld tokens (%.0f "
           "tok/s)\n",
           e->folder, v->loss, v->error, perplexity, perplexity * v->error, (long long)v->sequences,
           (long long)v->time, rate);
    if (e->options->by_position != NULL)
        printf("by position: %s\n", e->options->by_position);
    return CMD_OK;
}

/* The first of several processes alone has anything to say. */
static pjrt_status *run(evaluating *e, int *code)
{
    PJRT_TRY(evaluate(e));
    if (ttt_job_rank(e->job) != 0)
        return NULL;
    if (e->options->by_position != NULL)
        PJRT_TRY(write_positions(e));
    *code = show(e);
    return NULL;
}

static int eval_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    eval_options chosen = {.program = PROGRAM_DEFAULTS, .job = WORLD_DEFAULTS};
    evaluating e = {.options = &chosen, .common = &common, .line = progress_begin()};
    int code = cmd_parse(&cmd_eval, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = world_check_use(&cmd_eval, &chosen.job);
    if (code >= 0)
        return code;
    if (operands.count > 0)
        return cmd_wrong_use(&cmd_eval, "what is \"%s\"?", operands.items[0]);
    if (chosen.model == NULL || chosen.data == NULL)
        return cmd_wrong_use(&cmd_eval, "--%s is missing", chosen.model == NULL ? "model" : "data");
    code = CMD_OK;
    pjrt_status *st = world_join(&chosen.job, &common, &e.job);
    if (st == NULL)
        st = run(&e, &code);
    if (st != NULL) {
        code = cmd_fail(&common, st);
        world_abandon(e.job);
    }
    ttt_evaluation_free(&e.result);
    ttt_evaluator_free(e.evaluator);
    ttt_model_free(e.model);
    ttt_dataset_free(e.data);
    ttt_devices_free(e.devices);
    free(e.folder);
    world_leave(e.job);
    return code;
}
