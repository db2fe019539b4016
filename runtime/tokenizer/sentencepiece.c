/* sentencepiece models: pieces with scores and types, encoded by BPE or unigram. */
#include "runtime/tokenizer/sentencepiece.h"
#include "runtime/tokenizer/json.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "sentencepiece.pb-c.h"

static const char where[] = "tokenizer";

static const char space_symbol[] = "\xe2\x96\x81"; /* U+2581 */

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
enum { UNIGRAM = 1, BPE = 2 };

void ttt__sentencepiece_free(ttt__sentencepiece *sp)
{
    if (sp == NULL)
        return;
    free(sp->units);
    free(sp->replacements);
    free(sp->scores);
    ttt__trie_free(&sp->user);
    ttt__trie_free(&sp->pieces);
    free(sp);
}

/* ---- encoding ---- */

/* User-defined pieces never merge: BPE runs on the text between them. */
static pjrt_status *between_user_pieces(ttt_encoder *encoder, const char *text, size_t size,
                                        ttt_ids *ids)
{
    const ttt__trie *user = &encoder->tokenizer->sp->user;
    const char *at = text, *end = text + size, *done = text;
    while (at < end && user->nodes > 0) {
        int32_t id;
        size_t length = ttt__trie_longest(user, at, end, &id);
        if (length == 0) {
            at++;
            continue;
        }
        PJRT_TRY(ttt__encode_words(encoder, done, (size_t)(at - done), ids));
        if (!ttt__ids_add(ids, id))
            return PJRT_NO_MEMORY(where);
        done = at += length;
    }
    return ttt__encode_words(encoder, done, (size_t)(end - done), ids);
}

static pjrt_status *encode(ttt_encoder *encoder, const char *text, size_t size, bool first,
                           ttt_ids *ids)
{
    const ttt__sentencepiece *sp = encoder->tokenizer->sp;
    ttt__text *normal = &encoder->normal[0];
    (void)first;
    PJRT_TRY(ttt__charsmap_apply(sp, text, size, normal));
    if (normal->size > INT32_MAX / 2)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the normalized text is too long");
    encoder->score = 0;
    if (sp->scores != NULL)
        return ttt__encode_words(encoder, normal->data, normal->size, ids);
    return between_user_pieces(encoder, normal->data, normal->size, ids);
}

/* ---- pieces ---- */

static const unsigned flags_of_type[] = {[NORMAL] = 0,
                                         [UNKNOWN] = TTT__UNKNOWN | TTT__SPECIAL,
                                         [CONTROL] = TTT__SPECIAL,
                                         [USER_DEFINED] = TTT__USER,
                                         [UNUSED] = TTT__UNUSED,
                                         [BYTE] = TTT__BYTE};

static pjrt_status *add_piece(ttt_tokenizer *tokenizer, const Sentencepiece__Piece *piece,
                              int32_t id)
{
    const char *text = (const char *)piece->piece.data;
    size_t size = piece->piece.len;
    int type = piece->type;
    if (type < NORMAL || type > BYTE || size == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "piece %d has no text or type %d", id, type);
    if (!isfinite(piece->score))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the score of piece %d is no number", id);
    if (ttt__vocab_find(&tokenizer->vocab, text, size) >= 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "piece %d occurs twice", id);
    PJRT_TRY(ttt__vocab_set(&tokenizer->vocab, id, text, size, flags_of_type[type]));
    if (type == USER_DEFINED)
        PJRT_TRY(ttt__trie_add(&tokenizer->sp->user, text, size, id));
    if (type == CONTROL)
        PJRT_TRY(ttt__added_add(&tokenizer->added, text, size, id, TTT__ADDED_SPECIAL));
    if (type == UNKNOWN) {
        if (tokenizer->bpe.unknown >= 0)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "two pieces are the unknown one");
        tokenizer->bpe.unknown = id;
    }
    if (type == BYTE) {
        int byte = ttt__byte_of_text(text, size);
        if (byte < 0)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "piece %d is no byte", id);
        tokenizer->bpe.byte_ids[byte] = id;
    }
    return NULL;
}

static pjrt_status *add_pieces(ttt_tokenizer *tokenizer, const Sentencepiece__Model *model)
{
    ttt__bpe *bpe = &tokenizer->bpe;
    bpe->unknown = -1;
    for (int i = 0; i < 256; i++)
        bpe->byte_ids[i] = -1;
    for (size_t i = 0; i < model->n_pieces; i++)
        PJRT_TRY(add_piece(tokenizer, model->pieces[i], (int32_t)i));
    if (bpe->unknown < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "no piece is the unknown one");
    for (int i = 0; bpe->byte_fallback && i < 256; i++) {
        if (bpe->byte_ids[i] < 0)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "no piece is the byte 0x%02x", i);
    }
    tokenizer->about.vocab = tokenizer->vocab.count;
    tokenizer->about.unknown = bpe->unknown;
    return NULL;
}

