/* Private to kernels: items of work spread over the threads that XLA runs programs on. */
#ifndef KERNELS_CPU_PARALLEL_H
#define KERNELS_CPU_PARALLEL_H

#include "kernels/ffi.h"

/* `worker` is below parallel_workers' answer, and no two items run at once with the same. */
typedef void (*parallel_body)(void *ctx, int64_t item, int worker);

/* How many threads may work on that many items, the calling one among them: at least 1. */
int parallel_workers(const ffi_call *c, int64_t items);
/* Returns when all items are done. The calling thread takes part, so it never waits for a thread
 * that has not come; without a pool it does everything. */
void parallel_run(const ffi_call *c, int workers, int64_t items, parallel_body body, void *ctx);

#endif
