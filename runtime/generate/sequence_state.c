/*
 * States as values. One is the bytes of its file from the start: taking it out of an engine fills
 * them in, writing it writes them, and reading checks them.
 */
#include "runtime/generate/sequence_state.h"
#include "runtime/base/ttt_hash.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static const char call[] = "state";
static const char magic[8] = "TTTSTATE";
enum {
    FIXED = 16,            /* magic, version, size of the header */
    ALIGNED = 64,          /* parts start at multiples of it */
    HASH = 16,             /* at the end */
    MOST_HEADER = 1 << 24, /* bytes */
};

static uint32_t number_at(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static void put_number(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
}

static size_t aligned(size_t size)
{
    return (size + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

bool ttt__part_grows(const char *name)
{
    return ends_with(name, ".keys") || ends_with(name, ".values");
}

int ttt__sequence_state_find(const ttt_state *state, const char *name)
{
    for (int i = 0; i < state->count; i++) {
        if (strcmp(state->parts[i].name, name) == 0)
            return i;
    }
    return -1;
}

void ttt_state_free(ttt_state *state)
{
    if (state == NULL)
        return;
    json_decref(state->header);
    free(state->parts);
    free(state->image);
    free(state);
}

const ttt_state_about *ttt_state_info(const ttt_state *state)
{
    return &state->about;
}

int ttt_state_arrays(const ttt_state *state)
{
    return state->count;
}

const char *ttt_state_array(const ttt_state *state, int index, hlo_shape *shape)
{
    *shape = state->parts[index].shape;
    return state->parts[index].name;
}

void ttt__image_seal(unsigned char *image, size_t size)
{
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(image, size - HASH));
    memcpy(image + size - HASH, hash.digest, HASH);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

/* Bytes of an f32 array; false for a shape that no array has. */
static bool part_size(const hlo_shape *shape, size_t *size)
{
    *size = sizeof(float);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0 || __builtin_mul_overflow(*size, (size_t)shape->dims[i], size))
            return false;
    }
    return *size < SIZE_MAX / 4;
}

static bool read_shape(const json_t *list, hlo_shape *shape)
{
    size_t rank = json_array_size(list);
    if (!json_is_array(list) || rank > HLO_MAX_RANK)
        return false;
    *shape = (hlo_shape){.type = HLO_F32, .rank = (int)rank};
    for (size_t i = 0; i < rank; i++) {
        if (!json_is_integer(json_array_get(list, i)))
            return false;
        shape->dims[i] = json_integer_value(json_array_get(list, i));
    }
    return true;
}

static bool read_hash(const char *text, uint64_t hash[2])
{
    if (text == NULL || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return false;
    char half[17] = {0};
    for (int i = 0; i < 2; i++) {
        memcpy(half, text + 16 * i, 16);
        hash[i] = strtoull(half, NULL, 16);
    }
    return true;
}

static const char *read_mixer(const char *text)
{
    const char *name;
    for (int i = 0; text != NULL && (name = ttt_mixer_name((ttt_mixer)i)) != NULL; i++) {
        if (strcmp(name, text) == 0)
            return name;
    }
    return NULL;
}

/* What the header says but for the parts; the name of what is wrong, or NULL. */
static const char *read_about(const json_t *header, ttt_state_about *about)
{
    const char *type = json_string_value(json_object_get(header, "type"));
    const json_t *position = json_object_get(header, "position");
    const json_t *mb_offset = json_object_get(header, "place");
    about->mixer = read_mixer(json_string_value(json_object_get(header, "mixer")));
    about->position = json_integer_value(position);
    about->mb_offset = json_integer_value(mb_offset);
    if (about->mixer == NULL)
        return "mixer";
    if (!read_hash(json_string_value(json_object_get(header, "model")), about->model))
        return "model";
    if (type == NULL || strcmp(type, "f32") != 0)
        return "type";
    if (!json_is_integer(position) || about->position < 0 || about->position > INT32_MAX)
        return "position";
    if (!json_is_integer(mb_offset) || about->mb_offset < 0 || about->mb_offset > about->position)
        return "place";
    return json_is_array(json_object_get(header, "parts")) ? NULL : "parts";
}

/* Parts follow each other from `offset` on, up to the hash, without anything between. */
static pjrt_status *read_parts(ttt_state *s, const char *name, size_t offset)
{
    const json_t *list = json_object_get(s->header, "parts");
    size_t count = json_array_size(list), end = s->size - HASH;
    s->parts = calloc(count + 1, sizeof *s->parts);
    if (s->parts == NULL)
        return PJRT_NO_MEMORY(call);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        ttt__state_array *part = &s->parts[s->count++];
        part->name = json_string_value(json_object_get(item, "name"));
        if (part->name == NULL || !read_shape(json_object_get(item, "shape"), &part->shape) ||
            !part_size(&part->shape, &part->size))
            return PJRT_FAIL(DATA_LOSS, call, "%s: part %zu of its header is not well formed", name,
                             i);
        part->offset = offset;
        if (part->size > end - offset || aligned(part->size) > end - offset)
            return PJRT_FAIL(DATA_LOSS, call, "%s: it ends within %.60s", name, part->name);
        offset += aligned(part->size);
    }
    if (offset != end)
        return PJRT_FAIL(DATA_LOSS, call, "%s: %zu bytes stand behind its last part", name,
                         end - offset);
    return NULL;
}

static pjrt_status *read_image(ttt_state *s, const char *name)
{
    json_error_t error;
    size_t size = number_at(s->image + 12);
    if (size > MOST_HEADER || FIXED + size > s->size - HASH || (FIXED + size) % ALIGNED != 0)
        return PJRT_FAIL(DATA_LOSS, call, "%s: a header of %zu bytes cannot be in it", name, size);
    s->header = json_loadb((const char *)s->image + FIXED, size, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object((json_t *)s->header))
        return PJRT_FAIL(DATA_LOSS, call, "%s: its header is no JSON object: %.100s", name,
                         s->header == NULL ? error.text : "another thing");
    const char *wrong = read_about(s->header, &s->about);
    if (wrong != NULL)
        return PJRT_FAIL(DATA_LOSS, call, "%s: \"%s\" of its header is missing or makes no sense",
                         name, wrong);
    s->about.bytes = (int64_t)s->size;
    return read_parts(s, name, FIXED + size);
}

static pjrt_status *check_image(const char *name, const unsigned char *image, size_t size)
{
    if (size < FIXED + HASH || memcmp(image, magic, sizeof magic) != 0)
        return PJRT_FAIL(DATA_LOSS, call, "%s is not the file of a state%s", name,
                         size < FIXED + HASH ? ", or was cut" : "");
    uint32_t version = number_at(image + 8);
    if (version > TTT__STATE_VERSION)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "%s is of version %u, newer than this program's %d: use a newer one", name,
                         version, TTT__STATE_VERSION);
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(image, size - HASH));
    if (version == 0 || memcmp(image + size - HASH, hash.digest, HASH) != 0)
        return PJRT_FAIL(DATA_LOSS, call,
                         "%s was cut or damaged: its hash is not that of its content", name);
    return NULL;
}

