/* Losses on text that was not trained on: every token's, gathered by sequence and by position. */
#include "runtime/train/token_losses.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "evaluate";
enum { INNER = 4 }; /* losses of a learner, as in ttt_diagnostics */

struct ttt_evaluator {
    ttt_evaluator_options options;
    int64_t layers; /* of diagnostics; 0: none */
    ttt__losses *losses;
};

pjrt_status *ttt_evaluator_new(const ttt_devices *devices, const ttt_config *config,
                               const ttt_params *params, const ttt_evaluator_options *options,
                               ttt_evaluator **out)
{
    *out = NULL;
    ttt_evaluator *e = calloc(1, sizeof *e);
    if (e == NULL)
        return PJRT_NO_MEMORY(call);
    e->options = *options;
    pjrt_status *st = ttt__losses_new(devices, config, params, options, &e->losses);
    if (st != NULL) {
        ttt_evaluator_free(e);
        return st;
    }
    e->layers = ttt__losses_layers(e->losses);
    *out = e;
    return NULL;
}

void ttt_evaluator_free(ttt_evaluator *evaluator)
{
    if (evaluator == NULL)
        return;
    ttt__losses_free(evaluator->losses);
    free(evaluator);
}

void ttt_evaluation_free(ttt_evaluation *evaluation)
{
    free(evaluation->by_position);
    free(evaluation->inner_loss);
    *evaluation = (ttt_evaluation){0};
}

/* ---- one batch ---------------------------------------------------------------------------------
 */

/* The room of a run; sums until the end. */
typedef struct gathering {
    ttt_evaluator *e;
    ttt_evaluation *out;
    ttt_array *const *weights;
    int32_t *tokens; /* [time + 1] of one sequence */
    int32_t *ids;    /* tokens [batch, time], then labels */
    float *losses;   /* [batch, time] */
    float *inner;    /* [layers, 4, time] of one batch */
    double *inner_sums;
    int64_t *counts;     /* by position */
    double sum, squares; /* of sequences' means */
    double total;
    int64_t batches;
} gathering;

static pjrt_status *read_batch(const gathering *g, const ttt_dataset *data, int64_t first,
                               int64_t count)
{
    int64_t batch = g->e->options.batch, time = g->e->options.time;
    for (int64_t i = 0; i < batch; i++) {
        int64_t sample = first + (i < count ? i : count - 1); /* the last one fills the batch */
        PJRT_TRY(ttt_dataset_read(data, sample * time, time + 1, g->tokens));
        memcpy(g->ids + i * time, g->tokens, (size_t)time * sizeof *g->ids);
        memcpy(g->ids + (batch + i) * time, g->tokens + 1, (size_t)time * sizeof *g->ids);
    }
    return NULL;
}

static void add_batch(gathering *g, int64_t count)
{
    int64_t batch = g->e->options.batch, time = g->e->options.time;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        int64_t counted = 0;
        for (int64_t t = 0; t < time; t++) {
            if (g->ids[(batch + i) * time + t] == g->e->options.masked_label)
                continue;
            sum += g->losses[i * time + t];
            g->out->by_position[t] += g->losses[i * time + t];
            g->counts[t]++;
            counted++;
        }
        if (counted == 0)
            continue;
        double mean = sum / (double)counted;
        g->total += sum;
        g->sum += mean;
        g->squares += mean * mean;
        g->out->tokens += counted;
        g->out->sequences++;
    }
    for (int64_t i = 0; i < g->e->layers * INNER * time; i++)
        g->inner_sums[i] += g->inner[i];
    g->batches++;
}

/* ---- a run -------------------------------------------------------------------------------------
 */

static pjrt_status *make_room(gathering *g)
{
    const ttt_evaluator_options *o = &g->e->options;
    size_t time = (size_t)o->time, all = (size_t)o->batch * time;
    size_t inner = (size_t)g->e->layers * INNER * time;
    *g->out = (ttt_evaluation){.time = o->time, .layers = g->e->layers};
    g->tokens = malloc((time + 1) * sizeof *g->tokens);
    g->ids = malloc(2 * all * sizeof *g->ids);
    g->losses = malloc(all * sizeof *g->losses);
    g->counts = calloc(time, sizeof *g->counts);
    g->inner = calloc(inner + 1, sizeof *g->inner);
    g->inner_sums = calloc(inner + 1, sizeof *g->inner_sums);
    g->out->by_position = calloc(time, sizeof *g->out->by_position);
    g->out->inner_loss = calloc(inner + 1, sizeof *g->out->inner_loss);
    if (g->tokens == NULL || g->ids == NULL || g->losses == NULL || g->counts == NULL ||
        g->inner == NULL || g->inner_sums == NULL || g->out->by_position == NULL ||
        g->out->inner_loss == NULL)
        return PJRT_NO_MEMORY(call);
    return NULL;
}

static void free_room(gathering *g)
{
    free(g->tokens);
    free(g->ids);
    free(g->losses);
    free(g->counts);
    free(g->inner);
    free(g->inner_sums);
}

static void finish(gathering *g)
{
    ttt_evaluation *out = g->out;
    double n = (double)out->sequences;
    out->loss = out->tokens > 0 ? g->total / (double)out->tokens : NAN;
    double variance = n > 1 ? (g->squares - g->sum * g->sum / n) / (n - 1) : NAN;
    out->error = variance >= 0 ? sqrt(variance / n) : n > 1 ? 0 : NAN;
    for (int64_t t = 0; t < out->time; t++)
        out->by_position[t] = g->counts[t] > 0 ? out->by_position[t] / (double)g->counts[t] : NAN;
    for (int64_t i = 0; i < out->layers * INNER * out->time; i++)
        out->inner_loss[i] = (float)(g->inner_sums[i] / (double)g->batches);
}

static pjrt_status *gather(gathering *g, const ttt_dataset *data, int64_t sequences,
                           bool (*progress)(void *ctx, int64_t done, int64_t all), void *ctx)
{
    int64_t batch = g->e->options.batch, time = g->e->options.time;
    int64_t there = (ttt_dataset_info(data)->tokens - 1) / time;
    if (there < 1)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "the data has %lld tokens: too few for one sequence of %lld",
                         (long long)ttt_dataset_info(data)->tokens, (long long)time);
    if (sequences == 0 || sequences > there)
        sequences = there;
    for (int64_t done = 0; done < sequences;) {
        int64_t count = sequences - done < batch ? sequences - done : batch;
        PJRT_TRY(read_batch(g, data, done, count));
        PJRT_TRY(ttt__losses_run(g->e->losses, g->weights, g->ids, g->ids + batch * time, g->losses,
                                 g->inner));
        add_batch(g, count);
        done += count;
        if (progress != NULL && !progress(ctx, done, sequences))
            break;
    }
    return NULL;
}

pjrt_status *ttt_evaluator_run(ttt_evaluator *evaluator, ttt_array *const *weights,
                               const ttt_dataset *data, int64_t sequences,
                               bool (*progress)(void *ctx, int64_t done, int64_t all), void *ctx,
                               ttt_evaluation *out)
{
    gathering g = {.e = evaluator, .out = out, .weights = weights};
    pjrt_status *st = make_room(&g);
    if (st == NULL)
        st = gather(&g, data, sequences, progress, ctx);
    if (st == NULL)
        finish(&g);
    else
        ttt_evaluation_free(out);
    free_room(&g);
    return st;
}
