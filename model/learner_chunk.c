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
#include "model/learner_inside.h"

/* Of a chunk at most: the side of a matrix unit, and what is written out step by step. */
enum { MAX_TOKENS = 128, MAX_STEPS = 8 };

int64_t learner_chunk(const learner *l, int64_t n, int64_t size)
{
    int64_t best = 1;
    if (!l->matrix_sums || l->n_layers > 1 || l->norm_scale.id == 0)
        return best;
    for (int64_t i = 2; i <= MAX_STEPS && i * size <= MAX_TOKENS; i++)
        best = n % i == 0 ? i : best;
    return best;
}

/* ---- small pieces ------------------------------------------------------------------------------
 */

static hlo_val rows_of(hlo_graph *g, hlo_val x, int64_t from, int64_t to)
{
    return hlo_slice_dim(g, x, 2, from, to);
}

/* The mean along lanes, in every lane. */
static hlo_val mean_of(hlo_graph *g, hlo_val x)
{
    int64_t d = hlo_dim(g, x, -1);
    hlo_type type = hlo_type_of(g, x);
    hlo_val ones = hlo_full(g, HLO_SHAPE(type, d, d), 1.0 / (double)d);
    const char *spec = hlo_rank(g, x) == 5 ? "nbhti,io->nbhto" : "bhti,io->bhto";
    return hlo_einsum_as(g, spec, x, ones, type, HLO_PRECISION_HIGH);
}

static hlo_val centred(hlo_graph *g, hlo_val x)
{
    return hlo_sub(g, x, mean_of(g, x));
}

/* A product in the wide type. */
static hlo_val product(hlo_graph *g, const char *spec, hlo_val a, hlo_val b, hlo_type wide)
{
    hlo_type narrow = hlo_type_of(g, a);
    return hlo_einsum_as(g, spec, a, hlo_convert(g, b, narrow), wide, HLO_PRECISION_DEFAULT);
}

/* [H, d] in front of [..., H, rows, d]. */
static hlo_val by_head(hlo_graph *g, hlo_val v)
{
    return hlo_reshape(g, v, HLO_DIMS(hlo_dim(g, v, 0), 1, hlo_dim(g, v, 1)));
}

/* ---- one mini-batch, forwards ------------------------------------------------------------------
 */

/* What the norm makes of products z, whose mean is 0. */
typedef struct norm_parts {
    hlo_val inverse; /* 1 / deviation */
    hlo_val h;       /* z / deviation */
    hlo_val bent;    /* mean of square * h, `square` being the scale's */
    hlo_val bent2;   /* mean of square * h * h */
    hlo_val along;   /* mean of h * (square * h + pull) */
} norm_parts;

static norm_parts norm_of(hlo_graph *g, hlo_val z, hlo_val square, hlo_val pull)
{
    norm_parts p;
    hlo_val z2 = hlo_mul(g, z, z), variance = mean_of(g, z2);
    p.inverse = hlo_rsqrt(g, hlo_add(g, variance, hlo_like(g, variance, LEARNER_EPSILON)));
    p.h = hlo_mul(g, z, p.inverse);
    p.bent = hlo_mul(g, p.inverse, mean_of(g, hlo_mul(g, z, square)));
    p.bent2 = hlo_mul(g, hlo_mul(g, p.inverse, p.inverse), mean_of(g, hlo_mul(g, z2, square)));
    p.along = hlo_add(g, p.bent2, hlo_mul(g, p.inverse, mean_of(g, hlo_mul(g, z, pull))));
    return p;
}

/* The gradient of half the squared error, with respect to z; `pull` is scale * (bias - target),
 * centred. */
static hlo_val gradient_of(hlo_graph *g, const norm_parts *p, hlo_val square, hlo_val pull)
{
    hlo_val bend = hlo_sub(g, hlo_mul(g, square, p->h), p->bent);
    hlo_val rest = hlo_sub(g, pull, hlo_mul(g, p->h, p->along));
    return hlo_mul(g, p->inverse, hlo_add(g, bend, rest));
}

/* ---- the loops ---------------------------------------------------------------------------------
 */