/* Takes the image over. */
static pjrt_status *adopt(const char *name, unsigned char *image, size_t size, ttt_state **out)
{
    ttt_state *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s == NULL) {
        free(image);
        return PJRT_NO_MEMORY(call);
    }
    *s = (ttt_state){.image = image, .size = size};
    pjrt_status *st = read_image(s, name);
    if (st != NULL)
        ttt_state_free(s);
    else
        *out = s;
    return st;
}

pjrt_status *ttt__sequence_state_parse(const char *name, unsigned char *image, size_t size,
                                       ttt_state **out)
{
    *out = NULL;
    pjrt_status *st = check_image(name, image, size);
    if (st == NULL)
        return adopt(name, image, size, out);
    free(image);
    return st;
}

/* ---- making ------------------------------------------------------------------------------------
 */

static json_t *part_json(const ttt__state_array *part)
{
    json_t *shape = json_array();
    bool ok = shape != NULL;
    for (int i = 0; i < part->shape.rank && ok; i++)
        ok = json_array_append_new(shape, json_integer(part->shape.dims[i])) == 0;
    if (ok)
        return json_pack("{s:s, s:o}", "name", part->name, "shape", shape);
    json_decref(shape);
    return NULL;
}

static char *header_text(const ttt_state_about *about, const ttt__state_array *parts, int count)
{
    char model[TTT_HASH_HEX];
    ttt_hash_hex(about->model[0], about->model[1], model);
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; i < count && ok; i++)
        ok = json_array_append_new(list, part_json(&parts[i])) == 0;
    if (!ok)
        json_decref(list);
    json_t *header =
        ok ? json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "mixer", about->mixer, "model", model,
                       "type", "f32", "position", (json_int_t)about->position, "place",
                       (json_int_t)about->mb_offset, "parts", list)
           : NULL;
    char *text = header == NULL ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(header);
    return text;
}

