/*
 * Splits input into units. A boundary depends only on the text from the unit's start, so a resumed
 * run makes the same units.
 */
#include "runtime/data/prepare.h"

#include <stdlib.h>
#include <string.h>

static const char where[] = "data";

struct ttt__splitter {
    const ttt__inputs *inputs;
    const char *separator; /* NULL: a text file is one document */
    ttt__cursor at;
    int64_t before;  /* size of the files before this one */
    ttt__text *text; /* NULL between files */
    char *buffer;    /* text read but not yet in a unit */
    size_t count, room;
    bool end; /* the file has no text after the buffer */
};

/* ---- units ---- */

void ttt__unit_clear(ttt__unit *unit)
{
    ttt__unit kept = *unit;
    if (kept.text_room > 2 * TTT__UNIT || kept.tokens_room > 16 * (size_t)TTT__UNIT) {
        free(kept.text);
        free(kept.tokens);
        kept.text = NULL;
        kept.tokens = NULL;
        kept.text_room = kept.tokens_room = 0;
    }
    *unit = (ttt__unit){
        .text = kept.text,
        .text_room = kept.text_room,
        .chunks = kept.chunks,
        .chunks_room = kept.chunks_room,
        .tokens = kept.tokens,
        .tokens_room = kept.tokens_room,
        .spans = kept.spans,
        .spans_room = kept.spans_room,
    };
    pjrt_status_free(kept.failed);
}

