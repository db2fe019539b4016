/* Normalizers change text; pre-tokenizers split it into words. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

void ttt__steps_free(ttt__steps *steps)
{
    for (int i = 0; i < steps->count; i++) {
        ttt__pattern_free(&steps->list[i].pattern);
        free(steps->list[i].text.data);
    }
}

/* ---- normalizers ---- */

static pjrt_status *replace(const ttt__step *step, ttt_encoder *encoder, const char *text,
                            size_t size, ttt__text *out)
{
    ttt__search search = {.pattern = &step->pattern, .text = text, .size = size};
    size_t done = 0;
    for (;;) {
        PJRT_TRY(ttt__search_next(&search, encoder));
        size_t stop = search.found ? search.start : size;
        if (!ttt__text_add(out, text + done, stop - done))
            return PJRT_NO_MEMORY(where);
        if (!search.found)
            return NULL;
        if (!ttt__text_add(out, step->text.data, step->text.size))
            return PJRT_NO_MEMORY(where);
        done = search.stop;
    }
}

static void strip(const ttt__step *step, const char **text, size_t *size)
{
    const char *end = *text + *size, *at = *text;
    int length;
    while (step->left && at < end && ttt__is_space(ttt__utf8_next(at, end, &length)))
        at += length;
    while (step->right && end > at) {
        const char *last = end - 1;
        while (last > at && ((unsigned char)*last & 0xc0) == 0x80)
            last--;
        if (!ttt__is_space(ttt__utf8_next(last, end, &length)))
            break;
        end = last;
    }
    *text = at;
    *size = (size_t)(end - at);
}

/* Text below U+0300 is already in NFC and NFD; text below U+0080 is in every form. */
static bool is_in_form(ttt__form form, const char *text, size_t size)
{
    if (form == TTT__LOWER)
        return false;
    unsigned char least = form == TTT__NFC ? 0xcc : 0x80;
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] >= least)
            return false;
    }
    return true;
}

static pjrt_status *normalize_step(const ttt__step *step, ttt_encoder *encoder, const char **text,
                                   size_t *size, ttt__text *out)
{
    pjrt_status *st = NULL;
    out->size = 0;
    switch (step->kind) {
    case TTT__STEP_FORM:
        if (is_in_form(step->form, *text, *size))
            return NULL;
        if (!ttt__to_form(step->form, *text, *size, out))
            return PJRT_NO_MEMORY(where);
        break;
    case TTT__STEP_PREPEND:
        if (*size == 0)
            return NULL;
        if (!ttt__text_add(out, step->text.data, step->text.size) ||
            !ttt__text_add(out, *text, *size))
            return PJRT_NO_MEMORY(where);
        break;
    case TTT__STEP_REPLACE:
        st = replace(step, encoder, *text, *size, out);
        break;
    default:
        strip(step, text, size);
        return NULL;
    }
    if (st == NULL && !ttt__text_room(out, 1)) /* an empty text needs a valid address too */
        st = PJRT_NO_MEMORY(where);
    *text = out->data;
    *size = out->size;
    return st;
}

pjrt_status *ttt__normalize(const ttt__steps *steps, ttt_encoder *encoder, const char **text,
                            size_t *size)
{
    int holder = 1; /* index of the buffer that may hold the text */
    for (int i = 0; i < steps->count; i++) {
        ttt__text *out = &encoder->normal[1 - holder];
        PJRT_TRY(normalize_step(&steps->list[i], encoder, text, size, out));
        if (*text == out->data)
            holder = 1 - holder;
        if (*size > INT32_MAX / 4)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "the normalized text is too long");
    }
    return NULL;
}

/* ---- pre-tokenizers ---- */

/* Spans of text on their way to the next step. */
typedef struct span_sink {
    ttt_encoder *encoder;
    const ttt__step *step;
    int level;
    const char *text;
    bool first;
    ttt_ids *ids;
    size_t start, stop; /* a span that may still grow; */
    bool held, match;   /* whether there is one, and whether it is a match */
} span_sink;

static pjrt_status *pass_on(const span_sink *p, size_t start, size_t stop)
{
    if (start == stop)
        return NULL;
    return ttt__pre_tokenize(p->encoder, p->level + 1, p->text + start, stop - start,
                             p->first && start == 0, p->ids);
}

static pjrt_status *release(span_sink *p)
{
    bool held = p->held;
    p->held = false;
    return held ? pass_on(p, p->start, p->stop) : NULL;
}

static pjrt_status *hold(span_sink *p, size_t start, size_t stop, bool match)
{
    PJRT_TRY(release(p));
    p->held = true;
    p->start = start;
    p->stop = stop;
    p->match = match;
    return NULL;
}

