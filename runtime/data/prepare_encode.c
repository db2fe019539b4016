/* Encodes the text of a unit; runs on a worker. */
#include "runtime/data/prepare.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char where[] = "data";

static pjrt_status *put_tokens(const ttt__encoding *how, const ttt_ids *ids, bool begins,
                               ttt__unit *unit)
{
    size_t bytes = ids->count * (size_t)how->width;
    if (!ttt__grow((void **)&unit->tokens, &unit->tokens_room, unit->tokens_size + bytes, 1) ||
        !ttt__grow((void **)&unit->spans, &unit->spans_room, unit->n_spans + 1,
                   sizeof *unit->spans))
        return PJRT_NO_MEMORY(where);
    unsigned char *to = unit->tokens + unit->tokens_size;
    for (size_t i = 0; how->width == 2 && i < ids->count; i++)
        ((uint16_t *)to)[i] = htole16((uint16_t)ids->list[i]);
    for (size_t i = 0; how->width == 4 && i < ids->count; i++)
        ((uint32_t *)to)[i] = htole32((uint32_t)ids->list[i]);
    unit->tokens_size += bytes;
    unit->spans[unit->n_spans++] = (ttt__token_span){(int64_t)ids->count, begins};
    return NULL;
}

static pjrt_status *encode(const ttt__encoding *how, ttt_encoder *encoder, ttt_ids *ids,
                           const char *text, size_t size, bool begins, bool ends, ttt__unit *unit)
{
    const ttt_tokenizer_about *about = ttt_tokenizer_info(how->tokenizer);
    unsigned flags = (begins && about->bos >= 0 ? TTT_ADD_BOS : 0u) |
                     (ends && about->eos >= 0 ? TTT_ADD_EOS : 0u);
    ids->count = 0;
    PJRT_TRY(ttt_encode(encoder, text, size, flags, ids));
    return put_tokens(how, ids, begins, unit);
}

/* ---- lines ---- */

static void bad_line(ttt__unit *unit, const char *format, const char *what)
{
    if (unit->bad_lines++ > 0)
        return;
    unit->first_bad = unit->lines;
    snprintf(unit->reason, sizeof unit->reason, format, what);
    for (char *at = unit->reason; *at != '\0'; at++)
        *at = (unsigned char)*at < ' ' ? ' ' : *at; /* keep the quoted text on one line */
}

static pjrt_status *encode_line(const ttt__encoding *how, ttt_encoder *encoder, ttt_ids *ids,
                                const char *line, size_t size, ttt__unit *unit)
{
    json_error_t error;
    pjrt_status *st = NULL;
    json_t *root = json_loadb(line, size, JSON_ALLOW_NUL, &error);
    const json_t *text = json_object_get(root, how->field);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory)
        st = PJRT_NO_MEMORY(where);
    else if (root == NULL)
        bad_line(unit, "not JSON: %.100s", error.text);
    else if (!json_is_object(root))
        bad_line(unit, "not an object%s", "");
    else if (text == NULL)
        bad_line(unit, "no field \"%.80s\"", how->field);
    else if (!json_is_string(text))
        bad_line(unit, "the field \"%.80s\" is not text", how->field);
    else if (json_string_length(text) > 0)
        st = encode(how, encoder, ids, json_string_value(text), json_string_length(text), true,
                    true, unit);
    json_decref(root);
    return st;
}

static bool blank(const char *line, size_t size)
{
    size_t i = 0;
    while (i < size && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r'))
        i++;
    return i == size;
}

static pjrt_status *encode_lines(const ttt__encoding *how, ttt_encoder *encoder, ttt_ids *ids,
                                 ttt__unit *unit)
{
    const char *at = unit->text, *end = unit->text + unit->size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline == NULL ? end : newline) - at);
        unit->lines++;
        if (!blank(at, size))
            PJRT_TRY(encode_line(how, encoder, ids, at, size, unit));
        at = newline == NULL ? end : newline + 1;
    }
    return NULL;
}

pjrt_status *ttt__unit_encode(const ttt__encoding *how, ttt_encoder *encoder, ttt_ids *ids,
                              ttt__unit *unit)
{
    if (unit->too_long) {
        unit->lines = 1;
        bad_line(unit, "a line of more than 16 MB%s", "");
        return NULL;
    }
    if (unit->input->jsonl)
        return encode_lines(how, encoder, ids, unit);
    for (size_t i = 0; i < unit->n_chunks; i++) {
        const ttt__text_chunk *chunk = &unit->chunks[i];
        PJRT_TRY(encode(how, encoder, ids, unit->text + chunk->start, chunk->size, chunk->begins,
                        chunk->ends, unit));
    }
    return NULL;
}
