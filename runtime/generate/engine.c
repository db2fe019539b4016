/*
 * Engines: weights once, programs for reading and for one token, and the states of all slots.
 *
 * A sequence is read by programs for one sequence. With several slots it is copied out of its slot
 * for that and put back when all went well, so that what fails in reading costs no other slot
 * anything.
 */
#include "runtime/generate/engine.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "engine";

/* ---- weights, and how they are read into -------------------------------------------------------
 */

bool ttt__engine_packs(ttt_kernel_set calls, hlo_type weights)
{
    return (calls & TTT_KERNEL_PRODUCT) != 0 || weights != HLO_F32;
}

/* The one place that knows where weights come from and how they lie on the devices: one by one,
 * since a loop over stacked ones would copy them for every token. */
static pjrt_status *load_weights(ttt_engine *e)
{
    const char *folder = e->source.folder;
    PJRT_TRY(ttt__model_hash(folder, e->hash));
    if (ttt__engine_packs(e->source.calls, e->weights))
        return ttt_model_load_packed(e->devices, folder, e->weights, &e->model);
    return ttt_model_load(e->devices, folder, TTT_SEPARATE, HLO_F32, &e->model);
}

int ttt__engine_spans(const ttt_config *c, int64_t context, int64_t span, int64_t sizes[TTT__SPANS],
                      int64_t *mini)
{
    bool learns = ttt_mixer_learns(c->mixer);
    int64_t least = learns ? c->mini_batch_size : 16;
    int count = 0;
    *mini = learns ? c->mini_batch_size : 1;
    if (*mini == 0) /* a whole sequence is one mini-batch: it is never at the end of one */
        return 0;
    const int64_t wanted[TTT__SPANS] = {span, span / 4, least};
    for (int i = 0; i < TTT__SPANS; i++) {
        int64_t size = wanted[i] / *mini * *mini;
        if (size < least || (context < size && c->mixer == TTT_MIXER_ATTENTION))
            continue;
        if (count == 0 || size < sizes[count - 1])
            sizes[count++] = size;
    }
    return count;
}

/* ---- programs ----------------------------------------------------------------------------------
 */

/* A result is as it will be used: an array of that shape, whose first dimension is `batch`. */
static bool gives(const ttt_program *program, int index, hlo_shape shape, int64_t batch)
{
    shape.dims[0] = batch;
    return hlo_shape_equal(&program->results[index].shape, &shape);
}

/* A program that was not built here gives what it should, or what it gives would be taken for
 * something else. What programs take is looked at whenever they are run. */
static pjrt_status *check_program(const ttt_engine *e, const ttt_program_desc *desc,
                                  const ttt_program *program)
{
    bool moves = desc->kind == TTT_PROGRAM_DECODE || desc->kind == TTT_PROGRAM_EXTEND;
    int64_t batch = desc->kind == TTT_PROGRAM_TAKE ? 1 : desc->batch;
    int first = moves ? 1 : 0;
    hlo_shape logits = HLO_SHAPE(HLO_F32, batch, e->model->config.vocab_size);
    bool fits = program->n_results == e->parts->count + first &&
                (!moves || gives(program, 0, logits, batch));
    for (int i = 0; i < e->parts->count && fits; i++)
        fits = gives(program, first + i, e->parts->list[i].shape, batch);
    if (fits)
        return NULL;
    return PJRT_FAIL(FAILED_PRECONDITION, call,
                     "the program %s does not give what its network should: it is another "
                     "version's; export the model anew",
                     pjrt_executable_name(program->exe));
}

static pjrt_status *get_program(ttt_engine *e, const ttt_program_desc *desc, ttt_program **program)
{
    if (e->source.program == NULL)
        return ttt_compile_program(desc, e->model, program);
    PJRT_TRY(e->source.program(e->source.ctx, desc, program));
    pjrt_status *st = check_program(e, desc, *program);
    if (st != NULL) {
        ttt_program_free(*program);
        *program = NULL;
    }
    return st;
}

