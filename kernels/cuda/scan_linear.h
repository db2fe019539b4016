/*
 * ttt_scan for a learner of one layer: a block for each sequence and head goes through all
 * mini-batches, a warp for every 16 lanes of the weight's output. The next mini-batch is copied
 * while one is computed.
 */
#ifndef KERNELS_CUDA_SCAN_LINEAR_H
#define KERNELS_CUDA_SCAN_LINEAR_H

#include "kernels/cuda/scan.h"

template <int D, int T, int TERMS> struct scan_linear {
    static constexpr int WARPS = D / 16, THREADS = TTT_SCAN_LINEAR_THREADS(D), TILES = T / 16;
    static constexpr int STAGES = TTT_SCAN_STAGES(D, T);
    static constexpr int STRIDE = scan_stage<D, T>::STRIDE, RATES = scan_stage<D, T>::RATES;
    static_assert(WARPS * 32 == THREADS, "a warp for every 16 lanes");

    const ttt_scan_args &a;
    int thread, warp, lane, group, pair, index;
    shared<float> stages, g /* [T, STRIDE]: outputs, then gradients */, bias, last;
    held_weight<D, TERMS> weight;

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

    DEVICE void begin()
    {
        for (int i = thread; i < STAGES * TTT_SCAN_STAGE(D, T); i += THREADS)
            stages[i] = 0;
        if (thread < D)
            bias[thread] = load(a.b[0] + index * D + thread);
        if (thread < T)
            last[thread] = 0;
        weight.get(a.w[0] + (size_t)index * D * D, D, 16 * warp, lane);
        sync_block();
    }

    /* Keys and queries through the weight: keys' outputs into g, the queries' stay. */
    DEVICE void outputs(const scan_stage<D, T> &s, float (&asked)[TILES][2][4]) const
    {
        float keys[TILES][2][4];
        weight.template outputs<T>(s, bias + 16 * warp, lane, keys, asked);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            put_tile(g, STRIDE, 16 * t * STRIDE + 16 * warp, keys[t][0], lane);
            put_tile(g, STRIDE, 16 * t * STRIDE + 16 * warp + 8, keys[t][1], lane);
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
            add_turned<TERMS>(product, s.q, STRIDE, 16 * t, s.k, STRIDE, column, D, lane);
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

    DEVICE void move(const scan_stage<D, T> &s)
    {
        weight.template move<T>(s, g + 16 * warp, STRIDE, last, lane);
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
        if (STAGES == 2 && a.count > 0)
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
        weight.put(a.w_out[0] + (size_t)index * D * D, D, 16 * warp, lane);
        if (thread < D)
            store(a.b_out[0] + index * D + thread, (float)bias[thread]);
    }
};

#endif
