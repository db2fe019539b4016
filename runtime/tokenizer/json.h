/* What the two files that read tokenizer.json share. */
#ifndef RUNTIME_TOKENIZER_JSON_H
#define RUNTIME_TOKENIZER_JSON_H

#include "runtime/tokenizer/internal.h"

#include <jansson.h>

/* Texts of added tokens after the normalizers, where they differ. */
typedef struct ttt__normal_texts {
    ttt__text texts; /* each with a NUL behind it; the first byte is nobody's */
    uint32_t *at;    /* by number; 0: none. NULL: nobody has one */
} ttt__normal_texts;

/* "without a type" where there is none. */
const char *ttt__json_type(const json_t *json);
bool ttt__json_bool(const json_t *json, const char *key, bool otherwise);
/* The byte that "<0x41>" stands for; -1: none. */
int ttt__byte_of_text(const char *text, size_t size);

PJRT_MUST_CHECK pjrt_status *ttt__json_normalizer(const json_t *json, ttt__steps *steps);
PJRT_MUST_CHECK pjrt_status *ttt__json_pre_tokenizer(const json_t *json, ttt_tokenizer *tokenizer);
/* Makes the bytes of all tokens. */
PJRT_MUST_CHECK pjrt_status *ttt__json_decoder(const json_t *json, ttt_tokenizer *tokenizer,
                                               const ttt__normal_texts *normal);

#endif
