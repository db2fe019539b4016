/*
 * Tiles for the tensor cores, with f32 on both sides. A product of bf16 keeps 8 bits of each
 * factor; with TERMS = 3 a factor is two bf16, high and low, and three products keep 16 bits.
 *
 * Lane = 4 group + pair. Of a left tile (16 x 16) a lane has rows group and group + 8, columns
 * 2 pair, 2 pair + 1 and those + 8. Of a right tile (16 x 8) it has those columns as rows, in
 * column group. Of a sum (16 x 8) it has rows group and group + 8, columns 2 pair and 2 pair + 1.
 */
#ifndef KERNELS_CUDA_TILES_H
#define KERNELS_CUDA_TILES_H

#include "kernels/cuda/device.h"

DEVICE uint32_t low_part(uint32_t high, float x, float y)
{
    return pack_bf16(x - from_bits(high << 16), y - from_bits(high & 0xffff0000u));
}

template <int TERMS> struct left_tile {
    uint32_t high[4], low[4];
    DEVICE void set(int i, float x, float y)
    {
        high[i] = pack_bf16(x, y);
        if (TERMS == 3)
            low[i] = low_part(high[i], x, y);
    }
    /* m[row, column] on, rows `stride` apart; the tile is where the lane's own corner is. */
    DEVICE void take(shared<float> m, int stride, int row, int column, int lane)
    {
        int at = (row + lane / 4) * stride + column + 2 * (lane % 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 v = get8(m, at + i % 2 * 8 * stride + i / 2 * 8);
            set(i, v.x, v.y);
        }
    }
    /* The same of the transpose of m. */
    DEVICE void take_turned(shared<float> m, int stride, int row, int column, int lane)
    {
        int at = (column + 2 * (lane % 4)) * stride + row + lane / 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int from = at + i / 2 * 8 * stride + i % 2 * 8;
            set(i, m[from], m[from + stride]);
        }
    }
};

template <int TERMS> struct right_tile {
    uint32_t high[2], low[2];
    DEVICE void set(int i, float x, float y)
    {
        high[i] = pack_bf16(x, y);
        if (TERMS == 3)
            low[i] = low_part(high[i], x, y);
    }
    DEVICE void take(shared<float> m, int stride, int row, int column, int lane)
    {
        int at = (row + 2 * (lane % 4)) * stride + column + lane / 4;
#pragma unroll
        for (int i = 0; i < 2; i++)
            set(i, m[at + i * 8 * stride], m[at + (i * 8 + 1) * stride]);
    }
    /* The same of the transpose of m. */
    DEVICE void take_turned(shared<float> m, int stride, int row, int column, int lane)
    {
        int at = (column + lane / 4) * stride + row + 2 * (lane % 4);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float2 v = get8(m, at + i * 8);
            set(i, v.x, v.y);
        }
    }
};

template <int TERMS>
DEVICE void multiply(float (&c)[4], const left_tile<TERMS> &a, const right_tile<TERMS> &b)
{
    if (TERMS == 3) { /* the small ones first */
        mma(c, a.low, b.high);
        mma(c, a.high, b.low);
    }
    mma(c, a.high, b.high);
}

/* c += left[row on, 0 to inner] right[0 to inner, column on]. */
template <int TERMS>
DEVICE void add_product(float (&c)[4], shared<float> left, int left_stride, int row,
                        shared<float> right, int right_stride, int column, int inner, int lane)
{
#pragma unroll 4
    for (int step = 0; step < inner; step += 16) {
        left_tile<TERMS> rows;
        right_tile<TERMS> columns;
        rows.take(left, left_stride, row, step, lane);
        columns.take(right, right_stride, step, column, lane);
        multiply(c, rows, columns);
    }
}

/* The same with right[column on, 0 to inner], turned. */
template <int TERMS>
DEVICE void add_turned(float (&c)[4], shared<float> left, int left_stride, int row,
                       shared<float> right, int right_stride, int column, int inner, int lane)
{
#pragma unroll 4
    for (int step = 0; step < inner; step += 16) {
        left_tile<TERMS> rows;
        right_tile<TERMS> columns;
        rows.take(left, left_stride, row, step, lane);
        columns.take_turned(right, right_stride, step, column, lane);
        multiply(c, rows, columns);
    }
}

#endif
