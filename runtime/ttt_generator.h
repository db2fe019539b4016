/*
 * Generating: a model that reads and continues sequences, each of which has a state of its own.
 *
 *     #include "runtime/ttt_generator.h"
 *
 *     ttt_engine *engine = NULL;
 *     ttt_engine_options options = {.batch = 1};
 *     pjrt_status *st = ttt_engine_open(place, "folder-of-a-model", &options, &engine);
 *     if (!st) st = ttt_engine_feed(engine, 0, prompt, n_prompt, logits); // any length
 *     while (!st) {
 *         int32_t next = ttt_sample(&sampler, logits, …);
 *         st = ttt_engine_step(engine, &next, logits); // one token of every slot
 *     }
 *     ttt_engine_free(engine);
 *
 * The state of a sequence does not grow with its length (attention's does). It is a value: it can
 * be taken out of a slot, kept, copied, written to a file, and put into any slot of any engine of
 * the same model; the sequence then goes on as if nothing had been between.
 */
#ifndef RUNTIME_TTT_GENERATOR_H
#define RUNTIME_TTT_GENERATOR_H

#include "runtime/ttt_runtime.h"
#include "runtime/ttt_tokenizer.h"

/* ---- engines -----------------------------------------------------------------------------------
 */

typedef struct ttt_engine_options {
    int64_t batch;    /* slots: sequences side by side; 0: 1 */
    int64_t context;  /* the longest sequence that attention remembers; 0: 2048 */
    int64_t span;     /* tokens that reading takes at once; 0: 512 */
    hlo_type compute; /* of activations and products; none: f32 */
} ttt_engine_options;

typedef struct ttt_engine ttt_engine;
/* `folder` as ttt_model_load takes it. Programs come from the place's cache when it has one. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_open(const ttt_place *place, const char *folder,
                                             const ttt_engine_options *options, ttt_engine **out);
void ttt_engine_free(ttt_engine *engine);
const ttt_config *ttt_engine_config(const ttt_engine *engine);
int64_t ttt_engine_batch(const ttt_engine *engine);
/* Tokens that a slot's sequence has so far. */
int64_t ttt_engine_position(const ttt_engine *engine, int64_t slot);

/* The sequence of a slot starts anew. All do when the engine is opened. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_reset(ttt_engine *engine, int64_t slot);
/*
 * Reads tokens into a slot: whole mini-batches by the dual form, `span` tokens at once, what is
 * before and after them one by one. `logits` [vocab], when not NULL, receives what follows the
 * last. Memory does not grow with the number. The other slots stay as they are.
 */
PJRT_MUST_CHECK pjrt_status *ttt_engine_feed(ttt_engine *engine, int64_t slot,
                                             const int32_t *tokens, int64_t count, float *logits);
/* One token of every slot: tokens [batch] to logits [batch, vocab]. Slots that nobody uses are
 * given any token; their sequences are then lost. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_step(ttt_engine *engine, const int32_t *tokens,
                                             float *logits);

/* ---- states as values --------------------------------------------------------------------------
 */

/* A sequence so far, in the host's memory. It never changes. */
typedef struct ttt_state ttt_state;

typedef struct ttt_state_about {
    int64_t position; /* tokens */
    int64_t place;    /* of these, of the mini-batch that is not whole yet */
    const char *mixer;
    uint64_t model[2]; /* hash of the model it belongs to */
    int64_t bytes;     /* of its file */
} ttt_state_about;

PJRT_MUST_CHECK pjrt_status *ttt_engine_take(const ttt_engine *engine, int64_t slot,
                                             ttt_state **out);
/* A state of another model is refused with what differs. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_put(ttt_engine *engine, int64_t slot,
                                            const ttt_state *state);
void ttt_state_free(ttt_state *state);
const ttt_state_about *ttt_state_info(const ttt_state *state);
/*
 * A file: magic, version, a header in JSON (mixer, model hash, type, position, every part with its
 * shape), the parts, XXH3-128. On the boundary of a mini-batch the gradients' sums are zero and not
 * in it. Written under another name and renamed. Damage is DATA_LOSS with the reason, a newer
 * version FAILED_PRECONDITION.
 */
PJRT_MUST_CHECK pjrt_status *ttt_state_write(const ttt_state *state, const char *path);
PJRT_MUST_CHECK pjrt_status *ttt_state_read(const char *path, ttt_state **out);

/* ---- choosing the next token -------------------------------------------------------------------
 */

typedef struct ttt_sampling {
    double temperature; /* 0: the most likely one */
    int64_t top_k;      /* of the most likely so many; 0: of all */
    double top_p;       /* of the most likely that together have this share; 0 or 1: of all */
    double min_p;       /* of those at least this share as likely as the likeliest; 0: of all */
    double repetition;  /* divides logits of tokens seen before (multiplies negative ones); 0, 1:
                           no penalty */
    int64_t window;     /* how many tokens back they count as seen; 0: 64 */
    uint64_t seed;
} ttt_sampling;
/* What is out of range, by name. */
PJRT_MUST_CHECK pjrt_status *ttt_sampling_check(const ttt_sampling *sampling);

typedef struct ttt_sampler ttt_sampler;
PJRT_MUST_CHECK pjrt_status *ttt_sampler_new(const ttt_sampling *sampling, int64_t vocab,
                                             ttt_sampler **out);
void ttt_sampler_free(ttt_sampler *sampler);
/* Tokens that count as seen: of the prompt. Chosen ones are seen by themselves. */
void ttt_sampler_see(ttt_sampler *sampler, const int32_t *tokens, int64_t count);
/* The draw depends on the seed and the number of draws before alone. `logprob`, when not NULL:
 * the logarithm of its probability before any of the above. Logits that are not finite are an
 * error. */
PJRT_MUST_CHECK pjrt_status *ttt_sampler_next(ttt_sampler *sampler, const float *logits,
                                              int32_t *token, double *logprob);

/* ---- text --------------------------------------------------------------------------------------
 */

/* A piece of text as it comes, valid UTF-8 always; with `token` the number that completed it.
 * Returns false to end there. */
typedef bool (*ttt_text_sink)(void *ctx, const char *text, size_t size, int32_t token,
                              double logprob);

typedef struct ttt_generate_options {
    ttt_sampling sampling;
    int64_t most;             /* tokens; 0: 256 */
    const char *const *stops; /* texts that end it; they are not handed out */
    int n_stops;
    bool ignore_eos;
    const int *stop; /* not 0: leave; for signals */
} ttt_generate_options;

typedef struct ttt_generated {
    int64_t prompt_tokens, tokens; /* read, and made */
    double read_seconds, make_seconds;
    enum { TTT_END_MOST, TTT_END_EOS, TTT_END_STOP, TTT_END_SINK } end;
} ttt_generated;

/* Reads `prompt` into a slot of an engine of one slot and goes on from there; the end of what was
 * made is in the state, so that more can follow. */
PJRT_MUST_CHECK pjrt_status *ttt_generate(ttt_engine *engine, const ttt_tokenizer *tokenizer,
                                          const int32_t *prompt, int64_t count,
                                          const ttt_generate_options *options, ttt_text_sink sink,
                                          void *ctx, ttt_generated *out);

#endif
