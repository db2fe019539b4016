/*
 * Rules that move the weights once a mini-batch, by the sum of its gradients times their rates.
 *
 * Muon, as large chunks of test-time training have it: the sum, with momentum if there are gates,
 * is made nearly orthogonal by five Newton-Schulz steps, and each column of the weights keeps the
 * norm that it started with. Halves of a SwiGLU layer are matrices of their own, and biases go by
 * the sum as it is. Adam is the usual one.
 */
#include "model/learner/internal.h"

#include <math.h>

#define FIRST_DECAY 0.9
#define SECOND_DECAY 0.99
#define ADAM_EPSILON 1e-4 /* its square is added to the second moment */
#define TINY_SQUARE 1e-10 /* added to squares of norms */

static hlo_val scaled(hlo_graph *g, hlo_val v, double by)
{
    return hlo_mul(g, v, hlo_like(g, v, by));
}

/* ---- Muon ------------------------------------------------------------------------------------ */

/* One over the norm, given its square. */
static hlo_val inverse(hlo_graph *g, hlo_val square)
{
    return hlo_rsqrt(g, hlo_add(g, square, hlo_like(g, square, TINY_SQUARE)));
}

/* Singular values of x [B, H, in, out] drawn to about 1, by products on the shorter side. */
static hlo_val orthogonal(hlo_graph *g, hlo_val x)
{
    static const double steps[][3] = {{4.0848, -6.8946, 2.9270},
                                      {3.9505, -6.3029, 2.6377},
                                      {3.7418, -5.5913, 2.3037},
                                      {2.8769, -3.1427, 1.2046},
                                      {2.8366, -3.0525, 1.2012}};
    bool tall = hlo_dim(g, x, 2) > hlo_dim(g, x, 3);
    hlo_val square = hlo_reduce_keep(g, HLO_REDUCE_ADD, hlo_mul(g, x, x), HLO_DIMS(2, 3));
    x = hlo_mul(g, x, inverse(g, square));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        hlo_val a = hlo_einsum(g, tall ? "bhki,bhkj->bhij" : "bhik,bhjk->bhij", x, x);
        hlo_val b = hlo_add(g, scaled(g, a, steps[i][1]),
                            scaled(g, hlo_einsum(g, "bhik,bhkj->bhij", a, a), steps[i][2]));
        hlo_val bx =
            tall ? hlo_einsum(g, "bhik,bhkj->bhij", x, b) : hlo_einsum(g, "bhik,bhkj->bhij", b, x);
        x = hlo_add(g, scaled(g, x, steps[i][0]), bx);
    }
    return x;
}

static hlo_val orthogonal_halves(hlo_graph *g, hlo_val x)
{
    int64_t width = hlo_dim(g, x, 3) / 2;
    return hlo_concat(g,
                      (hlo_val[]){orthogonal(g, hlo_slice_dim(g, x, 3, 0, width)),
                                  orthogonal(g, hlo_slice_dim(g, x, 3, width, 2 * width))},
                      2, 3);
}

static hlo_val column_squares(hlo_graph *g, hlo_val w)
{
    return hlo_reduce_keep(g, HLO_REDUCE_ADD, hlo_mul(g, w, w), HLO_DIMS(hlo_rank(g, w) - 2));
}

/* w with columns of the norms that the start's have. */
static hlo_val with_norms(hlo_graph *g, hlo_val w, hlo_val start)
{
    hlo_val square = column_squares(g, start);
    hlo_val norm = hlo_mul(g, square, inverse(g, square));
    return hlo_mul(g, w, hlo_mul(g, norm, inverse(g, column_squares(g, w))));
}

static void muon(hlo_graph *g, const learner *l, const learner_weights *sums, hlo_val momentum,
                 learner_state *state)
{
    learner_weights pull = *sums;
    for (int i = 0; i < l->n_layers; i++) {
        if (l->momentum) {
            pull.w[i] = hlo_add(g, hlo_mul(g, momentum, state->first.w[i]), pull.w[i]);
            if (pull.b[i].id != 0)
                pull.b[i] = hlo_add(g, hlo_mul(g, momentum, state->first.b[i]), pull.b[i]);
        }
        bool halves = l->swiglu && i < l->n_layers - 1;
        hlo_val by = halves ? orthogonal_halves(g, pull.w[i]) : orthogonal(g, pull.w[i]);
        hlo_val moved = hlo_sub(g, state->now.w[i], scaled(g, by, l->step));
        state->now.w[i] = with_norms(g, moved, l->w[i]);
        if (pull.b[i].id != 0)
            state->now.b[i] = hlo_sub(g, state->now.b[i], pull.b[i]);
    }
    if (l->momentum)
        state->first = pull;
}

/* ---- Adam ------------------------------------------------------------------------------------ */

/* An average of `old` and `new`, by the share of the old. */
static hlo_val average(hlo_graph *g, hlo_val old, hlo_val new, double share)
{
    return hlo_add(g, scaled(g, old, share), scaled(g, new, 1 - share));
}

/* 1 / (1 - share^steps): what averages that began with zero are short of. */
static hlo_val correction(hlo_graph *g, hlo_val steps, double share)
{
    hlo_val one = hlo_like(g, steps, 1);
    return hlo_div(g, one, hlo_sub(g, one, hlo_exp(g, scaled(g, steps, log(share)))));
}

static void adam_array(hlo_graph *g, const learner *l, hlo_val steps, hlo_val gradient, hlo_val *w,
                       hlo_val *first, hlo_val *second)
{
    *first = average(g, *first, gradient, FIRST_DECAY);
    *second = average(g, *second, hlo_mul(g, gradient, gradient), SECOND_DECAY);
    hlo_val mean = hlo_mul(g, *first, correction(g, steps, FIRST_DECAY));
    hlo_val square = hlo_mul(g, *second, correction(g, steps, SECOND_DECAY));
    square = hlo_add(g, square, hlo_like(g, square, ADAM_EPSILON * ADAM_EPSILON));
    *w = hlo_sub(g, *w, scaled(g, hlo_mul(g, mean, hlo_rsqrt(g, square)), l->step));
}

static void adam(hlo_graph *g, const learner *l, const learner_weights *sums, learner_state *state)
{
    state->steps = hlo_add(g, state->steps, hlo_like(g, state->steps, 1));
    for (int i = 0; i < l->n_layers; i++) {
        adam_array(g, l, state->steps, sums->w[i], &state->now.w[i], &state->first.w[i],
                   &state->second.w[i]);
        if (state->now.b[i].id != 0)
            adam_array(g, l, state->steps, sums->b[i], &state->now.b[i], &state->first.b[i],
                       &state->second.b[i]);
    }
}

void learner_move(hlo_graph *g, const learner *l, const learner_weights *sums, hlo_val momentum,
                  learner_state *state)
{
    if (l->rule == LEARNER_MUON)
        muon(g, l, sums, momentum, state);
    else
        adam(g, l, sums, state);
}
