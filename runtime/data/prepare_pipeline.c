/*
 * The line on which units are made: a reader, some workers, and slots that go round. Units are
 * numbered; number i lies in slot i mod n, and is empty, read, encoded and empty again.
 */
#include "runtime/data/prepare.h"

#include <stdlib.h>
#include <time.h>

static const char call[] = "data";

typedef struct slot {
    ttt__unit unit;
    bool encoded;
} slot;

typedef struct worker {
    ttt__line *line;
    ttt_encoder *encoder;
    pthread_t thread;
} worker;

struct ttt__line {
    ttt__cutter *cutter;
    ttt__encoding how;
    slot *slots;
    worker *workers;
    int n_slots, n_workers, started;
    pthread_t reader;
    bool reading; /* the reader was started */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t read, taken, done; /* units read, taken by workers, given back by the caller */
    bool stop;
};

static ttt__unit *unit_of(ttt__line *line, int64_t number)
{
    return &line->slots[number % line->n_slots].unit;
}

/* ---- the threads -------------------------------------------------------------------------------
 */

static void *run_reader(void *arg)
{
    ttt__line *line = arg;
    bool more = true;
    while (more) {
        pthread_mutex_lock(&line->mutex);
        while (!line->stop && line->read - line->done == line->n_slots)
            pthread_cond_wait(&line->changed, &line->mutex);
        bool stop = line->stop;
        int64_t number = line->read;
        pthread_mutex_unlock(&line->mutex);
        if (stop)
            break;
        ttt__unit *unit = unit_of(line, number);
        ttt__unit_clear(unit);
        unit->failed = ttt__cutter_next(line->cutter, unit);
        more = unit->failed == NULL && !unit->end;
        pthread_mutex_lock(&line->mutex);
        line->slots[number % line->n_slots].encoded = false;
        line->read++;
        pthread_cond_broadcast(&line->changed);
        pthread_mutex_unlock(&line->mutex);
    }
    return NULL;
}

/* The number of a unit to encode, or -1 when there is no more to do. */
static int64_t take(ttt__line *line)
{
    int64_t number = -1;
    pthread_mutex_lock(&line->mutex);
    while (!line->stop && line->taken == line->read)
        pthread_cond_wait(&line->changed, &line->mutex);
    if (!line->stop)
        number = line->taken++;
    pthread_mutex_unlock(&line->mutex);
    return number;
}

static void *run_worker(void *arg)
{
    worker *self = arg;
    ttt__line *line = self->line;
    ttt_ids ids = {0};
    for (int64_t number; (number = take(line)) >= 0;) {
        ttt__unit *unit = unit_of(line, number);
        if (unit->failed == NULL && !unit->end)
            unit->failed = ttt__unit_encode(&line->how, self->encoder, &ids, unit);
        if (ids.room > 4 * (size_t)TTT__UNIT) { /* after an uncommonly long line */
            free(ids.list);
            ids = (ttt_ids){0};
        }
        pthread_mutex_lock(&line->mutex);
        line->slots[number % line->n_slots].encoded = true;
        pthread_cond_broadcast(&line->changed);
        pthread_mutex_unlock(&line->mutex);
    }
    free(ids.list);
    return NULL;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static pjrt_status *start(ttt__line *line)
{
    for (int i = 0; i < line->n_workers; i++)
        PJRT_TRY(ttt_encoder_new(line->how.tokenizer, &line->workers[i].encoder));
    for (; line->started < line->n_workers; line->started++) {
        worker *w = &line->workers[line->started];
        w->line = line;
        PJRT_TRY(ttt__thread_start(&w->thread, run_worker, w));
    }
    PJRT_TRY(ttt__thread_start(&line->reader, run_reader, line));
    line->reading = true;
    return NULL;
}

pjrt_status *ttt__line_new(ttt__cutter *cutter, const ttt__encoding *how, int threads,
                           ttt__line **out)
{
    *out = NULL;
    ttt__line *line = calloc(1, sizeof *line);
    if (line == NULL)
        return PJRT_NO_MEMORY(call);
    line->cutter = cutter;
    line->how = *how;
    line->n_workers = threads;
    line->n_slots = 2 * threads + 2;
    pthread_mutex_init(&line->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&line->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    line->slots = calloc((size_t)line->n_slots, sizeof *line->slots);
    line->workers = calloc((size_t)threads, sizeof *line->workers);
    pjrt_status *st = line->slots == NULL || line->workers == NULL ? PJRT_NO_MEMORY(call) : NULL;
    if (st == NULL)
        st = start(line);
    if (st != NULL)
        ttt__line_free(line);
    else
        *out = line;
    return st;
}

void ttt__line_free(ttt__line *line)
{
    if (line == NULL)
        return;
    pthread_mutex_lock(&line->mutex);
    line->stop = true;
    pthread_cond_broadcast(&line->changed);
    pthread_mutex_unlock(&line->mutex);
    if (line->reading)
        pthread_join(line->reader, NULL);
    for (int i = 0; i < line->started; i++)
        pthread_join(line->workers[i].thread, NULL);
    for (int i = 0; line->workers != NULL && i < line->n_workers; i++)
        ttt_encoder_free(line->workers[i].encoder);
    for (int i = 0; line->slots != NULL && i < line->n_slots; i++)
        ttt__unit_free(&line->slots[i].unit);
    pthread_cond_destroy(&line->changed);
    pthread_mutex_destroy(&line->mutex);
    free(line->workers);
    free(line->slots);
    free(line);
}

ttt__unit *ttt__line_next(ttt__line *line)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 200 * 1000 * 1000;
    until.tv_sec += until.tv_nsec / (1000 * 1000 * 1000);
    until.tv_nsec %= 1000 * 1000 * 1000;
    int waited = 0;
    pthread_mutex_lock(&line->mutex);
    slot *first = &line->slots[line->done % line->n_slots];
    while (waited == 0 && (line->read == line->done || !first->encoded))
        waited = pthread_cond_timedwait(&line->changed, &line->mutex, &until);
    bool ready = line->read > line->done && first->encoded;
    pthread_mutex_unlock(&line->mutex);
    return ready ? &first->unit : NULL;
}

void ttt__line_done(ttt__line *line)
{
    pthread_mutex_lock(&line->mutex);
    line->done++;
    pthread_cond_broadcast(&line->changed);
    pthread_mutex_unlock(&line->mutex);
}
