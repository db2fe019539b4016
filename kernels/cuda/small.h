/* The small operations around a step: the convolutions that look back, and norm times gate. */
#ifndef KERNELS_CUDA_SMALL_H
#define KERNELS_CUDA_SMALL_H

#include "kernels/cuda/plan.h"
#include "kernels/cuda/token.h"

/* ttt_conv_step. A thread has a channel of a few sequences: filters are read once for them. Both
 * filters see the window as it was; then it moves on. */
template <int WIDTH> DEVICE void conv_step(const ttt_conv_args &a)
{
    int across = (a.channels + TTT_CONV_THREADS - 1) / TTT_CONV_THREADS;
    int c = block_index() % across * TTT_CONV_THREADS + thread_index();
    int first = block_index() / across * TTT_CONV_ROWS;
    bool act = a.act_bf16 != 0, old = a.tail_bf16 != 0;
    float weight[2][WIDTH], bias[2];
    if (c >= a.channels)
        return;
#pragma unroll
    for (int f = 0; f < 2; f++) {
        if (f >= a.filters)
            continue;
        bias[f] = load(a.bias[f] + c);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            weight[f][i] = load(a.weight[f] + c * WIDTH + i);
    }
    for (int row = first; row < a.batch && row < first + TTT_CONV_ROWS; row++) {
        float window[WIDTH];
        int at = row * a.channels + c, tail = row * (WIDTH - 1) * a.channels + c;
#pragma unroll
        for (int i = 0; i < WIDTH - 1; i++)
            window[i] = get_act(a.tail, tail + i * a.channels, old);
        window[WIDTH - 1] = get_act(a.x, at, act);
#pragma unroll
        for (int f = 0; f < 2; f++) {
            if (f >= a.filters)
                continue;
            float sum = bias[f];
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                sum = mad(weight[f][i], window[i], sum);
            put_act(a.y[f], at, act, sum);
        }
#pragma unroll
        for (int i = 0; i < WIDTH - 1; i++)
            put_act(a.tail, tail + i * a.channels, old, window[i + 1]);
    }
}

/* The sum over a block, for all of its threads. */
DEVICE float block_sum(float v, shared<float> sums, int thread)
{
    float total = 0;
    v = warp_sum(v);
    if (thread % 32 == 0)
        sums[thread / 32] = v;
    sync_block();
#pragma unroll
    for (int i = 0; i < TTT_GATE_THREADS / 32; i++)
        total += sums[i];
    return total;
}

/* ttt_gate_step. A block has a row, all of it in registers. */
template <int CHANNELS> DEVICE void gate_step(const ttt_gate_args &a)
{
    constexpr int OWN = CHANNELS / TTT_GATE_THREADS;
    shared<float> sums = {reinterpret_cast<float *>(arena())};
    int thread = thread_index(), at = block_index() * a.channels;
    bool act = a.act_bf16 != 0;
    float x[OWN], sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        int c = thread + i * TTT_GATE_THREADS;
        x[i] = c < a.channels ? get_act(a.z, at + c, act) : 0;
        sum += x[i];
    }
    float mean = block_sum(sum, sums, thread) / (float)a.channels;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        if (thread + i * TTT_GATE_THREADS < a.channels)
            squares = mad(x[i] - mean, x[i] - mean, squares);
    }
    float variance = block_sum(squares, sums + TTT_GATE_THREADS / 32, thread) / (float)a.channels;
    float inverse = inverse_root(variance + a.epsilon);
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        int c = thread + i * TTT_GATE_THREADS;
        if (c >= a.channels)
            continue;
        float y = mad((x[i] - mean) * inverse, load(a.scale + c), load(a.bias + c));
        put_act(a.y, at + c, act, y * gelu(get_act(a.gate, at + c, act)).value);
    }
}

#endif
