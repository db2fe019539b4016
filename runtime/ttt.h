/*
 * libttt: language models in other programs. One header, C and C++.
 *
 *     #include <ttt.h>
 *
 *     ttt_lm *lm = NULL;
 *     ttt_sequence *s = NULL;
 *     ttt_failure *f = ttt_lm_open("run.bundle", NULL, &lm);
 *     if (!f) f = ttt_sequence_new(lm, &s);
 *     if (!f) f = ttt_sequence_feed_text(s, "In the beginning", 16);
 *     for (int i = 0; i < 100 && !f; i++) {
 *         int32_t token;
 *         f = ttt_sequence_sample(s, &token);
 *         … if (token == ttt_lm_eos(lm)) break; ttt_sequence_text(s, token, &text, &size) …
 *         if (!f) f = ttt_sequence_feed(s, &token, 1);
 *     }
 *     if (f) fprintf(stderr, "%s\n", ttt_failure_message(f));
 *     ttt_failure_free(f);
 *     ttt_sequence_free(s);
 *     ttt_lm_free(lm);
 *
 * What holds for every function below:
 *  - It returns NULL, or a failure that the caller frees. On failure results are NULL or 0. Nothing
 *    prints, exits or aborts. What plugins log to standard error is theirs; the CPU's is silent
 *    with TF_CPP_MIN_LOG_LEVEL=3 and TF_ENABLE_ONEDNN_OPTS=0 in the environment.
 *  - _free takes NULL. A model is freed after its sequences.
 *  - A model and its sequences are used by one thread at a time; several models by several.
 *  - Texts are UTF-8 with their size in bytes. Memory that a function hands over is given back to
 *    ttt_free.
 *
 * Build with `pkg-config --cflags --libs ttt`, or in CMake with find_package(ttt) and the target
 * ttt::ttt. Plugins are looked for beside the library too, in its folder "ttt".
 */
#ifndef TTT_H
#define TTT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TTT_API __attribute__((visibility("default")))

/* "0.1.0": of the library that runs, whatever was there when the program was built. */
TTT_API const char *ttt_version(void);
TTT_API void ttt_free(void *memory);

/* ---- failures ----------------------------------------------------------------------------------
 */

typedef struct ttt_failure ttt_failure;
/* One line for a person, which lives as long as the failure; "ok" for NULL. */
TTT_API const char *ttt_failure_message(const ttt_failure *failure);
/* What kind it is, for programs: "INVALID_ARGUMENT", "NOT_FOUND", "DATA_LOSS" (a file was damaged),
 * "FAILED_PRECONDITION" (it belongs to something else), "RESOURCE_EXHAUSTED" …; "OK" for NULL. */
TTT_API const char *ttt_failure_kind(const ttt_failure *failure);
TTT_API void ttt_failure_free(ttt_failure *failure);

/* ---- models ------------------------------------------------------------------------------------
 */

/* All zero: what is usual. */
typedef struct ttt_lm_options {
    const char *plugin;  /* "cpu" (usual), "tpu", "cuda", or the path of a PJRT plugin */
    const char *cache;   /* a folder for compiled programs; NULL: they are compiled every time */
    const char *weights; /* of a bundle without weights: the folder of a model that has them */
    bool rebuild;        /* of a bundle: do not use its executables */
    /* Of a model's folder, which says less than a bundle: */
    const char *tokenizer; /* "bytes" or a file; NULL: the one beside the model */
    const char *matrices;  /* in memory: "f32" (usual), "bf16", "s8" */
    int64_t context;       /* the longest sequence that attention remembers; 0: 2048 */
} ttt_lm_options;

typedef struct ttt_lm ttt_lm;
/* A bundle that `ttt export` made, or a model's folder or a training run's, whose programs are then
 * compiled here. `options` may be NULL. */
TTT_API ttt_failure *ttt_lm_open(const char *path, const ttt_lm_options *options, ttt_lm **out);
TTT_API void ttt_lm_free(ttt_lm *lm);
TTT_API int64_t ttt_lm_vocab(const ttt_lm *lm);
/* Tokens that begin and end a text; -1: there is none. */
TTT_API int32_t ttt_lm_bos(const ttt_lm *lm);
TTT_API int32_t ttt_lm_eos(const ttt_lm *lm);
/* The target whose executables of a bundle are used; NULL: programs are compiled here, and why. */
TTT_API const char *ttt_lm_target(const ttt_lm *lm);
TTT_API const char *ttt_lm_why(const ttt_lm *lm);

