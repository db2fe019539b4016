/*
 * The dual form of two layers in chunks, as learner_chunk.c has it for one; read that first.
 *
 * The loop finds the gradients g1, g2 of both layers' products. The first layer's products are made
 * for a chunk at once, and what a mini-batch learns is taken off those after it. The second layer's
 * inputs are known only when their turn comes: its weights move on with every mini-batch. Given g1
 * and g2, everything is products for all times at once, from the weights that chunks start with:
 * the answers, and all that the backward pass needs of the forward pass.
 *
 * With `last` how far a token moves the weights,
 *     x2 = gelu(z1), z2 = x2 w2 + b2, g2 the gradient of the norm at z2, error = g2 w2^T,
 *     g1 = error * p, p = gelu'(z1), moved = last * g2, and then w2 -= x2^T moved.
 * Backwards, the loop goes through the mini-batches from the last to the first with r1, r2 and rb,
 * the gradients of the weights after each. The way back into z1 has p and q = error * gelu''(z1).
 *
 * The second layer's bias is an array of its own: a lane more than 4 d would cost half as much
 * again. Without biases it stays 0.
 */
#include "model/learner/chunk.h"

/* What goes into the forward loop, and what comes out of it; narrow where nothing is said. */
enum {
    IN_KEYS,    /* [N, B, H, S, e] */
    IN_UPDATE,  /* keys times how far they move the weights: the same */
    IN_BETWEEN, /* how far each token moves the first products of those after it: [N, B, H, S, S] */
    IN_PULL,    /* [N, B, H, S, d], wide */
    IN_LAST,    /* how far each token moves the weights: [N, B, H, S, 1], wide */
    N_EACH,
    IN_SQUARE = N_EACH, /* [H, 1, d], wide */
    IN_START,           /* where learning starts, wide; see below */
    W1 = 0,             /* [B, H, e, 4 d] */
    W2,                 /* [B, H, 4 d, d] */
    B2,                 /* [B, H, 1, d]; always wide */
    N_WEIGHTS,
    N_IN = IN_START + N_WEIGHTS,
    OUT_G1 = 0, /* [N, B, H, S, 4 d] */
    OUT_G2,     /* [N, B, H, S, d] */
    OUT_FROM,   /* the weights at the start of each chunk: [N, ...] */
    N_MADE = OUT_FROM + N_WEIGHTS,
    OUT_END = N_MADE, /* the weights after the last, wide */
    N_LOOP = OUT_END + N_WEIGHTS,
    OUT_X2 = N_LOOP, /* made of the above: [N, B, H, S, 4 d] */
    N_OUT
};

typedef struct two_loop {
    int64_t mini;
    bool biases;
    hlo_val square;
} two_loop;

/* ---- forwards -------------------------------------------------------------------------------- */

/* The sum over rows of x, in every row; nothing without biases. */
static hlo_val bias_sum(hlo_graph *g, const two_loop *c, hlo_val x, hlo_type wide)
{
    hlo_val ones = hlo_full(g, HLO_SHAPE(hlo_type_of(g, x), c->mini, c->mini), c->biases ? 1 : 0);
    return hlo_einsum_as(g, "bhso,ts->bhto", x, ones, wide, HLO_PRECISION_DEFAULT);
}

/* A bias [B, H, 1, d] in every row of a mini-batch, as the loops have it: all of them the same. */
static hlo_val in_rows(hlo_graph *g, const two_loop *c, hlo_val b2)
{
    const hlo_shape *s = hlo_shape_of(g, b2);
    return hlo_broadcast_to(g, b2, HLO_DIMS(s->dims[0], s->dims[1], c->mini, s->dims[3]));
}

static hlo_val times(hlo_graph *g, hlo_val a, hlo_val by, hlo_type narrow)
{
    hlo_type wide = hlo_type_of(g, by);
    return hlo_convert(g, hlo_mul(g, hlo_convert(g, a, wide), by), narrow);
}

