/* From numbers to text: all at once, or token by token in whole characters. */
#include "runtime/tokenizer_inside.h"

#include <stdlib.h>

static const char call[] = "tokenizer";

/* The bytes of the next number, added to `out`. */
static pjrt_status *decode_one(const ttt_tokenizer *tokenizer, int32_t id, unsigned flags,
                               ttt__text *out)
{
    if (id < 0 || id >= tokenizer->about.vocab || !(tokenizer->vocab.flags[id] & TTT__THERE))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%d is no token of this tokenizer", id);
    if (flags & TTT_SKIP_SPECIALS && tokenizer->vocab.flags[id] & TTT__SPECIAL)
        return NULL;
    uint32_t at = tokenizer->plain_at[id];
    if (!ttt__text_add(out, tokenizer->plain.data + at, tokenizer->plain_at[id + 1] - at))
        return PJRT_NO_MEMORY(call);
    return NULL;
}

pjrt_status *ttt_decode(const ttt_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        unsigned flags, char **text, size_t *size)
{
    ttt__text out = {0};
    pjrt_status *st = NULL;
    *text = NULL;
    *size = 0;
    for (size_t i = 0; st == NULL && i < count; i++)
        st = decode_one(tokenizer, ids[i], flags, &out);
    if (st == NULL && !ttt__text_add(&out, "", 1))
        st = PJRT_NO_MEMORY(call);
    if (st != NULL) {
        free(out.data);
        return st;
    }
    *text = out.data;
    *size = out.size - 1;
    return NULL;
}

/* ---- token by token ----------------------------------------------------------------------------
 */

struct ttt_decoder {
    const ttt_tokenizer *tokenizer;
    unsigned flags;
    ttt__text bytes; /* of tokens; those that are no whole character yet stay */
    ttt__text text;
};

pjrt_status *ttt_decoder_new(const ttt_tokenizer *tokenizer, unsigned flags, ttt_decoder **out)
{
    ttt_decoder *decoder = calloc(1, sizeof *decoder);
    *out = decoder;
    if (decoder == NULL)
        return PJRT_NO_MEMORY(call);
    decoder->tokenizer = tokenizer;
    decoder->flags = flags;
    return NULL;
}

void ttt_decoder_free(ttt_decoder *decoder)
{
    if (decoder == NULL)
        return;
    free(decoder->bytes.data);
    free(decoder->text.data);
    free(decoder);
}

/* How many of the last bytes may be the beginning of a character: at most three. */
static size_t unfinished(const char *bytes, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char c = (unsigned char)bytes[size - back];
        if ((c & 0xc0) == 0x80)
            continue;
        int length;
        const char *at = bytes + size - back;
        size_t whole = c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;
        bool cut =
            back < whole && ttt__utf8_next(at, at + back, &length) < 0 && (size_t)length == back;
        return cut ? back : 0;
    }
    return 0;
}

/* Hands out all but the last `keep` bytes. */
static pjrt_status *hand_out(ttt_decoder *decoder, size_t keep, const char **text, size_t *size)
{
    ttt__text *bytes = &decoder->bytes;
    size_t whole = bytes->size - keep;
    decoder->text.size = 0;
    if (!ttt__text_room(&decoder->text, 1) || !ttt__utf8_repair(bytes->data, whole, &decoder->text))
        return PJRT_NO_MEMORY(call);
    if (keep > 0)
        memmove(bytes->data, bytes->data + whole, keep);
    bytes->size = keep;
    *text = decoder->text.data;
    *size = decoder->text.size;
    return NULL;
}

pjrt_status *ttt_decoder_next(ttt_decoder *decoder, int32_t id, const char **text, size_t *size)
{
    *text = "";
    *size = 0;
    PJRT_TRY(decode_one(decoder->tokenizer, id, decoder->flags, &decoder->bytes));
    return hand_out(decoder, unfinished(decoder->bytes.data, decoder->bytes.size), text, size);
}

pjrt_status *ttt_decoder_finish(ttt_decoder *decoder, const char **text, size_t *size)
{
    *text = "";
    *size = 0;
    return hand_out(decoder, 0, text, size);
}
