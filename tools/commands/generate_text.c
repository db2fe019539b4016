/* From prompts to text on standard output, or to JSON. */
#include "tools/commands/generate_text.h"

#include "tools/cli/text_buffer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What comes of one prompt. */
typedef struct sequence {
    ttt_ids prompt;
    text_buffer text;
    json_t *tokens; /* with --logprobs or --json: [token, logprob, text] each */
} sequence;

typedef struct generating {
    const text_options *options;
    const cmd_common *common;
    const text_model *how;
    generator model;
    sequence *sequences;
    ttt_generated *made;
    int n;
    ttt_state *state;
    pjrt_status *failed; /* in the sink */
} generating;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- prompts -----------------------------------------------------------------------------------
 */

static pjrt_status *encode_prompt(generating *g, int index, const char *text, size_t size)
{
    bool start = g->state == NULL;
    if (size == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the prompt is empty%s",
                         start ? "" : ": a state needs something that follows");
    return generator_encode(&g->model, text, size, start, &g->sequences[index].prompt);
}

static pjrt_status *encode_prompts(generating *g)
{
    const text_options *o = g->options;
    for (int i = 0; i < o->prompts.count; i++)
        PJRT_TRY(encode_prompt(g, i, o->prompts.list[i], strlen(o->prompts.list[i])));
    if (o->file == NULL)
        return NULL;
    char *text;
    size_t size;
    PJRT_TRY(cmd_read_file(o->file, &text, &size));
    pjrt_status *st = encode_prompt(g, 0, text, size);
    free(text);
    return st;
}

/* Tokens that the longest sequence will have. */
static int64_t longest(const generating *g)
{
    int64_t prompt = 0, before = g->state == NULL ? 0 : ttt_state_info(g->state)->position;
    for (int i = 0; i < g->n; i++) {
        int64_t count = (int64_t)g->sequences[i].prompt.count;
        prompt = count > prompt ? count : prompt;
    }
    return before + prompt + (g->options->most == 0 ? 256 : g->options->most);
}

/* ---- what is made ------------------------------------------------------------------------------
 */

static json_t *token_json(const generating *g, const ttt_piece *piece)
{
    char *text = NULL;
    size_t size = 0;
    pjrt_status_free(ttt_decode(g->model.tokenizer, &piece->token, 1, 0, &text, &size));
    json_t *shown = text == NULL ? NULL : json_stringn(text, size); /* NULL: half a character */
    free(text);
    return json_pack("{s:i, s:f, s:o}", "token", (int)piece->token, "logprob", piece->logprob,
                     "text", shown == NULL ? json_null() : shown);
}

static bool hear(void *ctx, const ttt_piece *piece)
{
    generating *g = ctx;
    sequence *s = &g->sequences[piece->sequence];
    if (!text_buffer_add(&s->text, piece->text, piece->size))
        g->failed = PJRT_NO_MEMORY("ttt");
    if (g->failed == NULL && s->tokens != NULL && piece->token >= 0 &&
        json_array_append_new(s->tokens, token_json(g, piece)) != 0)
        g->failed = PJRT_NO_MEMORY("ttt");
    if (g->failed == NULL && g->n == 1 && !g->common->json &&
        (fwrite(piece->text, 1, piece->size, stdout) != piece->size || fflush(stdout) != 0))
        g->failed = PJRT_FAIL(UNAVAILABLE, "ttt", "standard output: %s", strerror(errno));
    return g->failed == NULL;
}

static pjrt_status *make(generating *g)
{
    const text_options *o = g->options;
    ttt_prompt prompts[GENERATE_MOST_TEXTS];
    for (int i = 0; i < g->n; i++) {
        sequence *s = &g->sequences[i];
        prompts[i] = (ttt_prompt){s->prompt.list, (int64_t)s->prompt.count};
        s->tokens = o->logprobs || g->common->json ? json_array() : NULL;
        if (g->state != NULL)
            PJRT_TRY(ttt_engine_put(g->model.engine, i, g->state));
    }
    ttt_generate_options how = {.sampling = o->sampling,
                                .most = o->most,
                                .stops = o->stops.list,
                                .n_stops = o->stops.count,
                                .ignore_eos = o->ignore_eos,
                                .stop = &interrupted};
    pjrt_status *st =
        ttt_generate(g->model.engine, g->model.tokenizer, prompts, g->n, &how, hear, g, g->made);
    if (g->failed != NULL) {
        pjrt_status_free(st);
        return g->failed;
    }
    return st;
}

static pjrt_status *keep_state(generating *g)
{
    ttt_state *state;
    PJRT_TRY(ttt_engine_take(g->model.engine, 0, &state));
    pjrt_status *st = ttt_state_write(state, g->options->state_out);
    ttt_state_free(state);
    return st;
}

