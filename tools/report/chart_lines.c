/* Lines over axes. */
#include "tools/report/chart_draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 480,
    HEIGHT = 300,
    MOST_POINTS = 800, /* of all lines together */
    LEAST_POINTS = 60, /* of one line */
    FEW = 24,          /* points that get a marker each */
    MOST_DIRECT = 8,   /* lines that are named at their ends */
    DIRECT_NAME = 130, /* as wide as such a name may be */
    FAR = 100,         /* lengths of an axis beyond which it does not matter how far */
    KEY = 30,          /* a line's sample in the legend */
};

typedef struct axis {
    double low, high; /* of the values */
    double from, to;  /* of the drawing */
    bool logarithmic, twos, any;
    double ticks[CHART_MOST_TICKS];
    size_t n_ticks;
} axis;

/* A place in the drawing; for thinned ones with the ends of all that it stands for. */
typedef struct place {
    double x, y, low, high;
    bool gap; /* nothing leads here from the place before */
} place;

typedef struct line {
    const chart_series *of;
    size_t index; /* among the series: it decides on colour and marker */
    place *places;
    size_t count;
    double end; /* where its name goes */
} line;

typedef struct drawing {
    const chart *c;
    markup m;
    axis x, y;
    line *lines;
    bool direct; /* names stand at the ends of lines */
    double width, bottom;
} drawing;

static bool named(const chart_series *s)
{
    return s->name != NULL && s->name[0] != '\0';
}

static const char *colour_of(const line *l)
{
    return chart_colour_class(l->of->colour > 0 ? l->of->colour : (int)l->index + 1);
}

/* ---- axes ---- */

static bool shows(const axis *a, double value)
{
    return isfinite(value) && (!a->logarithmic || value > 0);
}

static void include(axis *a, double value)
{
    int power;
    if (!shows(a, value))
        return;
    a->low = !a->any || value < a->low ? value : a->low;
    a->high = !a->any || value > a->high ? value : a->high;
    a->twos = (!a->any || a->twos) && a->logarithmic && value >= 1 && frexp(value, &power) == 0.5;
    a->any = true;
}

static double on_scale(const axis *a, double value)
{
    return a->logarithmic ? log(value) : value;
}

static double at(const axis *a, double value)
{
    double low = on_scale(a, a->low), high = on_scale(a, a->high);
    double share = (on_scale(a, value) - low) / (high - low);
    return a->from + (a->to - a->from) * fmin(fmax(share, -FAR), FAR);
}

/* A little room at both ends, which does not go below zero where no value does. */
static void pad(axis *a, double share)
{
    bool positive = a->low >= 0;
    if (a->logarithmic) {
        double room = a->high > a->low ? pow(a->high / a->low, share) : 2;
        a->low /= room;
        a->high *= room;
        return;
    }
    double room = share * (a->high - a->low);
    if (!(a->high > a->low))
        room = a->low == 0 ? 1 : 0.1 * fabs(a->low);
    a->low = positive && a->low < room ? 0 : a->low - room;
    a->high += room;
}

static void finish_axis(axis *a, double share, double low, double high)
{
    if (low != 0 || high != 0) {
        a->any = true;
        a->low = low;
        a->high = high;
        share = 0;
    }
    if (!a->any || !(a->low <= a->high) || !isfinite(a->high - a->low) ||
        (a->logarithmic && !(a->low > 0))) {
        a->low = a->logarithmic ? 1 : 0;
        a->high = a->logarithmic ? 10 : 1;
        a->any = false;
    }
    if (share > 0 || !(a->high > a->low))
        pad(a, share);
}

static void measure(drawing *d)
{
    const chart *c = d->c;
    d->x = (axis){.logarithmic = c->log_x};
    d->y = (axis){.logarithmic = c->log_y};
    for (size_t s = 0; s < c->n_series; s++) {
        const chart_series *of = &c->series[s];
        for (size_t i = 0; i < of->count; i++) {
            if (!shows(&d->x, of->x[i]) || !shows(&d->y, of->y[i]))
                continue;
            double spread = of->spread != NULL && isfinite(of->spread[i]) ? of->spread[i] : 0;
            include(&d->x, of->x[i]);
            include(&d->y, of->y[i]);
            include(&d->y, of->y[i] - spread);
            include(&d->y, of->y[i] + spread);
        }
    }
    d->x.twos = c->log_x && (d->x.twos || c->twos);
    d->y.twos = false;
    finish_axis(&d->x, c->log_x ? 0.02 : 0, c->x_low, c->x_high);
    finish_axis(&d->y, 0.06, c->y_low, c->y_high);
}

