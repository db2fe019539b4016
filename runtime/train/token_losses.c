/*
 * Losses of tokens: of whole sequences at once; a span after another, with states between; or the
 * first half so and the rest one token at a time, as text is generated.
 */
#include "runtime/train/token_losses.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "evaluate";
enum { INNER = 4 }; /* losses of a learner, as in ttt_diagnostics */

struct ttt__losses {
    const ttt_devices *devices;
    const ttt_params *params;
    ttt_evaluator_options options;
    int64_t span;   /* tokens of one run of `stream` */
    int64_t spans;  /* of a sequence; what is left over goes token by token */
    int64_t layers; /* of diagnostics */
    int64_t vocab;
    ttt_program *whole, *start, *stream, *decode; /* those that the path needs */
    hlo_spec spec;                                /* of sequences */
    int n_states;
};

/* ---- programs ----------------------------------------------------------------------------------
 */

static pjrt_status *compile(const ttt__losses *l, const ttt_config *config, ttt_program_kind kind,
                            int64_t time, ttt_program **out)
{
    ttt_program_desc desc = {.kind = kind,
                             .batch = l->options.batch,
                             .time = time,
                             .context = l->options.time,
                             .form = l->options.path == TTT_EVAL_PRIMAL ? TTT_FORM_PRIMAL
                                                                        : TTT_FORM_DUAL,
                             .compute = l->options.compute,
                             .calls = ttt_devices_kernels(l->devices),
                             .diagnostics = kind == TTT_PROGRAM_LOSSES && l->layers > 0};
    return ttt_compile_program_for(&desc, l->devices, config, l->params, out);
}

static pjrt_status *compile_spans(ttt__losses *l, const ttt_config *config)
{
    PJRT_TRY(compile(l, config, TTT_PROGRAM_START, 1, &l->start));
    l->n_states = l->start->n_results;
    if (l->spans > 0)
        PJRT_TRY(compile(l, config, TTT_PROGRAM_STREAM, l->span, &l->stream));
    if (l->spans * l->span < l->options.time)
        PJRT_TRY(compile(l, config, TTT_PROGRAM_DECODE, 1, &l->decode));
    return NULL;
}

/* Spans are whole mini-batches. */
static pjrt_status *choose_spans(ttt__losses *l, const ttt_config *config)
{
    const ttt_evaluator_options *o = &l->options;
    int64_t mini = ttt_mixer_learns(config->mixer) ? config->mini_batch_size : 1;
    if (mini == 0)
        return PJRT_FAIL(UNIMPLEMENTED, call,
                         "a learner whose mini-batch is the whole sequence does not go by spans");
    int64_t half = o->time / 2 / mini * mini;
    l->span = o->span > 0 ? o->span / mini * mini : half;
    if (o->path == TTT_EVAL_DECODE && l->span > half)
        l->span = half;
    if (l->span == 0)
        l->span = mini;
    l->spans = (o->path == TTT_EVAL_DECODE ? half : o->time) / l->span;
    return NULL;
}

static pjrt_status *open_losses(ttt__losses *l, const ttt_config *config)
{
    const ttt_evaluator_options *o = &l->options;
    ttt_program_desc desc = {.kind = TTT_PROGRAM_LOSSES, .batch = o->batch, .time = o->time};
    PJRT_TRY(ttt_program_batch_spec(&desc, &l->devices->mesh, &l->spec));
    if (o->path == TTT_EVAL_DUAL || o->path == TTT_EVAL_PRIMAL) {
        bool learns = ttt_mixer_learns(config->mixer) && o->path == TTT_EVAL_DUAL;
        l->layers = o->diagnostics && learns ? config->n_layers : 0;
        return compile(l, config, TTT_PROGRAM_LOSSES, o->time, &l->whole);
    }
    PJRT_TRY(choose_spans(l, config));
    return compile_spans(l, config);
}

