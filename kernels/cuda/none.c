/* A build without CUDA's compiler. */
#include "kernels/ttt_kernels.h"

static const char none[] =
    "this build has no CUDA kernels: put nvcc of CUDA 12 or later on PATH and build again";

const ttt_kernel *ttt_kernels_cuda(size_t *count, const char **why)
{
    *count = 0;
    *why = none;
    return NULL;
}

const char *ttt_kernels_cuda_driver(void)
{
    return none;
}