static void tick_label(const axis *a, size_t i, char text[CHART_NUMBER])
{
    double largest = fmax(fabs(a->ticks[0]), fabs(a->ticks[a->n_ticks - 1]));
    double step = a->n_ticks > 1 ? a->ticks[1] - a->ticks[0] : 0;
    bool even = a->n_ticks > 2 && fabs(a->ticks[2] - a->ticks[1] - step) < 1e-6 * fabs(step);
    if (a->n_ticks == 2)
        even = !a->logarithmic;
    if (!even) /* each for itself, but not 0.01 beside 10⁻⁵ */
        largest = a->twos || (a->ticks[0] >= 0.9e-3 && largest < 1e7) ? 0 : CHART_POWERS;
    chart_number(a->ticks[i], even ? step : 0, largest, a->twos, text);
}

static double label_width(const axis *a)
{
    char text[CHART_NUMBER];
    double widest = 0;
    for (size_t i = 0; i < a->n_ticks; i++) {
        tick_label(a, i, text);
        widest = fmax(widest, chart_text_width(text));
    }
    return widest;
}

static void set_ticks(axis *a, size_t most)
{
    a->n_ticks = chart_ticks(a->low, a->high, a->logarithmic, a->twos, most, a->ticks);
}

/* As many as fit beside each other. */
static void set_x_ticks(axis *a, bool whole)
{
    double room = a->to - a->from;
    size_t first = whole && a->high - a->low < 8 ? (size_t)(a->high - a->low) + 1 : 9;
    for (size_t most = first < 2 ? 2 : first; most >= 2; most--) {
        set_ticks(a, most);
        if ((label_width(a) + 14) * (double)a->n_ticks <= room)
            return;
    }
}

static void draw_axes(drawing *d)
{
    char text[CHART_NUMBER];
    markup_add(&d->m, "<path class=\"cg\" d=\"");
    for (size_t i = 0; i < d->y.n_ticks; i++) {
        markup_add(&d->m, "M");
        chart_coordinate(&d->m, d->x.from);
        markup_add(&d->m, " ");
        chart_coordinate(&d->m, at(&d->y, d->y.ticks[i]));
        markup_add(&d->m, "H");
        chart_coordinate(&d->m, d->x.to);
    }
    markup_add(&d->m, "\"/>\n<path class=\"ca\" d=\"M%.1f %.1fH%.1f", d->x.from, d->y.from,
               d->x.to);
    for (size_t i = 0; i < d->x.n_ticks; i++)
        markup_add(&d->m, "M%.1f %.1fv4", at(&d->x, d->x.ticks[i]), d->y.from);
    markup_add(&d->m, "\"/>\n");
    for (size_t i = 0; i < d->y.n_ticks; i++) {
        tick_label(&d->y, i, text);
        chart_text(&d->m, d->x.from - 6, at(&d->y, d->y.ticks[i]) + 4.5, "ce", text);
    }
    for (size_t i = 0; i < d->x.n_ticks; i++) {
        tick_label(&d->x, i, text);
        chart_text(&d->m, at(&d->x, d->x.ticks[i]), d->y.from + 18, "cm", text);
    }
}

/* ---- points ---- */

static bool place_of(const drawing *d, const chart_series *s, size_t i, place *out)
{
    if (!d->x.any || !d->y.any || !shows(&d->x, s->x[i]) || !shows(&d->y, s->y[i]))
        return false;
    double spread = s->spread != NULL && s->spread[i] > 0 ? s->spread[i] : 0;
    double low = s->y[i] - spread;
    *out = (place){.x = at(&d->x, s->x[i]), .y = at(&d->y, s->y[i])};
    out->high = isfinite(spread) ? at(&d->y, s->y[i] + spread) : out->y;
    out->low = !isfinite(spread) ? out->y : shows(&d->y, low) ? at(&d->y, low) : d->y.from;
    return true;
}

