/*
 * Private to kernels: reading what XLA hands a handler. Every operand, result and attribute is
 * checked before it is used; the first thing that is wrong sticks to the call, and all that follows
 * does nothing, so a handler checks once:
 *
 *     ffi_call c;
 *     if (ffi_begin(&c, frame, "ttt_thing", false))
 *         return NULL;                               // XLA only asked what the handler is
 *     int64_t rows = -1, lanes = -1;
 *     const float *x = ffi_operand(&c, 0, "x", FFI_F32, 2, (int64_t *[]){&rows, &lanes}).data;
 *     if (c.failed)
 *         return ffi_end(&c);
 */
#ifndef KERNELS_FFI_H
#define KERNELS_FFI_H

#include "xla/ffi/api/c_api.h"

#include <stdbool.h>
#include <stdint.h>

/* Element types, as a set. */
typedef enum ffi_type {
    FFI_F32 = 1,
    FFI_BF16 = 2,
    FFI_S8 = 4,
    FFI_S32 = 8,
    FFI_ACT = FFI_F32 | FFI_BF16,
} ffi_type;

typedef struct ffi_array {
    void *data;
    ffi_type type; /* one of them */
} ffi_array;

typedef struct ffi_call {
    XLA_FFI_CallFrame *frame;
    const char *name; /* of the operation, for messages */
    bool failed;
    XLA_FFI_Error_Code code;
    char message[320];
} ffi_call;

/* True when there is nothing to compute: XLA asked for metadata, which is answered. */
bool ffi_begin(ffi_call *c, XLA_FFI_CallFrame *frame, const char *name, bool command_buffer);
/* NULL, or the error. */
XLA_FFI_Error *ffi_end(const ffi_call *c);
void ffi_fail(ffi_call *c, XLA_FFI_Error_Code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How many there have to be. */
void ffi_count(ffi_call *c, int64_t operands, int64_t results);
int64_t ffi_num_operands(const ffi_call *c);
/* An array of one of those types. `dims` points to `rank` sizes: one that is -1 is learnt from the
 * array, another has to be the array's. */
ffi_array ffi_operand(ffi_call *c, int64_t index, const char *name, int types, int rank,
                      int64_t *const *dims);
ffi_array ffi_result(ffi_call *c, int64_t index, const char *name, int types, int rank,
                     int64_t *const *dims);
/* Attributes within their bounds. */
int64_t ffi_int(ffi_call *c, const char *name, int64_t least, int64_t most);
float ffi_float(ffi_call *c, const char *name, float least, float most);

#endif
