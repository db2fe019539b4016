/*
 * Private to the code that is compiled for several processors (code_*.c): vectors of LANES floats,
 * by the vector types of GCC and clang. CODE_PATH is the name of the path that is being compiled.
 */
#ifndef KERNELS_CPU_LANES_H
#define KERNELS_CPU_LANES_H

#include <stdint.h>
#include <string.h>

#define CODE_PASTE_(name, path) name##_##path
#define CODE_PASTE(name, path) CODE_PASTE_(name, path)
#define CODE(name) CODE_PASTE(name, CODE_PATH)
#define CODE_TEXT_(path) #path
#define CODE_TEXT(path) CODE_TEXT_(path)

#define INLINE static inline __attribute__((always_inline, unused))

/* Loops over registers have to become registers. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#endif

enum { LANES = CODE_LANES };

typedef float vec __attribute__((vector_size(4 * CODE_LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * CODE_LANES)));
typedef float vec_anywhere
    __attribute__((vector_size(4 * CODE_LANES), aligned(4), may_alias)); /* in memory */

INLINE vec load(const float *p)
{
    return *(const vec_anywhere *)p;
}

INLINE void store(float *p, vec v)
{
    *(vec_anywhere *)p = v;
}

/* x in every lane; less zero, for plus zero would change the sign of -0. */
INLINE vec all(float x)
{
    return x - (vec){0};
}

INLINE vec vmin(vec a, vec b)
{
    ivec less = a < b;
    return (vec)(((ivec)a & less) | ((ivec)b & ~less));
}

INLINE vec vmax(vec a, vec b)
{
    ivec more = a > b;
    return (vec)(((ivec)a & more) | ((ivec)b & ~more));
}

/* e^x to an ulp or two, for x clamped to what a float can say. */
INLINE vec exp_of(vec x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = vmin(vmax(x, all(-87.0f)), all(88.0f));
    vec shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
    vec r = x - n * 0.693145751953125f;
    r = r - n * 1.42860677e-6f;
    vec p = all(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return (vec)((ivec)p + ((ivec)shifted << 23));
}

/* ---- 8 x 8 blocks, whatever LANES is
 * ---------------------------------------------------------------
 */

typedef float vec8 __attribute__((vector_size(32)));
typedef float vec8_anywhere __attribute__((vector_size(32), aligned(4), may_alias));

INLINE vec8 load8(const float *p)
{
    return *(const vec8_anywhere *)p;
}

INLINE void store8(float *p, vec8 v)
{
    *(vec8_anywhere *)p = v;
}

/* The halves of a wider vector, added up. */
INLINE vec8 fold(vec v)
{
    vec8 part[LANES / 8];
    memcpy(part, &v, sizeof part);
    UNROLLED
    for (int i = 1; i < LANES / 8; i++)
        part[0] += part[i];
    return part[0];
}

INLINE float sum_of(vec v)
{
    vec8 s = fold(v);
    s += __builtin_shufflevector(s, s, 4, 5, 6, 7, 0, 1, 2, 3);
    s += __builtin_shufflevector(s, s, 2, 3, 0, 1, 6, 7, 4, 5);
    s += __builtin_shufflevector(s, s, 1, 0, 3, 2, 5, 4, 7, 6);
    return s[0];
}

/* Rows become columns. */
INLINE void turn8(vec8 r[8])
{
    vec8 s[8], t[8];
    UNROLLED
    for (int i = 0; i < 8; i += 2) {
        s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLLED
    for (int i = 0; i < 8; i += 4) {
        UNROLLED
        for (int j = 0; j < 2; j++) {
            t[i + 2 * j] =
                __builtin_shufflevector(s[i + j], s[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            t[i + 2 * j + 1] =
                __builtin_shufflevector(s[i + j], s[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        r[i] = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* The sums of eight vectors, as one. */
INLINE vec8 sums8(const vec *v)
{
    vec8 r[8];
    UNROLLED
    for (int i = 0; i < 8; i++)
        r[i] = fold(v[i]);
    turn8(r);
    return ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
}

#endif
