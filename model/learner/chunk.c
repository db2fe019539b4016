/*
 * The dual form of one layer in chunks: for machines with a large matrix unit, where products cost
 * next to nothing and everything else does not.
 *
 * Only the gradients g of the tokens have to be found one mini-batch after another. Given those,
 * the weights at any place are a sum of products, and the answers are two large products for all
 * times at once. So the loop finds g alone. It goes over chunks of several mini-batches: the first
 * products of a whole chunk are made together, and what a mini-batch learns is taken off the
 * products of those after it in the chunk (`between`, made beforehand for all chunks) instead of
 * going through the weights. Backwards is the same loop in reverse, for the gradients of the
 * products.
 *
 * What a norm is given may be centred first without changing it, and the gradient of a norm sums up
 * to 0 along the lanes. So with the start's weights centred all products are, no mean is ever
 * subtracted, and the weights' own means stay what they were. A bias is the weight of an input
 * of 1.
 *
 * Letters: N chunks, S tokens of one, e = d + 1 inputs of a weight matrix with its bias.
 */
#include "model/learner/chunk.h"

/* ---- the loops ------------------------------------------------------------------------------- */

/* What goes into the forward loop, and what comes out of it. */
enum {
    IN_KEYS,    /* [N, B, H, S, e], narrow */
    IN_UPDATE,  /* keys times how far they move the weights: the same */
    IN_BETWEEN, /* how far each token moves the products of those after it: [N, B, H, S, S] */
    IN_PULL,    /* [N, B, H, S, d], narrow */
    IN_SQUARE,  /* [H, 1, d], wide */
    IN_WEIGHTS, /* at the start: [B, H, e, d], wide */
    N_IN,
    OUT_GRADIENTS = 0, /* [N, B, H, S, d], narrow */
    OUT_WEIGHTS,       /* at the start of each chunk: [N, B, H, e, d], narrow */
    OUT_LAST,          /* after the last: [B, H, e, d], wide */
    N_OUT
};

typedef struct chunk_loop {
    int64_t mini;
    hlo_val square;
} chunk_loop;

static void forward_chunk(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                          const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const chunk_loop *c = ctx;
    hlo_val parts[CHUNK_MAX_STEPS], weights = carry[0], keys = in[IN_KEYS], pull = in[IN_PULL];
    hlo_type wide = hlo_type_of(g, weights), narrow = hlo_type_of(g, keys);
    int64_t tokens = hlo_dim(g, keys, 2);
    int n = 0;
    (void)step;
    hlo_val z = chunk_product(g, "bhti,bhio->bhto", keys, weights, wide);
    for (int64_t at = 0; at < tokens; at += c->mini) {
        int64_t end = at + c->mini;
        hlo_val own = chunk_rows(g, z, 0, c->mini);
        hlo_val p = hlo_convert(g, chunk_rows(g, pull, at, end), wide);
        chunk_norm norm = chunk_norm_of(g, own, c->square, p, narrow);
        parts[n] = hlo_convert(g, chunk_gradient(g, &norm, c->square, p), narrow);
        if (end < tokens)
            z = chunk_after(g, z, in[IN_BETWEEN], at, parts[n]);
        n++;
    }
    out[OUT_GRADIENTS] = chunk_concat(g, parts, n);
    out[OUT_WEIGHTS] = hlo_convert(g, weights, narrow);
    next[0] = hlo_sub(g, weights,
                      chunk_product(g, "bhti,bhto->bhio", in[IN_UPDATE], out[OUT_GRADIENTS], wide));
}

static void forward(hlo_graph *g, int64_t mini, const hlo_val in[N_IN], hlo_val out[N_OUT])
{
    chunk_loop c = {.mini = mini, .square = hlo_stop_gradient(g, in[IN_SQUARE])};
    hlo_val given[IN_SQUARE];
    for (int i = 0; i < IN_SQUARE; i++)
        given[i] = hlo_stop_gradient(g, in[i]);
    out[OUT_LAST] = hlo_stop_gradient(g, in[IN_WEIGHTS]);
    hlo_scan(g, forward_chunk, &c, &out[OUT_LAST], 1, given, IN_SQUARE, out, 2, NULL);
}

