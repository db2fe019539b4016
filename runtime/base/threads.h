/* Private to the runtime room: threads and time. */
#ifndef RUNTIME_BASE_THREADS_H
#define RUNTIME_BASE_THREADS_H

#include "pjrt/pjrt_status.h"

#include <pthread.h>

/* One that no signal is delivered to: those are for the threads that expect them. */
PJRT_MUST_CHECK pjrt_status *ttt__thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* One whose deadlines are of the clock below. */
void ttt__condition_start(pthread_cond_t *condition);
double ttt__seconds(void); /* of a clock that never goes back */

#endif
