/*
 * For tests of kernels: a handler called as XLA calls it, but without XLA, on threads of our own;
 * and the learner once more, in double precision and plain loops, written for no speed at all.
 */
#ifndef TESTS_KERNELS_H
#define TESTS_KERNELS_H

#include "kernels/ttt_kernels.h"
#include "xla/ffi/api/c_api.h"

#include <stdint.h>

enum { KERNELS_MAX = 24 }; /* arrays on either side, and attributes */

typedef struct kernels_array {
    XLA_FFI_DataType type;
    int64_t rank, dims[5];
    void *data;
} kernels_array;
#define KERNELS_ARRAY(t, data, ...)                                      \
    ((kernels_array){XLA_FFI_DataType_##t,                               \
                     sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
                     {__VA_ARGS__},                                      \
                     (data)})

typedef struct kernels_attr {
    const char *name;
    XLA_FFI_DataType type; /* S64 or F32 */
    int64_t integer;
    float real;
} kernels_attr;
#define KERNELS_INT(name, value) ((kernels_attr){name, XLA_FFI_DataType_S64, (value), 0})
#define KERNELS_REAL(name, value) ((kernels_attr){name, XLA_FFI_DataType_F32, 0, (value)})

typedef struct kernels_call {
    const char *target;
    kernels_array in[KERNELS_MAX], out[KERNELS_MAX];
    kernels_attr attrs[KERNELS_MAX];
    int n_in, n_out, n_attrs;
    int threads; /* of the pool; 0: there is none, -1: the API is too old to have one */
} kernels_call;

/* NULL, or what the handler said, in a buffer that the next call uses again. */
const char *kernels_run(const kernels_call *call);
/* The handler of that name. */
XLA_FFI_Handler *kernels_handler(const char *target);

/* Numbers between -scale and scale that look random; `seed` moves on. */
void kernels_numbers(float *to, int64_t n, float scale, uint64_t *seed);
/* Room for n floats, zeroed, or the test fails. */
float *kernels_floats(int64_t n);

/* ---- in double precision -----------------------------------------------------------------------
 */

/* A learner of one head; weights [in, out]. */
typedef struct double_learner {
    int layers;
    int64_t d, w;
    double epsilon, *scale, *bias;
    double *weights[2], *biases[2], *weight_sums[2], *bias_sums[2];
} double_learner;

double_learner *double_learner_new(int layers, int64_t d, int64_t w, double epsilon);
void double_learner_free(double_learner *l);
/* One token: k and q rotated. The answer is q + norm(res(q)). */
void double_step(double_learner *l, const double *k, const double *q, const double *target,
                 double rate, double move, int last, double *answer);
/* One mini-batch of b tokens; eta [b, b]. Answers are res(q). The weights move on. */
void double_mini_batch(double_learner *l, int64_t b, const double *k, const double *q,
                       const double *target, const double *eta, double *answers);

#endif
