/* Shared by the sentencepiece files. */
#ifndef RUNTIME_TOKENIZER_SENTENCEPIECE_H
#define RUNTIME_TOKENIZER_SENTENCEPIECE_H

#include "runtime/tokenizer/internal.h"

struct ttt__sentencepiece {
    /* Normalization rules: a double-array trie and the replacement texts. */
    uint32_t *units;
    size_t n_units;
    char *replacements; /* NUL-terminated */
    size_t replacements_size;
    bool plain_ascii[128]; /* no rule starts with this character and continues in ASCII */
    ttt__trie user;        /* user-defined pieces, never normalized */
    bool add_prefix, as_suffix, remove_extra, escape;
    /* Unigram. */
    ttt__trie pieces;
    float *scores;
    float unknown_score;
    float largest; /* max |score| */
};

/* Reads a precompiled_charsmap. */
PJRT_MUST_CHECK pjrt_status *ttt__charsmap_read(ttt__sentencepiece *sp, const uint8_t *bytes,
                                                size_t size);
/* Replaces `out` by the normalized text: rules applied, spaces as U+2581. */
PJRT_MUST_CHECK pjrt_status *ttt__charsmap_apply(const ttt__sentencepiece *sp, const char *text,
                                                 size_t size, ttt__text *out);
/* Encodes a word with a unigram model; the running score continues from word to word. */
PJRT_MUST_CHECK pjrt_status *ttt__unigram_word(ttt_encoder *encoder, const char *word, size_t size,
                                               ttt_ids *ids);

#endif
