/*
 * What the files of the tokenizers share. A tokenizer is: a vocabulary; added tokens that are cut
 * out of the text first; normalizers; steps that cut text into words; a model that turns a word
 * into numbers; and the bytes of every token for the way back. Kinds fill in what they have.
 */
#ifndef RUNTIME_TOKENIZER_INTERNAL_H
#define RUNTIME_TOKENIZER_INTERNAL_H

#include "runtime/tokenizer/ttt_tokenizer.h"

#include <string.h>

/* ---- growing bytes ---- */

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

/* ---- Unicode ---- */

/* The code point at `at` (before `end`), whose length goes to *size; -1 for bytes that are none,
 * and *size then says how many of them one U+FFFD stands for. */
int32_t ttt__utf8_next(const char *at, const char *end, int *size);
/* Bytes of a code point written to `to`, which has room for four. */
int ttt__utf8_put(int32_t code, char *to);
/* The text with U+FFFD for what is broken, added to `out`. */
bool ttt__utf8_repair(const char *text, size_t size, ttt__text *out);
/* White_Space, and what a regular expression calls a word's character. */
bool ttt__is_space(int32_t code);
bool ttt__is_word(int32_t code);

typedef enum ttt__form { TTT__NFC, TTT__NFD, TTT__NFKC, TTT__NFKD, TTT__LOWER } ttt__form;
/* UTF-8 in that form, added to `out`. */
bool ttt__to_form(ttt__form form, const char *text, size_t size, ttt__text *out);

/* ---- vocabularies and tries ---- */

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

/* ---- added tokens ---- */

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

/* ---- byte-pair merging ---- */

enum { TTT__NO_RANK = UINT32_MAX };

/* Two neighbours that may become one token; the lowest rank merges first, then the leftmost. */
typedef struct ttt__pair {
    int32_t left, right, merged;
    uint32_t rank; /* TTT__NO_RANK: a free place */
} ttt__pair;

typedef struct ttt__pairs {
    ttt__pair *table;
    size_t mask, count;
} ttt__pairs;

/* A pair that is there already takes the new rank. */
PJRT_MUST_CHECK pjrt_status *ttt__pairs_add(ttt__pairs *pairs, ttt__pair pair);
/* Every way to put a token together from two others; `ranks` by number, TTT__NO_RANK for tokens
 * that are neither parts nor wholes. Cuts are between characters, or between any bytes. */
PJRT_MUST_CHECK pjrt_status *ttt__pairs_of_texts(ttt__pairs *pairs, const ttt__vocab *vocab,
                                                 const uint32_t *ranks, bool characters);
void ttt__pairs_free(ttt__pairs *pairs);

/* The symbols of a word, and memory for merging them. */
typedef struct ttt__symbols {
    int32_t *list;
    size_t count, room;
    struct ttt__node *nodes; /* for long words */
    size_t nodes_room;
    uint64_t *heap;
    size_t heap_count, heap_room;
} ttt__symbols;

PJRT_MUST_CHECK pjrt_status *ttt__symbols_room(ttt__symbols *symbols, size_t count);
PJRT_MUST_CHECK pjrt_status *ttt__merge(const ttt__pairs *pairs, ttt__symbols *symbols);
void ttt__symbols_free(ttt__symbols *symbols);

/* ---- patterns ---- */

/* The splits that are written out in C, for they are those of nearly all models. */
typedef enum ttt__rule {
    TTT__NO_RULE,
    TTT__GPT2,
    TTT__CL100K,
    TTT__CL100K_TAIL, /* white space at the end stays whole, as tiktoken has it now */
    TTT__QWEN2,       /* digits one by one */
    TTT__O200K,
} ttt__rule;

typedef bool (*ttt__class)(int32_t code);

/* What is looked for in a text: a rule, the characters of a class, a text, or a regular
 * expression; the first of them that is set. */
typedef struct ttt__pattern {
    ttt__rule rule;
    ttt__class class;
    ttt__text literal;
    struct pcre2_real_code_8 *code;
} ttt__pattern;

