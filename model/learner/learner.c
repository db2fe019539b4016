/*
 * What the two forms of a learner share: the model itself, the gradients of a set of tokens, and
 * how state is put together.
 */
#include "model/learner/internal.h"

/* ---- small pieces ---------------------------------------------------------------------------- */

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
    if (!l->row_sums_as_matmul) {
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

/* Gradient of the loss with respect to what is compared with the target. */
static hlo_val pull_of(hlo_graph *g, const learner *l, hlo_val made, hlo_val target)
{
    return l->dot_loss ? hlo_neg(g, target) : hlo_sub(g, made, target);
}

/* Gradient of the loss with respect to res. */
static hlo_val loss_gradient(hlo_graph *g, const learner *l, hlo_val res, hlo_val target)
{
    if (!has_norm(l))
        return pull_of(g, l, res, target);
    normalised n = normalise(g, l, res);
    hlo_val u =
        hlo_mul(g, pull_of(g, l, normed(g, l, n.h), target), learner_per_head(g, l->norm_scale));
    hlo_val along = hlo_mul(g, n.h, row_mean(g, l, hlo_mul(g, u, n.h)));
    return hlo_mul(g, hlo_sub(g, hlo_sub(g, u, row_mean(g, l, u)), along), n.inverse);
}

/* ---- the model ------------------------------------------------------------------------------- */

hlo_val learner_target(hlo_graph *g, const learner *l, hlo_val k, hlo_val v)
{
    return has_norm(l) && !l->dot_loss ? hlo_sub(g, v, k) : v;
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
    hlo_val off = pull_of(g, l, made, target);
    return hlo_mean(g, hlo_mul(g, off, l->dot_loss ? made : off), HLO_DIMS(hlo_rank(g, off) - 1));
}

/* x [(n,) B, H, rows, in] through a layer as all sequences have it. */
static hlo_val through(hlo_graph *g, hlo_val x, hlo_val w, hlo_val b)
{
    x = hlo_einsum(g, hlo_rank(g, x) == 5 ? "nbhti,hio->nbhto" : "bhti,hio->bhto", x, w);
    return b.id == 0 ? x : hlo_add(g, x, b);
}

hlo_val learner_features(hlo_graph *g, const learner *l, hlo_val x)
{
    for (int i = 0; i < l->n_fixed; i++)
        x = learner_activate(g, l, through(g, x, l->fixed_w[i], l->fixed_b[i]));
    return x;
}

hlo_val learner_res_at_start(hlo_graph *g, const learner *l, hlo_val x)
{
    for (int i = 0; i < l->n_layers; i++)
        x = through(g, i == 0 ? x : learner_activate(g, l, x), l->w[i], l->b[i]);
    return x;
}

/* ---- state ----------------------------------------------------------------------------------- */

static hlo_val for_each(hlo_graph *g, hlo_val v, int64_t batch)
{
    return hlo_broadcast(g, v,
                         HLO_DIMS(batch, hlo_dim(g, v, 0), hlo_dim(g, v, 1), hlo_dim(g, v, 2)),
                         HLO_DIMS(1, 2, 3));
}

static learner_weights zeros_like(hlo_graph *g, const learner *l, const learner_weights *weights)
{
    hlo_val list[2 * LEARNER_MAX_LAYERS];
    learner_weights zeros;
    int n = learner_pack(l, weights, list);
    for (int i = 0; i < n; i++)
        list[i] = hlo_zeros_like(g, list[i]);
    learner_unpack(l, list, &zeros);
    return zeros;
}

/* Which of them a state has beside the weights. */
static bool has_first(const learner *l)
{
    return l->momentum || l->rule == LEARNER_ADAM;
}

static bool has_gates(const learner *l)
{
    return l->momentum && l->rule == LEARNER_MUON;
}

learner_state learner_start(hlo_graph *g, const learner *l, int64_t batch)
{
    learner_state state = {0};
    for (int i = 0; i < l->n_layers; i++) {
        state.now.w[i] = for_each(g, l->w[i], batch);
        if (has_biases(l))
            state.now.b[i] = for_each(g, l->b[i], batch);
    }
    hlo_shape number = HLO_SHAPE(hlo_type_of(g, l->w[0]), batch, hlo_dim(g, l->w[0], 0), 1, 1);
    if (has_first(l))
        state.first = zeros_like(g, l, &state.now);
    if (l->rule == LEARNER_ADAM) {
        state.second = zeros_like(g, l, &state.now);
        state.steps = hlo_full(g, number, 0);
    }
    if (has_gates(l))
        state.gates = hlo_full(g, number, 0);
    return state;
}

int learner_pack(const learner *l, const learner_weights *weights, hlo_val *list)
{
    int n = 0;
    for (int i = 0; i < l->n_layers; i++)
        list[n++] = weights->w[i];
    for (int i = 0; i < l->n_layers && has_biases(l); i++)
        list[n++] = weights->b[i];
    return n;
}

int learner_unpack(const learner *l, const hlo_val *list, learner_weights *weights)
{
    int n = 0;
    *weights = (learner_weights){0};
    for (int i = 0; i < l->n_layers; i++)
        weights->w[i] = list[n++];
    for (int i = 0; i < l->n_layers && has_biases(l); i++)
        weights->b[i] = list[n++];
    return n;
}

int learner_pack_state(const learner *l, const learner_state *state, hlo_val *list)
{
    int n = learner_pack(l, &state->now, list);
    if (has_first(l))
        n += learner_pack(l, &state->first, list + n);
    if (l->rule == LEARNER_ADAM) {
        n += learner_pack(l, &state->second, list + n);
        list[n++] = state->steps;
    }
    if (has_gates(l))
        list[n++] = state->gates;
    return n;
}

int learner_unpack_state(const learner *l, const hlo_val *list, learner_state *state)
{
    *state = (learner_state){0};
    int n = learner_unpack(l, list, &state->now);
    if (has_first(l))
        n += learner_unpack(l, list + n, &state->first);
    if (l->rule == LEARNER_ADAM) {
        n += learner_unpack(l, list + n, &state->second);
        state->steps = list[n++];
    }
    if (has_gates(l))
        state->gates = list[n++];
    return n;
}

/* ---- tokens through a state ------------------------------------------------------------------ */

/* a times w; rows that are fresh times the start instead. */
static hlo_val product(hlo_graph *g, hlo_val a, const char *spec, hlo_val w, hlo_val start,
                       hlo_val fresh)
{
    hlo_val y = hlo_einsum(g, spec, a, w);
    return fresh.id == 0 ? y : hlo_select(g, fresh, hlo_einsum(g, spec, a, start), y);
}

static hlo_val kept(hlo_graph *g, hlo_val y, const learner_rows *rows)
{
    return rows->keep.id == 0 ? y : hlo_mul(g, y, rows->keep);
}

hlo_val learner_layer(hlo_graph *g, const learner_at *at, int i, hlo_val x,
                      const learner_rows *rows)
{
    static const char spec[] = "bhti,bhio->bhto";
    hlo_val y = product(g, x, spec, at->now.w[i], at->start.w[i], rows->fresh);
    if (at->now.b[i].id == 0)
        return kept(g, y, rows);
    /* A bias as the weight of an input of ones: its gradient is then a product too. */
    const hlo_shape *s = hlo_shape_of(g, x);
    hlo_val ones = hlo_full(g, HLO_SHAPE(s->type, s->dims[0], s->dims[1], s->dims[2], 1), 1);
    hlo_val bias = product(g, ones, spec, at->now.b[i], at->start.b[i], rows->fresh);
    return kept(g, hlo_add(g, y, bias), rows);
}

learner_tokens learner_train(hlo_graph *g, const learner_at *at, hlo_val first, hlo_val k,
                             hlo_val target, const learner_rows *rows)
{
    const learner *l = at->l;
    int n = l->n_layers;
    learner_tokens t = {.x[0] = k};
    learner_active active[LEARNER_MAX_LAYERS];
    hlo_val z = first;
    for (int i = 1; i < n; i++) {
        active[i] = learner_active_of(g, l, z);
        t.x[i] = active[i].value;
        z = learner_layer(g, at, i, t.x[i], rows);
    }
    t.res = z;
    t.d[n - 1] = loss_gradient(g, l, z, target);
    for (int i = n - 1; i > 0; i--) {
        hlo_val back =
            product(g, t.d[i], "bhto,bhio->bhti", at->now.w[i], at->start.w[i], rows->fresh);
        t.d[i - 1] = learner_pull(g, l, &active[i], kept(g, back, rows));
    }
    return t;
}