/* What goes into the forward loop, and what comes out of it. */
enum {
    IN_KEYS,    /* [N, B, H, S, e], narrow */
    IN_UPDATE,  /* keys times how far they move the weights: the same */
    IN_BETWEEN, /* how far each token moves the products of those after it: [N, B, H, S, S] */
    IN_PULL,    /* [N, B, H, S, d], wide */
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
    hlo_val parts[MAX_STEPS], weights = carry[0], keys = in[IN_KEYS], pull = in[IN_PULL];
    hlo_type wide = hlo_type_of(g, weights), narrow = hlo_type_of(g, keys);
    int64_t tokens = hlo_dim(g, keys, 2);
    int n = 0;
    (void)step;
    hlo_val z = product(g, "bhti,bhio->bhto", keys, weights, wide);
    for (int64_t at = 0; at < tokens; at += c->mini) {
        int64_t end = at + c->mini;
        hlo_val own = rows_of(g, z, 0, c->mini), p = rows_of(g, pull, at, end);
        norm_parts norm = norm_of(g, own, c->square, p);
        parts[n] = hlo_convert(g, gradient_of(g, &norm, c->square, p), narrow);
        if (end < tokens) {
            hlo_val after = hlo_slice_dim(g, rows_of(g, in[IN_BETWEEN], end, tokens), 3, at, end);
            z = hlo_sub(g, rows_of(g, z, c->mini, tokens - at),
                        product(g, "bhts,bhso->bhto", after, parts[n], wide));
        }
        n++;
    }
    out[OUT_GRADIENTS] = n == 1 ? parts[0] : hlo_concat(g, parts, n, 2);
    out[OUT_WEIGHTS] = hlo_convert(g, weights, narrow);
    next[0] =
        hlo_sub(g, weights, product(g, "bhti,bhto->bhio", in[IN_UPDATE], out[OUT_GRADIENTS], wide));
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

/* What the backward loop is given beside the above: the gradient of z is linear in that of g. With
 * `a` the latter it is slope * a, centred, plus `first` times the mean of lean * a, less `lean`
 * times the mean of `second` * a. */
enum {
    BACK_KEYS,
    BACK_UPDATE,
    BACK_BETWEEN,
    BACK_GRADIENTS, /* of the gradients, centred */
    BACK_WEIGHTS,   /* of each chunk's weights */
    BACK_SLOPE,
    BACK_FIRST,
    BACK_LEAN,
    BACK_SECOND,
    N_BACK
};

static void backward_chunk(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                           const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const chunk_loop *c = ctx;
    hlo_val parts[MAX_STEPS], keys = in[BACK_KEYS], later = carry[0], given[4];
    hlo_type wide = hlo_type_of(g, later), narrow = hlo_type_of(g, keys);
    int64_t tokens = hlo_dim(g, keys, 2), n = tokens / c->mini;
    (void)step;
    for (int i = 0; i < 4; i++)
        given[i] = hlo_row_major(g, in[BACK_SLOPE + i]);
    hlo_val a = hlo_sub(g, hlo_convert(g, in[BACK_GRADIENTS], wide),
                        product(g, "bhti,bhio->bhto", in[BACK_UPDATE], later, wide));
    a = hlo_row_major(g, a); /* mini-batches are too short to be innermost */
    for (int64_t i = n - 1; i >= 0; i--) {
        int64_t at = i * c->mini, end = at + c->mini;
        hlo_val own = rows_of(g, a, at, end), coefficient[4];
        for (int k = 0; k < 4; k++)
            coefficient[k] = hlo_convert(g, rows_of(g, given[k], at, end), wide);
        hlo_val first = mean_of(g, hlo_mul(g, coefficient[2], own));
        hlo_val second = mean_of(g, hlo_mul(g, coefficient[3], own));
        hlo_val d = hlo_add(
            g, centred(g, hlo_mul(g, coefficient[0], own)),
            hlo_sub(g, hlo_mul(g, first, coefficient[1]), hlo_mul(g, second, coefficient[2])));
        parts[i] = hlo_convert(g, d, narrow);
        if (i > 0) {
            hlo_val before = hlo_slice_dim(g, rows_of(g, in[BACK_BETWEEN], at, end), 3, 0, at);
            a = hlo_sub(g, rows_of(g, a, 0, at),
                        product(g, "bhts,bhto->bhso", before, parts[i], wide));
        }
    }
    out[0] = n == 1 ? parts[0] : hlo_concat(g, parts, (int)n, 2);
    out[1] = hlo_convert(g, later, narrow);
    next[0] = hlo_add(g, hlo_add(g, later, hlo_convert(g, in[BACK_WEIGHTS], wide)),
                      product(g, "bhti,bhto->bhio", keys, out[0], wide));
}

/* in: those of the forward loop, then its results, which are given on; so they are what is kept. */
static void give_on(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)g, (void)ctx;
    for (int i = 0; i < N_OUT; i++)
        out[i] = in[N_IN + i];
}

static hlo_val doubled(hlo_graph *g, hlo_val x)
{
    return hlo_add(g, x, x);
}

