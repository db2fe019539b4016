/*
 * What the operations compute, in double precision and in the plainest way: the weights that answer
 * are made, one token at a time. Written from the definition, not from the kernels.
 */
#ifndef TESTS_KERNELS_CUDA_REFERENCE_H
#define TESTS_KERNELS_CUDA_REFERENCE_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

typedef std::vector<double> numbers;

/* One learner: of one layer (d to d) or of two (d to w to d). */
struct learner {
    int layers, d, w;
    numbers weight[2], bias[2], weight_sum[2], bias_sum[2];
    int in(int i) const
    {
        return i == 0 ? d : w;
    }
    int out(int i) const
    {
        return i == layers - 1 ? d : w;
    }
};

inline double gelu_of(double x)
{
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline double gelu_slope(double x)
{
    double t = std::tanh(0.79788456 * x * (1 + 0.044715 * x * x));
    return 0.5 * x * (1 - t * t) * (0.79788456 + 0.1070322243 * x * x) + 0.5 * (1 + t);
}

inline numbers times(const numbers &x, const numbers &w, const numbers &b)
{
    numbers y = b;
    for (size_t i = 0; i < x.size(); i++)
        for (size_t o = 0; o < b.size(); o++)
            y[o] += x[i] * w[i * b.size() + o];
    return y;
}

inline numbers norm_of(const numbers &x, const double *scale, const double *bias, double epsilon)
{
    double n = (double)x.size(), mean = 0, variance = 0;
    numbers y(x.size());
    for (double v : x)
        mean += v / n;
    for (double v : x)
        variance += (v - mean) * (v - mean) / n;
    for (size_t i = 0; i < x.size(); i++)
        y[i] = scale[i] * (x[i] - mean) / std::sqrt(variance + epsilon) + bias[i];
    return y;
}

/* d/dx of half |norm(x) - target|^2. */
inline numbers error_gradient(const numbers &x, const numbers &target, const double *scale,
                              const double *bias, double epsilon)
{
    double n = (double)x.size(), mean = 0, variance = 0, sum = 0, along = 0;
    numbers h(x.size()), u(x.size()), y = norm_of(x, scale, bias, epsilon);
    for (double v : x)
        mean += v / n;
    for (double v : x)
        variance += (v - mean) * (v - mean) / n;
    double deviation = std::sqrt(variance + epsilon);
    for (size_t i = 0; i < x.size(); i++) {
        h[i] = (x[i] - mean) / deviation;
        u[i] = (y[i] - target[i]) * scale[i];
        sum += u[i];
        along += u[i] * h[i];
    }
    for (size_t i = 0; i < x.size(); i++)
        u[i] = (n * u[i] - sum - h[i] * along) / (n * deviation);
    return u;
}

/* What one token is to each layer: what goes in, and the gradient of what comes out. */
struct token_trace {
    numbers in[2], gradient[2];
};

inline token_trace trace_of(const learner &l, const numbers &k, const numbers &target,
                            const double *scale, const double *bias, double epsilon)
{
    token_trace t;
    numbers z[2];
    t.in[0] = k;
    for (int i = 0; i < l.layers; i++) {
        z[i] = times(t.in[i], l.weight[i], l.bias[i]);
        if (i + 1 < l.layers)
            for (double v : z[i])
                t.in[i + 1].push_back(gelu_of(v));
    }
    int top = l.layers - 1;
    t.gradient[top] = error_gradient(z[top], target, scale, bias, epsilon);
    if (top == 1) {
        t.gradient[0].assign((size_t)l.w, 0);
        for (int i = 0; i < l.w; i++) {
            for (int o = 0; o < l.d; o++)
                t.gradient[0][i] += t.gradient[1][o] * l.weight[1][i * l.d + o];
            t.gradient[0][i] *= gelu_slope(z[0][i]);
        }
    }
    return t;
}

/* The learner whose weights are `by` sums further down. */
inline learner moved_down(const learner &l, double by)
{
    learner m = l;
    for (int i = 0; i < l.layers; i++) {
        for (size_t j = 0; j < l.weight[i].size(); j++)
            m.weight[i][j] -= by * l.weight_sum[i][j];
        for (size_t j = 0; j < l.bias[i].size(); j++)
            m.bias[i][j] -= by * l.bias_sum[i][j];
    }
    return m;
}

inline void add_to_sums(learner &l, const token_trace &t, double rate)
{
    for (int i = 0; i < l.layers; i++) {
        size_t out = t.gradient[i].size();
        for (size_t j = 0; j < t.in[i].size(); j++)
            for (size_t o = 0; o < out; o++)
                l.weight_sum[i][j * out + o] += rate * t.in[i][j] * t.gradient[i][o];
        for (size_t o = 0; o < out; o++)
            l.bias_sum[i][o] += rate * t.gradient[i][o];
    }
}

inline numbers res_of(const learner &l, const numbers &x)
{
    numbers y = times(x, l.weight[0], l.bias[0]);
    if (l.layers == 1)
        return y;
    for (double &v : y)
        v = gelu_of(v);
    return times(y, l.weight[1], l.bias[1]);
}

inline numbers rotated(const numbers &x, int place, double theta)
{
    numbers y = x;
    if (theta == 0)
        return y;
    for (size_t i = 0; i < x.size() / 2; i++) {
        double angle = place * std::pow(theta, -2.0 * (double)i / (double)x.size());
        y[2 * i] = x[2 * i] * std::cos(angle) - x[2 * i + 1] * std::sin(angle);
        y[2 * i + 1] = x[2 * i + 1] * std::cos(angle) + x[2 * i] * std::sin(angle);
    }
    return y;
}

inline void turn_over(learner &l, double move)
{
    l = moved_down(l, move);
    for (int i = 0; i < l.layers; i++) {
        l.weight_sum[i].assign(l.weight_sum[i].size(), 0);
        l.bias_sum[i].assign(l.bias_sum[i].size(), 0);
    }
}

struct step_input {
    numbers q, k, v;
    double gate, rate, move, theta, epsilon;
    int place;
    bool ends;
    const double *scale, *bias;
};

/* One token: the answer; the learner goes on. */
inline numbers step_of(learner &l, const step_input &s)
{
    numbers q = rotated(s.q, s.place, s.theta), k = rotated(s.k, s.place, s.theta), target = s.v;
    for (size_t i = 0; i < k.size(); i++)
        target[i] -= k[i];
    token_trace t = trace_of(l, k, target, s.scale, s.bias, s.epsilon);
    add_to_sums(l, t, s.rate / (1 + std::exp(-s.gate)));
    numbers z = norm_of(res_of(moved_down(l, s.move), q), s.scale, s.bias, s.epsilon);
    for (size_t i = 0; i < z.size(); i++)
        z[i] += q[i];
    if (s.ends)
        turn_over(l, s.move);
    return z;
}

/* A mini-batch: token i answers with the weights moved by eta[i, j] times each token j; the learner
 * goes on with the last row. The answers are of the learner's output, without norm. */
inline numbers scan_of(learner &l, const numbers &k, const numbers &target, const numbers &q,
                       const numbers &eta, const double *scale, const double *bias, double epsilon)
{
    size_t d = (size_t)l.d, n = k.size() / d;
    std::vector<token_trace> traces;
    numbers answers;
    auto row = [d](const numbers &x, size_t i) {
        return numbers(x.begin() + (long)(i * d), x.begin() + (long)((i + 1) * d));
    };
    for (size_t j = 0; j < n; j++)
        traces.push_back(trace_of(l, row(k, j), row(target, j), scale, bias, epsilon));
    for (size_t i = 0; i < n; i++) {
        numbers x = row(q, i);
        for (int layer = 0; layer < l.layers; layer++) {
            if (layer > 0)
                for (double &v : x)
                    v = gelu_of(v);
            numbers y = times(x, l.weight[layer], l.bias[layer]);
            for (size_t j = 0; j < n; j++) {
                double along = 1; /* what the bias is multiplied by */
                for (size_t m = 0; m < x.size(); m++)
                    along += x[m] * traces[j].in[layer][m];
                for (size_t o = 0; o < y.size(); o++)
                    y[o] -= eta[i * n + j] * along * traces[j].gradient[layer][o];
            }
            x = y;
        }
        answers.insert(answers.end(), x.begin(), x.end());
    }
    for (size_t j = 0; j < n; j++)
        add_to_sums(l, traces[j], eta[(n - 1) * n + j]);
    turn_over(l, 1);
    return answers;
}

/* ---- bf16, and random numbers ------------------------------------------------------------------
 */

inline uint16_t to_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline double of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* An array as a kernel has it: f32 or bf16. */
struct stored {
    bool is_bf16 = false;
    std::vector<float> wide;
    std::vector<uint16_t> narrow;
    stored() = default;
    stored(size_t n, bool narrow_type) : is_bf16(narrow_type)
    {
        wide.resize(is_bf16 ? 0 : n);
        narrow.resize(is_bf16 ? n : 0);
    }
    void *data()
    {
        return is_bf16 ? static_cast<void *>(narrow.data()) : wide.data();
    }
    size_t size() const
    {
        return is_bf16 ? narrow.size() : wide.size();
    }
    size_t bytes() const
    {
        return size() * (is_bf16 ? 2 : 4);
    }
    double get(size_t i) const
    {
        return is_bf16 ? of_bf16(narrow[i]) : (double)wide[i];
    }
    void put(size_t i, double x)
    {
        if (is_bf16)
            narrow[i] = to_bf16(x);
        else
            wide[i] = (float)x;
    }
    void fill(std::mt19937 &random, double scale, double around = 0)
    {
        std::normal_distribution<double> normal;
        for (size_t i = 0; i < size(); i++)
            put(i, around + scale * normal(random));
    }
    numbers slice(size_t at, size_t n) const
    {
        numbers x(n);
        for (size_t i = 0; i < n; i++)
            x[i] = get(at + i);
        return x;
    }
};

#endif
