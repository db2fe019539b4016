/*
 * The dual form. Everything that does not depend on the weights is computed for all mini-batches at
 * once, before the loop: the products of queries with keys, weighted by the rates, and the keys
 * weighted for the update. What depends only on the result, the norm and the residual of the
 * answers, comes after it. The loop has three matrix products for one layer: keys and queries
 * through the weights together, the correction of the answers, the update.
 */
#include "model/learner.h"

/* ---- small pieces ------------------------------------------------------------------------------
 */

/* [..., d] or [H, 1, d] in front of arrays [n, B, H, b, d]: as [H, 1, d] it broadcasts. */
static hlo_val per_head(hlo_graph *g, hlo_val v)
{
    return hlo_reshape(g, v, HLO_DIMS(hlo_dim(g, v, 0), 1, hlo_dim(g, v, -1)));
}

static hlo_val scaled(hlo_graph *g, hlo_val v, double by)
{
    return hlo_mul(g, v, hlo_like(g, v, by));
}

static hlo_val row_mean(hlo_graph *g, hlo_val v)
{
    hlo_val sum = hlo_reduce_keep(g, HLO_REDUCE_ADD, v, HLO_DIMS(hlo_rank(g, v) - 1));
    return scaled(g, sum, 1.0 / (double)hlo_dim(g, v, -1));
}

typedef struct normalised {
    hlo_val h;       /* (z - mean) / deviation */
    hlo_val inverse; /* 1 / deviation */
} normalised;

static normalised normalise(hlo_graph *g, hlo_val z, double epsilon)
{
    hlo_val centred = hlo_sub(g, z, row_mean(g, z));
    hlo_val variance = row_mean(g, hlo_mul(g, centred, centred));
    hlo_val inverse = hlo_rsqrt(g, hlo_add(g, variance, hlo_like(g, variance, epsilon)));
    return (normalised){hlo_mul(g, centred, inverse), inverse};
}

/* Gradient, with respect to z, of half the squared distance between LN(z) and the target. */
static hlo_val norm_loss_gradient(hlo_graph *g, const learner *l, hlo_val z, hlo_val target)
{
    hlo_val scale = per_head(g, l->norm_scale);
    normalised n = normalise(g, z, l->epsilon);
    hlo_val y = hlo_add(g, hlo_mul(g, scale, n.h), per_head(g, l->norm_bias));
    hlo_val u = hlo_mul(g, hlo_sub(g, y, target), scale);
    hlo_val along = hlo_mul(g, n.h, row_mean(g, hlo_mul(g, u, n.h)));
    return hlo_mul(g, hlo_sub(g, hlo_sub(g, u, row_mean(g, u)), along), n.inverse);
}

/* The derivative of the tanh form of GELU, with the constants of the reference. */
static hlo_val gelu_derivative(hlo_graph *g, hlo_val x)
{
    hlo_val square = hlo_mul(g, x, x), one = hlo_like(g, x, 1);
    hlo_val inside =
        hlo_mul(g, scaled(g, x, 0.79788456), hlo_add(g, one, scaled(g, square, 0.044715)));
    hlo_val t = hlo_tanh(g, inside);
    hlo_val slope = hlo_add(g, hlo_like(g, x, 0.79788456), scaled(g, square, 0.1070322243));
    hlo_val first =
        hlo_mul(g, hlo_mul(g, scaled(g, x, 0.5), hlo_sub(g, one, hlo_mul(g, t, t))), slope);
    return hlo_add(g, first, scaled(g, hlo_add(g, one, t), 0.5));
}

/* ---- one mini-batch ----------------------------------------------------------------------------
 */

/* What the loop is given for each mini-batch, in this order. */
enum { IN_KEYS_AND_QUERIES, IN_TARGET, IN_FIRST_MIX, IN_FIRST_UPDATE, IN_ETA, IN_LAST, N_INPUTS };

static hlo_val through(hlo_graph *g, hlo_val x, hlo_val w, hlo_val b)
{
    return hlo_add(g, hlo_einsum(g, "bhti,bhio->bhto", x, w), b);
}

/*
 * x [.., 2 b, ·]: the keys' half trains, the queries' half answers. Both go through a layer
 * together; then each has its own way.
 */
typedef struct halves {
    hlo_val keys, queries;
} halves;

static halves split_halves(hlo_graph *g, hlo_val x)
{
    int64_t b = hlo_dim(g, x, 2) / 2;
    return (halves){hlo_slice_dim(g, x, 2, 0, b), hlo_slice_dim(g, x, 2, b, 2 * b)};
}

