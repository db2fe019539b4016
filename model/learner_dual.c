/*
 * The dual form. Everything that does not depend on the weights is computed for all mini-batches at
 * once, before the loop: the products of queries with keys, weighted by the rates, and the keys
 * weighted for the update. What depends only on the result, the norm and the residual of the
 * answers, comes after it. The loop has four matrix products for one layer: keys and queries
 * through the weights, the correction of the answers, the update. (Keys and queries through the
 * weights as one product is no gain: its gradient has to put the two together again.)
 */
#include "model/learner_inside.h"

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
    N_INPUTS
} loop_input;

typedef struct loop {
    const learner *l;
    learner_state start; /* null without resets */
} loop;

/* The answers, each as if the weights had been moved by the tokens up to its own. */
static hlo_val answer(hlo_graph *g, const learner_at *at, const learner_tokens *t,
                      const hlo_val *in)
{
    hlo_val first = learner_layer(g, at, 0, in[IN_QUERIES], in[IN_FRESH_ANSWERS]);
    hlo_val z = hlo_sub(g, first, hlo_einsum(g, "bhts,bhso->bhto", in[IN_FIRST_MIX], t->d[0]));
    bool biases = at->state.b[0].id != 0;
    for (int i = 1; i < at->l->n_layers; i++) {
        hlo_val x = hlo_gelu(g, z), product = hlo_einsum(g, "bhti,bhsi->bhts", x, t->x[i]);
        if (biases)
            product = hlo_add(g, product, hlo_like(g, product, 1));
        hlo_val mix = hlo_mul(g, in[IN_ETA], product);
        z = hlo_sub(g, learner_layer(g, at, i, x, in[IN_FRESH_ANSWERS]),
                    hlo_einsum(g, "bhts,bhso->bhto", mix, t->d[i]));
    }
    return z;
}

/* The state after a mini-batch. */
static learner_state moved(hlo_graph *g, const learner_at *at, const learner_tokens *t,
                           const hlo_val *in)
{
    learner_state from = at->state, next = {0};
    bool resets = in[IN_FRESH_END].id != 0;
    for (int i = 0; i < at->l->n_layers; i++) {
        hlo_val source = i == 0 ? in[IN_FIRST_UPDATE] : hlo_mul(g, t->x[i], in[IN_LAST]);
        if (resets)
            from.w[i] = hlo_select(g, in[IN_FRESH_END], at->start.w[i], from.w[i]);
        next.w[i] = hlo_sub(g, from.w[i], hlo_einsum(g, "bhti,bhto->bhio", source, t->d[i]));
        if (from.b[i].id == 0)
            continue;
        if (resets)
            from.b[i] = hlo_select(g, in[IN_FRESH_END], at->start.b[i], from.b[i]);
        next.b[i] = hlo_sub(g, from.b[i], hlo_einsum(g, "bhti,bhto->bhio", in[IN_LAST], t->d[i]));
    }
    return next;
}

static void mini_batch(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                       const hlo_val *given, hlo_val *next, hlo_val *out)
{
    const loop *p = ctx;
    learner_at at = {.l = p->l, .start = p->start};
    hlo_val in[N_INPUTS] = {0};
    bool resets = p->start.w[0].id != 0;
    (void)step;
    for (int i = 0; i < (resets ? N_INPUTS : IN_FRESH); i++)
        in[i] = given[i];
    learner_unpack(p->l, carry, &at.state);
    hlo_val first = learner_layer(g, &at, 0, in[IN_KEYS], in[IN_FRESH]);
    learner_tokens t = learner_train(g, &at, first, in[IN_KEYS], in[IN_TARGET], in[IN_FRESH]);
    out[0] = answer(g, &at, &t, in);
    out[1] = t.res;
    learner_state after = moved(g, &at, &t, in);
    learner_pack(p->l, &after, next);
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
                                               ? learner_chunked(g, l, data, state)
                                               : learner_chunked_mlp(g, l, data, state)};
    hlo_val eta = hlo_mul(g, with_one_after(g, data->rate, 4), data->reach);
    if (learner_can_call(g, l, data))
        return (learner_result){
            .answers = learner_called(g, l, data, eta, state, levels[0] == 0 ? 1 : levels[0])};
    loop p = {.l = l};
    hlo_val in[N_INPUTS], carry[2 * LEARNER_MAX_LAYERS], out[2];
    hlo_val last = last_of(g, data);
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
    bool resets = data->fresh.id != 0;
    if (resets)
        p.start = learner_start(g, l, hlo_dim(g, data->k, 1));
    hlo_scan_options options = {0};
    memcpy(options.checkpoint, levels, sizeof levels);
    int n = learner_pack(l, state, carry);
    hlo_scan(g, mini_batch, &p, carry, n, in, resets ? N_INPUTS : IN_FRESH, out, 2, &options);
    learner_unpack(l, carry, state);
    return (learner_result){.answers = out[0], .keys = out[1]};
}
