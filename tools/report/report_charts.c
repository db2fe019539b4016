/* The pictures of a report. */
#include "tools/report/chart.h"
#include "tools/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_SERIES = 3 * REPORT_RUNS, SMALL_LAYERS = 12 };

/* A chart in the making: its lines and the numbers that they point to. */
typedef struct canvas {
    markup *m;
    chart chart;
    chart_series series[MOST_SERIES];
    double *numbers[3 * MOST_SERIES];
    size_t n_numbers;
} canvas;

static double *numbers(canvas *c, size_t count)
{
    double *list = calloc(count + 1, sizeof *list);
    if (list == NULL)
        c->m->failed = true;
    else
        c->numbers[c->n_numbers++] = list;
    return list;
}

/* A line with room for `count` points; NULL: no memory, or nothing to draw. */
static chart_series *new_series(canvas *c, const char *name, size_t count, int colour, bool spread)
{
    chart_series *s = &c->series[c->chart.n_series];
    if (count == 0 || c->chart.n_series == MOST_SERIES)
        return NULL;
    double *x = numbers(c, count), *y = x == NULL ? NULL : numbers(c, count);
    double *error = y == NULL || !spread ? NULL : numbers(c, count);
    if (y == NULL || (spread && error == NULL))
        return NULL;
    *s = (chart_series){.name = name, .x = x, .y = y, .spread = error, .count = count};
    s->colour = colour;
    c->chart.n_series++;
    return s;
}

static void put(chart_series *s, size_t i, double x, double y)
{
    ((double *)s->x)[i] = x;
    ((double *)s->y)[i] = y;
}

/* Draws it unless it is empty, and frees what it held. */
static void finish(canvas *c, const char *class)
{
    text_buffer svg = {0};
    c->chart.series = c->series;
    c->chart.bare = true;
    if (c->chart.n_series > 0 && !c->m->failed) {
        pjrt_status *st = chart_lines(&c->chart, &svg);
        c->m->failed = c->m->failed || st != NULL;
        pjrt_status_free(st);
        markup_add(c->m, "<figure%s>", class);
        c->m->failed =
            c->m->failed || svg.text == NULL || !text_buffer_add(&c->m->buffer, svg.text, svg.size);
        markup_add(c->m, "</figure>\n");
    }
    free(svg.text);
    for (size_t i = 0; i < c->n_numbers; i++)
        free(c->numbers[i]);
}

/* ---- tracks ---- */

/* Lowest and highest of every piece, behind the smoothed line. */
static void add_raw(canvas *c, const report_track *t, double scale, int colour)
{
    chart_series *s = new_series(c, NULL, 2 * t->count, colour, false);
    for (size_t i = 0; s != NULL && i < t->count; i++) {
        const report_piece *p = &t->list[i];
        bool low_first = p->low_x <= p->high_x;
        put(s, 2 * i, scale * (low_first ? p->low_x : p->high_x), low_first ? p->low : p->high);
        put(s, 2 * i + 1, scale * (low_first ? p->high_x : p->low_x), low_first ? p->high : p->low);
    }
    if (s != NULL)
        s->faint = true;
}

/* A mean over a twenty-fifth of the run around each place, as much before it as after. */
static chart_series *add_smooth(canvas *c, const char *name, const report_track *t, double scale,
                                int colour)
{
    chart_series *s = new_series(c, name, t->count, colour, false);
    size_t reach = t->count / 50 < 2 ? 2 : t->count / 50;
    for (size_t i = 0; s != NULL && i < t->count; i++) {
        size_t near = i < t->count - 1 - i ? i : t->count - 1 - i;
        near = near < reach ? near : reach;
        double sum = 0, points = 0;
        for (size_t k = i - near; k <= i + near; k++) {
            sum += t->list[k].mean * t->list[k].points;
            points += t->list[k].points;
        }
        put(s, i, scale * t->list[i].x, sum / points);
    }
    return s;
}

