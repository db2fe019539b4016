/*
 * What scans share: mini-batches on their way into shared memory, and a weight that stays in
 * registers from the first to the last of them.
 *
 * Tokens beyond the mini-batch (up to T, a whole number of tiles) are zero, and their rates too.
 */
#ifndef KERNELS_CUDA_SCAN_H
#define KERNELS_CUDA_SCAN_H

#include "kernels/cuda/plan.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda/token.h"

/* One mini-batch in shared memory. */
template <int D, int T> struct scan_stage {
    static constexpr int STRIDE = TTT_SCAN_STRIDE(D), RATES = TTT_SCAN_STRIDE(T);
    shared<float> k, q, target, eta;
    DEVICE explicit scan_stage(shared<float> at)
    {
        k = at;
        q = k + T * STRIDE;
        target = q + T * STRIDE;
        eta = target + T * STRIDE;
    }
};

/* Begins the copies of mini-batch m. */
template <int D, int T, int THREADS>
DEVICE void begin_stage(const ttt_scan_args &a, const scan_stage<D, T> &s, int m, int index)
{
    int tokens = a.tokens, thread = thread_index();
    size_t at = (size_t)m * (size_t)(a.batch * a.heads) + (size_t)index;
    const float *from[3] = {a.k, a.q, a.target};
    shared<float> to[3] = {s.k, s.q, s.target};
#pragma unroll
    for (int which = 0; which < 3; which++) {
        const float *rows = from[which] + at * (size_t)(tokens * D);
        for (int i = thread; i < tokens * (D / 4); i += THREADS)
            copy_begin<16>(to[which].p + i / (D / 4) * s.STRIDE + i % (D / 4) * 4, rows + 4 * i);
    }
    const float *rates = a.eta + at * (size_t)(tokens * tokens);
    if (tokens % 4 == 0) {
        for (int i = 4 * thread; i < tokens * tokens; i += 4 * THREADS)
            copy_begin<16>(s.eta.p + i / tokens * s.RATES + i % tokens, rates + i);
    } else {
        for (int i = thread; i < tokens * tokens; i += THREADS)
            copy_begin<4>(s.eta.p + i / tokens * s.RATES + i % tokens, rates + i);
    }
}

/*
 * 16 outputs of a weight [D, outputs] in the registers of a warp: its transpose, 16 x D, as sums of
 * tensor-core products, in tiles of 8 columns. Its rows lie there just as the right side of K W
 * needs them, so the weight is never moved.
 */
template <int D, int TERMS> struct held_weight {
    float w[D / 8][4];

    /* Where element e of tile j of this lane lies, with rows of `outputs`, from output `first`. */
    static DEVICE size_t place(int j, int e, int outputs, int first, int lane)
    {
        int in = 8 * j + 2 * (lane % 4) + e % 2, out = first + lane / 4 + e / 2 * 8;
        return (size_t)(in * outputs + out);
    }

    DEVICE void get(const float *from, int outputs, int first, int lane)
    {
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[j][e] = load(from + place(j, e, outputs, first, lane));
        }
    }

    DEVICE void put(float *to, int outputs, int first, int lane) const
    {
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                store(to + place(j, e, outputs, first, lane), w[j][e]);
        }
    }

    /* Keys and queries through it, with the biases of the 16 outputs. */
    template <int T>
    DEVICE void outputs(const scan_stage<D, T> &s, shared<float> bias, int lane,
                        float (&keys)[T / 16][2][4], float (&asked)[T / 16][2][4]) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float start = bias[8 * half + 2 * (lane % 4) + e % 2];
#pragma unroll
                for (int t = 0; t < T / 16; t++)
                    keys[t][half][e] = asked[t][half][e] = start;
            }
        }
#pragma unroll
        for (int step = 0; step < D / 16; step++) {
            right_tile<TERMS> columns[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                columns[half].set(0, w[2 * step][2 * half], w[2 * step][2 * half + 1]);
                columns[half].set(1, w[2 * step + 1][2 * half], w[2 * step + 1][2 * half + 1]);
            }
#pragma unroll
            for (int t = 0; t < T / 16; t++) {
                left_tile<TERMS> rows;
                rows.take(s.k, s.STRIDE, 16 * t, 16 * step, lane);
                multiply(keys[t][0], rows, columns[0]);
                multiply(keys[t][1], rows, columns[1]);
                rows.take(s.q, s.STRIDE, 16 * t, 16 * step, lane);
                multiply(asked[t][0], rows, columns[0]);
                multiply(asked[t][1], rows, columns[1]);
            }
        }
    }

    /* W' += g' (rates K); the rates are those of the last answer, negative. g is [T, stride], of
     * which 16 columns are this warp's. */
    template <int T>
    DEVICE void move(const scan_stage<D, T> &s, shared<float> g, int stride, shared<float> rates,
                     int lane)
    {
#pragma unroll
        for (int step = 0; step < T / 16; step++) {
            left_tile<TERMS> gradients;
            float rate[4];
            gradients.take_turned(g, stride, 0, 16 * step, lane);
#pragma unroll
            for (int i = 0; i < 4; i++)
                rate[i] = rates[16 * step + 2 * (lane % 4) + i % 2 + i / 2 * 8];
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                int at = (16 * step + 2 * (lane % 4)) * s.STRIDE + 8 * j + lane / 4;
                right_tile<TERMS> keys;
                keys.set(0, rate[0] * s.k[at], rate[1] * s.k[at + s.STRIDE]);
                keys.set(1, rate[2] * s.k[at + 8 * s.STRIDE], rate[3] * s.k[at + 9 * s.STRIDE]);
                multiply(w[j], gradients, keys);
            }
        }
    }
};

/* A tile of sums to shared memory: 16 x 8, its corner at m[at]. */
DEVICE void put_tile(shared<float> m, int stride, int at, const float (&c)[4], int lane)
{
#pragma unroll
    for (int e = 0; e < 4; e++)
        m[at + (lane / 4 + e / 2 * 8) * stride + 2 * (lane % 4) + e % 2] = c[e];
}

#endif
