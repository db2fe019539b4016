/* libttt: models, failures, and text to tokens. */
#include "runtime/library.h"
#include "runtime/train/ttt_trainer.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "ttt";

const char *ttt_version(void)
{
    return TTT_VERSION;
}

void ttt_free(void *memory)
{
    free(memory);
}

/* ---- failures ----------------------------------------------------------------------------------
 */

const char *ttt_failure_message(const ttt_failure *failure)
{
    return pjrt_status_text((const pjrt_status *)failure);
}

const char *ttt_failure_kind(const ttt_failure *failure)
{
    return pjrt_code_name(pjrt_status_code((const pjrt_status *)failure));
}

void ttt_failure_free(ttt_failure *failure)
{
    pjrt_status_free((pjrt_status *)failure);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static pjrt_status *open_bundle(ttt_lm *lm, const char *path, const ttt_lm_options *o)
{
    ttt_bundle_options how = {.model = o->weights, .rebuild = o->rebuild};
    PJRT_TRY(ttt_bundle_open(path, &lm->bundle));
    PJRT_TRY(ttt_bundle_tokenizer(lm->bundle, &lm->tokenizer));
    return ttt_bundle_engine(lm->bundle, lm->devices, &how, &lm->use, &lm->engine);
}

static pjrt_status *matrices_type(const char *name, hlo_type *type)
{
    *type = name == NULL || strcmp(name, "f32") == 0 ? HLO_F32
            : strcmp(name, "bf16") == 0              ? HLO_BF16
            : strcmp(name, "s8") == 0                ? HLO_S8
                                                     : HLO_TYPE_NONE;
    if (*type != HLO_TYPE_NONE)
        return NULL;
    return PJRT_FAIL(INVALID_ARGUMENT, call, "matrices are f32, bf16 or s8, not \"%s\"", name);
}

/* A model without a tokenizer can still be given tokens. */
static pjrt_status *find_tokenizer(ttt_lm *lm, const char *path, const ttt_lm_options *o)
{
    pjrt_status *st = ttt_model_tokenizer(
        path, o->tokenizer, ttt_engine_config(lm->engine)->vocab_size, &lm->tokenizer);
    if (o->tokenizer != NULL || pjrt_status_code(st) != PJRT_CODE_NOT_FOUND)
        return st;
    pjrt_status_free(st);
    return NULL;
}

static pjrt_status *open_folder(ttt_lm *lm, const char *path, const ttt_lm_options *o)
{
    char *folder;
    ttt_engine_options engine = {.context = o->context};
    PJRT_TRY(matrices_type(o->matrices, &engine.weights));
    PJRT_TRY(ttt_model_folder(path, &folder));
    pjrt_status *st = ttt_engine_open(lm->devices, folder, &engine, &lm->engine);
    free(folder);
    return st != NULL ? st : find_tokenizer(lm, path, o);
}

static pjrt_status *open_lm(ttt_lm *lm, const char *path, const ttt_lm_options *o)
{
    PJRT_TRY(ttt_devices_open(o->plugin == NULL ? "cpu" : o->plugin, NULL, &lm->devices));
    if (o->cache != NULL)
        PJRT_TRY(ttt_devices_cache(lm->devices, o->cache));
    PJRT_TRY(ttt_bundle_is(path) ? open_bundle(lm, path, o) : open_folder(lm, path, o));
    lm->slots = calloc((size_t)ttt_engine_batch(lm->engine), sizeof(ttt_sequence *));
    if (lm->slots == NULL)
        return PJRT_NO_MEMORY(call);
    return lm->tokenizer == NULL ? NULL : ttt_encoder_new(lm->tokenizer, &lm->encoder);
}

ttt_failure *ttt_lm_open(const char *path, const ttt_lm_options *options, ttt_lm **out)
{
    static const ttt_lm_options usual;
    *out = NULL;
    ttt_lm *lm = calloc(1, sizeof *lm);
    if (lm == NULL)
        return ttt__failure(PJRT_NO_MEMORY(call));
    pjrt_status *st = open_lm(lm, path, options == NULL ? &usual : options);
    if (st != NULL)
        ttt_lm_free(lm);
    else
        *out = lm;
    return ttt__failure(st);
}

void ttt_lm_free(ttt_lm *lm)
{
    if (lm == NULL)
        return;
    free(lm->slots);
    ttt_engine_free(lm->engine);
    ttt_encoder_free(lm->encoder);
    ttt_tokenizer_free(lm->tokenizer);
    ttt_bundle_free(lm->bundle);
    ttt_devices_free(lm->devices);
    free(lm);
}

int64_t ttt_lm_vocab(const ttt_lm *lm)
{
    return ttt_engine_config(lm->engine)->vocab_size;
}

int32_t ttt_lm_bos(const ttt_lm *lm)
{
    return lm->tokenizer == NULL ? -1 : ttt_tokenizer_info(lm->tokenizer)->bos;
}

int32_t ttt_lm_eos(const ttt_lm *lm)
{
    return lm->tokenizer == NULL ? -1 : ttt_tokenizer_info(lm->tokenizer)->eos;
}

const char *ttt_lm_target(const ttt_lm *lm)
{
    return lm->use.target;
}

const char *ttt_lm_why(const ttt_lm *lm)
{
    return lm->bundle == NULL ? "it is a model's folder" : lm->use.why;
}

/* ---- text --------------------------------------------------------------------------------------
 */

pjrt_status *ttt__lm_needs_tokenizer(const ttt_lm *lm)
{
    return lm->tokenizer != NULL ? NULL
                                 : PJRT_FAIL(FAILED_PRECONDITION, call,
                                             "the model has no tokenizer beside it: name one when "
                                             "it is opened, or feed tokens");
}

pjrt_status *ttt__lm_encode(ttt_lm *lm, const char *text, size_t size, bool start, ttt_ids *ids)
{
    PJRT_TRY(ttt__lm_needs_tokenizer(lm));
    size_t valid = ttt_utf8_valid(text, size);
    if (valid < size)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "the text is not UTF-8 at byte %zu", valid);
    return ttt_encode(lm->encoder, text, size, start && ttt_lm_bos(lm) >= 0 ? TTT_ADD_BOS : 0, ids);
}

ttt_failure *ttt_lm_encode(ttt_lm *lm, const char *text, size_t size, bool start, int32_t **tokens,
                           size_t *count)
{
    ttt_ids ids = {0};
    pjrt_status *st = ttt__lm_encode(lm, text, size, start, &ids);
    *tokens = st == NULL ? ids.list : NULL;
    *count = st == NULL ? ids.count : 0;
    if (st != NULL)
        free(ids.list);
    return ttt__failure(st);
}

ttt_failure *ttt_lm_decode(const ttt_lm *lm, const int32_t *tokens, size_t count, char **text,
                           size_t *size)
{
    *text = NULL;
    *size = 0;
    pjrt_status *st = ttt__lm_needs_tokenizer(lm);
    if (st == NULL)
        st = ttt_decode(lm->tokenizer, tokens, count, 0, text, size);
    return ttt__failure(st);
}
