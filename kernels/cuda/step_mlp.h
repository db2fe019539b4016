/*
 * ttt_step for a learner of two layers. The width in the middle is split among the blocks of a
 * cluster: a part has columns of W1 and the same rows of W2, so everything in the middle is its
 * own, and only two rows of d numbers go from block to block, the keys' output and the answer. A
 * head of 64 lanes has half a megabyte of state: four SMs take it faster than one, and together
 * they hold it. Before sm_90 there are no clusters, and one block does all parts; what of the
 * weights does not fit its shared memory (for heads of more than 64 lanes) is read again.
 *
 * Weights go into shared memory by copies begun at once. Sums are streamed: each is read when its
 * gradient is known, and written right away. Their lines are asked for at the start.
 */
#ifndef KERNELS_CUDA_STEP_MLP_H
#define KERNELS_CUDA_STEP_MLP_H

#include "kernels/cuda/plan.h"
#include "kernels/cuda/token.h"

template <int D, class S, int PARTS> struct step_mlp {
    static constexpr int N = packed<S>::N, W = 4 * D, SIZE = (int)sizeof(S);
    static constexpr int OWN = TTT_STEP_MLP_OWN(D, PARTS);
    static constexpr int THREADS = TTT_STEP_MLP_THREADS(D, SIZE, PARTS);
    /* Threads that have a row together, and rows at a time, of W1 and of W2. */
    static constexpr int GROUPS1 = OWN / N, ROWS1 = THREADS / GROUPS1;
    static constexpr int GROUPS2 = D / N, ROWS2 = THREADS / GROUPS2;
    static constexpr int HELD1 = TTT_STEP_MLP_HELD1(D, SIZE, PARTS);
    static constexpr int HELD2 = TTT_STEP_MLP_HELD2(D, SIZE, PARTS);
    static_assert(D % ROWS1 == 0 && OWN % ROWS2 == 0 && OWN % (THREADS / 4) == 0 && D <= THREADS,
                  "every thread has as much as the others");

    const ttt_step_args &a;
    int thread, index, rank;
    int group1, first1, group2, first2;
    size_t base1, base2; /* where this part's weights begin */
    shared<float> token, q, k, target, g2, mine /* of the keys' output */, answer;
    shared<float> x2, slope, bias1, partial;
    shared<float> g1, xq; /* take the places of slope and bias1 */
    shared<S> w1, w2;

    DEVICE explicit step_mlp(const ttt_step_args &args) : a(args)
    {
        thread = thread_index();
        index = block_index() / PARTS;
        rank = block_index() % PARTS;
        group1 = thread % GROUPS1 * N;
        first1 = thread / GROUPS1;
        group2 = thread % GROUPS2 * N;
        first2 = thread / GROUPS2;
        base1 = (size_t)index * D * W + (size_t)(rank * OWN);
        base2 = (size_t)index * W * D + (size_t)(rank * OWN * D);
        token = shared<float>{reinterpret_cast<float *>(arena())};
        q = token + TOKEN_FLOATS;
        k = q + D;
        target = k + D;
        g2 = target + D;
        mine = g2 + D;
        answer = mine + D;
        x2 = answer + D;
        slope = x2 + OWN;
        g1 = slope;
        bias1 = slope + OWN;
        xq = bias1;
        partial = bias1 + OWN;
        w2 = shared<S>{reinterpret_cast<S *>(arena() + TTT_STEP_MLP_FIXED(D, SIZE, PARTS))};
        w1 = w2 + HELD2 * D;
    }

    static DEVICE void meet()
    {
        if (PARTS > 1)
            sync_cluster();
        else
            sync_block();
    }

    /* ---- weights ------------------------------------------------------------------------------
     */

    DEVICE size_t at1(int row) const
    {
        return base1 + (size_t)(row * W + group1);
    }
    DEVICE size_t at2(int row) const
    {
        return base2 + (size_t)(row * D + group2);
    }
    DEVICE vec16 weight1(int row) const
    {
        return row < HELD1 ? get16(w1, row * OWN + group1)
                           : load16(static_cast<const S *>(a.w[0]) + at1(row));
    }
    DEVICE vec16 weight2(int row, int column) const
    {
        return row < HELD2
                   ? get16(w2, row * D + column)
                   : load16(static_cast<const S *>(a.w[1]) + base2 + (size_t)(row * D + column));
    }

    DEVICE void begin() const
    {
        const S *first = static_cast<const S *>(a.w[0]);
        const S *second = static_cast<const S *>(a.w[1]);
        for (int row = first1; row < HELD1; row += ROWS1)
            copy_begin<16>(w1.p + row * OWN + group1, first + at1(row));
        copy_close();
        for (int row = first2; row < HELD2; row += ROWS2)
            copy_begin<16>(w2.p + row * D + group2, second + at2(row));
        copy_close();
        constexpr int LINE = 128 / SIZE;
        for (int i = thread; i < D * (OWN / LINE + 1); i += THREADS) {
            int row = i / (OWN / LINE + 1), column = i % (OWN / LINE + 1) * LINE;
            if (column < OWN)
                expect(static_cast<const S *>(a.w_sum[0]) + base1 + (size_t)(row * W + column));
        }
        for (int i = thread * LINE; i < OWN * D; i += THREADS * LINE)
            expect(static_cast<const S *>(a.w_sum[1]) + base2 + (size_t)i);
    }

    /* ---- forwards ------------------------------------------------------------------------------
     */

    /* k through W1; then what goes into W2, and the slope there. Of q only this thread's own sums
     * are made: the rest of what they are to become is not known yet. */
    DEVICE void first_layer(float (&asked)[N]) const
    {
        float sums[N] = {};
#pragma unroll 4
        for (int row = first1; row < D; row += ROWS1) {
            float x[N], left = k[row], other = q[row];
            packed<S>::open(weight1(row), x);
#pragma unroll
            for (int i = 0; i < N; i++) {
                sums[i] = mad(left, x[i], sums[i]);
                asked[i] = mad(other, x[i], asked[i]);
            }
        }
        put_floats<N>(partial, first1 * OWN + group1, sums);
        sync_block();
        for (int i = thread; i < OWN; i += THREADS) {
            float bias = packed<S>::get(static_cast<S *>(a.b[0]) + index * W + rank * OWN + i);
            gelu_pair made = gelu(bias + add_up<ROWS1>(OWN, i));
            x2[i] = made.value;
            slope[i] = made.slope;
            bias1[i] = bias;
        }
    }

    template <int ROWS> DEVICE float add_up(int stride, int column) const
    {
        float sum = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sum += partial[r * stride + column];
        return sum;
    }

    /* This part's share of the keys' output, for all parts to see. */
    DEVICE void second_layer(float bias) const
    {
        float sums[N] = {};
#pragma unroll 4
        for (int row = first2; row < OWN; row += ROWS2) {
            float x[N], left = x2[row];
            packed<S>::open(weight2(row, group2), x);
#pragma unroll
            for (int i = 0; i < N; i++)
                sums[i] = mad(left, x[i], sums[i]);
        }
        put_floats<N>(partial, first2 * D + group2, sums);
        sync_block();
        if (thread < D)
            mine[thread] = add_up<ROWS2>(D, thread) + bias;
    }

    DEVICE row<D> of_all_parts(shared<float> share) const
    {
        row<D> sum = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            shared<float> other = PARTS > 1 ? of_block(share, part) : share;
#pragma unroll
            for (int i = 0; i < row<D>::N; i++)
                sum.x[i] += other[thread + 32 * i];
        }
        return sum;
    }

    /* ---- backwards -----------------------------------------------------------------------------
     */

    /* The first warp of every part: the gradient of the output. */
    DEVICE void learn() const
    {
        norm_of_head<D> norm(a.norm_scale, a.norm_bias, index % a.heads, thread);
        row<D> gradient = of_all_parts(mine), wanted;
#pragma unroll
        for (int i = 0; i < row<D>::N; i++)
            wanted.x[i] = target[thread + 32 * i];
        loss_gradient(gradient, wanted, norm, a.epsilon);
#pragma unroll
        for (int i = 0; i < row<D>::N; i++)
            g2[thread + 32 * i] = gradient.x[i];
    }

    /* The gradient in the middle: four threads a row of W2. */
    DEVICE void back() const
    {
        constexpr int AT_ONCE = THREADS / 4, PIECES = D / N / 4;
#pragma unroll
        for (int first = 0; first < OWN; first += AT_ONCE) {
            int row = first + thread / 4;
            float sum = 0;
#pragma unroll
            for (int piece = 0; piece < PIECES; piece++) {
                int column = (4 * piece + thread % 4) * N;
                float x[N], y[N];
                packed<S>::open(weight2(row, column), x);
                get_floats<N>(g2, column, y);
#pragma unroll
                for (int i = 0; i < N; i++)
                    sum = mad(x[i], y[i], sum);
            }
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
            if (thread % 4 == 0)
                g1[row] = sum * slope[row];
        }
    }

    /* ---- sums, and what answers ----------------------------------------------------------------
     */

    /* Loads of so many rows are under way at once. */
    static DEVICE constexpr int batch_of(int rows)
    {
        return rows % 4 == 0 ? 4 : rows % 3 == 0 ? 3 : rows % 2 == 0 ? 2 : 1;
    }

    /* q (W1 - move S1), a sum that `asked` begins; then what goes into W2 to answer. */
    DEVICE void move_first(const step_token &t, float (&asked)[N]) const
    {
        constexpr int BATCH = batch_of(D / ROWS1);
        const S *sums = static_cast<const S *>(a.w_sum[0]);
        float gradient[N];
        get_floats<N>(g1, group1, gradient);
        for (int from = first1; from < D; from += BATCH * ROWS1) {
            vec16 s[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; j++)
                s[j] = load16(sums + at1(from + j * ROWS1));
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                int row = from + j * ROWS1;
                float sum[N], left = -t.move * q[row];
                vec16 weight = {};
                if (t.ends)
                    weight = weight1(row);
                packed<S>::open(s[j], sum);
                weight_step<S>(t, a.w[0], a.w_sum[0], at1(row), weight, sum, t.rate * k[row],
                               gradient);
#pragma unroll
                for (int i = 0; i < N; i++)
                    asked[i] = mad(left, sum[i], asked[i]);
            }
        }
        put_floats<N>(partial, first1 * OWN + group1, asked);
        sync_block();
        for (int i = thread; i < OWN; i += THREADS) {
            float bias =
                bias_step<S>(t, a.b[0], a.b_sum[0], index * W + rank * OWN + i, bias1[i], g1[i]);
            xq[i] = gelu(add_up<ROWS1>(OWN, i) + bias).value;
        }
    }

    DEVICE void move_second(const step_token &t, float bias) const
    {
        constexpr int BATCH = batch_of(OWN / ROWS2);
        const S *sums = static_cast<const S *>(a.w_sum[1]);
        float gradient[N], total[N] = {};
        get_floats<N>(g2, group2, gradient);
        for (int from = first2; from < OWN; from += BATCH * ROWS2) {
            vec16 s[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; j++)
                s[j] = load16(sums + at2(from + j * ROWS2));
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                int row = from + j * ROWS2;
                float sum[N], x[N], left = xq[row];
                vec16 weight = weight2(row, group2);
                packed<S>::open(s[j], sum);
                weight_step<S>(t, a.w[1], a.w_sum[1], at2(row), weight, sum, t.rate * x2[row],
                               gradient);
                packed<S>::open(weight, x);
#pragma unroll
                for (int i = 0; i < N; i++)
                    total[i] = mad(left, x[i] - t.move * sum[i], total[i]);
            }
        }
        put_floats<N>(partial, first2 * D + group2, total);
        sync_block();
        if (thread >= D)
            return;
        float share = add_up<ROWS2>(D, thread);
        if (rank == 0)
            share += bias_step<S>(t, a.b[1], a.b_sum[1], index * D + thread, bias, g2[thread]);
        answer[thread] = share;
    }

    DEVICE void run() const
    {
        begin();
        float asked[N] = {}, bias = 0; /* of the second layer, in the first part */
        if (rank == 0 && thread < D)
            bias = packed<S>::get(static_cast<S *>(a.b[1]) + index * D + thread);
        if (thread < D / 2)
            take_token<D>(a, index, thread, q, k, target);
        else if (thread == THREADS - 1)
            find_token(a, index, token);
        copy_wait<1>();
        sync_block();
        step_token t = token_of(token);
        first_layer(asked);
        copy_wait<0>();
        sync_block();
        second_layer(bias);
        meet();
        if (thread < 32)
            learn();
        sync_block();
        back();
        sync_block();
        move_first(t, asked);
        sync_block();
        move_second(t, bias);
        meet();
        if (rank == 0 && thread < 32) {
            norm_of_head<D> norm(a.norm_scale, a.norm_bias, index % a.heads, thread);
            put_answer(a, index, thread, of_all_parts(answer), norm, q);
        }
        if (PARTS > 1) /* what others still read must not go */
            sync_cluster();
    }
};

#endif
