/*
 * What the two forms of a learner share: the model itself, the gradients of a set of tokens, and
 * how state is put together.
 */
#include "model/learner_inside.h"

/* ---- small pieces ------------------------------------------------------------------------------
 */

hlo_val learner_per_head(hlo_graph *g, hlo_val v)
{
    return hlo_reshape(g, v, HLO_DIMS(hlo_dim(g, v, 0), 1, hlo_dim(g, v, 1)));
}

static hlo_val scaled(hlo_graph *g, hlo_val v, double by)
{
    return hlo_mul(g, v, hlo_like(g, v, by));
}

hlo_precision learner_precision(hlo_type products)
{
    return products == HLO_BF16 ? HLO_PRECISION_DEFAULT : HLO_PRECISION_HIGH;
}

hlo_val learner_mean(hlo_graph *g, hlo_val x, hlo_precision precision)
{
    int64_t d = hlo_dim(g, x, -1);
    hlo_type type = hlo_type_of(g, x);
    hlo_val ones = hlo_full(g, HLO_SHAPE(type, d, d), 1.0 / (double)d);
    const char *spec = hlo_rank(g, x) == 5 ? "nbhti,io->nbhto" : "bhti,io->bhto";
    return hlo_einsum_as(g, spec, x, ones, type, precision);
}

/* The mean of each row, as a column or in every lane. */
static hlo_val row_mean(hlo_graph *g, const learner *l, hlo_val v)
{
    if (!l->matrix_sums) {
        hlo_val sum = hlo_reduce_keep(g, HLO_REDUCE_ADD, v, HLO_DIMS(hlo_rank(g, v) - 1));
        return scaled(g, sum, 1.0 / (double)hlo_dim(g, v, -1));
    }
    return learner_mean(g, v, learner_precision(l->products));
}

typedef struct normalised {
    hlo_val h;       /* (z - mean) / deviation */
    hlo_val inverse; /* 1 / deviation */
} normalised;

static normalised normalise(hlo_graph *g, const learner *l, hlo_val z)
{
    hlo_val centred = hlo_sub(g, z, row_mean(g, l, z));
    hlo_val variance = row_mean(g, l, hlo_mul(g, centred, centred));
    hlo_val inverse = hlo_rsqrt(g, hlo_add(g, variance, hlo_like(g, variance, LEARNER_EPSILON)));
    return (normalised){hlo_mul(g, centred, inverse), inverse};
}

static bool has_norm(const learner *l)
{
    return l->norm_scale.id != 0;
}

static bool has_biases(const learner *l)
{
    return l->b[0].id != 0;
}

static hlo_val normed(hlo_graph *g, const learner *l, hlo_val h)
{
    return hlo_add(g, hlo_mul(g, learner_per_head(g, l->norm_scale), h),
                   learner_per_head(g, l->norm_bias));
}

/* Gradient, with respect to res, of half the squared error. */
static hlo_val loss_gradient(hlo_graph *g, const learner *l, hlo_val res, hlo_val target)
{
    if (!has_norm(l))
        return hlo_sub(g, res, target);
    normalised n = normalise(g, l, res);
    hlo_val u =
        hlo_mul(g, hlo_sub(g, normed(g, l, n.h), target), learner_per_head(g, l->norm_scale));
    hlo_val along = hlo_mul(g, n.h, row_mean(g, l, hlo_mul(g, u, n.h)));
    return hlo_mul(g, hlo_sub(g, hlo_sub(g, u, row_mean(g, l, u)), along), n.inverse);
}

/* The reference takes truncated constants in the derivative alone; one tanh serves both, for the
 * two arguments differ by 1e-9. */
learner_gelu learner_gelu_of(hlo_graph *g, hlo_val x)
{
    hlo_val square = hlo_mul(g, x, x), one = hlo_like(g, x, 1), half = scaled(g, x, 0.5);
    hlo_val inside = hlo_mul(g, scaled(g, x, 0.79788456080286535588),
                             hlo_add(g, one, scaled(g, square, 0.044715)));
    hlo_val t = hlo_tanh(g, inside), up = hlo_add(g, one, t);
    hlo_val slope = hlo_add(g, hlo_like(g, x, 0.79788456), scaled(g, square, 0.1070322243));
    hlo_val bend = hlo_mul(g, hlo_mul(g, half, hlo_sub(g, one, hlo_mul(g, t, t))), slope);
    return (learner_gelu){hlo_mul(g, half, up), hlo_add(g, bend, scaled(g, up, 0.5))};
}

static void gelu_body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    learner_gelu made = learner_gelu_of(g, in[0]);
    (void)ctx;
    out[0] = made.value;
    out[1] = made.derivative;
}

/* Backwards it is computed again: a dozen arrays to keep are slower than one hyperbola. */
static learner_gelu gelu_again(hlo_graph *g, hlo_val x)
{
    hlo_val out[2];
    hlo_remat(g, gelu_body, NULL, HLO_SAVE_MARKED, &x, 1, out, 2);
    return (learner_gelu){out[0], out[1]};
}

