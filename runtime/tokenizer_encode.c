/* Encoders: BOS and EOS, broken text, and what is the same for every kind. */
#include "runtime/tokenizer_inside.h"

#include <stdlib.h>

static const char call[] = "tokenizer";

pjrt_status *ttt_encoder_new(const ttt_tokenizer *tokenizer, ttt_encoder **out)
{
    ttt_encoder *encoder = calloc(1, sizeof *encoder);
    *out = encoder;
    if (encoder == NULL)
        return PJRT_NO_MEMORY(call);
    encoder->tokenizer = tokenizer;
    return NULL;
}

void ttt_encoder_free(ttt_encoder *encoder)
{
    if (encoder == NULL)
        return;
    free(encoder->repaired.data);
    free(encoder);
}

static pjrt_status *add_mark(int32_t id, const char *name, ttt_ids *ids)
{
    if (id < 0)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "the tokenizer has no token for %s", name);
    return ttt__ids_add(ids, id) ? NULL : PJRT_NO_MEMORY(call);
}

static pjrt_status *encode_all(ttt_encoder *encoder, const char *text, size_t size, ttt_ids *ids)
{
    const ttt_tokenizer *tokenizer = encoder->tokenizer;
    unsigned flags = encoder->flags;
    if (size > INT32_MAX / 4)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a text of %zu bytes: give it in parts", size);
    if (!tokenizer->takes_broken && ttt__utf8_valid(text, size) < size) {
        encoder->repaired.size = 0;
        if (!ttt__utf8_repair(text, size, &encoder->repaired))
            return PJRT_NO_MEMORY(call);
        text = encoder->repaired.data;
        size = encoder->repaired.size;
    }
    if (flags & TTT_ADD_BOS)
        PJRT_TRY(add_mark(tokenizer->about.bos, "the beginning (BOS)", ids));
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
