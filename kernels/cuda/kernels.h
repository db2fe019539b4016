/* Private to kernels/cuda: the list of kernels, the CUDA driver that launches them, call frames. */
#ifndef KERNELS_CUDA_KERNELS_H
#define KERNELS_CUDA_KERNELS_H

#include "kernels/cuda/args.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- kernels -----------------------------------------------------------------------------------
 */

typedef enum cuda_operation {
    CUDA_STEP,
    CUDA_SCAN,
} cuda_operation;

typedef struct cuda_kernel {
    const char *name;
    cuda_operation operation;
    int layers, lanes;  /* 0 where it does not matter; a convolution's lanes are its width */
    int size;           /* of a step: bytes of an element of the state; of a scan: terms */
    int most;           /* tokens of a scan's mini-batch, channels of a gate; 0: any */
    int threads, parts; /* of a block; blocks of a cluster, 1 for none */
    size_t shared;      /* bytes of a block */
} cuda_kernel;

/* All of them. */
const cuda_kernel *cuda_kernels(size_t *count);
/* The one for a call, or NULL; where a cluster is possible it is taken. */
const cuda_kernel *cuda_kernel_for(cuda_operation operation, int layers, int lanes, int size,
                                   int amount, bool clusters);

/* ---- the driver --------------------------------------------------------------------------------
 * Found when it is first needed, so that programs are compiled on machines without one. Each gives
 * NULL, or what went wrong in one line that stays until the thread's next call.
 */
const char *cuda_open(void);
/* Whether the device of the current context has clusters. */
const char *cuda_has_clusters(bool *clusters);
/* Queues `blocks` blocks on the stream; `args` is the kernel's one argument. */
const char *cuda_launch(const cuda_kernel *kernel, void *stream, size_t blocks, void *args);

#endif
