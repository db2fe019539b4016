/*
 * Rows of weights times a few rows of activations. With one row of activations this is the speed of
 * memory: weights are read once, in order, several rows side by side. With more, each piece of a
 * weight's row that has been read and widened serves several rows.
 */
#include "kernels/cpu/code.h"
#include "kernels/cpu/lanes.h"

/* LANES weights from memory as floats. */
typedef uint16_t half_lanes __attribute__((vector_size(2 * CODE_LANES)));
typedef int8_t byte_lanes __attribute__((vector_size(CODE_LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * CODE_LANES)));

INLINE vec widen_f32(const void *w, int64_t at)
{
    return load((const float *)w + at);
}

INLINE float one_f32(const void *w, int64_t at)
{
    return ((const float *)w)[at];
}

INLINE vec widen_bf16(const void *w, int64_t at)
{
    half_lanes x;
    memcpy(&x, (const uint16_t *)w + at, sizeof x);
    return (vec)(__builtin_convertvector(x, uvec) << 16);
}

INLINE float one_bf16(const void *w, int64_t at)
{
    uint32_t bits = (uint32_t)((const uint16_t *)w)[at] << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

INLINE vec widen_s8(const void *w, int64_t at)
{
    byte_lanes x;
    memcpy(&x, (const int8_t *)w + at, sizeof x);
    return __builtin_convertvector(__builtin_convertvector(x, ivec), vec);
}

INLINE float one_s8(const void *w, int64_t at)
{
    return ((const int8_t *)w)[at];
}

typedef vec (*widen)(const void *w, int64_t at);
typedef float (*one)(const void *w, int64_t at);

/* `rows` rows of weights from row n with `batch` rows of x from row b. */
INLINE void block(int rows, int batch, const product_part *p, int64_t n, int64_t b, widen wide,
                  one single)
{
    vec sum[4][4];
    int64_t k = p->k, even = k - k % LANES;
    const float *x = p->x + b * k;
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int i = 0; i < batch; i++)
            sum[r][i] = (vec){0};
    }
    for (int64_t j = 0; j < even; j += LANES) {
        vec at[4];
        UNROLLED
        for (int i = 0; i < batch; i++)
            at[i] = load(x + i * k + j);
        UNROLLED
        for (int r = 0; r < rows; r++) {
            vec w = wide(p->w, (n + r) * k + j);
            UNROLLED
            for (int i = 0; i < batch; i++)
                sum[r][i] += w * at[i];
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < batch; i++) {
            float y = sum_of(sum[r][i]);
            for (int64_t j = even; j < k; j++)
                y += single(p->w, (n + r) * k + j) * x[i * k + j];
            p->y[(b + i) * p->n + n + r] = p->scale == NULL ? y : y * p->scale[n + r];
        }
    }
}

INLINE void rows_of(int rows, const product_part *p, int64_t n, widen wide, one single)
{
    int64_t b = 0;
    for (; b + 4 <= p->batch; b += 4)
        block(rows, 4, p, n, b, wide, single);
    switch (p->batch - b) {
    case 3:
        block(rows, 3, p, n, b, wide, single);
        break;
    case 2:
        block(rows, 2, p, n, b, wide, single);
        break;
    case 1:
        block(rows, 1, p, n, b, wide, single);
        break;
    default:
        break;
    }
}

/* Two rows of weights with four of activations, or four with one: eight sums at most stay in
 * registers beside what they are made of. */
INLINE void part(const product_part *p, widen wide, one single)
{
    int64_t n = p->first;
    if (p->batch == 1) {
        for (; n + 4 <= p->end; n += 4)
            block(4, 1, p, n, 0, wide, single);
    } else {
        for (; n + 2 <= p->end; n += 2)
            rows_of(2, p, n, wide, single);
    }
    for (; n < p->end; n++)
        rows_of(1, p, n, wide, single);
}

void CODE(product_f32)(const product_part *p);
void CODE(product_f32)(const product_part *p)
{
    part(p, widen_f32, one_f32);
}

void CODE(product_bf16)(const product_part *p);
void CODE(product_bf16)(const product_part *p)
{
    part(p, widen_bf16, one_bf16);
}

void CODE(product_s8)(const product_part *p);
void CODE(product_s8)(const product_part *p)
{
    part(p, widen_s8, one_s8);
}
