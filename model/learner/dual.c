/*
 * The dual form. Everything that does not depend on the weights is computed for all mini-batches at
 * once, before the loop: the products of queries with keys, weighted by the rates, and the keys
 * weighted for the update. What depends only on the result, the norm and the residual of the
 * answers, comes after it. The loop has four matrix products for one layer: keys and queries
 * through the weights, the correction of the answers, the update. (Keys and queries through the
 * weights as one product is no gain: its gradient has to put the two together again.) Gates add
 * factors of rows, and momentum one more product a layer: learner_gates.c.
 */
#include "model/learner/internal.h"

#include <math.h>
#include <string.h>

/* What the loop is given for each mini-batch, in this order; what is not needed is left out. */
typedef enum loop_input {
    IN_KEYS,
    IN_QUERIES,
    IN_TARGET,
    IN_FIRST_MIX,
    IN_FIRST_UPDATE,
    IN_ETA,
    IN_LAST,
    IN_FRESH,
    IN_FRESH_ANSWERS,
    IN_FRESH_END,
    IN_KEEP,
    IN_KEEP_ANSWERS,
    IN_CARRIED,
    IN_PASS,
    IN_PASS_END,
    N_INPUTS
} loop_input;

typedef struct loop {
    const learner *l;
    learner_weights start; /* null without resets */
    bool given[N_INPUTS];
} loop;

/* A mini-batch: the learner as it starts, what pulls at it from before, and what it is given. */
typedef struct mini_batch {
    learner_at at, pulling;
    const hlo_val *in;
    learner_tokens t;
} mini_batch;

/* Queries x through layer i as the mini-batch starts, and as it was pulled before. */
static hlo_val before(hlo_graph *g, const mini_batch *m, int i, hlo_val x)
{
    learner_rows rows = {m->in[IN_FRESH_ANSWERS], m->in[IN_KEEP_ANSWERS]};
    hlo_val z = learner_layer(g, &m->at, i, x, &rows);
    if (m->in[IN_CARRIED].id == 0)
        return z;
    rows = (learner_rows){.keep = m->in[IN_CARRIED]};
    return hlo_sub(g, z, learner_layer(g, &m->pulling, i, x, &rows));
}

/* The answers, each as if the weights had been moved by the tokens up to its own. */
static hlo_val answer(hlo_graph *g, const mini_batch *m)
{
    const learner *l = m->at.l;
    const hlo_val *in = m->in;
    hlo_val first = before(g, m, 0, in[IN_QUERIES]);
    hlo_val z = hlo_sub(g, first, hlo_einsum(g, "bhts,bhso->bhto", in[IN_FIRST_MIX], m->t.d[0]));
    bool biases = m->at.now.b[0].id != 0;
    for (int i = 1; i < l->n_layers; i++) {
        hlo_val x = learner_activate(g, l, z);
        hlo_val product = hlo_einsum(g, "bhti,bhsi->bhts", x, m->t.x[i]);
        if (biases)
            product = hlo_add(g, product, hlo_like(g, product, 1));
        hlo_val mix = hlo_mul(g, in[IN_ETA], product);
        z = hlo_sub(g, before(g, m, i, x), hlo_einsum(g, "bhts,bhso->bhto", mix, m->t.d[i]));
    }
    return z;
}

/* Weights or biases after a mini-batch, but for what its own tokens do. */
static hlo_val moved_before(hlo_graph *g, const mini_batch *m, hlo_val now, hlo_val start,
                            hlo_val pulling)
{
    const hlo_val *in = m->in;
    int64_t size = hlo_dim(g, in[IN_KEYS], 2);
    if (in[IN_FRESH_END].id != 0)
        now = hlo_select(g, in[IN_FRESH_END], start, now);
    if (in[IN_KEEP_ANSWERS].id != 0)
        now = hlo_mul(g, now, hlo_slice_dim(g, in[IN_KEEP_ANSWERS], 2, size - 1, size));
    if (in[IN_CARRIED].id == 0)
        return now;
    hlo_val carried = hlo_slice_dim(g, in[IN_CARRIED], 2, size - 1, size);
    return hlo_sub(g, now, hlo_mul(g, carried, pulling));
}