/* Decoded bytes of pieces: spaces for U+2581, raw bytes for byte pieces, nothing for control
 * symbols. */
static pjrt_status *make_plain(ttt_tokenizer *tokenizer, const char *unknown, size_t unknown_size)
{
    const ttt__vocab *vocab = &tokenizer->vocab;
    char plain[TTT__MAX_TOKEN];
    PJRT_TRY(ttt__plain_start(tokenizer));
    for (int32_t id = 0; id < vocab->count; id++) {
        const char *text = ttt__vocab_text(vocab, id), *end = text + vocab->tokens[id].size;
        size_t size = 0;
        if (vocab->flags[id] & TTT__UNKNOWN) {
            PJRT_TRY(ttt__plain_add(tokenizer, tokenizer->plain_at, id, unknown, unknown_size));
            continue;
        }
        if (vocab->flags[id] & TTT__BYTE)
            plain[size++] = (char)ttt__byte_of_text(text, vocab->tokens[id].size);
        else if (!(vocab->flags[id] & TTT__SPECIAL))
            while (text < end) {
                bool space = end - text >= 3 && memcmp(text, space_symbol, 3) == 0;
                plain[size++] = space ? ' ' : *text;
                text += space ? 3 : 1;
            }
        PJRT_TRY(ttt__plain_add(tokenizer, tokenizer->plain_at, id, plain, size));
    }
    return NULL;
}

/* ---- BPE ---- */

/* Adds ids for characters that occur in pieces but are not pieces; merging needs them. */
static pjrt_status *add_ghosts(ttt__vocab *vocab)
{
    int32_t count = vocab->count;
    int length;
    for (int32_t id = 0; id < count; id++) {
        if (vocab->flags[id] & ~(unsigned)(TTT__THERE | TTT__USER))
            continue;
        for (uint32_t at = 0; at < vocab->tokens[id].size; at += (uint32_t)length) {
            char text[4];
            const char *from = ttt__vocab_text(vocab, id) + at;
            if (ttt__utf8_next(from, from + vocab->tokens[id].size - at, &length) < 0)
                return PJRT_FAIL(INVALID_ARGUMENT, where, "piece %d is not UTF-8", id);
            memcpy(text, from, (size_t)length); /* copy first: adding may move the vocabulary's
                                                 * texts */
            if (ttt__vocab_find(vocab, text, (size_t)length) < 0)
                PJRT_TRY(ttt__vocab_set(vocab, vocab->count, text, (size_t)length, TTT__GHOST));
        }
    }
    return NULL;
}

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *left = a, *right = b;
    return left->score == right->score ? 0 : left->score > right->score ? -1 : 1;
}

/* Higher scores get lower ranks; equal scores share a rank. */
static void rank_scores(scored *list, size_t count, uint32_t *ranks)
{
    uint32_t rank = 0;
    qsort(list, count, sizeof *list, by_score);
    for (size_t i = 0; i < count; i++) {
        rank += i > 0 && list[i].score != list[i - 1].score;
        ranks[list[i].id] = rank;
    }
}

static pjrt_status *make_bpe(ttt_tokenizer *tokenizer, const Sentencepiece__Model *model)
{
    ttt__vocab *vocab = &tokenizer->vocab;
    PJRT_TRY(add_ghosts(vocab));
    uint32_t *ranks = malloc((size_t)vocab->count * sizeof *ranks);
    scored *list = malloc((size_t)vocab->count * sizeof *list);
    pjrt_status *st = ranks == NULL || list == NULL ? PJRT_NO_MEMORY(where) : NULL;
    size_t count = 0;
    for (int32_t id = 0; st == NULL && id < vocab->count; id++) {
        unsigned flags = vocab->flags[id];
        ranks[id] = flags & TTT__GHOST ? 0 : TTT__NO_RANK;
        if (flags & TTT__UNUSED)
            st = PJRT_FAIL(UNIMPLEMENTED, where, "unused pieces of a sentencepiece BPE");
        else if (!(flags & ~(unsigned)(TTT__THERE | TTT__USER)))
            list[count++] = (scored){model->pieces[id]->score, id};
    }
    if (st == NULL) {
        rank_scores(list, count, ranks);
        st = ttt__pairs_of_texts(&tokenizer->bpe.pairs, vocab, ranks, true);
    }
    free(ranks);
    free(list);
    ttt__bpe_finish(tokenizer, true);
    tokenizer->about.kind = "sentencepiece-bpe";
    return st;
}

/* ---- unigram ---- */

