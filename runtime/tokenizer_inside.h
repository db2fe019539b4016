/*
 * What the files of the tokenizers share. A tokenizer is: a vocabulary; added tokens that are cut
 * out of the text first; normalizers; steps that cut text into words; a model that turns a word
 * into numbers; and the bytes of every token for the way back. Kinds fill in what they have.
 */
#ifndef RUNTIME_TOKENIZER_INSIDE_H
#define RUNTIME_TOKENIZER_INSIDE_H

#include "runtime/ttt_tokenizer.h"

#include <string.h>

/* ---- growing bytes -----------------------------------------------------------------------------
 */

typedef struct ttt__text {
    char *data;
    size_t size, room;
} ttt__text;

/* Both are false when memory is out. */
bool ttt__text_room(ttt__text *text, size_t more);
bool ttt__text_add(ttt__text *text, const char *data, size_t size);
/* Room for more numbers. */
bool ttt__ids_room(ttt_ids *ids, size_t more);

static inline bool ttt__ids_add(ttt_ids *ids, int32_t id)
{
    if (ids->count == ids->room && !ttt__ids_room(ids, 1))
        return false;
    ids->list[ids->count++] = id;
    return true;
}

/* ---- Unicode -----------------------------------------------------------------------------------
 */

/* The code point at `at` (before `end`), whose length goes to *size; -1 for bytes that are none,
 * and *size then says how many of them one U+FFFD stands for. */
int32_t ttt__utf8_next(const char *at, const char *end, int *size);
/* Bytes of a code point written to `to`, which has room for four. */
int ttt__utf8_put(int32_t code, char *to);
/* How many bytes from the first are UTF-8. */
size_t ttt__utf8_valid(const char *text, size_t size);
/* The text with U+FFFD for what is broken, added to `out`. */
bool ttt__utf8_repair(const char *text, size_t size, ttt__text *out);
/* White_Space, and what a regular expression calls a word's character. */
bool ttt__is_space(int32_t code);
bool ttt__is_word(int32_t code);

typedef enum ttt__form { TTT__NFC, TTT__NFD, TTT__NFKC, TTT__NFKD, TTT__LOWER } ttt__form;
/* UTF-8 in that form, added to `out`. */
bool ttt__to_form(ttt__form form, const char *text, size_t size, ttt__text *out);

/* ---- vocabularies and tries --------------------------------------------------------------------
 */

enum { TTT__MOST_TOKEN = 1024 }; /* bytes of a token's text */

enum {
    TTT__THERE = 1,   /* the number is a token */
    TTT__SPECIAL = 2, /* of no text: skipped by TTT_SKIP_SPECIALS */
    TTT__BYTE = 4,    /* stands for one byte: "<0x41>" */
    TTT__UNKNOWN = 8,
    TTT__USER = 16,  /* sentencepiece: never cut */
    TTT__GHOST = 32, /* a character that only parts of tokens are made of */
    TTT__UNUSED = 64,
};

typedef struct ttt__token {
    uint32_t at, size; /* within `texts` */
} ttt__token;

typedef struct ttt__vocab {
    int32_t count, known; /* numbers are below `count`; `known` of them are tokens */
    int32_t room;
    ttt__token *tokens;
    uint8_t *flags;
    ttt__text texts;
    uint32_t *table; /* number + 1 by hash of the text; 0: free */
    size_t mask;
} ttt__vocab;

/* Fails for a number far beyond how many tokens there are, or one with two texts. Of two numbers
 * with one text the first is found. */
PJRT_MUST_CHECK pjrt_status *ttt__vocab_set(ttt__vocab *vocab, int64_t id, const char *text,
                                            size_t size, unsigned flags);
int32_t ttt__vocab_find(const ttt__vocab *vocab, const char *text, size_t size);
void ttt__vocab_free(ttt__vocab *vocab);

static inline const char *ttt__vocab_text(const ttt__vocab *vocab, int32_t id)
{
    return vocab->texts.data + vocab->tokens[id].at;
}

/* Byte by byte from the root, 0; children are found by hash. */
typedef struct ttt__trie {
    struct ttt__edge {
        uint32_t key, child; /* parent << 8 | byte; child 0: free */
    } * edges;
    int32_t *values; /* by node; -1: no text ends here */
    size_t mask, nodes, room;
} ttt__trie;

PJRT_MUST_CHECK pjrt_status *ttt__trie_add(ttt__trie *trie, const char *text, size_t size,
                                           int32_t value);
void ttt__trie_free(ttt__trie *trie);
/* Bytes of the longest text that begins at `at`, 0 when none does. */
size_t ttt__trie_longest(const ttt__trie *trie, const char *at, const char *end, int32_t *value);

/* 0 when there is no such child. */
static inline uint32_t ttt__trie_step(const ttt__trie *trie, uint32_t node, unsigned char byte)
{
    uint32_t key = node << 8 | byte;
    size_t slot = (key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & trie->mask;
    for (; trie->edges[slot].child != 0; slot = (slot + 1) & trie->mask) {
        if (trie->edges[slot].key == key)
            return trie->edges[slot].child;
    }
    return 0;
}

/* ---- added tokens ------------------------------------------------------------------------------
 */

enum { TTT__LSTRIP = 1, TTT__RSTRIP = 2, TTT__SINGLE_WORD = 4, TTT__ADDED_SPECIAL = 8 };

/* Tokens that are looked for in the text, the longest first. */
typedef struct ttt__added {
    ttt__trie trie; /* values count from 0 */
    struct ttt__added_token {
        int32_t id;
        uint8_t flags;
    } * list;
    int32_t count, plain; /* `plain` are not special */
    bool starts[256];     /* bytes that one may begin with */
} ttt__added;

PJRT_MUST_CHECK pjrt_status *ttt__added_add(ttt__added *added, const char *text, size_t size,
                                            int32_t id, unsigned flags);
void ttt__added_free(ttt__added *added);

/* Cuts them out: their numbers go to `ids`, what is between them to `rest`, with whether it begins
 * the text. */
typedef pjrt_status *(*ttt__rest)(ttt_encoder *encoder, const char *text, size_t size, bool first,
                                  ttt_ids *ids);
PJRT_MUST_CHECK pjrt_status *ttt__added_cut(const ttt__added *added, ttt_encoder *encoder,
                                            const char *text, size_t size, bool first,
                                            ttt__rest rest, ttt_ids *ids);

/* ---- the tokenizer and its encoder -------------------------------------------------------------
 */

struct ttt_tokenizer {
    ttt_tokenizer_about about;
    ttt__vocab vocab;
    ttt__added added;  /* in the text as it comes */
    bool takes_broken; /* `encode` is given text that is not UTF-8 */
    ttt__rest encode;  /* the text between added tokens */
    /* What a token's number becomes: bytes plain[plain_at[i] .. plain_at[i + 1]). */
    ttt__text plain;
    uint32_t *plain_at;
};

struct ttt_encoder {
    const ttt_tokenizer *tokenizer;
    unsigned flags;
    ttt__text repaired;
};

/* Makes `plain` one token after the other. */
PJRT_MUST_CHECK pjrt_status *ttt__plain_start(ttt_tokenizer *tokenizer);
PJRT_MUST_CHECK pjrt_status *ttt__plain_add(ttt_tokenizer *tokenizer, int32_t id, const char *bytes,
                                            size_t size);

PJRT_MUST_CHECK pjrt_status *ttt__bytes_make(ttt_tokenizer *tokenizer);

#endif