static void train_step(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                       const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const learner *l = ctx;
    int n = l->n_layers;
    const hlo_val *w = carry, *b = carry + n;
    hlo_val keys[LEARNER_MAX_LAYERS], z[LEARNER_MAX_LAYERS], d[LEARNER_MAX_LAYERS];
    (void)step;
    /* Forwards: the first layer takes keys and queries together. */
    halves first = split_halves(g, through(g, in[IN_KEYS_AND_QUERIES], w[0], b[0]));
    keys[0] = split_halves(g, in[IN_KEYS_AND_QUERIES]).keys;
    z[0] = first.keys;
    for (int i = 1; i < n; i++) {
        keys[i] = hlo_gelu(g, z[i - 1]);
        z[i] = through(g, keys[i], w[i], b[i]);
    }
    /* Backwards: the gradients of all tokens with respect to each layer's output. */
    d[n - 1] = norm_loss_gradient(g, l, z[n - 1], in[IN_TARGET]);
    for (int i = n - 2; i >= 0; i--)
        d[i] = hlo_mul(g, hlo_einsum(g, "bhto,bhio->bhti", d[i + 1], w[i + 1]),
                       gelu_derivative(g, z[i]));
    /* The answers, each as if the weights had been updated by the tokens up to its own. */
    hlo_val answer =
        hlo_sub(g, first.queries, hlo_einsum(g, "bhts,bhso->bhto", in[IN_FIRST_MIX], d[0]));
    for (int i = 1; i < n; i++) {
        hlo_val x = hlo_gelu(g, answer);
        hlo_val product = hlo_einsum(g, "bhti,bhsi->bhts", x, keys[i]);
        hlo_val mix = hlo_mul(g, in[IN_ETA], hlo_add(g, product, hlo_like(g, product, 1)));
        answer = hlo_sub(g, through(g, x, w[i], b[i]), hlo_einsum(g, "bhts,bhso->bhto", mix, d[i]));
    }
    out[0] = answer;
    /* The update by all of them. */
    for (int i = 0; i < n; i++) {
        hlo_val source = i == 0 ? in[IN_FIRST_UPDATE] : hlo_mul(g, keys[i], in[IN_LAST]);
        next[i] = hlo_sub(g, w[i], hlo_einsum(g, "bhti,bhto->bhio", source, d[i]));
        next[n + i] = hlo_sub(g, b[i], hlo_einsum(g, "bhti,bhto->bhio", in[IN_LAST], d[i]));
    }
}

/* ---- all of them -------------------------------------------------------------------------------
 */

learner_state learner_start(hlo_graph *g, const learner *l, int64_t batch)
{
    learner_state state;
    for (int i = 0; i < l->n_layers; i++) {
        const hlo_val from[2] = {l->w[i], l->b[i]};
        hlo_val to[2];
        for (int k = 0; k < 2; k++)
            to[k] = hlo_broadcast(g, from[k],
                                  HLO_DIMS(batch, hlo_dim(g, from[k], 0), hlo_dim(g, from[k], 1),
                                           hlo_dim(g, from[k], 2)),
                                  HLO_DIMS(1, 2, 3));
        state.w[i] = to[0];
        state.b[i] = to[1];
    }
    return state;
}

/* eta[i, j] = token[i] * rate[j] where j is not after i, else 0: [n, B, H, b, b]. */
static hlo_val rates(hlo_graph *g, const learner_data *data)
{
    const hlo_shape *s = hlo_shape_of(g, data->rate);
    hlo_val columns =
        hlo_reshape(g, data->rate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], 1, s->dims[3]));
    hlo_val rows = hlo_reshape(g, data->token, HLO_DIMS(s->dims[3], 1));
    hlo_val eta = hlo_mul(g, columns, rows);
    hlo_shape square = HLO_SHAPE(HLO_S32, s->dims[3], s->dims[3]);
    hlo_val not_after = hlo_compare(g, HLO_GE, hlo_iota(g, square, 0), hlo_iota(g, square, 1));
    return hlo_select(g, not_after, eta, hlo_like(g, eta, 0));
}

hlo_val learner_dual(hlo_graph *g, const learner *l, const learner_data *data, learner_state *state,
                     int64_t group)
{
    int n = l->n_layers;
    hlo_val eta = rates(g, data), in[N_INPUTS], carry[2 * LEARNER_MAX_LAYERS], answers;
    int64_t b = hlo_dim(g, data->k, 3);
    const hlo_shape *s = hlo_shape_of(g, data->k);
    /* The last row of eta as a column: what the whole mini-batch changes the weights by. */
    hlo_val last = hlo_reshape(g, hlo_slice_dim(g, eta, 3, b - 1, b),
                               HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], b, 1));
    hlo_val product = hlo_einsum(g, "nbhtd,nbhsd->nbhts", data->q, data->k);
    in[IN_KEYS_AND_QUERIES] = hlo_concat(g, (hlo_val[]){data->k, data->q}, 2, 3);
    in[IN_TARGET] = hlo_sub(g, data->v, data->k);
    in[IN_FIRST_MIX] = hlo_mul(g, eta, hlo_add(g, product, hlo_like(g, product, 1)));
    in[IN_FIRST_UPDATE] = hlo_mul(g, data->k, last);
    in[IN_ETA] = eta;
    in[IN_LAST] = last;
    for (int i = 0; i < n; i++) {
        carry[i] = state->w[i];
        carry[n + i] = state->b[i];
    }
    hlo_scan(g, train_step, (void *)l, carry, 2 * n, in, N_INPUTS, &answers, 1,
             &(hlo_scan_options){.checkpoint = {group}});
    for (int i = 0; i < n; i++) {
        state->w[i] = carry[i];
        state->b[i] = carry[n + i];
    }
    normalised z = normalise(g, answers, l->epsilon);
    hlo_val norm =
        hlo_add(g, hlo_mul(g, per_head(g, l->norm_scale), z.h), per_head(g, l->norm_bias));
    return hlo_add(g, data->q, norm);
}
