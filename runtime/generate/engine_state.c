/* States between engines and the host: taken out as values, put into slots. */
#include "runtime/base/ttt_hash.h"
#include "runtime/generate/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "engine";

/* The parts that every sequence has, and that a value keeps as plain numbers. */
static bool shared(const char *name)
{
    return strcmp(name, "position") == 0 || strcmp(name, "place") == 0;
}

/* Tokens of the mini-batch that is not whole yet. */
static int64_t mb_offset_at(const ttt_engine *e, int64_t position)
{
    const ttt_config *c = &e->model->config;
    if (!ttt_mixer_learns(c->mixer))
        return 0;
    return c->mini_batch_size == 0 ? position : position % c->mini_batch_size;
}

/* Sums of a learner's gradients: zero, and left out, where a mini-batch begins. */
static bool left_out(const ttt_engine *e, const ttt_state_about *about, const char *name)
{
    static const char end[] = "_sum";
    size_t length = strlen(name), tail = sizeof end - 1;
    return ttt_mixer_learns(e->model->config.mixer) && about->mb_offset == 0 && length > tail &&
           strcmp(name + length - tail, end) == 0;
}

/* ---- out ---------------------------------------------------------------------------------------
 */

/* Which parts a value has, and their shapes there. */
static int list_parts(const ttt_engine *e, const ttt_state_about *about, ttt__state_array *parts)
{
    int count = 0;
    for (int i = 0; i < e->parts->count; i++) {
        const ttt_state_entry *part = &e->parts->list[i];
        if (shared(part->name) || left_out(e, about, part->name))
            continue;
        parts[count] = (ttt__state_array){.name = part->name, .shape = part->shape};
        if (ttt__part_grows(part->name))
            parts[count].shape.dims[1] = about->position;
        count++;
    }
    return count;
}

/* Rows stand one behind the other: those of tokens to come are left out. */
static pjrt_status *download_start(const ttt_array *array, void *out, size_t size)
{
    size_t whole = ttt_array_bytes(array);
    if (whole == size)
        return ttt_array_download(array, out, size);
    void *all = malloc(whole);
    if (all == NULL)
        return PJRT_NO_MEMORY(call);
    pjrt_status *st = ttt_array_download(array, all, whole);
    if (st == NULL)
        memcpy(out, all, size);
    free(all);
    return st;
}

static pjrt_status *download(const ttt_engine *e, ttt_array *const *one,
                             const ttt_state_about *about, ttt_state **out)
{
    ttt__state_array *parts = calloc((size_t)e->parts->count, sizeof *parts);
    if (parts == NULL)
        return PJRT_NO_MEMORY(call);
    ttt_state *state;
    pjrt_status *st = ttt__sequence_state_new(about, parts, list_parts(e, about, parts), &state);
    free(parts);
    for (int i = 0; i < e->parts->count && st == NULL; i++) {
        int at = ttt__sequence_state_find(state, e->parts->list[i].name);
        if (at >= 0)
            st = download_start(one[i], ttt__sequence_state_data(state, at), state->parts[at].size);
    }
    if (st != NULL) {
        ttt_state_free(state);
        return st;
    }
    ttt__image_seal(state->image, state->size);
    *out = state;
    return NULL;
}

pjrt_status *ttt_engine_take(ttt_engine *e, int64_t slot, ttt_state **out)
{
    *out = NULL;
    PJRT_TRY(ttt__engine_check(e, slot, true));
    ttt_state_about about = {.position = e->slots[slot].position,
                             .mb_offset = mb_offset_at(e, e->slots[slot].position),
                             .mixer = ttt_mixer_name(e->model->config.mixer),
                             .model = {e->hash[0], e->hash[1]}};
    if (e->batch == 1)
        return download(e, e->all, &about, out);
    ttt_array **one;
    PJRT_TRY(ttt__engine_list(e, &one));
    pjrt_status *st = ttt__engine_copy(e, slot, one);
    if (st == NULL)
        st = download(e, one, &about, out);
    ttt__engine_drop(e, one);
    free(one);
    return st;
}