/* The places of a group that share a column: its first is in `group`, the lowest and the highest go
 * into the list, in their order. */
typedef struct column {
    place low, high; /* by y of the drawing: `low` is further down */
    bool low_first, any;
    double x;
} column;

static void put_column(line *l, const column *group, bool gap)
{
    place first = group->low_first ? group->low : group->high;
    place second = group->low_first ? group->high : group->low;
    first.gap = gap;
    second.gap = false;
    first.low = second.low = fmax(first.low, second.low);
    first.high = second.high = fmin(first.high, second.high);
    l->places[l->count++] = first;
    if (first.x != second.x || first.y != second.y)
        l->places[l->count++] = second;
}

/* All places of a series, or two for each column of `step` where they are more than `most`. */
static void thin_out(const drawing *d, line *l, size_t most)
{
    const chart_series *s = l->of;
    double step = s->count > most ? 2 * (d->x.to - d->x.from) / (double)most : 0;
    column group = {0};
    bool gap = true, next_gap = false;
    place p;
    for (size_t i = 0; i < s->count; i++) {
        if (!place_of(d, s, i, &p)) {
            next_gap = true;
            continue;
        }
        bool same = group.any && step > 0 && floor(p.x / step) == group.x;
        if (group.any && !same) {
            put_column(l, &group, gap);
            gap = next_gap;
            group.any = false;
        }
        if (!group.any)
            group =
                (column){.low = p, .high = p, .any = true, .x = step > 0 ? floor(p.x / step) : 0};
        if (p.y > group.low.y) {
            group.low = p;
            group.low_first = false;
        }
        if (p.y < group.high.y) {
            group.high = p;
            group.low_first = true;
        }
        group.low.low = fmax(group.low.low, p.low);
        group.high.high = fmin(group.high.high, p.high);
        next_gap = false;
    }
    if (group.any)
        put_column(l, &group, gap);
}

static bool make_lines(drawing *d)
{
    size_t share = d->c->n_series == 0 ? 0 : MOST_POINTS / d->c->n_series;
    size_t most = share < LEAST_POINTS ? LEAST_POINTS : share;
    for (size_t s = 0; s < d->c->n_series; s++) {
        line *l = &d->lines[s];
        size_t count = d->c->series[s].count;
        l->of = &d->c->series[s];
        l->index = s;
        l->places = malloc((count < 1 ? 1 : count) * sizeof *l->places);
        if (l->places == NULL)
            return false;
        thin_out(d, l, most);
    }
    return true;
}

/* ---- lines ---- */

/* From where the pen is, which rounding has moved: the differences are of what was written. */
static void move_pen(markup *m, double *x, double *y, double to_x, double to_y)
{
    double next_x = round(to_x * 10) / 10, next_y = round(to_y * 10) / 10;
    chart_coordinate(m, next_x - *x);
    if (next_y - *y >= 0.05 || fabs(next_y - *y) < 0.05)
        markup_add(m, " ");
    chart_coordinate(m, next_y - *y);
    *x = next_x;
    *y = next_y;
}

static void draw_line(drawing *d, const line *l)
{
    double x = 0, y = 0;
    const char *last = "";
    markup_add(&d->m, "<path class=\"%s%s %s\" d=\"", l->of->faint ? "cf" : "cn",
               l->of->dashed ? " cd" : "", colour_of(l));
    for (size_t i = 0; i < l->count; i++) {
        const char *next = l->places[i].gap ? (i == 0 ? "M" : "m") : "l";
        /* A point between two gaps is a dot: the line's end is round. */
        bool alone = l->places[i].gap && (i + 1 == l->count || l->places[i + 1].gap);
        markup_add(&d->m, "%s", strcmp(next, last) == 0 && *next == 'l' ? " " : next);
        move_pen(&d->m, &x, &y, l->places[i].x, l->places[i].y);
        if (alone)
            markup_add(&d->m, "h0");
        last = next;
    }
    markup_add(&d->m, "\"/>\n");
}

