/*
 * One reader, several workers and a ring of units. Unit i lives in slot i mod n; a slot goes from
 * empty to read to encoded and back to empty.
 */
#include "runtime/data/prepare.h"

#include <stdlib.h>
#include <time.h>

static const char where[] = "data";

typedef struct slot {
    ttt__unit unit;
    bool encoded;
} slot;

typedef struct worker {
    ttt__pipeline *pipeline;
    ttt_encoder *encoder;
    pthread_t thread;
} worker;

struct ttt__pipeline {
    ttt__splitter *splitter;
    ttt__encoding how;
    slot *slots;
    worker *workers;
    int n_slots, n_workers, started;
    pthread_t reader;
    bool reading; /* the reader thread was started */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t read, taken, done; /* counts of units read, claimed by workers, released by the
                                * caller */
    bool stop;
};

static ttt__unit *unit_of(ttt__pipeline *pipeline, int64_t number)
{
    return &pipeline->slots[number % pipeline->n_slots].unit;
}

/* ---- the threads ---- */

static void *run_reader(void *arg)
{
    ttt__pipeline *pipeline = arg;
    bool more = true;
    while (more) {
        pthread_mutex_lock(&pipeline->mutex);
        while (!pipeline->stop && pipeline->read - pipeline->done == pipeline->n_slots)
            pthread_cond_wait(&pipeline->changed, &pipeline->mutex);
        bool stop = pipeline->stop;
        int64_t number = pipeline->read;
        pthread_mutex_unlock(&pipeline->mutex);
        if (stop)
            break;
        ttt__unit *unit = unit_of(pipeline, number);
        ttt__unit_clear(unit);
        unit->failed = ttt__splitter_next(pipeline->splitter, unit);
        more = unit->failed == NULL && !unit->end;
        pthread_mutex_lock(&pipeline->mutex);
        pipeline->slots[number % pipeline->n_slots].encoded = false;
        pipeline->read++;
        pthread_cond_broadcast(&pipeline->changed);
        pthread_mutex_unlock(&pipeline->mutex);
    }
    return NULL;
}

/* The number of the next unit to encode, or -1 at the end. */
static int64_t take(ttt__pipeline *pipeline)
{
    int64_t number = -1;
    pthread_mutex_lock(&pipeline->mutex);
    while (!pipeline->stop && pipeline->taken == pipeline->read)
        pthread_cond_wait(&pipeline->changed, &pipeline->mutex);
    if (!pipeline->stop)
        number = pipeline->taken++;
    pthread_mutex_unlock(&pipeline->mutex);
    return number;
}

static void *run_worker(void *arg)
{
    worker *self = arg;
    ttt__pipeline *pipeline = self->pipeline;
    ttt_ids ids = {0};
    for (int64_t number; (number = take(pipeline)) >= 0;) {
        ttt__unit *unit = unit_of(pipeline, number);
        if (unit->failed == NULL && !unit->end)
            unit->failed = ttt__unit_encode(&pipeline->how, self->encoder, &ids, unit);
        if (ids.room > 4 * (size_t)TTT__UNIT) { /* give back memory after a very long line */
            free(ids.list);
            ids = (ttt_ids){0};
        }
        pthread_mutex_lock(&pipeline->mutex);
        pipeline->slots[number % pipeline->n_slots].encoded = true;
        pthread_cond_broadcast(&pipeline->changed);
        pthread_mutex_unlock(&pipeline->mutex);
    }
    free(ids.list);
    return NULL;
}

/* ---- creation ---- */

static pjrt_status *start(ttt__pipeline *pipeline)
{
    for (int i = 0; i < pipeline->n_workers; i++)
        PJRT_TRY(ttt_encoder_new(pipeline->how.tokenizer, &pipeline->workers[i].encoder));
    for (; pipeline->started < pipeline->n_workers; pipeline->started++) {
        worker *w = &pipeline->workers[pipeline->started];
        w->pipeline = pipeline;
        PJRT_TRY(ttt__thread_start(&w->thread, run_worker, w));
    }
    PJRT_TRY(ttt__thread_start(&pipeline->reader, run_reader, pipeline));
    pipeline->reading = true;
    return NULL;
}

pjrt_status *ttt__pipeline_new(ttt__splitter *splitter, const ttt__encoding *how, int threads,
                               ttt__pipeline **out)
{
    *out = NULL;
    ttt__pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (pipeline == NULL)
        return PJRT_NO_MEMORY(where);
    pipeline->splitter = splitter;
    pipeline->how = *how;
    pipeline->n_workers = threads;
    pipeline->n_slots = 2 * threads + 2;
    pthread_mutex_init(&pipeline->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pipeline->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pipeline->slots = calloc((size_t)pipeline->n_slots, sizeof *pipeline->slots);
    pipeline->workers = calloc((size_t)threads, sizeof *pipeline->workers);
    pjrt_status *st =
        pipeline->slots == NULL || pipeline->workers == NULL ? PJRT_NO_MEMORY(where) : NULL;
    if (st == NULL)
        st = start(pipeline);
    if (st != NULL)
        ttt__pipeline_free(pipeline);
    else
        *out = pipeline;
    return st;
}

void ttt__pipeline_free(ttt__pipeline *pipeline)
{
    if (pipeline == NULL)
        return;
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->stop = true;
    pthread_cond_broadcast(&pipeline->changed);
    pthread_mutex_unlock(&pipeline->mutex);
    if (pipeline->reading)
        pthread_join(pipeline->reader, NULL);
    for (int i = 0; i < pipeline->started; i++)
        pthread_join(pipeline->workers[i].thread, NULL);
    for (int i = 0; pipeline->workers != NULL && i < pipeline->n_workers; i++)
        ttt_encoder_free(pipeline->workers[i].encoder);
    for (int i = 0; pipeline->slots != NULL && i < pipeline->n_slots; i++)
        ttt__unit_free(&pipeline->slots[i].unit);
    pthread_cond_destroy(&pipeline->changed);
    pthread_mutex_destroy(&pipeline->mutex);
    free(pipeline->workers);
    free(pipeline->slots);
    free(pipeline);
}

ttt__unit *ttt__pipeline_next(ttt__pipeline *pipeline)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 200 * 1000 * 1000;
    until.tv_sec += until.tv_nsec / (1000 * 1000 * 1000);
    until.tv_nsec %= 1000 * 1000 * 1000;
    int waited = 0;
    pthread_mutex_lock(&pipeline->mutex);
    slot *first = &pipeline->slots[pipeline->done % pipeline->n_slots];
    while (waited == 0 && (pipeline->read == pipeline->done || !first->encoded))
        waited = pthread_cond_timedwait(&pipeline->changed, &pipeline->mutex, &until);
    bool ready = pipeline->read > pipeline->done && first->encoded;
    pthread_mutex_unlock(&pipeline->mutex);
    return ready ? &first->unit : NULL;
}

void ttt__pipeline_release(ttt__pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->done++;
    pthread_cond_broadcast(&pipeline->changed);
    pthread_mutex_unlock(&pipeline->mutex);
}
