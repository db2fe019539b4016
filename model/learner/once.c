/*
 * The dual form of rules that move the weights once a mini-batch. All its answers are given, and
 * all its gradients taken, at the weights it starts with, so there is nothing to correct: queries
 * and keys go through the weights, and the rule makes the next ones (learner_rule.c).
 */
#include "model/learner/internal.h"

/* What the loop is given for each mini-batch; what is not there is left out. */
enum {
    IN_KEYS,
    IN_QUERIES,
    IN_TARGET,
    IN_RATE, /* of tokens that are of the document it ends with: [B, H, b, 1] */
    IN_MOMENTUM,
    IN_FRESH,
    IN_FRESH_ANSWERS,
    IN_FRESH_END,
    N_INPUTS
};

typedef struct loop {
    const learner *l;
    learner_state start; /* null without resets */
    bool given[N_INPUTS];
} loop;

/* A document that starts within the mini-batch leaves nothing of what was before. */
static void start_anew(hlo_graph *g, const loop *p, hlo_val fresh, learner_state *state)
{
    hlo_val list[LEARNER_MAX_STATE], start[LEARNER_MAX_STATE];
    int n = learner_pack_state(p->l, state, list);
    learner_pack_state(p->l, &p->start, start);
    for (int i = 0; i < n; i++)
        list[i] = hlo_select(g, fresh, start[i], list[i]);
    learner_unpack_state(p->l, list, state);
}

static void through_mini_batch(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                               const hlo_val *given, hlo_val *next, hlo_val *out)
{
    const loop *p = ctx;
    const learner *l = p->l;
    hlo_val in[N_INPUTS] = {0};
    learner_state state;
    (void)step;
    for (int i = 0, n = 0; i < N_INPUTS; i++)
        in[i] = p->given[i] ? given[n++] : (hlo_val){0};
    learner_unpack_state(l, carry, &state);
    learner_at at = {l, state.now, p->start.now};
    learner_rows rows = {.fresh = in[IN_FRESH]}, answers = {.fresh = in[IN_FRESH_ANSWERS]};
    hlo_val x = in[IN_QUERIES], first = learner_layer(g, &at, 0, in[IN_KEYS], &rows);
    learner_tokens t = learner_train(g, &at, first, in[IN_KEYS], in[IN_TARGET], &rows);
    learner_weights sums = {0};
    for (int i = 0; i < l->n_layers; i++) {
        x = learner_layer(g, &at, i, i == 0 ? x : learner_activate(g, l, x), &answers);
        hlo_val source = hlo_mul(g, t.x[i], in[IN_RATE]);
        sums.w[i] = hlo_einsum(g, "bhti,bhto->bhio", source, t.d[i]);
        if (state.now.b[i].id != 0)
            sums.b[i] = hlo_einsum(g, "bhti,bhto->bhio", in[IN_RATE], t.d[i]);
    }
    if (in[IN_FRESH_END].id != 0)
        start_anew(g, p, in[IN_FRESH_END], &state);
    learner_move(g, l, &sums, in[IN_MOMENTUM], &state);
    learner_pack_state(l, &state, next);
    out[0] = x;
    out[1] = t.res;
}

learner_result learner_moving_once(hlo_graph *g, const learner *l, const learner_data *data,
                                   hlo_val rate, learner_state *state,
                                   const hlo_scan_options *options)
{
    loop p = {.l = l};
    hlo_val in[N_INPUTS] = {data->k,        data->q,     data->target,        rate,
                            data->pass_end, data->fresh, data->fresh_answers, data->fresh_end};
    hlo_val carry[LEARNER_MAX_STATE], out[2];
    int n_inputs = 0, n = learner_pack_state(l, state, carry);
    if (data->fresh.id != 0)
        p.start = learner_start(g, l, hlo_dim(g, data->k, 1));
    for (int i = 0; i < N_INPUTS; i++) {
        p.given[i] = in[i].id != 0;
        if (p.given[i])
            in[n_inputs++] = in[i];
    }
    hlo_scan(g, through_mini_batch, &p, carry, n, in, n_inputs, out, 2, options);
    learner_unpack_state(l, carry, state);
    return (learner_result){.answers = out[0], .keys = out[1]};
}