static bool has_markers(const line *l)
{
    return !l->of->faint && !l->of->plain && (l->of->points || l->count <= FEW);
}

static void draw_markers(drawing *d, const line *l)
{
    static const char *const shapes[] = {"h0", "m-3.5-3.5h7v7h-7z", "m0-4.6l4.4 7.6h-8.8z",
                                         "m0-4.8l4.6 4.8-4.6 4.8-4.6-4.8z"};
    size_t shape = l->index % (sizeof shapes / sizeof *shapes);
    if (!has_markers(l) || l->count == 0)
        return;
    markup_add(&d->m, "<path class=\"%s %s\" d=\"", shape == 0 ? "co" : "cp", colour_of(l));
    for (size_t i = 0; i < l->count; i++)
        markup_add(&d->m, "M%.1f %.1f%s", l->places[i].x, l->places[i].y, shapes[shape]);
    markup_add(&d->m, "\"/>\n");
}

static void draw_bars(drawing *d, const line *l)
{
    markup_add(&d->m, "<path class=\"cr %s\" d=\"", colour_of(l));
    for (size_t i = 0; i < l->count; i++)
        markup_add(&d->m, "M%.1f %.1fV%.1fm-3.5 0h7M%.1f %.1fh7", l->places[i].x, l->places[i].low,
                   l->places[i].high, l->places[i].x - 3.5, l->places[i].low);
    markup_add(&d->m, "\"/>\n");
}

/* One piece for each stretch without a gap: along the upper ends, and back along the lower ones. */
static void draw_band(drawing *d, const line *l)
{
    markup_add(&d->m, "<path class=\"cb %s\" d=\"", colour_of(l));
    for (size_t first = 0, end; first < l->count; first = end) {
        double x = 0, y = 0;
        for (end = first + 1; end < l->count && !l->places[end].gap;)
            end++;
        for (size_t i = first; i < end; i++) {
            markup_add(&d->m, "%s", i == first ? "M" : i == first + 1 ? "l" : " ");
            move_pen(&d->m, &x, &y, l->places[i].x, l->places[i].high);
        }
        for (size_t i = end; i-- > first;) {
            markup_add(&d->m, "%s", i + 1 == end ? "l" : " ");
            move_pen(&d->m, &x, &y, l->places[i].x, l->places[i].low);
        }
        markup_add(&d->m, "z");
    }
    markup_add(&d->m, "\"/>\n");
}

static void draw_lines(drawing *d)
{
    /* A picture in the picture, for what goes over the ends of the axes is cut off there; markers
     * on the ends stay whole by a few units more. */
    double left = d->x.from - 5, top = d->y.to - 5;
    double width = d->x.to - d->x.from + 10, height = d->y.from - d->y.to + 10;
    markup_add(&d->m,
               "<svg x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" viewBox=\"%.1f %.1f %.1f "
               "%.1f\">\n",
               left, top, width, height, left, top, width, height);
    for (size_t i = 0; i < d->c->n_series; i++)
        if (d->lines[i].of->spread != NULL && !has_markers(&d->lines[i]))
            draw_band(d, &d->lines[i]);
    for (int faint = 1; faint >= 0; faint--)
        for (size_t i = 0; i < d->c->n_series; i++)
            if (d->lines[i].of->faint == (faint == 1) && !d->lines[i].of->points)
                draw_line(d, &d->lines[i]);
    for (size_t i = 0; i < d->c->n_series; i++) {
        if (d->lines[i].of->spread != NULL && has_markers(&d->lines[i]))
            draw_bars(d, &d->lines[i]);
        draw_markers(d, &d->lines[i]);
    }
    markup_add(&d->m, "</svg>\n");
}

static void draw_marks(drawing *d)
{
    const double *marks = d->c->marks;
    size_t shown = 0;
    markup_add(&d->m, "<path class=\"cx\" d=\"");
    for (size_t i = 0; i < d->c->n_marks && shown < 100; i++)
        if (shows(&d->x, marks[i]) && marks[i] >= d->x.low && marks[i] <= d->x.high) {
            markup_add(&d->m, "M%.1f %.1fV%.1f", at(&d->x, marks[i]), d->y.from, d->y.to);
            shown++;
        }
    markup_add(&d->m, "\"/>\n");
}

