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
 * Letters: N chunks, S tokens of one.
 */
#include "model/learner_chunk.h"

/* ---- the loops ---------------------------------------------------------------------------------
 */

/* What goes into the forward loop, and what comes out of it. */
enum {
    IN_KEYS,    /* [N, B, H, S, d], narrow */
    IN_LAST,    /* how far they move the weights: [N, B, H, S, 1], wide */
    IN_BETWEEN, /* how far each token moves the products of those after it: [N, B, H, S, S] */
    IN_PULL,    /* [N, B, H, S, d], wide */
    IN_SQUARE,  /* [H, 1, d], wide */
    IN_WEIGHTS, /* at the start: [B, H, d, d], wide */
    IN_BIASES,  /* [B, H, 1, d], wide; 0 where there are none */
    N_IN,
    OUT_GRADIENTS = 0, /* [N, B, H, S, d], narrow */
    OUT_WEIGHTS,       /* at the start of each chunk: [N, B, H, d, d], narrow */
    OUT_BIASES,
    N_EACH,
    OUT_LAST_WEIGHTS = N_EACH, /* after the last: [B, H, d, d], wide */
    OUT_LAST_BIASES,
    N_OUT
};

typedef struct chunk_loop {
    int64_t mini;
    bool biases; /* they learn too */
    hlo_val square;
} chunk_loop;

/* As what is handed to the rule of the gradient, and back. */
static void *packed(const chunk_loop *c)
{
    return (void *)(intptr_t)(2 * c->mini + (c->biases ? 1 : 0));
}

static chunk_loop unpacked(void *ctx)
{
    return (chunk_loop){.mini = (intptr_t)ctx / 2, .biases = (intptr_t)ctx % 2 == 1};
}

/* The sum over rows: [B, H, S, d] to [B, H, 1, d]. */
static hlo_val row_sum(hlo_graph *g, hlo_val x, hlo_type wide)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    hlo_val ones = hlo_full(g, HLO_SHAPE(s->type, s->dims[0], s->dims[1], s->dims[2], 1), 1);
    return chunk_product(g, "bhti,bhto->bhio", ones, x, wide);
}

static void forward_chunk(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                          const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const chunk_loop *c = ctx;
    hlo_val parts[CHUNK_MAX_STEPS], weights = carry[0], biases = carry[1];
    hlo_val keys = in[IN_KEYS], pull = in[IN_PULL];
    hlo_type wide = hlo_type_of(g, weights), narrow = hlo_type_of(g, keys);
    int64_t tokens = hlo_dim(g, keys, 2);
    int n = 0;
    (void)step;
    hlo_val z = hlo_add(g, chunk_product(g, "bhti,bhio->bhto", keys, weights, wide), biases);
    for (int64_t at = 0; at < tokens; at += c->mini) {
        int64_t end = at + c->mini;
        hlo_val own = chunk_rows(g, z, 0, c->mini), p = chunk_rows(g, pull, at, end);
        chunk_norm norm = chunk_norm_of(g, own, c->square, p);
        parts[n] = hlo_convert(g, chunk_gradient(g, &norm, c->square, p), narrow);
        if (end < tokens)
            z = chunk_after(g, z, in[IN_BETWEEN], at, parts[n]);
        n++;
    }
    out[OUT_GRADIENTS] = chunk_concat(g, parts, n);
    out[OUT_WEIGHTS] = hlo_convert(g, weights, narrow);
    out[OUT_BIASES] = hlo_convert(g, biases, narrow);
    hlo_val moves = hlo_mul(g, hlo_convert(g, out[OUT_GRADIENTS], wide), in[IN_LAST]);
    moves = hlo_convert(g, moves, narrow);
    next[0] = hlo_sub(g, weights, chunk_product(g, "bhti,bhto->bhio", keys, moves, wide));
    next[1] = c->biases ? hlo_sub(g, biases, row_sum(g, moves, wide)) : biases;
}

static void forward(hlo_graph *g, chunk_loop c, const hlo_val in[N_IN], hlo_val out[N_OUT])
{
    hlo_val given[IN_SQUARE], *carry = out + N_EACH;
    c.square = hlo_stop_gradient(g, in[IN_SQUARE]);
    for (int i = 0; i < IN_SQUARE; i++)
        given[i] = hlo_stop_gradient(g, in[i]);
    for (int i = 0; i < 2; i++)
        carry[i] = hlo_stop_gradient(g, in[IN_WEIGHTS + i]);
    hlo_scan(g, forward_chunk, &c, carry, 2, given, IN_SQUARE, out, N_EACH, NULL);
}

/* What the backward loop is given, and gives out: of each chunk's products, and of the weights and
 * biases after it. */