static void forward_chunk(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                          const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const two_loop *c = ctx;
    hlo_val g1[CHUNK_MAX_STEPS], g2[CHUNK_MAX_STEPS], w2 = carry[W2], b2 = carry[B2];
    hlo_type wide = hlo_type_of(g, w2), narrow = hlo_type_of(g, in[IN_KEYS]);
    int64_t tokens = hlo_dim(g, in[IN_KEYS], 2);
    int n = 0;
    (void)step;
    hlo_val z1 = chunk_product(g, "bhti,bhio->bhto", in[IN_KEYS], carry[W1], wide);
    for (int64_t at = 0, end = c->mini; at < tokens; at = end, end += c->mini, n++) {
        learner_active x = learner_gelu_of(g, chunk_rows(g, z1, 0, c->mini));
        hlo_val x2 = hlo_convert(g, x.value, narrow), pull = chunk_rows(g, in[IN_PULL], at, end);
        hlo_val z2 = hlo_add(g, chunk_product(g, "bhti,bhio->bhto", x2, w2, wide), b2);
        chunk_norm norm = chunk_norm_of(g, z2, c->square, pull, narrow);
        g2[n] = hlo_convert(g, chunk_gradient(g, &norm, c->square, pull), narrow);
        hlo_val error = chunk_product(g, "bhto,bhio->bhti", g2[n], w2, wide);
        g1[n] = hlo_convert(g, hlo_mul(g, error, x.derivative), narrow);
        if (end < tokens)
            z1 = chunk_after(g, z1, in[IN_BETWEEN], at, g1[n]);
        hlo_val moved = times(g, g2[n], chunk_rows(g, in[IN_LAST], at, end), narrow);
        w2 = hlo_sub(g, w2, chunk_product(g, "bhti,bhto->bhio", x2, moved, wide));
        b2 = hlo_sub(g, b2, bias_sum(g, c, moved, wide));
    }
    out[OUT_G1] = chunk_concat(g, g1, n);
    out[OUT_G2] = chunk_concat(g, g2, n);
    out[OUT_FROM + W1] = hlo_convert(g, carry[W1], narrow);
    out[OUT_FROM + W2] = hlo_convert(g, carry[W2], narrow);
    out[OUT_FROM + B2] = chunk_rows(g, carry[B2], 0, 1);
    next[W1] = hlo_sub(g, carry[W1],
                       chunk_product(g, "bhti,bhto->bhio", in[IN_UPDATE], out[OUT_G1], wide));
    next[W2] = w2;
    next[B2] = b2;
}

static void forward(hlo_graph *g, two_loop c, const hlo_val in[N_IN], hlo_val out[N_LOOP])
{
    hlo_val given[N_IN];
    for (int i = 0; i < N_IN; i++)
        given[i] = hlo_stop_gradient(g, in[i]);
    c.square = given[IN_SQUARE];
    given[IN_START + B2] = in_rows(g, &c, given[IN_START + B2]);
    for (int i = 0; i < N_WEIGHTS; i++)
        out[OUT_END + i] = given[IN_START + i];
    hlo_scan(g, forward_chunk, &c, out + OUT_END, N_WEIGHTS, given, N_EACH, out, N_MADE, NULL);
    out[OUT_END + B2] = chunk_rows(g, out[OUT_END + B2], 0, 1);
}

/* ---- all times at once ----------------------------------------------------------------------- */

/* The first products of x, queries or keys, `mix` being how far keys move them. */
static hlo_val first_products(hlo_graph *g, hlo_val x, hlo_val mix, const hlo_val *made,
                              hlo_type wide)
{
    return hlo_sub(g, chunk_product(g, "nbhti,nbhio->nbhto", x, made[OUT_FROM + W1], wide),
                   chunk_product(g, "nbhts,nbhso->nbhto", mix, made[OUT_G1], wide));
}

/* The second products of x, of which `mix` is how far `steps` of keys move them. */
static hlo_val second_products(hlo_graph *g, hlo_val x, hlo_val mix, hlo_val steps,
                               const hlo_val *made, hlo_type wide)
{
    hlo_val z = chunk_product(g, "nbhti,nbhio->nbhto", x, made[OUT_FROM + W2], wide);
    return hlo_sub(g, hlo_add(g, z, made[OUT_FROM + B2]),
                   chunk_product(g, "nbhts,nbhso->nbhto", mix, steps, wide));
}

