/* Text that grows. All zero: empty. */
#ifndef TOOLS_CLI_TEXT_BUFFER_H
#define TOOLS_CLI_TEXT_BUFFER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_buffer {
    char *text; /* with a NUL behind it; NULL while it is empty */
    size_t size, room;
} text_buffer;

/* False when there is no memory; it is as before then. */
static inline bool text_buffer_add(text_buffer *buffer, const char *text, size_t size)
{
    if (size >= buffer->room - buffer->size) {
        size_t room = 2 * (buffer->size + size) + 64;
        char *larger = realloc(buffer->text, room);
        if (larger == NULL)
            return false;
        buffer->text = larger;
        buffer->room = room;
    }
    if (size > 0)
        memcpy(buffer->text + buffer->size, text, size);
    buffer->size += size;
    buffer->text[buffer->size] = '\0';
    return true;
}

#endif
