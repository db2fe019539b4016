/*
 * ttt_scan for a learner of two layers. The width in the middle is split among the blocks of a
 * cluster (before sm_90 one block does it all, for heads of 64 lanes). A part has a column of W1 in
 * registers, 16 outputs a warp, and the same rows of W2 in shared memory, where it can be read by
 * rows and by columns: its output is needed, and its gradient's way back.
 *
 * Everything in the middle is a part's own. Twice in a mini-batch rows of d numbers are added up
 * over the parts: the keys' outputs and the answers. The second correction of the answers,
 * eta (X X' + 1) g, is linear in X X', so each part takes its own share of it.
 */
#ifndef KERNELS_CUDA_SCAN_MLP_H
#define KERNELS_CUDA_SCAN_MLP_H

#include "kernels/cuda/scan.h"

template <int D, int T, int TERMS, int PARTS> struct scan_mlp {
    static constexpr int W = 4 * D, OWN = TTT_SCAN_MLP_OWN(D, PARTS), WARPS = OWN / 16;
    static constexpr int THREADS = TTT_SCAN_MLP_THREADS(D, PARTS), TILES = T / 16;
    static constexpr int STAGES = TTT_SCAN_MLP_STAGES(T, PARTS);
    static constexpr int STRIDE = TTT_SCAN_STRIDE(D), RATES = TTT_SCAN_STRIDE(T);
    static constexpr int MIDDLE = TTT_SCAN_STRIDE(OWN);
    static_assert(WARPS * 32 == THREADS && D <= THREADS && T <= THREADS, "a warp for 16 outputs");

    const ttt_scan_args &a;
    int thread, warp, lane, index, rank;
    shared<float> stages, w2 /* [OWN, STRIDE] */;
    shared<float> x2, xq, g1 /* [T, MIDDLE]: into W2 of keys and of queries, gradients there */;
    shared<float> made, g2, answers /* [T, STRIDE]: the part's output, gradients, its answers */;
    shared<float> mix /* [T, RATES] */, last /* [T] */, bias1 /* [OWN] */, bias2 /* [D] */;
    held_weight<D, TERMS> w1;

    DEVICE explicit scan_mlp(const ttt_scan_args &args) : a(args)
    {
        thread = thread_index();
        warp = thread / 32;
        lane = thread % 32;
        index = block_index() / PARTS;
        rank = block_index() % PARTS;
        stages = shared<float>{reinterpret_cast<float *>(arena())};
        w2 = stages + STAGES * TTT_SCAN_STAGE(D, T);
        x2 = w2 + OWN * STRIDE;
        xq = x2 + T * MIDDLE;
        g1 = xq + T * MIDDLE;
        made = g1 + T * MIDDLE;
        g2 = made + T * STRIDE;
        answers = g2 + T * STRIDE;
        mix = answers + T * STRIDE;
        last = mix + T * RATES;
        bias1 = last + T;
        bias2 = bias1 + OWN;
    }

    static DEVICE void meet()
    {
        if (PARTS > 1)
            sync_cluster();
        else
            sync_block();
    }

    DEVICE scan_stage<D, T> stage(int m) const
    {
        return scan_stage<D, T>(stages + m % STAGES * TTT_SCAN_STAGE(D, T));
    }

    DEVICE const float *second() const
    {
        return a.w[1] + (size_t)index * W * D + (size_t)(rank * OWN * D);
    }

    DEVICE void begin()
    {
        for (int i = thread; i < STAGES * TTT_SCAN_STAGE(D, T); i += THREADS)
            stages[i] = 0;
        for (int i = 4 * thread; i < OWN * D; i += 4 * THREADS)
            put16(w2, i / D * STRIDE + i % D, load16(second() + i));
        if (thread < OWN)
            bias1[thread] = load(a.b[0] + index * W + rank * OWN + thread);
        if (thread < D) /* the first part adds it for all */
            bias2[thread] = rank == 0 ? load(a.b[1] + index * D + thread) : 0;
        w1.get(a.w[0] + (size_t)index * D * W, W, rank * OWN + 16 * warp, lane);
        sync_block();
    }

    /* Tile [t, column] of left right', both [T, ·], times the negative rates; `plus` is the bias's
     * share of the product. */
    DEVICE void mix_tile(const scan_stage<D, T> &s, shared<float> left, shared<float> right,
                         int stride, int inner, float plus, int t, int column) const
    {
        float product[4] = {};
        add_turned<TERMS>(product, left, stride, 16 * t, right, stride, column, inner, lane);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = 16 * t + lane / 4 + e / 2 * 8, j = column + 2 * (lane % 4) + e % 2;
            mix[i * RATES + j] = -(float)s.eta[i * RATES + j] * (product[e] + plus);
        }
    }

    /* All tiles of it where tokens are not after the answer, dealt out to the warps. */
    DEVICE void make_mix(const scan_stage<D, T> &s, shared<float> left, shared<float> right,
                         int stride, int inner, float plus) const
    {
        for (int tile = warp; tile < TILES * 2 * TILES; tile += WARPS) {
            int t = tile / (2 * TILES), column = tile % (2 * TILES) * 8;
            if (column < 16 * (t + 1))
                mix_tile(s, left, right, stride, inner, plus, t, column);
        }
    }

    /* Keys and queries through W1; what of the keys goes on, and the slopes there. */
    DEVICE void first_layer(const scan_stage<D, T> &s, float (&slope)[TILES][2][4],
                            float (&asked)[TILES][2][4]) const
    {
        w1.template outputs<T>(s, bias1 + 16 * warp, lane, slope, asked);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float value[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    gelu_pair both = gelu(slope[t][half][e]);
                    value[e] = both.value;
                    slope[t][half][e] = both.slope;
                }
                put_tile(x2, MIDDLE, 16 * t * MIDDLE + 16 * warp + 8 * half, value, lane);
            }
        }
        if (thread < T)
            last[thread] = -(float)s.eta[(a.tokens - 1) * RATES + thread];
    }

    /* A part's share of rows [T, d]: x through W2, and (if there is one) the correction. */
    DEVICE void second_layer(shared<float> x, bool correct, shared<float> out) const
    {
        for (int tile = warp; tile < TILES * (D / 8); tile += WARPS) {
            int t = tile / (D / 8), column = tile % (D / 8) * 8;
            float c[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                c[e] = bias2[column + 2 * (lane % 4) + e % 2];
            add_product<TERMS>(c, x, MIDDLE, 16 * t, w2, STRIDE, column, OWN, lane);
            if (correct)
                add_product<TERMS>(c, mix, RATES, 16 * t, g2, STRIDE, column, 16 * (t + 1), lane);
            put_tile(out, STRIDE, 16 * t * STRIDE + column, c, lane);
        }
    }

    DEVICE row<D> of_all_parts(shared<float> share, int t) const
    {
        row<D> sum = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            shared<float> other = PARTS > 1 ? of_block(share, part) : share;
#pragma unroll
            for (int i = 0; i < row<D>::N; i++)
                sum.x[i] += other[t * STRIDE + lane + 32 * i];
        }
        return sum;
    }

    /* Every part finds all gradients of the output: a warp a token. Those of tokens that are not
     * there are zero, for rates of zero do not help against what is not a number. */
    DEVICE void learn(const scan_stage<D, T> &s, const norm_of_head<D> &norm) const
    {
        for (int t = warp; t < T; t += WARPS) {
            row<D> r = {}, wanted;
            if (t < a.tokens) {
                r = of_all_parts(made, t);
#pragma unroll
                for (int i = 0; i < row<D>::N; i++)
                    wanted.x[i] = s.target[t * STRIDE + lane + 32 * i];
                loss_gradient(r, wanted, norm, a.epsilon);
            }
#pragma unroll
            for (int i = 0; i < row<D>::N; i++)
                g2[t * STRIDE + lane + 32 * i] = r.x[i];
        }
    }

    /* The gradient in the middle, of this warp's 16 outputs of W1. */
    DEVICE void back(const float (&slope)[TILES][2][4]) const
    {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int column = 16 * warp + 8 * half;
                float c[4] = {};
                add_turned<TERMS>(c, g2, STRIDE, 16 * t, w2, STRIDE, column, D, lane);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    c[e] *= slope[t][half][e];
                put_tile(g1, MIDDLE, 16 * t * MIDDLE + column, c, lane);
            }
        }
    }

    /* The queries' way as far as W2, each with the weights of its own token. */
    DEVICE void ask(float (&asked)[TILES][2][4]) const
    {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int column = 16 * warp + 8 * half;
                add_product<TERMS>(asked[t][half], mix, RATES, 16 * t, g1, MIDDLE, column,
                                   16 * (t + 1), lane);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    asked[t][half][e] = gelu(asked[t][half][e]).value;
                put_tile(xq, MIDDLE, 16 * t * MIDDLE + column, asked[t][half], lane);
            }
        }
    }

    DEVICE void move_first(const scan_stage<D, T> &s)
    {
        w1.template move<T>(s, g1 + 16 * warp, MIDDLE, last, lane);
        if (thread < OWN) {
            float sum = bias1[thread];
            for (int t = 0; t < a.tokens; t++)
                sum = mad(last[t], g1[t * MIDDLE + thread], sum);
            bias1[thread] = sum;
        }
    }

    /* W2 += (rates X)' g, 16 rows a warp. */
    DEVICE void move_second() const
    {
        left_tile<TERMS> inputs[TILES];
#pragma unroll
        for (int step = 0; step < TILES; step++) {
            int at = (16 * step + 2 * (lane % 4)) * MIDDLE + 16 * warp + lane / 4;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = 16 * step + 2 * (lane % 4) + i / 2 * 8;
                int from = at + i / 2 * 8 * MIDDLE + i % 2 * 8;
                inputs[step].set(i, last[token] * x2[from], last[token + 1] * x2[from + MIDDLE]);
            }
        }
        for (int column = 0; column < D; column += 8) {
            int corner = 16 * warp * STRIDE + column;
            float c[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                c[e] = w2[corner + (lane / 4 + e / 2 * 8) * STRIDE + 2 * (lane % 4) + e % 2];
#pragma unroll
            for (int step = 0; step < TILES; step++) {
                right_tile<TERMS> gradients;
                gradients.take(g2, STRIDE, 16 * step, column, lane);
                multiply(c, inputs[step], gradients);
            }
            put_tile(w2, STRIDE, corner, c, lane);
        }
        if (rank == 0 && thread < D) {
            float sum = bias2[thread];
            for (int t = 0; t < a.tokens; t++)
                sum = mad(last[t], g2[t * STRIDE + thread], sum);
            bias2[thread] = sum;
        }
    }

    /* Each part writes some of the answers. */
    DEVICE void put_answers(int m) const
    {
        size_t at =
            ((size_t)m * (size_t)(a.batch * a.heads) + (size_t)index) * (size_t)(a.tokens * D);
        for (int t = rank + PARTS * warp; t < a.tokens; t += PARTS * WARPS) {
            row<D> r = of_all_parts(answers, t);
#pragma unroll
            for (int i = 0; i < row<D>::N; i++)
                store(a.answers + at + (size_t)(t * D + lane + 32 * i), r.x[i]);
        }
    }

    DEVICE void finish() const
    {
        float *to = a.w_out[1] + (size_t)index * W * D + (size_t)(rank * OWN * D);
        w1.put(a.w_out[0] + (size_t)index * D * W, W, rank * OWN + 16 * warp, lane);
        for (int i = 4 * thread; i < OWN * D; i += 4 * THREADS)
            store16(to + i, get16(w2, i / D * STRIDE + i % D));
        if (thread < OWN)
            store(a.b_out[0] + index * W + rank * OWN + thread, (float)bias1[thread]);
        if (rank == 0 && thread < D)
            store(a.b_out[1] + index * D + thread, (float)bias2[thread]);
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
            float slope[TILES][2][4], asked[TILES][2][4];
            if (next < a.count)
                begin_stage<D, T, THREADS>(a, stage(next), next, index);
            copy_close();
            copy_wait<STAGES - 1>();
            sync_block();
            first_layer(s, slope, asked);
            make_mix(s, s.q, s.k, STRIDE, D, 1);
            sync_block();
            second_layer(x2, false, made);
            meet();
            learn(s, norm);
            sync_block();
            back(slope);
            sync_block();
            ask(asked);
            move_first(s);
            sync_block();
            make_mix(s, xq, x2, MIDDLE, OWN, rank == 0 ? 1.0f : 0.0f);
            sync_block();
            second_layer(xq, true, answers);
            meet();
            put_answers(m);
            move_second();
            sync_block();
        }
        copy_wait<0>();
        finish();
        if (PARTS > 1) /* what others still read must not go */
            sync_cluster();
    }
};

#endif