pjrt_status *ttt__engine_need(ttt_engine *e, ttt_program **program, ttt_program_kind kind,
                              int64_t batch, int64_t time)
{
    ttt_program_desc desc = {.kind = kind,
                             .batch = batch,
                             .time = time,
                             .context = e->context,
                             .compute = e->compute,
                             .calls = e->source.calls};
    return *program != NULL ? NULL : get_program(e, &desc, program);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static pjrt_status *make_room(ttt_engine *e)
{
    ttt_error error;
    e->parts = ttt_state_table_new(&e->model->config, TTT_SEPARATE, 1, e->context, HLO_F32, &error);
    if (e->parts == NULL)
        return ttt_failed(&error);
    size_t parts = (size_t)e->parts->count, weights = (size_t)e->model->params->count;
    e->args = calloc(weights + 2 * parts + 1, sizeof(ttt_array *));
    e->results = calloc(parts + 1, sizeof(ttt_array *));
    e->slots = calloc((size_t)e->batch, sizeof *e->slots);
    if (e->args == NULL || e->results == NULL || e->slots == NULL)
        return PJRT_NO_MEMORY(call);
    memcpy(e->args, e->model->weights, weights * sizeof(ttt_array *));
    return ttt__engine_list(e, &e->all);
}

pjrt_status *ttt__engine_defaults(const ttt_engine_options *options, ttt_engine_options *out)
{
    *out = *options;
    out->batch = options->batch == 0 ? 1 : options->batch;
    out->context = options->context == 0 ? 2048 : options->context;
    out->span = options->span == 0 ? 512 : options->span;
    out->compute = options->compute == HLO_TYPE_NONE ? HLO_F32 : options->compute;
    out->weights = options->weights == HLO_TYPE_NONE ? HLO_F32 : options->weights;
    if (out->batch < 1 || out->context < 1 || out->span < 1 || out->batch > 1 << 20 ||
        out->context > 1 << 30)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "%lld slots, a context of %lld and spans of %lld tokens: all must be "
                         "positive, and not beyond all measure",
                         (long long)out->batch, (long long)out->context, (long long)out->span);
    if (out->compute != HLO_F32 && out->compute != HLO_BF16)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "engines compute in f32 or bf16, not in %s",
                         hlo_type_name(out->compute));
    return NULL;
}

static pjrt_status *open_engine(ttt_engine *e, const ttt_engine_options *options)
{
    ttt_engine_options o;
    int64_t sizes[TTT__SPANS];
    PJRT_TRY(ttt__engine_defaults(options, &o));
    e->batch = o.batch;
    e->context = o.context;
    e->compute = o.compute;
    e->weights = o.weights;
    PJRT_TRY(load_weights(e));
    e->n_spans = ttt__engine_spans(&e->model->config, o.context, o.span, sizes, &e->mini);
    for (int i = 0; i < e->n_spans; i++)
        e->spans[i].size = sizes[i];
    ttt_program_desc desc = {.kind = TTT_PROGRAM_DECODE, .batch = e->batch, .time = 1};
    PJRT_TRY(ttt_program_batch_spec(&desc, &e->devices->mesh, &e->spec));
    PJRT_TRY(make_room(e));
    PJRT_TRY(ttt__engine_need(e, &e->step, TTT_PROGRAM_DECODE, e->batch, 1));
    for (int64_t i = 0; i < e->batch; i++)
        PJRT_TRY(ttt_engine_reset(e, i));
    return NULL;
}

pjrt_status *ttt__engine_open(const ttt_devices *devices, const ttt__program_source *source,
                              const ttt_engine_options *options, ttt_engine **out)
{
    *out = NULL;
    ttt_engine *e = calloc(1, sizeof *e);
    if (e == NULL) {
        if (source->done != NULL)
            source->done(source->ctx);
        return PJRT_NO_MEMORY(call);
    }
    e->devices = devices;
    e->source = *source;
    pjrt_status *st = open_engine(e, options);
    e->source.folder = NULL;
    if (st != NULL)
        ttt_engine_free(e);
    else
        *out = e;
    return st;
}

