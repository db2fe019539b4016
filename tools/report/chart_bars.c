/* Bars with names: each name above its bar, so that long ones are read on a phone as well. */
#include "tools/report/chart_draw.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 480, BAR = 14, ROW = 42 };

typedef struct scale {
    double low, high; /* of the values */
    double from, to;  /* of the drawing */
    double zero;      /* where bars begin */
} scale;

static double at(const scale *s, double value)
{
    double share = (value - s->low) / (s->high - s->low);
    return s->from + (s->to - s->from) * fmin(fmax(share, 0), 1);
}

static void include(scale *s, double value)
{
    if (!isfinite(value))
        return;
    s->low = fmin(s->low, value);
    s->high = fmax(s->high, value);
}

static void value_words(const chart_bars_data *b, const chart_bar *bar, char *text, size_t size)
{
    char number[CHART_NUMBER];
    if (bar->words != NULL)
        snprintf(text, size, "%s", bar->words);
    else if (!isfinite(bar->value))
        snprintf(text, size, "–");
    else if (b->digits >= 0) {
        snprintf(text, size, "%.*f", b->digits, bar->value);
        if (bar->spread > 0 && isfinite(bar->spread))
            snprintf(text, size, "%.*f ± %.*f", b->digits, bar->value, b->digits, bar->spread);
    } else {
        chart_number(bar->value, 0, 0, false, number);
        snprintf(text, size, "%s", number);
    }
}

static scale measure(const chart_bars_data *b, int width)
{
    scale s = {.low = b->from, .high = b->from, .zero = b->from, .from = CHART_EDGE};
    char text[80];
    double widest = 0;
    for (size_t i = 0; i < b->count; i++) {
        const chart_bar *bar = &b->bars[i];
        double spread = isfinite(bar->spread) ? bar->spread : 0;
        include(&s, bar->value - spread);
        include(&s, bar->value + spread);
        if (bar->mark != 0)
            include(&s, bar->mark);
        value_words(b, bar, text, sizeof text);
        widest = fmax(widest, chart_text_width(text));
    }
    s.to = width - CHART_EDGE - fmin(widest + 10, 0.5 * width);
    if (!(s.high > s.low) || !isfinite(s.high - s.low))
        s.high = s.low + 1;
    return s;
}

static void draw_bar(markup *m, const chart_bars_data *b, const scale *s, size_t i, double y)
{
    const chart_bar *bar = &b->bars[i];
    const char *colour = chart_colour_class(bar->colour);
    double end = at(s, s->zero), begin = end, right = end;
    char text[80];
    chart_text(m, CHART_EDGE, y - 6, NULL, bar->name == NULL ? "" : bar->name);
    if (isfinite(bar->value)) {
        end = at(s, bar->value);
        right = fmax(begin, end);
        markup_add(m,
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\" "
                   "class=\"cs %s\"/>\n",
                   fmin(begin, end), y, fabs(end - begin), BAR, colour);
    }
    if (isfinite(bar->value) && isfinite(bar->spread) && bar->spread > 0) {
        double low = at(s, bar->value - bar->spread), high = at(s, bar->value + bar->spread);
        markup_add(m, "<path class=\"cw\" d=\"M%.1f %.1fH%.1fm0-3v6M%.1f %.1fv6\"/>\n", low,
                   y + BAR / 2.0, high, low, y + BAR / 2.0 - 3);
        right = fmax(right, high);
    }
    if (isfinite(bar->mark) && bar->mark != 0) {
        markup_add(m, "<path class=\"ck\" d=\"M%.1f %.1fv%d\"/>\n", at(s, bar->mark), y - 2.5,
                   BAR + 5);
        right = fmax(right, at(s, bar->mark));
    }
    value_words(b, bar, text, sizeof text);
    chart_text(m, right + 7, y + BAR - 2.5, "cv", text);
}

static void describe(const chart_bars_data *b, markup *about)
{
    char text[80];
    if (b->about != NULL) {
        markup_words(about, b->about, 2000);
        return;
    }
    markup_words(about, b->label == NULL ? "Values" : b->label, CHART_MOST_NAME);
    markup_add(about, ".");
    for (size_t i = 0; i < b->count; i++) {
        markup_add(about, " ");
        markup_words(about, b->bars[i].name == NULL ? "" : b->bars[i].name, CHART_MOST_NAME);
        value_words(b, &b->bars[i], text, sizeof text);
        markup_add(about, ": ");
        markup_words(about, text, sizeof text);
        markup_add(about, ".");
    }
}

/* What the ticks across bars are, and where bars begin when that is not zero. */
static double draw_notes(markup *m, const chart_bars_data *b, double y)
{
    char text[CHART_NUMBER + 32], number[CHART_NUMBER];
    double x = CHART_EDGE;
    if (b->marks_name != NULL) {
        markup_add(m, "<path class=\"ck\" d=\"M%.1f %.1fv14\"/>\n", x + 2, y - 11);
        chart_text(m, x + 12, y, NULL, b->marks_name);
        x += 12 + chart_text_width(b->marks_name) + 20;
    }
    if (b->from != 0) {
        chart_number(b->from, 0, 0, false, number);
        snprintf(text, sizeof text, "bars begin at %s", number);
        chart_text(m, x, y, NULL, text);
    }
    return b->marks_name != NULL || b->from != 0 ? y + CHART_LINE : y;
}

pjrt_status *chart_bars(const chart_bars_data *b, text_buffer *out)
{
    int width = b->width > 0 ? b->width : WIDTH;
    scale s = measure(b, width);
    markup m = {0}, about = {0};
    double y = CHART_EDGE + 14, room = width - 2 * CHART_EDGE;
    if (b->title != NULL)
        y = chart_paragraph(&m, CHART_EDGE, y, room / 1.4, "ct", b->title);
    if (b->label != NULL)
        y = chart_paragraph(&m, CHART_EDGE, y, room, NULL, b->label);
    y += 12;
    for (size_t i = 0; i < b->count; i++, y += ROW)
        draw_bar(&m, b, &s, i, y);
    if (b->count == 0) {
        chart_text(&m, width / 2.0, y, "cm", "nothing to show");
        y += CHART_LINE;
    } else if (s.low < s.zero) {
        markup_add(&m, "<path class=\"ca\" d=\"M%.1f %.1fV%.1f\"/>\n", at(&s, s.zero),
                   y - ROW * (double)b->count - 3, y - ROW + BAR + 3);
    }
    y = draw_notes(&m, b, y);
    describe(b, &about);
    return chart_finish(&m, b->title, &about, width, y - CHART_LINE + CHART_EDGE + 4, b->bare, out);
}
