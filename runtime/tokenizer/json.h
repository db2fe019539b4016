/* Shared by the files that read tokenizer.json. */
#ifndef RUNTIME_TOKENIZER_JSON_H
#define RUNTIME_TOKENIZER_JSON_H

#include "runtime/tokenizer/internal.h"

#include <jansson.h>

/* Normalized texts of added tokens, where they differ. */
typedef struct ttt__normal_texts {
    ttt__text texts; /* NUL-terminated; offset 0 is unused */
    uint32_t *at;    /* offset by id; 0: none. NULL: no token has one */
} ttt__normal_texts;

/* "without a type" where there is none. */
const char *ttt__json_type(const json_t *json);
bool ttt__json_bool(const json_t *json, const char *key, bool otherwise);
/* The byte of "<0x41>"; -1: none. */
int ttt__byte_of_text(const char *text, size_t size);

PJRT_MUST_CHECK pjrt_status *ttt__json_normalizer(const json_t *json, ttt__steps *steps);
PJRT_MUST_CHECK pjrt_status *ttt__json_pre_tokenizer(const json_t *json, ttt_tokenizer *tokenizer);
/* Computes the decoded bytes of all tokens. */
PJRT_MUST_CHECK pjrt_status *ttt__json_decoder(const json_t *json, ttt_tokenizer *tokenizer,
                                               const ttt__normal_texts *normal);

#endif