void ttt__unit_free(ttt__unit *unit)
{
    free(unit->text);
    free(unit->chunks);
    free(unit->tokens);
    free(unit->spans);
    pjrt_status_free(unit->failed);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- text buffer ---- */

/* Reads until `wanted` bytes are buffered or the file ends. */
static pjrt_status *fill_buffer(ttt__splitter *splitter, size_t wanted)
{
    size_t n = 0;
    if (splitter->end || splitter->count >= wanted)
        return NULL;
    if (!ttt__grow((void **)&splitter->buffer, &splitter->room, wanted, 1))
        return PJRT_NO_MEMORY(where);
    PJRT_TRY(ttt__text_read(splitter->text, splitter->buffer + splitter->count,
                            wanted - splitter->count, &n));
    splitter->count += n;
    splitter->end = splitter->count < wanted;
    return NULL;
}

static void drop(ttt__splitter *splitter, size_t count)
{
    memmove(splitter->buffer, splitter->buffer + count, splitter->count - count);
    splitter->count -= count;
    splitter->at.offset += (int64_t)count;
}

/* Moves the first `count` bytes to the unit. */
static pjrt_status *emit_unit(ttt__splitter *splitter, size_t count, ttt__unit *unit)
{
    if (!ttt__grow((void **)&unit->text, &unit->text_room, count + 1, 1))
        return PJRT_NO_MEMORY(where);
    if (count > 0)
        memcpy(unit->text, splitter->buffer, count);
    unit->size = count;
    drop(splitter, count);
    return NULL;
}

/* ---- lines ---- */

/* Skips a line that exceeds the limit. */
static pjrt_status *skip_line(ttt__splitter *splitter, ttt__unit *unit)
{
    const char *newline = NULL;
    unit->too_long = true;
    while (newline == NULL && splitter->count > 0) {
        newline = memchr(splitter->buffer, '\n', splitter->count);
        drop(splitter,
             newline == NULL ? splitter->count : (size_t)(newline - splitter->buffer) + 1);
        PJRT_TRY(fill_buffer(splitter, TTT__UNIT));
    }
    return NULL;
}

static pjrt_status *split_lines(ttt__splitter *splitter, ttt__unit *unit)
{
    PJRT_TRY(fill_buffer(splitter, TTT__UNIT + 1)); /* one byte more, to see whether text follows */
    if (splitter->count <= TTT__UNIT)
        return emit_unit(splitter, splitter->count, unit);
    const char *newline = memrchr(splitter->buffer, '\n', TTT__UNIT);
    for (size_t seen = TTT__UNIT; newline == NULL;) {
        size_t wanted = least(seen + TTT__UNIT, TTT__MAX_LINE + 1);
        PJRT_TRY(fill_buffer(splitter, wanted));
        size_t limit = least(wanted, splitter->count);
        newline = memchr(splitter->buffer + seen, '\n', limit - seen);
        seen = limit;
        if (newline == NULL && seen > TTT__MAX_LINE)
            return skip_line(splitter, unit);
        if (newline == NULL && seen < wanted) /* end of file */
            return emit_unit(splitter, seen, unit);
    }
    return emit_unit(splitter, (size_t)(newline - splitter->buffer) + 1, unit);
}

/* ---- documents of text files ---- */

static pjrt_status *add_chunk(ttt__unit *unit, ttt__text_chunk chunk)
{
    if (chunk.size == 0 && chunk.begins)
        return NULL; /* an empty document is dropped */
    if (!ttt__grow((void **)&unit->chunks, &unit->chunks_room, unit->n_chunks + 1, sizeof chunk))
        return PJRT_NO_MEMORY(where);
    unit->chunks[unit->n_chunks++] = chunk;
    return NULL;
}

/* Where to split a document that does not fit: after a line, else after a word, else at a
 * character boundary. */
static size_t split_point(const char *text, size_t size)
{
    const char *at = memrchr(text, '\n', size);
    if (at == NULL)
        at = memrchr(text, ' ', size);
    if (at != NULL)
        return (size_t)(at - text) + 1;
    size_t cut = size;
    while (cut > size - 3 && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}

static bool separates(const ttt__splitter *splitter, const char *line, size_t size)
{
    size_t length = strlen(splitter->separator);
    if (size > 0 && line[size - 1] == '\r')
        size--;
    return size == length && memcmp(line, splitter->separator, length) == 0;
}

/* Adds the complete documents in the window; sets `used` to where they end. */
static pjrt_status *split_documents(ttt__splitter *splitter, size_t window, ttt__unit *unit,
                                    size_t *used)
{
    const char *buffer = splitter->buffer;
    *used = 0;
    for (size_t line = 0; line < window;) {
        const char *newline = memchr(buffer + line, '\n', window - line);
        if (newline == NULL && !(splitter->end && window == splitter->count))
            break;
        size_t end = newline == NULL ? window : (size_t)(newline - buffer);
        size_t next = newline == NULL ? window : end + 1;
        if (separates(splitter, buffer + line, end - line)) {
            PJRT_TRY(add_chunk(unit,
                               (ttt__text_chunk){*used, line - *used, !splitter->at.inside, true}));
            splitter->at.inside = false;
            *used = next;
        }
        line = next;
    }
    return NULL;
}

static pjrt_status *split_text(ttt__splitter *splitter, ttt__unit *unit)
{
    size_t used = 0;
    PJRT_TRY(fill_buffer(splitter, TTT__UNIT + 1));
    size_t window = least(splitter->count, TTT__UNIT);
    if (splitter->separator != NULL)
        PJRT_TRY(split_documents(splitter, window, unit, &used));
    if (splitter->count <= TTT__UNIT) { /* end of file: the rest is one document */
        PJRT_TRY(
            add_chunk(unit, (ttt__text_chunk){used, window - used, !splitter->at.inside, true}));
        splitter->at.inside = false;
        used = window;
    } else if (used == 0) {
        used = split_point(splitter->buffer, window);
        PJRT_TRY(add_chunk(unit, (ttt__text_chunk){0, used, !splitter->at.inside, false}));
        splitter->at.inside = true;
    }
    return emit_unit(splitter, used, unit);
}

/* ---- files ---- */

static pjrt_status *open_file(ttt__splitter *splitter)
{
    PJRT_TRY(ttt__text_open(&splitter->inputs->list[splitter->at.file], &splitter->text));
    splitter->end = false;
    return ttt__text_skip(splitter->text, splitter->at.offset);
}

static void close_file(ttt__splitter *splitter)
{
    ttt__text_free(splitter->text);
    splitter->text = NULL;
    splitter->before += splitter->inputs->list[splitter->at.file].size;
    splitter->at = (ttt__cursor){.file = splitter->at.file + 1};
}

pjrt_status *ttt__splitter_new(const ttt__inputs *inputs, const char *separator, ttt__cursor start,
                               ttt__splitter **out)
{
    *out = NULL;
    ttt__splitter *splitter = calloc(1, sizeof *splitter);
    if (splitter == NULL)
        return PJRT_NO_MEMORY(where);
    splitter->inputs = inputs;
    splitter->separator = separator;
    splitter->at = start;
    for (int i = 0; i < start.file; i++)
        splitter->before += inputs->list[i].size;
    *out = splitter;
    return NULL;
}

void ttt__splitter_free(ttt__splitter *splitter)
{
    if (splitter == NULL)
        return;
    ttt__text_free(splitter->text);
    free(splitter->buffer);
    free(splitter);
}

pjrt_status *ttt__splitter_next(ttt__splitter *splitter, ttt__unit *unit)
{
    if (splitter->at.file == splitter->inputs->count) {
        unit->end = true;
        return NULL;
    }
    if (splitter->text == NULL)
        PJRT_TRY(open_file(splitter));
    unit->input = &splitter->inputs->list[splitter->at.file];
    PJRT_TRY(unit->input->jsonl ? split_lines(splitter, unit) : split_text(splitter, unit));
    unit->taken = splitter->before + ttt__text_taken(splitter->text);
    if (splitter->end && splitter->count == 0)
        close_file(splitter);
    unit->next = splitter->at;
    return NULL;
}
