/*
 * Shared by the files of the tokenizer. A tokenizer has: a vocabulary; added tokens, extracted from
 * the text first; normalizers; pre-tokenizer steps that split text into words; a model that maps a
 * word to ids; and the bytes of every token for decoding. Each kind fills in what it uses.
 */
#ifndef RUNTIME_TOKENIZER_INTERNAL_H
#define RUNTIME_TOKENIZER_INTERNAL_H

#include "runtime/tokenizer/ttt_tokenizer.h"

#include <string.h>

/* ---- growing buffers ---- */

typedef struct ttt__text {
    char *data;
    size_t size, room;
} ttt__text;

/* False when out of memory. */
bool ttt__text_room(ttt__text *text, size_t more);
bool ttt__text_add(ttt__text *text, const char *data, size_t size);
/* Makes room for `more` ids. */
bool ttt__ids_room(ttt_ids *ids, size_t more);

static inline bool ttt__ids_add(ttt_ids *ids, int32_t id)
{
    if (ids->count == ids->room && !ttt__ids_room(ids, 1))
        return false;
    ids->list[ids->count++] = id;
    return true;
}

/* ---- Unicode ---- */

/* The code point at `at` (before `end`) and its length in *size. -1 for invalid bytes; *size is
 * then how many of them one U+FFFD replaces. */
int32_t ttt__utf8_next(const char *at, const char *end, int *size);
/* Writes a code point to `to` (room for 4 bytes); returns its length. */
int ttt__utf8_put(int32_t code, char *to);
/* Appends the text with invalid bytes replaced by U+FFFD. */
bool ttt__utf8_repair(const char *text, size_t size, ttt__text *out);
/* White_Space, and the word characters of a regular expression (\w). */
bool ttt__is_space(int32_t code);
bool ttt__is_word(int32_t code);

typedef enum ttt__form { TTT__NFC, TTT__NFD, TTT__NFKC, TTT__NFKD, TTT__LOWER } ttt__form;
/* Appends the text in that normal form. */
bool ttt__to_form(ttt__form form, const char *text, size_t size, ttt__text *out);

/* ---- vocabularies and tries ---- */

enum { TTT__MAX_TOKEN = 1024 }; /* max bytes of a token's text */

enum {
    TTT__THERE = 1,   /* the id is in use */
    TTT__SPECIAL = 2, /* skipped by TTT_SKIP_SPECIALS */
    TTT__BYTE = 4,    /* a byte token: "<0x41>" */
    TTT__UNKNOWN = 8,
    TTT__USER = 16,  /* sentencepiece user-defined: never split */
    TTT__GHOST = 32, /* a character that occurs only inside tokens and is not a token itself */
    TTT__UNUSED = 64,
};

typedef struct ttt__token {
    uint32_t at, size; /* in `texts` */
} ttt__token;

typedef struct ttt__vocab {
    int32_t count, known; /* ids are below `count`; `known` of them are in use */
    int32_t room;
    ttt__token *tokens;
    uint8_t *flags;
    ttt__text texts;
    uint32_t *table; /* hash table of id + 1; 0: free */
    size_t mask;
} ttt__vocab;

/* Fails for an id far beyond the number of tokens, or an id with two texts. If two ids share a
 * text, lookup finds the first. */
PJRT_MUST_CHECK pjrt_status *ttt__vocab_set(ttt__vocab *vocab, int64_t id, const char *text,
                                            size_t size, unsigned flags);
int32_t ttt__vocab_find(const ttt__vocab *vocab, const char *text, size_t size);
void ttt__vocab_free(ttt__vocab *vocab);

static inline const char *ttt__vocab_text(const ttt__vocab *vocab, int32_t id)
{
    return vocab->texts.data + vocab->tokens[id].at;
}

/* A byte trie with root 0; children are found by hash. */
typedef struct ttt__trie {
    struct ttt__edge {
        uint32_t key, child; /* parent << 8 | byte; child 0: free */
    } * edges;
    int32_t *values; /* per node; -1: no text ends here */
    size_t mask, nodes, room;
} ttt__trie;

PJRT_MUST_CHECK pjrt_status *ttt__trie_add(ttt__trie *trie, const char *text, size_t size,
                                           int32_t value);
void ttt__trie_free(ttt__trie *trie);
/* Length of the longest text that starts at `at`, 0 for none. */
size_t ttt__trie_longest(const ttt__trie *trie, const char *at, const char *end, int32_t *value);

/* 0 if there is no such child. */
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

/* Tokens matched in the text, longest first. */
typedef struct ttt__added {
    ttt__trie trie; /* values are indices into the lists below */
    struct ttt__added_token {
        int32_t id;
        uint8_t flags;
    } * list;
    int32_t count, plain; /* `plain`: how many are not special */
    bool starts[256];     /* possible first bytes */
} ttt__added;

PJRT_MUST_CHECK pjrt_status *ttt__added_add(ttt__added *added, const char *text, size_t size,
                                            int32_t id, unsigned flags);
