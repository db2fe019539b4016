/* A CUDA driver without a GPU: launches run on the host's machine. Found as TTT_CUDA_DRIVER. */
#ifndef TESTS_KERNELS_FAKE_CUDA_H
#define TESTS_KERNELS_FAKE_CUDA_H

#include <cstddef>

struct fake_cuda {
    /* What the test says. */
    int major; /* compute capability of the one device */
    int fail;  /* every call but cuInit gives this CUresult */
    void (*array)(const char *name, const void *data, size_t bytes);
    void (*forget)(); /* arrays, errors and launches */
    /* What happened. */
    int launches, captures; /* captures: times that capturing was relaxed and made strict again */
    const char *kernel;
    void *stream;
    int cluster;
    const char *(*error)(); /* of the machine */
};

/* Exported as "fake_cuda_control". */
typedef fake_cuda *fake_cuda_control_function();

#endif
