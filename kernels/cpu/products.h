/*
 * Private to the code that is compiled for several processors: small matrix products. Matrices are
 * row-major with a stride between rows; numbers of columns are multiples of LANES.
 */
#ifndef KERNELS_CPU_PRODUCTS_H
#define KERNELS_CPU_PRODUCTS_H

#include "kernels/cpu/lanes.h"

#include <stdbool.h>

/* What becomes of c. */
typedef enum product_mode { SET, ADD, SUBTRACT } product_mode;

/* The left side of a product: element (i, j) is at[i * row + j * column]. */
typedef struct left_side {
    const float *at;
    int64_t row, column;
} left_side;

INLINE left_side plain(const float *at, int64_t stride)
{
    return (left_side){at, stride, 1};
}

INLINE left_side turned(const float *at, int64_t stride)
{
    return (left_side){at, 1, stride};
}

/* rows x (vecs LANES) of c, all in registers. */
INLINE void tile(int rows, int vecs, int64_t k, left_side a, const float *b, int64_t b_row,
                 float *c, int64_t c_row, product_mode mode)
{
    vec sum[6][4];
    UNROLLED
    for (int i = 0; i < rows; i++) {
        UNROLLED
        for (int j = 0; j < vecs; j++)
            sum[i][j] = (vec){0};
    }
    for (int64_t l = 0; l < k; l++) {
        vec line[4];
        UNROLLED
        for (int j = 0; j < vecs; j++)
            line[j] = load(b + j * LANES);
        UNROLLED
        for (int i = 0; i < rows; i++) {
            vec x = all(a.at[i * a.row]);
            UNROLLED
            for (int j = 0; j < vecs; j++)
                sum[i][j] += x * line[j];
        }
        b += b_row;
        a.at += a.column;
    }
    UNROLLED
    for (int i = 0; i < rows; i++) {
        UNROLLED
        for (int j = 0; j < vecs; j++) {
            float *to = c + i * c_row + j * LANES;
            store(to, mode == SET ? sum[i][j]
                                  : (mode == ADD ? load(to) + sum[i][j] : load(to) - sum[i][j]));
        }
    }
}

INLINE void tile_rows(int64_t rows, int vecs, int64_t k, left_side a, const float *b, int64_t b_row,
                      float *c, int64_t c_row, product_mode mode)
{
    switch (rows) {
    case 1:
        tile(1, vecs, k, a, b, b_row, c, c_row, mode);
        break;
    case 2:
        tile(2, vecs, k, a, b, b_row, c, c_row, mode);
        break;
    case 3:
        tile(3, vecs, k, a, b, b_row, c, c_row, mode);
        break;
    case 4:
        tile(4, vecs, k, a, b, b_row, c, c_row, mode);
        break;
    case 5:
        tile(5, vecs, k, a, b, b_row, c, c_row, mode);
        break;
    default:
        tile(6, vecs, k, a, b, b_row, c, c_row, mode);
    }
}

INLINE void panel(int vecs, int64_t m, int64_t k, left_side a, const float *b, int64_t b_row,
                  float *c, int64_t c_row, product_mode mode)
{
    for (int64_t i = 0; i < m; i += 6) {
        left_side part = {a.at + i * a.row, a.row, a.column};
        tile_rows(m - i < 6 ? m - i : 6, vecs, k, part, b, b_row, c + i * c_row, c_row, mode);
    }
}

/* c [m, n] from a [m, k] times b [k, n]. */
static __attribute__((unused)) void product(int64_t m, int64_t n, int64_t k, left_side a,
                                            const float *b, int64_t b_row, float *c, int64_t c_row,
                                            product_mode mode)
{
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES)
        panel(2, m, k, a, b + j, b_row, c + j, c_row, mode);
    if (j < n)
        panel(1, m, k, a, b + j, b_row, c + j, c_row, mode);
}

/*
 * to [columns, rows] from [rows, columns]; rows of `to` are filled with zeros up to `padded`, a
 * multiple of 8. Rows that do not exist are not read; what stands in columns up to the next
 * multiple of 8 is, and forgotten.
 */
INLINE void turn_as(int64_t rows, int64_t columns, const float *from, int64_t from_row, float *to,
                    int64_t to_row, int64_t padded, product_mode mode)
{
    for (int64_t i = 0; i < padded; i += 8) {
        for (int64_t j = 0; j < columns; j += 8) {
            vec8 r[8];
            for (int64_t l = 0; l < 8; l++)
                r[l] = i + l < rows ? load8(from + (i + l) * from_row + j) : (vec8){0};
            turn8(r);
            for (int64_t l = 0; l < 8 && j + l < columns; l++) {
                float *at = to + (j + l) * to_row + i;
                store8(at,
                       mode == SET ? r[l] : (mode == ADD ? load8(at) + r[l] : load8(at) - r[l]));
            }
        }
    }
}

static __attribute__((unused)) void turn(int64_t rows, int64_t columns, const float *from,
                                         int64_t from_row, float *to, int64_t to_row,
                                         int64_t padded)
{
    turn_as(rows, columns, from, from_row, to, to_row, padded, SET);
}

/*
 * c [m, k] from a [m, n] times w [k, n] turned. The few rows of a are turned, not w: w times those
 * is c turned. `padded` is m up to a multiple of LANES; scratch has room for (n + k) padded.
 */
static __attribute__((unused)) void product_turned(int64_t m, int64_t k, int64_t n, const float *a,
                                                   int64_t a_row, const float *w, int64_t w_row,
                                                   float *c, int64_t c_row, product_mode mode,
                                                   int64_t padded, float *scratch)
{
    float *small = scratch, *made = scratch + n * padded;
    turn(m, n, a, a_row, small, padded, padded);
    product(k, padded, n, plain(w, w_row), small, padded, made, padded, SET);
    if (mode == SET)
        turn_as(k, m, made, padded, c, c_row, k, SET);
    else if (mode == ADD)
        turn_as(k, m, made, padded, c, c_row, k, ADD);
    else
        turn_as(k, m, made, padded, c, c_row, k, SUBTRACT);
}

#endif
