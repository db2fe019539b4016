/* ttt_scan with everything it needs: random operands, the kernel, and the reference beside it. */
#ifndef TESTS_KERNELS_CUDA_SCAN_H
#define TESTS_KERNELS_CUDA_SCAN_H

#include "tests/kernels/cuda_reference.h"
#include "tests/kernels/cuda_source.h"

#include <algorithm>
#include <functional>

struct scan_case {
    int layers, d, tokens, count, batch, heads;
    bool exact, cluster;
};

struct scan_launch {
    void (*kernel)(const ttt_scan_args);
    host::launch_shape shape;
};

inline scan_launch scan_launch_of(const scan_case &c)
{
    scan_launch l = {};
    int room = c.tokens <= 16 ? 16 : 64;
#define LINEAR(D, T)                            \
    if (c.layers == 1 && c.d == D && room == T) \
        l.kernel = c.exact ? ttt_scan_linear_exact_##D##_##T : ttt_scan_linear_bf16_##D##_##T;
#define MLP(D, T, where)                                            \
    if (c.layers == 2 && c.d == D && room == T)                     \
        l.kernel = c.exact ? ttt_scan_mlp_##where##_exact_##D##_##T \
                           : ttt_scan_mlp_##where##_bf16_##D##_##T;
    LINEAR(64, 16)
    LINEAR(64, 64)
    LINEAR(96, 16)
    LINEAR(96, 64)
    LINEAR(128, 16)
    LINEAR(128, 64)
    MLP(64, 16, cluster)
    MLP(64, 64, cluster)
    MLP(96, 16, cluster)
    MLP(128, 16, cluster)
    if (!c.cluster) {
        MLP(64, 16, block)
    }
#undef LINEAR
#undef MLP
    if (c.layers == 1) {
        l.shape.threads = TTT_SCAN_LINEAR_THREADS(c.d);
        l.shape.shared = (size_t)TTT_SCAN_LINEAR_SHARED(c.d, room);
    } else {
        l.shape.cluster = c.cluster ? TTT_SCAN_MLP_PARTS : 1;
        l.shape.threads = TTT_SCAN_MLP_THREADS(c.d, l.shape.cluster);
        l.shape.shared = (size_t)TTT_SCAN_MLP_SHARED(c.d, room, l.shape.cluster);
    }
    l.shape.blocks = c.batch * c.heads * l.shape.cluster;
    return l;
}

struct scan_bench {
    scan_case c;
    std::mt19937 random{1};
    stored k, target, q, eta, answers, scale, bias, w[2], b[2], w_out[2], b_out[2];
    host::machine machine;
    std::function<void()> runner; /* instead of a launch of our own */
    double worst_answer = 0, worst_state = 0, epsilon = 1e-6;

    explicit scan_bench(const scan_case &given) : c(given)
    {
        size_t n = (size_t)(c.batch * c.heads), d = (size_t)c.d, t = (size_t)c.tokens;
        size_t all = n * (size_t)c.count;
        for (stored *s : {&k, &target, &q, &answers}) {
            *s = stored(all * t * d, false);
            s->fill(random, 1);
        }
        eta = stored(all * t * t, false);
        std::uniform_real_distribution<double> rate(0, 1);
        for (size_t i = 0; i < eta.size(); i++) {
            size_t row = i / t % t, column = i % t;
            eta.put(i, column > row ? 0 : rate(random) / (double)(d * (row + 1)));
        }
        scale = stored((size_t)c.heads * d, false);
        bias = stored(scale.size(), false);
        scale.fill(random, 0.1, 1);
        bias.fill(random, 0.1);
        for (int i = 0; i < c.layers; i++) {
            size_t in = i == 0 ? d : 4 * d, out = i == c.layers - 1 ? d : 4 * d;
            w[i] = w_out[i] = stored(n * in * out, false);
            b[i] = b_out[i] = stored(n * out, false);
            w[i].fill(random, 1 / std::sqrt((double)in));
            b[i].fill(random, 0.1);
        }
        name_arrays([this](const char *name, const void *data, size_t bytes) {
            machine.array(name, data, bytes);
        });
    }

    void name_arrays(const std::function<void(const char *, const void *, size_t)> &take)
    {
        static const char *const names[] = {"k", "target", "q", "eta", "answers", "scale", "bias"};
        stored *list[] = {&k, &target, &q, &eta, &answers, &scale, &bias};
        for (int i = 0; i < 7; i++)
            take(names[i], list[i]->data(), list[i]->bytes());
        for (int i = 0; i < c.layers; i++) {
            take("W", w[i].data(), w[i].bytes());
            take("b", b[i].data(), b[i].bytes());
            take("W_out", w_out[i].data(), w_out[i].bytes());
            take("b_out", b_out[i].data(), b_out[i].bytes());
        }
    }

    ttt_scan_args args()
    {
        ttt_scan_args a = {};
        a.k = k.wide.data();
        a.target = target.wide.data();
        a.q = q.wide.data();
        a.eta = eta.wide.data();
        a.norm_scale = scale.wide.data();
        a.norm_bias = bias.wide.data();
        for (int i = 0; i < c.layers; i++) {
            a.w[i] = w[i].wide.data();
            a.b[i] = b[i].wide.data();
            a.w_out[i] = w_out[i].wide.data();
            a.b_out[i] = b_out[i].wide.data();
        }
        a.answers = answers.wide.data();
        a.count = c.count;
        a.batch = c.batch;
        a.heads = c.heads;
        a.tokens = c.tokens;
        a.epsilon = (float)epsilon;
        return a;
    }

    void run_kernel(bool backwards)
    {
        scan_launch l = scan_launch_of(c);
        l.shape.backwards = backwards;
        ttt_scan_args a = args();
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

    void check_one(size_t index)
    {
        learner l;
        l.layers = c.layers;
        l.d = c.d;
        l.w = 4 * c.d;
        size_t d = (size_t)c.d, t = (size_t)c.tokens, head = index % (size_t)c.heads;
        numbers scales = scale.slice(head * d, d), biases = bias.slice(head * d, d);
        for (int i = 0; i < c.layers; i++) {
            size_t out = (size_t)l.out(i), all = (size_t)l.in(i)*out;
            l.weight[i] = w[i].slice(index * all, all);
            l.bias[i] = b[i].slice(index * out, out);
            l.weight_sum[i].assign(all, 0);
            l.bias_sum[i].assign(out, 0);
        }
        for (size_t m = 0; m < (size_t)c.count; m++) {
            size_t at = m * (size_t)(c.batch * c.heads) + index;
            numbers should = scan_of(l, k.slice(at * t * d, t * d), target.slice(at * t * d, t * d),
                                     q.slice(at * t * d, t * d), eta.slice(at * t * t, t * t),
                                     scales.data(), biases.data(), epsilon);
            note(worst_answer, answers.slice(at * t * d, t * d), should);
        }
        for (int i = 0; i < c.layers; i++) {
            size_t out = (size_t)l.out(i), all = (size_t)l.in(i)*out;
            note(worst_state, w_out[i].slice(index * all, all), l.weight[i]);
            note(worst_state, b_out[i].slice(index * out, out), l.bias[i]);
        }
    }

    void run(bool backwards = false)
    {
        if (runner)
            runner();
        else
            run_kernel(backwards);
        for (size_t i = 0; i < (size_t)(c.batch * c.heads); i++)
            check_one(i);
    }
};

#endif
