/* tiktoken files: one line per token, with its bytes in base64 and its rank, which is its id.
 * Patterns and special tokens are not in the file; its name selects them. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

static const struct encoding {
    const char *name;
    ttt__rule rule;
    struct {
        const char *text;
        int32_t id;
    } specials[8];
} encodings[] = {
    {"gpt2", TTT__GPT2, {{"<|endoftext|>", 50256}}},
    {"r50k_base", TTT__GPT2, {{"<|endoftext|>", 50256}}},
    {"p50k_base", TTT__GPT2, {{"<|endoftext|>", 50256}}},
    {"p50k_edit",
     TTT__GPT2,
     {{"<|endoftext|>", 50256},
      {"<|fim_prefix|>", 50281},
      {"<|fim_middle|>", 50282},
      {"<|fim_suffix|>", 50283}}},
    {"cl100k_base",
     TTT__CL100K_TAIL,
     {{"<|endoftext|>", 100257},
      {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259},
      {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k_base", TTT__O200K, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
};

/* The encoding of the file name without folder and suffix; NULL: unknown. */
static const struct encoding *encoding_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t length = strcspn(name, ".");
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        if (strlen(encodings[i].name) == length && memcmp(encodings[i].name, name, length) == 0)
            return &encodings[i];
    }
    return NULL;
}

/* ---- lines ---- */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes the base64 of one token; returns its length, 0 if invalid. */
static size_t read_base64(const char *at, size_t size, char *to)
{
    size_t count = 0;
    if (size == 0 || size % 4 != 0 || size / 4 * 3 > TTT__MAX_TOKEN)
        return 0;
    for (size_t i = 0; i < size; i += 4) {
        int filled = i + 4 < size || at[i + 3] != '=' ? 4 : at[i + 2] != '=' ? 3 : 2;
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            int value = k < filled ? base64_value(at[i + (size_t)k]) : 0;
            if (value < 0)
                return 0;
            bits = bits << 6 | (uint32_t)value;
        }
        for (int k = 0; k < filled - 1; k++)
            to[count++] = (char)(bits >> (16 - 8 * k));
    }
    return count;
}

static pjrt_status *read_line(ttt_tokenizer *tokenizer, const char *name, const char *line,
                              size_t size, long number)
{
    char bytes[TTT__MAX_TOKEN + 4];
    const char *space = memchr(line, ' ', size);
    size_t count = space == NULL ? 0 : read_base64(line, (size_t)(space - line), bytes);
    int64_t rank = 0;
    const char *digit = space == NULL ? line : space + 1;
    const char *end = line + size;
    bool ok = count > 0 && digit < end;
    for (; ok && digit < end; digit++) {
        ok = *digit >= '0' && *digit <= '9' && rank < INT32_MAX;
        rank = rank * 10 + (*digit - '0');
    }
    if (!ok)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "%s: line %ld is not a token in base64 and its rank", name, number);
    return ttt__vocab_set(&tokenizer->vocab, rank, bytes, count, 0);
}

static pjrt_status *read_lines(ttt_tokenizer *tokenizer, const char *name, const char *bytes,
                               size_t size)
{
    const char *at = bytes, *end = bytes + size;
    for (long number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        size_t length = (size_t)(stop - at) - (stop > at && stop[-1] == '\r');
        if (length > 0)
            PJRT_TRY(read_line(tokenizer, name, at, length, number));
        at = newline != NULL ? newline + 1 : end;
    }
    return NULL;
}

/* ---- entry point ---- */

static pjrt_status *add_special(ttt_tokenizer *tokenizer, const char *text, int32_t id)
{
    size_t size = strlen(text);
    PJRT_TRY(ttt__vocab_set(&tokenizer->vocab, id, text, size, TTT__SPECIAL));
    return ttt__added_add(&tokenizer->added, text, size, id, TTT__ADDED_SPECIAL);
}

static pjrt_status *add_specials(ttt_tokenizer *tokenizer, const struct encoding *encoding)
{
    if (encoding == NULL)
        return add_special(tokenizer, "<|endoftext|>", tokenizer->vocab.count);
    for (int i = 0; i < 8 && encoding->specials[i].text != NULL; i++)
        PJRT_TRY(add_special(tokenizer, encoding->specials[i].text, encoding->specials[i].id));
    return NULL;
}

static pjrt_status *make_pairs(ttt_tokenizer *tokenizer)
{
    ttt__bpe *bpe = &tokenizer->bpe;
    const ttt__vocab *vocab = &tokenizer->vocab;
    uint32_t *ranks = malloc((size_t)vocab->count * sizeof *ranks);
    if (ranks == NULL)
        return PJRT_NO_MEMORY(where);
    for (int32_t id = 0; id < vocab->count; id++)
        ranks[id] = vocab->flags[id] == TTT__THERE ? (uint32_t)id : TTT__NO_RANK;
    pjrt_status *st = ttt__pairs_of_texts(&bpe->pairs, vocab, ranks, false);
    free(ranks);
    return st;
}

pjrt_status *ttt__tiktoken_make(ttt_tokenizer *tokenizer, const char *name, const char *bytes,
                                size_t size)
{
    const struct encoding *encoding = encoding_of(name);
    ttt__bpe *bpe = &tokenizer->bpe;
    PJRT_TRY(read_lines(tokenizer, name, bytes, size));
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        bpe->byte_ids[i] = ttt__vocab_find(&tokenizer->vocab, &byte, 1);
        if (bpe->byte_ids[i] < 0)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "%s: no token is the byte 0x%02x", name, i);
    }
    PJRT_TRY(add_specials(tokenizer, encoding));
    PJRT_TRY(make_pairs(tokenizer));
    bpe->byte_level = bpe->whole_words = true;
    bpe->unknown = -1;
    tokenizer->steps.list[0].pattern.rule = encoding != NULL ? encoding->rule : TTT__CL100K_TAIL;
    tokenizer->steps.list[0].kind = TTT__STEP_SPLIT;
    tokenizer->steps.count = 1;
    tokenizer->about.kind = "tiktoken";
    tokenizer->encode = ttt__encode_piece;
    ttt__set_specials_by_name(tokenizer);
    PJRT_TRY(ttt__plain_start(tokenizer));
    for (int32_t id = 0; id < tokenizer->vocab.count; id++) {
        bool there = tokenizer->vocab.flags[id] & TTT__THERE;
        PJRT_TRY(ttt__plain_add(tokenizer, tokenizer->plain_at, id,
                                there ? ttt__vocab_text(&tokenizer->vocab, id) : "",
                                there ? tokenizer->vocab.tokens[id].size : 0));
    }
    return NULL;
}
