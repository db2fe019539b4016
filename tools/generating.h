/* What `ttt generate` and `ttt run` share: prompts in, text out, whatever the model was opened
 * from. */
#ifndef TOOLS_GENERATING_H
#define TOOLS_GENERATING_H

#include "tools/generate_options.h"

typedef struct text_options {
    ttt_sampling sampling;
    text_list prompts, stops;
    const char *file, *state_in, *state_out;
    int most;
    bool logprobs, ignore_eos;
} text_options;
#define TEXT_DEFAULTS ((text_options){.sampling = SAMPLING_DEFAULTS})

#define TEXT_OPTIONS(type, member)                                                                 \
    SAMPLING_OPTIONS(type, member.sampling),                                                       \
        {"prompt", "one of at most 64", CMD_CUSTOM, offsetof(type, member.prompts),                \
         0,        text_list_add},                                                                 \
        {"file", "", CMD_TEXT, offsetof(type, member.file), 0, NULL},                              \
        {"max-tokens", "a number of tokens", CMD_NUMBER, offsetof(type, member.most), 1 << 30,     \
         NULL},                                                                                    \
        {"stop", "one of at most 64", CMD_CUSTOM, offsetof(type, member.stops), 0, text_list_add}, \
        {"logprobs", "", CMD_FLAG, offsetof(type, member.logprobs), 0, NULL},                      \
        {"ignore-eos", "", CMD_FLAG, offsetof(type, member.ignore_eos), 0, NULL},                  \
        {"state-in", "", CMD_TEXT, offsetof(type, member.state_in), 0, NULL},                      \
    {                                                                                              \
        "state-out", "", CMD_TEXT, offsetof(type, member.state_out), 0, NULL                       \
    }
#define TEXT_OPTIONS_HELP                                                                      \
    "  --max-tokens N     how many to make, at most (256)\n" SAMPLING_OPTIONS_HELP             \
    "  --stop TEXT        ends it, and is not printed; may be repeated\n"                      \
    "  --ignore-eos       the end of a document does not end it\n"                             \
    "  --logprobs         every token with the logarithm of its probability, after the text\n" \
    "  --state-in F       go on from a state; the prompt is what follows\n"                    \
    "  --state-out F      keep the state at the end, of one prompt\n"

/* How a generator comes to be, first its tokenizer and then its engine, and what --json says of
 * it. */
typedef struct text_model {
    pjrt_status *(*tokenizer)(generator *g, const void *choice);
    pjrt_status *(*open)(generator *g, const cmd_common *common, const void *choice, int64_t batch,
                         int64_t context);
    json_t *(*about)(const generator *g);
    const void *choice;
} text_model;

/* -1, or the exit code after saying what is wrong. */
int text_check(const cmd_spec *spec, const text_options *options);
/* All of it; returns the exit code. */
int text_run(const cmd_common *common, const text_options *options, const text_model *how);

#endif