/* The rule that a regular expression is, word for word. */
ttt__rule ttt__rule_of(const char *expression);
/* The other way round: the first expression that it is. */
const char *ttt__rule_expression(ttt__rule rule);
/* The end of the word that begins at `at`. */
const char *ttt__rule_next(ttt__rule rule, const char *at, const char *end);

enum { TTT__LINES = 1, TTT__ONLY_PCRE = 2 }; /* ^ and $ at every line; no rule */
PJRT_MUST_CHECK pjrt_status *ttt__pattern_compile(ttt__pattern *pattern, const char *expression,
                                                  size_t size, unsigned flags);
void ttt__pattern_free(ttt__pattern *pattern);
bool ttt__is_numeric(int32_t code);
bool ttt__is_punctuation(int32_t code);

/* A search through one text. */
typedef struct ttt__search {
    const ttt__pattern *pattern;
    const char *text;
    size_t size, from;
    size_t start, stop; /* of the match that was found */
    bool found;
} ttt__search;
/* The next match; `found` is false after the last. */
PJRT_MUST_CHECK pjrt_status *ttt__search_next(ttt__search *search, ttt_encoder *encoder);

/* ---- steps ---- */

typedef enum ttt__step_kind {
    TTT__STEP_FORM, /* normalizers */
    TTT__STEP_PREPEND,
    TTT__STEP_REPLACE,
    TTT__STEP_STRIP,
    TTT__STEP_SPLIT, /* pre-tokenizers */
    TTT__STEP_SPACE, /* a space in front where there is none */
    TTT__STEP_METASPACE,
} ttt__step_kind;

typedef enum ttt__behaviour {
    TTT__ISOLATED,
    TTT__REMOVED,
    TTT__CONTIGUOUS,
    TTT__WITH_PREVIOUS,
    TTT__WITH_NEXT,
} ttt__behaviour;

typedef enum ttt__scheme { TTT__ALWAYS, TTT__FIRST, TTT__NEVER } ttt__scheme;

typedef struct ttt__step {
    ttt__step_kind kind;
    ttt__form form;
    bool left, right; /* strip */
    bool invert, split;
    ttt__behaviour behaviour;
    ttt__scheme scheme;
    ttt__pattern pattern;
    ttt__text text; /* what is put in front or in place */
} ttt__step;

enum { TTT__MOST_STEPS = 16 };

typedef struct ttt__steps {
    ttt__step list[TTT__MOST_STEPS];
    int count;
} ttt__steps;

void ttt__steps_free(ttt__steps *steps);
/* Text through all normalizers, in memory of the encoder's or where it was. */
PJRT_MUST_CHECK pjrt_status *ttt__normalize(const ttt__steps *steps, ttt_encoder *encoder,
                                            const char **text, size_t *size);
/* A piece through the steps from `level` on: what comes out are words. */
PJRT_MUST_CHECK pjrt_status *ttt__pre_tokenize(ttt_encoder *encoder, int level, const char *text,
                                               size_t size, bool first, ttt_ids *ids);

/* ---- words ---- */

/* A word and its numbers in one line of the processor's cache. Longer ones are not kept. */
enum { TTT__KEPT_WORD = 26, TTT__KEPT_IDS = 8, TTT__KEPT = 1 << 15 };

typedef struct ttt__kept {
    char word[TTT__KEPT_WORD];
    uint8_t size, count; /* size 0: a free place */
    float lead;          /* unigram: how clearly these won */
    int32_t ids[TTT__KEPT_IDS];
} ttt__kept;

/* How words become numbers, where merging does it. */
typedef struct ttt__bpe {
    ttt__pairs pairs;
    int32_t byte_ids[256]; /* symbols of bytes; -1: none */
    int32_t letters[128];  /* symbols of ASCII characters where symbols are characters */
    bool byte_level;       /* symbols are bytes, else characters */
    bool byte_fallback, fuse_unknown;
    bool whole_words;   /* a word that is a token is not merged */
    bool mapped;        /* texts of tokens have characters in place of bytes */
    bool cut_at_spaces; /* no token spans the place before a U+2581 */
    bool fuse_across;   /* unknowns in a row are one, whatever the words */
    int32_t unknown;    /* -1: unknown characters are dropped */
} ttt__bpe;

