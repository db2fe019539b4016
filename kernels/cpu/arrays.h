/* Private to kernels: memory to work in, and bf16. */
#ifndef KERNELS_CPU_ARRAYS_H
#define KERNELS_CPU_ARRAYS_H

#include "kernels/ffi.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Floats on a cache line's border, for as many workers as it says; NULL, which has failed, when
 * there is no memory. free() takes it. `*each` is rounded up so that no two share a line. */
float *arrays_scratch(ffi_call *c, int workers, size_t *each);

static inline float bf16_to_float(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* To the nearest, to even in the middle. */
static inline uint16_t bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* no rounding may make infinity of what is no number */
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/* n activations from place `at` of an array, as floats; and back. */
void arrays_read(ffi_array from, int64_t at, int64_t n, float *to);
void arrays_write(const float *from, int64_t n, ffi_array to, int64_t at);

#endif
