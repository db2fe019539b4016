/* Normalizers, pre-tokenizers and decoders of tokenizer.json. Unknown types are refused. */
#include "runtime/tokenizer/json.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

const char *ttt__json_type(const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    return type != NULL ? type : "without a type";
}

bool ttt__json_bool(const json_t *json, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(json, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static pjrt_status *not_built(const char *what, const json_t *json)
{
    return PJRT_FAIL(UNIMPLEMENTED, where, "%s \"%.60s\" of a tokenizer.json is not supported",
                     what, ttt__json_type(json));
}

/* Copies a required string. */
static pjrt_status *copy_text(const json_t *json, const char *key, ttt__text *out)
{
    const json_t *value = json_object_get(json, key);
    if (!json_is_string(value))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%.60s has no text \"%s\"", ttt__json_type(json),
                         key);
    out->size = 0;
    if (!ttt__text_room(out, 1) ||
        !ttt__text_add(out, json_string_value(value), json_string_length(value)))
        return PJRT_NO_MEMORY(where);
    return NULL;
}

static pjrt_status *next_step(ttt__steps *steps, ttt__step_kind kind, ttt__step **out)
{
    if (steps->count == TTT__MAX_STEPS)
        return PJRT_FAIL(UNIMPLEMENTED, where, "more than %d steps in a row", TTT__MAX_STEPS);
    *out = &steps->list[steps->count++];
    (*out)->kind = kind;
    return NULL;
}

/* {"String": …} or {"Regex": …}. */
static pjrt_status *read_pattern(const json_t *json, ttt__pattern *pattern)
{
    const json_t *holder = json_object_get(json, "pattern");
    const json_t *regex = json_object_get(holder, "Regex");
    if (json_is_string(regex))
        return ttt__pattern_compile(pattern, json_string_value(regex), json_string_length(regex),
                                    TTT__LINES);
    PJRT_TRY(copy_text(holder, "String", &pattern->literal));
    if (pattern->literal.size == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%.60s looks for an empty text",
                         ttt__json_type(json));
    return NULL;
}

/* ---- normalizers ---- */

static bool form_of(const char *type, ttt__form *form)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(type, names[i]) == 0) {
            *form = (ttt__form)i;
            return true;
        }
    }
    return false;
}

pjrt_status *ttt__json_normalizer(const json_t *json, ttt__steps *steps)
{
    const char *type = ttt__json_type(json);
    ttt__form form;
    ttt__step *step;
    if (json == NULL || json_is_null(json))
        return NULL;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(json, "normalizers");
        for (size_t i = 0; i < json_array_size(list); i++)
            PJRT_TRY(ttt__json_normalizer(json_array_get(list, i), steps));
        return NULL;
    }
    if (form_of(type, &form)) {
        PJRT_TRY(next_step(steps, TTT__STEP_FORM, &step));
        step->form = form;
        return NULL;
    }
    if (strcmp(type, "Prepend") == 0) {
        PJRT_TRY(next_step(steps, TTT__STEP_PREPEND, &step));
        return copy_text(json, "prepend", &step->text);
    }
    if (strcmp(type, "Replace") == 0) {
        PJRT_TRY(next_step(steps, TTT__STEP_REPLACE, &step));
        PJRT_TRY(read_pattern(json, &step->pattern));
        return copy_text(json, "content", &step->text);
    }
    if (strcmp(type, "Strip") == 0) {
        PJRT_TRY(next_step(steps, TTT__STEP_STRIP, &step));
        step->left = ttt__json_bool(json, "strip_left", true);
        step->right = ttt__json_bool(json, "strip_right", true);
        return NULL;
    }
    return not_built("the normalizer", json);
}

/* ---- pre-tokenizers ---- */

static pjrt_status *read_behaviour(const json_t *json, ttt__behaviour *out)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const char *name = json_string_value(json_object_get(json, "behavior"));
    for (int i = 0; name != NULL && i < 5; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (ttt__behaviour)i;
            return NULL;
        }
    }
    return PJRT_FAIL(INVALID_ARGUMENT, where, "the behavior \"%.60s\" of a split is not known",
                     name != NULL ? name : "");
}

static pjrt_status *read_split(const json_t *json, ttt__steps *steps)
{
    ttt__step *step;
    PJRT_TRY(next_step(steps, TTT__STEP_SPLIT, &step));
    step->invert = ttt__json_bool(json, "invert", false);
    PJRT_TRY(read_behaviour(json, &step->behaviour));
    return read_pattern(json, &step->pattern);
}

