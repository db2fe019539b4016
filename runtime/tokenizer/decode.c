/* Decodes ids to text, all at once or token by token in whole characters. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

/* Position-dependent state of a decode. */
typedef struct decode_pos {
    bool after_first; /* a token was decoded */
    bool begun;       /* text was emitted */
    bool space_gone;  /* sentencepiece's prefix space was removed */
    int stripped;
} decode_pos;

static const char space_symbol[] = "\xe2\x96\x81"; /* U+2581 */

/* sentencepiece adds a space before the text when encoding; decoding removes it. */
static void drop_space(const ttt_tokenizer *tokenizer, decode_pos *pos, int32_t id,
                       const char **bytes, size_t *size)
{
    unsigned flags = tokenizer->vocab.flags[id];
    const char *text = ttt__vocab_text(&tokenizer->vocab, id);
    if (pos->begun || pos->space_gone || flags & TTT__BYTE)
        return;
    if (!(flags & (TTT__SPECIAL | TTT__UNKNOWN)) && tokenizer->vocab.tokens[id].size >= 3 &&
        memcmp(text, space_symbol, 3) == 0) {
        ++*bytes;
        --*size;
        pos->space_gone = !tokenizer->drops_spaces;
    }
}

static void strip(const ttt_tokenizer *tokenizer, decode_pos *pos, const char **bytes, size_t *size)
{
    const ttt__text *what = &tokenizer->stripped;
    while (!pos->begun && pos->stripped < tokenizer->strips && *size >= what->size &&
           memcmp(*bytes, what->data, what->size) == 0) {
        *bytes += what->size;
        *size -= what->size;
        pos->stripped++;
    }
}

/* Appends the bytes of one token to `out`. */
static pjrt_status *decode_one(const ttt_tokenizer *tokenizer, decode_pos *pos, int32_t id,
                               unsigned flags, ttt__text *out)
{
    if (id < 0 || id >= tokenizer->about.vocab || !(tokenizer->vocab.flags[id] & TTT__THERE))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%d is not a token id of this tokenizer", id);
    if (flags & TTT_SKIP_SPECIALS && tokenizer->vocab.flags[id] & TTT__SPECIAL)
        return NULL;
    bool first = !pos->after_first;
    const uint32_t *at =
        first && tokenizer->first_at != NULL ? tokenizer->first_at : tokenizer->plain_at;
    const char *bytes = tokenizer->plain.data + at[id];
    size_t size = at[id + 1] - at[id];
    if (!pos->begun) {
        if (tokenizer->drops_space)
            drop_space(tokenizer, pos, id, &bytes, &size);
        strip(tokenizer, pos, &bytes, &size);
        pos->begun = size > 0;
    }
    if (!first && tokenizer->joint.size > 0 &&
        !ttt__text_add(out, tokenizer->joint.data, tokenizer->joint.size))
        return PJRT_NO_MEMORY(where);
    pos->after_first = true;
    return ttt__text_add(out, bytes, size) ? NULL : PJRT_NO_MEMORY(where);
}

pjrt_status *ttt_decode(const ttt_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        unsigned flags, char **text, size_t *size)
{
    ttt__text out = {0};
    decode_pos pos = {0};
    pjrt_status *st = NULL;
    *text = NULL;
    *size = 0;
    for (size_t i = 0; st == NULL && i < count; i++)
        st = decode_one(tokenizer, &pos, ids[i], flags, &out);
    if (st == NULL && !ttt__text_add(&out, "", 1))
        st = PJRT_NO_MEMORY(where);
    if (st != NULL) {
        free(out.data);
        return st;
    }
    *text = out.data;
    *size = out.size - 1;
    return NULL;
}

/* ---- streaming ---- */

struct ttt_decoder {
    const ttt_tokenizer *tokenizer;
    unsigned flags;
    decode_pos pos;
    ttt__text bytes; /* bytes of tokens; incomplete characters stay */
    ttt__text text;
};

pjrt_status *ttt_decoder_new(const ttt_tokenizer *tokenizer, unsigned flags, ttt_decoder **out)
{
    ttt_decoder *decoder = calloc(1, sizeof *decoder);
    *out = decoder;
    if (decoder == NULL)
        return PJRT_NO_MEMORY(where);
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

/* How many of the last bytes may be the start of a character: at most 3. */
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

/* Returns all but the last `keep` bytes. */
static pjrt_status *emit_text(ttt_decoder *decoder, size_t keep, const char **text, size_t *size)
{
    ttt__text *bytes = &decoder->bytes;
    size_t whole = bytes->size - keep;
    decoder->text.size = 0;
    if (!ttt__text_room(&decoder->text, 1) || !ttt__utf8_repair(bytes->data, whole, &decoder->text))
        return PJRT_NO_MEMORY(where);
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
    PJRT_TRY(decode_one(decoder->tokenizer, &decoder->pos, id, decoder->flags, &decoder->bytes));
    return emit_text(decoder, unfinished(decoder->bytes.data, decoder->bytes.size), text, size);
}

pjrt_status *ttt_decoder_finish(ttt_decoder *decoder, const char **text, size_t *size)
{
    *text = "";
    *size = 0;
    return emit_text(decoder, 0, text, size);
}
