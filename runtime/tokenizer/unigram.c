/*
 * Unigram (Viterbi): the segmentation with the highest sum of scores. The sum runs through the text
 * in single precision and is rebased when large, as in sentencepiece. So a word can split
 * differently after a long text than alone if two segmentations are nearly equal. Cached words
 * carry the margin by which the best one won; a cached result is used only if rounding cannot
 * change it.
 */
#include "runtime/tokenizer/sentencepiece.h"

#include <math.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char where[] = "tokenizer";

/* The best segmentation up to a position in the word. */
struct ttt__best {
    float score;
    float lead;        /* margin over the second best */
    int32_t start, id; /* of the last piece; start -1: not reached yet */
};

static const float largest_sum = 100000;

static void offer(struct ttt__best *best, float score, int32_t start, int32_t id)
{
    if (best->start < 0 || score > best->score) {
        best->lead = best->start < 0 ? INFINITY : score - best->score;
        best->score = score;
        best->start = start;
        best->id = id;
    } else if (best->score - score < best->lead) {
        best->lead = best->score - score;
    }
}

/* Extends to all pieces that start at `at`. Returns whether one of them is the single character. */
static bool offer_pieces(const ttt_tokenizer *tokenizer, struct ttt__best *best, const char *word,
                         size_t at, size_t size, size_t character)
{
    const ttt__sentencepiece *sp = tokenizer->sp;
    float so_far = best[at].score;
    bool alone = false;
    uint32_t node = 0;
    for (size_t p = at; p < size; p++) {
        node = ttt__trie_step(&sp->pieces, node, (unsigned char)word[p]);
        if (node == 0)
            break;
        int32_t id = sp->pieces.values[node];
        if (id < 0)
            continue;
        size_t length = p + 1 - at;
        float score = sp->scores[id];
        if (tokenizer->vocab.flags[id] & TTT__USER)
            score = (float)(0.1 * (double)(length - 1));
        offer(&best[p + 1], score + so_far, (int32_t)at, id);
        alone |= length == character;
    }
    return alone;
}

/* Rebases the sums so that the one at `at` is 0. */
static void rebase_sums(struct ttt__best *best, size_t at, size_t size)
{
    float sum = best[at].score;
    for (size_t i = at; i <= size && i - at <= TTT__MAX_TOKEN; i++) {
        if (i == at || best[i].start >= 0)
            best[i].score -= sum;
    }
}

static pjrt_status *find_best(ttt_encoder *encoder, const char *word, size_t size)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    if (size + 1 > encoder->best_room) {
        struct ttt__best *best = realloc(encoder->best, (size + 1) * sizeof *best);
        if (best == NULL)
            return PJRT_NO_MEMORY(where);
        encoder->best = best;
        encoder->best_room = size + 1;
    }
    struct ttt__best *best = encoder->best;
    for (size_t i = 0; i <= size; i++)
        best[i].start = -1;
    best[0].score = encoder->score;
    int length;
    for (size_t at = 0; at < size; at += (size_t)length) {
        if (ttt__utf8_next(word + at, word + size, &length) < 0)
            length = 1;
        if (fabsf(best[at].score) > largest_sum)
            rebase_sums(best, at, size);
        if (!offer_pieces(tokenizer, best, word, at, size, (size_t)length)) {
            float sum = tokenizer->sp->unknown_score + best[at].score;
            offer(&best[at + (size_t)length], sum, (int32_t)at, tokenizer->bpe.unknown);
        }
    }
    encoder->score = best[size].score;
    return NULL;
}

/* Backtracks the best segmentation into the symbols. Returns its margin, or -1 if it cannot be
 * cached. */
static float trace(ttt_encoder *encoder, const char *word, size_t size)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    ttt__symbols *symbols = &encoder->symbols;
    float lead = INFINITY;
    symbols->count = 0;
    for (size_t end = size; end > 0;) {
        const struct ttt__best *best = &encoder->best[end];
        size_t start = (size_t)best->start;
        unsigned flags = tokenizer->vocab.flags[best->id];
        lead = flags & (TTT__UNKNOWN | TTT__USER) ? -1 : best->lead < lead ? best->lead : lead;
        if (flags & TTT__UNKNOWN && tokenizer->bpe.byte_fallback) {
            for (size_t i = end; i-- > start;)
                symbols->list[symbols->count++] = tokenizer->bpe.byte_ids[(unsigned char)word[i]];
        } else {
            symbols->list[symbols->count++] = best->id;
        }
        end = start;
    }
    return lead;
}

/* Upper bound of the rounding error in the difference of two segmentations; infinite if the sum
 * may be rebased within the word. */
static float rounding_bound(const ttt_encoder *encoder, size_t size)
{
    float longest = (float)size * encoder->tokenizer->sp->largest + fabsf(encoder->score);
    return longest < largest_sum ? (float)size * longest * 0x1p-21f : INFINITY;
}

static pjrt_status *add_reversed(ttt_encoder *encoder, ttt_ids *ids)
{
    const ttt__symbols *symbols = &encoder->symbols;
    int32_t unknown = encoder->tokenizer->bpe.unknown;
    for (size_t i = symbols->count; i-- > 0;) {
        int32_t id = symbols->list[i];
        if (id == unknown && ids->count > encoder->start && ids->list[ids->count - 1] == unknown)
            continue; /* consecutive unknowns become one */
        if (!ttt__ids_add(ids, id))
            return PJRT_NO_MEMORY(where);
    }
    return NULL;
}

static pjrt_status *add_kept(ttt_encoder *encoder, const ttt__kept *kept, ttt_ids *ids)
{
    const float *scores = encoder->tokenizer->sp->scores;
    if (!ttt__ids_room(ids, TTT__KEPT_IDS))
        return PJRT_NO_MEMORY(where);
    memcpy(ids->list + ids->count, kept->ids, sizeof kept->ids);
    ids->count += kept->count;
    for (int i = 0; i < kept->count; i++)
        encoder->score += scores[kept->ids[i]];
    return NULL;
}

pjrt_status *ttt__unigram_word(ttt_encoder *encoder, const char *word, size_t size, ttt_ids *ids)
{
    ttt__symbols *symbols = &encoder->symbols;
    ttt__kept *kept = NULL;
    if (fabsf(encoder->score) > largest_sum)
        encoder->score = 0;
    if (size <= TTT__KEPT_WORD) {
        kept = &encoder->kept[XXH3_64bits(word, size) % TTT__KEPT];
        if (kept->size == size && memcmp(kept->word, word, size) == 0 &&
            kept->lead > rounding_bound(encoder, size))
            return add_kept(encoder, kept, ids);
    }
    float before = rounding_bound(encoder, size);
    PJRT_TRY(ttt__symbols_room(symbols, size));
    PJRT_TRY(find_best(encoder, word, size));
    float lead = trace(encoder, word, size) - before;
    if (kept != NULL && lead > 0 && symbols->count <= TTT__KEPT_IDS) {
        memcpy(kept->word, word, size);
        kept->size = (uint8_t)size;
        kept->count = (uint8_t)symbols->count;
        kept->lead = lead;
        for (size_t i = 0; i < symbols->count; i++)
            kept->ids[i] = symbols->list[symbols->count - 1 - i];
    }
    return add_reversed(encoder, ids);
}