/* Splits at characters of a class. */
static pjrt_status *add_class(ttt__steps *steps, ttt__class class, ttt__behaviour behaviour)
{
    ttt__step *step;
    PJRT_TRY(next_step(steps, TTT__STEP_SPLIT, &step));
    step->pattern.class = class;
    step->behaviour = behaviour;
    return NULL;
}

static pjrt_status *read_byte_level(const json_t *json, ttt_tokenizer *tokenizer)
{
    ttt__step *step;
    if (tokenizer->bpe.byte_level)
        return PJRT_FAIL(UNIMPLEMENTED, where, "ByteLevel twice is not supported");
    tokenizer->bpe.byte_level = true;
    if (ttt__json_bool(json, "add_prefix_space", true))
        PJRT_TRY(next_step(&tokenizer->steps, TTT__STEP_SPACE, &step));
    if (!ttt__json_bool(json, "use_regex", true))
        return NULL;
    PJRT_TRY(next_step(&tokenizer->steps, TTT__STEP_SPLIT, &step));
    step->pattern.rule = TTT__GPT2;
    return NULL;
}

static pjrt_status *read_scheme(const json_t *json, ttt__scheme *out)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = json_string_value(json_object_get(json, "prepend_scheme"));
    *out = ttt__json_bool(json, "add_prefix_space", true) ? TTT__ALWAYS : TTT__NEVER;
    if (name == NULL)
        return NULL;
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (ttt__scheme)i;
            return NULL;
        }
    }
    return PJRT_FAIL(INVALID_ARGUMENT, where, "the prepend_scheme \"%.60s\" is not known", name);
}

static pjrt_status *read_metaspace(const json_t *json, ttt__steps *steps)
{
    ttt__step *step;
    PJRT_TRY(next_step(steps, TTT__STEP_METASPACE, &step));
    PJRT_TRY(copy_text(json, "replacement", &step->text));
    PJRT_TRY(copy_text(json, "replacement", &step->pattern.literal));
    PJRT_TRY(read_scheme(json, &step->scheme));
    step->split = ttt__json_bool(json, "split", true);
    step->behaviour = TTT__WITH_NEXT;
    if (step->text.size == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "Metaspace has no replacement");
    return NULL;
}

static pjrt_status *read_whitespace(ttt__steps *steps)
{
    static const char words[] = "\\w+|[^\\w\\s]+";
    ttt__step *step;
    PJRT_TRY(next_step(steps, TTT__STEP_SPLIT, &step));
    step->behaviour = TTT__REMOVED;
    step->invert = true;
    return ttt__pattern_compile(&step->pattern, words, sizeof words - 1, 0);
}

pjrt_status *ttt__json_pre_tokenizer(const json_t *json, ttt_tokenizer *tokenizer)
{
    const char *type = ttt__json_type(json);
    ttt__steps *steps = &tokenizer->steps;
    if (json == NULL || json_is_null(json))
        return NULL;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(json, "pretokenizers");
        for (size_t i = 0; i < json_array_size(list); i++)
            PJRT_TRY(ttt__json_pre_tokenizer(json_array_get(list, i), tokenizer));
        return NULL;
    }
    if (tokenizer->bpe.byte_level) /* it would see characters that stand for bytes */
        return PJRT_FAIL(UNIMPLEMENTED, where, "the pre-tokenizer \"%.60s\" after ByteLevel", type);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(json, tokenizer);
    if (strcmp(type, "Split") == 0)
        return read_split(json, steps);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(json, steps);
    if (strcmp(type, "Whitespace") == 0)
        return read_whitespace(steps);
    if (strcmp(type, "Digits") == 0)
        return add_class(steps, ttt__is_numeric,
                         ttt__json_bool(json, "individual_digits", false) ? TTT__ISOLATED
                                                                          : TTT__CONTIGUOUS);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_class(steps, ttt__is_space, TTT__REMOVED);
    if (strcmp(type, "Punctuation") == 0) {
        ttt__behaviour behaviour = TTT__ISOLATED;
        if (json_object_get(json, "behavior") != NULL)
            PJRT_TRY(read_behaviour(json, &behaviour));
        return add_class(steps, ttt__is_punctuation, behaviour);
    }
    return not_built("the pre-tokenizer", json);
}

/* ---- decoders ---- */

typedef enum decoder_kind { BYTE_LEVEL, REPLACE, BYTES, STRIP, METASPACE } decoder_kind;

typedef struct decoder {
    decoder_kind kind;
    const char *what, *by; /* within the JSON */
    size_t what_size, by_size;
    json_int_t start, stop;
    bool drops; /* the first token's */
} decoder;

