/*
 * The primal form: what the dual form computes, one token at a time. The state keeps the weights
 * that the mini-batch started with, at which all its gradients are taken, and the sums of those
 * gradients; the weights that answer exist only here.
 */
#include "model/learner_inside.h"

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

hlo_val learner_primal(hlo_graph *g, const learner *l, const learner_token *token,
                       learner_state *state, learner_state *sums)
{
    const hlo_val none = {0};
    learner_at at = {.l = l, .state = *state}, moved = {.l = l};
    hlo_val first = learner_layer(g, &at, 0, token->k, none), x = token->q;
    learner_tokens t = learner_train(g, &at, first, token->k, token->target, none);
    for (int i = 0; i < l->n_layers; i++) {
        hlo_val d = hlo_mul(g, token->rate, t.d[i]);
        sums->w[i] = hlo_add(g, sums->w[i], hlo_einsum(g, "bhti,bhto->bhio", t.x[i], d));
        moved.state.w[i] = step_down(g, state->w[i], token->move, sums->w[i]);
        if (state->b[i].id == 0)
            continue;
        sums->b[i] = hlo_add(g, sums->b[i], d);
        moved.state.b[i] = step_down(g, state->b[i], token->move, sums->b[i]);
    }
    for (int i = 0; i < l->n_layers; i++) {
        x = learner_layer(g, &moved, i, i == 0 ? x : hlo_gelu(g, x), none);
        turn_over(g, token->last, moved.state.w[i], &state->w[i], &sums->w[i]);
        if (state->b[i].id != 0)
            turn_over(g, token->last, moved.state.b[i], &state->b[i], &sums->b[i]);
    }
    return x;
}
