/*
 * Rows of weights times a few rows of activations. With one row of activations this is the speed of
 * memory: weights are read once, all in order, as the processor likes it best. With more, each
 * piece of a weight's row that has been read and widened serves several rows, and rows are cut so
 * that the activations' pieces stay in the nearest cache.
 */
#include "kernels/cpu/code.h"
#include "kernels/cpu/lanes.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

/* The compiler would take bytes one by one; the processors have an instruction. */
INLINE vec widen_s8(const void *w, int64_t at)
{
    const int8_t *from = (const int8_t *)w + at;
#if defined(__AVX512F__)
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
#elif defined(__AVX2__)
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
#else
    byte_lanes x;
    memcpy(&x, from, sizeof x);
    return __builtin_convertvector(__builtin_convertvector(x, ivec), vec);
#endif
}

INLINE float one_s8(const void *w, int64_t at)
{
    return ((const int8_t *)w)[at];
}

typedef vec (*widen)(const void *w, int64_t at);
typedef float (*one)(const void *w, int64_t at);

enum { AT_ONCE = 8 }; /* vectors in flight */

/* One row of weights, one of activations. */
INLINE float row_by_row(const product_part *p, int64_t n, widen wide, one single)
{
    int64_t k = p->k, j = 0, from = n * k;
    vec sum[AT_ONCE] = {{0}};
    for (; j + AT_ONCE * LANES <= k; j += AT_ONCE * LANES) {
        UNROLLED
        for (int i = 0; i < AT_ONCE; i++)
            sum[i] += wide(p->w, from + j + i * LANES) * load(p->x + j + i * LANES);
    }
    for (; j + LANES <= k; j += LANES)
        sum[0] += wide(p->w, from + j) * load(p->x + j);
    sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    sum[4] = (sum[4] + sum[5]) + (sum[6] + sum[7]);
    float y = sum_of(sum[0] + sum[4]);
    for (; j < k; j++)
        y += single(p->w, from + j) * p->x[j];
    return y;
}

/* `rows` rows of weights from row n with the four rows of activations of one panel. */
INLINE void by_panel(int rows, const product_part *p, int64_t n, int64_t b, widen wide, one single)
{
    int64_t k = p->k, j = 0;
    const float *x = p->panels + b * (k / LANES * LANES);
    vec sum[16] = {{0}};
    for (; j + LANES <= k; j += LANES, x += 4 * LANES) {
        vec w[4];
        UNROLLED
        for (int r = 0; r < rows; r++)
            w[r] = wide(p->w, (n + r) * k + j);
        UNROLLED
        for (int i = 0; i < 4; i++) {
            vec at = load(x + i * LANES);
            UNROLLED
            for (int r = 0; r < rows; r++)
                sum[4 * r + i] += w[r] * at;
        }
    }
    float made[16];
    store8(made, sums8(sum));
    if (rows > 2)
        store8(made + 8, sums8(sum + 8));
    for (int64_t i = b; i < b + 4 && i < p->batch; i++) {
        for (int r = 0; r < rows; r++) {
            float y = made[4 * r + i - b];
            for (int64_t l = j; l < k; l++)
                y += single(p->w, (n + r) * k + l) * p->x[i * k + l];
            p->y[i * p->n + n + r] = y;
        }
    }
}

/* As many rows of weights as there are registers for four sums of each. */
enum { ROWS = CODE_LANES == 16 ? 4 : 3 };

INLINE void part(const product_part *p, widen wide, one single)
{
    int64_t n = p->first;
    for (; n < p->end && p->batch == 1; n++)
        p->y[n] = row_by_row(p, n, wide, single);
    for (; n + ROWS <= p->end; n += ROWS) {
        for (int64_t b = 0; b < p->batch; b += 4)
            by_panel(ROWS, p, n, b, wide, single);
    }
    for (; n < p->end; n++) {
        for (int64_t b = 0; b < p->batch; b += 4)
            by_panel(1, p, n, b, wide, single);
    }
    for (int64_t b = 0; b < p->batch && p->scale != NULL; b++) {
        for (n = p->first; n < p->end; n++)
            p->y[b * p->n + n] *= p->scale[n];
    }
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