/* Handles one span: a match, or the text between matches. */
static pjrt_status *add_span(span_sink *p, size_t start, size_t stop, bool match)
{
    bool joins = false;
    match = match != p->step->invert;
    switch (p->step->behaviour) {
    case TTT__ISOLATED:
        return pass_on(p, start, stop);
    case TTT__REMOVED:
        return match ? NULL : pass_on(p, start, stop);
    case TTT__CONTIGUOUS:
        joins = p->held && p->match == match;
        break;
    case TTT__WITH_PREVIOUS: /* a second consecutive match stands alone */
        joins = p->held && match && !p->match;
        break;
    case TTT__WITH_NEXT:
        joins = p->held && !match && p->match;
        break;
    }
    if (!joins)
        return hold(p, start, stop, match);
    p->stop = stop;
    p->match = match;
    return NULL;
}

static pjrt_status *split(span_sink *p, const ttt__pattern *pattern, size_t size)
{
    ttt__search search = {.pattern = pattern, .text = p->text, .size = size};
    size_t done = 0;
    for (;;) {
        PJRT_TRY(ttt__search_next(&search, p->encoder));
        size_t stop = search.found ? search.start : size;
        if (done < stop)
            PJRT_TRY(add_span(p, done, stop, false));
        if (!search.found)
            return release(p);
        PJRT_TRY(add_span(p, search.start, search.stop, true));
        done = search.stop;
    }
}

/* Fast path for nearly all models: a rule splits and its words go straight to BPE. */
static pjrt_status *split_by_rule(ttt_encoder *encoder, ttt__rule rule, const char *text,
                                  size_t size, ttt_ids *ids)
{
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = ttt__rule_next(rule, at, end);
        PJRT_TRY(ttt__encode_word(encoder, at, (size_t)(stop - at), ids));
        at = stop;
    }
    return NULL;
}

static pjrt_status *metaspace(span_sink *p, size_t size)
{
    const ttt__step *step = p->step;
    const ttt__text *mark = &step->text;
    ttt__text *out = &p->encoder->levels[p->level];
    bool begins = (size > 0 && p->text[0] == ' ') ||
                  (size >= mark->size && memcmp(p->text, mark->data, mark->size) == 0);
    out->size = 0;
    if (!begins && (step->scheme == TTT__ALWAYS || (step->scheme == TTT__FIRST && p->first)) &&
        !ttt__text_add(out, mark->data, mark->size))
        return PJRT_NO_MEMORY(where);
    const char *at = p->text, *end = p->text + size;
    while (at < end) {
        const char *space = memchr(at, ' ', (size_t)(end - at));
        const char *stop = space != NULL ? space : end;
        if (!ttt__text_add(out, at, (size_t)(stop - at)) ||
            (space != NULL && !ttt__text_add(out, mark->data, mark->size)))
            return PJRT_NO_MEMORY(where);
        at = space != NULL ? space + 1 : end;
    }
    p->text = out->data;
    return step->split ? split(p, &step->pattern, out->size) : pass_on(p, 0, out->size);
}

static pjrt_status *add_space(span_sink *p, size_t size)
{
    ttt__text *out = &p->encoder->levels[p->level];
    if (p->text[0] == ' ')
        return pass_on(p, 0, size);
    out->size = 0;
    if (!ttt__text_add(out, " ", 1) || !ttt__text_add(out, p->text, size))
        return PJRT_NO_MEMORY(where);
    p->text = out->data;
    return pass_on(p, 0, out->size);
}

pjrt_status *ttt__pre_tokenize(ttt_encoder *encoder, int level, const char *text, size_t size,
                               bool first, ttt_ids *ids)
{
    const ttt__steps *steps = &encoder->tokenizer->steps;
    if (level == steps->count)
        return ttt__encode_words(encoder, text, size, ids);
    const ttt__step *step = &steps->list[level];
    span_sink p = {
        .encoder = encoder, .step = step, .level = level, .text = text, .first = first, .ids = ids};
    if (step->kind == TTT__STEP_SPACE)
        return add_space(&p, size);
    if (step->kind == TTT__STEP_METASPACE)
        return metaspace(&p, size);
    bool all_pass =
        step->behaviour == TTT__ISOLATED || (step->behaviour == TTT__REMOVED && step->invert);
    if (step->pattern.rule != TTT__NO_RULE && all_pass && level + 1 == steps->count)
        return split_by_rule(encoder, step->pattern.rule, text, size, ids);
    return split(&p, &step->pattern, size);
}
