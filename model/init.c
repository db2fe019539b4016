/*
 * Initial values by counter. Elementary functions are our own, from additions, products, quotients
 * and square roots alone, which IEEE arithmetic rounds in one way: libm's differ between machines.
 * They are good to some 1e-15, far below what rounding to f32 leaves. This file is compiled without
 * fused multiply-add.
 */
#include "model/records.h"

#include <Random123/threefry.h> /* threefry2x32 */
#include <math.h>

static const double pi = 3.14159265358979323846, ln2 = 0.69314718055994530942;

/* c[0] + c[1] x + c[2] x^2 + … */
static double polynomial(const double *c, int count, double x)
{
    double sum = c[count - 1];
    for (int i = count - 2; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}
#define POLYNOMIAL(c, x) polynomial(c, sizeof(c) / sizeof *(c), x)

/* Natural logarithm of a positive, normal number: 2 atanh((m - 1) / (m + 1)) + e ln 2. */
static double log_of(double x)
{
    static const double c[] = {1,        1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                               1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    int e;
    double m = frexp(x, &e); /* exact */
    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1);
    return 2 * s * POLYNOMIAL(c, s * s) + e * ln2;
}

/* exp(x) for |x| below some hundreds. */
static double exp_of(double x)
{
    double k = floor(x / ln2 + 0.5), r = x - k * ln2, sum = 1;
    for (int i = 16; i >= 1; i--)
        sum = 1 + sum * r / i;
    return ldexp(sum, (int)k); /* exact */
}

/* cos(x) and sin(x) for 0 <= x <= pi / 4, by their series. */
static double small_cos(double x)
{
    static const double c[] = {
        1,
        -1.0 / 2,
        1.0 / 24,
        -1.0 / 720,
        1.0 / 40320,
        -1.0 / 3628800,
        1.0 / 479001600,
        -1.0 / 87178291200,
        1.0 / 20922789888000,
    };
    return POLYNOMIAL(c, x * x);
}

static double small_sin(double x)
{
    static const double c[] = {
        1,
        -1.0 / 6,
        1.0 / 120,
        -1.0 / 5040,
        1.0 / 362880,
        -1.0 / 39916800,
        1.0 / 6227020800,
        -1.0 / 1307674368000,
        1.0 / 355687428096000,
    };
    return x * POLYNOMIAL(c, x * x);
}

/* cos(2 pi (bits + 1/2) / 2^32), through the eighth of the circle that it is in. */
static double cos_of_turn(uint32_t bits)
{
    double turn = ((double)bits + 0.5) / 4294967296.0; /* exact, and so is all until pi comes in */
    if (turn > 0.5)
        turn = 1 - turn;
    double sign = 1;
    if (turn > 0.25) {
        turn = 0.5 - turn;
        sign = -1;
    }
    return sign * (turn <= 0.125 ? small_cos(2 * pi * turn) : small_sin(2 * pi * (0.25 - turn)));
}

/* ---- from counters to numbers ---------------------------------------------------------------- */

static double uniform_of(uint32_t bits)
{
    return ((double)bits + 0.5) / 4294967296.0;
}

/* Two words for an element; `attempt` is for those that are drawn again. */
static threefry2x32_ctr_t draw(threefry2x32_key_t key, uint64_t element, unsigned attempt)
{
    threefry2x32_ctr_t counter = {{(uint32_t)element, (uint32_t)(element >> 32) | attempt << 24}};
    return threefry2x32(counter, key);
}

static double normal_of(threefry2x32_ctr_t bits)
{
    return sqrt(-2 * log_of(uniform_of(bits.v[0]))) * cos_of_turn(bits.v[1]);
}

/* Normal of deviation 1 before all beyond two deviations was thrown away, at most 255 times. */
static double truncated_normal(threefry2x32_key_t key, uint64_t element)
{
    for (unsigned attempt = 0; attempt < 256; attempt++) {
        double value = normal_of(draw(key, element, attempt));
        if (value >= -2 && value <= 2)
            return value;
    }
    return 0;
}

/* The x with softplus(x) = step, for steps spread evenly in their logarithm. */
static double step_bias(double u)
{
    double low = log_of(0.001), step = exp_of(low + u * (log_of(0.1) - low));
    return step + log_of(1 - exp_of(-step));
}

/* Each parameter has a stream of its own: its name, by FNV-1a, enciphered with the seed. */
static threefry2x32_key_t stream_of(const char *name, uint64_t seed)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    threefry2x32_ctr_t word = {{(uint32_t)hash, (uint32_t)(hash >> 32)}};
    threefry2x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    word = threefry2x32(word, key);
    return (threefry2x32_key_t){{word.v[0], word.v[1]}};
}

static float value_of(const ttt_param *p, threefry2x32_key_t key, uint64_t element)
{
    /* The deviation that is left of 1 after truncation at 2. */
    static const double left = 0.87962566103423978;
    switch (p->init) {
    case TTT_INIT_ZEROS:
        return 0;
    case TTT_INIT_ONES:
        return 1;
    case TTT_INIT_NORMAL:
        return (float)(p->scale * normal_of(draw(key, element, 0)));
    case TTT_INIT_LECUN_NORMAL:
        return (float)(truncated_normal(key, element) / (sqrt(p->scale) * left));
    case TTT_INIT_UNIFORM:
        return (float)(p->scale * (2 * uniform_of(draw(key, element, 0).v[0]) - 1));
    case TTT_INIT_LOG_COUNT:
        return (float)log_of(1 + (double)(element % (uint64_t)p->shape.dims[p->shape.rank - 1]));
    case TTT_INIT_STEP_BIAS:
        return (float)step_bias(uniform_of(draw(key, element, 0).v[0]));
    }
    return 0;
}

/* The block of a parameter that is not stacked; returns where `out` has come to. */
static float *init_one(const ttt_param *param, uint64_t seed, const int64_t *start,
                       const int64_t *limit, float *out)
{
    threefry2x32_key_t key = stream_of(param->name, seed);
    const hlo_shape *s = &param->shape;
    int64_t at[HLO_MAX_RANK] = {0}, first[HLO_MAX_RANK] = {0}, end[HLO_MAX_RANK];
    for (int i = 0; i < s->rank; i++) {
        at[i] = first[i] = start == NULL ? 0 : start[i];
        end[i] = limit == NULL ? s->dims[i] : limit[i];
        if (at[i] >= end[i])
            return out;
    }
    for (;;) {
        int64_t element = 0;
        for (int i = 0; i < s->rank; i++)
            element = element * s->dims[i] + at[i];
        /* A row at a time: the last dimension is dense. */
        int64_t row = s->rank == 0 ? 1 : end[s->rank - 1] - at[s->rank - 1];
        for (int64_t i = 0; i < row; i++)
            *out++ = value_of(param, key, (uint64_t)(element + i));
        int dim = s->rank - 2;
        while (dim >= 0 && ++at[dim] == end[dim]) {
            at[dim] = first[dim];
            dim--;
        }
        if (dim < 0)
            return out;
    }
}

void ttt_init_block(const ttt_param *param, uint64_t seed, const int64_t *start,
                    const int64_t *limit, float *out)
{
    if (param->layers == 0) {
        init_one(param, seed, start, limit, out);
        return;
    }
    int64_t first = start == NULL ? 0 : start[0], end = limit == NULL ? param->layers : limit[0];
    for (int64_t layer = first; layer < end; layer++) {
        char name[TTT__NAME];
        ttt_param one = ttt__param_layer(param, layer, name);
        out = init_one(&one, seed, start == NULL ? NULL : start + 1,
                       limit == NULL ? NULL : limit + 1, out);
    }
}
