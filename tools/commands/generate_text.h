/* What `ttt generate` and `ttt run` share: prompts in, text out, whatever the model was opened
 * from. */
#ifndef TOOLS_COMMANDS_GENERATE_TEXT_H
#define TOOLS_COMMANDS_GENERATE_TEXT_H

#include "tools/commands/generate_options.h"

typedef struct text_options {
    ttt_sampling sampling;
    text_list prompts, stops;
    const char *file, *state_in, *state_out;
    int most;
    bool logprobs, ignore_eos;
} text_options;
#define TEXT_DEFAULTS ((text_options){.sampling = SAMPLING_DEFAULTS})

#define TEXT_OPTIONS(type, member)                                             \
    CMD_GROUP("the text"),                                                     \
        {"prompt",                                                             \
         "TEXT",                                                               \
         CMD_CUSTOM,                                                           \
         offsetof(type, member.prompts),                                       \
         "what the text goes on from",                                         \
         .repeats = true,                                                      \
         .set = text_list_add,                                                 \
         .what = "one of at most 64"},                                         \
        {"file", "FILE", CMD_FILE, offsetof(type, member.file),                \
         "a file with the prompt; - is standard input"},                       \
        {"max-tokens",                                                         \
         "N",                                                                  \
         CMD_NUMBER,                                                           \
         offsetof(type, member.most),                                          \
         "how many to make, at most",                                          \
         .usual = "256",                                                       \
         .most = 1 << 30},                                                     \
        {"stop",                                                               \
         "TEXT",                                                               \
         CMD_CUSTOM,                                                           \
         offsetof(type, member.stops),                                         \
         "ends it, and is not printed",                                        \
         .repeats = true,                                                      \
         .set = text_list_add,                                                 \
         .what = "one of at most 64"},                                         \
        {"ignore-eos", NULL, CMD_FLAG, offsetof(type, member.ignore_eos),      \
         "the end of a document does not end it"},                             \
        {"logprobs", NULL, CMD_FLAG, offsetof(type, member.logprobs),          \
         "every token with the logarithm of its probability, after the text"}, \
        {"state-in", "FILE", CMD_FILE, offsetof(type, member.state_in),        \
         "go on from a state; the prompt is what follows"},                    \
        {"state-out", "FILE", CMD_FILE, offsetof(type, member.state_out),      \
         "keep the state at the end, of one prompt"},                          \
        SAMPLING_OPTIONS(type, member.sampling)

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