/* in: those of the forward loop, then its results, which are given on; so they are what is kept. */
static void give_on(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    hlo_type wide = hlo_type_of(g, in[IN_PULL]), narrow = hlo_type_of(g, in[IN_KEYS]);
    (void)ctx;
    for (int i = 0; i < N_LOOP; i++)
        out[i] = in[N_IN + i];
    hlo_val z1 = first_products(g, in[IN_KEYS], in[IN_BETWEEN], out, wide);
    out[OUT_X2] = hlo_convert(g, hlo_gelu(g, z1), narrow);
}

/* ---- backwards ------------------------------------------------------------------------------- */

/* What the backward loop is given, carries on and finds; d_ are gradients. */
enum {
    BACK_KEYS,
    BACK_UPDATE,
    BACK_BETWEEN,
    BACK_W2,
    BACK_D_W2, /* of the weights at the start of each chunk */
    BACK_D_B2,
    BACK_LAST, /* from here on a mini-batch after the other */
    BACK_G2,
    BACK_MOVED,
    BACK_X2,
    BACK_P,
    BACK_Q,
    BACK_D_G2,
    BACK_D_X2,
    BACK_SLOPES,
    N_BACK = BACK_SLOPES + CHUNK_SLOPES,
    /* Beside r1, r2 and rb it carries the gradients of g1 and of each chunk's first weights. Those
     * of z1, and r1 after each chunk, take their places: there is no new memory to be cleared. */
    CARRY_G1 = N_WEIGHTS,
    CARRY_W1,
    N_CARRY,
    /* Found for each mini-batch: the gradients of z1; of g2 and, in further lanes, of `moved`. */
    FOUND_Z1 = 0,
    FOUND_G2,
    N_FOUND
};

/* The second layer's weights that each mini-batch of a chunk starts with, narrow. */
static void second_weights(hlo_graph *g, const two_loop *c, const hlo_val *in, hlo_type wide,
                           hlo_val w2[CHUNK_MAX_STEPS])
{
    int64_t n = hlo_dim(g, in[BACK_KEYS], 2) / c->mini;
    hlo_val now = hlo_convert(g, in[BACK_W2], wide);
    w2[0] = in[BACK_W2];
    for (int64_t i = 1; i < n; i++) {
        int64_t at = (i - 1) * c->mini, end = at + c->mini;
        hlo_val x2 = chunk_rows(g, in[BACK_X2], at, end);
        hlo_val moved = chunk_rows(g, in[BACK_MOVED], at, end);
        now = hlo_sub(g, now, chunk_product(g, "bhti,bhto->bhio", x2, moved, wide));
        w2[i] = hlo_convert(g, now, hlo_type_of(g, in[BACK_W2]));
    }
}

/* One mini-batch, from `at` to `end`: d_g1 are its rows of those gradients, all of them, and w2 its
 * second weights. r2 and rb, those of the second weights and bias, go back to its start. */
