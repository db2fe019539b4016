/* Private to the charts: what lines and bars are drawn with. */
#ifndef TOOLS_REPORT_CHART_DRAW_H
#define TOOLS_REPORT_CHART_DRAW_H

#include "tools/report/chart.h"
#include "tools/report/markup.h"

enum {
    CHART_EDGE = 4,  /* empty all around */
    CHART_LINE = 18, /* from one line of text to the next */
    CHART_MOST_NAME = 48,
};

/* How wide words will be, by a guess that errs on the wide side: the font is the reader's. */
double chart_text_width(const char *words);
/* Words at a place; `class` NULL: plain. */
void chart_text(markup *m, double x, double y, const char *class, const char *words);
/* Words on as many lines as a width takes; returns where the next line goes. */
double chart_paragraph(markup *m, double x, double y, double width, const char *class,
                       const char *words);
/* A coordinate, in tenths and as short as it can be written. */
void chart_coordinate(markup *m, double value);

/* The picture around what was drawn: size, style, title and description. Frees `inside`. */
pjrt_status *chart_finish(markup *inside, const char *title, markup *about, int width,
                          double height, bool bare, text_buffer *out);

#endif