/* ---- the model ---------------------------------------------------------------------------------
 */

hlo_val learner_target(hlo_graph *g, const learner *l, hlo_val k, hlo_val v)
{
    return has_norm(l) ? hlo_sub(g, v, k) : v;
}

hlo_val learner_answer(hlo_graph *g, const learner *l, hlo_val z, hlo_val res)
{
    if (!has_norm(l))
        return res;
    return hlo_add(g, z, normed(g, l, normalise(g, l, res).h));
}

hlo_val learner_error(hlo_graph *g, const learner *l, hlo_val res, hlo_val target)
{
    hlo_val made = has_norm(l) ? normed(g, l, normalise(g, l, res).h) : res;
    hlo_val off = hlo_sub(g, made, target);
    return hlo_mean(g, hlo_mul(g, off, off), HLO_DIMS(hlo_rank(g, off) - 1));
}

hlo_val learner_res_at_start(hlo_graph *g, const learner *l, hlo_val x)
{
    for (int i = 0; i < l->n_layers; i++) {
        x = hlo_einsum(g, "nbhti,hio->nbhto", i == 0 ? x : hlo_gelu(g, x), l->w[i]);
        if (has_biases(l))
            x = hlo_add(g, x, l->b[i]);
    }
    return x;
}

/* ---- state -------------------------------------------------------------------------------------
 */

static hlo_val for_each(hlo_graph *g, hlo_val v, int64_t batch)
{
    return hlo_broadcast(g, v,
                         HLO_DIMS(batch, hlo_dim(g, v, 0), hlo_dim(g, v, 1), hlo_dim(g, v, 2)),
                         HLO_DIMS(1, 2, 3));
}

learner_state learner_start(hlo_graph *g, const learner *l, int64_t batch)
{
    learner_state state = {0};
    for (int i = 0; i < l->n_layers; i++) {
        state.w[i] = for_each(g, l->w[i], batch);
        if (has_biases(l))
            state.b[i] = for_each(g, l->b[i], batch);
    }
    return state;
}

int learner_pack(const learner *l, const learner_state *state, hlo_val *list)
{
    int n = 0;
    for (int i = 0; i < l->n_layers; i++)
        list[n++] = state->w[i];
    for (int i = 0; i < l->n_layers && has_biases(l); i++)
        list[n++] = state->b[i];
    return n;
}

int learner_unpack(const learner *l, const hlo_val *list, learner_state *state)
{
    int n = 0;
    *state = (learner_state){0};
    for (int i = 0; i < l->n_layers; i++)
        state->w[i] = list[n++];
    for (int i = 0; i < l->n_layers && has_biases(l); i++)
        state->b[i] = list[n++];
    return n;
}

/* ---- tokens through a state --------------------------------------------------------------------
 */

hlo_val learner_product(hlo_graph *g, hlo_val a, const char *spec, hlo_val w, hlo_val start,
                        hlo_val fresh)
{
    hlo_val y = hlo_einsum(g, spec, a, w);
    return fresh.id == 0 ? y : hlo_select(g, fresh, hlo_einsum(g, spec, a, start), y);
}

hlo_val learner_layer(hlo_graph *g, const learner_at *at, int i, hlo_val x, hlo_val fresh)
{
    hlo_val y = learner_product(g, x, "bhti,bhio->bhto", at->state.w[i], at->start.w[i], fresh);
    if (at->state.b[i].id == 0)
        return y;
    /* A bias as the weight of an input of ones: its gradient is then a product too. */
    const hlo_shape *s = hlo_shape_of(g, x);
    hlo_val ones = hlo_full(g, HLO_SHAPE(s->type, s->dims[0], s->dims[1], s->dims[2], 1), 1);
    return hlo_add(
        g, y, learner_product(g, ones, "bhti,bhio->bhto", at->state.b[i], at->start.b[i], fresh));
}

learner_tokens learner_train(hlo_graph *g, const learner_at *at, hlo_val first, hlo_val k,
                             hlo_val target, hlo_val fresh)
{
    const learner *l = at->l;
    int n = l->n_layers;
    learner_tokens t = {.x[0] = k};
    hlo_val z = first, slope[LEARNER_MAX_LAYERS];
    for (int i = 1; i < n; i++) {
        learner_gelu gelu = gelu_again(g, z);
        t.x[i] = gelu.value;
        slope[i] = gelu.derivative;
        z = learner_layer(g, at, i, t.x[i], fresh);
    }
    t.res = z;
    t.d[n - 1] = loss_gradient(g, l, z, target);
    for (int i = n - 1; i > 0; i--)
        t.d[i - 1] = hlo_mul(
            g, learner_product(g, t.d[i], "bhto,bhio->bhti", at->state.w[i], at->start.w[i], fresh),
            slope[i]);
    return t;
}