void ttt__added_free(ttt__added *added);

/* Extracts added tokens: their ids go to `ids`, the text between them to `rest`, with a flag for
 * the start of the text. */
typedef pjrt_status *(*ttt__rest)(ttt_encoder *encoder, const char *text, size_t size, bool first,
                                  ttt_ids *ids);
PJRT_MUST_CHECK pjrt_status *ttt__added_cut(const ttt__added *added, ttt_encoder *encoder,
                                            const char *text, size_t size, bool first,
                                            ttt__rest rest, ttt_ids *ids);

/* ---- byte-pair merging ---- */

enum { TTT__NO_RANK = UINT32_MAX };

/* A mergeable pair. The lowest rank merges first, then the leftmost. */
typedef struct ttt__pair {
    int32_t left, right, merged;
    uint32_t rank; /* TTT__NO_RANK: free slot */
} ttt__pair;

typedef struct ttt__pairs {
    ttt__pair *table;
    size_t mask, count;
} ttt__pairs;

/* Adds a pair, or updates its rank. */
PJRT_MUST_CHECK pjrt_status *ttt__pairs_add(ttt__pairs *pairs, ttt__pair pair);
/* Adds every split of a token into two other tokens. `ranks` is indexed by id; TTT__NO_RANK
 * excludes a token. Splits are at character boundaries, or at any byte. */
PJRT_MUST_CHECK pjrt_status *ttt__pairs_of_texts(ttt__pairs *pairs, const ttt__vocab *vocab,
                                                 const uint32_t *ranks, bool characters);
void ttt__pairs_free(ttt__pairs *pairs);

/* The symbols of a word, and scratch memory for merging. */
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

/* Pre-tokenizer patterns implemented in C; nearly all models use one of these. */
typedef enum ttt__rule {
    TTT__NO_RULE,
    TTT__GPT2,
    TTT__CL100K,
    TTT__CL100K_TAIL, /* trailing white space is one word, as in current tiktoken */
    TTT__QWEN2,       /* one digit per word */
    TTT__O200K,
} ttt__rule;

typedef bool (*ttt__class)(int32_t code);

/* What to search for: a rule, a character class, a literal or a regular expression; the first
 * one set. */
typedef struct ttt__pattern {
    ttt__rule rule;
    ttt__class class;
    ttt__text literal;
    struct pcre2_real_code_8 *code;
} ttt__pattern;

/* The rule equivalent to a regular expression, by exact text. */
ttt__rule ttt__rule_of(const char *expression);
/* The inverse: the first expression of a rule. */
const char *ttt__rule_expression(ttt__rule rule);
/* The end of the word that starts at `at`. */
const char *ttt__rule_next(ttt__rule rule, const char *at, const char *end);

enum { TTT__LINES = 1, TTT__ONLY_PCRE = 2 }; /* multiline ^ and $; do not map to a rule */
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
    size_t start, stop; /* of the current match */
    bool found;
} ttt__search;
/* Finds the next match; `found` is false after the last. */
PJRT_MUST_CHECK pjrt_status *ttt__search_next(ttt__search *search, ttt_encoder *encoder);

/* ---- steps ---- */

typedef enum ttt__step_kind {
    TTT__STEP_FORM, /* normalizers */
    TTT__STEP_PREPEND,
    TTT__STEP_REPLACE,
    TTT__STEP_STRIP,
    TTT__STEP_SPLIT, /* pre-tokenizers */
    TTT__STEP_SPACE, /* add a leading space if there is none */
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
    ttt__text text; /* text to prepend or to substitute */
} ttt__step;

enum { TTT__MAX_STEPS = 16 };

typedef struct ttt__steps {
    ttt__step list[TTT__MAX_STEPS];
    int count;
} ttt__steps;

void ttt__steps_free(ttt__steps *steps);
/* Applies all normalizers. The result is in the encoder's buffers, or the input itself if
 * unchanged. */
PJRT_MUST_CHECK pjrt_status *ttt__normalize(const ttt__steps *steps, ttt_encoder *encoder,
                                            const char **text, size_t *size);
/* Passes a span of text through the steps from `level` on; the results are words. */
PJRT_MUST_CHECK pjrt_status *ttt__pre_tokenize(ttt_encoder *encoder, int level, const char *text,
                                               size_t size, bool first, ttt_ids *ids);

/* ---- words ---- */

/* A cached word and its ids, one cache line. Longer words are not cached. */
enum { TTT__KEPT_WORD = 26, TTT__KEPT_IDS = 8, TTT__KEPT = 1 << 15 };

typedef struct ttt__kept {
    char word[TTT__KEPT_WORD];
    uint8_t size, count; /* size 0: free slot */
    float lead;          /* unigram: score margin over the second best segmentation */
    int32_t ids[TTT__KEPT_IDS];
} ttt__kept;

