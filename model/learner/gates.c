/*
 * Gates in the dual form. With gates a of decay and m of momentum, rates r and gradients G, a token
 * at a time it is
 *
 *     S_t = m_t S_{t-1} + r_t G_t        what pulls: the gradient and what is left of those before
 *     U_t = a_t U_{t-1} + S_t            how far weights were pulled since the mini-batch started
 *     W_t = D_t W_0 - move_t U_t         D_t = a_1 … a_t, and gradients are taken at D_t W_0
 *
 * where without momentum S_t is r_t G_t. So tokens j move answers i by r_j times
 *
 *     move_i sum over s from j to i of (D_i / D_s) (P_s / P_j),        P_t = m_1 … m_t
 *
 * and the momentum a mini-batch starts with moves them by move_i sum over s of (D_i / D_s) P_s. All
 * are exponentials of differences of logarithms, never above 1 and never a quotient of what may
 * have become zero. Products begin anew where documents do.
 */
#include "model/learner/internal.h"

hlo_val learner_as_rows(hlo_graph *g, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    return hlo_reshape(g, x, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], s->dims[3], 1));
}

hlo_val learner_as_columns(hlo_graph *g, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    return hlo_reshape(g, x, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], 1, s->dims[3]));
}

/* The logarithms of products of gates [n, B, H, b] up to each row of `seen`: [n, B, H, r]. */
static hlo_val products(hlo_graph *g, hlo_val gates, hlo_val seen)
{
    hlo_val each = hlo_select(g, seen, learner_as_columns(g, gates), hlo_like(g, gates, 0));
    return hlo_sum(g, each, HLO_DIMS(4));
}

/* What is left at rows of what was at columns, where that is seen; else 1. */
static hlo_val left(hlo_graph *g, hlo_val at_rows, hlo_val at_columns, hlo_val seen)
{
    hlo_val off = hlo_sub(g, learner_as_rows(g, at_rows), learner_as_columns(g, at_columns));
    return hlo_exp(g, hlo_select(g, seen, off, hlo_like(g, off, 0)));
}

static hlo_val rows(hlo_graph *g, hlo_val x, int dim, int64_t start, int64_t limit)
{
    return hlo_slice_dim(g, x, dim, start, limit);
}

/* Answers b to r are asked beside those of the tokens' own places, for diagnostics. */
static void decay_by(hlo_graph *g, learner_data *data, hlo_val decay, hlo_val seen)
{
    hlo_val answers = products(g, decay, seen);
    hlo_val tokens = rows(g, answers, 3, 0, hlo_dim(g, data->k, 3));
    data->keep_answers = hlo_exp(g, learner_as_rows(g, answers));
    data->keep = hlo_exp(g, learner_as_rows(g, tokens));
    data->reach = hlo_mul(g, left(g, answers, tokens, seen), data->reach);
}

static void pull_by(hlo_graph *g, learner_data *data, hlo_val momentum, hlo_val seen)
{
    int64_t size = hlo_dim(g, data->k, 3);
    const hlo_shape *s = hlo_shape_of(g, momentum);
    hlo_dims full = HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], hlo_dim(g, data->q, 3), size);
    hlo_val own = rows(g, seen, hlo_rank(g, seen) - 2, 0, size);
    hlo_val tokens = products(g, momentum, own), reach = hlo_broadcast_to(g, data->reach, full);
    hlo_val zero = hlo_like(g, momentum, 0);
    hlo_val among = hlo_select(g, own, left(g, tokens, tokens, own), zero);
    hlo_val since = learner_as_rows(g, hlo_exp(g, tokens));
    hlo_val end = rows(g, since, 3, size - 1, size);
    data->pass = rows(g, among, 3, size - 1, size);
    data->pass = hlo_reshape(g, data->pass, HLO_DIMS(full.d[0], full.d[1], full.d[2], size));
    data->carried = hlo_einsum(g, "nbhts,nbhso->nbhto", reach, since);
    data->reach = hlo_einsum(g, "nbhts,nbhsj->nbhtj", reach, among);
    data->pass_end = end;
    if (data->fresh.id == 0)
        return;
    data->carried = hlo_select(g, data->fresh_answers, zero, data->carried);
    data->pass_end = hlo_select(g, data->fresh_end, zero, end);
}

/* Once a mini-batch there is one gate: the mean of its tokens'. */
static void pull_once(hlo_graph *g, learner_data *data, hlo_val momentum)
{
    hlo_val mean = hlo_mean(g, hlo_exp(g, momentum), HLO_DIMS(3));
    const hlo_shape *s = hlo_shape_of(g, mean);
    data->pass_end = hlo_reshape(g, mean, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], 1, 1));
}

void learner_gate(hlo_graph *g, const learner *l, learner_data *data, hlo_val decay,
                  hlo_val momentum, hlo_val seen)
{
    if (decay.id != 0)
        decay_by(g, data, decay, seen);
    if (momentum.id != 0 && l->rule == LEARNER_DESCENT)
        pull_by(g, data, momentum, seen);
    else if (momentum.id != 0)
        pull_once(g, data, momentum);
}
