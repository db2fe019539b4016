/* A text that grows at its end. A failed allocation sticks: later calls do nothing, and
 * hlo__text_take returns NULL. */
#ifndef HLO_BUILDER_WRITE_TEXT_H
#define HLO_BUILDER_WRITE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct hlo_text {
    char *bytes;
    size_t size, capacity;
    bool failed;
} hlo_text;

/* Room for `more` bytes at the end; false when there is none. */
bool hlo__text_reserve(hlo_text *t, size_t more);
void hlo__text_int(hlo_text *t, int64_t value);
void hlo__text_printf(hlo_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text, ended by a NUL, which the caller frees; the buffer is empty again. */
char *hlo__text_take(hlo_text *t);
void hlo__text_free(hlo_text *t);

static inline void hlo__text_put(hlo_text *t, const char *bytes, size_t size)
{
    if (t->capacity - t->size <= size && !hlo__text_reserve(t, size))
        return;
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
}

static inline void hlo__text_str(hlo_text *t, const char *words)
{
    hlo__text_put(t, words, strlen(words));
}

#endif
