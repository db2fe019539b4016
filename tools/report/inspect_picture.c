/*
 * Pictures of what was found: the network as blocks, a program's loops as boxes in boxes, memory
 * over the step as a curve. One drawing, from top to bottom, that is read on a phone as well and
 * follows the reader's choice of dark or light.
 */
#include "tools/report/inspect.h"
#include "tools/report/markup.h"

#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 720,
    LINE = 18,
    GAP = 10,
    TITLE = 34,
    CURVE = 220, /* height of the curve */
    MAX_LOOPS = 400,
};

typedef struct drawing {
    markup m;
    double y; /* where the next thing goes */
} drawing;

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static const char *words(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

static void text_at(drawing *d, double x, double y, const char *class, const char *text)
{
    markup_add(&d->m, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    markup_words(&d->m, text, 90);
    markup_add(&d->m, "</text>\n");
}

static void box(drawing *d, double x, double y, double w, double h, const char *class)
{
    markup_add(&d->m,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"6\" "
               "class=\"%s\"/>\n",
               x, y, w < 0 ? 0 : w, h, class);
}

static void title(drawing *d, const char *text)
{
    text_at(d, GAP, d->y + 22, "title", text);
    d->y += TITLE;
}

/* A thin bar for a share of the whole. */
static void share_bar(drawing *d, double x, double y, double w, double share)
{
    box(d, x, y, w, 5, "rail");
    box(d, x, y, w * (share > 1 ? 1 : share), 5, "bar");
}

/* ---- the network ---- */

/* "q_proj.weight f32[128,128]   v_proj.weight …": as many lines as it takes. */
static double block_height(const json_t *block)
{
    return 34 + LINE * (double)((json_array_size(json_object_get(block, "tensors")) + 1) / 2);
}

static void draw_block(drawing *d, const json_t *block, double x, double w, double all)
{
    char line[160];
    size_t i;
    const json_t *tensor;
    double parameters = number(block, "parameters");
    box(d, x, d->y, w, block_height(block), "block");
    text_at(d, x + 10, d->y + 18, "name", words(block, "block"));
    snprintf(line, sizeof line, "%s, %.1f%%", cmd_quantity(parameters, ""),
             all > 0 ? 100 * parameters / all : 0);
    text_at(d, x + w - 150, d->y + 18, "figure", line);
    share_bar(d, x + 10, d->y + 24, w - 20, all > 0 ? parameters / all : 0);
    json_array_foreach(json_object_get(block, "tensors"), i, tensor)
    {
        snprintf(line, sizeof line, "%.60s %.60s", words(tensor, "name"), words(tensor, "shape"));
        text_at(d, x + 10 + (double)(i % 2) * (w / 2), d->y + 44 + LINE * (double)(i / 2), "small",
                line);
    }
    d->y += block_height(block) + GAP;
}

static void arrow(drawing *d)
{
    markup_add(&d->m, "<path d=\"M %d %.1f v 8 m -4 -4 l 4 4 l 4 -4\" class=\"arrow\"/>\n",
               WIDTH / 2, d->y - GAP + 1);
    d->y += 4;
}

static double layer_height(const json_t *blocks, size_t first, size_t end)
{
    double height = 28;
    for (size_t i = first; i < end; i++)
        height += block_height(json_array_get(blocks, i)) + GAP;
    return height;
}

/* The blocks of a layer stand in one box that says how often it comes. */
static size_t draw_layers(drawing *d, const json_t *blocks, size_t first, double all)
{
    size_t end = first;
    char line[64];
    double times = number(json_array_get(blocks, first), "times");
    while (end < json_array_size(blocks) && number(json_array_get(blocks, end), "times") == times)
        end++;
    box(d, GAP, d->y, WIDTH - 2 * GAP, layer_height(blocks, first, end), "layer");
    snprintf(line, sizeof line, "layer, %.0f times", times);
    text_at(d, 2 * GAP, d->y + 18, "name", line);
    d->y += 26;
    for (size_t i = first; i < end; i++)
        draw_block(d, json_array_get(blocks, i), 2 * GAP, WIDTH - 4 * GAP, all);
    d->y += 2 + GAP;
    return end;
}

static void draw_network(drawing *d, const json_t *about)
{
    const json_t *blocks = json_object_get(about, "blocks");
    double all = number(about, "parameters");
    char line[160];
    if (json_array_size(blocks) == 0)
        return;
    snprintf(line, sizeof line, "%.40s, %s parameters",
             words(json_object_get(about, "network"), "mixer"), cmd_quantity(all, ""));
    title(d, line);
    for (size_t i = 0; i < json_array_size(blocks);) {
        const json_t *block = json_array_get(blocks, i);
        if (i > 0)
            arrow(d);
        if (number(block, "times") > 1) {
            i = draw_layers(d, blocks, i, all);
        } else {
            draw_block(d, block, GAP, WIDTH - 2 * GAP, all);
            i++;
        }
    }
}

/* ---- loops ---- */

typedef struct loop_view {
    const json_t *loops;
    const char *figure; /* what shares are of: "cycles", "flops" or "operations" */
    double whole;
} loop_view;

static double loop_figure(const loop_view *v, const json_t *loop)
{
    return number(loop, v->figure);
}

static double loop_height(const loop_view *v, size_t index)
{
    double height = 48;
    for (size_t i = index + 1; i < json_array_size(v->loops) && i < MAX_LOOPS; i++)
        if (number(json_array_get(v->loops, i), "parent") == (double)index)
            height += loop_height(v, i) + GAP;
    return height;
}

static void describe_loop(const json_t *loop, char *line, size_t size)
{
    const json_t *trips = json_object_get(loop, "trip_count");
    double times =
        json_number_value(trips == NULL ? json_object_get(loop, "while_counter_below") : trips);
    const char *origin = words(loop, "origin"), *name = words(loop, "name");
    if (trips == NULL)
        snprintf(line, size, "loop on line %.0f%s", number(loop, "line"),
                 times < 0 ? "" : ", while a counter is below ");
    else
        snprintf(line, size, "%.60s, ", *origin == '\0' ? name : origin);
    size_t used = strlen(line);
    if (trips != NULL && times < 0)
        snprintf(line + used, size - used, "of unknown length");
    else if (times >= 0)
        snprintf(line + used, size - used, "%.0f%s", times, trips == NULL ? "" : " times");
}

/* Depth is bounded by the number of loops, which is bounded above. */
static void draw_loop(drawing *d, const loop_view *v, size_t index, double x, double w)
{
    const json_t *loop = json_array_get(v->loops, index);
    double height = loop_height(v, index), figure = loop_figure(v, loop);
    char line[160];
    box(d, x, d->y, w, height, number(loop, "depth") > 0 ? "block" : "layer");
    describe_loop(loop, line, sizeof line);
    text_at(d, x + 10, d->y + 18, "name", line);
    snprintf(line, sizeof line, "%s, %.1f%%", cmd_quantity(figure, v->figure),
             v->whole > 0 ? 100 * figure / v->whole : 0);
    text_at(d, x + 10, d->y + 35, "small", line);
    share_bar(d, x + 10, d->y + 40, w - 20, v->whole > 0 ? figure / v->whole : 0);
    d->y += 48;
    for (size_t i = index + 1; i < json_array_size(v->loops) && i < MAX_LOOPS; i++)
        if (number(json_array_get(v->loops, i), "parent") == (double)index) {
            draw_loop(d, v, i, x + GAP, w - 2 * GAP);
            d->y += GAP;
        }
}

static void draw_loops(drawing *d, const json_t *about)
{
    const json_t *program = json_object_get(about, "program");
    const json_t *total = json_object_get(program, "total");
    loop_view v = {.loops = json_object_get(about, "loops"), .figure = "operations"};
    char line[160];
    v.whole = number(about, "operations");
    if (program != NULL) {
        v.loops = json_object_get(program, "loops");
        v.figure = number(total, "cycles") > 0 ? "cycles" : "flops";
        v.whole = number(total, v.figure);
    }
    if (program == NULL && v.loops == NULL)
        return;
    snprintf(line, sizeof line,
             "%.60s: %s, in loops:", words(program == NULL ? about : program, "module"),
             cmd_quantity(v.whole, v.figure));
    title(d, line);
    if (json_array_size(v.loops) == 0) {
        text_at(d, 2 * GAP, d->y + 12, "small", "it has none");
        d->y += 24;
    }
    for (size_t i = 0; i < json_array_size(v.loops) && i < MAX_LOOPS; i++) {
        if (number(json_array_get(v.loops, i), "parent") >= 0)
            continue;
        draw_loop(d, &v, i, GAP, WIDTH - 2 * GAP);
        d->y += GAP;
    }
}

/* ---- memory ---- */

static void draw_memory(drawing *d, const json_t *about)
{
    const json_t *memory = json_object_get(about, "memory_over_step");
    const json_t *points = json_object_get(memory, "points");
    size_t count = json_array_size(points);
    double peak = number(memory, "peak_bytes"), arguments = number(memory, "argument_bytes");
    char line[200];
    if (count == 0 || peak <= 0)
        return;
    title(d, "memory over the step, an estimate from the schedule");
    double left = GAP, width = WIDTH - 2 * GAP, bottom = d->y + CURVE;
    box(d, left, d->y, width, CURVE, "rail");
    markup_add(&d->m, "<path class=\"area\" d=\"M %.1f %.1f", left, bottom);
    for (size_t i = 0; i < count; i++) {
        double y = bottom - CURVE * json_number_value(json_array_get(points, i)) / peak;
        markup_add(&d->m, " L %.1f %.1f L %.1f %.1f", left + width * (double)i / (double)count, y,
                   left + width * (double)(i + 1) / (double)count, y);
    }
    markup_add(&d->m, " L %.1f %.1f Z\"/>\n", left + width, bottom);
    markup_add(&d->m, "<path class=\"line\" d=\"M %.1f %.1f h %.1f\"/>\n", left,
               bottom - CURVE * arguments / peak, width);
    snprintf(line, sizeof line, "arguments %s", cmd_quantity(arguments, "B"));
    text_at(d, left + 8, bottom - CURVE * arguments / peak + 15, "small", line);
    snprintf(line, sizeof line, "at most %s, at instruction %.0f of %.0f: %.60s",
             cmd_quantity(peak, "B"), number(memory, "peak_instruction"),
             number(memory, "instructions"), words(memory, "peak_name"));
    text_at(d, left, bottom + 18, "small", line);
    d->y = bottom + 32;
}

/* ---- all of it ---- */

static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#1c2430}\n"
    ".title{font-size:16px;font-weight:600}.name{font-size:13px;font-weight:600}\n"
    ".small,.figure{fill:#4a5666}\n"
    ".layer{fill:#eef2f7;stroke:#b7c3d3}.block{fill:#fff;stroke:#b7c3d3}\n"
    ".rail{fill:#dde4ee}.bar{fill:#2f6fd0}.area{fill:#2f6fd0;fill-opacity:.75}\n"
    ".arrow,.line{fill:none;stroke:#4a5666}.line{stroke-dasharray:4 3}\n"
    "@media (prefers-color-scheme:dark){text{fill:#e6ebf2}.small,.figure{fill:#a9b4c4}\n"
    ".layer{fill:#1b222c;stroke:#3a4658}.block{fill:#232c38;stroke:#3a4658}\n"
    ".rail{fill:#313c4b}.bar{fill:#6ea3f5}.area{fill:#6ea3f5}.arrow,.line{stroke:#a9b4c4}}\n"
    "</style>\n";

pjrt_status *inspect_svg(const json_t *about, text_buffer *out)
{
    drawing d = {0};
    markup whole = {0};
    *out = (text_buffer){0};
    draw_network(&d, about);
    draw_loops(&d, about);
    draw_memory(&d, about);
    if (d.m.buffer.size > 0) {
        markup_add(&whole,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                   "width=\"100%%\" style=\"max-width:%dpx\" role=\"img\">\n",
                   WIDTH, d.y + GAP, WIDTH);
        whole.failed = whole.failed || !text_buffer_add(&whole.buffer, style, strlen(style)) ||
                       !text_buffer_add(&whole.buffer, d.m.buffer.text, d.m.buffer.size);
        markup_add(&whole, "</svg>\n");
    }
    bool failed = d.m.failed || whole.failed;
    free(d.m.buffer.text);
    if (failed) {
        free(whole.buffer.text);
        return PJRT_NO_MEMORY("ttt");
    }
    *out = whole.buffer;
    return NULL;
}
