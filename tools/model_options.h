/* The options that choose a network, the same for every subcommand that has one. */
#ifndef TOOLS_MODEL_OPTIONS_H
#define TOOLS_MODEL_OPTIONS_H

#include "runtime/ttt_runtime.h"
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

/* How a network becomes a program, the same for every subcommand that builds one. */
typedef struct program_options {
    ttt_form form;
    hlo_type dtype;
    ttt_layout layout;
    ttt_remat remat;
    const char *mesh;
} program_options;
#define PROGRAM_DEFAULTS ((program_options){.dtype = HLO_F32, .layout = TTT_STACKED})

bool program_set_form(const char *text, void *field);
bool program_set_dtype(const char *text, void *field);
bool program_set_layers(const char *text, void *field);
bool program_set_remat(const char *text, void *field);

#define PROGRAM_OPTIONS(type, member)                                                \
    {"form", "dual, primal or matrix", CMD_CUSTOM, offsetof(type, member.form),      \
     0,      program_set_form},                                                      \
        {"dtype", "f32, bf16 or f64", CMD_CUSTOM, offsetof(type, member.dtype),      \
         0,       program_set_dtype},                                                \
        {"layers", "stacked or separate", CMD_CUSTOM, offsetof(type, member.layout), \
         0,        program_set_layers},                                              \
    {                                                                                \
        "mesh", "", CMD_TEXT, offsetof(type, member.mesh), 0, NULL                   \
    }
#define PROGRAM_OPTION_REMAT(type, member)                                         \
    {                                                                              \
        "remat", "some, none or all", CMD_CUSTOM, offsetof(type, member.remat), 0, \
            program_set_remat                                                      \
    }
#define PROGRAM_OPTIONS_HELP                                                                       \
    "  --form F           dual (default): mini-batches as matrix products; primal: token by\n"     \
    "                     token, as when generating; matrix: dual as it is for TPUs, in chunks\n"  \
    "                     and with sums as products\n"                                             \
    "  --dtype T          of activations and products: f32 (default) or bf16; f64: of all there\n" \
    "                     is, for comparisons on the CPU\n"                                        \
    "  --layers L         stacked (default): a loop over the layers; separate: one by one\n"
#define PROGRAM_REMAT_HELP \
    "  --remat R          what the backward pass computes again: some (default), none, all\n"

/* The words of these options as they would be written: "dual", "f32", "stacked", "some". */
const char *program_form(const program_options *options);
const char *program_layers(const program_options *options);
const char *program_remat(const program_options *options);
/* What the options say of a task. */
void program_task(const program_options *options, ttt_task *task);

/* Applies --set; unknown and contradictory fields are refused. */
PJRT_MUST_CHECK pjrt_status *model_sets_apply(const model_sets *sets, ttt_config *config);
/* The configuration that the options describe, checked. */
PJRT_MUST_CHECK pjrt_status *model_options_config(const model_options *options, ttt_config *config);

#endif
