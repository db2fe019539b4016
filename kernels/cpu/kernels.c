/* The CPU's handlers, by name. */
#include "kernels/cpu/handlers.h"
#include "kernels/ttt_kernels.h"

#include <pthread.h>
#include <string.h>

static ttt_kernel list[4];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static ttt_kernel kernel(const char *target, XLA_FFI_Handler *handler)
{
    ttt_kernel made = {.target = target};
    memcpy(&made.handler, &handler, sizeof handler); /* a function as data: not by a cast */
    return made;
}

static void fill(void)
{
    list[0] = kernel("ttt_step", handle_step);
    list[1] = kernel("ttt_product", handle_product);
    list[2] = kernel("ttt_scan", handle_scan);
    list[3] = kernel("ttt_scan_backward", handle_scan_backward);
}

const ttt_kernel *ttt_kernels_cpu(size_t *count)
{
    pthread_once(&once, fill);
    *count = sizeof list / sizeof *list;
    return list;
}
