/* ttt_conv_step and ttt_gate_step with what they need, and the reference beside them. */
#ifndef TESTS_KERNELS_CUDA_SMALL_H
#define TESTS_KERNELS_CUDA_SMALL_H

#include "tests/kernels/cuda_reference.h"
#include "tests/kernels/cuda_source.h"

#include <algorithm>
#include <functional>

typedef std::function<void(const char *, const void *, size_t)> array_taker;

struct conv_bench {
    int filters, batch, channels, width;
    std::mt19937 random{1};
    stored x, tail, weight[2], bias[2], y[2];
    host::machine machine;

    conv_bench(int n_filters, int n_batch, int n_channels, int n_width, bool act_bf16,
               bool tail_bf16)
        : filters(n_filters), batch(n_batch), channels(n_channels), width(n_width)
    {
        size_t row = (size_t)(batch * channels);
        x = stored(row, act_bf16);
        tail = stored(row * (size_t)(width - 1), tail_bf16);
        tail.fill(random, 1);
        for (int i = 0; i < filters; i++) {
            weight[i] = stored((size_t)(channels * width), false);
            bias[i] = stored((size_t)channels, false);
            weight[i].fill(random, 0.5);
            bias[i].fill(random, 0.5);
            y[i] = stored(row, act_bf16);
        }
        x.fill(random, 1);
        name_arrays([this](const char *name, const void *data, size_t bytes) {
            machine.array(name, data, bytes);
        });
    }
    void name_arrays(const array_taker &take)
    {
        take("x", x.data(), x.bytes());
        take("tail", tail.data(), tail.bytes());
        for (int i = 0; i < filters; i++) {
            take("weight", weight[i].data(), weight[i].bytes());
            take("bias", bias[i].data(), bias[i].bytes());
            take("y", y[i].data(), y[i].bytes());
        }
    }
    ttt_conv_args args()
    {
        ttt_conv_args a = {};
        a.x = x.data();
        a.tail = tail.data();
        for (int i = 0; i < filters; i++) {
            a.weight[i] = weight[i].wide.data();
            a.bias[i] = bias[i].wide.data();
            a.y[i] = y[i].data();
        }
        a.filters = filters;
        a.batch = batch;
        a.channels = channels;
        a.width = width;
        a.act_bf16 = x.is_bf16;
        a.tail_bf16 = tail.is_bf16;
        return a;
    }
    void run_kernel()
    {
        host::launch_shape shape;
        ttt_conv_args a = args();
        shape.threads = TTT_CONV_THREADS;
        shape.blocks = (channels + TTT_CONV_THREADS - 1) / TTT_CONV_THREADS *
                       ((batch + TTT_CONV_ROWS - 1) / TTT_CONV_ROWS);
        machine.launch(shape, [&] {
            (width == 2 ? ttt_conv_2 : width == 3 ? ttt_conv_3 : ttt_conv_4)(a);
        });
    }
    /* How far off what a run made of `before`, a copy of the tail, is. */
    double check(const stored &before) const
    {
        double worst = 0;
        for (int row = 0; row < batch; row++) {
            for (int c = 0; c < channels; c++) {
                numbers window;
                for (int i = 0; i < width - 1; i++)
                    window.push_back(before.get((size_t)((row * (width - 1) + i) * channels + c)));
                window.push_back(x.get((size_t)(row * channels + c)));
                for (int f = 0; f < filters; f++) {
                    double sum = bias[f].get((size_t)c);
                    for (int i = 0; i < width; i++)
                        sum += weight[f].get((size_t)(c * width + i)) * window[(size_t)i];
                    double is = y[f].get((size_t)(row * channels + c));
                    worst = std::max(worst, std::fabs(is - sum) / (1 + std::fabs(sum)));
                }
                for (int i = 0; i < width - 1; i++) {
                    double is = tail.get((size_t)((row * (width - 1) + i) * channels + c));
                    double should = window[(size_t)i + 1];
                    if (tail.is_bf16)
                        should = of_bf16(to_bf16(should));
                    worst = is == should ? worst : 1;
                }
            }
        }
        return worst;
    }
};

struct gate_bench {
    int batch, channels;
    std::mt19937 random{1};
    stored z, gate, scale, bias, y;
    host::machine machine;

    gate_bench(int n_batch, int n_channels, bool act_bf16) : batch(n_batch), channels(n_channels)
    {
        z = gate = y = stored((size_t)(batch * channels), act_bf16);
        scale = bias = stored((size_t)channels, false);
        z.fill(random, 2, 1);
        gate.fill(random, 1);
        scale.fill(random, 0.1, 1);
        bias.fill(random, 0.1);
        name_arrays([this](const char *name, const void *data, size_t bytes) {
            machine.array(name, data, bytes);
        });
    }
    void name_arrays(const array_taker &take)
    {
        static const char *const names[] = {"z", "gate", "scale", "bias", "y"};
        stored *list[] = {&z, &gate, &scale, &bias, &y};
        for (int i = 0; i < 5; i++)
            take(names[i], list[i]->data(), list[i]->bytes());
    }
    void run_kernel()
    {
        ttt_gate_args a = {};
        a.z = z.data();
        a.gate = gate.data();
        a.scale = scale.wide.data();
        a.bias = bias.wide.data();
        a.y = y.data();
        a.channels = channels;
        a.act_bf16 = z.is_bf16;
        a.epsilon = 1e-6f;
        host::launch_shape shape;
        shape.threads = TTT_GATE_THREADS;
        shape.blocks = batch;
        shape.shared = TTT_GATE_SHARED;
        machine.launch(shape, [&] { (channels <= 2048 ? ttt_gate_2048 : ttt_gate_8192)(a); });
    }
    double check() const
    {
        double worst = 0;
        size_t n = (size_t)channels;
        numbers s = scale.slice(0, n), b = bias.slice(0, n);
        for (size_t row = 0; row < (size_t)batch; row++) {
            numbers normed = norm_of(z.slice(row * n, n), s.data(), b.data(), 1e-6);
            for (size_t c = 0; c < n; c++) {
                double should = normed[c] * gelu_of(gate.get(row * n + c));
                double is = y.get(row * n + c);
                worst = std::max(worst, std::fabs(is - should) / (1 + std::fabs(should)));
            }
        }
        return worst;
    }
};

#endif
