/* The options that choose a network, the same for every subcommand that has one. */
#ifndef TOOLS_CLI_MODEL_OPTIONS_H
#define TOOLS_CLI_MODEL_OPTIONS_H

#include "runtime/device/ttt_device.h"
#include "tools/cli/cmd.h"

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
/* For .choice: the presets and the mixers that there are. */
const char *model_preset_name(int index);
const char *model_mixer_word(int index);
/* An hlo_type from "f32", "bf16", "f64" or "s8"; .choices says which of them will do. */
bool model_set_type(const char *text, void *field);

/* The rows for cmd_spec.options; `member` is the model_options in the options struct. */
#define MODEL_OPTION_SETS(type, member, text)                                                    \
    {                                                                                            \
        "set", "FIELD=VALUE", CMD_CUSTOM, offsetof(type, member), text,                          \
            .repeats = true, .set = model_sets_add, .what = "FIELD=VALUE, or there are too many" \
    }
#define MODEL_OPTION_FOLDER(type, member, text)                        \
    {                                                                  \
        "model", "DIR", CMD_FOLDER, offsetof(type, member.model), text \
    }
#define MODEL_OPTIONS_NAMED(type, member)                                                   \
    {"preset",                                                                              \
     "P",                                                                                   \
     CMD_TEXT,                                                                              \
     offsetof(type, member.preset),                                                         \
     "a network of known sizes",                                                            \
     .choice = model_preset_name},                                                          \
        {"mixer",                                                                           \
         "M",                                                                               \
         CMD_TEXT,                                                                          \
         offsetof(type, member.mixer),                                                      \
         "what mixes tokens in its layers",                                                 \
         .usual = "ttt_linear",                                                             \
         .choice = model_mixer_word},                                                       \
    {                                                                                       \
        "backbone", "B", CMD_TEXT, offsetof(type, member.backbone), "the blocks around it", \
            .usual = "mamba", .choices = CMD_WORDS("mamba", "transformer")                  \
    }
#define MODEL_OPTIONS(type, member)                                                           \
    CMD_GROUP("the network"), MODEL_OPTIONS_NAMED(type, member),                              \
        MODEL_OPTION_FOLDER(type, member, "the config.json of a folder instead of a preset"), \
        MODEL_OPTION_SETS(type, member.sets, "change a field of it")

/* How a network becomes a program, the same for every subcommand that builds one. */
typedef struct program_options {
    ttt_form form;
    hlo_type dtype;
    ttt_layout layout;
    ttt_remat remat;
    const char *mesh;
} program_options;
#define PROGRAM_DEFAULTS ((program_options){.dtype = HLO_F32, .layout = TTT_STACKED})

extern const char *const program_forms[], *const program_layouts[], *const program_remats[];

#define PROGRAM_OPTION_DTYPE(type, member, text, ...)                                \
    {                                                                                \
        "dtype", "T", CMD_CUSTOM, offsetof(type, member.dtype), text,                \
            .usual = "f32", .choices = CMD_WORDS(__VA_ARGS__), .set = model_set_type \
    }
#define PROGRAM_OPTION_MESH(type, member, text)                  \
    {                                                            \
        "mesh", "M", CMD_TEXT, offsetof(type, member.mesh), text \
    }
#define PROGRAM_OPTIONS(type, member)                                                           \
    {"form",                                                                                    \
     "F",                                                                                       \
     CMD_CHOICE,                                                                                \
     offsetof(type, member.form),                                                               \
     "dual: mini-batches as matrix products; primal: token by token, as when generating; "      \
     "matrix: dual as it is for TPUs, in chunks and with sums as products",                     \
     .usual = "dual",                                                                           \
     .choices = program_forms},                                                                 \
        PROGRAM_OPTION_DTYPE(type, member,                                                      \
                             "of activations and products: f32 or bf16; f64: of all there is, " \
                             "for comparisons on the CPU",                                      \
                             "f32", "bf16", "f64"),                                             \
    {                                                                                           \
        "layers", "L", CMD_CHOICE, offsetof(type, member.layout),                               \
            "stacked: a loop over the layers; separate: one by one", .usual = "stacked",        \
                                                                     .choices = program_layouts \
    }
#define PROGRAM_OPTION_REMAT(type, member)                                                      \
    {                                                                                           \
        "remat", "R", CMD_CHOICE, offsetof(type, member.remat),                                 \
            "what the backward pass computes again", .usual = "some", .choices = program_remats \
    }

/* The words of these options as they would be written: "dual", "f32", "stacked", "some". */
const char *program_form(const program_options *options);
const char *program_layers(const program_options *options);
const char *program_remat(const program_options *options);
/* What the options say of a task. */
void program_task(const program_options *options, ttt_program_desc *desc);

/* Applies --set; unknown and contradictory fields are refused. */
PJRT_MUST_CHECK pjrt_status *model_sets_apply(const model_sets *sets, ttt_config *config);
/* The configuration that the options describe, checked. */
PJRT_MUST_CHECK pjrt_status *model_options_config(const model_options *options, ttt_config *config);

#endif
