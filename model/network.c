/* Blocks around the mixers, from tokens to logits and loss. */
#include "model/network.h"

#include <stdio.h>

void ttt_params_bind(hlo_graph *g, const ttt_params *params, hlo_val *values)
{
    for (int i = 0; i < params->count; i++) {
        values[i] = hlo_param(g, params->list[i].name, params->list[i].shape);
        hlo_shard_param(g, values[i], params->list[i].spec);
    }
}

hlo_val net_param(hlo_graph *g, const ttt_net *net, const char *name)
{
    int index = ttt_params_find(net->params, name);
    if (index < 0) {
        hlo_fail(g, HLO_ERROR_VALUE, "the network has no parameter \"%s\"", name);
        return (hlo_val){0};
    }
    return net->values[index];
}

hlo_val net_layer_param(hlo_graph *g, const net_layer *l, const char *name)
{
    char full[160];
    snprintf(full, sizeof full, "model.layers.%d.%s", l->index, name);
    return net_param(g, l->net, full);
}

hlo_val net_causal_conv(hlo_graph *g, const net_layer *l, const char *name, hlo_val x)
{
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    hlo_val w = net_layer_param(g, l, full); /* [channels, 1, width] */
    w = hlo_reshape(g, w, HLO_DIMS(hlo_dim(g, w, 0), hlo_dim(g, w, 2)));
    snprintf(full, sizeof full, "%s.bias", name);
    hlo_val y = hlo_causal_conv(g, x, hlo_transpose(g, w, HLO_DIMS(1, 0)));
    return hlo_add(g, y, net_layer_param(g, l, full));
}

static hlo_val normed(hlo_graph *g, const net_layer *l, const char *name, hlo_val x)
{
    return hlo_rms_norm(g, x, net_layer_param(g, l, name), l->net->config->norm_epsilon);
}

static hlo_val mix(hlo_graph *g, const net_layer *l, hlo_val x)
{
    switch (l->net->config->mixer) {
    case TTT_MIXER_LINEAR:
    case TTT_MIXER_MLP:
        return mixer_ttt(g, l, x);
    case TTT_MIXER_ATTENTION:
        return mixer_attention(g, l, x);
    default:
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "the mixer %s is not built yet",
                 ttt_mixer_name(l->net->config->mixer));
        return (hlo_val){0};
    }
}

static hlo_val feed_forward(hlo_graph *g, const net_layer *l, hlo_val x)
{
    hlo_val gate = hlo_silu(g, hlo_matmul(g, x, net_layer_param(g, l, "mlp.gate_proj.weight")));
    hlo_val up = hlo_matmul(g, x, net_layer_param(g, l, "mlp.up_proj.weight"));
    return hlo_matmul(g, hlo_mul(g, gate, up), net_layer_param(g, l, "mlp.down_proj.weight"));
}

static hlo_val block(hlo_graph *g, const net_layer *l, hlo_val x)
{
    hlo_scope_push(g, "block.%d", l->index);
    if (l->net->config->pre_conv) {
        hlo_scope_push(g, "conv");
        x = hlo_add(g, x, net_causal_conv(g, l, "conv.conv", normed(g, l, "conv.norm.weight", x)));
        hlo_scope_pop(g);
    }
    hlo_scope_push(g, "mixer");
    x = hlo_add(g, x, mix(g, l, normed(g, l, "seq_norm.weight", x)));
    hlo_scope_pop(g);
    if (l->net->config->intermediate_size > 0) {
        hlo_scope_push(g, "mlp");
        x = hlo_add(g, x, feed_forward(g, l, normed(g, l, "ffn_norm.weight", x)));
        hlo_scope_pop(g);
    }
    hlo_scope_pop(g);
    return x;
}

hlo_val ttt_logits(hlo_graph *g, const ttt_net *net, hlo_val tokens)
{
    const ttt_config *c = net->config;
    hlo_scope_push(g, "embedding");
    hlo_val table = net_param(g, net, "model.embed_tokens.weight"), x = hlo_take(g, table, tokens);
    hlo_scope_pop(g);
    for (int i = 0; i < (int)c->n_layers; i++)
        x = block(g, &(net_layer){net, i}, x);
    hlo_scope_push(g, "head");
    x = hlo_rms_norm(g, x, net_param(g, net, "model.norm.weight"), c->norm_epsilon);
    hlo_val logits = c->tie_embeddings ? hlo_einsum(g, "btc,vc->btv", x, table)
                                       : hlo_matmul(g, x, net_param(g, net, "lm_head.weight"));
    hlo_scope_pop(g);
    return logits;
}

hlo_val ttt_loss(hlo_graph *g, const ttt_net *net, hlo_val tokens, hlo_val labels)
{
    hlo_val logits = ttt_logits(g, net, tokens);
    hlo_scope_push(g, "loss");
    hlo_val loss = hlo_mean(g, hlo_cross_entropy(g, logits, labels), HLO_DIMS(0, 1));
    hlo_scope_pop(g);
    return loss;
}