/* The weights after a mini-batch. */
static learner_weights moved(hlo_graph *g, const mini_batch *m)
{
    const learner_at *at = &m->at, *pull = &m->pulling;
    const hlo_val *in = m->in;
    learner_weights next = {0};
    for (int i = 0; i < at->l->n_layers; i++) {
        hlo_val source = i == 0 ? in[IN_FIRST_UPDATE] : hlo_mul(g, m->t.x[i], in[IN_LAST]);
        hlo_val from = moved_before(g, m, at->now.w[i], at->start.w[i], pull->now.w[i]);
        next.w[i] = hlo_sub(g, from, hlo_einsum(g, "bhti,bhto->bhio", source, m->t.d[i]));
        if (at->now.b[i].id == 0)
            continue;
        from = moved_before(g, m, at->now.b[i], at->start.b[i], pull->now.b[i]);
        next.b[i] = hlo_sub(g, from, hlo_einsum(g, "bhti,bhto->bhio", in[IN_LAST], m->t.d[i]));
    }
    return next;
}

/* What pulls after a mini-batch. */
static learner_weights pulling_on(hlo_graph *g, const mini_batch *m)
{
    const learner_weights *from = &m->pulling.now;
    hlo_val pass = m->in[IN_PASS], end = m->in[IN_PASS_END];
    learner_weights next = {0};
    for (int i = 0; i < m->at.l->n_layers; i++) {
        hlo_val source = hlo_mul(g, m->t.x[i], pass);
        next.w[i] = hlo_add(g, hlo_mul(g, end, from->w[i]),
                            hlo_einsum(g, "bhti,bhto->bhio", source, m->t.d[i]));
        if (from->b[i].id != 0)
            next.b[i] = hlo_add(g, hlo_mul(g, end, from->b[i]),
                                hlo_einsum(g, "bhti,bhto->bhio", pass, m->t.d[i]));
    }
    return next;
}

static void through_mini_batch(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                               const hlo_val *given, hlo_val *next, hlo_val *out)
{
    const loop *p = ctx;
    hlo_val in[N_INPUTS] = {0};
    learner_state state, after = {0};
    (void)step;
    for (int i = 0, n = 0; i < N_INPUTS; i++)
        in[i] = p->given[i] ? given[n++] : (hlo_val){0};
    learner_unpack_state(p->l, carry, &state);
    mini_batch m = {.at = {p->l, state.now, p->start}, .pulling = {p->l, .now = state.first}};
    learner_rows rows = {in[IN_FRESH], in[IN_KEEP]};
    hlo_val first = learner_layer(g, &m.at, 0, in[IN_KEYS], &rows);
    m.in = in;
    m.t = learner_train(g, &m.at, first, in[IN_KEYS], in[IN_TARGET], &rows);
    out[0] = answer(g, &m);
    out[1] = m.t.res;
    after.now = moved(g, &m);
    if (p->l->momentum)
        after.first = pulling_on(g, &m);
    learner_pack_state(p->l, &after, next);
}

/* At least `least`, and a divisor of n if there is one not much larger: what is left over after
 * whole groups is another loop to compile. */
static int64_t group_of(int64_t n, int64_t least)
{
    for (int64_t even = least; even < 2 * least; even++) {
        if (n % even == 0)
            return even;
    }
    return least;
}

/* From so many mini-batches on (32k tokens of 16), groups of groups are worth their time. */
enum { NESTED = 2048 };

/*
 * Groups of the square root of n mini-batches keep as many states between groups as within one. Of
 * very many, groups of groups of the cube root keep fewer still, for one more way forward.
 */
static void choose_groups(int64_t n, int64_t least, int64_t levels[HLO_MAX_CHECKPOINT_LEVELS])
{
    if (least == 0)
        return; /* all are kept */
    int64_t root = (int64_t)ceil(n < NESTED ? sqrt((double)n) : cbrt((double)n));
    levels[0] = group_of(n, least > root ? least : root);
    if (n >= NESTED && n / levels[0] >= 2 * root)
        levels[1] = group_of(n / levels[0], root);
}

