/* What learners compute with a token or a row: rotation, rates, GELU, the norm and its gradient. */
#ifndef KERNELS_CUDA_TOKEN_H
#define KERNELS_CUDA_TOKEN_H

#include "kernels/cuda/args.h"
#include "kernels/cuda/device.h"

DEVICE float warp_sum(float v)
{
    for (int mask = 16; mask > 0; mask /= 2)
        v += shuffle_xor(v, mask);
    return v;
}

DEVICE float logistic(float x)
{
    return 1 / (1 + expf(-x));
}

struct gelu_pair {
    float value, slope;
};

/* The tanh form. The slope has the reference's truncated constants. */
DEVICE gelu_pair gelu(float x)
{
    float square = x * x;
    float t = tanhf(0.79788456080286535588f * x * (1 + 0.044715f * square));
    float bend = 0.5f * x * (1 - t * t) * (0.79788456f + 0.1070322243f * square);
    return gelu_pair{0.5f * x * (1 + t), bend + 0.5f * (1 + t)};
}

/* A row of a head in the hands of one warp: lane l has elements l, l + 32 … */
template <int D> struct row {
    static constexpr int N = D / 32;
    float x[N];
};

/* x becomes (x - mean) / deviation; gives 1 / deviation. */
template <int D> DEVICE float normalise(row<D> &r, float epsilon)
{
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < row<D>::N; i++)
        sum += r.x[i];
    float mean = warp_sum(sum) * (1.0f / D);
#pragma unroll
    for (int i = 0; i < row<D>::N; i++) {
        r.x[i] -= mean;
        squares = mad(r.x[i], r.x[i], squares);
    }
    float inverse = inverse_root(mad(warp_sum(squares), 1.0f / D, epsilon));
#pragma unroll
    for (int i = 0; i < row<D>::N; i++)
        r.x[i] *= inverse;
    return inverse;
}

/* The norm's scale and bias for a head, as the lanes of a warp need them. */
template <int D> struct norm_of_head {
    row<D> scale, bias;
    DEVICE norm_of_head(const float *scales, const float *biases, int head, int lane)
    {
#pragma unroll
        for (int i = 0; i < row<D>::N; i++) {
            scale.x[i] = load(scales + head * D + lane + 32 * i);
            bias.x[i] = load(biases + head * D + lane + 32 * i);
        }
    }
};

/* r, which is a learner's output, becomes the gradient there of half the squared error of its norm
 * against the target. */
template <int D>
DEVICE void loss_gradient(row<D> &r, const row<D> &target, const norm_of_head<D> &norm,
                          float epsilon)
{
    float inverse = normalise(r, epsilon), sum = 0, along = 0;
    row<D> u;
#pragma unroll
    for (int i = 0; i < row<D>::N; i++) {
        u.x[i] = (mad(norm.scale.x[i], r.x[i], norm.bias.x[i]) - target.x[i]) * norm.scale.x[i];
        sum += u.x[i];
        along = mad(u.x[i], r.x[i], along);
    }
    sum = warp_sum(sum) * (1.0f / D);
    along = warp_sum(along) * (1.0f / D);
#pragma unroll
    for (int i = 0; i < row<D>::N; i++)
        r.x[i] = (u.x[i] - sum - r.x[i] * along) * inverse;
}

/* ---- the token of a step -----------------------------------------------------------------------
 */

/* What a step knows of its token beside the vectors. */
struct step_token {
    float rate, move;
    bool ends; /* the mini-batch, here */
};

enum { TOKEN_RATE, TOKEN_MOVE, TOKEN_ENDS, TOKEN_FLOATS = 4 };

/* One thread finds these out, for all. Places are read from memory in every launch, never taken
 * from the host: a captured graph that is replayed goes on to the next token. An index out of range
 * is moved to the nearest. */
