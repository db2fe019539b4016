/*
 * ttt_step with everything it needs: random operands, the kernel on the host's machine, and the
 * reference beside it. Sequences are ragged: each starts at a position of its own.
 */
#ifndef TESTS_KERNELS_CUDA_STEP_H
#define TESTS_KERNELS_CUDA_STEP_H

#include "tests/kernels/cuda_reference.h"
#include "tests/kernels/cuda_source.h"

#include <algorithm>
#include <functional>

struct step_case {
    int layers, d, mini_batch, batch, heads;
    bool act_bf16, state_bf16, cluster;
    double theta;
};

typedef void (*step_kernel)(const ttt_step_args);

struct step_launch {
    step_kernel kernel;
    host::launch_shape shape;
};

inline step_launch step_launch_of(const step_case &c)
{
    step_launch l = {};
    int size = c.state_bf16 ? 2 : 4;
#define CHOOSE(D)                                                                               \
    if (c.d == D && c.layers == 1)                                                              \
        l.kernel = c.state_bf16 ? ttt_step_linear_bf16_##D : ttt_step_linear_f32_##D;           \
    else if (c.d == D && c.cluster)                                                             \
        l.kernel = c.state_bf16 ? ttt_step_mlp_cluster_bf16_##D : ttt_step_mlp_cluster_f32_##D; \
    else if (c.d == D)                                                                          \
        l.kernel = c.state_bf16 ? ttt_step_mlp_block_bf16_##D : ttt_step_mlp_block_f32_##D;
    CHOOSE(64)
    CHOOSE(96)
    CHOOSE(128)
#undef CHOOSE
    if (c.layers == 1) {
        l.shape.threads = TTT_STEP_LINEAR_THREADS(c.d, size);
        l.shape.shared = TTT_STEP_LINEAR_SHARED(c.d, size);
    } else {
        int parts = c.cluster ? TTT_STEP_MLP_PARTS(c.d) : 1;
        l.shape.cluster = parts;
        l.shape.threads = TTT_STEP_MLP_THREADS(c.d, size, parts);
        l.shape.shared = TTT_STEP_MLP_SHARED(c.d, size, parts);
    }
    l.shape.blocks = c.batch * c.heads * l.shape.cluster;
    return l;
}

struct step_bench {
    step_case c;
    std::mt19937 random{1};
    stored q, k, v, z, gate, moves, scale, bias;
    stored w[2], b[2], w_sum[2], b_sum[2];
    std::vector<int32_t> position, place;
    std::vector<learner> learners;
    numbers scales, biases;
    host::machine machine;
    std::function<void()> runner; /* instead of a launch of our own */
    double worst_answer = 0, worst_state = 0;
    double epsilon = 1e-6, rate;

    explicit step_bench(const step_case &given) : c(given)
    {
        size_t n = (size_t)(c.batch * c.heads), lanes = n * (size_t)c.d;
        int moves_count = std::max(c.mini_batch, 1);
        rate = 1.0 / c.d;
        for (stored *s : {&q, &k, &v, &z})
            *s = stored(lanes, c.act_bf16);
        gate = stored(n, false);
        moves = stored((size_t)moves_count, false);
        scale = stored((size_t)(c.heads * c.d), false);
        bias = stored(scale.size(), false);
        scale.fill(random, 0.1, 1);
        bias.fill(random, 0.1);
        for (int i = 0; i < moves_count; i++)
            moves.put((size_t)i, 1.0 / (i + 1) + 0.01 * (i % 3));
        for (int i = 0; i < c.batch; i++) {
            int start = c.mini_batch > 0 ? 7 * i % (2 * c.mini_batch) : i;
            position.push_back(start);
            place.push_back(c.mini_batch > 0 ? start % c.mini_batch : start);
        }
        for (int i = 0; i < c.layers; i++) {
            size_t in = i == 0 ? (size_t)c.d : (size_t)(4 * c.d);
            size_t out = i == c.layers - 1 ? (size_t)c.d : (size_t)(4 * c.d);
            w[i] = w_sum[i] = stored(n * in * out, c.state_bf16);
            b[i] = b_sum[i] = stored(n * out, c.state_bf16);
            w[i].fill(random, 1 / std::sqrt((double)in));
            b[i].fill(random, 0.1);
        }
        scales = scale.slice(0, scale.size());
        biases = bias.slice(0, bias.size());
        for (size_t i = 0; i < n; i++)
            learners.push_back(learner_of(i));
        name_arrays([this](const char *name, const void *data, size_t bytes) {
            machine.array(name, data, bytes);
        });
    }

