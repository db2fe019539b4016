/* ttt generate: text that goes on from a prompt, or from several side by side. */
#include "tools/commands/generate_text.h"

#include <string.h>

typedef struct generate_options {
    engine_choice engine;
    text_options text;
} generate_options;

static const cmd_option operands_list[] = {
    {"-", NULL, CMD_TEXT, 0, "read the prompt from standard input"},
};
static const cmd_option options[] = {
    TEXT_OPTIONS(generate_options, text),
    ENGINE_OPTIONS(generate_options, engine),
};
static int generate_command(int argc, char **argv);
const cmd_spec cmd_generate = {
    .name = "generate",
    .summary = "text that goes on from a prompt",
    .usage = "--model DIR (--prompt TEXT … | --file F | -) [options]",
    .about =
        "Text that goes on from a prompt, printed as it comes; \"-\" reads the prompt from "
        "standard input. Several prompts are continued side by side and printed when all are done.",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .example = "ttt generate --model run --prompt \"Once upon a time\" --max-tokens 100 --seed 7",
    .plugin = CMD_PLUGIN,
    .run = generate_command,
};

static pjrt_status *open_tokenizer(generator *g, const void *choice)
{
    return generator_tokenizer(g, choice);
}

static pjrt_status *open_engine(generator *g, const cmd_common *common, const void *choice,
                                int64_t batch, int64_t context)
{
    return generator_open(g, common, choice, batch, context);
}

static json_t *about(const generator *g)
{
    return json_pack("{s:s}", "model", g->folder);
}

static int generate_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    generate_options chosen = {.text = TEXT_DEFAULTS};
    int code = cmd_parse(&cmd_generate, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count == 1 && strcmp(operands.items[0], "-") == 0 && chosen.text.file == NULL) {
        chosen.text.file = "-";
        operands.count = 0;
    }
    if (operands.count > 0)
        return cmd_wrong_use(&cmd_generate, "what is \"%s\"?", operands.items[0]);
    if (chosen.engine.model == NULL)
        return cmd_wrong_use(&cmd_generate, "--model is missing");
    code = text_check(&cmd_generate, &chosen.text);
    if (code >= 0)
        return code;
    text_model how = {open_tokenizer, open_engine, about, &chosen.engine};
    return text_run(&common, &chosen.text, &how);
}
