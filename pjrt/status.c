/* Failures as values. One allocation holds the whole status; the only fallback is a static one. */
#include "pjrt/pjrt_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pjrt_status {
    pjrt_code code;
    const char *call;
    const char *message;
    const char *where;
    const char *text;
    const char *file; /* as given, to make a copy from */
    int line;
};

static pjrt_status out_of_memory = {
    .code = PJRT_CODE_RESOURCE_EXHAUSTED,
    .call = "malloc",
    .message = "out of memory",
    .where = "status.c",
    .text = "out of memory",
    .file = "status.c",
};

const char *pjrt_code_name(pjrt_code code)
{
    switch (code) {
#define PJRT_CODE_CASE(name, number) \
    case PJRT_CODE_##name:           \
        return #name;
        PJRT_CODES(PJRT_CODE_CASE)
#undef PJRT_CODE_CASE
    }
    return "UNKNOWN";
}

pjrt_code pjrt_status_code(const pjrt_status *st)
{
    return st == NULL ? PJRT_CODE_OK : st->code;
}

const char *pjrt_status_message(const pjrt_status *st)
{
    return st == NULL ? "" : st->message;
}

const char *pjrt_status_call(const pjrt_status *st)
{
    return st == NULL ? "" : st->call;
}

const char *pjrt_status_where(const pjrt_status *st)
{
    return st == NULL ? "" : st->where;
}

const char *pjrt_status_text(const pjrt_status *st)
{
    return st == NULL ? "ok" : st->text;
}

void pjrt_status_free(pjrt_status *st)
{
    if (st != &out_of_memory)
        free(st);
}

/* Appends the formatted piece, its NUL included, and returns where it starts. */
static const char *put(char **cursor, const char *end, const char *format, ...)
{
    char *start = *cursor;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(start, (size_t)(end - start), format, args);
    va_end(args);
    *cursor = start + (n < 0 ? 0 : n) + 1;
    return start;
}

pjrt_status *pjrt_status_make(pjrt_code code, const char *call, const char *file, int line,
                              const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t length = n < 0 ? 0 : (size_t)n;
    const char *slash = strrchr(file, '/');
    const char *base = slash == NULL ? file : slash + 1;
    const char *name = pjrt_code_name(code);

    /* message, call, "file:line" and the one-line text, each with its NUL. */
    size_t room = 2 * (length + strlen(call)) + strlen(base) + strlen(name) + 32;
    pjrt_status *st = malloc(sizeof *st + room);
    if (st == NULL) {
        va_end(again);
        return &out_of_memory;
    }
    char *cursor = (char *)(st + 1);
    const char *end = cursor + room;
    st->code = code;
    st->file = file;
    st->line = line;
    st->message = cursor;
    if (n < 0)
        *cursor = '\0';
    else
        vsnprintf(cursor, length + 1, format, again);
    va_end(again);
    cursor += length + 1;
    st->call = put(&cursor, end, "%s", call);
    st->where = put(&cursor, end, "%s:%d", base, line);
    int first_line = (int)strcspn(st->message, "\n");
    if (call[0] >= 'A' && call[0] <= 'Z') /* the plugin's words need saying whose they are */
        st->text = put(&cursor, end, "%s: %s: %.*s", call, name, first_line, st->message);
    else
        st->text = put(&cursor, end, "%.*s", first_line, st->message);
    return st;
}

pjrt_status *pjrt_status_copy(const pjrt_status *st)
{
    return st == NULL ? NULL
                      : pjrt_status_make(st->code, st->call, st->file, st->line, "%s", st->message);
}
