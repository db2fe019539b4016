/* What charts are drawn with: words, numbers, colours. */
#include "tools/report/chart_draw.h"

#include <math.h>
#include <string.h>

/*
 * Colours after Okabe and Ito, which are told apart with any kind of colour vision, darker on white
 * and lighter on black; shapes of markers tell lines apart as well. Text is larger where the whole
 * picture is small.
 */
static const char style[] =
    "<style>\n"
    ".chart{--ink:#1c2430;--soft:#55606f;--grid:#e3e8ef;--axis:#9aa6b5}\n"
    ".chart text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--soft)}\n"
    ".chart .ct{font-size:15px;font-weight:600;fill:var(--ink)}\n"
    ".chart .ce{text-anchor:end}.chart .cm{text-anchor:middle}.chart .cv{fill:var(--ink)}\n"
    ".chart .cl{fill:var(--k);font-weight:500}\n"
    ".cg{stroke:var(--grid)}.ca{stroke:var(--axis)}.cg,.ca,.cx,.cn,.cf,.cr{fill:none}\n"
    ".cx{stroke:var(--axis);stroke-dasharray:2 3}\n"
    ".cn,.cf{stroke:var(--k);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n"
    ".cf{stroke-width:1;opacity:.4}.cd{stroke-dasharray:6 4}\n"
    ".cb{fill:var(--k);opacity:.18}.cr{stroke:var(--k);stroke-width:1.3}\n"
    ".cp{fill:var(--k);stroke:var(--k)}.co{stroke:var(--k);stroke-width:7;stroke-linecap:round}\n"
    ".cs{fill:var(--k)}.ck,.cw{fill:none;stroke:var(--ink);stroke-width:2}.cw{stroke-width:1}\n"
    ".k1{--k:#0b66b8}.k2{--k:#c44e00}.k3{--k:#00805c}.k4{--k:#a3378f}\n"
    ".k5{--k:#8a6a00}.k6{--k:#1b8fb8}.k7{--k:#5d6875}.k8{--k:#8c4a2f}\n"
    "@media (max-width:440px){.chart text{font-size:15px}.chart .ct{font-size:17px}}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".chart{--ink:#e6ebf2;--soft:#a9b4c4;--grid:#2a3340;--axis:#68768a}\n"
    ".k1{--k:#62a8f5}.k2{--k:#ff9350}.k3{--k:#3ecb98}.k4{--k:#ea8fd6}\n"
    ".k5{--k:#e5c04a}.k6{--k:#7fdcf5}.k7{--k:#b4bfcc}.k8{--k:#d99b7d}}\n"
    "</style>\n";

const char *chart_style(void)
{
    return style;
}

const char *chart_colour_class(int colour)
{
    static const char *const names[CHART_COLOURS] = {"k1", "k2", "k3", "k4",
                                                     "k5", "k6", "k7", "k8"};
    return names[(colour < 1 ? 0 : colour - 1) % CHART_COLOURS];
}

double chart_text_width(const char *words)
{
    double width = 0;
    for (; *words != '\0'; words++) {
        unsigned char c = (unsigned char)*words;
        if ((c & 0xc0) == 0x80) /* inside a character */
            continue;
        width += strchr("iljtfr.,:;|!'()[] ", c) != NULL ? 4.8 : strchr("mwMW@%", c) ? 12.5 : 8.3;
    }
    return width;
}

void chart_coordinate(markup *m, double value)
{
    long tenths = lround(value * 10);
    long whole = labs(tenths) / 10, part = labs(tenths) % 10;
    const char *sign = tenths < 0 ? "-" : "";
    if (part == 0)
        markup_add(m, "%s%ld", sign, whole);
    else if (whole == 0)
        markup_add(m, "%s.%ld", sign, part);
    else
        markup_add(m, "%s%ld.%ld", sign, whole, part);
}

void chart_text(markup *m, double x, double y, const char *class, const char *words)
{
    markup_add(m, "<text x=\"");
    chart_coordinate(m, x);
    markup_add(m, "\" y=\"");
    chart_coordinate(m, y);
    if (class != NULL)
        markup_add(m, "\" class=\"%s", class);
    markup_add(m, "\">");
    markup_words(m, words, 4 * CHART_MOST_NAME);
    markup_add(m, "</text>\n");
}

/* How many bytes of `words` go on a line; a word that is too long is cut between characters. */
static size_t line_length(const char *words, double width)
{
    size_t blank = 0, i = 0;
    char one[8];
    double used = 0;
    while (words[i] != '\0') {
        size_t size = 1;
        while ((words[i + size] & 0xc0) == 0x80 && size < sizeof one - 1)
            size++;
        memcpy(one, words + i, size);
        one[size] = '\0';
        used += chart_text_width(one);
        if (words[i] == ' ')
            blank = i;
        if (used > width && i > 0)
            return blank > 0 ? blank : i;
        i += size;
    }
    return i;
}

double chart_paragraph(markup *m, double x, double y, double width, const char *class,
                       const char *words)
{
    enum { MOST = 4, ROOM = 4 * 4 * CHART_MOST_NAME };
    char line[ROOM];
    for (int n = 0; n < MOST && *words != '\0'; n++) {
        size_t length = line_length(words, width);
        length = length < sizeof line ? length : sizeof line - 1;
        memcpy(line, words, length);
        line[length] = '\0';
        chart_text(m, x, y, class, line);
        y += CHART_LINE;
        words += length;
        words += *words == ' ';
    }
    return y;
}

static void add_all(markup *m, const markup *other)
{
    m->failed = m->failed || other->failed ||
                !text_buffer_add(&m->buffer, other->buffer.text, other->buffer.size);
}

pjrt_status *chart_finish(markup *inside, const char *title, markup *about, int width,
                          double height, bool bare, text_buffer *out)
{
    markup whole = {0};
    markup_add(&whole, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" ", width,
               height);
    if (bare)
        markup_add(&whole, "width=\"100%%\" style=\"max-width:%.0fpx\"", 1.5 * width);
    else /* with a size of its own, for pages that show the file as it is */
        markup_add(&whole, "width=\"%.0f\" height=\"%.0f\" style=\"max-width:100%%;height:auto\"",
                   1.5 * width, 1.5 * round(height));
    markup_add(&whole, " class=\"chart\" role=\"img\">\n<title>");
    markup_words(&whole, title == NULL ? "chart" : title, 4 * CHART_MOST_NAME);
    markup_add(&whole, "</title>\n<desc>");
    add_all(&whole, about);
    markup_add(&whole, "</desc>\n");
    if (!bare)
        whole.failed = whole.failed || !text_buffer_add(&whole.buffer, style, strlen(style));
    add_all(&whole, inside);
    markup_add(&whole, "</svg>\n");
    free(inside->buffer.text);
    free(about->buffer.text);
    if (whole.failed) {
        free(whole.buffer.text);
        *out = (text_buffer){0};
        return PJRT_NO_MEMORY("chart");
    }
    *out = whole.buffer;
    return NULL;
}
