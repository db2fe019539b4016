/* Private to the runtime room: time that only goes forward. */
#ifndef RUNTIME_CLOCK_H
#define RUNTIME_CLOCK_H

#include <time.h>

static inline double ttt__seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
