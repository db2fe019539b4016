/*
 * Perplexity against context, and by the index of a token: four networks of the same arithmetic,
 * and the Transformer fine-tuned from a short context as well.
 */
#include "tools/reproduce/reproduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kind {
    const char *name, *label, *mixer, *backbone;
} kind;

static const kind kinds[] = {
    {"attention", "Transformer", "attention", "transformer"},
    {"mamba", "Mamba", "mamba", "mamba"},
    {"linear", "TTT-Linear", "ttt_linear", "mamba"},
    {"mlp", "TTT-MLP", "ttt_mlp", "mamba"},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, TUNED = N_KINDS, N_LINES = N_KINDS + 1 };

static const char *line_label(int line)
{
    return line == TUNED ? "Transformer, fine-tuned" : kinds[line].label;
}

static int contexts_of(const reproduce *r)
{
    int count = 0;
    while (count < REPRODUCE_MOST && r->scale.contexts[count] > 0)
        count++;
    return count;
}

static reproduce_job job_of(const reproduce *r, int line, int64_t context)
{
    const kind *k = &kinds[line == TUNED ? 0 : line];
    reproduce_job job = {.mixer = k->mixer,
                         .backbone = k->backbone,
                         .context = context,
                         .steps = r->scale.context_steps,
                         .matched = true};
    snprintf(job.name, sizeof job.name, "context-%s-%lld", line == TUNED ? "tuned" : k->name,
             (long long)context);
    snprintf(job.label, sizeof job.label, "%s at %lld", line_label(line), (long long)context);
    if (line == TUNED) {
        /* The paper's: from its second context, a fifth of the tokens more. */
        snprintf(job.start, sizeof job.start, "context-%s-%lld", k->name,
                 (long long)r->scale.contexts[1]);
        job.steps = (r->scale.context_steps + 4) / 5;
        job.peak_lr = r->scale.finetune_lr;
    }
    return job;
}

/* Context by context, so that the first pictures are there early. */
static int context_jobs(const reproduce *r, reproduce_job *list)
{
    int count = 0;
    for (int c = 0; c < contexts_of(r); c++) {
        for (int line = 0; line < (c >= 2 ? N_LINES : N_KINDS); line++)
            list[count++] = job_of(r, line, r->scale.contexts[c]);
    }
    return count;
}

/* ---- against context ---- */

typedef struct lines {
    double context[REPRODUCE_MOST], perplexity[N_LINES][REPRODUCE_MOST],
        spread[N_LINES][REPRODUCE_MOST];
    int count;
} lines;

/* The results in the order of the jobs, as lines; what was not run is not a number. */
static void gather(const reproduce *r, const reproduce_result *results, lines *all)
{
    int at = 0;
    all->count = contexts_of(r);
    for (int c = 0; c < all->count; c++) {
        all->context[c] = (double)r->scale.contexts[c];
        for (int line = 0; line < N_LINES; line++) {
            bool there = line < N_KINDS || c >= 2;
            all->perplexity[line][c] = there ? results[at].perplexity : NAN;
            all->spread[line][c] = there ? results[at++].spread : NAN;
        }
    }
}

static pjrt_status *draw_lines(const lines *all, reproduce_report *report)
{
    chart_series series[N_LINES];
    for (int line = 0; line < N_LINES; line++)
        series[line] = (chart_series){.name = line_label(line),
                                      .x = all->context,
                                      .y = all->perplexity[line],
                                      .spread = all->spread[line],
                                      .count = (size_t)all->count,
                                      .dashed = line == TUNED,
                                      .colour = line == TUNED ? 1 : line + 1};
    report->pictures[0] = (reproduce_picture){.suffix = "", .about = "Perplexity against context"};
    report->n_pictures = 1;
    return chart_lines(&(chart){.title = "Perplexity against context",
                                .x_label = "tokens of context, in training and evaluation",
                                .y_label = "perplexity",
                                .log_x = true,
                                .series = series,
                                .n_series = N_LINES},
                       &report->pictures[0].svg);
}

