/*
 * Private to the code of scans: one mini-batch of one head of one sequence, in memory to work in.
 * E is eta, e its last row, P = Q K^T + 1 (a bias is a weight whose input is 1), M = E P element by
 * element; G are the gradients of the learner's layers. Then, for one layer,
 *
 *     answers = Q W + b - M G,      W' = W - (e K)^T G,      b' = b - e G.
 */
#ifndef KERNELS_CPU_SCAN_INSIDE_H
#define KERNELS_CPU_SCAN_INSIDE_H

#include "kernels/cpu/code.h"
#include "kernels/cpu/learner.h"
#include "kernels/cpu/products.h"

/* Weights with a line of nothing after each row: rows of a power of two bytes would all want the
 * same few places of the cache. */
enum { GAP = 16 };

typedef struct scan_state {
    float *w[2], *b[2];
} scan_state;

/* What backwards needs beside the rest. */
typedef struct scan_gradients {
    float *u1, *u2, *dg1, *dg2, *dp, *dm, *dxb, *dx, *dz1, *dz2, *weighed, *slope_b, *de;
    float *h, *u, *du, *dh; /* [d] */
    scan_state state;
    float *kept, *inner; /* states between groups, and within one */
    float *trained;      /* within a group: what scan_train left, for each mini-batch */
} scan_gradients;

typedef struct scan_work {
    const scan_job *job;
    learner_shape learner;
    int64_t b, bp, d, n; /* tokens; up to a multiple of LANES; lanes; what layer 0 gives out */
    int64_t row[2];      /* of the weights */
    int64_t state_size, trained_size;
    float *eta, *p1, *m1, *p2, *m2;           /* [b, bp] */
    float *z1, *g1, *x, *slope, *r, *z2, *g2; /* [b, ·]: what scan_train leaves */
    float *y, *xb;                            /* [b, ·] */
    float *weighed, *turned, *h, *scratch;
    scan_state state;
    scan_gradients back;
    /* of the mini-batch at hand */
    const float *k, *target, *q, *e;
} scan_work;

/* Divides `base` up; with NULL only the number of floats is found. */
size_t CODE(scan_lay_out)(const scan_job *job, bool backward, float *base, scan_work *s);
/* Where scan_train leaves what it computes: trained_size floats. */
void CODE(scan_train_into)(scan_work *s, float *trained);
/* Weights and biases of a unit into a state, and out of one. */
void CODE(scan_read_state)(const scan_work *s, int64_t unit, const float *const w[2],
                           const float *const b[2], const scan_state *to);
void CODE(scan_write_state)(const scan_work *s, int64_t unit, const scan_state *from,
                            float *const w[2], float *const b[2]);
/* The arrays of mini-batch i. */
void CODE(scan_open)(scan_work *s, int64_t unit, int64_t i);
/* Keys through the state, and the gradients of both layers. */
void CODE(scan_train)(scan_work *s, const scan_state *state);
/* What the first layer answers, into y, and with two layers what goes into the second, xb. */
void CODE(scan_answer_first)(scan_work *s, const scan_state *state, float *y, float *slope);
/* P and M of the second layer. */
void CODE(scan_mix_second)(scan_work *s);
/* The state after the mini-batch. */
void CODE(scan_move)(scan_work *s, const scan_state *state);

/* ---- rows --------------------------------------------------------------------------------------
 */

/* Each row [n] becomes `row`. */
INLINE void rows_fill(int64_t rows, int64_t n, const float *row, float *to)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * n, row, (size_t)n * sizeof *to);
}

/* to[i] = by[i] x[i] for rows of n. */
INLINE void rows_weigh(int64_t rows, int64_t n, const float *by, const float *x, float *to)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j += LANES)
            store(to + i * n + j, by[i] * load(x + i * n + j));
    }
}

/* row += or -= the sum of the rows. */
INLINE void rows_sum(int64_t rows, int64_t n, const float *x, float *row, product_mode mode)
{
    for (int64_t j = 0; j < n; j += LANES) {
        vec sum = {0};
        for (int64_t i = 0; i < rows; i++)
            sum += load(x + i * n + j);
        store(row + j, mode == ADD ? load(row + j) + sum : load(row + j) - sum);
    }
}

#endif
