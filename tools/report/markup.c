/* HTML and SVG in the making. */
#include "tools/report/markup.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static void add(markup *m, const char *text, size_t size)
{
    m->failed = m->failed || !text_buffer_add(&m->buffer, text, size);
}

void markup_add(markup *m, const char *format, ...)
{
    char room[1024], *text = room;
    va_list args;
    va_start(args, format);
    int size = vsnprintf(room, sizeof room, format, args);
    va_end(args);
    if (size >= (int)sizeof room && (text = malloc((size_t)size + 1)) != NULL) {
        va_start(args, format);
        vsnprintf(text, (size_t)size + 1, format, args);
        va_end(args);
    }
    if (size < 0 || text == NULL)
        m->failed = true;
    else
        add(m, text, (size_t)size);
    if (text != room)
        free(text);
}

/* The bytes of the character that begins here, 0 for what is no UTF-8 or may not stand in XML. */
static size_t character(const char *at)
{
    unsigned char first = (unsigned char)at[0];
    size_t size = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = first & (size == 1 ? 0x7fu : 0xffu >> (size + 1));
    if ((first & 0xc0) == 0x80 || first > 0xf4)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) /* a NUL at the end is none either */
            return 0;
        code = code << 6 | ((unsigned char)at[i] & 0x3fu);
    }
    bool control = (code < ' ' && code != '\n' && code != '\t') || code == 0x7f;
    bool none = code < least[size] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff ||
                (code & 0xfffe) == 0xfffe;
    return control || none ? 0 : size;
}

void markup_words(markup *m, const char *words, size_t most)
{
    for (size_t shown = 0; *words != '\0'; shown++) {
        size_t size = character(words);
        if (shown == most) {
            add(m, "…", strlen("…"));
            return;
        }
        if (size == 0)
            add(m, "?", 1);
        else if (*words == '<')
            add(m, "&lt;", 4);
        else if (*words == '>')
            add(m, "&gt;", 4);
        else if (*words == '&')
            add(m, "&amp;", 5);
        else if (*words == '"')
            add(m, "&quot;", 6);
        else
            add(m, words, size);
        words += size == 0 ? 1 : size;
    }
}
