/* HTML and SVG in the making: text that grows, and remembers when there was no memory for it. */
#ifndef TOOLS_REPORT_MARKUP_H
#define TOOLS_REPORT_MARKUP_H

#include "tools/cli/text_buffer.h"

typedef struct markup {
    text_buffer buffer;
    bool failed;
} markup;

/* As it is. */
void markup_add(markup *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Words of others: what means something in markup is written so that it means nothing, and what may
 * not stand in XML at all becomes a question mark. At most `most` characters. */
void markup_words(markup *m, const char *words, size_t most);

#endif
