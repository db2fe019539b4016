/* HTML and SVG in the making. */
#include "tools/markup.h"

#include <stdarg.h>
#include <stdio.h>

static void add(markup *m, const char *text, size_t size)
{
    m->failed = m->failed || !text_buffer_add(&m->buffer, text, size);
}

void markup_add(markup *m, const char *format, ...)
{
    char room[1024];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(room, sizeof room, format, args);
    va_end(args);
    if (size < 0 || (size_t)size >= sizeof room)
        m->failed = true;
    else
        add(m, room, (size_t)size);
}

void markup_words(markup *m, const char *words, size_t most)
{
    size_t shown = 0;
    for (const char *at = words; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        if ((c & 0xc0) != 0x80 && shown++ == most) { /* bytes inside a character do not count */
            add(m, "…", strlen("…"));
            return;
        }
        if (c == '<')
            add(m, "&lt;", 4);
        else if (c == '>')
            add(m, "&gt;", 4);
        else if (c == '&')
            add(m, "&amp;", 5);
        else if (c == '"')
            add(m, "&quot;", 6);
        else if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f)
            add(m, "?", 1);
        else
            add(m, at, 1);
    }
}
