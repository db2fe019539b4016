/* What the commands that read and make text share: a model on its devices with its tokenizer, and
 * the options that choose them. */
#ifndef TOOLS_GENERATE_OPTIONS_H
#define TOOLS_GENERATE_OPTIONS_H

#include "runtime/ttt_bundle.h"
#include "tools/model_options.h"

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

#define ENGINE_OPTIONS(type, member)                                                             \
    {"model", "", CMD_TEXT, offsetof(type, member.model), 0, NULL},                              \
        {"tokenizer", "", CMD_TEXT, offsetof(type, member.tokenizer), 0, NULL},                  \
        {"cache", "", CMD_TEXT, offsetof(type, member.cache), 0, NULL},                          \
        {"dtype", "f32 or bf16", CMD_CUSTOM, offsetof(type, member.dtype), 0, engine_set_dtype}, \
        {"weights", "f32, bf16 or s8", CMD_CUSTOM, offsetof(type, member.weights),               \
         0,         engine_set_weights},                                                         \
        {"no-kernels", "", CMD_FLAG, offsetof(type, member.no_kernels), 0, NULL},                \
        {"context", "a number of tokens", CMD_NUMBER, offsetof(type, member.context), 1 << 30,   \
         NULL},                                                                                  \
    {                                                                                            \
        "span", "a number of tokens", CMD_NUMBER, offsetof(type, member.span), 1 << 20, NULL     \
    }
bool engine_set_dtype(const char *text, void *field);
bool engine_set_weights(const char *text, void *field);
#define ENGINE_OPTIONS_HELP                                                                      \
    "  --model DIR        a folder with config.json and model.safetensors, or of a run: its\n"   \
    "                     newest checkpoint\n"                                                   \
    "  --tokenizer F      bytes or a tokenizer's file; default: the one beside the model, or\n"  \
    "                     beside its run\n"                                                      \
    "  --dtype T          of activations and products: f32 (default) or bf16\n"                  \
    "  --weights T        of matrices in memory: f32 (default), bf16 or s8, which is a quarter " \
    "of\n"                                                                                       \
    "                     the memory and of the time of a token\n"                               \
    "  --no-kernels       leave all to the compiler\n"                                           \
    "  --context N        the longest sequence that attention remembers; others need none\n"     \
    "  --span N           tokens that reading takes at once, at most (512)\n"                    \
    "  --cache DIR        of compiled programs; none\n"                                          \
    "  --plugin P         cpu (default), tpu, cuda or a path\n"

#define SAMPLING_OPTIONS(type, member)                                                            \
    {"temperature",    "a number", CMD_CUSTOM, offsetof(type, member.temperature), 0,             \
     sampling_set_real},                                                                          \
        {"top-k", "a number of tokens", CMD_CUSTOM, offsetof(type, member.top_k),                 \
         0,       sampling_set_count},                                                            \
        {"top-p", "a number", CMD_CUSTOM, offsetof(type, member.top_p), 0, sampling_set_real},    \
        {"min-p", "a number", CMD_CUSTOM, offsetof(type, member.min_p), 0, sampling_set_real},    \
        {"repetition-penalty", "a number", CMD_CUSTOM, offsetof(type, member.repetition), 0,      \
         sampling_set_real},                                                                      \
        {"repetition-window", "a number of tokens", CMD_CUSTOM, offsetof(type, member.window), 0, \
         sampling_set_count},                                                                     \
    {                                                                                             \
        "seed", "a number", CMD_CUSTOM, offsetof(type, member.seed), 0, cmd_set_seed              \
    }
bool sampling_set_real(const char *text, void *field);
bool sampling_set_count(const char *text, void *field);
#define SAMPLING_OPTIONS_HELP                                                                \
    "  --temperature X    0: always the likeliest token; default 0.8\n"                      \
    "  --top-k N          of the N likeliest; 0: of all (default)\n"                         \
    "  --top-p X          of the likeliest that together have this share (0.95)\n"           \
    "  --min-p X          of those at least this share as likely as the likeliest (0)\n"     \
    "  --repetition-penalty X   on tokens of the last --repetition-window N (64); 1: none\n" \
    "  --seed N           the same seed gives the same text (0)\n"
#define SAMPLING_DEFAULTS ((ttt_sampling){.temperature = 0.8, .top_p = 0.95})

/* A model that can be talked to. */
typedef struct generator {
    ttt_place *place;
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
