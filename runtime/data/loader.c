/*
 * Batches of a dataset, assembled ahead of time by a background thread. They live in a ring with
 * one slot more than the number of batches ahead, so the batch the caller reads is never written.
 */
#include "runtime/data/data.h"

#include <stdlib.h>
#include <string.h>

static const char where[] = "loader";

enum { AHEAD = 4, MAX_AHEAD = 1024 };

struct ttt_loader {
    const ttt_dataset *data;
    ttt_loader_options options;
    int64_t *which;         /* rows of a batch to assemble; NULL: `rows` rows from first_row */
    int64_t samples, start; /* `start`: position of the first batch */
    int32_t bos;
    int slots;
    int32_t *tokens, *labels; /* [slots, rows, time] */
    uint8_t *resets;
    int32_t *sample; /* [time + 1], used by the thread only */
    pthread_t thread;
    bool started;
    atomic_bool stop;
    pthread_mutex_t mutex; /* guards all fields below */
    pthread_cond_t changed;
    int64_t made, taken; /* batches since creation */
    double waited;
    pjrt_status *failed; /* why the thread stopped */
};

/* ---- assembling batches ---- */

int64_t ttt_loader_sample(const ttt_loader *loader, int64_t row)
{
    int64_t at = row % loader->samples;
    if (loader->options.in_order)
        return at;
    return (int64_t)ttt__permute(loader->options.seed, (uint64_t)(row / loader->samples),
                                 (uint64_t)loader->samples, (uint64_t)at);
}

/* Offset of a batch's slot in the ring, in elements. */
static size_t slot_of(const ttt_loader *loader, int64_t batch)
{
    return (size_t)(batch % loader->slots) * (size_t)loader->options.rows *
           (size_t)loader->options.time;
}

static pjrt_status *fill_row(ttt_loader *loader, int64_t row, size_t to)
{
    int64_t time = loader->options.time;
    int64_t first = ttt_loader_sample(loader, row) * time;
    PJRT_TRY(ttt_dataset_read(loader->data, first, time + 1, loader->sample));
    memcpy(loader->tokens + to, loader->sample, (size_t)time * sizeof(int32_t));
    memcpy(loader->labels + to, loader->sample + 1, (size_t)time * sizeof(int32_t));
    for (int64_t i = 0; loader->resets != NULL && i < time; i++)
        loader->resets[to + (size_t)i] = loader->sample[i] == loader->bos;
    return NULL;
}

static pjrt_status *fill_batch(ttt_loader *loader, int64_t batch)
{
    const ttt_loader_options *o = &loader->options;
    int64_t position, end;
    if (__builtin_mul_overflow(batch, o->batch, &position) ||
        __builtin_add_overflow(position, loader->start, &position) ||
        __builtin_add_overflow(position, o->batch, &end))
        return PJRT_FAIL(OUT_OF_RANGE, where, "the row counter would overflow");
    size_t to = slot_of(loader, batch);
    for (int64_t r = 0; r < o->rows && !atomic_load(&loader->stop); r++) {
        int64_t row = loader->which == NULL ? o->first_row + r : loader->which[r];
        PJRT_TRY(fill_row(loader, position + row, to));
        to += (size_t)o->time;
    }
    return NULL;
}

/* Waits for a free slot. False if the loader is shutting down. */
static bool wait_for_room(ttt_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    /* The caller still reads the batch it took last, so its slot is not free. */
    while (!atomic_load(&loader->stop) &&
           loader->made - (loader->taken > 0 ? loader->taken - 1 : 0) == loader->slots)
        pthread_cond_wait(&loader->changed, &loader->mutex);
    pthread_mutex_unlock(&loader->mutex);
    return !atomic_load(&loader->stop);
}

static void *work(void *arg)
{
    ttt_loader *loader = arg;
    pjrt_status *st = NULL;
    for (int64_t batch = 0; st == NULL && wait_for_room(loader); batch++) {
        st = fill_batch(loader, batch);
        pthread_mutex_lock(&loader->mutex);
        loader->made += st == NULL;
        loader->failed = st;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
    }
    return NULL;
}

/* ---- creation ---- */

