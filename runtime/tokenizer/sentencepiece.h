/* What the files of sentencepiece's tokenizers share. */
#ifndef RUNTIME_TOKENIZER_SENTENCEPIECE_H
#define RUNTIME_TOKENIZER_SENTENCEPIECE_H

#include "runtime/tokenizer/internal.h"

struct ttt__sentencepiece {
    /* Rules that replace characters: a double array of a trie, and what they become. */
    uint32_t *units;
    size_t n_units;
    char *replacements; /* with a NUL behind the last */
    size_t replacements_size;
    bool plain_ascii[128]; /* nothing begins with it that goes on in ASCII */
    ttt__trie user;        /* user-defined pieces, which nothing changes */
    bool add_prefix, as_suffix, remove_extra, escape;
    /* Unigram. */
    ttt__trie pieces;
    float *scores;
    float unknown_score;
    float largest; /* of all scores, without sign */
};

/* Reads a precompiled_charsmap. */
PJRT_MUST_CHECK pjrt_status *ttt__charsmap_read(ttt__sentencepiece *sp, const uint8_t *bytes,
                                                size_t size);
/* Text as the model has it: rules applied, spaces as U+2581; in place of what is in `out`. */
PJRT_MUST_CHECK pjrt_status *ttt__charsmap_apply(const ttt__sentencepiece *sp, const char *text,
                                                 size_t size, ttt__text *out);
/* A word of a unigram model; the score of the text goes on from word to word. */
PJRT_MUST_CHECK pjrt_status *ttt__unigram_word(ttt_encoder *encoder, const char *word, size_t size,
                                               ttt_ids *ids);

#endif
