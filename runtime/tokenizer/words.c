/* Encodes words by BPE: initial symbols, and a cache of words. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char where[] = "tokenizer";

static const char space_symbol[] = "\xe2\x96\x81"; /* U+2581 */

/* ---- bytes as characters ---- */

/* GPT-2 maps printable bytes to the same code point and the others, in order, to code points
 * from 256. */
static bool is_seen(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

int32_t ttt__char_of_byte(unsigned char byte)
{
    if (is_seen(byte))
        return byte;
    return 256 + (byte <= ' ' ? byte : byte <= 0xa0 ? byte - 0x7f + 33 : 67);
}

int ttt__byte_of_char(int32_t code)
{
    if (code < 256)
        return is_seen(code) ? code : -1;
    int n = code - 256;
    return n <= ' ' ? n : n <= 66 ? n - 33 + 0x7f : n == 67 ? 0xad : -1;
}

/* ---- symbols ---- */

/* The symbol of a character, or its fallback. */
static int32_t symbol_of_char(const ttt_tokenizer *tokenizer, const char *at, int size)
{
    if (size == 1)
        return tokenizer->bpe.letters[(unsigned char)*at];
    return ttt__vocab_find(&tokenizer->vocab, at, (size_t)size);
}

static bool all_bytes_there(const ttt__bpe *bpe, const char *at, int size)
{
    for (int i = 0; i < size; i++) {
        if (bpe->byte_ids[(unsigned char)at[i]] < 0)
            return false;
    }
    return bpe->byte_fallback;
}

/* Character symbols. A pending unknown is emitted at the next known character, so that runs can
 * be fused. */
static void character_symbols(const ttt_tokenizer *tokenizer, ttt__symbols *symbols,
                              const char *word, size_t size)
{
    const ttt__bpe *bpe = &tokenizer->bpe;
    const char *end = word + size;
    bool waiting = false;
    int length;
    for (const char *at = word; at < end; at += length) {
        if (ttt__utf8_next(at, end, &length) < 0)
            length = 1;
        int32_t id = symbol_of_char(tokenizer, at, length);
        if (id >= 0) {
            if (waiting)
                symbols->list[symbols->count++] = bpe->unknown;
            waiting = false;
            symbols->list[symbols->count++] = id;
        } else if (all_bytes_there(bpe, at, length)) {
            for (int i = 0; i < length; i++)
                symbols->list[symbols->count++] = bpe->byte_ids[(unsigned char)at[i]];
        } else if (bpe->unknown >= 0) {
            if (waiting && !bpe->fuse_unknown)
                symbols->list[symbols->count++] = bpe->unknown;
            waiting = true;
        }
    }
    if (waiting)
        symbols->list[symbols->count++] = bpe->unknown;
}

static void byte_symbols(const ttt__bpe *bpe, ttt__symbols *symbols, const char *word, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        int32_t id = bpe->byte_ids[(unsigned char)word[i]];
        if (id < 0)
            id = bpe->unknown;
        bool fused = bpe->fuse_unknown && symbols->count > 0 && id == bpe->unknown &&
                     symbols->list[symbols->count - 1] == id;
        if (id >= 0 && !fused)
            symbols->list[symbols->count++] = id;
    }
}

/* The id of a word that is a token; -1: none. */
static pjrt_status *find_whole(ttt_encoder *encoder, const char *word, size_t size, int32_t *id)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    *id = -1;
    if (size > TTT__MAX_TOKEN)
        return NULL;
    if (tokenizer->bpe.mapped) {
        encoder->mapped.size = 0;
        if (!ttt__text_room(&encoder->mapped, 2 * size))
            return PJRT_NO_MEMORY(where);
        for (size_t i = 0; i < size; i++)
            encoder->mapped.size +=
                (size_t)ttt__utf8_put(ttt__char_of_byte((unsigned char)word[i]),
                                      encoder->mapped.data + encoder->mapped.size);
        word = encoder->mapped.data;
        size = encoder->mapped.size;
    }
    *id = ttt__vocab_find(&tokenizer->vocab, word, size);
    return NULL;
}

static pjrt_status *merge_word(ttt_encoder *encoder, const char *word, size_t size)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    ttt__symbols *symbols = &encoder->symbols;
    symbols->count = 0;
    PJRT_TRY(ttt__symbols_room(symbols, size + 1));
    if (tokenizer->bpe.whole_words) {
        int32_t id;
        PJRT_TRY(find_whole(encoder, word, size, &id));
        if (id >= 0 && !(tokenizer->vocab.flags[id] & TTT__SPECIAL)) {
            symbols->list[symbols->count++] = id;
            return NULL;
        }
    }
    if (tokenizer->bpe.byte_level)
        byte_symbols(&tokenizer->bpe, symbols, word, size);
    else
        character_symbols(tokenizer, symbols, word, size);
    return ttt__merge(&tokenizer->bpe.pairs, symbols);
}

/* ---- words ---- */

/* A character left over by merging that is not a token itself. */
static pjrt_status *add_ghost(const ttt_tokenizer *tokenizer, int32_t ghost, ttt_ids *ids)
{
    const ttt__bpe *bpe = &tokenizer->bpe;
    const char *text = ttt__vocab_text(&tokenizer->vocab, ghost);
    size_t size = bpe->byte_fallback ? tokenizer->vocab.tokens[ghost].size : 1;
    for (size_t i = 0; i < size; i++) {
        int32_t id = bpe->byte_fallback ? bpe->byte_ids[(unsigned char)text[i]] : bpe->unknown;
        if (!ttt__ids_add(ids, id))
            return PJRT_NO_MEMORY(where);
    }
    return NULL;
}