/* ---- in ----------------------------------------------------------------------------------------
 */

static pjrt_status *check_model(const ttt_engine *e, const ttt_state_about *about)
{
    const char *mixer = ttt_mixer_name(e->model->config.mixer);
    if (strcmp(about->mixer, mixer) != 0)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the state is of another model: its mixer is %s, this one's is %s",
                         about->mixer, mixer);
    if (memcmp(about->model, e->hash, sizeof e->hash) != 0) {
        char theirs[TTT_HASH_HEX], ours[TTT_HASH_HEX];
        ttt_hash_hex(about->model[0], about->model[1], theirs);
        ttt_hash_hex(e->hash[0], e->hash[1], ours);
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the state is of another model: network and weights have the hash %s, "
                         "this one's %s",
                         theirs, ours);
    }
    if (e->model->config.mixer == TTT_MIXER_ATTENTION && about->position > e->context)
        return PJRT_FAIL(OUT_OF_RANGE, call,
                         "the state has %lld tokens, and attention remembers %lld here: open the "
                         "engine with a longer context",
                         (long long)about->position, (long long)e->context);
    if (about->mb_offset != mb_offset_at(e, about->position))
        return PJRT_FAIL(DATA_LOSS, call,
                         "the state stands at place %lld of a mini-batch, after %lld tokens",
                         (long long)about->mb_offset, (long long)about->position);
    return NULL;
}

/* Every part is there in its shape, and nothing else is. */
static pjrt_status *check_parts(const ttt_engine *e, const ttt_state *state)
{
    ttt__state_array *parts = calloc((size_t)e->parts->count, sizeof *parts);
    if (parts == NULL)
        return PJRT_NO_MEMORY(call);
    int count = list_parts(e, &state->about, parts);
    const char *wrong = count == state->count ? NULL : "the number of its parts";
    for (int i = 0; i < count && wrong == NULL; i++) {
        int at = ttt__sequence_state_find(state, parts[i].name);
        if (at < 0 || !hlo_shape_equal(&state->parts[at].shape, &parts[i].shape))
            wrong = parts[i].name;
    }
    pjrt_status *st = wrong == NULL ? NULL
                                    : PJRT_FAIL(DATA_LOSS, call,
                                                "the state is not as its model has it: %s", wrong);
    free(parts);
    return st;
}

/* A part as the engine has it, from what the value has of it. */
static void fill(const ttt_state *state, const char *name, void *values)
{
    bool position = strcmp(name, "position") == 0;
    int32_t number = (int32_t)(position ? state->about.position : state->about.mb_offset);
    int at = ttt__sequence_state_find(state, name);
    if (at >= 0)
        memcpy(values, ttt__sequence_state_data(state, at), state->parts[at].size);
    else if (shared(name))
        memcpy(values, &number, sizeof number);
}

static pjrt_status *upload(const ttt_engine *e, const ttt_state *state, ttt_array **one)
{
    for (int i = 0; i < e->parts->count; i++) {
        const ttt_state_entry *part = &e->parts->list[i];
        void *values = calloc((size_t)hlo_shape_elements(&part->shape), 4);
        if (values == NULL)
            return PJRT_NO_MEMORY(call);
        fill(state, part->name, values);
        pjrt_status *st =
            ttt_array_upload(e->devices, part->shape, HLO_SPEC(NULL), values, &one[i]);
        free(values);
        PJRT_TRY(st);
    }
    return NULL;
}

pjrt_status *ttt_engine_put(ttt_engine *e, int64_t slot, const ttt_state *state)
{
    ttt_array **one;
    PJRT_TRY(ttt__engine_check(e, slot, false));
    PJRT_TRY(check_model(e, &state->about));
    PJRT_TRY(check_parts(e, state));
    PJRT_TRY(ttt__engine_list(e, &one));
    pjrt_status *st = upload(e, state, one);
    if (st == NULL)
        st = ttt__engine_put(e, slot, one);
    if (st == NULL)
        e->slots[slot] = (ttt__slot){.position = state->about.position};
    ttt__engine_drop(e, one);
    free(one);
    return st;
}