pjrt_status *ttt__sequence_state_new(const ttt_state_about *about, const ttt__state_array *parts,
                                     int count, ttt_state **out)
{
    *out = NULL;
    char *text = header_text(about, parts, count);
    if (text == NULL)
        return PJRT_NO_MEMORY(call);
    size_t used = FIXED + strlen(text), start = aligned(used), size = start + HASH, bytes;
    for (int i = 0; i < count; i++)
        size += part_size(&parts[i].shape, &bytes) ? aligned(bytes) : 0;
    unsigned char *image = calloc(size, 1);
    if (image != NULL) {
        memcpy(image, magic, sizeof magic);
        put_number(image + 8, TTT__STATE_VERSION);
        put_number(image + 12, (uint32_t)(start - FIXED));
        memcpy(image + FIXED, text, used - FIXED);
        memset(image + used, ' ', start - used);
    }
    free(text);
    return image == NULL ? PJRT_NO_MEMORY(call) : adopt("the state", image, size, out);
}

pjrt_status *ttt_state_moved(const ttt_state *state, int64_t position, ttt_state **out)
{
    *out = NULL;
    if (position < state->about.mb_offset || position > INT32_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a state cannot stand after %lld tokens",
                         (long long)position);
    ttt_state_about about = state->about;
    ttt__state_array *parts = calloc((size_t)state->count + 1, sizeof *parts);
    if (parts == NULL)
        return PJRT_NO_MEMORY(call);
    about.position = position;
    memcpy(parts, state->parts, (size_t)state->count * sizeof *parts);
    for (int i = 0; i < state->count; i++) {
        if (ttt__part_grows(parts[i].name))
            parts[i].shape.dims[1] = position;
    }
    pjrt_status *st = ttt__sequence_state_new(&about, parts, state->count, out);
    free(parts);
    for (int i = 0; st == NULL && i < state->count; i++) {
        size_t from = state->parts[i].size, to = (*out)->parts[i].size;
        memcpy(ttt__sequence_state_data(*out, i), ttt__sequence_state_data(state, i),
               from < to ? from : to);
    }
    if (st == NULL)
        ttt__image_seal((*out)->image, (*out)->size);
    return st;
}

/* To the nearest bf16, ties to even; what is not finite stays. */
static float rounded(float x)
{
    uint32_t bits;
    if (!isfinite(x))
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

pjrt_status *ttt_state_rounded(const ttt_state *state, ttt_state **out)
{
    PJRT_TRY(ttt__sequence_state_new(&state->about, state->parts, state->count, out));
    for (int i = 0; i < state->count; i++) {
        const ttt__state_array *part = &state->parts[i];
        memcpy(ttt__sequence_state_data(*out, i), ttt__sequence_state_data(state, i), part->size);
        float *values = ttt__sequence_state_data(*out, i);
        for (size_t k = 0; part->shape.type == HLO_F32 && k < part->size / sizeof *values; k++)
            values[k] = rounded(values[k]);
    }
    ttt__image_seal((*out)->image, (*out)->size);
    return NULL;
}
