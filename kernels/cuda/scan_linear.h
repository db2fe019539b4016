/*
 * ttt_scan for a learner of one layer: a block for each sequence and head goes through all
 * mini-batches, the weight in its registers from the first to the last.
 *
 * A warp has 16 output lanes of the weight, as sums of tensor-core products: the transpose of W,
 * 16 x D. Its rows lie in the registers just as the right side of K W needs them, so the weight is
 * never moved. The next mini-batch is copied while one is computed.
 *
 * Tokens beyond the mini-batch (up to T, a whole number of tiles) are zero, and their rates too.
 */
#ifndef KERNELS_CUDA_SCAN_LINEAR_H
#define KERNELS_CUDA_SCAN_LINEAR_H

#include "kernels/cuda/math.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/tiles.h"

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

template <int D, int T, int TERMS> struct scan_linear {
    static constexpr int WARPS = D / 16, THREADS = TTT_SCAN_LINEAR_THREADS(D), TILES = T / 16;
    static constexpr int STAGES = TTT_SCAN_STAGES(D, T);
    static constexpr int STRIDE = scan_stage<D, T>::STRIDE, RATES = scan_stage<D, T>::RATES;
    static_assert(WARPS * 32 == THREADS, "a warp for every 16 lanes");

    const ttt_scan_args &a;
    int thread, warp, lane, group, pair, index;
    shared<float> stages, g /* [T, STRIDE]: outputs, then gradients */, bias, last;
    float w[D / 8][4]; /* the transpose of W: this warp's 16 rows, in tiles of 8 columns */

    DEVICE explicit scan_linear(const ttt_scan_args &args) : a(args)
    {
        thread = thread_index();
        warp = thread / 32;
        lane = thread % 32;
        group = lane / 4;
        pair = lane % 4;
        index = block_index();
        stages = shared<float>{reinterpret_cast<float *>(arena())};
        g = stages + STAGES * TTT_SCAN_STAGE(D, T);
        bias = g + T * STRIDE;
        last = bias + D;
    }

    DEVICE scan_stage<D, T> stage(int m) const
    {
        return scan_stage<D, T>(stages + m % STAGES * TTT_SCAN_STAGE(D, T));
    }

    /* Where element e of tile j of this lane lies in W. */
    DEVICE size_t place(int j, int e) const
    {
        int in = 8 * j + 2 * pair + e % 2, out = 16 * warp + group + e / 2 * 8;
        return (size_t)index * D * D + (size_t)(in * D + out);
    }

    DEVICE void begin()
    {
        for (int i = thread; i < STAGES * TTT_SCAN_STAGE(D, T); i += THREADS)
            stages[i] = 0;
        if (thread < D)
            bias[thread] = load(a.b[0] + index * D + thread);
        if (thread < T)
            last[thread] = 0;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[j][e] = load(a.w[0] + place(j, e));
        }
        sync_block();
    }

    /* Keys and queries through the weight: keys' outputs into g, the queries' stay. */
    DEVICE void outputs(const scan_stage<D, T> &s, float (&asked)[TILES][2][4]) const
    {
        float keys[TILES][2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float start = bias[16 * warp + 8 * half + 2 * pair + e % 2];
#pragma unroll
                for (int t = 0; t < TILES; t++)
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
            for (int t = 0; t < TILES; t++) {
                left_tile<TERMS> rows;
                rows.take(s.k, STRIDE, 16 * t, 16 * step, lane);
                multiply(keys[t][0], rows, columns[0]);
                multiply(keys[t][1], rows, columns[1]);
                rows.take(s.q, STRIDE, 16 * t, 16 * step, lane);
                multiply(asked[t][0], rows, columns[0]);
                multiply(asked[t][1], rows, columns[1]);
            }
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    g[(16 * t + group + e / 2 * 8) * STRIDE + 16 * warp + 8 * half + 2 * pair +
                      e % 2] = keys[t][half][e];
            }
        }
    }

    /* eta becomes -eta (Q K' + 1), where tokens are not after the answer; its last row is kept,
     * negative too. The tiles are dealt out to the warps. */
    DEVICE void mixture(const scan_stage<D, T> &s) const
    {
        for (int tile = warp; tile < TILES * 2 * TILES; tile += WARPS) {
            int t = tile / (2 * TILES), column = tile % (2 * TILES) * 8;
            float product[4] = {};
            if (column >= 16 * (t + 1))
                continue;
#pragma unroll 4
            for (int step = 0; step < D / 16; step++) {
                left_tile<TERMS> rows;
                right_tile<TERMS> columns;
                rows.take(s.q, STRIDE, 16 * t, 16 * step, lane);
                columns.take_turned(s.k, STRIDE, 16 * step, column, lane);
                multiply(product, rows, columns);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int i = 16 * t + group + e / 2 * 8, j = column + 2 * pair + e % 2;
                float rate = -(float)s.eta[i * RATES + j];
                if (i == a.tokens - 1)
                    last[j] = rate;
                s.eta[i * RATES + j] = rate * (product[e] + 1);
            }
        }
    }

    /* Outputs become gradients: a warp a token. */
    DEVICE void learn(const scan_stage<D, T> &s, const norm_of_head<D> &norm) const
    {
        for (int t = warp; t < a.tokens; t += WARPS) {
            row<D> r, wanted;
#pragma unroll
            for (int i = 0; i < row<D>::N; i++) {
                r.x[i] = g[t * STRIDE + lane + 32 * i];
                wanted.x[i] = s.target[t * STRIDE + lane + 32 * i];
            }
            loss_gradient(r, wanted, norm, a.epsilon);
#pragma unroll
            for (int i = 0; i < row<D>::N; i++)
                g[t * STRIDE + lane + 32 * i] = r.x[i];
        }
    }

    DEVICE void answer(const scan_stage<D, T> &s, float (&asked)[TILES][2][4], int m) const
    {
        size_t at =
            ((size_t)m * (size_t)(a.batch * a.heads) + (size_t)index) * (size_t)(a.tokens * D);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int column = 16 * warp + 8 * half;
#pragma unroll
            for (int step = 0; step < TILES; step++) {
                right_tile<TERMS> gradients;
                gradients.take(g, STRIDE, 16 * step, column, lane);
#pragma unroll
                for (int t = step; t < TILES; t++) {
                    left_tile<TERMS> mix;
                    mix.take(s.eta, RATES, 16 * t, 16 * step, lane);
                    multiply(asked[t][half], mix, gradients);
                }
            }
#pragma unroll
            for (int t = 0; t < TILES; t++) {
#pragma unroll
                for (int low = 0; low < 2; low++) {
                    int token = 16 * t + group + 8 * low;
                    if (token < a.tokens)
                        store8(a.answers + at + (size_t)(token * D + column + 2 * pair),
                               asked[t][half][2 * low], asked[t][half][2 * low + 1]);
                }
            }
        }
    }

    /* W' -= g' (rate K); `last` is negative already. */
    DEVICE void move(const scan_stage<D, T> &s)
    {
#pragma unroll
        for (int step = 0; step < TILES; step++) {
            left_tile<TERMS> gradients;
            float rates[4];
            gradients.take_turned(g, STRIDE, 16 * warp, 16 * step, lane);
#pragma unroll
            for (int i = 0; i < 4; i++)
                rates[i] = last[16 * step + 2 * pair + i % 2 + i / 2 * 8];
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                int at = (16 * step + 2 * pair) * STRIDE + 8 * j + group;
                right_tile<TERMS> keys;
                keys.set(0, rates[0] * s.k[at], rates[1] * s.k[at + STRIDE]);
                keys.set(1, rates[2] * s.k[at + 8 * STRIDE], rates[3] * s.k[at + 9 * STRIDE]);
                multiply(w[j], gradients, keys);
            }
        }
        if (thread < D) {
            float sum = bias[thread];
            for (int t = 0; t < a.tokens; t++)
                sum = mad(last[t], g[t * STRIDE + thread], sum);
            bias[thread] = sum;
        }
    }

    DEVICE void run()
    {
        norm_of_head<D> norm(a.norm_scale, a.norm_bias, index % a.heads, lane);
        begin();
        if (STAGES == 2)
            begin_stage<D, T, THREADS>(a, stage(0), 0, index);
        copy_close();
        for (int m = 0; m < a.count; m++) {
            scan_stage<D, T> s = stage(m);
            int next = m + STAGES - 1;
            float asked[TILES][2][4];
            if (next < a.count)
                begin_stage<D, T, THREADS>(a, stage(next), next, index);
            copy_close();
            copy_wait<STAGES - 1>();
            sync_block();
            outputs(s, asked);
            mixture(s);
            sync_block();
            learn(s, norm);
            sync_block();
            answer(s, asked, m);
            move(s);
            sync_block();
        }
        copy_wait<0>();
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                store(a.w_out[0] + place(j, e), w[j][e]);
        }
        if (thread < D)
            store(a.b_out[0] + index * D + thread, (float)bias[thread]);
    }
};

#endif