/* The four arrays from BACK_SLOPE on, of all times at once, and `lean` in the wide type. */
static hlo_val slopes_of(hlo_graph *g, const norm_parts *p, hlo_val square, hlo_val pull,
                         hlo_type narrow, hlo_val *back)
{
    hlo_val lean = hlo_mul(g, p->inverse, p->h), bend = hlo_mul(g, square, p->h);
    hlo_val inverse2 = hlo_mul(g, p->inverse, p->inverse);
    hlo_val by = hlo_add(g, doubled(g, p->along), p->bent2);
    hlo_val first = hlo_sub(g, hlo_mul(g, p->h, by), hlo_add(g, doubled(g, bend), pull));
    hlo_val list[4] = {
        hlo_mul(g, inverse2, hlo_sub(g, square, p->along)),
        hlo_mul(g, p->inverse, centred(g, first)),
        lean,
        hlo_add(g, hlo_mul(g, p->inverse, bend), gradient_of(g, p, square, pull)),
    };
    for (int i = 0; i < 4; i++)
        back[BACK_SLOPE + i] = hlo_convert(g, list[i], narrow);
    return lean;
}

static void backward(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                     const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    const hlo_val *made = in + N_IN;
    hlo_val keys = in[IN_KEYS], update = in[IN_UPDATE], between = in[IN_BETWEEN];
    hlo_val gradients = made[OUT_GRADIENTS], weights = made[OUT_WEIGHTS];
    hlo_val pull = in[IN_PULL], square = in[IN_SQUARE], back[N_BACK], loop_out[2];
    hlo_type wide = hlo_type_of(g, pull), narrow = hlo_type_of(g, keys);
    (void)n_in, (void)out, (void)n_out;
    hlo_val z = hlo_sub(g, product(g, "nbhti,nbhio->nbhto", keys, weights, wide),
                        product(g, "nbhts,nbhso->nbhto", between, gradients, wide));
    norm_parts p = norm_of(g, z, square, pull);
    hlo_val lean = slopes_of(g, &p, square, pull, narrow, back);
    hlo_val d_gradients = centred(g, hlo_convert(g, d_out[OUT_GRADIENTS], wide));
    back[BACK_KEYS] = keys;
    back[BACK_UPDATE] = update;
    back[BACK_BETWEEN] = between;
    back[BACK_GRADIENTS] = hlo_convert(g, d_gradients, narrow);
    back[BACK_WEIGHTS] = d_out[OUT_WEIGHTS];
    chunk_loop c = {.mini = (int64_t)(intptr_t)ctx};
    hlo_val first = d_out[OUT_LAST];
    hlo_scan(g, backward_chunk, &c, &first, 1, back, N_BACK, loop_out, 2,
             &(hlo_scan_options){.reverse = true});
    hlo_val d_z = loop_out[0], later = loop_out[1];
    /* What the loop had as `a`, of all times at once. */
    hlo_val a = hlo_sub(g, hlo_convert(g, back[BACK_GRADIENTS], wide),
                        hlo_add(g, product(g, "nbhti,nbhio->nbhto", update, later, wide),
                                product(g, "nbhts,nbhto->nbhso", between, d_z, wide)));
    d_in[IN_KEYS] = hlo_convert(g, product(g, "nbhto,nbhio->nbhti", d_z, weights, wide), narrow);
    d_in[IN_UPDATE] = hlo_convert(
        g, hlo_neg(g, product(g, "nbhto,nbhio->nbhti", gradients, later, wide)), narrow);
    d_in[IN_BETWEEN] =
        hlo_convert(g, hlo_neg(g, product(g, "nbhto,nbhso->nbhts", d_z, gradients, wide)), narrow);
    d_in[IN_PULL] =
        hlo_sub(g, hlo_mul(g, p.inverse, a), hlo_mul(g, p.h, mean_of(g, hlo_mul(g, lean, a))));
    d_in[IN_SQUARE] = hlo_reshape(g, hlo_sum(g, hlo_mul(g, p.h, d_in[IN_PULL]), HLO_DIMS(0, 1, 3)),
                                  HLO_DIMS(hlo_dim(g, square, 0), 1, hlo_dim(g, square, 2)));
    d_in[IN_WEIGHTS] = first;
    for (int i = 0; i < N_OUT; i++)
        d_in[N_IN + i] = (hlo_val){0};
}

/* ---- what goes in ------------------------------------------------------------------------------
 */

/* x [..., d] with a further lane of 1 where there are biases. */
static hlo_val with_one(hlo_graph *g, const learner *l, hlo_val x)
{
    if (l->b[0].id == 0)
        return x;
    return hlo_pad(g, x, hlo_like(g, x, 1), HLO_DIMS(0, 0, 0, 0, 0), HLO_DIMS(0, 0, 0, 0, 1),
                   HLO_DIMS(0, 0, 0, 0, 0));
}

/* How far each token of a chunk moves the weights, but for its rate: [minis, b]. */
static hlo_val ends_of(hlo_graph *g, hlo_val reach, int64_t minis)
{
    int64_t size = hlo_dim(g, reach, 1);
    hlo_val last = hlo_reshape(g, hlo_slice_dim(g, reach, 0, size - 1, size), HLO_DIMS(size));
    return hlo_broadcast(g, last, HLO_DIMS(minis, size), HLO_DIMS(1));
}