pjrt_status *ttt_engine_open(const ttt_devices *devices, const char *folder,
                             const ttt_engine_options *options, ttt_engine **out)
{
    ttt__program_source source = {
        .folder = folder,
        .calls = options->no_kernels ? TTT_KERNEL_NONE : ttt_devices_kernels(devices),
    };
    return ttt__engine_open(devices, &source, options, out);
}

void ttt_engine_free(ttt_engine *e)
{
    if (e == NULL)
        return;
    if (e->all != NULL)
        ttt__engine_drop(e, e->all);
    free(e->all);
    for (int i = 0; i < e->n_spans; i++)
        ttt_program_free(e->spans[i].program);
    ttt_program_free(e->start);
    ttt_program_free(e->step);
    ttt_program_free(e->step_one);
    ttt_program_free(e->put);
    ttt_program_free(e->take);
    free(e->slots);
    free(e->args);
    free(e->results);
    ttt_state_table_free(e->parts);
    ttt_model_free(e->model);
    if (e->source.done != NULL)
        e->source.done(e->source.ctx);
    free(e);
}

const ttt_config *ttt_engine_config(const ttt_engine *e)
{
    return &e->model->config;
}

int64_t ttt_engine_batch(const ttt_engine *e)
{
    return e->batch;
}

int64_t ttt_engine_position(const ttt_engine *e, int64_t slot)
{
    return slot < 0 || slot >= e->batch || e->slots[slot].lost ? -1 : e->slots[slot].position;
}

/* ---- states on the devices ---------------------------------------------------------------------
 */

pjrt_status *ttt__engine_list(const ttt_engine *e, ttt_array ***out)
{
    *out = calloc((size_t)e->parts->count, sizeof(ttt_array *));
    return *out == NULL ? PJRT_NO_MEMORY(call) : NULL;
}

void ttt__engine_drop(const ttt_engine *e, ttt_array **list)
{
    for (int i = 0; i < e->parts->count; i++) {
        ttt_array_free(list[i]);
        list[i] = NULL;
    }
}

/* Results from `first` on take the place of what was in the list. */
static void move_results(ttt_engine *e, int first, ttt_array **list)
{
    ttt__engine_drop(e, list);
    memcpy(list, e->results + first, (size_t)e->parts->count * sizeof(ttt_array *));
}

static void lose_all(ttt_engine *e)
{
    ttt__engine_drop(e, e->all);
    for (int64_t i = 0; i < e->batch; i++)
        e->slots[i].lost = true;
}

/* A run that failed took its donated states with it, or it did not come that far. */
static bool alive(const ttt_engine *e, ttt_array *const *list)
{
    for (int i = 0; i < e->parts->count; i++) {
        for (int d = 0; d < e->devices->n_devices; d++) {
            if (pjrt_buffer_is_dead(list[i]->parts[d]))
                return false;
        }
    }
    return true;
}

static pjrt_status *zeros(void *ctx, const ttt_block *block, void *out)
{
    const hlo_shape *shape = ctx;
    size_t size = 4; /* s32 and f32 alike */
    for (int i = 0; i < shape->rank; i++)
        size *= (size_t)(block->limit[i] - block->start[i]);
    memset(out, 0, size);
    return NULL;
}

/* Room for the states of all slots, after they were lost and at first. */
static pjrt_status *make_all(ttt_engine *e)
{
    pjrt_status *st = NULL;
    for (int i = 0; i < e->parts->count && st == NULL; i++) {
        hlo_shape shape = e->parts->list[i].shape;
        shape.dims[0] = e->batch;
        st = ttt_array_make(e->devices, shape, e->spec, zeros, &shape, &e->all[i]);
    }
    if (st != NULL)
        lose_all(e);
    return st;
}

