/* Perplexity and time against b, from a step of descent a token to one a sequence. */
#include "tools/reproduce/reproduce.h"

#include <math.h>
#include <stdio.h>

/* The scale's sizes, then the whole sequence; returns how many. */
static int sizes_of(const reproduce *r, int64_t sizes[REPRODUCE_MOST + 1])
{
    int count = 0;
    while (count < REPRODUCE_MOST && r->scale.sizes[count] > 0 &&
           r->scale.sizes[count] < r->scale.context) {
        sizes[count] = r->scale.sizes[count];
        count++;
    }
    sizes[count++] = r->scale.context;
    return count;
}

/* The network of b = 16 is the ladder's last. */
static int jobs(const reproduce *r, reproduce_job *list)
{
    int64_t sizes[REPRODUCE_MOST + 1];
    int count = sizes_of(r, sizes);
    for (int i = 0; i < count; i++) {
        list[i] = (reproduce_job){.mixer = "ttt_linear", .backbone = "mamba", .mini = sizes[i]};
        if (sizes[i] == 16)
            snprintf(list[i].name, sizeof list[i].name, "ladder-mamba");
        else
            snprintf(list[i].name, sizeof list[i].name, "minibatch-%lld", (long long)sizes[i]);
        snprintf(list[i].label, sizeof list[i].label, "TTT-Linear, b = %lld", (long long)sizes[i]);
    }
    return count;
}

static int measurements(const reproduce *r)
{
    int64_t sizes[REPRODUCE_MOST + 1];
    return sizes_of(r, sizes);
}

typedef struct curve {
    double sizes[REPRODUCE_MOST + 1], perplexity[REPRODUCE_MOST + 1], spread[REPRODUCE_MOST + 1],
        microseconds[REPRODUCE_MOST + 1];
    int count;
} curve;

static pjrt_status *time_all(reproduce *r, const reproduce_job *list, curve *c)
{
    ttt_recipe recipe;
    for (int i = 0; i < c->count; i++) {
        reproduce_timing t = {.kind = TTT_PROGRAM_LOSS, .batch = 4, .time = r->scale.context};
        double seconds;
        r->doing = list[i].label;
        PJRT_TRY(reproduce_settings(r, &list[i], 0, &t.config, &recipe));
        PJRT_TRY(reproduce_time(r, &t, &seconds));
        c->microseconds[i] = 1e6 * seconds / (double)(t.batch * t.time);
        reproduce_say(r, "  %-34s forward %.2f µs a token\n", list[i].label, c->microseconds[i]);
    }
    return NULL;
}

static int least(const double *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        best = values[i] < values[best] ? i : best;
    return best;
}

static void add_words(const reproduce *r, const curve *c, markup *m)
{
    int last = c->count - 1, best = least(c->perplexity, c->count),
        fastest = least(c->microseconds, c->count);
    markup_add(
        m,
        "The paper: smaller b is better, for more steps of descent are taken; a token's forward "
        "time falls as b grows, until the work within mini-batches outweighs it; b = 16 is the "
        "compromise.\n\n"
        "Here: TTT-Linear of preset %s, %lld steps of %lld tokens at context %lld; times are "
        "medians of the dual form's forward pass over 4 sequences, compiled by XLA without our "
        "own kernels.\n\n"
        "The best perplexity is at b = %.0f (%.2f; the whole sequence as one batch has %.2f: %s). "
        "A token is fastest at b = %.0f: %.2f µs, against %.2f at b = %.0f.\n",
        r->scale.preset, (long long)r->scale.steps, (long long)r->scale.batch_tokens,
        (long long)r->scale.context, c->sizes[best], c->perplexity[best], c->perplexity[last],
        c->perplexity[last] - c->perplexity[best] > c->spread[best] ? "as in the paper"
                                                                    : "within the spread",
        c->sizes[fastest], c->microseconds[fastest], c->microseconds[0], c->sizes[0]);
}

static pjrt_status *draw(const curve *c, reproduce_report *report)
{
    chart_series perplexity = {.name = "perplexity",
                               .x = c->sizes,
                               .y = c->perplexity,
                               .spread = c->spread,
                               .count = (size_t)c->count};
    chart_series time = {.name = "forward",
                         .x = c->sizes,
                         .y = c->microseconds,
                         .count = (size_t)c->count,
                         .colour = 2};
    reproduce_picture *p = report->pictures;
    report->n_pictures = 2;
    p[0] = (reproduce_picture){.suffix = "", .about = "Perplexity against mini-batch size"};
    p[1] = (reproduce_picture){.suffix = "-time", .about = "Forward time against mini-batch size"};
    PJRT_TRY(chart_lines(&(chart){.title = "Perplexity",
                                  .x_label = "tokens of a mini-batch",
                                  .log_x = true,
                                  .series = &perplexity,
                                  .n_series = 1},
                         &p[0].svg));
    return chart_lines(&(chart){.title = "Forward time of a token",
                                .x_label = "tokens of a mini-batch",
                                .y_label = "µs",
                                .log_x = true,
                                .log_y = true,
                                .series = &time,
                                .n_series = 1},
                       &p[1].svg);
}

static pjrt_status *conclude(reproduce *r, const reproduce_job *list,
                             const reproduce_result *results, int count, reproduce_report *report)
{
    int64_t sizes[REPRODUCE_MOST + 1];
    curve c = {.count = count};
    sizes_of(r, sizes);
    report->title = "Mini-batch size";
    report->columns = "b:b,perplexity:perplexity,spread:±,microseconds:forward µs a token";
    report->rows = json_array();
    PJRT_TRY(time_all(r, list, &c));
    for (int i = 0; i < count; i++) {
        c.sizes[i] = (double)sizes[i];
        c.perplexity[i] = results[i].perplexity;
        c.spread[i] = results[i].spread;
        json_array_append_new(report->rows,
                              json_pack("{s:I, s:f, s:f, s:f}", "b", (json_int_t)sizes[i],
                                        "perplexity", c.perplexity[i], "spread", c.spread[i],
                                        "microseconds", c.microseconds[i]));
    }
    add_words(r, &c, &report->words);
    return draw(&c, report);
}

const reproduce_experiment reproduce_minibatch = {
    "minibatch", "perplexity and forward time against the size of mini-batches", jobs, measurements,
    conclude};