static chart_series *add_means(canvas *c, const char *name, const report_track *t, double scale,
                               int colour)
{
    chart_series *s = new_series(c, name, t->count, colour, false);
    for (size_t i = 0; s != NULL && i < t->count; i++)
        put(s, i, scale * t->list[i].x, t->list[i].mean);
    return s;
}

static void add_evaluations(canvas *c, const char *name, const report_run *run, double scale,
                            int colour)
{
    chart_series *s = new_series(c, name, run->n_evaluations, colour, true);
    for (size_t i = 0; s != NULL && i < run->n_evaluations; i++) {
        const report_evaluation *e = &run->evaluations[i];
        put(s, i, scale * e->step, e->loss);
        ((double *)s->spread)[i] = isfinite(e->error) ? e->error : 0;
    }
}

static void widen(const chart_series *s, double from, double *low, double *high)
{
    for (size_t k = 0; k < s->count; k++) {
        double spread = s->spread == NULL ? 0 : s->spread[k];
        if (s->x[k] < from || !isfinite(s->y[k]))
            continue;
        *low = fmin(*low, s->y[k] - spread);
        *high = fmax(*high, s->y[k] + spread);
    }
}

/* Raw lines may leave the picture when they go far, the others may not: one spike must not flatten
 * all. */
static void frame(canvas *c, double from)
{
    double low = INFINITY, high = -INFINITY, right = -INFINITY, lowest, highest;
    for (size_t i = 0; i < c->chart.n_series; i++) {
        const chart_series *s = &c->series[i];
        right = fmax(right, s->x[s->count - 1]);
        if (!s->faint)
            widen(s, from, &low, &high);
    }
    lowest = low;
    highest = high;
    for (size_t i = 0; i < c->chart.n_series; i++)
        if (c->series[i].faint)
            widen(&c->series[i], from, &lowest, &highest);
    double most = 0.35 * (high - low);
    low = fmax(lowest, c->chart.log_y ? low / 1.5 : low - most);
    high = fmin(highest, high + most);
    if (!(high > low) || (c->chart.log_y && low <= 0))
        return;
    double room = c->chart.log_y ? pow(high / low, 0.05) : 0.05 * (high - low);
    c->chart.y_low = c->chart.log_y ? low / room : low - room;
    c->chart.y_high = c->chart.log_y ? high * room : high + room;
    if (from > 0) {
        c->chart.x_low = from;
        c->chart.x_high = right;
    }
}

/* ---- over steps, or over tokens where runs have steps of different sizes ---- */

static bool by_tokens(const report *r)
{
    for (size_t i = 0; i < r->n_runs; i++)
        if (r->runs[i]->first_tokens <= 0)
            return false;
    for (size_t i = 1; i < r->n_runs; i++)
        if (r->runs[i]->first_tokens != r->runs[0]->first_tokens)
            return true;
    return false;
}

static double scale_of(const report *r, const report_run *run)
{
    return by_tokens(r) ? run->first_tokens : 1;
}

static canvas start(markup *m, const report *r, const char *title, const char *y_label)
{
    canvas c = {.m = m};
    c.chart = (chart){.title = title, .y_label = y_label};
    c.chart.x_label = r != NULL && by_tokens(r) ? "tokens" : "step";
    return c;
}

static const char *name_of(const report *r, size_t i)
{
    return r->n_runs == 1 ? NULL : r->runs[i]->name;
}

static double last_x(const report *r)
{
    double most = 0;
    for (size_t i = 0; i < r->n_runs; i++)
        most = fmax(most, scale_of(r, r->runs[i]) * r->runs[i]->step);
    return most;
}

static void mark_restarts(canvas *c, const report *r)
{
    if (r->n_runs != 1 || r->runs[0]->n_restarts == 0)
        return;
    c->chart.marks = r->runs[0]->restarts;
    c->chart.n_marks = r->runs[0]->n_restarts;
    c->chart.marks_name = "restart";
}

static void draw_loss(markup *m, const report_run *run, const report *r, const char *title,
                      double from)
{
    canvas c = start(m, r, title, "nats a token");
    add_raw(&c, &run->loss, 1, 1);
    add_smooth(&c, "training", &run->loss, 1, 1);
    add_evaluations(&c, "validation", run, 1, 2);
    mark_restarts(&c, r);
    frame(&c, from);
    finish(&c, "");
}

