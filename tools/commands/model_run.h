/* One run of a model over some tokens: what `ttt logits` and `ttt grads` share. */
#ifndef TOOLS_COMMANDS_MODEL_RUN_H
#define TOOLS_COMMANDS_MODEL_RUN_H

#include "tools/cli/model_options.h"

typedef struct int_list {
    int32_t *list; /* owned */
    int64_t count;
} int_list;
/* "1,4,7" or "1 4 7"; false for anything else. */
bool int_list_parse(const char *text, void *field);

typedef struct model_run_options {
    const char *model, *tokens_file, *out;
    int_list tokens, resets;
    program_options program;
} model_run_options;

#define MODEL_RUN_OPTIONS(type, member, out_help)                                                  \
    {"model", "DIR", CMD_FOLDER, offsetof(type, member.model),                                     \
     "a folder with config.json and model.safetensors"},                                           \
        {"tokens",                                                                                 \
         "LIST",                                                                                   \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.tokens),                                                            \
         "token numbers: 1,4,7",                                                                   \
         .set = int_list_parse,                                                                    \
         .what = "a list of token numbers, as in 1,4,7"},                                          \
        {"tokens-file", "FILE", CMD_FILE, offsetof(type, member.tokens_file),                      \
         "the same from a file, with commas or blanks between; - is standard input"},              \
        {"resets",                                                                                 \
         "LIST",                                                                                   \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.resets),                                                            \
         "positions (from 0) where documents start: nothing before is seen from there on",         \
         .set = int_list_parse,                                                                    \
         .what = "a list of positions, as in 0,5,9"},                                              \
        {"out", "FILE", CMD_FILE, offsetof(type, member.out), out_help}, CMD_GROUP("the program"), \
        PROGRAM_OPTIONS(type, member.program),                                                     \
        PROGRAM_OPTION_MESH(                                                                       \
            type, member.program,                                                                  \
            "over several devices, virtual ones of the CPU: data=2,fsdp=2,model=2")

/* What must be released at the end, however far it got. */
typedef struct model_run {
    const model_run_options *options;
    ttt_program_desc desc;
    ttt_devices *devices;
    ttt_model *model;
    ttt_program *program;
    ttt_array *inputs[3];
    int n_inputs;
    ttt_array **results;
    double load_seconds, compile_seconds, run_seconds;
} model_run;

/* Checks what is given: -1, or the exit code after saying what is missing. */
int model_run_check(const cmd_spec *spec, const cmd_operands *operands,
                    const model_run_options *options);
/* Loads, builds, compiles, runs, and waits for the end. Of `run` only the program's kind and
 * diagnostics are given. */
PJRT_MUST_CHECK pjrt_status *model_run_go(model_run *run, const cmd_common *common,
                                          const model_run_options *options);
void model_run_free(model_run *run);
void model_run_options_free(model_run_options *options);
/* Result `index` on the host; the caller frees it. */
PJRT_MUST_CHECK pjrt_status *model_run_result(const model_run *run, int index, void **data);
/* The times, as a JSON object that the caller adds to. */
json_t *model_run_json(const model_run *run);

#endif
