/*
 * Work is taken item by item from a counter. Tasks that the pool starts late find nothing left and
 * only put down their hold on the crew, which therefore lives on the heap: the caller returns when
 * the items are done, not when the tasks have run. Waiting for tasks could wait for ever, for the
 * caller may be the pool's only thread.
 */
#include "kernels/cpu/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MAX_WORKERS = 256, SPINS = 4000 };

typedef struct crew {
    atomic_int holds; /* the caller, and each task not yet over */
    atomic_int joined;
    atomic_llong next, done;
    int64_t items;
    parallel_body body;
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t all_done;
} crew;

static bool has_pool(const XLA_FFI_Api *api)
{
    return api->struct_size >= offsetof(XLA_FFI_Api, XLA_FFI_Future_Create) &&
           api->XLA_FFI_ThreadPool_Schedule != NULL && api->XLA_FFI_ThreadPool_NumThreads != NULL;
}

/* Whether it went well; why not is of no interest, for the work is done anyway. */
static bool went_well(const XLA_FFI_Api *api, XLA_FFI_Error *error)
{
    if (error == NULL)
        return true;
    XLA_FFI_Error_Destroy_Args args = {.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE,
                                       .error = error};
    api->XLA_FFI_Error_Destroy(&args);
    return false;
}

int parallel_workers(const ffi_call *c, int64_t items)
{
    const XLA_FFI_Api *api = c->frame->api;
    int64_t threads = 1;
    XLA_FFI_ThreadPool_NumThreads_Args args = {.struct_size =
                                                   XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE,
                                               .ctx = c->frame->ctx,
                                               .num_threads = &threads};
    if (items < 2 || !has_pool(api) || !went_well(api, api->XLA_FFI_ThreadPool_NumThreads(&args)) ||
        threads < 1)
        return 1;
    threads = threads < items ? threads : items;
    return threads < MAX_WORKERS ? (int)threads : MAX_WORKERS;
}

static void let_go(crew *team)
{
    if (atomic_fetch_sub_explicit(&team->holds, 1, memory_order_acq_rel) != 1)
        return;
    pthread_cond_destroy(&team->all_done);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

static void work(crew *team, int worker)
{
    for (;;) {
        int64_t item = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed);
        if (item >= team->items)
            return;
        team->body(team->ctx, item, worker);
        if (atomic_fetch_add_explicit(&team->done, 1, memory_order_acq_rel) != team->items - 1)
            continue;
        pthread_mutex_lock(&team->lock);
        pthread_cond_signal(&team->all_done);
        pthread_mutex_unlock(&team->lock);
    }
}

static void task(void *data)
{
    crew *team = data;
    work(team, atomic_fetch_add_explicit(&team->joined, 1, memory_order_relaxed));
    let_go(team);
}

static bool finished(crew *team)
{
    return atomic_load_explicit(&team->done, memory_order_acquire) == team->items;
}

/* Items are short or long: turn round for a moment, then sleep. */
static void wait_for(crew *team)
{
    for (int i = 0; i < SPINS; i++) {
        if (finished(team))
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    pthread_mutex_lock(&team->lock);
    while (!finished(team))
        pthread_cond_wait(&team->all_done, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

static crew *crew_new(int64_t items, parallel_body body, void *ctx)
{
    crew *made = malloc(sizeof *made);
    if (made == NULL)
        return NULL;
    if (pthread_mutex_init(&made->lock, NULL) != 0) {
        free(made);
        return NULL;
    }
    if (pthread_cond_init(&made->all_done, NULL) != 0) {
        pthread_mutex_destroy(&made->lock);
        free(made);
        return NULL;
    }
    atomic_init(&made->holds, 1);
    atomic_init(&made->joined, 1);
    atomic_init(&made->next, 0);
    atomic_init(&made->done, 0);
    made->items = items;
    made->body = body;
    made->ctx = ctx;
    return made;
}

void parallel_run(const ffi_call *c, int workers, int64_t items, parallel_body body, void *ctx)
{
    crew *team = workers > 1 && items > 1 ? crew_new(items, body, ctx) : NULL;
    if (team == NULL) {
        for (int64_t i = 0; i < items; i++)
            body(ctx, i, 0);
        return;
    }
    const XLA_FFI_Api *api = c->frame->api;
    for (int i = 1; i < workers; i++) {
        XLA_FFI_ThreadPool_Schedule_Args args = {.struct_size =
                                                     XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE,
                                                 .ctx = c->frame->ctx,
                                                 .task = task,
                                                 .data = team};
        atomic_fetch_add_explicit(&team->holds, 1, memory_order_relaxed);
        if (!went_well(api, api->XLA_FFI_ThreadPool_Schedule(&args)))
            let_go(team);
    }
    work(team, 0);
    wait_for(team);
    let_go(team);
}
