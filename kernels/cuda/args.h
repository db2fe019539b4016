/* What kernels are given: one struct each, filled by the handlers. C and CUDA both read this. */
#ifndef KERNELS_CUDA_ARGS_H
#define KERNELS_CUDA_ARGS_H

#include <stdint.h>

/* ttt_step. The state is updated in place. */
typedef struct ttt_step_args {
    const void *q, *k, *v; /* act */
    const float *gate;
    const int32_t *position, *place;
    const float *moves, *norm_scale, *norm_bias;
    void *w[2], *b[2], *w_sum[2], *b_sum[2];
    void *z; /* act */
    int32_t heads;
    int32_t mini_batch; /* 0: it never ends, and one move stands for all places */
    int32_t moves_count;
    int32_t act_bf16;
    float theta, epsilon, rate;
} ttt_step_args;

/* ttt_scan. The state goes from `w`, `b` to `w_out`, `b_out`. */
typedef struct ttt_scan_args {
    const float *k, *target, *q, *eta, *norm_scale, *norm_bias;
    const float *w[2], *b[2];
    float *answers, *w_out[2], *b_out[2];
    int32_t count; /* mini-batches */
    int32_t batch, heads, tokens;
    float epsilon;
} ttt_scan_args;

#endif