typedef struct decoders {
    decoder list[TTT__MAX_STEPS];
    int count;
    bool fused; /* from here on they see one text, no tokens */
} decoders;

static pjrt_status *no_such_place(const json_t *json)
{
    return PJRT_FAIL(UNIMPLEMENTED, where,
                     "the decoder \"%.60s\" is not supported at this position",
                     ttt__json_type(json));
}

/* Strip of the whole text, after Fuse. */
static pjrt_status *strip_whole(const json_t *json, const decoder *d, ttt_tokenizer *tokenizer)
{
    if (d->stop != 0 || tokenizer->strips > 0)
        return no_such_place(json);
    tokenizer->strips = (int)d->start;
    if (!ttt__text_add(&tokenizer->stripped, d->what, d->what_size))
        return PJRT_NO_MEMORY(where);
    return NULL;
}

static pjrt_status *read_strip(const json_t *json, decoder *d)
{
    const json_t *content = json_object_get(json, "content");
    d->kind = STRIP;
    d->what = json_string_value(content);
    d->what_size = json_string_length(content);
    d->start = json_integer_value(json_object_get(json, "start"));
    d->stop = json_integer_value(json_object_get(json, "stop"));
    if (d->what == NULL || d->what_size == 0 || d->start < 0 || d->start > 1000 || d->stop < 0 ||
        d->stop > 1000)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the decoder Strip is not what it should be");
    return NULL;
}

static pjrt_status *read_decoder_texts(const json_t *json, decoder *d)
{
    const json_t *what = d->kind == METASPACE
                             ? json_object_get(json, "replacement")
                             : json_object_get(json_object_get(json, "pattern"), "String");
    const json_t *by = json_object_get(json, "content");
    d->what = json_string_value(what);
    d->what_size = json_string_length(what);
    d->by = d->kind == METASPACE ? " " : json_string_value(by);
    d->by_size = d->kind == METASPACE ? 1 : json_string_length(by);
    if (d->what == NULL || d->what_size == 0 || d->by == NULL)
        return PJRT_FAIL(UNIMPLEMENTED, where, "the decoder %s without a text to look for",
                         ttt__json_type(json));
    return NULL;
}

static pjrt_status *read_decoder(const json_t *json, ttt_tokenizer *tokenizer, decoders *all)
{
    const char *type = ttt__json_type(json);
    decoder d = {0};
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(json, "decoders");
        for (size_t i = 0; i < json_array_size(list); i++)
            PJRT_TRY(read_decoder(json_array_get(list, i), tokenizer, all));
        return NULL;
    }
    if (strcmp(type, "Fuse") == 0) {
        all->fused = true;
        return NULL;
    }
    if (strcmp(type, "Strip") == 0) {
        PJRT_TRY(read_strip(json, &d));
        if (all->fused)
            return strip_whole(json, &d, tokenizer);
    } else if (strcmp(type, "ByteLevel") == 0) {
        d.kind = BYTE_LEVEL;
    } else if (strcmp(type, "ByteFallback") == 0) {
        d.kind = BYTES;
    } else if (strcmp(type, "Replace") == 0) {
        d.kind = REPLACE;
        PJRT_TRY(read_decoder_texts(json, &d));
    } else if (strcmp(type, "Metaspace") == 0) {
        ttt__scheme scheme;
        d.kind = METASPACE;
        PJRT_TRY(read_decoder_texts(json, &d));
        PJRT_TRY(read_scheme(json, &scheme));
        d.drops = scheme != TTT__NEVER;
    } else {
        return not_built("the decoder", json);
    }
    /* Bytes are no text any more: only Strip and Replace of other bytes may follow. */
    if (all->fused || all->count == TTT__MAX_STEPS ||
        (all->count > 0 &&
         (all->list[all->count - 1].kind == BYTE_LEVEL || all->list[all->count - 1].kind == BYTES)))
        return no_such_place(json);
    all->list[all->count++] = d;
    return NULL;
}

static pjrt_status *replace_all(const decoder *d, const char *by, size_t by_size, ttt__text *in,
                                ttt__text *out)
{
    const char *at = in->data, *end = in->data + in->size;
    out->size = 0;
    while (at < end) {
        const char *found = memmem(at, (size_t)(end - at), d->what, d->what_size);
        const char *stop = found != NULL ? found : end;
        if (!ttt__text_add(out, at, (size_t)(stop - at)) ||
            (found != NULL && !ttt__text_add(out, by, by_size)))
            return PJRT_NO_MEMORY(where);
        at = found != NULL ? found + d->what_size : end;
    }
    ttt__text other = *in;
    *in = *out;
    *out = other;
    return NULL;
}

