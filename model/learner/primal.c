/*
 * The primal form: what the dual form computes, one token at a time. The state keeps the weights
 * that the mini-batch started with, at which all its gradients are taken, and the sums of those
 * gradients; the weights that answer exist only here.
 */
#include "model/learner/internal.h"

/* start - move * sum, for weights and biases alike. */
static hlo_val step_down(hlo_graph *g, hlo_val start, hlo_val move, hlo_val sum)
{
    return hlo_sub(g, start, hlo_mul(g, move, sum));
}

/* At the end of a mini-batch what answered becomes the start of the next, and sums begin anew. */
static void turn_over(hlo_graph *g, hlo_val last, hlo_val moved, hlo_val *start, hlo_val *sum)
{
    *start = hlo_select(g, last, moved, *start);
    *sum = hlo_select(g, last, hlo_zeros_like(g, *sum), *sum);
}

/* x times a gate, where there is one. */
static hlo_val gated(hlo_graph *g, hlo_val gate, hlo_val x)
{
    return gate.id == 0 ? x : hlo_mul(g, gate, x);
}

/* How far weights, or biases, were pulled since the mini-batch started, after one more gradient
 * times its rate; `pulling` is what goes on pulling, or null. */
static hlo_val pulled(hlo_graph *g, const learner_token *token, hlo_val sum, hlo_val gradient,
                      hlo_val *pulling)
{
    if (token->momentum.id != 0)
        gradient = *pulling = hlo_add(g, gated(g, token->momentum, *pulling), gradient);
    return hlo_add(g, gated(g, token->decay, sum), gradient);
}

/* ---- descent --------------------------------------------------------------------------------- */

static hlo_val descend(hlo_graph *g, const learner *l, const learner_token *token,
                       learner_state *state, learner_weights *sums)
{
    const learner_rows all = {{0}, {0}};
    learner_weights *now = &state->now, *first = &state->first;
    learner_at at = {.l = l}, moved = {.l = l};
    hlo_val x = token->q;
    for (int i = 0; i < l->n_layers; i++) {
        now->w[i] = gated(g, token->decay, now->w[i]);
        if (now->b[i].id != 0)
            now->b[i] = gated(g, token->decay, now->b[i]);
    }
    at.now = *now;
    hlo_val z = learner_layer(g, &at, 0, token->k, &all);
    learner_tokens t = learner_train(g, &at, z, token->k, token->target, &all);
    for (int i = 0; i < l->n_layers; i++) {
        hlo_val d = hlo_mul(g, token->rate, t.d[i]);
        sums->w[i] =
            pulled(g, token, sums->w[i], hlo_einsum(g, "bhti,bhto->bhio", t.x[i], d), &first->w[i]);
        moved.now.w[i] = step_down(g, now->w[i], token->move, sums->w[i]);
        if (now->b[i].id == 0)
            continue;
        sums->b[i] = pulled(g, token, sums->b[i], d, &first->b[i]);
        moved.now.b[i] = step_down(g, now->b[i], token->move, sums->b[i]);
    }
    for (int i = 0; i < l->n_layers; i++) {
        x = learner_layer(g, &moved, i, i == 0 ? x : learner_activate(g, l, x), &all);
        turn_over(g, token->last, moved.now.w[i], &now->w[i], &sums->w[i]);
        if (now->b[i].id != 0)
            turn_over(g, token->last, moved.now.b[i], &now->b[i], &sums->b[i]);
    }
    return x;
}

/* ---- rules that move weights once a mini-batch ----------------------------------------------- */

/* What the end of a mini-batch is made of. */
typedef struct ending {
    const learner *l;
    const learner_token *token;
    const learner_state *state;
    const learner_weights *sums;
} ending;

static void as_it_is(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const ending *e = ctx;
    (void)g, (void)in;
    learner_pack_state(e->l, e->state, out);
}

/* Sequences whose mini-batch goes on keep their state. */
static void moved_on(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const ending *e = ctx;
    learner_state next = *e->state;
    hlo_val old[LEARNER_MAX_STATE];
    (void)in;
    learner_move(g, e->l, e->sums, next.gates, &next);
    if (next.gates.id != 0)
        next.gates = hlo_zeros_like(g, next.gates);
    learner_pack_state(e->l, e->state, old);
    int n = learner_pack_state(e->l, &next, out);
    for (int i = 0; i < n; i++)
        out[i] = hlo_select(g, e->token->last, out[i], old[i]);
}

/* Answers are given by the weights the mini-batch started with. The rule is dear, and for few of
 * the tokens. */
static hlo_val gather(hlo_graph *g, const learner *l, const learner_token *token,
                      learner_state *state, learner_weights *sums)
{
    const learner_rows all = {{0}, {0}};
    learner_at at = {.l = l, .now = state->now};
    hlo_val x = token->q, list[LEARNER_MAX_STATE];
    hlo_val z = learner_layer(g, &at, 0, token->k, &all);
    learner_tokens t = learner_train(g, &at, z, token->k, token->target, &all);
    for (int i = 0; i < l->n_layers; i++) {
        hlo_val d = hlo_mul(g, token->rate, t.d[i]);
        x = learner_layer(g, &at, i, i == 0 ? x : learner_activate(g, l, x), &all);
        sums->w[i] = hlo_add(g, sums->w[i], hlo_einsum(g, "bhti,bhto->bhio", t.x[i], d));
        if (sums->b[i].id != 0)
            sums->b[i] = hlo_add(g, sums->b[i], d);
    }
    if (state->gates.id != 0) {
        hlo_val share = hlo_like(g, token->momentum, 1 / (double)l->mini);
        state->gates = hlo_add(g, state->gates, hlo_mul(g, token->momentum, share));
    }
    ending e = {l, token, state, sums};
    hlo_val any = hlo_reduce(g, HLO_REDUCE_OR, token->last, HLO_DIMS(0, 1, 2, 3));
    int n = learner_pack_state(l, state, list);
    hlo_if(g, any, moved_on, as_it_is, &e, list, n);
    learner_unpack_state(l, list, state);
    n = learner_pack(l, sums, list);
    for (int i = 0; i < n; i++)
        list[i] = hlo_select(g, token->last, hlo_zeros_like(g, list[i]), list[i]);
    learner_unpack(l, list, sums);
    return x;
}

hlo_val learner_primal(hlo_graph *g, const learner *l, const learner_token *token,
                       learner_state *state, learner_weights *sums)
{
    return (l->rule == LEARNER_DESCENT ? descend : gather)(g, l, token, state, sums);
}