/* How far one line is below another at a context, in shares of the latter. */
static double below(const lines *all, int line, int other, int context)
{
    return 1 - all->perplexity[line][context] / all->perplexity[other][context];
}

/* How far that may be off, by the spreads of both. */
static double doubt_of(const lines *all, int line, int other, int context)
{
    double mine = all->perplexity[line][context], its = all->perplexity[other][context];
    return mine / its * hypot(all->spread[line][context] / mine, all->spread[other][context] / its);
}

static void context_words(const reproduce *r, const lines *all, markup *m)
{
    enum { MAMBA = 1, LINEAR = 2, MLP = 3 };
    int last = all->count - 1;
    markup_add(m,
               "The paper (Books, 1.3B): with matched arithmetic, TTT-Linear and TTT-MLP keep "
               "lowering perplexity as the context grows to 32k, where Mamba stops after 16k; the "
               "advantage over Mamba widens with context, and TTT-MLP's is larger at long context "
               "than at short.\n\n"
               "Here: preset %s, %lld steps of %lld tokens at every context, widths of blocks "
               "chosen for Mamba's arithmetic a token at context %lld, as far as widths can: the "
               "table has both.",
               r->scale.preset, (long long)r->scale.context_steps, (long long)r->scale.batch_tokens,
               (long long)r->scale.context);
    if (all->count > 2)
        markup_add(m,
                   " The fine-tuned Transformer starts from context %.0f and sees a fifth more "
                   "tokens.",
                   all->context[1]);
    markup_add(m, "\n\n");
    for (int line = LINEAR; line <= MLP; line++) {
        double first = below(all, line, MAMBA, 0), end = below(all, line, MAMBA, last);
        double doubt = hypot(doubt_of(all, line, MAMBA, 0), doubt_of(all, line, MAMBA, last));
        markup_add(m, "%s is %.1f %% %s Mamba at %.0f tokens and %.1f %% %s at %.0f: %s. ",
                   line_label(line), 100 * fabs(first), first > 0 ? "below" : "above",
                   all->context[0], 100 * fabs(end), end > 0 ? "below" : "above",
                   all->context[last],
                   fabs(end - first) <= doubt ? "no difference beyond the spread"
                   : end > first              ? "it gains with context, as in the paper"
                                 : "it does not gain with context, unlike in the paper");
    }
    markup_add(m, "\n");
}

static pjrt_status *conclude_context(reproduce *r, const reproduce_job *list,
                                     const reproduce_result *results, int count,
                                     reproduce_report *report)
{
    lines all = {.count = 0};
    gather(r, results, &all);
    report->title = "Perplexity against context";
    report->columns = "label:network,context:context,perplexity:perplexity,spread:±,width:width of "
                      "blocks,flops_per_token:FLOP a token in training";
    report->rows = json_array();
    for (int i = 0; i < count; i++) {
        const json_t *run = json_array_get(results[i].runs, 0);
        json_t *row = json_pack("{s:s, s:I, s:f, s:f, s:f}", "label", list[i].label, "context",
                                (json_int_t)list[i].context, "perplexity", results[i].perplexity,
                                "spread", results[i].spread, "loss", results[i].loss);
        json_object_set(row, "width", json_object_get(run, "width"));
        json_object_set(row, "flops_per_token", json_object_get(run, "flops_per_token"));
        json_array_append_new(report->rows, row);
    }
    context_words(r, &all, &report->words);
    return draw_lines(&all, report);
}

const reproduce_experiment reproduce_context = {
    "context", "perplexity against context: Transformer, Mamba, TTT-Linear, TTT-MLP", context_jobs,
    NULL, conclude_context};

/* ---- by position ---- */

static int position_jobs(const reproduce *r, reproduce_job *list)
{
    int last = contexts_of(r) - 1;
    for (int line = 0; line < N_KINDS; line++)
        list[line] = job_of(r, line, r->scale.contexts[last]);
    return N_KINDS;
}

