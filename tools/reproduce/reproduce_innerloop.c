/* What the learners themselves see: their loss on each token before, at and after learning. */
#include "tools/reproduce/reproduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMOOTH = 10, PANELS = 4 }; /* tokens of the sliding window, as in the paper */

/* The ladder's last network, with its inner losses. */
static int jobs(const reproduce *r, reproduce_job *list)
{
    (void)r;
    list[0] = (reproduce_job){.mixer = "ttt_linear", .backbone = "mamba", .inner = true};
    snprintf(list[0].name, sizeof list[0].name, "ladder-mamba");
    snprintf(list[0].label, sizeof list[0].label, "TTT-Linear");
    return 1;
}

static const char *const curves[] = {"l(W0; x_t)", "l(W_mb; x_t)", "l(W_t-1; x_t)", "l(W_t; x_t)"};

/* A line of a layer, smoothed: [time] */
static void smooth(const json_t *layer, size_t which, double *out, size_t time)
{
    const json_t *line = json_array_get(layer, which);
    double sum = 0;
    for (size_t t = 0; t < time; t++) {
        sum += json_number_value(json_array_get(line, t));
        if (t >= SMOOTH)
            sum -= json_number_value(json_array_get(line, t - SMOOTH));
        out[t] = sum / (double)(t < SMOOTH ? t + 1 : SMOOTH);
    }
}

static double mean_of(const double *values, size_t from, size_t to)
{
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum += values[i];
    return sum / (double)(to - from);
}

typedef struct inner {
    const json_t *layers;
    size_t n_layers, time;
    double *index;    /* [time] */
    double *lines[3]; /* [time]: at W0, before the token, after it */
} inner;

static void read_layer(const inner *in, size_t layer)
{
    static const size_t which[3] = {0, 2, 3};
    for (int k = 0; k < 3; k++)
        smooth(json_array_get(in->layers, layer), which[k], in->lines[k], in->time);
}

static json_t *row_json(const inner *in, size_t layer)
{
    size_t quarter = in->time / 4;
    double start = mean_of(in->lines[0], in->time - quarter, in->time);
    double before = mean_of(in->lines[1], in->time - quarter, in->time);
    double after = mean_of(in->lines[2], in->time - quarter, in->time);
    double early = mean_of(in->lines[0], 0, quarter) - mean_of(in->lines[2], 0, quarter);
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "layer", (json_int_t)layer, "w0", start,
                     "before", before, "after", after, "early_gap", early, "late_gap",
                     start - after);
}

static pjrt_status *draw(const inner *in, size_t layer, reproduce_report *report)
{
    static const char *const suffixes[PANELS] = {"", "-2", "-3", "-4"};
    char title[64];
    chart_series series[3];
    for (int k = 0; k < 3; k++)
        series[k] = (chart_series){.name = curves[k == 0 ? 0 : k + 1],
                                   .x = in->index,
                                   .y = in->lines[k],
                                   .count = in->time};
    snprintf(title, sizeof title, "Layer %zu of %zu", layer + 1, in->n_layers);
    reproduce_picture *p = &report->pictures[report->n_pictures];
    *p = (reproduce_picture){.suffix = suffixes[report->n_pictures],
                             .about = "Inner losses by token index"};
    report->n_pictures++;
    return chart_lines(&(chart){.title = title,
                                .x_label = "token index",
                                .y_label = "inner loss",
                                .series = series,
                                .n_series = 3},
                       &p->svg);
}

static void add_words(const json_t *rows, markup *m)
{
    size_t i, falls = 0, grows = 0, all = json_array_size(rows);
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        double w0 = json_number_value(json_object_get(row, "w0"));
        double before = json_number_value(json_object_get(row, "before"));
        double after = json_number_value(json_object_get(row, "after"));
        falls += after < before && before < w0;
        grows += json_number_value(json_object_get(row, "late_gap")) >
                 json_number_value(json_object_get(row, "early_gap"));
    }
    markup_add(m,
               "The paper: a step of descent lowers the loss on its own token, what was learnt "
               "before lowers it too, and the distance between l(W0) and l(W_t) grows with t, in "
               "all 12 layers.\n\n"
               "Here: the last network of the ladder, over the validation text, means over a "
               "window of %d tokens. l(W_t) < l(W_t-1) < l(W0) over the last quarter of sequences "
               "in %zu of %zu layers; the distance from l(W0) to l(W_t) is larger there than in "
               "the first quarter in %zu.\n",
               SMOOTH, falls, all, grows);
}

static pjrt_status *report_layers(const inner *in, reproduce_report *report)
{
    report->rows = json_array();
    for (size_t layer = 0; layer < in->n_layers; layer++) {
        read_layer(in, layer);
        json_array_append_new(report->rows, row_json(in, layer));
        /* As many layers as there are places for, from the first to the last. */
        size_t panel = (size_t)report->n_pictures;
        size_t wanted = in->n_layers <= PANELS ? panel : panel * (in->n_layers - 1) / (PANELS - 1);
        if (panel < PANELS && layer == wanted)
            PJRT_TRY(draw(in, layer, report));
    }
    add_words(report->rows, &report->words);
    return NULL;
}

static pjrt_status *conclude(reproduce *r, const reproduce_job *list,
                             const reproduce_result *results, int count, reproduce_report *report)
{
    (void)r, (void)list, (void)count;
    inner in = {.layers = json_object_get(json_array_get(results[0].runs, 0), "inner_loss")};
    in.n_layers = json_array_size(in.layers);
    in.time = json_array_size(json_array_get(json_array_get(in.layers, 0), 0));
    double *room = calloc(4 * in.time + 1, sizeof *room);
    if (room == NULL || in.time == 0) {
        free(room);
        return room == NULL ? PJRT_NO_MEMORY("ttt")
                            : PJRT_FAIL(DATA_LOSS, "ttt", "the run has no inner losses");
    }
    in.index = room;
    for (int k = 0; k < 3; k++)
        in.lines[k] = room + (size_t)(k + 1) * in.time;
    for (size_t t = 0; t < in.time; t++)
        in.index[t] = (double)t;
    report->title = "The inner loop";
    report->columns = "layer:layer,w0:l(W0),before:l(W_t-1),after:l(W_t),early_gap:l(W0) - l(W_t) "
                      "early,late_gap:late";
    pjrt_status *st = report_layers(&in, report);
    free(room);
    return st;
}

const reproduce_experiment reproduce_innerloop = {
    "innerloop", "the learners' own loss by token and layer", jobs, NULL, conclude};