enum {
    BACK_KEYS,
    BACK_LAST,
    BACK_BETWEEN,
    BACK_GRADIENTS, /* of the gradients, centred */
    BACK_WEIGHTS,   /* of each chunk's weights and biases */
    BACK_BIASES,
    BACK_SLOPES,
    N_BACK = BACK_SLOPES + CHUNK_SLOPES,
    LATER_WEIGHTS = 1,
    LATER_BIASES,
    N_LATER
};

static void backward_chunk(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                           const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const chunk_loop *c = ctx;
    hlo_val parts[CHUNK_MAX_STEPS], slopes[CHUNK_SLOPES], keys = in[BACK_KEYS];
    hlo_type wide = hlo_type_of(g, carry[0]), narrow = hlo_type_of(g, keys);
    int64_t tokens = hlo_dim(g, keys, 2), n = tokens / c->mini;
    (void)step;
    hlo_val moved = chunk_product(g, "bhti,bhio->bhto", keys, carry[0], wide);
    if (c->biases)
        moved = hlo_add(g, moved, carry[1]);
    hlo_val a =
        hlo_sub(g, hlo_convert(g, in[BACK_GRADIENTS], wide), hlo_mul(g, moved, in[BACK_LAST]));
    /* Mini-batches are too short to be innermost. */
    a = hlo_row_major(g, a);
    for (int i = 0; i < CHUNK_SLOPES; i++)
        slopes[i] = hlo_row_major(g, in[BACK_SLOPES + i]);
    for (int64_t i = n - 1; i >= 0; i--) {
        int64_t at = i * c->mini, end = at + c->mini;
        parts[i] =
            hlo_convert(g, chunk_through(g, slopes, at, end, chunk_rows(g, a, at, end)), narrow);
        if (i > 0)
            a = chunk_before(g, a, in[BACK_BETWEEN], at, parts[i]);
    }
    out[0] = chunk_concat(g, parts, (int)n);
    hlo_val own[2] = {chunk_product(g, "bhti,bhto->bhio", keys, out[0], wide),
                      row_sum(g, out[0], wide)};
    for (int i = 0; i < 2; i++) {
        out[LATER_WEIGHTS + i] = hlo_convert(g, carry[i], narrow);
        next[i] = hlo_add(g, own[i], hlo_convert(g, in[BACK_WEIGHTS + i], wide));
        next[i] = hlo_add(g, carry[i], next[i]);
    }
}

/* in: those of the forward loop, then its results, which are given on; so they are what is kept. */
static void give_on(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)g, (void)ctx;
    for (int i = 0; i < N_OUT; i++)
        out[i] = in[N_IN + i];
}

/* x [N, B, H, S, d] through weights and biases of each chunk. */
static hlo_val through(hlo_graph *g, hlo_val x, hlo_val weights, hlo_val biases, hlo_type wide)
{
    return hlo_add(g, chunk_product(g, "nbhti,nbhio->nbhto", x, weights, wide),
                   hlo_convert(g, biases, wide));
}

/* What the loops found, as gradients of all that went in, for all times at once. */
static void spread(hlo_graph *g, const chunk_loop *c, const hlo_val *in, const hlo_val *back,
                   const chunk_norm *norm, const hlo_val later[N_LATER], hlo_val *d_in)
{
    const hlo_val *made = in + N_IN;
    hlo_val keys = in[IN_KEYS], last = in[IN_LAST], between = in[IN_BETWEEN], d_z = later[0];
    hlo_type wide = hlo_type_of(g, last), narrow = hlo_type_of(g, keys);
    hlo_val moved = c->biases
                        ? through(g, keys, later[LATER_WEIGHTS], later[LATER_BIASES], wide)
                        : chunk_product(g, "nbhti,nbhio->nbhto", keys, later[LATER_WEIGHTS], wide);
    hlo_val a = hlo_sub(g, hlo_convert(g, back[BACK_GRADIENTS], wide),
                        hlo_add(g, hlo_mul(g, moved, last),
                                chunk_product(g, "nbhts,nbhto->nbhso", between, d_z, wide)));
    hlo_val gradients = hlo_convert(g, made[OUT_GRADIENTS], wide);
    hlo_val moves = hlo_convert(g, hlo_mul(g, gradients, last), narrow);
    hlo_val d_keys =
        hlo_sub(g, chunk_product(g, "nbhto,nbhio->nbhti", d_z, made[OUT_WEIGHTS], wide),
                chunk_product(g, "nbhto,nbhio->nbhti", moves, later[LATER_WEIGHTS], wide));
    d_in[IN_KEYS] = hlo_convert(g, d_keys, narrow);
    d_in[IN_LAST] =
        hlo_neg(g, hlo_reduce_keep(g, HLO_REDUCE_ADD, hlo_mul(g, gradients, moved), HLO_DIMS(4)));
    d_in[IN_BETWEEN] = hlo_convert(
        g, hlo_neg(g, chunk_product(g, "nbhto,nbhso->nbhts", d_z, made[OUT_GRADIENTS], wide)),
        narrow);
    chunk_norm_inputs(g, norm, a, &d_in[IN_PULL], &d_in[IN_SQUARE]);
}

