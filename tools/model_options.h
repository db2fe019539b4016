/* The options that choose a network, the same for every subcommand that has one. */
#ifndef TOOLS_MODEL_OPTIONS_H
#define TOOLS_MODEL_OPTIONS_H

#include "model/ttt_model.h"
#include "tools/cmd.h"

enum { MODEL_MAX_SETS = 64 };

typedef struct model_sets {
    const char *list[MODEL_MAX_SETS]; /* "field=value" */
    int count;
} model_sets;

typedef struct model_options {
    const char *model; /* a folder with config.json; else a preset */
    const char *preset, *mixer, *backbone;
    model_sets sets;
} model_options;

bool model_sets_add(const char *text, void *field);

/* The rows for cmd_spec.options; `member` is the model_options in the options struct. */
#define MODEL_OPTION_SETS(type, member)                                                     \
    {                                                                                       \
        "set", "FIELD=VALUE, or there are too many", CMD_CUSTOM, offsetof(type, member), 0, \
            model_sets_add                                                                  \
    }
#define MODEL_OPTIONS(type, member)                                           \
    {"model", "", CMD_TEXT, offsetof(type, member.model), 0, NULL},           \
        {"preset", "", CMD_TEXT, offsetof(type, member.preset), 0, NULL},     \
        {"mixer", "", CMD_TEXT, offsetof(type, member.mixer), 0, NULL},       \
        {"backbone", "", CMD_TEXT, offsetof(type, member.backbone), 0, NULL}, \
        MODEL_OPTION_SETS(type, member.sets)
/* What --help says of them. */
#define MODEL_OPTIONS_HELP                                                                     \
    "  --preset P         125m, 350m, 760m, 1.3b, 1.3b-matched, small or tiny\n"               \
    "  --mixer M          ttt_linear (default), ttt_mlp, attention, linear_attention, mamba\n" \
    "  --backbone B       mamba (default) or transformer\n"                                    \
    "  --model DIR        the config.json of a folder instead of a preset\n"                   \
    "  --set FIELD=VALUE  change a field; may be repeated\n"

/* Applies --set; unknown and contradictory fields are refused. */
PJRT_MUST_CHECK pjrt_status *model_sets_apply(const model_sets *sets, ttt_config *config);
/* The configuration that the options describe, checked. */
PJRT_MUST_CHECK pjrt_status *model_options_config(const model_options *options, ttt_config *config);
/* An error of the model room as a status. */
PJRT_MUST_CHECK pjrt_status *model_failed(const ttt_error *error);

#endif