/* ---- names ---- */

/* The last place of a line decides where its name goes; NaN: it has none. */
static double last_y(const line *l)
{
    return l->count == 0 ? NAN : l->places[l->count - 1].y;
}

/* Names go to the ends of lines where these are near the right edge, short, and not too many. */
static bool names_fit(const drawing *d, double *widest)
{
    size_t names = 0;
    *widest = 0;
    for (size_t s = 0; s < d->c->n_series; s++) {
        const chart_series *of = &d->c->series[s];
        size_t last = of->count;
        if (!named(of))
            continue;
        while (last > 0 && (!shows(&d->x, of->x[last - 1]) || !shows(&d->y, of->y[last - 1])))
            last--;
        double low = on_scale(&d->x, d->x.low), high = on_scale(&d->x, d->x.high);
        if (last == 0 || on_scale(&d->x, of->x[last - 1]) < high - 0.12 * (high - low))
            return false;
        *widest = fmax(*widest, 1.12 * chart_text_width(of->name));
        names++;
    }
    return names >= 1 && names <= MOST_DIRECT && *widest <= DIRECT_NAME && *widest < 0.3 * d->width;
}

/* Pushes names apart until none lies on another: down from the top, then up from the bottom. */
static void part_names(drawing *d, line **order, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j > 0 && order[j]->end < order[j - 1]->end; j--) {
            line *other = order[j];
            order[j] = order[j - 1];
            order[j - 1] = other;
        }
    for (size_t i = 1; i < count; i++)
        order[i]->end = fmax(order[i]->end, order[i - 1]->end + CHART_LINE - 1);
    double most = d->y.from;
    for (size_t i = count; i-- > 0;) {
        order[i]->end = fmin(order[i]->end, most);
        most = order[i]->end - CHART_LINE + 1;
    }
}

static void draw_direct_names(drawing *d)
{
    line *order[MOST_DIRECT];
    size_t count = 0;
    char class[16];
    for (size_t i = 0; i < d->c->n_series; i++) {
        line *l = &d->lines[i];
        if (!named(l->of) || isnan(last_y(l)))
            continue;
        l->end = fmin(fmax(last_y(l), d->y.to), d->y.from);
        order[count++] = l;
    }
    part_names(d, order, count);
    for (size_t i = 0; i < count; i++) {
        snprintf(class, sizeof class, "cl %s", colour_of(order[i]));
        chart_text(&d->m, d->x.to + 9, order[i]->end + 4.5, class, order[i]->of->name);
    }
}

/* A sample of the line, and its name; below each other or side by side, as they fit. */
static void draw_key(drawing *d, const line *l, const char *name, double *x)
{
    double key = l == NULL ? KEY / 2 : KEY, wide = key + chart_text_width(name) + 16;
    if (*x > CHART_EDGE && *x + wide > d->width) {
        *x = CHART_EDGE;
        d->bottom += CHART_LINE + 2;
    }
    if (l == NULL) {
        markup_add(&d->m, "<path class=\"cx\" d=\"M%.1f %.1fv14\"/>\n", *x + 5, d->bottom - 11);
    } else {
        place ends[2] = {{.x = *x, .y = d->bottom - 4, .gap = true},
                         {.x = *x + 22, .y = d->bottom - 4}};
        line sample = {.of = l->of, .index = l->index, .places = ends, .count = 2};
        if (!l->of->points)
            draw_line(d, &sample);
        ends[0].x += 11;
        sample.count = 1;
        if (has_markers(l))
            draw_markers(d, &sample);
    }
    chart_text(&d->m, *x + key, d->bottom, NULL, name);
    *x += wide;
}

static void draw_legend(drawing *d, bool lines)
{
    double x = CHART_EDGE;
    bool marks = d->c->n_marks > 0 && d->c->marks_name != NULL;
    bool any = marks;
    d->bottom += CHART_LINE + 4;
    for (size_t i = 0; i < d->c->n_series; i++)
        if (lines && named(d->lines[i].of)) {
            draw_key(d, &d->lines[i], d->lines[i].of->name, &x);
            any = true;
        }
    if (marks)
        draw_key(d, NULL, d->c->marks_name, &x);
    if (!any)
        d->bottom -= CHART_LINE + 4;
}