static pjrt_status *make_unigram(ttt_tokenizer *tokenizer, const Sentencepiece__Model *model)
{
    enum { UNKNOWN_PENALTY = 10 };
    ttt__sentencepiece *sp = tokenizer->sp;
    const ttt__vocab *vocab = &tokenizer->vocab;
    float least = FLT_MAX;
    sp->scores = malloc(((size_t)vocab->count + 1) * sizeof *sp->scores);
    if (sp->scores == NULL)
        return PJRT_NO_MEMORY(where);
    tokenizer->bpe.split_at_spaces = true;
    for (int32_t id = 0; id < vocab->count; id++) {
        const char *text = ttt__vocab_text(vocab, id);
        size_t size = vocab->tokens[id].size;
        float score = sp->scores[id] = model->pieces[id]->score;
        sp->largest = fmaxf(sp->largest, fabsf(score));
        if (vocab->flags[id] == TTT__THERE)
            least = fminf(least, score);
        if (vocab->flags[id] & ~(unsigned)(TTT__THERE | TTT__USER))
            continue;
        PJRT_TRY(ttt__trie_add(&sp->pieces, text, size, id));
        if (ttt__spans_words(text, size))
            tokenizer->bpe.split_at_spaces = false;
    }
    if (sp->pieces.nodes == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "there are no pieces");
    sp->unknown_score = least - UNKNOWN_PENALTY;
    sp->largest = fmaxf(sp->largest, fabsf(sp->unknown_score));
    tokenizer->word = ttt__unigram_word;
    tokenizer->about.kind = "sentencepiece-unigram";
    return NULL;
}

/* ---- entry point ---- */

static int32_t control(const ttt_tokenizer *tokenizer, int32_t id)
{
    bool is_one = id >= 0 && id < tokenizer->about.vocab &&
                  tokenizer->vocab.flags[id] == (TTT__THERE | TTT__SPECIAL);
    return is_one ? id : -1;
}

static pjrt_status *read_normalizer(ttt_tokenizer *tokenizer, const Sentencepiece__Model *model)
{
    static const Sentencepiece__Normalizer usual = SENTENCEPIECE__NORMALIZER__INIT;
    ttt__sentencepiece *sp = tokenizer->sp;
    const Sentencepiece__Normalizer *normalizer =
        model->normalizer != NULL ? model->normalizer : &usual;
    if (model->denormalizer != NULL && model->denormalizer->precompiled_charsmap.len > 0)
        return PJRT_FAIL(UNIMPLEMENTED, where, "the denormalizer of a sentencepiece model");
    sp->add_prefix = normalizer->add_dummy_prefix;
    sp->remove_extra = normalizer->remove_extra_whitespaces;
    sp->escape = normalizer->escape_whitespaces;
    tokenizer->drops_space = sp->add_prefix || sp->remove_extra;
    tokenizer->drops_spaces = sp->remove_extra;
    return ttt__charsmap_read(sp, normalizer->precompiled_charsmap.data,
                              normalizer->precompiled_charsmap.len);
}

static pjrt_status *read_model(ttt_tokenizer *tokenizer, const Sentencepiece__Model *model)
{
    static const char unknown[] = " \xe2\x81\x87 ";
    static const Sentencepiece__Trainer usual = SENTENCEPIECE__TRAINER__INIT;
    const Sentencepiece__Trainer *trainer = model->trainer != NULL ? model->trainer : &usual;
    if (model->n_pieces == 0 || model->n_pieces > 1 << 24)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the model has %zu pieces", model->n_pieces);
    if (trainer->model_type != UNIGRAM && trainer->model_type != BPE)
        return PJRT_FAIL(UNIMPLEMENTED, where,
                         "a sentencepiece model of type %d is not supported: only unigram and BPE",
                         trainer->model_type);
    tokenizer->bpe.byte_fallback = trainer->byte_fallback;
    tokenizer->bpe.fuse_across = true;
    tokenizer->sp->as_suffix = trainer->treat_whitespace_as_suffix;
    tokenizer->takes_broken = true;
    tokenizer->encode = encode;
    PJRT_TRY(add_pieces(tokenizer, model));
    PJRT_TRY(read_normalizer(tokenizer, model));
    tokenizer->about.bos = control(tokenizer, trainer->bos_id);
    tokenizer->about.eos = control(tokenizer, trainer->eos_id);
    tokenizer->about.pad = control(tokenizer, trainer->pad_id);
    bool own = trainer->has_unk_surface;
    PJRT_TRY(make_plain(tokenizer, own ? (const char *)trainer->unk_surface.data : unknown,
                        own ? trainer->unk_surface.len : sizeof unknown - 1));
    return trainer->model_type == BPE ? make_bpe(tokenizer, model) : make_unigram(tokenizer, model);
}

pjrt_status *ttt__sentencepiece_make(ttt_tokenizer *tokenizer, const char *name, const char *bytes,
                                     size_t size)
{
    Sentencepiece__Model *model = sentencepiece__model__unpack(NULL, size, (const uint8_t *)bytes);
    if (model == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%s: not a sentencepiece model", name);
    tokenizer->sp = calloc(1, sizeof *tokenizer->sp);
    pjrt_status *st = tokenizer->sp == NULL ? PJRT_NO_MEMORY(where) : read_model(tokenizer, model);
    sentencepiece__model__free_unpacked(model, NULL);
    return st;
}
