/* What the commands that read and make text share: a model on its devices with its tokenizer, and
 * the options that choose them. */
#ifndef TOOLS_COMMANDS_GENERATE_OPTIONS_H
#define TOOLS_COMMANDS_GENERATE_OPTIONS_H

#include "runtime/bundle/ttt_bundle.h"
#include "tools/cli/model_options.h"

enum { GENERATE_MOST_TEXTS = 64 };

typedef struct text_list {
    const char *list[GENERATE_MOST_TEXTS];
    int count;
} text_list;
bool text_list_add(const char *text, void *field);

typedef struct engine_choice {
    const char *model, *tokenizer, *cache;
    hlo_type dtype, weights;
    int context, span;
    bool no_kernels;
} engine_choice;

#define ENGINE_OPTION_MODEL(type, member)                                                         \
    {                                                                                             \
        "model", "DIR", CMD_FOLDER, offsetof(type, member.model),                                 \
            "a folder with config.json and model.safetensors, or of a run: its newest checkpoint" \
    }
#define ENGINE_OPTION_TOKENIZER(type, member)                                                     \
    {                                                                                             \
        "tokenizer", "FILE", CMD_FILE, offsetof(type, member.tokenizer),                          \
            "bytes, or a tokenizer's file; default: the one beside the model, or beside its run", \
            .choices = CMD_WORDS("bytes"), .open = true                                           \
    }
#define ENGINE_OPTION_DTYPE(type, member)                                                      \
    {                                                                                          \
        "dtype", "T", CMD_CUSTOM, offsetof(type, member.dtype), "of activations and products", \
            .usual = "f32", .choices = CMD_WORDS("f32", "bf16"), .set = model_set_type         \
    }
#define ENGINE_OPTION_WEIGHTS(type, member, text)                                            \
    {                                                                                        \
        "weights", "T", CMD_CUSTOM, offsetof(type, member.weights), text,                    \
            .usual = "f32", .choices = CMD_WORDS("f32", "bf16", "s8"), .set = model_set_type \
    }
#define ENGINE_OPTION_SPAN(type, member)                                                  \
    {                                                                                     \
        "span", "N", CMD_NUMBER, offsetof(type, member.span),                             \
            "tokens that reading takes at once, at most", .usual = "512", .most = 1 << 20 \
    }
#define ENGINE_OPTIONS(type, member)                                                               \
    CMD_GROUP("the model"), ENGINE_OPTION_MODEL(type, member),                                     \
        ENGINE_OPTION_TOKENIZER(type, member), ENGINE_OPTION_DTYPE(type, member),                  \
        ENGINE_OPTION_WEIGHTS(type, member,                                                        \
                              "of matrices in memory: f32, bf16 or s8, which is a quarter of the " \
                              "memory and of the time of a token"),                                \
        {"no-kernels", NULL, CMD_FLAG, offsetof(type, member.no_kernels),                          \
         "leave all to the compiler"},                                                             \
        {"context",                                                                                \
         "N",                                                                                      \
         CMD_NUMBER,                                                                               \
         offsetof(type, member.context),                                                           \
         "the longest sequence that attention remembers; others need none",                        \
         .most = 1 << 30},                                                                         \
        ENGINE_OPTION_SPAN(type, member), CMD_OPTION_CACHE(type, member.cache)

#define SAMPLING_OPTIONS(type, member)                                                             \
    CMD_GROUP("the choice of tokens"),                                                             \
        {"temperature",                                                                            \
         "X",                                                                                      \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.temperature),                                                       \
         "0: always the likeliest token",                                                          \
         .usual = "0.8",                                                                           \
         .set = sampling_set_real,                                                                 \
         .what = "a number"},                                                                      \
        {"top-k",                                                                                  \
         "N",                                                                                      \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.top_k),                                                             \
         "of the N likeliest; 0: of all",                                                          \
         .usual = "0",                                                                             \
         .set = sampling_set_count,                                                                \
         .what = "a number of tokens"},                                                            \
        {"top-p",                                                                                  \
         "X",                                                                                      \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.top_p),                                                             \
         "of the likeliest that together have this share",                                         \
         .usual = "0.95",                                                                          \
         .set = sampling_set_real,                                                                 \
         .what = "a number"},                                                                      \
        {"min-p",                                                                                  \
         "X",                                                                                      \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.min_p),                                                             \
         "of those at least this share as likely as the likeliest",                                \
         .usual = "0",                                                                             \
         .set = sampling_set_real,                                                                 \
         .what = "a number"},                                                                      \
        {"repetition-penalty",                                                                     \
         "X",                                                                                      \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.repetition),                                                        \
         "on tokens of the last --repetition-window; 1: none",                                     \
         .usual = "1",                                                                             \
         .set = sampling_set_real,                                                                 \
         .what = "a number"},                                                                      \
        {"repetition-window",                                                                      \
         "N",                                                                                      \
         CMD_CUSTOM,                                                                               \
         offsetof(type, member.window),                                                            \
         "the tokens that --repetition-penalty looks back to",                                     \
         .usual = "64",                                                                            \
         .set = sampling_set_count,                                                                \
         .what = "a number of tokens"},                                                            \
    {                                                                                              \
        "seed", "N", CMD_CUSTOM, offsetof(type, member.seed), "the same seed gives the same text", \
            .usual = "0", .set = cmd_set_seed, .what = "a whole number from 0"                     \
    }
bool sampling_set_real(const char *text, void *field);
bool sampling_set_count(const char *text, void *field);
#define SAMPLING_DEFAULTS ((ttt_sampling){.temperature = 0.8, .top_p = 0.95})

/* A model that can be talked to. */
typedef struct generator {
    ttt_devices *devices;
    char *folder;       /* of the model */
    ttt_bundle *bundle; /* that it is from, or NULL */
    ttt_bundle_use use;
    ttt_config config;
    ttt_tokenizer *tokenizer;
    ttt_encoder *encoder;
    ttt_engine *engine;
} generator;

/* The tokenizer first: what it is for may be known before weights are loaded. */
PJRT_MUST_CHECK pjrt_status *generator_tokenizer(generator *g, const engine_choice *choice);
/* The engine. `context`: what attention needs to remember, unless --context says more; it is
 * rounded up. */
PJRT_MUST_CHECK pjrt_status *generator_open(generator *g, const cmd_common *common,
                                            const engine_choice *choice, int64_t batch,
                                            int64_t context);
void generator_free(generator *g);
/* Text, which must be UTF-8, as tokens; at the start of a sequence with BOS, if there is one. */
PJRT_MUST_CHECK pjrt_status *generator_encode(generator *g, const char *text, size_t size,
                                              bool start, ttt_ids *ids);

#endif
