/*
 * Private to the code that is compiled for several processors: what a learner computes row by row.
 * GELU is x s with s = logistic(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form, of which
 * 1 + tanh(u) = 2 s, and so no digits are lost where tanh comes near -1.
 */
#ifndef KERNELS_CPU_LEARNER_H
#define KERNELS_CPU_LEARNER_H

#include "kernels/cpu/lanes.h"

#include <math.h>

/* The derivative has the reference's own truncated constants. */
#define GELU_SLOPE 0.79788456f
#define GELU_BEND 0.1070322243f

INLINE vec gelu_gate(vec x)
{
    vec twice =
        x * (x * x * (-2 * 0.79788456080286535588f * 0.044715f) + (-2 * 0.79788456080286535588f));
    return 1.0f / (exp_of(twice) + 1.0f);
}

INLINE vec gelu_slope_at(vec x, vec gate)
{
    vec slope = x * x * GELU_BEND + GELU_SLOPE;
    return 2.0f * x * gate * (1.0f - gate) * slope + gate;
}

/* The derivative of gelu_slope_at. */
INLINE vec gelu_curve_at(vec x, vec gate)
{
    vec square = x * x, slope = square * GELU_BEND + GELU_SLOPE;
    vec flat = 4.0f * gate * (1.0f - gate), t = 2.0f * gate - 1.0f; /* 1 - tanh^2, tanh */
    return flat * (slope - x * t * slope * slope + square * GELU_BEND);
}

/* n numbers; `slope` may be NULL. */
static __attribute__((unused)) void gelu(int64_t n, const float *x, float *value, float *slope)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vec at = load(x + i), gate = gelu_gate(at);
        store(value + i, at * gate);
        if (slope != NULL)
            store(slope + i, gelu_slope_at(at, gate));
    }
}

/* (z - mean) / deviation of d lanes into h; returns 1 / deviation. */
INLINE float normalise(int64_t d, float epsilon, const float *z, float *h)
{
    vec sum = {0}, squares = {0};
    for (int64_t i = 0; i < d; i += LANES)
        sum += load(z + i);
    float mean = sum_of(sum) / (float)d;
    for (int64_t i = 0; i < d; i += LANES) {
        vec off = load(z + i) - mean;
        squares += off * off;
        store(h + i, off);
    }
    float inverse = 1 / sqrtf(sum_of(squares) / (float)d + epsilon);
    for (int64_t i = 0; i < d; i += LANES)
        store(h + i, load(h + i) * inverse);
    return inverse;
}

/* The gradient, in z, of half the squared error of norm(z) against the target; h has room for d. */
INLINE void loss_gradient(int64_t d, float epsilon, const float *scale, const float *bias,
                          const float *z, const float *target, float *h, float *g)
{
    float inverse = normalise(d, epsilon, z, h);
    vec sum = {0}, along = {0};
    for (int64_t i = 0; i < d; i += LANES) {
        vec s = load(scale + i), at = load(h + i);
        vec u = (s * at + load(bias + i) - load(target + i)) * s;
        sum += u;
        along += u * at;
        store(g + i, u);
    }
    float mean = sum_of(sum) / (float)d, share = sum_of(along) / (float)d;
    for (int64_t i = 0; i < d; i += LANES)
        store(g + i, (load(g + i) - mean - load(h + i) * share) * inverse);
}

#endif
