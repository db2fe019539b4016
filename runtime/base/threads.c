/* Threads and clocks, as the rest of the room wants them. */
#include "runtime/base/threads.h"

#include <signal.h>
#include <string.h>
#include <time.h>

pjrt_status *ttt__thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? NULL
                       : PJRT_FAIL(RESOURCE_EXHAUSTED, "thread", "no thread could be started: %s",
                                   strerror(failed));
}

void ttt__condition_start(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

double ttt__seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