/* What the backward loop is given beside the above, and what it carries on: the gradients of the
 * weights, of each chunk's weights, and the last of the slopes. What is found for each chunk, the
 * weights' gradients after it and those of its products, takes the place of the latter two: there
 * is no new memory to be cleared. */
enum {
    BACK_KEYS,
    BACK_UPDATE,
    BACK_BETWEEN,
    BACK_GRADIENTS, /* of the gradients, centred */
    BACK_SLOPES,
    N_BACK = BACK_SLOPES + CHUNK_SLOPES - 1,
    CARRY_LATER = 0,
    CARRY_WEIGHTS,
    CARRY_SLOPE,
    N_CARRY
};

static void backward_chunk(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                           const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const chunk_loop *c = ctx;
    hlo_val parts[CHUNK_MAX_STEPS], slopes[CHUNK_SLOPES], keys = in[BACK_KEYS];
    hlo_val later = carry[CARRY_LATER], weights = hlo_index(g, carry[CARRY_WEIGHTS], 0, step);
    hlo_type wide = hlo_type_of(g, later), narrow = hlo_type_of(g, keys);
    int64_t tokens = hlo_dim(g, keys, 2), n = tokens / c->mini;
    (void)out;
    hlo_val a = hlo_sub(g, hlo_convert(g, in[BACK_GRADIENTS], wide),
                        chunk_product(g, "bhti,bhio->bhto", in[BACK_UPDATE], later, wide));
    /* Mini-batches are too short to be innermost. */
    a = hlo_row_major(g, a);
    for (int i = 0; i < CHUNK_SLOPES - 1; i++)
        slopes[i] = hlo_row_major(g, in[BACK_SLOPES + i]);
    slopes[CHUNK_SLOPES - 1] = hlo_row_major(g, hlo_index(g, carry[CARRY_SLOPE], 0, step));
    for (int64_t i = n - 1; i >= 0; i--) {
        int64_t at = i * c->mini, end = at + c->mini;
        parts[i] =
            hlo_convert(g, chunk_through(g, slopes, at, end, chunk_rows(g, a, at, end)), narrow);
        if (i > 0)
            a = chunk_before(g, a, in[BACK_BETWEEN], at, parts[i]);
    }
    hlo_val d_z = chunk_concat(g, parts, (int)n);
    next[CARRY_SLOPE] = hlo_update_index(g, carry[CARRY_SLOPE], 0, step, d_z);
    next[CARRY_WEIGHTS] =
        hlo_update_index(g, carry[CARRY_WEIGHTS], 0, step, hlo_convert(g, later, narrow));
    next[CARRY_LATER] = hlo_add(g, hlo_add(g, later, hlo_convert(g, weights, wide)),
                                chunk_product(g, "bhti,bhto->bhio", keys, d_z, wide));
}

/* in: those of the forward loop, then its results, which are given on; so they are what is kept. */
static void give_on(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)g, (void)ctx;
    for (int i = 0; i < N_OUT; i++)
        out[i] = in[N_IN + i];
}