static void draw_all_losses(markup *m, const report *r, bool validation)
{
    canvas c =
        start(m, r, validation ? "Validation loss" : "Training loss, smoothed", "nats a token");
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = r->runs[i];
        if (validation)
            add_evaluations(&c, name_of(r, i), run, scale_of(r, run), (int)i + 1);
        else
            add_smooth(&c, name_of(r, i), &run->loss, scale_of(r, run), (int)i + 1);
    }
    finish(&c, "");
}

void report_draw_losses(markup *m, const report *r)
{
    if (r->n_runs > 1) {
        draw_all_losses(m, r, true);
        draw_all_losses(m, r, false);
        return;
    }
    draw_loss(m, r->runs[0], r, "Loss", 0);
    if (r->runs[0]->loss.count >= 20)
        draw_loss(m, r->runs[0], r, "Loss, without the first quarter", last_x(r) / 4);
}

static void draw_norm(markup *m, const report *r)
{
    canvas c = start(m, r, "Gradient norm", "before clipping");
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = r->runs[i];
        if (r->n_runs == 1)
            add_raw(&c, &run->norm, 1, 1);
        add_smooth(&c, name_of(r, i), &run->norm, scale_of(r, run), (int)i + 1);
        for (size_t k = 0; k < run->norm.count; k++) {
            low = fmin(low, run->norm.list[k].mean);
            high = fmax(high, run->norm.list[k].mean);
        }
    }
    c.chart.log_y = low > 0 && high > 8 * low;
    if (r->n_runs == 1)
        frame(&c, 0);
    mark_restarts(&c, r);
    finish(&c, "");
}

static void draw_rate(markup *m, const report *r)
{
    canvas c = start(m, r, "Learning rate", NULL);
    for (size_t i = 0; i < r->n_runs; i++)
        add_means(&c, name_of(r, i), &r->runs[i]->rate, scale_of(r, r->runs[i]), (int)i + 1);
    finish(&c, "");
}

static void draw_speed(markup *m, const report *r)
{
    canvas c = start(m, r, "Throughput", "tokens a second");
    double most = 0, fastest = 0, scale = 1;
    for (size_t i = 0; i < r->n_runs; i++)
        most = fmax(most, r->runs[i]->elapsed);
    scale = most > 2 * 86400 ? 1.0 / 86400 : most > 2 * 3600 ? 1.0 / 3600 : 1.0 / 60;
    c.chart.x_label = most > 2 * 86400 ? "days" : most > 2 * 3600 ? "hours" : "minutes";
    for (size_t i = 0; i < r->n_runs; i++) {
        if (r->n_runs == 1)
            add_raw(&c, &r->runs[i]->speed, scale, 1);
        add_smooth(&c, name_of(r, i), &r->runs[i]->speed, scale, (int)i + 1);
        for (size_t k = 0; k < r->runs[i]->speed.count; k++)
            fastest = fmax(fastest, r->runs[i]->speed.list[k].high);
    }
    c.chart.y_high = 1.1 * fastest;
    mark_restarts(&c, r);
    double times[REPORT_RESTARTS];
    for (size_t i = 0; i < c.chart.n_marks; i++)
        times[i] = scale * r->runs[0]->restart_times[i];
    c.chart.marks = times;
    finish(&c, "");
}

void report_draw_steps(markup *m, const report *r)
{
    draw_norm(m, r);
    draw_rate(m, r);
    draw_speed(m, r);
}

/* ---- over token indices ---- */

static chart_series *add_curve(canvas *c, const char *name, const report_curve *curve, int colour)
{
    chart_series *s = new_series(c, name, curve->count, colour, false);
    for (size_t i = 0; s != NULL && i < curve->count; i++)
        put(s, i, curve->x[i], curve->y[i]);
    return s;
}