/* Consecutive unknowns become one, as in sentencepiece. */
static pjrt_status *add_fused(ttt_encoder *encoder, const int32_t *list, size_t count, ttt_ids *ids)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    int32_t unknown = tokenizer->bpe.unknown;
    for (size_t i = 0; i < count; i++) {
        bool ghost = tokenizer->vocab.flags[list[i]] & TTT__GHOST;
        bool nothing = list[i] == unknown || (ghost && !tokenizer->bpe.byte_fallback);
        if (nothing && ids->count > encoder->start && ids->list[ids->count - 1] == unknown)
            continue;
        if (ghost)
            PJRT_TRY(add_ghost(tokenizer, list[i], ids));
        else if (!ttt__ids_add(ids, list[i]))
            return PJRT_NO_MEMORY(where);
    }
    return NULL;
}

static pjrt_status *add_all(ttt_encoder *encoder, const int32_t *list, size_t count, ttt_ids *ids)
{
    if (encoder->tokenizer->bpe.fuse_across)
        return add_fused(encoder, list, count, ids);
    if (!ttt__ids_room(ids, count))
        return PJRT_NO_MEMORY(where);
    if (count > 0)
        memcpy(ids->list + ids->count, list, count * sizeof *list);
    ids->count += count;
    return NULL;
}

pjrt_status *ttt__encode_word(ttt_encoder *encoder, const char *word, size_t size, ttt_ids *ids)
{
    const ttt__symbols *symbols = &encoder->symbols;
    if (size > TTT__KEPT_WORD) {
        PJRT_TRY(merge_word(encoder, word, size));
        return add_all(encoder, symbols->list, symbols->count, ids);
    }
    ttt__kept *kept = &encoder->kept[XXH3_64bits(word, size) % TTT__KEPT];
    if (kept->size == size && memcmp(kept->word, word, size) == 0) {
        if (encoder->tokenizer->bpe.fuse_across)
            return add_fused(encoder, kept->ids, kept->count, ids);
        if (ids->room - ids->count < TTT__KEPT_IDS && !ttt__ids_room(ids, TTT__KEPT_IDS))
            return PJRT_NO_MEMORY(where);
        /* fixed size: compiles to a few moves */
        memcpy(ids->list + ids->count, kept->ids, sizeof kept->ids);
        ids->count += kept->count;
        return NULL;
    }
    PJRT_TRY(merge_word(encoder, word, size));
    if (symbols->count <= TTT__KEPT_IDS) {
        memcpy(kept->word, word, size);
        kept->size = (uint8_t)size;
        kept->count = (uint8_t)symbols->count;
        for (size_t i = 0; i < symbols->count; i++)
            kept->ids[i] = symbols->list[i];
    }
    return add_all(encoder, symbols->list, symbols->count, ids);
}

pjrt_status *ttt__encode_words(ttt_encoder *encoder, const char *text, size_t size, ttt_ids *ids)
{
    const char *at = text, *end = text + size;
    if (size == 0)
        return NULL;
    if (!encoder->tokenizer->bpe.split_at_spaces)
        return encoder->tokenizer->word(encoder, text, size, ids);
    while (at < end) {
        const char *stop = at;
        while (end - stop >= 3 && memcmp(stop, space_symbol, 3) == 0)
            stop += 3;
        for (;;) {
            const char *found = memchr(stop, space_symbol[0], (size_t)(end - stop));
            stop = found == NULL ? end : found;
            if (found == NULL || (end - stop >= 3 && memcmp(stop, space_symbol, 3) == 0))
                break;
            stop++;
        }
        PJRT_TRY(encoder->tokenizer->word(encoder, at, (size_t)(stop - at), ids));
        at = stop;
    }
    return NULL;
}

/* ---- derived from the vocabulary ---- */

bool ttt__spans_words(const char *text, size_t size)
{
    for (size_t i = 1; i + 3 <= size; i++) {
        if (memcmp(text + i, space_symbol, 3) == 0 &&
            (i < 3 || memcmp(text + i - 3, space_symbol, 3) != 0))
            return true;
    }
    return false;
}

void ttt__bpe_finish(ttt_tokenizer *tokenizer, bool may_cut)
{
    ttt__bpe *bpe = &tokenizer->bpe;
    const ttt__vocab *vocab = &tokenizer->vocab;
    for (int i = 0; i < 128; i++) {
        char letter = (char)i;
        bpe->letters[i] = ttt__vocab_find(vocab, &letter, 1);
    }
    bpe->split_at_spaces = may_cut && ttt__vocab_find(vocab, space_symbol, 3) >= 0;
    for (size_t i = 0; bpe->pairs.table != NULL && i <= bpe->pairs.mask; i++) {
        const ttt__pair *pair = &bpe->pairs.table[i];
        if (pair->rank != TTT__NO_RANK && ttt__spans_words(ttt__vocab_text(vocab, pair->merged),
                                                           vocab->tokens[pair->merged].size))
            bpe->split_at_spaces = false;
    }
}
