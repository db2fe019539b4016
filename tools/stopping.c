/* Signals that ask a command to stop. */
#include "tools/stopping.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

atomic_int stopping;

static void on_signal(int number)
{
    if (atomic_fetch_add(&stopping, 1) > 0)
        _exit(128 + number);
}

void stopping_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}
