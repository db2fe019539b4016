/*
 * Tokenizers: text to token numbers and back.
 *
 *     #include "runtime/tokenizer/ttt_tokenizer.h"
 *
 *     ttt_tokenizer *tokenizer = NULL;
 *     ttt_encoder *encoder = NULL;
 *     ttt_ids ids = {0};
 *     pjrt_status *st = ttt_tokenizer_open("tokenizer.json", &tokenizer);
 *     if (!st) st = ttt_encoder_new(tokenizer, &encoder);
 *     if (!st) st = ttt_encode(encoder, "Hello", 5, TTT_ADD_BOS, &ids);
 *     … ids.list[0 .. ids.count) …
 *     free(ids.list);
 *     ttt_encoder_free(encoder);
 *     ttt_tokenizer_free(tokenizer);
 *
 * A tokenizer never changes once it is open and may be shared by threads. An encoder is the working
 * memory of one thread. Failures are statuses as everywhere in this room.
 *
 * Files are hostile until proved otherwise. Text may be any bytes: what is not UTF-8 is encoded as
 * the originals encode it after replacing what is broken by U+FFFD (the "bytes" tokenizer loses
 * nothing). Classes of characters are those of the Unicode that utf8proc and PCRE2 have here, so
 * characters that are newer may be cut otherwise than by an original with newer tables.
 */
#ifndef RUNTIME_TOKENIZER_TTT_TOKENIZER_H
#define RUNTIME_TOKENIZER_TTT_TOKENIZER_H

#include "pjrt/pjrt_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ttt_tokenizer ttt_tokenizer;

/*
 * "bytes": 256 byte values, then BOS 256 and EOS 257; no file. Otherwise a file, told by what it
 * holds: tokenizer.json of Hugging Face (byte-level BPE, and BPE with byte fallback as Llama has
 * it), a sentencepiece .model (BPE or unigram), a .tiktoken table of ranks (its pattern and special
 * tokens follow from the file's name: cl100k_base, o200k_base, gpt2 …; another name takes
 * cl100k_base's pattern, and <|endoftext|> after the last rank). BOS and EOS are what the file
 * says, else tokens with the usual names; <|endoftext|> is both where there is no other. What a
 * file asks for and is not built is refused by name.
 */
PJRT_MUST_CHECK pjrt_status *ttt_tokenizer_open(const char *name, ttt_tokenizer **out);
/* The same from memory; `name` is what messages call it and what tiktoken patterns follow from. */
PJRT_MUST_CHECK pjrt_status *ttt_tokenizer_parse(const char *name, const void *bytes, size_t size,
                                                 ttt_tokenizer **out);
void ttt_tokenizer_free(ttt_tokenizer *tokenizer);

typedef struct ttt_tokenizer_about {
    const char *kind; /* "bytes", "bpe", "sentencepiece-bpe", "sentencepiece-unigram", "tiktoken" */
    int64_t vocab;    /* numbers are below it */
    int32_t bos, eos, unknown, pad; /* -1: there is none */
    uint64_t hash[2];               /* XXH3-128 of the file; of the kind's name for "bytes" */
} ttt_tokenizer_about;
const ttt_tokenizer_about *ttt_tokenizer_info(const ttt_tokenizer *tokenizer);
/* The text of a token as the file has it, not decoded; NULL for a number that has none. */
const char *ttt_tokenizer_token(const ttt_tokenizer *tokenizer, int32_t id, size_t *size);
/* The number of a token by that text; -1: there is none. */
int32_t ttt_tokenizer_find(const ttt_tokenizer *tokenizer, const char *token, size_t size);
bool ttt_tokenizer_is_special(const ttt_tokenizer *tokenizer, int32_t id);

/* How many bytes from the first are UTF-8: all of them, or up to the first that is not. */
size_t ttt_utf8_valid(const char *text, size_t size);

/* ---- encoding ---- */

/* A growing list of numbers; all zero: empty. The caller frees `list`. */
typedef struct ttt_ids {
    int32_t *list;
    size_t count, room;
} ttt_ids;

enum {
    TTT_ADD_BOS = 1, /* an error where the tokenizer has none */
    TTT_ADD_EOS = 2,
    TTT_SPECIALS = 4, /* texts of special tokens in the text become those tokens; else they are
                         text like any other */
};

typedef struct ttt_encoder ttt_encoder;
PJRT_MUST_CHECK pjrt_status *ttt_encoder_new(const ttt_tokenizer *tokenizer, ttt_encoder **out);
void ttt_encoder_free(ttt_encoder *encoder);
/* Appends to `ids`, which stays as it was on failure. */
PJRT_MUST_CHECK pjrt_status *ttt_encode(ttt_encoder *encoder, const char *text, size_t size,
                                        unsigned flags, ttt_ids *ids);

/* ---- decoding ---- */

enum { TTT_SKIP_SPECIALS = 1 };

/* The text of numbers, with a NUL behind it; the caller frees it. Numbers that are no token are
 * refused. Control symbols of sentencepiece have no text, as in the original. Where bytes of tokens
 * are not UTF-8 the text is not either: whoever shows it replaces.
 */
PJRT_MUST_CHECK pjrt_status *ttt_decode(const ttt_tokenizer *tokenizer, const int32_t *ids,
                                        size_t count, unsigned flags, char **text, size_t *size);

/*
 * Token by token: whole characters as soon as they are there. The texts of all calls together,
 * finish's included, are ttt_decode's with invalid bytes replaced by U+FFFD.
 */
typedef struct ttt_decoder ttt_decoder;
PJRT_MUST_CHECK pjrt_status *ttt_decoder_new(const ttt_tokenizer *tokenizer, unsigned flags,
                                             ttt_decoder **out);
void ttt_decoder_free(ttt_decoder *decoder);
/* `text` lives until the next call; it may be empty. */
PJRT_MUST_CHECK pjrt_status *ttt_decoder_next(ttt_decoder *decoder, int32_t id, const char **text,
                                              size_t *size);
PJRT_MUST_CHECK pjrt_status *ttt_decoder_finish(ttt_decoder *decoder, const char **text,
                                                size_t *size);

/* ---- training ---- */

/* A byte-level BPE of `vocab` tokens (256 bytes, specials and merges) from text, cut into words as
 * Llama 3 cuts them: the same texts in the same order give the same file, and the merges that
 * Hugging Face's trainer would find. */
typedef struct ttt_bpe_trainer ttt_bpe_trainer;
PJRT_MUST_CHECK pjrt_status *ttt_bpe_trainer_new(ttt_bpe_trainer **out);
void ttt_bpe_trainer_free(ttt_bpe_trainer *trainer);
PJRT_MUST_CHECK pjrt_status *ttt_bpe_trainer_add(ttt_bpe_trainer *trainer, const char *text,
                                                 size_t size);
/* Counts pairs, merges, and writes a tokenizer.json with BOS "<s>" and EOS "</s>" to `path`.
 * `progress`, when not NULL, hears of merges done. Fewer tokens than asked for, when the text has
 * no more pairs, are an error that says how many there are. */
PJRT_MUST_CHECK pjrt_status *
ttt_bpe_trainer_write(ttt_bpe_trainer *trainer, int64_t vocab, const char *path,
                      void (*progress)(void *ctx, int64_t done, int64_t all), void *ctx);

#endif
