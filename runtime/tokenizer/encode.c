/* Encoders: BOS and EOS, repair of invalid UTF-8, and dispatch to the tokenizer's kind. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static const char where[] = "tokenizer";

pjrt_status *ttt_encoder_new(const ttt_tokenizer *tokenizer, ttt_encoder **out)
{
    *out = NULL;
    ttt_encoder *encoder = calloc(1, sizeof *encoder);
    if (encoder == NULL)
        return PJRT_NO_MEMORY(where);
    encoder->tokenizer = tokenizer;
    encoder->kept = calloc(TTT__KEPT, sizeof *encoder->kept);
    if (encoder->kept == NULL) {
        free(encoder);
        return PJRT_NO_MEMORY(where);
    }
    *out = encoder;
    return NULL;
}

void ttt_encoder_free(ttt_encoder *encoder)
{
    if (encoder == NULL)
        return;
    free(encoder->repaired.data);
    free(encoder->mapped.data);
    for (int i = 0; i < 2; i++)
        free(encoder->normal[i].data);
    for (int i = 0; i < TTT__MAX_STEPS; i++)
        free(encoder->levels[i].data);
    ttt__symbols_free(&encoder->symbols);
    free(encoder->kept);
    free(encoder->best);
    pcre2_match_data_free(encoder->match);
    pcre2_match_context_free(encoder->match_context);
    free(encoder);
}

static pjrt_status *add_mark(int32_t id, const char *name, ttt_ids *ids)
{
    if (id < 0)
        return PJRT_FAIL(FAILED_PRECONDITION, where, "the tokenizer has no token for %s", name);
    return ttt__ids_add(ids, id) ? NULL : PJRT_NO_MEMORY(where);
}

static pjrt_status *pre_tokenize(ttt_encoder *encoder, const char *text, size_t size, bool first,
                                 ttt_ids *ids)
{
    return ttt__pre_tokenize(encoder, 0, text, size, first, ids);
}

pjrt_status *ttt__encode_piece(ttt_encoder *encoder, const char *text, size_t size, bool first,
                               ttt_ids *ids)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    PJRT_TRY(ttt__normalize(&tokenizer->normalizers, encoder, &text, &size));
    return ttt__added_cut(&tokenizer->normalized, encoder, text, size, first, pre_tokenize, ids);
}

static pjrt_status *encode_all(ttt_encoder *encoder, const char *text, size_t size, ttt_ids *ids)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    unsigned flags = encoder->flags;
    if (size > INT32_MAX / 4)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "a text of %zu bytes: encode it in parts", size);
    if (!tokenizer->takes_broken && ttt_utf8_valid(text, size) < size) {
        encoder->repaired.size = 0;
        if (!ttt__utf8_repair(text, size, &encoder->repaired))
            return PJRT_NO_MEMORY(where);
        text = encoder->repaired.data;
        size = encoder->repaired.size;
    }
    if (flags & TTT_ADD_BOS)
        PJRT_TRY(add_mark(tokenizer->about.bos, "the beginning (BOS)", ids));
    encoder->start = ids->count;
    PJRT_TRY(ttt__added_cut(&tokenizer->added, encoder, text, size, true, tokenizer->encode, ids));
    if (flags & TTT_ADD_EOS)
        PJRT_TRY(add_mark(tokenizer->about.eos, "the end (EOS)", ids));
    return NULL;
}

pjrt_status *ttt_encode(ttt_encoder *encoder, const char *text, size_t size, unsigned flags,
                        ttt_ids *ids)
{
    size_t before = ids->count;
    encoder->flags = flags;
    pjrt_status *st = encode_all(encoder, text, size, ids);
    if (st != NULL)
        ids->count = before;
    return st;
}