/* [n, B, H, b] as the last dimension but one, or the last. */
static hlo_val with_one_after(hlo_graph *g, hlo_val rate, int dim)
{
    const hlo_shape *s = hlo_shape_of(g, rate);
    hlo_dims dims = {.n = 5, .d = {s->dims[0], s->dims[1], s->dims[2], 1, 1}};
    dims.d[dim] = s->dims[3];
    return hlo_reshape(g, rate, dims);
}

/* How far tokens move the weights that go on: [n, B, H, b, 1]. */
static hlo_val last_of(hlo_graph *g, const learner_data *data)
{
    int row = hlo_rank(g, data->reach) - 2;
    int64_t size = hlo_dim(g, data->reach, -1);
    hlo_val reach = hlo_slice_dim(g, data->reach, row, size - 1, size);
    const hlo_shape *s = hlo_shape_of(g, reach);
    reach = row == 0 ? hlo_reshape(g, reach, HLO_DIMS(size, 1))
                     : hlo_reshape(g, reach, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], size, 1));
    return hlo_mul(g, with_one_after(g, data->rate, 3), reach);
}

learner_result learner_dual(hlo_graph *g, const learner *l, const learner_data *data,
                            learner_state *state, int64_t group)
{
    int64_t levels[HLO_MAX_CHECKPOINT_LEVELS] = {0};
    choose_groups(hlo_dim(g, data->k, 0), group, levels);
    if (hlo_dim(g, data->k, 3) > data->mini)
        return (learner_result){.answers = l->n_layers == 1
                                               ? learner_chunked(g, l, data, &state->now)
                                               : learner_chunked_mlp(g, l, data, &state->now)};
    hlo_val eta = hlo_mul(g, with_one_after(g, data->rate, 4), data->reach);
    if (learner_can_call(g, l, data))
        return (learner_result){.answers = learner_called(g, l, data, eta, &state->now,
                                                          levels[0] == 0 ? 1 : levels[0])};
    loop p = {.l = l};
    hlo_scan_options options = {0};
    memcpy(options.checkpoint, levels, sizeof levels);
    hlo_val in[N_INPUTS], carry[LEARNER_MAX_STATE], out[2];
    hlo_val last = last_of(g, data);
    if (l->rule != LEARNER_DESCENT)
        return learner_moving_once(g, l, data, last, state, &options);
    hlo_val product = hlo_einsum(g, "nbhtd,nbhsd->nbhts", data->q, data->k);
    if (l->b[0].id != 0) /* a bias is a weight whose input is 1 */
        product = hlo_add(g, product, hlo_like(g, product, 1));
    in[IN_KEYS] = data->k;
    in[IN_QUERIES] = data->q;
    in[IN_TARGET] = data->target;
    in[IN_FIRST_MIX] = hlo_mul(g, eta, product);
    in[IN_FIRST_UPDATE] = hlo_mul(g, data->k, last);
    in[IN_ETA] = eta;
    in[IN_LAST] = last;
    in[IN_FRESH] = data->fresh;
    in[IN_FRESH_ANSWERS] = data->fresh_answers;
    in[IN_FRESH_END] = data->fresh_end;
    in[IN_KEEP] = data->keep;
    in[IN_KEEP_ANSWERS] = data->keep_answers;
    in[IN_CARRIED] = data->carried;
    in[IN_PASS] = data->pass;
    in[IN_PASS_END] = data->pass_end;
    if (data->pass.id != 0)
        in[IN_PASS] = with_one_after(g, hlo_mul(g, data->rate, data->pass), 3);
    if (data->fresh.id != 0)
        p.start = learner_start(g, l, hlo_dim(g, data->k, 1)).now;
    int n_inputs = 0;
    for (int i = 0; i < N_INPUTS; i++) {
        p.given[i] = in[i].id != 0;
        if (p.given[i])
            in[n_inputs++] = in[i];
    }
    int n = learner_pack_state(l, state, carry);
    hlo_scan(g, through_mini_batch, &p, carry, n, in, n_inputs, out, 2, &options);
    learner_unpack_state(l, carry, state);
    return (learner_result){.answers = out[0], .keys = out[1]};
}
