/*
 * Charts as SVG: lines over a linear or logarithmic axis, and bars with names. They follow the
 * reader's choice of dark or light, are read at the width of a phone, load nothing and run nothing,
 * so that they stand in a page as well as in a README.
 *
 *     double steps[] = {0, 100, 200}, loss[] = {5.5, 3.1, 2.4};
 *     chart_series series = {.name = "training", .x = steps, .y = loss, .count = 3};
 *     chart c = {.title = "Loss", .x_label = "step", .y_label = "nats a token",
 *                .series = &series, .n_series = 1};
 *     text_buffer svg;
 *     PJRT_TRY(chart_lines(&c, &svg));   ... svg.text; free(svg.text);
 *
 * Names are words of others: they may hold anything. What is not finite, and what is not positive
 * on a logarithmic axis, is a gap. More points than can be seen are thinned out to the highest and
 * the lowest of each place, so a picture stays small whatever it shows.
 */
#ifndef TOOLS_REPORT_CHART_H
#define TOOLS_REPORT_CHART_H

#include "pjrt/pjrt.h"
#include "tools/cli/text_buffer.h"

enum {
    CHART_COLOURS = 8,
    CHART_MOST_TICKS = 24,
    CHART_NUMBER = 32, /* room for a number in words */
};

typedef struct chart_series {
    const char *name;     /* NULL or empty: not in the legend */
    const double *x, *y;  /* `count` of each */
    const double *spread; /* y ± this, as a band, or as bars where points are few; NULL: none */
    size_t count;
    bool dashed;
    bool faint;  /* pale and thin: raw values behind a smoothed line */
    bool points; /* markers that no line joins */
    bool plain;  /* no markers, however few points there are */
    int colour;  /* 1 to CHART_COLOURS; 0: by the place among the series */
} chart_series;

typedef struct chart {
    const char *title, *x_label, *y_label; /* NULL: none */
    const char *about;                     /* for those who do not see it; NULL: from the data */
    bool log_x, log_y;
    bool twos;    /* ticks of a logarithmic x axis are powers of two, 128, 256, … 32k: so they are
                     where all x are such powers anyway */
    bool whole_x; /* ticks of the x axis are whole numbers */
    const chart_series *series;
    size_t n_series;
    double x_low, x_high, y_low, y_high; /* the ends of the axes; both 0: from the data */
    const double *marks;                 /* places on the x axis with a line through all of it */
    size_t n_marks;
    const char *marks_name;
    int width, height; /* of the drawing, in units of which text is 13 high; 0: 480 by 300 */
    bool bare;         /* without its style: the page has chart_style() once for all */
} chart;

typedef struct chart_bar {
    const char *name;
    double value, spread; /* spread 0: none. A value that is not finite: no bar */
    double mark;          /* a value to compare with, as a tick across the bar; 0: none */
    const char *words;    /* instead of the value's digits; NULL: digits */
    int colour;           /* as above; 0: the first for all */
} chart_bar;

typedef struct chart_bars_data {
    const char *title, *label; /* of the values: "perplexity" */
    const char *about;
    const chart_bar *bars;
    size_t count;
    double from;            /* where bars begin: 0, or more to show small differences */
    int digits;             /* behind the point; -1: as many as it takes for three in all */
    const char *marks_name; /* what `mark` of the bars is: "paper" */
    int width;
    bool bare;
} chart_bars_data;

/* The picture, which the caller frees (`out->text`). */
PJRT_MUST_CHECK pjrt_status *chart_lines(const chart *c, text_buffer *out);
PJRT_MUST_CHECK pjrt_status *chart_bars(const chart_bars_data *b, text_buffer *out);
/* "<style>…</style>" for pages with bare charts. */
const char *chart_style(void);
/* The colour of place 1 to CHART_COLOURS as a class that chart_style() knows, for keys in a page:
 * in it `var(--k)` is the colour. */
const char *chart_colour_class(int colour);

/* ---- axes ---- */

/* Round numbers from `low` to `high`, at most `most` (and CHART_MOST_TICKS) of them; returns how
 * many. `twos`: powers of two on a logarithmic axis. */
size_t chart_ticks(double low, double high, bool logarithmic, bool twos, size_t most, double *at);
/* A number for a tick: "0.25", "20k", "10⁻⁴". `step` is what lies between two ticks and decides on
 * digits, 0: three; `largest` is the greatest of them and decides on the unit, 0: the value does,
 * CHART_POWERS: all are powers of ten. */
#define CHART_POWERS 1e-4
void chart_number(double value, double step, double largest, bool twos, char text[CHART_NUMBER]);

#endif
