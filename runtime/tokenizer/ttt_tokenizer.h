/*
 * Tokenizers: text to token ids and back.
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
 * A tokenizer is immutable and may be shared by threads. An encoder is the working memory of one
 * thread. Errors are returned as statuses.
 *
 * Tokenizer files are untrusted input. Text may be any bytes: invalid UTF-8 is replaced by U+FFFD
 * and encoded as the original implementation does ("bytes" is lossless). Character classes come
 * from the Unicode version of utf8proc and PCRE2; newer characters may split differently.
 */
#ifndef RUNTIME_TOKENIZER_TTT_TOKENIZER_H
#define RUNTIME_TOKENIZER_TTT_TOKENIZER_H

#include "pjrt/pjrt_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ttt_tokenizer ttt_tokenizer;

/*
 * "bytes": 256 byte values, then BOS 256 and EOS 257; no file. Otherwise the path of a file,
 * recognized by its content: Hugging Face tokenizer.json (byte-level BPE, and BPE with byte
 * fallback as in Llama), a sentencepiece .model (BPE or unigram), or a .tiktoken rank table. For
 * tiktoken the file name gives the pattern and the special tokens (cl100k_base, o200k_base, gpt2
 * …); any other name gets the pattern of cl100k_base and <|endoftext|> after the last rank. BOS and
 * EOS come from the file, else from the usual token names; <|endoftext|> serves as both if there is
 * no other. Unsupported features are refused by name.
 */
PJRT_MUST_CHECK pjrt_status *ttt_tokenizer_open(const char *name, ttt_tokenizer **out);
/* The same from memory. `name` is used in messages and selects the tiktoken pattern. */
PJRT_MUST_CHECK pjrt_status *ttt_tokenizer_parse(const char *name, const void *bytes, size_t size,
                                                 ttt_tokenizer **out);
void ttt_tokenizer_free(ttt_tokenizer *tokenizer);

typedef struct ttt_tokenizer_about {
    const char *kind; /* "bytes", "bpe", "sentencepiece-bpe", "sentencepiece-unigram", "tiktoken" */
    int64_t vocab;    /* all ids are below it */
    int32_t bos, eos, unknown, pad; /* -1: none */
    uint64_t hash[2];               /* XXH3-128 of the file; of the kind's name for "bytes" */
} ttt_tokenizer_about;
const ttt_tokenizer_about *ttt_tokenizer_info(const ttt_tokenizer *tokenizer);
/* The text of a token as stored in the file, not decoded; NULL for an unused id. */
const char *ttt_tokenizer_token(const ttt_tokenizer *tokenizer, int32_t id, size_t *size);
/* The id of the token with that text; -1: none. */
int32_t ttt_tokenizer_find(const ttt_tokenizer *tokenizer, const char *token, size_t size);
bool ttt_tokenizer_is_special(const ttt_tokenizer *tokenizer, int32_t id);

/* Length of the longest prefix that is valid UTF-8. */
size_t ttt_utf8_valid(const char *text, size_t size);

/* ---- encoding ---- */

/* A growing list of ids. Zero-initialize for an empty list; the caller frees `list`. */
typedef struct ttt_ids {
    int32_t *list;
    size_t count, room;
} ttt_ids;

enum {
    TTT_ADD_BOS = 1, /* an error if the tokenizer has none */
    TTT_ADD_EOS = 2,
    TTT_SPECIALS = 4, /* parse the texts of special tokens in the input as special tokens */
};

typedef struct ttt_encoder ttt_encoder;
PJRT_MUST_CHECK pjrt_status *ttt_encoder_new(const ttt_tokenizer *tokenizer, ttt_encoder **out);
void ttt_encoder_free(ttt_encoder *encoder);
/* Appends to `ids`; on failure `ids` is unchanged. */
PJRT_MUST_CHECK pjrt_status *ttt_encode(ttt_encoder *encoder, const char *text, size_t size,
                                        unsigned flags, ttt_ids *ids);

/* ---- decoding ---- */

enum { TTT_SKIP_SPECIALS = 1 };

/* Decodes ids to a NUL-terminated text that the caller frees. Ids that are not tokens are
 * refused. Control symbols of sentencepiece have no text, as in the original. The result may be
 * invalid UTF-8 if the tokens' bytes are. */
PJRT_MUST_CHECK pjrt_status *ttt_decode(const ttt_tokenizer *tokenizer, const int32_t *ids,
                                        size_t count, unsigned flags, char **text, size_t *size);

/*
 * Streaming decoder: returns whole characters as soon as they are complete. The texts of all calls
 * including finish, concatenated, equal ttt_decode with invalid bytes replaced by U+FFFD.
 */
typedef struct ttt_decoder ttt_decoder;
PJRT_MUST_CHECK pjrt_status *ttt_decoder_new(const ttt_tokenizer *tokenizer, unsigned flags,
                                             ttt_decoder **out);
void ttt_decoder_free(ttt_decoder *decoder);
/* `text` is valid until the next call and may be empty. */
PJRT_MUST_CHECK pjrt_status *ttt_decoder_next(ttt_decoder *decoder, int32_t id, const char **text,
                                              size_t *size);
PJRT_MUST_CHECK pjrt_status *ttt_decoder_finish(ttt_decoder *decoder, const char **text,
                                                size_t *size);

/* ---- training ---- */

/* Trains a byte-level BPE with `vocab` tokens (256 bytes, specials and merges), using the Llama
 * 3 pre-tokenizer. The same texts in the same order give the same file, with the merges that
 * Hugging Face's trainer finds. */
typedef struct ttt_bpe_trainer ttt_bpe_trainer;
PJRT_MUST_CHECK pjrt_status *ttt_bpe_trainer_new(ttt_bpe_trainer **out);
void ttt_bpe_trainer_free(ttt_bpe_trainer *trainer);
PJRT_MUST_CHECK pjrt_status *ttt_bpe_trainer_add(ttt_bpe_trainer *trainer, const char *text,
                                                 size_t size);
/* Counts pairs, merges, and writes a tokenizer.json with BOS "<s>" and EOS "</s>" to `path`.
 * `progress`, if not NULL, receives the number of merges done. If the text has too few pairs,
 * the error says how many tokens are possible. */
PJRT_MUST_CHECK pjrt_status *
ttt_bpe_trainer_write(ttt_bpe_trainer *trainer, int64_t vocab, const char *path,
                      void (*progress)(void *ctx, int64_t done, int64_t all), void *ctx);

#endif
