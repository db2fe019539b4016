/*
 * One sequence in the making. Text that may be the start of a stop is held back until it is known
 * to be none.
 */
#include "runtime/generate/ttt_generator.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "generate";
enum { MOST_TOKENS = 256 };

struct ttt_text_stream {
    ttt_generate_options options;
    const ttt_tokenizer *tokenizer;
    int sequence;
    int32_t eos;
    ttt_sampler *sampler;
    ttt_decoder *decoder;
    char **stops;
    char *text; /* decoded and not handed out yet */
    size_t size, room;
    int64_t count;
    ttt_end end;
};

const char *ttt_end_name(ttt_end end)
{
    static const char *const names[] = {[TTT_GOES_ON] = "",
                                        [TTT_END_MOST] = "length",
                                        [TTT_END_EOS] = "eos",
                                        [TTT_END_STOP] = "stop",
                                        [TTT_END_SINK] = "cancelled"};
    return names[end];
}

/* ---- making it ---------------------------------------------------------------------------------
 */

static pjrt_status *check_stop(const char *stop)
{
    size_t size = strlen(stop);
    if (size == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a text to stop at is empty");
    if (ttt_utf8_valid(stop, size) < size)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a text to stop at is not UTF-8");
    return NULL;
}

static pjrt_status *copy_stops(ttt_text_stream *w)
{
    w->stops = calloc((size_t)w->options.n_stops + 1, sizeof *w->stops);
    if (w->stops == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < w->options.n_stops; i++) {
        PJRT_TRY(check_stop(w->options.stops[i]));
        w->stops[i] = strdup(w->options.stops[i]);
        if (w->stops[i] == NULL)
            return PJRT_NO_MEMORY(call);
    }
    return NULL;
}

static pjrt_status *prepare(ttt_text_stream *w, const ttt_tokenizer *tokenizer, int64_t vocab)
{
    if (w->options.most < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%lld tokens cannot be made",
                         (long long)w->options.most);
    if (w->options.most == 0)
        w->options.most = MOST_TOKENS;
    PJRT_TRY(copy_stops(w));
    int64_t known = ttt_tokenizer_info(tokenizer)->vocab; /* models may have room for more */
    PJRT_TRY(ttt_sampler_new(&w->options.sampling, vocab < known ? vocab : known, &w->sampler));
    return ttt_decoder_new(tokenizer, TTT_SKIP_SPECIALS, &w->decoder);
}

pjrt_status *ttt_text_stream_new(const ttt_tokenizer *tokenizer, int64_t vocab,
                                 const ttt_generate_options *options, int sequence,
                                 ttt_text_stream **out)
{
    *out = NULL;
    ttt_text_stream *w = calloc(1, sizeof *w);
    if (w == NULL)
        return PJRT_NO_MEMORY(call);
    w->options = *options;
    w->sequence = sequence;
    w->tokenizer = tokenizer;
    w->eos = options->ignore_eos ? -1 : ttt_tokenizer_info(tokenizer)->eos;
    pjrt_status *st = prepare(w, tokenizer, vocab);
    if (st != NULL)
        ttt_text_stream_free(w);
    else
        *out = w;
    return st;
}

void ttt_text_stream_free(ttt_text_stream *w)
{
    if (w == NULL)
        return;
    for (int i = 0; w->stops != NULL && i < w->options.n_stops; i++)
        free(w->stops[i]);
    free(w->stops);
    free(w->text);
    ttt_sampler_free(w->sampler);
    ttt_decoder_free(w->decoder);
    free(w);
}

void ttt_text_stream_see(ttt_text_stream *w, const int32_t *tokens, int64_t count)
{
    ttt_sampler_see(w->sampler, tokens, count);
}

int64_t ttt_text_stream_count(const ttt_text_stream *w)
{
    return w->count;
}

/* ---- text --------------------------------------------------------------------------------------
 */

static pjrt_status *add_text(ttt_text_stream *w, const char *text, size_t size)
{
    if (size > w->room - w->size) {
        size_t room = 2 * (w->size + size) + 64;
        char *larger = realloc(w->text, room);
        if (larger == NULL)
            return PJRT_NO_MEMORY(call);
        w->text = larger;
        w->room = room;
    }
    if (size > 0)
        memcpy(w->text + w->size, text, size);
    w->size += size;
    return NULL;
}

/* Where the first stop begins; the size of the text when there is none. */
static size_t find_stop(const ttt_text_stream *w)
{
    size_t first = w->size;
    for (int i = 0; i < w->options.n_stops && w->size > 0; i++) {
        const char *at = memmem(w->text, w->size, w->stops[i], strlen(w->stops[i]));
        if (at != NULL && (size_t)(at - w->text) < first)
            first = (size_t)(at - w->text);
    }
    return first;
}

/* How much of the text is certain: the rest may become a stop. */
static size_t certain(const ttt_text_stream *w)
{
    for (size_t from = 0; from < w->size; from++) {
        for (int i = 0; i < w->options.n_stops; i++) {
            if (strncmp(w->stops[i], w->text + from, w->size - from) == 0)
                return from;
        }
    }
    return w->size;
}

/* Hands out the first `size` bytes, with the token. */
static void hand_out(ttt_text_stream *w, size_t size, int32_t token, double logprob,
                     ttt_text_sink sink, void *ctx)
{
    ttt_piece piece = {.sequence = w->sequence,
                       .text = size == 0 ? "" : w->text,
                       .size = size,
                       .token = token,
                       .logprob = logprob};
    bool more = sink == NULL || sink(ctx, &piece);
    if (size > 0)
        memmove(w->text, w->text + size, w->size - size);
    w->size -= size;
    if (!more && w->end == TTT_GOES_ON)
        w->end = TTT_END_SINK;
}

/* What is left, once nothing more comes. */
static pjrt_status *finish(ttt_text_stream *w, ttt_text_sink sink, void *ctx)
{
    const char *text;
    size_t size;
    PJRT_TRY(ttt_decoder_finish(w->decoder, &text, &size));
    if (w->end == TTT_END_STOP || w->end == TTT_END_SINK)
        return NULL;
    PJRT_TRY(add_text(w, text, size));
    size_t all = find_stop(w);
    if (all < w->size)
        w->end = TTT_END_STOP;
    if (all > 0)
        hand_out(w, all, -1, 0, sink, ctx);
    return NULL;
}

static pjrt_status *take_token(ttt_text_stream *w, int32_t token, double logprob,
                               ttt_text_sink sink, void *ctx)
{
    const char *text = "";
    size_t size = 0;
    if (ttt_tokenizer_token(w->tokenizer, token, &size) != NULL) /* a gap has no text */
        PJRT_TRY(ttt_decoder_next(w->decoder, token, &text, &size));
    PJRT_TRY(add_text(w, text, size));
    size_t stop = find_stop(w);
    w->count++;
    if (stop < w->size)
        w->end = TTT_END_STOP;
    else if (w->count == w->options.most)
        w->end = TTT_END_MOST;
    hand_out(w, w->end == TTT_END_STOP ? stop : certain(w), token, logprob, sink, ctx);
    return NULL;
}

pjrt_status *ttt_text_stream_next(ttt_text_stream *w, const float *logits, ttt_text_sink sink,
                                  void *ctx, int32_t *token, ttt_end *end)
{
    double logprob;
    *token = -1;
    if (w->end != TTT_GOES_ON)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "the text has ended");
    PJRT_TRY(ttt_sampler_next(w->sampler, logits, token, &logprob));
    if (w->eos >= 0 && *token == w->eos) {
        *token = -1;
        w->end = TTT_END_EOS;
    } else {
        PJRT_TRY(take_token(w, *token, logprob, sink, ctx));
    }
    if (w->end == TTT_GOES_ON && w->options.stop != NULL && *w->options.stop != 0)
        w->end = TTT_END_SINK;
    if (w->end != TTT_GOES_ON)
        PJRT_TRY(finish(w, sink, ctx));
    *end = w->end;
    return NULL;
}
