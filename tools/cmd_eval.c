/* ttt eval: the loss of a model on prepared data. */
#include "runtime/ttt_trainer.h"
#include "tools/model_options.h"
#include "tools/progress.h"
#include "tools/world_options.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct eval_options {
    const char *model, *data, *split, *by_position, *cache;
    int context, batch, sequences, span;
    ttt_eval_path path;
    program_options program;
    world_options world;
} eval_options;

static const char *const paths[] = {[TTT_EVAL_DUAL] = "dual",
                                    [TTT_EVAL_PRIMAL] = "primal",
                                    [TTT_EVAL_STREAM] = "stream",
                                    [TTT_EVAL_DECODE] = "decode"};

static bool set_path(const char *text, void *field)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (strcmp(text, paths[i]) == 0) {
            *(ttt_eval_path *)field = (ttt_eval_path)i;
            return true;
        }
    }
    return false;
}

#define AT(member) offsetof(eval_options, member)
static const cmd_option options[] = {
    {"model", "", CMD_TEXT, AT(model), 0, NULL},
    {"data", "", CMD_TEXT, AT(data), 0, NULL},
    {"split", "", CMD_TEXT, AT(split), 0, NULL},
    {"by-position", "", CMD_TEXT, AT(by_position), 0, NULL},
    {"cache", "", CMD_TEXT, AT(cache), 0, NULL},
    {"context", "a number of tokens", CMD_NUMBER, AT(context), .most = 1 << 30},
    {"batch", "a number of sequences", CMD_NUMBER, AT(batch), .most = 1 << 20},
    {"sequences", "a number of sequences", CMD_NUMBER, AT(sequences), .most = 1 << 30},
    {"span", "a number of tokens", CMD_NUMBER, AT(span), .most = 1 << 24},
    {"path", "dual, primal, stream or decode", CMD_CUSTOM, AT(path), 0, set_path},
    {"dtype", "f32, bf16 or f64", CMD_CUSTOM, AT(program.dtype), 0, program_set_dtype},
    {"mesh", "", CMD_TEXT, AT(program.mesh), 0, NULL},
    WORLD_OPTIONS(eval_options, world),
};
static const char help[] =
    "usage: ttt eval --model DIR --data DIR [options]\n"
    "\n"
    "Loss and perplexity of a model on prepared data: sequences of --context tokens, one after\n"
    "another, every token given those before it.\n"
    "  --model DIR        a folder with config.json and model.safetensors, or of a run: its "
    "newest\n"
    "                     checkpoint\n"
    "  --data DIR         what ttt data prepare wrote\n"
    "  --split S          validation (default), or train\n"
    "  --context N        tokens of a sequence (1024); it may be longer than in training\n"
    "  --sequences N      at most so many; default: all\n"
    "  --batch N          sequences at once (1)\n"
    "  --by-position F    the loss at each index of a sequence, as lines index,loss,perplexity\n"
    "  --path P           how sequences go through the network; all agree but for rounding.\n"
    "                     dual (default): whole; stream: spans of --span N tokens with the state\n"
    "                     between, in memory that does not grow with the context; decode: half of\n"
    "                     it by spans, the rest as text is generated; primal: token by token\n"
    "  --dtype T          of activations and products: f32 (default), bf16 or f64\n"
    "  --mesh M           over several devices, virtual ones of the CPU: data=2,fsdp=2\n"
    "  --cache DIR        of compiled programs; none\n"
    "  --plugin P         cpu (default), tpu, cuda or a path\n" WORLD_OPTIONS_HELP "\n"
    "example: ttt eval --model run --data prepared --context 4096 --path stream --span 512\n";
static const cmd_spec spec = {"eval", help, options, sizeof options / sizeof *options};

/* What must be released at the end, however far it got. */
typedef struct evaluating {
    const eval_options *options;
    const cmd_common *common;
    ttt_world *world;
    ttt_place *place;
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
    bool speaks = !e->common->json && ttt_world_rank(e->world) == 0;
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
    PJRT_TRY(ttt_place_open_world(e->common->plugin, &mesh, e->world, &e->place));
    const char *folder = cmd_program_cache(o->cache, cache);
    if (folder != NULL)
        PJRT_TRY(ttt_place_cache(e->place, folder));
    return ttt_model_load(e->place, e->folder, TTT_STACKED, type, &e->model);
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
    PJRT_TRY(ttt_evaluator_new(e->place, &e->model->config, e->model->params, &how, &e->evaluator));
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
    if (ttt_world_rank(e->world) != 0)
        return NULL;
    if (e->options->by_position != NULL)
        PJRT_TRY(write_positions(e));
    *code = show(e);
    return NULL;
}

int cmd_eval(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    eval_options chosen = {.program = PROGRAM_DEFAULTS, .world = WORLD_DEFAULTS};
    evaluating e = {.options = &chosen, .common = &common, .line = progress_begin()};
    int code = cmd_parse(&spec, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = world_check_use(&spec, &chosen.world);
    if (code >= 0)
        return code;
    if (operands.count > 0)
        return cmd_wrong_use(&spec, "what is \"%s\"?", operands.items[0]);
    if (chosen.model == NULL || chosen.data == NULL)
        return cmd_wrong_use(&spec, "--%s is missing", chosen.model == NULL ? "model" : "data");
    code = CMD_OK;
    pjrt_status *st = world_join(&chosen.world, &common, &e.world);
    if (st == NULL)
        st = run(&e, &code);
    if (st != NULL) {
        code = cmd_fail(&common, st);
        world_abandon(e.world);
    }
    ttt_evaluation_free(&e.result);
    ttt_evaluator_free(e.evaluator);
    ttt_model_free(e.model);
    ttt_dataset_free(e.data);
    ttt_place_free(e.place);
    free(e.folder);
    world_leave(e.world);
    return code;
}