pjrt_status *ttt__losses_new(const ttt_devices *devices, const ttt_config *config,
                             const ttt_params *params, const ttt_evaluator_options *options,
                             ttt__losses **out)
{
    *out = NULL;
    ttt__losses *l = calloc(1, sizeof *l);
    if (l == NULL)
        return PJRT_NO_MEMORY(call);
    *l = (ttt__losses){
        .devices = devices, .params = params, .options = *options, .vocab = config->vocab_size};
    pjrt_status *st = open_losses(l, config);
    if (st != NULL) {
        ttt__losses_free(l);
        return st;
    }
    *out = l;
    return NULL;
}

void ttt__losses_free(ttt__losses *l)
{
    if (l == NULL)
        return;
    ttt_program_free(l->whole);
    ttt_program_free(l->start);
    ttt_program_free(l->stream);
    ttt_program_free(l->decode);
    free(l);
}

int64_t ttt__losses_layers(const ttt__losses *l)
{
    return l->layers;
}

/* ---- one batch ---------------------------------------------------------------------------------
 */

/* A batch on its way through the programs. */
typedef struct passage {
    const ttt__losses *l;
    const int32_t *tokens, *labels; /* [batch, time] */
    float *out;
    ttt_array **args;    /* weights, then states, then tokens and labels */
    ttt_array **results; /* of any of the programs */
    int32_t *ids;        /* room for tokens of a span */
    float *values;       /* room for losses of a span, or logits of a token */
} passage;

/* Times [first, first + count) of `from` as an argument. */
static pjrt_status *upload(const passage *p, const int32_t *from, int64_t first, int64_t count,
                           ttt_array **out)
{
    int64_t batch = p->l->options.batch, time = p->l->options.time;
    hlo_shape shape = count == 1 && p->l->decode != NULL && first >= p->l->spans * p->l->span
                          ? HLO_SHAPE(HLO_S32, batch)
                          : HLO_SHAPE(HLO_S32, batch, count);
    for (int64_t i = 0; i < batch; i++)
        memcpy(p->ids + i * count, from + i * time + first, (size_t)count * sizeof *p->ids);
    return ttt_array_upload(p->l->devices, shape, p->l->spec, p->ids, out);
}

/* Runs a program on times [first, first + count); its states, if it has any, take the place of
 * those before. results[0] is left to the caller. */
static pjrt_status *run(passage *p, const ttt_program *program, int64_t first, int64_t count,
                        bool labels)
{
    int before = p->l->params->count + (program == p->l->whole ? 0 : p->l->n_states), n = before;
    pjrt_status *st = upload(p, p->tokens, first, count, &p->args[n++]);
    if (st == NULL && labels)
        st = upload(p, p->labels, first, count, &p->args[n++]);
    if (st == NULL)
        st = ttt_program_run(program, p->args, n, p->results);
    for (int i = before; i < before + 2; i++) {
        ttt_array_free(p->args[i]);
        p->args[i] = NULL;
    }
    for (int i = 0; st == NULL && program != p->l->whole && i < p->l->n_states; i++) {
        ttt_array **state = &p->args[p->l->params->count + i];
        ttt_array_free(*state);
        *state = p->results[1 + i];
        p->results[1 + i] = NULL;
    }
    return st;
}

static pjrt_status *whole(passage *p, float *inner)
{
    const ttt_evaluator_options *o = &p->l->options;
    PJRT_TRY(run(p, p->l->whole, 0, o->time, true));
    PJRT_TRY(
        ttt_array_download(p->results[0], p->out, (size_t)(o->batch * o->time) * sizeof *p->out));
    if (p->l->layers == 0)
        return NULL;
    return ttt_array_download(p->results[1], inner,
                              (size_t)(p->l->layers * INNER * o->time) * sizeof *inner);
}

