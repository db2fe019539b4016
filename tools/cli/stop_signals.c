/* Signals that ask a command to stop. */
#include "tools/cli/stop_signals.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

atomic_int stopping;
static atomic_int first; /* the signal that told it so first */
static atomic_long when; /* in milliseconds */

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One request may come twice: `timeout` signals a process, and then its group. */
static void on_signal(int number)
{
    enum { SAME_REQUEST = 500 };
    if (atomic_fetch_add(&stopping, 1) == 0) {
        first = number;
        when = milliseconds();
    } else if (number != first || milliseconds() - when > SAME_REQUEST) {
        _exit(128 + number);
    }
}

void stopping_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}
