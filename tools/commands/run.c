/* ttt run: text from a bundle, on whatever machine it was brought to. */
#include "tools/commands/generate_text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct run_options {
    const char *bundle, *model, *cache;
    bool rebuild;
    text_options text;
} run_options;

#define AT(member) offsetof(run_options, member)
static const cmd_option operands_list[] = {
    {"BUNDLE", NULL, CMD_FOLDER, 0, "a folder that ttt export made"},
    {"-", NULL, CMD_TEXT, 0, "read the prompt from standard input"},
};
static const cmd_option options[] = {
    TEXT_OPTIONS(run_options, text),
    CMD_GROUP("the bundle"),
    {"model", "DIR", CMD_FOLDER, AT(model), "the weights, of a bundle that has none"},
    {"rebuild", NULL, CMD_FLAG, AT(rebuild), "build the programs even where there are executables"},
    CMD_OPTION_CACHE(run_options, cache),
};
static int run_command(int argc, char **argv);
const cmd_spec cmd_run = {
    .name = "run",
    .summary = "text that goes on from a prompt, by a bundle",
    .usage = "BUNDLE (--prompt TEXT … | --file F | -) [options]",
    .about = "Text that goes on from a prompt, by a bundle that ttt export made. All of the bundle "
             "is checked first. Its executables are used when they were made by this plugin for "
             "this kind of machine; else its programs are built from StableHLO, and a line says "
             "so. As many prompts are continued side by side as the bundle was made for.",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .example = "ttt run run.bundle --prompt \"Once upon a time\" --max-tokens 100 --seed 7",
    .plugin = CMD_PLUGIN,
    .run = run_command,
};

static pjrt_status *open_tokenizer(generator *g, const void *choice)
{
    const run_options *o = choice;
    PJRT_TRY(ttt_bundle_open(o->bundle, &g->bundle));
    PJRT_TRY(ttt_bundle_tokenizer(g->bundle, &g->tokenizer));
    return ttt_encoder_new(g->tokenizer, &g->encoder);
}

static pjrt_status *open_engine(generator *g, const cmd_common *common, const void *choice,
                                int64_t batch, int64_t context)
{
    char path[PATH_MAX];
    const run_options *o = choice;
    int64_t slots = ttt_bundle_info(g->bundle)->batch;
    (void)context;
    if (batch > slots)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "%lld prompts, and %s continues %lld side by side: export it with --batch",
                         (long long)batch, o->bundle, (long long)slots);
    PJRT_TRY(ttt_devices_open(common->plugin, NULL, &g->devices));
    const char *cache = cmd_program_cache(o->cache, path);
    if (cache != NULL)
        PJRT_TRY(ttt_devices_cache(g->devices, cache));
    ttt_bundle_options how = {.model = o->model, .rebuild = o->rebuild};
    PJRT_TRY(ttt_bundle_engine(g->bundle, g->devices, &how, &g->use, &g->engine));
    if (g->use.target == NULL)
        fprintf(stderr, "no executables are used, programs are built from StableHLO: %s\n",
                g->use.why);
    return NULL;
}

static json_t *about(const generator *g)
{
    return json_pack("{s:s, s:s?, s:b, s:s}", "bundle", ttt_bundle_path(g->bundle), "target",
                     g->use.target, "rebuilt", g->use.target == NULL, "why", g->use.why);
}

static int run_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    run_options chosen = {.text = TEXT_DEFAULTS};
    int code = cmd_parse(&cmd_run, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count == 2 && strcmp(operands.items[1], "-") == 0 && chosen.text.file == NULL) {
        chosen.text.file = "-";
        operands.count = 1;
    }
    if (operands.count == 0)
        return cmd_wrong_use(&cmd_run, "which bundle?");
    if (operands.count > 1)
        return cmd_wrong_use(&cmd_run, "what is \"%s\"?", operands.items[1]);
    chosen.bundle = operands.items[0];
    code = text_check(&cmd_run, &chosen.text);
    if (code >= 0)
        return code;
    text_model how = {open_tokenizer, open_engine, about, &chosen};
    return text_run(&common, &chosen.text, &how);
}