    void name_arrays(const std::function<void(const char *, const void *, size_t)> &take)
    {
        static const char *const names[] = {"q", "k", "v", "z", "gate", "moves", "scale", "bias"};
        stored *list[] = {&q, &k, &v, &z, &gate, &moves, &scale, &bias};
        for (int i = 0; i < 8; i++)
            take(names[i], list[i]->data(), list[i]->bytes());
        take("position", position.data(), position.size() * 4);
        take("place", place.data(), place.size() * 4);
        for (int i = 0; i < c.layers; i++) {
            take("W", w[i].data(), w[i].bytes());
            take("W_sum", w_sum[i].data(), w_sum[i].bytes());
            take("b", b[i].data(), b[i].bytes());
            take("b_sum", b_sum[i].data(), b_sum[i].bytes());
        }
    }

    /* The state of sequence and head `index`, as the kernel has it now. */
    learner learner_of(size_t index) const
    {
        learner l;
        l.layers = c.layers;
        l.d = c.d;
        l.w = 4 * c.d;
        for (int i = 0; i < c.layers; i++) {
            size_t out = (size_t)l.out(i), all = (size_t)l.in(i)*out;
            l.weight[i] = w[i].slice(index * all, all);
            l.weight_sum[i] = w_sum[i].slice(index * all, all);
            l.bias[i] = b[i].slice(index * out, out);
            l.bias_sum[i] = b_sum[i].slice(index * out, out);
        }
        return l;
    }

    ttt_step_args args()
    {
        ttt_step_args a = {};
        a.q = q.data();
        a.k = k.data();
        a.v = v.data();
        a.gate = gate.wide.data();
        a.position = position.data();
        a.place = place.data();
        a.moves = moves.wide.data();
        a.norm_scale = scale.wide.data();
        a.norm_bias = bias.wide.data();
        for (int i = 0; i < c.layers; i++) {
            a.w[i] = w[i].data();
            a.b[i] = b[i].data();
            a.w_sum[i] = w_sum[i].data();
            a.b_sum[i] = b_sum[i].data();
        }
        a.z = z.data();
        a.heads = c.heads;
        a.mini_batch = c.mini_batch;
        a.moves_count = (int32_t)moves.size();
        a.act_bf16 = c.act_bf16;
        a.theta = (float)c.theta;
        a.epsilon = (float)epsilon;
        a.rate = (float)rate;
        return a;
    }

    void run_kernel(bool backwards)
    {
        step_launch l = step_launch_of(c);
        l.shape.backwards = backwards;
        ttt_step_args a = args();
        machine.launch(l.shape, [&] { l.kernel(a); });
    }

    static void note(double &worst, const numbers &is, const numbers &should)
    {
        double most = 1e-3;
        for (double x : should)
            most = std::max(most, std::fabs(x));
        for (size_t i = 0; i < is.size(); i++) {
            double off = std::fabs(is[i] - should[i]) / most;
            worst = off <= worst ? worst : off; /* keeps what is not a number */
        }
    }

    void check_state(const learner &is, const learner &should)
    {
        for (int i = 0; i < c.layers; i++) {
            note(worst_state, is.weight[i], should.weight[i]);
            note(worst_state, is.bias[i], should.bias[i]);
            note(worst_state, is.weight_sum[i], should.weight_sum[i]);
            note(worst_state, is.bias_sum[i], should.bias_sum[i]);
        }
    }

    /* One token for all. With `follow` the reference then goes on from the kernel's state, which
     * is what a state of bf16 needs. */
    void step(bool follow, bool backwards = false)
    {
        for (stored *s : {&q, &k, &v})
            s->fill(random, 1);
        gate.fill(random, 1);
        if (runner)
            runner();
        else
            run_kernel(backwards);
        for (size_t i = 0; i < learners.size(); i++) {
            size_t sequence = i / (size_t)c.heads, lanes = (size_t)c.d;
            size_t head = i % (size_t)c.heads;
            step_input in = {};
            in.q = q.slice(i * lanes, lanes);
            in.k = k.slice(i * lanes, lanes);
            in.v = v.slice(i * lanes, lanes);
            in.gate = gate.get(i);
            in.rate = rate;
            in.move = moves.get(c.mini_batch > 0 ? (size_t)place[sequence] : 0);
            in.theta = c.theta;
            in.epsilon = epsilon;
            in.place = place[sequence];
            in.ends = c.mini_batch > 0 && (position[sequence] + 1) % c.mini_batch == 0;
            in.scale = scales.data() + head * lanes;
            in.bias = biases.data() + head * lanes;
            note(worst_answer, z.slice(i * lanes, lanes), step_of(learners[i], in));
            learner now = learner_of(i);
            check_state(now, learners[i]);
            if (follow)
                learners[i] = now;
        }
        for (size_t i = 0; i < position.size(); i++) {
            position[i]++;
            place[i] = c.mini_batch > 0 ? position[i] % c.mini_batch : place[i] + 1;
        }
    }
};

#endif