/* ---- all of it ---- */

/* "loss: 5.5 at 0 to 2.4 at 200." for each line. */
static void describe(const chart *c, markup *about)
{
    char text[4][CHART_NUMBER];
    if (c->about != NULL) {
        markup_words(about, c->about, 2000);
        return;
    }
    markup_words(about, c->y_label == NULL ? "Values" : c->y_label, CHART_MOST_NAME);
    markup_add(about, " over ");
    markup_words(about, c->x_label == NULL ? "x" : c->x_label, CHART_MOST_NAME);
    markup_add(about, ".");
    for (size_t s = 0; s < c->n_series; s++) {
        const chart_series *of = &c->series[s];
        if (of->count == 0 || !named(of))
            continue;
        chart_number(of->y[0], 0, 0, false, text[0]);
        chart_number(of->x[0], 0, 0, false, text[1]);
        chart_number(of->y[of->count - 1], 0, 0, false, text[2]);
        chart_number(of->x[of->count - 1], 0, 0, false, text[3]);
        markup_add(about, " ");
        markup_words(about, of->name, CHART_MOST_NAME);
        markup_add(about, ": %s at %s to %s at %s.", text[0], text[1], text[2], text[3]);
    }
}

/* Title and names around the axes; what is left is for the lines. */
static void lay_out(drawing *d)
{
    const chart *c = d->c;
    double top = CHART_EDGE + 14, widest, height = c->height > 0 ? c->height : HEIGHT;
    if (c->title != NULL)
        top = chart_paragraph(&d->m, CHART_EDGE, top, (d->width - 2 * CHART_EDGE) / 1.4, "ct",
                              c->title);
    if (c->y_label != NULL)
        top = chart_paragraph(&d->m, CHART_EDGE, top, d->width - 2 * CHART_EDGE, NULL, c->y_label);
    d->y.to = top - (c->y_label != NULL ? 4 : 0);
    d->y.from = height - CHART_EDGE - CHART_LINE - (c->x_label == NULL ? 0 : CHART_LINE) - 4;
    if (d->y.from < d->y.to + 60)
        d->y.from = d->y.to + 60;
    set_ticks(&d->y, (size_t)((d->y.from - d->y.to) / 36) + 2);
    d->direct = names_fit(d, &widest);
    d->x.from = CHART_EDGE + 1.1 * label_width(&d->y) + 6;
    d->x.to = d->width - CHART_EDGE - (d->direct ? widest + 9 : 10);
    set_x_ticks(&d->x, c->whole_x);
}

static bool draw_all(drawing *d)
{
    const chart *c = d->c;
    measure(d);
    lay_out(d);
    if (!make_lines(d))
        return false;
    draw_axes(d);
    if (c->n_marks > 0)
        draw_marks(d);
    draw_lines(d);
    if (!d->x.any || !d->y.any)
        chart_text(&d->m, (d->x.from + d->x.to) / 2, (d->y.from + d->y.to) / 2, "cm",
                   "nothing to show");
    d->bottom = d->y.from + CHART_LINE;
    if (c->x_label != NULL) {
        d->bottom += CHART_LINE;
        chart_text(&d->m, (d->x.from + d->x.to) / 2, d->bottom, "cm", c->x_label);
    }
    if (d->direct)
        draw_direct_names(d);
    draw_legend(d, !d->direct);
    return true;
}

pjrt_status *chart_lines(const chart *c, text_buffer *out)
{
    int width = c->width > 0 ? c->width : WIDTH;
    drawing d = {.c = c, .width = width};
    markup about = {0};
    *out = (text_buffer){0};
    d.lines = calloc(c->n_series + 1, sizeof *d.lines);
    if (d.lines == NULL)
        return PJRT_NO_MEMORY("chart");
    if (!draw_all(&d))
        d.m.failed = true;
    describe(c, &about);
    for (size_t i = 0; i < c->n_series; i++)
        free(d.lines[i].places);
    free(d.lines);
    return chart_finish(&d.m, c->title, &about, width, d.bottom + CHART_EDGE, c->bare, out);
}