DEVICE void find_token(const ttt_step_args &a, int index, shared<float> token)
{
    int sequence = index / a.heads;
    int position = load(a.position + sequence), at = load(a.place + sequence);
    if (a.mini_batch == 0 || at < 0)
        at = 0;
    if (at >= a.moves_count)
        at = a.moves_count - 1;
    token[TOKEN_RATE] = a.rate * logistic(load(a.gate + index));
    token[TOKEN_MOVE] = load(a.moves + at);
    token[TOKEN_ENDS] = a.mini_batch > 0 && position % a.mini_batch == a.mini_batch - 1 ? 1.0f : 0;
}

DEVICE step_token token_of(shared<float> token)
{
    return step_token{token[TOKEN_RATE], token[TOKEN_MOVE], token[TOKEN_ENDS] != 0};
}

/* Thread i < D / 2 turns pair i of q and k by the place, and leaves them and v - k in shared
 * memory. */
template <int D>
DEVICE void take_token(const ttt_step_args &a, int index, int i, shared<float> q, shared<float> k,
                       shared<float> target)
{
    int at = index * D + 2 * i;
    bool wide = a.act_bf16 == 0;
    float s = 0, c = 1;
    if (a.theta != 0) {
        float frequency = exp2f((float)(-2 * i) / D * log2f(a.theta));
        float place = (float)load(a.place + index / a.heads);
        sin_cos_pi(place * frequency * 0.31830988618379067154f, &s, &c);
    }
    float q0 = get_act(a.q, at, !wide), q1 = get_act(a.q, at + 1, !wide);
    float k0 = get_act(a.k, at, !wide), k1 = get_act(a.k, at + 1, !wide);
    float r0 = k0 * c - k1 * s, r1 = k1 * c + k0 * s;
    q[2 * i] = q0 * c - q1 * s;
    q[2 * i + 1] = q1 * c + q0 * s;
    k[2 * i] = r0;
    k[2 * i + 1] = r1;
    target[2 * i] = get_act(a.v, at, !wide) - r0;
    target[2 * i + 1] = get_act(a.v, at + 1, !wide) - r1;
}

/* q + norm(answer), by one warp. */
template <int D>
DEVICE void put_answer(const ttt_step_args &a, int index, int lane, row<D> answer,
                       const norm_of_head<D> &norm, shared<float> q)
{
    normalise(answer, a.epsilon);
#pragma unroll
    for (int i = 0; i < row<D>::N; i++) {
        int o = lane + 32 * i;
        float y = mad(norm.scale.x[i], answer.x[i], norm.bias.x[i]);
        put_act(a.z, index * D + o, a.act_bf16 != 0, q[o] + y);
    }
}

/* A bias, its sum and the gradient of this token: the sum grows, at the end of a mini-batch it goes
 * into the bias. Gives the bias that answers. */
template <class S>
DEVICE float bias_step(const step_token &t, void *biases, void *sums, int at, float bias,
                       float gradient)
{
    S *b = static_cast<S *>(biases) + at, *s = static_cast<S *>(sums) + at;
    float sum = mad(t.rate, gradient, packed<S>::get(s));
    float moved = bias - t.move * sum;
    packed<S>::put(s, t.ends ? 0 : sum);
    if (t.ends)
        packed<S>::put(b, moved);
    return moved;
}

/* A piece of a weight's row in a step: sum += left * gradient, and what follows from it. Gives the
 * sum, in place; writes it, or at the end of a mini-batch the weight and a sum of zero. */
template <class S>
DEVICE void weight_step(const step_token &t, void *weights, void *sums, size_t at, vec16 weight,
                        float (&sum)[packed<S>::N], float left, const float *gradient)
{
    constexpr int N = packed<S>::N;
    S *w = static_cast<S *>(weights) + at, *s = static_cast<S *>(sums) + at;
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = mad(left, gradient[i], sum[i]);
    if (!t.ends) {
        store16(s, packed<S>::close(sum));
        return;
    }
    float moved[N];
    packed<S>::open(weight, moved);
#pragma unroll
    for (int i = 0; i < N; i++)
        moved[i] -= t.move * sum[i];
    store16(w, packed<S>::close(moved));
    store16(s, vec16{{0, 0, 0, 0}});
}

#endif
