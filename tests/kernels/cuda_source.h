/* The kernels, compiled for the host: the very source that nvcc is given. */
#ifndef TESTS_KERNELS_CUDA_SOURCE_H
#define TESTS_KERNELS_CUDA_SOURCE_H

#include "kernels/cuda/kernels.cu"

#endif
