/* How far experiments are, and what came out of them as files. */
#include "tools/reproduce/reproduce.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- progress ---- */

void reproduce_begin(reproduce *r, const char *experiment, int all)
{
    r->experiment = experiment;
    r->doing = "";
    r->done = r->fresh = 0;
    r->all = all;
    r->begun = cmd_seconds();
}

/* What was found took no time, and tells nothing of what is left. */
static double time_left(const reproduce *r, double part)
{
    double fresh = r->fresh + part, left = r->all - r->done - part;
    return (cmd_seconds() - r->begun) / fresh * left;
}

void reproduce_show(reproduce *r, double part, const char *words)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1] = {0};
    double share = r->all > 0 ? (r->done + part) / r->all : 1;
    if (r->common->json || !progress_due(&r->line))
        return;
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)(share * WIDTH));
    progress_show(&r->line, "[%s] %s %d/%d  %s  %s  %s left", bar, r->experiment, r->done + 1,
                  r->all, r->doing, words, progress_time(time_left(r, part)));
}

void reproduce_say(reproduce *r, const char *format, ...)
{
    va_list args;
    if (r->common->json)
        return;
    progress_end(&r->line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}

/* ---- files ---- */

/* OUT/EXPERIMENT.ENDING, by another name until it is whole. */
static pjrt_status *write_file(const reproduce *r, const char *name, const char *ending,
                               const text_buffer *text)
{
    char path[PATH_MAX], part[PATH_MAX + 8];
    int size = snprintf(path, sizeof path, "%s/%s%s", r->out, name, ending);
    if (size >= (int)sizeof path)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path of --out is too long");
    snprintf(part, sizeof part, "%s.part", path);
    PJRT_TRY(cmd_write_file(part, text->text == NULL ? "" : text->text, text->size));
    if (rename(part, path) != 0)
        return PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", path, strerror(errno));
    return NULL;
}

pjrt_status *reproduce_put(const reproduce *r, const char *name, const char *ending, markup *m)
{
    pjrt_status *st = m->failed ? PJRT_NO_MEMORY("ttt") : write_file(r, name, ending, &m->buffer);
    free(m->buffer.text);
    return st;
}

/* A value as a cell; of CSV, words are quoted where it needs that. */
static void add_cell(markup *m, const json_t *value, const char *real, bool csv)
{
    const char *text = json_string_value(value);
    if (json_is_integer(value))
        markup_add(m, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        markup_add(m, real, json_real_value(value));
    else if (csv && text != NULL && strpbrk(text, ",\"\n") != NULL)
        markup_add(m, "\"%s\"", text);
    else if (text != NULL)
        markup_add(m, "%s", text);
}

static pjrt_status *write_csv(const reproduce *r, const json_t *rows)
{
    markup m = {0};
    size_t i;
    const json_t *row;
    const char *key, *comma = "";
    json_t *value;
    json_object_foreach(json_array_get(rows, 0), key, value)
    {
        markup_add(&m, "%s%s", comma, key);
        comma = ",";
    }
    markup_add(&m, "\n");
    json_array_foreach(rows, i, row)
    {
        comma = "";
        json_object_foreach((json_t *)row, key, value)
        {
            markup_add(&m, "%s", comma);
            add_cell(&m, value, "%.9g", true);
            comma = ",";
        }
        markup_add(&m, "\n");
    }
    return reproduce_put(r, r->experiment, ".csv", &m);
}

/* What was run, so that it can be run again. */
static json_t *conditions(const reproduce *r)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s}", "experiment", r->experiment, "scale",
                     r->scale.name, "preset", r->scale.preset, "seeds", r->options->seeds,
                     "version", TTT_VERSION, "plugin", r->common->plugin, "dtype",
                     hlo_type_name(r->options->dtype));
}

static pjrt_status *write_json(const reproduce *r, const reproduce_report *report)
{
    json_t *all = conditions(r);
    const text_buffer *words = &report->words.buffer;
    json_object_set_new(all, "title", json_string(report->title));
    json_object_set(all, "rows", report->rows);
    json_object_set_new(all, "text", json_string(words->text == NULL ? "" : words->text));
    char *text = json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(all);
    if (text == NULL)
        return PJRT_NO_MEMORY("ttt");
    pjrt_status *st =
        write_file(r, r->experiment, ".json", &(text_buffer){.text = text, .size = strlen(text)});
    free(text);
    return st;
}

/* ---- the page ---- */

/* The next "key:heading" of a list with commas between; false at its end. */
static bool next_column(const char **list, char key[32], char heading[48])
{
    size_t size = strcspn(*list, ","), colon = strcspn(*list, ":");
    if (size == 0)
        return false;
    snprintf(key, 32, "%.*s", (int)colon, *list);
    snprintf(heading, 48, "%.*s", (int)(size - colon - 1), *list + colon + 1);
    *list += size + ((*list)[size] == ',');
    return true;
}

static void add_table(markup *m, const reproduce_report *report)
{
    char key[32], heading[48];
    size_t i;
    const json_t *row;
    const char *list = report->columns;
    while (next_column(&list, key, heading))
        markup_add(m, "| %s ", heading);
    markup_add(m, "|\n");
    list = report->columns;
    for (bool first = true; next_column(&list, key, heading); first = false)
        markup_add(m, first ? "|---" : "|--:");
    markup_add(m, "|\n");
    json_array_foreach(report->rows, i, row)
    {
        list = report->columns;
        while (next_column(&list, key, heading)) {
            markup_add(m, "| ");
            add_cell(m, json_object_get(row, key), "%.4g", false);
            markup_add(m, " ");
        }
        markup_add(m, "|\n");
    }
}

static pjrt_status *write_page(const reproduce *r, const reproduce_report *report)
{
    markup m = {0};
    markup_add(&m, "## %s\n\n", report->title);
    for (int i = 0; i < report->n_pictures; i++)
        markup_add(&m, "![%s](%s%s.svg)\n\n", report->pictures[i].about, r->experiment,
                   report->pictures[i].suffix);
    if (report->words.buffer.text != NULL)
        markup_add(&m, "%s\n", report->words.buffer.text);
    add_table(&m, report);
    m.failed = m.failed || report->words.failed;
    return reproduce_put(r, r->experiment, ".md", &m);
}

pjrt_status *reproduce_write(reproduce *r, reproduce_report *report)
{
    char ending[32];
    for (int i = 0; i < report->n_pictures; i++) {
        snprintf(ending, sizeof ending, "%s.svg", report->pictures[i].suffix);
        PJRT_TRY(write_file(r, r->experiment, ending, &report->pictures[i].svg));
    }
    PJRT_TRY(write_csv(r, report->rows));
    PJRT_TRY(write_json(r, report));
    return write_page(r, report);
}

void reproduce_report_free(reproduce_report *report)
{
    for (int i = 0; i < report->n_pictures; i++)
        free(report->pictures[i].svg.text);
    free(report->words.buffer.text);
    json_decref(report->rows);
    *report = (reproduce_report){0};
}