static void backward_step(hlo_graph *g, const two_loop *c, const hlo_val *in, int64_t at,
                          hlo_val d_g1, hlo_val w2, hlo_val *r2, hlo_val *rb, hlo_val *found)
{
    hlo_type wide = hlo_type_of(g, d_g1), narrow = hlo_type_of(g, w2);
    int64_t end = at + c->mini;
    hlo_val own[N_BACK];
    for (int i = BACK_LAST; i < BACK_SLOPES; i++)
        own[i] = chunk_rows(g, in[i], at, end);
    hlo_val d_moved =
        hlo_neg(g, hlo_add(g, chunk_product(g, "bhti,bhio->bhto", own[BACK_X2], *r2, wide), *rb));
    hlo_val d_x2 = hlo_sub(g, hlo_convert(g, own[BACK_D_X2], wide),
                           chunk_product(g, "bhto,bhio->bhti", own[BACK_MOVED], *r2, wide));
    hlo_val p = hlo_convert(g, own[BACK_P], wide), q = hlo_convert(g, own[BACK_Q], wide);
    hlo_val d_error = hlo_convert(g, hlo_mul(g, d_g1, p), narrow);
    hlo_val d_g2 = hlo_add(g, hlo_convert(g, own[BACK_D_G2], wide),
                           hlo_add(g, hlo_mul(g, own[BACK_LAST], d_moved),
                                   chunk_product(g, "bhti,bhio->bhto", d_error, w2, wide)));
    hlo_val d_z2 = hlo_convert(g, chunk_through(g, in + BACK_SLOPES, at, end, d_g2), narrow);
    d_x2 = hlo_add(g, d_x2, chunk_product(g, "bhto,bhio->bhti", d_z2, w2, wide));
    hlo_val d_z1 = hlo_add(g, hlo_mul(g, d_x2, p), hlo_mul(g, d_g1, q));
    *r2 = hlo_add(g, *r2,
                  hlo_add(g, chunk_product(g, "bhti,bhto->bhio", own[BACK_X2], d_z2, wide),
                          chunk_product(g, "bhti,bhto->bhio", d_error, own[BACK_G2], wide)));
    *rb = hlo_add(g, *rb, bias_sum(g, c, d_z2, wide));
    found[FOUND_Z1] = hlo_convert(g, d_z1, narrow);
    found[FOUND_G2] = hlo_convert(g, hlo_concat(g, (hlo_val[]){d_g2, d_moved}, 2, 3), narrow);
}

static void backward_chunk(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                           const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const two_loop *c = ctx;
    hlo_val w2[CHUNK_MAX_STEPS], parts[N_FOUND][CHUNK_MAX_STEPS], found[N_FOUND];
    hlo_val r1 = carry[W1], r2 = carry[W2], rb = carry[B2], keys = in[BACK_KEYS];
    hlo_type wide = hlo_type_of(g, r1), narrow = hlo_type_of(g, keys);
    int n = (int)(hlo_dim(g, keys, 2) / c->mini);
    second_weights(g, c, in, wide, w2);
    hlo_val d_g1 = hlo_sub(g, hlo_convert(g, hlo_index(g, carry[CARRY_G1], 0, step), wide),
                           chunk_product(g, "bhti,bhio->bhto", in[BACK_UPDATE], r1, wide));
    hlo_val d_w1 = hlo_convert(g, hlo_index(g, carry[CARRY_W1], 0, step), wide);
    for (int i = n - 1; i >= 0; i--) {
        int64_t at = i * c->mini;
        hlo_val own = chunk_rows(g, d_g1, at, at + c->mini);
        backward_step(g, c, in, at, own, w2[i], &r2, &rb, found);
        for (int k = 0; k < N_FOUND; k++)
            parts[k][i] = found[k];
        if (i > 0)
            d_g1 = chunk_before(g, d_g1, in[BACK_BETWEEN], at, found[FOUND_Z1]);
    }
    hlo_val d_z1 = chunk_concat(g, parts[FOUND_Z1], n);
    out[0] = chunk_concat(g, parts[FOUND_G2], n);
    next[CARRY_G1] = hlo_update_index(g, carry[CARRY_G1], 0, step, d_z1);
    next[CARRY_W1] = hlo_update_index(g, carry[CARRY_W1], 0, step, hlo_convert(g, r1, narrow));
    next[W1] =
        hlo_add(g, hlo_add(g, r1, d_w1), chunk_product(g, "bhti,bhto->bhio", keys, d_z1, wide));
    next[W2] = hlo_add(g, r2, hlo_convert(g, in[BACK_D_W2], wide));
    next[B2] = hlo_add(g, rb, in[BACK_D_B2]);
}