static pjrt_status *upload_number(const ttt_engine *e, int64_t number, ttt_array **out)
{
    int32_t value = (int32_t)number;
    return ttt_array_upload(e->devices, HLO_SCALAR(HLO_S32), HLO_SPEC(NULL), &value, out);
}

/* Runs `put` or `take`, which need no weights: the states of all, those of `one` when they are
 * given, and the slot. */
static pjrt_status *exchange(ttt_engine *e, const ttt_program *program, ttt_array *const *one,
                             int64_t slot)
{
    size_t parts = (size_t)e->parts->count, bytes = parts * sizeof(ttt_array *);
    ttt_array **args = e->args + e->model->params->count, *number;
    memcpy(args, e->all, bytes);
    if (one != NULL)
        memcpy(args + parts, one, bytes);
    size_t count = one == NULL ? parts : 2 * parts;
    PJRT_TRY(upload_number(e, slot, &number));
    args[count] = number;
    pjrt_status *st = ttt_program_run(program, args, (int)count + 1, e->results);
    ttt_array_free(number);
    return st;
}

pjrt_status *ttt__engine_put(ttt_engine *e, int64_t slot, ttt_array **one)
{
    if (e->batch == 1) {
        ttt__engine_drop(e, e->all);
        memcpy(e->all, one, (size_t)e->parts->count * sizeof(ttt_array *));
        memset(one, 0, (size_t)e->parts->count * sizeof(ttt_array *));
        return NULL;
    }
    PJRT_TRY(ttt__engine_need(e, &e->put, TTT_PROGRAM_PUT, e->batch, 1));
    if (e->all[0] == NULL)
        PJRT_TRY(make_all(e));
    pjrt_status *st = exchange(e, e->put, one, slot);
    if (st == NULL)
        move_results(e, 0, e->all);
    else if (!alive(e, e->all))
        lose_all(e);
    ttt__engine_drop(e, one);
    return st;
}

pjrt_status *ttt__engine_copy(ttt_engine *e, int64_t slot, ttt_array **one)
{
    PJRT_TRY(ttt__engine_need(e, &e->take, TTT_PROGRAM_TAKE, e->batch, 1));
    PJRT_TRY(exchange(e, e->take, NULL, slot));
    move_results(e, 0, one);
    return NULL;
}

static pjrt_status *begin(ttt_engine *e, ttt_array **one)
{
    PJRT_TRY(ttt__engine_need(e, &e->start, TTT_PROGRAM_START, 1, 1));
    PJRT_TRY(ttt_program_run(e->start, e->args, e->model->params->count, e->results));
    move_results(e, 0, one);
    return NULL;
}

/* ---- what is asked -----------------------------------------------------------------------------
 */

pjrt_status *ttt__engine_check(const ttt_engine *e, int64_t slot, bool alive_too)
{
    if (slot < 0 || slot >= e->batch)
        return PJRT_FAIL(OUT_OF_RANGE, call, "there is no slot %lld, but 0 to %lld",
                         (long long)slot, (long long)e->batch - 1);
    if (alive_too && e->slots[slot].lost)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the sequence of slot %lld is lost: reset it, or put a state there",
                         (long long)slot);
    return NULL;
}

/* `count` more tokens can follow in a slot. */
static pjrt_status *check_room(const ttt_engine *e, int64_t slot, int64_t count)
{
    bool attention = e->model->config.mixer == TTT_MIXER_ATTENTION;
    int64_t most = attention ? e->context : INT32_MAX, position = e->slots[slot].position;
    if (count <= most - position)
        return NULL;
    return PJRT_FAIL(OUT_OF_RANGE, call,
                     "%lld tokens after %lld are more than the %lld that %s remembers: open the "
                     "engine with a longer context",
                     (long long)count, (long long)position, (long long)most,
                     attention ? "attention" : "a position");
}

