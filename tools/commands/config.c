/* ttt config: what networks there are, and one of them in full. */
#include "tools/cli/model_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of parameters; 0 for a combination that there is not. */
static int64_t parameters(const char *preset, ttt_mixer mixer, const char *backbone)
{
    ttt_config config;
    ttt_error error;
    int64_t count = 0;
    if (!ttt_config_preset(&config, preset, ttt_mixer_name(mixer), backbone, &error))
        return 0;
    ttt_params *params = ttt_params_new(&config, TTT_SEPARATE, &error);
    if (params != NULL)
        count = params->elements;
    ttt_params_free(params);
    return count;
}

static int list_command(int argc, char **argv);
static const cmd_spec config_list = {
    .name = "config list",
    .summary = "the presets with their numbers of parameters",
    .usage = "[--json]",
    .about = "The presets, and their numbers of parameters with every mixer and backbone.",
    .example = "ttt config list",
    .run = list_command,
};

static int list(const cmd_common *common)
{
    static const char *const backbones[] = {"transformer", "mamba"};
    size_t count;
    const char *const *presets = ttt_config_presets(&count);
    json_t *rows = json_array();
    if (!common->json)
        printf("%-14s %-17s %-12s %15s\n", "preset", "mixer", "backbone", "parameters");
    for (size_t i = 0; i < count; i++) {
        for (int mixer = 0; ttt_mixer_name((ttt_mixer)mixer) != NULL; mixer++) {
            for (int b = 0; b < 2; b++) {
                const char *name = ttt_mixer_name((ttt_mixer)mixer);
                int64_t n = parameters(presets[i], (ttt_mixer)mixer, backbones[b]);
                if (n == 0)
                    continue;
                if (common->json)
                    json_array_append_new(
                        rows, json_pack("{s:s, s:s, s:s, s:I}", "preset", presets[i], "mixer", name,
                                        "backbone", backbones[b], "parameters", (json_int_t)n));
                else
                    printf("%-14s %-17s %-12s %15lld\n", presets[i], name, backbones[b],
                           (long long)n);
            }
        }
    }
    if (common->json)
        return cmd_print_json(json_pack("{s:o}", "presets", rows));
    json_decref(rows);
    return CMD_OK;
}

static int list_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    int code = cmd_parse(&config_list, argc, argv, &common, NULL, &operands);
    if (code < 0 && operands.count > 0)
        code = cmd_wrong_use(&config_list, "what is \"%s\"?", operands.items[0]);
    return code < 0 ? list(&common) : code;
}

/* ---- show --------------------------------------------------------------------------------------
 */

typedef struct options {
    model_options model;
    bool hf;
} options;

static const cmd_option option_list[] = {
    MODEL_OPTIONS(options, model),
    CMD_GROUP("how it is shown"),
    {"hf", NULL, CMD_FLAG, offsetof(options, hf), "as Hugging Face's config.json"},
};
static int show_command(int argc, char **argv);
static const cmd_spec config_show = {
    .name = "config show",
    .summary = "all fields of a configuration, and its number of parameters",
    .usage = "--preset P [--mixer M] [--backbone B] [--set FIELD=VALUE …]",
    .about = "All fields of a configuration as JSON, and its number of parameters.",
    CMD_OPTIONS(option_list),
    .example = "ttt config show --preset 1.3b --set n_layers=12",
    .json = "it is JSON in any case",
    .run = show_command,
};

static int show(const cmd_common *common, const options *chosen)
{
    ttt_config config;
    ttt_error error;
    pjrt_status *st = model_options_config(&chosen->model, &config);
    if (st != NULL)
        return cmd_fail(common, st);
    char *text = chosen->hf ? ttt_config_text(&config, &error) : ttt_config_show(&config, &error);
    if (text == NULL)
        return cmd_fail(common, ttt_failed(&error));
    bool ok = puts(text) != EOF && fflush(stdout) == 0;
    free(text);
    return ok ? CMD_OK : CMD_FAILED;
}

static int show_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    options chosen = {0};
    int code = cmd_parse(&config_show, argc, argv, &common, &chosen, &operands);
    if (code < 0 && operands.count > 0)
        code = cmd_wrong_use(&config_show, "what is \"%s\"?", operands.items[0]);
    return code < 0 ? show(&common, &chosen) : code;
}

const cmd_spec cmd_config = {
    .name = "config",
    .summary = "the networks there are, and one of them in full",
    .usage = "list\n"
             "show --preset P [--mixer M] [--backbone B] [--set FIELD=VALUE …]",
    .about = "The networks there are, and one of them in full.",
    .commands = (const cmd_spec *const[]){&config_list, &config_show, NULL},
};