static void backward(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                     const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    const hlo_val *made = in + N_IN;
    hlo_val pull = in[IN_PULL], square = in[IN_SQUARE], back[N_BACK], later[N_LATER];
    hlo_type wide = hlo_type_of(g, pull), narrow = hlo_type_of(g, in[IN_KEYS]);
    chunk_loop c = unpacked(ctx);
    (void)n_in, (void)out, (void)n_out;
    hlo_val z =
        hlo_sub(g, through(g, in[IN_KEYS], made[OUT_WEIGHTS], made[OUT_BIASES], wide),
                chunk_product(g, "nbhts,nbhso->nbhto", in[IN_BETWEEN], made[OUT_GRADIENTS], wide));
    chunk_norm norm = chunk_norm_of(g, z, square, pull);
    chunk_slopes(g, &norm, square, pull, narrow, back + BACK_SLOPES);
    hlo_val d_gradients = chunk_centred(g, hlo_convert(g, d_out[OUT_GRADIENTS], wide));
    back[BACK_KEYS] = in[IN_KEYS];
    back[BACK_LAST] = in[IN_LAST];
    back[BACK_BETWEEN] = in[IN_BETWEEN];
    back[BACK_GRADIENTS] = hlo_convert(g, d_gradients, narrow);
    back[BACK_WEIGHTS] = d_out[OUT_WEIGHTS];
    back[BACK_BIASES] = d_out[OUT_BIASES];
    hlo_val carry[2] = {d_out[OUT_LAST_WEIGHTS], d_out[OUT_LAST_BIASES]};
    hlo_scan(g, backward_chunk, &c, carry, 2, back, N_BACK, later, N_LATER,
             &(hlo_scan_options){.reverse = true});
    spread(g, &c, in, back, &norm, later, d_in);
    d_in[IN_WEIGHTS] = carry[0];
    d_in[IN_BIASES] = carry[1];
    for (int i = 0; i < N_OUT; i++)
        d_in[N_IN + i] = (hlo_val){0};
}

hlo_val learner_chunked(hlo_graph *g, const learner *l, const learner_data *data,
                        learner_state *state)
{
    hlo_type wide = hlo_type_of(g, data->k);
    hlo_type narrow = l->products == HLO_TYPE_NONE ? wide : l->products;
    chunk_loop c = {.mini = data->mini, .biases = l->b[0].id != 0};
    int64_t minis = hlo_dim(g, data->rate, 3) / c.mini;
    const hlo_shape *s = hlo_shape_of(g, state->w[0]);
    hlo_val keys = hlo_convert(g, data->k, narrow), queries = hlo_convert(g, data->q, narrow);
    hlo_val rate = chunk_rate(g, data);
    hlo_val biases = c.biases
                         ? state->b[0]
                         : hlo_full(g, HLO_SHAPE(wide, s->dims[0], s->dims[1], 1, s->dims[3]), 0);
    hlo_val middle[2] = {chunk_centred(g, state->w[0]), chunk_centred(g, biases)};
    hlo_val in[N_IN + N_OUT] = {
        keys,
        chunk_last(g, data),
        chunk_mix(g, keys, keys, c.biases, rate, chunk_reach(g, data->reach, minis, false)),
        chunk_pull(g, l, data->target),
        chunk_square(g, l),
        middle[0],
        middle[1],
    };
    hlo_val out[N_OUT];
    forward(g, c, in, in + N_IN);
    hlo_custom_vjp(g, give_on, backward, packed(&c), in, N_IN + N_OUT, out, N_OUT);
    hlo_val mix =
        chunk_mix(g, queries, keys, c.biases, rate, chunk_reach(g, data->reach, minis, true));
    state->w[0] = hlo_add(g, out[OUT_LAST_WEIGHTS], hlo_sub(g, state->w[0], middle[0]));
    if (c.biases)
        state->b[0] = hlo_add(g, out[OUT_LAST_BIASES], hlo_sub(g, biases, middle[1]));
    return hlo_sub(g, through(g, queries, out[OUT_WEIGHTS], out[OUT_BIASES], wide),
                   chunk_product(g, "nbhts,nbhso->nbhto", mix, out[OUT_GRADIENTS], wide));
}
