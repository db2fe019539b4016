/* What tokens say of how the learner is to learn from them: rates, and gates. */
#include "model/mixer/ttt.h"

#include <stdio.h>

/* What a gate is taken of, x [..., hidden] to [..., heads], by the parameters NAME_weight [heads,
 * 1, hidden] and NAME_bias. */
static hlo_val score(hlo_graph *g, const net_layer *l, const char *name, hlo_val x)
{
    const ttt_config *c = l->net->config;
    char full[64];
    snprintf(full, sizeof full, "%s_weight", name);
    hlo_val weight = mixer_weight(g, l, full);
    weight = hlo_reshape(g, weight, HLO_DIMS(c->n_heads, c->hidden_size));
    snprintf(full, sizeof full, "%s_bias", name);
    hlo_val bias = mixer_param(g, l, full);
    const char *spec = hlo_rank(g, x) == 3 ? "btc,hc->bth" : "bc,hc->bh";
    hlo_val sum = hlo_einsum_as(g, spec, x, weight, net_wide(l->net), HLO_PRECISION_DEFAULT);
    sum = net_dear(g, l->net, sum);
    return hlo_add(g, sum, hlo_reshape(g, bias, HLO_DIMS(c->n_heads)));
}

hlo_val mixer_ttt_rate_score(hlo_graph *g, const net_layer *l, hlo_val x)
{
    return score(g, l, "learnable_ttt_lr", x);
}

double mixer_ttt_rate_factor(const ttt_config *c)
{
    return c->ttt_base_lr / (double)(c->hidden_size / c->n_heads);
}

hlo_val mixer_ttt_source_rate(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const ttt_config *c = l->net->config;
    const hlo_shape *s = hlo_shape_of(g, x);
    hlo_val rate;
    if (c->learnable_lr) {
        rate = hlo_logistic(g, mixer_ttt_rate_score(g, l, x));
        rate = hlo_mul(g, rate, hlo_like(g, rate, mixer_ttt_rate_factor(c)));
    } else {
        hlo_shape shape = {.type = net_wide(l->net), .rank = s->rank};
        for (int i = 0; i < s->rank; i++)
            shape.dims[i] = i == s->rank - 1 ? c->n_heads : s->dims[i];
        rate = hlo_full(g, shape, c->ttt_base_lr);
    }
    return l->rate_scale.id == 0
               ? rate
               : hlo_mul(g, rate, hlo_convert(g, l->rate_scale, net_wide(l->net)));
}

hlo_val mixer_ttt_answer_rate(hlo_graph *g, const net_layer *l, int64_t mini)
{
    hlo_shape shape = HLO_SHAPE(net_wide(l->net), mini);
    if (!l->net->config->learnable_token_idx)
        return hlo_full(g, shape, 1);
    hlo_val place = hlo_iota(g, shape, 0), one = hlo_like(g, place, 1);
    hlo_val mean = hlo_div(g, one, hlo_add(g, place, one));
    hlo_val learnt = hlo_add(g, mean, mixer_param(g, l, "learnable_token_idx"));
    return hlo_max(g, learnt, hlo_like(g, learnt, 0));
}

hlo_val mixer_ttt_log_decay(hlo_graph *g, const net_layer *l, hlo_val x)
{
    if (!l->net->config->inner_decay)
        return (hlo_val){0};
    hlo_val step = net_softplus(g, score(g, l, "decay", x));
    hlo_val speed = hlo_exp(g, mixer_param(g, l, "decay_log"));
    speed = hlo_reshape(g, speed, HLO_DIMS(l->net->config->n_heads));
    return hlo_neg(g, hlo_mul(g, step, speed));
}

hlo_val mixer_ttt_log_momentum(hlo_graph *g, const net_layer *l, hlo_val x)
{
    if (!l->net->config->inner_momentum)
        return (hlo_val){0};
    return hlo_neg(g, net_softplus(g, hlo_neg(g, score(g, l, "momentum", x))));
}