static pjrt_status *check_token(const ttt_engine *e, int32_t token, int64_t index)
{
    int64_t vocab = e->model->config.vocab_size;
    if (token >= 0 && token < vocab)
        return NULL;
    return PJRT_FAIL(INVALID_ARGUMENT, call,
                     "token %d at index %lld is not in the vocabulary of %lld", token,
                     (long long)index, (long long)vocab);
}

pjrt_status *ttt_engine_reset(ttt_engine *e, int64_t slot)
{
    ttt_array **one;
    PJRT_TRY(ttt__engine_check(e, slot, false));
    PJRT_TRY(ttt__engine_list(e, &one));
    pjrt_status *st = begin(e, one);
    if (st == NULL)
        st = ttt__engine_put(e, slot, one);
    if (st == NULL)
        e->slots[slot] = (ttt__slot){0};
    ttt__engine_drop(e, one);
    free(one);
    return st;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

/* Which span comes next; NULL: a single token. */
static ttt__span *next_span(ttt_engine *e, int64_t position, int64_t left)
{
    for (int i = 0; i < e->n_spans && position % e->mini == 0; i++) {
        if (e->spans[i].size <= left)
            return &e->spans[i];
    }
    return NULL;
}

static ttt_program **token_program(ttt_engine *e)
{
    return e->batch == 1 ? &e->step : &e->step_one;
}

pjrt_status *ttt_engine_prepare(ttt_engine *e, int64_t slot, int64_t count)
{
    PJRT_TRY(ttt__engine_check(e, slot, true));
    int64_t position = e->slots[slot].position;
    if (e->batch > 1)
        PJRT_TRY(ttt__engine_need(e, &e->take, TTT_PROGRAM_TAKE, e->batch, 1));
    for (int64_t done = 0; done < count;) {
        ttt__span *span = next_span(e, position + done, count - done);
        if (span != NULL)
            PJRT_TRY(ttt__engine_need(e, &span->program, TTT_PROGRAM_EXTEND, 1, span->size));
        else
            PJRT_TRY(ttt__engine_need(e, token_program(e), TTT_PROGRAM_DECODE, 1, 1));
        done += span == NULL ? 1 : span->size;
    }
    return NULL;
}

/* Queues a run over states, which are donated, and tokens. `logits` are the caller's. */
static pjrt_status *advance(ttt_engine *e, const ttt_program *program, ttt_array **states,
                            hlo_shape shape, hlo_spec spec, const int32_t *tokens,
                            ttt_array **logits)
{
    int weights = e->model->params->count, count = weights + e->parts->count;
    ttt_array *ids;
    PJRT_TRY(ttt_array_upload(e->devices, shape, spec, tokens, &ids));
    memcpy(e->args + weights, states, (size_t)e->parts->count * sizeof(ttt_array *));
    e->args[count] = ids;
    pjrt_status *st = ttt_program_run(program, e->args, count + 1, e->results);
    ttt_array_free(ids);
    if (st != NULL)
        return st;
    ttt_array_free(*logits);
    *logits = e->results[0];
    move_results(e, 1, states);
    return NULL;
}

/* A sequence on its way. */
typedef struct reading {
    ttt_array **states;
    int64_t position, done;
    ttt_array *logits; /* of the last run */
} reading;

static pjrt_status *read_tokens(ttt_engine *e, reading *r, const int32_t *tokens, int64_t count)
{
    while (r->done < count) {
        ttt__span *span = next_span(e, r->position + r->done, count - r->done);
        const ttt_program *program = span == NULL ? *token_program(e) : span->program;
        hlo_shape shape = span == NULL ? HLO_SHAPE(HLO_S32, 1) : HLO_SHAPE(HLO_S32, 1, span->size);
        PJRT_TRY(
            advance(e, program, r->states, shape, HLO_SPEC(NULL), tokens + r->done, &r->logits));
        r->done += span == NULL ? 1 : span->size;
    }
    return NULL;
}

/* Reads, and waits until it is done: what fails on a device fails here. */
static pjrt_status *read_and_wait(ttt_engine *e, reading *r, const int32_t *tokens, int64_t count,
                                  float *logits)
{
    pjrt_status *st = read_tokens(e, r, tokens, count);
    if (st == NULL)
        st = logits == NULL ? ttt_array_wait(r->logits)
                            : ttt_array_download(r->logits, logits, ttt_array_bytes(r->logits));
    ttt_array_free(r->logits);
    return st;
}

static pjrt_status *feed_only_slot(ttt_engine *e, const int32_t *tokens, int64_t count,
                                   float *logits)
{
    reading r = {.states = e->all, .position = e->slots[0].position};
    pjrt_status *st = read_and_wait(e, &r, tokens, count, logits);
    if (st != NULL && (r.done > 0 || !alive(e, e->all)))
        lose_all(e);
    return st;
}

static pjrt_status *feed_slot(ttt_engine *e, int64_t slot, const int32_t *tokens, int64_t count,
                              float *logits)
{
    reading r = {.position = e->slots[slot].position};
    PJRT_TRY(ttt__engine_list(e, &r.states));
    pjrt_status *st = ttt__engine_copy(e, slot, r.states);
    if (st == NULL)
        st = read_and_wait(e, &r, tokens, count, logits);
    if (st == NULL)
        st = ttt__engine_put(e, slot, r.states);
    ttt__engine_drop(e, r.states);
    free(r.states);
    return st;
}

pjrt_status *ttt_engine_feed(ttt_engine *e, int64_t slot, const int32_t *tokens, int64_t count,
                             float *logits)
{
    PJRT_TRY(ttt__engine_check(e, slot, true));
    if (count < 1)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "there are no tokens to read");
    PJRT_TRY(check_room(e, slot, count));
    for (int64_t i = 0; i < count; i++)
        PJRT_TRY(check_token(e, tokens[i], i));
    PJRT_TRY(ttt_engine_prepare(e, slot, count));
    PJRT_TRY(e->batch == 1 ? feed_only_slot(e, tokens, count, logits)
                           : feed_slot(e, slot, tokens, count, logits));
    e->slots[slot].position += count;
    return NULL;
}

