/*
 * Private to the files of the chunked form: what one layer and two share. Letters as in
 * learner_chunk.c; arrays are [N, B, H, S, lanes], or within loops [B, H, rows, lanes].
 */
#ifndef MODEL_LEARNER_CHUNK_H
#define MODEL_LEARNER_CHUNK_H

#include "model/learner/internal.h"

/* Of a chunk at most: the side of a matrix unit, and what is written out step by step. */
enum { CHUNK_MAX_TOKENS = 128, CHUNK_MAX_STEPS = 8 };

/* ---- small pieces ---------------------------------------------------------------------------- */

/* Rows of an array within a loop. */
hlo_val chunk_rows(hlo_graph *g, hlo_val x, int64_t from, int64_t to);
/* x less its mean along lanes. */
hlo_val chunk_centred(hlo_graph *g, hlo_val x);
/* The same as roughly as `narrow` is, which what is made of it is rounded to. */
hlo_val chunk_roughly_centred(hlo_graph *g, hlo_val x, hlo_type narrow);
/* A product in the wide type, of operands of a's. */
hlo_val chunk_product(hlo_graph *g, const char *spec, hlo_val a, hlo_val b, hlo_type wide);
/* Rows one after the other. */
hlo_val chunk_concat(hlo_graph *g, const hlo_val *parts, int n);
/* z, products of the rows from `at` on, without those of the mini-batch there: less what `part`,
 * the gradients of that mini-batch, moves the later ones by, `between` [B, H, S, S]. */
hlo_val chunk_after(hlo_graph *g, hlo_val z, hlo_val between, int64_t at, hlo_val part);
/* The same backwards: a, gradients of the rows before the end of the mini-batch at `at`, without
 * its own: less what comes from it by `part`, the gradients of its products. */
hlo_val chunk_before(hlo_graph *g, hlo_val a, hlo_val between, int64_t at, hlo_val part);

/* ---- the norm -------------------------------------------------------------------------------- */

/* What the norm makes of products z, whose mean is 0. */
typedef struct chunk_norm {
    hlo_val inverse; /* 1 / deviation */
    hlo_val h;       /* z / deviation */
    hlo_val bent;    /* mean of square * h, `square` being the scale's */
    hlo_val bent2;   /* mean of square * h * h */
    hlo_val along;   /* mean of h * (square * h + pull) */
} chunk_norm;

/* scale * (bias - target), centred: what pulls z elsewhere; and scale squared, [H, 1, d]. */
hlo_val chunk_pull(hlo_graph *g, const learner *l, hlo_val target);
hlo_val chunk_square(hlo_graph *g, const learner *l);
/* Its means may be as rough as `narrow`, which what is made of them is rounded to. */
chunk_norm chunk_norm_of(hlo_graph *g, hlo_val z, hlo_val square, hlo_val pull, hlo_type narrow);
/* The gradient of half the squared error, with respect to z. */
hlo_val chunk_gradient(hlo_graph *g, const chunk_norm *p, hlo_val square, hlo_val pull);

/*
 * The gradient of z is linear in that of the gradient. With `a` the latter it is slope * a,
 * centred, plus `first` times the mean of lean * a, less `lean` times the mean of `second` * a:
 * these four, of type `narrow`.
 */
enum { CHUNK_SLOPES = 4 };
void chunk_slopes(hlo_graph *g, const chunk_norm *p, hlo_val square, hlo_val pull, hlo_type narrow,
                  hlo_val slopes[CHUNK_SLOPES]);
/* That gradient for rows from `at` to `end`, `a` having those rows alone. */
hlo_val chunk_through(hlo_graph *g, const hlo_val slopes[CHUNK_SLOPES], int64_t at, int64_t end,
                      hlo_val a);
/* The gradients of pull and square, of all times at once. */
void chunk_norm_inputs(hlo_graph *g, const chunk_norm *p, hlo_val a, hlo_val *d_pull,
                       hlo_val *d_square);

/* ---- what goes in ---------------------------------------------------------------------------- */

/* x with a further lane of 1 where there are biases. */
hlo_val chunk_with_one(hlo_graph *g, const learner *l, hlo_val x);
/* The rate of each token: [N, B, H, S, 1]; and that times how far it moves the weights. */
hlo_val chunk_rate(hlo_graph *g, const learner_data *data);
hlo_val chunk_last(hlo_graph *g, const learner_data *data);
/* How far a token of the chunk moves another's products or answers, but for its rate: [S, S]. Those
 * of later mini-batches as far as the weights, those of its own by `reach` [b, b], or not at all.
 */
hlo_val chunk_reach(hlo_graph *g, hlo_val reach, int64_t minis, bool own);
/* Products of queries or keys x with keys, plus `one`, times how far the latter reach:
 * [N, B, H, S, S]. */
hlo_val chunk_mix(hlo_graph *g, hlo_val x, hlo_val keys, double one, hlo_val rate, hlo_val reach);
/* The weights of the first layer with its biases as a last row, and back. */
hlo_val chunk_joined(hlo_graph *g, const learner_weights *state);
void chunk_split(hlo_graph *g, hlo_val weights, learner_weights *state);

#endif
