/* Processes that fail together, and do not wait for what never comes. */
#include "runtime/cluster/agree.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char call[] = "processes";

/* ---- how it went -------------------------------------------------------------------------------
 */

enum { TEXT = 600 };

typedef struct outcome {
    int32_t code; /* a pjrt_code; 0: well */
    char text[TEXT];
} outcome;

/* The failure of process `rank`, for this one. */
static pjrt_status *failure_of(const ttt_job *job, int rank, const outcome *o)
{
    return pjrt_status_make((pjrt_code)o->code, call, __FILE__, __LINE__, "%s: %.*s",
                            ttt_job_name(job, rank), TEXT - 1, o->text);
}

/* All outcomes are the same in every process, and so is the choice: the first that failed. */
static pjrt_status *judge(const ttt_job *job, const outcome *all, pjrt_status *mine)
{
    for (int r = 0; r < ttt_job_size(job); r++) {
        if (all[r].code == PJRT_CODE_OK)
            continue;
        if (mine != NULL && r == ttt_job_rank(job))
            return mine;
        pjrt_status_free(mine);
        return failure_of(job, r, &all[r]);
    }
    return mine;
}

static void meeting_name(ttt__agreements *m, const char *what, char name[64])
{
    snprintf(name, 64, "%s.%lld.%s", m->name, (long long)m->count, what);
}

pjrt_status *ttt__agree(ttt__agreements *m, pjrt_status *mine)
{
    char name[64];
    outcome own = {.code = (int32_t)pjrt_status_code(mine)};
    void *all = NULL;
    if (m == NULL || ttt_job_size(m->job) == 1)
        return mine;
    m->count++;
    meeting_name(m, "went", name);
    if (mine != NULL)
        snprintf(own.text, sizeof own.text, "%s", pjrt_status_message(mine));
    pjrt_status *st = ttt_job_gather(m->job, name, &own, sizeof own, &all);
    if (st == NULL)
        st = judge(m->job, all, mine);
    else
        pjrt_status_free(mine); /* who is lost is what matters to all */
    free(all);
    return st;
}

pjrt_status *ttt__agree_reported(ttt__agreements *m, pjrt_status *mine, void *bytes, size_t size)
{
    char name[64];
    void *all;
    PJRT_TRY(ttt__agree(m, mine));
    if (m == NULL || ttt_job_size(m->job) == 1)
        return NULL;
    meeting_name(m, "told", name);
    PJRT_TRY(ttt_job_gather(m->job, name, bytes, size, &all)); /* a broadcast is kept for good */
    if (size > 0)
        memcpy(bytes, all, size);
    free(all);
    return NULL;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

enum { LOOK_AGAIN = 200 }; /* milliseconds after which others are asked for */

/* Shared by the one who waits and the one who is waited for; the last frees it. */
typedef struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int users;
    bool done;
    pjrt_status *failed;
} waiting;

/* Gives up a use, with the mutex held. */
static void leave(waiting *w)
{
    bool last = --w->users == 0;
    pthread_mutex_unlock(&w->mutex);
    if (!last)
        return;
    pjrt_status_free(w->failed);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

static void ready(pjrt_status *st, void *user)
{
    waiting *w = user;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    w->failed = st;
    pthread_cond_signal(&w->changed);
    leave(w);
}

static waiting *new_waiting(void)
{
    waiting *w = calloc(1, sizeof *w);
    pthread_condattr_t clock;
    if (w == NULL)
        return NULL;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, &clock);
    pthread_condattr_destroy(&clock);
    w->users = 2;
    return w;
}

/* With the mutex held, which others need not wait for while the world is asked. */
static pjrt_status *wait_and_look(waiting *w, ttt_job *job)
{
    while (!w->done) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_AGAIN * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&w->changed, &w->mutex, &until);
        if (w->done)
            break;
        pthread_mutex_unlock(&w->mutex);
        pjrt_status *lost = ttt_job_check(job);
        pthread_mutex_lock(&w->mutex);
        if (lost != NULL)
            return lost;
    }
    pjrt_status *st = w->failed;
    w->failed = NULL;
    return st;
}

/* A device that gives up may do so because of who is lost: that says more. */
static pjrt_status *explain(ttt_job *job, pjrt_status *st)
{
    pjrt_status *lost = st == NULL ? NULL : ttt_job_check(job);
    if (lost == NULL)
        return st;
    pjrt_status_free(st);
    return lost;
}

pjrt_status *ttt__wait_for(ttt_job *job, pjrt_buffer *buffer)
{
    pjrt_event *event;
    PJRT_TRY(pjrt_buffer_ready(buffer, &event));
    if (job == NULL) {
        pjrt_status *st = pjrt_event_wait(event);
        pjrt_event_free(event);
        return st;
    }
    waiting *w = new_waiting();
    pjrt_status *st = w == NULL ? PJRT_NO_MEMORY(call) : pjrt_event_on_ready(event, ready, w);
    pjrt_event_free(event);
    if (w == NULL)
        return st;
    pthread_mutex_lock(&w->mutex);
    if (st != NULL)
        w->users--; /* it will not be called */
    else
        st = wait_and_look(w, job);
    leave(w);
    return explain(job, st);
}