/* What the backward loop needs of the forward pass, for all times at once; returns the norm. */
static chunk_norm again(hlo_graph *g, const two_loop *c, const hlo_val *in, const hlo_val *made,
                        hlo_val *back)
{
    hlo_val keys = in[IN_KEYS], g2 = made[OUT_G2];
    hlo_type wide = hlo_type_of(g, in[IN_PULL]), narrow = hlo_type_of(g, keys);
    hlo_val z1 = first_products(g, keys, in[IN_BETWEEN], made, wide);
    learner_active x = learner_gelu_of(g, z1);
    hlo_val x2 = hlo_convert(g, x.value, narrow), moved = times(g, g2, in[IN_LAST], narrow);
    hlo_val ones = hlo_full(g, HLO_SHAPE(wide, c->mini, c->mini), 1), q;
    hlo_val later = chunk_reach(g, ones, hlo_dim(g, keys, 3) / c->mini, false);
    hlo_val alike = chunk_product(g, "nbhti,nbhsi->nbhts", x2, x2, wide);
    if (c->biases)
        alike = hlo_add(g, alike, hlo_like(g, alike, 1));
    hlo_val z2 = second_products(g, x2, times(g, alike, later, narrow), moved, made, wide);
    hlo_val mix = chunk_product(g, "nbhto,nbhso->nbhts", g2, moved, wide);
    hlo_val error =
        hlo_sub(g, chunk_product(g, "nbhto,nbhio->nbhti", g2, made[OUT_FROM + W2], wide),
                chunk_product(g, "nbhts,nbhsi->nbhti", times(g, mix, later, narrow), x2, wide));
    hlo_vjp(g, &x.derivative, &error, 1, &z1, 1, &q);
    chunk_norm norm = chunk_norm_of(g, z2, in[IN_SQUARE], in[IN_PULL], narrow);
    chunk_slopes(g, &norm, in[IN_SQUARE], in[IN_PULL], narrow, back + BACK_SLOPES);
    back[BACK_X2] = x2;
    back[BACK_MOVED] = moved;
    back[BACK_P] = hlo_convert(g, x.derivative, narrow);
    back[BACK_Q] = hlo_convert(g, q, narrow);
    return norm;
}

/* The loop over chunks, from the last to the first; `first` receives what it carried. */
static hlo_val backward_loop(hlo_graph *g, two_loop *c, const hlo_val *in, const hlo_val *d_out,
                             hlo_val back[N_BACK], hlo_val first[N_CARRY])
{
    const hlo_val *made = in + N_IN;
    hlo_type wide = hlo_type_of(g, in[IN_PULL]), narrow = hlo_type_of(g, in[IN_KEYS]);
    hlo_val d_g2 = chunk_roughly_centred(g, hlo_convert(g, d_out[OUT_G2], wide), narrow), found;
    back[BACK_KEYS] = in[IN_KEYS];
    back[BACK_UPDATE] = in[IN_UPDATE];
    back[BACK_BETWEEN] = in[IN_BETWEEN];
    back[BACK_LAST] = in[IN_LAST];
    back[BACK_G2] = made[OUT_G2];
    back[BACK_W2] = made[OUT_FROM + W2];
    back[BACK_D_G2] = hlo_convert(g, d_g2, narrow);
    back[BACK_D_X2] = d_out[OUT_X2];
    back[BACK_D_W2] = d_out[OUT_FROM + W2];
    back[BACK_D_B2] = d_out[OUT_FROM + B2];
    for (int i = 0; i < N_WEIGHTS; i++)
        first[i] = d_out[OUT_END + i];
    first[B2] = in_rows(g, c, first[B2]);
    first[CARRY_G1] = d_out[OUT_G1];
    first[CARRY_W1] = d_out[OUT_FROM + W1];
    hlo_scan(g, backward_chunk, c, first, N_CARRY, back, N_BACK, &found, 1,
             &(hlo_scan_options){.reverse = true});
    first[B2] = chunk_rows(g, first[B2], 0, 1);
    return found;
}

