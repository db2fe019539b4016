/*
 * NumPy's .npy files, format 1 to 3, for arrays of the types that programs take.
 *
 * bf16, which NumPy does not know, is written as ml_dtypes writes it: two-byte void. Big-endian
 * data, objects and structures are refused.
 */
#ifndef TOOLS_CLI_NPY_H
#define TOOLS_CLI_NPY_H

#include "pjrt/pjrt.h"

typedef struct npy_array {
    pjrt_shape shape;
    bool fortran_order; /* the first dimension varies fastest */
    char *file;         /* the whole file; owned */
    const void *data;   /* into `file` */
    size_t size;
} npy_array;

PJRT_MUST_CHECK pjrt_status *npy_read(const char *path, npy_array *out);
void npy_free(npy_array *array);
/* Dense row-major data. */
PJRT_MUST_CHECK pjrt_status *npy_write(const char *path, const pjrt_shape *shape, const void *data);

#endif