/* Text to tokens and back. With `start`, BOS stands first where there is one. */
TTT_API ttt_failure *ttt_lm_encode(ttt_lm *lm, const char *text, size_t size, bool start,
                                   int32_t **tokens, size_t *count);
TTT_API ttt_failure *ttt_lm_decode(const ttt_lm *lm, const int32_t *tokens, size_t count,
                                   char **text, size_t *size);

/* ---- sequences ---------------------------------------------------------------------------------
 */

/*
 * A sequence is all that the model knows of one text so far: of constant size, however long the
 * text is. There may be any number of them; those that the device has no room for at the moment
 * wait in the host's memory, so that going to and fro between more sequences than a bundle's
 * --batch costs a copy each time, and nothing else.
 */
typedef struct ttt_sequence ttt_sequence;
TTT_API ttt_failure *ttt_sequence_new(ttt_lm *lm, ttt_sequence **out);
/* Another one that stands where this one does. */
TTT_API ttt_failure *ttt_sequence_copy(ttt_sequence *sequence, ttt_sequence **out);
TTT_API void ttt_sequence_free(ttt_sequence *sequence);
/* Tokens so far; -1: a failure of the device took it, and it must be begun anew or restored. */
TTT_API int64_t ttt_sequence_position(const ttt_sequence *sequence);
/* Begins anew. */
TTT_API ttt_failure *ttt_sequence_reset(ttt_sequence *sequence);

/* Reads what comes next. What fails leaves the sequence where it was, or lost. */
TTT_API ttt_failure *ttt_sequence_feed(ttt_sequence *sequence, const int32_t *tokens, size_t count);
/* The same of text; at the start of a sequence BOS goes before it, where there is one. */
TTT_API ttt_failure *ttt_sequence_feed_text(ttt_sequence *sequence, const char *text, size_t size);
/* What the model thinks of each token as the next one: ttt_lm_vocab of them, until the sequence is
 * used again. NULL where nothing was fed since it was made, begun anew or restored. */
TTT_API const float *ttt_sequence_logits(const ttt_sequence *sequence);

/* How the next token is chosen; the rules go one after the other. All zero: the most likely one. */
typedef struct ttt_sample_options {
    double temperature; /* 0: the most likely one */
    int64_t top_k;      /* of the most likely so many; 0: of all */
    double top_p;       /* of the most likely that together have this share; 0 or 1: of all */
    double min_p;       /* of those at least this share as likely as the likeliest; 0: of all */
    double repetition;  /* penalty on tokens seen before; 0, 1: none */
    int64_t window;     /* how many tokens back they count as seen; 0: 64 */
    uint64_t seed;      /* the same seed gives the same choices */
} ttt_sample_options;
/* From now on; the first choice of a seed comes first again. Tokens that are fed later count as
 * seen. */
TTT_API ttt_failure *ttt_sequence_sampling(ttt_sequence *sequence,
                                           const ttt_sample_options *options);
/* Chooses from the logits. The token is not fed: that is the caller's to do, or not. */
TTT_API ttt_failure *ttt_sequence_sample(ttt_sequence *sequence, int32_t *token);
/* The text of tokens, one after the other: whole characters as soon as they are there, else "".
 * `text` lives until the next call. Special tokens have none. */
TTT_API ttt_failure *ttt_sequence_text(ttt_sequence *sequence, int32_t token, const char **text,
                                       size_t *size);

/* ---- states ------------------------------------------------------------------------------------
 */

/* A sequence as bytes, the same that `ttt generate --state-out` writes. Of another model, or
 * damaged, they are refused with the reason, and the sequence stays as it is. */
TTT_API ttt_failure *ttt_sequence_save(ttt_sequence *sequence, void **bytes, size_t *size);
TTT_API ttt_failure *ttt_sequence_restore(ttt_sequence *sequence, const void *bytes, size_t size);
TTT_API ttt_failure *ttt_sequence_save_file(ttt_sequence *sequence, const char *path);
TTT_API ttt_failure *ttt_sequence_restore_file(ttt_sequence *sequence, const char *path);

#ifdef __cplusplus
}
#endif
#endif
