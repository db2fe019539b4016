/* What was found, as one page: pictures, facts and tables, with nothing to load from elsewhere. */
#include "tools/report/inspect.h"
#include "tools/report/markup.h"

#include <string.h>

enum { WORDS = 2000 };

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1c2430;--soft:#4a5666;--page:#fff;--edge:#d5dde8}\n"
    "@media (prefers-color-scheme:dark){:root{--ink:#e6ebf2;--soft:#a9b4c4;--page:#12171e;"
    "--edge:#313c4b}}\n"
    "body{margin:0 auto;max-width:60rem;padding:1rem;background:var(--page);color:var(--ink);"
    "font:16px/1.45 system-ui,sans-serif}\n"
    "h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:1.6rem}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}\n"
    "th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--edge);"
    "vertical-align:top;max-width:24rem;overflow-wrap:anywhere}\n"
    "th{color:var(--soft);font-weight:600}summary{cursor:pointer;font-weight:600}\n"
    "details{margin:1rem 0}\n"
    "</style>\n";

static bool is_table(const json_t *value)
{
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

static bool is_fact(const char *key, const json_t *value)
{
    return !json_is_object(value) && !is_table(value) && strcmp(key, "points") != 0;
}

static void add_words(markup *m, const char *tag, const char *text)
{
    markup_add(m, "<%s>", tag);
    markup_words(m, text, WORDS);
    markup_add(m, "</%s>", tag);
}

static void add_table(markup *m, const char *name, const json_t *rows)
{
    size_t i;
    const json_t *row;
    const char *key;
    json_t *value;
    markup_add(m, "<details%s><summary>", json_array_size(rows) <= 24 ? " open=\"open\"" : "");
    markup_words(m, name, WORDS);
    markup_add(m, ", %zu</summary><div class=\"wide\"><table><thead><tr>", json_array_size(rows));
    json_object_foreach(json_array_get(rows, 0), key, value)
    {
        if (is_fact(key, value))
            add_words(m, "th", key);
    }
    markup_add(m, "</tr></thead><tbody>\n");
    json_array_foreach(rows, i, row)
    {
        markup_add(m, "<tr>");
        json_object_foreach((json_t *)row, key, value)
        {
            if (is_fact(key, value))
                add_words(m, "td", inspect_value_text(key, value));
        }
        markup_add(m, "</tr>\n");
    }
    markup_add(m, "</tbody></table></div></details>\n");
}

static void add_object(markup *m, const json_t *about)
{
    const char *key;
    json_t *value;
    markup_add(m, "<dl>\n");
    json_object_foreach((json_t *)about, key, value)
    {
        if (!is_fact(key, value))
            continue;
        add_words(m, "dt", key);
        add_words(m, "dd", inspect_value_text(key, value));
        markup_add(m, "\n");
    }
    markup_add(m, "</dl>\n");
    json_object_foreach((json_t *)about, key, value)
    {
        if (is_table(value))
            add_table(m, key, value);
        if (!json_is_object(value))
            continue;
        add_words(m, "h2", key);
        markup_add(m, "\n");
        add_object(m, value);
    }
}

static void add_all(markup *m, const char *text, size_t size)
{
    m->failed = m->failed || (size > 0 && !text_buffer_add(&m->buffer, text, size));
}

pjrt_status *inspect_html(const json_t *about, text_buffer *out)
{
    markup m = {0};
    text_buffer picture;
    const char *path = json_string_value(json_object_get(about, "path"));
    *out = (text_buffer){0};
    PJRT_TRY(inspect_svg(about, &picture));
    markup_add(&m, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n");
    add_words(&m, "title", path);
    add_all(&m, style, strlen(style));
    markup_add(&m, "</head><body>\n");
    add_words(&m, "h1", path);
    add_all(&m, picture.text, picture.size);
    add_object(&m, about);
    markup_add(&m, "</body></html>\n");
    free(picture.text);
    if (m.failed) {
        free(m.buffer.text);
        return PJRT_NO_MEMORY("ttt");
    }
    *out = m.buffer;
    return NULL;
}