/* How far a token of the chunk moves another's products or answers, but for its rate: [S, S]. Those
 * of later mini-batches as far as the weights, those of its own by `own` [b, b], or not at all. */
static hlo_val reach_of(hlo_graph *g, hlo_val reach, int64_t minis, bool own)
{
    int64_t size = hlo_dim(g, reach, 1), tokens = minis * size;
    hlo_dims four = HLO_DIMS(minis, size, minis, size);
    hlo_shape shape = HLO_SHAPE(HLO_S32, minis, size, minis, size);
    hlo_val to = hlo_iota(g, shape, 0), from = hlo_iota(g, shape, 2);
    hlo_val moved = hlo_broadcast(g, ends_of(g, reach, minis), four, HLO_DIMS(2, 3));
    hlo_val zero = hlo_like(g, reach, 0);
    hlo_val same = own ? hlo_broadcast(g, reach, four, HLO_DIMS(1, 3)) : zero;
    same = hlo_select(g, hlo_compare(g, HLO_EQ, to, from), same, zero);
    moved = hlo_select(g, hlo_compare(g, HLO_GT, to, from), moved, same);
    return hlo_reshape(g, moved, HLO_DIMS(tokens, tokens));
}

/* Products of queries or keys x with keys, times how far the latter reach: [N, B, H, S, S]. */
static hlo_val mix_of(hlo_graph *g, hlo_val x, hlo_val keys, hlo_val rate, hlo_val reach)
{
    hlo_val mix = product(g, "nbhti,nbhsi->nbhts", x, keys, hlo_type_of(g, rate));
    const hlo_shape *s = hlo_shape_of(g, rate); /* [N, B, H, S, 1] */
    hlo_val columns =
        hlo_reshape(g, rate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], 1, s->dims[3]));
    return hlo_convert(g, hlo_mul(g, hlo_mul(g, mix, columns), reach), hlo_type_of(g, keys));
}

/* The state's weights with its biases as a last row, and back. */
static hlo_val joined(hlo_graph *g, const learner_state *state)
{
    if (state->b[0].id == 0)
        return state->w[0];
    return hlo_concat(g, (hlo_val[]){state->w[0], state->b[0]}, 2, 2);
}

static void split(hlo_graph *g, hlo_val weights, learner_state *state)
{
    int64_t rows = hlo_dim(g, state->w[0], 2);
    state->w[0] = rows_of(g, weights, 0, rows);
    if (state->b[0].id != 0)
        state->b[0] = rows_of(g, weights, rows, rows + 1);
}

hlo_val learner_chunked(hlo_graph *g, const learner *l, const learner_data *data,
                        learner_state *state)
{
    hlo_type wide = hlo_type_of(g, data->k);
    hlo_type narrow = l->products == HLO_TYPE_NONE ? wide : l->products;
    const hlo_shape *s = hlo_shape_of(g, data->rate); /* [N, B, H, S] */
    int64_t mini = data->mini, tokens = s->dims[3], minis = tokens / mini;
    hlo_val rate =
        hlo_reshape(g, data->rate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], tokens, 1));
    hlo_val keys = with_one(g, l, hlo_convert(g, data->k, narrow));
    hlo_val queries = with_one(g, l, hlo_convert(g, data->q, narrow));
    hlo_val scale = by_head(g, l->norm_scale), bias = by_head(g, l->norm_bias);
    hlo_val pull = hlo_mul(g, scale, hlo_sub(g, bias, data->target));
    hlo_val between = reach_of(g, data->reach, minis, false);
    hlo_val last =
        hlo_mul(g, rate, hlo_reshape(g, ends_of(g, data->reach, minis), HLO_DIMS(tokens, 1)));
    hlo_val start = joined(g, state), middle = centred(g, start);
    hlo_val in[N_IN + N_OUT] = {
        keys,
        hlo_convert(g, hlo_mul(g, hlo_convert(g, keys, wide), last), narrow),
        mix_of(g, keys, keys, rate, between),
        centred(g, pull),
        hlo_mul(g, scale, scale),
        middle,
    };
    hlo_val out[N_OUT];
    forward(g, mini, in, in + N_IN);
    hlo_custom_vjp(g, give_on, backward, (void *)(intptr_t)mini, in, N_IN + N_OUT, out, N_OUT);
    hlo_val mix = mix_of(g, queries, keys, rate, reach_of(g, data->reach, minis, true));
    split(g, hlo_add(g, out[OUT_LAST], hlo_sub(g, start, middle)), state);
    return hlo_sub(g, product(g, "nbhti,nbhio->nbhto", queries, out[OUT_WEIGHTS], wide),
                   product(g, "nbhts,nbhso->nbhto", mix, out[OUT_GRADIENTS], wide));
}
