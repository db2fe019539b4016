/* libttt: sequences, which come into a slot of the engine when they are used and wait as states in
 * the host's memory when others need it. */
#include "runtime/generate/sequence_state.h"
#include "runtime/library.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "ttt";

/* ---- slots -------------------------------------------------------------------------------------
 */

/* Out of its slot, into the host's memory. */
static pjrt_status *park(ttt_sequence *s)
{
    ttt_lm *lm = s->lm;
    bool lost = ttt_engine_position(lm->engine, s->slot) < 0;
    if (!lost)
        PJRT_TRY(ttt_engine_take(lm->engine, s->slot, &s->parked));
    s->lost = lost;
    lm->slots[s->slot] = NULL;
    s->slot = -1;
    return NULL;
}

/* A slot that nobody has, or that of whoever was away longest. */
static int64_t choose_slot(const ttt_lm *lm)
{
    int64_t best = 0, count = ttt_engine_batch(lm->engine);
    for (int64_t i = 0; i < count; i++) {
        if (lm->slots[i] == NULL)
            return i;
        if (lm->slots[i]->used < lm->slots[best]->used)
            best = i;
    }
    return best;
}

/* Gives a sequence a slot of its own, whatever is in it. */
static pjrt_status *take_slot(ttt_sequence *s)
{
    ttt_lm *lm = s->lm;
    s->used = ++lm->clock;
    if (s->slot >= 0)
        return NULL;
    int64_t slot = choose_slot(lm);
    if (lm->slots[slot] != NULL)
        PJRT_TRY(park(lm->slots[slot]));
    lm->slots[slot] = s;
    s->slot = slot;
    return NULL;
}

static void leave_slot(ttt_sequence *s)
{
    if (s->slot >= 0)
        s->lm->slots[s->slot] = NULL;
    s->slot = -1;
}

/* Brings a sequence onto the device, where it stands. */
static pjrt_status *settle(ttt_sequence *s)
{
    ttt_engine *engine = s->lm->engine;
    if (s->slot >= 0)
        return take_slot(s);
    if (s->lost)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the sequence is lost: begin it anew, or restore it");
    PJRT_TRY(take_slot(s));
    pjrt_status *st = s->parked == NULL ? ttt_engine_reset(engine, s->slot)
                                        : ttt_engine_put(engine, s->slot, s->parked);
    if (st != NULL) {
        leave_slot(s); /* it waits as before */
        return st;
    }
    ttt_state_free(s->parked);
    s->parked = NULL;
    return NULL;
}

/* ---- making ------------------------------------------------------------------------------------
 */

ttt_failure *ttt_sequence_new(ttt_lm *lm, ttt_sequence **out)
{
    ttt_sequence *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s == NULL)
        return ttt__failure(PJRT_NO_MEMORY(call));
    s->lm = lm;
    s->slot = -1;
    s->chosen = -1;
    s->logits = malloc((size_t)ttt_lm_vocab(lm) * sizeof *s->logits);
    if (s->logits == NULL) {
        ttt_sequence_free(s);
        return ttt__failure(PJRT_NO_MEMORY(call));
    }
    *out = s;
    return NULL;
}

void ttt_sequence_free(ttt_sequence *s)
{
    if (s == NULL)
        return;
    leave_slot(s);
    ttt_state_free(s->parked);
    ttt_sampler_free(s->sampler);
    ttt_decoder_free(s->decoder);
    free(s->logits);
    free(s);
}

int64_t ttt_sequence_position(const ttt_sequence *s)
{
    if (s->slot >= 0)
        return ttt_engine_position(s->lm->engine, s->slot);
    return s->lost ? -1 : s->parked == NULL ? 0 : ttt_state_info(s->parked)->position;
}

/* Stands at `state` from now on, which it takes over; NULL: at the start. */
static void stand_at(ttt_sequence *s, ttt_state *state)
{
    leave_slot(s);
    ttt_state_free(s->parked);
    s->parked = state;
    s->lost = false;
    s->has_logits = false;
    s->chosen = -1;
}

ttt_failure *ttt_sequence_reset(ttt_sequence *s)
{
    stand_at(s, NULL);
    return NULL;
}

/* ---- states ------------------------------------------------------------------------------------
 */

static pjrt_status *state_of(ttt_sequence *s, ttt_state **out)
{
    *out = NULL;
    PJRT_TRY(settle(s));
    return ttt_engine_take(s->lm->engine, s->slot, out);
}

/* Tries a state on the device, where it is checked; when it is refused the sequence stays where it
 * was. Takes the state over. */
static pjrt_status *restore(ttt_sequence *s, ttt_state *state)
{
    ttt_sequence trial = {.lm = s->lm, .slot = -1, .parked = state};
    pjrt_status *st = settle(&trial);
    if (st != NULL) {
        ttt_state_free(trial.parked);
        return st;
    }
    int64_t slot = trial.slot;
    stand_at(s, NULL);
    s->lm->slots[slot] = s;
    s->slot = slot;
    s->used = trial.used;
    return NULL;
}

ttt_failure *ttt_sequence_save(ttt_sequence *s, void **bytes, size_t *size)
{
    ttt_state *state;
    *bytes = NULL;
    *size = 0;
    pjrt_status *st = state_of(s, &state);
    if (st != NULL)
        return ttt__failure(st);
    *bytes = malloc(state->size);
    if (*bytes != NULL) {
        memcpy(*bytes, state->image, state->size);
        *size = state->size;
    }
    ttt_state_free(state);
    return *bytes != NULL ? NULL : ttt__failure(PJRT_NO_MEMORY(call));
}

