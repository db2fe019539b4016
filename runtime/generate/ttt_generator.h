/*
 * Generating: a model that reads and continues sequences, each of which has a state of its own.
 *
 *     #include "runtime/generate/ttt_generator.h"
 *
 *     ttt_engine *engine = NULL;
 *     ttt_engine_options options = {.batch = 1};
 *     pjrt_status *st = ttt_engine_open(place, "folder-of-a-model", &options, &engine);
 *     if (!st) st = ttt_engine_feed(engine, 0, prompt, n_prompt, logits); // any length
 *     while (!st) {
 *         int32_t next;
 *         st = ttt_sampler_next(sampler, logits, &next, NULL);
 *         if (!st) st = ttt_engine_step(engine, &next, logits); // one token of every slot
 *     }
 *     ttt_engine_free(engine);
 *
 * The state of a sequence does not grow with its length (attention's does). It is a value: it can
 * be taken out of a slot, kept, copied, written to a file, and put into any slot of any engine of
 * the same model; the sequence then goes on as if nothing had been between.
 *
 * An engine is used by one thread at a time. A call that fails leaves it usable: slots whose
 * sequences were lost with it say so until they are reset or a state is put there.
 */
#ifndef RUNTIME_GENERATE_TTT_GENERATOR_H
#define RUNTIME_GENERATE_TTT_GENERATOR_H

#include "runtime/device/ttt_device.h"
#include "runtime/tokenizer/ttt_tokenizer.h"

/* ---- engines -----------------------------------------------------------------------------------
 */

typedef struct ttt_engine_options {
    int64_t batch;    /* slots: sequences side by side; 0: 1 */
    int64_t context;  /* the longest sequence that attention remembers; 0: 2048 */
    int64_t span;     /* tokens that reading takes at once, at most; 0: 512 */
    hlo_type compute; /* of activations and products: f32 or bf16; none: f32 */
    hlo_type weights; /* of matrices in memory: f32, bf16 or s8; none: f32 */
    bool no_kernels; /* all is left to the compiler; else kernels are called where there are some */
} ttt_engine_options;

typedef struct ttt_engine ttt_engine;
/* `folder` as ttt_model_load takes it. Programs come from the place's cache when it has one; those
 * for reading are compiled when they are needed first. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_open(const ttt_devices *devices, const char *folder,
                                             const ttt_engine_options *options, ttt_engine **out);
void ttt_engine_free(ttt_engine *engine);
const ttt_config *ttt_engine_config(const ttt_engine *engine);
int64_t ttt_engine_batch(const ttt_engine *engine);
/* Tokens that a slot's sequence has so far; -1: it was lost, or there is no such slot. */
int64_t ttt_engine_position(const ttt_engine *engine, int64_t slot);

/* The sequence of a slot starts anew. All do when the engine is opened. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_reset(ttt_engine *engine, int64_t slot);
/*
 * Reads tokens into a slot: whole mini-batches by the dual form, `span` tokens at once, what is
 * before and after them one by one. `logits` [vocab], when not NULL, receives what follows the
 * last. Memory does not grow with the number. The other slots stay as they are. Tokens that are not
 * in the vocabulary and more than attention remembers are refused before anything is read.
 */
PJRT_MUST_CHECK pjrt_status *ttt_engine_feed(ttt_engine *engine, int64_t slot,
                                             const int32_t *tokens, int64_t count, float *logits);
/* Compiles what reading so many tokens into a slot will need and is not there yet. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_prepare(ttt_engine *engine, int64_t slot, int64_t count);
/* One token of every slot: tokens [batch] to logits [batch, vocab]. Slots that nobody uses are
 * given the token -1; their sequences are then lost, and their logits mean nothing. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_step(ttt_engine *engine, const int32_t *tokens,
                                             float *logits);

/* ---- states as values --------------------------------------------------------------------------
 */

/* A sequence so far, in the host's memory. It never changes. */
typedef struct ttt_state ttt_state;

typedef struct ttt_state_about {
    int64_t position;  /* tokens */
    int64_t mb_offset; /* of these, of the mini-batch that is not whole yet */
    const char *mixer;
    uint64_t model[2]; /* hash of the model it belongs to: its network and its weights */
    int64_t bytes;     /* of its file */
} ttt_state_about;

PJRT_MUST_CHECK pjrt_status *ttt_engine_take(ttt_engine *engine, int64_t slot, ttt_state **out);
/* A state of another model is refused with what differs. */
PJRT_MUST_CHECK pjrt_status *ttt_engine_put(ttt_engine *engine, int64_t slot,
                                            const ttt_state *state);
void ttt_state_free(ttt_state *state);
const ttt_state_about *ttt_state_info(const ttt_state *state);
/* Its arrays: how many, and the name and shape of one. They live as long as the state. */
int ttt_state_arrays(const ttt_state *state);
const char *ttt_state_array(const ttt_state *state, int index, hlo_shape *shape);
/* The same as if it stood after `position` tokens; what attention would remember of further ones
 * is zero. For measurements at depths that nobody wants to read. */
PJRT_MUST_CHECK pjrt_status *ttt_state_moved(const ttt_state *state, int64_t position,
                                             ttt_state **out);
