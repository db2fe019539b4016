/*
 * Private to kernels/cuda: XLA's call frames, read with checks. The first thing that is wrong is
 * kept, and everything read after it is empty.
 */
#ifndef KERNELS_CUDA_FRAME_H
#define KERNELS_CUDA_FRAME_H

#include "xla/ffi/api/c_api.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct frame_reader {
    XLA_FFI_CallFrame *frame;
    const char *target;
    char error[256];
} frame_reader;

typedef enum frame_side { FRAME_OPERAND, FRAME_RESULT } frame_side;

/* Which types an array may have: any of these bits. */
enum { FRAME_F32 = 1, FRAME_BF16 = 2, FRAME_S32 = 4 };

enum { FRAME_MAX_RANK = 5 };
typedef struct frame_shape {
    int rank;
    int64_t dims[FRAME_MAX_RANK]; /* below 0: whatever it is */
} frame_shape;
#define FRAME_SHAPE(...) \
    ((frame_shape){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})

/* True when XLA only asks what the handler is, or calls it for another stage than execution: then
 * the handler returns NULL at once. */
bool frame_is_question(XLA_FFI_CallFrame *frame);

void frame_fail(frame_reader *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
void frame_counts(frame_reader *f, int64_t operands, int64_t results);
/* The array's data, aligned for 16-byte loads. `type` (may be NULL) is which of `types` it has. */
void *frame_array(frame_reader *f, frame_side side, int64_t index, const char *name, int types,
                  frame_shape shape, int *type);
/* A dimension of an operand; 0 if there is none such. */
int64_t frame_dim(frame_reader *f, int64_t operand, int dim);
int64_t frame_i64(frame_reader *f, const char *name);
int64_t frame_i64_or(frame_reader *f, const char *name, int64_t otherwise);
float frame_f32(frame_reader *f, const char *name);
void *frame_stream(frame_reader *f);

/* What the handler returns: NULL, or the error. */
XLA_FFI_Error *frame_result(frame_reader *f);

#endif