static void backward(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                     const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    const hlo_val *made = in + N_IN;
    hlo_val back[N_BACK], first[N_CARRY];
    hlo_type wide = hlo_type_of(g, in[IN_PULL]), narrow = hlo_type_of(g, in[IN_KEYS]);
    int64_t d = hlo_dim(g, in[IN_PULL], -1);
    two_loop c = {.mini = (int64_t)(intptr_t)ctx, .biases = hlo_dim(g, in[IN_KEYS], -1) > d};
    (void)n_in, (void)out, (void)n_out;
    chunk_norm norm = again(g, &c, in, made, back);
    hlo_val found = backward_loop(g, &c, in, d_out, back, first);
    hlo_val d_g2 = hlo_convert(g, hlo_slice_dim(g, found, 4, 0, d), wide);
    hlo_val d_moved = hlo_convert(g, hlo_slice_dim(g, found, 4, d, 2 * d), wide);
    hlo_val d_z1 = first[CARRY_G1], g1 = made[OUT_G1], g2 = hlo_convert(g, made[OUT_G2], wide);
    hlo_val d_keys = chunk_product(g, "nbhto,nbhio->nbhti", d_z1, made[OUT_FROM + W1], wide);
    hlo_val d_update = chunk_product(g, "nbhto,nbhio->nbhti", g1, first[CARRY_W1], wide);
    hlo_val d_between = chunk_product(g, "nbhto,nbhso->nbhts", d_z1, g1, wide);
    d_in[IN_KEYS] = hlo_convert(g, d_keys, narrow);
    d_in[IN_UPDATE] = hlo_convert(g, hlo_neg(g, d_update), narrow);
    d_in[IN_BETWEEN] = hlo_convert(g, hlo_neg(g, d_between), narrow);
    d_in[IN_LAST] = hlo_reduce_keep(g, HLO_REDUCE_ADD, hlo_mul(g, d_moved, g2), HLO_DIMS(4));
    chunk_norm_inputs(g, &norm, d_g2, &d_in[IN_PULL], &d_in[IN_SQUARE]);
    for (int i = 0; i < N_WEIGHTS; i++)
        d_in[IN_START + i] = first[i];
    for (int i = 0; i < N_LOOP; i++)
        d_in[N_IN + i] = (hlo_val){0};
}

/* ---- all of it ------------------------------------------------------------------------------- */

hlo_val learner_chunked_mlp(hlo_graph *g, const learner *l, const learner_data *data,
                            learner_weights *state)
{
    hlo_type wide = hlo_type_of(g, data->k);
    hlo_type narrow = l->products == HLO_TYPE_NONE ? wide : l->products;
    two_loop c = {.mini = data->mini, .biases = l->b[0].id != 0};
    int64_t minis = hlo_dim(g, data->rate, 3) / c.mini;
    hlo_val rate = chunk_rate(g, data), last = chunk_last(g, data);
    hlo_val keys = chunk_with_one(g, l, hlo_convert(g, data->k, narrow));
    hlo_val queries = chunk_with_one(g, l, hlo_convert(g, data->q, narrow));
    hlo_val w2 = chunk_centred(g, state->w[1]), b2 = {0};
    hlo_val row = hlo_zeros_like(g, chunk_rows(g, w2, 0, 1));
    if (c.biases) {
        b2 = state->b[1];
        row = chunk_centred(g, b2);
    }
    hlo_val in[N_IN + N_LOOP] = {
        keys,
        times(g, keys, last, narrow),
        chunk_mix(g, keys, keys, 0, rate, chunk_reach(g, data->reach, minis, false)),
        chunk_pull(g, l, data->target),
        last,
        chunk_square(g, l),
        chunk_joined(g, state),
        w2,
        row,
    };
    hlo_val out[N_OUT];
    forward(g, c, in, in + N_IN);
    hlo_custom_vjp(g, give_on, backward, (void *)(intptr_t)c.mini, in, N_IN + N_LOOP, out, N_OUT);
    chunk_split(g, out[OUT_END + W1], state);
    state->w[1] = hlo_add(g, out[OUT_END + W2], hlo_sub(g, state->w[1], w2));
    if (c.biases)
        state->b[1] = hlo_add(g, out[OUT_END + B2], hlo_sub(g, b2, row));
    hlo_val reach = chunk_reach(g, data->reach, minis, true);
    hlo_val mix = chunk_mix(g, queries, keys, 0, rate, reach);
    hlo_val x = hlo_convert(g, hlo_gelu(g, first_products(g, queries, mix, out, wide)), narrow);
    mix = chunk_mix(g, x, out[OUT_X2], c.biases ? 1 : 0, rate, reach);
    return second_products(g, x, mix, out[OUT_G2], out, wide);
}