/* The same with every f32 rounded to bf16: to measure what keeping states in bf16 would change. */
PJRT_MUST_CHECK pjrt_status *ttt_state_rounded(const ttt_state *state, ttt_state **out);
/*
 * A file: magic, version, a header in JSON (mixer, model hash, type, position, every part with its
 * shape), the parts, XXH3-128. On the boundary of a mini-batch the gradients' sums are zero and not
 * in it. Written under another name and renamed. Damage is DATA_LOSS with the reason, a newer
 * version FAILED_PRECONDITION. docs/formats.md has the bytes.
 */
PJRT_MUST_CHECK pjrt_status *ttt_state_write(const ttt_state *state, const char *path);
PJRT_MUST_CHECK pjrt_status *ttt_state_read(const char *path, ttt_state **out);

/* ---- choosing the next token -------------------------------------------------------------------
 */

/* The rules go one after the other, each on what those before it left, with probabilities at the
 * temperature: repetition, temperature, top_k, top_p, min_p. Of equally likely tokens the lower
 * number comes first. */
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

/* What comes of a token. */
typedef struct ttt_piece {
    int sequence;     /* which, of those made side by side */
    const char *text; /* what is certain now: valid UTF-8 always, and empty while it is not */
    size_t size;
    int32_t token; /* -1: what was held back, at the end */
    double logprob;
} ttt_piece;
/* Hears of every token once, and of the end where text was held back. Returns false to end the
 * sequence there. */
typedef bool (*ttt_text_sink)(void *ctx, const ttt_piece *piece);

typedef struct ttt_generate_options {
    ttt_sampling sampling;
    int64_t most;             /* tokens; 0: 256 */
    const char *const *stops; /* texts that end it; they are not handed out */
    int n_stops;
    bool ignore_eos;
    const volatile int *stop; /* not 0: leave, as if the sink had said so; for signals */
} ttt_generate_options;

typedef enum ttt_end {
    TTT_GOES_ON,
    TTT_END_MOST, /* as many tokens as were asked for */
    TTT_END_EOS,
    TTT_END_STOP, /* one of the texts */
    TTT_END_SINK,
} ttt_end;
const char *ttt_end_name(ttt_end end); /* "length", "eos", "stop", "cancelled"; "" while it goes */

/* One sequence in the making: from logits to the next token and its text. */
typedef struct ttt_text_stream ttt_text_stream;
/* `sequence` is what its pieces say. Stops that are empty or not UTF-8 are refused. Only tokens
 * that the tokenizer has are chosen, though models may have room for more. */
PJRT_MUST_CHECK pjrt_status *ttt_text_stream_new(const ttt_tokenizer *tokenizer, int64_t vocab,
                                                 const ttt_generate_options *options, int sequence,
                                                 ttt_text_stream **out);
void ttt_text_stream_free(ttt_text_stream *writing);
/* Tokens of the prompt, for penalties. */
void ttt_text_stream_see(ttt_text_stream *writing, const int32_t *tokens, int64_t count);
/* Chooses what follows and hands out its text. `token` is what the engine is to be given next, -1
 * after EOS; then, or when `end` is not TTT_GOES_ON, there is nothing more to choose. */
PJRT_MUST_CHECK pjrt_status *ttt_text_stream_next(ttt_text_stream *writing, const float *logits,
                                                  ttt_text_sink sink, void *ctx, int32_t *token,
                                                  ttt_end *end);
int64_t ttt_text_stream_count(const ttt_text_stream *writing); /* tokens so far; EOS is none */

typedef struct ttt_prompt {
    const int32_t *tokens;
    int64_t count;
} ttt_prompt;

typedef struct ttt_generated {
    int64_t prompt_tokens, tokens; /* read, and made; EOS is none of them */
    double read_seconds;           /* its own prompt, without compiling */
    double make_seconds;           /* until it ended; side by side with the others */
    ttt_end end;
} ttt_generated;

/*
 * Reads each prompt into the slot of its number, where sequences go on from what is there, and
 * makes text side by side. Of one sequence alone all that was made but EOS is in its state
 * afterwards, so that more can follow. Of several, those that end before the last are lost, and so
 * is what was in slots without a prompt. `sink` may be NULL; `out` has a place for each prompt.
 */
PJRT_MUST_CHECK pjrt_status *ttt_generate(ttt_engine *engine, const ttt_tokenizer *tokenizer,
                                          const ttt_prompt *prompts, int n_prompts,
                                          const ttt_generate_options *options, ttt_text_sink sink,
                                          void *ctx, ttt_generated *out);

/* ---- the tokenizer of a model ------------------------------------------------------------------
 */

/*
 * `chosen` when it is not NULL; else the tokenizer's file in the model's folder or in that of its
 * run; else that of the data the run was trained on; else bytes, for vocabularies of 258 to 320.
 * `path` as ttt_model_folder takes it. One with more tokens than the model knows is refused.
 */
PJRT_MUST_CHECK pjrt_status *ttt_model_tokenizer(const char *path, const char *chosen,
                                                 int64_t vocab, ttt_tokenizer **out);

#endif