/* Means over places that double: [1, 2), [2, 4), … of a line of losses, as perplexities. */
static size_t by_octave(const double *losses, size_t time, double *at, double *perplexity)
{
    size_t count = 0;
    for (size_t from = 16; from < time; from *= 2) {
        size_t to = 2 * from < time ? 2 * from : time;
        double sum = 0;
        for (size_t t = from; t < to; t++)
            sum += losses[t];
        at[count] = (double)from;
        perplexity[count++] = exp(sum / (double)(to - from));
    }
    return count;
}

typedef struct octaves {
    double at[32], perplexity[N_KINDS][32];
    size_t count;
} octaves;

static void position_words(const octaves *o, int64_t context, markup *m)
{
    markup_add(m,
               "The paper's question: does a network go on learning from context? Perplexity by "
               "the index of the token should fall as long as it does; the Transformer and "
               "TTT keep falling, Mamba flattens.\n\n"
               "Here: the networks of the longest context, %lld tokens; each point is the mean "
               "over indices from it to its double.\n\n",
               (long long)context);
    for (int line = 0; line < N_KINDS; line++) {
        size_t last = o->count - 1, falls = 0;
        for (size_t i = 1; i < o->count; i++)
            falls += o->perplexity[line][i] < o->perplexity[line][i - 1];
        markup_add(m,
                   "%s: %.2f from index %.0f on, %.2f from %.0f on, falling at %zu of %zu "
                   "doublings. ",
                   line_label(line), o->perplexity[line][0], o->at[0], o->perplexity[line][last],
                   o->at[last], falls, last);
    }
    markup_add(m, "\n");
}

static pjrt_status *draw_octaves(const octaves *o, reproduce_report *report)
{
    chart_series series[N_KINDS];
    for (int line = 0; line < N_KINDS; line++)
        series[line] = (chart_series){.name = line_label(line),
                                      .x = o->at,
                                      .y = o->perplexity[line],
                                      .count = o->count,
                                      .colour = line + 1};
    report->pictures[0] = (reproduce_picture){.suffix = "", .about = "Perplexity by token index"};
    report->n_pictures = 1;
    return chart_lines(&(chart){.title = "Perplexity by token index",
                                .x_label = "token index",
                                .y_label = "perplexity",
                                .log_x = true,
                                .series = series,
                                .n_series = N_KINDS},
                       &report->pictures[0].svg);
}

static pjrt_status *conclude_position(reproduce *r, const reproduce_job *list,
                                      const reproduce_result *results, int count,
                                      reproduce_report *report)
{
    (void)r;
    octaves o = {.count = 0};
    size_t time = (size_t)list[0].context;
    double *losses = calloc(time, sizeof *losses);
    if (losses == NULL)
        return PJRT_NO_MEMORY("ttt");
    for (int i = 0; i < count; i++)
        o.count = by_octave(losses, reproduce_series(&results[i], "by_position", losses, time),
                            o.at, o.perplexity[i]);
    free(losses);
    if (o.count == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "the longest context is too short to look at positions");
    report->title = "Perplexity by token index";
    report->columns = "from:from index,attention:Transformer,mamba:Mamba,linear:TTT-Linear,mlp:"
                      "TTT-MLP";
    report->rows = json_array();
    for (size_t k = 0; k < o.count; k++) {
        json_t *row = json_pack("{s:I}", "from", (json_int_t)o.at[k]);
        for (int i = 0; i < N_KINDS; i++)
            json_object_set_new(row, kinds[i].name, cmd_json_number(o.perplexity[i][k]));
        json_array_append_new(report->rows, row);
    }
    position_words(&o, list[0].context, &report->words);
    return draw_octaves(&o, report);
}

const reproduce_experiment reproduce_position = {
    "position", "perplexity by the index of the token, at the longest context", position_jobs, NULL,
    conclude_position};