static pjrt_status *check(const ttt_dataset *data, const ttt_loader_options *o, int64_t position)
{
    const ttt_dataset_about *about = ttt_dataset_info(data);
    if (o->time < 1 || o->batch < 1 || o->rows < 1 || o->first_row < 0 || o->rows > o->batch ||
        o->first_row > o->batch - o->rows)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "rows = %lld from first_row = %lld: outside a batch of %lld x %lld tokens",
                         (long long)o->rows, (long long)o->first_row, (long long)o->batch,
                         (long long)o->time);
    for (int64_t r = 0; o->which != NULL && r < o->rows; r++) {
        if (o->which[r] < 0 || o->which[r] >= o->batch)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "a batch of %lld has no row %lld",
                             (long long)o->batch, (long long)o->which[r]);
    }
    if (o->ahead < 0 || o->ahead > MAX_AHEAD)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%d batches ahead: must be 1 to %d", o->ahead,
                         MAX_AHEAD);
    if (position < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "position %lld: must not be negative",
                         (long long)position);
    if (about->tokens <= o->time)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "the data has %lld tokens, but a sample of %lld needs one more than that: "
                         "prepare more text or use shorter samples",
                         (long long)about->tokens, (long long)o->time);
    if (o->resets && about->bos < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "resets need a tokenizer with a BOS token; this one has none");
    return NULL;
}

static pjrt_status *allocate(ttt_loader *loader)
{
    const ttt_loader_options *o = &loader->options;
    size_t elements;
    if (__builtin_mul_overflow((size_t)o->rows, (size_t)o->time, &elements) ||
        __builtin_mul_overflow((size_t)loader->slots, elements, &elements) ||
        elements > PTRDIFF_MAX / sizeof(int32_t))
        return PJRT_FAIL(RESOURCE_EXHAUSTED, where,
                         "batches of %lld rows of %lld tokens: too large", (long long)o->rows,
                         (long long)o->time);
    loader->tokens = malloc(elements * sizeof(int32_t));
    loader->labels = malloc(elements * sizeof(int32_t));
    loader->sample = malloc(((size_t)o->time + 1) * sizeof(int32_t));
    if (o->resets)
        loader->resets = malloc(elements);
    if (o->which != NULL) {
        loader->which = malloc((size_t)o->rows * sizeof *loader->which);
        if (loader->which == NULL)
            return PJRT_NO_MEMORY(where);
        memcpy(loader->which, o->which, (size_t)o->rows * sizeof *loader->which);
    }
    if (loader->tokens == NULL || loader->labels == NULL || loader->sample == NULL ||
        (o->resets && loader->resets == NULL))
        return PJRT_NO_MEMORY(where);
    return NULL;
}

pjrt_status *ttt_loader_new(const ttt_dataset *data, const ttt_loader_options *options,
                            int64_t position, ttt_loader **out)
{
    *out = NULL;
    PJRT_TRY(check(data, options, position));
    ttt_loader *loader = calloc(1, sizeof *loader);
    if (loader == NULL)
        return PJRT_NO_MEMORY(where);
    loader->data = data;
    loader->options = *options;
    loader->samples = (ttt_dataset_info(data)->tokens - 1) / options->time;
    loader->start = position;
    loader->bos = ttt_dataset_info(data)->bos;
    loader->slots = (options->ahead == 0 ? AHEAD : options->ahead) + 1;
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, NULL);
    pjrt_status *st = allocate(loader);
    if (st == NULL) {
        st = ttt__thread_start(&loader->thread, work, loader);
        loader->started = st == NULL;
    }
    if (st != NULL)
        ttt_loader_free(loader);
    else
        *out = loader;
    return st;
}

void ttt_loader_free(ttt_loader *loader)
{
    if (loader == NULL)
        return;
    if (loader->started) {
        pthread_mutex_lock(&loader->mutex);
        atomic_store(&loader->stop, true);
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
        pthread_join(loader->thread, NULL);
    }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
    pjrt_status_free(loader->failed);
    free(loader->resets);
    free(loader->sample);
    free(loader->labels);
    free(loader->tokens);
    free(loader->which);
    free(loader);
}

/* ---- batches ---- */

pjrt_status *ttt_loader_next(ttt_loader *loader, ttt_batch *batch)
{
    pjrt_status *st = NULL;
    *batch = (ttt_batch){0};
    pthread_mutex_lock(&loader->mutex);
    if (loader->made == loader->taken && loader->failed == NULL) {
        double began = ttt__seconds();
        while (loader->made == loader->taken && loader->failed == NULL)
            pthread_cond_wait(&loader->changed, &loader->mutex);
        loader->waited += ttt__seconds() - began;
    }
    if (loader->made == loader->taken) {
        st = pjrt_status_copy(loader->failed);
    } else {
        size_t at = slot_of(loader, loader->taken);
        *batch = (ttt_batch){
            .position = loader->start + loader->taken * loader->options.batch,
            .tokens = loader->tokens + at,
            .labels = loader->labels + at,
            .resets = loader->resets == NULL ? NULL : loader->resets + at,
        };
        loader->taken++;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return st;
}

int64_t ttt_loader_samples(const ttt_loader *loader)
{
    return loader->samples;
}

double ttt_loader_waited(const ttt_loader *loader)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&loader->mutex;
    pthread_mutex_lock(mutex);
    double waited = loader->waited;
    pthread_mutex_unlock(mutex);
    return waited;
}