ttt_failure *ttt_sequence_restore(ttt_sequence *s, const void *bytes, size_t size)
{
    ttt_state *state;
    unsigned char *image = malloc(size + 1);
    if (image == NULL)
        return ttt__failure(PJRT_NO_MEMORY(call));
    memcpy(image, bytes, size);
    pjrt_status *st = ttt__sequence_state_parse("the state", image, size, &state);
    return ttt__failure(st != NULL ? st : restore(s, state));
}

ttt_failure *ttt_sequence_save_file(ttt_sequence *s, const char *path)
{
    ttt_state *state;
    pjrt_status *st = state_of(s, &state);
    if (st == NULL)
        st = ttt_state_write(state, path);
    ttt_state_free(state);
    return ttt__failure(st);
}

ttt_failure *ttt_sequence_restore_file(ttt_sequence *s, const char *path)
{
    ttt_state *state;
    pjrt_status *st = ttt_state_read(path, &state);
    return ttt__failure(st != NULL ? st : restore(s, state));
}

ttt_failure *ttt_sequence_copy(ttt_sequence *s, ttt_sequence **out)
{
    ttt_state *state;
    *out = NULL;
    pjrt_status *st = state_of(s, &state);
    if (st != NULL)
        return ttt__failure(st);
    ttt_failure *failure = ttt_sequence_new(s->lm, out);
    if (failure != NULL) {
        ttt_state_free(state);
        return failure;
    }
    (*out)->parked = state;
    (*out)->has_logits = s->has_logits;
    memcpy((*out)->logits, s->logits, (size_t)ttt_lm_vocab(s->lm) * sizeof *s->logits);
    return NULL;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static pjrt_status *feed(ttt_sequence *s, const int32_t *tokens, size_t count)
{
    PJRT_TRY(settle(s));
    pjrt_status *st = ttt_engine_feed(s->lm->engine, s->slot, tokens, (int64_t)count, s->logits);
    pjrt_code code = pjrt_status_code(st);
    if (code == PJRT_CODE_INVALID_ARGUMENT || code == PJRT_CODE_OUT_OF_RANGE)
        return st; /* nothing was read */
    s->has_logits = st == NULL;
    size_t known = s->chosen >= 0 && tokens[0] == s->chosen ? 1 : 0;
    s->chosen = -1;
    if (st == NULL && s->sampler != NULL)
        ttt_sampler_see(s->sampler, tokens + known, (int64_t)(count - known));
    return st;
}

ttt_failure *ttt_sequence_feed(ttt_sequence *s, const int32_t *tokens, size_t count)
{
    return ttt__failure(feed(s, tokens, count));
}

ttt_failure *ttt_sequence_feed_text(ttt_sequence *s, const char *text, size_t size)
{
    ttt_ids ids = {0};
    pjrt_status *st = ttt__lm_encode(s->lm, text, size, ttt_sequence_position(s) == 0, &ids);
    if (st == NULL)
        st = feed(s, ids.list, ids.count);
    free(ids.list);
    return ttt__failure(st);
}

const float *ttt_sequence_logits(const ttt_sequence *s)
{
    return s->has_logits ? s->logits : NULL;
}

/* ---- choosing ----------------------------------------------------------------------------------
 */

static pjrt_status *set_sampling(ttt_sequence *s, const ttt_sample_options *o)
{
    ttt_sampling sampling = {.temperature = o->temperature,
                             .top_k = o->top_k,
                             .top_p = o->top_p,
                             .min_p = o->min_p,
                             .repetition = o->repetition,
                             .window = o->window,
                             .seed = o->seed};
    ttt_sampler *sampler;
    int64_t vocab = ttt_lm_vocab(s->lm), known = vocab;
    if (s->lm->tokenizer != NULL) /* models may have room for tokens that nothing stands for */
        known = ttt_tokenizer_info(s->lm->tokenizer)->vocab;
    PJRT_TRY(ttt_sampling_check(&sampling));
    PJRT_TRY(ttt_sampler_new(&sampling, known < vocab ? known : vocab, &sampler));
    ttt_sampler_free(s->sampler);
    s->sampler = sampler;
    return NULL;
}

ttt_failure *ttt_sequence_sampling(ttt_sequence *s, const ttt_sample_options *options)
{
    return ttt__failure(set_sampling(s, options));
}

static pjrt_status *sample(ttt_sequence *s, int32_t *token)
{
    *token = 0;
    if (!s->has_logits)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "there are no logits yet: feed something");
    if (s->sampler == NULL)
        PJRT_TRY(set_sampling(s, &(ttt_sample_options){0}));
    PJRT_TRY(ttt_sampler_next(s->sampler, s->logits, token, NULL));
    s->chosen = *token;
    return NULL;
}

ttt_failure *ttt_sequence_sample(ttt_sequence *s, int32_t *token)
{
    return ttt__failure(sample(s, token));
}

static pjrt_status *text_of(ttt_sequence *s, int32_t token, const char **text, size_t *size)
{
    PJRT_TRY(ttt__lm_needs_tokenizer(s->lm));
    if (s->decoder == NULL)
        PJRT_TRY(ttt_decoder_new(s->lm->tokenizer, TTT_SKIP_SPECIALS, &s->decoder));
    if (token == -1)
        return ttt_decoder_finish(s->decoder, text, size);
    return ttt_decoder_next(s->decoder, token, text, size);
}

ttt_failure *ttt_sequence_text(ttt_sequence *s, int32_t token, const char **text, size_t *size)
{
    *text = "";
    *size = 0;
    return ttt__failure(text_of(s, token, text, size));
}