/* BPE model: how words become ids. */
typedef struct ttt__bpe {
    ttt__pairs pairs;
    int32_t byte_ids[256]; /* symbol of each byte; -1: none */
    int32_t letters[128];  /* symbols of ASCII characters, for character-level BPE */
    bool byte_level;       /* symbols are bytes; else characters */
    bool byte_fallback, fuse_unknown;
    bool whole_words;     /* a word that is a token is not merged (ignore_merges) */
    bool mapped;          /* token texts use GPT-2's characters for bytes */
    bool split_at_spaces; /* no token contains a U+2581 after another character, so words can be
                         * split there */
    bool fuse_across;     /* fuse consecutive unknowns even across words */
    int32_t unknown;      /* -1: unknown characters are dropped */
} ttt__bpe;

/* The ids of a word, from the cache or merged now. */
PJRT_MUST_CHECK pjrt_status *ttt__encode_word(ttt_encoder *encoder, const char *word, size_t size,
                                              ttt_ids *ids);
/* Encodes text without pre-tokenizer steps: as one word, or split where possible. */
PJRT_MUST_CHECK pjrt_status *ttt__encode_words(ttt_encoder *encoder, const char *text, size_t size,
                                               ttt_ids *ids);
/* Encodes text between added tokens: normalizes it, extracts normalized added tokens, then
 * splits it into words. */
PJRT_MUST_CHECK pjrt_status *ttt__encode_piece(ttt_encoder *encoder, const char *text, size_t size,
                                               bool first, ttt_ids *ids);
/* Whether a U+2581 follows another character. */
bool ttt__spans_words(const char *text, size_t size);
/* Derives `letters` and `cut_at_spaces` from the vocabulary. */
void ttt__bpe_finish(ttt_tokenizer *tokenizer, bool may_cut);
/* GPT-2's mapping of bytes to printable characters. */
int32_t ttt__char_of_byte(unsigned char byte);
int ttt__byte_of_char(int32_t code); /* -1: not a mapped byte */

/* ---- sentencepiece ---- */

typedef struct ttt__sentencepiece ttt__sentencepiece;
void ttt__sentencepiece_free(ttt__sentencepiece *sp);

/* ---- tokenizer and encoder ---- */

struct ttt_tokenizer {
    ttt_tokenizer_about about;
    ttt__vocab vocab;
    ttt__added added;      /* matched in the raw text */
    ttt__added normalized; /* matched in the normalized text */
    ttt__steps normalizers, steps;
    ttt__bpe bpe;
    ttt__sentencepiece *sp;
    bool takes_broken; /* `encode` accepts invalid UTF-8 */
    ttt__rest encode;  /* encodes the text between added tokens */
    pjrt_status *(*word)(ttt_encoder *encoder, const char *word, size_t size, ttt_ids *ids);
    /* Decoded bytes of id i: plain[plain_at[i] .. plain_at[i + 1]). The first token of a text
     * may decode differently (`first_at`). */
    ttt__text plain;
    uint32_t *plain_at, *first_at; /* first_at: NULL if the same */
    ttt__text stripped;            /* removed from the start of the text, */
    int strips;                    /* up to this many times */
    ttt__text joint;               /* separator between decoded tokens */
    bool drops_space;              /* sentencepiece: remove the prefix space, */
    bool drops_spaces;             /* or all leading spaces */
};

struct ttt_encoder {
    const ttt_tokenizer *tokenizer;
    unsigned flags;
    size_t start; /* index of this text's first id */
    ttt__text repaired;
    ttt__text normal[2];              /* buffers of the normalizers, used alternately */
    ttt__text levels[TTT__MAX_STEPS]; /* output buffer of each step */
    ttt__text mapped;
    ttt__symbols symbols;
    ttt__kept *kept;
    struct pcre2_real_match_data_8 *match; /* NULL without patterns */
    struct pcre2_real_match_context_8 *match_context;
    struct ttt__best *best; /* unigram: */
    float score;            /* of the text so far */
    size_t best_room;
};

/* Appends an entry to `plain` for each id in order, unused ids included. */
PJRT_MUST_CHECK pjrt_status *ttt__plain_start(ttt_tokenizer *tokenizer);
PJRT_MUST_CHECK pjrt_status *ttt__plain_add(ttt_tokenizer *tokenizer, uint32_t *at, int32_t id,
                                            const char *bytes, size_t size);
/* Sets BOS, EOS and padding by their usual token names where the file does not define them. */
void ttt__set_specials_by_name(ttt_tokenizer *tokenizer);

PJRT_MUST_CHECK pjrt_status *ttt__json_make(ttt_tokenizer *tokenizer, const char *name,
                                            const char *bytes, size_t size);
PJRT_MUST_CHECK pjrt_status *ttt__sentencepiece_make(ttt_tokenizer *tokenizer, const char *name,
                                                     const char *bytes, size_t size);
PJRT_MUST_CHECK pjrt_status *ttt__tiktoken_make(ttt_tokenizer *tokenizer, const char *name,
                                                const char *bytes, size_t size);

#endif