static pjrt_status *begin_states(passage *p)
{
    int count = p->l->params->count;
    PJRT_TRY(ttt_program_run(p->l->start, p->args, count, p->results));
    for (int i = 0; i < p->l->n_states; i++) {
        p->args[count + i] = p->results[i];
        p->results[i] = NULL;
    }
    return NULL;
}

static pjrt_status *one_span(passage *p, int64_t first)
{
    int64_t batch = p->l->options.batch, time = p->l->options.time, span = p->l->span;
    PJRT_TRY(run(p, p->l->stream, first, span, true));
    PJRT_TRY(
        ttt_array_download(p->results[0], p->values, (size_t)(batch * span) * sizeof *p->values));
    for (int64_t i = 0; i < batch; i++)
        memcpy(p->out + i * time + first, p->values + i * span, (size_t)span * sizeof *p->out);
    return NULL;
}

/* -log softmax(logits)[label] */
static float loss_of(const float *logits, int64_t count, int32_t label)
{
    float most = logits[0];
    double sum = 0;
    for (int64_t i = 1; i < count; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - most);
    return (float)(most + log(sum) - logits[label]);
}

static pjrt_status *one_token(passage *p, int64_t at)
{
    int64_t batch = p->l->options.batch, time = p->l->options.time, vocab = p->l->vocab;
    PJRT_TRY(run(p, p->l->decode, at, 1, false));
    PJRT_TRY(
        ttt_array_download(p->results[0], p->values, (size_t)(batch * vocab) * sizeof *p->values));
    for (int64_t i = 0; i < batch; i++)
        p->out[i * time + at] = loss_of(p->values + i * vocab, vocab, p->labels[i * time + at]);
    return NULL;
}

static pjrt_status *clear_results(passage *p, pjrt_status *st)
{
    ttt_array_free(p->results[0]);
    p->results[0] = NULL;
    return st;
}

static pjrt_status *by_spans(passage *p)
{
    int64_t at = 0, whole_spans = p->l->spans * p->l->span;
    PJRT_TRY(begin_states(p));
    for (; at < whole_spans; at += p->l->span)
        PJRT_TRY(clear_results(p, one_span(p, at)));
    for (; at < p->l->options.time; at++)
        PJRT_TRY(clear_results(p, one_token(p, at)));
    return NULL;
}

static pjrt_status *make_room(passage *p, ttt_array *const *weights)
{
    const ttt__losses *l = p->l;
    size_t batch = (size_t)l->options.batch, time = (size_t)l->options.time;
    size_t count = (size_t)l->params->count, states = (size_t)l->n_states;
    size_t values = (size_t)l->span > (size_t)l->vocab ? (size_t)l->span : (size_t)l->vocab;
    p->args = calloc(count + states + 2, sizeof(ttt_array *));
    p->results = calloc(states + 4, sizeof(ttt_array *));
    p->ids = malloc(batch * time * sizeof *p->ids);
    p->values = malloc(batch * values * sizeof *p->values);
    if (p->args == NULL || p->results == NULL || p->ids == NULL || p->values == NULL)
        return PJRT_NO_MEMORY(call);
    memcpy(p->args, weights, count * sizeof(ttt_array *));
    return NULL;
}

static void free_room(passage *p)
{
    int count = p->l->params->count, states = p->l->n_states;
    for (int i = 0; p->args != NULL && i < states; i++)
        ttt_array_free(p->args[count + i]);
    for (int i = 0; p->results != NULL && i < states + 4; i++)
        ttt_array_free(p->results[i]);
    free(p->args);
    free(p->results);
    free(p->ids);
    free(p->values);
}

pjrt_status *ttt__losses_run(ttt__losses *l, ttt_array *const *weights, const int32_t *tokens,
                             const int32_t *labels, float *out, float *inner)
{
    passage p = {.l = l, .tokens = tokens, .labels = labels, .out = out};
    pjrt_status *st = make_room(&p, weights);
    if (st == NULL)
        st = l->whole != NULL ? whole(&p, inner) : by_spans(&p);
    free_room(&p);
    return st;
}
