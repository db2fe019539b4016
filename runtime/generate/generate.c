/* From prompts to texts, side by side in the slots of an engine. */
#include "runtime/base/threads.h"
#include "runtime/generate/ttt_generator.h"

#include <stdlib.h>

static const char call[] = "generate";

typedef struct generating {
    ttt_engine *engine;
    const ttt_prompt *prompts;
    int n;
    ttt_text_sink sink;
    void *ctx;
    ttt_generated *out;
    int64_t batch, vocab;
    ttt_text_stream **writings; /* one a prompt */
    float *logits;              /* [batch, vocab] */
    int32_t *tokens;            /* [batch]: what comes next; -1: nothing */
    double begun;               /* when making began */
} generating;

static pjrt_status *open_writings(generating *g, const ttt_tokenizer *tokenizer,
                                  const ttt_generate_options *options)
{
    g->writings = calloc((size_t)g->n, sizeof(ttt_text_stream *));
    g->logits = malloc((size_t)(g->batch * g->vocab) * sizeof *g->logits);
    g->tokens = malloc((size_t)g->batch * sizeof *g->tokens);
    if (g->writings == NULL || g->logits == NULL || g->tokens == NULL)
        return PJRT_NO_MEMORY(call);
    for (int64_t i = 0; i < g->batch; i++)
        g->tokens[i] = -1;
    for (int i = 0; i < g->n; i++)
        PJRT_TRY(ttt_text_stream_new(tokenizer, g->vocab, options, i, &g->writings[i]));
    return NULL;
}

/* Logits of each prompt stand in its row afterwards. */
static pjrt_status *read_prompts(generating *g)
{
    for (int i = 0; i < g->n; i++) {
        const ttt_prompt *p = &g->prompts[i];
        PJRT_TRY(ttt_engine_prepare(g->engine, i, p->count));
        double start = ttt__seconds();
        PJRT_TRY(ttt_engine_feed(g->engine, i, p->tokens, p->count, g->logits + i * g->vocab));
        ttt_text_stream_see(g->writings[i], p->tokens, p->count);
        g->out[i] =
            (ttt_generated){.prompt_tokens = p->count, .read_seconds = ttt__seconds() - start};
    }
    return NULL;
}

/* A token for each sequence that goes on, and for one that ends with it; how many go on. */
static pjrt_status *choose(generating *g, int *going)
{
    *going = 0;
    for (int i = 0; i < g->n; i++) {
        ttt_generated *out = &g->out[i];
        g->tokens[i] = -1;
        if (out->end != TTT_GOES_ON)
            continue;
        PJRT_TRY(ttt_text_stream_next(g->writings[i], g->logits + i * g->vocab, g->sink, g->ctx,
                                      &g->tokens[i], &out->end));
        out->tokens = ttt_text_stream_count(g->writings[i]);
        out->make_seconds = ttt__seconds() - g->begun;
        *going += out->end == TTT_GOES_ON;
    }
    return NULL;
}

/* The last token of each sequence goes into its state too, though nobody asks what follows. */
static pjrt_status *make(generating *g)
{
    int going;
    g->begun = ttt__seconds();
    do {
        PJRT_TRY(choose(g, &going));
        bool any = false;
        for (int i = 0; i < g->n; i++)
            any |= g->tokens[i] >= 0;
        if (any)
            PJRT_TRY(ttt_engine_step(g->engine, g->tokens, g->logits));
    } while (going > 0);
    return NULL;
}

pjrt_status *ttt_generate(ttt_engine *engine, const ttt_tokenizer *tokenizer,
                          const ttt_prompt *prompts, int n_prompts,
                          const ttt_generate_options *options, ttt_text_sink sink, void *ctx,
                          ttt_generated *out)
{
    generating g = {.engine = engine,
                    .prompts = prompts,
                    .n = n_prompts,
                    .sink = sink,
                    .ctx = ctx,
                    .out = out,
                    .batch = ttt_engine_batch(engine),
                    .vocab = ttt_engine_config(engine)->vocab_size};
    if (n_prompts < 1 || n_prompts > g.batch)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%d prompts for an engine of %lld slots",
                         n_prompts, (long long)g.batch);
    pjrt_status *st = open_writings(&g, tokenizer, options);
    if (st == NULL)
        st = read_prompts(&g);
    if (st == NULL)
        st = make(&g);
    for (int i = 0; g.writings != NULL && i < g.n; i++)
        ttt_text_stream_free(g.writings[i]);
    free(g.writings);
    free(g.logits);
    free(g.tokens);
    return st;
}