static pjrt_status *generate(generating *g)
{
    const text_options *o = g->options;
    PJRT_TRY(ttt_sampling_check(&o->sampling));
    g->n = o->file != NULL ? 1 : o->prompts.count;
    g->sequences = calloc((size_t)g->n, sizeof *g->sequences);
    g->made = calloc((size_t)g->n, sizeof *g->made);
    if (g->sequences == NULL || g->made == NULL)
        return PJRT_NO_MEMORY("ttt");
    if (o->state_in != NULL)
        PJRT_TRY(ttt_state_read(o->state_in, &g->state));
    PJRT_TRY(g->how->tokenizer(&g->model, g->how->choice));
    PJRT_TRY(encode_prompts(g));
    PJRT_TRY(g->how->open(&g->model, g->common, g->how->choice, g->n, longest(g)));
    signal(SIGINT, on_interrupt);
    PJRT_TRY(make(g));
    return o->state_out == NULL ? NULL : keep_state(g);
}

/* ---- telling -----------------------------------------------------------------------------------
 */

/* Tokens a second, of all sequences together. */
static void rates(const generating *g, double *read, double *made)
{
    double read_tokens = 0, read_seconds = 0, made_tokens = 0, made_seconds = 0;
    for (int i = 0; i < g->n; i++) {
        const ttt_generated *m = &g->made[i];
        read_tokens += (double)m->prompt_tokens;
        read_seconds += m->read_seconds;
        made_tokens += (double)m->tokens;
        made_seconds = m->make_seconds > made_seconds ? m->make_seconds : made_seconds;
    }
    *read = read_seconds > 0 ? read_tokens / read_seconds : 0;
    *made = made_seconds > 0 ? made_tokens / made_seconds : 0;
}

static json_t *sequence_json(const generating *g, int index)
{
    const sequence *s = &g->sequences[index];
    const ttt_generated *m = &g->made[index];
    return json_pack("{s:s#, s:s, s:I, s:I, s:f, s:f, s:O}", "text",
                     s->text.text == NULL ? "" : s->text.text, (int)s->text.size, "end",
                     ttt_end_name(m->end), "prompt_tokens", (json_int_t)m->prompt_tokens, "made",
                     (json_int_t)m->tokens, "read_seconds", m->read_seconds, "make_seconds",
                     m->make_seconds, "tokens", s->tokens);
}

static int show_json(const generating *g)
{
    double read, made;
    json_t *list = json_array();
    rates(g, &read, &made);
    for (int i = 0; i < g->n; i++)
        json_array_append_new(list, sequence_json(g, i));
    json_t *json = json_pack("{s:o, s:f, s:f}", "sequences", list, "read_tokens_per_second", read,
                             "make_tokens_per_second", made);
    if (json_object_update_new(json, g->how->about(&g->model)) != 0) {
        json_decref(json);
        json = NULL;
    }
    return cmd_print_json(json);
}

static void show_tokens(const sequence *s)
{
    size_t index;
    json_t *item;
    json_array_foreach(s->tokens, index, item)
    {
        char *text = json_dumps(json_object_get(item, "text"), JSON_ENCODE_ANY);
        printf("%8lld %10.4f  %s\n", json_integer_value(json_object_get(item, "token")),
               json_real_value(json_object_get(item, "logprob")), text == NULL ? "" : text);
        free(text);
    }
}

static int show(const generating *g)
{
    double read, made;
    int64_t read_tokens = 0, made_tokens = 0;
    if (g->common->json)
        return show_json(g);
    for (int i = 0; i < g->n; i++) {
        const sequence *s = &g->sequences[i];
        read_tokens += g->made[i].prompt_tokens;
        made_tokens += g->made[i].tokens;
        if (g->n > 1)
            printf("%s--- %d\n%s", i == 0 ? "" : "\n", i + 1, s->text.text);
        putchar('\n');
        if (g->options->logprobs)
            show_tokens(s);
    }
    rates(g, &read, &made);
    fprintf(stderr, "read %lld tokens at %.1f tok/s, made %lld at %.1f tok/s, ended by %s\n",
            (long long)read_tokens, read, (long long)made_tokens, made,
            ttt_end_name(g->made[0].end));
    return fflush(stdout) == 0 ? CMD_OK : CMD_FAILED;
}

int text_check(const cmd_spec *spec, const text_options *o)
{
    if ((o->prompts.count == 0) == (o->file == NULL))
        return cmd_wrong_use(spec, o->file == NULL ? "--prompt, --file or - is missing"
                                                   : "--prompt or a file, not both");
    if (o->prompts.count > 1 && o->state_out != NULL)
        return cmd_wrong_use(spec, "--state-out keeps the state of one prompt, not of %d",
                             o->prompts.count);
    return -1;
}

int text_run(const cmd_common *common, const text_options *options, const text_model *how)
{
    generating g = {.options = options, .common = common, .how = how};
    pjrt_status *st = generate(&g);
    int code = st == NULL ? show(&g) : cmd_fail(common, st);
    for (int i = 0; i < g.n && g.sequences != NULL; i++) {
        free(g.sequences[i].prompt.list);
        free(g.sequences[i].text.text);
        json_decref(g.sequences[i].tokens);
    }
    free(g.sequences);
    free(g.made);
    ttt_state_free(g.state);
    generator_free(&g.model);
    return code;
}