static void backward(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                     const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    const hlo_val *made = in + N_IN;
    hlo_val keys = in[IN_KEYS], update = in[IN_UPDATE], between = in[IN_BETWEEN];
    hlo_val gradients = made[OUT_GRADIENTS], weights = made[OUT_WEIGHTS];
    hlo_val square = in[IN_SQUARE], back[N_BACK], slopes[CHUNK_SLOPES];
    hlo_type wide = hlo_type_of(g, square), narrow = hlo_type_of(g, keys);
    hlo_val pull = hlo_convert(g, in[IN_PULL], wide);
    (void)n_in, (void)out, (void)n_out;
    hlo_val z = hlo_sub(g, chunk_product(g, "nbhti,nbhio->nbhto", keys, weights, wide),
                        chunk_product(g, "nbhts,nbhso->nbhto", between, gradients, wide));
    chunk_norm p = chunk_norm_of(g, z, square, pull, narrow);
    chunk_slopes(g, &p, square, pull, narrow, slopes);
    for (int i = 0; i < CHUNK_SLOPES - 1; i++)
        back[BACK_SLOPES + i] = slopes[i];
    hlo_val d_gradients =
        chunk_roughly_centred(g, hlo_convert(g, d_out[OUT_GRADIENTS], wide), narrow);
    back[BACK_KEYS] = keys;
    back[BACK_UPDATE] = update;
    back[BACK_BETWEEN] = between;
    back[BACK_GRADIENTS] = hlo_convert(g, d_gradients, narrow);
    chunk_loop c = {.mini = (int64_t)(intptr_t)ctx};
    hlo_val carry[N_CARRY] = {d_out[OUT_LAST], d_out[OUT_WEIGHTS], slopes[CHUNK_SLOPES - 1]};
    hlo_scan(g, backward_chunk, &c, carry, N_CARRY, back, N_BACK, NULL, 0,
             &(hlo_scan_options){.reverse = true});
    hlo_val d_z = carry[CARRY_SLOPE], later = carry[CARRY_WEIGHTS];
    /* What the loop had as `a`, of all times at once. */
    hlo_val a = hlo_sub(g, hlo_convert(g, back[BACK_GRADIENTS], wide),
                        hlo_add(g, chunk_product(g, "nbhti,nbhio->nbhto", update, later, wide),
                                chunk_product(g, "nbhts,nbhto->nbhso", between, d_z, wide)));
    d_in[IN_KEYS] =
        hlo_convert(g, chunk_product(g, "nbhto,nbhio->nbhti", d_z, weights, wide), narrow);
    d_in[IN_UPDATE] = hlo_convert(
        g, hlo_neg(g, chunk_product(g, "nbhto,nbhio->nbhti", gradients, later, wide)), narrow);
    d_in[IN_BETWEEN] = hlo_convert(
        g, hlo_neg(g, chunk_product(g, "nbhto,nbhso->nbhts", d_z, gradients, wide)), narrow);
    chunk_norm_inputs(g, &p, a, &d_in[IN_PULL], &d_in[IN_SQUARE]);
    d_in[IN_PULL] = hlo_convert(g, d_in[IN_PULL], narrow);
    d_in[IN_WEIGHTS] = carry[CARRY_LATER];
    for (int i = 0; i < N_OUT; i++)
        d_in[N_IN + i] = (hlo_val){0};
}

hlo_val learner_chunked(hlo_graph *g, const learner *l, const learner_data *data,
                        learner_weights *state)
{
    hlo_type wide = hlo_type_of(g, data->k);
    hlo_type narrow = l->products == HLO_TYPE_NONE ? wide : l->products;
    int64_t mini = data->mini, minis = hlo_dim(g, data->rate, 3) / mini;
    hlo_val rate = chunk_rate(g, data), last = chunk_last(g, data);
    hlo_val keys = chunk_with_one(g, l, hlo_convert(g, data->k, narrow));
    hlo_val queries = chunk_with_one(g, l, hlo_convert(g, data->q, narrow));
    hlo_val start = chunk_joined(g, state), middle = chunk_centred(g, start);
    hlo_val in[N_IN + N_OUT] = {
        keys,
        hlo_convert(g, hlo_mul(g, hlo_convert(g, keys, wide), last), narrow),
        chunk_mix(g, keys, keys, 0, rate, chunk_reach(g, data->reach, minis, false)),
        hlo_convert(g, chunk_pull(g, l, data->target), narrow),
        chunk_square(g, l),
        middle,
    };
    hlo_val out[N_OUT];
    forward(g, mini, in, in + N_IN);
    hlo_custom_vjp(g, give_on, backward, (void *)(intptr_t)mini, in, N_IN + N_OUT, out, N_OUT);
    hlo_val mix = chunk_mix(g, queries, keys, 0, rate, chunk_reach(g, data->reach, minis, true));
    chunk_split(g, hlo_add(g, out[OUT_LAST], hlo_sub(g, start, middle)), state);
    return hlo_sub(g, chunk_product(g, "nbhti,nbhio->nbhto", queries, out[OUT_WEIGHTS], wide),
                   chunk_product(g, "nbhts,nbhso->nbhto", mix, out[OUT_GRADIENTS], wide));
}
