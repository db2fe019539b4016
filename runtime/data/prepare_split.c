/*
 * Cuts input into units. Where depends on the text from the unit's beginning on and on nothing
 * else, so a run that is continued cuts as if it had never stopped.
 */
#include "runtime/data/prepare.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "data";

struct ttt__cutter {
    const ttt__inputs *inputs;
    const char *separator; /* NULL: a text file is one document */
    ttt__cursor at;
    int64_t before;  /* bytes of the files before this one */
    ttt__text *text; /* NULL between files */
    char *held;      /* text that was read and belongs to no unit yet */
    size_t count, room;
    bool end; /* nothing follows what is held */
};

/* ---- units -------------------------------------------------------------------------------------
 */

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
        .pieces = kept.pieces,
        .pieces_room = kept.pieces_room,
        .tokens = kept.tokens,
        .tokens_room = kept.tokens_room,
        .runs = kept.runs,
        .runs_room = kept.runs_room,
    };
    pjrt_status_free(kept.failed);
}

void ttt__unit_free(ttt__unit *unit)
{
    free(unit->text);
    free(unit->pieces);
    free(unit->tokens);
    free(unit->runs);
    pjrt_status_free(unit->failed);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- what is held ------------------------------------------------------------------------------
 */

/* At least `wanted` bytes are held, unless the file ends before. */
static pjrt_status *hold(ttt__cutter *cutter, size_t wanted)
{
    size_t n = 0;
    if (cutter->end || cutter->count >= wanted)
        return NULL;
    if (!ttt__grow((void **)&cutter->held, &cutter->room, wanted, 1))
        return PJRT_NO_MEMORY(call);
    PJRT_TRY(
        ttt__text_read(cutter->text, cutter->held + cutter->count, wanted - cutter->count, &n));
    cutter->count += n;
    cutter->end = cutter->count < wanted;
    return NULL;
}

static void drop(ttt__cutter *cutter, size_t count)
{
    memmove(cutter->held, cutter->held + count, cutter->count - count);
    cutter->count -= count;
    cutter->at.offset += (int64_t)count;
}

/* The first `count` bytes become the unit's text. */
static pjrt_status *give(ttt__cutter *cutter, size_t count, ttt__unit *unit)
{
    if (!ttt__grow((void **)&unit->text, &unit->text_room, count + 1, 1))
        return PJRT_NO_MEMORY(call);
    if (count > 0)
        memcpy(unit->text, cutter->held, count);
    unit->size = count;
    drop(cutter, count);
    return NULL;
}

/* ---- lines -------------------------------------------------------------------------------------
 */

/* A line that is too long to keep is passed over. */
static pjrt_status *pass_line(ttt__cutter *cutter, ttt__unit *unit)
{
    const char *newline = NULL;
    unit->too_long = true;
    while (newline == NULL && cutter->count > 0) {
        newline = memchr(cutter->held, '\n', cutter->count);
        drop(cutter, newline == NULL ? cutter->count : (size_t)(newline - cutter->held) + 1);
        PJRT_TRY(hold(cutter, TTT__UNIT));
    }
    return NULL;
}

static pjrt_status *cut_lines(ttt__cutter *cutter, ttt__unit *unit)
{
    PJRT_TRY(hold(cutter, TTT__UNIT + 1)); /* one more: to know whether it goes on */
    if (cutter->count <= TTT__UNIT)
        return give(cutter, cutter->count, unit);
    const char *newline = memrchr(cutter->held, '\n', TTT__UNIT);
    for (size_t seen = TTT__UNIT; newline == NULL;) {
        size_t wanted = least(seen + TTT__UNIT, TTT__MOST_LINE + 1);
        PJRT_TRY(hold(cutter, wanted));
        size_t limit = least(wanted, cutter->count);
        newline = memchr(cutter->held + seen, '\n', limit - seen);
        seen = limit;
        if (newline == NULL && seen > TTT__MOST_LINE)
            return pass_line(cutter, unit);
        if (newline == NULL && seen < wanted) /* the end */
            return give(cutter, seen, unit);
    }
    return give(cutter, (size_t)(newline - cutter->held) + 1, unit);
}

/* ---- documents of text files -------------------------------------------------------------------
 */

static pjrt_status *add_piece(ttt__unit *unit, ttt__checkpoint_shard piece)
{
    if (piece.size == 0 && piece.begins)
        return NULL; /* there is no document */
    if (!ttt__grow((void **)&unit->pieces, &unit->pieces_room, unit->n_pieces + 1, sizeof piece))
        return PJRT_NO_MEMORY(call);
    unit->pieces[unit->n_pieces++] = piece;
    return NULL;
}

/* Where a document that does not fit is cut: behind a line, else a word, else a character. */
static size_t cut_of(const char *text, size_t size)
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

static bool separates(const ttt__cutter *cutter, const char *line, size_t size)
{
    size_t length = strlen(cutter->separator);
    if (size > 0 && line[size - 1] == '\r')
        size--;
    return size == length && memcmp(line, cutter->separator, length) == 0;
}

/* The whole documents of the window; `used` says how far they go. */
static pjrt_status *cut_documents(ttt__cutter *cutter, size_t window, ttt__unit *unit, size_t *used)
{
    const char *held = cutter->held;
    *used = 0;
    for (size_t line = 0; line < window;) {
        const char *newline = memchr(held + line, '\n', window - line);
        if (newline == NULL && !(cutter->end && window == cutter->count))
            break;
        size_t end = newline == NULL ? window : (size_t)(newline - held);
        size_t next = newline == NULL ? window : end + 1;
        if (separates(cutter, held + line, end - line)) {
            PJRT_TRY(add_piece(
                unit, (ttt__checkpoint_shard){*used, line - *used, !cutter->at.inside, true}));
            cutter->at.inside = false;
            *used = next;
        }
        line = next;
    }
    return NULL;
}

static pjrt_status *cut_text(ttt__cutter *cutter, ttt__unit *unit)
{
    size_t used = 0;
    PJRT_TRY(hold(cutter, TTT__UNIT + 1));
    size_t window = least(cutter->count, TTT__UNIT);
    if (cutter->separator != NULL)
        PJRT_TRY(cut_documents(cutter, window, unit, &used));
    if (cutter->count <= TTT__UNIT) { /* the end: the rest is a document */
        PJRT_TRY(add_piece(unit,
                           (ttt__checkpoint_shard){used, window - used, !cutter->at.inside, true}));
        cutter->at.inside = false;
        used = window;
    } else if (used == 0) {
        used = cut_of(cutter->held, window);
        PJRT_TRY(add_piece(unit, (ttt__checkpoint_shard){0, used, !cutter->at.inside, false}));
        cutter->at.inside = true;
    }
    return give(cutter, used, unit);
}

/* ---- files -------------------------------------------------------------------------------------
 */

static pjrt_status *open_file(ttt__cutter *cutter)
{
    PJRT_TRY(ttt__text_open(&cutter->inputs->list[cutter->at.file], &cutter->text));
    cutter->end = false;
    return ttt__text_skip(cutter->text, cutter->at.offset);
}

static void close_file(ttt__cutter *cutter)
{
    ttt__text_free(cutter->text);
    cutter->text = NULL;
    cutter->before += cutter->inputs->list[cutter->at.file].size;
    cutter->at = (ttt__cursor){.file = cutter->at.file + 1};
}

pjrt_status *ttt__cutter_new(const ttt__inputs *inputs, const char *separator, ttt__cursor start,
                             ttt__cutter **out)
{
    *out = NULL;
    ttt__cutter *cutter = calloc(1, sizeof *cutter);
    if (cutter == NULL)
        return PJRT_NO_MEMORY(call);
    cutter->inputs = inputs;
    cutter->separator = separator;
    cutter->at = start;
    for (int i = 0; i < start.file; i++)
        cutter->before += inputs->list[i].size;
    *out = cutter;
    return NULL;
}

void ttt__cutter_free(ttt__cutter *cutter)
{
    if (cutter == NULL)
        return;
    ttt__text_free(cutter->text);
    free(cutter->held);
    free(cutter);
}

pjrt_status *ttt__cutter_next(ttt__cutter *cutter, ttt__unit *unit)
{
    if (cutter->at.file == cutter->inputs->count) {
        unit->end = true;
        return NULL;
    }
    if (cutter->text == NULL)
        PJRT_TRY(open_file(cutter));
    unit->input = &cutter->inputs->list[cutter->at.file];
    PJRT_TRY(unit->input->jsonl ? cut_lines(cutter, unit) : cut_text(cutter, unit));
    unit->taken = cutter->before + ttt__text_taken(cutter->text);
    if (cutter->end && cutter->count == 0)
        close_file(cutter);
    unit->next = cutter->at;
    return NULL;
}
