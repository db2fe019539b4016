/*
 * ttt_step for a learner of one layer: a block for each sequence and head.
 *
 * The weight and its sum are read once, into registers, 16 bytes a load, before anything waits for
 * anything. One pass over them makes all products: k W, q W and q S. What answers is
 * q (W - move S'), S' = S + rate k g, and that is q W - move (q S + rate (q k) g): the updated
 * weights need not exist. After the gradient g is known the sum is written; the weight only where a
 * mini-batch ends.
 */
#ifndef KERNELS_CUDA_STEP_LINEAR_H
#define KERNELS_CUDA_STEP_LINEAR_H

#include "kernels/cuda/plan.h"
#include "kernels/cuda/token.h"

template <int D, class S> struct step_linear {
    static constexpr int N = packed<S>::N;
    static constexpr int GROUPS = D / N; /* threads that have a row together */
    static constexpr int ROWS = TTT_STEP_LINEAR_THREADS(D, sizeof(S)) / GROUPS;
    static constexpr int OWN = D / ROWS; /* rows that a thread has a piece of */
    static constexpr int THREADS = ROWS * GROUPS;
    static_assert(D % ROWS == 0 && THREADS % 32 == 0, "every thread has as much as the others");

    shared<float> token, q, k, target, g, total /* [3, D] */, part /* [3, ROWS, D] */;

    DEVICE step_linear()
    {
        token = shared<float>{reinterpret_cast<float *>(arena())};
        q = token + TOKEN_FLOATS;
        k = q + D;
        target = k + D;
        g = target + D;
        total = g + D;
        part = total + 3 * D;
        static_assert((TOKEN_FLOATS + 7 * D + 3 * ROWS * D) * sizeof(float) ==
                          TTT_STEP_LINEAR_SHARED(D, sizeof(S)),
                      "as planned");
    }

    /* This thread's part of the three products. */
    DEVICE void multiply(const vec16 (&w)[OWN], const vec16 (&s)[OWN], int group, int first) const
    {
        float sums[3][N] = {};
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            float x[N], y[N], left = k[first + ROWS * j], asked = q[first + ROWS * j];
            packed<S>::open(w[j], x);
            packed<S>::open(s[j], y);
#pragma unroll
            for (int i = 0; i < N; i++) {
                sums[0][i] = mad(left, x[i], sums[0][i]);
                sums[1][i] = mad(asked, x[i], sums[1][i]);
                sums[2][i] = mad(asked, y[i], sums[2][i]);
            }
        }
#pragma unroll
        for (int which = 0; which < 3; which++)
            put_floats<N>(part, (which * ROWS + first) * D + group * N, sums[which]);
    }

    DEVICE void add_up(int thread) const
    {
        for (int i = thread; i < 3 * D; i += THREADS) {
            int which = i / D, lane = i % D;
            float sum = 0;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                sum += part[(which * ROWS + r) * D + lane];
            total[i] = sum;
        }
    }

    /* The first warp: the gradient, for all to see. */
    DEVICE void learn(const ttt_step_args &a, int index, int lane) const
    {
        norm_of_head<D> norm(a.norm_scale, a.norm_bias, index % a.heads, lane);
        row<D> wanted, gradient;
#pragma unroll
        for (int i = 0; i < row<D>::N; i++) {
            int o = lane + 32 * i;
            float bias = packed<S>::get(static_cast<S *>(a.b[0]) + index * D + o);
            gradient.x[i] = total[o] + bias;
            total[o] = bias;
            wanted.x[i] = target[o];
        }
        loss_gradient(gradient, wanted, norm, a.epsilon);
#pragma unroll
        for (int i = 0; i < row<D>::N; i++)
            g[lane + 32 * i] = gradient.x[i];
    }

    /* The first warp, while the others are writing. */
    DEVICE void answer(const ttt_step_args &a, const step_token &t, int index, int lane) const
    {
        norm_of_head<D> norm(a.norm_scale, a.norm_bias, index % a.heads, lane);
        row<D> out;
        float qk = 0;
#pragma unroll
        for (int i = 0; i < row<D>::N; i++)
            qk = mad(q[lane + 32 * i], k[lane + 32 * i], qk);
        qk = t.rate * warp_sum(qk);
#pragma unroll
        for (int i = 0; i < row<D>::N; i++) {
            int o = lane + 32 * i;
            float gradient = g[o];
            float bias = bias_step<S>(t, a.b[0], a.b_sum[0], index * D + o, total[o], gradient);
            out.x[i] = total[D + o] - t.move * mad(qk, gradient, total[2 * D + o]) + bias;
        }
        put_answer(a, index, lane, out, norm, q);
    }

    DEVICE void run(const ttt_step_args &a) const
    {
        int index = block_index(), thread = thread_index();
        int group = thread % GROUPS, first = thread / GROUPS;
        size_t at = (size_t)index * D * D + (size_t)(first * D + group * N);
        const S *weights = static_cast<const S *>(a.w[0]) + at;
        const S *sums = static_cast<const S *>(a.w_sum[0]) + at;
        vec16 w[OWN], s[OWN];
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            w[j] = load16(weights + j * ROWS * D);
            s[j] = load16(sums + j * ROWS * D);
        }
        if (thread < D / 2)
            take_token<D>(a, index, thread, q, k, target);
        else if (thread == THREADS - 1)
            find_token(a, index, token);
        sync_block();
        step_token t = token_of(token);
        multiply(w, s, group, first);
        sync_block();
        add_up(thread);
        sync_block();
        if (thread < 32)
            learn(a, index, thread);
        sync_block();
        float gradient[N];
        get_floats<N>(g, group * N, gradient);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            float sum[N];
            packed<S>::open(s[j], sum);
            weight_step<S>(t, a.w[0], a.w_sum[0], at + (size_t)(j * ROWS * D), w[j], sum,
                           t.rate * k[first + ROWS * j], gradient);
        }
        if (thread < 32)
            answer(a, t, index, thread);
    }
};

#endif