/* A word's numbers, kept from before or merged now. */
PJRT_MUST_CHECK pjrt_status *ttt__encode_word(ttt_encoder *encoder, const char *word, size_t size,
                                              ttt_ids *ids);
/* Text without steps: one word, or as many as it may be cut into. */
PJRT_MUST_CHECK pjrt_status *ttt__encode_words(ttt_encoder *encoder, const char *text, size_t size,
                                               ttt_ids *ids);
/* Text between added tokens: normalized, cut at the added tokens of such text, then into words. */
PJRT_MUST_CHECK pjrt_status *ttt__encode_piece(ttt_encoder *encoder, const char *text, size_t size,
                                               bool first, ttt_ids *ids);
/* A U+2581 stands in it after another character. */
bool ttt__spans_words(const char *text, size_t size);
/* Looks through the vocabulary what `letters` and `cut_at_spaces` are. */
void ttt__bpe_finish(ttt_tokenizer *tokenizer, bool may_cut);
/* GPT-2's characters for bytes. */
int32_t ttt__char_of_byte(unsigned char byte);
int ttt__byte_of_char(int32_t code); /* -1: it stands for none */

/* ---- sentencepiece ---- */

typedef struct ttt__sentencepiece ttt__sentencepiece;
void ttt__sentencepiece_free(ttt__sentencepiece *sp);

/* ---- the tokenizer and its encoder ---- */

struct ttt_tokenizer {
    ttt_tokenizer_about about;
    ttt__vocab vocab;
    ttt__added added;      /* in the text as it comes */
    ttt__added normalized; /* in the text after the normalizers */
    ttt__steps normalizers, steps;
    ttt__bpe bpe;
    ttt__sentencepiece *sp;
    bool takes_broken; /* `encode` is given text that is not UTF-8 */
    ttt__rest encode;  /* the text between added tokens */
    pjrt_status *(*word)(ttt_encoder *encoder, const char *word, size_t size, ttt_ids *ids);
    /* What a token's number becomes: bytes plain[plain_at[i] .. plain_at[i + 1]). The first token
     * of a text may become something else. */
    ttt__text plain;
    uint32_t *plain_at, *first_at; /* first_at: NULL where it is the same */
    ttt__text stripped;            /* taken from the beginning of the text, */
    int strips;                    /* so many times */
    ttt__text joint;               /* between tokens */
    bool drops_space;              /* sentencepiece: the space of the prefix goes, */
    bool drops_spaces;             /* or all that are there */
};

struct ttt_encoder {
    const ttt_tokenizer *tokenizer;
    unsigned flags;
    size_t start; /* of this text's numbers */
    ttt__text repaired;
    ttt__text normal[2];               /* what normalizers write to, in turns */
    ttt__text levels[TTT__MOST_STEPS]; /* what steps write to */
    ttt__text mapped;
    ttt__symbols symbols;
    ttt__kept *kept;
    struct pcre2_real_match_data_8 *match; /* NULL where there are no patterns */
    struct pcre2_real_match_context_8 *match_context;
    struct ttt__best *best; /* unigram: */
    float score;            /* of the text so far */
    size_t best_room;
};

/* Makes `plain` one number after the other, those that are no tokens too. */
PJRT_MUST_CHECK pjrt_status *ttt__plain_start(ttt_tokenizer *tokenizer);
PJRT_MUST_CHECK pjrt_status *ttt__plain_add(ttt_tokenizer *tokenizer, uint32_t *at, int32_t id,
                                            const char *bytes, size_t size);
/* BOS, EOS and padding by the names that they usually have, where nothing else says it. */
void ttt__marks_by_name(ttt_tokenizer *tokenizer);

PJRT_MUST_CHECK pjrt_status *ttt__json_make(ttt_tokenizer *tokenizer, const char *name,
                                            const char *bytes, size_t size);
PJRT_MUST_CHECK pjrt_status *ttt__sentencepiece_make(ttt_tokenizer *tokenizer, const char *name,
                                                     const char *bytes, size_t size);
PJRT_MUST_CHECK pjrt_status *ttt__tiktoken_make(ttt_tokenizer *tokenizer, const char *name,
                                                const char *bytes, size_t size);

#endif
