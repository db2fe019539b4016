/* ttt export: a model as a bundle that runs elsewhere. */
#include "tools/generate_options.h"

#include <stdio.h>
#include <string.h>

typedef struct export_options {
    engine_choice engine;
    const char *out;
    text_list targets;
    int batch;
    bool no_weights, no_targets;
} export_options;

#define AT(member) offsetof(export_options, member)
static const cmd_option options[] = {
    {"model", "", CMD_TEXT, AT(engine.model), 0, NULL},
    {"tokenizer", "", CMD_TEXT, AT(engine.tokenizer), 0, NULL},
    {"out", "", CMD_TEXT, AT(out), 0, NULL},
    {"target", "one of at most 64", CMD_CUSTOM, AT(targets), 0, text_list_add},
    {"no-targets", "", CMD_FLAG, AT(no_targets), 0, NULL},
    {"batch", "a number of sequences", CMD_NUMBER, AT(batch), 1 << 20, NULL},
    {"span", "a number of tokens", CMD_NUMBER, AT(engine.span), 1 << 20, NULL},
    {"context", "a number of tokens", CMD_NUMBER, AT(engine.context), 1 << 30, NULL},
    {"weights", "f32, bf16 or s8", CMD_CUSTOM, AT(engine.weights), 0, engine_set_weights},
    {"dtype", "f32 or bf16", CMD_CUSTOM, AT(engine.dtype), 0, engine_set_dtype},
    {"no-kernels", "", CMD_FLAG, AT(engine.no_kernels), 0, NULL},
    {"no-weights", "", CMD_FLAG, AT(no_weights), 0, NULL},
};
static const char help[] =
    "usage: ttt export --model DIR --out BUNDLE [--target T …] [options]\n"
    "\n"
    "A folder with all that generating needs: network, weights, tokenizer, the programs as\n"
    "portable StableHLO, and compiled for each target. ttt run takes it, and so does libttt. It\n"
    "is there whole or not at all.\n"
    "  --model DIR        a folder with config.json and model.safetensors, or of a run: its\n"
    "                     newest checkpoint\n"
    "  --out BUNDLE       the folder to make; nothing may be there yet\n"
    "  --target T         compile for it: cpu, tpu:v5e:2x2, cuda:a100-sxm-40gb … (ttt hlo compile\n"
    "                     --target list prints them); may be repeated; default cpu\n"
    "  --no-targets       StableHLO alone\n"
    "  --batch N          sequences side by side (1)\n"
    "  --span N           tokens that reading takes at once, at most (512)\n"
    "  --context N        the longest sequence that attention remembers (2048); others need none\n"
    "  --weights T        of matrices in memory: f32 (default), bf16 or s8; the files stay as "
    "they\n"
    "                     are, and are packed when they are loaded\n"
    "  --dtype T          of activations and products: f32 (default) or bf16\n"
    "  --no-kernels       executables leave all to the compiler too\n"
    "  --no-weights       without them; ttt run --model then says where they are\n"
    "  --tokenizer F      bytes or a tokenizer's file; default: the one beside the model, or\n"
    "                     beside its run\n"
    "  --plugin P         the plugin of the target cpu, by its path\n"
    "\n"
    "example: ttt export --model run --out run.bundle --target cpu --target tpu:v5e:2x2\n";
static const cmd_spec spec = {"export", help, options, sizeof options / sizeof *options};

static void hear(void *ctx, const char *line)
{
    const cmd_common *common = ctx;
    if (!common->json)
        fprintf(stderr, "%s\n", line);
}

static json_t *file_json(const ttt_bundle_file *file)
{
    return json_pack("{s:s, s:I, s:s}", "name", file->name, "size", (json_int_t)file->size,
                     "xxh3_128", file->hash);
}

static int show(const cmd_common *common, const ttt_bundle *bundle, double seconds)
{
    const ttt_bundle_about *about = ttt_bundle_info(bundle);
    json_t *files = json_array(), *programs = json_array(), *targets = json_array();
    int64_t bytes = 0;
    for (int i = 0; i < about->n_files; i++) {
        bytes += about->files[i].size;
        json_array_append_new(files, file_json(&about->files[i]));
    }
    for (int i = 0; i < about->n_programs; i++)
        json_array_append_new(programs, json_string(about->programs[i].name));
    for (int i = 0; i < about->n_targets; i++)
        json_array_append_new(targets, json_string(about->targets[i].name));
    if (common->json)
        return cmd_print_json(json_pack(
            "{s:s, s:I, s:s, s:s, s:o, s:o, s:o, s:f}", "bundle", ttt_bundle_path(bundle), "bytes",
            (json_int_t)bytes, "model", about->model, "stablehlo", about->stablehlo, "programs",
            programs, "targets", targets, "files", files, "seconds", seconds));
    printf("%s: %s in %d files, %d programs as StableHLO %s and for %d target%s, in %.1f s\n",
           ttt_bundle_path(bundle), cmd_quantity((double)bytes, "B"), about->n_files,
           about->n_programs, about->stablehlo, about->n_targets, about->n_targets == 1 ? "" : "s",
           seconds);
    json_decref(files);
    json_decref(programs);
    json_decref(targets);
    return CMD_OK;
}

static int export_model(const cmd_common *common, export_options *o)
{
    ttt_bundle *bundle = NULL;
    double start = cmd_seconds();
    if (o->targets.count == 0 && !o->no_targets)
        text_list_add("cpu", &o->targets);
    ttt_export_options how = {.model = o->engine.model,
                              .tokenizer = o->engine.tokenizer,
                              .targets = o->targets.list,
                              .n_targets = o->targets.count,
                              .cpu_plugin = common->plugin,
                              .engine = {.batch = o->batch,
                                         .context = o->engine.context,
                                         .span = o->engine.span,
                                         .compute = o->engine.dtype,
                                         .weights = o->engine.weights,
                                         .no_kernels = o->engine.no_kernels},
                              .no_weights = o->no_weights,
                              .hear = hear,
                              .ctx = (void *)common};
    pjrt_status *st = ttt_bundle_write(o->out, &how);
    if (st == NULL)
        st = ttt_bundle_open(o->out, &bundle);
    int code = st != NULL ? cmd_fail(common, st) : show(common, bundle, cmd_seconds() - start);
    ttt_bundle_free(bundle);
    return code;
}

int cmd_export(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    export_options chosen = {0};
    int code = cmd_parse(&spec, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count > 0)
        return cmd_wrong_use(&spec, "what is \"%s\"?", operands.items[0]);
    if (chosen.engine.model == NULL)
        return cmd_wrong_use(&spec, "--model is missing");
    if (chosen.out == NULL || chosen.out[0] == '\0')
        return cmd_wrong_use(&spec, "--out is missing");
    if (chosen.no_targets && chosen.targets.count > 0)
        return cmd_wrong_use(&spec, "--target or --no-targets, not both");
    return export_model(&common, &chosen);
}
