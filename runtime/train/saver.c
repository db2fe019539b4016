/* Checkpoints written beside training: the state is copied, and a thread does the rest. */
#include "runtime/base/threads.h"
#include "runtime/device/internal.h"
#include "runtime/train/train_arrays.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "checkpoint";

struct ttt__saver {
    ttt__checkpoint_dir *store;
    const ttt_config *config;
    const ttt_params *params;
    float **copies; /* TTT__SETS x params, allocated when first needed and kept */
    ttt__checkpoint_shards
        pieces; /* of several processes instead: those of this one have their copies */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* under the mutex */
    bool busy, told, quit;
    int64_t step;
    json_t *training;
    ttt__saved last;
};

static void write_one(ttt__saver *s)
{
    int count = s->params->count;
    ttt__snapshot snapshot = {
        .step = s->step, .config = s->config, .params = s->params, .training = s->training};
    for (int i = 0; i < TTT__SETS; i++)
        snapshot.sets[i] = (const float *const *)s->copies + i * count;
    snapshot.pieces = s->pieces.list;
    snapshot.n_pieces = s->pieces.count;
    double start = ttt__seconds();
    s->last =
        (ttt__saved){.step = s->step, .failed = ttt__checkpoint_dir_write(s->store, &snapshot)};
    s->last.seconds = ttt__seconds() - start;
    const pjrt_status *trouble = ttt__checkpoint_dir_trouble(s->store);
    if (trouble != NULL)
        s->last.trouble = pjrt_status_copy(trouble);
}

/* Nobody touches the copies while `busy`, so they are written without the mutex. */
static void *work(void *ctx)
{
    ttt__saver *s = ctx;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->busy && !s->quit)
            pthread_cond_wait(&s->changed, &s->mutex);
        if (!s->busy)
            break;
        pthread_mutex_unlock(&s->mutex);
        write_one(s);
        pthread_mutex_lock(&s->mutex);
        json_decref(s->training);
        s->training = NULL;
        s->busy = s->told = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static pjrt_status *copy_pieces(ttt__saver *s, const ttt__train_arrays *state)
{
    for (int i = 0; i < s->pieces.count; i++) {
        ttt__checkpoint_shard *p = &s->pieces.list[i];
        int rank = s->params->list[p->param].shape.rank;
        size_t size = (size_t)ttt__block_elements(&p->block, rank) * sizeof(float);
        if (p->process != ttt_job_rank(state->devices->job))
            continue;
        if (p->values == NULL && (p->values = malloc(size + 1)) == NULL)
            return PJRT_NO_MEMORY(call);
        PJRT_TRY(ttt__array_part(state->arrays[p->set * s->params->count + p->param],
                                 s->pieces.devices[i], p->values, size));
    }
    return NULL;
}

/* ---- life --------------------------------------------------------------------------------------
 */

pjrt_status *ttt__saver_new(ttt__checkpoint_dir *store, const ttt_config *config,
                            const ttt_params *params, const ttt_devices *devs, ttt__saver **out)
{
    *out = NULL;
    ttt__saver *s = calloc(1, sizeof *s);
    if (s == NULL)
        return PJRT_NO_MEMORY(call);
    *s = (ttt__saver){.store = store, .config = config, .params = params, .told = true};
    s->copies = calloc((size_t)(TTT__SETS * params->count), sizeof *s->copies);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    pjrt_status *st = s->copies == NULL ? PJRT_NO_MEMORY(call) : NULL;
    if (st == NULL && ttt_job_size(devs->job) > 1)
        st = ttt__checkpoint_shards_new(devs, params, &s->pieces);
    if (st == NULL)
        st = ttt__thread_start(&s->thread, work, s);
    s->started = st == NULL;
    if (st != NULL) {
        ttt__saver_free(s);
        return st;
    }
    *out = s;
    return NULL;
}

/* What nobody asked for. */
static void forget_last(ttt__saver *s)
{
    if (!s->told) {
        pjrt_status_free(s->last.failed);
        pjrt_status_free(s->last.trouble);
    }
    s->last = (ttt__saved){0};
}

void ttt__saver_free(ttt__saver *s)
{
    if (s == NULL)
        return;
    if (s->started) {
        pthread_mutex_lock(&s->mutex);
        s->quit = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->thread, NULL);
    }
    forget_last(s);
    for (int i = 0; s->copies != NULL && i < TTT__SETS * s->params->count; i++)
        free(s->copies[i]);
    for (int i = 0; i < s->pieces.count; i++)
        free(s->pieces.list[i].values);
    ttt__checkpoint_shards_free(&s->pieces);
    free(s->copies);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    free(s);
}

static pjrt_status *copy_state(ttt__saver *s, const ttt__train_arrays *state)
{
    if (s->pieces.list != NULL)
        return copy_pieces(s, state);
    for (int i = 0; i < state->n - 1; i++) {
        size_t size = ttt_array_bytes(state->arrays[i]);
        if (s->copies[i] == NULL && (s->copies[i] = malloc(size)) == NULL)
            return PJRT_NO_MEMORY(call);
        PJRT_TRY(ttt_array_download(state->arrays[i], s->copies[i], size));
    }
    return NULL;
}

static void wait_until_free(ttt__saver *s)
{
    pthread_mutex_lock(&s->mutex);
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

pjrt_status *ttt__saver_put(ttt__saver *s, const ttt__train_arrays *state, int64_t step,
                            json_t *training)
{
    wait_until_free(s);
    pjrt_status *st = training == NULL ? PJRT_NO_MEMORY(call) : copy_state(s, state);
    if (st != NULL) {
        json_decref(training);
        return st;
    }
    pthread_mutex_lock(&s->mutex);
    forget_last(s);
    s->step = step;
    s->training = training;
    s->told = s->busy = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

bool ttt__saver_done(ttt__saver *s, bool wait, ttt__saved *saved)
{
    if (wait)
        wait_until_free(s);
    pthread_mutex_lock(&s->mutex);
    bool news = !s->busy && !s->told;
    if (news) {
        *saved = s->last;
        s->told = true;
    }
    pthread_mutex_unlock(&s->mutex);
    return news;
}