/* One run at several steps, the last in the first colour; or the last of each of several runs. */
void report_draw_positions(markup *m, const report *r)
{
    static char names[REPORT_CURVES][32];
    canvas c = start(m, NULL, "Loss by position", "nats a token, validation");
    c.chart.x_label = "tokens of the sequence";
    c.chart.log_x = c.chart.twos = true;
    for (size_t i = 0; i < r->n_runs && r->n_runs > 1; i++) {
        const report_run *run = r->runs[i];
        if (run->n_positions > 0)
            add_curve(&c, run->name, &run->positions[run->n_positions - 1], (int)i + 1);
    }
    const report_run *only = r->runs[0];
    size_t first = only->n_positions > 1 && only->positions[0].step == 0;
    for (size_t i = only->n_positions; r->n_runs == 1 && i-- > first;) {
        snprintf(names[i], sizeof names[i], "step %.0f", only->positions[i].step);
        chart_series *s =
            add_curve(&c, names[i], &only->positions[i], (int)(only->n_positions - i));
        if (s != NULL)
            s->dashed = i + 1 < only->n_positions;
    }
    finish(&c, "");
}

static void draw_inner_layers(markup *m, const report_run *run)
{
    canvas c = start(m, NULL, "Inner loss by layer", "reconstruction, last evaluation");
    c.chart.x_label = "layer";
    c.chart.whole_x = true;
    for (int which = 0; which < REPORT_INNERS; which++) {
        chart_series *s =
            new_series(&c, report_inner_name(which), run->n_inner_layers, which + 1, false);
        for (size_t i = 0; s != NULL && i < run->n_inner_layers; i++)
            put(s, i, (double)i, run->inner_layers[which][i]);
    }
    finish(&c, "");
}

static void draw_inner_steps(markup *m, const report_run *run)
{
    canvas c = start(m, NULL, "Inner loss over training", "reconstruction, mean of all layers");
    c.chart.x_label = "step";
    for (int which = 0; which < REPORT_INNERS; which++)
        add_means(&c, report_inner_name(which), &run->inner[which], 1, which + 1);
    finish(&c, "");
}

static void draw_inner_key(markup *m)
{
    markup_add(m, "<ul class=\"key\">");
    for (int which = 0; which < REPORT_INNERS; which++)
        markup_add(m, "<li><i class=\"%s\"></i>%s</li>", chart_colour_class(which + 1),
                   report_inner_name(which));
    markup_add(m, "</ul>\n");
}

/* Small pictures, one a layer, of all or of some of them. */
static void draw_inner_curves(markup *m, const report_run *run)
{
    size_t layers = run->n_inner_curves, shown = layers < SMALL_LAYERS ? layers : SMALL_LAYERS;
    char title[64];
    if (layers == 0)
        return;
    markup_add(m,
               "<h3>By token, layer by layer</h3>\n<p>Checkpoint of step %.0f on %.0f validation "
               "sequences%s.</p>\n",
               run->inner_curves_step, run->inner_sequences,
               shown < layers ? "; some of the layers" : "");
    draw_inner_key(m);
    markup_add(m, "<div class=\"small charts\">\n");
    for (size_t i = 0; i < shown; i++) {
        size_t layer = shown == 1 ? 0 : i * (layers - 1) / (shown - 1);
        canvas c = start(m, NULL, title, NULL);
        snprintf(title, sizeof title, "Layer %zu", layer);
        c.chart.x_label = "tokens of the sequence";
        c.chart.log_x = c.chart.twos = true;
        c.chart.width = 320;
        c.chart.height = 210;
        for (int which = 0; which < REPORT_INNERS; which++) {
            chart_series *s = add_curve(
                &c, NULL, &run->inner_curves[layer * REPORT_INNERS + (size_t)which], which + 1);
            if (s != NULL)
                s->plain = true;
        }
        finish(&c, "");
    }
    markup_add(m, "</div>\n");
}

void report_draw_inner(markup *m, const report_run *run)
{
    markup_add(m, "<div class=\"charts\">\n");
    draw_inner_steps(m, run);
    draw_inner_layers(m, run);
    markup_add(m, "</div>\n");
    draw_inner_curves(m, run);
}