/* Characters that stand for bytes become these, if all of them do. */
static void to_bytes(ttt__text *text)
{
    const char *end = text->data + text->size;
    int length;
    for (const char *at = text->data; at < end; at += length) {
        if (ttt__byte_of_char(ttt__utf8_next(at, end, &length)) < 0)
            return;
    }
    char *to = text->data;
    for (const char *at = text->data; at < end; at += length)
        *to++ = (char)ttt__byte_of_char(ttt__utf8_next(at, end, &length));
    text->size = (size_t)(to - text->data);
}

static void strip_token(const decoder *d, ttt__text *text)
{
    const char *at = text->data, *end = text->data + text->size;
    for (json_int_t i = 0; i < d->start && (size_t)(end - at) >= d->what_size &&
                           memcmp(at, d->what, d->what_size) == 0;
         i++)
        at += d->what_size;
    for (json_int_t i = 0; i < d->stop && (size_t)(end - at) >= d->what_size &&
                           memcmp(end - d->what_size, d->what, d->what_size) == 0;
         i++)
        end -= d->what_size;
    memmove(text->data, at, (size_t)(end - at));
    text->size = (size_t)(end - at);
}

int ttt__byte_of_text(const char *text, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high == NULL || low == NULL ? -1 : (int)(high - digits) * 16 + (int)(low - digits);
}

/* One token's text through all decoders; `spare` is memory. */
static pjrt_status *decode_token(const decoders *all, bool first, ttt__text *text, ttt__text *spare)
{
    for (int i = 0; i < all->count; i++) {
        const decoder *d = &all->list[i];
        int byte;
        switch (d->kind) {
        case BYTE_LEVEL:
            to_bytes(text);
            break;
        case BYTES:
            byte = ttt__byte_of_text(text->data, text->size);
            if (byte >= 0) {
                text->data[0] = (char)byte;
                text->size = 1;
            }
            break;
        case STRIP:
            strip_token(d, text);
            break;
        case REPLACE:
            PJRT_TRY(replace_all(d, d->by, d->by_size, text, spare));
            break;
        case METASPACE:
            PJRT_TRY(replace_all(d, d->by, first && d->drops ? 0 : d->by_size, text, spare));
            break;
        }
    }
    return NULL;
}

static pjrt_status *decode_all(ttt_tokenizer *tokenizer, const decoders *all, bool first,
                               const ttt__normal_texts *normal, uint32_t *at)
{
    const ttt__vocab *vocab = &tokenizer->vocab;
    ttt__text text = {0}, spare = {0};
    pjrt_status *st = NULL;
    at[0] = (uint32_t)tokenizer->plain.size;
    for (int32_t id = 0; st == NULL && id < vocab->count; id++) {
        const char *from = "";
        size_t size = 0;
        if (vocab->flags[id] & TTT__THERE) {
            from = ttt__vocab_text(vocab, id);
            size = vocab->tokens[id].size;
        }
        if (normal->at != NULL && normal->at[id] != 0) { /* as the text had it when it was found */
            from = normal->texts.data + normal->at[id];
            size = strlen(from);
        }
        text.size = 0;
        if (!ttt__text_room(&text, size + 1) || !ttt__text_add(&text, from, size))
            st = PJRT_NO_MEMORY(where);
        if (st == NULL)
            st = decode_token(all, first, &text, &spare);
        if (st == NULL)
            st = ttt__plain_add(tokenizer, at, id, text.data, text.size);
    }
    free(text.data);
    free(spare.data);
    return st;
}

pjrt_status *ttt__json_decoder(const json_t *json, ttt_tokenizer *tokenizer,
                               const ttt__normal_texts *normal)
{
    decoders all = {.count = 0};
    bool drops = false;
    if (json != NULL && !json_is_null(json))
        PJRT_TRY(read_decoder(json, tokenizer, &all));
    else if (!ttt__text_add(&tokenizer->joint, " ", 1))
        return PJRT_NO_MEMORY(where);
    for (int i = 0; i < all.count; i++)
        drops |= all.list[i].drops;
    PJRT_TRY(ttt__plain_start(tokenizer));
    PJRT_TRY(decode_all(tokenizer, &all, false, normal, tokenizer->plain_at));
    if (!drops)
        return NULL;
    tokenizer->first_at = calloc((size_t)tokenizer->vocab.count + 1, sizeof(uint32_t));
    if (tokenizer->first_at == NULL)
        return PJRT_NO_MEMORY(where);
    return decode_all(tokenizer, &all, true, normal, tokenizer->first_at);
}
