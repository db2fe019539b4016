/* ttt export: a model as a bundle that runs elsewhere. */
#include "tools/commands/generate_options.h"

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
    ENGINE_OPTION_MODEL(export_options, engine),
    ENGINE_OPTION_TOKENIZER(export_options, engine),
    {"out", "BUNDLE", CMD_FOLDER, AT(out), "the folder to make; nothing may be there yet"},
    {"target", "T", CMD_CUSTOM, AT(targets),
     "compile for it: cpu, tpu:v5e:2x2, cuda:a100-sxm-40gb … (ttt hlo compile --target list prints "
     "them)",
     .usual = "cpu", .choice = cmd_target_name, .open = true, .repeats = true, .set = text_list_add,
     .what = "one of at most 64"},
    {"no-targets", NULL, CMD_FLAG, AT(no_targets), "StableHLO alone"},
    {"no-weights", NULL, CMD_FLAG, AT(no_weights),
     "without them; ttt run --model then says where they are"},
    CMD_GROUP("the programs"),
    {"batch", "N", CMD_NUMBER, AT(batch), "sequences side by side", .usual = "1", .most = 1 << 20},
    ENGINE_OPTION_SPAN(export_options, engine),
    {"context", "N", CMD_NUMBER, AT(engine.context),
     "the longest sequence that attention remembers; others need none", .usual = "2048",
     .most = 1 << 30},
    ENGINE_OPTION_WEIGHTS(export_options, engine,
                          "of matrices in memory: f32, bf16 or s8; the files stay as they are, and "
                          "are packed when they are loaded"),
    ENGINE_OPTION_DTYPE(export_options, engine),
    {"no-kernels", NULL, CMD_FLAG, AT(engine.no_kernels),
     "executables leave all to the compiler too"},
};
static int export_command(int argc, char **argv);
const cmd_spec cmd_export = {
    .name = "export",
    .summary = "a model as a bundle that runs elsewhere",
    .usage = "--model DIR --out BUNDLE [--target T …] [options]",
    .about = "A folder with all that generating needs: network, weights, tokenizer, the programs "
             "as portable StableHLO, and compiled for each target. ttt run takes it, and so does "
             "libttt. It is there whole or not at all.",
    CMD_OPTIONS(options),
    .example = "ttt export --model run --out run.bundle --target cpu --target tpu:v5e:2x2",
    .plugin = "the plugin of the target cpu, by its path",
    .run = export_command,
};

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

static int export_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    export_options chosen = {0};
    int code = cmd_parse(&cmd_export, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count > 0)
        return cmd_wrong_use(&cmd_export, "what is \"%s\"?", operands.items[0]);
    if (chosen.engine.model == NULL)
        return cmd_wrong_use(&cmd_export, "--model is missing");
    if (chosen.out == NULL || chosen.out[0] == '\0')
        return cmd_wrong_use(&cmd_export, "--out is missing");
    if (chosen.no_targets && chosen.targets.count > 0)
        return cmd_wrong_use(&cmd_export, "--target or --no-targets, not both");
    return export_model(&common, &chosen);
}