/* ---- one token of every slot -------------------------------------------------------------------
 */

static pjrt_status *check_step(const ttt_engine *e, const int32_t *tokens)
{
    bool any = false;
    for (int64_t i = 0; i < e->batch; i++) {
        if (tokens[i] == -1)
            continue;
        PJRT_TRY(ttt__engine_check(e, i, true));
        PJRT_TRY(check_token(e, tokens[i], i));
        PJRT_TRY(check_room(e, i, 1));
        any = true;
    }
    return any ? NULL : PJRT_FAIL(INVALID_ARGUMENT, call, "no slot has a token");
}

static pjrt_status *step(ttt_engine *e, const int32_t *tokens, int32_t *ids, float *logits)
{
    ttt_array *result = NULL;
    for (int64_t i = 0; i < e->batch; i++)
        ids[i] = tokens[i] < 0 ? 0 : tokens[i];
    pjrt_status *st =
        advance(e, e->step, e->all, HLO_SHAPE(HLO_S32, e->batch), e->spec, ids, &result);
    bool ran = st == NULL;
    if (ran)
        st = ttt_array_download(result, logits, ttt_array_bytes(result));
    ttt_array_free(result);
    if (st != NULL && (ran || !alive(e, e->all)))
        lose_all(e);
    return st;
}

pjrt_status *ttt_engine_step(ttt_engine *e, const int32_t *tokens, float *logits)
{
    PJRT_TRY(check_step(e, tokens));
    int32_t *ids = malloc((size_t)e->batch * sizeof *ids);
    if (ids == NULL)
        return PJRT_NO_MEMORY(call);
    pjrt_status *st = step(e, tokens, ids, logits);
    free(ids);
    for (int64_t i = 0; i < e->batch && st == NULL; i++) {
        e->slots[i].position++;
        e->slots[i].lost |= tokens[i] < 0;
    }
    return st;
}
