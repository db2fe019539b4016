/* ttt generate: text that goes on from a prompt, or from several side by side. */
#include "tools/generating.h"

#include <string.h>

typedef struct generate_options {
    engine_choice engine;
    text_options text;
} generate_options;

static const cmd_option options[] = {
    ENGINE_OPTIONS(generate_options, engine),
    TEXT_OPTIONS(generate_options, text),
};
static const char help[] =
    "usage: ttt generate --model DIR (--prompt TEXT … | --file F | -) [options]\n"
    "\n"
    "Text that goes on from a prompt, printed as it comes; \"-\" reads the prompt from standard\n"
    "input. Several prompts are continued side by side and printed when all are "
    "done.\n" ENGINE_OPTIONS_HELP TEXT_OPTIONS_HELP "\n"
    "example: ttt generate --model run --prompt \"Once upon a time\" --max-tokens 100 --seed 7\n";
static const cmd_spec spec = {"generate", help, options, sizeof options / sizeof *options};

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

int cmd_generate(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    generate_options chosen = {.text = TEXT_DEFAULTS};
    int code = cmd_parse(&spec, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count == 1 && strcmp(operands.items[0], "-") == 0 && chosen.text.file == NULL) {
        chosen.text.file = "-";
        operands.count = 0;
    }
    if (operands.count > 0)
        return cmd_wrong_use(&spec, "what is \"%s\"?", operands.items[0]);
    if (chosen.engine.model == NULL)
        return cmd_wrong_use(&spec, "--model is missing");
    code = text_check(&spec, &chosen.text);
    if (code >= 0)
        return code;
    text_model how = {open_tokenizer, open_engine, about, &chosen.engine};
    return text_run(&common, &chosen.text, &how);
}
