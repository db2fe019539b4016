#include "kernels/cpu/arrays.h"

#include <stdlib.h>

enum { LINE = 64 };

float *arrays_scratch(ffi_call *c, int workers, size_t *each)
{
    size_t per_line = LINE / sizeof(float);
    *each = (*each / per_line + 1) * per_line; /* never nothing, which may be NULL */
    void *made = NULL;
    if (*each > SIZE_MAX / sizeof(float) / (size_t)workers ||
        (made = aligned_alloc(LINE, *each * sizeof(float) * (size_t)workers)) == NULL)
        ffi_fail(c, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
                 "out of memory: %zu floats for each of %d threads", *each, workers);
    return made;
}

void arrays_read(ffi_array from, int64_t at, int64_t n, float *to)
{
    if (from.type == FFI_F32) {
        memcpy(to, (const float *)from.data + at, (size_t)n * sizeof *to);
        return;
    }
    const uint16_t *data = (const uint16_t *)from.data + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = bf16_to_float(data[i]);
}

void arrays_write(const float *from, int64_t n, ffi_array to, int64_t at)
{
    if (to.type == FFI_F32) {
        memcpy((float *)to.data + at, from, (size_t)n * sizeof *from);
        return;
    }
    uint16_t *data = (uint16_t *)to.data + at;
    for (int64_t i = 0; i < n; i++)
        data[i] = bf16_from_float(from[i]);
}
