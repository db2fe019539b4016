/* See text.h. Numbers are formatted here because printf would be half the time of writing. */
#include "hlo_builder/write/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool hlo__text_reserve(hlo_text *t, size_t more)
{
    if (t->failed)
        return false;
    if (t->capacity - t->size >= more && t->bytes != NULL)
        return true;
    size_t larger = t->capacity == 0 ? 1 << 16 : t->capacity;
    while (larger - t->size < more && larger <= SIZE_MAX / 4)
        larger *= 2;
    char *moved = larger - t->size < more ? NULL : realloc(t->bytes, larger);
    if (moved == NULL) {
        hlo__text_free(t);
        t->failed = true;
        return false;
    }
    t->bytes = moved;
    t->capacity = larger;
    return true;
}

void hlo__text_int(hlo_text *t, int64_t value)
{
    char digits[20];
    int at = sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0)
        digits[--at] = '-';
    hlo__text_put(t, digits + at, sizeof digits - (size_t)at);
}

void hlo__text_printf(hlo_text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && hlo__text_reserve(t, (size_t)n + 1)) {
        vsnprintf(t->bytes + t->size, (size_t)n + 1, format, again);
        t->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

char *hlo__text_take(hlo_text *t)
{
    if (!hlo__text_reserve(t, 1))
        return NULL;
    t->bytes[t->size] = '\0';
    char *taken = t->bytes;
    *t = (hlo_text){0};
    return taken;
}

void hlo__text_free(hlo_text *t)
{
    free(t->bytes);
    *t = (hlo_text){0};
}
